"""A plan as a folder for `kubectl apply -k`: valid objects, planned bounds, and a schedule through the day."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cases.exported import METHOD, a_day, commands_of, hosts, objects, of_kind, one_period

import hetplan as hp
from hetplan.errors import InputError
from hetplan.executor.hosts_file import read_hosts
from hetplan.executor.kubernetes.exports import Scaling, export_folder
from hetplan.executor.wanted import wanted
from hetplan.profiles.plan import InputHashes, Plan, Valid
from hetplan.profiles.plan_dispatch_further import LeastWorkDispatch
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_periods import machines_of
from hetplan.profiles.plan_sections import Route
from hetplan.profiles.workers import Load, Serve, Worker


@pytest.mark.slow
def test_autoscalers_have_the_planned_bounds_and_the_rate_per_pod() -> None:
    hpa = of_kind(objects(one_period(), "hpa"), "HorizontalPodAutoscaler")["prod-w1"]
    assert (hpa["minReplicas"], hpa["maxReplicas"]) == (3, 9)
    metric = hpa["metrics"][0]["external"]
    assert metric["target"] == {"type": "AverageValue", "averageValue": "20000m"}, "60 queries/s by 3 pods"
    assert metric["metric"]["selector"]["matchLabels"] == {"app": "rank"}
    found = objects(one_period(), "keda")
    keda = of_kind(found, "ScaledObject")["prod-w1"]
    assert (keda["minReplicaCount"], keda["maxReplicaCount"]) == (3, 9)
    (trigger,) = keda["triggers"]
    assert trigger["metadata"]["threshold"] == "20"
    assert trigger["metadata"]["query"] == 'sum(rate(hetplan_queries_arrived_total{app="rank"}[1m]))'
    assert "replicas" not in of_kind(found, "Deployment")["prod-w1"], "applying again does not undo it"
    assert of_kind(objects(one_period(), "none"), "Deployment")["prod-w1"]["replicas"] == 3


@pytest.mark.slow
def test_a_schedule_grows_ahead_of_the_hour_turns_the_routes_and_shrinks() -> None:
    found = objects(a_day(), "none")
    deployments = of_kind(found, "Deployment")
    assert sorted(one["replicas"] for name, one in deployments.items() if "router" not in name) == [0, 2]
    jobs = of_kind(found, "CronJob")
    assert {name: job["schedule"] for name, job in jobs.items()} == {
        "prod-p1-ahead": "50 6 * * *", "prod-p1-turn": "0 7 * * *", "prod-p2-turn": "0 22 * * *",
    }  # fmt: skip
    words = {name: commands_of(job) for name, job in jobs.items()}
    assert all(one[0] == "kubectl" for listed in words.values() for one in listed), "its image has no shell"
    assert sorted(one[2] for one in words["prod-p1-ahead"]) == ["--replicas=1", "--replicas=4"]
    assert words["prod-p1-turn"][0][:3] == ["kubectl", "apply", "--server-side"], "the routes, once the pods are there"
    assert [one[2] for one in words["prod-p2-turn"][2:]] == ["--replicas=2", "--replicas=0"], "then fewer pods"
    routes = {
        one["metadata"]["name"]: json.loads(json.loads(one["data"]["routes.json"])["data"]["config.json"])["routes"]
        for one in found
        if one["kind"] == "ConfigMap" and "routes.json" in one["data"]
    }
    assert sorted(len(table["units"]) for table in routes.values()) == [2, 5]
    services = {f"{one['metadata']['name']}.serving.svc" for one in found if one["kind"] == "Service"}
    assert {unit["address"] for table in routes.values() for unit in table["units"]} < services


@pytest.mark.slow
def test_keda_and_bounds_follow_the_day_too() -> None:
    keda = of_kind(objects(a_day(), "keda"), "ScaledObject")
    crons = [one["metadata"] for scaled in keda.values() for one in scaled["triggers"] if one["type"] == "cron"]
    assert {"timezone": "Etc/UTC", "start": "50 6 * * *", "end": "0 22 * * *", "desiredReplicas": "1"} in crons
    jobs = of_kind(objects(a_day(), "hpa"), "CronJob")
    assert '{"spec": {"minReplicas": 4}}' in [one[-1] for one in commands_of(jobs["prod-p1-turn"])]


@pytest.mark.parametrize(
    ("plan", "how", "said"),
    [
        (one_period(), {"version": "1.20"}, "1.25 and newer"),
        (one_period(), {"version": "1.99"}, "no schemas of this version"),
        (one_period(), {"version": "new"}, "--set"),
        (one_period(None), {"version": "1.32", "scaling": "hpa"}, "up to which rate"),
        (a_day(90000.0), {"version": "1.32"}, "by the day or by the week"),
    ],
)
def test_what_cannot_be_exported_is_refused(plan: Plan, how: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        export_folder(plan, hosts(), **how)


def test_a_server_that_makes_text_has_its_gpus_its_numbers_and_is_ready_once_it_has_loaded(tmp_path: Path) -> None:
    """Two instances of two GPUs each on a machine; the worker listens, and so is ready, once both answer `ready`."""
    engine = {"pieces": [{"base_ms": 10.0, "token_ms": 0.1}], "kv_tokens": 4000, "tensor": 2}
    profile = {
        "format": "hetplan/profile/1.2", "hardware": {"t4": {"kind": "gpu", "provides": {"gpu": 4}}},
        "tasks": {"chat": {}}, "engines": {"e": engine},
        "variants": {"m": {"task": "chat", "runs": [{"hardware": "t4", "engine": "e"}]}},
    }  # fmt: skip
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    load = Load(id="w.a", app="talk", variant="m", instances=2, serve=Serve(most_tokens=512, most_seqs=8))
    rule = LeastWorkDispatch(output_tokens=20.0, ttft_ms=500.0)
    inputs = InputHashes(profile="sha256:01", slo="sha256:02")
    plan = with_digest(Plan(
        question="llm", method=METHOD, inputs=inputs, dispatch={"talk": rule},
        workers=(Worker(id="w", hardware="t4", count=3, queue="per-load", loads=(load,)),),
        routing={"talk": (Route(to={"w.a": 1.0}),)}, valid=Valid(rate_qps={"talk": (0.0, 9.0)}),
    ))  # fmt: skip
    words = ["vllm", "serve", "org/{variant}", "--port", "{port}", "--max-num-batched-tokens", "{most_tokens}"]
    where = read_hosts({
        **hosts(gpus=None).model_dump(mode="json", exclude={"models", "watch"}),
        "profiles": [str(tmp_path / "profile.json")],
        "models": [{"kind": "openai", "command": words, "ready": "/health"}],
    })  # fmt: skip
    made = export_folder(plan, where, version="1.32", scaling="hpa")
    found = [json.loads(text) for text in made.files["objects.yaml"].split("---\n")[1:]]
    pod = of_kind(found, "Deployment")["prod-w"]["template"]["spec"]["containers"][0]
    assert pod["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert pod["readinessProbe"]["httpGet"]["path"] == "/healthz"
    assert pod["startupProbe"]["failureThreshold"] * pod["startupProbe"]["periodSeconds"] >= where.limits.start_s
    config = next(
        text for one in found if one["kind"] == "ConfigMap" for text in one["data"].values() if "vllm" in text
    )
    (said,) = json.loads(config)["unit"]["loads"]
    assert said["model"]["ready"] == "/health"
    assert said["model"]["command"][2:] == ["org/m", "--port", "{port}", "--max-num-batched-tokens", "512"]
    assert of_kind(found, "HorizontalPodAutoscaler")["prod-w"]["minReplicas"] == 3
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"} in pod["env"]


@pytest.mark.slow
def test_engines_of_two_applications_on_one_machine_are_a_pod_with_the_gpus_of_both(tmp_path: Path) -> None:
    """As a fleet plans it: a load is an engine, one of four GPUs and one of two, on a node of eight."""
    engine = {"pieces": [{"base_ms": 8.0, "token_ms": 0.05}], "kv_tokens": 100_000, "most_seqs": 64}
    profile = {
        "format": "hetplan/profile/1.3",
        "hardware": {"t4": {"kind": "gpu", "provides": {"gpu": 8}}},
        "offers": {"t4": {"hardware": "t4", "zone": "a", "price_per_hour": "1"}},
        "tasks": {"chat": {}, "code": {}},
        "engines": {"chat": {**engine, "tensor": 4}, "code": {**engine, "tensor": 2}},
        "variants": {
            name: {"task": name, "runs": [{"hardware": "t4", "engine": name}]} for name in ("chat", "code")
        },
    }  # fmt: skip
    mix = {"axes": ["input_tokens", "output_tokens"], "bins": [[200, 50]], "share": [1]}
    slo = {
        "format": "hetplan/slo/1.2",
        "horizon": {"period_s": 3600, "periods": 1},
        "apps": {
            name: {
                "question": "llm", "runs": {"variants": [name]}, "demand": {"rate_qps": rate, "mix": mix},
                "latency": [{"of": "ttft", "percentile": 95, "max_ms": 1500}],
            }
            for name, rate in (("chat", 30.0), ("code", 2.0))
        },
    }  # fmt: skip
    plan = hp.solve(profile, slo, question="fleet", options={"size": "planned"}).require()
    (worker,) = next(iter((plan.parts or {}).values())).workers
    assert sorted(load.variant or "" for load in worker.loads) == ["chat", "code", "code"]  # a free place is filled
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    words = ["vllm", "serve", "org/{variant}", "--port", "{port}", "--tensor-parallel-size", "{tensor}"]
    where = read_hosts({
        **hosts(gpus=None).model_dump(mode="json", exclude={"models", "watch"}),
        "profiles": [str(tmp_path / "profile.json")],
        "models": [{"kind": "openai", "command": words, "ready": "/health"}],
    })  # fmt: skip
    found = [
        json.loads(text) for text in export_folder(plan, where, version="1.32").files["objects.yaml"].split("---\n")[1:]
    ]
    (pod,) = [
        one["spec"]["template"]["spec"]["containers"][0]
        for one in found
        if one["kind"] == "Deployment" and "vllm" not in one["metadata"]["name"] and "t4" in one["metadata"]["name"]
    ]
    assert pod["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3,4,5,6,7"} in pod["env"]
    config = next(
        text for one in found if one["kind"] == "ConfigMap" for text in one["data"].values() if "vllm" in text
    )
    loads = json.loads(config)["unit"]["loads"]
    assert sorted((one["app"], one["model"]["command"][-1], one["instances"]) for one in loads) == [
        ("chat", "4", 1), ("code", "2", 1), ("code", "2", 1),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("stated", [{}, {"gpu": 4}])
def test_a_pool_and_text_on_one_machine_are_one_pod_with_the_gpus_of_both(tmp_path: Path, stated: Any) -> None:
    """A worker of two parts: one Deployment, one load of each, and the engine has the last GPUs for itself."""
    engine = {"pieces": [{"base_ms": 8.0, "token_ms": 0.05}], "kv_tokens": 100_000, "most_seqs": 64, "tensor": 1}
    limit = [{"percentile": 95, "max_ms": 100}]
    profile = {
        "format": "hetplan/profile/1.3",
        "hardware": {"t4": {"kind": "gpu", "provides": {"gpu": 2}}},
        "offers": {"t4": {"hardware": "t4", "zone": "a", "price_per_hour": "1"}},
        "tasks": {"chat": {}, "see": {}},
        "engines": {"chat": engine},
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1]}, "mean": [20.0]}},
        "variants": {
            "chat": {"task": "chat", "runs": [{"hardware": "t4", "engine": "chat"}]},
            "see": {"task": "see", "runs": [{"hardware": "t4", "latency": "t", "needs": {"gpu": 1}}]},
        },
    }  # fmt: skip
    lengths = {"axes": ["input_tokens", "output_tokens"], "bins": [[200, 50]], "share": [1]}
    sizes = {"axes": ["batch"], "bins": [[1]], "share": [1]}
    slo = {
        "format": "hetplan/slo/1.2",
        "horizon": {"period_s": 43200, "periods": 2},
        "apps": {
            "chat": {"question": "llm", "runs": {"variants": ["chat"]}, "demand": {"series": [1, 2], "mix": lengths},
                     "latency": [{"of": "ttft", "percentile": 95, "max_ms": 1500}]},
            "see": {"question": "pool", "runs": {"variants": ["see"]}, "demand": {"series": [9, 90], "mix": sizes},
                    "latency": limit},
        },
    }  # fmt: skip
    plan = hp.solve(profile, slo, question="fleet", options={"size": "planned"}).require()
    assert [len(period.parts or ()) for period in plan.periods] == [2, 2]
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    words = ["vllm", "serve", "org/{variant}", "--port", "{port}"]
    data = hosts().model_dump(mode="json", exclude={"models", "watch"})
    data["targets"]["cluster"]["settings"]["hardware"] = {"t4": {"node_selector": {"card": "t4"}, **stated}}
    where = read_hosts({
        **data, "profiles": [str(tmp_path / "profile.json")],
        "models": [{"kind": "openai", "variant": "chat", "command": words, "ready": "/health"},
                   {"kind": "command", "variant": "see", "command": ["see"]}],
    })  # fmt: skip
    asked = [wanted(plan, where, period=one.id) for one in plan.periods]
    for one in asked:
        assert len({(unit.worker, unit.index) for unit in one.units.values()}) == len(one.units)
        assert len(one.units) == machines_of(plan, one.workers[0].period)["t4"]
    folder = export_folder(plan, where, version="1.32", scaling="none")
    found = [json.loads(one) for one in folder.files["objects.yaml"].split("---\n")[1:]]
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(set(names)) == len(names)
    mixed = {
        one["metadata"]["name"]: json.loads(text)["unit"]
        for one in found
        if one["kind"] == "ConfigMap"
        for text in one["data"].values()
        if "vllm" in text and "unit" in json.loads(text)
    }
    (loads,) = {tuple(sorted(load["app"] for load in unit["loads"])) for unit in mixed.values()}
    assert loads == ("chat", "see")
    (pod,) = [
        one["spec"]["template"]["spec"]["containers"][0]
        for one in found
        if one["kind"] == "Deployment" and "chat1" in one["metadata"]["name"]
    ]
    count = stated.get("gpu", 2)
    assert pod["resources"]["limits"]["nvidia.com/gpu"] == str(count)
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": ",".join(map(str, range(count)))} in pod["env"]


FOLDER = Path(os.environ.get("HETPLAN_KUBERNETES", "/nowhere"))
OF_CRON = {"batch/v1": ("CronJob",)}
"""Kinds that a server of 1.20 has not in a version that it has."""


@pytest.mark.slow
@pytest.mark.skipif(not (FOLDER / "kubeconfig").exists(), reason="no API server: HETPLAN_KUBERNETES names its folder")
@pytest.mark.parametrize("scaling", ["none", "hpa", "keda"])
def test_a_real_server_takes_them(scaling: Scaling, tmp_path: Path) -> None:
    """All of the kinds that it has: KEDA is no part of Kubernetes, and 1.20 lacks some that 1.25 has."""

    def ask(*words: str) -> str:
        command = [str(FOLDER / "bin" / "kubectl"), "--kubeconfig", str(FOLDER / "kubeconfig"), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    known = set(ask("api-versions").split())
    lacks = {} if "policy/v1" in known else OF_CRON
    found = [
        {**one, "metadata": {**one["metadata"], "namespace": "default"}}
        for one in objects(a_day(), scaling)
        if one["apiVersion"] in known and one["kind"] not in lacks.get(one["apiVersion"], ())
    ]
    assert {"Deployment", "ConfigMap", "Service"} <= {one["kind"] for one in found}
    (tmp_path / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    said = ask("apply", "--server-side", "--dry-run=server", f"--filename={tmp_path / 'objects.json'}")
    assert said.count("serverside-applied") == len(found), said
