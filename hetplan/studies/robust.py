"""How sure a plan is: how far numbers may be off before its machines fail or are too dear, and machines for a box.

**Margins.** The machines of a plan (the one that `solve` makes where none is given) are held; the files are asked again
with all demand, all measured times, or the price of one offer multiplied by a factor. Going up and down, two places are
looked for by halving: where the machines no longer carry the wish (of a wish for the most: where they bring 5% less, or
are above the budget), and where they cost 5% more (bring 5% less) than the best plan for the changed files. Queries may
take new ways; machines may not be added.

**A box.** Each rate and each hardware's times may be off by a part, at most `gamma` of them at once (budgeted
uncertainty, Bertsimas and Sim 2004). More demand and longer times are never easier, so the corners with `gamma` of them
at their worst are all that matters. A fleet holds in the box if it carries the wish in every corner; queries may take
other ways in each. Tried are the best fleets of the corners and those that grow from them: a fleet that fails in a
corner gets what that corner needs on top. Where `solve` sizes plans beyond their program, its own plans of the files as
they are and of the dearest corner are tried, too, and the first fleet is taken with which it finds a plan in every
corner: without errors that is what `solve` says. Each such plan is confirmed as `solve` confirms it, within an error
budget of its own (`planner.sizing`): nothing is simulated here. The certified bound of the dearest corner is a bound
for every fleet that holds, so it is said how far from the best the found one may be. With errors of prices too, fleets
are compared by their bills with the `gamma` worst of these errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

from hetplan.errors import InputError
from hetplan.planner.spread import Spread
from hetplan.planner.status import PlanStatus
from hetplan.profiles.canonical import rounded
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.runs import machine_price
from hetplan.studies.axes import Files, own_prices
from hetplan.studies.points import Asked, Task, edits_that_hold, fleet_of, machines_of, study_digest, try_changes

__all__ = ["Box", "InBox", "Margin", "Robustness", "robust_for"]

TOO_DEAR = 0.05
"""Machines are too dear where they cost this part more than the best plan, or bring so much less."""
FARTHEST = 4.0
"""Factors are looked for up to this, and down to its inverse."""
NEAR = 0.005
"""A factor is looked for until it is known to this."""
MOST_CORNERS = 64
"""Of a box with more corners, each a plan for each fleet tried, only the worst is held."""
MOST_GROWN = 20
"""So often a fleet gets what a corner needs on top, before it is given up."""
MOST_CONFIRMED = 4
"""So many fleets are looked at in full: the program's, one that grew from it, and the two of `solve`."""

Machines = dict[tuple[str | None, str], int]
Found = Mapping[str, Any]


@dataclass(frozen=True)
class Box:
    """How far numbers may be off, as parts: 0.2 is 20%; at most `gamma` of them at once (None: all)."""

    demand: float = 0.0
    latency: float = 0.0
    prices: float = 0.0
    gamma: int | None = None

    def __post_init__(self) -> None:
        for name in ("demand", "latency", "prices"):
            if not 0 <= getattr(self, name) <= FARTHEST:
                raise InputError.one(
                    file="--box", value=f"{name}={getattr(self, name):g}", why="a part from 0 to 4",
                    remedy="Write --box demand=0.2,latency=0.1.",
                )  # fmt: skip
        if self.gamma is not None and self.gamma < 1:
            raise InputError.one(file="--gamma", value=self.gamma, why="at least one number is off", remedy="Write 1.")

    @classmethod
    def of(cls, parts: Mapping[str, Any]) -> Box:
        """The box that these parts say, by name."""
        for name, value in parts.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if name not in ("demand", "latency", "prices", "gamma") or not number:
                why = "parts by which demand, latency and prices may be off, and gamma"
                raise InputError.one(
                    path=f"robust.{name}", value=value, why=why, remedy='Write {"demand": 0.2, "latency": 0.1}.'
                )
        return cls(**parts)


@dataclass(frozen=True)
class Margin:
    """Along one number: the factor from which on the machines fail, and from which on they are too dear.

    None: not up to four times, or down to a quarter.
    """

    what: str
    fails_from: float | None
    too_dear_from: float | None
    too_dear_below: float | None
    fails_below: float | None = None


@dataclass(frozen=True)
class InBox:
    """Machines that hold in every corner of a box, and what that costs."""

    fleet: dict[str, int]
    instances: dict[str, tuple[int, int]]
    """`limits.instances` that make `hetplan solve` take them."""
    value: float
    nominal: float
    bound: float | None
    price: float
    """What holding costs, as a part of the plan's own value."""
    corners: int
    bill_at_worst: float | None
    nominal_bill_at_worst: float | None
    confirmed: bool | None
    """Whether plans with these machines were found in full, simulation included, in every corner; None: not tried."""


@dataclass(frozen=True)
class Robustness:
    """All that is said of how sure a plan is."""

    about: str
    sense: str
    value: float
    fleet: dict[str, int]
    margins: tuple[Margin, ...]
    box: InBox | None
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        found: dict[str, Any] = rounded({"format": "hetplan/robustness/1.0", **asdict(self)})
        return found


def robust_for(
    inputs: Inputs, *, plan: Plan | None = None, box: Box | None = None, numbers: Sequence[str] | None = None,
    spread: Spread | None = None, **choices: Any,
) -> Robustness:  # fmt: skip
    """How far numbers may be off, and machines that hold in a box; `choices` are problem, formulation, options.

    `numbers` are those to look at: demand, latency, prices:OFFER, demand:APP, latency:HARDWARE; by default the first
    two and the price of every offer of the plan.
    """
    if plan is not None:
        choices = {"question": plan.question, "formulation": plan.method.formulation,
                   "options": dict(plan.method.options), **choices}  # fmt: skip
    asked = Asked.of(Files.of(inputs), (), **choices)
    if asked.is_slow:
        why = "hundreds of plans, where one of a fleet takes up to a minute"
        remedy = "Ask for one application alone, or try single values with --vary."
        raise InputError.one(file="slo", path="$.horizon", why=why, remedy=remedy)
    spread = spread or Spread()
    spread.of = spread.of or study_digest(asked, ["robust", plan.digest or "" if plan is not None else "", repr(box)])
    with spread:
        return _Study(asked, spread, box).said(plan, numbers)


@dataclass
class _Study:
    """The solves of one plan's robustness."""

    asked: Asked
    spread: Spread
    box: Box | None
    machines: Machines = field(default_factory=dict, init=False)
    fleet: dict[str, int] = field(default_factory=dict, init=False)
    base: Found = field(default_factory=dict, init=False)
    notes: list[str] = field(default_factory=list, init=False)
    sizing: float = field(default=1.0, init=False)
    """What `solve` pays beside its program alone, as a factor: so much is taken to come on top of every program."""

    @property
    def inputs(self) -> Inputs:
        return self.asked.files.inputs

    def said(self, plan: Plan | None, numbers: Sequence[str] | None) -> Robustness:
        self._begin(plan)
        offers = [offer for offer, _ in self.machines if offer is not None]
        priced = self.base["sense"] == "min" or self.inputs.slo.limits.cost_per_hour is not None
        names = ["demand", "latency", *(f"prices:{offer}" for offer in offers if priced)]
        if not any(app.stated_qps is not None for app in self.inputs.slo.apps.values()):
            names.remove("demand")
        return Robustness(
            about=self.base["about"],
            sense=self.base["sense"],
            value=self.base["value"],
            fleet=self.fleet,
            margins=tuple(self._margins(names if numbers is None else numbers)),
            box=None if self.box is None else self._in_box(self.box),
            notes=tuple(self.notes),
        )

    def _begin(self, plan: Plan | None) -> None:
        """The machines that are held: of the plan that was given, else of the program's own plan."""
        if self.inputs.profile.hosts:
            raise InputError.one(
                file=self.inputs.files.get("profile", "profile"), path="$.hosts",
                why="machines that are there already do not fail for being too few: robustness is asked of rented ones",
                remedy="Leave the hosts out, or vary demand and latency with --vary.",
            )  # fmt: skip
        _refuse_own_prices(self.inputs)
        (free,) = self._try_all([{}])
        if not free["ok"]:
            raise InputError.one(
                file="slo", why=f"there is no plan to look at: {free['why'].rstrip('.')}", remedy="Run solve."
            )
        self.base, self.machines, self.fleet = free, _machines_found(free), dict(free["fleet"])
        own, fleet = (machines_of(plan), fleet_of(plan)) if plan is not None else self._solve_corner()
        if own is not None:
            (as_given,) = self._try_all([{"edits": edits_that_hold(self.inputs, own)}])
            if as_given["ok"] and as_given["value"] is not None:
                if as_given["about"] == "cost_per_hour":
                    as_given["value"] = self._bill(own)  # the program alone may leave some of them out
                self.base, self.machines, self.fleet = as_given, own, fleet
                if plan is None and free["value"]:
                    self.sizing = float(as_given["value"]) / float(free["value"])
            elif own != self.machines:
                self.notes.append(
                    "the program without simulation needs other machines than the plan: these are studied"
                )

    def _solve_corner(self, corner: Sequence[Any] = ()) -> tuple[Machines | None, dict[str, int]]:
        """The machines of the plan that `solve` makes of the files with these factors; None where it says no more."""
        if self.asked.sizes:
            (whole,) = self._try_all([{"factors": list(corner), "sized": True}])
            if whole["ok"]:
                return _machines_found(whole), dict(whole["fleet"])
        return None, {}

    def _try_all(self, tasks: Sequence[Task], about: str = "plans") -> list[dict[str, Any]]:
        return self.spread.all(try_changes, self.asked, tasks, about=about)

    def _margins(self, names: Sequence[str]) -> Iterator[Margin]:
        """All places of all numbers are halved side by side."""
        edits = edits_that_hold(self.inputs, self.machines)
        wanted = [(name, way, what) for name in names for way in ("up", "down") for what in ("fails", "dear")]
        inside = dict.fromkeys(wanted, 1.0)
        outside = {one: FARTHEST if one[1] == "up" else 1.0 / FARTHEST for one in wanted}
        places: dict[tuple[str, str, str], float] = {}
        open_, at = list(wanted), dict(outside)
        while open_:
            free = self._try_all([{"factors": [[one[0], at[one]]]} for one in open_])
            # A bill needs no solve: what the held machines cost at another price is known.
            billed = [one for one in open_ if one[0].startswith("prices") and self.base["about"] == "cost_per_hour"]
            solves = [one for one in open_ if one not in billed]
            tasks = [{"factors": [[one[0], at[one]]], "edits": edits} for one in solves]
            kept = dict.fromkeys(billed, self.base) | dict(zip(solves, self._try_all(tasks), strict=True))
            for place, one in enumerate(open_):
                bill = self._bill(self.machines, one[0], at[one])
                if self._holds(one[2], kept[one], free[place], bill):
                    inside[one] = at[one]
                else:
                    outside[one] = places[one] = at[one]
            open_ = [one for one in open_ if one in places and abs(outside[one] - inside[one]) > NEAR]
            at = {one: (inside[one] + outside[one]) / 2 for one in open_}
        for name in names:
            yield Margin(
                name,
                places.get((name, "up", "fails")),
                places.get((name, "up", "dear")),
                places.get((name, "down", "dear")),
                places.get((name, "down", "fails")),
            )

    def _holds(self, what: str, kept: Found, free: Found, bill: float) -> bool:
        """Whether the machines still do (`fails`), or are still nearly the best (`dear`)."""
        least = self.base["sense"] == "min"
        if not kept["ok"]:
            # Machines that fail are not too dear.
            return what == "dear"
        if what == "fails":
            budget = self.inputs.slo.limits.cost_per_hour
            if budget is not None and bill > budget / NANO + 1e-9:
                return False
            return least or bool(kept["value"] >= (1 - TOO_DEAR) * self.base["value"])
        if not free["ok"]:
            return True
        best = free["value"] * self.sizing
        if self.base["about"] == "cost_per_hour":
            return bool(bill <= (1 + TOO_DEAR) * best + 1e-9)
        worse = kept["value"] - best if least else best - kept["value"]
        return bool(worse <= TOO_DEAR * abs(best) + 1e-9)

    def _bill(self, fleet: Machines, name: str = "", by: float = 1.0) -> float:
        """What machines cost, used or not, with one price multiplied."""
        return sum(
            self._price(offer) * count * (by if name == f"prices:{offer}" else 1.0)
            for (offer, _), count in fleet.items()
        )

    def _price(self, offer: str | None) -> float:
        if offer is None:
            return 0.0
        profile = self.inputs.profile
        sold = profile.offers[offer]
        return machine_price(sold, profile.hardware[sold.hardware]) / NANO

    def _in_box(self, box: Box) -> InBox | None:
        corners = list(self._corners(box))
        free = self._try_all([{"factors": corner} for corner in corners])
        if not all(one["ok"] for one in free):
            lost = next(one for one in free if not one["ok"])
            self.notes.append(f"no machines hold in the box: {lost['why'] or 'a corner has no plan'}")
            return None
        candidates = [self.machines, *map(_machines_found, free)]
        candidates += list(self._grow_fleets(candidates, corners))
        least = self.base["sense"] == "min"
        values = [(self._worst_value(one, corners), one) for one in _distinct(candidates)]
        rated = [(value, one) for value, one in values if value is not None]
        if self.base["about"] == "cost_per_hour":
            # What is sized by simulation may do with less than the program's headroom asks for.
            dearest = max(range(len(corners)), key=lambda place: float(free[place]["value"]))
            solved = [one for one, _ in map(self._solve_corner, ([], corners[dearest])) if one is not None]
            rated += [(self._bill(one), one) for one in _distinct(solved) if one not in [other for _, other in rated]]
        if not rated:
            self.notes.append("no machines were found that hold in every corner of the box")
            return None
        at_worst = {id(one): self._at_worst(one, box) for _, one in rated}
        rated.sort(key=lambda pair: at_worst[id(pair[1])] if box.prices and least else pair[0] if least else -pair[0])
        confirmed, (value, best) = None, rated[0]
        if self.asked.sizes:
            whole = next((pair for pair in rated[:MOST_CONFIRMED] if self._confirmed(pair[1], corners)), None)
            confirmed, (value, best) = whole is not None, whole or rated[0]
        nominal = float(self.base["value"])
        bounds = [one["bound"] for one in free]
        bound = None if None in bounds else max(bounds) if least else min(bounds)
        return InBox(
            fleet={(offer or hardware): count for (offer, hardware), count in sorted(best.items(), key=str)},
            instances=_instances(best),
            value=value,
            nominal=nominal,
            bound=bound,
            price=(value - nominal if least else nominal - value) / abs(nominal) if nominal else 0.0,
            corners=len(corners),
            bill_at_worst=self._at_worst(best, box) if box.prices else None,
            nominal_bill_at_worst=self._at_worst(self.machines, box) if box.prices else None,
            confirmed=confirmed,
        )

    def _corners(self, box: Box) -> Iterator[list[list[Any]]]:
        """The worst that may happen: `gamma` of the rates and times at their worst."""
        kinds = {hardware for _, hardware in self.machines} | {
            offer.hardware for offer in self.inputs.profile.offers.values()
        }
        items = [[f"demand:{app}", 1 + box.demand] for app in self.inputs.slo.apps if box.demand]
        items += [[f"latency:{kind}", 1 + box.latency] for kind in sorted(kinds) if box.latency]
        size = min(box.gamma if box.gamma is not None else len(items), len(items))
        found = list(combinations(items, size))
        if len(found) > MOST_CORNERS:
            self.notes.append(f"the box has {len(found)} corners: held is its worst one, with all of them off")
            found = [tuple(items)]
        yield from (list(one) for one in found)

    def _grow_fleets(self, fleets: Sequence[Machines], corners: Sequence[list[list[Any]]]) -> Iterator[Machines]:
        """Each fleet with what the corners need on top that it fails in."""
        for fleet in _distinct(fleets):
            grown = dict(fleet)
            for _ in range(MOST_GROWN):
                failing = self._failing_corner(grown, corners)
                if failing is None:
                    yield grown
                    break
                least = [
                    ["slo", ["limits", "instances", kind], [count, None]] for kind, count in _by_kind(grown).items()
                ]
                (more,) = self._try_all([{"factors": failing, "edits": least}])
                if not more["ok"] or _machines_found(more) == grown:
                    break
                grown = _machines_found(more)

    def _failing_corner(self, fleet: Machines, corners: Sequence[list[list[Any]]]) -> list[list[Any]] | None:
        if self.base["sense"] != "min":
            return None
        edits = edits_that_hold(self.inputs, fleet)
        answers = self._try_all([{"factors": corner, "edits": edits} for corner in corners])
        return next((corner for corner, one in zip(corners, answers, strict=True) if not one["ok"]), None)

    def _worst_value(self, fleet: Machines, corners: Sequence[list[list[Any]]]) -> float | None:
        """What a fleet is worth in its worst corner; None where it does not hold in all of them."""
        edits = edits_that_hold(self.inputs, fleet)
        answers = self._try_all([{"factors": corner, "edits": edits} for corner in corners])
        if not all(one["ok"] for one in answers):
            return None
        if self.base["about"] == "cost_per_hour":
            return self._bill(fleet)
        values = [float(one["value"]) for one in answers]
        return max(values) if self.base["sense"] == "min" else min(values)

    def _at_worst(self, fleet: Machines, box: Box) -> float:
        """The bill with the `gamma` prices off that matter most."""
        bills = sorted((self._price(offer) * count for (offer, _), count in fleet.items()), reverse=True)
        return sum(bills) + box.prices * sum(bills[: box.gamma if box.gamma is not None else len(bills)])

    def _confirmed(self, fleet: Machines, corners: Sequence[list[list[Any]]]) -> bool:
        edits = edits_that_hold(self.inputs, fleet)
        tasks = [{"factors": corner, "edits": edits, "sized": True} for corner in corners]
        answers = self._try_all(tasks, about="corners confirmed")
        return all(one["ok"] and one["status"] != PlanStatus.NOT_SIMULATED for one in answers)


def _refuse_own_prices(inputs: Inputs) -> None:
    """What is held is machines: runs with prices by themselves may be paid otherwise on the next one."""
    for hardware in inputs.profile.hardware:
        for place, price in own_prices(inputs.profile, hardware).items():
            if price is not None:
                raise InputError.one(
                    file=inputs.files.get("profile", "profile"), path=place.replace("profile", "$", 1),
                    why="robustness is asked of whole machines, and this run has its own price",
                    remedy="Write the price at the machine type, or vary demand, latency and prices with --vary.",
                )  # fmt: skip


def _machines_found(found: Found) -> Machines:
    return {(offer, hardware): count for offer, hardware, count in found["machines"]}


def _distinct(fleets: Sequence[Machines]) -> list[Machines]:
    return list({str(sorted(fleet.items(), key=str)): fleet for fleet in fleets}.values())


def _by_kind(fleet: Machines) -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, hardware), count in fleet.items():
        found[hardware] = found.get(hardware, 0) + count
    return found


def _instances(fleet: Machines) -> dict[str, tuple[int, int]]:
    return {hardware: (count, count) for hardware, count in sorted(_by_kind(fleet).items())}
