"""Holding a unit to its share of a machine: own cores, a CPU quota, a part of a GPU. Or the reason why nothing can.

A share is enforced by what the plan names (`enforce`): "cgroup" by a cgroup v2 folder that hosts.toml gives, or by own
cores where the share is a whole number of them; "mps" by CUDA MPS' percentage of threads; "mig" by the device ids that
hosts.toml lists. `enforcement = "none"` of a host lifts all of this, for emulation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hetplan.executor.hosts_file import Machines
from hetplan.executor.units import Unit

__all__ = ["Held", "LocalMeans", "enter_cgroup", "held", "leave_cgroup", "refusals"]

_PERIOD_US = 100_000


@dataclass(frozen=True)
class LocalMeans:
    """What this machine has to enforce shares with."""

    cgroup: Path | None = None
    mps_pipe: Path = Path("/tmp/nvidia-mps")

    @property
    def has_cgroup(self) -> bool:
        """Whether the folder is a cgroup v2 in which CPU quotas may be set."""
        if self.cgroup is None:
            return False
        try:
            controllers = (self.cgroup / "cgroup.controllers").read_text().split()
        except OSError:
            return False
        return "cpu" in controllers and os.access(self.cgroup, os.W_OK)

    @property
    def has_mps(self) -> bool:
        """Whether an MPS control daemon listens."""
        return (self.mps_pipe / "control").exists()


@dataclass(frozen=True)
class Held:
    """How a unit is started so that it keeps to its share."""

    cores: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    cpu_quota: float | None = None


def refusals(unit: Unit, host: Machines, means: LocalMeans) -> list[str]:
    """Why the unit cannot be held to its shares here; empty where it can."""
    if host.enforcement == "none":
        return []
    lift = f'or set hosts.{unit.host}.enforcement = "none" to run without'
    asked = [load for load in unit.loads if load.enforce != "none"]
    found = []
    if asked and len(unit.loads) > 1:
        found.append(
            f"{unit.worker} holds {len(unit.loads)} loads, {asked[0].id} with a share of its own: one process cannot "
            f"be held to it. Plan one load per worker, {lift}"
        )
    for load in asked:
        said = f"{load.id} wants {_told(load.share_gpu, load.share_cpu_cores)} enforced by {load.enforce}"
        if load.enforce == "cgroup" and load.share_cpu_cores is not None and not means.has_cgroup:
            amount = load.instances * load.share_cpu_cores
            if not (amount == int(amount) >= 1 and host.cores):
                found.append(
                    f"{said}: there is no cgroup v2 folder to set a quota in. Give settings.cgroup of the target one "
                    f"that may be written to, plan whole cores and list `cores`, {lift}"
                )
        elif load.enforce == "mps" and not means.has_mps:
            found.append(
                f"{said}: no MPS control daemon listens at {means.mps_pipe}. Start nvidia-cuda-mps-control, "
                f"give settings.mps_pipe, {lift}"
            )
        elif load.enforce == "mig" and not any(device.startswith("MIG-") for device in host.devices):
            found.append(f"{said}: hosts.{unit.host}.devices lists no MIG- devices. List them, {lift}")
    return found


def held(unit: Unit, host: Machines, means: LocalMeans) -> Held:
    """How to start the unit.

    >>> from hetplan.executor.units import LoadSpec
    >>> unit = Unit("", "w", 0, "gpu", "here", "box", loads=(LoadSpec("w.a", share_gpu=0.25, enforce="mps"),))
    >>> host = Machines(target="here", hardware="gpu", machines=1)
    >>> dict(held(unit, host, LocalMeans(mps_pipe=Path("/run/mps"))).environment)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
    '25'
    """
    cores = host.cores_per_worker or 0
    environment: dict[str, str] = {}
    quota = None
    if host.enforcement == "none":
        return Held(cores)
    for load in unit.loads:
        if load.enforce == "mps" and load.share_gpu is not None:
            percentage = max(round(100 * load.share_gpu), 1)
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percentage)
            environment["CUDA_MPS_PIPE_DIRECTORY"] = str(means.mps_pipe)
        if load.enforce == "cgroup" and load.share_cpu_cores is not None:
            amount = load.instances * load.share_cpu_cores
            if means.has_cgroup:
                quota = amount
            else:
                cores = int(amount)
    return Held(cores, environment, quota)


def enter_cgroup(means: LocalMeans, name: str, quota: float, pid: int) -> None:
    """Put a process under a quota of so many cores."""
    assert means.cgroup is not None
    folder = means.cgroup / f"hetplan-{name}"
    folder.mkdir(exist_ok=True)
    (folder / "cpu.max").write_text(f"{max(int(quota * _PERIOD_US), 1000)} {_PERIOD_US}\n")
    (folder / "cgroup.procs").write_text(f"{pid}\n")


def leave_cgroup(means: LocalMeans, name: str) -> None:
    """Remove a unit's folder; one that still holds a process stays."""
    if means.cgroup is not None:
        try:
            (means.cgroup / f"hetplan-{name}").rmdir()
        except OSError:
            return


def _told(gpu: float | None, cores: float | None) -> str:
    parts = [f"{gpu:g} of a GPU" if gpu is not None else "", f"{cores:g} CPU cores" if cores is not None else ""]
    return " and ".join(part for part in parts if part) or "its share"
