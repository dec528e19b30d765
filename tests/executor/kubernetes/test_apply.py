"""A whole deployment in a cluster: up before down, queries led away before a stop, nothing left of what went."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor.deployment import Deployment
from hetplan.executor.hosts_file import read_hosts
from hetplan.executor.kubernetes.target import Kubernetes
from hetplan.executor.target import ApplyFailed
from hetplan.profiles.plan import InputHashes, Method, Plan, Route
from hetplan.profiles.plan_file import with_digest
from hetplan.profiles.plan_sections import SharesDispatch
from hetplan.profiles.workers import Load, Serve, Worker


def plan(*groups: tuple[str, int], batch: int = 1) -> Plan:
    """Groups (worker, count) that share one application's queries."""
    total = sum(count for _, count in groups)
    serve = Serve(max_batch=batch)
    return with_digest(
        Plan(
            question="pool",
            method=Method(formulation="by hand"),
            inputs=InputHashes(profile="sha256:01", slo="sha256:02"),
            workers=tuple(
                Worker(
                    id=name,
                    hardware="t4",
                    count=count,
                    loads=(Load(id=f"{name}.a", app="rank", variant="m", serve=serve),),
                )
                for name, count in groups
            ),
            routing={"rank": (Route(to={f"{name}.a": count / total for name, count in groups}),)},
            dispatch={"rank": SharesDispatch(rule="shares/1")},
        )
    )


@pytest.fixture
def deployment(cluster: Any, tmp_path: Path) -> Iterator[Deployment]:
    settings = {"kubectl": cluster.program, "image": "registry.example/hetplan:1", "hardware": {"t4": {"gpu": 0}}}
    hosts = read_hosts(
        {
            "name": "prod",
            "state_dir": str(tmp_path / "state"),
            "limits": {"call_s": 60.0, "start_s": 60.0, "drain_s": 1.0},
            "targets": {"cluster": {"kind": "kubernetes", "settings": settings}},
            "hosts": {"pool": {"target": "cluster", "hardware": "t4", "machines": 10}},
            "models": [{"kind": "sleep", "ms": 2.0}],
        }
    )
    kinds: dict[str, Callable[..., Any]] = {"kubernetes": Kubernetes}
    with Deployment(hosts, targets=kinds.__getitem__) as made:
        yield made


def changes(cluster: Any) -> list[str]:
    """The calls that changed something: what was applied or deleted, by kind and name without its digest."""
    said = []
    for call in cluster.calls:
        words = call["words"]
        if words[0] == "apply" and "--dry-run=server" not in words:
            made = [one["metadata"]["name"] for one in call["given"]["items"] if one["kind"] == "Deployment"]
            said += [f"apply {name.rsplit('-', 1)[0]}" for name in made]
        elif words[0] == "delete":
            gone = [word for word in words if word.startswith("deployments.apps/")]
            said += [f"delete {name.split('/')[1].rsplit('-', 1)[0]}" for name in gone]
    return said


@pytest.mark.slow
def test_new_workers_are_up_before_queries_move_and_old_ones_go(deployment: Deployment, cluster: Any) -> None:
    deployment.apply(plan(("w1", 2)))
    assert changes(cluster) == ["apply prod-w1", "apply prod-router"]
    cluster.forget_calls()
    deployment.apply(plan(("w2", 2)))
    done = changes(cluster)
    assert done[:3] == ["apply prod-w2", "apply prod-router", "delete prod-w1"]
    assert cluster.kinds().count("Deployment") == 2
    deployment.down()
    assert cluster.objects == {}


@pytest.mark.slow
def test_the_second_apply_of_a_plan_changes_nothing(deployment: Deployment, cluster: Any) -> None:
    deployment.apply(plan(("w1", 2), ("w2", 1)))
    cluster.forget_calls()
    assert deployment.apply(plan(("w1", 2), ("w2", 1))).steps == ()
    assert changes(cluster) == []
    assert not deployment.difference(plan(("w1", 2), ("w2", 1)))
    assert deployment.difference(plan(("w1", 2), ("w2", 1), batch=4)).change


@pytest.mark.slow
def test_a_rollout_that_fails_goes_back_to_what_ran(deployment: Deployment, cluster: Any) -> None:
    deployment.apply(plan(("w1", 2)))
    before = cluster.objects
    cluster.play(unready={"prod-w2": {"reason": "Unschedulable", "message": "0/3 nodes are available"}})
    with pytest.raises(ApplyFailed, match="0/3 nodes are available") as failed:
        deployment.apply(plan(("w1", 2), ("w2", 1)))
    assert failed.value.undone
    assert cluster.objects == before
    cluster.play()
    deployment.apply(plan(("w1", 2), ("w2", 1)))
    assert len(deployment.observe()) == 3
