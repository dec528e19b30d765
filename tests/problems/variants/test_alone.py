"""What is late even where no query waits: the formula is what simulation shows, and ends searches that are in vain."""

import pytest
from build import limits_at

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.planner.contract import Limits
from hetplan.planner.service_times import unreachable_limits
from hetplan.problems.variants.options import VariantsOptions
from hetplan.problems.variants.queueing import FAR, SURE, drop_hopeless
from hetplan.problems.variants.request import read_snapshot
from hetplan.profiles.load import load_inputs

QUESTION = {"formulation": "variants"}


def run(mean, std, *, batches=(1,), **more):
    return {"quantity": "latency_ms", "axes": {"batch": list(batches)}, "mean": mean, "std": std, **more}


def files(tables, *, limit_ms, percentile=95, rate=1.0, batch=1, prices=None, hop_ms=0.0):
    """A variant for each table, each with a machine of its own."""
    names = list(tables)
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {name: {"kind": "gpu", "provides": {"part": 1}} for name in names},
        "tasks": {"t": {}},
        "variants": {
            name: {
                "task": "t", "family": "f",
                "runs": [{"hardware": name, "latency": name, "at": {"batch": batch}, "needs": {"part": 1},
                          "saturation_qps": 1000 * batch / tables[name]["mean"][-1]}],
            }
            for name in names
        },
        "tables": tables,
        "offers": {name: {"hardware": name, "price_per_hour": (prices or {}).get(name, "1")} for name in names},
    }  # fmt: skip
    app = {
        "family": "f", "network_ms_per_hop": hop_ms,
        "latency": {f"p{percentile:g}_ms": limit_ms},
        "rate_qps": rate, "arrivals": {"process": "poisson"},
    }  # fmt: skip
    return profile, {"format": "hetplan/slo/1.0", "apps": {"a": app}}


def solve(documents, **options):
    return hp.solve(*documents, **QUESTION, options=options)


def read(documents):
    return read_snapshot(load_inputs(*documents), VariantsOptions())


@pytest.mark.parametrize(
    ("table", "batch", "hop_ms"),
    [
        (run([10.0], [4.0]), 1, 0.0),
        (run([10.0], [4.0], max=[16.0]), 1, 0.0),
        (run([10.0], [8.0]), 1, 1.5),
        (run([10.0, 14.0], [5.0, 9.0], batches=(1, 4)), 4, 0.0),
    ],
)
def test_the_share_is_the_one_that_a_simulation_without_waiting_shows(table, batch, hop_ms):
    documents = files({"m": table}, limit_ms=15.0, percentile=99, rate=0.1, batch=batch, hop_ms=hop_ms)
    (late,) = unreachable_limits(load_inputs(*documents))
    planned = solve(documents, sizing="fluid").plan
    report = hp.simulate(planned, *documents, seeds=3, seed=77, duration_s=200_000.0)
    seen = report.apps["a"].figures["violations"].value
    assert late.share == pytest.approx(seen, rel=0.1)
    documents[1]["apps"]["a"]["latency"]["p99_ms"] = late.repair.to
    assert not list(unreachable_limits(load_inputs(*documents)))


def test_who_cannot_be_in_time_is_refused_at_once_and_the_limit_that_is_offered_does():
    documents = files({"m": run([10.0], [4.0])}, limit_ms=14.0, percentile=99, rate=50.0)
    outcome = solve(documents)
    assert outcome.exit_code == 3
    assert "take longer than 14 ms though none waits; 1% may" in outcome.why[0]
    (repair, *_) = outcome.repairs
    assert repair.field == "slo.apps.a.latency.p99_ms"
    documents[1]["apps"]["a"]["latency"]["p99_ms"] = repair.to
    assert solve(documents).exit_code == 0


def test_a_variant_that_is_late_alone_is_left_to_those_that_are_not():
    """The cheap one is late though none waits, so the dear one serves; the bound still counts the cheap one."""
    tables = {"cheap": run([10.0], [6.0]), "dear": run([10.0], [0.5])}
    documents = files(tables, limit_ms=20.0, percentile=99, rate=20.0, prices={"cheap": "0.1", "dear": "3"})
    outcome = solve(documents)
    assert outcome.exit_code == 0
    assert {load.variant for worker in outcome.plan.workers for load in worker.loads} == {"dear"}
    cost = next(one for one in outcome.plan.claims if one.about == "cost_per_hour")
    assert cost.bound < 0.3 < 3.0 <= cost.value
    assert hp.verify(outcome.plan, *documents).ok


@pytest.mark.parametrize("times", [0.5, SURE * 1.2, FAR * 1.2])
def test_a_variant_is_left_out_only_where_it_is_far_from_its_limit_and_not_alone(times):
    """A variant a little too late may serve a part of the queries beside one that is in time."""
    two = files({"m": run([10.0], [4.0]), "sure": run([5.0], [0.1])}, limit_ms=18.0)
    v = read(two)
    (late,) = unreachable_limits(load_inputs(*files({"m": run([10.0], [4.0])}, limit_ms=18.0, percentile=99.999)))
    two[1]["apps"]["a"]["latency"] = limits_at(100.0 * (1.0 - late.share / times), two[1]["apps"]["a"]["latency"])
    hopeful = drop_hopeless(read(two))
    left_out = [pair for pair, other in zip(read(two).serves, hopeful.serves, strict=True) if pair != other]
    assert bool(left_out) == (times > FAR)
    assert len(hopeful.serves) == len(v.serves)


def test_what_does_not_vary_is_as_it_was():
    documents = files({"m": {**run([10.0], [0.0])}}, limit_ms=15.0, percentile=99)
    assert drop_hopeless(v := read(documents)) is v
    fixed = files(
        {"m": {"quantity": "latency_ms", "axes": {"batch": [1]}, "p99": [10.0], "mean": [9.0]}}, limit_ms=15.0
    )
    assert drop_hopeless(w := read(fixed)) is w


@pytest.mark.slow
def test_no_limit_on_work_is_needed_for_an_application_that_no_number_of_machines_helps():
    documents = files({"m": run([20.0], [4.5], batches=(8,))}, limit_ms=26.0, percentile=99.9, rate=1200.0, batch=8)
    outcome = plan_for(hp.load(*documents), **QUESTION, limits=Limits(work=10_000_000))
    assert outcome.exit_code == 3
    assert "none waits" in outcome.why[0]
