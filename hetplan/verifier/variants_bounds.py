"""The program of variants, written down again from the inputs: what no counts of instances can serve for less.

The rows by which a plan's proofs go
------------------------------------
A kind is a run of a variant on a type of machine at a batch; it serves an application where it is in time and good
enough, at a rate q: its saturation, times the share of it that is asked for (`extensions`, "hetplan.used"). That share
is no lower than the plan's queue has it, else nothing is proved here. Columns: ``x[kind]``, instances, whole;
``y[app by kind]``, parts of an application's need; ``p[group]``, instances of a group that have to be loaded. Rows:

``load[app]``             sum of min(q / need, 1) x of what serves it alone, and of y >= 1
``saturation[kind]``      sum of need / q y <= x, of kinds that serve several applications
``there at all[kind]``    y <= x, where y takes next to nothing of an instance
``loaded[group k]``       sum of x - p <= what runs
``resource[type]``, ``resource[total]``    sum of needs x <= what there is

Where instances share machines that are paid whole there are columns ``machines[type][way to fill one]`` too, and
instances on them cost nothing by themselves. Where there are too many ways, no machine holds more of a resource than it
has, nor of what its instances may be counted for instead of their needs (`_no_more_than_one`). Places on machines,
moves, how few machines there may be, and how much slower instances are beside others are left out: a plan that keeps
them keeps these rows, so what is shown is true, and may be lower.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hetplan.planner.next_state import USED
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Claim, Plan, Solve
from hetplan.profiles.profile import Hardware
from hetplan.profiles.workers import Load, Serve, Worker
from hetplan.verifier.demand import classes_of, response_targets, wanted_rate
from hetplan.verifier.facts import Facts, Seat
from hetplan.verifier.rows import BOXES, NoProof, NotRebuilt, Rows
from hetplan.verifier.service import service_of
from hetplan.verifier.variants import (
    Held,
    Reading,
    batches_of,
    change_s,
    is_whole,
    part_of,
    price_of,
    weight_of_loading,
)
from hetplan.verifier.variants_columns import Apart, Item
from hetplan.verifier.waiting_room import LARGEST, most_busy, most_busy_by_law

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["most_of_a_machine", "proved"]

_WHOLE = "machines"
_SMALL = 1e-3
_LEAST_ASKED = 0.002
_HAIR = 1e-9
_SHOWN, _SLIP = 1e-8, 1e-8
_MOST_FILLINGS = 500
"""Where a machine may be filled in more ways, its instances are counted by what they take together."""
_MOST_CELLS, _FEWEST = 10_000_000, 10
"""Rows times columns of all boxes of a search, at most; where that makes fewer boxes than this, nothing is searched."""
_MOST_ALIKE = 16
"""Up to so many alike instances on a machine what they take is counted in whole parts."""


def proved(facts: Facts, claim: Claim, solve: Solve) -> float:
    """The bound that is shown here of the claimed quantity; NoProof says why there is none.

    By the multipliers of the claim's solve, where that is a program which is written down here, or by the prices of
    configurations. Machines that are paid whole and shared are no such program: their bound is searched for here.
    """
    if claim.about not in ("gross_cost_per_hour", "cost_per_hour") or claim.sense != "min":
        raise NoProof(f"nothing is known here of the {claim.sense} {claim.about}")
    reading, given = Reading(facts.plan, facts.inputs), solve.proof or {}
    reason = f"it is proved by {solve.about or solve.form}, which is not rebuilt"
    written = solve.form == "milp" and solve.about in ("least gross cost", "least gross cost, whole")
    runs = sum(len(facts.inputs.profile.variants[name].runs) for name, apps in reading.allowed.items() if apps)
    if not written and "prices" not in given and runs**2 * _FEWEST > _MOST_CELLS:
        raise NotRebuilt(f"{reason}, and it is too large for a search here")
    counts = _Counts(reading)
    if solve.form == "columns" and "prices" in given:
        return counts.apart().shown(given)
    if written:
        reason = counts.otherwise or ("its proof is too long for a plan" if "left_out" in given else "")
    if not reason:
        return counts.cheapest().bound(given)
    program = counts.cheapest()
    most = min(BOXES, _MOST_CELLS // max(program.size, 1))
    if most < _FEWEST:
        raise NotRebuilt(f"{reason}, and it is too large for a search here")
    found = program.searched(claim.bound or 0.0, most=most)
    if found < (claim.bound or 0.0) * (1.0 - _SHOWN):
        raise NotRebuilt(f"{reason}, and a search here shows {found:.9g}")
    return found


@dataclass(frozen=True)
class _Type:
    """Machines of a hardware under one offer; how many there may be at most (None: any number)."""

    hardware: str
    offer: str | None
    count: int | None

    @property
    def name(self) -> str:
        return self.offer or self.hardware


@dataclass(frozen=True)
class _Kind:
    """A run on a type of machine, as if one instance were there; what it takes, and at which rate it serves whom."""

    held: Held
    type: _Type
    batch: int
    needs: dict[str, float]
    qps: dict[str, float]

    @property
    def name(self) -> str:
        at = self.held.run.at if self.held.run is not None else {}
        knobs = "".join(f",{name}={value:g}" for name, value in at.items() if name != "batch")
        return f"{self.held.load.variant}@{self.type.hardware}/{self.batch}{knobs}"


class _Counts:
    def __init__(self, reading: Reading) -> None:
        self.reading, self.inputs = reading, reading.inputs
        self.profile, self.slo, self.options = self.inputs.profile, self.inputs.slo, reading.plan.method.options
        if self.options.get("violators", "ignore") != "ignore":
            raise NotRebuilt("running instances that break a limit are counted")
        self.types = list(self._types())
        self.kinds = list(self._kinds())
        self.items = list(self._items())
        self.otherwise = self._otherwise()
        """Why the program that was solved is another than the one here, which asks for no more of a plan."""

    def _otherwise(self) -> str:
        slowed = [kind.held.run.slowdown for kind in self.kinds if kind.held.run is not None]
        named = {name for name in slowed if name is not None}
        if any(min(np.ravel(self.profile.tables[name].mean or [0.0])) < 1.0 for name in named):
            raise NotRebuilt("instances may be faster beside others")
        if self.slo.limits.moves is not None or any(least for least, _ in self.slo.limits.instances.values()):
            return "moves, or how few machines there may be, are limited"
        if any(part_of(self.reading, kind.held) for kind in self.kinds):
            return "instances share machines that are paid whole"
        if named:
            return "instances are slower beside others"
        if len({kind.name for kind in self.kinds}) < len(self.kinds):
            return "two types of machines of one hardware run the same"
        return ""

    def _types(self) -> Iterator[_Type]:
        limits = self.slo.limits
        for hardware in self.profile.hardware:
            _, left = limits.instances.get(hardware, (0, 0 if limits.only_listed else None))
            offers = sorted(name for name, offer in self.profile.offers.items() if offer.hardware == hardware)
            choices: list[str | None] = [*offers] or [None]
            for offer in choices:
                hosts = sum(1 for host in self.profile.hosts.values() if offer is not None and host.offer == offer)
                stock = self.profile.offers[offer].stock if offer is not None else None
                count = min((n for n in (hosts or None, stock, left) if n is not None), default=None)
                left = left - count if left is not None and count is not None else left
                yield _Type(hardware, offer, count)

    def _kinds(self) -> Iterator[_Kind]:
        names = {name for name, apps in self.reading.allowed.items() if apps}
        names |= {held.load.variant or "" for held in self.reading.now} & set(self.profile.variants)
        for name in sorted(names):
            variant = self.profile.variants[name]
            for run in variant.runs:
                for kind in (one for one in self.types if one.hardware == run.hardware and run.latency is not None):
                    for batch in batches_of(self.profile, self.slo, variant, run):
                        load = Load(id="any", variant=name, at=dict(run.at), serve=Serve(max_batch=batch))
                        worker = Worker(id="any", hardware=kind.hardware, offer=kind.offer, loads=(load,))
                        (held,) = self.reading.held(worker)
                        whole = is_whole(self.reading, held) and not part_of(self.reading, held)
                        needs = {**run.needs, **({_WHOLE: 1.0} if whole else {})}
                        if held.run is None:
                            raise NotRebuilt(f"{name} has two runs of the same settings on {kind.hardware}")
                        if self._fits(kind, needs, whole=whole):
                            yield _Kind(held, kind, batch, needs, dict(self._rates(held)))

    def _fits(self, kind: _Type, needs: dict[str, float], *, whole: bool) -> bool:
        about: Hardware = self.profile.hardware[kind.hardware]
        if kind.count == 0 and not whole and not about.provides:
            return False
        limited = {name for name in self.slo.limits.capacity if name not in about.provides}
        room = {name: 1.0 if name == _WHOLE else about.provides.get(name, 0.0) for name in needs if name not in limited}
        return not about.provides or all(needs[name] <= there * (1 + _HAIR) + 1e-12 for name, there in room.items())

    def _rates(self, held: Held) -> Iterator[tuple[str, float]]:
        """The rate at which an instance is asked for by each application: no lower a share than the queue has it."""
        said = self.reading.plan.extensions.get(USED, {})
        for app, full in held.qps.items():
            at = held.run.at if held.run is not None else {}
            knobs = "".join(f",{name}={value:g}" for name, value in at.items() if name != "batch")
            batch = held.load.serve.max_batch
            name = f"{held.load.variant}@{held.worker.hardware}/{batch}{knobs} for {app}"
            share = said.get(name, 1.0) if isinstance(said, dict) else 1.0
            if not isinstance(share, int | float) or not 0.0 < share <= 1.0:
                raise NoProof(f"{name} is asked for {share} of its saturation")
            if share < 1.0 and share < self._share(held, app, full, batch) * (1.0 - _HAIR):
                raise NoProof(f"{name} is asked for less than its queue allows")
            yield app, full * share

    def _share(self, held: Held, app: str, qps: float, batch: int) -> float:
        """The share of its saturation that an instance may be asked for, by the queue of the plan."""
        wish = self.slo.apps[app]
        classes = classes_of(wish)

        def slowest_of(size: int) -> float:
            load = held.load.model_copy(update={"serve": Serve(max_batch=size)})
            service = service_of(self.reading.facts, Seat(held.worker, load, held.run), classes)
            return max(ms for ms, share in zip(service.latency_ms, classes.share, strict=True) if share > 0)

        sizes = range(1, batch + 1) if batch <= LARGEST and "batch" not in classes.axes else (batch,)
        times = np.maximum.accumulate([slowest_of(size) for size in sizes])
        slowest = float(times[-1])
        targets = [(ms - wish.network_ms_per_hop, left) for ms, left in response_targets(wish)]
        use = min(
            most_busy_by_law(tuple(times.tolist()), limit_ms=limit, left=left)
            if times[0] < slowest and math.isfinite(limit)
            else most_busy(time_ms=slowest, batch=batch, limit_ms=limit, left=left)
            for limit, left in targets or [(math.inf, 0.01)]
        )
        at_once = max(1, round(qps * slowest / 1000.0 / batch))
        return max(min(1.0, use * at_once * batch * 1000.0 / slowest / qps), _LEAST_ASKED)

    def _items(self) -> Iterator[tuple[str, _Kind, dict[str, float], int]]:
        """What is counted: its name, its kind, whom it serves at which rate, and its group."""
        names = Counter(kind.name for kind in self.kinds)
        for number, kind in enumerate(self.kinds):
            name = kind.name if names[kind.name] == 1 else f"{kind.name} under {kind.type.name}"
            if self.options.get("sharing") == "dedicated":
                for app, qps in kind.qps.items():
                    yield f"{name} for {app}", kind, {app: qps}, self._group(number)
            elif kind.qps:
                only = f" for {next(iter(kind.qps))}" if len(kind.qps) == 1 else ""
                yield f"{name}{only}", kind, kind.qps, self._group(number)

    def _group(self, number: int) -> int:
        return self._groups[0][number]

    @cached_property
    def _groups(self) -> tuple[list[int], dict[int, int]]:
        """The group of each kind, and how many run of each group: those of one variant, price and loading time."""
        running: dict[int, int] = defaultdict(int)
        placed, alike = set(), defaultdict[object, list[int]](list)
        for place, kind in enumerate(self.kinds):
            alike[kind.held.load.variant, kind.type.hardware].append(place)
        for held in self.reading.now:
            mine = alike.get((held.load.variant, held.worker.hardware), [])
            number = next((n for n in mine if self._is(held, self.kinds[n])), None)
            if number is not None:
                running[number] += held.instances
                placed |= {held.load.variant} if held.worker.host is not None else set()
        known: dict[object, int] = {}
        found = []
        for number, kind in enumerate(self.kinds):
            run, variant = kind.held.run, kind.held.load.variant
            knobs = sorted((a, v) for a, v in run.at.items() if a != "batch") if run is not None else []
            price = round(price_of(self.reading, kind.held) * (part_of(self.reading, kind.held) or 1.0) * NANO)
            where = number if variant in placed else -1
            key = (variant, kind.batch, str(knobs), price, change_s(self.reading, kind.held), where)
            found.append(known.setdefault(key, len(known)))
        count: dict[int, int] = defaultdict(int)
        for number, instances in running.items():
            count[found[number]] += instances
        return found, count

    def _is(self, held: Held, kind: _Kind) -> bool:
        """Whether what runs of this variant on this hardware is of this kind."""
        worker, mine = held.worker, kind.held
        offer = worker.offer or (self.profile.hosts[worker.host].offer if worker.host is not None else None)
        return (offer is None or kind.type.offer in (None, offer)) and held.run == mine.run and (
            held.load.serve.max_batch == kind.batch
        )  # fmt: skip

    def _needs(self) -> dict[str, float]:
        change, mode = self.slo.change, self.options.get("slack_mode")
        additive = mode == "additive" or (mode is None and change.slack_qps is not None)
        loads = {name: wanted_rate(app) or 0.0 for name, app in self.slo.apps.items()}
        return {
            name: (load + (change.slack_qps or 0.0) if additive else load * change.slack) if load > 0 else 0.0
            for name, load in loads.items()
        }

    def _paid(self, kind: _Kind) -> float:
        """What an instance costs per hour; of a machine that is paid whole and shared nothing."""
        return 0.0 if part_of(self.reading, kind.held) else price_of(self.reading, kind.held)

    def _changed(self, kind: _Kind) -> float:
        """What an instance more costs while it is loaded, where a second counts for one."""
        part = part_of(self.reading, kind.held) or 1.0
        return price_of(self.reading, kind.held) * part * change_s(self.reading, kind.held)

    def cheapest(self) -> Rows:
        """The least cost per hour, what is loaded counted by its weight."""
        program, need = Rows("min"), self._needs()
        one = {app: amount if amount > 0 else 1.0 for app, amount in need.items()}
        covers: dict[str, dict[str, float]] = {app: {} for app in need}
        weight, running = weight_of_loading(self.reading), self._groups[1]
        for name, kind, qps, group in self.items:
            most = sum(need[app] / rate for app, rate in qps.items())
            most = max(1.0, math.ceil(most - _HAIR)) if most > 0 else 0.0
            loading = 0.0 if running[group] else weight * self._changed(kind)
            program.column(f"x[{name}]", cost=self._paid(kind) + loading, low=0.0, high=most, whole=True)
            if len(qps) == 1:
                ((app, rate),) = qps.items()
                covers[app][f"x[{name}]"] = min(rate / one[app], 1.0)
                continue
            shares = {f"y[{app} by {name}]": one[app] / rate for app, rate in qps.items()}
            for app, y in zip(qps, shares, strict=True):
                program.column(y, low=0.0, high=1.0)
                covers[app][y] = 1.0
                if need[app] < _SMALL * qps[app]:
                    program.row(f"there at all[{name}]", {y: 1.0, f"x[{name}]": -1.0}, high=0.0)
            program.row(f"saturation[{name}]", {**shares, f"x[{name}]": -1.0}, high=0.0)
        for app, terms in covers.items():
            program.row(f"load[{app}]", terms, low=1.0 if need[app] > 0 else 0.0)
        self._loaded(program, weight)
        self._rooms(program, [(one, self._machines(program, one)) for one in self.types])
        return program

    def apart(self) -> Apart:
        """The same, application by application; NotRebuilt where they share more than rooms."""
        if self.slo.limits.moves is not None or any(least for least, _ in self.slo.limits.instances.values()):
            raise NotRebuilt("moves, or how few machines there may be, are limited")
        if any(part_of(self.reading, kind.held) for kind in self.kinds):
            raise NotRebuilt("instances share machines that are paid whole")
        need, weight, running = self._needs(), weight_of_loading(self.reading), self._groups[1]
        program, uses = Rows("min"), dict[str, dict[str, float]]()
        for name, *_ in self.items:
            uses[name] = {}
            program.column(f"x[{name}]", low=0.0, high=0.0)
        self._rooms(program, [])
        rooms = dict[str, float]()
        for row, terms, high in program.uppers():
            rooms[row] = high
            for column, amount in terms.items():
                uses[column.removeprefix("x[").removesuffix("]")][row] = amount
        found: dict[str, list[Item]] = {app: [] for app, amount in need.items() if amount > 0}
        surcharge: dict[int, float] = {}
        for name, kind, qps, group in self.items:
            if len(qps) > 1:
                raise NotRebuilt("applications share instances")
            ((app, rate),) = qps.items()
            if app in found:
                most = max(1, math.ceil(need[app] / rate - _HAIR))
                found[app].append(Item(name, rate / need[app], self._paid(kind), group, most, uses[name]))
                surcharge[group] = weight * self._changed(kind)
        return Apart(list(found.values()), running, surcharge, rooms)

    def _loaded(self, program: Rows, weight: float) -> None:
        """Of groups of which instances run, those beyond them are loaded."""
        for group, count in self._groups[1].items():
            mine = [(f"x[{name}]", kind) for name, kind, _, other in self.items if other == group]
            if count and mine:
                kind = mine[0][1]
                cost = weight * self._changed(kind)
                program.column(f"p[group {group}]", cost=cost, low=0.0, high=sum(program.high_of(x) for x, _ in mine))
                terms = {**{x: 1.0 for x, _ in mine}, f"p[group {group}]": -1.0}
                program.row(f"loaded[group {group}]", terms, high=float(count))

    def _machines(self, program: Rows, one: _Type) -> dict[str, float]:
        """Machines of a type that are paid whole, each filled in one way, or in any; and their prices."""
        mine = [(f"x[{name}]", kind) for name, kind, *_ in self.items if kind.type == one]
        shared = {x: kind for x, kind in mine if part_of(self.reading, kind.held)}
        if not shared:
            return {}
        most, counted = sum(program.high_of(x) for x in shared), list[str]()
        price = min(price_of(self.reading, kind.held) for kind in shared.values())
        provides = {name: room for name, room in self.profile.hardware[one.hardware].provides.items() if room > 0.0}
        parts = np.array(
            [[kind.needs.get(name, 0.0) / provides[name] for name in provides] for kind in shared.values()]
        )
        held = _fillings(parts, [int(program.high_of(x)) for x in shared])
        for number in range(1 if held is None else len(held)):
            counted.append(f"machines[{one.name}][{number}]")
            program.column(counted[-1], cost=price, low=0.0, high=most, whole=True)
        for place, x in enumerate(shared if held is not None else ()):
            on = {name: -float(filling[place]) for name, filling in zip(counted, held or (), strict=True)}
            program.row(f"on {one.name}[{x}]", {**{name: n for name, n in on.items() if n}, x: 1.0}, high=0.0)
        for place, resource in enumerate(provides if held is None else ()):
            for number, row in enumerate(_no_more_than_one(parts[:, place].tolist())):
                terms = {x: part * (1.0 - _SLIP) for x, part in zip(shared, row, strict=True) if part}
                program.row(f"{resource} on {one.name}[{number}]", {**terms, counted[0]: -1.0}, high=0.0)
        if one.count is not None:
            there = {**dict.fromkeys(counted, 1.0), **{x: 1.0 for x, _ in mine if x not in shared}}
            program.row(f"had[{one.name}]", there, high=one.count)
        return dict.fromkeys(counted, price)

    def _rooms(self, program: Rows, machines: list[tuple[_Type, dict[str, float]]]) -> None:
        """What all machines, and those of each type, have of each resource; what all may cost."""
        limits, uses = self.slo.limits, [(f"x[{name}]", kind) for name, kind, *_ in self.items]
        known = any(one.count is not None and self.profile.hardware[one.hardware].provides for one in self.types)
        level = self.options.get("level", "auto")
        typed = level != "aggregate" and (level != "auto" or known)
        if limits.cost_per_hour is not None:
            prices = {x: self._paid(kind) for x, kind in uses}
            shared = {x: price for _, counted in machines for x, price in counted.items()}
            program.row("cost_per_hour[total]", {**prices, **shared}, high=limits.cost_per_hour / NANO)
        for resource, total in sorted(limits.resources.items()):
            gives = {name: one.provides.get(resource, 0.0) for name, one in self.profile.hardware.items()}
            whole = {x: gives[kind.type.hardware] for x, kind in uses if not part_of(self.reading, kind.held)}
            shared = {x: gives[one.hardware] for one, counted in machines for x in counted}
            program.row(f"{resource} provided[total]", {**whole, **shared}, high=total)
        for resource in sorted({name for kind in self.kinds for name in kind.needs} | limits.capacity.keys()):
            takes, total = {x: kind.needs.get(resource, 0.0) for x, kind in uses}, 0.0
            for one in self.types:
                provides = self.profile.hardware[one.hardware].provides
                room = 1.0 if resource == _WHOLE else provides.get(resource, 0.0) if provides else math.inf
                mine = {x: takes[x] for x, kind in uses if kind.type == one}
                if any(mine.values()):
                    total += math.inf if one.count is None else room * one.count
                elif math.isfinite(room):
                    total += room * (one.count or 0)
                if one.count is not None and room < math.inf and (typed or resource == _WHOLE):
                    program.row(f"{resource}[{one.name}]", mine, high=room * one.count)
            total = total if not typed and resource != _WHOLE else math.inf
            if (total := min(total, limits.capacity.get(resource, math.inf))) < math.inf:
                program.row(f"{resource}[total]", takes, high=total)


def _fillings(parts: Floats, most: Sequence[int]) -> list[tuple[int, ...]] | None:
    """What a machine may hold of instances that take such parts of it, if nothing more fits; None: in too many ways."""
    found: list[tuple[int, ...]] = [()]
    for place, high in enumerate(most):
        beyond = []
        for filling in found:
            taken = np.array(filling) @ parts[:place]
            room = [one for one in range(high + 1) if (taken + one * parts[place] <= 1.0 + _SLIP).all()]
            beyond += [(*filling, one) for one in room]
        found = beyond
        if len(found) > _MOST_FILLINGS:
            return None
    array = np.array(found)
    return [one for one, counts in zip(found, array, strict=True) if (array >= counts).all(axis=1).sum() == 1]


def _no_more_than_one(parts: Sequence[float]) -> Iterator[list[float]]:
    """The parts that instances take of a machine, and what else they may be counted for: of one machine never above 1.

    What is larger than 1 - cut may be counted as a whole, where what is smaller than the cut is not counted (any cut up
    to a half). And a part p may be counted as floor((k + 1) p) / k, where (k + 1) p is not whole (any whole k).
    """
    parts = [part if part > _SLIP else 0.0 for part in parts]
    yield parts
    found = {tuple(parts)}
    rows = []
    for cut in sorted({min(part, 1.0 - part) for part in parts if 0.0 < part < 1.0} | {0.5}):
        rows.append([1.0 if part > 1.0 - cut + 2.0 * _SLIP else part if part >= cut - _SLIP else 0.0 for part in parts])
    for k in range(1, min(int(1.0 / min([part for part in parts if part] or [1.0])), _MOST_ALIKE) + 1):
        rows.append([_counted(part, k) for part in parts])
    for row in rows:
        if tuple(row) not in found:
            found.add(tuple(row))
            yield row


def _counted(part: float, k: int) -> float:
    times = (k + 1) * part
    return part if abs(times - round(times)) <= (k + 1) * _SLIP else math.floor(times) / k


class _Single(_Counts):
    """What an instance serves on each type of machine, as the queue of the plan allows where it has one."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.inputs = reading, reading.inputs
        self.profile, self.slo, self.options = self.inputs.profile, self.inputs.slo, reading.plan.method.options
        self.types = list(self._types())
        self.kinds = list(self._kinds())

    def _rates(self, held: Held) -> Iterator[tuple[str, float]]:
        for app, full in held.qps.items():
            queued = self.options.get("size") == "estimated"
            yield app, full * (self._share(held, app, full, held.load.serve.max_batch) if queued else 1.0)


def most_of_a_machine(plan: Plan, inputs: Inputs, app: str) -> dict[str, float]:
    """The most rate of an application that a machine of each hardware takes, whatever instances it holds."""
    single = _Single(Reading(plan, inputs))
    found: dict[str, float] = {}
    for hardware in {kind.type.hardware for kind in single.kinds}:
        mine = [kind for kind in single.kinds if kind.type.hardware == hardware and kind.qps.get(app)]
        provides = single.profile.hardware[hardware].provides
        most = math.inf
        for resource in {name for kind in mine for name in kind.needs}:
            room = 1.0 if resource == _WHOLE else provides.get(resource, 0.0)
            needs = [kind.needs.get(resource, 0.0) for kind in mine]
            if room > 0.0 and all(need > room / 2.0 * (1.0 + _HAIR) for need in needs):
                most = min(most, max(kind.qps[app] for kind in mine))
            elif all(need > 0.0 for need in needs):
                most = min(most, max(kind.qps[app] * room / need for kind, need in zip(mine, needs, strict=True)))
        if mine and most == math.inf:
            raise NotRebuilt(f"nothing says how many instances a machine of {hardware} holds")
        if mine:
            found[hardware] = most / single.slo.change.slack
    return found
