"""site.toml: the trusted half of rendering. Images, commands, selectors, addresses and secrets' names stand here.

A plan gives ids and numbers; the people who run the platform say what stands behind each id.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from hetplan.errors import Fault, InputError
from hetplan.executor.hosts_file import WatchSettings
from hetplan.profiles.fields import Count, Id, Key, Model, Named, NonNegative, Positive, PositiveCount
from hetplan.profiles.read_text import read_text
from hetplan.profiles.validate import validate

__all__ = [
    "FILE",
    "UNKNOWN",
    "Cluster",
    "Edge",
    "HardwareSite",
    "ModelSite",
    "RouterSite",
    "SecretRef",
    "Site",
    "read_site",
]

FILE, UNKNOWN = "site.toml", "?"
Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Line = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
SecretKey = Annotated[str, StringConstraints(pattern=r"^\.?[A-Za-z0-9_-][A-Za-z0-9._-]*$")]
"""As Kubernetes takes it; a file of this name is in its folder."""
Port = Annotated[int, Field(ge=1, le=65535, strict=True)]


class SecretRef(Model):
    """Where the platform keeps a secret: its name and the key in it. The secret itself is in no file of ours."""

    name: Label
    key: SecretKey


class ModelSite(Model):
    """How a model of the plan is served: the user's own image or command."""

    image: Line | None = None
    command: tuple[Line, ...] = Field(default=(), description="of systemd all of it; else in place of the image's own")
    args: tuple[Line, ...] = Field(
        default=(), description='words; "{max_seqs}", "{max_tokens}", "{tensor}" ... are filled'
    )
    model_uri: Line | None = Field(default=None, description="where the platform loads it from, as hf://ORG/NAME")
    name: Line | None = Field(default=None, description="what clients call it; by default the plan's id")
    port: Port = 8080
    health: Annotated[str, StringConstraints(pattern=r"^/[A-Za-z0-9_./-]*$")] = "/health"
    alive_s: NonNegative = Field(
        default=60.0, description="a server whose health is not answered for so long is started again; 0: never"
    )
    env: dict[Variable, Line] = Field(default_factory=dict)
    secret: dict[Variable, SecretRef] = Field(default_factory=dict)
    stop_s: Positive = Field(default=30.0, description="what was begun may take so long to end")
    protocol: Literal["plain", "openai", "kserve-v2"] = Field(
        default="plain", description="how hetplan's router has it asked; plain: a query's inputs are the body"
    )
    route: Annotated[str, StringConstraints(pattern=r"^/[^?#\s]*$")] | None = Field(
        default=None, description='the path of these requests; "{variant}" is filled'
    )
    outcome: Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)*$")] | None = Field(
        default=None, description="where an answer says what it comes to, for steps that depend on it: verdict"
    )
    runtime_version: Line | None = Field(default=None, description="of Dynamo, where the image's tag is no version")
    deployment: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]+:[A-Za-z0-9_]+$")] | None = Field(
        default=None, description="of Ray Serve: MODULE:APPLICATION of the image"
    )


class HardwareSite(Model):
    """Which machines of the platform a hardware of the plan is."""

    instance_type: Line | None = None
    gpu_product: Line | None = Field(default=None, description="a GPU of accelerators.json, as l4 or a100-80")
    gpus: Count | None = Field(default=None, description="GPUs of a machine, where the profile does not say")
    device: Line | None = Field(
        default=None, description="the resource of its GPUs or shares, as nvidia.com/gpu.shared"
    )
    selector: dict[Line, str] = Field(default_factory=dict, description="labels that only its nodes have")
    tolerations: tuple[dict[str, Any], ...] = ()
    addresses: tuple[Line, ...] = Field(default=(), description="of haproxy: a machine each, in order")


class Edge(Model):
    """Where the rendered HAProxy listens."""

    image: Line = "haproxy:3.2-alpine"
    bind: Line = "127.0.0.1"
    port: Port = Field(default=8600, description="of the first application; the next one has the next port")
    certificates: Line | None = Field(default=None, description="a folder or file of certificates: TLS ends here")
    max_connections: PositiveCount = 8192


class RouterSite(Model):
    """hetplan's router in a cluster (`--set router=hetplan`), and the workers beside the servers."""

    image: Line | None = Field(default=None, description="an image with Python and hetplan")
    port: Port = 8600
    worker_port: Port = Field(default=8601, description="of the worker in each pod; no server listens there")
    token: SecretRef | None = Field(default=None, description="what clients and router say: 16 characters or more")
    open: bool = Field(default=False, description="true: no token, all pods of the cluster may use them")


class Cluster(Model):
    """How `hetplan apply` reaches a cluster, and how long things may take there."""

    kubectl: Line = Field(default="kubectl", description="the program: a name, or a path relative to site.toml")
    kubeconfig: Line | None = Field(default=None, description="relative to site.toml; by default kubectl's own choice")
    context: Line | None = None
    surge: bool = Field(default=True, description="new pods are ready before old ones end; needs room for both")
    start_s: Positive = Field(default=600.0, description="a pod from its start until it is ready")
    call_s: Positive = Field(default=20.0, description="one question to the API server")
    away_s: Positive = Field(default=30.0, description="an API server that does not answer is asked again for so long")


class Site(Model):
    """The whole file; `folder` is where it lies, for the paths in it."""

    format: Literal["hetplan/site/1.0"] = "hetplan/site/1.0"
    name: Id = Field(default="hetplan", description="names the deployment; what is applied is pruned by it")
    cloud: Literal["gke", "eks", "aks", "karpenter", "none"] = "none"
    namespace: Label = "default"
    gateway: Label | None = Field(default=None, description="the Gateway that routes are attached to")
    timezone: Line = Field(default="UTC", description="in which the plan's first period begins at 0:00")
    hop_ms: NonNegative = Field(default=2.0, description="the network between edge and worker, there and back")
    reserve_cpu_cores: NonNegative = Field(default=0.5, description="of each node, for DaemonSets")
    reserve_mem_gib: NonNegative = 0.5
    image_pull_secrets: tuple[Label, ...] = Field(default=(), description="of Kubernetes: by which images are pulled")
    node_class: Label = Field(default="default", description="of Karpenter: the node class of the cloud")
    files: tuple[Line, ...] = Field(default=(), description="profiles, SLO, measurements: each says what it is")
    note: Line | None = Field(default=None, description="a line in the head of every file")
    state_dir: Line = Field(default=".hetplan", description="beside this file: lock and journal of an apply")
    cluster: Cluster = Field(default_factory=Cluster)
    watch: WatchSettings = Field(default_factory=WatchSettings)
    render: dict[Key, Line] = Field(
        default_factory=dict, description='what --set says, unless it says otherwise: router = "hetplan"'
    )
    edge: Edge = Field(default_factory=Edge)
    router: RouterSite = Field(default_factory=RouterSite)
    models: Named[ModelSite] = Field(default_factory=dict)
    hardware: Named[HardwareSite] = Field(default_factory=dict)
    offers: dict[Key, dict[Line, str]] = Field(default_factory=dict, description="labels of the nodes of an offer")
    folder: Path = Field(default=Path(), exclude=True)

    def model(self, name: str) -> ModelSite:
        """How a model is served."""
        return self.models.get(name, ModelSite())

    def machine(self, hardware: str) -> HardwareSite:
        """Which machines a hardware is."""
        return self.hardware.get(hardware, HardwareSite())


def read_site(source: str | os.PathLike[str] | Mapping[str, Any] | Site) -> Site:
    """The file, checked; `InputError` names every fault by file, key, value, reason and remedy.

    >>> read_site({"cloud": "gke", "models": {"net": {"image": "registry.example/net:1"}}}).model("net").port
    8080
    """
    if isinstance(source, Site):
        return source
    if isinstance(source, Mapping):
        return validate(Site, _filled_in(dict(source), FILE), file=FILE)
    try:
        content = tomllib.loads(read_text(source, wanted="a TOML file"))
    except tomllib.TOMLDecodeError as error:
        raise InputError.one(file=os.fspath(source), why=str(error), remedy="Give a readable TOML file.") from None
    made = validate(Site, _filled_in(content, os.fspath(source)), file=os.fspath(source))
    return made.model_copy(update={"folder": Path(source).resolve().parent})


def _filled_in(content: dict[str, Any], file: str) -> dict[str, Any]:
    """The content, if no line of a template still is "?"."""
    faults = [Fault(file, path, UNKNOWN, "nobody filled this in", "Write what your platform calls it.")
              for path in _unknown(content, "$")]  # fmt: skip
    if faults:
        raise InputError(faults)
    return content


def _unknown(value: Any, path: str) -> Iterator[str]:
    if value == UNKNOWN:
        yield path
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _unknown(one, f"{path}.{name}")
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _unknown(one, f"{path}[{place}]")
