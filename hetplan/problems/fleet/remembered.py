"""What one movement of a person leaves to the next: plans of parts, bounds at prices, and what tables answered.

All of it is kept by what it depends on, written out as a text (`_about`), and never by which object held that: the
profile but for its offers, offers but for price and stock, the application but for its rate and how long its limits
are, the options, and what those limits come to.

==================  ===================================================================================================
what is kept        where it holds
==================  ===================================================================================================
plan of a part      at the same rate on the same machines; prices and the limit that it names are written anew
bound at prices     at the same rate, where as many machines or fewer are in stock
answer of a table   everywhere
==================  ===================================================================================================

What limits on latency come to: for a pool, which queries are in time where; for variants, which of them serve and how
much (so with limits on quality); for others the limits themselves. For a plan of text they come to nothing: whether its
machines still carry the rate is asked anew of all machines (`Menus.holds`), and its rule gets the limit of now. The
verifier checks every part with the others, whoever made it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from importlib import import_module

import numpy as np

from hetplan.planner.contract import Tools
from hetplan.planner.part import Part
from hetplan.problems.fleet.menus import LARGEST, Menus
from hetplan.problems.fleet.wish import Application, Wish
from hetplan.problems.parts import COSTS, Asked, Table
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice
from hetplan.profiles.plan_parts import Part as PlanPart
from hetplan.profiles.slo import App
from hetplan.serving.demand import response_targets
from hetplan.serving.runs import machine_price

__all__ = ["Memory", "Recalled"]

Counts = tuple[int, ...]
Machines = tuple[tuple[str, int], ...]

MOST = 3000
"""Of more things of a kind all are forgotten."""
MOST_BOUNDS = 200
"""Bounds of one application at one rate."""
SERVING = {"variants": "hetplan.problems.variants.part"}
"""Who says what limits come to, of questions that are tables."""
RULED = ("llm",)
"""Whose plans stay under other limits, but for the limit that their rule names."""
KEY = "memory"
"""Under which it is kept (`PlanMemory.forget`)."""


@dataclass
class Memory:
    """What was found for the files of a server, whoever asked."""

    parts: dict[tuple[str, float, Machines], tuple[str, PlanPart]] = field(default_factory=dict)
    bounds: dict[tuple[str, float], dict[tuple[Counts, Counts], float]] = field(default_factory=dict)
    tables: dict[str, tuple[dict[float, dict[Counts, bool]], dict[float, list[Counts]]]] = field(default_factory=dict)

    @classmethod
    def within(cls, before: MutableMapping[object, object]) -> Memory:
        """That of a server."""
        found = before.setdefault(KEY, cls())
        assert isinstance(found, cls)
        for kind in (found.parts, found.bounds, found.tables):
            if len(kind) > MOST:
                kind.clear()
        return found


@dataclass
class Recalled:
    """What of it is of use for the parts of a wish."""

    wish: Wish
    parts: Mapping[str, Part]
    memory: Memory
    about: Mapping[str, str]
    """By application what its part depends on."""
    within: Mapping[str, str]
    """The same with what bounds depend on besides: which offers there are, and what may fail."""
    stock: Counts
    moved: dict[str, set[tuple[float, Machines]]] = field(default_factory=dict)
    """Parts whose limits were others when they were made, by application."""

    @classmethod
    def of(cls, wish: Wish, parts: Mapping[str, Part], tools: Tools) -> Recalled | None:
        """None where nobody remembers, or files beside profile and wish are read."""
        inputs, before = wish.inputs, tools.extra.get("before")
        if before is None or inputs.state is not None or inputs.measured is not None or inputs.traces:
            return None
        if wish.options.size != "planned" or wish.leaves_room:
            return None
        profile = tools.extra["written"](inputs)
        about = {name: _about(part, profile) for name, part in parts.items() if isinstance(part, Asked)}
        sold = repr([(one.name, one.hardware, one.zone, one.spot) for one in wish.offers])
        limits = {name: _limits(inputs.slo.apps[name]) if parts[name].question in RULED else "" for name in about}
        within = {
            name: f"{text}{limits[name]}{sold}{wish.situations}{wish.only.get(name)}" for name, text in about.items()
        }
        hashed = {name: sha256(text.encode()).hexdigest() for name, text in within.items()}
        stock = tuple(min(offer.stock, LARGEST) for offer in wish.offers)
        return cls(wish, parts, Memory.within(before()), about, hashed, stock)

    def hand_out(self) -> Callable[[Application, float, Counts], float | None]:
        """To each part what is known of it; and who knows bounds."""
        for name, key in self.about.items():
            part = self.parts[name]
            assert isinstance(part, Asked)
            part.before = partial(self._part, name)
            if isinstance(part, Table) and key in self.memory.tables:
                answers, least = self.memory.tables[key]
                part.answers = {rate: dict(known) for rate, known in answers.items()}
                part.least = dict(least)
        return self._bound

    def keep(self, menus: Menus) -> None:
        """What is known now."""
        for name, key in self.about.items():
            part = self.parts[name]
            assert isinstance(part, Asked)
            limits = _limits(self.wish.inputs.slo.apps[name])
            for (rate, machines), settled in part.settled.items():
                if settled.part is not None and (rate, machines) not in self.moved.get(name, ()):
                    self.memory.parts[key, rate, machines] = limits, settled.part
            if isinstance(part, Table):
                self.memory.tables[key] = {rate: dict(one) for rate, one in part.answers.items()}, dict(part.least)
        for (name, rate, grid), (bound, choice) in list(menus.priced.items()):
            if name not in self.within or (choice is None and not bound):
                continue
            found = self.memory.bounds.setdefault((self.within[name], rate), {})
            if len(found) > MOST_BOUNDS:
                found.clear()
            free = (name, rate, grid) in menus.listed
            found[self._own(name, grid), (LARGEST,) * len(grid) if free else self.stock] = bound

    def notices(self) -> tuple[Notice, ...]:
        """What is not said of parts whose limits were others when they were made."""
        text = "a first plan: whether its queries wait too long under the new limit is not looked at yet"
        names = [name for name in self.moved if self.parts[name].question in SERVING]
        return tuple(Notice(code="W-queueing", at=f"apps.{name}.latency", text=text) for name in names)

    def _own(self, name: str, grid: Counts) -> Counts:
        """Prices of the offers that an application may use; the others do not concern it."""
        hardware = self.parts[name].hardware
        return tuple(
            price if one.hardware in hardware else 0 for price, one in zip(grid, self.wish.offers, strict=True)
        )

    def _bound(self, app: Application, rate: float, grid: Counts) -> float | None:
        """What machines of an application cost at least at these prices, where that was worked out before."""
        own = self._own(app.name, grid)
        known = self.memory.bounds.get((self.within.get(app.name, ""), rate), {})
        least = [
            bound
            for (prices, stock), bound in list(known.items())
            if prices == own and all(map(int.__ge__, stock, self.stock))
        ]
        return max(least, default=None)

    def _part(self, name: str, rate: float, machines: Machines) -> PlanPart | None:
        """The plan of these machines at this rate as it was before, with the prices and the limit of now."""
        known = self.memory.parts.get((self.about[name], rate, machines))
        if known is None:
            return None
        limits, part = known
        app = self.wish.inputs.slo.apps[name]
        if limits != _limits(app):
            self.moved.setdefault(name, set()).add((rate, machines))
            part = _limited(part, name, app)
        return _priced(part, self.wish.inputs)


def _about(part: Asked, profile: str) -> str:
    """All that the plan of a part depends on but prices, stock, its rate, and limits where others say what they do."""
    files = part.files(1.0, {}, None)
    if part.question in RULED:
        come_to = ""
    elif part.limits is not None:
        come_to = part.limits
    elif part.question in SERVING:
        come_to = repr(import_module(SERVING[part.question]).serving(files, part.options))
    else:
        come_to = _limits(files.slo.apps[part.app])
    offers = {
        name: one.model_copy(update={"price_per_hour": 0, "stock": None}) for name, one in files.profile.offers.items()
    }
    apps = {name: _unlimited(app, quality=part.question in SERVING) for name, app in files.slo.apps.items()}
    slo = files.slo.model_copy(update={"apps": apps})
    slices = [sorted(files.profile.hardware[name].provides.items()) for name in part.hardware]
    how = (part.question, part.hardware, slices, sorted(part.options.items()), sorted(part.members.items()))
    return sha256(f"{profile}|{offers!r}|{slo!r}|{how!r}|{come_to}".encode()).hexdigest()


def _unlimited(app: App, *, quality: bool) -> App:
    """Without how long its limits on latency are; and without limits on quality where it is said what they come to."""
    latency = tuple(one.model_copy(update={"max_ms": 1.0}) for one in app.latency)
    without = app.model_copy(update={"latency": latency})
    if not quality or app.quality is None:
        return without
    said = {name: 0.0 for name in ("min", "max") if getattr(app.quality, name) is not None}
    return without.model_copy(update={"quality": app.quality.model_copy(update=said)})


def _limits(app: App) -> str:
    return repr((app.latency, app.quality))


def _limited(part: PlanPart, name: str, app: App) -> PlanPart:
    """With the limit of now in its rule; what variants said of waiting was of another."""
    kept = (
        tuple(one for one in part.warnings if one.code != "W-queueing") if part.question in SERVING else part.warnings
    )
    rule, targets, now = part.dispatch.get(name), response_targets(app), dict[str, float]()
    if getattr(rule, "slo_ms", None) is not None and targets:
        now["slo_ms"] = targets[-1].max_ms
    if getattr(rule, "ttft_ms", None) is not None:
        limits = [one.max_ms - app.network_ms_per_hop for one in app.latency if one.of == "ttft"]
        now |= {"ttft_ms": min(limits)} if limits else {}
    dispatch = {**part.dispatch, name: rule.model_copy(update=now)} if rule is not None and now else part.dispatch
    return part.model_copy(update={"dispatch": dispatch, "warnings": kept})


def _priced(part: PlanPart, inputs: Inputs) -> PlanPart:
    """With the prices of now."""
    profile, nanos = inputs.profile, 0
    for worker in part.workers:
        nanos += worker.count * machine_price(profile.offers[worker.offer or ""], profile.hardware[worker.hardware])
    cost = nanos / NANO
    if all(np.isclose(one.value, cost, rtol=1e-11) for one in part.promises if one.quantity in COSTS):
        return part
    promises = tuple(one.model_copy(update={"value": cost}) if one.quantity in COSTS else one for one in part.promises)
    return part.model_copy(update={"promises": promises})
