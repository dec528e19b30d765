"""What several people and autoscalers do to one deployment: who may change it, what is left to others, going back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor.kubernetes import lease
from hetplan.executor.kubernetes.target import Kubernetes
from hetplan.executor.target import DeploymentLocked, Setting, TargetFailed, TargetRefused
from hetplan.executor.units import LoadSpec, Unit, named

Make = Callable[..., Any]


def units(count: int, variant: str = "m") -> list[Unit]:
    made = Unit("", "w1", 0, "t4", "cluster", "pool", loads=(LoadSpec("w1.a", variant=variant),))
    return [named(replace(made, index=index)) for index in range(count)]


def edit(cluster: Any, kind: str, change: Callable[[dict[str, Any]], None]) -> None:
    objects = cluster.objects
    for one in objects.values():
        if one["kind"] == kind:
            change(one)
    (cluster.folder / "objects.json").write_text(json.dumps(objects))


def put(cluster: Any, *made: dict[str, Any]) -> None:
    added = {f"{one['kind']}/{one['metadata']['name']}": one for one in made}
    (cluster.folder / "objects.json").write_text(json.dumps({**cluster.objects, **added}))


def elsewhere(kubernetes: Kubernetes, folder: Path) -> Kubernetes:
    """The same deployment from another state folder."""
    settings = kubernetes.settings.model_dump(exclude_unset=True)
    return Kubernetes(Setting("cluster", kubernetes.hosts, folder, settings))


@pytest.mark.slow
def test_the_second_of_two_commands_is_refused_and_reads_who_holds_it(
    target: Make, cluster: Any, tmp_path: Path
) -> None:
    first = target()
    with first.hold("apply of sha256:12", wait_s=0):
        with (
            pytest.raises(DeploymentLocked, match=r"apply of sha256:12, process \d+ of .*, since 20.* UTC .*--wait"),
            elsewhere(first, tmp_path / "other").hold("apply of sha256:34", wait_s=0),
        ):
            pass
        first.start(units(1), limit_s=60)
    with elsewhere(first, tmp_path / "other").hold("apply of sha256:34", wait_s=0):
        pass
    assert "Lease" not in cluster.kinds(), "nothing is left of it"


@pytest.mark.slow
def test_a_killed_command_keeps_nobody_out_for_long(
    target: Make, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_RENEWED_S", 0.05)
    monkeypatch.setattr(lease, "_LOOK_S", 0.05)
    first = target()
    with first.hold("apply", wait_s=0):
        left = next(one for one in cluster.objects.values() if one["kind"] == "Lease")
    put(cluster, left)
    with first.hold("apply from the same folder, whose own lock says that the holder has ended", wait_s=0):
        pass
    put(cluster, left)
    with (
        pytest.raises(DeploymentLocked, match="lapses 30 s after"),
        elsewhere(first, tmp_path / "other").hold("apply", wait_s=0),
    ):
        pass
    left["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    put(cluster, left)
    with elsewhere(first, tmp_path / "other").hold("apply", wait_s=0):
        pass


def test_who_has_lost_the_lease_changes_nothing_any_more(
    target: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_RENEWED_S", 0.02)
    kubernetes = target()
    with kubernetes.hold("apply", wait_s=0):

        def steal(one: dict[str, Any]) -> None:
            one["metadata"] |= {"resourceVersion": "99", "annotations": {}}
            one["spec"]["holderIdentity"] = "apply of somebody else"

        kubernetes._lease._ended.set()
        kubernetes._lease._renewing.join()
        edit(cluster, "Lease", steal)
        assert kubernetes._lease._still_mine() is None
        with pytest.raises(TargetFailed, match="held by apply of somebody else"):
            kubernetes.start(units(1), limit_s=60)
    assert cluster.kinds() == ["Lease"], "that of somebody else stays"


@pytest.mark.slow
def test_configs_that_a_replica_set_mounts_stay(target: Make, cluster: Any) -> None:
    kubernetes = target()
    kubernetes.start(units(1), limit_s=60)
    old = next(one for one in cluster.objects.values() if one["kind"] == "Deployment")
    put(cluster, {**old, "kind": "ReplicaSet", "metadata": {**old["metadata"], "name": "older"}})
    kubernetes.load(units(1, "other"), limit_s=60)
    assert cluster.kinds().count("ConfigMap") == 2
    kubernetes.load(units(1, "third"), limit_s=60)
    assert cluster.kinds().count("ConfigMap") == 2, "what no ReplicaSet mounts has gone"


@pytest.mark.slow
def test_going_back_wants_what_was_kept_whatever_hosts_toml_says_by_now(target: Make, cluster: Any) -> None:
    two = units(2)
    first = target()
    first.start(two, limit_s=60)
    first.route({"revision": "1"}, limit_s=60)
    first.remember()
    kept = cluster.objects
    # An apply with another hosts.toml, killed before it ended.
    second = target(image="registry.example/hetplan:bad", environment={"A": "b"})
    second.start(units(3), limit_s=60)
    second.route({"revision": "1"}, limit_s=60)
    third = target(image="registry.example/hetplan:bad", environment={"A": "b"})
    with third.going_back():
        assert [one.content == two[0].content for one in third.observe()] == [False] * 3
        third.stop([units(3)[2].name], drain_s=0.1)
        third.load(two, limit_s=60)
        third.route({"revision": "1"}, limit_s=60)
        assert [one.content for one in third.observe()] == [unit.content for unit in two]
        assert third.routed()["revision"] == "1"
    assert cluster.objects == kept
    assert [one.content == two[0].content for one in third.observe()] == [False] * 2, "and a diff says so"


def test_an_image_that_somebody_set_by_hand_is_a_difference(target: Make, cluster: Any) -> None:
    kubernetes = target(hardware={"t4": {"cpu_cores": 2, "mem_gib": 1}})
    kubernetes.start(units(1), limit_s=60)

    def by_the_server(one: dict[str, Any]) -> None:
        one["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
        for kind in ("requests", "limits"):
            one["spec"]["template"]["spec"]["containers"][0]["resources"][kind] = {"cpu": "2", "memory": "1Gi"}

    def by_hand(one: dict[str, Any]) -> None:
        one["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/hetplan:hand"

    edit(cluster, "Deployment", by_the_server)
    assert kubernetes.observe()[0].content == units(1)[0].content
    edit(cluster, "Deployment", by_hand)
    assert kubernetes.observe()[0].content != units(1)[0].content


@pytest.mark.slow
def test_how_many_pods_there_are_is_left_to_an_autoscaler(target: Make, cluster: Any) -> None:
    kubernetes, two = target(), units(2)
    kubernetes.start(two, limit_s=60)
    name = next(one["metadata"]["name"] for one in cluster.objects.values() if one["kind"] == "Deployment")
    put(
        cluster,
        {
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "somebody's"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": name}},
        },
    )
    for count in (5, 1):
        edit(cluster, "Deployment", lambda one, count=count: one["spec"].update(replicas=count))
        seen = kubernetes.observe()
        assert [(one.content, one.status) for one in seen] == [(unit.content, "ready") for unit in two]
        assert all(one.ready for one in kubernetes.health([unit.name for unit in two]).values())
        kubernetes.load(units(2, f"m{count}"), limit_s=60)
        assert cluster.objects[f"Deployment/{name}"]["spec"]["replicas"] == count
        kubernetes.load(two, limit_s=60)


@pytest.mark.slow
def test_what_somebody_else_owns_is_refused_before_anything_is_touched_and_looking_never_is(
    target: Make, cluster: Any
) -> None:
    kubernetes = target()
    kubernetes.start(units(1), limit_s=60)
    edit(cluster, "Deployment", lambda one: one["metadata"].update(resourceVersion="7"))
    before = cluster.objects
    said = 'error: Apply failed with 1 conflict: conflict with "kubectl-set" using apps/v1: .spec.replicas'
    cluster.play(owned=said)
    with pytest.raises(TargetRefused, match=r"prod-w1-\w+: kubectl-set owns \.spec\.replicas.*--take-over"):
        kubernetes.load(units(1, "other"), limit_s=60)
    assert cluster.objects == before
    assert kubernetes.check(units(1, "other")) == []
    assert kubernetes.diff(units(1, "other"))
    target(take_over=True).load(units(1, "other"), limit_s=60)


@pytest.mark.slow
def test_a_deployment_that_changed_since_it_was_read_is_refused(target: Make, cluster: Any) -> None:
    kubernetes = target()
    kubernetes.start(units(1), limit_s=60)
    edit(cluster, "Deployment", lambda one: one["metadata"].update(resourceVersion="7"))
    cluster.play(modified_by={"spec": {"replicas": 9}})
    with pytest.raises(TargetRefused, match="somebody else changed it after it was looked at"):
        kubernetes.load(units(1, "other"), limit_s=60)
    cluster.play(modified_by={})  # its status alone
    kubernetes.load(units(1, "other"), limit_s=60)
