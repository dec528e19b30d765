"""One cell: a model at one point of its axes, run again and again until its figures are narrow enough."""

from __future__ import annotations

import datetime
import gc
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from hetplan.measure.profile_figures import enough, next_look
from hetplan.measure.profile_subject import Answer, MeasurementFailed, Subject
from hetplan.measure.profile_wish import Repeats

__all__ = ["Cell", "cores_of_this_process", "measure_cell", "memory_in_use_gib", "pinned", "rests_s"]

_GIB = 2.0**30


@dataclass(frozen=True)
class Cell:
    """All that was measured of one cell, every run of it; `failed` says why it could not be."""

    variant: str
    hardware: str
    point: Mapping[str, float]
    samples_ms: tuple[float, ...] = ()
    preempted: tuple[int, ...] = ()
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
        for _ in range(rule.warm_up):
            run()
            if cancel.is_set():
                return None
        samples, preempted, answers = _samples(subject, run, rule, cancel)
    except MeasurementFailed as error:
        return Cell(cell.variant, cell.hardware, cell.point, failed=str(error))
    if cancel.is_set():
        return None
    return Cell(
        variant=cell.variant,
        hardware=cell.hardware,
        point=cell.point,
        samples_ms=tuple(samples),
        preempted=tuple(preempted),
        bytes_out=_mean([one.bytes_out for one in answers]),
        fanout=_mean([one.fanout for one in answers]),
        score=_mean([one.score for one in answers]),
        operators_ms=_mean_of_operators(answers),
        load_s=cell.load_s,
        versions=cell.versions,
        date=datetime.date.today().isoformat(),
        memory_gib={"mem_gib": max(memory_in_use_gib() - memory_before_gib, 0.0), **subject.memory_gib()},
    )


def _samples(
    subject: Subject, run: Any, rule: Repeats, cancel: threading.Event
) -> tuple[list[float], list[int], list[Answer]]:
    samples: list[float] = []
    preempted: list[int] = []
    answers: list[Answer] = []
    look, until = rule.min_runs, time.monotonic() + rule.max_s
    rests = rests_s(rule)
    with _collector_at_rest():
        while len(samples) < rule.max_runs and not cancel.is_set():
            if (rest_s := next(rests)) > 0.0:
                cancel.wait(rest_s)
            switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
            began = time.perf_counter_ns()
            raw = run()
            took_ms = (time.perf_counter_ns() - began) / 1e6
            if resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw != switches:
                preempted.append(len(samples))
            answer = subject.read(raw)
            answers.append(answer)
            samples.append(float(f"{took_ms if answer.ms is None else answer.ms:.6g}"))
            if len(samples) > 1 and time.monotonic() > until:
                break
            if len(samples) >= look:
                if enough(samples, rule):
                    break
                look = next_look(len(samples))
    return samples, preempted, answers


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


@contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Python's garbage collector must not strike inside a measurement."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


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
def pinned(cores: tuple[int, ...]) -> Iterator[None]:
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
