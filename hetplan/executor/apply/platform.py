"""A rendered plan on its platform: the difference, an apply with journal and way back, undo, what runs, and its end.

::

    platform = Platform(site)
    print(platform.changes(rendered).text)    # nothing is touched
    platform.apply(rendered)                  # ApplyFailed where it cannot be, after going back
    platform.down()

An apply that was killed at any point is finished by the next apply of the same plan, redirected by the apply of
another, and undone by `undo`. A change in place goes the same way as a start.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hetplan.executor.apply.cluster import Changes, Cluster, Rendered, RunningGroup
from hetplan.executor.apply.one_by_one import Progress, Say, Task, go_back, one_by_one
from hetplan.executor.durable import DeploymentLock, Journal, Unfinished
from hetplan.executor.render.names import dns_name
from hetplan.executor.render.site import Site
from hetplan.executor.target import ApplyFailed, TargetRefused
from hetplan.profiles.state import Observed, State
from hetplan.profiles.workers import Load, Serve, Worker

__all__ = ["Platform"]


def _silent(_: Progress) -> None:
    pass


class Platform:
    """One deployment of site.toml. `take_over` takes fields of objects that others own."""

    def __init__(self, site: Site, *, take_over: bool = False) -> None:
        self.site, self.cluster = site, Cluster(site, take_over=take_over)
        self.folder = site.folder / site.state_dir / "platforms" / dns_name(site.name)
        self._journal = Journal(self.folder / "journal.jsonl")

    # Looking

    def changes(self, wanted: Rendered) -> Changes:
        """What an apply would change; nothing is touched."""
        return self.cluster.changes(wanted)

    def changes_back(self) -> Changes:
        """What an `undo` would change; nothing is touched."""
        before = self.cluster.kept()
        return self.cluster.changes(before if before is not None else Rendered("nothing", {}))

    def unfinished(self) -> Unfinished | None:
        """What an apply that was cut off left behind."""
        return self._journal.unfinished()

    def groups(self) -> list[RunningGroup]:
        """What runs now."""
        return self.cluster.groups()

    def there(self) -> list[tuple[str, str]]:
        """Kind and name of all that the platform has of this deployment."""
        self.cluster.kubectl.check_program()
        return sorted(self.cluster.there())

    def missing(self, groups: Sequence[RunningGroup] | None = None) -> list[str]:
        """What should run and does not, a line for each."""
        return [
            f"{one.name}: {one.ready} of {one.wanted} are ready{f': {one.why}' if one.why else ''}"
            for one in (self.groups() if groups is None else groups)
            if one.ready < one.wanted
        ]

    # Acting

    def apply(
        self, wanted: Rendered, *, on_event: Say = _silent, wait_s: float = 0.0, cancel: threading.Event | None = None
    ) -> tuple[str, ...]:
        """Bring these files about, and say what was done (nothing where all was as wanted); what ran before runs again
        where that fails.

        Raises `DeploymentLocked` where another command is at work, `ApplyFailed` where the wanted state could not be
        reached, `Interrupted` between two steps when `cancel` is set.
        """
        with self._locked(f"apply of {wanted.plan[:19]}...", wait_s):
            unfinished, before = self.unfinished(), self.cluster.kept()
            if unfinished is not None:
                on_event(Progress("resume", unfinished.ended, unfinished.steps, str(unfinished)))
            found = self.cluster.changes(wanted)
            if before == wanted and not found and unfinished is None and not self.missing():
                return ()
            tasks: list[Task] = [("have the server look at all objects", lambda: self.cluster.check(found))]
            tasks += self._tasks(wanted, found)
            try:
                one_by_one(self._journal, wanted.plan, tasks, on_event, cancel)
            except TargetRefused as error:
                raise ApplyFailed(f"{error.why}. Nothing was touched", undone=True) from None
            except (ApplyFailed, OSError) as error:
                why = error.why if isinstance(error, ApplyFailed) else f"the state directory {self.folder}: {error}"
                on_event(Progress("failed", 0, len(tasks), why))
                go_back(why, self._journal, lambda: self._tasks_back(before), on_event)
            self._journal.close()
            return tuple(text for text, _ in tasks)

    def undo(self, *, on_event: Say = _silent, wait_s: float = 0.0) -> tuple[str, ...]:
        """Go back from an apply that was cut off to what was last brought about before it."""
        with self._locked("undo", wait_s):
            before = self.cluster.kept()
            tasks = self._tasks_back(before)
            one_by_one(self._journal, before.plan if before is not None else "nothing", tasks, on_event, None)
            self._journal.close()
            return tuple(text for text, _ in tasks)

    def down(self, *, wait_s: float = 0.0) -> None:
        """Delete all objects of the deployment, and wait until its pods are gone."""
        with self._locked("down", wait_s):
            self.cluster.prune(None)
            self._journal.close()

    # How

    @contextmanager
    def _locked(self, what: str, wait_s: float) -> Iterator[None]:
        """Nobody else changes it meanwhile: by a lock in its folder, and by one on the platform."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ApplyFailed(f"the state directory {self.folder} cannot be used: {error.strerror}") from None
        with (
            DeploymentLock(self.folder / "lock", holder=what, wait_s=wait_s),
            self.cluster.hold(what, home=self.folder, wait_s=wait_s),
        ):
            yield

    def _tasks(self, wanted: Rendered, found: Changes) -> list[Task]:
        """The way to these files. Where machines are as many as the plan counts, what goes makes room first."""
        cluster = self.cluster
        many = f"{len(found.objects)} objects"
        come: list[Task] = [
            (f"apply {many}", lambda: cluster.apply(found)),
            ("wait until all pods are ready", lambda: cluster.wait(wanted)),
        ]
        go: list[Task] = [(f"delete {_listed(found)}", lambda: cluster.prune(wanted))] if found.gone else []
        keep: Task = ("put it on record", lambda: cluster.keep(wanted))
        return [*come, *go, keep] if self.site.cluster.surge else [*go, *come, keep]

    def _tasks_back(self, before: Rendered | None) -> list[Task]:
        """The way to what ran before; where nothing is on record, to nothing."""
        if before is None:
            return [("delete all that was begun", lambda: self.cluster.prune(None))]
        return self._tasks(before, self.cluster.changes(before))

    @staticmethod
    def state(groups: Sequence[RunningGroup]) -> State:
        """What runs, as a state file has it."""
        workers, observed = [], {}
        for one in groups:
            load = Load(
                id=f"{one.name}.model", app=str(one.told["app"]), variant=str(one.told["model"]),
                serve=Serve(concurrency=int(one.told["concurrency"])),
            )  # fmt: skip
            said = "active" if one.ready >= one.wanted else "failed" if one.why else "loading"
            observed[load.id] = Observed.model_validate({"status": said})
            if one.wanted:
                hardware = str(one.told["hardware"])
                workers.append(Worker(id=one.name, hardware=hardware, offer=one.offer, count=one.wanted, loads=(load,)))
        return State(workers=tuple(workers), observed=observed)


def _listed(found: Changes) -> str:
    names = [f"{kind} {name}" for kind, name in found.gone]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
