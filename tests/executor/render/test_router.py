"""hetplan's router in a cluster: what is rendered for it, and that its containers' commands serve a plan's queries."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from build import Files, cluster, tiny
from cases.rendered import random_case, told
from face import EXIT, command, read_objects, sent_by, solve

from hetplan.executor.apply.cluster import RunningGroup
from hetplan.executor.apply.platform import Platform
from hetplan.executor.render import read, render
from hetplan.executor.render.groups import groups
from hetplan.executor.render.names import CannotRender
from hetplan.executor.render.pods import WORKER
from hetplan.executor.render.router import routed
from hetplan.executor.render.rules import HETPLAN, choose
from hetplan.executor.site import read_site
from hetplan.profiles.load import load_inputs
from hetplan.profiles.read_plan import read_plan

TOKEN = "sesame-sesame-sesame"
ROUTER = (
    '[router]\nimage = "registry.example/hetplan:1"\n[security]\ntoken_secret = {name = "hetplan", key = "token"}\n'
)


def crowd(name: str = "pool", times: float = 4.0) -> Files:
    """An example whose plan takes several replicas, so that somebody has to pick one."""
    wish = tiny(name).provides({"gpu": 1, "cpu_cores": 8, "mem_gib": 32})
    for one in wish.slo["apps"].values():
        if isinstance(one.get("rate_qps"), float | int):
            one["rate_qps"] *= times
    return wish


def given(folder: Path, wish: Files, router: str = ROUTER) -> list[str]:
    """The arguments of `render`: the plan of a wish with its files, and a site file."""
    paths = wish.write(folder)
    (folder / "plan.json").write_text(json.dumps(solve(wish, "fluid").plan))
    site = cluster(wish, {name: {"pool": name} for name in wish.machine_types})
    (folder / "site.toml").write_text(f"{site}\n{router}")
    how = ["--to", "kubernetes", "--site", str(folder / "site.toml"), "-o", str(folder / "made")]
    return [str(folder / "plan.json"), *paths, *how]


def objects_in(folder: Path) -> list[dict[str, Any]]:
    return read_objects((folder / "made" / "kubernetes.yaml").read_text())


def test_the_router_is_the_first_way_out_and_what_it_needs_is_asked_for(tmp_path: Path) -> None:
    arguments = given(tmp_path, crowd(), "")
    ran = command("render", *arguments)
    assert ran.code == EXIT["infeasible"]
    assert "Ways out: --set router=hetplan" in ran.err
    ran = command("render", *arguments, "--set", "router=hetplan")
    assert ran.code == EXIT["infeasible"]
    assert "Add [router] image" in ran.err
    assert "Add [security] token_secret" in ran.err
    assert not (tmp_path / "made").exists()
    ran = command("render", *arguments, "--set", "router=hetplan", "--set", "rule=split")
    assert ran.code == EXIT["bad input"]


@pytest.mark.parametrize("name", ["pool", "pipeline", "variants"])
def test_its_objects_are_kubernetes_own_and_read_back_as_the_plans_groups(name: str, tmp_path: Path) -> None:
    wish = crowd(name, 4.0 if name == "pool" else 1.0)
    ran = command("render", *given(tmp_path, wish), "--set", "router=hetplan")
    assert ran.code == EXIT["ok"], ran
    text = (tmp_path / "made" / "kubernetes.yaml").read_text()
    assert "hetplan's router and workers run in it (registry.example/hetplan:1)" in text.splitlines()[0]
    objects = read_objects(text)
    for one in objects:
        for version in ("1.31", "1.34"):
            kubernetes_validate.validate(one, version, strict=True)
    assert len({(one["kind"], one["metadata"]["name"]) for one in objects}) == len(objects)
    plan, inputs = read_plan(json.loads((tmp_path / "plan.json").read_text())), load_inputs(wish.profile, wish.slo)
    site = read_site(tmp_path / "site.toml")
    fleet = groups(plan, inputs, site)
    found = read("kubernetes", {"kubernetes.yaml": text})
    assert {one["name"]: (one["replicas"], one["gpus"]) for one in found} == {
        one.name: (one.count, one.gpus) for one in fleet.groups
    }
    table = table_of(objects)
    assert len(table["units"]) == sum(one.count for one in fleet.groups)
    assert {app["dispatch"]["rule"] for app in table["apps"].values()} == {one.rule for one in fleet.apps.values()}
    for group in fleet.groups:
        (pod,) = (p for p in pods_of(objects) if p["name"] == group.name)
        assert [one["name"] for one in pod["spec"]["containers"]] == ["model", "hetplan-worker"]
        if group.cpu_cores is not None:  # both together ask for no more than the node has for the replica
            asked = (int(one["resources"]["requests"]["cpu"].removesuffix("m")) for one in pod["spec"]["containers"])
            assert sum(asked) <= 1000 * group.cpu_cores + 1e-6
    again = tmp_path / "again"
    assert command("render", *given(tmp_path, wish)[:-1], str(again), "--set", "router=hetplan").code == EXIT["ok"]
    assert (again / "kubernetes.yaml").read_text() == text


def test_a_lost_node_is_replaced_soon_and_every_port_has_a_name(tmp_path: Path) -> None:
    assert command("render", *given(tmp_path, crowd()), "--set", "router=hetplan").code == EXIT["ok"]
    objects = objects_in(tmp_path)
    (router,) = (pod["spec"] for pod in pods_of(objects) if pod["name"].endswith("router"))
    away = {one["key"]: one["tolerationSeconds"] for one in router["tolerations"]}
    assert away == {"node.kubernetes.io/not-ready": 20, "node.kubernetes.io/unreachable": 20}
    named = [one for one in objects if one["kind"] == "Service" and one["spec"].get("clusterIP") == "None"]
    table = table_of(objects)
    assert {f"{one['metadata']['name']}.serving.svc" for one in named} == {unit["address"] for unit in table["units"]}
    for one in named:
        ports = {port["name"]: port["port"] for port in one["spec"]["ports"]}
        assert ports == {"http": 8080, "link": 8601}


def test_another_table_is_another_object_that_nobody_can_change(tmp_path: Path) -> None:
    held = []
    for times in (4.0, 8.0):
        folder = tmp_path / f"{times}"
        folder.mkdir()
        assert command("render", *given(folder, crowd(times=times)), "--set", "router=hetplan").code == EXIT["ok"]
        objects = objects_in(folder)
        maps = [one for one in objects if one["kind"] == "ConfigMap"]
        assert all(one["immutable"] for one in maps)
        held.append({one["metadata"]["name"]: one["data"] for one in maps})
        assert {pod["spec"]["volumes"][0]["configMap"]["name"] for pod in pods_of(objects)} == set(held[-1])
    assert held[0].keys() != held[1].keys()
    for name in held[0].keys() & held[1].keys():
        assert held[0][name] == held[1][name]


def test_random_plans_read_back_and_have_a_worker_in_the_table_for_each_pod() -> None:
    said = 0
    for seed in range(24):
        plan, inputs, written = random_case(seed, text=bool(seed % 3 == 0))
        site = read_site({**written, "router": {"image": "registry.example/hetplan:1"}, "security": {"open": True}})
        fleet = routed(choose("kubernetes", plan, groups(plan, inputs, site), HETPLAN).fleet, plan, inputs, site)
        try:
            files = render("kubernetes", fleet, site)
        except CannotRender:
            continue  # a part of a GPU has no name here
        said += 1
        wanted = told(fleet)
        for one in read("kubernetes", files):
            assert one.items() <= wanted.pop(one["name"]).items(), (seed, one)
        assert not wanted
        objects = read_objects(files["kubernetes.yaml"])
        for made in objects:
            kubernetes_validate.validate(made, "1.34", strict=True)
        counts = Counter(unit["address"].split(".")[0] for unit in table_of(objects)["units"])
        assert counts == {group.name: group.count for group in fleet.groups}
        for pod in pods_of(objects):
            held = config_of(objects, pod).get("unit", {"loads": ()})["loads"]
            mine = {unit["loads"][0]["id"] for unit in table_of(objects)["units"]
                    if unit["address"].startswith(f"{pod['name']}.")}  # fmt: skip
            assert {load["id"] for load in held} == mine
    assert said > 8


def test_no_secret_is_in_a_file_and_every_listener_has_one(tmp_path: Path) -> None:
    assert command("render", *given(tmp_path, crowd()), "--set", "router=hetplan").code == EXIT["ok"]
    own = [one for pod in pods_of(objects_in(tmp_path)) for one in pod["spec"]["containers"]
           if one["name"].startswith("hetplan-")]  # fmt: skip
    assert len(own) > 1
    for one in own:
        (env,) = one["env"]
        assert env["valueFrom"] == {"secretKeyRef": {"name": "hetplan", "key": "token"}}


def test_rules_that_pods_cannot_keep_are_refused(tmp_path: Path) -> None:
    wish = crowd()
    plan, inputs = read_plan(solve(wish, "fluid").plan), load_inputs(wish.profile, wish.slo)
    labels = {name: {"pool": name} for name in wish.machine_types}
    (tmp_path / "open.toml").write_text(cluster(wish, labels) + '\n[router]\nimage = "x"\n[security]\nopen = true\n')
    site = read_site(tmp_path / "open.toml")
    fleet = choose("kubernetes", plan, groups(plan, inputs, site), HETPLAN).fleet
    assert routed(fleet, plan, inputs, site).router
    shared = in_turns(plan, instances=2)
    fleet = choose("kubernetes", shared, groups(shared, inputs, site), HETPLAN).fleet
    with pytest.raises(CannotRender, match="take turns on the machine, and have parts of it"):
        routed(fleet, shared, inputs, site)


def in_turns(plan: Any, *, instances: int = 1) -> Any:
    """The plan with a second model of the same kind in turns on its first worker's machines."""
    (worker, *others) = plan.workers
    first = worker.loads[0].model_copy(update={"instances": instances})
    two = (first, first.model_copy(update={"id": "other"}))
    return plan.model_copy(update={"workers": (worker.model_copy(update={"loads": two, "queue": "shared"}), *others)})


# Models that take turns on a machine


def test_models_of_a_policy_are_in_one_pod_and_the_worker_beside_them_has_the_plans_table(tmp_path: Path) -> None:
    wish = crowd("policy", 1.0)
    assert command("render", *given(tmp_path, wish), "--set", "router=hetplan").code == EXIT["ok"]
    plan = json.loads((tmp_path / "plan.json").read_text())
    objects = objects_in(tmp_path)
    for one in objects:
        kubernetes_validate.validate(one, "1.34", strict=True)
    (pod,) = (one for one in pods_of(objects) if not one["name"].endswith("router"))
    (worker,) = plan["workers"]
    assert pod["replicas"] == worker["count"]
    assert [one["name"] for one in pod["spec"]["containers"]] == ["model", "hetplan-worker"], "one server holds all"
    unit = config_of(objects, pod)["unit"]
    assert {load["id"]: load["variant"] for load in unit["loads"]} == {
        load["id"]: load["variant"] for load in worker["loads"]
    }
    ((table,),) = plan["policies"].values()
    assert unit["policies"][0]["slo_ms"] == table["slo_ms"]
    assert {one["address"] for one in table_of(objects)["units"]} == {f"{pod['name']}.serving.svc"}
    (made,) = (one for one in objects if one["metadata"]["name"] == pod["name"] and one["kind"] == "Deployment")
    (told,) = read("kubernetes", {"kubernetes.yaml": (tmp_path / "made" / "kubernetes.yaml").read_text()})
    noted = json.loads(made["metadata"]["annotations"][WORKER])
    state = Platform.state([RunningGroup(told, worker["count"], worker["count"], worker=noted)])
    assert [load.variant for load in state.workers[0].loads] == [load["variant"] for load in worker["loads"]]


def test_servers_of_one_pod_have_a_container_and_a_port_each(tmp_path: Path) -> None:
    arguments = given(tmp_path, tiny("policy").provides({"cpu_cores": 8, "mem_gib": 32}))
    text = (tmp_path / "site.toml").read_text()
    for number in range(3):
        text = text.replace(
            f"[models.'net-{number}']\nimage = 'registry.example/serve:1'",
            f"[models.'net-{number}']\nimage = 'registry.example/serve:{number}'\nPORT{number}",
        )
    assert "PORT2" in text

    def rendered(*ports: int) -> Any:
        said = text
        for number, port in enumerate(ports):
            said = said.replace(f"PORT{number}", f"port = {port}")
        (tmp_path / "site.toml").write_text(said)
        return command("render", *arguments, "--set", "router=hetplan")

    ran = rendered(8080, 8081, 8081)
    assert ran.code == EXIT["infeasible"]
    assert "would listen on the same port" in ran.err
    assert rendered(8080, 8081, 8082).code == EXIT["ok"]
    objects = objects_in(tmp_path)
    for one in objects:
        kubernetes_validate.validate(one, "1.34", strict=True)
    (pod,) = (one for one in pods_of(objects) if not one["name"].endswith("router"))
    servers = [one for one in pod["spec"]["containers"] if not one["name"].startswith("hetplan-")]
    assert {one["image"].split(":")[1]: one["ports"][0]["containerPort"] for one in servers} == {
        "0": 8080, "1": 8081, "2": 8082
    }  # fmt: skip
    assert len({one["ports"][0]["name"] for one in servers}) == 3
    assert all(one["readinessProbe"]["httpGet"]["port"] == one["ports"][0]["name"] for one in servers)
    asked = {load["variant"]: load["model"]["url"] for load in config_of(objects, pod)["unit"]["loads"]}
    assert asked == {f"net-{number}": f"http://127.0.0.1:{8080 + number}" for number in range(3)}
    cores = [int(one["resources"]["requests"]["cpu"].removesuffix("m")) for one in pod["spec"]["containers"]]
    assert sum(cores) <= 8000
    (tmp_path / "site.toml").write_text(
        (tmp_path / "site.toml").read_text().replace("[machines.m0]", "[machines.m0]\ngpus = 1")
    )
    ran = command("render", *arguments, "--set", "router=hetplan")
    assert ran.code == EXIT["infeasible"]
    assert "take turns on the GPUs of a machine, which one container has" in ran.err


def test_gpus_go_to_one_server_of_models_that_take_turns() -> None:
    wish = crowd()
    plan, inputs = in_turns(read_plan(solve(wish, "fluid").plan)), load_inputs(wish.profile, wish.slo)
    (worker, *_) = plan.workers
    inputs.profile.hardware[worker.hardware].provides["gpu"] = 2
    model = worker.loads[0].variant
    said = cluster(wish, {name: {"pool": name} for name in wish.machine_types}, accelerators={worker.hardware: 2})
    site = read_site(tomllib.loads(f'{said}\n[router]\nimage = "x"\n[security]\nopen = true\n'))
    fleet = choose("kubernetes", plan, groups(plan, inputs, site), HETPLAN).fleet
    made = routed(fleet, plan, inputs, site)
    files = render("kubernetes", made, site)
    (one,) = (one for one in read("kubernetes", files) if one["model"] == f"{model}+{model}")
    assert (one["replicas"], one["gpus"]) == (worker.count, 2)


def test_a_policys_queries_are_served_by_the_model_that_its_table_says(tmp_path: Path) -> None:
    wish = crowd("policy", 1.0)
    assert command("render", *given(tmp_path, wish), "--set", "router=hetplan").code == EXIT["ok"]
    (app,) = wish.slo["apps"]

    async def talk() -> None:
        async with running(objects_in(tmp_path), tmp_path, 5.0) as (port, pods):
            answers = await asyncio.gather(*(ask(port, "POST", f"/v1/{app}", b'{"inputs": 1}') for _ in range(40)))
            assert {status for status, _ in answers} == {200}, answers
            assert sum(one.served for one in pods.servers.values()) >= 40
            assert len({said["path"][0]["unit"] for _, said in answers}) == len(pods.servers)
            assert {said["path"][0]["variant"] for _, said in answers} <= {"net-0", "net-1", "net-2"}

    asyncio.run(talk())


def test_two_routers_are_not_evicted_at_once_and_a_silent_server_is_started_again(tmp_path: Path) -> None:
    wish = crowd()
    arguments = given(tmp_path, wish)
    plan = json.loads((tmp_path / "plan.json").read_text())
    (tmp_path / "plan.json").write_text(json.dumps(sent_by(plan, "at random")))
    assert command("render", *arguments, "--set", "router=hetplan").code == EXIT["ok"]
    objects = objects_in(tmp_path)
    (router,) = (one for one in objects if one["kind"] == "Deployment" and one["metadata"]["name"].endswith("router"))
    assert router["spec"]["replicas"] == 2
    budgets = [one["spec"]["selector"] for one in objects if one["kind"] == "PodDisruptionBudget"]
    assert router["spec"]["selector"] in budgets
    for pod in pods_of(objects):
        for one in pod["spec"]["containers"]:
            assert one["livenessProbe"]["httpGet"]["port"] == one["ports"][0]["name"]
            assert one["startupProbe"]["failureThreshold"] * one["startupProbe"]["periodSeconds"] >= 600
            if one["name"] == "model":
                assert one["livenessProbe"]["failureThreshold"] * one["livenessProbe"]["periodSeconds"] >= 60
    text = (tmp_path / "site.toml").read_text()
    (tmp_path / "site.toml").write_text(text.replace("image = 'registry", "alive_s = 0\nimage = 'registry"))
    assert command("render", *arguments, "--set", "router=hetplan").code == EXIT["ok"]
    models = [
        one for pod in pods_of(objects_in(tmp_path)) for one in pod["spec"]["containers"] if one["name"] == "model"
    ]
    assert models
    assert all("livenessProbe" not in one for one in models)


# The commands of the containers, on this machine


def pods_of(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": one["metadata"]["name"], "replicas": one["spec"]["replicas"], "spec": one["spec"]["template"]["spec"]}
        for one in objects
        if one["kind"] == "Deployment"
    ]


def config_of(objects: list[dict[str, Any]], pod: Mapping[str, Any]) -> dict[str, Any]:
    """What is mounted in a pod."""
    name = pod["spec"]["volumes"][0]["configMap"]["name"]
    (found,) = (one for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == name)
    made: dict[str, Any] = json.loads(found["data"]["config.json"])
    return made


def table_of(objects: list[dict[str, Any]]) -> dict[str, Any]:
    (router,) = (pod for pod in pods_of(objects) if pod["name"].endswith("router"))
    return config_of(objects, router)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Server:
    """The user's server of one pod: takes a time for each query, and counts how many it has at once."""

    def __init__(self, ms: float) -> None:
        self.ms, self.port, self.served, self.open, self.most = ms, free_port(), 0, 0, 0
        self.bodies: list[bytes] = []

    async def start(self) -> None:
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length:")[2].split(b"\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                if b" /health " not in head:
                    self.open += 1
                    self.most = max(self.most, self.open)
                    await asyncio.sleep(self.ms / 1000.0)
                    self.open -= 1
                    self.served += 1
                    self.bodies.append(body)
                answer = json.dumps({"by": self.port}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))
                await writer.drain()


DNS = """
import json, socket, sys
real = socket.getaddrinfo
def find(name, *others, **more):
    known = json.load(open({path!r}))
    if name not in known:
        return real(name, *others, **more)
    if not known[name]:
        raise socket.gaierror(socket.EAI_NONAME, "no pods")
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, 0)) for one in known[name]]
socket.getaddrinfo = find
from {module} import main
main(sys.argv[1:])
"""
"""The process with the cluster's DNS in a file: names of Services, and the addresses of the pods behind each."""


class Pods:
    """The pods of rendered objects on this machine: each worker with its server, and the router.

    A pod has an address of its own, 127.0.0.N; all workers listen on one port, as in a cluster.
    """

    def __init__(self, objects: list[dict[str, Any]], folder: Path, ms: float) -> None:
        self.objects, self.folder, self.ms, self.port = objects, folder, ms, free_port()
        self.table = table_of(objects)
        self.specs = {pod["name"]: pod for pod in pods_of(objects)}
        self.names: dict[str, list[str]] = {unit["address"]: [] for unit in self.table["units"]}
        self.servers: dict[str, Server] = {}
        self.started: dict[str, subprocess.Popen[bytes]] = {}
        self.logs: list[Path] = []

    async def worker(self, name: str, called: str | None = None) -> str:
        """Another pod behind a name, made for another plan where its load has another name; returns its address."""
        address = f"127.0.0.{len(self.servers) + 2}"
        self.servers[address] = Server(self.ms)
        await self.servers[address].start()
        spec = self.specs[name.split(".")[0]]
        config = config_of(self.objects, spec)
        for load in config["unit"]["loads"]:
            load["id"] = called or load["id"]
            assert load["model"]["url"] == "http://127.0.0.1:8080"
            load["model"]["url"] = f"http://127.0.0.1:{self.servers[address].port}"
        self.start(address, spec, {**config, "bind": address, "port": self.port})
        self.known(name, [*self.names[name], address])
        return address

    def known(self, name: str, addresses: list[str]) -> None:
        self.names[name] = addresses
        (self.folder / "new.json").write_text(json.dumps(self.names))
        (self.folder / "new.json").replace(self.folder / "dns.json")

    def start(self, called: str, spec: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """The command of its container, with its own place for the mounted file."""
        (container,) = (one for one in spec["spec"]["containers"] if one["name"].startswith("hetplan-"))
        path = self.folder / f"{called}.json"
        path.write_text(json.dumps(config))
        (mount,) = container["volumeMounts"]
        python, option, module, part, mounted = container["command"]
        assert (python, option, mounted) == ("python", "-m", f"{mount['mountPath']}/config.json")
        code = DNS.format(path=str(self.folder / "dns.json"), module=module)
        environment = {**os.environ, container["env"][0]["name"]: TOKEN}
        self.logs.append(path.with_suffix(".log"))
        with self.logs[-1].open("wb") as log:
            words = [sys.executable, "-c", code, part, str(path)]
            self.started[called] = subprocess.Popen(words, env=environment, stderr=log)

    def end(self, called: str) -> None:
        self.started[called].kill()
        self.started[called].wait()


@asynccontextmanager
async def running(objects: list[dict[str, Any]], folder: Path, ms: float) -> AsyncIterator[tuple[int, Pods]]:
    """All pods of rendered objects, and the port of their router."""
    pods = Pods(objects, folder, ms)
    try:
        for unit in pods.table["units"]:
            await pods.worker(unit["address"])
            unit["port"] = pods.port
        (router,) = (pod for pod in pods.specs.values() if pod["name"].endswith("router"))
        pods.table["router"]["port"] = port = free_port()
        pods.start("router", router, pods.table)
        await until_ready(port, pods)
        yield port, pods
    finally:
        for called in pods.started:
            pods.end(called)


async def until_ready(port: int, pods: Pods) -> None:
    for _ in range(300):
        with suppress(OSError, ValueError):
            status, said = await ask(port, "GET", "/healthz")
            if status == 200 and sum(said["units"].values()) == len(pods.table["units"]):
                return
        await asyncio.sleep(0.1)
    pytest.fail("not ready: " + "; ".join(one.read_text() for one in pods.logs))


async def ask(port: int, method: str, path: str, body: bytes = b"", token: str | None = TOKEN) -> tuple[int, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    who = f"authorization: Bearer {token}\r\n" if token else ""
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{who}connection: close\r\n\r\n"
    writer.write(head.encode() + body)
    raw = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    first, _, content = raw.partition(b"\r\n\r\n")
    return int(first.split()[1]), json.loads(content) if content[:1] == b"{" else content.decode()


def test_router_and_workers_of_the_pool_example_match_its_queries(tmp_path: Path) -> None:
    wish = crowd()
    assert command("render", *given(tmp_path, wish), "--set", "router=hetplan").code == EXIT["ok"]
    objects = objects_in(tmp_path)
    (app,) = wish.slo["apps"]
    assert table_of(objects)["apps"][app]["dispatch"]["rule"] == "matching/1"

    async def talk() -> None:
        async with running(objects, tmp_path, 20.0) as (port, pods):
            servers = pods.servers
            assert len(servers) > 1
            assert (await ask(port, "POST", f"/v1/{app}", b"{}", token=None))[0] == 401
            query = json.dumps({"at": query_at(wish), "inputs": {"text": "hello"}}).encode()
            answers = await asyncio.gather(*(ask(port, "POST", f"/v1/{app}", query) for _ in range(60)))
            served = [said for status, said in answers if status == 200]
            # A matching holds queries until a worker is idle: none has two, and none of them is left out.
            assert max(one.most for one in servers.values()) == 1
            assert all(one.served for one in servers.values())
            assert len(served) == sum(one.served for one in servers.values())
            assert {body for one in servers.values() for body in one.bodies} == {b'{"text": "hello"}'}
            assert len({said["path"][0]["unit"] for said in served}) == len(servers)
            # A pod that dies is passed over; the one that comes for it, at another address, is found by its name.
            gone = next(iter(servers))
            pods.end(gone)
            await asyncio.sleep(0.3)
            for _ in range(10):
                status, said = await ask(port, "POST", f"/v1/{app}", query)
                assert status == 200, said
            (name,) = (name for name, there in pods.names.items() if gone in there)
            pods.known(name, [one for one in pods.names[name] if one != gone])
            new = await pods.worker(name, called="of-another-plan")
            await until_ready(port, pods)
            await asyncio.gather(*(ask(port, "POST", f"/v1/{app}", query) for _ in range(60)))
            assert servers[new].served

    asyncio.run(talk())


def test_a_pipelines_queries_go_through_the_pods_of_every_step(tmp_path: Path) -> None:
    wish = crowd("pipeline", 1.0)
    assert command("render", *given(tmp_path, wish), "--set", "router=hetplan").code == EXIT["ok"]
    objects = objects_in(tmp_path)
    (app,) = wish.slo["apps"]
    steps = set(table_of(objects)["apps"][app]["nodes"])
    assert len(steps) > 1

    async def talk() -> None:
        async with running(objects, tmp_path, 1.0) as (port, pods):
            seen = set()
            for _ in range(30):
                status, said = await ask(port, "POST", f"/v1/{app}", b'{"inputs": 1}')
                assert status == 200, said
                seen |= {hop["node"] for hop in said["path"]}
            assert seen == steps
            assert sum(one.served for one in pods.servers.values()) >= 60

    asyncio.run(talk())


def test_requests_for_text_go_through_the_worker_to_the_users_server(tmp_path: Path) -> None:
    wish = crowd("llm", 1.0)
    assert command("render", *given(tmp_path, wish), "--set", "router=hetplan").code == EXIT["ok"]
    (app,) = wish.slo["apps"]

    async def talk() -> None:
        async with running(objects_in(tmp_path), tmp_path, 1.0) as (port, pods):
            body = json.dumps({"model": app, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}).encode()
            for _ in range(8):
                status, said = await ask(port, "POST", "/v1/chat/completions", body)
                assert status == 200, said
                assert any(f'{{"by": {one.port}}}' in said for one in pods.servers.values()), said
            assert sum(one.served for one in pods.servers.values()) == 8

    asyncio.run(talk())


def query_at(wish: Files) -> dict[str, float]:
    """A query of the first class of the wish's mix."""
    (one,) = wish.slo["apps"].values()
    mix = one.get("mix")
    return {} if not isinstance(mix, Mapping) else {"batch": 1.0, **dict(zip(mix["axes"], mix["bins"][0], strict=True))}
