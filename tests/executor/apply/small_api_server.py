"""As much of a Kubernetes API server as `kubectl` needs for what hetplan asks of it: objects in memory, over HTTP.

Server-side apply stores what is sent. A Deployment is complete as soon as it is there; its pods are made up from it.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["SmallApiServer"]

Json = dict[str, Any]

KINDS = {
    "configmaps": "ConfigMap",
    "services": "Service",
    "pods": "Pod",
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
    "horizontalpodautoscalers": "HorizontalPodAutoscaler",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "leases": "Lease",
}


class SmallApiServer:
    """The server; `objects` by (resource, name), `requests` as (method, path with query)."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Json] = {}
        self.requests: list[tuple[str, str]] = []
        self.lock = threading.Lock()
        self.version = 0
        handler = type("Handler", (_Handler,), {"state": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def kubeconfig(self) -> str:
        """JSON is YAML here too."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "small",
                "clusters": [{"name": "small", "cluster": {"server": self.url}}],
                "users": [{"name": "me", "user": {}}],
                "contexts": [{"name": "small", "context": {"cluster": "small", "user": "me"}}],
            }
        )

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def listed(self, resource: str) -> list[Json]:
        if resource != "pods":
            return [one for (kind, _), one in sorted(self.objects.items()) if kind == resource]
        return [pod for one in self.listed("deployments") for pod in _pods(one)]

    def apply(self, resource: str, name: str, sent: Json, *, dry_run: bool) -> Json:
        old = self.objects.get((resource, name))
        if old is not None and _sent_of(old) == _sent_of(sent):
            return old
        self.version += 1
        meta = {**sent["metadata"], "resourceVersion": str(self.version)}
        if old is not None and old.get("spec") == sent.get("spec"):
            generation = old["metadata"]["generation"]
        else:
            generation = 1 if old is None else old["metadata"]["generation"] + 1
        meta |= {"uid": f"uid-{resource}-{name}", "generation": generation, "creationTimestamp": "2026-01-01T00:00:00Z"}
        made = {**sent, "metadata": meta}
        if resource == "deployments":
            count = sent["spec"]["replicas"]
            numbers = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), count)
            made["status"] = {"observedGeneration": generation, **numbers}
        if not dry_run:
            self.objects[resource, name] = made
        return made


def _sent_of(one: Json) -> Json:
    """An object without what the server says of it."""
    ours = {key: value for key, value in one["metadata"].items() if key in ("name", "labels", "annotations")}
    return {**{key: value for key, value in one.items() if key != "status"}, "metadata": ours}


def _pods(deployment: Json) -> list[Json]:
    name, template = deployment["metadata"]["name"], deployment["spec"]["template"]
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{number}", "namespace": "default", **template["metadata"]},
            "spec": template["spec"],
            "status": ready,
        }
        for number in range(deployment["spec"]["replicas"])
    ]


class _Handler(BaseHTTPRequestHandler):
    state: SmallApiServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, query = self._asked()
        if path.endswith("/proxy/metrics"):
            self._answer({"loads": {"w1.a": {"arrived": 7}}})
        elif path == "/openapi/v2":
            # An empty document in the encoding asked for: kubectl finds no schema, and leaves all to the server.
            self._answer(b"", kind="application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
        elif path in _DISCOVERY:
            self._answer(_DISCOVERY[path])
        elif path.startswith("/api") and "/namespaces/" in path:
            self._objects(path.split("namespaces/")[1].split("/")[1:], query)
        else:
            self._refuse(404, "NotFound")

    def do_PATCH(self) -> None:
        path, query = self._asked()
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["content-type"] != "application/apply-patch+yaml" or query.get("fieldManager") != "hetplan":
            self._refuse(415, "UnsupportedMediaType")
            return
        resource, name = path.split("/")[-2:]
        with self.state.lock:
            self._answer(self.state.apply(resource, name, sent, dry_run=query.get("dryRun") == "All"))

    def do_POST(self) -> None:
        path, _ = self._asked()
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        resource, name = path.split("/")[-1], sent["metadata"]["name"]
        with self.state.lock:
            if (resource, name) in self.state.objects:
                self._refuse(409, "AlreadyExists")
            else:
                self._answer(self.state.apply(resource, name, sent, dry_run=False), 201)

    def do_PUT(self) -> None:
        path, _ = self._asked()
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        resource, name = path.split("/")[-2:]
        with self.state.lock:
            old = self.state.objects.get((resource, name))
            if old is None or old["metadata"]["resourceVersion"] != sent["metadata"].get("resourceVersion"):
                self._refuse(409, "Conflict")
            else:
                self._answer(self.state.apply(resource, name, sent, dry_run=False))

    def do_DELETE(self) -> None:
        path, _ = self._asked()
        if length := int(self.headers.get("content-length") or 0):
            self.rfile.read(length)
        resource, name = path.split("/")[-2:]
        with self.state.lock:
            if self.state.objects.pop((resource, name), None) is None:
                self._refuse(404, "NotFound")
            else:
                self._answer({"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def _asked(self) -> tuple[str, dict[str, str]]:
        self.state.requests.append((self.command, self.path))
        parts = urlsplit(self.path)
        return unquote(parts.path), {name: values[0] for name, values in parse_qs(parts.query).items()}

    def _objects(self, place: list[str], query: dict[str, str]) -> None:
        with self.state.lock:
            found = self.state.listed(place[0])
        if len(place) == 2:
            named = [one for one in found if one["metadata"]["name"] == place[1]]
            self._answer(named[0]) if named else self._refuse(404, "NotFound")
            return
        for selector, read in (("labelSelector", _label), ("fieldSelector", _field)):
            for term in filter(None, query.get(selector, "").split(",")):
                name, _, wanted = term.partition("=")
                found = [one for one in found if read(one, name) == wanted]
        if query.get("watch"):
            # Nothing changes by itself: the stream stays silent until the client has seen enough.
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("connection", "close")
            self.end_headers()
            time.sleep(0.2)
            self.close_connection = True
            return
        version = "apps/v1" if place[0] in ("deployments", "replicasets") else "v1"
        listed = {"apiVersion": version, "kind": f"{KINDS[place[0]]}List", "metadata": {"resourceVersion": "1"}}
        self._answer({**listed, "items": found})

    def _answer(self, content: Json | bytes, status: int = 200, *, kind: str = "application/json") -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, reason: str) -> None:
        said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status}
        self._answer({**said, "message": f"{self.path}: {reason}"}, status)

    def log_message(self, *_: Any) -> None:
        pass


def _label(one: Json, name: str) -> str | None:
    found: str | None = one["metadata"].get("labels", {}).get(name)
    return found


def _field(one: Json, name: str) -> str | None:
    found: str | None = one["metadata"].get(name.removeprefix("metadata."))
    return found


def _resources(version: str, *names: str) -> Json:
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    resources = [
        {"name": name, "singularName": KINDS[name].lower(), "namespaced": True, "kind": KINDS[name], "verbs": verbs}
        for name in names
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


_GROUPS = [
    {"name": name, "versions": [{"groupVersion": f"{name}/v1", "version": "v1"}]}
    for name in ("apps", "autoscaling", "policy", "coordination.k8s.io")
]
_DISCOVERY: dict[str, Json] = {
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [{**one, "preferredVersion": one["versions"][0]} for one in _GROUPS],
    },
    "/api/v1": _resources("v1", "configmaps", "services", "pods"),
    "/apis/apps/v1": _resources("apps/v1", "deployments", "replicasets"),
    "/apis/policy/v1": _resources("policy/v1", "poddisruptionbudgets"),
    "/apis/coordination.k8s.io/v1": _resources("coordination.k8s.io/v1", "leases"),
    "/apis/autoscaling/v1": _resources("autoscaling/v1", "horizontalpodautoscalers"),
}
