"""A plan with periods, played: hours change, machines start ahead, zones fail, spot machines are taken back.

A day may have 10^8 queries, so hours that are alike are played once. Time is cut into *segments*, at each of which
something changes: the period, or how many spot machines there are. A segment is played as a *window*: what ran before
it, then the change, then a sample. Two segments with the same machines, rates and change before them are one window.
What is in time is weighted: the first minute after a change by itself, the rest of the sample for the rest of the
segment. Intervals are over the seeds.

With a state the first period begins with what it has of its machines. Those that are missing come once they have
started; machines that the period does not use are not played.

The parts of a period's failures are in force `notice_s` after a failure; until then queries go where they went. Parts
that make text are played beside the others (`day_text`). Where machines of an offer are taken back, other parts lose
theirs first; text loses those that it shares with them at the same time.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError, Interrupted
from hetplan.planner.contract import Event, OnEvent
from hetplan.planner.promise_figures import Estimate
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Period, Plan
from hetplan.profiles.plan_periods import inputs_of_part, machines_with_users, of_part
from hetplan.serving.demand import response_targets
from hetplan.serving.planned_system import planned_systems
from hetplan.serving.service import NoiseName, noise_of
from hetplan.serving.system import Group, System
from hetplan.simulator.control import follow_load
from hetplan.simulator.day_report import DayReport, FailureReport, HourReport
from hetplan.simulator.day_text import Change, DayText, Stood, promised_of_text, running, zones_of
from hetplan.simulator.demand import arrival_times, draw_kinds, seeded, steadily
from hetplan.simulator.figures import mean_share
from hetplan.simulator.runs import seed_of
from hetplan.simulator.simulation import Simulation, Stream
from hetplan.simulator.spot_record import SpotRecord
from hetplan.simulator.system_changes import Names, scheduled

__all__ = ["HowPlayed", "play_day"]

HEAD_S = 60.0
"""What comes so soon after a change counts by itself."""
LEAST_SAMPLE_S = 20.0
MILLION = 1_000_000
SPARE_S = 5.0
"""What runs before a change is played this much longer than machines take to start."""


@dataclass(frozen=True)
class HowPlayed:
    """How a day is played.

    `queries` is how many are played per seed at most, `hour` plays failures in one period only (its number), `spot`
    has a record for each offer; with `spot_by_rate` machines are taken as often as the offers say.
    """

    seeds: int = 3
    seed: int = 0
    noise: NoiseName = "table"
    queries: float = 1.5e6
    situations: tuple[str, ...] | None = None
    hour: int | None = None
    notice_s: float = 5.0
    spot: Mapping[str, SpotRecord] = field(default_factory=dict)
    spot_by_rate: bool = False
    spot_from_s: float = 0.0


Down = tuple[tuple[str, int], ...]
"""Per offer, or group of machines, how many of its machines are gone."""


@dataclass(frozen=True)
class _State:
    """What runs in a segment: parts, rates, machines that are gone."""

    parts: tuple[str, ...]
    rates: tuple[tuple[str, float], ...]
    down: Down = ()


@dataclass(frozen=True)
class _Segment:
    period: int
    length_s: float
    before: _State
    now: _State
    situation: str | None = None


@dataclass
class _Counts:
    """Of one window and seed: came and in time, in its first minute and after it."""

    head: dict[str, tuple[int, int]]
    rest: dict[str, tuple[int, int]]


def play_day(
    plan: Plan, inputs: Inputs, how: HowPlayed | None = None, *, on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> DayReport:  # fmt: skip
    """Play every period of a plan with parts, its changes, its failures, its spot machines."""
    if plan.parts is None:
        raise InputError.one(
            file="plan", path="$.parts", why="a day is played of a plan with periods of their own parts",
            remedy="Play it with `hetplan simulate`.",
        )  # fmt: skip
    return _Day(plan, inputs, how or HowPlayed(), on_event, cancel).report()


class _Day:
    def __init__(
        self, plan: Plan, inputs: Inputs, how: HowPlayed, on_event: OnEvent | None, cancel: threading.Event | None
    ) -> None:
        self.plan, self.parts, self.inputs, self.how, self.cancel = plan, plan.parts or {}, inputs, how, cancel
        self.on_event, self.began, self.expected = on_event, time.monotonic(), 1
        self.names, self.systems = Names(), dict[tuple[str, ...], System]()
        self.offer: dict[str, str] = {}
        """The offer that a group's machines are rented under."""
        self.held: dict[str, tuple[str, ...]] = {}
        """The variants that they hold."""
        self.groups: dict[tuple[str, str], Group] = {}
        """What is played of a part's worker."""
        self.text = DayText(plan, inputs, how.seed)
        self.texts = {name: tuple(part.rate_qps) for name, part in self.text.parts.items()}
        """Parts that make text, each with its applications."""
        self.makes_text = {app for apps in self.texts.values() for app in apps}
        self.windows: dict[Any, list[_Counts]] = {}
        self.played = 0
        self.taken = 0

    # What runs

    def system(self, names: tuple[str, ...]) -> System | None:
        """The systems of these parts as one, its groups named by what they hold and where."""
        names = tuple(name for name in names if name not in self.texts)
        if not names:
            return None
        if names not in self.systems:
            made = [self._of_part(name) for name in names]
            self.systems[names] = replace(
                made[0],
                apps=tuple(app for one in made for app in one.apps),
                groups=tuple(group for one in made for group in one.groups),
                routes=tuple(route for one in made for route in one.routes),
            )
        return self.systems[names]

    def _of_part(self, name: str) -> System:
        part = self.parts[name]
        single = of_part(self.plan, name)
        system = planned_systems(single, inputs_of_part(self.inputs, part.rate_qps), noise=self.how.noise)[0].system
        offers = {worker.id: worker.offer or worker.hardware for worker in single.workers}
        loads = {worker.id: tuple(sorted(load.variant or "" for load in worker.loads)) for worker in single.workers}
        named = self.names.named(system, labels=offers)
        for old, new in zip(system.groups, named.groups, strict=True):
            self.offer[new.id], self.held[new.id] = offers[old.id], loads[old.id]
            self.groups[name, old.id] = new
        return named

    def _state(self, number: int, down: Down = ()) -> _State:
        period = self.plan.periods[number]
        rates: dict[str, float] = {}
        for name in period.parts or ():
            for app, planned in self.parts[name].rate_qps.items():
                series = self.inputs.slo.apps[app].series
                rates[app] = series[number] if series is not None else self.text.promised.get((app, period.id), planned)
        return _State(tuple(period.parts or ()), tuple(sorted(rates.items())), down)

    # When something changes

    def segments(self) -> list[_Segment]:
        """The day in order; the first period follows the last."""
        found = list[_Segment]()
        count = len(self.plan.periods)
        missing = self._missing() if self.inputs.state is not None else {}
        last = self._state(count - 1) if self.inputs.state is None else self._state(0, _still(missing, 0.0))
        for number, period in enumerate(self.plan.periods):
            steps = self._spot_steps(number, period)
            if number == 0 and missing:
                steps = _also(steps, missing, period)
            for begin, (at_s, down) in enumerate(steps):
                end_s = steps[begin + 1][0] if begin + 1 < len(steps) else _end(period)
                now = self._state(number, down)
                found.append(_Segment(number, end_s - at_s, last, now))
                had = dict(last.down)
                self.taken += sum(max(gone - had.get(offer, 0), 0) for offer, gone in down)
                last = now
        return found

    def _spot_steps(self, number: int, period: Period) -> list[tuple[float, Down]]:
        """(from when, what is gone) within a period."""
        machines = self._rented(self.plan.periods[number].parts or ())
        if self.how.spot:
            gap = min(record.gap_s for record in self.how.spot.values())
            times = [period.start_s, *np.arange(np.ceil((period.start_s + 1e-9) / gap) * gap, _end(period), gap)]
            steps = [(float(at), self._gone(machines, float(at))) for at in times]
        elif self.how.spot_by_rate:
            steps = self._by_rate(number, period, machines)
        else:
            steps = [(period.start_s, ())]
        kept = [steps[0]]
        for step in steps[1:]:
            if step[1] != kept[-1][1]:
                kept.append(step)
        return kept

    def _missing(self) -> dict[str, tuple[float, int]]:
        """Machines of the first period that do not run yet: of each group, in how many seconds, and how many."""
        has, found = Counter[tuple[tuple[str, ...], str]](), dict[str, tuple[float, int]]()
        for worker in self.inputs.state.workers if self.inputs.state is not None else ():
            apps = {load.app for load in worker.loads if load.app is not None} or set(self.inputs.slo.apps)
            has[tuple(sorted(apps)), worker.offer or ""] += worker.count + worker.standby
        names = self.plan.periods[0].parts or ()
        self.system(tuple(names))
        for worker, users in machines_with_users(self.parts[name] for name in names):
            more = worker.count - running(has, users, worker.offer or worker.hardware, worker.count)
            started_s = self.inputs.profile.hardware[worker.hardware].startup_s
            for name in (name for name in names if more and worker.id in {one.id for one in self.parts[name].workers}):
                if (group := self.groups.get((name, worker.id))) is not None:
                    found[group.id] = group.ready_ms / 1000.0, more
                else:
                    found[f"{name}/{worker.id}"] = started_s, more
        return found

    def _gone(self, machines: Counter[str], at_s: float) -> Down:
        gone = {}
        for offer, record in self.how.spot.items():
            count = machines[offer]
            left = int(record.share(self.how.spot_from_s + at_s) * count + 1e-9)
            if count > left:
                gone[offer] = count - left
        return tuple(sorted(gone.items()))

    def _by_rate(self, number: int, period: Period, machines: Counter[str]) -> list[tuple[float, Down]]:
        """Machines taken at their offers' rate, each replaced after its start."""
        random, changes = seeded(self.how.seed, 7, number), list[tuple[float, str, int]]()
        for offer, count in sorted(machines.items()):
            known = self.inputs.profile.offers.get(offer)
            often = (known.interruptions_per_hour or 0.0) if known is not None else 0.0
            hours = (_end(period) - period.start_s) / 3600.0
            for at in random.random(random.poisson(often * count * hours)) * 3600.0 * hours + period.start_s:
                back_s = self.inputs.profile.hardware[known.hardware].startup_s if known is not None else 0.0
                changes += [(float(at), offer, 1), (min(float(at) + back_s, _end(period)), offer, -1)]
        steps: list[tuple[float, Down]] = [(period.start_s, ())]
        gone = Counter[str]()
        for at, offer, change in sorted(changes):
            gone[offer] += change
            down = tuple(sorted((name, min(n, machines[name])) for name, n in gone.items() if n > 0))
            steps.append((at, down))
        return steps

    # Playing

    def _counted(self, segment: _Segment, sample_s: float) -> list[_Counts]:
        key = (segment.before, segment.now, segment.situation, sample_s)
        if key not in self.windows:
            self.windows[key] = [self._window(segment, sample_s, seed) for seed in range(self.how.seeds)]
            for seed, counts in enumerate(self.windows[key]):
                counts.rest.update(self._text(segment, seed))
                counts.head.update(self._first_of_text(segment, seed, min(HEAD_S, sample_s / 2.0)))
            if self.on_event is not None:
                done = min(len(self.windows), self.expected)
                self.on_event(Event("simulate", f"{done} of {self.expected} changes", done=done / self.expected,
                                    seconds=time.monotonic() - self.began))  # fmt: skip
        return self.windows[key]

    def _window(self, segment: _Segment, sample_s: float, seed: int) -> _Counts:
        """What ran before, the change, and a sample of what comes."""
        if self.cancel is not None and self.cancel.is_set():
            raise Interrupted("the simulation was cancelled")
        before, after = self.system(segment.before.parts), self.system(segment.now.parts)
        if after is None:
            return _Counts({}, {})
        before = before or after
        after = self._as_it_comes(before, after, self._rented(segment.before.parts))
        lead_s = SPARE_S + max((group.ready_ms for group in after.groups), default=0.0) / 1000.0
        run_seed = seed_of(self.how.seed, seed)
        keep = self.inputs.slo.limits.survive.serve if segment.situation is not None else 1.0
        streams = self._streams(before, segment, lead_s, sample_s, run_seed, keep)
        apps = tuple(app for app in after.apps if app.id in {stream.app for stream in streams})
        known = {app.id for app in before.apps}
        first = replace(before, apps=(*before.apps, *(app for app in apps if app.id not in known)))
        run = Simulation(
            first, streams, seed=run_seed, noise=noise_of(self.how.noise), horizon_ms=1000.0 * (lead_s + sample_s)
        )
        self._begin_without(run, before, segment.before.down)
        scheduled([(lead_s, replace(after, apps=first.apps))])(run)
        follow_load(run, after)
        if segment.situation is not None:
            self._fail(run, segment, after, lead_s, first)
        elif segment.now.down != segment.before.down or after is not before:
            had = set(self._gone_of(before, segment.before.down))
            run.at(1000.0 * lead_s + 1.0, lambda: self._go_over(run, after, segment.now.down, had))
        result = run.run(cancel=self.cancel)
        self.played += len(result.queries)
        return _counts(result, lead_s, min(HEAD_S, sample_s / 2.0))

    def _text(self, segment: _Segment, seed: int) -> dict[str, tuple[int, int]]:
        """Of each application that is text, how many of a million are in time."""
        wanted, prepared = self._text_rates(segment), self._prepared_for(segment)
        found: dict[str, tuple[int, int]] = dict.fromkeys(wanted, (MILLION, 0))
        names = segment.now.parts if prepared is None else prepared
        zones = zones_of(segment.situation) if segment.situation is not None and prepared is None else frozenset()
        for name, gone in self._gone_of_text(segment.now, names, zones).items():
            for app in (one for one in self.texts[name] if one in wanted):
                found[app] = (MILLION, round(MILLION * self.text.share(name, app, wanted[app], gone, seed)))
        return found

    def _first_of_text(self, segment: _Segment, seed: int, head_s: float) -> dict[str, tuple[int, int]]:
        """Of each application that is text, how many requests came in the first minute, and how many in time."""
        if segment.before == segment.now and segment.situation is None:
            return {}
        rates, earlier = self._text_rates(segment), dict(segment.before.rates)
        was = self._gone_of_text(segment.before, segment.before.parts)
        broken = self._gone_of_text(segment.now, segment.now.parts, zones_of(segment.situation or ""))
        later = {app: name for name in self._prepared_for(segment) or () for app in self.texts.get(name, ())}
        gone_now = self._gone_of_text(segment.now, segment.now.parts)
        found = dict[str, tuple[int, int]]()
        serves = {app: name for name in gone_now for app in self.texts[name] if app in rates}
        for app, name in serves.items():
            gone = gone_now[name]
            ran = [part for part in was if app in self.texts[part] and earlier.get(app, 0.0) > 0]
            before = Stood(ran[0], app, earlier[app], _sorted(was[ran[0]])) if ran else None
            # Machines of a part that goes on break; those of another part never came.
            lost = gone - was[name] if name in was else Counter[str]()
            if segment.situation is not None:
                lost = self.text.lost_to(name, later[app]) if app in later else broken[name] - gone
            now = Stood(name, app, rates[app], _sorted(gone - lost))
            found[app] = self.text.first_minute(
                Change(before, now, _sorted(lost), later.get(app), self.how.notice_s), seed, head_s
            )
        return found

    def _text_rates(self, segment: _Segment) -> dict[str, float]:
        """What comes to each application that is text; after a failure, what is kept of it."""
        keep = self.inputs.slo.limits.survive.serve if segment.situation is not None else 1.0
        return {app: keep * rate for app, rate in segment.now.rates if app in self.makes_text and rate > 0}

    def _prepared_for(self, segment: _Segment) -> Sequence[str] | None:
        return self._prepared(segment.period).get(segment.situation or "")

    def _gone_of_text(
        self, state: _State, names: Sequence[str], zones: Set[str | None] = frozenset()
    ) -> dict[str, Counter[str]]:
        """For each of these parts that makes text, which machines are gone; those in zones are."""
        down, lost = Counter(dict(state.down)), dict[str, int]()
        self.system(state.parts)
        for part, worker in ((name, one.id) for name in state.parts for one in self.parts[name].workers):
            if (group := self.groups.get((part, worker))) is not None:
                lost[worker] = min(down[self.offer[group.id]], group.count)
                down[self.offer[group.id]] -= lost[worker]
        return self.text.gone(names, down, zones, lost)

    def _as_it_comes(self, before: System, after: System, machines: Counter[str]) -> System:
        """The later system, where machines that stay are ready sooner.

        Those that only go over to another batch or share are ready at once. Those that hold other models then, or held
        none, run already: they take the time to load, and not the time to start.
        """
        had, known = Counter[tuple[str, tuple[str, ...]]](), {group.id: group.count for group in before.groups}
        for group in before.groups:
            had[self.offer[group.id], self.held[group.id]] += group.count
        more = [max(group.count - known.get(group.id, 0), 0) for group in after.groups]
        for group, count in zip(after.groups, more, strict=True):
            had[self.offer[group.id], self.held[group.id]] -= group.count - count
        groups = []
        for group, count in zip(after.groups, more, strict=True):
            kind = (self.offer[group.id], self.held[group.id])
            stays = 0 < count <= had[kind]
            if stays:
                had[kind] -= count
            groups.append(replace(group, ready_ms=0.0) if stays else group)
        spare = Counter(machines)
        more = [0 if group.ready_ms == 0.0 else count for group, count in zip(groups, more, strict=True)]
        for group, count in zip(groups, more, strict=True):
            spare[self.offer[group.id]] -= group.count - count
        for place, (group, count) in enumerate(zip(groups, more, strict=True)):
            offer = self.offer[group.id]
            if 0 < count <= spare[offer]:
                spare[offer] -= count
                started_ms = 1000.0 * self.inputs.profile.hardware[self._hardware(offer)].startup_s
                groups[place] = replace(group, ready_ms=max(group.ready_ms - started_ms, 0.0))
        return replace(after, groups=tuple(groups))

    def _hardware(self, offer: str) -> str:
        """The hardware of an offer; machines without an offer are named by theirs."""
        known = self.inputs.profile.offers.get(offer)
        return known.hardware if known is not None else offer

    def _rented(self, parts: Sequence[str]) -> Counter[str]:
        """Machines of each offer that these parts have, those that hold nothing too."""
        found = Counter[str]()
        for worker, _ in machines_with_users(self.parts[name] for name in parts):
            found[worker.offer or worker.hardware] += worker.count
        return found

    def _streams(
        self, before: System, segment: _Segment, lead_s: float, sample_s: float, seed: int, keep: float
    ) -> list[Stream]:
        earlier, later = dict(segment.before.rates), dict(segment.now.rates)
        streams, served = [], {app.id for app in before.apps}
        for number, app in enumerate(sorted(later)):
            wanted = self.inputs.slo.apps[app]
            if all(app not in part.rate_qps for name, part in self.parts.items() if name not in self.texts):
                continue
            process, random = steadily(wanted.arrivals), seeded(seed, 2 * number)
            parts = []
            if app in served:
                parts.append(arrival_times(process, rate_qps=earlier.get(app, 0.0), duration_s=lead_s, random=random))
            rate = keep * later[app]
            parts.append(lead_s + arrival_times(process, rate_qps=rate, duration_s=sample_s, random=random))
            times = np.concatenate(parts)
            streams.append(
                Stream(app, 1000.0 * times, draw_kinds(wanted.mix, len(times), seeded(seed, 2 * number + 1)))
            )
        return streams

    def _begin_without(self, run: Simulation, system: System, down: Down) -> None:
        """So many machines of each offer are gone from the beginning."""
        for group, worker in self._gone_of(system, down):
            run.at(0.0, lambda group=group, worker=worker: run.fail(group, worker))  # type: ignore[misc]

    def _go_over(self, run: Simulation, system: System, down: Down, had: set[tuple[str, int]]) -> None:
        """These machines are gone now; of those that were, the others are back."""
        gone = self._gone_of(system, down)
        for group, worker in gone:
            if (group, worker) not in had:
                run.fail(group, worker)
        counts = {group.id: group.count for group in system.groups}
        for group, worker in sorted(had - set(gone)):
            if worker < counts.get(group, 0):
                run.recover(group, worker)

    def _gone_of(self, system: System, down: Down) -> list[tuple[str, int]]:
        """Which machines are meant: their groups, and their numbers there."""
        found = list[tuple[str, int]]()
        for name, count in down:
            left = count
            for group in system.groups:
                if name in (group.id, self.offer[group.id]):
                    found += [(group.id, worker) for worker in range(min(left, group.count))]
                    left -= min(left, group.count)
        return list(dict.fromkeys(found))

    def _fail(self, run: Simulation, segment: _Segment, after: System, lead_s: float, first: System) -> None:
        """What a situation takes is gone at once; a little later the parts for it are in force."""
        names = self._prepared(segment.period).get(segment.situation or "")
        left = self.system(tuple(names)) if names is not None else None
        survivors = Counter[str]()
        stays = {group.id: group.count for group in left.groups} if left is not None else {}
        for group in after.groups if left is not None else ():  # first those that hold what they held
            stays[group.id] = min(stays.get(group.id, 0), group.count)
            survivors[self.offer[group.id]] -= stays[group.id]
        for group in left.groups if left is not None else ():
            survivors[self.offer[group.id]] += group.count
        if names is None:
            zones = zones_of(segment.situation or "")
            for group in after.groups:
                offer = self.inputs.profile.offers.get(self.offer[group.id])
                if offer is None or offer.zone not in zones:
                    survivors[self.offer[group.id]] += group.count
        gone = list[tuple[str, int]]()
        serving = {way.group for route in after.routes for way in route.ways}
        for group in sorted(after.groups, key=lambda group: group.id in serving):  # who serves is lost before who waits
            more = min(survivors[self.offer[group.id]], group.count - stays.get(group.id, 0))
            survivors[self.offer[group.id]] -= more
            stay = stays.get(group.id, 0) + more
            # The last ones: a group that shrinks keeps its first.
            gone += [(group.id, worker) for worker in range(stay, group.count)]

        def broken() -> None:
            for group_id, worker in gone:
                run.fail(group_id, worker)

        run.at(1000.0 * lead_s + 1.0, broken)
        if left is not None:
            settled = replace(self._as_it_comes(after, left, self._rented(segment.now.parts)), apps=first.apps)
            run.at(1000.0 * (lead_s + self.how.notice_s) + 1.0, lambda: run.change(settled))

    # The whole

    def report(self) -> DayReport:
        """All segments, and every failure in every period."""
        segments = self.segments()
        failures = self._failures()
        unique = {(one.before, one.now, one.situation) for one in (*segments, *failures)}
        self.expected = max(len(unique), 1)
        each = self.how.queries / self.expected
        shares = _Shares(self, each)
        hours = tuple(self._hour(number, segments, shares) for number in range(len(self.plan.periods)))
        worst = tuple(self._worst(name, failures, shares) for name in dict.fromkeys(one.situation for one in failures))
        total = {app: shares.over(segments, app) for app in sorted({app for hour in hours for app in hour.in_time})}
        stands_for = sum(rate * one.length_s for one in segments for _, rate in one.now.rates)
        bill = getattr(self.plan, "bill", None)
        return DayReport(
            plan=self.plan.digest, hours=hours, failures=worst, in_time=total,
            cost_per_hour=bill.cost_per_hour if bill is not None else None,
            currency=self.inputs.slo.limits.currency, windows=len(self.windows), segments=len(segments),
            played=self.played + self.text.played, stands_for=stands_for, taken=self.taken,
        )  # fmt: skip

    def _prepared(self, number: int) -> Mapping[str, tuple[str, ...]]:
        """What the plan runs after each failure in a period."""
        found: Mapping[str, tuple[str, ...]] | None = getattr(self.plan.periods[number], "failures", None)
        return found or {}

    def _failures(self) -> list[_Segment]:
        """Each failure that the plan is prepared for, or that was named, in each period."""
        count = len(self.plan.periods)
        known = list(dict.fromkeys(name for number in range(count) for name in self._prepared(number)))
        zones = sorted({offer.zone for offer in self.inputs.profile.offers.values() if offer.zone is not None})
        named = known if self.how.situations is None else list(self.how.situations)
        for name in named:
            if name not in known and not zones_of(name) <= set(zones) - {None}:
                possible = [*known, *(f"zone {zone} lost" for zone in zones if f"zone {zone} lost" not in known)]
                raise InputError.one(
                    file="--fail", value=name, why="there is no such failure",
                    remedy=f"It may be: {'; '.join(possible) or 'none, as no offer has a zone'}.",
                )  # fmt: skip
        hours = range(count) if self.how.hour is None else [self.how.hour]
        if not set(hours) <= set(range(count)):
            raise InputError.one(
                file="--fail", value=self.how.hour or 0, why="the plan has no period of this number",
                remedy=f"Its {count} periods are 0 to {count - 1}.",
            )  # fmt: skip
        states = [(number, self._state(number)) for number in hours]
        return [
            _Segment(number, LEAST_SAMPLE_S + 2 * HEAD_S, state, state, name)
            for number, state in states
            for name in named
        ]

    def _hour(self, number: int, segments: Sequence[_Segment], shares: _Shares) -> HourReport:
        period, mine = self.plan.periods[number], [one for one in segments if one.period == number]
        rates = dict(mine[0].now.rates)
        alike = [(one.before, one.now) for one in mine]
        same = next(
            one.period for one in segments
            if [(s.before, s.now) for s in segments if s.period == one.period] == alike
        )  # fmt: skip
        return HourReport(
            period=period.id, start_s=period.start_s, rates_qps=rates,
            in_time={app: shares.over(mine, app) for app in rates},
            promised={app: self._promised(app) for app in rates}, as_played=self.plan.periods[same].id,
        )  # fmt: skip

    def _worst(self, situation: str | None, failures: Sequence[_Segment], shares: _Shares) -> FailureReport:
        """The period in which the failure comes nearest to breaking a promise."""
        mine = [one for one in failures if one.situation == situation]
        apps = [app for app, _ in mine[0].now.rates]
        after = [{app: shares.part(one, app, "rest") for app in apps} for one in mine]
        promised = {app: self._promised(app) for app in apps}

        def room(found: Mapping[str, Estimate]) -> float:
            left = ((one.value - promised[app]) / max(1.0 - promised[app], 1e-9) for app, one in found.items())
            return min(left, default=1.0)

        place = min(range(len(mine)), key=lambda number: room(after[number]))
        chosen = mine[place]
        return FailureReport(
            situation=situation or "", period=self.plan.periods[chosen.period].id,
            at_first={app: shares.part(chosen, app, "head") for app in apps},
            after=after[place], promised=promised,
        )  # fmt: skip

    def _promised(self, app: str) -> float:
        wanted = self.inputs.slo.apps[app]
        if app in self.makes_text:
            return promised_of_text(wanted)
        shares = [target.percentile / 100.0 for target in response_targets(wanted)]
        return max(shares, default=0.99)


class _Shares:
    """Shares in time of segments, per seed, from the windows played for them."""

    def __init__(self, day: _Day, queries: float) -> None:
        self.day, self.queries = day, queries

    def sample_s(self, segment: _Segment) -> float:
        """How long a segment is sampled."""
        rate = sum(rate for _, rate in segment.now.rates)
        return float(min(segment.length_s, max(LEAST_SAMPLE_S + HEAD_S, self.queries / max(rate, 1e-9))))

    def _parts(self, segment: _Segment, app: str) -> list[tuple[float, float]]:
        """Per seed, the share in time in the first minute and after it."""
        found = []
        for counts in self.day._counted(segment, self.sample_s(segment)):
            head, rest = counts.head.get(app, (0, 0)), counts.rest.get(app, (0, 0))
            late = rest[1] / rest[0] if rest[0] else 1.0
            found.append((head[1] / head[0] if head[0] else late, late))
        return found

    def part(self, segment: _Segment, app: str, which: str) -> Estimate:
        """One part of a segment."""
        return mean_share([one[which == "rest"] for one in self._parts(segment, app)])

    def over(self, segments: Iterable[_Segment], app: str) -> Estimate:
        """All of these segments together, by how many queries come in each part of them."""
        came, good = 0.0, np.zeros(self.day.how.seeds)
        for segment in segments:
            rate = dict(segment.now.rates).get(app, 0.0)
            head_s = min(HEAD_S, self.sample_s(segment) / 2.0, segment.length_s)
            for seed, (head, rest) in enumerate(self._parts(segment, app)):
                good[seed] += rate * (head_s * head + (segment.length_s - head_s) * rest)
            came += rate * segment.length_s
        return mean_share((good / came).tolist() if came > 0 else [1.0])


def _counts(result: Any, lead_s: float, head_s: float) -> _Counts:
    every = result.columns
    at: NDArray[np.float64] = every.arrival / 1000.0
    head = (at >= lead_s) & (at < lead_s + head_s)
    rest = at >= lead_s + head_s
    found = _Counts({}, {})
    for row, app in enumerate(result.apps):
        mine = every.app == row
        found.head[app] = (int((mine & head).sum()), int((mine & head & every.in_time).sum()))
        found.rest[app] = (int((mine & rest).sum()), int((mine & rest & every.in_time).sum()))
    return found


def _sorted(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counts.items()))


def _still(missing: Mapping[str, tuple[float, int]], since_s: float) -> Down:
    """Which of the machines that start are not there yet."""
    return tuple(sorted((group, count) for group, (ready_s, count) in missing.items() if ready_s > since_s))


def _also(
    steps: Sequence[tuple[float, Down]], missing: Mapping[str, tuple[float, int]], period: Period
) -> list[tuple[float, Down]]:
    """Steps of a period, with the machines that are not there yet."""
    begin, end = period.start_s, _end(period)
    times = {at for at, _ in steps} | {begin + ready_s for ready_s, _ in missing.values()}
    found = list[tuple[float, Down]]()
    for at in sorted(at for at in times if at < end):
        down = next(down for since, down in reversed(steps) if since <= at)
        found.append((at, (*down, *_still(missing, at - begin))))
    return found


def _end(period: Period) -> float:
    if period.end_s is None:
        raise InputError.one(
            file="plan", path="$.periods", value=period.id, why="a period without an end", remedy="Give it end_s."
        )
    return period.end_s
