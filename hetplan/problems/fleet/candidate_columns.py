"""Candidate machines of each application in each period (columns of the master program), made from prices.

A *menu* of an application at a rate is a list of choices, each so many machines of every offer, that carry the rate,
and the kept share of it in every situation. Machines keep their application when others fail, so a choice can be judged
by itself. The cheapest choice at given prices is a small whole-number program over the rows of the part, one set of
rows per situation::

    min  sum_o price_o x_o
    rows of the part on  m_h = sum_{o of h} x_o                       at the rate
    rows of the part on  m_h = sum_{o of h, not gone in f} x_o        at keep x rate, every situation f
    where k machines of h are lost: min(k, m_h) fewer, whichever they are
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Status
from hetplan.planner.contract import Ask
from hetplan.planner.fleet_part import Cone, Part
from hetplan.planner.forms.milp import Builder, Milp
from hetplan.planner.program import lose
from hetplan.problems.fleet.request import Application, FleetRequest, Situation
from hetplan.problems.fleet.zones import Counts, Floats, Lists, ZoneProgram, to_whole

__all__ = ["CandidateColumns", "Choice", "add_part", "left_of", "on_grid", "surviving", "worth"]

PRICE_GAP = 1e-6
BEYOND_GAP = 1e-3
LARGEST = 2000
LOOK = 0.1
"""What a look at lists counts for, in programs."""
ZONED = 0.2
"""What a program of zones that are alike counts for, in programs of all offers."""


@dataclass(frozen=True)
class Choice:
    """So many machines of each offer; of those who share, so many slices, of which a machine has `each`."""

    machines: Counts
    each: Counts = ()

    @property
    def array(self) -> Floats:
        """Machines, parts of them too."""
        return np.array(self.machines, dtype=float) / (np.array(self.each) if self.each else 1.0)


def surviving(wish: FleetRequest, part: Part, machines: Sequence[int], situation: Situation) -> Counts:
    """Machines per hardware of the part that are left in a situation."""
    left = dict.fromkeys(part.hardware, 0)
    for offer, count in zip(wish.offers, machines, strict=True):
        if count and offer.name not in situation.gone:
            left[offer.machine] = left.get(offer.machine, 0) + count
    if situation.hardware in left:
        left[situation.hardware] = max(0, left[situation.hardware] - wish.lost(part.app, situation))
    return tuple(left[hardware] for hardware in part.hardware)


def worth(
    wish: FleetRequest, part: Part, machines: Sequence[int], situation: Situation, rate: float
) -> tuple[float, ...]:
    """Machines that are left, in those of the part's program: where more room is needed, several are worth one."""
    rooms, left = wish.rooms.get((part.app, rate), {}), surviving(wish, part, machines, situation)
    return tuple(count / rooms.get(hardware, 1.0) for hardware, count in zip(part.hardware, left, strict=True))


def left_of(wish: FleetRequest, part: Part, machines: Sequence[int], situation: Situation) -> dict[str, int]:
    """What is left to a part of each offer; of a hardware that loses machines, the first offers lose them."""
    left, lost = dict[str, int](), wish.lost(part.app, situation)
    for offer, count in zip(wish.offers, machines, strict=True):
        if not count or offer.name in situation.gone or offer.machine not in part.hardware:
            continue
        if offer.machine == situation.hardware:
            taken = min(lost, count)
            lost, count = lost - taken, count - taken
        if count:
            left[offer.name] = count
    return left


def add_part(
    m: Builder,
    wish: FleetRequest,
    part: Part,
    x: NDArray[np.int64],
    rate: float,
    most: Sequence[int] | None = None,
    *,
    when: str = "",
) -> None:
    """Rows of a part over its machines x per offer, in every situation; `most`: more of each are not to be had."""
    most = [LARGEST] * len(wish.offers) if most is None else most
    for situation in wish.situations:
        wanted = rate * situation.keep
        if wanted <= 0:
            continue
        machines = [
            np.array([x[n] for n in wish.on(h) if wish.offers[n].name not in situation.gone], dtype=np.int64)
            for h in part.hardware
        ]
        if situation.hardware is not None:
            if situation.hardware not in part.hardware:
                continue
            place = part.hardware.index(situation.hardware)
            count, there = wish.lost(part.app, situation), sum(most[n] for n in wish.on(situation.hardware))
            if there > count:
                lost = lose(m, machines[place], count, float(there), f"{part.app} {situation.name}{when}")
                machines[place] = np.concatenate([machines[place], lost])
            else:  # none is left, however many of them there are
                machines[place] = machines[place][:0]
        for hardware, room in wish.rooms.get((part.app, rate), {}).items():
            place = part.hardware.index(hardware)
            machines[place] = _worth(m, machines[place], room, f"{part.app} {hardware} {situation.name}{when}")
        wish.planned_by(part, rate).rows(m, machines, wanted, f"{situation.name}{when}")


def _worth(m: Builder, machines: NDArray[np.int64], room: float, name: str) -> NDArray[np.int64]:
    """A column for machines of which so many are worth one of the program."""
    if not len(machines):
        return machines
    one = m.columns(f"worth of {name}", ["machines"])
    row = m.rows(f"worth of {name}", ["machines"], lower=0.0)
    m.add(row, machines, 1.0)
    m.add(row, one, -room)
    return one


@dataclass(frozen=True)
class _Plain:
    """A program whose first columns are machines per offer."""

    form: Milp
    offers: int

    def machines(self, point: Floats) -> Counts:
        return to_whole(point[: self.offers])


@dataclass
class CandidateColumns:
    """Menus of all applications, and what prices have shown of them."""

    wish: FleetRequest
    parts: Mapping[str, Part]
    found: dict[tuple[str, float], dict[Counts, Choice]] = field(default_factory=dict)
    priced: dict[tuple[str, float, Counts], tuple[float, Choice | None]] = field(default_factory=dict)
    refused: set[tuple[str, float, Counts]] = field(default_factory=set)
    lists: dict[str, Lists] = field(default_factory=dict)
    counted: list[float] = field(default_factory=lambda: [0.0])
    """How many programs were asked; a look at lists counts as a part of one."""

    @property
    def n_programs(self) -> float:
        """How many programs were solved, by all searches that share these columns."""
        return self.counted[0]

    def of(self, app: Application, period: int, *, wide: bool = False) -> list[Choice]:
        """The choices known for an application in a period; `wide`: those of higher rates too."""
        rate = self.wish.rate(app, period)
        if not wide:
            return list(self.found.get((app.name, rate), {}).values())
        held = {
            choice.machines: choice
            for (name, other), choices in sorted(self.found.items())
            if name == app.name and other >= rate
            for choice in choices.values()
            if (name, rate, choice.machines) not in self.refused
        }
        if (app.name, rate) in self.wish.given_room:  # a higher rate may know of no room that is needed
            return [choice for choice in held.values() if self.holds(app, rate, choice.machines)]
        return list(held.values())

    def drop(self, name: str, period: int, choice: Choice) -> None:
        """Forget a choice that its own question does not settle."""
        app = next(app for app in self.wish.apps if app.name == name)
        self.refused.add((name, self.wish.rate(app, period), choice.machines))
        self.found.get((name, self.wish.rate(app, period)), {}).pop(choice.machines, None)
        self.add(app, self.wish.rate(app, period), choice.machines)

    def add(self, app: Application, rate: float, machines: Counts) -> Choice:
        """A choice, kept once; one that did not settle gets a machine more of each offer that it has."""
        while (app.name, rate, machines) in self.refused:
            machines = tuple(count + (count > 0) for count in machines)
        known = self.found.setdefault((app.name, rate), {})
        return known.setdefault(machines, Choice(machines, self.wish.each(app.name)))

    def price(self, ask: Ask, wanted: Sequence[tuple[Application, float, Floats]]) -> list[tuple[float, Choice | None]]:
        """For each application, rate and prices: a lower bound on the cost of any choice, and the cheapest choice.

        None where there is no choice at all (bound: inf), or none was found. An engine may find one and no bound: then
        the bound is 0. Prices are those of machines; rounded down to a grid, so that equal questions are asked once.
        """
        keys = [(app.name, rate, _grid(prices)) for app, rate, prices in wanted]
        missing = {key: app for key, (app, _, _) in zip(keys, wanted, strict=True) if key not in self.priced}
        missing = {key: app for key, app in missing.items() if not self._looked(app, *key[1:])}
        tried: dict[tuple[str, float, Counts], Counts | None] = {}
        plain = set[tuple[str, float, Counts]]()
        while missing:
            programs = {key: self._program(app, *key[1:], plain=key in plain) for key, app in missing.items()}
            self.counted[0] += sum(ZONED if isinstance(one, ZoneProgram) else 1.0 for one in programs.values())
            forms = [one.form for one in programs.values()]
            answers = ask.all(forms, gap=PRICE_GAP, about="cheapest machines of applications at prices")
            left: dict[tuple[str, float, Counts], Application] = {}
            for (key, app), answer in zip(missing.items(), answers, strict=True):
                if answer.status is Status.INFEASIBLE:
                    self.priced[key] = (np.inf, None)
                    continue
                bound = answer.bound if answer.bound is not None else 0.0
                if answer.point is None:
                    self.priced[key] = (bound, None)
                    continue
                machines = programs[key].machines(answer.point)
                if machines is not None and self.holds(app, key[1], machines):
                    self.priced[key] = (bound, self.add(app, key[1], machines))
                    continue
                left[key] = app
                if machines is None or machines == tried.get(key):  # its rows say no more than they did
                    plain.add(key)
                tried[key] = machines
            missing = left
        return [self.priced[key] for key in keys]

    def _paid(self, app: Application, grid: Counts) -> Floats:
        """What is paid for each of what an application takes: a machine, or its slice."""
        return np.asarray(np.array(grid) * STEP / np.array(self.wish.each(app.name)), dtype=float)

    def _stock(self, app: Application) -> list[int]:
        """How many there are to have of each offer."""
        return [
            min(int(stock) * each, LARGEST)
            for stock, each in zip(self.wish.stock, self.wish.each(app.name), strict=True)
        ]

    def _looked(self, app: Application, rate: float, grid: Counts) -> bool:
        """Whether no program is asked: lists say which choice is the cheapest at prices, or nothing is needed.

        Of parts with a single row the program of all offers is as quick, and menus of what it finds led to fleets that
        were 2% cheaper.
        """
        if rate <= 0:
            self.priced[app.name, rate, grid] = (0.0, self.add(app, rate, (0,) * len(grid)))
            return True
        part, stock = self.parts[app.name], self._stock(app)
        if isinstance(part, Cone) and len(part.weights()) == 1:
            return False
        said = -1
        while isinstance(part, Cone) and len(part.weights()) > said:
            if app.name not in self.lists:
                self.lists[app.name] = Lists(self.wish, part, self.hardware(app))
            lists = self.lists[app.name]
            said, known = len(part.cuts), lists.at(rate)
            found = known.cheapest(self._paid(app, grid), stock) if known is not None else None
            if found is None:
                return False
            self.counted[0] += LOOK
            cost, machines = found
            if not machines or self.holds(app, rate, machines[0]):
                choices = [self.add(app, rate, one) for one in machines if self.holds(app, rate, one)]
                self.priced[app.name, rate, grid] = (cost, choices[0] if choices else None)
                return True
        return False

    def _program(self, app: Application, rate: float, grid: Counts, *, plain: bool) -> ZoneProgram | _Plain:
        """The program of zones that are alike; that of all offers where they are not, or where it is `plain`."""
        lists = self.lists.get(app.name)
        if lists is not None and not plain:
            found = lists.program(rate, self._paid(app, grid), self._stock(app))
            if found is not None:
                return found
        return _Plain(self.form(app, rate, grid), len(self.wish.offers))

    def beyond(self, ask: Ask, wanted: Sequence[tuple[Application, float, Floats, Floats]]) -> None:
        """The choices that cost least beyond machines that are there already: application, rate, prices, those."""
        left = list(dict.fromkeys((app, rate, tuple(prices), tuple(free)) for app, rate, prices, free in wanted))
        while left:
            forms = []
            for app, rate, prices, free in left:
                each = np.array(self.wish.each(app.name))
                m = Builder("min", name=f"more machines of {app.name}")
                x = self.columns(m, app)
                names = [offer.name for offer in self.wish.offers]
                more = m.columns("more", names, upper=self.wish.stock, cost=prices)
                row = m.rows("beyond", names, lower=-np.array(free))
                m.add(row, more, 1.0)
                m.add(row, x, -1.0 / each)
                add_part(m, self.wish, self.parts[app.name], x, rate, self.max_machines(app))
                forms.append(m.build())
            self.counted[0] += len(forms)
            answers = ask.all(forms, gap=BEYOND_GAP, about="machines of applications beyond those committed")
            again = []
            for key, answer in zip(left, answers, strict=True):
                if answer.point is not None:
                    machines = to_whole(answer.point[: len(self.wish.offers)])
                    if self.holds(key[0], key[1], machines):
                        self.add(key[0], key[1], machines)
                    else:
                        again.append(key)
            left = again

    def form(self, app: Application, rate: float, grid: Counts) -> Milp:
        """The cheapest choice at prices, as far as the rows known say."""
        m = Builder("min", name=f"machines of {app.name}")
        x = self.columns(m, app, cost=self._paid(app, grid))
        add_part(m, self.wish, self.parts[app.name], x, rate, self.max_machines(app))
        return m.build()

    def columns(
        self,
        m: Builder,
        app: Application,
        *,
        cost: Floats | float = 0.0,
        most: Sequence[int] | None = None,
        only: Sequence[bool] | None = None,
        when: str = "",
    ) -> NDArray[np.int64]:
        """Columns for the machines of an application, per offer; `only`: the offers that it may use."""
        most = self.max_machines(app) if most is None else most
        most = [count * may for count, may in zip(most, only, strict=True)] if only is not None else most
        names = [offer.name for offer in self.wish.offers]
        return m.columns(f"machines of {app.name}{when}", names, upper=most, cost=cost, whole=True, unit="machines")

    def max_machines(self, app: Application, *, stocked: bool = True, rate: float | None = None) -> list[int]:
        """The most machines of each offer that an application may take; at a `rate` no more than are of use."""
        hardware, offers = self.hardware(app), self.wish.offers
        stock = self._stock(app) if stocked else [LARGEST] * len(offers)
        if rate is not None:
            part = self.wish.planned_by(self.parts[app.name], rate)
            rooms, lost = (
                self.wish.rooms.get((app.name, rate), {}),
                max(self.wish.lost(app.name, f) for f in self.wish.situations),
            )
            useful = {
                one: lost + math.ceil(n * rooms.get(one, 1.0))
                for one, n in zip(part.hardware, part.of_use(rate), strict=True)
            }
            stock = [min(n, useful.get(offer.machine, 0)) for offer, n in zip(offers, stock, strict=True)]
        return [n if offer.machine in hardware else 0 for offer, n in zip(offers, stock, strict=True)]

    def hardware(self, app: Application) -> Sequence[str]:
        """What an application may use, of what is sold."""
        only, sold = self.wish.only.get(app.name), {offer.machine for offer in self.wish.offers}
        return [one for one in self.parts[app.name].hardware if only in (None, one) and one in sold]

    def holds(self, app: Application, rate: float, machines: Counts) -> bool:
        """Whether machines carry what they should in every situation; where not, the part knows why from now on."""
        wish, part = self.wish, self.wish.planned_by(self.parts[app.name], rate)
        found = [part.carries(worth(wish, part, machines, f, rate), rate * f.keep) for f in wish.situations]
        return all(found)

    def roomier(self, wish: FleetRequest) -> CandidateColumns:
        """The same for a wish in which applications need more room: without what was known of those."""
        known = self.wish.rooms
        changed = {key for key, rooms in wish.rooms.items() if known.get(key) != rooms}
        changed |= (wish.firm - self.wish.firm) | (wish.seen.keys() - self.wish.seen.keys())
        found = {key: choices for key, choices in self.found.items() if key not in changed}
        priced = {key: one for key, one in self.priced.items() if key[:2] not in changed}
        lists = {name: replace(one, wish=wish) for name, one in self.lists.items()}
        return CandidateColumns(wish, self.parts, found, priced, self.refused, lists)


STEP = 1e-6
"""Prices are counted in so much per hour, rounded down: a lower bound stays one, and equal prices are found equal."""


def _grid(prices: Floats) -> Counts:
    return tuple(int(n) for n in np.floor(np.maximum(prices, 0.0) / STEP + 1e-9))


def on_grid(price: float) -> float:
    """A price as menus count it: no purchase undercuts it, as it is no higher.

    >>> on_grid(0.1234567), on_grid(-1.0)
    (0.123456, 0.0)
    """
    return float(f"{_grid(np.array([price]))[0] * STEP:.9g}")
