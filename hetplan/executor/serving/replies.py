"""What the router says: the answer to a query, and its counters as JSON or in Prometheus' text format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import monotonic

from hetplan.executor.serving.applications import Application
from hetplan.executor.serving.links import Lane
from hetplan.executor.serving.query_tree import QueryState

__all__ = ["Counted", "reply"]

_STATUS = {"served": 200, "late": 200, "dropped": 503, "lost": 503, "failed": 500}


def reply(query: QueryState, outcome: str, now: float, why: str) -> None:
    """Answer a query; a client that asked for it briefly gets header fields only."""
    if query.exchange.gone:
        return
    answered = outcome in ("served", "late")
    took_ms = 1e3 * (now - query.arrived_s)
    fields = b"hetplan-outcome: %b\r\nhetplan-ms: %.3f\r\n" % (outcome.encode(), took_ms)
    if answered and query.judged:
        fields += b"hetplan-quality: %.6g\r\n" % query.quality
    if outcome == "lost":
        fields += b"retry-after: 1\r\n"
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
        lines = [
            f'hetplan_queries{{app="{app}",what="{name}"}} {value}'
            for app, values in self._by_app().items()
            for name, value in values.items()
        ]
        lines += [
            f'hetplan_load{{load="{load}",what="{name}"}} {value:g}'
            for load, values in self.loads.items()
            for name, value in values.items()
        ]
        return b"text/plain; version=0.0.4", ("\n".join(lines) + "\n").encode()

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
