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

from hetplan.measure.drift import AROUND, HORIZON, STAKES, DriftTest

BLOCK = 1000


def alarms(before: float, after: float, change: int, until: int, streams: int, seed: int = 0) -> np.ndarray:
    """Per stream the sample of its alarm, or -1; chances of a right answer are `before`, and `after` the change."""
    test, rng = DriftTest(before), np.random.default_rng(seed)
    bet, mean = test._bet, test._mean
    stake, found = np.zeros(streams), np.full(streams, -1)
    for begin in range(0, until, BLOCK):
        chance = np.where(np.arange(begin, begin + BLOCK) < change, before, after)
        gains = 1.0 + bet * (mean - (rng.random((BLOCK, streams)) < chance[:, None]))
        for k in range(BLOCK):
            stake = (stake + 1.0 / ((begin + k + AROUND) * STAKES)) * gains[k]
            over = stake >= 1.0 / test.false_alarms
            if over.any():
                found[over & (found < 0)] = begin + k + 1
                stake[over] = 0.0 if after == before else stake[over]
    return found


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
    for mean in (0.5, 0.7, 0.8, 0.9):
        for change in (0, 10_000) if quick else (0, 10_000, 100_000):
            found = alarms(mean, mean - 0.05, change, change + 6000, streams, seed=1)
            later = found[found > change] - change
            half, most = np.percentile(later, [50, 90], method="higher")
            share = float((later <= 2000).mean())
            print(f"  from {mean} after {change}: {half:.0f}, {most:.0f}; {100 * share:.0f}%", flush=True)


if __name__ == "__main__":
    main(quick="--quick" in sys.argv[1:])
