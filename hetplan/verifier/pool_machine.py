"""What one machine of a pool carries, written down from the inputs: for those who share machines after a failure.

Rates are counted in units of `unit`, the rate of one instance that is the fastest for every class. Columns:
``lam[rate]``, the rate in all; ``x[class@hardware]``, what goes of a class to a hardware, over the share of the class;
``n[hardware]``, parts of the machine. A machine holds as many instances as it has room for (`_Kind.instances`). Rows:

``served[class]``           sum of the class's x = lam
``late[limit ms]``          sum of p x that take longer <= the share that may x lam
``capacity[hardware]``      sum of p x seconds x unit / instances of a machine <= its n
``machines[hardware]``      n <= what the machine is of it
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hetplan.profiles.profile import Run
from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.demand import Classes, classes_of, response_targets
from hetplan.verifier.facts import Facts, Seat, option
from hetplan.verifier.resources import instances_on
from hetplan.verifier.rows import NoProof, Rows
from hetplan.verifier.service import service_of

__all__ = ["Carrying"]

_EVEN = 1e-9
"""A share that is over by no more than this is not over."""


@dataclass(frozen=True)
class _Kind:
    """A hardware that may be rented: seconds and judged latency per class (NaN: not served), instances on it."""

    hardware: str
    run: Run
    seconds: list[float]
    latency_ms: list[float]
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
            if not self._is_sold(hardware, run):
                continue
            worker = Worker(id="any", hardware=hardware)
            load = Load(id="any", app=self.app, variant=name, at=dict(run.at))
            service = service_of(self.facts, Seat(worker, load, run), self.classes)
            instances = instances_on(self.facts, run)
            found.append(_Kind(hardware, run, service.seconds, service.latency_ms, instances))
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

    def _is_sold(self, hardware: str, run: Run) -> bool:
        """Whether a hardware may be had at all."""
        offers = self.facts.inputs.profile.offers
        return run.price_per_hour is not None or not offers or hardware in {one.hardware for one in offers.values()}

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

    def _flows(self, program: Rows, *, late: float) -> None:
        """Columns of rates, each with an end: what a whole machine could do of it."""
        unit = self.unit
        ends: dict[tuple[int, str], float] = {}
        for kind in self.kinds:
            for s in self.coming:
                if self.usable(kind, s, late):
                    work = self.share[s] * kind.seconds[s] * unit / kind.instances
                    # More than the rounding of the division: the end must not cut off a point.
                    ends[s, kind.hardware] = (1.0 + 1e-9) / work
        most = min((sum(end for (other, _), end in ends.items() if other == s) for s in self.coming), default=0.0)
        program.column("lam[rate]", cost=unit, low=0.0, high=most)
        for (s, hardware), end in ends.items():
            program.column(f"x[{self._label(s)}@{hardware}]", low=0.0, high=min(end, most))
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

    def _capacity(self, program: Rows, kind: _Kind, *, late: float) -> None:
        work = {
            f"x[{self._label(s)}@{kind.hardware}]": self.share[s] * kind.seconds[s] * self.unit / kind.instances
            for s in self.coming
            if self.usable(kind, s, late)
        }
        program.row(f"capacity[{kind.hardware}]", {**work, f"n[{kind.hardware}]": -1.0}, high=0.0)


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
        program = Rows("max")
        for kind in self.kinds:
            name = f"n[{kind.hardware}]"
            program.column(name, cost=-prices.get(kind.hardware, 0.0), low=0.0, high=1.0)
            if given is not None:
                program.row(f"machines[{kind.hardware}]", {name: 1.0}, high=given[kind.hardware])
        self._flows(program, late=self.late)
        for kind in self.kinds:
            self._capacity(program, kind, late=self.late)
        return program
