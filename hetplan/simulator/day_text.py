"""Text within a day that is played: each hour, and what each failure leaves, token by token for so many requests.

Machines that make text are played by laws of their own (`tokens`). An hour is a steady load on the hour's machines,
once they have filled; hours of the same machines and rate are played once. The first minute of a change is a run by
itself (`token_run`): what ran before fills, machines that come have started by then, what is lost breaks, and the parts
for a failure are in force a little later. In time is a request that keeps all limits at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.operating_points import limits_of
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_parts import Part
from hetplan.profiles.plan_periods import inputs_of_part, of_part
from hetplan.profiles.slo import App
from hetplan.serving.tokens import (
    Group,
    TextSystem,
    TokenFleet,
    demand_of,
    fleet_of_plan,
    settling_s,
    text_system,
)
from hetplan.simulator.demand import arrival_times, seeded, steadily
from hetplan.simulator.runs import seed_of
from hetplan.simulator.token_run import TokenRun
from hetplan.simulator.tokens import drawn_at, steady_goodput

__all__ = ["Change", "DayText", "Stood", "promised_of_text", "running", "zones_of"]

Floats = NDArray[np.float64]

MOST_REQUESTS = 200_000
"""So many requests of an hour are played per seed at most."""


@dataclass(frozen=True)
class Stood:
    """An application of a part that makes text, at a rate; so many machines of the part's workers are gone."""

    part: str
    app: str
    rate: float
    gone: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Change:
    """What ran `before` (None: nothing did) and what runs from then on; `lost` breaks then, and `later` is in force
    after `notice_s`: the part for a failure."""

    before: Stood | None
    now: Stood
    lost: tuple[tuple[str, int], ...] = ()
    later: str | None = None
    notice_s: float = 0.0


def promised_of_text(wanted: App) -> float:
    """The share that is asked to keep all limits at once; of percentiles, what they say of all of them together."""
    if wanted.attainment is not None:
        return wanted.attainment
    return max(0.0, 1.0 - sum(1.0 - target.percentile / 100.0 for target in wanted.targets))


def zones_of(situation: str) -> set[str | None]:
    """The zones that a situation's name says are lost; what is no zone for any other name.

    >>> sorted(zones_of("zone a and b lost"))
    ['a', 'b']
    """
    if situation.startswith("zone ") and situation.endswith(" lost"):
        return set(situation[len("zone ") : -len(" lost")].split(" and "))
    return {""}


def running(has: Counter[tuple[tuple[str, ...], str]], apps: tuple[str, ...], offer: str, count: int) -> int:
    """How many of so many machines run already, by what these applications have together of an offer: less of it now.

    >>> running(has := Counter({(("a", "b"), "o"): 2, (("a",), "o"): 1}), ("a", "b"), "o", 3), +has
    (2, Counter({(('a',), 'o'): 1}))
    """
    kept = min(count, has[apps, offer])
    has[apps, offer] -= kept
    return kept


@dataclass
class DayText:
    """The parts of a plan that make text, by name; each played at the rates and with the machines that are asked.

    Applications that share machines are played one by one: each engine has its own cards.
    """

    plan: Plan
    inputs: Inputs
    seed: int
    played: int = 0
    _shares: dict[object, float] = field(default_factory=dict)
    _fleets: dict[tuple[str, str], TokenFleet] = field(default_factory=dict)
    _changes: dict[object, tuple[int, int]] = field(default_factory=dict)

    @cached_property
    def promised(self) -> Mapping[tuple[str | None, str | None], float]:
        """Rates that are promised, by application and period: parts may be planned for more."""
        said = (one for one in self.plan.promises if one.quantity == "rate_qps" and one.situation is None)
        return {(one.app, one.period): one.value for one in said}

    @property
    def parts(self) -> Mapping[str, Part]:
        """The parts that make text."""
        return {name: part for name, part in (self.plan.parts or {}).items() if part.question == "llm"}

    def machines(self, name: str) -> dict[str, tuple[str, int]]:
        """Workers of a part, with their offer and how many they are."""
        return {one.id: (one.offer or one.hardware, one.count) for one in self.parts[name].workers}

    def gone(
        self, names: Sequence[str], down: Counter[str], zones: Set[str | None], shared: Mapping[str, int]
    ) -> dict[str, Counter[str]]:
        """Of these parts that make text, which machines are gone: so many of each offer, of a worker, or of zones.

        Of workers that other parts have too, those are gone that they lost: `shared` says how many.
        """
        found, left = dict[str, Counter[str]](), down.copy()
        for name in (name for name in names if name in self.parts):
            lost = Counter[str]()
            for worker, (offer, count) in self.machines(name).items():
                known = self.inputs.profile.offers.get(offer)
                taken = min(shared.get(worker, left[offer]), count)
                lost[worker] = taken + left[f"{name}/{worker}"]
                left[offer] -= 0 if worker in shared else taken
                if known is not None and known.zone in zones:
                    lost[worker] = count
            found[name] = +lost
        return found

    def lost_to(self, name: str, later: str) -> Counter[str]:
        """Workers of a part whose machines the part for a failure does not have: of each offer, the last of them."""
        left, lost = Counter[str](), Counter[str]()
        for offer, count in self.machines(later).values():
            left[offer] += count
        for worker, (offer, count) in self.machines(name).items():
            lost[worker] = count - min(left[offer], count)
            left[offer] -= min(left[offer], count)
        return +lost

    def share(self, name: str, app: str, rate: float, gone: Mapping[str, int], number: int) -> float:
        """In time of an application's requests at a rate, where so many machines of the part's workers are gone.

        The seed is by number.
        """
        key = (name, app, rate, tuple(sorted(gone.items())), number)
        if key not in self._shares:
            self._shares[key] = self._play(name, app, rate, gone, number)
        return self._shares[key]

    def _play(self, name: str, app: str, rate: float, gone: Mapping[str, int], number: int) -> float:
        wanted, whole = self.inputs.slo.apps[app], self._fleet(name, app)
        owner = {load.id: worker.id for worker in self.parts[name].workers for load in worker.loads}
        counts = {one.id: worker.count for worker in self.parts[name].workers for one in worker.loads}
        groups = list[Group]()
        for group in whole.groups:
            left = counts[group.id] - gone.get(owner[group.id], 0)
            each = group.count // max(counts[group.id], 1)
            groups.append(replace(group, count=each * max(left, 0)))
        held = [group for group in groups if group.count > 0]
        if {group.law.role for group in held} != {group.law.role for group in whole.groups} or not held:
            return 0.0
        seed, fleet = seed_of(self.seed, number), replace(whole, groups=tuple(held))
        share, count = steady_goodput(fleet, wanted, rate, seed=seed, most=MOST_REQUESTS)
        self.played += count
        return share

    def first_minute(self, change: Change, number: int, head_s: float) -> tuple[int, int]:
        """How many requests come in the first `head_s` of a change, and how many are in time; seed by number."""
        key = (change, number, head_s)
        if key not in self._changes:
            self._changes[key] = self._run(change, number, head_s)
        return self._changes[key]

    def _run(self, change: Change, number: int, head_s: float) -> tuple[int, int]:
        app, now = change.now.app, self._system(change.now)
        before = now if change.before is None else self._system(change.before)
        wanted, rate = self.inputs.slo.apps[app], change.now.rate
        demand, limits = demand_of(wanted.mix, wanted.arrivals, rate), limits_of(wanted)
        had = {crew.id: crew.count for crew in before.crews}
        starts_ms = max((crew.ready_ms for crew in now.crews if crew.count > had.get(crew.id, 0)), default=0.0)
        fills_s = settling_s(demand, limits, [group.law for group in before.fleet.groups])
        lead_s = 0.0 if change.before is None else 2.0 * fills_s + starts_ms / 1000.0
        seed = seed_of(self.seed, number)
        process, random = steadily(demand.arrivals), seeded(seed, 0)
        steps = [(change.before.rate, lead_s)] if change.before is not None else []
        times, begin_s = list[Floats](), 0.0
        for qps, lasts_s in (*steps, (rate, head_s)):
            times.append(begin_s + arrival_times(process, rate_qps=qps, duration_s=lasts_s, random=random))
            begin_s += lasts_s
        coming = drawn_at(demand, np.concatenate(times), seed=seed)
        run = TokenRun(app, before, coming, seed, 1000.0 * (lead_s + head_s))
        if change.before is not None:
            run.at(1000.0 * lead_s - starts_ms, lambda: run.change(now))
        for name, count in self._crews_of(change.now, dict(change.lost)).items():
            run.at(1000.0 * lead_s + 1.0, lambda name=name, count=count: run.fail(name, count))  # type: ignore[misc]
        if change.later is not None:
            later = self._system(Stood(change.later, app, rate))
            run.at(1000.0 * (lead_s + change.notice_s) + 1.0, lambda: run.change(later))
        played = run.finish()
        self.played += len(played.arrival_ms)
        head = played.arrival_ms >= 1000.0 * lead_s
        return int(head.sum()), int((head & played.within(limits)).sum())

    def _system(self, stood: Stood) -> TextSystem:
        """What runs of a part for an application, without the machines that are gone."""
        alone, files = self._of_part(stood.part)
        system, missing = text_system(alone, files, stood.app).by_kind(), self._crews_of(stood, dict(stood.gone))
        return system.sized({crew.id: max(crew.count - missing.get(crew.id, 0), 0) for crew in system.crews})

    def _crews_of(self, stood: Stood, machines: Mapping[str, int]) -> dict[str, int]:
        """Machines of workers, as crews of the application have them."""
        (alone, files), found = self._of_part(stood.part), dict[str, int]()
        for worker in (one for one in alone.workers if machines.get(one.id)):
            for crew in text_system(alone.model_copy(update={"workers": (worker,)}), files, stood.app).crews:
                found[crew.kind] = found.get(crew.kind, 0) + machines[worker.id]
        return found

    def _fleet(self, name: str, app: str) -> TokenFleet:
        if (name, app) not in self._fleets:
            self._fleets[name, app] = fleet_of_plan(*self._of_part(name), app)
        return self._fleets[name, app]

    def _of_part(self, name: str) -> tuple[Plan, Inputs]:
        return of_part(self.plan, name), inputs_of_part(self.inputs, self.parts[name].rate_qps)
