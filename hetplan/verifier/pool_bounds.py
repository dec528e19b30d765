"""The program of a pool, written down again from the inputs: what no choice of machines can exceed.

The rows by which a plan's proofs go, and their units
-----------------------------------------------------
Rates are counted in units of `unit`: the rate wanted where one is wanted (over ``derate``), else the rate of one
instance that is the fastest for every class. Columns: ``lam[rate]``, the rate of the pool; ``x[class@hardware]``, what
goes of a class to a hardware, over the share of the class; ``n[offer]``, machines (the hardware's name where
it has no offer), in whole numbers. A machine holds as many instances as it has room for (`_Kind.instances`). Rows:

``served[class]``           sum of the class's x = lam
``late[limit ms]``          sum of p x that take longer <= the share that may x lam
``capacity[hardware]``      sum of p x seconds x unit / instances of a machine <= its n
``target[rate]``            lam >= 1, where a rate is wanted
``budget[hour]``            prices x n <= the budget, rounded down to what whole numbers can cost
``somebody[pattern i]``     at least one machine for every set of hardware that some class needs
``least[hardware]``, ``most[hardware]``, ``resources[name]``    what the wish limits
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Claim, Solve
from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.demand import Classes, classes_of, response_targets, wanted_rate
from hetplan.verifier.facts import Facts, Seat, option
from hetplan.verifier.resources import instances_on, machine_nanos
from hetplan.verifier.rows import NoProof, NotRebuilt, Rows
from hetplan.verifier.service import service_of

__all__ = ["Carrying", "proved"]

_EVEN = 1e-9
"""A share that is over by no more than this is not over."""


def proved(facts: Facts, claim: Claim, solve: Solve) -> float:
    """The bound that the proof of a claim's solve shows of the claimed quantity; NoProof says why there is none."""
    pool = _Pool(facts)
    proof = solve.proof or {}
    simulated = any(one.quantity == "rate_qps" and one.model.startswith("simulation") for one in facts.plan.promises)
    if claim.about == "fluid_rate_qps":
        if simulated and claim.scope == "problem":
            if facts.plan.method.formulation == "fluid-lp":
                raise NotRebuilt("it is of another target than the plan's")
            # What the program was asked before the plan was played: the most that any machines for the budget carry.
            return pool.most(None, late=pool.tolerated).bound(proof)
        if simulated and claim.scope != "restriction":
            raise NotRebuilt("it is of another target than the plan's")
        return pool.most(pool.given, late=pool.tolerated).bound(proof)
    if claim.about == "rate_qps" and claim.sense == "max":
        if simulated:
            return pool.most(None, late=pool.left).bound(proof)
        return option(facts.plan, "derate", 1.0) * pool.most(None, late=pool.tolerated).bound(proof)
    if claim.about == "cost_per_hour" and claim.sense == "min":
        rate = wanted_rate(facts.inputs.slo.apps[pool.app])
        if rate is None or rate <= 0.0:
            raise NotRebuilt("it is about the cost of a rate that the wish does not state")
        # What no dispatcher can do with less (a relaxation) is asked without derate, and with all tolerance.
        loose = simulated or claim.scope == "relaxation"
        target = rate if loose else rate / option(facts.plan, "derate", 1.0)
        late = pool.left if loose else pool.tolerated
        return min(claim.value, pool.cheapest(target, claim.value, late=late).bound(proof))
    raise NotRebuilt(f"nothing is known here of the best {claim.about}")


@dataclass(frozen=True)
class _Kind:
    """A hardware that may be rented: seconds and judged latency per class (NaN: not served), prices, limits."""

    hardware: str
    run: Run
    seconds: list[float]
    latency_ms: list[float]
    offers: Mapping[str, tuple[int, int | None]]
    least: int
    most: int | None
    instances: int


class _Pool:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        if len(facts.inputs.slo.apps) != 1:
            raise NoProof("a pool has one application")
        ((self.app, wish),) = facts.inputs.slo.apps.items()
        self.wish = wish
        self.classes: Classes = classes_of(wish)
        self.coming = [s for s, share in enumerate(self.classes.share) if share > 0.0]
        total = sum(self.classes.share[s] for s in self.coming)
        self.share = {s: self.classes.share[s] / total for s in self.coming}
        self.kinds = self._kinds()
        targets = response_targets(wish)
        net = [(limit - wish.network_ms_per_hop, left) for limit, left in targets]
        self.lower, self.highest = net[:-1], net[-1] if net else (math.inf, 0.0)
        self.tolerated, self.left = option(facts.plan, "violation_tolerance", 0.0), self.highest[1]

    def _kinds(self) -> list[_Kind]:
        profile, limits = self.facts.inputs.profile, self.facts.inputs.slo.limits
        loads = (load for worker in self.facts.plan.workers for load in worker.loads)
        names = {load.variant for load in loads if load.app in (None, self.app)}
        if len(names) != 1 or None in names:
            raise NoProof("a pool runs one variant")
        (name,) = names
        variant = profile.variants[name or ""]
        found = []
        for hardware in dict.fromkeys(run.hardware for run in variant.runs):
            if hardware not in profile.hardware or (limits.only_listed and hardware not in limits.instances):
                continue
            run = self._run(name or "", hardware)
            if self._too_small(run):
                continue
            offers = self._offers(hardware, name or "", run)
            if not offers:
                continue
            worker = Worker(id="any", hardware=hardware)
            load = Load(id="any", app=self.app, variant=name, at=dict(run.at))
            service = service_of(self.facts, Seat(worker, load, run), self.classes)
            least, most = limits.instances.get(hardware, (0, None))
            found.append(
                _Kind(
                    hardware,
                    run,
                    service.seconds,
                    service.latency_ms,
                    offers,
                    least,
                    most,
                    instances_on(self.facts, run),
                )
            )
        return found

    def _too_small(self, run: Run) -> bool:
        """Whether hardware that says what it provides has too little of something."""
        provides = self.facts.inputs.profile.hardware[run.hardware].provides
        return bool(provides) and any(need > provides.get(name, 0.0) for name, need in run.needs.items())

    def _run(self, variant: str, hardware: str) -> Run:
        """The run that counts on a hardware: of several, the one of single queries at the variant's own settings."""
        about = self.facts.inputs.profile.variants[variant]
        runs = [run for run in about.runs if run.hardware == hardware]
        settings = {**about.knobs, "batch": 1}
        fitting = [run for run in runs if all(settings.get(axis) == value for axis, value in run.at.items())]
        return max(fitting or runs, key=lambda run: len(run.at))

    def _offers(self, hardware: str, variant: str, run: Run) -> dict[str, tuple[int, int | None]]:
        """Names of columns with what an instance costs, in 1e-9 per hour, and how many there are."""
        offers = self.facts.inputs.profile.offers
        named = [(name, offer.stock) for name, offer in offers.items() if offer.hardware == hardware]
        if run.price_per_hour is not None or not offers:
            named = [(hardware, None)]
        found = {}
        for name, stock in named:
            load = Load(id="any", app=self.app, variant=variant)
            worker = Worker(id="any", hardware=hardware, offer=name if name in offers else None, loads=(load,))
            price = machine_nanos(self.facts, worker, [Seat(worker, load, run)])
            if price is None:
                raise NoProof(f"the price of {name} is not known")
            found[name] = (int(price), stock)
        return found

    @cached_property
    def given(self) -> dict[str, int]:
        """Machines of each hardware in the plan."""
        count: dict[str, int] = defaultdict(int)
        for worker in self.facts.plan.workers:
            count[worker.hardware] += worker.count
        return count

    def limits(self, late: float) -> list[tuple[float, float]]:
        """What is left of the limits on the response time without the network, and the share that may take longer."""
        return [*self.lower, (self.highest[0], late)]

    def usable(self, kind: _Kind, s: int, late: float) -> bool:
        """Whether a class may go to a hardware at all: it is served, and within every limit that nothing may exceed."""
        strict = min((limit for limit, share in self.limits(late) if share <= 0.0), default=math.inf)
        return not math.isnan(kind.seconds[s]) and self.response(kind, s) <= strict

    def response(self, kind: _Kind, s: int) -> float:
        """What a class takes on a hardware; rates were measured within their limits."""
        return kind.latency_ms[s] if kind.run.latency is not None else 0.0

    @property
    def unit(self) -> float:
        """The rate of one instance that is the fastest for every class."""
        fastest = sum(
            self.share[s] * min((k.seconds[s] for k in self.kinds if not math.isnan(k.seconds[s])), default=math.inf)
            for s in self.coming
        )
        return 1.0 / fastest

    def most(self, given: Mapping[str, int] | None, *, late: float) -> Rows:
        """The most rate, of these machines or of all that the budget pays for."""
        budget = self.facts.inputs.slo.limits.cost_per_hour
        if given is None and budget is None:
            raise NoProof("it is about the most rate, and the wish states no budget")
        program = Rows("max")
        room = {kind.hardware: 0.0 for kind in self.kinds}
        for kind in self.kinds:
            for price, stock in kind.offers.values() if given is None else ():
                most = [limit for limit in (stock, kind.most) if limit is not None]
                most += [budget // price] if budget is not None and price > 0 else []
                room[kind.hardware] += min(most, default=math.inf)
            if given is not None:
                room[kind.hardware] = float(given.get(kind.hardware, 0))
        self._flows(program, room, unit=self.unit, late=late, gain=self.unit)
        if given is not None:
            for kind in self.kinds:
                self._capacity(program, kind, {}, unit=self.unit, late=late, high=room[kind.hardware])
        else:
            self._machines(program, {}, unit=self.unit, late=late, budget=budget, paid=None)
        return program

    def cheapest(self, target: float, value: float, *, late: float) -> Rows:
        """The least cost of a rate; nothing that costs more than `value` is looked at."""
        program = Rows("min")
        self._flows(program, None, unit=target, late=late, gain=0.0)
        program.row("target[rate]", {"lam[rate]": 1.0}, low=1.0)
        prices = {name: price for kind in self.kinds for name, (price, _) in kind.offers.items()}
        budget = self.facts.inputs.slo.limits.cost_per_hour
        self._machines(program, prices, unit=target, late=late, budget=budget, paid=math.ceil(value * NANO))
        return program

    def _flows(self, program: Rows, room: Mapping[str, float] | None, *, unit: float, late: float, gain: float) -> None:
        """Columns of rates, each with an end: what all machines could do of it, or the target itself."""
        ends: dict[tuple[int, str], float] = {}
        for kind in self.kinds:
            for s in self.coming:
                if self.usable(kind, s, late):
                    work = self.share[s] * kind.seconds[s] * unit / kind.instances
                    # More than the rounding of the division: the end must not cut off a point.
                    ends[s, kind.hardware] = 1.0 if room is None else room[kind.hardware] / work * (1.0 + 1e-9)
        most = min((sum(end for (other, _), end in ends.items() if other == s) for s in self.coming), default=0.0)
        program.column("lam[rate]", cost=gain, low=0.0, high=most if room is not None else 1.0)
        for (s, hardware), end in ends.items():
            program.column(f"x[{self._label(s)}@{hardware}]", low=0.0, high=min(end, most) if room is not None else 1.0)
        for s in self.coming:
            parts = {f"x[{self._label(s)}@{hardware}]": 1.0 for other, hardware in ends if other == s}
            program.row(f"served[{self._label(s)}]", {**parts, "lam[rate]": -1.0}, low=0.0, high=0.0)
        for limit, allowed in self.limits(late):
            if allowed > 0.0:
                slow = {
                    f"x[{self._label(s)}@{kind.hardware}]": self.share[s]
                    for kind in self.kinds
                    for s in self.coming
                    if (s, kind.hardware) in ends and self.response(kind, s) > limit
                }
                program.row(f"late[{limit:g} ms]", {**slow, "lam[rate]": -allowed}, high=0.0)

    def _label(self, s: int) -> str:
        words = (f"{axis}={size:g}" for axis, size in zip(self.classes.axes, self.classes.bins[s], strict=True))
        return " ".join(words) or "all"

    def _capacity(
        self, program: Rows, kind: _Kind, machines: Mapping[str, float], *, unit: float, late: float, high: float
    ) -> None:
        work = {
            f"x[{self._label(s)}@{kind.hardware}]": self.share[s] * kind.seconds[s] * unit / kind.instances
            for s in self.coming
            if self.usable(kind, s, late)
        }
        program.row(f"capacity[{kind.hardware}]", {**work, **machines}, high=high)

    def _machines(
        self,
        program: Rows,
        prices: Mapping[str, int],
        *,
        unit: float,
        late: float,
        budget: int | None,
        paid: int | None,
    ) -> None:
        """Columns of instances, and what limits them."""
        all_prices = {name: price for kind in self.kinds for name, (price, _) in kind.offers.items()}
        money = min((one for one in (budget, paid) if one is not None), default=None)
        for kind in self.kinds:
            for name, (price, stock) in kind.offers.items():
                most = [limit for limit in (stock, kind.most) if limit is not None]
                most += [money // price] if money is not None and price > 0 else []
                cost = prices.get(name, 0) / NANO
                program.column(f"n[{name}]", cost=cost, low=0.0, high=min(most, default=math.inf), whole=True)
            self._capacity(program, kind, {f"n[{name}]": -1.0 for name in kind.offers}, unit=unit, late=late, high=0.0)
            mine = {f"n[{name}]": 1.0 for name in kind.offers}
            if kind.least > 0:
                program.row(f"least[{kind.hardware}]", mine, low=kind.least)
            if kind.most is not None:
                program.row(f"most[{kind.hardware}]", mine, high=kind.most)
        if budget is not None:
            step = math.gcd(*all_prices.values())
            whole = budget // step * step if step else budget
            program.row("budget[hour]", {f"n[{name}]": p / NANO for name, p in all_prices.items()}, high=whole / NANO)
        for resource, total in self.facts.inputs.slo.limits.resources.items():
            taken = {f"n[{name}]": self._takes(kind, resource) for kind in self.kinds for name in kind.offers}
            program.row(f"resources[{resource}]", taken, high=total)
        for number, pattern in enumerate(self._patterns(late)):
            there = [kind for kind, wanted in zip(self.kinds, pattern, strict=True) if wanted]
            program.row(f"somebody[pattern {number}]", {f"n[{name}]": 1.0 for k in there for name in k.offers}, low=1.0)

    def _takes(self, kind: _Kind, resource: str) -> float:
        return self.facts.inputs.profile.hardware[kind.hardware].provides.get(resource, 0.0)

    def _patterns(self, late: float) -> list[tuple[bool, ...]]:
        """Sets of hardware of each of which some class needs one: where it may go, or be in time if it comes often."""
        found = set()
        for s in self.coming:
            may = [self.usable(kind, s, late) for kind in self.kinds]
            found.add(tuple(may))
            for limit, allowed in self.limits(late):
                if self.share[s] > allowed * (1.0 + _EVEN):
                    found.add(tuple(ok and self.response(k, s) <= limit for ok, k in zip(may, self.kinds, strict=True)))
        return sorted(found)


class Carrying(_Pool):
    """What one machine carries, whichever it is or of how many parts, for the bounds of fleets.

    A `planned` pool lets as many queries be late as its options say; any other, as many as its wish.
    """

    def __init__(self, facts: Facts, *, planned: bool) -> None:
        super().__init__(facts)
        self.late = self.tolerated if planned else self.left

    @property
    def hardware(self) -> list[str]:
        """The hardware that the pool may run on."""
        return [kind.hardware for kind in self.kinds]

    def program(self, prices: Mapping[str, float], given: Mapping[str, float] | None) -> Rows:
        """The most rate of one machine, less prices of its hardware; `given` says what it is."""
        program, room = Rows("max"), dict.fromkeys(self.hardware, 1.0)
        for kind in self.kinds:
            name = f"n[{kind.hardware}]"
            program.column(name, cost=-prices.get(kind.hardware, 0.0), low=0.0, high=1.0)
            if given is not None:
                program.row(f"machines[{kind.hardware}]", {name: 1.0}, high=given[kind.hardware])
        self._flows(program, room, unit=self.unit, late=self.late, gain=self.unit)
        for kind in self.kinds:
            machine = {f"n[{kind.hardware}]": -1.0}
            self._capacity(program, kind, machine, unit=self.unit, late=self.late, high=0.0)
        return program
