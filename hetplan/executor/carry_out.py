"""Carrying out steps on targets: units started and stopped where they belong, the router told who is live."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from hetplan.executor.failures import ApplyFailed
from hetplan.executor.hosts_file import HostsFile
from hetplan.executor.routing_table import routing_table
from hetplan.executor.steps import Step, targets_of
from hetplan.executor.target import Target
from hetplan.executor.units import Endpoint, Seen, Unit
from hetplan.executor.wanted import Wanted

__all__ = ["Carrier", "final_table"]

T = TypeVar("T")


def final_table(wanted: Wanted, endpoints: Mapping[str, Endpoint], hosts: HostsFile) -> dict[str, Any] | None:
    """What the router follows when all is done; None where nothing is to be served, or not all of it is up."""
    if not wanted.units or not wanted.units.keys() <= endpoints.keys():
        return None
    pairs = [(unit, endpoints[name]) for name, unit in wanted.units.items()]
    return routing_table(wanted.apps, pairs, hosts.router)


class Carrier:
    """Carries out one apply: from what was seen to what is wanted."""

    def __init__(
        self, hosts: HostsFile, targets: Mapping[str, Target], seen: Sequence[Seen], wanted: Wanted,
        before: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.hosts, self.targets, self.wanted, self.before = hosts, targets, wanted, before
        self.units: dict[str, Unit] = {one.name: one.unit for one in seen if one.unit is not None}
        self.endpoints = {one.name: one.endpoint for one in seen if one.endpoint is not None}
        self.homes = {name: unit.target for name, unit in self.units.items()}

    def do(self, step: Step) -> None:
        """One step; raises `TargetFailed` where a target could not do it."""
        limits = self.hosts.limits
        if step.do in ("start", "load"):
            groups: dict[str, list[Unit]] = {}
            for unit in step.units:
                groups.setdefault(unit.target, []).append(unit)
            endpoints = self._side_by_side(
                {
                    name: _bound(getattr(self.targets[name], step.do), units, limit_s=limits.start_s)
                    for name, units in groups.items()
                }
            )
            for found in endpoints:
                self.endpoints.update(found)
            self.units.update({unit.name: unit for unit in step.units})
            self.homes.update({unit.name: unit.target for unit in step.units})
        elif step.do == "stop":
            grouped = targets_of(step.names, self.homes)
            self._side_by_side(
                {
                    name: _bound(self.targets[name].stop, names, drain_s=limits.drain_s)
                    for name, names in grouped.items()
                }
            )
            for name in step.names:
                self.units.pop(name, None)
                self.endpoints.pop(name, None)
        else:
            table = self.table(step.live)
            self.targets[self.hosts.router_target].route(table, limit_s=limits.start_s)

    def table(self, live: Sequence[str]) -> dict[str, Any] | None:
        """What the router follows while these units are live; None where nothing is to be served at all."""
        there = [name for name in live if name in self.units and name in self.endpoints]
        if set(there) == set(self.wanted.units):
            return final_table(self.wanted, self.endpoints, self.hosts)
        if not there and not self.wanted.units:
            return None
        apps = self._apps({load.id for name in there for load in self.units[name].loads})
        return routing_table(apps, [(self.units[name], self.endpoints[name]) for name in there], self.hosts.router)

    def check_health(self) -> None:
        """Every wanted unit answers; raises `ApplyFailed` naming those that do not."""
        sick = []
        grouped = targets_of(self.wanted.units, {name: unit.target for name, unit in self.wanted.units.items()})
        for target, names in grouped.items():
            told = self.targets[target].health(names)
            sick += [
                f"{name} ({told[name].why or 'not ready'})" if name in told else f"{name} (gone)"
                for name in names
                if name not in told or not told[name].ready
            ]
        if sick:
            raise ApplyFailed(f"not healthy: {', '.join(sick[:5])}{' and more' if len(sick) > 5 else ''}")

    def _apps(self, live: set[str]) -> dict[str, Any]:
        """Half-way each application follows the new routes if all their loads are live, else the old if any is."""
        apps = {}
        for app in {**self.before, **self.wanted.apps}:
            new, old = self.wanted.apps.get(app), self.before.get(app)
            if new is not None and (old is None or self._loads(app, new) <= live or not self._loads(app, old) & live):
                apps[app] = new
            elif old is not None:
                apps[app] = old
        return apps

    def _loads(self, app: str, told: Mapping[str, Any]) -> set[str]:
        """The loads that an application's routes lead to; all of its own where it has no routes."""
        routed = {load for route in told["routes"] for load in route["to"]}
        if routed:
            return routed
        own = [load for unit in self.wanted.units.values() for load in unit.loads]
        return {load.id for load in own if load.app == app}

    @staticmethod
    def _side_by_side(calls: Mapping[str, Callable[[], T]]) -> list[T]:
        """One call per target, at the same time where there are several; the first failure is raised once all ended."""
        if len(calls) == 1:
            return [call() for call in calls.values()]
        with ThreadPoolExecutor(max(len(calls), 1)) as pool:
            futures = [pool.submit(call) for call in calls.values()]
        return [future.result() for future in futures]


def _bound(call: Callable[..., T], *arguments: Any, **named: Any) -> Callable[[], T]:
    return lambda: call(*arguments, **named)
