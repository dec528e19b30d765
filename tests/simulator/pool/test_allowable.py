"""The search for the allowable rate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hetplan.dispatch.queue_rules import Fcfs, Threshold
from hetplan.dispatch.snapshot import Overheads
from hetplan.errors import InputError
from hetplan.simulator.pool import Conditions, Draws, Pool, simulate_pool
from hetplan.simulator.pool_allowable import (
    Search,
    allowable_rate,
    allowable_rates,
    fluid_qps,
    highest_passing,
    queries_needed,
)

LATENCY = [[10.0, 20.0, 40.0], [12.0, 60.0, 200.0]]
PMF = [0.5, 0.3, 0.2]
COUNTS = (2, 4)


def rate(**changed: object) -> float:
    given = {"latency_ms": LATENCY, "counts": COUNTS, "pmf": PMF, "qos_ms": 100.0, "least_queries": 8000, **changed}
    return allowable_rate(**given).median  # type: ignore[arg-type]


@given(st.floats(0.01, 1.0))
def test_a_single_limit_is_found_to_half_a_percent(limit: float) -> None:
    found = highest_passing(lambda tried: tried <= limit, 1.0)
    assert limit * 0.995 - 1e-12 <= found <= limit


def test_the_highest_passing_cell_wins_though_lower_rates_fail() -> None:
    found = highest_passing(lambda tried: 0.55 <= tried <= 0.81 or tried < 0.02, 1.0)
    assert 0.805 <= found <= 0.81


def test_all_of_the_grid_may_pass() -> None:
    assert highest_passing(lambda tried: True, 7.0) == 7.0


def test_below_the_grid_rates_are_tried_down_to_a_thousandth() -> None:
    assert highest_passing(lambda tried: tried <= 0.013, 1.0) == pytest.approx(0.013, rel=0.005)
    asked: list[float] = []
    assert highest_passing(lambda tried: asked.append(tried) is not None, 1.0) == 0.0
    assert min(asked) < 1e-3


@given(st.integers(0, 2**32), st.floats(0.0, 1.1))
def test_a_search_that_only_has_to_beat_a_rate_finds_what_beats_it(seed: int, above: float) -> None:
    """Whatever rates pass, nearer the top the fewer: the same answer if it is higher, else one that is not either."""

    def passes(rate_qps: float) -> bool:
        return bool(np.random.default_rng((seed, round(1e9 * rate_qps))).random() > rate_qps)

    runs = [0, 0]

    def counted(which: int, rate_qps: float) -> bool:
        runs[which] += 1
        return passes(rate_qps)

    whole = highest_passing(lambda tried: counted(0, tried), 1.0)
    found = highest_passing(lambda tried: counted(1, tried), 1.0, above=above)
    assert found == whole if whole > above else found <= above
    assert runs[1] <= runs[0]


@pytest.mark.slow
def test_a_pool_that_does_not_beat_a_rate_is_not_searched_to_the_end() -> None:
    given: dict[str, object] = {"latency_ms": LATENCY, "counts": COUNTS, "pmf": PMF, "qos_ms": 100.0}
    given |= {"least_queries": 4000, "seeds": range(5)}
    whole = allowable_rate(**given)  # type: ignore[arg-type]
    for above in (0.5 * whole.median, 0.999 * whole.median):
        found = allowable_rate(**given, above=above)  # type: ignore[arg-type]
        assert (found.per_seed, found.seeds, found.not_above) == (whole.per_seed, whole.seeds, None)
    # A rate is found to half a percent: nothing of that cell is left to search at the median itself.
    for above in (whole.median, 1.01 * whole.median, 1.05 * whole.max):
        found = allowable_rate(**given, above=above)  # type: ignore[arg-type]
        assert found.median <= above
        assert (found.not_above is None) == (above == whole.median)
        two = allowable_rate(**given, above=above, threads=2)  # type: ignore[arg-type]
        assert (two.per_seed, two.not_above) == (found.per_seed, found.not_above)
    assert found.feasible
    assert len(found.seeds) == 3
    assert found.evaluations < whole.evaluations / 2


def test_runs_are_long_enough_for_their_queue() -> None:
    assert queries_needed(500, 100) == 20_000
    assert queries_needed(2000, 100) == 40_000
    assert queries_needed(2001, 100, least=1) == 40_020


@pytest.mark.slow
def test_no_rate_at_all_is_said() -> None:
    """Every query of the second bin is late wherever it runs."""
    found = allowable_rate([[10, 400]], (1,), [0.9, 0.1], 100, lp_qps=20.0, least_queries=1000)
    assert (found.median, found.feasible, found.why) == (0.0, False, "infeasible at any rate")
    assert found.per_seed == (0.0, 0.0, 0.0)
    assert allowable_rate([[10, 400]], (1,), [0.9, 0.1], 100, least_queries=1000).median == 0.0
    assert allowable_rate([[10, 40]], (1,), [0.9, 0.1], 100, least_queries=1000).why == ""


@pytest.mark.slow
def test_a_pool_that_is_late_at_a_trickle_but_not_in_a_stream() -> None:
    """Noise makes the auxiliary type late too often; only a stream keeps queries away from it."""
    found = allowable_rate(
        [[10.0], [11.0]],
        (1, 1),
        [1.0],
        30.0,
        conditions=Conditions(noise="lognormal", std_ms=[[0.1], [18.0]]),
        rule=Fcfs(prefer=(1,)),
        least_queries=4000,
    )
    assert not found.feasible


@pytest.mark.slow
def test_seeds_threads_and_order_change_nothing() -> None:
    pool = Pool.of(LATENCY, COUNTS, 100)
    searches = [Search(pool, PMF, rule, (0, 1, 2), least_queries=3000) for rule in ("kairos", "fcfs", "drs", "clkwrk")]
    heard: list[tuple[int, int]] = []
    one = list(allowable_rates(searches, threads=1, on_progress=lambda done, of: heard.append((done, of))))
    two = list(allowable_rates(searches, threads=2))
    assert one == two
    assert heard == [(done, 12) for done in range(1, 13)]
    single = allowable_rate(pool, pmf=PMF, rule="kairos", seeds=(2,), least_queries=3000)
    assert single.per_seed == one[0].per_seed[2:]
    assert one[0].min <= one[0].median <= one[0].max
    assert one[0].evaluations > 3


@pytest.mark.slow
def test_the_order_of_the_rules_is_that_of_the_paper() -> None:
    assert rate(rule="fcfs") < rate(rule="clkwrk") < rate(rule="kairos") < rate(rule="oracle")


def test_the_best_threshold_is_named_and_no_fixed_one_beats_it() -> None:
    found = allowable_rate(LATENCY, COUNTS, PMF, 100, rule="drs", least_queries=8000)
    assert found.threshold is not None
    for threshold in (0.5, 1.5, 2.5):
        fixed = allowable_rate(LATENCY, COUNTS, PMF, 100, rule=Threshold(threshold), least_queries=8000)
        assert fixed.median <= found.median
        assert fixed.threshold == threshold
    climbed = allowable_rate(LATENCY, COUNTS, PMF, 100, rule="drs", threshold="climb", least_queries=8000)
    assert climbed.median == found.median


def test_a_threshold_without_auxiliary_or_base_instances_sends_all_one_way() -> None:
    homogeneous = rate(counts=(3, 0), rule="drs")
    assert homogeneous == rate(counts=(3, 0), rule="fcfs") > 0
    assert rate(counts=(0, 3), rule="drs", latency_ms=[LATENCY[0]] * 2) > 0


def test_scaling_time_scales_rates() -> None:
    """By a power of two, which rounds nothing: the same runs, bit by bit."""
    slow = [[8 * ms for ms in row] for row in LATENCY]
    assert rate(latency_ms=slow, qos_ms=800.0, lp_qps=20.0) == rate(lp_qps=160.0) / 8


def test_permuting_the_other_types_changes_nothing() -> None:
    three = [*LATENCY, [11.0, 47.0, 150.0]]
    one = rate(latency_ms=three, counts=(1, 2, 3))
    other = rate(latency_ms=[three[0], three[2], three[1]], counts=(1, 3, 2))
    assert other == one


@pytest.mark.slow
def test_more_of_anything_is_no_worse() -> None:
    here = rate()
    assert rate(counts=(3, 4)) > here
    assert rate(qos_ms=200.0) > here
    assert rate(most_late=0.05) > here


@pytest.mark.slow
def test_overheads_and_wrong_predictions_cost_rate() -> None:
    here = rate()
    assert rate(conditions=Conditions(overheads=Overheads(controller_ms=1.0, network_ms=2.0))) < here
    assert rate(conditions=Conditions(misprediction=0.05)) == pytest.approx(here, rel=0.05)
    assert rate(conditions=Conditions(misprediction=0.25)) < 0.95 * here


def test_arrivals_in_whole_milliseconds_are_smoother() -> None:
    assert rate(conditions=Conditions(arrivals="integer-poisson")) > rate()


def test_arrivals_may_be_handed_in() -> None:
    even = Conditions(arrivals=lambda rate_qps, count, seed: np.arange(1, count + 1) * 1000.0 / rate_qps)
    assert rate(conditions=even) > rate()


def test_the_oracle_does_not_beat_the_fluid_bound_of_its_own_queries() -> None:
    pool = Pool.of(LATENCY, COUNTS, 100)
    for seed in range(4):
        draws = Draws(PMF, seed=seed)
        found = allowable_rate(pool, pmf=PMF, rule="oracle", seeds=(seed,), least_queries=20_000)
        count = queries_needed(1.1 * fluid_qps(pool, PMF), 100)
        sampled = np.bincount(draws.bins(count), minlength=3) / count
        assert found.median <= fluid_qps(pool, sampled) * (1 + 1e-9)


def test_drawn_sizes_and_arrivals_are_what_was_asked_for() -> None:
    pool = Pool.of(LATENCY, COUNTS, 100)
    queries = Draws(PMF, seed=1).queries(pool, rate_qps=250, count=100_000)
    assert np.bincount(queries.bins) / 100_000 == pytest.approx(PMF, abs=0.006)
    assert queries.arrival_ms[-1] == pytest.approx(400_000, rel=0.015)
    gaps = np.diff(queries.arrival_ms)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)
    assert (Draws(PMF, seed=1).queries(pool, rate_qps=250, count=50).bins == queries.bins[:50]).all()


def test_noise_has_the_mean_and_deviation_asked_for_and_is_cut() -> None:
    pool = Pool.of([[10.0], [30.0]], (1, 1), 100)
    noisy = Conditions(noise="lognormal", std_ms=[[2.0], [9.0]])
    drawn = Draws([1.0], seed=0).queries(pool, rate_qps=1, count=200_000, conditions=noisy)
    assert drawn.actual_ms.mean(axis=0) == pytest.approx([10, 30], rel=0.01)
    assert drawn.actual_ms.std(axis=0) == pytest.approx([2, 9], rel=0.02)
    assert (drawn.predicted_ms == [10, 30]).all(), "the dispatch sees means"
    cut = Conditions(noise="lognormal", std_ms=[[2.0], [9.0]], max_ms=[[12.0], [31.0]])
    queries = Draws([1.0], seed=0).queries(pool, rate_qps=1, count=1000, conditions=cut)
    assert queries.actual_ms.max(axis=0).tolist() == [12.0, 31.0]


@pytest.mark.slow
def test_noise_may_be_given_directly() -> None:
    deviations = [[2.0, 4.0, 8.0], [3.0, 12.0, 40.0]]
    noisy = rate(noise="lognormal", std_ms=deviations)
    assert noisy == rate(conditions=Conditions(noise="lognormal", std_ms=deviations)) != rate()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"latency_ms": [[10.0, float("nan"), 40.0], LATENCY[1]]}, "latency_ms"),
        ({"latency_ms": [[10.0, 0.0, 40.0], LATENCY[1]]}, "latency_ms"),
        ({"counts": (1,)}, "counts"),
        ({"counts": (0, 0)}, "counts"),
        ({"counts": (1, -1)}, "counts"),
        ({"qos_ms": 0.0}, "qos_ms"),
        ({"base": 2}, "base"),
        ({"sizes": (1, 1, 2)}, "sizes"),
        ({"pmf": [0.5, 0.3, 0.1]}, "pmf"),
        ({"pmf": [0.5, 0.6, -0.1]}, "pmf"),
        ({"seeds": ()}, "seeds"),
        ({"rule": "fifo"}, "rule"),
    ],
)
def test_bad_input_is_reported(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        rate(**wrong)
    assert caught.value.faults[0].path == field


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"noise": "lognormal"}, "std_ms"),
        ({"noise": "normal"}, "noise"),
        ({"misprediction": 1.0}, "misprediction"),
        ({"arrivals": "bursty"}, "arrivals"),
        ({"split_above": -1}, "split_above"),
    ],
)
def test_bad_conditions_are_reported(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        Conditions(**wrong)  # type: ignore[arg-type]
    assert caught.value.faults[0].path == field


def test_bad_tables_and_rules_are_reported() -> None:
    pool = Pool.of(LATENCY, COUNTS, 100)
    with pytest.raises(InputError, match="shape"):
        simulate_pool(pool, PMF, rate_qps=1, conditions=Conditions(noise="lognormal", std_ms=[[1.0]]))
    with pytest.raises(InputError, match="threshold of its own"):
        simulate_pool(pool, PMF, rate_qps=1, rule="drs")
    with pytest.raises(InputError, match="rate_qps"):
        simulate_pool(pool, PMF, rate_qps=0)
