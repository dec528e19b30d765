"""Queries that come and go: what runs always fits, moves are worth their price, and the bound on a re-pack holds."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from hetplan.dispatch.live_packing import Decision, LivePacking
from hetplan.errors import InputError
from hetplan.measure.evaluator_synthetic import draw_machines, draw_packing
from hetplan.planner.forms.packing import Packing
from hetplan.repacking import form_of, prices_of, repack


def kinds_of(count: int, seed: int, *, machines: int | None = None, room: float = 1.0) -> Packing:
    if machines is None:
        form = draw_packing(count, seed, weighted=True).in_totals()
        form = replace(form, capacity=form.capacity * room)
    else:
        form = draw_machines(count, seed, machines).on_machines()
    return replace(form, groups=tuple(f"k{n}" for n in range(count)))


def churned(kinds: Packing, count: int, seed: int, **how: float) -> tuple[LivePacking, list[Decision]]:
    """Many that come, a third that go."""
    rng, live, said = np.random.default_rng(seed), LivePacking(kinds, **how), []
    for n in range(count):
        kind = f"k{rng.integers(len(kinds.groups))}"
        said.append(live.arrive(f"q{n}", kind, weight=float(rng.lognormal(0, 0.8)), pinned=n % 7 == 0))
        if n % 3 == 2:
            said += live.depart(sorted(live.queries)[int(rng.integers(len(live.queries)))])
        assert not live.faults()
    return live, said


@pytest.mark.parametrize("machines", [None, 2])
def test_what_runs_always_fits_and_pinned_queries_stay(machines: int | None) -> None:
    live, said = churned(kinds_of(12, 1, machines=machines, room=3.0), 90, 1)
    moved = [move for one in said for move in one.moved]
    assert moved
    assert live.waiting
    assert not any(int(move.query[1:]) % 7 == 0 for move in moved)
    assert set(live.waiting) == {name for name, one in live.queries.items() if one.placed is None}
    before = live.weight
    found = repack(live)
    assert not live.faults()
    assert live.weight - before == pytest.approx(found.gain + live.move_price * len(found.moves))
    assert 0.0 <= found.gain <= found.most_gain + 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_no_other_state_gains_more_than_the_bound(seed: int) -> None:
    """By brute force over all options of few queries, moves paid for."""
    kinds = kinds_of(5, seed, room=1.3)
    short = replace(  # two options each, so that all states can be tried
        kinds, first=np.arange(0, 11, 2), worth=np.ones(10),
        demand=np.concatenate([kinds.demand[a : a + 2] for a in kinds.first[:-1]]),
    )  # fmt: skip
    live = LivePacking(short, move_price=0.1)
    rng = np.random.default_rng(seed)
    for n in range(7):
        live.arrive(f"q{n}", f"k{n % 5}", weight=float(rng.lognormal(0, 0.6)))
    here = list(live.queries.values())
    best = 0.0
    for state in product((-1, 0, 1), repeat=len(here)):
        option = [2 * one.kind + k if k >= 0 else -1 for one, k in zip(here, state, strict=True)]
        taken = short.demand[[o for o in option if o >= 0]].sum(axis=0)
        if (taken > short.capacity + 1e-9).any():
            continue
        now = [-1 if one.placed is None else one.placed.option for one in here]
        moves = sum(was >= 0 and was != o for was, o in zip(now, option, strict=True))
        gain = sum(one.weight for one, o in zip(here, option, strict=True) if o >= 0) - live.weight
        best = max(best, gain - live.move_price * moves)
    found = prices_of(*form_of(live))
    assert best <= found.most_gain + 1e-9
    assert repack(live).gain <= best + 1e-9


def test_a_dear_move_is_not_made() -> None:
    cheap, dear = (churned(kinds_of(12, 2, machines=1), 80, 2, move_price=price)[1] for price in (0.01, 50.0))
    assert any(one.moved for one in cheap)
    assert not any(one.moved for one in dear)


def test_prices_leave_room_where_it_is_scarce() -> None:
    """One resource is nearly used up by queries that need it: one that has a choice takes the other."""
    kinds = Packing(
        "max", np.array([0, 2, 3]), np.ones(3), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), np.array([4.0, 4.0]),
        groups=("either", "only"),
    )  # fmt: skip
    live = LivePacking(kinds)
    for n in range(4):
        live.arrive(f"o{n}", "only")
    live.arrive("waits", "only")
    repack(live)
    live.depart("o0")
    assert live.queries["waits"].placed is not None
    live.depart("o1")
    found = live.arrive("e", "either").placed
    assert found is not None
    assert found.option == 1


@pytest.mark.parametrize(("query", "kind"), [("q0", "k0"), ("new", "k99")])
def test_what_makes_no_sense_is_refused(query: str, kind: str) -> None:
    live = LivePacking(kinds_of(3, 0))
    live.arrive("q0", "k0")
    with pytest.raises(InputError):
        live.arrive(query, kind)
    with pytest.raises(InputError, match="no such query"):
        live.depart("nobody")
