"""Fleets: equal to their parts where nothing joins them, equal to brute force where they are tiny, invariant else."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.planner.answer import Limits
from hetplan.planner.bound_verdicts import Word
from hetplan.planner.contract import Event
from hetplan.planner.outcome import Outcome
from hetplan.planner.schedule import Schedule
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_periods import machines_of, of_period
from hetplan.simulator.day import HowPlayed, play_day

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "fleet"

Json = dict[str, Any]

PROFILE: Json = {
    "format": "hetplan/profile/1.0",
    "hardware": {
        "big": {"kind": "gpu", "provides": {"gpu": 1}, "startup_s": 120},
        "small": {"kind": "cpu", "provides": {"cpu_cores": 4}},
    },
    "offers": {
        "big-a": {"hardware": "big", "zone": "a", "price_per_hour": "1.0", "stock": 6},
        "big-b": {"hardware": "big", "zone": "b", "price_per_hour": "1.0", "stock": 6},
        "small-a": {"hardware": "small", "zone": "a", "price_per_hour": "0.3", "stock": 9},
        "small-b": {"hardware": "small", "zone": "b", "price_per_hour": "0.3", "stock": 9},
    },
    "tasks": {"rank": {}},
    "variants": {"m": {"task": "rank", "runs": [{"hardware": "big", "latency": "t-big"},
                                                {"hardware": "small", "latency": "t-small"}]}},
    "tables": {
        "t-big": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [5, 15]},
        "t-small": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [12, 70]},
    },
}  # fmt: skip


def app(rate: float | list[float], small: float = 0.5) -> Json:
    mix = {"axes": ["batch"], "bins": [[1], [8]], "share": [small, 1 - small]}
    return {
        "question": "pool",
        "model": "m",
        "latency": {"p99_ms": 50},
        "rate_qps": {"series": rate} if isinstance(rate, list) else rate,
        "mix": mix,
    }


def wish(*apps: Json, periods: int = 1, **more: Any) -> Json:
    limits = more.pop("limits", {})
    return {
        "format": "hetplan/slo/1.0",
        "limits": limits,
        "horizon": {"period_s": 3600, "periods": periods, **more},
        "apps": {f"app{number}": one for number, one in enumerate(apps)},
    }


def solved(slo: Json, profile: Json = PROFILE, **options: Any) -> Outcome:
    return hp.solve(profile, slo, options={"savings": False, "gap": 0.0, **options}, formulation="fleet")


def cost(outcome: Outcome) -> float:
    assert outcome.violations == ()
    plan = outcome.require()
    assert plan.bill is not None
    return float(plan.bill.cost_per_hour)


def test_one_application_in_one_period_is_its_own_question() -> None:
    slo = wish(app(220.0))
    outcome = solved(slo, sizing="fluid")
    own = copy.deepcopy(slo)
    del own["apps"]["app0"]["question"], own["horizon"]
    alone = hp.solve(PROFILE, own, options={"sizing": "fluid"}, formulation="pool").require()
    one = of_period(outcome.require(), "p0")
    counts = {worker.offer: worker.count for worker in alone.workers}
    by_hardware = {
        name: sum(n for offer, n in counts.items() if str(offer).startswith(name)) for name in ("big", "small")
    }
    found = machines_of(outcome.require(), "p0")
    assert by_hardware == {
        name: sum(n for offer, n in found.items() if offer.startswith(name)) for name in ("big", "small")
    }
    assert cost(outcome) == pytest.approx(alone.claims[0].value)
    assert one.question == "pool"
    assert outcome.claims[0].gap == pytest.approx(0.0, abs=1e-3)


def _carried(big: int, small: int, share: float) -> float:
    """The most that these machines carry, by hand: big serves both sizes, small the small one only (70 ms is late)."""
    busy_small, busy_big = 12 / 1000, (5 / 1000, 15 / 1000)
    best = 0.0
    for part in range(101):  # the share of small queries on small machines, in hundredths and where it is full
        x = part / 100
        best = max(best, _rate(big, small, share, x, busy_small, busy_big))
    # where small machines are exactly full together with big ones
    if small:
        full = small / busy_small
        left = big + full * busy_big[0]
        rate = left / (share * busy_big[0] + (1 - share) * busy_big[1])
        if share * rate >= full:
            best = max(best, rate)
    return 0.8 * best


def _rate(big: int, small: int, share: float, x: float, busy_small: float, busy_big: tuple[float, float]) -> float:
    work_small = share * x * busy_small
    work_big = share * (1 - x) * busy_big[0] + (1 - share) * busy_big[1]
    limits = [count / work for count, work in ((small, work_small), (big, work_big)) if work > 0]
    return min(limits)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("rates", "survive"), [((90.0, 140.0, 60.0), False), ((70.0, 40.0, 90.0), True)])
def test_two_applications_on_two_types_over_three_periods_as_by_brute_force(
    rates: tuple[float, ...], survive: bool
) -> None:
    other = [50.0, 80.0, 30.0]
    limits = {"survive": {"zones": 1, "serve": 0.8}} if survive else {}
    slo = wish(app([*rates]), app(other, small=0.9), periods=3, limits=limits, starts=False)
    outcome = solved(slo, sizing="fluid")
    total = 0.0
    for name, share in ((rates, 0.5), (other, 0.9)):
        for rate in name:
            best = float("inf")
            for a, b, c, d in itertools.product(range(5), range(5), range(5), range(5)):
                if not survive and (b or d):
                    continue
                money = (a + b) * 1.0 + (c + d) * 0.3
                if money >= best - 1e-9 or _carried(a + b, c + d, share) < rate - 1e-9:
                    continue
                if survive and min(_carried(a, c, share), _carried(b, d, share)) < 0.8 * rate - 1e-9:
                    continue
                best = money
            total += best
    assert cost(outcome) == pytest.approx(total / 3)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("zones", ["ab", "abc"])
@pytest.mark.parametrize("stock", [1, 2])
@pytest.mark.parametrize("rates", [(90.0, 90.0), (150.0, 60.0, 40.0), (210.0, 120.0)])
def test_what_little_stock_of_each_zone_is_enough_for_is_found_as_by_brute_force(
    zones: str, stock: int, rates: tuple[float, ...]
) -> None:
    """Applications took the same zone's machines in all that was tried, and those of the others were left."""
    profile = copy.deepcopy(PROFILE)
    sold = {name.split("-")[0]: offer for name, offer in profile["offers"].items()}
    profile["offers"] = {f"{name}-{z}": {**one, "zone": z, "stock": stock} for name, one in sold.items() for z in zones}
    outcome = solved(wish(*(app(rate) for rate in rates)), profile, sizing="fluid")
    most, least = range(stock * len(zones) + 1), float("inf")
    ways = [[(b, s) for b in most for s in most if _carried(b, s, 0.5) >= rate - 1e-9] for rate in rates]
    for chosen in itertools.product(*ways):
        big, small = (sum(counts) for counts in zip(*chosen, strict=True))
        least = min(least, 1.0 * big + 0.3 * small) if big in most and small in most else least
    if least < float("inf"):
        assert cost(outcome) == pytest.approx(least)
    else:
        assert outcome.exit_code == 3
        assert outcome.status != "not-found"


def state(**counts: int) -> Json:
    workers = [
        {"id": f"w-{offer}", "hardware": offer.split("-")[0], "offer": offer, "count": count,
         "loads": [{"id": f"l-{offer}", "app": "app0", "variant": "m", "at": {}}]}
        for offer, count in counts.items() if count
    ]  # fmt: skip
    return {"format": "hetplan/state/1.0", "workers": workers}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("repeats", "moves"), [(1, None), (1, 2), (4, None), (4, 2)])
@pytest.mark.parametrize("runs", [{}, {"big-a": 2}, {"small-b": 3}])
def test_the_first_period_follows_what_runs_as_by_brute_force(
    runs: dict[str, int], repeats: int, moves: int | None
) -> None:
    profile = copy.deepcopy(PROFILE)
    for name in ("big", "small"):
        profile["hardware"][name]["startup_s"] = 1800
    profile["offers"] = {name: {**profile["offers"][name], "stock": 3} for name in ("big-a", "small-b")}
    slo = wish(app([150.0, 70.0]), periods=2, repeats=repeats, limits={} if moves is None else {"changes": moves})
    held = state(**runs)
    options = {"savings": False, "gap": 0.0, "sizing": "fluid"}
    outcome = hp.solve(profile, slo, held, options=options, formulation="fleet")
    prices, has = (1.0, 0.3), (runs.get("big-a", 0), runs.get("small-b", 0))

    def starting(now: tuple[int, ...], before: tuple[int, ...]) -> tuple[float, int]:
        new = [max(n - m, 0) for n, m in zip(now, before, strict=True)]
        return 0.5 * sum(price * n for price, n in zip(prices, new, strict=True)), sum(new)

    best = float("inf")
    every = list(itertools.product(range(4), repeat=2))
    for first, second in itertools.product(every, every):
        if _carried(first[0], first[1], 0.5) < 150.0 - 1e-9 or _carried(second[0], second[1], 0.5) < 70.0 - 1e-9:
            continue
        ways = [starting(first, has), starting(second, first), starting(first, second)]
        if moves is not None and max(new for _, new in ways[: 3 if repeats > 1 else 2]) > moves:
            continue
        rent = sum(price * n for one in (first, second) for price, n in zip(prices, one, strict=True))
        best = min(best, rent + ways[0][0] / repeats + ways[1][0] + ways[2][0] * (1 - 1 / repeats))
    if best == float("inf"):
        assert outcome.plan is None
        return
    assert cost(outcome) == pytest.approx(best / 2)
    plan = outcome.require()
    assert sum(one.count or 0 for one in plan.actions if one.do == "start") == starting(
        tuple(machines_of(plan, "p0").get(offer, 0) for offer in ("big-a", "small-b")), has
    )[1]  # fmt: skip
    spoilt = with_digest(plan.model_copy(update={"actions": plan.actions[1:]}))
    if plan.actions:
        assert "actions" in {one.code for one in hp.verify(spoilt, profile, slo, held).violations}


@pytest.mark.slow
def test_too_few_moves_from_what_runs_are_explained_and_repaired() -> None:
    slo = wish(app([150.0, 70.0]), periods=2, limits={"changes": 1})
    options = {"savings": False, "gap": 0.0}
    outcome = hp.solve(PROFILE, slo, state(), options=options, formulation="fleet")
    assert outcome.plan is None
    repair = next(one for one in outcome.repairs if one.field == "slo.limits.changes")
    assert repair.to is not None
    slo["limits"]["changes"] = int(repair.to)
    assert hp.solve(PROFILE, slo, state(), options=options, formulation="fleet").plan is not None


@pytest.mark.slow
def test_twice_the_repeats_are_twice_the_bill_and_no_more_per_hour() -> None:
    once, twice = (solved(wish(app([90.0, 40.0]), periods=2, repeats=repeats)).require().bill for repeats in (1, 2))
    assert once is not None
    assert twice is not None
    assert twice.total == pytest.approx(2 * once.total)
    assert twice.cost_per_hour == pytest.approx(once.cost_per_hour)


@pytest.mark.slow
def test_a_zone_more_never_costs_more() -> None:
    slo = wish(app([90.0, 40.0]), periods=2, limits={"survive": {"zones": 1, "serve": 1.0}})
    more = copy.deepcopy(PROFILE)
    for name in ("big", "small"):
        more["offers"][f"{name}-c"] = {**more["offers"][f"{name}-a"], "zone": "c"}
    assert cost(solved(slo, more)) <= cost(solved(slo)) + 1e-9


@pytest.mark.slow
def test_many_pairs_of_zones_with_prices_of_their_own_are_planned() -> None:
    """Twenty pairs may change places in a million ways: not all are tried."""
    more = copy.deepcopy(PROFILE)
    more["offers"] = {
        f"{name}-{pair}-{zone}": {**PROFILE["offers"][f"{name}-a"], "zone": f"{pair}{zone}", "price_per_hour": price}
        for pair in range(20)
        for zone in "ab"
        for name, price in (("big", f"{1 + pair / 10}"), ("small", f"{0.3 + pair / 10:.1f}"))
    }
    slo = wish(app([90.0, 40.0]), periods=2)
    assert cost(solved(slo, more, sizing="fluid")) == pytest.approx(cost(solved(slo, sizing="fluid")))


@pytest.mark.slow
def test_without_failures_and_commitments_hours_add_up() -> None:
    rates = [90.0, 40.0, 130.0]
    whole = cost(solved(wish(app(rates), periods=3, starts=False)))
    assert whole == pytest.approx(sum(cost(solved(wish(app(rate)))) for rate in rates) / 3)


@pytest.mark.slow
def test_hours_in_halves_and_zones_in_another_order_cost_the_same() -> None:
    profile = copy.deepcopy(PROFILE)
    profile["offers"]["big-b"]["commit"] = {"term_s": 7200, "discount": 0.3}
    rates, limits = [90.0, 40.0], {"survive": {"zones": 1, "serve": 0.8}}
    slo = wish(app(rates), app([30.0, 70.0], small=0.9), periods=2, starts=False, limits=limits)
    halves = copy.deepcopy(slo)
    halves["horizon"] |= {"periods": 4, "period_s": 1800}
    for one in halves["apps"].values():
        one["rate_qps"] = {"series": [rate for rate in one["rate_qps"]["series"] for _ in range(2)]}
    turned = {**profile, "offers": dict(reversed(profile["offers"].items()))}
    assert cost(solved(halves, profile)) == pytest.approx(cost(solved(slo, profile)))
    assert cost(solved(slo, turned)) == pytest.approx(cost(solved(slo, profile)))


@pytest.mark.slow
def test_applications_and_hours_in_another_order_cost_the_same() -> None:
    apps = [app([90.0, 40.0, 120.0]), app([30.0, 80.0, 10.0], small=0.9), app([10.0, 10.0, 10.0], small=0.2)]
    slo = wish(*apps, periods=3, limits={"survive": {"zones": 1, "serve": 0.8}}, starts=False)
    turned, backwards = copy.deepcopy(slo), copy.deepcopy(slo)
    turned["apps"] = dict(reversed(slo["apps"].items()))
    for one in backwards["apps"].values():
        one["rate_qps"]["series"].reverse()
    assert cost(solved(slo)) == pytest.approx(cost(solved(turned))) == pytest.approx(cost(solved(backwards)))


@pytest.mark.slow
def test_prices_of_groups_of_periods_bound_every_period(monkeypatch: pytest.MonkeyPatch) -> None:
    profile = copy.deepcopy(PROFILE)
    for name in ("a", "b"):
        profile["offers"][f"small-{name}"]["commit"] = {"term_s": 3600, "discount": 0.45}
    slo = wish(app([90.0, 40.0, 85.0, 60.0]), periods=4, starts=False, limits={"survive": {"zones": 1, "serve": 0.5}})
    least = solved(slo, profile, sizing="fluid")
    monkeypatch.setattr("hetplan.problems.fleet.formulations.FEW_AT_ONCE", 0)
    monkeypatch.setattr("hetplan.problems.fleet.search.PAIRS", 1)
    monkeypatch.setattr("hetplan.problems.fleet.formulations.REFINED", 0)
    monkeypatch.setattr("hetplan.problems.fleet.search.LEAST_GROUPS", 2)
    monkeypatch.setattr("hetplan.problems.fleet.rounding.FEW_PAIRS", 0)
    seen = list[Event]()
    options = {"savings": False, "gap": 0.0, "sizing": "fluid"}
    rough = hp.solve(profile, slo, options=options, on_event=seen.append, formulation="fleet")
    assert cost(rough) >= cost(least) - 1e-9
    (lifted,) = [event.bound for event in seen if event.detail == "all periods"]
    last = [event.bound for event in seen if event.what == "fleet"][-1]
    best = [event.best for event in seen if event.what == "fleet" and event.best is not None]
    assert best, "the cost of a first plan is known"
    bounds = [event.bound for event in seen if event.what == "fleet" and event.bound is not None]
    assert max(bounds) <= min(best) * 1.001
    assert lifted is not None
    assert last is not None
    assert 0.8 * cost(least) < lifted <= last <= cost(least) + 1e-9


@pytest.mark.parametrize(("limits", "ahead"), [({}, True), ({"reserved": {"max": 0}}, False)])
def test_a_first_plan_pays_ahead_for_what_runs_all_the_time_where_it_may(
    limits: Json, ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is over where the search for machines begins: nothing but the first plan is there."""
    monkeypatch.setattr("hetplan.problems.fleet.formulations.FEW_AT_ONCE", 0)
    profile, now = copy.deepcopy(PROFILE), [0.0]
    for name in ("a", "b"):
        profile["offers"][f"big-{name}"]["commit"] = {"term_s": 86400, "discount": 0.5}
        profile["offers"][f"small-{name}"]["commit"] = {"term_s": 86400, "discount": 0.5}
    slo = wish(app([90.0, 40.0]), periods=2, repeats=24, starts=False, limits=limits)

    def jump(event: Event) -> None:
        now[0] += 1000.0 if event.detail == "machines of each application" else 0.0

    limited = Limits(seconds=50.0, clock=lambda: now[0])
    first = plan_for(
        hp.load(profile, slo), options={"sizing": "fluid"}, limits=limited, on_event=jump, formulation="fleet"
    )
    assert (first.status, first.violations) == ("not-simulated", ())
    paid = sum(one.count for one in first.require().commitments or ())
    assert paid == (sum(machines_of(first.require(), "p0").values()) if ahead else 0)


@pytest.mark.slow
def test_commitments_pay_where_machines_run_all_day() -> None:
    profile = copy.deepcopy(PROFILE)
    profile["offers"]["big-a"]["commit"] = {"term_s": 86400, "discount": 0.5, "upfront": "1.2"}
    slo = wish(app([90.0, 85.0]), periods=2, repeats=24, starts=False)
    outcome = solved(slo, profile)
    commitments = outcome.require().commitments
    assert commitments is not None
    (one,) = commitments
    assert (one.offer, one.upfront, one.price_per_hour) == ("big-a", 1_200_000_000, 500_000_000)
    assert cost(outcome) < cost(solved(slo))
    short = copy.deepcopy(slo)
    short["horizon"]["repeats"] = 2
    with pytest.raises(hp.InputError, match='"repeats": 12'):
        solved(short, profile)


@pytest.mark.longest
def test_what_cannot_be_had_names_period_failure_and_stock() -> None:
    outcome = solved(wish(app([90.0, 2000.0]), periods=2))
    assert outcome.plan is None
    assert outcome.why[0] == "p1: no machines on offer carry 2000 qps of app0"
    assert "big-a has 6" in outcome.why[1]
    slo = wish(app([90.0, 900.0]), periods=2, limits={"survive": {"zones": 1}})
    outcome = solved(slo)
    assert outcome.why[0] == "p1: no machines on offer carry 900 qps of app0 when zone a lost"
    repair = next(one for one in outcome.repairs if one.field == "slo.limits.survive.serve")
    slo["limits"]["survive"]["serve"] = repair.to
    assert solved(slo).plan is not None


@pytest.mark.slow
def test_applications_that_want_the_same_stock_are_explained_together() -> None:
    files = wish(app([40.0, 700.0]), app([40.0, 800.0]), periods=2)
    played = solved(files)
    assert played.exit_code == 3, "what carries both has no room for their queues"
    assert "not met: app0 has fewer machines" in played.why[0]
    outcome = solved(files, sizing="fluid")
    assert outcome.plan is None
    assert outcome.why[0].startswith("p1 (app0 700 qps, app1 800 qps) has no plan")
    stocks = [f"profile.machines.big.stock of zone {zone}" for zone in "ab"]
    assert outcome.why[1] == f"{' and '.join(stocks)} cannot hold together"
    assert any(repair.field == "profile.machines.big.stock" for repair in outcome.repairs)


@pytest.mark.slow
def test_limits_that_contradict_one_another_are_the_fewest_and_one_changed_is_enough() -> None:
    """A floor of spot machines, their share, and few on demand: the quota beside them is not to blame."""
    profile = copy.deepcopy(PROFILE)
    profile["offers"]["big-spot"] = {
        **profile["offers"]["big-b"],
        "price_per_hour": "0.4",
        "interruptions_per_hour": 0.1,
    }
    profile["zones"] = {"a": {"quota": {"machines": 9}}, "b": {}}
    limits: Json = {"spot": {"min": 4, "max_share": 0.5}, "on_demand": {"max": 2}}
    outcome = solved(wish(app([20.0, 30.0]), periods=2, limits=limits), profile)
    assert outcome.plan is None
    first, named = outcome.why
    assert first == "the limits on machines contradict one another"
    for field in ("spot.min (4)", "spot.max_share (0.5)", "on_demand.max"):
        assert f"slo.limits.{field}" in named
    assert "quota" not in named
    texts = {repair.field: repair for repair in outcome.repairs}
    assert texts["slo.limits.spot.min"].text == ("lower slo.limits.spot.min from 4 to 2 machines (fails at 3)")
    assert texts["slo.limits.spot.max_share"].to == pytest.approx(0.667)
    for field, to in (("min", 2), ("max_share", 0.667)):
        less = copy.deepcopy(limits)
        less["spot"][field] = to
        assert solved(wish(app([20.0, 30.0]), periods=2, limits=less), profile).plan is not None


@pytest.mark.slow
def test_the_verifier_sees_what_was_changed_by_hand() -> None:
    slo = wish(app([90.0, 40.0]), periods=2, limits={"survive": {"zones": 1}})
    plan = solved(slo).require()
    assert plan.bill is not None
    assert plan.parts is not None
    name, part = next(iter(plan.parts.items()))
    fewer = part.model_copy(
        update={"workers": tuple(one.model_copy(update={"count": one.count + 1}) for one in part.workers)}
    )
    spoilt = {
        "bill": plan.model_copy(update={"bill": plan.bill.model_copy(update={"total": plan.bill.total / 2})}),
        "machines": plan.model_copy(update={"parts": {**plan.parts, name: fewer}}),
        "survive": plan.model_copy(
            update={"periods": tuple(one.model_copy(update={"failures": None}) for one in plan.periods)}
        ),
        "promise": plan.model_copy(update={"promises": plan.promises[1:]}),
        "proof": plan.model_copy(update={"extensions": {}}),
    }
    for code, changed in spoilt.items():
        report = hp.verify(with_digest(changed), PROFILE, slo)
        assert code in {violation.code for violation in report.violations}
    honest = hp.verify(plan, PROFILE, slo)
    assert honest.violations == ()
    assert [(one.at, one.word) for one in honest.claims] == [("claims[0]", Word.PROVED)]


@pytest.mark.slow
def test_without_moves_machines_stay_and_limits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    free = solved(wish(app([90.0, 40.0]), periods=2))
    still = solved(wish(app([90.0, 40.0]), periods=2, limits={"changes": 0}))
    assert cost(still) > cost(free)
    with monkeypatch.context() as small:
        small.setattr("hetplan.problems.fleet.formulations.FEW_AT_ONCE", 0)
        assert cost(solved(wish(app([90.0, 40.0]), periods=2, limits={"changes": 0}))) == pytest.approx(cost(still))
        assert cost(solved(wish(app([90.0, 40.0]), periods=2, limits={"changes": 5}))) == pytest.approx(cost(free))
    assert machines_of(still.require(), "p0") == machines_of(still.require(), "p1")
    profile = copy.deepcopy(PROFILE)
    profile["zones"] = {"a": {"quota": {"machines": 1}}, "b": {}}
    quota = solved(wish(app([90.0, 40.0]), periods=2), profile)
    assert cost(quota) == pytest.approx(cost(free))
    for name in ("p0", "p1"):
        assert sum(n for offer, n in machines_of(quota.require(), name).items() if offer.endswith("-a")) <= 1


@pytest.mark.slow
def test_a_share_of_spot_is_kept_and_its_loss_survived() -> None:
    profile = copy.deepcopy(PROFILE)
    spot = {"price_per_hour": "0.1", "interruptions_per_hour": 0.1}
    profile["offers"]["big-a-spot"] = {"hardware": "big", "zone": "a", **spot}
    rates = [200.0, 90.0]
    all_spot = solved(wish(app(rates), periods=2), profile)
    assert set(machines_of(all_spot.require(), "p0")) == {"big-a-spot"}
    half = solved(wish(app(rates), periods=2, limits={"spot": {"max_share": 0.5}}), profile)
    paid = {"big-a-spot": 0.0, "others": 0.0}  # those that nobody uses count too
    bill = half.require().bill
    assert bill is not None
    for line in (one for one in bill.lines if one.period == "p0"):
        paid["big-a-spot" if line.offer == "big-a-spot" else "others"] += line.rented + line.committed
    assert 0 < paid["big-a-spot"] <= paid["others"]
    kept = solved(wish(app(rates), periods=2, limits={"survive": {"spot": "all", "serve": 0.5}}), profile)
    assert cost(all_spot) < cost(kept)
    assert (kept.require().periods[0].failures or {}).keys() == {"all spot gone"}


REFUSALS: dict[str, object] = {
    "change.slack": 1.9,
    "change.slack_qps": 5.0,
    "change.load_weight_per_s": 5.0,
    "apps.app0.weight": 2.0,
    "apps.app0.lifetime_s": 60.0,
    "apps.app0.deadline_s": 5.0,
    "apps.app0.rate_qps": {"history": [5.0, 6.0]},
    "apps.app0.streams": 3,
    "objective": ["max rate"],
}


@pytest.mark.parametrize("field", REFUSALS)
def test_what_a_fleet_does_not_keep_is_refused_by_name(field: str) -> None:
    slo = wish(app(90.0), limits={"survive": {"zones": 1}})
    held: Any = slo
    *steps, last = field.split(".")
    for step in steps:
        held = held.setdefault(step, {})
    held[last] = REFUSALS[field]
    with pytest.raises(hp.InputError) as caught:
        solved(slo)
    assert any(last in fault.path or "app0" in fault.path for fault in caught.value.faults)
    assert all(fault.remedy for fault in caught.value.faults)


@pytest.mark.longest
def test_the_shipped_fleet_keeps_its_promises_in_every_hour_and_after_every_failure() -> None:
    inputs = hp.load(EXAMPLE / "profile.json", EXAMPLE / "slo.json")
    files = EXAMPLE / "profile.json", EXAMPLE / "slo.json"
    how = HowPlayed(seeds=2, queries=5e5)
    plan = hp.solve(*files, options={"savings": False}).require()
    assert play_day(plan, inputs, how).ok
    assert "W-queueing" not in {one.code for one in plan.warnings}


@pytest.mark.parametrize(
    ("question", "path"), [("pool", "$.apps.app0.mix"), ("pipeline", "$.apps.app0"), ("llm", "$.models")]
)
def test_an_application_that_cannot_ask_the_question_it_names_is_refused_at_once(question: str, path: str) -> None:
    """It was called infeasible, after the search, where a part did not settle."""
    slo = wish(app(220.0), periods=2)
    slo["apps"]["app0"]["question"] = question
    if question == "pool":
        del slo["apps"]["app0"]["mix"]
    with pytest.raises(hp.InputError) as caught:
        solved(slo)
    assert caught.value.faults[0].path.startswith(path), caught.value.faults


@pytest.mark.slow
def test_of_many_hours_each_gets_the_room_that_its_queues_ask_for() -> None:
    """Rounds are few then: a tenth more at a time left machines short in the busiest of 80 hours (`W-queueing`)."""
    rates = [40.0 + 1.5 * (hour % 24) for hour in range(80)]
    outcome = solved(wish(app(rates), periods=80), gap=0.02)
    assert outcome.violations == ()
    assert [one.code for one in outcome.require().warnings if one.code == "W-queueing"] == []


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["round 1", "all periods", "whole machines, pass 1"])
def test_work_that_is_interrupted_keeps_the_machines_that_it_knows(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetplan.problems.fleet.formulations.FEW_AT_ONCE", 0)
    monkeypatch.setattr("hetplan.problems.fleet.search.PAIRS", 1)
    slo = wish(app([90.0, 40.0, 85.0, 60.0, 55.0]), periods=5, limits={"survive": {"zones": 1, "serve": 0.5}})
    cancel, seen = threading.Event(), list[str]()

    def noted(event: Event) -> None:
        seen.append(event.detail)
        if event.detail == moment:
            cancel.set()

    outcome = hp.solve(PROFILE, slo, cancel=cancel, on_event=noted, formulation="fleet")
    assert moment in seen
    assert outcome.exit_code == 130
    assert hp.verify(outcome.require(), PROFILE, slo).ok
    # Nothing was asked about room to wait by then.
    assert cost(outcome) >= cost(solved(slo, sizing="fluid")) - 1e-9


ROOM_BY_PRICES = {
    "room is foreseen": ("with_forecast_headroom", lambda search, each: search.wish),
    "only whole machines are looked for anew": ("roomier", lambda *_: None),
}
"""How a large fleet finds room to wait at the prices that are known, and what stands for it where none are known."""


@pytest.mark.slow
@pytest.mark.parametrize("way", sorted(ROOM_BY_PRICES))
def test_room_to_wait_is_found_at_the_prices_that_are_known(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way by itself takes fewer programs than a search anew for each round of room, for about the same fleet."""
    for place in ("rounding", "formulations"):
        monkeypatch.setattr(f"hetplan.problems.fleet.{place}.FEW_PAIRS", 0)
    slo = wish(app([90.0, 220.0]), app([60.0, 110.0], small=0.9), periods=2)

    def without(*ways: str) -> tuple[int, float, float | None]:
        with monkeypatch.context() as now:
            for name in ways:
                function, stand_in = ROOM_BY_PRICES[name]
                now.setattr(f"hetplan.problems.fleet.formulations.{function}", stand_in)
            outcome = hp.solve(PROFILE, slo, options={"savings": False}, formulation="fleet")
        plan = outcome.require()
        assert not [one for one in plan.warnings if one.code == "W-queueing"]
        assert plan.claims[0].scope == "relaxation"
        return sum(solve.count for solve in plan.solves), cost(outcome), plan.claims[0].bound

    anew, dear, bound = without(*ROOM_BY_PRICES)
    programs, paid, bounded = without(*(ROOM_BY_PRICES.keys() - {way}))
    assert programs < anew
    assert paid <= 1.1 * dear
    assert bounded == pytest.approx(bound, rel=0.02)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("ortools"), reason="OR-tools is not installed")
def test_an_engine_that_proves_no_bound_finds_machines_and_calls_nothing_impossible() -> None:
    folder = Path(__file__).resolve().parents[3] / "benchmarks" / "library"

    def asked(name: str) -> hp.Outcome:
        how: dict[str, Any] = {"formulation": "fleet", "options": {"sizing": "fluid", "savings": False}}
        return hp.solve(folder / name / "profile.json", folder / name / "slo.json", solver="cp-sat", **how)

    found = asked("fleet-02")
    assert found.claims[0].value == pytest.approx(2.33)
    assert found.claims[0].bound is None or found.claims[0].bound <= 2.33 + 1e-6
    too_dear = asked("fleet-08")
    assert too_dear.status == "not-found"
    assert "did not prove" in too_dear.why[0]


@pytest.mark.slow
@pytest.mark.parametrize(("keep", "rates"), [(0.8, [60.0, 100.0]), (0.5, [100.0]), (1.0, [40.0])])
def test_a_plan_holds_up_to_what_is_left_after_every_failure(keep: float, rates: list[float]) -> None:
    """In each period: up to the least rate of which the machines of a failure carry the share that is kept."""
    asked = wish(app(rates), periods=len(rates), limits={"survive": {"zones": 1, "serve": keep}})
    plan = hp.solve(PROFILE, asked, options={"savings": False, "sizing": "fluid"}, formulation="fleet").require()
    assert plan.parts is not None
    for period, rate in zip(plan.periods, rates, strict=True):
        own = of_period(plan, period)
        left = [
            plan.parts[name].valid.rate_qps["app0"][1] for names in (period.failures or {}).values() for name in names
        ]
        assert len(left) == 2
        alone = max(one.value for one in own.promises if one.quantity == "rate_qps")
        carried = min(alone, *(most / keep for most in left if most is not None))
        assert own.valid.rate_qps["app0"] == (0.0, pytest.approx(carried))
        assert carried >= rate * (1 - 1e-9)
        assert carried < alone or keep == 0.5, "else the case would show nothing"
        step = Schedule(plan).at(period.start_s)
        assert not step.left_by({"app0": carried})
        assert step.left_by({"app0": carried * 1.01}), "watch leaves the schedule"
