"""A limit on what machines provide counts machines, each once, whatever runs on them: the same in every problem."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from build import Files, app, example, files, machine, model, pipeline, random_files
from face import EXIT, Answer, Refused, solve

WATTS = (250, 400, 320, 180)
"""Of the machine types in turn."""
MOST = 5
"""Servers of a type that a pipeline may have, which wants as good models as it can have."""


def powered(problem: str, seed: int) -> tuple[Files, dict[str, int]]:
    wish, watts = random_files(problem, seed), {}
    if problem == "pipeline":
        wish = wish.limited(counts=dict.fromkeys(wish.machine_types, (0, MOST)))
    for name, each in zip(wish.machine_types, WATTS, strict=False):
        wish, watts[name] = wish.provides({"watts": each}, of=name), each
    return wish, watts


def drawn(answer: Answer, watts: dict[str, int]) -> float:
    """The most watts at once in any period."""
    periods = {one.period for one in answer.machines}
    return max((sum(each * answer.count(name, at) for name, each in watts.items()) for at in periods), default=0.0)


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("problem", ["pool", "variants", "pipeline"])
@pytest.mark.slow
def test_the_best_plan_under_a_power_limit_is_the_best_of_all_counts(problem: str, seed: int) -> None:
    wish, watts = powered(problem, seed)
    most = drawn(solve(wish, "fluid"), watts) - 1
    found = solve(wish.limited(provided={"watts": most}), "fluid")
    largest = MOST if problem == "pipeline" else most
    ranges = [range(int(min(most // each, largest)) + 1) for each in watts.values()]
    known = []
    for counts in product(*ranges):
        if most - max(WATTS) < sum(n * each for n, each in zip(counts, watts.values(), strict=True)) <= most:
            at_most = {name: (0, n) for name, n in zip(watts, counts, strict=True)}
            known.append(solve(wish.limited(counts=at_most), "fluid"))
    values = [one.value for one in known if one.is_plan and one.value is not None]
    if not values:
        assert found.code == EXIT["infeasible"]
        return
    assert found.code in (EXIT["ok"], EXIT["gap"])
    assert drawn(found, watts) <= most
    best = max(values) if problem == "pipeline" else min(values)
    assert found.value == pytest.approx(best, rel=2e-4)


def shared(problem: str, cards: int, **spot: Any) -> Files:
    """Work that takes half a machine, of 300 W: twice as many replicas as machines."""
    machines = {"m": machine(1.0, stock=8, provides={"gpu": 1, "watts": 300}, **spot)}
    one = {"m": {1: 10, 4: 16}}
    need = {"gpu": 0.5}
    limits = {99: 60}
    if problem == "pipeline":
        stages = ["a", "b"]
        return files(
            machines=machines, models={name: model(one, task=name, quality=0.9, needs=need) for name in stages},
            apps={"street": app("street", rate=100.0 * cards, limits={99: 120}, by="pipeline")},
            pipelines={"street": pipeline([("a", "b", 1.0)], stages)}, objective=("min servers",), problem=problem,
        ).limited(counts={"m": (0, 8)})  # fmt: skip
    names = ("a", "b") if problem == "variants" else ("a",)
    sizes = {1: 0.5, 4: 0.5} if problem == "pool" else None
    rate = (1 if problem == "variants" else 1.5) * 100.0 * cards
    return files(
        machines=machines, models={name: model(one, needs=need) for name in names},
        apps={name: app(name, rate=rate, limits=limits, sizes=sizes) for name in names}, problem=problem,
    )  # fmt: skip


@pytest.mark.parametrize("problem", ["pool", "variants", "pipeline"])
def test_a_machine_that_several_replicas_share_counts_once(problem: str) -> None:
    wish = shared(problem, 1)
    free = solve(wish, "fluid")
    count = free.count()
    replicas = sum(group.count * one.count for group in free.machines for one in group.replicas)
    assert free.code == EXIT["ok"]
    assert replicas > count
    kept = solve(wish.limited(provided={"watts": 300 * count}), "fluid")
    assert (kept.code, kept.count()) == (EXIT["ok"], count)
    assert solve(wish.limited(provided={"watts": 300 * count - 1}), "fluid").code == EXIT["infeasible"]


@pytest.mark.parametrize("problem", ["policy", "llm", "compound", "variants"])
def test_who_cannot_count_machines_refuses_the_limit(problem: str) -> None:
    # The runs of the shipped example have prices of their own: nobody says how many are on one machine.
    wish = example(problem).provides({"watts": 300}).limited(provided={"watts": 300})
    with pytest.raises(Refused, match=r"limits\.provides"):
        solve(wish, "fluid" if problem != "compound" else "simulation", problem=problem)


@pytest.mark.parametrize("problem", ["pool", "pipeline", "policy", "llm", "fleet"])
def test_who_counts_machines_refuses_a_total_of_what_models_take(problem: str) -> None:
    with pytest.raises(Refused, match=r"limits\.capacity"):
        solve(random_files(problem, 0).limited(taken={"watts": 300}), "fluid", problem=problem)


@pytest.mark.parametrize("problem", ["pool", "variants", "pipeline", "fleet"])
def test_machines_that_do_not_say_what_they_provide_are_named(problem: str) -> None:
    wish = random_files(problem, 0).limited(provided={"watts": 300})
    with pytest.raises(Refused, match="no machine type provides 'watts'"):
        solve(wish, "fluid")
    first, second, *_ = wish.machine_types
    with pytest.raises(Refused, match=f"{second} does not say what it provides"):
        solve(wish.provides({"watts": 300}, of=first), "fluid")


@pytest.mark.parametrize("problem", ["pool", "variants"])
def test_a_limit_on_machines_leaves_open_from_whom_they_are_rented(problem: str) -> None:
    """Some machines are needed; one is to be had at a fifth of the price, whatever its offer is called."""
    wish = shared(problem, 4, spot=0.2, spot_stock=1)
    free = solve(wish, "fluid")
    count = free.count()
    assert count > 1
    limited = solve(wish.limited(counts={"m": (0, count)}), "fluid")
    assert limited.count() == count
    assert free.cost == limited.cost == pytest.approx(count - 0.8)
