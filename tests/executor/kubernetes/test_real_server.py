"""Against a real API server and its controllers, where one was built; else skipped with one line."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cases.real_cluster import WHERE_ONE_IS, Server

from hetplan.executor.kubernetes.target import Kubernetes
from hetplan.executor.target import DeploymentLocked, TargetFailed, TargetRefused
from hetplan.executor.units import LoadSpec, Unit, named

pytestmark = WHERE_ONE_IS


def units(count: int, variant: str = "m") -> list[Unit]:
    made = Unit("", "w1", 0, "t4", "cluster", "pool", loads=(LoadSpec("w1.a", variant=variant),))
    return [named(replace(made, index=index)) for index in range(count)]


def contents(target: Kubernetes) -> list[str]:
    return [one.content for one in target.observe()]


def images(server: Server) -> set[str]:
    return {one["spec"]["template"]["spec"]["containers"][0]["image"] for one in server.objects("deployments")}


def test_a_life_in_a_real_cluster(server: Server, tmp_path: Path) -> None:
    mine, other = server.target(tmp_path / "a"), server.target(tmp_path / "b")
    two = units(2)
    with mine.hold("apply of sha256:12", wait_s=0):
        with pytest.raises(DeploymentLocked, match="apply of sha256:12"), other.hold("apply", wait_s=0):
            pass
        assert mine.check(two) == []
        mine.start(two, limit_s=60)
        mine.remember()
    with other.hold("apply", wait_s=0):
        assert contents(other) == [unit.content for unit in two]

    # A bad image is gone back from; so is a good one, by what was kept.
    with pytest.raises(TargetFailed):
        server.target(tmp_path / "a", image="registry.example/hetplan:bad").load(units(2, "n"), limit_s=3)
    assert images(server) == {"registry.example/hetplan:1"}
    newer = server.target(tmp_path / "a", image="registry.example/hetplan:2")
    newer.load(units(2, "n"), limit_s=60)
    mounted = {one["metadata"]["name"] for one in server.objects("configmaps")}
    assert len([name for name in mounted if name.startswith("prod-w1")]) >= 2, "what a ReplicaSet mounts is kept"
    with newer.going_back():
        newer.load(two, limit_s=60)
        assert contents(newer) == [unit.content for unit in two]
    assert images(server) == {"registry.example/hetplan:1"}
    assert contents(newer) != [unit.content for unit in two], "hosts.toml says another image"

    # By hand: seen, refused, taken.
    (deployment,) = (one["metadata"]["name"] for one in server.objects("deployments"))
    server.ask("set", "image", f"deployment/{deployment}", "worker=registry.example/hetplan:hand")
    assert contents(mine) != [unit.content for unit in two]
    with pytest.raises(TargetRefused, match=rf"{deployment}: .*owns .*image.*--take-over"):
        newer.load(two, limit_s=60)
    server.target(tmp_path / "a", take_over=True).load(two, limit_s=60)
    assert images(server) == {"registry.example/hetplan:1"}

    # An autoscaler has its way.
    server.ask("autoscale", f"deployment/{deployment}", "--min=4", "--max=5", "--cpu-percent=50")
    until = time.monotonic() + 60
    while server.objects("deployments")[0]["spec"]["replicas"] != 4:
        assert time.monotonic() < until
        time.sleep(0.5)
    assert contents(mine) == [unit.content for unit in two]
    mine.load(units(2, "third"), limit_s=60)
    assert server.objects("deployments")[0]["spec"]["replicas"] == 4
    server.ask("delete", "hpa", "--all")

    mine.down(drain_s=1.0)
    assert mine.observe() == ()
    assert server.objects("leases") == []
    assert server.objects("poddisruptionbudgets") == []


def test_a_router_that_could_not_be_rolled_is_rolled_later(server: Server, tmp_path: Path) -> None:
    """Going back must not take what the server gave its Service."""
    server.target(tmp_path).route({"revision": "1"}, limit_s=60)
    with pytest.raises(TargetFailed):
        server.target(tmp_path, image="registry.example/hetplan:bad").route({"revision": "2"}, limit_s=3)
    server.target(tmp_path, image="registry.example/hetplan:2").route({"revision": "3"}, limit_s=60)
    assert images(server) == {"registry.example/hetplan:2"}
    server.target(tmp_path).down(drain_s=1.0)


def test_a_quota_is_the_reason_that_is_given(server: Server, tmp_path: Path) -> None:
    server.ask("create", "quota", "few", "--hard=pods=3")
    until = time.monotonic() + 60
    while "hard" not in server.objects("resourcequotas")[0].get("status", {}):
        assert time.monotonic() < until
        time.sleep(0.2)
    target = server.target(tmp_path)
    with pytest.raises(TargetFailed, match=r"exceeded quota: few, requested: pods=1, used: pods=3, limited: pods=3"):
        target.start(units(5), limit_s=1)
    assert target.observe() == ()


def test_many_answers_come_through_one_kubectl(server: Server, tmp_path: Path) -> None:
    answers = server.target(tmp_path).kubectl.raws([*["/version"] * 20, "/no-such-path"])
    assert {one["major"] for one in answers[:-1]} == {server_version(server)}
    assert answers[-1] is None


def server_version(server: Server) -> str:
    return str(json.loads(server.ask("get", "--raw=/version"))["major"])
