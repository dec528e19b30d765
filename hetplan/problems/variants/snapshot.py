"""The profile and the state as variant autoscaling sees them: machine types, ways to run a variant, what runs now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any

from hetplan.problems.faults import Faults
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Notice
from hetplan.profiles.profile import Run
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Load, Worker

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs

__all__ = [
    "SLICES",
    "WHOLE",
    "Kind",
    "MachineType",
    "Slot",
    "latency_of",
    "machine_price",
    "read_kinds",
    "read_slots",
    "read_types",
]

WHOLE = "machines"
"""The resource of which a machine has one: taken by instances that are priced as a whole machine."""

SLICES = ("gpu", "cpu_cores")
"""Resources of which a load may hold a slice that is paid by the unit."""


@dataclass(frozen=True)
class MachineType:
    """Alike machines: a hardware under one offer (or none). `count` is None where as many as wanted may be had.

    `hosts` names them where they are known one by one. Without `provides` nothing is known of their room.
    """

    hardware: str
    offer: str | None
    count: int | None
    hosts: tuple[str, ...]
    provides: Mapping[str, float]

    def room(self, resource: str) -> float | None:
        """How much one machine has of a resource (None: nobody says)."""
        if resource == WHOLE:
            return 1.0
        return self.provides.get(resource, 0.0) if self.provides else None


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to run a variant: a run of its profile on one type of machine; the unit whose instances are counted.

    `price` is a count of 1e-9 per hour. `run` is the place among the variant's runs.
    """

    variant: str
    type: int
    run: int
    hardware: str
    batch: int
    knobs: Mapping[str, float]
    price: int
    load_s: float
    saturation_qps: float | None
    quality: float | None
    needs: Mapping[str, float]
    beside: int | None = None
    slowdown: tuple[float, ...] = ()

    @property
    def id(self) -> str:
        """What tells it from the other ways to run the variant on this hardware."""
        settings = "".join(f",{name}={value:g}" for name, value in self.knobs.items())
        return f"{self.variant}@{self.hardware}/{self.batch}{settings}"

    @property
    def cost(self) -> float:
        """Currency units per hour."""
        return self.price / NANO


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


def read_types(inputs: Inputs) -> tuple[MachineType, ...]:
    """Every type of machine, in the order of the profile's hardware and of the ids of its offers."""
    profile, limits = inputs.profile, inputs.slo.limits
    found: list[MachineType] = []
    for hardware, about in profile.hardware.items():
        _, most = limits.instances.get(hardware, (0, 0 if limits.only_listed else None))
        offers = sorted(name for name, offer in profile.offers.items() if offer.hardware == hardware)
        left = most
        choices: list[str | None] = [*offers] if offers else [None]
        for offer in choices:
            hosts = tuple(sorted(host for host, at in profile.hosts.items() if offer is not None and at.offer == offer))
            stock = profile.offers[offer].stock if offer is not None else None
            known = [n for n in (len(hosts) or None, stock, left) if n is not None]
            count = min(known) if known else None
            if left is not None and count is not None:
                left -= count
            found.append(MachineType(hardware, offer, count, hosts[:count], about.provides))
    return tuple(found)


def latency_of(table: Table, point: Mapping[str, float], statistic: str) -> float:
    """A number of a table; straight from its cell where the point is one of its grid."""
    cell: Any = getattr(table, statistic, None)
    for axis, points in table.axes.items():
        at = point.get(axis)
        if cell is None or at not in points:
            return float(table.read([point], statistic).values[0])  # type: ignore[arg-type]
        cell = cell[points.index(at)]
    return float(cell) if cell is not None else float(table.read([point], statistic).values[0])  # type: ignore[arg-type]


@dataclass
class _Reading:
    inputs: Inputs
    types: tuple[MachineType, ...]
    faults: Faults
    notices: list[Notice]
    of_hardware: dict[str, list[int]] = field(default_factory=dict)
    unpriced: set[str] = field(default_factory=set)


def read_kinds(
    inputs: Inputs, types: tuple[MachineType, ...], names: list[str], faults: Faults, notices: list[Notice]
) -> tuple[Kind, ...]:
    """Every way to run these variants."""
    reading = _Reading(inputs, types, faults, notices)
    for number, kind in enumerate(types):
        reading.of_hardware.setdefault(kind.hardware, []).append(number)
    found = [kind for name in names for kind in _kinds_of(reading, name)]
    for hardware in sorted(reading.unpriced):
        text = f"neither runs nor offers have a price on {hardware}: a machine costs 1 per hour"
        notices.append(Notice(code="W-no-price", at=f"hardware.{hardware}", text=text))
    without = sorted({k.variant for k in found if _is_gpu(inputs, k) and not {"gpu", "gpu_share"} & k.needs.keys()})
    if without:
        text = (
            f"{len(without)} variants ({', '.join(without[:5])}) take no gpu_share: one card would hold as many "
            "instances as its memory does, each as if alone on it"
        )
        notices.append(Notice(code="W-gpu-share", at="variants", text=text))
    return tuple(found)


def _is_gpu(inputs: Inputs, kind: Kind) -> bool:
    if inputs.profile.hardware[kind.hardware].kind != "gpu" or WHOLE in kind.needs:
        return False
    # What takes nothing of the card runs on its host.
    return not kind.needs or any(resource.startswith("gpu") for resource in kind.needs)


def _kinds_of(reading: _Reading, name: str) -> Iterator[Kind]:
    variant = reading.inputs.profile.variants[name]
    quality = variant.quality.value if variant.quality is not None else None
    for place, run in enumerate(variant.runs):
        at = f"$.variants.{name}.runs[{place}]"
        if run.latency is None:
            text = "a run with a table of rates states no latency to hold against an SLO: left out"
            reading.notices.append(Notice(code="W-no-latency", at=at[2:], text=text))
            continue
        batch = run.at.get("batch", 1.0)
        if batch != int(batch):
            reading.faults.in_profile(f"{at}.at.batch", "a batch is a whole number", "Write 1, 2, 4, ...", value=batch)
            continue
        knobs = {axis: value for axis, value in run.at.items() if axis != "batch"}
        slowdown = _slowdown(reading, run)
        for number in reading.of_hardware.get(run.hardware, []):
            price, whole = _price(reading, run, reading.types[number])
            needs = {**run.needs, WHOLE: 1.0} if whole else run.needs
            none_there = reading.types[number].count == 0 and not (whole or reading.types[number].provides)
            if none_there or not _fits(reading, needs, number, at):
                continue
            yield Kind(
                name, number, place, run.hardware, int(batch), knobs, price, run.load_s, run.saturation_qps, quality,
                needs, None, slowdown,
            )  # fmt: skip


def _slowdown(reading: _Reading, run: Run) -> tuple[float, ...]:
    """By how much an instance is slower beside 0, 1, 2, ... others."""
    if run.slowdown is None:
        return ()
    table = reading.inputs.profile.tables[run.slowdown]
    axis = table.axes.get("co_load")
    if axis is None:
        return ()
    points = [{**run.at, "co_load": float(beside)} for beside in range(int(max(axis)) + 1)]
    return tuple(float(one) for one in table.read([{a: p[a] for a in table.axes} for p in points]).values)


def _price(reading: _Reading, run: Run, kind: MachineType) -> tuple[int, bool]:
    """The price of an instance, and whether it is that of a whole machine."""
    if run.price_per_hour is not None:
        return run.price_per_hour, False
    if kind.offer is None:
        reading.unpriced.add(kind.hardware)
        return NANO, True
    offer = reading.inputs.profile.offers[kind.offer]
    if offer.per in SLICES and offer.per in run.needs:
        return _times(offer.price_per_hour, run.needs[offer.per]), False
    return machine_price(reading.inputs, kind), True


def machine_price(inputs: Inputs, kind: MachineType) -> int:
    """What a whole machine costs, in 1e-9 per hour: 1 where nothing is offered at all."""
    if kind.offer is None:
        return 0 if inputs.profile.offers else NANO
    offer = inputs.profile.offers[kind.offer]
    if offer.per is None:
        return offer.price_per_hour
    return _times(offer.price_per_hour, kind.provides.get(offer.per, 1.0))


def _times(price: int, amount: float) -> int:
    return int((price * Decimal(repr(amount))).to_integral_value(ROUND_HALF_EVEN))


def _fits(reading: _Reading, needs: Mapping[str, float], number: int, at: str) -> bool:
    kind, totals = reading.types[number], reading.inputs.slo.limits.resources
    for resource, amount in needs.items():
        room = kind.room(resource)
        if room is None or (resource in totals and resource not in kind.provides):
            continue
        if amount > room * (1 + 1e-9) + 1e-12:
            text = f"needs {amount:g} {resource}, one {kind.hardware} provides {room:g}: it fits nowhere there"
            reading.notices.append(Notice(code="W-too-large", at=at[2:], text=text))
            return False
    return True


def read_slots(inputs: Inputs, kinds: tuple[Kind, ...], notices: list[Notice]) -> tuple[Slot, ...]:
    """What runs now, each load with its kind."""
    if inputs.state is None:
        return ()
    types = read_types(inputs)
    by_place: dict[tuple[str, str], list[int]] = {}
    for number, kind in enumerate(kinds):
        by_place.setdefault((kind.variant, kind.hardware), []).append(number)
    found: list[Slot] = []
    for worker in inputs.state.workers:
        host = inputs.profile.hosts.get(worker.host) if worker.host is not None else None
        offer = worker.offer or (host.offer if host is not None else None)
        for load in worker.loads:
            fitting = [
                k for k in by_place.get((load.variant or "", worker.hardware), [])
                if offer is None or types[kinds[k].type].offer in (None, offer)
            ]  # fmt: skip
            settings = {**load.knobs, "batch": load.serve.max_batch}
            exact = [
                k for k in fitting
                if all(settings.get(a) == v for a, v in {**kinds[k].knobs, "batch": kinds[k].batch}.items())
            ]  # fmt: skip
            if not exact:
                text = f"{load.variant or load.node or 'it'} is no way to run a variant of these applications: stopped"
                notices.append(Notice(code="W-unknown-running", at=f"state.workers.{worker.id}.{load.id}", text=text))
            price = kinds[exact[0]].price if exact else _price_of_unknown(inputs, types, worker, load)
            found.append(Slot(worker, load, exact[0] if exact else None, price))
    return tuple(found)


def _price_of_unknown(inputs: Inputs, types: tuple[MachineType, ...], worker: Worker, load: Load) -> int:
    """What an instance costs that serves nobody here."""
    variant = inputs.profile.variants.get(load.variant or "")
    runs = [run for run in variant.runs if run.hardware == worker.hardware] if variant is not None else []
    if not runs:
        return 0
    settings = {**load.knobs, "batch": load.serve.max_batch}
    run = next((run for run in runs if all(settings.get(a) == at for a, at in run.at.items())), runs[0])
    reading = _Reading(inputs, types, Faults("", ""), [])
    return _price(reading, run, next(kind for kind in types if kind.hardware == worker.hardware))[0]
