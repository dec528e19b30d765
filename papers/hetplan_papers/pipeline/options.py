"""What may be set about the formulations of pipelines."""

from __future__ import annotations

from pydantic import Field

from hetplan.extend import PipelineOptions, Sizing

__all__ = ["InferLineOptions", "ProteusOptions"]

PLANNED = "as in the papers: servers filled up to `headroom`, and nothing simulated"


class InferLineOptions(PipelineOptions):
    """`inferline`: one fixed variant per step, fewest servers."""

    sizing: Sizing = Field(default="fluid", description=PLANNED)
    variants: dict[str, str] = Field(
        default_factory=dict, description="step -> variant; by default those of the most accurate path in time"
    )


class ProteusOptions(PipelineOptions):
    """`proteus`: every step plans on its own, for the traffic that the others send it."""

    sizing: Sizing = Field(default="fluid", description=PLANNED)
    slo_divisor: float = Field(default=1.0, ge=1, description="paths are judged by the latency target itself")
    step_divisor: float = Field(default=2.0, ge=1, description="latency target / time that one step may take")
    iterations: int = Field(default=12, ge=1, le=100, description="rounds until the steps' traffic must have settled")
