"""The references of pipelines and tiers: that each leads somewhere, and to the right kind of thing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hetplan.profiles.dangling import Dangling
from hetplan.profiles.json_path import closest
from hetplan.profiles.places import Steps
from hetplan.profiles.profile import Metric, Profile

if TYPE_CHECKING:
    from hetplan.profiles.pipelines import Pipeline
    from hetplan.profiles.slo_sections import Device

__all__ = ["check_device", "check_pipeline", "check_tiers", "combined", "known_tier"]


def check_device(found: Dangling, device: Device, at: Steps) -> None:
    """The links of an application's own device join tiers of the profile."""
    for number, link in enumerate(device.links):
        for end, tier in enumerate(link.between):
            known_tier(found, tier, *at, "links", number, "between", end)


def check_pipeline(found: Dangling, name: str, pipeline: Pipeline) -> None:
    """What a pipeline names: tasks, variants, sources, its own nodes, and paths as queries take them."""
    at: Steps = ("pipelines", name)
    found.must_know("metrics", pipeline.metric, *at, "metric")
    for node_id, node in pipeline.nodes.items():
        found.must_know("tasks", node.task, *at, "nodes", node_id, "task")
        for number, call in enumerate(node.calls):
            found.must_know("apis", call.api, *at, "nodes", node_id, "calls", number, "api")
        if node.batches is not None:
            _batches_of(found, node.batches, (*at, "nodes", node_id, "batches"))
        if node.outcomes is not None:
            where: Steps = (*at, "nodes", node_id, "outcomes")
            found.must_know("sources", node.outcomes.source, *where, "source")
            for variant_id in sorted(node.outcomes.variants):
                _variant_of(found, variant_id, node.task, (*where, "share"))
    for number, edge in enumerate(pipeline.edges):
        if isinstance(edge.fanout, Mapping):
            task = pipeline.nodes[edge.from_].task
            for variant_id in edge.fanout:
                if variant_id != "*":
                    _variant_of(found, variant_id, task, (*at, "edges", number, "fanout", variant_id))
    for node_id in pipeline.quality.weights:
        _node_of(found, node_id, pipeline, (*at, "quality", "weights", node_id))
    for path in pipeline.quality.paths:
        _check_path(found, path, pipeline, (*at, "quality", "paths", path))


def _batches_of(found: Dangling, name: str, at: Steps) -> None:
    """The table of an operator's batches is of times along batch alone, from 1."""
    found.must_know("tables", name, *at)
    table = found.profile.tables.get(name)
    if table is None:
        return
    if table.quantity != "latency_ms" or list(table.axes) != ["batch"] or table.axes["batch"][0] != 1.0:
        why = "what batches take is a table of latency_ms along batch, from 1"
        found.fault(at, name, why, 'Write {"quantity": "latency_ms", "axes": {"batch": [1, 2, 4]}, "mean": [...]}.')


def _check_path(found: Dangling, path: str, pipeline: Pipeline, at: Steps) -> None:
    """Steps, variants and outcomes of a measured path are there, and the outcomes lead along it."""
    steps = [step.partition("=") for step in path.split("/")]
    for number, (node_id, _, named) in enumerate(steps):
        if not _node_of(found, node_id, pipeline, at):
            return
        node = pipeline.nodes[node_id]
        variant_id, _, outcome = named.partition(":")
        if node.task is not None:
            _variant_of(found, variant_id, node.task, at)
        known = list(node.outcomes.names) if node.outcomes is not None else []
        if outcome not in (known or [""]):
            why = f"{node_id} has no outcome {outcome!r}" if outcome else f"{node_id} has outcomes; which is it?"
            listed = f"Write one: {node_id}={variant_id}:{known[0]}." if known else f"Write {node_id}={variant_id}."
            found.fault(at, named, why, listed)
            return
        follow = {edge.to for edge in pipeline.edges if edge.from_ == node_id and edge.on in (None, outcome)}
        after = steps[number + 1][0] if number + 1 < len(steps) else None
        if known and (after not in follow if after is not None else follow):
            ends = ", ".join(sorted(follow)) or "the end"
            found.fault(at, named, f"after {node_id}:{outcome} comes {ends}", "Write the path as queries take it.")


def _node_of(found: Dangling, node_id: str, pipeline: Pipeline, steps: Steps) -> bool:
    if node_id in pipeline.nodes:
        return True
    listed = ", ".join(pipeline.nodes)
    remedy = f"{closest(node_id, pipeline.nodes)}Nodes are: {listed}."
    found.fault(steps, node_id, f"there is no node {node_id!r}", remedy)
    return False


def _variant_of(found: Dangling, variant_id: str, task: str | None, steps: Steps) -> None:
    found.must_know("variants", variant_id, *steps)
    variant = found.profile.variants.get(variant_id)
    if variant is not None and task is not None and variant.task != task:
        why = f"a variant of task {task}; {variant_id} is of {variant.task}"
        found.fault(steps, variant_id, why, "Name a variant of that task.")


def check_tiers(found: Dangling) -> None:
    """Tiers are named once; hardware and the ends of links name some of them."""
    tiers = found.profile.tiers
    if len(set(tiers)) < len(tiers):
        found.fault(("tiers",), list(tiers), "different tiers, from near to far", "Name each once.")
    for name, hardware in found.profile.hardware.items():
        known_tier(found, hardware.tier, "hardware", name, "tier")
    for name, api in found.profile.apis.items():
        known_tier(found, api.tier, "apis", name, "tier")
        if name in tiers:
            found.fault(("apis", name), name, "an API and a tier of one name", "Give the API another name.")
    for number, link in enumerate(found.profile.links):
        for end, tier in enumerate(link.between):
            known_tier(found, tier, "links", number, "between", end)


def known_tier(found: Dangling, tier: str | None, *steps: str | int) -> None:
    """A fault unless the profile has the tier (None names none)."""
    tiers = found.profile.tiers
    if tier is not None and not tiers:
        found.absent.setdefault("tiers", []).append((steps, tier, "tiers"))
    elif tier is not None and tier not in tiers:
        listed = ", ".join(tiers)
        found.fault(steps, tier, f"there is no tier {tier!r}", f"{closest(tier, tiers)}Tiers are: {listed}.")


def combined(profile: Profile, pipeline: Pipeline) -> Sequence[Metric]:
    """The range of a product of qualities, where every factor has one from 0 up."""
    if pipeline.quality.rule != "product":
        return []
    most = 1.0
    for node in pipeline.nodes.values():
        metric = profile.metric_of(node.task or "")
        if metric is None or metric.range[0] < 0:
            return []
        most *= metric.range[1]
    return [Metric(range=(0.0, most))]
