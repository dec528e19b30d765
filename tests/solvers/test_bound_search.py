"""The tree that an engine grows around an answer: as near as it may, the same every time, and honest about the rest."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from hetplan import registry
from hetplan.planner.answer import Answer, Limits, Status, Stop, Vouched, relative_gap
from hetplan.planner.contract import Solver
from hetplan.planner.forms.form import certify
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.safe_bound import BoundTree, bound_of_tree
from hetplan.planner.solver_calls import Asking
from hetplan.planner.tolerances import GAP
from hetplan.solvers import milp_engine
from hetplan.solvers.highs import Highs
from hetplan.solvers.milp_engine import MilpEngine

ENGINES = [engine for engine in registry.solvers("milp") if isinstance(engine, MilpEngine)]


def machines(seed: int, *, types: int = 5, classes: int = 12, budget: float = 40.0, sense: str = "max") -> Milp:
    """Whole machines of several types that share the work of several classes: most work for a budget, or least cost."""
    rng = np.random.default_rng(seed)
    price = np.round(rng.uniform(0.2, 4.0, types), 3)
    time = rng.uniform(0.5, 2.0, (classes, types)) / price**0.9
    share = rng.dirichlet(np.ones(classes))
    m = Builder(sense)  # type: ignore[arg-type]
    rate = m.columns("rate", ["rate"], cost=1.0 if sense == "max" else 0.0)
    x = m.columns("x", lambda k: str(k), size=classes * types).reshape(classes, types)
    n = m.columns("n", lambda k: str(k), size=types, upper=200.0, whole=True, cost=0.0 if sense == "max" else price)
    served = m.rows("served", lambda k: str(k), size=classes, lower=0.0, upper=0.0)
    m.add(served[:, None], x, 1.0)
    m.add(served, rate, -share)
    busy = m.rows("busy", lambda k: str(k), size=types, upper=0.0)
    m.add(busy[None, :], x, time)
    m.add(busy, n, -1.0)
    if sense == "max":
        m.add(m.rows("budget", ["b"], upper=budget), n, price)
    else:
        m.add(m.rows("target", ["t"], lower=budget), rate, 1.0)
    return m.build()


@pytest.mark.quick_sample(8)
@pytest.mark.parametrize("sense", ["max", "min"])
@pytest.mark.parametrize("seed", range(12))
def test_bounds_of_machines_are_certified(seed: int, sense: str) -> None:
    form = machines(seed, budget=10.0 * 3 ** (seed % 4), sense=sense)
    asking = Asking([Highs()])
    answer = asking(form, gap=GAP)
    found = asking.record_of(answer)
    assert found is not None
    verdict = found[1]
    assert verdict.vouched is Vouched.CERTIFIED
    assert answer.value is not None
    assert verdict.bound is not None
    assert relative_gap(answer.value, verdict.bound) <= GAP


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_whoever_answers_the_bound_is_proved(engine: MilpEngine) -> None:
    form = machines(3)
    whole = replace(form, whole=np.ones_like(form.whole), upper=np.where(np.isfinite(form.upper), form.upper, 50.0))
    form = whole if not engine.refuses(whole) and engine.refuses(form) else form
    if engine.refuses(form):
        pytest.skip(engine.refuses(form))
    if type(engine).prove is not MilpEngine.prove:
        pytest.skip("it proves nothing")
    answer = engine.prove(form, engine.solve(form, Limits(seconds=200.0)), Limits())
    tree = answer.proof["tree"]
    assert isinstance(tree, BoundTree)
    verdict = certify(form, answer)
    assert verdict.sound
    assert verdict.certified_bound is not None


def test_the_same_answer_gives_the_same_tree() -> None:
    form = machines(1)
    answer = Highs().solve(form, Limits(gap=GAP))
    one, other = (Highs().prove(form, answer, Limits()) for _ in range(2))
    assert one.deterministic
    for part in ("splits", "leaves"):
        assert np.array_equal(getattr(one.proof["tree"], part), getattr(other.proof["tree"], part))


def test_a_better_point_that_is_met_is_taken() -> None:
    form = machines(2)
    best = Highs().solve(form, Limits())
    point = np.zeros_like(form.cost)
    poor = Answer(Status.OPTIMAL, point=point, value=0.0, bound=0.0, engine="highs")
    found = Highs().prove(form, poor, Limits())
    assert best.value is not None
    assert found.value == pytest.approx(best.value, rel=GAP)
    assert found.bound is None  # the better point refutes it
    assert certify(form, found).vouched is Vouched.CERTIFIED


def test_a_point_as_good_is_left_alone() -> None:
    form = machines(2)
    answer = Highs().solve(form, Limits())
    proved = Highs().prove(form, answer, Limits())
    assert proved.point is answer.point


def test_what_the_work_does_not_reach_is_bounded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    form = machines(4, types=8, budget=25.0)
    answer = Highs().solve(form, Limits())
    near = bound_of_tree(form, milp_engine.prove_bound(form, answer.value, Limits()).tree)
    monkeypatch.setattr(milp_engine, "MOST", 2_000)
    monkeypatch.setattr(milp_engine, "CHEAP", 2_000)
    far = bound_of_tree(form, milp_engine.prove_bound(form, answer.value, Limits()).tree)
    assert near is not None
    assert far is not None
    assert answer.value is not None
    assert answer.value <= near < far < answer.value * 1.2


def test_what_a_clock_ends_is_not_deterministic() -> None:
    form = machines(4)
    answer = Highs().solve(form, Limits())
    assert not Highs().prove(form, answer, Limits(seconds=0.0)).deterministic
    cancel = threading.Event()
    cancel.set()
    assert not Highs().prove(form, answer, Limits(cancel=cancel)).deterministic


def test_no_tree_where_there_is_nothing_to_prove_or_no_time() -> None:
    form = machines(4)
    answer = Highs().solve(form, Limits())
    relaxed = replace(form, whole=np.zeros_like(form.whole))
    for proved in (
        Highs().prove(relaxed, Highs().solve(relaxed, Limits()), Limits()),
        Highs().prove(form, replace(answer, stop=Stop.TIME), Limits()),
        Highs().prove(form, Answer(Status.INFEASIBLE), Limits()),
    ):
        assert "tree" not in proved.proof


def test_a_family_is_not_proved_one_by_one() -> None:
    asking = Asking([Highs()])
    assert all("tree" not in answer.proof for answer in asking.all([machines(0), machines(1)]))


def test_an_engine_without_a_tree_is_asked_for_none() -> None:
    class Plain:
        name, form = "plain", "milp"

        def version(self) -> str:
            return "1"

        def refuses(self, form: Milp) -> str:
            return ""

        def solve(self, form: Milp, limits: Limits, **_: object) -> Answer[np.ndarray]:
            return Highs().solve(form, limits)

    plain: Solver = Plain()  # type: ignore[assignment]
    asking = Asking([plain])
    answer = asking(machines(0))
    found = asking.record_of(answer)
    assert found is not None
    assert found[1].vouched is Vouched.CLAIMED
