"""The order of steps: it ends where it should, keeps to the room there is, and leads queries away before a stop."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from cases.deployments import make_hosts, make_plan, make_worker
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.executor.site import Site
from hetplan.executor.steps import Step, difference, order_fits, steps_of, workers_of
from hetplan.executor.units import Endpoint, Seen, Unit
from hetplan.executor.wanted import Wanted, wanted
from hetplan.profiles.plan import Action, Plan


def seen_of(made: Wanted) -> list[Seen]:
    return [
        Seen(name, unit.content, "ready", Endpoint("127.0.0.1", 9000 + number), unit)
        for number, (name, unit) in enumerate(made.units.items())
    ]


def play(steps: tuple[Step, ...], seen: list[Seen], hosts: Site) -> tuple[dict[str, Unit], set[str]]:
    """Carry steps out on paper; whatever a step must not do fails here."""
    up = {one.name: one.unit for one in seen if one.unit is not None}
    live = set(up)
    for step in steps:
        if step.do == "start":
            for unit in step.units:
                assert unit.name not in up, "started twice"
                up[unit.name] = unit
            for name, count in Counter(unit.host for unit in up.values()).items():
                most = hosts.hosts[name].count
                assert isinstance(most, int)
                assert count <= most, "more than the host has room for"
        elif step.do == "load":
            for unit in step.units:
                assert unit.name in up
                up[unit.name] = unit
        elif step.do == "stop":
            for name in step.names:
                assert name not in live, "stopped while queries were led there"
                del up[name]
        else:
            assert set(step.live) <= set(up), "queries are led to what is not up"
            live = set(step.live)
    return up, live


def between(before: Plan, after: Plan, hosts: Site) -> tuple[Step, ...]:
    seen = seen_of(wanted(before, hosts))
    goal = wanted(after, hosts, running=seen)
    steps = steps_of(difference(seen, goal, routed=False), goal, hosts, actions=after.actions)
    up, live = play(steps, seen, hosts)
    assert up == dict(goal.units)
    assert live == set(goal.units)
    return steps


def test_up_before_down_where_there_is_room(tmp_path: Path) -> None:
    steps = between(make_plan(make_worker("w1", 2)), make_plan(make_worker("w2", 3)), make_hosts(tmp_path))
    assert [step.do for step in steps] == ["start", "route", "stop"]


def test_down_first_only_as_far_as_room_demands(tmp_path: Path) -> None:
    hosts = make_hosts(tmp_path, hosts={"box": {"target": "here", "machines": ["cpu"], "count": 3}})
    steps = between(make_plan(make_worker("w1", 3)), make_plan(make_worker("w2", 3)), hosts)
    assert [len(step.names) for step in steps if step.do == "stop"] != [3], "never all at once"


def test_the_plans_own_order_is_kept_where_it_fits(tmp_path: Path) -> None:
    actions = [
        {"id": 1, "do": "start", "worker": "w3", "count": 1},
        {"id": 2, "do": "stop", "worker": "w1", "count": 1, "after": [1]},
        {"id": 3, "do": "start", "worker": "w2", "count": 1, "after": [2]},
    ]  # fmt: skip
    after = make_plan(make_worker("w2", 1), make_worker("w3", 1), actions=actions)
    steps = between(make_plan(make_worker("w1", 1)), after, make_hosts(tmp_path))
    started = [unit.worker for step in steps if step.do == "start" for unit in step.units]
    assert started == ["w3", "w2"]
    assert [step.do for step in steps] == ["start", "route", "stop", "start", "route"]


def test_where_it_does_not_fit_the_order_is_worked_out_anew(tmp_path: Path) -> None:
    """The plan was made when nothing ran; meanwhile something does."""
    actions = [{"id": 1, "do": "start", "worker": "w2", "count": 2}]
    after = make_plan(make_worker("w2", 2), actions=actions)
    steps = between(make_plan(make_worker("w1", 1), make_worker("w2", 1)), after, make_hosts(tmp_path))
    assert sum(len(step.units) for step in steps if step.do == "start") == 1
    assert sum(len(step.names) for step in steps if step.do == "stop") == 1


def test_other_loads_change_a_unit_in_place(tmp_path: Path) -> None:
    hosts = make_hosts(tmp_path)
    steps = between(make_plan(make_worker("w1", 2)), make_plan(make_worker("w1", 2, variant="other")), hosts)
    assert [step.do for step in steps] == ["load", "route"]


def test_a_load_that_goes_stays_until_the_router_was_reported(tmp_path: Path) -> None:
    hosts = make_hosts(tmp_path)
    old = make_worker("w1", 1)
    new = old.model_copy(update={"loads": (old.loads[0].model_copy(update={"id": "w1.b", "variant": "n"}),)})
    steps = between(make_plan(old), make_plan(new), hosts)
    assert [(step.do, [len(unit.loads) for unit in step.units]) for step in steps] == [
        ("load", [2]), ("route", []), ("load", [1]),
    ]  # fmt: skip


def test_what_still_comes_or_goes_for_an_apply_that_was_cut_off_is_started(tmp_path: Path) -> None:
    hosts = make_hosts(tmp_path)
    made = wanted(make_plan(make_worker("w1", 4)), hosts)
    comes, goes, other, stays = seen_of(made)
    seen = [
        replace(comes, status="starting", endpoint=None),
        replace(goes, status="stopping"),
        replace(other, status="starting", endpoint=None, content="sha256:of another plan"),
        stays,
    ]
    found = difference(seen, made, routed=False)
    assert [unit.name for unit in found.start] == [comes.name, goes.name]
    assert [unit.name for _, unit in found.change] == [other.name]
    assert found.keep == (stays,)
    assert found.stop == ()
    assert [step.do for step in steps_of(found, made, hosts)] == ["load", "start", "route"]


def test_where_nothing_is_wanted_the_router_goes_first(tmp_path: Path) -> None:
    """Led from one to the next it would have to reach workers that nobody wants, and perhaps none can reach."""
    seen = seen_of(wanted(make_plan(make_worker("w1"), make_worker("w2"), make_worker("w3")), make_hosts(tmp_path)))
    goal = Wanted("nothing", (), {}, {})
    steps = steps_of(difference(seen, goal, routed=False), goal, make_hosts(tmp_path))
    assert [(step.do, step.live, len(step.names)) for step in steps] == [("route", (), 0), ("stop", (), 3)]


def test_nothing_differs_nothing_is_done(tmp_path: Path) -> None:
    hosts = make_hosts(tmp_path)
    made = wanted(make_plan(make_worker("w1", 2)), hosts)
    assert steps_of(difference(seen_of(made), made, routed=True), made, hosts) == ()


@pytest.mark.parametrize(
    "actions",
    [
        [Action(id=1, do="start", worker="w1", count=1, after=(2,)), Action(id=2, do="start", worker="w1")],
        [Action(id=1, do="start", worker="strange", count=2)],
        [Action(id=1, do="stop", worker="w1"), Action(id=2, do="start", worker="w1", count=3)],
        [Action(id=1, do="start", worker="w1", count=3)],
        [],
    ],
)
def test_actions_that_do_not_lead_there_are_reported_apart(actions: list[Action]) -> None:
    assert not order_fits(actions, (), (make_worker("w1", 2),))


groups = st.dictionaries(
    st.sampled_from(["w1", "w2", "w3"]), st.tuples(st.integers(1, 3), st.sampled_from(["m", "n"]), st.integers(0, 1)),
    max_size=3,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(groups, groups, st.integers(0, 3))
def test_any_change_ends_where_it_should_within_the_room(
    tmp_path_factory: pytest.TempPathFactory,
    old: dict[str, tuple[int, str, int]],
    new: dict[str, tuple[int, str, int]],
    spare: int,
) -> None:
    plans = [
        make_plan(*(make_worker(name, count, variant=m, standby=extra) for name, (count, m, extra) in said.items()))
        for said in (old, new)
    ]
    most = max(sum(count + extra for count, _, extra in said.values()) for said in (old, new))
    hosts = make_hosts(
        tmp_path_factory.getbasetemp(),
        hosts={"box": {"target": "here", "machines": ["cpu"], "count": most + spare}},
    )
    between(plans[0], plans[1], hosts)


def test_units_are_reported_back_in_the_plans_shape(tmp_path: Path) -> None:
    plan = make_plan(make_worker("w1", 2, standby=1, queue="per-load"))
    (worker,) = workers_of(wanted(plan, make_hosts(tmp_path)).units.values())
    assert worker == replace_period(plan)


def replace_period(plan: Plan) -> object:
    return plan.workers[0].model_copy(update={"period": "t0"})


def test_difference_tells_what_changes(tmp_path: Path) -> None:
    hosts = make_hosts(tmp_path)
    before = wanted(make_plan(make_worker("w1", 1), make_worker("w2", 1)), hosts)
    seen = seen_of(before)
    seen[0] = replace(seen[0], content="other")
    after = wanted(make_plan(make_worker("w1", 1), make_worker("w3", 2)), hosts, running=seen)
    rows = [(sign, what) for sign, what, _ in difference(seen, after, routed=False).lines()]
    assert rows == [("+", "2 x w3"), ("~", seen[0].name), ("-", "1 x w2"), (">", "router")]
