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
from functools import partial

from hetplan.executor.apply.cluster import NOTHING, Changes, Cluster, Rendered, RunningGroup, phases_of, without_new
from hetplan.executor.apply.one_by_one import Progress, Say, Task, bring_about, one_by_one, resumed
from hetplan.executor.durable import DeploymentLock, Journal, Unfinished
from hetplan.executor.render.names import marked_name
from hetplan.executor.site import Site
from hetplan.executor.target import ApplyFailed
from hetplan.profiles.state import Observed, State
from hetplan.profiles.workers import Load, Worker

__all__ = ["Platform"]


def _silent(_: Progress) -> None:
    pass


class Platform:
    """One deployment of site.toml. `take_over` takes fields of objects that others own."""

    def __init__(self, site: Site, *, take_over: bool = False) -> None:
        self.site, self.cluster = site, Cluster(site, take_over=take_over)
        told = site.cluster
        folder = marked_name(site.name, site.namespace, distinct_by=f"{told.kubeconfig or ''} {told.context or ''}")
        self.folder = site.folder / site.state_dir / "platforms" / folder
        self._journal = Journal(self.folder / "journal.jsonl")

    # Looking

    def changes(self, wanted: Rendered) -> Changes:
        """What an apply would change; nothing is touched."""
        return self.cluster.changes(wanted)

    def changes_back(self) -> Changes:
        """What an `undo` would change; nothing is touched."""
        return self.cluster.changes(self._back())

    def unfinished(self) -> Unfinished | None:
        """What an apply that was cut off left behind."""
        return self._journal.unfinished()

    def applied_plan(self) -> str | None:
        """The digest of the plan that was last brought about."""
        kept = self.cluster.kept()
        return kept.plan if kept is not None else None

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
            unfinished, kept = resumed(self._journal, on_event), self.cluster.kept()
            found = self.cluster.changes(wanted)
            if kept == wanted and not found and unfinished is None and not self.missing():
                return ()
            tasks: list[Task] = [("have the server look at all objects", lambda: self.cluster.check(found))]
            before = kept if kept is not None else self.cluster.observed()
            if kept is None:
                tasks.append(("put on record what there was", lambda: self.cluster.keep(before)))
            tasks += self._tasks(wanted, found)
            bring_about(
                self._journal, wanted.plan, tasks, on_event, cancel, end=self._journal.close,
                back=lambda: self._tasks_back(before),
            )  # fmt: skip
            return tuple(text for text, _ in tasks)

    def undo(self, *, on_event: Say = _silent, wait_s: float = 0.0) -> tuple[str, ...]:
        """Go back from an apply that was cut off to what was last brought about before it."""
        with self._locked("undo", wait_s):
            before = self._back()
            tasks = self._tasks_back(before)
            one_by_one(self._journal, before.plan, tasks, on_event, None)
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
        with (
            DeploymentLock(self.folder / "lock", holder=what, wait_s=wait_s),
            self.cluster.hold(what, home=self.folder, wait_s=wait_s),
        ):
            yield

    def _tasks(self, wanted: Rendered, found: Changes) -> list[Task]:
        """The way to these files. Where machines are as many as the plan counts, what goes makes room first."""
        cluster = self.cluster
        first: list[Task] = []
        if any(kind == "ScaledObject" for kind, _ in found.gone):
            first.append(("take counts back from KEDA", lambda: cluster.leave_counts(found)))
        come: list[Task] = []
        for part in phases_of(found.objects):
            come.append((f"apply {len(part)} object{'' if len(part) == 1 else 's'}", partial(cluster.apply, part)))
            if any(one["kind"] == "Deployment" for one in part):
                come.append(("wait until all pods are ready", partial(cluster.wait, part)))
        go: list[Task] = [(f"delete {_listed(found.gone)}", lambda: cluster.prune(wanted))] if found.gone else []
        keep: Task = ("put it on record", lambda: cluster.keep(wanted))
        if self.site.cluster.surge:
            return [*first, *come, *go, keep]
        if found.gone and (routes := without_new(found)):
            first.append(("move traffic to what stays", lambda: cluster.apply(routes)))
        # Files of pods go last: one of the old pods may start again in mid-roll.
        held = [one for one in found.gone if one[0] == "ConfigMap"]
        if room := [one for one in found.gone if one not in held]:
            first.append((f"delete {_listed(room)}", lambda: cluster.prune(wanted, but="ConfigMap")))
        last: list[Task] = [(f"delete {_listed(held)}", lambda: cluster.prune(wanted))] if held else []
        return [*first, *come, *last, keep]

    def _back(self) -> Rendered:
        """What an `undo` goes back to. What is there without a record was not brought about by an apply."""
        before = self.cluster.kept()
        if before is None and (there := self.cluster.there()):
            raise ApplyFailed(
                f"nothing is on record to go back to, and {len(there)} objects are there: none was touched. "
                "`hetplan apply` with a plan brings that about; `hetplan down` deletes all"
            )
        return before if before is not None else NOTHING

    def _tasks_back(self, before: Rendered) -> list[Task]:
        """The way to what ran before; where that was nothing, to nothing."""
        if not before.files:
            return [("delete all that was begun", lambda: self.cluster.prune(None))]
        return self._tasks(before, self.cluster.changes(before))

    @staticmethod
    def state(groups: Sequence[RunningGroup]) -> State:
        """What runs, as a state file has it."""
        workers, observed = [], dict[str, Observed]()
        for one in groups:
            by_labels = {
                "app": one.told["app"], "variant": one.told["model"], "serve": {"concurrency": one.told["concurrency"]},
            }  # fmt: skip
            told = [said or by_labels for said in one.worker.get("loads") or [by_labels]]
            loads = tuple(
                Load.model_validate({**said, "id": f"{one.name}.model{number or ''}"})
                for number, said in enumerate(told)
            )
            said = "active" if one.ready >= one.wanted else "failed" if one.why else "loading"
            observed |= {load.id: Observed.model_validate({"status": said}) for load in loads}
            if one.wanted:
                hardware, offer = one.worker.get("hardware", one.told["hardware"]), one.worker.get("offer", one.offer)
                count = -(-one.wanted // loads[0].instances)
                workers.append(Worker(id=one.name, hardware=hardware, offer=offer, count=count, loads=loads))
        return State(workers=tuple(workers), observed=observed)


def _listed(gone: Sequence[tuple[str, str]]) -> str:
    names = [f"{kind} {name}" for kind, name in gone]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
