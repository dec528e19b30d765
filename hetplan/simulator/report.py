"""What a simulation says: figures with intervals, and promised against simulated line by line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from hetplan.profiles.fields import NANO
from hetplan.simulator.figures import Estimate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetplan.simulator.plan_transition import TransitionReport

__all__ = ["FORMAT", "AppReport", "GroupReport", "Line", "SimulationReport", "Timeline", "Verdict", "judge"]

FORMAT = "hetplan/simulation/1.0"


class Verdict(StrEnum):
    """What became of a promise.

    Only `BROKEN` fails a plan: the simulated interval lies wholly on the wrong side. `UNDECIDED` is an interval that
    holds the promised value, with the mean on the wrong side, or a run too short for its percentile: more seeds, or a
    longer run, would tell. `REPORTED` stands beside a promise by a model that knows no queueing, or of something
    nobody wished to be judged. `NOT_SIMULATED` was not played: a promised rate above the one that was, for instance.
    """

    KEPT = "kept"
    BROKEN = "broken"
    UNDECIDED = "undecided"
    REPORTED = "reported"
    NOT_SIMULATED = "not-simulated"


@dataclass(frozen=True)
class Line:
    """One promise, or one wish of the SLO file, and what simulation says of it."""

    app: str | None
    quantity: str
    percentile: float | None
    relation: str
    promised: float
    by: str
    """"slo", or the model by which the plan promises it."""
    simulated: Estimate | None
    verdict: Verdict

    def __str__(self) -> str:
        about = f"{self.app}: " if self.app else ""
        share = f" p{self.percentile:g}" if self.percentile is not None else ""
        shown = "not simulated" if self.simulated is None else _shown(self.simulated)
        return f"{about}{self.quantity}{share} {self.relation} {self.promised:.6g} ({self.by}): {shown}, {self.verdict}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        told: dict[str, Any] = {
            "app": self.app,
            "quantity": self.quantity,
            "percentile": self.percentile,
            "relation": self.relation,
            "promised": self.promised,
            "by": self.by,
            "verdict": str(self.verdict),
        }
        return told | {"simulated": self.simulated.as_dict() if self.simulated is not None else None}


def _shown(found: Estimate) -> str:
    if not math.isfinite(found.value):
        return "simulated: never reached"
    return f"simulated {found.value:.6g} [{found.low:.6g}, {found.high:.6g}]"


def judge(found: Estimate, relation: str, promised: float) -> Verdict:
    """Kept, broken or undecided.

    >>> judge(Estimate(90.0, 88.0, 92.0), "<=", 100.0), judge(Estimate(99.0, 97.0, 101.0), "<=", 100.0)
    (<Verdict.KEPT: 'kept'>, <Verdict.KEPT: 'kept'>)
    >>> judge(Estimate(101.0, 99.0, 103.0), "<=", 100.0), judge(Estimate(103.0, 101.0, 105.0), "<=", 100.0)
    (<Verdict.UNDECIDED: 'undecided'>, <Verdict.BROKEN: 'broken'>)
    """
    slack = 1e-9 * max(abs(promised), 1.0)
    if math.isnan(found.value):
        return Verdict.NOT_SIMULATED
    sign = -1.0 if relation == ">=" else 1.0
    over, surely = sign * (found.value - promised), sign * ((found.low if sign > 0 else found.high) - promised)
    if relation == "=":
        inside = found.low - slack <= promised <= found.high + slack
        return Verdict.KEPT if inside else Verdict.BROKEN
    if over <= slack:
        return Verdict.KEPT
    return Verdict.BROKEN if surely > slack else Verdict.UNDECIDED


@dataclass(frozen=True)
class AppReport:
    """The figures of one application."""

    id: str
    offered_qps: float
    queries_per_seed: int
    arrivals: str
    figures: Mapping[str, Estimate]
    percentiles_ms: Mapping[float, Estimate]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "offered_qps": self.offered_qps,
            "queries_per_seed": self.queries_per_seed,
            "arrivals": self.arrivals,
            "figures": {name: found.as_dict() for name, found in self.figures.items()},
            "percentiles_ms": {f"{at:g}": found.as_dict() for at, found in self.percentiles_ms.items()},
        }


@dataclass(frozen=True)
class GroupReport:
    """The figures of one group of workers."""

    id: str
    workers: int
    utilisation: Estimate
    waiting: Estimate
    batch: Estimate

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "workers": self.workers,
            "utilisation": self.utilisation.as_dict(),
            "waiting": self.waiting.as_dict(),
            "batch": self.batch.as_dict(),
        }


@dataclass(frozen=True)
class Timeline:
    """Means over the seeds in equal stretches of time; `late` is the share of queries not answered in time."""

    width_s: float
    waiting: NDArray[np.float64]
    utilisation: NDArray[np.float64]
    late: NDArray[np.float64]
    rate_qps: NDArray[np.float64]
    workers: NDArray[np.float64]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        rows = {name: getattr(self, name) for name in ("waiting", "utilisation", "late", "rate_qps", "workers")}
        return {"width_s": self.width_s} | {
            name: [round(float(value), 6) for value in values] for name, values in rows.items()
        }


@dataclass(frozen=True)
class SimulationReport:
    """All of it. `broken` lists what fails the plan (exit code 6)."""

    plan: str | None
    seeds: tuple[int, ...]
    duration_s: float
    noise: str
    apps: Mapping[str, AppReport]
    groups: Mapping[str, GroupReport]
    cost_per_hour: Estimate | None
    currency: str
    lines: tuple[Line, ...]
    timeline: Timeline
    events: int
    transition: TransitionReport | None = None
    """The way from the state to the plan, where a state was handed in."""
    warnings: tuple[tuple[str, str, str], ...] = field(default=())

    @property
    def broken(self) -> tuple[Line, ...]:
        """The promises and wishes that simulation breaks."""
        return tuple(line for line in self.lines if line.verdict is Verdict.BROKEN)

    @property
    def undecided(self) -> tuple[Line, ...]:
        """The promises and wishes of which these runs do not say whether they are kept."""
        return tuple(line for line in self.lines if line.verdict in (Verdict.UNDECIDED, Verdict.NOT_SIMULATED))

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return not self.broken

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data, its format version first."""
        return {
            "format": FORMAT,
            "plan": self.plan,
            "seeds": list(self.seeds),
            "duration_s": self.duration_s,
            "noise": self.noise,
            "ok": self.ok,
            "lines": [line.as_dict() for line in self.lines],
            "apps": {name: app.as_dict() for name, app in self.apps.items()},
            "groups": {name: group.as_dict() for name, group in self.groups.items()},
            "cost_per_hour": self.cost_per_hour.as_dict() if self.cost_per_hour is not None else None,
            "currency": self.currency,
            "events": self.events,
            "timeline": self.timeline.as_dict(),
            "transition": self.transition.as_dict() if self.transition is not None else None,
            "warnings": [{"code": code, "at": at, "text": text} for code, at, text in self.warnings],
        }


def cost_of(nanos_ms: float, horizon_ms: float) -> float:
    """Currency units per hour from prices (1e-9 per hour) times milliseconds paid, over a run."""
    return float(f"{nanos_ms / NANO / horizon_ms:.12g}") if horizon_ms > 0 else 0.0
