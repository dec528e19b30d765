"""What several people and autoscalers do to one deployment: who may change it, and what is left to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cases.in_a_cluster import rendered

from hetplan.executor.apply import lease
from hetplan.executor.apply.cluster import Rendered
from hetplan.executor.apply.platform import Platform
from hetplan.executor.render.groups import Application, Fleet, Group
from hetplan.executor.render.kubernetes import render
from hetplan.executor.site import read_site
from hetplan.executor.target import ApplyFailed, DeploymentLocked, TargetFailed
from hetplan.profiles.canonical import digest

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
            lambda: mine.cluster.apply(mine.cluster.changes(wanted).objects),
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


@pytest.mark.parametrize("surge", [False, True])
def test_counts_by_the_hour_are_left_to_keda_and_taken_back_from_it(platform: Make, cluster: Any, surge: bool) -> None:
    name, day = "rank-net-cpu", ((0.0, 2), (43200.0, 10))
    platform(surge=surge).apply(by_the_hour(day))
    assert cluster.deployments == {name: 2}, "not 1 until KEDA comes"
    reference = {"scaleTargetRef": {"kind": "Deployment", "name": name}}
    cluster.put({"kind": "HorizontalPodAutoscaler", "metadata": {"name": f"keda-hpa-{name}"}, "spec": reference})
    cluster.edit("Deployment", lambda one: one["spec"].update(replicas=8))
    cluster.forget_calls()
    platform(surge=surge).apply(by_the_hour(day, image="registry.example/net:2"))
    assert cluster.deployments == {name: 8}
    limits = [word for call in cluster.calls for word in call["words"] if word.startswith("--timeout=")]
    assert limits == ["--timeout=240s"], "of four waves of as many as there are, not as were planned at first"
    cluster.forget_calls()
    platform(surge=surge).apply(by_the_hour(((0.0, 5),)))
    assert cluster.deployments == {name: 5}
    assert "ScaledObject" not in cluster.kinds()
    assert cluster.changes[0] == "delete", "or it would put its own count back"
    platform(surge=surge).apply(by_the_hour(day))
    assert cluster.deployments == {name: 5}, "not 1 for a moment"


def by_the_hour(counts: tuple[tuple[float, int], ...], image: str = "registry.example/net:1") -> Rendered:
    group = Group("rank-net-cpu", "rank", "net", "cpu", counts, apps=("rank",))
    ends = [start for start, _ in counts[1:]] + [86400.0]
    periods = tuple((start, end) for (start, _), end in zip(counts, ends, strict=True))
    fleet = Fleet((group,), {"rank": Application("rank", dns="rank")}, periods, "prod", digest([*counts, image]))
    return Rendered(fleet.digest, render(fleet, read_site({"models": {"net": {"image": image}}})))


def test_who_may_not_see_autoscalers_does_not_overwrite_their_counts(platform: Make, cluster: Any) -> None:
    platform().apply(rendered(rank=2))
    cluster.edit("Deployment", lambda one: one["spec"].update(replicas=9))
    cluster.play(fail={"get horizontalpodautoscalers": "Error from server (Forbidden): cannot list"})
    with pytest.raises(TargetFailed, match="Forbidden"):
        platform().apply(rendered("registry.example/net:2", rank=2))
    assert cluster.deployments == {"rank-net-cpu": 9}
    platform().apply(rendered("registry.example/net:2", rank=9))


def test_a_kind_that_may_not_be_listed_matters_where_there_is_one(platform: Make, cluster: Any) -> None:
    cluster.play(fail={"get scaledobjects": "Error from server (Forbidden): scaledobjects is forbidden"})
    platform().apply(rendered(rank=2))
    with pytest.raises(TargetFailed, match="scaledobjects is forbidden"):
        platform().apply(by_the_hour(((0.0, 2), (43200.0, 10))))
    cluster.play()
    platform().apply(by_the_hour(((0.0, 2), (43200.0, 10))))
    cluster.play(fail={"get scaledobjects": "Error from server (Forbidden): scaledobjects is forbidden"})
    with pytest.raises(TargetFailed, match="scaledobjects is forbidden"):
        platform().apply(rendered(rank=2))


def test_an_api_that_is_away_stops_nothing_that_does_not_use_it(platform: Make, cluster: Any) -> None:
    away = "error: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: the server is currently"
    cluster.play(fail={"api-resources": f"{away} unable to handle the request"})
    platform(away_s=0.1).apply(rendered(rank=1))


def test_differences_are_shown_by_kubectl_alone(platform: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL_EXTERNAL_DIFF", "mydiff")
    platform().apply(rendered(rank=1))
    assert {call["diff"] for call in cluster.calls} == {None}


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
