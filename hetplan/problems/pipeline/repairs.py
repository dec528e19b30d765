"""Repairs in words: so many servers, such a limit on response; and what a limit on response means to a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.draft import Repair
from hetplan.problems.pipeline.rows import Places
from hetplan.problems.pipeline.tree import Tree, without_dominated

if TYPE_CHECKING:
    from hetplan.problems.pipeline.question import Pipeline

__all__ = ["floor_repair", "more_servers", "one_floor_free", "slo_ms_of", "slo_repair", "stated_ms", "with_limit"]


def more_servers(problem: Pipeline, trees: Sequence[Tree], found: Sequence[Places]) -> Iterator[Repair]:
    """The repair that so many servers would be."""
    fleet = problem.wish.fleet
    need = np.zeros(len(fleet.hardware))
    for tree, counts in zip(trees, found, strict=True):
        np.add.at(need, np.concatenate([task.hardware for task in tree.tasks]), counts)
    changed = [g for g in range(len(fleet.hardware)) if need[g] > fleet.most[g]]
    if not changed:
        return
    total, now = float(need.sum()), float(fleet.most[np.isfinite(fleet.most)].sum())
    if len(fleet.hardware) == 1:
        at = f"slo.limits.instances.{fleet.hardware[0]}"
        yield Repair(at, "raise", total - now, total, "servers", f"raise {at} to {total:g} servers")
        return
    mix = ", ".join(f"{fleet.hardware[g]} {need[g]:g}" for g in np.flatnonzero(need))
    yield Repair("slo.limits.instances", "raise", None, mix, "servers", f"raise slo.limits.instances to {mix}")


def one_floor_free(problem: Pipeline) -> Iterator[tuple[Tree, list[Tree]]]:
    """Each application that states an accuracy floor, and all of them where it alone has none and alone counts."""
    for i, tree in enumerate(problem.served):
        if tree.floor is not None:
            yield tree, [replace(one, floor=None if j == i else one.floor, weight=float(j == i))
                         for j, one in enumerate(problem.served)]  # fmt: skip


def floor_repair(tree: Tree, quality: float, more: str = "") -> Repair:
    """The repair that this floor would be; `more` is added to its text."""
    assert tree.floor is not None
    at = f"slo.apps.{tree.app}.quality.min"
    text = f"lower {at} from {tree.floor:g} to {quality:.6g}{more}"
    return Repair(at, "lower", tree.floor - quality, quality, "", text)


def stated_ms(problem: Pipeline, tree: Tree) -> float:
    """The limit on response that the user states."""
    app = problem.inputs.slo.apps[tree.app]
    return min(target.max_ms for target in app.latency if target.of == "response")


def slo_ms_of(problem: Pipeline, tree: Tree, sink: int, ms: float) -> float:
    """The limit on response under which a path of this execution time is in time."""
    app = problem.inputs.slo.apps[tree.app]
    return ms * problem.options.slo_divisor + len(tree.path(sink)) * app.network_ms_per_hop


def with_limit(problem: Pipeline, tree: Tree, slo_ms: float) -> Tree:
    """The pipeline under another limit on response."""
    app = problem.inputs.slo.apps[tree.app]
    limits = {
        sink: (slo_ms * (1 + 1e-12) - len(tree.path(sink)) * app.network_ms_per_hop) / problem.options.slo_divisor
        for sink in tree.sinks
    }
    return without_dominated(replace(tree, limit_ms=limits))


def slo_repair(problem: Pipeline, tree: Tree, slo_ms: float) -> Repair:
    """The repair that this limit would be."""
    at, now = f"slo.apps.{tree.app}.latency", stated_ms(problem, tree)
    text = f"raise {at} by {slo_ms - now:.6g} ms to {slo_ms:.6g} ms"
    return Repair(at, "raise", slo_ms - now, slo_ms, "ms", text)
