"""Promises: recomputed where arithmetic can, and none that says more than its model knows. Claims: what they rest on.

Which quantities promises and claims may be about is listed here: whose they are, which way is better, who recomputes
them. One that is not listed for a question of hetplan's own is one that nobody knows, and a promise of it is worth
nothing. What questions of other packages promise beyond this list is left to their own checks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hetplan.planner.answer import relative_gap
from hetplan.planner.tolerances import BOUND_SLIP, OPTIMAL_GAP, VALUE
from hetplan.profiles.columns import STATISTICS
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Claim, Plan, Promise, Solve
from hetplan.verifier.plan_index import QUESTIONS, Facts, machines, option, own_table
from hetplan.verifier.report import Violation
from hetplan.verifier.resources import cost_nanos, same_money

__all__ = [
    "RECOMPUTED",
    "Computed",
    "bound_faults",
    "check_claims",
    "check_extrapolation",
    "check_promises",
    "is_claimable",
    "is_known",
    "not_recomputed",
    "plain_name",
    "plan_figures",
    "sense_of",
    "status_faults",
    "worst_of",
]


# Quantities


RECOMPUTED = frozenset({"rate_qps", "fluid_rate_qps", "quality", "response_ms", "service_ms"})
"""What following the routing of an application gives."""

_OF_PLAN = frozenset({"servers", "cost_per_hour"})
_OWN_OF_PLAN = {
    "pipeline": frozenset({"changes"}),
    "variants": frozenset({"gross_cost_per_hour", "net_cost_per_hour"}),
    "compound": frozenset({"goodput", "served", "candidates_per_hour", "cost_per_query"}),
}
_OWN_OF_APP = {"compound": frozenset({"calls_per_query"})}
_OF_TEXT = frozenset({"ttft_ms", "tpot_ms"})
_SHOWN_ONLY = frozenset({"goodput", "violations", "utilisation", "served"})
"""What simulation, measurement or a model of queues says of an application, and arithmetic does not."""

_SENSE = {
    **dict.fromkeys(("cost_per_hour", "gross_cost_per_hour", "candidates_per_hour", "packed_per_hour"), "min"),
    **dict.fromkeys(("servers", "changes"), "min"),
    **dict.fromkeys(("rate_qps", "fluid_rate_qps", "served_share", "goodput"), "max"),
    **dict.fromkeys(("quality", "least_quality", "quality_per_step", "accuracy_per_decision"), "max"),
}
_CLAIMED_ONLY = {
    "pipeline": frozenset({"least_quality", "quality_per_step", "served_share"}),
    "compound": frozenset({"packed_per_hour", "quality_short", "mean_latency_ms"}),
    "policy": frozenset({"accuracy_per_decision", "goodput", "quality"}),
}
_OF_DECISIONS = re.compile(r"accuracy_of_[0-9]+_decisions\Z")


def is_known(question: str, quantity: str, *, of_app: bool, arithmetic: bool) -> bool:
    """Whether a plan of this question may promise a quantity of an application, or of itself, by such a model."""
    if not of_app:
        return quantity in _OF_PLAN | _OWN_OF_PLAN.get(question, frozenset())
    shown = frozenset[str]() if arithmetic else _SHOWN_ONLY | (_OF_TEXT if question in ("llm", "pool") else frozenset())
    return quantity in RECOMPUTED | _OWN_OF_APP.get(question, frozenset()) | shown


def plain_name(about: str) -> str:
    """What a claim is about, without the part of the plan that it is of: ``goodput[group@400qps]``.

    >>> plain_name("goodput[images on a100@400qps]")
    'goodput'
    """
    return about.partition("[")[0]


def is_claimable(question: str, about: str) -> bool:
    """Whether a claim of this question may be about what the plan does not promise: the value of a program, say."""
    name = plain_name(about)
    own = name in _CLAIMED_ONLY.get(question, ())
    return own or (question == "policy" and _OF_DECISIONS.match(name) is not None)


def sense_of(about: str) -> str | None:
    """Which way is better, where that is known."""
    return _SENSE.get(plain_name(about))


# Promises


ROUNDED = 1e-11
_DIGITS = 1e-9
"""A plan has twelve digits of a number."""
_ARITHMETIC = ("no-queueing", "fluid")
_MODELS = (*_ARITHMETIC, "stationary", "simulation", "measured")
_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
_COUNTED = ("fluid_rate_qps", "quality", "service_ms")
"""What follows from the routing of an application that can be followed, so that no other model has a say in it."""


@dataclass(frozen=True)
class Computed:
    """What was recomputed of an application: quantity -> value; and which tables were read outside their grid."""

    values: Mapping[str, float]
    extrapolated: frozenset[str] = frozenset()


def worst_of(periods: Iterable[Computed]) -> Computed:
    """Of every quantity that is known in all periods, the worst: it holds for the whole."""
    parts = list(periods)
    known = set[str]().union(*(part.values for part in parts)).intersection(*(part.values for part in parts))
    worst = {name: (max if name.endswith("_ms") else min)(part.values[name] for part in parts) for name in known}
    return Computed(worst, frozenset[str]().union(*(part.extrapolated for part in parts)))


def plan_figures(facts: Facts) -> Computed:
    """What was recomputed of the plan as a whole."""
    servers = {period.id: 0 for period in facts.plan.periods}
    for worker in facts.plan.workers:
        servers[worker.period] += machines(worker)
    values = {"servers": float(max(servers.values()))}
    cost = cost_nanos(facts)
    if cost is not None:
        values["cost_per_hour"] = cost / NANO
    return Computed(values)


def _is_kept(promise: Promise, value: float) -> bool:
    slip = VALUE * max(abs(promise.value), abs(value))
    if promise.relation == "<=":
        return value <= promise.value + slip
    if promise.relation == ">=":
        return value >= promise.value - slip
    return abs(value - promise.value) <= slip


def _check_value(facts: Facts, promise: Promise, at: str, computed: Computed) -> Iterator[Violation]:
    value = computed.values.get(promise.quantity)
    if value is None:
        if promise.app is not None and promise.quantity in RECOMPUTED:
            yield Violation("promise", at, f"promises {promise.quantity}, and there is nothing to recompute it from")
        return
    held = _is_kept(promise, value)
    if promise.quantity == "cost_per_hour" and held:
        cost = cost_nanos(facts)
        held = promise.relation != "=" or (cost is not None and same_money(cost, promise.value))
    if not held:
        said = f"{promise.quantity} {promise.relation} {promise.value:.12g}"
        yield Violation("promise", at, f"promises {said}, recomputed it is {value:.12g}")


def _family(promise: Promise) -> str:
    return promise.model.partition("/")[0]


def _check_model(facts: Facts, promise: Promise, at: str) -> Iterator[Violation]:
    """What a promise may say by its model alone, and against the wish."""
    if promise.percentile is not None or _family(promise) not in _ARITHMETIC:
        yield from (Violation("promise-model", at, text) for text in _model_faults(facts, promise))
    of_app, arithmetic = promise.app is not None, _family(promise) in _ARITHMETIC
    question = facts.plan.question
    if question in QUESTIONS and not is_known(question, promise.quantity, of_app=of_app, arithmetic=arithmetic):
        of = f"of {promise.app}" if of_app else "of the plan as a whole"
        text = f"there is no quantity {promise.quantity} {of} by the model {promise.model}"
        yield Violation("promise-quantity", at, text)
    if promise.interval is not None:
        low, high = promise.interval
        short = {"<=": high > promise.value, ">=": low < promise.value, "=": not low <= promise.value <= high}
        if low > high or short[promise.relation]:
            text = f"{promise.relation} {promise.value:g} is not what the interval {low:g} .. {high:g} shows"
            yield Violation("promise-interval", at, text)
    worse = {"max": "<=", "min": ">="}.get(_better(promise.quantity), "")
    if promise.relation == worse:
        text = f"{promise.quantity} {promise.relation} {promise.value:g} leaves open how bad it is"
        yield Violation("promise-relation", at, text)
    if promise.app is not None and _family(promise) == "simulation":
        yield from (Violation("promise-wish", at, text) for text in _unknown_limits(facts, promise))
    targets = facts.inputs.slo.apps[promise.app].targets if promise.app is not None else ()
    for target in targets:
        same = promise.quantity == f"{target.of}_ms" and promise.percentile == target.percentile
        # A plan file has 12 digits of a number: the limit itself may come out a little above.
        if same and promise.value > target.max_ms * (1.0 + ROUNDED):
            text = f"promises {promise.value:g} ms where {target.max_ms:g} ms are wanted"
            yield Violation("promise-target", at, text)


def _model_faults(facts: Facts, promise: Promise) -> Iterator[str]:
    """A model says only what it knows, and shows what it rests on."""
    model, options = promise.model.partition("/")[0], facts.plan.method.options
    if model not in _MODELS:
        yield f"unknown model {promise.model}"
    if model in _ARITHMETIC and promise.percentile is not None:
        yield f"a percentile of {promise.quantity} by the model {promise.model}, which knows no queueing"
    if promise.percentile is not None and not promise.quantity.endswith("_ms"):
        yield f"a percentile of {promise.quantity}, which is no time"
    if model == "simulation" and (not promise.seeds or promise.interval is None):
        yield f"{promise.quantity} by simulation, without the seeds and the interval that it rests on"
    # Outside compound a search may measure the rate of a pool, and nothing else is ever measured.
    by_search = facts.plan.inputs.measured or options.get("evaluator") == "evaluate"
    is_rate = promise.quantity == "rate_qps" and by_search
    if model == "measured" and facts.plan.question in QUESTIONS - {"compound"} and not is_rate:
        yield f"{promise.quantity} is said to be measured, which plans of this question are not"
    if model == "stationary" and facts.plan.question in QUESTIONS - {"policy", "compound"}:
        yield f"{promise.quantity} by the stationary model, which is one of policies and of operators with a rate"
    # Measurements come with the inputs, or are described in words; a search may also have been handed a way to measure.
    said = facts.plan.inputs.measured or promise.basis or options.get("evaluator") == "evaluate"
    if model == "measured" and not said:
        yield f"{promise.quantity} is said to be measured, and nothing says what was"
    if promise.quantity == "response_ms" and promise.percentile is not None and promise.relation == "<=":
        least = _least_alone(facts, promise)
        if promise.value < least:
            yield f"p{promise.percentile:g} within {promise.value:g} ms, and of service times alone it is {least:g} ms"


def _least_alone(facts: Facts, promise: Promise) -> float:
    """A time that the promised percentile cannot be below, by the tables of whatever may serve the application first.

    Of each cell the highest percentile that is stated there and not above it, of these the least. It is 0 where nothing
    is stated of how long a cell's times may be: there simulation takes them to be constant.
    """
    app = facts.inputs.slo.apps.get(promise.app or "")
    named = app.pipeline if app is not None else None
    pipeline = facts.inputs.profile.pipelines.get(named or "")
    inner = {edge.to for edge in pipeline.edges} if pipeline is not None else set[str]()
    found: list[float] = []
    for seat in facts.seats.values():
        if seat.load.app not in (None, promise.app) or seat.load.node in inner:
            continue
        table = own_table(facts.inputs.profile, seat.run) if seat.run is not None and seat.run.latency else None
        grids = [list(_flat(grid)) for name in STATISTICS if (grid := getattr(table, name, None)) is not None]
        stated = [
            list(_flat(grid))
            for name, percentile in _PERCENTILES.items()
            if percentile <= (promise.percentile or 0.0) and (grid := getattr(table, name, None)) is not None
        ]
        measured = [place for place, cells in enumerate(zip(*grids, strict=True)) if any(cells)]
        found.append(min((max((grid[place] for grid in stated), default=0.0) for place in measured), default=0.0))
    return min(found, default=0.0)


def _flat(grid: Any) -> Iterator[float]:
    """The cells of a table, 0 where nothing was measured."""
    if isinstance(grid, tuple):
        for row in grid:
            yield from _flat(row)
    else:
        yield grid or 0.0


def _better(quantity: str) -> str:
    """Which way a promised quantity is better, where that is known."""
    is_least = quantity.endswith("_ms") or quantity == "violations"
    return "min" if is_least else sense_of(quantity) or ""


def _unknown_limits(facts: Facts, promise: Promise) -> Iterator[str]:
    """What simulation shows of an application is one of the limits that the SLO states."""
    question, app = facts.plan.question, facts.inputs.slo.apps[promise.app or ""]
    if question not in ("pool", "pipeline", "variants", "llm", "compound"):
        return
    if promise.quantity.endswith("_ms") and question != "compound":  # which has other limits too (`compound`)
        said = promise.quantity, promise.percentile
        limits = [one.max_ms for one in app.targets if (f"{one.of}_ms", one.percentile) == said]
        if not any(math.isclose(promise.value, one, rel_tol=_DIGITS) for one in limits):
            yield f"p{promise.percentile or 0:g} of {promise.value:g} ms is no limit that is wished for"
    elif promise.quantity == "violations":
        allowed = [1.0 - one.percentile / 100.0 for one in app.targets if one.of == "response"]
        if not any(math.isclose(promise.value, one, rel_tol=_DIGITS, abs_tol=1e-12) for one in allowed):
            yield f"a share of {promise.value:g} is not what is wished for"


def _check_once(facts: Facts) -> Iterator[Violation]:
    """Nothing is promised twice; only what a model of queues expects may be beside what simulation shows."""
    seen: dict[tuple[object, ...], list[str]] = {}
    for number, promise in enumerate(facts.plan.promises):
        model = _family(promise)
        before = seen.setdefault((promise.app, promise.quantity, promise.percentile), [])
        if before and sorted([*before, model]) != ["simulation", "stationary"]:
            text = f"{promise.quantity} is promised above already, by the model {before[0]}"
            yield Violation("promise-twice", f"promises[{number}]", text)
        before.append(model)


def _check_runs(facts: Facts) -> Iterator[Violation]:
    """What simulation shows of an application is of the same runs, and as sure, whatever it is about."""
    if facts.plan.question not in ("pool", "pipeline", "variants", "llm"):
        return
    seen: dict[str | None, tuple[int | None, float | None]] = {}
    for number, promise in enumerate(facts.plan.promises):
        if _family(promise) != "simulation":
            continue
        runs, sure = seen.setdefault(promise.app, (promise.seeds, promise.confidence))
        sure = promise.confidence if sure is None else sure
        if promise.seeds != runs or promise.confidence not in (None, sure):
            text = f"{promise.quantity} is of {promise.seeds} runs, what is promised above of {runs}, or not as sure"
            yield Violation("promise-interval", f"promises[{number}]", text)
        seen[promise.app] = (runs, sure)


def check_promises(facts: Facts, apps: Mapping[str, Computed], whole: Computed) -> list[Violation]:
    """Every promise; what can be recomputed, against that.

    `apps` holds the applications that could be followed; what keeps the others from it is reported elsewhere.
    """
    found = [*_check_once(facts), *_check_runs(facts)]
    for number, promise in enumerate(facts.plan.promises):
        at = f"promises[{number}]"
        found += _check_model(facts, promise, at)
        computed = whole if promise.app is None else apps.get(promise.app)
        if computed is None:
            continue
        if _family(promise) not in _ARITHMETIC:
            if promise.quantity in (whole.values if promise.app is None else _COUNTED):
                text = f"{promise.quantity} can be counted, and is said to be by the model {promise.model}"
                found.append(Violation("promise-model", at, text))
            continue
        found += _check_value(facts, promise, at, computed)
        if computed.extrapolated and promise.extrapolated is not True:
            text = f"rests on extrapolated numbers ({', '.join(sorted(computed.extrapolated))}) and does not say so"
            found.append(Violation("extrapolated", at, text))
    return found


def not_recomputed(facts: Facts, whole: Computed) -> Iterator[str]:
    """Promises that nothing recomputes and no rule forbids: costs without prices, quantities of other packages."""
    for number, promise in enumerate(facts.plan.promises):
        if promise.app is None and promise.quantity == "cost_per_hour" and promise.quantity not in whole.values:
            yield f"promises[{number}]: not every price is known"
        elif facts.plan.question not in QUESTIONS and not any(
            is_known(facts.plan.question, promise.quantity, of_app=of_app, arithmetic=False) for of_app in (True, False)
        ):
            yield f"promises[{number}]: {promise.quantity} is a quantity of the question {facts.plan.question}"


def check_extrapolation(facts: Facts, apps: Mapping[str, Computed]) -> list[Violation]:
    """A number read outside its table's grid has a warning."""
    warned = {notice.at for notice in facts.plan.warnings if notice.code == "W-extrapolated"}
    used = frozenset[str]().union(*(computed.extrapolated for computed in apps.values()))
    places = {name: facts.inputs.profile.places.text(f"tables.{name}") for name in sorted(used)}
    return [
        Violation("extrapolated", at, f"read outside the points of {at}, and no warning says so")
        for at in places.values()
        if at not in warned
    ]


WITHIN_GAP = 0.05
"""No plan may call itself within a gap of more than this, whatever gap was allowed."""

SOLVED_AGAIN = 0.1
"""How far a value of the plan may lie from that of the program which chose it: a program may stop within a gap that was
asked for, and what is then solved again for the counts that it chose may close it."""

CLAMPED = 10 * BOUND_SLIP
"""A bound that is no further than this inside the plan's own value is moved onto it."""


def _value_faults(facts: Facts, claim: Claim, whole: Mapping[str, float]) -> Iterator[str]:
    """A claim is about something that the plan promises, or that can be recomputed, and says the same of it."""
    promised = [promise for promise in facts.plan.promises if promise.quantity == claim.about]
    known = [promise.value for promise in promised]
    if claim.about in whole:
        known = [whole[claim.about]]
    elif claim.about == "least_quality":
        known = [min((one.value for one in facts.plan.promises if one.quantity == "quality"), default=math.nan)]
    elif len({promise.app for promise in promised}) > 1:
        # Of several applications a mean, weighed by somebody's weights, or the sum of their rates.
        most = max(known) if claim.about == "quality" else sum(known)
        if claim.value > most + VALUE * max(abs(most), 1.0):
            yield f"claims {claim.about} {claim.value:.9g}, the plan has {most:.9g} at most"
        return
    if is_claimable(facts.plan.question, claim.about):
        solve = _solve_of(facts, claim)
        if solve is not None and solve.count == 1 and claim.bound is not None:
            value = math.nan if solve.value is None else solve.value
            # A simulation may show a longer latency than the formula by which plans were compared.
            known += [max(value, claim.value) if claim.about == "mean_latency_ms" else value]
        elif not known:
            return
    if known:
        if not any(math.isclose(claim.value, value, rel_tol=VALUE, abs_tol=VALUE) for value in known):
            yield f"claims {claim.about} {claim.value:.9g}, the plan has {known[0]:.9g}"
    elif facts.plan.question in QUESTIONS and (facts.plan.workers or sense_of(claim.about) is None):
        yield f"nothing in the plan says what {claim.about} is"


def bound_faults(claim: Claim) -> Iterator[str]:
    """What a claim's bound, gap and voucher say that cannot all be so."""
    if (sense_of(claim.about) or claim.sense) != claim.sense:
        yield f"{claim.about} is not to be {claim.sense}imised"
    if claim.bound is None:
        if claim.gap is not None or claim.vouched != "none":
            yield "there is no bound, so there can be neither gap nor voucher"
        return
    if claim.vouched == "none":
        yield "a bound without the mark who proved it"
    ahead = claim.value - claim.bound if claim.sense == "max" else claim.bound - claim.value
    if ahead > BOUND_SLIP * max(abs(claim.value), abs(claim.bound), 1.0):
        yield f"the value {claim.value:.9g} is better than the bound {claim.bound:.9g}"
    gaps = [relative_gap(claim.value, claim.bound, floor=floor) for floor in (_DIGITS, 1.0)]
    stated = math.nan if claim.gap is None else claim.gap
    if not any(math.isclose(stated, gap, rel_tol=VALUE, abs_tol=ROUNDED) for gap in gaps):
        yield f"states a gap of {claim.gap}, recomputed it is {gaps[0]:.9g}"


def _solve_of(facts: Facts, claim: Claim) -> Solve | None:
    return next((solve for solve in facts.plan.solves if solve.id == claim.solve), None)


def _voucher_faults(facts: Facts, claim: Claim) -> Iterator[str]:
    """What the plan says of who vouches for a bound."""
    if claim.bound is None:
        return
    solve = _solve_of(facts, claim)
    if solve is None:
        if claim.vouched == "certified":
            yield "certified, but no solve carries a certified bound"
        if claim.scope == "problem" and facts.plan.question in QUESTIONS and facts.plan.workers:
            yield "bounds all plans, and no solve says so"
        return
    if solve.status not in ("optimal", "feasible"):
        yield f"rests on solve {solve.id}, which ended {solve.status}"
    elif solve.vouched in (None, "none") or (claim.vouched == "certified" and solve.certified_bound is None):
        yield f"{claim.vouched}, and solve {solve.id} is {solve.vouched or 'none'}"
    elif solve.count == 1 and facts.plan.question in QUESTIONS:
        # Of a family the log holds one member only; forms of other packages may be in units of their own.
        yield from _solve_faults(facts, claim, solve)


def _solve_faults(facts: Facts, claim: Claim, solve: Solve) -> Iterator[str]:
    """The bound is the solve's own, in the plan's unit; over all plans, so is the value."""
    bound = solve.certified_bound if claim.vouched == "certified" else solve.bound
    # A rate by formula is promised derated, and so is its bound; what simulation shows is promised as it is.
    fluid = any((one.quantity, one.model) == ("rate_qps", "fluid") for one in facts.plan.promises)
    scales = {1.0, option(facts.plan, "derate", 1.0)} if fluid and claim.about == "rate_qps" else {1.0}
    if bound is None or claim.bound is None:
        yield f"solve {solve.id} has no bound"
        return
    fitting = [scale for scale in scales if _same_bound(claim, scale * bound)]
    if not fitting:
        yield f"is bounded by {claim.bound:.9g}, solve {solve.id} by {bound:.9g}"
    if solve.value is None:
        return
    ahead = solve.value - bound if claim.sense == "max" else bound - solve.value
    if ahead > CLAMPED * max(abs(bound), 1.0):
        yield f"solve {solve.id} found {solve.value:.9g}, better than its own bound {bound:.9g}"
    gaps = [relative_gap(claim.value, scale * solve.value, floor=1.0) for scale in fitting]
    # A solve that ended within a wide gap says no more of the value: the plan may have been found beside it.
    allowed = max(SOLVED_AGAIN, relative_gap(solve.value, bound, floor=1.0) if solve.stop == "gap" else 0.0)
    if claim.scope == "problem" and solve.status == "optimal" and min(gaps, default=0.0) > allowed:
        yield f"claims {claim.value:.9g}, solve {solve.id} found {solve.value:.9g}"


def _same_bound(claim: Claim, bound: float) -> bool:
    assert claim.bound is not None
    if math.isclose(claim.bound, bound, rel_tol=1e-9, abs_tol=1e-9):
        return True
    inside = bound < claim.value if claim.sense == "max" else bound > claim.value
    return inside and claim.bound == claim.value and relative_gap(bound, claim.value, floor=1.0) <= CLAMPED


def _scope_faults(facts: Facts, claim: Claim, number: int) -> Iterator[str]:
    """Who looked at some plans only bounds no others: a bound of those is one of a restriction."""
    question = facts.plan.question
    if claim.bound is None or claim.scope not in ("problem", "relaxation"):
        return
    listed = all(app.candidates for app in facts.inputs.slo.apps.values())
    by_search = any(getattr(rule, "candidate", 0) is None for rule in facts.plan.dispatch.values())
    if question == "compound" and (number > 0 or (by_search and not listed)):
        yield f"a bound of scope {claim.scope}, and only what was searched is bounded"


def _check_solves(facts: Facts) -> Iterator[Violation]:
    """No entry of the log contradicts itself."""
    for number, solve in enumerate(facts.plan.solves):
        at, vouched = f"solves[{number}]", solve.vouched or "none"
        if solve.status in ("infeasible", "unbounded") and solve.value is not None:
            yield Violation("solve", at, f"{solve.status}, yet it found {solve.value:.9g}")
        if (solve.bound is None) != (vouched == "none"):
            yield Violation("solve", at, f"the bound {solve.bound} is {vouched}")
        stated, proved = (math.nan if one is None else one for one in (solve.bound, solve.certified_bound))
        if vouched == "certified" and not math.isclose(stated, proved, rel_tol=VALUE, abs_tol=VALUE):
            text = f"the bound {solve.bound} is certified, and what was re-proved is {solve.certified_bound}"
            yield Violation("solve", at, text)


def status_faults(plan: Plan) -> Iterator[Violation]:
    """A plan is what its first claim makes it; that it was the best of those tried is its own word alone."""
    status, claims = plan.status, plan.claims
    gap, scope = (claims[0].gap, claims[0].scope) if claims else (None, "none")
    allowed: tuple[str, ...] = ("feasible",)
    if gap is None or scope == "none":
        allowed = ("heuristic",)
    elif scope != "restriction" and gap <= OPTIMAL_GAP * (1.0 + VALUE):
        # A later level of the objective that is the best of some plans alone may keep it from being called that; a
        # gap that is the limit itself, but for rounding, may be either.
        open_ = gap >= OPTIMAL_GAP * (1.0 - VALUE) or any(claim.scope == "restriction" for claim in claims[1:])
        allowed = ("optimal", "within-gap") if open_ else ("optimal",)
    elif scope != "restriction" and gap <= WITHIN_GAP:
        allowed = ("within-gap", "feasible")
    if status not in (*allowed, "best-of-measured", "not-simulated"):
        why = "no bound" if gap is None else f"a gap of {gap:.3g}"
        text = f"{status}, yet the first claim, of scope {scope}, has {why}: that is {' or '.join(allowed)}"
        yield Violation("status", "status", text)


def check_claims(facts: Facts, whole: Mapping[str, float]) -> list[Violation]:
    """Every claim of the plan, the solves that they rest on, and the status that rests on them."""
    found = [
        Violation("claim", f"claims[{number}]", text)
        for number, claim in enumerate(facts.plan.claims)
        for text in (
            *_value_faults(facts, claim, whole),
            *bound_faults(claim),
            *_voucher_faults(facts, claim),
            *_scope_faults(facts, claim, number),
        )
    ]
    return [*found, *_check_solves(facts), *status_faults(facts.plan)]
