"""The published services."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.build import shipped


class Service(NamedTuple):
    """A published service on four types: g4dn.xlarge (base), c5n.2xlarge, r5n.large, t3.xlarge."""

    sizes: list[float]
    pmf: list[float]
    qos_ms: float
    latency: dict[str, list[list[float]]]
    simulated: dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def published() -> Callable[..., Service]:
    """A published service by name; the test is skipped where the data are not at hand."""
    root = Path(__file__).resolve().parents[3]
    folder = Path(os.environ.get("HETPLAN_DATA", root / ".." / "shared" / "data")).resolve() / "kairos"
    if not (folder / "kairos_latency.json").exists():
        pytest.skip("the published Kairos data are not at hand (set HETPLAN_DATA)")

    def load(name: str) -> dict[str, Any]:
        return dict(shipped(folder / f"{name}.json"))

    latency, instance, pmf = load("kairos_latency"), load("kairos_instance"), load("batch_size_pmf")["kairos"]

    def service(model: str, simulated: bool = False) -> Service:
        rows = {
            kind: [latency[model][name][kind] for name in instance["types"]] for kind in ("mean_ms", "std_ms", "max_ms")
        }
        known = load(f"sim_{model}_exp_noise") if simulated else {}
        return Service(pmf["batch"], pmf["pmf"], instance["qos_ms_p99"][model], rows, known)

    return service
