"""Which of a worker's GPUs the program of a load sees, where several loads, or several instances, share them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["apart_from_engines", "of_instances"]

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def of_instances(takes: Sequence[int], number: int, instances: int) -> list[dict[str, str]]:
    """The variables that show each instance of the load of `number` its GPUs; `takes`: those of each load's engines."""
    every = os.environ.get(_VISIBLE)
    own = gpus_of(every, takes, number)
    parts = [part or (own if own != every else None) for part in gpus_apart(own, instances)]
    return [{_VISIBLE: part} if part is not None else {} for part in parts]


def gpus_of(visible: str | None, takes: Sequence[int], number: int) -> str | None:
    """The GPUs that a worker sees for one of its loads, where each takes so many; all, where these are too few.

    Loads that are no engines (0) have those before the GPUs of the engines: most programs begin with the first.

    >>> gpus_of("0,1,2,3,4,5", [2, 4], 1), gpus_of("0,1", [2, 4], 1), gpus_of(None, [2, 4], 1)
    ('2,3,4,5', '0,1', None)
    >>> [gpus_of("0,1,2,3", [1, 0, 2], number) for number in range(3)]
    ['1', '0', '2,3']
    """
    listed = visible.split(",") if visible else []
    if len(takes) < 2 or sum(takes) > len(listed):
        return visible
    left = len(listed) - sum(takes) if 0 in takes else 0
    if not takes[number]:
        return ",".join(listed[:left]) or visible
    return ",".join(listed[left + sum(takes[:number]) :][: takes[number]])


def apart_from_engines(made: Mapping[str, Any], takes: Sequence[int], number: int) -> dict[str, Any]:
    """The model of a load beside engines: a program of its own sees their GPUs only where its rule says so.

    >>> apart_from_engines({"environment": {"A": "b"}}, [0, 1], 0)["environment"].get("A")
    'b'
    """
    seen = gpus_of(os.environ.get(_VISIBLE), takes, number)
    others = {_VISIBLE: seen} if seen is not None else {}
    return {**made, "environment": {**others, **made["environment"]}}


def gpus_apart(visible: str | None, instances: int) -> list[str | None]:
    """The GPUs that a worker sees, dealt out to its instances in equal parts.

    >>> gpus_apart("0,1,2,3", 2), gpus_apart(None, 2), gpus_apart("0", 1)
    (['0,1', '2,3'], [None, None], [None])
    """
    listed = visible.split(",") if visible else []
    each = len(listed) // instances
    if instances == 1 or not each:
        return [None] * instances
    return [",".join(listed[each * place : each * (place + 1)]) for place in range(instances)]
