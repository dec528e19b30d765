"""The `ray` target: Ray Serve applications, put through the cluster's REST interface; no ray is needed here.

Pure first: the applications of a plan's units and of the router as Ray Serve's configuration. Then the target: Ray
places the replicas and starts them anew when they die. Every wait is bounded: replicas that have found no node by then
are named, with what they need and what the cluster has, and the change is taken back.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from hetplan.executor.hosts_file import HostsFile
from hetplan.executor.kubernetes.groups import dns_name
from hetplan.executor.secrets import TOKEN_FILE, token_of
from hetplan.executor.target import Setting, TargetFailed, UnitHealth
from hetplan.executor.units import Endpoint, Seen, Unit, in_url
from hetplan.profiles.fields import Id, Key, Model, Named, NonNegative, Positive
from hetplan.profiles.validate import validate

__all__ = ["WORKER", "Ray", "RayConfig", "RaySettings", "RayWorker"]

Json = dict[str, Any]

WORKER = "worker"
"""The one deployment of each application."""

_IMPORT_PATH = "hetplan.executor.ray_app:build"


class RayWorker(Model):
    """What a worker of one hardware needs of its node."""

    num_cpus: NonNegative = 1.0
    num_gpus: NonNegative = Field(default=0.0, description="where the loads name no share of a GPU")
    memory_gib: Positive | None = None
    resources: dict[Key, Positive] | None = Field(
        default=None, description="custom resources; by default one of the resource named as the hardware is"
    )


class RaySettings(Model):
    """`[targets.NAME.settings]` of a ray target."""

    dashboard: str = Field(default="http://127.0.0.1:8265", pattern=r"^https?://[^\s/]+/?$")
    proxy: str = Field(default="http://127.0.0.1:8000", pattern=r"^https?://[^\s/]+/?$")
    hardware: Named[RayWorker] = Field(default_factory=dict)
    runtime_env: dict[str, Any] = Field(default_factory=dict)
    token_file: str | None = Field(
        default=None, description="on every node: the token that [security] names here (on Kubernetes a mounted Secret)"
    )

    def worker(self, hardware: Id) -> RayWorker:
        """What a worker of this hardware needs."""
        return self.hardware.get(hardware, RayWorker())


class RayConfig:
    """The applications of one deployment (hosts.toml's `name`)."""

    def __init__(self, hosts: HostsFile, settings: RaySettings) -> None:
        self.hosts, self.settings = hosts, settings

    def name(self, unit: str) -> str:
        """The application of a unit; its route is the same name."""
        return dns_name("hetplan", self.hosts.name, unit)

    def application(self, unit: Unit) -> Json:
        """The application of a unit."""
        name = self.name(unit.name)
        held = {"deployment": self.hosts.name, "unit": unit.as_dict(), "start_s": self.hosts.limits.start_s}
        made: Json = {
            "name": name,
            "route_prefix": f"/{name}",
            "import_path": _IMPORT_PATH,
            "args": {},
            "deployments": [
                {
                    "name": WORKER,
                    "num_replicas": 1,
                    "ray_actor_options": self.needs(unit),
                    "health_check_period_s": 2.0,
                    "health_check_timeout_s": 10.0,
                    "graceful_shutdown_timeout_s": self.hosts.limits.drain_s,
                    "graceful_shutdown_wait_loop_s": 0.2,
                    "user_config": held,
                }
            ],
        }
        runtime = dict(self.settings.runtime_env)
        if self.settings.token_file is not None:
            runtime["env_vars"] = {**runtime.get("env_vars", {}), TOKEN_FILE: self.settings.token_file}
        return {**made, "runtime_env": runtime} if runtime else made

    def needs(self, unit: Unit) -> Json:
        """What a worker needs of its node: the shares of its loads where they name some, else the hardware's."""
        chosen = self.settings.worker(unit.hardware)
        cores = [load.share_cpu_cores * load.instances for load in unit.loads if load.share_cpu_cores is not None]
        slices = [load.share_gpu * load.instances for load in unit.loads if load.share_gpu is not None]
        options: Json = {
            "num_cpus": sum(cores) if cores else chosen.num_cpus,
            "num_gpus": sum(slices) if slices else chosen.num_gpus,
            "resources": dict(chosen.resources) if chosen.resources is not None else {unit.hardware: 1.0},
        }
        if chosen.memory_gib is not None:
            options["memory"] = round(chosen.memory_gib * 2**30)
        return options

    def whole(self, running: Mapping[str, Any], *, changed: Iterable[Json] = (), gone: Iterable[str] = ()) -> Json:
        """The configuration of the whole cluster: what it runs, of others too, with these changes."""
        dropped = set(gone)
        applications = {
            name: said["deployed_app_config"]
            for name, said in running.get("applications", {}).items()
            if said.get("deployed_app_config") and name not in dropped
        }
        applications |= {one["name"]: one for one in changed}
        whole: Json = {"applications": list(applications.values())}
        # Where Serve runs already, where it listens cannot be changed; saying something else would be refused.
        for name in ("proxy_location", "http_options", "grpc_options"):
            if running.get(name) is not None and running.get("applications"):
                whole[name] = running[name]
        return whole

    def units(self, running: Mapping[str, Any]) -> dict[str, Unit]:
        """The units of this deployment among what the cluster runs, by application."""
        found: dict[str, Unit] = {}
        for name, said in running.get("applications", {}).items():
            config = said.get("deployed_app_config") or {}
            for deployment in config.get("deployments", ()):
                held = deployment.get("user_config") or {}
                if config.get("import_path") == _IMPORT_PATH and held.get("deployment") == self.hosts.name:
                    found[name] = Unit.from_dict(held["unit"])
        return found


_APPLICATIONS = "/api/serve/applications/"
_LOOK_S = 0.5
_NO_ROUTER = "the router runs beside a Ray cluster, not in it: name another target under [router]"


class Ray:
    """One Ray cluster."""

    kind: ClassVar[str] = "ray"

    def __init__(self, setting: Setting) -> None:
        self.name = setting.name
        self.hosts = setting.hosts
        self.settings = validate(RaySettings, dict(setting.settings), file="hosts.toml")
        self.config = RayConfig(setting.hosts, self.settings)

    def check(self, units: Sequence[Unit]) -> list[str]:
        """A router that is to run here, or a cluster that does not answer."""
        if self.hosts.router_target == self.name:
            return [_NO_ROUTER]
        try:
            self._running()
        except TargetFailed as error:
            return [error.cause] if units else []
        return []

    def observe(self) -> tuple[Seen, ...]:
        """Units by the applications' own configuration, ready where the worker says where it listens."""
        running = self._running()
        return tuple(self._seen(running, name, unit) for name, unit in self.config.units(running).items())

    def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Add applications, and wait until the worker of each listens."""
        return self._change(units, limit_s=limit_s)

    def load(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Hand running replicas what they are to hold."""
        return self._change(units, limit_s=limit_s)

    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        """Take applications away; Ray lets them finish for its graceful time-out."""
        running = self._running()
        asked = {self.config.name(name) for name in names}
        self._take_away([name for name in self.config.units(running) if name in asked], running, drain_s=drain_s)

    def health(self, names: Sequence[str]) -> dict[str, UnitHealth]:
        """Ready where its worker answers, with the worker's own counters."""
        asked = set(names)
        return {seen.name: self._health(seen) for seen in self.observe() if seen.name in asked}

    def route(self, routes: Mapping[str, Any] | None, *, limit_s: float) -> None:  # noqa: ARG002 (of the protocol)
        """No router runs in a Ray cluster."""
        if routes is not None:
            raise TargetFailed(self.name, "router", _NO_ROUTER)

    def routed(self) -> Mapping[str, Any] | None:
        """No router runs in a Ray cluster."""
        return None

    def down(self, *, drain_s: float) -> None:
        """Take this deployment's applications out of the cluster; others stay."""
        running = self._running()
        self._take_away(list(self.config.units(running)), running, drain_s=drain_s)

    def close(self) -> None:
        """Nothing is held between two calls."""

    def _change(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        running = self._running()
        before = self.config.units(running)
        changed = {self.config.name(unit.name): unit for unit in units}
        applications = [
            self.config.application(unit)
            for name, unit in changed.items()
            if name not in before or before[name].content != unit.content
        ]
        if applications:
            self._put(self.config.whole(running, changed=applications))
        found: dict[str, Endpoint] = {}
        try:
            self._until(lambda now: self._are_up(now, changed, found), changed, limit_s=limit_s)
        except TargetFailed:
            back = [self.config.application(before[name]) for name in changed if name in before]
            new = [name for name in changed if name not in before]
            self._put(self.config.whole(self._running(), changed=back, gone=new))
            raise
        return {unit.name: found[name] for name, unit in changed.items()}

    def _are_up(self, running: Json, units: Mapping[str, Unit], found: dict[str, Endpoint]) -> bool:
        """Whether all of them hold what they are to; who does is put into `found`."""
        for name, unit in units.items():
            if name not in found and _status(running, name) == "RUNNING":
                said = self._listening(name)
                if said is not None and said["content"] == unit.content:
                    found[name] = Endpoint(said["address"], said["port"])
        return len(found) == len(units)

    def _take_away(self, names: Sequence[str], running: Json, *, drain_s: float) -> None:
        if names:
            self._put(self.config.whole(running, gone=names))
            limit_s = drain_s + self.hosts.limits.call_s
            self._until(lambda now: not set(names) & set(now["applications"]), names, limit_s=limit_s)

    def _listening(self, name: str) -> Json | None:
        """Where the worker of an application listens and what it holds; None where it does not say."""
        try:
            said = self._ask(f"{self.settings.proxy.rstrip('/')}/{name}")
            return {"address": str(said["address"]), "port": int(said["port"]), "content": said["content"]}
        except (TargetFailed, KeyError, TypeError, ValueError):
            return None

    def _seen(self, running: Json, name: str, unit: Unit) -> Seen:
        said = self._listening(name) if _status(running, name) == "RUNNING" else None
        if said is not None:
            return Seen(unit.name, unit.content, "ready", endpoint=Endpoint(said["address"], said["port"]), unit=unit)
        troubles = _troubles(running, [name])
        return Seen(unit.name, unit.content, "failing" if troubles else "starting", unit=unit, why=troubles)

    def _health(self, seen: Seen) -> UnitHealth:
        if seen.endpoint is None:
            return UnitHealth(False, why=seen.why or "its replica is not there yet")
        try:
            said = self._ask(
                f"http://{in_url(seen.endpoint.address)}:{seen.endpoint.port}/metrics", token=token_of(self.hosts)
            )
        except TargetFailed as error:
            return UnitHealth(False, why=error.cause)
        return UnitHealth(True, loads=said.get("loads", {}))

    def _until(self, done: Callable[[Json], bool], names: Iterable[str], *, limit_s: float) -> None:
        """Ask until it is done, Ray gives up, or time is over; then say which of these applications are not well."""
        until = time.monotonic() + limit_s
        while not done(running := self._running()):
            failed = [name for name in names if _status(running, name) == "DEPLOY_FAILED"]
            if failed or time.monotonic() >= until:
                late = failed or [name for name in names if _status(running, name) not in ("", "RUNNING")]
                how = "Ray gave up" if failed else f"not there after {limit_s:g} s"
                said = _troubles(running, late) or f"Ray is at {', '.join(_status(running, name) for name in late)}"
                raise TargetFailed(self.name, ", ".join(late), f"{how}: {said}")
            time.sleep(_LOOK_S)

    def _running(self) -> Json:
        said: Json = self._ask(f"{self.settings.dashboard.rstrip('/')}{_APPLICATIONS}")
        return {"applications": {}, **said}

    def _put(self, config: Json) -> None:
        self._ask(f"{self.settings.dashboard.rstrip('/')}{_APPLICATIONS}", given=config)

    def _ask(self, url: str, *, given: Json | None = None, token: str | None = None) -> Any:
        request = urllib.request.Request(url, method="GET" if given is None else "PUT")
        if token is not None:
            request.add_header("authorization", f"Bearer {token}")
        if given is not None:
            request.data = json.dumps(given, allow_nan=False).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=self.hosts.limits.call_s) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            said = " ".join(error.read().decode(errors="replace").split())[:600]
            raise TargetFailed(self.name, url, f"{error.code}: {said}") from None
        except OSError as error:
            raise TargetFailed(self.name, url, f"no answer: {getattr(error, 'reason', error)}") from None
        try:
            return json.loads(body) if body.strip() else {}
        except ValueError:
            raise TargetFailed(self.name, url, f"no JSON: {body[:80]!r}") from None


def _said_of(running: Json, name: str) -> Json:
    found: Json = running["applications"].get(name) or {}
    return found


def _status(running: Json, name: str) -> str:
    return str(_said_of(running, name).get("status", ""))


def _troubles(running: Json, names: Iterable[str]) -> str:
    """Replicas that have no node, by name, and what Ray says of each deployment that is not well."""
    homeless: list[str] = []
    said: dict[str, None] = {}
    for name in names:
        worker: Json = (_said_of(running, name).get("deployments") or {}).get(WORKER) or {}
        waiting = [one for one in worker.get("replicas", ()) if one.get("state") == "STARTING"]
        homeless += [f"{name}#{one.get('replica_id')}" for one in waiting if not one.get("node_id")]
        for one in (worker, _said_of(running, name)):
            if one.get("message") and one.get("status") not in ("RUNNING", "HEALTHY"):
                said[" ".join(str(one["message"]).split())[:500]] = None
    placed = [f"no node yet for {', '.join(sorted(homeless))}"] if homeless else []
    return "; ".join([*placed, *said])
