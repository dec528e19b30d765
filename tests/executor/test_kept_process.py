"""What the keeper does for one process: a hung one is started again on its port; what it logged is reported."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor import kept_process
from hetplan.executor.keeper import Keeper
from hetplan.executor.kept_process import KeptProcess, StartFailed
from hetplan.executor.shares import LocalMeans
from hetplan.executor.units import LoadSpec, Unit, named

SLEEP = {"kind": "sleep", "law": {"ms": 1.0}, "statistic": "mean", "times": 1.0, "seed": 0}
UNIT = named(Unit("", "w1", 0, "cpu", "here", "box", loads=(LoadSpec("w1.a", app="app", variant="m", model=SLEEP),)))


def worker(folder: Path, **config: object) -> KeptProcess:
    said = {"unit": UNIT.as_dict(), "content": UNIT.content, "bind": "127.0.0.1", "port": 0, "cores": [], **config}
    return KeptProcess(UNIT.name, "hetplan.executor.serving.worker", said, folder)


@pytest.mark.slow
def test_a_process_that_hangs_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_process, "_PROBE_EVERY_S", 0.05)
    monkeypatch.setattr(kept_process, "_PROBE_LIMIT_S", 20.0)

    async def run() -> tuple[int, int, int]:
        kept = worker(tmp_path)
        await kept.start(60.0)
        port = kept.port
        process = (await kept.ask("/healthz"))["pid"]
        os.kill(process, signal.SIGSTOP)
        monkeypatch.setattr(kept_process, "_PROBE_LIMIT_S", 0.2)
        while not kept.restarts:
            await asyncio.sleep(0.02)
        monkeypatch.setattr(kept_process, "_PROBE_LIMIT_S", 20.0)
        await kept.until_ready(60.0)
        again = (await kept.ask("/healthz"))["pid"]
        await kept.stop(1.0)
        return process, again, kept.port - port

    before, after, moved = asyncio.run(asyncio.wait_for(run(), 150.0))
    assert before != after
    assert moved == 0
    assert not Path(f"/proc/{after}").exists()


def test_a_process_that_ends_at_once_tells_its_last_words(tmp_path: Path) -> None:
    kept = KeptProcess("w", "hetplan.no_such_module", {"bind": "127.0.0.1", "port": 0}, tmp_path)
    with pytest.raises(StartFailed, match=r"No module named hetplan\.no_such_module"):
        asyncio.run(kept.start(60.0))


def test_a_configuration_that_cannot_be_followed_is_refused_and_the_old_one_goes_on(tmp_path: Path) -> None:
    async def run() -> str:
        kept = worker(tmp_path)
        await kept.start(60.0)
        bad = UNIT.as_dict()
        bad["loads"][0]["model"] = {"kind": "sleep", "law": {"axes": {}}, "statistic": "mean", "times": 1, "seed": 0}
        try:
            with pytest.raises(StartFailed, match="the table has no mean"):
                await kept.change({"unit": bad, "content": "sha256:bad"}, 60.0)
            return str((await kept.ask("/healthz"))["content"])
        finally:
            await kept.stop(1.0)

    assert asyncio.run(asyncio.wait_for(run(), 120.0)) == UNIT.content


def test_a_process_may_take_as_long_to_come_up_again_as_it_might_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []
    spawn = KeptProcess._spawn

    async def noted(kept: KeptProcess, limit_s: float) -> None:
        given.append(limit_s)
        await spawn(kept, limit_s)

    monkeypatch.setattr(KeptProcess, "_spawn", noted)

    async def run() -> None:
        kept = worker(tmp_path)
        await kept.start(123.0)
        os.kill((await kept.ask("/healthz"))["pid"], signal.SIGKILL)
        while not kept.restarts or kept.status != "ready":
            await asyncio.sleep(0.02)
        await kept.stop(0.0)

    asyncio.run(asyncio.wait_for(run(), 120.0))
    assert given == [123.0, 123.0]


def test_a_stop_is_heard_though_a_cancellation_is_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `asyncio.wait_for` of Python 3.11 does where its wait ends in the same turn of the loop."""

    async def deaf_once(_kept: KeptProcess, _process: object) -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(3600.0)
        await asyncio.sleep(3600.0)
        return ""

    monkeypatch.setattr(KeptProcess, "_until_gone", deaf_once)

    async def run() -> int:
        kept = worker(tmp_path)
        await kept.start(60.0)
        process = (await kept.ask("/healthz"))["pid"]
        await kept.stop(1.0)
        return int(process)

    assert not Path(f"/proc/{asyncio.run(asyncio.wait_for(run(), 120.0))}").exists()


def test_a_configuration_that_the_disk_does_not_take_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = worker(tmp_path)
    before = dict(kept.config)

    def full(_kept: KeptProcess) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(KeptProcess, "_write", full)
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(kept.change({"content": "sha256:new"}, 1.0))
    assert kept.config == before, "it would be followed after a restart"


def test_a_router_that_does_not_take_new_routes_is_reported_the_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def refuse(_kept: KeptProcess, config: Mapping[str, Any], _limit_s: float) -> None:
        asked.append(config["revision"])
        if config["revision"] == "new":
            raise StartFailed("router", "no link to w1")

    monkeypatch.setattr(KeptProcess, "_follow", refuse)
    old = {"router": {"port": 0}, "revision": "old"}
    keeper = Keeper(tmp_path, LocalMeans())
    keeper.router, keeper.routes = KeptProcess("router", "hetplan.executor.serving.router", old, tmp_path), old
    with pytest.raises(StartFailed, match="no link"):
        asyncio.run(keeper._route({"routes": {**old, "revision": "new"}, "drain_s": 0.0, "limit_s": 1.0}))
    assert asked == ["new", "old"]
    assert keeper.routes == old


def test_a_log_is_bounded_and_that_of_the_process_before_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_process, "_MOST_LOG_BYTES", 10_000)
    log, before = tmp_path / f"{UNIT.name}.log", tmp_path / f"{UNIT.name}.log.1"

    async def run() -> None:
        kept = worker(tmp_path)
        await kept.start(60.0)
        with log.open("ab") as more:
            more.write(b"a model that talks\n" * 1000)
        while log.stat().st_size > 10_000:
            await asyncio.sleep(0.02)
        assert before.stat().st_size == 19_000
        log.write_text("why it ended\n")
        assert kept.pid is not None
        os.kill(kept.pid, signal.SIGKILL)
        while not kept.restarts:
            await asyncio.sleep(0.02)
        await kept.until_ready(60.0)
        await kept.stop(1.0)

    asyncio.run(asyncio.wait_for(run(), 150.0))
    assert before.read_text() == "why it ended\n"
    assert "why it ended" not in log.read_text()
