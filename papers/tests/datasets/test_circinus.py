"""Circinus: facts come back, in the file's units; queries and packings are those of the specification."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from hetplan import load
from hetplan.extend import load_profile, load_slo
from hetplan_papers.datasets import circinus
from hetplan_papers.datasets.circinus_generator import (
    APPS,
    BANDWIDTH,
    GRID,
    HOP_S,
    PRICE,
    STRATA,
    TIERS,
    SyntheticPacking,
    draw,
    draw_machines,
    draw_packing,
)
from hetplan_papers.datasets.sources import as_id, read

DATA_SET = "circinus"
with_data = pytest.mark.usefixtures("needs_data")


@with_data
@pytest.mark.parametrize("name", circinus.APPS)
def test_an_application_comes_back(name: str):
    query = draw(name, 0)
    profile, slo = query.profile(), query.slo(gpus=(4, 4))
    back = circinus.published(profile, slo)
    facts = read("circinus/circinus.json")["synthetic"]
    chosen = facts["apps"][name]
    for key in ("tiers", "latency_s", "resource_grid", "strata"):
        assert back[key] == facts[key]
    assert back["bandwidth_bytes_per_s"] == pytest.approx(facts["bandwidth_bytes_per_s"], rel=1e-15)
    assert list(back["price_usd_per_gpu_h"].values()) == facts["price_usd_per_gpu_h"]
    assert back["speed_factor"] == {"device": 4.5, "mec": 2.2, "cloud": 1.0}
    assert (back["app"], back["metric"]) == (name, chosen["metric"])
    names = [as_id(knob["name"]) for knob in chosen["knobs"]]
    assert back["levels"] == {knob: len(held["levels"]) for knob, held in zip(names, chosen["knobs"], strict=True)}
    assert list(back["reads"]) == [as_id(op["name"]) for op in chosen["ops"]]
    for op in chosen["ops"]:
        assert set(back["reads"][as_id(op["name"])]) == {names[k] for k in (*op["compute_knobs"], *op["output_knobs"])}
    assert (back["accuracy_min"], back["latency_max_s"]) == (query.accuracy_min, pytest.approx(query.latency_max_s))
    assert back["device"]["speed_factor"] == query.relative_time[0]
    assert back["device"]["bandwidth_bytes_per_s"] == pytest.approx(query.bandwidth)
    assert back["gpus"] == {"mec": 4, "cloud": 4}
    inputs = load(profile, slo)
    assert not inputs.warnings
    assert inputs.profile.pipelines[name.lower()].share_grid == (1, 0.75, 0.5, 0.25, 0.125)


@with_data
@pytest.mark.parametrize("name", circinus.APPS)
def test_an_application_of_the_paper_comes_back(name: str):
    facts = read("circinus/circinus.json")["paper"]["apps"][name]
    pipeline = load_profile(circinus.paper_app(name)).pipelines[name.lower()]
    assert list(pipeline.nodes) == [as_id(stage) for stage in facts["stages"]]
    assert len(pipeline.edges) == len(facts["stages"]) - 1
    assert {knob: list(levels) for knob, levels in pipeline.knobs.items()} == (facts["knobs"] or {})
    if facts["listed_configs"] is not None:
        listed = np.prod([len(levels) for levels in pipeline.knobs.values()])
        assert listed == facts["listed_configs"]


@with_data
@pytest.mark.parametrize("name", circinus.APPS)
def test_the_synthetic_applications_have_the_constants_of_the_file(name: str):
    facts, paper = (read("circinus/circinus.json")[part] for part in ("synthetic", "paper"))
    app, chosen = APPS[name], facts["apps"][name]
    assert (list(TIERS), list(PRICE), list(GRID), STRATA) == (
        facts["tiers"], facts["price_usd_per_gpu_h"], facts["resource_grid"], facts["strata"],
    )  # fmt: skip
    assert tuple(facts["bandwidth_bytes_per_s"].values()) == BANDWIDTH
    assert tuple(list(facts["latency_s"].values())[:2]) == HOP_S
    assert app.fixed_samples == paper["apps"][name]["fixed_samples"]
    assert app.seed == facts["seed_app_sum"][name]
    assert (app.bernoulli, app.sd) == (chosen["metric"] == "bernoulli", chosen["sample_sd"])
    for knob, given in zip(app.knobs, chosen["knobs"], strict=True):
        assert knob.levels == pytest.approx(given["levels"], abs=1e-9)
        assert knob.effect == pytest.approx(given["accuracy_effect"], abs=1e-9)
    for step, given in zip(app.steps, chosen["ops"], strict=True):
        assert (step.ms, step.bytes) == (given["a100_ms"], given["output_bytes"])
        assert (list(step.compute), list(step.output)) == (given["compute_knobs"], given["output_knobs"])


@pytest.mark.parametrize(
    ("name", "seed", "feasible", "accuracy", "latency_s", "dollars"),
    [
        ("SR", 0, 409, 0.705789, 0.577059, 0.0),
        ("VT", 1, 569, 0.571594, 0.338807, 0.0),
        ("LVC", 1, 170, 0.537056, 0.497498, 0.0),
        ("DVC", 0, 580, 0.633922, 1.009652, 6.4225),
        ("ACG", 0, 63, 0.526377, 8.907202, 2.7525),
    ],
)
def test_the_queries_drawn_are_those_of_the_specification(name, seed, feasible, accuracy, latency_s, dollars):
    query = draw(name, seed)
    assert len(query.feasible()) == feasible
    assert query.accuracy_min == pytest.approx(accuracy, abs=1e-6)
    assert query.latency_max_s == pytest.approx(latency_s, abs=1e-6)
    assert query.least_cost == pytest.approx(dollars, abs=1e-9)


def test_there_are_as_many_plans_as_the_specification_counts():
    drawn = {name: draw(name, 100) for name in circinus.APPS}
    counts = {name: len(query.mean) * len(query.placements) for name, query in drawn.items()}
    assert counts == {"SR": 6480, "VT": 6480, "LVC": 6885, "DVC": 23328, "ACG": 1080}


def test_samples_scatter_about_the_truth():
    for name in ("LVC", "SR"):
        query = draw(name, 0)
        knobs = {knob.name: int(at) for knob, at in zip(query.app.knobs, np.unravel_index(
            3, [len(knob.levels) for knob in query.app.knobs]), strict=True)}  # fmt: skip
        scores = query.many(knobs, 0, 32_000)[0][2::STRATA]
        assert np.mean(scores) == pytest.approx(query.mean[3, 2], abs=0.03)
        assert (set(scores) <= {0.0, 1.0}) == query.app.bernoulli


def _bound(drawn: SyntheticPacking, *, whole: bool = False) -> float:
    demand = np.concatenate(drawn.demands)
    owner = np.concatenate([np.full(len(rows), i) for i, rows in enumerate(drawn.demands)])
    one_each = sparse.csr_matrix((np.ones(len(owner)), (owner, np.arange(len(owner)))))
    rows = LinearConstraint(
        sparse.vstack([sparse.csr_matrix(demand.T), one_each]),
        -np.inf,
        np.concatenate([drawn.capacity, np.ones(len(drawn.demands))]),
    )
    answer = milp(
        -drawn.weight[owner], constraints=rows, bounds=Bounds(0, 1), integrality=int(whole) * np.ones(len(owner))
    )
    return -answer.fun


@pytest.mark.parametrize(("count", "seed", "bound"), [(100, 0, 73.2563), (100, 1, 68.6992), (1000, 0, 644.8283)])
def test_packings_have_the_bounds_of_the_specification(count: int, seed: int, bound: float):
    assert _bound(draw_packing(count, seed)) == pytest.approx(bound, abs=5e-5)


def test_a_packing_goes_into_candidates_and_back():
    drawn = draw_packing(20, 0, weighted=True)
    slo = load_slo(drawn.slo())
    for app, rows, weight in zip(slo.apps.values(), drawn.demands, drawn.weight, strict=True):
        assert app.weight == weight
        assert [list(one.demand.values()) for one in app.candidates] == rows.tolist()
    assert list(slo.limits.capacity.values()) == drawn.capacity.tolist()


def test_machine_packings_are_in_eighths():
    drawn = draw_machines(30, 1, 1)
    rows = np.concatenate(drawn.demands)
    assert (rows[:, 0] == 0).all()
    assert (rows * 8 == np.round(rows * 8)).all()
    assert (rows.max(axis=1) > 0).all()
    assert drawn.capacity.tolist() == [0, 1, 1]
