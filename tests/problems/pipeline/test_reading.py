"""Bad input is reported with its place and remedy; what merely cannot be used is left out with a warning."""

import copy

import pytest
from cases.pipelines import diamond, fluid

from hetplan.errors import InputError
from hetplan.planner.contract import Tools
from hetplan.problems.pipeline.question import PipelineQuestion
from hetplan.problems.pipeline.request import ConfigOptions
from hetplan.profiles.load import load_inputs
from hetplan_papers.datasets.loki_by_hand import tiny


def spoilt(change):
    profile, slo = copy.deepcopy(tiny(0.2, 20))
    change(profile, slo)
    return profile, slo


def fail(change, **more):
    with pytest.raises(InputError) as error:
        fluid(*spoilt(change), formulation="pipeline", **more)
    return str(error.value)


def edges(profile):
    return profile["pipelines"]["p"]["edges"]


CASES = {
    "a circle": (lambda p, s: edges(p).append({"from": "b", "to": "a"}), "circle"),
    "unknown child": (lambda p, s: edges(p).append({"from": "a", "to": "z"}), "no node 'z'"),
    "percent": (lambda p, s: p["variants"]["a1"].update(quality={"value": 99.6}), "Percent"),
    "negative accuracy": (lambda p, s: p["variants"]["a1"].update(quality={"value": -0.1}), "between 0 and 1"),
    "no accuracy": (lambda p, s: p["variants"]["a1"].pop("quality"), "how good it is"),
    "latency of 0": (lambda p, s: p["tables"]["a1-g"].update(p50=[0]), "more than 0"),
    "latency that is no number": (lambda p, s: p["tables"]["a1-g"].update(p50=[float("nan")]), "finite"),
    "slo in seconds": (lambda p, s: s["apps"]["x"]["latency"].update(p99_ms=0.0002), "milliseconds"),
    "negative demand": (lambda p, s: s["apps"]["x"].update(rate_qps=-1), "rate_qps"),
    "demand that is no number": (lambda p, s: s["apps"]["x"].update(rate_qps=float("nan")), "rate_qps"),
    "half a server": (lambda p, s: s["limits"]["instances"].update(g=[0, 2.5]), "instances"),
    "no server": (lambda p, s: s["limits"]["instances"].update(g=[0, 0]), "not one server"),
    "any number of servers": (lambda p, s: s["limits"].update(instances={}, only_listed=False), "nothing limits"),
    "network beyond the limit": (lambda p, s: s["apps"]["x"].update(network_ms_per_hop=100), "network alone"),
    "no limit": (lambda p, s: s["apps"]["x"].update(latency={}), "no limit on the response time"),
    "a mix": (lambda p, s: s["apps"]["x"].update(mix={"axes": ["n"], "bins": [[1]], "share": [1]}), "alike"),
    "most rate": (lambda p, s: s["apps"]["x"].update(rate_qps="max"), "planned for a rate"),
    "wrong goal": (lambda p, s: s.update(objective=["max rate"]), "planned for quality"),
    "cost without prices": (lambda p, s: s.update(objective=["min cost"]), "price"),
    "unknown variant in a factor": (lambda p, s: edges(p)[0].update(fanout={"zz": 1.0}), "no model 'zz'"),
    "missing paths": (
        lambda p, s: p["pipelines"]["p"].update(quality={"rule": "table", "paths": {"a=a1/b=b1": 1.0}}),
        "a=a2/b=b2",
    ),
    "unknown path": (
        lambda p, s: p["pipelines"]["p"].update(quality={"rule": "product", "paths": {"a=a1/b=zz": 1.0}}),
        "a=a1/b=zz",
    ),
    "weights of 0": (lambda p, s: s["apps"]["x"].update(weight=0), "all weights are 0"),
    "unknown hardware": (lambda p, s: s["limits"]["instances"].update(zz=[0, 1]), "zz"),
}


@pytest.mark.parametrize("case", CASES)
def test_reported(case):
    change, reported = CASES[case]
    text = fail(change)
    assert reported in text
    assert text.count(". ") >= 1  # a remedy follows


def pose(files, **options):
    inputs = load_inputs(*files)
    return PipelineQuestion.from_inputs(inputs, ConfigOptions(**options), formulation="pipeline-milp", tools=Tools())


def test_a_statistic_that_was_named_must_be_measured():
    text = fail(lambda p, s: p["tables"]["a1-g"].pop("p50"), options={"statistic": "p50"})
    assert "statistic asks for p50" in text


def test_a_statistic_that_was_not_named_is_answered_by_the_next():
    def change(profile, slo):
        profile["tables"]["a1-g"] = {"quantity": "latency_ms", "axes": {"batch": [1]}, "p95": [60], "mean": [50]}

    problem = pose(spoilt(change))
    assert problem.wish.trees[0].tasks[0].ms.tolist() == [60.0, 25.0]
    said = [(n.at, n.text) for n in problem.wish.notices if n.code == "W-statistic"]
    assert said == [("tables.a1-g", "p50 was not measured: p95 is used instead")]


def test_the_point_of_a_run_wins_over_the_knobs_of_its_variant():
    def change(profile, slo):
        axes = {"batch": [1], "size": [320, 640]}
        profile["tables"]["a1-g"] = {"quantity": "latency_ms", "axes": axes, "p50": [[30, 40]]}
        profile["variants"]["a1"].update(knobs={"size": 320})
        profile["variants"]["a1"]["runs"][0]["at"] = {"size": 640}

    assert pose(spoilt(change)).wish.trees[0].tasks[0].ms.tolist() == [40.0, 25.0]


@pytest.mark.parametrize("turn", [1, -1])
def test_a_table_per_batch_is_a_run_each_and_loads_name_theirs(turn):
    def change(profile, slo):
        runs = []
        for batch, ms in ((1, 45), (4, 50))[::turn]:
            table = {"quantity": "latency_ms", "axes": {"batch": [batch]}, "p50": [ms]}
            profile["tables"][f"a1-{batch}"] = table
            runs.append({"hardware": "g", "latency": f"a1-{batch}", "at": {"batch": batch}})
        profile["variants"]["a1"]["runs"] = runs
        slo["apps"]["x"]["rate_qps"] = 30

    plan = fluid(*spoilt(change), formulation="pipeline").require()
    (load,) = (load for worker in plan.workers for load in worker.loads if load.variant == "a1")
    assert (load.serve.max_batch, load.at) == (4, {"batch": 4.0})


def test_a_variant_without_latency_here_is_left_out():
    def change(profile, slo):
        profile["hardware"]["other"] = {"kind": "gpu"}
        profile["variants"]["b2"]["runs"][0]["hardware"] = "other"

    outcome = fluid(*spoilt(change))
    assert any(warning.code == "W-no-latency" and "b2" in warning.at for warning in outcome.plan.warnings)


def test_a_step_without_any_variant_is_an_error():
    def change(profile, slo):
        profile["hardware"]["other"] = {"kind": "gpu"}
        for name in ("b1", "b2"):
            profile["variants"][name]["runs"][0]["hardware"] = "other"

    assert "no variant of task b" in fail(change)


def test_every_fault_is_reported_at_once():
    def change(profile, slo):
        profile["variants"]["a1"].pop("quality")
        slo["apps"]["x"]["network_ms_per_hop"] = 1000

    text = fail(change)
    assert "how good" in text
    assert "network" in text


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        (lambda p: p["pipelines"]["p"].update(quality={"rule": "product"}), "adds up over the steps"),
        (lambda p: p["pipelines"]["p"]["edges"][0].update(fanout={"a-good": 2.0, "*": 1.0}), "depends on the variant"),
        (lambda p: p["pipelines"]["p"]["edges"][0].update(fanout=2.0), "different numbers of queries"),
    ],
)
def test_joins_that_cannot_be_planned_exactly(change, reported):
    profile, slo = diamond(50, 120)
    change(profile)
    with pytest.raises(InputError, match=reported):
        fluid(profile, slo)


def test_joins_are_refused_by_other_formulations():
    with pytest.raises(InputError, match="joins branches"):
        fluid(*diamond(50, 120), formulation="loki")
