"""The sizing search on made-up questions, whose cheapest candidate is known by trying all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

import pytest

from hetplan.planner.sizing_search import (
    GOOD,
    LATE,
    UNLIKELY,
    Belief,
    Counts,
    Refused,
    Search,
    Together,
    more_room,
    neighbours,
)  # fmt: skip

PRICES = (50, 22, 9)
CARRIES = (10.0, 4.0, 1.5)
MOST = 9
RATE = 30.0


@dataclass
class MadeUp(Together):
    """Machines of three kinds: `late` says how late they are, a formula of what they carry takes no notice of it."""

    late: Callable[[Counts], float]
    is_confirmed: Callable[[Counts], bool] = lambda counts: True
    most: int = 1_000
    looked: list[Counts] = field(default_factory=list)
    tested: list[Counts] = field(default_factory=list)
    told: list[float] = field(default_factory=list)

    @property
    def may_go_on(self) -> bool:
        return len(self.looked) < self.most

    def candidates(self) -> Generator[Counts, float, None]:
        want = RATE
        for turn in range(40):
            every = (one for one in product(range(MOST + 1), repeat=3) if self.carries(one) >= want)
            counts = min(every, key=self.price, default=None)
            if counts is None:
                return
            self.told.append((yield counts))
            want *= more_room(self.told[-1], turn)

    def neighbours(self, counts: Counts, station: Hashable = "") -> Iterator[Counts]:
        return (one for one in neighbours(counts, PRICES) if any(one) and max(one) <= MOST)

    def price(self, counts: Counts) -> int:
        return sum(count * price for count, price in zip(counts, PRICES, strict=True))

    def carries(self, counts: Counts) -> float:
        return sum(count * rate for count, rate in zip(counts, CARRIES, strict=True))

    def room(self, station: Hashable, counts: Counts) -> float:
        return self.carries(counts) / RATE

    def look(self, counts: Counts, stations: Collection[Hashable]) -> Mapping[Hashable, float]:
        assert self.may_go_on
        self.looked.append(counts)
        return dict.fromkeys(stations, self.late(counts))

    def confirm(self, counts: Counts) -> Counts | Refused:
        self.tested.append(counts)
        return counts if self.is_confirmed(counts) else Refused(("",))


def by_room(needed: float) -> Callable[[Counts], float]:
    """Late by how much less there is than so many times what the formula asks for."""
    return lambda counts: (needed / max(MadeUp(lambda _: 0.0).carries(counts) / RATE, 1e-9)) ** 12 * LATE


def of_fast(counts: Counts) -> float:
    """Only the first kind is fast enough for some queries: the others help no further."""
    return max(by_room(1.05)(counts), 0.6 if counts[0] >= 2 else 1.4)


def slow_harm(counts: Counts) -> float:
    """Slow machines take queries that they answer late."""
    return by_room(1.1)(counts) + 0.15 * counts[2]


def cheapest(asked: MadeUp) -> int:
    good = (one for one in product(range(MOST + 1), repeat=3) if any(one) and asked.late(one) <= GOOD)
    return min(map(asked.price, good))


@pytest.mark.parametrize("late", [by_room(0.8), by_room(1.2), by_room(1.7), of_fast, slow_harm])
def test_it_finds_nearly_the_cheapest_of_all_by_a_few_looks(late: Callable[[Counts], float]) -> None:
    asked = MadeUp(late)
    found = Search(asked).cheapest()
    assert found is not None
    assert asked.late(found) <= LATE
    assert asked.price(found) <= 1.05 * cheapest(asked)
    assert len(asked.looked) == len(set(asked.looked)) <= 30


@pytest.mark.parametrize("late", [by_room(1.2), of_fast])
def test_what_is_refused_is_not_tested_again_and_something_dearer_is(late: Callable[[Counts], float]) -> None:
    first = MadeUp(late)
    luckiest = Search(first).cheapest()
    assert luckiest is not None
    asked = MadeUp(late, is_confirmed=lambda counts: counts != luckiest)
    search = Search(asked)
    found = search.cheapest()
    assert found is not None
    assert found != luckiest
    assert asked.tested.count(luckiest) == 1
    assert len(asked.tested) == len(set(asked.tested))
    assert search.refused == set(asked.tested[:-1])
    assert search.looks[found] <= LATE


def test_where_nothing_is_confirmed_there_is_no_plan_and_losers_are_kept() -> None:
    search = Search(MadeUp(by_room(1.2), is_confirmed=lambda counts: False))
    assert search.cheapest() is None
    assert search.refused
    assert all(search.looks[one] == pytest.approx(LATE) for one in search.refused)
    assert any(late > LATE for late in search.looks.values())


@pytest.mark.parametrize("any_will_do", [False, True])
def test_what_a_look_finds_late_is_never_tested(any_will_do: bool) -> None:
    asked = MadeUp(lambda counts: 1.1)
    assert Search(asked).cheapest(any_will_do=any_will_do) is None
    assert not asked.tested
    assert asked.looked


@pytest.mark.parametrize("most", [0, 1, 3, 8])
def test_no_look_begins_after_the_end(most: int) -> None:
    asked = MadeUp(by_room(1.2), most=most)
    Search(asked).cheapest()
    assert len(asked.looked) <= most


def test_any_plan_is_the_first_that_is_confirmed() -> None:
    asked = MadeUp(by_room(1.2))
    found = Search(asked).cheapest(any_will_do=True)
    assert asked.tested == [found] == [asked.looked[-1]]


def test_a_belief_learns_for_plans_that_are_alike_and_in_part_for_all() -> None:
    belief = Belief([])
    before = {one: belief.chance(one, 1.0) for one in ((8, 8), (8, 9), (1, 40))}
    assert before[8, 8] == pytest.approx(0.5)
    belief.learn((8, 8), 1.0, 3.0)
    after = {one: belief.chance(one, 1.0) for one in before}
    assert after[8, 8] < after[8, 9] < after[1, 40] < before[1, 40] - 0.1
    assert belief.chance((8, 8), 1.3) > after[8, 8]


class Hopeless(MadeUp):
    """Its formula gives no cheaper candidate a chance."""

    def room(self, station: Hashable, counts: Counts) -> float:
        room = super().room(station, counts)
        return room if room >= 1.0 else 0.01


class OnlyOne(MadeUp):
    """Its program makes one candidate, and its formula tells none from another."""

    def room(self, station: Hashable, counts: Counts) -> float:
        return 1.2

    def candidates(self) -> Generator[Counts, float, None]:
        yield (4, 4, 4)


def test_a_machine_less_is_looked_at_whatever_a_formula_says() -> None:
    asked = Hopeless(lambda counts: 0.3)
    found = Search(asked).cheapest()
    assert found is not None
    assert all(n <= m for n, m in zip(found, asked.looked[0], strict=True))
    assert asked.price(found) < asked.price(asked.looked[0])


def test_neighbours_that_are_late_one_after_another_teach_to_look_no_further() -> None:
    top = (4, 4, 4)
    asked = OnlyOne(lambda counts: 0.3 if counts == top else 3.0)
    assert Search(asked).cheapest() == top
    belief = Belief([(top, asked.room("", top), 0.3)])
    worth = [one for one in asked.neighbours(top) if belief.chance(one, asked.room("", one)) >= UNLIKELY]
    assert len(asked.looked) - 1 < len(worth)


def test_neighbours_are_all_within_two_machines_out_and_in_and_the_cheapest_first() -> None:
    counts = (2, 1, 0)
    found = list(neighbours(counts, PRICES))
    cost = [sum(n * price for n, price in zip(one, PRICES, strict=True)) for one in found]
    assert cost == sorted(cost)
    assert len(found) == len(set(found))

    def is_near(one: Counts) -> bool:
        change = [n - m for n, m in zip(one, counts, strict=True)]
        return sum(min(step, 0) for step in change) >= -2 and sum(max(step, 0) for step in change) <= 2

    top = sum(n * price for n, price in zip(counts, PRICES, strict=True))
    price = {one: sum(n * p for n, p in zip(one, PRICES, strict=True)) for one in product(range(5), repeat=3)}
    assert set(found) == {one for one, at in price.items() if at < top and is_near(one)}
