"""Models behind a command that speaks JSON lines: one process per server, started anew when it ends or hangs.

A batch goes in as one line, ``{"load", "knobs", "at": [...], "inputs": [...]}``, an entry per query; one line comes
back: ``{"outputs": [...]}``, and, where the model says what follows, ``{"children": [{"step": [...]}, ...]}``.
and, where what follows depends on what an answer comes to, ``{"outcomes": ["unsure", ...]}``.
``{"error": "..."}`` fails the batch. A first batch without entries asks whether the command is ready.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hetplan.executor.serving.frames import FAILED, SERVED
from hetplan.executor.serving.models import Done, Result, as_outcome
from hetplan.executor.serving.query_body import Query

__all__ = ["CommandModel"]

_MOST_LINE = 64 * 1024 * 1024
_MOST_CHILDREN = 100_000


class CommandModel:
    """A command of hosts.toml that serves one load."""

    def __init__(
        self, made: Mapping[str, Any], *, load: str, knobs: Mapping[str, Any], servers: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:  # fmt: skip
        self._made, self._load, self._knobs, self._loop = made, load, dict(knobs), loop
        self._idle: list[asyncio.subprocess.Process | None] = [None] * servers
        self._under_way: set[asyncio.Task[None]] = set()

    async def prepare(self) -> None:
        """Start one process per server and wait until each has answered an empty batch."""
        made = await asyncio.gather(*(self._started() for _ in self._idle))
        self._idle = list(made)
        try:
            await asyncio.gather(
                *(asyncio.wait_for(self._asked(process, []), self._made["timeout_s"]) for process in made)
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
        for process in self._idle:
            _end(process)

    async def _run(self, queries: Sequence[Query], done: Done) -> None:
        process = self._idle.pop()
        results: Sequence[Result]
        try:
            if process is None or process.returncode is not None:
                process = await self._started()
            results = await asyncio.wait_for(self._asked(process, queries), self._made["timeout_s"])
        except (OSError, ValueError, TimeoutError) as error:
            _end(process)
            process = None
            why = str(error) or f"no answer within {self._made['timeout_s']:g} s"
            results = [Result(FAILED, b"", why[:500].encode())] * len(queries)
        self._idle.append(process)
        done(results)

    async def _started(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._made["command"], stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=_MOST_LINE,
            env={**os.environ, **self._made["environment"]},
        )  # fmt: skip

    async def _asked(self, process: asyncio.subprocess.Process, queries: Sequence[Query]) -> list[Result]:
        assert process.stdin is not None
        assert process.stdout is not None
        asked = {
            "load": self._load, "knobs": self._knobs, "at": [query.at for query in queries],
            "inputs": [_plain(query.inputs) for query in queries],
        }  # fmt: skip
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        await process.stdin.drain()
        line = await process.stdout.readline()
        if not line:
            raise ValueError("the command ended without an answer")
        answer = json.loads(line)
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


def _end(process: asyncio.subprocess.Process | None) -> None:
    if process is not None and process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
