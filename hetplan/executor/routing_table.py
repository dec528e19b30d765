"""What the router gets: applications with their dispatch, and the units that serve them, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hetplan.executor.site import RouterSettings
from hetplan.executor.units import Endpoint, Unit
from hetplan.profiles.canonical import digest

__all__ = ["routing_table"]


_FOLLOWED = {"bind", "port", "seed", "retries", "frozen_s", "timeout_s", "most_waiting"}
"""What of its settings a router reads; all else is for those who start it."""


def routing_table(
    apps: Mapping[str, Any], units: Iterable[tuple[Unit, Endpoint]], settings: RouterSettings
) -> dict[str, Any]:
    """The routes over these units; `revision` is the digest of all of it, by which a router says what it follows."""
    router = settings.model_dump(mode="json", include=_FOLLOWED)
    table = {"router": router, "apps": dict(apps), "units": [_unit(unit, at) for unit, at in units]}
    return {"revision": digest(table), **table}


def _unit(unit: Unit, at: Endpoint) -> dict[str, Any]:
    return {
        "name": unit.name, "worker": unit.worker, "index": unit.index, "hardware": unit.hardware,
        "standby": unit.standby, "address": at.address, "port": at.port, "policies": list(unit.policies),
        "queue": unit.queue,
        "loads": [
            {
                "id": load.id, "app": load.app, "node": load.node, "variant": load.variant, "servers": load.servers,
                "max_batch": load.max_batch, "quality": load.quality, "expected": load.expected,
                "outcomes": list(load.outcomes), "retry": bool(load.model.get("retry", True)),
                **({"streams": True, "instances": load.instances, "tokens": load.tokens} if load.streams else {}),
                **({} if load.cap is None else {"cap": load.cap}),
            }
            for load in unit.loads
        ],
    }  # fmt: skip
