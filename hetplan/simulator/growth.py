"""Room in the world's arrays: free lists of jobs and batches, and the heap, grown between calls of the engine."""

from __future__ import annotations

import numpy as np

from hetplan.simulator.world_kernels import CLOCK, EVENT, JOB, PART, QUERY, World

__all__ = ["empty_world", "ensure_batches", "grow_heap", "grow_jobs"]


def empty_world() -> World:
    """A world with nothing in it at time 0."""
    clock = np.zeros(1, CLOCK)
    clock["free_job"] = clock["free_batch"] = -1
    return World(
        clock=clock,
        queries=np.zeros(0, QUERY),
        jobs=np.zeros(0, JOB),
        parts=np.zeros(0, PART),
        numbers=np.zeros(0),
        indices=np.zeros(0, np.int64),
        heap=np.zeros(0, EVENT),
    )


def grow_jobs(world: World, more: int) -> World:
    """`more` free job records."""
    before = len(world.jobs)
    fresh = np.zeros(more, JOB)
    fresh["query"] = -1
    fresh["after"] = np.arange(before + 1, before + more + 1)
    fresh["after"][-1] = world.clock[0]["free_job"]
    world.clock[0]["free_job"] = before
    world.clock[0]["free_jobs"] += more
    return world._replace(jobs=np.concatenate([world.jobs, fresh]))


def ensure_batches(world: World, wanted: int) -> World:
    """At least `wanted` batch records in all (one per server, and one per batch that was aborted under way)."""
    before = int(world.clock[0]["batches"])
    if wanted <= before:
        return world
    parts = world.parts
    if wanted > len(parts):
        parts = np.zeros(max(wanted, 2 * len(parts)), PART)
        parts[: len(world.parts)] = world.parts
    batches = parts["batch"]
    batches["job"][before:wanted] = np.arange(before + 1, wanted + 1)
    batches["job"][wanted - 1] = world.clock[0]["free_batch"]
    world.clock[0]["free_batch"] = before
    world.clock[0]["batches"] = wanted
    return world._replace(parts=parts)


def grow_heap(world: World, wanted: int) -> World:
    """A heap of at least `wanted` places."""
    more = wanted - len(world.heap)
    return world if more <= 0 else world._replace(heap=np.concatenate([world.heap, np.zeros(more, EVENT)]))
