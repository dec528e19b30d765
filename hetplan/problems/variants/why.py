"""Why there is no plan: what binds, how much is missing, the cheapest addition that cures it, what can be served."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer
from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Repair
from hetplan.planner.elastic import explain, knobs, stretch
from hetplan.problems.variants.draft import steady_nanos
from hetplan.problems.variants.form import LOAD, program
from hetplan.problems.variants.places import Placed
from hetplan.problems.variants.wish import Serves, Snapshot
from hetplan.profiles.fields import NANO
from hetplan.serving.demand import response_targets

__all__ = ["explained", "fits_nowhere", "impossible", "over_limits"]

SHOWN = 5
LARGE, ROUGH = 100, 0.1
"""Above so many applications explanations are found with looser gaps: they need no last digit, and would take longer
than the plan."""


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
    """What can be served; what contradicts what, and what alone would cure it."""
    form, gap = program(v), None if len(v.asked) <= LARGE else ROUGH
    loads = [knob for knob in knobs(form) if knob.block.name == LOAD]
    fewer, read = stretch(form, loads)
    # Of loads unserved the queries count, not the shares.
    fewer.cost[form.cost.size :] = np.tile(v.need, 2)
    found = ask(fewer, gap=gap, about="least load left unserved")
    if found.point is None:
        short, served = dict[int, float](), "the limits contradict one another, even if nothing is served"
    else:
        values = read(found.point) * v.need
        short = {b: float(value) for b, value in enumerate(values) if value > 1e-6}
        served = _served(v, short)
    if not v.repairs:
        return Infeasible(why=(served,), answer=answer)
    said = explain(form, ask, gap=gap)
    others = tuple(one for one in said.repairs if not one.field.endswith(".rate_qps"))
    return Infeasible(why=(served, *said.why), repairs=(*others, *_less_load(v, short)), answer=answer)


def _served(v: Snapshot, short: dict[int, float]) -> str:
    need, missing = float(np.sum(v.need)), sum(short.values())
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
        why.append(f"{count} instances ({names}) find no machine of {v.types[t].id} with room in one piece")
        kind, offer = v.types[t], v.types[t].offers[0]
        stated, at = kind.available, f"profile.offers.{offer.id}.stock"
        if kind.most <= offer.stock:
            at = f"slo.limits.instances.{kind.hardware}[1]"
        elif offer.hosts:
            at = f"profile.hosts (under {offer.id})"
        text = f"raise {at} from {stated} by {count} machines at the most"
        repairs.append(Repair(at, "raise", float(count), stated + count, "machines", text))
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
