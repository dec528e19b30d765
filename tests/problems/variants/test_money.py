"""What is paid: the bill where nothing runs, loads spread over the horizon where something does, all counts tried."""

import copy
import itertools
import math
import random

import pytest
from cases.variants import LOAD_S, counts, money, solve, table2

from hetplan.profiles.load import load_inputs
from hetplan.verifier.variants import check

HOUR = 3600
BILL, GROSS = "cost_per_hour", "gross_cost_per_hour"


def unstated(documents, **slo):
    """The same wish without the paper's weight of loading."""
    del documents[1]["change"]["load_weight_per_s"]
    documents[1].update(slo)
    return documents


def whole_machines(rng):
    """One application, one variant on two or three kinds of machine, each paid whole; perhaps some run already."""
    kinds = [f"h{k}" for k in range(rng.randint(2, 3))]
    start = {kind: rng.choice([0.0, 30.0, 600.0]) for kind in kinds}
    price = {kind: rng.choice([0.5, 0.6, 1.0, 1.7]) for kind in kinds}
    rate = {kind: rng.choice([40.0, 70.0, 100.0]) for kind in kinds}
    load_s = {kind: rng.choice([0.0, 5.0, 30.0, 900.0]) for kind in kinds}
    table = {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [5.0]}
    runs = [
        {"hardware": k, "latency": "t", "at": {"batch": 1}, "saturation_qps": rate[k], "load_s": load_s[k]}
        for k in kinds
    ]
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {kind: {"kind": "gpu", "startup_s": start[kind]} for kind in kinds},
        "offers": {kind: {"hardware": kind, "price_per_hour": str(price[kind])} for kind in kinds},
        "tasks": {"t": {}},
        "variants": {"v": {"task": "t", "runs": runs}},
        "tables": {"t": table},
    }
    load = rng.choice([90.0, 130.0, 210.0, 260.0])
    app = {"model": "v", "latency": {"p99_ms": 50}, "rate_qps": load}
    slo = {"format": "hetplan/slo/1.0", "objective": ["min cost"], "change": {"slack": 1.0}, "apps": {"x": app}}
    if rng.random() < 0.5:
        slo["horizon"] = {"period_s": rng.choice([600.0, 7200.0])}
    running = {kind: rng.randint(0, 3) for kind in kinds} if rng.random() < 0.7 else dict.fromkeys(kinds, 0)
    workers = [
        {"id": f"w-{kind}", "hardware": kind, "offer": kind, "count": count, "loads": [{"id": kind, "variant": "v"}]}
        for kind, count in running.items()
        if count
    ]
    per_s = 1.0 / slo.get("horizon", {"period_s": HOUR})["period_s"] if workers else 0.0
    groups = {}
    for kind in kinds:
        # Without host names what runs counts together where price and time to come up are the same.
        groups.setdefault((price[kind], load_s[kind] + start[kind]), []).append(kind)
    best = math.inf
    for x in itertools.product(range(8), repeat=len(kinds)):
        count = dict(zip(kinds, x, strict=True))
        if sum(rate[kind] * n for kind, n in count.items()) >= load:
            cost = sum(price[kind] * n for kind, n in count.items())
            for (paid, seconds), mine in groups.items():
                new = sum(count[kind] for kind in mine) - sum(running[kind] for kind in mine)
                cost += per_s * paid * seconds * max(new, 0)
            best = min(best, cost)
    state = {"format": "hetplan/state/1.0", "workers": workers}
    return (profile, slo, state), best, bool(workers)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("first", [0, 15, 30])
def test_no_counts_cost_less(first):
    seen = set()
    for seed in range(first, first + 15):
        documents, best, running = whole_machines(random.Random(seed))
        found = solve(documents, ["variants-columns", "variants-milp"][seed % 2])
        assert found.exit_code == 0, (seed, found.violations)
        assert money(found, GROSS) * HOUR == pytest.approx(best, rel=1.1e-3), seed
        assert found.claims[0].about == (GROSS if running else BILL)
        if not running:
            assert money(found, BILL) == money(found, GROSS)
        seen.add(running)
    assert seen == {True, False}


def slow_and_cheap(running=None, **slo):
    """1,000 queries/s: ten of b at 3 a second, or two of c at 16; b is loaded in half an hour, c at once."""
    load_s = {"a": 0.0, "b": 1800.0, "c": 0.0}
    return unstated(table2(1000.0, 50.0, load_s=load_s, running=running), **slo)


def test_where_nothing_runs_the_bill_is_least_however_long_loading_takes():
    found = solve(slow_and_cheap())
    assert counts(found) == {"b": 2, "c": 1}
    assert (found.claims[0].about, found.claims[0].value) == (BILL, pytest.approx(22 * HOUR))


@pytest.mark.parametrize(
    ("period_s", "best"), [(HOUR, {"b": 2, "c": 1}), (600.0, {"c": 2}), (36_000, {"b": 2, "c": 1})]
)
def test_a_load_is_spread_over_the_horizon(period_s, best):
    # Two of b in place of a second c save 10 a second, and loading them costs 2 x 3 x 1,800 once.
    found = solve(slow_and_cheap({"c": 1}, horizon={"period_s": period_s}))
    assert found.exit_code == 0, found.violations
    assert counts(found) == best
    new = 2 * 3 * 1800 / period_s if best == {"b": 2, "c": 1} else 0.0
    assert money(found, GROSS) - money(found, BILL) == pytest.approx(new)


def test_a_longer_horizon_never_raises_the_bill():
    bills = [
        money(solve(slow_and_cheap({"c": 2, "a": 1}, horizon={"period_s": seconds})), BILL)
        for seconds in (60.0, 600.0, 3600.0, 36_000.0)
    ]
    assert bills == sorted(bills, reverse=True)
    assert bills[0] > bills[-1]


def test_the_papers_objective_by_name():
    documents = slow_and_cheap()
    assert counts(solve(documents, "infaas")) == {"c": 2}
    documents[1]["change"]["load_weight_per_s"] = 0.1
    stated = solve(documents)
    assert counts(stated) == {"c": 2}
    assert stated.claims[0].about == GROSS


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("running", [None, {"a": 3}])
def test_a_cost_with_loads_counted_otherwise_is_caught(weighted, running):
    stated = table2(1000.0, 300.0, load_s=LOAD_S, running=running)
    stated[1]["change"]["load_weight_per_s"] = 0.1
    other = unstated(copy.deepcopy(stated))
    mine, others = (stated, other) if weighted else (other, stated)
    plan = solve(mine).require()
    assert check(plan, load_inputs(mine[0], mine[1], state=mine[2])) == []
    found = check(plan, load_inputs(others[0], others[1], state=others[2]))
    assert {violation.code for violation in found} == {"variants-cost"}


def test_the_start_of_a_whole_machine_is_counted_by_the_check():
    documents, _, running = next(
        made for made in (whole_machines(random.Random(seed)) for seed in range(100))
        if made[2] and all(about["startup_s"] > 0 for about in made[0][0]["hardware"].values())
        and money(solve(made[0]), GROSS) > money(solve(made[0]), BILL)
    )  # fmt: skip
    assert running
    profile, slo, state = documents
    plan = solve(documents).require()
    assert check(plan, load_inputs(profile, slo, state=state)) == []
    for about in profile["hardware"].values():
        about["startup_s"] = 0.0
    assert {one.code for one in check(plan, load_inputs(profile, slo, state=state))} == {"variants-cost"}
