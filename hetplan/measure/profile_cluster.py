"""`hetplan profile --on ray`: what is measured on the nodes of a Ray cluster, kept here.

Cells measured at once on one machine would disturb one another. So the cells of a machine are measured one after the
other, on a node that is taken whole, and only machines run beside each other. Each finished cell comes here and into
the journal at once; what is made of the journal is made here, as if all had been measured by this machine.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.measure.journal import CellJournal
from hetplan.measure.measure_file import Wish
from hetplan.measure.profile_run import Measurements, OnEvent, identities, measure
from hetplan.planner.contract import Event

if TYPE_CHECKING:
    from hetplan.measure.profile_router import Serve
    from hetplan.planner.spread import RayCluster

__all__ = ["lanes_of", "measure_on_cluster"]

LOOK_S = 0.2
"""How often the nodes are asked what is new."""
PATIENCE_S = 60.0
"""A node that takes longer to answer is given up."""


@dataclass
class _Turn:
    """A node, and the hardware that is measured there."""

    node: Mapping[str, Any]
    hardware: list[str] = field(default_factory=list)


def lanes_of(wish: Wish, nodes: Sequence[Mapping[str, Any]]) -> list[list[_Turn]]:
    """Per machine its nodes in turn, each with the hardware that it is; `InputError` where a node cannot be found."""
    machines: dict[str, dict[str, _Turn]] = {}
    used = {name for _, name, _ in wish.cells()}
    for name, hardware in wish.machines.items():
        if name not in used:
            continue  # of an engine, which is asked from here
        if hardware.node is None:
            raise _wrong(name, "", "with --on every machine type says which node of the cluster it is", nodes)
        found = [node for node in nodes if node["Alive"] and hardware.node in _names(node)]
        if len(found) != 1:
            why = "no node of the cluster is called so" if not found else f"{len(found)} nodes of the cluster are"
            raise _wrong(name, hardware.node, why, nodes)
        turns = machines.setdefault(found[0]["NodeManagerAddress"], {})
        turns.setdefault(found[0]["NodeID"], _Turn(found[0])).hardware.append(name)
    return [list(turns.values()) for turns in machines.values()]


def _names(node: Mapping[str, Any]) -> set[str]:
    """What a node is called: its id, its addresses, and the resources that it has."""
    return {node["NodeID"], node["NodeManagerAddress"], node["NodeManagerHostname"], *node["Resources"]}


def _wrong(name: str, value: str, why: str, nodes: Sequence[Mapping[str, Any]]) -> InputError:
    known = ", ".join(f"{node['NodeID']} ({node['NodeManagerHostname']})" for node in nodes if node["Alive"])
    return InputError.one(
        file="measure.toml", path=f"$.machines.{name}.node", value=value, why=why,
        remedy=f"Name it by its id, address, host name, or a resource that it alone has: {known or 'no nodes'}.",
    )  # fmt: skip


def measure_on_cluster(
    wish: Wish, folder: Path, cluster: RayCluster, *, journal: CellJournal, on_event: OnEvent, cancel: threading.Event,
    serve: Serve | None = None,
) -> Measurements:  # fmt: skip
    """`measure` on the nodes that the hardware names; machines beside each other, each cell into the journal."""
    lanes = lanes_of(wish, cluster.ray.nodes())
    known, missing = identities(wish, folder, through=serve is not None), sum(1 for _ in wish.cells())
    missing -= sum("at" in of and journal.get(of) is not None for of in known)
    far = _Far(cluster.ray, (wish, folder, serve), journal, on_event)
    far.known, far.total = known, max(missing, 1)
    while any(lanes) and not cancel.is_set():
        for lane in lanes:
            if lane and not far.going(lane[0]):
                lane.pop(0)
        time.sleep(LOOK_S)
    far.end()
    # Nothing is measured here: what the journal holds is put together, in the order of the wish.
    stop = threading.Event()
    stop.set()
    found = measure(wish, folder, journal=journal, cancel=stop, serve=serve)
    found.failed += far.failed
    found.resumed -= far.fresh
    found.complete = not cancel.is_set()
    return found


class _Far:
    """Nodes at work."""

    def __init__(self, ray: Any, given: tuple[Any, ...], journal: CellJournal, on_event: OnEvent) -> None:
        self._ray, self._given, self._journal, self._on_event = ray, given, journal, on_event
        self._actors: dict[str, Any] = {}
        self._began = time.monotonic()
        self.known: list[dict[str, Any]] = []
        self.failed: list[tuple[str, str]] = []
        self.fresh, self.total = 0, 1

    def going(self, turn: _Turn) -> bool:
        """Whether a node has more to do; it begins where it has not, and what is new of it is written down."""
        node, name = turn.node, str(turn.node["NodeID"])
        try:
            if name not in self._actors:
                self._actors[name] = self._start_keeper(turn)
            news = self._ray.get(self._actors[name].news.remote(), timeout=PATIENCE_S)
        except (self._ray.exceptions.RayError, TimeoutError) as error:
            where = f"{', '.join(turn.hardware)} on {node['NodeManagerHostname']}"
            self.failed.append((where, f"its node gave no answer: {str(error).splitlines()[0]}"))
            self._actors.pop(name, None)
            return False
        self._take(news)
        for detail in news["said"]:
            self._on_event(
                Event("profile", detail, done=min(self.fresh / self.total, 1.0), seconds=time.monotonic() - self._began)
            )
        if news["ended"]:
            self.failed += [(where, why) for where, why in news["failed"]]
            self._ray.kill(self._actors.pop(name))
        return not news["ended"]

    def _start_keeper(self, turn: _Turn) -> Any:
        """A keeper that takes the whole node."""
        strategies = import_module("ray.util.scheduling_strategies")
        strategy = strategies.NodeAffinitySchedulingStrategy(turn.node["NodeID"], soft=False)
        has = turn.node["Resources"]
        kind = self._ray.remote(num_cpus=has.get("CPU", 0), num_gpus=has.get("GPU", 0), scheduling_strategy=strategy)
        held = [(of, line) for of in self.known if (line := self._journal.get(of)) is not None]
        return kind(_Keeper).remote(*self._given, turn.hardware, held)

    def _take(self, news: Mapping[str, Any]) -> None:
        for of, found in news["lines"]:
            if of in self.known:
                self._journal.add(of, found)
                self.fresh += "at" in of
                continue
            where = f"{of['variant']} on {of.get('hardware', 'its node')}"
            why = "its node has other files than this machine: give both the same"
            self.failed += [(where, why)] * ((where, why) not in self.failed)

    def end(self) -> None:
        """Have those that are still at work stop: what they started is gone then, and what they finished is kept."""
        for actor in self._actors.values():
            try:
                self._ray.get(actor.stop.remote(), timeout=PATIENCE_S)
                self._take(self._ray.get(actor.news.remote(), timeout=PATIENCE_S))
            except (self._ray.exceptions.RayError, TimeoutError):
                continue
            finally:
                self._ray.kill(actor)


class _Keeper:
    """Measures on its node, in a thread; says what is new when it is asked."""

    def __init__(
        self, wish: Wish, folder: Path, serve: Serve | None, hardware: Sequence[str],
        held: Sequence[tuple[dict[str, Any], dict[str, Any]]],
    ) -> None:  # fmt: skip
        self._lines: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._said: list[str] = []
        self._failed: list[tuple[str, str]] = []
        self._cancel = threading.Event()
        journal = _Passing(self._lines)
        for of, found in held:
            CellJournal.add(journal, of, found)

        def work() -> None:
            try:
                found = measure(
                    wish, folder, journal=journal, on_event=lambda event: self._said.append(event.detail),
                    cancel=self._cancel, serve=serve, only=hardware,
                )  # fmt: skip
                self._failed += found.failed
            except Exception as error:
                self._failed.append((", ".join(hardware), f"{type(error).__name__}: {error}"))

        self._thread = threading.Thread(target=work, name="hetplan-profile", daemon=True)
        self._thread.start()

    def news(self) -> dict[str, Any]:
        """What was found and said since it was asked last; whether that is all."""
        self._thread.join(LOOK_S)
        ended = not self._thread.is_alive()
        lines, said = self._lines[:], self._said[:]
        del self._lines[: len(lines)], self._said[: len(said)]
        return {"lines": lines, "said": said, "ended": ended, "failed": self._failed if ended else []}

    def stop(self) -> None:
        """End after what is under way."""
        self._cancel.set()
        self._thread.join()


class _Passing(CellJournal):
    """Remembers, and passes on what is new."""

    def __init__(self, lines: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        super().__init__()
        self._passed = lines

    def add(self, of: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        """Write down what was found, and pass it on."""
        super().add(of, found)
        self._passed.append((dict(of), dict(found)))
