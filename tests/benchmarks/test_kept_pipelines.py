"""Random pipelines: what the default hands out is kept on seeds that nobody chose by."""

import pytest

import hetplan as hp
from benchmarks.kept_pipelines import fair, judged, length_s, lost_by, nodes, pipeline, wide, worth
from benchmarks.pipelines_by_hand import carried_qps, dealt_by_hand
from hetplan.planner.repairs import documents, edit_documents

FEW = (1, 3, 5, 15)
"""Cases of little work: a deadline in bursts, a tree, and one that even filled servers keep."""


def test_a_case_is_the_same_each_time_and_cases_differ():
    assert pipeline(7) == pipeline(7)
    assert pipeline(7) != pipeline(8)


def test_a_fair_case_asks_for_what_the_stock_carries_in_time():
    assert fair(7) == fair(7)
    for case in range(300, 330):
        asked = fair(case)[1]["apps"]["x"]["rate_qps"]
        assert 0.19 * carried_qps(pipeline(case)) <= asked <= 0.71 * carried_qps(pipeline(case))


def test_a_hand_keeps_the_wish_where_there_is_a_plan_and_nothing_is_dealt_where_there_is_no_stock():
    """Of 213 and 216 the planner once said that they had no plan."""
    files = pipeline(216)
    hand = dealt_by_hand(files, length_s=length_s(files))
    assert hand is not None
    assert lost_by(hand.plan, files) <= 0.01
    files[1]["limits"]["instances"] = {"g": [0, 1]}
    assert dealt_by_hand(files, length_s=1.0) is None


@pytest.mark.slow
@pytest.mark.parametrize("case", FEW)
def test_what_is_handed_out_is_kept_on_fresh_seeds(case):
    row = judged(case, neighbours=())
    assert row.exit_code == 0
    assert row.kept


@pytest.mark.longest
def test_of_random_cases_most_break_when_filled_and_none_that_is_handed_out():
    rows = [judged(case, neighbours=()) for case in range(1, 21)]
    assert sum(row.planned_lost is None or row.planned_lost > 0.01 for row in rows) >= 10
    handed_out = [row for row in rows if row.lost is not None]
    assert len(handed_out) >= 10
    assert sum(row.kept for row in handed_out) >= 0.95 * len(handed_out)


@pytest.mark.longest
def test_of_random_cases_that_vary_more_what_is_handed_out_is_kept():
    rows = [judged(case, neighbours=(), make=wide) for case in range(1, 9)]
    handed_out = [row for row in rows if row.lost is not None]
    assert len(handed_out) >= 4
    assert sum(row.kept for row in handed_out) >= 0.95 * len(handed_out), handed_out


@pytest.mark.parametrize("case", [pytest.param(1, marks=pytest.mark.slow), pytest.param(6, marks=pytest.mark.longest)])
def test_a_plan_is_nearly_as_good_as_the_best_that_a_search_over_neighbours_finds(case):
    row = judged(case)
    assert row.best is not None
    assert row.quality is not None
    assert row.quality >= row.best - 0.02


def _cost(plan):
    return next(one.value for one in plan.promises if one.quantity == "cost_per_hour")


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.longest if case > 2 else ()) for case in (2, 4, 5, 8, 12)]
)
def test_sharing_servers_is_never_worse_and_is_kept(case):
    """A step in places on unlike servers waits more: then servers of its own are the better plan (2, 8)."""
    files = nodes(case)
    shared, whole = (hp.solve(*files, options={"share_machines": one}).require() for one in (True, False))
    assert (-worth(shared)[0], _cost(shared)) <= (-worth(whole)[0] + 1e-9, _cost(whole) + 1e-9)
    assert lost_by(shared, files) <= 0.01
    assert hp.verify(shared, *files).ok
    if not shared.method.options["share_machines"]:
        assert "problem" not in {claim.scope for claim in shared.claims if claim.about != "quality"}
    if case == 12:
        assert _cost(shared) < _cost(whole)


@pytest.mark.slow
def test_what_is_not_kept_is_told_with_what_would_be():
    """Less to do, or more time: each is tried, and a plan is found with it."""
    files = wide(104)
    outcome = hp.solve(*files)
    assert outcome.exit_code == 3
    assert outcome.why[0].startswith("not met")
    assert outcome.repairs
    given = documents(hp.load(*files), {})
    for repair in outcome.repairs:
        changed = edit_documents(given, repair.edits)
        assert hp.solve(changed["profile"], changed["slo"]).exit_code == 0, repair.text
