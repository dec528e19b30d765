"""Small random snapshots with machines, states and capacities: fitting ones, over-full ones, odd ones."""

from __future__ import annotations

import random
from typing import Any

__all__ = ["random_shared", "random_snapshot", "sharing"]

RESOURCES = ("cpu_cores", "mem_gib", "gpu_share")


def random_snapshot(seed: int) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Profile, SLO and state; every odd kind among them: no load, one machine, what fits nowhere, equal costs."""
    rng = random.Random(seed)
    kinds = ["cpu", "gpu"][: rng.randint(1, 2)]
    provides = {
        "cpu": {"cpu_cores": rng.choice([4.0, 8.0]), "mem_gib": 16.0},
        "gpu": {"cpu_cores": 4.0, "mem_gib": 32.0, "gpu_share": 1.0},
    }
    counts = {kind: rng.choice([1, 2, 3]) for kind in kinds}
    style = rng.choice(["hosts", "hosts", "stock", "totals", "free"])
    equal = rng.random() < 0.2
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0",
        "hardware": {
            kind: {"kind": kind, "provides": provides[kind] if style in ("hosts", "stock") else {}} for kind in kinds
        },
        "tasks": {"t": {}}, "variants": {}, "tables": {},
    }  # fmt: skip
    if style in ("hosts", "stock"):
        profile["offers"] = {k: {"hardware": k, "price_per_hour": "0", "stock": counts[k]} for k in kinds}
    if style == "hosts":
        profile["hosts"] = {f"{kind}-{n}": {"offer": kind} for kind in kinds for n in range(counts[kind])}
    families = [f"f{n}" for n in range(rng.randint(1, 4))]
    for family in families:
        for number in range(rng.randint(1, 4)):
            _variant(rng, profile, family, f"{family}-v{number}", kinds, equal)
    slo = _wish(rng, families)
    if style == "totals":
        slo["limits"] = {
            "capacity": {name: sum(provides[k].get(name, 0.0) * counts[k] for k in kinds) for name in RESOURCES}
        }
    return profile, slo, _state(rng, profile, style, counts)


def _variant(
    rng: random.Random, profile: dict[str, Any], family: str, name: str, kinds: list[str], equal: bool
) -> None:
    kind = rng.choice(kinds)
    batch = rng.choice([1, 4])
    latency = rng.uniform(5, 120)
    needs = {"cpu_cores": rng.choice([0.5, 1.0, 2.0, 3.0]), "mem_gib": rng.choice([1.0, 4.0, 6.0])}
    if kind == "gpu":
        needs["gpu_share"] = rng.choice([0.2, 0.5, 1.0])
    if rng.random() < 0.05:
        needs["mem_gib"] = 1000.0
    profile["tables"][f"t-{name}"] = {"quantity": "latency_ms", "axes": {"batch": [batch]}, "mean": [latency]}
    run = {
        "hardware": kind, "latency": f"t-{name}", "at": {"batch": batch},
        "saturation_qps": round(1000 * batch / latency, 3), "load_s": rng.choice([0.0, 1.0, 7.5]),
        "price_per_hour": "1" if equal else str(round(rng.uniform(0.1, 5), 3)), "needs": needs,
    }  # fmt: skip
    runs = [run]
    if kind == "cpu" and "gpu" in kinds and rng.random() < 0.5:
        runs.append({**run, "hardware": "gpu"})
    profile["variants"][name] = {"task": "t", "family": family, "runs": runs}


def _wish(rng: random.Random, families: list[str]) -> dict[str, Any]:
    apps: dict[str, Any] = {}
    for family in families:
        for copy in range(2 if rng.random() < 0.3 else 1):
            load = 0.0 if rng.random() < 0.1 else round(rng.uniform(1, 90), 2)
            apps[f"{family}-app{copy}"] = {
                "family": family,
                "latency": {"p99_ms": rng.choice([60.0, 150.0])},
                "rate_qps": load,
            }
    change = {"slack": rng.choice([1.0, 1.05, 1.3]), "load_weight_per_s": rng.choice([0.0, 0.1])}
    return {"format": "hetplan/slo/1.0", "change": change, "apps": apps}


def _state(rng: random.Random, profile: dict[str, Any], style: str, counts: dict[str, int]) -> dict[str, Any]:
    workers: list[dict[str, Any]] = []
    names = sorted(profile["variants"])
    if style == "hosts" and rng.random() < 0.7:
        for host, about in profile["hosts"].items():
            loads = _held(rng, profile, host, about["offer"])
            if loads and rng.random() < 0.7:
                workers.append(
                    {
                        "id": f"on-{host}",
                        "hardware": about["offer"],
                        "offer": about["offer"],
                        "host": host,
                        "loads": loads,
                    }
                )
    elif rng.random() < 0.7:
        for name in rng.sample(names, min(len(names), 3)):
            run = profile["variants"][name]["runs"][0]
            load = {"id": f"r-{name}.1", "variant": name, "instances": rng.choice([1, 1, 2]),
                    "serve": {"max_batch": run["at"]["batch"]}}  # fmt: skip
            if rng.random() < 0.2:
                load["app"] = f"{name.partition('-')[0]}-app0"
            workers.append(
                {"id": f"r-{name}", "hardware": run["hardware"], "count": rng.randint(1, 3), "loads": [load]}
            )
    return {"format": "hetplan/state/1.0", "workers": workers}


def _held(rng: random.Random, profile: dict[str, Any], host: str, kind: str) -> list[dict[str, Any]]:
    room = dict(profile["hardware"][kind]["provides"])
    loads = []
    for name in sorted(profile["variants"]):
        run = next((run for run in profile["variants"][name]["runs"] if run["hardware"] == kind), None)
        if run is None or rng.random() < 0.5:
            continue
        if all(room.get(resource, 0.0) >= amount for resource, amount in run["needs"].items()):
            for resource, amount in run["needs"].items():
                room[resource] -= amount
            load = {"id": f"{host}.{name}", "variant": name, "serve": {"max_batch": run["at"]["batch"]}}
            if rng.random() < 0.3:
                load["app"] = f"{name.partition('-')[0]}-app0"
            loads.append(load)
    return loads


def sharing(
    hardware: dict[str, tuple[float, dict[str, float]]],
    runs: dict[str, list[tuple[str, float, dict[str, float]]]],
    loads: dict[str, float],
    **offer: Any,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hardware with its price and what it provides; per variant (hardware, rate, needs); a load per variant."""
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0",
        "tasks": {"c": {}},
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [2, 8]}},
        "hardware": {name: {"kind": "gpu", "provides": provides} for name, (_, provides) in hardware.items()},
        "offers": {
            f"{name}": {"hardware": name, "price_per_hour": str(price), **offer}
            for name, (price, _) in hardware.items()
        },
        "variants": {
            name: {
                "task": "c",
                "runs": [
                    {"hardware": h, "latency": "t", "at": {"batch": 8}, "saturation_qps": rate, "needs": needs}
                    for h, rate, needs in ways
                ],
            }
            for name, ways in runs.items()
        },
    }
    apps = {
        f"app-{name}": {
            "model": name,
            "latency": {"p99_ms": 60},
            "rate_qps": load,
        }
        for name, load in loads.items()
    }
    return profile, {"format": "hetplan/slo/1.0", "change": {"slack": 1.0}, "apps": apps}


def random_shared(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One or two kinds of machines that are paid whole, and two or three variants that share them."""
    draw = random.Random(seed)
    hardware = {
        name: (draw.choice([0.5, 1.0, 1.7, 3.0]), {"gpu": draw.choice([1, 2]), "cpu_cores": draw.choice([4, 8])})
        for name in ("h1", "h2")[: draw.choice([1, 2])]
    }
    runs = {}
    for name in ("m", "n", "o")[: draw.choice([2, 3])]:
        runs[name] = [
            (h, draw.choice([50.0, 80.0, 120.0]),
             {"gpu": draw.choice([0.2, 0.35, 0.5, 0.7, 1]), "cpu_cores": draw.choice([1, 2, 3])})
            for h in hardware
        ]  # fmt: skip
    return sharing(hardware, runs, {name: draw.choice([40.0, 90.0, 140.0]) for name in runs})
