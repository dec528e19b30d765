"""hosts.toml: the trusted half of applying a plan (`docs/howto/run.md`).

A plan names models, hardware and numbers. Which machine plays which hardware, how a model is started, which files and
credentials are used: all that is said here, written by the people who run the machines. Sections of other tools
(`[evaluators]`, `[measure]`, `[watch]`) are let through unread.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, model_validator

from hetplan.errors import InputError
from hetplan.profiles.fields import Count, Id, Key, Model, Named, NonNegative, Positive, PositiveCount, wrong
from hetplan.profiles.read_text import read_text
from hetplan.profiles.validate import validate

__all__ = [
    "ApiModel",
    "CommandModel",
    "HostsFile",
    "HttpModel",
    "Machines",
    "ModelRule",
    "OnnxModel",
    "OpenaiModel",
    "RouterSettings",
    "Security",
    "SleepModel",
    "TargetEntry",
    "TimeLimits",
    "read_hosts",
]

Port = Annotated[int, Field(ge=0, le=65535, strict=True)]
Enforcement = Literal["auto", "none"]


Variables = dict[Annotated[str, Field(pattern=r"^[^=\x00]+$")], Annotated[str, Field(pattern=r"^[^\x00]*$")]]
"""Variables of an environment, as the system takes them."""


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[Id, ...], BeforeValidator(_listed)]
"""One name or a list of names."""


class TimeLimits(Model):
    """How long each thing may take before it counts as failed."""

    start_s: Positive = Field(default=60.0, description="a unit from its start to its first healthy answer")
    drain_s: Positive = Field(default=10.0, description="a unit that is to stop may finish what it has for so long")
    call_s: Positive = Field(default=10.0, description="one question to a target")
    most_units: PositiveCount = Field(default=1000, description="no plan may ask for more worker instances")


class RouterSettings(Model):
    """Where queries come in."""

    target: Id | None = Field(default=None, description="the target that runs the router; by default the first")
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


_SPEAKS_NO_TLS = (
    "router and workers speak no TLS of their own",
    "Leave it out. HAProxy before the router ends TLS; links between machines go through a private network or an ssh "
    "tunnel (docs/howto/run.md).",
)


_CLUSTER = "Write site.toml, and hetplan apply plan.json --site site.toml (docs/howto/run.md)."


class Security(Model):
    """Who may use listeners that other machines reach: holders of the token."""

    token_file: str | None = Field(default=None, description="relative to hosts.toml; readable by you alone")
    token_env: str | None = Field(default=None, description="the variable of the environment that holds the token")
    open: bool = Field(default=False, description="true: listeners that other machines reach need no token")

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
    """A way to start things: its kind, and the settings that the kind itself checks."""

    kind: Key
    settings: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_elsewhere(self) -> TargetEntry:
        if self.kind == "kubernetes":
            raise wrong("a cluster is no target of hosts.toml", _CLUSTER, at=("kind",))
        if self.kind == "ssh" and "tls" in self.settings:
            raise wrong(*_SPEAKS_NO_TLS, at=("settings", "tls"))
        return self


class Machines(Model):
    """Real hosts, alike: what they play in a plan, how many workers they take, what they provide."""

    target: Id
    hardware: Names = Field(description="names of the plan's hardware that these machines play")
    plays: Names = Field(default=(), description="host ids of the plan that are this machine")
    zone: Id | None = Field(default=None, description="the zone of the plan's offers in which these machines are")
    spot: bool | None = Field(default=None, description="true: for spot machines of the plan alone; false: for none")
    offers: Names = Field(default=(), description="for workers of these offers alone")
    machines: Count | dict[Id, Count] = Field(description="how many worker instances, in all or per hardware")
    address: str | None = Field(default=None, description="where the router reaches its workers")
    bind: str = "127.0.0.1"
    ports: tuple[Port, Port] | None = Field(default=None, description="the ports that workers may take, both included")
    capacity: dict[Key, NonNegative] = Field(default_factory=dict, description="as cpu_cores = 16, gpu = 2, mem_gib")
    cores: tuple[Count, ...] = Field(default=(), description="the CPU cores that workers are pinned to")
    cores_per_worker: PositiveCount | None = Field(default=None, description="own cores of each worker, out of `cores`")
    devices: tuple[str, ...] = Field(
        default=(), description="GPUs that workers may have: indices, GPU- or MIG- ids; by default all of the machine"
    )
    gpus_per_worker: Count | None = Field(default=None, description="by default what the profile's hardware provides")
    enforcement: Enforcement = Field(default="auto", description="none: shares of the plan are not enforced")
    environment: Variables = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Machines:
        if not self.hardware:
            raise wrong("these machines play no hardware", 'Write hardware = ["t4"].', at=("hardware",))
        if isinstance(self.machines, dict) and set(self.machines) - set(self.hardware):
            listed = ", ".join(sorted(set(self.machines) - set(self.hardware)))
            raise wrong(f"{listed} is not among `hardware`", "Add it there.", at=("machines",))
        if self.ports is not None and self.ports[0] > self.ports[1]:
            raise wrong("a range of ports is [first, last]", "Swap them.", at=("ports",))
        if self.cores_per_worker is not None and not self.cores:
            raise wrong("cores_per_worker takes them out of `cores`", "List the cores.", at=("cores",))
        return self

    def room_for(self, hardware: str) -> int:
        """How many workers of this hardware may run here at once."""
        if hardware not in self.hardware:
            return 0
        return self.machines.get(hardware, 0) if isinstance(self.machines, dict) else self.machines


_IN_AN_ANSWER = r"^[^.\s]+(\.[^.\s]+)*$"
_OUTCOME = "where an answer in JSON says what it comes to: verdict, choices.0.finish_reason"


class _Match(Model):
    """Which loads a rule is for; a list left empty holds for all."""

    variant: Names = ()
    node: Names = ()
    app: Names = ()
    hardware: Names = ()
    retry: bool = Field(default=True, description="false: no query is sent twice, as a second answer would do harm")

    def fits(self, *, variant: str | None, node: str | None, app: str | None, hardware: str) -> bool:
        """Whether a load is served by this rule."""
        asked = ((self.variant, variant), (self.node, node), (self.app, app), (self.hardware, hardware))
        return all(not names or name in names for names, name in asked)


class SleepModel(_Match):
    """Nothing is computed: a batch takes the time that the plan's or the profile's table says.

    `statistic` "table" draws times as the simulator does (lognormal where the table has `std`, else its mean).
    """

    kind: Literal["sleep"]
    statistic: Literal["table", "mean", "p50", "p90", "p95", "p99", "max", "exponential"] = "table"
    table: Id | None = Field(default=None, description="another table of the profile than the run's own")
    ms: Positive | None = Field(default=None, description="a fixed time instead of a table")
    times: Positive = Field(default=1.0, description="how much slower than its table it is")
    seed: Count = 0


class OnnxModel(_Match):
    """An ONNX file served by onnxruntime."""

    kind: Literal["onnx"]
    path: str = Field(description='relative to hosts.toml; "{variant}" and "{node}" are filled in')
    threads: PositiveCount | None = Field(default=None, description="intra-op threads; by default one per own core")
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    sha256: str | None = Field(default=None, description="by default the plan's artifact, where it names one")
    passes: dict[Id, str] = Field(default_factory=dict, description="child node -> output split into its queries")
    outcome: str | None = Field(default=None, description="the output that says what the answer comes to")
    outcomes: tuple[Id, ...] = Field(default=(), description="names of the outcomes 0, 1, ... where it says numbers")


class CommandModel(_Match):
    """A command that answers JSON lines: {"load", "at", "inputs": [...]} in, {"outputs": [...]} out.

    Where what follows depends on what an answer comes to, it says so: {"outputs": [...], "outcomes": ["unsure", ...]}.
    """

    kind: Literal["command"]
    command: tuple[str, ...] = Field(
        min_length=1, description='words; "{variant}", "{node}", "{knobs.size}" are filled'
    )
    timeout_s: Positive = 60.0
    environment: Variables = Field(default_factory=dict)


class HttpModel(_Match):
    """Another server: started by the worker (`command`), or running already (`url`)."""

    kind: Literal["http"]
    command: tuple[str, ...] = Field(default=(), description='words; "{variant}", "{knobs.size}", "{port}" are filled')
    url: str | None = Field(default=None, pattern=r"^http://[^/?#]+$", description="http://HOST:PORT, instead")
    port: Port = Field(default=0, description="where the command is to listen; 0: any free one")
    protocol: Literal["plain", "openai", "kserve-v2"] = "plain"
    ready: str | None = Field(default=None, pattern="^/", description="the path that answers 200 once it is ready")
    route: str | None = Field(default=None, pattern="^/", description='the path of requests; "{variant}" is filled')
    outcome: str | None = Field(default=None, pattern=_IN_AN_ANSWER, description=_OUTCOME)
    timeout_s: Positive = 60.0
    environment: Variables = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_server(self) -> HttpModel:
        if bool(self.command) == (self.url is not None):
            raise wrong("a server is started by `command` or runs at `url`", "Name one of them.", at=("command",))
        return self


class OpenaiModel(_Match):
    """A server that makes text by OpenAI's protocol (vLLM, SGLang, TGI, llama.cpp): one per instance of the plan."""

    kind: Literal["openai"]
    command: tuple[str, ...] = Field(
        default=(),
        description='words; "{port}", "{variant}", "{max_tokens}", "{max_seqs}", "{tensor}" ... are filled',
    )
    url: str | None = Field(default=None, pattern=r"^http://[^/?#]+$", description="http://HOST:PORT, instead")
    port: Port = Field(default=0, description="where the command is to listen; 0: any free one")
    ready: str = Field(default="/health", pattern="^/", description="the path that answers 200 once it is ready")
    model: str | None = Field(default=None, description="what the server calls its model; by default the variant")
    timeout_s: Positive = Field(default=600.0, description="a server that ended is ready again by then")
    environment: Variables = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_server(self) -> OpenaiModel:
        if bool(self.command) == (self.url is not None):
            raise wrong("a server is started by `command` or runs at `url`", "Name one of them.", at=("command",))
        if self.command and not self.port and not any("{port}" in word for word in self.command):
            raise wrong("the command does not say where to listen", 'Write "{port}" in it.', at=("command",))
        return self


class ApiModel(_Match):
    """An API of somebody else's, called for every query; how often it is called again is in the profile (`apis`).

    The key is read where the calls are made, and sent as `header`: "Bearer KEY" as authorization, else the key alone.
    """

    kind: Literal["api"]
    url: str = Field(pattern=r"^https?://[^/?#@]+(/[^?#]*)?$", description="where each call is posted to")
    protocol: Literal["plain", "openai"] = "plain"
    model: str | None = Field(default=None, description='what the API calls its model; "{knobs.model}" is filled')
    key_file: str | None = Field(default=None, description="relative to hosts.toml; readable by you alone")
    key_env: str | None = Field(default=None, description="the variable of the environment that holds the key")
    header: str = Field(default="authorization", pattern="^[A-Za-z0-9-]+$")
    outcome: str | None = Field(default=None, pattern=_IN_AN_ANSWER, description=_OUTCOME)
    at_once: PositiveCount = Field(default=64, description="so many calls of an operator are under way at most")
    timeout_s: Positive = Field(default=60.0, description="a call without an answer by then has failed")

    @model_validator(mode="after")
    def _safe(self) -> ApiModel:
        if self.key_file is not None and self.key_env is not None:
            raise wrong("the key is in a file or in the environment", "Name one of them.", at=("key_env",))
        has_key, host = self.key_file is not None or self.key_env is not None, urlsplit(self.url).hostname or ""
        if has_key and self.url.startswith("http:") and host not in ("127.0.0.1", "::1", "localhost"):
            raise wrong("the key would leave this machine for all to read", "Write https://.", at=("url",))
        if (self.protocol == "openai") != (self.model is not None):
            raise wrong("a model is named by calls of OpenAI's protocol, and by no others",
                        'Write model beside protocol = "openai".', at=("model",))  # fmt: skip
        return self


ModelRule = Annotated[
    SleepModel | OnnxModel | CommandModel | HttpModel | OpenaiModel | ApiModel, Field(discriminator="kind")
]

_OF_OTHER_TOOLS = ("evaluators", "measure", "extensions")


class HostsFile(Model):
    """The whole file; `folder` is where it lies, for the paths in it."""

    format: Literal["hetplan/hosts/1.0"] = "hetplan/hosts/1.0"
    name: Id = Field(default="hetplan", description="names the deployment")
    state_dir: str = ".hetplan"
    profiles: tuple[str, ...] = Field(default=(), description="profile files: tables, fan-out and quality")
    slo: str | None = Field(default=None, description="the SLO file: pipelines of applications, deadlines")
    measured: str | None = Field(default=None, description="measurements: what operators of compound queries take")
    limits: TimeLimits = Field(default_factory=TimeLimits)
    router: RouterSettings = Field(default_factory=RouterSettings)
    security: Security = Field(default_factory=Security)
    watch: WatchSettings = Field(default_factory=WatchSettings)
    targets: Named[TargetEntry] = Field(min_length=1)
    hosts: Named[Machines] = Field(min_length=1)
    models: tuple[ModelRule, ...] = ()
    folder: Path = Field(default=Path(), exclude=True)

    @model_validator(mode="after")
    def _known_targets(self) -> HostsFile:
        listed = ", ".join(self.targets)
        for name, host in self.hosts.items():
            if host.target not in self.targets:
                raise wrong(
                    f"there is no target {host.target!r}", f"There are: {listed}.", at=("hosts", name, "target")
                )
        if self.router.target is not None and self.router.target not in self.targets:
            raise wrong(f"there is no target {self.router.target!r}", f"There are: {listed}.", at=("router", "target"))
        return self

    @property
    def router_target(self) -> str:
        """The target that runs the router."""
        return self.router.target or next(iter(self.targets))

    def path(self, written: str) -> Path:
        """A path of this file, found from where the file lies."""
        return (self.folder / Path(written).expanduser()).resolve()


def read_hosts(source: str | os.PathLike[str] | Mapping[str, Any] | HostsFile) -> HostsFile:
    """The file, checked; `InputError` names every fault by file, key, value, reason and remedy.

    >>> hosts = read_hosts({"targets": {"here": {"kind": "local"}},
    ...     "hosts": {"box": {"target": "here", "hardware": ["t4", "cpu4"], "machines": 12}}})
    >>> hosts.hosts["box"].room_for("t4"), hosts.router.port
    (12, 8600)
    """
    if isinstance(source, HostsFile):
        return source
    if isinstance(source, Mapping):
        file, folder, content = "hosts.toml", Path.cwd(), dict(source)
    else:
        file, folder = os.fspath(source), Path(source).resolve().parent
        try:
            content = tomllib.loads(read_text(source, wanted="a TOML file"))
        except tomllib.TOMLDecodeError as error:
            raise InputError.one(file=file, why=str(error), remedy="Give a readable TOML file.") from None
    ours = {key: value for key, value in content.items() if key not in _OF_OTHER_TOOLS}
    return validate(HostsFile, ours, file=file).model_copy(update={"folder": folder})
