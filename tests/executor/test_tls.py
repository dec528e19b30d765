"""Router and workers under TLS: keys of our own, and nobody who trusts another authority, or speaks plainly."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import make_plan, make_worker

from hetplan.errors import InputError
from hetplan.executor.deployment import Deployment
from hetplan.executor.hosts_file import read_hosts
from hetplan.executor.tls import client_context, make_keys, tls_folder

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs OpenSSL's command")


def own_address() -> str | None:
    """An address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = probe.getsockname()[0]
        return str(found) if not str(found).startswith("127.") else None


@pytest.mark.slow
def test_queries_state_and_streams_go_through_router_and_workers_under_tls(
    deploy: Callable[..., Deployment], tmp_path: Path
) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback")
    assert make_keys(tmp_path / "tls", ["localhost", address])
    (tmp_path / "token").write_text("0123456789abcdef")
    host = {"target": "here", "hardware": ["cpu"], "machines": 2, "bind": address}
    security = {"token_file": str(tmp_path / "token"), "tls": str(tmp_path / "tls")}
    deployment = deploy(hosts={"box": host}, router={"bind": address, "port": 0}, security=security)
    endpoint = deployment.apply(make_plan(make_worker("w1", 2))).endpoint
    assert endpoint.startswith(f"https://{address}:")
    assert deployment.state(over_s=0.0).observed["w1.a"].counters["served"] == 0

    def ask(trust: ssl.SSLContext) -> tuple[int, Any]:
        connection = http.client.HTTPSConnection(endpoint.removeprefix("https://"), context=trust, timeout=60)
        connection.request("POST", "/v1/app", b"", {"authorization": "Bearer 0123456789abcdef"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    trust = client_context(tmp_path / "tls")
    assert trust is not None
    status, said = ask(trust)
    assert (status, said["outcome"]) == (200, "served")
    make_keys(tmp_path / "other", [address])
    other = client_context(tmp_path / "other")
    assert other is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        ask(other)
    plain = http.client.HTTPConnection(endpoint.removeprefix("https://"), timeout=60)
    plain.request("POST", "/v1/app", b"", {"authorization": "Bearer 0123456789abcdef"})
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.getresponse()
    (seen, _) = deployment.observe()
    assert seen.endpoint is not None
    worker = http.client.HTTPSConnection(seen.endpoint.address, seen.endpoint.port, context=trust, timeout=60)
    worker.request("GET", "/healthz")
    assert worker.getresponse().status == 200


@pytest.mark.slow
def test_keys_are_made_again_by_the_same_authority_and_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    assert make_keys(tmp_path / "tls", ["localhost"])
    before = {name: (tmp_path / "tls" / name).read_bytes() for name in ("ca.pem", "cert.pem")}
    assert not make_keys(tmp_path / "tls", ["localhost", "10.0.0.7"])
    assert (tmp_path / "tls" / "ca.pem").read_bytes() == before["ca.pem"]
    assert (tmp_path / "tls" / "cert.pem").read_bytes() != before["cert.pem"]
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "tls").iterdir()} == {0o600}
    with pytest.raises(InputError, match="plain"):
        make_keys(tmp_path / "tls", ["10.0.0.1,DNS:evil\nx=1"])


def test_missing_keys_are_said(tmp_path: Path) -> None:
    hosts = {
        "targets": {"here": {"kind": "local"}},
        "hosts": {"box": {"target": "here", "hardware": "cpu", "machines": 1}},
    }
    with pytest.raises(InputError, match=r"hetplan keys"):
        tls_folder(read_hosts({**hosts, "security": {"tls": str(tmp_path)}}))
