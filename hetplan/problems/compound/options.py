"""The options of compound queries: search, measurement and packing."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from hetplan.planner.contract import Options, Sizing
from hetplan.profiles.fields import Id

__all__ = ["FEWEST_SAMPLES", "CompoundOptions", "PaperOptions"]

FEWEST_SAMPLES, FEWEST_OF_QUALITY = 50, 200
"""Samples of a candidate of which it must be known whether it meets its limit, and of one whose quality is compared."""

Packing = Annotated[
    Literal[
        "dual",
        "dual-core",
        "greedy",
        "greedy-sum",
        "greedy-norm",
        "greedy-max",
        "greedy-l2",
        "greedy-stop",
        "fcfs",
        "exact",
        "exact-cp-sat",
    ],
    Field(
        description="how one candidate is chosen for every query, within all limits together; greedy: the best of the "
        "norms that add demands on several tiers; greedy-stop: until the first that does not fit"
    ),
]
SEARCH = (
    "how candidates of one query are searched for: struct-ci, struct, cmbo, cmbo-ci, random, or a solver for black "
    "boxes of another package"
)
Search = Annotated[Id, Field(description=SEARCH)]
StopRule = Annotated[
    Literal["betting", "t", "fixed"],
    Field(description="when measuring stops: betting is valid at every sample, t (paper) not, fixed takes samples_max"),
]


class CompoundOptions(Options):
    """Options of both stages: search and measurement per query, then packing."""

    packing: Packing = "dual"
    search: Search = "struct-ci"
    max_measurements: int = Field(default=60, ge=1, description="most candidates measured per query")
    measure_s: float | None = Field(default=None, gt=0, description="time on the reference GPU per query, in seconds")
    stop_rule: StopRule = "betting"
    confidence: float = Field(
        default=0.99, gt=0.5, lt=1, description="confidence of statements on accuracy and latency"
    )
    samples_min: int | None = Field(
        default=None, ge=2, description="fewest samples of a candidate; left out: 50, or 200 if quality is an objective"
    )
    samples_max: int = Field(default=1000, ge=2, description="most samples of a candidate")
    front_points: int = Field(default=20, ge=2, description="most points of a Pareto front")
    early_stop: bool = Field(
        default=True,
        description="stop measuring candidates that are late everywhere, or no cheaper than one that meets the SLO",
    )
    undecided: Literal["sign", "reject"] = Field(
        default="sign",
        description="undecided at samples_max: the sign of mean - target decides, or the candidate is rejected",
    )
    confirm: bool = Field(
        default=False, description="measure the cheapest candidate further, up to 4 samples_max, before it is planned"
    )
    retry: bool = Field(
        default=False, description="measure again the candidates that failed in an earlier run of the journal"
    )
    sizing: Sizing = Field(
        default="simulation",
        description="how waiting is taken into account, for queries with a rate; fluid: not at all; formula: by a "
        "queueing formula; simulation: by the formula, confirmed or corrected by simulation",
    )
    max_simulations: int = Field(
        default=15, ge=1, le=50, description="most plans simulated, for queries with a rate (sizing simulation)"
    )
    alternatives: int = Field(default=20, ge=1, description="most candidates per query that packing may choose from")

    @property
    def samples_of_quality(self) -> int:
        """Fewest samples of a candidate if quality is an objective."""
        return self.samples_min or FEWEST_OF_QUALITY


class PaperOptions(CompoundOptions):
    """The paper's defaults: CMBO, its t-test, the greedy rule."""

    packing: Packing = "greedy-sum"
    search: Search = "cmbo"
    stop_rule: StopRule = "t"
