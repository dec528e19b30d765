"""How far long work is, and how long it will still take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hetplan.cli.output import printable
from hetplan.drawing.svg import short
from hetplan.planner.spread import left_in_words

if TYPE_CHECKING:
    from hetplan.planner.contract import Event

__all__ = ["Pace", "now_and_then", "on_terminal"]

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
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: dict[str, tuple[float, float]] = {}

    def text(self, event: Event) -> str:
        """An event in a line."""
        now = self._clock()
        at, done_then = self._begun.setdefault(event.what, (now, event.done or 0.0))
        took = max(event.seconds, now - at)
        figures = [
            f"{name} {short(value)}"
            for name, value in (("value", event.value), ("bound", event.bound))
            if value is not None
        ]
        parts = [*([f"{took:.0f} s"] if took >= 1 else []), event.detail or event.what, *figures]
        if event.done is not None:
            parts.append(f"{event.done if event.done >= 1.0 else min(event.done, 0.99):.0%}")
            came, passed = event.done - done_then, now - at
            said = event.detail.endswith(" left")  # by the work itself
            if came > 0.02 and passed >= 1.0 and event.done < 1.0 and not said:
                parts.append(f"about {left_in_words(passed * (1.0 - event.done) / came)} left")
        return ", ".join(parts)


def now_and_then(note: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> Callable[[Event], None]:
    """Say where long work is, every half minute."""
    pace, said = Pace(clock), clock()

    def show(event: Event) -> None:
        nonlocal said
        text = pace.text(event)
        if clock() - said >= SECONDS_BETWEEN_LINES:
            said = clock()
            note(text)

    return show


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
