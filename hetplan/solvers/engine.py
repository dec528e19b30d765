"""How engines are run: refused or answered, one by one, in a thread that hears a cancel, or without their prints."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from hetplan.errors import NoSolver
from hetplan.planner.answer import Answer, Limits, left_of
from hetplan.planner.forms.form import Form

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["OneByOne", "in_background", "without_prints"]


FormT = TypeVar("FormT", bound=Form[Any])
X = TypeVar("X")


class OneByOne(Generic[FormT, X]):
    """The half of the solver protocol that is the same for all of them; an engine adds `answer` and `why_not`."""

    name: ClassVar[str]
    form: ClassVar[str]
    takes: ClassVar[Any]
    """The class of the forms that it answers."""

    def version(self) -> str:
        """The version of what it is made of: hetplan's own, or that of the package behind it ("" if missing)."""
        return "1"

    @property
    def signature(self) -> str:
        """Name and version, as an answer states them."""
        return f"{self.name} {self.version()}"

    def why_not(self, form: FormT) -> str:
        """Why a form of its kind is refused ("" when it is not)."""
        del form
        return ""

    def answer(self, form: FormT, limits: Limits, *, start: X | None, on_event: OnEvent | None) -> Answer[X]:
        """The answer to a form that is not refused."""
        raise NotImplementedError

    def refuses(self, form: Form[Any]) -> str:
        """Why this engine cannot take the form ("" when it can)."""
        if not isinstance(form, self.takes):
            return f"takes {self.form} forms, not {form.kind}"
        return self.why_not(cast("FormT", form))

    def solve(
        self, form: FormT, limits: Limits, *, start: X | None = None, on_event: OnEvent | None = None
    ) -> Answer[X]:
        """The answer; raises NoSolver where the form is refused."""
        reason = self.refuses(form)
        if reason:
            raise NoSolver(form.kind, {self.name: reason})
        return self.answer(form, limits, start=start, on_event=on_event)

    def solve_all(self, forms: Iterable[FormT], limits: Limits, *, on_event: OnEvent | None = None) -> list[Answer[X]]:
        """One after another; `limits.seconds` is for all of them."""
        started = time.monotonic()
        return [self.solve(form, left_of(limits, started), on_event=on_event) for form in forms]


T = TypeVar("T")
HEED_SECONDS = 0.05
"""How often the waiting thread looks up: short against a person's patience, long against the cost of looking."""


def in_background(work: Callable[[], T], *, stop: Callable[[], None] | None, cancel: threading.Event | None) -> T:
    """The result of `work`, run in a thread of its own; `stop` is called when the caller cancels or presses Ctrl-C.

    `stop` is called again until `work` returns (an engine may not have been up yet), which should be soon: an
    interrupted engine still hands back what it has. An engine without `stop` is waited for when the caller cancels;
    only Ctrl-C leaves it behind, since the process is about to end.
    """
    results: list[T] = []
    raised: list[BaseException] = []
    done = threading.Event()

    def go() -> None:
        try:
            results.append(work())
        except BaseException as error:
            raised.append(error)
        finally:
            done.set()

    worker = threading.Thread(target=go, daemon=True, name="hetplan-engine")
    worker.start()
    try:
        while not done.wait(HEED_SECONDS):
            if stop is not None and cancel is not None and cancel.is_set():
                stop()
    except BaseException:
        if stop is not None:
            stop()
            worker.join()
        raise
    worker.join()
    if raised:
        raise raised[0]
    return results[0]


_HUSHED = threading.Lock()
_hushed = 0
_printed_to: int | None = None
"""How many solves keep C code from printing now, and what it printed to before the first of them."""


@contextmanager
def without_prints() -> Iterator[None]:
    """Meanwhile what C code prints is dropped, and what Python prints is not.

    HiGHS calls `printf` in some hundred places (where it repairs a point, where a step fails), whatever its options. So
    glibc's `stdout` is another file for that time. No descriptor changes. Other C libraries may keep theirs read-only.
    """
    global _hushed, _printed_to
    stdout = _stdout_of_c()
    if stdout is None:
        yield
        return
    with _HUSHED:
        if _hushed == 0:
            _printed_to, stdout.value = stdout.value, _nowhere()
        _hushed += 1
    try:
        yield
    finally:
        with _HUSHED:
            _hushed -= 1
            if _hushed == 0:
                stdout.value = _printed_to


@functools.lru_cache(maxsize=1)
def _nowhere() -> int:
    """A C file that keeps nothing."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.fopen.restype, libc.fopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_char_p]
    return int(libc.fopen(os.fsencode(os.devnull), b"w"))


@functools.lru_cache(maxsize=1)
def _stdout_of_c() -> Any:
    """The variable in which glibc keeps where `printf` writes; None where the C library is another one."""
    import ctypes
    import platform

    if platform.libc_ver()[0] != "glibc":
        return None
    return ctypes.c_void_p.in_dll(ctypes.CDLL(None), "stdout")
