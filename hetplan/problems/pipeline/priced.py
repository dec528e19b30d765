"""Several pipelines on one large cluster: prices on servers take them apart, and prove how good the plan is.

Every pipeline answers the prices with its best choice; the mixture of all choices bounds what any plan with these
latency levels can reach (form `priced`, whose oracle proves the bound again). The levels that the mixture uses are
the only ones that the program of whole levels still has to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hetplan.planner.answer import Answer
from hetplan.planner.contract import Ask
from hetplan.planner.forms.priced import Menu, Mixture, Options, Priced
from hetplan.problems.pipeline.levels_of import best_at
from hetplan.problems.pipeline.tree import Tree

if TYPE_CHECKING:
    from hetplan.problems.pipeline.question import Pipeline

__all__ = ["can_be_priced", "priced_form", "priced_levels"]

MOST_STATES = 12_000_000
"""Above so many states of one pipeline the oracle would take longer than the program it spares."""


def can_be_priced(problem: Pipeline, levels: list[list[np.ndarray]]) -> bool:
    """Pipelines judged by the weighted sum of products (or sums) of qualities, limited by servers alone."""
    fleet = problem.wish.fleet
    plain = (
        problem.levels[0] == "quality"
        and fleet.budget is None
        and fleet.moves is None
        and not fleet.resources
        and bool(np.isfinite(fleet.most).all())
    )
    return plain and all(
        not tree.paths and tree.floor is None and _states(tree, own) <= MOST_STATES
        for tree, own in zip(problem.served, levels, strict=True)
    )


def _states(tree: Tree, levels: list[np.ndarray]) -> float:
    states = [0.0] * len(tree.tasks)
    for t, task in enumerate(tree.tasks):
        before = states[task.parent] if task.parent >= 0 else 1.0
        states[t] = before * np.unique(task.variant).size * levels[t].size
    return sum(states)


def priced_form(problem: Pipeline, levels: list[list[np.ndarray]]) -> Priced:
    """The question for prices over these latency levels."""
    menus = tuple(_menu(problem, tree, own) for tree, own in zip(problem.served, levels, strict=True))
    return Priced(menus, problem.wish.fleet.most, name="pipelines apart")


def _menu(problem: Pipeline, tree: Tree, levels: list[np.ndarray]) -> Menu:
    kinds = len(problem.wish.fleet.hardware)
    options = []
    for t, task in enumerate(tree.tasks):
        rows: dict[tuple[int, int], np.ndarray] = {}
        for place, level in enumerate(levels[t]):
            for c in best_at(tree, t, float(level)):
                rate = rows.setdefault((int(task.variant[c]), place), np.zeros(kinds))
                rate[task.hardware[c]] = task.qps[c]
        pairs = sorted(rows)
        worth = [pair for pair in pairs if (pair[0], pair[1] - 1) not in rows
                 or (rows[pair] > rows[pair[0], pair[1] - 1]).any()]  # fmt: skip
        options.append(
            Options(
                np.array([k for k, _ in worth], dtype=np.int64),
                np.array([levels[t][place] for _, place in worth]),
                np.array([rows[pair] for pair in worth]),
            )
        )
    weights = tree.weights or {}
    additive = tree.rule == "additive"
    return Menu(
        name=tree.app,
        parent=tuple(task.parent for task in tree.tasks),
        quality=tuple(task.quality * (weights.get(task.id, 1.0) if additive else 1.0) for task in tree.tasks),
        factor=tuple(task.factor for task in tree.tasks),
        options=tuple(options),
        limit_ms=tree.limit_ms,
        demand=tree.demand,
        weight=tree.weight,
        additive=additive,
    )


def priced_levels(
    problem: Pipeline, ask: Ask, levels: list[list[np.ndarray]]
) -> tuple[Answer[Any], list[list[np.ndarray]]] | None:
    """The answer with its bound, and the levels that its mixture uses; None where no mixture was found."""
    form = priced_form(problem, levels)
    answer: Answer[Mixture] = ask(form, gap=1e-5, about="prices of servers, pipelines apart")
    if answer.point is None:
        return None
    used = []
    for number, (menu, own) in enumerate(zip(form.menus, levels, strict=True)):
        kept: list[np.ndarray] = []
        for t, option in enumerate(menu.options):
            at = [choice.option[t] for _, choice in answer.point[number]]
            kept.append(own[t][np.isin(own[t], option.ms[at])])
        used.append(kept)
    return answer, used
