"""RAMSIS: tables of both kinds and the trace come back; facts of the specification hold on what was loaded."""

import pytest

from hetplan import load
from hetplan_papers.datasets import ramsis
from hetplan_papers.datasets.sources import DATA, as_id, read

DATA_SET = "ramsis"
pytestmark = pytest.mark.usefixtures("needs_data")


@pytest.mark.parametrize(("task", "count"), [("image", 9), ("text", 5)])
def test_the_repaired_tables_come_back(task: str, count: int):
    import numpy as np

    profile, slo = ramsis.inputs(task, 150.0, 60, 2000.0)
    back = ramsis.published(profile, slo)
    with np.load(DATA / "ramsis" / f"{task}_artifact_inputs.npz", allow_pickle=False) as held:
        assert len(back["models"]) == len(held["models"]) == count
        for name, quality, row in zip(held["models"], held["acc"], held["lat_us"], strict=True):
            model = back["models"][as_id(str(name))]
            assert model["accuracy"] == quality
            np.testing.assert_allclose(model["lat_us"]["p95"], row, rtol=1e-15)
            assert model["batch"] == list(range(1, 34))
    assert (back["slo_ms"], back["workers"], back["load"]) == (150.0, 60, 2000.0)
    assert not load(profile, slo).warnings


@pytest.mark.parametrize(("task", "count"), [("image", 26), ("text", 5)])
def test_the_measurements_come_back(task: str, count: int):
    profile, slo = ramsis.inputs(task, 150.0, 60, (400.0, 4000.0), repaired=False)
    back = ramsis.published(profile, slo)
    measured = read(f"ramsis/{task}_profiles.json")["models"]
    assert len(back["models"]) == len(measured) == count
    for name, model in measured.items():
        found = back["models"][as_id(name)]
        assert found["accuracy"] == pytest.approx(model["accuracy"] / 100, rel=1e-15)
        assert found["batch"] == model["batch"]
        assert found["n"] == model["n"]
        for statistic in ramsis.STATISTICS:
            assert found["lat_us"][statistic] == pytest.approx([1000 * ms for ms in model[statistic]], rel=1e-15)
    assert back["load"] == {"low": 400.0, "high": 4000.0}
    load(profile, slo)


def test_the_trace_comes_back():
    profile, slo = ramsis.inputs("image", 150.0, 60, 2000.0, arrivals={"process": "gamma", "shape": 2.0})
    traced = ramsis.trace(slo)
    back = ramsis.published(profile, traced)
    held = read("ramsis/twitter_trace.json")
    assert (back["trace_qps"], back["interval_s"]) == (held["qps"], held["interval_s"])
    inputs = load(profile, traced)
    demand = inputs.slo.apps["queries"]
    assert sum(demand.series) * inputs.slo.horizon.period_s == 752_420
    assert demand.arrivals.shape == 2.0


def test_nine_of_the_image_models_are_worth_having():
    """At batch 1 by p95, the others are slower than a model at least as accurate."""
    profile = load(*ramsis.inputs("image", 150.0, 60, 2000.0, repaired=False)).profile
    kept = {
        name: (variant.quality.value, profile.tables[variant.runs[0].latency].read([{"batch": 1}], "p95").values[0])
        for name, variant in profile.variants.items()
    }
    front = {
        name
        for name, (quality, ms) in kept.items()
        if not any(q >= quality and t <= ms and (q > quality or t < ms) for q, t in kept.values())
    }
    assert front == set(load(*ramsis.inputs("image", 150.0, 60, 2000.0)).profile.variants)


@pytest.mark.parametrize(("slo_ms", "most"), [(150, 9), (300, 21), (500, 32)])
def test_the_largest_batches_within_the_target(slo_ms: float, most: int):
    profile = load(*ramsis.inputs("image", slo_ms, 60, 2000.0)).profile
    batches = [{"batch": size} for size in range(1, 33)]
    tables = [profile.tables[variant.runs[0].latency] for variant in profile.variants.values()]
    fits = max(sum(table.read(batches, "p95").values <= slo_ms) for table in tables)
    assert fits == most
