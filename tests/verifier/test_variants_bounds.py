"""Bounds of variants are proved again from what a plan carries, in the verifier's own writing; forged ones are not."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases.random_variants import random_shared, random_snapshot

import hetplan as hp
from hetplan.problems.variants.size import busy_limit, busy_limit_of_law
from hetplan.profiles.plan_file import plan_dict
from hetplan.verifier.claims_again import Word
from hetplan.verifier.report import Report
from hetplan.verifier.variants_bounds import _fillings, _no_more_than_one
from hetplan.verifier.waiting_room import most_busy, most_busy_by_law

Document = dict[str, Any]
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "variants"
FILES = tuple(str(EXAMPLES / name) for name in ("profile.json", "slo.json"))
STATE = str(EXAMPLES / "state.json")


@cache
def sound(state: str | None = None) -> Document:
    return plan_dict(hp.solve(*FILES, state=state, options={"size": "estimated"}).require())


def verified(document: Document, state: str | None = None) -> Report:
    return hp.verify(hp.read_plan(document, trust_digest=True), *FILES, state=state)


@pytest.mark.parametrize("state", [None, STATE])
def test_the_bound_of_the_shipped_example_is_proved_again(state: str | None) -> None:
    report = verified(sound(state), state)
    assert report.ok, report.violations
    assert [one.word for one in report.claims] == [Word.PROVED]


@pytest.mark.parametrize("seed", [0, 4, 9])
def test_the_program_is_written_down_as_it_was_solved(seed: int) -> None:
    profile, slo, state = random_snapshot(seed)
    outcome = hp.solve(profile, slo, state=state, formulation="milp", options={"size": "planned"})
    if outcome.plan is not None and outcome.plan.claims[0].vouched == "certified":
        report = hp.verify(outcome.plan, profile, slo, state=state)
        assert report.ok, report.violations
        assert report.claims[0].word is Word.PROVED


def test_a_plan_that_costs_nothing_is_proved_and_not_refused() -> None:
    profile, slo, state = random_snapshot(12)
    outcome = hp.solve(profile, slo, state=state, formulation="milp", options={"size": "planned"})
    report = hp.verify(outcome.require(), profile, slo, state=state)
    assert outcome.require().claims[0].value == 0.0
    assert report.ok, report.violations
    assert report.claims[0].word is Word.PROVED


def tree(plan: Document) -> Document:
    found: Document = plan["solves"][0]["proof"]["tree"]
    return found


def raised(plan: Document) -> None:
    for place in (plan["claims"][0], plan["solves"][0]):
        place["bound"] *= 1.01


def asked_for_less(plan: Document) -> None:
    """Every rival of what the plan runs is said to be of less use, and the bound would follow."""
    used = plan["extensions"]["hetplan.used"]
    used.update({name: share * 0.9 for name, share in used.items()})


FORGED: dict[str, tuple[Callable[[Document], object], bool]] = {
    "a higher bound": (raised, True),
    "no proof": (lambda p: p["solves"][0].pop("proof"), True),
    "other multipliers": (
        lambda p: tree(p).update(leaves=[" ".join("3" for _ in line.split()) for line in tree(p)["leaves"]]),
        True,
    ),
    "a leaf less": (lambda p: tree(p).update(leaves=tree(p)["leaves"][:-1]), True),
    "rows that nobody has": (lambda p: tree(p).update(rows=[f"{row}x" for row in tree(p)["rows"]]), True),
    "instances asked for less": (asked_for_less, True),
    "all that instances serve": (lambda p: p.update(extensions={}), True),
    "another quantity": (lambda p: p["claims"][0].update(about="net_cost_per_hour"), True),
    "a higher bound, and the proof of another solve": (
        lambda p: (raised(p), p["claims"][0].update(solve=2)),
        True,
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_bound_that_the_proof_does_not_show_is_no_proved_one(name: str) -> None:
    forge, fault = FORGED[name]
    plan = copy.deepcopy(sound())
    forge(plan)
    report = verified(plan)
    assert Word.PROVED not in {one.word for one in report.claims}
    assert not (fault and report.ok)


def test_a_true_bound_that_names_another_solve_is_searched_for() -> None:
    plan = copy.deepcopy(sound())
    plan["claims"][0]["solve"] = 2
    assert [one.word for one in verified(plan).claims] == [Word.PROVED]


SEARCHED: list[tuple[str, Callable[[int], tuple[Any, ...]], int, dict[str, Any]]] = [
    ("by columns", random_snapshot, 3, {"options": {"level": "machine"}}),
    ("dedicated", random_snapshot, 7, {"options": {"level": "machine", "sharing": "dedicated"}}),
    ("shared machines", random_shared, 4, {}),
    ("shared machines, the ways to fill one", random_shared, 354, {"formulation": "milp"}),
]


@pytest.mark.parametrize(("words", "make", "seed", "how"), SEARCHED, ids=[words for words, *_ in SEARCHED])
def test_bounds_without_a_proof_that_is_read_are_searched_for(
    words: str, make: Callable[[int], tuple[Any, ...]], seed: int, how: dict[str, Any]
) -> None:
    profile, slo, *state = make(seed)
    files = dict(zip(["state"], state, strict=False))
    plan = hp.solve(
        profile, slo, **files, **(how | {"options": {"size": "planned", **how.get("options", {})}})
    ).require()
    report = hp.verify(plan, profile, slo, **files)
    assert report.ok, report.violations
    assert [one.word for one in report.claims] == [Word.PROVED]
    document = plan_dict(plan)
    claim = document["claims"][0]
    claim["value"] = claim["bound"] = claim["value"] + 0.01
    for promise in document["promises"]:
        promise["value"] = claim["value"] if promise["quantity"] == claim["about"] else promise["value"]
    report = hp.verify(hp.read_plan(document, trust_digest=True), profile, slo, **files)
    assert not report.ok
    assert [one.word for one in report.claims] == [Word.OPEN]


@pytest.mark.parametrize("seed", range(8))
def test_what_instances_are_counted_for_is_no_more_than_one_machine(seed: int) -> None:
    chance = random.Random(seed)
    parts = [chance.choice([0.1, 0.2, 1 / 3, 0.4, 0.5, 0.6, 0.75, 1.0, chance.random()]) for _ in range(4)]
    sets = [counts for counts in itertools.product(range(11), repeat=4)
            if sum(n * part for n, part in zip(counts, parts, strict=True)) <= 1.0 + 1e-9]  # fmt: skip
    rows = list(_no_more_than_one(parts))
    assert len(rows) > 1
    for row in rows:
        assert max(sum(n * one for n, one in zip(counts, row, strict=True)) for counts in sets) <= 1.0 + 1e-8
    held = _fillings(np.array([[part] for part in parts]), [10] * 4)
    assert held is None or all(any(all(np.array(one) >= counts) for one in held) for counts in sets)


@pytest.mark.parametrize(("batch", "left"), [(1, 0.01), (4, 0.05)])
def test_both_writings_of_the_queue_find_the_same_use(batch: int, left: float) -> None:
    for limit_ms in (19.0, 20.0, 43.7, 100.0, 161.0, 900.0):
        mine = most_busy(time_ms=20.0, batch=batch, limit_ms=limit_ms, left=left)
        theirs = busy_limit(time_ms=20.0, batch=batch, slo_ms=limit_ms, percentile=100.0 * (1.0 - left))
        assert mine == pytest.approx(theirs, rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_both_writings_of_the_law_find_the_same_use(seed: int) -> None:
    random = np.random.default_rng(seed)
    for left in (0.1, 0.01):
        times = tuple(np.sort(random.uniform(1.0, 20.0, int(random.integers(2, 17)))).tolist())
        limit_ms = times[-1] * float(random.uniform(0.4, 3.0))
        mine = most_busy_by_law(times, limit_ms=limit_ms, left=left)
        theirs = busy_limit_of_law(times, slo_ms=limit_ms, percentile=100.0 * (1.0 - left))
        assert theirs - 0.004 <= mine <= theirs * (1 + 1e-9)
