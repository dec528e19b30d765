"""Which cores, device and ports a unit of this machine gets: each its own, given back when it stops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hetplan.executor.hosts_file import Machines
from hetplan.executor.kept_process import StartFailed

__all__ = ["Slot", "Slots"]


@dataclass(frozen=True)
class Slot:
    """What one unit has to itself. Port 0 is any free one; `other_ports` are to be tried where `port` is taken."""

    port: int = 0
    other_ports: Sequence[int] = ()
    cores: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Slots:
    """What is taken.

    >>> slots = Slots()
    >>> host = Machines(target="here", hardware="cpu", machines=2, cores=(4, 5), cores_per_worker=1, ports=(9000, 9001))
    >>> slots.take("a", host, cores=1).cores, slots.take("b", host, cores=1).cores
    ((4,), (5,))
    >>> slots.give_back("a")
    >>> slots.take("c", host, cores=1).port
    9000
    """

    taken: dict[str, tuple[Slot, Machines]] = field(default_factory=dict)

    def take(self, name: str, host: Machines, *, cores: int) -> Slot:
        """A slot for this unit; `StartFailed` where the host has none left."""
        used_cores = {core for slot, _ in self.taken.values() for core in slot.cores}
        free = [core for core in host.cores if core not in used_cores]
        if cores > len(free):
            raise StartFailed(name, f"it needs {cores} cores of its own; {len(free)} of {len(host.cores)} are free")
        own = tuple(free[:cores]) if cores else host.cores
        port, others = self._ports(name, host)
        environment = self._device(host)
        slot = Slot(port, others, own if cores else tuple(host.cores), environment)
        # Cores that all workers share are nobody's own.
        kept = slot if cores else Slot(port, others, (), environment)
        self.taken[name] = (kept, host)
        return slot

    def give_back(self, name: str) -> None:
        """The unit is gone."""
        self.taken.pop(name, None)

    def _ports(self, name: str, host: Machines) -> tuple[int, Sequence[int]]:
        if host.ports is None:
            return 0, ()
        used = {slot.port for slot, _ in self.taken.values()}
        free = [port for port in range(host.ports[0], host.ports[1] + 1) if port not in used]
        if not free:
            raise StartFailed(name, f"all ports {host.ports[0]} to {host.ports[1]} are used by other units")
        return free[0], free[1:]

    def _device(self, host: Machines) -> Mapping[str, str]:
        if not host.devices:
            return {}
        used = [slot.environment.get("CUDA_VISIBLE_DEVICES") for slot, other in self.taken.values() if other == host]
        # Shares let several units use one device: the one with fewest units is next.
        device = min(host.devices, key=lambda one: (used.count(one), host.devices.index(one)))
        return {"CUDA_VISIBLE_DEVICES": device}
