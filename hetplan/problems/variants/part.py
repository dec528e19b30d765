"""One application of `variants` as a part of a fleet: each machine carries what the best instances on it serve.

Instances of one application do not wait for those on other machines, so machines carry together what each carries
filled best. With x_i instances of q_i queries/s each, and the ways pi to fill a machine of hardware h (`Sharing`)::

    rate <= sum_h Q_h m_h / need        Q_h = max_pi sum_i a_pi,i q_i,   need: what is asked of instances at a rate of 1

That is all: where instances need not be whole on any machine but their own, there is no other row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.fleet_part import AtCapacities, Cone
from hetplan.planner.machine_packing import MOST_ON_ONE, Sharing
from hetplan.problems.variants.options import VariantsOptions
from hetplan.problems.variants.queueing import answer_fewest, leave_room_to_wait
from hetplan.problems.variants.request import Snapshot, read_snapshot
from hetplan.profiles.validate import validate

__all__ = ["cone"]

Floats = NDArray[np.float64]


def cone(part: Cone, at_capacities: AtCapacities) -> Cone | None:
    """The part, with its rate; None where a machine does not carry the same whatever others are there.

    `bare` leaves no room for queries that wait; its `dropping` answers as few as may be.
    """
    del at_capacities  # no program is asked
    options = validate(VariantsOptions, part.options, file="options")
    full = read_snapshot(part.any_number(), options)
    if not _is_by_machine(full):
        return None
    part.bare = Cone.of(part, most=_most_of(part, full))
    part.bare.dropping = Cone.of(part, most=_most_of(part, answer_fewest(full)))
    part.most = _most_of(part, full if options.sizing == "fluid" else leave_room_to_wait(full))
    for one in (part, part.bare, part.bare.dropping):
        one.anew = one.most
    return part


def _is_by_machine(v: Snapshot) -> bool:
    """Whether a machine carries what fits on it: nothing is slowed down, or paid or limited whatever machine it is on.

    What is asked of instances grows with the rate, and the ways to fill a machine are few enough to be listed.
    """
    by_rate = v.need[0] == v.asked[0].load_qps * v.wanted.change.slack
    if v.own or v.wanted.capacity or not by_rate or any(kind.slowdown for kind in v.kinds):
        return False
    every = [(sharing, _most(sharing)) for sharing in v.sharing.values()]
    return all(max(most) < MOST_ON_ONE and sharing.patterns(most) is not None for sharing, most in every)


def _most(sharing: Sharing) -> list[int]:
    """How many of each thing a machine holds."""
    return [sharing.max_more(thing) for thing in sharing.things]


def _most_of(part: Cone, v: Snapshot) -> Callable[[Sequence[float]], tuple[float, Floats]]:
    """What machines carry, in parts of the rate 1 that `v` is of."""
    most = np.zeros(len(part.hardware))
    for t, kind in enumerate(v.types):
        qps = [v.items[i].serves[0].qps for i in v.whole.get(t, ())]
        if (sharing := v.sharing.get(t)) is not None:
            best = [max(v.items[i].serves[0].qps for i in sharing.of_kind(number)) for number in range(sharing.kinds)]
            qps += [float(np.dot(pattern, best)) for pattern in sharing.patterns(_most(sharing)) or ()]
        if kind.hardware in part.hardware:
            place = part.hardware.index(kind.hardware)
            most[place] = max([most[place], *qps])
    weights = most / v.need[0]

    def carried(machines: Sequence[float]) -> tuple[float, Floats]:
        return float(weights @ np.asarray(machines, dtype=float)), weights

    return carried
