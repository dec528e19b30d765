"""What may be rented: machine types, their offers, and what limits them, read once for every problem.

Whatever has a price of its own is an offer of a machine type. A type has its offers in order of price, so "the cheapest
so many" means the same wherever machines are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hetplan.profiles.fields import NANO
from hetplan.profiles.inputs import Inputs
from hetplan.serving.runs import machine_price

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PLENTY", "MachineType", "Offer", "Request", "cheapest_first", "read_request"]

PLENTY = 10**9
"""Where nothing limits machines there are as many: more than any plan file may count in one group of machines."""


@dataclass(frozen=True)
class Offer:
    """A price at which one machine of a type is had (a count of 1e-9 per hour), and how many there are at it.

    Its id is None where the profile has no offers, or the run on it has a price of its own. `hosts` names its machines
    where they are known one by one. Offers of one id draw on one stock.
    """

    id: str | None
    machine: str
    nanos: int
    stock: int = PLENTY
    hosts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called in a program: its id, else its machine type."""
        return self.id or self.machine

    @property
    def price(self) -> float:
        """Per hour, in currency units."""
        return self.nanos / NANO


def cheapest_first(count: int, stock: Sequence[int]) -> list[int]:
    """So many machines over offers, cheapest first.

    >>> cheapest_first(5, (3, 10))
    [3, 2]
    """
    found = []
    for most in stock:
        found.append(min(count, most))
        count -= found[-1]
    return found


@dataclass(frozen=True)
class MachineType:
    """Machines alike: their offers, cheapest first, what one provides, the least and the most that may be rented.

    Types of one `hardware` (by default the id) have these limits together.
    """

    id: str
    offers: tuple[Offer, ...]
    provides: Mapping[str, float] = field(default_factory=dict)
    least: int = 0
    most: int = PLENTY
    hardware: str = ""

    def __post_init__(self) -> None:
        if not self.hardware:
            object.__setattr__(self, "hardware", self.id)

    @cached_property
    def available(self) -> int:
        """How many can be had in all."""
        return min(self.most, sum(offer.stock for offer in self.offers))

    def taken(self, count: int) -> list[tuple[Offer, int]]:
        """From which offers so many come, cheapest first.

        >>> kind = MachineType("gpu", (Offer("spot", "gpu", 1, stock=2), Offer("gpu", "gpu", 3)))
        >>> [(offer.id, n) for offer, n in kind.taken(5)], kind.cost(5)
        ([('spot', 2), ('gpu', 3)], 11)
        """
        counts = cheapest_first(count, [offer.stock for offer in self.offers])
        return [(offer, here) for offer, here in zip(self.offers, counts, strict=True) if here]

    def cost(self, count: int) -> int:
        """What so many cost per hour, cheapest first."""
        return sum(offer.nanos * n for offer, n in self.taken(count))

    def affordable(self, nanos: int) -> int:
        """The most that can be had for so much money.

        >>> MachineType("gpu", (Offer("spot", "gpu", 1, stock=2), Offer("gpu", "gpu", 3))).affordable(10)
        4
        """
        count = 0
        for offer in self.offers:
            here = min(offer.stock, nanos // offer.nanos if offer.nanos else offer.stock, self.most - count)
            count, nanos = count + here, nanos - here * offer.nanos
            if here < offer.stock:
                break
        return count


@dataclass(frozen=True)
class Request:
    """The machine types that a plan may rent, and what limits all of them together.

    `budget` is a count of 1e-9 per hour; `resources` are totals of what rented machines provide.
    """

    machines: tuple[MachineType, ...]
    budget: int | None = None
    currency: str = "USD"
    resources: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """All offers, those of one type after the other."""
        return tuple(offer for kind in self.machines for offer in kind.offers)

    def allows(self, counts: Sequence[int] | NDArray[Any]) -> bool:
        """Whether so many machines of each offer may be rented; money apart."""
        of_type, of_hardware, of_offer = Counter[str](), Counter[str](), Counter[str]()
        for offer, count in zip(self.offers, counts, strict=True):
            of_type[offer.machine] += int(count)
            of_hardware[self.of(offer.machine).hardware] += int(count)
            of_offer[offer.name] += int(count)
        total = {
            resource: sum(kind.provides.get(resource, 0.0) * of_type[kind.id] for kind in self.machines)
            for resource in self.resources
        }
        return (
            all(of_offer[offer.name] <= offer.stock for offer in self.offers)
            and all(kind.least <= of_hardware[kind.hardware] <= kind.most for kind in self.machines)
            and all(total[resource] <= limit * (1 + 1e-12) for resource, limit in self.resources.items())
        )

    def of(self, machine: str) -> MachineType:
        """The type of this id."""
        return self._by_id[machine]

    @cached_property
    def _by_id(self) -> dict[str, MachineType]:
        return {kind.id: kind for kind in self.machines}

    def with_plenty(self) -> Request:
        """The same with as many machines of each type and offer as are wanted."""
        free = (
            replace(kind, most=PLENTY, offers=tuple(replace(offer, stock=PLENTY) for offer in kind.offers))
            for kind in self.machines
        )
        return replace(self, machines=tuple(free))

    def without_minima(self) -> Request:
        """The same where nothing has to be there."""
        return replace(self, machines=tuple(replace(kind, least=0) for kind in self.machines))

    def part(self, parts: int) -> Request:
        """What one of so many equal plans side by side may rent; minima are rounded up, all else down."""

        def share(count: int) -> int:
            return count if count >= PLENTY else count // parts

        machines = (
            replace(
                kind,
                least=-(-kind.least // parts),
                most=share(kind.most),
                offers=tuple(replace(offer, stock=share(offer.stock)) for offer in kind.offers),
            )
            for kind in self.machines
        )
        budget = None if self.budget is None else self.budget // parts
        return replace(self, machines=tuple(machines), budget=budget)


def read_request(
    inputs: Inputs,
    machines: Iterable[str],
    *,
    own_price: Mapping[str, int] | None = None,
    paid_by_run: Collection[str] = (),
) -> Request:
    """The named hardware that may be rented, in this order; left out is what no offer sells, or the SLO does not list.

    `own_price` has the hardware on which the run is paid, at which price: offers do not count there. Where the profile
    has no offers at all a machine costs 1. Of hardware that is `paid_by_run` (several, each at its price) the offers
    have their stock and cost nothing: what is paid are fees of the runs.
    """
    limits, hardware = inputs.slo.limits, inputs.profile.hardware
    own, found = own_price or {}, list[MachineType]()
    for name in machines:
        if limits.only_listed and name not in limits.instances:
            continue
        if name in own or not inputs.profile.offers:
            offers = [Offer(None, name, own.get(name, NANO))]
        else:
            offers = [
                Offer(
                    id,
                    name,
                    0 if name in paid_by_run else machine_price(one, hardware[name]),
                    PLENTY if one.stock is None else one.stock,
                )
                for id, one in inputs.profile.offers.items()
                if one.hardware == name
            ]
        if offers:
            least, most = limits.instances.get(name, (0, None))
            cheapest = tuple(sorted(offers, key=lambda offer: (offer.nanos, offer.name)))
            most = PLENTY if most is None else most
            found.append(MachineType(name, cheapest, hardware[name].provides, least, most))
    return Request(tuple(found), limits.cost_per_hour, limits.currency, limits.resources)
