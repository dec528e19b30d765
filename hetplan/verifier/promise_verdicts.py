"""What became of the promises that rest on simulation, once they were played again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Shown", "Tried", "verdict_text"]


class Shown(StrEnum):
    """What simulation says of a promise that rests on it, with seeds of its own."""

    MET = "met"
    BROKEN = "broken"
    UNDECIDED = "undecided"
    NOT_SIMULATED = "not simulated"
    NOT_PROMISED = "not promised"
    """A part says that it rests on a formula, and promises nothing that a simulation could show."""


@dataclass(frozen=True)
class Tried:
    """A promise that rests on simulation, what became of it, by how many queries, and what they showed."""

    at: str
    about: str
    word: Shown
    queries: int
    text: str


def verdict_text(tried: Sequence[Tried]) -> str:
    """The verdict on a plan in which nothing else is wrong; "verified" where every promise is met.

    What nobody promises is said beside it, and needs no simulation.
    """
    words = {one.word for one in tried}
    if Shown.NOT_SIMULATED in words:
        return "not simulated: nothing else is wrong"
    if Shown.UNDECIDED in words:
        return f"not refuted by {min(one.queries for one in tried if one.word is Shown.UNDECIDED)} queries"
    return "verified"
