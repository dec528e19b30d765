"""The steps of an application: what follows each, after which outcome, how many queries, and what qualities count.

The simulator's system and the router's table are both made of these stages. Where only the plan is known, its routes
say which step follows which, and each step sends on one query.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import App as WantedApp
from hetplan.profiles.who_answers import pipeline_of
from hetplan.profiles.workers import Load
from hetplan.serving.system import Combine, Edge, Stage

if TYPE_CHECKING:
    from hetplan.profiles.pipelines import Pipeline

__all__ = [
    "ONLY_STEP", "balancing_of", "combine_of", "late_of", "outcomes_of", "paths_of", "stages_by_routes",
    "stages_of", "weight_of",
]  # fmt: skip

ONLY_STEP = "serve"
"""The name of the one step of an application without a pipeline."""


def stages_of(
    profile: Profile | None, wanted: WantedApp | None, *, dispatch: Any = None, measured: bool = False, file: str = ""
) -> tuple[Stage, ...]:
    """The steps, each after all that lead to it; of `measured` operators it is known what they pass on."""
    budgets: Mapping[str, float] = getattr(dispatch, "budget_ms", None) or {}
    pipeline = pipeline_of(profile, wanted)
    if pipeline is None:
        return (Stage(ONLY_STEP, budget_ms=budgets.get(ONLY_STEP, float("inf"))),)
    return tuple(
        Stage(
            node,
            edges=tuple(
                Edge(
                    edge.to, fanout=max(by_variant.values(), default=1.0), bytes=None if measured else edge.bytes,
                    on=edge.on, by_variant=by_variant,
                )
                for edge in pipeline.edges
                if edge.from_ == node
                for by_variant in (_by_variant(edge.fanout),)
            ),
            budget_ms=budgets.get(node, float("inf")),
            outcomes=known.names if (known := pipeline.nodes[node].outcomes) is not None else (),
        )
        for node in _order_steps(pipeline, file)
    )  # fmt: skip


def _order_steps(pipeline: Pipeline, file: str) -> list[str]:
    parents = {node: {edge.from_ for edge in pipeline.edges if edge.to == node} for node in pipeline.nodes}
    ordered = [node for node in pipeline.nodes if not parents[node]]
    while len(ordered) < len(parents):
        ready = [node for node in pipeline.nodes if node not in ordered and parents[node] <= set(ordered)]
        if not ready:
            raise InputError.one(
                file=file, path="$.pipelines.edges", value=", ".join(set(parents) - set(ordered)),
                why="the steps form a cycle", remedy="Remove an edge of it.",
            )  # fmt: skip
        ordered += ready
    return ordered


def _by_variant(given: float | Mapping[str, float]) -> dict[str, float]:
    return {name: float(mean) for name, mean in given.items()} if isinstance(given, Mapping) else {"*": float(given)}


def stages_by_routes(plan: Plan, app: str) -> tuple[Stage, ...]:
    """The steps as far as the plan alone says: by the prefixes of its routes, and the outcomes that they are for."""
    held = [load for worker in plan.workers for load in worker.loads]
    node_of = {load.id: load.node or ONLY_STEP for load in held}
    routes = plan.routing.get(app, ())
    stages = {route.node or ONLY_STEP: Stage(route.node or ONLY_STEP) for route in routes}
    if not routes:
        stages = {load.node or ONLY_STEP: Stage(load.node or ONLY_STEP) for load in held if load.app == app}
    for route in routes:
        after = route.after or {}
        for parent in [node_of[load] for load in route.prefix[-1:] if load in node_of] or list(after)[-1:]:
            stage = stages.get(parent, Stage(parent))
            stages[parent] = replace(stage, edges=_with(stage.edges, route.node or ONLY_STEP, after.get(parent)))
    for load in held:
        if load.app == app and load.outcomes:
            stage = stages.get(node_of[load.id], Stage(node_of[load.id]))
            stages[stage.id] = replace(stage, outcomes=tuple(load.outcomes))
    return tuple(stages.values())


def _with(edges: tuple[Edge, ...], child: str, outcome: str | None) -> tuple[Edge, ...]:
    """One more edge; one that is always followed replaces those of single outcomes."""
    if any(edge.to == child and edge.on in (None, outcome) for edge in edges):
        return edges
    kept = edges if outcome is not None else tuple(edge for edge in edges if edge.to != child)
    return (*kept, Edge(child, on=outcome))


def combine_of(profile: Profile | None, wanted: WantedApp | None) -> Combine:
    """How the qualities of the steps are joined."""
    pipeline = pipeline_of(profile, wanted)
    return Combine.ADDITIVE if pipeline is not None and pipeline.quality.rule == "additive" else Combine.PRODUCT


def paths_of(profile: Profile | None, wanted: WantedApp | None) -> Mapping[str, float]:
    """The measured qualities of whole paths."""
    pipeline = pipeline_of(profile, wanted)
    return pipeline.quality.paths if pipeline is not None else {}


def weight_of(profile: Profile | None, wanted: WantedApp | None, node: str | None) -> float:
    """What the quality of a step counts where qualities are added."""
    pipeline = pipeline_of(profile, wanted)
    if pipeline is None or node is None or pipeline.quality.rule != "additive":
        return 1.0
    return float(pipeline.quality.weights.get(node, 1.0))


def outcomes_of(profile: Profile, wanted: WantedApp, load: Load) -> dict[str, float]:
    """How often the answers of a load come to each outcome of its step."""
    pipeline = pipeline_of(profile, wanted)
    node = pipeline.nodes.get(load.node or "") if pipeline is not None else None
    return node.outcomes.of(load.variant) if node is not None and node.outcomes is not None else {}


def late_of(dispatch: Any, wanted: WantedApp | None) -> str | None:
    """What becomes of late queries: what the plan says, else the wish; None where neither does."""
    return getattr(dispatch, "late", None) or (wanted.late if wanted is not None else None)


def balancing_of(dispatch: Any, wanted: WantedApp | None) -> str | None:
    """How queries are spread over alike workers: what the plan says, else the wish; None: at random."""
    return getattr(dispatch, "balancing", None) or (wanted.balancing if wanted is not None else None)
