"""What a solver says, the limits it was given, and what could be proved again of what it said."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from hetplan.errors import InputError
from hetplan.planner.tolerances import ROUNDING
from hetplan.profiles.arguments import is_number

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Answer", "Certificate", "Deadline", "Limits", "Status", "Stop", "Vouched", "left_of", "relative_gap"]

X = TypeVar("X")


class Status(StrEnum):
    """What is claimed about a form."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    NO_ANSWER = "no-answer"


class Stop(StrEnum):
    """Why the work ended."""

    FINISHED = "finished"
    GAP = "gap"
    TIME = "time"
    WORK = "work"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Limits:
    """What one conversation may spend. Seeds, clocks and threads come only through here.

    `work` counts what the engine counts (nodes, iterations): unlike seconds it is deterministic.
    """

    seconds: float | None = None
    work: int | None = None
    gap: float | None = None
    seed: int = 0
    threads: int = 1
    cancel: threading.Event | None = None
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)
    """What `seconds` are counted by; a test hands in one that advances with the work."""

    def __post_init__(self) -> None:
        wrong = {
            "seconds": self.seconds is not None and not (is_number(self.seconds) and self.seconds >= 0),
            "work": self.work is not None and not (is_number(self.work) and self.work >= 0),
            "gap": self.gap is not None and not (is_number(self.gap) and 0 <= self.gap <= 1),
            "seed": not (isinstance(self.seed, int) and self.seed >= 0),
            "threads": not (isinstance(self.threads, int) and self.threads >= 1),
        }
        for name, is_wrong in wrong.items():
            if is_wrong:
                why = "a limit is a number that is not negative; a gap is a share of at most 1; threads are at least 1"
                remedy = "Give such a number (a gap of 5% is 0.05), or leave the limit out."
                raise InputError.one(path=f"limits.{name}", value=getattr(self, name), why=why, remedy=remedy)


class Deadline(threading.Event):
    """Set once the seconds of a conversation are over, or its caller cancels: what all long work looks at.

    `heard`: somebody was told that it is set, so what they hand back is the best so far.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self._limits, self._began, self.heard = limits, limits.clock(), False

    @property
    def cancelled(self) -> bool:
        """Whether the caller asked the work to stop."""
        return self._limits.cancel is not None and self._limits.cancel.is_set()

    @property
    def spent(self) -> float:
        """Seconds since the conversation began."""
        return self._limits.clock() - self._began

    @property
    def remaining(self) -> float:
        """Seconds left: infinite without a limit, 0 once cancelled."""
        left = math.inf if self._limits.seconds is None else self._limits.seconds - self.spent
        left = 0.0 if left <= 0 or self.cancelled else left
        self.heard |= not left
        return left

    def is_set(self) -> bool:
        """Whether the work is to end."""
        return not self.remaining

    def is_near(self, reserved: float) -> bool:
        """Whether no more than this part of the seconds is left."""
        near = self.remaining <= reserved * (self._limits.seconds or 0.0)
        self.heard |= near
        return near


@dataclass(frozen=True)
class Answer(Generic[X]):
    """An engine's word about one form.

    `bound` is the engine's own dual bound (upper for max, lower for min). `row_duals` are the prices of a pure linear
    program's rows: the derivative of the optimal value with respect to the row's right-hand side, in the form's own
    sense. `ray` proves what `status` says: for INFEASIBLE a multiplier per row (Farkas), for UNBOUNDED a direction per
    column. A form may carry other proofs under `proof` (prices of an oracle, a value function).
    """

    status: Status
    stop: Stop = Stop.FINISHED
    point: X | None = None
    value: float | None = None
    bound: float | None = None
    row_duals: NDArray[np.float64] | None = None
    ray: NDArray[np.float64] | None = None
    proof: Mapping[str, object] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)
    engine: str = ""
    deterministic: bool = True
    detail: str = ""

    @property
    def has_point(self) -> bool:
        """Whether there is something to read."""
        return self.point is not None


def left_of(limits: Limits, started: float) -> Limits:
    """The same limits with the seconds that are left since `started` (by their clock)."""
    if limits.seconds is None:
        return limits
    return replace(limits, seconds=max(0.0, limits.seconds - (limits.clock() - started)))


def relative_gap(value: float, bound: float, *, floor: float = 1e-9) -> float:
    """|value - bound| / max(|value|, |bound|, floor); what is no more than rounding is 0.

    >>> relative_gap(2.0, 1.5)
    0.25
    >>> relative_gap(0.0, 0.0)
    0.0
    """
    gap = abs(value - bound) / max(abs(value), abs(bound), floor)
    return gap if gap > ROUNDING else 0.0


class Vouched(StrEnum):
    """Who vouches for a bound."""

    CERTIFIED = "certified"
    CLAIMED = "claimed"
    NONE = "none"


@dataclass(frozen=True)
class Certificate:
    """The verdict on one answer.

    `faults` says what the answer claims that is not so (an infeasible point, a wrong value, a bound that its own
    proof refutes); an answer with faults is never used. `value` is recomputed. `bound` is the best bound there is a
    word for, and `vouched` says whose: re-proved here, or the engine's. `certified_bound` is the re-proved one even
    where the engine claims a better.
    """

    faults: tuple[str, ...] = ()
    value: float | None = None
    bound: float | None = None
    vouched: Vouched = Vouched.NONE
    certified_bound: float | None = None
    infeasible: Vouched = Vouched.NONE
    residual: float = 0.0

    @property
    def sound(self) -> bool:
        """Nothing claimed was refuted."""
        return not self.faults
