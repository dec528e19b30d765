"""What can be re-proved of an answer from its form alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Certificate", "Vouched"]


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
    detail: str = ""

    @property
    def sound(self) -> bool:
        """Nothing claimed was refuted."""
        return not self.faults
