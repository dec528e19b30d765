"""Looks at plans: how they go on, and are counted; and runs that put a plan to the test: how long they are."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from build import app, files, machine, model
from cases.simulated import app_saying, report_of

from hetplan.errors import InputError
from hetplan.planner.answer import Limits
from hetplan.planner.sizing import LOOKS
from hetplan.problems.draft_simulation import LEAST_SPANS, MOST_LONGER, PlanRuns, Simulations
from hetplan.profiles.load import load_inputs

FILES = files(
    machines={"m0": machine(1.0)}, models={"net": model({"m0": {1: 10.0}})}, apps={"ask": app("net", rate=50.0)}
)
WISH: Any = load_inputs(FILES.profile, FILES.slo)


@pytest.mark.parametrize(("spans", "longer"), [(0.0, MOST_LONGER), (LEAST_SPANS / 2, 2.0), (2 * LEAST_SPANS, 1.0)])
def test_runs_near_full_use_are_longer_and_always_busy_machines_are_no_error(spans: float, longer: float) -> None:
    """A queue that never forgets, of machines that are always busy, is spanned 0 times."""
    asked = list[float]()

    def simulate(_plan: Any, _inputs: Any, *, seeds: int, seed: int, duration_s: float) -> Any:
        asked.append(duration_s)
        one = app_saying(0.005, seeds)
        one.spans = spans * seeds
        return report_of({"ask": one}, {}, seeds=seeds, duration_s=duration_s)

    runs = PlanRuns(simulate, None, WISH, ("ask",), 100.0)  # type: ignore[arg-type]
    runs.add(6, 1)
    runs.add(2, 7)
    assert asked[-1] == pytest.approx(100.0 * longer)
    assert len(runs.reports) == 2


class Asked:
    """A search's time, what it was told, and a simulator that keeps how it was asked."""

    def __init__(self, *shares: float, seconds: float = 1e9, too_long_s: float = 1e9) -> None:
        self.shares, self.remaining, self.too_long_s = list(shares), seconds, too_long_s
        self.runs, self.seeds, self.told = list[Any](), list[int](), list[Any]()
        self.limits, self.note = Limits(seed=5), self.told.append

    def simulate(self, _plan: Any, _inputs: Any, *, seeds: int, seed: int, duration_s: float) -> Any:
        if duration_s > self.too_long_s:
            raise InputError.one(path="duration_s", value=duration_s, why="too long", remedy="Ask for less.")
        self.remaining -= duration_s
        self.runs.append((seeds, duration_s))
        self.seeds.append(seed)
        return report_of({"ask": app_saying(self.shares.pop(0), seeds)}, {}, seeds=seeds, duration_s=duration_s)


def refused(mean: float, seed: int) -> bool:
    """Whether a plan whose accuracy has this mean and a spread of .001 is refused for a floor of .9, at any look."""
    rng = np.random.default_rng(seed)

    def simulate(_plan: Any, _inputs: Any, *, seeds: int, seed: int) -> Any:
        by_run = tuple({"violations": 0.0, "accuracy": float(one)} for one in rng.normal(mean, 0.001, seeds))
        one = SimpleNamespace(by_run=by_run, queries_per_seed=1e5, spans=1e9)
        return report_of({"ask": one}, {}, seeds=seeds, duration_s=1e3)

    runs = PlanRuns(simulate, None, WISH, ("ask",), None, {"ask": 0.9})  # type: ignore[arg-type]
    for made, count in pairwise((0, *LOOKS)):
        runs.add(count - made, made)
        if any(one.mean > one.allowed for one in runs.limits()):
            return True
    return False


def test_runs_refute_a_floor_and_refuse_no_plan_that_arithmetic_puts_there() -> None:
    """By Student's interval, looked at eight times, a tenth of them were refused."""
    assert sum(refused(0.9, seed) for seed in range(200)) <= 5
    assert all(refused(0.898, seed) for seed in range(20))
    assert not any(refused(0.901, seed) for seed in range(20))


LOOKED = ((1, 10.0), (2, 30.0))


def looks(asked: Asked, **how: Any) -> Simulations:
    return Simulations(asked.simulate, WISH, asked, 2, asked.limits.seed, **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("how", "runs", "late"),
    [
        ({}, [*LOOKED], ()),
        ({"first": 0.026}, [LOOKED[0]], ("ask",)),  # 2.5 times what may be late is hopeless
        ({"seconds": 10.0}, [LOOKED[0]], ("ask",)),  # the time is over after the first
        ({"too_long_s": 20.0}, [LOOKED[0]], ("ask",)),
    ],
)
def test_a_look_goes_on_where_it_is_open_and_there_is_time(how: dict[str, float], runs: Any, late: Any) -> None:
    asked = Asked(how.pop("first", 0.012), 0.005, **how)
    shown, report = looks(asked).look(None, ["ask"], *LOOKED, about="two machines")  # type: ignore[arg-type]
    assert asked.runs == runs
    assert report.duration_s == runs[-1][1]
    assert shown.late == late
    assert shown.worst == shown.each["ask"]
    assert (shown.worst > 1.0) == bool(late)
    assert [(one.what, one.done) for one in asked.told] == [("simulated", 0.5)]
    assert asked.told[0].detail.startswith("two machines: ")


@pytest.mark.parametrize(("own", "seeds"), [(False, [5, 5]), (True, [6, 7])])
def test_looks_are_counted_on_common_seeds_or_each_on_its_own(own: bool, seeds: list[int]) -> None:
    asked = Asked(0.005, 0.005)
    made = looks(asked, own_seeds=own)
    assert made.may_go_on
    for _ in seeds:
        made.look(None, ["ask"], (1, 10.0))  # type: ignore[arg-type]
    assert asked.seeds == seeds
    assert not made.may_go_on, "two were allowed"
    made.most = 3
    assert made.may_go_on
    asked.remaining = 0.0
    assert not made.may_go_on
    shown = made.test(None, ["ask"], 10.0)  # type: ignore[arg-type]
    assert shown.late == ("ask",)
    assert asked.seeds == seeds, "no run is begun once the time is over"
