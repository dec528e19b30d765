"""What a fleet's plan can say in one way only, and says in another: it was edited after it was made.

Parts are held to it by `exact`, but that they have no actions: what starts is said between periods. Here is the rest:
each line of the bill, what starts and stops before a period, promises, rates, and warnings.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from hetplan.profiles.plan import Period
from hetplan.profiles.plan_parts import SHARED, SHARED_TOO, BillLine
from hetplan.profiles.workers import Worker
from hetplan.verifier.fleet_parts import Fleet, carried, same
from hetplan.verifier.report import Violation
from hetplan.verifier.warned import WARNINGS, Words

__all__ = ["exactly"]

SOON_S = 10.0
"""What is loaded within so long after a failure is there soon."""
IN_A_PART = "t0"
"""What workers of a part say of their period: parts run in several."""


def exactly(fleet: Fleet) -> Iterator[Violation]:
    """Everything of a fleet's plan that says otherwise what can be said in one way only."""
    for name, part in fleet.parts.items():
        if part.claims:
            yield Violation("claim", f"parts.{name}.claims", "a part claims nothing")
        for worker in part.workers:
            if worker.period != IN_A_PART:
                yield Violation("period", f"parts.{name}.workers.{worker.id}", f"a part runs in no {worker.period}")
    for check in (_bill, _levers, _actions, _promises, _valid, _warnings):
        yield from check(fleet)


# The bill


def _bill(fleet: Fleet) -> Iterator[Violation]:
    """Each line, from the machines that run and those that are paid for; and their sums."""
    bill, idle, starts = fleet.plan.bill, 0.0, 0.0
    assert bill is not None
    keys = Counter((line.period, line.offer, line.app) for line in bill.lines)
    for key in (key for key, times in keys.items() if times > 1):
        yield Violation("bill", "bill.lines", f"two lines of {key[1]} for {key[2] or 'nobody'} in {key[0]}")
    for number, period in enumerate(fleet.plan.periods):
        mine = [line for line in bill.lines if line.period == period.id]
        idle += sum(line.cost_per_hour for line in mine if line.app is None)
        starts += sum(line.starts_per_hour for line in mine)
        if number == 0 and fleet.inputs.state is not None and len(fleet.plan.periods) > 1:
            continue  # The first time it follows what runs: `fleet` checks what that costs in all.
        for offer in dict.fromkeys(line.offer for line in mine):
            starting = _starting(fleet, number, offer)
            lines = {line.app: line for line in mine if line.offer == offer}
            for app, wanted in _shared_out(fleet, period, offer, starting).items():
                if app not in lines or not all(map(same, _figures(lines[app]), wanted)):
                    text = f"{offer} for {app or 'nobody'} in {period.id} is not what its machines come to"
                    yield Violation("bill", "bill.lines", text)
    count = len(fleet.plan.periods)
    for field, stated, found in (
        ("idle_per_hour", bill.idle_per_hour, idle / count),
        ("starts_per_hour", bill.starts_per_hour, starts / count),
    ):
        if not same(stated, found):
            yield Violation("bill", f"bill.{field}", f"{stated:.9g}, and its lines are {found:.9g}")
    several = any(len(part.rate_qps) > 1 for part in fleet.parts.values()) or bool(fleet.sharers)
    if bill.currency != fleet.inputs.slo.limits.currency or bill.shared != (SHARED_TOO if several else SHARED):
        yield Violation("bill", "bill", "its currency or what it says of sharing is not that of a fleet")


def _figures(line: BillLine) -> tuple[float, float, float, float]:
    return line.committed, line.rented, line.cost_per_hour, line.starts_per_hour


def _starting(fleet: Fleet, number: int, offer: str) -> float:
    """What machines of an offer cost per hour of a period while they start."""
    if len(fleet.plan.periods) == 1 or not fleet.inputs.slo.horizon.starts:
        return 0.0
    ahead = fleet.ahead.get(offer, 0)
    before, now = (max(fleet.totals[fleet.plan.periods[at].id][offer] - ahead, 0.0) for at in (number - 1, number))
    hardware = fleet.inputs.profile.hardware[fleet.inputs.profile.offers[offer].hardware]
    return max(now - before, 0.0) * fleet.price(offer) * hardware.startup_s / 3600.0 / fleet.hours


def _shared_out(
    fleet: Fleet, period: Period, offer: str, starting: float
) -> dict[str | None, tuple[float, float, float, float]]:
    """Machines paid ahead and rented, all that they cost, and what of it is for starting: by application."""
    used = {app: counts[offer] for app, counts in fleet.shares(period.parts or ()).items() if counts.get(offer)}
    total, ahead = round(sum(used.values()), 6), fleet.ahead.get(offer, 0)
    by_the_hour = max(total - ahead, 0)
    dear, cheap = fleet.price(offer), fleet.price_ahead(offer) if ahead else 0.0
    found: dict[str | None, tuple[float, float, float, float]] = {}
    for app, count in used.items():
        own, rented, part = (amount * count / total for amount in (min(ahead, total), by_the_hour, starting))
        part = part if by_the_hour else 0.0
        found[app] = (own, rented, own * cheap + rented * dear + part, part)
    idle = max(ahead - total, 0)
    spare = max(fleet.totals[period.id][offer] - max(total, ahead), 0.0)
    left = 0.0 if by_the_hour else starting
    if idle or spare or left:
        found[None] = (float(idle), spare, idle * cheap + spare * dear + left, left)
    return found


def _levers(fleet: Fleet) -> Iterator[Violation]:
    """Nobody plans the other ways again to see what they cost; the last is this plan, and what each saves follows."""
    bill, before = fleet.plan.bill, None
    assert bill is not None
    if bill.levers and not same(bill.levers[-1].cost_per_hour or 0.0, bill.cost_per_hour):
        yield Violation("bill", "bill.levers", "the last of them is this plan, and costs something else")
    if bill.levers and not bill.levers[-1].verified:
        yield Violation("bill", "bill.levers", "the last of them is this plan, and is not called verified")
    for number, lever in enumerate(bill.levers):
        cost = lever.cost_per_hour
        saves = None if cost is None or before is None else before - cost
        alike = (lever.saves_per_hour is None) == (saves is None) and same(lever.saves_per_hour or 0.0, saves or 0.0)
        if not alike:
            yield Violation("bill", f"bill.levers[{number}]", f"{lever.name} saves something else")
        if cost is None and (lever.verified or lever.kept is not None):
            yield Violation(
                "bill", f"bill.levers[{number}]", f"{lever.name} has no plan that could be verified or kept"
            )
        before = before if cost is None else cost


# What starts and stops


def _actions(fleet: Fleet) -> Iterator[Violation]:
    """Numbered from 1; what starts does so as long ahead as its hardware takes, and what stops waits for all of it."""
    profile = fleet.inputs.profile
    for period in fleet.plan.periods:
        if period is fleet.plan.periods[0] and fleet.inputs.state is not None:
            continue  # They lead from what runs: `fleet` follows them.
        actions = period.actions or ()
        starts = tuple(one.id for one in actions if one.do == "start")
        hardware = {
            worker.id: worker.hardware
            for name, part in fleet.parts.items()
            if name in (period.parts or ())
            for worker in part.workers
        }
        if len(fleet.plan.periods) == 1 and period.actions is not None:
            yield Violation("action-exact", f"periods.{period.id}.actions", "nothing comes before the only period")
        for number, action in enumerate(actions, start=1):
            known = profile.hardware.get(hardware.get(action.worker or "", ""))
            ahead = known.startup_s if known is not None and action.do == "start" else None
            after = () if action.do == "start" else starts
            alike = (action.id, action.ahead_s, action.after) == (number, ahead, after)
            plain = action.load is None and action.host is None and action.count is not None
            if action.do not in ("start", "stop") or not alike or not plain:
                text = f"number {number} is not how machines start or stop before a period"
                yield Violation("action-exact", f"periods.{period.id}.actions", text)


# What is said


def _promises(fleet: Fleet) -> Iterator[Violation]:
    """Rates of applications in periods, by the model of the part, one cost, and the parts' percentiles: each once."""
    models = {
        (app, period.id): _model_of(fleet, name)
        for period in fleet.plan.periods
        for name in period.parts or ()
        for app in fleet.parts[name].rate_qps
    }
    seen: set[tuple[object, ...]] = set()
    for number, one in enumerate(fleet.plan.promises):
        at, key = f"promises[{number}]", (one.quantity, one.app, one.period, one.situation)
        if one.percentile is not None:
            continue
        relation, model = {
            "rate_qps": (">=", models.get((one.app or "", one.period or ""), "no-queueing")),
            "cost_per_hour": ("=", "no-queueing"),
        }.get(one.quantity, (None, None))
        if key in seen:
            yield Violation("promise-exact", at, f"{one.quantity} is promised twice")
        seen.add(key)
        if relation is None:
            yield Violation("promise-exact", at, f"a fleet promises no {one.quantity}")
        elif (one.relation, one.model) != (relation, model) or one.percentile is not None or one.extrapolated:
            yield Violation("promise-exact", at, f"{one.quantity} is promised with {relation}, by the model {model}")
        if one.quantity == "cost_per_hour" and (one.app or one.period or one.situation):
            yield Violation("promise-exact", at, "the cost is that of all, over all periods")
    if ("cost_per_hour", None, None, None) not in seen:
        yield Violation("promise-exact", "promises", "nothing is said of the cost")
    yield from _percentiles(fleet)


def _percentiles(fleet: Fleet) -> Iterator[Violation]:
    """Each percentile that a part promises is promised in the periods that it runs in, word for word, and no other."""
    said = [one for one in fleet.plan.promises if one.percentile is not None]
    due = [
        promise.model_copy(update={"period": period.id})
        for period in fleet.plan.periods
        for name in period.parts or ()
        for promise in fleet.parts[name].promises
        if promise.percentile is not None
    ]
    for lists, others, text in ((due, said, "is not promised"), (said, due, "is promised, and not by its part")):
        for one in lists:
            if lists.count(one) > others.count(one):
                what = f"p{one.percentile:g} of {one.quantity} of {one.app} in {one.period}"
                yield Violation("promise-exact", "promises", f"{what} {text}")


def _model_of(fleet: Fleet, part: str) -> str:
    said = {promise.quantity: promise.model for promise in fleet.parts[part].promises}
    return said.get("rate_qps") or said.get("fluid_rate_qps") or "no-queueing"


def _valid(fleet: Fleet) -> Iterator[Violation]:
    """From no queries to the highest rate of any period, for each application."""
    said = fleet.plan.valid.rate_qps
    for app, rates in fleet.rates.items():
        low, high = said.get(app, (math.nan, math.nan))
        if low != 0.0 or high is None or not same(high, max(rates)):
            text = f"the plan holds for 0 to {max(rates):.9g} qps, and says {low:g} to {high}"
            yield Violation("valid", f"valid.rate_qps.{app}", text)
    used = set[str]()
    for period in fleet.plan.periods:
        used.update(period.parts or ())
        for name in period.parts or ():
            yield from _holds(fleet, name, period)
    for name in fleet.parts.keys() - used:
        yield from _holds(fleet, name)
    for name in {name for period in fleet.plan.periods for left in (period.failures or {}).values() for name in left}:
        yield from _holds(fleet, name)


def _holds(fleet: Fleet, name: str, period: Period | None = None) -> Iterator[Violation]:
    """A part holds as far as it carries; in a period, as far as what runs after each failure carries what is kept."""
    part, keep = fleet.parts[name], fleet.inputs.slo.limits.survive.keep
    most = carried(part)
    for left in (period.failures or {}).values() if period is not None and keep > 0 else ():
        after = {app: rate for one in left if one in fleet.parts for app, rate in carried(fleet.parts[one]).items()}
        most = {app: min(rate, after.get(app, 0.0) / keep) for app, rate in most.items()}
    said = part.valid.rate_qps
    for app in most.keys() | said.keys():
        low, high = said.get(app, (math.nan, math.nan))
        if low != 0.0 or high is None or not same(high, most.get(app, math.nan)):
            text = f"it holds for 0 to {most.get(app, math.nan):.9g} qps, and says {low:g} to {high}"
            yield Violation("valid", f"parts.{name}.valid.rate_qps.{app}", text)


def _warnings(fleet: Fleet) -> Iterator[Violation]:
    """All that reading the inputs and planning the parts warned of, and no code that nobody knows."""
    words = Words.of(fleet.plan, fleet.inputs)
    there = set(words.all_of(fleet.plan))
    places = {(code, at) for code, at, _ in there}
    for code, at, _ in sorted({words.said(*one) for one in fleet.inputs.warnings} - there):
        yield Violation("warning", "warnings", f"reading the inputs warns {code} at {at}, and the plan does not say so")
    for name, part in fleet.parts.items():
        for notice in part.warnings:
            if notice.code != "W-interruptions" and (notice.code, notice.at) not in places:
                text = f"part {name} warns {notice.code} at {notice.at}, and the plan does not say so"
                yield Violation("warning", "warnings", text)
    unkept, offers = fleet.inputs.slo.limits.survive.spot == "none", fleet.inputs.profile.offers
    rented = {offer for had in fleet.totals.values() for offer, count in had.items() if count > 0}
    for offer in sorted(rented) if unkept else ():
        if offers[offer].interruptions_per_hour and ("W-interruptions", f"offers.{offer}") not in places:
            text = (
                f"machines of {offer} may be taken back, nothing is kept for that, and W-interruptions does not say so"
            )
            yield Violation("unwarned", f"offers.{offer}", text)
    for notice in fleet.plan.warnings:
        if notice.code not in WARNINGS:
            yield Violation("warning", "warnings", f"{notice.code} is not a known warning")
    claim = next(iter(fleet.plan.claims), None)
    is_bounded = claim is not None and claim.gap is not None and claim.scope not in ("none", "restriction")
    if is_bounded and fleet.plan.status == "feasible" and ("W-gap", "claims") not in places:
        yield Violation("unwarned", "claims", "the plan is called feasible, as its gap is wide, and W-gap is not said")
    due = {words.said("W-loading", "promises", text): text for text in _loading(fleet)}
    for said in sorted({one for one in there if one[0] == "W-loading"} - due.keys(), key=repr):
        yield Violation("warning", "warnings", f"W-loading says {', '.join(said[2])}, and that is not so")
    for said in due.keys() - there:
        yield Violation("unwarned", "promises", f"W-loading is not said: {due[said]}")


def _loading(fleet: Fleet) -> Iterator[str]:
    """Machines of pipelines and variants that hold something else after a failure than before, and load it for long."""
    late = defaultdict[str, list[float]](list)
    for period in fleet.plan.periods:
        known = [fleet.parts[name] for name in period.parts or () if name in fleet.parts]
        before = {"-".join(part.rate_qps): part for part in known}
        for name in (name for names in (period.failures or {}).values() for name in names if name in fleet.parts):
            whose = "-".join(fleet.parts[name].rate_qps)
            if whose in before and before[whose].question in ("pipeline", "variants"):
                new = _contents(fleet.parts[name].workers) - _contents(before[whose].workers)
                loads = [_load_s(fleet, hardware, model) for _, hardware, models in new for model, *_ in models]
                late[whose].append(max(loads, default=0.0))
    for whose, seconds in late.items():
        slow = [one for one in seconds if one > SOON_S]
        if slow:
            yield f"{whose} loads models for up to {max(slow):g} s after {len(slow)} of {len(seconds)} failures"


def _contents(workers: Iterable[Worker]) -> Counter[tuple[str | None, str, tuple[tuple[str, str, int], ...]]]:
    """How many machines of each offer hold what."""
    found = Counter[tuple[str | None, str, tuple[tuple[str, str, int], ...]]]()
    for worker in workers:
        models = sorted((load.variant or "", load.app or "", load.instances) for load in worker.loads)
        if models:
            found[worker.offer, worker.hardware, tuple(models)] += worker.count
    return found


def _load_s(fleet: Fleet, hardware: str, model: str) -> float:
    variant = fleet.inputs.profile.variants.get(model)
    return max((run.load_s for run in (variant.runs if variant else ()) if run.hardware == hardware), default=0.0)
