"""A problem as one part of a fleet: which machines carry which rate, as linear rows (cone) or a table.

Where the rate that machines carry is that of a linear program with the machines as its capacities (`Cone`), its prices
are rows: ``sum of w_h m_h >= rate`` for all machines that carry a rate. Few such rows say everything; they are found
one by one, where machines do not carry what they should. Where a question is no such program (`Table`), it is asked
itself: which are the least machines for a rate? More machines are never worse, so few are asked.

Either settles in the same way: the question is asked for a plan on exactly these machines. A question whose rate is a
linear program has it in its own room (`part.py`). `hetplan.testing.part_checks` holds parts to what is said here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.contract import Tools
from hetplan.planner.forms.milp import Builder
from hetplan.planner.tolerances import SLIP
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_parts import Part as PlanPart
from hetplan.profiles.plan_periods import inputs_of_part
from hetplan.profiles.profile import Offer
from hetplan.profiles.state import State
from hetplan.profiles.workers import Worker

__all__ = [
    "COSTS",
    "AtCapacities",
    "Cone",
    "FeasibilityCache",
    "Part",
    "Settled",
    "Table",
    "short_name",
    "with_unique_names",
]

Solve = Callable[..., Any]
"""`hetplan.api.solve.plan_for`, handed in."""
AtCapacities = Callable[..., Callable[[Sequence[float]], tuple[float, NDArray[np.float64], NDArray[np.float64]]]]
"""`hetplan.solvers.capacity_sweep.at_capacities`, handed in."""

MOST_LETTERS = 50
"""So long are names of workers at most, before numbers are added."""

OBJECTIVES: Mapping[str, tuple[str, ...]] = {"pipeline": ("min cost",)}
"""By what a question is asked for the fewest machines, where it has no default that does."""


BRIEFLY = Tools(explains=False)
"""Parts are asked many times: it takes long to say what would help where there is no plan."""

COSTS = ("cost_per_hour", "gross_cost_per_hour", "net_cost_per_hour")
"""What a part says of its price: nothing runs before it, so all three are that of its machines."""


@dataclass(frozen=True)
class Settled:
    """The part of a plan that these machines run, or why they cannot."""

    part: PlanPart | None
    why: str = ""


@dataclass
class Part(ABC):
    """One application of one question, as machines for a rate. More machines, or a lower rate, are never worse."""

    app: str
    question: str
    hardware: tuple[str, ...]
    """The hardware that it may run on; machines are counted in this order."""
    inputs: Inputs
    options: Mapping[str, Any]
    solve: Solve
    settled: dict[tuple[float, tuple[tuple[str, int], ...]], Settled] = field(default_factory=dict)
    members: Mapping[str, float] = field(default_factory=dict)
    """Applications that share these machines, each with its rate where the rate of all is 1; none: `app` alone."""
    otherwise: Part | None = None
    """Who settles what this one does not."""
    holding: dict[object, Settled] = field(default_factory=dict)
    """What was settled on machines that hold what they hold."""
    going_on: dict[object, Any] = field(default_factory=dict)
    """What a fleet knows of machines that load nothing after a failure."""
    needs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What one instance takes of a machine, of each hardware where all instances take the same."""
    alone: Mapping[str, int] = field(default_factory=dict)
    """How many instances a machine of each of them holds."""

    @abstractmethod
    def rows(self, m: Builder, machines: Sequence[NDArray[np.int64]], rate: float, about: str) -> None:
        """Rows that hold for all machines that carry the rate: `machines` are the columns to sum, per hardware.

        They may allow machines that do not: `carries` then says so, and rows asked for afterwards exclude them.
        """

    @abstractmethod
    def of_use(self, rate: float) -> tuple[float, ...]:
        """Of each hardware as many machines as its rows can ask for at a rate: more change nothing."""

    @abstractmethod
    def carries(self, machines: Sequence[float], rate: float) -> bool:
        """Whether so many machines per hardware carry the rate."""

    def files(self, rate: float, machines: Mapping[str, tuple[int, int]], stock: Mapping[str, int] | None) -> Inputs:
        """The files of the question for this application alone, with so many machines, of these offers."""
        own = inputs_of_part(self.inputs, self.rates(rate))
        listed = self.question != "llm"  # which refuses that field: there, what may not be used is none at most
        instances = dict(machines) if listed else {**dict.fromkeys(self.hardware, (0, 0)), **machines}
        own = own.with_limits(instances=instances, only_listed=listed)
        own = own.with_slo(objective=OBJECTIVES.get(self.question, ()))
        offers = own.profile.offers
        if stock is not None:
            offers = {name: offers[name].model_copy(update={"stock": count}) for name, count in stock.items() if count}
        return replace(own, profile=own.profile.model_copy(update={"offers": offers, "hosts": {}}))

    def any_number(self, rate: float = 1.0) -> Inputs:
        """The files of the question for any number of machines."""
        return self.files(rate, {}, None).with_limits(only_listed=False, instances={})

    def rates(self, rate: float) -> dict[str, float]:
        """The rate of each application that is served."""
        return {name: rate * one for name, one in self.members.items()} or {self.app: rate}

    def own_plan(self, files: Inputs, *, tools: Tools = BRIEFLY, **options: Any) -> Plan | str:
        """The plan of the part's own problem for these files, or in brief why there is none."""
        asked = {**self.options, **options}
        try:
            found = self.solve(
                files, question=self.question, options=asked, try_repairs=False, tools=tools, check=False
            )
        except InputError as error:
            return str(error)
        if found.plan is None or found.exit_code not in (0, 1, 4):
            return "; ".join(found.why or found.violations) or found.status
        plan: Plan = found.plan
        missed = [one.text for one in plan.warnings if one.code == "W-percentile"]
        return "; ".join(missed) or plan  # what misses its percentile is no plan of an application that others rely on

    def settle(self, offers: Mapping[str, int], rate: float) -> Settled:
        """The question's own plan on exactly these machines."""
        bought = {name: count for name, count in offers.items() if count}
        key = (rate, tuple(sorted(bought.items())))
        if key not in self.settled:
            machines = dict.fromkeys(self.hardware, 0)
            for name, count in bought.items():
                machines[self.inputs.profile.offers[name].hardware] += count
            plan = self.own_plan(self.files(rate, {h: (n, n) for h, n in machines.items() if n}, bought))
            self.settled[key] = (
                Settled(None, plan)
                if isinstance(plan, str)
                else Settled(with_unique_names(plan, self.app, self.rates(rate), self.inputs))
            )
        found = self.settled[key]
        return self.otherwise.settle(offers, rate) if found.part is None and self.otherwise is not None else found

    def fewest(self, offers: Mapping[str, int], rate: float) -> Plan | None:
        """The question's own plan for the rate on some of these machines, at least cost; it settles those it takes."""
        machines, taken = Counter[str](), Counter[str]()
        for name, count in offers.items():
            machines[self.inputs.profile.offers[name].hardware] += count
        plan = self.own_plan(self.files(rate, {h: (0, n) for h, n in machines.items()}, offers))
        if isinstance(plan, str):
            return None
        for worker in plan.workers:
            taken[worker.offer or ""] += worker.count
        key = (rate, tuple(sorted(taken.items())))
        if (known := self.settled.get(key)) is None or known.part is None:
            self.settled[key] = Settled(with_unique_names(plan, self.app, self.rates(rate), self.inputs))
        return plan

    def settle_holding(self, workers: Sequence[Worker], rate: float) -> Settled:
        """A pipeline's own plan on exactly these machines, which load nothing: each goes on with what it holds."""
        key = (rate, self.options.get("sizing"), tuple(worker.model_dump_json() for worker in workers))
        if key not in self.holding:
            machines, bought = Counter[str](), Counter[str]()
            for worker in workers:
                machines[worker.hardware] += worker.count
                bought[worker.offer or ""] += worker.count
            files = self.files(rate, {h: (n, n) for h, n in machines.items()}, bought).with_limits(changes=0)
            plan = self.own_plan(replace(files, state=State(workers=tuple(workers))), offers="evenly")
            self.holding[key] = Settled(None, plan) if isinstance(plan, str) else Settled(self._at_rest(plan, rate))
        found = self.holding[key]
        if found.part is None and self.otherwise is not None:
            return self.otherwise.settle_holding(workers, rate)
        return found

    def _at_rest(self, plan: Plan, rate: float) -> PlanPart:
        """A plan that moves nothing, as a part: what it says of moves is of no use there."""
        part = with_unique_names(plan, self.app, self.rates(rate), self.inputs)
        return part.model_copy(update={"promises": tuple(one for one in part.promises if one.quantity != "changes")})


@dataclass
class FeasibilityCache:
    """What is known of machines (per type) and rates: fewer machines, or a higher rate, are no better."""

    kept: list[tuple[tuple[int, ...], float]] = field(default_factory=list)
    short: list[tuple[tuple[int, ...], float]] = field(default_factory=list)

    def is_feasible(self, machines: tuple[int, ...], rate: float) -> bool | None:
        """Whether these machines serve the rate, as far as is known; None where it is not."""
        if any(rate <= other and _is_below(there, machines) for there, other in self.kept):
            return True
        return False if any(rate >= other and _is_below(machines, there) for there, other in self.short) else None

    def add(self, machines: tuple[int, ...], rate: float, *, is_kept: bool) -> None:
        """What was seen."""
        (self.kept if is_kept else self.short).append((machines, rate))

    def add_infeasible(self, machines: tuple[int, ...], rate: float) -> None:
        """Record that these machines do not serve the rate, against what was recorded before."""
        self.kept = [one for one in self.kept if not (rate <= one[1] and _is_below(one[0], machines))]
        self.add(machines, rate, is_kept=False)


@dataclass
class Cone(Part):
    """Machines whose rate is that of a linear program: no more than ``w @ machines`` for each of its prices w.

    `most` gives the most that machines carry, and prices that hold for all machines.
    """

    most: Callable[[Sequence[float]], tuple[float, NDArray[np.float64]]] | None = None
    anew: Callable[[Sequence[float]], tuple[float, NDArray[np.float64]]] | None = None
    """The same, whatever was asked before: rows are made of it, so that they are found again."""
    kept: Callable[[Sequence[float]], float] | None = None
    """The most that whole machines carry where queries need room to wait, of those who have a formula for it."""
    cuts: dict[tuple[float, ...], NDArray[np.float64]] = field(default_factory=dict)
    """Prices that are rows, by the machines of which they were found."""
    known: dict[tuple[float, ...], float] = field(default_factory=dict)
    roomy: dict[tuple[float, ...], float] = field(default_factory=dict)
    late: Callable[[Sequence[int], float], float] | None = None
    """How many times as many are late on whole machines, at a rate, as may be: what a few queries show, of pools."""
    looks: FeasibilityCache = field(default_factory=FeasibilityCache)
    """What was seen so of which machines."""
    confirmed: FeasibilityCache = field(default_factory=FeasibilityCache)
    """What the question itself said, that plays what it plans."""
    firm: Cone | None = None
    """The same with margins, where `most` leaves none."""
    bare: Cone | None = None
    """The same without room to wait, where `most` leaves it by a formula: machines may carry that, and no more."""
    dropping: Cone | None = None
    """The same of one who drops late queries, where the application does: no machines carry more."""

    @classmethod
    def of(cls, part: Part, **what: Any) -> Cone:
        """The application of a part, asked as that is or otherwise; nothing is known of it yet."""
        same = {name: getattr(part, name) for name in ("app", "question", "hardware", "inputs", "options", "solve")}
        return cls(**{**same, **what})

    def run_on(self, runs: Iterable[tuple[str, Mapping[str, float], int]]) -> None:
        """Let it run on this hardware: what an instance needs, and how many a machine holds, where all are alike."""
        each = tuple(runs)
        of_hardware = Counter(hardware for hardware, _, _ in each)
        self.hardware = tuple(of_hardware)
        self.needs = {hardware: needs for hardware, needs, _ in each if of_hardware[hardware] == 1}
        self.alone = {hardware: count for hardware, _, count in each if of_hardware[hardware] == 1}

    def max_rate(self, machines: Sequence[float]) -> float:
        """The highest rate that these machines serve; the dual prices are kept as a row."""
        key = tuple(float(count) for count in machines)
        if key not in self.known:
            assert self.most is not None
            self.known[key], prices = self.most(key)
            if self._is_new(prices) and self._is_new(found := (self.anew or self.most)(key)[1]):
                self.cuts[key] = _without_rounding(found)
        return self.known[key]

    def of_use(self, rate: float) -> tuple[float, ...]:
        """Machines that alone keep every row that they are in."""
        weights = self.weights()
        alone = np.divide(rate, weights, out=np.zeros_like(weights), where=weights > 0)
        return tuple(np.ceil(alone.max(axis=0) * (1.0 + SLIP)).tolist())

    def know(self, machines: Iterable[Sequence[float]]) -> None:
        """Make rows of what these machines carry, and of no others."""
        assert self.anew is not None
        every = [tuple(float(count) for count in one) for one in machines]
        self.cuts = {key: _without_rounding(self.anew(key)[1]) for key in every}

    def _is_new(self, prices: NDArray[np.float64]) -> bool:
        weights = _without_rounding(prices)
        return not any(np.allclose(weights, cut, rtol=1e-9, atol=1e-12) for cut in self.cuts.values())

    def carries(self, machines: Sequence[float], rate: float) -> bool:
        """Whether the program says so."""
        return self.max_rate(machines) >= rate * (1.0 - SLIP)

    def has_room(self, machines: Sequence[float], rate: float) -> bool:
        """Whether the formula for queries that wait says so too."""
        return self.room_of(machines) >= rate * (1.0 - SLIP)

    def room_of(self, machines: Sequence[float]) -> float:
        """The most that they carry by that formula."""
        key = tuple(float(count) for count in machines)
        if key not in self.roomy:
            assert self.kept is not None
            self.roomy[key] = self.kept(key) if any(key) else 0.0
        return self.roomy[key]

    def weights(self) -> NDArray[np.float64]:
        """The prices found so far; to begin with those of one machine of each hardware, and of all together."""
        if not self.cuts:
            count = len(self.hardware)
            for number in range(count):
                self.max_rate([int(number == other) for other in range(count)])
            self.max_rate([1] * count)
        return np.array([*self.cuts.values()])

    def rows(self, m: Builder, machines: Sequence[NDArray[np.int64]], rate: float, about: str) -> None:
        """One row per price found so far."""
        found = self.weights()
        rows = m.rows(f"rate {self.app} {about}", str, size=len(found), lower=rate, unit="qps")
        for row, weights in zip(rows, found, strict=True):
            for columns, weight in zip(machines, weights, strict=True):
                if weight > 0:
                    m.add(row, columns, weight)


@dataclass
class Table(Part):
    """Machines whose rate only the question itself can say: the least machines for each rate, found by asking it."""

    recipes: int = 400
    answers: FeasibilityCache = field(default_factory=FeasibilityCache)
    least: dict[float, list[tuple[int, ...]]] = field(default_factory=dict)
    asks: int = 0
    each: Mapping[str, int] = field(default_factory=dict)
    """Of how many of its machines one is, of each hardware where they are slices of those that are sold."""

    def without_answers(self, **what: Any) -> Table:
        """The table with other options, and without the answers that it has kept."""
        return replace(self, **what, settled={}, holding={}, going_on={}, answers=FeasibilityCache(), least={}, asks=0)

    def carries(self, machines: Sequence[float], rate: float) -> bool:
        """Whether the question has a plan on at most these machines."""
        if rate <= 0:
            return True
        wanted = tuple(int(count) for count in machines)
        if not any(wanted):
            return False
        if (known := self.answers.is_feasible(wanted, rate)) is not None:
            return known
        self.asks += 1
        limits = {
            h: (n if self.question == "policy" else 0, n) for h, n in zip(self.hardware, wanted, strict=True) if n
        }
        found = not isinstance(
            self.own_plan(self._bare(self.files(rate, limits, None)), tools=replace(BRIEFLY, trial=True)), str
        )
        self.answers.add(wanted, rate, is_kept=found)
        return found

    def _bare(self, files: Inputs) -> Inputs:
        """With one offer of each hardware, at one price and as much as is wanted: what machines carry costs nothing."""
        offers: dict[str, Offer] = {}
        for offer in files.profile.offers.values():
            name = offer.hardware if offer.hardware in self.hardware else ""
            if name and name not in offers:
                alike = {"price_per_hour": NANO, "stock": None, "per": None, "interruptions_per_hour": None}
                offers[name] = offer.model_copy(update=alike)
        return replace(files, profile=files.profile.model_copy(update={"offers": offers}))

    def minimal(self, rate: float) -> list[tuple[int, ...]]:
        """All least machines for a rate: one fewer of any hardware does not carry it."""
        if rate not in self.least:
            alone = [self._alone(number, rate) for number in range(len(self.hardware))]
            found: list[tuple[int, ...]] = []
            before = self.asks
            for some in product(*(range(most + 1) for most in alone[:-1])):
                if any(_is_below(one, (*some, 0)) for one in found):
                    continue
                count = min([alone[-1], *(one[-1] for one in found if _is_below(one[:-1], some))])
                if not self.carries((*some, count), rate):
                    continue
                while count > 0 and self.carries((*some, count - 1), rate):
                    count -= 1
                if not any(_is_below(one, (*some, count)) for one in found):
                    found.append((*some, count))
                if self.asks - before > self.recipes:
                    break
            self.least[rate] = found
        return self.least[rate]

    def of_use(self, rate: float) -> tuple[float, ...]:
        """The most of any of its least machines."""
        least = self.minimal(rate) if rate > 0 else []
        return tuple(float(max((one[n] for one in least), default=0)) for n in range(len(self.hardware)))

    def _alone(self, number: int, rate: float) -> int:
        """The fewest machines of one hardware alone; where none do, as many as the rate could ever need."""

        def only(count: int) -> bool:
            return self.carries([count * (other == number) for other in range(len(self.hardware))], rate)

        high, each = 1, self.each.get(self.hardware[number], 1)
        while not only(high):
            high *= 2
            if high > 64 * each:
                return 0 if len(self.hardware) == 1 else 8 * each
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if only(middle) else (middle, high)
        return high

    def rows(self, m: Builder, machines: Sequence[NDArray[np.int64]], rate: float, about: str) -> None:
        """One of the least machines, of which there are enough."""
        if rate <= 0:
            return
        least = self.minimal(rate)
        name = f"{self.app} {about}"
        one = m.rows(f"one of {name}", ["all"], lower=1.0, upper=1.0)
        chosen = m.columns(f"which of {name}", str, size=len(least), upper=1.0, whole=True)
        m.add(one, chosen, 1.0)
        rows = m.rows(f"enough {name}", list(self.hardware), lower=0.0, unit="machines")
        for number, row in enumerate(rows):
            m.add(row, machines[number], 1.0)
            m.add(row, chosen, [-float(counts[number]) for counts in least])


def _without_rounding(prices: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(prices > SLIP * prices.max(initial=0.0), prices, 0.0)


def _is_below(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


def short_name(name: str) -> str:
    """A name of workers that leaves room for numbers in an id: what is cut off stays in it as some digits.

    >>> short_name("chat-node-a"), len(short_name("a" * 80)), short_name("a" * 80) == short_name("a" * 81)
    ('chat-node-a', 50, False)
    """
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 9]}-{sha256(name.encode()).hexdigest()[:8]}"


def with_unique_names(plan: Plan, whose: str, rates: Mapping[str, float], files: Inputs) -> PlanPart:
    """A problem's plan as a part of a fleet, with names of machine groups that are unique in the fleet.

    No other application of the files, on no other offer, gets these names: `a` on `b-c` is not `a-b` on `c`.
    """
    names, groups = dict[str, str](), dict[str, str]()
    workers, used = [], Counter[str]()
    places = (*files.profile.offers, *files.profile.hardware)
    plain = Counter(f"{app}-{place}" for app in {whose, *files.slo.apps} for place in dict.fromkeys(places))
    for worker in plan.workers:
        place = worker.offer or worker.hardware
        used[place] += 1
        own = f"{whose}-{place}" if used[place] == 1 else f"{whose}-{place}-{used[place]}"
        if plain[own] > (used[place] == 1):
            own = f"{own}-{sha256(repr((whose, place, used[place])).encode()).hexdigest()[:8]}"
        own = short_name(own)
        groups[worker.id] = own
        names |= {load.id: f"{own}.{number}" for number, load in enumerate(worker.loads, start=1)}
        loads = tuple(load.model_copy(update={"id": names[load.id]}) for load in worker.loads)
        workers.append(worker.model_copy(update={"id": own, "period": "t0", "loads": loads}))

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            return names.get(value, value)
        if isinstance(value, Mapping):
            return {names.get(key, key): renamed(one) for key, one in value.items()}
        return [renamed(one) for one in value] if isinstance(value, list | tuple) else value

    policies = {
        name: tuple(table.model_copy(update={"workers": groups.get(table.workers, table.workers)}) for table in tables)
        for name, tables in (plan.policies or {}).items()
    }
    data = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    return PlanPart.model_validate(
        {
            "question": plan.question, "method": plan.method, "valid": plan.valid,
            "rate_qps": {app: float(one) for app, one in rates.items()},
            "workers": tuple(workers), "routing": renamed(data["routing"]), "dispatch": renamed(data["dispatch"]),
            "policies": policies or plan.policies, "tables": plan.tables, "promises": plan.promises,
            "warnings": tuple(one for one in plan.warnings if one.code in KEPT),
        }
    )  # fmt: skip


KEPT = {
    "W-interruptions", "W-queueing", "W-extrapolated", "W-overlap", "W-law", "W-statistic", "W-latency-unchecked",
}  # fmt: skip
"""Warnings of a question's own plan that say something of the part; others are of how it was asked."""
