"""Hill climbing (VideoStorm) and Bayesian optimisation of one utility (Vulcan).

Both maximise the utility -(|l - L| / L + |m - A| / A) of latency l and accuracy m, whose limits are L and A.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.extend import (
    BlackBox,
    BlackBoxEngine,
    BlackBoxSearch,
    LightProcess,
    MakeProcess,
    Measured,
    Verdict,
    expected_improvement,
)

__all__ = ["VideoStorm", "Vulcan", "utility"]


def utility(form: BlackBox, plan: int, found: Measured) -> float:
    """How near a plan is to its targets; the further, the lower."""
    k = plan % len(form.placements)
    latency = float(form.at_full(found)[k])
    return -(abs(latency - form.limit_s) / form.limit_s + abs(found.mean - form.target) / max(abs(form.target), 1e-9))


class VideoStormSearch(BlackBoxSearch):
    """From a plan to the better of its neighbours, one knob or operator changed; at a peak anew at random."""

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        super().__init__(form, seed, make)
        self.here, self.height = -1, -np.inf

    def learn(self, plan: int, found: Measured) -> None:
        """Climb where it goes up."""
        if found.verdict is Verdict.SET_ASIDE:
            return
        height = utility(self.form, plan, found)
        if height > self.height:
            self.here, self.height = plan, height

    def next(self) -> int:
        """A neighbour that was not tried, or another beginning."""
        around = self._neighbours(self.here) if self.here >= 0 else np.zeros(0, dtype=np.int64)
        around = around[self.open[around]]
        if not around.size:
            self.here, self.height = -1, -np.inf
            return self.first()
        return int(self.random.choice(around))

    def _neighbours(self, plan: int) -> NDArray[np.int64]:
        form = self.form
        c, k = divmod(plan, len(form.placements))
        near_c = np.flatnonzero((form.configurations != form.configurations[c]).sum(axis=1) == 1)
        near_k = np.flatnonzero((form.placements != form.placements[k]).sum(axis=1) == 1)
        return np.concatenate([near_c * len(form.placements) + k, c * len(form.placements) + near_k])


class VulcanSearch(BlackBoxSearch):
    """One process for the utility over (configuration, placement); the plan of the most expected improvement."""

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        super().__init__(form, seed, make)
        rows = np.repeat(form.configurations, len(form.placements), axis=0)
        where = np.tile(form.placements, (len(form.configurations), 1))
        self.process = make(np.concatenate([rows, where], axis=1))

    def learn(self, plan: int, found: Measured) -> None:
        """Update the process."""
        if found.verdict is not Verdict.SET_ASIDE:
            self.process.add(plan, utility(self.form, plan, found))

    def next(self) -> int:
        """The plan of the most expected improvement."""
        if not self.process.values:
            return self.first()
        mean, sd = self.process.posterior()
        gain = expected_improvement(mean, sd, max(self.process.values))
        return int(np.argmax(np.where(self.open, gain, -1.0)))


class VideoStorm(BlackBoxEngine):
    """Hill climbing."""

    name: ClassVar[str] = "videostorm"
    search: ClassVar[type[BlackBoxSearch]] = VideoStormSearch


class Vulcan(BlackBoxEngine):
    """Bayesian optimisation of one utility."""

    name: ClassVar[str] = "vulcan"
    search: ClassVar[type[BlackBoxSearch]] = VulcanSearch
