"""Compound queries that come, live and go: how many find room when tiers are contended.

An application with a ``lifetime_s`` stands for queries like it: they come at random, so often that as many live at a
time as it has streams, and each stays for an exponential time of that mean. Whoever comes takes the first of its plans
(the chosen one, then the others that were found, the cheapest first) for which every tier has room; where there is
none, it is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.serving.operators import is_operator
from hetplan.simulator.arrivals import seeded
from hetplan.simulator.figures import estimate
from hetplan.simulator.holding import HoldingRun, simulate_holding
from hetplan.simulator.report import Line, Verdict

__all__ = ["lifetime_lines"]

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
    rates = np.array([app.demand.streams or 1 for app in apps]) / lives
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
