"""Measuring an engine by streaming from its server: iterations of every kind, and the law that fits them.

Nobody outside sees an iteration. But every decoding sequence gets one token per iteration, so the time between two
tokens of a stream is the length of one. A cell runs so many streams at once, with prompts of one length, and takes the
gaps between their tokens: iterations that only decode. Then it sends prompts of other lengths beside them: the gap in
which such a prompt is computed is an iteration with prefill and decodes (`overlap` is then measured, not assumed).
Before the streams, prompts are sent to the empty server: what the first token takes beyond the law's iteration is what
a request waits before it (`request_ms`).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from hetplan.measure.journal import CellJournal
from hetplan.measure.load_send import Reply, StreamedConnection
from hetplan.measure.measure_file import MeasuredEngine, Wish
from hetplan.measure.profile_document import machine_of
from hetplan.measure.profile_models import MeasurementFailed
from hetplan.planner.contract import Event
from hetplan.precise_loop import new_event_loop
from hetplan.profiles.canonical import digest
from hetplan.profiles.engine_law import FittedNumbers, Iteration, fit_numbers
from hetplan.profiles.engines import IterationLaw
from hetplan.profiles.imports.words import digits
from hetplan.profiles.law_review import iteration_ms
from hetplan.profiles.new_files import engine_run, model_of, new_profile

__all__ = ["MeasuredLaw", "engine_document", "measure_engines"]

_DECODES, _BESIDE = 24, 3
"""How many iterations of decodes a cell takes, and how many prompts of each length it sends beside them."""
_SHORTEST_MS = 0.05
_ALONE = 5
"""How many prompts a cell sends to the empty server, one after the other."""
_PAUSE = 3
"""Iterations between two such prompts."""
_PATIENCE = 20
"""Streams are asked for so many times the tokens that are watched, where there is room: a busy machine looks late."""
_BUNCHES = "{} sends its tokens in bunches: ask the server itself, not a proxy that holds them back"
_TOO_SOON = (
    "{} had sent {} of {} tokens and ended before it was watched: it must send each token as it is made, not in "
    "bunches, and keep to ignore_eos"
)


@dataclass
class MeasuredLaw:
    """What was found of one engine: its iterations, and the law; `why` where it could not be measured.

    `alone` are prompts that came to the empty server, each with the time to its first token.
    """

    iterations: list[Iteration] = field(default_factory=list)
    law: FittedNumbers | None = None
    why: str = ""
    alone: list[Iteration] = field(default_factory=list)


@dataclass
class MeasuredEngines:
    """What was found of all, how many cells an earlier run had measured, and whether all were."""

    engines: dict[str, MeasuredLaw] = field(default_factory=dict)
    cells: int = 0
    resumed: int = 0
    complete: bool = True


Cell = tuple[int, int]
"""Streams at once, and the length of their prompts: the shortest or the longest, so that KV is read or hardly any."""


def cells_of(engine: MeasuredEngine) -> list[Cell]:
    """The cells of an engine: as many streams and as long prompts as its KV has room for."""
    longest = _DECODES + len(engine.input_tokens) * _BESIDE * (_PAUSE + 2) + 1
    room = engine.kv_tokens - max(engine.input_tokens)
    return [
        (streams, length)
        for streams in engine.concurrency
        for length in sorted({min(engine.input_tokens), max(engine.input_tokens)})
        if streams * (length + 2 * longest) <= room and length + 2 * longest <= engine.longest
    ]


def measure_engines(
    wish: Wish, *, journal: CellJournal | None = None, on_event: Callable[[Event], None] | None = None,
    cancel: threading.Event | None = None,
) -> MeasuredEngines:  # fmt: skip
    """Measure every engine of a wish and fit its law; what the journal holds is not measured again."""
    kept, found = journal or CellJournal(), MeasuredEngines()
    total, began = sum(len(cells_of(engine)) for engine in wish.engines.values()), time.monotonic()
    for name, engine in wish.engines.items():
        found.engines[name] = mine = MeasuredLaw()
        of = digest(engine.model_dump(mode="json", include=_IDENTITY))[7:23]
        for cell in cells_of(engine):
            key = {"engine": name, "of": of, "streams": cell[0], "prompt": cell[1]}
            held = kept.get(key)
            if held is None:
                if cancel is not None and cancel.is_set():
                    found.complete = False
                    continue
                try:
                    iterations = measure_cell(engine, cell)
                except (MeasurementFailed, OSError) as error:
                    mine.why = str(error)
                    break
                held = {"iterations": [list(vars(one).values()) for one in iterations]}
                kept.add(key, held)
            else:
                found.resumed += 1
            found.cells += 1
            for one in (Iteration(*row) for row in held["iterations"]):
                (mine.iterations if one.sequences else mine.alone).append(one)
            if on_event is not None:
                text = f"{name}: {cell[0]} streams, prompts of {cell[1]} tokens"
                on_event(Event("profile", text, done=found.cells / total, seconds=time.monotonic() - began))
        if len(mine.iterations) >= _LEAST and not mine.why:
            mine.law = fit_numbers(mine.iterations)
        elif not mine.why and found.complete:
            mine.why = (
                "too few iterations were seen: name shorter input_tokens or fewer streams, of which more cells fit"
            )
    return found


_LEAST = 6
_IDENTITY = {"url", "name", "most_tokens", "most_seqs", "headers"}


def measure_cell(engine: MeasuredEngine, cell: Cell) -> list[Iteration]:
    """The iterations of one cell."""
    loop = new_event_loop()
    try:
        return loop.run_until_complete(asyncio.wait_for(_Cell(engine, *cell).run(), engine.timeout_s))
    except TimeoutError:
        raise MeasurementFailed(f"a cell took more than {engine.timeout_s:g} s: is the server alive?") from None
    finally:
        loop.close()


class _Stream(StreamedConnection):
    """A stream, when it was asked for, and when each of its tokens came."""

    def __init__(self, asked: int) -> None:
        self.asked, self.sent, self.times = asked, 0.0, list[float]()
        self.over: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        super().__init__(self._end_stream)

    def on_body(self, piece: bytes) -> None:
        """Note each token's time."""
        before = self._events
        super().on_body(piece)
        self.times += [self._last] * (self._events - before)

    def _end_stream(self, _one: object, _request: int, reply: Reply | None) -> None:
        if not self.over.done():
            self.over.set_result(reply)


class _Cell:
    """Some streams at once, and prompts beside them."""

    def __init__(self, engine: MeasuredEngine, streams: int, length: int) -> None:
        self.engine, self.streams, self.length = engine, streams, length
        self.random = Random(streams * 100_003 + length)
        self.open: list[_Stream] = []

    async def run(self) -> list[Iteration]:
        """Start the streams, and take what they show."""
        beside = [one for one in self.engine.input_tokens if one + self.streams <= self.engine.most_tokens]
        most = _DECODES + len(beside) * _BESIDE * (_PAUSE + 2) + 1
        try:
            found = [await self._alone() for _ in range(_ALONE)] if self.length <= self.engine.most_tokens else []
            room = (self.engine.kv_tokens - max(self.engine.input_tokens)) // self.streams
            output = min(_PATIENCE * most, min(room, self.engine.longest) - self.length)
            running = [await self._start(self.length, output) for _ in range(self.streams)]
            await self._until(lambda: all(one.times for one in running))
            found.append(await self._decodes(running))
            for length in beside:
                tried = [
                    seen for _ in range(_BESIDE) if (seen := await self._mixed_iteration(running, length)) is not None
                ]
                tried.sort(key=lambda seen: seen.ms)
                found += tried[len(tried) // 2 :][:1]
        finally:
            for one in self.open:
                one.close()
        return found

    async def _alone(self) -> Iteration:
        """A prompt that comes to the empty server: how long its first token takes."""
        prompt = await self._start(self.length, 1)
        await self._until(lambda: bool(prompt.times))
        self.open.remove(prompt)
        ms = 1e3 * (prompt.times[0] - prompt.sent)
        prompt.close()
        return Iteration(self.length, 0.0, 0.0, self.length * self.length / 2.0, ms)

    async def _decodes(self, running: Sequence[_Stream]) -> Iteration:
        """Iterations that only decode."""
        first = [len(one.times) for one in running]
        await self._until(lambda: all(len(one.times) >= at + _DECODES for one, at in zip(running, first, strict=True)))
        gaps = sorted(
            gap for one, at in zip(running, first, strict=True) for gap in gaps_ms(one.times[at : at + _DECODES])
        )
        if len(gaps) < _DECODES // 2:
            raise MeasurementFailed(_BUNCHES.format(self.engine.url))
        middle = gaps[len(gaps) // 4 : -(len(gaps) // 4)]
        read = sum(self.length + at + _DECODES / 2 for at in first)
        return Iteration(self.streams, read, self.streams, 0.0, sum(middle) / len(middle))

    async def _mixed_iteration(self, running: Sequence[_Stream], length: int) -> Iteration | None:
        """The iteration in which a prompt is computed beside the decodes, where a stream shows how long it took."""
        prompt = await self._start(length, 1)
        await self._until(lambda: bool(prompt.times))
        at = prompt.times[0]
        seen = [len(one.times) for one in running]
        await self._until(
            lambda: all(len(one.times) >= count + _PAUSE for one, count in zip(running, seen, strict=True))
        )
        gaps, read = [], 0.0
        for one in running:
            place = _nearest(one.times, at)
            gaps.append(1e3 * (one.times[place] - one.times[place - 1]))
            read += self.length + place
        gaps = sorted(gap for gap in gaps if gap > _SHORTEST_MS)  # tokens of one read have no time between them
        if not gaps:
            return None
        return Iteration(
            self.streams + length, read, self.streams, length * length / 2.0, gaps[len(gaps) // 2]
        )  # fmt: skip

    async def _start(self, length: int, output: int) -> _Stream:
        engine, parts = self.engine, urlsplit(self.engine.url)
        body = json.dumps({
            "model": engine.name, "prompt": [self.random.randrange(10, 1000) for _ in range(length)],
            "max_tokens": output, "min_tokens": output, "ignore_eos": True, "temperature": 0, "stream": True,
        }).encode()  # fmt: skip
        loop = asyncio.get_running_loop()
        _, stream = await loop.create_connection(lambda: _Stream(output), parts.hostname or "", parts.port or 80)
        head = [f"POST {parts.path} HTTP/1.1", f"host: {parts.netloc}", "content-type: application/json"]
        head += [f"{name}: {value}" for name, value in engine.headers.items()]
        stream.sent = loop.time()
        stream.send(0, "\r\n".join([*head, f"content-length: {len(body)}", "", ""]).encode() + body)
        self.open.append(stream)
        return stream

    async def _until(self, done: Callable[[], bool]) -> None:
        while not done():
            for one in self.open:
                if one.over.done() and not one.times:
                    reply = one.over.result()
                    status = reply.status if reply is not None else 0
                    said = f"status {status}" if status else "the connection broke"
                    raise MeasurementFailed(f"{self.engine.url} made no token: {said}")
                if one.over.done() and one.asked > 1:
                    raise MeasurementFailed(_TOO_SOON.format(self.engine.url, len(one.times), one.asked))
            await asyncio.sleep(0.002)


def gaps_ms(times: Sequence[float]) -> list[float]:
    """The time per token between moments in seconds; tokens that came in one read share the time since the last read.

    >>> [round(one) for one in gaps_ms([0.0, 0.010, 0.040, 0.040, 0.040, 0.050])]
    [10, 10, 10, 10, 10]
    """
    reads: list[tuple[float, int]] = []
    for before, after in pairwise(times):
        gap = 1e3 * (after - before)
        if gap > _SHORTEST_MS:
            reads.append((gap, 1))
        elif reads:
            reads[-1] = reads[-1][0] + gap, reads[-1][1] + 1
    return [gap / tokens for gap, tokens in reads for _ in range(tokens)]


def _nearest(times: Sequence[float], at: float) -> int:
    """The token, not the first, that came nearest to a moment."""
    return min(range(1, len(times)), key=lambda place: abs(times[place] - at))


def engine_document(wish: Wish, found: MeasuredEngines) -> dict[str, Any]:
    """The profile of all engines that were measured."""
    machines, extensions = dict[str, Any](), dict[str, Any]()
    runs: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {}
    for name, mine in _measure_cells(found):
        engine = wish.engines[name]
        machines[engine.machine] = machine_of(wish.machines[engine.machine])
        run = {"load_s": engine.load_s, **_run(engine, mine)}
        runs.setdefault(engine.model, (engine.task, []))[1].append((engine.machine, run))
        errors = sorted(abs(float(one)) for one in mine.law.errors) if mine.law is not None else []
        extensions[name] = {
            "iterations": len(errors), "error_p90": digits(errors[int(0.9 * (len(errors) - 1))]),
            "error_most": digits(errors[-1]),
        }  # fmt: skip
    return new_profile(
        {"name": "streams", "kind": "measured", "tool": "hetplan profile"},
        machines=machines,
        models={name: model_of(task, name, several) for name, (task, several) in runs.items()},
        extensions={"measured": extensions},
    )


def _measure_cells(found: MeasuredEngines) -> Iterator[tuple[str, MeasuredLaw]]:
    return ((name, mine) for name, mine in found.engines.items() if mine.law is not None)


def _run(engine: MeasuredEngine, mine: MeasuredLaw) -> dict[str, Any]:
    assert mine.law is not None
    is_mixed = any(one.pairs and one.sequences for one in mine.iterations)
    said = engine.stated() | ({"overlap": "measured"} if is_mixed else {})
    reach = {
        name: int(max(getattr(one, name) for one in mine.iterations)) for name in ("tokens", "kv_tokens", "sequences")
    }
    law = {**mine.law.document, "basis": "measured", "error_mean": digits(mine.law.error), "range": reach}
    fitted = IterationLaw.model_validate(mine.law.document)
    waits = [one.ms - iteration_ms(fitted, one.tokens, 0.0, 0.0, one.pairs) for one in mine.alone]
    return engine_run(law, **said, request_ms=digits(max(median(waits), 0.0)) if waits else None)
