"""What is rendered passes the platforms' own checks, says the plan's counts, and reads back as the plan's groups."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from build import EXAMPLES, example
from cases.rendered import GPUS, random_case, told
from face import read_objects, solved_example

from hetplan.errors import InputError
from hetplan.executor.render import TARGETS, read, render
from hetplan.executor.render.groups import Fleet, groups
from hetplan.executor.render.names import CannotRender
from hetplan.executor.render.router import routed
from hetplan.executor.render.rules import HETPLAN, choose
from hetplan.executor.site import Site, read_site
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan_dispatch_rules import WeightedLeastDispatch
from hetplan.profiles.plan_periods import of_period
from hetplan.profiles.read_plan import read_plan

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared"
CRDS, CHECKER = SHARED / "data" / "crds", SHARED / "tools" / "crd_check.py"
PLATFORMS = sorted(TARGETS)
OBJECTS = [target for target in PLATFORMS if target not in ("haproxy", "systemd", "compose", "skyserve")]
BUILT_IN = ("v1", "apps/v1", "policy/v1", "batch/v1")
SEEDS = [10, pytest.param(200, marks=pytest.mark.slow)]
LONG = [pytest.param(name, marks=pytest.mark.slow) if name in ("policy", "fleet") else name for name in EXAMPLES]


def case_of(target: str, seed: int, **how: Any) -> Any:
    """A random plan of what a target serves."""
    text = target in ("llm-d", "dynamo") or (target == "kserve" and bool(seed % 2))
    machines = {GPUS[seed % len(GPUS)]: 1 + seed % 2} if target == "dynamo" else None
    return random_case(seed, text=text, machines=machines, **how)


def files_of(target: str, seed: int, **how: Any) -> tuple[Fleet, Mapping[str, str]]:
    """A random plan's files; plans that the target has no words for are passed over."""
    plan, inputs, written = case_of(target, seed, **how)
    site = read_site(written)
    fleet = choose(target, plan, groups(plan, inputs, site)).fleet
    return fleet, render(target, fleet, site)


def rendered(target: str, seed: int, **how: Any) -> tuple[Fleet, Mapping[str, str]]:
    try:
        return files_of(target, seed, **how)
    except CannotRender as error:
        pytest.skip(f"this target has no words for it: {error}")


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("target", PLATFORMS)
def test_files_read_back_as_the_groups_that_they_were_made_of(target: str, seeds: int) -> None:
    said = 0
    for seed in range(seeds):
        try:
            fleet, files = files_of(target, seed)
        except CannotRender:
            continue
        said += 1
        wanted = told(fleet)
        for one in read(target, files):
            share = one.pop("share", None)
            group = next(group for group in fleet.groups if group.name == one["name"])
            assert share is None or abs(share - group.share[group.app]) <= 0.002
            assert one.items() <= wanted[one["name"]].items(), (seed, one)
            wanted.pop(one["name"])
        assert not wanted, seed
    assert said > seeds / 4


@pytest.mark.parametrize("target", PLATFORMS)
def test_the_same_plan_gives_the_same_bytes_and_names_of_a_closed_list(target: str) -> None:
    _, files = rendered(target, 1)
    assert files == rendered(target, 1)[1]
    assert all(text.startswith("# hetplan: shop, plan sha256:") for name, text in files.items() if ".env" not in name)
    assert all("\x00" not in name and ".." not in name and not name.startswith("/") for name in files)
    assert "hetplan" not in Counter(image.split("/")[0] for image in images(files))


@pytest.mark.quick_sample(7, 16)
@pytest.mark.parametrize("target", [*OBJECTS, "kubernetes with its router"])
@pytest.mark.parametrize("seed", range(4))
def test_no_pod_sleeps_for_longer_than_it_may_take_to_end_and_all_images_are_pulled(target: str, seed: int) -> None:
    plan, inputs, written = case_of(target, seed)
    models = {name: {**one, "stop_s": 0.5} for name, one in written["models"].items()}
    site = read_site(
        {
            **written,
            "models": models,
            "image_pull_secrets": ["ours"],
            "router": {"image": "ours/hetplan"},
            "security": {"open": True},
        }
    )
    fleet = groups(plan, inputs, site)
    try:
        if target in OBJECTS:
            files = render(target, choose(target, plan, fleet).fleet, site)
        else:
            fleet = choose("kubernetes", plan, fleet, HETPLAN).fleet
            files = render("kubernetes", routed(fleet, plan, inputs, site), site)
    except CannotRender as error:
        pytest.skip(f"this target has no words for it: {error}")
    pods = [pod for name, text in files.items() if name.endswith(".yaml") for pod in pods_in(read_objects(text))]
    for pod in pods:
        sleeps = [
            one["lifecycle"]["preStop"]["sleep"]["seconds"]
            for one in pod["containers"]
            if "preStop" in one.get("lifecycle", {})
        ]
        assert max(sleeps, default=0) <= pod.get("terminationGracePeriodSeconds", 30), pod
        if target.startswith("kubernetes"):
            assert sleeps
            assert pod["imagePullSecrets"] == [{"name": "ours"}]


def pods_in(made: Any) -> list[dict[str, Any]]:
    """All that has containers, wherever it stands."""
    if isinstance(made, list):
        return [pod for one in made for pod in pods_in(one)]
    if not isinstance(made, dict):
        return []
    return [made] if "containers" in made else pods_in(list(made.values()))


def images(files: Mapping[str, str]) -> list[str]:
    return [
        line.split(":", 1)[1].strip(' "') for text in files.values() for line in text.splitlines() if " image:" in line
    ]


@pytest.mark.quick_sample(6, 30)
@pytest.mark.parametrize("target", OBJECTS)
@pytest.mark.parametrize("seed", range(12))
def test_objects_pass_kubernetes_own_schemas(target: str, seed: int) -> None:
    _, files = rendered(target, seed)
    objects = [one for name, text in files.items() if name.endswith(".yaml") for one in read_objects(text)]
    for one in objects:
        if one["apiVersion"] in BUILT_IN:
            for version in ("1.31", "1.34"):
                kubernetes_validate.validate(one, version, strict=True)
    names = Counter((one["kind"], one["metadata"]["name"]) for one in objects)
    assert max(names.values()) == 1


@pytest.mark.skipif(not CHECKER.exists(), reason="no resource definitions of the platforms beside this project")
@pytest.mark.parametrize("target", OBJECTS)
def test_objects_pass_the_platforms_resource_definitions(target: str, tmp_path: Path) -> None:
    paths = []
    for seed, periods in ((0, False), (1, False), (2, True), (3, False)):
        plan, inputs, written = case_of(target, seed, periods=periods)
        site = read_site(written)
        settings = {"nodes": "karpenter", "quota": "kueue"} if target == "kubernetes" else {}
        try:
            files = render(target, choose(target, plan, groups(plan, inputs, site)).fleet, site, **settings)
        except InputError:
            continue
        for name, text in files.items():
            if name.endswith(".yaml") and "values" not in name:
                paths.append(tmp_path / f"{seed}-{name}")
                paths[-1].write_text(text)
    assert paths
    ran = subprocess.run([sys.executable, CHECKER, CRDS, *paths], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="HAProxy is not installed")
@pytest.mark.parametrize("rule", ["split", "weighted-least", "fewest-requests"])
def test_haproxy_takes_its_configuration(rule: str, tmp_path: Path) -> None:
    said = 0
    for seed in range(8):
        plan, inputs, written = random_case(seed)
        site = read_site(written)
        try:
            fleet = choose("haproxy", plan, groups(plan, inputs, site), rule).fleet
        except CannotRender:
            continue  # unlike replicas of several queries at a time are only simulated under fixed shares
        said += 1
        path = tmp_path / "haproxy.cfg"
        path.write_text(render("haproxy", fleet, site)["haproxy.cfg"])
        ran = subprocess.run(["haproxy", "-c", "-f", path], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0, ran.stderr
    assert said > 2


def test_haproxy_keeps_the_weights_and_the_caps_of_a_plan() -> None:
    """Who finds every server with all it may take is refused at once, not after a wait."""
    plan, inputs, written = random_case(3, text=True, machines={"l4": 1, "h100": 1})
    loads = {load.id: n for n, load in enumerate(load for worker in plan.workers for load in worker.loads)}

    def sent(load: Any) -> Any:
        serve = {"max_batch": 64, "most_seqs": 64, "concurrency": 10 + loads[load.id]}
        return load.model_copy(update={"serve": load.serve.model_copy(update=serve)})

    workers = tuple(one.model_copy(update={"loads": tuple(map(sent, one.loads))}) for one in plan.workers)
    rule = WeightedLeastDispatch(weight={load: 1.0 / (1 + n) for load, n in loads.items()})
    plan = plan.model_copy(update={"workers": workers, "dispatch": dict.fromkeys(plan.dispatch, rule)})
    site = read_site(written)
    choice = choose("haproxy", plan, groups(plan, inputs, site))
    text = render("haproxy", choice.fleet, site)["haproxy.cfg"]
    assert choice.changed == ()
    assert {f"maxconn {10 + n}" for n in loads.values()} <= {
        line[line.rfind("maxconn") :] for line in text.splitlines()
    }
    assert len({line.split(" weight ")[1].split()[0] for line in text.splitlines() if " weight " in line}) > 1
    assert text.count("timeout queue 1ms") == text.count("\nbackend ")
    assert text.count("ge 1 }") == text.count("\nbackend ")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_its_units(tmp_path: Path) -> None:
    for name, text in local_files("systemd").items():
        path = tmp_path / name
        path.write_text(text.replace("/opt/serve", "/bin/true").replace("haproxy -", "/bin/true -"))
    units = [path for path in tmp_path.iterdir() if path.name.endswith("@.service")]
    for unit in units:
        unit.with_name(unit.name.replace("@.", "@0.")).write_text(unit.read_text())
    named = [str(path) for path in tmp_path.glob("*@0.service")]
    command = ["systemd-analyze", "verify", "--user", "--man=no", *named, str(tmp_path / "hetplan.target")]
    environment = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert ran.returncode == 0, ran.stderr
    assert not [line for line in ran.stderr.splitlines() if "Unknown" in line or "Invalid" in line], ran.stderr


@pytest.mark.skipif(
    subprocess.run(["docker", "compose", "version"], capture_output=True).returncode != 0
    if shutil.which("docker")
    else True,
    reason="Docker Compose is not installed",
)
def test_compose_takes_its_file(tmp_path: Path) -> None:
    for name, text in local_files("compose").items():
        (tmp_path / name).write_text(text)
    ran = subprocess.run(
        ["docker", "compose", "config", "-q"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr


def local_files(target: str) -> Mapping[str, str]:
    plan, inputs, written = random_case(4)
    site = read_site({**written, "machines": {name: {} for name in written["machines"]}})
    return render(target, choose(target, plan, groups(plan, inputs, site)).fleet, site)


def test_containers_of_one_machine_have_gpus_of_their_own() -> None:
    services = read_objects(local_files("compose")["compose.yaml"])[0]["services"]
    taken = [
        device
        for one in services.values()
        for asked in one.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
        for device in asked["device_ids"]
    ]
    assert taken
    assert len(taken) == len(set(taken))
    assert all(name in services["edge"]["depends_on"] for name in services if name != "edge")


@pytest.mark.quick_sample(30)
@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("target", PLATFORMS)
def test_the_shipped_examples_are_rendered_or_refused_with_the_way_out(name: str, target: str) -> None:
    if name in ("policy", "fleet") and target != "kubernetes":
        pytest.skip("its plan takes a minute: one target is enough")
    wish = example(name)
    answer = solved_example(name, "fluid")
    plan = read_plan(answer.plan, trust_digest=True)
    inputs = load_inputs(wish.profile, wish.slo, measured=wish.measured)
    if plan.parts is not None:
        plan = of_period(plan, plan.periods[0]).model_copy(update={"digest": plan.digest})
    site = site_of(plan, inputs)
    fleet = groups(plan, inputs, site)
    rules = {app.rule for app in fleet.apps.values()}
    try:
        render(target, choose(target, plan, fleet).fleet, site)
        kept = rules == {"shares/1"} or (target == "dynamo" and rules == {"least-work/1"})
    except CannotRender as error:
        kept = target in ("llm-d", "dynamo", "skyserve") or rules != {"shares/1"}
        by_rule = {fault.path for fault in error.faults} <= {f"$.dispatch.{app}" for app in fleet.apps}
        kept = kept and all(("Ways out:" in fault.remedy) == by_rule for fault in error.faults)
    assert kept
    if rules & {"queue-slack/1", "path-shares/1", "chosen-plan/1"} or target not in ("kubernetes", "haproxy"):
        return
    if any(group.role != "whole" for group in fleet.groups):
        with pytest.raises(CannotRender, match="prefills and decodes apart"):
            choose(target, plan, fleet, "split")
        return
    files = render(target, choose(target, plan, fleet, "split").fleet, site)
    assert {one["name"]: one["replicas"] for one in read(target, files)} == {g.name: g.count for g in fleet.groups}
    priced = sum(group.count / group.per_machine * (group.price_per_hour or 0.0) for group in fleet.groups)
    if plan.summary is not None and plan.summary.cost_per_hour is not None:
        assert priced == pytest.approx(plan.summary.cost_per_hour)


def site_of(plan: Any, inputs: Any) -> Site:
    """A site for whatever a plan names."""
    models = {load.variant or load.node for worker in plan.workers for load in worker.loads}
    return read_site(
        {
            "name": "shop", "gateway": "gate",
            "offers": {
                name: {"offer": name} for name, one in inputs.profile.offers.items() if one.interruptions_per_hour
            },
            "models": {
                name: {"image": "registry.example/m:1", "command": ["/opt/serve"], "model_uri": "hf://o/m",
                       "deployment": "m.a:app"}
                for name in models
            },
            "machines": {
                name: {"selector": {"pool": name}, "device": "example.com/gpu",
                       "addresses": [f"10.{n}.0.{i}" for i in range(99)],
                       **({} if "gpu" in one.provides or one.kind == "cpu" else {"gpus": 1})}
                for n, (name, one) in enumerate(inputs.profile.hardware.items())
            },
        }
    )  # fmt: skip


def test_no_clock_network_or_process_is_imported_here() -> None:
    """Rendering is a function of its arguments."""
    code = (
        "import sys\nfrom importlib import import_module\nfrom hetplan.executor.render import TARGETS\n"
        "for name in TARGETS.values(): import_module(name)\n"
        "print([name for name in sys.modules if name.startswith('hetplan.executor.')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    plain = ("background", "model_rules", "old_site", "routing_table", "secrets", "site", "units", "wanted", "words")
    allowed = ("hetplan.executor.render", *(f"hetplan.executor.{name}" for name in plain))
    others = [name for name in eval(ran.stdout) if not name.startswith(allowed)]
    assert not others
    for file in (ROOT / "hetplan" / "executor" / "render").glob("*.py"):
        text = file.read_text()
        for word in (
            "import socket",
            "import subprocess",
            "import time",
            "from time",
            "import os\nimport time",
            "urllib.request",
        ):
            assert word not in text, file


def deployments(seed: int, site: Site, fleet: Fleet, plan: Any) -> dict[str, Any]:
    files = render("kubernetes", choose("kubernetes", plan, fleet).fleet, site)
    objects = read_objects(files["kubernetes.yaml"])
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Deployment"}


def test_a_pod_of_a_gpu_has_a_gpu_and_the_nodes_of_its_machine_type() -> None:
    for seed in range(20):
        plan, inputs, written = random_case(seed)
        site = read_site(written)
        fleet = groups(plan, inputs, site)
        pods = deployments(seed, site, fleet, plan)
        for group in fleet.groups:
            pod = pods[group.name]
            gpus = pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu")
            assert (gpus is not None) == (inputs.profile.hardware[group.hardware].kind == "gpu")
            assert pod["nodeSelector"]["pool"] == group.hardware


def minutes(cron: str) -> int:
    minute, hour = cron.split()[:2]
    return int(hour) * 60 + int(minute)


def test_over_a_day_keda_keeps_the_counts_of_every_period() -> None:
    scaled = 0
    for seed in range(20):
        plan, inputs, written = random_case(seed, periods=True)
        site = read_site(written)
        fleet = groups(plan, inputs, site)
        objects = read_objects(
            render("kubernetes", choose("kubernetes", plan, fleet, "own").fleet, site)["kubernetes.yaml"]
        )
        specs = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "ScaledObject"}
        fixed = {one["metadata"]["name"]: one["spec"].get("replicas") for one in objects if one["kind"] == "Deployment"}
        for group in fleet.groups:
            for period in plan.periods:
                middle = (period.start_s + (period.end_s or 0.0)) / 2 / 60
                planned = [count for start, count in group.schedule if start <= period.start_s][-1] * group.per_machine
                if group.name not in specs:
                    assert fixed[group.name] == planned
                    continue
                scaled += 1
                spec, active = specs[group.name], []
                for one in (trigger["metadata"] for trigger in spec["triggers"]):
                    begin, end = minutes(one["start"]), minutes(one["end"])
                    inside = begin <= middle < end if begin < end else middle >= begin or middle < end
                    active += [int(one["desiredReplicas"])] if inside else []
                assert max([spec["minReplicaCount"], *active]) == planned
                assert fixed[group.name] is None, "applying again must not undo what KEDA does"
                assert spec["maxReplicaCount"] == group.most
    assert scaled > 20


def test_ray_serve_takes_its_configuration() -> None:
    schema = pytest.importorskip("ray.serve.schema", reason="ray[serve] is not installed")
    for seed in range(6):
        _, files = rendered("ray-serve", seed)
        (one,) = read_objects(files["ray-serve.yaml"])
        (made,) = read_objects(one["spec"]["serveConfigV2"])
        schema.ServeDeploySchema.model_validate(made)


def test_skypilot_takes_its_services() -> None:
    task = pytest.importorskip("sky.task", reason="skypilot is not installed")
    for seed in range(6):
        _, files = rendered("skyserve", seed)
        for text in files.values():
            (made,) = read_objects(text)
            task.Task.from_yaml_config(made)
