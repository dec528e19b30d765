"""Collects all faults of the files, so that a user reads them at once; fields of the SLO that a question refuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from hetplan.errors import Fault, InputError
from hetplan.planner.terms import Obstacle
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.slo import Slo

if TYPE_CHECKING:
    from hetplan.planner.request import Application, Request

__all__ = ["CAPACITY", "Faults", "refuse_not_provided", "refused_fields"]


@dataclass
class Faults:
    """Collects faults; each names its file, field and value, why it is one, and what to do."""

    profile: str
    slo: str
    stated: Slo
    found: list[Fault] = field(default_factory=list)

    @classmethod
    def of(cls, inputs: Inputs) -> Faults:
        """An empty collection that knows the files' names."""
        return cls(inputs.files.get("profile", "profile.json"), inputs.files.get("slo", "slo.json"), inputs.slo)

    def in_slo(self, path: str, why: str, remedy: str, *, value: object = "") -> None:
        """A fault of the SLO file."""
        self.found.append(Fault(self.slo, path, str(value), why, remedy))

    def in_profile(self, path: str, why: str, remedy: str, *, value: object = "") -> None:
        """A fault of the profile."""
        self.found.append(Fault(self.profile, path, str(value), why, remedy))

    def in_options(self, name: str, why: str, remedy: str, *, value: object = "") -> None:
        """A fault of an option."""
        self.found.append(Fault("options", name, str(value), why, remedy))

    def refuse(self, refused: Mapping[str, tuple[str, str]]) -> None:
        """Name every field of these ("apps.*.weight": why, remedy) that the SLO states as no default has it."""
        for name, app in self.stated.apps.items():
            for target in app.targets:
                field = f"apps.*.latency.{replace(target, percentile=0.0).key.replace('p0', 'p*')}"
                if field in refused:
                    self.in_slo(f"$.apps.{name}.latency.{target.key}", *refused[field], value=target.max_ms)
        sections: dict[str, list[str]] = {}
        for place in refused:
            parent, _, name = place.rpartition(".")
            sections.setdefault(parent, []).append(name)
        for parent, names in sections.items():
            for model, at in _sections(self.stated, parent.split("."), "$"):
                fields, stated = type(model).model_fields, model.model_fields_set.intersection(names)
                for name in sorted(stated, key=list(fields).index):  # in the order of the format: what is set has none
                    value = getattr(model, name)
                    if value != fields[name].get_default(call_default_factory=True):
                        why, remedy = refused[f"{parent}.{name}"]
                        self.in_slo(f"{at}.{name}", why, remedy, value=value if isinstance(value, int | float) else "")

    def refuse_all_network(self, app: Application) -> None:
        """Name every limit on the response time of which the network leaves nothing."""
        for target in app.targets:
            if target.limit_ms() <= 0:
                why, at = "the network alone takes the whole latency target", f"$.apps.{app.id}.network_ms_per_hop"
                self.in_slo(at, why, f"Raise latency.{target.key} above it.", value=target.hop_ms)

    def obstacles(self, found: Iterable[Obstacle]) -> None:
        """What keeps the files from asking a question that was named; raises at once where anything does."""
        for one in found:
            say = self.in_profile if one.file == "profile" else self.in_slo
            say(one.path, one.why, one.remedy)
        self.settle()

    def also(self, error: InputError) -> None:
        """The faults that something read on the way has raised."""
        self.found.extend(error.faults)

    def settle(self) -> None:
        """Raise what was found, if anything was: a fault of several batches or loads once."""
        if self.found:
            raise InputError(dict.fromkeys(self.found))


_OF_FLEETS = dict.fromkeys(
    ("limits.spot", "limits.on_demand", "limits.reserved", "limits.offers", "limits.survive.spot",
     "limits.survive.serve", "horizon.repeats", "horizon.starts",
     "apps.*.question", "apps.*.rate_qps.trace.period_s", "apps.*.rate_qps.trace.percentile"),
    ("only the question fleet plans with it", "Leave it out, or ask fleet."),
)  # fmt: skip
"""Fields that only the question `fleet` keeps."""

_ALIKE: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("limits.survive.machines", "limits.survive.zones"),
                    ("only the question fleet plans for failures", "Leave it out, or ask fleet.")),
    "limits.capacity": ("nothing here is taken of stated totals", "Say what machines provide in all: limits.provides."),
    "change.slack": ("headroom is part of the stated rate here", "State a higher rate."),
    "change.slack_qps": ("headroom is part of the stated rate here", "State a higher rate."),
    "change.load_weight_per_s": ("this question does not weigh loading", "Leave it out."),
    "horizon.period_s": ("this question plans one period, and its length does not count", "Leave it out."),
    "horizon.periods": ("this question plans one period", "Leave it out, or ask fleet."),
    **dict.fromkeys(("apps.*.latency.ttft_p*_ms", "apps.*.latency.tpot_p*_ms"),
                    ("only response times are judged", "Write a limit on the response time, such as p99_ms.")),
    "apps.*.dispatch": ("routes say where queries go", "Leave it out."),
    "apps.*.attainment": ("here a percentile says how many may be late", "Write for instance latency: {p95_ms: 60}."),
    "apps.*.network_ms_once": ("a query has one step", "Add it to network_ms_per_hop."),
    "apps.*.lifetime_s": ("this question plans applications that stay", "Leave it out."),
    "apps.*.deadline_s": ("only the question compound has a deadline for each application", "Set --time-limit."),
    "apps.*.device": ("this question uses no devices of applications", "Leave it out."),
    "apps.*.candidates": ("only the question compound packs candidate plans", 'Write "model".'),
    "apps.*.rate_qps.series": ("this problem plans for one rate", "Write rate_qps; hetplan simulate reads a series."),
    "apps.*.streams": ("queries come at a rate", 'Write "rate_qps".'),
}  # fmt: skip
"""Why a question does not keep a field, and what to write instead, where several say it in the same words."""


def refused_fields(*fields: str) -> dict[str, tuple[str, str]]:
    """For each field that problems refuse, why, and what to write instead."""
    return {**_OF_FLEETS, **{field: _ALIKE[field] for field in fields}}


CAPACITY = {"limits.capacity": _ALIKE["limits.capacity"]}
"""What only questions keep that place work without counting machines."""


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


def refuse_not_provided(request: Request, faults: Faults) -> None:
    """Name every limit on what machines provide, of which some machines do not say how much that is.

    Hardware that lists anything has nothing of what it does not list.
    """
    mine = {name: one for name, one in request.profile.hardware.items() if request.lists(name)}
    known = sorted({resource for one in mine.values() for resource in one.provides})
    silent = [name for name, one in sorted(mine.items()) if not one.provides]
    for resource in sorted(request.resources):
        at = f"$.limits.provides.{resource}"
        if resource not in known:
            remedy = f"They provide: {', '.join(known) or 'nothing'}."
            faults.in_slo(at, f"no machine type provides {resource!r}", remedy)
        elif silent:
            why = f"{silent[0]} does not say what it provides"
            faults.in_slo(at, why, f'List it in its "provides": {{"{resource}": 0}} if it has none.')
