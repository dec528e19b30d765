"""What `solve` accepts, every later command accepts, and reads alike: three plans that once came out otherwise."""

from __future__ import annotations

import json
from typing import Any

import pytest

import hetplan as hp
from hetplan.executor.background import Background
from hetplan.executor.serving.law import ServiceLaw
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import InputHashes, MatchingDispatch, Method, Plan
from hetplan.profiles.plan_file import plan_bytes, with_digest
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Load, Worker
from hetplan.serving.planned_system import planned_systems

Json = dict[str, Any]


def profile(variants: Json, tables: Json, **more: Any) -> Json:
    return {
        "format": "hetplan/profile/1.0",
        "hardware": {"gpu": {"kind": "gpu"}},
        "offers": {"gpu": {"hardware": "gpu", "price_per_hour": "1", "stock": 20}},
        "tasks": {"rank": {}, "name": {}},
        "variants": variants,
        "tables": {name: {"quantity": "latency_ms", **table} for name, table in tables.items()},
        **more,
    }


def slo(app: Json, **limits: Any) -> Json:
    return {"format": "hetplan/slo/1.0", "limits": limits, "apps": {"a": app}}


def figures(report: hp.SimulationReport) -> tuple[float, float]:
    found = report.apps["a"].figures
    return found["in_time"].value, found["mean_ms"].value


@pytest.mark.parametrize("at8", [40, 55])
def test_the_order_of_two_runs_on_one_hardware_changes_nothing(at8: float) -> None:
    """Once 0.0 or 0.998 of the queries were in time, by the order of the list."""
    runs = [
        {"hardware": "gpu", "at": {"batch": 8}, "latency": "at8"},
        {"hardware": "gpu", "at": {"batch": 1}, "latency": "at1"},
    ]
    tables = {
        "at8": {"axes": {"batch": [1, 8]}, "mean": [at8, 80]},
        "at1": {"axes": {"batch": [1, 8]}, "mean": [10, 50]},
    }
    app = {"model": "m", "latency": {"p99_ms": 60}, "rate_qps": "max"}
    seen = []
    for order in (runs, runs[::-1]):
        files = profile({"m": {"task": "rank", "runs": order}}, tables), slo(app, cost_per_hour="2")
        plan = hp.solve(*files, options={"sizing": "formula"}).require()
        assert plan.workers[0].loads[0].at == {"batch": 1}
        assert hp.verify(plan, *files).ok
        law = Background(load_inputs(*files).profile).law(plan, plan.workers[0].loads[0], "gpu")
        assert law is not None
        assert ServiceLaw(law).mean_ms({}, 1) == 10.0
        seen.append(figures(hp.simulate(plan, *files, seeds=2, duration_s=5.0)))
    assert seen[0] == seen[1]
    assert seen[0][0] > 0.9


@pytest.mark.slow
def test_a_pipeline_with_a_table_per_batch_is_played_as_with_one_table() -> None:
    """Once solved and verified, and refused by `simulate`: "batch 2 is outside the table"."""
    means = {1: 10, 2: 14, 4: 22, 8: 38}
    pipeline = {"p": {"nodes": {"d": {"task": "rank"}, "n": {"task": "name"}}, "edges": [{"from": "d", "to": "n"}]}}
    app = {"pipeline": "p", "latency": {"p99_ms": 400}, "quality": {"min": 0.5},
           "rate_qps": 200}  # fmt: skip
    apart = profile(
        {
            name: {"task": name, "quality": {"value": 0.9}, "runs": [
                {"hardware": "gpu", "latency": f"t{batch}", "at": {"batch": batch}} for batch in means
            ]}
            for name in ("rank", "name")
        },
        {f"t{batch}": {"axes": {"batch": [batch]}, "mean": [mean], "p50": [mean]} for batch, mean in means.items()},
        pipelines=pipeline,
    )  # fmt: skip
    grid = {"axes": {"batch": list(means)}, "mean": list(means.values()), "p50": list(means.values())}
    one = profile(
        {name: {"task": name, "quality": {"value": 0.9}, "runs": [{"hardware": "gpu", "latency": "t"}]}
         for name in ("rank", "name")},
        {"t": grid}, pipelines=pipeline,
    )  # fmt: skip
    wish = slo(app, instances={"gpu": [0, 20]})
    seen = []
    for files in ((apart, wish), (one, wish)):
        plan = hp.solve(*files).require()
        assert max(load.serve.max_batch for worker in plan.workers for load in worker.loads) > 1
        assert hp.verify(plan, *files).ok
        seen.append(figures(hp.simulate(plan, *files, seeds=2, duration_s=5.0)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("std", [[0.5, 0.3, 0.1], [0.4, 0.5, 0.02]])
def test_a_standard_deviation_that_falls_with_the_batch_stops_no_command(std: list[float]) -> None:
    """Once `load` refused the files of an applied plan: continuing the table to batch 7 gave a spread below zero."""
    table = {"axes": {"batch": [1, 2, 4]}, "mean": [6, 9, 15], "p95": [7, 10, 16], "std": std}
    files = (
        profile({"m": {"task": "rank", "quality": {"value": 0.9}, "runs": [{"hardware": "gpu", "latency": "t"}]}},
                {"t": table}),
        slo({"model": "m", "latency": {"p95_ms": 60},
             "rate_qps": {"low": 20, "high": 40}}, instances={"gpu": [1, 1]}),
    )  # fmt: skip
    plan = hp.solve(*files, options={"queue_max": 7, "sizing": "fluid"}, formulation="policy").require()
    inputs = load_inputs(*files)
    (period,) = planned_systems(plan, inputs)
    (load,) = period.system.groups[0].loads
    law = load.services["a"]
    assert law.pieces is not None
    assert law.pieces.shape[1] > 4
    data = Background(inputs.profile, inputs.slo).law(plan, plan.workers[0].loads[0], "gpu")
    assert data is not None
    for batch in range(1, law.mean_ms.shape[1] + 1):
        assert ServiceLaw(data).mean_ms({}, batch) == pytest.approx(law.mean_ms[0, batch - 1])
        assert ServiceLaw(data).draw_ms([{}] * batch) > 0


@pytest.mark.slow
def test_a_load_that_fits_two_runs_and_names_neither_is_refused_by_every_reader() -> None:
    """Plans of version 1.0 name no runs; they are read where only one is meant."""
    runs = [{"hardware": "gpu", "at": {"batch": batch}, "latency": f"at{batch}"} for batch in (8, 1)]
    tables = {f"at{batch}": {"axes": {"batch": [1, 8]}, "mean": [10, 40 + batch]} for batch in (8, 1)}
    app = {"model": "m", "latency": {"p99_ms": 60}, "rate_qps": "max"}
    wish = slo(app, cost_per_hour="2")
    for listed, refused in ((runs, True), (runs[1:], False)):
        files = profile({"m": {"task": "rank", "runs": listed}}, tables), wish
        plan = hp.solve(*files).require()
        document = json.loads(plan_bytes(plan)) | {"format": "hetplan/plan/1.0"}
        del document["workers"][0]["loads"][0]["at"]
        old = with_digest(Plan.model_validate(document))
        report, inputs = hp.verify(old, *files), load_inputs(*files)
        known, load = Background(inputs.profile), old.workers[0].loads[0]
        if not refused:
            assert report.ok
            assert known.law(old, load, "gpu") is not None
            assert len(planned_systems(old, inputs)) == 1
            continue
        assert [violation.code for violation in report.violations] == ["run-unclear"]
        both = r'fits 2 runs .* at \{"batch": 1\} and at \{"batch": 8\}'
        with pytest.raises(hp.InputError, match=both):
            planned_systems(old, inputs)
        with pytest.raises(hp.InputError, match=both):
            known.law(old, load, "gpu")


def test_one_table_for_loads_of_two_runs_is_refused_where_no_profile_says_more() -> None:
    tables = {"t": Table(quantity="latency_ms", axes={"batch": (1.0, 8.0)}, mean=(10.0, 40.0))}
    rule = MatchingDispatch(slo_ms=60, weight={"gpu": 1.0}, predict={"m@gpu": "t"})
    for second, refused in (({"batch": 1.0}, False), ({"batch": 8.0}, True)):
        loads = [Load(id=f"w{n}.a", app="a", variant="m", at=at) for n, at in enumerate(({"batch": 1.0}, second))]
        workers = tuple(Worker(id=f"w{n}", hardware="gpu", loads=(load,)) for n, load in enumerate(loads))
        plan = Plan(
            question="pool", method=Method(formulation="by-hand"), inputs=InputHashes(profile="", slo=""),
            workers=workers, dispatch={"a": rule}, tables=tables,
        )  # fmt: skip
        if refused:
            with pytest.raises(hp.InputError, match=r'w0.a at \{"batch": 1\}, w1.a at \{"batch": 8\}'):
                Background().law(plan, loads[0], "gpu")
        else:
            assert Background().law(plan, loads[0], "gpu") is not None
