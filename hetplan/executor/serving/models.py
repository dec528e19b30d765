"""What a worker runs its batches on. A model is prepared once and then given batches, one per free server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from time import monotonic
from typing import Any, NamedTuple, Protocol

from hetplan.executor.serving.frames import FAILED, SERVED
from hetplan.executor.serving.law import OffTable, ServiceLaw
from hetplan.executor.serving.precise_timer import PreciseTimer
from hetplan.executor.serving.query_body import Query

__all__ = ["Done", "Model", "Result", "SleepModel"]


class Result(NamedTuple):
    """What a model made of one query: its outcome, what goes to child steps (JSON, or empty), and its answer (JSON).

    `step_outcome` is what the answer comes to, where what follows depends on it ("unsure").
    """

    outcome: int
    children: bytes = b""
    body: bytes = b""
    step_outcome: str = ""


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


_LATE_S = 0.001


class SleepModel:
    """Takes the time that its table says, and nothing else; outcomes of its step come as often as the plan says.

    A batch that follows at once begins when the one before it was due to end, up to a millisecond ago: the time until
    this process woke up is not the machine's. Else ten batches in a row would take ten wake-ups longer than the table.
    """

    def __init__(
        self, law: ServiceLaw, timer: PreciseTimer, *, outcomes: Mapping[str, float] | None = None, seed: int = 0
    ) -> None:
        self._law, self._timer, self._random = law, timer, Random(seed)
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
        due_s = (monotonic() if self._free_s is None else self._free_s) + took_ms / 1000.0
        self._timer.call_at(due_s, self._over, due_s, self._results(len(queries)), done)

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
