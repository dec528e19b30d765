"""Translates places in warnings, faults, conflicts and repairs into places of the files that a person wrote.

Inside, prices are offers and measurements tables (`profiles/lowering.py`); nobody outside has to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hetplan.errors import Fault, InputError
from hetplan.planner.draft import Edit, Repair
from hetplan.planner.outcome import Outcome
from hetplan.profiles.places import Steps, in_words
from hetplan.profiles.plan import Notice
from hetplan.profiles.profile import Profile

__all__ = ["error_as_written", "fault_as_written", "notices_as_written", "outcome_as_written", "place_of_stock"]


def error_as_written(error: InputError, profile: Profile) -> InputError:
    """The error with the places of its faults as the profile's files have them."""
    error.faults = tuple(fault_as_written(one, profile) for one in error.faults)
    error.args = (str(InputError(error.faults)),)
    return error


def fault_as_written(fault: Fault, profile: Profile) -> Fault:
    """The fault with its place as the profile's files have it."""
    if not fault.path.startswith("$."):
        return fault
    return replace(fault, path=f"$.{profile.places.text(fault.path[2:])}")


def notices_as_written(notices: Iterable[Notice], profile: Profile) -> tuple[Notice, ...]:
    """Warnings with their places as the profile's files have them."""
    places = profile.places
    return tuple(one if (at := places.text(one.at)) == one.at else one.model_copy(update={"at": at}) for one in notices)


def outcome_as_written(outcome: Outcome, profile: Profile) -> Outcome:
    """The outcome with its conflicts and repairs in the words of the files."""
    if not outcome.why and not outcome.repairs and outcome.plan is not None:
        return outcome
    why = tuple(_sentence(one, profile, apart=True) for one in outcome.why)
    repairs = tuple(_repair(one, profile) for one in outcome.repairs)
    warnings = notices_as_written(outcome.warnings, profile)
    return replace(outcome, why=why, repairs=repairs, warnings=warnings)


def place_of_stock(offer_id: str, profile: Profile) -> Steps:
    """Where the stock of one offer is written: at its machine type, where the file only lists the zones of that.

    >>> from hetplan.profiles.profile import Offer
    >>> offer = Offer(hardware="t4", price_per_hour=1, zone="east", interruptions_per_hour=0.1)
    >>> place_of_stock("t4-east-spot", Profile(offers={"t4-east-spot": offer}))
    ('machines', 't4', 'zones', 'east', 'spot', 'stock')
    """
    written = profile.places(("offers", offer_id, "stock"))
    return written if written[0] == "machines" else (*_place_of_offer(offer_id, profile), "stock")


def _place_of_offer(offer_id: str, profile: Profile) -> Steps:
    """Where one offer is written or can be, in a zone of its own."""
    offer = profile.offers[offer_id]
    _, machine = profile.places(("hardware", offer.hardware))
    zone = ("zones", offer.zone) if offer.zone is not None else ()
    spot = ("spot",) if offer.interruptions_per_hour is not None else ()
    return ("machines", machine, *zone, *spot)


def _sentence(text: str, profile: Profile, *, apart: bool = False) -> str:
    """A sentence with each place as the files have it; `apart` tells zones apart that share a line."""
    for offer in sorted(profile.offers, key=len, reverse=True):
        if offer not in text:
            continue
        place, zone = place_of_stock(offer, profile), profile.offers[offer].zone
        stock, hosts = f"profile.{in_words(place)}", f"profile.{in_words(_place_of_offer(offer, profile))}.hosts"
        of_zone = f" of zone {zone}" if apart and zone is not None and zone not in place else ""
        for old, new in (
            (f"profile.offers.{offer}.stock", stock + of_zone),
            (f"profile.hosts (under {offer})", hosts),
            (f" of offer {offer} to profile.hosts", f" to {hosts}"),
        ):
            text = text.replace(old, new)
    return profile.places.sentence(text)


def _repair(repair: Repair, profile: Profile) -> Repair:
    edits = tuple({(one.file, one.path): one for one in _edits(repair.edits, profile)}.values())
    parts = _sentence(repair.text, profile).split(", and ")  # zones that share a line are one change
    text = ", and ".join(one for at, one in enumerate(parts) if not any(two.startswith(one) for two in parts[at + 1 :]))
    return replace(repair, field=_sentence(repair.field, profile), text=text, edits=edits)


def _edits(edits: Sequence[Edit], profile: Profile) -> Iterable[Edit]:
    """Edits of the files; machines that are added under one offer are one edit."""
    more: dict[str, list[str]] = {}
    for edit in edits:
        if edit.file != "profile":
            yield edit
        elif edit.path[0] == "hosts":
            more.setdefault(edit.value["offer"], []).append(str(edit.path[1]))
        elif edit.path[0] == "offers" and edit.path[2:] == ("stock",):
            yield replace(edit, path=place_of_stock(str(edit.path[1]), profile))
        else:
            yield replace(edit, path=profile.places(edit.path))
    for offer, names in more.items():
        known = [name for name, host in profile.hosts.items() if host.offer == offer]
        yield Edit("profile", (*_place_of_offer(offer, profile), "hosts"), [*known, *names])
