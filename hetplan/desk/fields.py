"""What of a question can be changed on the page: each field with its place in the SLO file, and what is wrong there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from hetplan.drawing.summary import SIGNS
from hetplan.drawing.svg import short
from hetplan.profiles.fields import NANO

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.profile import Offer

__all__ = ["Field", "fields_of"]

MAX_PER_HOUR = 1e6
MAX_MS = 3.6e6
"""An hour: longer limits are of no service that people wait for."""
MAX_QPS = 1e9
MAX_TIMES = 100.0
MAX_MACHINES = 1e6
_LIMIT = re.compile(r"(?:(ttft|tpot)_)?p([\d.]+)_ms")
_TOKENS = {None: "", "ttft": "first token, ", "tpot": "each token, "}


@dataclass(frozen=True)
class Field:
    """One field: its place in the SLO file, its words, and which numbers it takes.

    `kind` is "number", "rate" (a number, or "max"), "times" (of the demand; no place in the file), "use" (whether it
    may be used at all) or "machine" (the same, and how many). `wrong` is said of what it does not take.
    """

    path: tuple[str, ...]
    group: str
    label: str
    wrong: str = ""
    unit: str = ""
    kind: str = "number"
    least: float = 0.0
    most: float = MAX_MS
    scale: float = 1.0
    """What is shown is so many times what is written: a share is shown in percent."""
    as_text: bool = False
    """Whether the number is written as text, as money is."""
    whole: bool = False
    not_used: Any = None
    """What is written where a machine type, or a way to buy, may not be used."""


def fields_of(inputs: Inputs, slo: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The fields of these files, in their order on the page."""
    found = [*_demand(slo), *_limits(slo), *_money(inputs, slo), *_failures(slo), *_machines(inputs)]
    return [asdict(one) for one in found]


def _limits(slo: Mapping[str, Any]) -> Iterator[Field]:
    for app, said in slo["apps"].items():
        for name in said.get("latency") or {}:
            found = _LIMIT.fullmatch(name)
            words = f"{_TOKENS[found[1]]}{found[2]}% within" if found is not None else name
            wrong = "A limit is above 0 ms, and at most an hour. Write milliseconds, such as 60."
            yield Field(("apps", app, "latency", name), "Limits", f"{app}, {words}", wrong, "ms", least=1e-3)
        if (said.get("quality") or {}).get("min") is not None:
            wrong = "A quality is a number of the profile's metric. Write a number, such as 0.8."
            yield Field(("apps", app, "quality", "min"), "Limits", f"{app}, quality at least", wrong, most=1e6)


def _demand(slo: Mapping[str, Any]) -> Iterator[Field]:
    courses = [app for app, said in slo["apps"].items() if isinstance(said.get("rate_qps"), dict)]
    wrong = "Demand is more than 0, and at most 100 times as much. Write a number, such as 1.2."
    for app in ["", *courses] if len(courses) > 1 else courses:
        label = f"{app or 'All applications'}, times"
        yield Field(("times", app), "Demand", label, wrong, "of the file's", "times", 0.01, MAX_TIMES)
    for app, said in slo["apps"].items():
        stated = said.get("rate_qps")
        if stated == "max" or isinstance(stated, int | float):
            more, unit = (", or max for as many as the money serves", "or max") if stated == "max" else ("", "/s")
            wrong = f"A rate is above 0. Write queries a second, such as 600{more}."
            yield Field(("apps", app, "rate_qps"), "Demand", f"{app}, queries a second", wrong, unit, "rate", 1e-6,
                MAX_QPS)  # fmt: skip


def _money(inputs: Inputs, slo: Mapping[str, Any]) -> Iterator[Field]:
    offers = inputs.profile.offers.values()
    if not any(one.price_per_hour for one in offers):
        return
    currency = (slo.get("limits") or {}).get("currency") or next(iter(offers)).currency
    money = "dollars" if currency == "USD" else currency
    wrong = f"A budget is 0 or more, and at most a million. Write {money} an hour, such as 3."
    yield Field(
        ("limits", "cost_per_hour"), "Money", f"Budget, {money} an hour", wrong, most=MAX_PER_HOUR, as_text=True
    )
    if any(one.interruptions_per_hour is not None for one in offers):
        yield Field(("limits", "spot"), "Money", "spot machines", kind="use", not_used={"max_share": 0})
    if any(one.commit is not None for one in offers):
        yield Field(("limits", "reserved"), "Money", "reserved machines", kind="use", not_used={"max": 0})


def _failures(slo: Mapping[str, Any]) -> Iterator[Field]:
    survive = (slo.get("limits") or {}).get("survive") or {}
    for name in ("machines", "zones"):
        if name in survive:
            wrong = f"{name.capitalize()} are counted. Write a whole number, such as 1."
            yield Field(("limits", "survive", name), "Failures", f"{name} that may be lost", wrong, whole=True,
                most=MAX_MACHINES)  # fmt: skip
    if survive:
        wrong = "A share is 0 to 100%. Write a number, such as 75."
        yield Field(("limits", "survive", "serve"), "Failures", "after a failure serve at least", wrong,
            "% of the demand", most=100.0, scale=100.0)  # fmt: skip


def _machines(inputs: Inputs) -> Iterator[Field]:
    for machine in inputs.profile.hardware:
        offers = [one for one in inputs.profile.offers.values() if one.hardware == machine]
        if offers:
            prices = ", ".join(dict.fromkeys(map(_price, offers)))
            yield Field(("limits", "instances", machine), "Machines", f"{machine}: {prices}", kind="machine",
                not_used=[0, 0])  # fmt: skip


def _price(offer: Offer) -> str:
    sign = SIGNS.get(offer.currency, f"{offer.currency} ")
    way = " spot" if offer.interruptions_per_hour is not None else " reserved" if offer.commit is not None else ""
    stock = "" if offer.stock is None else f", at most {offer.stock}"
    return f"{sign}{short(offer.price_per_hour / NANO)}{way}{stock}"
