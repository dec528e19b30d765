"""Plans with periods checked: parts by the checks of their questions, and by hand what joins them.

Money over the horizon, machines against stock and limits in each period, who survives which failure, and every promise.
Nothing here reads a plan or a file by the code that made the plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module

from hetplan.planner.tolerances import FEASIBILITY
from hetplan.profiles.fields import HOURS_A_MONTH, NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Period, Plan, Valid
from hetplan.profiles.plan_parts import Part
from hetplan.profiles.plan_periods import of_part
from hetplan.verifier.check import verify_plan
from hetplan.verifier.fleet_bill import check_bill
from hetplan.verifier.fleet_parts import (
    Fleet,
    carried_rates,
    files_of_part,
    is_same,
    loaded_variants,
    lost_in,
    one_variant,
    without_commitments,
)
from hetplan.verifier.fleet_shared import named_twice, shared_machines
from hetplan.verifier.promises import bound_faults, status_faults
from hetplan.verifier.references import allows, check_header, check_inputs
from hetplan.verifier.report import Report, Violation
from hetplan.verifier.resources import check_instances, check_spot_warning

__all__ = ["check", "check_parts", "verify_fleet"]

CHECKS = {name: f"hetplan.verifier.{name}" for name in ("llm", "pool", "pipeline", "policy", "variants")}
"""Where the check of each question that may be a part is."""

CHECKED = "inputs references parts demand resources cost failures promises actions fleet"
"""What is checked of every fleet, in order."""
Owned = tuple[tuple[str, ...], str]
"""Who has a machine, in order, and of which offer it is."""


def check(plan: Plan, inputs: Inputs) -> list[Violation]:
    """A fleet has parts; `verify_fleet` checks them."""
    del inputs
    return [] if plan.parts is not None else [Violation("fleet", "parts", "a fleet has parts that run in periods")]


def verify_fleet(plan: Plan, inputs: Inputs) -> Report:
    """All that such a plan says but for its bounds, recomputed from the files."""
    fleet = Fleet(plan, inputs)
    found = [*check_inputs(plan, inputs), *check_header(plan)]
    broken = list(_check_references(fleet))
    if broken:
        return Report((*found, *broken), ("inputs", "references"))
    found += check_parts(fleet)
    if any(one.code == "unknown-reference" for one in found):
        return Report(tuple(dict.fromkeys(found)), ("inputs", "references", "parts"))
    found += shared_machines(fleet)
    found += _check_demand(fleet)
    found += _check_machines(fleet)
    found += _check_money(fleet)
    found += check_bill(fleet)
    if inputs.slo.limits.survive.spot == "none":  # else something is kept for that
        rented = {offer for had in fleet.totals.values() for offer, count in had.items() if count > 0}
        found += check_spot_warning(plan, inputs, rented)
    found += _check_claims(fleet)
    found += _check_failures(fleet)
    found += _check_promises(fleet)
    found += _check_valid(fleet)
    found += _check_changes(fleet)
    return Report(tuple(dict.fromkeys(found)), tuple(CHECKED.split()))


def _check_references(fleet: Fleet) -> Iterator[Violation]:
    plan, profile, horizon = fleet.plan, fleet.inputs.profile, fleet.inputs.slo.horizon
    if plan.bill is None:
        yield Violation("bill", "bill", "there is none")
    if plan.workers or plan.routing:
        yield Violation("fleet", "workers", "workers are in parts, and nowhere else")
    if len(plan.periods) != horizon.periods:
        yield Violation("periods", "periods", f"{len(plan.periods)} of them, wanted are {horizon.periods}")
    ids = Counter(period.id for period in plan.periods)
    for number, period in enumerate(plan.periods):
        at, start = f"periods.{period.id}", number * horizon.period_s
        if ids[period.id] > 1:
            yield Violation("duplicate-id", at, "two periods have this id")
        if period.start_s != start or period.end_s != start + horizon.period_s:
            text = f"{period.start_s:g} to {period.end_s} s, not {start:g} to {start + horizon.period_s:g}"
            yield Violation("periods", at, text)
        for name in (*(period.parts or ()), *(one for names in (period.failures or {}).values() for one in names)):
            if name not in fleet.parts:
                yield Violation("unknown-reference", at, f"there is no part {name}")
        for names in (period.parts or (), *(period.failures or {}).values()):
            yield from named_twice(fleet, names, at)
    for name, part in fleet.parts.items():
        if part.claims:
            yield Violation("claim", f"parts.{name}.claims", "a part claims nothing: its fleet does")
        if part.question not in CHECKS:
            yield Violation("unknown-reference", f"parts.{name}", f"no part may be of the question {part.question}")
        for app in part.rate_qps.keys() - fleet.inputs.slo.apps.keys():
            yield Violation("unknown-reference", f"parts.{name}", f"there is no application {app}")
        for worker in part.workers:
            if worker.offer not in profile.offers:
                yield Violation("unknown-reference", f"parts.{name}", f"there is no offer {worker.offer}")
    for offer in fleet.ahead:
        if offer not in profile.offers or profile.offers[offer].commit is None:
            yield Violation("commitment", f"commitments.{offer}", "it is no offer that is sold ahead")
    for line in plan.bill.lines if plan.bill is not None else ():
        if line.offer not in profile.offers or line.period not in ids:
            yield Violation("unknown-reference", "bill.lines", f"{line.offer} in {line.period}")


def check_parts(fleet: Fleet) -> list[Violation]:
    """Each part by the whole generic check, and by that of its question, against the files for its rates."""
    found, bare = list[Violation](), replace(fleet.inputs, profile=without_commitments(fleet.inputs.profile))
    for name, part in fleet.parts.items():
        again = import_module(CHECKS[part.question]).check
        files = files_of_part(bare, part)
        if part.question == "pool":
            found += (Violation(one.code, f"parts.{name}", one.text) for one in _check_pool(fleet.inputs, part))
            files = one_variant(files, part)
        # Up to which rate it holds in its fleet is another question (`_check_valid`).
        own = Valid(rate_qps={app: (0.0, max(rate, 0.0)) for app, rate in carried_rates(part).items()})
        plan = of_part(fleet.plan, name).model_copy(update={"valid": own})
        report = verify_plan(plan, files, again)
        found += [Violation(one.code, f"parts.{name}.{one.at}", one.text) for one in report.violations]
    return found


def _check_pool(inputs: Inputs, part: Part) -> Iterator[Violation]:
    """A pool runs one variant, of those that its application may run, as good as it is asked to be."""
    for name in part.rate_qps:
        names = loaded_variants(part, name)
        if len(names) > 1:
            yield Violation("variant", "workers", f"a pool runs one variant, and {', '.join(names)} are loaded")
        wanted = inputs.slo.apps[name].quality
        for one in names:
            variant = inputs.profile.variants.get(one)
            if variant is None or not allows(inputs.slo.apps[name], inputs.profile, None, one, variant):
                yield Violation("variant", "workers", f"{name} may not run {one}")
            elif wanted is not None:
                value = variant.quality.value if variant.quality is not None else math.nan
                low, high = wanted.min, wanted.max
                if not ((low is None or value >= low - 1e-9) and (high is None or value <= high + 1e-9)):
                    yield Violation("quality", "workers", f"{one} has {value:g}, which {name} does not take")


def _check_demand(fleet: Fleet) -> Iterator[Violation]:
    """Each application is served in each period, once, at its rate at least."""
    for number, period in enumerate(fleet.plan.periods):
        yield from _check_served(fleet, f"periods.{period.id}", period.parts or (), number, 1.0)


def _check_served(fleet: Fleet, at: str, names: tuple[str, ...], number: int, keep: float) -> Iterator[Violation]:
    given: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for name in names:
        for app, rate in fleet.parts[name].rate_qps.items():
            given[app] += rate  # type: ignore[assignment]
            times[app] += 1
    for app, rates in fleet.rates.items():
        wanted = rates[number] * keep
        if given[app] < wanted * (1.0 - FEASIBILITY):
            yield Violation("demand", at, f"{app} gets {given[app]:g} qps, and asks for {wanted:g}")
        if times[app] > 1:
            yield Violation("demand", at, f"{times[app]} parts serve {app}")


def _check_machines(fleet: Fleet) -> Iterator[Violation]:
    """Machines in each period: those used are had, and those had are within every limit."""
    profile, limits = fleet.inputs.profile, fleet.inputs.slo.limits
    for period in fleet.plan.periods:
        at, had = f"periods.{period.id}", fleet.totals[period.id]
        used: Counter[str] = Counter()
        for worker, _ in fleet.machines(period.parts or ()):
            used[worker.offer or ""] += worker.count + worker.standby
        for offer in used.keys() | had.keys():
            if used[offer] > had[offer] + FEASIBILITY:
                yield Violation("machines", at, f"{used[offer]} of {offer} run, and {had[offer]:g} are paid for")
            stock = profile.offers[offer].stock
            if stock is not None and max(had[offer], used[offer]) > stock + FEASIBILITY:
                yield Violation("stock", at, f"{had[offer]:g} of {offer}, and {stock} are there")
        by_hardware: Counter[str] = Counter()
        for offer, count in had.items():
            by_hardware[profile.offers[offer].hardware] += count
        yield from check_instances(limits, by_hardware, at)
        yield from _check_quotas(fleet, at, had)
        yield from _check_purchases(fleet, at, had)


def _check_quotas(fleet: Fleet, at: str, had: Mapping[str, float]) -> Iterator[Violation]:
    profile = fleet.inputs.profile

    def taken(resource: str, zone: str | None) -> float:
        total = 0.0
        for name, count in had.items():
            offer = profile.offers[name]
            if zone is None or offer.zone == zone:
                provides = profile.hardware[offer.hardware].provides
                total += count * (1.0 if resource == "machines" else provides.get(resource, 0.0))
        return total

    for zone, held in profile.zones.items():
        for resource, quota in held.quota.items():
            if taken(resource, zone) > quota * (1 + FEASIBILITY) + FEASIBILITY:
                yield Violation("quota", at, f"{taken(resource, zone):g} {resource} in {zone}, and {quota:g} may be")
    for resource, total in fleet.inputs.slo.limits.provides.items():
        if taken(resource, None) > total * (1 + FEASIBILITY) + FEASIBILITY:
            yield Violation("resources", at, f"{taken(resource, None):g} {resource}, and {total:g} may be")


def _check_purchases(fleet: Fleet, at: str, had: Mapping[str, float]) -> Iterator[Violation]:
    offers = fleet.inputs.profile.offers
    spot = sum(count for name, count in had.items() if offers[name].interruptions_per_hour is not None)
    total = sum(had.values())
    counts = {"spot": spot, "on_demand": total - spot, "reserved": float(sum(fleet.ahead.values()))}
    for name, limit in fleet.inputs.slo.limits.purchases.items():
        count = counts.get(name, had.get(name, 0.0))
        if count < limit.min - FEASIBILITY or (limit.max is not None and count > limit.max + FEASIBILITY):
            yield Violation("offers", at, f"{count:g} of {name}, not {limit.min} to {limit.max}")
        if limit.of_all and total:
            low, high = limit.min_share, limit.max_share
            if not low - FEASIBILITY <= count / total <= high + FEASIBILITY:
                yield Violation(
                    "offers", at, f"{count / total:.3g} of all machines are {name}, not {low:g} to {high:g}"
                )


def _check_money(fleet: Fleet) -> Iterator[Violation]:
    """What the machines cost, from the files; that bill, promise and claim say so."""
    plan, limits = fleet.plan, fleet.inputs.slo.limits
    bill = plan.bill
    assert bill is not None
    total = 0.0
    rented = [_rented_machines(fleet, period) for period in plan.periods]
    upkeep = sum(count * fleet.price_ahead(offer) for offer, count in fleet.ahead.items())
    for number, period in enumerate(plan.periods):
        by_hour = sum(count * fleet.price(offer) for offer, count in rented[number].items())
        starting = _starting(fleet, rented[number - 1], rented[number]) if len(plan.periods) > 1 else 0.0
        if number == 0 and len(plan.periods) > 1 and fleet.inputs.state is not None:
            once = _starting(fleet, _running_machines(fleet), fleet.totals[period.id])
            starting += (once - starting) / fleet.inputs.slo.horizon.repeats
        said = sum(line.cost_per_hour for line in bill.lines if line.period == period.id)
        if not is_same(said, upkeep + by_hour + starting / fleet.hours):
            text = (
                f"the bill says {said:.9g} per hour, the machines cost {upkeep + by_hour + starting / fleet.hours:.9g}"
            )
            yield Violation("cost", f"periods.{period.id}", text)
        if limits.cost_per_hour is not None and upkeep + by_hour > limits.cost_per_hour / NANO * (1 + FEASIBILITY):
            text = f"{upkeep + by_hour:.9g} per hour is above the budget of {limits.cost_per_hour / NANO:g}"
            yield Violation("budget", f"periods.{period.id}", text)
        total += (upkeep + by_hour) * fleet.hours + starting
    hours = fleet.hours * len(plan.periods)
    mean, repeats = total / hours, fleet.inputs.slo.horizon.repeats
    stated = {
        "cost_per_hour": mean, "cost_per_day": 24 * mean, "cost_per_month": HOURS_A_MONTH * mean,
        "total": total * repeats, "hours": hours, "repeats": repeats,
    }  # fmt: skip
    for field, value in stated.items():
        if not is_same(getattr(bill, field), value):
            yield Violation("bill", f"bill.{field}", f"{getattr(bill, field):.9g}, and it is {value:.9g}")
    yield from _check_bill_sums(fleet)
    for number, promise in enumerate(plan.promises):
        if promise.quantity == "cost_per_hour" and not is_same(promise.value, mean):
            yield Violation(
                "promise", f"promises[{number}]", f"costs {promise.value:.9g} per hour, and it is {mean:.9g}"
            )
    for number, claim in enumerate(plan.claims):
        if claim.about == "cost_per_hour" and not is_same(claim.value, mean):
            yield Violation("claim", f"claims[{number}]", f"costs {claim.value:.9g} per hour, and it is {mean:.9g}")


def _check_claims(fleet: Fleet) -> Iterator[Violation]:
    """What is claimed besides the cost: the most rate of an application, or the most quality."""
    slo = fleet.inputs.slo
    most = [name for name, app in slo.apps.items() if app.wants_most]
    for number, claim in enumerate(fleet.plan.claims):
        at = f"claims[{number}]"
        if claim.about == "rate_qps":
            rate = fleet.rates[most[0]][0] if len(most) == 1 else math.nan
            if not is_same(claim.value, rate):
                yield Violation("claim", at, f"{claim.value:.9g} qps, and {rate:.9g} are promised")
        elif claim.about == "quality":
            quality = _quality(fleet)
            if not is_same(claim.value, quality):
                yield Violation("claim", at, f"a quality of {claim.value:.9g}, and it is {quality:.9g}")
        elif claim.about == "changes":
            moves = _moves(fleet)
            if claim.value != moves:
                yield Violation("claim", at, f"{claim.value:g} moves, and there are {moves}")
        elif claim.about != "cost_per_hour":
            yield Violation("claim", at, f"nothing is known of {claim.about}")
        for text in bound_faults(claim):
            yield Violation("claim", at, text)
    yield from status_faults(fleet.plan)


def _moves(fleet: Fleet) -> int:
    """Machines that each application gets of each offer beyond those that the state has for it."""
    runs: Counter[tuple[str, str]] = Counter()
    for _, (apps, offer), count in _running_of(fleet):
        runs[", ".join(apps), offer] += count
    names = fleet.plan.periods[0].parts or ()
    used = fleet.used(names, fleet.together(names))
    return sum(max(n - runs[app, offer], 0) for app, offers in used.items() for offer, n in offers.items())


def _quality(fleet: Fleet) -> float:
    """The mean over applications, by their rates, of the least quality of their answers (a pipeline's is its mean)."""
    total = weight = 0.0
    for name in fleet.plan.periods[0].parts or ():
        part = fleet.parts[name]
        for app, rate in part.rate_qps.items():
            if part.question == "pipeline":
                values = [one.value for one in part.promises if one.quantity == "quality" and one.app == app]
            elif part.question in ("pool", "variants"):
                loads = [load for worker in part.workers for load in worker.loads if load.app in (app, None)]
                known = [fleet.inputs.profile.variants[load.variant].quality for load in loads if load.variant]
                values = [one.value for one in known if one is not None] if all(known) else []
            else:
                values = []
            if values:
                total, weight = total + rate * min(values), weight + rate
    return total / weight if weight else 0.0


def _check_bill_sums(fleet: Fleet) -> Iterator[Violation]:
    """Sums of the bill per application and offer; its lines are of machines that run, and of those committed."""
    bill, periods = fleet.plan.bill, len(fleet.plan.periods)
    assert bill is not None
    apps: Counter[str] = Counter()
    offers: Counter[str] = Counter()
    ahead: dict[tuple[str, str], float] = {}
    for line in bill.lines:
        offers[line.offer] += line.cost_per_hour / periods  # type: ignore[assignment]
        if line.app is not None:
            apps[line.app] += line.cost_per_hour / periods  # type: ignore[assignment]
        key = (line.period, line.offer)
        ahead[key] = ahead.get(key, 0.0) + line.committed
    for kind, said, found in (("apps", bill.apps, apps), ("offers", bill.offers, offers)):
        for name in said.keys() | found.keys():
            if not is_same(said.get(name, 0.0), found[name]):
                text = f"{said.get(name, 0.0):.9g}, and its lines are {found[name]:.9g}"
                yield Violation("bill", f"bill.{kind}.{name}", text)
    for (period, offer), count in ahead.items():
        if not is_same(count, fleet.ahead.get(offer, 0)):
            text = f"{count:g} of {offer} are committed there, and {fleet.ahead.get(offer, 0)} are"
            yield Violation("commitment", f"periods.{period}", text)
    for one in fleet.plan.commitments or ():
        commit = fleet.inputs.profile.offers[one.offer].commit
        horizon = fleet.inputs.slo.horizon
        if commit is None:
            continue
        per_hour = fleet.price_ahead(one.offer) - commit.upfront / NANO * 3600.0 / commit.term_s
        alike = one.term_s == commit.term_s and one.upfront == commit.upfront
        if not alike or not is_same(one.price_per_hour / NANO, per_hour):
            yield Violation("commitment", f"commitments.{one.offer}", "not at the terms of the offer")
        if commit.term_s > horizon.period_s * horizon.periods * horizon.repeats * (1 + FEASIBILITY):
            yield Violation("commitment", f"commitments.{one.offer}", "its term is longer than the horizon")


def _rented_machines(fleet: Fleet, period: Period) -> dict[str, float]:
    had = fleet.totals[period.id]
    return {offer: max(count - fleet.ahead.get(offer, 0), 0.0) for offer, count in had.items()}


def _starting(fleet: Fleet, before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """What machines cost while they start, once."""
    return sum(fleet.start_cost(offer, before.get(offer, 0.0), count) for offer, count in after.items())


def _check_failures(fleet: Fleet) -> Iterator[Violation]:
    """After each failure each application gets what is to be kept, on machines that it had and that are left.

    Of unlike machines that are shared any may be lost: what is left then the planner's programs say (`lost_too_much`).
    """
    keep, situations = fleet.inputs.slo.limits.survive.serve, lost_in(fleet)
    profile = fleet.inputs.profile
    for number, period in enumerate(fleet.plan.periods):
        groups = fleet.together(period.parts or ())
        before = fleet.used(period.parts or (), groups)
        for name, lost in situations.items():
            at = f"periods.{period.id}.failures.{name}"
            parts = (period.failures or {}).get(name)
            if parts is None:
                yield Violation("survive", at, "nothing is planned for it")
                continue
            yield from _check_served(fleet, at, parts, number, keep)
            anew = fleet.contents(parts) - fleet.contents(period.parts or ())
            if anew:
                (offer, whose), many = next(iter(anew.items()))
                text = (
                    f"{many} of {offer} hold {', '.join(whose)}, which none did before: instances stay where they are"
                )
                yield Violation("survive", at, text)
            for app, counts in fleet.used(parts, groups).items():
                had = before.get(app, Counter())
                for offer, count in counts.items():
                    left = 0 if isinstance(lost, set) and offer in lost else had[offer]
                    if count > left:
                        yield Violation("survive", at, f"{app} runs on {count} of {offer}, and {left} of its are left")
                if isinstance(lost, tuple):
                    hardware, less = lost
                    mine = {one for one in profile.offers if profile.offers[one].hardware == hardware}
                    held = sum(had[one] for one in mine)
                    if sum(counts[one] for one in mine) > max(held - less, 0):
                        yield Violation("survive", at, f"{app} runs on more {hardware} than the {held - less} left")


def _model_of(fleet: Fleet, part: str) -> str:
    said = {promise.quantity: promise.model for promise in fleet.parts[part].promises}
    return said.get("rate_qps") or said.get("fluid_rate_qps") or "no-queueing"


def _check_promises_once(fleet: Fleet) -> Iterator[Violation]:
    """Rates of applications in periods, by the model of the part that runs then, and one cost: each once, no more."""
    models = {
        (app, period.id, situation): _model_of(fleet, name)
        for period in fleet.plan.periods
        for situation, names in ((None, period.parts or ()), *(period.failures or {}).items())
        for name in names
        for app in fleet.parts[name].rate_qps
    }
    seen: set[tuple[object, ...]] = set()
    for number, one in enumerate(fleet.plan.promises):
        at, key = f"promises[{number}]", (one.quantity, one.app, one.period, one.situation)
        if one.percentile is not None:
            continue
        relation, model = {
            "rate_qps": (">=", models.get((one.app or "", one.period or "", one.situation), "no-queueing")),
            "cost_per_hour": ("=", "no-queueing"),
        }.get(one.quantity, (None, None))
        if key in seen:
            yield Violation("promise-twice", at, f"{one.quantity} is promised twice")
        seen.add(key)
        if relation is None:
            yield Violation("promise-quantity", at, f"a fleet promises no {one.quantity}")
        elif (one.relation, one.model) != (relation, model):
            yield Violation("promise-model", at, f"{one.quantity} is promised with {relation}, by the model {model}")
        if one.quantity == "cost_per_hour" and (one.app or one.period or one.situation):
            yield Violation("promise-quantity", at, "the cost is that of all, over all periods")
    yield from _check_percentiles(fleet)


def _check_percentiles(fleet: Fleet) -> Iterator[Violation]:
    """Each percentile that a part promises is promised in the periods that it runs in, and no other."""
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
                yield Violation("promise-percentile", "promises", f"{what} {text}")


def _check_valid(fleet: Fleet) -> Iterator[Violation]:
    """The plan holds up to the highest rate of any period, and a part as far as it carries.

    In a period, a part holds as far as what runs after each failure carries what is kept.
    """
    tops = {app: max(rates) for app, rates in fleet.rates.items()}
    for app, most, high in _too_far(fleet.plan.valid, tops, tops):
        yield Violation("valid", f"valid.rate_qps.{app}", f"the plan holds up to {most:.9g} qps, and says {high}")
    keep = fleet.inputs.slo.limits.survive.serve
    runs = [(name, period) for period in fleet.plan.periods for name in period.parts or ()]
    for name, period in [*runs, *((name, None) for name in fleet.parts.keys() - {name for name, _ in runs})]:
        part, most_of = fleet.parts[name], carried_rates(fleet.parts[name])
        for left in (period.failures or {}).values() if period is not None and keep > 0 else ():
            after = {app: rate for one in left for app, rate in carried_rates(fleet.parts[one]).items()}
            most_of = {app: min(rate, after.get(app, 0.0) / keep) for app, rate in most_of.items()}
        for app, most, high in _too_far(part.valid, most_of, part.rate_qps):
            yield Violation("valid", f"parts.{name}.valid.rate_qps.{app}", f"up to {most:.9g} qps, and says {high}")


def _too_far(
    valid: Valid, most_of: Mapping[str, float], served: Mapping[str, float]
) -> Iterator[tuple[str, float, str]]:
    """Applications said to be served beyond what is carried; whoever runs a plan takes silence for any rate."""
    silent = {app: (0.0, None) for app, rate in served.items() if rate > 0.0}
    for app, (_, high) in {**silent, **valid.rate_qps}.items():
        most = most_of.get(app, 0.0)
        if high is None or high > most * (1.0 + FEASIBILITY):
            yield app, most, "any rate" if high is None else f"{high:.9g}"


def _check_promises(fleet: Fleet) -> Iterator[Violation]:
    """Each rate is promised, as it is asked for, in each period and situation."""
    yield from _check_promises_once(fleet)
    keep = fleet.inputs.slo.limits.survive.serve
    situations: dict[str | None, float] = {None: 1.0, **dict.fromkeys(lost_in(fleet), keep)}
    said = {(one.app, one.period, one.situation): one for one in fleet.plan.promises if one.quantity == "rate_qps"}
    number = {period.id: place for place, period in enumerate(fleet.plan.periods)}
    for (app, when, situation), promise in said.items():
        rates = fleet.rates.get(app or "")
        known = rates is not None and when in number and situation in (*situations, None)
        if not known and not (situation or "").endswith(" lost"):
            yield Violation("promise", "promises", f"of {app} in {when} when {situation}: there is no such thing")
        elif known and rates is not None:
            wanted = rates[number[when or ""]] * situations[situation]
            if not is_same(promise.value, wanted):
                yield Violation(
                    "promise", "promises", f"{promise.value:g} qps of {app} in {when}, and {wanted:g} is asked"
                )
    for app in fleet.rates:
        for period in fleet.plan.periods:
            for situation in situations:
                if (app, period.id, situation) not in said:
                    yield Violation("promise", "promises", f"no rate of {app} in {period.id} when {situation}")


def _check_changes(fleet: Fleet) -> Iterator[Violation]:
    """Actions lead from each period to the next, and no more machines change than may."""
    periods, most = fleet.plan.periods, fleet.inputs.slo.limits.changes
    if fleet.inputs.state is not None:
        yield from _check_first_changes(fleet)
        if most is not None and _moves(fleet) > most:
            yield Violation("changes", f"periods.{periods[0].id}", f"{_moves(fleet)} machines start, and {most} may")
    once = fleet.inputs.state is not None and fleet.inputs.slo.horizon.repeats == 1
    for number, period in enumerate(periods):
        if number == 0 and (once or len(periods) == 1):
            if period.actions:
                yield Violation("actions", f"periods.{period.id}.actions", "it follows what runs, and no other period")
            continue
        before, after = _counts(fleet, periods[number - 1]), _counts(fleet, period)
        for action in period.actions or ():
            count = action.count or 0
            before[action.worker or ""] += count if action.do == "start" else -count
            startup_s = _startup_s(fleet, period, action.worker or "") if action.do == "start" else 0.0
            if action.do not in ("start", "stop") or (action.ahead_s or 0.0) < startup_s:
                text = f"{action.do} {action.worker} {action.ahead_s or 0:g} s ahead, and it takes {startup_s:g} s"
                yield Violation("actions", f"periods.{period.id}.actions", text)
        wrong = [name for name in before.keys() | after.keys() if before[name] != after[name]]
        if wrong:
            yield Violation("actions", f"periods.{period.id}.actions", f"they do not lead to its {', '.join(wrong)}")
        if most is not None:
            moved = sum((_counts(fleet, period) - _counts(fleet, periods[number - 1])).values())
            if moved > most:
                yield Violation("changes", f"periods.{period.id}", f"{moved} machines start, and {most} may")


def _startup_s(fleet: Fleet, period: Period, worker: str) -> float:
    """How long machines of a worker of a period take to start."""
    workers = (one for name in period.parts or () for one in fleet.parts[name].workers if one.id == worker)
    return max((fleet.inputs.profile.hardware[one.hardware].startup_s for one in workers), default=0.0)


def _check_first_changes(fleet: Fleet) -> Iterator[Violation]:
    """The plan's actions lead from what runs to the first period: those who use machines together get theirs."""
    owner, wanted = dict[str, Owned](), Counter[Owned]()
    for worker, held in fleet.machines(fleet.plan.periods[0].parts or ()):
        owner[worker.id] = tuple(sorted(fleet.users(held))), worker.offer or ""
        wanted[owner[worker.id]] += worker.count + worker.standby
    had, ends = _running_of(fleet), Counter[Owned]()
    for _, key, count in had:
        ends[key] += count
    runs = {name: (key, count) for name, key, count in had}
    for action in fleet.plan.actions:
        name, count = action.worker or "", action.count or 0
        if action.do == "start" and name in owner:
            ends[owner[name]] += count
        elif action.do == "stop" and name in runs and count <= runs[name][1]:
            ends[runs[name][0]] -= count
        else:
            yield Violation("actions", f"actions.{action.id}", f"{action.do} {count} of {name}: it cannot")
    wrong = sorted(
        f"{', '.join(one[0])} on {one[1]}" for one in ends.keys() | wanted.keys() if ends[one] != wanted[one]
    )
    if wrong:
        yield Violation(
            "actions", "actions", f"they do not lead from what runs to the first period: {', '.join(wrong)}"
        )


def _running_of(fleet: Fleet) -> list[tuple[str, Owned, int]]:
    """Workers of the state: their ids, whose they are and of which offer, and how many machines."""
    found = []
    for worker in fleet.inputs.state.workers if fleet.inputs.state is not None else ():
        apps = {load.app for load in worker.loads if load.app is not None} or set(fleet.inputs.slo.apps)
        found.append((worker.id, (tuple(sorted(apps)), worker.offer or ""), worker.count + worker.standby))
    return found


def _running_machines(fleet: Fleet) -> Counter[str]:
    """Machines of each offer that run already."""
    found: Counter[str] = Counter()
    for _, (_, offer), count in _running_of(fleet):
        found[offer] += count
    return found


def _counts(fleet: Fleet, period: Period) -> Counter[str]:
    return Counter({worker.id: worker.count for name in period.parts or () for worker in fleet.parts[name].workers})
