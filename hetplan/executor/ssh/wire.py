"""What the two ends of an ssh connection say to each other: JSON lines, one call and one reply at a time.

The near end sends `{"call": NAME, ...}`, the far end answers `{"reply": ...}` or `{"failed": {...}}`. Only data goes
over the line: no word of a plan is ever part of a command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hetplan.executor.target import SettlingTarget, Target, TargetFailed, UnitHealth
from hetplan.executor.units import Endpoint, Seen, Unit

__all__ = ["answer", "endpoints_from", "healths_from", "line_of", "own_version", "seen_from"]


def own_version() -> str:
    """The version of the hetplan at this end; both ends have the same."""
    try:
        return version("hetplan")
    except PackageNotFoundError:
        return "unknown"


def line_of(message: Mapping[str, Any]) -> bytes:
    """One message as the line that carries it."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def answer(target: Target, message: Mapping[str, Any]) -> dict[str, Any]:
    """Do what a message asks of a target, and put what comes of it into a reply."""
    try:
        return {"reply": _called(target, message)}
    except TargetFailed as error:
        return {"failed": {"about": error.about, "why": error.cause}}
    except Exception as error:
        return {"failed": {"about": str(message.get("call")), "why": f"{type(error).__name__}: {error}"}}


def _called(target: Target, message: Mapping[str, Any]) -> Any:
    call = message["call"]
    units = [Unit.from_dict(unit) for unit in message.get("units", ())]
    if call == "check":
        return target.check(units)
    if call == "settle":
        return target.settle(limit_s=message["limit_s"]) if isinstance(target, SettlingTarget) else None
    if call == "observe":
        return [_seen_data(seen) for seen in target.observe()]
    if call in ("start", "load"):
        started = (target.start if call == "start" else target.load)(units, limit_s=message["limit_s"])
        return {name: asdict(endpoint) for name, endpoint in started.items()}
    if call == "stop":
        return target.stop(message["names"], drain_s=message["drain_s"])
    if call == "health":
        return {name: asdict(health) for name, health in target.health(message["names"]).items()}
    if call == "route":
        return target.route(message["routes"], limit_s=message["limit_s"])
    if call == "routed":
        return target.routed()
    if call == "down":
        return target.down(drain_s=message["drain_s"])
    raise TargetFailed(target.name, str(call), "there is no such call; is hetplan older there than here?")


def _seen_data(seen: Seen) -> dict[str, Any]:
    return {**asdict(seen), "unit": seen.unit.as_dict() if seen.unit is not None else None}


def seen_from(data: Sequence[Mapping[str, Any]]) -> tuple[Seen, ...]:
    """The units that a far end has seen."""
    return tuple(
        Seen(
            **{
                **one,
                "endpoint": Endpoint(**one["endpoint"]) if one["endpoint"] is not None else None,
                "unit": Unit.from_dict(one["unit"]) if one["unit"] is not None else None,
            }
        )
        for one in data
    )


def endpoints_from(data: Mapping[str, Mapping[str, Any]]) -> dict[str, Endpoint]:
    """Where the far end's units are reached."""
    return {name: Endpoint(**endpoint) for name, endpoint in data.items()}


def healths_from(data: Mapping[str, Mapping[str, Any]]) -> dict[str, UnitHealth]:
    """How the far end's units are."""
    return {name: UnitHealth(**health) for name, health in data.items()}
