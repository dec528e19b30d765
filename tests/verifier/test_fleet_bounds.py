"""What no fleet costs less than is worked out anew from the prices that a plan carries; what passes it is refused."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from build import app, files, machine, model, pipeline
from face import solve, verify

import hetplan as hp
from benchmarks.forged_plans import forgeries, is_counted
from hetplan.api.solve import verified
from hetplan.planner.bound_verdicts import Word
from hetplan.problems.fleet.draft import PRICES
from hetplan.profiles.plan_file import plan_dict
from hetplan.profiles.read_plan import read_plan
from hetplan.verifier.report import Report

Json = dict[str, Any]

PROFILE: Json = {
    "format": "hetplan/profile/1.0",
    "hardware": {
        "big": {"kind": "gpu", "provides": {"gpu": 1}},
        "small": {"kind": "cpu", "provides": {"cpu_cores": 4}},
    },
    "offers": {
        f"{kind}-{zone}": {"hardware": kind, "zone": zone, "price_per_hour": price, "stock": 6}
        | ({"commit": {"term_s": 7200, "discount": 0.4}} if kind == "big" else {})
        for kind, price in (("big", "1.0"), ("small", "0.3"))
        for zone in "ab"
    },
    "tasks": {"rank": {}},
    "metrics": {"top1": {"better": "higher", "range": [0, 1], "kind": "bernoulli"}},
    "variants": {
        "m": {"task": "rank", "runs": [{"hardware": "big", "latency": "t-big"},
                                       {"hardware": "small", "latency": "t-small"}]},
        "net": {
            "task": "rank",
            "runs": [
                {"hardware": "big", "latency": "t-big", "at": {"batch": 8}, "saturation_qps": 300.0,
                 "needs": {"gpu": 1}},
                {"hardware": "small", "latency": "t-small", "at": {"batch": 1}, "saturation_qps": 80.0,
                 "needs": {"cpu_cores": 4}},
            ],
        },
    },
    "tables": {
        "t-big": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [5, 15]},
        "t-small": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [12, 70]},
    },
}  # fmt: skip


def slo(**limits: Any) -> Json:
    mix = {"axes": ["batch"], "bins": [[1], [8]], "share": [0.5, 0.5]}
    late = {"p99_ms": 60}
    return {
        "format": "hetplan/slo/1.0",
        "limits": limits,
        "horizon": {"period_s": 3600, "periods": 2},
        "apps": {
            "rank": {"question": "pool", "model": "m", "latency": late,
                     "rate_qps": {"series": [150.0, 330.0]}, "mix": mix},
            "photos": {"question": "variants", "model": "net", "latency": late,
                       "rate_qps": {"series": [200.0, 500.0]}},
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def sound() -> tuple[Json, Json]:
    wish = slo(survive={"zones": 1, "serve": 0.9})
    outcome = solved(wish, require_proof=True)
    assert outcome.exit_code == 0, outcome.reason
    return plan_dict(outcome.require()), wish


def solved(wish: Json, **more: Any) -> hp.Outcome:
    """By prices, as large fleets are planned."""
    with pytest.MonkeyPatch.context() as large:
        large.setattr("hetplan.problems.fleet.formulations.FEW_AT_ONCE", 0)
        return hp.solve(PROFILE, wish, options={"savings": False, "sizing": "formula"}, **more, formulation="fleet")


def words(plan: Json, wish: Json) -> list[Word]:
    return [one.word for one in judged(plan, wish).claims]


def judged(plan: Json, wish: Json) -> Report:
    return hp.verify(read_plan(plan, trust_digest=True), PROFILE, wish)


@pytest.mark.slow
def test_the_bound_of_a_fleet_is_certified_and_proved_again(sound: tuple[Json, Json]) -> None:
    assert [claim["vouched"] for claim in sound[0]["claims"]] == ["certified"]
    report = judged(*sound)
    assert report.ok, report.violations
    assert [one.word for one in report.claims] == [Word.PROVED]


@pytest.mark.slow
def test_limits_are_priced_too() -> None:
    wish = slo(offers={"big-a": {"max": 1}}, reserved={"max": 1})
    plan = plan_dict(solved(wish).require())
    assert any(one["limits"] for one in plan["extensions"][PRICES])
    assert words(plan, wish) == [Word.PROVED]


def dearer(plan: Json, by: float) -> None:
    """A bound that is higher than its prices show, though no higher than the value."""
    (claim,) = plan["claims"]
    claim["bound"] = min(claim["value"], claim["bound"] * (1.0 + by))


FORGED: dict[str, Callable[[Json], object]] = {
    "higher by a hundred-thousandth": lambda p: dearer(p, 1e-5),
    "no prices": lambda p: p["extensions"].pop(PRICES),
    "no prices of a period": lambda p: p["extensions"][PRICES].pop(),
    "prices of a period twice": lambda p: p["extensions"][PRICES].append(p["extensions"][PRICES][0]),
    "prices twice as high": lambda p: priced(p, 2.0),
    "prices below none": lambda p: priced(p, -1.0),
    "a price that is no number": lambda p: priced(p, float("nan")),
    "of another sense": lambda p: p["claims"][0].update(sense="max"),
    "with less used of what pools carry": lambda p: p["method"]["options"].update(parts={"rank": {"derate": 0.3}}),
    "with options that no question has": lambda p: p["method"]["options"].update(parts={"rank": {"derate": -1}}),
    "a limit priced that nobody states": lambda p: p["extensions"][PRICES][0]["limits"].update({"budget[hour]": -0.5}),
    "with more room than is planned": lambda p: (p["method"]["options"].update(headroom=0.5), dearer(p, 1e-3)),
}


def priced(plan: Json, by: float) -> None:
    for one in plan["extensions"][PRICES]:
        one["machines"] = {name: price * by for name, price in one["machines"].items()}


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", FORGED)
def test_forged_bounds_are_refused_as_certified_and_else_their_writers_word(
    name: str, sound: tuple[Json, Json]
) -> None:
    plan, wish = copy.deepcopy(sound[0]), sound[1]
    assert plan["claims"][0]["gap"] > 1e-4, "else no bound could be forged"
    FORGED[name](plan)
    report = judged(plan, wish)
    assert [one.word for one in report.claims] == [Word.OPEN]
    assert any((one.code, one.at) == ("proof", "claims[0]") for one in report.violations)
    plan["claims"][0]["vouched"] = "claimed"
    report = judged(plan, wish)
    assert [one.word for one in report.claims] == [Word.OPEN]
    assert not any(one.code == "proof" for one in report.violations)


def first(plan: Json, question: str) -> Json:
    return next(part for part in plan["parts"].values() if part["question"] == question)


def running(plan: Json) -> Json:
    """The pool that runs in the second period while nothing has failed."""
    return next(part for name in plan["periods"][1]["parts"] if (part := plan["parts"][name])["question"] == "pool")


def as_if_nothing_failed(plan: Json) -> None:
    """What this part promises by itself is more than it carries after each failure."""
    part = running(plan)
    own = next(one["value"] for one in part["promises"] if one["quantity"] == "rate_qps")
    assert own > part["valid"]["rate_qps"]["rank"][1] * 1.01
    part["valid"]["rate_qps"]["rank"][1] = own


def started(plan: Json) -> Json:
    return next(action for period in plan["periods"] for action in period.get("actions") or ())


SAID: dict[str, tuple[Callable[[Json], object], str]] = {
    "a line of the bill for starting": (lambda p: p["bill"]["lines"][0].update(starts_per_hour=0.05), "bill"),
    "another currency": (lambda p: p["bill"].update(currency="JPY"), "bill"),
    "nothing idle": (lambda p: p["bill"].update(idle_per_hour=9.0), "bill"),
    "an action that neither starts nor stops": (lambda p: started(p).update(do="load"), "actions"),
    "a rate promised twice": (lambda p: p["promises"].insert(0, {**p["promises"][0], "value": 9e9}), "promise-twice"),
    "a percentile of nobody": (
        lambda p: p["promises"].append(
            {"app": "rank", "quantity": "response_ms", "percentile": 99, "relation": "<=", "value": 1.0,
             "model": "simulation/1"}), "promise-percentile"),
    "rates as simulated": (lambda p: p["promises"][0].update(model="simulation/1"), "promise-model"),
    "valid for any rate": (lambda p: p["valid"]["rate_qps"].update(rank=[0, 1e9]), "valid"),
    "another gap": (lambda p: p["claims"][0].update(gap=0.0), "claim"),
    "the best there is": (lambda p: p.update(status="optimal"), "status"),
    "a part that is certified": (lambda p: first(p, "pool").update(claims=p["claims"]), "claim"),
    "batches longer than measured": (
        lambda p: first(p, "variants")["workers"][0]["loads"][0]["serve"].update(max_batch=4), "variants-serve"),
    "a part valid for any rate": (lambda p: first(p, "variants")["valid"]["rate_qps"].update(photos=[0, 1e9]), "valid"),
    "a part valid as if nothing failed": (lambda p: as_if_nothing_failed(p), "valid"),
    "a load that runs what nobody knows": (
        lambda p: first(p, "pool")["workers"][0]["loads"][0].update(variant="mx"), "unknown-reference"),
    "a load that runs nothing": (lambda p: first(p, "pool")["workers"][0]["loads"][0].pop("variant"), "load-empty"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_what_a_fleet_says_otherwise_is_noticed(name: str, sound: tuple[Json, Json]) -> None:
    plan, wish = copy.deepcopy(sound[0]), sound[1]
    assert plan["claims"][0]["gap"] > 1e-4
    forge, code = SAID[name]
    forge(plan)
    assert code in {one.code for one in judged(plan, wish).violations}


@pytest.mark.slow
def test_machines_start_as_long_ahead_as_they_take(sound: tuple[Json, Json]) -> None:
    slow = copy.deepcopy(PROFILE)
    for hardware in slow["hardware"].values():
        hardware["startup_s"] = 60.0
    plan = read_plan(sound[0], trust_digest=True)
    found = {one.text for one in hp.verify(plan, slow, sound[1]).violations if one.code == "actions"}
    assert found
    assert all("0 s ahead, and it takes 60 s" in text for text in found)


@pytest.mark.slow
def test_of_forged_figures_of_a_fleet_98_in_100_are_noticed(sound: tuple[Json, Json]) -> None:
    honest, inputs = read_plan(sound[0], trust_digest=True), hp.load(PROFILE, sound[1])
    tried, passed = 0, []
    for forged in forgeries(sound[0], chance=random.Random(0), every=4):
        if not is_counted(forged):
            continue
        try:
            plan = read_plan(forged.document, trust_digest=True)
        except hp.InputError:
            tried += 1
            continue
        if plan != honest:
            tried += 1
            passed += [] if verified(plan, inputs).violations else [forged.place]
    assert tried > 100
    assert len(passed) <= 0.02 * tried, passed


@pytest.mark.slow
@pytest.mark.parametrize("spoilt", ["no prices", "prices twice as high"])
def test_a_bound_without_its_prices_is_proved_by_others(spoilt: str, sound: tuple[Json, Json]) -> None:
    plan, wish = copy.deepcopy(sound[0]), sound[1]
    FORGED[spoilt](plan)
    plan["claims"][0]["vouched"] = "claimed"
    del plan["summary"]  # which calls it certified
    read = read_plan(plan, trust_digest=True)
    assert [one.word for one in hp.verify(read, PROFILE, wish).claims] == [Word.OPEN]
    assert [one.word for one in hp.verify(read, PROFILE, wish, prove=True).claims] == [Word.PROVED]
    dearer(plan, 1e-3)
    read = read_plan(plan, trust_digest=True)
    assert [one.word for one in hp.verify(read, PROFILE, wish, prove=True).claims] == [Word.OPEN]


@pytest.mark.slow
@pytest.mark.parametrize(("more", "certified"), [(0.0, True), (3e-4, True), (0.004, False)])
def test_a_bound_a_hair_too_high_gives_way_to_what_is_proved(
    more: float, certified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is far too high stays what it was: nobody's proof."""
    from hetplan.problems.fleet import question

    monkeypatch.setattr("hetplan.problems.fleet.formulations.FEW_AT_ONCE", 0)
    options, wish = {"sizing": "fluid", "savings": False}, slo(survive={"zones": 1, "serve": 0.9})
    (claim,) = hp.solve(PROFILE, wish, options=options, formulation="fleet").require().claims
    assert claim.bound is not None
    assert claim.value > claim.bound * 1.005, "else it could be no higher"
    own = question.FleetQuestion.decide

    def boasting(self: Any, ask: Any) -> Any:
        draft = own(self, ask)
        (said,) = draft.reported
        return replace(draft, reported=(replace(said, bound=said.bound * (1.0 + more)),))

    monkeypatch.setattr(question.FleetQuestion, "decide", boasting)
    (said,) = hp.solve(PROFILE, wish, options=options, formulation="fleet").require().claims
    assert said.vouched == ("certified" if certified else "claimed")
    assert said.bound == pytest.approx(claim.bound * (1.0 if certified else 1.0 + more), rel=1e-6)


@pytest.mark.parametrize("apps", [1, 2])
def test_a_fleet_whose_applications_all_count_as_free_says_that_nothing_bounds_it(apps: int) -> None:
    """Programs of no application at all were asked, and the reader was told of an array of size zero."""
    machines = {"m0": machine(0.5, startup_s=60), "m1": machine(1.0, startup_s=60)}
    models = {
        stage: model({"m0": {1: 6, 8: 30}, "m1": {1: 3, 8: 12}}, quality=0.7, task=stage)
        for stage in ("detect", "label")
    }
    street = pipeline([("detect", "label", 1.5)], ["detect", "label"])
    names = [f"cameras-{number}" for number in range(apps)]
    wanted = app("street", rate=[30.0, 60.0], limits={99: 200.0}, by="pipeline")
    fleet = files(
        machines=machines, models=models, apps=dict.fromkeys(names, wanted), pipelines={"street": street}, periods=2,
        problem="fleet",
    )  # fmt: skip
    answer = solve(fleet, "fluid")
    assert answer.plan is not None
    judged = verify(answer.plan, fleet, prove=True, simulate=False)
    assert judged.is_ok
    (why,) = judged.why_open
    assert "no application bounds the fleet" in why
    assert all(name in why for name in names)
