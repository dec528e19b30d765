"""What several people and autoscalers do to one deployment: who may change it, and what is left to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cases.in_a_cluster import rendered

from hetplan.executor.apply import lease
from hetplan.executor.apply.cluster import Rendered
from hetplan.executor.apply.platform import Platform
from hetplan.executor.target import ApplyFailed, DeploymentLocked, TargetFailed

Make = Callable[..., Platform]


def held(platform: Platform, what: str) -> Any:
    return platform.cluster.hold(what, home=platform.folder, wait_s=0)


def test_the_second_of_two_commands_is_refused_and_reads_who_holds_it(platform: Make, cluster: Any) -> None:
    with held(platform(), "apply of sha256:12"):
        said = r"apply of sha256:12, process \d+ of .*, since 20.* UTC .*--wait"
        with pytest.raises(DeploymentLocked, match=said):
            platform("other").apply(rendered(rank=1))
    assert "Lease" not in cluster.kinds(), "nothing is left of it"
    platform("other").apply(rendered(rank=1))


@pytest.mark.slow
def test_a_killed_command_keeps_nobody_out_for_long(
    platform: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_RENEWED_S", 0.05)
    monkeypatch.setattr(lease, "_LOOK_S", 0.05)
    with held(platform(), "apply"):
        left = next(one for one in cluster.objects.values() if one["kind"] == "Lease")
    cluster.put(left)
    with held(platform(), "apply from the same folder, whose own lock says that the holder has ended"):
        pass
    cluster.put(left)
    with pytest.raises(DeploymentLocked, match="lapses 30 s after"), held(platform("other"), "apply"):
        pass
    left["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    cluster.put(left)
    with held(platform("other"), "apply"):
        pass


def test_who_has_lost_the_lease_changes_nothing_any_more(
    platform: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_RENEWED_S", 0.02)
    mine = platform()
    with held(mine, "apply"):

        def steal(one: dict[str, Any]) -> None:
            one["metadata"] |= {"resourceVersion": "99", "annotations": {}}
            one["spec"]["holderIdentity"] = "apply of somebody else"

        assert mine.cluster._lease is not None
        mine.cluster._lease._ended.set()
        mine.cluster._lease._renewing.join()
        cluster.edit("Lease", steal)
        assert mine.cluster._lease._still_mine() is None
        wanted = rendered(rank=1)
        for change in (
            lambda: mine.cluster.apply(mine.cluster.changes(wanted)),
            lambda: mine.cluster.prune(wanted),
            lambda: mine.cluster.keep(wanted),
        ):
            with pytest.raises(TargetFailed, match="held by apply of somebody else"):
                change()
    assert cluster.kinds() == ["Lease"], "that of somebody else stays"


def test_what_somebody_else_owns_is_refused_before_anything_is_touched_and_looking_never_is(
    platform: Make, cluster: Any
) -> None:
    platform().apply(rendered(rank=1))
    before = cluster.objects
    said = (
        'error: Apply failed with 1 conflict: conflict with "kubectl-set" using apps/v1: '
        '.spec.template.spec.containers[name="model"].image\nPlease review the fields above--they currently have other'
    )
    cluster.play(owned=said)
    refused = r"kubectl-set owns \.spec\.template.*\.image\. Leave it to kubectl-set, or.*Nothing was touched"
    with pytest.raises(ApplyFailed, match=refused):
        platform().apply(rendered("registry.example/net:2", rank=1))
    assert cluster.objects == before
    assert platform().unfinished() is None
    assert platform().changes(rendered(rank=2)).changed
    platform(take_over=True).apply(rendered("registry.example/net:2", rank=1))
    assert cluster.objects != before


def test_what_somebody_set_by_hand_is_a_difference(platform: Make, cluster: Any) -> None:
    platform().apply(rendered(rank=2))
    cluster.edit("Deployment", lambda one: one["spec"].update(replicas=5))
    assert platform().changes(rendered(rank=2)).changed == (("Deployment", "rank-net-cpu"),)
    platform().apply(rendered(rank=2))
    assert cluster.deployments == {"rank-net-cpu": 2}


@pytest.mark.parametrize("count", [5, 1])
def test_how_many_pods_there_are_is_left_to_an_autoscaler(platform: Make, cluster: Any, count: int) -> None:
    platform().apply(rendered(rank=2))
    name = "rank-net-cpu"
    reference = {"scaleTargetRef": {"kind": "Deployment", "name": name}}
    cluster.put({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "somebody's"}, "spec": reference})
    cluster.edit("Deployment", lambda one: one["spec"].update(replicas=count))
    assert not platform().changes(rendered(rank=2))
    platform().apply(rendered("registry.example/net:2", rank=2))
    assert cluster.deployments == {name: count}


def test_counts_by_the_hour_are_left_to_keda_and_taken_back_from_it(platform: Make, cluster: Any) -> None:
    def by_the_hour(wanted: Rendered) -> Rendered:
        text = wanted.files["kubernetes.yaml"]
        assert "  replicas: 2\n" in text
        return Rendered(wanted.plan, {"kubernetes.yaml": text.replace("  replicas: 2\n", "")})

    platform().apply(rendered(rank=2))
    platform().apply(by_the_hour(rendered(rank=2)))
    assert cluster.deployments == {"rank-net-cpu": 2}, "not 1 for a moment"
    cluster.edit("Deployment", lambda one: one["spec"].update(replicas=7))
    marks = {"labels": {"scaledobject.keda.sh/name": "rank-net-cpu"}}
    reference = {"scaleTargetRef": {"kind": "Deployment", "name": "rank-net-cpu"}}
    cluster.put({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "keda", **marks}, "spec": reference})
    platform().apply(by_the_hour(rendered("registry.example/net:2", rank=2)))
    assert cluster.deployments == {"rank-net-cpu": 7}
    platform().apply(rendered(rank=2))
    assert cluster.deployments == {"rank-net-cpu": 2}


def test_the_answer_of_kubectl_is_in_the_failure(platform: Make, cluster: Any) -> None:
    cluster.play(fail={"get": "Error from server (Forbidden): deployments.apps is forbidden"})
    with pytest.raises(TargetFailed, match=r"kubectl get failed: Error from server \(Forbidden"):
        platform().groups()
    cluster.play(fail={"diff": "error: the server is down"})
    with pytest.raises(TargetFailed, match="kubectl diff failed: error: the server is down"):
        platform().changes(rendered(rank=1))
    with pytest.raises(TargetFailed, match="there is no program /no/such/kubectl"):
        platform(kubectl="/no/such/kubectl").groups()


def test_a_kubectl_that_hangs_is_ended(platform: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetplan.executor.apply.kubectl._GRACE_S", 0.1)
    cluster.play(slow_s={"get": 30})
    with pytest.raises(TargetFailed, match="did not end within"):
        platform(call_s=0.2).groups()


@pytest.mark.slow
def test_an_api_server_that_is_away_for_a_moment_is_asked_again(platform: Make, cluster: Any) -> None:
    cluster.play(away=2)
    assert platform().groups() == []
    assert cluster.verbs == ["get"] * 3
