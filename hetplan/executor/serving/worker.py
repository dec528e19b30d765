"""A worker process: `python -m hetplan.executor.serving.worker CONFIG --report FD`.

It holds the loads of one unit and serves them over the router's link; streams, `GET /healthz` and `GET /metrics` over
HTTP. SIGTERM lets it finish what it has; SIGHUP has it read its configuration again and change its loads
in place.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from hetplan.executor.secrets import is_loopback
from hetplan.executor.serving.frames import (  # fmt: skip
    ASK,
    BATCH,
    CANCEL,
    FAILED,
    PING,
    PING_FRAME,
    PROTOCOL,
    Answered,
    FrameReader,
    FrameWriter,
    done_frame,
    read_ask,
    read_batch,
    read_cancel,
)
from hetplan.executor.serving.http_server import Exchange, listen, listen_for_keeper
from hetplan.executor.serving.law import ServiceLaw
from hetplan.executor.serving.metrics import KIND, Page, load_metrics, wants_prometheus
from hetplan.executor.serving.models import Model, Result, SleepModel, Streams
from hetplan.executor.serving.openai_words import CHAT, COMPLETIONS, MODELS, as_error, models, read_asked
from hetplan.executor.serving.process import ask_for_short_turns, orders, spare_the_collector
from hetplan.executor.serving.query_body import BadQuery, read_query
from hetplan.executor.serving.stations import HeldLoad, Job, Lane, Station
from hetplan.executor.serving.visible_gpus import apart_from_engines, of_instances
from hetplan.precise_loop import new_event_loop

__all__ = ["Worker", "main", "model_of"]


class Worker:
    """The loads of one unit behind one port."""

    def __init__(self, config_path: Path, token: str | None = None) -> None:
        self.config_path, self.token = config_path, token
        self.config: Mapping[str, Any] = {}
        self.loads: dict[str, HeldLoad] = {}
        self.lanes: dict[str, tuple[Station, Lane]] = {}
        self.stations: list[Station] = []
        self.leaving: list[Station] = []
        self.draining = False
        self.since_s = monotonic()
        self._changing = asyncio.Lock()

    async def run(self, report: int) -> None:
        """Serve until it is to stop."""
        loop = asyncio.get_running_loop()
        config = json.loads(self.config_path.read_text())
        if config["cores"]:
            os.sched_setaffinity(0, config["cores"])
        try:
            await self._change(config)
            guard = None if is_loopback(config["bind"]) else self.token
            server = await listen(self.handle, config["bind"], config["port"], token=guard)
            probe = await listen_for_keeper(self.look)
        except (OSError, ValueError, KeyError) as error:
            _report(report, {"failed": str(error)})
            return
        spare_the_collector()
        # The threads in which models compute keep their usual turns.
        ask_for_short_turns()
        stopped = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stopped.set)
        loop.add_signal_handler(signal.SIGHUP, lambda: tasks.append(loop.create_task(self._reload())))
        tasks: list[asyncio.Task[None]] = []
        _report(report, {"port": server.port, "probe": probe.port})
        await stopped.wait()
        self.draining = True
        while not all(station.idle for station in (*self.stations, *self.leaving)) or any(
            load.streams.open for load in self.loads.values() if load.streams is not None
        ):
            await asyncio.sleep(0.01)
        # What was just answered is still on its way out.
        await asyncio.sleep(0.02)
        server.close()
        probe.close()
        for load in self.loads.values():
            load.model.close()

    # What it holds

    async def _reload(self) -> None:
        try:
            await self._change(json.loads(self.config_path.read_text()))
        except (OSError, ValueError, KeyError) as error:
            self.config = {**self.config, "refused": str(error)}

    async def _change(self, config: Mapping[str, Any]) -> None:
        """Hold the loads of this configuration; those that stay the same go on as they are."""
        async with self._changing:
            unit, before = config["unit"], {load["id"]: load for load in self.config.get("unit", {}).get("loads", ())}
            made: dict[str, HeldLoad] = {}
            for number, load in enumerate(unit["loads"]):
                same = before.get(load["id"]) == load and load["id"] in self.loads
                made[load["id"]] = self.loads[load["id"]] if same else await self._loaded(load, config, number)
            gone = [load for name, load in self.loads.items() if made.get(name) is not load]
            self.loads, self.leaving = made, [*self.leaving, *self.stations]
            self.stations, self.lanes = [], {}
            self._arrange(unit)
            self.config = config
        for load in gone:
            asyncio.get_running_loop().create_task(self._let_go(load, list(self.leaving)))

    async def _loaded(self, load: Mapping[str, Any], config: Mapping[str, Any], number: int) -> HeldLoad:
        serial = 1009 * int(config["unit"]["index"]) + number
        takes = [one["model"].get("gpus", 0) * one["instances"] for one in config["unit"]["loads"]]
        model = model_of(load, cores=config["cores"], serial=serial, beside=takes, number=number)
        await model.prepare()
        expected = load["expected"] or (load["model"].get("law") if load["model"]["kind"] == "sleep" else None)
        # Nobody's own request goes to an API with its key.
        streams = model if isinstance(model, Streams) and load["model"]["kind"] != "api" else None
        return HeldLoad(
            id=load["id"], model=model, streams=streams,
            servers=load["instances"] * load["concurrency"], max_batch=load["max_batch"],
            max_wait_s=load["max_wait_ms"] / 1000.0, expected=ServiceLaw(expected) if expected else None,
        )  # fmt: skip

    def _arrange(self, unit: Mapping[str, Any]) -> None:
        """Stations and lanes: one lane under a policy, else one per load; one station where the queue is shared."""
        if unit["policies"]:
            from hetplan.dispatch.policy_lookup import PolicySelector
            from hetplan.profiles.plan_policy import PolicyTable

            selector = PolicySelector([PolicyTable.model_validate(table) for table in unit["policies"]])
            by_variant = {load["variant"]: self.loads[load["id"]] for load in unit["loads"]}
            lane = Lane(by_variant, selector)
            self._add_station(list(self.loads.values()), [lane], dict.fromkeys(self.loads, lane))
        elif unit["queue"] == "shared":
            lanes = {name: Lane({name: load}) for name, load in self.loads.items()}
            self._add_station(list(self.loads.values()), list(lanes.values()), lanes)
        else:
            for name, load in self.loads.items():
                lane = Lane({name: load})
                self._add_station([load], [lane], {name: lane})

    def _add_station(self, loads: list[HeldLoad], lanes: list[Lane], by_load: Mapping[str, Lane]) -> None:
        servers = max((load.servers for load in loads), default=1)
        station = Station(servers, lanes, asyncio.get_running_loop().call_at)
        self.stations.append(station)
        self.lanes.update({name: (station, lane) for name, lane in by_load.items()})

    async def _let_go(self, load: HeldLoad, stations: list[Station]) -> None:
        while not all(station.idle for station in stations) or (load.streams is not None and load.streams.open):
            await asyncio.sleep(0.02)
        load.model.close()
        self.leaving = [station for station in self.leaving if not station.idle]

    # What comes in

    def handle(self, exchange: Exchange) -> None:
        """Answer one HTTP request."""
        path = exchange.path
        if path == "/link" and exchange.headers.get("upgrade") == PROTOCOL:
            _Link(self, exchange)
        elif path == MODELS:
            if exchange.allows("GET", "HEAD"):
                exchange.answer(200, models(name for name, load in self.loads.items() if load.streams is not None))
        elif path in (CHAT, COMPLETIONS) or "hetplan-load" in exchange.headers:
            if exchange.allows("POST"):
                self._stream(exchange)
        else:
            self.look(exchange)

    def _stream(self, exchange: Exchange) -> None:
        """A request whose answer comes piece by piece, for the load that its head names, or the only one."""
        path, headers = exchange.path, exchange.headers
        able = [load for load in self.loads.values() if load.streams is not None]
        name = headers.get("hetplan-load") or (able[0].id if len(able) == 1 else "")
        load = next((load for load in able if load.id == name), None)
        if load is None or load.streams is None or self.draining:
            why = "this worker is stopping" if self.draining else "no such load here, or none that streams"
            exchange.answer(503 if self.draining else 404, as_error(why), fields=b"retry-after: 0\r\n")
            return
        try:
            is_text = path in (CHAT, COMPLETIONS)
            asked = read_asked(path, exchange.body, headers.get("hetplan-at", "")) if is_text else None
            instance = int(headers.get("hetplan-instance", "0"))
        except ValueError as error:
            exchange.answer(400, as_error(str(error)))
            return
        counters, began = load.counters, monotonic()
        counters.arrived += 1

        def ended(well: bool) -> None:
            if well:
                counters.served += 1
                load.seconds.add(monotonic() - began)
            else:
                counters.failed += 1

        load.streams.stream(exchange, path, asked, instance, ended)

    def look(self, exchange: Exchange) -> None:
        """Answer how it is and what it counts."""
        path = exchange.path
        if path not in ("/healthz", "/metrics"):
            exchange.answer(404, b'{"why": "no such path"}')
        elif not exchange.allows("GET", "HEAD"):
            return
        elif path == "/healthz":
            said = {"ready": not self.draining, "content": self.config["content"], "pid": os.getpid(),
                    "refused": self.config.get("refused", "")}  # fmt: skip
            exchange.answer(503 if self.draining else 200, json.dumps(said).encode())
        else:
            loads = {name: asdict(load.counters) for name, load in self.loads.items()}
            if wants_prometheus(exchange.query, exchange.headers.get("accept", "")):
                exchange.answer(200, self._metrics(loads), kind=KIND)
                return
            exchange.answer(200, json.dumps({"since_s": monotonic() - self.since_s, "loads": loads}).encode())

    def _metrics(self, loads: Mapping[str, Mapping[str, float]]) -> bytes:
        page, unit = Page(), self.config["unit"]
        page.add(
            "hetplan_uptime_seconds", "gauge", "Seconds since the worker began.", [({}, monotonic() - self.since_s)]
        )
        said = {
            load["id"]: {"app": load["app"], "load": load["id"], "model": load["variant"]} for load in unit["loads"]
        }
        named = {name: ({"worker": unit["name"], **said[name]}, counts) for name, counts in loads.items()}
        load_metrics(page, named)
        page.add_times(
            "hetplan_service_seconds", "From the begin of a batch to its end.",
            [(labels, self.loads[name].seconds) for name, (labels, _) in named.items()],
        )  # fmt: skip
        return page.bytes()


class _Link:
    """The router's end of a connection: frames in, frames out; what one read brings is answered in few writes."""

    def __init__(self, worker: Worker, exchange: Exchange) -> None:
        self.worker, self.connection = worker, exchange.connection
        self._frames = FrameWriter(asyncio.get_running_loop())
        self._under_way: dict[int, Callable[[], None]] = {}
        exchange.connection.upgrade(exchange, PROTOCOL, FrameReader(self._take).feed)

    def _take(self, kind: int, content: bytes) -> None:
        now = monotonic()
        if kind == ASK:
            asked = read_ask(content)
            place = self.worker.lanes.get(asked.load)
            if place is None:
                self._finish(asked.query, Result(FAILED, b"", b"no such load"), 0.0, 0.0, 0, asked.load)
                return
            station, lane = place
            lane.rate_qps = asked.rate_qps
            try:
                query = read_query(asked.body)
            except BadQuery as error:
                self._finish(asked.query, Result(FAILED, b"", str(error).encode()), 0.0, 0.0, 0, asked.load)
                return
            finish = partial(self._finish, asked.query)
            deadline = now + asked.slack_ms / 1000.0 if asked.slack_ms < inf else inf
            give_up = now + asked.give_up_ms / 1000.0 if asked.give_up_ms < inf else inf
            job, load = Job(query, now, finish, deadline, give_up), self.worker.loads[asked.load]
            self._under_way[asked.query] = partial(station.cancel, lane, job, load)
            station.put(lane, job, load)
        elif kind == BATCH:
            self._batch(content, now)
        elif kind == CANCEL:
            cancel = self._under_way.get(read_cancel(content))
            if cancel is not None:
                cancel()
        elif kind == PING and self.connection.transport is not None:
            self.connection.transport.write(PING_FRAME)

    def _batch(self, content: bytes, now: float) -> None:
        name, items = read_batch(content)
        place = self.worker.lanes.get(name)
        jobs = []
        for number, _waited, slack_ms, body in items:
            finish = partial(self._finish, number)
            try:
                jobs.append(Job(read_query(body), now, finish, now + slack_ms / 1000.0))
            except BadQuery as error:
                finish(Result(FAILED, b"", str(error).encode()), 0.0, 0.0, 0, name)
        if place is None:
            for job in jobs:
                job.finish(Result(FAILED, b"", b"no such load"), 0.0, 0.0, 0, name)
        elif jobs:
            load = self.worker.loads[name]
            load.counters.arrived += len(jobs)
            place[0].serve(load, jobs)

    def _finish(self, query: int, result: Result, waited_s: float, took_s: float, batch: int, load: str) -> None:
        self._under_way.pop(query, None)
        said = Answered(
            query, result.outcome, 1e3 * waited_s, 1e3 * took_s, batch, load, result.children, result.body,
            result.step_outcome,
        )  # fmt: skip
        self._frames.write(self.connection.transport, done_frame(said))


def _report(file: int, said: Mapping[str, Any]) -> None:
    os.write(file, json.dumps(said).encode() + b"\n")
    os.close(file)


def model_of(
    load: Mapping[str, Any], *, cores: Sequence[int], serial: int = 0, beside: Sequence[int] = (), number: int = 0
) -> Model:
    """The model of a load of a unit; what it needs is imported here. `beside`: the GPUs that each load's engines take.

    This load is the one of `number`.
    """
    made = load["model"]
    servers, loop = load["instances"] * load["concurrency"], asyncio.get_running_loop()
    if made["kind"] == "sleep":
        law = ServiceLaw(made["law"], statistic=made["statistic"], times=made["times"], seed=made["seed"] + serial)
        return SleepModel(law, loop, outcomes=load.get("outcomes"), seed=made["seed"] + serial)
    if made["kind"] == "onnx":
        from hetplan.executor.serving.onnx_model import OnnxModel

        return OnnxModel(made, servers=servers, cores=cores, loop=loop)
    if made["kind"] == "tokens":
        from hetplan.executor.serving.embedded_engine import EmbeddedEngines

        return EmbeddedEngines(made, load["instances"], loop, load["variant"] or load["id"])
    apart: list[dict[str, str]] = [{}]
    if made["kind"] == "openai":
        apart = of_instances(beside, number, load["instances"])
    elif any(beside):
        made = apart_from_engines(made, beside, number)
    if made["kind"] in ("http", "api", "openai"):
        from hetplan.executor.serving.http_model import HttpModel

        return HttpModel(made, loop=loop, environments=apart)
    from hetplan.executor.serving.models import CommandModel

    return CommandModel(made, load=load["id"], knobs=load["knobs"], servers=servers, loop=loop)


def main(arguments: list[str]) -> None:
    """The process."""
    ordered = orders(arguments)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(Worker(ordered.config, ordered.token).run(ordered.report))


if __name__ == "__main__":
    main(sys.argv[1:])
