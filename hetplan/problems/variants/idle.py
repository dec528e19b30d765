"""Machines that must be there though nothing needs them: the least counts that `limits.instances` asks for.

They hold no load and cost what their offer does. Where instances are priced as whole machines the program itself knows
of them (an instance on one of them is as good as free); else they are counted once all instances have their places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hetplan.problems.variants.snapshot import WHOLE, MachineType, machine_price
from hetplan.profiles.fields import NANO

if TYPE_CHECKING:
    from hetplan.planner.forms.milp import Builder
    from hetplan.problems.faults import Faults
    from hetplan.problems.variants.question import Variants
    from hetplan.profiles.inputs import Inputs

__all__ = ["add_idle", "check_least", "idle_counts", "idle_of_whole", "least_of_whole"]


def check_least(inputs: Inputs, types: tuple[MachineType, ...], faults: Faults) -> None:
    """Name hardware of which more machines must be there than can be."""
    for hardware, (least, _) in sorted(inputs.slo.limits.instances.items()):
        counts = [kind.count for kind in types if kind.hardware == hardware]
        if least > 0 and None not in counts and sum(n for n in counts if n is not None) < least:
            have = sum(n for n in counts if n is not None)
            faults.in_slo(
                f"$.limits.instances.{hardware}[0]", f"the profile's offers and hosts have {have} machines of it",
                f"Ask for at most {have}, or raise the stock.", value=least,
            )  # fmt: skip


def idle_counts(v: Variants, used: Mapping[int, int]) -> dict[int, int]:
    """How many idle machines of each type must be there beside those in use, the cheapest first."""
    found: dict[int, int] = {}
    for hardware, (least, _) in sorted(v.inputs.slo.limits.instances.items()):
        mine = [t for t, kind in enumerate(v.types) if kind.hardware == hardware]
        missing = least - sum(used.get(t, 0) for t in mine)
        for t in sorted(mine, key=lambda t: (machine_price(v.inputs, v.types[t]), t)):
            count = v.types[t].count
            more = missing if count is None else min(missing, count - used.get(t, 0))
            if more > 0:
                found[t] = more
                missing -= more
    return found


def least_of_whole(v: Variants) -> dict[str, int]:
    """The least counts of hardware of which every instance takes a whole machine."""
    wanted = {h: least for h, (least, _) in v.inputs.slo.limits.instances.items() if least > 0}
    if not wanted:
        return {}
    shared = {v.kinds[item.kind].hardware for item in v.items if WHOLE not in v.kinds[item.kind].needs}
    return {hardware: least for hardware, least in sorted(wanted.items()) if hardware not in shared}


def idle_of_whole(v: Variants, x: NDArray[np.int64]) -> float:
    """What the idle machines beside these counts cost per hour, where instances are whole machines."""
    whole = least_of_whole(v)
    if not whole:
        return 0.0
    used: dict[int, int] = {}
    for i, item in enumerate(v.items):
        used[v.kinds[item.kind].type] = used.get(v.kinds[item.kind].type, 0) + int(x[i])
    return sum(
        count * machine_price(v.inputs, v.types[t]) / NANO
        for t, count in idle_counts(v, used).items()
        if v.types[t].hardware in whole
    )


def add_idle(v: Variants, m: Builder, x: NDArray[np.int64]) -> list[tuple[int, float]]:
    """Idle machines in the program: those in use and these make up the least count, within what may be had.

    Returns their columns and prices.
    """
    found: list[tuple[int, float]] = []
    here = np.array([v.kinds[item.kind].type for item in v.items], dtype=np.int64)
    for hardware, least in least_of_whole(v).items():
        mine = [t for t, kind in enumerate(v.types) if kind.hardware == hardware]
        prices = [machine_price(v.inputs, v.types[t]) / NANO for t in mine]
        names = [v.types[t].offer or hardware for t in mine]
        idle = m.columns(f"idle {hardware}", names, whole=True, upper=float(least), cost=prices, unit="machines")
        found += zip(idle.tolist(), prices, strict=True)
        row = m.rows(f"least {hardware}", ["machines"], lower=float(least), unit="machines")
        m.add(row, idle, 1.0)
        m.add(row, x[np.isin(here, mine)], 1.0)
        for t, column in zip(mine, idle, strict=True):
            if (count := v.types[t].count) is not None:
                full = m.rows(f"machines {hardware}", [v.types[t].offer or hardware], upper=float(count))
                m.add(full, column, 1.0)
                m.add(full, x[here == t], 1.0)
    return found
