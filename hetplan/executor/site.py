"""site.toml: the trusted half of running a plan (`docs/howto/run.md`).

A plan gives ids and numbers. Which hosts or nodes play its machine types, which image or command serves a model, which
files and secrets are used: all that is said here, by the people who run the machines. Sections of other tools
(`[evaluators]`, `[measure]`) are let through unread.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints, model_validator

from hetplan.errors import Fault, InputError
from hetplan.executor.old_site import faults_of_old_words
from hetplan.profiles.fields import Count, Id, Key, Model, Named, NonNegative, Positive, PositiveCount, wrong
from hetplan.profiles.pipelines import IdOrStar
from hetplan.profiles.read_text import read_text
from hetplan.profiles.validate import validate
from hetplan.profiles.workers import Load

__all__ = [
    "FILE",
    "UNKNOWN",
    "ApiModel",
    "Cluster",
    "CommandModel",
    "Edge",
    "Host",
    "MachineType",
    "ModelRule",
    "OnnxModel",
    "RouterSettings",
    "SecretRef",
    "Security",
    "ServerModel",
    "Site",
    "SleepModel",
    "TargetEntry",
    "TimeLimits",
    "WatchSettings",
    "as_server",
    "read_site",
]

FILE, UNKNOWN = "site.toml", "?"
_FIRST_PORT = 8080
"""Where a server in an image of its own listens, unless the file says otherwise."""
Port = Annotated[int, Field(ge=0, le=65535, strict=True)]
Label = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Line = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
SecretKey = Annotated[str, StringConstraints(pattern=r"^\.?[A-Za-z0-9_-][A-Za-z0-9._-]*$")]
"""As Kubernetes takes it; a file of this name is in its folder."""
UrlPath = Annotated[str, StringConstraints(pattern=r"^/[^?#\s]*$")]
InAnAnswer = Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)*$")]
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
"""A word of a command or a value of a variable: what the system takes. Who writes lines of a file guards them there."""
Variables = dict[Annotated[str, Field(pattern=r"^[^=\x00]+$")], Text]
"""Variables of an environment, as the system takes them."""


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[Id, ...], BeforeValidator(_listed)]
"""One name or a list of names."""


class TimeLimits(Model):
    """How long each thing may take on hosts before it counts as failed."""

    start_s: Positive = Field(default=60.0, description="a unit from its start to its first healthy answer")
    drain_s: Positive = Field(default=10.0, description="a unit that is to stop may finish what it has for so long")
    call_s: Positive = Field(default=10.0, description="one question to a target")
    most_units: PositiveCount = Field(default=1000, description="no plan may ask for more worker instances")


class RouterSettings(Model):
    """hetplan's router: where queries come in on hosts, or in a cluster (`--set router=hetplan`)."""

    target: Id | None = Field(default=None, description="of hosts: the target that runs it; by default the first")
    bind: str = "127.0.0.1"
    port: Port = 8600
    behind_edge: bool = Field(default=False, description="true: an edge on another machine ends TLS before `bind`")
    address: str | None = Field(default=None, description="the name clients use, where it is not `bind`")
    seed: Count = 0
    retries: Count = Field(default=1, description="how often a query is sent again when its worker dies")
    frozen_s: Positive = Field(
        default=1.0, description="what a worker has that is silent for so long is tried at another, within `retries`"
    )
    timeout_s: Positive = Field(default=60.0, description="a query without an answer by then is given back")
    most_waiting: PositiveCount = Field(default=100_000, description="queries beyond this are refused with 503")
    image: Line | None = Field(default=None, description="of clusters: an image with Python and hetplan")
    worker_port: Port = Field(default=8601, description="of clusters: of the worker in each pod, where no server is")


_SPEAKS_NO_TLS = (
    "router and workers speak no TLS of their own",
    "Leave it out. HAProxy before the router ends TLS; links between machines go through a private network or an ssh "
    "tunnel (docs/howto/run.md).",
)


class SecretRef(Model):
    """Where the platform keeps a secret: its name and the key in it. The secret itself is in no file of ours."""

    name: Label
    key: SecretKey


class Security(Model):
    """Who may use listeners that other machines or pods reach: holders of a token of 16 characters or more."""

    token_file: str | None = Field(default=None, description="relative to site.toml; readable by you alone")
    token_env: str | None = Field(default=None, description="the variable of the environment that holds the token")
    token_secret: SecretRef | None = Field(default=None, description="of clusters: where the platform keeps the token")
    open: bool = Field(default=False, description="true: listeners that others reach need no token")

    @model_validator(mode="before")
    @classmethod
    def _no_own_tls(cls, said: Any) -> Any:
        if isinstance(said, Mapping) and "tls" in said:
            raise wrong(*_SPEAKS_NO_TLS, at=("tls",))
        return said

    @model_validator(mode="after")
    def _one_place(self) -> Security:
        if self.token_file is not None and self.token_env is not None:
            raise wrong("the token is in a file or in the environment", "Name one of them.", at=("token_env",))
        return self


class WatchSettings(Model):
    """Where `hetplan autoscale` reads what arrives, if not of the router."""

    prometheus: str | None = Field(default=None, pattern=r"^https?://[^?#]+$", description="http://HOST:PORT")
    query: str = Field(
        default="sum by (app) (hetplan_queries_arrived_total)", description="PromQL: a counter per application"
    )


class TargetEntry(Model):
    """A way to start things on hosts: its kind, and the settings that the kind itself checks."""

    kind: Key
    settings: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_elsewhere(self) -> TargetEntry:
        if self.kind == "kubernetes":
            raise wrong("a cluster is no target of hosts", "Leave out targets and hosts: a site without is a cluster.",
                        at=("kind",))  # fmt: skip
        if self.kind == "ssh" and "tls" in self.settings:
            raise wrong(*_SPEAKS_NO_TLS, at=("settings", "tls"))
        return self


class Host(Model):
    """Real hosts, alike: which machines of a plan they play, how many, what they provide."""

    target: Id
    machines: Names = Field(description="machine types of the plan that these hosts play")
    plays: Names = Field(default=(), description="host ids of the plan that are this host")
    zone: Id | None = Field(default=None, description="the zone of the plan's offers in which these hosts are")
    spot: bool | None = Field(default=None, description="true: for spot machines of the plan alone; false: for none")
    offers: Names = Field(default=(), description="for machines of these offers alone")
    count: Count | dict[Id, Count] = Field(description="how many machines of the plan, in all or per machine type")
    address: str | None = Field(default=None, description="where the router reaches its workers")
    bind: str = "127.0.0.1"
    ports: tuple[Port, Port] | None = Field(default=None, description="the ports that workers may take, both included")
    capacity: dict[Key, NonNegative] = Field(default_factory=dict, description="as cpu_cores = 16, gpu = 2, mem_gib")
    cores: tuple[Count, ...] = Field(default=(), description="the CPU cores that workers are pinned to")
    cores_per_worker: PositiveCount | None = Field(default=None, description="own cores of each worker, out of `cores`")
    devices: tuple[str, ...] = Field(
        default=(), description="GPUs that workers may have: indices, GPU- or MIG- ids; by default all of the machine"
    )
    gpus_per_worker: Count | None = Field(default=None, description="by default what the profile's machine provides")
    enforcement: Literal["auto", "none"] = Field(default="auto", description="none: shares are not enforced")
    env: Variables = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Host:
        if not self.machines:
            raise wrong("these hosts play no machine type", 'Write machines = ["t4"].', at=("machines",))
        if isinstance(self.count, dict) and set(self.count) - set(self.machines):
            listed = ", ".join(sorted(set(self.count) - set(self.machines)))
            raise wrong(f"{listed} is not among `machines`", "Add it there.", at=("count",))
        if self.ports is not None and self.ports[0] > self.ports[1]:
            raise wrong("a range of ports is [first, last]", "Swap them.", at=("ports",))
        if self.cores_per_worker is not None and not self.cores:
            raise wrong("cores_per_worker takes them out of `cores`", "List the cores.", at=("cores",))
        return self

    def room_for(self, machine: str) -> int:
        """How many machines of this type may run here at once."""
        if machine not in self.machines:
            return 0
        return self.count.get(machine, 0) if isinstance(self.count, dict) else self.count


_OUTCOME = "where an answer in JSON says what it comes to: verdict, choices.0.finish_reason"


class _Rule(Model):
    """How loads are served: by default those of the model, or else the stage, that the section is named after."""

    model: Annotated[tuple[IdOrStar, ...], BeforeValidator(_listed)] = Field(
        default=(), description='of these models instead; "*" for all, as the section [models."*"] is'
    )
    stage: Names = Field(default=(), description="of these stages instead")
    app: Names = Field(default=(), description="of these applications alone")
    machine: Names = Field(default=(), description="on these machine types alone")
    retry: bool = Field(default=True, description="false: no query is sent twice, as a second answer would do harm")

    def fit(self, name: str, *, model: str, stage: str | None, app: str | None, machine: str) -> int:
        """How closely the rule of this name says that it serves a load; 0 where it does not serve it."""
        asked = ((self.stage, stage), (self.app, app), (self.machine, machine))
        if any(names and one not in names for names, one in asked):
            return 0
        of_section = not self.model and not self.stage
        models = (name,) if of_section else self.model
        closely = bool(models) and "*" not in models
        if closely and model not in models and not (of_section and name == stage):
            return 0
        return 1 + sum(bool(names) for names, _ in asked) + len(asked) * closely


class ServerModel(_Rule):
    """A server: an image or a command of the user's own, or one that runs at `url`.

    A model that makes text is asked by OpenAI's protocol (vLLM, SGLang, TGI, llama.cpp), and has a server per instance.
    """

    kind: Literal["server"] = "server"
    image: Line | None = Field(default=None, description="of platforms with containers")
    command: tuple[Text, ...] = Field(
        default=(), description="of hosts and systemd what is started; else in place of the image's own"
    )
    args: tuple[Text, ...] = Field(
        default=(), description='words; "{port}", "{variant}", "{max_seqs}", "{tensor}" ... are filled'
    )
    url: str | None = Field(
        default=None, pattern=r"^http://[^/?#]+$", description="of hosts: http://HOST:PORT of one that runs already"
    )
    model_uri: Line | None = Field(default=None, description="where the platform loads it from, as hf://ORG/NAME")
    name: Line | None = Field(default=None, description="what clients and servers call it; by default the plan's id")
    port: Port = Field(default=0, description="0: of images 8080, on hosts any free one")
    health: Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9_./-]*)?$")] = Field(
        default="", description="the path that answers 200 once it is ready; by default /health of images and of text"
    )
    alive_s: NonNegative = Field(
        default=60.0, description="a server whose health is not answered for so long is started again; 0: never"
    )
    env: dict[Variable, Text] = Field(default_factory=dict)
    secret: dict[Variable, SecretRef] = Field(default_factory=dict, description="of platforms")
    stop_s: Positive = Field(default=30.0, description="what was begun may take so long to end")
    timeout_s: Positive | None = Field(
        default=None, description="of hosts: an answer takes no longer, 60; one of text that ended is back by then, 600"
    )
    protocol: Literal["plain", "openai", "kserve-v2"] = Field(
        default="plain", description="how hetplan's router has it asked; plain: a query's inputs are the body"
    )
    route: UrlPath | None = Field(default=None, description='the path of these requests; "{variant}" is filled')
    outcome: InAnAnswer | None = Field(default=None, description=_OUTCOME)
    runtime_version: Line | None = Field(default=None, description="of Dynamo, where the image's tag is no version")
    deployment: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.]+:[A-Za-z0-9_]+$")] | None = Field(
        default=None, description="of Ray Serve: MODULE:APPLICATION of the image"
    )


class SleepModel(_Rule):
    """Nothing is computed: a batch takes the time that the plan's or the profile's table says.

    `statistic` "table" draws times as the simulator does (lognormal where the table has `std`, else its mean).
    """

    kind: Literal["sleep"]
    statistic: Literal["table", "mean", "p50", "p90", "p95", "p99", "max", "exponential"] = "table"
    table: Id | None = Field(default=None, description="another table of the profile than the run's own")
    ms: Positive | None = Field(default=None, description="a fixed time instead of a table")
    times: Positive = Field(default=1.0, description="how much slower than its table it is")
    seed: Count = 0


class OnnxModel(_Rule):
    """An ONNX file served by onnxruntime."""

    kind: Literal["onnx"]
    path: str = Field(description='relative to site.toml; "{variant}" and "{node}" are filled in')
    threads: PositiveCount | None = Field(default=None, description="intra-op threads; by default one per own core")
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    sha256: str | None = Field(default=None, description="by default the plan's artifact, where it names one")
    passes: dict[Id, str] = Field(default_factory=dict, description="child stage -> output split into its queries")
    outcome: str | None = Field(default=None, description="the output that says what the answer comes to")
    outcomes: tuple[Id, ...] = Field(default=(), description="names of the outcomes 0, 1, ... where it says numbers")


class CommandModel(_Rule):
    """A command that answers JSON lines: {"load", "at", "inputs": [...]} in, {"outputs": [...]} out.

    Where what follows depends on what an answer comes to, it says so: {"outputs": [...], "outcomes": ["unsure", ...]}.
    """

    kind: Literal["command"]
    command: tuple[Text, ...] = Field(
        min_length=1, description='words; "{variant}", "{node}", "{knobs.size}" are filled'
    )
    timeout_s: Positive = 60.0
    env: Variables = Field(default_factory=dict)


class ApiModel(_Rule):
    """An API of somebody else's, called for every query; how often it is called again is in the profile (`apis`).

    The key is read where the calls are made, and sent as `header`: "Bearer KEY" as authorization, else the key alone.
    """

    kind: Literal["api"]
    url: str = Field(pattern=r"^https?://[^/?#@]+(/[^?#]*)?$", description="where each call is posted to")
    protocol: Literal["plain", "openai"] = "plain"
    name: str | None = Field(default=None, description='what the API calls its model; "{knobs.model}" is filled')
    key_file: str | None = Field(default=None, description="relative to site.toml; readable by you alone")
    key_env: str | None = Field(default=None, description="the variable of the environment that holds the key")
    header: str = Field(default="authorization", pattern="^[A-Za-z0-9-]+$")
    outcome: InAnAnswer | None = Field(default=None, description=_OUTCOME)
    at_once: PositiveCount = Field(default=64, description="so many calls of an operator are under way at most")
    timeout_s: Positive = Field(default=60.0, description="a call without an answer by then has failed")

    @model_validator(mode="after")
    def _safe(self) -> ApiModel:
        if self.key_file is not None and self.key_env is not None:
            raise wrong("the key is in a file or in the environment", "Name one of them.", at=("key_env",))
        has_key, host = self.key_file is not None or self.key_env is not None, urlsplit(self.url).hostname or ""
        if has_key and self.url.startswith("http:") and host not in ("127.0.0.1", "::1", "localhost"):
            raise wrong("the key would leave this machine for all to read", "Write https://.", at=("url",))
        if (self.protocol == "openai") != (self.name is not None):
            raise wrong("a model is named by calls of OpenAI's protocol, and by no others",
                        'Write name beside protocol = "openai".', at=("name",))  # fmt: skip
        return self


ModelRule = Annotated[SleepModel | OnnxModel | CommandModel | ServerModel | ApiModel, Field(discriminator="kind")]


def _with_kind(value: object) -> object:
    """A rule that says no kind is a server's."""
    return {"kind": "server", **value} if isinstance(value, Mapping) else value


class MachineType(Model):
    """Which machines of a platform a machine type of the plan is."""

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
    port: Annotated[Port, Field(ge=1)] = Field(
        default=8600, description="of the first application; the next one has the next port"
    )
    certificates: Line | None = Field(default=None, description="a folder or file of certificates: TLS ends here")
    max_connections: PositiveCount = 8192


class Cluster(Model):
    """How `hetplan apply` reaches a cluster, and how long things may take there."""

    kubectl: Line = Field(default="kubectl", description="the program: a name, or a path relative to site.toml")
    kubeconfig: Line | None = Field(default=None, description="relative to site.toml; by default kubectl's own choice")
    context: Line | None = None
    surge: bool = Field(default=True, description="new pods are ready before old ones end; needs room for both")
    start_s: Positive = Field(default=600.0, description="a pod from its start until it is ready")
    call_s: Positive = Field(default=20.0, description="one question to the API server")
    away_s: Positive = Field(default=30.0, description="an API server that does not answer is asked again for so long")


_OF_HOSTS = (("limits",), ("router", "bind"), ("router", "behind_edge"), ("security", "token_file"))
_OF_PLATFORMS = (
    ("machines",), ("cloud",), ("namespace",), ("gateway",), ("cluster",), ("offers",), ("image_pull_secrets",),
    ("node_class",), ("reserve_cpu_cores",), ("reserve_mem_gib",), ("router", "image"), ("router", "worker_port"),
    ("security", "token_secret"),
)  # fmt: skip
_SERVER_OF_PLATFORMS = ("image", "model_uri", "runtime_version", "deployment", "alive_s", "stop_s")
_IS_HOSTS, _IS_CLUSTER = "a site with targets is hosts", "a site without targets is a platform"
_IN_PLACE = {"token_file": 'Write token_secret = {name = "SECRET", key = "KEY"}.', "machines": "Describe [hosts.NAME].",
             "token_secret": 'Write token_file = "secrets/token".', "limits": "Write [cluster] start_s, call_s.",
             "cluster": "Write [limits] start_s, call_s."}  # fmt: skip


class Site(Model):
    """The whole file; `folder` is where it lies, for the paths in it. With targets it is hosts, else a platform."""

    format: Literal["hetplan/site/1.0"] = "hetplan/site/1.0"
    name: Id = Field(default="hetplan", description="names the deployment; what is applied is pruned by it")
    files: tuple[Line, ...] = Field(default=(), description="profiles, SLO, measurements: each says what it is")
    state_dir: Line = Field(default=".hetplan", description="beside this file: lock and journal of an apply")
    note: Line | None = Field(default=None, description="a line in the head of every file")
    watch: WatchSettings = Field(default_factory=WatchSettings)
    router: RouterSettings = Field(default_factory=RouterSettings)
    security: Security = Field(default_factory=Security)
    models: dict[IdOrStar, Annotated[ModelRule, BeforeValidator(_with_kind)]] = Field(
        default_factory=dict, description='how each model (or stage) is served; "*" for all others'
    )
    # Hosts
    limits: TimeLimits = Field(default_factory=TimeLimits)
    targets: Named[TargetEntry] = Field(default_factory=dict)
    hosts: Named[Host] = Field(default_factory=dict)
    # Platforms
    machines: Named[MachineType] = Field(default_factory=dict)
    cloud: Literal["gke", "eks", "aks", "karpenter", "none"] = "none"
    namespace: Label = "default"
    gateway: Label | None = Field(default=None, description="the Gateway that routes are attached to")
    timezone: Line = Field(default="UTC", description="in which the plan's first period begins at 0:00")
    hop_ms: NonNegative = Field(default=2.0, description="the network between edge and worker, there and back")
    reserve_cpu_cores: NonNegative = Field(default=0.5, description="of each node, for DaemonSets")
    reserve_mem_gib: NonNegative = 0.5
    image_pull_secrets: tuple[Label, ...] = Field(default=(), description="of Kubernetes: by which images are pulled")
    node_class: Label = Field(default="default", description="of Karpenter: the node class of the cloud")
    cluster: Cluster = Field(default_factory=Cluster)
    render: dict[Key, Line] = Field(
        default_factory=dict, description='what --set says, unless it says otherwise: router = "hetplan"'
    )
    edge: Edge = Field(default_factory=Edge)
    offers: dict[Key, dict[Line, str]] = Field(default_factory=dict, description="labels of the nodes of an offer")
    _folder: Path = PrivateAttr(default=Path())

    @model_validator(mode="after")
    def _known_targets(self) -> Site:
        listed = ", ".join(self.targets) or "none"
        for name, host in self.hosts.items():
            if host.target not in self.targets:
                raise wrong(
                    f"there is no target {host.target!r}", f"There are: {listed}.", at=("hosts", name, "target")
                )
        if self.router.target is not None and self.router.target not in self.targets:
            raise wrong(f"there is no target {self.router.target!r}", f"There are: {listed}.", at=("router", "target"))
        if self.targets and not self.hosts:
            raise wrong("its targets have no hosts", "Add [hosts.NAME] target, machines and count.", at=("hosts",))
        return self

    @model_validator(mode="after")
    def _of_its_world(self) -> Site:
        """Every key is read, or refused."""
        others, what = (_OF_PLATFORMS, "platforms") if self.targets else (_OF_HOSTS, "hosts")
        for steps in others:
            held: Model = self if len(steps) == 1 else getattr(self, steps[0])
            if steps[-1] in held.model_fields_set:
                remedy = _IN_PLACE.get(steps[-1], "Leave it out.")
                raise wrong(f"this is of {what}, and {_IS_HOSTS if self.targets else _IS_CLUSTER}", remedy, at=steps)
        for name, rule in self.models.items() if self.targets else ():
            for key in _SERVER_OF_PLATFORMS if isinstance(rule, ServerModel) else ():
                if key in rule.model_fields_set:
                    why = f"this is of platforms, and {_IS_HOSTS}"
                    remedy = "Leave it out: hosts start a `command`, or ask at a `url`."
                    raise wrong(why, remedy, at=("models", name, key))
        return self

    @property
    def folder(self) -> Path:
        """Where the file lies."""
        return self._folder

    def lying_in(self, folder: Path) -> Site:
        """The same file in this folder."""
        made = self.model_copy()
        made._folder = folder
        return made

    @property
    def router_target(self) -> str:
        """The target that runs the router on hosts."""
        return self.router.target or next(iter(self.targets))

    def path(self, written: str) -> Path:
        """A path of this file, found from where the file lies."""
        return (self.folder / Path(written).expanduser()).resolve()

    def rule_of(
        self, *, model: str, stage: str | None, app: str | None, machine: str
    ) -> tuple[str, ModelRule] | None:  # fmt: skip
        """The rule that fits what is served most closely, and its section; of several the first by name."""
        fits = {
            name: rule.fit(name, model=model, stage=stage, app=app, machine=machine)
            for name, rule in sorted(self.models.items())
        }
        best = max(fits, key=lambda name: fits[name], default="")
        return (best, self.models[best]) if fits.get(best) else None

    def rule_of_load(self, load: Load, machine: str) -> tuple[str, ModelRule] | None:
        """The rule of a load of a plan."""
        return self.rule_of(model=load.called, stage=load.node, app=load.app, machine=machine)

    def machine(self, name: str) -> MachineType:
        """Which machines of a platform a machine type is."""
        return self.machines.get(name, MachineType())


def as_server(rule: ModelRule | None) -> ServerModel:
    """The server of a platform that a rule says, with what is so where it does not."""
    made = rule if isinstance(rule, ServerModel) else ServerModel()
    return made.model_copy(update={"port": made.port or _FIRST_PORT, "health": made.health or "/health"})


_OF_OTHER_TOOLS = ("evaluators", "measure", "extensions")


def read_site(source: str | os.PathLike[str] | Mapping[str, Any] | Site) -> Site:
    """The file, checked; `InputError` names every fault by file, key, value, reason and remedy.

    >>> read_site({"cloud": "gke", "models": {"net": {"image": "registry.example/net:1"}}}).models["net"].image
    'registry.example/net:1'
    >>> site = read_site({"targets": {"here": {"kind": "local"}},
    ...     "hosts": {"box": {"target": "here", "machines": ["t4", "cpu4"], "count": 12}}})
    >>> site.hosts["box"].room_for("t4"), site.router.port
    (12, 8600)
    """
    if isinstance(source, Site):
        return source
    if isinstance(source, Mapping):
        file, folder, content = FILE, Path.cwd(), dict(source)
    else:
        file, folder = os.fspath(source), Path(source).resolve().parent
        try:
            content = tomllib.loads(read_text(source, wanted="a TOML file"))
        except tomllib.TOMLDecodeError as error:
            raise InputError.one(file=file, why=str(error), remedy="Give a readable TOML file.") from None
    content = {key: value for key, value in content.items() if key not in _OF_OTHER_TOOLS}
    faults = [Fault(file, path, UNKNOWN, "nobody filled this in", "Write what your platform calls it.")
              for path in _unknown(content, "$")]  # fmt: skip
    if faults := [*faults, *faults_of_old_words(content, file)]:
        raise InputError(faults)
    return validate(Site, content, file=file).lying_in(folder)


def _unknown(value: Any, path: str) -> Iterator[str]:
    """Where a line of a template still is "?"."""
    if value == UNKNOWN:
        yield path
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield from _unknown(one, f"{path}.{name}")
    elif isinstance(value, list):
        for place, one in enumerate(value):
            yield from _unknown(one, f"{path}[{place}]")
