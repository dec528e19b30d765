"""Steps one by one: each is in the journal before it begins and after it ended; from a failure there is a way back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NoReturn

from hetplan.errors import Interrupted
from hetplan.executor.durable import Journal, Unfinished
from hetplan.executor.target import ApplyFailed, TargetFailed, TargetRefused

__all__ = ["Progress", "Say", "Task", "bring_about", "one_by_one", "resumed"]


@dataclass(frozen=True)
class Progress:
    """Something that happens during an apply: "resume", "step", "done", "failed", "undo", "undone"."""

    kind: str
    number: int
    of: int
    text: str


Say = Callable[[Progress], None]
Task = tuple[str, Callable[[], None]]
"""What is done, in words, and how."""


def one_by_one(journal: Journal, plan: str, tasks: Sequence[Task], say: Say, cancel: threading.Event | None) -> None:
    """Do them all. `TargetRefused` by the first says that nothing was touched; `Interrupted` comes between two."""
    if tasks:
        journal.begin(plan, len(tasks))
    for number, (text, do) in enumerate(tasks, start=1):
        if cancel is not None and cancel.is_set():
            at = f"stopped before step {number} of {len(tasks)}"
            raise Interrupted(f"{at}; the next apply finishes it, apply --undo --yes goes back")
        say(Progress("step", number, len(tasks), text))
        journal.add(number, "begin", text)
        try:
            do()
        except TargetRefused as error:
            if number > 1:
                raise TargetFailed(error.target, error.about, error.cause) from None
            journal.close()
            raise
        journal.add(number, "end", text)
        say(Progress("done", number, len(tasks), text))


def resumed(journal: Journal, say: Say) -> Unfinished | None:
    """What an apply that was cut off left behind, said to be gone on with."""
    found = journal.unfinished()
    if found is not None:
        say(Progress("resume", found.ended, found.steps, str(found)))
    return found


def bring_about(
    journal: Journal, plan: str, tasks: Sequence[Task], say: Say, cancel: threading.Event | None, *,
    end: Callable[[], None], back: Callable[[], Sequence[Task]],
) -> None:  # fmt: skip
    """Do them all, and what is at their end; from a failure go back. `ApplyFailed` says what came of it."""
    try:
        one_by_one(journal, plan, tasks, say, cancel)
        end()
    except TargetRefused as error:
        raise ApplyFailed(f"{error.why}. Nothing was touched", undone=True) from None
    except (ApplyFailed, OSError) as error:
        folder = f"the state directory {journal.path.parent}"
        why = error.why if isinstance(error, ApplyFailed) else f"{folder}: {error.strerror or error}"
        say(Progress("failed", 0, len(tasks), why))
        if not tasks:
            raise ApplyFailed(why) from None
        _go_back(why, journal, back, say)


def _go_back(why: str, journal: Journal, tasks: Callable[[], Sequence[Task]], say: Say) -> NoReturn:
    """To what ran before; raises `ApplyFailed` with what came of it."""
    done: Sequence[Task] = ()
    try:
        done = tasks()
        for number, (text, do) in enumerate(done, start=1):
            say(Progress("undo", number, len(done), text))
            do()
    except (ApplyFailed, OSError) as error:
        cause = error.cause if isinstance(error, TargetFailed) else str(error)
        again = "" if cause == why or why.endswith(cause) else f": {error}"
        raise ApplyFailed(
            f"{why}. Going back failed too{again}. `hetplan status` shows what runs; apply again finishes, "
            "apply --undo --yes goes back"
        ) from None
    with suppress(OSError):
        journal.close()
    say(Progress("undone", 0, len(done), "what ran before runs again"))
    raise ApplyFailed(f"{why}. What ran before runs again", undone=True)
