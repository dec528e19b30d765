"""Estimates and stopping rules against the specification's cases."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan.measure.sampling import Rule, Seen, alike, false_stops, stratify

FOUR_OF_FIVE = np.tile([1.0, 1.0, 1.0, 1.0, 0.0], 40)


def seen(rule: Rule, scores: np.ndarray) -> Seen:
    found = Seen(rule, np.ones(1))
    found.add(np.zeros(scores.size, dtype=np.int64), scores)
    return found


@pytest.mark.parametrize(("n", "stops"), [(100, False), (110, False), (115, True)])
def test_the_t_test_goes_on_and_stops_where_specified(n: int, stops: bool):
    """Looked at only there: 0.8 of n scores are 1, so that t = sqrt(n - 1) / 4."""
    rule = Rule(0.7, kind="t", n_min=n, n_max=n)
    assert seen(rule, FOUR_OF_FIVE[:n]).latest.decided is stops


@pytest.mark.parametrize(("target", "stops"), [(0.9, True), (0.99, False)])
def test_equal_scores_prove_no_more_than_laplace_allows(target: float, stops: bool):
    latest = seen(Rule(target, kind="t", n_max=50), np.ones(50)).latest
    assert latest.se == pytest.approx(0.019422, abs=1e-6)
    assert latest.decided is stops


def test_a_continuous_score_varies_by_a_share_of_its_range():
    latest = seen(Rule(0.4, bernoulli=False, span=2.0, n_max=50), np.full(50, 0.5)).latest
    assert latest.se == pytest.approx(0.02 / np.sqrt(50))


def test_strata_are_weighed_once_each_has_two_samples():
    rule = Rule(0.5, n_min=8, n_max=8, bernoulli=False)
    found = Seen(rule, np.array([0.75, 0.25]))
    found.add(np.array([0, 1] * 4), np.array([0.9, 0.1, 0.8, 0.2, 0.9, 0.1, 0.8, 0.2]))
    assert found.latest.mean == pytest.approx(0.75 * 0.85 + 0.25 * 0.15)
    each = np.var([0.9, 0.8, 0.9, 0.8], ddof=1)
    assert found.latest.se == pytest.approx(np.sqrt((0.75**2 + 0.25**2) * each / 4))


def test_batches_and_single_samples_come_to_the_same():
    rule = Rule(0.7, n_max=200)
    strata = np.arange(200) % 4
    together = Seen(rule, np.ones(4))
    taken = together.add(strata, FOUR_OF_FIVE)
    single = Seen(rule, np.ones(4))
    for k in range(200):
        single.add(strata[k : k + 1], FOUR_OF_FIVE[k : k + 1])
        if single.latest.decided:
            break
    assert (single.n, single.latest.mean, single.latest.se) == pytest.approx(
        (taken, together.latest.mean, together.latest.se)
    )


@pytest.mark.slow
def test_looking_often_stops_falsely_and_bets_do_not():
    often, _ = false_stops(Rule(0.7, kind="t"), 0.7, runs=250, seed=1)
    assert 0.07 < often < 0.19
    wrong, _ = false_stops(Rule(0.7), 0.7, runs=250, seed=1)
    assert wrong < 0.03
    assert false_stops(Rule(0.7, kind="fixed"), 0.7, runs=20)[0] == 0
    with pytest.raises(ValueError, match="betting, t, fixed"):
        Rule(0.7, kind="mixture")  # type: ignore[arg-type]


def rare(rng: np.random.Generator, share: float, usual: float) -> np.ndarray:
    """Scores near `usual`, and 0 in rare failures."""
    return np.where(rng.random(1000) < share, 0.0, np.clip(rng.normal(usual, 0.02, 1000), 0, 1))


@pytest.mark.slow
@pytest.mark.parametrize(("share", "usual", "target"), [(0.02, 0.8, 0.79), (0.01, 0.9, 0.895), (0.05, 0.8, 0.77)])
def test_rare_failures_are_not_passed_over(share: float, usual: float, target: float):
    """The true mean is below the target; the t-test passes it in a quarter to a half of the runs."""
    rng, passed = np.random.default_rng(1), {"betting": 0, "t": 0}
    for _ in range(100):
        scores = rare(rng, share, usual)
        for kind in ("betting", "t"):
            latest = seen(Rule(target, kind=kind, bernoulli=False), scores).latest  # type: ignore[arg-type]
            passed[kind] += latest.decided and latest.mean >= target
    assert passed["betting"] <= 1
    assert passed["t"] >= 5


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mean", [0.02, 0.5, 0.985])
def test_the_interval_holds_the_mean(mean: float):
    rng, missed, widths = np.random.default_rng(3), 0, []
    for _ in range(100):
        low, high = seen(Rule(0.5, kind="fixed", n_max=400, bernoulli=False), rng.beta(mean, 1 - mean, 400)).interval()
        missed += not low <= mean <= high
        widths.append(high - low)
    assert missed <= 1
    assert np.median(widths) < 0.25


@pytest.mark.slow
def test_bursts_of_alike_samples_count_for_fewer():
    """Runs of 25 alike samples, asked for far apart from one another: 40 independent ones in all."""
    order = np.array([int(f"{i:010b}"[::-1], 2) for i in range(1024)])
    order = order[order < 1000]
    rng, wrong, faults = np.random.default_rng(2), 0, []
    for _ in range(100):
        scores = np.repeat((rng.random(40) < 0.65).astype(float), 25)
        found = Seen(Rule(0.7), np.ones(1))
        found.add(np.zeros(1000, dtype=np.int64), scores[order], order)
        wrong += found.latest.decided and found.latest.mean >= 0.7
        whole = Seen(Rule(0.7, kind="fixed"), np.ones(1))
        whole.add(np.zeros(1000, dtype=np.int64), scores[order], order)
        faults.append(whole.interval())
    assert wrong <= 2
    assert sum(not low <= 0.65 <= high for low, high in faults) <= 2


def test_what_strata_have_in_common_is_no_burst():
    rng = np.random.default_rng(4)
    strata = np.arange(800) % 8
    scores = (rng.random(800) < np.linspace(0.2, 0.9, 8)[strata]).astype(float)
    assert alike(scores[np.argsort(strata, kind="stable")]) > 2
    found = Seen(Rule(0.9, kind="fixed", n_max=800), np.ones(8))
    found.add(strata, scores, np.argsort(np.argsort(strata, kind="stable")))
    assert found.burst(800) == 1.0


def test_lower_may_be_better():
    rule = Rule(0.5, lower=True)
    assert rule.passes(0.4)
    assert not rule.passes(0.6)


def test_small_strata_are_joined_and_said_so():
    rng = np.random.default_rng(0)
    features = np.concatenate([rng.normal(0, 0.1, (20, 2)), rng.normal(5, 0.1, (20, 2)), [[50.0, 50.0]]])
    strata = stratify(features, 3, least=2)
    assert strata.share.size == 2
    assert strata.joined
    order = strata.order()
    assert sorted(order) == list(range(41))
    assert set(strata.of[order[:2]]) == {0, 1}
