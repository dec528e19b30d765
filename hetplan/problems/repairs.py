"""Repairs in words: one number of the user's files, what it is, and what it would have to be."""

from __future__ import annotations

from hetplan.planner.draft import Repair
from hetplan.profiles.slo import App
from hetplan.serving.strictest import strictest

__all__ = ["change", "where_late"]

LESS, MORE = 0.75, 1.4
"""Times a rate, and times a limit: the first guess at what helps a plan that is late."""


def change(at: str, stated: float, to: float, unit: str = "", *, more: str = "") -> Repair:
    """The repair of one number; `more` ends its text.

    >>> change("slo.limits.moves", 2, 5, "moves").text
    'raise slo.limits.moves from 2 to 5 moves'
    >>> change("slo.apps.a.demand.rate_qps", 101, 100.0, "qps").amount
    1.0
    """
    verb = "raise" if to > stated else "lower"
    text = f"{verb} {at} from {stated:.6g} to {to:.6g}{f' {unit}' if unit else ''}{more}"
    return Repair(at, verb, abs(to - stated), to, unit, text)


def where_late(name: str, app: App, rate_qps: float | None) -> tuple[Repair, ...]:
    """What may help an application whose queries are late in simulation: fewer of them, or more time for each.

    >>> app = App.model_validate({"runs": {"variants": ["m"]}, "latency": [{"percentile": 99, "max_ms": 80}]})
    >>> [one.text for one in where_late("a", app, 40.0)]  # doctest: +NORMALIZE_WHITESPACE
    ['lower slo.apps.a.demand.rate_qps from 40 to 30 qps or so',
     'raise slo.apps.a.latency[0].max_ms from 80 to 112 ms or so']
    """
    repairs = []
    if rate_qps:
        repairs.append(change(f"slo.apps.{name}.demand.rate_qps", rate_qps, LESS * rate_qps, "qps", more=" or so"))
    target = strictest(app)
    if target is not None:
        at = f"slo.apps.{name}.latency[{target.place}].max_ms"
        repairs.append(change(at, target.max_ms, MORE * target.max_ms, "ms", more=" or so"))
    return tuple(repairs)
