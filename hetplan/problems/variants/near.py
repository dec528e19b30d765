r"""Cheaper plans near a plan that keeps its wish: other machines, each tried in simulation.

A plan is counted in *units*: machines that are shared and paid whole, each with all that it holds; and instances that
pay for themselves. Near a plan are those with

- one unit less; two replaced by one; one, or two, replaced by others of their applications;
- all the machines of an application replaced by another variant, another batch or another type of machine;
- another batch in all places, and one unit less.

What is free on a machine is filled up, since it costs nothing, but where moves are limited.

A plan is looked at where it costs less, the cheapest first, and where it is hopeful. An application's hope is a part p,
up to which its instances may be asked for more: each for busy^(1 - p) of its saturation, where `busy` is the formula's.
So p = 0 is the formula, and p = 1 saturation. A plan is hopeful where the instances of each application, so asked,
carry its load. Hope begins half way between the plan's own p and saturation. A plan that is late lowers it, the more
the later it is; where no plan is hopeful, it is raised again.

Instances may serve several applications. Then x_i instances of item i, asked for q_bi queries/s of application b,
carry the needs n_b where for all prices w_b >= 0 of a query

    sum_i x_i max_b w_b q_bi >= sum_b w_b n_b

(Farkas). Enough are those at which applications are worth the same at some items, so many that they hang together
(*ties*: an item and two applications each). Those of one item are tried first. The program that spreads loads (`form`)
says whether they were enough; the ties of its prices are tried from then on. Alone, an application has the one price 1.
What one machine less does to several applications hope says less well. So once a plan was in time, one unit less is
looked at first, whatever is hoped for.

The search begins a second time where each application has machines of its own, all alike: one queue of many servers
waits less than many queues of few, so that fewer machines may do there.

A look plays the applications that are new in a plan, on few queries: each by itself (its own instances decide how long
it waits), those that share instances together. So plans are chosen among many, some of them by luck: `size` confirms
them on other seeds, by more queries. Where it cannot, looks are stricter. Their queries are counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations_with_replacement

import numpy as np

from hetplan.planner.contract import Ask
from hetplan.planner.draft import Draft
from hetplan.planner.placing import IN_TOTAL, Filling
from hetplan.problems.variants.form import TAKEN, evenly, rooms_of
from hetplan.problems.variants.wish import Serves, Snapshot
from hetplan.profiles.fields import NANO
from hetplan.profiles.workers import Load, Worker

__all__ = ["Apps", "Near", "Units", "asking", "why_none"]

Unit = tuple[int, tuple[tuple[int, int], ...]]
"""A type of machine, and what it holds: items and instances of each."""
Units = tuple[tuple[Unit, int], ...]
"""How many there are of each."""
Apps = tuple[int, ...]
"""Applications that share instances, or one that shares none."""
Prices = Mapping[int, float]
"""What a query of each application counts for."""
Rates = Callable[[int], Mapping[int, float]]
"""Of an item, the queries per second that an instance serves of each application."""
Ties = tuple[int, tuple[tuple[int, int, int], ...]]
"""An application of price 1; then (i, b, c): at item i application c is worth as much as b, whose price is known."""

MOST_LOOKED = 20
"""Looks at each application, or as many queries."""
MORE_LOOKED = 5
"""The same, each time that a plan which looked good was late on other seeds."""
MOST_APART = 6
"""Looks at an application by itself, all of its machines alike."""
MOST_ALIKE = 1000
"""Numbers of machines that are thought of there, from the least that saturation allows."""
MORE_APART = 10
"""Looks at each application from there on, beyond the most."""
MOST_TRIED = 20_000
"""Plans that are put in order of cost in one step."""
LOOKED_AT = 0.9
"""Of the share that may be late, what a look lets an application use up."""
STRICTER = 0.2
"""So much less, each time that a plan which looked good was late on other seeds."""
HARDLY, FAR = 1.5, 3.0
"""Times the share that may be late: below is hardly late, above is far too late."""
MOST_HOPE = 0.95
LEAST_P, STEPS = -3.0, 20
MOST_TIES = 100
"""Ties that are tried of applications that share instances, beside the prices of each alone."""
FULL = 1e-6
"""So much above 1 the use of instances is still theirs, and so much apart prices are the same."""
CHEAPER = 1e-9
HAIR = 4.0 * 0.5**STEPS
"""A part is known up to this."""


def asking(v: Snapshot, parts: Mapping[int, float]) -> Snapshot:
    """The same, each pair of an application b asked for busy^(1 - parts[b]) of its saturation."""
    return replace(v, serves=tuple(_asked(pair, parts.get(pair.app, 0.0)) for pair in v.serves))


def _asked(pair: Serves, part: float) -> Serves:
    busy = pair.busy ** (1.0 - part)
    return replace(pair, qps=pair.saturation_qps * busy, busy=busy)


def why_none(v: Snapshot) -> str:
    """Why no plan near by is looked for ("" where it is)."""
    return "running instances that break a limit are counted" if any(pair.late for pair in v.eligible) else ""


@dataclass(frozen=True)
class _Change:
    """Units that go, others in their place, for which applications, and how much dearer that is."""

    dearer: float
    gone: Units
    more: Units
    apps: tuple[int, ...]
    """Those that share no instances with others."""


@dataclass
class Near:
    """The search from one plan."""

    v: Snapshot
    plays: Callable[[Units, Apps], Mapping[int, float]]
    """A look: late share / allowed share of each of these applications."""
    queries: Callable[[Apps], float]
    """That a look at these plays."""
    ask: Ask
    hopeful: dict[int, float] = field(default_factory=dict)
    good: dict[int, float] = field(default_factory=dict)
    """The highest part at which an application was in time."""
    known: dict[tuple[Apps, Units], Mapping[int, float]] = field(default_factory=dict)
    late: dict[Apps, list[Counter[Unit]]] = field(default_factory=dict)
    looked: float = 0.0
    missed: int = 0
    more: int = 0
    """Looks at each application beyond the most, for a second start."""

    def cheaper(self, made: Draft) -> list[Units]:
        """Ever cheaper plans that looked good, the cheapest first."""
        start = self._units_of(made)
        if start is None:
            return []
        now = self._filled(dict(start))
        if self.cost(now) > self.cost(start) * (1.0 + CHEAPER):
            now = start
        for apps in self._together(now):
            self.known[apps, self._own(now, apps)] = {}
        self.good = self.parts(start)
        found = self._ever_cheaper(now, self.cost(start))
        self.more += MORE_APART
        if (apart := self._apart(now)) is None:
            return found
        least = self.cost(found[0] if found else start)
        others = self._ever_cheaper(apart, self.cost(apart))
        return [one for one in (*others, apart) if self.cost(one) < least * (1.0 - CHEAPER)] + found

    def _ever_cheaper(self, now: Units, least: float) -> list[Units]:
        """From one plan to those near by, the cheapest first."""
        found = list[Units]()
        for b in range(len(self.v.asked)):
            self.hopeful.setdefault(b, (self.good[b] + 1.0) / 2.0)
        while not self._is_over:
            learned, full, most = self._learned, dict.fromkeys(self.hopeful, 1.0), least * (1.0 - CHEAPER)
            fewer = [one for one in self._one_less(now) if self.cost(one) < most] if found else []
            following = next((one for one in fewer if self._good(one, full)), None)
            if following is None:
                following = next((one for one in self._around(now, most) if self._good(one, self.hopeful)), None)
            if following is not None:
                now, least = following, self.cost(following)
                parts = self.parts(now)
                self.good = {b: max(part, parts[b]) for b, part in self.good.items()}
                found.insert(0, now)
            elif self._learned == learned and not self._hoped_more():
                break
        return found

    def _apart(self, now: Units) -> Units | None:
        """Each application on machines of its own, all alike: the cheapest that looked good (None where none did).

        Those that may share instances share them. The others are served as they are now, while one is looked at.
        """
        together, most = Counter[Unit](), self.cost(now)
        self.hopeful |= {b: (part + 1.0) / 2.0 for b, part in self.good.items() if self.queries((b,)) > 0}
        for apps in self._sharing:
            if self._need(dict.fromkeys(apps, 1.0)) <= 0:
                continue
            ways = sorted(
                (n * price, unit, n)
                for unit, price in self._full.items()
                if len(unit[1]) == 1 and self._serving[unit[1][0][0]].issuperset(apps)
                for n in self._numbers(unit, apps)[:MOST_ALIKE]
                if n * price < most and self.v.may_move(self.counts(((unit, n),)))
            )
            looks, others = 0, self._without(now, apps)
            for _, unit, n in ways:
                own: Units = ((unit, n),)
                if looks == MOST_APART or self._is_over:
                    return None
                if not self._carries(own, apps, self.hopeful, exactly=True) or self._less_than_late(own, apps):
                    continue
                if (apps, own) not in self.known:
                    looks += 1
                    self._look(tuple(sorted((others + Counter(dict(own))).items())), apps)
                if self._in_time(lates := self.known[apps, own]):
                    together[unit] += n
                    break
                self._is_late(own, apps, lates)
            else:
                return None
        apart = self._filled(together)
        return apart if apart and self._may_be(apart, self.hopeful) else None

    def _without(self, units: Units, apps: Apps) -> Counter[Unit]:
        found = Counter[Unit]()
        for (t, holds), n in units:
            if left := tuple((i, count) for i, count in holds if self._serving[i].isdisjoint(apps)):
                found[t, left] += n
        return found

    def _numbers(self, unit: Unit, apps: Apps) -> range:
        """How many alike may be enough for applications: from saturation to what is surely in time."""
        least, most = (self._enough(unit, (), apps, parts) for parts in (dict.fromkeys(apps, 1.0), self.good))
        return range(int(least) + 1, int(np.ceil(most - 1e-9)) + 1)

    def _hoped_more(self) -> bool:
        """Where no hopeful plan is left, hope for more; whether there is more to hope for."""
        low = {b: hope for b, hope in self.hopeful.items() if hope < MOST_HOPE and self.queries((b,)) > 0}
        self.hopeful |= {b: (hope + 1.0) / 2.0 for b, hope in low.items()}
        return bool(low)

    def was_late(self, units: Units, late: tuple[str, ...]) -> None:
        """A plan that looked good was late on other seeds."""
        self.missed += 1
        for apps in self._together(units):
            if lates := {b: math.inf for b in apps if self.v.asked[b].id in late}:
                self._is_late(units, apps, lates)

    def fillings(self, units: Units) -> list[Filling]:
        """What is on the machines that are shared."""
        return [Filling(self.v.types[t].id, dict(holds), n) for (t, holds), n in units if self._is_machine(t, holds)]

    def counts(self, units: Units) -> np.ndarray:
        """Instances of each item."""
        x = np.zeros(len(self.v.items), dtype=np.int64)
        for (_, holds), n in units:
            for i, instances in holds:
                x[i] += n * instances
        return x

    def parts(self, units: Units) -> dict[int, float]:
        """Of each application, the least part at which its instances carry the load."""
        return {b: part for apps in self._together(units) for part in [self._part(units, apps)] for b in apps}

    def cost(self, units: Units) -> float:
        """What the plan costs: units, what is loaded for them, and what must be there beside them."""
        v, x, used = self.v, self.counts(units), Counter[int]()
        for (t, holds), n in units:
            used[t] += n if self._is_paid_whole(t, holds) else 0
        return self._sum(units) + v.changes(x) + v.idle_nanos(used) / NANO

    # --- what is near -------------------------------------------------------------------------------------------------

    def _around(self, units: Units, most: float) -> Iterator[Units]:
        """The plans near by that may be and cost less than `most`, the cheapest units first.

        There are tens of thousands, and one of the first is taken: so each is made only when its turn comes.
        """
        now, seen = Counter(dict(units)), set[Units]()
        each = self._sum(units)
        changes = sorted(self._changes(now), key=lambda change: change.dearer)
        for change in changes[:MOST_TRIED]:
            if each + change.dearer >= most or self._is_over:
                return  # what is loaded, or must be there beside, only adds to it
            if self._is_hopeless(units, change):
                continue
            one = self._filled(now - Counter(dict(change.gone)) + Counter(dict(change.more)))
            if one not in seen and self.cost(one) < most and self._may_be(one, self.hopeful):
                yield one
            seen.add(one)

    def _is_hopeless(self, units: Units, change: _Change) -> bool:
        """Whether an application that shares no instances would hope in vain to carry its load: most changes are so."""
        return any(
            self._hoped(units, b) - self._hoped(change.gone, b) + self._hoped(change.more, b)
            < self.v.asked[b].need_qps * (1.0 - 1e-9)
            for b in change.apps
        )

    def _change(self, gone: Units, more: Units = ()) -> _Change:
        """These units replaced by others, of which no room stays free."""
        apps = self._served_by(unit for unit, _ in (*gone, *more)) & self._alone
        filled = self._filled(dict(more)) if more else ()
        return _Change(self._sum(more) - self._sum(gone), gone, filled, tuple(sorted(apps)))

    @cached_property
    def _alone(self) -> frozenset[int]:
        """The applications that may share instances with no other."""
        return frozenset(apps[0] for apps in self._sharing if len(apps) == 1)

    def _hoped(self, units: Units, b: int) -> float:
        """The queries per second that these instances carry of an application, asked for its hope."""
        key = units, b, self.hopeful.get(b, 1.0)
        if key not in self._hoped_qps:
            self._hoped_qps[key] = self._carried(units, {b: 1.0}, self._rates((b,), {b: key[2]}))
        return self._hoped_qps[key]

    _hoped_qps: dict[tuple[Units, int, float], float] = field(default_factory=dict)

    def _changes(self, now: Counter[Unit]) -> Iterator[_Change]:
        yield from self._fewer(now)
        for one in sorted(now):
            yield from self._replaced(((one, 1),))
        for first, second in combinations_with_replacement(sorted(now), 2):
            if first != second:
                yield from self._replaced(((first, 1), (second, 1)))
            elif now[first] > 1:
                yield from self._replaced(((first, 2),))
        for apps in self._together(tuple(sorted(now.items()))):
            own = {unit: n for unit, n in now.items() if all(self._serving[i] & {*apps} for i, _ in unit[1])}
            for gone in [own, *({unit: n} for unit, n in own.items() if len(apps) > 1)]:
                yield from self._served_otherwise(now, Counter(gone))
        for other in self._batched(now):
            for fewer in self._fewer(other):
                yield self._change(tuple(now.items()), tuple((other - Counter(dict(fewer.gone))).items()))

    def _fewer(self, now: Counter[Unit]) -> Iterator[_Change]:
        for one, n in sorted(now.items()):
            k = 1
            while k <= n:
                yield self._change(((one, k),))
                k *= 2

    def _one_less(self, now: Units) -> list[Units]:
        """The same less one unit of applications that may share instances; the most saved first."""
        shared = frozenset(b for apps in self._sharing if len(apps) > 1 for b in apps)
        fewer = [(-self._price(unit), unit) for unit, _ in now if all(self._serving[i] & shared for i, _ in unit[1])]
        return [self._filled(Counter(dict(now)) - Counter([unit])) for _, unit in sorted(fewer)]

    def _replaced(self, gone: Units) -> list[_Change]:
        """One or two others that serve nobody else, and cost less, in the place of these units."""
        if gone not in self._replacements:
            price, apps = self._sum(gone), self._served_by(unit for unit, _ in gone)
            self._replacements[gone] = [
                self._change(gone, ((unit, n),))
                for unit, cost in self._full.items()
                if cost < price and all(self._serving[i] & apps for i, _ in unit[1])
                for n in (1, 2)
                if n * cost < price
            ]
        return self._replacements[gone]

    _replacements: dict[Units, list[_Change]] = field(default_factory=dict)

    def _served_otherwise(self, now: Counter[Unit], gone: Counter[Unit]) -> Iterator[_Change]:
        """These machines replaced by as many others, all alike, as hope needs."""
        rest, apps = now - gone, self._served_by(gone)
        for unit in self._full if gone else ():
            if all(self._serving[i] & apps for i, _ in unit[1]):
                n = max(
                    self._enough(unit, tuple(rest.items()), one, self.hopeful) for one in self._sharing if apps & {*one}
                )
                if n < math.inf:
                    yield self._change(tuple(gone.items()), ((unit, max(0, int(np.ceil(n - 1e-9)))),))

    def _sum(self, units: Iterable[tuple[Unit, int]]) -> float:
        return sum(self._price(unit) * n for unit, n in units)

    def _served_by(self, units: Iterable[Unit]) -> frozenset[int]:
        return frozenset(b for _, holds in units for i, _ in holds for b in self._serving[i])

    def _batched(self, now: Counter[Unit]) -> Iterator[Counter[Unit]]:
        """Another batch of one item wherever it runs."""
        kinds = [self.v.kinds[item.kind] for item in self.v.items]
        for i in sorted({i for (_, holds) in now for i, _ in holds}):
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

    def _filled(self, counts: Mapping[Unit, int]) -> Units:
        """The same machines, what is free on them taken by more of what they hold."""
        found = Counter[Unit]()
        for (t, holds), n in counts.items():
            found[self._full_of(t, holds)] += n
        return tuple(sorted((unit, n) for unit, n in found.items() if n > 0))

    def _full_of(self, t: int, holds: tuple[tuple[int, int], ...]) -> Unit:
        if not self._is_machine(t, holds) or self.v.wanted.moves is not None:
            return t, holds
        if (t, holds) not in self._filling:
            held = dict(holds)
            for i in sorted(held, key=lambda i: (max(self.v.kinds[self.v.items[i].kind].needs.values()), i)):
                held[i] += self.v.sharing[t].most(i, held)
            self._filling[t, holds] = tuple(sorted(held.items()))
        return t, self._filling[t, holds]

    _filling: dict[Unit, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @cached_property
    def _full(self) -> dict[Unit, float]:
        """Machines full of one item, or of two; and instances that pay for themselves; each with its price."""
        found: dict[Unit, float] = {}
        for i, item in enumerate(self.v.items):
            t = self.v.kinds[item.kind].type
            if not self._is_machine(t, ((i, 1),)):
                found[t, ((i, 1),)] = 0.0
        for t, sharing in self.v.sharing.items():
            for i in sharing.things:
                most = sharing.most(i)
                if most:
                    found[t, ((i, most),)] = 0.0
                for j in sharing.things:
                    for n in range(1, most if j > i else 0):
                        if more := sharing.most(j, {i: n}):
                            found[t, ((i, n), (j, more))] = 0.0
        return {unit: self._price(unit) for unit in found}

    # --- whether it may be, and is good ------------------------------------------------------------------------------

    def _may_be(self, units: Units, hopes: Mapping[int, float]) -> bool:
        """Whether stocks and rooms allow it, and each application hopes to be in time."""
        v, used = self.v, Counter[int]()
        if not all(self._hopes(units, apps, hopes) for apps in self._sharing):
            return False
        for (t, holds), n in units:
            used[t] += n if self._is_paid_whole(t, holds) else 0
        x, budget = self.counts(units), v.request.budget
        if not v.may_move(x) or not v.may_rent(used + Counter(v.idle_counts(used))):
            return False
        if budget is not None and self.cost(units) - v.changes(x) > budget / NANO * (1.0 + 1e-9):
            return False
        return all(
            float(room.use @ x) <= room.size * (1.0 + 1e-9) for room in rooms_of(v) if room.block in (TAKEN, IN_TOTAL)
        )

    def _hopes(self, units: Units, apps: Apps, hopes: Mapping[int, float]) -> bool:
        """Whether the instances of these applications, asked for their hopes, may carry the load."""
        if len(apps) == 1 and (part := self._parts.get((apps, self._own(units, apps)))) is not None:
            return part <= hopes[apps[0]] + HAIR
        return self._carries(units, apps, hopes, slack=1e-9)

    def _good(self, units: Units, hopes: Mapping[int, float]) -> bool:
        """Whether each application is in time, by a look where it is new; the least hopeful first."""
        if not self._may_be(units, hopes):
            return False
        unknown = []
        for apps in self._together(units):
            key = (apps, self._own(units, apps))
            if self._need(dict.fromkeys(apps, 1.0)) <= 0:
                continue
            if not self._in_time(self.known.get(key, {})):
                return False
            if key not in self.known:
                unknown.append(key)
        if any(self._less_than_late(units, apps) for apps, _ in unknown):
            return False
        if not all(self._carries(units, apps, hopes, slack=1e-9, exactly=True) for apps in self._sharing):
            return False
        for apps, _ in sorted(unknown, key=lambda key: -self._part(key[1], key[0])):
            if self._is_over:
                return False
            lates = self._look(units, apps)
            if not self._in_time(lates):
                self._is_late(units, apps, lates)
                return False
        return True

    def _look(self, units: Units, apps: Apps) -> Mapping[int, float]:
        """Play these applications: late share / allowed share of each."""
        self.looked += self.queries(apps)
        self.known[apps, self._own(units, apps)] = lates = self.plays(units, apps)
        return lates

    def _in_time(self, lates: Mapping[int, float]) -> bool:
        return max(lates.values(), default=0.0) <= self._allowed

    def _less_than_late(self, units: Units, apps: Apps) -> bool:
        """Whether applications were late with more machines that hold the same."""
        own = Counter(dict(self._own(units, apps)))
        return any(late.keys() == own.keys() and own <= late for late in self.late.get(apps, ()))

    def _is_late(self, units: Units, apps: Apps, lates: Mapping[int, float]) -> None:
        """Hope for less: the later it was, the less."""
        part, own = self._part(units, apps), self._own(units, apps)
        self.known[apps, own] = lates
        self.late.setdefault(apps, []).append(Counter(dict(own)))
        for b, late in lates.items():
            worst, hope = late if math.isfinite(late) else 1.0, self.hopeful[b]
            less = (hope + part) / 2.0 if worst < HARDLY else part if worst < FAR else (part + self.good[b]) / 2.0
            if late > self._allowed:
                self.hopeful[b] = max(min(hope, less), self.good[b])

    @property
    def _allowed(self) -> float:
        return LOOKED_AT - STRICTER * self.missed

    @property
    def _is_over(self) -> bool:
        most = MOST_LOOKED + MORE_LOOKED * self.missed + self.more
        return self.looked >= most * self._queries_of_all

    @cached_property
    def _queries_of_all(self) -> float:
        return sum(self.queries((b,)) for b in range(len(self.v.asked)))

    def _part(self, units: Units, apps: Apps) -> float:
        """The least part at which the instances of these applications carry their load."""
        own = apps, self._own(units, apps)
        while own not in self._parts:
            low, high = LEAST_P, 1.0
            for _ in range(STEPS):
                middle = (low + high) / 2.0
                enough = self._carries(units, apps, dict.fromkeys(apps, middle))
                low, high = (low, middle) if enough else (middle, high)
            learned = self._learned
            self._carries(units, apps, dict.fromkeys(apps, high), exactly=True)
            if self._learned == learned:
                self._parts[own] = high
        return self._parts[own]

    _parts: dict[tuple[Apps, Units], float] = field(default_factory=dict)

    def _carries(
        self, units: Units, apps: Apps, parts: Mapping[int, float], *, slack: float = 0.0, exactly: bool = False
    ) -> bool:
        """Whether instances carry the load of these applications, each asked for its part; not `exactly`: perhaps."""
        rates = self._rates(apps, parts)
        for prices in self._prices(apps, rates):
            if self._carried(units, prices, rates) < self._need(prices) * (1.0 - slack):
                return False
        if not exactly or len(apps) == 1:
            return True
        needs = [one.need_qps if b in apps else 0.0 for b, one in enumerate(self.v.asked)]
        spread = evenly(asking(self.v, parts), self.counts(units), self.ask, list(apps), needs)
        if spread.point is not None and spread.point[0] <= 1.0 + FULL:
            return True
        if spread.row_duals is not None:  # The rows of the loads are the first.
            worth = {b: max(0.0, float(price)) / needs[b] for b, price in zip(apps, spread.row_duals, strict=False)}
            self._learn(apps, self._ties_of(units, worth, rates))
        return False

    def _enough(self, unit: Unit, rest: Units, apps: Apps, parts: Mapping[int, float]) -> float:
        """How many of a unit carry, perhaps, what the rest leaves of the load of these applications."""
        found, rates = -math.inf, self._rates(apps, parts)
        for prices in self._prices(apps, rates):
            lacking = self._need(prices) - self._carried(rest, prices, rates)
            each = self._carried(((unit, 1),), prices, rates)
            found = max(found, lacking / each if each > 0 else math.inf if lacking > 0 else 0.0)
        return found

    def _carried(self, units: Units, prices: Prices, rates: Rates) -> float:
        """The worth of the queries per second that instances can serve."""
        return float(
            sum(
                max([prices[b] * qps for b, qps in rates(i).items() if b in prices], default=0.0) * (n * count)
                for (_, holds), n in units
                for i, count in holds
            )
        )

    def _rates(self, apps: Apps, parts: Mapping[int, float]) -> Rates:
        """What an instance of an item serves of each of these applications, asked for these parts."""
        return cache(
            lambda i: {
                s.app: s.saturation_qps * s.busy ** (1.0 - parts[s.app])
                for s in self.v.items[i].serves
                if s.app in apps
            }
        )

    def _need(self, prices: Prices) -> float:
        return sum(price * self.v.asked[b].need_qps for b, price in prices.items())

    def _prices(self, apps: Apps, rates: Rates) -> Iterator[Prices]:
        """The prices that are tried for these applications."""
        if apps not in self._tried:
            self._tried[apps] = [(b, ()) for b in apps]
            for i in range(len(self.v.items) if len(apps) > 1 else 0):
                if mine := [b for b in apps if b in self._serving[i]]:
                    self._learn(apps, [(mine[0], tuple((i, mine[0], b) for b in mine[1:]))])
        for first, ties in self._tried[apps]:
            prices = {first: 1.0}
            for i, b, c in ties:
                prices[c] = prices[b] * rates(i)[b] / rates(i)[c]
            yield prices

    def _ties_of(self, units: Units, prices: Prices, rates: Rates) -> list[Ties]:
        """What hangs together at these prices, by what is of most worth at an item."""
        left, found = sorted(b for b, price in prices.items() if price > 0), list[Ties]()
        worth = {
            i: {b: prices[b] * qps for b, qps in rates(i).items() if b in left}
            for i in sorted({i for (_, holds), _ in units for i, _ in holds})
        }
        best = {
            i: {b for b, one in mine.items() if one >= max(mine.values()) * (1.0 - FULL)} for i, mine in worth.items()
        }
        while left:
            first, ties = left.pop(0), list[tuple[int, int, int]]()
            known = [first]
            for b in known:
                for i, c in ((i, c) for i, mine in best.items() if b in mine for c in sorted(mine)):
                    if c in left:
                        left.remove(c)
                        known.append(c)
                        ties.append((i, b, c))
            found.append((first, tuple(ties)))
        return found

    def _learn(self, apps: Apps, some: Iterable[Ties]) -> None:
        for ties in some:
            if ties not in self._tried[apps] and len(self._tried[apps]) < len(apps) + MOST_TIES:
                self._tried[apps].append(ties)

    @property
    def _learned(self) -> int:
        return sum(map(len, self._tried.values()))

    _tried: dict[Apps, list[Ties]] = field(default_factory=dict)

    # --- letters ------------------------------------------------------------------------------------------------------

    def _own(self, units: Units, apps: Apps) -> Units:
        """What serves these applications."""
        found = Counter[Unit]()
        for (t, holds), n in units:
            if mine := tuple((i, count) for i, count in holds if not self._serving[i].isdisjoint(apps)):
                found[t, mine] += n
        return tuple(sorted(found.items()))

    def _together(self, units: Units) -> tuple[Apps, ...]:
        """The applications, those together that share instances of these units."""
        if len(self._sharing) == len(self.v.asked):
            return self._sharing
        return self._joined({i for (_, holds), _ in units for i, _ in holds})

    @cached_property
    def _sharing(self) -> tuple[Apps, ...]:
        """The applications, those together that may share instances."""
        return self._joined(range(len(self.v.items)))

    def _joined(self, items: Iterable[int]) -> tuple[Apps, ...]:
        found = [{b} for b in range(len(self.v.asked))]
        for i in sorted(items):
            served = {b for b in self._serving[i] if self.v.asked[b].load_qps > 0}
            joined = [apps for apps in found if apps & served]
            if len(joined) > 1:
                found = [apps for apps in found if not apps & served] + [set[int]().union(*joined)]
        return tuple(sorted(tuple(sorted(apps)) for apps in found))

    @cached_property
    def _serving(self) -> tuple[frozenset[int], ...]:
        """The applications of each item."""
        return tuple(frozenset(s.app for s in item.serves) for item in self.v.items)

    def _is_machine(self, t: int, holds: tuple[tuple[int, int], ...]) -> bool:
        return t in self.v.sharing and holds[0][0] in self.v.sharing[t].things

    def _is_paid_whole(self, t: int, holds: tuple[tuple[int, int], ...]) -> bool:
        return self._is_machine(t, holds) or holds[0][0] in self.v.whole.get(t, ())

    def _price(self, unit: Unit) -> float:
        t, holds = unit
        if self._is_machine(t, holds):
            return self.v.types[t].offers[0].price
        return sum(float(self.v.paid[i]) * n for i, n in holds)

    def _units_of(self, made: Draft) -> Units | None:
        """The units of a plan (None where something on its machines is no item)."""
        found = Counter[Unit]()
        for worker in made.workers:
            held = Counter[int]()
            for load in worker.loads:
                i = next((i for i in range(len(self.v.items)) if self._is(i, worker, load)), None)
                if i is None:
                    return None
                held[i] += load.instances
            holds = tuple(sorted(held.items()))
            if not holds:
                continue
            t = self.v.kinds[self.v.items[holds[0][0]].kind].type
            if self._is_machine(t, holds):
                found[t, holds] += worker.count
            else:
                for i, n in holds:
                    found[t, ((i, 1),)] += n * worker.count
        return tuple(sorted(found.items()))

    def _is(self, i: int, worker: Worker, load: Load) -> bool:
        """Whether a load is of an item."""
        kind = self.v.kinds[self.v.items[i].kind]
        type_ = self.v.types[kind.type]
        offer = type_.offers[0]
        here = (worker.hardware, worker.offer or (offer.id if worker.host in offer.hosts else None))
        settings = (load.variant, load.serve.max_batch, dict(load.at or {}), dict(load.knobs))
        mine = (kind.variant, kind.batch, dict(kind.choice.at), dict(kind.choice.knobs))
        of_app = load.app in (None, *(self.v.asked[b].id for b in self._serving[i]))
        return here == (type_.hardware, offer.id) and settings == mine and of_app
