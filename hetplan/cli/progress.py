"""Progress of long work: JSON events with `--json`, a moving line on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hetplan.cli.output import Output
from hetplan.cli.page import number

if TYPE_CHECKING:
    from hetplan.planner.contract import Event

__all__ = ["progress"]


@contextmanager
def progress(out: Output) -> Iterator[Callable[[Event], None]]:
    """A callable that shows events for as long as the block runs."""
    if out.as_json:
        yield lambda event: out.send({"event": dict(vars(event))})
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.markup import escape

        with Console(stderr=True).status("planning") as status:
            yield lambda event: status.update(escape(_text(event)))
    else:
        yield lambda _event: None


def _text(event: Event) -> str:
    figures = [
        f"{name} {number(value)}"
        for name, value in (("value", event.value), ("bound", event.bound))
        if value is not None
    ]
    done = [f"{event.done:.0%}"] if event.done is not None else []
    return ", ".join([f"{event.seconds:.0f} s", event.detail or event.what, *figures, *done])
