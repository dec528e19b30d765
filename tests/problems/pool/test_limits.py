"""What a limit may do: cost quality, never truth. And rates so small or so large that tolerances could swallow them."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from build import limits_at
from cases.pool import Json, exactly, files, g1, g3, inputs, pose, solve
from hypothesis import given, settings
from hypothesis import strategies as st

import hetplan
from hetplan import registry
from hetplan.api.solve import plan_for
from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.draft import Draft, Infeasibility
from hetplan.planner.solver_calls import Asking
from hetplan.problems.pool.capacity import flows, starting_pool
from hetplan.problems.pool.program import cover_program, fluid_program, fluid_program_at
from hetplan.problems.pool.question import PoolQuestion
from hetplan.solvers.highs import Highs

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "pool"


class Mute:
    """An engine that always stops before it has anything to say."""

    name, form = "mute", "milp"

    def version(self) -> str:
        return "1"

    def refuses(self, form: Any) -> str:
        return ""

    def solve(self, form: Any, limits: Limits, **more: Any) -> Answer[Any]:
        return Answer(Status.NO_ANSWER, stop=Stop.TIME, engine="mute")

    def solve_all(self, forms: Any, limits: Limits, **more: Any) -> list[Answer[Any]]:
        return [self.solve(form, limits) for form in forms]


class Lazy(Highs):
    """HiGHS on linear programs; on others it comes back with the trivial point: nothing rented, nothing served."""

    name = "lazy"

    def solve(self, form: Any, limits: Limits, **more: Any) -> Answer[Any]:
        if form.pure_lp or form.sense == "min":
            return super().solve(form, limits, **more)
        point = more.get("start")
        point = np.zeros(form.cost.size) if point is None else point
        return Answer(Status.FEASIBLE, stop=Stop.TIME, point=point, value=form.value(point), engine="lazy")


def decided(case: tuple[Json, Json], engine: Any, **options: Any) -> Draft | Infeasibility:
    formulation = options.pop("formulation", "pool-milp")
    return pose(case, formulation=formulation, **options).decide(Asking([engine], Limits()))


def test_a_limit_in_work_leaves_a_plan() -> None:
    files = hetplan.load(EXAMPLES / "profile.json", EXAMPLES / "slo.json")
    outcome = plan_for(files, limits=Limits(work=1), options={"sizing": "fluid"})
    assert (outcome.exit_code, outcome.violations) == (5, ())
    best = solve(EXAMPLES / "profile.json", EXAMPLES / "slo.json").require()
    assert 0.5 * best.claims[0].value < outcome.require().claims[0].value <= best.claims[0].value * (1 + 1e-6)


def test_the_trivial_incumbent_is_not_infeasible() -> None:
    for budget in (2, 4, 20):
        found = decided(g3(budget=budget), Lazy())
        assert isinstance(found, Draft)
        assert found.promises[0].value > 0


@pytest.mark.parametrize("formulation", ["pool-milp", "pool-lp", "kairos"])
def test_an_engine_that_says_nothing_is_not_a_rate_of_nothing(formulation: str) -> None:
    case = exactly(g3(budget=4), {"base": 1, "a": 1}) if formulation == "pool-lp" else g3(budget=4)
    found = decided(case, Mute(), formulation=formulation)
    if isinstance(found, Infeasibility):
        # Only the program over whole counts has nothing to choose by.
        assert formulation == "pool-milp"
        assert not found.proved
        return
    assert found.promises[0].value > 0


def test_a_limit_never_proves_that_a_rate_is_out_of_reach() -> None:
    found = decided(g3(rate_qps=100), Mute())
    assert isinstance(found, Infeasibility)
    assert not found.proved
    limited = solve(*g3(rate_qps=100), time_limit=1e-6)
    assert limited.exit_code in (0, 5)


def test_infeasible_is_said_by_exact_sums() -> None:
    # 1 base for 1.00: no engine is needed to see that 0.999999999 buys none.
    found = decided(g1(budget="0.999999999"), Mute())
    assert isinstance(found, Infeasibility)
    assert found.proved
    assert found.repairs[0].to == "1"
    assert pose(g1(budget="1")).cover is not None


def test_too_many_types_to_list_ask_an_engine() -> None:
    latency = {f"h{t}": [10.0, 40.0] for t in range(18)}
    prices = {name: 1 + t for t, name in enumerate(latency)}
    poor = files(latency, [0.5, 0.5], prices=prices, qos_ms=100, budget="0.5")
    assert pose(poor).cover is None
    found = decided(poor, Highs())
    assert isinstance(found, Infeasibility)
    assert found.proved
    assert "needs $1.0000, the budget is 0.5" in found.why[0]
    quiet = decided(poor, Mute())
    assert isinstance(quiet, Infeasibility)
    assert not quiet.proved


@pytest.mark.parametrize("least", [0, 1])
def test_the_cheapest_cover_among_more_types_than_a_number_has_bits(least: int) -> None:
    latency = {f"h{t}": [10.0, 40.0] for t in range(70)}
    instances = {f"h{t}": [0, 0] for t in range(66)} | {"h69": [least, None]}
    prices = {name: 1 + t for t, name in enumerate(latency)}
    problem = pose(files(latency, [0.5, 0.5], prices=prices, qos_ms=100, budget="90", instances=instances))
    assert problem.cover is not None
    assert problem.cover.tolist() == [int(t == (69 if least else 66)) for t in range(70)]


@st.composite
def small(draw: st.DrawFn) -> tuple[Json, Json]:
    types, bins = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    times = st.integers(5, 200).map(float)
    latency = {f"h{t}": draw(st.lists(times, min_size=bins, max_size=bins)) for t in range(types)}
    weights = draw(st.lists(st.integers(1, 60), min_size=bins, max_size=bins))
    prices = {name: draw(st.integers(10, 60)) / 100 for name in latency}
    least = {name: [draw(st.integers(0, 1)), None] for name in latency}
    share = [weight / sum(weights) for weight in weights]
    case = files(latency, share, prices=prices, qos_ms=100, budget=20, instances=least)
    app = case[1]["apps"]["app"]
    app["latency"] = limits_at(draw(st.sampled_from([99, 90, 60])), app["latency"])
    return case


@settings(max_examples=40, deadline=None)
@given(case=small(), eps=st.sampled_from([0.0, 0.01]))
def test_the_cheapest_cover_by_subsets_and_by_program(case: tuple[Json, Json], eps: float) -> None:
    problem = pose(case, allow_late=eps)
    listed = problem.cover
    answer = Highs().solve(cover_program(problem), Limits(gap=0.0))
    if listed is None:
        assert answer.status is Status.INFEASIBLE
        return
    assert answer.value == pytest.approx(problem.cost(listed) / 1e9)
    assert flows(problem, problem.of_type(listed))[0] > 0


@settings(max_examples=40, deadline=None)
@given(case=small(), eps=st.sampled_from([0.0, 0.01]), n=st.lists(st.integers(0, 5), min_size=4, max_size=4))
def test_flows_without_an_engine_can_be_kept(case: tuple[Json, Json], eps: float, n: list[int]) -> None:
    problem = pose(case, allow_late=eps)
    per_type = np.array(n[: len(problem.types)])
    lam, share = flows(problem, per_type)
    exact = Highs().solve(fluid_program_at(problem, per_type), Limits()).value or 0.0
    assert lam <= exact * (1 + 1e-6) + 1e-9
    assert lam >= 0.6 * exact - 1e-6
    if lam > 0:
        x = lam * problem.p[:, None] * share
        assert share.sum(axis=1) == pytest.approx(np.ones(problem.p.size))
        assert ((x * np.where(problem.served, problem.L, 0.0)).sum(axis=0) / 1000 <= per_type * (1 + 1e-9)).all()
        assert x[problem.qos < problem.M].sum() <= eps * lam * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(case=small(), rate=st.none() | st.floats(1e-9, 1e4))
def test_the_first_pool_is_a_point_of_the_program(case: tuple[Json, Json], rate: float | None) -> None:
    if rate is not None:
        del case[1]["limits"]["cost_per_hour"]
        case[1]["apps"]["app"]["rate_qps"] = rate
    problem = pose(case)
    first = starting_pool(problem, problem.fluid_target)
    if first is None:
        return
    lam = problem.fluid_target or first.lam
    point = first.point(problem, lam=lam, scale=problem.fluid_target or problem.unit_rate)
    form = fluid_program(problem, problem.fluid_target)
    certificate = form.certify(Answer(Status.FEASIBLE, point=point, value=form.value(point)))
    assert certificate.sound, certificate.faults


# Small and large numbers.


@pytest.mark.parametrize("rate", [1e-300, 1e-12, 1e-9, 1e-4, 0.01, 1.0])
@pytest.mark.parametrize("formulation", ["pool-milp", "kairos"])
def test_a_small_rate_takes_the_cheapest_pool_that_serves_at_all(rate: float, formulation: str) -> None:
    outcome = solve(*g1(rate_qps=rate), formulation=formulation)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    assert {worker.hardware: worker.count for worker in outcome.require().workers} == {"base": 1}


def test_a_rare_class_is_served_however_rare() -> None:
    latency = {"base": [10.0, 40.0], "aux": [5.0, 200.0]}
    for rare in (1e-3, 1e-7, 1e-12):
        case = files(latency, [1 - rare, rare], prices={"base": 1, "aux": "0.1"}, qos_ms=100, rate_qps=500)
        outcome = solve(*case, options={"derate": 1.0})
        assert (outcome.exit_code, outcome.violations) == (0, ())
        # 500 queries/s of 5 ms fill 2.5 aux; the base is there for the rare ones, and takes half an aux of the others.
        assert {worker.hardware for worker in outcome.require().workers} == {"base", "aux"}
        assert outcome.require().claims[0].value == pytest.approx(1.3, abs=0.11)


@pytest.mark.slow
def test_a_loop_may_ask_for_little() -> None:
    slo = json.loads((EXAMPLES / "slo.json").read_text())
    del slo["limits"]["cost_per_hour"]
    slo["objective"], slo["apps"]["ranking"]["rate_qps"] = ["min cost"], 100
    planner = hetplan.Planner(EXAMPLES / "profile.json", slo)
    costs = [planner.plan({"ranking": rate}).require().claims[0].value for rate in (1e-9, 1e-4, 1, 100)]
    assert costs == sorted(costs)


@pytest.mark.parametrize("wish", [{"rate_qps": 1e11}, {"rate_qps": 1e308}, {"budget": "1000000000"}])
@pytest.mark.parametrize("derate", [0.8, 1e-300])
def test_absurd_wishes_are_bad_input(wish: Json, derate: float) -> None:
    profile, slo = g1(**wish)
    for offer in profile["offers"].values():
        offer["price_per_hour"] = "0.0000001"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(hetplan.InputError, match=r"instances|at most 1e\+12"):
            solve(profile, slo, options={"derate": derate})


def test_a_demand_beyond_reason_is_bad_input_in_a_loop_too() -> None:
    planner = hetplan.Planner(EXAMPLES / "profile.json", EXAMPLES / "slo.json")
    with pytest.raises(hetplan.InputError, match="queries per second"):
        planner.plan({"ranking": 1e308})


@pytest.mark.parametrize("ms", [1e-308, 1e-14, 1e-7, 1e10, 1e300])
def test_absurd_times_are_bad_input(ms: float) -> None:
    with pytest.raises(hetplan.InputError) as caught:
        solve(*files({"only": [ms]}, [1.0], prices={"only": 1}, qos_ms=100, budget=2))
    assert "models.m.runs.only" in caught.value.faults[0].path
    assert caught.value.faults[0].remedy


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    ms=st.lists(st.floats(1e-6, 100), min_size=4, max_size=4),
    rare=st.floats(1e-14, 0.5),
    wish=st.one_of(
        st.builds(lambda rate: {"rate_qps": rate}, st.floats(1e-300, 1e6)),
        st.builds(lambda budget: {"budget": f"{budget:.9f}"}, st.floats(1e-3, 1e5)),
    ),
)
def test_numbers_of_every_size_give_a_plan_or_a_reason_and_no_noise(ms: list[float], rare: float, wish: Json) -> None:
    latency = {"x": ms[:2], "y": ms[2:]}
    case = files(latency, [1 - rare, rare], prices={"x": "0.9", "y": "0.02"}, qos_ms=100, **wish)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outcome = plan_for(hetplan.load(*case), limits=Limits(work=2000), options={"sizing": "fluid"})
    # All are in time everywhere: only a budget below the cheaper machine leaves nothing to rent.
    poor = "budget" in wish and float(wish["budget"]) < 0.02
    assert (outcome.exit_code, outcome.violations) == (3 if poor else 0, ())


# Nothing is asked for.


@pytest.mark.parametrize("instances", [{}, {"aux": [2, None]}, {"base": [1, None], "aux": [1, None]}])
def test_a_demand_of_nothing_rents_the_least(instances: Json) -> None:
    given_ = inputs(*g1(rate_qps=0, instances=instances))
    problem = PoolQuestion.from_inputs(
        given_, PoolQuestion.formulations["pool-milp"](), formulation="pool-milp", tools=registry.tools_of("pool")
    )
    found = problem.decide(Asking(registry.solvers("milp"), Limits()))
    assert isinstance(found, Draft)
    assert {worker.hardware: worker.count for worker in found.workers} == {
        name: least for name, (least, _) in instances.items()
    }
    serves = "base" in instances
    assert (found.promises[0].value > 0) is serves
    assert bool(found.routing) is serves
    assert sum(entry.rate_qps for entry in found.unserved) == 0


@pytest.mark.parametrize("formulation", ["pool-milp", "kairos", "kairos-plus"])
def test_idle_minutes_give_a_plan(formulation: str) -> None:
    outcome = solve(*g1(rate_qps=0), formulation=formulation)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    assert outcome.require().workers == ()
    assert outcome.status == "optimal"


def test_minima_beyond_the_totals_are_said() -> None:
    profile, slo = g1(rate_qps=0, instances={"aux": [2, None]})
    profile["hardware"]["aux"]["provides"] = {"cpu_cores": 8}
    profile["hardware"]["base"]["provides"] = {"cpu_cores": 4}
    slo["limits"]["provides"] = {"cpu_cores": 12}
    outcome = solve(profile, slo)
    assert outcome.exit_code == 3
    assert any("provides" in repair.field or "instances" in repair.field for repair in outcome.repairs)


def test_a_limit_on_what_machines_provide_is_refused_where_they_do_not_say_it() -> None:
    profile, slo = g1(budget=5)
    for run in profile["variants"]["m"]["runs"]:
        run["needs"] = {"cpu_cores": 4}
    slo["limits"]["provides"] = {"cpu_cores": 8}
    with pytest.raises(hetplan.InputError, match=r"limits\.provides\.cpu_cores: no machine type provides 'cpu_cores'"):
        solve(profile, slo)
    profile["hardware"]["base"]["provides"] = {"cpu_cores": 4}
    with pytest.raises(hetplan.InputError, match=r"\$\.limits\.provides\.cpu_cores: aux does not say what it provides"):
        solve(profile, slo)
    profile["hardware"]["aux"]["provides"] = {"cpu_cores": 4}
    outcome = solve(profile, slo)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    assert sum(worker.count for worker in outcome.require().workers) == 2


def test_every_subset_of_golden_case_3_by_hand() -> None:
    # Only the base serves the largest class in time: 1.00 with or without the others.
    problem = pose(g3(budget=5))
    assert problem.cover is not None
    assert problem.cover.tolist() == [1, 0, 0]
    served = [set(n) for n in itertools.product([0, 1], repeat=3) if flows(problem, np.array(n))[0] > 0 and not n[0]]
    assert served == []
