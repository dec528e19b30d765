"""Cheaper plans near by, on machines that are shared and paid whole."""

import math
import random
from collections import Counter

import pytest

import hetplan as hp
from benchmarks.kept import is_kept, variants, variants_shared
from hetplan import registry
from hetplan.planner.ask import Asking
from hetplan.planner.draft import Draft
from hetplan.planner.next_state import next_state
from hetplan.problems.variants.form import evenly
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
    """The search where `plays` says of each application how late it is."""
    return together(v, lambda units, apps: {b: plays(units, b) for b in apps})


def together(v, plays):
    return Near(v, plays, lambda apps: 100.0 * len(apps), Asking([*registry.solvers("milp")]))


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


def test_where_what_runs_breaks_a_limit_and_counts_no_neighbour_is_looked_for():
    profile, wish = files()
    wish["apps"]["a"]["latency"][0]["max_ms"] = 9
    state = {"format": "hetplan/state/1.0", "workers": [running("a", 2)]}
    v = read_snapshot(load_inputs(profile, wish, state=state), VariantsOptions(violators="count"))
    assert why_none(v)
    assert why_none(snapshot(moves=3)) == ""


def running(variant, count):
    loads = [{"id": f"{variant}.1", "variant": variant, "serve": {"max_batch": 1}}]
    return {"id": variant, "hardware": "gpu", "offer": "gpu", "count": count, "loads": loads}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("moves", [0, 1, 2, 4])
def test_of_few_plans_within_the_moves_the_cheapest_is_found(moves):
    """Of six small and two large that run, what is new is loaded, and paid for so long."""
    profile, wish = shared_files((40, 90))
    wish["limits"], state = {"moves": moves}, {"format": "hetplan/state/1.0", "workers": []}
    for worker, batch in ((running("small", 6), 1), (running("large", 2), 2)):
        del worker["offer"]
        worker["loads"][0]["serve"]["max_batch"] = batch
        state["workers"].append(worker)
    for variant in profile["variants"].values():
        variant["runs"][0]["load_s"] = 360
    v = leaving_room_to_wait(read_snapshot(load_inputs(profile, wish, state=state), VariantsOptions()))
    near = together(v, lambda units, apps: dict.fromkeys(apps, 0.5 if use(near, units, 0.6) <= 1.0 + 1e-6 else 1.4))
    assert v.inputs.state is not None
    found = near.cheaper(Draft(workers=v.inputs.state.workers))
    every = [units_of(v, small=i, large=j) for i in range(8) for j in range(8) if i + j]
    allowed = [one for one in every if v.may_move(near.counts(one))]
    assert len(allowed) == sum(max(0, i - 6) + max(0, j - 2) <= moves for i in range(8) for j in range(8)) - 1
    assert near.cost(found[0]) == pytest.approx(min(near.cost(one) for one in allowed if use(near, one, 0.6) <= 1.0))


@pytest.mark.slow
def test_a_cheaper_plan_within_the_moves_is_found_from_what_runs(monkeypatch):
    """Instances that pay for themselves run, now there is less load."""
    drawn = variants(3)
    before = hp.solve(drawn.profile, drawn.slo, options={"size": "estimated"}).require()
    drawn.slo["limits"] = {"moves": 3}
    for app in drawn.slo["apps"].values():
        app["demand"]["rate_qps"] *= 0.7
    outcome = hp.solve(drawn.profile, drawn.slo, state=next_state(before))
    assert (outcome.exit_code, outcome.violations) == (0, ())
    monkeypatch.setattr("hetplan.problems.variants.size.why_none", lambda v: "nothing is looked for near by")
    assert cost(outcome) < 0.95 * cost(hp.solve(drawn.profile, drawn.slo, state=next_state(before)))


def shared_files(max_ms=(40, 90, 60), **change):
    """Applications that may run on either of two models: 100 queries/s for 1, and 180 of two at once for 1.7."""
    times = {"small": ([1], [10]), "large": ([2], [11])}
    profile = {
        "format": "hetplan/profile/1.1",
        "hardware": {"gpu": {"kind": "gpu"}},
        "tasks": {"t": {}},
        "variants": {
            name: {"task": "t", "runs": [{"hardware": "gpu", "latency": name, "price_per_hour": price, "needs": {}}]}
            for name, price in (("small", "1"), ("large", "1.7"))
        },
        "tables": {
            name: {"quantity": "latency_ms", "axes": {"batch": batches}, "mean": ms}
            for name, (batches, ms) in times.items()
        },
    }
    wish = {
        "format": "hetplan/slo/1.0",
        "change": {"slack": 1.0, **change},
        "apps": {
            name: {
                "runs": {"task": "t"},
                "latency": [{"percentile": 99, "max_ms": limit}],
                "demand": {"rate_qps": rate},
            }
            for name, limit, rate in zip("abc", max_ms, (170.0, 140.0, 60.0), strict=False)
        },
    }
    return profile, wish


def sharing(max_ms, options=None):
    return leaving_room_to_wait(read_snapshot(load_inputs(*shared_files(max_ms)), options or VariantsOptions()))


def units_of(v, **counts):
    names = {v.kinds[item.kind].variant: i for i, item in enumerate(v.items)}
    return tuple(sorted(((v.kinds[v.items[names[k]].kind].type, ((names[k], 1),)), n) for k, n in counts.items() if n))


def use(near, units, part: float):
    """The highest use of an instance, all applications asked for this part."""
    v = asking(near.v, dict.fromkeys(range(len(near.v.asked)), part))
    answer = evenly(v, near.counts(units), near.ask, list(range(len(v.asked))), v.need.tolist())
    return float(answer.point[0]) if answer.point is not None else float("inf")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("max_ms", [(40, 90), (25, 300), (40, 90, 60), (300, 25, 60)])
def test_what_ties_carry_is_what_the_program_spreads(max_ms):
    near = together(sharing(max_ms), lambda units, apps: {})
    near.hopeful, apps = dict.fromkeys(range(len(max_ms)), 0.5), tuple(range(len(max_ms)))
    all_ = [units_of(near.v, small=i, large=j) for i in range(5) for j in range(5) if i + j]
    for units in all_:
        for _ in range(5):  # What a program showed is known from then on.
            near._carries(units, apps, near.hopeful, exactly=True)
        carried = use(near, units, 0.5) <= 1.0 + 1e-6
        assert near._carries(units, apps, near.hopeful, slack=1e-6) == carried
        part = near.parts(units)[0]
        if part < 1.0:
            assert use(near, units, part) <= 1.0 + 1e-5 < use(near, units, part - 0.01)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("max_ms", [(40, 90), (25, 300), (40, 90, 60)])
@pytest.mark.parametrize("in_time", [0.3, 0.6, 0.9])
def test_of_few_plans_the_cheapest_in_time_is_found(max_ms, in_time):
    looked = []

    def plays(units, apps):
        looked.append(apps)
        return dict.fromkeys(apps, 0.5 if use(near, units, in_time) <= 1.0 + 1e-6 else 1.4)

    near = together(sharing(max_ms), plays)
    start = Draft(
        workers=(
            Worker(id="w", hardware="gpu", count=9, loads=(Load(id="w.1", variant="small", serve=Serve(max_batch=1)),)),
        )
    )
    found = near.cheaper(start)
    every = (units_of(near.v, small=i, large=j) for i in range(10) for j in range(7))
    least = min(near.cost(one) for one in every if one and use(near, one, in_time) <= 1.0)
    assert near.cost(found[0]) == pytest.approx(least)
    assert set(looked) == {tuple(range(len(max_ms)))}


def carried(v, units, b, part):
    """The queries per second that units carry of an application, each instance asked for so much of its saturation."""
    best = [
        max((s.saturation_qps * s.busy ** (1 - part) for s in one.serves if s.app == b), default=0) for one in v.items
    ]
    return sum(n * count * best[i] for (_, holds), n in units for i, count in holds)


def lacks(v, units, b, part):
    return carried(v, units, b, part) < v.asked[b].need_qps * (1 - 1e-9)


def test_of_machines_that_are_shared_the_cheapest_in_time_are_nearly_always_found():
    """Two applications on parts of fast machines or on slow ones, from dear ones, against all that there may be."""
    dearer = [found - least for found, least in map(_found_and_least, range(12))]
    assert sum(one > 0 for one in dearer) <= 1
    assert max(dearer) <= 1.0, "by a slow machine"


def _found_and_least(seed):
    chance = random.Random(seed)
    rates, in_time = {name: chance.uniform(40, 700) for name in RATES}, chance.choice([0.3, 0.6, 0.9])
    part, were_late = chance.choice([0.5, 1]), []
    v = snapshot(rates=rates, part=part)

    def plays(units, b):
        mine = near._own(units, (b,))
        assert not any(_is_less(mine, other) for other in were_late), "late with more of the same"
        if not lacks(v, units, b, in_time):
            return 0.5
        were_late.append(mine)
        return 1.4

    near = search(v, plays)
    found = near.cheaper(plan(*(("gpu-dear", 20, [(name, round(1 / part), 1)]) for name in RATES)))

    def enough(b):
        """So many fast instances and slow ones of an application carry it, none of them in vain."""
        qps = {"gpu": 0.0, "slow": 0.0}
        for i, item in enumerate(v.items):
            t = v.kinds[item.kind].type
            qps[v.types[t].hardware] = max(qps[v.types[t].hardware], carried(v, [((t, ((i, 1),)), 1)], b, in_time))
        need = v.asked[b].need_qps * (1 - 1e-9)
        return [(fast, max(0, math.ceil((need - fast * qps["gpu"]) / qps["slow"]))) for fast in range(20)]

    bills = [2 * math.ceil((f + g) * part) + s + t for f, s in enough(0) for g, t in enough(1)]
    return near.cost(found[0]), min(bills)


def _is_less(one, other):
    """Whether there are no more of the same units."""
    one, other = dict(one), dict(other)
    return one.keys() == other.keys() and all(n <= other[unit] for unit, n in one.items())


@pytest.mark.parametrize("hope", [0.0, 0.4, 0.9])
def test_changes_that_are_left_out_would_carry_too_little(hope):
    near = search(snapshot(part=0.25), lambda units, app: 9.0)
    near.cheaper(plan(("gpu", 1, [("a", 2, 4), ("b", 2, 1)]), ("slow", 3, [("a", 1, 1)])))
    start = plan(("gpu", 1, [("a", 2, 4), ("b", 2, 1)]), ("slow", 3, [("a", 1, 1)]))
    now, near.hopeful = near._units_of(start), {0: hope, 1: hope / 2}
    left_out = []
    for change in near._changes(Counter(dict(now))):
        after = (Counter(dict(now)) - Counter(dict(change.gone)) + Counter(dict(change.more))).items()
        left_out.append(near._is_hopeless(now, change))
        assert left_out[-1] == any(lacks(near.v, after, b, near.hopeful[b]) for b in change.apps)
    assert set(left_out) == {False, True}


@pytest.mark.parametrize(
    ("limits", "slow", "may_be"),
    [
        ({"instances": {"slow": [0, 3]}}, 3, True),
        ({"instances": {"slow": [0, 3]}}, 4, False),
        ({"cost_per_hour": "3"}, 3, True),
        ({"cost_per_hour": "3"}, 4, False),
    ],
)
def test_stock_and_budget_say_what_may_be(limits, slow, may_be):
    near = search(snapshot(rates={"a": 60.0}, **limits), lambda units, app: 0.5)
    types = [near.v.kinds[item.kind].type for item in near.v.items]
    (i,) = [i for i, t in enumerate(types) if near.v.types[t].hardware == "slow"]
    assert near._may_be((((types[i], ((i, 1),)), slow),), {0: 1.0}) == may_be


def test_who_shares_nothing_of_a_plan_is_looked_at_alone():
    v = sharing((40, 90), VariantsOptions(sharing="dedicated"))
    assert together(v, lambda units, apps: {})._sharing == ((0,), (1,))
    shared = together(sharing((10.5, 90)), lambda units, apps: {})
    assert [sorted(one) for one in shared._serving] == [[1], [0, 1]]
    assert shared._together(units_of(shared.v, large=1)) == ((0,), (1,))
    assert shared._together(units_of(shared.v, large=1, small=2)) == ((0, 1),)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "part"), [(18, 0.92), (46, 0.8)])
def test_a_cheaper_plan_whose_applications_share_instances_is_found_and_kept(monkeypatch, seed, part):
    drawn = variants_shared(seed)
    outcome = hp.solve(drawn.profile, drawn.slo)
    assert (outcome.exit_code, outcome.violations) == (0, ())
    assert is_kept(drawn, outcome.require())
    monkeypatch.setattr("hetplan.problems.variants.size.why_none", lambda v: "nothing is looked for near by")
    assert cost(outcome) < part * cost(hp.solve(drawn.profile, drawn.slo))


def cost(outcome):
    return next(one.value for one in outcome.plan.promises if one.quantity == "cost_per_hour")


def test_one_of_whom_hardly_any_query_comes_is_not_played():
    outcome = hp.solve(*files(rates={"a": 1e-6, "b": 60.0}))
    assert (outcome.exit_code, outcome.violations) == (0, ())


@pytest.mark.slow
def test_where_no_longer_run_may_be_played_the_short_one_decides():
    outcome = hp.solve(*files(rates={"a": 3000.0, "b": 1.0}), options={"evaluations": 2})
    assert (outcome.exit_code, outcome.violations) == (0, ())
