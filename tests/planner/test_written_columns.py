"""Prices and trees of configurations prove a bound; and no proof, however it is edited, proves too much."""

from __future__ import annotations

import copy
import itertools
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan.planner.answer import Limits
from hetplan.planner.bound_verdicts import Word
from hetplan.planner.forms.columns import Columns
from hetplan.profiles.plan_file import plan_dict
from hetplan.profiles.read_plan import read_plan
from hetplan.solvers.columns import ColumnsEngine

Proof = dict[str, Any]
NONE = -np.inf
ROOMS = ("cores[total]", "gib[cpu]")


@dataclass(frozen=True)
class Item:
    name: str
    gain: float
    cost: float
    group: int
    most: int
    use: dict[str, float]


def drawn(seed: int) -> Columns:
    """Two or three applications with some items, of which some run, in rooms that are short."""
    chance = random.Random(seed)
    blocks, owner, free, surcharge = list[list[Item]](), list[int](), dict[int, int](), dict[int, float]()
    for block in range(chance.choice([2, 3])):
        mine = list[Item]()
        for _ in range(chance.choice([2, 3, 4])):
            group = len(surcharge)
            if mine and chance.random() < 0.25:
                group = mine[-1].group  # Two of one group have one gain.
            gain = mine[-1].gain if mine and mine[-1].group == group else chance.choice([0.2, 0.34, 0.5, 0.7, 1.2])
            use = {room: float(chance.randrange(4)) for room in ROOMS}
            most = max(1, -int(-1.0 // gain))
            mine.append(Item(f"{block}.{len(mine)}", gain, chance.randrange(1, 30) / 4.0, group, most, use))
            free.setdefault(group, chance.choice([0, 0, 1, 2]))
            surcharge.setdefault(group, chance.choice([0.0, 0.5, 2.0]))
        blocks.append(mine)
        owner += [block] * len(mine)
    items = [item for mine in blocks for item in mine]
    rooms = {room: float(chance.randrange(4, 14)) for room in ROOMS}
    return Columns(
        block=np.array(owner), need=np.ones(len(blocks)), gain=np.array([item.gain for item in items]),
        cost=np.array([item.cost for item in items]), group=np.array([item.group for item in items]),
        free=np.array([float(free[g]) for g in range(len(free))]), surcharge=np.array(list(surcharge.values())),
        upper=np.array([float(item.most) for item in items]),
        use=np.array([[item.use[room] for item in items] for room in ROOMS]), capacity=np.array(list(rooms.values())),
        rows=ROOMS, item_name=lambda j: items[j].name,
    )  # fmt: skip


def cheapest(form: Columns) -> float:
    """The least cost of any counts, by trying them all, application by application."""
    best = {(0.0,) * len(ROOMS): 0.0}
    for block in range(form.need.size):
        mine = np.flatnonzero(form.block == block)
        reached: dict[tuple[float, ...], float] = {}
        for counts in itertools.product(*(range(int(form.upper[j]) + 1) for j in mine)):
            x = np.zeros(form.cost.size)
            x[mine] = counts
            if form.gain @ x < 1.0 - 1e-9:
                continue
            cost, use = form.value(x), form.use @ x
            for before, spent in best.items():
                after = tuple(before + use)
                if (np.array(after) <= form.capacity).all():
                    reached[after] = min(reached.get(after, np.inf), spent + cost)
        best = reached
    return min(best.values(), default=np.inf)


def solved(form: Columns) -> tuple[Proof | None, float]:
    answer = ColumnsEngine().solve(form, Limits(gap=1e-9))
    if answer.point is None or form.certify(answer).bound is None:
        return None, np.inf
    return form.written_proof(answer), float(form.certify(answer).bound or 0.0)


@pytest.mark.slow
def test_prices_and_trees_of_the_engine_show_its_bound() -> None:
    with_tree = 0
    for seed in range(150):
        form = drawn(seed)
        proof, bound = solved(form)
        if proof is None:
            continue
        best = cheapest(form)
        with_tree += "tree" in proof
        shown = shown_by(form, proof)
        assert bound <= best * (1.0 + 1e-9), seed
        assert bound * (1.0 - 1e-8) - 1e-9 <= shown <= best * (1.0 + 1e-9), seed
    assert with_tree > 20


def shown_by(form: Columns, proof: Proof) -> float:
    try:
        shown = form.bound_of_written(proof)
    except (KeyError, TypeError, ValueError, AttributeError):
        return NONE
    return NONE if shown is None else shown


def edited(proof: Proof, chance: random.Random) -> Proof:
    """Somebody's wish for a better bound: other prices, limits, splits, leaves."""
    forged = copy.deepcopy(proof)
    tree: Proof = forged.get("tree", {})
    kind = chance.randrange(7 if tree else 1)
    if kind == 0:
        forged["prices"] = {room: chance.choice([0.0, 0.1, 0.5, 1.0, 3.0, 40.0]) for room in ROOMS}
    elif kind == 1:
        tree["limit"] *= chance.choice([0.5, 1.2, 3.0])
    elif kind == 2:
        tree["slack"] *= chance.choice([0.0, 0.5, 2.0])
    elif kind == 3 and tree["splits"]:
        place = chance.randrange(len(tree["splits"]))
        numbers = tree["splits"][place].split()
        numbers[chance.randrange(4)] = str(chance.randrange(-3, 4))
        tree["splits"][place] = " ".join(numbers)
    elif kind == 4:
        place = chance.randrange(len(tree["leaves"]))
        tree["leaves"][place] = " ".join(str(chance.choice([0.0, 0.3, 2.0, 90.0])) for _ in ROOMS)
    elif kind == 5 and tree["splits"]:
        place = chance.randrange(len(tree["splits"]))
        tree["prices_of_splits"][place] = " ".join(str(chance.choice([0.0, 0.3, 2.0, 90.0])) for _ in ROOMS)
    elif kind == 6:
        tree["rows"].reverse()
    return forged


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 120, 30))
def test_no_edited_proof_shows_more_than_is_so(first: int) -> None:
    tried = 0
    for seed in range(first, first + 30):
        form = drawn(seed)
        proof, _ = solved(form)
        if proof is None:
            continue
        best, chance = cheapest(form), random.Random(seed)
        for _ in range(12):
            forged = edited(edited(proof, chance), chance)
            shown = shown_by(form, forged)
            tried += shown > NONE
            assert shown <= best * (1.0 + 1e-9), (seed, forged)
    assert tried > 90


@pytest.mark.parametrize(
    "edit",
    [
        lambda p: p.update(prices={"cores[total]": -1.0}),
        lambda p: p.update(prices={"cores[total]": float("nan")}),
        lambda p: p.update(prices={"ghosts[total]": 1.0}),
        lambda p: p.update(prices=7),
        lambda p: p.update(tree={}),
        lambda p: p["tree"].update(limit="nan"),
        lambda p: p["tree"].update(splits=["0 1 0 0"], prices_of_splits=["0 0"], items=["0.0"]),
        lambda p: p["tree"].update(rows=["cores[total]", "other"]),
    ],
)
def test_what_cannot_be_a_proof_shows_no_more_than_its_prices(edit: Any) -> None:
    seed = next(seed for seed in range(150) if "tree" in (solved(drawn(seed))[0] or {}))
    form = drawn(seed)
    proof, _ = solved(form)
    assert proof is not None
    bare = shown_by(form, {"prices": proof["prices"]})
    assert shown_by(form, proof) > bare
    edit(proof)
    assert shown_by(form, proof) <= bare


def of_many(count: int, tight: float) -> tuple[dict[str, Any], ...]:
    """Files with so many architectures."""
    from hetplan_papers.datasets import infaas_generator

    profile, slo, state = infaas_generator.inputs(count, 0, tight)
    return profile, slo, state


@pytest.mark.slow
def test_bounds_of_a_hundred_architectures_are_proved_again() -> None:
    profile, slo, state = of_many(100, 1.0)
    outcome = hp.solve(profile, slo, state, options={"sizing": "fluid"}, formulation="variants")
    document = plan_dict(outcome.require())
    assert "tree" in document["solves"][0]["proof"]
    report = hp.verify(read_plan(document), profile, slo, state)
    assert report.ok, report.violations
    assert [one.word for one in report.claims] == [Word.PROVED]
    for place in (document["claims"][0], document["solves"][0]):
        place["bound"] *= 1.0 + 1e-7
    document["claims"][0]["value"] = document["solves"][0]["certified_bound"] = document["claims"][0]["bound"]
    report = hp.verify(read_plan(document, trust_digest=True), profile, slo, state)
    assert {"proof", "claim"} & {one.code for one in report.violations}
