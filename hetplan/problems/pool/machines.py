"""What a pool can be made of: hardware that runs the variant, its offers, and its service times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hetplan.errors import InputError
from hetplan.planner.request import PLENTY, Request, read_request
from hetplan.problems.faults import Faults
from hetplan.problems.pool.letters import Matrix, Times, Type
from hetplan.problems.pool.options import LatencyStat, PoolOptions
from hetplan.problems.pool.wish import Wish
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice
from hetplan.profiles.profile import Hardware, Profile, Run
from hetplan.profiles.tables import Statistic, Table
from hetplan.serving.reading import point_of, settings_of, statistic_of
from hetplan.serving.runs import instances_on, runs_on

__all__ = ["read_columns", "read_types"]

LEAST_MS, MOST_MS = 1e-6, 1e9
"""Service times from a nanosecond to eleven days are believed."""

NOISY = 0.1
"""Above this std/mean the mean says too little about the 99th percentile."""


def read_types(inputs: Inputs, wish: Wish, faults: Faults, notices: list[Notice]) -> tuple[list[Type], Request]:
    """The types that can be rented for the variant, and what they cost."""
    profile, limits = inputs.profile, inputs.slo.limits
    variant = profile.variants[wish.variant]
    types: list[Type] = []
    own_price: dict[str, int] = {}
    without: dict[str, str] = {}
    for name in dict.fromkeys(run.hardware for run in variant.runs):
        hardware = profile.hardware.get(name)
        if hardware is None or (limits.only_listed and name not in limits.instances):
            continue
        run = _run_on(profile, wish.variant, name, faults)
        if run is None:
            continue
        if _too_small(run, hardware, notices):
            without[name] = "it is too small for the variant"
            continue
        if run.price_per_hour is not None:
            own_price[name] = run.price_per_hour
        types.append(Type(run, instances_on(run, hardware)))
    request = read_request(inputs, (kind.hardware for kind in types), own_price=own_price)
    offered = {kind.id for kind in request.machines}
    for kind in types:
        if kind.hardware not in offered:
            without[kind.hardware] = "it has no offer"
            notices.append(Notice(code="W-no-offer", at=f"hardware.{kind.hardware}", text="it has no offer"))
    types = [kind for kind in types if kind.hardware in offered]
    free = min((offer.nanos for offer in request.offers), default=0) * PLENTY <= (wish.budget or 0)
    odd = any(offer.currency != limits.currency for offer in profile.offers.values())
    if limits.instances or free or odd:
        from hetplan.problems.pool.refused import check_types

        check_types(inputs, wish, request, without, faults, notices)
    return types, request


def _too_small(run: Run, hardware: Hardware, notices: list[Notice]) -> bool:
    """Whether the run needs what its hardware does not provide: hardware that lists anything lists all it has."""
    provides = hardware.provides
    if not provides:
        return False
    short = [
        f"{need:g} {resource}, which hardware.{run.hardware}.provides does not list"
        if resource not in provides
        else f"{need:g} {resource} of {provides[resource]:g}"
        for resource, need in run.needs.items()
        if need > provides.get(resource, 0.0)
    ]
    if short:
        text = f"left out, the variant needs {' and '.join(short)}"
        notices.append(Notice(code="W-too-small", at=f"hardware.{run.hardware}", text=text))
    return bool(short)


def _run_on(profile: Profile, variant: str, hardware: str, faults: Faults) -> Run | None:
    """The run on a hardware; of several, the one measured with one query at a time at the variant's own settings."""
    runs = runs_on(profile, variant, hardware)
    settings = {**profile.variants[variant].knobs, "batch": 1}
    fitting = [run for run in runs if all(settings.get(name) == value for name, value in run.at.items())]
    if len(runs) > 1 and not fitting:
        why = f"several runs on {hardware}, and none says how long a single query takes"
        faults.in_profile(f"$.variants.{variant}.runs", why, 'Add one at {"batch": 1}, or keep one without `at`.')
        return None
    return max(fitting or runs, key=lambda run: len(run.at))


def read_columns(
    inputs: Inputs, wish: Wish, types: Sequence[Type], options: PoolOptions, faults: Faults, notices: list[Notice]
) -> Times:
    """Service times of every class on every type."""
    shape = (len(wish.points), len(types))
    mean, compared = np.full(shape, np.inf), np.full(shape, np.inf)
    std, largest = np.full(shape, np.nan), np.full(shape, np.nan)
    extrapolated = np.zeros(shape, dtype=bool)
    knobs = inputs.profile.variants[wish.variant].knobs
    named = "latency_stat" if "latency_stat" in options.model_fields_set else ""
    refuted: list[str] = []
    for j, kind in enumerate(types):
        table, at = inputs.profile.tables[kind.table_id], f"tables.{kind.table_id}"
        settings = settings_of(knobs={}, at=kind.run.at, variant_knobs=knobs)
        if not _covers(table, {**settings, **wish.points[0]}, kind, wish, faults):
            continue
        points = [point_of(table.axes, settings, point) for point in wish.points]
        try:
            held, unlike = statistic_of(table, "mean", at=at)
            read = table.read(points, held)
            extrapolated[:, j] = read.extrapolated
            if kind.is_rate:
                from hetplan.problems.pool.limited_rates import check_given, rates_under

                rates = rates_under(table, points, read.values, kind, wish, refuted, notices)
                serves = rates > 0
                mean[serves, j] = 1000.0 / rates[serves]
                compared[serves, j] = 0.0
                check_given(table, kind, wish, faults, notices)
                _check_size(kind, mean[:, j], faults)
                continue
            mean[:, j] = read.values
            judged, unlike_too = statistic_of(table, options.latency_stat, named=named, at=at)
            notices += dict.fromkeys((*unlike, *unlike_too))
            compared[:, j] = read.values if judged == held else table.read(points, judged).values
            std[:, j] = _where_measured(table, "std", points)
            largest[:, j] = _where_measured(table, "max", points)
        except InputError as error:
            faults.also(error)
        _check_size(kind, mean[:, j], faults)
    _check_target(types, wish, faults)
    if refuted and np.isinf(mean).all(axis=1).any():
        why = f"no run that was measured keeps it; the nearest: {'; '.join(refuted[:3])}"
        faults.in_slo(f"$.apps.{wish.app_id}.latency", why, "Relax it, or measure at fewer requests at a time.")
    if not faults.found:
        times = Times(mean, compared, None, None, extrapolated)
        notices += _doubts(wish, types, options.latency_stat, std, times)
    return Times(mean, compared, _if_known(std), _if_known(largest), extrapolated)


def _where_measured(table: Table, statistic: Statistic, points: Sequence[dict[str, float]]) -> list[float]:
    """A statistic that may be missing, or have gaps; nan where it was not measured."""
    found = []
    for point in points:
        try:
            found.append(float(table.read([point], statistic).values[0]))
        except InputError:
            found.append(np.nan)
    return found


def _if_known(values: Matrix) -> Matrix | None:
    return None if np.isnan(values).any() else values


def _covers(table: Table, point: dict[str, float], kind: Type, wish: Wish, faults: Faults) -> bool:
    wanted = "requests_per_s" if kind.is_rate else "latency_ms"
    if table.quantity != wanted:
        at = f"$.tables.{kind.table_id}.quantity"
        faults.in_profile(at, f"{wanted} is needed here", "Name another table.", value=table.quantity)
        return False
    missing = [axis for axis in table.axes if axis != "batch" and axis not in point]
    if missing:
        why = f"table {kind.table_id} varies with {', '.join(missing)}, which the mix does not name"
        remedy = "Add the axis to the mix, or fix it in the run's `at`."
        faults.in_slo(f"$.apps.{wish.app_id}.demand.mix.axes", why, remedy)
    return not missing


def _check_size(kind: Type, mean: Matrix, faults: Faults) -> None:
    absurd = mean[np.isfinite(mean) & ((mean < LEAST_MS) | (mean > MOST_MS))]
    if absurd.size:
        why, remedy = (
            f"a query takes a machine from {LEAST_MS:g} to {MOST_MS:g} ms",
            "Check the table's numbers and their unit.",
        )
        faults.in_profile(f"$.tables.{kind.table_id}", why, remedy, value=f"{absurd[0]:g} ms")


def _check_target(types: Sequence[Type], wish: Wish, faults: Faults) -> None:
    if not wish.targets and any(not kind.is_rate for kind in types):
        why = "tables of latency need a latency target to be compared with"
        remedy = 'Add {"of": "response", "percentile": 99, "max_ms": ...}.'
        faults.in_slo(f"$.apps.{wish.app_id}.latency", why, remedy)


def _doubts(wish: Wish, types: Sequence[Type], statistic: LatencyStat, std: Matrix, times: Times) -> Iterator[Notice]:
    """What is odd about tables that were read without a fault."""
    one_axis = len(wish.points[0]) == 1
    by_size = np.argsort([next(iter(point.values()), 0.0) for point in wish.points])
    for j, kind in enumerate(types):
        at, mean = f"tables.{kind.table_id}", times.mean_ms[:, j]
        if times.extrapolated[:, j].any():
            n = int(times.extrapolated[:, j].sum())
            yield Notice(code="W-extrapolated", at=at, text=f"{n} of {len(mean)} bins are outside the table")
        if kind.is_rate or np.isinf(mean).any():
            continue
        noise = 0.0 if statistic != "mean" or np.isnan(std[:, j]).any() else float((std[:, j] / mean).max())
        if noise > NOISY:
            text = f"std is up to {noise:.0%} of the mean; latency_stat p99 is the safer choice"
            yield Notice(code="W-noisy", at=at, text=text)
        if one_axis and bool((np.diff(mean[by_size]) < 0).any()):
            yield Notice(code="W-not-monotone", at=at, text="a larger bin takes less time than a smaller one")
