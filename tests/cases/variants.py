"""Snapshots for variant autoscaling, written by hand: the paper's three variants of one model, and their likes."""

from __future__ import annotations

from typing import Any

import hetplan as hp
from hetplan.api.solve import plan_for
from hetplan.profiles.load import load_inputs

TABLE_2 = {"a": ("cpu", 200.0, 5.0, 1.0), "b": ("inferentia", 20.0, 100.0, 3.0), "c": ("gpu", 15.0, 800.0, 16.0)}
"""Hardware, latency (ms), saturation (queries/s), cost per second."""
NEEDS = {"a": {"cpu_cores": 4.0}, "b": {"inf_cores": 1.0}, "c": {"gpus": 1.0}}
LOAD_S = {"a": 1.0, "b": 5.0, "c": 10.0}
HOUR = 3600


def table2(
    loads: dict[str, float] | float,
    slo_ms: float = 300.0,
    *,
    slack: float = 1.0,
    weight_per_s: float = 0.0,
    load_s: dict[str, float] | None = None,
    running: dict[str, int] | None = None,
    needs: dict[str, dict[str, float]] | None = None,
    resources: dict[str, float] | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Profile, SLO and state of Table 2; several loads are several applications."""
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0",
        "hardware": {name: {"kind": name} for name in ("cpu", "inferentia", "gpu")},
        "tasks": {"classify": {}},
        "variants": {},
        "tables": {},
    }
    for name, (hardware, latency, qps, cost) in TABLE_2.items():
        profile["tables"][f"t-{name}"] = {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [latency]}
        run = {
            "hardware": hardware, "latency": f"t-{name}", "at": {"batch": 1}, "saturation_qps": qps,
            "price_per_hour": str(int(cost * HOUR)), "load_s": (load_s or {}).get(name, 0.0),
            "needs": (needs or {}).get(name, {}),
        }  # fmt: skip
        profile["variants"][name] = {"task": "classify", "family": "resnet50", "runs": [run]}
    named = loads if isinstance(loads, dict) else {"images": loads}
    apps = {
        app: {
            "family": "resnet50",
            "latency": {"p99_ms": slo_ms},
            "rate_qps": load,
        }
        for app, load in named.items()
    }
    slo: dict[str, Any] = {
        "format": "hetplan/slo/1.0",
        "change": {"slack": slack, "load_weight_per_s": weight_per_s},
        "limits": {} if resources is None else {"capacity": resources},
        "apps": apps,
    }
    workers = [
        {
            "id": f"r-{name}",
            "hardware": TABLE_2[name][0],
            "count": count,
            "loads": [{"id": f"r-{name}.1", "variant": name}],
        }
        for name, count in (running or {}).items()
    ]
    return profile, slo, {"format": "hetplan/state/1.0", "workers": workers}


def machines(
    hardware: dict[str, tuple[int, dict[str, float]]],
    variants: dict[str, tuple[str, float, float, float, dict[str, float]]],
    loads: dict[str, float],
    *,
    slo_ms: float = 300.0,
    on: dict[str, dict[str, int]] | None = None,
    slack: float = 1.0,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Named machines of each hardware (how many, what one provides); variants with hardware, latency, saturation,
    price per hour and needs; one application per load, which runs the variants of its family (its own name)."""
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0",
        "hardware": {name: {"kind": name, "provides": provides} for name, (_, provides) in hardware.items()},
        "offers": {name: {"hardware": name, "price_per_hour": "0"} for name in hardware},
        "hosts": {f"{name}-{k}": {"offer": name} for name, (count, _) in hardware.items() for k in range(count)},
        "tasks": {"t": {}},
        "variants": {},
        "tables": {},
    }
    for name, (kind, latency, qps, price, needs) in variants.items():
        profile["tables"][f"t-{name}"] = {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [latency]}
        run = {
            "hardware": kind, "latency": f"t-{name}", "at": {"batch": 1}, "saturation_qps": qps,
            "price_per_hour": str(price), "load_s": 1.0, "needs": needs,
        }  # fmt: skip
        profile["variants"][name] = {"task": "t", "family": name.partition("-")[0], "runs": [run]}
    apps = {
        app: {
            "family": app,
            "latency": {"p99_ms": slo_ms},
            "rate_qps": load,
        }
        for app, load in loads.items()
    }
    slo = {"format": "hetplan/slo/1.0", "change": {"slack": slack}, "apps": apps}
    workers = [
        {
            "id": f"on-{host}", "hardware": host.rpartition("-")[0], "offer": host.rpartition("-")[0], "host": host,
            "loads": [{"id": f"{host}.{name}", "variant": name, "instances": n} for name, n in held.items()],
        }
        for host, held in (on or {}).items()
    ]  # fmt: skip
    return profile, slo, {"format": "hetplan/state/1.0", "workers": workers}


def solve(documents: tuple[Any, Any, Any], formulation: str | None = None, **options: Any) -> hp.Outcome:
    """The plan of a snapshot; up to saturation, as in the paper, where no option says otherwise."""
    options.setdefault("sizing", "fluid")
    profile, slo, state = documents
    solver, try_repairs = options.pop("solver", None), options.pop("try_repairs", True)
    return plan_for(
        load_inputs(profile, slo, state=state), question="variants", formulation=formulation, options=options,
        solver=solver, try_repairs=try_repairs,
    )  # fmt: skip


def money(outcome: hp.Outcome, name: str) -> float:
    """A cost that a plan promises, per second as in the paper."""
    assert outcome.plan is not None, (outcome.why, outcome.reason)
    (value,) = [promise.value for promise in outcome.plan.promises if promise.quantity == name]
    return value / HOUR


def counts(outcome: hp.Outcome) -> dict[str, int]:
    """Instances of each variant."""
    found: dict[str, int] = {}
    for worker in outcome.require().workers:
        for load in worker.loads:
            found[load.variant or ""] = found.get(load.variant or "", 0) + worker.count * load.instances
    return found
