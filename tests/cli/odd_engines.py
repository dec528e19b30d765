"""Engines that misbehave on purpose, for tests of what the command line makes of them."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import Any, ClassVar

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.solvers.highs import Highs


class _Odd:
    form: ClassVar[str] = "milp"

    def version(self) -> str:
        return "1"

    def refuses(self, form: Any) -> str:
        return ""

    def solve_all(self, forms: Any, limits: Limits, *, on_event: Any = None) -> list[Answer[Any]]:
        return [self.solve(form, limits, on_event=on_event) for form in forms]

    def solve(self, form: Any, limits: Limits, *, start: Any = None, on_event: Any = None) -> Answer[Any]:
        raise NotImplementedError


class Sleepy(_Odd):
    """Finds the best plan, then broods over its proof until somebody stops it."""

    name: ClassVar[str] = "sleepy"

    def solve(self, form: Any, limits: Limits, *, start: Any = None, on_event: Any = None) -> Answer[Any]:
        answer = Highs().solve(form, replace(limits, cancel=None))
        if limits.cancel is None:  # the short grace in which what was found is settled
            return answer
        _say_ready()
        limits.cancel.wait(60)
        return replace(answer, status=Status.FEASIBLE, stop=Stop.CANCELLED, engine="sleepy")


class Deaf(_Odd):
    """Never comes back and never listens."""

    name: ClassVar[str] = "deaf"

    def solve(self, form: Any, limits: Limits, *, start: Any = None, on_event: Any = None) -> Answer[Any]:
        _say_ready()
        threading.Event().wait(60)
        raise AssertionError("nobody waits this long")


class Broken(_Odd):
    """Crashes."""

    name: ClassVar[str] = "broken"

    def solve(self, form: Any, limits: Limits, *, start: Any = None, on_event: Any = None) -> Answer[Any]:
        raise RuntimeError("segment of memory lost")


class Speechless(_Odd):
    """Runs out of time without a word."""

    name: ClassVar[str] = "speechless"

    def solve(self, form: Any, limits: Limits, *, start: Any = None, on_event: Any = None) -> Answer[Any]:
        return Answer(Status.NO_ANSWER, Stop.TIME, engine="speechless", deterministic=False)


class Proofless(_Odd):
    """Answers rightly, and shows nothing by which its bounds could be proved again."""

    name: ClassVar[str] = "proofless"

    def solve(self, form: Any, limits: Limits, *, start: Any = None, on_event: Any = None) -> Answer[Any]:
        return replace(Highs().solve(form, limits, start=start), row_duals=None, engine="proofless")


class Late(_Odd):
    """Spends all the time there is, then hands over a good point without a proof."""

    name: ClassVar[str] = "late"

    def solve(self, form: Any, limits: Limits, *, start: Any = None, on_event: Any = None) -> Answer[Any]:
        answer = Highs().solve(form, replace(limits, seconds=None))
        if form.pure_lp:
            return answer
        time.sleep(limits.seconds or 0.0)
        return replace(answer, status=Status.FEASIBLE, stop=Stop.TIME, bound=None, engine="late", deterministic=False)


class Chatty(_Odd):
    """Writes to standard output behind Python's back, as C++ libraries do, before and after it works."""

    name: ClassVar[str] = "chatty"

    def solve(self, form: Any, limits: Limits, *, start: Any = None, on_event: Any = None) -> Answer[Any]:
        import ctypes

        ctypes.CDLL(None).puts(b"presolve: removed everything")
        os.write(1, b"iteration 1\n")
        return replace(Highs().solve(form, limits), engine="chatty")


def _say_ready() -> None:
    """Tell the test, through a file, that the work has begun."""
    with open(os.environ["ODD_ENGINE_READY"], "w") as file:
        file.write(str(time.monotonic()))


def register() -> None:
    """Add the engines to this process's registry, behind hetplan's own."""
    from hetplan import registry

    for engine in (Sleepy, Deaf, Broken, Speechless, Proofless, Late, Chatty):
        registry.SOLVERS[engine.name] = (engine.form, f"odd_engines:{engine.__name__}")
