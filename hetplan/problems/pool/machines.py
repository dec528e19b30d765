"""What a pool can be made of: hardware that runs the variant, its offers, and its service times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Fault, InputError
from hetplan.problems.faults import Faults
from hetplan.problems.pool.options import LatencyStat, PoolOptions
from hetplan.problems.pool.wish import Wish
from hetplan.profiles.fields import money_text
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice
from hetplan.profiles.profile import Hardware, Profile, Run, Variant
from hetplan.profiles.tables import Table
from hetplan.serving.machine import instances_on, machine_price
from hetplan.serving.reading import point_of, settings_of, statistic_of
from hetplan.serving.runs import runs_on

__all__ = ["MOST_INSTANCES", "Column", "Times", "Type", "check_all", "read_columns", "read_types"]

MOST_INSTANCES = 10**9
"""Above this many of one type engines no longer count exactly."""

LEAST_MS, MOST_MS = 1e-6, 1e9
"""Service times from a nanosecond to eleven days are believed."""

NOISY = 0.1
"""Above this std/mean the mean says too little about the 99th percentile."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Type:
    """A hardware that runs the variant; `most` (machines) is None where nothing but stock and money limits it."""

    run: Run
    least: int
    most: int | None
    per_machine: int = 1

    @property
    def hardware(self) -> str:
        """Its hardware's id."""
        return self.run.hardware

    @property
    def is_rate(self) -> bool:
        """Whether its table gives requests per second, several being served at once, and not times of single ones."""
        return self.run.latency is None

    @property
    def table_id(self) -> str:
        """The table of its times or rates."""
        return self.run.latency or self.run.rate or ""


@dataclass(frozen=True)
class Column:
    """An offer of a type: what one machine costs per hour (a count of 1e-9) and how many there are."""

    offer: str | None
    type: int
    price: int
    stock: int | None


@dataclass(frozen=True)
class Times:
    """Per class and type: the mean time one query holds an instance, and the statistic compared with the target.

    A class that a type cannot serve at all takes infinitely long. `extrapolated` marks what was read outside a table.
    """

    mean_ms: Matrix
    compared_ms: Matrix
    std_ms: Matrix | None
    max_ms: Matrix | None
    extrapolated: NDArray[np.bool_]


def read_types(inputs: Inputs, wish: Wish, faults: Faults, notices: list[Notice]) -> tuple[list[Type], list[Column]]:
    """The types that can be rented for the variant, and their offers as columns."""
    profile, limits = inputs.profile, inputs.slo.limits
    variant = profile.variants[wish.variant]
    types: list[Type] = []
    columns: list[Column] = []
    for name in dict.fromkeys(run.hardware for run in variant.runs):
        hardware = profile.hardware.get(name)
        if hardware is None or (limits.only_listed and name not in limits.instances):
            continue
        run = _run_on(profile, wish.variant, name, faults)
        if run is None:
            continue
        least, most = limits.instances.get(name, (0, None))
        if _too_small(run, hardware, limits.resources, notices):
            _absent(inputs, run.hardware, "it is too small for the variant", faults)
            continue
        offered = _offers(inputs, run, hardware, len(types), faults)
        if not offered:
            _absent(inputs, run.hardware, "it has no offer", faults)
            notices.append(Notice(code="W-no-offer", at=f"hardware.{run.hardware}", text="it has no offer"))
            continue
        types.append(Type(run, least, most, instances_on(run, hardware)))
        columns += offered
    _check_types(inputs, wish, types, columns, faults)
    if not types and not faults.found:
        _nothing_to_rent(wish, faults, notices)
    return types, columns


def _check_types(inputs: Inputs, wish: Wish, types: list[Type], columns: list[Column], faults: Faults) -> None:
    variant: Variant = inputs.profile.variants[wish.variant]
    known = {run.hardware for run in variant.runs}
    for hardware, (least, _) in inputs.slo.limits.instances.items():
        if hardware not in known and least > 0:
            _absent(inputs, hardware, f"{wish.variant} has no run on it", faults)
    for i, kind in enumerate(types):
        stocks = [column.stock for column in columns if column.type == i]
        if None not in stocks and kind.least > sum(stock or 0 for stock in stocks):
            faults.in_slo(
                f"$.limits.instances.{kind.hardware}[0]",
                f"more than the offers of {kind.hardware} have in stock",
                "Lower it, or raise the stock of an offer.",
                value=kind.least,
            )
        if (
            wish.rate_qps is None
            and kind.most is None
            and any(c.price == 0 and c.stock is None for c in columns if c.type == i)
        ):
            faults.in_slo(
                f"$.limits.instances.{kind.hardware}",
                f"{kind.hardware} costs nothing and nothing limits its number",
                "Give [least, most], or a stock to its offer.",
            )
    for column in columns:
        limits = [limit for limit in (column.stock, types[column.type].most) if limit is not None]
        bought = wish.budget // column.price if wish.budget is not None and column.price > 0 else 0
        if min([bought, *limits]) > MOST_INSTANCES:
            faults.in_profile(
                f"$.offers.{column.offer}.price_per_hour" if column.offer else f"$.variants.{wish.variant}.runs",
                f"the budget buys {bought:,} of these, and pools of more than {MOST_INSTANCES:,} are not planned",
                "Check the price, or give [least, most] in limits.instances.",
                value=money_text(column.price),
            )


def _nothing_to_rent(wish: Wish, faults: Faults, notices: Sequence[Notice]) -> None:
    left_out = [f"{notice.at.removeprefix('hardware.')}: {notice.text}" for notice in notices]
    why = f" ({'; '.join(left_out)})" if left_out else ""
    remedy = "Add a run on a hardware with an offer (and list it in limits.instances where only_listed is set)."
    if any(notice.code == "W-too-small" for notice in notices):
        remedy = "Say under `provides` all that the hardware has, or lower what the run needs."
    faults.in_profile(
        f"$.variants.{wish.variant}.runs", f"no hardware that may be rented runs this variant{why}", remedy
    )


def _absent(inputs: Inputs, hardware: str, why: str, faults: Faults) -> None:
    least, _ = inputs.slo.limits.instances.get(hardware, (0, None))
    if least > 0:
        faults.in_slo(
            f"$.limits.instances.{hardware}[0]",
            f"{hardware} is demanded, but {why}",
            "Set it to 0, or mend the profile.",
            value=least,
        )


def _too_small(run: Run, hardware: Hardware, totals: Mapping[str, float], notices: list[Notice]) -> bool:
    """Whether the run needs what its hardware does not provide: hardware that lists anything lists all it has.

    What the wish limits in `totals` may be left out there: it counts in the total.
    """
    provides = hardware.provides
    if not provides:
        return False
    short = [
        f"{need:g} {resource}, which hardware.{run.hardware}.provides does not list"
        if resource not in provides
        else f"{need:g} {resource} of {provides[resource]:g}"
        for resource, need in run.needs.items()
        if need > provides.get(resource, need if resource in totals else 0.0)
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


def _offers(inputs: Inputs, run: Run, hardware: Hardware, kind: int, faults: Faults) -> list[Column]:
    """Whole machines: at the run's own price, or under every offer of the hardware, or for 1 without any offers."""
    profile = inputs.profile
    if run.price_per_hour is not None or not profile.offers:
        from hetplan.serving.price import price_of

        return [Column(None, kind, price_of(profile, run, None).nanos, None)]
    found = []
    for offer_id, offer in profile.offers.items():
        if offer.hardware != run.hardware:
            continue
        if offer.currency != inputs.slo.limits.currency:
            faults.in_profile(
                f"$.offers.{offer_id}.currency",
                f"the SLO counts in {inputs.slo.limits.currency}",
                "Convert one of them; hetplan knows no exchange rates.",
                value=offer.currency,
            )
        found.append(Column(offer_id, kind, machine_price(offer, hardware), offer.stock))
    return found


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
                serves = read.values > 0
                mean[serves, j] = 1000.0 / read.values[serves]
                compared[serves, j] = 0.0
                _check_given(table, kind, wish, faults, notices)
                _check_size(kind, mean[:, j], faults)
                continue
            mean[:, j] = read.values
            judged, unlike_too = statistic_of(table, options.latency_stat, named=named, at=at)
            notices += dict.fromkeys((*unlike, *unlike_too))
            compared[:, j] = read.values if judged == held else table.read(points, judged).values
            std[:, j] = np.nan if table.std is None else table.read(points, "std").values
            largest[:, j] = np.nan if table.max is None else table.read(points, "max").values
        except InputError as error:
            faults.also(error)
        _check_size(kind, mean[:, j], faults)
    _check_target(types, wish, faults)
    if not faults.found:
        times = Times(mean, compared, None, None, extrapolated)
        notices += _doubts(wish, types, options.latency_stat, std, times)
    return Times(mean, compared, _if_known(std), _if_known(largest), extrapolated)


def _if_known(values: Matrix) -> Matrix | None:
    return None if np.isnan(values).any() else values


def _covers(table: Table, point: dict[str, float], kind: Type, wish: Wish, faults: Faults) -> bool:
    wanted = "requests_per_s" if kind.is_rate else "latency_ms"
    if table.quantity != wanted:
        faults.in_profile(
            f"$.tables.{kind.table_id}.quantity",
            f"{wanted} is needed here",
            "Name another table.",
            value=table.quantity,
        )
        return False
    missing = [axis for axis in table.axes if axis != "batch" and axis not in point]
    if missing:
        faults.in_slo(
            f"$.apps.{wish.app_id}.demand.mix.axes",
            f"table {kind.table_id} varies with {', '.join(missing)}, which the mix does not name",
            "Add the axis to the mix, or fix it in the run's `at`.",
        )
    return not missing


def _check_size(kind: Type, mean: Matrix, faults: Faults) -> None:
    absurd = mean[np.isfinite(mean) & ((mean < LEAST_MS) | (mean > MOST_MS))]
    if absurd.size:
        faults.in_profile(
            f"$.tables.{kind.table_id}",
            f"a query takes a machine from {LEAST_MS:g} to {MOST_MS:g} ms",
            "Check the table's numbers and their unit.",
            value=f"{absurd[0]:g} ms",
        )


def _check_given(table: Table, kind: Type, wish: Wish, faults: Faults, notices: list[Notice]) -> None:
    """A table of rates holds under conditions; those the SLO states must be among them, and no looser."""
    for i, target in enumerate(wish.app.latency):
        key = f"{target.of}_p{target.percentile:g}_ms"
        if key not in table.given:
            notices.append(
                Notice(
                    code="W-latency-unchecked",
                    at=f"tables.{kind.table_id}",
                    text=f"its `given` does not say at which {key} its rates hold",
                )
            )
        elif table.given[key] > target.max_ms:
            faults.in_slo(
                f"$.apps.{wish.app_id}.latency[{i}].max_ms",
                f"the rates of {kind.table_id} were measured at {key} {table.given[key]:g}, which is looser",
                "Measure at this target, or relax it.",
                value=target.max_ms,
            )


def _check_target(types: Sequence[Type], wish: Wish, faults: Faults) -> None:
    if not wish.targets and any(not kind.is_rate for kind in types):
        faults.in_slo(
            f"$.apps.{wish.app_id}.latency",
            "tables of latency need a latency target to be compared with",
            'Add {"of": "response", "percentile": 99, "max_ms": ...}.',
        )


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


def check_all(
    inputs: Inputs, wish: Wish, types: Sequence[Type], times: Times, options: PoolOptions, faults: Faults
) -> None:
    """What the files, each sound by itself, may not ask for together with the options of a pool.

    The rate is looked at only where all else is sound.
    """
    names = [kind.hardware for kind in types]
    if options.base_type is not None and types and options.base_type not in names:
        faults.in_options(
            "base_type", "no type of this pool", f"Name one of {', '.join(names)}.", value=options.base_type
        )
    _check_tolerance(wish, options, faults)
    _check_measured(inputs, faults)
    _check_dispatch(wish, types, options, faults)
    if not faults.found:
        _check_rate(wish, times, options, faults)


def _check_tolerance(wish: Wish, options: PoolOptions, faults: Faults) -> None:
    """A target at a percentile leaves its own share of late queries, and a plan may not be made to exceed it."""
    if wish.targets and options.violation_tolerance > wish.targets[-1].left + 1e-9:
        percentile = wish.app.latency[wish.targets[-1].place].percentile
        faults.in_options(
            "violation_tolerance",
            f"the latency target is at percentile {percentile:g}, which leaves {wish.targets[-1].left:.4g}",
            "Lower the option, or the percentile.",
            value=options.violation_tolerance,
        )


def _check_dispatch(wish: Wish, types: Sequence[Type], options: PoolOptions, faults: Faults) -> None:
    """A rule other than matching is for single queries, a threshold for queries of one size."""
    if options.dispatch == "matching":
        return
    why = remedy = ""
    if any(kind.is_rate for kind in types):
        why, remedy = "runs that state rates serve several queries at once", "Leave it out: their shares decide."
    elif options.dispatch == "threshold" and len(wish.points[0]) != 1:
        why, remedy = "a threshold parts queries of one size, so of one axis", 'Take "earliest", or leave it out.'
    if why:
        faults.in_options("dispatch", why, remedy, value=options.dispatch)


def _check_measured(inputs: Inputs, faults: Faults) -> None:
    """Measurements that nobody reads would be hashed into the plan as if they had mattered."""
    if inputs.measured is not None:
        name = inputs.files.get("measured", "measured")
        why = "the question pool reads no measurements beside the profile"
        remedy = "Leave it out (--measured); what was measured goes into the profile's tables."
        faults.found.append(Fault(name, "$", "", why, remedy))


def _check_rate(wish: Wish, times: Times, options: PoolOptions, faults: Faults) -> None:
    """A rate for which more instances would be needed than engines can count exactly."""
    if wish.rate_qps is None:
        return
    with np.errstate(over="ignore"):
        fastest = times.mean_ms.min(axis=1)
        needed = float(wish.p[np.isfinite(fastest)] @ fastest[np.isfinite(fastest)]) / 1000.0
        instances = np.float64(needed) * wish.rate_qps / options.derate
    if instances > MOST_INSTANCES:
        faults.in_slo(
            f"$.apps.{wish.app_id}.demand.rate_qps",
            f"more than {MOST_INSTANCES:,} instances would be needed, at derate {options.derate:g}",
            "Check the number (rates are per second), the unit of the tables and option derate.",
            value=wish.rate_qps,
        )
