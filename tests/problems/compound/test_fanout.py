"""Calls that go side by side: an edge with `fanout` counts in load, bill, limits, latency and packing."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import hetplan as hp
from hetplan.api.solve import choose, fluid_size
from hetplan.errors import InputError
from hetplan.executor.background import Background
from hetplan.executor.serving.query_tree import Steps
from hetplan.planner.forms.calls import Call, Runs, cases_of
from hetplan.planner.forms.fans import Fans
from hetplan.planner.request import read_request
from hetplan.problems.compound.options import CompoundOptions
from hetplan.problems.compound.pipeline_query import _read_fanouts, read_pipeline_queries, refuse_to_measure
from hetplan.problems.compound.request import read_tiers
from hetplan.problems.compound.search import read_measurements
from hetplan.problems.compound.stations import (
    PlacedStations,
    QueuedBox,
    Stations,
    calls_ahead,
    extra_time_of_bulk,
)
from hetplan.problems.faults import Faults
from hetplan.problems.waiting import wait_probability
from hetplan.profiles.load import load_inputs
from hetplan.profiles.pipelines import Pipeline
from hetplan.serving import fanout
from hetplan.verifier import fanout as fanout_again

QUALITY = {"small": 0.7, "large": 0.95}
COUNT = 1000


def profile(fanout: Any = 3.0, **api: Any) -> dict[str, Any]:
    acme = {"tier": "host", "price_per_call": "0.0001", "failures": 0.1, "retries": 2, "retry_ms": 200, **api}
    edge = {"from": "find", "to": "write"} | ({} if fanout is None else {"fanout": fanout})
    return {
        "format": "hetplan/profile/1.0", "reference": "box", "tiers": ["host", "pool"],
        "metrics": {"right": {"range": [0, 1], "kind": "bernoulli"}},
        "hardware": {"box": {"kind": "cpu", "tier": "host"},
                     "gpu": {"kind": "gpu", "tier": "pool", "relative_time": 0.5, "provides": {"gpu": 1}}},
        "offers": {"box-own": {"hardware": "box", "price_per_hour": "0"},
                   "gpu-share": {"hardware": "gpu", "price_per_hour": "4", "per": "gpu"}},
        "links": [{"between": ["host", "pool"], "bandwidth_mbps": 1000, "latency_ms": 1}],
        "apis": {"acme": acme},
        "pipelines": {"rag": {
            "nodes": {"find": {"device": "gpu"},
                      "write": {"device": "gpu", "reads": ["model"], "calls": [
                          {"api": "acme", "where": {"model": ["large"]}, "tokens": {"in": 900, "out": 150}}]}},
            "edges": [edge], "knobs": {"model": ["small", "large"]},
            "metric": "right", "strata": 1, "share_grid": [1, 0.5],
        }},
    }  # fmt: skip


def measured(spread: float = 0.3, models: tuple[str, ...] = ("small", "large")) -> dict[str, Any]:
    """What one call takes, lognormal around 0.02 and 0.2 or 0.3 s."""
    random, entries = np.random.default_rng(3), []
    for model in ("small", "large"):
        took = {"find": 0.02 * random.lognormal(0, spread, COUNT),
                "write": {"small": 0.2, "large": 0.3}[model] * random.lognormal(0, spread, COUNT)}  # fmt: skip
        sizes = {"find": 1000.0, "write": 100.0}
        entries.append({
            "knobs": {"model": model}, "mean": QUALITY[model], "se": 0.01, "samples": COUNT, "verdict": "pass",
            "passes": True, "seconds": {name: float(each.mean()) for name, each in took.items()},
            "bytes": sizes, "input_bytes": 100.0,
            "runs": {"seconds": {name: each.tolist() for name, each in took.items()},
                     "bytes": {name: [size] * COUNT for name, size in sizes.items()}, "input_bytes": [100.0] * COUNT},
        })  # fmt: skip
    return {"apps": {"ask": [one for one in entries if one["knobs"]["model"] in models]}}


def slo(quality: float = 0.6, percentile: float = 95, max_ms: float = 900, **demand: Any) -> dict[str, Any]:
    asked = {"pipeline": "rag", "quality": {"min": quality}, **demand,
             "latency": {f"p{percentile:g}_ms": max_ms}}  # fmt: skip
    return {"format": "hetplan/slo/1.0", "objective": ["min cost"], "apps": {"ask": asked}}


def promised(plan: hp.Plan, quantity: str) -> float:
    (value,) = [one.value for one in plan.promises if one.quantity == quantity]
    return value


def counts(plan: hp.Plan) -> Counter[str]:
    found: Counter[str] = Counter()
    for worker in plan.workers:
        for load in worker.loads:
            found[str(load.node)] += load.instances * worker.count
    return found


MEASURED = measured()
STREAMS = {"streams": 2, "rate_qps": 1.5}
PER_CALL = 0.0001


# How many calls


def a_tree(random: np.random.Generator) -> dict[str, Any]:
    """A pipeline of up to five operators that is a tree, with fanouts."""
    size = int(random.integers(2, 6))
    edges = [
        {"from": f"n{random.integers(0, k)}", "to": f"n{k}", "fanout": float(random.choice([1, 1, 2, 0.5, 1.4, 2.5]))}
        for k in range(1, size)
    ]
    return {"nodes": {f"n{k}": {"device": "gpu"} for k in range(size)}, "edges": edges}


def drawn(pipeline: Pipeline, random: np.random.Generator) -> dict[str, int]:
    """The calls of one query, call by call."""
    found: Counter[str] = Counter()
    todo = ["n0"]
    while todo:
        node = todo.pop()
        found[node] += 1
        for edge in pipeline.edges:
            if edge.from_ == node:
                mean = float(edge.fanout)  # type: ignore[arg-type]
                todo += [edge.to] * (math.floor(mean) + int(random.random() < mean - math.floor(mean)))
    return {name: found[name] for name in pipeline.nodes}


@pytest.mark.parametrize("seed", range(12))
def test_numbers_of_calls_are_those_that_are_drawn_and_are_read_alike_everywhere(seed: int) -> None:
    random = np.random.default_rng(seed)
    pipeline = Pipeline.model_validate(a_tree(random))
    order = list(pipeline.nodes)
    fans = _read_fanouts(pipeline, order)
    again = {tuple(calls[name] for name in order): 0.0 for calls, _ in fanout_again.numbers_of_calls(pipeline)}
    for calls, likely in fanout_again.numbers_of_calls(pipeline):
        again[tuple(calls[name] for name in order)] += likely
    assert sum(again.values()) == pytest.approx(1.0)
    if fans is not None:
        exact = dict(fans.counts(range(len(order))))
        assert exact.keys() == again.keys()
        assert all(exact[key] == pytest.approx(again[key]) for key in exact)
        assert fans.visits.tolist() == pytest.approx([fanout.visits(pipeline)[name] for name in order])
        assert fans.widths.tolist() == [fanout.most_calls(pipeline)[name] for name in order]
        called = dict.fromkeys({tuple(min(n, 1) for n in key) for key in exact}, 0.0)
        for key, likely in exact.items():
            called[tuple(min(n, 1) for n in key)] += likely
        assert dict(fans.counts(())) == pytest.approx(called)
    for name in order:
        mean = sum(calls[name] * likely for calls, likely in fanout_again.numbers_of_calls(pipeline))
        assert (
            mean
            == pytest.approx(fanout.visits(pipeline)[name])
            == pytest.approx(fanout_again.times_called(pipeline, name))
        )
        assert max(key[order.index(name)] for key in again) == fanout_again.several_at_most(pipeline, name)
    played = [drawn(pipeline, random) for _ in range(4000)]
    for name in order:
        each = np.array([one[name] for one in played])
        spread = 4.5 * each.std() / math.sqrt(len(each)) + 1e-9
        assert abs(each.mean() - fanout.visits(pipeline)[name]) <= spread
        share = sum(likely for key, likely in again.items() if key[order.index(name)] == 0)
        assert abs((each == 0).mean() - share) <= 4.5 * math.sqrt(share * (1 - share) / len(each)) + 1e-9


def test_of_several_calls_the_one_that_fails_most_often_decides() -> None:
    random, draws = np.random.default_rng(1), 200_000
    runs = Runs(np.array([[0.1, 0.2]]), np.zeros((1, 2)), np.zeros(1), rounds=np.array([[1.0, 2.0]]))
    call = Call(1, 0, (), failures=0.3, retries=2, retry_s=1.0)
    cases = cases_of(runs, [call], Fans((-1, 0), (1.0, 2.5)))
    assert cases.cases is not None
    law: Counter[float] = Counter()
    for row, weight in zip(cases.seconds, cases.cases.weight, strict=True):
        law[round(float(row[1]), 6)] += weight
    tries = random.geometric(0.7, (draws, 3, 2)) - 1
    of_call = np.where((tries > 2).any(axis=2), 99, tries.sum(axis=2))
    several = np.where(random.random(draws)[:, None] < 0.5, of_call, np.where(np.arange(3) < 2, of_call, 0))
    most = several.max(axis=1)
    for failed in range(5):
        share = float((most == failed).mean())
        assert law[round(0.2 + failed, 6)] == pytest.approx(share, abs=4.5 * math.sqrt(share / draws) + 1e-5)
    assert sum(law.values()) == pytest.approx(float((most < 99).mean()), abs=0.003)


@pytest.mark.slow
def test_one_call_is_as_no_fanout_to_the_byte() -> None:
    for demand in (STREAMS, {"rate_qps": 3.0}):
        plans = [hp.solve(profile(one), slo(**demand), MEASURED).require() for one in (None, 1.0)]
        texts = [
            json.dumps(plan.model_dump(mode="json", by_alias=True, exclude={"inputs", "digest"})) for plan in plans
        ]
        assert texts[0] == texts[1]


# Streams: as many operators as calls


def by_hand(fanout: float, max_ms: float) -> float:
    """The least cost of a stream over settings, placements and shares, where no call fails."""
    rank = next(r for r in range(1, COUNT + 1) if binom.cdf(r - 1, COUNT, 0.95) >= 0.99)
    best, width = np.inf, math.ceil(fanout)
    shares = {"host": (None,), "pool": (1.0, 0.5), "acme": (None,)}
    for entry in MEASURED["apps"]["ask"]:
        large = entry["knobs"]["model"] == "large"
        one, two = (np.array(entry["runs"]["seconds"][name]) for name in ("find", "write"))
        for first, second in product(
            ("host", "pool"), ("acme",) if large else ("pool",) if width > 1 else ("host", "pool")
        ):
            for a, b in product(shares[first], shares[second]):
                time = one * (0.5 / a if a else 1.0) + (100 * 8e-9 + 0.001) * (first == "pool")
                crosses = (first == "pool") != (second == "pool")
                time = time + two * (0.5 / b if b else 1.0) + (1000 * 8e-9 + 0.001) * crosses
                if 1000 * np.sort(time)[rank - 1] <= max_ms * (1 + 1e-9):
                    calls = 0.5 * 3600 * PER_CALL * fanout if large else 0.0
                    best = min(best, 4.0 * ((a or 0.0) + width * (b or 0.0)) + calls)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("fanout", [1.0, 2.0, 2.5, 5.0])
@pytest.mark.parametrize("max_ms", [180, 250, 420, 700])
def test_the_cheapest_plan_of_a_stream_is_that_of_brute_force(fanout: float, max_ms: float) -> None:
    document, wish = profile(fanout, failures=0.0), slo(max_ms=max_ms, streams=1, rate_qps=0.5)
    outcome, best = hp.solve(document, wish, MEASURED), by_hand(fanout, max_ms)
    assert (outcome.plan is None) == np.isinf(best)
    if outcome.plan is not None:
        assert promised(outcome.plan, "cost_per_hour") == pytest.approx(best)
        assert hp.verify(outcome.plan, document, wish, MEASURED).ok


def test_every_stream_has_an_operator_for_each_of_its_calls() -> None:
    wish = slo(max_ms=420, streams=7)
    document, known = profile(2.5), measured(models=("small",))
    document["pipelines"]["rag"]["knobs"]["model"] = ["small"]
    del document["pipelines"]["rag"]["nodes"]["write"]["calls"], document["apis"]
    plan = hp.solve(document, wish, known).require()
    assert counts(plan) == {"find": 7, "write": 21}
    assert hp.verify(plan, document, wish, known).ok
    single = hp.solve({**document, "pipelines": {"rag": {**document["pipelines"]["rag"], "edges": [
        {"from": "find", "to": "write"}]}}}, wish, known).require()  # fmt: skip
    # Side by side calls take no longer than one.
    played = [
        hp.simulate(one, files, wish, known, seeds=1, seed=5, duration_s=200).apps["ask"].percentiles_ms[95.0]
        for one, files in ((plan, document), (single, profile_of_one(document)))
    ]
    assert played[0].value <= promised(plan, "response_ms") * 1.01
    assert promised(plan, "response_ms") <= 420
    assert played[1].value == pytest.approx(played[0].value, rel=0.5)


def profile_of_one(document: dict[str, Any]) -> dict[str, Any]:
    pipeline = {**document["pipelines"]["rag"], "edges": [{"from": "find", "to": "write"}]}
    return {**document, "pipelines": {"rag": pipeline}}


def test_fewer_than_one_call_is_a_branch_that_not_all_take() -> None:
    document, wish = profile(0.4, failures=0.0), slo(quality=0.9, percentile=50, max_ms=200, **STREAMS)
    plan = hp.solve(document, wish, MEASURED).require()
    assert promised(plan, "calls_per_query") == pytest.approx(0.4 * PER_CALL)
    assert promised(plan, "response_ms") < 60  # the median query makes no call of 300 ms
    assert hp.verify(plan, document, wish, MEASURED).ok
    played = hp.simulate(plan, document, wish, MEASURED, seeds=2, seed=9, duration_s=900).apps["ask"]
    assert played.percentiles_ms[50.0].value <= promised(plan, "response_ms") * 1.01
    assert hp.solve(profile(0.6, failures=0.0), wish, MEASURED).plan is None


# Bills and limits


@pytest.mark.slow
def test_a_call_is_paid_and_counts_against_limits_as_often_as_it_is_made() -> None:
    bills = {}
    for times in (1.0, 2.0, 2.5):
        plan = hp.solve(profile(times), slo(quality=0.9, **STREAMS), MEASURED).require()
        bills[times] = promised(plan, "calls_per_query")
        assert promised(plan, "cost_per_query") == pytest.approx(bills[times])
    assert bills == pytest.approx({1.0: PER_CALL, 2.0: 2 * PER_CALL, 2.5: 2.5 * PER_CALL})
    tried = 2.5 * 1.5 * (1 + 0.1 + 0.01)
    fits = hp.solve(profile(2.5, calls_per_s=1.001 * tried), slo(quality=0.9, **STREAMS), MEASURED)
    assert fits.plan is not None
    refused = hp.solve(profile(2.5, calls_per_s=0.999 * tried), slo(quality=0.9, **STREAMS), MEASURED)
    assert refused.plan is None
    assert "profile.apis.acme.calls_per_s" in str(refused.why)
    tight = hp.verify(fits.plan, profile(2.5, calls_per_s=0.999 * tried), slo(quality=0.9, **STREAMS), MEASURED)
    assert "api-limit" in {found.code for found in tight.violations}


@pytest.mark.slow
def test_more_calls_are_never_answered_and_more_queries_fail_once() -> None:
    """Calls of 300 ms, and 200 ms more for each failure: shares beyond a time are those of the slowest of three."""
    known = measured(spread=0.0)
    wish = slo(quality=0.8, percentile=90, max_ms=600, **STREAMS)
    plan = hp.solve(profile(3.0), wish, known).require()
    assert promised(plan, "quality") == pytest.approx(0.95 * (1 - 3 * 0.1**3))
    # One of three calls fails with 1 - 0.9^3 = 0.27, and twice with 1 - 0.99^3 = 0.03.
    assert promised(plan, "response_ms") == pytest.approx(20 + 300 + 200, rel=0.02)
    assert hp.solve(profile(3.0), slo(quality=0.8, percentile=68, max_ms=450, **STREAMS), known).require()
    assert hp.solve(profile(3.0), slo(quality=0.8, percentile=74, max_ms=450, **STREAMS), known).plan is None
    late = {}
    for beyond in (420.0, 620.0):
        asked = slo(quality=0.8, percentile=50, max_ms=beyond, **STREAMS)
        played = hp.simulate(plan, profile(3.0), asked, known, seeds=3, seed=4, duration_s=2000).apps["ask"]
        late[beyond] = played.figures["violations"].value
    assert late[420.0] == pytest.approx(1 - 0.9**3, abs=0.012)
    assert late[620.0] == pytest.approx(1 - 0.99**3, abs=0.005)


# Queries at a rate


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (3, 2.1), (10, 9.0)])
def test_single_calls_find_what_erlang_says(servers: int, load: float) -> None:
    upto = calls_ahead(servers, load, (1.0,))
    assert 1.0 - upto[servers - 1] == pytest.approx(wait_probability(servers, load), abs=1e-6)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("servers", "several", "use"),
    [(1, (0.0, 0.0, 1.0), 0.6), (3, (0.0, 0.0, 1.0), 0.5), (4, (0.5, 0.5), 0.8), (6, (0.0, 0.5, 0.0, 0.5), 0.7)],
)
def test_the_last_call_of_a_bulk_waits_as_in_a_simulation(servers: int, several: tuple[float, ...], use: float) -> None:
    random, queries = np.random.default_rng(7), 60_000
    sizes = random.choice(np.arange(1, len(several) + 1), queries, p=several)
    load, mean = use * servers, float(np.array(several) @ np.arange(1, len(several) + 1))
    arrivals, free, seen = np.cumsum(random.exponential(mean / load, queries)), np.zeros(servers), np.zeros(queries)
    for q, (at, size) in enumerate(zip(arrivals, sizes, strict=True)):
        for _ in range(size):
            place = int(free.argmin())
            begins = max(at, free[place])
            free[place] = begins + random.exponential()
            seen[q] = begins - at
    upto = calls_ahead(servers, load, several)
    draws = random.random((2, queries))
    ours = extra_time_of_bulk(
        servers, upto, sizes.astype(float), np.zeros(queries), 1.0 / servers, (draws[0], draws[1])
    )
    # Its own calls are taken in rounds of one time each, which exponential times are not: they are left out here.
    alone = sizes <= servers
    if alone.all():
        assert ours.mean() == pytest.approx(seen.mean(), rel=0.08)
        assert np.quantile(ours, 0.95) == pytest.approx(np.quantile(seen, 0.95), rel=0.08)
    else:
        assert ours.mean() <= seen.mean()
        backlog = seen.mean() - (sizes.mean() - servers) / servers
        assert ours.mean() == pytest.approx(backlog, rel=0.08)


def on_machines(fanout: float | None) -> dict[str, Any]:
    """The pipeline without calls of an API."""
    document = profile(fanout)
    document["pipelines"]["rag"]["knobs"]["model"] = ["small"]
    del document["pipelines"]["rag"]["nodes"]["write"]["calls"], document["apis"]
    return document


def stations_of(fanout: float | None, rate: float, shares: tuple[float, float] = (1.0, 1.0)) -> PlacedStations:
    """The stations of the pipeline without calls of an API, at its last placement."""
    known = {"format": "hetplan/measured/1.0", **measured(models=("small",))}
    inputs = load_inputs(on_machines(fanout), slo(rate_qps=rate), measured=known)
    request = read_request(inputs)
    faults = Faults.of(inputs)
    (sought,) = read_pipeline_queries(inputs, request, read_tiers(inputs.profile, request, faults), faults)
    faults.settle()
    form = sought.box(refuse_to_measure, CompoundOptions())
    assert isinstance(form, QueuedBox)
    (found,) = read_measurements(sought, inputs.measured, "measured")
    form.journal[found.configuration] = found
    return PlacedStations(Stations(form, found), len(form.placements) - 1, np.array(shares))


def test_two_calls_load_an_operator_as_twice_as_many_queries_do() -> None:
    several, often, once = stations_of(2.0, 3.0), stations_of(None, 6.0), stations_of(None, 3.0)
    find, write = 0, 1
    # Rate, work and its square: bursts are larger, as two calls come together.
    assert several.flows[:3, write] == pytest.approx(often.flows[:3, write])
    assert several.flows[3, write] > 2 * once.flows[3, write]
    assert several.flows[:, find] == pytest.approx(once.flows[:, find])
    for rate in (3.0, 11.0, 24.0):
        assert stations_of(2.0, rate).fewest[write] == stations_of(None, 2 * rate).fewest[write]


@pytest.mark.slow
@pytest.mark.parametrize(("fanout", "rate", "max_ms"), [(2.0, 6, 500), (3.0, 3, 900), (5.0, 20, 700), (2.5, 20, 500)])
def test_the_formula_of_bulks_is_near_what_is_played(fanout: float, rate: float, max_ms: float) -> None:
    wish, known = slo(rate_qps=rate, max_ms=max_ms), measured(models=("small",))
    plan = hp.solve(on_machines(fanout), wish, known).require()
    rule, many = plan.dispatch["ask"], counts(plan)
    placed = stations_of(fanout, rate, (rule.share["find"], rule.share["write"]))  # type: ignore[union-attr]
    stations, waits = placed.stations, placed.waits(np.array([[float(many["find"]), float(many["write"])]]))
    each = stations.path_s(placed.placement, stations.many, placed.slow[None, :], waits)
    played = hp.simulate(plan, on_machines(fanout), wish, known, seeds=3, seed=55, duration_s=2000).apps["ask"]
    assert 1000 * stations._quantile(each, 0.95)[0] == pytest.approx(played.percentiles_ms[95.0].value, rel=0.16)


@pytest.mark.slow
@pytest.mark.parametrize(("fanout", "rate", "max_ms"), [(3.0, 20, 500), (2.5, 3, 900)])
def test_a_rate_is_carried_and_fresh_seeds_are_in_time(fanout: float, rate: float, max_ms: float) -> None:
    document, wish, known = on_machines(fanout), slo(rate_qps=rate, max_ms=max_ms), measured(models=("small",))
    plan = hp.solve(document, wish, known).require()
    assert hp.verify(plan, document, wish, known).ok
    played = hp.simulate(plan, document, wish, known, seeds=2, seed=977, duration_s=1500).apps["ask"]
    assert played.figures["violations"].value <= 0.05
    single = hp.solve(on_machines(None), wish, known).require()
    assert counts(plan)["write"] > counts(single)["write"]
    # With so few replicas that each would be busy all the time, the check says so.
    share = next(load.share.gpu for worker in plan.workers for load in worker.loads if load.node == "write")  # type: ignore[union-attr]
    fewest = math.ceil(rate * fanout * known["apps"]["ask"][0]["seconds"]["write"] * 0.5 / share)
    assert counts(plan)["write"] >= fewest
    poor = with_replicas(plan, "write", fewest - 1)
    assert "overrun" in {one.code for one in hp.verify(poor, document, wish, known).violations} or fewest == 1


def with_replicas(plan: hp.Plan, node: str, count: int) -> hp.Plan:
    """The plan with fewer replicas of an operator, its routes mended."""
    left, kept = count, {}
    workers = []
    for worker in plan.workers:
        loads = []
        for load in worker.loads:
            if load.node == node:
                mine = min(load.instances, left)
                left -= mine
                if mine:
                    kept[load.id] = mine
                    loads.append(load.model_copy(update={"instances": mine}))
            else:
                loads.append(load)
        if loads:
            workers.append(worker.model_copy(update={"loads": tuple(loads)}))
    routes = tuple(
        one.model_copy(update={"to": {name: n / count for name, n in kept.items()}}) if one.node == node else one
        for one in plan.routing["ask"]
    )
    return plan.model_copy(update={"workers": tuple(workers), "routing": {"ask": routes}})


@pytest.mark.slow_cases(4)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_plans_of_random_trees_are_verified_and_kept_by_fresh_seeds(seed: int) -> None:
    random = np.random.default_rng(100 + seed)
    tree = a_tree(random)
    tree |= {"metric": "right", "strata": 1, "share_grid": [1, 0.5], "knobs": {"k": [1, 2]}}
    names = list(tree["nodes"])
    document = {**profile(1.0), "pipelines": {"rag": tree}}
    api = random.random() < 0.5
    if api:
        tree["nodes"][names[-1]] |= {"reads": ["k"], "calls": [{"api": "acme", "where": {"k": [2]}}]}
    else:
        del document["apis"]
    entries = []
    for k in (1, 2):
        took = {name: 0.03 * random.lognormal(0, 0.3, COUNT) for name in names}
        entries.append({
            "knobs": {"k": k}, "mean": 0.6 + 0.15 * k, "se": 0.01, "samples": COUNT, "verdict": "pass", "passes": True,
            "seconds": {name: float(each.mean()) for name, each in took.items()},
            "bytes": dict.fromkeys(names, 2000.0), "input_bytes": 1000.0,
            "runs": {"seconds": {name: each.tolist() for name, each in took.items()},
                     "bytes": {name: [2000.0] * COUNT for name in names}, "input_bytes": [1000.0] * COUNT},
        })  # fmt: skip
    known = {"apps": {"ask": entries}}
    demand = {"streams": 2, "rate_qps": 2.0} if seed % 2 else {"rate_qps": float(random.uniform(2, 30))}
    wish = slo(quality=0.85 if api else 0.6, percentile=90, max_ms=float(random.uniform(150, 900)), **demand)
    if "streams" in demand and not api:
        del wish["apps"]["ask"]["rate_qps"]
    outcome = hp.solve(document, wish, known)
    if outcome.plan is None:
        assert outcome.why
        return
    report = hp.verify(outcome.plan, document, wish, known)
    assert report.ok, report.violations
    plan, play = outcome.plan, hp.simulate
    played = play(plan, document, wish, known, seeds=2, seed=31 + seed, duration_s=600).apps["ask"]
    assert played.figures["violations"].value <= 0.1 + 0.01
    if "streams" in demand:
        assert played.percentiles_ms[90.0].value <= promised(outcome.plan, "response_ms") * 1.02


# What is wrong is found


@pytest.mark.slow
def test_a_plan_that_knows_nothing_of_the_fanout_is_refused_by_the_check() -> None:
    for demand in (STREAMS, {"rate_qps": 3.0}):
        wish = slo(quality=0.9, **demand)
        plan = hp.solve(profile(1.0), wish, MEASURED).require()
        codes = {one.code for one in hp.verify(plan, profile(3.0), wish, MEASURED).violations}
        assert "calls-bill" in codes
    wish, known = slo(max_ms=420, streams=2), measured(models=("small",))
    plan = hp.solve(on_machines(1.0), wish, known).require()
    found = hp.verify(plan, on_machines(3.0), wish, known).violations
    assert any("write runs 2 times, not 6 times" in one.text for one in found)


@pytest.mark.slow
def test_forged_promises_of_a_fanout_are_found() -> None:
    wish = slo(quality=0.9, **STREAMS)
    plan = hp.solve(profile(3.0), wish, MEASURED).require()
    assert hp.verify(plan, profile(3.0), wish, MEASURED).ok
    for quantity in ("cost_per_hour", "cost_per_query", "calls_per_query", "response_ms", "quality"):
        factor = 1.02 if quantity == "quality" else 0.98
        forged = plan.model_copy(update={"promises": tuple(
            one.model_copy(update={"value": one.value * factor, "interval": None}) if one.quantity == quantity else one
            for one in plan.promises)})  # fmt: skip
        assert not hp.verify(forged, profile(3.0), wish, MEASURED).ok, quantity
    formula = plan.model_copy(update={"promises": tuple(
        one.model_copy(update={"model": "stationary/1"}) if one.quantity == "response_ms" else one
        for one in plan.promises)})  # fmt: skip
    assert any("calls that come together" in one.text
               for one in hp.verify(formula, profile(3.0), wish, MEASURED).violations)  # fmt: skip


def test_the_router_sends_on_as_many_calls() -> None:
    wish = slo(rate_qps=3.0)
    plan = hp.solve(profile(2.5), wish, MEASURED).require()
    inputs = load_inputs(profile(2.5), wish, measured=MEASURED)
    told = Background(inputs.profile, inputs.slo, None, inputs).app(plan, "ask")
    (edge,) = Steps(told["nodes"]).nodes["find"].edges
    assert edge.to == "write"
    assert edge.sent_by(None) == 2.5


def test_branches_that_end_apart_are_answered_as_well_as_was_measured() -> None:
    document, known = on_machines(2.0), measured(models=("small",))
    document["pipelines"]["rag"]["nodes"]["also"] = {"device": "gpu"}
    document["pipelines"]["rag"]["edges"].append({"from": "find", "to": "also"})
    (entry,) = known["apps"]["ask"]
    for one in (entry["seconds"], entry["bytes"], entry["runs"]["seconds"], entry["runs"]["bytes"]):
        one["also"] = one["find"]
    wish = slo(streams=1)
    plan = hp.solve(document, wish, known).require()
    played = hp.simulate(plan, document, wish, known, seeds=1, duration_s=60).apps["ask"]
    assert played.figures["accuracy"].value == pytest.approx(promised(plan, "quality")) == pytest.approx(0.7)


def _joined() -> dict[str, Any]:
    document = on_machines(1.0)
    pipeline = document["pipelines"]["rag"]
    pipeline["nodes"] |= {"also": {"device": "gpu"}, "end": {"device": "gpu"}}
    pipeline["edges"] = [
        {"from": "find", "to": "write", "fanout": 2}, {"from": "find", "to": "also"},
        {"from": "write", "to": "end"}, {"from": "also", "to": "end"},
    ]  # fmt: skip
    return document


def _with_node(**more: Any) -> dict[str, Any]:
    document = on_machines(2.0)
    document["pipelines"]["rag"]["nodes"]["write"] |= more
    return document


def _batched() -> dict[str, Any]:
    document = _with_node(batches="grown")
    document["tables"] = {"grown": {"quantity": "latency_ms", "axes": {"batch": [1, 2]}, "mean": [10, 13]}}
    return document


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (on_machines(0.0), r"edges\[0\].fanout"),
        (on_machines(65.0), "65 calls of write"),
        (_joined(), "branches meet at end"),
        (_with_node(outcomes={"measured": ["yes", "no"]}), r"stages.write.outcomes"),
        (_batched(), r"stages.write.batches"),
    ],
)
def test_what_cannot_be_counted_is_refused_by_name(document: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        hp.solve(document, slo(rate_qps=3.0), evaluate=lambda **_: None)


def test_a_formula_alone_is_refused_and_so_is_a_device_for_several_calls() -> None:
    known = measured(models=("small",))
    with pytest.raises(InputError, match="sizing"):
        hp.solve(on_machines(2.0), slo(rate_qps=3.0), known, options={"sizing": "formula"})
    document = on_machines(2.0)
    document["hardware"]["gpu"]["provides"] = {"gpu": 0.1}
    document["pipelines"]["rag"]["nodes"]["find"]["device"] = "cpu"
    with pytest.raises(InputError, match="own device"):
        hp.solve(document, slo(streams=1), known)


@pytest.mark.parametrize("fanout", [None, 3.0])
def test_who_wants_a_plan_at_once_gets_one_where_no_formula_is_trusted(fanout: float | None) -> None:
    inputs = load_inputs(profile(fanout), slo(rate_qps=5), measured=measured())
    assert fluid_size(choose(inputs), inputs) == {"sizing": "fluid"}
    known = measured(models=("small",))
    plan = hp.solve(on_machines(fanout), slo(rate_qps=3.0), known, options={"sizing": "fluid"}).require()
    assert hp.verify(plan, on_machines(fanout), slo(rate_qps=3.0), known).ok
