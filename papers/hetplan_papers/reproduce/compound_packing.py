"""Packings of growing size: what each packer serves, its certified gap, its time (Figs. 10 and 11)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from hetplan.extend import Limits, Packing, Solver, certify, solver
from hetplan_papers.datasets.circinus_generator import draw_machines, draw_packing

__all__ = ["at_a_price", "cost_rows", "goodput_rows"]

PRICE = np.array([0.0, 2.48, 3.67])
TOTALS_PRICE = np.array([0.2, 2.48, 3.67])


def _timed(engine: Solver, form: Packing, seconds: float | None) -> dict[str, Any]:
    fresh = replace(form)
    began, worked = time.perf_counter(), time.process_time()
    answer = engine.solve(fresh, Limits(seconds=seconds, gap=1e-4))
    took, work = time.perf_counter() - began, time.process_time() - worked
    verdict = certify(fresh, answer)
    gap = None
    if verdict.value is not None and verdict.bound is not None:
        gap = abs(verdict.bound - verdict.value) / max(abs(verdict.bound), 1e-9)
    return {
        "packer": engine.name, "value": verdict.value, "bound": verdict.bound, "certified": verdict.certified_bound,
        "gap": gap, "ms": 1000 * took, "cpu_ms": 1000 * work,
    }  # fmt: skip


def goodput_rows(quick: bool) -> Iterator[dict[str, Any]]:
    """Most weight served, in totals and on machines."""
    solver("dual").solve(draw_packing(10, 0).in_totals(), Limits())
    for count in (100, 1000) if quick else (100, 1000, 10_000):
        for seed in (0, 1):
            form = draw_packing(count, seed).in_totals()
            engines = [
                solver("fcfs"),
                solver("greedy-sum"),
                solver("greedy-norm"),
                solver("greedy-max"),
                solver("greedy-l2"),
                solver("dual"),
                solver("dual-core"),
            ]
            engines += [solver("exact")] if count <= 100 else []
            for engine in engines:
                yield {"kind": "totals", "queries": count, "seed": seed, **_timed(engine, form, 30.0)}
    for count, seed, gpus in (
        ((100, 0, 4), (30, 1, 1), (100, 1, 4)) if quick else ((100, 0, 4), (30, 1, 1), (1000, 0, 64))
    ):
        form = draw_machines(count, seed, gpus).on_machines()
        engines = [solver("fcfs"), solver("greedy-sum"), solver("dual"), *([solver("exact")] if count <= 100 else [])]
        for engine in engines:
            yield {"kind": f"machines, {gpus} each", "queries": count, "seed": seed, **_timed(engine, form, 30.0)}


def at_a_price(count: int, seed: int, tight: float) -> Packing:
    """All to be served at least cost within totals: of the first tier so much of what the cheapest plans take of it."""
    flat, rng = draw_packing(count, seed).in_totals(), np.random.default_rng(seed + 1000)
    cost = flat.demand @ TOTALS_PRICE * rng.lognormal(0, 0.3, len(flat.demand))
    cheapest = [int(o) for i in range(count) for o in [flat.options_of(i)[cost[flat.options_of(i)].argmin()]]]
    room = flat.demand[cheapest].sum(axis=0) * np.array([tight, 1.5, 3.0])
    return Packing("min", flat.first, cost, flat.demand, room)


def cost_rows(quick: bool) -> Iterator[dict[str, Any]]:
    """All served at least cost: machines in use, with as many as wanted; then within totals."""
    for count in (10, 30) if quick else (10, 30, 100, 300, 1000):
        for seed in (0, 1):
            form = draw_machines(count, seed, 1).on_machines()
            assert form.items is not None
            items = replace(form.items, machines=np.full(3, np.inf), price=PRICE)
            least = Packing("min", form.first, np.zeros_like(form.worth), form.demand, form.capacity, items)
            for engine in [solver("dual"), *([solver("exact")] if count <= 30 else [])]:
                yield {"kind": "machines", "queries": count, "seed": seed, **_timed(engine, least, 20.0)}
    for count in (10, 30) if quick else (10, 30, 100, 300, 1000):
        for seed, tight in ((0, 0.5), (1, 0.5), (2, 0.8)):
            within = at_a_price(count, seed, tight)
            for engine in [solver("dual"), *([solver("exact")] if count <= 100 else [])]:
                yield {"kind": f"totals, {tight:g}", "queries": count, "seed": seed, **_timed(engine, within, 20.0)}
