"""The ancestor of every form: a mathematical question that knows neither paper nor engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from hetplan.planner.answer import Answer, Certificate

__all__ = ["Form", "X", "certify"]

X = TypeVar("X")


class Form(Generic[X]):
    """A question; `X` is what an answer's point looks like.

    A form checks answers itself, from its own data alone: `certify` delegates here. That is what makes a claim
    independent of the engine that made it.
    """

    kind: ClassVar[str]
    """The form's name in plans, messages and the registry: "milp", "packing", ..."""

    def size(self) -> dict[str, int]:
        """How large the question is, for the solve record: {"rows": 120, "columns": 340}."""
        raise NotImplementedError

    def certify(self, answer: Answer[X]) -> Certificate:
        """Recompute from this form's data what the answer claims."""
        raise NotImplementedError

    def written_proof(self, answer: Answer[X]) -> dict[str, Any] | None:
        """What a plan carries of an answer so that others can prove its bound again; None where there is nothing."""
        del answer
        return None

    def bound_of_written(self, proof: Mapping[str, Any]) -> float | None:
        """The bound of this form that such a proof shows; None, or an error of reading it, where it shows none."""
        del proof
        return None


def certify(form: Form[X], answer: Answer[X]) -> Certificate:
    """Recompute from the form what the answer claims: always feasibility and value; bounds where a proof is carried."""
    return form.certify(answer)
