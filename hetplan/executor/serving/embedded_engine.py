"""The engine that keeps a law without computing, in a worker: OpenAI's protocol, streamed, one machine per instance.

An engine of role `prefill` answers with the first token alone, and says so in the head (`hetplan-kv`), which it sends
when the prompt is computed. The token follows when the KV is over the machine's link, which sends one after the other.
An engine of role `decode` takes requests with that field, and makes the other tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from time import monotonic
from typing import Any

from hetplan.executor.serving.http_server import Exchange
from hetplan.executor.serving.models import Done, refused
from hetplan.executor.serving.openai_words import KV, Asked, Pieces, as_error, tokens_made
from hetplan.executor.serving.query_body import Query
from hetplan.executor.serving.token_engine import Sequence as Tokens
from hetplan.executor.serving.token_engine import TokenEngine
from hetplan.serving.tokens import TokenLaw

__all__ = ["EmbeddedEngines"]

_LATE_S = 0.1
"""An iteration that follows at once begins when the one before was due to end, up to this long ago: what this process
woke up late, or took to write tokens, is not the machine's."""


class EmbeddedEngines:
    """The instances of one load."""

    def __init__(self, made: Mapping[str, Any], instances: int, loop: asyncio.AbstractEventLoop, name: str) -> None:
        law = TokenLaw.from_dict(made["law"])
        times = made["times"]
        self._law = law if times == 1.0 else replace(law.slower(times - 1.0), request_ms=times * law.request_ms)
        link_s = times * made.get("link_ms_per_token", 0.0) / 1e3
        self._machines = [_Machine(self._law, loop, link_s) for _ in range(instances)]
        self._numbers, self._name = count(), name

    @property
    def open(self) -> int:
        """How many requests are under way."""
        return sum(len(machine.answers) for machine in self._machines)

    async def prepare(self) -> None:
        """Nothing is loaded."""

    def run(self, queries: Sequence[Query], done: Done) -> None:
        """Queries of other protocols are refused."""
        done(refused(len(queries)))

    def close(self) -> None:
        """Nothing is held."""

    def stream(self, exchange: Exchange, path: str, asked: Asked, instance: int, ended: Callable[[bool], None]) -> None:
        """Answer a request; `ended` is called once, with whether it was answered whole."""
        tokens = Tokens(asked.input_tokens, tokens_made(asked), min(asked.cached_tokens, asked.input_tokens - 1))
        most = min(self._law.context_tokens or self._law.kv_tokens, self._law.kv_tokens)
        if tokens.input + tokens.output > most:
            why = f"{tokens.input} tokens in and {tokens.output} out are more than this engine's {most}"
            exchange.answer(400, as_error(why, code="context_length_exceeded"))
            ended(False)
            return
        number = exchange.headers.get(KV, "")
        if (self._law.role == "decode") != number.isdecimal():
            why = "an engine that only decodes takes requests that were prefilled elsewhere, and no other does"
            exchange.answer(400, as_error(why))
            ended(False)
            return
        if number:
            tokens.made, tokens.handed = 1, True
        pieces = Pieces(path, int(number) if number else next(self._numbers), asked, asked.model or self._name)
        self._machines[instance % len(self._machines)].put(tokens, _Answer(exchange, asked, pieces, ended))


class _Answer:
    """The answer to one request, as its tokens come."""

    __slots__ = ("asked", "begun", "ended", "exchange", "pieces")

    def __init__(self, exchange: Exchange, asked: Asked, pieces: Pieces, ended: Callable[[bool], None]) -> None:
        self.exchange, self.asked, self.pieces, self.ended = exchange, asked, pieces, ended
        self.begun = False

    def begin(self, fields: bytes = b"") -> None:
        """The head of an answer that comes piece by piece."""
        self.begun = True
        self.exchange.begin(200, kind=b"text/event-stream", fields=b"cache-control: no-store\r\n" + fields)

    def handed(self) -> None:
        """The KV of the prompt is over the link, and the first token with it; the others are made elsewhere."""
        if self.asked.stream:
            self.exchange.push(self.pieces.token)
        self.exchange.finish()

    def came(self, tokens: Tokens) -> None:
        """One more token."""
        last = tokens.made >= tokens.output
        if self.asked.stream:
            if not self.begun:
                self.begin()
            self.exchange.push(self.pieces.last(tokens.made) if last else self.pieces.token)
            if last:
                self.exchange.finish()
        elif last:
            self.exchange.answer(200, self.pieces.whole(tokens.made))


class _Machine:
    """One engine and its clock."""

    def __init__(self, law: TokenLaw, loop: asyncio.AbstractEventLoop, link_s: float) -> None:
        self.engine, self._loop = TokenEngine(law), loop
        self.answers: dict[Tokens, _Answer] = {}
        self._busy = False
        self._link_s, self._link_free_s = link_s, 0.0

    def put(self, tokens: Tokens, answer: _Answer) -> None:
        """A request comes, and is seen a little later: an idle machine begins at once then."""
        self.answers[tokens] = answer
        answer.exchange.on_gone = lambda: self._gone(tokens)
        if tokens.handed or not self.engine.law.request_ms:
            self._seen(tokens)
        else:
            tokens.state = "coming"
            self._loop.call_at(monotonic() + self.engine.law.request_ms / 1000.0, self._seen, tokens)

    def _seen(self, tokens: Tokens) -> None:
        if tokens.state == "done":
            return  # the client hung up
        tokens.state = "waiting"
        self.engine.put(tokens)
        if not self._busy:
            self._begin(monotonic())

    def _begin(self, now: float) -> None:
        took_ms = self.engine.begin()
        self._busy = took_ms is not None
        if took_ms is not None:
            due = now + took_ms / 1000.0
            self._loop.call_at(due, self._over, due)

    def _over(self, due: float) -> None:
        came = self.engine.end()
        self._begin(max(due, monotonic() - _LATE_S))
        for tokens in came:
            answer = self.answers.get(tokens)
            if answer is None:
                continue
            if tokens.made < tokens.output and tokens.state == "done":
                answer.begin(b"%b: %d\r\n" % (KV.encode(), answer.pieces.number))
                self._link_free_s = max(self._link_free_s, due) + self._link_s * tokens.input
                self._loop.call_at(self._link_free_s, self._handed, tokens)
                continue
            answer.came(tokens)
            if tokens.made >= tokens.output:
                del self.answers[tokens]
                answer.ended(True)

    def _handed(self, tokens: Tokens) -> None:
        answer = self.answers.pop(tokens, None)
        if answer is not None:
            answer.handed()
            answer.ended(True)

    def _gone(self, tokens: Tokens) -> None:
        """The client hung up: nothing more is made for it."""
        answer = self.answers.pop(tokens, None)
        if answer is not None:
            if tokens.state != "done":
                self.engine.cancel(tokens)
            answer.ended(False)
