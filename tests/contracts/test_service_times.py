"""What tables state of service times binds every question: no promise below it, and what is not stated is said."""

from __future__ import annotations

import random
from typing import Any

import pytest
from build import Files, app, files, machine, model, pipeline
from face import EXIT, forged, solve, verify

PLAYED = ("pool", "variants", "pipeline", "policy")
"""Questions whose service times are in tables."""
MEANS = (8.0, 20.0, 60.0)


def wish(problem: str, limit: float, *, rate: float = 40.0, percentile: float = 99.0, **times: Any) -> Files:
    """One task on one machine type, at batches of 1, 4 and 16; `times` are further statistics, as parts of the mean."""
    columns = {"batch": [1, 4, 16], "mean": list(MEANS)}
    columns |= {name: [part * one for one in MEANS] for name, part in times.items()}
    larger = {name: column if name == "batch" else [1.1 * one for one in column] for name, column in columns.items()}
    models = {"net": model({"gpu": columns}, task="see", quality=0.7)}
    wanted = app("see", by="task", rate=rate, limits={percentile: limit})
    if problem == "pool":
        wanted = app("net", rate=rate, limits={percentile: limit}, sizes={1: 1.0})
    else:
        models["big"] = model({"gpu": larger}, task="see", quality=0.8)
    if problem == "pipeline":
        wanted = app("one", by="pipeline", rate=rate, limits={percentile: limit})
    return files(
        machines={"gpu": machine(1.0, stock=40)}, models=models, apps={"web": wanted}, problem=problem,
        pipelines={"one": pipeline([], ["see"])} if problem == "pipeline" else None,
    ).limited(counts={"gpu": (4, 4) if problem == "policy" else (0, 40)})  # fmt: skip


@pytest.mark.parametrize(
    ("problem", "sizing"),
    [
        *((problem, "formula") for problem in PLAYED if problem != "policy"),
        *(pytest.param(problem, "simulation", marks=pytest.mark.slow) for problem in PLAYED),
    ],
)
def test_no_plan_promises_less_than_the_service_times_alone(problem: str, sizing: str) -> None:
    draw = random.Random(f"{problem} {sizing}")
    times = draw.uniform(2.5, 6.0)
    limit = MEANS[0] * times * draw.uniform(0.4, 0.9)
    answer = solve(wish(problem, limit, p50=0.95, p95=1.4, p99=times), sizing)
    assert (answer.code, answer.is_plan) == (EXIT["infeasible"], False), answer
    assert any("though none waits" in one for one in answer.conflict), answer.conflict
    assert any("latency.p" in one for one in answer.repairs)


@pytest.mark.quick_sample(1)
@pytest.mark.parametrize("part", [0.4, 0.8, 0.99])
def test_a_promise_below_the_service_times_alone_is_no_promise(part: float) -> None:
    """Of a plan that was made honestly: the limit and what was promised are made tighter than the times are."""
    draw = random.Random(str(part))
    least = MEANS[0] * draw.uniform(2.5, 4.0)
    honest = wish("pool", 6.0 * least, p50=0.95, p95=1.4, p99=least / MEANS[0])
    plan = solve(honest).plan
    assert plan is not None
    assert verify(plan, honest).is_ok

    def tighter(document: dict[str, Any]) -> None:
        for promise in document["promises"]:
            if promise["quantity"] == "response_ms":
                promise |= {"value": part * least, "interval": [0.5 * part * least, part * least]}

    findings = verify(forged(plan, tighter), honest).findings
    assert any("service times alone" in one for one in findings), findings


@pytest.mark.parametrize("problem", ["pool", "variants", "pipeline"])
@pytest.mark.parametrize("limit", [60.0, 400.0])
def test_a_plan_of_rates_alone_says_that_queries_wait(problem: str, limit: float) -> None:
    answer = solve(wish(problem, limit), "fluid")
    assert answer.is_plan, answer
    assert "W-queueing" in answer.warned()
    assert not any(one.is_simulated for one in answer.promises)


@pytest.mark.quick_sample(3)
@pytest.mark.parametrize(
    ("percentile", "times", "warning"),
    [
        pytest.param(99.0, {}, "W-mean-times", marks=pytest.mark.slow),
        (99.0, {"p50": 0.9, "p99": 1.5}, None),
        pytest.param(99.9, {"p50": 0.9, "p99": 1.5}, "W-latency-unchecked", marks=pytest.mark.slow),
    ],
)
def test_a_percentile_that_no_measured_time_supports_is_said_to_rest_on_an_assumption(
    percentile: float, times: dict[str, float], warning: str | None
) -> None:
    """Where nothing as rare was measured the plan is not called verified."""
    answer = solve(wish("variants", 150.0, rate=30.0, percentile=percentile, **times))
    assert answer.is_plan, answer
    assert answer.warned() & {"W-mean-times", "W-latency-unchecked"} == ({warning} if warning else set())
    assert answer.reason.startswith("verified") == (warning != "W-latency-unchecked"), answer.reason


@pytest.mark.parametrize("gap", [0, 1, 2])
@pytest.mark.slow
@pytest.mark.parametrize("sizing", ["fluid", "simulation"])
def test_a_batch_that_was_not_measured_does_not_fail_a_policy(gap: int, sizing: str) -> None:
    """A cell of a measured table that is null, at either end or within: the plan is verified."""
    made = wish("policy", 400.0, p95=1.2)
    for table in made.profile["tables"].values():
        for column in ("mean", "p95"):
            table[column][gap] = None
    answer = solve(made, sizing)
    assert (answer.code, answer.findings) == (EXIT["ok"], ()), answer


@pytest.mark.parametrize(
    ("problem", "gap", "limit"), [("variants", 0, 25.0), ("pool", 0, 25.0), ("variants", 1, 150.0)]
)
def test_a_percentile_that_is_missing_at_one_batch_is_an_assumption_and_no_fault(
    problem: str, gap: int, limit: float
) -> None:
    """There simulation takes the times to be constant, below what other batches state. The plan says so."""
    made = wish(problem, limit, rate=30.0, p99=1.5)
    for table in made.profile["tables"].values():
        table["p99"][gap] = None
    answer = solve(made)
    assert (answer.code, answer.findings) == (EXIT["ok"], ()), answer
    assert "W-mean-times" in answer.warned(), answer.warnings


@pytest.mark.quick_sample(2)
@pytest.mark.parametrize("problem", ["variants", "pool"])
@pytest.mark.parametrize("statistic", ["std", "p50", "p99"])
def test_a_spread_that_was_not_measured_in_one_cell_is_none_there_and_said(problem: str, statistic: str) -> None:
    """Whichever statistic it is: the mean is known, and the plan says what it assumes."""
    times = {"batch": [1, 8], "mean": [6.0, 24.0], statistic: [6.5 if statistic != "std" else 0.5, None]}
    sizes = {1: 0.5, 8: 0.5} if problem == "pool" else None
    wish = files(
        machines={"t4": machine(0.5, stock=20)},
        models={"net": model({"t4": times})},
        apps={"images": app("net", rate=100, limits={99: 200}, sizes=sizes)},
        problem=problem,
    )
    answer = solve(wish)
    assert answer.is_plan, answer.reason
    assert "W-mean-times" in answer.warned()
    assert verify(answer.plan, wish).is_ok
