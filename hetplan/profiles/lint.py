"""What `hetplan check` says of inputs that are valid: rows never worth choosing, gaps, doubtful numbers, leftovers.

Each finding is (code, place, text), as the warnings of `Inputs` are. None of them stops a plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.profiles.columns import Statistic
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Profile, Run, Variant
from hetplan.profiles.slo import App, Slo
from hetplan.profiles.tables import Table
from hetplan.profiles.who_answers import choices, listed

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["dominated_rows", "lint"]

Finding = tuple[str, str, str]

_NOISY = 0.1
"""Above this std/mean, a mean says too little about the tail that a limit speaks of."""

_STALE = timedelta(days=365)


def lint(inputs: Inputs, *, today: date | None = None) -> tuple[Finding, ...]:
    """Every finding, in the order of the files.

    Sources are judged stale against `today`, or else against the newest source of the profile.
    """
    profile, slo = inputs.profile, inputs.slo
    found: list[Finding] = []
    for check in (
        _stale_sources(profile, today),
        _offers(profile, slo),
        _rooms(profile),
        _sizes(profile),
        _tables(profile),
    ):
        found += check
    found += dominated_rows(profile)
    for name, app in slo.apps.items():
        runs = _allowed_runs(profile, app)
        found += _choices(profile, name, app)
        found += _coverage(profile, name, app, runs)
        found += _reachable(profile, name, app, runs)
    return tuple(dict.fromkeys((code, profile.places.text(at), text) for code, at, text in found))


def _stale_sources(profile: Profile, today: date | None) -> Iterator[Finding]:
    dates = {name: _date(source.date) for name, source in profile.sources.items() if source.date is not None}
    reference = today or max((when for when in dates.values() if when), default=None)
    for name, when in dates.items():
        if when is None:
            yield ("W-date", f"sources.{name}.date", f"{profile.sources[name].date} is not a date")
        elif reference is not None and reference - when > _STALE:
            age = (reference - when).days
            text = f"measured {age} days before {reference}: drivers and prices change, measure again"
            yield ("W-stale", f"sources.{name}.date", text)


def _date(text: str) -> date | None:
    """The first day that the text covers (2026, 2026-11 or 2026-11-01)."""
    try:
        return date(*[int(part) for part in f"{text}-01-01".split("-")[:3]])
    except ValueError:
        return None


def _offers(profile: Profile, slo: Slo) -> Iterator[Finding]:
    run_on = {run.hardware for variant in profile.variants.values() for run in variant.runs}
    priced_alone = {
        run.hardware for variant in profile.variants.values() for run in variant.runs if run.price_per_hour is not None
    }
    offered = {offer.hardware for offer in profile.offers.values()}
    money_matters = slo.limits.cost_per_hour is not None or "min cost" in slo.objective
    for name in profile.hardware:
        if name in run_on and name not in offered and name not in priced_alone:
            why = "so it cannot be used under a budget" if money_matters else "so one machine costs 1"
            yield ("W-no-price", f"hardware.{name}", f"it has no price, {why}")
        if name not in run_on and profile.variants:
            yield ("W-unused", f"hardware.{name}", "no model has a run on it")
    for name, offer in profile.offers.items():
        if offer.hardware not in run_on and profile.variants:
            yield ("W-unused", f"offers.{name}", f"no model has a run on {offer.hardware}")
        if offer.price_per_hour == 0:
            yield ("W-free", f"offers.{name}.price_per_hour", "a price of 0: any number of these costs nothing")


def _sizes(profile: Profile) -> Iterator[Finding]:
    """Tables of bytes that runs name."""
    for name, variant in profile.variants.items():
        for number, run in enumerate(variant.runs):
            if run.bytes_out is not None:
                text = "no question uses it: state the bytes that a step sends on in its edge of the pipeline"
                yield ("W-unused", f"variants.{name}.runs[{number}].bytes_out", text)


def _rooms(profile: Profile) -> Iterator[Finding]:
    """Runs that no machine of their hardware can hold."""
    for name, variant in profile.variants.items():
        for number, run in enumerate(variant.runs):
            provided = profile.hardware[run.hardware].provides
            for resource, amount in run.needs.items():
                at = f"variants.{name}.runs[{number}].needs.{resource}"
                if resource not in provided:
                    if provided:
                        yield ("W-no-room", at, f"{run.hardware} does not say how much {resource} it provides")
                elif amount > provided[resource]:
                    text = f"needs {amount:g}, but one {run.hardware} provides {provided[resource]:g}"
                    yield ("W-too-large", at, text)


def _tables(profile: Profile) -> Iterator[Finding]:
    for name, table in profile.tables.items():
        yield from _falling(name, table)
        yield from _noisy(name, table)


def _falling(name: str, table: Table) -> Iterator[Finding]:
    """Latencies that fall as the batch grows."""
    if table.quantity != "latency_ms" or "batch" not in table.axes:
        return
    level = list(table.axes).index("batch")
    sizes = table.axes["batch"]
    for statistic in table.statistics:
        if statistic == "std":
            continue
        for row in _rows_along(getattr(table, statistic), level):
            for number, (before, after) in enumerate(pairwise(row)):
                if before is not None and after is not None and after < before:
                    text = (
                        f"{statistic} falls from {before:g} to {after:g} ms between batch {sizes[number]:g} and "
                        f"{sizes[number + 1]:g}: allowed, but look for noise or a mixed-up entry"
                    )
                    yield ("W-falling", f"tables.{name}.{statistic}", text)
                    return


def _rows_along(grid: Any, level: int) -> Iterator[tuple[Any, ...]]:
    """Every row of a nested grid along the axis of this level."""
    if level == 0:
        if grid and isinstance(grid[0], tuple):
            for aligned in zip(*grid, strict=True):
                yield from _rows_along(aligned, 0)
        else:
            yield grid
        return
    for part in grid:
        yield from _rows_along(part, level - 1)


def _noisy(name: str, table: Table) -> Iterator[Finding]:
    if table.mean is None or table.std is None or table.quantity == "requests_per_s":
        return
    pairs = zip(table.cells("mean"), table.cells("std"), strict=True)
    worst = max((std / mean for mean, std in pairs if mean and std is not None), default=0.0)
    if worst > _NOISY:
        text = f"std/mean reaches {worst:.2g}: judge limits by p99 (statistic), and simulate before trusting means"
        yield ("W-noisy", f"tables.{name}.std", text)


def _allowed_runs(profile: Profile, app: App) -> list[tuple[str, Run]]:
    """The (variant, run) pairs that an application may use outside pipelines."""
    return [
        (name, run)
        for name, variant in profile.variants.items()
        if name in (app.named_models or ())
        or (variant.family is not None and variant.family in (app.families or ()))
        or (app.task is not None and variant.task == app.task)
        for run in variant.runs
        if run.engine is None
    ]


def _choices(profile: Profile, name: str, app: App) -> Iterator[Finding]:
    """Several models for one application, among which price and speed alone choose."""
    for step, names in choices(profile, app):
        where = f"stage {step} of {name}" if step else name
        text = (
            f"{listed(names)} may answer {where} and not each states a quality, so the cheapest that is fast enough "
            "does: name one (model), give each model a task of its own, or state their qualities"
        )
        yield ("W-which-model", f"apps.{name}.{app.answered_by}", text)


def _coverage(profile: Profile, name: str, app: App, runs: list[tuple[str, Run]]) -> Iterator[Finding]:
    """Bins of the demand that tables do not reach."""
    mix = app.mix
    if mix is None or not runs:
        return
    points = [dict(zip(mix.axes, size, strict=True)) for size in mix.bins]
    share = mix.share or (0.0,) * len(points)
    held = [False] * len(points)
    for table_id in dict.fromkeys(run.latency or run.rate or "" for _, run in runs):
        table = profile.tables[table_id]
        missing = [axis for axis in table.axes if axis not in mix.axes]
        if missing:
            text = f"table {table_id} has the axis {missing[0]}, which the mix does not name"
            yield ("W-coverage", f"apps.{name}.mix.axes", text)
            continue
        reached = [_state_of(table, point) for point in points]
        held = [before or state == "measured" for before, state in zip(held, reached, strict=True)]
        beyond = [number for number, state in enumerate(reached) if state != "measured"]
        if beyond:
            kinds = " and ".join(sorted({reached[number] for number in beyond}))
            text = (
                f"{len(beyond)} of {len(points)} bins of {name}, from {_written(points[beyond[0]])} on, with "
                f"{sum(share[number] for number in beyond):.1%} of its queries, are {kinds}"
            )
            yield ("W-coverage", f"tables.{table_id}", text)
    for number, is_held in enumerate(held):
        if not is_held:
            text = f"no table measured {_written(points[number])} ({share[number]:.1%} of the queries)"
            yield ("W-uncovered", f"apps.{name}.mix.bins[{number}]", text)


def _state_of(table: Table, point: Mapping[str, float]) -> str:
    if any(not axis[0] <= point[name] <= axis[-1] for name, axis in table.axes.items()):
        return "refused" if table.outside == "refuse" else "extrapolated"
    try:
        table.read([point], _judged(table))
    except InputError:
        return "not measured"
    return "measured"


def _judged(table: Table) -> Statistic:
    """The first statistic at hand that is a level, not a spread."""
    return next(kind for kind in table.statistics if kind != "std")


def _written(point: Mapping[str, float]) -> str:
    return ", ".join(f"{axis} {value:g}" for axis, value in point.items())


def _reachable(profile: Profile, name: str, app: App, runs: list[tuple[str, Run]]) -> Iterator[Finding]:
    """A response limit that nothing can meet, or that everything meets a thousandfold."""
    limits = [target.max_ms for target in app.targets if target.of == "response"]
    tables = [profile.tables[run.latency] for _, run in runs if run.latency is not None]
    cells = [cell for table in tables for cell in table.cells(_judged(table)) if cell is not None]
    if not limits or not cells:
        return
    at = f"apps.{name}.latency"
    if min(cells) > min(limits):
        text = f"the fastest entry of all allowed tables, {min(cells):g} ms, is above the limit of {min(limits):g} ms"
        yield ("W-too-slow", at, text)
    elif max(cells) * 1000 < min(limits):
        text = f"the limit of {min(limits):g} ms is over 1000 times the slowest entry: are the tables in seconds?"
        yield ("W-unit", at, text)


# Rows of a profile that no plan has a reason to choose: another is as good, as fast and as cheap everywhere


@dataclass(frozen=True)
class _Row:
    """A run, and what it is compared by: smaller is better in every entry of `burden`."""

    variant: str
    number: int
    hardware: str
    burden: NDArray[np.float64]


def dominated_rows(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """A finding (code, place, text) per dominated row.

    Compared are the runs of one task whose tables have one grid: by quality, every measured time, what they need, and
    the cheapest price of the hardware. A machine may still be needed once the stock of the better one is used up, so
    this is advice.
    """
    import numpy as np

    groups: dict[object, list[_Row]] = {}
    for name, variant in profile.variants.items():
        for number, run in enumerate(variant.runs):
            burden = _burden(profile, variant, run)
            if burden is not None:
                table = profile.tables[run.latency or ""]
                # Without a quality a variant is only compared with itself on other hardware.
                kind = variant.task if variant.quality is not None else name
                key = (kind, tuple(table.axes.items()), tuple(sorted(run.at.items())), tuple(sorted(run.needs)))
                groups.setdefault(key, []).append(_Row(name, number, run.hardware, burden))
    for rows in groups.values():
        if len(rows) < 2:
            continue
        burdens = np.stack([row.burden for row in rows])
        front = np.empty_like(burdens)
        members: list[int] = []
        # In lexicographic order whatever dominates a row comes before it: one pass against a growing front does.
        for place in np.lexsort(burdens.T[::-1]).tolist():
            no_worse = (front[: len(members)] <= burdens[place]).all(axis=1)
            better = [at for at in np.flatnonzero(no_worse) if (front[at] < burdens[place]).any()]
            if better:
                winner, loser = rows[members[better[0]]], rows[place]
                text = f"{winner.variant} on {winner.hardware} is as good in quality, time and price, better in one"
                yield ("W-dominated", f"variants.{loser.variant}.runs[{loser.number}]", text)
            else:
                front[len(members)] = burdens[place]
                members.append(place)


def _burden(profile: Profile, variant: Variant, run: Run) -> NDArray[np.float64] | None:
    """Price, loss of quality, needs and times, or None where it cannot be compared."""
    import numpy as np

    if run.latency is None:
        return None
    table = profile.tables[run.latency]
    statistic = next(kind for kind in table.statistics if kind != "std")
    cells = np.array(getattr(table, statistic), dtype=np.float64).reshape(-1)
    price = _price(profile, run)
    if price is None or np.isnan(cells).any():
        return None
    metric = profile.metric_of(variant.task)
    quality = variant.quality.value if variant.quality is not None else 0.0
    loss = -quality if metric is None or metric.better == "higher" else quality
    needs = [run.needs[resource] for resource in sorted(run.needs)]
    return np.concatenate(([price, loss, *needs], cells))


def _price(profile: Profile, run: Run) -> float | None:
    if run.price_per_hour is not None:
        return float(run.price_per_hour)
    offers = profile.offers.values()
    prices = [offer.price_per_hour for offer in offers if offer.hardware == run.hardware and offer.per is None]
    return float(min(prices)) if prices else None
