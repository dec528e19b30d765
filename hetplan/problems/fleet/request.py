"""Reads an SLO and a profile as a fleet's request: applications with their problems, offers, scenarios, limits.

Also which question plans each application, and whether files that no other question answers are a fleet of one period.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hetplan.errors import Fault
from hetplan.planner.contract import Obstacle, Options, Sizing
from hetplan.planner.fleet_part import Cone, Part
from hetplan.planner.request import Offer, Request, read_request
from hetplan.problems.faults import CAPACITY, Faults, refuse_not_provided
from hetplan.problems.infer_problem import LADDER, of_no_fleet
from hetplan.problems.metrics import higher_is_better
from hetplan.profiles.fields import Id, Key
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan_periods import inputs_of_part
from hetplan.profiles.slo import answered_by

if TYPE_CHECKING:
    from hetplan.profiles.slo import Horizon, Survive
    from hetplan.profiles.slo_sections import TraceRef
    from hetplan.profiles.workers import Worker

__all__ = [
    "HUGE",
    "PARTS",
    "PLAYED",
    "REFUSED",
    "Application",
    "FleetOptions",
    "FleetRequest",
    "Owned",
    "Situation",
    "between",
    "hindrance",
    "of_one_variant",
    "owners",
    "question_of",
    "read_fleet",
    "situations_of",
]

PLAYED = ("pool", "variants", "pipeline", "llm")
"""Questions whose parts are played on their machines, with sizing `simulation`."""
REFUSED = {
    **CAPACITY,
    "change.slack": ("headroom of a fleet is an option", "Set option headroom instead."),
    "change.slack_qps": ("headroom of a fleet is an option", "Set option headroom instead."),
    "change.load_weight_per_s": ("machines are paid while they start", "Leave it out."),
    "apps.*.weight": ("every application is served whole", "Leave it out."),
    "apps.*.lifetime_s": ("this question plans applications that stay", "Leave it out."),
    "apps.*.deadline_s": ("only the question compound has a deadline for each application", "Set --time-limit."),
    "apps.*.device": ("this question uses no devices of applications", "Leave it out."),
    "apps.*.candidates": ("only the question compound packs candidate plans", 'Write "model".'),
    "apps.*.rate_qps.history": ("a fleet is planned for stated rates", 'Write {"series": [...]}, a rate per period.'),
    "apps.*.streams": ("queries come at a rate", 'Write "rate_qps".'),
}
"""Fields of the SLO that a fleet does not keep, beside what the questions of its parts refuse."""

Goal = Literal["cost", "rate", "quality", "changes", "cost, then changes"]
GOALS: Mapping[tuple[str, ...], Goal] = {
    ("cost",): "cost", ("rate",): "rate", ("rate", "cost"): "rate", ("quality",): "quality",
    ("quality", "cost"): "quality", ("changes",): "changes", ("changes", "cost"): "changes",
    ("cost", "changes"): "cost, then changes",
}  # fmt: skip
HUGE = 10**6
Owned = tuple[tuple[str, ...], str]
"""The applications that have a machine, in order, and its offer."""

Floats = NDArray[np.float64]


FEWEST_QPS = 1e-4
"""Fewer are a machine's part below the tolerance of engines."""


@dataclass(frozen=True)
class Situation:
    """What may fail at once: the offers of which nothing is left, or `count` machines of a hardware."""

    name: str
    keep: float
    gone: frozenset[str] = frozenset()
    hardware: str | None = None
    count: int = 0


@dataclass(frozen=True)
class Application:
    """One application of the request, its question, and its rate in each period."""

    name: str
    question: str
    rates: tuple[float, ...]


@dataclass(frozen=True)
class FleetRequest:
    """All that a fleet is asked for."""

    inputs: Inputs
    options: FleetOptions
    apps: tuple[Application, ...]
    offers: tuple[Offer, ...]
    situations: tuple[Situation, ...]
    hours: float
    """How long a period is."""
    commits: bool = True
    spot: bool = True
    flat: bool = False
    """The same machines in all periods: planned as one."""
    only: Mapping[str, str] = field(default_factory=dict)
    """The one hardware that an application may use."""
    goal: Goal = "cost"
    """What is best; more than the cost can be said of one period alone (`max_objectives`)."""
    most: str | None = None
    """The application of which the most rate is wanted."""
    most_rounds: int = 30
    """Rounds of column generation, at most."""
    explains: bool = True
    """Whether a refusal says what is missing."""
    running: Mapping[Owned, int] = field(default_factory=dict)
    """Machines that run already, by whose they are: the first period follows them, the first time it comes."""
    room: Mapping[tuple[str, float | None], float] = field(default_factory=dict)
    """How many times a rate an application is planned for, so that queries may wait; None: at any rate."""
    rooms: Mapping[tuple[str, float], Mapping[str, float]] = field(default_factory=dict)
    """How many machines of a hardware do what its program says of one, by application and rate."""
    firm: frozenset[tuple[str, float]] = frozenset()
    """Applications and rates that are planned with the margins of their program."""
    seen: Mapping[tuple[str, float], Part] = field(default_factory=dict)
    """Of these applications and rates only machines count that were seen to be enough."""
    places: Mapping[str, int] = field(default_factory=dict)
    """Places on one machine of each hardware that is shared in slices."""
    slices: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The applications that share, and of how many of their slices, each for one instance, such a machine is."""
    spans: tuple[float, ...] = ()
    """Hours of each period, where periods are groups of like ones (`search.merge_periods`); empty: all are `hours`."""

    @cached_property
    def request(self) -> Request:
        """What the files ask for: those of the wish, also where it is another's with other files."""
        sold = dict.fromkeys(offer.machine for offer in self.offers)
        return read_request(self.inputs).renting(self.inputs.profile, sold)

    @property
    def periods(self) -> int:
        """How many periods there are."""
        if self.spans:
            return len(self.spans)
        return 1 if self.flat else self.request.horizon.periods

    def length(self, period: int) -> float:
        """How many hours a period is."""
        return self.spans[period] if self.spans else self.hours

    @cached_property
    def place(self) -> Mapping[str, int]:
        """Where an offer is in the list."""
        return {offer.name: number for number, offer in enumerate(self.offers)}

    @cached_property
    def stock(self) -> NDArray[np.int64]:
        """How many there are of each offer; of those that nothing limits more than anybody asks for."""
        return np.array([min(offer.stock, HUGE) for offer in self.offers], dtype=np.int64)

    @cached_property
    def prices(self) -> Floats:
        """Price per hour of each offer, rented."""
        return np.array([offer.price for offer in self.offers])

    @cached_property
    def committed(self) -> Floats:
        """Price per hour of each offer, committed; infinite where it is not sold so."""
        return np.array([np.inf if offer.reserved_price is None else offer.reserved_price for offer in self.offers])

    @property
    def stated(self) -> bool:
        """Whether a state says what runs before the first period."""
        return self.request.has_state

    @property
    def again(self) -> float:
        """How often, of all the times it comes, the first period follows the last: without a state always."""
        return 1.0 - 1.0 / self.request.horizon.repeats if self.stated else 1.0

    def runs(self, name: str) -> Floats:
        """Machines of each offer that an application has already for itself."""
        return np.array([float(self.running.get(((name,), offer.name), 0)) for offer in self.offers])

    @cached_property
    def all_running(self) -> Floats:
        """Machines of each offer that run already."""
        counts = Counter[str]()
        for (_, offer), count in self.running.items():
            counts[offer] += count
        return np.array([float(counts[offer.name]) for offer in self.offers])

    def each(self, name: str) -> tuple[int, ...]:
        """How many of what an application takes one machine of each offer is."""
        own = self.slices.get(name, {})
        return tuple(own.get(offer.machine, 1) for offer in self.offers)

    def lost(self, name: str, situation: Situation) -> int:
        """How many of what an application takes are lost at most with single machines: all slices of each of them."""
        return situation.count * self.slices.get(name, {}).get(situation.hardware or "", 1)

    def on(self, hardware: str) -> NDArray[np.int64]:
        """The offers of a hardware."""
        return np.array([n for n, offer in enumerate(self.offers) if offer.machine == hardware], dtype=np.int64)

    def rate(self, app: Application, period: int) -> float:
        """The rate that is planned for, with headroom and room to wait."""
        return app.rates[period] * self.more_for(app.name, app.rates[period])

    def settled_at(self, app: Application, period: int) -> float:
        """The rate that its machines are settled for: who was played was seen to have room at the rate itself."""
        was_played = app.question in PLAYED and self.options.sizing == "simulation"
        return app.rates[period] * (1.0 + self.options.headroom) if was_played else self.rate(app, period)

    def planned_by(self, part: Part, rate: float) -> Part:
        """Who says which machines carry a rate: its program, with margins where that is wished, or what was seen."""
        firm = part.firm if isinstance(part, Cone) and (part.app, rate) in self.firm else None
        return self.seen.get((part.app, rate)) or firm or part

    @property
    def given_room(self) -> Set[tuple[str, float]]:
        """Applications and rates of which other machines are enough than by their program."""
        return self.rooms.keys() | self.firm | self.seen.keys()

    @property
    def leaves_room(self) -> bool:
        """Whether anybody is planned for more than its program asks for."""
        return bool(self.room or self.given_room)

    def more_for(self, name: str, rate: float | None = None) -> float:
        """How many times a rate an application is planned for."""
        return (1.0 + self.options.headroom) * self.room.get((name, rate), self.room.get((name, None), 1.0))


def read_fleet(inputs: Inputs, options: FleetOptions, faults: Faults) -> FleetRequest:
    """The wish, with every fault collected."""
    faults.refuse(REFUSED)
    request = read_request(inputs)
    horizon, survive = request.horizon, request.survive
    goal, most = _goal(inputs, request, faults)
    running = _running(inputs, request, goal, faults)
    _without_use(request, faults)
    apps = tuple(_application(inputs, request, name, faults) for name in request.apps)
    offers = _offers(request, faults)
    if request.only_listed and inputs.profile.offers and not offers:
        why = "only hardware that is listed may be used, and limits.instances lists none that applications run on"
        faults.in_slo("$.limits.only_listed", why, 'List hardware under "instances", or leave this out.')
    if survive.zones:
        for offer in offers:
            if offer.zone is None:
                why = "a price in no zone, where zones may be lost"
                faults.in_profile(f"$.offers.{offer.name}", why, 'Say in which "zones" it holds.')
    horizon_s = horizon.period_s * horizon.periods * horizon.repeats
    for name, sold in inputs.profile.offers.items():
        if sold.commit is not None and sold.commit.term_s > horizon_s * (1 + 1e-9):
            repeats = int(np.ceil(sold.commit.term_s / (horizon.period_s * horizon.periods)))
            why = f"a term of at most the horizon, which is {horizon_s:g} s with its repeats"
            remedy = f'Write "repeats": {repeats} under horizon, or a shorter term.'
            faults.in_profile(f"$.offers.{name}.commit.term_s", why, remedy, value=sold.commit.term_s)
    faults.settle()
    situations = tuple(situations_of(survive, offers))
    return FleetRequest(
        inputs, options, apps, offers, situations, horizon.period_s / 3600.0, goal=goal, most=most, running=running
    )


def _without_use(request: Request, faults: Faults) -> None:
    """What is stated, and would change nothing."""
    refuse_not_provided(request, faults)
    survive = request.survive
    if survive.serve != 1 and not survive.machines and not survive.zones and survive.spot == "none":
        why = "a share to serve after a failure, and no failure is stated"
        faults.in_slo("$.limits.survive.serve", why, 'Write "zones", "machines" or "spot", or leave it out.')
    elif survive.serve == 0:
        why = "a failure is stated, and nothing has to be served after it"
        faults.in_slo("$.limits.survive.serve", why, "Write a share above 0, or leave limits.survive out.", value=0)


def _goal(inputs: Inputs, request: Request, faults: Faults) -> tuple[Goal, str | None]:
    """What is best, and the application of which the most is wanted."""
    wanted = [name for name, app in request.apps.items() if app.wants_max_rate]
    known: dict[tuple[str, ...], Goal] = {(): "rate" if wanted else "cost", **GOALS}
    if request.goals not in known:
        listed = "cost, or of one period the most quality or rate"
        faults.in_slo("$.objective", f"a fleet is planned for {listed}", 'Write "min cost".')
        return "cost", None
    goal = known[request.goals]
    if request.horizon.periods > 1 and (goal != "cost" or wanted):
        at = "$.objective" if request.goals and goal != "cost" else f"$.apps.{wanted[0]}.rate_qps"
        faults.in_slo(at, "several periods are planned at least cost", 'Write "min cost", and rates.')
    if len(wanted) > 1:
        at = f"$.apps.{wanted[1]}.rate_qps"
        faults.in_slo(at, f"the most is wanted of {wanted[0]} already", "Write a number.", value="max")
    if wanted and goal != "rate":
        faults.in_slo("$.objective", f"{goal} needs rates, and the most is wanted of {wanted[0]}",
                      'Write "max rate", or a number as rate_qps.')  # fmt: skip
    if goal == "rate" and not wanted:
        faults.in_slo("$.objective", "the rates are given", 'Write "rate_qps": "max" of one application.')
    if wanted and request.budget is None:
        _bounded(inputs, request, wanted[0], faults)
    if goal == "quality":
        higher_is_better(request, faults)
    return goal, next(iter(wanted), None)


def _running(inputs: Inputs, request: Request, goal: Goal, faults: Faults) -> dict[Owned, int]:
    """What the state says of machines: whose they are, and of which offer."""
    found = Counter[Owned]()
    if not request.has_state:
        if "changes" in goal:
            why = "the fewest moves are wanted, and nothing says what runs"
            faults.in_slo("$.objective", why, "Name a state file too.")
        return found
    state = inputs.files.get("state", "state.json")
    counted = "changes" in goal or request.changes is not None
    for number, (worker, (apps, offer)) in enumerate(owners(request)):
        found[apps, offer] += worker.count + worker.standby
        at = f"$.workers[{number}]"
        if offer not in inputs.profile.offers:
            why, remedy = "a fleet knows machines by their offer", 'Write "offer", one of the profile.'
            faults.found.append(Fault(state, f"{at}.offer", offer, why, remedy))
        elif not apps:
            why = "a fleet knows machines by the applications that they serve, and a load here names none"
            faults.found.append(Fault(state, at, "", why, 'Write "app" of each load.'))
        elif counted and len(apps) > 1:
            why = f"moves are counted by application, and this machine is of {', '.join(apps)}"
            remedy = 'Leave out "changes": beside limits on moves no machine is shared.'
            faults.found.append(Fault(state, at, "", why, remedy))
    return found


def owners(request: Request) -> Iterator[tuple[Worker, Owned]]:
    """The workers of the state, and whose they are; nobody's, where that is not said."""
    only = tuple(request.apps) if len(request.apps) == 1 else ()
    for worker in request.running:
        named = {load.app for load in worker.loads}
        said = tuple(sorted(app for app in named if app is not None))
        yield worker, (said if named and None not in named else only, worker.offer or "")


def _bounded(inputs: Inputs, request: Request, name: str, faults: Faults) -> None:
    """Without a budget, stock says how much there is."""
    for offer in inputs.profile.offers.values():
        most = request.instances.get(offer.hardware, (0, None))[1]
        if offer.stock is None and most is None and not request.resources:
            why = f"the most rate of {name} is wanted, and neither a budget nor stock limits it"
            faults.in_slo("$.limits.cost_per_hour", why, 'Write "cost_per_hour", or "stock" of each offer.')
            return


def _application(inputs: Inputs, request: Request, name: str, faults: Faults) -> Application:
    app, periods, at = request.apps[name], request.horizon.periods, f"$.apps.{name}"
    rates: tuple[float, ...] = ()
    if app.trace is not None and app.trace.period_s is not None:
        rates = _rates_of_trace(inputs.traces.get(name), request.horizon, name, app.trace, faults)
    elif app.series is not None:
        rates = app.series
    elif app.rate_qps is not None:
        rates = (app.rate_qps,) * periods
    elif app.wants_max_rate:
        rates = (1.0,) * periods
    else:
        why = "a rate in each period"
        faults.in_slo(f"{at}.rate_qps", why, f'Write {{"series": [...]}} with {periods} rates, or a number.')
        rates = (1.0,) * periods
    if any(0 < rate * request.survive.serve < FEWEST_QPS for rate in rates):
        why = "so few queries, after a failure too, that no engine tells them from none"
        faults.in_slo(f"{at}.rate_qps", why, f"Write 0, or at least {FEWEST_QPS:g} queries a second.", value=min(rates))
    question = app.question
    if question is None:
        found = question_of(inputs, name, max(max(rates), 1e-9))
        if isinstance(found, Obstacle):
            (faults.in_profile if found.file == "profile" else faults.in_slo)(found.path, found.why, found.remedy)
        question = found if isinstance(found, str) else PARTS[0]
    if question not in PARTS:
        why = f"one of {', '.join(PARTS)}"
        faults.in_slo(f"{at}.question", why, "Name one of these, or leave it out.", value=question)
    elif app.question is not None and (why_not := hindrance(inputs, name, question, max(max(rates), 1e-9))):
        (faults.in_profile if why_not.file == "profile" else faults.in_slo)(why_not.path, why_not.why, why_not.remedy)
    return Application(name, question, tuple(float(rate) for rate in rates))


def _rates_of_trace(
    times: Sequence[float] | None, horizon: Horizon, name: str, trace: TraceRef, faults: Faults
) -> tuple[float, ...]:
    """A trace cut into windows: for each period that percentile of the rates of its windows, over all repeats."""
    assert trace.period_s is not None
    if times is None or len(times) < 2:
        return (1.0,) * horizon.periods
    windows = int(np.floor(times[-1] / trace.period_s))
    if trace.period_s > horizon.period_s * (1 + 1e-9):
        why = f"windows of at most a period, {horizon.period_s:g} s"
        faults.in_slo(f"$.apps.{name}.rate_qps.trace.period_s", why, "Write a shorter one.", value=trace.period_s)
        return (1.0,) * horizon.periods
    counts, _ = np.histogram(times, bins=max(windows, 1), range=(0.0, max(windows, 1) * trace.period_s))
    rates = counts / trace.period_s
    begins = np.arange(len(rates)) * trace.period_s
    period = (begins // horizon.period_s).astype(int) % horizon.periods
    if len(np.unique(period)) < horizon.periods:
        why = f"a trace of at least the {horizon.periods} periods planned"
        faults.in_slo(f"$.apps.{name}.rate_qps.trace.file", why, "Record longer, or plan fewer periods.")
        return (1.0,) * horizon.periods
    percentile = 100.0 if trace.percentile is None else trace.percentile
    return tuple(float(np.percentile(rates[period == p], percentile)) for p in range(horizon.periods))


def _offers(request: Request, faults: Faults) -> tuple[Offer, ...]:
    """What is sold of the hardware that something runs on, as the profile lists it."""
    profile, runs = request.profile, request.choices()
    used = {one.hardware for one in runs}
    for one in (one for one in runs if one.own_price is not None):
        why = "a price of its own, where whole machines are bought"
        faults.in_profile(f"$.{one.path}.price_per_hour", why, "Give offers the price.")
    if not profile.offers:
        faults.in_profile("$.offers", "no prices: a fleet says what to buy", "Add price_per_hour to the machine types.")
        return ()
    sold = {offer.name: offer for offer in request.renting(profile, sorted(used)).offers}
    return tuple(sold[name] for name in profile.offers if name in sold)


def situations_of(survive: Survive, offers: Sequence[Offer]) -> Iterator[Situation]:
    """Nothing failed, then all that may fail at once."""
    zones = sorted({offer.zone for offer in offers if offer.zone is not None})
    yield Situation("nothing failed", 1.0)
    for lost in combinations(zones, survive.zones) if survive.zones else ():
        gone = frozenset(offer.name for offer in offers if offer.zone in lost)
        yield Situation(f"zone {' and '.join(lost)} lost", survive.serve, gone)
    if survive.spot == "all":
        yield Situation("all spot gone", survive.serve, frozenset(offer.name for offer in offers if offer.spot))
    elif survive.spot == "zone":
        for zone in zones or (None,):
            gone = frozenset(offer.name for offer in offers if offer.spot and offer.zone == zone)
            if gone:
                yield Situation(f"spot of {zone or 'everywhere'} gone", survive.serve, gone)
    if survive.machines:
        for hardware in dict.fromkeys(offer.machine for offer in offers):
            name = f"{survive.machines} {hardware} lost"
            yield Situation(name, survive.serve, hardware=hardware, count=survive.machines)


PARTS = ("llm", "pool", "pipeline", "variants", "policy")
"""Questions that can be parts of a fleet."""
BETWEEN = {"rate", "quality", "cost", "changes"}
"""What a fleet of one period can be planned for."""


def between(inputs: Inputs) -> Iterator[Obstacle]:
    """What keeps files of one period, which no question's own program answers, from being a fleet."""
    request = read_request(inputs)
    yield from of_no_fleet(request)
    if not inputs.profile.offers:
        yield Obstacle("no prices: a fleet says what to buy", "$.offers", "Add price_per_hour to the machine types.")
    if not request.apps or not BETWEEN.issuperset(request.goals):
        yield Obstacle("a fleet is planned for cost, rate, quality or changes", "$.objective", 'Write "min cost".')
    for name, app in request.apps.items():
        if app.rate_qps is None and not app.wants_max_rate:
            yield Obstacle(f"{name} states no rate", f"$.apps.{name}.rate_qps", 'Write "rate_qps".')
        elif isinstance(found := question_of(inputs, name, 1.0), Obstacle):
            yield found


def question_of(inputs: Inputs, name: str, rate: float) -> str | Obstacle:
    """The most specific question that the application's own files ask; one variant may be chosen for a pool."""
    own = _own(inputs, name, rate)
    found = {question: LADDER[question](own) for question in PARTS if question != "policy"}
    for question, why in found.items():
        if not why:
            return question
    if _is_pool_of_one(own, name):
        return "pool"
    nearest = min(found, key=lambda one: (sum(o.essential for o in found[one]), len(found[one])))
    first = found[nearest][0]
    return replace(first, why=f"{name} fits no question. The nearest is {nearest}, but {first.why}")


def hindrance(inputs: Inputs, name: str, question: str, rate: float) -> Obstacle | None:
    """What keeps an application's own files from asking the question that is stated; a policy's are made for it."""
    own = _own(inputs, name, rate)
    why = LADDER[question](own) if question != "policy" else ()
    return why[0] if why and not (question == "pool" and _is_pool_of_one(own, name)) else None


def _own(inputs: Inputs, name: str, rate: float) -> Inputs:
    return inputs_of_part(inputs, {name: rate}).with_slo(objective=())


def _is_pool_of_one(own: Inputs, name: str) -> bool:
    """Whether it is a pool of whichever of its variants is chosen."""
    app = read_request(own).apps[name]
    names = app.variants if app.pipeline is None and not app.candidates else ()
    return len(names) > 1 and not any(LADDER["pool"](of_one_variant(own, name, one)) for one in names)


def of_one_variant(inputs: Inputs, name: str, variant: str) -> Inputs:
    """The same files, where the application runs this variant alone; its floor is kept by who chose it."""
    return inputs.with_app(name, **answered_by(variant), quality=None)


class FleetOptions(Options):
    """Options of a fleet: several applications, periods or offers."""

    rough: ClassVar[Mapping[str, object]] = {"savings": False}
    """What plans faster, while a person moves a limit."""

    sizing: Sizing = Field(
        default="simulation",
        description="how waiting is taken into account; fluid: by the programs of the applications' problems; "
        "formula: by queueing formulas; simulation: the same, then pools, variants, pipelines and LLMs are simulated",
    )
    headroom: float = Field(
        default=0.0, ge=0, le=10, description="headroom above the stated rate, for every application"
    )
    parts: dict[Id, dict[Key, Any]] = Field(
        default_factory=dict, description="options of the problem of each application, by application"
    )
    gap: float = Field(default=0.003, ge=0, le=1, description="gap at which the search for whole machines ends")
    share_machines: bool = Field(
        default=True,
        description="whether applications may share a machine if their replicas fit on it",
    )
    savings: Literal["played"] | bool = Field(
        default=True,
        description="compute what each purchase option saves; played: simulate each, which true does only up to 72 "
        "applications times periods",
    )
