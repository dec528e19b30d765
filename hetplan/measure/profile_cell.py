"""One cell: a model at one point of its axes, run again and again until its figures are narrow enough.

**Intervals.** A percentile lies between two of the sorted measurements with a probability that is binomial whatever the
measurements are distributed like: `order_statistics` picks the two. Until there are enough measurements beyond a
percentile there is no upper end, and its interval is infinite.

**Stopping.** A cell is done when the half-widths of the intervals of p50 and p99, relative to the values, are small
enough. Looking after every measurement would stop at lucky moments, so looks are 20% apart.

**A busy machine** shows in how long the model's threads were ready to run and had no core (the system counts that):
`waited`, as a share of the time of the runs. A host that gives a virtual machine's cores to others shows in `stolen`,
the share of all time that the cores were taken away. Where the two together are above `MUCH_WAITED` the profile warns,
above the rule's `most_waited` the cell counts as not measured, for its times are those of other work. `cpu_ms` is the
CPU time of a run, to be set beside its wall time.

**When runs begin.** At the rule's `rate_qps` as queries come, or after `pause_ms`. A model that is asked over HTTP by a
rule that says neither is asked as often as keeps it `busy`, by the times of the runs that warm it up.

**Outliers** are kept in every figure, for a server will meet them too; they are counted and listed, with how many of
them fell together with a preemption (the machine gave the core to somebody else meanwhile).
"""

from __future__ import annotations

import datetime
import gc
import math
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from random import Random
from statistics import median
from typing import TYPE_CHECKING, Any

from hetplan.measure.measure_file import Repeats
from hetplan.measure.profile_models import Answer, MeasurementFailed, Subject
from hetplan.profiles.validate import collector_at_rest
from hetplan.serving.distribution import nearest_rank

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "MUCH_WAITED",
    "Cell",
    "CellFigures",
    "cores_of_this_process",
    "enough",
    "figures_of",
    "measure_cell",
    "memory_in_use_gib",
    "next_look",
    "order_statistics",
    "pin_cores",
    "rests_s",
]

OUTLIER_DEVIATIONS = 8.0
"""Median absolute deviations above the median from which a measurement is marked."""

_LISTED = 20


def order_statistics(count: int, quantile: float, confidence: float) -> tuple[int, int | None]:
    """The places (from 0) of the sorted measurements between which the quantile lies; None: above all of them.

    >>> order_statistics(100, 0.5, 0.95)
    (39, 60)
    >>> order_statistics(100, 0.99, 0.95), order_statistics(1000, 0.99, 0.95)
    ((96, None), (982, 996))
    """
    import numpy as np
    from scipy.special import bdtr

    if count < 1:
        return 0, None
    tail = (1.0 - confidence) / 2.0
    below = bdtr(np.arange(count), count, quantile)
    # As many as lie at or below the quantile: fewer than low + 1 with at most `tail`, more than high likewise.
    low = int(np.searchsorted(below, tail, side="right")) - 1
    high = int(np.searchsorted(below, 1.0 - tail, side="left"))
    return max(low, 0), high if high < count else None


def next_look(count: int) -> int:
    """After how many measurements to look again."""
    return max(count + 1, math.ceil(count * 1.2))


@dataclass(frozen=True)
class CellFigures:
    """The statistics of one cell, in milliseconds."""

    runs: int
    mean: float
    std: float
    percentiles: dict[str, float]
    intervals: dict[str, tuple[float, float | None]]
    max: float
    outliers: int
    outliers_ms: tuple[float, ...]
    outliers_preempted: int
    preempted: int
    converged: bool

    def as_dict(self) -> dict[str, Any]:
        """For the profile's extensions."""
        return {
            "runs": self.runs,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "converged": self.converged,
            "outliers": self.outliers,
            "outliers_ms": list(self.outliers_ms),
            "outliers_preempted": self.outliers_preempted,
            "preempted": self.preempted,
        }


def figures_of(samples_ms: Sequence[float], preempted: Sequence[int], rule: Repeats) -> CellFigures:
    """The figures of a cell; `preempted` are the numbers of the runs during which the core was taken away.

    >>> found = figures_of([1.0, 2.0, 3.0, 4.0] * 100, [], Repeats(p99_within=None))
    >>> found.mean, found.percentiles["p50"], found.intervals["p50"], found.outliers
    (2.5, 2.0, (2.0, 3.0), 0)
    """
    import numpy as np

    values = np.asarray(samples_ms, dtype=np.float64)
    ordered = np.sort(values)
    quantiles = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
    marked = _outliers(values)
    return CellFigures(
        runs=len(values),
        mean=_short(values.mean()),
        std=_short(values.std(ddof=1)) if len(values) > 1 else 0.0,
        percentiles={name: _short(nearest_rank(ordered, share)) for name, share in quantiles.items()},
        intervals={name: _interval(ordered, share, rule.confidence) for name, share in quantiles.items()},
        max=_short(ordered[-1]),
        outliers=len(marked),
        outliers_ms=tuple(_short(value) for value in np.sort(values[marked])[::-1][:_LISTED]),
        outliers_preempted=int(np.isin(marked, np.asarray(preempted, dtype=np.int64)).sum()),
        preempted=len(preempted),
        converged=enough(samples_ms, rule),
    )


def enough(samples_ms: Sequence[float], rule: Repeats) -> bool:
    """Whether the intervals of p50 and p99 are as narrow as was asked.

    >>> enough([5.0] * 30, Repeats()), enough([5.0] * 500, Repeats())
    (False, True)
    """
    import numpy as np

    if len(samples_ms) < rule.min_runs:
        return False
    ordered = np.sort(np.asarray(samples_ms, dtype=np.float64))
    for share, within in ((0.5, rule.p50_within), (0.99, rule.p99_within)):
        if within is None:
            continue
        low, high = _interval(ordered, share, rule.confidence)
        if high is None or (high - low) / 2.0 > within * nearest_rank(ordered, share):
            return False
    return True


def _interval(ordered: NDArray[np.float64], share: float, confidence: float) -> tuple[float, float | None]:
    low, high = order_statistics(len(ordered), share, confidence)
    return _short(ordered[low]), None if high is None else _short(ordered[high])


def _outliers(values: NDArray[np.float64]) -> NDArray[np.int64]:
    import numpy as np

    median = float(np.median(values))
    deviation = float(np.median(np.abs(values - median)))
    # Measurements that hardly vary have a deviation near 0: a tenth of a percent is no outlier.
    return np.flatnonzero(values > median + OUTLIER_DEVIATIONS * max(deviation, 1e-3 * median))


def _short(value: Any) -> float:
    """Six significant digits: clocks say no more."""
    return float(f"{float(value):.6g}")


_GIB = 2.0**30


@dataclass(frozen=True)
class Cell:
    """All that was measured of one cell, every run of it; `failed` says why it could not be."""

    variant: str
    hardware: str
    point: Mapping[str, float]
    samples_ms: tuple[float, ...] = ()
    preempted: tuple[int, ...] = ()
    waited: float | None = None
    stolen: float = 0.0
    cpu_ms: float | None = None
    beside_ms: float | None = None
    """What a query spends on its way to the server and back, which the server's own time leaves out (median)."""
    rate_qps: float | None = None
    through: str = ""
    bytes_out: float | None = None
    fanout: float | None = None
    score: float | None = None
    operators_ms: Mapping[str, float] | None = None
    load_s: float = 0.0
    memory_gib: Mapping[str, float] | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""
    failed: str = ""

    def as_line(self) -> dict[str, Any]:
        """For the journal."""
        return {name: value for name, value in asdict(self).items() if name not in ("variant", "hardware", "point")}

    @classmethod
    def of_line(cls, variant: str, hardware: str, point: Mapping[str, float], line: Mapping[str, Any]) -> Cell:
        """What the journal holds."""
        held = {name: value for name, value in line.items() if name in cls.__dataclass_fields__}
        held |= {name: tuple(held.get(name, ())) for name in ("samples_ms", "preempted")}
        return cls(variant=variant, hardware=hardware, point=dict(point), **held)


def measure_cell(
    subject: Subject, cell: Cell, rule: Repeats, *, cancel: threading.Event, memory_before_gib: float
) -> Cell | None:
    """The cell with its measurements; None where the work was cancelled before it was done."""
    try:
        run = subject.prepare(cell.point)
        warm_s = []
        for _ in range(rule.warm_up):
            began = time.perf_counter()
            run()
            warm_s.append(time.perf_counter() - began)
            if cancel.is_set():
                return None
        if subject.over_http and rule.rate_qps is None and not rule.pause_ms and warm_s:
            rule = rule.model_copy(update={"rate_qps": float(f"{rule.busy / median(warm_s):.4g}")})
        with _Machine(subject.pids) as machine:
            found = _samples(subject, run, rule, cancel, machine)
    except MeasurementFailed as error:
        return Cell(cell.variant, cell.hardware, cell.point, failed=str(error))
    if cancel.is_set():
        return None
    lost = min((machine.waited or 0.0) + machine.stolen, 1.0)
    if lost > rule.most_waited:
        why = (
            f"the machine is busy: for {100 * lost:.0f}% of the time the model waited for a core, or its host took it. "
            f"Measure when nothing else runs, or raise repeats.most_waited ({rule.most_waited:g})"
        )
        return replace(cell, waited=machine.waited, stolen=machine.stolen, failed=why)
    answers = found.answers
    return replace(
        cell,
        samples_ms=tuple(found.samples_ms),
        preempted=tuple(found.preempted),
        waited=machine.waited,
        stolen=machine.stolen,
        cpu_ms=machine.cpu_ms(len(found.samples_ms)),
        beside_ms=float(f"{median(found.beside_ms):.4g}") if found.beside_ms and subject.over_http else None,
        rate_qps=rule.rate_qps,
        bytes_out=_mean([one.bytes_out for one in answers]),
        fanout=_mean([one.fanout for one in answers]),
        score=_mean([one.score for one in answers]),
        operators_ms=_mean_of_operators(answers),
        date=datetime.date.today().isoformat(),
        memory_gib={"mem_gib": max(memory_in_use_gib() - memory_before_gib, 0.0), **subject.memory_gib()},
    )


MUCH_WAITED = 0.05
"""The share of waiting from which figures are called those of a busy machine."""
_LOST_NS = 100_000
"""A hand-over from thread to thread takes less: what waits longer for a core had it taken away."""
_COMPUTES = 0.25
"""A thread with so much of the CPU time of the busiest is one of those that compute."""


class _Machine:
    """What the machine gave the threads of some processes (this one, where none is named) during the runs.

    `waited` is the share of the runs' time in which those that compute were ready and had no core, `stolen` the share
    of all time in which the host took the machine's cores. Threads that only pass queries on wait for one another.
    """

    def __init__(self, pids: Sequence[int] = ()) -> None:
        self._pids, self._files = tuple(pids), list[int]()
        self._before: list[tuple[int, int]] = []
        self._ran_ns: list[int] = []
        self._waited_ns: list[int] = []
        self._took_ns = self._runs = self._switches = 0

    def __enter__(self) -> _Machine:
        for pid in self._pids or (os.getpid(),):
            with suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    self._files.append(os.open(f"/proc/{pid}/task/{thread}/schedstat", os.O_RDONLY))
        self._ran_ns, self._waited_ns = [0] * len(self._files), [0] * len(self._files)
        self._began = _stolen_and_all()
        return self

    def __exit__(self, *_: object) -> None:
        stolen, every = (after - before for before, after in zip(self._began, _stolen_and_all(), strict=True))
        self.stolen = float(f"{stolen / every:.3g}") if every > 0 else 0.0
        for file in self._files:
            os.close(file)

    def begin(self) -> None:
        """A run begins."""
        self._switches = 0 if self._pids else resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        self._before = self._totals_ns()

    def end(self, took_ns: int) -> bool:
        """A run has ended; whether its core was taken away meanwhile."""
        waited_ns = 0
        for place, (before, after) in enumerate(zip(self._before, self._totals_ns(), strict=True)):
            self._ran_ns[place] += after[0] - before[0]
            self._waited_ns[place] += after[1] - before[1]
            waited_ns += after[1] - before[1]
        self._took_ns += took_ns
        self._runs += 1
        if self._pids:
            return waited_ns > max(_LOST_NS, MUCH_WAITED * took_ns)
        return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw != self._switches

    @property
    def waited(self) -> float | None:
        """The share of waiting; None where the system does not count it, 0 where it is as short as a hand-over."""
        if not self._files or not self._took_ns:
            return None
        most = max(self._ran_ns)
        both = zip(self._ran_ns, self._waited_ns, strict=True)
        waited_ns = sum(waited for ran, waited in both if ran >= _COMPUTES * most)
        share = min(waited_ns / self._took_ns, 1.0)
        return float(f"{share:.3g}") if waited_ns >= _LOST_NS * self._runs else 0.0

    def cpu_ms(self, runs: int) -> float | None:
        """CPU time per run; None where the system does not count it."""
        return float(f"{sum(self._ran_ns) / 1e6 / runs:.4g}") if self._files and runs else None

    def _totals_ns(self) -> list[tuple[int, int]]:
        """How long each thread has run, and waited for a core."""
        found = []
        for file in self._files:
            try:
                said = os.pread(file, 100, 0).split()
                found.append((int(said[0]), int(said[1])))
            except OSError:  # a thread that has ended
                found.append((0, 0))
        return found


def _stolen_and_all() -> tuple[int, int]:
    """The time that the host took of this machine's cores, and all of their time, in the system's ticks."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            times = [int(one) for one in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return 0, 0
    return (times[7], sum(times)) if len(times) == 8 else (0, 0)


@dataclass
class _Runs:
    """What the runs of a cell gave, one after the other; `preempted` are the places of those that lost their core."""

    samples_ms: list[float] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    beside_ms: list[float] = field(default_factory=list)


def _samples(subject: Subject, run: Any, rule: Repeats, cancel: threading.Event, machine: _Machine) -> _Runs:
    found = _Runs()
    samples = found.samples_ms
    look, until = rule.min_runs, time.monotonic() + rule.max_s
    rests = rests_s(rule)
    with collector_at_rest():
        while len(samples) < rule.max_runs and not cancel.is_set():
            if (rest_s := next(rests)) > 0.0:
                cancel.wait(rest_s)
            machine.begin()
            began = time.perf_counter_ns()
            raw = run()
            took_ns = time.perf_counter_ns() - began
            if machine.end(took_ns):
                found.preempted.append(len(samples))
            took_ms = took_ns / 1e6
            answer = subject.read(raw)
            found.answers.append(answer)
            samples.append(float(f"{took_ms if answer.ms is None else answer.ms:.6g}"))
            inside_ms = answer.ms if answer.in_server_ms is None else answer.in_server_ms
            if inside_ms is not None:
                found.beside_ms.append(max(took_ms - inside_ms, 0.0))
            if len(samples) > 1 and time.monotonic() > until:
                break
            if len(samples) >= look:
                if enough(samples, rule):
                    break
                look = next_look(len(samples))
    return found


def rests_s(rule: Repeats, now: Callable[[], float] = time.monotonic) -> Iterator[float]:
    """How long to rest before each run: always the same, or until the next of a Poisson process is due (not above 0
    where it is overdue).
    """
    random, due_s = Random(0), now()
    while True:
        if rule.rate_qps is None:
            yield rule.pause_ms / 1000.0
        else:
            due_s += random.expovariate(rule.rate_qps)
            yield due_s - now()


def _mean(values: list[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return float(f"{sum(found) / len(found):.9g}") if found else None


def _mean_of_operators(answers: list[Answer]) -> dict[str, float] | None:
    found = [answer.operators_ms for answer in answers if answer.operators_ms is not None]
    names = {name for operators in found for name in operators}
    return {name: _mean([operators.get(name) for operators in found]) or 0.0 for name in sorted(names)} or None


def cores_of_this_process() -> tuple[int, ...]:
    """The cores that this process may use; () where the system does not tell."""
    try:
        return tuple(sorted(os.sched_getaffinity(0)))
    except AttributeError:
        return ()


@contextmanager
def pin_cores(cores: tuple[int, ...]) -> Iterator[None]:
    """Keep this thread, and all that it starts, on these cores; nothing happens where the system cannot."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def memory_in_use_gib(*, tidy: bool = False) -> float:
    """The memory that this process holds; with `tidy`, after what earlier models left has gone back to the system."""
    if tidy:
        import ctypes

        gc.collect()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / _GIB
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _GIB
