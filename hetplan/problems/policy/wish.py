"""What an SLO asks of a policy: for each application its target, its load and how queries come; and the workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.problems.faults import Faults
from hetplan.profiles.plan import Notice
from hetplan.profiles.slo import RateRange

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.slo import App

__all__ = ["AppWish", "Workers", "dispersion", "read_apps", "read_workers", "wants_fewest"]

Floats = NDArray[np.float64]

_LEAST_ARRIVALS = 1000
_MOST_STAGES = 200
"""More stages than this, and than workers, are planned as so many: the gaps vary by seven percent then."""
_BURSTIEST = 0.75
"""Own inter-arrival times with a gamma shape below this are too far from any Erlang."""


@dataclass(frozen=True)
class AppWish:
    """One application. `loads_qps` is one rate, or the ends of a range; `shape` that of gamma inter-arrival times.

    `accuracy_least` and `violation_most` are stated targets; `percentile_violation` is what the latency target's
    percentile says of lateness, which is told where it is missed but stops no plan.
    """

    app_id: str
    app: App
    slo_s: float
    loads_qps: tuple[float, ...]
    shape: float
    late: Literal["serve", "drop"]
    balancing: Literal["round_robin", "shortest_queue"]
    accuracy_least: float | None
    violation_most: float | None
    percentile_violation: float
    times_s: Floats | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def stated(self) -> bool:
        """Whether a target is stated that a plan must keep."""
        return self.accuracy_least is not None or self.violation_most is not None

    def stages(self, workers: int, *, clamp: bool) -> tuple[int, float, str]:
        """K stages at one of so many workers under round robin, their rate per load, and what was rounded.

        Raises ValueError where arrivals are burstier than any Erlang and `clamp` is not set.
        """
        exact = workers * self.shape
        if exact < _BURSTIEST and not clamp:
            raise ValueError(f"own inter-arrival times have gamma shape {exact:.3g}, burstier than Poisson")
        stages = min(max(1, round(exact)), max(workers, _MOST_STAGES))
        if abs(exact - stages) < 1e-9:
            return stages, self.shape, ""
        return (
            stages,
            stages / workers,
            f"own inter-arrival times of gamma shape {exact:.4g} planned as Erlang({stages})",
        )


@dataclass(frozen=True)
class Workers:
    """How many workers of one hardware there may be."""

    hardware: str
    least: int
    most: int | None


def wants_fewest(inputs: Inputs) -> bool:
    """Whether the first thing asked for is few servers."""
    return bool(inputs.slo.objective) and inputs.slo.objective[0].min == "servers"


def read_workers(inputs: Inputs, faults: Faults) -> tuple[Workers, ...]:
    """The workers that the SLO gives."""
    found = []
    for hardware, (least, most) in inputs.slo.limits.instances.items():
        path = f"$.limits.instances.{hardware}"
        if hardware not in inputs.profile.hardware:
            faults.in_slo(path, "no hardware of the profile", f"Name one of {', '.join(inputs.profile.hardware)}.")
        elif most == 0 or (most is not None and most > 10_000):
            faults.in_slo(path, "between 1 and 10000 workers", "Write how many there are.", value=most)
        else:
            found.append(Workers(hardware, least, most))
    return tuple(found)


def read_apps(inputs: Inputs, faults: Faults) -> tuple[AppWish, ...]:
    """Every application of the SLO."""
    wishes = (_read_app(inputs, app_id, app, faults) for app_id, app in inputs.slo.apps.items())
    return tuple(wish for wish in wishes if wish is not None)


def _read_app(inputs: Inputs, app_id: str, app: App, faults: Faults) -> AppWish | None:
    at = f"$.apps.{app_id}"
    before = len(faults.found)
    targets = sorted((t for t in app.latency if t.of == "response"), key=lambda t: t.max_ms)
    if not targets:
        faults.in_slo(f"{at}.latency", "a policy decides by the slack to a response target", "Give one.")
        return None
    slo_ms = targets[0].max_ms - app.network_ms_per_hop
    if slo_ms <= 0:
        faults.in_slo(
            f"{at}.network_ms_per_hop",
            "the network alone takes the whole latency target",
            "Raise max_ms above it.",
            value=app.network_ms_per_hop,
        )
        return None
    if app.late not in ("serve", "drop"):
        faults.in_slo(
            f"{at}.late", "a policy serves late queries or drops them", 'Write "serve" or "drop".', value=app.late
        )
    shape, times, notices = _arrivals(inputs, app_id, app, slo_ms / 1000.0, faults)
    loads = _loads(app_id, app, times, faults)
    allowed = 1.0 - targets[0].percentile / 100.0
    if app.quality is not None and app.quality.max is not None:
        faults.in_slo(f"{at}.quality.max", "a policy's accuracy is better when higher", "State a min.")
    if len(faults.found) > before:
        return None
    return AppWish(
        app_id,
        app,
        slo_ms / 1000.0,
        loads,
        shape,
        "drop" if app.late == "drop" else "serve",
        app.balancing or "round_robin",
        app.quality.min if app.quality is not None else None,
        app.violations.max if app.violations is not None else None,
        allowed,
        times,
        tuple(notices),
    )


def _loads(app_id: str, app: App, times: Floats | None, faults: Faults) -> tuple[float, ...]:
    rate, at = app.demand.rate_qps, f"$.apps.{app_id}.demand.rate_qps"
    if app.demand.history_qps is not None:
        faults.in_slo(
            f"$.apps.{app_id}.demand.history_qps", "a policy is made for stated loads", "Give rate_qps, or a range."
        )
    if isinstance(rate, RateRange):
        if rate.low >= rate.high:
            faults.in_slo(
                at, "low is below high", "Swap them, or give one number.", value=f"{rate.low:g}, {rate.high:g}"
            )
        return (rate.low, rate.high)
    if isinstance(rate, int | float):
        if rate <= 0:
            faults.in_slo(at, "a policy needs a load above 0", "Give queries per second, or a range.", value=rate)
        return (float(rate),)
    if times is not None:
        return ((times.size - 1) / float(times[-1] - times[0]),)
    faults.in_slo(at, "a policy is made for a load", "Give queries per second, or a range.", value=rate)
    return ()


def _arrivals(
    inputs: Inputs, app_id: str, app: App, slo_s: float, faults: Faults
) -> tuple[float, Floats | None, list[Notice]]:
    """The gamma shape of the inter-arrival times, recorded times where there are any, and what to tell of them."""
    arrivals, at = app.demand.arrivals, f"$.apps.{app_id}.demand.arrivals"
    if app.demand.trace is not None or arrivals.process == "empirical":
        return _recorded(inputs, app_id, slo_s, faults)
    if arrivals.process == "gamma":
        if arrivals.shape is None:
            faults.in_slo(f"{at}.shape", "gamma arrivals have a shape", "Give it; 1 is Poisson.")
        return arrivals.shape or 1.0, None, []
    if arrivals.process != "poisson":
        faults.in_slo(
            f"{at}.process",
            f"policies are made for poisson, gamma or recorded arrivals, not {arrivals.process}",
            "For a rate that changes give a range of rates; for regular arrivals a gamma with a large shape.",
        )
    return 1.0, None, []


def _recorded(inputs: Inputs, app_id: str, slo_s: float, faults: Faults) -> tuple[float, Floats | None, list[Notice]]:
    at = f"$.apps.{app_id}.demand.trace"
    if app_id not in inputs.traces:
        faults.in_slo(at, "recorded arrivals need a trace", "Name its file.")
        return 1.0, None, []
    times = np.asarray(inputs.traces[app_id], dtype=float)
    if times.size < _LEAST_ARRIVALS:
        faults.in_slo(at, f"{times.size} arrivals say too little", f"Record at least {_LEAST_ARRIVALS}.")
        return 1.0, None, []
    if (np.diff(times) < 0).any():
        faults.in_slo(
            at, "arrival times stand in order", "Sort them.", value=f"entry {int(np.argmax(np.diff(times) < 0)) + 1}"
        )
        return 1.0, None, []
    spread = {window: dispersion(times, window * slo_s) for window in (1, 4, 16)}
    listed = ", ".join(
        f"{index:.3g} over {window * slo_s:g} s" for window, index in spread.items() if np.isfinite(index)
    )
    notices = [Notice(code="W-arrivals", at=f"apps.{app_id}", text=f"index of dispersion of the trace: {listed}")]
    if np.isfinite(spread[16]) and spread[16] > 2 * max(spread[1], 1e-9):
        text = "dispersion grows with the window: the rate changes; plan for a range of rates"
        notices.append(Notice(code="W-arrivals-change", at=f"apps.{app_id}", text=text))
    index = spread[1] if np.isfinite(spread[1]) and spread[1] > 0 else 1.0
    return 1.0 / index, times, notices


def dispersion(times_s: Floats, window_s: float) -> float:
    """Variance over mean of the counts in windows; 1 for Poisson arrivals, NaN where there are not ten windows.

    >>> dispersion(np.arange(0.5, 1000.0), 10.0)
    0.0
    """
    windows = int((times_s[-1] - times_s[0]) / window_s)
    if windows < 10:
        return float("nan")
    places = ((times_s - times_s[0]) / window_s).astype(np.int64)
    counts = np.bincount(places[places < windows], minlength=windows)
    return float(counts.var() / counts.mean())
