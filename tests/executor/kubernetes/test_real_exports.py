"""Exported files in a real cluster: its autoscaler follows the metric, the commands of a day do what the plan says.

An adapter on this machine answers for the external metric, as prometheus-adapter would. Commands of the schedule run
here as its service account, with the permissions that its Role gives.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cases.exported import a_day, commands_of, objects, one_period
from cases.real_cluster import WHERE_ONE_IS, Server

pytestmark = WHERE_ONE_IS

METRICS = "external.metrics.k8s.io"
OLD = {"policy/v1": "policy/v1beta1", "autoscaling/v2": "autoscaling/v2beta2", "batch/v1": "batch/v1beta1"}
"""Versions under which a server of 1.20 has kinds that 1.25 has under newer ones."""


class Adapter:
    """What a metrics adapter answers: one metric of one application, as high as it was last set."""

    def __init__(self, folder: Path) -> None:
        self.value, self.asked = 0, list[str]()
        words = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {folder}/key -out {folder}/cert"
        subprocess.run(["openssl", *words.split()], check=True, capture_output=True, timeout=60)
        handler = type("Handler", (_Answers,), {"adapter": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "cert", folder / "key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def said(self, path: str, query: str) -> dict[str, Any]:
        *_, last = path.split("/")
        if last == "v1beta1":
            kind = {"name": "hetplan_queries_per_second", "namespaced": True, "kind": "ExternalMetricValueList"}
            found = [{**kind, "singularName": "", "verbs": ["get"]}]
            group = f"{METRICS}/v1beta1"
            return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": found}
        if "/namespaces/" in path:
            self.asked.append(f"{last} {parse_qs(query).get('labelSelector', [''])[0]}")
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        item = {"metricName": last, "metricLabels": {"app": "rank"}, "timestamp": now, "value": str(self.value)}
        return {"kind": "ExternalMetricValueList", "apiVersion": f"{METRICS}/v1beta1", "metadata": {}, "items": [item]}


class _Answers(BaseHTTPRequestHandler):
    adapter: Adapter

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        body = json.dumps(self.adapter.said(parts.path, parts.query)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def adapter(server: Server, tmp_path: Path) -> Iterator[Adapter]:
    """The adapter, as a part of the cluster's API; a Service leads to this machine."""
    made = Adapter(tmp_path)
    port = made.server.server_port
    service: dict[str, Any] = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "adapter"}}
    service["spec"] = {"type": "ExternalName", "externalName": "localhost"}
    api: dict[str, Any] = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    api["metadata"] = {"name": f"v1beta1.{METRICS}"}
    where = {"name": "adapter", "namespace": server.namespace, "port": port}
    api["spec"] = {
        "group": METRICS, "version": "v1beta1", "service": where, "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100, "versionPriority": 100,
    }  # fmt: skip
    (tmp_path / "adapter.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [service, api]}))
    server.ask("create", "--validate=false", f"--filename={tmp_path / 'adapter.json'}")
    yield made
    server.ask("delete", "apiservice", f"v1beta1.{METRICS}")
    made.server.shutdown()


def apply(server: Server, folder: Path, found: list[dict[str, Any]]) -> str:
    """Objects as they are applied by hand, under the versions that this server has of them."""
    known = set(server.ask("api-versions").split())
    items = []
    for one in json.loads(json.dumps(found)):
        if one["apiVersion"] not in known or (one["kind"] == "CronJob" and "policy/v1" not in known):
            one["apiVersion"] = OLD.get(one["apiVersion"], one["apiVersion"])
            one.get("spec", {}).pop("timeZone", None)
        items.append(one)
    (folder / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return server.ask("apply", "--server-side", "--field-manager=hetplan", f"--filename={folder}/objects.json")


def replicas(server: Server, part: str = "") -> dict[str, int]:
    found = {one["metadata"]["name"]: one["spec"]["replicas"] for one in server.objects("deployments")}
    return {name: count for name, count in found.items() if "router" not in name and part in name}


def until_replicas(server: Server, count: int) -> None:
    until = time.monotonic() + 150.0
    while list(replicas(server).values()) != [count]:
        assert time.monotonic() < until, (replicas(server), server.ask("describe", "hpa"))
        time.sleep(1.0)


def test_an_autoscaler_follows_the_metric_within_the_planned_bounds(
    server: Server, adapter: Adapter, tmp_path: Path
) -> None:
    """60 queries/s on three pods: 20 for each; the hosts have room for nine."""
    found = objects(one_period(), "hpa", server.namespace)
    apply(server, tmp_path, found)
    until_replicas(server, 3)
    adapter.value = 90
    until_replicas(server, 5)
    assert set(adapter.asked) == {"hetplan_queries_per_second app=rank"}
    apply(server, tmp_path, found)
    assert list(replicas(server).values()) == [5], "applying again leaves the autoscaler its way"
    adapter.value = 2000
    until_replicas(server, 9)


@pytest.mark.parametrize("scaling", ["none", "hpa"])
def test_the_commands_of_a_day_do_what_the_plan_says(server: Server, tmp_path: Path, scaling: Any) -> None:
    found = objects(a_day(), scaling, server.namespace)
    apply(server, tmp_path, found)
    jobs = {one["metadata"]["name"]: one for one in server.objects("cronjobs")}
    held = {one["metadata"]["name"]: one for one in server.objects("configmaps")}

    def run(name: str) -> None:
        """As the pod of a CronJob would: a command after the other, as its service account, with its mounts."""
        (job,) = (one for key, one in jobs.items() if key.startswith(f"prod-{name}"))
        pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        for volume in pod.get("volumes", ()):
            for file, text in held[volume["configMap"]["name"]]["data"].items():
                (tmp_path / file).write_text(text)
        who = f"--as=system:serviceaccount:{server.namespace}:{pod['serviceAccountName']}"
        for program, *words in commands_of(job["spec"]):
            assert program == "kubectl"
            server.ask(*(word.replace("/etc/hetplan", str(tmp_path)) for word in words), who)

    def routed() -> int:
        (table,) = (one for name, one in routes().items())
        return len(json.loads(table["data"]["config.json"])["routes"]["units"])

    def routes() -> dict[str, Any]:
        found = {one["metadata"]["name"]: one for one in server.objects("configmaps")}
        return {name: one for name, one in found.items() if "router" in name and "config.json" in one["data"]}

    def bounds() -> list[int]:
        if scaling == "none":
            return sorted(replicas(server).values())
        return sorted(one["spec"]["minReplicas"] for one in server.objects("hpa"))

    least = [0, 2] if scaling == "none" else [1, 2]
    assert (bounds(), routed()) == (least, 2), "the night"
    if scaling == "none":
        run("p1-ahead")
        assert (bounds(), routed()) == ([1, 4], 2), "pods come ahead, queries do not"
    run("p1-turn")
    assert (bounds(), routed()) == ([1, 4], 5), "the day"
    run("p2-turn")
    assert (bounds(), routed()) == (least, 2), "the night again"
