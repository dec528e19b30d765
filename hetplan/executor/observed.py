"""What is observed of what runs, as a state: the file that planning reads."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from hetplan.executor.steps import workers_of
from hetplan.executor.units import Seen
from hetplan.profiles.state import Observed, State

__all__ = ["observed_state", "router_metrics"]

_COUNTED = ("arrived", "served", "dropped", "failed", "batches")


def router_metrics(endpoint: str, *, limit_s: float = 5.0) -> dict[str, Any] | None:
    """The router's counters (`GET /metrics`); None where no router answers."""
    try:
        with urlopen(f"{endpoint}/metrics", timeout=limit_s) as answer:
            told: dict[str, Any] = json.loads(answer.read())
            return told
    except (URLError, OSError, ValueError):
        return None


def observed_state(seen: Sequence[Seen], endpoint: str, *, over_s: float = 1.0) -> State:
    """Workers in the plan's shape, and per load its status, rate, utilisation, latency and counters.

    Rates are those of `over_s` seconds, in which the router is asked twice; of its whole life where that is 0.
    """
    before = router_metrics(endpoint) if over_s > 0 else None
    if before is not None:
        time.sleep(over_s)
    after = router_metrics(endpoint)
    units = [one.unit for one in seen if one.unit is not None]
    status: dict[str, str] = {}
    servers: dict[str, int] = {}
    for one in seen:
        for load in one.unit.loads if one.unit is not None else ():
            told = {"ready": "active", "starting": "loading", "stopping": "draining"}.get(one.status, "failed")
            # One worker of several that fails does not make the load fail.
            status[load.id] = told if status.get(load.id) in (None, "failed") else status[load.id]
            servers[load.id] = servers.get(load.id, 0) + (
                0 if one.unit is not None and one.unit.standby else load.servers
            )
    observed = {name: _observed(name, state, servers[name], before, after) for name, state in status.items()}
    return State(workers=workers_of(units), observed=observed)


def _observed(
    load: str, status: str, servers: int, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Observed:
    if after is None or load not in after["loads"]:
        return Observed.model_validate({"status": status})
    now = after["loads"][load]
    then = before["loads"].get(load, {}) if before is not None else {}
    change = {key: value - then.get(key, 0.0) for key, value in now.items()}
    elapsed_s = after["uptime_s"] - (before["uptime_s"] if before is not None else 0.0)
    told: dict[str, Any] = {
        "status": status,
        "counters": {key: round(now[key]) for key in _COUNTED},
        "rate_qps": max(change["arrived"], 0.0) / elapsed_s,
        "utilisation": min(max(change["busy_ms"] / (1e3 * elapsed_s * max(servers, 1)), 0.0), 1.0),
    }
    if change["served"] > 0:
        service_ms = change["busy_ms"] / max(change["batches"], 1e-9)
        told["latency_ms"] = change["queue_ms"] / change["served"] + service_ms
    return Observed.model_validate(told)
