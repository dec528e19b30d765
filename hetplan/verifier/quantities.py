"""The quantities that promises and claims may be about: whose they are, which way is better, who recomputes them.

A quantity that is not listed for a question of hetplan's own is one that nobody knows, and a promise of it is worth
nothing. What questions of other packages promise beyond this list is left to their own checks.
"""

from __future__ import annotations

import re

__all__ = ["QUESTIONS", "RECOMPUTED", "is_claimable", "is_known", "plain_name", "sense_of"]

QUESTIONS = frozenset({"pool", "pipeline", "variants", "policy", "compound"})
"""Questions of which every quantity is listed here."""

RECOMPUTED = frozenset({"rate_qps", "fluid_rate_qps", "quality", "response_ms", "service_ms"})
"""What following the routing of an application gives."""

_OF_PLAN = frozenset({"servers", "cost_per_hour"})
_OWN_OF_PLAN = {
    "pipeline": frozenset({"moves"}),
    "variants": frozenset({"gross_cost_per_hour", "net_cost_per_hour"}),
    "compound": frozenset({"goodput", "served", "candidates_per_hour"}),
}
_OWN_OF_APP = {"compound": frozenset({"rounds_unserved"})}
_SHOWN_ONLY = frozenset({"goodput", "violations", "utilisation", "served", "ttft_ms", "tpot_ms"})
"""What simulation, measurement or a model of queues tells of an application, and arithmetic does not."""

_SENSE = {
    **dict.fromkeys(("cost_per_hour", "gross_cost_per_hour", "candidates_per_hour", "packed_per_hour"), "min"),
    **dict.fromkeys(("servers", "moves"), "min"),
    **dict.fromkeys(("rate_qps", "fluid_rate_qps", "served_share", "goodput", "aged_goodput"), "max"),
    **dict.fromkeys(("quality", "least_quality", "quality_per_step", "accuracy_per_decision"), "max"),
}
_CLAIMED_ONLY = {
    "pipeline": frozenset({"least_quality", "quality_per_step", "served_share"}),
    "compound": frozenset({"aged_goodput", "packed_per_hour"}),
    "policy": frozenset({"accuracy_per_decision", "goodput", "quality"}),
}
_OF_DECISIONS = re.compile(r"accuracy_of_[0-9]+_decisions\Z")


def is_known(question: str, quantity: str, *, of_app: bool, arithmetic: bool) -> bool:
    """Whether a plan of this question may promise a quantity of an application, or of itself, by such a model."""
    if not of_app:
        return quantity in _OF_PLAN | _OWN_OF_PLAN.get(question, frozenset())
    shown = frozenset[str]() if arithmetic else _SHOWN_ONLY
    return quantity in RECOMPUTED | _OWN_OF_APP.get(question, frozenset()) | shown


def plain_name(about: str) -> str:
    """What a claim is about, without the part of the plan that it is told of: ``goodput[group@400qps]``.

    >>> plain_name("goodput[images on a100@400qps]")
    'goodput'
    """
    return about.partition("[")[0]


def is_claimable(question: str, about: str) -> bool:
    """Whether a claim of this question may be about what the plan does not promise: the value of a program, say."""
    name = plain_name(about)
    own = name in _CLAIMED_ONLY.get(question, ())
    return own or (question == "policy" and _OF_DECISIONS.match(name) is not None)


def sense_of(about: str) -> str | None:
    """Which way is better, where that is known."""
    return _SENSE.get(plain_name(about))
