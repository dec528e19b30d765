"""What one movement leaves to the next is kept by what it depends on: a plan of other files is never shown."""

import copy
import json
from pathlib import Path

import pytest

import hetplan as hp
from hetplan.api.memory import PlanMemory

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "fleet"
PLANNED = {"size": "planned", "levers": False}


def small():
    """The three applications of the example over two hours, in two zones."""
    profile, slo = (json.loads((EXAMPLE / f"{name}.json").read_text()) for name in ("profile", "slo"))
    slo["horizon"] = {"period_s": 3600, "periods": 2, "repeats": 360}
    for name, series in (("ranking", [110.0, 250.0]), ("photos", [300.0, 600.0]), ("assistant", [5.0, 12.0])):
        slo["apps"][name]["demand"]["series"] = series
    profile["zones"].pop("west")
    profile["offers"] = {name: one for name, one in profile["offers"].items() if "west" not in name}
    return {"profile": profile, "slo": slo}


def planned(files, kept, **options):
    return hp.Planner(files["profile"]).plan(files["slo"], options=PLANNED | options, tools=kept.tools)


def moved(files, which, path, how):
    """The files with one number changed, and which number that was before."""
    held = copy.deepcopy(files)
    one = held[which]
    for step in path[:-1]:
        one = one.setdefault(step, {}) if isinstance(one, dict) else one[step]
    one[path[-1]] = how(one.get(path[-1]) if isinstance(one, dict) else one[path[-1]])
    return held


@pytest.fixture(scope="module")
def warm():
    """What a server knows that planned the files."""
    kept = PlanMemory()
    assert planned(small(), kept).exit_code == 0
    return kept


def times(factor):
    return lambda value: [factor * one for one in value] if isinstance(value, list) else factor * value


def price(factor):
    return lambda value: f"{factor * float(value):.6g}"


MOVES = {
    **{f"{table} x{factor}": ("profile", ["tables", table, "mean"], times(factor))
       for table in ("ranker-t4", "ranker-cpu16", "net-t4") for factor in (0.9, 1.2)},
    **{f"{offer} x{factor}": ("profile", ["offers", offer, "price_per_hour"], price(factor))
       for offer in ("t4-east", "cpu16-middle-spot", "a100-east") for factor in (0.8, 1.3)},
    "less stock": ("profile", ["offers", "t4-east-spot", "stock"], lambda n: n - 2),
    "more stock": ("profile", ["offers", "t4-east-spot", "stock"], lambda n: n + 3),
    "faster answers of ranking": ("slo", ["apps", "ranking", "latency", 0, "max_ms"], lambda _: 35),
    "later answers of ranking": ("slo", ["apps", "ranking", "latency", 0, "max_ms"], lambda _: 80),
    "faster answers of photos": ("slo", ["apps", "photos", "latency", 0, "max_ms"], lambda _: 30),
    "sooner first tokens": ("slo", ["apps", "assistant", "latency", 0, "max_ms"], lambda _: 450),
    "slower tokens": ("slo", ["apps", "assistant", "latency", 1, "max_ms"], lambda _: 63),
    "a better net": ("slo", ["apps", "photos", "quality", "min"], lambda _: 0.77),
    "more images a second": ("profile", ["variants", "net", "runs", 0, "saturation_qps"], times(1.2)),
    "fewer images a second": ("profile", ["variants", "net", "runs", 0, "saturation_qps"], times(0.9)),
    "more kept": ("slo", ["limits", "survive", "keep"], lambda _: 0.95),
    "less kept": ("slo", ["limits", "survive", "keep"], lambda _: 0.6),
    "a slower engine": ("profile", ["engines", "llama-8b-a100", "pieces", 0, "token_ms"], times(1.3)),
    "less room for tokens": ("profile", ["engines", "llama-8b-l4", "kv_tokens"], lambda _: 30000),
    "other sizes": ("slo", ["apps", "ranking", "demand", "mix", "share"], lambda _: [0.3, 0.3, 0.2, 0.1, 0.1]),
    "a budget": ("slo", ["limits", "cost_per_hour"], lambda _: "20"),
    "the most machines": ("slo", ["limits", "instances"], lambda _: {"t4": [0, 6]}),
}  # fmt: skip


@pytest.mark.slow_cases(10)
@pytest.mark.slow
@pytest.mark.parametrize("move", MOVES)
def test_a_plan_of_an_earlier_movement_is_not_shown_for_other_files(warm, move):
    """The verifier, which knows of no earlier movement, finds nothing wrong and proves the bound of the new files."""
    files = moved(small(), *MOVES[move])
    found = planned(files, warm, look=True)
    assert (found.exit_code, found.violations) == (0, ()), (found.reason, found.why)
    report = hp.verify(found.plan, files["profile"], files["slo"])
    assert report.ok, report.violations
    assert str(report.claims[0].word) == "proved again", report.claims[0]


@pytest.mark.slow_cases(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("move", "asked"),
    [
        ((("slo", ["apps", "ranking", "latency", 0, "max_ms"], times(1.02))), 0),
        ((("slo", ["apps", "photos", "latency", 0, "max_ms"], times(0.97))), 0),
        ((("slo", ["apps", "assistant", "latency", 0, "max_ms"], times(1.02))), 0),
        ((("slo", ["apps", "photos", "quality", "min"], times(1.01))), 0),
        ((("profile", ["offers", "t4-east", "price_per_hour"], price(1.02))), 0),
        ((("slo", ["apps", "ranking", "latency", 0, "max_ms"], lambda _: 35)), 1),
        ((("profile", ["tables", "ranker-t4", "mean"], times(1.02))), 1),
        ((("profile", ["variants", "net", "runs", 0, "saturation_qps"], times(1.02))), 1),
    ],
)  # fmt: skip
def test_parts_that_a_movement_leaves_alone_are_not_planned_again(move, asked):
    kept, files = PlanMemory(), small()
    planned(files, kept)
    before = kept.asked - kept.known
    found = planned(moved(files, *move), kept, look=True)
    assert (found.exit_code, found.violations) == (0, ())
    assert ((kept.asked - kept.known) > before) == bool(asked)


@pytest.mark.slow
def test_a_part_that_stays_says_the_price_and_the_limit_of_now(warm):
    files = moved(small(), "slo", ["apps", "ranking", "latency", 0, "max_ms"], lambda _: 62.5)
    files = moved(files, "profile", ["offers", "t4-east", "price_per_hour"], lambda _: "0.63")
    found = planned(files, warm, look=True)
    assert found.violations == ()
    pools = [part for part in found.plan.parts.values() if part.question == "pool"]
    assert {part.dispatch["ranking"].slo_ms for part in pools} == {62.5}
    for part in pools:
        paid = sum(
            worker.count * float(files["profile"]["offers"][worker.offer]["price_per_hour"]) for worker in part.workers
        )
        said = next(one.value for one in part.promises if one.quantity == "cost_per_hour")
        assert said == pytest.approx(paid)


def test_what_a_part_said_of_waiting_under_another_limit_is_not_said_of_this_one(warm):
    files = moved(small(), "slo", ["apps", "photos", "latency", 0, "max_ms"], lambda _: 149.0)
    found = planned(files, warm, look=True)
    photos = [part for part in found.plan.parts.values() if part.question == "variants"]
    assert not any(one.code == "W-queueing" for part in photos for one in part.warnings)
    assert any(one.code == "W-queueing" and "not looked at yet" in one.text for one in found.plan.warnings)


def test_with_a_state_nothing_is_remembered_or_recalled(warm):
    files, memory = small(), warm.tools.extra["before"]()["memory"]
    known = len(memory.parts), len(memory.bounds), len(memory.tables)
    state = {"format": "hetplan/state/1.0", "workers": []}
    planner = hp.Planner(files["profile"])
    other = moved(files, "slo", ["apps", "ranking", "latency", 0, "max_ms"], lambda _: 35)
    found = planner.plan(other["slo"], state=state, options=PLANNED | {"look": True}, tools=warm.tools)
    assert found.exit_code == 0, (found.reason, found.why)
    assert (len(memory.parts), len(memory.bounds), len(memory.tables)) == known


@pytest.mark.slow
def test_what_did_not_stand_its_check_is_forgotten():
    kept, files = PlanMemory(), small()
    planned(files, kept)
    assert kept.tools.extra["before"]()["memory"].parts
    kept.forget()
    assert "memory" not in kept.tools.extra["before"]()


@pytest.mark.slow
def test_a_look_begins_where_a_search_under_the_same_limits_ended():
    """Prices of a search with a budget bound nothing where there is none: they were lower by what the budget was."""
    kept, files = PlanMemory(), small()
    first = planned(files, kept).plan.claims[0]
    tight = moved(files, "slo", ["limits", "cost_per_hour"], lambda _: f"{1.2 * first.value:.4g}")
    assert planned(tight, kept).exit_code == 0
    again = planned(files, kept, look=True).plan.claims[0]
    assert again.bound == pytest.approx(first.bound, rel=1e-6)


@pytest.mark.slow
def test_where_limits_are_in_the_way_of_a_descent_periods_are_programs():
    """More of a machine than anybody needs: no descent has idle ones, and a whole search takes many times as long."""
    kept, files = PlanMemory(), small()
    planned(files, kept)
    held = moved(files, "slo", ["limits", "instances"], lambda _: {"t4": [8, 8]})
    events = []
    found = hp.Planner(files["profile"]).plan(
        held["slo"], options=PLANNED | {"look": True}, tools=kept.tools, on_event=events.append
    )
    assert (found.exit_code, found.violations) == (0, ())
    assert found.plan.claims[0].gap < 0.25
    assert "periods by themselves with highs" in {event.detail for event in events}
    assert "all periods together with highs" not in {event.detail for event in events}
