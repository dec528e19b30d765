"""From units to the configuration of Ray Serve: pure, as the JSON that its REST interface takes.

A unit becomes an application of one replica, placed by what it needs of a node: so each worker has an address of its
own, and just the one that is to go goes (which of several replicas a smaller number costs would be Ray's choice). What
the worker holds is the deployment's `user_config`, which Ray hands to a running replica without starting it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from hetplan.executor.hosts_file import HostsFile
from hetplan.executor.kubernetes_names import dns_name
from hetplan.executor.units import Unit
from hetplan.profiles.fields import Id, Key, Model, Named, NonNegative, Positive

__all__ = ["WORKER", "RayConfig", "RaySettings", "RayWorker"]

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
        return {**made, "runtime_env": dict(self.settings.runtime_env)} if self.settings.runtime_env else made

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
            name: told["deployed_app_config"]
            for name, told in running.get("applications", {}).items()
            if told.get("deployed_app_config") and name not in dropped
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
        for name, told in running.get("applications", {}).items():
            config = told.get("deployed_app_config") or {}
            for deployment in config.get("deployments", ()):
                held = deployment.get("user_config") or {}
                if config.get("import_path") == _IMPORT_PATH and held.get("deployment") == self.hosts.name:
                    found[name] = Unit.from_dict(held["unit"])
        return found
