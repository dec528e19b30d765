"""What became of the bounds of a plan's claims, once they were looked at again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ClaimAgain", "Word"]


class Word(StrEnum):
    """What a bound is, once somebody else than its writer has looked at it."""

    PROVED = "proved again"
    FOUND = "found again by an engine"
    OPEN = "not proved here"
    REFUTED = "refuted"


@dataclass(frozen=True)
class ClaimAgain:
    """A claim of the plan, what its bound is now, and why; `gap` is between its value and the bound proved again."""

    at: str
    about: str
    word: Word
    text: str
    gap: float | None = None

    def __str__(self) -> str:
        return f"{self.about}: {self.text}"

    @property
    def refuted(self) -> bool:
        """Whether its bound is not one."""
        return self.word is Word.REFUTED
