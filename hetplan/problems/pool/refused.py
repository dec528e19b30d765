"""What a pool refuses of files that are sound one by one: machines that are not there, wishes against options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hetplan.errors import Fault
from hetplan.planner.request import PLENTY, Request
from hetplan.problems.faults import Faults
from hetplan.problems.pool.letters import Times, Type
from hetplan.problems.pool.options import PoolOptions
from hetplan.problems.pool.wish import Wish
from hetplan.profiles.fields import money_text
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice
from hetplan.profiles.profile import Variant

__all__ = ["check_all", "check_types"]


def check_types(
    inputs: Inputs,
    wish: Wish,
    request: Request,
    without: Mapping[str, str],
    faults: Faults,
    notices: Sequence[Notice],
) -> None:
    """What is demanded and is not there (`without` says why), what nothing limits; and whether anything is there."""
    for name, sold in inputs.profile.offers.items():
        if sold.currency != inputs.slo.limits.currency:
            why = f"the SLO counts in {inputs.slo.limits.currency}"
            remedy = "Convert one of them; hetplan knows no exchange rates."
            faults.in_profile(f"$.offers.{name}.currency", why, remedy, value=sold.currency)
    for hardware, why in without.items():
        _absent(inputs, hardware, why, faults)
    variant: Variant = inputs.profile.variants[wish.variant]
    known = {run.hardware for run in variant.runs}
    for hardware, (least, _) in inputs.slo.limits.instances.items():
        if hardware not in known and least > 0:
            _absent(inputs, hardware, f"{wish.variant} has no run on it", faults)
    for kind in request.machines:
        if kind.least > sum(offer.stock for offer in kind.offers):
            faults.in_slo(
                f"$.limits.instances.{kind.id}[0]",
                f"more than the offers of {kind.id} have in stock",
                "Lower it, or raise the stock of an offer.",
                value=kind.least,
            )
        if (
            wish.rate_qps is None
            and kind.most >= PLENTY
            and any(offer.nanos == 0 and offer.stock >= PLENTY for offer in kind.offers)
        ):
            faults.in_slo(
                f"$.limits.instances.{kind.id}",
                f"{kind.id} costs nothing and nothing limits its number",
                "Give [least, most], or a stock to its offer.",
            )
    for offer in request.offers:
        bought = wish.budget // offer.nanos if wish.budget is not None and offer.nanos > 0 else 0
        if min(bought, offer.stock, request.of(offer.machine).most) >= PLENTY:
            faults.in_profile(
                f"$.offers.{offer.id}.price_per_hour" if offer.id else f"$.variants.{wish.variant}.runs",
                f"the budget buys {bought:,} of these, and pools of {PLENTY:,} or more are not planned",
                "Check the price, or give [least, most] in limits.instances.",
                value=money_text(offer.nanos),
            )
    if not request.machines and not faults.found:
        _nothing_to_rent(wish, faults, notices)


def _nothing_to_rent(wish: Wish, faults: Faults, notices: Sequence[Notice]) -> None:
    left_out = [f"{notice.at.removeprefix('hardware.')}: {notice.text}" for notice in notices]
    why = f" ({'; '.join(left_out)})" if left_out else ""
    remedy = "Add a run on a hardware with an offer (and list it in limits.instances where only_listed is set)."
    if any(notice.code == "W-too-small" for notice in notices):
        remedy = "Say under `provides` all that the hardware has, or lower what the run needs."
    faults.in_profile(
        f"$.variants.{wish.variant}.runs", f"no hardware that may be rented runs this variant{why}", remedy
    )


def _absent(inputs: Inputs, hardware: str, why: str, faults: Faults) -> None:
    least, _ = inputs.slo.limits.instances.get(hardware, (0, None))
    if least > 0:
        faults.in_slo(
            f"$.limits.instances.{hardware}[0]",
            f"{hardware} is demanded, but {why}",
            "Set it to 0, or mend the profile.",
            value=least,
        )


def check_all(
    inputs: Inputs, wish: Wish, types: Sequence[Type], times: Times, options: PoolOptions, faults: Faults
) -> None:
    """What the files, each sound by itself, may not ask for together with the options of a pool.

    The rate is looked at only where all else is sound.
    """
    names = [kind.hardware for kind in types]
    if options.base_type is not None and types and options.base_type not in names:
        faults.in_options(
            "base_type", "no type of this pool", f"Name one of {', '.join(names)}.", value=options.base_type
        )
    _check_tolerance(wish, options, faults)
    _check_measured(inputs, faults)
    _check_dispatch(wish, types, options, faults)
    if not faults.found:
        _check_rate(wish, times, options, faults)


def _check_tolerance(wish: Wish, options: PoolOptions, faults: Faults) -> None:
    """A target at a percentile leaves its own share of late queries, and a plan may not be made to exceed it."""
    if wish.targets and options.violation_tolerance > wish.targets[-1].left + 1e-9:
        percentile = wish.app.latency[wish.targets[-1].place].percentile
        faults.in_options(
            "violation_tolerance",
            f"the latency target is at percentile {percentile:g}, which leaves {wish.targets[-1].left:.4g}",
            "Lower the option, or the percentile.",
            value=options.violation_tolerance,
        )


def _check_dispatch(wish: Wish, types: Sequence[Type], options: PoolOptions, faults: Faults) -> None:
    """A rule other than matching is for single queries, a threshold for queries of one size."""
    if options.dispatch == "matching":
        return
    why = remedy = ""
    if any(kind.is_rate for kind in types):
        why, remedy = "runs that state rates serve several queries at once", "Leave it out: their shares decide."
    elif options.dispatch == "threshold" and len(wish.points[0]) != 1:
        why, remedy = "a threshold parts queries of one size, so of one axis", 'Take "earliest", or leave it out.'
    if why:
        faults.in_options("dispatch", why, remedy, value=options.dispatch)


def _check_measured(inputs: Inputs, faults: Faults) -> None:
    """Measurements that nobody reads would be hashed into the plan as if they had mattered."""
    if inputs.measured is not None:
        name = inputs.files.get("measured", "measured")
        why = "the question pool reads no measurements beside the profile"
        remedy = "Leave it out (--measured); what was measured goes into the profile's tables."
        faults.found.append(Fault(name, "$", "", why, remedy))


def _check_rate(wish: Wish, times: Times, options: PoolOptions, faults: Faults) -> None:
    """A rate for which more instances would be needed than engines can count exactly."""
    if wish.rate_qps is None:
        return
    with np.errstate(over="ignore"):
        fastest = times.mean_ms.min(axis=1)
        needed = float(wish.p[np.isfinite(fastest)] @ fastest[np.isfinite(fastest)]) / 1000.0
        instances = np.float64(needed) * wish.rate_qps / options.derate
    if instances > PLENTY:
        faults.in_slo(
            f"$.apps.{wish.app_id}.demand.rate_qps",
            f"more than {PLENTY:,} instances would be needed, at derate {options.derate:g}",
            "Check the number (rates are per second), the unit of the tables and option derate.",
            value=wish.rate_qps,
        )
