"""There is no fleet: which limit no type can keep, and the smallest change of each field that would do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasibility, Repair
from hetplan.planner.repairs import ABOUT, is_overload
from hetplan.planner.request import PLENTY
from hetplan.problems.llm.judge import Judge
from hetplan.problems.llm.program import classes_of, program
from hetplan.problems.llm.request import TextRequest
from hetplan.problems.llm.sizing import SearchRecord, SizedFleet, machines_taken, size_fleet
from hetplan.problems.repairs import change
from hetplan.profiles.fields import NANO

__all__ = ["explain_none_in_time", "explain_too_few", "unreachable_limit", "with_trials"]

MORE = 1.5
"""The first guess at what helps, in times of what is stated: trials go on from it, and back (`planner.repairs`)."""


def unreachable_limit(wish: TextRequest) -> Infeasibility | None:
    """Why a limit is out of reach for every type, even alone on an empty machine; None where there is none such."""
    laws = [kind.law for kind in wish.kinds]
    requests, weight = wish.demand.requests, wish.demand.weight / wish.demand.weight.sum()
    first = np.min(wish.first_token_ms(laws, requests), axis=0)
    decoding = [kind for kind in wish.kinds if kind.engine.role != "prefill"]
    nearest = min(decoding, key=lambda kind: kind.law.decode_ms())
    fastest = nearest.law.decode_ms()
    why, repairs = list[str](), list[Repair]()
    for limit in wish.limits:
        at = f"slo.apps.{wish.app.id}.latency.{limit.key}"
        if limit.of == "tpot":
            needed, who = fastest, nearest.name
        else:
            times = first + (requests.output - 1) * fastest * (limit.of == "response")
            order = np.argsort(times)
            place = int(np.searchsorted(np.cumsum(weight[order]), limit.percentile / 100.0 - 1e-12))
            needed, who = float(times[order][min(place, len(times) - 1)]), "an empty machine of the fastest type"
        if needed > limit.max_ms * (1.0 + 1e-9):
            stated = wish.app.latency[limit.key]
            to = _rounded(needed + stated - limit.max_ms)
            what = "one decoding sequence takes" if limit.of == "tpot" else f"p{limit.percentile:g} of {limit.of} takes"
            why.append(f"{what} {needed:.4g} ms on {who}; the limit leaves {limit.max_ms:g} ms")
            repairs.append(_raise(at, stated, to, "ms"))
    if not why and not wish.options.allow_late:
        why, repairs = _late_classes(wish)
    return Infeasibility(why=tuple(why), repairs=tuple(repairs), proved=True) if why else None


def with_trials(wish: TextRequest, said: Infeasibility) -> Infeasibility:
    """What is said to be unreachable_limit, with limits from which to look for those that a fleet keeps in simulation.

    An empty machine's time is not one: queries wait. Nor is a percentile's where no class may be late on every type.
    """
    first = float(np.min(wish.first_token_ms([kind.law for kind in wish.kinds], wish.demand.requests), axis=0).max())

    def guess(one: Repair) -> Repair:
        if one.unit != "ms" or not isinstance(one.to, float):
            return one
        key = one.field.rpartition(".")[2]
        (limit,) = (limit for limit in wish.limits if limit.key == key)
        least = max(one.to, first) if limit.of == "ttft" and not wish.options.allow_late else one.to
        longer = _raise(one.field, wish.app.latency[key], _rounded(MORE * least), "ms")
        return replace(longer, text=longer.text + ABOUT)

    return replace(said, repairs=tuple(map(guess, said.repairs)))


def _late_classes(wish: TextRequest) -> tuple[list[str], list[Repair]]:
    """Classes that no type serves in time, though percentiles might leave them: `allow_late` would."""
    what = program(wish, mean_tpot=False, allow_late=0.0)
    lost = what.unserved()
    if not lost:
        return [], []
    share = float(classes_of(wish, what.laws).share[lost].sum())
    why = f"{share:.3g} of the requests are late on every type, even alone on an empty machine"
    text = "set options.allow_late to 1: they are served late, as far as percentiles allow"
    return [why], [Repair("options.allow_late", "set", None, "1", "", text)]


def explain_none_in_time(wish: TextRequest, judge: Judge, ask: Ask, bound: float, tried: SearchRecord) -> Infeasibility:
    """No fleet within budget, stock and limits keeps what is wished: each field is changed until one does."""
    return Infeasibility(
        why=(_what_was_tried(wish, tried),), repairs=tuple(_repairs(wish, judge, ask, bound)), proved=False
    )


def explain_too_few(wish: TextRequest, judge: Judge, ask: Ask, said: Infeasibility) -> Infeasibility:
    """Budget, stock or limits leave no fleet that the rows allow; what would do is found by simulation.

    Of a rate far beyond what there is the rows say it, and no search for a fleet many times as large.
    """
    if is_overload(said.repairs, {f"slo.apps.{wish.app.id}.rate_qps": wish.rate_qps}):
        return said
    bound = _least_cost(_without_limits(wish, budget=True, stock=True), ask) if judge.repairs else 0.0
    return replace(said, repairs=tuple(_repairs(wish, judge, ask, bound)))


def _what_was_tried(wish: TextRequest, tried: SearchRecord) -> str:
    limits = ", ".join(f"{one.of} p{one.percentile:g} <= {one.max_ms:g} ms" for one in wish.limits)
    budget = f" up to {wish.request.budget / NANO:g} per hour" if wish.request.budget is not None else ""
    near, begun = "", f"no fleet{budget} was found that meets {limits} at {wish.rate_qps:g} requests/s"
    if tried.parts > 1:
        begun += f", for one of {tried.parts} parts of the requests and of what there is"
    if tried.nearest is not None:
        counts = ", ".join(f"{n} {kind.name}" for n, kind in zip(tried.nearest[1].counts, wish.kinds, strict=True) if n)
        sure = "" if tried.nearest[0] > 1.0 else " in short runs, which longer ones did not confirm"
        near = f"; the nearest, {counts}, has {tried.nearest[0]:.3g} times as many late requests as allowed{sure}"
    return f"{begun}: of {tried.listed} {tried.excluded} are excluded by rows, {tried.simulated} were simulated{near}"


def _least_cost(wish: TextRequest, ask: Ask) -> float:
    """What any fleet costs at least."""
    answer = ask(program(wish, mean_tpot=False, allow_late=1.0).build(), gap=1e-6, about="least cost without limits")
    return max(float(answer.bound or 0.0), 1e-9)


def _cheapest_fleet(wish: TextRequest, judge: Judge, ask: Ask, bound: float) -> SizedFleet | None:
    """The cheapest fleet for another wish."""
    if ask.remaining <= 0 or unreachable_limit(wish) is not None:
        return None
    return size_fleet(judge.for_wish(wish), ask, bound)[0]


def _repairs(wish: TextRequest, judge: Judge, ask: Ask, bound: float) -> Iterator[Repair]:
    """What may help, each field alone: money and stock as a search says, limits and the rate as guesses."""
    if judge.repairs:
        rich = _without_limits(wish, budget=True, stock=False)
        if wish.request.budget is not None and (made := _cheapest_fleet(rich, judge, ask, bound)) is not None:
            to = made.cost_nanos / NANO
            yield _raise("slo.limits.cost_per_hour", wish.request.budget / NANO, to, "per hour")
        plenty = _without_limits(wish, budget=False, stock=True)
        if plenty.request != wish.request and (made := _cheapest_fleet(plenty, judge, ask, bound)) is not None:
            yield from _more_machines(wish, made)
        freed = replace(wish, request=wish.request.without_minima())
        if freed.request != wish.request and (made := _cheapest_fleet(freed, judge, ask, bound)) is not None:
            yield from _fewer_machines(wish, made)
    for limit in wish.limits:
        stated = wish.app.latency[limit.key]
        guess = _raise(f"slo.apps.{wish.app.id}.latency.{limit.key}", stated, _rounded(MORE * stated), "ms")
        yield replace(guess, text=guess.text + ABOUT)
    less, at = wish.rate_qps / MORE, f"slo.apps.{wish.app.id}.rate_qps"
    yield change(at, wish.rate_qps, less, "qps", more=ABOUT)


def _without_limits(wish: TextRequest, *, budget: bool, stock: bool) -> TextRequest:
    """The wish without its budget, or with as many machines of each offer as are wanted."""
    request = wish.request.with_plenty() if stock else wish.request
    return replace(wish, request=replace(request, budget=None) if budget else request)


def _more_machines(wish: TextRequest, made: SizedFleet) -> Iterator[Repair]:
    for machine, count in machines_taken(wish, made.counts):
        if count > machine.most < PLENTY:
            yield _raise(f"slo.limits.instances.{machine.id}[1]", machine.most, count, "machines")
        elif count > machine.available:
            offer = machine.offers[0]
            to = offer.stock + count - machine.available
            yield _raise(f"profile.offers.{offer.id}.stock", offer.stock, to, "machines")


def _fewer_machines(wish: TextRequest, made: SizedFleet) -> Iterator[Repair]:
    for machine, count in machines_taken(wish, made.counts):
        if count < machine.least:
            yield change(f"slo.limits.instances.{machine.id}[0]", machine.least, count, "machines")


def _raise(at: str, stated: float, to: float, unit: str) -> Repair:
    text = f"raise {at} by {to - stated:.6g} {unit} to {to:.6g} {unit}"
    return Repair(at, "raise", to - stated, to, unit, text)


def _rounded(value: float) -> float:
    """Up to three digits."""
    if value <= 0:
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return round(math.ceil(value / step - 1e-9) * step, 9)
