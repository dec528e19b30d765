"""What one machine of variants carries, whatever instances it holds: for those who share machines after a failure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Hardware
from hetplan.profiles.workers import Load, Serve, Worker
from hetplan.verifier.demand import classes_of, response_targets
from hetplan.verifier.facts import Seat
from hetplan.verifier.rows import NotRebuilt
from hetplan.verifier.service import service_of
from hetplan.verifier.variants import (
    Held,
    Reading,
    batches_of,
    is_whole,
    part_of,
)
from hetplan.verifier.waiting_room import LARGEST, most_busy, most_busy_by_law

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["most_of_a_machine"]

_WHOLE = "machines"
_SMALL = 1e-3
_LEAST_ASKED = 0.002
_HAIR = 1e-9
_SHOWN, _SLIP = 1e-8, 1e-8
_MOST_FILLINGS = 500
"""Where a machine may be filled in more ways, its instances are counted by what they take together."""
_MOST_CELLS, _FEWEST = 10_000_000, 10
"""Rows times columns of all boxes of a search, at most; where that makes fewer boxes than this, nothing is searched."""
_MOST_ALIKE = 16
"""Up to so many alike instances on a machine what they take is counted in whole parts."""


@dataclass(frozen=True)
class _Type:
    """Machines of a hardware under one offer; how many there may be at most (None: any number)."""

    hardware: str
    offer: str | None
    count: int | None

    @property
    def name(self) -> str:
        return self.offer or self.hardware


@dataclass(frozen=True)
class _Kind:
    """A run on a type of machine, as if one instance were there; what it takes, and at which rate it serves whom."""

    held: Held
    type: _Type
    batch: int
    needs: dict[str, float]
    qps: dict[str, float]

    @property
    def name(self) -> str:
        at = self.held.run.at if self.held.run is not None else {}
        knobs = "".join(f",{name}={value:g}" for name, value in at.items() if name != "batch")
        return f"{self.held.load.variant}@{self.type.hardware}/{self.batch}{knobs}"


class _Single:
    """What an instance serves on each type of machine, as the queue of the plan allows where it has one."""

    def __init__(self, reading: Reading) -> None:
        self.reading, self.inputs = reading, reading.inputs
        self.profile, self.slo, self.options = self.inputs.profile, self.inputs.slo, reading.plan.method.options
        self.types = list(self._types())
        self.kinds = list(self._kinds())

    def _types(self) -> Iterator[_Type]:
        limits = self.slo.limits
        for hardware in self.profile.hardware:
            _, left = limits.instances.get(hardware, (0, 0 if limits.only_listed else None))
            offers = sorted(name for name, offer in self.profile.offers.items() if offer.hardware == hardware)
            choices: list[str | None] = [*offers] or [None]
            for offer in choices:
                hosts = sum(1 for host in self.profile.hosts.values() if offer is not None and host.offer == offer)
                stock = self.profile.offers[offer].stock if offer is not None else None
                count = min((n for n in (hosts or None, stock, left) if n is not None), default=None)
                left = left - count if left is not None and count is not None else left
                yield _Type(hardware, offer, count)

    def _kinds(self) -> Iterator[_Kind]:
        names = {name for name, apps in self.reading.allowed.items() if apps}
        names |= {held.load.variant or "" for held in self.reading.now} & set(self.profile.variants)
        for name in sorted(names):
            variant = self.profile.variants[name]
            for run in variant.runs:
                for kind in (one for one in self.types if one.hardware == run.hardware and run.latency is not None):
                    for batch in batches_of(self.profile, self.slo, variant, run):
                        load = Load(id="any", variant=name, at=dict(run.at), serve=Serve(max_batch=batch))
                        worker = Worker(id="any", hardware=kind.hardware, offer=kind.offer, loads=(load,))
                        (held,) = self.reading.held(worker)
                        whole = is_whole(self.reading, held) and not part_of(self.reading, held)
                        needs = {**run.needs, **({_WHOLE: 1.0} if whole else {})}
                        if held.run is None:
                            raise NotRebuilt(f"{name} has two runs of the same settings on {kind.hardware}")
                        if self._fits(kind, needs, whole=whole):
                            yield _Kind(held, kind, batch, needs, dict(self._rates(held)))

    def _fits(self, kind: _Type, needs: dict[str, float], *, whole: bool) -> bool:
        about: Hardware = self.profile.hardware[kind.hardware]
        if kind.count == 0 and not whole and not about.provides:
            return False
        limited = {name for name in self.slo.limits.capacity if name not in about.provides}
        room = {name: 1.0 if name == _WHOLE else about.provides.get(name, 0.0) for name in needs if name not in limited}
        return not about.provides or all(needs[name] <= there * (1 + _HAIR) + 1e-12 for name, there in room.items())

    def _rates(self, held: Held) -> Iterator[tuple[str, float]]:
        for app, full in held.qps.items():
            queued = self.options.get("size") == "estimated"
            yield app, full * (self._share(held, app, full, held.load.serve.max_batch) if queued else 1.0)

    def _share(self, held: Held, app: str, qps: float, batch: int) -> float:
        """The share of its saturation that an instance may be asked for, by the queue of the plan."""
        wish = self.slo.apps[app]
        classes = classes_of(wish)

        def slowest_of(size: int) -> float:
            load = held.load.model_copy(update={"serve": Serve(max_batch=size)})
            service = service_of(self.reading.facts, Seat(held.worker, load, held.run), classes)
            return max(ms for ms, share in zip(service.latency_ms, classes.share, strict=True) if share > 0)

        sizes = range(1, batch + 1) if batch <= LARGEST and "batch" not in classes.axes else (batch,)
        times = np.maximum.accumulate([slowest_of(size) for size in sizes])
        slowest = float(times[-1])
        targets = [(ms - wish.network_ms_per_hop, left) for ms, left in response_targets(wish)]
        use = min(
            most_busy_by_law(tuple(times.tolist()), limit_ms=limit, left=left)
            if times[0] < slowest and math.isfinite(limit)
            else most_busy(time_ms=slowest, batch=batch, limit_ms=limit, left=left)
            for limit, left in targets or [(math.inf, 0.01)]
        )
        at_once = max(1, round(qps * slowest / 1000.0 / batch))
        return max(min(1.0, use * at_once * batch * 1000.0 / slowest / qps), _LEAST_ASKED)


def most_of_a_machine(plan: Plan, inputs: Inputs, app: str) -> dict[str, float]:
    """The most rate of an application that a machine of each hardware takes, whatever instances it holds."""
    single = _Single(Reading(plan, inputs))
    found: dict[str, float] = {}
    for hardware in {kind.type.hardware for kind in single.kinds}:
        mine = [kind for kind in single.kinds if kind.type.hardware == hardware and kind.qps.get(app)]
        provides = single.profile.hardware[hardware].provides
        most = math.inf
        for resource in {name for kind in mine for name in kind.needs}:
            room = 1.0 if resource == _WHOLE else provides.get(resource, 0.0)
            needs = [kind.needs.get(resource, 0.0) for kind in mine]
            if room > 0.0 and all(need > room / 2.0 * (1.0 + _HAIR) for need in needs):
                most = min(most, max(kind.qps[app] for kind in mine))
            elif all(need > 0.0 for need in needs):
                most = min(most, max(kind.qps[app] * room / need for kind, need in zip(mine, needs, strict=True)))
        if mine and most == math.inf:
            raise NotRebuilt(f"nothing says how many instances a machine of {hardware} holds")
        if mine:
            found[hardware] = most / single.slo.change.slack
    return found
