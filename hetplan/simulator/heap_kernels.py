"""The heap of future events, ordered by time, then kind, then the order in which they were set."""

from __future__ import annotations

from hetplan.compiled import part
from hetplan.simulator.world_kernels import World

__all__ = ["KIND_SHIFT", "pop_event", "push_event"]

KIND_SHIFT = 56
"""A heap key is kind << 56 | order: at one instant completions come before deliveries, those before arrivals."""


@part
def _set(world: World, place: int, when: float, key: int, what: int) -> None:
    event = world.heap[place]
    event["time"] = when
    event["key"] = key
    event["what"] = what


@part
def push_event(world: World, when: float, kind: int, what: int) -> None:
    """Set an event. The caller made sure that there is room."""
    clock = world.clock[0]
    key = (kind << KIND_SHIFT) | clock["order"]
    clock["order"] += 1
    place = clock["heap"]
    clock["heap"] = place + 1
    while place > 0:
        above = (place - 1) >> 1
        event = world.heap[above]
        if event["time"] < when or (event["time"] == when and event["key"] < key):
            break
        _set(world, place, event["time"], event["key"], event["what"])
        place = above
    _set(world, place, when, key, what)


@part
def pop_event(world: World) -> None:
    """Remove the first event (the caller has read it from place 0)."""
    clock = world.clock[0]
    size = clock["heap"] - 1
    clock["heap"] = size
    last = world.heap[size]
    when, key, what = last["time"], last["key"], last["what"]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        event = world.heap[below]
        if below + 1 < size:
            other = world.heap[below + 1]
            if other["time"] < event["time"] or (other["time"] == event["time"] and other["key"] < event["key"]):
                below += 1
                event = other
        if when < event["time"] or (when == event["time"] and key < event["key"]):
            break
        _set(world, place, event["time"], event["key"], event["what"])
        place = below
    _set(world, place, when, key, what)
