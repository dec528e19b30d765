"""Kairos' dispatch rules on four queries that fit on paper (G11), and queues with a closed form."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan.dispatch.queue_rules import Threshold
from hetplan.dispatch.snapshot import Overheads
from hetplan.simulator.pool import Pool, Queries, oracle_rate_qps, replay, simulate_pool

G1 = Pool.of([[10, 40], [20, 200]], (1, 1), 100)
FOUR = Queries.of(G1, arrival_ms=[0, 1, 2, 30], bins=[0, 1, 0, 1])
BASE, AUX = 0, 1


@pytest.mark.parametrize(
    ("rule", "served_by", "response_ms", "late"),
    [
        ("kairos", [AUX, BASE, AUX, BASE], [20, 40, 38, 51], 0),
        ("fcfs", [BASE, AUX, BASE, BASE], [10, 200, 18, 40], 1),
        ("clkwrk", [BASE, BASE, AUX, BASE], [10, 49, 20, 60], 0),
        (Threshold(1), [AUX, BASE, AUX, BASE], [20, 40, 38, 51], 0),
        (Threshold(2), [AUX, AUX, AUX, AUX], [20, 219, 238, 410], 3),
        (Threshold(0), [BASE, BASE, BASE, BASE], [10, 49, 58, 70], 0),
    ],
    ids=str,
)
def test_g11(rule: object, served_by: list[int], response_ms: list[float], late: int) -> None:
    run = replay(G1, FOUR, rule)  # type: ignore[arg-type]
    assert run.response_ms.tolist() == response_ms
    assert run.served_by.tolist() == served_by
    assert (run.late, run.served, run.stopped) == (late, 4, False)
    assert run.makespan_ms == max(a + r for a, r in zip([0, 1, 2, 30], response_ms, strict=True))


def test_g11_last_completion_and_oracle() -> None:
    assert replay(G1, FOUR).makespan_ms == 81
    assert oracle_rate_qps(G1, FOUR) == pytest.approx(50, rel=1e-12)


def test_g11_utilisation() -> None:
    assert replay(G1, FOUR).utilisation == pytest.approx((80 / 81, 40 / 81))


def test_where_types_stand_does_not_matter() -> None:
    """The base may be any type; answers name types as given."""
    turned = Pool.of([[20, 200], [10, 40]], (1, 1), 100, base=1)
    given = Queries.of(turned, arrival_ms=FOUR.arrival_ms, bins=FOUR.bins)
    for rule in ("kairos", "fcfs", "clkwrk"):
        mine, other = replay(G1, FOUR, rule), replay(turned, given, rule)
        assert mine.response_ms.tolist() == other.response_ms.tolist()
        assert mine.served_by.tolist() == (1 - other.served_by).tolist()


@pytest.mark.slow
def test_an_overhead_occupies_instances_that_fetch_and_only_delays_at_queues() -> None:
    over = Overheads(controller_ms=1, network_ms=2)
    fetching = replay(G1, FOUR, "kairos", overheads=over)
    assert fetching.response_ms.tolist() == [25, 45, 48, 61]
    queueing = replay(G1, FOUR, "clkwrk", overheads=over)
    assert queueing.response_ms.tolist() == [15, 54, 25, 65]


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("rule", ["kairos", "fcfs", "clkwrk"])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_one_instance_waits_as_m_d_1(rule: str, load: float) -> None:
    """Deterministic service of 1 s at one server: the mean wait is load / (2 (1 - load)) services."""
    pool = Pool.of([[1000.0]], (1,), 1e9)
    runs = [simulate_pool(pool, [1.0], rate_qps=load, rule=rule, seed=seed, count=200_000) for seed in range(2)]
    wait = float(np.mean([run.response_ms.mean() for run in runs])) / 1000 - 1
    assert wait == pytest.approx(load / (2 * (1 - load)), rel=0.03)


def test_utilisation_is_the_load() -> None:
    pool = Pool.of([[100.0], [200.0]], (2, 3), 1e9)
    run = simulate_pool(pool, [1.0], rate_qps=20, count=50_000, rule="fcfs")
    assert sum(u * n / s for u, n, s in zip(run.utilisation, (2, 3), (0.1, 0.2), strict=True)) == pytest.approx(
        20, rel=0.03
    )
