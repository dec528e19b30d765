"""Which machines answer which queries: a row for each class of queries or stage, from a plan's document."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from hetplan.drawing.charts import bar_chart
from hetplan.drawing.summary import Bar
from hetplan.drawing.svg import Picture, colour_class, short

__all__ = ["MOST_ROWS", "hardware_colours", "route_rows", "routes_picture"]

Document = Mapping[str, Any]
RouteRow = tuple[str, str, list[Bar]]
_Group = tuple[str, str, str]

MOST_ROWS = 40
"""Routes that are drawn; of more, a line says how many are left out."""


def hardware_colours(plan: Document) -> dict[str, str]:
    """A colour for each machine type, the same in every picture of a plan."""
    names = dict.fromkeys(str(worker.get("hardware")) for worker in plan.get("workers") or ())
    return {name: colour_class(place) for place, name in enumerate(names)}


def route_rows(plan: Document, slo: Document | None = None, spot: Collection[str] | None = None) -> list[RouteRow]:
    """Of each route which queries it is about, how many those are, and the share that each group of machines answers.

    Who knows which offers are `spot` reads of each group only whether it is; else its offer is named.

    >>> plan = {"workers": [{"id": "w1", "hardware": "t4", "count": 3, "loads": [{"id": "a", "variant": "net"}]}],
    ...         "routing": {"rank": [{"when": {"batch": 16.0}, "to": {"a": 1.0}}]}}
    >>> [(name, [(part.label, part.note) for part in parts]) for name, _, parts in route_rows(plan)]
    [('rank, batch 16', [('3 x t4', '100%')])]
    """
    colours, groups = hardware_colours(plan), dict[str, _Group]()
    for worker in plan.get("workers") or ():
        colour = colours[str(worker.get("hardware"))] + "-spot" * (worker.get("offer") in (spot or ()))
        for load in worker.get("loads") or ():
            groups[str(load.get("id"))] = (_group_text(worker, spot), colour, str(load.get("variant") or ""))
    return [row for app, routes in (plan.get("routing") or {}).items() for row in _rows(app, routes, groups, slo)]


def routes_picture(plan: Document) -> Picture:
    """The rows as a picture; of machines that no route names, a row says which rule decides.

    >>> plan = {"workers": [{"id": "w1", "hardware": "t4", "count": 3, "loads": [{"id": "a"}]}]}
    >>> "3 x t4" in routes_picture(plan).svg()
    True
    """
    rows = [(name, parts) for name, _, parts in route_rows(plan)]
    if not rows:
        colours = hardware_colours(plan)
        workers = plan.get("workers") or ()
        parts = [
            Bar(_group_text(one), float(one.get("count", 1)), "", colours[str(one.get("hardware"))]) for one in workers
        ]
        rows = [("as the plan's rule decides", parts)]
    left = len(rows) - MOST_ROWS
    more = [(f"and {left} more routes in the plan file", list[Bar]())] if left > 0 else []
    return bar_chart([*rows[:MOST_ROWS], *more], label="which machines answer which queries")


def _group_text(worker: Document, spot: Collection[str] | None = None) -> str:
    standby = f" + {worker['standby']} standby" if worker.get("standby") else ""
    text = f"{worker.get('count', 1)} x {worker.get('hardware')}"
    if spot is not None:
        return f"{text}{' spot' * (worker.get('offer') in spot)}{standby}"
    place = worker.get("offer") if worker.get("offer") not in (None, worker.get("hardware")) else worker.get("host")
    return f"{text}{standby}{f' ({place})' if place else ''}"


def _rows(
    app: str, routes: Sequence[Document], groups: Mapping[str, _Group], slo: Document | None
) -> Iterator[RouteRow]:
    for route, share in zip(routes, _shares(app, routes, slo), strict=True):
        to = {str(load): float(part) for load, part in (route.get("to") or {}).items() if part > 0.0}
        held = {load: groups.get(load, (load, "k8", "")) for load in (*to, *(route.get("prefix") or ()))}
        several = len({held[load][2] for load in to}) > 1
        after = [held[load][0] for load in route.get("prefix") or ()]
        which = [f"{axis} {short(value)}" for axis, value in (route.get("when") or {}).items()]
        which += [f"after {node}: {outcome}" for node, outcome in (route.get("after") or {}).items()]
        which += [f"after {after[-1]}"] if after else []
        name = ", ".join([str(app), *([str(route["node"])] if route.get("node") else []), *which])
        parts = []
        for load, part in to.items():
            label, colour, model = held[load]
            parts.append(Bar(f"{label}: {model}" if several and model else label, part, f"{100 * part:.3g}%", colour))
        yield name, "" if share is None else f"{100 * share:.3g}% of queries", parts


def _shares(app: str, routes: Sequence[Document], slo: Document | None) -> list[float | None]:
    """The share of an application's queries that each class is, where the SLO file says it."""
    wanted = ((slo or {}).get("apps") or {}).get(app) or {}
    mix = wanted.get("mix") or {}
    axes = list(mix.get("axes") or ())
    stated = {
        tuple(map(float, one)): float(share)
        for one, share in zip(mix.get("bins") or (), mix.get("share") or (), strict=False)
    }
    whens = [route.get("when") or {} for route in routes]
    return [stated.get(tuple(float(when.get(axis, math.nan)) for axis in axes)) if when else None for when in whens]
