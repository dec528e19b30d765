"""Worker groups and their loads: the shape that a plan wants and that a state reports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict

from hetplan.profiles.fields import Count, Fraction, Id, Key, Model, NonNegative, PositiveCount, Real, wrong

__all__ = ["Load", "Serve", "Share", "Worker"]


MOST_AT_ONCE = 1_000_000
"""More queries in a batch, or batches at once, is a slip, or a plan that means harm."""
LONGEST_WAIT_MS = 3_600_000.0
"""So is a longer wait for a batch to fill."""
MOST_MACHINES = 1_000_000_000
"""So are more instances or machines: their sums and prices would not fit a machine's whole numbers."""


def _so_many(value: int) -> int:
    if value > MOST_MACHINES:
        raise wrong(f"at most {MOST_MACHINES:g} instances or machines", "Check the number.")
    return value


AtOnce = Annotated[int, Strict(), Field(ge=1, le=MOST_AT_ONCE)]


class Serve(Model):
    """How a load serves: batches up to this size, waiting this long for more, this many at once.

    Where text is made, its front sends it so many requests at a time, and refuses more. An engine that itself runs no
    more than these (`most_seqs`) has no such cap: it queues what else comes.
    """

    max_batch: AtOnce = 1
    max_wait_ms: Annotated[NonNegative, Field(le=LONGEST_WAIT_MS)] = 0.0
    concurrency: AtOnce = 1
    most_tokens: PositiveCount | None = Field(default=None, description="tokens of an iteration, where text is made")
    most_seqs: PositiveCount | None = Field(default=None, description="sequences at once, where text is made")

    @property
    def sent(self) -> int:
        """How many it is sent at a time: as many as an engine runs, where nothing is said of its front."""
        return self.concurrency if self.concurrency > 1 or self.most_seqs is None else self.most_seqs


class Share(Model):
    """A slice of a device, and what enforces it."""

    gpu: Fraction | None = None
    cpu_cores: NonNegative | None = None
    enforce: Literal["mps", "mig", "cgroup", "none"] = "none"


class Load(Model):
    """A variant (or an operator with its knobs) held by each worker of the group.

    `at` names the run: with the variant and the worker's hardware it says which of the profile's runs this is ({} for a
    run without `at`). Only where one run is possible may it be left out.
    """

    id: Id
    app: Id | None = None
    node: Id | None = None
    variant: Id | None = None
    at: dict[Key, Real] | None = Field(default=None, description="the `at` of the run that this load is")
    artifact: str | None = None
    knobs: dict[Key, Any] = Field(default_factory=dict)
    instances: Annotated[PositiveCount, AfterValidator(_so_many)] = 1
    share: Share | None = None
    outcomes: dict[Id, Fraction] | None = Field(default=None, description="what its answers come to, and how often")
    serve: Serve = Field(default_factory=Serve)

    @property
    def called(self) -> str:
        """What site.toml calls it: its model, else its stage."""
        return self.variant or self.node or self.id


class Worker(Model):
    """A group of `count` alike workers. `queue` is shared by its loads, or one per load."""

    id: Id
    period: Id = "t0"
    hardware: Id
    offer: Id | None = None
    host: Id | None = None
    count: Annotated[PositiveCount, AfterValidator(_so_many)] = 1
    standby: Annotated[Count, AfterValidator(_so_many)] = 0
    queue: Literal["shared", "per-load"] = "shared"
    loads: tuple[Load, ...] = ()
