"""What a real load showed of an application: figures with intervals.

Neighbouring responses are alike (they waited in the same queue), so the interval of a figure comes from the spread over
ten stretches of the run, Student's at 95%, around the value of the whole run. A share without a single case in the run
has the exact interval of so many independent requests instead of none. Requests without an answer count as never
answered; requests that the run did not send do not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetplan.measure.load_send import Sent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["AppMeasured", "Figure", "figures_of"]

STRETCHES = 10
TAIL_REQUESTS = 20
"""With fewer requests beyond a percentile its interval says little, and the report says so."""
_REFUSED = ("dropped", "lost")


@dataclass(frozen=True)
class Figure:
    """A measured value with its interval."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON: what is infinite (a percentile that some requests never reach) is null."""
        value, low, high = (round(one, 9) if math.isfinite(one) else None for one in (self.value, self.low, self.high))
        return {"value": value, "interval": [low, high]}


@dataclass(frozen=True)
class AppMeasured:
    """The figures of one application; `late_sender_ms` are p50 and p99 of how late requests were sent."""

    app: str
    requests: int
    warm_up: int
    offered_qps: float
    figures: dict[str, Figure]
    percentiles_ms: dict[float, Figure]
    statuses: dict[str, int]
    late_sender_ms: tuple[float, float]
    connections: int
    short_of: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "requests": self.requests,
            "warm_up": self.warm_up,
            "offered_qps": self.offered_qps,
            "figures": {name: figure.as_dict() for name, figure in self.figures.items()},
            "percentiles_ms": {f"{at:g}": figure.as_dict() for at, figure in self.percentiles_ms.items()},
            "statuses": self.statuses,
            "late_sender_ms": {"p50": self.late_sender_ms[0], "p99": self.late_sender_ms[1]},
            "connections": self.connections,
        }


def figures_of(
    sent: Sent, *, slo_ms: float = math.inf, percentiles: Sequence[float] = (50.0, 90.0, 95.0, 99.0), warm_up: int = 0
) -> AppMeasured:
    """The figures of an application, the first `warm_up` requests left out."""
    import numpy as np

    tried = np.flatnonzero(sent.status >= 0)
    asked = tried[warm_up:] if warm_up < len(tried) else tried[:0]
    table = _Responses(sent, asked, slo_ms)
    parts = [table.part(place) for place in np.array_split(np.arange(len(asked)), STRETCHES)] if len(asked) else []
    late = sent.late_ms[asked]
    return AppMeasured(
        app=sent.app,
        requests=len(asked),
        warm_up=len(tried) - len(asked),
        offered_qps=table.rate_qps(),
        figures={name: _figure(table, parts, name) for name in _NAMES},
        percentiles_ms={
            at: _estimate(table.percentile(at), [part.percentile(at) for part in parts]) for at in percentiles
        },
        statuses=_statuses(sent, asked),
        late_sender_ms=(_short(np.percentile(late, 50)), _short(np.percentile(late, 99))) if len(late) else (0.0, 0.0),
        connections=sent.connections,
        short_of=tuple(at for at in percentiles if len(asked) * (1.0 - at / 100.0) < TAIL_REQUESTS),
    )


_SHARES = ("violations", "in_time", "late", "dropped")
_NAMES = (*_SHARES, "mean_ms", "accuracy", "served_accuracy", "rate_qps", "goodput_qps", "goodput")


class _Responses:
    """Some of the requests of a run, ready to be asked for figures."""

    def __init__(self, sent: Sent, places: NDArray[np.int64], slo_ms: float) -> None:
        import numpy as np

        self._sent, self._places, self._slo_ms = sent, places, slo_ms
        status = sent.status[places]
        refused = np.array([sent.outcome[place] in _REFUSED for place in places.tolist()], dtype=bool)
        self.served = (status >= 200) & (status < 300) & ~refused
        self.refused = refused | (status >= 300)
        self.response_ms = np.where(self.served, sent.response_ms[places], np.inf)
        self.in_time = self.served & (self.response_ms <= slo_ms)
        self.quality = sent.quality[places]
        self._ordered = np.sort(self.response_ms)

    def part(self, places: NDArray[np.int64]) -> _Responses:
        return _Responses(self._sent, self._places[places], self._slo_ms)

    def percentile(self, at: float) -> float:
        """The least response that at least so many percent do not exceed."""
        count = len(self._ordered)
        if not count:
            return math.nan
        return float(self._ordered[min(max(math.ceil(at / 100.0 * count - 1e-9) - 1, 0), count - 1)])

    def rate_qps(self) -> float:
        due = self._sent.due_s[self._places]
        return float(len(due) / max(float(due[-1] - due[0]), 1e-9)) if len(due) > 1 else 0.0

    def of(self, name: str) -> float:
        count = len(self._places)
        if not count:
            return math.nan
        in_time = float(self.in_time.mean())
        if name in ("accuracy", "served_accuracy", "goodput"):
            which = self.in_time if name != "served_accuracy" else self.served
            known = self.quality[which]
            known = known[known == known]
            accuracy = float(known.mean()) if len(known) else math.nan
            return in_time * accuracy if name == "goodput" else accuracy
        return {
            "in_time": in_time,
            "violations": 1.0 - in_time,
            "late": float((self.served & ~self.in_time).mean()),
            "dropped": float(self.refused.mean()),
            "mean_ms": float(self.response_ms[self.served].mean()) if self.served.any() else math.nan,
            "rate_qps": self.rate_qps(),
            "goodput_qps": in_time * self.rate_qps(),
        }[name]


def _figure(whole: _Responses, parts: Sequence[_Responses], name: str) -> Figure:
    found = _estimate(whole.of(name), [part.of(name) for part in parts])
    if name not in _SHARES or math.isnan(found.value):
        return found
    count = len(whole.response_ms)
    # Where no stretch has a case, or all are cases, there is no spread to see: the rule of three, exactly.
    edge = 1.0 - 0.025 ** (1.0 / count)
    low = min(found.low, 1.0 - edge) if found.value == 1.0 else max(found.low, 0.0)
    high = max(found.high, edge) if found.value == 0.0 else min(found.high, 1.0)
    return Figure(found.value, low, high)


def _estimate(whole: float, parts: Sequence[float]) -> Figure:
    known = [part for part in parts if not math.isnan(part)]
    if math.isnan(whole) or len(known) < 2:
        return Figure(whole, math.nan, math.nan)
    if not all(math.isfinite(part) for part in known):
        return Figure(whole, min([whole, *known]), math.inf)
    import numpy as np
    from scipy.special import stdtrit

    half = float(stdtrit(len(known) - 1, 0.975)) * float(np.std(known, ddof=1)) / math.sqrt(len(known))
    # None of these figures can be below 0.
    return Figure(whole, max(whole - half, 0.0), whole + half)


def _statuses(sent: Sent, places: NDArray[np.int64]) -> dict[str, int]:
    """How many requests ended how: by HTTP's number, "none" where nothing came."""
    import numpy as np

    numbers, counts = np.unique(sent.status[places], return_counts=True)
    return {
        "none" if number == 0 else str(number): int(count)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True)
    }


def _short(value: Any) -> float:
    return float(f"{float(value):.4g}")
