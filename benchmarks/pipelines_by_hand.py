"""Pipelines dealt by hand: the whole stock goes to the steps, and simulation says what to move. No planner is asked.

A hand has, for each step and type of server, one variant, one batch size and a number of servers; queries go to types
in proportion to what these carry. From a few deals the search climbs: a server goes from one step to another, a batch
or a variant is exchanged, whatever loses fewer queries. It stops where a hand keeps the wish, or after `most` plays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import hetplan as hp
from hetplan.profiles.plan import Plan

__all__ = ["Dealt", "carried_qps", "dealt_by_hand"]

Json = dict[str, Any]
LOST = 0.9
"""A hand that loses so much of what it may is kept: what was climbed to is a little lucky."""
DIVISORS = (3.0, 2.2, 1.6, 1.25)
"""Deadline over the time that the steps of the longest path take in a first deal."""


@dataclass(frozen=True)
class Seat:
    """Servers of one type at one step."""

    step: str
    hardware: str
    variant: str
    batch: int
    count: int


Hand = tuple[Seat, ...]


@dataclass(frozen=True)
class Dealt:
    """The best hand found: what it loses in the last play, its plan, and how many plays that took."""

    lost: float
    plan: Plan
    plays: int


class _Case:
    """The two files, read for dealing."""

    def __init__(self, files: tuple[Json, Json]) -> None:
        self.files = files
        profile, slo = files
        self.app = slo["apps"]["x"]
        self.steps = list(profile["pipelines"]["p"]["nodes"])
        self.edges = profile["pipelines"]["p"]["edges"]
        self.stock = {name: int(most) for name, (_, most) in slo["limits"]["instances"].items()}
        self.times: dict[tuple[str, str], dict[int, float]] = {}
        self.of_step: dict[str, list[str]] = {step: [] for step in self.steps}
        for name, variant in profile["variants"].items():
            self.of_step[variant["task"]].append(name)
            for run in variant["runs"]:
                table = profile["tables"][run["latency"]]
                self.times[name, run["hardware"]] = dict(zip(table["axes"]["batch"], table["mean"], strict=True))
        ((key, limit_ms),) = self.app["latency"].items()
        self.deadline, self.allowed = float(limit_ms), 1.0 - float(key.removeprefix("p").removesuffix("_ms")) / 100.0

    def gains(self, variant_of: Mapping[str, str]) -> dict[str, float]:
        """Queries of each step per query that comes."""
        gain = {self.steps[0]: 1.0}
        for edge in self.edges:
            gain[edge["to"]] = gain[edge["from"]] * edge["fanout"][variant_of[edge["from"]]]
        return gain

    def qps(self, seat: Seat) -> float:
        """What one server of a seat carries in full batches."""
        return 1000.0 * seat.batch / self.times[seat.variant, seat.hardware][seat.batch]

    def deal(self, variant_of: Mapping[str, str], divisor: float) -> Hand | None:
        """All servers, one after another to the step that lacks most, in batches that take their part of the time."""
        own = {
            step: min(self.times[variant_of[step], name][1] for name, most in self.stock.items() if most)
            for step in self.steps
        }
        above = {edge["to"]: edge["from"] for edge in self.edges}
        before, after = dict[str, float](), dict.fromkeys(self.steps, 0.0)
        for step in self.steps:
            before[step] = own[step] + (before[above[step]] if step in above else 0.0)
        for step in reversed(self.steps):
            if step in above:
                after[above[step]] = max(after[above[step]], own[step] + after[step])
        seats: dict[tuple[str, str], Seat] = {}
        for step in self.steps:
            room = own[step] / (before[step] + after[step]) * self.deadline / divisor
            for name in self.stock:
                times = self.times[variant_of[step], name]
                batch = max((size for size, ms in times.items() if ms <= room), default=1)
                seats[step, name] = Seat(step, name, variant_of[step], batch, 0)
        load = {step: gain * float(self.app["rate_qps"]) for step, gain in self.gains(variant_of).items()}
        carried = dict.fromkeys(self.steps, 0.0)
        fastest = sorted(self.stock, key=lambda name: self.times[variant_of[self.steps[0]], name][1])
        for name in (each for each in fastest for _ in range(self.stock[each])):
            step = min(self.steps, key=lambda one: carried[one] / load[one])
            seats[step, name] = replace(seats[step, name], count=seats[step, name].count + 1)
            carried[step] += self.qps(seats[step, name])
        return tuple(seats.values()) if all(carried.values()) else None

    def deals(self, divisors: Sequence[float] = DIVISORS) -> Iterator[Hand]:
        """With the fastest variants, and with those that cause least work behind them."""
        fewest = {}
        for step in self.steps:
            fanouts = [edge["fanout"] for edge in self.edges if edge["from"] == step]
            fewest[step] = min(self.of_step[step], key=lambda name: sum(one[name] for one in fanouts))
        fastest = {step: names[0] for step, names in self.of_step.items()}
        for variant_of in [fastest, *([fewest] if fewest != fastest else [])]:
            for divisor in divisors:
                hand = self.deal(variant_of, divisor)
                if hand is not None:
                    yield hand

    def moves(self, hand: Hand) -> Iterator[Hand]:
        """One server elsewhere (or nowhere), one other batch, one other variant."""
        for at, seat in enumerate(hand):
            sizes = sorted(self.times[seat.variant, seat.hardware])
            place = sizes.index(seat.batch)
            for other in (*sizes[max(0, place - 1) : place], *sizes[place + 1 : place + 2]):
                if seat.count:
                    yield _with(hand, {at: replace(seat, batch=other)})
            for name in self.of_step[seat.step]:
                if seat.count and name != seat.variant:
                    fits = [size for size in self.times[name, seat.hardware] if size <= seat.batch]
                    yield _with(hand, {at: replace(seat, variant=name, batch=max(fits, default=1))})
            for to, target in enumerate(hand):
                if to != at and seat.count and target.hardware == seat.hardware:
                    more = replace(target, count=target.count + 1)
                    yield _with(hand, {at: replace(seat, count=seat.count - 1), to: more})
            if seat.count:
                yield _with(hand, {at: replace(seat, count=seat.count - 1)})

    def plan(self, hand: Hand) -> Plan | None:
        """The hand as a plan; None where a step has no server."""
        workers, routing = [], []
        for step in self.steps:
            seats = [(n, seat) for n, seat in enumerate(hand) if seat.step == step and seat.count]
            if not seats:
                return None
            carried = sum(seat.count * self.qps(seat) for _, seat in seats)
            to = {}
            for n, seat in seats:
                to[f"w{n}.a"] = seat.count * self.qps(seat) / carried
                load = {"id": f"w{n}.a", "app": "x", "node": step, "variant": seat.variant}
                load["serve"] = {"max_batch": seat.batch}
                workers.append({"id": f"w{n}", "hardware": seat.hardware, "count": seat.count, "loads": [load]})
            routing.append({"node": step, "to": to})
        dispatch = {"rule": "path-shares/1", "late": self.app["late"], "keyed": "node", "balancing": "round_robin"}
        return Plan.model_validate({
            "requires": ["path-shares/1"], "question": "pipeline",
            "method": {"formulation": "pipeline-milp", "options": {}},
            "inputs": {"profile": "", "slo": ""}, "workers": workers, "routing": {"x": routing},
            "dispatch": {"x": dispatch},
        })  # fmt: skip


def carried_qps(files: tuple[Json, Json], *, divisor: float = 2.0) -> float:
    """The rate that the whole stock carries in full batches where paths take a part of the deadline."""
    case, rates = _Case(files), [0.0]
    for hand in case.deals((divisor,)):
        of_step = dict.fromkeys(case.steps, 0.0)
        for seat in hand:
            of_step[seat.step] += seat.count * case.qps(seat)
        gains = case.gains({seat.step: seat.variant for seat in hand})
        rates.append(min(of_step[step] / gains[step] for step in case.steps))
    return max(rates)


def _with(hand: Hand, changed: Mapping[int, Seat]) -> Hand:
    return tuple(changed.get(n, seat) for n, seat in enumerate(hand))


def dealt_by_hand(files: tuple[Json, Json], *, length_s: float, most: int = 400, seed: int = 77_001) -> Dealt | None:
    """The hand that loses fewest queries, by climbing from the best of the deals; None where nothing can be dealt."""
    case = _Case(files)
    inputs, plays = hp.load(hp.Profile.model_validate(files[0]), files[1]), 0
    seen: dict[Hand, float] = {}

    def lost(hand: Hand) -> float:
        nonlocal plays
        if hand not in seen:
            plan, plays = case.plan(hand), plays + 1
            seen[hand] = math.inf if plan is None else _played(plan, inputs, length_s, seed)
        return seen[hand]

    best = min(case.deals(), key=lost, default=None)
    while best is not None and plays < most and lost(best) > LOST * case.allowed:
        better = _first(case.moves(best), lost, lost(best), lambda: plays < most)
        if better is None:
            break
        best = better
    plan = None if best is None else case.plan(best)
    return None if best is None or plan is None else Dealt(lost(best), plan, plays)


def _first(moves: Iterator[Hand], lost: Any, than: float, may_go_on: Any) -> Hand | None:
    """The best of the moves that are played."""
    found: Sequence[tuple[float, Hand]] = []
    for hand in moves:
        if not may_go_on():
            break
        found = [*found, (lost(hand), hand)]
    value, best = min(found, key=lambda one: one[0], default=(math.inf, None))
    return best if value < than else None


def _played(plan: Plan, inputs: Any, length_s: float, seed: int) -> float:
    from hetplan.simulator.simulate import simulate

    report = simulate(plan, inputs, seeds=1, seed=seed, duration_s=length_s, threads=1)
    return float(report.apps["x"].figures["violations"].value)
