r"""Plans of variants whose queries are in time in simulation: the sizing search (`planner.sizing_search`).

**Up.** The program makes candidates. Each choice is asked for what a formula says that instances of it may be busy with
(`queueing`), as many as carry the load alone; then for less where an application was late. Where not even the first one
has a plan, instances may be full. A variant whose times are too long even if none waits is left out.

**Down.** Plans with other machines near by (`units`). Applications that share no instances wait apart: a look plays
those alone that changed, on few queries, and what is known of the others is not played again. Of a station the formula
says how much of its load the instances carry,

    room = min_w  sum_i x_i max_b w_b q_bi / sum_b w_b n_b        (w_b: what a query of application b counts for)

where x_i instances of item i may each serve q_bi queries/s of b, of whose n_b come. It is asked at prices at which
applications are worth the same at some item: for one or two that is exact, for more a bound.

**Test.** What was chosen is played on seeds that chose nothing, by enough queries to see a percentile, and bounded by
the program at saturation. Where no plan is in time, the target is missed, and the outcome says so. Plans and queries
are counted; no clock decides, but a limit.

Trials, and plans whose queries may be late, take the first plan on the way up that is confirmed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import cast

import numpy as np

from hetplan.errors import Interrupted
from hetplan.planner.contract import Ask, Event, Tools
from hetplan.planner.draft import Draft, Infeasibility, without_bound
from hetplan.planner.next_state import USED
from hetplan.planner.sizing import ErrorBudget
from hetplan.planner.sizing_search import LATE, Counts, Refused, Search, is_less, more_room
from hetplan.planner.tolerances import BOUND_SLIP
from hetplan.problems.draft_simulation import (
    LOOK_SEEDS,
    Played,
    check_simulator,
    look,
    plan_to_simulate,
    play_until_clear,
    repairs_if_late,
    with_shown,
    worst_of_apps,
)
from hetplan.problems.variants.formulations import Solve, plan_fillings
from hetplan.problems.variants.queueing import (
    answer_fewest,
    ask_for_bursts,
    busy_together,
    drop_hopeless,
    share_queues,
)
from hetplan.problems.variants.request import Asked, Item, Serves, Snapshot, Vector
from hetplan.problems.variants.units import Apps, UnitPlans, Units
from hetplan.profiles.plan import Plan

__all__ = ["Sizing", "size_plan"]

Lates = Mapping[int, float]
"""Of applications, the violation rate over what may be."""
Confirmed = tuple[Units, Draft, Played]
"""A plan that runs confirmed, and what they showed."""

MOST_LOOKED, MORE_LOOKED = 100.0, 40.0
"""Queries of all looks, in those that one short look at each station takes, as wide as it may be; so many more each
time that a plan which looked good was refused."""
MOST_OF_TRIAL = 3
"""So many plans are played, at most, to see whether a repair does."""
MOST_SAME = 20
"""So often more room is asked for before another plan comes of it."""
ROUGH = 0.01
"""Once an application was late, programs are solved to this gap: no claim rests on them."""
TAIL, MORE_TAIL, TESTED = 40.0, 4.0, 3.0
"""Queries that may be late, of each application in a look; so many times more where that leaves it open, and to put a
plan to the test, as runs of few queries differ much."""
OPEN = (0.2, 2.0)
"""Of what may be late, where a first look is not clear."""
MOST_PLAYED = 200_000
"""Queries of all applications in one simulation."""
ALIKE = 2.0
"""Looks that are so many times longer, at most, are one simulation."""
MANY = 100
"""Of an application of which in so many simulations of all too few queries come, none is made for its sake."""
SEEN = 5.0
"""Of an application of which fewer queries come than would take so many looks, the formula alone says what it needs."""
SPANS = 200.0
"""A run is so many times as long as the longest limit: long enough for queues to grow."""
CYCLES = 10.0, 40.0
"""A look at bursts is so many times as long as a process takes to go through its states; and what confirms a plan."""
HIGHEST = 99.9
"""A higher percentile lengthens no run."""
MOST_HELPED = 2
"""Late applications for which a repair is looked for."""
MOST_NAMED = 5
CLOSE = 1e-6
"""So much below a plan's cost, in parts of it, the bound at saturation is another one."""
NEARLY, MOST_CHOICES = 0.9, 1000
"""Of what shared instances carry, what is enough where each application has its own; so many ways are tried."""
CARRIES, MOST_CARRIED = 1.1, 40
"""By so much more instances are taken to carry until their loads can be spread, and how often."""
LESS_ASKED = "bounded by the program before simulation asked less of its instances"
AT_SATURATION = "bounded by the program whose instances may be full: no plan is ruled out that is in time"


def size_plan(v: Snapshot, ask: Ask, solve: Solve, tools: Tools, formulation: str) -> Draft | Infeasibility:
    """The plan whose applications are in time in simulation; `v` leaves room to wait by the formula."""
    check_simulator(tools)
    hopeful = drop_hopeless(v)
    sizing = Sizing(hopeful, ask, solve, tools, formulation)
    search = Search(sizing)
    found = search.cheapest(any_will_do=sizing.any_will_do)
    first = sizing.first
    if first is None:
        raise Interrupted("the time limit ended before any plan was found")
    if isinstance(first, Infeasibility) or not first.routing:
        return first
    if found is None:
        if not search.looks:
            raise Interrupted("the time limit ended before any plan was simulated")
        return _with_bound_of(first, _late_plan(v, sizing, search))
    units, made, shown = found
    is_first = units == sizing.first_units
    said = replace(with_shown(made, shown), searched=not is_first)
    if v.options.sizing == "simulation" and not tools.trial:
        full = _plan_at_saturation(v, ask, solve, _cost(made))
        if isinstance(full, Draft) and (
            not is_first or hopeful is not v or _shown_bound(full) < _cost(made) * (1.0 - CLOSE)
        ):
            return _with_bound_of(full, replace(said, searched=True), AT_SATURATION)
    if is_first and hopeful is v:
        return replace(said, reported=first.reported, extensions=first.extensions)
    return _with_bound_of(first, said)


def _late_plan(v: Snapshot, sizing: Sizing, search: Search[Units, Confirmed]) -> Draft:
    """The plan that is late in the fewest applications, and what may help these."""
    late_in = {units: sizing.late_in(units) for units in search.looks}
    best = min(late_in, key=lambda units: (len(late_in[units]), search.looks[units]))
    names = sorted(v.asked[b].id for b in late_in[best])
    text = f"late in simulation in each of {len(late_in)} plans, although each asked less of its instances"
    if any(not lates for lates in late_in.values()) or best in search.refused:
        text = f"in time in a few runs, and more runs do not confirm it in any of {len(late_in)} plans"
    helped = [v.asked[b] for b in sorted(late_in[best], key=lambda b: v.asked[b].id)][:MOST_HELPED]
    repairs = tuple(fix for one in helped for fix in repairs_if_late(one, one.rate_qps))
    made = sizing.plan_of(best) or cast(Draft, sizing.first)
    return replace(made, target_missed=f"{text}: {', '.join(names[:MOST_NAMED])}", repairs=repairs, searched=True)


def _plan_at_saturation(v: Snapshot, ask: Ask, solve: Solve, cost: float) -> Draft | Infeasibility:
    """The plan of instances that may be full, in bursts too: it rules out none that is in time."""
    full = v.at_saturation()
    bursty = ask_for_bursts(full) if ask.remaining > 0 else full
    if bursty is not full:
        made = solve(replace(bursty, repairs=False, explains=False), ask)
        if isinstance(made, Draft) and _shown_bound(made) <= cost * (1.0 + BOUND_SLIP):
            return made
    return solve(answer_fewest(full), ask)


def _with_bound_of(first: Draft, made: Draft, note: str = LESS_ASKED) -> Draft:
    """A plan that is the best of no program, bounded by another one that does not rule it out."""
    reported = [
        replace(mine, answer=theirs.answer, bound=theirs.bound, vouched=theirs.vouched, scope="relaxation", note=note)
        for mine, theirs in zip(made.reported, first.reported, strict=True)
    ]
    extensions = {name: one for name, one in made.extensions.items() if name != USED}
    extensions |= {name: one for name, one in first.extensions.items() if name == USED}
    return replace(made, reported=tuple(reported), extensions=extensions)


def _cost(made: Draft) -> float:
    return made.reported[0].value or 0.0


def _shown_bound(made: Draft) -> float:
    """What is shown of the cost of any plan: 0 where nothing is."""
    one = made.reported[0]
    shown = one.bound if one.bound is not None or one.answer is None else one.answer.bound
    return shown or 0.0


@dataclass
class Sizing:
    """Plans of variants, as the sizing search asks for them."""

    v: Snapshot
    """Each pair at what the formula says that one instance may be busy with."""
    ask: Ask
    solve: Solve
    tools: Tools
    formulation: str
    first: Draft | Infeasibility | None = None
    """The program's first plan: its claims are its own."""
    first_units: Units | None = None
    """What that plan is made of, where its machines are full."""
    shown: dict[tuple[Apps, Counts], Lates] = field(default_factory=dict)
    """What looks showed of each application, and what a test did."""
    confirmed: dict[tuple[Apps, Counts], Played] = field(default_factory=dict)
    """Stations that runs of their own confirmed."""
    looked: float = 0.0
    """Queries of all looks."""
    looks: int = 0
    _rooms: dict[tuple[Apps, Counts], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert self.tools.simulate is not None
        self.simulate, self.budget = self.tools.simulate, ErrorBudget(self.ask.limits.seed)
        self.plans = UnitPlans(self.v.at_saturation(), share_queues(self.v))
        self.pairs = {(pair.app, pair.kind): pair for pair in self.v.serves}
        self.most = min(self.v.options.max_simulations, MOST_OF_TRIAL if self.tools.trial else 50)
        load_qps = sum(one.load_qps for one in self.v.asked)
        most = {b: MANY * MOST_PLAYED / load_qps * one.load_qps * _late_share(one) for b, one in enumerate(self.v.asked)
                if one.load_qps > 0}  # fmt: skip
        self.seldom = frozenset(b for b, late in most.items() if late < TAIL)
        self.queries = sum(self._queries(apps) for apps in self.plans.widest_stations)

    @property
    def any_will_do(self) -> bool:
        """Whether the first plan in time is enough, or none can be looked for near by."""
        counts_late = any(pair.late for pair in self.v.eligible)
        return self.v.options.sizing != "simulation" or self.tools.trial or counts_late

    @property
    def may_go_on(self) -> bool:
        """Whether there is time, and queries are left for another look."""
        most = MOST_LOOKED + MORE_LOOKED * self.budget.spent
        return self.looked <= most * self.queries and self.ask.remaining > 0

    # --- up -----------------------------------------------------------------------------------------------------------

    def candidates(self) -> Generator[Units, float, None]:
        """Plans of the program, each with more room for the applications that were late."""
        v, made = self.v, None
        roomy = pooled = share_queues(v)
        for roomy in [v, pooled] if self.any_will_do else [pooled]:
            made = self.solve(replace(roomy, explains=False), self.ask)
            if isinstance(made, Draft) or self.ask.remaining <= 0:
                break
        if isinstance(made, Infeasibility) and self.ask.remaining > 0:
            roomy = v.at_saturation()
            made = self.solve(roomy, self.ask)
        self.first = made
        rooms, turns, plans = dict.fromkeys(range(len(v.asked)), 1.0), Counter[int](), 0
        while isinstance(made, Draft) and made.routing and plans < self.most:
            plans += 1
            read = self.plans.units_of(made)
            full = self.plans.fill_up(dict(read))
            units = full if self.plans.cost(full) <= self.plans.cost(read) else read
            if plans == 1 and units == read:
                self.first_units = units
            yield units
            late, before = self.late_in(units), made
            for _ in range(MOST_SAME):
                for b, by in late.items():
                    rooms[b] *= more_room(by, turns[b])
                    turns[b] += 1
                serves = tuple(pair.at_use(pair.busy / rooms[pair.app]) for pair in roomy.serves)
                made = self.solve(
                    roomy.asked_for(serves=serves, explains=False), self.ask.without_infeasibility_checks(gap=ROUGH)
                )
                if isinstance(made, Infeasibility) or (made.workers, made.routing) != (before.workers, before.routing):
                    break
            else:
                return

    def late_in(self, units: Units) -> dict[int, float]:
        """The applications that were late on these machines."""
        found = [self.shown.get(part, {}) for part in self.plans.stations(units).items()]
        return {b: late for lates in found for b, late in lates.items() if late > LATE}

    # --- down ---------------------------------------------------------------------------------------------------------

    def stations(self, one: Units) -> Mapping[Hashable, Counts]:
        """Applications that share instances wait together."""
        return cast(Mapping[Hashable, Counts], self.plans.stations(one))

    def neighbours(self, one: Units, station: Hashable) -> Iterator[Units]:
        """Plans with other machines for these applications."""
        return self.plans.cheaper_plans(one, cast(Apps, station))

    def is_one_less(self, one: Units, than: Units) -> bool:
        """Whether a unit is gone, and no other in its place."""
        return self.plans.is_one_less(one, than)

    def is_later(self, counts: Counts, than: Counts) -> bool:
        """Where there are no more of any kind, and some of each: no queries wait at a kind that is gone."""
        return is_less(counts, than) and np.count_nonzero(counts) == np.count_nonzero(than)

    def price(self, one: Units) -> float:
        """What it costs per hour."""
        return self.plans.cost(one)

    def room(self, station: Hashable, counts: Counts) -> float:
        """What these instances carry by the formula, over the load; 0 where it is more than they serve when full."""
        apps = cast(Apps, station)
        if (apps, counts) not in self._rooms:
            needs = np.array([[self.v.asked[b].need_qps] for b in apps])
            x, *tables = self._rates(apps, counts)
            full, rates = (table * x / needs for table in tables)
            self._rooms[apps, counts] = _carried_part(rates) if _carried_part(full) >= 1.0 else 0.0
        return self._rooms[apps, counts]

    def _rates(self, apps: Apps, counts: Counts, *, together: bool = True) -> tuple[Vector, Vector, Vector]:
        """Instances per item; what one serves of each application, full and as the formula has it in its queue."""
        items, parts = self.plans.items_of(apps), self.plans.parts(apps, counts)
        queues: dict[int, list[int]] = {i: [] for i in items}
        for (_, holds), n in parts:
            for i, each in holds:
                queues[i].append(n * each)
        full, rates = np.zeros((2, len(apps), len(items)))
        for k, i in enumerate(items):
            for pair in self.plans.v.items[i].serves:
                if pair.app in apps:
                    b, busy = apps.index(pair.app), self.pairs[pair.app, pair.kind].busy
                    full[b, k] = pair.saturation_qps
                    sizes = queues[i] if together and queues[i] else [1]
                    uses = [busy_together(busy, size) for size in sizes]
                    rates[b, k] = full[b, k] * np.average(uses, weights=sizes)
        return np.array([float(sum(queues[i])) for i in items]), full, rates

    def _is_careful(self, apps: Apps, counts: Counts) -> bool:
        """Whether these instances carry the load even where each has a queue of its own."""
        needs = np.array([[self.v.asked[b].need_qps] for b in apps])
        x, _, rates = self._rates(apps, counts, together=False)
        return _carried_part(rates * x / needs) >= 1.0 - 1e-9

    # --- looks and tests ----------------------------------------------------------------------------------------------

    def look(self, one: Units, stations: Collection[Hashable]) -> Mapping[Hashable, float]:
        """Play these applications on few queries."""
        some, at = [cast(Apps, station) for station in stations], self.plans.stations(one)
        lates = dict[int, float]()
        for group in self._groups(some):
            lates |= self._look_at(one, tuple(b for apps in group for b in apps))
        for apps in some:
            by_formula = 0.0 if self._is_careful(apps, at[apps]) else math.inf
            self.shown[apps, at[apps]] = {b: lates.get(b, by_formula) for b in apps}
        worst = {apps: max(self.shown[apps, at[apps]].values()) for apps in some}
        if all(part in self.shown for part in at.items()) and not self.late_in(one):
            self._keep(one)
        return cast(Mapping[Hashable, float], worst)

    def _look_at(self, one: Units, apps: Apps) -> Lates:
        """How late these applications are, but those of which too few queries come to say."""
        length_s = self._length_s(apps)
        load_qps = sum(self.v.asked[b].load_qps for b in apps)
        judged = [b for b in apps if self._is_judged(b, length_s)]
        if not judged:
            return {}
        self.looks += 1
        self.looked += length_s * load_qps
        made = self.plan_of(one, apps)
        if made is None or self.ask.remaining <= 0:
            return dict.fromkeys(judged, math.inf)
        longer_s = min(MORE_TAIL * length_s, MOST_PLAYED / load_qps)

        def goes_on(first: Played) -> bool:
            is_open = OPEN[0] <= first.worst <= OPEN[1] and self.ask.remaining > 0
            self.looked += longer_s * load_qps if is_open else 0.0
            return is_open

        self.ask.note(Event("simulated", f"plans with other machines: look {self.looks}"))
        names = {b: self.v.asked[b].id for b in judged}
        plan = plan_to_simulate("variants", self.formulation, made)
        shown, _ = look(
            self.simulate, plan, self.v.inputs, list(names.values()), [(1, length_s), (1, longer_s)],
            seed=self.ask.limits.seed + LOOK_SEEDS + self.looks, goes_on=goes_on,
        )  # fmt: skip
        return {b: shown.each[name] for b, name in names.items()}

    def confirm(self, one: Units) -> Confirmed | Refused:
        """The plan, if runs of their own confirm all stations; what was confirmed beside others is not run again."""
        made, at = self.plan_of(one), self.plans.stations(one)
        if made is None:
            return Refused(list(at))
        groups = list(self._groups([apps for apps, counts in at.items() if (apps, counts) not in self.confirmed]))
        for group, budget in zip(groups, self.budget.parts(max(len(groups), 1)), strict=False):
            tested = self._test(one, tuple(b for apps in group for b in apps), budget)
            late = {b for apps in group for b in apps if self.v.asked[b].id in tested.late}
            if late:
                for apps in group:
                    worst = {b: max(by, math.nextafter(LATE, math.inf)) for b, by in self.shown[apps, at[apps]].items()}
                    self.shown[apps, at[apps]] = {
                        b: worst[b] if b in late else by for b, by in self.shown[apps, at[apps]].items()
                    }
                return Refused([apps for apps in group if not late.isdisjoint(apps)])
            self.confirmed |= {(apps, at[apps]): tested.of(self.v.asked[b].id for b in apps) for apps in group}
        tested = worst_of_apps(self.confirmed[part] for part in sorted(at.items()))
        self._keep(one, tested)
        return one, made, tested

    def _test(self, one: Units, apps: Apps, budget: ErrorBudget) -> Played:
        """What runs show of these applications, until it is clear; none is confirmed once the time is over."""
        self.ask.note(Event("simulated", f"putting {len(apps)} applications to the test"))
        made, names = self.plan_of(one, apps), [self.v.asked[b].id for b in apps]
        if made is None or self.ask.remaining <= 0:
            return Played(0.0, tuple(names))
        length_s = self._length_s(apps, CYCLES[1])
        length_s = max(length_s, min(TESTED * length_s, MOST_PLAYED / sum(self.v.asked[b].load_qps for b in apps)))
        plan = plan_to_simulate("variants", self.formulation, made)

        def only(some: Sequence[str]) -> Plan:
            open_ = {b for b in apps if self.v.asked[b].id in some}
            waiting = (mine for mine in self.plans.stations(one) if not open_.isdisjoint(mine))
            left = self.plan_of(one, tuple(b for mine in waiting for b in mine))
            return plan if left is None else plan_to_simulate("variants", self.formulation, left)

        return play_until_clear(
            self.simulate, plan, self.v.inputs, budget,
            apps=names, length_s=length_s, may_go_on=lambda: self.ask.remaining > 0, only=only,
        )  # fmt: skip

    def _keep(self, one: Units, tested: Played | None = None) -> None:
        """Keep a plan that looked in time, or was confirmed."""
        cost, first = self.plans.cost(one), cast(Draft, self.first)

        def kept() -> Draft | Infeasibility:
            made = None if self.late_in(one) else self.plan_of(one)
            if made is None:
                return Infeasibility(why=("fresh seeds did not confirm it",), proved=False)
            made = _with_bound_of(first, made if tested is None else with_shown(made, tested))
            return without_bound(made) if self.v.options.sizing == "simulation" else made

        self.ask.keep(kept, simulated=tested is not None, rank=(-cost,), value=cost)

    def plan_of(self, one: Units, apps: Apps | None = None) -> Draft | None:
        """The plan of these machines; of `apps` alone, where no machine is slower for what else it holds.

        Each station gets its queries as it got them when it was played, whatever the program said of it.
        """
        only_played = apps is not None
        if apps is None or any(kind.slowdown for kind in self.v.kinds):
            apps = tuple(b for mine in self.plans.stations(one) for b in mine)
        serving = dict[tuple[int, int], Serves]()
        for mine, counts in self.plans.stations(one).items():
            serving |= self._pairs_asked(mine, counts) if not set(mine).isdisjoint(apps) else {}
        asked = tuple(
            each if b in apps else replace(each, load_qps=0.0, need_qps=0.0) for b, each in enumerate(self.v.asked)
        )
        v = self.v.asked_for(asked=asked, serves=tuple(serving.values()), only_played=only_played)
        number = {self._name(item): i for i, item in enumerate(v.items)}
        place = {i: number.get(self._name(item), -1) for i, item in enumerate(self.plans.v.items)}
        units = self.plans.of_station(one, apps)
        x = np.zeros(len(v.items), dtype=np.int64)
        for i, n in enumerate(self.plans.counts(units).tolist()):
            x[place[i]] += n
        fillings = [
            replace(each, holds={place[i]: n for i, n in each.holds.items()}) for each in self.plans.fillings(units)
        ]
        for _ in range(MOST_CARRIED):
            made = plan_fillings(v, self.ask.without_infeasibility_checks(), x, fillings, cast(Draft, self.first))
            if made is not None:
                return made
            v = v.asked_for(serves=tuple(replace(pair, qps=CARRIES * pair.qps, busy=1.0) for pair in v.serves))
        return None

    def _name(self, item: Item) -> tuple[int, int | None]:
        """What tells an item, whoever else is asked for."""
        return item.kind, item.app if self.v.options.sharing == "dedicated" else None

    def _pairs_asked(self, apps: Apps, counts: Counts) -> dict[tuple[int, int], Serves]:
        """What is asked of these instances: as much of what the formula allows as carries the load, none above full."""
        needs = np.array([[self.v.asked[b].need_qps] for b in apps])
        x, full, rates = self._rates(apps, counts)
        times = 1.0 / max(_carried_part(rates * x / needs), 1e-9)
        for _ in range(MOST_CARRIED):
            if _carried_part(np.minimum(times * rates, full) * x / needs) >= 1.0:
                break
            times *= CARRIES
        found, of = {}, _own_instances(rates * x / needs)
        for k, i in enumerate(self.plans.items_of(apps)):
            for pair in self.plans.v.items[i].serves:
                if pair.app in apps and of.get(k, b := apps.index(pair.app)) == b:
                    busy = float(min(times * rates[b, k], full[b, k]) / full[b, k])
                    found[pair.app, pair.kind] = pair.at_use(busy)
        return found

    # --- how long -----------------------------------------------------------------------------------------------------

    def _queries(self, apps: Apps) -> float:
        return self._length_s(apps) * sum(self.v.asked[b].load_qps for b in apps)

    def _length_s(self, apps: Iterable[int], cycles: float = CYCLES[0]) -> float:
        """How long a look at these applications is."""
        some = [self.v.asked[b] for b in apps if b not in self.seldom] or [self.v.asked[b] for b in apps]
        spans = max(SPANS * one.limit_ms() / 1000.0 if math.isfinite(one.limit_ms()) else 0.0 for one in some)
        cycle_s = max(sum(one.arrivals.stay_s or ()) for one in some)
        tail_s = max(TAIL / _late_share(one) / one.load_qps for one in some)
        return min(max(tail_s, spans, cycles * cycle_s), MOST_PLAYED / sum(one.load_qps for one in some))

    def _is_judged(self, b: int, length_s: float) -> bool:
        """Whether enough queries of an application are played to say that it is late."""
        one = self.v.asked[b]
        return b not in self.seldom and SEEN * one.load_qps * length_s * _late_share(one) >= TAIL

    def _groups(self, some: Sequence[Apps]) -> Iterator[list[Apps]]:
        """Stations that are looked at together: their looks take nearly as long."""
        group, seldom = list[Apps](), [apps for apps in some if self.seldom.issuperset(apps)]
        for apps in sorted(set(some) - set(seldom), key=lambda apps: (self._length_s(apps), apps)):
            following = [b for mine in (*group, apps) for b in mine]
            load_qps = sum(self.v.asked[b].load_qps for b in following)
            length_s = self._length_s(apps)
            if group and (length_s > ALIKE * self._length_s(group[0]) or length_s * load_qps > MOST_PLAYED):
                yield group
                group = []
            group.append(apps)
        if group or seldom:
            yield [*group, *seldom]


def _carried_part(tables: Vector) -> float:
    """The part of all loads that instances carry, which would carry so much of each alone (rows: applications)."""
    if len(tables) == 1:
        return float(tables.sum())
    prices = list(np.eye(len(tables)))
    for column in tables.T:
        served = np.flatnonzero(column > 0)
        for some in {tuple(served), *combinations(served, 2)} if served.size > 1 else ():
            price = np.zeros(len(tables))
            price[list(some)] = 1.0 / column[list(some)]
            prices.append(price / price.sum())
    return float(min((tables * price[:, None]).max(axis=0).sum() / price.sum() for price in prices))


def _own_instances(tables: Vector) -> Mapping[int, int]:
    """Whose instances are whose, where that carries nearly as much as if all had a part in each; else none.

    Queries that may wait for long then come before no others.
    """
    used = np.flatnonzero(tables.any(axis=0)).tolist()
    choices = [np.flatnonzero(tables[:, k] > 0).tolist() for k in used]
    if len(tables) == 1 or math.prod(map(len, choices)) > MOST_CHOICES:
        return {}
    best, most = dict[int, int](), NEARLY * _carried_part(tables)
    for chosen in product(*choices):
        each = np.zeros(len(tables))
        np.add.at(each, list(chosen), tables[list(chosen), used])
        if each.min() >= most:
            best, most = dict(zip(used, chosen, strict=True)), float(each.min())
    return best


def _late_share(one: Asked) -> float:
    """The share of its queries that may be late, by its strictest percentile."""
    percentile = one.targets[-1].percentile if one.targets else 99.0
    return 1.0 - min(percentile, HIGHEST) / 100.0
