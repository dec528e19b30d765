"""Fields of an SLO that a question does not keep: each is refused by name, none is ignored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from hetplan.problems.faults import Faults
from hetplan.profiles.slo import Slo

__all__ = ["OF_FLEETS", "ONE_STEP", "refuse", "refuse_only"]

OF_FLEETS = dict.fromkeys(
    ("limits.offers", "limits.survive.spot", "limits.survive.keep", "horizon.repeats", "horizon.starts",
     "apps.*.question", "apps.*.demand.trace.period_s", "apps.*.demand.trace.percentile"),
    ("only the question fleet plans with it", "Leave it out, or ask fleet."),
)  # fmt: skip
"""Fields that only the question `fleet` keeps; every other one refuses them, besides its own."""

ONE_STEP = {"apps.*.network_ms_once": ("a query has one step", "Add it to network_ms_per_hop.")}
"""What only queries of several steps need."""


def refuse(slo: Slo, refused: Mapping[str, tuple[str, str]], faults: Faults) -> None:
    """Name every stated field of `refused` ("apps.*.weight": why, remedy); a default that is written out is none."""
    refuse_only(slo, {**OF_FLEETS, **refused}, faults)


def refuse_only(slo: Slo, refused: Mapping[str, tuple[str, str]], faults: Faults) -> None:
    """The same, of these fields and no others."""
    sections: dict[str, list[str]] = {}
    for field in refused:
        parent, _, name = field.rpartition(".")
        sections.setdefault(parent, []).append(name)
    for parent, names in sections.items():
        for model, at in _sections(slo, parent.split("."), "$"):
            for name in model.model_fields_set.intersection(names):
                value = getattr(model, name)
                if value != type(model).model_fields[name].get_default(call_default_factory=True):
                    why, remedy = refused[f"{parent}.{name}"]
                    faults.in_slo(f"{at}.{name}", why, remedy, value=value if isinstance(value, int | float) else "")


def _sections(held: Any, steps: list[str], at: str) -> Iterator[tuple[BaseModel, str]]:
    """Every section at these steps, with its path."""
    if not steps:
        if isinstance(held, BaseModel):
            yield held, at
    elif steps[0] != "*":
        yield from _sections(getattr(held, steps[0], None), steps[1:], f"{at}.{steps[0]}")
    elif isinstance(held, Mapping):
        for name, one in held.items():
            yield from _sections(one, steps[1:], f"{at}.{name}")
    else:
        for number, one in enumerate(held or ()):
            yield from _sections(one, steps[1:], f"{at}[{number}]")
