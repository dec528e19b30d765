"""The fleet drawn: where queries come from, which steps or classes they have, and the workers that they go to.

Read from a plan's document alone; the SLO's document, where it is given, says how queries divide into classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hetplan.drawing.svg import Picture, clipped, colour_class, letters_in, short

__all__ = [
    "MOST_GROUPS",
    "fleet_picture",
    "hardware_colours",
    "largest_period",
    "load_words",
    "machines_in",
    "of_period",
]

Document = Mapping[str, Any]

MOST_GROUPS = 40
"""Groups of workers that are drawn; of more, a line says how many are left out."""
_THICKEST = 90.0
_ALL = "all queries"
_PORT, _HEAD, _GAP, _TOP = 22.0, 22.0, 14.0, 14.0


@dataclass
class _Port:
    """A line of a box where flows arrive or begin."""

    label: str
    colour: str = "faint"
    inflow: float = 0.0
    outflow: float = 0.0
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0
    used_in: float = 0.0
    used_out: float = 0.0

    @property
    def flow(self) -> float:
        return max(self.inflow, self.outflow)


@dataclass
class _Box:
    """A box of the picture: an application, a class or step of queries, or a group of workers."""

    column: int
    ports: list[_Port]
    title: str = ""
    colour: str = ""
    tip: str = ""


@dataclass
class _Flows:
    """Boxes and the flows between their ports."""

    boxes: list[_Box] = field(default_factory=list)
    ports: dict[tuple[str, ...], _Port] = field(default_factory=dict)
    links: list[tuple[_Port, _Port, float, str]] = field(default_factory=list)

    def box(self, key: tuple[str, ...], column: int, label: str) -> _Port:
        """The port of a box with one line; made where it is new."""
        if key not in self.ports:
            self.ports[key] = _Port(label)
            self.boxes.append(_Box(column, [self.ports[key]], tip=label))
        return self.ports[key]

    def link(self, start: _Port, end: _Port, rate: float, tip: str) -> None:
        """A flow from one port to another."""
        if rate > 0 and math.isfinite(rate):
            start.outflow += rate
            end.inflow += rate
            self.links.append((start, end, rate, tip))


def hardware_colours(plan: Document) -> dict[str, str]:
    """A colour for each kind of hardware, the same in every picture of a plan."""
    names = dict.fromkeys(str(worker.get("hardware")) for worker in plan.get("workers", ()))
    return {name: colour_class(place) for place, name in enumerate(names)}


def load_words(load: Document) -> str:
    """What a load is, in a few words.

    >>> load_words({"id": "w1.a", "variant": "net", "instances": 2, "serve": {"max_batch": 8}})
    '2 x net, batch <= 8'
    """
    what = load.get("variant") or load.get("node") or load.get("id")
    knobs = ",".join(f"{name}={value}" for name, value in (load.get("knobs") or {}).items())
    share = (load.get("share") or {}).get("gpu")
    batch = (load.get("serve") or {}).get("max_batch") or 1
    words = f"{load['instances']} x {what}" if (load.get("instances") or 1) > 1 else str(what)
    words += f"({knobs})" if knobs else ""
    words += f" on {short(share)} gpu" if share is not None else ""
    return words + (f", batch <= {batch}" if batch > 1 else "")


def fleet_picture(plan: Document, slo: Document | None = None, *, period: str | None = None) -> Picture:
    """Applications at the left, workers at the right, flows between them as wide as their share of the queries.

    >>> plan = {"workers": [{"id": "w1", "hardware": "t4", "count": 3, "loads": [{"id": "a", "variant": "net"}]}],
    ...         "routing": {"rank": [{"when": {}, "to": {"a": 1.0}}]}, "valid": {"rate_qps": {"rank": [0, 50]}}}
    >>> svg = fleet_picture(plan).svg()
    >>> "3 x t4" in svg, "rank: 50 queries/s" in svg
    (True, True)
    """
    if period is None and len(plan.get("periods") or ()) > 1:
        period = largest_period(plan)
    plan = plan if period is None else of_period(plan, period)
    workers = list(plan.get("workers") or ())
    flows = _Flows()
    routed = _chained(plan)
    last = max(routed.values(), default=0) + 1 if routed else 2
    _workers(flows, workers[:MOST_GROUPS], hardware_colours(plan), routed, last)
    _queries(flows, plan, slo, chained=bool(routed))
    _unrouted(flows, plan)
    return _drawn(flows, left_out=len(workers) - MOST_GROUPS)


def of_period(plan: Document, period: str) -> Document:
    """The plan of one period: its parts taken together where it has parts, else the workers of that period.

    >>> parts = {"a": {"workers": [{"id": "a-w", "count": 2}], "routing": {"chat": [{"to": {"l": 1.0}}]}}}
    >>> plan = {"periods": [{"id": "p0", "parts": ["a"]}], "parts": parts, "workers": []}
    >>> of_period(plan, "p0")["workers"]
    [{'id': 'a-w', 'count': 2}]
    """
    promised = [one for one in plan.get("promises") or () if one.get("period") == period and not one.get("situation")]
    if promised:
        plan = {**plan, "promises": promised, "valid": {}}
    named = next((one.get("parts") for one in plan.get("periods") or () if one.get("id") == period), None)
    if not plan.get("parts") or named is None:
        mine = [one for one in plan.get("workers") or () if one.get("period", "t0") == period]
        return {**plan, "workers": mine}
    parts = [plan["parts"][name] for name in named if name in plan["parts"]]
    workers = _each_once(parts)
    routing = {app: routes for part in parts for app, routes in (part.get("routing") or {}).items()}
    return {**plan, "workers": workers, "routing": routing}


def _each_once(parts: Sequence[Document]) -> list[Document]:
    """The workers of parts; one that two parts name has the loads of both.

    >>> _each_once([{"workers": [{"id": "w", "loads": [{"id": name}]}]} for name in "ab"])
    [{'id': 'w', 'loads': [{'id': 'a'}, {'id': 'b'}]}]
    """
    found: dict[str, Document] = {}
    for worker in (worker for part in parts for worker in part.get("workers") or ()):
        name, loads = str(worker.get("id", len(found))), [*worker.get("loads", ())]
        before = found.get(name)
        found[name] = worker if before is None else {**before, "loads": [*before.get("loads", ()), *loads]}
    return list(found.values())


def largest_period(plan: Document) -> str:
    """The period with the most machines."""
    return max((str(one["id"]) for one in plan["periods"]), key=lambda one: machines_in(plan, one))


def machines_in(plan: Document, period: str, hardware: str | None = None) -> int:
    """How many machines there are in a period, of one kind of hardware or of all."""
    mine = of_period(plan, period).get("workers") or ()
    return sum(one.get("count", 1) for one in mine if hardware in (None, one.get("hardware")))


def _chained(plan: Document) -> dict[str, int]:
    """The step of each load, where routes depend on the loads before; empty where they do not."""
    routes = [route for routes in plan.get("routing", {}).values() for route in routes]
    if not any(route.get("prefix") for route in routes):
        return {}
    depth: dict[str, int] = {}
    for route in sorted(routes, key=lambda one: len(one.get("prefix") or ())):
        for load in route.get("to", {}):
            depth[load] = max(depth.get(load, 0), len(route.get("prefix") or ()))
    return depth


def _workers(
    flows: _Flows, workers: Sequence[Document], colours: Mapping[str, str], depth: Mapping[str, int], last: int
) -> None:
    for worker in workers:
        colour = colours[str(worker.get("hardware"))]
        loads = list(worker.get("loads") or ())
        ports = [_Port(load_words(load), colour) for load in loads] or [_Port("no load", colour)]
        for load, port in zip(loads, ports, strict=False):
            flows.ports["load", str(load.get("id"))] = port
        column = min((depth.get(str(load.get("id")), 0) + 1 for load in loads), default=last) if depth else last
        title = f"{worker.get('count', 1)} x {worker.get('hardware')}"
        standby = f", {worker['standby']} standby" if worker.get("standby") else ""
        place = worker.get("offer") if worker.get("offer") not in (None, worker.get("hardware")) else worker.get("host")
        title += f"{standby} ({place})" if place else standby
        flows.boxes.append(_Box(column, ports, title, colour, tip=f"{worker.get('id')}: {title}"))


def _queries(flows: _Flows, plan: Document, slo: Document | None, *, chained: bool) -> None:
    in_classes = any(_name_of(route) for routes in plan.get("routing", {}).values() for route in routes)
    for app, routes in plan.get("routing", {}).items():
        rate = _rate_of(plan, app)
        start = flows.box(("app", app), 0, f"{app}: {short(rate)} queries/s" if rate else str(app))
        classes = _shares(app, routes, slo)
        carried: dict[str, float] = {}
        for route, share in zip(routes, classes, strict=True):
            prefix = list(route.get("prefix") or ())
            flow = (rate or 1.0) * share
            begin = start
            if prefix:
                begin, flow = flows.ports.get(("load", prefix[-1]), start), carried.get("/".join(prefix), 0.0)
            elif not chained and in_classes:
                # Beside the classes of others a flow without a box would pass behind theirs.
                name = _name_of(route) or _ALL
                middle = flows.box(("class", app, name), 1, name)
                flows.link(start, middle, flow, f"{app} {name}: {share:.1%} of queries")
                begin = middle
            for load, part in route.get("to", {}).items():
                end = flows.ports.get(("load", load))
                if end is not None:
                    carried["/".join([*prefix, load])] = carried.get("/".join([*prefix, load]), 0.0) + flow * part
                    what = _name_of(route) or "all"
                    flows.link(begin, end, flow * part, f"{app} {what} to {load}: {part:.1%}")


def _name_of(route: Document) -> str:
    """What queries a route is about."""
    which = [f"{axis}={short(value)}" for axis, value in (route.get("when") or {}).items()]
    after = [f"after {node}: {outcome}" for node, outcome in (route.get("after") or {}).items()]
    return " ".join([*([str(route["node"])] if route.get("node") else []), *after, *which])


def _rate_of(plan: Document, app: str) -> float:
    """The rate that the plan is made for; 0 where it does not say."""
    _, most = (plan.get("valid", {}).get("rate_qps", {}).get(app) or [0.0, None])[:2]
    if most is None:
        promised = [one for one in plan.get("promises", ()) if one.get("app") == app]
        most = next((one["value"] for one in promised if one.get("quantity") == "rate_qps"), 0.0)
    return float(most)


def _shares(app: str, routes: Sequence[Document], slo: Document | None) -> list[float]:
    """The share of an application's queries that each route is about: its class's in the SLO file, else alike."""
    wanted = (((slo or {}).get("apps") or {}).get(app) or {}).get("demand") or {}
    mix = wanted.get("mix") or {}
    stated = {
        tuple(map(float, one)): share for one, share in zip(mix.get("bins") or (), mix.get("share") or (), strict=False)
    }
    axes = list(mix.get("axes") or ())
    names = dict.fromkeys(tuple(sorted((route.get("when") or {}).items())) for route in routes)
    alike = 1.0 / max(len([one for one in names if one]), 1)

    def of(route: Document) -> float:
        when = route.get("when") or {}
        if not when:
            return 1.0
        return float(stated.get(tuple(float(when.get(axis, math.nan)) for axis in axes), alike) or 0.0)

    return [of(route) for route in routes]


def _unrouted(flows: _Flows, plan: Document) -> None:
    """Loads that no route names take the queries of their application by a rule (a policy, a shared queue)."""
    per_app: dict[str, list[_Port]] = {}
    for worker in plan.get("workers", ()):
        for load in worker.get("loads") or ():
            port = flows.ports.get(("load", str(load.get("id"))))
            if port is not None and load.get("app") and not port.inflow and load["app"] not in plan.get("routing", {}):
                per_app.setdefault(load["app"], []).append(port)
    in_classes = any(key[0] == "class" for key in flows.ports)
    for app, ports in per_app.items():
        rate = _rate_of(plan, app)
        start = flows.box(("app", app), 0, f"{app}: {short(rate)} queries/s" if rate else str(app))
        if in_classes:
            middle = flows.box(("class", app, _ALL), 1, _ALL)
            flows.link(start, middle, rate or 1.0, f"{app}: {_ALL}")
            start = middle
        for port in ports:
            flows.link(start, port, (rate or 1.0) / len(ports), f"{app}: as the plan's rule decides")


def _drawn(flows: _Flows, *, left_out: int) -> Picture:
    columns = sorted({box.column for box in flows.boxes})
    widths = {column: 210.0 if column == 0 else 250.0 for column in columns}
    middles = {box.column for box in flows.boxes if not box.title and box.column}
    widths |= dict.fromkeys(middles, 150.0)
    between = 90.0
    largest = max((port.flow for box in flows.boxes for port in box.ports), default=0.0) or 1.0
    sums = [sum(port.flow for box in flows.boxes if box.column == one for port in box.ports) for one in columns]
    per_pixel = _THICKEST * 2 / max([largest, *sums])
    x, bottoms = 10.0, []
    for column in columns:
        bottoms.append(_placed([box for box in flows.boxes if box.column == column], x, widths[column], per_pixel))
        x += widths[column] + between
    height = max(bottoms, default=40.0)
    for column, bottom in zip(columns, bottoms, strict=True):
        for port in (port for box in flows.boxes if box.column == column for port in box.ports):
            port.y += (height - bottom) / 2
    note = f"and {left_out} more groups of workers in the plan file" if left_out > 0 else ""
    picture = Picture(
        max(x - between + 10, 300.0), height + (24 if note else 6), title="the fleet and where queries go"
    )
    for start, end, rate, tip in flows.links:
        _ribbon(picture, start, end, rate * per_pixel, tip)
    for box in flows.boxes:
        _box(picture, box)
    if note:
        picture.words(10, height + 14, note, "faint")
    return picture


def _placed(boxes: Sequence[_Box], x: float, width: float, per_pixel: float) -> float:
    """Give each port of a column its place; returns where the column ends."""
    y = _TOP
    for box in boxes:
        y += _HEAD if box.title else 0.0
        for port in box.ports:
            port.x, port.y, port.width = x, y, width
            port.height = max(_PORT, port.flow * per_pixel)
            y += port.height
        y += _GAP
    return y


def _ribbon(picture: Picture, start: _Port, end: _Port, thick: float, tip: str) -> None:
    thick = max(thick, 1.0)
    begin = start.y + min(start.used_out, max(start.height - thick, 0.0))
    stop = end.y + min(end.used_in, max(end.height - thick, 0.0))
    start.used_out += thick
    end.used_in += thick
    picture.ribbon(
        (start.x + start.width, begin), (end.x, stop), thick, end.colour if end.colour != "faint" else "k8", tip=tip
    )


def _box(picture: Picture, box: _Box) -> None:
    first, last = box.ports[0], box.ports[-1]
    head = _HEAD if box.title else 0.0
    top, height = first.y - head, last.y + last.height - first.y + head
    picture.box(first.x, top, first.width, height, "soft", round_by=4, tip=box.tip)
    room = letters_in(first.width - 18)
    if box.colour:
        picture.box(first.x, top, 5, height, box.colour, round_by=2)
    if box.title:
        picture.words(first.x + 12, top + 15, clipped(box.title, room), "bold", tip=box.title)
    for port in box.ports:
        picture.words(port.x + 12, port.y + port.height / 2 + 4, clipped(port.label, room), tip=port.label)
