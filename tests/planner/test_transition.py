"""Ways from what runs to what is wanted: they arrive, stay within stock, and never leave a step bare on the way."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.planner.transition import Names, transition
from hetplan.profiles.profile import Offer
from hetplan.profiles.workers import Load, Worker


def group(name: str, count: int, *, variant: str = "m", offer: str | None = None) -> Worker:
    loads = (Load(id=f"{name}.a", app="app", variant=variant),)
    return Worker(id=name, hardware="gpu", offer=offer, count=count, loads=loads)


def test_replacements_come_up_before_what_they_replace_goes_down() -> None:
    said = [(a.do, a.worker or a.load, a.count) for a in transition((group("old", 2),), (group("new", 3),))]
    assert said == [("start", "new", 3), ("load", "new.a", None), ("stop", "old", 2)]


def test_a_tight_stock_is_kept_turn_by_turn() -> None:
    offers = {"o": Offer(hardware="gpu", price_per_hour="1", stock=3)}
    running, wanted = (group("old", 2, offer="o"),), (group("new", 2, variant="n", offer="o"),)
    said = [(a.do, a.worker or a.load, a.count) for a in transition(running, wanted, offers=offers)]
    assert said == [
        ("start", "new", 1),
        ("load", "new.a", None),
        ("stop", "old", 1),
        ("start", "new", 1),
        ("stop", "old", 1),
    ]


def test_a_limit_on_hardware_is_kept_as_a_stock_is() -> None:
    running, wanted = (group("old", 2),), (group("new", 2, variant="n"),)
    way = [(a.do, a.worker or a.load, a.count) for a in transition(running, wanted, limits={"gpu": (0, 3)})]
    assert way == [
        ("start", "new", 1),
        ("load", "new.a", None),
        ("stop", "old", 1),
        ("start", "new", 1),
        ("stop", "old", 1),
    ]


def test_where_nothing_is_spare_a_group_is_swapped_by_halves() -> None:
    running, wanted = (group("old", 4),), (group("new", 4, variant="n"),)
    way = [(a.do, a.worker or a.load, a.count) for a in transition(running, wanted, limits={"gpu": (0, 4)})]
    assert way == [
        ("stop", "old", 2),
        ("start", "new", 2),
        ("load", "new.a", None),
        ("stop", "old", 1),
        ("start", "new", 1),
        ("stop", "old", 1),
        ("start", "new", 1),
    ]


def test_a_group_that_is_alike_keeps_its_names_and_takes_what_is_new() -> None:
    names = Names((group("mine", 1),), alike=lambda worker: (worker.hardware,))
    kept = names.with_ids(group("any", 3, variant="n"))
    assert (kept.id, kept.loads[0].id, kept.loads[0].variant, kept.count) == ("mine", "mine.a", "n", 3)
    assert names.with_ids(group("any", 1)).id == "w1"


def test_nothing_to_do_is_no_action() -> None:
    assert transition((group("w1", 2),), (group("w1", 2),)) == ()


def test_names_are_kept_by_content() -> None:
    names = Names((group("w2", 5), group("mine", 1, variant="n")))
    kept = names.with_ids(group("any", 1, variant="n"))
    assert (kept.id, kept.loads[0].id) == ("mine", "mine.a")
    assert names.with_ids(group("any", 9)).id == "w2"
    assert names.with_ids(group("any", 9)).id == "w1"
    fresh = names.with_ids(group("any", 9, variant="x"))
    assert (fresh.id, fresh.loads[0].id, fresh.count) == ("w3", "w3.a", 9)


COUNTS = st.lists(st.integers(0, 4), min_size=4, max_size=4)


@settings(max_examples=150, deadline=None)
@given(COUNTS, COUNTS, st.integers(4, 9))
def test_every_way_arrives_and_keeps_the_least_of_now_and_planned(now: list[int], then: list[int], stock: int) -> None:
    def workers(counts: list[int]) -> tuple[Worker, ...]:
        return tuple(
            group(f"g{i}", count, variant=f"m{i}", offer="o" if i < 2 else None)
            for i, count in enumerate(counts)
            if count
        )

    offers = {"o": Offer(hardware="gpu", price_per_hour="1", stock=stock)}
    running, wanted = workers(now), workers(then)
    up = Counter({worker.id: worker.count for worker in running})
    least = min(sum(now), sum(then))
    overlap_fits = now[0] + now[1] + then[0] + then[1] <= stock
    for action in transition(running, wanted, offers=offers):
        if action.do == "start":
            up[action.worker] += action.count
        elif action.do == "stop":
            up[action.worker] -= action.count
        if sum(then[:2]) <= stock and sum(now[:2]) <= stock:
            assert up["g0"] + up["g1"] <= stock
        if overlap_fits:
            assert up.total() >= least
    assert +up == Counter({worker.id: worker.count for worker in wanted})
