"""The numbers that the compiled sweeps of a queue process run over, laid out for them: windows of what is not nothing.

A stretch of time is a whole bucket, or the part of its first bucket that a service covers. At its end either nobody has
come (and the next bucket goes on with x + k < K stages), or somebody has, and what joins until the end of the service
is settled. Rows of different lengths come one after another; entries below 1e-22 are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.forms.queue_process import Empty
from hetplan.planner.forms.queue_process_arrivals import Window, phase_weights, poisson
from hetplan.planner.forms.queue_process_operator import first_bucket
from hetplan.solvers.queue_structured_kernels import Tables, land_rows, mix_rows

if TYPE_CHECKING:
    from hetplan.planner.forms.queue_process import QueueProcess

__all__ = ["prepare"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_NOTHING = 1e-22
_KEPT_BYTES = 1 << 26
"""Landings that take more memory are not kept."""


class _Landings(NamedTuple):
    """Per stretch and phase x at its beginning: P(somebody came in it, n' wait at the end), and P(... more than N)."""

    low: Integers
    first: Integers
    data: Floats
    over: Floats


_last_landings: dict[str, tuple[tuple[object, ...], _Landings]] = {}
"""The latest ones: a process is often asked with whole batches, then with any; arrivals and services are alike."""


def prepare(form: QueueProcess) -> Tables:
    """The tables of a form."""
    services, service_of = _services(form)
    buckets = form.slacks - 1
    rate_of = form.rates_by_queue[services[:, 1]]
    starts = [first_bucket(form.grid_s, float(form.latency_s[m, b - 1])) for m, b in services]
    place = rate_of * buckets + np.array([bucket for bucket, _ in starts])
    stretches = [poisson(float(rate) * float(step)) for rate in form.stage_rates for step in np.diff(form.grid_s)]
    stretches += [poisson(float(form.stage_rates[i]) * length) for i, (_, length) in zip(rate_of, starts, strict=True)]
    wait_low, wait_first, wait = _rows([_empty_support(window, form.stages) for window in stretches])
    everywhere = np.concatenate([np.arange(form.stage_rates.size * buckets), place])
    land = _kept_landings(form, stretches, everywhere, services)
    phase_low, phase_first, phase = _phases(form)
    partial = form.partial_moves.moves
    return Tables(
        queue=form.queue,
        slacks=form.slacks,
        stages=form.stages,
        rates=form.stage_rates.size,
        after_idling=form.after_idling,
        idle_state=form.over + 1 if form.empty is Empty.PAPER else -1,
        wait_low=wait_low,
        wait_first=wait_first,
        wait=wait,
        land_low=land.low,
        land_first=land.first,
        land=land.data,
        land_over=land.over,
        service_order=np.argsort(place, kind="stable").astype(np.int64),
        service_start=np.searchsorted(np.sort(place), np.arange(form.stage_rates.size * buckets + 1)).astype(np.int64),
        phase_low=phase_low,
        phase_first=phase_first,
        phase=phase,
        action_first=form.actions.first,
        action_service=service_of,
        partial_first=partial.indptr.astype(np.int64),
        partial_state=partial.indices.astype(np.int32, copy=False),
        partial=np.asarray(partial.data, dtype=np.float64),
    )


def _services(form: QueueProcess) -> tuple[Integers, Integers]:
    """(model, batch) of every full service in use, that of "over" last; and which one each action runs."""
    actions = form.actions
    full = ~actions.partial
    used = np.zeros((form.queue + 2, form.models), dtype=bool)
    used[actions.batch[full], actions.model[full]] = True
    batch, model = np.nonzero(used)
    place = np.full((form.queue + 2, form.models), -1, dtype=np.int64)
    place[batch, model] = np.arange(batch.size)
    service_of = place[actions.batch, actions.model]
    service_of[actions.partial] = -1 - np.arange(int(actions.partial.sum()))
    pairs = np.stack([np.append(model, 0), np.append(batch, form.over_batch)], axis=1)
    return pairs, service_of


def _empty_support(window: Window, stages: int) -> Window:
    """The part of a support in which nobody comes whatever the phase was at the beginning."""
    kept = window.probability[: max(stages - window.low, 0)]
    kept = np.where(kept > _NOTHING, kept, 0.0)
    places = np.flatnonzero(kept)
    if places.size == 0:
        return Window(0, np.zeros(0))
    return Window(window.low + int(places[0]), kept[places[0] : places[-1] + 1])


def _rows(windows: list[Window]) -> tuple[Integers, Integers, Floats]:
    first = np.concatenate([[0], np.cumsum([window.probability.size for window in windows])]).astype(np.int64)
    low = np.array([window.low for window in windows], dtype=np.int64)
    return low, first, np.concatenate([window.probability for window in windows])


def _phases(form: QueueProcess) -> tuple[Integers, Integers, Floats]:
    lows: list[Integers] = []
    lengths: list[Integers] = []
    data: list[Floats] = []
    for n in [*range(1, form.queue + 1), form.over_batch]:
        rate = float(form.stage_rates[form.rates_by_queue[n]])
        waited = form.slo_s - form.grid_s if len(lows) < form.queue else np.array([form.slo_s])
        weights = phase_weights(waiting=n, stages=form.stages, means=rate * waited)
        kept = weights > _NOTHING
        lows.append(kept.argmax(axis=1))
        lengths.append(kept.sum(axis=1))
        data.append(weights[kept])
    first = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return np.concatenate(lows).astype(np.int64), first, np.concatenate(data)


def _kept_landings(form: QueueProcess, stretches: list[Window], bucket_of: Integers, services: Integers) -> _Landings:
    """Those of the form before, where arrivals, slacks and services are the same."""
    arrays = (form.latency_s, form.grid_s, form.stage_rates, bucket_of, services)
    key = (form.queue, form.stages, *(array.tobytes() for array in arrays))
    known = _last_landings.get("last")
    if known is not None and known[0] == key:
        return known[1]
    made = _landings(form, stretches, bucket_of, services)
    if sum(array.nbytes for array in made) <= _KEPT_BYTES:
        _last_landings["last"] = key, made
    return made


def _landings(form: QueueProcess, stretches: list[Window], bucket_of: Integers, services: Integers) -> _Landings:
    """The landings of every stretch, bucket by bucket."""
    buckets = form.slacks - 1
    parts = []
    order = np.argsort(bucket_of, kind="stable")
    for bucket in range(form.stage_rates.size * buckets):
        rate, edge = float(form.stage_rates[bucket // buckets]), float(form.grid_s[bucket % buckets + 1])
        after = poisson(rate * (form.slo_s - edge))
        begin, end = np.searchsorted(bucket_of, [bucket, bucket + 1], sorter=order)
        here = order[begin:end]
        top = max((stretches[i].high for i in here if stretches[i].low < form.stages), default=0)
        table, first, last = _landing_rows(form, after, top, form.stages)
        for i in here:
            window = stretches[i]
            if window.low >= form.stages:
                # Somebody comes for certain, so the service as a whole says how many.
                whole = poisson(
                    rate * float(form.latency_s[tuple(services[i - buckets * form.stage_rates.size] - [0, 1])])
                )
                rows = _landing_rows(form, whole, form.stages, 0)[0]
            else:
                rows = np.zeros((form.stages, form.queue + 2))
                mix_rows(window.low, window.probability, form.stages, table, first, last, rows)
            kept = rows[:, 1:-1] > _NOTHING
            # A copy of the last column: a view would hold all the rows.
            parts.append((int(i), kept.argmax(axis=1) + 1, kept.sum(axis=1), rows[:, 1:-1][kept], rows[:, -1].copy()))
    parts.sort(key=lambda part: part[0])
    low, length, data, over = (np.concatenate([part[k] for part in parts]) for k in range(1, 5))
    first = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    return _Landings(low.astype(np.int64), first, data, over)


def _landing_rows(form: QueueProcess, arrivals: Window, rows: int, settled: int) -> tuple[Floats, Integers, Integers]:
    """Row i: the distribution of floor((settled + i + arrivals) / K), N + 1 and more in one; first and last entries."""
    table = np.zeros((rows, form.queue + 2))
    first, last = np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64)
    land_rows(arrivals.low, arrivals.probability, form.stages, settled, table, first, last)
    return table, first, last
