"""References of what only fleets say: zones of offers, limits per offer, more failures than there are zones."""

from __future__ import annotations

from hetplan.profiles.dangling import Dangling
from hetplan.profiles.fleet_fields import KINDS
from hetplan.profiles.json_path import closest
from hetplan.profiles.slo import Slo

__all__ = ["check_limits", "check_zones"]


def check_zones(found: Dangling) -> None:
    """Every zone that an offer names is listed, where zones are listed at all; quotas name what hardware provides."""
    profile = found.profile
    zones = ", ".join(profile.zones)
    for name, offer in profile.offers.items():
        if offer.zone is not None and offer.zone not in profile.zones:
            remedy = f"{closest(offer.zone, profile.zones)}Zones are: {zones}."
            found.fault(("offers", name, "zone"), offer.zone, f"there is no zone {offer.zone!r}", remedy)
    provided = {"machines"}.union(*(hardware.provides for hardware in profile.hardware.values()))
    for name, zone in profile.zones.items():
        for resource in zone.quota.keys() - provided:
            remedy = f"{closest(resource, provided)}Hardware provides: {', '.join(sorted(provided))}."
            found.fault(("zones", name, "quota", resource), resource, f"no hardware provides {resource!r}", remedy)


def check_limits(found: Dangling, slo: Slo) -> None:
    """Limits name offers or ways to buy, and agree; there are more zones than may be lost."""
    profile, limits = found.profile, slo.limits
    for name in limits.offers:
        if name not in KINDS and name not in found.known["offers"]:
            remedy = f"{closest(name, [*profile.offers, *KINDS])}Name an offer, or one of {', '.join(KINDS)}."
            found.fault(("limits", "offers", name), name, f"there is no offer {name!r}", remedy)
    for kind in KINDS:
        if kind in limits.offers and kind in profile.offers:
            why = f"{kind!r} is both an offer and a way to buy"
            found.fault(("limits", "offers", kind), kind, why, "Rename the offer.")
    for name, limit in limits.offers.items():
        if limit.least and limit.share is not None and limit.share[1] == 0:
            why, remedy = (
                f"no share for the {limit.least} machines of its floor",
                'Raise the share, or lower "least" to 0.',
            )
            found.fault(("limits", "offers", name, "share"), limit.share[1], why, remedy)
    _check_shares(found, slo)
    zones = {offer.zone for offer in profile.offers.values() if offer.zone is not None}
    if limits.survive.zones and limits.survive.zones >= max(len(zones), 1):
        why = f"no zone would be left: the offers name {len(zones)} and {limits.survive.zones} may be lost"
        remedy = f"Write at most {len(zones) - 1}." if len(zones) > 1 else "Give offers in two zones or more."
        found.fault(("limits", "survive", "zones"), limits.survive.zones, why, remedy)


def _check_shares(found: Dangling, slo: Slo) -> None:
    """What is spot is not on demand: their shares leave room for one another, and the machines are there."""
    profile, offers = found.profile, slo.limits.offers
    sold = {
        "spot": [name for name, offer in profile.offers.items() if offer.interruptions_per_hour is not None],
        "on-demand": [name for name, offer in profile.offers.items() if offer.interruptions_per_hour is None],
    }
    spans = {kind: offers[kind].share or (0.0, 1.0) if kind in offers else (0.0, 1.0) for kind in ("spot", "on-demand")}
    at = ("limits", "offers", "spot" if "spot" in offers else "on-demand", "share")
    least, most = (spans["spot"][side] + spans["on-demand"][side] for side in (0, 1))
    if least > 1 + 1e-9:
        why = f"spot and on demand together at most 1, not {least:g} at least"
        found.fault(at, least, why, "Lower one of the two floors.")
    elif most < 1 - 1e-9:
        why = f"spot and on demand together 1, not {most:g} at most"
        found.fault(at, most, why, "Raise one of the two ceilings.")
    for kind, span in spans.items():
        none = not sold[kind] or (kind in offers and offers[kind].most == 0)
        if span[0] > 0 and none:
            why = f"no machine may be {kind}, and a share of {span[0]:g} must be"
            remedy = "Lower the share, or give an offer (of spot: with interruptions_per_hour)."
            found.fault(("limits", "offers", kind, "share"), span[0], why, remedy)
