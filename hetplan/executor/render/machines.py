"""Replicas on machines that are named one by one: which address, which port, which GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hetplan.errors import Fault
from hetplan.executor.render.groups import Fleet, Group
from hetplan.executor.site import FILE, Site

__all__ = ["Placed", "place"]

Where = Literal["any", "here", "there"]
LOCAL = "127.0.0.1"
_LAST_PORT = 65_535


@dataclass(frozen=True)
class Placed:
    """One replica on its machine."""

    group: Group
    number: int
    address: str
    port: int
    gpus: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.group.name}-{self.number}"

    @property
    def at(self) -> str:
        """Where it listens."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def place(fleet: Fleet, site: Site, faults: list[Fault], *, where: Where = "any") -> list[Placed]:
    """Every replica on a machine of its type, in the order of site.toml; all on this machine where it names none.

    Replicas of one machine listen at ports that follow one another, and have GPUs of their own; parts of a GPU share
    one. `where` "here" is this machine alone, "there" are machines that have to be named.
    """
    if len(fleet.periods) > 1:
        why = "the plan has periods, and these files say one state"
        faults.append(Fault("plan", "$.periods", str(len(fleet.periods)), why, "Render one of them: --set period=ID."))
    found, ports, gpus = list[Placed](), dict[str, int](), dict[str, float]()
    free = {group.hardware: list(site.machine(group.hardware).addresses) for group in fleet.groups}
    for group in fleet.groups:
        machines = -(-group.count // group.per_machine)
        addresses: Sequence[str] = site.machine(group.hardware).addresses
        if where == "here" or (where == "any" and not addresses):
            addresses = [LOCAL] * machines
        elif len(addresses := free[group.hardware][:machines]) < machines:
            faults.append(
                Fault(
                    FILE,
                    f"$.machines.{group.hardware}.addresses",
                    str(len(addresses)),
                    f"{group.name} has {machines} machines, and no more addresses are left",
                    f'Add [machines.{group.hardware}] addresses = ["10.0.0.5", ...], one for each machine.',
                )
            )
            continue
        del free[group.hardware][:machines]
        for number in range(group.count):
            address = addresses[number // group.per_machine]
            port = ports.get(address, group.server(site).port)
            ports[address] = port + 1
            if port > _LAST_PORT:
                faults.append(Fault(FILE, f"$.models.{group.model}.port", str(port), "no port is left", "Begin lower."))
                return found
            begin = gpus.get(address, 0.0)
            if group.gpus:
                begin = float(-(-begin // 1))
            amount = float(group.gpus) if group.gpus else group.gpu_fraction or 0.0
            gpus[address] = begin + amount
            mine = tuple(range(int(begin), int(begin) + max(group.gpus, 1))) if amount else ()
            found.append(Placed(group, number, address, port, mine))
    return found
