"""Forecasts: chance is told from change, one rise from rises that come again."""

from __future__ import annotations

from random import Random

import pytest

from hetplan.dispatch.forecasting import Forecast


def counted(rate_qps: float, steps: int, step_s: float, seed: int = 1) -> list[float]:
    """Rates as they are counted where queries come by chance."""
    random, found = Random(seed), list[float]()
    for _ in range(steps):
        count, at_s = 0, random.expovariate(rate_qps)
        while at_s < step_s:
            count, at_s = count + 1, at_s + random.expovariate(rate_qps)
        found.append(count / step_s)
    return found


@pytest.mark.parametrize(("rate_qps", "lead_s"), [(5.0, 5.0), (5.0, 60.0), (20.0, 60.0), (100.0, 30.0)])
def test_what_chance_does_to_counts_is_kept_by_nobody(rate_qps: float, lead_s: float) -> None:
    """The highest count of a minute is far above the mean: by 50% where 25 are counted at a time."""
    forecast = Forecast("ewma", 0.95, step_s=5.0, lead_s=lead_s)
    asked = []
    for rate in counted(rate_qps, 1500, 5.0):
        forecast.observe(rate)
        asked.append(forecast.ahead() / forecast.point())
    assert sum(asked[500:]) / 1000 < 1.15


def test_what_chance_does_not_explain_is_believed_at_once() -> None:
    forecast = Forecast("ewma", 0.95, step_s=5.0, lead_s=5.0)
    forecast.before(counted(100.0, 50, 5.0))
    assert 90 < forecast.point() < 115
    forecast.observe(1000.0)
    assert 950 < forecast.point() < 1000


def test_one_rise_alone_decides_nothing_but_the_highest_quantile() -> None:
    rates = [1000.0] * 60 + [3000.0] * 60
    ahead = {}
    for quantile in (0.95, 0.99, 1.0):
        forecast = Forecast("ewma", quantile, step_s=5.0, lead_s=20.0)
        forecast.before(rates)
        ahead[quantile] = forecast.ahead()
    assert ahead[0.95] == pytest.approx(3000, rel=0.02)
    assert ahead[0.99] == pytest.approx(3000, rel=0.02)
    assert ahead[1.0] > 8000
    again = Forecast("ewma", 0.95, step_s=5.0, lead_s=20.0)
    again.before(([1000.0] * 20 + [3000.0] * 20) * 10)
    assert again.ahead() > 6000
