"""Every run is read once: what a choice says of its batches, its machine, its price and its neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from hetplan.planner.choices import Choice, Choices
from hetplan.planner.request import Request
from hetplan.profiles.profile import Profile
from hetplan.profiles.workers import Load

TIMES = {"quantity": "latency_ms", "axes": {"batch": [1, 4, 8]}, "mean": [10, 20, 30]}


def request(*runs: dict[str, Any], **more: Any) -> Request:
    data = {
        "hardware": {"g": {"kind": "gpu", "provides": {"gpu": 2, "cpu_cores": 8}}, "bare": {"kind": "cpu"}},
        "tables": {"t": TIMES},
        "variants": {"m": {"task": "x", "runs": [{"hardware": "g", "latency": "t", **run} for run in runs]}},
    }
    return Request((), known=Choices(Profile.model_validate(data | more)))


def one(*runs: dict[str, Any], **more: Any) -> Choice:
    return request(*runs, **more).choices()[0]


@pytest.mark.parametrize(
    ("runs", "batches"),
    [
        ([{}], (1, 4, 8)),
        ([{"at": {"batch": 4}}], (4,)),
        ([{"saturation_qps": 9}], (1,)),  # the rate holds at one batch
        ([{"at": {"size": 1}}, {"at": {"size": 2}}], (1, 4, 8)),  # another setting, no sibling
        ([{}, {"at": {"batch": 8}}], (1,)),  # its sibling has the other batch
    ],
)
def test_batches_are_chosen_where_nothing_fixes_them(runs, batches):
    assert one(*runs).batches == batches


def test_a_machine_lacks_what_it_does_not_list_unless_it_lists_nothing():
    assert one({"needs": {"gpu": 3, "gpu_mem_gib": 1, "cpu_cores": 8}}).lacking == {"gpu": 2, "gpu_mem_gib": 0}
    assert one({"hardware": "bare", "needs": {"gpu": 3}}).lacking == {}


def test_neighbours_slow_down_at_the_batch_that_runs():
    axes = {"batch": [1, 8], "co_load": [0, 1]}
    slower = {"s": {"quantity": "slowdown", "axes": axes, "mean": [[1, 2], [1, 5]]}, "t": TIMES}
    choice = one({"slowdown": "s"}, tables=slower)
    assert [choice.slowdown(batch) for batch in (1, 8)] == [(1.0, 2.0), (1.0, 5.0)]
    assert one({}).slowdown(1) == ()


def test_paid_by_itself_is_who_has_a_price_or_a_slice():
    sold = {"o": {"hardware": "g", "price_per_hour": "1", "per": "gpu"}}
    assert [one(run, offers=sold).is_paid for run in ({"needs": {"gpu": 1}}, {})] == [True, False]
    assert one({"price_per_hour": "1"}).is_paid
    assert [request(run).is_paid_by_run("g") for run in ({"price_per_hour": "1"}, {})] == [True, False]


@pytest.mark.parametrize("turned", [False, True])
def test_a_load_means_the_run_that_it_names(turned):
    runs = [{"at": {"batch": b}, "needs": {"gpu_mem_gib": gib}} for b, gib in ((1, 2), (8, 6))]
    asked = request(*(runs[::-1] if turned else runs))
    for at, gib in (({"batch": 1}, 2), ({"batch": 8}, 6)):
        (found,) = asked.meant_by(Load(id="w.a", app="a", variant="m", at=at), "g")
        assert found.needs == {"gpu_mem_gib": gib}
    assert len(asked.meant_by(Load(id="w.a", app="a", variant="m"), "g")) == 2
    assert asked.meant_by(Load(id="w.a", app="a", variant="gone"), "g") == ()
