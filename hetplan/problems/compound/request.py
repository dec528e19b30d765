"""Reads the files of compound queries: tiers with their machines, totals, stated candidates, the objective."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from hetplan.planner.draft import Repair
from hetplan.planner.forms.black_box import Figure
from hetplan.planner.request import Application, Request
from hetplan.problems.faults import Faults, refused_fields
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice
from hetplan.profiles.profile import Profile
from hetplan.serving.runs import machine_price

__all__ = [
    "BUDGET",
    "REFUSED",
    "Item",
    "MeasuredPlan",
    "PackingObjective",
    "Query",
    "Tier",
    "Way",
    "read_objective",
    "read_queries",
    "read_tiers",
]

REFUSED = {
    **refused_fields(
        "change.slack", "change.slack_qps", "change.load_weight_per_s", "horizon.period_s", "apps.*.latency.ttft_p*_ms",
        "apps.*.latency.tpot_p*_ms",
        "apps.*.dispatch", "apps.*.attainment", "apps.*.rate_qps.series",
    ),
    "limits.changes": ("compound plans do not support this limit", "Leave it out."),
    "limits.provides": ("compound plans do not count what machines provide", "Limit machines by instances."),
    "limits.survive.machines": ("compound plans do not support failures", "Leave it out."),
    "limits.survive.zones": ("compound plans do not support failures", "Leave it out."),
    "horizon.periods": ("this question plans one period", "Plan each period alone."),
    "apps.*.network_ms_per_hop": ("links say what the network takes", "Write links."),
    "apps.*.network_ms_once": ("links say what the network takes", "Write links."),
    "apps.*.rate_qps.history": ("compound queries come as streams, or at one rate", 'Write "rate_qps".'),
    "apps.*.mix": ("compound queries come as streams, all of them alike", "Leave it out."),
}  # fmt: skip
"""Fields of the SLO that this question does not keep: why, and what to write instead."""


@dataclass(frozen=True)
class Tier:
    """One tier: its hardware, how many machines of it there are, what one holds, what it costs.

    `own` says that every application has one for itself (its device): nothing of it is shared. `per` names the resource
    whose share is paid for; without it a machine in use is paid for whole. `elsewhere` are resources that its machines
    do not list and the wish limits in total.
    """

    name: str
    hardware: str
    relative_time: float
    machines: float
    room: Mapping[str, float]
    price_nanos: int = 0
    offer: str | None = None
    per: str | None = None
    own: bool = False
    elsewhere: frozenset[str] = frozenset()

    @property
    def price(self) -> float:
        """Currency units per hour of what is paid for: a machine, or one of what `per` names."""
        return self.price_nanos / NANO

    @property
    def machine_price(self) -> float:
        """Currency units per hour of one machine, all of it."""
        return self.price * (self.room.get(self.per, 1.0) if self.per is not None else 1.0)

    @property
    def whole_price(self) -> float:
        """The same where a machine is paid for whole, however much of it is used; 0 where shares are paid for."""
        return 0.0 if self.per == "gpu" else self.machine_price

    def part_of(self, needs: Mapping[str, float]) -> float:
        """The part of a machine that so much takes, of what it takes most of."""
        return max((a / max(self.room.get(kind, 0.0), 1e-12) for kind, a in needs.items()), default=0.0)

    def fits(self, needs: Mapping[str, float]) -> bool:
        """Whether a machine has room for so much."""
        return all(amount <= self.room.get(kind, 0.0) for kind, amount in needs.items() if kind not in self.elsewhere)


@dataclass(frozen=True)
class Item:
    """What one operator takes of one machine of a tier; `streams` that it serves there each take a part of it."""

    tier: str
    node: str | None
    size: Mapping[str, float]
    streams: int = 1


@dataclass(frozen=True)
class MeasuredPlan:
    """A plan that a search found: knobs, a tier and a share per operator, and what was measured and predicted of it.

    `price` is what its shares of machines come to (for one stream), however those are paid for: what the search went
    by. `latency_s` is what was compared with the strictest limit; `at` has, per wished percentile, the seconds that it
    is at most, and at least where that is known.
    """

    knobs: Mapping[str, object]
    placement: Mapping[str, str]
    share: Mapping[str, float]
    latency_s: float
    accuracy: float
    se: float
    samples: int
    verdict: str
    price: float
    interval: tuple[float, float]
    at: tuple[tuple[float, float, float | None], ...]
    streams: int = 1
    top: float = 1.0
    """The best score that there can be."""
    outcomes: Mapping[str, dict[str, float]] = field(default_factory=dict)
    """Of each operator with outcomes, how often its answers come to each."""
    per_query: float = 0.0
    """What its calls of APIs cost per query."""
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Of each operator how many there are, where queries come at a rate."""
    batches: Mapping[str, int] = field(default_factory=dict)
    """Of each operator how many queries it serves at once at most, where that is more than one."""


@dataclass(frozen=True)
class Way:
    """One way to serve an application: what it takes of totals, what of machines, what it costs per hour.

    Shared machines that are paid for whole are not in its `price`: they cost where they are in use.
    """

    demand: Mapping[str, float] = field(default_factory=dict)
    items: tuple[Item, ...] = ()
    price: float = 0.0
    weight: float = 1.0
    label: str | None = None
    found: MeasuredPlan | None = None

    def figure(self, name: Figure) -> float:
        """What is sought of it, less being better: its price, its latency in ms, what it misses of the top score."""
        if name == "cost" or self.found is None:
            return self.price
        return 1000.0 * self.found.latency_s if name == "latency" else abs(self.found.top - self.found.accuracy)


@dataclass(frozen=True)
class Query:
    """An application with its ways."""

    app: Application
    ways: tuple[Way, ...]
    why_none: str = ""
    repairs: tuple[Repair, ...] = ()
    """What might give it a way."""

    @property
    def app_id(self) -> str:
        """The id of the application."""
        return self.app.id


@dataclass(frozen=True)
class PackingObjective:
    """The objective: `sense` max serves most weight, min serves all; `then_cheapest` follows with the least cost.

    Where all are served, `of` is what is sought of them: one figure, or several as a front. `budget` is what all of it
    may cost per hour.
    """

    sense: Literal["max", "min"]
    then_cheapest: bool
    of: tuple[Figure, ...] = ("cost",)
    budget: float = math.inf


BUDGET = "cost_per_hour"
"""The limit on the cost, as the name of a total."""


def read_objective(request: Request, faults: Faults) -> PackingObjective:
    """The objective; by default most goodput, then least cost."""
    _refused(request, faults)
    limit = request.budget
    return replace(_sought_of_all(request, faults), budget=math.inf if limit is None else limit / NANO)


def _sought_of_all(request: Request, faults: Faults) -> PackingObjective:
    first = request.front
    stated = next((name for name, app in request.apps.items() if app.candidates), None)
    terms = request.goals
    if stated is not None and (first is not None or {"quality", "latency"} & set(terms)):
        remedy = 'Write ["max goodput", "min cost"].'
        faults.in_slo("$.objective", f"the candidates of {stated} say neither quality nor latency", remedy)
    if first is not None and len(terms) > 1:
        faults.in_slo("$.objective", "a front is the whole objective", "Drop the other terms.")
    if first is not None and len(set(first)) != max(2, len(first)):
        faults.in_slo("$.objective", "a front has two or three different objectives", 'Write "front quality cost".')
    if first is not None:
        return PackingObjective("min", False, first)
    known: Mapping[tuple[str, ...], PackingObjective] = {
        (): PackingObjective("max", True),
        ("goodput",): PackingObjective("max", False),
        ("served",): PackingObjective("max", False),
        ("goodput", "cost"): PackingObjective("max", True),
        ("served", "cost"): PackingObjective("max", True),
        ("cost",): PackingObjective("min", False),
        ("quality",): PackingObjective("min", False, ("quality",)),
        ("quality", "cost"): PackingObjective("min", True, ("quality",)),
        ("latency",): PackingObjective("min", False, ("latency",)),
        ("latency", "cost"): PackingObjective("min", True, ("latency",)),
    }
    if terms not in known:
        faults.in_slo(
            "$.objective",
            "compound queries are served by most goodput, or all of them by quality, latency or cost; cost may follow",
            'Write ["max goodput", "min cost"], "max quality", "min latency", '
            '"min cost" or "front quality cost", or leave it out.',
            value=", ".join(terms),
        )
    return known.get(terms, PackingObjective("max", True))


def _refused(request: Request, faults: Faults) -> None:
    """What the format can say and this question cannot keep: said, never passed over."""
    faults.refuse(REFUSED)
    for name, (least, most) in request.instances.items():
        if least > 0:
            faults.in_slo(
                f"$.limits.instances.{name}", "compound plans take the machines that they need, and no least number",
                f"Write [0, {'null' if most is None else most}].", value=least,
            )  # fmt: skip


def read_tiers(profile: Profile, request: Request, faults: Faults) -> tuple[Tier, ...]:
    """The tiers in their order, each with the one hardware that it has; without any offer a machine costs 1.

    Of several offers that is taken under which a whole machine is cheapest.
    Where only listed hardware may be used, a tier of other hardware has no machines. A resource that the wish limits in
    total is not looked for on machines that do not list it.
    """
    found: list[Tier] = []
    for place, name in enumerate(profile.tiers):
        here = [(h, hardware) for h, hardware in profile.hardware.items() if hardware.tier == name]
        here = [(h, hardware) for h, hardware in here if request.lists(h)] or here[:1]
        if len(here) != 1:
            if here:
                faults.in_profile(
                    "$.hardware", f"tier {name} has one hardware", "Keep one per tier.", value=", ".join(dict(here))
                )
            continue
        h, hardware = here[0]
        offers = {o: offer for o, offer in profile.offers.items() if offer.hardware == h}
        cheapest = min(
            offers, key=lambda o: machine_price(offers[o], profile.hardware[offers[o].hardware]), default=None
        )
        most = request.instances.get(h, (0, 0 if request.only_listed else None))[1]
        stock = offers[cheapest].stock if cheapest is not None else None
        bounds = [float(n) for n in (most, stock) if n is not None]
        price = offers[cheapest].price_per_hour if cheapest is not None else 0 if profile.offers else NANO
        found.append(
            Tier(
                name=name,
                hardware=h,
                relative_time=hardware.relative_time or 1.0,
                machines=min(bounds) if bounds else math.inf,
                room=dict(hardware.provides) or {"gpu": 1.0},
                price_nanos=price,
                offer=cheapest,
                per=offers[cheapest].per if cheapest is not None else None,
                own=place == 0 and len(profile.tiers) > 1 and not bounds and h not in request.instances,
                elsewhere=frozenset(request.capacity.keys() - (hardware.provides or {"gpu": 1.0}).keys()),
            )
        )
    return tuple(found)


def read_queries(
    request: Request, tiers: tuple[Tier, ...], faults: Faults
) -> tuple[tuple[Query, ...], dict[str, float], tuple[Notice, ...]]:
    """The applications with stated candidates, the totals that limit them, and what there is to say."""
    named = {tier.name for tier in tiers}
    totals = dict(request.capacity)
    notices: list[Notice] = []
    queries: list[Query] = []
    unlimited: set[str] = set()
    for app in request.apps.values():
        if not app.candidates:
            continue
        ways = []
        for candidate in app.candidates:
            items, demand = [], {}
            for key, amount in candidate.demand.items():
                if key in named and key not in totals:
                    items += [Item(key, None, {"gpu": amount})] if amount > 0 else []
                else:
                    demand[key] = amount
                    unlimited |= {key} - totals.keys()
            price = _price(items, tiers)
            if candidate.price_per_hour is not None:
                price = candidate.price_per_hour / NANO
            weight = app.weight() if candidate.weight is None else candidate.weight
            ways.append(Way(demand, tuple(items), price, weight, candidate.label))
        queries.append(Query(app, tuple(ways)))
    for key in sorted(unlimited):
        tier = next((tier for tier in tiers if tier.name == key), None)
        totals[key] = math.inf if tier is None else tier.machines * tier.room.get("gpu", 1.0)
        if math.isinf(totals[key]):
            text = f"nothing limits {key}: neither limits.capacity nor the instances of a tier of that name"
            notices.append(Notice(code="W-unlimited", at="slo.limits.capacity", text=text))
    if faults.found:
        return (), {}, ()
    return tuple(queries), totals, tuple(notices)


def _price(items: list[Item], tiers: tuple[Tier, ...]) -> float:
    """What shares of machines cost, where shares are paid for."""
    of = {tier.name: tier.price for tier in tiers if tier.per == "gpu"}
    return sum(of[item.tier] * item.size.get("gpu", 0.0) for item in items if item.tier in of)
