"""The demand of a first SLO, and prices out of a list: a table of hardware, price and stock, or a SkyPilot catalogue.

The demand is a rate, or what a record of rates or arrivals says hour by hour.

A record is anything that `hetplan import` reads as a trace. A short one is taken as it is, step by step. Of a longer
one each period gets the 95th percentile of its rates; of more than two days each hour of the day does.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hetplan.errors import Fault, InputError
from hetplan.profiles.csv_rows import as_id, read_rows
from hetplan.profiles.first_files import Machine, read_machine
from hetplan.profiles.imports.skypilot import cheapest, is_catalogue

__all__ = ["demand_of", "demand_of_record", "prices_for"]


_MOST_PERIODS = 48
_PERIODS_S = (60, 300, 900, 1800, 3600)
_HOUR_S, _DAY_S = 3600, 86400
_KEPT_PERCENT = 95


def demand_of(rate_qps: float) -> dict[str, Any]:
    """The same rate all the time, by chance."""
    rate = int(rate_qps) if float(rate_qps).is_integer() else rate_qps
    return {"rate_qps": rate, "arrivals": {"process": "poisson"}}


def demand_of_record(path: Path) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Rates by period, how long and how many periods are, and what was assumed."""
    from hetplan.profiles.imports.trace import convert

    _, _, files = convert(path)
    lines = [line.split(",") for line in files["rates.csv"].splitlines()[1:]]
    step_s, rates = float(lines[1][0]) - float(lines[0][0]), np.array([float(rate) for _, rate in lines])
    span_s = step_s * len(rates)
    said = f"the {_KEPT_PERCENT}th percentile of the rates in it"
    if len(rates) <= _MOST_PERIODS:
        period_s, groups = step_s, [[rate] for rate in rates]
        said = "its rate in the record"
    elif span_s > 2 * _DAY_S:
        hours = (np.arange(len(rates)) * step_s % _DAY_S // _HOUR_S).astype(int)
        period_s, groups = float(_HOUR_S), [list(rates[hours == hour]) for hour in range(_DAY_S // _HOUR_S)]
        said = f"each hour of the day is planned for {said}, of all days; the record begins with the first"
    else:
        period_s = float(next(one for one in _PERIODS_S if span_s / one <= _MOST_PERIODS))
        periods = (np.arange(len(rates)) * step_s // period_s).astype(int)
        groups = [list(rates[periods == period]) for period in range(int(periods[-1]) + 1)]
    if not all(groups):
        why = f"steps of at most {period_s:g} s, so that each period has one"
        raise InputError.one(
            file=str(path), path="the step", value=f"{step_s:g} s", why=why, remedy="Give finer rates."
        )
    series = [float(f"{np.percentile(group, _KEPT_PERCENT):.6g}") for group in groups]
    horizon = {"period_s": period_s, "periods": len(series), "repeats": 30 if span_s >= _DAY_S else 1}
    said = said if said.startswith("each") else f"each period of {period_s:g} s is planned for {said}"
    return {"rate_qps": {"series": series}}, horizon, [f"{said} (rate_qps.series)"]


def prices_for(path: Path, names: Iterable[str], region: str) -> tuple[dict[str, Machine], list[str]]:
    """The machines of these names that the list has, and what was taken for what."""
    header, rows = read_rows(path, "a list of prices", "machine, price_per_hour", plain=False)
    kinds = {name: "cpu" if "cpu" in name else "gpu" for name in names}
    if is_catalogue(header):
        found = cheapest(path, kinds, region)
        assumed = [
            f"{name} is {place}, the cheapest on demand: {price} an hour" for name, (place, price) in found.items()
        ]
        return {name: Machine(name, price, None, kinds[name]) for name, (_, price) in found.items()}, assumed
    header, rows = read_rows(path, "a list of prices", "machine, price_per_hour")
    if not {"machine", "price_per_hour"} <= set(header):
        remedy = "Name the columns machine, price_per_hour and, if you like, stock; or give a SkyPilot catalogue."
        raise InputError.one(file=str(path), path="line 1", value=", ".join(header)[:80],
                             why="the columns machine and price_per_hour", remedy=remedy)  # fmt: skip
    machines, faults = {}, []
    for line, row in rows:
        name, price = as_id(row.get("machine", "?")), row.get("price_per_hour", "")
        stock = f":{row['stock']}" if "stock" in row else ""
        try:
            machine = read_machine(f"{name}={price}{stock}")
        except InputError:
            why, remedy = "a price per hour, and a whole number for stock", "Correct the line: t4,0.526,20."
            faults.append(Fault(str(path), f"line {line}", f"{price}{stock}", why, remedy))
            continue
        if name in kinds:
            machines[name] = machine
    if faults:
        raise InputError(faults)
    return machines, []
