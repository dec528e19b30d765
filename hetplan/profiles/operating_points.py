"""Runs of a benchmark, and what a machine may be counted at under limits on times.

A run is (size, rate, the times that were measured while it was reached). Under a limit it is *refuted* where a
percentile up to that of the limit, or the mean, was longer; *kept* where one from there on was no longer; else the run
does not say, and stays *unchecked*. A size counts at its fastest kept run, without one at its fastest unchecked one,
and not at all where every run is refuted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from pydantic import Field

from hetplan.profiles.fields import Amount, Key, Model, PositiveAmount, Real
from hetplan.profiles.slo import LatencyTarget

if TYPE_CHECKING:
    from hetplan.profiles.slo import App

__all__ = ["Limit", "OperatingPoint", "Verdict", "grid_under", "judge", "limits_of", "nearest", "network_ms_of"]

_MEAN_REFUTES_FROM = 90.0
"""Times are skewed to the right: where their mean is too long, so is what nine of ten keep; a median may still do."""


class OperatingPoint(Model):
    """A run at one size: its rate, and what was measured while it was reached."""

    at: dict[Key, Real] = Field(description="a point of every axis of the table")
    rate_qps: PositiveAmount
    given: dict[Key, Amount] = Field(default_factory=dict, description="as ttft_p99_ms, tpot_mean_ms, concurrency")


class Verdict(IntEnum):
    """What a run says of limits, the worst last."""

    KEPT = 0
    UNCHECKED = 1
    REFUTED = 2


@dataclass(frozen=True)
class Limit:
    """No more than this at this percentile, of `ttft`, `tpot` or `response`; `key` is its name in `app.latency`."""

    of: str
    percentile: float
    max_ms: float
    key: str = ""

    @property
    def left(self) -> float:
        """The share of requests that may take longer."""
        return 1.0 - self.percentile / 100.0

    def __str__(self) -> str:
        return f"{self.of} p{self.percentile:g} <= {self.max_ms:g} ms"


def limits_of(app: App) -> tuple[Limit, ...]:
    """The limits of an application on what its machines take, in its order.

    A limit is on what a client measures, so the network's time is taken off. The first token and the whole answer pass
    it once, there and back; between two tokens it adds nothing.
    """
    return tuple(Limit(one.of, one.percentile, one.max_ms - network_ms_of(app, one.of), one.key) for one in app.targets)


def network_ms_of(app: App, of: str) -> float:
    """What the network adds to a time of a request of one step, as its client measures it."""
    return app.network_ms_once + app.network_ms_per_hop if of in ("ttft", "response") else 0.0


def judge(given: Mapping[str, float], limits: Iterable[Limit]) -> Verdict:
    """The worst that these measurements say of any limit.

    >>> seen = {"ttft_p50_ms": 1343.0, "ttft_p99_ms": 4532.0}
    >>> [judge(seen, [Limit("ttft", percentile, 3000.0)]).name for percentile in (50, 95, 99)]
    ['KEPT', 'UNCHECKED', 'REFUTED']
    >>> judge({"ttft_mean_ms": 16000.0}, [Limit("ttft", 95, 3000.0)]).name
    'REFUTED'
    """
    return max((_judge_one(given, limit) for limit in limits), default=Verdict.KEPT)


def _judge_one(given: Mapping[str, float], limit: Limit) -> Verdict:
    levels = list(_levels(given, limit.of))
    if any(level is not None and level <= limit.percentile and ms > limit.max_ms for level, ms in levels):
        return Verdict.REFUTED
    if any(level is not None and level >= limit.percentile and ms <= limit.max_ms for level, ms in levels):
        return Verdict.KEPT
    if limit.percentile >= _MEAN_REFUTES_FROM and any(level is None and ms > limit.max_ms for level, ms in levels):
        return Verdict.REFUTED
    return Verdict.UNCHECKED


def _levels(given: Mapping[str, float], of: str) -> Iterator[tuple[float | None, float]]:
    """The percentiles of a time that were measured, None for its mean."""
    for key, ms in given.items():
        found = _stated(key)
        if found is not None and found[0] == of:
            yield found[1], ms


def _stated(key: str) -> tuple[str, float | None] | None:
    """Which time a name states, and at which percentile (None: its mean); None where it states none.

    >>> _stated("ttft_p99_ms"), _stated("tpot_mean_ms"), _stated("response_max_ms"), _stated("concurrency")
    (('ttft', 99.0), ('tpot', None), ('response', 100.0), None)
    """
    of, _, what = key.removesuffix("_ms").partition("_")
    if not key.endswith("_ms") or of not in ("ttft", "tpot", "response"):
        return None
    if what in ("mean", "max"):
        return of, 100.0 if what == "max" else None
    target = LatencyTarget.named(key)
    return None if target is None or not target.is_percentile else (of, target.percentile)


def grid_under(
    axes: Mapping[str, Sequence[float]], points: Sequence[OperatingPoint], limits: Sequence[Limit], worst: Verdict
) -> Any:
    """The rate of every size at which a run is judged no worse than `worst`; null where none is."""
    judged: dict[tuple[float, ...], list[tuple[Verdict, float]]] = {}
    for one in points:
        size = tuple(one.at[name] for name in axes)
        judged.setdefault(size, []).append((judge(one.given, limits), one.rate_qps))

    def cell(size: tuple[float, ...]) -> float | None:
        held = judged.get(size, [])
        best = min((verdict for verdict, _ in held), default=Verdict.REFUTED)
        return max(rate for verdict, rate in held if verdict == best) if held and best <= worst else None

    def nested(size: tuple[float, ...], left: Sequence[Sequence[float]]) -> Any:
        return tuple(nested((*size, step), left[1:]) for step in left[0]) if left else cell(size)

    return nested((), list(axes.values()))


def nearest(points: Sequence[OperatingPoint], limits: Sequence[Limit]) -> str:
    """In words: the run that comes nearest to keeping limits that none keeps."""

    def excess(one: OperatingPoint) -> float:
        return max(
            (
                ms / max(limit.max_ms, 1e-9)
                for limit in limits
                for level, ms in _levels(one.given, limit.of)
                if level is None or level <= limit.percentile
            ),
            default=0.0,
        )

    one = min(points, key=excess)
    words = [f"{name} {value:.6g}" for name, value in one.given.items() if _stated(name)]
    return f"{one.rate_qps:.4g}/s with {', '.join(words)}"
