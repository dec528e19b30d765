"""What the ray target puts to a cluster and makes of its answers; the cluster is a small server here."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor import ray as ray_target
from hetplan.executor.hosts_file import read_hosts
from hetplan.executor.ray import Ray, RayConfig, RaySettings
from hetplan.executor.target import Setting, TargetFailed
from hetplan.executor.units import LoadSpec, Unit, named
from hetplan.testing.target_checks import check_target


@dataclass
class FakeServe:
    """Applications as they were put; those run for whose hardware there is room, each at an address of its own."""

    room: dict[str, int] = field(default_factory=dict)
    applications: dict[str, Any] = field(default_factory=dict)
    puts: list[Any] = field(default_factory=list)
    down: bool = False
    gives_up: bool = False
    extra: dict[str, Any] = field(default_factory=dict)
    port: int = 0
    places: dict[str, int] = field(default_factory=dict)

    def put(self, config: dict[str, Any]) -> None:
        self.puts.append(config)
        self.applications = {one["name"]: one for one in config["applications"]}

    def said(self) -> dict[str, Any]:
        up = self._up()
        return {
            **self.extra,
            "applications": {name: self._of(one, name in up) for name, one in self.applications.items()},
        }

    def _of(self, config: dict[str, Any], up: bool) -> dict[str, Any]:
        replica = {"replica_id": "r0", "state": "RUNNING" if up else "STARTING", "node_id": "n1" if up else None}
        message = "" if up else "Resources required: {'h100': 1.0}, total resources available: {}"
        worker = {"status": "HEALTHY" if up else "UPDATING", "message": message, "replicas": [replica]}
        late = "DEPLOY_FAILED" if self.gives_up else "DEPLOYING"
        return {
            "status": "RUNNING" if up else late,
            "deployed_app_config": config,
            "deployments": {"worker": worker},
        }

    def listening(self, name: str) -> dict[str, Any]:
        if name not in self._up():
            return {}
        place = self.places.setdefault(name, len(self.places) + 1)
        unit = Unit.from_dict(self.applications[name]["deployments"][0]["user_config"]["unit"])
        return {"address": f"127.0.1.{place}", "port": self.port, "content": unit.content}

    def _up(self) -> set[str]:
        left, up = dict(self.room), set()
        for name, one in self.applications.items():
            needs = [d["ray_actor_options"]["resources"] for d in one.get("deployments", ())]
            hardware = next(iter(needs[0])) if needs else None
            if hardware is None or left.get(hardware, 0) > 0:
                up.add(name)
                left[hardware or ""] = left.get(hardware or "", 0) - 1
        return up


@pytest.fixture
def serve() -> FakeServe:
    return FakeServe(room={"t4": 3, "cpu4": 1})


@pytest.fixture
def url(serve: FakeServe) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if serve.down:
                self.send_error(503, "Serve is not ready")
            elif self.path == "/api/serve/applications/":
                self._answer(serve.said())
            elif self.path == "/metrics":
                self._answer({"loads": {"w1.a": {"served": 3}}})
            else:
                self._answer(serve.listening(self.path.strip("/")))

        def do_PUT(self) -> None:
            serve.put(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def _answer(self, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("0.0.0.0", 0), Handler)
    serve.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def target(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ray]:
    monkeypatch.setattr(ray_target, "_LOOK_S", 0.01)

    def make(router: str = "here", **settings: Any) -> Ray:
        settings = {"dashboard": url, "proxy": url, **settings}
        content = {
            "name": "trial",
            "router": {"target": router},
            "limits": {"call_s": 60},
            "targets": {"here": {"kind": "local"}, "cluster": {"kind": "ray", "settings": settings}},
            "hosts": {"pool": {"target": "cluster", "hardware": ["t4", "cpu4", "h100"], "machines": 9}},
        }
        return Ray(Setting("cluster", read_hosts(content), tmp_path, settings))

    return make


def units(count: int, worker: str = "w1", hardware: str = "t4", **load: Any) -> list[Unit]:
    loads = (LoadSpec(f"{worker}.a", variant="m", **load),)
    return [named(Unit("", worker, index, hardware, "cluster", "pool", loads=loads)) for index in range(count)]


def test_it_does_what_targets_do(target: Callable[..., Ray]) -> None:
    check_target(target(), units(2), broken=units(1, "w2", "h100")[0], routes=False, limit_s=0.2)


def test_units_become_applications_with_what_they_need(target: Callable[..., Ray], serve: FakeServe) -> None:
    made = target(hardware={"cpu4": {"num_cpus": 4, "memory_gib": 2, "resources": {"big": 1}}})
    serve.room["big"] = 1
    endpoints = made.start(units(3) + units(1, "w2", "cpu4"), limit_s=5)
    assert len(set(endpoints.values())) == 4
    workers = [one["deployments"][0] for _, one in sorted(serve.applications.items())]
    assert [worker["num_replicas"] for worker in workers] == [1] * 4
    assert [worker["ray_actor_options"]["resources"] for worker in workers[:3]] == [{"t4": 1.0}] * 3
    assert workers[3]["ray_actor_options"] == {
        **{"num_cpus": 4, "num_gpus": 0, "resources": {"big": 1}, "memory": 2 * 2**30}
    }


def test_shares_of_loads_are_what_a_replica_needs(target: Callable[..., Ray]) -> None:
    needs = target().config.needs(units(1, share_gpu=0.25, share_cpu_cores=1.5, instances=2)[0])
    assert (needs["num_gpus"], needs["num_cpus"]) == (0.5, 3.0)


def test_what_was_started_is_seen_and_can_be_changed_and_stopped(target: Callable[..., Ray], serve: FakeServe) -> None:
    made, asked = target(), units(3)
    endpoints = made.start(asked, limit_s=5)
    seen = made.observe()
    assert [one.unit for one in seen] == asked
    assert {one.name: one.endpoint for one in seen} == endpoints
    changed = units(3, max_batch=8)
    assert made.load(changed, limit_s=5) == endpoints
    assert [one.content for one in made.observe()] == [one.content for one in changed]
    made.stop([asked[1].name], drain_s=1)
    left = {one.name: one.endpoint for one in made.observe()}
    assert left == {unit.name: endpoints[unit.name] for unit in (asked[0], asked[2])}
    made.stop([one.name for one in asked], drain_s=1)
    assert made.observe() == ()
    assert serve.applications == {}


def test_starting_what_runs_puts_nothing(target: Callable[..., Ray], serve: FakeServe) -> None:
    made = target()
    assert made.start(units(2), limit_s=5) == made.start(units(2), limit_s=5)
    assert len(serve.puts) == 1


def test_applications_of_others_stay_and_so_does_where_serve_listens(
    target: Callable[..., Ray], serve: FakeServe
) -> None:
    other = {"name": "other", "import_path": "their.app:app", "route_prefix": "/other"}
    serve.applications = {"other": other}
    serve.extra = {"http_options": {"host": "0.0.0.0", "port": 8000}, "proxy_location": "EveryNode"}
    made = target()
    made.start(units(1), limit_s=5)
    assert serve.applications["other"] == other
    assert serve.puts[0]["http_options"] == {"host": "0.0.0.0", "port": 8000}
    assert len(made.observe()) == 1
    made.down(drain_s=1)
    assert serve.applications == {"other": other}
    made.down(drain_s=1)


def test_replicas_without_a_node_are_named_and_the_change_is_taken_back(
    target: Callable[..., Ray], serve: FakeServe
) -> None:
    made = target()
    made.start(units(2), limit_s=5)
    before = serve.applications
    with pytest.raises(TargetFailed, match=r"no node yet for \S+#r0, \S+#r0, \S+#r0; Resources required") as failed:
        made.start(units(5) + units(1, "w2", "h100"), limit_s=0.1)
    late = [made.config.name(unit.name) for unit in units(5)[3:] + units(1, "w2", "h100")]
    assert failed.value.about == ", ".join(late)
    assert serve.applications == before


def test_where_ray_gives_up_nothing_is_waited_for(target: Callable[..., Ray], serve: FakeServe) -> None:
    serve.gives_up = True
    with pytest.raises(TargetFailed, match="Ray gave up: no node yet"):
        target().start(units(1, "w2", "h100"), limit_s=60)
    assert serve.applications == {}


def test_a_cluster_that_does_not_answer_is_named(target: Callable[..., Ray], serve: FakeServe) -> None:
    serve.down = True
    assert "503" in target().check(units(1))[0]
    with pytest.raises(TargetFailed, match="503"):
        target().start(units(1), limit_s=1)
    assert "no answer" in target(dashboard="http://127.0.0.1:9").check(units(1))[0]


def test_the_router_runs_beside_it(target: Callable[..., Ray]) -> None:
    assert "beside a Ray cluster" in target(router="cluster").check(units(1))[0]
    assert target().check(units(1)) == []
    assert target().routed() is None
    with pytest.raises(TargetFailed, match="beside a Ray cluster"):
        target().route({"apps": {}}, limit_s=1)
    target().route(None, limit_s=1)


def test_a_worker_that_does_not_answer_is_not_healthy(target: Callable[..., Ray], serve: FakeServe) -> None:
    made = target()
    names = list(made.start(units(3), limit_s=5))
    serve.room["t4"] = 0
    said = made.health(names[:1])
    assert list(said) == names[:1]
    assert not said[names[0]].ready
    assert "no node yet" in said[names[0]].why
    assert [one.status for one in made.observe()] == ["failing"] * 3


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray_takes_the_configuration() -> None:
    from ray.serve.schema import ServeDeploySchema

    hosts = read_hosts(
        {
            "targets": {"cluster": {"kind": "ray"}},
            "hosts": {"pool": {"target": "cluster", "hardware": "t4", "machines": 9}},
        }
    )
    config = RayConfig(hosts, RaySettings(runtime_env={"env_vars": {"A": "1"}}))
    taken = ServeDeploySchema.model_validate(config.whole({}, changed=[config.application(one) for one in units(3)]))
    assert [one.deployments[0].num_replicas for one in taken.applications] == [1, 1, 1]
