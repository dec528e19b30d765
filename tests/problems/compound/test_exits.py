"""Queries that end early, or are passed on to a larger model: measured sample by sample, the threshold a knob."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import hetplan as hp
from hetplan.errors import InputError, SolverFailed
from hetplan.measure.evaluator import Sample
from hetplan.measure.evaluator_profiler import measuring
from hetplan.measure.journal import Journal, measured_document
from hetplan.measure.live_samples import _judged
from hetplan.profiles.load import load_inputs

PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0", "reference": "box", "tiers": ["host", "pool"],
    "metrics": {"right": {"range": [0, 1], "kind": "bernoulli"}},
    "hardware": {"box": {"kind": "cpu", "tier": "host"},
                 "gpu": {"kind": "gpu", "tier": "pool", "relative_time": 0.5, "provides": {"gpu": 1}}},
    "offers": {"box-own": {"hardware": "box", "price_per_hour": "0"},
               "gpu-share": {"hardware": "gpu", "price_per_hour": "4", "per": "gpu"}},
    "links": [{"between": ["host", "pool"], "bandwidth_mbps": 1000, "latency_ms": 2}],
    "apis": {"acme": {"tier": "host", "price_per_call": "0.004", "failures": 0.05, "retries": 2, "retry_ms": 100}},
    "pipelines": {"ask": {
        "nodes": {
            "small": {"device": "gpu", "reads": ["threshold"], "outcomes": {"measured": ["sure", "unsure"]}},
            "large": {"device": "gpu", "reads": ["model"],
                      "calls": [{"api": "acme", "where": {"model": ["theirs"]}}]},
        },
        "edges": [{"from": "small", "to": "large", "on": "unsure"}],
        "knobs": {"threshold": [0.2, 0.5, 0.8], "model": ["ours", "theirs"]},
        "metric": "right", "strata": 1, "share_grid": [1, 0.5], "evaluator": "made-up",
    }},
}  # fmt: skip
LARGE_S = {"ours": 0.4, "theirs": 0.25}
OPTIONS = {"max_measurements": 6, "samples_max": 600, "samples_min": 500, "stop_rule": "fixed"}


def evaluated(knobs: dict[str, Any], stratum: int, index: int) -> Sample:
    """The small model is right as often as it is sure; the large one nearly always. Hard questions take both longer."""
    hard = ((index * 0.61803398875) % 1.0 + 1.0) % 1.0
    seconds = {"small": 0.02 * (1 + hard)}
    if hard > 1.0 - knobs["threshold"]:
        seconds["large"] = LARGE_S[knobs["model"]] * (1 + hard)
        right = index % 20 != 0
    else:
        right = hard < 0.5 or index % 3 != 0
    return Sample(float(right), seconds, {"small": 500.0, "large": 100.0}, 1000.0)


def slo(quality: float = 0.8, max_ms: float = 900, objective: str = "cost") -> dict[str, Any]:
    asked = {"pipeline": "ask", "quality": {"min": quality}, "streams": 1, "rate_qps": 0.5,
             "latency": {"p90_ms": max_ms}}  # fmt: skip
    return {"format": "hetplan/slo/1.0", "objective": f"min {objective}", "apps": {"q": asked}}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("exits") / "journal.jsonl"
    journal = Journal(path)
    measure = measuring(evaluated, journal=journal)
    # A wish that nothing keeps: every setting is measured.
    hp.solve(PROFILE, slo(quality=0.3, max_ms=1), evaluate=measure, options=OPTIONS)
    journal.close()
    return measured_document(path)


def promised(plan: hp.Plan, quantity: str) -> float:
    (value,) = [one.value for one in plan.promises if one.quantity == quantity]
    return value


def entries(measured: dict[str, Any]) -> list[dict[str, Any]]:
    found = measured["apps"]["q"]
    assert len(found) == 6
    return found


def by_hand(entry: dict[str, Any], limit_ms: float) -> float:
    """The least cost of a setting over all placements and shares, by the order statistic that bounds p90 of 600."""
    rank = next(r for r in range(1, 601) if binom.cdf(r - 1, 600, 0.9) >= 0.99)
    small, large = (np.array([np.nan if s is None else s for s in entry["runs"]["seconds"][n]]) for n in PLACES)
    called, best = entry["knobs"]["model"] == "theirs", np.inf
    shares = {"host": (None,), "pool": (1.0, 0.5), "acme": (None,)}
    for first, second in product(("host", "pool"), ("acme",) if called else ("host", "pool")):
        for one, two in product(shares[first], shares[second]):
            cross = 1000.0 * 8e-6 / 1000 + 0.002
            time = small * (0.5 / one if one else 1.0) + (cross if first == "pool" else 0.0)
            more = large * (0.5 / two if two else 1.0)
            hop = (500.0 * 8e-6 / 1000 + 0.002) * ((first == "pool") != (second == "pool"))
            total = np.where(np.isnan(large), time, time + more + hop)
            if 1000 * np.sort(total)[rank - 1] <= limit_ms * (1 + 1e-9):
                calls = 0.5 * 3600 * 0.004 * float((~np.isnan(large)).mean()) if called else 0.0
                best = min(best, 4.0 * ((one or 0.0) + (two or 0.0)) + calls)
    return best


PLACES = ("small", "large")


@pytest.mark.slow
def test_samples_that_end_early_say_so_and_share_and_bill_follow(measured: dict[str, Any]) -> None:
    wish = slo(quality=0.8)
    outcome = hp.solve(PROFILE, wish, measured)
    plan = outcome.plan
    assert plan is not None
    rule = plan.dispatch["q"]
    knobs = rule.knobs  # type: ignore[union-attr]
    entry = next(one for one in entries(measured) if one["knobs"] == knobs)
    loads = {load.node: load for worker in plan.workers for load in worker.loads}
    escalated = np.mean([one is not None for one in entry["runs"]["seconds"]["large"]])
    assert loads["small"].outcomes == pytest.approx({"sure": 1 - escalated, "unsure": escalated})
    assert 0.1 < escalated < 0.9
    report = hp.verify(plan, PROFILE, wish, measured)
    assert report.ok, report.violations
    if "large" in loads:
        (route,) = [one for one in plan.routing["q"] if one.node == "large"]
        assert route.after == {"small": "unsure"}
    played = hp.simulate(plan, PROFILE, wish, measured, seeds=1, duration_s=600).apps["q"]
    assert played.percentiles_ms[90.0].value <= promised(plan, "response_ms") * 1.01
    assert played.figures["accuracy"].value == pytest.approx(promised(plan, "quality"), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("quality", [0.7, 0.85])
@pytest.mark.parametrize("limit_ms", [420, 540, 900, 300, 480, 700])
def test_the_cheapest_way_on_is_that_of_brute_force(measured: dict[str, Any], quality: float, limit_ms: float) -> None:
    profile = {**PROFILE, "apis": {"acme": {**PROFILE["apis"]["acme"], "failures": 0.0}}}
    wish = slo(quality=quality, max_ms=limit_ms)
    fits = [one for one in entries(measured) if one["mean"] >= quality and abs(one["mean"] - quality) > one["se"]]
    best = min(by_hand(one, limit_ms) for one in fits)
    outcome = hp.solve(profile, wish, measured)
    assert (outcome.plan is None) == np.isinf(best)
    if outcome.plan is not None:
        assert promised(outcome.plan, "cost_per_hour") == pytest.approx(best)
        assert hp.verify(outcome.plan, profile, wish, measured).ok


@pytest.mark.slow
def test_forged_shares_routes_and_bills_are_found(measured: dict[str, Any]) -> None:
    wish = {**slo(quality=0.85, max_ms=620), "limits": {"instances": {"gpu": [0, 0]}}}
    plan = hp.solve(PROFILE, wish, measured).plan
    assert plan is not None
    assert plan.dispatch["q"].placement["large"] == "acme"  # type: ignore[union-attr]
    assert hp.verify(plan, PROFILE, wish, measured).ok
    document = json.loads(plan.model_dump_json(by_alias=True, exclude_none=True))
    loads = next(worker["loads"] for worker in document["workers"] if worker["loads"][0]["node"] == "small")
    loads[0]["outcomes"] = {"sure": 0.9, "unsure": 0.1}
    fewer = hp.Plan.model_validate(document)
    assert "outcomes" in {one.code for one in hp.verify(fewer, PROFILE, wish, measured).violations}
    cheap = [{**one, "value": one["value"] * 0.9} if one["quantity"] in ("cost_per_hour", "calls_per_query") else one
             for one in document["promises"]]  # fmt: skip
    found = hp.verify(hp.Plan.model_validate({**document, "promises": cheap}), PROFILE, wish, measured)
    assert {"calls-bill", "promise"} <= {one.code for one in found.violations}
    ours = hp.solve(PROFILE, slo(quality=0.85), measured).plan
    assert ours is not None
    routes = tuple(one.model_copy(update={"after": None}) for one in ours.routing["q"])
    always = ours.model_copy(update={"routing": {"q": routes}})
    assert not hp.verify(always, PROFILE, slo(quality=0.85), measured).ok


def test_an_answer_that_no_query_gives_is_asked_for_again_and_set_aside() -> None:
    def broken(knobs: dict[str, Any], stratum: int, index: int) -> Sample:
        return Sample(1.0, {"large": 0.1}, {}, 0.0)

    with pytest.raises(SolverFailed, match="no query runs large"):
        hp.solve(PROFILE, slo(), evaluate=measuring(broken), options=OPTIONS)


def test_shares_of_outcomes_sum_to_one() -> None:
    profile = json.loads(json.dumps(PROFILE))
    profile["pipelines"]["ask"]["nodes"]["small"]["outcomes"] = {"share": {"sure": 0.5, "unsure": 0.6}}
    with pytest.raises(InputError, match=r"stages\.small\.outcomes.*sum to 1\.1"):
        hp.solve(profile, slo())


def rounded(knobs: dict[str, Any], stratum: int, index: int) -> dict[str, Any]:
    """An agent that asks once, twice or three times, more often where it may."""
    times = 1 + index % 3 if knobs["threshold"] > 0.5 else 1
    seconds = {"small": 0.02, "large": 0.1 * times}
    return {"score": index % 10 != 0, "seconds": seconds, "input_bytes": 100.0, "rounds": {"large": times}}


@pytest.mark.slow
def test_rounds_are_paid_for_and_may_each_fail(tmp_path: Path) -> None:
    """Against draws of every round's failures, made here."""
    profile = json.loads(json.dumps(PROFILE))
    profile["pipelines"]["ask"]["nodes"]["small"].pop("outcomes")
    profile["pipelines"]["ask"]["edges"][0].pop("on")
    profile["pipelines"]["ask"]["knobs"] = {"threshold": [0.8], "model": ["theirs"]}
    profile["apis"]["acme"].update(failures=0.2, retries=3, retry_ms=400)
    wish = slo(quality=0.8, max_ms=1500)
    journal = Journal(tmp_path / "journal.jsonl")
    measure = measuring(rounded, journal=journal)
    plan = hp.solve(profile, wish, evaluate=measure, options={**OPTIONS, "samples_max": 240, "samples_min": 240}).plan
    journal.close()
    assert plan is not None
    assert promised(plan, "calls_per_query") == pytest.approx(0.004 * 2)
    lost = 0.2**4 * 2
    measured = measured_document(tmp_path / "journal.jsonl")
    (entry,) = measured["apps"]["q"]
    assert sum(entry["runs"]["rounds"]["large"]) == 480
    assert promised(plan, "quality") == pytest.approx((1 - lost) * entry["mean"])
    random = np.random.default_rng(1)
    times = random.integers(1, 4, 50_000)
    failed = np.minimum(random.geometric(0.8, (3, times.size)) - 1, 4)
    more = np.where(np.arange(3)[:, None] < times, failed, 0)
    total = np.where((more > 3).any(axis=0), np.inf, 20 + 100 * times + 400 * more.sum(axis=0))
    low, high = np.quantile(total, [0.9, 0.955])
    assert low <= promised(plan, "response_ms") <= high
    again = hp.solve(profile, wish, measured).plan
    assert again is not None
    assert promised(again, "response_ms") == pytest.approx(promised(plan, "response_ms"))
    assert hp.verify(again, profile, wish, measured).ok
    played = hp.simulate(again, profile, wish, measured, seeds=1, duration_s=600).apps["q"]
    assert played.percentiles_ms[90.0].value <= promised(again, "response_ms") * 1.01
    entry["runs"]["rounds"]["large"] = [3] * 240
    assert not hp.verify(again, profile, wish, measured).ok


@pytest.mark.parametrize("rounds", [{"large": 0}, {"large": 1.5}, {"nobody": 2}, {"large": "two"}])
def test_rounds_that_make_no_sense_are_no_answer(rounds: dict[str, Any]) -> None:
    def evaluate(knobs: dict[str, Any], stratum: int, index: int) -> dict[str, Any]:
        return {"score": 1.0, "seconds": {"small": 0.02, "large": 0.1}, "rounds": rounds}

    with pytest.raises(SolverFailed, match="rounds"):
        hp.solve(PROFILE, slo(), evaluate=measuring(evaluate), options=OPTIONS)


@pytest.mark.slow
def test_what_was_seen_in_service_keeps_the_ways_that_were_measured(measured: dict[str, Any]) -> None:
    """After a drift the running plan is judged by its scores in service; how often it calls is as it was measured."""
    wish, later = ({**slo(0.85, most), "limits": {"instances": {"gpu": [0, 0]}}} for most in (620, 900))
    plan = hp.solve(PROFILE, wish, measured).plan
    assert plan is not None
    knobs = plan.dispatch["q"].knobs  # type: ignore[union-attr]
    entry = next(one for one in entries(measured) if one["knobs"] == knobs)
    running = SimpleNamespace(metric=load_inputs(PROFILE, wish).profile.metrics["right"], target=0.85)
    for count in (400, 900):
        judged = {"knobs": knobs, **_judged(entry, np.array([1.0, 1.0, 1.0, 0.9] * (count // 4)), running)}
        again = hp.solve(PROFILE, later, {"apps": {"q": [judged]}}).plan
        assert again is not None
        assert promised(again, "cost_per_hour") == pytest.approx(promised(plan, "cost_per_hour"))
        assert hp.verify(again, PROFILE, later, {"apps": {"q": [judged]}}).ok


def at_a_rate(rate: float) -> dict[str, Any]:
    wish = slo()
    wish["apps"]["q"].pop("streams", None)
    wish["apps"]["q"]["rate_qps"] = rate
    return wish


@pytest.mark.slow
def test_few_queries_are_passed_on_by_calls_and_many_to_replicas(measured: dict[str, Any]) -> None:
    found = {}
    for rate in (0.5, 10):
        plan = hp.solve(PROFILE, at_a_rate(rate), measured, options={"sizing": "formula"}).require()
        assert hp.verify(plan, PROFILE, at_a_rate(rate), measured).ok
        found[rate] = plan.dispatch["q"]
    assert found[0.5].placement["large"] == "acme"
    assert found[10].placement["large"] == "pool"


@pytest.mark.slow
@pytest.mark.filterwarnings("error")
def test_an_operator_that_no_query_reaches_needs_no_replica_for_the_rate(measured: dict[str, Any]) -> None:
    document = json.loads(json.dumps(measured))
    for entry in entries(document):
        count = entry["samples"]
        entry["runs"]["seconds"]["large"], entry["runs"]["bytes"]["large"] = [None] * count, [0.0] * count
        entry |= {"mean": 0.9, "passes": True, "verdict": "pass", "seconds": {**entry["seconds"], "large": 0.0}}
    plan = hp.solve(PROFILE, at_a_rate(10), document, options={"sizing": "formula"}).require()
    large = [load.instances * worker.count for worker in plan.workers for load in worker.loads if load.node == "large"]
    assert sum(large) <= 1
    assert hp.verify(plan, PROFILE, at_a_rate(10), document).ok


@pytest.mark.slow
def test_at_a_rate_all_answers_of_an_operator_wait_for_the_same_replicas(measured: dict[str, Any]) -> None:
    plan = hp.solve(PROFILE, at_a_rate(3), measured, options={"sizing": "formula"}).require()
    load, count = next((one, w.count) for w in plan.workers for one in w.loads if one.node == "small")
    share = load.share.gpu if load.share is not None and load.share.gpu else 1.0
    busiest = load.instances * count * share / (0.5 * 0.03)
    report = hp.simulate(plan, PROFILE, at_a_rate(1.2 * busiest), measured, seeds=1, seed=3, duration_s=100)
    assert report.as_dict()["apps"]["q"]["figures"]["violations"]["value"] > 0.5


GROWN = {"quantity": "latency_ms", "axes": {"batch": [1, 2, 8]}, "mean": [10, 13, 31]}


@pytest.mark.slow
def test_operators_with_outcomes_serve_batches_and_are_shared(measured: dict[str, Any]) -> None:
    """Two callers of one cascade: cheaper in batches, cheaper together, both in time and as good as measured."""
    wish = slo()
    asked = wish["apps"].pop("q")
    wish["apps"] = {name: {**asked, "streams": None, "rate_qps": rate} for name, rate in (("one", 9), ("two", 14))}
    document = {**measured, "apps": dict.fromkeys(wish["apps"], measured["apps"]["q"])}
    bills: dict[tuple[bool, bool], float] = {}
    for batches, shared in product((False, True), repeat=2):
        profile = json.loads(json.dumps(PROFILE))
        profile["tables"] = {"grown": GROWN}
        for name, node in profile["pipelines"]["ask"]["nodes"].items():
            node |= ({"batches": "grown"} if batches else {}) | ({"model": name} if shared else {})
        plan = hp.solve(profile, wish, document, options={"sizing": "formula"}).require()
        assert hp.verify(plan, profile, wish, document).ok
        bills[batches, shared] = promised(plan, "cost_per_hour")
        loads = {load.node: load for worker in plan.workers for load in worker.loads}
        assert loads["small"].serve.max_batch == (8 if batches else 1)
        assert loads["small"].outcomes is not None
    assert bills[True, True] < bills[True, False] < bills[False, False]
    assert bills[True, True] < bills[False, True] <= bills[False, False]
    assert {r.node: set(r.to) for r in plan.routing["one"]} == {r.node: set(r.to) for r in plan.routing["two"]}
    apps = hp.simulate(plan, profile, wish, document, seeds=1, seed=99, duration_s=200).as_dict()["apps"]
    entry = next(one for one in entries(measured) if one["knobs"] == plan.dispatch["one"].knobs)  # type: ignore[union-attr]
    for one in apps.values():
        assert one["figures"]["violations"]["value"] <= 0.1
        assert one["figures"]["accuracy"]["value"] == pytest.approx(entry["mean"], abs=1e-9)
    other = [one.model_copy(update={"loads": tuple(
        load.model_copy(update={"outcomes": {"sure": 0.5, "unsure": 0.5}}) if load.node == "small" else load
        for load in one.loads
    )}) for one in plan.workers]  # fmt: skip
    found = hp.verify(plan.model_copy(update={"workers": tuple(other)}), profile, wish, document)
    assert "outcomes" in {one.code for one in found.violations}
    # What comes to other outcomes is another model.
    text = json.dumps(profile).replace('"sure", "unsure"', '"yes", "no"').replace('"on": "unsure"', '"on": "no"')
    unlike = json.loads(text)
    unlike["pipelines"] = {**profile["pipelines"], "tell": unlike["pipelines"]["ask"]}
    wish["apps"]["two"]["pipeline"] = "tell"
    found = hp.verify(plan, unlike, wish, document)
    assert "route-target" in {one.code for one in found.violations}


@pytest.mark.slow
def test_branches_that_meet_again_share_the_step_that_follows_both(measured: dict[str, Any]) -> None:
    profile, document = json.loads(json.dumps(PROFILE)), json.loads(json.dumps(measured))
    pipeline = profile["pipelines"]["ask"]
    pipeline["nodes"] |= {name: {"device": "gpu", "model": "write"} for name in ("early", "late")}
    pipeline["edges"] += [{"from": "small", "to": "early", "on": "sure"}, {"from": "large", "to": "late"}]
    for entry in entries(document):
        runs = entry["runs"]
        for name, ends in (("early", True), ("late", False)):
            ran = [(one is None) == ends for one in runs["seconds"]["large"]]
            runs["seconds"][name] = [0.1 if one else None for one in ran]
            runs["bytes"][name] = [10.0 if one else 0.0 for one in ran]
            entry["seconds"][name], entry["bytes"][name] = 0.1 * sum(ran) / len(ran), 10.0
    wish = at_a_rate(6)
    plan = hp.solve(profile, wish, document, options={"sizing": "formula"}).require()
    led = {r.node: set(r.to) for r in plan.routing["q"]}
    assert led["early"] == led["late"]
    assert hp.verify(plan, profile, wish, document).ok
    loads = [(one, worker.count) for worker in plan.workers for one in worker.loads if one.id in led["late"]]
    share = loads[0][0].share.gpu if loads[0][0].share is not None else 1.0
    busiest = sum(one.instances * count for one, count in loads) * (share or 1.0) / (0.5 * 0.1)
    for rate, late in ((6, False), (1.2 * busiest, True)):
        report = hp.simulate(plan, profile, at_a_rate(rate), document, seeds=1, seed=3, duration_s=100)
        assert (report.as_dict()["apps"]["q"]["figures"]["violations"]["value"] > 0.1) is late


def test_measurements_that_do_not_say_which_operators_ran_are_refused_by_name(measured: dict[str, Any]) -> None:
    wish = slo(quality=0.7)
    plan = hp.solve(PROFILE, wish, measured).require()
    without = json.loads(json.dumps(measured))
    for entry in without["apps"]["q"]:
        entry.pop("runs", None)
    for ask in (hp.verify, hp.simulate):
        with pytest.raises(InputError, match=r"\$\.apps\.q\[0\]\.runs"):
            ask(plan, PROFILE, wish, without)


@pytest.mark.slow
def test_only_queries_that_go_on_wait_for_their_turn_at_an_api(measured: dict[str, Any]) -> None:
    profile = json.loads(json.dumps(PROFILE))
    profile["pipelines"]["ask"]["nodes"]["large"]["calls"][0]["where"] = {"model": ["ours", "theirs"]}
    wish = slo(quality=0.85)
    wish["apps"]["q"].pop("streams", None)
    wish["apps"]["q"]["rate_qps"] = 10
    plan = hp.solve(profile, wish, measured, options={"sizing": "formula"}).require()
    (rule,) = plan.dispatch.values()
    assert rule.placement["large"] == "acme"  # type: ignore[union-attr]
    shown = {}
    for most in (1000, 4, 3):
        profile["apis"]["acme"]["calls_per_s"] = most
        report = hp.simulate(plan, profile, wish, measured, seeds=2, seed=5, duration_s=1500)
        times = report.apps["q"].percentiles_ms
        shown[most] = times[50].value, times[95].value
    # Most end before any call is made, and never wait; those that call wait longer where fewer calls may be made.
    assert len({median for median, _ in shown.values()}) == 1
    assert shown[1000][1] + 50 < shown[4][1] < shown[3][1] - 50
