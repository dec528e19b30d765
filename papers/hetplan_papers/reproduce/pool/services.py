"""The five published services as their simulation and their planner take them, and changed: mix, target, budget."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import erf, sqrt
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from hetplan.extend import PoolConditions, SimulatedPool
from hetplan_papers.datasets import kairos
from hetplan_papers.datasets.sources import Json, read

__all__ = ["BUDGET", "EXPONENTIAL", "MODELS", "WHOLE_MS", "Counts", "Service", "Setting", "gaussian", "service"]

MODELS = kairos.MODELS
BUDGET = "2.5"
Counts = tuple[int, ...]

NO_SHARE = 1e-6
"""Sizes rarer than this do not come at all in a mix made here: no run has as many queries."""


@dataclass(frozen=True)
class Setting:
    """What a simulation assumes besides service, pool and rule."""

    arrivals: Literal["poisson", "integer-poisson"] = "poisson"
    misprediction: float = 0.0


EXPONENTIAL = Setting()
"""Gaps between arrivals are exponential, as in the stored simulations."""

WHOLE_MS = Setting("integer-poisson")
"""Gaps are whole milliseconds, Poisson distributed, as the published code draws them: smoother."""


@dataclass(frozen=True, eq=False)
class Service:
    """One model on the four types: latency by type and size, mix, target. `label` names what was changed of it."""

    model: str
    data: Path
    types: tuple[str, ...]
    prices: tuple[float, ...]
    sizes: tuple[float, ...]
    pmf: tuple[float, ...]
    qos_ms: float
    label: str = ""

    @property
    def key(self) -> str:
        """Model and what was changed of it."""
        return f"{self.model} {self.label}".strip()

    @cached_property
    def latency(self) -> dict[str, NDArray[np.float64]]:
        """Mean, standard deviation and maximum, ms, a row per type."""
        tables = read("kairos/kairos_latency.json", self.data)[self.model]
        return {kind: np.array([tables[name][kind] for name in self.types]) for kind in ("mean_ms", "std_ms", "max_ms")}

    def pool(self, counts: Counts) -> SimulatedPool:
        """These instances, to be simulated."""
        return SimulatedPool.of(self.latency["mean_ms"], counts, self.qos_ms, sizes=self.sizes)

    def conditions(self, setting: Setting) -> PoolConditions:
        """Service times drawn as lognormal of the published mean and deviation, cut at the published most."""
        return PoolConditions(
            noise="lognormal",
            std_ms=self.latency["std_ms"],
            max_ms=self.latency["max_ms"],
            misprediction=setting.misprediction,
            arrivals=setting.arrivals,
        )

    def cost(self, counts: Counts) -> float:
        """USD per hour."""
        return sum(price * count for price, count in zip(self.prices, counts, strict=True))

    def inputs(self, budget: str = BUDGET) -> tuple[Json, Json]:
        """Profile and SLO, as a user of hetplan would hand them in."""
        profile, slo = kairos.inputs(self.model, budget=budget, qos_ms=self.qos_ms, data=self.data)
        slo["apps"]["rank"]["mix"]["share"] = list(self.pmf)
        return profile, slo

    def changed(self, label: str, **how: Any) -> Service:
        """The service with something else: another mix, another target."""
        return replace(self, label=label, **how)


def service(model: str, data: Path) -> Service:
    """A published service as it is."""
    instance = cast("Json", read("kairos/kairos_instance.json", data))
    mix = read("kairos/batch_size_pmf.json", data)["kairos"]
    types = tuple(instance["types"])
    return Service(
        model=model,
        data=data,
        types=types,
        prices=tuple(instance["prices"][name] for name in types),
        sizes=tuple(mix["batch"]),
        pmf=tuple(mix["pmf"]),
        qos_ms=instance["qos_ms_p99"][model],
    )


def gaussian(like: Service, centre: float | None = None) -> Service:
    """The service with Gaussian sizes of the published mix's deviation, around its mean or another centre.

    Neither the paper nor its code says which Gaussian it used.
    """
    sizes, pmf = np.asarray(like.sizes), np.asarray(like.pmf)
    mean = float(sizes @ pmf)
    deviation = sqrt(float((sizes - mean) ** 2 @ pmf))
    middle = mean if centre is None else centre
    edges = [0.0, *sizes.tolist()]
    upto = np.array([0.5 * (1.0 + erf((edge - middle) / (deviation * sqrt(2.0)))) for edge in edges])
    share = np.diff(upto)
    share[share < NO_SHARE] = 0.0
    share /= share.sum()
    return like.changed(f"gaussian({middle:.0f},{deviation:.0f})", pmf=tuple(share.tolist()))
