"""What a site runs, hosts or a cluster behind one face, for the commands that change it or look at it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from hetplan.cli.arguments import file_option
from hetplan.cli.output import Output, number
from hetplan.cli.platform_files import Made, made_for
from hetplan.cli.read_files import keep_plan, plan_from
from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.executor.apply.one_by_one import Progress
    from hetplan.executor.apply.platform import Platform
    from hetplan.executor.deployment import Deployment
    from hetplan.executor.site import Site
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.state import State

__all__ = [
    "KUBERNETES",
    "InCluster",
    "OnHosts",
    "SiteFile",
    "check_options",
    "difference_rows",
    "place_of",
    "show_step",
]

KUBERNETES = "kubernetes"
SiteFile = Annotated[
    Path, file_option("--site", "FILE", "Trusted file: hosts or a cluster, and how models are served.")
]
_SIGNS = {"+": "start", "-": "stop", "~": "change", ">": "route", "=": "keep"}


@dataclass(frozen=True)
class Difference:
    """What an apply would change: rows of a sign, what, and what of it; and what the platform's own tool says."""

    rows: Sequence[tuple[str, str, str]]
    text: str = ""


@dataclass(frozen=True)
class Done:
    """What an apply did; where queries go, if that is known."""

    steps: int
    notes: tuple[str, ...] = ()
    endpoint: str | None = None
    path: str = ""


@dataclass(frozen=True)
class Status:
    """What runs, as a table; what is not as it should be; and both in a sentence."""

    titles: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    missing: Sequence[str]
    reason: str
    where: str = ""


Say = Callable[["Progress"], None]


@dataclass
class OnHosts:
    """The hosts of a site. Plans are given as such, or as files."""

    of: Deployment
    period: str | None = None
    what: str = field(default="unit", init=False)
    ends: str = field(default="stopped", init=False)

    def difference(self, plan: Path | Plan | None) -> Difference:
        """What an apply of a plan would change, or without one an undo; nothing is touched."""
        found = self.of.difference(_read(plan), period=self.period) if plan is not None else self.of.difference_back()
        return Difference(list(found.lines()))

    def apply(self, plan: Path | Plan | None, say: Say, wait_s: float, cancel: threading.Event | None) -> Done:
        """Bring a plan about, or without one go back."""
        if plan is None:
            done = self.of.undo(on_event=say, wait_s=wait_s)
        else:
            read = _read(plan)
            done = self.of.apply(read, period=self.period, on_event=say, wait_s=wait_s, cancel=cancel)
            keep_plan(self.of.folder, read)
        return Done(len(done.steps), done.notes, done.endpoint, self._path)

    @property
    def _path(self) -> str:
        """Where applications are asked: text by OpenAI's paths, all else by their names."""
        return "/v1/chat/completions" if self.of.makes_text else "/v1/APP"

    def runs(self) -> list[dict[str, str]]:
        """What runs, each by its name."""
        return [{"name": one.name, "status": one.status} for one in self.of.observe()]

    def state(self, over_s: float = 1.0) -> State:
        """What runs, as a state file has it."""
        return self.of.state(over_s=over_s)

    def status(self, state: State) -> Status:
        """What runs, for people."""
        seen = self.of.observe()
        rows = [
            (
                load.id, f"{worker.count} x {worker.hardware}", load.variant or load.node or "-", figures.status,
                number(figures.rate_qps), number(figures.utilisation), number(figures.latency_ms),
            )
            for worker in state.workers
            for load in worker.loads
            if (figures := state.observed[load.id])
        ]  # fmt: skip
        where = f"queries go to {self.of.endpoint()}{self._path}" if self.of.routed else "no router: queries go nowhere"
        titles = ("load", "workers", "model", "status", "qps", "used", "ms")
        return Status(titles, rows, self.of.missing(seen), f"{len(seen)} units run" if seen else "", where)

    def counters(self) -> Mapping[str, Mapping[str, Any]]:
        """What the router counts of each application; `OSError` where none answers."""
        from hetplan.executor.deployment import router_metrics
        from hetplan.executor.secrets import token_of

        endpoint = self.of.endpoint()
        metrics = router_metrics(endpoint, token=token_of(self.of.site))
        if metrics is None:
            raise OSError(f"no router answers at {endpoint}")
        found: Mapping[str, Mapping[str, Any]] = metrics["apps"]
        return found


def _read(plan: Path | Plan) -> Plan:
    return plan_from(plan) if isinstance(plan, Path) else plan


@dataclass
class InCluster:
    """A cluster. `make` makes files of a plan."""

    of: Platform
    make: Callable[[Any], Made]
    what: str = field(default="object", init=False)
    ends: str = field(default="deleted", init=False)

    def difference(self, plan: Path | Plan | None) -> Difference:
        """What an apply of a plan would change, or without one an undo; nothing is touched."""
        found = self.of.changes(self.make(plan).rendered) if plan is not None else self.of.changes_back()
        parts = (("+", found.made, "made"), ("~", found.changed, "changed"), ("-", found.gone, "deleted"))
        rows = [(sign, f"{kind} {name}", text) for sign, names, text in parts for kind, name in names]
        return Difference(rows, found.text.rstrip() if found.changed else "")

    def apply(self, plan: Path | Plan | None, say: Say, wait_s: float, cancel: threading.Event | None) -> Done:
        """Bring a plan about, or without one go back."""
        if plan is None:
            return Done(len(self.of.undo(on_event=say, wait_s=wait_s)))
        made = self.make(plan)
        done = self.of.apply(made.rendered, on_event=say, wait_s=wait_s, cancel=cancel)
        keep_plan(self.of.folder, made.plan)
        return Done(len(done))

    def runs(self) -> list[dict[str, str]]:
        """What is there, each by its kind and name."""
        return [{"kind": kind, "name": name} for kind, name in self.of.there()]

    def state(self, over_s: float = 1.0) -> State:
        """What runs, as a state file has it. Its rates nobody counts here."""
        del over_s
        return self.of.state(self.of.groups())

    def status(self, state: State) -> Status:
        """What runs, for people, by the objects that the cluster has."""
        del state
        groups = self.of.groups()
        rows = [
            (one.name, str(one.told["model"]), str(one.told["hardware"]), f"{one.ready} of {one.wanted} ready")
            for one in groups
        ]
        reason = f"{sum(one.ready for one in groups)} pods ready" if groups else ""
        return Status(("group", "model", "machine type", "pods"), rows, self.of.missing(groups), reason)


@contextmanager
def place_of(
    out: Output,
    site: Site,
    given: Mapping[str, Any],
    *,
    take_over: bool = False,
    make: Callable[[Any], Made] | None = None,
) -> Iterator[OnHosts | InCluster]:
    """What a site runs; `given` settings say how plans become files of a cluster, unless `make` makes them."""
    if site.targets:
        from hetplan.executor.deployment import Deployment
        from hetplan.registry import target

        with Deployment(site, targets=target) as deployment:
            yield OnHosts(deployment, given.get("period"))
        return
    from hetplan.executor.apply.platform import Platform

    made = make or (lambda plan: made_for(out, [plan], KUBERNETES, site, given))
    yield InCluster(Platform(site, take_over=take_over), made)


def check_options(site: Site, *, of_clusters: Mapping[str, object], of_hosts: Mapping[str, object]) -> None:
    """Refuse options that say something of the other kind of place alone."""
    what, other = ("hosts", of_clusters) if site.targets else ("a cluster", of_hosts)
    for name, value in other.items():
        if value:
            raise InputError.one(
                file=name, why=f"it says nothing of {what}, which this site is", remedy="Leave it out."
            )


def difference_rows(out: Output, found: Difference) -> int:
    """The rows of a difference, for people or as events; how many there are that would change something."""
    for sign, what, text in found.rows:
        out.send({"difference": {"do": _SIGNS[sign], "what": what, "text": text}})
    if found.rows:
        out.people.table(("", "what", ""), found.rows)
    if found.text:
        out.people.line(found.text)
    return sum(sign != "=" for sign, _, _ in found.rows)


def show_step(out: Output, event: Progress) -> None:
    """A step of an apply, for people and as an event."""
    out.send({"event": dict(vars(event))})
    if event.kind != "done":
        at = f"{event.number}/{event.of} " if event.number else ""
        out.note(f"{event.kind}: {at}{event.text}")
