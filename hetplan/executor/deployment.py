"""A deployment: everything that site.toml describes, brought to what a plan wants and kept account of.

::

    with Deployment(read_site("site.toml")) as deployment:
        print(*deployment.difference(plan).lines())     # nothing is touched
        deployment.apply(plan)                          # ApplyFailed where it cannot be, after going back
        state = deployment.state()                      # what `hetplan solve` reads
        deployment.down()

What runs is asked of the targets, never looked up; so an apply that was killed at any point is finished by the next
apply of the same plan, redirected by the apply of another, and undone by `undo`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar
from urllib.error import URLError
from urllib.request import Request, urlopen

from hetplan.errors import Fault, InputError
from hetplan.executor.apply.one_by_one import Progress, Task, bring_about, resumed
from hetplan.executor.background import Background
from hetplan.executor.durable import DeploymentLock, Journal, Record, Unfinished, write_durably
from hetplan.executor.routing_table import routing_table
from hetplan.executor.secrets import token_of, unguarded
from hetplan.executor.site import Site
from hetplan.executor.steps import Difference, Step, difference, steps_of, targets_of, workers_of
from hetplan.executor.target import (
    ApplyFailed,
    Setting,
    SettlingTarget,
    Target,
    TargetFailed,
)
from hetplan.executor.units import Endpoint, Seen, Unit, in_url
from hetplan.executor.wanted import Wanted, wanted
from hetplan.profiles.plan import Action, Plan
from hetplan.profiles.state import Observed, State

__all__ = ["Applied", "Carrier", "Deployment", "Progress", "final_table", "observed_state", "router_metrics"]


@dataclass(frozen=True)
class Applied:
    """What an apply did: its steps (none where all was as wanted), where queries go, and what was worth saying."""

    steps: tuple[Step, ...]
    endpoint: str
    notes: tuple[str, ...]


def _local_only(kind: str) -> type[Target]:
    from hetplan.executor.local import Local

    if kind != "local":
        raise InputError.one(file="site.toml", path="$.targets", value=kind, why="this target is not known here")
    return Local


class Deployment:
    """One deployment. `targets` gives the class of a kind of target; `registry.target` knows them all."""

    def __init__(self, site: Site, *, targets: Callable[[str], Any] = _local_only) -> None:
        self.site = site
        self.folder = site.path(site.state_dir)
        self._record_path = self.folder / "record.json"
        self._journal = Journal(self.folder / "journal.jsonl")
        self._background: Background | None = None
        self.targets: dict[str, Target] = {
            name: targets(entry.kind)(Setting(name, site, self.folder / "targets" / name, entry.settings))
            for name, entry in site.targets.items()
        }

    def __enter__(self) -> Deployment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the targets; what runs goes on."""
        for target in self.targets.values():
            target.close()

    # Looking

    def observe(self) -> tuple[Seen, ...]:
        """What runs now, on all targets."""
        return tuple(seen for target in self.targets.values() for seen in target.observe())

    def wanted(self, plan: Plan, *, period: str | None = None, running: Sequence[Seen] | None = None) -> Wanted:
        """What a plan wants of these hosts; `InputError` with every reason why they cannot give it."""
        if self._background is None:
            self._background = Background.of(self.site)
        seen = self.observe() if running is None else running
        made = wanted(plan, self.site, running=seen, period=period, background=self._background)
        self._check(made)
        return made

    def missing(self, seen: Sequence[Seen] | None = None) -> list[str]:
        """What should run by the record of the last apply and does not, or is not as it should be; a line for each."""
        record = Record.read(self._record_path)
        if record is None or not record.units:
            return []
        here = {one.name: one for one in (self.observe() if seen is None else seen)}
        lines = []
        for unit in map(Unit.from_dict, record.units):
            one = here.get(unit.name)
            if one is None:
                lines.append(f"{unit.name} does not run")
            elif one.status != "ready" or one.why:
                again = f", started again {one.restarts} times" if one.restarts else ""
                lines.append(f"{one.name}: {one.status}{again}{f': {one.why}' if one.why else ''}")
        routed = self.targets[self.site.router_target].routed()
        if routed is None:
            lines.append("the router does not run: queries go nowhere")
        elif routed.get("router_status", "ready") != "ready":
            lines.append(f"the router is {routed['router_status']}")
        return lines

    def difference(self, plan: Plan, *, period: str | None = None) -> Difference:
        """What an apply would change; nothing is touched."""
        seen = self.observe()
        return self._difference(seen, self.wanted(plan, period=period, running=seen))

    def difference_back(self) -> Difference:
        """What an `undo` would change; nothing is touched."""
        return self._difference(self.observe(), self._goal_before(()))

    def unfinished(self) -> Unfinished | None:
        """What an apply that was cut off left behind."""
        return self._journal.unfinished()

    def applied_plan(self) -> str | None:
        """The digest of the plan that was last brought about."""
        record = Record.read(self._record_path)
        return record.plan if record is not None else None

    @property
    def routed(self) -> bool:
        """Whether a router runs."""
        return self.targets[self.site.router_target].routed() is not None

    @property
    def makes_text(self) -> bool:
        """Whether what was last brought about makes text, and is asked by OpenAI's protocol."""
        record = Record.read(self._record_path)
        units = map(Unit.from_dict, record.units) if record is not None else ()
        return any(load.tokens is not None for unit in units for load in unit.loads)

    def endpoint(self) -> str:
        """Where queries go; the router's real port where site.toml leaves it open."""
        routed, settings = self.targets[self.site.router_target].routed(), self.site.router
        port = routed.get("router_port") if routed is not None else None
        return f"http://{in_url(settings.address or settings.bind)}:{port or settings.port}"

    def state(self, *, over_s: float = 1.0) -> State:
        """What runs, and what was observed of it during `over_s` seconds; as a state file has it."""
        return observed_state(self.observe(), self.endpoint(), over_s=over_s, token=token_of(self.site))

    # Acting

    def apply(
        self, plan: Plan, *, period: str | None = None, on_event: Callable[[Progress], None] | None = None,
        wait_s: float = 0.0, cancel: threading.Event | None = None,
    ) -> Applied:  # fmt: skip
        """Bring about what the plan wants; what ran before runs again where that fails.

        Raises `InputError` before anything is touched, `DeploymentLocked` where another command is at work,
        `ApplyFailed` where the wanted state could not be reached, `Interrupted` between two steps when `cancel` is set.
        """
        say = on_event or (lambda _: None)
        digest = str(plan.digest)
        with self._locked(f"apply of {digest[:19]}...", wait_s):
            resumed(self._journal, say)
            self._settle()
            seen = self.observe()
            goal = self.wanted(plan, period=period, running=seen)
            found = self._difference(seen, goal)
            steps = steps_of(found, goal, self.site, actions=_actions(plan, goal))
            self._carry_out(goal, seen, steps, say, cancel)
            return Applied(steps, self.endpoint(), goal.notes)

    def undo(self, *, on_event: Callable[[Progress], None] | None = None, wait_s: float = 0.0) -> Applied:
        """Go back from an apply that was cut off to what was last brought about before it."""
        say = on_event or (lambda _: None)
        with self._locked("undo", wait_s):
            self._settle()
            goal = self._goal_before(())
            seen = self.observe()
            steps = self._steps_back(seen, goal)
            self._carry_out(goal, seen, steps, say, None)
            return Applied(steps, self.endpoint(), ())

    def down(self, *, wait_s: float = 0.0) -> None:
        """Stop everything; no process of the deployment is left, and its record is closed."""
        with self._locked("down", wait_s):
            failed = []
            # The router first: nothing is to be sent to workers that go.
            for name in sorted(self.targets, key=lambda one: one != self.site.router_target):
                try:
                    self.targets[name].down(drain_s=self.site.limits.drain_s)
                except TargetFailed as error:
                    failed.append(str(error))
            if failed:
                raise ApplyFailed("; ".join(failed))
            self._journal.close()
            with suppress(FileNotFoundError):
                self._record_path.unlink()

    # How

    def _locked(self, what: str, wait_s: float) -> DeploymentLock:
        """Nobody else changes it meanwhile."""
        return DeploymentLock(self.folder / "lock", holder=what, wait_s=wait_s)

    def _settle(self) -> None:
        """What an apply that was killed asked for may be under way still: it ends before anybody looks."""
        for target in self.targets.values() if self.unfinished() is not None else ():
            _settle(target, self.site)

    def _check(self, made: Wanted) -> None:
        faults = unguarded(self.site, made.units.values())
        for name, target in self.targets.items():
            units = [unit for unit in made.units.values() if unit.target == name]
            faults += [Fault("site.toml", f"$.targets.{name}", "", why, "") for why in target.check(units)]
        if faults:
            raise InputError(faults)

    def _difference(self, seen: Sequence[Seen], goal: Wanted) -> Difference:
        endpoints = {one.name: one.endpoint for one in seen if one.endpoint is not None}
        table = final_table(goal, endpoints, self.site)
        routed = self.targets[self.site.router_target].routed()
        follows = routed is not None and table is not None and routed.get("revision") == table["revision"]
        nothing = routed is None and not goal.units
        return difference(seen, goal, routed=follows or nothing)

    def _carry_out(
        self, goal: Wanted, seen: Sequence[Seen], steps: Sequence[Step], say: Callable[[Progress], None],
        cancel: threading.Event | None,
    ) -> None:  # fmt: skip
        record = Record.read(self._record_path)
        carrier = Carrier(self.site, self.targets, seen, goal, record.apps if record is not None else {})

        def end() -> None:
            carrier.check_health()
            self._remember(goal)

        tasks = carrier.tasks(steps)
        bring_about(self._journal, goal.plan, tasks, say, cancel, end=end, back=lambda: self._tasks_back(seen))

    def _remember(self, goal: Wanted) -> None:
        units = tuple(unit.as_dict() for unit in goal.units.values())
        period = goal.workers[0].period if goal.workers else ""
        record = Record(goal.plan, period, units, goal.apps)
        write_durably(self._record_path, record.bytes())
        self._journal.close()

    def _tasks_back(self, seen: Sequence[Seen]) -> list[Task]:
        """The way to what ran before."""
        goal, now = self._goal_before(seen), self.observe()
        carrier = Carrier(self.site, self.targets, now, goal, goal.apps)
        return carrier.tasks(self._steps_back(now, goal))

    def _steps_back(self, seen: Sequence[Seen], goal: Wanted) -> tuple[Step, ...]:
        """To what ran before. No router that does not run is started half-way: it may be what could not be started."""
        steps = steps_of(self._difference(seen, goal), goal, self.site)
        if self.routed:
            return steps
        routes = [step for step in steps if step.do == "route"]
        return tuple(step for step in steps if step not in routes[:-1])

    def _goal_before(self, seen: Sequence[Seen]) -> Wanted:
        """What was last brought about; where nothing is on record, what was seen."""
        record = Record.read(self._record_path)
        units = [Unit.from_dict(one) for one in record.units] if record is not None else [
            one.unit for one in seen if one.unit is not None
        ]  # fmt: skip
        apps: Mapping[str, Any] = record.apps if record is not None else {}
        if record is None:
            routed = self.targets[self.site.router_target].routed()
            apps = routed["apps"] if routed is not None else {}
        plan = record.plan if record is not None else "nothing"
        return Wanted(plan, workers_of(units), {unit.name: unit for unit in units}, apps)


def _settle(target: Target, site: Site) -> None:
    if isinstance(target, SettlingTarget):
        target.settle(limit_s=site.limits.start_s)


def _actions(plan: Plan, goal: Wanted) -> tuple[Action, ...]:
    """The plan's actions on the workers of this period."""
    workers = {worker.id for worker in goal.workers}
    others = {worker.id for worker in plan.workers} - workers
    return tuple(action for action in plan.actions if action.worker not in others)


T = TypeVar("T")


def final_table(wanted: Wanted, endpoints: Mapping[str, Endpoint], site: Site) -> dict[str, Any] | None:
    """What the router follows when all is done; None where nothing is to be served, or not all of it is up."""
    if not wanted.units or not wanted.units.keys() <= endpoints.keys():
        return None
    pairs = [(unit, endpoints[name]) for name, unit in wanted.units.items()]
    return routing_table(wanted.apps, pairs, site.router)


class Carrier:
    """Carries out one apply: from what was seen to what is wanted."""

    def __init__(
        self, site: Site, targets: Mapping[str, Target], seen: Sequence[Seen], wanted: Wanted,
        before: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.site, self.targets, self.wanted, self.before = site, targets, wanted, before
        self.units: dict[str, Unit] = {one.name: one.unit for one in seen if one.unit is not None}
        self.endpoints = {one.name: one.endpoint for one in seen if one.endpoint is not None}
        self.homes = {name: unit.target for name, unit in self.units.items()}

    def tasks(self, steps: Sequence[Step]) -> list[Task]:
        """The steps in words, and how they are done."""
        return [(str(step), _bound(self.do, step)) for step in steps]

    def do(self, step: Step) -> None:
        """One step; raises `TargetFailed` where a target could not do it."""
        limits = self.site.limits
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
            self.targets[self.site.router_target].route(table, limit_s=limits.start_s)

    def table(self, live: Sequence[str]) -> dict[str, Any] | None:
        """What the router follows while these units are live; None where nothing is to be served at all."""
        there = [name for name in live if name in self.units and name in self.endpoints]
        if set(there) == set(self.wanted.units):
            return final_table(self.wanted, self.endpoints, self.site)
        if not there and not self.wanted.units:
            return None
        apps = self._apps({load.id for name in there for load in self.units[name].loads})
        pairs = [(self.units[name], self.endpoints[name]) for name in there]
        return routing_table(apps, pairs, self.site.router)

    def check_health(self) -> None:
        """Every wanted unit runs and is ready; raises `ApplyFailed` naming those that are not."""
        sick = []
        grouped = targets_of(self.wanted.units, {name: unit.target for name, unit in self.wanted.units.items()})
        for target, names in grouped.items():
            _settle(self.targets[target], self.site)
            said = {one.name: one for one in self.targets[target].observe()}
            sick += [
                f"{name} ({said[name].why or said[name].status})" if name in said else f"{name} (gone)"
                for name in names
                if name not in said or said[name].status != "ready"
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

    def _loads(self, app: str, said: Mapping[str, Any]) -> set[str]:
        """The loads that an application's routes lead to; all of its own where it has no routes."""
        routed = {load for route in said["routes"] for load in route["to"]}
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


_COUNTED = ("arrived", "served", "dropped", "failed", "batches")


def router_metrics(endpoint: str, *, limit_s: float = 5.0, token: str | None = None) -> dict[str, Any] | None:
    """The router's counters (`GET /metrics`); None where no router answers."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        with urlopen(Request(f"{endpoint}/metrics", headers=headers), timeout=limit_s) as answer:
            said: dict[str, Any] = json.loads(answer.read())
            return said
    except (URLError, OSError, ValueError):
        return None


def observed_state(seen: Sequence[Seen], endpoint: str, *, over_s: float = 1.0, token: str | None = None) -> State:
    """Workers in the plan's shape, and per load its status, rate, utilisation, latency and counters.

    Rates are those of `over_s` seconds, in which the router is asked twice; of its whole life where that is 0.
    """
    before = router_metrics(endpoint, token=token) if over_s > 0 else None
    if before is not None:
        time.sleep(over_s)
    after = router_metrics(endpoint, token=token)
    units = [one.unit for one in seen if one.unit is not None]
    status: dict[str, str] = {}
    servers: dict[str, int] = {}
    for one in seen:
        for load in one.unit.loads if one.unit is not None else ():
            said = {"ready": "active", "starting": "loading", "stopping": "draining"}.get(one.status, "failed")
            # One worker of several that fails does not make the load fail.
            status[load.id] = said if status.get(load.id) in (None, "failed") else status[load.id]
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
    said: dict[str, Any] = {
        "status": status,
        "counters": {key: round(now[key]) for key in _COUNTED},
        "rate_qps": max(change["arrived"], 0.0) / elapsed_s,
        "utilisation": min(max(change["busy_ms"] / (1e3 * elapsed_s * max(servers, 1)), 0.0), 1.0),
    }
    if change["served"] > 0:
        service_ms = change["busy_ms"] / max(change["batches"], 1e-9)
        said["latency_ms"] = change["queue_ms"] / change["served"] + service_ms
    return Observed.model_validate(said)
