"""More queries than the machines of a plan can answer: what is answered is in time, and the rest is told so at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import Files, app, files, machine, model
from build import pipeline as steps
from face import Json, sent_by, served_late, solve
from hosts_face import Hosted

pytestmark = pytest.mark.slow

SERVICE_MS = 40.0
"""So long that a noisy machine does not matter."""


def pool(
    counts: dict[str, int], times: dict[str, float], limit_ms: float, late: str | None = None
) -> tuple[Json, Files]:
    """A plan of so many machines of each type, and its files; a query has a machine to itself."""
    wish = files(
        machines={name: machine(0.1, stock=8, kind="cpu") for name in counts},
        models={"m": model({name: {1: times[name], 8: 8 * times[name]} for name in counts})},
        apps={"images": app("m", limits={99: limit_ms}, sizes={1: 1.0}, late=late)},
        problem="pool",
    ).limited(cost=9.0, counts={name: (count, count) for name, count in counts.items()})
    plan = solve(wish, "fluid").plan
    assert plan is not None
    return plan, wish


def capacity(counts: dict[str, int], times: dict[str, float]) -> float:
    return sum(count * 1e3 / times[name] for name, count in counts.items())


BOX = ({"box": 2}, {"box": SERVICE_MS})
MIXED = ({"quick": 1, "slow": 2}, {"quick": SERVICE_MS, "slow": 3.0 * SERVICE_MS})

CASES = [
    ("matched", *BOX, 400.0, 3.0), ("matched", *BOX, 160.0, 2.0), ("matched", *MIXED, 500.0, 3.0),
    ("matched in parts", {"box": 4}, {"box": 80.0}, 400.0, 5.0), ("earliest", *MIXED, 400.0, 3.0),
    ("oldest first", *MIXED, 400.0, 3.0),
    ("by size", {"quick": 1, "slow": 2}, {"quick": 50.0, "slow": 60.0}, 400.0, 3.0),
    ("at random", *BOX, 300.0, 3.0), ("in turn", *BOX, 300.0, 4.0), ("shortest queue", *BOX, 250.0, 3.0),
]  # fmt: skip


@pytest.mark.slow_cases(2)
@pytest.mark.parametrize(("rule", "counts", "times", "limit_ms", "over"), CASES)
def test_in_overload_machines_are_used_for_what_is_in_time_and_then_all_is_as_before(
    tmp_path: Path, rule: str, counts: dict[str, int], times: dict[str, float], limit_ms: float, over: float
) -> None:
    plan, wish = pool(counts, times, limit_ms)
    able = capacity(counts, times)
    able = able if rule != "by size" else able - 1e3 / times["quick"]  # no query is large
    with Hosted(tmp_path, wish) as hosted:
        ran = hosted.apply(sent_by(plan, rule))
        assert ran.code == 0, ran.err
        assert hosted.ask("images")[0] in ("served", "late"), "the first one loads what the rule needs"
        # The moments after the load falls are not judged: one deadline, and what it takes to see that it fell.
        phases = ((able / 3.0, 2.0), (over * able, 1.0), (over * able, 4.0), (able / 3.0, 1.0), (able / 3.0, 3.0))
        before, _, during, _, after = hosted.offer("images", *phases, within_ms=limit_ms)
        assert before.in_time >= 0.85 * before.sent
        assert during.goodput >= 0.7 * able, during
        assert during.late <= 0.2 * during.in_time, during
        assert during.other == ()
        at_once = sorted(during.refused_ms)[len(during.refused_ms) // 2]
        assert at_once < limit_ms / 2.0, "most are told at once"
        assert after.in_time >= 0.85 * after.sent, after


@pytest.mark.slow_cases(1)
@pytest.mark.parametrize("limit_ms", [200.0, 400.0])
def test_who_asks_that_all_are_served_gets_all_served_late(tmp_path: Path, limit_ms: float) -> None:
    plan, wish = pool(*BOX, limit_ms, late="serve")
    with Hosted(tmp_path, wish) as hosted:
        hosted.apply(plan)
        during, after = hosted.offer("images", (150.0, 3.0), (20.0, 2.0), within_ms=limit_ms)
        assert (during.other, during.refused_ms) == ((), ())
        assert during.goodput < 0.5 * capacity(*BOX), "as every queue without a bound"
        assert after.in_time <= 0.2 * after.sent


def test_a_query_that_no_machine_answers_in_time_is_refused_and_says_why(tmp_path: Path) -> None:
    plan, wish = pool(*BOX, 150.0)
    with Hosted(tmp_path, wish) as hosted:
        hosted.apply(plan)
        assert hosted.ask("images", size=1)[0] == "served"
        outcome, took_ms, _ = hosted.ask("images", size=8)
        assert outcome == "shed"
        assert took_ms < 150.0


def test_machines_that_are_slower_than_planned_are_seen_to_be(tmp_path: Path) -> None:
    """Twice as slow as the profile says: half of the capacity is there, and it goes on being used."""
    plan, wish = pool(*BOX, 400.0)
    with Hosted(tmp_path, wish, service_ms=2.0 * SERVICE_MS) as hosted:
        hosted.apply(plan)
        _, during = hosted.offer("images", (60.0, 6.0), (60.0, 5.0), within_ms=400.0)
        assert during.goodput >= 0.7 * capacity(*BOX) / 2.0, during
        assert during.late <= 0.25 * during.in_time, during


@pytest.mark.slow_cases(1)
@pytest.mark.parametrize("slower", ["first", "second"])
def test_in_a_pipeline_no_step_works_for_queries_that_are_given_up_later(tmp_path: Path, slower: str) -> None:
    times = {"a": 90.0 if slower == "first" else 45.0, "b": 90.0 if slower == "second" else 45.0}
    wish = files(
        machines={"box": machine(0.1, stock=4, kind="cpu")},
        models={name: model({"box": {1: ms}}, quality=0.9) for name, ms in times.items()},
        apps={"images": app("two", rate=3.0, limits={99: 600.0}, by="pipeline")},
        pipelines={"two": steps([("a", "b", 1.0)], ["a", "b"])},
        problem="pipeline",
    )
    answer = solve(wish, "fluid")
    able = 1e3 * answer.machines[0].count / 90.0 if len(answer.machines) > 1 else 0.0
    assert able > 0.0, answer.machines
    with Hosted(tmp_path, wish) as hosted:
        assert hosted.apply(answer.plan).code == 0
        during, _, after = hosted.offer(
            "images", (3.0 * able, 6.0), (able / 3.0, 1.0), (able / 3.0, 5.0), within_ms=600.0
        )
        assert during.goodput >= 0.7 * able, during
        assert after.in_time >= 0.8 * after.sent, after


def test_a_plan_of_before_that_says_serve_is_served_so(tmp_path: Path) -> None:
    plan, wish = pool(*BOX, 300.0)

    with Hosted(tmp_path, wish) as hosted:
        hosted.apply(served_late(plan))
        (during,) = hosted.offer("images", (150.0, 2.0), within_ms=300.0)
        assert during.refused_ms == ()
