"""Which machines of pools are looked at in simulation, and which plays stand for others."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.planner.fleet_part import Cone, FeasibilityCache, Settled
from hetplan.problems.draft_simulation import Played
from hetplan.problems.faults import Faults
from hetplan.problems.fleet import sizing as fleet_sizing
from hetplan.problems.fleet.request import FleetOptions, read_fleet
from hetplan.problems.fleet.rounding import Descent
from hetplan.problems.pool import sizing
from hetplan.problems.pool.part import cone, is_open
from hetplan.profiles.load import load_inputs
from hetplan.simulator.simulate import simulate
from hetplan.solvers.capacity_sweep import at_capacities

sys.path.insert(0, str(Path(hp.__file__).parents[1] / "benchmarks"))
import kept


@pytest.mark.parametrize(
    ("machines", "rate", "known"),
    [
        ((3, 1), 100.0, True),
        ((3, 2), 90.0, True),
        ((2, 2), 90.0, None),
        ((3, 1), 101.0, None),
        ((3, 1), 120.0, False),
        ((2, 1), 130.0, False),
        ((3, 2), 120.0, None),
    ],
)
def test_no_fewer_machines_keep_no_higher_a_rate_and_no_more_of_them_no_lower_one(
    machines: tuple[int, int], rate: float, known: bool | None
) -> None:
    looks = FeasibilityCache()
    looks.add((3, 1), 100.0, is_kept=True)
    looks.add((3, 1), 120.0, is_kept=False)
    assert looks.is_feasible(machines, rate) is known


def test_what_more_machines_did_not_keep_fewer_did_not_keep_either() -> None:
    looks = FeasibilityCache()
    looks.add((2, 7), 100.0, is_kept=True)
    assert looks.is_feasible((2, 8), 100.0)
    looks.add_infeasible((2, 7), 100.0)
    assert (looks.is_feasible((2, 8), 100.0), looks.is_feasible((2, 7), 100.0)) == (None, False)


def test_what_is_confirmed_was_settled_on_these_machines_or_on_fewer_at_a_higher_rate() -> None:
    asked = []

    def settle(offers: dict[str, int], rate: float) -> Settled:
        asked.append((tuple(offers.values()), rate))
        return Settled(object() if rate <= 10.0 * offers["a"] else None)  # type: ignore[arg-type]

    pool: Any = SimpleNamespace(settle=settle, looks=FeasibilityCache(), confirmed=FeasibilityCache())
    said = [
        fleet_sizing.is_confirmed(pool, (n,), {"a": n}, rate)
        for n, rate in [(3, 30.0), (3, 29.0), (4, 30.0), (4, 31.0), (3, 31.0), (2, 40.0)]
    ]
    assert said == [True, True, True, True, False, False]
    assert asked == [((3,), 30.0), ((4,), 31.0), ((3,), 31.0)]
    assert pool.looks.is_feasible((2,), 31.0) is False, "what was not confirmed is looked at no more"


def test_a_look_says_what_the_question_says_of_the_same_machines() -> None:
    case = kept.QUESTIONS["pool"].make(4)
    inputs = load_inputs(case.profile, case.slo)
    hardware = tuple(case.profile["hardware"])
    options = {"sizing": "fluid", "derate": 1.0}
    part: Any = cone(Cone("a", "pool", hardware, inputs, options, plan_for), at_capacities, simulate=simulate)
    rate = inputs.slo.apps["a"].stated_qps
    one = tuple(int(name == part.hardware[0]) for name in part.hardware)
    few = next(n for n in range(1, 60) if part.max_rate([n * count for count in one]) >= rate)
    assert part.late([few * count for count in one], rate) > 1.0
    assert part.late([2 * few * count for count in one], rate) < 1.0
    assert part.late([max(few - 1, 1) * count for count in one], 2.0 * rate) == np.inf, "more than they can do"


@pytest.mark.parametrize(("first", "is_last"), [(0.3, True), (0.9, False), (1.4, False), (2.1, True)])
def test_a_first_look_that_is_clear_is_the_last(first: float, is_last: bool) -> None:
    assert is_open(Played(first, ())) is not is_last


@pytest.mark.slow
def test_where_one_pool_alone_may_be_it_is_confirmed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    how, runs_of = list[tuple[Any, ...]](), sizing._run_lengths

    def recorded(pool: Any, rate: float, *runs: tuple[int, int]) -> Any:
        how.append(runs)
        return runs_of(pool, rate, *runs)

    monkeypatch.setattr(sizing, "_run_lengths", recorded)
    case = kept.QUESTIONS["pool"].make(4)
    free = hp.solve(case.profile, case.slo).require()
    asked, counts = len(how), dict[str, int]()
    for worker in free.workers:
        counts[worker.hardware] = counts.get(worker.hardware, 0) + worker.count
    for worker in free.workers:
        case.profile["offers"][worker.offer]["stock"] = worker.count
    case.slo.setdefault("limits", {})["instances"] = {name: [count, count] for name, count in counts.items()}
    case.slo["limits"]["only_listed"] = True
    only = hp.solve(case.profile, case.slo).require()
    assert {(one.offer, one.count) for one in only.workers} == {(one.offer, one.count) for one in free.workers}
    assert how[asked:] == [(sizing.FIRST,)], "one look, and then it is put to the test"


def test_who_is_not_sure_to_help_does_not_where_a_look_was_refuted() -> None:
    late = {(2, 1): 0.3, (1, 2): 0.9}
    pool: Any = SimpleNamespace(
        hardware=("a", "b"),
        late=lambda machines, _rate: late[machines],
        looks=FeasibilityCache(),
        confirmed=FeasibilityCache(),
    )
    assert fleet_sizing.helpful_hardware(pool, (1, 1), 10.0) == {"a", "b"}
    pool.confirmed.add((1, 1), 10.0, is_kept=False)
    assert fleet_sizing.helpful_hardware(pool, (1, 1), 10.0) == {"a"}


def test_parts_that_were_settled_or_played_are_not_asked_again() -> None:
    case, asked = kept.QUESTIONS["pool"].make(4), []

    def solve(files: Any, **how: Any) -> Any:
        asked.append(how["options"]["sizing"])
        return plan_for(files, **how)

    inputs = load_inputs(case.profile, case.slo)
    wish = read_fleet(inputs, FleetOptions(sizing="simulation"), Faults.of(inputs))
    (app,) = wish.apps
    options, hardware = {"sizing": "fluid", "derate": 1.0}, tuple(case.profile["hardware"])
    part: Any = cone(Cone(app.name, "pool", hardware, inputs, options, solve), at_capacities)
    answers: Any = {}
    rate, offers = app.rates[0], {wish.offers[0].name: 40}
    for _ in range(2):
        by = fleet_sizing._settling(wish, {app.name: part}, answers)[app.name]
        assert by.settle(offers, rate).part is not None
        assert asked == ["formula"]
    played = Settled(by.settle(offers, rate).part)
    answers[app.name, fleet_sizing.CAREFUL][rate, tuple(offers.items())] = played
    by = fleet_sizing._settling(wish, {app.name: part}, answers)[app.name]
    assert by.settle(offers, rate) is played
    assert asked == ["formula"]


def test_who_needs_other_machines_takes_those_that_rent_least_beside_the_rest() -> None:
    down: Any = SimpleNamespace(
        menus=[[np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0]])], [np.array([[5.0, 5.0]])] * 2],
        rent=lambda machines: np.maximum(machines, 0.0) @ np.array([1.0, 1.5]),
        hour=lambda p, _committed, own: (0.0, own if p == 0 else own + 1.0),
    )
    taken = [np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 0.0]])]
    for committed, chosen in (((0.0, 0.0), [0.0, 1.0]), ((3.0, 0.0), [2.0, 0.0])):
        found = Descent.repair_periods(down, np.array(committed), taken, [(0, 1)])
        assert found is not None
        assert found[0].tolist() == [[1.0, 0.0], chosen]
        assert np.array_equal(found[1], taken[1])
    assert taken[0][1].tolist() == [1.0, 0.0]
