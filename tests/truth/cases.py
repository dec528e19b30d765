"""Plans and wishes as the plain simulator plays them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from build import Files
from face import Answer, Route, dispatch_of, loads_of
from truth.plain_simulator import App, Bank, Way, play


def banks_and_apps(answer: Answer, wish: Files) -> tuple[dict[str, Bank], dict[str, App]]:
    """What a plan runs, under the demand of its wish."""
    loads, banks, apps = loads_of(answer), {}, {}
    weights: Mapping[str, float] = {}
    for name in wish.apps:
        rule, demand = dispatch_of(answer, name), wish.demand(name)
        assert rule.late == "serve", "the plain simulator answers every query"
        weights = {**weights, **rule.weights}
        apps[name] = App(
            rate_qps=demand.rate, limit_ms=demand.limit_ms - demand.network_ms * len(demand.stages), mix=demand.mix,
            ways=[way_of(one) for one in rule.routes],
            first=demand.stages[0], then=demand.then, rule=rule.kind, within=rule.within, xi=rule.xi,
            shape=demand.shape,
        )  # fmt: skip
    for name, load in loads.items():
        sizes = {size for app in wish.apps for size in wish.demand(app).mix}
        banks[name] = Bank(
            servers=load.servers, most=load.max_batch, weight=weights.get(load.machine, 1.0),
            ms={size: times_ms(wish, load.model, load.machine, size, load.max_batch) for size in sizes},
            fanout=wish.fanout(load.stage),
        )  # fmt: skip
    return banks, apps


def way_of(route: Route) -> Way:
    """A route of a plan."""
    return Way(route.to, route.stage, None if route.size is None else frozenset([route.size]), route.path)


def times_ms(wish: Files, model: str, machine: str, size: Any, most: int) -> list[float]:
    """Mean times of 1 to `most` queries of a size taken together (None: queries of no stated size)."""
    table = wish.times_ms(model, machine)
    if len(table) == 1 or most > 64:  # what smaller batches take is not measured: they take as long
        return [interpolated(table, most * (size or 1))] * most
    return [interpolated(table, n * (size or 1)) for n in range(1, most + 1)]


def interpolated(table: Mapping[int, float], at: float) -> float:
    """A table between its points; below the first, the first."""
    points = sorted(table)
    at = max(at, points[0])
    for low, high in pairwise(points):
        if at <= high:
            part = (at - low) / (high - low)
            return (1.0 - part) * table[low] + part * table[high]
    assert at == points[-1], f"{at} was not measured"
    return table[points[-1]]


def late_shares(answer: Answer, wish: Files, *, queries: int, seed: int = 7, rate: float = 1.0) -> dict[str, float]:
    """The share of each application's queries that are late before the plain simulator, at its rate times a factor."""
    banks, apps = banks_and_apps(answer, wish)
    apps = {name: replace(one, rate_qps=one.rate_qps * rate) for name, one in apps.items()}
    return {name: one.late for name, one in play(apps, banks, queries=queries, seed=seed).items()}
