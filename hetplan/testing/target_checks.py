"""What every target must do: start, change, stop, tell, and bear being asked twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hetplan.executor.routing_table import routing_table
from hetplan.executor.site import RouterSettings
from hetplan.executor.target import Target, TargetFailed
from hetplan.executor.units import Endpoint, Unit

__all__ = ["check_target"]


def check_target(
    target: Target, units: Sequence[Unit], *, broken: Unit | None = None, routes: bool = True, limit_s: float = 60.0
) -> None:
    """Try a target on two units that it can run (and on `broken`, which it cannot); AssertionError says what failed.

    The units serve one application and differ in their names. Whatever happens the target is taken down at the end.
    """
    assert isinstance(target, Target), f"{type(target).__name__} lacks something of the Target protocol"
    first, second = units[:2]
    try:
        _lifecycle(target, first, second, limit_s)
        if broken is not None:
            _refuses(target, first, broken, limit_s)
        if routes:
            _routes(target, first, limit_s)
    finally:
        target.down(drain_s=1.0)
    assert not target.observe(), "something is left after down"
    assert target.routed() is None, "the router is left after down"
    target.down(drain_s=1.0)
    target.close()
    target.close()


def _lifecycle(target: Target, first: Unit, second: Unit, limit_s: float) -> None:
    assert target.check([first, second]) == [], f"it refuses units that it can run: {target.check([first, second])}"
    assert not target.observe(), "something runs before anything was started"
    endpoints = target.start([first, second], limit_s=limit_s)
    assert set(endpoints) == {first.name, second.name}, "start reports an endpoint per unit"
    _runs(target, {first.name: first, second.name: second})
    assert target.start([first], limit_s=limit_s)[first.name] == endpoints[first.name], "what runs is left alone"
    changed = replace(first, loads=tuple(replace(load, max_batch=load.max_batch + 1) for load in first.loads))
    target.load([changed], limit_s=limit_s)
    _runs(target, {first.name: changed, second.name: second})
    target.stop([second.name, "nobody-0-000000"], drain_s=1.0)
    _runs(target, {first.name: changed})
    target.stop([second.name], drain_s=1.0)
    target.load([first], limit_s=limit_s)
    _runs(target, {first.name: first})


def _runs(target: Target, wanted: Mapping[str, Unit]) -> None:
    seen = {one.name: one for one in target.observe()}
    assert seen.keys() == wanted.keys(), f"it runs {sorted(seen)}, not {sorted(wanted)}"
    for name, unit in wanted.items():
        assert seen[name].content == unit.content, f"{name} is reported with another content than it was started with"
        assert seen[name].status == "ready", f"{name} is {seen[name].status}: {seen[name].why}"
        assert seen[name].endpoint is not None, f"{name} has no endpoint"


def _refuses(target: Target, first: Unit, broken: Unit, limit_s: float) -> None:
    try:
        target.start([broken], limit_s=limit_s)
    except TargetFailed as error:
        reported = str(error)
    else:
        raise AssertionError("it started a unit that cannot run")
    assert reported, "a failure says why"
    assert [one.name for one in target.observe()] == [first.name], "a failed start leaves nothing, and the others alone"


def _routes(target: Target, unit: Unit, limit_s: float) -> None:
    endpoint = next(one.endpoint for one in target.observe() if one.name == unit.name)
    assert endpoint is not None
    table = _table(unit, endpoint)
    for _ in range(2):
        target.route(table, limit_s=limit_s)
        routed = target.routed()
        assert routed is not None, "no router runs"
        assert routed["revision"] == table["revision"], "the router follows other routes"
    target.route(None, limit_s=limit_s)
    assert target.routed() is None, "the router still runs"


def _table(unit: Unit, endpoint: Endpoint) -> dict[str, Any]:
    load = unit.loads[0]
    app: dict[str, Any] = {
        "dispatch": {"rule": "shares/1"}, "predict": {}, "routes": [{"to": {load.id: 1.0}}], "slo_ms": None,
        "late": "serve", "balancing": None, "combine": "product", "paths": {}, "nodes": {"serve": {"edges": []}},
    }  # fmt: skip
    return routing_table({load.app or "app": app}, [(unit, endpoint)], RouterSettings(port=0))
