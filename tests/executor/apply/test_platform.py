"""A plan in a cluster: up, changed, gone back from, cut off at any call, and down."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from cases.in_a_cluster import rendered

from hetplan.errors import InputError
from hetplan.executor.apply import cluster as cluster_module
from hetplan.executor.apply.cluster import KINDS, Rendered
from hetplan.executor.apply.platform import Platform
from hetplan.executor.render.names import objects_of
from hetplan.executor.target import ApplyFailed, TargetFailed

Make = Callable[..., Platform]


def test_a_plan_comes_up_changes_and_goes(platform: Make, cluster: Any) -> None:
    mine = platform()
    assert mine.apply(rendered(rank=2))
    assert cluster.deployments == {"rank-net-cpu": 2}
    assert cluster.kinds() == ["ConfigMap", "Deployment", "PodDisruptionBudget", "Service"]
    cluster.forget_calls()
    assert mine.apply(rendered(rank=2)) == (), "the second apply of a plan changes nothing"
    assert cluster.changes == []
    mine.apply(rendered(rank=3, ask=1))
    assert cluster.deployments == {"ask-net-cpu": 1, "rank-net-cpu": 3}
    mine.apply(rendered(ask=1))
    assert cluster.deployments == {"ask-net-cpu": 1}
    mine.down()
    assert cluster.objects == {}


def test_a_change_in_place_goes_the_same_way_as_a_start(platform: Make, cluster: Any) -> None:
    platform().apply(rendered(rank=2))
    assert cluster.changes == ["record", "apply", "rollout"], "and what there was before is on record, too"
    cluster.forget_calls()
    platform().apply(rendered("registry.example/net:2", rank=2))
    assert cluster.changes == ["apply", "rollout", "record"]


@pytest.mark.parametrize(
    ("surge", "order"),
    [(False, ["delete", "apply", "rollout", "record"]), (True, ["apply", "rollout", "delete", "record"])],
)
def test_what_goes_makes_room_first_unless_there_is_room_for_both(
    platform: Make, cluster: Any, surge: bool, order: list[str]
) -> None:
    platform(surge=surge).apply(rendered(rank=1, surge=surge))
    cluster.forget_calls()
    platform(surge=surge).apply(rendered(ask=1, surge=surge))
    assert cluster.changes == order


@pytest.mark.parametrize("surge", [False, True])
def test_a_roll_replaces_a_quarter_at_a_time_and_has_the_time_of_its_waves(
    platform: Make, cluster: Any, surge: bool
) -> None:
    platform().apply(rendered(rank=8, ask=2, surge=surge))
    limits = {
        call["words"][2]: word
        for call in cluster.calls
        if call["words"][0] == "rollout"
        for word in call["words"]
        if word.startswith("--timeout=")
    }
    assert limits == {"deployment/rank-net-cpu": "--timeout=240s", "deployment/ask-net-cpu": "--timeout=120s"}
    spec = cluster.objects["Deployment/rank-net-cpu"]["spec"]
    room = {"maxSurge": 2, "maxUnavailable": 0} if surge else {"maxSurge": 0, "maxUnavailable": 2}
    assert spec["strategy"]["rollingUpdate"] == room
    assert spec["progressDeadlineSeconds"] == 60


def test_a_rollout_that_fails_goes_back_to_what_ran(platform: Make, cluster: Any) -> None:
    platform().apply(rendered(rank=2))
    before = cluster.objects
    cluster.play(unready={"ask": {"reason": "Unschedulable", "message": "0/3 nodes are available"}})
    with pytest.raises(ApplyFailed, match=r"ask-net-cpu.*0/3 nodes are available.*What ran before runs") as failed:
        platform().apply(rendered("registry.example/net:2", rank=2, ask=1))
    assert failed.value.undone
    assert cluster.objects == before
    assert platform().unfinished() is None
    cluster.play()
    platform().apply(rendered(rank=2, ask=1))
    assert [one.ready for one in platform().groups()] == [2, 1]


def test_a_first_apply_that_fails_leaves_nothing(platform: Make, cluster: Any) -> None:
    cluster.play(unready={"rank": {"reason": "ImagePullBackOff", "message": "no such image"}})
    with pytest.raises(ApplyFailed, match="no such image"):
        platform().apply(rendered(rank=2))
    assert cluster.objects == {}


def test_a_failure_that_cannot_be_taken_back_says_both(platform: Make, cluster: Any) -> None:
    cluster.play(
        unready={"rank": {"reason": "Pending", "message": "exceeded quota: few"}},
        fail={"delete deployments": "timed out waiting"},
    )
    with pytest.raises(ApplyFailed, match=r"exceeded quota: few.*Going back failed too.*timed out waiting"):
        platform().apply(rendered(rank=2))
    assert platform().unfinished() is not None
    cluster.play()
    platform().undo()
    assert cluster.objects == {}


def cut_off(platform: Platform, wanted: Rendered) -> None:
    """The apply in a process of its own, which is killed as the cluster plays it."""
    child = os.fork()
    if child == 0:
        try:
            platform.apply(wanted)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


WAYS = ("new", "third", "back")


@pytest.mark.slow
@pytest.mark.parametrize("surge", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_apply_that_is_killed_at_any_call_is_finished_or_undone(
    platform: Make, cluster: Any, when: str, surge: bool
) -> None:
    """By the same plan, by another one, or by going back."""
    old, new, third = (
        rendered("registry.example/net:1", rank=2, ask=1, surge=surge),
        rendered("registry.example/net:2", rank=3, more=1, surge=surge),
        rendered("registry.example/net:3", ask=2, surge=surge),
    )
    ends = {}
    for name, wanted in (("old", old), ("new", new), ("third", third)):
        platform(surge=surge).apply(wanted)
        ends[name] = cluster.objects
        platform(surge=surge).down()
    platform(surge=surge).apply(old)
    cluster.forget_calls()
    platform(surge=surge).apply(new)
    calls = len(cluster.calls)
    assert calls > 10
    cuts, turn = 0, 2 * surge + (when == "after")
    for at in range(1, calls + 1):
        (cluster.folder / "objects.json").write_text(json.dumps(ends["old"]))
        cluster.forget_calls()
        cluster.play(kill=[at, when])
        cut_off(platform(surge=surge), new)
        cluster.play()
        cuts += platform().unfinished() is not None
        then, again = WAYS[(at + turn) % len(WAYS)], platform(surge=surge)
        if then == "back":
            # The record may say already that the new one was brought about: then that is what ran last.
            end = "old" if again.cluster.kept() == old else "new"
            again.undo()
        else:
            end = then
            again.apply({"new": new, "third": third}[then])
        assert cluster.objects == ends[end], (at, then)
        assert platform().unfinished() is None
    assert cuts >= calls / 3


def test_undo_goes_back_from_any_folder_whatever_site_toml_says_by_now(
    platform: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform().apply(rendered(rank=2))
    before = cluster.objects
    cluster.play(fail={"rollout": "cut"}, unready={})
    monkeypatch.setattr(Platform, "_tasks_back", lambda *_: [])
    with pytest.raises(ApplyFailed):
        platform().apply(rendered("registry.example/net:bad", rank=5))
    monkeypatch.undo()
    assert cluster.objects != before
    cluster.play()
    other = platform("elsewhere", surge=True)
    assert ("Deployment", "rank-net-cpu") in other.changes_back().changed
    other.undo()
    assert cluster.objects == before


def test_a_record_that_somebody_wrote_over_is_none(platform: Make, cluster: Any) -> None:
    platform().apply(rendered(rank=1))
    cluster.edit("ConfigMap", lambda one: one.update(binaryData={"files.json.gz": "bm90IGd6aXA="}))
    assert platform().cluster.kept() is None
    platform().apply(rendered(rank=1))
    assert platform().cluster.kept() == rendered(rank=1)


def test_objects_of_others_are_neither_taken_nor_deleted(platform: Make, cluster: Any) -> None:
    mine = {"app.kubernetes.io/managed-by": "hetplan", "hetplan.dev/deployment": "another"}
    stranger = {"kind": "Service", "metadata": {"name": "rank", "labels": mine}}
    cluster.put(stranger)
    with pytest.raises(ApplyFailed, match=r"Service rank.*not of this deployment"):
        platform().apply(rendered(rank=1))
    assert list(cluster.objects.values()) == [stranger]
    platform().apply(rendered(ask=1))
    platform().down()
    assert list(cluster.objects.values()) == [stranger]


def test_all_kinds_that_are_rendered_are_found_again(platform: Make) -> None:
    from executor.render.test_targets import rendered as of_target

    kinds = set()
    for seed in range(12):
        _, files = of_target("kubernetes", seed)
        kinds |= {one["kind"] for name, text in files.items() for one in objects_of(text, name)}
    assert {"Deployment", "Service", "PodDisruptionBudget"} <= kinds <= set(KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["down", "change"])
def test_many_pods_may_end_one_after_the_other(
    platform: Make, cluster: Any, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together they take longer than a pod may; a fixed time for all of them failed at 176."""
    monkeypatch.setattr(cluster_module, "_LOOK_S", 0.01)
    mine = platform()
    monkeypatch.setattr(type(mine.cluster), "_longest_end_s", lambda *_: 1.5)
    mine.apply(rendered(rank=12))
    cluster.play(leave=1, slow_s={"get": 0.2})
    began = time.monotonic()
    mine.down() if end == "down" else mine.apply(rendered(ask=1))
    assert time.monotonic() - began > 1.5
    assert not [one for one in cluster.objects if one.startswith(("Pod/", "Deployment/rank"))]


def test_pods_that_do_not_end_are_counted(platform: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "_LOOK_S", 0.01)
    mine = platform()
    monkeypatch.setattr(type(mine.cluster), "_longest_end_s", lambda *_: 0.5)
    mine.apply(rendered(rank=3))
    cluster.play(leave=0)
    with pytest.raises(TargetFailed, match=r"3 are still there, none are to be left, and none went away for 0\.5 s"):
        mine.down()


def test_a_plan_whose_files_no_config_map_holds_is_refused_before_anything_is_touched(
    platform: Make, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "LARGEST_CONFIG_BYTES", 100)
    with pytest.raises(InputError, match="ConfigMap, which holds 100 bytes"):
        platform().apply(rendered(rank=1))
    assert cluster.objects == {}
    assert platform().unfinished() is None


def test_what_runs_is_read_from_the_cluster(platform: Make, cluster: Any) -> None:
    platform().apply(rendered(rank=2))
    (one,) = platform("elsewhere").groups()
    assert (one.name, one.wanted, one.ready, one.why) == ("rank-net-cpu", 2, 2, "")
    (worker,) = platform().state([one]).workers
    assert (worker.hardware, worker.count, worker.loads[0].variant) == ("cpu", 2, "net")
    cluster.play(unready={"rank": {"reason": "CrashLoopBackOff", "message": "it ends"}})
    assert platform().missing() == ["rank-net-cpu: 0 of 2 are ready: " + platform().groups()[0].why]
    assert "it ends" in platform().groups()[0].why
    # As an apply that was killed in mid-roll leaves them: the Deployment is new, what runs is not.
    cluster.play(status={"replicas": 3, "updatedReplicas": 1, "readyReplicas": 2})
    assert platform().groups()[0].ready == 0
    cluster.play()
    cluster.edit("Deployment", lambda one: one["metadata"].update(generation=2))
    assert platform().groups()[0].ready == 0, "the server has not looked at it yet"


def test_a_quota_is_named(platform: Make, cluster: Any) -> None:
    platform().apply(rendered(rank=1))
    said = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods, limited: pods=3"}
    cluster.play(status={"readyReplicas": 0, "conditions": [said]})
    assert "exceeded quota" in platform().missing()[0]
