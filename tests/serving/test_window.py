"""How many queries come in a window: against closed forms and counts that the tests draw, and never above them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hetplan.profiles.slo import Arrivals
from hetplan.serving.window import busiest, excess_of, least_work

POISSON = Arrivals()
BURSTS = Arrivals(process="mmpp", relative_rates=(0.6, 1.8), stay_s=(2.0, 1.0))
THREE = Arrivals(process="mmpp", relative_rates=(0.0, 1.0, 2.5), stay_s=(1.0, 0.5, 2.0 / 3.0))
SMOOTH, ROUGH = Arrivals(process="gamma", shape=3.0), Arrivals(process="gamma", shape=0.3)


def states_in_turn(rng: np.random.Generator, stays: tuple[float, ...], length_s: float) -> NDArray[Any]:
    """When each state begins, the first at 0: as many as are needed."""
    turns = int(1.5 * length_s / sum(stays)) + 50
    return np.concatenate([[0.0], np.cumsum(rng.exponential(np.tile(stays, turns)))])


def drawn_counts(arrivals: Arrivals, rate: float, seconds: float, windows: int) -> NDArray[Any]:
    """Counts of so many windows, one after the other, some way into the process."""
    rng, skip = np.random.default_rng(3), 50.0 * seconds + 50.0
    length = skip + windows * seconds
    if arrivals.process == "mmpp":
        stays, rates = arrivals.stay_s or (), arrivals.relative_rates or ()
        begins = states_in_turn(rng, stays, length)
        lasts = np.diff(begins)
        each = rng.poisson(rate * np.resize(rates, lasts.size) * lasts)
        times = np.repeat(begins[:-1], each) + rng.random(each.sum()) * np.repeat(lasts, each)
    else:
        shape = arrivals.shape or 1.0
        times = np.cumsum(rng.gamma(shape, 1.0 / (shape * rate), int(1.1 * rate * length) + 1000))
    return np.histogram(times, skip + seconds * np.arange(windows + 1))[0]


def test_of_poisson_arrivals_it_is_the_closed_form() -> None:
    from scipy.stats import poisson

    for rate, seconds in ((4.0, 0.5), (300.0, 0.2), (2000.0, 3.0)):
        excess, mean = excess_of(POISSON, rate, seconds), rate * seconds
        assert excess is not None
        k = np.arange(int(mean + 40 * mean**0.5) + 50)
        for c in {0, 1, int(mean), int(mean + 3 * mean**0.5)}:
            assert excess(c) == pytest.approx(float(np.maximum(k - c, 0) @ poisson.pmf(k, mean)), rel=1e-8)


@pytest.mark.quick_sample(4)
@pytest.mark.parametrize("seconds", [0.05, 0.8, 5.0])
@pytest.mark.parametrize("arrivals", [SMOOTH, ROUGH, BURSTS, THREE], ids=["smooth", "rough", "bursts", "three states"])
def test_it_is_no_more_than_what_is_counted_and_nearly_as_much(arrivals: Arrivals, seconds: float) -> None:
    rate, windows = 60.0, 40_000 if seconds < 1.0 else 8_000
    counts, excess = drawn_counts(arrivals, rate, seconds, windows), excess_of(arrivals, rate, seconds)
    assert excess is not None
    for c in {int(np.quantile(counts, share)) for share in (0.3, 0.8, 0.97)}:
        seen = np.maximum(counts - c, 0).reshape(50, -1).mean(axis=1)  # windows in a row hang together
        error = float(seen.std()) / 50**0.5
        assert excess(c) <= float(seen.mean()) + 4.0 * error
        assert excess(c) >= 0.99 * float(seen.mean()) - 4.0 * error


@pytest.mark.parametrize("arrivals", [ROUGH, BURSTS, THREE], ids=["rough", "bursts", "three states"])
def test_the_atoms_of_a_window_are_nowhere_above_it(arrivals: Arrivals) -> None:
    window = busiest(arrivals, 80.0, 0.06, 0.01)
    assert window is not None
    excess = excess_of(arrivals, 80.0, window.seconds)
    assert excess is not None
    assert float(window.chance.sum()) < 1.0
    above = [float(window.chance @ np.maximum(window.count - c, 0.0)) for c in range(200)]
    whole = [excess(c) for c in range(200)]
    assert all(atoms <= most for atoms, most in zip(above, whole, strict=True))
    # And they lose little where it counts: about where a hundredth of the queries is left over. Half of them lose more.
    at = next(c for c in range(200) if whole[c] <= 0.01 * window.mean)
    assert above[at] >= 0.95 * whole[at]
    fewer = window.coarser()
    assert fewer.count.size == (window.count.size + 1) // 2
    assert all(fewer.chance @ np.maximum(fewer.count - c, 0.0) <= above[c] * (1.0 + 1e-12) for c in range(200))


def test_more_machines_are_asked_for_by_rarer_lateness_and_rougher_arrivals() -> None:
    factor: Callable[..., float] = lambda *given: getattr(busiest(*given), "factor", 1.0)  # noqa: E731
    assert factor(BURSTS, 500.0, 0.05, 0.001) > factor(BURSTS, 500.0, 0.05, 0.01) > 1.5
    assert factor(BURSTS, 500.0, 0.05, 0.01) > factor(BURSTS, 500.0, 0.5, 0.01)
    assert factor(ROUGH, 80.0, 0.06, 0.01) > factor(POISSON, 80.0, 0.06, 0.01) >= 1.0
    assert busiest(POISSON, 5000.0, 0.1, 0.01) is None


@pytest.mark.parametrize("process", ["deterministic", "diurnal", "empirical"])
def test_of_arrivals_that_change_over_the_day_nothing_is_claimed(process: str) -> None:
    shape = {"peak": 1.5, "period_s": 3600.0} if process == "diurnal" else {}
    assert busiest(Arrivals(process=process, **shape), 100.0, 0.05, 0.01) is None


@pytest.mark.parametrize("limit", [6.0, 12.0, 40.0])
@pytest.mark.parametrize("std", [0.5, 8.0])
def test_what_a_query_in_time_takes_is_no_more_than_the_integral_and_nearly_as_much(std: float, limit: float) -> None:
    from scipy.integrate import quad
    from scipy.stats import lognorm

    from hetplan.serving.distribution import distribution_of

    times, sigma = distribution_of(mean=10.0, std=std), float(np.sqrt(np.log1p((std / 10.0) ** 2)))
    assert times is not None
    law = lognorm(sigma, scale=10.0 * np.exp(-(sigma**2) / 2.0))
    share = float(law.cdf(limit))
    if share < 1e-9:
        assert least_work(times, limit) >= 1e4 * limit
        return
    exact = float(quad(law.sf, 0.0, limit, limit=200)[0]) / share
    assert 0.98 * exact <= least_work(times, limit) <= exact * (1.0 + 1e-9)


@pytest.mark.parametrize("arrivals", [POISSON, BURSTS, ROUGH])
def test_of_next_to_no_queries_nothing_is_claimed(arrivals: Arrivals) -> None:
    found = [busiest(arrivals, rate, 0.1, late) for rate in (1e-12, 1e-9, 1e-3) for late in (1e-9, 0.01)]
    assert all(window is None or window.count.size for window in found)
    assert busiest(arrivals, 1e-12, 0.1, 0.01) is None
