"""What holds of every rule by which queries find their machines, in simulation and in the router.

Each query is answered once. Where queries wait in one place, no machine idles beside them. Equal machines get equal
shares, wherever a plan lists them. What can no longer be in time is not taken, so a queue has an end. A machine that
failed gets nothing. And for one state simulation and the router decide alike.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest
from build import Files, app, files, machine, model, random_files
from face import RULES, Json, dispatched, forged, groups_of, sent_by, served_late, simulate, solve
from hosts_face import Hosted

QUICK_MS, SLOW_MS, LIMIT_MS = 40.0, 120.0, 500.0
AT_MACHINES = ("at random", "in turn", "shortest queue")
"""Rules that send a query to a machine when it comes: shares among groups, balanced within one."""
TOGETHER = ("matched", "matched in parts", "oldest first", "earliest")
"""Rules under which no machine idles while a query waits that it could answer in time."""


def pool(quick: int, slow: int, rate: float, late: str | None = None) -> tuple[Json, Files]:
    """A plan of so many quick and slow machines, whose queries are alike."""
    counts = {"quick": quick, "slow": slow}
    times = {"quick": QUICK_MS, "slow": SLOW_MS}
    counts = {name: count for name, count in counts.items() if count}
    wish = files(
        machines={name: machine(0.1, stock=8, kind="cpu") for name in counts},
        models={"m": model({name: {1: times[name], 8: 8 * times[name]} for name in counts})},
        apps={"images": app("m", rate=rate, limits={99: LIMIT_MS}, sizes={1: 1.0}, late=late)},
        problem="pool",
    ).limited(cost=9.0, counts={name: (count, count) for name, count in counts.items()})
    plan = solve(wish.rated("max"), "fluid").plan
    assert plan is not None
    return plan, wish


def times(plan: Json) -> dict[str, float]:
    """Seconds that a query takes on a machine of each group."""
    return {group: {"quick": QUICK_MS, "slow": SLOW_MS}[kind] / 1e3 for group, kind in groups_of(plan).items()}


def answered_by(plan: Json, wish: Files, at: list[float], **more: object) -> dict[str, float]:
    """How many of the queries at these moments each group answers, in simulation."""
    shown = simulate(plan, wish, seeds=1, at=at, **more)
    return {group: busy * shown.seconds / times(plan)[group] for group, busy in shown.busy.items()}


def bursts(size: int, count: int) -> list[float]:
    """Moments of so many queries at once, each time when all machines are idle again."""
    return [1.0 + 3.0 * number for number in range(count) for _ in range(size)]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("over", [0.5, 2.0])
def test_in_simulation_each_query_is_answered_once(rule: str, over: float) -> None:
    """What machines worked is what the answered queries take, whether all are answered in time or most are late."""
    plan, wish = pool(1, 2, over * 25.0)
    shown = simulate(served_late(sent_by(plan, rule)), wish, seeds=1, duration_s=400.0)
    figures = {name: one.value for name, one in shown.figures["images"].items()}
    assert figures["in_time"] + figures["late"] + figures["dropped"] == pytest.approx(1.0)
    done = sum(busy / times(plan)[group] for group, busy in shown.busy.items())
    if over < 1.0:
        assert done == pytest.approx(figures["rate_qps"], rel=0.01)
        assert done == pytest.approx(12.5, rel=0.06)
    else:
        assert done <= 1.01 * (1.0 / QUICK_MS + 2.0 / SLOW_MS) * 1e3


@pytest.mark.parametrize(
    "problem", ["variants", "llm", *[pytest.param(one, marks=pytest.mark.slow) for one in ("pipeline", "policy")]]
)
def test_by_the_rules_of_other_plans_too(problem: str) -> None:
    """Shares along paths, tables by queue and slack, least work: what is not dropped is in time or late."""
    wish = random_files(problem, 0)
    shown = simulate(solve(wish, "fluid").plan, wish, seeds=1)
    for figures in shown.figures.values():
        parts = ("goodput", "violations") if problem == "llm" else ("in_time", "late", "dropped")
        assert sum(figures[name].value for name in parts) == pytest.approx(1.0)


@pytest.mark.parametrize("rule", TOGETHER)
def test_no_machine_idles_while_queries_wait(rule: str) -> None:
    plan, wish = pool(1, 2, 200.0)
    shown = simulate(served_late(sent_by(plan, rule)), wish, seeds=1, duration_s=100.0)
    counts = {"quick": 1, "slow": 2}
    for group, kind in groups_of(plan).items():
        assert shown.busy[group] == pytest.approx(counts[kind], rel=0.02)


@pytest.mark.parametrize("rule", RULES)
def test_where_late_queries_are_dropped_a_queue_has_an_end(rule: str) -> None:
    """At eight times what the machines can answer, none is answered long after its time."""
    plan, wish = pool(1, 2, 300.0, late="drop")
    shown = simulate(sent_by(plan, rule), wish, seeds=1, duration_s=60.0)
    figures = {name: one.value for name, one in shown.figures["images"].items()}
    assert figures["dropped"] > 0.8
    assert figures["mean_ms"] <= LIMIT_MS
    assert figures["late"] <= 0.1 * figures["in_time"]
    if rule in TOGETHER:
        assert 300.0 * figures["in_time"] >= 0.95 * (1.0 / QUICK_MS + 2.0 / SLOW_MS) * 1e3


def in_two(plan: Json, *, turned: bool) -> Json:
    """The plan with its one group written as two equal ones, in either order."""

    def change(changed: Json) -> None:
        (group,) = changed["workers"]
        twin = deepcopy(group) | {"id": "twin"}
        twin["count"] = group["count"] = group["count"] // 2
        for load in twin["loads"]:
            load["id"] = "twin." + load["id"]
        changed["workers"] = [twin, group] if turned else [group, twin]
        for route in changed["routing"]["images"]:
            half = {load: share / 2.0 for load, share in route["to"].items()}
            both = [half, {f"twin.{load}": share for load, share in half.items()}]
            route["to"] = {load: share for part in (both[::-1] if turned else both) for load, share in part.items()}

    return forged(plan, change)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "by size"])
def test_equal_machines_carry_alike_wherever_they_are_listed(rule: str) -> None:
    """Under half the load that they could carry; a rule that fills one machine first does so in the order of idling."""
    plan, wish = pool(4, 0, 60.0)
    rates = []
    for turned in (False, True):
        split = in_two(sent_by(plan, rule), turned=turned)
        shown = simulate(served_late(split), wish, seeds=2, duration_s=200.0)
        rates.append(shown.figures["images"]["mean_ms"].value)
        if rule in AT_MACHINES:
            assert shown.busy["twin"] == pytest.approx(sum(shown.busy.values()) / 2.0, rel=0.06)
    assert rates[0] == pytest.approx(rates[1], rel=0.03)


@pytest.mark.parametrize("rule", RULES)
def test_in_simulation_a_machine_that_failed_gets_nothing(rule: str) -> None:
    plan, wish = pool(1, 2, 10.0)
    plan = sent_by(plan, rule)
    kinds = {kind: group for group, kind in groups_of(plan).items()}
    got = answered_by(plan, wish, bursts(2, 20), fails=kinds["quick"])
    assert got[kinds["quick"]] == pytest.approx(0.0, abs=1e-6)
    if rule != "by size":  # there large queries have one group alone
        assert got[kinds["slow"]] == pytest.approx(40.0)


@pytest.mark.parametrize("kind", ["quick", "slow"])
def test_first_come_first_served_asks_the_preferred_hardware_first(kind: str) -> None:
    plan, wish = pool(1, 1, 10.0)
    got = answered_by(dispatched(sent_by(plan, "oldest first"), prefer=[kind]), wish, bursts(1, 20))
    assert {group for group, count in got.items() if count > 1e-6} == {
        group for group, own in groups_of(plan).items() if own == kind
    }


def test_in_simulation_who_is_late_on_a_slow_machine_waits_for_a_quick_one() -> None:
    """Of 30 at once a quick machine answers 11 by 450 ms and a slow one 3, as the router sends them."""
    plan, wish = pool(1, 1, 10.0, late="drop")
    wish = wish.scaled_limits(0.9)
    plan = solve(wish.rated("max"), "fluid").plan
    assert plan is not None
    got = answered_by(sent_by(plan, "oldest first"), wish, bursts(30, 10))
    assert {kind: round(got[group]) for group, kind in groups_of(plan).items()} == {"quick": 110, "slow": 30}


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_router_and_simulation_decide_alike_and_nothing_is_lost(rule: str, tmp_path: Path) -> None:
    """Bursts on idle machines, as many from each group; then the preferred machine fails, and another answers."""
    plan, wish = pool(1, 2, 10.0) if rule not in AT_MACHINES else pool(3, 0, 10.0)
    plan = sent_by(plan, rule)
    with Hosted(tmp_path, wish) as hosted:
        ran = hosted.apply(plan)
        assert ran.code == 0, ran.err
        assert hosted.burst("images", 1)[0][0] in ("served", "late")  # the first one loads what the rule needs
        sent = 1
        for size in (1, 2, 3):
            expected = answered_by(plan, wish, bursts(size, 10))
            got: Counter[str] = Counter()
            machines: Counter[str] = Counter()
            for _ in range(4):
                replies = hosted.burst("images", size)
                assert {outcome for outcome, _, _ in replies} <= {"served", "late"}
                got.update(group for _, group, _ in replies)
                machines.update(machine for _, _, machine in replies)
                sent += size
            assert {group: 2.5 * count for group, count in got.items()} == pytest.approx(
                {group: count for group, count in expected.items() if count > 1e-6}
            )
            if rule in ("in turn", "shortest queue"):
                assert max(machines.values()) - min(machines[one] for one in hosted.machines()) <= 1
        after = hosted.counts("images")
        assert (after.under_way, after.refused, after.steps) == (0, 0, sent)
        if rule in AT_MACHINES or rule == "by size":
            return  # what a share is sent to, or all large queries, is one group: its queries wait for it
        kinds = {kind: group for group, kind in groups_of(plan).items()}
        hosted.kill(kinds["quick"])
        outcome, group, _ = hosted.burst("images", 1)[0]
        assert (outcome, group) == ("served", kinds["slow"])
