"""What the router says: the answer to a query, and its counters as JSON or in Prometheus' text format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf
from time import monotonic

from hetplan.executor.serving.applications import Application
from hetplan.executor.serving.links import Lane
from hetplan.executor.serving.metrics import KIND, Page, load_metrics
from hetplan.executor.serving.query_tree import QueryState

__all__ = ["Counted", "reply"]

_STATUS = {"served": 200, "late": 200, "shed": 503, "dropped": 503, "lost": 503, "failed": 500}


def reply(query: QueryState, outcome: str, now: float, why: str) -> None:
    """Answer a query; a client that asked for it briefly gets header fields only."""
    if query.exchange.gone:
        return
    answered = outcome in ("served", "late")
    took_ms = 1e3 * (now - query.arrived_s)
    fields = b"hetplan-outcome: %b\r\nhetplan-ms: %.3f\r\n" % (outcome.encode(), took_ms)
    if answered and query.judged:
        fields += b"hetplan-quality: %.6g\r\n" % query.quality
    if _STATUS[outcome] == 503:
        # By then all that waits now is answered, or given up.
        until_s = query.app.given_up_s
        fields += b"retry-after: %d\r\n" % (ceil(until_s) if until_s < inf else 1)
    if query.brief:
        query.exchange.answer(_STATUS[outcome], fields=fields)
        return
    said = {
        "outcome": outcome,
        "app": query.app.name,
        "quality": round(query.quality, 9) if answered and query.judged else None,
        "ms": round(took_ms, 3),
        "path": [
            {
                "node": hop.node, "load": hop.load, "variant": hop.variant, "unit": hop.unit,
                "router_ms": round(hop.router_ms, 3), "queue_ms": round(hop.queue_ms, 3),
                "service_ms": round(hop.service_ms, 3), "batch": hop.batch,
                **({"outcome": hop.outcome} if hop.outcome else {}),
            }
            for hop in query.hops
        ],
    }  # fmt: skip
    if why:
        said["why"] = why
    body = json.dumps(said).encode()
    if answered:
        # The models' answers are JSON already: they are put in as they are.
        single = query.app.steps.single
        outputs = query.outputs[0][1] if single and query.outputs else b"null" if single else _listed(query)
        body = body[:-1] + b', "outputs": ' + outputs + b"}"
    query.exchange.answer(_STATUS[outcome], body, fields=fields)


def _listed(query: QueryState) -> bytes:
    items = (b'{"node": %b, "outputs": %b}' % (json.dumps(node).encode(), body) for node, body in query.outputs)
    return b"[" + b", ".join(items) + b"]"


@dataclass(frozen=True)
class Counted:
    """What the router has counted since it started."""

    uptime_s: float
    revision: str
    apps: Mapping[str, Application]
    loads: Mapping[str, Mapping[str, float]]
    lanes: Iterable[Lane]

    def prometheus(self) -> tuple[bytes, bytes]:
        """As (content type, body) in Prometheus' text format."""
        page, apps = Page(), self._by_app()
        page.add("hetplan_router_info", "gauge", "The routes that are followed.", [({"revision": self.revision}, 1)])
        page.add("hetplan_uptime_seconds", "gauge", "Seconds since the router began.", [({}, self.uptime_s)])
        page.add(
            "hetplan_queries_arrived_total", "counter", "Queries that have come in.",
            [({"app": app}, values["arrived"]) for app, values in apps.items()],
        )  # fmt: skip
        page.add(
            "hetplan_queries_total", "counter", "Queries that have ended, by what became of them.",
            [
                ({"app": name, "outcome": outcome}, count)
                for name, app in self.apps.items()
                for outcome, count in app.tally.by_outcome.items()
            ],
        )  # fmt: skip
        for key, about in (
            ("under_way", "Queries that are not answered yet."), ("waiting", "Queries that wait for a worker."),
            ("rate_qps", "Queries per second, as the load monitor sees them."),
        ):  # fmt: skip
            gauge = [({"app": app}, values[key]) for app, values in apps.items()]
            page.add(f"hetplan_queries_{key}", "gauge", about, gauge)
        page.add_times(
            "hetplan_query_seconds", "From a query's arrival to its answer, of those that were answered.",
            [({"app": name}, app.tally.seconds) for name, app in self.apps.items()],
        )  # fmt: skip
        streamed = [(name, app.tally) for name, app in self.apps.items() if sum(app.tally.first_s.counts)]
        if streamed:
            page.add_times(
                "hetplan_first_token_seconds", "From the arrival to the first piece of a streamed answer.",
                [({"app": name}, tally.first_s) for name, tally in streamed],
            )  # fmt: skip
            page.add_times(
                "hetplan_token_seconds", "The mean time between two pieces of a streamed answer.",
                [({"app": name}, tally.per_token_s) for name, tally in streamed],
            )  # fmt: skip
        named = {lane.name: {"app": lane.app, "load": lane.name, "model": lane.variant} for lane in self.lanes}
        load_metrics(page, {load: (named.get(load, {"load": load}), counts) for load, counts in self.loads.items()})
        up = {lane.unit: float(lane.link.ready) for lane in self.lanes}
        page.add(
            "hetplan_worker_up", "gauge", "Whether the router is linked to the worker.",
            [({"worker": unit}, ready) for unit, ready in up.items()],
        )  # fmt: skip
        return KIND, page.bytes()

    def json(self) -> tuple[bytes, bytes]:
        """As (content type, body) in JSON."""
        counted = {
            "uptime_s": round(self.uptime_s, 6), "revision": self.revision, "apps": self._by_app(),
            "loads": {
                name: {key: round(value, 6) for key, value in counts.items()} for name, counts in self.loads.items()
            },
            "units": {lane.unit: {"ready": lane.link.ready} for lane in self.lanes},
            "edges": {
                edge: {"incoming": seen[0], "outgoing": seen[1]}
                for app in self.apps.values()
                for edge, seen in app.tally.edges.items()
            },
        }  # fmt: skip
        return b"application/json", json.dumps(counted).encode()

    def _by_app(self) -> dict[str, dict[str, float]]:
        now = monotonic()
        return {
            name: {
                "arrived": app.tally.arrived, **app.tally.by_outcome, "under_way": app.tally.under_way,
                "waiting": app.waiting, "rate_qps": round(app.monitor.rate_qps(now), 3),
            }
            for name, app in self.apps.items()
        }  # fmt: skip
