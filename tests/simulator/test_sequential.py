"""Runs for and against a promise: how often a kept one is refused, and how many runs a broken one takes."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan.simulator.sequential import MOST_RUNS, Evidence

KEPT = {
    "mostly none, now and then all late": lambda rng: float(rng.random() < 0.01),
    "a few bursts": lambda rng: 0.1 * (rng.random() < 0.1),
    "alike": lambda rng: rng.gamma(4.0, 0.01 / 4.0),
    "skewed": lambda rng: min(rng.gamma(0.2, 0.01 / 0.2), 1.0),
}
"""Shares of late queries with a mean of 1%, which is what may be."""


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", KEPT)
def test_a_kept_promise_is_refused_as_seldom_as_is_said(name: str) -> None:
    rng, alpha, refused = np.random.default_rng(5), 0.05, 0
    for _ in range(400):
        found = Evidence(0.01, alpha)
        while found.count < MOST_RUNS and not found.refuted:
            found.add(KEPT[name](rng))
        refused += found.refuted
    assert refused <= 400 * alpha + 3 * (400 * alpha * (1 - alpha)) ** 0.5


@pytest.mark.parametrize(("limit", "share", "most"), [(0.01, 0.9, 4), (0.05, 0.9, 6), (0.01, 0.03, 20), (0.0, 1e-4, 1)])
def test_a_broken_promise_is_refused_after_few_runs(limit: float, share: float, most: int) -> None:
    rng, found = np.random.default_rng(7), Evidence(limit, alpha=1e-4)
    while found.count < MOST_RUNS and not found.refuted:
        found.add(min(rng.gamma(20.0, share / 20.0), 1.0))
    assert found.refuted
    assert found.count <= most


def test_a_figure_is_held_against_runs_as_far_as_both_are_known() -> None:
    rng = np.random.default_rng(9)
    refused = dict.fromkeys((0.0, 0.5), 0)
    for off in refused:
        for _ in range(400):
            told = float(np.mean(0.7 + 0.1 * rng.standard_normal(3)))
            found = Evidence(told + off, alpha=0.05, planned=3, equal=True, close=0.005)
            while found.count < MOST_RUNS and not found.refuted:
                found.add(0.7 + 0.1 * rng.standard_normal())
            refused[off] += found.refuted
    assert refused[0.0] <= 400 * 0.05 + 13
    assert refused[0.5] > 390


def test_short_runs_and_few_long_queues_do_not_show_that_a_promise_is_met() -> None:
    short, seldom, enough = (Evidence(0.01, alpha=1e-4) for _ in range(3))
    for _ in range(4):
        short.add(0.0, whole=False)
        seldom.add(0.0, spans=100.0)
        enough.add(0.0, spans=125.0)
    assert (short.met, seldom.met, enough.met) == (False, False, True)
