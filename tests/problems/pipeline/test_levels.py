"""One latency level per step: closed where a gap of 0 is asked for, never worse by more levels, small clusters."""

import json
from pathlib import Path

import numpy as np
import pytest
from cases.pipelines import fluid

from hetplan.api.solve import choose, pose
from hetplan.problems.pipeline import latency_levels, sizing, small_cluster
from hetplan.problems.pipeline.latency_levels import level_choices
from hetplan.problems.pipeline.tree import all_levels
from hetplan.profiles.load import load_inputs
from hetplan_papers.datasets import loki_generator

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pipeline"
STREET = (EXAMPLE / "profile.json", EXAMPLE / "slo.json")
SOCIAL = (EXAMPLE / "social-profile.json", EXAMPLE / "social-slo.json")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("files", [SOCIAL, STREET], ids=["social", "street"])
def test_a_gap_of_0_is_closed_at_the_exact_value(files):
    closed = fluid(*files, formulation="loki-budget", gap=0.0)
    assert closed.exit_code == 0, (closed.reason, closed.why)
    claim = closed.plan.claims[0]
    assert claim.gap <= 1e-9
    assert claim.value == pytest.approx(fluid(*files).plan.claims[0].value, abs=1e-6)


def test_choices_of_levels_are_in_time_and_none_could_be_longer():
    inputs = load_inputs(*STREET)
    (tree,) = pose(inputs, choose(inputs)).served
    found = list(level_choices(tree))
    every = all_levels(tree)
    assert 1 < len(found) < 10
    for chosen in found:
        for sink in tree.sinks:
            assert sum(chosen[t] for t in tree.path(sink)) <= tree.limit_ms[sink] + 1e-9
        for t, ms in enumerate(chosen):
            longer = [other for other in every[t] if other > ms]
            if longer:
                moved = [*chosen[:t], longer[0], *chosen[t + 1 :]]
                assert any(sum(moved[u] for u in tree.path(s)) > tree.limit_ms[s] + 1e-9 for s in tree.sinks)


@pytest.mark.slow
def test_a_bushy_pipeline_on_a_few_servers_has_a_good_plan():
    files = loki_generator.inputs(loki_generator.T5, servers=20, utilisation=1.5)
    claim = fluid(*files, formulation="loki-budget").plan.claims[0]
    assert claim.gap <= 0.01


def test_a_limit_in_seconds_never_leaves_nothing(monkeypatch):
    """Where the time is up before latency levels are chosen, the plan is the one that was found before."""
    none = latency_levels.Infeasibility(why=("no plan was found: time",), proved=False)
    monkeypatch.setattr(latency_levels, "_choose", lambda *_: none)
    monkeypatch.setattr(latency_levels, "_solve_exactly", lambda *_: none)
    files = loki_generator.inputs(((1,), ()), servers=8, utilisation=1.5, variants=6)
    assert fluid(*files, formulation="loki-budget").exit_code != 0
    ended = fluid(*files, formulation="loki-budget", time_limit=600.0)
    assert ended.reason == "verified", (ended.reason, ended.why)
    assert ended.plan.claims[0].value > 0.5


FORK = ((1, 2), (), ())


@pytest.mark.parametrize("formulation", ["pipeline-milp", "loki-budget"])
def test_a_bushy_pipeline_on_few_servers_is_planned_by_tables(monkeypatch, formulation):
    """With no time for programs the plan is that of the tables: here the best there is (0.98161, by the exact one)."""
    files = loki_generator.inputs(FORK, servers=8, utilisation=1.3, seed=2, variants=4)
    none = latency_levels.Infeasibility(why=("no plan was found: time",), proved=False)
    monkeypatch.setattr(sizing, "solve_config", lambda *_: none)
    ended = fluid(*files, formulation=formulation, time_limit=600.0)
    assert ended.reason == "verified", (ended.reason, ended.why)
    claim = ended.plan.claims[0]
    assert claim.value == pytest.approx(0.9816139586, abs=1e-7)
    if formulation == "loki-budget":
        assert claim.vouched == "certified"
        assert claim.gap <= 0.006


@pytest.mark.slow
def test_what_is_left_of_a_limit_betters_the_plan_of_the_tables():
    """An engine looks for whole servers at their levels; without a limit nobody waits for that."""
    files = loki_generator.inputs(FORK, servers=7, utilisation=1.5, seed=4, variants=5)
    found, left = [
        fluid(*files, formulation="loki-budget", time_limit=most).require().claims[0] for most in (None, 600.0)
    ]
    assert found.value == pytest.approx(0.9535454, abs=1e-6)
    assert left.value == pytest.approx(0.9600105, abs=1e-6)
    assert (left.bound, left.vouched) == (found.bound, "certified")


def test_several_pipelines_divide_the_servers_as_well_as_every_division():
    chance = np.random.default_rng(1)
    size = (3, 2, 2)
    worth = [np.maximum.accumulate(chance.uniform(-0.3, 1, (4, 3, 3)), axis=0) for _ in range(3)]
    worth = [np.where(one < 0, small_cluster.NONE, one) for one in worth]
    every = list(np.ndindex(4, 3, 3))
    parts = [every[cell] for cell in small_cluster._Space(size).divide([one.ravel() for one in worth], len(every) - 1)]
    best = max(
        sum(one[by] for one, by in zip(worth, (a, b, left), strict=True))
        for a in every
        for b in every
        if min(left := tuple(np.subtract(size, np.add(a, b)))) >= 0
    )
    assert sum(one[by] for one, by in zip(worth, parts, strict=True)) == pytest.approx(best)
    assert tuple(np.sum(parts, axis=0)) == size


@pytest.mark.slow
def test_a_wide_gap_is_said_whatever_was_asked_for():
    slo = json.loads(STREET[1].read_text())
    slo["apps"]["cameras"]["latency"]["p99_ms"] = 260
    found = fluid(STREET[0], slo, gap=0.5)
    assert found.violations == ()
    assert found.plan.claims[0].gap > 0.05
    assert any(one.code == "W-gap" for one in found.plan.warnings)
