"""Plans as they are exported for Kubernetes, and what tests ask of the objects."""

from __future__ import annotations

import json
from typing import Any

from hetplan.executor.hosts_file import HostsFile, read_hosts
from hetplan.executor.kubernetes.exports import Scaling, export_folder
from hetplan.profiles.plan import Action, InputHashes, Method, Period, Plan, Valid
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_parts import Part
from hetplan.profiles.plan_sections import Route, SharesDispatch
from hetplan.profiles.workers import Load, Worker

METHOD = Method(formulation="by hand")


def hosts(namespace: str = "serving", gpus: float | None = 1) -> HostsFile:
    settings = {"image": "registry.example/hetplan:1", "namespace": namespace}
    settings |= {"hardware": {"t4": {"gpu": gpus, "node_selector": {"card": "t4"}}}}
    return read_hosts(
        {
            "name": "prod",
            "targets": {"cluster": {"kind": "kubernetes", "settings": settings}},
            "hosts": {"pool": {"target": "cluster", "hardware": "t4", "machines": 9}},
            "models": [{"kind": "sleep", "ms": 2.0}],
            "watch": {"prometheus": "http://prometheus:9090"},
        }
    )


def serving(counts: dict[str, int], rate: float) -> dict[str, Any]:
    """Workers (id -> count) that share the queries of one application."""
    total = sum(counts.values())
    return {
        "workers": tuple(
            Worker(id=name, hardware="t4", count=count, loads=(Load(id=f"{name}.a", app="rank", variant="m"),))
            for name, count in counts.items()
        ),
        "routing": {"rank": (Route(to={f"{name}.a": count / total for name, count in counts.items()}),)},
        "dispatch": {"rank": SharesDispatch(rule="shares/1")},
        "valid": Valid(rate_qps={"rank": (0.0, rate)}),
    }


def one_period(rate: float | None = 60.0) -> Plan:
    made = serving({"w1": 3}, rate or 1.0)
    made |= {"valid": Valid()} if rate is None else {}
    inputs = InputHashes(profile="sha256:01", slo="sha256:02")
    return with_digest(Plan(question="variants", method=METHOD, inputs=inputs, **made))


def a_day(end_s: float = 86400.0) -> Plan:
    """Two workers at night; by day a second group beside four of the first, started ten minutes ahead."""
    parts = {
        "night": Part(question="variants", method=METHOD, rate_qps={"rank": 20}, **serving({"w1": 2}, 20)),
        "day": Part(question="variants", method=METHOD, rate_qps={"rank": 80}, **serving({"w1": 4, "w2": 1}, 80)),
    }
    ahead = (Action(id=1, do="start", worker="w2", count=1, ahead_s=600),)
    periods = (
        Period(id="p0", start_s=0, end_s=7 * 3600, parts=("night",)),
        Period(id="p1", start_s=7 * 3600, end_s=22 * 3600, parts=("day",), actions=ahead),
        Period(id="p2", start_s=22 * 3600, end_s=end_s, parts=("night",)),
    )
    inputs = InputHashes(profile="sha256:01", slo="sha256:02")
    return with_digest(Plan(question="fleet", method=METHOD, inputs=inputs, periods=periods, parts=parts))


def objects(plan: Plan, scaling: Scaling, namespace: str = "serving") -> list[dict[str, Any]]:
    made = export_folder(plan, hosts(namespace), version="1.32", scaling=scaling)
    assert json.loads(made.files["kustomization.yaml"])["resources"] == ["objects.yaml"]
    found = [json.loads(text) for text in made.files["objects.yaml"].split("---\n")[1:]]
    assert len(found) == made.objects
    return found


def of_kind(found: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Specifications by the beginning of the name."""
    return {one["metadata"]["name"].rpartition("-")[0]: one.get("spec") for one in found if one["kind"] == kind}


def commands_of(job: dict[str, Any]) -> list[list[str]]:
    """The commands of a CronJob, in the order in which they run."""
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    return [one["command"] for one in [*pod.get("initContainers", ()), *pod["containers"]]]
