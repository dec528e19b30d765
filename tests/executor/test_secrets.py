"""Listeners that other machines reach want a token, which nobody finds on a command line."""

from __future__ import annotations

import http.client
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import Client, make_hosts, make_plan, make_worker

from hetplan.errors import InputError
from hetplan.executor.deployment import Deployment, router_metrics
from hetplan.executor.kept_process import marked
from hetplan.executor.secrets import mark_of, token_of
from hetplan.executor.site import read_site
from hetplan.executor.target import TargetFailed

ONE = make_plan(make_worker("w1", 1))
TOKEN = "0123456789abcdef0123"
OPEN: dict[str, Any] = {"target": "here", "machines": ["cpu"], "count": 8, "bind": "0.0.0.0"}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


def test_a_listener_that_others_reach_is_refused_without_a_token(tmp_path: Path, token_file: Path) -> None:
    def refused(**changes: Any) -> str:
        with Deployment(make_hosts(tmp_path, **changes)) as deployment:
            try:
                deployment.difference(ONE)
            except InputError as error:
                return str(error)
        return ""

    assert "$.hosts.box.bind (found 0.0.0.0): it is reached from other machines, and no token" in refused(
        hosts={"box": OPEN}
    )
    edge = {"port": 0, "bind": "0.0.0.0", "behind_edge": True}
    assert "$.router.bind (found 0.0.0.0): it is reached from other machines, and no token" in refused(router=edge)
    assert refused(router=edge, security={"open": True}) == ""
    assert refused() == ""
    assert refused(hosts={"box": OPEN}, security={"open": True}) == ""
    assert refused(hosts={"box": OPEN}, security={"token_file": str(token_file)}) == ""
    assert "16 printable characters" in refused(hosts={"box": OPEN}, security={"token_env": "HETPLAN_NO_SUCH"})
    assert "No such file" in refused(hosts={"box": OPEN}, security={"token_file": "nowhere"})
    with pytest.raises(InputError, match="Name one of them"):
        make_hosts(tmp_path, security={"token_file": "a", "token_env": "b"})


def test_the_token_is_that_of_the_file_or_of_the_environment(
    tmp_path: Path, token_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    for security in ({"token_file": str(token_file)}, {"token_env": "SHOP_TOKEN"}):
        assert token_of(make_hosts(tmp_path, security=security)) == TOKEN
    assert token_of(make_hosts(tmp_path)) is None
    assert mark_of(TOKEN) != mark_of(TOKEN + "0")
    assert TOKEN not in mark_of(TOKEN)


def status_of(endpoint: str, path: str, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=120)
    connection.request("POST", f"/v1/{path}", b"", headers)
    return connection.getresponse().status


@pytest.mark.slow
@pytest.mark.parametrize("way", ["file", "environment"])
def test_who_has_no_token_gets_nothing_and_nobody_reads_it_elsewhere(
    deploy: Callable[..., Deployment], token_file: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", TOKEN)
    security = {"token_file": str(token_file)} if way == "file" else {"token_env": "SHOP_TOKEN"}
    box = {**OPEN, "address": "127.0.0.1"}
    router = {"port": 0, "bind": "0.0.0.0", "behind_edge": True, "address": "127.0.0.1"}
    deployment = deploy(hosts={"box": box}, router=router, security=security)
    endpoint = deployment.apply(ONE).endpoint
    with_it = {"authorization": f"Bearer {TOKEN}"}
    (seen,) = deployment.observe()
    assert seen.endpoint is not None
    # A worker is asked for answers over the router's link alone.
    for at, path, status in ((endpoint, "app", 200), (f"http://127.0.0.1:{seen.endpoint.port}", "w1.a", 404)):
        assert status_of(at, path, {"authorization": "Bearer nonsense-nonsense"}) == 401
        assert status_of(at, path, {}) == 401
        assert status_of(at, path, with_it) == status
        assert Client(at).get("/healthz")["ready"], "whether it is well is no secret"
    assert router_metrics(endpoint) is None
    assert router_metrics(endpoint, token=TOKEN) is not None
    assert deployment.state(over_s=0.0).observed["w1.a"].counters["served"] == 1, "as the router counts"
    folder = (deployment.folder / "targets" / "here").resolve()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for process in marked(folder):
        assert TOKEN.encode() not in Path(f"/proc/{process}/cmdline").read_bytes()
    for path in folder.iterdir():
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path


@pytest.mark.slow
def test_a_keeper_with_another_token_is_not_taken_for_ones_own(
    deploy: Callable[..., Deployment], token_file: Path
) -> None:
    deployment = deploy(security={"token_file": str(token_file)})
    deployment.apply(ONE)
    token_file.write_text("another-token-of-the-shop")
    deployment.close()
    with pytest.raises(TargetFailed, match="started with another token"):
        deployment.targets["here"].start([], limit_s=1.0)


def test_the_far_machine_reads_its_own_file(tmp_path: Path) -> None:
    from hetplan.executor.ssh.target import SshTarget
    from hetplan.executor.target import Setting

    hosts = read_site(
        {
            "security": {"token_file": "here"},
            "targets": {"far": {"kind": "ssh"}},
            "hosts": {"box": {"target": "far", "machines": "cpu", "count": 1}},
        }
    )
    settings = {"address": "10.0.0.5", "token_file": "/etc/shop/token"}
    target = SshTarget(Setting("far", hosts, tmp_path, settings))
    far = target._far_setting()["site"]["security"]
    assert far == {"token_file": "/etc/shop/token", "open": False}
    assert os.path.isabs(far["token_file"])
