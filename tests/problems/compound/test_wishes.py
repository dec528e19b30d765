"""Wishes for quality, latency, a budget and a front: held against brute force over the measured plans."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path

import pytest

import hetplan as hp
from hetplan.cli import pareto_page
from hetplan.errors import InputError
from hetplan.measure.evaluator_profiler import measuring
from hetplan.profiles.read_plan import read_plan
from hetplan_papers.datasets.circinus_generator import draw
from tests.build import shipped

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "compound"
SHARES = (1, 0.75, 0.5, 0.25, 0.125)
TIERS = {"device": 0.0, "edge": 2.48, "cloud": 3.67}


def wish(objective: list, apps: tuple[str, ...] = ("gate",), **limits) -> dict:
    slo = shipped(EXAMPLE / "slo.json")
    return {**slo, "objective": objective, "limits": limits, "apps": {app: slo["apps"][app] for app in apps}}


def solved(slo: dict):
    return hp.solve(EXAMPLE / "profile.json", slo, EXAMPLE / "measured.json")


def all_plans(app: str) -> list[tuple[float, float, float]]:
    """(quality, cost, latency in ms) of every measured setting, placement and share that keeps the limits."""
    slo = shipped(EXAMPLE / "slo.json")["apps"][app]
    measured = shipped(EXAMPLE / "measured.json")["apps"][app]
    time = {"device": slo["device"]["relative_time"], "edge": 2.2, "cloud": 1.0}
    first = slo["device"].get("links", [{"bandwidth_mbps": 50, "latency_ms": 8}])[0]
    links = [(first["bandwidth_mbps"], first["latency_ms"]), (400, 15)]
    order, names, found = list(TIERS), ["sample", "detect", "track"], []
    for entry in measured:
        doubtful = entry["verdict"] == "undecided" and entry["mean"] - slo["quality"]["min"] < entry["se"]
        if not entry["passes"] or entry["mean"] < slo["quality"]["min"] or doubtful:
            continue
        for placed in product(TIERS, repeat=3):
            ms, before, size = 0.0, "device", entry["input_bytes"]
            for node, tier in zip(names, placed, strict=True):
                low, high = sorted((order.index(before), order.index(tier)))
                ms += sum(size * 8e-3 / rate + wait for rate, wait in links[low:high])
                before, size = tier, entry["bytes"][node]
            for shares in product(*(SHARES if tier != "device" else (0,) for tier in placed)):
                each = [entry["seconds"][n] * time[t] / (s or 1) for n, t, s in zip(names, placed, shares, strict=True)]
                cost = sum(TIERS[t] * s for t, s in zip(placed, shares, strict=True))
                if ms + 1000 * sum(each) <= slo["latency"]["p50_ms"] * (1 + 1e-12):
                    found.append((entry["mean"], cost, ms + 1000 * sum(each)))
    return found


@pytest.mark.parametrize("budget", [2.0, 4.0, 5.0, None])
def test_quality_and_latency_are_the_best_of_all_measured_plans_within_the_budget(budget):
    limits = {} if budget is None else {"cost_per_hour": str(budget)}
    within = [plan for plan in all_plans("gate") if plan[1] <= (budget or 1e9) + 1e-9]
    for objective, about, best in (
        (["max quality", "min cost"], "quality_short", 1 - max(plan[0] for plan in within)),
        (["min latency"], "mean_latency_ms", min(plan[2] for plan in within)),
    ):
        outcome = solved(wish(objective, **limits))
        assert (outcome.exit_code, outcome.violations) == (0, ())
        claim = outcome.claims[0]
        assert (claim.about, claim.value) == (about, pytest.approx(best)), (claim, best)


def test_a_front_is_every_plan_that_no_other_beats_and_each_point_is_a_verified_plan(tmp_path):
    plans = all_plans("gate")
    outcome = solved(wish(["front quality cost"]))
    assert outcome.front.whole, "every setting of the gate was measured"
    best = {}
    for quality, cost, _ in plans:
        best[quality] = min(cost, best.get(quality, 1e9))
    front = sorted((q, c) for q, c in best.items() if not any(o > q and best[o] <= c for o in best))
    found = sorted((point["quality"], point["cost_per_hour"]) for point, _ in outcome.front.points)
    assert [q for q, _ in found] == pytest.approx([q for q, _ in front])
    assert [c for _, c in found] == pytest.approx([c for _, c in front])
    pareto_page.write_front(outcome.front, tmp_path / "front")
    rows = (tmp_path / "front" / "front.csv").read_text().splitlines()
    assert rows[0] == "point,quality,cost_per_hour,status,plan"
    assert len(rows) == 1 + len(front)
    assert (tmp_path / "front" / "front.svg").read_text().count("<circle") == len(front)
    for (figures, point), row in zip(outcome.front.points, rows[1:], strict=True):
        written = read_plan(tmp_path / "front" / row.rsplit(",", 1)[1])
        assert written.digest == point.plan.digest
        assert point.exit_code == 0
        assert point.plan is not None
        costs = [one.value for one in point.plan.promises if one.quantity == "cost_per_hour"]
        assert costs == [pytest.approx(figures["cost_per_hour"])]


@pytest.mark.slow
def test_of_several_applications_no_point_is_beaten_and_the_ends_are_the_best_of_each():
    apps = ("gate", "yard", "dock", "lobby")
    outcome = solved(wish(["front quality cost"], apps))
    points = [(point["quality"], point["cost_per_hour"]) for point, _ in outcome.front.points]
    assert len(points) > 3
    assert points == sorted(points, reverse=True)
    assert all(cost > after for (_, cost), (_, after) in pairwise(points))
    cheapest = solved(wish(["min cost"], apps)).claims[0].value
    best = 1 - solved(wish(["max quality"], apps)).claims[0].value
    assert (points[-1][1], points[0][0]) == (pytest.approx(cheapest), pytest.approx(best))


def test_whole_machines_count_against_the_budget_and_too_little_says_how_much_is_missing():
    profile = shipped(EXAMPLE / "profile.json")
    for offer in ("v100", "a100"):
        del profile["offers"][offer]["per"]
    measured = EXAMPLE / "measured.json"
    slo = wish(["max quality"], ("gate", "dock"), cost_per_hour="6.5")
    outcome = hp.solve(profile, slo, measured)
    assert outcome.exit_code == 0, outcome.why
    costs = [one.value for one in outcome.require().promises if one.quantity == "cost_per_hour"]
    assert costs[0] <= 6.5
    slo["limits"]["cost_per_hour"] = "0.5"
    none = hp.solve(profile, slo, measured)
    assert none.exit_code == 3
    assert none.repairs[0].field == "slo.limits.cost_per_hour"
    slo["limits"]["cost_per_hour"] = str(none.repairs[0].to)
    assert hp.solve(profile, slo, measured).exit_code == 0


def test_nothing_needs_to_be_asked_of_what_is_sought():
    slo = wish(["front quality latency"])
    del slo["apps"]["gate"]["quality"], slo["apps"]["gate"]["latency"]
    outcome = solved(slo)
    assert outcome.exit_code == 0, outcome.violations
    measured = shipped(EXAMPLE / "measured.json")["apps"]["gate"]
    assert outcome.front.points[0][0]["quality"] == pytest.approx(max(entry["mean"] for entry in measured))
    bare = wish(["min latency"])
    del bare["apps"]["gate"]["quality"]
    with pytest.raises(InputError, match="accuracy target"):
        solved(bare)


@pytest.mark.parametrize(
    ("objective", "why"),
    [
        (["front quality"], "two or three"),
        (["front cost cost"], "two or three"),
        (["front cost latency", "min cost"], "the whole objective"),
        ([{"min": "latency", "front": ["cost", "latency"]}], "terms as texts"),
    ],
)
def test_objectives_that_make_no_sense_are_refused(objective, why):
    with pytest.raises(InputError, match=why):
        solved(wish(objective))


@pytest.mark.slow
def test_a_search_for_a_front_says_how_likely_a_point_is_missing_and_goes_on_the_same():
    query = draw("ACG", 3)
    slo = {**query.slo(), "objective": ["front quality cost"]}
    measure = measuring(query)
    made = [
        hp.solve(query.profile(), slo, evaluate=measure, options={"max_measurements": 12, "samples_min": 60})
        for _ in range(2)
    ]
    front = made[0].front
    assert front is not None
    assert not front.whole
    assert front.chance is not None
    assert 0.0 <= front.chance <= 1.0
    assert [f for f, _ in front.points] == [f for f, _ in made[1].front.points]
    with pytest.raises(InputError, match="least cost only"):
        hp.solve(query.profile(), slo, evaluate=measure, options={"search": "cmbo"})
