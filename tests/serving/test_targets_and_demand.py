"""By when, and how many."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hetplan.planner.request import Application
from hetplan.profiles.plan import InputHashes, Method, Plan, Promise, Valid
from hetplan.profiles.slo import App, Mix
from hetplan.serving.demand import classes_of, late_share, response_targets, strictest_ms
from hetplan.simulator.demand import offered_qps


def app(latency: dict[str, float] | None = None, **more: Any) -> App:
    return App.model_validate({"model": "m", "latency": latency or {}, **more})


def test_limits_by_percentile_less_a_hop_per_step() -> None:
    wish = app(
        {"p99_ms": 200, "ttft_p99_ms": 9, "p50_ms": 80},
        network_ms_per_hop=5,
    )
    targets = response_targets(wish)
    assert [(t.key, t.percentile, t.limit_ms(), t.limit_ms(3)) for t in targets] == [
        ("p50_ms", 50, 75, 65), ("p99_ms", 99, 195, 185)
    ]  # fmt: skip
    assert [t.left for t in targets] == [pytest.approx(0.5), pytest.approx(0.01)]
    assert (strictest_ms(wish), Application("a", wish, ()).limit_ms(2), late_share(wish)) == (80, 70, 0.5)


def test_without_a_limit_nothing_is_late() -> None:
    assert (strictest_ms(app()), Application("a", app(), ()).limit_ms(3), late_share(app())) == (
        math.inf,
        math.inf,
        1.0,
    )


def test_classes_and_their_shares() -> None:
    mix = Mix(axes=("batch", "size"), bins=((1, 5), (2, 6), (3, 7)), share=(0.25, 0.0, 0.75))
    classes = classes_of(mix)
    assert classes.points == ({"batch": 1.0, "size": 5.0}, {"batch": 2.0, "size": 6.0}, {"batch": 3.0, "size": 7.0})
    assert classes.coming().shares == (0.25, 0.75)
    assert classes.coming().points == (classes.points[0], classes.points[2])
    seen = Mix(axes=("batch",), bins=((1,), (8,)), observed=((1,), (2,), (8,), (3,)))
    assert classes_of(seen).shares == (0.25, 0.75)


@pytest.mark.parametrize(
    ("demand", "promised", "valid", "qps"),
    [
        ({"rate_qps": 5}, [3.0], 9.0, 5.0),
        ({"rate_qps": "max"}, [3.0, 2.0], 9.0, 2.0),
        ({"rate_qps": {"low": 1, "high": 7}}, [], 9.0, 9.0),
        ({"rate_qps": {"low": 1, "high": 7}}, [], None, 7.0),
        ({"rate_qps": {"history": [4, 6]}}, [], None, 6.0),
        ({}, [], None, 0.0),
    ],
)
def test_the_rate_to_try_a_plan_with(demand: Any, promised: list[float], valid: float | None, qps: float) -> None:
    plan = Plan(
        question="pool", method=Method(formulation="f"), inputs=InputHashes(profile="", slo=""),
        promises=tuple(Promise(app="a", quantity="rate_qps", relation=">=", value=v, model="x") for v in promised),
        valid=Valid(rate_qps={"a": (0.0, valid)}),
    )  # fmt: skip
    assert offered_qps(plan, "a", app(**demand)) == qps
