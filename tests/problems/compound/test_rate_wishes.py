"""Least latency and fronts of queries at a rate: held against brute force over settings, shares and replicas."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.compound import form_of

import hetplan as hp
from hetplan.cli.pareto_page import how_sure
from hetplan.measure.evaluator_profiler import measuring
from hetplan.planner.forms.black_box import Aim
from hetplan.planner.front import unbeaten
from hetplan.problems.compound import stations
from hetplan.problems.compound.stations import PlacedStations, QueuedBox, Stations, undominated_sizes
from hetplan_papers.datasets.circinus_generator import draw
from tests.build import shipped

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "compound"
FORMULA = {"sizing": "formula"}
LATENCY, COST, QUALITY = ["min latency"], ["min cost"], ["max quality"]
Files = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]


def files(
    seed: int = 0, objective: list[Any] = LATENCY, *, rate: float = 20, batches: bool = False, **app: Any
) -> Files:
    """Two operators, two tiers, two shares, and a knob: the larger pictures are seen better, and take longer."""
    random = np.random.default_rng(seed)
    profile = shipped(EXAMPLE / "profile.json")
    profile["tiers"], profile["hardware"] = ["edge", "cloud"], {k: profile["hardware"][k] for k in ("v100", "a100")}
    profile["offers"].pop("phone")
    profile["links"] = profile["links"][1:]
    profile["pipelines"]["track"] = {
        "nodes": {"detect": {"device": "gpu", "reads": ["size"]}, "track": {"device": "gpu"}},
        "edges": [{"from": "detect", "to": "track"}],
        "knobs": {"size": [320, 640]}, "metric": "found", "share_grid": [1, 0.5], "evaluator": "track-eval",
    }  # fmt: skip
    if batches:
        profile["tables"] = {"grown": {"quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [10, 16]}}
        profile["pipelines"]["track"]["nodes"]["detect"]["batches"] = "grown"
    track, entries = random.uniform(0.01, 0.06) * random.lognormal(0, 0.4, 30), []
    for size, longer, mean in ((320, 1.0, 0.75), (640, 1.7, 0.9)):
        took = {"detect": longer * random.uniform(0.01, 0.04) * random.lognormal(0, 0.4, 30), "track": track}
        entries.append({
            "knobs": {"size": size}, "verdict": "pass", "passes": True, "samples": 30, "mean": mean, "se": 0.01,
            "input_bytes": 5e5, "seconds": {n: float(s.mean()) for n, s in took.items()},
            "bytes": dict.fromkeys(took, 2e4),
            "runs": {"seconds": {n: s.tolist() for n, s in took.items()}, "bytes": {n: [2e4] * 30 for n in took},
                     "input_bytes": [5e5] * 30},
        })  # fmt: skip
    asked = {"pipeline": "track", "quality": {"min": 0.7}, "rate_qps": rate, **app}
    slo = {"format": "hetplan/slo/1.0", "objective": objective, "apps": {"gate": asked}}
    return profile, slo, {"format": "hetplan/measured/1.0", "apps": {"gate": entries}}


def solve(of: Files, **how: Any) -> hp.Outcome:
    return hp.solve(of[0], of[1], of[2], **how)


def verified(plan: hp.Plan, of: Files) -> str:
    return " | ".join(one.text for one in hp.verify(plan, of[0], of[1], of[2]).violations)


def promised(plan: hp.Plan, quantity: str = "response_ms") -> Any:
    return next(one for one in plan.promises if one.quantity == quantity)


def all_sizes(form: QueuedBox, most: int = 12) -> list[tuple[float, float, float]]:
    """(quality, cost, latency in s) of every setting, placement and shares, with up to so many more replicas."""
    found = []
    for one in form.journal.values():
        stations = Stations(form, one)
        for place in range(len(form.placements)):
            for share in product(form.placed.shares, repeat=2):
                placed = PlacedStations(stations, place, np.array(share))
                tried = placed.fewest + np.array(list(product(range(most), repeat=2)))
                late = placed.judged_s(tried)
                dollars = tried @ (form.price[place] * share)
                found += [
                    (one.mean, float(c), float(s)) for c, s in zip(dollars, late, strict=True) if s <= form.limit_s
                ]
    return found


@pytest.mark.parametrize(("seed", "batches", "max_ms"), [(0, False, 1e6), (1, False, 250), (2, True, 1e6)])
def test_sizes_that_no_other_beats_are_those_that_brute_force_finds(seed: int, batches: bool, max_ms: float) -> None:
    form = form_of(*files(seed, batches=batches, latency={"p95_ms": max_ms}))
    every = [(0, (round(cost, 9), late)) for _, cost, late in all_sizes(form)]
    best = [point for _, point in unbeaten(every)]
    founds = list(form.journal.values())
    made = undominated_sizes(form, founds)
    assert [(one.cost, one.judged_s) for one in made] == [pytest.approx(point) for point in best]
    (fastest,) = undominated_sizes(form, founds, fastest=True)
    assert (fastest.cost, fastest.judged_s) == pytest.approx(best[-1])
    cost, late = best[len(best) // 2]
    (paid,) = undominated_sizes(replace(form, aim=Aim(("latency",), cost)), founds, fastest=True)
    assert (paid.cost, paid.judged_s) == pytest.approx((cost, late))


def test_of_many_replicas_steps_end_where_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    form = form_of(*files(1, rate=400, latency={"p95_ms": 900}))
    founds = list(form.journal.values())
    exact = undominated_sizes(form, founds)
    monkeypatch.setattr(stations, "MOST_TIMES", 0)
    stepped = undominated_sizes(form, founds)
    assert stepped[-1].judged_s == pytest.approx(exact[-1].judged_s)
    assert stepped[-1].cost <= 1.05 * exact[-1].cost
    assert len(stepped) > 4
    for one in stepped:  # none is better than what trying all found
        assert any(
            other.cost <= one.cost * (1 + 1e-9) and other.judged_s <= one.judged_s * (1 + 1e-9) for other in exact
        )


def test_what_replicas_cost_at_least_is_no_more_than_any_size_costs() -> None:
    form = form_of(*files(3, rate=60, latency={"p95_ms": 900}))
    for c, found in form.journal.items():
        seconds = np.array([found.seconds])
        for one in undominated_sizes(form, [found]):
            if len(set(one.shares)) == 1:
                assert form.paid_at(seconds, one.shares[0])[0, one.placement] <= one.cost * (1 + 1e-9), (c, one)


@pytest.mark.parametrize("budget", [None, 12.0])
def test_the_least_latency_is_that_of_all_sizes_within_the_budget(budget: float | None) -> None:
    of = files(1, ["min latency", "min cost"], latency={"p95_ms": 900})
    of[1]["limits"] = {} if budget is None else {"cost_per_hour": str(budget)}
    outcome = solve(of, options=FORMULA)
    every = [one for one in all_sizes(form_of(*of)) if one[1] <= (budget or 1e9) + 1e-9]
    least = min(late for _, _, late in every)
    cheapest = min(cost for _, cost, late in every if late <= least * (1 + 1e-9))
    assert outcome.exit_code == 0, outcome.violations
    plan = outcome.require()
    # What is promised is worked out with more queries than what was compared.
    assert promised(plan).value == pytest.approx(1000 * least, rel=0.03)
    assert promised(plan, "cost_per_hour").value == pytest.approx(cheapest)
    claim = plan.claims[0]
    assert (claim.about, claim.vouched, claim.scope) == ("mean_latency_ms", "certified", "restriction")
    assert claim.note == "the bound is over the plans that were measured, by a formula for queues"
    assert claim.bound == pytest.approx(claim.value, rel=2e-3)


def test_what_is_promised_was_played_and_fresh_seeds_keep_it() -> None:
    of = files(1, ["min latency"], latency={"p95_ms": 900})
    of[1]["limits"] = {"cost_per_hour": "12"}
    plan = solve(of).require()
    one = promised(plan)
    assert (one.model, one.percentile) == ("simulation/1", 95)
    assert one.interval[1] <= one.value < 900
    report = hp.simulate(plan, of[0], of[1], of[2], seeds=2, seed=991, duration_s=300)
    assert report.apps["gate"].percentiles_ms[95.0].value <= one.value
    assert verified(plan, of) == ""


def test_where_plays_show_more_than_the_formula_that_is_promised_and_claimed() -> None:
    of = files(4, LATENCY, rate=30, latency={"p90_ms": 900})
    of[1]["limits"] = {"cost_per_hour": "12"}
    plan = solve(of).require()
    claim = plan.claims[0]
    assert claim.value == pytest.approx(promised(plan).value)
    assert claim.bound is not None
    assert claim.value > 1.1 * claim.bound
    assert verified(plan, of) == ""


@pytest.mark.slow
def test_nearly_all_promises_are_kept_by_fresh_seeds() -> None:
    random, kept = np.random.default_rng(11), []
    for trial in range(12):
        rate, percentile = float(random.choice([3, 10, 30, 100])), float(random.choice([50, 90, 95, 99]))
        limit = {f"p{percentile:g}_ms": 5000}
        of = files(int(random.integers(1000)), COST, rate=rate, latency=limit)
        least = promised(solve(of).require(), "cost_per_hour").value
        of[1].update(objective=LATENCY, limits={"cost_per_hour": f"{least * random.uniform(1.0, 2.5) + 0.01:.4f}"})
        plan = solve(of).require()
        length = 20 / (1 - percentile / 100) / rate * 40
        report = hp.simulate(plan, of[0], of[1], of[2], seeds=1, seed=7000 + trial, duration_s=max(length, 20))
        kept.append(report.apps["gate"].percentiles_ms[percentile].value <= 1.02 * promised(plan).value)
    assert sum(kept) >= 11, kept


@pytest.mark.parametrize("objective", [LATENCY, QUALITY])
def test_without_a_limit_the_median_is_promised(objective: list[Any]) -> None:
    of = files(1, objective)
    of[1]["limits"] = {"cost_per_hour": "15"}
    outcome = solve(of)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    plan = outcome.require()
    assert (promised(plan).percentile, promised(plan).model) == (50, "simulation/1")
    assert not [one for one in plan.promises if one.quantity == "violations"]


def test_wrong_answers_are_caught() -> None:
    of = files(1, LATENCY, latency={"p95_ms": 900})
    of[1]["limits"] = {"cost_per_hour": "12"}
    plan = solve(of).require()
    value = promised(plan).value

    def with_time(ms: float) -> hp.Plan:
        said = {"value": ms, "interval": (0.9 * ms, ms)}
        changed = [one.model_copy(update=said) if one.quantity == "response_ms" else one for one in plan.promises]
        claims = [one.model_copy(update={"value": ms, "gap": None}) for one in plan.claims]
        return plan.model_copy(update={"promises": tuple(changed), "claims": tuple(claims)})

    assert "by the waits of its operators" in verified(with_time(0.9 * value), of)
    assert "claims mean_latency_ms" in verified(plan.model_copy(update={"claims": with_time(0.9 * value).claims}), of)
    # The same promise with fewer replicas is one that the waits do not keep.
    slower = solve((of[0], {**of[1], "limits": {"cost_per_hour": "9"}}, of[2])).require()
    assert promised(slower).value > 1.05 * value
    forged = slower.model_copy(update={"promises": tuple(
        promised(plan) if one.quantity == "response_ms" else one for one in slower.promises)})  # fmt: skip
    assert "by the waits of its operators" in verified(forged, of)
    # Where cost is sought, only the limit itself may be said to be shown by simulation.
    cheap = (of[0], {**of[1], "objective": COST}, of[2])
    assert "is no limit that is wished for" in verified(plan, cheap)


@pytest.mark.parametrize("figures", [("cost", "latency"), ("quality", "cost", "latency")])
def test_a_front_is_every_size_that_no_other_beats(figures: tuple[str, ...]) -> None:
    of = files(1, [f"front {' '.join(figures)}"], latency={"p95_ms": 900})
    outcome = solve(of, options={**FORMULA, "front_points": 100})
    assert outcome.front is not None
    assert (outcome.front.whole, outcome.front.queued) == (True, True)
    rows = []
    for quality, cost, late in all_sizes(form_of(*of)):
        known = {"quality": -quality, "cost": round(cost, 9), "latency": late}
        rows.append((0, tuple(known[name] for name in figures)))
    best = {point[-2] if len(figures) == 2 else point[:2] for _, point in unbeaten(rows)}
    found = set()
    for shown, point in outcome.front.points:
        assert (point.exit_code, point.violations) == (0, ())
        cost = round(shown["cost_per_hour"], 9)
        assert promised(point.require(), "cost_per_hour").value == pytest.approx(cost)
        assert promised(point.require()).value == pytest.approx(shown["latency_ms"])
        found.add(cost if len(figures) == 2 else (-shown["quality"], cost))
    # Latencies are worked out anew: of two that are nearly one, the dearer may be no point any more.
    assert found <= best
    assert len(found) >= 0.8 * len(best)


def test_points_of_a_front_are_played_and_its_cheap_end_is_the_cheapest_plan() -> None:
    of = files(1, ["front quality cost"], latency={"p95_ms": 300})
    outcome = solve(of)
    assert outcome.front is not None
    assert [point.exit_code for _, point in outcome.front.points] == [0, 0]
    assert {promised(point.require()).model for _, point in outcome.front.points} == {"simulation/1"}
    cheapest = solve((of[0], {**of[1], "objective": COST}, of[2])).require()
    assert outcome.front.points[-1][0]["cost_per_hour"] == pytest.approx(promised(cheapest, "cost_per_hour").value)
    assert "each was simulated" in how_sure(outcome.front)


@pytest.mark.slow
def test_of_what_was_not_measured_a_front_says_how_likely_it_is_no_point() -> None:
    query = draw("VT", 3)
    slo = {**query.slo(), "objective": ["front cost latency"]}
    slo["apps"]["query"]["rate_qps"] = 3
    for name in ("streams", "device"):
        slo["apps"]["query"].pop(name, None)
    how = {"max_measurements": 10, "samples_min": 60, "front_points": 3, **FORMULA}
    outcome = hp.solve(query.profile(), slo, evaluate=measuring(query), options=how)
    assert outcome.exit_code == 0, outcome.violations
    assert outcome.front is not None
    assert not outcome.front.whole
    assert outcome.front.chance is not None
    assert 0.0 <= outcome.front.chance < 1.0
    assert "not proved" in how_sure(outcome.front)


def test_what_is_shared_is_sized_for_a_limit_so_that_replicas_stay_apart_for_latency() -> None:
    of = files(1, LATENCY)
    for node in of[0]["pipelines"]["track"]["nodes"].values():
        node["model"] = "yolo"
    for name in ("gate", "dock"):
        of[1]["apps"][name] = of[1]["apps"]["gate"]
        of[2]["apps"][name] = of[2]["apps"]["gate"]
    of[1]["limits"] = {"cost_per_hour": "30"}
    plan = solve(of, options=FORMULA).require()
    assert "shared-loads/1" not in plan.requires
    assert verified(plan, of) == ""


def test_machines_that_there_are_and_streams_beside_are_kept() -> None:
    of = files(1, LATENCY, latency={"p95_ms": 900})
    of[1]["limits"] = {"instances": {"v100": [0, 2], "a100": [0, 2]}}
    alone = promised(solve(of, options=FORMULA).require()).value
    of[1]["apps"]["dock"] = {**of[1]["apps"]["gate"], "rate_qps": None, "streams": 1}
    of[2]["apps"]["dock"] = of[2]["apps"]["gate"]
    outcome = solve(of)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    plan = outcome.require()
    assert len(plan.workers) <= 4
    assert next(one.value for one in plan.promises if one.app == "gate" and one.quantity == "response_ms") >= alone


@pytest.mark.parametrize(("seed", "rate", "objective"), [(2, 20, COST), (1, 20, QUALITY), (3, 20, LATENCY)])
def test_what_the_formula_alone_promises_of_the_last_in_a_thousand_is_so(
    seed: int, rate: float, objective: list[Any]
) -> None:
    of = files(seed, objective, rate=rate, latency={"p99.9_ms": 2000})
    of[1]["limits"] = {"cost_per_hour": "14"}
    outcome = solve(of, options=FORMULA)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    assert promised(outcome.require()).percentile == 99.9


@pytest.mark.slow
def test_of_hundreds_of_replicas_each_has_its_machine_named() -> None:
    of = files(1, COST, rate=3000, latency={"p95_ms": 900})
    outcome = solve(of, options=FORMULA)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    (rule,) = outcome.require().dispatch.values()
    assert len(rule.machines["cloud"]) > len(outcome.require().workers)


@pytest.mark.slow
def test_machines_of_a_point_are_numbered_without_gaps_and_one_of_whom_nothing_comes_is_planned() -> None:
    of = files(1, ["front cost latency"], latency={"p95_ms": 900})
    of[1]["limits"] = {"cost_per_hour": "40"}
    of[1]["apps"]["dock"] = {**of[1]["apps"]["gate"], "rate_qps": 1e-6}
    of[2]["apps"]["dock"] = of[2]["apps"]["gate"]
    outcome = solve(of)
    assert outcome.front is not None
    assert [point.violations for _, point in outcome.front.points] == [()] * len(outcome.front.points)
    assert any("too few queries arrive" in one.text for one in outcome.require().warnings)
