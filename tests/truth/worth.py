"""One figure by which plans are compared: less is better."""

from __future__ import annotations

import math

from face import Answer


def worth(answer: Answer) -> float:
    """What the objective is, of one that is to be large its negative; no plan is worth least."""
    return _figure(answer, answer.value)


def least(answer: Answer) -> float:
    """What no plan can be better than, as the answer says."""
    return _figure(answer, answer.bound)


def _figure(answer: Answer, figure: float | None) -> float:
    if not answer.is_plan or figure is None or answer.claim is None:
        return math.inf
    return figure if answer.claim.sense == "min" else -figure
