"""What a plan wants, as plain data: one unit per worker instance, with the loads that it holds.

A unit is all that a target sees of a plan. It holds names, numbers and what site.toml says about them; its `name` is
made of what cannot change while it runs (so an old and a new form of one worker can run side by side), its loads can
be changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hetplan.profiles.canonical import digest

__all__ = ["Endpoint", "LoadSpec", "Seen", "Unit", "in_url", "named"]

Law = Mapping[str, Any]
"""How long a batch takes: a table as in a profile ({"axes", "mean", "std", ...}), or {"ms": 5.0}."""


@dataclass(frozen=True)
class LoadSpec:
    """A model in a worker: which, how it batches, what share of the machine it may use, and how it is served.

    `model` is the entry of site.toml that serves it, with its words filled in: {"kind": "sleep", "law": {...}},
    {"kind": "onnx", "path": ...} or {"kind": "command", "command": [...]}. `expected` is how long a batch should take,
    by the profile: by it a query that could not be in time any more is given up, where its application does that.
    `gpu_mem_gib` is what one instance needs of a GPU's memory, by the profile.
    `outcomes` are what its answers may come to, each with its share. `tokens` is the law of its engine, where it makes
    text, with the plan's chunk and most sequences.
    """

    id: str
    app: str | None = None
    node: str | None = None
    variant: str | None = None
    at: Mapping[str, float] | None = None
    artifact: str | None = None
    knobs: Mapping[str, Any] = field(default_factory=dict)
    instances: int = 1
    concurrency: int = 1
    max_batch: int = 1
    max_wait_ms: float = 0.0
    share_gpu: float | None = None
    share_cpu_cores: float | None = None
    gpu_mem_gib: float | None = None
    enforce: str = "none"
    model: Mapping[str, Any] = field(default_factory=dict)
    expected: Law | None = None
    quality: float | None = None
    outcomes: Mapping[str, float] = field(default_factory=dict)
    tokens: Law | None = None
    cap: int | None = None
    """The most requests for text that an instance is sent at a time."""

    @property
    def streams(self) -> bool:
        """Whether its answers can come piece by piece."""
        return self.model.get("kind") in ("tokens", "openai", "http")

    @property
    def servers(self) -> int:
        """How many batches it serves at once."""
        return self.instances * self.concurrency


@dataclass(frozen=True)
class Unit:
    """One worker instance: the `index`-th of the plan's group `worker`, on a host of site.toml.

    `policies` are the plan's tables for this worker (rule queue-slack/1); `standby` units run but get no queries;
    `gpus` is how many GPUs its hardware has, None where nobody says.
    """

    name: str
    worker: str
    index: int
    hardware: str
    target: str
    host: str
    queue: str = "shared"
    standby: bool = False
    offer: str | None = None
    plan_host: str | None = None
    gpus: int | None = None
    loads: tuple[LoadSpec, ...] = ()
    policies: tuple[Mapping[str, Any], ...] = ()

    @property
    def content(self) -> str:
        """A digest of all that the unit holds: two units with the same one are the same."""
        return digest(self.as_dict())

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Unit:
        """The unit that `as_dict` wrote down.

        >>> unit = named(Unit("", "w1", 0, "t4", "here", "box", loads=(LoadSpec("w1.a", variant="rn50"),)))
        >>> Unit.from_dict(unit.as_dict()) == unit
        True
        """
        loads = tuple(LoadSpec(**load) for load in data["loads"])
        return cls(**{**data, "loads": loads, "policies": tuple(data["policies"])})


def named(unit: Unit) -> Unit:
    """The unit under the name that its worker, index and fixed parts give it.

    >>> named(Unit("", "w1", 0, "t4", "here", "box")).name
    'w1-0-955f38'
    """
    fixed = {"hardware": unit.hardware, "target": unit.target, "host": unit.host, "queue": unit.queue}
    return replace(unit, name=f"{unit.worker}-{unit.index}-{digest(fixed).removeprefix('sha256:')[:6]}")


def in_url(address: str) -> str:
    """An address as a URL has it.

    >>> in_url("::1"), in_url("10.0.0.2"), in_url("box.local")
    ('[::1]', '10.0.0.2', 'box.local')
    """
    return f"[{address}]" if ":" in address else address


@dataclass(frozen=True)
class Endpoint:
    """Where the router reaches a unit."""

    address: str
    port: int


@dataclass(frozen=True)
class Seen:
    """A unit that a target found running (or trying to): what it holds, where, and how it is.

    `status` is "starting", "ready", "failing" (it died and is started again) or "stopping"; `content` is the digest of
    the `Unit` it was started or last changed with, `unit` that unit itself where the target still knows it.
    """

    name: str
    content: str
    status: str
    endpoint: Endpoint | None = None
    unit: Unit | None = None
    restarts: int = 0
    why: str = ""
