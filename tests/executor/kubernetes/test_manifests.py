"""What the manifests say, and that Kubernetes' own schemas take them, for a plan of every question."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetplan.errors import InputError
from hetplan.executor.hosts_file import HostsFile, Security, read_hosts
from hetplan.executor.kubernetes.groups import LEAVING, Group, grouped
from hetplan.executor.kubernetes.manifests import Manifests
from hetplan.executor.kubernetes.settings import KubernetesSettings
from hetplan.executor.render.names import label_value, marked_name
from hetplan.executor.units import LoadSpec, Unit, named
from hetplan.profiles.read_plan import read_plan

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from cases.deployed import manifests
from cases.plans import CASES

VERSION = "1.32"
SETTINGS = {"image": "registry.example/hetplan:1", "run_as_user": 1000, "gpu_slices": 100}


def hosts_for(hardware: list[str], plays: list[str] = [], **host: Any) -> HostsFile:  # noqa: B006
    known = {"hardware": {name: {"gpu": 0, "node_selector": {"machine": name}} for name in hardware}}
    return read_hosts(
        {
            "name": "prod",
            "targets": {"cluster": {"kind": "kubernetes", "settings": SETTINGS | known}},
            "hosts": {"pool": {"machines": 999, "target": "cluster", "hardware": hardware, "plays": plays, **host}},
            "models": [{"kind": "sleep", "ms": 5.0}],
        }
    )


def maker(hosts: HostsFile, **how: Any) -> Manifests:
    return Manifests(hosts, KubernetesSettings(image="registry.example/hetplan:1", **how))


def unit(index: int = 0, **how: Any) -> Unit:
    return named(Unit("", how.pop("worker", "w1"), index, "t4", "cluster", "pool", **how))


def group(count: int = 3, **how: Any) -> Group:
    return next(iter(grouped(unit(index, **how) for index in range(count)).values()))


def policy() -> dict[str, Any]:
    """Two workers that hold two models behind one queue, and look up which to use."""
    table = {
        **{"workers": "w1", "slo_ms": 150, "rate_qps": 50, "queue_max": 2, "slack_ms": [0, 75], "models": ["a", "b"]},
        **{"choice": {"1": "ax1 bx1", "2": "ax2"}, "batch": {"1": "1x2", "2": "2x2"}},
        "otherwise": {"model": "a", "batch": "max"},
    }
    loads = [{"id": f"w1.{name}", "app": "images", "variant": name, "serve": {"max_batch": 2}} for name in ("a", "b")]
    plan = {
        **{"format": "hetplan/plan/1.0", "requires": ["queue-slack/1"], "question": "policy"},
        **{"method": {"formulation": "by hand"}, "inputs": {"profile": "sha256:01", "slo": "sha256:02"}},
        "workers": [{"id": "w1", "hardware": "g", "count": 2, "loads": loads}],
        "dispatch": {"images": {"rule": "queue-slack/1"}},
        "policies": {"images": [table]},
    }
    return {"plan": plan}


EVERY_QUESTION = {**CASES, "policy": policy}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("case", sorted(EVERY_QUESTION))
def test_the_manifests_of_every_question_are_valid(case: str) -> None:
    documents = EVERY_QUESTION[case]()
    plan = read_plan(documents["plan"], trust_digest=True)
    hardware = sorted({worker.hardware for worker in plan.workers})
    hosts = hosts_for(
        hardware, plays=sorted({worker.host for worker in plan.workers if worker.host}), labels={"pool": "serving"}
    )
    whole = manifests(plan, hosts)
    for one in whole:
        kubernetes_validate.validate(one, VERSION, strict=True)
    names = [(one["kind"], one["metadata"]["name"]) for one in whole]
    assert len(names) == len(set(names))
    config = next(one for one in whole if "routes" in str(one.get("data")))
    routes = json.loads(config["data"]["config.json"])["routes"]
    central = any("shares" not in app["dispatch"]["rule"] for app in routes["apps"].values() if case != "policy")
    routers = 1 if central else 2
    replicas = [one["spec"]["replicas"] for one in whole if one["kind"] == "Deployment"]
    now = [worker for worker in plan.workers if worker.period == plan.periods[0].id]
    assert sum(replicas) == sum(worker.count + worker.standby for worker in now) + routers, "and the router"
    services = {f"{name}.default.svc" for kind, name in names if kind == "Service"}
    assert {unit["address"] for unit in routes["units"]} < services


def test_a_group_becomes_one_deployment_with_its_config_and_its_name() -> None:
    config, service, budget, deployment = made = maker(hosts_for(["t4"])).group(group(3))
    assert [one["kind"] for one in made] == ["ConfigMap", "Service", "PodDisruptionBudget", "Deployment"]
    assert budget["spec"]["maxUnavailable"] == 1
    assert deployment["spec"]["replicas"] == 3
    assert service["spec"]["clusterIP"] == "None"
    marks = deployment["spec"]["template"]["metadata"]["labels"]
    choosers = [one["spec"]["selector"]["matchLabels"] for one in (budget, deployment)]
    for chooser in (service["spec"]["selector"], *choosers):
        assert chooser.items() <= marks.items()
        assert len(chooser) == 3
    volume = deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["name"]
    assert volume == config["metadata"]["name"]
    assert config["immutable"] is True
    assert Unit.from_dict(json.loads(config["data"]["config.json"])["unit"]) == unit(0)


def test_pods_have_probes_a_grace_period_and_no_privileges() -> None:
    hosts = hosts_for(["t4"])
    pod = maker(hosts).group(group())[-1]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "http"}
    startup = container["startupProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] >= hosts.limits.start_s
    assert pod["terminationGracePeriodSeconds"] > hosts.limits.drain_s
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["runAsUser"]) == (True, 1000)
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}, "also where nobody says what it needs"
    assert [one["topologyKey"] for one in pod["topologySpreadConstraints"]] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    script = container["lifecycle"]["preStop"]["exec"]["command"][-1]
    assert "sleep(8)" in script
    assert LEAVING in script
    root = maker(hosts, run_as_user=0).group(group())[-1]["spec"]["template"]["spec"]["securityContext"]
    assert "runAsNonRoot" not in root
    assert pod["automountServiceAccountToken"] is False


def test_the_router_gets_its_amounts_its_replicas_and_keeps_others_from_the_workers() -> None:
    def made(rule: str, **how: Any) -> dict[str, Any]:
        routes = {"apps": {"a": {"dispatch": {"rule": rule}}}, "units": []}
        return {one["kind"]: one for one in maker(hosts_for(["t4"]), **how).router(routes)}

    shares = made("shares/1", service_monitor=True, network_allow=({"namespaceSelector": {}},))
    for kind, one in shares.items():
        if kind != "ServiceMonitor":
            kubernetes_validate.validate(one, VERSION, strict=True)
    assert shares["Deployment"]["spec"]["replicas"] == 2
    assert shares["Deployment"]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    workers = shares["NetworkPolicy"]["spec"]
    assert workers["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"
    sources = workers["ingress"][0]["from"]
    assert sources[0]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "router"
    assert sources[1] == {"namespaceSelector": {}}
    assert sources[2]["podSelector"]["matchLabels"]["app.kubernetes.io/name"] == "prometheus"
    assert len(made("shares/1")["NetworkPolicy"]["spec"]["ingress"][0]["from"]) == 1, "nobody is to read metrics"
    assert shares["ServiceMonitor"]["spec"]["endpoints"] == [{"port": "http", "path": "/metrics"}]
    assert "immutable" not in shares["ConfigMap"], "its routes change under the same name"
    assert made("fcfs/1")["Deployment"]["spec"]["replicas"] == 1, "two would keep two queues"
    assert made("fcfs/1", routers=3)["Deployment"]["spec"]["replicas"] == 3
    assert "NetworkPolicy" not in made("shares/1", network_policy=False)


def test_the_token_comes_to_the_pods_as_a_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    hosts = hosts_for(["t4"])
    guarded = hosts.model_copy(update={"security": Security(token_file=str(tmp_path / "token"))})
    made = maker(guarded, service_monitor=True)
    assert made.secret is not None
    kubernetes_validate.validate(made.secret, VERSION, strict=True)
    assert list(made.secret["data"]) == ["token"]
    routes = {"apps": {}, "units": []}
    for deployment in (made.group(group())[-1], made.router(routes)[-1]):
        kubernetes_validate.validate(deployment, VERSION, strict=True)
        pod = deployment["spec"]["template"]["spec"]
        assert pod["volumes"][-1]["secret"]["secretName"] == made.secret["metadata"]["name"]
        env = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
        assert env == {"HETPLAN_TOKEN_FILE": "/etc/hetplan-keys/token"}
        assert "0123456789abcdef" not in json.dumps(deployment)
    monitor = next(one for one in made.router(routes) if one["kind"] == "ServiceMonitor")["spec"]["endpoints"][0]
    assert monitor["authorization"]["credentials"]["key"] == "token"
    (tmp_path / "token").write_text("another-token-of-16")
    other = maker(guarded).group(group())[-1]["spec"]["template"]["metadata"]["annotations"]
    mine = made.group(group())[-1]["spec"]["template"]["metadata"]["annotations"]
    assert other != mine, "a new token rolls the pods"
    assert maker(hosts).secret is None


def test_a_change_surges_unless_there_is_no_room() -> None:
    def room(surge: bool) -> dict[str, int]:
        return maker(hosts_for(["t4"]), surge=surge).group(group())[-1]["spec"]["strategy"]["rollingUpdate"]

    assert room(True) == {"maxSurge": 1, "maxUnavailable": 0}
    assert room(False) == {"maxSurge": 0, "maxUnavailable": 1}


def test_what_a_worker_gets_comes_from_its_shares_or_its_hardware() -> None:
    made = maker(hosts_for(["t4"]), gpu_slices=4, hardware={"t4": {"cpu_cores": 3.5, "mem_gib": 14, "gpu": 1}})
    assert made.resources(group()) == {"cpu": "3500m", "memory": "14336Mi", "nvidia.com/gpu": "4"}
    shared = (LoadSpec("a", share_gpu=0.25, share_cpu_cores=1.5), LoadSpec("b", share_gpu=0.25, instances=2))
    assert made.resources(group(loads=shared)) == {"cpu": "1500m", "memory": "14336Mi", "nvidia.com/gpu": "3"}
    container = made.group(group(loads=shared))[-1]["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == container["resources"]["requests"]


def test_a_worker_with_a_part_of_a_gpu_asks_for_a_whole_one_rather_than_for_none() -> None:
    loads = (LoadSpec("a", share_gpu=0.4),)
    made = maker(hosts_for(["t4"], enforcement="none"))
    assert made.resources(group(loads=loads))["nvidia.com/gpu"] == "1"


def test_engines_that_make_text_have_the_gpus_of_each_instance() -> None:
    engine = LoadSpec("w1.a", variant="m", instances=2, model={"kind": "openai", "gpus": 4})
    assert maker(hosts_for(["t4"])).resources(group(loads=(engine,)))["nvidia.com/gpu"] == "8"
    stated = maker(hosts_for(["t4"]), hardware={"t4": {"gpu": 2}})
    assert stated.resources(group(loads=(engine,)))["nvidia.com/gpu"] == "2"


def test_a_share_that_the_device_plugin_does_not_give_is_named() -> None:
    uneven = group(loads=(LoadSpec("a", share_gpu=0.3),))
    said = maker(hosts_for(["t4"]), gpu_slices=4).unenforced(uneven)
    assert len(said) == 1
    assert "a wants 0.3 of a GPU" in said[0]
    assert maker(hosts_for(["t4"], enforcement="none"), gpu_slices=4).unenforced(uneven) == []


def test_nodes_are_chosen_by_labels_and_hardware_settings() -> None:
    hosts = hosts_for(["t4"], labels={"zone": "a"}, environment={"OMP_NUM_THREADS": "2"})
    hardware = {"t4": {"node_selector": {"accelerator": "t4"}, "image": "other:2", "tolerations": [{"key": "gpu"}]}}
    pod = maker(hosts, hardware=hardware, image_pull_secrets=("pull",)).group(group())[-1]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"zone": "a", "accelerator": "t4"}
    assert pod["tolerations"] == [{"key": "gpu"}]
    assert pod["containers"][0]["image"] == "other:2"
    assert {"name": "OMP_NUM_THREADS", "value": "2"} in pod["containers"][0]["env"]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]


def test_nothing_of_a_plan_is_in_a_command() -> None:
    hostile = group(loads=(LoadSpec("a.b", variant="x-rm.-rf", knobs={"size": "$(reboot); `id`"}),), worker="w-1_.x")
    for one in maker(hosts_for(["t4"])).group(hostile):
        if one["kind"] == "Deployment":
            container = one["spec"]["template"]["spec"]["containers"][0]
            assert container["command"] == [
                *("python", "-m", "hetplan.executor.kubernetes.pod", "worker"),
                *("--config", "/etc/hetplan/config.json", "--port", "8080"),
            ]
            assert "reboot" not in json.dumps(one)


def test_a_new_content_has_a_new_config_and_the_same_service() -> None:
    made = maker(hosts_for(["t4"]))
    one, other = (made.group(group(loads=(LoadSpec("a", max_batch=size),))) for size in (1, 2))
    assert one[0]["metadata"]["name"] != other[0]["metadata"]["name"]
    assert one[1] == other[1]
    assert one[2]["metadata"]["name"] == other[2]["metadata"]["name"]


def test_standby_workers_are_replicas_of_the_same_deployment() -> None:
    both = grouped([unit(0), unit(1), unit(2, standby=True)])
    assert [(one.indices, one.standby, one.replicas) for one in both.values()] == [((0, 1), (2,), 3)]
    assert set(next(iter(both.values())).units) == {unit(index).name for index in range(3)}


def test_units_are_found_again_as_they_were() -> None:
    units = {one.name: one for one in (unit(0), unit(1), unit(5, standby=True))}
    assert next(iter(grouped(units.values()).values())).units == units


def test_groups_shrink_and_grow() -> None:
    three = group(3)
    two = three.without([unit(1).name])
    assert two.indices == (0, 2)
    assert two.with_units([unit(4)]).indices == (0, 2, 4)
    changed = three.with_units([unit(0, loads=(LoadSpec("a"),))])
    assert [one.loads for one in changed.units.values()] == [(LoadSpec("a"),)] * 3


def test_one_deployment_cannot_hold_two_contents() -> None:
    with pytest.raises(InputError, match="different loads"):
        grouped([unit(0), unit(1, loads=(LoadSpec("a"),))])


def test_more_than_a_config_map_holds_is_refused_by_its_size() -> None:
    large = group(loads=(LoadSpec("a", knobs={"table": "x" * 1_100_000}),))
    with pytest.raises(InputError, match=r"11\d+ bytes.*more than a ConfigMap holds"):
        maker(hosts_for(["t4"])).group(large)


IDS = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)


@pytest.mark.slow
@settings(max_examples=200)
@given(first=IDS, second=IDS, other=IDS)
def test_names_are_labels_and_different_for_different_ids(first: str, second: str, other: str) -> None:
    name = marked_name(first, second)
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])", name)
    if second != other:
        assert name != marked_name(first, other)
    assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", label_value(first))


def test_names_tell_apart_where_an_id_ends() -> None:
    assert marked_name("a-b", "c") != marked_name("a", "b-c")
    assert marked_name("w_1") != marked_name("w-1")
