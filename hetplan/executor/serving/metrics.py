"""Counters, gauges and latency histograms in Prometheus' text format, for router and workers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

__all__ = ["BOUNDS_S", "KIND", "Histogram", "Page", "load_metrics", "wants_prometheus"]

KIND = b"text/plain; version=0.0.4; charset=utf-8"
BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Histogram:
    """How many took at most so long.

    >>> times = Histogram()
    >>> for seconds in (0.0004, 0.001, 0.3): times.add(seconds)
    >>> times.counts[:2], sum(times.counts), round(times.sum_s, 4)
    ([2, 0], 3, 0.3014)
    """

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        self.sum_s += seconds


def wants_prometheus(query: str, accept: str) -> bool:
    """Whether Prometheus asks, or a client that asks as it does.

    >>> wants_prometheus("format=prometheus", ""), wants_prometheus("", "text/plain"), wants_prometheus("", "*/*")
    (True, True, False)
    """
    return "format=prometheus" in query or "text/plain" in accept or "openmetrics" in accept


Labels = Mapping[str, object]


class Page:
    """A page of metrics; each begins with its help and its type, once.

    >>> page = Page()
    >>> page.add("hetplan_queries_total", "counter", "Queries that have ended.", [({"app": 'a"b'}, 3)])
    >>> print(page.bytes().decode(), end="")
    # HELP hetplan_queries_total Queries that have ended.
    # TYPE hetplan_queries_total counter
    hetplan_queries_total{app="a\\"b"} 3
    """

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, name: str, kind: str, about: str, values: Iterable[tuple[Labels, float]]) -> None:
        """A metric with a value for each set of labels."""
        self._head(name, kind, about)
        self._lines += [f"{name}{_labels(labels)} {value:.12g}" for labels, value in values]

    def add_times(self, name: str, about: str, values: Iterable[tuple[Labels, Histogram]]) -> None:
        """A histogram of seconds for each set of labels."""
        self._head(name, "histogram", about)
        for labels, found in values:
            count = 0
            for bound, more in zip([*map(str, BOUNDS_S), "+Inf"], found.counts, strict=True):
                count += more
                self._lines.append(f"{name}_bucket{_labels({**labels, 'le': bound})} {count}")
            self._lines.append(f"{name}_sum{_labels(labels)} {found.sum_s:.12g}")
            self._lines.append(f"{name}_count{_labels(labels)} {count}")

    def bytes(self) -> bytes:
        """As it is sent."""
        return ("\n".join(self._lines) + "\n").encode()

    def _head(self, name: str, kind: str, about: str) -> None:
        self._lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items() if value is not None)
    return f"{{{pairs}}}" if pairs else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def load_metrics(page: Page, loads: Mapping[str, tuple[Mapping[str, object], Mapping[str, float]]]) -> None:
    """The counters of loads; what served them is in the labels."""
    page.add(
        "hetplan_load_queries_total", "counter", "Queries of a load, by what became of them at the worker.",
        [
            ({**labels, "outcome": key}, counts[key])
            for labels, counts in loads.values()
            for key in ("served", "dropped", "failed")
        ],
    )  # fmt: skip
    for key, name, about, scale in (
        ("arrived", "arrived", "Queries that were sent to a load.", 1.0),
        ("batches", "batches", "Batches that a load has served.", 1.0),
        ("busy_ms", "busy_seconds", "Time that a load's servers have served.", 1e-3),
        ("queue_ms", "queue_seconds", "Time that queries have waited at workers.", 1e-3),
    ):
        values = [(labels, scale * counts[key]) for labels, counts in loads.values()]
        page.add(f"hetplan_load_{name}_total", "counter", about, values)
