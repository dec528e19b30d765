"""What a sizing search of variants counts: machines, each with all that it holds, and plans with others in their place.

A plan is counted in *units*: machines that are shared and paid whole, each with all that it holds; and instances that
pay for themselves. Near a plan are those with

- one unit less, or 2, 4, ... alike; two replaced by one; one, or two, replaced by one or two others;
- all units of an application, or all alike, replaced by so many of another;
- applications that share units on units of their own: no queue has queries that may wait for long before others;
- another batch in all places, and one unit less.

What is free on a machine is filled up, since it costs nothing, but where moves are limited.

Applications whose loads share instances are one *station*; others wait apart, whatever machines they are on. How long
they wait depends on how their instances lie: those of machines alike have one queue, and each queue gets its part. So a
station is counted in machines too, each with what it holds of it (`Unit`): none of these is more of another.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement, product

import numpy as np

from hetplan.planner.draft import Draft
from hetplan.planner.machine_packing import IN_TOTAL, Filling
from hetplan.planner.sizing_search import Counts
from hetplan.problems.variants.program import TAKEN, Room, capacity_rooms
from hetplan.problems.variants.request import Integers, Snapshot
from hetplan.profiles.fields import NANO
from hetplan.profiles.workers import Load, Worker

__all__ = ["Apps", "UnitPlans", "Units"]

Holds = tuple[tuple[int, int], ...]
"""Items, and instances of each."""
Unit = tuple[int, Holds]
"""A type of machine, and what it holds."""
Units = tuple[tuple[Unit, int], ...]
"""How many there are of each."""
Total = tuple[Integers, Counter[int]]
"""Instances of each item, and machines of each type."""
Apps = tuple[int, ...]
"""Applications that share instances, or one that shares none: a station."""

MORE = 1.05
"""Numbers of units alike that are thought of are so much apart, or one: less shows no difference."""
CHEAPER = 1e-9
MOST_WAYS, TIMES = 3, (0.9, 1.0, 1.1, 1.25, 1.5)
"""Units of which each application may have its own, and how many, in those that a formula says to be enough."""
MANY = 10**6
"""Of each type of machine: who may rent these may rent any."""


@dataclass(frozen=True)
class _Change:
    """Units that go, others in their place, and how much dearer that is."""

    dearer: float
    gone: Counter[Unit]
    more: Counter[Unit]


@dataclass
class UnitPlans:
    """The plans of a snapshot, counted in units, and what is near each of them."""

    v: Snapshot
    """At saturation."""
    pooled: Snapshot
    """Each choice as if it carried a load alone, in one queue (`queueing`)."""
    # What was worked out, for who asks again.
    _waiting: dict[Units, Mapping[Apps, Counts]] = field(default_factory=dict)
    _costs: dict[Units, float] = field(default_factory=dict)
    _filled: dict[Unit, Holds] = field(default_factory=dict)
    _items: dict[Apps, tuple[int, ...]] = field(default_factory=dict)
    _places: dict[Apps, dict[Unit, int]] = field(default_factory=dict)
    _served: dict[Unit, frozenset[int]] = field(default_factory=dict)
    _prices: dict[Unit, float] = field(default_factory=dict)
    _joined: dict[frozenset[int], tuple[Apps, ...]] = field(default_factory=dict)
    _full_of: dict[frozenset[int], list[tuple[Unit, float]]] = field(default_factory=dict)
    _counted: dict[Unit, bool] = field(default_factory=dict)

    # --- a plan -------------------------------------------------------------------------------------------------------

    def units_of(self, made: Draft) -> Units:
        """The units of a plan."""
        found = Counter[Unit]()
        for worker in made.workers:
            held = Counter[int]()
            for load in worker.loads:
                some = self._items_of_variant.get(load.variant, ())
                i = next((i for i in some if self._is_load_of(i, worker, load)), None)
                if i is not None:
                    held[i] += load.instances
            holds = tuple(sorted(held.items()))
            if not holds:
                continue
            t = self.v.kind(holds[0][0]).type
            if self._is_machine(t, holds):
                found[t, holds] += worker.count
            else:
                for i, n in holds:
                    found[t, ((i, 1),)] += n * worker.count
        return tuple(sorted(found.items()))

    @cached_property
    def _items_of_variant(self) -> Mapping[str | None, list[int]]:
        found: dict[str | None, list[int]] = {}
        for i in range(len(self.v.items)):
            found.setdefault(self.v.kind(i).variant, []).append(i)
        return found

    def _is_load_of(self, i: int, worker: Worker, load: Load) -> bool:
        """Whether a load is of an item."""
        kind, type_ = self.v.kind(i), self.v.type_of(i)
        offer = type_.offers[0]
        here = (worker.hardware, worker.offer or (offer.id if worker.host in offer.hosts else None))
        settings = (load.variant, load.serve.max_batch, dict(load.at or {}), dict(load.knobs))
        mine = (kind.variant, kind.batch, dict(kind.choice.at), dict(kind.choice.knobs))
        of_app = load.app in (None, *(self.v.asked[b].id for b in self._serving[i]))
        return here == (type_.hardware, offer.id) and settings == mine and of_app

    def fillings(self, units: Units) -> list[Filling]:
        """What is on the machines that are shared."""
        return [Filling(self.v.types[t].id, dict(holds), n) for (t, holds), n in units if self._is_machine(t, holds)]

    def counts(self, units: Units) -> Integers:
        """Instances of each item."""
        x = np.zeros(len(self.v.items), dtype=np.int64)
        for (_, holds), n in units:
            for i, instances in holds:
                x[i] += n * instances
        return x

    def cost(self, units: Units) -> float:
        """What the plan costs: units, what is loaded for them, and what must be there beside them."""
        if units not in self._costs:
            self._costs[units] = self._price_of_all(dict(units)) + self._beside(self.in_all(units))
        return self._costs[units]

    def _beside(self, total: Total) -> float:
        """What is loaded for units, and what must be there beside them."""
        instances, machines = total
        return self.v.loading_cost(instances) + self.v.idle_nanos(machines) / NANO

    def in_all(self, units: Units) -> Total:
        """Instances of each item, and the machines of each type that are paid whole."""
        return self.counts(units), self._machines(units)

    def stations(self, units: Units) -> Mapping[Apps, Counts]:
        """The applications that have a load, those together that share instances; and the units that each has."""
        if units not in self._waiting:
            found = {apps: Counter[Unit]() for apps in self._stations_at(self.counts(units).tolist())}
            of_item = {i: apps for apps in found for i in self.items_of(apps)}
            for (t, holds), n in units:
                for apps in {of_item[i] for i, _ in holds if i in of_item}:
                    found[apps][t, self._part_of(holds, apps)] += n
            self._waiting[units] = {apps: self._in_places(apps, mine) for apps, mine in found.items()}
        return self._waiting[units]

    def _part_of(self, holds: Holds, apps: Apps) -> Holds:
        """What serves these applications."""
        return tuple((i, n) for i, n in holds if not self._serving[i].isdisjoint(apps))

    def _in_places(self, apps: Apps, units: Mapping[Unit, int]) -> Counts:
        """Each unit that this station ever had has a place; the last place counted is not 0."""
        places = self._places.setdefault(apps, {})
        counts = Counter({places.setdefault(unit, len(places)): n for unit, n in sorted(units.items()) if n})
        return tuple(counts[place] for place in range(max(counts, default=-1) + 1))

    def parts(self, apps: Apps, counts: Counts) -> Units:
        """The units of a station that are counted."""
        return tuple((unit, n) for unit, n in zip(self._places.get(apps, ()), counts, strict=False) if n)

    def items_of(self, apps: Apps) -> tuple[int, ...]:
        """The items that may serve one of these applications."""
        if apps not in self._items:
            self._items[apps] = tuple(i for i, mine in enumerate(self._serving) if not mine.isdisjoint(apps))
        return self._items[apps]

    def of_station(self, units: Units, apps: Apps) -> Units:
        """What serves these applications, and nothing else."""
        found = Counter[Unit]()
        for (t, holds), n in units:
            if mine := self._part_of(holds, apps):
                found[t, mine] += n
        return tuple(sorted(found.items()))

    def is_allowed(self, total: Total, cost: float) -> bool:
        """Whether stocks, rooms and the budget allow what costs so much."""
        v, budget, (x, used) = self.v, self.v.request.budget, total
        if not v.may_move(x) or not v.may_rent(used + Counter(v.idle_counts(used))):
            return False
        if budget is not None and cost - v.loading_cost(x) > budget / NANO * (1.0 + CHEAPER):
            return False
        return all(float(room.use @ x) <= room.size * (1.0 + CHEAPER) for room in self._rooms)

    def fill_up(self, counts: Mapping[Unit, int]) -> Units:
        """The same machines, what is free on them taken by more of what they hold."""
        return tuple(sorted((unit, n) for unit, n in self._filled_up(counts).items() if n > 0))

    def is_one_less(self, units: Units, than: Units) -> bool:
        """Whether one unit is gone, and no other in its place."""
        then, now = Counter(dict(than)), Counter(dict(units))
        return (then - now).total() == 1 and not now - then

    # --- what is near -------------------------------------------------------------------------------------------------

    def cheaper_plans(self, units: Units, apps: Apps) -> Iterator[Units]:
        """The plans with other units for these applications that may be and cost less, the cheapest first."""
        now, total, most = dict(units), self.in_all(units), self.cost(units) * (1.0 - CHEAPER)
        own = Counter({unit: n for unit, n in units if not self._served_by_one(unit).isdisjoint(apps)})
        seen, machines = {units}, self._price_of_all(now)
        for change in sorted(self._changes(own, apps), key=lambda change: change.dearer):
            # What is loaded, or must be there beside, only adds to it.
            cost = machines + change.dearer
            if cost >= most:
                return
            more = self._filled_up(change.more)
            if not self._is_free:  # looked at before the plan is made, which is long
                then = self._changed(total, change.gone, more)
                cost += self._beside(then)
                if cost >= most or not self.is_allowed(then, cost):
                    continue
            one = _with(now, change.gone, more)
            if one not in seen:
                seen.add(one)
                self._costs.setdefault(one, cost)
                self._note_station(units, one, apps, change.gone, more)
                yield one

    def _changed(self, total: Total, gone: Mapping[Unit, int], more: Mapping[Unit, int]) -> Total:
        """The same without some units, and with others."""
        less, new = self.in_all(tuple(gone.items())), self.in_all(tuple(more.items()))
        return total[0] - less[0] + new[0], total[1] - less[1] + new[1]

    def _note_station(
        self, units: Units, one: Units, apps: Apps, gone: Mapping[Unit, int], more: Mapping[Unit, int]
    ) -> None:
        """What waits together, where it is the same: of a long plan only what changed is counted."""
        if one in self._waiting or any(
            self._is_shared(unit) or not self._served_by_one(unit) <= {*apps} for unit in (*gone, *more)
        ):
            return
        mine = Counter(dict(self.parts(apps, self.stations(units)[apps])))
        mine.subtract(gone)
        mine.update(more)
        self._waiting[one] = {**self._waiting[units], apps: self._in_places(apps, mine)}

    def _is_shared(self, unit: Unit) -> bool:
        """Whether several applications may have a part in one of its instances."""
        return any(len(self._serving[i]) > 1 for i, _ in unit[1])

    def _served_by_one(self, unit: Unit) -> frozenset[int]:
        if unit not in self._served:
            self._served[unit] = frozenset(b for i, _ in unit[1] for b in self._serving[i])
        return self._served[unit]

    @cached_property
    def _is_plain(self) -> bool:
        """Whether a plan costs what its units do."""
        return self.v.weight == 0.0 and not any(kind.least for kind in self.v.types)

    @cached_property
    def _is_free(self) -> bool:
        """Whether nothing limits the machines."""
        v = self.v
        plenty = v.may_rent(dict.fromkeys(range(len(v.types)), MANY))
        return plenty and self._is_plain and v.wanted.changes is None and v.request.budget is None and not self._rooms

    def _changes(self, own: Counter[Unit], apps: Apps) -> Iterator[_Change]:
        yield from self._fewer_units(own)
        for first, second in combinations_with_replacement(sorted(own), 2):
            yield from self._replacements(Counter([first]) if first == second else Counter([first, second]))
            if first == second and own[first] > 1:
                yield from self._replacements(Counter({first: 2}))
        alone = Counter({unit: n for unit, n in own.items() if self._served_by([unit]) <= {*apps}})
        for gone in [alone, *(Counter({unit: n}) for unit, n in alone.items() if len(alone) > 1)]:
            yield from self._uniform_replacements(gone)
        yield from self._separate_units(alone, apps)
        for other in self._other_batches(own):
            for fewer in self._fewer_units(other):
                yield self._change(own, other - fewer.gone)

    def _change(self, gone: Counter[Unit], more: Counter[Unit] | None = None) -> _Change:
        after = more or Counter[Unit]()
        return _Change(self._price_of_all(after) - self._price_of_all(gone), gone, after)

    def _fewer_units(self, now: Counter[Unit]) -> Iterator[_Change]:
        for one, n in sorted(now.items()):
            k = 1
            while k <= n:
                yield self._change(Counter({one: k}))
                k *= 2

    def _replacements(self, gone: Counter[Unit]) -> Iterator[_Change]:
        """One or two others that serve nobody else, and cost less, in the place of these units."""
        price = self._price_of_all(gone)
        for unit, cost in self._full_units_of(self._served_by(gone)):
            yield from (self._change(gone, Counter({unit: n})) for n in (1, 2) if n * cost < price)

    def _uniform_replacements(self, gone: Counter[Unit]) -> Iterator[_Change]:
        """These units replaced by others, all alike, for less."""
        price = self._price_of_all(gone)
        for unit, cost in self._full_units_of(self._served_by(gone)) if gone else ():
            if cost > 0:
                n = 1
                while n * cost < price:
                    yield self._change(gone, Counter({unit: n}))
                    n = max(n + 1, int(n * MORE))

    def _separate_units(self, gone: Counter[Unit], apps: Apps) -> Iterator[_Change]:
        """All applications that share instances on units of their own: as many alike as carry each, or some more."""
        if len(apps) == 1 or self._served_by(gone) < {*apps}:
            return
        ways = list[list[tuple[Unit, float]]]()
        for b in apps:
            rates = {s.kind: s.qps for item in self.pooled.items for s in item.serves if s.app == b}
            found = list[tuple[float, Unit, float]]()
            for unit, cost in self._full_units.items():
                carries = sum(n * rates.get(self.v.items[i].kind, 0.0) for i, n in unit[1] if b in self._serving[i])
                if carries > 0:
                    number = self.v.asked[b].need_qps / carries
                    found.append((math.ceil(number) * cost, unit, number))
            ways.append([(unit, number) for _, unit, number in sorted(found)[:MOST_WAYS]])
        for chosen in product(*ways):
            for times in TIMES:
                more = Counter[Unit]()
                for unit, number in chosen:
                    more[unit] += math.ceil(times * number)
                yield self._change(gone, more)

    def _other_batches(self, now: Counter[Unit]) -> Iterator[Counter[Unit]]:
        """Another batch of one item wherever it runs, on machines that cost the same."""
        kinds = [self.v.kinds[item.kind] for item in self.v.items]
        shared = {i for (t, holds) in now if self._is_machine(t, holds) for i, _ in holds}
        for i in sorted(shared):
            for j, kind in enumerate(kinds):
                alike = (kind.variant, kind.type, kind.needs) == (kinds[i].variant, kinds[i].type, kinds[i].needs)
                if j != i and alike and self._serving[j] & self._serving[i]:
                    changed = Counter[Unit]()
                    for (t, holds), n in now.items():
                        held = Counter[int]()
                        for k, count in holds:
                            held[j if k == i else k] += count
                        changed[t, tuple(sorted(held.items()))] += n
                    yield changed

    def _filled_up(self, counts: Mapping[Unit, int]) -> Counter[Unit]:
        found = Counter[Unit]()
        for (t, holds), n in counts.items():
            found[t, self._full_unit(t, holds)] += n
        return found

    def _full_unit(self, t: int, holds: Holds) -> Holds:
        if not self._is_machine(t, holds) or self.v.wanted.changes is not None:
            return holds
        if (t, holds) not in self._filled:
            held = dict(holds)
            for i in sorted(held, key=lambda i: (max(self.v.kind(i).needs.values()), i)):
                held[i] += self.v.sharing[t].max_more(i, held)
            self._filled[t, holds] = tuple(sorted(held.items()))
        return self._filled[t, holds]

    @cached_property
    def _full_units(self) -> dict[Unit, float]:
        """Machines full of one item, or of two; and instances that pay for themselves; each with its price."""
        found: list[Unit] = []
        for i, item in enumerate(self.v.items):
            t = self.v.kinds[item.kind].type
            if not self._is_machine(t, ((i, 1),)):
                found.append((t, ((i, 1),)))
        for t, sharing in self.v.sharing.items():
            for i in sharing.things:
                most = sharing.max_more(i)
                if most:
                    found.append((t, ((i, most),)))
                for j in sharing.things:
                    for n in range(1, most if j > i else 0):
                        if more := sharing.max_more(j, {i: n}):
                            found.append((t, ((i, n), (j, more))))
        return {unit: self._price(unit) for unit in found}

    def _full_units_of(self, apps: frozenset[int]) -> list[tuple[Unit, float]]:
        """Those all of whose items serve one of these applications."""
        if apps not in self._full_of:
            some = self._full_units.items()
            self._full_of[apps] = [one for one in some if all(self._serving[i] & apps for i, _ in one[0][1])]
        return self._full_of[apps]

    def _price_of_all(self, units: Mapping[Unit, int]) -> float:
        return sum(self._price(unit) * n for unit, n in units.items())

    def _price(self, unit: Unit) -> float:
        if unit not in self._prices:
            t, holds = unit
            alone = sum(float(self.v.paid[i]) * n for i, n in holds)
            self._prices[unit] = self.v.types[t].offers[0].price if self._is_machine(t, holds) else alone
        return self._prices[unit]

    # --- who is served ------------------------------------------------------------------------------------------------

    def _stations_at(self, x: list[int]) -> tuple[Apps, ...]:
        """The applications that have a load, those together that share instances."""
        shared = frozenset(i for i in self._shared if x[i])
        if shared not in self._joined:
            found = [{b} for b, one in enumerate(self.v.asked) if one.load_qps > 0]
            for i in sorted(shared):
                joined = [apps for apps in found if apps & self._serving[i]]
                found = [apps for apps in found if not apps & self._serving[i]] + [set[int]().union(*joined)]
            self._joined[shared] = tuple(sorted(tuple(sorted(apps)) for apps in found if apps))
        return self._joined[shared]

    @property
    def widest_stations(self) -> tuple[Apps, ...]:
        """The stations where all is in use that may be shared."""
        return self._stations_at([1] * len(self.v.items))

    @cached_property
    def _shared(self) -> tuple[int, ...]:
        """The items that may serve several applications."""
        return tuple(i for i, mine in enumerate(self._serving) if len(mine) > 1)

    @cached_property
    def _serving(self) -> tuple[frozenset[int], ...]:
        """The applications of each item that have a load."""
        loaded = {b for b, one in enumerate(self.v.asked) if one.load_qps > 0}
        return tuple(frozenset(s.app for s in item.serves) & loaded for item in self.v.items)

    @cached_property
    def _rooms(self) -> list[Room]:
        return [room for room in capacity_rooms(self.v) if room.block in (TAKEN, IN_TOTAL)]

    def _served_by(self, units: Iterable[Unit]) -> frozenset[int]:
        return frozenset().union(*map(self._served_by_one, units))

    def _is_machine(self, t: int, holds: Holds) -> bool:
        return t in self.v.sharing and holds[0][0] in self.v.sharing[t].things

    def _machines(self, units: Units) -> Counter[int]:
        """The machines of each type that are paid whole."""
        found = Counter[int]()
        for (t, holds), n in units:
            if (t, holds) not in self._counted:
                self._counted[t, holds] = self._is_machine(t, holds) or holds[0][0] in self.v.whole.get(t, ())
            found[t] += n if self._counted[t, holds] else 0
        return found


def _with(now: Mapping[Unit, int], gone: Mapping[Unit, int], more: Mapping[Unit, int]) -> Units:
    """The same without some units, and with others."""
    after = dict(now)
    for unit, n in gone.items():
        after[unit] -= n
        if not after[unit]:
            del after[unit]
    for unit, n in more.items():
        after[unit] = after.get(unit, 0) + n
    return tuple(sorted(after.items()))
