"""Steps of unlike needs share servers where places say exactly what fits: one, two and four cards of eight."""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

import hetplan as hp
from hetplan.api.solve import choose, pose
from hetplan.planner.answer import Limits
from hetplan.planner.choices import Choice
from hetplan.planner.request import read_request
from hetplan.problems.faults import Faults
from hetplan.problems.pipeline.latency_levels import priced_form
from hetplan.problems.pipeline.pipelines import Pipelines
from hetplan.problems.pipeline.programs import levels_form
from hetplan.problems.pipeline.request import Fleet, read_fleet
from hetplan.problems.pipeline.tree import all_levels, prefixes, variant_tree
from hetplan.problems.slot_packing import pack_servers
from hetplan.solvers.highs import Highs
from hetplan.solvers.priced_columns import PricedColumns
from hetplan.verifier.pipeline import places_on
from hetplan.verifier.plan_index import gather
from tests.problems.pipeline.test_shared_servers import MS, Docs, documents, on_one, solved, total

UNLIKE = {"see": 1.0, "name": 2.0, "read": 4.0}
"""Cards."""


def words(plan: hp.Plan, files: Docs) -> dict[str, str]:
    return {claim.about.split()[-1]: claim.word.value for claim in hp.verify(plan, *files).claims}


def forged(plan: hp.Plan, change: Any) -> hp.Plan:
    made = json.loads(plan.model_dump_json(exclude_none=True, by_alias=True))
    change(made)
    return hp.Plan.model_validate(made)


@pytest.mark.slow
def test_steps_of_one_two_and_four_cards_share_nodes_and_keep_their_wish() -> None:
    files = documents(needs=UNLIKE, rate=200.0)
    plan = solved(files)
    (node,) = on_one(plan)
    assert node == {"see": 2, "name": 1, "read": 1}, "what is paid is used"
    assert total(plan, "cost_per_hour") == 8.0
    assert set(words(plan, files).values()) == {"proved again"}
    report = hp.simulate(plan, *files, seeds=3, seed=991)
    assert report.apps["a"].figures["violations"].value < 0.01
    assert total(solved(files, share_machines=False), "cost_per_hour") == 24.0


def test_several_nodes_of_unlike_loads_are_as_few_as_their_cards_fill() -> None:
    files = documents(needs=UNLIKE, rate=1000.0)  # 5 x 1 + 4 x 2 + 3 x 4 cards
    plan = solved(files, sizing="fluid")
    assert total(plan, "servers") == 4.0
    assert total(solved(files, sizing="fluid", share_machines=False), "servers") == 4.0
    files = documents(needs=UNLIKE, rate=2000.0)  # 10 x 1 + 8 x 2 + 6 x 4
    plan = solved(files, sizing="fluid")
    assert total(plan, "servers") == 7.0
    assert sum(worker.count * load.instances * UNLIKE[load.node or ""] for worker in plan.workers
               for load in worker.loads) == 56.0, "all cards are used"  # fmt: skip
    assert words(plan, files)["cost_per_hour"] == "proved again"


@pytest.mark.quick_sample(6)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("formulation", ["pipeline-milp", "loki-budget"])
def test_whole_servers_are_as_few_as_counting_by_hand_says(seed: int, formulation: str) -> None:
    """A step has one or two runs of its variant, of so many cards; one is chosen. And no plan is dearer for sharing."""
    chance = random.Random(seed)
    rate, fanout = chance.uniform(20.0, 1500.0), chance.choice([0.5, 1.0, 2.0])
    profile, slo = documents(nodes=60, rate=rate, fanout=fanout)
    if chance.random() < 0.3:
        del profile["offers"]
    cards = 0
    for step in MS:
        runs, least = [], math.inf
        for number in range(chance.choice([1, 2])):
            needs, ms = chance.choice([1, 2, 4, 8]), MS[step] * chance.uniform(0.2, 1.5)
            at = needs + number / 10
            profile["tables"][f"t-{step}-{number}"] = {
                "quantity": "latency_ms", "axes": {"batch": [1, 4], "cards": [at]}, "mean": [[ms / 2], [ms]]
            }  # fmt: skip
            run = {"hardware": "node", "needs": {"gpu": needs}, "latency": f"t-{step}-{number}", "at": {"cards": at}}
            runs.append(run)
            coming = rate if step == "see" else fanout * rate
            least = min(least, needs * math.ceil(coming * ms / 4000.0 - 1e-9))
        profile["variants"][f"{step}-m"]["runs"] = runs
        cards += int(least)
    files = (profile, slo)
    outcome = hp.solve(
        *files, options={"sizing": "fluid"}, formulation=f"pipeline/{formulation}" if formulation else "pipeline"
    )
    plan = outcome.require()
    assert total(plan, "servers") == math.ceil(cards / 8)
    assert total(solved(files, sizing="fluid", share_machines=False), "servers") >= total(plan, "servers")
    assert set(words(plan, files).values()) == {"proved again"}


@pytest.mark.parametrize("seed", range(6))
def test_offers_are_filled_from_the_cheapest_and_what_must_run_runs(seed: int) -> None:
    chance = random.Random(seed)
    needs = {step: float(chance.choice([1, 2, 4, 8])) for step in MS} | {"read": 1.0}
    least, stock, rate = chance.choice([0, 1, 2, 3]), chance.randint(1, 3), chance.uniform(50.0, 900.0)
    files = documents(needs=needs, rate=rate)
    files[1]["limits"]["instances"]["node"] = [least, 40]
    files[0]["offers"] = {
        "dear": {"hardware": "node", "price_per_hour": "9", "currency": "USD"},
        "cheap": {"hardware": "node", "price_per_hour": "5", "currency": "USD", "stock": stock},
    }
    plan = solved(files, sizing="fluid")
    servers = max(least, math.ceil(sum(needs[step] * math.ceil(rate * MS[step] / 4000 - 1e-9) for step in MS) / 8))
    assert total(plan, "cost_per_hour") == 5.0 * min(stock, servers) + 9.0 * max(servers - stock, 0)


def test_a_step_that_takes_whole_servers_leaves_the_others_to_share_theirs() -> None:
    files = documents(needs={"see": 8.0})
    plan = solved(files, sizing="fluid")
    assert on_one(plan) == [{"see": 1}, {"name": 5, "read": 3}]
    assert total(plan, "cost_per_hour") == 24.0
    assert total(solved(files, sizing="fluid", share_machines=False), "cost_per_hour") == 32.0


def test_too_few_places_for_one_instance_of_each_step() -> None:
    files = documents(needs={"see": 8.0, "read": 4.0}, nodes=1)
    outcome = hp.solve(*files, formulation="pipeline")
    assert outcome.exit_code == 3
    assert any(
        "3 stages need at least 13 places on servers, not one each, and there are 8" in one for one in outcome.why
    )
    assert [one.amount for one in outcome.repairs] == [2.0], "three nodes: 16 + 2 + 4 cards"


@pytest.mark.parametrize(
    "needs",
    [
        {"see": 3.0},  # two of three and two of one fit, by places not
        {"see": 5.0},  # beside it three of one fit
        {"see": 2.0, "name": 3.0, "read": 3.0},
        {"see": 8 / 3, "name": 2.0, "read": 2.0},  # three and four to a node
    ],
)
def test_needs_that_places_do_not_describe_share_nothing(needs: dict[str, float]) -> None:
    files = documents(needs=needs)
    plan = solved(files, sizing="fluid")
    assert all(len(worker.loads) == 1 for worker in plan.workers)
    assert total(plan, "cost_per_hour") == total(solved(files, sizing="fluid", share_machines=False), "cost_per_hour")


def test_a_worker_with_more_cards_than_there_are_is_caught() -> None:
    files = documents(needs=UNLIKE, rate=200.0)
    plan = solved(files, sizing="fluid")
    places = {load.node: number for number, load in enumerate(plan.workers[0].loads)}

    def more(step: str) -> Any:
        return lambda made: made["workers"][0]["loads"][places[step]].update(instances=2)

    assert hp.verify(plan, *files).ok
    for step in ("name", "read"):
        assert "resource" in {one.code for one in hp.verify(forged(plan, more(step)), *files).violations}


def test_a_bound_of_one_server_more_is_not_proved() -> None:
    """The best plan without sharing, said to be the best of all: by what may be shared, a server fewer does."""
    files = documents(needs=UNLIKE)
    apart, shared = solved(files, sizing="fluid", share_machines=False), solved(files, sizing="fluid")
    assert (total(apart, "cost_per_hour"), total(shared, "cost_per_hour")) == (24.0, 16.0)
    assert words(shared, files)["cost_per_hour"] == "proved again"
    claims_too_much = forged(apart, lambda made: made["method"]["options"].update(share_machines=True))
    assert words(claims_too_much, files)["cost_per_hour"] != "proved again"


def with_runs(files: Docs, runs: dict[int, float]) -> Docs:
    """Each step's variant with runs of so many cards, so many times as long as its table says."""
    profile, _ = files
    for step, ms in MS.items():
        for cards, times in runs.items():
            profile["tables"][f"t-{step}-{cards}"] = {
                "quantity": "latency_ms", "axes": {"batch": [1, 4], "cards": [cards]},
                "mean": [[times * ms / 2], [times * ms]],
            }  # fmt: skip
        profile["variants"][f"{step}-m"]["runs"] = [
            {"hardware": "node", "needs": {"gpu": cards}, "latency": f"t-{step}-{cards}", "at": {"cards": cards}}
            for cards in runs
        ]
    return files


def test_a_bound_forgets_no_smaller_run() -> None:
    """Whole nodes carry more per card, yet a few single cards do. A plan that knew nothing of those is dearer."""
    both, large = (with_runs(documents(rate=100.0), runs) for runs in ({1: 1.0, 8: 0.1}, {8: 0.1}))
    plan = solved(large, sizing="fluid")
    assert total(plan, "cost_per_hour") == 24.0
    assert words(plan, large)["cost_per_hour"] == "proved again"
    assert total(solved(both, sizing="fluid"), "cost_per_hour") == 8.0
    assert words(plan, both)["cost_per_hour"] != "proved again"


def test_a_repair_names_the_servers_of_the_smallest_runs_that_do() -> None:
    files = with_runs(documents(rate=900.0, nodes=1), {1: 1.0, 2: 0.95})
    del files[0]["offers"]
    outcome = hp.solve(*files, options={"sizing": "fluid"}, formulation="pipeline")
    assert outcome.exit_code == 3
    cards = sum(math.ceil(900.0 * ms / 4000.0) for ms in MS.values())
    assert (cards, [one.to for one in outcome.repairs if "instances" in one.field]) == (12, [2.0])


@pytest.mark.parametrize("goal", ["quality", "servers", "cost"])
def test_half_as_large_places_change_no_value(goal: Any) -> None:
    """A variant that is never in time needs one card: there are eight places in place of four, and all take two."""
    found = []
    for idle in (False, True):
        profile, slo = documents(needs=dict.fromkeys(MS, 2.0), nodes=1, rate=250.0)
        for number, (step, ms) in enumerate(MS.items()):
            table = {"quantity": "latency_ms", "axes": {"batch": [1, 4]}, "mean": [ms, 2.2 * ms]}
            run = {"hardware": "node", "needs": {"gpu": 2}, "latency": f"t-{step}-s"}
            profile["tables"][f"t-{step}-s"] = table
            profile["variants"][f"{step}-s"] = {"task": step, "quality": {"value": 0.95 + number / 50}, "runs": [run]}
        if idle:
            profile["tables"]["t-idle"] = {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [9000.0]}
            run = {"hardware": "node", "needs": {"gpu": 1}, "latency": "t-idle"}
            profile["variants"]["idle"] = {"task": "see", "quality": {"value": 1.0}, "runs": [run]}
        inputs = hp.load(profile, slo)
        problem = pose(inputs, choose(inputs, question="pipeline", formulation="loki-budget"))
        assert isinstance(problem, Pipelines)
        assert problem.wish.fleet.places == ((8,) if idle else (4,))
        (tree,) = problem.served
        levels = [[values[-3:] for values in all_levels(tree)]]
        forest = [(variant_tree(tree), prefixes(variant_tree(tree)))]
        form = levels_form([tree], forest, levels, problem.wish.fleet, problem.aim(goal)).form
        values = [Highs().solve(form, Limits()).value]
        if goal == "quality":
            values.append(PricedColumns().solve(priced_form(problem, levels), Limits()).bound)
        found.append(values)
    assert found[0] == pytest.approx(found[1], rel=1e-6)


# Places say what fits


def _random_fleet(chance: random.Random, plan: hp.Plan) -> tuple[Fleet, list[Choice], dict[str, float]]:
    cards = chance.choice([4, 6, 8, 9])
    profile, slo = documents(cards=cards)
    provides: dict[str, float] = {"gpu": cards, "gpu_mem_gib": 24.0 * cards}
    wanted = [divisor for divisor in range(1, cards + 1) if cards % divisor == 0]
    if chance.random() < 0.4:
        wanted = [1, 1, 2, 3, 4]
    for step in MS:
        gpu = chance.choice(wanted) * chance.choice([1.0, 1.0, 1.0, 0.97, 0.8])
        needs = {"gpu": gpu}
        if chance.random() < 0.5:
            needs["gpu_mem_gib"] = min(gpu * chance.choice([10.0, 24.0, 30.0]), provides["gpu_mem_gib"])
        profile["variants"][f"{step}-m"]["runs"][0]["needs"] = needs
    inputs = hp.load(profile, slo)
    fleet = read_fleet(read_request(inputs), Faults.of(inputs), shared=True)
    runs = list(fleet.request.choices())
    assert places_on(gather(plan, inputs), "node") == fleet.places[0], "the check counts as the plan does"
    return fleet, runs, provides


def _fits(counts: Sequence[int], runs: Sequence[Choice], provides: dict[str, float]) -> bool:
    return all(
        sum(count * run.needs.get(name, 0.0) for count, run in zip(counts, runs, strict=True)) <= room * (1 + 1e-9)
        for name, room in provides.items()
    )


def _fewest(items: list[int], runs: Sequence[Choice], provides: dict[str, float]) -> int:
    """Servers that hold these, by trying all ways to put one after the other."""
    best = len(items)

    def put(rest: list[int], bins: list[list[int]]) -> None:
        nonlocal best
        if len(bins) >= best:
            return
        if not rest:
            best = len(bins)
            return
        for held in bins:
            held[rest[0]] += 1
            if _fits(held, runs, provides):
                put(rest[1:], bins)
            held[rest[0]] -= 1
        put(rest[1:], [*bins, [int(n == rest[0]) for n in range(len(runs))]])

    put(items, [])
    return best


def _filling(alone: Sequence[int]) -> Iterator[tuple[int, ...]]:
    yield from itertools.product(*(range(most + 2) for most in alone))


def test_places_are_exact_wherever_they_are_offered() -> None:
    """Against all ways to fill a server, and to put a few instances on as few servers as hold them."""
    shared, unlike, apart, plan = 0, 0, 0, solved(documents(), sizing="fluid")
    for seed in range(80):
        chance = random.Random(seed)
        fleet, runs, provides = _random_fleet(chance, plan)
        (places,) = fleet.places
        if places == 1:
            apart += 1
            continue
        sizes = [fleet.places_of(run) for run in runs]
        shared, unlike = shared + 1, unlike + (len(set(sizes)) > 1)
        for counts in _filling([places // size for size in sizes]):
            taken = sum(count * size for count, size in zip(counts, sizes, strict=True))
            assert _fits(counts, runs, provides) == (taken <= places), (seed, counts)
        items = sorted(chance.choices(range(3), k=chance.randint(1, 7)), key=lambda n: -sizes[n])
        held = pack_servers({n: items.count(n) for n in range(3)}, places, each=dict(enumerate(sizes)))
        assert sum(count for _, count in held) == _fewest(items, runs, provides), seed
        assert all(_fits([one.get(n, 0) for n in range(3)], runs, provides) for one, _ in held)
    assert min(shared - unlike, unlike, apart) >= 5


def test_the_largest_loads_are_put_down_first() -> None:
    """Three of two places, first, would leave two on each server: none has room for four."""
    found = pack_servers({"a": 3, "b": 1, "c": 3}, 8, each={"a": 2, "b": 4, "c": 2})
    assert sum(count * held.get("b", 0) for held, count in found) == 1
    assert sum(count for _, count in found) == 2


@pytest.mark.parametrize("seed", range(40))
def test_unlike_loads_are_all_on_servers_that_hold_no_more(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [1]
    while sizes[-1] < 16 and chance.random() < 0.7:
        sizes.append(sizes[-1] * chance.choice([2, 2, 3, 4]))
    places = sizes[-1] * chance.choice([1, 1, 2, 3])
    each = {name: chance.choice(sizes) for name in "abcdef"[: chance.randint(1, 6)]}
    wanted, least = {name: chance.randint(0, 12) for name in each}, chance.choice([0, chance.randint(0, 40)])
    found = pack_servers(wanted, places, least=least, each=each)
    assert {seat: sum(count * held.get(seat, 0) for held, count in found) for seat in wanted} == wanted
    assert all(0 < sum(each[seat] * many for seat, many in held.items()) <= places for held, _ in found)
    taken = sum(each[seat] * many for seat, many in wanted.items())
    assert sum(count for _, count in found) == max(math.ceil(taken / places), min(least, sum(wanted.values())))
