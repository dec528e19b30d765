"""Descent over whole machines: two applications at a time find what one after the other misses."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hetplan.problems.fleet.descent import Descent, Steps, in_every_order


def test_two_applications_that_change_at_once_rent_the_least_of_all_pairs() -> None:
    stuck = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        down = Descent.__new__(Descent)
        down.cost, down.looks, down.paired = np.round(random.uniform(0.1, 1.0, 4), 2), 0, 0
        down.menus = [[random.integers(0, 4, (12, 4)).astype(float) for _ in range(2)]]
        down.used = [np.zeros(4, dtype=bool)]
        down.used[0] |= np.any([menu.any(axis=0) for menu in down.menus[0]], axis=0)
        committed = random.integers(0, 4, 4).astype(float)

        def rent(taken: np.ndarray, committed: np.ndarray = committed, cost: np.ndarray = down.cost) -> float:
            return float(np.maximum(taken - committed, 0.0) @ cost)

        first, second = down.menus[0]
        least = min(rent(one + other) for one, other in itertools.product(first, second))
        alone, taken = down.hour(0, committed, np.array([first[0], second[0]]))
        found, taken = down.in_pairs(0, committed, taken)
        assert found == rent(taken.sum(axis=0)) == least
        stuck += alone > least + 1e-9
    assert stuck, "one after the other is enough in all of these"


@pytest.mark.parametrize("parted", [False, True])
def test_periods_that_a_step_leaves_as_they_are_are_those_in_which_a_look_finds_nothing(parted: bool) -> None:
    still, changed = [0, 0], [0, 0]
    for seed in range(8):
        random = np.random.default_rng(seed)
        down = Descent.__new__(Descent)
        down.cost, down.looks, down.paired, down.shared = np.round(random.uniform(0.1, 1.0, 5), 2), 0, 0, parted
        down.menus = [[random.integers(0, 4, (10, 5)) / (2.0 if parted else 1.0) for _ in range(3)] for _ in range(6)]
        down.used = [np.ones(5, dtype=bool)] * 6
        committed = random.integers(0, 5, 5).astype(float)
        first = [
            down.hour(p, committed, np.array([menu[0] for menu in menus]))[1] for p, menus in enumerate(down.menus)
        ]
        taken = [down.in_pairs(p, committed, own)[1] for p, own in enumerate(first)]
        steps = Steps(down, committed, taken)
        for more, fewer in itertools.product(range(5), range(5)):
            other = np.maximum(committed + np.eye(5)[more] - (np.eye(5)[fewer] if more != fewer else 0.0), 0.0)
            for number, (look, known) in enumerate(zip((down.hour, down.in_pairs), steps.still(other), strict=True)):
                for p, own in enumerate(taken):
                    rent, after = look(p, other, own)
                    is_same = np.array_equal(own, after)
                    assert p not in known or (is_same and known[p] == pytest.approx(rent))
                    assert number or p in known or not is_same, "a look that finds nothing is known beforehand"
                    still[number] += p in known
                    changed[number] += not is_same
    assert min(*still, *changed) > 0, "steps both change periods and leave them"


def test_the_cheapest_choices_in_every_order_are_among_those_that_are_ordered() -> None:
    random = np.random.default_rng(0)
    held = np.unique(random.integers(0, 6, (700, 4)), axis=0).astype(float)
    orders = np.array([[0, 1, 2, 3], [2, 3, 0, 1]])
    for prices in (np.array([0.5, 0.2, 0.5, 0.2]), np.array([0.5, 0.2, 0.4, 0.3])):
        every = np.unique(held[:, orders].reshape(-1, 4), axis=0)
        some = in_every_order(held, orders, prices, most=20)
        assert len(some) < len(every)
        cheapest = [one[np.argsort(one @ prices, kind="stable")[:20]].tolist() for one in (every, some)]
        assert cheapest[0] == cheapest[1]
