"""Pools and text share machines of a fleet: a machine of both is a worker of one id in a part of each."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping
from functools import cache, partial

import pytest
from cases.packing import fewest
from cases.shared_fleets import Files, Json, add_pools, cost, goes_on, solved, text

import hetplan as hp
from hetplan.api.plans_by_rate import Recipes
from hetplan.drawing.day import hours_of
from hetplan.planner.bound_verdicts import Word
from hetplan.planner.next_state import next_state
from hetplan.profiles.fields import NANO
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_periods import machines_of, of_period
from hetplan.simulator.day import HowPlayed, _Day, play_day
from hetplan.studies.strategies import Compared, compare_ways

CARRIES = 50.0 * 0.8
"""Queries a second that the fluid program asks of one instance of a pool."""
START_S = 60.0


def _files(
    pools: Mapping[str, list[float]],
    texts: Mapping[str, list[float]],
    cards: int | Mapping[str, float] = 1,
    zones: str = "a",
    *,
    node: int = 2,
    **limits: object,
) -> Files:
    """Pools and text with a model each, an instance of which takes so many cards of a node."""
    takes = cards if isinstance(cards, Mapping) else dict.fromkeys((*pools, *texts), cards)
    engine = {
        "pieces": [{"base_ms": 8.0, "token_ms": 0.05}], "kv_tokens": 100_000, "context_tokens": 8192,
        "most_tokens": 2048, "most_seqs": 64, "overlap": "assumed", "fitted": {"error": 0.02, "tokens": 200},
    }  # fmt: skip
    profile: Json = {
        "format": "hetplan/profile/1.0",
        "hardware": {"node": {"kind": "gpu", "provides": {"gpu": node}, "startup_s": START_S}},
        "offers": {f"node-{z}": {"hardware": "node", "zone": z, "price_per_hour": "1", "stock": 40} for z in zones},
        "tasks": {name: {} for name in texts},
        "variants": {
            f"of-{name}": {"task": name, "runs": [{"hardware": "node", "engine": f"e-{name}", "load_s": 5}]}
            for name in texts
        },
        "engines": {f"e-{name}": {**engine, "tensor": takes[name]} for name in texts},
    }
    lengths = {"axes": ["input_tokens", "output_tokens"], "bins": [[200, 50], [1000, 100]], "share": [0.5, 0.5]}
    slo: Json = {
        "format": "hetplan/slo/1.0",
        "limits": limits,
        "horizon": {"period_s": 3600, "periods": len(next(iter({**pools, **texts}.values()))), "repeats": 24},
        "apps": {
            name: {
                "question": "llm",
                "model": f"of-{name}",
                "latency": {"ttft_p95_ms": 1500, "tpot_p95_ms": 50},
                "rate_qps": {"series": series},
                "mix": lengths,
            }
            for name, series in texts.items()
        },
    }
    for name, series in pools.items():
        add_pools((profile, slo), (name,), [{"hardware": "node", "needs": {"gpu": takes[name]}}], series)
    return profile, slo


_solved = partial(solved, savings=False)
FACES, CHAT = {"faces": [30.0, 20.0]}, {"chat": [2.0, 1.0]}
NODE = "chat1-faces1-node-a"


@cache
def _text() -> str:
    return text(_solved(_files(FACES, CHAT)))


def _forged(change: Callable[[Json], None], plan: str) -> hp.Plan:
    data = json.loads(plan)
    change(data)
    return with_digest(hp.Plan.model_validate({**data, "digest": None}))


def _mixed(plan: hp.Plan) -> int:
    """How many machines have pools and text on them, over all periods."""
    question = {app: part.question for part in (plan.parts or {}).values() for app in part.rate_qps}
    workers = (worker for period in plan.periods for worker in of_period(plan, period).workers)
    return sum(one.count for one in workers if len({question[load.app or ""] for load in one.loads}) > 1)


@pytest.mark.slow
def test_a_card_of_a_pool_and_one_of_text_rent_one_node_of_two() -> None:
    files = _files(FACES, CHAT)
    assert cost(_solved(files, share_machines=False)) == pytest.approx(2.0)
    outcome = solved(files)
    plan = outcome.require()
    assert plan.bill is not None
    assert cost(outcome) == pytest.approx(1.0)
    assert plan.bill.apps == pytest.approx({"faces": 0.5, "chat": 0.5})
    last = plan.bill.levers[-1]
    assert (last.name, last.cost_per_hour, last.saves_per_hour) == ("shared", pytest.approx(1.0), pytest.approx(1.0))
    assert {(part.question, *part.rate_qps) for part in (plan.parts or {}).values()} == {
        ("llm", "chat"),
        ("pool", "faces"),
    }
    for part in (plan.parts or {}).values():
        (worker,) = part.workers
        assert (worker.id, worker.count, len(worker.loads)) == (NODE, 1, 1)
        (price,) = (one.value for one in part.promises if one.quantity == "cost_per_hour")
        assert price == pytest.approx(1.0), "a part says what the machines cost that it is on"
    shown = hp.verify(plan, *files)
    assert shown.ok
    assert [one.word for one in shown.claims] == [Word.PROVED]
    assert plan.claims[0].bound == pytest.approx(1.0, rel=1e-6)
    assert "shared by chat, faces alone" in (plan.claims[0].note or "")


@pytest.mark.slow
def test_the_same_files_give_the_same_bytes() -> None:
    assert text(_solved(_files(FACES, CHAT))) == _text()


def test_whoever_takes_a_period_apart_has_each_machine_once() -> None:
    plan = hp.Plan.model_validate(json.loads(_text()))
    assert machines_of(plan, "p1") == {"node-a": 1}
    (worker,) = of_period(plan, "p1").workers
    assert (worker.id, worker.count, worker.queue, worker.period) == (NODE, 1, "per-load", "p1")
    assert [(load.id, load.app) for load in worker.loads] == [(f"{NODE}.1", "chat"), (f"{NODE}.2", "faces")]


@cache
def _engines(rate: float) -> int:
    """The fewest engines for a rate: machines that hold one, for one application."""
    return round(cost(_solved(_files({}, {"alone": [rate]}, node=1))))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(10))
def test_nodes_are_as_few_as_hold_the_fewest_instances_of_all(seed: int) -> None:
    """By hand: the fewest instances of each application alone, and all ways to put them on nodes."""
    chance = random.Random(seed)
    cases: list[tuple[int, list[float]]] = [(2, [1, 2]), (4, [1, 2, 4]), (2, [0.5, 1, 2]), (8, [2, 4])]
    node, cards = chance.choice(cases)
    pools = {name: [chance.choice([5.0, 60.0, 100.0])] for name in "ab"[: chance.randint(1, 2)]}
    texts = {name: [chance.choice([2.0, 20.0, 50.0])] for name in "xy"[: chance.randint(1, 2)]}
    takes: dict[str, float] = {name: chance.choice(cards) for name in pools}
    takes |= {name: chance.choice([one for one in cards if one >= 1]) for name in texts}
    files = _files(pools, texts, takes, node=node)
    plan = _solved(files).require()
    counts = {name: math.ceil(rate / CARRIES - 1e-9) for name, (rate,) in pools.items()}
    counts |= {name: _engines(rate) for name, (rate,) in texts.items()}
    nodes = fewest([takes[name] for name, count in counts.items() for _ in range(count)], node)
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(nodes)
    assert hp.verify(plan, *files).ok
    assert plan.claims[0].bound is not None
    assert plan.claims[0].bound <= nodes + 1e-9
    for worker in of_period(plan, "p0").workers:
        assert sum(load.instances * takes[load.app or ""] for load in worker.loads) <= node + 1e-9


@pytest.mark.slow_cases(3)
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(24))
def test_sharing_is_never_dearer_and_always_verified_and_played(seed: int) -> None:
    chance = random.Random(700 + seed)
    periods, zones = chance.choice([1, 2]), chance.choice(["a", "ab"])
    pools = {
        name: [chance.choice([0.0, 5.0, 40.0, 90.0]) + 1.0 for _ in range(periods)]
        for name in "pq"[: chance.randint(1, 2)]
    }
    texts = {
        name: [chance.choice([0.0, 2.0, 20.0, 60.0]) + 1.0 for _ in range(periods)]
        for name in "tu"[: chance.randint(1, 2)]
    }
    node = chance.choice([2, 4, 8])
    cards: dict[str, float] = {name: chance.choice([0.5, 1, 1, 2]) for name in pools}
    cards |= {name: chance.choice([1, 2] if node < 8 else [1, 2, 4]) for name in texts}
    limits: Json = chance.choice([{}, *({"survive": {lost: 1, "serve": 0.7}} for lost in ("machines", "zones"))])
    limits = {} if zones == "a" and "zones" in limits.get("survive", {}) else limits
    files = _files(pools, texts, cards, zones, node=node, **limits)
    for offer in files[0]["offers"].values() if chance.random() < 0.3 else ():
        offer["commit"] = {"term_s": 86400, "discount": 0.4}
    outcome = _solved(files, sizing=chance.choice(["fluid", "simulation"]))
    plan = outcome.require()
    assert cost(outcome) <= cost(_solved(files, share_machines=False)) + 1e-9
    shown = hp.verify(plan, *files)
    assert shown.ok
    assert plan.claims[0].bound is not None
    assert plan.claims[0].bound <= cost(outcome) * (1.0 + 1e-9)
    if "machines" not in limits.get("survive", {}):
        assert [one.word for one in shown.claims] == [Word.PROVED]
    day = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=2e3))
    assert day.ok
    assert min(found.value for found in day.in_time.values()) > 0.9
    for failure in day.failures:
        assert min(found.value for found in failure.after.values()) > 0.9


def test_what_does_not_fit_exactly_beside_the_others_has_whole_machines() -> None:
    """Pools of one card share a node of eight; an engine of three cards leaves room that places do not count."""
    files = _files(
        {"faces": [30.0], "plates": [20.0]}, CHAT | {"chat": [2.0]}, {"faces": 1, "plates": 1, "chat": 3}, node=8
    )
    plan = _solved(files).require()
    assert plan.bill is not None
    assert plan.bill.cost_per_hour == pytest.approx(2.0)
    assert _mixed(plan) == 0
    assert hp.verify(plan, *files).ok
    assert {tuple(part.rate_qps) for part in (plan.parts or {}).values()} == {("faces", "plates"), ("chat",)}


@pytest.mark.slow
def test_an_hour_without_queries_of_one_question_is_planned_and_played() -> None:
    files = _files({"faces": [30.0, 0.0, 20.0]}, {"chat": [2.0, 1.0, 0.0]})
    outcome = _solved(files, sizing="simulation")
    plan = outcome.require()
    assert cost(outcome) == pytest.approx(1.0)
    assert hp.verify(plan, *files).ok
    day = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=1e3))
    assert day.ok
    assert min(found.value for found in day.in_time.values()) > 0.95


@pytest.mark.slow
def test_a_lost_node_takes_what_it_holds_of_both() -> None:
    """Any node may be full of one of the two, so there are three of both; apart there are two of each."""
    files = _files({"faces": [30.0]}, {"chat": [2.0]}, survive={"machines": 1, "serve": 1.0})
    plan = _solved(files).require()
    assert cost(_solved(files, share_machines=False)) == pytest.approx(4.0)
    assert machines_of(plan, "p0") == {"node-a": 3}
    assert _mixed(plan) == 3
    assert (plan.claims[0].scope, plan.claims[0].vouched) == ("restriction", "claimed")
    assert hp.verify(plan, *files).ok
    (failure,) = play_day(plan, load_inputs(*files), HowPlayed(seeds=1, queries=1e3)).failures
    assert min(found.value for found in failure.after.values()) > 0.9


def test_nothing_is_shared_beside_limits_on_moves() -> None:
    plan = _solved(_files(FACES, CHAT, changes=9)).require()
    assert _mixed(plan) == 0
    assert machines_of(plan, "p0") == {"node-a": 2}


# What runs already


@pytest.mark.slow
def test_machines_of_both_go_on() -> None:
    files = _files(FACES, CHAT)
    plan = hp.Plan.model_validate(json.loads(_text()))
    assert goes_on(files, plan)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("whose", "started"), [(("chat", "faces"), 0), (("chat",), 1), (("faces",), 1), ((), 1)])
def test_a_machine_of_both_starts_once_where_none_of_both_runs(whose: tuple[str, ...], started: int) -> None:
    files = _files({"faces": [30.0]}, {"chat": [2.0]})
    held = json.loads(next_state(of_period(_solved(files).require(), "p0")).model_dump_json())
    for worker in held["workers"]:
        worker["loads"] = [load for load in worker["loads"] if load["app"] in whose]
    held["workers"] = [worker for worker in held["workers"] if worker["loads"]]
    options = {"sizing": "fluid", "gap": 0.0, "savings": False}
    plan = hp.solve(*files, held, options=options, formulation="fleet").require()
    assert sum(one.count or 0 for one in plan.actions if one.do == "start") == started
    assert sum(one.count or 0 for one in plan.actions if one.do == "stop") == (started if whose else 0)
    assert hp.verify(plan, *files, held).ok
    assert len(_Day(plan, load_inputs(*files, state=held), HowPlayed(seeds=1), None, None)._missing()) == 2 * started
    day = play_day(plan, load_inputs(*files, state=held), HowPlayed(seeds=1, queries=1e3))
    assert day.ok


def test_a_machine_that_is_taken_back_takes_both() -> None:
    files = _files({"faces": [70.0]}, {"chat": [2.0]})
    plan = _solved(files).require()
    day = _Day(plan, load_inputs(*files), HowPlayed(seeds=1), None, None)
    names = tuple(plan.periods[0].parts or ())
    count = machines_of(plan, "p0")["node-a"]
    for lost in range(count + 1):
        (gone,) = day._gone_of_text(day._state(0, (("node-a", lost),)), names).values()
        of_pool = day._gone_of(day.system(names), (("node-a", lost),))  # type: ignore[arg-type]
        both = {one.id for one in of_period(plan, "p0").workers if len({load.app for load in one.loads}) > 1}
        group = {day.groups[name, one].id for name in names for one in both if (name, one) in day.groups}
        assert sum(gone[one] for one in both) == sum(one in group for one, _ in of_pool)


# Faults that are planted


def _part_of(plan: Json, question: str) -> Json:
    part: Json = next(one for one in plan["parts"].values() if one["question"] == question)
    return part


def _other_count(plan: Json) -> None:
    """Two machines by what one part says, and one by the other."""
    _part_of(plan, "pool")["workers"][0]["count"] = 2


def _fuller(plan: Json) -> None:
    """Each part alone fits on the node; both together do not."""
    worker = _part_of(plan, "pool")["workers"][0]
    worker["loads"].append({**worker["loads"][0], "id": f"{NODE}.3"})
    worker["queue"] = "per-load"
    part = _part_of(plan, "pool")
    part["routing"]["faces"][0]["to"] = {f"{NODE}.2": 0.5, f"{NODE}.3": 0.5}


def _same_load(plan: Json) -> None:
    """One load in two parts."""
    part = json.dumps(_part_of(plan, "pool")).replace(f"{NODE}.2", f"{NODE}.1")
    name = next(name for name, one in plan["parts"].items() if one["question"] == "pool")
    plan["parts"][name] = json.loads(part)


def _in_another_zone(plan: Json) -> None:
    """Rented twice by its offers, once by its name."""
    _part_of(plan, "llm")["workers"][0]["offer"] = "node-b"


def _billed_twice(plan: Json) -> None:
    """Each application pays the whole machine."""
    for line in plan["bill"]["lines"]:
        line.update(rented=1.0, cost_per_hour=1.0)
    for name in ("cost_per_hour", "cost_per_day", "cost_per_month", "total"):
        plan["bill"][name] *= 2
    plan["bill"]["apps"] = {"chat": 1.0, "faces": 1.0}
    plan["bill"]["offers"] = {"node-a": 2.0}
    for one in (*plan["promises"], *plan["claims"]):
        if one.get("quantity", one.get("about")) == "cost_per_hour":
            one["value"] *= 2


def _unpaid(plan: Json) -> None:
    """Nobody pays for it in the first hour."""
    plan["bill"]["lines"] = [line for line in plan["bill"]["lines"] if line["period"] != "p0"]


def _half_price(plan: Json) -> None:
    """A part says that it costs what it has of the machine."""
    for one in _part_of(plan, "pool")["promises"]:
        one["value"] *= 0.5 if one["quantity"] == "cost_per_hour" else 1.0


def _of_one_question(plan: Json) -> None:
    """The part of the pool says that it makes text."""
    _part_of(plan, "pool")["question"] = "llm"


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("forge", "code"),
    [
        (_other_count, "shared-worker"),
        (_fuller, "resource"),
        (_same_load, "shared-worker"),
        (_in_another_zone, "shared-worker"),
        (_billed_twice, "bill"),
        (_unpaid, "machines"),
        (_half_price, "promise"),
        (_of_one_question, "duplicate-id"),
    ],
)
def test_a_forged_plan_is_caught(forge: Callable[[Json], None], code: str) -> None:
    files = _files(FACES, CHAT)
    if forge is _in_another_zone:
        files = _files(FACES, CHAT, zones="ab")
        plan = text(_solved(files)).replace("faces1-node-b", "faces1-node-a").replace("node-b", "node-a")
    else:
        plan = _text()
    found = hp.verify(_forged(forge, plan), *files).violations
    assert code in {one.code for one in found}


@pytest.mark.slow
def test_a_bound_that_no_slices_show_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three cards of nodes of two: a node and a half is shown by prices, and no more."""
    monkeypatch.setattr("hetplan.problems.fleet.formulations.FEW_AT_ONCE", 0)
    files = _files({"faces": [70.0]}, {"chat": [2.0]})
    plan = _solved(files).require()
    assert (plan.claims[0].value, plan.claims[0].bound) == (pytest.approx(2.0), pytest.approx(1.5, rel=1e-6))

    def raised(data: Json) -> None:
        data["claims"][0].update(bound=1.8, gap=0.1, vouched="certified")

    shown = hp.verify(_forged(raised, text(_solved(files))), *files)
    assert not shown.ok
    assert [one.word for one in shown.claims] != [Word.PROVED]


@pytest.mark.slow
def test_machines_that_no_part_says_the_fit_of_are_refused() -> None:
    """Two cards and three do fit on a node of eight; bounds are of what fits by parts, and such a plan is not."""
    data = json.loads(text(_solved(_files(FACES, CHAT, 4, node=8))))
    profile, slo = _files(FACES, CHAT, {"faces": 2, "chat": 3}, node=8)
    own = _solved((profile, slo)).require()
    assert machines_of(own, "p0") == {"node-a": 2}
    data["inputs"] = json.loads(own.model_dump_json(by_alias=True, exclude_none=True))["inputs"]
    forged = with_digest(hp.Plan.model_validate({**data, "digest": None}))
    assert "shared-worker" in {one.code for one in hp.verify(forged, profile, slo).violations}


@pytest.mark.slow
def test_a_pool_that_gets_the_place_of_text_after_a_failure_is_refused() -> None:
    """After a failure the node that is left would hold the pool twice, and no text."""
    files = _files({"faces": [30.0]}, {"chat": [2.0]}, zones="ab", survive={"zones": 1, "serve": 1.0})
    plan = _solved(files).require()
    assert hp.verify(plan, *files).ok

    def moved(data: Json) -> None:
        names = data["periods"][0]["failures"]["zone a lost"]
        for name in names:
            worker = data["parts"][name]["workers"][0]
            if data["parts"][name]["question"] == "llm":
                worker["id"] = "alone"

    found = hp.verify(_forged(moved, text(_solved(files))), *files).violations
    assert any(one.code == "survive" and "which none did before" in one.text for one in found)


# Who reads such a plan


def test_a_machine_of_both_is_paid_once_by_those_who_play_its_queries_and_its_text() -> None:
    """Two nodes: one of both, the other full of the pool."""
    files = _files({"faces": [110.0]}, {"chat": [2.0]})
    plan = _solved(files).require()
    assert (_mixed(plan), machines_of(plan, "p0")) == (1, {"node-a": 2})
    inputs = load_inputs(*files)
    system = Recipes(plan, inputs).system_of(plan)
    assert system.groups
    paid = sum(group.count * group.price_nanos for group in system.groups) / NANO
    paid += sum(crew.count * crew.price_nanos for text in system.texts.values() for crew in text.crews) / NANO
    assert paid == pytest.approx(2.0)


def test_a_comparison_adds_no_bounds_of_those_who_share() -> None:
    """Alone each costs a node of its own; together they have one."""
    profile, slo = _files(FACES, CHAT)
    slo["horizon"]["period_s"] = 60
    plan = _solved((profile, slo)).require()
    inputs = load_inputs(profile, slo)
    series = {name: app.series or () for name, app in inputs.slo.apps.items()}
    found = compare_ways(plan, inputs, Compared(series=series, period_s=60.0, ways=("plan",), fresh=0))
    assert found.least is None
    (row,) = found.rows
    assert row.nearest is not None
    assert row.nearest.cost_per_hour == pytest.approx(1.0)


def test_a_picture_has_a_machine_of_both_once() -> None:
    assert sum(hours_of(json.loads(_text()))[0].machines.values()) == 1
