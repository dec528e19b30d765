"""The tests' own simulator before queues whose answer is known, so that it may judge others."""

from __future__ import annotations

import numpy as np
import pytest
from truth import closed_forms as known
from truth.plain_simulator import App, Bank, Way, constant, exponential, lognormal, play

QUERIES = 12_000


def responses(app: App, banks: dict[str, Bank], *, queries: int = QUERIES, seed: int = 1) -> np.ndarray:
    return play({"ask": app}, banks, queries=queries, seed=seed)["ask"].response_ms


def assert_near(values: np.ndarray, expected: float) -> None:
    """Within four standard errors, from the means of batches: neighbouring queries wait alike."""
    means = np.array([part.mean() for part in np.array_split(values, 30)])
    error = means.std(ddof=1) / np.sqrt(means.size)
    assert abs(means.mean() - expected) < 4.0 * error + 1e-9
    assert error < 0.15 * expected


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_one_server(load: float) -> None:
    app = App(rate_qps=100.0 * load, limit_ms=30.0, ways=[Way({"a": 1.0})])
    fixed = responses(app, {"a": Bank(1, {None: [10.0]})})
    assert_near(fixed, known.mean_mg1(load / 10.0, 10.0, 100.0))
    assert_near(fixed > 30.0, known.late_md1(load / 10.0, 10.0, 30.0))
    assert_near(responses(app, {"a": Bank(1, {None: [10.0]}, law=exponential)}), 10.0 / (1.0 - load))
    varied = responses(app, {"a": Bank(1, {None: [10.0]}, law=lognormal(0.7))})
    assert_near(varied, known.mean_mg1(load / 10.0, 10.0, 149.0))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("servers", [2, 4])
@pytest.mark.parametrize("rule", ["matching", "earliest"])
def test_several_servers(servers: int, rule: str) -> None:
    """A common queue by matching, where no query is late; the earliest server is the same where times are known."""
    rate = 0.08 * servers
    law = exponential if rule == "matching" else constant
    app = App(rate_qps=1e3 * rate, limit_ms=1e6, ways=[Way({"a": 1.0})], rule=rule)
    got = responses(app, {"a": Bank(servers, {None: [10.0]}, law=law)})
    if rule == "matching":
        assert_near(got > 25.0, known.late_mmc(servers, rate, 10.0, 25.0))
        assert_near(got, 10.0 + known.erlang_c(servers, 10.0 * rate) * 10.0 / (servers - 10.0 * rate))
    else:
        common = App(rate_qps=1e3 * rate, limit_ms=1e6, ways=[Way({"a": 1.0})], rule="matching")
        assert_near(got, float(responses(common, {"a": Bank(servers, {None: [10.0]})}).mean()))


@pytest.mark.parametrize("rate", [0.06, 0.18])
def test_batches(rate: float) -> None:
    times = [10.0, 12.0, 15.0, 17.0]
    app = App(rate_qps=1e3 * rate, limit_ms=1e6, ways=[Way({"a": 1.0})])
    got = responses(app, {"a": Bank(1, {None: times}, most=4)})
    assert_near(got, known.mean_batches(rate, times))


def test_shares_and_turns() -> None:
    """Shares by chance keep arrivals Poisson; of two servers in turn each sees Erlang gaps, and waits less."""
    bank = {"a": Bank(1, {None: [10.0]}, law=exponential), "b": Bank(1, {None: [5.0]}, law=exponential)}
    app = App(rate_qps=150.0, limit_ms=50.0, ways=[Way({"a": 0.4, "b": 0.6})])
    assert_near(responses(app, bank), 0.4 * 10.0 / (1.0 - 0.6) + 0.6 * 5.0 / (1.0 - 0.45))
    root = 0.5
    for _ in range(500):
        root = (1.6 / (1.6 + 1.0 - root)) ** 2
    app = App(rate_qps=160.0, limit_ms=50.0, ways=[Way({"a": 1.0})], within="turns")
    assert_near(responses(app, {"a": Bank(2, {None: [10.0]}, law=exponential)}), 10.0 / (1.0 - root))


def test_steps() -> None:
    """Burke: what an exponential queue puts out is Poisson, so the next behaves as if it were alone."""
    app = App(
        rate_qps=70.0,
        limit_ms=100.0,
        ways=[Way({"a": 1.0}, step="one"), Way({"b": 1.0}, step="two")],
        first="one",
        then={"one": ["two"]},
    )
    banks = {name: Bank(1, {None: [mean]}, law=exponential) for name, mean in (("a", 10.0), ("b", 6.0))}
    assert_near(responses(app, banks), 1.0 / (0.1 - 0.07) + 1.0 / (1.0 / 6.0 - 0.07))


def test_recorded_arrivals() -> None:
    app = App(rate_qps=1.0, limit_ms=15.0, ways=[Way({"a": 1.0})], times_ms=[0.0, 1.0, 2.0, 50.0])
    assert sorted(responses(app, {"a": Bank(1, {None: [10.0]})})) == [10.0, 10.0, 19.0, 28.0]
