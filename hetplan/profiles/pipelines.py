"""The pipelines of a profile: what one query passes through, over which links, and what its answers come to."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict, ValidationInfo, model_validator

from hetplan.profiles.fields import (
    Amount,
    Fraction,
    Id,
    Key,
    Later,
    Model,
    Named,
    PositiveAmount,
    PositiveCount,
    Real,
    as_id,
    wrong,
)

if TYPE_CHECKING:
    from hetplan.profiles.apis import ApiCall as _ApiCall
    from hetplan.profiles.knobs import KnobSpace as _KnobSpace
else:
    _ApiCall = Annotated[Any, Later("hetplan.profiles.apis:ApiCall")]
    _KnobSpace = Annotated[Any, Later("hetplan.profiles.knobs:KnobSpace")]

__all__ = ["Edge", "Link", "Node", "Outcomes", "PathQuality", "Pipeline"]

_SHARES_MATCH = 1e-6
"""Shares that differ from a sum of 1 by less were rounded."""


def _id_or_star(value: object, info: ValidationInfo) -> object:
    return value if value == "*" else as_id(value, info)


IdOrStar = Annotated[str, Strict(), BeforeValidator(_id_or_star)]
"""An id, or "*" for any other."""

_PATH = re.compile(r"[a-z0-9][a-z0-9._-]*=[^=/]+(/[a-z0-9][a-z0-9._-]*=[^=/]+)*\Z")


def _path_key(value: object) -> object:
    if isinstance(value, str) and not _PATH.match(value := value.lower()):
        raise wrong("a path is node=variant steps joined by /", 'Write for instance "d=yolo-n/c=rn50".')
    return value


PathKey = Annotated[str, Strict(), BeforeValidator(_path_key)]
"""A path through a pipeline: "node=variant/node=variant"."""


class Link(Model):
    """A network link between two tiers."""

    between: tuple[Id, Id]
    bandwidth_mbps: PositiveAmount
    latency_ms: Amount = 0.0

    @model_validator(mode="after")
    def _two_ends(self) -> Link:
        if self.between[0] == self.between[1]:
            raise wrong("a link joins two different tiers", "Name the other tier.", at=("between", 1))
        return self


class Outcomes(Model):
    """What answers of a step come to ("sure", "unsure"), and how often: shares that sum to 1.

    A share is a number, or one per variant ("*" for any other). For an operator the evaluator says what each answer
    came to (`measured` names the outcomes), by the steps that then ran: how often that is depends on its knobs.

    >>> Outcomes(share={"sure": {"m1": 0.7, "*": 0.5}, "unsure": {"m1": 0.3, "*": 0.5}}).of("m1")
    {'sure': 0.7, 'unsure': 0.3}
    """

    share: Named[Fraction | dict[IdOrStar, Fraction]] = Field(default_factory=dict)
    measured: tuple[Id, ...] = Field(
        default=(), description="outcomes whose shares are measured with each configuration"
    )
    source: Id | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The outcomes that there are."""
        return self.measured or tuple(self.share)

    def of(self, variant: str | None) -> dict[str, float]:
        """The share of each outcome in the answers of a variant; empty where nothing says it of this one."""
        found = {name: _of_variant(share, variant) for name, share in self.share.items()}
        known = {name: share for name, share in found.items() if share is not None}
        return known if len(known) == len(found) else {}

    @property
    def variants(self) -> set[str]:
        """The variants that are named."""
        return {name for share in self.share.values() if isinstance(share, dict) for name in share} - {"*"}

    @model_validator(mode="after")
    def _sum_to_one(self) -> Outcomes:
        if bool(self.share) == bool(self.measured):
            remedy = 'Write "share": {"sure": 0.7, "unsure": 0.3}, or "measured": ["sure", "unsure"].'
            raise wrong("outcomes have stated shares, or measured ones", remedy)
        if self.measured:
            return self
        stars = all(_of_variant(share, "*") is not None for share in self.share.values())
        for name in [*sorted(self.variants), *(["*"] if stars else [])]:
            missing = [outcome for outcome, share in self.share.items() if _of_variant(share, name) is None]
            if missing:
                why = f"there is no share of {missing[0]!r} for {name}"
                raise wrong(why, 'Add it, or one for any other variant: "*".', at=("share", missing[0]))
            total = sum(self.of(name).values())
            if abs(total - 1.0) > _SHARES_MATCH:
                whose = "" if name == "*" else f" of {name}"
                raise wrong(f"the shares{whose} sum to {total:.6g}, not 1", "Give every outcome its share.")
        return self


def _of_variant(share: float | dict[str, float], variant: str | None) -> float | None:
    return share.get(variant or "*", share.get("*")) if isinstance(share, dict) else share


class Node(Model):
    """A step of a pipeline: a task for which a variant is chosen, or an operator with knobs."""

    task: Id | None = None
    device: Literal["cpu", "gpu"] | None = None
    reads: tuple[Key, ...] = ()
    share_law: Literal["flops", "batch"] = "flops"
    needs: dict[Key, Amount] = Field(default_factory=dict)
    outcomes: Outcomes | None = Field(default=None, description="what its answers come to, where what follows depends")
    calls: tuple[_ApiCall, ...] = Field(default=(), description="at which levels of its knobs it is a call of an API")
    model: Id | None = Field(
        default=None, description="operators of one model share replicas where queries have a rate"
    )
    batches: Id | None = Field(
        default=None, description="a table of what several queries at once take, where queries have a rate"
    )

    @model_validator(mode="after")
    def _does_something(self) -> Node:
        if self.task is None and self.device is None:
            raise wrong("a node has a task, or is an operator on a device", 'Add "task" or "device": "cpu" or "gpu".')
        if self.model is not None and self.device is None:
            why = "what is said of a model is about an operator"
            raise wrong(why, "Leave it out: no other operator shares these replicas.", at=("model",))
        if self.batches is not None and self.device is None:
            why = "batches are of an operator"
            raise wrong(why, "Leave it out: it serves one query at a time.", at=("batches",))
        if self.task is not None and self.device is not None:
            why = "a step runs variants of a task, or is an operator on a device, not both"
            raise wrong(why, "Leave one of them out.", at=("device",))
        for name in ("reads", "share_law", "needs", "calls") if self.device is None else ():
            if getattr(self, name) != type(self).model_fields[name].get_default(call_default_factory=True):
                why = "it is about an operator, and this step runs variants of a task"
                raise wrong(why, "Leave it out: what variants need and take is said by their runs.", at=(name,))
        return self


class Edge(Model):
    """What flows between two nodes: queries per query, by the variant upstream ("*" for any other), and bytes.

    With `on`, only queries of that outcome follow it; a query that no edge takes on ends where it is.
    """

    from_: Id = Field(alias="from")
    to: Id
    on: Id | None = Field(default=None, description="an outcome of the node upstream")
    fanout: Amount | dict[IdOrStar, Amount] = 1.0
    bytes: Amount | None = None


class PathQuality(Model):
    """How qualities along a path combine; a measured path ("d=yolo-n/c=rn50") wins over the rule.

    A step with outcomes is written with the one that the path has: "small=m1:unsure/large=m2".
    """

    rule: Literal["product", "additive", "table"] = "product"
    weights: Named[Amount] = Field(default_factory=dict, description="per node, for rule additive")
    paths: dict[PathKey, Real] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_rule(self) -> PathQuality:
        if self.weights and self.rule != "additive":
            raise wrong('weights are for quality "additive"', 'Write "additive", or drop them.', at=("weights",))
        if self.rule == "table" and not self.paths:
            raise wrong('quality "table" needs measured paths', 'Add "paths": {"node=variant/node=variant": quality}.')
        return self


class Pipeline(Model):
    """A tree or DAG of steps that one query passes through."""

    nodes: Named[Node] = Field(min_length=1)
    edges: tuple[Edge, ...] = ()
    quality: PathQuality = Field(default_factory=PathQuality)
    knobs: dict[Key, tuple[Any, ...]] = Field(default_factory=dict)
    space: _KnobSpace | None = Field(default=None, description="knobs that are ranges, conditions and rules of knobs")
    metric: Id | None = None
    share_grid: tuple[Fraction, ...] = ()
    evaluator: Key | None = None
    strata: PositiveCount | str | None = Field(default=None, description="a count, or the feature file defining them")

    @model_validator(mode="after")
    def _hangs_together(self) -> Pipeline:
        joined: set[tuple[str, str]] = set()
        for number, edge in enumerate(self.edges):
            for end, node in (("from", edge.from_), ("to", edge.to)):
                if node not in self.nodes:
                    listed = ", ".join(self.nodes)
                    raise wrong(f"there is no node {node!r}", f"Nodes are: {listed}.", at=("edges", number, end))
            if (edge.from_, edge.to) in joined:
                raise wrong("these two nodes are joined already", "Keep one edge.", at=("edges", number))
            joined.add((edge.from_, edge.to))
            self._check_outcome(number, edge)
        circle = _circle(set(self.nodes), joined)
        if circle:
            listed = " > ".join(circle)
            raise wrong(f"the edges run in a circle: {listed}", "Remove one of its edges.", at=("edges",))
        self._check_knobs()
        if len({to for _, to in joined}) < len(joined):
            for name, step in self.nodes.items():
                if step.outcomes is not None:
                    why = "no step has outcomes where branches meet: it would not be known what to wait for"
                    remedy = (
                        'Write the step once after each branch (with one "model" they share), or drop the outcomes.'
                    )
                    raise wrong(why, remedy, at=("nodes", name, "outcomes"))
        return self

    @property
    def has_outcomes(self) -> bool:
        """Whether what follows a step depends on what its answer comes to."""
        return any(node.outcomes is not None for node in self.nodes.values())

    def _check_outcome(self, number: int, edge: Edge) -> None:
        known = self.nodes[edge.from_].outcomes
        if edge.on is not None and (known is None or edge.on not in known.names):
            listed = ", ".join(known.names) if known is not None else "none"
            why = f"{edge.from_} has no outcome {edge.on!r}"
            raise wrong(why, f"Outcomes of {edge.from_} are: {listed}.", at=("edges", number, "on"))

    def way(self, ran: Collection[str]) -> dict[str, str] | None:
        """What the answers of a query came to that ran these steps and no others; None where no query does.

        >>> nodes = {"s": {"device": "cpu", "outcomes": {"measured": ["sure", "unsure"]}}, "l": {"device": "gpu"}}
        >>> pipeline = Pipeline.model_validate({"nodes": nodes, "edges": [{"from": "s", "to": "l", "on": "unsure"}]})
        >>> pipeline.way({"s"}), pipeline.way({"s", "l"}), pipeline.way({"l"})
        ({'s': 'sure'}, {'s': 'unsure'}, None)
        """
        found: dict[str, str] = {}
        for name, node in self.nodes.items():
            before = [edge.from_ for edge in self.edges if edge.to == name]
            if (name not in ran and not before) or (name in ran and not set(before) <= set(ran)):
                return None
            after = {edge.to for edge in self.edges if edge.from_ == name and edge.to in ran}
            fits = [
                outcome
                for outcome in (("",) if node.outcomes is None else node.outcomes.names)
                if after == {edge.to for edge in self.edges if edge.from_ == name and edge.on in (None, outcome)}
            ]
            if name in ran and not fits:
                return None
            if name in ran and node.outcomes is not None:
                found[name] = fits[0]
        return found

    @property
    def levels(self) -> dict[str, tuple[Any, ...]]:
        """The levels of every knob, those of ranges among them."""
        return self.knobs if self.space is None else self.space.levels(self.knobs)

    def _check_knobs(self) -> None:
        if self.space is not None:
            self.space.check(self.knobs)
        for knob, levels in self.knobs.items():
            if not levels:
                raise wrong("a knob has at least one level", "List its levels, or drop it.", at=("knobs", knob))
        for name, node in self.nodes.items():
            for number, knob in enumerate(node.reads):
                if knob not in self.levels:
                    listed = ", ".join(self.levels) or "none"
                    raise wrong(
                        f"there is no knob {knob!r}",
                        f"Add it under knobs; there are: {listed}.",
                        at=("nodes", name, "reads", number),
                    )
        if self.share_grid and 1.0 not in self.share_grid:
            raise wrong("the grid of shares holds 1, the whole device", "Add 1.", at=("share_grid",))
        if 0.0 in self.share_grid:
            raise wrong("a share of 0 runs nothing", "Drop the 0.", at=("share_grid", self.share_grid.index(0.0)))


def _circle(nodes: set[str], edges: set[tuple[str, str]]) -> list[str]:
    """Some circle of the graph, its first node repeated at the end; empty where there is none."""
    left = set(nodes)
    while True:
        # Nodes with no edge coming in from those left cannot be on a circle.
        free = left - {to for from_, to in edges if from_ in left}
        if not free:
            break
        left -= free
    if not left:
        return []
    before = {to: from_ for from_, to in sorted(edges) if from_ in left and to in left}
    walk = [min(left)]
    while walk[-1] not in walk[:-1]:
        walk.append(before[walk[-1]])
    return walk[walk.index(walk[-1]) :][::-1]
