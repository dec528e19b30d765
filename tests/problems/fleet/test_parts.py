"""The contract of parts, kept by each question that may be one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan import registry
from hetplan.api.solve import plan_for
from hetplan.planner.fleet_part import Cone, Settled, Table
from hetplan.planner.solver_calls import Asking
from hetplan.problems.faults import Faults
from hetplan.problems.fleet.formulations import ESTIMATED, parts_of, table_of
from hetplan.problems.fleet.request import FleetOptions, read_fleet
from hetplan.problems.fleet.sizing import _has_room
from hetplan.profiles.load import load_inputs
from hetplan.testing.part_checks import checks, fewest_machines
from tests.build import shipped

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
Json = dict[str, Any]


def _files(question: str) -> tuple[Json, Json, str, float]:
    profile = shipped(EXAMPLES / "fleet" / "profile.json")
    slo = shipped(EXAMPLES / "fleet" / "slo.json")
    slo["limits"], slo["horizon"] = {}, {}
    for offer in profile["offers"].values():
        offer.pop("commit", None)
    names = {"pool": "ranking", "variants": "photos", "llm": "assistant"}
    if question in names:
        app = slo["apps"][names[question]]
        rate = {"pool": 250.0, "variants": 600.0, "llm": 10.0}[question]
        app["rate_qps"] = rate
        slo["apps"] = {names[question]: app}
        return profile, slo, names[question], rate
    profile = shipped(EXAMPLES / question / "profile.json")
    own = shipped(EXAMPLES / question / "slo.json")
    (name,) = own["apps"]
    app, rate = own["apps"][name], 150.0
    app |= {"question": question, "rate_qps": rate}
    if question == "policy":
        app |= {"quality": {"min": 0.6}}
    else:
        profile["offers"] = {h: {"hardware": h, "price_per_hour": "1"} for h in ("t4", "l4")}
    slo["apps"] = {name: app}
    return profile, slo, name, rate


@pytest.mark.parametrize(
    ("question", "kind", "options"),
    [
        ("pool", Cone, {}),
        ("llm", Cone, {}),
        ("variants", Cone, {}),
        pytest.param("pipeline", Table, {}, marks=pytest.mark.longest),
        pytest.param("policy", Table, {"sizing": "fluid", "queue_max": 6}, marks=pytest.mark.slow),
    ],
)
def test_each_question_keeps_the_contract_of_parts(question: str, kind: type, options: Json) -> None:
    profile, slo, name, rate = _files(question)
    inputs = load_inputs(profile, slo)
    wish = read_fleet(inputs, FleetOptions(parts={name: options}), Faults.of(inputs))
    part = parts_of(wish, registry.tools_of("fleet"))[name]
    assert isinstance(part, kind)
    ask = Asking(registry.Engines())
    machines = fewest_machines(part, rate, ask)
    first = {wish.offers[int(wish.on(h)[0])].name: n for h, n in zip(part.hardware, machines, strict=True)}
    for _, check in checks(part, rate=rate, ask=ask, offers=first):
        check()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "rate"),
    [
        ("pool", 250.0),
        ("pool", 700.0),
        ("llm", 10.0),
        pytest.param("llm", 31.0, marks=pytest.mark.slow),
        pytest.param("variants", 600.0, marks=pytest.mark.slow),
        pytest.param("variants", 1700.0, marks=pytest.mark.slow),
        pytest.param("pipeline", 150.0, marks=pytest.mark.longest),
        pytest.param("policy", 150.0, marks=pytest.mark.slow),
    ],
)
def test_one_application_in_one_period_costs_what_its_own_question_says(question: str, rate: float) -> None:
    profile, slo, name, _ = _files(question)
    profile.pop("zones", None)
    one_of: dict[tuple[str, bool], Json] = {}  # a machine type in no zone has one price, and one of spot
    for name_of, offer in list(profile["offers"].items()):
        offer.pop("zone", None)
        offer.setdefault("stock", 12)
        first = one_of.setdefault((offer["hardware"], "interruptions_per_hour" in offer), offer)
        if first is not offer:
            assert first["price_per_hour"] == offer["price_per_hour"]
            first["stock"] += profile["offers"].pop(name_of)["stock"]
    slo["apps"][name]["rate_qps"] = rate
    own = {"sizing": "fluid", "queue_max": 6} if question == "policy" else {}
    asked: Json = {"savings": False, "gap": 0.0, "parts": {name: own}}
    fleet = hp.solve(profile, slo, options=asked, formulation="fleet")
    del slo["horizon"], slo["apps"][name]["question"]
    slo["objective"] = ["min machines" if question == "policy" else "min cost"]
    played = question != "policy"
    options, least = {**({} if played else ESTIMATED[question]), **own}, float("inf")
    prices = {h: min(float(o["price_per_hour"]) for o in profile["offers"].values() if o["hardware"] == h)
              for h in {o["hardware"] for o in profile["offers"].values()}}  # fmt: skip
    for hardware in prices if question == "policy" else [""]:  # which plans for one hardware that is named
        slo["limits"] = {"instances": {hardware: [1, 12]}} if hardware else {}
        plan = hp.solve(profile, slo, options=options, formulation=question).plan
        if plan is not None:
            least = min(least, plan.claims[0].value * prices[hardware] if hardware else plan.claims[0].value)
    cost = fleet.require().claims[0].value
    # Pools are looked for by a formula here, and by all that simulation knows when they are asked alone.
    assert cost <= 1.05 * least if question == "pool" else cost == pytest.approx(least)
    # The bound of what is played leaves out waiting.
    bound = fleet.claims[0].bound
    assert 0 < bound <= least if played else bound == pytest.approx(least, rel=1e-3)


MORE = "t4-east"
FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "more machines are worse": ("carries", lambda part, m, rate: part.carries(m, rate) and sum(m) < 4),
    "a lower rate is harder": ("carries", lambda part, m, rate: part.carries(m, rate) and rate > 200),
    "fewer are of use": ("of_use", lambda part, rate: [0.0] * len(part.of_use(rate))),
    "rows that cut machines off": (
        "rows",
        lambda part, m, columns, rate, about: part.rows(m, columns, 3 * rate, about),
    ),
    "nothing carries something": ("carries", lambda part, m, rate: not any(m) or part.carries(m, rate)),
    "it settles for another rate": ("settle", lambda part, offers, rate: part.settle(offers, rate / 2)),
    "it settles on other machines": ("settle", lambda part, offers, rate: part.settle({**offers, MORE: 2}, rate)),
    "it does not settle": ("settle", lambda part, offers, rate: Settled(None, "it does not")),
}


class Faulty:
    """A part of which one answer is wrong."""

    def __init__(self, part: Any, fault: tuple[str, Callable[..., Any]] | None) -> None:
        self.part, self.fault = part, fault
        self.app, self.question, self.hardware = part.app, part.question, part.hardware

    def __getattr__(self, name: str) -> Any:
        if self.fault is not None and name == self.fault[0]:
            return partial(self.fault[1], self.part)
        return getattr(self.part, name)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_a_part_that_breaks_its_contract_is_caught(fault: str | None) -> None:
    profile, slo, name, _ = _files("pool")
    inputs, rate = load_inputs(profile, slo), 300.0
    wish = read_fleet(inputs, FleetOptions(), Faults.of(inputs))
    part = parts_of(wish, registry.tools_of("fleet"))[name]
    ask = Asking(registry.Engines())
    machines = fewest_machines(part, rate, ask)
    offers = {wish.offers[int(wish.on(h)[0])].name: n for h, n in zip(part.hardware, machines, strict=True)}
    broken, failed = Faulty(part, FAULTS[fault] if fault else None), []
    for said, check in checks(broken, rate=rate, ask=ask, offers=offers):
        try:
            check()
        except AssertionError:
            failed.append(said)
    assert bool(failed) is (fault is not None), failed


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(6))
def test_a_pool_has_room_where_its_formula_finds_a_plan(seed: int) -> None:
    """`room` asks the formula of the machines of each hardware, without a plan."""
    profile, slo, name, _ = _files("pool")
    inputs, chance = load_inputs(profile, slo), random.Random(seed)
    wish = read_fleet(inputs, FleetOptions(), Faults.of(inputs))
    made = parts_of(wish, registry.tools_of("fleet"))[name]
    assert isinstance(made, Cone)
    part = replace(made, options={**made.options, "sizing": "formula"}, settled={})
    offers: dict[str, int] = {}
    for hardware in part.hardware:
        for _ in range(chance.randint(0, 3)):
            offer = wish.offers[int(chance.choice(list(wish.on(hardware))))].name
            offers[offer] = offers.get(offer, 0) + 1
    counts = [sum(n for o, n in offers.items() if inputs.profile.offers[o].hardware == h) for h in part.hardware]
    rates = [max(part.max_rate(counts), 1.0) * share for share in (1.1, 0.9, 0.7, 0.5, 0.3)]
    asked = [replace(part, settled={}).settle(offers, rate).part is not None for rate in rates]
    assert [_has_room(wish, part, offers, rate) for rate in rates] == asked


def test_what_machines_carry_is_no_matter_of_prices_and_stock_and_is_asked_with_one_offer_of_each() -> None:
    profile, slo, _, rate = _files("variants")
    for number, offer in enumerate(profile["offers"].values()):
        offer |= {"stock": 1, "price_per_hour": str(1 + number)}
    wish = read_fleet(load_inputs(profile, slo), FleetOptions(), Faults.of(load_inputs(profile, slo)))
    part = table_of(wish, wish.apps[0], registry.tools_of("fleet"))
    asked: list[dict[str, Any]] = []

    def solve(files: Any, **how: Any) -> Any:
        asked.append(dict(files.profile.offers))
        return plan_for(files, **how)

    seen = part.without_answers(solve=solve)
    assert seen.carries([40] * len(part.hardware), rate)
    assert {one.hardware for one in asked[0].values()} == set(part.hardware)
    assert len(asked[0]) == len(part.hardware)
    assert not seen.carries([1] * len(part.hardware), 1000 * rate)
