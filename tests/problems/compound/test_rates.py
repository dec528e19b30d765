"""Queries at a rate: operators are stations with replicas, sized by a formula and played until the promise holds."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from cases.compound import form_of

import hetplan as hp
from hetplan.errors import InputError
from hetplan.problems.compound import pipeline_query
from hetplan.problems.compound.stations import PlacedStations, QueuedBox, Stations, cheapest_sizes
from tests.build import shipped

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "compound"
PROFILE, MEASURED = EXAMPLE / "profile.json", EXAMPLE / "measured.json"
FORMULA = {"sizing": "formula"}


def rated(rate: float, percentile: float = 95, max_ms: float = 400, **more) -> dict:
    slo = json.loads((EXAMPLE / "rate-slo.json").read_text())
    latency = {f"p{percentile:g}_ms": max_ms}
    app = {**slo["apps"]["gate"], "latency": latency, "rate_qps": rate, **more}
    return {**slo, "apps": {"gate": app}}


def cost(plan: hp.Plan) -> float:
    return next(one.value for one in plan.promises if one.quantity == "cost_per_hour")


def counts(plan: hp.Plan) -> dict[str, int]:
    seats = [(load, worker) for worker in plan.workers for load in worker.loads]
    nodes = {str(load.node) for load, _ in seats}
    return {n: sum(load.instances * worker.count for load, worker in seats if load.node == n) for n in nodes}


def solve(slo: dict, **how) -> hp.Outcome:
    return hp.solve(PROFILE, slo, MEASURED, **how)


def a_form(random: np.random.Generator, *, batches: bool) -> QueuedBox:
    """Two operators, on two tiers, at two shares, of which a few samples were measured; the first serves batches."""
    profile = shipped(PROFILE)
    profile["tiers"], profile["hardware"] = ["edge", "cloud"], {k: profile["hardware"][k] for k in ("v100", "a100")}
    profile["offers"].pop("phone")
    profile["links"] = profile["links"][1:]
    took = {n: (random.uniform(0.01, 0.06) * random.lognormal(0, 0.4, 30)).tolist() for n in ("detect", "track")}
    profile["pipelines"]["track"] = {
        "nodes": {"detect": {"device": "gpu"}, "track": {"device": "gpu"}},
        "edges": [{"from": "detect", "to": "track"}],
        "knobs": {}, "metric": "found", "share_grid": [1, 0.5], "evaluator": "track-eval",
    }  # fmt: skip
    if batches:
        profile["tables"] = {"grown": {"quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [10, 16]}}
        profile["pipelines"]["track"]["nodes"]["detect"]["batches"] = "grown"
    slo = rated(float(random.uniform(5, 45)), 95, float(random.uniform(250, 500)))
    slo["limits"] = {"instances": {"v100": [0, 40], "a100": [0, 40]}}
    runs = {"seconds": took, "bytes": {n: [2e4] * 30 for n in took}, "input_bytes": [5e5] * 30}
    entry = {
        "knobs": {}, "verdict": "pass", "passes": True, "samples": 30, "mean": 0.9, "se": 0.01, "input_bytes": 5e5,
        "seconds": {n: float(np.mean(s)) for n, s in took.items()}, "bytes": dict.fromkeys(took, 2e4), "runs": runs,
    }  # fmt: skip
    return form_of(profile, slo, {"format": "hetplan/measured/1.0", "apps": {"gate": [entry]}})


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_sizes_are_the_cheapest_that_brute_force_finds(seed: int, batches: bool):
    form = a_form(np.random.default_rng(seed), batches=batches)
    (found,) = form.journal.values()
    best = cheapest_sizes(form, [found], 1)
    stations, least = Stations(form, found), np.inf
    for placement in range(len(form.placements)):
        for share in product(*[form.placed.shares] * 2):
            placed = PlacedStations(stations, placement, np.array(share))
            tried = np.array([placed.fewest + more for more in product(range(5), range(5))])
            in_time = placed.judged_s(tried) <= form.limit_s
            dollars = tried @ (form.price[placement] * share)
            least = min(least, dollars[in_time].min(initial=np.inf))
    assert (best[0].cost if best else np.inf) == pytest.approx(least, rel=1e-9)
    assert not best or best[0].batches[0] == (4 if batches else 1)


@pytest.mark.slow
def test_a_rate_costs_more_as_it_grows():
    plans = {rate: solve(rated(rate), options=FORMULA).require() for rate in (0.5, 100)}
    assert cost(plans[0.5]) < cost(plans[100])
    assert counts(plans[100])["track"] > counts(plans[0.5])["track"]


@pytest.mark.slow
def test_a_plan_is_played_until_it_is_kept_by_seeds_that_chose_nothing():
    slo = rated(10, 90)
    plan = solve(slo).require()
    report = hp.simulate(plan, PROFILE, slo, MEASURED, seeds=1, seed=991, duration_s=200)
    assert report.as_dict()["apps"]["gate"]["figures"]["violations"]["value"] <= 0.1
    shown = [one for one in plan.promises if one.quantity == "response_ms"]
    assert [one.model for one in shown] == ["simulation/1"]
    assert shown[0].interval is not None
    assert shown[0].interval[1] <= 400


@pytest.mark.longest
def test_nearly_all_promises_are_kept_by_fresh_seeds():
    random, kept = np.random.default_rng(5), []
    for trial in range(12):
        rate, percentile = float(random.choice([3, 10, 40])), float(random.choice([90, 95, 99]))
        slo = rated(rate, percentile, float(random.uniform(280, 600)))
        plan = solve(slo).require()
        length = 20 / (1 - percentile / 100) / rate * 20
        report = hp.simulate(plan, PROFILE, slo, MEASURED, seeds=1, seed=7000 + trial, duration_s=length)
        kept.append(report.as_dict()["apps"]["gate"]["figures"]["violations"]["value"] <= 1 - percentile / 100)
    assert sum(kept) >= 11, kept


@pytest.mark.slow
def test_the_verifier_counts_replicas_and_waits_again():
    slo = rated(100)
    plan = solve(slo, options=FORMULA).require()
    assert "W-queueing" in {one.code for one in plan.warnings}
    assert hp.verify(plan, PROFILE, slo, MEASURED).ok
    said = [one.model_copy(update={"value": 0.93 * one.value}) if one.quantity == "response_ms" else one
            for one in plan.promises]  # fmt: skip
    forged = plan.model_copy(update={"promises": tuple(said)})
    found = hp.verify(forged, PROFILE, slo, MEASURED).violations
    assert any("by the waits of its operators" in one.text for one in found), found
    dearer = rated(400)
    found = hp.verify(plan, PROFILE, dearer, MEASURED).violations
    assert any(one.code == "overrun" for one in found), found


def test_nothing_asked_for_is_one_of_each_and_nothing_is_played():
    plan = solve(rated(0)).require()
    assert set(counts(plan).values()) == {1}
    assert hp.verify(plan, PROFILE, rated(0), MEASURED).ok


@pytest.mark.slow
def test_what_cannot_be_in_time_is_said():
    assert solve(rated(20, 95, 20)).exit_code == 3
    limited = {**rated(100), "limits": {"instances": {"v100": [0, 0], "a100": [0, 1]}}}
    assert solve(limited, options=FORMULA).exit_code == 3


@pytest.mark.slow
def test_what_fewer_machines_of_a_tier_serve_more_of_them_serve_for_less():
    def limited(most: int) -> hp.Outcome:
        return solve({**rated(20), "limits": {"instances": {"a100": [0, most]}}}, options=FORMULA)

    assert cost(limited(0).require()) > cost(limited(1).require())


@pytest.mark.longest
def test_an_explanation_is_what_planning_anew_says():
    slo = rated(20)
    plan = solve(slo, options=FORMULA).require()
    said = hp.explain(plan, PROFILE, slo, MEASURED)
    (fewer,) = [one for one in said.others if one.without_one_of == "a100"]
    limited = {**slo, "limits": {"instances": {"a100": [0, 1]}}}
    assert fewer.worse_by == pytest.approx(cost(solve(limited, options=FORMULA).require()) - cost(plan))
    program, prices = said.notes
    assert program.startswith("without a formula 2 a100 would do"), "nothing waits there"
    assert "without a formula" in prices
    assert [(one.offer, one.why) for one in said.absent] == [("phone", "")]


@pytest.mark.slow
def test_machines_without_a_price_are_stations_too():
    limited = {**rated(200), "limits": {"instances": {"phone": [0, 1], "v100": [0, 1], "a100": [0, 1]}}}
    outcome = solve(limited, options=FORMULA)
    assert outcome.exit_code == 3
    assert "too little of tier device" in " ".join(outcome.why)


@pytest.mark.longest
def test_a_rate_beyond_all_replicas_is_not_blamed_on_the_latency():
    (why,) = solve(rated(1e9), options=FORMULA).why
    assert "the rate binds" in why
    assert "rate_qps" in why
    assert "latency" not in why


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"rate_qps": "max"}, "rate_qps"),
        ({"rate_qps": 5, "streams": 2}, "rate_qps"),
        ({"lifetime_s": 60}, "lifetime_s"),
    ],
)
def test_what_a_rate_does_not_go_with_is_refused(change: dict, at: str):
    with pytest.raises(InputError, match=at.replace(".", r"\.")):
        solve(rated(5, **change))


def test_where_all_is_measured_no_configuration_is_sized_twice(monkeypatch):
    monkeypatch.setattr(QueuedBox, "costs", lambda *_, **__: pytest.fail("its sizes are found among those of all"))
    assert solve(rated(5), options={"sizing": "formula"}).exit_code == 0


@pytest.mark.slow
def test_a_first_plan_is_of_the_cheapest_size_alone(monkeypatch):
    """As cheap as the planned one of a single application, with fewer queues worked out."""
    worked = []
    responses = PlacedStations.responses_s
    monkeypatch.setattr(PlacedStations, "responses_s", lambda *how: (worked.append(1), responses(*how))[1])
    found = {}
    for sizes_ in (1, 8):
        worked.clear()
        monkeypatch.setattr(pipeline_query, "MOST_SIZES", sizes_)
        outcome = solve(rated(21), options=FORMULA)
        assert (outcome.exit_code, outcome.violations) == (0, ())
        found[sizes_] = cost(outcome.plan), len(worked)
    assert found[1][0] == pytest.approx(found[8][0])
    assert found[1][1] < 0.8 * found[8][1]


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.95, 0.99, 1.0])
def test_a_percentile_is_the_inverse_of_the_distribution(share: float):
    stations = Stations(form := a_form(np.random.default_rng(3), batches=False), next(iter(form.journal.values())))
    for count in (1, 7, 100, 800):
        each = np.random.default_rng(count).lognormal(size=(count, 3))
        wanted = np.quantile(each, share, axis=0, method="inverted_cdf")
        assert stations._quantile(each, share).tolist() == wanted.tolist()
