"""Holding a unit to its share of a machine: own cores, a part of a GPU. Or the reason why nothing here can.

A share is enforced by what the plan names (`enforce`): "cgroup" by own cores where the share is a whole number of them
(parts of a core are for systemd and containers to hold); "mps" by CUDA MPS' percentage of threads and its limit of
memory; "mig" by slices that are large enough. `enforcement = "none"` of a host lifts all of this, for emulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hetplan.executor.gpus import GpuList, assign, devices_of, read_gpus, want_of, wrong_devices
from hetplan.executor.site import Host
from hetplan.executor.units import LoadSpec, Unit

__all__ = ["Held", "LocalMeans", "gpu_refusals", "held", "refusals"]


@dataclass(frozen=True)
class LocalMeans:
    """What this machine has to enforce shares with."""

    mps_pipe: Path = Path("/tmp/nvidia-mps")
    gpu_list: Path | None = None

    @property
    def has_mps(self) -> bool:
        """Whether an MPS control daemon listens."""
        return (self.mps_pipe / "control").exists()

    @cached_property
    def gpus(self) -> GpuList | None:
        """The machine's GPUs, looked up once; None where nothing lists them."""
        return read_gpus(self.gpu_list)


@dataclass(frozen=True)
class Held:
    """How a unit is started so that it keeps to its share."""

    cores: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


def refusals(unit: Unit, host: Host, means: LocalMeans) -> list[str]:
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
        said = f"{load.id} wants {_described(load)} enforced by {load.enforce}"
        if load.enforce == "cgroup" and load.share_cpu_cores is not None:
            amount = load.instances * load.share_cpu_cores
            if not (amount == int(amount) >= 1 and host.cores):
                found.append(
                    f"{said}: a process is held to whole cores alone here. Plan whole cores and list `cores`, "
                    f"render for systemd, compose or kubernetes, which hold parts, {lift}"
                )
        elif load.enforce in ("mps", "mig"):
            why = _no_gpu_share(unit, load, host, means)
            found += [f"{said}: {why}, {lift}"] if why else []
    return found


_LIST = "give settings.gpu_list one that `hetplan doctor --gpus --record FILE` wrote"


def _no_gpu_share(unit: Unit, load: LoadSpec, host: Host, means: LocalMeans) -> str:
    """Why this machine cannot hold a load to its share of a GPU; "" where it can."""
    if load.share_gpu is None or load.instances * load.share_gpu > 1.0 + 1e-6:
        return "no GPU has so much. Plan a share of at most one GPU per worker"
    if load.enforce == "mps" and not means.has_mps:
        return (
            f"no MPS control daemon listens at {means.mps_pipe}. Start nvidia-cuda-mps-control, give settings.mps_pipe"
        )
    devices = devices_of(host, means.gpus)
    named = f"hosts.{unit.host}.devices"
    if load.enforce == "mig":
        slices = [device for device in devices if device.is_slice]
        if not slices:
            return f"{named} lists no MIG- devices. List them"
        unknown = [device.id for device in slices if device.part is None]
        return f"how large {', '.join(unknown)} is nobody says: nvidia-smi is not here, so {_LIST}" if unknown else ""
    if not devices:
        return f"{named} is empty and nvidia-smi is not here, so all would be on GPU 0. List the GPUs"
    unknown = [device.id for device in devices if device.mem_gib is None]
    if unknown and load.gpu_mem_gib is None:
        return f"the memory of {', '.join(unknown)} is not known, so no part of it can be a limit: {_LIST}"
    return ""


def gpu_refusals(units: Sequence[Unit], hosts: Mapping[str, Host], means: LocalMeans) -> list[str]:
    """Why the GPUs of this machine are not enough for all of these units together, by share and by memory."""
    wanting = [(unit, hosts[unit.host]) for unit in units if want_of(unit, hosts[unit.host]) is not None]
    if not wanting:
        return []
    named = dict.fromkeys(unit.host for unit, _ in wanting)
    found = [why for name in named for why in wrong_devices(name, hosts[name], means.gpus)]
    for name in named:
        alone = [unit for unit, host in wanting if unit.host == name and not devices_of(host, means.gpus)]
        if len(alone) > 1 and hosts[name].enforcement != "none":
            found.append(
                f"hosts.{name}.devices is empty and nvidia-smi is not here: {len(alone)} workers that need a GPU would "
                f'all be on GPU 0. List the GPUs, or set hosts.{name}.enforcement = "none"'
            )
    return found or [f"no room on the GPUs: {why}" for why in assign(wanting, means.gpus)[1]]


def held(unit: Unit, host: Host, means: LocalMeans) -> Held:
    """How to start the unit.

    >>> from hetplan.executor.units import LoadSpec
    >>> unit = Unit("", "w", 0, "gpu", "here", "box", loads=(LoadSpec("w.a", share_gpu=0.25, enforce="mps"),))
    >>> host = Host(target="here", machines="gpu", count=1)
    >>> dict(held(unit, host, LocalMeans(mps_pipe=Path("/run/mps"))).environment)["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
    '25'
    """
    cores = host.cores_per_worker or 0
    environment: dict[str, str] = {}
    if host.enforcement == "none":
        return Held(cores)
    for load in unit.loads:
        if load.enforce == "mps" and load.share_gpu is not None:
            percentage = min(max(round(100 * load.instances * load.share_gpu), 1), 100)
            environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(percentage)
            environment["CUDA_MPS_PIPE_DIRECTORY"] = str(means.mps_pipe)
        if load.enforce == "cgroup" and load.share_cpu_cores is not None:
            cores = int(load.instances * load.share_cpu_cores)
    return Held(cores, environment)


def _described(load: LoadSpec) -> str:
    gpu, cores = load.share_gpu, load.share_cpu_cores
    parts = [f"{gpu:g} of a GPU" if gpu is not None else "", f"{cores:g} CPU cores" if cores is not None else ""]
    times = f" in each of {load.instances} instances" if load.instances > 1 else ""
    return " and ".join(part for part in parts if part) + times or "its share"
