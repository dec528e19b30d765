"""INFaaS' greedy rule (Section 4.2.2) with its counters, and its baselines: replicate what runs, or change nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hetplan.extend import Ask, Draft, Infeasibility, Room, Snapshot, capacity_rooms, plan_instances
from hetplan_papers.variants.options import GreedyOptions

__all__ = ["greedy_counts", "keep_running", "replicate_only", "scale_greedily"]

Integers = NDArray[np.int64]

COUNTER = "scale_down"
"""Looks in a row at which a running load could have been scaled down; the plan hands it to the next state."""
CEILING = 1e-9
"""What is this near above a whole number counts as that number."""


@dataclass
class _Scaler:
    """Instances per application and item while the rule goes from one application to the next.

    `takes` is what an item takes of each room, `up` what an instance more of it costs, loading included.
    """

    v: Snapshot
    own: list[dict[int, int]]
    serving: list[dict[int, float]]
    rooms: tuple[Room, ...]
    takes: list[list[float]]
    most: list[float]
    used: list[float]
    cost: list[float]
    up: list[float]
    counters: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, v: Snapshot) -> _Scaler:
        """What runs now, each instance given to the first application that it may serve."""
        own: list[dict[int, int]] = [{} for _ in v.asked]
        serving: list[dict[int, float]] = [{} for _ in v.asked]
        left = v.running.tolist()
        for i, item in enumerate(v.items):
            for s in item.serves:
                serving[s.app][i] = s.qps
            if left[item.kind] > 0:
                own[item.serves[0].app][i] = left[item.kind]
                left[item.kind] = 0
        bounds = capacity_rooms(v)
        takes = np.array([room.use for room in bounds]).reshape(len(bounds), len(v.items))
        most = [room.size * (1 + 1e-9) + 1e-9 for room in bounds]
        made = cls(
            v, own, serving, bounds, takes.T.tolist(), most, [], v.C.tolist(), (v.C + v.loading).tolist()
        )  # fmt: skip
        made.used = (takes @ made.counts()).tolist()
        return made

    def counts(self) -> Integers:
        """All instances, per item."""
        x = [0] * len(self.v.items)
        for mine in self.own:
            for i, count in mine.items():
                x[i] += count
        return np.array(x, dtype=np.int64)

    def rate(self, b: int) -> float:
        """What the instances of an application serve at saturation."""
        serving = self.serving[b]
        return sum([serving[i] * count for i, count in self.own[b].items()])

    def fits(self, change: Mapping[int, int]) -> bool:
        """Whether the rooms allow a change of counts."""
        for k, most in enumerate(self.most):
            more = 0.0
            for i, count in change.items():
                more += self.takes[i][k] * count
            if more > 0 and self.used[k] + more > most:
                return False
        return True

    def apply(self, b: int, change: Mapping[int, int]) -> None:
        """Make a change."""
        own = self.own[b]
        for i, count in change.items():
            own[i] = own.get(i, 0) + count
            for k, amount in enumerate(self.takes[i]):
                self.used[k] += amount * count

    def come_inside(self) -> None:
        """Where more runs than there is room for, the largest goes first."""
        for k, most in enumerate(self.most):
            while self.used[k] > most:
                here = [(self.takes[i][k], i, b) for b, mine in enumerate(self.own) for i, n in mine.items() if n > 0]
                _, i, b = max(here)
                self.apply(b, {i: -1})

    def price(self, change: Mapping[int, int]) -> float:
        """Cost(delta): what comes is loaded, what goes is saved."""
        total = 0.0
        for i, n in change.items():
            total += self.up[i] * n if n > 0 else self.cost[i] * n
        return total

    def scale_up(self, b: int, need: float, rate: float) -> None:
        """Replicate what runs, or bring up another variant, on top or instead: the cheapest that fits."""
        changes = [c for c in self._more(b, need, need - rate) if self.fits(c)]
        if changes:
            self.apply(b, min(changes, key=lambda c: (self.price(c), sorted(c.items()))))
        else:
            self._as_much_as_fits(b, need)

    def _more(self, b: int, need: float, missing: float) -> Iterator[dict[int, int]]:
        now = {i: count for i, count in self.own[b].items() if count > 0}
        slowest = min((self.serving[b][i] for i in now), default=0.0)
        for i, qps in self.serving[b].items():
            if i in now:
                yield {i: math.ceil(missing / qps - CEILING)}
            elif qps > slowest:
                yield {i: math.ceil(missing / qps - CEILING)}
                yield {i: math.ceil(need / qps - CEILING), **{j: -count for j, count in now.items()}}

    def _as_much_as_fits(self, b: int, need: float) -> None:
        """Nothing serves all: what still fits, the cheapest rate first; the rest asks for a worker."""
        for i in sorted(self.serving[b], key=lambda i: (self.cost[i] / self.serving[b][i], i)):
            while self.rate(b) < need * (1 - CEILING) and self.fits({i: 1}):
                self.apply(b, {i: 1})

    def scale_down(self, b: int, slot_s: float, need: float, rate: float) -> None:
        """One instance fewer, or a cheaper variant: after T_v looks in a row at which it would have done."""
        now = [i for i, count in self.own[b].items() if count > 0]
        for i in sorted(now, key=lambda i: (-self.cost[i], i)):
            change = self._less(b, i, need, rate)
            kind = self.v.items[i].kind
            slots = self.v.slots_of_kind.get(kind, ())
            if change is None:
                for slot in slots:
                    self.counters[slot.load.id] = 0
                continue
            before = max((self._counter(s.load.id) for s in slots), default=0)
            wanted = max(1, math.ceil(self.v.kinds[kind].choice.load_s / slot_s))
            acts = before + 1 >= wanted or need <= 0
            for slot in slots:
                self.counters[slot.load.id] = 0 if acts else before + 1
            if acts:
                self.apply(b, change)
                return

    def _less(self, b: int, i: int, need: float, rate: float) -> dict[int, int] | None:
        """The cheaper counts that would still do (None: there are none)."""
        qps, count = self.serving[b][i], self.own[b][i]
        if need <= 0:
            return {i: -count}
        if rate - qps >= need * (1 - CEILING):
            return {i: -1}
        rest = need - (rate - qps * count)
        if rest <= 0:
            return None
        others, spent = [], self.cost[i] * count
        for j, other in self.serving[b].items():
            if self.up[j] >= spent:
                continue
            number = math.ceil(rest / other - CEILING)
            saved = spent - self.up[j] * number
            if j != i and saved > 0:
                others.append((-saved, sorted({j: number, i: -count}.items())))
        return next((dict(change) for _, change in sorted(others) if self.fits(dict(change))), None)

    def _counter(self, load: str) -> int:
        state = self.v.inputs.state
        seen = state.observed.get(load) if state is not None else None
        return int(seen.counters.get(COUNTER, 0)) if seen is not None else 0


def greedy_counts(v: Snapshot) -> tuple[Integers, dict[str, int]]:
    """Section 4.2.2: application by application, no look at the whole. The instances, and the counters from here on."""
    scaler = _Scaler.of(v)
    scaler.come_inside()
    slot_s = cast(GreedyOptions, v.options).slot_s
    for b, one in enumerate(v.asked):
        need, rate = one.need_qps, scaler.rate(b)
        if need > 0 and rate < need * (1 - CEILING):
            scaler.scale_up(b, need, rate)
            for i, count in scaler.own[b].items():
                for slot in v.slots_of_kind.get(v.items[i].kind, ()) if count > 0 else ():
                    scaler.counters[slot.load.id] = 0
        else:
            scaler.scale_down(b, slot_s, need, rate)
    return scaler.counts(), scaler.counters


def scale_greedily(v: Snapshot, ask: Ask) -> Draft | Infeasibility:
    """The paper's rule as a plan."""
    x, counters = greedy_counts(v)
    return plan_instances(v, ask, x, {load: {COUNTER: count} for load, count in sorted(counters.items())})


def replicate_only(v: Snapshot, ask: Ask) -> Draft | Infeasibility:
    """As many of the one variant that each application runs (or would start with) as its load needs."""
    scaler = _Scaler.of(v)
    scaler.come_inside()
    for b, one in enumerate(v.asked):
        if not scaler.serving[b]:
            continue
        i = _chosen(scaler, b)
        for j, count in list(scaler.own[b].items()):
            if j != i:
                scaler.apply(b, {j: -count})
        wanted = math.ceil(one.need_qps / scaler.serving[b][i] - CEILING)
        step = wanted - scaler.own[b].get(i, 0)
        while step > 0 and not scaler.fits({i: step}):
            step -= 1
        scaler.apply(b, {i: step})
    return plan_instances(v, ask, scaler.counts())


def keep_running(v: Snapshot, ask: Ask) -> Draft | Infeasibility:
    """What runs stays; an application of which nothing runs starts with enough of the cheapest single variant."""
    scaler = _Scaler.of(v)
    scaler.come_inside()
    for b, one in enumerate(v.asked):
        if scaler.serving[b] and not any(scaler.own[b].values()):
            i = _chosen(scaler, b)
            step = math.ceil(one.need_qps / scaler.serving[b][i] - CEILING)
            while step > 0 and not scaler.fits({i: step}):
                step -= 1
            scaler.apply(b, {i: step})
    return plan_instances(v, ask, scaler.counts())


def _chosen(scaler: _Scaler, b: int) -> int:
    """The variant of most running instances, else the cheapest that serves the load alone."""
    v, need = scaler.v, scaler.v.asked[b].need_qps
    now = [(count, -i) for i, count in scaler.own[b].items() if count > 0]
    if now:
        return -max(now)[1]
    serving = scaler.serving[b]
    return min(serving, key=lambda i: (math.ceil(need / serving[i] - CEILING) * (v.C[i] + v.loading[i]), i))
