"""`hetplan watch --queries`: lines in, decisions out, a re-pack in between, and what runs brought about on hosts."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.arriving import Arriving, Said
    from hetplan.cli.knowing import Known
    from hetplan.cli.output import Output
    from hetplan.executor.deployment import Deployment
    from hetplan.live_plan import Running
    from hetplan.repacking import Bounded

__all__ = ["Pace", "follow"]

LOOK_S = 0.05
"""How long to wait for another line where nothing else is to be done."""
AGAIN_S = 5.0
"""How long to wait before what could not be applied is tried again."""


@dataclass(frozen=True)
class Pace:
    """What a move costs, how often a re-pack is bounded, and whether only what is there is decided about."""

    move_price: float
    period_s: float
    once: bool = field(kw_only=True)


def follow(
    out: Output, lines: Path, decided: Path | None, known: Known, how: Mapping[str, Any], pace: Pace, hosts: Path | None
) -> None:
    """Decide about every line; with `once` about those that are there, and re-pack once. `hosts`: apply it there."""
    from hetplan.arriving import Arriving, kinds_of
    from hetplan.cli.long_work import interruptible

    def work(cancel: threading.Event) -> tuple[int, str]:
        more = known.choices(how, cancel)
        inputs = known.with_measured(more.pop("measured", None))
        kinds = kinds_of(inputs, move_price=pace.move_price, **more)
        with ExitStack() as stack:
            arriving = Arriving(kinds, decided, applies=hosts is not None)
            stack.callback(arriving.close)
            applied = None if hosts is None else _Applied(_deployment(stack, hosts), arriving)
            _loop(out, arriving, lines, cancel, pace, applied)
        return len(kinds.live.queries) - len(kinds.live.waiting), "" if applied is None else applied.why

    running, why = interruptible(work, say=out.note)
    reason = (
        f"{running} queries run" if not why else f"{running} queries are to run, and could not be brought about: {why}"
    )
    out.people.line(reason)
    out.end((7 if why else 0) if pace.once else 130, reason)


def _deployment(stack: ExitStack, hosts: Path) -> Deployment:
    from hetplan.executor.deployment import Deployment
    from hetplan.executor.hosts_file import read_hosts
    from hetplan.registry_further import target

    return stack.enter_context(Deployment(read_hosts(hosts), targets=target))


class _Applied:
    """What runs on the hosts, brought to what is decided: beside the decisions, one apply at a time."""

    def __init__(self, deployment: Deployment, arriving: Arriving) -> None:
        self.deployment, self.arriving = deployment, arriving
        self.why, self._again_s = "", 0.0

    @property
    def ready(self) -> bool:
        """Whether it may be tried now: not at once where it has just failed."""
        return time.monotonic() >= self._again_s

    def bring(self, running: Mapping[str, Running], cancel: threading.Event) -> list[Said]:
        """Have these queries run, and no others; what ran is kept where that fails."""
        from hetplan.arriving import Said
        from hetplan.executor.background import Background
        from hetplan.executor.target import ApplyFailed
        from hetplan.live_plan import live_plan

        plan, inputs = live_plan(self.arriving.kinds.asked, running)
        self.deployment.follow(Background(inputs.profile, inputs.slo, inputs.digests["profile"], inputs))
        try:
            done = self.deployment.apply(plan, cancel=cancel)
        except (ApplyFailed, InputError) as error:
            self.why, self._again_s = str(error), time.monotonic() + AGAIN_S
            return [Said("not-applied", self.why, {"why": self.why})]
        self.why = ""
        count = len(plan.dispatch)
        data = {"queries": count, "steps": len(done.steps), "endpoint": done.endpoint}
        return [Said("applied", f"{count} queries run, {len(done.steps)} steps", data)]


def _loop(
    out: Output, arriving: Arriving, lines: Path, cancel: threading.Event, pace: Pace, applied: _Applied | None
) -> None:
    from hetplan.repacking import form_of, prices_of

    due = time.monotonic() + pace.period_s
    pending: Future[Bounded] | None = None
    applying: Future[list[Said]] | None = None
    better: Iterator[list[Said]] = iter(())
    changed = True
    with ThreadPoolExecutor(2) as pool:
        while not cancel.is_set():
            came = False
            for raw, read in arriving.lines(lines):
                came = changed = True
                _show(out, arriving.take(raw, read))
                if cancel.is_set():
                    return
            if pace.once:
                bounded, said = arriving.bound()
                _show(out, [said])
                for made in arriving.improve(bounded):
                    _show(out, made)
                _show(out, [] if applied is None else applied.bring(arriving.kinds.running(), cancel))
                return
            if pending is None and time.monotonic() >= due:
                pending, due = pool.submit(prices_of, *form_of(arriving.live)), time.monotonic() + pace.period_s
            pending, better = _ready(out, arriving, pending, better)
            worked = list(islice(better, 1))
            for made in worked:
                _show(out, made)
            changed = changed or bool(worked)
            if applying is not None and applying.done():
                _show(out, applying.result())
                applying, changed = None, changed or (applied is not None and bool(applied.why))
            if applied is not None and applying is None and changed and applied.ready:
                changed, applying = False, pool.submit(applied.bring, arriving.kinds.running(), cancel)
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
