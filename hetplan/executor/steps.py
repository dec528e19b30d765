"""What differs between what runs and what a plan wants, and the steps that lead from one to the other.

Nothing is touched here. Steps are in a safe order: up before down as far as there is room, and queries are led away
before a stop. The plan's own actions give the order where they lead from what runs to what is wanted. Where they do
not (something else runs than the plan was made from), the order is worked out anew (`planner/transition.py`). What has
no room on its host waits until something has been stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from hetplan.executor.gpus import assign
from hetplan.executor.site import Site
from hetplan.executor.target import ApplyFailed
from hetplan.executor.units import LoadSpec, Seen, Unit
from hetplan.executor.wanted import Wanted
from hetplan.planner.transition import transition
from hetplan.profiles.plan import Action
from hetplan.profiles.profile import Offer
from hetplan.profiles.workers import Load, Serve, Share, Worker

__all__ = ["Difference", "Step", "difference", "order_fits", "steps_of", "targets_of", "workers_of"]


@dataclass(frozen=True)
class Difference:
    """Units to start, to change in place, to stop, to keep; whether the router needs new routes."""

    start: tuple[Unit, ...]
    change: tuple[tuple[Seen, Unit], ...]
    stop: tuple[Seen, ...]
    keep: tuple[Seen, ...]
    route: bool

    def __bool__(self) -> bool:
        return bool(self.start or self.change or self.stop or self.route)

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Rows for people: a sign, how many of which worker, and what of it."""
        for key, units in _grouped(self.start):
            yield "+", f"{len(units)} x {key[0]}", f"start on {key[1]}: {_loads(units[0].loads)}"
        for seen, unit in self.change:
            yield "~", unit.name, _changes(seen, unit)
        stopped = [seen for seen in self.stop if seen.unit is not None]
        for key, old in _grouped([seen.unit for seen in stopped if seen.unit is not None]):
            yield "-", f"{len(old)} x {key[0]}", f"stop on {key[1]}: {_loads(old[0].loads)}"
        for seen in self.stop:
            if seen.unit is None:
                yield "-", seen.name, "stop"
        if self.route:
            yield ">", "router", "follow the plan's routes"
        if self.keep:
            yield "=", f"{len(self.keep)} units", "go on as they are"


def difference(seen: Sequence[Seen], wanted: Wanted, *, routed: bool) -> Difference:
    """Compare; `routed` says whether the router follows the wanted routes already."""
    here = {one.name: one for one in seen if not _on_its_way(one, wanted)}
    start = tuple(unit for name, unit in wanted.units.items() if name not in here)
    change = tuple(
        (here[name], unit) for name, unit in wanted.units.items() if name in here and here[name].content != unit.content
    )
    keep = tuple(
        here[name] for name, unit in wanted.units.items() if name in here and here[name].content == unit.content
    )
    stop = tuple(one for one in seen if one.name not in wanted.units)
    return Difference(start, change, stop, keep, route=not routed)


def _on_its_way(seen: Seen, wanted: Wanted) -> bool:
    """Whether it still comes or goes for an apply that was cut off; to start it waits for that, too."""
    unit = wanted.units.get(seen.name)
    comes = seen.status == "starting" and unit is not None and seen.content == unit.content
    return comes or seen.status == "stopping"


def _grouped(units: Sequence[Unit]) -> Iterator[tuple[tuple[str, str], list[Unit]]]:
    ordered = sorted(units, key=lambda unit: (unit.worker, unit.host, unit.index))
    for key, members in groupby(ordered, key=lambda unit: (unit.worker, unit.host)):
        yield key, list(members)


def _loads(loads: Sequence[LoadSpec]) -> str:
    return ", ".join(_described(load) for load in loads) or "nothing"


def _described(load: LoadSpec) -> str:
    what = load.variant or (f"{load.app}/{load.node}" if load.node else load.app or load.id)
    knobs = "".join(f" {name}={value}" for name, value in load.knobs.items())
    many = f" x{load.instances}" if load.instances > 1 else ""
    batch = f" batch {load.max_batch}" if load.max_batch > 1 else ""
    return f"{load.id} = {what}{knobs}{many}{batch}"


def _changes(seen: Seen, unit: Unit) -> str:
    if seen.unit is None:
        return "hold " + _loads(unit.loads)
    old: Mapping[str, LoadSpec] = {load.id: load for load in seen.unit.loads}
    new: Mapping[str, LoadSpec] = {load.id: load for load in unit.loads}
    said = [f"unload {name}" for name in old if name not in new]
    said += [f"load {_described(load)}" for name, load in new.items() if name not in old]
    said += [f"change {_described(load)}" for name, load in new.items() if name in old and old[name] != load]
    if seen.unit.standby != unit.standby:
        said.append("to standby" if unit.standby else "out of standby")
    return "; ".join(said) or "other settings"


_PARTS = 4
"""Where there is no room for old and new side by side, a quarter of the old makes way at a time."""


@dataclass(frozen=True)
class Step:
    """One thing that is done: start, load (change in place) or stop units, or have the router follow routes.

    A route step leads queries to the units `live`, by their names, and to no others.
    """

    do: str
    units: tuple[Unit, ...] = ()
    names: tuple[str, ...] = ()
    live: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.do == "route":
            return f"route queries to {len(self.live)} units"
        names = self.names or tuple(unit.name for unit in self.units)
        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        return f"{self.do} {shown}"


def workers_of(units: Iterable[Unit]) -> tuple[Worker, ...]:
    """Units in the shape of a plan: groups of workers with their loads.

    >>> units = [Unit(f"w1-{i}", "w1", i, "t4", "here", "box", loads=(LoadSpec("w1.a", variant="m"),)) for i in (0, 1)]
    >>> [(worker.id, worker.count, worker.loads[0].variant) for worker in workers_of(units)]
    [('w1', 2, 'm')]
    """
    groups: dict[str, list[Unit]] = {}
    for unit in units:
        groups.setdefault(unit.worker, []).append(unit)
    return tuple(_worker(name, members) for name, members in groups.items())


def _worker(name: str, members: Sequence[Unit]) -> Worker:
    first = members[0]
    active = sum(not unit.standby for unit in members)
    queue = "per-load" if first.queue == "per-load" else "shared"
    return Worker(
        id=name, hardware=first.hardware, offer=first.offer, host=first.plan_host, count=max(active, 1),
        standby=len(members) - max(active, 1), queue=queue, loads=tuple(_load(load) for load in first.loads),
    )  # fmt: skip


def _load(load: LoadSpec) -> Load:
    share = None
    if load.share_gpu is not None or load.share_cpu_cores is not None:
        share = Share.model_validate(
            {"gpu": load.share_gpu, "cpu_cores": load.share_cpu_cores, "enforce": load.enforce}
        )
    return Load(
        id=load.id, app=load.app, node=load.node, variant=load.variant, artifact=load.artifact, knobs=dict(load.knobs),
        at=None if load.at is None else dict(load.at), instances=load.instances, share=share,
        serve=Serve(max_batch=load.max_batch, max_wait_ms=load.max_wait_ms, concurrency=load.concurrency),
    )  # fmt: skip


def order_fits(actions: Sequence[Action], running: Sequence[Worker], wanted: Sequence[Worker]) -> bool:
    """Whether these actions, one after the other, lead from what runs to what is wanted.

    >>> w1 = Worker(id="w1", hardware="t4", count=2)
    >>> order_fits([Action(id=1, do="start", worker="w1", count=2)], (), (w1,))
    True
    >>> order_fits([Action(id=1, do="start", worker="w1", count=2)], (w1,), (w1,))
    False
    """
    up = Counter({worker.id: worker.count + worker.standby for worker in running})
    goal = Counter({worker.id: worker.count + worker.standby for worker in wanted})
    done: set[int] = set()
    for action in actions:
        if not set(action.after) <= done:
            return False
        done.add(action.id)
        if action.do not in ("start", "stop"):
            continue
        if action.worker is None or (action.do == "start" and action.worker not in goal):
            return False
        up[action.worker] += (action.count or 1) * (1 if action.do == "start" else -1)
        if up[action.worker] < 0:
            return False
    return {name: count for name, count in up.items() if count} == dict(goal)


def steps_of(found: Difference, wanted: Wanted, site: Site, *, actions: Sequence[Action] = ()) -> tuple[Step, ...]:
    """The steps; none where nothing differs. Where nothing is wanted the router goes first, then all units at once."""
    if not found:
        return ()
    if not wanted.units:
        stop = (Step("stop", names=tuple(one.name for one in found.stop)),) if found.stop else ()
        return (Step("route"), *stop)
    running = workers_of(
        seen.unit for seen in (*found.keep, *found.stop, *(old for old, _ in found.change)) if seen.unit
    )
    if not order_fits(actions, running, wanted.workers):
        actions = _transition(running, wanted.workers, site)
    return tuple(_Way(found, site).steps(actions))


def _transition(running: Sequence[Worker], wanted: Sequence[Worker], site: Site) -> tuple[Action, ...]:
    """The order anew; the room of the hosts is the stock that it heeds."""
    room: Counter[str] = Counter()
    for host in site.hosts.values():
        for hardware in host.machines:
            room[hardware] += host.room_for(hardware)
    offers = {name: Offer(hardware=name, price_per_hour=0, stock=count) for name, count in room.items()}
    moved = [[worker.model_copy(update={"offer": worker.hardware}) for worker in group] for group in (running, wanted)]
    return transition(moved[0], moved[1], offers=offers)


@dataclass
class _Way:
    """What is up at each moment of the way."""

    found: Difference
    site: Site
    made: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        found = self.found
        self.live = [seen.name for seen in (*found.keep, *(old for old, _ in found.change), *found.stop)]
        there = [seen.unit for seen in (*found.stop, *found.keep) if seen.unit is not None]
        self.up = {unit.name: unit for unit in (*there, *(unit for _, unit in found.change))}
        self.to_start = list(found.start)
        self.to_stop = sorted(found.stop, key=lambda seen: -seen.unit.index if seen.unit is not None else 0)
        self.routed = True

    def steps(self, actions: Sequence[Action]) -> list[Step]:
        """All of them."""
        found = self.found
        if found.change:
            # A load that goes stays until the router knows: first old and new together.
            self.made.append(Step("load", units=tuple(_with_old_loads(seen, unit) for seen, unit in found.change)))
            self.routed = False
        self._follow(actions)
        while self.to_start or self.to_stop:
            if not self._start(self.to_start):
                self._stop(self._in_the_way() if self.to_start else self.to_stop)
        if not self.routed or (found.route and not any(step.do == "route" for step in self.made)):
            self._route()
        last = tuple(unit for seen, unit in found.change if _with_old_loads(seen, unit) != unit)
        if last:
            self.made.append(Step("load", units=last))
        return self.made

    def _follow(self, actions: Sequence[Action]) -> None:
        wave: list[Unit] = []
        for action in actions:
            if action.do == "start":
                chosen = [unit for unit in self.to_start if unit.worker == action.worker and unit not in wave]
                wave += chosen[: action.count or 1]
            elif action.do == "stop":
                self._start(wave)
                wave = []
                spare = [seen for seen in self.to_stop if seen.unit is not None and seen.unit.worker == action.worker]
                self._make_way(spare[: action.count or 1])
        self._start(wave)

    def _make_way(self, spare: Sequence[Seen]) -> None:
        """Stop these; where others wait for their room, a part at a time, so that never all are gone at once."""
        spare = list(spare)
        while spare:
            waits = any(not self._fits(unit, self.up.values()) for unit in self.to_start)
            part = max(len(spare) // _PARTS, 1) if waits else len(spare)
            self._stop(spare[:part])
            spare = spare[part:]
            if waits:
                self._start(self.to_start)

    def _start(self, units: Sequence[Unit]) -> bool:
        """Start those that have room, side by side."""
        chosen: list[Unit] = []
        for unit in units:
            if self._fits(unit, [*self.up.values(), *chosen]):
                chosen.append(unit)
        if not chosen:
            return False
        self.made.append(Step("start", units=tuple(chosen)))
        self.to_start = [unit for unit in self.to_start if unit not in chosen]
        self.live += [unit.name for unit in chosen]
        self.up |= {unit.name: unit for unit in chosen}
        self.routed = False
        return True

    def _stop(self, seen: Sequence[Seen]) -> None:
        """Lead queries away, then stop."""
        if not seen:
            return
        names = tuple(one.name for one in seen)
        self.live = [name for name in self.live if name not in names]
        self._route()
        self.made.append(Step("stop", names=names))
        self.to_stop = [one for one in self.to_stop if one.name not in names]
        self.up = {name: unit for name, unit in self.up.items() if name not in names}

    def _fits(self, unit: Unit, up: Collection[Unit]) -> bool:
        """Whether its host has room for it beside what is up, among the workers and on the GPUs that it lists."""
        host = self.site.hosts[unit.host]
        beside = [one for one in up if one.host == unit.host]
        if isinstance(host.count, int):
            room = host.count - len(beside)
        else:
            room = host.count.get(unit.hardware, 0) - sum(one.hardware == unit.hardware for one in beside)
        if room <= 0 or not host.devices or host.enforcement == "none":
            return room > 0
        return not assign([(one, host) for one in (*beside, unit)], None)[1]

    def _in_the_way(self) -> list[Seen]:
        """Who must go to make room for what waits: as few as that takes, where it waits."""
        wished = Counter(unit.host for unit in self.to_start)
        chosen = []
        for seen in self.to_stop:
            host = self.up[seen.name].host if seen.name in self.up else ""
            if wished[host] > 0:
                wished[host] -= 1
                chosen.append(seen)
        if not (chosen or self.to_stop):
            raise ApplyFailed("the hosts have no room for what the plan wants, though nothing else runs there")
        return chosen or self.to_stop

    def _route(self) -> None:
        self.made.append(Step("route", live=tuple(self.live)))
        self.routed = True


def _with_old_loads(seen: Seen, unit: Unit) -> Unit:
    """The unit as it is wanted, with the loads that it has and shall lose. A policy knows its own loads only."""
    if seen.unit is None or unit.policies or seen.unit.policies:
        return unit
    wanted = {load.id for load in unit.loads}
    return replace(unit, loads=(*unit.loads, *(load for load in seen.unit.loads if load.id not in wanted)))


def targets_of(names: Iterable[str], homes: Mapping[str, str]) -> dict[str, list[str]]:
    """Unit names by the target that runs them."""
    grouped: dict[str, list[str]] = {}
    for name in names:
        grouped.setdefault(homes[name], []).append(name)
    return grouped
