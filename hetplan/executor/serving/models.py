"""What a worker runs its batches on: prepared once, then given batches, one per free server.

`SleepModel` takes the time that its table says. `CommandModel` is a command that speaks JSON lines, one process per
server, started anew when it ends or hangs. A batch goes in as one line, ``{"load", "knobs", "at": [...], "inputs":
[...]}``, an entry per query; one line comes back: ``{"outputs": [...]}``, with ``"children": [{"step": [...]}, ...]``
where the model says what follows, and ``"outcomes": ["unsure", ...]`` where that depends on what an answer comes to.
``{"error": "..."}`` fails the batch. A first batch without entries asks whether the command is ready. A command that
says more than it was asked is ended and started anew: its next answer would be another query's.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from hetplan.executor.serving.frames import FAILED, SERVED
from hetplan.executor.serving.law import OffTable, ServiceLaw
from hetplan.executor.serving.query_body import Query

if TYPE_CHECKING:
    from hetplan.executor.serving.http_server import Exchange

__all__ = ["CommandModel", "Done", "Model", "Result", "SleepModel", "Streams", "failed", "refused"]


class Result(NamedTuple):
    """What a model made of one query: its outcome, what goes to child steps (JSON, or empty), and its answer (JSON).

    `step_outcome` is what the answer comes to, where what follows depends on it ("unsure").
    """

    outcome: int
    children: bytes = b""
    body: bytes = b""
    step_outcome: str = ""


def failed(error: Exception, count: int, *, limit_s: float) -> list[Result]:
    """What a batch comes to that broke, whatever broke it: else its server would be waited for without end.

    >>> failed(TimeoutError(), 1, limit_s=60.0)[0].body, failed(RecursionError("too deep"), 1, limit_s=1.0)[0].body
    (b'no answer within 60 s', b'RecursionError: too deep')
    """
    plain = isinstance(error, OSError | ValueError | EOFError)
    why = str(error) if plain else f"{type(error).__name__}: {error}"
    if isinstance(error, TimeoutError) and not str(error):
        why = f"no answer within {limit_s:g} s"
    return [Result(FAILED, b"", why[:500].encode())] * count


def refused(count: int) -> list[Result]:
    """What a batch comes to that was sent to a load that makes text."""
    return [Result(FAILED, b"", b"this load makes text: ask POST /v1/completions or /v1/chat/completions")] * count


def as_outcome(said: Any) -> str:
    """What a model says that its answer comes to, as text that a frame has room for."""
    return "" if said is None else str(said)[:_MOST_OUTCOME]


_MOST_OUTCOME = 63
"""As many letters as an id has; letters of more than one byte come in fours at most, which a frame still holds."""

Done = Callable[[Sequence[Result]], None]


class Model(Protocol):
    """Something that serves batches."""

    async def prepare(self) -> None:
        """Load what is needed; raises ValueError or OSError with the reason where that fails."""
        ...

    def run(self, queries: Sequence[Query], done: Done) -> None:
        """Serve a batch; calls back once, from the event loop, with a result per query."""
        ...

    def close(self) -> None:
        """Let go of everything, child processes included."""
        ...


@runtime_checkable
class Streams(Protocol):
    """A model whose answers can come piece by piece; `open` is how many requests are under way."""

    @property
    def open(self) -> int:
        """How many requests are under way."""
        ...

    def stream(self, exchange: Exchange, path: str, asked: Any, instance: int, ended: Callable[[bool], None]) -> None:
        """Answer a request on one of the load's instances; `ended` is called once, with whether that went well.

        `asked` is the request as OpenAI's protocol has it; None where the path is another's.
        """
        ...


_LATE_S = 0.001
_AT_ONCE_MS = 0.001


class SleepModel:
    """Takes the time that its table says, and nothing else; outcomes of its step come as often as the plan says.

    A batch that follows at once begins when the one before it was due to end, up to a millisecond ago: the time until
    this process woke up is not the machine's. Else ten batches in a row would take ten wake-ups longer than the table.
    One that takes less than a microsecond is answered at once: no timer is set and met in that time.
    """

    def __init__(
        self,
        law: ServiceLaw,
        loop: asyncio.AbstractEventLoop,
        *,
        outcomes: Mapping[str, float] | None = None,
        seed: int = 0,
    ) -> None:
        self._law, self._loop, self._random = law, loop, Random(seed)
        self._outcomes, self._shares = list(outcomes or ()), list((outcomes or {}).values())
        self._free_s: float | None = None

    async def prepare(self) -> None:
        """Nothing is loaded."""

    def run(self, queries: Sequence[Query], done: Done) -> None:
        """Call back when the drawn time is over."""
        try:
            took_ms = self._law.draw_ms([query.at for query in queries])
        except OffTable as error:
            done([Result(FAILED, b"", str(error).encode())] * len(queries))
            return
        if took_ms < _AT_ONCE_MS:
            done(self._results(len(queries)))
            return
        due_s = (monotonic() if self._free_s is None else self._free_s) + took_ms / 1000.0
        self._loop.call_at(due_s, self._over, due_s, self._results(len(queries)), done)

    def _results(self, count: int) -> list[Result]:
        if not self._outcomes:
            return [Result(SERVED)] * count
        drawn = self._random.choices(self._outcomes, self._shares, k=count)
        return [Result(SERVED, step_outcome=outcome) for outcome in drawn]

    def _over(self, due_s: float, results: Sequence[Result], done: Done) -> None:
        self._free_s = max(due_s, monotonic() - _LATE_S)
        try:
            done(results)
        finally:
            self._free_s = None

    def close(self) -> None:
        """Nothing is held."""


_MOST_LINE, _PIECE = 64 * 1024 * 1024, 1024 * 1024
_MOST_CHILDREN = 100_000


class _Command:
    """A process that answers lines with lines, and is always listened to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._in, self._out = process, process.stdin, process.stdout
        self._next = asyncio.ensure_future(self._out.read(_PIECE))
        self._more = b""

    @property
    def waits(self) -> bool:
        """Whether it runs and has said nothing that it was not asked."""
        return self._process.returncode is None and not self._next.done() and not self._more

    async def answer(self, line: bytes) -> bytes:
        """Its next line, after this one; ValueError where it ends without one, or never ends it."""
        self._in.write(line)
        with suppress(ConnectionError):  # it reads no more; what it may have said before is read below
            await self._in.drain()
        said, ended = bytearray(), b""
        while not ended:
            piece = await self._next
            if not piece:
                raise ValueError("the command ended without an answer")
            self._next = asyncio.ensure_future(self._out.read(_PIECE))
            begun, ended, self._more = piece.partition(b"\n")
            said += begun
            if len(said) > _MOST_LINE:
                raise ValueError(f"the command answers with a line of more than {_MOST_LINE} bytes")
        return bytes(said)

    def end(self) -> None:
        """Kill it."""
        if not self._next.cancel() and not self._next.cancelled():
            self._next.exception()
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()


class CommandModel:
    """A command of site.toml that serves one load."""

    def __init__(
        self, made: Mapping[str, Any], *, load: str, knobs: Mapping[str, Any], servers: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        self._made, self._load, self._knobs, self._loop = made, load, dict(knobs), loop
        self._idle: list[_Command | None] = [None] * servers
        self._under_way: set[asyncio.Task[None]] = set()

    async def prepare(self) -> None:
        """Start one process per server and wait until each has answered an empty batch."""
        made = await asyncio.gather(*(self._started() for _ in self._idle))
        self._idle = list(made)
        try:
            await asyncio.gather(
                *(asyncio.wait_for(self._asked(command, []), self._made["timeout_s"]) for command in made)
            )
        except (TimeoutError, OSError, ValueError) as error:
            self.close()
            why = str(error) or f"no answer within {self._made['timeout_s']:g} s"
            raise ValueError(f"the command {self._made['command'][0]}: {why}") from None

    def run(self, queries: Sequence[Query], done: Done) -> None:
        """Serve a batch on a process that is free."""
        task = self._loop.create_task(self._run(queries, done))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def close(self) -> None:
        """End the processes."""
        for command in self._idle:
            if command is not None:
                command.end()

    async def _run(self, queries: Sequence[Query], done: Done) -> None:
        command = self._idle.pop()
        results: Sequence[Result]
        try:
            if command is None or not command.waits:
                if command is not None:
                    command.end()
                command = await self._started()
            results = await asyncio.wait_for(self._asked(command, queries), self._made["timeout_s"])
        except Exception as error:
            if command is not None:
                command.end()
            command = None
            results = failed(error, len(queries), limit_s=self._made["timeout_s"])
        self._idle.append(command)
        done(results)

    async def _started(self) -> _Command:
        return _Command(
            await asyncio.create_subprocess_exec(
                *self._made["command"], stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_PIECE,
                env={**os.environ, **self._made["environment"]},
            )
        )  # fmt: skip

    async def _asked(self, command: _Command, queries: Sequence[Query]) -> list[Result]:
        asked = {
            "load": self._load, "knobs": self._knobs, "at": [query.at for query in queries],
            "inputs": [_plain(query.inputs) for query in queries],
        }  # fmt: skip
        answer = json.loads(await command.answer(json.dumps(asked).encode() + b"\n"))
        if not isinstance(answer, dict):
            raise ValueError("the command answers a batch with an object")
        if "error" in answer:
            return [Result(FAILED, b"", str(answer["error"])[:500].encode())] * len(queries)
        outputs, children, outcomes = answer.get("outputs"), answer.get("children"), answer.get("outcomes")
        for name, given in (("outputs", outputs), ("children", children), ("outcomes", outcomes)):
            if given is not None and not isinstance(given, list):
                raise ValueError(f"{name} are a list, an entry per query")
            if given is not None and len(given) != len(queries):
                raise ValueError(f"{len(given)} {name} for {len(queries)} queries")
        if not all(_follows(one) for one in children or ()):
            raise ValueError('children of a query are {"step": [...]}, or how many there are of each step')
        return [
            Result(
                SERVED,
                json.dumps(children[place]).encode() if children is not None else b"",
                json.dumps(outputs[place]).encode() if outputs is not None else b"",
                as_outcome(outcomes[place]) if outcomes is not None else "",
            )
            for place in range(len(queries))
        ]


def _follows(children: Any) -> bool:
    """Whether this says what follows a query: per step its queries, or how many."""
    return isinstance(children, dict) and all(
        isinstance(one, list)
        or (isinstance(one, int | float) and not isinstance(one, bool) and 0 <= one <= _MOST_CHILDREN)
        for one in children.values()
    )


def _plain(inputs: Any) -> Any:
    return inputs.decode("latin-1") if isinstance(inputs, bytes) else inputs
