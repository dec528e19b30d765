"""What the target asks of `kubectl`, in which order, and what it makes of failures."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.executor.kubernetes import target as target_module
from hetplan.executor.target import TargetFailed
from hetplan.executor.units import LoadSpec, Unit, named
from hetplan.testing.target_checks import check_target

Make = Callable[..., Any]


def units(count: int, worker: str = "w1", **how: Any) -> list[Unit]:
    made = Unit("", worker, 0, "t4", "cluster", "pool", loads=(LoadSpec(f"{worker}.a", variant="m"),), **how)
    return [named(replace(made, index=index)) for index in range(count)]


def names(listed: list[Unit]) -> list[str]:
    return [unit.name for unit in listed]


@pytest.mark.slow
def test_it_does_what_targets_do(target: Make, cluster: Any) -> None:
    cluster.play(unready={"prod-bad": {"reason": "ErrImagePull", "message": ""}})
    check_target(target(), units(1) + units(1, "w2"), broken=units(1, "bad")[0])


def test_started_units_are_seen_as_they_were_started(target: Make) -> None:
    kubernetes, asked = target(), units(3) + units(1, "w2")
    endpoints = kubernetes.start(asked, limit_s=60)
    assert set(endpoints) == set(names(asked))
    seen = {one.name: one for one in kubernetes.observe()}
    assert {name: one.unit for name, one in seen.items()} == {unit.name: unit for unit in asked}
    assert all(one.content == one.unit.content and one.status == "ready" for one in seen.values())
    assert all(one.endpoint == endpoints[name] for name, one in seen.items())


def test_start_applies_server_side_and_waits_for_each_rollout(target: Make, cluster: Any) -> None:
    target(context="prod", namespace="serving").start(units(2) + units(1, "w2"), limit_s=60)
    assert cluster.verbs == ["get", "get", "apply", "rollout", "rollout"]
    applied = cluster.calls[2]["words"]
    assert {"--server-side", "--field-manager=hetplan", "--filename=-"} <= set(applied)
    for call in cluster.calls:
        assert call["words"][call["words"].index("--namespace") + 1] == "serving"
        assert call["words"][call["words"].index("--context") + 1] == "prod"
        assert any(word.startswith("--request-timeout=") for word in call["words"])


def test_starting_what_runs_changes_nothing(target: Make, cluster: Any) -> None:
    kubernetes = target()
    kubernetes.start(units(2), limit_s=60)
    before = cluster.objects
    kubernetes.start(units(2), limit_s=60)
    assert cluster.objects == before


@pytest.mark.slow
def test_groups_grow_and_shrink_to_nothing(target: Make, cluster: Any) -> None:
    kubernetes, four = target(), units(4)
    kubernetes.start(four[:2], limit_s=60)
    kubernetes.start(four[2:], limit_s=60)
    assert names(four) == [one.name for one in kubernetes.observe()]
    kubernetes.stop(names(four[1:3]), drain_s=0.1)
    assert [four[0].name, four[3].name] == [one.name for one in kubernetes.observe()]
    kubernetes.stop(names(four), drain_s=0.1)
    assert kubernetes.observe() == ()
    assert cluster.objects == {}
    kubernetes.stop(names(four), drain_s=0.1)


def test_a_pod_that_its_node_evicted_does_not_hold_up_a_stop(target: Make, cluster: Any) -> None:
    """It stays listed for good, and is no pod any more."""
    kubernetes, two = target(), units(2)
    kubernetes.start(two, limit_s=60)
    (name,) = [one["metadata"]["name"] for one in cluster.objects.values() if one["kind"] == "Deployment"]
    cluster.play(evicted=[name])
    kubernetes.stop(names(two[:1]), drain_s=0.1)
    assert [two[1].name] == [one.name for one in kubernetes.observe()]


def test_notes_that_somebody_wrote_over_are_written_anew(target: Make, cluster: Any) -> None:
    kubernetes, two = target(), units(2)
    kubernetes.start(two, limit_s=60)
    objects = cluster.objects
    for one in objects.values():
        one["metadata"].get("annotations", {}).update({"hetplan/indices": "[0, "})
    (cluster.folder / "objects.json").write_text(json.dumps(objects))
    assert kubernetes.observe() == ()
    kubernetes.start(two, limit_s=60)
    assert names(two) == [one.name for one in kubernetes.observe()]


def test_a_secret_of_an_earlier_hosts_file_goes_with_the_rest(target: Make, cluster: Any) -> None:
    kubernetes = target()
    kubernetes.start(units(1), limit_s=60)
    (mark,) = {one["metadata"]["labels"]["app.kubernetes.io/instance"] for one in cluster.objects.values()}
    labels = {"app.kubernetes.io/managed-by": "hetplan", "app.kubernetes.io/instance": mark}
    secret = {"kind": "Secret", "metadata": {"name": "prod-keys-012345", "labels": labels}}
    (cluster.folder / "objects.json").write_text(json.dumps({**cluster.objects, "Secret/prod-keys-012345": secret}))
    kubernetes.down(drain_s=0.1)
    assert cluster.objects == {}


def test_a_changed_load_rolls_and_leaves_no_old_config(target: Make, cluster: Any) -> None:
    kubernetes = target()
    kubernetes.start(units(2), limit_s=60)
    changed = [replace(unit, loads=(LoadSpec("w1.a", variant="other"),)) for unit in units(2)]
    kubernetes.load(changed, limit_s=60)
    assert [one.unit for one in kubernetes.observe()] == changed
    assert cluster.kinds() == ["ConfigMap", "Deployment", "PodDisruptionBudget", "Service"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ({"reason": "Unschedulable", "message": "0/3 nodes: 3 Insufficient nvidia.com/gpu"}, "cannot be placed: 0/3"),
        ({"reason": "ImagePullBackOff", "message": "no such image"}, "is in ImagePullBackOff: no such image"),
        ({"reason": "CrashLoopBackOff", "message": "back-off"}, "is in CrashLoopBackOff"),
    ],
)
def test_pods_that_do_not_come_are_named_with_their_reason(
    target: Make, cluster: Any, trouble: dict[str, str], said: str
) -> None:
    cluster.play(unready={"prod-w2": trouble})
    kubernetes = target()
    with pytest.raises(TargetFailed, match="timed out") as failed:
        kubernetes.start(units(1) + units(2, "w2"), limit_s=60)
    assert said in str(failed.value)
    assert failed.value.about.startswith("prod-w2")


@pytest.mark.slow
def test_a_failed_start_leaves_nothing_of_what_it_began(target: Make, cluster: Any) -> None:
    kubernetes = target()
    kubernetes.start(units(1), limit_s=60)
    before = cluster.objects
    cluster.play(unready={"prod-w2": {"reason": "ImagePullBackOff", "message": ""}})
    with pytest.raises(TargetFailed):
        kubernetes.start(units(3) + units(1, "w2"), limit_s=60)
    assert cluster.objects == before


def test_a_failure_that_cannot_be_taken_back_says_both(target: Make, cluster: Any) -> None:
    """Else a quota is only seen as a deletion that failed."""
    cluster.play(
        unready={"prod-w1": {"reason": "Pending", "message": "exceeded quota: few"}},
        fail={"delete": "timed out waiting"},
    )
    with pytest.raises(TargetFailed, match=r"exceeded quota: few.*still there.*timed out waiting"):
        target().start(units(2), limit_s=60)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["down", "stop"])
def test_many_pods_may_end_one_after_the_other(
    target: Make, cluster: Any, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they take longer than a pod may; a fixed time for all of them failed at 176."""
    monkeypatch.setattr(target_module, "_LOOK_S", 0.01)
    kubernetes = target()
    monkeypatch.setattr(type(kubernetes), "_leaving_s", lambda *_: 1.5)
    many = units(12)
    kubernetes.start(many, limit_s=60)
    cluster.play(leave=1, slow_s={"get": 0.2})
    began = time.monotonic()
    kubernetes.down(drain_s=0.1) if end == "down" else kubernetes.stop(names(many), drain_s=0.1)
    assert time.monotonic() - began > 1.5
    assert not [one for one in cluster.objects if one.startswith(("Pod/", "Deployment/"))]


def test_pods_that_do_not_end_are_counted(target: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_module, "_LOOK_S", 0.01)
    kubernetes = target()
    monkeypatch.setattr(type(kubernetes), "_leaving_s", lambda *_: 0.5)
    kubernetes.start(units(3), limit_s=60)
    cluster.play(leave=0)
    with pytest.raises(TargetFailed, match=r"3 are still there, 0 are to be left, and none went away for 0\.5 s"):
        kubernetes.down(drain_s=0.1)


def test_what_is_not_ready_is_seen_as_failing(target: Make, cluster: Any) -> None:
    kubernetes = target()
    kubernetes.start(units(2), limit_s=60)
    cluster.play(unready={"prod-w1": {"reason": "CrashLoopBackOff", "message": "it ends"}})
    seen = kubernetes.observe()
    assert [(one.status, one.restarts) for one in seen] == [("failing", 3)] * 2
    assert "it ends" in seen[0].why
    said = kubernetes.health(names(units(2)))
    assert all(not one.ready and "CrashLoopBackOff" in one.why for one in said.values())


def test_health_reads_the_counters_of_each_pod(target: Make, cluster: Any) -> None:
    kubernetes = target()
    kubernetes.start(units(2), limit_s=60)
    cluster.play(raw={"loads": {"w1.a": {"arrived": 7, "served": 6}}})
    said = kubernetes.health([*names(units(2)), "unknown"])
    assert set(said) == set(names(units(2)))
    assert all(one.ready and one.loads == {"w1.a": {"arrived": 7, "served": 6}} for one in said.values())
    paths = [word for call in cluster.calls for word in call["words"] if "/proxy/" in word]
    assert len(set(paths)) == 2
    assert all(path.endswith(":8080/proxy/metrics") for path in paths)


@pytest.mark.slow
def test_routes_are_followed_without_a_new_router_pod_where_it_says_what_it_follows(target: Make, cluster: Any) -> None:
    def template() -> Any:
        return next(one for one in cluster.objects.values() if one["kind"] == "Deployment")["spec"]["template"]

    kubernetes = target()
    kubernetes.route({"revision": "1"}, limit_s=60)
    first = template()
    cluster.forget_calls()
    kubernetes.route({"revision": "2"}, limit_s=60)
    assert template() == first
    assert "hetplan/routes=2" in next(call["words"] for call in cluster.calls if call["words"][0] == "annotate")
    assert target().routed()["revision"] == "2"


@pytest.mark.slow
def test_a_router_pod_that_ends_while_it_is_marked_is_no_fault(target: Make, cluster: Any) -> None:
    """In a roll of the router old pods go while the new routes are made known."""
    kubernetes = target()
    kubernetes.route({"revision": "1"}, limit_s=60)
    cluster.play(fail={"annotate": 'Error from server (NotFound): pods "prod-router-1" not found'})
    kubernetes.route({"revision": "2"}, limit_s=60)
    assert kubernetes.routed()["revision"] == "2"
    cluster.play(fail={"annotate": "Error from server (Forbidden): pods is forbidden"})
    with pytest.raises(TargetFailed, match="Forbidden"):
        kubernetes.route({"revision": "3"}, limit_s=60)


def test_what_the_server_gave_a_service_is_not_applied_when_going_back(target: Make, cluster: Any) -> None:
    """Once applied by us it would be ours, and every later apply without it refused: a clusterIP cannot be unset."""
    kubernetes = target()
    kubernetes.route({"revision": "1"}, limit_s=60)
    objects = cluster.objects
    (service,) = (one for one in objects.values() if one["kind"] == "Service")
    given = {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ipFamilies": ["IPv4"]}
    made = json.loads(json.dumps(service["spec"]))
    service["spec"] |= given
    service["spec"]["ports"][0]["nodePort"] = 30100
    (cluster.folder / "objects.json").write_text(json.dumps(objects))
    cluster.play(fail={"annotate": "Error from server (Forbidden): pods is forbidden"})
    with pytest.raises(TargetFailed, match="Forbidden"):
        kubernetes.route({"revision": "2"}, limit_s=60)
    (service,) = (one for one in cluster.objects.values() if one["kind"] == "Service")
    assert service["spec"] == made


@pytest.mark.slow
def test_a_router_that_cannot_be_asked_is_rolled(target: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetplan.executor.kubernetes.target._FOLLOW_S", 0.0)
    kubernetes = target()
    cluster.play(deaf=True)
    for number in (1, 2, 3):
        cluster.forget_calls()
        kubernetes.route({"revision": str(number)}, limit_s=60)
        assert kubernetes.routed()["revision"] == str(number)
    assert cluster.verbs.count("rollout") == 1, "the second time at once"


@pytest.mark.slow
def test_routes_are_written_and_read_back(target: Make, cluster: Any) -> None:
    kubernetes = target()
    assert kubernetes.routed() is None
    for routes in ({"apps": {"a": 1}}, {"apps": {"a": 2}}):
        kubernetes.route(routes, limit_s=60)
        routed = kubernetes.routed()
        assert routed.pop("router_address").endswith(".default.svc"), "where queries go, within the cluster"
        assert routed.pop("router_port") == 8080
        assert routed == routes
    assert cluster.kinds() == ["ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"]
    assert kubernetes.observe() == ()
    kubernetes.route(None, limit_s=60)
    assert kubernetes.routed() is None
    assert cluster.objects == {}


def test_down_leaves_nothing_and_touches_no_other_deployment(target: Make, cluster: Any) -> None:
    kubernetes = target()
    kubernetes.start(units(2), limit_s=60)
    kubernetes.route({"apps": {}}, limit_s=60)
    stranger = {"kind": "Deployment", "metadata": {"name": "x", "labels": {"app.kubernetes.io/managed-by": "hetplan"}}}
    stranger |= {"spec": {"replicas": 0, "template": {"metadata": {"labels": {}}}}}
    (cluster.folder / "objects.json").write_text(json.dumps({**cluster.objects, "Deployment/x": stranger}))
    kubernetes.down(drain_s=0.1)
    assert list(cluster.objects) == ["Deployment/x"]


def test_check_has_the_server_look_at_the_manifests_and_changes_nothing(target: Make, cluster: Any) -> None:
    assert target().check(units(2)) == []
    assert "--dry-run=server" in cluster.calls[-1]["words"]
    assert cluster.objects == {}
    cluster.play(fail={"apply": 'namespaces "default" not found'})
    assert target().check(units(2)) == ['kubectl apply failed: namespaces "default" not found']


def test_check_says_what_hinders_before_anything_is_asked(target: Make, cluster: Any) -> None:
    assert "there is no program" in target(kubectl="/no/such/kubectl").check(units(1))[0]
    uneven = [replace(unit, loads=(LoadSpec("a", share_gpu=0.3),)) for unit in units(1)]
    assert "0.3 of a GPU" in target().check(uneven)[0]
    assert cluster.calls == []


def test_check_refuses_machines_of_unknown_gpus_and_nodes(target: Make, cluster: Any) -> None:
    (why,) = target(hardware={"t4": {"gpu": 1}}).check(units(2))
    assert "hardware.t4.node_selector (found nothing)" in why
    assert cluster.calls == []


def test_diff_shows_what_kubectl_shows(target: Make, cluster: Any) -> None:
    kubernetes = target()
    assert "+ Deployment/prod-w1-" in kubernetes.diff(units(1))
    kubernetes.start(units(1), limit_s=60)
    assert kubernetes.diff(units(1)).strip() == ""
    cluster.play(fail={"diff": "the server is down"})


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("verb", ["get", "apply", "rollout"])
def test_what_kubectl_says_is_in_the_failure(target: Make, cluster: Any, verb: str) -> None:
    cluster.play(fail={verb: "The connection to the server 10.0.0.1:6443 was refused"})
    with pytest.raises(TargetFailed, match=f"kubectl {verb}.*10.0.0.1:6443 was refused"):
        target().start(units(1), limit_s=60)


def test_a_kubectl_that_hangs_is_ended(target: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetplan.executor.kubernetes.kubectl._GRACE_S", 0.1)
    cluster.play(slow_s={"get": 30})
    with pytest.raises(TargetFailed, match="did not end within"):
        target(limits={"call_s": 0.2}).observe()


def test_settings_are_checked(target: Make) -> None:
    with pytest.raises(InputError, match="namespace"):
        target(namespace="Not A Namespace")
    with pytest.raises(InputError, match="imag"):
        target(imagee="typo")


def contents(kubernetes: Any, wanted: list[Unit]) -> list[bool]:
    """Whether each unit is seen with the content that is wanted."""
    here = {one.name: one.content for one in kubernetes.observe()}
    return [here[unit.name] == unit.content for unit in wanted]


def test_ready_pods_of_an_older_template_are_not_the_new_ones(target: Make, cluster: Any) -> None:
    """As an apply that was killed in mid-roll leaves them: the Deployment is new, what runs is not."""
    kubernetes = target()
    kubernetes.start(units(2), limit_s=60)
    assert [one.status for one in kubernetes.observe()] == ["ready"] * 2
    cluster.play(**{"old pods": ["prod-w1"]})
    assert [one.status for one in kubernetes.observe()] == ["starting"] * 2
    assert not any(one.ready for one in kubernetes.health(names(units(2))).values())


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "other",
    [{"image": "registry.example/hetplan:2"}, {"hardware": {"t4": {"cpu_cores": 2}}}, {"environment": {"A": "b"}}],
)
def test_what_hosts_toml_says_anew_is_a_difference(target: Make, cluster: Any, other: dict[str, Any]) -> None:
    two = units(2)
    target().start(two, limit_s=60)
    assert contents(target(), two) == [True, True]
    changed = target(**other)
    assert contents(changed, two) == [False, False]
    changed.load(two, limit_s=60)
    assert contents(changed, two) == [True, True]


def test_routes_of_another_manifest_are_not_what_is_wanted(target: Make) -> None:
    target().route({"revision": "1"}, limit_s=60)
    assert target().routed()["revision"] == "1"
    assert target(image="registry.example/hetplan:2").routed()["revision"] != "1"


@pytest.mark.slow
def test_replicas_that_somebody_changed_are_a_difference(target: Make, cluster: Any) -> None:
    kubernetes, two = target(), units(2)
    kubernetes.start(two, limit_s=60)
    objects = cluster.objects
    for one in objects.values():
        if one["kind"] == "Deployment":
            one["spec"]["replicas"] = 5
    (cluster.folder / "objects.json").write_text(json.dumps(objects))
    assert contents(kubernetes, two) == [False, False]
    kubernetes.load(two, limit_s=60)
    assert contents(kubernetes, two) == [True, True]


@pytest.mark.slow
def test_going_back_brings_the_former_image_too(target: Make, cluster: Any) -> None:
    target().start(units(2), limit_s=60)
    before = cluster.objects
    cluster.play(unready={"prod-w1": {"reason": "ImagePullBackOff", "message": "no such image"}})
    with pytest.raises(TargetFailed, match="no such image"):
        target(image="registry.example/hetplan:bad").start(units(3), limit_s=60)
    assert cluster.objects == before


def test_a_quota_is_named(target: Make, cluster: Any) -> None:
    kubernetes = target()
    kubernetes.start(units(1), limit_s=60)
    objects = cluster.objects
    for one in objects.values():
        if one["kind"] == "Deployment":
            said = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods, limited: pods=3"}
            one["status"] = {"conditions": [said]}
    (cluster.folder / "objects.json").write_text(json.dumps(objects))
    cluster.play(unready={"prod-w1": {"reason": "ContainerCreating", "message": ""}})
    (seen,) = kubernetes.observe()
    assert (seen.status, "exceeded quota" in seen.why) == ("failing", True)


def test_a_field_of_somebody_else_is_named_with_its_owner(target: Make, cluster: Any) -> None:
    said = (
        'error: Apply failed with 1 conflict: conflict with "kubectl-set" using apps/v1: '
        '.spec.template.spec.containers[name="worker"].image\nPlease review the fields above--they currently have other'
    )
    cluster.play(fail={"apply": said})
    with pytest.raises(TargetFailed, match=r"kubectl-set owns \.spec\.template.*\.image\. Leave it to kubectl-set, or"):
        target().start(units(1), limit_s=60)
    cluster.play()
    target(take_over=True).start(units(1), limit_s=60)
    assert any("--force-conflicts" in call["words"] for call in cluster.calls if call["words"][0] == "apply")


@pytest.mark.slow
def test_an_api_server_that_is_away_for_a_moment_is_asked_again(target: Make, cluster: Any) -> None:
    cluster.play(away=2)
    assert target().observe() == ()
    assert cluster.verbs == ["get"] * 3


def test_groups_roll_side_by_side_and_each_as_long_as_its_waves_take(target: Make, cluster: Any) -> None:
    target().start(units(8) + units(2, "w2"), limit_s=10)
    limits = {
        call["words"][2].split("/")[1][:7]: next(word for word in call["words"] if word.startswith("--timeout="))
        for call in cluster.calls
        if call["words"][0] == "rollout"
    }
    assert limits == {"prod-w1": "--timeout=40s", "prod-w2": "--timeout=20s"}
    rolling = {
        one["metadata"]["name"][:7]: one["spec"]["strategy"]["rollingUpdate"]["maxSurge"]
        for one in cluster.objects.values()
        if one["kind"] == "Deployment"
    }
    assert rolling == {"prod-w1": 2, "prod-w2": 1}
