r"""How busy an instance may be and still answer in time: by a queueing formula, by simulation, or by both.

`estimated`. An instance serves a batch of up to b queries in T, whenever it is free and someone waits; queries come as
a Poisson stream of rho b in T (rho is the use). With n waiting when a batch ends, the next leaves (n - b)^+ behind, so

    n' = (n - b)^+ + A,  A ~ Poisson(rho b)

has a stationary law, and a query that comes a share u of T after a batch began, with k full batches ahead of it, is
answered after T (1 - u) + k T + T. The use looked for is the highest at which the share of queries later than the SLO
is what its percentile allows. It depends on b, S / T and the percentile alone: three numbers, so a table per (b,
percentile) serves all variants. Several servers of one instance count as so many instances: they would wait less.

Where smaller batches take less, their times s(1), ..., s(b) decide (`batch_queue`).

`simulated`. It begins where the formula leads, so that few plans need to be simulated; a late application
asks less of its instances, until none is late.

`auto`. The same, with as many queries as it takes to see a percentile: `TAIL` that are late by right, per application.
Each plan is played on seeds of its own, so that no plan is chosen for its luck. Where the formula finds no plan, one
that asks more of its instances is tried: the formula is careful, and what it forbids may be in time. Where no plan is
in time, the target is missed, and the outcome says so. Plans and queries are counted; no clock decides, but a limit.

Cheaper plans are looked for near the one in time (`near`). The cheapest that looks good is played as any other, on
seeds that chose nothing, and bounded by the program at saturation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Cancelled
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Draft, Infeasible, without_bound
from hetplan.planner.next_state import USED
from hetplan.planner.tolerances import BOUND_SLIP
from hetplan.problems.batch_queue import busy_limit_of_law
from hetplan.problems.simulated import (
    FRESH,
    SEEDS,
    Played,
    Simulations,
    check_simulator,
    look,
    plan_to_simulate,
    where_late,
    with_shown,
)
from hetplan.problems.variants.alone import without_hopeless
from hetplan.problems.variants.bursts import answering_fewest, in_bursts
from hetplan.problems.variants.near import Apps, Near, Units, asking, why_none
from hetplan.problems.variants.ways import filled
from hetplan.problems.variants.wish import Asked, Serves, Snapshot
from hetplan.serving.reading import answering

__all__ = ["busy_limit", "busy_limit_of_law", "leaving_room_to_wait", "sized"]

Vector = NDArray[np.float64]
Way = Callable[[Snapshot, Ask], Draft | Infeasible]

USES = np.concatenate([[0.0, 0.01, 0.03], np.arange(0.05, 0.951, 0.05)])
RATIOS = np.concatenate([np.arange(1.0, 4.0, 0.1), np.arange(4.0, 20.1, 1.0)])
"""S / T; beyond the last, as at the last."""
MOMENTS = 12
"""Of a batch's time, at whose middles queries are looked at."""
LESS = 0.85
"""What a late application still asks of the instances that it uses, each time."""
PATIENT = 10
"""After so many plans in vain twice as much is taken off at once: any plan in time is better than none."""
LEAST = 0.002
"""An instance is never taken for less useful than this share of its saturation."""
ROUGH = 0.01
"""From there on programs are solved to this gap: they are large by then, and no claim rests on them."""
MOST_SHRINKINGS = 20
"""So often less is asked before another plan comes of it."""
BUSIER = 6
"""So many plans that ask more are played, at most, once one is in time."""
BACK = 3
"""So often, at most, the most that was in time of each application is played together."""
LONGER = 5.0
"""Times the length of a run, where a short one leaves open whether a cheaper plan near by is in time."""
MOST_CONFIRMED = 3
"""So many cheaper plans near by that looked good are played, at most."""
MOST_DEARER = 3
"""So many of the plans on the way to the cheapest one near by are put to the test, where that is not confirmed."""
LOOKED_CYCLES, CONFIRMED_CYCLES = 10.0, 40.0
"""A look at bursts is so many times as long as a process takes to go through its states; and what confirms a plan."""
TAIL, TESTED = 40, 3.0
"""Queries that may be late, of each application in each simulation of `auto`; so many times more to put it to the test,
as runs of few queries differ much."""
MOST_PLAYED = 200_000
"""Queries of all applications in one simulation of `auto`."""
SPANS = 200.0
"""A run is so many times as long as the longest limit: long enough for queues to grow."""
HIGHEST = 99.9
"""A higher percentile lengthens no run."""
STEADY = ("poisson", "deterministic", "gamma")
"""Arrivals whose rate does not change: a run that is short shows them as they are."""
MOST_HELPED = 2
"""Late applications for which a repair is looked for."""
MOST_NAMED = 5
MOST_OF_TRIAL = 3
"""So many plans are played, at most, to see whether a repair does."""
CLOSE = 1e-6
"""So much below a plan's cost, in parts of it, the bound at saturation is another one."""
LESS_ASKED = "bounded by the program before simulation asked less of its instances"
AT_SATURATION = "bounded by the program whose instances may be full: no plan is ruled out that is in time"
SETTLED = 1e-7
MOST_STEPS = 3000


def busy_limit(*, time_ms: float, batch: int, slo_ms: float, percentile: float) -> float:
    """The highest use at which this percentile of the response times is within the SLO.

    >>> round(busy_limit(time_ms=20, batch=1, slo_ms=200, percentile=99), 2)
    0.77
    >>> busy_limit(time_ms=20, batch=1, slo_ms=21, percentile=99) < 0.05
    True
    """
    limits = _limits(batch, percentile)
    return float(np.interp(slo_ms / time_ms, RATIOS, limits)) if slo_ms >= time_ms else 0.0


@lru_cache(maxsize=64)
def _limits(batch: int, percentile: float) -> Vector:
    """The limit at each of `RATIOS`."""
    late = np.array([np.zeros(RATIOS.size) if use == 0 else _late(use * batch, batch) for use in USES])
    late = np.maximum.accumulate(late, axis=0)
    allowed = 1.0 - percentile / 100.0
    return np.array([np.interp(allowed, column, USES) for column in late.T])


def _late(load: float, batch: int) -> Vector:
    """The share of queries that are later than each of `RATIOS`, where `load` come in a batch's time."""
    waiting = _waiting(load, batch)
    left = np.concatenate([[waiting[: batch + 1].sum()], waiting[batch + 1 :]])
    idle = waiting[0] / (load + waiting[0])
    late = np.zeros(RATIOS.size)
    for u in (np.arange(MOMENTS) + 0.5) / MOMENTS:
        ahead = np.convolve(left, _poisson(load * u, waiting.size))
        batches = np.arange(ahead.size) // batch
        # The highest k that is still in time; what rounding takes off an exact ratio is no lateness.
        most = np.floor(RATIOS - 2.0 + u + 1e-9)
        late += np.array([ahead[batches > k].sum() for k in most]) / MOMENTS
    return np.asarray((1.0 - idle) * late)


def _waiting(load: float, batch: int) -> Vector:
    """The stationary law of how many wait when a batch ends."""
    size = int(3 * batch + 40 + 12 * np.sqrt(load) + batch / (batch - load))
    arrivals = _poisson(load, size)
    law = np.zeros(size)
    law[0] = 1.0
    for _ in range(MOST_STEPS):
        left = np.concatenate([[law[: batch + 1].sum()], law[batch + 1 :]])
        following = np.convolve(left, arrivals)[:size]
        following /= following.sum()
        change = float(np.abs(following - law).sum())
        law = following
        if change < SETTLED:
            break
    return law


def _poisson(mean: float, size: int) -> Vector:
    counts = np.arange(1, size)
    logs = np.concatenate([[0.0], np.cumsum(np.log(mean / counts))]) - mean
    return np.asarray(np.exp(logs))


HALVINGS = 8
LARGEST = 64
"""Batches above this are taken to be always full: that is careful, and quick to work out."""


def leaving_room_to_wait(v: Snapshot, until: Callable[[], bool] = lambda: False) -> Snapshot:
    """The same, each pair at the rate at which its queries are still in time; `until` ends the work."""
    serves = []
    for pair in v.serves:
        if until():
            raise Cancelled("the work was ended before it was known how busy instances may be")
        serves.append(_with_room(v, pair))
    return replace(v, serves=tuple(serves))


def _with_room(v: Snapshot, pair: Serves) -> Serves:
    if pair.late:
        return pair
    one, batch = v.asked[pair.app], v.kinds[pair.kind].batch
    wanted = [(target.limit_ms(), target.percentile) for target in one.targets]
    times = _times(v, pair) if batch <= LARGEST else ()
    use = min(
        busy_limit_of_law(times, slo_ms=limit_ms, percentile=percentile) if times and math.isfinite(limit_ms)
        else busy_limit(time_ms=pair.latency_ms, batch=batch, slo_ms=limit_ms, percentile=percentile)
        for limit_ms, percentile in wanted or [(math.inf, 99.0)]
    )  # fmt: skip
    at_once = max(1, round(pair.qps * pair.latency_ms / 1000.0 / batch))
    busy = max(min(1.0, use * at_once * batch * 1000.0 / pair.latency_ms / pair.qps), LEAST)
    return replace(pair, qps=pair.qps * busy, busy=busy)


def _times(v: Snapshot, pair: Serves) -> tuple[float, ...]:
    """What batches of 1, 2, ... take, as long as a full one takes `latency_ms`; none where all take as long."""
    kind, points = v.kinds[pair.kind], v.asked[pair.app].classes.points
    law = kind.choice.law
    if kind.batch == 1 or "batch" not in law.axes or any("batch" in point for point in points):
        return ()
    stat = answering(law.statistics, str(v.options.latency_stat))
    slowest = [max(law.ms(point, size, stat) for point in points) for size in range(1, kind.batch + 1)]
    times = np.maximum.accumulate(slowest) * pair.latency_ms / slowest[-1]
    return tuple(times.tolist()) if times[0] < times[-1] else ()


def sized(v: Snapshot, ask: Ask, way: Way, tools: Tools, formulation: str) -> Draft | Infeasible:
    """The plan by this way whose applications are in time in simulation."""
    check_simulator(tools)
    hopeful = without_hopeless(v)
    tries = _Tries(hopeful, ask, way, tools, formulation, every=v.serves)
    made = first = tries.first()
    asked, corrected_for = tries.v, set[str]()
    if isinstance(made, Infeasible) or isinstance(first, Infeasible) or not made.routing:
        return made
    tries.bounding = first
    ask.keep(lambda: _so_far(v, first), value=_cost(first))
    best: tuple[Draft, Played] | None = None
    while tries.simulations.may_go_on:
        shown = tries.shown(made)
        if best is None or len(shown.late) < len(best[1].late):
            best = made, shown
        if not shown.late:
            break
        corrected_for.update(shown.late)
        following = tries.less_busy(made, shown.late)
        if following is None:
            break
        made = following
    if best is None:
        raise Cancelled("the time was over before any plan was played")
    corrected = best[0] is not first or hopeful is not v
    if v.options.size == "auto" and not best[1].late and not tools.trial:
        best = tries.busier(*best, frozenset(corrected_for))
        best = tries.near(best[0], asked) or best
    if not best[1].late:
        best = tries.confirmed(*best)
    if v.options.size == "auto" and not best[1].late and not tools.trial:
        full = tries.saturated(asked)
        if isinstance(full, Draft) and (corrected or _least(full) < _cost(best[0]) * (1.0 - CLOSE)):
            return _bounded_by(full, _said(v, best, tries.simulations.made), AT_SATURATION)
    found = _said(v, best, 1 if best[0] is first and not best[1].late else tries.simulations.made)
    return _bounded_by(first, found) if corrected else found


def _bounded_by(first: Draft, made: Draft, note: str = LESS_ASKED) -> Draft:
    """A plan that is the best of no program, bounded by another one that does not rule it out."""
    reported = [
        replace(mine, answer=theirs.answer, bound=theirs.bound, vouched=theirs.vouched, scope="relaxation", note=note)
        for mine, theirs in zip(made.reported, first.reported, strict=True)
    ]
    extensions = {name: one for name, one in made.extensions.items() if name != USED}
    extensions |= {name: one for name, one in first.extensions.items() if name == USED}
    return replace(made, reported=tuple(reported), extensions=extensions)


def _so_far(v: Snapshot, made: Draft) -> Draft:
    """A plan of which cheaper ones may still be found: the formula's bound rules them out wrongly, so it has none."""
    return without_bound(made) if v.options.size == "auto" else made


def _said(v: Snapshot, best: tuple[Draft, Played], turns: int) -> Draft:
    """The best plan seen, with what simulation showed of it."""
    made, shown = best
    tried = replace(with_shown(made, shown), searched=turns > 1 or v.options.size == "simulated")
    if shown.late:
        named = ", ".join(sorted(shown.late)[:MOST_NAMED])
        text = f"late in simulation in each of {turns} plans, although each asked less of its instances: {named}"
        if shown.worst <= 1.0:
            text = f"in time in a few runs, and more runs do not confirm it in any of {turns} plans: {named}"
        late = [one for one in v.asked if one.id in shown.late][:MOST_HELPED]
        repairs = [fix for one in late for fix in where_late(one, one.rate_qps)]
        return replace(tried, target_missed=text, repairs=tuple(repairs))
    return tried


@dataclass
class _Tries:
    """Plans that are simulated one after another, each on seeds of its own, asking less of what was late."""

    v: Snapshot
    ask: Ask
    way: Way
    tools: Tools
    formulation: str
    every: tuple[Serves, ...]
    """What bounds are of: pairs too that no plan is made with, as they are late alone."""
    seen: dict[str, Played] = field(default_factory=dict)
    """By workers and routing: no plan is played twice."""
    bounding: Draft | None = None
    """The plan of the formula: its bound holds of those that ask less, or more, of their instances."""
    cheapest: float = math.inf
    """What the cheapest plan costs that was in time."""
    in_time: list[tuple[Draft, Played]] = field(default_factory=list)
    """Plans that looked so: fresh seeds may say otherwise."""
    refused: list[Draft] = field(default_factory=list)
    """Those of which fresh seeds did."""

    def __post_init__(self) -> None:
        options, seed = self.v.options, self.ask.limits.seed
        assert self.tools.simulate is not None
        most = min(options.evaluations, MOST_OF_TRIAL) if self.tools.trial else options.evaluations
        is_auto = options.size == "auto"
        self.simulations = Simulations(self.tools.simulate, self.v.inputs, self.ask, most, seed, own_seeds=is_auto)

    def first(self) -> Draft | Infeasible:
        """The plan of the formula; where it finds none, one that asks more of its instances, up to saturation."""
        made = self.way(self.v, self.ask)
        if self.v.options.size != "auto":
            return made
        estimated = self.v
        for part in (0.5, 0.0):
            if isinstance(made, Draft) or self.ask.remaining <= 0:
                break
            self.v = replace(estimated, serves=tuple(_busier(pair, part) for pair in estimated.serves))
            made = self.way(self.v, self.ask)
        return made

    def _keep(self, made: Draft, confirmed: Played | None = None) -> None:
        """Keep a plan that looked in time, where none did that is cheaper; or one that fresh seeds confirmed."""
        v, first, turns = self.v, self.bounding, self.simulations.made
        if first is None or (confirmed is None and _cost(made) >= self.cheapest):
            return
        self.cheapest = min(self.cheapest, _cost(made))
        said = made if confirmed is None else _said(v, (made, confirmed), turns)

        def kept() -> Draft | Infeasible:
            if any(made is one for one in self.refused):
                return Infeasible(why=("fresh seeds did not confirm it",), proved=False)
            return _so_far(v, _bounded_by(first, said))

        self.ask.keep(
            kept, simulated=confirmed is not None, rank=(-_cost(made),), value=_cost(made),
        )  # fmt: skip

    def shown(self, made: Draft, *, settled: bool = True) -> Played:
        """What simulation shows of a plan. `auto` plays as many queries as a percentile takes, and no more.

        A short run may leave the upper end of its interval open. Then a longer one decides, if it may run: one until
        its figures are `settled`, or so many times as long.
        """
        plan = plan_to_simulate("variants", self.formulation, made)
        alike = plan.model_dump_json(include={"workers", "routing"})
        if alike in self.seen:
            return self.seen[alike]
        judged = self._asked_of(made)
        runs: list[tuple[int, float | None]] = [(SEEDS, None)]
        if self.v.options.size == "auto" and (length_s := _length_s(self.v)) is not None:
            runs = [(SEEDS, length_s), (SEEDS, None if settled else LONGER * length_s)]
        shown, _ = self.simulations.look(plan, judged, *runs, goes_on=lambda one: bool(one.unsure) and not one.late)
        if self.v.options.size == "auto":
            judged = [one.id for one in self.v.asked if _is_judged(self.v, one)]
        shown = replace(shown, late=tuple(name for name in (*shown.late, *shown.unsure) if name in judged))
        self.seen[alike] = shown
        if not shown.late:
            self.in_time.append((made, shown))
            self._keep(made)
        return shown

    def _asked_of(self, made: Draft) -> list[str]:
        """The applications of a plan that have queries."""
        return [one.id for one in self.v.asked if one.id in made.routing and one.load_qps > 0]

    def confirmed(self, made: Draft, shown: Played) -> tuple[Draft, Played]:
        """The plan, if fresh seeds confirm it; else one that asks less, or the next dearer one that looked in time.

        Where none is confirmed, the last with the applications that are not.
        """
        dearer = sorted((one for one in self.in_time if _cost(one[0]) > _cost(made)), key=lambda one: _cost(one[0]))
        while True:
            tested = self._tested(made)
            if not tested.late:
                self._keep(made, tested)
                return made, tested
            if self.ask.remaining > 0:
                self.refused.append(made)
            if not self.simulations.may_go_on:
                return made, tested
            following = self.less_busy(made, tested.late)
            if dearer and (following is None or _cost(following) >= _cost(dearer[0][0])):
                made, shown = dearer.pop(0)
                continue
            while following is not None:
                made, shown = following, self.shown(following)
                if not shown.late or not self.simulations.may_go_on:
                    break
                following = self.less_busy(made, shown.late)
            if shown.late or following is None:
                return made, shown if shown.late else tested

    def _tested(self, made: Draft) -> Played:
        """What runs show of a plan, until it is clear."""
        v, length_s = self.v, None
        if v.options.size == "auto":
            asked, load_qps = [one for one in v.asked if one.load_qps > 0], sum(one.load_qps for one in v.asked)
            length_s = _length_s(v) or _look_s(asked, load_qps, CONFIRMED_CYCLES)
            length_s = max(length_s, min(TESTED * length_s, MOST_PLAYED / load_qps))
        plan = plan_to_simulate("variants", self.formulation, made)
        return self.simulations.test(plan, self._asked_of(made), length_s)

    def busier(self, made: Draft, shown: Played, late: frozenset[str]) -> tuple[Draft, Played]:
        """A plan that costs less, asks more of its instances and is in time as well; else the same again.

        The formula is careful: instances that share a queue wait less. What each application asks is halved between
        the formula's and saturation, by whether it was late; those in `late` were so at less, and stay as they are.
        """
        asked = chosen = self.v
        low = {one.id: [0.0] for one in asked.asked if one.id not in late}  # The parts at which each was in time.
        high, played, missed = dict.fromkeys(low, 1.0), 0, False

        def at(parts: Mapping[str, float]) -> Draft | None:
            busy = tuple(_busier(pair, 1.0 - parts.get(asked.asked[pair.app].id, 0.0)) for pair in asked.serves)
            self.v = replace(asked, serves=busy)
            found = self.way(self.v, self.ask.untested())  # it is bounded by another program
            return found if isinstance(found, Draft) and _cost(found) < _cost(made) * (1.0 - 1e-9) else None

        def tried(following: Draft) -> Played:
            nonlocal made, shown, chosen
            seen = self.shown(following)
            if not seen.late:
                made, shown, chosen = following, seen, self.v
            return seen

        following = at(high)
        for _ in range(HALVINGS if following is not None else 0):
            if played == BUSIER - 1 or not self.simulations.may_go_on:
                break
            parts = {name: (low[name][-1] + high[name]) / 2.0 for name in low}
            following = at(parts)
            seen = tried(following) if following is not None else None
            played += seen is not None
            missed |= bool(seen and seen.late)
            for name, part in parts.items():
                if seen is not None and name in seen.late:
                    high[name] = part
                else:
                    low[name].append(part)
        # All together, each at the last part at which it was in time; who is late now goes back to the one before.
        for _ in range(BACK if missed else 0):
            following = at({name: parts[-1] for name, parts in low.items()}) if self.simulations.may_go_on else None
            seen = tried(following) if following is not None else None
            back = [name for name in seen.late if len(low.get(name, ())) > 1] if seen is not None else []
            if not back:
                break
            for name in back:
                low[name].pop()
        self.v = chosen
        return made, shown

    def near(self, made: Draft, asked: Snapshot) -> tuple[Draft, Played] | None:
        """A cheaper plan near by that is in time as well.

        `asked` is what the formula asks. Applications that may share instances begin at what they are asked for now: it
        says which of them has to wait less.
        """
        if why_none(asked):
            return None
        common = {s.app for item in asked.items if len(item.serves) > 1 for s in item.serves}
        pairs = (now if then.app in common else then for now, then in zip(self.v.serves, asked.serves, strict=True))
        asked = replace(asked, serves=tuple(pairs))
        judged = {b: one for b, one in enumerate(asked.asked) if one.load_qps > 0 and _is_judged(asked, one)}
        looks = 0

        def drafted(units: Units) -> Draft | None:
            v = asking(asked, search.parts(units))
            return filled(v, self.ask, search.counts(units), search.fillings(units), made)

        def length_s(apps: Apps) -> float:
            """0 where too few of their queries come to say that they are late."""
            mine = [judged[b] for b in apps if b in judged]
            return _look_s(mine, sum(asked.asked[b].load_qps for b in apps)) if mine else 0.0

        def plays(units: Units, apps: Apps) -> Mapping[int, float]:
            nonlocal looks
            if not (mine := [b for b in apps if b in judged]):
                return {}
            looks += 1
            found, names = drafted(units), {b: asked.asked[b].id for b in apps}
            if found is None or self.ask.remaining <= 0:
                return dict.fromkeys(mine, math.inf)
            plan = plan_to_simulate("variants", self.formulation, _alone(asked, found, set(names.values())))
            seed, runs = self.ask.limits.seed + FRESH + looks, [(1, length_s(apps))]
            shown, _ = look(self.simulations.simulate, plan, asked.inputs, [names[b] for b in mine], runs, seed=seed)
            return {b: shown.each[names[b]] for b in mine}

        def queries(apps: Apps) -> float:
            return sum(asked.asked[b].load_qps for b in apps) * length_s(apps)

        hopeful = {b: 0.0 for b in range(len(asked.asked)) if b not in judged}
        search = Near(asked, plays, queries, self.ask, hopeful)
        for _ in range(MOST_CONFIRMED):
            found = search.cheaper(made) if self.simulations.may_go_on else []
            following = drafted(found[0]) if found else None
            if following is None:
                break
            seen = self.shown(following, settled=False)
            if not seen.late and _cost(following) >= _cost(made):
                break
            if not seen.late:
                dearer = (drafted(one) for one in found[1 : 1 + MOST_DEARER])
                self.in_time += [(one, seen) for one in dearer if one is not None]
                return following, seen
            search.was_late(found[0], seen.late)
        return None

    def saturated(self, asked: Snapshot) -> Draft | Infeasible:
        """The plan of instances that may be full, in bursts too: it rules out none that is in time."""
        every = replace(asked, serves=self.every)
        full = asking(every, dict.fromkeys(range(len(asked.asked)), 1.0))
        bursty = in_bursts(full) if self.ask.remaining > 0 else full
        if bursty is not full:
            made = self.way(replace(bursty, repairs=False, explains=False), self.ask)
            if isinstance(made, Draft) and _least(made) <= self.cheapest * (1.0 + BOUND_SLIP):
                return made
        return self.way(answering_fewest(full), self.ask)

    def less_busy(self, made: Draft, late: tuple[str, ...]) -> Draft | None:
        """The next plan that is another one (None: there is none), the late ones asking less of their instances."""
        for _ in range(MOST_SHRINKINGS):
            less = LESS if self.simulations.made < PATIENT else LESS**2
            pairs = tuple(_less_busy(self.v, made, pair, late, less) for pair in self.v.serves)
            self.v = replace(self.v, serves=pairs)
            following = self.way(
                self.v, self.ask.untested() if self.simulations.made < PATIENT else self.ask.untested(gap=ROUGH)
            )
            if isinstance(following, Infeasible):
                return None
            if (following.workers, following.routing) != (made.workers, made.routing):
                return following
        return None


def _cost(made: Draft) -> float:
    return made.reported[0].value or 0.0


def _least(made: Draft) -> float:
    """What is shown of the cost of any plan: 0 where nothing is."""
    one = made.reported[0]
    shown = one.bound if one.bound is not None or one.answer is None else one.answer.bound
    return shown or 0.0


def _busier(pair: Serves, part: float) -> Serves:
    """A pair that is asked for more: with `part` 0 for all that it serves at saturation."""
    busy = pair.busy**part
    return replace(pair, qps=pair.saturation_qps * busy, busy=busy)


def _length_s(v: Snapshot) -> float | None:
    """How long a run is: `TAIL` late queries of each application, within `MOST_PLAYED` of all (None: the default)."""
    asked = [one for one in v.asked if one.load_qps > 0]
    if any(one.demand.arrivals.process not in STEADY for one in asked) or not asked:
        return None
    wanted = max(TAIL / _allowed(one) / one.load_qps for one in asked)
    spans = max((SPANS * one.limit_ms() / 1000.0 for one in asked if math.isfinite(one.limit_ms())), default=0.0)
    return min(max(wanted, spans), MOST_PLAYED / sum(one.load_qps for one in asked))


def _alone(v: Snapshot, made: Draft, names: set[str]) -> Draft:
    """The part of a plan that applications decide by themselves, where no machine is slower for what else it holds."""
    if any(kind.slowdown for kind in v.kinds):
        return made
    routing = {name: routes for name, routes in made.routing.items() if name in names}
    to = {load for routes in routing.values() for route in routes for load in route.to}
    kept = {worker.id: tuple(load for load in worker.loads if load.id in to) for worker in made.workers}
    workers = tuple(worker.model_copy(update={"loads": kept[worker.id]}) for worker in made.workers if kept[worker.id])
    return replace(made, workers=workers, routing=routing, dispatch={name: made.dispatch[name] for name in routing})


def _look_s(some: list[Asked], load_qps: float, cycles: float = LOOKED_CYCLES) -> float:
    """How long a look at applications is, of this load in all."""
    spans = max(SPANS * one.limit_ms() / 1000.0 if math.isfinite(one.limit_ms()) else 0.0 for one in some)
    cycle_s = max(sum(one.demand.arrivals.stay_s or ()) for one in some)
    tail_s = max(TAIL / _allowed(one) / one.load_qps for one in some)
    return min(max(tail_s, spans, cycles * cycle_s), MOST_PLAYED / load_qps)


def _is_judged(v: Snapshot, one: Asked) -> bool:
    """Whether enough queries of an application are played to say that it is late."""
    length_s = _length_s(v)
    return length_s is None or one.load_qps * length_s * SEEDS * _allowed(one) >= TAIL


def _allowed(one: Asked) -> float:
    """The share of its queries that may be late, by its strictest percentile."""
    return 1.0 - min(_percentile(one), HIGHEST) / 100.0


def _percentile(one: Asked) -> float:
    return one.targets[-1].percentile if one.targets else 99.0


def _less_busy(v: Snapshot, made: Draft, pair: Serves, late: tuple[str, ...], less: float) -> Serves:
    """A pair by which an application was late, asked for less."""
    kind, one = v.kinds[pair.kind], v.asked[pair.app]
    used = any(
        load.variant == kind.variant and worker.hardware == kind.hardware and load.app in (None, one.id)
        for worker in made.workers
        for load in worker.loads
    )
    if one.id not in late or not used or pair.late:
        return pair
    return replace(pair, qps=pair.qps * less, busy=pair.busy * less)
