"""Why there is no plan: what binds, how much is missing, the cheapest addition that cures it, what can be served."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

from hetplan.planner.answer import Answer, Status
from hetplan.planner.contract import Ask
from hetplan.planner.draft import TOGETHER, Infeasibility, Repair
from hetplan.planner.elastic import explain, knobs, stretch
from hetplan.planner.machine_limits import machine_limits
from hetplan.planner.machine_packing import IN_TOTAL
from hetplan.planner.tolerances import SLIP
from hetplan.problems.repairs import change
from hetplan.problems.variants.placement import Placed
from hetplan.problems.variants.plan import steady_nanos
from hetplan.problems.variants.program import LOAD, capacity_rooms, least_use, program, why_no_columns
from hetplan.problems.variants.request import Serves, Snapshot
from hetplan.profiles.fields import NANO

__all__ = ["explain_infeasible", "fits_nowhere", "over_limits", "unservable_apps"]

SHOWN = 5
LARGE, ROUGH, CLOSE = 100, 0.1, 1e-2
"""Above so many applications explanations are found with looser gaps: they need no last digit, and would take longer
than the plan."""


def unservable_apps(v: Snapshot) -> Infeasibility | None:
    """Why some applications are served by nothing: the nearest by latency and by quality, and limits that would do."""
    have = {s.app for s in v.eligible}
    why, repairs = [], list[Repair]()
    for b, one in enumerate(v.asked):
        if one.load_qps <= 0 or b in have:
            continue
        near = [s for s in v.serves if s.app == b]
        if not near:
            why.append(f"{one.id}: none of its models ({len(one.variants)}) has a run that fits any machine")
            continue
        nearest, found = _nearest(v, b, near)
        limit = f"{one.limit_ms():g} ms"
        asked = f"both {limit} and the quality limit" if one.has_quality_limit else limit
        why.append(f"{one.id}: no variant meets {asked}; {nearest}")
        repairs += found
    return Infeasibility(why=tuple(why), repairs=tuple(repairs)) if why else None


def _nearest(v: Snapshot, b: int, near: list[Serves]) -> tuple[str, list[Repair]]:
    one = v.asked[b]
    repairs, said = list[Repair](), list[str]()

    def good(s: Serves) -> bool:
        value = v.kinds[s.kind].choice.quality
        return value is None or one.meets_quality(value)

    fine = [s for s in near if good(s)]
    if fine:
        best = min(fine, key=lambda s: (s.latency_ms, v.kinds[s.kind].variant))
        to = best.latency_ms + one.network_ms()
        said.append(f"nearest in time is {v.kinds[best.kind].variant} with {best.latency_ms:g} ms")
        for target in one.targets:
            if target.max_ms < to:
                at = f"slo.apps.{one.id}.latency.{target.key}"
                repairs.append(change(at, target.max_ms, to, "ms"))
    quick = [s for s in near if s.latency_ms <= one.limit_ms() and not good(s)]
    if quick:
        side, stated = ("min", one.floor) if one.floor is not None else ("max", one.ceiling)
        sign = 1.0 if side == "min" else -1.0
        best = max(quick, key=lambda s: (sign * (v.kinds[s.kind].choice.quality or 0.0), v.kinds[s.kind].variant))
        value = v.kinds[best.kind].choice.quality or 0.0
        at = f"slo.apps.{one.id}.quality.{side}"
        said.append(f"the best that is fast enough is {v.kinds[best.kind].variant} of quality {value:g}")
        repairs.append(change(at, stated or 0.0, value))
    return "; ".join(said), repairs


def explain_infeasible(v: Snapshot, ask: Ask, answer: Answer[Any]) -> Infeasibility:
    """What can be served; what contradicts what, and what alone would cure it."""
    if not v.explains:
        return Infeasibility(why=("no choice satisfies all rows",), answer=answer)
    form, gap = program(v), None if len(v.asked) <= LARGE else ROUGH
    loads = [knob for knob in knobs(form) if knob.block.name == LOAD]
    fewer, read = stretch(form, loads)
    # Of loads unserved the queries count, not the shares.
    fewer.cost[form.cost.size :], fewer.upper[form.cost.size :] = np.tile(v.need, 2), 1.0
    found = ask.without_infeasibility_checks()(fewer, gap=gap, about="least load left unserved")
    if found.point is None:
        short, served = dict[int, float](), "how much can be served is not known"
        if found.status is Status.INFEASIBLE:
            served = "the limits contradict one another, even if nothing is served"
    else:
        values = read(found.point) * v.need
        short = {b: float(value) for b, value in enumerate(values) if value > 1e-6}
        served = _what_is_served(v, short)
    if not v.repairs:
        return Infeasibility(why=(served,), answer=answer)
    said = explain(form, ask, kept=LOAD, gap=gap, known=_least_alone(v, ask))
    return Infeasibility(why=(served, *said.why), repairs=(*said.repairs, *_less_load(v, short)), answer=answer)


def _least_alone(v: Snapshot, ask: Ask) -> dict[tuple[str, str], float]:
    """What each total must be raised by alone: from configuration columns, for many applications."""
    found: dict[tuple[str, str], float] = {}
    if len(v.asked) > LARGE and not why_no_columns(v):
        for room in (one for one in capacity_rooms(v) if one.block != IN_TOTAL):
            answer = ask(least_use(v, room), gap=CLOSE, about=f"least use of {room.label}")
            if answer.value is not None or answer.status is Status.INFEASIBLE:
                found[room.block, room.label] = math.inf if answer.value is None else max(answer.value - room.size, 0.0)
    return found


def _what_is_served(v: Snapshot, short: dict[int, float]) -> str:
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
        at = f"slo.apps.{one.id}.rate_qps"
        also = TOGETHER if len(short) > 1 else ""
        found.append(change(at, one.load_qps, to, "qps", more=also))
    return found


def fits_nowhere(v: Snapshot, left: Counter[int], *, proved: bool) -> Infeasibility:
    """The machines of a type have room in all, and no machine has it in one piece."""
    why, repairs = [], list[Repair]()
    for t in sorted({v.kind(i).type for i in left}):
        mine = [i for i in left if v.kind(i).type == t]
        count, names = sum(left[i] for i in mine), ", ".join(sorted({v.kind(i).variant for i in mine})[:SHOWN])
        why.append(
            f"{count} replicas ({names}) fit on no machine of {v.types[t].id}: free resources are spread over several"
        )
        kind, offer = v.types[t], v.types[t].offers[0]
        stated, at = kind.available, f"profile.offers.{offer.id}.stock"
        if kind.most <= offer.stock:
            at = f"slo.limits.instances.{kind.hardware}[1]"
        elif offer.hosts:
            at = f"profile.hosts (under {offer.id})"
        repairs.append(change(at, stated, stated + count, "machines", more=" at the most"))
    return Infeasibility(why=tuple(why), repairs=tuple(repairs), proved=proved)


def over_limits(v: Snapshot, placed: Placed) -> Infeasibility | None:
    """Machines that the program does not count one by one, idle or filled by best fit, may be more than may be had."""
    budget, cost, over = v.wanted.budget, steady_nanos(v, placed), list[tuple[str, float, float, str]]()
    if budget is not None and cost > budget:
        over.append(("slo.limits.cost_per_hour", budget / NANO, cost / NANO, v.wanted.currency))
    of = Counter[tuple[str, str | None]]()
    for worker in placed.workers:
        of[worker.hardware, worker.offer] += worker.count
    counts = np.array([of[kind.hardware, kind.offers[0].id] for kind in v.types], dtype=float)
    for limit in machine_limits(replace(v.wanted, machines=v.types, budget=None)):
        amount, give = float(limit.total @ counts), limit.elastic
        if give is not None and amount > limit.upper * (1.0 + SLIP):
            over.append((give.field.format(label=limit.label), limit.upper, amount, give.unit or limit.label))
    for at, most, amount, what in over:
        idle = f", idle ones at {placed.idle_nanos / NANO:g} included" if "cost" in at and placed.idle_nanos else ""
        why = f"the machines that would hold this come to {amount:g} {what}{idle}"
        return Infeasibility(why=(why,), repairs=(change(at, most, amount, what),), proved=False)
    return None
