"""SkyPilot's catalogues (``catalogs/v*/CLOUD/vms.csv``): machines and prices, on demand and spot.

The columns read are ``InstanceType``, ``AcceleratorName``, ``AcceleratorCount``, ``vCPUs``, ``MemoryGiB``, ``GpuInfo``,
``Price``, ``SpotPrice``, ``Region`` and, where a cloud has it, ``AvailabilityZone``, in any order. A catalogue has
thousands of rows, so `convert` takes filters: a region, names of accelerators or of instance types (or their parts).

Each availability zone (where a cloud has none, each region) has its own prices. Nothing is known of stock or of
interruptions, and nothing is written of them. Price files merge with profiles:
``hetplan solve measured.json prices.json slo.json``.
"""

from __future__ import annotations

import ast
import csv
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.profiles.imports.words import id_of
from hetplan.profiles.new_files import new_profile, price_of, zoned
from hetplan.profiles.read_text import read_text

__all__ = ["cheapest", "convert", "is_catalogue"]

_NEEDED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "Price", "Region")
Row = Mapping[str, str]


def convert(
    path: str | os.PathLike[str], *, region: str = "", only: str = "", spot: bool = True
) -> tuple[dict[str, Any], None]:
    """The hardware and offers of a catalogue; `only` holds accelerators or parts of instance types, between commas."""
    file = os.fspath(path)
    if is_bill(read_text(path, wanted="a catalogue or a bill").splitlines()[:1]):
        from hetplan.profiles.imports.focus import convert_bill

        return convert_bill(Path(path), region=region, only=only), None
    every = _rows(Path(path), file)
    rows = list(_chosen(every, region, [one.strip() for one in only.split(",") if one.strip()]))
    if not rows:
        known, cards = (_some({row[name] for _, row in every}) for name in ("Region", "AcceleratorName"))
        raise InputError.one(
            file=file, why=f"no row of region {region or 'any'} with {only or 'any machine'}",
            remedy=f"Loosen --set region=, --set only=. It has the regions {known}; the accelerators {cards}.",
        )  # fmt: skip
    faults = [fault for line, row in rows for fault in _wrong(row, file, line)]
    if faults:
        raise InputError(faults)
    machines, zones = dict[str, dict[str, Any]](), dict[str, dict[str, dict[str, Any]]]()
    for _, row in rows:
        name = id_of(row["InstanceType"], "machine")
        machines[name] = _machine(row)
        zone = id_of(row.get("AvailabilityZone") or row["Region"], "machine")
        prices = zones.setdefault(name, {}).setdefault(zone, {})
        if row["Price"]:
            prices["price_per_hour"] = price_of(_price(row["Price"]))
        if spot and row.get("SpotPrice"):
            prices["spot"] = {"price_per_hour": price_of(_price(row["SpotPrice"]))}
    made = {
        name: machine | zoned({zone: prices for zone, prices in sorted(zones[name].items()) if prices})
        for name, machine in sorted(machines.items())
    }
    return new_profile(
        {"name": "prices", "kind": "imported", "tool": "SkyPilot catalogue", "note": Path(file).name}, machines=made
    ), None


def _some(names: Iterable[str]) -> str:
    """Some names, for people: the first eight."""
    sorted_names = sorted(name for name in names if name)
    more = f" and {len(sorted_names) - 8} more" if len(sorted_names) > 8 else ""
    return (", ".join(sorted_names[:8]) + more) or "none"


def is_bill(lines: Sequence[str]) -> bool:
    """Whether the first of these lines has the columns of a bill as FOCUS has it."""
    return {"BillingCurrency", "PricingUnit", "ListUnitPrice"} <= set(next(csv.reader(lines), []))


def is_catalogue(header: Iterable[str]) -> bool:
    """Whether these are the columns of a catalogue."""
    return {"InstanceType", "Price", "Region"} <= set(header)


def cheapest(path: Path, names: Iterable[str], region: str = "") -> dict[str, tuple[str, str]]:
    """The cheapest machine on demand of each name, and its price per hour, where the catalogue has one.

    A name is an instance type, or an accelerator: `h100` is a machine with one, `h100x8` one with eight.
    """
    rows = [(line, row) for line, row in _rows(path, str(path)) if row["Price"] and region in ("", row["Region"])]
    if faults := [fault for line, row in rows for fault in _wrong(row, str(path), line)]:
        raise InputError(faults)
    found = {}
    for name in names:
        card = re.fullmatch(r"(.+?)(?:x(\d+))?", name)
        fits = [
            row
            for _, row in rows
            if id_of(row["InstanceType"], "machine") == name
            or (
                card is not None
                and id_of(row["AcceleratorName"], "machine") == card[1]
                and float(row["AcceleratorCount"] or 0) == float(card[2] or 1)
            )
        ]
        if fits:
            best = min(fits, key=lambda row: (Decimal(row["Price"]), row["InstanceType"], row["Region"]))
            found[name] = (f"{best['InstanceType']} in {best['Region']}", _price(best["Price"]))
    return found


def _rows(path: Path, file: str) -> list[tuple[int, Row]]:
    text = read_text(path, wanted="a catalogue's vms.csv")
    reader = csv.DictReader(text.splitlines(), restkey="", restval="")
    missing = [name for name in _NEEDED if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError.one(
            file=file,
            path="line 1",
            why=f"the columns {', '.join(missing)}",
            remedy="Give a SkyPilot catalogue's vms.csv.",
        )
    return list(enumerate(reader, start=2))


def _chosen(rows: Iterable[tuple[int, Row]], region: str, only: list[str]) -> Iterator[tuple[int, Row]]:
    for line, row in rows:
        if region and row["Region"] != region:
            continue
        named = row["AcceleratorName"].lower()
        if only and not any(one.lower() == named or one.lower() in row["InstanceType"].lower() for one in only):
            continue
        yield line, row


_MOST = 10**9
"""Cards, cores, GiB or dollars an hour of one machine: what is larger is a slip."""


def _wrong(row: Row, file: str, line: int) -> Iterator[Fault]:
    if not row["InstanceType"] or not row["Region"]:
        yield Fault(file, f"line {line}", "", "an instance type and a region", "Take the line out.")
    for name in ("AcceleratorCount", "vCPUs", "MemoryGiB", "Price", "SpotPrice"):
        cell = row.get(name, "")
        try:
            right = not cell or (Decimal(cell).is_finite() and 0 <= Decimal(cell) < _MOST)
        except InvalidOperation:
            right = False
        if not right:
            yield Fault(file, f"line {line}, {name}", cell, "a number of at least 0", "Correct the cell.")


def _machine(row: Row) -> dict[str, Any]:
    count = float(row["AcceleratorCount"] or 0) if row["AcceleratorName"] else 0.0
    provides = {
        "gpu": count, "gpu_mem_gib": count * _gib(row.get("GpuInfo", "")),
        "cpu_cores": float(row["vCPUs"] or 0), "mem_gib": float(row["MemoryGiB"] or 0),
    }  # fmt: skip
    return {"provides": {name: value for name, value in provides.items() if value}}


def _gib(info: str) -> float:
    """The memory of one accelerator, as the catalogue has it (a Python literal); 0 where it does not say."""
    try:
        said = ast.literal_eval(info) if info else {}
        return float(said["Gpus"][0]["MemoryInfo"]["SizeInMiB"]) / 1024.0
    except (ValueError, SyntaxError, KeyError, IndexError, TypeError):
        return 0.0


def _price(cell: str) -> str:
    return format(Decimal(cell).normalize(), "f")
