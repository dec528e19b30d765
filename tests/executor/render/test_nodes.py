"""Every pod fits the nodes of its own machine type and no others, by the labels of each cloud."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from cases.rendered import random_case
from face import read_objects

from hetplan.executor.render import render
from hetplan.executor.render.groups import groups
from hetplan.executor.render.names import CannotRender
from hetplan.executor.render.nodes import nodes_of
from hetplan.executor.render.rules import OWN, choose
from hetplan.executor.site import Site, read_site

GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TYPES = {"t4": "g4dn.xlarge", "l4": "g6.xlarge", "h100": "p5.48xlarge"}
PRODUCTS = {"t4": "Tesla-T4", "l4": "NVIDIA-L4", "h100": "NVIDIA-H100-80GB-HBM3"}
GKE = {"t4": "nvidia-tesla-t4", "l4": "nvidia-l4", "h100": "nvidia-h100-80gb"}
COUNTS = {"t4": 1, "l4": 1, "h100": 8}
CLOUDS: Mapping[str, Any] = {
    "gke": lambda gpu, spot: (
        {"cloud.google.com/gke-accelerator": GKE[gpu],
         **({"cloud.google.com/gke-spot": "true"} if spot else {})},
        [{"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}] if spot else []),
    "eks": lambda gpu, spot: ({"eks.amazonaws.com/capacityType": "SPOT" if spot else "ON_DEMAND"}, []),
    "aks": lambda gpu, spot: (
        {"kubernetes.azure.com/scalesetpriority": "spot"} if spot else {},
        [{"key": "kubernetes.azure.com/scalesetpriority", "value": "spot", "effect": "NoSchedule"}] if spot else []),
    "karpenter": lambda gpu, spot: (
        {"karpenter.k8s.aws/instance-gpu-name": gpu, "karpenter.k8s.aws/instance-gpu-count": str(COUNTS[gpu]),
         "karpenter.sh/capacity-type": "spot" if spot else "on-demand"}, []),
    "none": lambda gpu, spot: ({"pool": "spot"} if spot else {}, []),
}  # fmt: skip


def node(cloud: str, gpu: str, *, spot: bool) -> dict[str, Any]:
    """A node as its cloud labels and taints it."""
    labels, taints = CLOUDS[cloud](gpu, spot)
    common = {"node.kubernetes.io/instance-type": TYPES[gpu], "nvidia.com/gpu.product": PRODUCTS[gpu],
              "nvidia.com/gpu.count": str(COUNTS[gpu])}  # fmt: skip
    return {"labels": {**common, **labels}, "taints": [GPU_TAINT, *taints], "gpus": COUNTS[gpu]}


def fits(pod: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """Whether the scheduler may put a pod on a node."""
    labels = there["labels"]
    if not pod.get("nodeSelector", {}).items() <= labels.items():
        return False
    affinity = pod.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    for term in affinity["nodeSelectorTerms"] if affinity else ():
        for one in term["matchExpressions"]:
            has = one["key"] in labels
            if one["operator"] == "DoesNotExist" and has:
                return False
            if one["operator"] == "In" and labels.get(one["key"]) not in one["values"]:
                return False
    for taint in there["taints"]:
        borne = [one for one in pod.get("tolerations", ()) if one["key"] == taint["key"]]
        if not any(one["operator"] == "Exists" or one.get("value") == taint["value"] for one in borne):
            return False
    asked = int(pod["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0))
    return asked <= there["gpus"]


@pytest.mark.quick_sample(2)
@pytest.mark.parametrize("cloud", CLOUDS)
def test_every_pod_fits_the_nodes_of_its_own_machines_and_no_others(cloud: str) -> None:
    machines = {gpu: {"instance_type": TYPES[gpu]} for gpu in TYPES} if cloud in ("eks", "aks") else {}
    for seed in range(12):
        plan, inputs, written = random_case(seed, machines=dict(COUNTS))
        spot = {name: {"pool": "spot"} for name in inputs.profile.offers if name.endswith("-spot") and cloud == "none"}
        site = read_site({**written, "cloud": cloud, "machines": machines, "offers": spot})
        fleet = groups(plan, inputs, site)
        files = render("kubernetes", choose("kubernetes", plan, fleet, OWN).fleet, site)
        pods = {
            one["metadata"]["name"]: one["spec"]["template"]["spec"]
            for one in read_objects(files["kubernetes.yaml"])
            if one["kind"] == "Deployment"
        }
        for group in fleet.groups:
            for gpu in TYPES:
                for bought in (False, True):
                    mine = gpu == group.hardware and bought == group.spot
                    # Nobody keeps other pods from the nodes that site.toml calls spot machines.
                    if cloud == "none" and gpu == group.hardware and bought and not group.spot:
                        continue
                    assert fits(pods[group.name], node(cloud, gpu, spot=bought)) == mine, (group.name, gpu, bought)


def test_pods_of_an_offer_in_a_zone_run_there() -> None:
    zone, own = "topology.kubernetes.io/zone", {"pool": "cpu"}
    said = {"machines": {"cpu8": {"selector": own}}, "offers": {"renamed": {zone: "eu-west-1a"}}}
    for offer, expected in (("plain", "a"), ("renamed", "eu-west-1a")):
        faults: list[Any] = []
        found = nodes_of("cpu8", read_site(said), faults, gpus=0, several=True, offer=offer, zone="a")
        assert (found.selector, faults) == ({**own, zone: expected}, [])


def test_what_no_table_says_is_asked_for() -> None:
    for cloud, hardware, words in (
        ("gke", "a10g", "gpu_product"),
        ("eks", "l4", "instance_type"),
        ("karpenter", "a100-80", "instance_type"),
        ("none", "box", "selector"),
        ("gke", "a100", "gpu_product"),
    ):
        faults: list[Any] = []
        nodes_of(hardware, Site(cloud=cloud), faults, gpus=1, several=False)  # type: ignore[arg-type]
        assert [words in fault.remedy for fault in faults] == [True], (cloud, hardware)
        assert faults[0].path == f"$.machines.{hardware}.selector"


def test_a_part_of_a_gpu_is_refused_until_its_name_is_known() -> None:
    plan, inputs, written = random_case(0, machines={"l4": 1})
    workers = tuple(
        one.model_copy(update={"loads": tuple(load.model_copy(update={"instances": 2}) for load in one.loads)})
        for one in plan.workers
    )
    plan = plan.model_copy(update={"workers": workers})
    site = read_site(written)
    with pytest.raises(CannotRender, match=r"machines\.l4\.device.*0\.5 of a GPU"):
        render("kubernetes", choose("kubernetes", plan, groups(plan, inputs, site), OWN).fleet, site)
    site = read_site({**written, "machines": {"l4": {"selector": {"a": "b"}, "device": "nvidia.com/gpu.shared"}}})
    files = render("kubernetes", choose("kubernetes", plan, groups(plan, inputs, site), OWN).fleet, site)
    assert 'nvidia.com/gpu.shared: "1"' in files["kubernetes.yaml"]


def test_a_pod_asks_for_no_more_than_a_node_offers() -> None:
    plan, inputs, written = random_case(0, machines={"l4": 1})
    hardware = {"l4": {"instance_type": "g6.xlarge", "selector": {"a": "b"}}}
    site = read_site({**written, "machines": hardware})
    for group in groups(plan, inputs, site).groups:
        assert group.cpu_cores == pytest.approx(3.42 / group.per_machine)
        assert group.mem_gib == pytest.approx(13.3 / group.per_machine)
    run = inputs.profile.variants[next(iter(inputs.profile.variants))].runs[0]
    needy = run.model_copy(update={"needs": {"mem_gib": 14.0}})
    variants = {name: one.model_copy(update={"runs": (needy,)}) for name, one in inputs.profile.variants.items()}
    greedy = type(inputs)(inputs.profile.model_copy(update={"variants": variants}), inputs.slo)
    with pytest.raises(CannotRender, match=r"needs more mem_gib than a node offers pods \(13\.3\)"):
        groups(plan, greedy, site)
