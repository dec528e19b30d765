"""What became of the bounds of a plan's claims, once they were looked at again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from hetplan.planner.answer import relative_gap

if TYPE_CHECKING:
    from hetplan.profiles.plan import Claim, Plan

__all__ = ["BoundVerdict", "Word", "compare_bound", "has_unproved_bound", "unproved_bound", "words_of_bounds"]

SHORT = 1e-8
"""By how much less than a claim says a proof may show, relative to the bound: numbers of plans have 12 digits."""


class Word(StrEnum):
    """What a bound is, once it was looked at again."""

    PROVED = "proved again"
    FOUND = "found again by an engine"
    OPEN = "not proved here"
    REFUTED = "refuted"


@dataclass(frozen=True)
class BoundVerdict:
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


def has_unproved_bound(plan: Plan, claims: Sequence[BoundVerdict]) -> bool:
    """Whether any bound of a plan was not proved again."""
    words = {one.at: one.word for one in claims}
    bound = [f"claims[{place}]" for place, claim in enumerate(plan.claims) if claim.bound is not None]
    return any(words.get(at) is not Word.PROVED for at in bound)


def words_of_bounds(claims: Sequence[BoundVerdict]) -> dict[str, str]:
    """What became of the bound of each objective; of two claims about the same one, the word that is not a proof."""
    found: dict[str, str] = {}
    for one in claims:
        if found.get(one.about, Word.PROVED) == Word.PROVED:
            found[one.about] = str(one.word)
    return found


def compare_bound(claim: Claim, shown: float, number: int) -> BoundVerdict:
    """The bound of the claim of this number against what the planner's program showed."""
    assert claim.bound is not None
    short = shown - claim.bound if claim.sense == "max" else claim.bound - shown
    if not short <= SHORT * max(abs(claim.bound), 1e-9):
        return unproved_bound(claim, number, f"its proof shows {shown:.9g}")
    about, gap = f"{claim.sense} {claim.about}", relative_gap(claim.value, claim.bound)
    text = f"bound {claim.bound:.6g} is proved again by the planner's program"
    return BoundVerdict(f"claims[{number}]", about, Word.PROVED, text, gap)


def unproved_bound(claim: Claim, number: int, why: str) -> BoundVerdict:
    """A bound that nothing here proves."""
    at, about = f"claims[{number}]", f"{claim.sense} {claim.about}"
    if claim.bound is None:
        return BoundVerdict(at, about, Word.OPEN, "there is no bound")
    return BoundVerdict(at, about, Word.OPEN, f"bound {claim.bound:.9g} is not proved again here: {why}")
