"""The router's side of answers that come piece by piece: text by OpenAI's protocol, and streams of other servers.

A request goes to one instance (`streaming`), and its answer is passed on as it comes. One that only prefills answers
with the first token when its KV is over the link, and the request goes on to one that decodes. A client that hangs up
ends the request wherever it is. What is kept of a request is its body until its answer is whole, and of the answer what
its client has not taken yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil, inf
from random import Random
from time import monotonic
from typing import Any

from hetplan.executor.serving.applications import Application
from hetplan.executor.serving.http_client import Upstream, request_bytes
from hetplan.executor.serving.http_server import Exchange
from hetplan.executor.serving.links import Lane, Link
from hetplan.executor.serving.openai_words import CHAT, COMPLETIONS, KV, MODELS, Asked, as_error, models, read_asked
from hetplan.executor.serving.query_body import BadQuery
from hetplan.executor.serving.relay import Relay
from hetplan.executor.serving.streaming import Instance, Streaming, Work

__all__ = ["StreamRouter"]

_RETRY = b"retry-after: 1\r\n"
_PASSED = ("content-type", "accept", "hetplan-at", "x-request-id", "traceparent")


class StreamRouter:
    """All requests whose answers come piece by piece."""

    def __init__(self, loads: dict[str, dict[str, float]], token: str | None) -> None:
        self.loads, self.token = loads, token
        self.settings: Mapping[str, Any] = {}
        self.apps: dict[str, Streaming] = {}
        self.open: dict[Passing, None] = {}
        self._instances: dict[tuple[str, str, int], Instance] = {}

    # What it follows

    def follow(self, routes: Mapping[str, Any], apps: Mapping[str, Application], random: Random) -> None:
        """Follow these routes from now on; what is under way goes on where it is."""
        self.settings = routes["router"]
        loads = {load["id"]: load for unit in routes["units"] for load in unit["loads"]}
        before, self._instances, self.apps = self._instances, {}, {}
        for name, app in apps.items():
            able = [lane for lane in app.lanes if loads.get(lane.name, {}).get("streams")]
            made = [self._instance(lane, number, before) for lane in able for number in range(_count(loads, lane))]
            if made and app.steps.single:
                self.apps[name] = Streaming(app, made, loads, random)
        kept = {id(one.upstream) for one in self._instances.values()}
        for one in before.values():
            if id(one.upstream) not in kept:
                one.upstream.close()

    def _instance(self, lane: Lane, number: int, before: Mapping[tuple[str, str, int], Instance]) -> Instance:
        key = (lane.unit, lane.name, number)
        found = before.get(key)
        address, port = lane.link.address, lane.link.port
        if found is None or (found.upstream.host, found.upstream.port) != (address, port):
            found = Instance(lane, number, Upstream(address, port))
        found.lane, found.upstream.twice = lane, lane.retry
        self._instances[key] = found
        return found

    # A request comes in

    def takes(self, exchange: Exchange) -> bool:
        """Whether this is a request of OpenAI's protocol, or one that asks an application for a stream."""
        if not self.apps:
            return False
        if exchange.path in (CHAT, COMPLETIONS, MODELS):
            return True
        streams = "text/event-stream" in exchange.headers.get("accept", "")
        return streams and exchange.path[4:].lower() in self.apps

    def handle(self, exchange: Exchange) -> None:
        """Answer such a request, or set it on its way."""
        path = exchange.path
        if path == MODELS:
            if exchange.allows("GET", "HEAD"):
                exchange.answer(200, models(self._names()))
            return
        if not exchange.allows("POST"):
            return
        asked, variant = None, None
        try:
            if path in (CHAT, COMPLETIONS):
                asked = read_asked(path, exchange.body, exchange.headers.get("hetplan-at", ""))
                found = self._named(asked.model)
                if found is None:
                    why = f"no model {asked.model!r} here; there are {', '.join(self._names())}"
                    exchange.answer(404, as_error(why, code="model_not_found"))
                    return
                streaming, variant = found
            else:
                streaming = self.apps[path[4:].lower()]
            until_s = _until(exchange)
        except BadQuery as error:
            exchange.answer(400, as_error(str(error)))
            return
        app = streaming.app
        app.tally.arrived += 1
        app.monitor.arrived(monotonic())
        if len(self.open) >= self.settings["most_waiting"]:
            app.tally.by_outcome["lost"] += 1
            exchange.answer(503, as_error("too many requests are under way", kind="server_error"), fields=_RETRY)
            return
        if streaming.full(variant):
            app.tally.by_outcome["shed"] += 1
            exchange.answer(503, as_error("every replica has all it may take", kind="server_error"), fields=_RETRY)
            return
        if streaming.hopeless(asked, variant):
            app.tally.by_outcome["shed"] += 1
            said = as_error("too many prompts are before it to begin in time", kind="server_error")
            exchange.answer(503, said, fields=b"retry-after: %d\r\n" % ceil(streaming.ttft_ms / 1e3))
            return
        Passing(self, exchange, streaming, asked, variant, until_s).start()

    def _names(self) -> Iterable[str]:
        named = [(name, one.lane.variant) for name, app in self.apps.items() for one in app.instances]
        return list(dict.fromkeys([name for name, _ in named] + [variant for _, variant in named if variant]))

    def _named(self, model: str | None) -> tuple[Streaming, str | None] | None:
        """The application that a request's model names: by its own name, by a variant's, or the only one."""
        if model is None:
            return (next(iter(self.apps.values())), None) if len(self.apps) == 1 else None
        if model in self.apps:
            return self.apps[model], None
        able = [app for app in self.apps.values() if any(one.lane.variant == model for one in app.instances)]
        return (able[0], model) if len(able) == 1 else None

    # While they are under way

    def time_out(self, now: float) -> None:
        """End the requests that have waited too long for more of their answer."""
        limit = now - self.settings.get("timeout_s", inf)
        for one in [one for one in self.open if one.heard_s < limit or one.until_s < now]:
            one.time_out()

    def frozen(self, link: Link) -> None:
        """Try elsewhere what a silent worker has not begun to answer."""
        for one in [one for one in self.open if one.instance.lane.link is link and not one.begun]:
            one.cancel()
            one.lost("the worker froze")


class Passing(Relay):
    """One request and its answer."""

    def __init__(
        self, router: StreamRouter, exchange: Exchange, streaming: Streaming, asked: Asked | None, variant: str | None,
        until_s: float,
    ) -> None:  # fmt: skip
        super().__init__(exchange, self._over)
        self.router, self.streaming, self.asked, self.variant = router, streaming, asked, variant
        self.came_s = self.heard_s = monotonic()
        self.until_s = self.came_s + until_s
        self.first_s = 0.0
        self.pieces = 0
        self.tried: list[Instance] = []
        self.work = Work()
        self.instance: Instance
        self._why = ""
        self._kv = ""
        """The number of an answer whose first token a machine makes that only prefills."""
        self._decodes = False
        """Whether that has been handed over to a machine that decodes."""
        self._headed = False
        """Whether the instance that has it now has begun to answer."""

    def start(self) -> None:
        """Send it to an instance."""
        self.streaming.app.tally.under_way += 1
        self.router.open[self] = None
        if not self._try():
            self.lost("no worker is up")

    def _try(self) -> bool:
        found = self._next()
        if found is None:
            return False
        self.instance, self.work = found
        self._headed = False
        self._kv = self._kv if self._decodes else ""
        self.instance.work_ms += self.work.sooner_ms + self.work.later_ms
        self.instance.ahead_ms += self.work.sooner_ms
        self.instance.under_way += 1
        self.instance.lane.link.streams += 1
        self.tried.append(self.instance)
        lane, exchange, token = self.instance.lane, self.exchange, self.router.token
        self.router.loads[lane.name]["arrived"] += 1
        fields = [(name, exchange.headers[name]) for name in _PASSED if name in exchange.headers]
        fields += [("hetplan-load", lane.name), ("hetplan-instance", str(self.instance.number))]
        fields += [("authorization", f"Bearer {token}")] if token else []
        fields += [(KV, self._kv)] if self._decodes else []
        data = request_bytes("POST", exchange.path, "worker", fields, exchange.body)
        self.send(self.instance.upstream, data)
        return True

    def _next(self) -> tuple[Instance, Work] | None:
        return self.streaming.choose(self.asked, self.variant, self.tried, decodes=self._decodes)

    def _less_work(self, left: Work) -> None:
        """Of what this adds to the instance's work, no more than this is left."""
        done_ms = self.work.sooner_ms + self.work.later_ms - left.sooner_ms - left.later_ms
        self.instance.work_ms = max(self.instance.work_ms - done_ms, 0.0)
        self.instance.ahead_ms = max(self.instance.ahead_ms - self.work.sooner_ms + left.sooner_ms, 0.0)
        self.work = left

    def _let_go(self) -> None:
        """The instance has this no more."""
        self._less_work(Work())
        self.instance.under_way -= 1
        self.instance.lane.link.streams -= 1

    def head(self, status: int, headers: dict[str, str]) -> None:
        """Pass it on; where the worker has no room or is stopping, another is tried."""
        if status == 503 and self._may_retry:
            self.cancel()
            self.lost("the worker is stopping")
            return
        self._headed = True
        if KV in headers and not self._decodes:
            # The prompt is computed. What is answered comes with the KV, or from the machine that decodes.
            self._kv, self.variant = headers[KV], self.instance.lane.variant
            self._less_work(Work())
        elif not self.begun:
            super().head(status, headers)
        elif status >= 400:
            self.cancel()
            self.lost("the machine that decodes refused it")

    def fields(self, headers: dict[str, str]) -> bytes:
        """Which load and worker answer."""
        lane = self.instance.lane
        return super().fields(headers) + f"hetplan-load: {lane.name}\r\nhetplan-unit: {lane.unit}\r\n".encode()

    def piece(self, data: bytes) -> None:
        """Pass it on; the first one counts as the first token."""
        self.heard_s = monotonic()
        if not self.first_s:
            self.first_s = self.heard_s
            self._less_work(self.work._replace(sooner_ms=0.0))
        if not self.begun:
            super().head(200, {"content-type": "text/event-stream", "cache-control": "no-store"})
        self.pieces += data.count(b"data: ")
        super().piece(data)

    def end(self) -> None:
        """It is whole, or its KV is over the link and it goes on where it is decoded."""
        if not self._kv or self._decodes:
            super().end()
            return
        self._let_go()
        self._count_served(self.instance)
        self._decodes, self.tried = True, []
        if not self._try():
            self.lost("no machine that decodes is up")

    @property
    def _may_retry(self) -> bool:
        may = len(self.tried) <= self.router.settings["retries"] and self.instance.lane.retry
        return may and self._next() is not None

    def lost(self, why: str) -> None:
        """The worker is gone.

        Another is tried as long as it sent nothing that a client has; else the client sees that it breaks off. The KV
        of a prompt is there until the machine that decodes has begun.
        """
        if self.tried and not (self._headed if self._decodes else self.begun):
            again = self._may_retry
            self._let_go()
            self.router.loads[self.instance.lane.name]["failed"] += 1
            if again and self._try():
                return
            self.tried.clear()
        self._why = "lost"
        super().lost(why)

    def time_out(self) -> None:
        """No more came in time."""
        self.cancel()
        self._why = "lost"
        if self.begun:
            self.exchange.push(b"data: " + as_error("no more came in time", kind="timeout") + b"\n\n")
            self.exchange.cut()
        else:
            self.exchange.answer(503, as_error("no answer in time", kind="timeout"), fields=_RETRY)
        self._over(False)

    def _over(self, well: bool) -> None:
        """It has ended, in whatever way."""
        if self not in self.router.open:
            return
        del self.router.open[self]
        now, tally = monotonic(), self.streaming.app.tally
        if self.tried:
            self._let_go()
            if well:
                self._count_served(self.instance)
            else:
                self.router.loads[self.instance.lane.name]["failed"] += 1
        tally.under_way -= 1
        outcome = "served" if well else self._why or ("failed" if self.begun and self.status >= 400 else "left")
        tally.by_outcome[outcome] = tally.by_outcome.get(outcome, 0) + 1
        if well:
            tally.seconds.add(now - self.came_s)
            tally.first_s.add((self.first_s or now) - self.came_s)
            if self.pieces > 2:
                tally.per_token_s.add((now - self.first_s) / (self.pieces - 2))

    def _count_served(self, by: Instance) -> None:
        counts, now = self.router.loads[by.lane.name], monotonic()
        counts["served"] += 1
        counts["batches"] += 1
        counts["busy_ms"] += 1e3 * (now - (self.first_s or self.came_s))
        counts["queue_ms"] += 1e3 * ((self.first_s or now) - self.came_s)


def _count(loads: Mapping[str, Mapping[str, Any]], lane: Lane) -> int:
    return int(loads[lane.name]["instances"]) if loads[lane.name].get("tokens") else 1


def _until(exchange: Exchange) -> float:
    """How many seconds the client gives the whole answer (`hetplan-timeout: 30`)."""
    said = exchange.headers.get("hetplan-timeout")
    if said is None:
        return inf
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < inf:
        raise BadQuery("hetplan-timeout is a number of seconds above 0")
    return seconds
