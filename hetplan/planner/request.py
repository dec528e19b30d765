"""What is asked for and what may be rented, read once for every problem: applications, machine types, offers, limits.

Whatever has a price of its own is an offer of a machine type. A type has its offers in order of price, so "the cheapest
so many" means the same wherever machines are counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Literal

from hetplan.planner.choices import Choice, Choices
from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.operating_points import Limit, limits_of
from hetplan.profiles.profile import Hardware, Profile
from hetplan.profiles.profile import Offer as ProfileOffer
from hetplan.profiles.slo import App, Arrivals, Balancer, Change, Horizon, Mix, Survive, Traded
from hetplan.serving.demand import (
    Classes,
    Target,
    classes_of,
    late_share,
    response_targets,
    strictest_ms,
    strictest_target,
)
from hetplan.serving.loads import same_point
from hetplan.serving.price import SLICES
from hetplan.serving.runs import machine_price, times, variants_of

if TYPE_CHECKING:
    from hetplan.profiles.fleet_fields import OfferLimit
    from hetplan.profiles.pipelines import Pipeline
    from hetplan.profiles.slo_sections import Candidate, Device, TraceRef
    from hetplan.profiles.workers import Load, Worker

__all__ = [
    "PLENTY",
    "Application",
    "Commitment",
    "MachineType",
    "Offer",
    "Request",
    "cheapest_first",
    "read_request",
]

PLENTY = 10**9
"""Where nothing limits machines there are as many: more than any plan file may count in one group of machines."""


@dataclass(frozen=True)
class Application:
    """One stream of queries with its SLO, and the variants that it may run, by name.

    `stated` is its section of the SLO, which only this class reads: questions read what is named here, and hand the
    section on to who names places in it, as repairs do. What follows from it is worked out once, when it is asked for.
    """

    id: str
    stated: App
    variants: tuple[str, ...]

    @cached_property
    def rate_qps(self) -> float | None:
        """The rate, where a number is stated."""
        return self.stated.stated_qps

    @property
    def wants_max_rate(self) -> bool:
        """Whether the SLO asks for the highest rate."""
        return self.stated.wants_most

    @property
    def states_rate(self) -> bool:
        """Whether a rate is stated in any form."""
        return self.stated.rate_qps is not None

    @property
    def range_qps(self) -> tuple[float, float] | None:
        """The lowest and the highest rate, where a range is stated."""
        return self.stated.range_qps

    @property
    def history(self) -> tuple[float, ...] | None:
        """The rates of the past, where a forecast is asked for."""
        return self.stated.history

    @property
    def series(self) -> tuple[float, ...] | None:
        """The rate in each period, where they are stated."""
        return self.stated.series

    @property
    def trace(self) -> TraceRef | None:
        """The recorded arrivals."""
        return self.stated.trace

    @property
    def streams(self) -> int | None:
        """How many streams of queries, where there is no rate."""
        return self.stated.streams

    @property
    def arrivals(self) -> Arrivals:
        """How queries come."""
        return self.stated.arrivals

    @property
    def mix(self) -> Mix | None:
        """The classes of queries as they are stated."""
        return self.stated.mix

    @cached_property
    def classes(self) -> Classes:
        """The classes of queries that come at all."""
        return classes_of(self.stated.mix).coming()

    @property
    def latency(self) -> Mapping[str, float]:
        """Its limits by name, the network's time in them: `Target.key` is a name here."""
        return self.stated.latency

    @cached_property
    def targets(self) -> tuple[Target, ...]:
        """The limits on the response time, the highest percentile last."""
        return response_targets(self.stated)

    @cached_property
    def strictest(self) -> Target | None:
        """The lowest of these limits, by which single queries are judged."""
        return strictest_target(self.stated)

    @property
    def strictest_ms(self) -> float:
        """That limit as it is stated; infinite without one."""
        return strictest_ms(self.stated)

    @property
    def min_answered_share(self) -> float:
        """The least share of queries that machines have to answer: 1, or where late ones are dropped the rest.

        Who is dropped is late by every limit, so the highest percentile counts.
        """
        drops = self.late not in (None, "serve")
        return 1.0 - min((target.left for target in self.targets), default=0.0) if drops else 1.0

    @property
    def min_attainment(self) -> float:
        """The least share of queries that must be within the strictest limit."""
        return 1.0 - (self.strictest.left if self.strictest is not None else 1.0)

    def limit_ms(self, steps: int = 1) -> float:
        """What the strictest limit leaves for waiting and serving on a path of so many steps; infinite without one."""
        return self.strictest.limit_ms(steps) if self.strictest is not None else inf

    @property
    def hop_ms(self) -> float:
        """What the network takes for each step of a path."""
        return self.stated.network_ms_per_hop

    def network_ms(self, steps: int = 1) -> float:
        """What the network takes on a path of so many steps."""
        return self.stated.network_ms_once + steps * self.hop_ms

    @cached_property
    def limits(self) -> tuple[Limit, ...]:
        """The limits on what its machines take: the network's time is taken off."""
        return limits_of(self.stated)

    @cached_property
    def late_share(self) -> float:
        """The share of queries that may miss the strictest limit."""
        return late_share(self.stated)

    @property
    def attainment(self) -> float | None:
        """The least share of requests within all limits at once."""
        return self.stated.attainment

    @property
    def late(self) -> str | None:
        """What is done with queries that are late."""
        return self.stated.late

    @property
    def balancing(self) -> Literal["round_robin", "shortest_queue", "random"] | None:
        """The load balancer that stands before its replicas."""
        return self.stated.balancing

    @property
    def dispatch(self) -> Balancer | None:
        """That load balancer by its word: of whole queries, or of text."""
        return self.stated.dispatch

    @property
    def question(self) -> str | None:
        """The question that plans it as a part of a fleet."""
        return self.stated.question

    @property
    def pipeline(self) -> str | None:
        """The pipeline that it runs, if it runs one."""
        return self.stated.pipeline

    @property
    def answered_by(self) -> str:
        """The field of the SLO that says what answers it."""
        return self.stated.answered_by

    def weight(self, otherwise: float = 1.0) -> float:
        """What it counts for beside others; `otherwise` where that is not stated."""
        return otherwise if self.stated.weight is None else self.stated.weight

    @property
    def floor(self) -> float | None:
        """The least quality."""
        return self.stated.quality.min if self.stated.quality is not None else None

    @property
    def ceiling(self) -> float | None:
        """The most of it, of a metric where less is better."""
        return self.stated.quality.max if self.stated.quality is not None else None

    @property
    def has_quality_limit(self) -> bool:
        """Whether a quality is asked for."""
        return self.stated.quality is not None

    def meets_quality(self, value: float, slip: float = 0.0) -> bool:
        """Whether a quality is within what is asked for, or nearer to it than that."""
        least, most = self.floor, self.ceiling
        return (least is None or value >= least - slip) and (most is None or value <= most + slip)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The plans that are stated for it, of which it gets one."""
        return self.stated.candidates

    @property
    def device(self) -> Device | None:
        """What is said of its own device."""
        return self.stated.device

    @property
    def lifetime_s(self) -> float | None:
        """How long a query stays."""
        return self.stated.lifetime_s

    @property
    def deadline_s(self) -> float | None:
        """How soon a plan for it is wanted."""
        return self.stated.deadline_s


@dataclass(frozen=True)
class Commitment:
    """What a machine costs that is paid for ahead, for a term: per hour, and at its beginning, in counts of 1e-9."""

    nanos: int
    upfront: int = 0
    term_s: float = 0.0

    @property
    def price(self) -> float:
        """Per hour, in currency units, what is paid at the beginning spread over the term."""
        return (self.nanos + (self.upfront * 3600.0 / self.term_s if self.upfront else 0.0)) / NANO


@dataclass(frozen=True)
class Offer:
    """A price at which one machine of a type is had (a count of 1e-9 per hour), and how many there are at it.

    Its id is None where the profile has no offers, or the run on it has a price of its own. `hosts` names its machines
    where they are known one by one. Offers of one id draw on one stock. A spot machine may be taken away; one that is
    `ahead` may be committed for the whole horizon; each is paid for the hours that it takes to start.
    """

    id: str | None
    machine: str
    nanos: int
    stock: int = PLENTY
    hosts: tuple[str, ...] = ()
    zone: str | None = None
    spot: bool = False
    ahead: Commitment | None = None
    start_hours: float = 0.0

    @property
    def name(self) -> str:
        """What it is called in a program: its id, else its machine type."""
        return self.id or self.machine

    @property
    def price(self) -> float:
        """Per hour, in currency units."""
        return self.nanos / NANO

    @property
    def reserved_price(self) -> float | None:
        """The price per hour of a reserved machine; None where it is not sold that way."""
        return self.ahead.price if self.ahead is not None else None


def cheapest_first(count: int, stock: Sequence[int]) -> list[int]:
    """So many machines over offers, cheapest first.

    >>> cheapest_first(5, (3, 10))
    [3, 2]
    """
    found = []
    for most in stock:
        found.append(min(count, most))
        count -= found[-1]
    return found


@dataclass(frozen=True)
class MachineType:
    """Machines alike: their offers, cheapest first, what one provides, the least and the most that may be rented.

    Types of one `hardware` (by default the id) have these limits together.
    """

    id: str
    offers: tuple[Offer, ...]
    provides: Mapping[str, float] = field(default_factory=dict)
    least: int = 0
    most: int = PLENTY
    hardware: str = ""

    def __post_init__(self) -> None:
        if not self.hardware:
            object.__setattr__(self, "hardware", self.id)

    @cached_property
    def available(self) -> int:
        """How many can be had in all."""
        return min(self.most, sum(offer.stock for offer in self.offers))

    def cheapest_offers(self, count: int) -> list[tuple[Offer, int]]:
        """The offers of this many machines with counts, cheapest first.

        >>> kind = MachineType("gpu", (Offer("spot", "gpu", 1, stock=2), Offer("gpu", "gpu", 3)))
        >>> [(offer.id, n) for offer, n in kind.cheapest_offers(5)], kind.cost(5)
        ([('spot', 2), ('gpu', 3)], 11)
        """
        counts = cheapest_first(count, [offer.stock for offer in self.offers])
        return [(offer, here) for offer, here in zip(self.offers, counts, strict=True) if here]

    def cost(self, count: int) -> int:
        """What so many cost per hour, cheapest first."""
        return sum(offer.nanos * n for offer, n in self.cheapest_offers(count))

    def affordable(self, nanos: int) -> int:
        """The most that can be had for so much money.

        >>> MachineType("gpu", (Offer("spot", "gpu", 1, stock=2), Offer("gpu", "gpu", 3))).affordable(10)
        4
        """
        count = 0
        for offer in self.offers:
            here = min(offer.stock, nanos // offer.nanos if offer.nanos else offer.stock, self.most - count)
            count, nanos = count + here, nanos - here * offer.nanos
            if here < offer.stock:
                break
        return count


@dataclass(frozen=True)
class Request:
    """The applications, the machine types that a plan may rent for them, and what limits all of these together.

    `budget` is a count of 1e-9 per hour; `resources` are totals of what rented machines provide, `instances` the least
    and the most machines of each hardware (None: up to its stock), `quotas` what a zone gives of each resource,
    `changes` the most instances that may be new, `capacity` totals of what runs, where machines are not counted.

    Over time: `horizon` has the periods, `shares` what may be of each offer or way to buy, `survive` what may fail with
    the promises still kept, `change` what it costs to load other models, and how much room a rate is given.
    """

    machines: tuple[MachineType, ...]
    budget: int | None = None
    currency: str = "USD"
    resources: Mapping[str, float] = field(default_factory=dict)
    apps: Mapping[str, Application] = field(default_factory=dict)
    goals: tuple[str, ...] = ()
    """What is sought, in order of importance (`Slo.goals`)."""
    front: tuple[Traded, ...] | None = None
    """What is sought at once, where no order is stated: no plan of a front is beaten in all of these."""
    instances: Mapping[str, tuple[int, int | None]] = field(default_factory=dict)
    only_listed: bool = False
    changes: int | None = None
    capacity: Mapping[str, float] = field(default_factory=dict)
    horizon: Horizon = field(default_factory=Horizon)
    shares: Mapping[str, OfferLimit] = field(default_factory=dict)
    survive: Survive = field(default_factory=Survive)
    change: Change = field(default_factory=Change)
    running: tuple[Worker, ...] = ()
    """What runs now."""
    has_state: bool = False
    """Whether a state says what runs; it may be nothing."""
    known: Choices = field(default_factory=lambda: Choices(Profile()), repr=False, compare=False)
    """The runs of the profile, each read once."""
    quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    law_error: bool = True
    """Whether laws of engines are slower by their stated error."""

    @property
    def profile(self) -> Profile:
        """What was measured."""
        return self.known.profile

    def choices(
        self, app: str | None = None, *, variants: Iterable[str] | None = None, hardware: str | None = None
    ) -> tuple[Choice, ...]:
        """Every way to serve an application (its steps, of a pipeline), or these variants; on one hardware, or any.

        Without either, every way to run any variant of the profile.
        """
        if app is not None:
            steps = self.steps(app).values()
            variants = dict.fromkeys((*self.apps[app].variants, *(name for names in steps for name in names)))
        found = self.known.every() if variants is None else (one for name in variants for one in self.known.of(name))
        return tuple(one for one in found if hardware in (None, one.hardware))

    def meant_by(self, load: Load, hardware: str) -> tuple[Choice, ...]:
        """The choices that a load on a hardware can mean: one where it names its run, all where it does not."""
        found = self.choices(variants=[load.variant or ""], hardware=hardware)
        return tuple(one for one in found if load.at is None or same_point(one.at, load.at))

    def pays_whole(self, hardware: str, offer: str | None) -> bool:
        """Whether machines are paid whatever is on them: not by prices of runs, nor by the slice."""
        by_slice = offer is not None and self.profile.offers[offer].per in SLICES
        return not by_slice and not self.is_paid_by_run(hardware)

    def is_paid_by_run(self, hardware: str) -> bool:
        """Whether some run on a hardware has a price of its own."""
        return any(one.own_price is not None for one in self.choices(hardware=hardware))

    def is_sold_in_parts(self, hardware: str) -> bool:
        """Whether an offer of a hardware is paid by the unit of a resource."""
        return any(one.per is not None for one in self.profile.offers.values() if one.hardware == hardware)

    def pipeline(self, app: str) -> Pipeline | None:
        """The pipeline that an application runs."""
        return self.profile.pipelines.get(self.apps[app].pipeline or "")

    def steps(self, app: str) -> dict[str, tuple[str, ...]]:
        """For each stage of an application's pipeline that is a task, the names of the variants that can serve it."""
        pipeline = self.pipeline(app)
        tasks = {name: node.task for name, node in pipeline.nodes.items() if node.task} if pipeline is not None else {}
        return {name: self.known.of_task(task) for name, task in tasks.items()}

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """All offers, those of one type after the other."""
        return tuple(offer for kind in self.machines for offer in kind.offers)

    def lists(self, hardware: str) -> bool:
        """Whether a hardware is not ruled out by the limits, which may list all that may be used."""
        return not self.only_listed or hardware in self.instances

    def may_rent(self, hardware: str) -> bool:
        """Whether the limits leave any machine of a hardware."""
        _, most = self.instances.get(hardware, (0, None))
        return most != 0 and self.lists(hardware)

    def of(self, machine: str) -> MachineType:
        """The type of this id."""
        return self._by_id[machine]

    @cached_property
    def _by_id(self) -> dict[str, MachineType]:
        return {kind.id: kind for kind in self.machines}

    def renting(
        self,
        profile: Profile,
        machines: Iterable[str],
        *,
        own_price: Mapping[str, int] | None = None,
        paid_by_run: Collection[str] = (),
    ) -> Request:
        """The same with the named hardware, in this order; left out is what no offer sells, or the SLO does not list.

        `own_price` has the hardware on which the run is paid, at which price: offers do not count there. Where the
        profile has no offers at all a machine costs 1. Of hardware that is `paid_by_run` (several, each at its price)
        the offers have their stock and cost nothing: what is paid are fees of the runs.
        """
        own, found = own_price or {}, list[MachineType]()
        for name in filter(self.lists, machines):
            about = profile.hardware[name]
            if name in own or not profile.offers:
                offers = [Offer(None, name, own.get(name, NANO))]
            else:
                offers = [
                    self._offer(id, one, about, is_free=name in paid_by_run)
                    for id, one in profile.offers.items()
                    if one.hardware == name
                ]
            if offers:
                least, most = self.instances.get(name, (0, None))
                cheapest = tuple(sorted(offers, key=lambda offer: (offer.nanos, offer.name)))
                most = PLENTY if most is None else most
                found.append(MachineType(name, cheapest, about.provides, least, most))
        return replace(self, machines=tuple(found))

    def _offer(self, id: str, offer: ProfileOffer, hardware: Hardware, *, is_free: bool) -> Offer:
        """An offer of the profile."""
        nanos = machine_price(offer, hardware)
        sold, ahead = offer.commit, None
        if sold is not None:
            own = sold.price_per_hour
            ahead = Commitment(
                own if own is not None else times(nanos, 1.0 - (sold.discount or 0.0)), sold.upfront, sold.term_s
            )
        return Offer(
            id,
            offer.hardware,
            0 if is_free else nanos,
            PLENTY if offer.stock is None else offer.stock,
            zone=offer.zone,
            spot=offer.interruptions_per_hour is not None,
            ahead=ahead,
            start_hours=hardware.startup_s / 3600.0 if self.horizon.starts else 0.0,
        )

    def with_plenty(self) -> Request:
        """The same with as many machines of each type and offer as are wanted."""
        free = (
            replace(kind, most=PLENTY, offers=tuple(replace(offer, stock=PLENTY) for offer in kind.offers))
            for kind in self.machines
        )
        return replace(self, machines=tuple(free))

    def without_minima(self) -> Request:
        """The same where nothing has to be there."""
        return replace(self, machines=tuple(replace(kind, least=0) for kind in self.machines))

    def part(self, parts: int) -> Request:
        """What one of so many equal plans side by side may rent; minima are rounded up, all else down."""

        def share(count: int) -> int:
            return count if count >= PLENTY else count // parts

        machines = (
            replace(
                kind,
                least=-(-kind.least // parts),
                most=share(kind.most),
                offers=tuple(replace(offer, stock=share(offer.stock)) for offer in kind.offers),
            )
            for kind in self.machines
        )
        budget = None if self.budget is None else self.budget // parts
        return replace(self, machines=tuple(machines), budget=budget)


def read_request(inputs: Inputs) -> Request:
    """What SLO and state say, without machines (`Request.renting`): which of them are of use, a problem says."""
    slo, limits, state = inputs.slo, inputs.slo.limits, inputs.state
    may_run = variants_of(inputs.profile, slo.apps)
    return Request(
        (),
        limits.cost_per_hour,
        limits.currency,
        limits.provides,
        {name: Application(name, slo.apps[name], names) for name, names in may_run.items()},
        slo.goals,
        slo.front,
        limits.instances,
        limits.only_listed,
        limits.changes,
        limits.capacity,
        slo.horizon,
        limits.purchases,
        limits.survive,
        slo.change,
        state.workers if state is not None else (),
        state is not None,
        Choices(inputs.profile),
        {zone: held.quota for zone, held in inputs.profile.zones.items()},
        slo.robust.law,
    )
