"""Machines, the ways to run a variant on them, what runs now, and how much of each resource there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from hetplan.planner.choices import Choice
from hetplan.planner.request import PLENTY, MachineType, Offer, Request
from hetplan.problems.faults import Faults
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice
from hetplan.profiles.workers import Load, Share, Worker
from hetplan.serving.loads import offer_of, same_point
from hetplan.serving.price import Price
from hetplan.serving.runs import machine_price

__all__ = [
    "OWN",
    "WHOLE",
    "Kind",
    "Slot",
    "check_least",
    "count_of",
    "read_kinds",
    "read_slots",
    "read_types",
    "renting",
    "room_of",
]

WHOLE = "machines"
"""The resource of which a machine has one: taken by instances that are priced as a whole machine."""
OWN = "!"
"""Ends the name of machines that hold what is paid by itself: they are used up, and cost nothing."""


def count_of(kind: MachineType) -> int | None:
    """How many machines of a type may be had (None: as many as are wanted)."""
    return kind.available if kind.available < PLENTY else None


def room_of(kind: MachineType, resource: str) -> float | None:
    """How much one machine has of a resource (None: nobody says)."""
    if resource == WHOLE:
        return 1.0
    return kind.provides.get(resource, 0.0) if kind.provides else None


@dataclass(frozen=True, slots=True)
class Kind:
    """A choice on one type of machine, at one batch: the unit whose instances are counted.

    `price` is a count of 1e-9 per hour.
    """

    choice: Choice
    variant: str
    type: int
    hardware: str
    batch: int
    price: int
    needs: Mapping[str, float]
    slowdown: tuple[float, ...] = ()
    share: Share | None = None
    """The slice of a machine that is paid, where prices are by the unit."""
    part: float | None = None
    """The part of a machine that it takes, where instances share machines that are paid whole; `price` is that part's.
    None where it is paid by itself."""

    @property
    def id(self) -> str:
        """What distinguishes it from the other ways to run the variant on this hardware."""
        settings = "".join(f",{name}={value:g}" for name, value in self.choice.knobs.items())
        return f"{self.variant}@{self.hardware}/{self.batch}{settings}"

    @property
    def cost(self) -> float:
        """Currency units per hour; of what shares a machine, its part of it."""
        return self.price / NANO

    @property
    def paid(self) -> float:
        """What an instance costs by itself, per hour: nothing where its machine is paid whole, for all on it."""
        return self.cost if self.part is None else 0.0


@dataclass(frozen=True, slots=True)
class Slot:
    """Running instances: a load of a worker of the state, and which kind it is (None where the profile has no such)."""

    worker: Worker
    load: Load
    kind: int | None
    price: int = 0

    @property
    def instances(self) -> int:
        """How many run."""
        return self.worker.count * self.load.instances


def read_types(request: Request) -> tuple[MachineType, ...]:
    """Every hardware under each of its offers (or none), in the order of hardware and of the ids of offers."""
    profile, found = request.profile, list[MachineType]()
    for hardware, about in profile.hardware.items():
        least, most = request.instances.get(hardware, (0, 0 if request.only_listed else None))
        names = sorted(name for name, offer in profile.offers.items() if offer.hardware == hardware)
        for name in names or [""]:
            offer = Offer(None, hardware, 0 if profile.offers else NANO)
            if name:
                sold = profile.offers[name]
                hosts = tuple(sorted(host for host, at in profile.hosts.items() if at.offer == name))
                known = [n for n in (len(hosts) or None, sold.stock) if n is not None]
                stock = min(known, default=PLENTY)
                offer = Offer(name, name, machine_price(sold, about), stock, hosts[:stock])
            most_here = PLENTY if most is None else most
            found.append(MachineType(offer.machine, (offer,), about.provides, least, most_here, hardware))
    return tuple(found)


def renting(wanted: Request, rented: Iterable[MachineType], used_up: Iterable[MachineType]) -> Request:
    """The same with machines that are paid whole, and those that are used up by what is paid by itself."""
    machines = list(rented)
    for kind in used_up:
        name = kind.id + OWN
        machines.append(replace(kind, id=name, offers=(replace(kind.offers[0], machine=name, nanos=0),), least=0))
    return replace(wanted, machines=tuple(machines))


@dataclass
class _Reading:
    request: Request
    types: Sequence[MachineType]
    faults: Faults
    notices: list[Notice]
    of_hardware: dict[str, list[int]] = field(default_factory=dict)
    unpriced: set[str] = field(default_factory=set)
    shared: set[int] = field(default_factory=set)
    """Types whose machines may hold several instances, and are paid whole."""

    @cached_property
    def sized(self) -> bool:
        """Whether queries come in sizes along the axis `batch`: where they do, no other batches are chosen."""
        mixes = (app.mix for app in self.request.apps.values())
        return any(mix is not None and "batch" in mix.axes for mix in mixes)


def read_kinds(
    request: Request,
    types: tuple[MachineType, ...],
    names: list[str],
    faults: Faults,
    notices: list[Notice],
    *,
    shared: bool,
) -> tuple[Kind, ...]:
    """Every way to run these variants; `shared` says whether instances may share machines that are paid whole."""
    reading = _Reading(request, types, faults, notices)
    if shared:
        reading.shared = {
            number for number, kind in enumerate(types) if request.pays_whole(kind.hardware, kind.offers[0].id)
        }
    for number, kind in enumerate(types):
        reading.of_hardware.setdefault(kind.hardware, []).append(number)
    found = [kind for choice in request.choices(variants=names) for kind in _kinds_of(reading, choice)]
    for hardware in sorted(reading.unpriced):
        text = f"neither runs nor offers have a price on {hardware}: a machine costs 1 per hour"
        notices.append(Notice(code="W-no-price", at=f"hardware.{hardware}", text=text))
    without = sorted({k.variant for k in found if _is_gpu(k) and not {"gpu", "gpu_share"} & k.needs.keys()})
    if without:
        text = (
            f"{len(without)} variants ({', '.join(without[:5])}) take no gpu_share: a card is planned with as many "
            "instances as fit its memory, each as fast as if alone"
        )
        notices.append(Notice(code="W-gpu-share", at="variants", text=text))
    return tuple(found)


def _is_gpu(kind: Kind) -> bool:
    if kind.choice.machine.kind != "gpu" or WHOLE in kind.needs:
        return False
    # What takes nothing of the card runs on its host.
    return not kind.needs or any(resource.startswith("gpu") for resource in kind.needs)


def _kinds_of(reading: _Reading, choice: Choice) -> Iterator[Kind]:
    if not choice.is_timed:
        text = "a run with a table of rates has no latency to compare with the SLO: left out"
        reading.notices.append(Notice(code="W-no-latency", at=choice.path, text=text))
        return
    batches = (choice.at.get("batch", 1.0),) if reading.sized else choice.batches
    if batches[0] != int(batches[0]):
        reading.faults.in_profile(
            f"$.{choice.path}.at.batch", "a batch is a whole number", "Write 1, 2, 4, ...", value=batches[0]
        )
        return
    for number in reading.of_hardware.get(choice.hardware, []):
        kind = reading.types[number]
        price, whole = _price(choice, kind)
        if kind.offers[0].id is None and choice.own_price is None:
            reading.unpriced.add(kind.hardware)
        part = choice.part if whole and number in reading.shared else None
        needs = {**choice.needs, WHOLE: 1.0} if whole and part is None else choice.needs
        nanos = price.nanos if part is None else round(price.nanos * part)
        none_there = count_of(kind) == 0 and not (whole or kind.provides)
        if none_there or not _fits(reading, choice):
            continue
        for batch in map(int, batches):
            yield Kind(
                choice, choice.variant, number, choice.hardware, batch, nanos, needs, choice.slowdown(batch),
                price.share, part,
            )  # fmt: skip


def _price(choice: Choice, kind: MachineType) -> tuple[Price, bool]:
    """The price of an instance, and whether it is that of a whole machine; where nothing has one, that costs 1."""
    offer = kind.offers[0].id
    if offer is None and choice.own_price is None:
        return Price(NANO), True
    price = choice.price(offer)
    return price, choice.own_price is None and price.share is None


def _fits(reading: _Reading, choice: Choice) -> bool:
    """Whether one machine holds an instance; what is limited in all may be listed by no machine."""
    provides, totals = choice.machine.provides, reading.request.capacity
    for resource, room in choice.lacking.items():
        if resource in provides or resource not in totals:
            text = (
                f"needs {choice.needs[resource]:g} {resource}, one {choice.hardware} provides {room:g}: "
                "it fits nowhere there"
            )
            reading.notices.append(Notice(code="W-too-large", at=choice.path, text=text))
            return False
    return True


def read_slots(
    request: Request,
    types: tuple[MachineType, ...],
    kinds: tuple[Kind, ...],
    notices: list[Notice],
) -> tuple[Slot, ...]:
    """What runs now, each load with its kind."""
    by_place: dict[tuple[str, str], list[int]] = {}
    for number, kind in enumerate(kinds):
        by_place.setdefault((kind.variant, kind.hardware), []).append(number)
    found: list[Slot] = []
    for worker in request.running:
        offer = offer_of(request.profile, worker)
        for load in worker.loads:
            settings = {**load.knobs, "batch": load.serve.max_batch}
            exact = [
                k for k in by_place.get((load.variant or "", worker.hardware), [])
                if (offer is None or types[kinds[k].type].offers[0].id in (None, offer))
                and same_point(load.at or {}, kinds[k].choice.at)
                and all(settings.get(a) == v for a, v in {**kinds[k].choice.knobs, "batch": kinds[k].batch}.items())
            ]  # fmt: skip
            if not exact:
                text = f"{load.variant or load.node or 'it'} matches no run of these applications: it is stopped"
                notices.append(Notice(code="W-unknown-running", at=f"state.workers.{worker.id}.{load.id}", text=text))
            price = kinds[exact[0]].price if exact else _price_of_unknown(request, types, worker, load)
            found.append(Slot(worker, load, exact[0] if exact else None, price))
    return tuple(found)


def _price_of_unknown(request: Request, types: tuple[MachineType, ...], worker: Worker, load: Load) -> int:
    """What an instance costs that serves nobody here."""
    kind = next((kind for kind in types if kind.hardware == worker.hardware), None)
    found = request.meant_by(load, worker.hardware)
    return _price(found[0], kind)[0].nanos if found and kind is not None else 0


def check_least(request: Request, types: tuple[MachineType, ...], faults: Faults) -> None:
    """Name hardware of which more machines must be there than can be."""
    for hardware, (least, _) in sorted(request.instances.items()):
        have = sum(kind.offers[0].stock for kind in types if kind.hardware == hardware)
        if least > have:
            faults.in_slo(
                f"$.limits.instances.{hardware}[0]", f"the profile's offers and hosts have {have} machines of it",
                f"Ask for at most {have}, or raise the stock.", value=least,
            )  # fmt: skip
