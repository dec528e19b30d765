"""The simulator of policies: against a plain one written out in Python, against itself, and against what is known."""

import os
import secrets

import numpy as np
import pytest
from cases.policy import files, random_process, solve

from hetplan.planner.contract import Tools
from hetplan.planner.forms.queue_process import Late, QueuePolicy, QueueProcess
from hetplan.planner.forms.queue_process_measures import measure
from hetplan.problems.policy.options import PolicyOptions
from hetplan.problems.policy.question import Policy
from hetplan.profiles.load import load_inputs
from hetplan.simulator.policy import simulate_policy


def plainly(form: QueueProcess, policy: QueuePolicy, arrivals: np.ndarray, workers: int, *, shortest: bool) -> tuple:
    """(goodput, violations) query by query, event by event; late by more than a nanosecond counts."""
    queues: list[list[float]] = [[] for _ in range(workers)]
    free, in_service = [0.0] * workers, [0] * workers
    late = good = 0.0

    def serve_until(worker: int, now: float) -> None:
        nonlocal late, good
        while queues[worker] and max(free[worker], queues[worker][0]) <= now and free[worker] <= now:
            start = max(free[worker], queues[worker][0])
            n, slack = len(queues[worker]), queues[worker][0] + form.slo_s - start
            if n > form.queue:
                model, batch = 0, min(n, form.queue + 1)
            else:
                j = max(int(np.searchsorted(form.grid_s, slack + 1e-9, side="right")) - 1, 0)
                model, batch = int(policy.model[n - 1, j]), int(policy.batch[n - 1, j])
            if batch == 0:
                queues[worker].pop(0)
                late += 1
                free[worker] = start
                continue
            end = start + form.latency_s[model, batch - 1]
            for came in queues[worker][:batch]:
                on_time = end - came <= form.slo_s + 1e-9
                late += not on_time
                good += form.accuracy[model] if on_time else 0.0
            del queues[worker][:batch]
            free[worker], in_service[worker] = end, batch

    turn = 0
    for i, now in enumerate(arrivals):
        for worker in range(workers):
            serve_until(worker, now)
        chosen = i % workers
        if shortest:
            order = [(turn + k) % workers for k in range(workers)]
            chosen = min(order, key=lambda w: len(queues[w]) + (in_service[w] if free[w] > now else 0))
            turn = (turn + 1) % workers
        # A service that would begin at this very moment takes the newcomer along.
        queues[chosen].append(now)
    for worker in range(workers):
        serve_until(worker, np.inf)
    return good / arrivals.size, late / arrivals.size


CASES = [
    (1, False, {}),
    (3, False, {}),
    (3, True, {}),
    (2, False, {"late": Late.DROP}),
    (2, True, {"late": Late.DROP}),
]


@pytest.mark.parametrize(("workers", "shortest", "how"), CASES, ids=str)
def test_against_a_plain_simulation(workers: int, shortest: bool, how: dict) -> None:  # type: ignore[type-arg]
    form = random_process(21, queue=3, stages=workers, **how)
    policy = solve(form).point
    rng = np.random.default_rng(5)
    arrivals = np.cumsum(rng.exponential(1.0 / (2.2 * workers), 4000))
    goodput, violation = plainly(form, policy, arrivals - arrivals[0], workers, shortest=shortest)
    run = simulate_policy(
        form,
        [policy],
        workers=workers,
        times_s=arrivals,
        balancing="shortest_queue" if shortest else "round_robin",
        warm=0,
        seeds=(1,),
    )
    assert (run.goodput, run.violation) == pytest.approx((goodput, violation), abs=1e-12)
    assert run.queries == 4000


def test_one_worker_is_the_marginal_of_all() -> None:
    """Round robin under Poisson arrivals: Erlang gaps at one worker, or all workers in full."""
    form = random_process(22, queue=5, stages=6)
    policy = solve(form).point
    load = float(form.stage_rates[0])
    alone = simulate_policy(form, [policy], workers=6, load_qps=load, queries=400_000, seeds=(1, 2, 3))
    every = simulate_policy(
        form, [policy], workers=6, load_qps=load, queries=400_000, seeds=(4, 5, 6), every_worker=True
    )
    assert alone.goodput == pytest.approx(every.goodput, abs=4e-3)
    assert alone.utilisation == pytest.approx(every.utilisation, abs=4e-3)
    assert alone.goodput_interval[0] <= alone.goodput <= alone.goodput_interval[1]


def test_on_a_fine_grid_the_expectation_is_the_simulation() -> None:
    """Whole batches are exact Markov but for the rounding of slack: as it vanishes, decisions and queues agree."""
    coarse = random_process(23, queue=8, stages=2)
    form = QueueProcess(
        latency_s=coarse.latency_s,
        accuracy=coarse.accuracy,
        grid_s=np.linspace(0, 1, 801),
        stages=2,
        stage_rates=coarse.stage_rates * 0.8,
    )
    answer = solve(form)
    measures = measure(form, answer.point, np.asarray(answer.proof["stationary"]))
    run = simulate_policy(
        form, [answer.point], workers=2, load_qps=float(form.stage_rates[0]), queries=500_000, seeds=(1, 2, 3)
    )
    assert run.utilisation == pytest.approx(measures.utilisation, abs=3e-3)
    assert run.over == pytest.approx(measures.over_probability, abs=2e-3)
    assert run.goodput >= measures.goodput - 2e-3


FRESH = secrets.randbelow(10**6) if os.environ.get("HETPLAN_EXPLORE") == "1" else 9001
"""The first of some seeds that nothing was tuned on; others at every run where new cases are asked for."""


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("late", ["serve", "drop"])
@pytest.mark.parametrize("shape", [1.0, 2.0])
@pytest.mark.parametrize("objective", ["per_query", "per_decision"])
def test_expectation_against_simulation_on_fresh_seeds(late: str, shape: float, objective: str) -> None:
    """Whole batches: goodput was never below its expectation, nor violations above, and both are near (no theorem)."""
    profile, slo = files(workers=(4, 4), late=late, rate_qps=100.0)
    slo["apps"]["a"]["arrivals"] = {"process": "gamma", "shape": shape}
    options = PolicyOptions(objective=objective, batching="max", queue_max=8)
    inputs = load_inputs(profile, slo)
    (group,) = Policy.from_inputs(inputs, options, formulation="policy-mdp", tools=Tools()).asked.groups()
    for load in (130.0, 220.0, 330.0):
        form = group.form(load, options, batching="max")
        answer = solve(form)
        expected = measure(form, answer.point, np.asarray(answer.proof["stationary"]))
        seeds = range(FRESH, FRESH + 5)
        run = simulate_policy(
            form, [answer.point], workers=4, load_qps=load, shape=shape, queries=60_000, seeds=tuple(seeds)
        )
        noise = 2 * (run.goodput_interval[1] - run.goodput) + 1e-9
        assert run.goodput >= expected.goodput - noise
        assert run.goodput <= expected.goodput + 0.02
        assert run.violation <= expected.violation_by_query + 2 * (run.violation_interval[1] - run.violation)
        assert run.utilisation == pytest.approx(expected.utilisation, abs=0.02)


def test_a_queue_that_is_known() -> None:
    """M/D/1 with one at a time: mean busy share is the load, P(no wait) is one minus it."""
    form = QueueProcess(
        latency_s=np.array([[0.5, 1e-9 + 0.5]]),
        accuracy=np.array([1.0]),
        grid_s=np.array([0.0, 0.5]),
        stages=1,
        stage_rates=np.array([1.0]),
    )
    policy = QueuePolicy(np.zeros((1, 2), dtype=np.int64), np.ones((1, 2), dtype=np.int64))
    run = simulate_policy(form, [policy], workers=1, load_qps=0.6, queries=300_000, seeds=(1, 2, 3))
    # In time means no wait at all; two may be taken at once where more wait, so the queue is at least that fast.
    assert run.utilisation < 0.3 + 5e-3
    assert run.accuracy == 1.0
    assert run.goodput == pytest.approx(1 - run.violation)
    assert 1 - run.violation > 1 - 0.3 - 5e-3


def test_one_queue_for_all() -> None:
    """Two workers, one at a time: with as many servers as queries nobody waits."""
    form = random_process(24, queue=2, models=1)
    policy = QueuePolicy(np.zeros((2, form.slacks), np.int64), np.ones((2, form.slacks), np.int64))
    service = float(form.latency_s[0, 0])
    times = np.repeat(np.arange(500) * (2 * service), 2)
    run = simulate_policy(form, [policy], workers=2, times_s=times, balancing="shared_fifo", warm=0, seeds=(1,))
    assert run.violation == 0.0
    assert run.response_s[99.0] == pytest.approx(service)
    alone = simulate_policy(form, [policy], workers=1, times_s=times, balancing="shared_fifo", warm=0, seeds=(1,))
    assert alone.response_s[99.0] == pytest.approx(2 * service)


def test_a_set_follows_the_load() -> None:
    """Two policies, one per load: which one serves is seen in the models that answer."""
    form = random_process(25, queue=4, models=2)
    light = QueuePolicy(np.ones((4, form.slacks), np.int64), np.tile(np.arange(1, 5)[:, None], (1, form.slacks)))
    heavy = QueuePolicy(np.zeros_like(light.model), light.batch)
    how = {"workers": 3, "loads_qps": (5.0, 50.0), "piece_s": 20.0, "seeds": (1,), "warm": 0}
    slow = simulate_policy(form, [light, heavy], piece_qps=np.array([1.0, 1.0]), **how)
    fast = simulate_policy(form, [light, heavy], piece_qps=np.array([40.0, 40.0]), **how)
    assert slow.model_share[1] > 0.95
    assert fast.model_share[1] < 0.1


def test_rates_at_the_shortest_queue() -> None:
    """Told for every queue length that occurred, and none above the whole load."""
    form = random_process(26, queue=4, stages=1)
    policy = solve(form).point
    run = simulate_policy(
        form, [policy], workers=4, load_qps=6.0, balancing="shortest_queue", queries=100_000, seeds=(1, 2)
    )
    rates = run.rates_by_queue
    assert rates.shape == (form.queue + 2,)
    assert np.isnan(rates[0])
    seen = rates[np.isfinite(rates)]
    assert seen.size >= 2
    assert ((seen > 0) & (seen < 6.0)).all()


def test_resampled_latencies_keep_their_mean() -> None:
    form = random_process(27, queue=3, models=1)
    policy = solve(form).point
    fixed = simulate_policy(form, [policy], workers=3, load_qps=1.0, queries=100_000, seeds=(1, 2, 3))
    spread = np.full_like(form.latency_s, 0.2)
    drawn = simulate_policy(form, [policy], workers=3, load_qps=1.0, queries=100_000, seeds=(1, 2, 3), spread=spread)
    assert drawn.utilisation == pytest.approx(fixed.utilisation, rel=0.02)
    assert drawn.response_s[99.0] > fixed.response_s[99.0]


def test_seeds_decide_and_nothing_else() -> None:
    form = random_process(28)
    policy = solve(form).point
    how = {"workers": 2, "load_qps": 3.0, "queries": 20_000}
    first = simulate_policy(form, [policy], seeds=(7, 8), **how)
    again = simulate_policy(form, [policy], seeds=(7, 8), **how)
    other = simulate_policy(form, [policy], seeds=(9, 10), **how)
    assert first.goodput == again.goodput != other.goodput
