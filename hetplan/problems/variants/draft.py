"""From counts, places and flows to the sections of a plan: workers, routes, actions, promises, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.draft import Draft, Reported
from hetplan.planner.next_state import COUNTERS, USED
from hetplan.planner.placing import IN_TOTAL, total_of
from hetplan.problems.variants.actions import steps
from hetplan.problems.variants.form import capacity_rooms
from hetplan.problems.variants.kinds import WHOLE, count_of
from hetplan.problems.variants.places import Placed
from hetplan.problems.variants.wish import Snapshot
from hetplan.problems.waiting import MOST_BUSY, waiting_ms
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice, Promise, Route, SharesDispatch, Unserved, Valid

__all__ = ["BILL", "GROSS", "NET", "aim", "draft", "steady_nanos"]

Integers = NDArray[np.int64]
Flows = Mapping[tuple[int, int], float]
"""Queries per second of an application by an item."""

BILL, GROSS, NET = "cost_per_hour", "gross_cost_per_hour", "net_cost_per_hour"
NO_SHARE = 1e-12
SHOWN = 5


def aim(v: Snapshot) -> str:
    """The cost that is minimised: the bill alone where loading counts for nothing."""
    return GROSS if v.weighted or v.weight > 0 else BILL


def draft(
    v: Snapshot,
    x: Integers,
    flows: Flows,
    placed: Placed,
    reported: Sequence[Reported],
    *,
    unserved: Mapping[int, tuple[float, str]] | None = None,
    warnings: Sequence[Notice] = (),
    counters: Mapping[str, Mapping[str, int]] | None = None,
) -> Draft:
    """The plan of counts that have their places."""
    way = steps(v, placed)
    late = _late(v, flows)
    missing = {**late, **(unserved or {})}
    served = dict.fromkeys(range(len(v.asked)), 0.0)
    for (b, _), rate in flows.items():
        served[b] += rate
    served = {b: rate - late.get(b, (0.0, ""))[0] for b, rate in served.items()}
    routing = _routes(v, flows, placed)
    return Draft(
        workers=tuple(placed.workers),
        routing=routing,
        dispatch={name: SharesDispatch(late=v.wanted.apps[name].late, balancing="shortest_queue") for name in routing},
        actions=tuple(way.actions),
        promises=tuple(_promises(v, x, flows, served, placed, routing)),
        reported=tuple(_with_value(v, x, placed, claim) for claim in reported),
        unserved=tuple(
            [Unserved(app=v.asked[b].id, rate_qps=rate, why=why) for b, (rate, why) in sorted(missing.items())]
            + [
                Unserved(app=one.id, rate_qps=0.0, why="it has no load: nothing runs for it")
                for b, one in enumerate(v.asked)
                if one.load_qps == 0 and b not in missing
            ]
        ),
        warnings=(
            *v.notices,
            *_unlimited(v),
            *_understated(v, placed),
            *_queueing(v, x, flows),
            *way.notices,
            *warnings,
        ),
        extensions={**({COUNTERS: counters} if counters else {}), **_used(v)},
        valid=Valid(rate_qps={v.asked[b].id: (0.0, rate) for b, rate in served.items() if v.asked[b].id in routing}),
    )


def _used(v: Snapshot) -> dict[str, dict[str, float]]:
    """What the bound rests on: the share of its saturation that an instance is asked for, where it is not all."""
    shares = {f"{v.kinds[s.kind].id} for {v.asked[s.app].id}": s.busy for s in v.eligible if s.busy < 1.0}
    return {USED: shares} if shares else {}


def _with_value(v: Snapshot, x: Integers, placed: Placed, claim: Reported) -> Reported:
    """What the plan costs, a hair up (below what a plan file keeps): no gap of it is too small a number for the file.

    Nothing costs less than nothing.
    """
    value = (steady_nanos(v, placed) / NANO + v.changes(x)) * (1.0 + 1e-13)
    if value == 0 and claim.scope != "none":
        return replace(claim, value=value, bound=0.0, vouched="claimed")
    return replace(claim, value=value)


def _late(v: Snapshot, flows: Flows) -> dict[int, tuple[float, str]]:
    """Load that only running violators serve: kept running, but not served as wished."""
    found: dict[int, tuple[float, str]] = {}
    for (b, i), rate in flows.items():
        if any(s.app == b and s.late for s in v.items[i].serves):
            before = found.get(b, (0.0, ""))[0]
            name = v.kinds[v.items[i].kind].variant
            found[b] = (before + rate, f"served by {name}, which runs and breaks the limits (violators: count)")
    return found


def _routes(v: Snapshot, flows: Flows, placed: Placed) -> dict[str, tuple[Route, ...]]:
    loads = placed.loads_of()
    of_app: dict[int, dict[str, float]] = {}
    for (b, i), rate in flows.items():
        if any(s.app == b and s.late for s in v.items[i].serves):
            continue
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


def _latency_ms(v: Snapshot, b: int, i: int) -> float:
    """T of an item for an application."""
    return next(s.latency_ms for s in v.items[i].serves if s.app == b)


def _promises(
    v: Snapshot,
    x: Integers,
    flows: Flows,
    served: Mapping[int, float],
    placed: Placed,
    routing: Mapping[str, tuple[Route, ...]],
) -> list[Promise]:
    slowest: dict[int, float] = {}
    for (b, i), _ in flows.items():
        if not any(s.app == b and s.late for s in v.items[i].serves):
            slowest[b] = max(slowest.get(b, 0.0), _latency_ms(v, b, i))
    found: list[Promise] = []
    for b, one in enumerate(v.asked):
        if one.id not in routing:
            continue
        rate = min(served[b], one.load_qps)
        found.append(Promise(app=one.id, quantity="rate_qps", relation=">=", value=rate, model="fluid"))
        found.append(
            Promise(
                app=one.id,
                quantity="service_ms",
                relation="<=",
                value=slowest[b] + one.network_ms(),
                model="no-queueing",
            )
        )
    steady = steady_nanos(v, placed) / NANO
    gross = steady + v.changes(x)
    for quantity, value in ((BILL, steady), (GROSS, gross), (NET, gross - v.now)):
        found.append(Promise(quantity=quantity, relation="=", value=value, model="no-queueing"))
    return found


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


def _understated(v: Snapshot, placed: Placed) -> list[Notice]:
    """Prices of runs that sum to less than the machines cost that hold them."""
    types = [
        v.kinds[v.items[placed.item_of[worker.loads[0].id]].kind].type for worker in placed.workers if worker.loads
    ]
    if v.level != "machine" or any(v.types[t].offers[0].id is None for t in types):
        return []
    counts = [worker.count for worker in placed.workers if worker.loads]
    machines = sum(n * v.types[t].offers[0].nanos for t, n in zip(types, counts, strict=True))
    paid = steady_nanos(v, placed) - placed.idle_nanos
    if paid >= machines:
        return []
    text = (
        f"runs have prices, {paid / NANO:.6g} an hour in all; the machines that hold them, paid whole, cost "
        f"{machines / NANO:.6g} under their offers"
    )
    return [Notice(code="W-run-price", at="promises", text=text)]


def _unlimited(v: Snapshot) -> list[Notice]:
    """Resources that are taken and of which nobody says how much there is."""
    totals = {room.label for room in capacity_rooms(v) if room.block == IN_TOTAL}
    few = [v.types[t] for t in (*v.sharing, *v.whole) if count_of(v.types[t]) is not None]
    limited = {WHOLE, *v.wanted.capacity, *(resource for kind in few for resource in kind.provides)}
    taken = {resource for item in v.items for resource, amount in v.kinds[item.kind].needs.items() if amount > 0}
    wheres = ["", *(kind.id for kind in v.types)]
    lacking = sorted(one for one in taken - limited if totals.isdisjoint(total_of(one, where) for where in wheres))
    if not lacking:
        return []
    text = f"nothing limits {', '.join(lacking)}: the plan assumes that there is enough"
    return [Notice(code="W-unlimited", at="slo.limits.capacity", text=text)]


def _queueing(v: Snapshot, x: Integers, flows: Flows) -> list[Notice]:
    """Where an instance is so busy, and its time so near the limit, that waiting alone would break it."""
    if v.options.size != "planned":
        return []
    use = np.zeros(len(v.items))
    for (b, i), rate in flows.items():
        use[i] += rate / next(s.saturation_qps for s in v.items[i].serves if s.app == b)
    late: dict[str, float] = {}
    for b, i in flows:
        count = float(x[i])
        busy = min(float(use[i]) / count, MOST_BUSY)
        own = _latency_ms(v, b, i)
        if own + waiting_ms(own, busy, count) > v.asked[b].limit_ms():
            late[v.asked[b].id] = max(late.get(v.asked[b].id, 0.0), busy)
    if not late:
        return []
    worst = sorted(late.items(), key=lambda one: (-one[1], one[0]))
    named = ", ".join(f"{name} ({busy:.0%})" for name, busy in worst[:SHOWN])
    who = "one application" if len(late) == 1 else f"{len(late)} applications"
    text = (
        f"at the planned use {who} would wait longer than their SLO leaves room for: {named}; raise change.slack, or "
        "set size to auto, estimated or simulated"
    )
    return [Notice(code="W-queueing", at="promises", text=text)]
