"""Why there is no plan: what binds, how much is missing, the cheapest addition that cures it, what can be served."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Repair
from hetplan.problems.variants.draft import steady_nanos
from hetplan.problems.variants.form import least_use, program, why_no_columns
from hetplan.problems.variants.kinds import Growth
from hetplan.problems.variants.places import Placed
from hetplan.problems.variants.wish import Serves, Snapshot
from hetplan.profiles.fields import NANO
from hetplan.serving.demand import response_targets

__all__ = ["explained", "fits_nowhere", "impossible", "over_limits"]

SHOWN = 5
LARGE = 100
"""Above so many applications explanations are found with looser gaps."""
MOST_TRIED = 12
"""Types of room raised one by one."""


def impossible(v: Snapshot) -> Infeasible | None:
    """Applications that nothing may serve: the nearest by latency and by quality, and the limits that would do."""
    have = {s.app for s in v.eligible}
    why, repairs = [], list[Repair]()
    for b, one in enumerate(v.asked):
        if one.load_qps <= 0 or b in have:
            continue
        near = [s for s in v.serves if s.app == b]
        if not near:
            why.append(f"{one.id}: none of its {len(one.variants)} variants has a run that fits any machine")
            continue
        nearest, found = _nearest(v, b, near)
        asked = f"{one.slo_ms:g} ms" if one.app.quality is None else f"both {one.slo_ms:g} ms and the quality asked for"
        why.append(f"{one.id}: no variant keeps {asked}; {nearest}")
        repairs += found
    return Infeasible(why=tuple(why), repairs=tuple(repairs)) if why else None


def _nearest(v: Snapshot, b: int, near: list[Serves]) -> tuple[str, list[Repair]]:
    one = v.asked[b]
    quality, repairs, said = one.app.quality, list[Repair](), list[str]()

    def good(s: Serves) -> bool:
        value = v.kinds[s.kind].quality
        if quality is None or value is None:
            return True
        return (quality.min is None or value >= quality.min) and (quality.max is None or value <= quality.max)

    fine = [s for s in near if good(s)]
    if fine:
        best = min(fine, key=lambda s: (s.latency_ms, v.kinds[s.kind].variant))
        to = best.latency_ms + one.app.network_ms_per_hop
        said.append(f"nearest in time is {v.kinds[best.kind].variant} with {best.latency_ms:g} ms")
        for target in response_targets(one.app):
            if target.max_ms < to:
                at = f"slo.apps.{one.id}.latency[{target.place}].max_ms"
                text = f"raise {at} from {target.max_ms:g} to {to:g} ms"
                repairs.append(Repair(at, "raise", to - target.max_ms, to, "ms", text))
    quick = [s for s in near if s.latency_ms <= one.slo_ms and not good(s)]
    if quick and quality is not None:
        sign = 1.0 if quality.min is not None else -1.0
        best = max(quick, key=lambda s: (sign * (v.kinds[s.kind].quality or 0.0), v.kinds[s.kind].variant))
        value = v.kinds[best.kind].quality or 0.0
        side, verb = ("min", "lower") if quality.min is not None else ("max", "raise")
        stated = (quality.min if quality.min is not None else quality.max) or 0.0
        at = f"slo.apps.{one.id}.quality.{side}"
        said.append(f"the best that is fast enough is {v.kinds[best.kind].variant} of quality {value:g}")
        repairs.append(Repair(at, verb, abs(stated - value), value, "", f"{verb} {at} from {stated:g} to {value:g}"))
    return "; ".join(said), repairs


def explained(v: Snapshot, ask: Ask, answer: Answer[Any]) -> Infeasible:
    """What can be served, which rooms bind, and the least addition of each alone (or of all together)."""
    short = _shortfall(v, ask)
    if not v.repairs:
        return Infeasible(why=(_served(v, short),), answer=answer)
    found = list(v.growths.items())
    use = sorted({room.growth for room in v.rooms} | {g for g, (key, _) in enumerate(found) if key[0] == "moves"})
    enough: dict[int, float] = {}
    alone: list[str] = []
    for g in use:
        if ask.remaining <= 0 or len(alone) + len(enough) >= MOST_TRIED:
            continue
        more = _least(v, ask, [g])
        if more is None:
            alone.append(_named(v, found[g][0]))
        elif more[g] > 0:
            enough[g] = more[g]
    together = not enough
    if together:
        enough = {g: amount for g, amount in (_least(v, ask, use) or {}).items() if amount > 0}
    why = [_served(v, short)]
    if enough:
        fields = {found[g][1].field for g in enough}
        binding = [_named(v, found[g][0]) for g in use if found[g][1].field in fields]
        why.append(f"binding: {', '.join(binding)}")
    if alone and enough:
        why.append(f"no amount of {', '.join(alone[:SHOWN])} alone is enough")
    cost = {growth.field: growth.cost for _, growth in reversed(found)}
    repairs = [_repair(found[g][1], amount, together=together) for g, amount in enough.items()]
    repairs.sort(key=lambda r: (r.amount or 0.0) * cost[r.field])
    return Infeasible(why=tuple(why), repairs=(*repairs, *_less_load(v, short or {})), answer=answer)


def _named(v: Snapshot, key: tuple[str, str]) -> str:
    """A growth in words."""
    if key[0] == "type":
        return f"machines of {v.types[int(key[1])].name}"
    return key[1] or {"cost": "cost_per_hour"}.get(key[0], key[0])


def _least(v: Snapshot, ask: Ask, grow: list[int]) -> dict[int, float] | None:
    """The least of these additions with which all loads are served (None: no amount does)."""
    by_room = any(room.growth == grow[0] for room in v.rooms)
    if len(grow) == 1 and by_room and len(v.asked) > LARGE and not why_no_columns(v):
        more, sure = _least_by_columns(v, ask, grow[0])
        if sure:
            return more
    form = program(v, grow=grow)
    answer = ask(form, gap=_gap(v), about="least addition that serves all")
    if answer.point is None:
        return None
    extra = [block for block in form.columns if block.name.startswith("extra ")]
    wanted = list(v.growths.values())
    found = {}
    for g, block in zip(grow, extra, strict=True):
        amount = float(answer.point[block.start])
        found[g] = float(round(amount)) if wanted[g].whole else (amount if amount > 1e-7 else 0.0)
    return found


def _least_by_columns(v: Snapshot, ask: Ask, g: int) -> tuple[dict[int, float] | None, bool]:
    """The same from configuration columns, for many applications; and whether that is an answer."""
    growth = list(v.growths.values())[g]
    most = 0.0
    for room in [room for room in v.rooms if room.growth == g]:
        answer = ask(least_use(v, room), gap=1e-2, about=f"least use of {room.label}")
        if answer.point is None or answer.value is None:
            return None, answer.status is Status.INFEASIBLE
        most = max(most, (answer.value - room.size) / room.brings)
    return {g: float(math.ceil(most - 1e-6)) if growth.whole else max(most, 0.0)}, True


def _gap(v: Snapshot) -> float:
    """Explanations of large snapshots need no last digit: they would take longer than the plan."""
    return 1e-6 if len(v.asked) <= LARGE else 0.1


def _repair(growth: Growth, amount: float, *, together: bool) -> Repair:
    to = growth.stated + amount
    unit = f" {growth.unit}" if growth.unit else ""
    also = " (together with the others)" if together else ""
    text = f"raise {growth.field} from {growth.stated:g} to {to:.6g}{unit}{also}"
    return Repair(growth.field, "raise", amount, to, growth.unit, text)


def _shortfall(v: Snapshot, ask: Ask) -> dict[int, float] | None:
    form = program(v, may_fall_short=True)
    answer = ask(form, gap=_gap(v), about="least load left unserved")
    if answer.point is None:
        return None
    short = next(block for block in form.columns if block.name == "short")
    values = answer.point[short.start : short.stop]
    return {b: float(value) for b, value in enumerate(values) if value > 1e-6}


def _served(v: Snapshot, short: dict[int, float] | None) -> str:
    if short is None:
        return "the limits contradict one another, even if nothing is served"
    need = float(np.sum(v.need))
    missing = sum(short.values())
    worst = sorted(short.items(), key=lambda one: -one[1])
    named = ", ".join(f"{v.asked[b].id} lacks {value:.6g}" for b, value in worst[:SHOWN])
    return f"{need - missing:.6g} of {need:.6g} queries/s (slack included) can be served; {named}"


def _less_load(v: Snapshot, short: dict[int, float]) -> list[Repair]:
    """The loads that can be served, where few applications fall short."""
    found = []
    for b, missing in sorted(short.items())[:SHOWN]:
        one = v.asked[b]
        to = one.load_qps * (one.need_qps - missing) / one.need_qps
        at = f"slo.apps.{one.id}.demand.rate_qps"
        also = " (together with the others)" if len(short) > 1 else ""
        text = f"lower {at} from {one.load_qps:g} to {to:.6g} qps{also}"
        found.append(Repair(at, "lower", one.load_qps - to, to, "qps", text))
    return found


def fits_nowhere(v: Snapshot, left: Counter[int], *, proved: bool) -> Infeasible:
    """The machines of a type have room in all, and no machine has it in one piece."""
    of_type: Counter[int] = Counter()
    for i, count in left.items():
        of_type[v.kinds[v.items[i].kind].type] += count
    why, repairs = [], list[Repair]()
    for t, count in sorted(of_type.items()):
        names = ", ".join(
            sorted({v.kinds[v.items[i].kind].variant for i in left if v.kinds[v.items[i].kind].type == t})[:SHOWN]
        )
        why.append(f"{count} instances ({names}) find no machine of {v.types[t].name} with room in one piece")
        growth = v.growths["type", str(t)]
        to = growth.stated + count
        text = f"raise {growth.field} from {growth.stated:g} by {count} machines at the most"
        repairs.append(Repair(growth.field, "raise", float(count), to, "machines", text))
    return Infeasible(why=tuple(why), repairs=tuple(repairs), proved=proved)


def over_limits(v: Snapshot, placed: Placed) -> Infeasible | None:
    """Machines that the program did not count may take the plan over its price, or over what machines may provide."""
    return _over_budget(v, placed) or _over_resources(v, placed)


def _over_resources(v: Snapshot, placed: Placed) -> Infeasible | None:
    """Machines beyond those that the program counted, idle or filled by best fit, may provide more than may be."""
    for resource, most in v.inputs.slo.limits.resources.items():
        hardware = v.inputs.profile.hardware
        amount = sum(worker.count * hardware[worker.hardware].provides.get(resource, 0.0) for worker in placed.workers)
        if amount > most * (1.0 + 1e-9):
            at = f"slo.limits.resources.{resource}"
            why = f"the machines that would hold this provide {amount:g} {resource}"
            text = f"raise {at} from {most:g} to {amount:g}"
            return Infeasible(why=(why,), repairs=(Repair(at, "raise", amount - most, amount, "", text),), proved=False)
    return None


def _over_budget(v: Snapshot, placed: Placed) -> Infeasible | None:
    """Machines that must be there and hold nothing may take the plan over the limit on its price."""
    limit, cost = v.inputs.slo.limits.cost_per_hour, steady_nanos(v, placed)
    if limit is None or not placed.idle_nanos or cost <= limit:
        return None
    at, unit = "slo.limits.cost_per_hour", v.inputs.slo.limits.currency
    why = f"idle machines that limits.instances demands cost {placed.idle_nanos / NANO:g} {unit} an hour"
    text = f"raise {at} from {limit / NANO:g} to {cost / NANO:g} {unit}, or ask for fewer machines"
    repair = Repair(at, "raise", (cost - limit) / NANO, cost / NANO, unit, text)
    return Infeasible(why=(why,), repairs=(repair,), proved=False)
