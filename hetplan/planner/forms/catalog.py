"""Many candidates, each with a cheap bound and a value that is dear to find out: which is worth the most?

::

    max over i of value(i),   value(i) <= bound[i]

`value` is a deterministic function of the candidate (a simulation with fixed seeds, a lookup); what was found is in
the form's own journal, so that an engine's word about a value is never needed, and no candidate is valued twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Status
from hetplan.planner.forms.form import Form
from hetplan.planner.tolerances import BOUND_SLIP, VALUE

if TYPE_CHECKING:
    from hetplan.planner.answer import Certificate

__all__ = ["Catalog"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Catalog(Form[int]):
    """Candidates by their number; see the module.

    `place` gives each candidate whole coordinates (a row each): what is near what, and what is contained in what.
    `bound` may be None: then nothing can be left out and nothing is proved but by trying all. `monotone` says that a
    candidate contained in another (nowhere larger) is worth no more. `prune` lets engines leave out what cannot be
    better; the proof of an answer rests on the bounds all the same. `cost` breaks ties: the cheaper first. `most` is
    how many candidates may be valued, where trying them has a price. `evaluate_above(i, best)` may be quicker: of a
    candidate that is worth no more than `best` it may say any value that is no more either.

    >>> worth = [3.0, 5.0, 4.0]
    >>> form = Catalog(np.array([[0], [1], [2]]), worth.__getitem__, bound=np.array([4.0, 6.0, 4.5]))
    >>> form.value(1), form.journal
    (5.0, {1: 5.0})
    >>> form.upper_bound()
    5.0
    """

    kind: ClassVar[str] = "catalog"
    sense: ClassVar[str] = "max"

    place: NDArray[np.int64]
    evaluate: Callable[[int], float]
    evaluate_above: Callable[[int, float], float] | None = None
    bound: Vector | None = None
    cost: Vector | None = None
    monotone: bool = False
    prune: bool = True
    most: int | None = None
    name: str = ""
    journal: dict[int, float] = field(default_factory=dict, compare=False)

    def __len__(self) -> int:
        return int(self.place.shape[0])

    def size(self) -> dict[str, int]:
        """Candidates, and how many of them were valued so far."""
        return {"candidates": len(self), "valued": len(self.journal)}

    def value(self, i: int, *, above: float = -np.inf) -> float:
        """What a candidate is worth; found out once. Only a value `above` that has to be exact."""
        if i not in self.journal:
            quick = self.evaluate_above if above > -np.inf else None
            self.journal[i] = float(self.evaluate(i) if quick is None else quick(i, above))
        return self.journal[i]

    def upper_bound(self) -> float:
        """No candidate is worth more: the best value found, or the highest bound of those not valued."""
        best = max(self.journal.values(), default=-np.inf)
        rest = np.ones(len(self), dtype=bool)
        rest[list(self.journal)] = False
        if not rest.any():
            return best
        return float("inf") if self.bound is None else max(best, float(self.bound[rest].max()))

    def certify(self, answer: Answer[int]) -> Certificate:
        """Values from the journal; the bound from the bounds of what was never valued."""
        from hetplan.planner.answer import Certificate, Vouched

        if answer.status is Status.INFEASIBLE:
            if len(self):
                return Certificate(faults=("infeasible, yet there are candidates to choose from",))
            return Certificate(infeasible=Vouched.CERTIFIED)
        if answer.status is Status.UNBOUNDED:
            return Certificate(faults=("unbounded, yet there are only finitely many candidates",))
        if answer.point is None:
            return Certificate()
        faults = self._faults(answer)
        if faults:
            return Certificate(faults=tuple(faults))
        value, proved = self.journal[answer.point], self.upper_bound()
        claimed = np.inf if answer.bound is None else answer.bound
        if np.isfinite(proved) and proved <= claimed + VALUE * max(1.0, abs(proved)):
            return Certificate(value=value, bound=proved, vouched=Vouched.CERTIFIED, certified_bound=proved)
        bound = float(claimed) if np.isfinite(claimed) else None
        vouched = Vouched.CLAIMED if bound is not None else Vouched.NONE
        certified = proved if np.isfinite(proved) else None
        return Certificate(value=value, bound=bound, vouched=vouched, certified_bound=certified)

    def _faults(self, answer: Answer[int]) -> list[str]:
        point = answer.point
        if not isinstance(point, int | np.integer) or not 0 <= point < len(self):
            return [f"candidate {point} is none of the {len(self)}"]
        if point not in self.journal:
            return [f"candidate {point} was never valued"]
        value, best = self.journal[point], max(self.journal.values())
        faults = []
        if answer.value is not None and abs(answer.value - value) > VALUE * max(1.0, abs(value)):
            faults.append(f"says {answer.value:.9g} where {value:.9g} was found")
        if answer.status is Status.OPTIMAL and best > value + VALUE * max(1.0, abs(best)):
            faults.append(f"calls {value:.9g} the best, and {best:.9g} was found")
        if answer.bound is not None and best > answer.bound + BOUND_SLIP * max(1.0, abs(best)):
            faults.append(f"bounds all by {answer.bound:.9g}, and {best:.9g} was found")
        return faults
