"""The figures of `figures.json` do not get worse: value, bound, and what fresh seeds show of each plan.

A better plan passes, and says so as a warning: `record.py` then makes the figures anew.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from golden.record import FIGURES, figures, wishes

RECORDED: dict[str, Any] = json.loads(FIGURES.read_text())
WORSE = {"fluid": 1e-6, "simulation": 0.02}
"""How much worse a value may be, as a share of it: a fluid program has one value; a search by simulation has luck."""
FLEET_GAP = 0.003
"""A fleet is a search at fluid rates, too: it stops within this share of its bound."""
BOUND_WORSE = 1e-4
"""How much weaker a bound may be: an engine stops within this share of its optimum."""
QUICK = {"pool": 4, "variants": 4, "pipeline": 2, "llm": 4, "fleet": 1, "example": 0, "policy": 0}
SLOW = {"pool": 5, "variants": 5, "pipeline": 3, "llm": 5, "fleet": 2, "policy": 1}
"""How many wishes of each problem are among the quick tests (at fluid rates), and among the slow (in both sizes)."""


LONG = {(f"example {name}", "simulation") for name in ("fleet", "policy", "policy-fewest")}
"""What takes up to a minute; other tests of `.ci/run` solve and play these."""


def cases() -> list[Any]:
    """Every wish and sizing, quick or slow."""
    made = []
    for name in RECORDED:
        problem, _, number = name.partition(" ")
        for sizing in WORSE:
            quick = sizing == "fluid" and number.isdigit() and int(number) < QUICK[problem]
            long = (name, sizing) in LONG or (number.isdigit() and int(number) >= SLOW[problem])
            mark = () if quick else pytest.mark.longest if long else pytest.mark.slow
            made.append(pytest.param(name, sizing, marks=mark))
    return made


def loss(sense: str, now: float, before: float) -> float:
    """By which share a value is worse than it was; negative where it is better."""
    difference = now - before if sense == "min" else before - now
    return difference / max(abs(before), 1e-9)


@pytest.mark.parametrize(("name", "sizing"), cases())
def test_no_figure_is_worse(name: str, sizing: str) -> None:
    before, now = RECORDED[name][sizing], figures(name, sizing)
    assert set(now["claims"]) == set(before["claims"])
    assert now.get("meets") or not before.get("meets"), now["violations"]
    allowed = max(WORSE[sizing], FLEET_GAP if "fleet" in name else 0.0)
    for place, (objective, (sense, value, bound)) in enumerate(before["claims"].items()):
        _, value_now, bound_now = now["claims"][objective]
        worse = loss(sense, value_now, value)
        if worse < -allowed:
            warnings.warn(f"better: {name}, {sizing}: {objective} is {value_now:g}, was {value:g}", stacklevel=1)
            return  # what comes after in importance may be worse for it
        assert worse <= allowed, (objective, value_now, value)
        if place == 0 and bound is not None:  # the bounds of later objectives hang on what the first came to
            assert loss("max" if sense == "min" else "min", bound_now, bound) <= BOUND_WORSE, objective


def test_every_wish_is_recorded() -> None:
    assert set(RECORDED) == set(wishes())
