"""What a pool's SLO says: the one application, its variant, its classes of queries, its target, rate and budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hetplan.problems.faults import CAPACITY, ONE_STEP, Faults, refuse, refuse_not_provided
from hetplan.profiles.fields import money_text
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.slo import App, RateRange, Slo
from hetplan.serving.demand import Classes, Target, classes_of, response_targets
from hetplan.serving.runs import variants_of

__all__ = ["REFUSED", "Wish", "read_wish"]

REFUSED = {
    **ONE_STEP,
    **CAPACITY,
    "limits.moves": ("a pool is planned from nothing and counts no moves", "Leave it out."),
    "limits.survive.hosts": ("only the question fleet plans for failures", "Leave it out, or ask fleet."),
    "limits.survive.zones": ("only the question fleet plans for failures", "Leave it out, or ask fleet."),
    "change.slack": ("a pool keeps room by its derate", "Set option derate instead."),
    "change.slack_qps": ("a pool keeps room by its derate", "Set option derate instead."),
    "change.load_weight_per_s": ("this question does not weigh loading", "Leave it out."),
    "horizon.period_s": ("this question plans one period, and its length does not count", "Leave it out."),
    "horizon.periods": ("this question plans one period", "Leave it out, or ask fleet."),
    "apps.*.weight": ("a pool serves one application, so nothing is weighed", "Leave it out."),
    "apps.*.balancing": ("a pool's dispatch rule says where queries go", 'Set option dispatch instead.'),
    "apps.*.goodput": ("here violations.max says how many may be late", "State violations.max."),
    "apps.*.lifetime_s": ("this question plans applications that stay", "Leave it out."),
    "apps.*.deadline_s": ("only the question compound has a deadline for each application", "Set --time-limit."),
    "apps.*.device": ("this question uses no devices of applications", "Leave it out."),
    "apps.*.candidates": ("only the question compound packs candidate plans", 'Write "runs".'),
    "apps.*.demand.history_qps": ("a pool is sized for a stated rate", "Write it as rate_qps."),
    "apps.*.demand.series": ("this question plans for one rate", "Write rate_qps; hetplan simulate plays a series."),
    "apps.*.demand.streams": ("queries come at a rate", 'Write "rate_qps".'),
}  # fmt: skip
"""Fields of the SLO that this question does not keep: why, and what to write instead."""


@dataclass(frozen=True)
class Wish:
    """The SLO as the pool reads it.

    `points` are the classes of queries with a positive share `p`; `targets` are the response targets by percentile, the
    last of which is the one that choosing is about. Exactly one of `budget` (most rate for it) and `rate_qps` (least
    cost for it) is given; `then_cheapest` asks for the least cost among the pools of the most rate.
    """

    app_id: str
    app: App
    variant: str
    points: tuple[Mapping[str, float], ...]
    p: NDArray[np.float64]
    targets: tuple[Target, ...]
    budget: int | None
    rate_qps: float | None
    then_cheapest: bool

    @property
    def max_ms(self) -> float | None:
        """The latency target as the file states it (None where there is none)."""
        return self.targets[-1].max_ms if self.targets else None


def read_wish(inputs: Inputs, faults: Faults) -> Wish:
    """Read the SLO; raises with every fault when it cannot be read at all."""
    slo, profile = inputs.slo, inputs.profile
    if len(slo.apps) != 1:
        why = f"a pool serves one application, and the file has {len(slo.apps)}"
        faults.in_slo("$.apps", why, "Give one app per file.")
        faults.settle()
    ((app_id, app),) = slo.apps.items()
    names = variants_of(profile, app.runs)
    if len(names) != 1 or names[0] not in profile.variants:
        why, found = "a pool runs one variant of the profile", ", ".join(names) or "none"
        remedy = f'Write {{"variants": ["..."]}} with one of {", ".join(sorted(profile.variants)[:8])}.'
        faults.in_slo(f"$.apps.{app_id}.runs", why, remedy, value=found)
        faults.settle()
    classes, p = _coming(app)
    refuse(inputs.slo, REFUSED, faults)
    refuse_not_provided(inputs, faults)
    budget, rate, then_cheapest = _objective(slo, app_id, app, faults)
    targets = _targets(app_id, app, faults)
    return Wish(app_id, app, names[0], classes.points, p, targets, budget, rate, then_cheapest)


def _targets(app_id: str, app: App, faults: Faults) -> tuple[Target, ...]:
    """The limits on the response time, the highest percentile last."""
    found = response_targets(app)
    for target in found:
        if target.limit_ms() <= 0:
            why, remedy = (
                "the network alone takes the whole latency target",
                f"Raise latency[{target.place}].max_ms above it.",
            )
            faults.in_slo(f"$.apps.{app_id}.network_ms_per_hop", why, remedy, value=target.hop_ms)
    return found


def _objective(slo: Slo, app_id: str, app: App, faults: Faults) -> tuple[int | None, float | None, bool]:
    """(budget, rate, then cheapest) from limits, demand and objective, which must agree."""
    at = f"$.apps.{app_id}.demand.rate_qps"
    rate, budget = app.demand.rate_qps, slo.limits.cost_per_hour
    terms = [term.max or term.min or "" for term in slo.objective]
    if terms not in ([], ["rate"], ["rate", "cost"], ["cost"]):
        why = "a pool gives the most rate for a budget, or the least cost for a rate"
        remedy = 'Write [{"max": "rate"}], [{"max": "rate"}, {"min": "cost"}] or [{"min": "cost"}], or leave it out.'
        faults.in_slo("$.objective", why, remedy, value=", ".join(terms))
    if isinstance(rate, RateRange):
        faults.in_slo(at, "a pool is sized for one rate", 'Give a number, or "max".')
        return budget, None, False
    if rate is None or rate == "max":
        if budget is None:
            remedy = 'Give limits.cost_per_hour with rate_qps "max" for the most rate, or a number for the least cost.'
            place = "$.limits.cost_per_hour" if rate == "max" else at
            faults.in_slo(place, "neither a budget nor a rate is given", remedy)
        if terms == ["cost"]:
            faults.in_slo("$.objective", "the least cost needs a rate to be served", f"Give a number at {at}.")
        return budget, None, terms == ["rate", "cost"]
    if budget is not None:
        why = f"a budget and a rate ({rate:g} qps) are both given, and a pool is chosen for one of them"
        remedy = 'Remove it for the least cost of that rate, or set rate_qps to "max" for the most rate it buys.'
        faults.in_slo("$.limits.cost_per_hour", why, remedy, value=money_text(budget))
    if terms[:1] == ["rate"]:
        why = "the rate is given, so it cannot be maximised"
        faults.in_slo("$.objective", why, 'Set rate_qps to "max", or minimise cost.')
    return None, float(rate), False


def _coming(app: App) -> tuple[Classes, NDArray[np.float64]]:
    """The classes of queries that come at all, and their shares (summing to 1)."""
    found = classes_of(app.demand.mix).coming()
    p = np.array(found.shares, dtype=float)
    return found, p / p.sum()
