"""GPUs of one machine, and which worker gets which: by share and memory of each device, never by count alone.

The devices are read from `nvidia-smi`, or from a recorded list (`hetplan doctor --gpus --record FILE`), so that a plan
can be checked on a machine without any. A device is a whole GPU or a slice that MIG made of one. A worker has either a
part of one GPU (the shares of its loads), or one MIG slice, or so many whole GPUs.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hetplan.errors import InputError
from hetplan.executor.site import Host
from hetplan.executor.units import Unit
from hetplan.profiles.fields import Count, Model, PositiveAmount
from hetplan.profiles.validate import validate

__all__ = [
    "Device",
    "Gpu",
    "GpuList",
    "MigSlice",
    "Want",
    "assign",
    "devices_of",
    "listed_names",
    "parse_smi",
    "place",
    "read_gpus",
    "visible",
    "want_of",
    "wrong_devices",
]  # fmt: skip

_EPS = 1e-6
_HEADROOM = 1.1
"""A worker may take a tenth more memory than was measured: the profile's figure is a peak, not a limit."""
_MOST_TRIES, _MOST_SEARCHED = 20_000, 200
_QUERY = "--query-gpu=index,uuid,name,memory.total,mig.mode.current"


class MigSlice(Model):
    """A part of a GPU that MIG made: `profile` as nvidia-smi names it, `3g.20gb`."""

    uuid: str
    profile: str


class Gpu(Model):
    """One GPU as nvidia-smi knows it."""

    index: Count
    uuid: str
    name: str = ""
    mem_gib: PositiveAmount
    mig_mode: bool = False
    mig: tuple[MigSlice, ...] = ()


class GpuList(Model):
    """The GPUs of a machine, as a file."""

    format: Literal["hetplan/gpus/1.0"] = "hetplan/gpus/1.0"
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True)
class Device:
    """What a worker can be given: `id` for CUDA_VISIBLE_DEVICES, memory, and of a MIG slice its part of the GPU."""

    id: str
    mem_gib: float | None = None
    part: float | None = None
    names: tuple[str, ...] = ()
    """What site.toml may call it."""
    mig_mode: bool = False

    @property
    def is_slice(self) -> bool:
        """Whether MIG made it."""
        return self.id.startswith("MIG-")


@dataclass(frozen=True)
class Want:
    """What a unit takes: so many whole `devices`, or a `share` of one; `slice` says that it has to be a MIG slice."""

    name: str
    host: str
    devices: int = 1
    share: float = 1.0
    mem_gib: float | None = None
    slice: bool = False

    def memory_on(self, device: Device) -> float:
        """What it takes of a device's memory: what was measured and a tenth more, else by its share."""
        if self.mem_gib is not None:
            return self.mem_gib
        return self.share * device.mem_gib if device.mem_gib is not None and not device.is_slice else 0.0

    def __str__(self) -> str:
        if self.slice:
            what = f"a MIG slice of {self.share:.3g} of a GPU"
        elif self.share < 1.0:
            what = f"{self.share:.3g} of a GPU"
        else:
            what = f"{self.devices} GPU{'s' if self.devices > 1 else ''} to itself"
        return what + (f" with {self.mem_gib:.3g} GiB" if self.mem_gib is not None else "")


def want_of(unit: Unit, host: Host) -> Want | None:
    """What a unit takes of its host's GPUs; None where it takes none: its hardware has none, or it computes nothing.

    >>> from hetplan.executor.units import LoadSpec
    >>> load = LoadSpec("w.a", share_gpu=0.25, instances=2, enforce="mps")
    >>> host = Host(target="here", machines="gpu", count=4, devices=("0", "1"))
    >>> str(want_of(Unit("w-0", "w", 0, "gpu", "here", "box", loads=(load,)), host))
    '0.5 of a GPU'
    >>> str(want_of(Unit("w-0", "w", 0, "a100x2", "here", "box", gpus=2), host))
    '2 GPUs to itself'
    """
    shares = [load.instances * load.share_gpu for load in unit.loads if load.share_gpu is not None]
    needs = [load.instances * load.gpu_mem_gib for load in unit.loads if load.gpu_mem_gib is not None]
    memory = _HEADROOM * sum(needs) if needs else None
    if shares:
        is_slice = any(load.enforce == "mig" for load in unit.loads)
        return Want(unit.name, unit.host, 1, sum(shares), memory, is_slice)
    computes = any(load.model.get("kind") != "sleep" for load in unit.loads)
    nobody_says = 1 if host.devices else 0
    count = unit.gpus if unit.gpus is not None and (computes or host.devices) else nobody_says
    return Want(unit.name, unit.host, count, 1.0, memory / count if memory else memory) if count else None


# Which devices there are


def read_gpus(recorded: Path | None = None) -> GpuList | None:
    """The recorded list, or what nvidia-smi says; None where there is no nvidia-smi that answers."""
    if recorded is not None:
        try:
            content = json.loads(recorded.read_text())
        except (OSError, ValueError) as error:
            remedy = "Record one where the GPUs are: hetplan doctor --gpus --record FILE."
            raise InputError.one(file=str(recorded), why=f"no list of GPUs: {error}", remedy=remedy) from None
        return validate(GpuList, content, file=str(recorded))
    try:
        queried, listed = (
            subprocess.run(["nvidia-smi", word, *more], capture_output=True, text=True, check=True, timeout=20).stdout
            for word, more in ((_QUERY, ["--format=csv,noheader,nounits"]), ("-L", []))
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_smi(queried, listed)


def parse_smi(queried: str, listed: str) -> GpuList:
    """The devices from nvidia-smi's table (`--query-gpu`) and its list (`-L`), which names MIG's slices.

    >>> said = parse_smi("0, GPU-a1, NVIDIA A100-SXM4-40GB, 40960, Enabled",
    ...     "GPU 0: NVIDIA A100 (UUID: GPU-a1)\\n  MIG 3g.20gb     Device  0: (UUID: MIG-b2)")
    >>> said.gpus[0].mem_gib, said.gpus[0].mig[0].profile
    (40.0, '3g.20gb')
    """
    slices: dict[str, list[MigSlice]] = {}
    gpu = ""
    for line in listed.splitlines():
        if found := re.match(r"GPU \d+: .*\(UUID: (GPU-[^)]+)\)", line):
            gpu = found[1]
        elif found := re.match(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)", line):
            slices.setdefault(gpu, []).append(MigSlice(uuid=found[2], profile=found[1]))
    gpus = []
    for line in queried.splitlines():
        index, uuid, name, memory, mode = (part.strip() for part in line.split(","))
        gpus.append(
            Gpu(
                index=int(index), uuid=uuid, name=name, mem_gib=float(memory) / 1024.0,
                mig_mode=mode == "Enabled", mig=tuple(slices.get(uuid, ())),
            )
        )  # fmt: skip
    return GpuList(gpus=tuple(gpus))


def _devices_there(listed: GpuList) -> list[Device]:
    found = []
    for gpu in listed.gpus:
        found.append(Device(gpu.uuid, gpu.mem_gib, None, (gpu.uuid, str(gpu.index)), gpu.mig_mode))
        for part in gpu.mig:
            share, memory = _geometry(part.profile, gpu.name)
            found.append(Device(part.uuid, memory, share, (part.uuid,)))
    return found


def _geometry(profile: str, gpu: str) -> tuple[float | None, float | None]:
    """A slice's part of its GPU's processors, and its memory in GiB.

    >>> _geometry("1g.6gb", "NVIDIA A30"), _geometry("1c.3g.20gb", "NVIDIA A100-SXM4-40GB")
    ((0.25, 6.0), (0.14285714285714285, 20.0))
    """
    found = re.match(r"(?:(\d+)c\.)?(\d+)g\.(\d+)gb", profile)
    if found is None:
        return None, None
    whole = 4 if "A30" in gpu.split() or "RTX PRO" in gpu else 7
    return int(found[1] or found[2]) / whole, float(found[3])


def listed_names(devices: Sequence[Device]) -> str:
    """Devices as a line for people."""
    return ", ".join(device.names[-1] if device.names else device.id for device in devices) or "none"


def devices_of(host: Host, listed: GpuList | None) -> tuple[Device, ...]:
    """The devices that a host's workers may have: those that site.toml names, else all that the machine has.

    A name that the list does not know is kept as it is: CUDA may know it (a prefix of a UUID), or there is no list.
    """
    there = _devices_there(listed) if listed is not None else []
    if not host.devices:
        return tuple(one for one in there if not one.mig_mode)
    return tuple(_named(name, there) for name in host.devices)


def _named(name: str, there: Sequence[Device]) -> Device:
    for one in there:
        if name in one.names:
            return one
    alike = [one for one in there if name.startswith(("GPU-", "MIG-")) and one.id.startswith(name)]
    return alike[0] if len(alike) == 1 else Device(name, names=(name,))


def wrong_devices(name: str, host: Host, listed: GpuList | None) -> list[str]:
    """What is wrong with the devices that a host lists: not there, named twice, or divided by MIG."""
    there = _devices_there(listed) if listed is not None else []
    devices, found = devices_of(host, listed), []
    for device in devices:
        known = device in there
        called = device.names[-1] if device.names else device.id
        if there and not known:
            found.append(f"hosts.{name}.devices: this machine has no {called}; it has {listed_names(there)}")
        elif device.mig_mode:
            found.append(f"hosts.{name}.devices: GPU {called} is divided by MIG; list its slices (MIG-...) instead")
    ids = [device.id for device in devices]
    twice = sorted({one for one in ids if ids.count(one) > 1})
    found += [f"hosts.{name}.devices: {one} is named twice" for one in twice]
    return found


# Who gets which


@dataclass
class _Room:
    """What is left of one device."""

    device: Device
    share: float = 1.0
    mem_gib: float = field(default=0.0)

    def takes(self, want: Want) -> bool:
        device = self.device
        if want.slice or device.is_slice:
            # A slice is one worker's alone, and never another kind of share.
            big = device.part is None or device.part + _EPS >= want.share
            fits = want.slice == device.is_slice and big and self.share >= 1.0 - _EPS
        else:
            fits = self.share + _EPS >= want.share
        return fits and (device.mem_gib is None or self.mem_gib + _EPS >= want.memory_on(device))

    def take(self, want: Want, sign: int = 1) -> None:
        self.share -= sign * (1.0 if self.device.is_slice else want.share)
        self.mem_gib -= sign * want.memory_on(self.device)

    @property
    def tightness(self) -> tuple[float, float, float]:
        return (self.device.part or 1.0, self.share, self.mem_gib)

    def __str__(self) -> str:
        called = self.device.names[-1] if self.device.names else self.device.id
        memory = f" and {self.mem_gib:.3g} GiB" if self.device.mem_gib is not None else ""
        if self.device.is_slice:
            part = f" (a slice of {self.device.part:.3g})" if self.device.part is not None else ""
            return f"{called}{part} is {'free' if self.share >= 1.0 - _EPS else 'taken'}"
        return f"{called} has {max(self.share, 0.0):.3g}{memory} left"


def place(
    wants: Iterable[Want], devices: Mapping[str, Sequence[Device]], taken: Iterable[tuple[Want, Sequence[Device]]] = ()
) -> tuple[dict[str, tuple[Device, ...]], list[str]]:
    """Which unit gets which devices, and for whom there is no room.

    `devices` are those of each host; `taken` is what runs already, on whichever host. Two hosts that name one device
    share it. The tightest device that has room is taken, larger wishes first; where that leaves somebody without, other
    ways are tried, up to a count.

    >>> wants = [Want(name, "box", 1, share) for name, share in (("a", 0.5), ("b", 0.4), ("c", 0.6), ("d", 0.5))]
    >>> got, refused = place(wants, {"box": [Device("0"), Device("1")]})
    >>> {name: chosen[0].id for name, chosen in got.items()}, refused
    ({'c': '0', 'a': '1', 'd': '1', 'b': '0'}, [])
    """
    rooms = {one.id: _Room(one, 1.0, one.mem_gib or 0.0) for listed in devices.values() for one in listed}
    for want, held in taken:
        for device in held:
            room = rooms.setdefault(device.id, _Room(device, 1.0, device.mem_gib or 0.0))
            room.take(want)
    order = sorted(wants, key=lambda want: (-want.devices, -want.share, -(want.mem_gib or 0.0)))
    search = _Search(rooms, devices)
    if len(order) <= _MOST_SEARCHED and search.run(order):
        return search.got, []
    return search.greedy(order)


@dataclass
class _Search:
    """Depth first, the tightest device first."""

    rooms: Mapping[str, _Room]
    devices: Mapping[str, Sequence[Device]]
    got: dict[str, tuple[Device, ...]] = field(default_factory=dict)
    tries: int = 0

    def run(self, wants: Sequence[Want]) -> bool:
        if not wants:
            return True
        want = wants[0]
        for chosen in self._ways(want):
            self.tries += 1
            if self.tries > _MOST_TRIES:
                return False
            self._take(want, chosen)
            if self.run(wants[1:]):
                return True
            self._take(want, chosen, -1)
            del self.got[want.name]
        return False

    def greedy(self, wants: Sequence[Want]) -> tuple[dict[str, tuple[Device, ...]], list[str]]:
        """Who gets something and who does not, with what is left."""
        refused = []
        self.got = {}
        for want in wants:
            chosen = next(iter(self._ways(want)), None)
            if chosen is None:
                left = [str(self.rooms[one.id]) for one in self.devices.get(want.host, ())]
                refused.append(f"{want.name} needs {want}: {'; '.join(left) or f'hosts.{want.host} has no devices'}")
            else:
                self._take(want, chosen)
        return self.got, refused

    def _take(self, want: Want, chosen: Sequence[Device], sign: int = 1) -> None:
        for device in chosen:
            self.rooms[device.id].take(want, sign)
        self.got[want.name] = tuple(chosen)

    def _ways(self, want: Want) -> list[tuple[Device, ...]]:
        """The sets of devices that it may have, one of those that are alike."""
        rooms = sorted(
            (self.rooms[one.id] for one in self.devices.get(want.host, ()) if self.rooms[one.id].takes(want)),
            key=lambda room: room.tightness,
        )
        if want.devices > 1:
            return [tuple(room.device for room in rooms[: want.devices])] if len(rooms) >= want.devices else []
        alike = {(room.tightness, self._hosts_of(room.device)): room.device for room in reversed(rooms)}
        return [(device,) for device in reversed(alike.values())]

    def _hosts_of(self, device: Device) -> frozenset[str]:
        return frozenset(name for name, listed in self.devices.items() if device in listed)


def assign(
    units: Sequence[tuple[Unit, Host]], listed: GpuList | None, taken: Iterable[tuple[Want, Sequence[Device]]] = ()
) -> tuple[dict[str, tuple[Want, tuple[Device, ...]]], list[str]]:
    """The devices of each unit that takes some and whose host has some, and who cannot have what it needs.

    A host without enforcement is for emulation: its devices go round, whatever the shares come to.
    """
    taken = list(taken)
    wants: dict[str, Want] = {}
    devices: dict[str, Sequence[Device]] = {}
    given: dict[str, tuple[Want, tuple[Device, ...]]] = {}
    used: Counter[str] = Counter(device.id for _, held in taken for device in held)
    for unit, host in units:
        want, there = want_of(unit, host), devices_of(host, listed)
        if want is None or not there:
            continue
        if host.enforcement == "none":
            chosen = sorted(there, key=lambda one: (used[one.id], there.index(one)))[: want.devices]
            used.update(device.id for device in chosen)
            given[unit.name] = (want, tuple(chosen))
        else:
            wants[unit.name], devices[unit.host] = want, there
    got, refused = place(wants.values(), devices, taken)
    return {**given, **{name: (wants[name], chosen) for name, chosen in got.items()}}, refused


def visible(want: Want, devices: Sequence[Device], *, limited: bool) -> dict[str, str]:
    """The variables that show a process its devices; `limited` holds a client of MPS to its part of the memory.

    >>> visible(Want("a", "box", 1, 0.25), [Device("GPU-a1", 40.0)], limited=True)
    {'CUDA_VISIBLE_DEVICES': 'GPU-a1', 'CUDA_MPS_PINNED_DEVICE_MEM_LIMIT': '0=10240M'}
    >>> visible(Want("a", "box", 2), [Device("2"), Device("3")], limited=False)
    {'CUDA_VISIBLE_DEVICES': '2,3', 'CUDA_DEVICE_ORDER': 'PCI_BUS_ID'}
    """
    made = {"CUDA_VISIBLE_DEVICES": ",".join(device.id for device in devices)}
    if any(device.id.isdigit() for device in devices):
        # CUDA counts from the fastest GPU unless it is to count as nvidia-smi does.
        made["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if limited:
        amounts = [f"{at}={int(1024 * want.memory_on(device))}M" for at, device in enumerate(devices)]
        made["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = ",".join(amounts)
    return made
