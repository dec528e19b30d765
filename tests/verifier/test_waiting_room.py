"""How busy an instance may be: the verifier's own writing beside the planner's."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan.problems.variants.size import busy_limit, busy_limit_of_law
from hetplan.verifier.waiting_room import most_busy, most_busy_by_law


@pytest.mark.parametrize(("batch", "left"), [(1, 0.01), (4, 0.05)])
def test_both_writings_of_the_queue_find_the_same_use(batch: int, left: float) -> None:
    for limit_ms in (19.0, 20.0, 43.7, 100.0, 161.0, 900.0):
        mine = most_busy(time_ms=20.0, batch=batch, limit_ms=limit_ms, left=left)
        theirs = busy_limit(time_ms=20.0, batch=batch, slo_ms=limit_ms, percentile=100.0 * (1.0 - left))
        assert mine == pytest.approx(theirs, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_both_writings_of_the_law_find_the_same_use(seed: int) -> None:
    random = np.random.default_rng(seed)
    for left in (0.1, 0.01):
        times = tuple(np.sort(random.uniform(1.0, 20.0, int(random.integers(2, 17)))).tolist())
        limit_ms = times[-1] * float(random.uniform(0.4, 3.0))
        mine = most_busy_by_law(times, limit_ms=limit_ms, left=left)
        theirs = busy_limit_of_law(times, slo_ms=limit_ms, percentile=100.0 * (1.0 - left))
        assert theirs - 0.004 <= mine <= theirs * (1 + 1e-9)
