"""What an apply must not lose: what ran without a record, what others own, and queries while groups change."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cases.in_a_cluster import rendered

from hetplan.executor.apply.cluster import Rendered
from hetplan.executor.apply.platform import Platform
from hetplan.executor.render import kserve, llm_d
from hetplan.executor.render.groups import Application, Fleet, Group
from hetplan.executor.render.kubernetes import render
from hetplan.executor.render.names import objects_of
from hetplan.executor.site import read_site
from hetplan.executor.target import ApplyFailed
from hetplan.profiles.canonical import digest

Make = Callable[..., Platform]
NO_IMAGE = {"ask": {"reason": "ImagePullBackOff", "message": "no such image"}}


def what_is_there(cluster: Any) -> dict[str, Any]:
    """All but the record."""
    return {name: one for name, one in cluster.objects.items() if name != "ConfigMap/prod-applied"}


@pytest.mark.parametrize("how", ["by hand", "record lost"])
def test_what_ran_without_a_record_runs_again_after_a_failure(platform: Make, cluster: Any, how: str) -> None:
    if how == "by hand":
        cluster.put(*rendered(rank=4).objects)
    else:
        platform().apply(rendered(rank=4))
        cluster.edit("ConfigMap", lambda one: one.update(binaryData={"files.json.gz": "bm90IGd6aXA="}))
    before = what_is_there(cluster)
    cluster.play(unready=NO_IMAGE)
    with pytest.raises(ApplyFailed):
        platform().apply(rendered("registry.example/net:typo", rank=4, ask=1))
    assert what_is_there(cluster) == before
    cluster.play()
    platform().undo()
    assert what_is_there(cluster) == before


def test_undo_deletes_nothing_of_which_there_is_no_record(platform: Make, cluster: Any) -> None:
    cluster.put(*rendered(rank=4).objects)
    before = cluster.objects
    for go_back in (platform().changes_back, platform().undo):
        with pytest.raises(ApplyFailed, match=r"nothing is on record to go back to, and 3 objects are there.*down"):
            go_back()
    assert cluster.objects == before


def test_what_the_server_added_is_not_put_back(platform: Make, cluster: Any) -> None:
    cluster.put(*rendered(rank=1).objects)
    cluster.edit("Service", lambda one: one["spec"].update(clusterIP="10.0.0.9", clusterIPs=["10.0.0.9"]))
    cluster.edit("Deployment", lambda one: one["metadata"].update(uid="1", managedFields=[]))
    found = platform().cluster.observed()
    assert {one["kind"] for one in found.objects} == {"Deployment", "Service", "PodDisruptionBudget"}
    assert found.objects == rendered(rank=1).objects


def test_a_config_map_of_somebody_elses_is_not_taken(platform: Make, cluster: Any) -> None:
    stranger = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "prod-applied"}, "data": {"their": "s"}}
    cluster.put(stranger)
    with pytest.raises(ApplyFailed, match=r"ConfigMap prod-applied.*not of this deployment"):
        platform().apply(rendered(rank=1))
    platform().down()
    assert list(cluster.objects.values()) == [stranger]


def split(image: str = "registry.example/net:1", **parts: float) -> Rendered:
    """A group of two pods for each part, behind a Gateway."""
    groups = tuple(
        Group(f"rank-{name}", "rank", name, name, ((0.0, 2),), apps=("rank",), share={"rank": part})
        for name, part in parts.items()
    )
    said = {
        "gateway": "gw",
        "models": {name: {"image": image} for name in parts},
        "machines": {name: {"selector": {"pool": name}} for name in parts},
    }
    plan = digest(parts)
    apps = {"rank": Application("rank", dns="rank")}
    return Rendered(plan, render(Fleet(groups, apps, ((0.0, None),), "prod", plan), read_site(said)))


@pytest.mark.parametrize("surge", [False, True])
def test_queries_go_only_to_groups_that_are_ready(platform: Make, cluster: Any, surge: bool) -> None:
    """At no call does a route lead to a group that is not ready yet, or not there any more."""
    platform(surge=surge).apply(split(a=0.8, b=0.2))
    cluster.forget_calls()
    platform(surge=surge).apply(split(c=0.8, b=0.2))
    ready, routed = {"rank-a", "rank-b"}, {"rank-a", "rank-b"}
    for call in cluster.calls:
        verb, words = call["words"][0], call["words"]
        if verb == "apply" and "--dry-run=server" not in words:
            for one in call["given"]["items"]:
                if one["kind"] == "HTTPRoute":
                    routed = {ref["name"] for ref in one["spec"]["rules"][0]["backendRefs"]}
        elif verb == "rollout":
            ready.add(words[2].split("/")[1])
        elif verb == "delete":
            ready -= {word.split("/")[1] for word in words if word.startswith("deployments.apps/")}
        assert routed <= ready, words
    assert routed == ready == {"rank-b", "rank-c"}


@pytest.mark.parametrize("surge", [False, True])
def test_a_pod_finds_its_file_until_the_roll_is_over_and_after_the_way_back(
    platform: Make, cluster: Any, surge: bool
) -> None:
    def behind_haproxy(count: int, image: str = "registry.example/net:1") -> Rendered:
        group = Group("rank-net-cpu", "rank", "net", "cpu", ((0.0, count),), apps=("rank",))
        plan, apps, rules = (
            digest([count, image]),
            {"rank": Application("rank", dns="rank")},
            {"rank": "weighted-least"},
        )
        fleet = Fleet((group,), apps, ((0.0, None),), "prod", plan, rules=rules)
        return Rendered(plan, render(fleet, read_site({"models": {"net": {"image": image}}})))

    def files(wanted: Rendered) -> set[str]:
        return {one["metadata"]["name"] for one in wanted.objects if one["kind"] == "ConfigMap"}

    old, new, typo = behind_haproxy(2), behind_haproxy(30), behind_haproxy(90, "registry.example/net:typo")
    assert len(files(old) | files(new) | files(typo)) == 3
    platform(surge=surge).apply(old)
    cluster.forget_calls()
    platform(surge=surge).apply(new)
    words = [call["words"] for call in cluster.calls]
    (gone,) = (at for at, one in enumerate(words) if one[0] == "delete" and f"configmaps/{min(files(old))}" in one)
    assert all(at < gone for at, one in enumerate(words) if one[0] == "rollout")
    before = what_is_there(cluster)
    cluster.play(unready={"rank": NO_IMAGE["ask"]})
    with pytest.raises(ApplyFailed):
        platform(surge=surge).apply(typo)
    cluster.play()
    platform(surge=surge).undo()
    assert what_is_there(cluster) == before


def test_two_namespaces_share_neither_names_nor_labels_nor_journal(platform: Make, cluster: Any) -> None:
    wide, marks = [], []
    for namespace in ("live", "trial"):
        group = Group("rank-net-t4", "rank", "net", "t4", ((0.0, 2),), apps=("rank",), machine_gpus=1, gpus=1)
        said = {"namespace": namespace, "models": {"net": {"image": "x"}}, "machines": {"t4": {"selector": {"a": "b"}}}}
        fleet = Fleet((group,), {"rank": Application("rank", dns="rank")}, ((0.0, None),), "shop", digest(namespace))
        files = render(fleet, read_site(said), nodes="karpenter", quota="kueue")
        found = [one for name, text in files.items() for one in objects_of(text, name)]
        marks += [{tuple(sorted(one["metadata"]["labels"].items())) for one in found}]
        wide += [{(one["kind"], one["metadata"]["name"]) for one in found if "namespace" not in one["metadata"]}]
    limits = [one["spec"]["limits"] for one in found if one["kind"] == "NodePool"]
    assert limits == [{"nvidia.com/gpu": "3"}], "two, and one more while they are rolled"
    assert {kind for kind, _ in wide[0]} == {"NodePool", "ResourceFlavor", "ClusterQueue"}
    assert not wide[0] & wide[1]
    assert not marks[0] & marks[1]
    folders = [
        Platform(read_site({"name": "shop", "namespace": space, "cluster": {"context": context}})).folder
        for space in ("live", "trial")
        for context in ("east", "west")
    ]
    assert len(set(folders)) == 4


def test_files_of_other_targets_are_not_pruned(platform: Make, cluster: Any) -> None:
    group = Group("chat-net-cpu", "chat", "net", "cpu", ((0.0, 2),), apps=("chat",), max_seqs=8)
    site = read_site({"gateway": "gw", "models": {"net": {"image": "x", "model_uri": "hf://a/b"}}})
    fleet = Fleet((group,), {"chat": Application("chat", dns="chat")}, ((0.0, None),), "prod", digest("x"))
    others = [
        one
        for files in (kserve.render(fleet, site), llm_d.render(fleet, site))
        for name, text in files.items()
        if name.endswith(".yaml")
        for one in objects_of(text, name)
        if one["kind"] in ("Deployment", "Service", "HTTPRoute")
    ]
    assert others
    cluster.put(*others)
    before = cluster.objects
    platform().apply(rendered(rank=1))
    platform().down()
    assert cluster.objects == before


def test_what_runs_is_told_whole(platform: Make, cluster: Any) -> None:
    load = {"node": "see", "variant": "net", "at": {"batch": 4.0}, "knobs": {"k": 1}, "instances": 2}
    load |= {"share": {"gpu": 0.5}, "serve": {"max_batch": 4, "concurrency": 3}}
    group = Group("shared-net", "shared", "net", "a.100_x", ((0.0, 3),), per_machine=2, offer="on.demand-eu", load=load)
    site = read_site({"models": {"net": {"image": "x"}}, "machines": {"a.100_x": {"selector": {"a": "b"}}}})
    fleet = Fleet((group,), {}, ((0.0, None),), "prod", digest("x"))
    platform().apply(Rendered(fleet.digest, render(fleet, site)))
    (worker,) = Platform.state(platform().groups()).workers
    assert (worker.hardware, worker.offer, worker.count) == ("a.100_x", "on.demand-eu", 3)
    (said,) = worker.loads
    assert json.loads(said.model_dump_json(exclude_defaults=True)) == {"id": "shared-net.model", **load}


def test_images_are_pulled_with_the_secrets_of_the_site() -> None:
    group = Group("rank-net-cpu", "rank", "net", "cpu", ((0.0, 1),), apps=("rank",))
    site = read_site({"models": {"net": {"image": "x"}}, "image_pull_secrets": ["hub"]})
    fleet = Fleet((group,), {"rank": Application("rank", dns="rank")}, ((0.0, None),), "prod", digest("x"))
    (made,) = [
        one
        for one in objects_of(render(fleet, site)["kubernetes.yaml"], "kubernetes.yaml")
        if one["kind"] == "Deployment"
    ]
    assert made["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "hub"}]


def test_an_annotation_that_somebody_took_off_does_not_stop_status(platform: Make, cluster: Any) -> None:
    platform().apply(rendered(rank=2))
    cluster.edit("Deployment", lambda one: one["metadata"].update(annotations={}))
    (one,) = platform().groups()
    assert (one.ready, one.told["model"]) == (2, "unknown")
    assert Platform.state([one]).workers[0].count == 2
