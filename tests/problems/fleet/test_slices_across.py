"""Steps of pipelines, variants and pools share machines: as few as hold what each needs alone, checked and played."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise, product
from math import ceil, inf
from typing import Any

import pytest
from build import Files, app, files, machine, model, pipeline, shuffled
from face import Answer, Json, content, forged, solve, verify

import hetplan as hp
from hetplan.profiles.load import load_inputs
from hetplan.simulator.day import HowPlayed, play_day

PROBLEMS = ("pool", "variants", "pipeline")
LIMITS = {"pool": {99: 100}, "variants": {99: 200}, "pipeline": {99: 300}}
PRICES = {"card": 1.0, "large": 1.3}


def wish(
    rates: Mapping[str, float | Sequence[float]],
    part: float | Mapping[str, float],
    *,
    machines: Sequence[str] = ("card",),
    steps: int = 1,
    **more: Any,
) -> Files:
    """Applications named after their problem, each with models of its own; an instance takes `part` of a machine."""
    models, apps, pipelines = dict[str, Json](), dict[str, Json](), dict[str, Json]()
    for name, rate in rates.items():
        problem = next(one for one in PROBLEMS if name.startswith(one))
        takes = part[name] if isinstance(part, Mapping) else part
        runs = {one: {1: 5.0 / (1 + at), 8: 20.0 / (1 + at)} for at, one in enumerate(machines)}
        own = [f"{name}-{number}" for number in range(steps if problem == "pipeline" else 1)]
        models |= {one: model(runs, quality=0.8, needs={"gpu_share": takes}) for one in own}
        how: dict[str, Any] = {"rate": rate, "limits": LIMITS[problem]}
        if problem == "pipeline":
            pipelines[name] = pipeline([(one, other, 1.0) for one, other in pairwise(own)], own)
            apps[name] = app(name, by="pipeline", **how)
        else:
            apps[name] = app(own[0], **how, **({"sizes": {1: 0.5, 8: 0.5}} if problem == "pool" else {}))
    sold = {one: machine(PRICES[one], provides={"gpu_share": 1.0}, stock=30) for one in machines}
    made = files(machines=sold, models=models, apps=apps, pipelines=pipelines or None, **more)
    return replace(made, problem="fleet")


def alone(whole: Files, name: str, rate: float, part: float, *, card: int) -> float:
    """The fewest large machines, or cards where there are no others, beside so many cards, that one instance fills."""
    slo = {**deepcopy(whole.slo), "apps": {name: deepcopy(whole.slo["apps"][name])}}
    slo.pop("horizon", None)
    small = replace(whole, slo=slo).provides({"gpu_share": part}).rated(rate)
    if len(whole.machine_types) > 1:
        offers = {one: {**offer, "price_per_hour": "0.001"} for one, offer in small.profile["offers"].items()}
        offers["large"]["price_per_hour"] = "1"
        small = replace(small, profile={**small.profile, "offers": offers}).limited(counts={"card": (0, card)})
    found = solve(small, "fluid")
    return inf if found.cost is None else int(found.cost + 0.1)


def fewest(whole: Files, part: float, period: int | None = None) -> float:
    """The least cost of machines that hold what each application needs alone, over all ways to mix machine types."""
    ways = list[list[tuple[int, float]]]()
    for name, one in whole.slo["apps"].items():
        rate = one["rate_qps"] if period is None else one["rate_qps"]["series"][period]
        if len(whole.machine_types) == 1:
            ways.append([(int(alone(whole, name, rate, part, card=30)), 0)])
            continue
        found = [(card, alone(whole, name, rate, part, card=card)) for card in range(12)]
        ways.append([one for at, one in enumerate(found) if one[1] < inf and (at == 0 or one[1] < found[at - 1][1])])
    places = int(1 / part + 1e-9)
    return min(
        PRICES["card"] * ceil(sum(card for card, _ in some) / places)
        + PRICES["large"] * ceil(sum(large for _, large in some) / places)
        for some in product(*ways)
    )


def random_wish(seed: int, **more: Any) -> tuple[Files, float]:
    """Two or three applications of two problems or three, and the part of a machine that an instance takes."""
    rng = random.Random(seed)
    part = round(1 / rng.choice([2, 3, 4]) - rng.choice([0, 0.01]), 3)
    names = rng.sample(PROBLEMS, k=2)
    names += [f"{rng.choice(PROBLEMS)}2"] * rng.choice([0, 1])
    periods = more.get("periods")
    rates = {
        name: [round(rng.uniform(5, 500)) for _ in range(periods)] if periods else round(rng.uniform(5, 500))
        for name in names
    }
    return wish(rates, part, steps=rng.choice([1, 2]), **more), part


def is_near(plan: Answer, least: float, one: float) -> bool:
    """Whether it costs the least, or is not called the best and costs one machine more at most."""
    assert plan.cost is not None
    assert plan.bound is not None
    assert plan.bound <= least + 1e-6
    over = plan.cost - least
    return bool(abs(over) < 1e-6 or (plan.status != "optimal" and 0 < over < one + 1e-6))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(12))
def test_cards_are_as_few_as_hold_what_each_needs_alone(seed: int) -> None:
    whole, part = random_wish(seed)
    plan = solve(whole, "fluid")
    assert is_near(plan, fewest(whole, part), PRICES["card"])
    assert verify(plan.plan or {}, whole).is_ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_of_two_machine_types_those_are_taken_that_cost_least_when_shared(seed: int) -> None:
    whole, part = random_wish(100 + seed, machines=("card", "large"))
    plan = solve(whole, "fluid")
    assert is_near(plan, fewest(whole, part), PRICES["large"])
    assert verify(plan.plan or {}, whole).is_ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_in_each_hour_cards_are_as_few(seed: int) -> None:
    whole, part = random_wish(200 + seed, periods=3)
    plan = solve(whole, "fluid")
    least = sum(fewest(whole, part, period) for period in range(3)) / 3
    assert is_near(plan, least, PRICES["card"])
    assert verify(plan.plan or {}, whole).is_ok


RATES = {"pool": 30, "variants": 200, "pipeline": 250}


def test_the_order_of_keys_changes_nothing() -> None:
    whole = wish(RATES, 0.25, steps=2)
    assert content(solve(shuffled(whole, 1), "fluid")) == content(solve(whole, "fluid"))


def test_without_sharing_each_has_its_own_card() -> None:
    whole = wish({"pool": 20, "variants": 20, "pipeline": 20}, 0.25)
    assert solve(whole, "fluid").cost == pytest.approx(1.0)
    assert solve(whole, "fluid", options={"share_machines": False}).cost == pytest.approx(3.0)


@pytest.mark.slow
@pytest.mark.parametrize("rates", [RATES, {"pool": 180, "variants": 700, "pipeline": 900}])
def test_what_is_promised_by_simulation_holds_on_shared_machines(rates: Mapping[str, int]) -> None:
    """The second is on unlike cards: a part of the pipeline's queries goes to each at random, which is played anew."""
    whole = wish(rates, 0.5, steps=2)
    plan = solve(whole)
    assert plan.cost is not None
    assert plan.cost <= (solve(whole, options={"share_machines": False}).cost or inf)
    judged = verify(plan.plan or {}, whole)
    assert judged.is_ok
    assert judged.verdicts == {"met"}
    assert {one.app for one in plan.promises if one.is_simulated} >= {"pipeline", "variants"}


@pytest.mark.slow
@pytest.mark.parametrize("sizing", ["fluid", "formula"])
def test_queries_reach_every_step_wherever_they_were_before(sizing: str) -> None:
    """Two steps, the first on unlike cards: queries go on from each of them, and are in time."""
    whole = wish({"pool": 100, "variants": 100, "pipeline": [1300.0, 300.0]}, 1 / 3, steps=2, periods=2)
    plan = solve(whole, sizing)
    assert verify(plan.plan or {}, whole).is_ok
    stages = [{one.stage for one in group.replicas} for group in plan.machines if group.period == "p0"]
    assert sum("pipeline-0" in some for some in stages) > 1
    day = play_day(
        hp.Plan.model_validate(plan.plan), load_inputs(whole.profile, whole.slo), HowPlayed(seeds=1, queries=4e3)
    )
    assert day.ok
    assert min(found.value for found in day.in_time.values()) > 0.95


UNLIKE = {"pool": 0.6, "variants": 0.3}


def test_a_bound_counts_those_as_free_who_might_share_and_are_not_planned_so() -> None:
    """One of .6 and one of .3 fit on a card, and slices do not say so: 2 is no more than a cost that was found."""
    whole = wish({"pool": 20, "variants": 20}, UNLIKE)
    plan = solve(whole, "fluid")
    assert plan.cost == pytest.approx(2.0)
    assert plan.status != "optimal"
    assert plan.bound is not None
    assert plan.bound <= 1.0
    judged = verify(plan.plan or {}, whole)
    assert judged.is_ok
    assert solve(whole, "fluid", options={"share_machines": False}).status == "optimal"


def test_a_bound_counts_two_of_one_problem_as_free_whose_unlike_needs_fit_together() -> None:
    """Two of either fit nowhere; one of each fits on the large machine, which costs less than two small ones."""
    runs = {"small": {1: 5.0, 8: 20.0}, "large": {1: 5.0, 8: 20.0}}
    needs = {"a": {"gpu_share": 0.6, "cpu_cores": 2.4}, "b": {"gpu_share": 0.3, "cpu_cores": 4.8}}
    sold = {
        "small": machine(0.7, provides={"gpu_share": 0.6, "cpu_cores": 4.8}, stock=9),
        "large": machine(1.0, provides={"gpu_share": 1.0, "cpu_cores": 8.0}, stock=9),
    }
    models = {name: model(runs, quality=0.8, needs=one) for name, one in needs.items()}
    apps = {name: app(name, rate=20, limits={99: 200}) for name in needs}
    plan = solve(replace(files(machines=sold, models=models, apps=apps), problem="fleet"), "fluid")
    assert plan.bound is not None
    assert plan.bound <= 1.0
    assert plan.cost == pytest.approx(1.0) or plan.status != "optimal"


def test_a_bound_counts_those_as_free_whom_a_limit_on_moves_keeps_apart() -> None:
    """Nothing is planned to be shared beside limits on moves, and `verify` takes one card for both."""
    both = wish({"variants": 20, "variants2": 20}, 0.5)
    plan = solve(replace(both, slo={**both.slo, "limits": {"changes": 9}}), "fluid")
    assert solve(both, "fluid").cost == pytest.approx(1.0)
    assert plan.cost == pytest.approx(2.0)
    assert plan.bound is not None
    assert plan.bound <= 1.0
    assert plan.status != "optimal"


@pytest.mark.slow
def test_who_would_be_late_on_shared_machines_has_machines_of_its_own() -> None:
    """Steps take turns on alike machines alone: on unlike ones 5% were late, and the plan promised nothing of them."""
    tight = wish({"pool": 161, "pipeline": 1111}, 1 / 3, steps=2)
    tight = tight.latency({99: 60}, "pool").latency({99: 90}, "pipeline")
    plan = solve(tight)
    assert verify(plan.plan, tight).is_ok
    assert {one.app for one in plan.promises if one.percentile is not None} == {"pool", "pipeline"}
    day = play_day(
        hp.Plan.model_validate(plan.plan),
        load_inputs(tight.profile, tight.slo),
        HowPlayed(seeds=2, seed=777, queries=6e4),
    )
    assert day.ok, day.broken


def test_a_bound_is_as_it_was_where_nothing_fits_beside_anything() -> None:
    plan = solve(wish({"pool": 20, "variants": 20}, {"pool": 0.6, "variants": 0.5}), "fluid")
    assert (plan.status, plan.cost, plan.bound) == ("optimal", pytest.approx(2.0), pytest.approx(2.0))


@pytest.mark.slow
def test_beside_failures_each_has_machines_of_its_own_and_the_bound_says_no_more() -> None:
    whole = wish({"pool": 20, "variants": 20}, 0.25).limited(survive_machines=1)
    plan = solve(whole, "fluid")
    assert plan.cost == solve(whole, "fluid", options={"share_machines": False}).cost
    assert plan.bound is not None
    assert plan.bound <= 2.0
    assert verify(plan.plan or {}, whole).is_ok


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_two_of_one_problem_cost_no_more_than_where_these_alone_share(seed: int) -> None:
    """Without the pool they share by the plan of their own problem, whatever parts they take."""
    rng = random.Random(seed)
    rates = {"variants": rng.randint(20, 500), "variants2": rng.randint(20, 500), "pool": rng.randint(20, 200)}
    parts = {"variants": 0.25, "variants2": rng.choice([0.25, 0.4]), "pool": 0.25}
    both = wish({name: rates[name] for name in ("variants", "variants2")}, parts)
    other = wish({"pool": rates["pool"]}, parts)
    whole = solve(wish(rates, parts), "fluid").cost or inf
    assert whole <= (solve(both, "fluid").cost or 0.0) + (solve(other, "fluid").cost or 0.0) + 1e-9


def _more_on_it(plan: Json) -> None:
    """Another step's instance on a card that is full by what all parts have there."""
    part = next(one for one in plan["parts"].values() if one["question"] == "pipeline")
    load = part["workers"][0]["loads"][0]
    load["instances"] = load.get("instances", 1) + 2


def test_a_card_that_is_too_full_by_all_parts_together_is_refused() -> None:
    whole = wish({"pool": 20, "variants": 20, "pipeline": 20}, 0.33)
    plan = solve(whole, "fluid").plan or {}
    assert verify(plan, whole).is_ok
    judged = verify(forged(plan, _more_on_it), whole)
    assert any("gpu_share" in one for one in judged.findings)
