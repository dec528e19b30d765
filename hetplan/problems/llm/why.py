"""There is no fleet: which limit no type can keep, and the smallest change of each field that would do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Infeasible, Repair
from hetplan.problems.llm.form import classes_of, program
from hetplan.problems.llm.judge import Judge
from hetplan.problems.llm.size import Sized, Tried, sized
from hetplan.problems.llm.wish import Supply, Wish
from hetplan.profiles.fields import NANO
from hetplan.serving.tokens import Limit

__all__ = ["impossible", "short_of", "too_dear"]

FACTORS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0)


def impossible(wish: Wish) -> Infeasible | None:
    """A limit that no type keeps for enough requests, even alone on an empty machine; None where there is none such."""
    laws = [kind.law for kind in wish.kinds]
    requests, weight = wish.demand.requests, wish.demand.weight / wish.demand.weight.sum()
    first = np.min(wish.first_token_ms(laws, requests), axis=0)
    decoding = [kind for kind in wish.kinds if kind.engine.role != "prefill"]
    nearest = min(decoding, key=lambda kind: kind.law.decode_ms())
    fastest = nearest.law.decode_ms()
    why, repairs = list[str](), list[Repair]()
    for limit in wish.limits:
        at = f"slo.apps.{wish.app}.latency[{limit.place}].max_ms"
        if limit.of == "tpot":
            needed, who = fastest, nearest.name
        else:
            times = first + (requests.output - 1) * fastest * (limit.of == "response")
            order = np.argsort(times)
            place = int(np.searchsorted(np.cumsum(weight[order]), limit.percentile / 100.0 - 1e-12))
            needed, who = float(times[order][min(place, len(times) - 1)]), "the fastest type, empty"
        if needed > limit.max_ms * (1.0 + 1e-9):
            stated = wish.wanted.latency[limit.place].max_ms
            to = _rounded(needed + stated - limit.max_ms)
            what = "one decoding sequence takes" if limit.of == "tpot" else f"p{limit.percentile:g} of {limit.of} takes"
            why.append(f"{what} {needed:.4g} ms on {who}; {limit.max_ms:g} ms are left of the limit")
            repairs.append(_raise(at, stated, to, "ms"))
    if not why and not wish.options.sacrifice:
        why, repairs = _without_sacrifice(wish)
    return Infeasible(why=tuple(why), repairs=tuple(repairs), proved=True) if why else None


def _without_sacrifice(wish: Wish) -> tuple[list[str], list[Repair]]:
    """Classes that no type serves in time, though percentiles might leave them: `sacrifice` would."""
    what = program(wish, mean_tpot=False, sacrifice=False)
    lost = what.unserved()
    if not lost:
        return [], []
    share = float(classes_of(wish, what.laws).share[lost].sum())
    why = f"{share:.3g} of the requests are late on every type, even alone on an empty machine"
    text = "set options.sacrifice to true: they are planned onto some type, late, as far as percentiles leave room"
    return [why], [Repair("options.sacrifice", "set", None, "true", "", text)]


def too_dear(wish: Wish, judge: Judge, ask: Ask, bound: float, tried: Tried) -> Infeasible:
    """No fleet within budget, stock and limits keeps what is wished: each field is changed until one does."""
    why = [_said(wish, tried)]
    repairs = [one for one in _repairs(wish, judge, ask, bound) if one is not None]
    return Infeasible(why=tuple(why), repairs=tuple(repairs), proved=False)


def short_of(wish: Wish, judge: Judge, ask: Ask, said: Infeasible) -> Infeasible:
    """Budget, stock or limits leave no fleet that the rows allow; what would do is found by simulation."""
    free = _unlimited(wish, budget=True, stock=True)
    answer = ask(program(free, mean_tpot=False, sacrifice=True).build(), gap=1e-6, about="least cost without limits")
    repairs = [one for one in _repairs(wish, judge, ask, max(answer.bound or 0.0, 1e-9)) if one is not None]
    return replace(said, repairs=tuple(repairs))


def _said(wish: Wish, tried: Tried) -> str:
    limits = ", ".join(f"{one.of} p{one.percentile:g} <= {one.max_ms:g} ms" for one in wish.limits)
    budget = f" up to {wish.budget_nanos / NANO:g} per hour" if wish.budget_nanos is not None else ""
    near = ""
    if tried.nearest is not None:
        counts = ", ".join(f"{n} {kind.name}" for n, kind in zip(tried.nearest[1].counts, wish.kinds, strict=True) if n)
        near = f"; the nearest, {counts}, has {tried.nearest[0]:.3g} times as many late requests as may be"
    return (
        f"no fleet{budget} was found that keeps {limits} at {wish.rate_qps:g} requests/s: of {tried.listed} "
        f"{tried.excluded} are excluded by rows, {tried.simulated} were simulated{near}"
    )


def _repairs(wish: Wish, judge: Judge, ask: Ask, bound: float) -> Iterator[Repair | None]:
    def found(other: Wish) -> Sized | None:
        if ask.remaining <= 0 or impossible(other) is not None:
            return None
        return sized(other, replace(judge, wish=other, played=0), ask, bound)[0]

    rich = _unlimited(wish, budget=True, stock=False)
    if wish.budget_nanos is not None and (made := found(rich)) is not None:
        to = made.cost_nanos / NANO
        yield _raise("slo.limits.cost_per_hour", wish.budget_nanos / NANO, to, "per hour")
    plenty = _unlimited(wish, budget=False, stock=True)
    if plenty.supply != wish.supply and (made := found(plenty)) is not None:
        yield from _stock(wish, made)
    for limit in wish.limits:
        yield _looser(wish, limit, found)
    for factor in FACTORS:
        if found(wish.with_rate(wish.rate_qps / factor)) is not None:
            to = wish.rate_qps / factor
            at = f"slo.apps.{wish.app}.demand.rate_qps"
            yield Repair(
                at,
                "lower",
                wish.rate_qps - to,
                to,
                "qps",
                f"lower {at} by {wish.rate_qps - to:.6g} qps to {to:.6g} qps",
            )
            break


def _looser(wish: Wish, limit: Limit, found: Callable[[Wish], Sized | None]) -> Repair | None:
    """The first of some steps of a limit that lets a fleet be found."""
    stated = wish.wanted.latency[limit.place].max_ms
    for factor in FACTORS:
        to = _rounded(stated * factor)
        looser = replace(limit, max_ms=limit.max_ms + to - stated)
        other = replace(wish, limits=tuple(looser if one is limit else one for one in wish.limits))
        if found(other) is not None:
            return _raise(f"slo.apps.{wish.app}.latency[{limit.place}].max_ms", stated, to, "ms")
    return None


def _unlimited(wish: Wish, *, budget: bool, stock: bool) -> Wish:
    """The wish without its budget, or with as many machines of each offer as are wanted."""
    supply = dict(wish.supply)
    if stock:
        plenty = {name: replace(one, stock=(10**9,) * len(one.stock), most=10**9) for name, one in supply.items()}
        supply = {name: Supply(one.offers, one.nanos, one.stock, one.least, one.most) for name, one in plenty.items()}
    inputs = wish.inputs
    if budget:
        limits = inputs.slo.limits.model_copy(update={"cost_per_hour": None})
        inputs = replace(inputs, slo=inputs.slo.model_copy(update={"limits": limits}))
    return replace(wish, supply=supply, inputs=inputs)


def _stock(wish: Wish, made: Sized) -> Iterator[Repair]:
    for hardware, supply in wish.supply.items():
        count = sum(n for n, kind in zip(made.counts, wish.kinds, strict=True) if kind.hardware == hardware)
        if count > supply.most < 10**9:
            yield _raise(f"slo.limits.instances.{hardware}[1]", supply.most, count, "machines")
        elif count > supply.available and supply.offers:
            more = count - supply.available
            offer, stock = supply.offers[0], supply.stock[0]
            yield _raise(f"profile.offers.{offer}.stock", stock, stock + more, "machines")


def _raise(at: str, stated: float, to: float, unit: str) -> Repair:
    text = f"raise {at} by {to - stated:.6g} {unit} to {to:.6g} {unit}"
    return Repair(at, "raise", to - stated, to, unit, text)


def _rounded(value: float) -> float:
    """Up to three digits."""
    if value <= 0:
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return round(math.ceil(value / step - 1e-9) * step, 9)
