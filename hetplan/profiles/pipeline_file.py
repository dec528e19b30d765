"""Pipelines as a person writes them, format 1.0; `pipelines.py` has them as they are planned with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from hetplan.profiles.columns import Columns
from hetplan.profiles.fields import Amount, Fraction, Id, Key, Later, Model, Named, PositiveCount, Real
from hetplan.profiles.pipelines import Edge, IdOrStar, PathKey

if TYPE_CHECKING:
    from hetplan.profiles.knobs import KnobSpace as _KnobSpace
else:
    _KnobSpace = Annotated[Any, Later("hetplan.profiles.knobs:KnobSpace")]

__all__ = ["Call", "PipelineEntry", "Stage"]


class Call(Model):
    """A stage is a call of this API where its knobs have one of these levels; then it runs on no machine."""

    api: Id
    where: dict[Key, tuple[Any, ...]] = Field(min_length=1)
    tokens_in: Amount = 0.0
    tokens_out: Amount = 0.0


class Stage(Model):
    """A stage of a pipeline: a task for which a model is chosen, or an operator with knobs on a resource."""

    task: Id | None = Field(default=None, description="by default its id, in a pipeline without knobs and evaluator")
    resource: Literal["cpu", "gpu"] | None = Field(
        default=None, description="of an operator: what its share is of; by default gpu where machines have one"
    )
    reads: tuple[Key, ...] = Field(default=(), description="knobs")
    share_law: Literal["flops", "batch"] = "flops"
    needs: dict[Key, Amount] = Field(default_factory=dict)
    outcomes: Named[Fraction | dict[IdOrStar, Fraction]] | tuple[Id, ...] | None = Field(
        default=None, description="what its answers come to: shares, by model where they differ; or a list if measured"
    )
    calls: tuple[Call, ...] = Field(default=(), description="at which levels of its knobs it is a call of an API")
    model: Id | None = Field(default=None, description="operators of one model share replicas")
    batches: Columns | None = Field(default=None, description="what several queries at once take")


class PipelineEntry(Model):
    """A tree or DAG of stages that one query passes through."""

    stages: Named[Stage] = Field(default_factory=dict, description="may be left out where edges name them")
    edges: tuple[Edge, ...] = ()
    quality: Literal["product", "additive", "table"] = Field(default="product", description="how qualities combine")
    weights: Named[Amount] = Field(default_factory=dict, description="per stage, for quality additive")
    paths: dict[PathKey, Real] = Field(default_factory=dict, description="measured qualities of whole paths")
    knobs: dict[Key, tuple[Any, ...]] = Field(default_factory=dict)
    space: _KnobSpace | None = Field(default=None, description="knobs that are ranges, conditions and rules of knobs")
    metric: Id | None = None
    share_grid: tuple[Fraction, ...] = ()
    evaluator: Key | None = None
    strata: PositiveCount | str | None = Field(default=None, description="a count, or the feature file defining them")
