"""Bills as FOCUS 1.0 has them (FinOps Open Cost and Usage Specification): what an hour of a machine costs.

Taken are charges of the category Usage for hours of compute whose machine is known: by its type where the bill has a
column for it, else by the charge's description. The list price is that on demand; where a price was negotiated
(`ContractedUnitPrice`), that is. List, contracted, effective and billed cost say one charge in four ways: none is added
to another, and what a commitment made of a charge is no price of a machine. Money is exact; two currencies are refused.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.imports.words import id_of
from hetplan.profiles.new_files import new_profile, price_of, zoned
from hetplan.profiles.read_text import read_text

__all__ = ["convert_bill"]

_HOURS = frozenset({"hour", "hours", "hrs"})
_NOTHING = frozenset({"", "null"})
_TYPES = ("x_InstanceType", "InstanceType", "x_SkuInstanceType")
"""Columns beyond the standard in which providers name the type of a machine."""
_NAMED = re.compile(r"\b(?:[a-z][a-z0-9-]*\.[a-z0-9-]+|Standard_[A-Za-z0-9_]+|[a-z][0-9][a-z]?-[a-z]+-[0-9]+g?)\b")
_GPU = re.compile(r"^(?:p[2-6][a-z]*|g[3-7][a-z]*|trn[0-9]|inf[0-9])[.-]|^standard-n[cdv]|^a[2-4]-|^g[24]-")
_SPOT = re.compile(r"\bspot\b", re.IGNORECASE)
Row = Mapping[str, str]


def convert_bill(path: Path, *, region: str = "", only: str = "") -> dict[str, Any]:
    """The machine types of a bill: a price by the hour of each in each region, on demand and spot."""
    file = str(path)
    rows = list(enumerate(csv.DictReader(read_text(path, wanted="a bill").splitlines(), restval=""), start=2))
    wanted = [one.strip().lower() for one in only.split(",") if one.strip()]
    machines, newest, currencies = dict[str, dict[str, Any]](), dict[tuple[str, str, bool], str](), set[str]()
    for line, row in rows:
        machine = _machine(row)
        if machine is None or (region and row.get("RegionId") != region):
            continue
        name, where = id_of(machine, "machine"), id_of(row.get("RegionId", ""), "region")
        if wanted and not any(one in name for one in wanted):
            continue
        spot = bool(_SPOT.search(row.get("ChargeDescription", ""))) or row.get("PricingCategory") == "Dynamic"
        key, day = (name, where, spot), row.get("ChargePeriodStart", "")
        price = _price(row, line, file)
        if price is None or day < newest.get(key, ""):  # of several prices the newest
            continue
        newest[key] = day
        currencies.add(row["BillingCurrency"])
        prices = machines.setdefault(name, {}).setdefault(where, {})
        (prices.setdefault("spot", {}) if spot else prices)["price_per_hour"] = price_of(format(price, "f"))
    if not machines:
        why = f"no hours of machines of region {region or 'any'} and {only or 'any type'} among {len(rows)} charges"
        raise InputError.one(
            file=file, why=why, remedy="Loosen --set region=, only=; or give a bill with hours of compute."
        )
    if len(currencies) > 1:
        raise InputError.one(file=file, path="BillingCurrency", value=", ".join(sorted(currencies)),
                             why="one currency", remedy="Split the bill: hetplan converts none.")  # fmt: skip
    currency = currencies.pop()
    return new_profile(
        {"name": "prices", "kind": "imported", "tool": "FOCUS bill", "note": path.name},
        currency=currency if currency != "USD" else None,
        machines={
            name: ({"kind": "gpu"} if _GPU.match(name) else {}) | zoned(dict(sorted(zones.items())))
            for name, zones in sorted(machines.items())
        },
    )


def _machine(row: Row) -> str | None:
    """The type of machine whose hours a charge is for; None where it is another charge."""
    if row.get("ChargeCategory") != "Usage" or row.get("ServiceCategory") != "Compute":
        return None
    if row.get("PricingUnit", "").lower() not in _HOURS:
        return None
    stated = next((row[name] for name in _TYPES if row.get(name, "").lower() not in _NOTHING), None)
    if stated is not None:
        return stated
    found = _NAMED.search(row.get("ChargeDescription", ""))
    return found[0] if found is not None else None


def _price(row: Row, line: int, file: str) -> Decimal | None:
    """The price of an hour: as it was negotiated, else as it is listed; None where none is stated."""
    for name in ("ContractedUnitPrice", "ListUnitPrice"):
        cell = row.get(name, "").strip()
        if cell.lower() in _NOTHING:
            continue
        try:
            price = Decimal(cell)
        except InvalidOperation:
            price = Decimal("NaN")
        if not price.is_finite() or not 0 <= price < 10**9:
            raise InputError.one(file=file, path=f"line {line}, {name}", value=cell[:40],
                                 why="a price of 0 or more", remedy="Mend the cell.")  # fmt: skip
        if price > 0:
            return price
    return None
