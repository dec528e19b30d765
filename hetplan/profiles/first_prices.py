"""Prices of machines out of a list: a table of hardware, price_per_hour and stock, or a SkyPilot catalogue."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hetplan.errors import Fault, InputError
from hetplan.profiles.first_files import Machine, as_id, read_machine, read_rows
from hetplan.profiles.imports.skypilot import cheapest, is_catalogue

__all__ = ["prices_for"]


def prices_for(path: Path, names: Iterable[str], region: str) -> tuple[dict[str, Machine], list[str]]:
    """The machines of these names that the list has, and what was taken for what."""
    header, rows = read_rows(path, "a list of prices", "hardware, price_per_hour", plain=False)
    kinds = {name: "cpu" if "cpu" in name else "gpu" for name in names}
    if is_catalogue(header):
        found = cheapest(path, kinds, region)
        assumed = [
            f"{name} is {place}, the cheapest on demand: {price} an hour" for name, (place, price) in found.items()
        ]
        return {name: Machine(name, price, None, kinds[name]) for name, (_, price) in found.items()}, assumed
    header, rows = read_rows(path, "a list of prices", "hardware, price_per_hour")
    if not {"hardware", "price_per_hour"} <= set(header):
        remedy = "Name the columns hardware, price_per_hour and, if you like, stock; or give a SkyPilot catalogue."
        raise InputError.one(file=str(path), path="line 1", value=", ".join(header)[:80],
                             why="the columns hardware and price_per_hour", remedy=remedy)  # fmt: skip
    machines, faults = {}, []
    for line, row in rows:
        name, price = as_id(row.get("hardware", "?")), row.get("price_per_hour", "")
        stock = f":{row['stock']}" if "stock" in row else ""
        try:
            machine = read_machine(f"{name}={price}{stock}", kinds.get(name, "gpu"))
        except InputError:
            why, remedy = "a price per hour, and a whole number for stock", "Correct the line: t4,0.526,20."
            faults.append(Fault(str(path), f"line {line}", f"{price}{stock}", why, remedy))
            continue
        if name in kinds:
            machines[name] = machine
    if faults:
        raise InputError(faults)
    return machines, []
