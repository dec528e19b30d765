"""One run: a system, a stream of queries, and whatever changes on the way (scaling, new plans, failures)."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.compiled import is_compiled
from hetplan.errors import Interrupted
from hetplan.serving.system import App, Group, Load, Noise, Route, Rule, Service, Stage, System, Way
from hetplan.simulator.engine_kernels import ABORT, ADVANCE, EVACUATE, RETRY, act
from hetplan.simulator.job_kernels import flag_route, flag_station
from hetplan.simulator.route_building import add_routes
from hetplan.simulator.route_kernels import has_open
from hetplan.simulator.run_records import Glance, RunResult, Stream, query_rows, result_of
from hetplan.simulator.service_kernels import REAL_ROWS, WHOLE_ROWS
from hetplan.simulator.world import Crew, WorldBuilder, empty_world, ensure_batches, grow_heap, grow_jobs
from hetplan.simulator.world_kernels import NEED_EVENTS, NEED_JOBS, PAUSED, REACHED, World

__all__ = ["RunResult", "Simulation", "Stream", "compile_kernels", "content_of"]

_SLICE = 200_000
"""Events handled between two looks at `cancel`."""


class Simulation:
    """A run under way. Times are milliseconds from its start; changes are asked for before or during the run.

    >>> import numpy as np
    >>> from hetplan.serving.system import App, Group, Load, Route, Service, Stage, System, Way
    >>> load = Load("serve", {"ask": Service(np.array([[10.0]]))})
    >>> system = System(
    ...     apps=(App("ask", (Stage("only"),), slo_ms=15.0),),
    ...     groups=(Group("gpu", (load,)),),
    ...     routes=(Route("ask", "only", (Way("gpu", "serve"),)),),
    ... )
    >>> run = Simulation(system, [Stream("ask", np.array([0.0, 4.0, 30.0]))])
    >>> run.run().queries["finish"].tolist()
    [10.0, 20.0, 40.0]
    """

    def __init__(
        self,
        system: System,
        streams: Sequence[Stream],
        *,
        seed: int = 0,
        noise: Noise = Noise.MEAN,
        mispredict: float = 0.0,
        horizon_ms: float | None = None,
        buckets: int = 120,
    ) -> None:
        self._builder = WorldBuilder()
        builder = self._builder
        builder.add_apps(system)
        for group in system.groups:
            builder.add_group(group, count=group.count)
        self.system = system
        self._routes: dict[tuple[str, str, int], int] = {}
        self._named: dict[tuple[str, str, str, int], int] = {}
        self._todo: list[tuple[float, int, Callable[[], None]]] = []
        self._asked = 0
        self._central_targets: list[int] = []
        self._open_steps: list[tuple[float, str, int]] = []
        self._aborted = 0
        self._counted = 0
        self._glanced: dict[tuple[str, ...], tuple[float, NDArray[np.float64]]] = {}
        self._changes = 0
        self.horizon_ms = horizon_ms if horizon_ms is not None else _last_arrival(streams)
        defaults = add_routes(builder, system)
        self.world: World = self._first_world(streams, buckets)
        clock = self.world.clock[0]
        clock["seed"], clock["noise"], clock["mispredict"] = seed & 0x7FFFFFFFFFFFFFFF, int(noise), mispredict
        self._install(defaults, first=True)
        for crew in list(builder.crews.values()):
            crew.wanted = crew.group.count
            self._open(crew, range(crew.wanted), 0.0)

    # Set-up

    def _first_world(self, streams: Sequence[Stream], buckets: int) -> World:
        world = self._builder.flush(empty_world())
        clock = world.clock[0]
        clock["most_spawn"] = self._builder.most_spawn
        clock["buckets"] = buckets if self.horizon_ms > 0 else 0
        clock["width"] = self.horizon_ms / buckets if self.horizon_ms > 0 else 1.0
        clock["marks"] = self._builder.extend("numbers", np.zeros(self._builder.rows * (buckets + 2) * 2))
        self._marked = self._builder.rows
        queries = query_rows(streams, self._builder, world)
        world = self._builder.flush(world)._replace(queries=queries)
        self.world = self._make_room(world)
        for app in self.system.apps:
            record = self.world.parts["app"][self._builder.apps[app.id]]
            if record["next"] >= 0:
                self._start_clients(app.id, min(app.clients, int(record["last"] - record["next"])))
        return self.world

    def _start_clients(self, app: str, clients: int) -> None:
        from hetplan.simulator.world_kernels import ARRIVE, push_event

        record = self.world.parts["app"][self._builder.apps[app]]
        for _ in range(clients):
            push_event(self.world, 0.0, ARRIVE, int(record["next"]))
            record["next"] += 1

    def _make_room(self, world: World) -> World:
        world = ensure_batches(world, self._builder.servers + self._aborted)
        if len(world.jobs) == 0:
            world = grow_jobs(world, max(1024, 2 * self._builder.most_spawn))
        return grow_heap(world, 2 * (len(world.jobs) + int(world.clock[0]["batches"]) + self._builder.most_spawn))

    def _install(self, defaults: Mapping[tuple[str, str, int], int], *, first: bool = False) -> None:
        """Make new routes the ones in force; old ones point to their heirs."""
        world, builder = self.world, self._builder
        for (app, stage, kind), route in defaults.items():
            node = world.parts["node"][builder.nodes[app, stage]]
            world.indices[node["route0"] + kind] = route
            before = self._routes.get((app, stage, kind))
            if before is not None and before != route:
                world.parts["route"][before]["heir"] = route
        news = set(builder.route_of.values())
        self._central_targets = []
        for route in news:
            if world.parts["route"][route]["rule"] == Rule.CENTRAL:
                instances = self._claim(route)
                types = int(world.parts["route"][route]["targets"])
                self._make_tables(instances, types)
        self._routes |= defaults
        if not first:
            for (app, stage, _name, kind), route in self._named.items():
                served = (app, stage, kind) in defaults  # else it has no machines for now, and keeps what waits
                if served and route not in news and world.parts["route"][route]["heir"] < 0:
                    world.parts["route"][route]["heir"] = defaults[app, stage, kind]
            self._refresh()
        self._named = dict(builder.route_of)

    def _claim(self, route: int) -> int:
        """Tie the stations of a central route to it; says how many there are."""
        world, count = self.world, 0
        record = world.parts["route"][route]
        for target in range(record["target0"], record["target0"] + record["targets"]):
            row = world.parts["target"][target]
            self._central_targets.append(target)
            for place in range(row["lanes"]):
                station = world.parts["station"][world.parts["lane"][row["lane0"] + place * row["stride"]]["station"]]
                station["route"], station["target"], station["place"] = route, target, place
                count += 1
        return count

    # Changes

    def at(self, when_ms: float, change: Callable[[], None]) -> None:
        """Make a change at a time; it takes effect before the events of its instant."""
        heapq.heappush(self._todo, (when_ms, self._asked, change))
        self._asked += 1

    @property
    def now_ms(self) -> float:
        """The time of the run."""
        return float(self.world.clock[0]["now"])

    def workers(self, group: str) -> int:
        """How many workers of a group are wanted now (serving or on their way)."""
        return self._builder.crews[group].wanted if group in self._builder.crews else 0

    def scale(self, group: str, count: int, *, ready_ms: float | None = None) -> None:
        """Have `count` workers of a group: new ones serve after `ready_ms` (default: the group's), others stop now."""
        crew = self._builder.crews[group]
        count = max(0, count)
        if count > len(crew.stations):
            self._extend(crew, count - len(crew.stations))
        delay = crew.group.ready_ms if ready_ms is None else ready_ms
        before, crew.wanted = crew.wanted, count
        asked = self.now_ms
        for worker in range(before, count):
            crew.asked_ms[worker] = asked
        if count > before and delay > 0:
            self.at(asked + delay, lambda: self._open(crew, range(before, count), asked))
        elif count > before:
            self._open(crew, range(before, count), asked)
        for worker in range(count, before):
            self._close(crew, worker)

    def use_policy(self, group: str, place: int) -> None:
        """Let the workers of a group follow another of its policy tables from now on."""
        crew = self._builder.crews[group]
        for lane0, count in crew.chunks:
            self.world.parts["lane"]["policy"][lane0 : lane0 + count] = crew.policies[place]

    def seen(self, group: str, load: str) -> NDArray[np.float64]:
        """How many queries of each class a load has served, and for how many ms in all; counted since first asked."""
        row = self._builder.crews[group].loads[load]
        record = self.world.parts["load"][row]
        kinds = sum(self._builder.spec[app].kinds for app in _load_of(self._builder.crews[group], load).services)
        if record["seen0"] < 0:
            start = self._builder.extend("numbers", np.zeros(2 * kinds))
            self._flush()
            record = self.world.parts["load"][row]
            record["seen0"] = start
        place = int(record["seen0"])
        return np.array(self.world.numbers[place : place + 2 * kinds].reshape(kinds, 2))

    def believe(self, group: str, load: str, predicted_ms: Sequence[float]) -> None:
        """From now on the dispatcher expects a query of each class to take so long on a load (that serves singly)."""
        start = int(self.world.parts["load"][self._builder.crews[group].loads[load]]["cell0"])
        self.world.numbers[start + 4 : start + 5 * len(predicted_ms) : 5] = predicted_ms

    def change(self, system: System, *, overlap: bool = True) -> None:
        """Go over to another system of the same applications.

        Groups of the same id and loads go on. With `overlap` what goes away serves until what comes is ready;
        without, workers are swapped in place: the old stop now.
        """
        builder, delay = self._builder, 0.0
        wanted = {group.id: group for group in system.groups}
        for group in system.groups:
            known = builder.crews.get(group.id)
            if known is not None and not _same_group(known.group, group):
                self._retire(group.id)
                known = None
            if known is None:
                builder.add_group(group, count=group.count)
            if group.count > (known.wanted if known else 0):
                delay = max(delay, group.ready_ms)
            elif known is not None:
                delay = max(delay, self._still_ms(known, group))
        self._changes += 1
        number = self._changes
        self._flush()
        for group in system.groups:
            current = builder.crews[group.id].wanted
            self.scale(group.id, max(group.count, current) if overlap else group.count, ready_ms=group.ready_ms)
        gone = [name for name, crew in builder.crews.items() if name not in wanted and crew.wanted]

        def switch() -> None:
            if self._changes != number:
                # Something else was asked for since.
                return
            self.system = system
            defaults = add_routes(builder, system)
            self._flush()
            self._install(defaults)
            for group in system.groups:
                if builder.crews[group.id].wanted > group.count:
                    self.scale(group.id, group.count)
            for name in gone:
                self.scale(name, 0)

        if overlap and delay > 0:
            self.at(self.now_ms + delay, switch)
        else:
            switch()

    def _still_ms(self, crew: Crew, group: Group) -> float:
        """How long until as many workers serve as a group is to have, all of which were asked for."""
        stations, latest = self.world.parts["station"], 0.0
        for worker in range(min(group.count, crew.wanted)):
            if not stations["is_open"][crew.stations[worker]].any():
                asked = crew.asked_ms.get(worker, self.now_ms)
                latest = max(latest, asked + crew.group.ready_ms - self.now_ms)
        return latest

    def fail(self, group: str, worker: int, *, retry: bool = True) -> None:
        """A worker breaks: what it was serving starts over elsewhere (or is lost), its queue is sent on."""
        crew = self._builder.crews[group]
        row = crew.workers[worker]
        self.world.parts["worker"][row]["up"] = 0
        self._aborted += sum(int(self.world.parts["station"][station]["busy"]) for station in crew.stations[worker])
        self.world = self._make_room(self.world)
        self._act(ABORT + RETRY * retry, row)
        self._empty(crew, worker)
        if crew.standby:
            # It was paid for all along, from the start of the run.
            crew.standby -= 1
            crew.paid_ms += self.now_ms
            self.scale(crew.name, crew.wanted + 1, ready_ms=0.0)

    def recover(self, group: str, worker: int) -> None:
        """A broken worker is back."""
        crew = self._builder.crews[group]
        self.world.parts["worker"][crew.workers[worker]]["up"] = 1
        # What it had was sent elsewhere: nothing is expected of it any more.
        self.world.parts["station"]["free_at"][crew.stations[worker]] = self.now_ms
        self._refresh(crew.stations[worker])

    def arrived(self) -> dict[str, int]:
        """How many queries of each application came since this was last asked."""
        coming = int(self.world.clock[0]["next"])
        counts = np.bincount(self.world.queries["app"][self._counted : coming], minlength=len(self._builder.apps))
        self._counted = coming
        return {app: int(counts[row]) for app, row in self._builder.apps.items()}

    @property
    def under_way(self) -> int:
        """How many queries wait or are served."""
        return int(self.world.clock[0]["in_system"])

    def glance(self, groups: Sequence[str]) -> Glance:
        """What an autoscaler sees of groups that serve together, over the time since it last glanced at them."""
        parts, now, names = self.world.parts, self.now_ms, tuple(groups)
        crews = [self._builder.crews[name] for name in names]
        rows = np.array([row for crew in crews for worker in crew.stations for row in worker], dtype=np.int64)
        of_worker = np.repeat(
            np.arange(sum(len(crew.stations) for crew in crews)),
            [len(worker) for crew in crews for worker in crew.stations],
        )
        stations = parts["station"][rows]
        batches = parts["batch"][: int(self.world.clock[0]["batches"])]
        batches = batches[batches["alive"] == 1]
        spent = parts["station"]["busy_ms"].copy()
        np.add.at(spent, batches["station"], now - batches["start"])
        before_ms, before = self._glanced.get(names, (0.0, np.zeros(0)))
        self._glanced[names] = (now, spent)
        known = np.zeros(len(spent))
        known[: len(before)] = before
        mine, known, up = spent[rows], known[rows], stations["is_open"] == 1
        servers = np.maximum(stations["servers"][up], 1)
        use = (mine[up] - known[up]) / (servers * max(now - before_ms, 1e-9))
        in_service = float(batches["size"][np.isin(batches["station"], rows)].sum())
        lanes = [lane0 + i for crew in crews for lane0, count in crew.chunks for i in range(count * crew.stride)]
        waiting = float(parts["lane"]["length"][lanes].sum()) if lanes else 0.0
        return Glance(
            now, sum(crew.wanted for crew in crews), len(np.unique(of_worker[up])),
            float(use.mean()) if use.size else 0.0, waiting + in_service,
        )  # fmt: skip

    # Inner workings

    def _act(self, what: int, number: int, until: float = 0.0) -> int:
        with _quiet():
            return act(self.world, what, number, until)

    def _flush(self) -> None:
        builder, clock = self._builder, self.world.clock[0]
        if builder.rows > self._marked:
            # More rows to integrate: the block moves to the end, longer.
            start, each = int(clock["marks"]), 2 * (int(clock["buckets"]) + 2)
            held = self.world.numbers[start : start + self._marked * each]
            fresh = np.zeros((builder.rows - self._marked) * each)
            clock["marks"] = builder.extend("numbers", np.concatenate([held, fresh]))
            self._marked = builder.rows
        world = builder.flush(self.world)
        world.clock[0]["most_spawn"] = builder.most_spawn
        self.world = self._make_room(world)

    def _make_tables(self, instances: int, types: int) -> None:
        """Working tables for matching with so many instances of so many types."""
        clock, side = self.world.clock[0], 2 * instances + types + 1
        if clock["side"] >= side and clock["types"] >= types:
            return
        side, types = max(side, int(clock["side"])), max(types, int(clock["types"]))
        clock["side"], clock["types"] = side, types
        clock["reals"] = self._builder.extend("numbers", np.zeros(side * (REAL_ROWS + side + types)))
        clock["wholes"] = self._builder.extend("indices", np.zeros(side * WHOLE_ROWS))
        self._flush()

    def _extend(self, crew: Crew, more: int) -> None:
        """More workers than a group ever had: new rows, and routes that know them."""
        self._builder.add_workers(crew, more)
        defaults = add_routes(self._builder, self.system)
        self._flush()
        self._install(defaults)

    def _retire(self, group: str) -> None:
        """Let a group go on under another name, so that its successor can have its own."""
        crew = self._builder.crews.pop(group)
        crew.name = f"{group}#{self._asked}"
        self._asked += 1
        self._builder.crews[crew.name] = crew

    def _open(self, crew: Crew, workers: range, asked_ms: float) -> None:
        """These workers are ready now, unless they were sent away since they were asked for."""
        opened: list[int] = []
        for worker in workers:
            crew.asked_ms.setdefault(worker, asked_ms)
            if worker < crew.wanted and crew.asked_ms[worker] == asked_ms:
                opened += crew.stations[worker]
        if not opened:
            return
        stations = self.world.parts["station"]
        stations["is_open"][opened] = 1
        stations["free_at"][opened] = self.now_ms
        self._open_steps.append((self.now_ms, crew.name, int(stations["servers"][opened].sum())))
        self._refresh(opened)

    def _close(self, crew: Crew, worker: int) -> None:
        crew.paid_ms += self.now_ms - crew.asked_ms.pop(worker)
        stations = self.world.parts["station"]
        mine = crew.stations[worker]
        lost = int((stations["servers"][mine] * stations["is_open"][mine]).sum())
        stations["is_open"][mine] = 0
        if lost:
            self._open_steps.append((self.now_ms, crew.name, -lost))
            self._rebalance()
        self._empty(crew, worker)

    def _empty(self, crew: Crew, worker: int) -> None:
        for station in crew.stations[worker]:
            record = self.world.parts["station"][station]
            for lane in range(record["lane0"], record["lane0"] + record["lanes"]):
                if self.world.parts["lane"][lane]["length"]:
                    self._act(EVACUATE, lane)
            if record["route"] >= 0 and self._is_shut(int(record["route"])):
                self._act(EVACUATE, int(self.world.parts["route"][record["route"]]["lane"]))

    def _is_shut(self, route: int) -> bool:
        """Whether a part of a divided route has no worker left: what waits there goes to the others."""
        return bool(self.world.parts["route"][route]["whole"] >= 0 and not has_open(self.world, route))

    def _refresh(self, stations: Sequence[int] = ()) -> None:
        """Look again at everything that may start or move after a change."""
        world, size = self.world, self._builder.size["route"]
        for station in stations:
            flag_station(world, station)
        world.parts["target"]["cursor"][self._central_targets] = 0
        self._rebalance()
        routes = world.parts["route"][:size]
        for route in np.flatnonzero(world.parts["lane"]["length"][routes["lane"]]):
            if routes[route]["rule"] == Rule.CENTRAL and routes[route]["heir"] < 0 and not self._is_shut(int(route)):
                flag_route(world, int(route))
            else:
                self._act(EVACUATE, int(routes[route]["lane"]))

    def _rebalance(self) -> None:
        """Share a way among the batches of workers that a group was made of by how many of each are open."""
        if all(len(crew.chunks) <= 1 for crew in self._builder.crews.values()):
            return
        parts = self.world.parts
        for route in set(self._builder.route_of.values()):
            first, count = int(parts["route"][route]["target0"]), int(parts["route"][route]["targets"])
            targets = parts["target"][first : first + count]
            opened = np.array([self._open_lanes(target) for target in targets], dtype=float)
            made = np.bincount(targets["way"], weights=opened, minlength=count)[targets["way"]]
            shares = np.divide(targets["share"] * opened, made, out=np.zeros(count), where=made > 0)
            if shares.sum() > 0:
                targets["upto"] = np.cumsum(shares / shares.sum())

    def _open_lanes(self, target: Any) -> int:
        lanes = target["lane0"] + target["stride"] * np.arange(target["lanes"])
        return int(self.world.parts["station"]["is_open"][self.world.parts["lane"]["station"][lanes]].sum())

    # The run

    def run(
        self, *, cancel: threading.Event | None = None, on_progress: Callable[[float], None] | None = None
    ) -> RunResult:
        """Run to the end: every query answered, given up, or waiting for what will never come."""
        while self._todo:
            when = self._todo[0][0]
            if when > self.horizon_ms and self._is_over():
                break
            self._advance(when, cancel, on_progress)
            self.world.clock[0]["now"] = max(self.now_ms, when)
            heapq.heappop(self._todo)[2]()
        self._advance(float("inf"), cancel, on_progress)
        end = max(self.now_ms, self.horizon_ms)
        paid = {
            name: crew.paid_ms + sum(end - since for since in crew.asked_ms.values()) + crew.standby * end
            for name, crew in self._builder.crews.items()
        }
        return result_of(
            self.world, self._builder, horizon_ms=self.horizon_ms, paid_ms=paid, open_steps=self._open_steps
        )

    def _is_over(self) -> bool:
        clock = self.world.clock[0]
        return bool(clock["next"] >= clock["open_loop"] and clock["in_system"] == 0)

    def _advance(
        self, until: float, cancel: threading.Event | None, on_progress: Callable[[float], None] | None
    ) -> None:
        while True:
            code = self._act(ADVANCE, _SLICE, until)
            if code == REACHED:
                return
            if code == NEED_JOBS:
                self.world = grow_jobs(self.world, len(self.world.jobs) + 2 * self._builder.most_spawn)
                self.world = self._make_room(self.world)
            elif code == NEED_EVENTS:
                self.world = grow_heap(self.world, 2 * len(self.world.heap) + self._builder.most_spawn)
            elif code == PAUSED:
                if cancel is not None and cancel.is_set():
                    raise Interrupted("the simulation was cancelled")
                if on_progress is not None and self.horizon_ms > 0:
                    on_progress(min(1.0, self.now_ms / self.horizon_ms))


def compile_kernels() -> None:
    """Simulate one query, so that everything is compiled that a simulation needs."""
    load = Load("serve", {"ask": Service(np.array([[1.0]]))})
    apps, groups = (App("ask", (Stage("only"),), slo_ms=1.0),), (Group("gpu", (load,)),)
    routes = (Route("ask", "only", (Way("gpu", "serve"),)),)
    assert len(Simulation(System(apps, groups, routes), [Stream("ask", np.array([0.0]))]).run().columns.app)


def _load_of(crew: Crew, name: str) -> Load:
    return next(load for load in crew.group.loads if load.id == name)


def _last_arrival(streams: Sequence[Stream]) -> float:
    return max((float(stream.times_ms[-1]) for stream in streams if len(stream.times_ms)), default=0.0)


def _same_group(before: Group, after: Group) -> bool:
    """Whether workers of one group can go on as workers of the other: all but number and time to come is equal."""
    one, other = (content_of(replace(group, count=0, ready_ms=0.0)) for group in (before, after))
    return bool(one == other)


def content_of(value: Any) -> Any:
    """A value that compares by content where it holds arrays."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    if is_dataclass(value):
        return tuple(content_of(getattr(value, field.name)) for field in fields(value))
    if isinstance(value, Mapping):
        return tuple((name, content_of(item)) for name, item in sorted(value.items()))
    return tuple(content_of(item) for item in value) if isinstance(value, tuple) else value


def _quiet() -> Any:
    """Wrapping integer arithmetic is meant; only the uncompiled code would warn of it."""
    from contextlib import nullcontext

    return nullcontext() if is_compiled() else np.errstate(over="ignore")
