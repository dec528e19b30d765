"""Queries that come, hold a share of each tier for their lifetime, and go: admission over time (Circinus).

A query brings candidate plans in order of preference, each a demand per tier. It gets the first that fits what is free
when it comes (or the one that a decision handed in names), and is refused where none does.

An application with a ``lifetime_s`` means queries like it: they come at random, so often that as many live at a
time as it has streams, and each stays for an exponential time of that mean. An arriving query takes the
first of its plans (the chosen one, then the others that were found, the cheapest first) for which every tier has room.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.planner.promise_figures import Verdict
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.operators import is_operator
from hetplan.simulator.demand import seeded
from hetplan.simulator.figures import estimate
from hetplan.simulator.report import Line

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["Choose", "HoldingRun", "first_that_fits", "lifetime_lines", "simulate_holding"]

FIT = 1e-9
"""Sums of shares are rounded numbers: so much more than the capacity still fits."""

Choose = Callable[[int, "NDArray[np.float64]", "NDArray[np.float64]"], int]
"""(query, its candidates' demands, what is free per tier) -> which candidate, or -1."""


@dataclass(frozen=True)
class HoldingRun:
    """What came of it: the candidate that each query got (-1: refused), shares served, use of the tiers."""

    chosen: NDArray[np.int64]
    served: float
    served_weight: float
    utilisation: tuple[float, ...]
    most_at_once: int


def first_that_fits(query: int, demands: NDArray[np.float64], free: NDArray[np.float64]) -> int:  # noqa: ARG001
    """The first candidate that fits on every tier, or -1.

    >>> first_that_fits(0, np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([1.0, 1.0]))
    1
    """
    fits = (demands <= free + FIT).all(axis=1)
    return int(fits.argmax()) if fits.any() else -1


def simulate_holding(
    arrival_s: ArrayLike,
    lifetime_s: ArrayLike,
    demands: Sequence[ArrayLike],
    capacity: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    choose: Choose = first_that_fits,
    warm_up: int = 0,
) -> HoldingRun:
    """Admit queries one by one; `demands[i]` has a row per candidate of query i and a column per tier.

    Those that end at an instant make room before those that come at it. The first `warm_up` queries are not counted.

    >>> run = simulate_holding([0, 1, 2], [1.5, 5, 5], [[[1.0]]] * 3, [1.0])
    >>> run.chosen.tolist(), run.served
    ([0, -1, 0], 0.6666666666666666)
    """
    times, lives = np.asarray(arrival_s, dtype=float), np.asarray(lifetime_s, dtype=float)
    limits = np.asarray(capacity, dtype=float)
    worth = np.ones(len(times)) if weights is None else np.asarray(weights, dtype=float)
    if not len(times) == len(lives) == len(demands) == len(worth):
        raise InputError.one(path="queries", value=len(times), why="one lifetime, weight and list of plans per query")
    free = limits.copy()
    ending: list[tuple[float, int, NDArray[np.float64]]] = []
    chosen = np.full(len(times), -1, np.int64)
    held, last, most, started = np.zeros(len(limits)), 0.0, 0, 0.0

    def go_to(now: float) -> None:
        nonlocal last, held
        held = held + (limits - free) * (now - last)
        last = now

    for query, now in enumerate(times):
        while ending and ending[0][0] <= now:
            end, _, given_back = heapq.heappop(ending)
            go_to(end)
            free += given_back
        go_to(now)
        if query == warm_up:
            held, started = np.zeros(len(limits)), now
        offered = np.atleast_2d(np.asarray(demands[query], dtype=float))
        place = choose(query, offered, free)
        if place < 0:
            continue
        if (offered[place] > free + FIT).any():
            raise InputError.one(path=f"queries[{query}]", value=place, why="a plan was chosen that does not fit")
        chosen[query] = place
        free -= offered[place]
        heapq.heappush(ending, (now + lives[query], query, offered[place]))
        most = max(most, len(ending))
    got = chosen[warm_up:] >= 0
    span = max(last - started, 1e-300)
    use = np.divide(held / span, limits, out=np.zeros(len(limits)), where=(limits > 0) & np.isfinite(limits))
    total = worth[warm_up:].sum()
    return HoldingRun(
        chosen=chosen,
        served=float(got.mean()) if len(got) else 1.0,
        served_weight=float(worth[warm_up:][got].sum() / total) if total > 0 else 1.0,
        utilisation=tuple(use.tolist()),
        most_at_once=most,
    )


Vector = NDArray[np.float64]

QUERIES, WARM_UP = 4000, 400
_PURPOSE = 7_301


def lifetime_lines(plan: Plan, inputs: Inputs, *, seeds: Sequence[int]) -> tuple[Line, ...]:
    """Per application the share of its queries that is admitted, per tier the share in use; none without lifetimes."""
    kinds = [app for app in inputs.slo.apps if inputs.slo.apps[app].lifetime_s is not None and _plans(plan, app)]
    if not kinds:
        return ()
    machines = {tier: _machines(inputs, tier) for tier in inputs.profile.tiers}
    tiers = [tier for tier, count in machines.items() if math.isfinite(count)]
    capacity = np.array([machines[tier] for tier in tiers])
    demands = {app: np.array([_demand(one, tiers) for one in _plans(plan, app)]) for app in kinds}
    runs = [_run(inputs, kinds, demands, capacity, seed) for seed in seeds]
    lines = []
    for number, app in enumerate(kinds):
        shares = [float((run.chosen[which == number] >= 0).mean()) for run, which in runs]
        lines.append(Line(app, "admitted", None, "<=", 1.0, "lifetimes", estimate(shares), Verdict.REPORTED))
    for place, tier in enumerate(tiers):
        used = estimate([run.utilisation[place] for run, _ in runs])
        lines.append(Line(None, f"in use of {tier}", None, "<=", 1.0, "lifetimes", used, Verdict.REPORTED))
    return tuple(lines)


def _run(
    inputs: Inputs, kinds: Sequence[str], demands: dict[str, Vector], capacity: Vector, seed: int
) -> tuple[HoldingRun, NDArray[np.int64]]:
    """One course of arrivals; which kind each counted query was of."""
    rng = seeded(seed, _PURPOSE)
    apps = [inputs.slo.apps[app] for app in kinds]
    lives = np.array([app.lifetime_s or 0.0 for app in apps])
    rates = np.array([app.streams or 1 for app in apps]) / lives
    which = rng.choice(len(kinds), QUERIES, p=rates / rates.sum())
    times = np.cumsum(rng.exponential(1.0 / rates.sum(), QUERIES))
    weights = np.array([1.0 if app.weight is None else app.weight for app in apps])[which]
    run = simulate_holding(
        times, rng.exponential(lives[which]), [demands[kinds[int(k)]] for k in which], capacity,
        weights=weights, warm_up=WARM_UP,
    )  # fmt: skip
    which[:WARM_UP] = -1
    return run, which


def _plans(plan: Plan, app: str) -> list[Any]:
    """The plans of an application: the one that it has, then what else was found, the cheapest first."""
    found = [one for one in plan.alternatives if one.get("app") == app and "placement" in one]
    if not is_operator(plan, app):
        return found
    rule = plan.dispatch[app]
    mine = {"placement": dict(getattr(rule, "placement", {})), "share": dict(getattr(rule, "share", {}))}
    return [mine, *(one for one in found if (one["placement"], one["share"]) != (mine["placement"], mine["share"]))]


def _demand(one: Any, tiers: Sequence[str]) -> Vector:
    """Shares of machines in each of these tiers; of others there is always enough."""
    row = np.zeros(len(tiers))
    for node, tier in one["placement"].items():
        if tier in tiers:
            row[tiers.index(tier)] += one["share"].get(node, 0.0)
    return row


def _machines(inputs: Inputs, tier: str) -> float:
    """How many machines of a tier there are for all (infinite on a tier that each application has for itself)."""
    here = [name for name, hardware in inputs.profile.hardware.items() if hardware.tier == tier]
    listed = [inputs.slo.limits.instances[name][1] for name in here if name in inputs.slo.limits.instances]
    stocks = [offer.stock for offer in inputs.profile.offers.values() if offer.hardware in here]
    if tier == inputs.profile.tiers[0] and not listed:
        return math.inf
    return min((float(n) for n in (*listed, *stocks) if n is not None), default=math.inf)
