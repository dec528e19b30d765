"""Routes that depend on what an answer comes to: recomputed way by way, and every wrong one named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases.cascades import RATE_QPS, cascade, random_tree
from cases.documents import DROP, Json, load, read, spoil, worker

from hetplan.verifier.check import follow, verify_plan
from hetplan.verifier.plan_index import gather


def violations(case: Json, edits: dict[str, Any] | None = None) -> list[str]:
    plan, inputs = read(spoil(case, edits or {}))
    return [f"{found.code} @ {found.at}" for found in verify_plan(plan, inputs).violations]


def test_a_cascade_worked_out_by_hand() -> None:
    assert violations(cascade()) == []
    plan, inputs = read(cascade())
    flow = follow(gather(plan, inputs), "shop", "t0")
    assert dict(flow.work) == pytest.approx({"a": 0.002, "b": 0.3 * 0.75 * 0.02, "c": 0.3 * 0.25 * 0.04})
    assert flow.quality == pytest.approx(0.92375)


@pytest.mark.parametrize("seed", range(300))
def test_random_trees_come_to_what_is_counted_way_by_way(seed: int) -> None:
    case, figures = random_tree(seed)
    assert violations(case) == []
    plan, inputs = read(case)
    flow = follow(gather(plan, inputs), "x", "t0")
    seconds = {name: table["mean"] / 1000.0 for name, table in case["profile"]["tables"].items()}
    wanted = {name: jobs * seconds[f"t-{name}"] for name, jobs in figures["jobs"].items() if jobs}
    assert dict(flow.work) == pytest.approx(wanted)
    assert flow.quality == pytest.approx(figures["quality"])


def test_late_ends_of_one_step_add_up_over_its_outcomes() -> None:
    """Beyond 1 ms all are late, beyond 25 ms those of c; half at one end and half at another are all."""
    for max_ms, allowed, late in (
        (1, 0.1, "1"),
        (25, 0.07, "0.075"),
        (25, 0.08, ""),
        (21, 0.29, "0.3"),
        (21, 0.31, ""),
    ):
        wish = {f"p{100.0 - 100.0 * allowed:.12g}_ms": max_ms}
        options = {"allow_late": 1.0}
        case = spoil(cascade(), {"slo/apps/shop/latency": wish, "plan/method/options": options})
        plan, inputs = read(case)
        said = [found.text for found in verify_plan(plan, inputs).violations if found.code == "latency"]
        assert [text.startswith(f"a share of {late} up to step") for text in said] == ([True] if late else [])


WORKER = "plan/workers/0/loads/0/outcomes"
ROUTE = "plan/routing/shop/1"
SPOILT: list[tuple[str, dict[str, Any], str]] = [
    ("other shares than measured", {WORKER: {"sure": 0.8, "unsure": 0.2}}, "outcomes @ workers.w-a.loads.a"),
    ("no shares", {WORKER: DROP}, "outcomes @ workers.w-a.loads.a"),
    ("shares that sum to more", {f"{WORKER}/sure": 0.9}, "outcomes @ workers.w-a.loads.a"),
    ("an outcome of nobody", {f"{WORKER}/maybe": 0.0}, "unknown-reference @ workers.w-a.loads.a"),
    ("outcomes of a step without", {"plan/workers/1/loads/0/outcomes": {"sure": 1.0}},
     "unknown-reference @ workers.w-b.loads.b"),
    ("no way on", {ROUTE: DROP}, "unrouted @ routing.shop"),
    ("a way on for the wrong outcome", {f"{ROUTE}/after/small": "sure"}, "route-outcome @ routing.shop[1]"),
    ("a way on for an unknown outcome", {f"{ROUTE}/after/small": "maybe"}, "unknown-reference @ routing.shop[1]"),
    ("a way on after an unknown step", {f"{ROUTE}/after": {"tiny": "unsure"}}, "unknown-reference @ routing.shop[1]"),
    ("a way in after a later step", {"plan/routing/shop/0/after": {"small": "sure"}},
     "route-outcome @ routing.shop[0]"),
    ("the same way twice", {"plan/routing/shop/2": {"node": "large", "after": {"small": "unsure"}, "to": {"b": 1.0}}},
     "route-twice @ routing.shop[2]"),
    ("nothing said to old readers", {"plan/requires": ["shares/1"]}, "requires @ requires"),
    ("a rate above what c carries", {"plan/promises/0/value": 340.0}, "capacity @ workers.w-c"),
    ("the quality of those that stay", {"plan/promises/1/value": 0.8625}, "promise @ promises[1]"),
    ("the quality of those that leave", {"slo/apps/shop/quality/min": 0.95}, "quality @ routing.shop"),
    ("a path that was not measured", {"profile/pipelines/cascade/quality/paths/small=s:sure": DROP},
     "quality @ routing.shop"),
    ("measured for other variants only", {"profile/pipelines/cascade/nodes/small/outcomes/share":
     {"sure": {"b": 0.7}, "unsure": {"b": 0.3}}}, "outcomes @ workers.w-a.loads.a"),
]  # fmt: skip


@pytest.mark.parametrize(("edits", "expected"), [one[1:] for one in SPOILT], ids=[one[0] for one in SPOILT])
def test_a_wrong_route_is_caught_and_named(edits: dict[str, Any], expected: str) -> None:
    assert expected in violations(cascade(), edits)


def test_random_trees_with_a_share_changed_are_caught() -> None:
    caught = 0
    for seed in range(40):
        case, _ = random_tree(seed)
        for number, held in enumerate(case["plan"]["workers"]):
            stated = held["loads"][0].get("outcomes")
            if stated:
                first, second, *_ = stated
                moved = {**stated, first: stated[first] * 0.5, second: stated[second] + stated[first] * 0.5}
                assert f"outcomes @ workers.{held['id']}.loads.{held['loads'][0]['id']}" in violations(
                    case, {f"plan/workers/{number}/loads/0/outcomes": moved}
                )
                caught += 1
    assert caught > 40


def test_a_step_that_two_outcomes_lead_to_is_routed_by_the_one_that_is_named() -> None:
    """Both outcomes go on to large: `sure` to b, all others (no `after`) to c."""
    case = spoil(
        cascade(),
        {
            "profile/pipelines/cascade/edges/0": {"from": "small", "to": "large"},
            "profile/pipelines/cascade/quality": {"rule": "product"},
            "plan/routing/shop/1": {"node": "large", "to": {"c": 1.0}},
            "plan/routing/shop/2": {"node": "large", "after": {"small": "sure"}, "to": {"b": 1.0}},
        },
    )
    plan, inputs = read(case)
    flow = follow(gather(plan, inputs), "shop", "t0")
    assert dict(flow.work) == pytest.approx({"a": 0.002, "b": 0.7 * 0.02, "c": 0.3 * 0.04})


def test_what_leaves_early_needs_no_machine() -> None:
    """c gets .3 x .25 of 100 queries/s: one machine is enough up to 133 ms."""
    assert RATE_QPS == 100.0
    case = spoil(cascade(), {"profile/tables/t-c/mean": 130.0, "slo/apps/shop/latency": {}})
    assert not [one for one in violations(case) if one.startswith("capacity")]
    case = spoil(case, {"profile/tables/t-c/mean": 140.0})
    assert "capacity @ workers.w-c" in violations(case)


def test_a_load_beside_it_that_is_no_part_of_the_pipeline_has_no_outcomes() -> None:
    more = {"plan/workers/3": worker("w-d", "g", None, 1, load("d", "shop", "s", node="large", outcomes={"sure": 1.0}))}
    assert "unknown-reference @ workers.w-d.loads.d" in violations(cascade(), more)


def test_a_plan_on_the_terminal_says_after_which_outcome_a_route_is_taken(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from hetplan.cli.app import build_app
    from hetplan.profiles.plan_file import with_digest, write_plan

    write_plan(with_digest(read(cascade())[0]), tmp_path / "plan.json")
    shown = CliRunner().invoke(build_app(), ["show", str(tmp_path / "plan.json"), "--view", "routes"])
    assert "large after small: unsure" in " ".join(shown.output.split())
