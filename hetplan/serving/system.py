"""What runs: loads, groups of workers, routes, stages, applications and links, in plain words.

A plan is one way to describe a system (`planned_system.py`); closed-form checks and baselines write theirs by hand::

    >>> import numpy as np
    >>> from hetplan.serving.system import App, Group, Load, Route, Service, Stage, System, Way
    >>> load = Load("serve", {"ask": Service(np.array([[10.0]]))})
    >>> system = System(
    ...     apps=(App("ask", (Stage("only"),), slo_ms=100.0),),
    ...     groups=(Group("gpu", (load,), count=2),),
    ...     routes=(Route("ask", "only", (Way("gpu", "serve"),), rule=Rule.CENTRAL),),
    ... )
    >>> system.apps[0].entry
    'only'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

from hetplan.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetplan.profiles.plan_sections import MatchingDispatch
    from hetplan.serving.tokens import TextSystem

__all__ = [
    "LATE_POLICIES",
    "After",
    "App",
    "Backup",
    "Combine",
    "Edge",
    "Group",
    "Inner",
    "Late",
    "Link",
    "Load",
    "Noise",
    "PolicyTable",
    "Pull",
    "Route",
    "Rule",
    "Service",
    "Stage",
    "System",
    "Way",
    "link_table",
]


class Rule(IntEnum):
    """How a route chooses a lane; the simulator's kernels use the same numbers."""

    SHARES = 0
    ROUND_ROBIN = 1
    SHORTEST = 2
    EARLIEST = 3
    CENTRAL = 4


class Inner(IntEnum):
    """How queries are spread over the alike workers of one way."""

    RANDOM = 0
    ROUND_ROBIN = 1
    SHORTEST = 2


class Pull(IntEnum):
    """How a central queue is emptied."""

    IN_ORDER = 0
    MATCHING = 1


class Late(IntEnum):
    """When a request is given up."""

    SERVE = 0
    DROP = 1
    DROP_LAST_TASK = 2
    DROP_PER_TASK = 3
    REROUTE = 4


LATE_POLICIES = {one.name.lower().replace("_", "-"): one for one in Late}
"""By their names in files."""


class Noise(IntEnum):
    """How service times vary around their mean."""

    MEAN = 0
    LOGNORMAL = 1
    EXPONENTIAL = 2


class Combine(IntEnum):
    """How qualities along a path combine."""

    PRODUCT = 0
    ADDITIVE = 1


@dataclass(frozen=True)
class Service:
    """How long batches take: one row per class of query, one column per batch size from 1.

    `pieces` are those of each time's distribution (`serving.distribution`; nan: it does not vary); without them times
    are lognormal by `std_ms`, cut at `most_ms`. `predicted_ms` is what the dispatcher believes (default: the mean).
    """

    mean_ms: NDArray[np.float64]
    std_ms: NDArray[np.float64] | None = None
    most_ms: NDArray[np.float64] | None = None
    predicted_ms: NDArray[np.float64] | None = None
    pieces: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Fails:
    """A job tries once in each of its `rounds` (per class), and again where it fails, `most` times at most.

    Each failure, with this chance, takes `again_ms` more.
    """

    chance: float
    most: int
    again_ms: float
    rounds: NDArray[np.float64]


@dataclass(frozen=True)
class Load:
    """A variant (or operator) held by every worker of a group: the applications and stages that it serves.

    `fanout` gives this load's own mean of jobs per job for an edge's far stage, `outcomes` how often its answers come
    to each outcome of its stage. With `fails` each job draws how often it fails.
    """

    id: str
    services: Mapping[str, Service]
    stages: tuple[str, ...] = ()
    max_wait_ms: float = 0.0
    servers: int = 1
    quality: float = 1.0
    fanout: Mapping[str, float] = field(default_factory=dict)
    outcomes: Mapping[str, float] = field(default_factory=dict)
    bytes_out: float = 0.0
    slowdown: tuple[float, ...] = ()
    offline: bool = False
    room: int | None = None
    fails: Fails | None = None


@dataclass(frozen=True)
class PolicyTable:
    """(queue length, slack of the oldest query) -> (load, batch); `choice[n - 1][j]` indexes the group's loads.

    Slack is floored to `slack_ms`; below its first entry the first column answers; beyond `queue_max` rows `otherwise`
    does (a batch of 0 means all that wait). `rate_qps` is the load of the group that the table is for.
    """

    slack_ms: NDArray[np.float64]
    choice: NDArray[np.int32]
    batch: NDArray[np.int32]
    otherwise: int = 0
    otherwise_batch: int = 0
    rate_qps: float = 0.0


@dataclass(frozen=True)
class Group:
    """Alike workers. With `shared`, the loads of a worker share `servers`; else each load has its own.

    With `policies`, there is one queue for all loads and a table (at first the first) decides which of them serves.
    Where they are `joined`, batches are made of the queues of all loads. `ready_ms` is how long a worker of the group
    takes from being asked for to serving. One of `standby` workers, loaded and paid for, takes over at once from one
    that breaks.
    """

    id: str
    loads: tuple[Load, ...]
    count: int = 1
    standby: int = 0
    shared: bool = True
    joined: bool = False
    servers: int = 1
    policies: tuple[PolicyTable, ...] = ()
    hardware: str = ""
    tier: str = ""
    price_nanos: int = 0
    ready_ms: float = 0.0
    offline_below: float = 0.4


@dataclass(frozen=True)
class After:
    """What follows an outcome: per stage the name of a route, and the measured quality of a path that ends with it."""

    then: Mapping[str, str] = field(default_factory=dict)
    quality: float | None = None


@dataclass(frozen=True)
class Way:
    """One target of a route: a load of a group, its share, and which routes the jobs that follow take.

    `then` maps a stage to the name of a route; a stage not named takes its own default route. `quality` is the
    measured quality of the whole path that ends here. Where the stage has outcomes, `by_outcome` says both of each.
    `weight` and `late_cost` are what a timely and a late pair cost the matching, `limit_ms` of the route is what it
    calls late.
    """

    group: str
    load: str
    share: float = 1.0
    inner: Inner = Inner.ROUND_ROBIN
    then: Mapping[str, str] = field(default_factory=dict)
    quality: float | None = None
    by_outcome: Mapping[str, After] = field(default_factory=dict)
    weight: float = 1.0
    late_cost: float = 0.0

    def after(self, outcome: str) -> After:
        """What follows an outcome; "" is that of a stage without any."""
        return self.by_outcome.get(outcome, After(self.then, self.quality))


@dataclass(frozen=True)
class Backup:
    """Capacity left over for late requests: a load that takes `exec_ms`, `left_qps` of it free."""

    group: str
    load: str
    exec_ms: float
    left_qps: float


@dataclass(frozen=True)
class Route:
    """Where the jobs of an application's stage go; `kinds` restricts it to some classes of query.

    A central route may be divided into `parts`: the workers of each hardware are dealt out to them in turn, and so are
    the jobs as they come, and each part has its own queue. `matching` is what a plan says of a pull by matching;
    from it the simulator works out `limit_ms`, `merge`, `parts` and the ways' `late_cost`.
    """

    app: str
    stage: str
    ways: tuple[Way, ...]
    rule: Rule = Rule.SHARES
    pull: Pull = Pull.IN_ORDER
    name: str = ""
    kinds: tuple[int, ...] | None = None
    backups: tuple[Backup, ...] = ()
    limit_ms: float = 0.0
    merge: bool = False
    parts: int = 1
    matching: MatchingDispatch | None = None


@dataclass(frozen=True)
class Edge:
    """To which stage, how many jobs per job (a load's own figure wins), and how many bytes each carries.

    With `on`, only jobs of that outcome follow it. `by_variant` is what a plan knows of the jobs per job ("*": of any
    other variant), and `fanout` then its largest.
    """

    to: str
    fanout: float = 1.0
    bytes: float | None = None
    on: str | None = None
    by_variant: Mapping[str, float] = field(default_factory=dict)

    def sent_by(self, variant: str | None) -> float:
        """How many jobs a variant sends on per job: its own figure, else that of any other ("*"), else one.

        >>> edge = Edge("name", by_variant={"s": 0.5, "*": 2.0})
        >>> edge.sent_by("s"), edge.sent_by("l"), Edge("name").sent_by("s")
        (0.5, 2.0, 1.0)
        """
        return self.by_variant.get(variant or "", self.by_variant.get("*", 1.0))


@dataclass(frozen=True)
class Stage:
    """A step of an application; `budget_ms` is the time that a job may spend in it, where a drop rule asks.

    What follows a job may depend on what its answer comes to, one of the `outcomes`.
    """

    id: str
    edges: tuple[Edge, ...] = ()
    budget_ms: float = float("inf")
    outcomes: tuple[str, ...] = ()

    def followed(self, outcome: str) -> list[Edge]:
        """The edges that jobs of an outcome follow; "" is that of a stage without any."""
        return [edge for edge in self.edges if edge.on in (None, outcome)]


@dataclass(frozen=True)
class Link:
    """A network link between two tiers, both ways."""

    between: tuple[str, str]
    bandwidth_mbps: float
    latency_ms: float = 0.0


@dataclass(frozen=True)
class App:
    """An application: its stages (first those that nothing leads to: queries enter there), classes, promises."""

    id: str
    stages: tuple[Stage, ...]
    slo_ms: float
    kinds: int = 1
    late: Late = Late.SERVE
    hop_ms: float = 0.0
    once_ms: float = 0.0
    combine: Combine = Combine.PRODUCT
    tier: str = ""
    bytes_in: float = 0.0
    links: tuple[Link, ...] = ()
    clients: int = 0
    think_ms: float = 0.0

    def ends(self, stage: Stage) -> int:
        """How many last stages the jobs of a stage may come to at most: as many parts its quality counts for."""
        by_id = {one.id: one for one in self.stages}
        counts = [sum(self.ends(by_id[edge.to]) for edge in stage.followed(name)) for name in (stage.outcomes or ("",))]
        return max(1, *counts)

    def worth(self, stage: Stage) -> dict[str, float]:
        """By outcome of a stage, what a job counts for that comes to fewer last stages than another outcome's."""
        by_id = {one.id: one for one in self.stages}
        return {
            outcome: self.ends(stage) / max(1, sum(self.ends(by_id[edge.to]) for edge in stage.followed(outcome)))
            for outcome in stage.outcomes
        }

    @cached_property
    def parents(self) -> dict[str, tuple[str, ...]]:
        """By stage, those that send on to it."""
        return {
            stage.id: tuple(one.id for one in self.stages if any(edge.to == stage.id for edge in one.edges))
            for stage in self.stages
        }

    def above(self, stage: str) -> frozenset[str]:
        """The stages from which a stage can be reached; itself among them where the stages form a cycle."""
        found, look = set[str](), list(self.parents[stage])
        while look:
            parent = look.pop()
            if parent not in found:
                found.add(parent)
                look += self.parents[parent]
        return frozenset(found)

    @property
    def sinks(self) -> int:
        """How many last stages a query comes to at most."""
        if any(stage.outcomes for stage in self.stages):
            return sum(self.ends(stage) for stage in self.stages if not self.parents[stage.id])
        return sum(not stage.edges for stage in self.stages)

    @property
    def entry(self) -> str:
        """The stage where queries enter."""
        return self.stages[0].id


@dataclass(frozen=True)
class System:
    """Applications, the groups of workers that serve them in batches, and the routes between.

    `texts` is what makes text, by application: servers of another kind, which work on tokens.
    """

    apps: tuple[App, ...]
    groups: tuple[Group, ...]
    routes: tuple[Route, ...]
    tiers: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    texts: Mapping[str, TextSystem] = field(default_factory=dict)

    @property
    def ready_ms(self) -> float:
        """How long the slowest of its machines takes from being asked for to serving."""
        crews = (crew.ready_ms for text in self.texts.values() for crew in text.crews)
        return max((*(group.ready_ms for group in self.groups), *crews), default=0.0)


def link_table(tiers: Sequence[str], links: Sequence[Link]) -> NDArray[np.float64]:
    """For each pair of tiers (milliseconds, milliseconds per byte), along the path of fewest links.

    A link given later replaces an earlier one between the same tiers.

    >>> edge, cloud = Link(("device", "edge"), 50.0, 5.0), Link(("edge", "cloud"), 400.0, 10.0)
    >>> link_table(("device", "edge", "cloud"), (edge, cloud))[0, 2].round(6).tolist()
    [15.0, 0.00018]
    """
    import numpy as np

    place = {tier: number for number, tier in enumerate(tiers)}
    hops = np.full((len(tiers), len(tiers)), np.inf)
    costs = np.zeros((len(tiers), len(tiers), 2))
    np.fill_diagonal(hops, 0.0)
    for link in links:
        if not all(end in place for end in link.between):
            continue
        first, second = place[link.between[0]], place[link.between[1]]
        hops[first, second] = hops[second, first] = 1.0
        costs[first, second] = costs[second, first] = (link.latency_ms, 0.008 / link.bandwidth_mbps)
    for middle in range(len(tiers)):
        for start in range(len(tiers)):
            for end in range(len(tiers)):
                if hops[start, middle] + hops[middle, end] < hops[start, end]:
                    hops[start, end] = hops[start, middle] + hops[middle, end]
                    costs[start, end] = costs[start, middle] + costs[middle, end]
    if np.isinf(hops).any():
        apart = [f"{tiers[i]} and {tiers[j]}" for i, j in zip(*np.nonzero(np.isinf(hops)), strict=True) if i < j]
        raise InputError.one(path="links", why=f"no link joins {', '.join(apart)}", remedy="Give each tier a link.")
    return costs
