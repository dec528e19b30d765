"""Synthetic compound queries with a known truth: what a search is tried on where nothing is there to be measured.

`draw` makes one query of an application from a seed (NumPy's PCG64 streams): targets, devices, links, and the true
accuracy, seconds and bytes of every configuration. `SyntheticQuery` is an evaluator (samples scatter around the truth)
and writes the profile and SLO that pose it. `draw_packing` makes queries with ready plans for the second stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.extend import Items, Packing

__all__ = [
    "APPS",
    "BANDWIDTH",
    "GRID",
    "HOP_S",
    "PRICE",
    "STRATA",
    "TIERS",
    "Knob",
    "Step",
    "SyntheticApp",
    "SyntheticPacking",
    "SyntheticQuery",
    "draw",
    "draw_machines",
    "draw_packing",
]

Vector = NDArray[np.float64]
MEC_TIME = 2.2
INPUT = 1.2
"""What comes in is this much larger than what the first operator passes on."""


@dataclass(frozen=True)
class SyntheticQuery:
    """One query and the truth about it, per configuration in row-major order of levels."""

    app: SyntheticApp
    seed: int
    mean: Vector
    seconds: Vector
    bytes_out: Vector
    bandwidth: tuple[float, float]
    relative_time: tuple[float, float, float]
    accuracy_min: float = 0.0
    latency_max_s: float = 0.0

    @property
    def accuracy(self) -> Vector:
        """The true accuracy of each configuration."""
        return np.asarray(self.mean.mean(axis=1))

    @cached_property
    def placements(self) -> NDArray[np.int64]:
        """Tiers of the operators, a row per placement."""
        return np.array(list(product(range(3), repeat=len(self.app.steps))), dtype=np.int64)

    def transfer_s(self) -> Vector:
        """Seconds on links per (configuration, placement): every hop from the device on, one way."""
        data = np.concatenate([INPUT * self.bytes_out[:, :1], self.bytes_out[:, :-1]], axis=1)
        before = np.concatenate([np.zeros((len(self.placements), 1), dtype=np.int64), self.placements[:, :-1]], axis=1)
        total = np.zeros((len(self.seconds), len(self.placements)))
        for hop in (0, 1):
            low, high = np.minimum(before, self.placements), np.maximum(before, self.placements)
            crossed = (low <= hop) & (high > hop)
            total += data @ crossed.T / self.bandwidth[hop] + crossed.sum(axis=1) * HOP_S[hop]
        return total

    def compute_s(self) -> Vector:
        """Seconds per (configuration, placement, operator) with whole devices."""
        return np.asarray(self.seconds[:, None, :] * np.array(self.relative_time)[self.placements][None, :, :])

    def latency_s(self) -> Vector:
        """End to end per (configuration, placement) with whole devices."""
        return np.asarray(self.compute_s().sum(axis=2) + self.transfer_s())

    def feasible(self) -> NDArray[np.int64]:
        """Plans (configuration x placements + placement) that truly meet both targets with whole devices."""
        good = (self.accuracy >= self.accuracy_min)[:, None] & (self.latency_s() <= self.latency_max_s)
        return np.flatnonzero(good)

    @cached_property
    def least_cost(self) -> float:
        """The least price per hour over truly feasible plans and shares of the grid."""
        shares = np.array(list(product(GRID, repeat=len(self.app.steps))))
        compute, transfer = self.compute_s(), self.transfer_s()
        best = np.inf
        for plan in self.feasible():
            c, k = divmod(int(plan), len(self.placements))
            price = np.array(PRICE)[self.placements[k]]
            total = (compute[c, k] / np.where(price > 0, shares, 1.0)).sum(axis=1) + transfer[c, k]
            best = min(best, float((shares @ price)[total <= self.latency_max_s].min(initial=np.inf)))
        return best

    def configuration(self, knobs: Mapping[str, Any]) -> int:
        """The number of a configuration given by the place of each knob's level."""
        at = [int(knobs[knob.name]) for knob in self.app.knobs]
        return int(np.ravel_multi_index(at, tuple(len(knob.levels) for knob in self.app.knobs)))

    def __call__(self, knobs: Mapping[str, Any], stratum: int, index: int) -> dict[str, Any]:
        """One sample, as an evaluator answers; the same whenever it is asked for."""
        c = self.configuration(knobs)
        score = float(self._scores(c, index // STRATA * STRATA, STRATA)[index % STRATA])
        del stratum
        return {"score": score, **self.costs(c)}

    def many(self, knobs: Mapping[str, Any], begin: int, count: int) -> tuple[Vector, dict[str, Any]]:
        """The scores of many samples at once, and what each of them costs."""
        c = self.configuration(knobs)
        first, last = begin // STRATA, -(-(begin + count) // STRATA)
        scores = self._scores(c, first * STRATA, (last - first) * STRATA)
        return scores[begin - first * STRATA :][:count], self.costs(c)

    def costs(self, c: int) -> dict[str, Any]:
        """Seconds and bytes of a sample."""
        names = [step.name for step in self.app.steps]
        return {
            "seconds": dict(zip(names, self.seconds[c].tolist(), strict=True)),
            "bytes": dict(zip(names, self.bytes_out[c].tolist(), strict=True)),
            "input_bytes": float(INPUT * self.bytes_out[c, 0]),
        }

    def _scores(self, c: int, begin: int, count: int) -> Vector:
        """Scores of samples from `begin` on: sample i belongs to stratum i mod 8; a stream per configuration."""
        rng = np.random.Generator(np.random.PCG64([self.seed, self.app.seed, c]).advance(begin))
        uniform = rng.random(count)
        mu = self.mean[c][(begin + np.arange(count)) % STRATA]
        if self.app.bernoulli:
            return np.asarray(uniform < mu, dtype=float)
        from scipy.special import ndtri

        return np.asarray(np.clip(mu + self.app.sd * ndtri(np.clip(uniform, 1e-12, 1 - 1e-12)), -1.0, 2.0))

    def profile(self, *, evaluator: str | None = None) -> dict[str, Any]:
        """The profile that poses this query (its device and links are in the SLO)."""
        steps, name = self.app.steps, self.app.name.lower()
        hardware = dict(zip(TIERS, ("edge-device", "v100", "a100"), strict=True))
        return {
            "format": "hetplan/profile/1.0", "reference": "a100", "tiers": list(TIERS),
            "metrics": {"score": {"range": [0, 1] if self.app.bernoulli else [-1, 2],
                                  "kind": "bernoulli" if self.app.bernoulli else "continuous"}},
            "hardware": {
                hardware[tier]: {"kind": "gpu", "tier": tier, "relative_time": time, "provides": {"gpu": 1}}
                for tier, time in zip(TIERS, (4.5, MEC_TIME, 1.0), strict=True)
            },
            "offers": {
                f"{hardware[tier]}-gpu": {"hardware": hardware[tier], "price_per_hour": str(price), "per": "gpu"}
                for tier, price in zip(TIERS, PRICE, strict=True)
            },
            "links": [
                {"between": [a, b], "bandwidth_mbps": rate * 8 / 1e6, "latency_ms": 1000 * hop}
                for (a, b), rate, hop in zip(pairwise(TIERS), BANDWIDTH, HOP_S, strict=True)
            ],
            "pipelines": {name: {
                "nodes": {step.name: {"device": "gpu", "reads": [self.app.knobs[k].name for k in
                                                                 dict.fromkeys((*step.compute, *step.output))]}
                          for step in steps},
                "edges": [{"from": a.name, "to": b.name} for a, b in pairwise(steps)],
                "knobs": {knob.name: list(range(len(knob.levels))) for knob in self.app.knobs},
                "metric": "score", "share_grid": list(GRID), "strata": STRATA,
                "evaluator": evaluator or f"synthetic-{name}",
            }},
        }  # fmt: skip

    def wish(self) -> dict[str, Any]:
        """The application's entry in an SLO."""
        links = [
            {"between": [a, b], "bandwidth_mbps": rate * 8 / 1e6, "latency_ms": 1000 * hop}
            for (a, b), rate, hop in zip(pairwise(TIERS), self.bandwidth, HOP_S, strict=True)
        ]
        return {
            "pipeline": self.app.name.lower(),
            "latency": {"p50_ms": 1000 * self.latency_max_s},
            "quality": {"min": self.accuracy_min},
            "streams": 1,
            "device": {"relative_time": self.relative_time[0], "links": links},
        }

    def slo(self, *, gpus: tuple[int, int] | None = None) -> dict[str, Any]:
        """The SLO of this query alone; `gpus` limits the machines of the two other tiers."""
        limits = {} if gpus is None else {"instances": {"v100": [0, gpus[0]], "a100": [0, gpus[1]]}}
        return {"format": "hetplan/slo/1.0", "limits": limits, "apps": {"query": self.wish()}}


def draw(name: str, seed: int) -> SyntheticQuery:
    """One query of an application, with its targets.

    >>> query = draw("SR", 0)
    >>> len(query.feasible()), round(query.accuracy_min, 6), round(query.latency_max_s, 6), query.least_cost
    (409, 0.705789, 0.577059, 0.0)
    """
    app = APPS[name]
    rng = np.random.default_rng([seed, app.seed])
    bandwidth = (BANDWIDTH[0] * float(rng.lognormal(0, 0.7)), BANDWIDTH[1] * float(rng.lognormal(0, 0.2)))
    device = float(rng.lognormal(np.log(4.5), 0.35))
    indices = np.array(list(product(*(range(len(knob.levels)) for knob in app.knobs))), dtype=np.int64)
    base = _accuracy(app, rng, indices)
    shift = rng.normal(0, 0.13, STRATA)
    shift -= shift.mean()
    mean = np.clip(base[:, None] + shift[None, :] * (1.4 - base)[:, None], 0.01, 0.99)
    seconds, bytes_out = _steps(app, rng, indices)
    query = SyntheticQuery(app, seed, mean, seconds, bytes_out, bandwidth, (device, MEC_TIME, 1.0))
    accuracy_min, latency_max_s = _targets(query, rng)
    return replace(query, accuracy_min=accuracy_min, latency_max_s=latency_max_s)


def _accuracy(app: SyntheticApp, rng: np.random.Generator, indices: NDArray[np.int64]) -> Vector:
    sensitivity = rng.lognormal(0, 0.45, len(app.knobs))
    shifts = [rng.normal(0, 0.02, len(knob.levels)) for knob in app.knobs]
    pairs = {
        (g, h): rng.normal(0, 0.012, (len(app.knobs[g].levels), len(app.knobs[h].levels)))
        for g in range(len(app.knobs))
        for h in range(g)
    }
    base = np.full(len(indices), rng.uniform(0.72, 0.95))
    for k, knob in enumerate(app.knobs):
        base += sensitivity[k] * np.array(knob.effect)[indices[:, k]] + shifts[k][indices[:, k]]
    for (g, h), table in pairs.items():
        base += table[indices[:, g], indices[:, h]]
    return np.asarray(np.clip(base, 0.03, 0.985))


def _steps(app: SyntheticApp, rng: np.random.Generator, indices: NDArray[np.int64]) -> tuple[Vector, Vector]:
    levels = [np.array(knob.levels) for knob in app.knobs]
    seconds, sizes = [], []
    for step in app.steps:
        time = np.full(len(indices), step.ms / 1000)
        for k in step.compute:
            time = time * levels[k][indices[:, k]] ** 0.9
        seconds.append(time * rng.lognormal(0, 0.15))
        size = np.full(len(indices), step.bytes)
        for k in step.output:
            size = size * levels[k][indices[:, k]]
        sizes.append(size * rng.lognormal(0, 0.2))
    return np.stack(seconds, axis=1), np.stack(sizes, axis=1)


def _targets(query: SyntheticQuery, rng: np.random.Generator) -> tuple[float, float]:
    """Of the configurations that no faster one beats, one: 0.85 of its accuracy, 1.5 times its latency."""
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


@dataclass(frozen=True)
class SyntheticPacking:
    """Queries with ready plans: demands per tier, weights, what there is."""

    demands: tuple[Vector, ...]
    weight: Vector
    capacity: Vector

    def slo(self) -> dict[str, Any]:
        """The SLO with these plans as candidates, tiers as totals."""
        return {
            "format": "hetplan/slo/1.0",
            "objective": ["max goodput"],
            "limits": {"capacity": dict(zip(TIERS, map(float, self.capacity), strict=True))},
            "apps": {
                f"q{i}": {
                    "weight": float(weight),
                    "candidates": [{"demand": dict(zip(TIERS, map(float, row), strict=True))} for row in rows],
                }
                for i, (rows, weight) in enumerate(zip(self.demands, self.weight, strict=True))
            },
        }

    def in_totals(self) -> Packing:
        """The form with demands against the tiers' totals."""
        counts = np.array([len(rows) for rows in self.demands])
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return Packing("max", first, np.repeat(self.weight, counts), np.concatenate(self.demands), self.capacity)

    def on_machines(self) -> Packing:
        """The form with each tier's demand on one GPU of it."""
        flat = self.in_totals()
        option, tier = np.nonzero(flat.demand > 0)
        items = Items(
            first=np.searchsorted(option, np.arange(len(flat.demand) + 1)).astype(np.int64),
            tier=tier.astype(np.int64),
            size=flat.demand[option, tier][:, None],
            machines=self.capacity.astype(float),
            room=np.ones((self.capacity.size, 1)),
            price=np.zeros(self.capacity.size),
        )
        return Packing("max", flat.first, flat.worth, np.zeros((len(flat.demand), 0)), np.zeros(0), items)


def draw_packing(count: int, seed: int, *, weighted: bool = False) -> SyntheticPacking:
    """`count` queries on three tiers that hold some two fifths of their least demands."""
    rng = np.random.default_rng(seed)
    demands = []
    for _ in range(count):
        p = int(rng.integers(5, 21))
        b = rng.lognormal(np.log(0.35), 0.7)
        mix = rng.dirichlet([0.6, 0.8, 0.8], p)
        eff = np.array([2.2, 1.4, 1.0]) * rng.lognormal(0, 0.25, 3)
        demands.append(_undominated(mix * b * eff * rng.lognormal(0, 0.2, (p, 1))))
    weight = rng.lognormal(0, 0.6, count) if weighted else np.ones(count)
    least = [d[d.sum(axis=1).argmin()] if count <= 2000 else d[0] for d in demands]
    capacity = np.sum(least, axis=0) / 2.5 * rng.uniform(0.7, 1.3, 3)
    return SyntheticPacking(tuple(demands), weight, np.asarray(capacity))


def draw_machines(count: int, seed: int, gpus: int) -> SyntheticPacking:
    """The same with random weights, demands in eighths of a GPU, a free device, and `gpus` in each other tier."""
    drawn = draw_packing(count, seed, weighted=True)
    demands = []
    for d in drawn.demands:
        eighths = np.clip(np.round(d * 8) / 8, 0, 1)
        eighths[:, 0] = 0
        eighths[(eighths == 0).all(axis=1), 1] = 0.125
        demands.append(eighths)
    return SyntheticPacking(tuple(demands), drawn.weight, np.array([0.0, gpus, gpus]))


def _undominated(d: Vector) -> Vector:
    """Rows that no other row is at most everywhere; of equal rows the first."""
    below = (d[None, :, :] <= d[:, None, :]).all(axis=2)
    strictly = (d[None, :, :] < d[:, None, :]).any(axis=2)
    earlier = np.arange(len(d))[None, :] < np.arange(len(d))[:, None]
    return np.asarray(d[~(below & (strictly | earlier)).any(axis=1)])


TIERS = ("device", "mec", "cloud")
PRICE = (0.0, 2.48, 3.67)
BANDWIDTH = (6.25e6, 50e6)
HOP_S = (0.008, 0.015)
GRID = (1.0, 0.75, 0.5, 0.25, 0.125)
STRATA = 8


@dataclass(frozen=True)
class Knob:
    """A knob: the relative compute of each level, and what it does to accuracy."""

    name: str
    levels: tuple[float, ...]
    effect: tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """An operator: milliseconds on an A100 at full levels, the knobs that scale them, bytes out and theirs."""

    name: str
    ms: float
    compute: tuple[int, ...]
    bytes: float
    output: tuple[int, ...] = ()


@dataclass(frozen=True)
class SyntheticApp:
    """An application: knobs, operators in a chain, how samples scatter, and the fixed sample size of the baselines."""

    name: str
    bernoulli: bool
    sd: float
    knobs: tuple[Knob, ...]
    steps: tuple[Step, ...]
    fixed_samples: int
    seed: int


def _ramp(name: str, low: float, count: int, worst: float, power: float) -> Knob:
    """Levels evenly from `low` to 1, effects from `worst` to 0 by a power of what is missing."""
    missing = 1 - np.arange(count) / (count - 1)
    levels = tuple(float(v) for v in np.linspace(low, 1.0, count))
    return Knob(name, levels, tuple(float(v) for v in worst * missing**power))


APPS = {
    "SR": SyntheticApp(
        "SR", False, 0.22,
        (
            Knob("rate", (0.62, 0.75, 0.88, 1.0), (-0.1, -0.05, -0.02, 0.0)),
            Knob("mask", (1.0, 1.0, 1.0, 1.0), (0.0, 0.01, -0.01, -0.06)),
            Knob("model", (0.25, 0.6, 0.3, 0.7, 1.0), (-0.22, -0.08, -0.14, -0.02, 0.0)),
        ),
        (
            Step("sampler", 2, (0,), 320e3, (0,)),
            Step("denoiser", 12, (0, 1), 320e3, (0,)),
            Step("encoder", 180, (0, 2), 600e3, (0,)),
            Step("decoder", 90, (2,), 2e3),
        ),
        356, 165,
    ),
    "VT": SyntheticApp(
        "VT", False, 0.2,
        (
            Knob("frame", (1.0, 0.55, 0.25, 0.11), (0.0, -0.02, -0.09, -0.22)),
            Knob("det", (1.0, 0.09, 0.2, 0.5), (0.0, -0.16, -0.09, -0.03)),
            Knob("reid", (1.0, 0.75, 0.45, 0.2, 0.08), (0.0, -0.01, -0.03, -0.09, -0.13)),
        ),
        (
            Step("sampler", 3, (0,), 900e3, (0,)),
            Step("augment", 6, (0,), 900e3, (0,)),
            Step("detect", 120, (0, 1), 250e3, (0,)),
            Step("track", 60, (2,), 4e3),
        ),
        353, 170,
    ),
    "LVC": SyntheticApp(
        "LVC", True, 0.0,
        (
            Knob("frames", (0.2, 0.4, 0.6, 0.8, 1.0), (-0.15, -0.07, -0.03, -0.01, 0.0)),
            Knob("res", (0.1, 0.3, 1.0), (-0.12, -0.03, 0.0)),
            _ramp("mllm", 0.1, 17, -0.28, 1.5),
        ),
        (
            Step("sampler", 5, (0,), 2.5e6, (0, 1)),
            Step("imgproc", 25, (0, 1), 1.8e6, (0, 1)),
            Step("mllm", 1100, (0, 1, 2), 1e3),
        ),
        688, 229,
    ),
    "DVC": SyntheticApp(
        "DVC", False, 0.25,
        (
            Knob("rate", (0.25, 0.5, 0.75, 1.0), (-0.08, -0.03, -0.01, 0.0)),
            Knob("res", (0.3, 1.0), (-0.05, 0.0)),
            Knob("venc", (1.0, 0.5, 0.35, 0.6), (0.0, -0.005, -0.05, -0.02)),
            Knob("asr", (1.0, 0.5, 0.2), (0.0, -0.03, -0.09)),
            Knob("ckpt", (1.0, 1.0, 1.0), (-0.04, 0.0, -0.01)),
        ),
        (
            Step("asr", 600, (3,), 40e3),
            Step("sampler", 8, (0,), 3e6, (0, 1)),
            Step("vision", 500, (0, 1, 2), 400e3, (0,)),
            Step("vid2seq", 350, (4,), 2e3),
        ),
        365, 221,
    ),
    "ACG": SyntheticApp(
        "ACG", True, 0.0,
        (_ramp("analyzer", 0.1, 10, -0.12, 1.3), _ramp("coder", 0.08, 12, -0.4, 1.2)),
        (Step("analyze", 2500, (0,), 6e3), Step("code", 6000, (1,), 4e3)),
        252, 203,
    ),
}  # fmt: skip
"""The applications by their names."""
