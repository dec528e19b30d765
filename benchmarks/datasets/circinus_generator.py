"""Synthetic queries of Circinus' five applications, drawn from a seed: truth about every configuration and placement.

Configurations and placements (a tier per operator) stand in row-major order of their products; a plan's number is
configuration x number of placements + placement. The streams are NumPy's PCG64.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import circinus
from benchmarks.datasets.sources import DATA, Json, read

__all__ = ["Query", "inputs", "make"]

Array = NDArray[np.float64]
MEC_SPEED = 2.2


@dataclass(frozen=True)
class Query:
    """One query: truth per configuration (`mean` per stratum, A100 seconds and bytes per operator) and the targets."""

    app: str
    seed: int
    levels: tuple[int, ...]
    mean: Array
    a100_s: Array
    bytes_out: Array
    bandwidth: tuple[float, float]
    hop_s: tuple[float, float]
    speed: tuple[float, float, float]
    price: tuple[float, float, float]
    grid: tuple[float, ...]
    placements: NDArray[np.int64]
    metric: str
    sample_sd: float
    accuracy_min: float = 0.0
    latency_max_s: float = 0.0

    @property
    def accuracy(self) -> Array:
        """Per configuration, the mean over strata."""
        return np.asarray(self.mean.mean(axis=1))

    def compute_s(self) -> Array:
        """Seconds per (configuration, placement, operator) with whole devices."""
        return np.asarray(self.a100_s[:, None, :] * np.array(self.speed)[self.placements][None, :, :])

    def transfer_s(self) -> Array:
        """Seconds on links per (configuration, placement): every hop between tiers, from the device on, one way."""
        data = np.concatenate([1.2 * self.bytes_out[:, :1], self.bytes_out[:, :-1]], axis=1)
        before = np.concatenate([np.zeros((len(self.placements), 1), dtype=np.int64), self.placements[:, :-1]], axis=1)
        total = np.zeros((len(self.a100_s), len(self.placements)))
        for hop in (0, 1):
            low, high = np.minimum(before, self.placements), np.maximum(before, self.placements)
            crossed = (low <= hop) & (high > hop)
            total += data @ crossed.T / self.bandwidth[hop] + crossed.sum(axis=1) * self.hop_s[hop]
        return total

    def latency_s(self) -> Array:
        """End to end per (configuration, placement) with whole devices."""
        return np.asarray(self.compute_s().sum(axis=2) + self.transfer_s())

    def feasible(self) -> NDArray[np.int64]:
        """Plans that meet both targets with whole devices."""
        good = (self.accuracy >= self.accuracy_min)[:, None] & (self.latency_s() <= self.latency_max_s)
        return np.flatnonzero(good)

    def least_cost(self) -> float:
        """The least dollars per hour over feasible plans and shares of the grid."""
        shares = np.array(list(product(self.grid, repeat=self.a100_s.shape[1])))
        compute, transfer = self.compute_s(), self.transfer_s()
        best = np.inf
        for plan in self.feasible():
            c, k = divmod(int(plan), len(self.placements))
            total = (compute[c, k] / shares).sum(axis=1) + transfer[c, k]
            dollars = shares @ np.array(self.price)[self.placements[k]]
            best = min(best, float(dollars[total <= self.latency_max_s].min(initial=np.inf)))
        return best

    def sample(self, configuration: int, stratum: int, rng: np.random.Generator) -> float:
        """One measured score."""
        mu = self.mean[configuration, stratum]
        if self.metric == "bernoulli":
            return float(rng.random() < mu)
        return float(np.clip(rng.normal(mu, self.sample_sd), -1, 2))


def _base_accuracy(knobs: list[Json], rng: np.random.Generator, indices: NDArray[np.int64]) -> Array:
    """Per configuration: the top, sensitivities times effects, shifts per level, interactions of pairs."""
    sensitivity = rng.lognormal(0, 0.45, len(knobs))
    shifts = [rng.normal(0, 0.02, len(knob["levels"])) for knob in knobs]
    pairs = {
        (g, h): rng.normal(0, 0.012, (len(knobs[g]["levels"]), len(knobs[h]["levels"])))
        for g in range(len(knobs))
        for h in range(g)
    }
    base = np.full(len(indices), rng.uniform(0.72, 0.95))
    for k, knob in enumerate(knobs):
        base += sensitivity[k] * np.array(knob["accuracy_effect"])[indices[:, k]] + shifts[k][indices[:, k]]
    for (g, h), table in pairs.items():
        base += table[indices[:, g], indices[:, h]]
    return np.clip(base, 0.03, 0.985)


def _operators(app: Json, rng: np.random.Generator, indices: NDArray[np.int64]) -> tuple[Array, Array]:
    """A100 seconds and bytes per (configuration, operator)."""
    levels = [np.array(knob["levels"]) for knob in app["knobs"]]
    seconds, sizes = [], []
    for op in app["ops"]:
        time = np.full(len(indices), op["a100_ms"] / 1000)
        for k in op["compute_knobs"]:
            time = time * levels[k][indices[:, k]] ** 0.9
        seconds.append(time * rng.lognormal(0, 0.15))
        size = np.full(len(indices), float(op["output_bytes"]))
        for k in op["output_knobs"]:
            size = size * levels[k][indices[:, k]]
        sizes.append(size * rng.lognormal(0, 0.2))
    return np.stack(seconds, axis=1), np.stack(sizes, axis=1)


def make(name: str, seed: int, *, data: Path = DATA) -> Query:
    """Draw one query of an application, with its targets."""
    facts: Any = read("circinus/circinus.json", data)["synthetic"]
    app = facts["apps"][name]
    rng = np.random.default_rng([seed, facts["seed_app_sum"][name]])
    bandwidth = (
        facts["bandwidth_bytes_per_s"]["device_mec"] * float(rng.lognormal(0, 0.7)),
        facts["bandwidth_bytes_per_s"]["mec_cloud"] * float(rng.lognormal(0, 0.2)),
    )
    device = float(rng.lognormal(np.log(4.5), 0.35))
    levels = tuple(len(knob["levels"]) for knob in app["knobs"])
    indices = np.array(list(product(*map(range, levels))), dtype=np.int64)
    base = _base_accuracy(app["knobs"], rng, indices)
    shift = rng.normal(0, 0.13, facts["strata"])
    shift -= shift.mean()
    mean = np.clip(base[:, None] + shift[None, :] * (1.4 - base)[:, None], 0.01, 0.99)
    a100_s, bytes_out = _operators(app, rng, indices)
    query = Query(
        app=name,
        seed=seed,
        levels=levels,
        mean=mean,
        a100_s=a100_s,
        bytes_out=bytes_out,
        bandwidth=bandwidth,
        hop_s=(facts["latency_s"]["device_mec"], facts["latency_s"]["mec_cloud"]),
        speed=(device, MEC_SPEED, 1.0),
        price=tuple(facts["price_usd_per_gpu_h"]),
        grid=tuple(facts["resource_grid"]),
        placements=np.array(list(product(range(3), repeat=len(app["ops"]))), dtype=np.int64),
        metric=app["metric"],
        sample_sd=app["sample_sd"],
    )
    accuracy_min, latency_max_s = _targets(query, rng)
    return Query(**{**vars(query), "accuracy_min": accuracy_min, "latency_max_s": latency_max_s})


def _targets(query: Query, rng: np.random.Generator) -> tuple[float, float]:
    """From one of the configurations that no faster one beats: 0.85 of its accuracy, 1.5 times its latency."""
    latency, accuracy = query.latency_s().min(axis=1), query.accuracy
    records: list[int] = []
    best = -np.inf
    for c in np.argsort(latency, kind="stable"):
        if accuracy[c] > best + 1e-9:
            best = accuracy[c]
            records.append(int(c))
    chosen = [c for c in records if accuracy[c] > 0.3] or records
    c = chosen[int(rng.integers(len(chosen)))]
    return float(0.85 * accuracy[c]), float(1.5 * latency[c])


def inputs(name: str, seed: int, *, data: Path = DATA) -> tuple[Json, Json]:
    """Profile and SLO of a drawn query; its truth stays with `make`."""
    query = make(name, seed, data=data)
    return circinus.app(
        name,
        quality_min=query.accuracy_min,
        latency_max_ms=1000 * query.latency_max_s,
        relative_time=query.speed[0],
        device_mec_mbps=query.bandwidth[0] * 8 / circinus.MEGABIT,
        mec_cloud_mbps=query.bandwidth[1] * 8 / circinus.MEGABIT,
        data=data,
    )
