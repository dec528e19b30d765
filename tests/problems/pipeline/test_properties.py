"""What holds for every pipeline: monotony, invariance, agreement of formulations, an independent verdict."""

import copy
import itertools

import pytest
from cases.pipelines import diamond, fluid, random_pipeline
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan_papers.datasets.loki_by_hand import tiny, two_gpus

seeds = st.integers(0, 10_000)


def accuracy(outcome):
    """A claim's value; below all where there is no plan."""
    if outcome.plan is None:
        return -1.0
    return next(claim.value for claim in outcome.plan.claims if claim.about == "quality")


def servers(outcome):
    return sum(worker.count for worker in outcome.plan.workers)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(seeds, st.integers(1, 2), st.floats(1.01, 2.0), st.integers(1, 4))
def test_accuracy_never_rises_with_demand_nor_falls_with_servers(seed, gpus, times, servers_more):
    profile, slo = random_pipeline(seed, gpus=gpus)
    slo["apps"]["x"]["rate_qps"] *= 0.6
    found = accuracy(fluid(profile, slo))
    more = copy.deepcopy(slo)
    more["apps"]["x"]["rate_qps"] *= times
    assert accuracy(fluid(profile, more)) <= found + 1e-6
    larger = copy.deepcopy(slo)
    larger["limits"]["instances"]["gh"[gpus - 1]][1] += servers_more
    assert accuracy(fluid(profile, larger)) >= found - 1e-6


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seeds)
def test_the_papers_program_agrees_on_one_hardware(seed):
    files = random_pipeline(seed)
    assert accuracy(fluid(*files, formulation="loki")) == pytest.approx(accuracy(fluid(*files)), abs=2e-6)


@pytest.mark.longest
@settings(max_examples=5, deadline=None)
@given(seeds)
def test_on_two_hardwares_it_finds_no_more(seed):
    files = random_pipeline(seed, gpus=2)
    best = accuracy(fluid(*files))
    assert accuracy(fluid(*files, formulation="loki")) <= best + 2e-6
    assert accuracy(fluid(*files, formulation="loki-budget")) <= best + 2e-6


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(seeds, st.randoms())
def test_the_order_of_the_file_does_not_matter(seed, chance):
    profile, slo = random_pipeline(seed)
    turned = copy.deepcopy(profile)
    names = list(profile["variants"])
    chance.shuffle(names)
    turned["variants"] = {name: profile["variants"][name] for name in names}
    assert accuracy(fluid(turned, slo)) == pytest.approx(accuracy(fluid(profile, slo)), abs=2e-6)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(seeds)
def test_units_do_not_matter(seed):
    profile, slo = random_pipeline(seed)
    slow, late = copy.deepcopy(profile), copy.deepcopy(slo)
    for table in slow["tables"].values():
        table["p50"] = [2 * ms for ms in table["p50"]]
    app = late["apps"]["x"]
    app["latency"]["p99_ms"] *= 2
    app["network_ms_per_hop"] *= 2
    app["rate_qps"] /= 2
    assert accuracy(fluid(slow, late)) == pytest.approx(accuracy(fluid(profile, slo)), abs=2e-6)


@pytest.mark.parametrize("demand", [40, 90, 120])
def test_a_hardware_under_two_names_is_the_same(demand):
    profile, slo = two_gpus(demand)
    split, wish = copy.deepcopy(profile), copy.deepcopy(slo)
    split["hardware"]["g2"] = {"kind": "gpu"}
    for variant in split["variants"].values():
        run = next(run for run in variant["runs"] if run["hardware"] == "g")
        variant["runs"].append({**run, "hardware": "g2"})
    wish["limits"]["instances"] = {"g": [0, 1], "g2": [0, 1], "h": [0, 1]}
    assert accuracy(fluid(split, wish)) == pytest.approx(accuracy(fluid(profile, slo)))


def brute(profile, slo, most):
    """The best accuracy of two-step chains of batch 1 over a grid of shares, and its least servers."""
    limit = slo["apps"]["x"]["latency"]["p99_ms"] / 2
    demand = slo["apps"]["x"]["rate_qps"]
    ms = {name: table["p50"][0] for name, table in profile["tables"].items()}
    factor = profile["pipelines"]["p"]["edges"][0]["fanout"]
    quality = {name: variant["quality"]["value"] for name, variant in profile["variants"].items()}
    paths = [(a, b) for a in ("a1", "a2") for b in ("b1", "b2") if ms[f"{a}-g"] + ms[f"{b}-g"] <= limit + 1e-9]
    best = (0.0, 0)
    grid = 20
    for shares in itertools.product(range(grid + 1), repeat=len(paths)):
        if sum(shares) != grid:
            continue
        load = dict.fromkeys(ms, 0.0)
        value = 0.0
        for (a, b), share in zip(paths, shares, strict=True):
            load[f"{a}-g"] += demand * share / grid
            load[f"{b}-g"] += demand * share / grid * factor[a]
            value += quality[a] * quality[b] * share / grid
        used = sum(-int(-(rate * ms[name] / 1000 - 1e-9) // 1) for name, rate in load.items())
        if used <= most:
            best = max(best, (round(value, 9), -used))
    return best


@pytest.mark.parametrize("demand", [20, 40, 60])
@pytest.mark.parametrize("slo_s", [0.2, 0.13])
def test_brute_force_finds_no_more(slo_s, demand):
    profile, slo = tiny(slo_s, demand)
    value, _ = brute(profile, slo, 5)
    outcome = fluid(profile, slo)
    assert accuracy(outcome) >= value - 1e-9
    if (slo_s, demand) in ((0.2, 20), (0.2, 40), (0.13, 20)):
        assert accuracy(outcome) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
    ("demand", "slo_ms", "accuracy_wanted", "count"),
    [(50, 120, 1.0, 4), (100, 120, 1.0, 8), (100, 100, 0.875, 7), (100, 80, 0.75, 6)],
)
def test_branches_that_join(demand, slo_ms, accuracy_wanted, count):
    outcome = fluid(*diamond(demand, slo_ms))
    assert outcome.reason == "verified", outcome.violations
    assert accuracy(outcome) == pytest.approx(accuracy_wanted)
    assert servers(outcome) == count


def test_offers_are_taken_cheapest_first():
    profile, slo = tiny(0.2, 30)
    del slo["objective"]
    profile["offers"] = {
        "dear": {"hardware": "g", "price_per_hour": "3"},
        "cheap": {"hardware": "g", "price_per_hour": "1", "stock": 2},
    }
    outcome = fluid(profile, slo)
    assert outcome.reason == "verified", outcome.violations
    rented = {offer: sum(w.count for w in outcome.plan.workers if w.offer == offer) for offer in ("g-dear", "g-cheap")}
    assert rented == {"g-dear": 3, "g-cheap": 2}
    assert accuracy(outcome) == 1.0
    assert next(claim.value for claim in outcome.plan.claims if claim.about == "cost_per_hour") == pytest.approx(11)


def test_the_same_files_give_the_same_bytes():
    from hetplan.profiles.plan_file import plan_bytes

    plans = {plan_bytes(fluid(*tiny(0.2, 60)).plan) for _ in range(2)}
    assert len(plans) == 1
