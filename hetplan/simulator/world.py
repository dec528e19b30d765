"""From a system in words to the world of arrays, at the start and whenever the system changes under way.

Rows are collected and appended together; arrays for jobs, batches and events grow between calls of the engine.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.dispatch.policy_lookup import LEEWAY_MS
from hetplan.errors import InputError
from hetplan.serving.system import App, Group, Late, Load, Service, System, link_table
from hetplan.simulator.world_kernels import CLOCK, ENTITIES, EVENT, JOB, PART, QUERY, World

__all__ = ["Crew", "RowWriter", "WorldBuilder", "empty_world", "ensure_batches", "grow_heap", "grow_jobs"]

_PLAIN = {"numbers": np.float64, "indices": np.int64}


class RowWriter:
    """Collects records and plain numbers; `flush` appends them to what is there."""

    def __init__(self) -> None:
        self.fresh: dict[str, list[Any]] = defaultdict(list)
        self.size: dict[str, int] = defaultdict(int)

    def add(self, table: str, **fields: Any) -> int:
        """Append a record, zero but for these fields, and return its number."""
        record = np.zeros((), ENTITIES[table])
        for name, value in fields.items():
            record[name] = value
        self.fresh[table].append(record)
        self.size[table] += 1
        return self.size[table] - 1

    def extend(self, table: str, values: Any) -> int:
        """Append plain numbers to `numbers` or `indices`, and return the place of the first."""
        start = self.size[table]
        plain = np.asarray(values, dtype=_PLAIN[table]).ravel()
        self.fresh[table].append(plain)
        self.size[table] += len(plain)
        return start

    def flush(self, world: World) -> World:
        """The world with everything added since the last time."""
        wanted = max(self.size[name] for name in ENTITIES)
        parts = world.parts
        if wanted > len(parts):
            parts = np.zeros(max(wanted, 2 * len(parts)), PART)
            parts[: len(world.parts)] = world.parts
        for name in ENTITIES:
            records = self.fresh.pop(name, [])
            if records:
                parts[name][self.size[name] - len(records) : self.size[name]] = np.array(records, ENTITIES[name])
        return world._replace(
            parts=parts,
            numbers=np.concatenate([world.numbers, *self.fresh.pop("numbers", [])]),
            indices=np.concatenate([world.indices, *self.fresh.pop("indices", [])]),
        )


def empty_world() -> World:
    """A world with nothing in it at time 0."""
    clock = np.zeros(1, CLOCK)
    clock["free_job"] = clock["free_batch"] = -1
    return World(
        clock=clock,
        queries=np.zeros(0, QUERY),
        jobs=np.zeros(0, JOB),
        parts=np.zeros(0, PART),
        numbers=np.zeros(0),
        indices=np.zeros(0, np.int64),
        heap=np.zeros(0, EVENT),
    )


def grow_jobs(world: World, more: int) -> World:
    """`more` free job records."""
    before = len(world.jobs)
    fresh = np.zeros(more, JOB)
    fresh["query"] = -1
    fresh["after"] = np.arange(before + 1, before + more + 1)
    fresh["after"][-1] = world.clock[0]["free_job"]
    world.clock[0]["free_job"] = before
    world.clock[0]["free_jobs"] += more
    return world._replace(jobs=np.concatenate([world.jobs, fresh]))


def ensure_batches(world: World, wanted: int) -> World:
    """At least `wanted` batch records in all (one per server, and one per batch that was aborted under way)."""
    before = int(world.clock[0]["batches"])
    if wanted <= before:
        return world
    parts = world.parts
    if wanted > len(parts):
        parts = np.zeros(max(wanted, 2 * len(parts)), PART)
        parts[: len(world.parts)] = world.parts
    batches = parts["batch"]
    batches["job"][before:wanted] = np.arange(before + 1, wanted + 1)
    batches["job"][wanted - 1] = world.clock[0]["free_batch"]
    world.clock[0]["free_batch"] = before
    world.clock[0]["batches"] = wanted
    return world._replace(parts=parts)


def grow_heap(world: World, wanted: int) -> World:
    """A heap of at least `wanted` places."""
    more = wanted - len(world.heap)
    return world if more <= 0 else world._replace(heap=np.concatenate([world.heap, np.zeros(more, EVENT)]))


_MOST_STAGES = 62
_MOST_SPAWN = 1_000_000
_MOST_SERVERS = 10_000_000
"""Batches under way at once, of all workers: each has a place in memory."""


@dataclass
class Crew:
    """The workers of one group: which rows of the world they are, how many of them are wanted now.

    `asked_ms` says since when each wanted worker is paid for. A group that was replaced goes on under another `name`.
    """

    name: str
    group: Group
    row: int
    loads: dict[str, int]
    policies: list[int]
    stations: list[list[int]] = field(default_factory=list)
    """Per worker, its stations."""
    chunks: list[tuple[int, int]] = field(default_factory=list)
    """(first lane, workers) of each batch of workers made together; lanes of a worker are side by side."""
    workers: list[int] = field(default_factory=list)
    wanted: int = 0
    asked_ms: dict[int, float] = field(default_factory=dict)
    paid_ms: float = 0.0
    standby: int = 0

    @property
    def stride(self) -> int:
        """Lanes per worker."""
        return 1 if self.group.policies else len(self.group.loads)

    def lane_offset(self, load: str) -> int:
        """The place of a load's lane among a worker's lanes."""
        if self.group.policies:
            return 0
        return [item.id for item in self.group.loads].index(load)


class WorldBuilder(RowWriter):
    """Writes applications and groups of workers as rows, and remembers which rows they became."""

    def __init__(self) -> None:
        super().__init__()
        self.crews: dict[str, Crew] = {}
        self.apps: dict[str, int] = {}
        self.kind0: dict[str, int] = {}
        self.spec: dict[str, App] = {}
        self.nodes: dict[tuple[str, str], int] = {}
        self.route_of: dict[tuple[str, str, str, int], int] = {}
        self.tiers: tuple[str, ...] = ()
        self.rows = 0
        self.servers = 0
        self.most_spawn = 4

    # Applications

    def add_apps(self, system: System) -> None:
        """Applications, their stages and edges."""
        self.tiers = system.tiers
        kinds = 0
        for app in system.apps:
            self.kind0[app.id] = kinds
            self.spec[app.id] = app
            kinds += app.kinds
        self.rows = len(system.apps)
        for app in system.apps:
            self._add_app(app, system)

    def _add_app(self, app: App, system: System) -> None:
        if len(app.stages) > _MOST_STAGES:
            raise InputError.one(
                path=f"apps.{app.id}",
                value=len(app.stages),
                why=f"more than {_MOST_STAGES} stages",
                remedy="Merge some.",
            )
        place = {stage.id: position for position, stage in enumerate(app.stages)}
        parents = [0] * len(app.stages)
        for stage in app.stages:
            for edge in stage.edges:
                parents[place[edge.to]] += 1
        entries = next((place for place, count in enumerate(parents) if count), len(parents))
        if not entries or 0 in parents[entries:]:
            raise InputError.one(
                path=f"apps.{app.id}.stages",
                why="stages that nothing leads to must come first",
                remedy="Sort the stages.",
            )
        if app.late is Late.REROUTE and any(stage.outcomes for stage in app.stages):
            raise InputError.one(
                path=f"apps.{app.id}.late", value="reroute", why="nothing is rerouted where steps have outcomes",
                remedy="Drop late queries, or serve them.",
            )  # fmt: skip
        above = [app.above(stage.id) for stage in app.stages]
        if any(stage.id in found for stage, found in zip(app.stages, above, strict=True)):
            raise InputError.one(
                path=f"apps.{app.id}.stages", why="the stages form a cycle", remedy="Remove an edge of it."
            )
        masks = [sum(1 << place[one] for one in found) for found in above]
        tiers = self.tiers
        link0 = self.extend("numbers", link_table(tiers, (*system.links, *app.links))) if tiers else 0
        node0 = self.size["node"]
        self.apps[app.id] = self.add(
            "app",
            node0=node0,
            nodes=len(app.stages),
            entries=entries,
            kind0=self.kind0[app.id],
            kinds=app.kinds,
            link0=link0,
            tier=tiers.index(app.tier) if app.tier in tiers else 0,
            tiers=len(tiers),
            combine=int(app.combine),
            joins=int(max(parents) > 1),
            sinks=app.sinks,
            late=int(app.late),
            hop=app.hop_ms,
            slo=app.slo_ms - app.once_ms,
            think=app.think_ms,
            bytes=app.bytes_in,
            next=-1,
            last=-1,
        )
        self._add_nodes(app, place, node0, parents, masks)

    def _add_nodes(
        self, app: App, place: dict[str, int], node0: int, parents: Sequence[int], masks: Sequence[int]
    ) -> None:
        for position, stage in enumerate(app.stages):
            edge0 = self.size["edge"]
            for edge in stage.edges:
                self.add("edge", to=node0 + place[edge.to], bytes=-1.0 if edge.bytes is None else edge.bytes)
            self.nodes[app.id, stage.id] = self.add(
                "node",
                app=self.apps[app.id],
                edge0=edge0,
                edges=len(stage.edges),
                parents=parents[position],
                outcomes=len(stage.outcomes),
                worth0=self.extend("numbers", list(app.worth(stage).values())),
                route0=self.extend("indices", [-1] * app.kinds),
                budget=stage.budget_ms,
                ancestors=masks[position],
            )

    # Groups

    def add_group(self, group: Group, *, count: int) -> Crew:
        """The group's loads, and `count` workers (closed: the simulation opens them)."""
        loads = {load.id: self._add_load(load, group) for load in group.loads}
        crew = Crew(
            name=group.id,
            group=group,
            row=self.rows,
            loads=loads,
            policies=self._add_policies(group, loads),
            standby=group.standby,
        )
        self.rows += 2
        self.crews[group.id] = crew
        self.add_workers(crew, count)
        if self.servers > _MOST_SERVERS:
            raise InputError.one(
                path=f"workers.{group.id}",
                value=self.servers,
                why=f"more than {_MOST_SERVERS} batches would be served at once",
                remedy="Lower the concurrency of its loads, or its count.",
            )
        return crew

    def add_workers(self, crew: Crew, count: int) -> None:
        """More workers of a group."""
        if count <= 0:
            return
        group = crew.group
        crew.chunks.append((self.size["lane"], count))
        for _ in range(count):
            worker = self.add(
                "worker",
                up=1,
                slow=1.0,
                gate=group.offline_below,
                watched=int(any(load.offline for load in group.loads)),
                servers=group.servers if group.shared else sum(load.servers for load in group.loads),
            )
            crew.workers.append(worker)
            lane0 = self.size["lane"]
            stations: list[int] = []
            if group.policies:
                stations.append(self._add_station(crew, worker, lane0, 1, group.servers))
                self._add_lane(crew, stations[0], None)
            elif group.shared:
                stations.append(self._add_station(crew, worker, lane0, len(group.loads), group.servers))
                for load in group.loads:
                    self._add_lane(crew, stations[0], load)
            else:
                for load in group.loads:
                    stations.append(self._add_station(crew, worker, self.size["lane"], 1, load.servers))
                    self._add_lane(crew, stations[-1], load)
            crew.stations.append(stations)

    def _add_station(self, crew: Crew, worker: int, lane0: int, lanes: int, servers: int) -> int:
        self.servers += servers
        self.add("dirty")
        return self.add(
            "station",
            worker=worker,
            servers=servers,
            lane0=lane0,
            lanes=lanes,
            row=crew.row + 1,
            route=-1,
            target=-1,
            joined=int(crew.group.joined),
        )

    def _add_lane(self, crew: Crew, station: int, load: Load | None) -> int:
        return self.add(
            "lane",
            station=station,
            load=-1 if load is None else crew.loads[load.id],
            policy=crew.policies[0] if crew.policies else -1,
            head=-1,
            tail=-1,
            room=-1 if load is None or load.room is None else load.room,
            row=crew.row,
            offline=int(load is not None and load.offline),
        )

    def _add_load(self, load: Load, group: Group) -> int:
        served = sorted(load.services, key=lambda app: self.kind0[app])
        if not served:
            raise InputError.one(path=f"workers.{group.id}.{load.id}", why="the load serves no application")
        kind0 = self.kind0[served[0]]
        last = self.kind0[served[-1]] + self.spec[served[-1]].kinds
        columns = max(service.mean_ms.shape[1] for service in load.services.values())
        laws = np.zeros((last - kind0, columns, 5))
        laws[:, :, 0] = np.nan
        for app, service in load.services.items():
            start, width = self.kind0[app] - kind0, service.mean_ms.shape[1]
            laws[start : start + self.spec[app].kinds, :width] = self._laws(service)
        cell0 = self.extend("numbers", laws)
        fans = self._fans(load, served[0])
        spawned = columns * (1 + math.ceil(sum(math.ceil(fan) for fan in fans)) + self._joined(served))
        if spawned > _MOST_SPAWN:
            raise InputError.one(
                path=f"workers.{group.id}.{load.id}", value=spawned, why="a batch begets too many jobs"
            )
        self.most_spawn = max(self.most_spawn, spawned)
        return self.add(
            "load",
            cell0=cell0,
            kind0=kind0,
            max_batch=columns,
            fan0=self.extend("numbers", fans),
            out0=self.extend("numbers", self._outcomes(load, served)),
            slow0=self.extend("numbers", load.slowdown),
            slows=len(load.slowdown),
            seen0=-1,
            max_wait=load.max_wait_ms,
            tier=self.tiers.index(group.tier) if group.tier in self.tiers else 0,
            quality=load.quality,
            bytes=load.bytes_out,
            rounds0=-1 if load.fails is None else self.extend("numbers", load.fails.rounds),
            retries=0 if load.fails is None else load.fails.most,
            fails=0.0 if load.fails is None else load.fails.chance,
            again=0.0 if load.fails is None else load.fails.again_ms,
        )

    def _fans(self, load: Load, app: str) -> list[float]:
        """Jobs per job along the edges of the stage that this load serves (known by the children that it names)."""
        stages = [stage for stage in self.spec[app].stages if stage.id in load.stages] or list(self.spec[app].stages)
        longest: list[float] = []
        for stage in stages:
            fans = [load.fanout.get(edge.to, edge.fanout) for edge in stage.edges]
            longest = fans if len(fans) > len(longest) else longest
        return longest

    def _outcomes(self, load: Load, served: list[str]) -> list[float]:
        """The shares of the outcomes of the stage that this load serves, each with those before it."""
        for stage in (stage for app in served for stage in self.spec[app].stages):
            if stage.outcomes and (stage.id in load.stages or not load.stages):
                missing = [name for name in stage.outcomes if name not in load.outcomes]
                if missing:
                    raise InputError.one(
                        path=f"loads.{load.id}.outcomes",
                        value=missing[0],
                        why=f"no share of this outcome of {stage.id}",
                    )
                shares = np.array([load.outcomes[name] for name in stage.outcomes])
                return list(np.cumsum(shares) / shares.sum())
        return []

    def _joined(self, served: list[str]) -> int:
        """At most this many jobs start at joins when one job of these applications ends."""
        most = 0
        for app in served:
            spec, reach = self.spec[app], defaultdict(float)
            reach[spec.entry] = 1.0
            joins = 0.0
            for stage in spec.stages:
                for edge in stage.edges:
                    reach[edge.to] += reach[stage.id] * math.ceil(edge.fanout)
            parents: dict[str, int] = defaultdict(int)
            for stage in spec.stages:
                for edge in stage.edges:
                    parents[edge.to] += 1
            joins = sum(math.ceil(reach[name]) for name, count in parents.items() if count > 1)
            most = max(most, int(joins))
        return most

    def _laws(self, service: Service) -> NDArray[np.float64]:
        """Mean, mu, sigma, most and prediction of each class and batch size: of the given mean and deviation.

        Where a distribution has pieces, mu is the place of the first and -sigma their number.
        """
        laws = np.zeros((*service.mean_ms.shape, 5))
        laws[:, :, 4] = service.mean_ms if service.predicted_ms is None else service.predicted_ms
        laws[:, :, 0] = service.mean_ms
        laws[:, :, 3] = np.inf if service.most_ms is None else service.most_ms
        if service.std_ms is not None:
            positive = np.where(service.mean_ms > 0, service.mean_ms, 1.0)
            variance = np.where(service.mean_ms > 0, np.log1p(np.square(service.std_ms / positive)), 0.0)
            laws[:, :, 1] = np.log(positive) - variance / 2
            laws[:, :, 2] = np.sqrt(variance)
        if service.pieces is not None:
            varies, width = np.isfinite(service.pieces[:, :, 0, 1]), service.pieces.shape[2]
            start = self.extend("numbers", service.pieces)
            laws[:, :, 1] = start + 3 * width * np.arange(varies.size).reshape(varies.shape)
            laws[:, :, 2] = np.where(varies, -float(width), 0.0)
        return laws

    def _add_policies(self, group: Group, loads: dict[str, int]) -> list[int]:
        return [
            self.add(
                "policy",
                slack0=self.extend("numbers", np.asarray(table.slack_ms) - LEEWAY_MS),
                slacks=len(table.slack_ms),
                queue_max=len(table.choice),
                choice0=self.extend("indices", np.stack([table.choice, table.batch], axis=-1)),
                load0=min(loads.values()),
                otherwise=table.otherwise,
                otherwise_batch=table.otherwise_batch,
            )
            for table in group.policies
        ]
