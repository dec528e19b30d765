"""Applications that share machines, beside what runs already: it goes on, is counted, and is read from the state."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from cases.shared_fleets import Files, Json, add_pools, cost, solved

import hetplan as hp
from hetplan.api.plans_by_rate import Recipes
from hetplan.planner.outcome import Outcome
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_file import with_digest
from hetplan.simulator.day import HowPlayed, play_day

START_S = 1800.0
SHARED = "faces1-plates1-card-a"
CARRIES = 50.0 * 0.8
"""Queries a second that the fluid program asks of one instance; two of them fill a card."""


def _files(prices: dict[str, float], rates: dict[str, list[float]], *, repeats: int = 1, **limits: Any) -> Files:
    """Pools whose instances take half a card each, of offers at these prices."""
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {"card": {"kind": "gpu", "provides": {"gpu": 1}, "startup_s": START_S}},
        "offers": {
            f"card-{one}": {"hardware": "card", "zone": one, "price_per_hour": str(price), "stock": 3}
            for one, price in prices.items()
        },
        "tasks": {},
        "variants": {},
    }
    series = next(iter(rates.values()))
    horizon = {"period_s": 3600, "periods": len(series), "repeats": repeats}
    slo: Json = {"format": "hetplan/slo/1.0", "limits": limits, "horizon": horizon, "apps": {}}
    add_pools((profile, slo), rates, [{"hardware": "card", "needs": {"gpu": 0.5}}], series)
    for name, own in rates.items():
        slo["apps"][name]["rate_qps"] = {"series": own}
    return profile, slo


def _state(*workers: tuple[str, int, tuple[str, ...]]) -> Json:
    """So many machines of an offer with one instance of each of these applications."""
    named = [
        {"id": f"w{n}", "hardware": "card", "offer": offer, "count": count, "queue": "per-load",
         "loads": [{"id": f"w{n}.{k}", "app": app, "variant": f"of-{app}", "at": {}} for k, app in enumerate(apps)]}
        for n, (offer, count, apps) in enumerate(workers)
    ]  # fmt: skip
    return {"format": "hetplan/state/1.0", "workers": named}


def _beside(files: Files, state: Json, **options: Any) -> Outcome:
    return hp.solve(
        *files, state, options={"sizing": "fluid", "gap": 0.0, "savings": False, **options}, formulation="fleet"
    )


def _actions(plan: hp.Plan) -> list[tuple[str, str | None, int | None]]:
    return [(one.do, one.worker, one.count) for one in plan.actions]


TWO = {"faces": [40.0, 40.0], "plates": [40.0, 40.0]}


@pytest.mark.slow
def test_machines_that_are_shared_go_on_and_start_where_none_run() -> None:
    files = _files({"a": 1.0}, TWO)
    runs = _state(("card-a", 1, ("faces", "plates")))
    plan, first = _beside(files, runs).require(), _beside(files, _state()).require()
    assert _actions(plan) == []
    assert _actions(first) == [("start", SHARED, 1)]
    assert cost(_beside(files, runs)) == pytest.approx(1.0)
    assert cost(_beside(files, _state())) == pytest.approx(1.25), "half an hour of starting, in two hours"
    for state, one in ((runs, plan), (_state(), first)):
        assert hp.verify(one, *files, state).ok
    day = play_day(plan, load_inputs(*files, state=runs), HowPlayed(seeds=1, queries=4e3))
    late = play_day(first, load_inputs(*files, state=_state()), HowPlayed(seeds=1, queries=4e3))
    assert min(one.value for one in day.in_time.values()) > 0.7
    assert max(one.value for one in late.in_time.values()) < 0.8, "nobody serves for a quarter of the time"


def test_machines_of_each_alone_make_way_for_one_that_is_shared() -> None:
    files = _files({"a": 1.0}, TWO)
    runs = _state(("card-a", 1, ("faces",)), ("card-a", 1, ("plates",)))
    plan = _beside(files, runs).require()
    assert _actions(plan) == [("start", SHARED, 1), ("stop", "w0", 1), ("stop", "w1", 1)]
    assert hp.verify(plan, *files, runs).ok


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("spoil", ["left out", "as many of others", "too few"])
def test_actions_that_lead_elsewhere_are_seen(spoil: str) -> None:
    files = _files({"a": 1.0}, {"faces": [80.0, 80.0], "plates": [80.0, 80.0]})
    runs = _state(("card-a", 1, ("faces", "plates")), ("card-a", 1, ("faces",)))
    plan = _beside(files, runs).require()
    assert _actions(plan) == [("start", SHARED, 1), ("stop", "w1", 1)]
    start, stop = plan.actions
    actions = {
        "left out": (start,),
        "as many of others": (start, stop.model_copy(update={"worker": "w0"})),
        "too few": (stop,),
    }[spoil]
    spoilt = with_digest(plan.model_copy(update={"actions": actions}))
    assert "actions" in {one.code for one in hp.verify(spoilt, *files, runs).violations}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("repeats", [1, 4])
@pytest.mark.parametrize("runs", [{}, {"a": 1}, {"b": 2}, {"a": 1, "b": 1}])
def test_what_runs_is_counted_as_by_brute_force(runs: dict[str, int], repeats: int) -> None:
    """Two cards are enough in the first hour, three in the second; those of `a` are dearer."""
    prices, rates = {"a": 1.1, "b": 1.0}, {"faces": [80.0, 130.0], "plates": [40.0, 80.0]}
    files = _files(prices, rates, repeats=repeats)
    held = _state(*((f"card-{one}", count, ("faces", "plates")) for one, count in runs.items()))
    halves = [sum(math.ceil(one[hour] / CARRIES) for one in rates.values()) for hour in range(2)]
    money, has = tuple(prices.values()), tuple(runs.get(one, 0) for one in prices)

    def starting(now: tuple[int, ...], before: tuple[int, ...]) -> float:
        hours = START_S / 3600.0
        return hours * sum(p * max(n - m, 0) for p, n, m in zip(money, now, before, strict=True))

    best = min(
        sum(p * (m + n) for p, m, n in zip(money, first, second, strict=True))
        + starting(first, has) / repeats
        + starting(second, first)
        + starting(first, second) * (1.0 - 1.0 / repeats)
        for first, second in itertools.product(itertools.product(range(4), repeat=2), repeat=2)
        if 2 * sum(first) >= halves[0] and 2 * sum(second) >= halves[1]
    )
    outcome = _beside(files, held)
    assert cost(outcome) == pytest.approx(best / 2)
    assert hp.verify(outcome.require(), *files, held).ok


def _no_offer(state: Json) -> None:
    del state["workers"][0]["offer"]


def _no_app(state: Json) -> None:
    del state["workers"][0]["loads"][1]["app"]


@pytest.mark.parametrize(
    ("spoil", "limits", "at", "remedy"),
    [
        (lambda state: None, {"changes": 9}, "$.workers[0]", 'Leave out "changes"'),
        (_no_offer, {}, "$.workers[0].offer", 'Write "offer"'),
        (_no_app, {}, "$.workers[0]", 'Write "app" of each load'),
    ],
)
def test_a_state_that_does_not_say_whose_machines_are_is_refused(
    spoil: Callable[[Json], None], limits: Json, at: str, remedy: str
) -> None:
    state = _state(("card-a", 1, ("faces", "plates")))
    spoil(state)
    with pytest.raises(hp.InputError) as raised:
        _beside(_files({"a": 1.0}, TWO, **limits), state).require()
    (fault,) = raised.value.faults
    assert (fault.file, fault.path) == ("state", at)
    assert remedy in fault.remedy


def test_the_bill_says_what_sharing_saves_beside_what_runs() -> None:
    files, runs = _files({"a": 1.0}, TWO), _state(("card-a", 1, ("faces", "plates")))
    bill = _beside(files, runs, savings=True).require().bill
    assert bill is not None
    assert bill.levers[-1].name == "shared"
    assert bill.levers[-1].saves_per_hour == pytest.approx(1.25), "a second card, which would start in the first hour"
    assert json.loads(bill.model_dump_json())["apps"] == pytest.approx({"faces": 0.5, "plates": 0.5})


def test_without_a_state_nothing_of_this_is_said() -> None:
    assert _actions(solved(_files({"a": 1.0}, TWO), savings=False).require()) == []


@pytest.mark.slow
def test_replanning_with_few_moves_shares_no_machines() -> None:
    """Moves are counted by application, so a plan that shares machines could not be followed by another."""
    files = _files({"a": 1.0}, {"faces": [40.0], "plates": [40.0]}, changes=1)
    first = _beside(files, _state()).plan
    assert first is None, "two machines would have to start"
    profile, slo = _files({"a": 1.0}, {"faces": [40.0], "plates": [40.0]})
    plan = solved((profile, slo), savings=False).require()
    slo["limits"]["changes"] = 1
    recipes = Recipes(plan, load_inputs(profile, slo))
    low, high = ({"faces": rate, "plates": 30.0} for rate in (30.0, 100.0))
    begun = recipes.system_for(low)
    assert begun is not None
    then = recipes.system_for(high, begun)
    assert then is not None
    assert sum(group.count for group in then.groups) == 3
    assert sum(group.count for group in begun.groups) == 2
