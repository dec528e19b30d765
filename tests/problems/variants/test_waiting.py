"""How busy an instance may be: the formula against queries played one by one, and plans that leave room to wait."""

from types import SimpleNamespace

import numpy as np
import pytest
from cases.variants import counts, money, solve, table2

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.planner.contract import Tools
from hetplan.problems.batch_queue import busy_limit_of_law
from hetplan.problems.variants.options import VariantsOptions
from hetplan.problems.variants.queueing import busy_limit, leave_room_to_wait
from hetplan.problems.variants.request import read_snapshot
from hetplan.profiles.load import load_inputs
from hetplan.simulator.figures import Together, responses_of


def share_late(use, batch, ratio, *, times=None, queries=40_000, seed=0):
    """Queries of a Poisson stream through one server that takes up to a batch at once, in time 1 or less."""
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1.0 / (use * batch), queries))
    late, first, free = 0, 0, 0.0
    while first < queries:
        start = max(free, arrivals[first])
        last = min(int(np.searchsorted(arrivals, start, side="right")), first + batch)
        free = start + (1.0 if times is None else times[last - first - 1])
        late += int((free - arrivals[first:last] > ratio * (1 + 1e-9)).sum())
        first = last
    return late / queries


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("batch", "ratio"), [(1, 2.0), (1, 5.0), (4, 1.5), (4, 2.5), (16, 2.2), (32, 1.95)])
def test_at_the_limit_as_many_are_late_as_may_be(batch, ratio):
    use = busy_limit(time_ms=1.0, batch=batch, slo_ms=ratio, percentile=95)
    assert share_late(use, batch, ratio) == pytest.approx(0.05, abs=0.02)
    assert share_late(0.6 * use, batch, ratio) < 0.06


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "least", "ratio"), [(8, 0.36, 1.4), (8, 0.36, 3.0), (32, 0.11, 0.45), (32, 0.5, 1.5), (1, 1.0, 2.0)]
)
def test_where_small_batches_take_less_the_law_decides(batch, least, ratio):
    times = tuple(np.linspace(least, 1.0, batch).tolist())
    use = busy_limit_of_law(times, slo_ms=ratio, percentile=95)
    assert share_late(use, batch, ratio, times=times) == pytest.approx(0.05, abs=0.02)
    assert share_late(0.6 * use, batch, ratio, times=times) < 0.05
    assert use >= busy_limit(time_ms=1.0, batch=batch, slo_ms=ratio, percentile=95) - 0.01
    alike = busy_limit_of_law((1.0,) * batch, slo_ms=3.0, percentile=95)
    assert alike == pytest.approx(busy_limit(time_ms=1.0, batch=batch, slo_ms=3.0, percentile=95), abs=0.03)


def test_more_room_more_use():
    for batch in (1, 8, 64):
        uses = [busy_limit(time_ms=1.0, batch=batch, slo_ms=ratio, percentile=99) for ratio in np.arange(1, 12, 0.5)]
        assert uses == sorted(uses)
        assert 0.0 <= uses[0] < 0.05
        assert uses[-1] > 0.7
        loose = busy_limit(time_ms=1.0, batch=batch, slo_ms=2.0, percentile=90)
        assert loose > busy_limit(time_ms=1.0, batch=batch, slo_ms=2.0, percentile=99)
    assert busy_limit(time_ms=10.0, batch=1, slo_ms=9.0, percentile=50) == 0.0


def test_room_to_wait_costs_more_and_warns_of_nothing():
    documents = table2(90.0, 100.0)
    plain, roomy = solve(documents), solve(documents, sizing="formula")
    assert roomy.exit_code == 0, roomy.violations
    assert counts(plain) == {"b": 1}
    assert counts(roomy) == {"b": 2}
    assert money(roomy, "gross_cost_per_hour") > money(plain, "gross_cost_per_hour")
    assert "W-queueing" in {warning.code for warning in plain.plan.warnings}
    assert "W-queueing" not in {warning.code for warning in roomy.plan.warnings}


def test_each_percentile_is_held_against_its_own_limit():
    documents = table2(90.0, 100.0)
    (app,) = documents[1]["apps"].values()
    at = [(99, 100.0), (50, 40.0)]
    alone: dict[tuple[tuple[int, float], ...], list[float]] = {}
    for wanted in ([at[0]], [at[1]], at, [(99, 40.0)]):
        app["latency"] = {f"p{p:g}_ms": ms for p, ms in wanted}
        read = read_snapshot(load_inputs(*documents[:2]), VariantsOptions())
        alone[tuple(wanted)] = [pair.busy for pair in leave_room_to_wait(read).serves if not pair.late]
    assert alone[tuple(at)] == [min(two) for two in zip(alone[at[0],], alone[at[1],], strict=True)]
    assert alone[tuple(at)] > alone[(99, 40.0),], "p50 and p99 are not taken for p99 within the limit of p50"


def test_a_slow_variant_gives_way_to_one_that_leaves_room():
    # A takes two thirds of what is allowed: hardly anybody may come while it is at work.
    documents = table2(4.0, 300.0)
    assert counts(solve(documents)) == {"a": 1}
    assert counts(solve(documents, sizing="formula")) == {"b": 1}


@pytest.mark.parametrize("formulation", ["variants-columns", "variants-milp"])
def test_every_way_leaves_room(formulation):
    found = solve(table2(90.0, 100.0), formulation, sizing="formula")
    assert found.exit_code == 0, found.violations
    assert money(found, "gross_cost_per_hour") >= 6


class Shown:
    """A simulator that shows the same whatever is planned, violation rates in turn, and counts its calls."""

    def __init__(self, *rates):
        self.held, self.rates, self.asked = SimpleNamespace(value=80.0, low=70.0, high=99.0), rates, 0

    def __call__(self, plan, inputs, *, seeds, seed, duration_s=1e3):
        self.asked += 1
        one = SimpleNamespace(
            percentiles_ms={99.0: self.held}, figures={"violations": SimpleNamespace(value=0.002)}, spans=1e9,
            by_run=tuple({"violations": self.rates[k % len(self.rates)]} for k in range(seeds)), queries_per_seed=1e5,
            responses={"response": Together([responses_of([self.held.value] * 100)] * seeds)},
        )  # fmt: skip
        return SimpleNamespace(apps=dict.fromkeys(plan.routing, one), duration_s=1e3, seeds=range(seeds))


def simulated(shown):
    profile, slo, state = table2(90.0, 100.0)
    tools = Tools(simulate=shown)
    return plan_for(hp.load(profile, slo, state), options={"sizing": "simulation"}, tools=tools, formulation="variants")


@pytest.mark.slow
def test_what_may_be_late_on_other_seeds_is_not_promised():
    sure, unsure = Shown(0.002), Shown(0.0, 0.018)
    times, share = [one for one in simulated(sure).require().promises if one.model == "simulation/1"]
    assert (times.value, times.interval, times.confidence) == (100.0, (80.0, 80.0), 0.975)
    assert (share.quantity, share.value) == ("violations", 0.01)
    assert share.interval == pytest.approx((0.002, 0.002))
    assert sure.asked == 3, "a look, one at a machine less, and then that is put to the test"
    missed = simulated(unsure)
    assert missed.exit_code == 3
    assert unsure.asked > 1
    assert "simulation/1" not in {one.model for one in missed.plan.promises}


def test_sized_by_simulation():
    documents = table2(90.0, 100.0)
    plain, simulated = solve(documents), solve(documents, sizing="simulation")
    assert simulated.exit_code == 0, (simulated.violations, simulated.why)
    assert simulated.status == "best-of-measured"
    assert money(simulated, "gross_cost_per_hour") >= money(plain, "gross_cost_per_hour")
    (shown,) = [p for p in simulated.plan.promises if p.quantity == "response_ms"]
    assert (shown.percentile, shown.model, shown.value) == (99, "simulation/1", 100.0)
