"""What is measured is what is promised: percentiles by the samples, every stream's share, every wrong answer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hetplan as hp
from hetplan.measure.evaluator_profiler import Profiler, Setup, measuring
from hetplan.measure.journal import Journal
from hetplan.planner.request import read_request
from hetplan.problems.compound.options import CompoundOptions
from hetplan.problems.compound.pipeline_query import read_pipeline_queries
from hetplan.problems.compound.request import read_tiers
from hetplan.problems.faults import Faults
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_file import with_digest

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "compound"


def test_every_stream_takes_its_share():
    files, measured = (EXAMPLE / "profile.json", EXAMPLE / "slo.json"), EXAMPLE / "measured.json"
    slo = json.loads(files[1].read_text())
    slo["limits"] = {}
    one = hp.solve(files[0], slo, measured).require()
    slo["apps"]["gate"]["streams"] = 2
    plan = hp.solve(files[0], slo, measured).require()
    rule = plan.dispatch["gate"]
    for worker in plan.workers:
        for load in worker.loads:
            if load.app == "gate":
                assert worker.count * load.instances == 2
    taken = 2 * sum(share for node, share in rule.share.items())
    assert taken == pytest.approx(
        sum(load.instances * load.share.gpu for worker in plan.workers for load in worker.loads
            if load.app == "gate" and load.share is not None)
    )  # fmt: skip
    assert next(p.value for p in plan.promises if p.quantity == "cost_per_hour") > next(
        p.value for p in one.promises if p.quantity == "cost_per_hour"
    )
    spoilt = [w.model_copy(update={"loads": tuple(x.model_copy(update={"instances": 1}) for x in w.loads)})
              for w in plan.workers]  # fmt: skip
    assert not hp.verify(with_digest(plan.model_copy(update={"workers": tuple(spoilt)})), files[0], slo).ok
    report = hp.simulate(plan, files[0], slo, measured, seeds=1)
    assert report.ok, "no stream waits for another"
    slo["apps"]["gate"]["streams"], slo["apps"]["gate"]["latency"]["p99_ms"] = 8, 245
    many = hp.solve(files[0], slo, measured).require()
    assert not many.unserved, "eight streams need not be on one machine"
    mine = [(x, w) for w in many.workers for x in w.loads if (x.app, x.node) == ("gate", "track")]
    assert sum(x.instances * w.count for x, w in mine) == 8


def tailed(knobs, stratum, index):
    """One sample in 50 takes ten times as long, in all operators; each answer is right nine times in ten."""
    slow = 10.0 if index % 50 == 17 else 1.0
    big = knobs["size"]
    return {"score": float(index % 10 != 3), "seconds": {"a": 0.004 * big * slow, "b": 0.006 * big * slow},
            "bytes": {"a": 0.0, "b": 0.0}}  # fmt: skip


def tail_wish(*latency):
    nodes = {name: {"device": "gpu", "reads": ["size"]} for name in "ab"}
    profile = {
        "format": "hetplan/profile/1.0", "reference": "gpu", "tiers": ["here"],
        "metrics": {"right": {"kind": "bernoulli"}},
        "hardware": {"gpu": {"kind": "gpu", "tier": "here", "provides": {"gpu": 1}}},
        "offers": {"gpu": {"hardware": "gpu", "price_per_hour": "1", "per": "gpu"}},
        "pipelines": {"p": {"nodes": nodes, "edges": [{"from": "a", "to": "b"}], "knobs": {"size": [1, 2]},
                            "metric": "right", "evaluator": "e"}},
    }  # fmt: skip
    app = {"pipeline": "p", "streams": 1, "quality": {"min": 0.6}}
    app["latency"] = {f"p{percentile:g}_ms": ms for percentile, ms in latency}
    return profile, {"format": "hetplan/slo/1.0", "apps": {"q": app}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("latency", "served"),
    [([(99, 60)], False), ([(99, 110)], True), ([(50, 9)], False), ([(50, 30)], True), ([(50, 30), (99, 60)], False),
     ([(50, 30), (99, 250)], True)],
)  # fmt: skip
def test_percentiles_are_those_of_the_samples(latency, served: bool):
    """10 ms and one in 50 takes 100: p50 is 10 ms, p99 100 ms, the mean 11.8."""
    journal, (profile, slo) = Journal(), tail_wish(*latency)
    outcome = hp.solve(profile, slo, evaluate=measuring(tailed, journal=journal))
    assert (outcome.exit_code == 0) is served
    if not served:
        assert "latency binds" in " ".join(outcome.why)
        return
    measured = journal.document()
    plan = hp.solve(profile, slo, measured).require()
    assert plan.dispatch == outcome.plan.dispatch
    said = {one.percentile: one.value for one in plan.promises if one.quantity == "response_ms"}
    assert all(said[percentile] <= ms for percentile, ms in latency)
    assert len(measured["apps"]["q"][0]["runs"]["input_bytes"]) >= (459 if latency[-1][0] == 99 else 50)
    report = hp.simulate(plan, profile, slo, measured, seeds=2)
    assert report.ok
    if latency[-1][0] == 99:
        assert report.apps["q"].percentiles_ms[99.0].value == pytest.approx(said[99], rel=1e-6)
    lower = tuple(
        one.model_copy(update={"value": 0.9 * one.value, "interval": None}) if one.quantity == "response_ms" else one
        for one in plan.promises
    )
    assert not hp.verify(with_digest(plan.model_copy(update={"promises": lower})), profile, slo, measured).ok


@pytest.mark.longest
def test_a_median_at_its_limit_seldom_passes_however_often_one_looks():
    """Half of the samples are late. With the confidence of one look at every look 18 would pass."""
    inputs = load_inputs(*tail_wish((50, 30)))
    request = read_request(inputs)
    faults, options = Faults.of(inputs), CompoundOptions(early_stop=False)
    (sought,) = read_pipeline_queries(inputs, request, read_tiers(inputs.profile, request, faults), faults)
    setup, passed = Setup.of(**sought.setup(options)), 0
    for run in range(200):
        late = np.random.default_rng(run).random(1000) < 0.5

        def evaluate(knobs, stratum, index, late=late):
            return {"score": 1.0, "seconds": {"a": 0.02 if late[index] else 0.01, "b": 0.015},
                    "bytes": {"a": 0.0, "b": 0.0}}  # fmt: skip

        profiler = Profiler(setup, evaluate)
        form = sought.box(lambda c, profiler=profiler: profiler(c, sought.knobs(c)), options)
        passed += bool((form.at_full(form.observe(0)) <= form.limit_s).any())
    assert 0 < passed <= 10


def test_too_few_samples_for_a_percentile_are_said():
    measure = measuring(tailed)
    plan = hp.solve(*tail_wish((99, 110)), evaluate=measure, options={"samples_max": 200}).require()
    assert "200 samples bound no p99" in " ".join(one.text for one in plan.warnings if one.code == "W-undecided")


def test_answers_that_make_no_sense_are_counted():
    calls = []

    def moody(knobs, stratum, index):
        calls.append(index)
        return {"score": "what?"} if len(calls) % 10 == 0 else tailed(knobs, stratum, index)

    plan = hp.solve(*tail_wish((50, 30)), evaluate=measuring(moody)).require()
    (said,) = [one.text for one in plan.warnings if one.code == "W-asked-again"]
    assert f"{len(calls) // 10} of {len(calls)} answers made no sense" in said
    assert "'what?', not a finite number" in said
