"""A fleet's plan beside its files: what each part is asked, what each period had, and what may fail."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_parts import Part
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import App, Horizon, Survive, WishLimits, answered_by
from hetplan.profiles.workers import Worker

__all__ = [
    "BESIDE",
    "IN_SLICES",
    "Fleet",
    "carried_rates",
    "files_of_part",
    "is_same",
    "loaded_variants",
    "lost_in",
    "one_variant",
    "users_of",
    "without_commitments",
]

IN_SLICES = ("pool", "llm")
"""Questions whose applications share machines in slices alone: what an instance does depends on no neighbour."""
BESIDE = ("variants", "pipeline")
"""Questions whose plans put instances of several applications on a machine; with other questions they share slices."""


def is_same(one: float, other: float) -> bool:
    """Whether two figures are the same but for their digits in a file."""
    return math.isclose(one, other, rel_tol=1e-8, abs_tol=1e-9)


@dataclass(frozen=True)
class Fleet:
    """A plan with parts beside its files, read once."""

    plan: Plan
    inputs: Inputs

    @cached_property
    def parts(self) -> Mapping[str, Part]:
        """Its parts."""
        return self.plan.parts or {}

    @cached_property
    def hours(self) -> float:
        """Length of a period."""
        return self.inputs.slo.horizon.period_s / 3600.0

    @cached_property
    def ahead(self) -> Mapping[str, int]:
        """Machines of each offer that are paid for ahead."""
        return {one.offer: one.count for one in self.plan.commitments or ()}

    @cached_property
    def rates(self) -> Mapping[str, tuple[float, ...]]:
        """What each application asks for, period by period, read from the files; of the most, what is promised."""
        said = {one.app: one.value for one in self.plan.promises if one.quantity == "rate_qps" and not one.situation}
        return {
            name: (said.get(name, math.nan),) * len(self.plan.periods)
            if app.wants_most
            else _rates(self.inputs, name, app)
            for name, app in self.inputs.slo.apps.items()
        }

    def machines(self, names: Sequence[str]) -> list[tuple[Worker, list[tuple[str, Worker]]]]:
        """Groups of machines of these parts, each once, with the parts that have loads there: whoever counts machines.

        A worker that several parts name is one group of machines; whether they may is said in `fleet_shared`.
        """
        found: dict[str, list[tuple[str, Worker]]] = {}
        for name in names:
            for number, worker in enumerate(self.parts[name].workers):
                before = found.setdefault(worker.id, [])
                one = before if name not in dict(before) else found.setdefault(f"{worker.id} {name} {number}", [])
                one.append((name, worker))
        return [(held[0][1], held) for held in found.values()]

    def users(self, held: Sequence[tuple[str, Worker]]) -> set[str]:
        """The applications on such machines."""
        return {app for name, worker in held for app in users_of(self.parts[name], worker)}

    @cached_property
    def sharers(self) -> dict[str, str]:
        """Pools and text that share machines in slices, with a part of each: one of several, or with other parts'."""
        runs = [names for one in self.plan.periods for names in (one.parts or (), *(one.failures or {}).values())]
        groups = (held for names in runs for _, held in self.machines(names))
        mixed = {name for held in groups if len(held) > 1 for name, _ in held}
        found: dict[str, str] = {}
        for name, part in self.parts.items():
            if part.question in IN_SLICES and (len(part.rate_qps) > 1 or name in mixed):
                found = {**dict.fromkeys(part.rate_qps, name), **found}
        return found

    def together(self, names: Sequence[str]) -> dict[str, str]:
        """Of each application in these parts, who has machines with it: those of its part, and of parts on the same."""
        groups = [{*self.parts[name].rate_qps} for name in names]
        for _, held in self.machines(names):
            users = {app for name, _ in held for app in self.parts[name].rate_qps}
            joined = [group for group in groups if group & users]
            groups = [*(group for group in groups if not group & users), {*users}.union(*joined)]
        return {app: ", ".join(sorted(group)) for group in groups for app in group}

    def used(self, names: Sequence[str], whose: Mapping[str, str]) -> dict[str, Counter[str]]:
        """Machines of each offer that these parts take, by `whose` they are (`together`)."""
        found: dict[str, Counter[str]] = {}
        for worker, held in self.machines(names):
            app = next(iter(self.parts[held[0][0]].rate_qps), "")
            own = found.setdefault(whose.get(app, app), Counter())
            own[worker.offer or ""] += worker.count + worker.standby
        return found

    def shares(self, names: tuple[str, ...]) -> dict[str, dict[str, float]]:
        """The same by application alone: a machine that several of them use is as much of it to each."""
        found: dict[str, dict[str, float]] = {}
        for worker, held in self.machines(names):
            offer, users = worker.offer or "", self.users(held)
            for app in users:
                own = found.setdefault(app, {})
                own[offer] = own.get(offer, 0.0) + (worker.count + worker.standby) / len(users)
        return found

    def contents(self, names: Sequence[str]) -> Counter[tuple[str, tuple[str, ...]]]:
        """Machines of those who share some in slices: of which offer, and whose instances are on one."""
        found = Counter[tuple[str, tuple[str, ...]]]()
        for worker, held in self.machines(names):
            if any(self.sharers.keys() & self.parts[name].rate_qps.keys() for name, _ in held):
                loads = (load for _, one in held for load in one.loads)
                whose = sorted(load.app or "" for load in loads for _ in range(load.instances))
                found[worker.offer or "", tuple(whose)] += worker.count
        return found

    def price(self, offer: str) -> float:
        """What a machine costs per hour by the hour."""
        sold = self.inputs.profile.offers[offer]
        amount = 1.0 if sold.per is None else self.inputs.profile.hardware[sold.hardware].provides.get(sold.per, 0.0)
        return sold.price_per_hour * amount / NANO

    def start_cost(self, offer: str, before: float, after: float) -> float:
        """What the machines of an offer that are new cost while they start, once; nothing where starts cost nothing."""
        if not self.inputs.slo.horizon.starts:
            return 0.0
        hardware = self.inputs.profile.hardware[self.inputs.profile.offers[offer].hardware]
        return max(after - before, 0.0) * self.price(offer) * hardware.startup_s / 3600.0

    def price_ahead(self, offer: str) -> float:
        """What a machine costs per hour that is paid for ahead, its upfront spread over the term."""
        commit = self.inputs.profile.offers[offer].commit
        if commit is None:
            return math.nan
        own = commit.price_per_hour
        per_hour = own / NANO if own is not None else self.price(offer) * (1.0 - (commit.discount or 0.0))
        return per_hour + commit.upfront / NANO * 3600.0 / commit.term_s

    @cached_property
    def totals(self) -> dict[str, Counter[str]]:
        """Machines of each offer that are had in each period, used or not, as the bill says."""
        found: dict[str, dict[str, float]] = {period.id: {} for period in self.plan.periods}
        for line in self.plan.bill.lines if self.plan.bill is not None else ():
            if line.period in found:
                own = found[line.period]
                own[line.offer] = own.get(line.offer, 0.0) + line.committed + line.rented
        whole = {period: {offer: round(count, 6) for offer, count in own.items()} for period, own in found.items()}
        return {period: Counter(own) for period, own in whole.items()}


def users_of(part: Part, worker: Worker) -> set[str]:
    """The applications that have loads on a worker, or send queries to them; else all of the part."""
    held = {load.id for load in worker.loads}
    sent = {app for app, routes in part.routing.items() if any(not held.isdisjoint(one.to) for one in routes)}
    return (sent | {load.app for load in worker.loads if load.app is not None}) or set(part.rate_qps)


def carried_rates(part: Part) -> dict[str, float]:
    """Up to which rate of each application a part carries by itself: as it promises, a policy as its tables say."""
    said = [one for one in part.promises if one.quantity == "rate_qps" and one.relation != "<="]
    found = {one.app or "": one.value for one in reversed(said)}
    for app, tables in (part.policies if part.question == "policy" else {}).items():
        tops: dict[str, float] = {}
        for table in tables:
            tops[table.workers] = max(tops.get(table.workers, 0.0), table.rate_qps)
        found[app] = sum(tops.values())
    return {app: rate for app, rate in found.items() if app in part.rate_qps}


def _rates(inputs: Inputs, name: str, app: App) -> tuple[float, ...]:
    trace, horizon = app.trace, inputs.slo.horizon
    if trace is not None and trace.period_s is not None:
        times, windows = inputs.traces.get(name, ()), Counter[int]()
        for time in times:
            windows[int(time // trace.period_s)] += 1
        whole = int(times[-1] // trace.period_s) if len(times) else 0
        held: dict[int, list[float]] = {}
        for window in range(max(whole, 1)):
            period = int(window * trace.period_s // horizon.period_s) % horizon.periods
            held.setdefault(period, []).append(windows[window] / trace.period_s)
        share = (100.0 if trace.percentile is None else trace.percentile) / 100.0
        return tuple(_quantile(sorted(held.get(p, [math.inf])), share) for p in range(horizon.periods))
    if app.series is not None:
        return app.series
    return (math.nan if app.stated_qps is None else app.stated_qps,) * horizon.periods


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def files_of_part(inputs: Inputs, part: Part) -> Inputs:
    """The files that ask for this part alone: its applications at its rates, in one period, with no other limit."""
    slo = inputs.slo
    apps = {}
    for name, rate in part.rate_qps.items():
        apps[name] = slo.apps[name].at_rate(rate).model_copy(update={"question": None})
    counts: Counter[str] = Counter()
    for worker in part.workers:
        counts[worker.hardware] += worker.count + worker.standby
    instances: dict[str, tuple[int, int | None]] = {name: (0, count) for name, count in counts.items()}
    aim = {"policy": ("min machines",), "pipeline": ("min cost",)}.get(part.question, ())
    listed = part.question != "llm"  # which refuses that field
    limits = WishLimits(currency=slo.limits.currency, instances=instances, only_listed=listed, survive=Survive())
    wish = slo.model_copy(update={"apps": apps, "limits": limits, "horizon": Horizon(), "objective": aim})
    profile = without_commitments(inputs.profile).model_copy(update={"zones": {}, "hosts": {}})
    return replace(inputs, slo=wish, profile=profile, state=None, traces={}, warnings=())


def without_commitments(profile: Profile) -> Profile:
    """The profile without machines that are paid for ahead; itself where it has none."""
    if all(one.commit is None for one in profile.offers.values()):
        return profile
    offers = {name: one.model_copy(update={"commit": None}) for name, one in profile.offers.items()}
    return profile.model_copy(update={"offers": offers})


def loaded_variants(part: Part, app: str | None = None) -> list[str]:
    """The variants that a part runs (for an application), each once."""
    loads = (load for worker in part.workers for load in worker.loads if app is None or load.app == app)
    return sorted({load.variant for load in loads if load.variant is not None})


def one_variant(inputs: Inputs, part: Part) -> Inputs:
    """The files of a pool that say which variant was chosen; that it may be is seen to before."""
    apps = dict(inputs.slo.apps)
    for name in part.rate_qps:
        names = loaded_variants(part, name)
        if len(names) == 1:
            apps[name] = apps[name].model_copy(update={**answered_by(names[0]), "quality": None})
    return replace(inputs, slo=inputs.slo.model_copy(update={"apps": apps}))


def lost_in(fleet: Fleet) -> dict[str, Any]:
    """Each situation: which offers are gone, or which hardware loses how many machines."""
    survive, offers = fleet.inputs.slo.limits.survive, fleet.inputs.profile.offers
    zones = sorted({offer.zone for offer in offers.values() if offer.zone is not None})
    spot = {name for name, offer in offers.items() if offer.interruptions_per_hour is not None}
    found: dict[str, Any] = {}
    if survive.zones:
        for lost in combinations(zones, survive.zones):
            found[f"zone {' and '.join(lost)} lost"] = {name for name, one in offers.items() if one.zone in lost}
    if survive.spot == "all":
        found["all spot gone"] = spot
    elif survive.spot == "zone":
        for zone in (*zones, *(() if zones else (None,))):
            gone = {name for name in spot if offers[name].zone == zone}
            if gone:
                found[f"spot of {zone or 'everywhere'} gone"] = gone
    if survive.machines:
        used = {worker.hardware for part in fleet.parts.values() for worker in part.workers}
        for hardware in used:
            found[f"{survive.machines} {hardware} lost"] = (hardware, survive.machines)
    return found
