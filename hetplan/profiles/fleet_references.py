"""References of what only fleets say: zones of offers, limits per offer, more failures than there are zones."""

from __future__ import annotations

from hetplan.profiles.dangling import Dangling
from hetplan.profiles.fleet_fields import KINDS, OfferLimit, place_of
from hetplan.profiles.json_path import closest
from hetplan.profiles.slo import Slo

__all__ = ["check_limits", "check_zones"]


def check_zones(found: Dangling) -> None:
    """Quotas are of zones that machine types are in, and of what these provide."""
    profile = found.profile
    zones = sorted({offer.zone for offer in profile.offers.values() if offer.zone is not None})
    for name in profile.zones.keys() - set(zones):
        remedy = f"{closest(name, zones)}Zones of machine types are: {', '.join(zones) or 'none'}."
        found.fault(("zones", name), name, f"no machine type is in zone {name!r}", remedy)
    provided = {"machines"}.union(*(hardware.provides for hardware in profile.hardware.values()))
    for name, zone in profile.zones.items():
        for resource in zone.quota.keys() - provided:
            remedy = f"{closest(resource, provided)}Machine types provide: {', '.join(sorted(provided))}."
            found.fault(("zones", name, "quota", resource), resource, f"no machine type provides {resource!r}", remedy)


def check_limits(found: Dangling, slo: Slo) -> None:
    """Limits name offers or ways to buy, and agree; there are more zones than may be lost."""
    profile, limits = found.profile, slo.limits
    for name in limits.offers:
        kind = {"on-demand": "on_demand", "committed": "reserved"}.get(name, name)
        if kind in KINDS:
            why = f"{kind} is a way to buy, and limited beside offers"
            found.fault(("limits", "offers", name), name, why, f'Write "limits": {{"{kind}": {{...}}}}.')
        elif name not in found.known["offers"]:
            remedy = f"{closest(name, profile.offers)}Name an offer."
            found.fault(("limits", "offers", name), name, f"there is no offer {name!r}", remedy)
    for name, limit in limits.purchases.items():
        if limit.min and limit.max_share == 0:
            why = f"no share for the {limit.min} machines of its floor"
            found.fault((*place_of(name), "max_share"), limit.max_share, why, 'Raise the share, or lower "min" to 0.')
    _check_shares(found, slo)
    zones = {offer.zone for offer in profile.offers.values() if offer.zone is not None}
    if limits.survive.zones and limits.survive.zones >= max(len(zones), 1):
        why = f"no zone would be left: machine types are in {len(zones)} and {limits.survive.zones} may be lost"
        remedy = f"Write at most {len(zones) - 1}." if len(zones) > 1 else "Give prices in two zones or more."
        found.fault(("limits", "survive", "zones"), limits.survive.zones, why, remedy)


_PRICE = {"spot": "spot", "on_demand": "price_per_hour", "reserved": "reserved"}
"""The key of a machine type that says what is bought so."""


def _check_shares(found: Dangling, slo: Slo) -> None:
    """What is spot is not on demand: their shares leave room for one another, and the machines are there."""
    profile, limits = found.profile, slo.limits
    offers = profile.offers.values()
    is_sold = {
        "spot": any(offer.interruptions_per_hour is not None for offer in offers),
        "on_demand": any(offer.interruptions_per_hour is None for offer in offers),
        "reserved": any(offer.commit is not None for offer in offers),
    }
    kinds = {"spot": limits.spot or OfferLimit(), "on_demand": limits.on_demand or OfferLimit()}
    at = ("limits", "spot" if limits.spot is not None else "on_demand")
    least, most = (sum(one.min_share for one in kinds.values()), sum(one.max_share for one in kinds.values()))
    if least > 1 + 1e-9:
        why = f"spot and on demand together at most 1, not {least:g} at least"
        found.fault((*at, "min_share"), least, why, "Lower one of the two floors.")
    elif most < 1 - 1e-9:
        why = f"spot and on demand together 1, not {most:g} at most"
        found.fault((*at, "max_share"), most, why, "Raise one of the two ceilings.")
    for kind, limit in {**kinds, "reserved": limits.reserved or OfferLimit()}.items():
        if limit.min_share > 0 and (not is_sold[kind] or limit.max == 0):
            why = f"no machine may be {kind}, and a share of {limit.min_share:g} must be"
            remedy = f"Lower the share, or give a machine type a price ({_PRICE[kind]})."
            found.fault(("limits", kind, "min_share"), limit.min_share, why, remedy)
        if limit.min > 0 and not is_sold[kind]:
            why = f"no machine may be {kind}, and {limit.min} must be"
            remedy = f"Leave it out, or give a machine type a price ({_PRICE[kind]})."
            found.fault(("limits", kind, "min"), limit.min, why, remedy)
