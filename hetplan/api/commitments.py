"""Plans one moment of a plan with periods, with the machines that it reserved.

What is paid for ahead is paid whether it runs or not. So the offers are sold otherwise at a moment: as many machines of
each as are paid for, nearly for nothing, and what is left of the stock by the hour. The second is an offer of its own
while a plan is made. In the plan that comes of it both have the name of the offer, and groups that differ in nothing
else are one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.serving.runs import machine_price

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan
    from hetplan.profiles.plan_parts import Commitment
    from hetplan.profiles.profile import Offer, Profile
    from hetplan.profiles.slo import Slo
    from hetplan.profiles.state import State
    from hetplan.profiles.workers import Load, Worker

__all__ = ["PaidAhead"]

LESS = 1000
"""A machine that is paid for costs so many times less than by the hour: what costs nothing would run without need."""
BESIDE = "-rented"
MOST_LETTERS = 52
"""A name may have 63."""


@dataclass(frozen=True)
class PaidAhead:
    """What is sold at a moment, and how names are translated: `rented` has the offer of each name beside it."""

    profile: Profile
    paid: Mapping[str, int]
    rented: Mapping[str, str]
    wish: Slo

    @classmethod
    def of(cls, profile: Profile, slo: Slo, commitments: Iterable[Commitment] = ()) -> PaidAhead:
        """The files as they are at a moment; an offer whose share of all machines is limited is rented by the hour."""
        counts, limits = Counter[str](), dict(slo.limits.offers)
        for one in commitments:
            counts[one.offer] += one.count
        unknown = sorted(set(counts) - set(profile.offers))
        if unknown:
            raise InputError.one(
                file="plan", path="$.commitments", value=", ".join(unknown), why="the profile has no such offer",
                remedy="Name the profile that the plan was made from.",
            )  # fmt: skip
        offers, rented, paid = dict[str, Any](), dict[str, str](), dict[str, int]()
        for name, offer in profile.offers.items():
            limit, by_the_hour = limits.get(name), offer.model_copy(update={"commit": None})
            if not counts[name] or (limit is not None and limit.of_all):
                offers[name] = by_the_hour
                continue
            most = [one for one in (offer.stock, limit.max if limit is not None else None) if one is not None]
            paid[name] = min([counts[name], *most])
            price = max(1, machine_price(offer, profile.hardware[offer.hardware]) // LESS)
            update = {"price_per_hour": price, "per": None, "stock": paid[name]}
            offers[name] = by_the_hour.model_copy(update=update)
            if limit is not None:
                limits[name] = limit.model_copy(update={"min": min(limit.min, paid[name]), "max": None})
            left = min(most) - paid[name] if most else None
            if left != 0:
                beside = _beside(name, profile.offers)
                offers[beside], rented[beside] = by_the_hour.model_copy(update={"stock": left}), name
        # A limit on reserved machines is of what is bought, and nothing is bought here.
        wish = slo.model_copy(update={"limits": slo.limits.model_copy(update={"offers": limits, "reserved": None})})
        return cls(profile.model_copy(update={"offers": offers}), paid, rented, wish)

    def state(self, state: State | None) -> State | None:
        """What runs, by the names of a moment: of an offer those that are paid for come first."""
        if state is None or not self.rented:
            return state
        left, names = dict(self.paid), {offer: name for name, offer in self.rented.items()}
        return state.model_copy(update={"workers": tuple(self._split(state.workers, left, names))})

    def _split(self, workers: Iterable[Worker], left: dict[str, int], names: Mapping[str, str]) -> Iterator[Worker]:
        for worker in workers:
            offer = worker.offer or ""
            own = min(left.get(offer, 0), worker.count) if offer in names else worker.count
            if offer in names:
                left[offer] -= own
            if own:
                yield worker.model_copy(update={"count": own})
            if own < worker.count:
                # A host is of the offer that the profile names; of those beside it only the number is known.
                update = {"count": worker.count - own, "offer": names[offer], "host": None}
                yield (_renamed(worker) if own else worker).model_copy(update=update)

    def plan(self, plan: Plan) -> Plan:
        """A plan of one period by the names of the profile, without a digest."""
        own = tuple(
            one.model_copy(update={"offer": self.rented.get(one.offer or "", one.offer)}) for one in plan.workers
        )
        back = plan.model_copy(update={"workers": own, "summary": None, "digest": None})
        for worker, old in zip(own, plan.workers, strict=True):
            if old.offer is not None and old.offer in self.rented:
                name = worker.id.replace(old.offer, self.rented[old.offer])
                back = _joined(back, worker) or _called(back, worker, name)
        return back


def _beside(name: str, known: Mapping[str, Offer]) -> str:
    """A name that no offer has."""
    found = f"{name[:MOST_LETTERS]}{BESIDE}"
    while found in known:
        found = f"{found[: MOST_LETTERS + len(BESIDE)]}-{len(known)}"
    return found


def _renamed(worker: Worker) -> Worker:
    """A second group of the same loads: ids are different in a state."""
    loads = tuple(load.model_copy(update={"id": f"{load.id[:MOST_LETTERS]}{BESIDE}"}) for load in worker.loads)
    return worker.model_copy(update={"id": f"{worker.id[:MOST_LETTERS]}{BESIDE}", "loads": loads})


def _joined(plan: Plan, worker: Worker) -> Plan | None:
    """The plan with a group joined to one that differs by its name and count alone; None where there is none.

    Queries are led by shares, so those of both are added. Nothing else may name the group or its loads.
    """
    elsewhere = json.dumps(plan.model_dump(mode="json", include={"dispatch", "policies", "tables", "extensions"}))
    if any(f'"{name}"' in elsewhere for name in (worker.id, *(load.id for load in worker.loads))):
        return None
    alike = _content(worker)
    other = next((one for one in plan.workers if one.id != worker.id and _content(one) == alike), None)
    if other is None:
        return None
    names = {load.id: same.id for load, same in zip(worker.loads, other.loads, strict=True)}
    both = other.model_copy(update={"count": other.count + worker.count, "standby": other.standby + worker.standby})
    workers = (both if one.id == other.id else one for one in plan.workers if one.id != worker.id)
    routing = {
        app: tuple(route.model_copy(update={"to": _added(route.to, names)}) for route in routes)
        for app, routes in plan.routing.items()
    }
    return plan.model_copy(update={"workers": tuple(workers), "routing": routing})


def _called(plan: Plan, worker: Worker, name: str) -> Plan:
    """The plan with this name for a group, and for its loads; as it is, where another has the name."""
    names = {worker.id: name} | {load.id: load.id.replace(worker.id, name) for load in worker.loads}
    known = {one.id for one in plan.workers} | {load.id for one in plan.workers for load in one.loads}
    if known & set(names.values()):
        return plan

    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            return names.get(value, value)
        if isinstance(value, Mapping):
            return {names.get(key, key): renamed(one) for key, one in value.items()}
        return [renamed(one) for one in value] if isinstance(value, list) else value

    data = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    sections = ("workers", "routing", "dispatch", "policies", "extensions")
    return type(plan).model_validate({**data, **{one: renamed(data[one]) for one in sections if one in data}})


def _content(worker: Worker) -> tuple[Worker, tuple[Load, ...]]:
    """All of a group but its names and its number."""
    bare = worker.model_copy(update={"id": "w", "count": 1, "standby": 0, "loads": ()})
    return bare, tuple(load.model_copy(update={"id": "l"}) for load in worker.loads)


def _added(shares: Mapping[str, float], names: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for load, share in shares.items():
        own = names.get(load, load)
        found[own] = min(found.get(own, 0.0) + share, 1.0)
    return found
