r"""Settings whose outcomes must be measured, each measurement at a price: which meets its targets cheapest?

A setting is a configuration (a level per knob) and a placement (a tier per operator); in row-major order of their
products, plan = configuration x placements + placement. Accuracy depends on the configuration alone and is measured
sample by sample; each sample also gives the seconds of every operator on the reference and the bytes that it passes on.
From those the latency of any placement follows (`Placed`), and so does what it costs with GPU shares cut down to what
the latency target leaves (`least_shares`). What was measured is in the form's own journal.

A latency wish is about a percentile, and it is judged by the samples: the longest path is worked out for each of them,
and the percentile of these sums is taken at the upper end of its order-statistics interval (`ranks`). Several wishes
count as one: each percentile is scaled by limit_s / its own limit, and the largest is the latency that is compared.

GPU shares cut down as far as the latency target allows (the paper's ParetoOptimize, here exact).

A plan leaves an operator on a priced tier the shares of the grid. All combinations (5^operators) are tried, but for
shares that are too low however much the other operators have. Of those within the target, the minimal ones (no other is
nowhere larger) are the antichain from which a packing may choose, and the cheapest one is the plan's cost. `trimmed` is
the greedy way for many operators; `continuous` is a bound without a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from itertools import product
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import HetplanError
from hetplan.planner.answer import Answer, Status
from hetplan.planner.forms.calls import Calls, Cases, Runs, cases_of, quantile, ranks
from hetplan.planner.forms.fans import Fans
from hetplan.planner.forms.form import Form
from hetplan.planner.forms.space import Space
from hetplan.planner.front import unbeaten
from hetplan.planner.tolerances import VALUE

if TYPE_CHECKING:
    from hetplan.planner.answer import Certificate

__all__ = [
    "Aim",
    "BlackBox",
    "Measured",
    "Operator",
    "OutOfTime",
    "Past",
    "Placed",
    "Runs",
    "Verdict",
    "antichain",
    "cheapest",
    "least_shares",
    "priced",
    "ranks",
    "traded",
    "trimmed",
]


Vector = NDArray[np.float64]
Integers = NDArray[np.int64]


class OutOfTime(HetplanError):
    """The time for measuring ended while a configuration was being measured: nothing is concluded of it."""


class Verdict(StrEnum):
    """On which side of its target an accuracy is."""

    PASS = "pass"
    FAIL = "fail"
    UNDECIDED = "undecided"
    SET_ASIDE = "set-aside"


@dataclass(frozen=True)
class Measured:
    """What measuring one configuration gave: seconds on the reference and bytes out per operator, bytes that come in.

    These are means; `runs` has them by sample, where they vary. `low` and `high` bound the accuracy. Each sample counts
    for 1 / `alike` independent ones; `again` samples were asked for again, as their answers made no sense.

    `passes` is the verdict with the rule for undecided ones applied; `gpu_s` is what measuring took of the reference
    after what earlier measurements had cached. A configuration set aside says why in `reason`.
    """

    configuration: int
    mean: float = float("nan")
    se: float = float("nan")
    samples: int = 0
    verdict: Verdict = Verdict.SET_ASIDE
    passes: bool = False
    seconds: tuple[float, ...] = ()
    bytes_out: tuple[float, ...] = ()
    bytes_in: float = 0.0
    gpu_s: float = 0.0
    reason: str = ""
    low: float = float("nan")
    high: float = float("nan")
    alike: float = 1.0
    again: int = 0
    again_why: str = ""
    runs: Runs | None = field(default=None, compare=False)
    constant: bool = True

    @property
    def made(self) -> Vector:
        """How often each operator ran, over the samples."""
        return np.ones(len(self.seconds)) if self.runs is None else np.asarray(self.runs.often.mean(axis=0))

    @property
    def rows(self) -> Runs:
        """What each sample took; one row where all took the same, or nothing else is known."""
        if self.runs is not None:
            return self.runs
        return Runs(np.array([self.seconds]), np.array([self.bytes_out]), np.array([self.bytes_in]))


@dataclass(frozen=True)
class Operator:
    """A step: the knobs that it reads and the operators before it (by number).

    `by_share`: half a GPU takes twice the time (a batched operator's time stays). `paid`: its share is paid for.
    """

    name: str
    reads: tuple[int, ...]
    after: tuple[int, ...] = ()
    by_share: bool = True
    paid: bool = True


@dataclass(frozen=True)
class Placed:
    """Where operators may run: relative time and price per tier, seconds per byte and per crossing between tiers.

    Tier 0 is where queries come from. `shares` is the grid of GPU shares; a tier that costs nothing is used whole.
    """

    relative_time: Vector
    price: Vector
    second_per_byte: Vector
    crossing_s: Vector
    shares: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25, 0.125)


@dataclass(frozen=True)
class Past:
    """What measuring an earlier query of the same operators and levels gave: a model of the past for a warm start."""

    name: str
    found: tuple[Measured, ...]


Figure = Literal["cost", "quality", "latency"]
"""What can be sought: the cost per hour, the measured accuracy, the seconds end to end."""


@dataclass(frozen=True)
class Aim:
    """What is sought of the settings that keep all limits: one figure, or a front of several; what may be paid.

    Figures count so that less is better: the cost per hour, the latency that is judged, minus the accuracy.
    """

    of: tuple[Figure, ...] = ("cost",)
    budget: float = math.inf

    @property
    def cheapest(self) -> bool:
        """Whether the least cost alone is sought."""
        return self.of == ("cost",)


@dataclass(frozen=True)
class BlackBox(Form[int]):
    """Settings with outcomes to be measured; see the module. `measure` finds out about one configuration.

    `wishes` are the shares of samples that have to be in time, each with its limit; the strictest limit is `limit_s`.
    `ordered` says of which knobs the levels have an order, near ones alike (of none where it is empty).
    The value of a plan is its least cost per hour within the latency target, among those whose accuracy passes; where
    `aim` seeks another figure, the best of that within these limits and the budget (of several, of the first).
    Where not all settings are allowed, or they are too many to be listed, `space` says which there are; then a plan is
    the number of its row in `space` x placements + placement. `alike` are knobs of the same levels.
    With `exits` not every sample runs all operators: it ends at the last of those that it runs.
    With `fans` a query makes several calls of operators, side by side: what was measured is one of them.
    Places from `calls.first` on are APIs, and `calls` says which settings make which operators a call.
    `parallel` configurations are proposed before one of them is known; `together`, where it is there, measures them
    beside each other and says what each gave, in their order. `most` measurements may be made, of `gpu_s` seconds of
    the reference in all, within `seconds`. `old` are
    measurements of this very query from before something changed: believed, with `drift` added to their error, but not
    relied upon.
    """

    kind: ClassVar[str] = "black-box"
    sense: ClassVar[str] = "min"
    queued: ClassVar[bool] = False
    """Whether queries wait for each other, so that latency and cost are more than those of operators alone."""

    levels: tuple[int, ...]
    operators: tuple[Operator, ...]
    placed: Placed
    target: float
    limit_s: float
    measure: Callable[[int], Measured]
    placements: Integers
    most: int = 60
    gpu_s: float | None = None
    first_random: int = 3
    parallel: int = 1
    together: Callable[[Sequence[int]], Iterable[Measured]] | None = None
    ordered: tuple[bool, ...] = ()
    name: str = ""
    lower: bool = False
    seconds: float | None = None
    wishes: tuple[tuple[float, float], ...] = ()
    confidence: float = 0.99
    past: tuple[Past, ...] = ()
    old: tuple[Measured, ...] = ()
    drift: float = 0.0
    aim: Aim = Aim()
    space: Space | None = None
    alike: tuple[tuple[int, ...], ...] = ()
    calls: Calls | None = None
    exits: bool = False
    fans: Fans | None = None
    journal: dict[int, Measured] = field(default_factory=dict, compare=False)

    @cached_property
    def configurations(self) -> Integers:
        """The level of each knob, a row per configuration."""
        rows = list(product(*map(range, self.levels)))
        return np.array(rows, dtype=np.int64).reshape(len(rows), len(self.levels))

    def __len__(self) -> int:
        return self.settings * len(self.placements)

    @property
    def settings(self) -> int:
        """How many configurations there are (at most, where they are too many to be listed)."""
        if self.space is None:
            return math.prod(self.levels)
        return self.space.product if self.space.count is None else self.space.count

    @property
    def complete(self) -> bool:
        """Whether every configuration was measured, or set aside."""
        return len(self.journal) == self.settings

    def size(self) -> dict[str, int]:
        """Plans, configurations, placements; how many were measured, for how many seconds of the reference."""
        return {
            "plans": self.settings * len(self.placements),
            "configurations": self.settings,
            "placements": len(self.placements),
            "measured": len(self.journal),
            "gpu_s": round(sum(found.gpu_s for found in self.journal.values())),
        }

    def observe(self, configuration: int) -> Measured:
        """What measuring a configuration gives; measured once."""
        if configuration not in self.journal:
            self.journal[configuration] = self.measure(configuration)
        return self.journal[configuration]

    def latency_s(self, seconds: Vector, bytes_out: Vector, bytes_in: Vector) -> Vector:
        """End to end per (configuration, placement) with whole devices: the longest path through the operators."""
        compute = seconds[:, None, :] * self.placed.relative_time[self.placements][None, :, :]
        return self.finish(compute, bytes_out, bytes_in, self.placements)

    def finish(self, compute: Vector, bytes_out: Vector, bytes_in: Vector, placements: Integers) -> Vector:
        """The longest path where operators take `compute` seconds (configuration, placement, operator)."""
        ends: list[Vector] = []
        home = np.zeros(len(placements), dtype=np.int64)
        for number, operator in enumerate(self.operators):
            here = placements[:, number]
            if operator.after:
                ready = np.max(
                    [ends[p] + self._transfer(bytes_out[:, p], placements[:, p], here) for p in operator.after],
                    axis=0,
                )
            else:
                ready = self._transfer(bytes_in, home, here)
            ends.append(ready + compute[:, :, number])
        if self.exits or (self.fans is not None and not self.fans.sure):
            return np.asarray(np.fmax.reduce(ends))
        inner = {p for operator in self.operators for p in operator.after}
        return np.asarray(np.max([ends[o] for o in range(len(ends)) if o not in inner], axis=0))

    def _transfer(self, size: Vector, source: Integers, to: Integers) -> Vector:
        return size[:, None] * self.placed.second_per_byte[source, to][None, :] + self.placed.crossing_s[source, to]

    @cached_property
    def price(self) -> Vector:
        """The price per hour of a whole device for all calls at once, per placement and operator."""
        paid = np.array([operator.paid for operator in self.operators])
        return np.asarray(self.placed.price[self.placements] * paid * self.at_once)

    @property
    def at_once(self) -> Vector | float:
        """How many calls of each operator may run at once, each with its share."""
        return 1.0 if self.fans is None else self.fans.widths

    @property
    def exact(self) -> frozenset[int]:
        """The operators of which it matters how many calls there are, and not only whether."""
        return frozenset()

    def made(self, found: Measured) -> Vector:
        """How often each operator is called by a query, over the samples."""
        return found.made if self.fans is None else found.made * self.fans.visits

    def called(self, configuration: int) -> Vector:
        """Per placement what the calls of a configuration cost per hour; infinite where it does not run there."""
        if self.calls is None:
            return np.zeros(len(self.placements))
        row = np.array([Space(self.levels).row(configuration)])
        found = self.journal.get(configuration)
        made = self.often if found is None or not found.seconds else self.made(found)
        return np.asarray(self.calls.per_hour(row, self.placements, made)[0])

    @property
    def often(self) -> Vector:
        """How often operators run, over what was measured."""
        seen = [self.made(found) for found in self.journal.values() if found.seconds]
        once = np.ones(len(self.operators)) if self.fans is None else self.fans.visits
        return np.mean(seen, axis=0) if seen else once

    @property
    def called_all(self) -> Vector:
        """The same of every configuration, where they are listed, with operators that run as often as was seen."""
        if self.calls is None:
            return np.zeros((1, 1))
        often = self.often
        return (
            self._call_cost
            if (often == 1.0).all()
            else self.calls.per_hour(self.configurations, self.placements, often)
        )

    @cached_property
    def _call_cost(self) -> Vector:
        assert self.calls is not None
        return self.calls.per_hour(self.configurations, self.placements)

    def rows(self, found: Measured) -> Runs:
        """What each sample of a configuration took, with what its calls may take more."""
        return self.tried(found.rows, found.configuration)

    def tried(self, runs: Runs, configuration: int) -> Runs:
        """The same, of samples."""
        calls = [] if self.calls is None else self.calls.of(Space(self.levels).row(configuration))
        return cases_of(runs, calls, self.fans, self.exact)

    @cached_property
    def full_price(self) -> Vector:
        """Per placement the price per hour of whole devices."""
        return np.asarray(self.price.sum(axis=1))

    def orient(self, accuracy: float) -> float:
        """Accuracy so that more is better."""
        return -accuracy if self.lower else accuracy

    def at_full(self, found: Measured) -> Vector:
        """The latency of a measured configuration under each placement, with whole devices."""
        rows = self.rows(found)
        whole = self.judged(self.latency_s(rows.seconds, rows.bytes_out, rows.bytes_in), rows.cases)
        return whole if self.calls is None else np.where(np.isfinite(self.called(found.configuration)), whole, np.inf)

    def judged(self, each: Vector, cases: Cases | None = None, *, least: bool = False) -> Vector:
        """What is compared with `limit_s`, of latencies by sample (along the first axis).

        Of each wish the percentile at the upper end of its interval (the lower one for `least`), scaled to `limit_s`;
        of one row, where all samples took the same, that row. Where too few samples bound a percentile, their largest.
        """
        samples = len(each)
        if samples == 1:
            return np.asarray(each[0])
        found = np.zeros(each.shape[1:])
        for share, limit in self.wishes or ((0.5, self.limit_s),):
            value = self.bound(each, share, cases, least=least)
            scale = self.limit_s / limit if math.isfinite(limit) else 1.0
            found = found if value is None else np.maximum(found, value * scale)
        return found

    def bound(self, each: Vector, share: float, cases: Cases | None = None, *, least: bool = False) -> Vector | None:
        """What a percentile of latencies is at most, or at least; at most their largest, where too few bound it."""
        if len(each) == 1:
            return np.asarray(each[0])
        count = len(each) if cases is None else cases.samples
        low, high = ranks(count, share, self.confidence)
        at = low if least else min(high, count)
        if cases is not None and (at or count == 1):
            return quantile(each, cases, share if count == 1 else at / count, share)
        return np.asarray(np.partition(each, at - 1, axis=0)[at - 1]) if at else None

    def sure(self, found: Measured) -> bool:
        """Whether there are samples enough to bound every percentile that is wished for."""
        return found.constant or all(
            ranks(found.samples, p, self.confidence)[1] <= found.samples for p, _ in self.wishes
        )

    def settled(self, runs: Runs, configuration: int) -> bool:
        """Whether so many samples say of some placement that it is in time, or of all that they are not."""
        rows, here = self.tried(runs, configuration), np.isfinite(self.called(configuration))
        each = self.latency_s(rows.seconds, rows.bytes_out, rows.bytes_in)[:, here]
        enough = all(ranks(len(runs), share, self.confidence)[1] <= len(runs) for share, _ in self.wishes)
        in_time = enough and bool((self.judged(each, rows.cases) <= self.limit_s).any())
        return in_time or bool((self.judged(each, rows.cases, least=True) > self.limit_s).all())

    def costs(self, configuration: int, *, below: float = np.inf) -> Vector:
        """Per placement the least cost of a measured configuration within the limit, where that may be the least.

        Placements that cannot come below `below`, or another one, are left at infinity.
        """
        found = self.journal[configuration]
        costs = np.full(len(self.placements), np.inf)
        if not found.passes:
            return costs
        in_time = np.flatnonzero(self.at_full(found) <= self.limit_s)
        least = least_shares(self, found)
        bound = (np.where(self.price > 0, least, 0.0) * self.price).sum(axis=1) + self.called(configuration)
        best = np.inf
        for placement in in_time[np.argsort(bound[in_time], kind="stable")]:
            if bound[placement] >= below or bound[placement] > best * (1 + 1e-9):
                break
            costs[placement] = cheapest(self, found, int(placement), least[placement])[0]
            best = min(best, costs[placement])
        return costs

    def least_cost(self, measured: Measured, placement: int) -> float:
        """The least cost of a measured configuration within the limit, at one placement."""
        return cheapest(self, measured, placement)[0]

    def carried(self, seconds: Vector) -> Vector | float:
        """What settings cost on top of that for the rate of their queries, by the seconds that are believed."""
        del seconds
        return 0.0

    def paid_at(self, seconds: Vector, share: float) -> Vector:
        """Per configuration and placement what they cost where every operator has this share of a device."""
        return np.broadcast_to(self.full_price[None, :] * share, (len(seconds), len(self.placements)))

    def values(self, configuration: int, *, below: float = np.inf) -> Vector:
        """Per placement the (first) figure sought, at its best within limits and budget; infinite where none is.

        Placements that cannot be the best of their configuration, or come below `below`, are left at infinity.
        """
        found = self.journal[configuration]
        if self.aim.of[0] == "latency":
            return self._fastest(found)
        # What a configuration costs matters only up to the budget where something else is sought.
        costs = self.costs(configuration, below=below if self.aim.of[0] == "cost" else np.inf)
        costs[costs > self.aim.budget * (1 + SLIP)] = np.inf
        if self.aim.of[0] == "cost" or not np.isfinite(costs).any():
            return costs
        best = np.full(costs.size, np.inf)
        best[int(np.argmin(costs))] = -self.orient(found.mean)
        return best

    def _fastest(self, found: Measured) -> Vector:
        """Per placement the least latency that the budget pays for; slower ones than the best are left at infinity."""
        fastest = np.full(len(self.placements), np.inf)
        if not found.passes:
            return fastest
        whole = self.at_full(found)
        for placement in np.argsort(whole, kind="stable"):
            if whole[placement] > min(self.limit_s * (1 + SLIP), float(fastest.min())):
                break
            dollars, latency = self.quickest(found, int(placement))
            fastest[placement] = latency[dollars <= self.aim.budget * (1 + SLIP)].min(initial=np.inf)
        return fastest

    def quickest(self, found: Measured, placement: int) -> tuple[Vector, Vector]:
        """What a measured configuration may cost at a placement, and its latencies: each faster than all cheaper."""
        return traded(self, found, placement)[1:]

    def figures(self, configuration: int) -> list[tuple[int, tuple[float, ...]]]:
        """Placements with the figures sought, of a measured configuration: those that no other one beats."""
        found = self.journal[configuration]
        if len(self.aim.of) == 1 or "latency" not in self.aim.of:
            best = self.values(configuration) if len(self.aim.of) == 1 else self.costs(configuration)
            place = int(np.argmin(best))
            known = {"quality": -self.orient(found.mean), "cost": float(best[place]), "latency": float(best[place])}
            fits = np.isfinite(best[place]) and (len(self.aim.of) == 1 or best[place] <= self.aim.budget * (1 + SLIP))
            return [(place, tuple(known[name] for name in self.aim.of))] if fits else []
        rows: list[tuple[int, tuple[float, ...]]] = []
        for placement in np.flatnonzero(self.at_full(found) <= self.limit_s * (1 + SLIP)) if found.passes else ():
            dollars, latency = self.quickest(found, int(placement))
            for cost, seconds in zip(dollars.tolist(), latency.tolist(), strict=True):
                known = {"quality": -self.orient(found.mean), "cost": cost, "latency": seconds}
                if cost <= self.aim.budget * (1 + SLIP):
                    rows.append((int(placement), tuple(known[name] for name in self.aim.of)))
        return unbeaten(rows)

    @property
    def dearest(self) -> float:
        """What a setting costs at most, on whole devices."""
        calls = self.called_all if self.space is None else np.zeros(1)
        return float(self.full_price.max() + np.where(np.isfinite(calls), calls, 0.0).max())

    @property
    def failed(self) -> Sequence[Measured]:
        """Configurations that were set aside, with their reasons."""
        return [one for one in self.journal.values() if one.verdict is Verdict.SET_ASIDE]

    def value(self, plan: int) -> float:
        """The (first) figure sought of a measured plan, at its best (infinite where it misses a limit)."""
        configuration, placement = divmod(plan, len(self.placements))
        measured = self.journal.get(configuration)
        if measured is None or not measured.passes:
            return float("inf")
        most = self.aim.budget * (1 + SLIP)
        if self.aim.of[0] == "latency":
            dollars, latency = self.quickest(measured, placement)
            return float(latency[dollars <= most].min(initial=np.inf))
        cost = self.least_cost(measured, placement)
        if math.isinf(cost) or cost > most:
            return float("inf")
        return cost if self.aim.of[0] == "cost" else -self.orient(measured.mean)

    def certify(self, answer: Answer[int]) -> Certificate:
        """Values from the journal; no bound is proved but by measuring all."""
        from hetplan.planner.answer import Certificate, Vouched

        if answer.status is Status.UNBOUNDED:
            return Certificate(faults=("unbounded, yet there are only finitely many plans",))
        if answer.status is Status.INFEASIBLE:
            if not self.complete:
                return Certificate(faults=("infeasible, yet some configurations were not measured",))
            return Certificate(infeasible=Vouched.CERTIFIED)
        if answer.point is None:
            return Certificate()
        most = (len(self.configurations) if self.space is None else self.space.product) * len(self.placements)
        if not 0 <= answer.point < most:
            return Certificate(faults=(f"plan {answer.point} is none of the {most}",))
        value = self.value(answer.point)
        if not np.isfinite(value):
            return Certificate(faults=(f"plan {answer.point} does not meet its targets by what was measured",))
        if answer.value is not None and abs(answer.value - value) > VALUE * max(1.0, abs(value)):
            return Certificate(faults=(f"says {answer.value:.9g}, recomputed it is {value:.9g}",))
        return Certificate(value=value)


MOST_COMBINATIONS = 20_000
MOST_TIMES = 1_000_000
SLIP = 1e-12
ALL = slice(None)


def priced(form: BlackBox, placement: int) -> NDArray[np.int64]:
    """The operators whose share is paid for."""
    return np.flatnonzero(form.price[placement] > 0)


@lru_cache(maxsize=64)
def _grid(shares: tuple[tuple[float, ...], ...]) -> Vector:
    """Every combination of the shares of each operator, the largest first."""
    return np.array(list(product(*shares))).reshape(math.prod(map(len, shares)), len(shares))


def least_shares(form: BlackBox, measured: Measured, which: NDArray[np.int64] | slice = ALL) -> Vector:
    """Per placement and operator the least share within the limit while all others have whole devices.

    No combination within the limit has a lower one. It is infinite where even whole devices are too slow.
    """
    where, price, rows = form.placements[which], form.price[which], form.rows(measured)
    base = rows.seconds[:, None, :] * form.placed.relative_time[where][None, :, :]
    limit = form.limit_s * (1 + SLIP)
    least = np.ones(where.shape)
    for o, operator in enumerate(form.operators):
        for share in sorted(set(form.placed.shares) - {1.0}, reverse=True):
            slower = base.copy()
            slower[:, :, o] /= share if operator.by_share else 1.0
            in_time = form.judged(form.finish(slower, rows.bytes_out, rows.bytes_in, where), rows.cases) <= limit
            least[(price[:, o] > 0) & in_time, o] = share
    least[form.judged(form.finish(base, rows.bytes_out, rows.bytes_in, where), rows.cases) > limit] = np.inf
    least[~np.isfinite(form.called(measured.configuration)[which])] = np.inf
    return least


def _latency(form: BlackBox, measured: Measured, placement: int, shares: Vector) -> Vector:
    """End to end under each row of shares (of the priced operators)."""
    where, rows = np.repeat(form.placements[placement : placement + 1], len(shares), axis=0), form.rows(measured)
    slow = np.ones((len(shares), len(form.operators)))
    for column, o in enumerate(priced(form, placement)):
        if form.operators[o].by_share:
            slow[:, o] = 1.0 / shares[:, column]
    compute = rows.seconds[:, None, :] * (form.placed.relative_time[where] * slow)[None, :, :]
    return form.judged(form.finish(compute, rows.bytes_out, rows.bytes_in, where), rows.cases)


def _choices(form: BlackBox, measured: Measured, placement: int, least: Vector | None) -> tuple[tuple[float, ...], ...]:
    """The shares that each priced operator may have, largest first; of all others at whole devices, none is too low."""
    steps = sorted(set(form.placed.shares), reverse=True)
    lowest = least_shares(form, measured, np.array([placement]))[0] if least is None else least
    return tuple(tuple(share for share in steps if share >= lowest[o]) for o in priced(form, placement))


def _shares_within(
    form: BlackBox, measured: Measured, placement: int, least: Vector | None
) -> tuple[Vector, Vector, NDArray[np.bool_]]:
    """All share combinations within the limit, with their costs, and which of them are minimal.

    Latency only grows as a share falls: one is minimal where a step down of any single operator is too slow. Where
    there are too many to be tried, the only one is trimmed greedily.
    """
    price, calls = form.price[placement][priced(form, placement)], form.called(measured.configuration)[placement]
    choices = _choices(form, measured, placement, least)
    if math.prod(map(len, choices)) > min(MOST_COMBINATIONS, MOST_TIMES // len(form.rows(measured))):
        shares = trimmed(form, measured, placement)
        only = np.zeros((0, price.size)) if shares is None else shares[None, :]
        return only, only @ price + calls, np.ones(len(only), dtype=bool)
    grid = _grid(choices)
    fits = _latency(form, measured, placement, grid) <= form.limit_s * (1 + SLIP) if len(grid) else np.zeros(0, bool)
    cube = fits.reshape([len(shares) for shares in choices])
    minimal = cube.copy()
    for axis in range(cube.ndim):
        upper = [slice(None)] * cube.ndim
        lower = list(upper)
        upper[axis], lower[axis] = slice(None, -1), slice(1, None)
        minimal[tuple(upper)] &= ~cube[tuple(lower)]
    return grid[fits], grid[fits] @ price + calls, minimal.ravel()[fits]


def cheapest(form: BlackBox, measured: Measured, placement: int, least: Vector | None = None) -> tuple[float, Vector]:
    """The least cost per hour within the limit, and its shares (infinite where even whole devices are too slow).

    `least` are the placement's `least_shares`, where they are known already.
    """
    inside, dollars, _ = _shares_within(form, measured, placement, least)
    if not len(inside):
        return float("inf"), np.zeros(0)
    best = int(np.lexsort((inside.sum(axis=1), dollars))[0])
    return float(dollars[best]), inside[best]


def antichain(form: BlackBox, measured: Measured, placement: int, least: Vector | None = None) -> tuple[Vector, Vector]:
    """The minimal share combinations within the limit, cheapest first, with their costs.

    A placement without priced operators has one, empty.
    """
    inside, dollars, minimal = _shares_within(form, measured, placement, least)
    inside, dollars = inside[minimal], dollars[minimal]
    order = np.argsort(dollars, kind="stable")
    return inside[order], dollars[order]


def traded(form: BlackBox, measured: Measured, placement: int) -> tuple[Vector, Vector, Vector]:
    """Shares within the limit with their costs and latencies, cheapest first: each faster than all that cost less."""
    inside, dollars, _ = _shares_within(form, measured, placement, None)
    if len(inside) == 1 and inside.size:
        # One that was trimmed greedily, of too many: whole devices are the other end.
        inside = np.unique(np.concatenate([inside, np.ones((1, inside.shape[1]))]), axis=0)
        dollars = (
            inside @ form.price[placement][priced(form, placement)] + form.called(measured.configuration)[placement]
        )
    latency = _latency(form, measured, placement, inside) if len(inside) else np.zeros(0)
    order = np.lexsort((inside.sum(axis=1), latency, dollars))
    faster = latency[order] < np.concatenate([[np.inf], np.minimum.accumulate(latency[order])[:-1]]) - SLIP
    order = order[faster] if len(order) else order
    return inside[order], dollars[order], latency[order]


def trimmed(form: BlackBox, measured: Measured, placement: int) -> Vector | None:
    """From whole devices, the step down the grid that saves most per added second, while the limit holds."""
    free = priced(form, placement)
    price = form.price[placement][free]
    steps = np.array(sorted(set(form.placed.shares), reverse=True))
    limit = form.limit_s * (1 + SLIP)
    at = np.zeros(free.size, dtype=np.int64)
    now = float(_latency(form, measured, placement, steps[at][None, :])[0])
    if now > limit:
        return None
    while (lower := np.flatnonzero(at + 1 < steps.size)).size:
        tried = at + np.eye(free.size, dtype=np.int64)[lower]
        then = _latency(form, measured, placement, steps[tried])
        rate = price[lower] * (steps[at[lower]] - steps[at[lower] + 1]) / np.maximum(then - now, 1e-12)
        rate[then > limit] = -np.inf
        best = int(rate.argmax())
        if np.isinf(rate[best]):
            break
        at, now = tried[best], float(then[best])
    return np.asarray(steps[at])
