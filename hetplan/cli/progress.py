"""Progress of long work as text: how far it is, and how long it will still take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hetplan.cli.output import printable
from hetplan.drawing.svg import short
from hetplan.planner.spread import left_in_words

if TYPE_CHECKING:
    from hetplan.planner.contract import Event

__all__ = ["Lines", "Pace", "in_a_pipe", "on_terminal"]

SEARCHED = "simulated"
"""The event of a search that simulates plans until one is good enough."""
SECONDS_BETWEEN_LINES = 30.0
"""How often long work says where it is, where nobody sits at a terminal."""


class Pace:
    """How far work is, and how long what remains will take at the pace so far.

    >>> from hetplan.planner.contract import Event
    >>> clock = iter([0.0, 10.0, 12.0])
    >>> pace = Pace(lambda: next(clock))
    >>> pace.text(Event("simulate", "1 of 5 runs", done=0.2)), pace.text(Event("simulate", "3 of 5 runs", done=0.6))
    ('1 of 5 runs, 20%', '10 s, 3 of 5 runs, 60%, about 10 s left')
    >>> pace.text(Event("simulate", "4 of 5 runs, about 3 s left", done=0.8))
    '12 s, 4 of 5 runs, about 3 s left, 80%'

    The last run may be as good as done: there is more than nothing left until it is.

    >>> clock = iter([0.0, 10.0])
    >>> pace = Pace(lambda: next(clock))
    >>> pace.text(Event("simulate", "0 of 5 runs", done=0.0)), pace.text(Event("simulate", "4 of 5 runs", done=0.998))
    ('0 of 5 runs, 0%', '10 s, 4 of 5 runs, 99%, about 1 s left')

    A search ends when it has found what it looks for: how far it is says how long it may still take, at most.

    >>> clock = iter([0.0, 10.0])
    >>> pace = Pace(lambda: next(clock))
    >>> pace.text(Event("simulated", "1", done=0.0)), pace.text(Event("simulated", "2", done=0.5, best=0.97))
    ('1, 0%', '10 s, 2, best so far 0.97, 50%, at most 10 s left')
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: dict[str, tuple[float, float]] = {}

    def text(self, event: Event) -> str:
        """An event in a line."""
        now = self._clock()
        at, done_then = self._begun.setdefault(event.what, (now, event.done or 0.0))
        took = max(event.seconds, now - at)
        told = (("value", event.value), ("bound", event.bound), ("best so far", event.best))
        figures = [f"{name} {short(value)}" for name, value in told if value is not None]
        parts = [*([f"{took:.0f} s"] if took >= 1 else []), event.detail or event.what, *figures]
        if event.done is not None:
            parts.append(f"{event.done if event.done >= 1.0 else min(event.done, 0.99):.0%}")
            came, passed = event.done - done_then, now - at
            said = event.detail.endswith(" left")  # by the work itself
            if came > 0.02 and passed >= 1.0 and event.done < 1.0 and not said:
                nearly = "at most" if event.what == SEARCHED else "about"
                parts.append(f"{nearly} {left_in_words(passed * (1.0 - event.done) / came)} left")
        return ", ".join(parts)


class Lines:
    """Says where long work is, every half minute, however long it tells nothing new."""

    def __init__(self, note: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._note, self._clock, self._pace = note, clock, Pace(clock)
        self._began = self._said = clock()
        self._at = "planning"

    def show(self, event: Event) -> None:
        """Take an event in."""
        if event.detail:
            best = "" if event.best is None else f", best so far {short(event.best)}"
            self._at = event.detail + best
        self.beat(event)

    def beat(self, event: Event | None = None) -> None:
        """Say a line where one is due: of this event, or of the last one where there is none."""
        now = self._clock()
        text = self._pace.text(event) if event is not None else ""
        if now - self._said >= SECONDS_BETWEEN_LINES:
            self._said = now
            self._note(text or f"{now - self._began:.0f} s, still at: {self._at}")


@contextmanager
def in_a_pipe(note: Callable[[str], None]) -> Iterator[Callable[[Event], None]]:
    """Lines now and then, for as long as the block runs."""
    lines, over = Lines(note), threading.Event()

    def beat() -> None:
        while not over.wait(1.0):
            lines.beat()

    threading.Thread(target=beat, name="hetplan-progress", daemon=True).start()
    try:
        yield lines.show
    finally:
        over.set()


@contextmanager
def on_terminal() -> Iterator[Callable[[Event], None]]:
    """A line at the foot of a terminal that says where the work is."""
    from rich.console import Console
    from rich.markup import escape

    pace = Pace()
    with Console(stderr=True).status("planning") as status:

        def show(event: Event) -> None:
            if event.what == "compile":
                status.console.print(escape(printable(event.detail)))
            else:
                status.update(escape(printable(pace.text(event))))

        yield show
