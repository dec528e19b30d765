"""Seeded snapshots of many architectures with their variants, for INFaaS' question at any size.

Every number comes from a hash of (seed, architecture, template, feature), so that it is the same on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from hetplan_papers.datasets import infaas
from hetplan_papers.datasets.sources import Json

__all__ = ["RESOURCES", "Architecture", "Made", "Snapshot", "apps_of_five", "inputs", "make", "uniform"]

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15

RESOURCES = ("cpu_cores", "cpu_mem_gib", "gpu_mem_gib", "inf_cores")
TEMPLATES = (
    ("cpu", 1, 2),
    ("cpu", 1, 4),
    ("cpu", 8, 4),
    ("inferentia", 1, 1),
    ("inferentia", 4, 2),
    ("inferentia", 1, 4),
    *(("gpu", batch, 0) for batch in (1, 4, 8, 16, 32, 64)),
)
"""Hardware, batch, cores."""
MACHINES = {"cpu": (8, 32, 0, 0), "gpu": (8, 61, 16, 0), "inferentia": (8, 16, 0, 4)}
SLACK = 1.05
WEIGHT_PER_S = 0.1


def _mixed(z: int) -> int:
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & _MASK
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def uniform(seed: int, architecture: int, template: int, feature: int) -> float:
    """A number between 0 and 1 that depends on these four alone.

    >>> uniform(0, 0, 0, 0), uniform(1, 2, 3, 4)
    (0.12964561829974747, 0.22670530947316486)
    """
    h = 0
    for k in (seed, architecture, template, feature):
        h = _mixed((h + (k + 1) * _STEP) & _MASK)
    return ((h >> 11) + 0.5) / 2**53


def _normal(u: float) -> float:
    return NormalDist().inv_cdf(u)


@dataclass(frozen=True)
class Made:
    """One variant: T, Q, C, Tl and R of the specification."""

    name: str
    hardware: str
    batch: int
    latency_ms: float
    saturation_qps: float
    cost_per_s: float
    load_s: float
    needs: tuple[float, ...]


@dataclass(frozen=True)
class Architecture:
    """One architecture with its variants, its application's load and target, and what runs."""

    name: str
    accuracy: float
    variants: tuple[Made, ...]
    load_before_qps: float
    load_qps: float
    slo_ms: float

    def cheapest(self, load_qps: float) -> tuple[Made, int]:
        """The single variant in time, and how many of it, that carry a load at least cost."""
        options = [
            (math.ceil(SLACK * load_qps / variant.saturation_qps), variant)
            for variant in self.variants
            if variant.latency_ms <= self.slo_ms
        ]
        count, variant = min(options, key=lambda option: option[0] * option[1].cost_per_s)
        return variant, count


@dataclass(frozen=True)
class Snapshot:
    """All architectures, and how many machines there are of each kind."""

    architectures: tuple[Architecture, ...]
    machines: Mapping[str, int]

    @property
    def variants(self) -> list[Made]:
        """Every variant."""
        return [variant for architecture in self.architectures for variant in architecture.variants]


def _variant(seed: int, a: int, template: int, flops: float, params: float) -> Made:
    hardware, batch, cores = TEMPLATES[template]
    noise = math.exp(0.15 * _normal(uniform(seed, a, template, 11)))
    w = uniform(seed, a, template, 12)
    if hardware == "cpu":
        latency = (10 + 48 * flops * batch / cores) * noise
        memory = 4 * params + 0.4 + 0.05 * batch
        needs: tuple[float, ...] = (cores, memory, 0.0, 0.0)
        cost, load = 0.031 * max(memory, 2 * cores), 0.6 + 1.4 * w
    elif hardware == "inferentia":
        latency = (4 + 3.6 * flops * batch / cores) * noise
        needs = (0.5, 3 * params + 0.5, 0.0, cores)
        cost, load = 0.190 * (cores + params), 3 + 8 * w
    else:
        latency = (1.5 + 0.35 * flops * (1 + 0.6 * (batch - 1))) * noise
        memory = min(14.0, 3 * params + 0.7 + 0.015 * batch * flops)
        needs = (1.0, 2 * params + 1, memory, 0.0)
        cost, load = 0.498 * memory, 4 + 7 * w
    return Made(f"a{a}-v{template}", hardware, batch, latency, 1000 * batch / latency, cost, load, needs)


def _architectures(count: int, seed: int) -> list[Architecture]:
    feature = [[uniform(seed, a, 99, f) for f in range(8)] for a in range(count)]
    order = sorted(range(count), key=lambda a: feature[a][5])
    weight = {a: (1 + rank) ** -1.1 for rank, a in enumerate(order)}
    total = sum(weight.values())
    found: list[Architecture] = []
    for a, drawn in enumerate(feature):
        flops = 0.6 * 40 ** drawn[0]
        params = 0.015 * (0.55 / 0.015) ** drawn[1]
        keys = [uniform(seed, a, template, 10) for template in range(len(TEMPLATES))]
        keys[0 if drawn[3] < 0.5 else 1] = -1.0
        kept = sorted(sorted(range(len(TEMPLATES)), key=keys.__getitem__)[: 5 + int(7 * drawn[2])])
        variants = tuple(_variant(seed, a, template, flops, params) for template in kept)
        before = max(1.0, 60 * count * weight[a] / total)
        if drawn[6] < 0.25:
            slo_ms = max(50.0, 1.2 * min(variant.latency_ms for variant in variants))
        else:
            slo_ms = 1.5 * min(variant.latency_ms for variant in variants if variant.hardware == "cpu")
        accuracy, load = 56.6 + 25.9 * drawn[7], before * math.exp(0.5 * _normal(drawn[4]))
        found.append(Architecture(f"a{a}", accuracy, variants, before, load, slo_ms))
    return found


def _machines(used: Sequence[float], tight: float) -> dict[str, int]:
    """Machines for `tight` times this use: accelerators first, then CPU machines for what those do not bring."""
    gpu = max(1, math.ceil(tight * used[2] / 16))
    inferentia = max(1, math.ceil(tight * used[3] / 4))
    brought = [MACHINES["gpu"][r] * gpu + MACHINES["inferentia"][r] * inferentia for r in (0, 1)]
    short = [max(0.0, tight * used[r] - brought[r]) / MACHINES["cpu"][r] for r in (0, 1)]
    return {"cpu": max(1, math.ceil(max(short))), "gpu": gpu, "inferentia": inferentia}


def make(count: int, seed: int, tight: float = 1.15) -> Snapshot:
    """A snapshot of `count` architectures on machines `tight` times what the loads use one by one."""
    found = _architectures(count, seed)
    used = [0.0] * len(RESOURCES)
    for architecture in found:
        variant, number = architecture.cheapest(architecture.load_qps)
        used = [total + number * need for total, need in zip(used, variant.needs, strict=True)]
    return Snapshot(tuple(found), _machines(used, tight))


def apps_of_five(snapshot: Snapshot) -> dict[str, Json]:
    """Applications that own five architectures each: their loads together, the third highest accuracy as floor."""
    apps: dict[str, Json] = {}
    for first in range(0, len(snapshot.architectures), 5):
        group = snapshot.architectures[first : first + 5]
        floor = sorted((one.accuracy for one in group), reverse=True)[2]
        slo_ms = max(one.slo_ms for one in group if one.accuracy >= floor)
        load = sum(one.load_qps for one in group)
        names = [one.name for one in group]
        apps[f"b{first // 5}"] = infaas.app(load, slo_ms, names, least_quality=floor / 100)
    return apps


def inputs(
    count: int, seed: int, tight: float = 1.15, *, machines: bool = False, fives: bool = False
) -> tuple[Json, Json, Json]:
    """Profile, SLO and state; capacity as totals, or as single machines."""
    made = make(count, seed, tight)
    variants: dict[str, Json] = {}
    running: dict[str, int] = {}
    for architecture in made.architectures:
        for variant in architecture.variants:
            variants[variant.name] = {
                "task": "classify",
                "family": architecture.name,
                "quality": architecture.accuracy / 100,
                "hardware": variant.hardware,
                "latency_ms": variant.latency_ms,
                "saturation_qps": variant.saturation_qps,
                "cost_per_s": variant.cost_per_s,
                "load_s": variant.load_s,
                "batch": variant.batch,
                "needs": {name: need for name, need in zip(RESOURCES, variant.needs, strict=True) if need > 0},
            }
        chosen, number = architecture.cheapest(architecture.load_before_qps)
        running[chosen.name] = number
    provides = {kind: dict(zip(RESOURCES, amounts, strict=True)) for kind, amounts in MACHINES.items()}
    totals = {name: sum(provides[kind][name] * n for kind, n in made.machines.items()) for name in RESOURCES}
    apps = {one.name: infaas.app(one.load_qps, one.slo_ms, [one.name]) for one in made.architectures}
    return infaas.snapshot(
        variants,
        apps_of_five(made) if fives else apps,
        hardware={kind: {"kind": kind, "provides": provides[kind] if machines else {}} for kind in MACHINES},
        running=running,
        limits={} if machines else {"capacity": totals},
        change={"slack": SLACK, "load_weight_per_s": WEIGHT_PER_S},
        offers={kind: {"hardware": kind, "price_per_hour": "0", "stock": n} for kind, n in made.machines.items()}
        if machines
        else None,
        hosts={f"{kind}-{number}": {"offer": kind} for kind, n in made.machines.items() for number in range(n)}
        if machines
        else None,
    )
