"""Against a real API server and its controllers, where one was built; else skipped with one line."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cases.in_a_cluster import rendered
from cases.real_cluster import WHERE_ONE_IS, Server

from hetplan.executor.target import ApplyFailed, DeploymentLocked

pytestmark = WHERE_ONE_IS
NAME = "rank-net-cpu"
GOOD, NEWER, BAD = (f"registry.example/net:{tag}" for tag in ("1", "2", "bad"))


def images(server: Server) -> set[str]:
    return {one["spec"]["template"]["spec"]["containers"][0]["image"] for one in server.objects("deployments")}


def test_a_life_in_a_real_cluster(server: Server, tmp_path: Path) -> None:
    mine, other = server.platform(tmp_path / "a"), server.platform(tmp_path / "b")
    with (
        mine.cluster.hold("apply of sha256:12", home=mine.folder, wait_s=0),
        pytest.raises(DeploymentLocked, match="apply of sha256:12"),
    ):
        other.apply(rendered(rank=2))
    mine.apply(rendered(GOOD, rank=2))
    assert mine.apply(rendered(GOOD, rank=2)) == ()
    assert [one.ready for one in other.groups()] == [2]

    # A bad image is gone back from; a good one is rolled.
    with pytest.raises(ApplyFailed, match="What ran before runs again"):
        mine.apply(rendered(BAD, rank=2))
    assert images(server) == {GOOD}
    other.apply(rendered(NEWER, rank=2, ask=1))
    mine.apply(rendered(NEWER, rank=2))
    assert images(server) == {NEWER}

    # By hand: seen, refused, taken.
    server.ask("set", "image", f"deployment/{NAME}", "model=registry.example/net:hand")
    assert mine.changes(rendered(NEWER, rank=2)).changed
    with pytest.raises(ApplyFailed, match=r"owns .*image.*--take-over"):
        mine.apply(rendered(GOOD, rank=2))
    server.platform(tmp_path / "a", take_over=True).apply(rendered(GOOD, rank=2))
    assert images(server) == {GOOD}

    # An autoscaler has its way.
    server.ask("autoscale", f"deployment/{NAME}", "--min=4", "--max=5", "--cpu-percent=50")
    until = time.monotonic() + 60
    while server.objects("deployments")[0]["spec"]["replicas"] != 4:
        assert time.monotonic() < until
        time.sleep(0.5)
    mine.apply(rendered(NEWER, rank=2))
    assert server.objects("deployments")[0]["spec"]["replicas"] == 4
    server.ask("delete", "hpa", "--all")

    mine.down()
    for kind in ("deployments", "services", "leases", "poddisruptionbudgets"):
        assert server.objects(kind) == []


def test_a_quota_is_the_reason_that_is_given(server: Server, tmp_path: Path) -> None:
    server.ask("create", "quota", "few", "--hard=pods=3")
    until = time.monotonic() + 60
    while "hard" not in server.objects("resourcequotas")[0].get("status", {}):
        assert time.monotonic() < until
        time.sleep(0.2)
    platform = server.platform(tmp_path)
    with pytest.raises(ApplyFailed, match=r"exceeded quota: few"):
        platform.apply(rendered(rank=5))
    assert platform.groups() == []
