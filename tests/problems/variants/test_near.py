"""Cheaper plans near by, on machines that are shared and paid whole."""

import pytest

import hetplan as hp
from hetplan.planner.draft import Draft
from hetplan.problems.variants.near import MORE_APART, MOST_LOOKED, Near, asking, why_none
from hetplan.problems.variants.options import VariantsOptions
from hetplan.problems.variants.size import leaving_room_to_wait
from hetplan.problems.variants.wish import read_snapshot
from hetplan.profiles.load import load_inputs
from hetplan.profiles.workers import Load, Serve, Worker

RATES = {"a": 90.0, "b": 60.0}


def files(part=0.5, dear="3", rates=RATES, **limits):
    """Two applications with a model each, 100 queries/s in batches of 1, 160 of 4; two halves of a machine or one."""
    profile = {
        "format": "hetplan/profile/1.1",
        "hardware": {name: {"kind": "gpu", "provides": {"part": 1}} for name in ("gpu", "slow")},
        "offers": {
            "gpu": {"hardware": "gpu", "price_per_hour": "2"},
            "gpu-dear": {"hardware": "gpu", "price_per_hour": dear},
            "slow": {"hardware": "slow", "price_per_hour": "1"},
        },
        "tasks": {"t": {}},
        "variants": {
            name: {
                "task": "t",
                "runs": [
                    {"hardware": "gpu", "latency": "fast", "needs": {"part": part}},
                    {"hardware": "slow", "latency": "slow", "needs": {"part": 1}},
                ],
            }
            for name in RATES
        },
        "tables": {
            "fast": {"quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [10, 25]},
            "slow": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [15]},
        },
    }
    wish = {
        "format": "hetplan/slo/1.0",
        "change": {"slack": 1.0},
        "limits": limits,
        "apps": {
            name: {
                "runs": {"variants": [name]},
                "latency": [{"percentile": 99, "max_ms": 60}],
                "demand": {"rate_qps": rate},
            }
            for name, rate in rates.items()
        },
    }
    return profile, wish


def snapshot(**how):
    return leaving_room_to_wait(read_snapshot(load_inputs(*files(**how)), VariantsOptions()))


def plan(*machines):
    """So many machines under an offer, each with these (variant, instances, batch)."""
    return Draft(
        workers=tuple(
            Worker(
                id=f"w{n}", hardware="slow" if offer == "slow" else "gpu", offer=offer, count=count, queue="per-load",
                loads=tuple(
                    Load(id=f"w{n}.{k}", app=name, variant=name, instances=many, serve=Serve(max_batch=batch))
                    for k, (name, many, batch) in enumerate(holds)
                ),
            )
            for n, (offer, count, holds) in enumerate(machines)
        )
    )  # fmt: skip


def search(v, plays):
    return Near(v, plays, dict.fromkeys(range(len(v.asked)), 100.0))


TWO = plan(("gpu", 2, [("a", 2, 1)]), ("gpu", 2, [("b", 2, 1)]))


def test_two_applications_move_together_where_that_is_in_time():
    near = search(snapshot(), lambda units, app: 0.5)
    found = near.cheaper(TWO)
    assert near.cost(found[0]) == 2.0
    ((_, holds), count) = found[0][0]
    assert count == 1
    assert sorted(near.v.asked[near.v.items[i].serves[0].app].id for i, _ in holds) == ["a", "b"]


def test_none_is_cheaper_where_all_others_are_late():
    near = search(snapshot(), lambda units, app: 9.0)
    assert near.cheaper(TWO) == []
    assert near.looked > 0


def test_looks_are_counted_and_end():
    looks = []
    near = search(snapshot(), lambda units, app: looks.append(units) or 1.2)
    near.cheaper(plan(("gpu", 9, [("a", 2, 1)]), ("gpu", 9, [("b", 2, 1)])))
    assert 0 < len(looks) <= 2 * (MOST_LOOKED + MORE_APART)


@pytest.mark.parametrize("stricter", [False, True])
def test_what_was_late_on_other_seeds_is_not_found_again_and_looks_get_stricter(stricter):
    near = search(snapshot(), lambda units, app: 0.8 if stricter else 0.5)
    first = near.cheaper(TWO)[0]
    near.was_late(first, ("a", "b"))
    following = near.cheaper(TWO)
    assert first not in following
    assert bool(following) != stricter


def test_a_cheaper_offer_takes_the_place_of_a_dear_one():
    now = plan(("gpu-dear", 1, [("a", 1, 1), ("b", 1, 1)]))
    near = search(snapshot(), lambda units, app: 0.5)
    assert near.cost(near.cheaper(now)[0]) == 2.0


def test_what_stock_and_budget_forbid_is_not_looked_at():
    v = snapshot(instances={"gpu": [0, 2], "slow": [0, 0]})
    near = search(v, lambda units, app: 0.5)
    near.cheaper(plan(("gpu", 2, [("a", 1, 1), ("b", 1, 1)])))
    assert all(v.types[t].hardware == "gpu" for (_, own) in near.known for (t, _), _ in own)


def test_free_parts_are_filled_and_cost_nothing():
    near = search(snapshot(part=0.25), lambda units, app: 9.0)
    near.cheaper(plan(("gpu", 1, [("a", 1, 1), ("b", 1, 1)])))
    assert all(sum(n for _, n in holds) <= 4 for (_, own) in near.known for (_, holds), _ in own)
    assert any(n == 3 for (_, own) in near.known for (_, holds), _ in own for _, n in holds)


def test_an_application_is_asked_for_so_much_of_its_saturation():
    v = snapshot()
    full = asking(v, dict.fromkeys(range(len(v.asked)), 1.0))
    assert all(pair.busy == 1.0 for pair in full.serves)
    assert asking(v, {}) == v
    for before, after in zip(v.serves, asking(v, {0: 0.5}).serves, strict=True):
        assert after.busy == pytest.approx(before.busy ** (0.5 if after.app == 0 else 1.0))
        assert after.saturation_qps == pytest.approx(before.saturation_qps)


def test_where_moves_are_limited_no_neighbour_is_looked_for():
    assert why_none(snapshot()) == ""
    assert why_none(snapshot(moves=3)) == "moves are limited"


def test_one_of_whom_hardly_any_query_comes_is_not_played():
    outcome = hp.solve(*files(rates={"a": 1e-6, "b": 60.0}))
    assert (outcome.exit_code, outcome.violations) == (0, ())


def test_where_no_longer_run_may_be_played_the_short_one_decides():
    outcome = hp.solve(*files(rates={"a": 3000.0, "b": 1.0}), options={"evaluations": 2})
    assert (outcome.exit_code, outcome.violations) == (0, ())
