"""Random machines that are paid whole: default plans are kept, and hardly dearer than what a search finds."""

import pytest

from benchmarks.kept_whole import judged, whole


def test_an_instance_is_the_same_each_time_and_instances_differ():
    assert whole(7) == whole(7)
    assert whole(7) != whole(8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "found"),
    [(11, 45.645), (19, 32.606), (124, 17.496), pytest.param(112, 10.873, marks=pytest.mark.longest)],
)
def test_a_default_plan_is_hardly_dearer_than_the_cheapest_near_by(seed, found):
    """Without a look at what is near, the first two cost 78.2 and 88.0.

    The third cost 23.4 while hope stayed high after a plan was late. The fourth cost 18.0 while 12 instances on three
    machines were thought to be late since 22 on ten were.
    """
    row = judged(seed, plays=0)
    assert (row.code, row.kept, row.ok, row.planned_kept) == (0, True, True, False)
    assert row.cost <= 1.1 * found


@pytest.mark.longest
def test_of_random_instances_what_is_handed_out_is_kept_and_near_the_cheapest_found():
    rows = [judged(seed) for seed in range(12)]
    assert sum(not row.planned_kept for row in rows) >= 6
    plans = [row for row in rows if row.cost is not None]
    assert len(plans) >= 10
    assert all(row.ok for row in plans)
    assert sum(bool(row.kept) for row in plans) >= 0.95 * len(plans)
    ratios = sorted(row.ratio or 0.0 for row in plans)
    assert ratios[len(ratios) // 2] <= 1.05
