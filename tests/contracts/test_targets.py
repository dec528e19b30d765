"""What another platform is handed for a plan: each worker with the accelerators that it counts on, on its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from build import Files, app, cluster, example, files, machine, model, random_files
from face import EXIT, Answer, Pods, rendered, solve, solved_example

LABEL = "node.kubernetes.io/instance-type"
SHIPPED = ("llm-disaggregated", "pool", "pipeline", "llm", "fleet")


def labels(wish: Files) -> dict[str, dict[str, str]]:
    return {name: {LABEL: f"{name}.large"} for name in wish.machine_types}


def check_pods(wish: Files, answer: Answer, pods: list[Pods], amounts: dict[str, int]) -> None:
    """Each pod fits the nodes of its own machine type and no others, and asks for all the GPUs of one."""
    nodes = labels(wish)
    assert {one.machine for one in pods} == {group.machine for group in answer.machines if group.count}
    for one in pods:
        of_type = {label: value for label, value in one.labels.items() if label == LABEL}  # others say the zone
        assert [name for name, has in nodes.items() if of_type == has] == [one.machine]
        assert dict(one.accelerators) == ({"nvidia.com/gpu": amounts[one.machine]} if amounts[one.machine] else {})
    if not any(group.period for group in answer.machines):
        assert sum(one.count for one in pods) == answer.count()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", SHIPPED)
def test_workers_of_a_shipped_plan_ask_for_their_gpus_on_their_nodes(name: str, tmp_path: Path) -> None:
    wish, answer = example(name), solved_example(name, "fluid")
    ran, pods = rendered(answer.plan, wish, cluster(wish, labels(wish)), tmp_path)
    assert ran.code == EXIT["ok"], ran
    hardware = wish.profile["hardware"]
    check_pods(wish, answer, pods, {one: hardware[one].get("provides", {}).get("gpu", 0) for one in hardware})


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("gpus", [4, 1])
@pytest.mark.parametrize("problem", ["variants", "pool", "pipeline", "llm"])
def test_gpus_are_what_the_profile_provides_or_the_site_says(problem: str, gpus: int, tmp_path: Path) -> None:
    wish = random_files(problem, gpus)
    of_llm = problem == "llm"  # an engine takes the GPUs that its law was measured on
    wish = wish if of_llm else wish.provides({"gpu": gpus})
    answer, amounts = solve(wish, "fluid"), dict.fromkeys(wish.machine_types, 1 if of_llm else gpus)
    ran, pods = rendered(answer.plan, wish, cluster(wish, labels(wish)), tmp_path)
    assert ran.code == EXIT["ok"], ran
    check_pods(wish, answer, pods, amounts)
    stated = dict.fromkeys(wish.machine_types, 2)
    (tmp_path / "b").mkdir()
    _, pods = rendered(answer.plan, wish, cluster(wish, labels(wish), accelerators=stated), tmp_path / "b")
    check_pods(wish, answer, pods, amounts if of_llm else stated)


def two_types(kind: str = "gpu", rate: float = 900.0, **amounts: float) -> Files:
    """A wish that both machine types are needed for: the cheaper one runs out."""
    machines = {
        "small": machine(0.5, kind=kind, stock=2, provides=amounts), "large": machine(2.0, kind=kind, provides=amounts)
    }  # fmt: skip
    net = model({"small": {1: 5, 8: 20}, "large": {1: 4, 8: 12}}, quality=0.8)
    return files(machines=machines, models={"net": net}, apps={"photos": app("net", rate=rate, limits={99: 100})})


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", ["gpu", "tpu", "inferentia"])
@pytest.mark.parametrize("rate", [900.0, 1500.0])
def test_an_accelerator_of_an_unknown_amount_is_refused_with_what_to_write(
    kind: str, rate: float, tmp_path: Path
) -> None:
    wish = two_types(kind, rate)
    answer = solve(wish, "fluid")
    ran, pods = rendered(answer.plan, wish, cluster(wish, labels(wish)), tmp_path)
    assert (ran.code, pods) == (EXIT["infeasible"], [])
    for name in wish.machine_types:
        assert f"machines.{name}.gpus (found nothing)" in ran.err
        assert f'"provides": {{"gpu": 1}} under machines.{name}' in ran.err
    words = dict.fromkeys(wish.machine_types, f"example.com/{kind}")
    site = cluster(wish, labels(wish), accelerators={"small": 1, "large": 8}, resources=words)
    ran, pods = rendered(answer.plan, wish, site, tmp_path)
    assert ran.code == EXIT["ok"], ran
    assert {one.machine: dict(one.accelerators) for one in pods} == {
        "small": {f"example.com/{kind}": 1}, "large": {f"example.com/{kind}": 8},
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_machines_whose_nodes_cannot_be_told_apart_are_refused(kind: str, tmp_path: Path) -> None:
    wish = two_types(kind, gpu=float(kind == "gpu"))
    answer = solve(wish, "fluid")
    none = {"small": {}, "large": {LABEL: "l"}}
    ran, pods = rendered(answer.plan, wish, cluster(wish, none), tmp_path)
    assert (ran.code, pods) == (EXIT["infeasible"], [])
    assert "machines.small.selector (found nothing)" in ran.err
    assert "machines.large" not in ran.err
    same = {"small": {"pool": "any"}, "large": {"pool": "any"}}
    ran, pods = rendered(answer.plan, wish, cluster(wish, same), tmp_path)
    assert (ran.code, pods) == (EXIT["infeasible"], [])
    assert "nodes of small have these labels, too" in ran.err
    assert "nodes of large have these labels, too" in ran.err
    wider = {"small": {"pool": "any"}, "large": {"pool": "any", LABEL: "l"}}
    ran, pods = rendered(answer.plan, wish, cluster(wish, wider), tmp_path)
    assert (ran.code, pods) == (EXIT["infeasible"], [])
    assert "nodes of large have these labels, too" in ran.err
    assert "nodes of small" not in ran.err


def test_one_machine_type_without_gpus_needs_no_labels_and_one_with_them_does(tmp_path: Path) -> None:
    for kind, code in (("cpu", "ok"), ("gpu", "infeasible")):
        wish = two_types(kind, 200.0, gpu=float(kind == "gpu")).only("large")
        ran, _ = rendered(solve(wish, "fluid").plan, wish, cluster(wish, {}), tmp_path)
        assert ran.code == EXIT[code], ran
