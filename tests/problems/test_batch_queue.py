"""Who waits is served together: the law of waits and of batches against a queue that is played here."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import poisson

from hetplan.problems.batch_queue import LEVELS, line_of
from hetplan.problems.batch_queue_kernels import waiting_when_a_batch_ends
from hetplan.problems.waiting import wait_probability, wait_probability_at


def played(times: tuple[float, ...], use: float, queries: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Waits and batches of queries of a Poisson stream, and how many of them found the server busy."""
    random = np.random.default_rng(3)
    come = np.cumsum(random.exponential(times[-1] / len(times) / use, queries))
    waits, sizes, free, at, busy = np.zeros(queries), np.zeros(queries), 0.0, 0, 0
    while at < queries:
        begin = max(free, come[at])
        size = min(int(np.searchsorted(come, begin, side="right")) - at, len(times))
        waits[at : at + size], sizes[at : at + size] = begin - come[at : at + size], size
        busy += size if free > come[at] else 0
        free, at = begin + times[size - 1], at + size
    return waits, sizes, busy / queries


@pytest.mark.slow
@pytest.mark.parametrize("use", [0.3, 0.7, 0.9])
def test_waits_and_batches_are_those_of_a_queue_that_is_played(use: float):
    times = (1.0, 1.3, 1.6, 1.9)
    waits, sizes, busy = played(times, use, 200_000)
    line = line_of(times, use)
    assert line.busy == pytest.approx(busy, abs=0.02)
    share = (np.arange(20_000) + 0.5) / 20_000
    wait, size = line.drawn(share, np.random.default_rng(1).permutation(share))
    for level in (0.5, 0.9, 0.99):
        assert np.quantile(wait, level) == pytest.approx(np.quantile(waits[waits > 0], level), rel=0.1, abs=0.1)
    late = waits > 0
    for count in (1, 2, 3, 4):
        assert np.mean(size == count) == pytest.approx(np.mean(sizes[late] == count), abs=0.04)
    assert (np.diff(line.wait) >= 0).all()
    assert line.wait.size == LEVELS.size


@pytest.mark.parametrize("batch", [1, 3, 5])
@pytest.mark.parametrize("rate", [0.02, 1.0])
def test_the_law_when_a_batch_ends_is_the_one_that_its_equations_give(batch: int, rate: float):
    """n' = max(n - m, 0) + A with m = min(n, b), or 1 where none wait; who is beyond the last state counts there."""
    size = 9
    came = poisson.pmf(np.arange(size), rate * (1.0 + 0.4 * np.arange(batch))[:, None])
    moves = np.zeros((size, size))
    for waiting in range(size):
        served = max(min(waiting, batch), 1)
        for more in range(size):
            moves[waiting, min(max(waiting - served, 0) + more, size - 1)] += came[served - 1, more]
        moves[waiting, -1] += 1.0 - came[served - 1].sum()
    balance = np.vstack([moves.T - np.eye(size), np.ones(size)])
    law = np.linalg.lstsq(balance, np.append(np.zeros(size), 1.0), rcond=None)[0]
    assert waiting_when_a_batch_ends(came, size) == pytest.approx(law, rel=1e-9, abs=1e-15)
    if batch == 1:  # Of M/D/1 the law is known; here its end is cut off.
        found = waiting_when_a_batch_ends(poisson.pmf(np.arange(80), 0.6)[None, :], 80)
        assert found[:3] == pytest.approx(0.4 * np.array([1.0, np.exp(0.6) - 1.0, np.exp(1.2) - 1.6 * np.exp(0.6)]))


def test_one_at_a_time_all_are_busy_as_erlang_says():
    for servers, load in ((1, 0.4), (3, 2.5), (20, 17.0), (500, 480.0)):
        assert wait_probability_at(servers, load, load / servers) == pytest.approx(
            wait_probability(servers, load), rel=1e-9
        )
    assert wait_probability_at(2000, 0.01, 0.00001) == pytest.approx(0.0, abs=1e-100)
