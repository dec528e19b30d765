"""HAProxy before the router is the edge: it ends TLS. Without one, the router is reached from its own machine alone."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cases.deployments import Client, make_hosts, make_plan, make_worker, wait_for
from cases.rendered import random_case

from hetplan.errors import InputError
from hetplan.executor.deployment import Deployment
from hetplan.executor.render import render
from hetplan.executor.render.groups import groups
from hetplan.executor.render.names import CannotRender, objects_of
from hetplan.executor.render.rules import choose
from hetplan.executor.site import read_site

NEEDS_OPENSSL = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs OpenSSL's command")
ONE = make_plan(make_worker("w1", 1))
TOKEN = "0123456789abcdef0123"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "haproxy.cfg"


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ({"security": {"tls": "secrets/tls"}}, '$.security.tls (found "secrets/tls")'),
        (
            {"targets": {"here": {"kind": "ssh", "settings": {"address": "m1", "tls": "/etc/shop/tls"}}}},
            '$.targets.here.settings.tls (found "/etc/shop/tls")',
        ),
    ],
)
def test_a_file_that_names_certificates_is_told_where_tls_ends(tmp_path: Path, said: dict[str, Any], at: str) -> None:
    with pytest.raises(InputError) as refused:
        make_hosts(tmp_path, **said)
    assert at in str(refused.value)
    assert "Leave it out. HAProxy before the router ends TLS" in str(refused.value)


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "10.0.0.5", "shop.example"])
@pytest.mark.parametrize("open_to_all", [True, False])
def test_a_router_that_others_reach_is_refused_without_an_edge(tmp_path: Path, bind: str, open_to_all: bool) -> None:
    """Nothing but the edge's own word lifts it; with that word the token guards it still."""

    def refused(**router: Any) -> str:
        hosts = make_hosts(tmp_path, router={"port": 0, "bind": bind, **router}, security={"open": open_to_all})
        with Deployment(hosts) as deployment:
            try:
                deployment.difference(ONE)
            except InputError as error:
                return str(error)
        return ""

    said = refused()
    assert f"$.router.bind (found {bind}): other machines reach the router there" in said
    assert "behind_edge = true under [router]" in said
    assert ("no token guards it" in refused(behind_edge=True)) != open_to_all
    assert "other machines reach the router there" not in refused(behind_edge=True)


@pytest.mark.parametrize("rule", [None, "weighted-least"])
def test_nothing_that_is_rendered_leads_out_of_a_cluster(rule: str | None) -> None:
    """Clients come through the cluster's own Gateway, which ends TLS."""
    services = 0
    for seed in range(8):
        plan, inputs, written = random_case(seed)
        site = read_site(written)
        try:
            fleet = choose("kubernetes", plan, groups(plan, inputs, site), rule).fleet
            files = render("kubernetes", fleet, site)
        except CannotRender:
            continue
        for one in objects_of(files["kubernetes.yaml"], "kubernetes.yaml"):
            if one["kind"] == "Service":
                services += 1
                assert not {"type", "externalIPs", "externalName", "loadBalancerIP"} & set(one["spec"])
            elif one["kind"] == "Deployment":
                assert "hostNetwork" not in one["spec"]["template"]["spec"]
    assert services


def own_address() -> str | None:
    """An address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        found = str(probe.getsockname()[0])
        return found if not found.startswith("127.") else None


@pytest.mark.slow
def test_router_and_workers_are_reached_from_their_own_machine_alone(deploy: Callable[..., Deployment]) -> None:
    deployment = deploy()
    router = urlsplit(deployment.apply(ONE).endpoint).port
    (seen,) = deployment.observe()
    assert seen.endpoint is not None
    for port in (router, seen.endpoint.port):
        socket.create_connection(("127.0.0.1", port), 60.0).close()
        address = own_address()
        if address is None:
            pytest.skip("this machine has no address but loopback")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address, port), 60.0)


def certificates(folder: Path) -> Path:
    """A folder with a certificate and its key for localhost, as HAProxy reads it; `ca` beside it is whom to trust."""
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(folder / "key"), "-out", str(folder / "ca")]
    subprocess.run(made, check=True, capture_output=True)
    (folder / "certs").mkdir()
    (folder / "certs" / "shop.pem").write_text((folder / "ca").read_text() + (folder / "key").read_text())
    return folder / "certs"


@NEEDS_OPENSSL
def test_a_rendered_haproxy_ends_tls(tmp_path: Path) -> None:
    plan, inputs, written = random_case(1)
    folder = certificates(tmp_path)
    site = read_site({**written, "edge": {"bind": "*", "port": 443, "certificates": str(folder)}})
    text = render("haproxy", choose("haproxy", plan, groups(plan, inputs, site), "split").fleet, site)["haproxy.cfg"]
    binds = re.findall(r"^  bind .*$", text, re.MULTILINE)
    assert binds[0] == f"  bind *:443 ssl crt {folder} alpn h2,http/1.1"
    assert all(" ssl crt " in bind for bind in binds)
    (tmp_path / "haproxy.cfg").write_text(text)
    if shutil.which("haproxy") is not None:
        ran = subprocess.run(["haproxy", "-c", "-f", str(tmp_path / "haproxy.cfg")], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("haproxy") is None, reason="HAProxy is not installed")
@NEEDS_OPENSSL
def test_haproxy_as_the_example_has_it_ends_tls_and_asks_for_the_token(
    deploy: Callable[..., Deployment], tmp_path: Path
) -> None:
    router = urlsplit(deploy().apply(ONE).endpoint).port
    folder, port = certificates(tmp_path), _free_port()
    text = EXAMPLE.read_text()
    for old, new in ((":443", f"127.0.0.1:{port}"), ("/etc/haproxy/certs", str(folder)), (":8600", f":{router}")):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (tmp_path / "haproxy.cfg").write_text(text)
    environment = {**os.environ, "HETPLAN_TOKEN": TOKEN}
    edge = subprocess.Popen(["haproxy", "-db", "-f", str(tmp_path / "haproxy.cfg")], env=environment)
    try:
        wait_for(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, 60.0)
        trust = ssl.create_default_context(cafile=str(tmp_path / "ca"))

        def asked(**headers: str) -> int:
            one = http.client.HTTPSConnection("localhost", port, context=trust, timeout=60)
            one.request("POST", "/v1/app", b"", headers)
            return one.getresponse().status

        assert asked(authorization=f"Bearer {TOKEN}") == 200
        assert asked(authorization=f"Bearer {TOKEN}0") == 401
        assert asked() == 401
        with pytest.raises((http.client.HTTPException, OSError)):
            Client(f"http://localhost:{port}").post(headers={"authorization": f"Bearer {TOKEN}"})
        other = http.client.HTTPSConnection("localhost", port, context=ssl.create_default_context(), timeout=60)
        with pytest.raises(ssl.SSLCertVerificationError):
            other.request("GET", "/healthz")
    finally:
        edge.kill()
        edge.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
