"""A plan of variants from counts, places and flows: workers, routes, promises, warnings, and the actions to get there.

**Actions** (`order_actions`) are the steps from what runs to what shall run, in order: no machine is overfull, and no
load is left unserved. New instances come up first, as far as there is room. Where there is none, something that is to
go leaves its machine early (`move`; `unload`, `stop` or `keep` says so for good later): best what nobody waits for,
else a warning says that a load may not be served meanwhile. When all is up, the rest goes down.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from hetplan.planner.draft import Draft, Reported
from hetplan.planner.machine_packing import IN_TOTAL, total_of
from hetplan.planner.next_state import COUNTERS, USED
from hetplan.problems.variants.placement import Placed
from hetplan.problems.variants.program import capacity_rooms
from hetplan.problems.variants.request import WHOLE, Integers, Serves, Snapshot, count_of
from hetplan.problems.waiting import MOST_BUSY, waiting_ms
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Action, Notice, Promise, Route, SharesDispatch, Unserved, Valid
from hetplan.profiles.workers import Load, Worker

__all__ = ["cost_sought", "draft_plan", "name_of_pair", "steady_nanos"]

Flows = Mapping[tuple[int, int], float]
"""Queries per second of an application by an item."""
Do = Literal["load", "replicate", "upgrade", "downgrade"]

BILL, GROSS, NET = "cost_per_hour", "gross_cost_per_hour", "net_cost_per_hour"
NO_SHARE = 1e-12
SHOWN = 5
SLIP = 1e-6
"""What rounding may add to what is on a machine."""


def cost_sought(v: Snapshot) -> str:
    """The cost that is minimised: the bill alone where loading counts for nothing."""
    return GROSS if v.weighs_loading or v.weight > 0 else BILL


def name_of_pair(v: Snapshot, pair: Serves) -> str:
    """What a plan calls a kind for an application."""
    return f"{v.kinds[pair.kind].id} for {v.asked[pair.app].id}"


def draft_plan(
    v: Snapshot,
    x: Integers,
    flows: Flows,
    placed: Placed,
    reported: Sequence[Reported],
    *,
    unserved: Mapping[int, tuple[float, str]] | None = None,
    counters: Mapping[str, Mapping[str, int]] | None = None,
) -> Draft:
    """The plan of counts that have their places."""
    steps = None if v.only_played else order_actions(v, placed)
    in_time = {pair: rate for pair, rate in flows.items() if not v.pair(*pair).late}
    missing = dict(sorted({**_served_late(v, flows), **(unserved or {})}.items()))
    idle = [b for b, one in enumerate(v.asked) if one.load_qps == 0 and b not in missing]
    missing |= dict.fromkeys(idle, (0.0, "it has no load: nothing runs for it"))
    served = dict.fromkeys(range(len(v.asked)), 0.0)
    for (b, _), rate in in_time.items():
        served[b] += rate
    routing = _routes(v, in_time, placed)
    # What the bound rests on: the share of its saturation that an instance is asked for, where it is not all.
    used = {name_of_pair(v, s): s.busy for s in v.eligible if s.busy < 1.0}
    return Draft(
        workers=tuple(placed.workers),
        routing=routing,
        dispatch={name: SharesDispatch(late=v.wanted.apps[name].late, balancing="shortest_queue") for name in routing},
        actions=tuple(steps.actions) if steps else (),
        promises=tuple(_promises(v, x, in_time, served, placed)),
        reported=tuple(_add_value(v, x, placed, claim) for claim in reported),
        unserved=tuple(Unserved(app=v.asked[b].id, rate_qps=r, why=why) for b, (r, why) in missing.items()),
        warnings=(*_warnings(v, x, flows, placed), *steps.notices) if steps else (),
        extensions={**({COUNTERS: counters} if counters else {}), **({USED: used} if used else {})},
        valid=Valid(rate_qps={v.asked[b].id: (0.0, rate) for b, rate in served.items() if v.asked[b].id in routing}),
    )


def _add_value(v: Snapshot, x: Integers, placed: Placed, claim: Reported) -> Reported:
    """What the plan costs, a hair up (below what a plan file keeps): no gap of it is too small a number for the file.

    Nothing costs less than nothing.
    """
    value = (steady_nanos(v, placed) / NANO + v.loading_cost(x)) * (1.0 + 1e-13)
    if value == 0 and claim.scope != "none":
        return replace(claim, value=value, bound=0.0, vouched="claimed")
    return replace(claim, value=value)


def _served_late(v: Snapshot, flows: Flows) -> dict[int, tuple[float, str]]:
    """Load that only running violators serve: kept running, but not served as wished."""
    found: dict[int, tuple[float, str]] = {}
    for (b, i), rate in flows.items():
        if v.pair(b, i).late:
            before = found.get(b, (0.0, ""))[0]
            found[b] = (
                before + rate,
                f"served by {v.kind(i).variant}, which runs and breaks the limits",
            )
    return found


def _routes(v: Snapshot, flows: Flows, placed: Placed) -> dict[str, tuple[Route, ...]]:
    """Of each application, which share of its queries each load gets."""
    loads = placed.loads_of()
    of_app: dict[int, dict[str, float]] = {}
    for (b, i), rate in flows.items():
        total = sum(count for _, count in loads[i])
        for name, count in loads[i]:
            to = of_app.setdefault(b, {})
            to[name] = to.get(name, 0.0) + rate * count / total
    found: dict[str, tuple[Route, ...]] = {}
    for b, parts in sorted(of_app.items()):
        whole = sum(parts.values())
        kept = {name: rate / whole for name, rate in parts.items() if rate / whole > NO_SHARE}
        found[v.asked[b].id] = (Route(to={name: min(1.0, share) for name, share in kept.items()}),)
    return found


def _promises(v: Snapshot, x: Integers, flows: Flows, served: Mapping[int, float], placed: Placed) -> Iterator[Promise]:
    slowest: dict[int, float] = {}
    for b, i in flows:
        slowest[b] = max(slowest.get(b, 0.0), v.pair(b, i).latency_ms)
    for b, service_ms in sorted(slowest.items()):
        one = v.asked[b]
        rate = min(served[b], one.load_qps)
        yield Promise(app=one.id, quantity="rate_qps", relation=">=", value=rate, model="fluid")
        in_all = service_ms + one.network_ms()
        yield Promise(app=one.id, quantity="service_ms", relation="<=", value=in_all, model="no-queueing")
    steady = steady_nanos(v, placed) / NANO
    gross = steady + v.loading_cost(x)
    for quantity, value in ((BILL, steady), (GROSS, gross), (NET, gross - v.cost_now)):
        yield Promise(quantity=quantity, relation="=", value=value, model="no-queueing")


def steady_nanos(v: Snapshot, placed: Placed) -> int:
    """What the workers cost per hour, exactly."""
    kinds = {name: v.kinds[v.items[i].kind] for name, i in placed.item_of.items()}
    return (
        placed.idle_nanos
        + placed.shared_nanos
        + sum(
            worker.count * load.instances * kinds[load.id].price
            for worker in placed.workers
            for load in worker.loads
            if kinds[load.id].part is None
        )
    )


def _warnings(v: Snapshot, x: Integers, flows: Flows, placed: Placed) -> Iterator[Notice]:
    yield from v.notices
    yield from _warn_of_totals(v)
    yield from _warn_of_prices(v, placed)
    yield from _warn_of_queues(v, x, flows)


def _warn_of_prices(v: Snapshot, placed: Placed) -> Iterator[Notice]:
    """Prices of runs that sum to less than the machines cost that hold them."""
    held = [(w.count, v.type_of(placed.item_of[w.loads[0].id]).offers[0]) for w in placed.workers if w.loads]
    if v.level != "machine" or any(offer.id is None for _, offer in held):
        return
    machines, paid = sum(n * offer.nanos for n, offer in held), steady_nanos(v, placed) - placed.idle_nanos
    if paid < machines:
        text = (
            f"runs have prices, {paid / NANO:.6g} an hour in all; the machines that hold them, paid whole, cost "
            f"{machines / NANO:.6g} under their offers"
        )
        yield Notice(code="W-run-price", at="promises", text=text)


def _warn_of_totals(v: Snapshot) -> Iterator[Notice]:
    """Resources that are taken and of which nobody says how much there is."""
    totals = {room.label for room in capacity_rooms(v) if room.block == IN_TOTAL}
    few = [v.types[t] for t in (*v.sharing, *v.whole) if count_of(v.types[t]) is not None]
    limited = {WHOLE, *v.wanted.capacity, *(resource for kind in few for resource in kind.provides)}
    taken = {resource for item in v.items for resource, amount in v.kinds[item.kind].needs.items() if amount > 0}
    wheres = ["", *(kind.id for kind in v.types)]
    lacking = sorted(one for one in taken - limited if totals.isdisjoint(total_of(one, where) for where in wheres))
    if lacking:
        text = f"nothing limits {', '.join(lacking)}: the plan assumes that there is enough"
        yield Notice(code="W-unlimited", at="slo.limits.capacity", text=text)


def _warn_of_queues(v: Snapshot, x: Integers, flows: Flows) -> Iterator[Notice]:
    """Where an instance is so busy, and its time so near the limit, that waiting alone would break it."""
    if v.options.sizing != "fluid":
        return
    use = np.zeros(len(v.items))
    for (b, i), rate in flows.items():
        use[i] += rate / v.pair(b, i).saturation_qps
    late: dict[str, float] = {}
    for b, i in flows:
        count = float(x[i])
        busy = min(float(use[i]) / count, MOST_BUSY)
        own = v.pair(b, i).latency_ms
        if own + waiting_ms(own, busy, count) > v.asked[b].limit_ms():
            late[v.asked[b].id] = max(late.get(v.asked[b].id, 0.0), busy)
    if not late:
        return
    worst = sorted(late.items(), key=lambda one: (-one[1], one[0]))
    named = ", ".join(f"{name} ({busy:.0%})" for name, busy in worst[:SHOWN])
    who = "one application" if len(late) == 1 else f"{len(late)} applications"
    text = (
        f"at the planned utilization queries of {who} would wait longer than their SLO allows: {named}; raise "
        "change.slack, or set sizing to formula or simulation"
    )
    yield Notice(code="W-queueing", at="promises", text=text)


# --- actions ----------------------------------------------------------------------------------------------------------


@dataclass
class _Change:
    """Instances of one load that come or go, on one worker (group)."""

    worker: Worker
    load: Load
    count: int
    is_whole: bool = False
    """Whether the load appears, or goes for good."""
    apps: frozenset[int] = frozenset()
    needs: Mapping[str, float] = field(default_factory=dict)
    left: int = 0
    """Of a load that shrinks: instances that stay."""
    do: Do = "load"


def order_actions(v: Snapshot, placed: Placed) -> Steps:
    """The actions from the state to these workers, and what is to be said of them."""
    steps = Steps(v, placed)
    ups, downs = _changes(steps)
    stay = list(downs)
    while ups:
        waiting = []
        for change in ups:
            if steps.fits(change):
                steps.bring_up(change)
            else:
                waiting.append(change)
        moved, ups = len(waiting) < len(ups), waiting
        if ups and not moved and not _make_room(steps, ups, stay, downs):
            steps.bring_up(ups.pop(0))
    for change in downs:
        steps.take_down(change)
    for worker in placed.workers:
        if not worker.loads:
            steps.start(worker)
        steps.stop_surplus(worker)
    return steps


class Steps:
    """The actions so far, and what is where after them."""

    def __init__(self, v: Snapshot, placed: Placed) -> None:
        self.v, self.placed = v, placed
        self.actions: list[Action] = []
        self.notices: list[Notice] = []
        self.gone: set[str] = set()
        """Loads that are unloaded."""
        self.totals: dict[str, float] = defaultdict(float)
        self.places: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.running = {worker.id: worker for worker in v.wanted.running}
        self.planned = {worker.id: worker for worker in placed.workers}
        now = {name: worker.count for name, worker in self.running.items()}
        then = {name: worker.count for name, worker in self.planned.items()}
        self.machines = {name: max(now.get(name, 0), then.get(name, 0)) for name in now | then}
        self.starting = {name: count - now.get(name, 0) for name, count in then.items()}
        """Machines of each worker that are still to be started (what is below 0, to be stopped)."""
        self.up: Counter[str | None] = Counter()
        """Machines of each offer."""
        for worker in self.running.values():
            self.up[self.offer(worker)] += worker.count

    def act(self, do: Any, *, worker: str | None = None, load: str | None = None, count: int | None = None) -> None:
        """One more action, after the one before."""
        number = len(self.actions) + 1
        after = (number - 1,) if number > 1 else ()
        self.actions.append(Action(id=number, do=do, worker=worker, load=load, count=count, after=after))

    def offer(self, worker: Worker) -> str | None:
        """Under which offer a worker is had: the plan may know what the state does not say."""
        return self.planned[worker.id].offer if worker.id in self.planned else worker.offer

    def take(self, change: _Change, sign: int) -> None:
        """What these instances take of resources is taken from now on, or (sign -1) no longer."""
        for resource, amount in change.needs.items():
            self.totals[resource] += sign * amount * change.count
            self.places[change.worker.id][resource] += sign * amount * change.count

    def has_no_machine(self, worker: Worker) -> bool:
        """Whether machines that the worker still lacks are not to be had now."""
        offer = self.v.inputs.profile.offers.get(self.offer(worker) or "")
        lacking = max(0, self.starting.get(worker.id, 0))
        if not lacking or offer is None or offer.stock is None:
            return False
        return self.up[self.offer(worker)] + lacking > offer.stock

    def fits(self, change: _Change, *, without: _Change | None = None) -> bool:
        """Whether these instances have room, `without` others."""
        limits = self.v.wanted.capacity
        provides = self.v.inputs.profile.hardware[change.worker.hardware].provides
        here, machines = self.places[change.worker.id], self.machines[change.worker.id]
        if self.has_no_machine(change.worker):
            return False
        for resource, amount in change.needs.items():
            more = amount * change.count
            gone = without.needs.get(resource, 0.0) * without.count if without is not None else 0.0
            if resource in limits and self.totals[resource] - gone + more > limits[resource] * (1 + SLIP) + SLIP:
                return False
            room = provides.get(resource)
            if room is not None:
                left = here[resource] - (gone if without is not None and without.worker.id == change.worker.id else 0.0)
                if left + more > machines * room * (1 + SLIP) + SLIP:
                    return False
        return True

    def start(self, worker: Worker) -> None:
        """Bring up the machines that a worker still lacks."""
        lacking = self.starting.get(worker.id, 0)
        if lacking > 0:
            self.act("start", worker=worker.id, count=lacking)
            self.up[self.offer(worker)] += lacking
            self.starting[worker.id] = 0

    def stop_surplus(self, worker: Worker) -> None:
        """Take down the machines that a worker has beyond those planned."""
        surplus = -self.starting.get(worker.id, 0)
        if surplus > 0:
            self.act("stop", worker=worker.id, count=surplus)
            self.up[self.offer(worker)] -= surplus
            self.starting[worker.id] = 0

    def stop(self, worker: Worker) -> None:
        """Take down a worker for good."""
        self.act("stop", worker=worker.id)
        self.up[self.offer(worker)] -= worker.count

    def bring_up(self, change: _Change) -> None:
        """Load these instances, on machines that are started for them where they lack."""
        self.start(change.worker)
        self.act(change.do, load=change.load.id, count=change.count)
        self.take(change, +1)

    def take_down(self, change: _Change) -> None:
        """Unload these instances, and stop what holds nothing then."""
        worker = change.worker
        if change.is_whole:
            self.act("unload", load=change.load.id, count=change.count)
            self.gone.add(change.load.id)
            if all(load.id in self.gone for load in worker.loads):
                if worker.id not in self.planned:
                    self.stop(worker)
                self.stop_surplus(worker)
            return
        self.stop_surplus(worker)
        machines = self.planned[worker.id].count if worker.id in self.planned else 0
        if change.left < change.load.instances * machines:
            self.act("keep", load=change.load.id, count=change.left)

    def warn_of(self, down: _Change) -> None:
        """Say that a load may not be served meanwhile."""
        text = f"{down.load.variant} stops before its replacement is up: both do not fit on the machine"
        self.notices.append(Notice(code="W-swap", at=f"actions.{len(self.actions) + 1}", text=text))


def _changes(steps: Steps) -> tuple[list[_Change], list[_Change]]:
    """What comes, and what goes; what stays is kept at once."""
    v, placed = steps.v, steps.placed
    kinds = {slot.load.id: slot.kind for slot in v.slots}
    ups: list[_Change] = []
    downs: list[_Change] = []
    for worker in steps.running.values():
        then = steps.planned.get(worker.id)
        left = {load.id: load for load in then.loads} if then is not None else {}
        for load in worker.loads:
            kind = kinds.get(load.id)
            change = _change(v, worker, load, kind, worker.count * load.instances)
            steps.take(change, +1)
            kept = then.count * left[load.id].instances if then is not None and load.id in left else 0
            if kept > change.count:
                up = _change(v, then or worker, left[load.id], kind, kept - change.count)
                up.do = "replicate"
                ups.append(up)
            elif kept < change.count:
                change.count, change.is_whole, change.left = change.count - kept, kept == 0, kept
                downs.append(change)
            elif kept:
                steps.act("keep", load=load.id)
        if not worker.loads and then is None:
            steps.stop(worker)
    for worker in placed.workers:
        before = steps.running.get(worker.id)
        old = {load.id for load in before.loads} if before is not None else set()
        for load in worker.loads:
            if load.id not in old:
                kind = v.items[placed.item_of[load.id]].kind
                change = _change(v, worker, load, kind, worker.count * load.instances)
                change.is_whole = True
                ups.append(change)
    _name_changes(v, ups)
    return ups, downs


def _change(v: Snapshot, worker: Worker, load: Load, kind: int | None, count: int) -> _Change:
    """So many instances of a load; what serves nobody here takes what its run needs, until it is gone."""
    apps = frozenset(s.app for s in v.serving_of.get(kind if kind is not None else -1, ()))
    unknown = next((one.needs for one in v.wanted.meant_by(load, worker.hardware)), {})
    return _Change(worker, load, count, apps=apps, needs=v.kinds[kind].needs if kind is not None else unknown)


def _name_changes(v: Snapshot, ups: list[_Change]) -> None:
    """replicate, upgrade, downgrade or load, by what runs of the same architecture and what it costs."""
    running: Counter[str] = Counter()
    dearest: dict[str, int] = {}
    family_of = v.wanted.known.family
    for slot in v.slots:
        if slot.kind is not None:
            kind = v.kinds[slot.kind]
            running[kind.variant] += slot.instances
            family = family_of(kind.variant)
            dearest[family] = max(dearest.get(family, 0), kind.price)
    price = {(kind.variant, kind.hardware, kind.batch): kind.price for kind in v.kinds}
    for change in ups:
        name = change.load.variant or ""
        family = family_of(name)
        if running[name]:
            change.do = "replicate"
        elif family in dearest:
            own = price[name, change.worker.hardware, change.load.serve.max_batch]
            change.do = "upgrade" if own >= dearest[family] else "downgrade"


def _make_room(steps: Steps, ups: list[_Change], stay: list[_Change], downs: list[_Change]) -> bool:
    """Nothing can come up beside what must go: something goes first, best what nobody waits for."""
    up, waiting = ups[0], frozenset().union(*(change.apps for change in ups))
    if steps.has_no_machine(up.worker):
        return _release_machine(steps, up, waiting, stay, downs)
    there = [down for down in stay if down.worker.id == up.worker.id] or stay
    if not there:
        return False
    down = min(there, key=lambda one: (bool(one.apps & waiting), not steps.fits(up, without=one)))
    if down.apps & waiting:
        steps.warn_of(down)
    steps.act("move", load=down.load.id, count=down.count)
    steps.take(down, -1)
    stay.remove(down)
    return True


def _release_machine(
    steps: Steps, up: _Change, waiting: frozenset[int], stay: list[_Change], downs: list[_Change]
) -> bool:
    """All machines of an offer are up: a worker that is to go, or to shrink, does so before another starts."""
    going = [
        down for down in downs
        if steps.offer(down.worker) == steps.offer(up.worker)
        and (down.worker.id not in steps.planned or steps.starting.get(down.worker.id, 0) < 0)
    ]  # fmt: skip
    if not going:
        return False
    first = min(going, key=lambda one: bool(one.apps & waiting)).worker.id
    for down in [one for one in downs if one.worker.id == first]:
        if down.apps & waiting:
            steps.warn_of(down)
        steps.take_down(down)
        downs.remove(down)
        if down in stay:
            steps.take(down, -1)
            stay.remove(down)
    return True
