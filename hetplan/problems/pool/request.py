"""Reads the files of a pool: the request of its one application, the machine types, their service times.

`read_pool_request` takes the SLO, `read_types` the hardware that runs the variant, `read_columns` the tables;
`check_together` says what files, each sound by itself, may not ask together. Faults and notices are collected, and
nothing is decided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Fault, InputError
from hetplan.planner.choices import Choice
from hetplan.planner.request import PLENTY, Application, Request
from hetplan.problems.faults import Faults, refuse_not_provided, refused_fields
from hetplan.problems.pool.options import PoolOptions
from hetplan.profiles.columns import Statistic
from hetplan.profiles.fields import money_text
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.json_path import json_path
from hetplan.profiles.operating_points import Limit, Verdict, judge, nearest
from hetplan.profiles.plan import Notice
from hetplan.profiles.tables import Table
from hetplan.serving.table_points import point_of, statistic_of

__all__ = [
    "REFUSED",
    "Matrix",
    "PoolRequest",
    "Times",
    "Vector",
    "check_together",
    "read_columns",
    "read_pool_request",
    "read_types",
]

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

REFUSED = {
    **refused_fields(
        "apps.*.network_ms_once", "limits.capacity", "limits.survive.machines", "limits.survive.zones",
        "change.load_weight_per_s", "horizon.period_s", "horizon.periods", "apps.*.attainment", "apps.*.lifetime_s",
        "apps.*.deadline_s", "apps.*.device", "apps.*.candidates", "apps.*.rate_qps.series", "apps.*.streams",
    ),
    "limits.changes": ("a pool is planned from nothing and counts no changes", "Leave it out."),
    "change.slack": ("headroom of a pool is its option derate", "Set option derate instead."),
    "change.slack_qps": ("headroom of a pool is its option derate", "Set option derate instead."),
    "apps.*.weight": ("a pool serves one application, so nothing is weighed", "Leave it out."),
    "apps.*.rate_qps.history": ("a pool is sized for a stated rate", "Write it as rate_qps."),
}  # fmt: skip
"""Fields of the SLO that this question does not keep: why, and what to write instead."""
RULES = ("earliest", "threshold")
"""Dispatch rules that an SLO may state: the replica that finishes first (Clockwork), or a split at a query size that
simulation finds (DeepRecSys)."""


@dataclass(frozen=True)
class PoolRequest:
    """The SLO as the pool reads it.

    `points` are the classes of queries with a positive share `p`. Choosing is about the last response target of `app`.
    `rate_qps` is served at the least cost; where it is None, the most is served for `Request.budget`. `then_cheapest`
    asks for the least cost among the pools of the most rate.
    """

    app: Application
    variant: str
    points: tuple[Mapping[str, float], ...]
    p: Vector
    rate_qps: float | None
    then_cheapest: bool

    @property
    def dispatch(self) -> str:
        """The rule by which queries find their replica: the one that the SLO states, else Kairos' matching."""
        return self.app.dispatch or "matching"

    @property
    def max_ms(self) -> float | None:
        """The latency target as the file states it (None where there is none)."""
        return self.app.targets[-1].max_ms if self.app.targets else None


def read_pool_request(request: Request, faults: Faults) -> PoolRequest:
    """Which pool is asked for; raises with every fault when that cannot be read at all."""
    if len(request.apps) != 1:
        why = f"a pool serves one application, and the file has {len(request.apps)}"
        faults.in_slo("$.apps", why, "Give one app per file.")
        faults.settle()
    (app,) = request.apps.values()
    names = app.variants
    if len(names) != 1 or names[0] not in request.known.variants:
        why, found = "a pool runs one variant of the profile", ", ".join(names) or "none"
        remedy = f'Write "model": "..." with one of {", ".join(sorted(request.known.variants)[:8])}.'
        faults.in_slo(f"$.apps.{app.id}.{app.answered_by}", why, remedy, value=found)
        faults.settle()
    p = np.array(app.classes.shares, dtype=float)
    faults.refuse(REFUSED)
    refuse_not_provided(request, faults)
    rate, then_cheapest = _objective(request, app, faults)
    faults.refuse_all_network(app)
    return PoolRequest(app, names[0], app.classes.points, p / p.sum(), rate, then_cheapest)


def _objective(request: Request, app: Application, faults: Faults) -> tuple[float | None, bool]:
    """(rate, then cheapest) from limits, demand and objective, which must agree."""
    at = f"$.apps.{app.id}.rate_qps"
    rate, budget, terms = app.rate_qps, request.budget, list(request.goals)
    if terms not in ([], ["rate"], ["rate", "cost"], ["cost"]):
        why = "a pool gives the most rate for a budget, or the least cost for a rate"
        remedy = 'Write "max rate", ["max rate", "min cost"] or "min cost", or leave it out.'
        faults.in_slo("$.objective", why, remedy, value=", ".join(terms))
    if app.range_qps is not None:
        faults.in_slo(at, "a pool is sized for one rate", 'Give a number, or "max".')
        return None, False
    if rate is None:
        if budget is None:
            remedy = 'Give limits.cost_per_hour with rate_qps "max" for the most rate, or a number for the least cost.'
            place = "$.limits.cost_per_hour" if app.wants_max_rate else at
            faults.in_slo(place, "neither a budget nor a rate is given", remedy)
        if terms == ["cost"]:
            faults.in_slo("$.objective", "the least cost needs a rate to be served", f"Give a number at {at}.")
        return None, terms == ["rate", "cost"]
    if budget is not None:
        why = f"a budget and a rate ({rate:g} qps) are both given, and a pool is chosen for one of them"
        remedy = 'Remove it for the least cost of that rate, or set rate_qps to "max" for the most rate it buys.'
        faults.in_slo("$.limits.cost_per_hour", why, remedy, value=money_text(budget))
    if terms[:1] == ["rate"]:
        why = "the rate is given, so it cannot be maximised"
        faults.in_slo("$.objective", why, 'Set rate_qps to "max", or minimise cost.')
    return rate, False


# -- machines --------------------------------------------------------------------------------------------------------
#
# What a pool can be made of: hardware that runs the variant, its offers, and its service times.

LEAST_MS, MOST_MS = 1e-6, 1e9
"""Service times from a nanosecond to eleven days are believed."""

NOISY = 0.1
"""Above this std/mean the mean says too little about the 99th percentile."""


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


def read_types(
    request: Request, wish: PoolRequest, faults: Faults, notices: list[Notice]
) -> tuple[list[Choice], Request]:
    """The ways to run the variant, one on each hardware that can be rented; and what machines cost."""
    types = list[Choice]()
    without: dict[str, str] = {}
    as_listed = sorted(request.choices(variants=[wish.variant]), key=lambda one: one.place)
    for name in dict.fromkeys(one.hardware for one in as_listed if request.lists(one.hardware)):
        kind = _run_on(request, wish.variant, name, faults)
        if kind is None:
            continue
        if kind.lacking:
            notices.append(Notice(code="W-too-small", at=f"hardware.{name}", text=_lacking_text(kind)))
            without[name] = "it is too small for the model"
            continue
        types.append(kind)
    own_price = {kind.hardware: kind.own_price for kind in types if kind.own_price is not None}
    request = request.renting(request.profile, (kind.hardware for kind in types), own_price=own_price)
    offered = {kind.id for kind in request.machines}
    for kind in types:
        if kind.hardware not in offered:
            without[kind.hardware] = "it has no price"
            notices.append(Notice(code="W-no-offer", at=f"hardware.{kind.hardware}", text="it has no price"))
    types = [kind for kind in types if kind.hardware in offered]
    _check_types(wish, request, without, faults, notices)
    return types, request


def _lacking_text(kind: Choice) -> str:
    """Why a machine does not hold an instance."""
    provides = kind.machine.provides
    short = [
        f"{kind.needs[resource]:g} {resource}"
        + (f" of {room:g}" if resource in provides else f", which machines.{kind.hardware}.provides does not list")
        for resource, room in kind.lacking.items()
    ]
    return f"left out, the variant needs {' and '.join(short)}"


def _run_on(request: Request, variant: str, hardware: str, faults: Faults) -> Choice | None:
    """The run on a hardware; of several, the one measured with one query at a time at the variant's own settings."""
    runs = request.choices(variants=[variant], hardware=hardware)
    fitting = [one for one in runs if one.has_single_queries]
    if len(runs) > 1 and not fitting:
        why = f"several runs on {hardware}, and none says how long a single query takes"
        faults.in_profile(f"$.variants.{variant}.runs", why, 'Add one at {"batch": 1}, or keep one without `at`.')
        return None
    return max(fitting or runs, key=lambda one: len(one.at))


def read_columns(
    wish: PoolRequest, types: Sequence[Choice], options: PoolOptions, faults: Faults, notices: list[Notice]
) -> Times:
    """Service times of every class on every type."""
    shape = (len(wish.points), len(types))
    mean, compared = np.full(shape, np.inf), np.full(shape, np.inf)
    std, largest = np.full(shape, np.nan), np.full(shape, np.nan)
    extrapolated = np.zeros(shape, dtype=bool)
    named = "" if options.statistic == "auto" else "statistic"
    refuted: list[str] = []
    for j, kind in enumerate(types):
        table, at = kind.own_table, f"tables.{kind.table_id}"
        if not _covers(kind, wish, faults):
            continue
        points = [point_of(table.axes, kind.settings, point) for point in wish.points]
        try:
            held, unlike = statistic_of(table, "mean", at=at)
            read = table.read(points, held)
            extrapolated[:, j] = read.extrapolated
            if not kind.is_timed:
                rates = _rates_within(points, read.values, kind, wish, refuted, notices)
                serves = rates > 0
                mean[serves, j] = 1000.0 / rates[serves]
                compared[serves, j] = 0.0
                _check_given(kind, wish, faults, notices)
                _check_size(kind, mean[:, j], faults)
                continue
            mean[:, j] = read.values
            judged, unlike_too = statistic_of(table, options.judged_by, named=named, at=at)
            notices += dict.fromkeys((*unlike, *unlike_too))
            compared[:, j] = read.values if judged == held else table.read(points, judged).values
            std[:, j] = _where_measured(table, "std", points)
            largest[:, j] = _where_measured(table, "max", points)
        except InputError as error:
            faults.also(error)
        _check_size(kind, mean[:, j], faults)
    _check_target(types, wish, faults)
    if refuted and np.isinf(mean).all(axis=1).any():
        why = f"no measured run meets it; the nearest: {'; '.join(refuted[:3])}"
        faults.in_slo(f"$.apps.{wish.app.id}.latency", why, "Relax it, or measure with fewer concurrent requests.")
    if not faults.found:
        times = Times(mean, compared, None, None, extrapolated)
        notices += _doubts(wish, types, options.judged_by, std, times)
    return Times(mean, compared, _if_known(std), _if_known(largest), extrapolated)


def _where_measured(table: Table, statistic: Statistic, points: Sequence[dict[str, float]]) -> list[float]:
    """A statistic that may be missing, or have gaps; nan where it was not measured."""
    if statistic not in table.statistics:
        return [np.nan] * len(points)
    found = []
    for point in points:
        try:
            found.append(float(table.read([point], statistic).values[0]))
        except InputError:
            found.append(np.nan)
    return found


def _if_known(values: Matrix) -> Matrix | None:
    return None if np.isnan(values).any() else values


def _covers(kind: Choice, wish: PoolRequest, faults: Faults) -> bool:
    table, wanted = kind.own_table, "latency_ms" if kind.is_timed else "requests_per_s"
    if table.quantity != wanted:
        at = f"$.tables.{kind.table_id}.quantity"
        faults.in_profile(at, f"{wanted} is needed here", "Name another table.", value=table.quantity)
        return False
    missing = [axis for axis in table.axes if axis not in {"batch", *kind.settings, *wish.points[0]}]
    if missing:
        why = f"table {kind.table_id} varies with {', '.join(missing)}, which the mix does not name"
        remedy = "Add the axis to the mix, or fix it in the run's `at`."
        faults.in_slo(f"$.apps.{wish.app.id}.mix.axes", why, remedy)
    return not missing


def _check_size(kind: Choice, mean: Matrix, faults: Faults) -> None:
    absurd = mean[np.isfinite(mean) & ((mean < LEAST_MS) | (mean > MOST_MS))]
    if absurd.size:
        why = f"a query takes a machine from {LEAST_MS:g} to {MOST_MS:g} ms"
        remedy = "Check the table's numbers and their unit."
        faults.in_profile(f"$.tables.{kind.table_id}", why, remedy, value=f"{absurd[0]:g} ms")


def _check_target(types: Sequence[Choice], wish: PoolRequest, faults: Faults) -> None:
    if any(kind.is_timed for kind in types):
        faults.refuse(refused_fields("apps.*.latency.ttft_p*_ms", "apps.*.latency.tpot_p*_ms"))
    if not wish.app.targets and any(kind.is_timed for kind in types):
        why = "tables of latency need a latency target to be compared with"
        remedy = 'Write {"p99_ms": ...}.'
        faults.in_slo(f"$.apps.{wish.app.id}.latency", why, remedy)


def _doubts(wish: PoolRequest, types: Sequence[Choice], statistic: str, std: Matrix, times: Times) -> Iterator[Notice]:
    """What is odd about tables that were read without a fault."""
    one_axis = len(wish.points[0]) == 1
    by_size = np.argsort([next(iter(point.values()), 0.0) for point in wish.points])
    for j, kind in enumerate(types):
        at, mean = f"tables.{kind.table_id}", times.mean_ms[:, j]
        if times.extrapolated[:, j].any():
            n = int(times.extrapolated[:, j].sum())
            yield Notice(code="W-extrapolated", at=at, text=f"{n} of {len(mean)} bins are outside the table")
        if not kind.is_timed or np.isinf(mean).any():
            continue
        noise = 0.0 if statistic != "mean" or np.isnan(std[:, j]).any() else float((std[:, j] / mean).max())
        if noise > NOISY:
            text = f"std is up to {noise:.0%} of the mean; statistic p99 is the safer choice"
            yield Notice(code="W-noisy", at=at, text=text)
        if one_axis and bool((np.diff(mean[by_size]) < 0).any()):
            yield Notice(code="W-not-monotone", at=at, text="a larger bin takes less time than a smaller one")


# -- rates within limits ---------------------------------------------------------------------------------------------
#
# Rates of machines under limits on times: by the runs of a table, or by the conditions under which it holds.

UNCHECKED = "W-latency-unchecked"


def _check_given(kind: Choice, wish: PoolRequest, faults: Faults, notices: list[Notice]) -> None:
    """A table of rates without runs holds under conditions; the limits must follow from them."""
    table = kind.own_table
    for limit in wish.app.limits if not table.points else ():
        verdict = judge(table.given, [limit])
        if verdict is Verdict.UNCHECKED:
            text = f"its `given` does not say whether its rates hold at {limit}"
            notices.append(Notice(code=UNCHECKED, at=f"tables.{kind.table_id}", text=text))
        elif verdict is Verdict.REFUTED:
            found = ", ".join(f"{name} {value:g}" for name, value in table.given.items())
            why = f"the rates of {kind.table_id} were measured at {found}, which is looser"
            at = json_path(("apps", wish.app.id, "latency", limit.key))
            faults.in_slo(at, why, "Measure at this target, or relax it.", value=limit.max_ms)


def _rates_within(
    points: Sequence[Mapping[str, float]], free: Vector, kind: Choice, wish: PoolRequest, refuted: list[str],
    notices: list[Notice],
) -> Vector:  # fmt: skip
    """Requests per second of each class (`free`: without limits), 0 where every run of its size breaks a limit.

    What is refuted is added to `refuted`, what no run says to the notices.
    """
    table, limits = kind.own_table, wish.app.limits
    held = table.under(limits)
    if held is table:
        return free
    rates = _rates(held, points)
    if (rates == 0.0).any():
        which = ", ".join(f"{name} {value:g}" for name, value in points[int(np.argmin(rates))].items())
        refuted.append(f"{kind.table_id} at {which}: {_nearest(table, points[int(np.argmin(rates))], limits)}")
    unchecked = int(((rates > 0.0) & (_rates(table.under(limits, Verdict.KEPT), points) != rates)).sum())
    if unchecked:
        listed = " and ".join(map(str, limits))
        text = f"of {unchecked} of {len(points)} classes no run says whether {listed}; none that breaks it is counted"
        notices.append(Notice(code=UNCHECKED, at=f"tables.{kind.table_id}", text=text))
    return rates


def _rates(table: Table, points: Sequence[Mapping[str, float]]) -> Vector:
    """The rate of each class, 0 where there is none."""
    found = np.zeros(len(points))
    for place, point in enumerate(points):
        try:
            found[place] = table.read([point]).values[0]
        except InputError:
            continue
    return found


def _nearest(table: Table, point: Mapping[str, float], limits: Sequence[Limit]) -> str:
    """The run that comes nearest, of the size that is nearest to a class."""

    def away(at: Mapping[str, float]) -> float:
        return sum(abs(math.log((1.0 + at[name]) / (1.0 + point[name]))) for name in table.axes)

    least = min(away(one.at) for one in table.points)
    return nearest([one for one in table.points if away(one.at) == least], limits)


# -- what is refused -------------------------------------------------------------------------------------------------
#
# What a pool refuses of files that are sound one by one: machines that are not there, wishes against options.


def _check_types(
    wish: PoolRequest,
    request: Request,
    without: Mapping[str, str],
    faults: Faults,
    notices: Sequence[Notice],
) -> None:
    """What is demanded and is not there (`without` says why), what nothing limits; and whether anything is there."""
    for hardware, why in without.items():
        _check_demanded(request, hardware, why, faults)
    known = {one.hardware for one in request.choices(variants=[wish.variant])}
    for hardware, (least, _) in request.instances.items():
        if hardware not in known and least > 0:
            _check_demanded(request, hardware, f"{wish.variant} has no run on it", faults)
    for kind in request.machines:
        if kind.least > sum(offer.stock for offer in kind.offers):
            faults.in_slo(
                f"$.limits.instances.{kind.id}[0]",
                f"more than there are of {kind.id} in stock",
                "Lower it, or raise the stock.",
                value=kind.least,
            )
        if (
            wish.rate_qps is None
            and kind.most >= PLENTY
            and any(offer.nanos == 0 and offer.stock >= PLENTY for offer in kind.offers)
        ):
            faults.in_slo(
                f"$.limits.instances.{kind.id}",
                f"{kind.id} costs nothing and nothing limits its number",
                "Give [least, most], or a stock to its machine type.",
            )
    for offer in request.offers:
        bought = request.budget // offer.nanos if request.budget is not None and offer.nanos > 0 else 0
        if min(bought, offer.stock, request.of(offer.machine).most) >= PLENTY:
            faults.in_profile(
                f"$.offers.{offer.id}.price_per_hour" if offer.id else f"$.variants.{wish.variant}.runs",
                f"the budget buys {bought:,} of these, and pools of {PLENTY:,} or more are not planned",
                "Check the price, or give [least, most] in limits.instances.",
                value=money_text(offer.nanos),
            )
    if not request.machines and not faults.found:
        _refuse_without_machines(wish, faults, notices)


def _refuse_without_machines(wish: PoolRequest, faults: Faults, notices: Sequence[Notice]) -> None:
    left_out = [f"{notice.at.removeprefix('hardware.')}: {notice.text}" for notice in notices]
    why = f" ({'; '.join(left_out)})" if left_out else ""
    remedy = "Add a run on a machine type with a price (and list it in limits.instances where only_listed is set)."
    if any(notice.code == "W-too-small" for notice in notices):
        remedy = "Say under `provides` all that the machine has, or lower what the run needs."
    faults.in_profile(
        f"$.variants.{wish.variant}.runs", f"no machine type that may be rented runs this model{why}", remedy
    )


def _check_demanded(request: Request, hardware: str, why: str, faults: Faults) -> None:
    least, _ = request.instances.get(hardware, (0, None))
    if least > 0:
        faults.in_slo(
            f"$.limits.instances.{hardware}[0]",
            f"{hardware} is demanded, but {why}",
            "Set it to 0, or mend the profile.",
            value=least,
        )


def check_together(
    inputs: Inputs, wish: PoolRequest, types: Sequence[Choice], times: Times, options: PoolOptions, faults: Faults
) -> PoolOptions:
    """What the files, each sound by itself, may not ask for together with the options of a pool.

    The rate is looked at only where all else is sound. Back come the options, which a stated dispatch rule settles.
    """
    _check_tolerance(wish, options, faults)
    _check_measured(inputs, faults)
    options = _check_dispatch(wish, types, options, faults)
    if not faults.found:
        _check_rate(wish, times, options, faults)
    return options


def _check_tolerance(wish: PoolRequest, options: PoolOptions, faults: Faults) -> None:
    """A target at a percentile leaves its own share of late queries, and a plan may not be made to exceed it."""
    if wish.app.targets and options.allow_late > wish.app.targets[-1].left + 1e-9:
        percentile = wish.app.targets[-1].percentile
        faults.in_options(
            "allow_late",
            f"the latency target is at percentile {percentile:g}, which leaves {wish.app.targets[-1].left:.4g}",
            "Lower the option, or the percentile.",
            value=options.allow_late,
        )


def _check_dispatch(wish: PoolRequest, types: Sequence[Choice], options: PoolOptions, faults: Faults) -> PoolOptions:
    """A stated rule is for single queries, a threshold for queries of one size; both are sized by simulation alone."""
    if wish.dispatch == "matching":
        return options
    why = remedy = ""
    if wish.dispatch not in RULES:
        why, remedy = f"{wish.dispatch} is no rule of a pool", f'Write "{RULES[0]}" or "{RULES[1]}", or leave it out.'
    elif not all(kind.is_timed for kind in types):
        why, remedy = "runs that state rates serve several queries at once", "Leave it out: their shares decide."
    elif wish.dispatch == "threshold" and len(wish.points[0]) != 1:
        why, remedy = "a threshold parts queries of one size, so of one axis", 'Write "earliest", or leave it out.'
    if why:
        faults.in_slo(f"$.apps.{wish.app.id}.dispatch", why, remedy, value=wish.dispatch)
    elif options.sizing != "simulation" and "sizing" in options.model_fields_set:
        why = f"what {wish.dispatch} carries is known by simulation alone"
        faults.in_options("sizing", why, 'Set it to "simulation", or leave it out.', value=options.sizing)
    return options.model_copy(update={"sizing": "simulation"})


def _check_measured(inputs: Inputs, faults: Faults) -> None:
    """Measurements that nobody reads would be hashed into the plan as if they had mattered."""
    if inputs.measured is not None:
        name = inputs.files.get("measured", "measured")
        why = "a pool reads no measurements besides the profile"
        remedy = "Leave that file out; what was measured goes into the profile's tables."
        faults.found.append(Fault(name, "$", "", why, remedy))


def _check_rate(wish: PoolRequest, times: Times, options: PoolOptions, faults: Faults) -> None:
    """A rate for which more instances would be needed than engines can count exactly."""
    if wish.rate_qps is None:
        return
    with np.errstate(over="ignore"):
        fastest = times.mean_ms.min(axis=1)
        needed = float(wish.p[np.isfinite(fastest)] @ fastest[np.isfinite(fastest)]) / 1000.0
        instances = np.float64(needed) * wish.rate_qps / options.derate
    if instances > PLENTY:
        faults.in_slo(
            f"$.apps.{wish.app.id}.rate_qps",
            f"more than {PLENTY:,} instances would be needed, at derate {options.derate:g}",
            "Check the number (rates are per second), the unit of the tables and option derate.",
            value=wish.rate_qps,
        )
