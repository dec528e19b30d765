"""Alike classes of queries merged: below the exact program, above it, and near."""

from __future__ import annotations

import numpy as np
import pytest
from cases.pool import counts, decide, files, pose, promise

from hetplan.planner.answer import Limits
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.problems.pool import question
from hetplan.problems.pool.program import fluid_program_at

SIZES = np.arange(1, 61)


def case(**wish: object) -> tuple[dict, dict]:  # type: ignore[type-arg]
    """Sixty sizes; the weak type is late from the fortieth on, and odd about it."""
    rng = np.random.default_rng(7)
    share = rng.random(60)
    latency = {"base": 5.0 + SIZES, "aux": 8.0 + 2.3 * SIZES + rng.random(60), "weak": 10.0 + 2.25 * SIZES}
    return files(
        {name: list(times) for name, times in latency.items()},
        list(share / share.sum()),
        prices={"base": 1, "aux": "0.45", "weak": "0.25"},
        qos_ms=100,
        bins=SIZES.tolist(),
        **wish,  # type: ignore[arg-type]
    )


def drafted(found: Draft | Infeasibility) -> Draft:
    assert isinstance(found, Draft), found
    return found


@pytest.fixture(autouse=True)
def few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question, "GROUPS", 12)


def test_groups_are_alike_in_where_they_are_in_time_and_near_in_time() -> None:
    pool = pose(case(budget=4))
    group = question.group_classes(pool, 12)
    assert 3 < group.max() < 40
    for one in range(group.max() + 1):
        assert len(np.unique(pool.usable[group == one], axis=0)) == 1
        times = pool.L[group == one][:, 0]
        assert times.max() / times.min() < 1.5
    mean, least = (question.merge_classes(pool, group, fastest=fastest) for fastest in (False, True))
    assert mean.p.sum() == pytest.approx(1.0)
    assert (least.L <= mean.L + 1e-12).all()
    # The work of all classes on a type is that of their groups.
    usable = np.where(pool.usable, pool.L, 0.0)
    assert mean.p @ np.where(mean.usable, mean.L, 0.0) == pytest.approx(pool.p @ usable)


@pytest.mark.parametrize("budget", ["1", "2.3", 4, 11])
def test_most_rate_lies_between_what_is_found_and_its_bound(
    budget: float | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = promise(decide(case(budget=budget)), "fluid_rate_qps")
    monkeypatch.setattr(question, "MOST_CLASSES", 59)
    found = drafted(decide(case(budget=budget)))
    rate = promise(found, "fluid_rate_qps")
    claim = found.reported[0]
    assert claim.scope == "relaxation"
    assert claim.answer is not None
    assert claim.answer.value is not None
    assert rate <= exact * (1 + 1e-9)
    assert claim.answer.value >= exact * (1 - 1e-9)
    assert claim.answer.value <= 1.1 * rate
    assert "W-merged" in [notice.code for notice in found.warnings]


@pytest.mark.parametrize("rate_qps", [1.0, 60.0, 333.0])
def test_least_cost_lies_between_its_bound_and_what_is_found(rate_qps: float, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = promise(decide(case(rate_qps=rate_qps)), "cost_per_hour")
    monkeypatch.setattr(question, "MOST_CLASSES", 59)
    found = drafted(decide(case(rate_qps=rate_qps)))
    claim = found.reported[0]
    assert claim.value == pytest.approx(promise(found, "cost_per_hour"))
    assert claim.answer is not None
    assert claim.answer.bound is not None
    assert claim.answer.bound <= exact + 1e-9 <= promise(found, "cost_per_hour") + 2e-9
    assert promise(found, "rate_qps") >= rate_qps * (1 - 1e-9)


def test_the_rate_of_the_counts_is_that_of_every_class_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question, "MOST_CLASSES", 10)
    found = drafted(decide(case(budget=4)))
    pool = pose(case(budget=4))
    have = counts(found)
    per_type = np.array([have.get(f"{kind.hardware}", 0) for kind in pool.types])
    from hetplan.solvers.highs import Highs

    answer = Highs().solve(fluid_program_at(pool, per_type), Limits())
    assert answer.value == pytest.approx(promise(found, "fluid_rate_qps"), rel=1e-6)


def test_a_rate_beyond_the_limits_is_still_proved_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    beyond = case(rate_qps=1e5, instances={"base": [0, 2], "aux": [0, 2], "weak": [0, 2]})
    monkeypatch.setattr(question, "MOST_CLASSES", 10)
    found = decide(beyond)
    assert isinstance(found, Infeasibility)
    assert found.proved
    assert found.repairs


def test_few_classes_and_those_that_may_be_late_are_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = pose(case(budget=4))
    late = pose(case(budget=4), allow_late=0.01)
    for most, merges in ((60, False), (59, True), (10, True)):
        monkeypatch.setattr(question, "MOST_CLASSES", most)
        assert question.has_alike_classes(pool) is merges
        assert not question.has_alike_classes(late)
