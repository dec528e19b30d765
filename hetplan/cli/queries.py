"""`hetplan watch --queries`: lines in, decisions out, and a re-pack in between."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetplan.arriving import Arriving, Said
    from hetplan.cli.knowing import Known
    from hetplan.cli.output import Output
    from hetplan.repacking import Bounded

__all__ = ["follow"]

LOOK_S = 0.05
"""How long to wait for another line where nothing else is to be done."""


def follow(
    out: Output, lines: Path, decided: Path | None, known: Known, how: Mapping[str, Any], *,
    move_price: float, period_s: float, once: bool,
) -> None:  # fmt: skip
    """Decide about every line; with `once` about those that are there, and re-pack once."""
    from hetplan.arriving import Arriving, kinds_of
    from hetplan.cli.long_work import interruptible

    def work(cancel: threading.Event) -> int:
        more = known.choices(how, cancel)
        inputs = known.with_measured(more.pop("measured", None))
        kinds = kinds_of(inputs, move_price=move_price, **more)
        arriving = Arriving(kinds, decided)
        try:
            _loop(out, arriving, lines, cancel, period_s=period_s, once=once)
        finally:
            arriving.close()
        return len(kinds.live.queries) - len(kinds.live.waiting)

    running = interruptible(work, say=out.note)
    reason = f"{running} queries run"
    out.people.line(reason)
    out.end(0 if once else 130, reason)


def _loop(
    out: Output, arriving: Arriving, lines: Path, cancel: threading.Event, *, period_s: float, once: bool
) -> None:
    from hetplan.repacking import form_of, prices_of

    pool, due = ThreadPoolExecutor(1), time.monotonic() + period_s
    pending: Future[Bounded] | None = None
    better: Iterator[list[Said]] = iter(())
    with pool:
        while not cancel.is_set():
            came = False
            for raw, read in arriving.lines(lines):
                came = True
                _show(out, arriving.take(raw, read))
                if cancel.is_set():
                    return
            if once:
                bounded, said = arriving.bound()
                _show(out, [said])
                for made in arriving.improve(bounded):
                    _show(out, made)
                return
            if pending is None and time.monotonic() >= due:
                pending, due = pool.submit(prices_of, *form_of(arriving.live)), time.monotonic() + period_s
            pending, better = _ready(out, arriving, pending, better)
            worked = list(islice(better, 1))
            for made in worked:
                _show(out, made)
            if not (came or worked):
                cancel.wait(LOOK_S)


def _ready(
    out: Output, arriving: Arriving, pending: Future[Bounded] | None, better: Iterator[list[Said]]
) -> tuple[Future[Bounded] | None, Iterator[list[Said]]]:
    """Where prices were found beside the work, the steps that they ask for."""
    if pending is None or not pending.done():
        return pending, better
    bounded, said = arriving.bounded(pending.result())
    _show(out, [said])
    return None, arriving.improve(bounded)


def _show(out: Output, said: list[Said]) -> None:
    for one in said:
        out.send({"event": {"what": one.what, "text": one.text, **one.data}})
        out.people.line(f"{one.what}: {one.text}")
    if said:
        sys.stdout.flush()
