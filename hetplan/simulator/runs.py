"""Many runs side by side, with progress and cancel: how large a run may be, and how long it has to be near capacity.

Compiled code holds no interpreter lock, so threads use the cores. A run is a function of its own seed alone: how many
threads there are changes no result.

**Most queries.** A run holds at most 20 million queries, all runs of a simulation together 200 million: the records of
a run, some 200 bytes per query, stay in memory until its figures are taken.

**Near capacity.** A queue forgets slowly there: it takes about ``1 / (1 - utilisation)^2`` services. A run spans 600
times that, judged by the utilisation that a run of the usual length shows. (Of an M/M/1 queue at a load of 0.97, 95%
intervals over five seeds then hold the mean and the 99th percentile in 95 or 96 of 100 cases each.) A few long queues
make what is beyond a high percentile, about as many as such spans are in the share beyond it of all runs together. Runs
are so long that they are nine. Where they are fewer than five, by the utilisation of an application's own workers, runs
say of its percentile only what it is not below: 95% intervals would hold it in 82 of 100 cases with three of them, in
57 with one.

**Accuracy.** Where a plan or a wish states an accuracy, runs are so long that their accuracies differ by a standard
deviation of a fifth of a percent.

Neither makes a run longer than forty times the usual length, nor all of them more than twenty million events.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from hetplan.compiled import is_ready
from hetplan.errors import InputError, Interrupted
from hetplan.planner.confidence import LEAST_LONG_QUEUES
from hetplan.planner.contract import Event
from hetplan.simulator.demand import AppDemand
from hetplan.simulator.engine_kernels import act
from hetplan.simulator.figures import HIGHEST_PERCENTILE
from hetplan.simulator.run_summary import RunSummary

__all__ = [
    "MOST_QUERIES",
    "MOST_QUERIES_PER_RUN",
    "check_size",
    "is_settled",
    "memory_length_s",
    "notices",
    "run_all",
    "seed_of",
    "settled_length_s",
    "spans_of",
    "utilisation_of",
]

COMPILING = "compiling the simulator, which is kept for later: usually 10 s on one core"

R = TypeVar("R")
_LOOK_S = 0.1


def seed_of(seed: int, number: int) -> int:
    """The seed of the number-th run.

    >>> seed_of(0, 0), seed_of(0, 1), seed_of(1, 0)
    (0, 1, 1000003)
    """
    return seed * 1_000_003 + number


def run_all(
    jobs: Sequence[Callable[[threading.Event, Callable[[float], None]], R]],
    *,
    threads: int = 2,
    on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
    what: str = "simulate",
) -> list[R]:
    """Run every job, which gets an event that says stop and a function to tell its share done; results in order.

    >>> run_all([lambda stop, progressed: 1, lambda stop, progressed: 2])
    [1, 2]
    """
    if on_event is not None and not is_ready(act):
        on_event(Event("compile", COMPILING))
    stop = threading.Event()
    done = [0.0] * len(jobs)
    started = time.monotonic()

    def share_of(number: int) -> Callable[[float], None]:
        def progressed(share: float) -> None:
            done[number] = min(share, _NOT_DONE)

        return progressed

    if len(jobs) == 1 and cancel is None and on_event is None:
        return [jobs[0](stop, share_of(0))]
    with ThreadPoolExecutor(max_workers=max(1, min(threads, len(jobs)))) as pool:
        futures: list[Future[R]] = [pool.submit(job, stop, share_of(number)) for number, job in enumerate(jobs)]
        open_ = set(futures)
        while open_:
            finished, open_ = wait(open_, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
            if (cancel is not None and cancel.is_set()) or any(future.exception() for future in finished):
                stop.set()
                for future in open_:
                    future.cancel()
                break
            for number, future in enumerate(futures):
                done[number] = 1.0 if future.done() else done[number]
            if on_event is not None:
                share = sum(done) / len(done)
                count = sum(future.done() for future in futures)
                on_event(Event(what, f"{count} of {len(futures)} runs", done=share, seconds=time.monotonic() - started))
    if cancel is not None and cancel.is_set():
        raise Interrupted("the simulation was cancelled")
    # Runs that were stopped because another failed say only that they were: the reason is the other's.
    failed = [future.exception() for future in futures if not future.cancelled()]
    for error in failed:
        if error is not None and not isinstance(error, Interrupted):
            raise error
    return [future.result() for future in futures]


_NOT_DONE = 0.99
"""All that a run that has not ended yet may say of how far it is: what waits at the end takes time as well."""
MOST_QUERIES_PER_RUN = 20_000_000
MOST_QUERIES = 200_000_000
_MEMORIES = 600.0
_LONG_QUEUES = 9.0
_MOST_TIMES_LONGER, _MOST_EVENTS = 40.0, 20e6
_ACCURACY_SPREAD = 0.002
_OVERLOADED, _NEAR, _OVERRUN = 0.995, 0.95, 0.05


def check_size(demands: Sequence[AppDemand], length_s: float, *, seeds: int, asked: bool) -> None:
    """Refuse a simulation that would not end; `asked` tells whether the length was given or found."""
    if not math.isfinite(length_s):
        raise InputError.one(
            file="--duration", value=length_s, why="a finite number of seconds", remedy="Write 600, or leave it out."
        )
    queries = sum(demand.drawn(length_s) for demand in demands)
    if queries <= MOST_QUERIES_PER_RUN and queries * seeds <= MOST_QUERIES:
        return
    if queries <= MOST_QUERIES_PER_RUN:
        most = int(MOST_QUERIES / queries)
        raise InputError.one(
            file="--seeds",
            value=seeds,
            why=f"{seeds} runs of {queries:.3g} queries are more than the {MOST_QUERIES:.0e} simulated at most",
            remedy=f"Lower --seeds to {most}, or shorten the runs by --duration.",
        )
    why = f"{length_s:g} s hold {queries:.3g} queries; a run has at most {MOST_QUERIES_PER_RUN:.0e}"
    fits = length_s * MOST_QUERIES_PER_RUN / queries
    raise InputError.one(
        file="--duration" if asked else "demand",
        value=length_s if asked else max(demand.rate_qps for demand in demands),
        why=why if asked else f"the percentile, or the day, needs a run so long: {why}",
        remedy=f"{'Lower' if asked else 'Give'} --duration: up to {fits:.3g} s, or lower the rate.",
    )


def utilisation_of(runs: Sequence[RunSummary], app: str | None = None) -> float:
    """The share of what they can do, at full batches, that the busiest workers do; the mean over the runs."""
    return sum(run.busiest if app is None else run.busiest_of.get(app, run.busiest) for run in runs) / len(runs)


def memory_length_s(demands: Sequence[AppDemand], runs: Sequence[RunSummary]) -> float:
    """How long runs have to be at the utilisation seen; infinite in overload, which has no steady state.

    It is 0 where nothing is gained: where load follows a day or a trace, or callers wait for answers. Runs of text are
    as long as their machines take to fill: how near they are to all that they can do is not known.
    """
    demands = [demand for demand in demands if demand.text is None]
    rate = min((demand.rate_qps for demand in demands if demand.rate_qps > 0), default=0.0)
    if rate <= 0 or not all(demand.stationary and not demand.clients for demand in demands):
        return 0.0
    busy = utilisation_of(runs)
    return math.inf if busy >= _OVERLOADED else _MEMORIES / (1.0 - busy) ** 2 / rate


def _tail(percentile: float) -> float:
    return 1.0 - min(percentile, HIGHEST_PERCENTILE) / 100.0


def _is_overrun(runs: Sequence[RunSummary]) -> bool:
    """Whether much had queued by the last arrival: what then comes of it is that of runs of this length."""
    return max(run.overrun for run in runs) > _OVERRUN


def spans_of(demand: AppDemand, length_s: float, runs: Sequence[RunSummary]) -> float:
    """How many times runs of this length span what a queue remembers; infinite where that means nothing."""
    if demand.text is not None:
        return math.inf
    busy = utilisation_of(runs, demand.app)
    if demand.rate_qps <= 0 or not demand.stationary or demand.clients or (busy >= _OVERLOADED and _is_overrun(runs)):
        return math.inf
    return length_s * demand.rate_qps * len(runs) * (1.0 - busy) ** 2


def is_settled(percentile: float, demand: AppDemand, length_s: float, runs: Sequence[RunSummary]) -> bool:
    """Whether runs of this length hold enough long queues for the interval of a percentile to have an upper end."""
    return spans_of(demand, length_s, runs) * _tail(percentile) >= LEAST_LONG_QUEUES


def _accuracy_length_s(demands: Sequence[AppDemand], length_s: float, runs: Sequence[RunSummary]) -> float:
    """How long runs have to be for the spread of their accuracies, seen over these."""
    longest_s = 0.0
    for demand in demands:
        values = [run.apps[demand.app].values["accuracy"] for run in runs]
        parts = [part.values["accuracy"] for part in runs[0].stretches[demand.app]] if len(runs) == 1 else values
        if not demand.states_accuracy or len(parts) < 2 or not np.isfinite(parts).all() or np.mean(values) == 0.0:
            continue
        spread = float(np.std(parts, ddof=1)) / math.sqrt(len(parts) / len(runs)) / abs(float(np.mean(values)))
        longest_s = max(longest_s, length_s * (spread / _ACCURACY_SPREAD) ** 2)
    return longest_s


def settled_length_s(demands: Sequence[AppDemand], length_s: float, runs: Sequence[RunSummary]) -> float:
    """How long runs should have been, judged by these of the usual length; never shorter. Overload never settles."""
    memory_s = memory_length_s(demands, runs)
    tail = _tail(max((demand.percentile for demand in demands), default=0.0))
    memory_s *= max(1.0, _LONG_QUEUES / (tail * len(runs) * _MEMORIES))
    wanted = max(memory_s if math.isfinite(memory_s) else 0.0, _accuracy_length_s(demands, length_s, runs))
    queries = sum(demand.drawn(length_s) for demand in demands)
    if queries <= 0:
        return length_s
    fits = min(MOST_QUERIES_PER_RUN, MOST_QUERIES / len(runs)) / queries
    most = min(_MOST_TIMES_LONGER, fits, _MOST_EVENTS / max(sum(run.events for run in runs), 1))
    return max(length_s, min(wanted, most * length_s))


def _unsettled(demand: AppDemand, length_s: float, runs: Sequence[RunSummary]) -> list[tuple[str, str, str]]:
    if is_settled(demand.percentile, demand, length_s, runs):
        return []
    text = (
        f"workers have {100 * utilisation_of(runs, demand.app):.1f}% of all they can do, where a few long queues make "
        f"p{demand.percentile:g}: these runs hold too few of them to say how high it may be; more seeds or a longer "
        "--duration would"
    )
    return [("W-percentile-open", f"apps.{demand.app}", text)]


def notices(demands: Sequence[AppDemand], length_s: float, runs: Sequence[RunSummary]) -> list[tuple[str, str, str]]:
    """What to know of runs of this length: too short, too near capacity, above it, or only one."""
    warned = [
        (
            "W-short-run",
            f"apps.{demand.app}",
            f"{length_s:g} s hold too few queries to judge p{demand.percentile:g}; {demand.enough_s():.3g} s would do",
        )
        for demand in demands
        if demand.is_too_short(length_s)
    ]
    for demand in demands:
        warned += _unsettled(demand, length_s, runs)
    busy = utilisation_of(runs)
    if _is_overrun(runs):
        text = (
            f"after the last arrival it took {100 * max(run.overrun for run in runs):.0f}% of the run's length to "
            "serve what had queued: the load is at or above what these workers can serve"
        )
        warned.append(("W-unstable", "simulation", text))
    elif busy > _NEAR and memory_length_s(demands, runs) > 1.05 * length_s:
        text = (
            f"workers have {100 * busy:.1f}% of all they can do, where queues change slowly: runs of {length_s:g} s "
            "are too short for figures to settle, and intervals may be too narrow; give a longer --duration"
        )
        warned.append(("W-near-capacity", "simulation", text))
    if len(runs) == 1:
        text = "intervals come from five stretches of a single run; several seeds give better ones"
        warned.append(("W-one-seed", "simulation", text))
    return warned
