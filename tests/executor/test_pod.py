"""What runs in a pod: which pods it finds, when it is ready, and which links it takes."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hetplan.executor.serving import pod
from hetplan.executor.serving.pod import FIRST_S, PodRouter, PodWorker, look_up

UNITS = [{"name": f"u-{load}", "address": f"{load}.live.svc", "standby": False, "loads": [{"id": load}]}
         for load in ("a", "b")]  # fmt: skip


@pytest.fixture
def router(tmp_path: Path) -> PodRouter:
    """A router whose table has a unit of each of two loads."""
    (tmp_path / "table.json").write_text(json.dumps({"units": UNITS}))
    return PodRouter(tmp_path / "table.json", tmp_path / "routes.json")


def link(router: PodRouter, *loads: str) -> None:
    """As if workers of these loads were linked."""
    lanes: Any = {("u", load): SimpleNamespace(name=load, open=load in loads) for load in ("a", "b")}
    router.lanes = lanes


@pytest.mark.parametrize("error", [
    OSError(5, "no resolver"), UnicodeError("label empty"), socket.gaierror(socket.EAI_AGAIN, "busy"),
])  # fmt: skip
def test_a_name_that_cannot_be_looked_up_is_not_known_to_have_no_pods(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    assert look_up("a.live.svc") is None
    assert "a.live.svc cannot be looked up" in caplog.text


def test_the_router_looks_again_after_an_error(router: PodRouter, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    seen: list[Any] = []
    answers = iter([RuntimeError("lost"), UNITS])

    def resolved(_: Any) -> Any:
        found = next(answers, UNITS)
        if isinstance(found, Exception):
            raise found
        return found

    async def look() -> None:
        router._loop = asyncio.get_running_loop()
        router._loop.set_exception_handler(lambda _, what: said.append(str(what["exception"])))
        looking = asyncio.create_task(router._look())
        while not seen:
            assert not looking.done()
            await asyncio.sleep(0.01)
        looking.cancel()

    monkeypatch.setattr(pod, "LOOK_S", 0.01)
    monkeypatch.setattr(router._addresses, "resolved", resolved)
    monkeypatch.setattr(router, "follow", seen.append)
    router.routes = {"revision": "older"}
    asyncio.run(asyncio.wait_for(look(), 20))
    assert said == ["lost"]


def test_a_router_is_ready_once_each_load_has_a_worker_and_stays_so(router: PodRouter) -> None:
    for loads in ((), ("a",)):
        link(router, *loads)
        assert not router.ready
    link(router, "a", "b")
    assert router.ready
    link(router)
    assert router.ready
    router.draining = True
    assert not router.ready


def test_after_a_long_wait_it_serves_the_loads_that_have_a_worker(router: PodRouter) -> None:
    router.since_s -= FIRST_S + 1
    link(router)
    assert not router.ready
    link(router, "b")
    assert router.ready


def test_a_router_that_is_not_ready_says_that_it_lives(router: PodRouter) -> None:
    link(router)
    router.routes = {"revision": "x"}
    assert asked(router.look, "/livez") == 200
    assert asked(router.look, "/healthz") == 503


def test_a_worker_takes_no_link_that_is_meant_for_another_group(tmp_path: Path) -> None:
    worker = PodWorker(tmp_path / "config.json")
    worker.config = {"group": "a.live.svc"}
    assert asked(worker.handle, "/link", {"hetplan-group": "a.trial.svc"}) == 409
    for headers in ({}, {"hetplan-group": "a.live.svc"}):
        assert asked(worker.handle, "/link", headers) == 404, "it goes on to where it is asked to upgrade"


def asked(handle: Any, path: str, headers: dict[str, str] | None = None) -> int:
    """The status of the answer to a request."""
    answers: list[int] = []
    exchange = SimpleNamespace(
        path=path, headers=headers or {}, query="", allows=lambda *_: True,
        answer=lambda status, *_, **__: answers.append(status),
    )  # fmt: skip
    handle(exchange)
    (status,) = answers
    return status
