"""Ranges, conditions and rules of knobs; settings that nobody can list."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.measure.evaluator_profiler import measuring
from hetplan.measure.journal import Journal
from hetplan.planner.answer import Limits
from hetplan.planner.forms.black_box import Aim, BlackBox, Measured, Operator, Placed, Verdict
from hetplan.planner.forms.space import Rule, Space
from hetplan.solvers.search_wide import Grid, PointProcess, Weights, Wide

SPACE = {
    "ranges": {"top": {"from": 1, "to": 4, "kind": "integer"}, "heat": {"from": 0.0, "to": 1.0, "points": 3}},
    "matters": {"heat": {"model": ["large"]}},
    "rules": [{"if": {"model": ["small"]}, "then": {"top": [1, 2]}}],
    "rising": [["top", "candidates"]],
}


def profile(space: dict | None = None, models: int = 2) -> dict:
    names = ["small", "large", *(f"m{k}" for k in range(models - 2))]
    knobs = {"model": names, "candidates": [2, 8]}
    return {
        "format": "hetplan/profile/1.0", "tiers": ["here"], "metrics": {"right": {"range": [0, 1]}},
        "hardware": {"box": {"kind": "gpu", "tier": "here", "provides": {"gpu": 4}}},
        "offers": {"box-share": {"hardware": "box", "price_per_hour": "1", "per": "gpu"}},
        "pipelines": {"rag": {
            "nodes": {"find": {"device": "gpu", "reads": ["candidates", "top"]},
                      "write": {"device": "gpu", "reads": ["model", "heat", "top"]}},
            "edges": [{"from": "find", "to": "write"}], "knobs": knobs, "metric": "right", "evaluator": "e",
            "space": SPACE if space is None else space,
        }},
    }  # fmt: skip


SLO = {
    "format": "hetplan/slo/1.0",
    "objective": ["max quality"],
    "apps": {"ask": {"pipeline": "rag", "streams": 1}},
}


def score(knobs) -> float:
    """The truth; what does not matter must not be looked at."""
    large = knobs["model"] == "large"
    return 0.5 + 0.03 * knobs["top"] + 0.01 * knobs["candidates"] + (0.1 - 0.2 * abs(knobs["heat"] - 0.5)) * large


def evaluate(knobs, stratum: int, index: int):
    seconds = {"find": 0.01 * knobs["candidates"], "write": 0.05 * knobs["top"]}
    return {"score": score(knobs), "seconds": seconds, "bytes": {"find": 1.0, "write": 1.0}, "input_bytes": 1.0}


def allowed(knobs) -> bool:
    if knobs["model"] != "large" and knobs["heat"] != 0.0:
        return False
    return knobs["top"] <= knobs["candidates"] and (knobs["model"] != "small" or knobs["top"] <= 2)


def test_a_space_with_conditions_and_rules_is_searched_whole_and_the_best_is_that_of_all(tmp_path):
    settings = [
        knobs
        for model, candidates, top, heat in product(("small", "large"), (2, 8), range(1, 5), (0.0, 0.5, 1.0))
        if allowed(knobs := {"model": model, "candidates": candidates, "top": top, "heat": heat})
    ]
    asked = []

    def noted(knobs, stratum, index):
        asked.append(tuple(sorted(knobs.items())))
        return evaluate(knobs, stratum, index)

    journal = Journal(tmp_path / "journal.jsonl")
    measure = measuring(noted, journal=journal)
    outcome = hp.solve(profile(), SLO, evaluate=measure, options={"max_measurements": 500, "samples_min": 2})
    assert outcome.exit_code == 0, (outcome.why, outcome.violations)
    assert {tuple(sorted(one.items())) for one in settings} == set(asked), "each allowed setting, and no other"
    chosen = dict(outcome.require().dispatch["ask"].knobs)
    assert score(chosen) == pytest.approx(max(map(score, settings)))


def test_a_plan_that_breaks_a_rule_of_knobs_fails_its_verification():
    measure = measuring(evaluate)
    plan = hp.solve(profile(), SLO, evaluate=measure, options={"max_measurements": 4, "samples_min": 2}).require()
    rule = plan.dispatch["ask"]
    for change in ({"model": "small", "top": 4}, {"candidates": 2, "top": 4}, {"model": "small", "heat": 0.5}):
        forged = rule.model_copy(update={"knobs": {**rule.knobs, **change}})
        spoilt = plan.model_copy(update={"dispatch": {"ask": forged}})
        assert any(one.code == "knob" for one in hp.verify(spoilt, profile(), SLO).violations), change


@pytest.mark.parametrize(
    ("space", "why"),
    [
        ({"ranges": {"model": {"from": 0, "to": 1}}}, "levels and a range"),
        ({"ranges": {"top": {"from": 2, "to": 1}}}, "from less to more"),
        ({"ranges": {"top": {"from": 0.5, "to": 3, "kind": "integer"}}}, "whole numbers"),
        ({"ranges": {"top": {"from": 0, "to": 3, "scale": "log"}}}, "begins above 0"),
        ({"matters": {"top": {"model": ["large"]}}}, "no knob 'top'"),
        ({**SPACE, "rules": [{"if": {"model": ["huge"]}, "then": {"top": [1]}}]}, "no level of model"),
        ({**SPACE, "rising": [["top", "model"]]}, "are no numbers"),
    ],
)
def test_spaces_that_make_no_sense_are_refused(space, why):
    with pytest.raises(InputError, match=why):
        hp.solve(profile(space), SLO, evaluate=measuring(evaluate))


def wide_box(asked: list[int], levels: tuple[int, ...] = (10,) * 6) -> BlackBox:
    space = Space(levels, rules=(Rule(((0, frozenset({9})),), ((1, frozenset({0, 1})),)),))
    rng = np.random.default_rng(5)
    skill = rng.normal(0, 1, (len(levels), max(levels)))

    def measure(c: int) -> Measured:
        row = space.row(c)
        asked.append(c)
        assert space.allowed(np.array([row])).all(), "a setting that is not allowed was measured"
        mean = 0.5 + 0.06 * sum(skill[k, place] for k, place in enumerate(row)) / 2
        times = tuple(0.01 + 0.002 * place for place in row)
        return Measured(
            c, float(np.clip(mean, 0, 1)), 0.01, 100, Verdict.PASS, True, times, (1.0,) * len(row), 1.0, 1.0
        )

    steps = range(len(levels))
    return BlackBox(
        levels, tuple(Operator(f"m{k}", (k,), (k - 1,) if k else ()) for k in steps),
        Placed(np.array([2.0, 1.0]), np.array([0.0, 1.0]), np.zeros((2, 2)), np.zeros((2, 2))),
        0.0, 0.3, measure, np.indices((2,) * len(levels)).reshape(len(levels), -1).T,
        aim=Aim(("quality",)), space=space, alike=(tuple(steps),), most=14,
    )  # fmt: skip


@pytest.mark.slow
def test_of_a_million_settings_the_search_asks_for_allowed_ones_twice_the_same_and_learns():
    runs = []
    for _ in range(2):
        asked: list[int] = []
        answer = Wide().solve(wide_box(asked), Limits(seed=3))
        assert len(asked) == len(set(asked)) == 14
        runs.append((asked, answer.value))
    assert runs[0] == runs[1]
    form, space = wide_box([]), Space((10,) * 6)
    drawn = [form.measure(space.number(row)) for row in form.space.draw(np.random.default_rng(0), 150).tolist()]
    at_random = sorted(one.mean for one in drawn if form.at_full(one).min() <= form.limit_s)
    assert -runs[0][1] > at_random[-4], "14 measurements are worth more than 60 at random"


@pytest.mark.parametrize(
    "grid",
    [
        Grid((5, 5, 5, 4, 6), (False, False, False, False, True), ((0, 1, 2),), ((0, 1), (1, 2))),
        Grid((3, 3, 4, 4), (False,) * 4, ((0, 1), (2, 3)), ((0, 1),)),
        Grid((4, 6), (True, False)),
    ],
)
def test_weights_follow_the_slope_of_the_likelihood(grid: Grid):
    random = np.random.default_rng(0)
    rows = np.stack([random.integers(0, size, 25) for size in grid.levels], axis=1)
    values, noise, weights = random.normal(size=25), np.full(25, 0.05), Weights(grid)
    assert np.diag(weights.kernel(rows, rows)) == pytest.approx(weights.own(rows))

    def unlikely(at: np.ndarray) -> float:
        weights.set(at)
        return weights.slope(rows, grid.each(rows, rows), values, noise)[0]

    at, near = weights.prior + random.normal(0.0, 0.3, weights.prior.size), 1e-5 * np.eye(weights.prior.size)
    weights.set(at)
    slope = weights.slope(rows, grid.each(rows, rows), values, noise)[1]
    by_differences = [(unlikely(at + step) - unlikely(at - step)) / 2e-5 for step in near]
    assert slope == pytest.approx(np.where(weights.known, by_differences, 0.0), abs=1e-5)
    weights.set(weights.prior)
    before = unlikely(weights.prior)
    weights.fit(rows, values, noise)
    assert unlikely(weights.at) < before


def test_a_process_learns_what_a_model_does_anywhere_and_what_two_in_a_row_do():
    """Of three steps only the first and second were seen with model 7, and never twice in a row at the last two."""
    grid = Grid((8, 8, 8), (False,) * 3, ((0, 1, 2),), ((0, 1), (1, 2)))
    random, process = np.random.default_rng(1), PointProcess(grid, 0.2)
    worth = np.array([0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.3])
    seen = [row for row in random.integers(0, 8, (60, 3)) if row[2] != 7 and row[1] != row[2]]
    for row in seen:
        process.add(row, float(worth[row].sum() - 0.15 * (row[0] == row[1])), 1e-4)
    (seventh, third, again), _ = process.posterior(np.array([[1, 2, 7], [1, 2, 3], [1, 2, 2]]))
    assert seventh - third > 0.1, "it is good at the last step too"
    assert third - again > 0.07, "twice in a row is as bad there"
