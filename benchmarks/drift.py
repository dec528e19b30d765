"""How often the test of `hetplan.measure.drift` is wrong, and how soon it finds a fall of 0.05.

python benchmarks/drift.py            false alarms over a million samples, and delays; about two minutes
python benchmarks/drift.py --quick    the same with fewer streams and samples

Right-or-wrong scores. Many streams at once in numpy, by the recursion that `DriftTest` has; that both are the same is
checked on one stream first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hetplan.measure.drift import HORIZON, DriftTest, staked

BLOCK = 1000


def alarms(
    before: float, after: float, change: int, until: int, streams: int, seed: int = 0, begin: int = 0
) -> np.ndarray:
    """Per stream the sample of its alarm, or -1; chances of a right answer are `before`, and `after` the change.

    What was staked before the sample `begin` is left out: it is nearly gone where that is long before the change.
    """
    test, rng = DriftTest(before), np.random.default_rng(seed)
    bet, mean = test._bet, test._mean
    stake, found = np.zeros(streams), np.full(streams, -1)
    for first in range(begin, until, BLOCK):
        chance = np.where(np.arange(first, first + BLOCK) < change, before, after)
        gains = 1.0 + bet * (mean - (rng.random((BLOCK, streams)) < chance[:, None]))
        for k in range(BLOCK):
            stake = (stake + staked(first + k)) * gains[k]
            over = stake >= 1.0 / test.false_alarms
            if over.any():
                found[over & (found < 0)] = first + k + 1
                stake[over] = 0.0 if after == before else stake[over]
    return found


def most_found(mean: float, within: int, *, fall: float = 0.05, false_alarms: float = 0.05) -> float:
    """How often any test finds a fall within so many samples, at the worst moment for it, of right-or-wrong scores.

    A test with false alarms in at most that part of `HORIZON` samples has a window of `within` samples in which they
    are rarest, a / (1 - a) within / HORIZON at most where there was none before. In it no test is better than the most
    powerful one at this level (Neyman and Pearson): it counts right answers.
    """
    from scipy.stats import binom

    level = false_alarms / (1.0 - false_alarms) * within / HORIZON
    edge = int(binom.ppf(level, within, mean))
    part = (level - binom.cdf(edge - 1, within, mean)) / binom.pmf(edge, within, mean)
    return float(binom.cdf(edge - 1, within, mean - fall) + part * binom.pmf(edge, within, mean - fall))


def best_at_its_worst(mean: float, within: int, streams: int, *, fall: float = 0.05, wrong: float = 0.05) -> float:
    """How often the test that finds this very fall soonest on average, at its worst moment, finds it within so many.

    Of all tests with so many samples between false alarms it is the cumulative sum of log-likelihood ratios, begun anew
    at 0 (Lorden; Moustakides). Its threshold is found where that many samples are `HORIZON` / -ln(1 - wrong), by the
    chain of its values on a fine grid; its worst moment is at 0.
    """
    up, down = np.log((1 - mean + fall) / (1 - mean)), np.log((mean - fall) / mean)
    low, high = 4.0, 18.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        enough = _until_false(mean, up, down, middle) >= HORIZON / -np.log(1.0 - wrong)
        low, high = (low, middle) if enough else (middle, high)
    rng, sums, found = np.random.default_rng(2), np.zeros(streams), np.zeros(streams, dtype=bool)
    for _ in range(within):
        sums = np.maximum(sums + np.where(rng.random(streams) < mean - fall, down, up), 0.0)
        found |= sums >= high
    return float(found.mean())


def _until_false(mean: float, up: float, down: float, edge: float, points: int = 4000) -> float:
    """Samples until the sum reaches its edge where nothing has changed; it is rounded to neighbours on a grid."""
    from scipy.sparse import csr_array, eye_array
    from scipy.sparse.linalg import spsolve

    at, parts = np.linspace(0.0, edge, points), []
    for step, chance in ((up, 1.0 - mean), (down, mean)):
        to = np.maximum(at + step, 0.0)
        origin = np.flatnonzero(to < edge)
        place = to[origin] / edge * (points - 1)
        left = np.minimum(place.astype(int), points - 2)
        parts += [(chance * (1 - place + left), origin, left), (chance * (place - left), origin, left + 1)]
    values, rows, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    chain = csr_array((values, (rows, columns)), shape=(points, points))
    return float(spsolve((eye_array(points) - chain).tocsc(), np.ones(points))[0])


def same_as_one_by_one() -> None:
    rng = np.random.default_rng(0)
    scores = (rng.random((BLOCK * 4, 1)) < 0.75).astype(float)
    test = DriftTest(0.8)
    test.add(scores[:, 0])
    found = int(alarms(0.8, 0.75, 0, BLOCK * 4, 1)[0])
    rng = np.random.default_rng(0)
    drawn = np.concatenate([(rng.random((BLOCK, 1)) < 0.75) for _ in range(4)])[:, 0].astype(float)
    test = DriftTest(0.8)
    test.add(drawn)
    assert (test.n if test.alarm else -1) == found, (test.n, found)


def main(*, quick: bool) -> None:
    same_as_one_by_one()
    streams, horizon = (100, 100_000) if quick else (2000, HORIZON)
    print(f"false alarms over {horizon} samples, nothing changed, {streams} streams")
    for mean in (0.5, 0.8, 0.95):
        wrong = (alarms(mean, mean, horizon, horizon, streams) > 0).mean()
        print(f"  accuracy {mean}: {100 * wrong:.2f}%", flush=True)
    print("a fall of 0.05: samples until it is found (median, 90th percentile), found within 2,000")
    for mean in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95):
        for change in (0, 10_000) if quick else (0, 10_000, 100_000, 900_000):
            begin = max(change - 20_000, 0)
            found = alarms(mean, mean - 0.05, change, change + 6000, streams, seed=1, begin=begin)
            later = np.where(found < 0, 6000, found - change)[(found < 0) | (found > change)]
            half, most = np.percentile(later, [50, 90], method="higher")
            share = float((later <= 2000).mean())
            print(f"  from {mean} after {change}: {half:.0f}, {most:.0f}; {100 * share:.0f}%", flush=True)
        enough = next(count for count in range(50, 20_000, 50) if most_found(mean, count) >= 0.95)
        best = f"{100 * most_found(mean, 2000):.1f}% within 2,000; {enough} for 95%"
        print(f"  from {mean}, the most that any test finds at its worst moment: {best}", flush=True)
        soonest = 100 * best_at_its_worst(mean, 2000, 2 * streams)
        print(f"  from {mean}, the test that is soonest at its worst moment: {soonest:.0f}%", flush=True)


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
