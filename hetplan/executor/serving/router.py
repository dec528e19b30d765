"""The router process: `python -m hetplan.executor.serving.router ROUTES --report FD --parent PID [--listener FD]`.

Queries come in over HTTP (`POST /v1/{app}`), go to workers as the plan's dispatch says, and come back as one answer.
SIGHUP has it read its routes again; queries under way finish where they are. SIGTERM lets it finish what it has: it
takes no more connections, and closes each after its next answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count, takewhile
from math import inf
from pathlib import Path
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any

from hetplan.dispatch.decision_kernels import makes_up
from hetplan.executor.secrets import is_loopback
from hetplan.executor.serving.applications import Application, Asks
from hetplan.executor.serving.choosers import NoWorker
from hetplan.executor.serving.frames import APART_S, FAILED, SERVED, Answered
from hetplan.executor.serving.http_server import Exchange, listen, listen_for_keeper
from hetplan.executor.serving.law import OffTable
from hetplan.executor.serving.links import Lane, Link
from hetplan.executor.serving.metrics import wants_prometheus
from hetplan.executor.serving.process import ask_for_short_turns, orders, spare_the_collector
from hetplan.executor.serving.query_body import BadQuery, packed, read_at, read_query
from hetplan.executor.serving.query_tree import Hop, QueryState, Task, fan_out, joined_jobs, joined_quality
from hetplan.executor.serving.replies import Counted, reply

if TYPE_CHECKING:
    from hetplan.executor.serving.open_inference import Inference
    from hetplan.executor.serving.stream_router import StreamRouter
    from hetplan.serving.system import Edge

__all__ = ["Router", "main"]


class Router:
    """Applications, the lanes that serve them, and the queries under way."""

    def __init__(self, routes_path: Path, token: str | None = None) -> None:
        self.routes_path, self.token = routes_path, token
        self.routes: Mapping[str, Any] = {}
        self.apps: dict[str, Application] = {}
        self.links: dict[tuple[str, str, int], Link] = {}
        self.lanes: dict[tuple[str, str], Lane] = {}
        self.loads: dict[str, dict[str, float]] = {}
        self.under_way = 0
        self.streams: StreamRouter | None = None
        self.draining = False
        self.refused = ""
        self.since_s = monotonic()
        self._numbers = count()
        self._decided_s = 0.0
        self._random = Random(0)
        self._loop: asyncio.AbstractEventLoop
        self._queries: dict[int, QueryState] = {}
        self._changing = asyncio.Lock()
        self._forgetting = False
        self._reading: asyncio.Task[None] | None = None

    async def run(self, report: int, listener: socket.socket | None = None) -> None:
        """Serve until it is to stop, on this socket or on the address of its routes."""
        self._loop = asyncio.get_running_loop()
        try:
            self.follow(json.loads(self.routes_path.read_text()))
            await self._until_linked(list(self.links.values()), _FIRST_LINK_LIMIT_S)
            settings = self.routes["router"]
            address = (settings["bind"], settings["port"])
            server = await listen(self.handle, *address, sock=listener, token=self._guard)
            probe = await listen_for_keeper(self.look)
        except (OSError, ValueError, KeyError) as error:
            os.write(report, json.dumps({"failed": str(error)}).encode() + b"\n")
            return
        spare_the_collector()
        ask_for_short_turns()
        stopped = asyncio.Event()
        self._loop.add_signal_handler(signal.SIGTERM, stopped.set)
        self._loop.add_signal_handler(signal.SIGHUP, self._read_again)
        os.write(report, json.dumps({"port": server.port, "probe": probe.port}).encode() + b"\n")
        os.close(report)
        while not stopped.is_set():
            try:
                await asyncio.wait_for(stopped.wait(), _LOOK_S)
            except TimeoutError:
                self._time_out()
                for app in self.apps.values():
                    app.look_through()
                self._cut_frozen()
        self.draining = True
        server.drain()
        while self.under_way or server.connections or (self.streams is not None and self.streams.open):
            await asyncio.sleep(0.01)
            self._time_out()
        probe.close()

    @property
    def _guard(self) -> str | None:
        """The token that its own clients need: on this machine alone they need none."""
        return None if is_loopback(self.routes["router"]["bind"]) else self.token

    @property
    def ready(self) -> bool:
        """Whether queries are welcome."""
        return not self.draining

    # What it follows

    def follow(self, routes: Mapping[str, Any]) -> None:
        """Follow these routes from now on."""
        self._random = Random(routes["router"]["seed"])
        lanes: dict[tuple[str, str], Lane] = {}
        links: dict[tuple[str, str, int], Link] = {}
        for unit in routes["units"]:
            link = self._link(unit)
            links[link.name, link.address, link.port] = link
            for load in unit["loads"]:
                lane = self.lanes.get((unit["name"], load["id"]))
                if lane is None or lane.link is not link:
                    lane = Lane(link, unit, load)
                else:
                    lane.standby = unit["standby"]
                    lane.update(load)
                lanes[unit["name"], load["id"]] = lane
                self.loads.setdefault(load["id"], dict.fromkeys(_PER_LOAD, 0.0))
        self.lanes, self.routes = lanes, routes
        policies = {unit["worker"]: unit["policies"] for unit in routes["units"]}
        asks = Asks(self._send, self._give_up, self._soon)
        old, self.apps = self.apps, {}
        for name, said in routes["apps"].items():
            known = old.get(name)
            self.apps[name] = Application(name, said, list(lanes.values()), policies, self._random, asks, known)
        for query in self._queries.values():
            now = self.apps.get(query.app.name)
            if now is not None and now.entry["nodes"] == query.app.entry["nodes"]:
                query.app = now
        self._move_waiting(old)
        if self.streams is None and any(load.get("streams") for unit in routes["units"] for load in unit["loads"]):
            # Imported only where something streams: it brings the kernels of the rules for text.
            from hetplan.executor.serving.stream_router import StreamRouter

            self.streams = StreamRouter(self.loads, self.token)
        if self.streams is not None:
            self.streams.follow(routes, self.apps, self._random)
        before, self.links = self.links, links
        for key, link in before.items():
            if key not in links:
                link.close()

    def _move_waiting(self, old: Mapping[str, Application]) -> None:
        for name, app in old.items():
            now = self.apps.get(name)
            for chooser in app.choosers.values():
                for task in chooser.left():
                    if now is None or task.node not in now.steps.nodes:
                        self._end(task, "lost", "the plan in force has no such step")
                    else:
                        task.query.app = now
                        self._place(task)

    def _read_again(self) -> None:
        self._reading = self._loop.create_task(self._take_over())

    async def _take_over(self) -> None:
        """Follow the routes of the file once its workers can be reached; until then those in force hold."""
        async with self._changing:
            try:
                routes = json.loads(self.routes_path.read_text())
                await self._until_linked([self._link(unit) for unit in routes["units"]], _LINK_LIMIT_S)
                self.follow(routes)
                self.refused = ""
            except (OSError, ValueError, KeyError) as error:
                self.refused = f"{type(error).__name__}: {error}"

    @staticmethod
    async def _until_linked(links: Sequence[Link], limit_s: float) -> None:
        until = monotonic() + limit_s
        while not all(link.ready for link in links) and monotonic() < until:
            await asyncio.sleep(0.005)

    def _link(self, unit: Mapping[str, Any]) -> Link:
        """The link to a unit, opened where there is none yet."""
        key = (unit["name"], unit["address"], unit["port"])
        if key not in self.links:
            self.links[key] = Link(
                *key,
                token=self.token,
                group=unit.get("group", ""),
                on_done=self._done,
                on_ready=self._changed,
                on_lost=self._lost,
            )
        return self.links[key]

    def _changed(self, link: Link) -> None:
        """A worker came or went."""
        for app in self.apps.values():
            if any(lane.link is link for lane in app.lanes):
                app.arrange()

    # A query comes in

    def handle(self, exchange: Exchange) -> None:
        """Answer one HTTP request, or set it on its way."""
        path = exchange.path
        if self.streams is not None and self.streams.takes(exchange):
            self.streams.handle(exchange)
        elif path.startswith("/v1/"):
            if exchange.allows("POST"):
                self._arrive(exchange, self.apps.get(path[4:].lower()))
        elif path.startswith("/v2"):
            from hetplan.executor.serving.open_inference import answer_v2

            answer_v2(exchange, self.apps, lambda one, name: self._arrive(one, self.apps[name]), ready=self.ready)
        else:
            self.look(exchange)

    def look(self, exchange: Exchange) -> None:
        """Answer how it is and what it counts."""
        path = exchange.path
        if path not in ("/healthz", "/metrics"):
            exchange.answer(404, b'{"why": "no such path"}')
        elif not exchange.allows("GET", "HEAD"):
            return
        elif path == "/healthz":
            ready = {name: link.ready for (name, _, _), link in self.links.items()}
            said = {"ready": self.ready, "revision": self.routes["revision"], "refused": self.refused,
                    "units": ready, "pid": os.getpid()}  # fmt: skip
            exchange.answer(200 if self.ready else 503, json.dumps(said).encode())
        else:
            counted = Counted(
                monotonic() - self.since_s, self.routes["revision"], self.apps, self.loads, self.lanes.values()
            )
            asked = wants_prometheus(exchange.query, exchange.headers.get("accept", ""))
            kind, body = counted.prometheus() if asked else counted.json()
            exchange.answer(200, body, kind=kind)

    def _arrive(self, exchange: Exchange | Inference, app: Application | None) -> None:
        if app is None:
            exchange.answer(404, b'{"why": "the plan has no such application"}')
            return
        now = monotonic()
        headers, body = exchange.headers, exchange.body
        try:
            if body and headers.get("content-type", "application/json") != "application/json":
                body = packed(read_at(headers.get("hetplan-at", "")), body)
            at = read_query(body).at
        except BadQuery as error:
            exchange.answer(400, json.dumps({"why": str(error)}).encode())
            return
        app.tally.arrived += 1
        app.monitor.arrived(now)
        deadline = now + app.slo_s
        brief = headers.get("hetplan-reply") == "brief"
        query = QueryState(app, exchange, at, tuple(at.items()), now, deadline, brief)
        if app.steps.joins:
            query.meetings = {}
        if self.under_way >= self.routes["router"]["most_waiting"]:
            app.tally.by_outcome["lost"] += 1
            reply(query, "lost", now, "too many queries are under way")
            return
        why = app.admission.refusal(query)
        if why:
            app.tally.by_outcome["shed"] += 1
            reply(query, "shed", now, why)
            return
        self.under_way += 1
        app.tally.under_way += 1
        self._queries[id(query)] = query
        exchange.on_gone = partial(self._gone, query)
        # The query holds itself open until all its entries are made: one that ends at once must not end the query.
        query.open = len(app.steps.entries)
        for node in app.steps.entries:
            quality = 1.0 if app.product else 0.0
            if query.meetings is not None:
                query.meeting(node)[0] += 1.0
            self._place(Task(query, node, body, quality=quality, entered_s=now))

    # On its way

    def _place(self, task: Task) -> None:
        app = task.query.app
        task.lane = None
        try:
            lane = app.choosers[task.node].place(task)
        except NoWorker as error:
            self._end(task, "dropped" if "unserved" in str(error) else "lost", str(error))
            return
        except OffTable as error:
            self._end(task, "failed", str(error))
            return
        app.admission.enter(task)
        if lane is None:
            return
        if app.admission.active and not app.admission.takes(task, lane, app.give_up_s(task, task.entered_s)):
            app.choosers[task.node].finished(lane, task)
            outcome = "dropped" if task.path or task.attempts else "shed"
            self._end(task, outcome, "too many are before it to be in time")
            return
        self._ask(task, lane)

    def _soon(self, decide: Callable[[], None]) -> None:
        """Decide at once where nothing was decided just now, else on all that this turn of the event loop brings.

        To wait for its end costs a lone query more than the decision.
        """
        now = monotonic()
        if now - self._decided_s > APART_S:
            self._decided_s = now
            decide()
        else:
            self._loop.call_soon(decide)

    def _ask(self, task: Task, lane: Lane) -> None:
        now = monotonic()
        query = task.query
        app: Application = query.app
        give_up_s = inf
        if app.late != "serve":
            # The worker knows how long it takes by the profile, not how much longer it took to answer.
            took_s = app.admission.time_s(task.node, query, lane, 1)
            give_up_s = app.give_up_s(task, now) + lane.mean_s(query.at, 1) - took_s
        lane.bound += 1
        task.lane, task.asked_s = lane, now
        self.loads[lane.name]["arrived"] += 1
        slack_ms = 1e3 * (query.deadline_s - now)
        rate_qps = app.rate_qps(lane) if app.tells_rate else 0.0
        times = (1e3 * (now - task.entered_s), slack_ms, 1e3 * (give_up_s - now), rate_qps)
        lane.link.ask(next(self._numbers) & 0xFFFFFFFF, task, lane, times)

    def _send(self, lane: Lane, tasks: list[Task]) -> None:
        """Have a worker serve these together, at once."""
        if not lane.link.ready:
            for task in tasks:
                self._place(task)
            return
        if len(tasks) == 1 and lane.max_batch == 1 and tasks[0].query.app.late == "serve":
            self._ask(tasks[0], lane)  # the same, by less work
            return
        now = monotonic()
        lane.bound += len(tasks)
        self.loads[lane.name]["arrived"] += len(tasks)
        for task in tasks:
            task.lane, task.asked_s = lane, now
        lane.link.batch(lane, [(next(self._numbers) & 0xFFFFFFFF, task) for task in tasks])

    def _done(self, link: Link, answered: Answered) -> None:
        task = link.pending.pop(answered.query, None)
        if task is None:
            return
        lane: Lane = task.lane
        lane.bound -= 1
        query = task.query
        app: Application = query.app
        self._left_line(task, lane)
        app.admission.leave(task)
        chooser = app.choosers.get(task.node)
        if chooser is not None:
            chooser.finished(lane, task)
        # Under a policy the worker chooses by which of its loads a query is served.
        served_by = self.lanes.get((lane.unit, answered.load), lane) if answered.load != lane.name else lane
        counts = self.loads[served_by.name]
        if served_by is not lane:
            self.loads[lane.name]["arrived"] -= 1
            counts["arrived"] += 1
        counts["queue_ms"] += answered.queue_ms
        if app.admission.active and answered.outcome == SERVED:
            took_s = monotonic() - task.asked_s - answered.queue_ms / 1e3
            served_by.took(query.at, answered.batch, took_s, most_s=app.given_up_s)
        if answered.outcome != SERVED:
            failed = answered.outcome == FAILED
            counts["failed" if failed else "dropped"] += 1
            self._end(task, "failed" if failed else "dropped", answered.body.decode())
            return
        if served_by.outcomes and answered.step_outcome not in served_by.outcomes:
            counts["failed"] += 1
            self._end(task, "failed", _no_outcome(served_by, answered.step_outcome))
            return
        counts["served"] += 1
        if query.open <= 0:
            return  # given back to its client long ago
        counts["batches"] += 1.0 / answered.batch
        counts["busy_ms"] += answered.service_ms / answered.batch
        if not query.brief:
            query.hops.append(
                Hop(task.node, served_by.name, served_by.variant, lane.unit, 1e3 * (task.asked_s - task.entered_s),
                    answered.queue_ms, answered.service_ms, answered.batch, _outcome_of(served_by, answered))
            )  # fmt: skip
        try:
            self._finish(task, served_by, answered)
        except Exception as error:  # what a model said follows cannot be read: that ends this query, not the link
            self._report(error, "an answer was not read")
            if id(query) in self._queries:
                query.open = 1
                self._end(task, "failed", f"the answer of {served_by.name} cannot be read: {error}"[:_MOST_WHY])

    def _finish(self, task: Task, lane: Lane, answered: Answered) -> None:
        """A step is done: its quality counts, and what follows is sent on."""
        query = task.query
        app: Application = query.app
        node = app.steps.nodes.get(task.node)
        if node is None:
            self._end(task, "lost", "the plan in force has no such step")
            return
        query.judged = query.judged or lane.judged
        if app.steps.alone and not app.paths:
            # One step that nothing follows, whatever its answer comes to.
            query.quality += task.weight * (task.quality * lane.quality if app.product else task.quality + lane.quality)
            if not query.brief and answered.body:
                query.outputs.append((task.node, answered.body))
            self._close(query)
            return
        task.quality = task.quality * lane.quality if app.product else task.quality + lane.quality
        if query.meetings is not None:
            meeting = query.meeting(task.node)
            meeting[0] -= 1.0
            meeting[1] += 1.0
            meeting[2] += lane.quality
        outcome = _outcome_of(lane, answered)
        mark = f":{outcome}" if outcome else ""
        task.steps = (*task.steps, f"{task.node}={lane.variant}{mark}")
        task.weight *= node.worth.get(outcome, 1.0)
        edges = node.stage.followed(outcome)
        if not edges:
            measured = app.paths.get("/".join(task.steps)) if app.paths else None
            query.judged = query.judged or measured is not None
            query.quality += task.weight * (task.quality if measured is None else measured)
            if not query.brief and answered.body:
                query.outputs.append((task.node, answered.body))
        else:
            task.path = (*task.path, lane.name)
            task.outcomes = (*task.outcomes, (task.node, outcome)) if outcome else task.outcomes
            self._spawn(task, edges, lane, answered)
        if query.meetings is not None:
            self._join(query, task.body)
        self._close(query)

    def _spawn(self, task: Task, edges: Sequence[Edge], lane: Lane, answered: Answered) -> None:
        """Send on what follows a job along these edges."""
        query = task.query
        app: Application = query.app
        children: Mapping[str, Any] = json.loads(answered.children) if answered.children else {}
        now = monotonic()
        behind_s = now - task.entered_s - app.budget_s.get(task.node, inf)
        for edge in edges:
            given = children.get(edge.to)
            mean = edge.sent_by(lane.variant)
            bodies: list[bytes] = []
            if isinstance(given, list):
                bodies = [_child_body(item, query) for item in given]
                number = len(bodies)
            else:
                number = int(given) if given is not None else fan_out(mean, self._random)
            seen = app.tally.edges.setdefault(f"{lane.variant}/{edge.to}", [0, 0])
            seen[0] += 1
            seen[1] += number
            if len(app.steps.nodes[edge.to].parents) > 1:
                query.meeting(edge.to)[3] += number
                continue
            reached = min(1.0, mean) if given is None else 1.0
            for place in range(number):
                body = bodies[place] if bodies else task.body
                weight = task.weight / (number * reached)
                child = Task(query, edge.to, body, task.path, task.steps, task.outcomes, weight, task.quality, now)
                query.open += 1
                if query.meetings is not None:
                    query.meeting(edge.to)[0] += 1.0
                if app.late == "reroute" and behind_s > 0.0:
                    self._place_late(child, 1e3 * behind_s)
                else:
                    self._place(child)

    def _place_late(self, task: Task, behind_ms: float) -> None:
        """Where it was going if that makes up for its delay, else to a backup, else nowhere."""
        app: Application = task.query.app
        longest_ms, _ = app.longest_ms(task.node, task)
        try:
            lane = app.choosers[task.node].place(task)
        except (NoWorker, OffTable) as error:
            self._end(task, "lost", str(error))
            return
        if lane is None or makes_up(longest_ms, 1e3 * lane.mean_s(task.query.at, lane.max_batch), behind_ms):
            if lane is not None:
                self._ask(task, lane)
            return
        backup = app.backups[task.node].take(
            monotonic(), late_ms=behind_ms, exec_ms=longest_ms, draw=self._random.random()
        )
        others = [one for one in app.lanes_of(task.node) if one.name == backup and one.open]
        if not others:
            self._end(task, "dropped", "late, and no backup has room")
            return
        self._ask(task, min(others, key=lambda one: one.bound))

    def _join(self, query: QueryState, body: bytes) -> None:
        app: Application = query.app
        for node, number in joined_jobs(query, app.steps):
            for _ in range(number):
                query.open += 1
                query.meeting(node)[0] += 1.0
                quality = 1.0 if app.product else 0.0
                self._place(Task(query, node, body, weight=1.0 / number, quality=quality, entered_s=monotonic()))

    # The end

    def _give_up(self, task: Task, why: str) -> None:
        self._end(task, "dropped", why)

    def _end(self, task: Task, outcome: str, why: str) -> None:
        """A job ends without an answer, and its query with it (its other jobs go on: they are under way)."""
        query = task.query
        query.app.admission.leave(task)
        if query.open <= 0:
            return  # given back to its client long ago, or that has hung up
        if not query.outcome:
            query.outcome, query.why = outcome, why
        if query.meetings is not None:
            query.meeting(task.node)[0] -= 1.0
            self._join(query, task.body)
        self._close(query)

    def _close(self, query: QueryState) -> None:
        query.open -= 1
        if query.open > 0 or self._queries.pop(id(query), None) is None:
            return
        now = monotonic()
        app: Application = query.app
        query.exchange.on_gone = None  # else each would hold the other in memory
        if query.meetings is not None:
            query.quality = joined_quality(query, app.product)
        else:
            query.quality /= app.steps.sinks
        outcome = query.outcome or ("late" if now > query.deadline_s else "served")
        self.under_way -= 1
        app.tally.under_way -= 1
        app.tally.by_outcome[outcome] += 1
        if outcome in ("served", "late"):
            app.tally.seconds.add(now - query.arrived_s)
        try:
            reply(query, outcome, now, query.why)
        except Exception as error:
            # One answer that cannot be written must not break the link by which all others come.
            self._report(error, "an answer was not written")
            query.exchange.answer(500, b'{"why": "an error of the server"}')

    def _report(self, error: Exception, what: str) -> None:
        self._loop.call_exception_handler({"message": what, "exception": error})

    def _lost(self, link: Link, lost: list[tuple[int, Task]]) -> None:
        """A worker died: what it had is sent again, as often as allowed."""
        for lane in self.lanes.values():
            if lane.link is link:
                lane.bound, lane.backlog_s = 0, 0.0
        link.backlog_s = 0.0
        self._changed(link)
        for _, task in lost:
            task.attempts += 1
            task.line_s = 0.0
            if task.query.open <= 0:
                task.query.app.admission.leave(task)
            elif task.attempts > self.routes["router"]["retries"] or not task.lane.retry:
                self._end(task, "lost", "the worker died or froze")
            else:
                self._place(task)

    def _cut_frozen(self) -> None:
        """What a silent worker has is tried at another; where there is no other it is waited for."""
        now, limit_s = monotonic(), self.routes["router"].get("frozen_s", 1.0)
        for link in self.links.values():
            if link.silent_s(now) < limit_s:
                continue
            if self.streams is not None:
                self.streams.frozen(link)
            had = {(task.lane.app, task.lane.node) for task in link.pending.values()}
            others = {(lane.app, lane.node) for lane in self.lanes.values() if lane.link is not link and lane.open}
            if had & others:
                link.cut()

    def _time_out(self) -> None:
        """Answer the queries that have been under way for too long; what still comes of them is thrown away."""
        if self.streams is not None:
            self.streams.time_out(monotonic())
        limit = monotonic() - self.routes["router"]["timeout_s"]
        # They are in the order in which they came.
        for query in list(takewhile(lambda query: query.arrived_s < limit, self._queries.values())):
            self._leave(query, "lost", "no answer in time")

    def _gone(self, query: QueryState) -> None:
        if id(query) in self._queries:
            self._leave(query, "left", "its client has hung up")

    def _leave(self, query: QueryState, outcome: str, why: str) -> None:
        """It is over, wherever its jobs are: those that wait leave their queues, once in each turn of the loop."""
        query.outcome, query.why, query.open = outcome, why, 1
        self._close(query)
        if not self._forgetting:
            self._forgetting = True
            self._loop.call_soon(self._forget)

    def _forget(self) -> None:
        self._forgetting = False
        for app in self.apps.values():
            for queue in [queue for chooser in app.choosers.values() for queue in chooser.queues]:
                for _ in range(len(queue)):
                    task = queue.popleft()
                    if task.query.open > 0:
                        queue.append(task)
                    else:
                        app.admission.leave(task)
        for link in self.links.values():
            link.cancel_left()

    @staticmethod
    def _left_line(task: Task, lane: Lane) -> None:
        if task.line_s:
            left_s = lane.line.backlog_s - task.line_s
            lane.line.backlog_s = left_s if left_s > _HAIR_S else 0.0
            task.line_s = 0.0


_LOOK_S = 0.1
_HAIR_S = 1e-9
"""Below this a sum of times that were added and taken away again is nothing."""
_MOST_WHY = 300
_FIRST_LINK_LIMIT_S, _LINK_LIMIT_S = 0.5, 5.0
"""How long a new router, and new routes, wait for workers; one that is not linked by then is left out until it is."""

_PER_LOAD = ("arrived", "served", "dropped", "failed", "batches", "busy_ms", "queue_ms")


def _outcome_of(lane: Lane, answered: Answered) -> str:
    """What an answer came to, where the plan knows outcomes of this load."""
    return answered.step_outcome if lane.outcomes else ""


def _no_outcome(lane: Lane, said: str) -> str:
    named = f"the outcome {said!r}" if said else "no outcome"
    return f"the answer of {lane.name} names {named}; the plan knows {', '.join(lane.outcomes)}"


def _child_body(item: Any, query: QueryState) -> bytes:
    """What a model said of one query that follows, as the body of that query."""
    said = item if isinstance(item, dict) and ("inputs" in item or "at" in item) else {"inputs": item}
    return json.dumps({"at": query.at, **said}).encode()


def main(arguments: list[str]) -> None:
    """The process."""
    ordered = orders(arguments)
    asyncio.run(Router(ordered.config, ordered.token).run(ordered.report, ordered.listener))


if __name__ == "__main__":
    main(sys.argv[1:])
