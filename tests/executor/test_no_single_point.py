"""Whatever dies or hangs, queries are answered, `status` says what is missing, and `apply` or `down` put it right."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import Client, make_plan, make_worker, processes_of, wait_for

from hetplan.executor.deployment import Deployment
from hetplan.executor.kept_process import marked
from hetplan.executor.local import Local
from hetplan.executor.systemd import unit_name, unit_text

ONE = make_plan(make_worker("w1", 2))
KEEPER, ROUTER, WORKER = (f"hetplan.executor.{name}" for name in ("keeper", "serving.router", "serving.worker"))


def folder_of(deployment: Deployment) -> Path:
    return (deployment.folder / "targets" / "here").resolve()


def processes(deployment: Deployment, word: str) -> list[int]:
    return processes_of(folder_of(deployment), word)


def router_of(endpoint: str) -> int:
    """The process that answers."""
    return int(Client(endpoint).get("/healthz")["pid"])


def kill_keeper(deployment: Deployment, number: signal.Signals = signal.SIGKILL) -> None:
    (keeper,) = processes(deployment, KEEPER)
    os.kill(keeper, number)
    if number == signal.SIGKILL:
        wait_for(lambda: not processes(deployment, KEEPER))
    deployment.close()


@pytest.fixture
def applied(deploy: Callable[..., Deployment]) -> Deployment:
    """Two workers that answer in a millisecond."""
    deployment = deploy()
    deployment.apply(ONE)
    return deployment


@pytest.mark.slow
def test_without_its_keeper_all_goes_on_and_the_next_apply_goes_on_with_it(applied: Deployment) -> None:
    endpoint, workers = applied.endpoint(), processes(applied, WORKER)
    kill_keeper(applied)
    assert Client(endpoint).post()[1]["outcome"] == "served"
    assert {seen.status for seen in applied.observe()} == {"ready"}
    missing = applied.missing()
    assert len(missing) == 2
    assert all("no keeper watches it" in line for line in missing)
    assert not processes(applied, KEEPER), "looking starts nothing"
    assert applied.apply(ONE).steps == (), "all runs as wanted; only the keeper was missing"
    assert applied.missing() == []
    assert processes(applied, WORKER) == workers, "the very same processes"
    assert applied.endpoint() == endpoint
    os.kill(workers[0], signal.SIGKILL)
    wait_for(lambda: workers[0] not in processes(applied, WORKER) and len(processes(applied, WORKER)) == 2)
    wait_for(lambda: not applied.missing())
    applied.down()
    assert marked(folder_of(applied)) == []


@pytest.mark.slow
def test_what_ended_while_no_keeper_was_there_is_named_and_started_again(applied: Deployment) -> None:
    kill_keeper(applied)
    gone, *_ = processes(applied, WORKER)
    os.kill(gone, signal.SIGKILL)
    wait_for(lambda: gone not in processes(applied, WORKER))
    # A process that is being ended may be seen for a moment longer.
    wait_for(lambda: sum("does not run" in line for line in applied.missing()) == 1)
    applied.apply(ONE)
    assert applied.missing() == []
    assert len(processes(applied, WORKER)) == 2
    assert not applied.difference(ONE)


@pytest.mark.slow
def test_a_router_that_ended_too_is_named_and_comes_back(applied: Deployment) -> None:
    endpoint = applied.endpoint()
    kill_keeper(applied)
    for router in processes(applied, ROUTER):
        os.kill(router, signal.SIGKILL)
    wait_for(lambda: not processes(applied, ROUTER))
    wait_for(lambda: "the router does not run: queries go nowhere" in applied.missing())
    applied.apply(ONE)
    assert applied.missing() == []
    assert Client(endpoint).post()[1]["outcome"] == "served", "on the same port"


@pytest.mark.slow
def test_a_keeper_that_hangs_is_replaced_and_its_workers_stay(applied: Deployment) -> None:
    workers = processes(applied, WORKER)
    (hung,) = processes(applied, KEEPER)
    kill_keeper(applied, signal.SIGSTOP)
    assert len(applied.missing()) == 2, "status answers"
    applied.apply(ONE)
    assert applied.missing() == []
    assert processes(applied, WORKER) == workers
    (keeper,) = processes(applied, KEEPER)
    assert keeper != hung


@pytest.mark.slow
def test_down_does_not_wait_for_a_keeper_that_hangs(applied: Deployment) -> None:
    kill_keeper(applied, signal.SIGSTOP)
    began = time.monotonic()
    applied.down()
    assert marked(folder_of(applied)) == []
    assert time.monotonic() - began < 30.0


@pytest.mark.slow
def test_a_keeper_that_is_interrupted_remembers_what_it_ended(applied: Deployment) -> None:
    """As `systemctl stop` and a machine that is switched off do."""
    endpoint = applied.endpoint()
    kill_keeper(applied, signal.SIGINT)
    wait_for(lambda: marked(folder_of(applied)) == [])
    assert len(applied.missing()) == 3
    target = applied.targets["here"]
    assert isinstance(target, Local)
    target.keep()
    wait_for(lambda: not applied.missing())
    assert Client(endpoint).post()[1]["outcome"] == "served"


def test_a_router_that_dies_refuses_nobody(applied: Deployment) -> None:
    """New connections wait at the socket, which the keeper holds, until the spare router has taken it."""
    endpoint = applied.endpoint()
    wait_for(lambda: len(processes(applied, ROUTER)) == 2)
    host, port = endpoint.removeprefix("http://").split(":")
    refused, answered, broken = [], [], []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            try:
                socket.create_connection((host, int(port)), 60).close()
            except ConnectionRefusedError:
                refused.append(time.monotonic())
            try:
                answered.append(Client(endpoint).post()[1]["outcome"])
            except OSError as error:
                broken.append(error)

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        try:
            for _ in range(2):
                at = len(answered)
                router = router_of(endpoint)
                os.kill(router, signal.SIGKILL)
                wait_for(lambda at=at: len(answered) > at + 10)  # type: ignore[misc]
                assert router_of(endpoint) != router
                wait_for(lambda: len(processes(applied, ROUTER)) == 2)
        finally:
            stop.set()
        for one in asking:
            one.result(120.0)
    assert not refused
    assert set(answered) == {"served"}
    assert len(broken) <= 4, "at most what each client had under way at each death"


@pytest.mark.slow
def test_a_frozen_router_is_replaced(applied: Deployment) -> None:
    endpoint = applied.endpoint()
    wait_for(lambda: len(processes(applied, ROUTER)) == 2)
    frozen = router_of(endpoint)
    os.kill(frozen, signal.SIGSTOP)
    assert Client(endpoint).post()[1]["outcome"] == "served"
    assert router_of(endpoint) != frozen


def frozen_one(deploy: Callable[..., Deployment], **changes: Any) -> tuple[Deployment, list[tuple[int, Any]]]:
    """Two workers, queries on both, then one of them is frozen; what becomes of the queries.

    The keeper is frozen too: else it would end the worker and start it again, and the queries would go on through that.
    """
    deployment = deploy(models={"*": {"kind": "sleep", "ms": 400.0, **changes}}, router={"port": 0, "frozen_s": 0.2})
    endpoint = deployment.apply(ONE).endpoint
    workers = [Client(f"{one.address}:{one.port}") for seen in deployment.observe() if (one := seen.endpoint)]
    victim = processes(deployment, WORKER)[0]
    (keeper,) = processes(deployment, KEEPER)
    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(lambda: Client(endpoint).post()) for _ in range(4)]
        wait_for(lambda: sum(one.get("/metrics")["loads"]["w1.a"]["arrived"] for one in workers) >= 2)
        os.kill(keeper, signal.SIGSTOP)
        os.kill(victim, signal.SIGSTOP)
        deployment.close()
        return deployment, [one.result(120.0) for one in asking]


@pytest.mark.slow
def test_what_a_frozen_worker_has_is_tried_at_another(deploy: Callable[..., Deployment]) -> None:
    _, answers = frozen_one(deploy)
    assert [answer[1]["outcome"] for answer in answers] == ["served"] * 4


@pytest.mark.slow
def test_what_may_not_be_tried_twice_is_given_back(deploy: Callable[..., Deployment]) -> None:
    _, answers = frozen_one(deploy, retry=False)
    outcomes = [answer[1]["outcome"] for answer in answers]
    assert {"served", "lost"} >= set(outcomes)
    assert "lost" in outcomes
    assert {answer[1].get("why") for answer in answers if answer[0] == 503} == {"the worker died or froze"}


@pytest.mark.slow
def test_a_worker_that_is_killed_on_a_disk_without_room_comes_back(
    applied: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing has to be written for it: its configuration is on disk already."""
    before = {path: path.read_bytes() for path in folder_of(applied).glob("*.json")}
    victim = processes(applied, WORKER)[0]
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: victim not in processes(applied, WORKER))
    wait_for(lambda: not applied.missing())
    assert {path: path.read_bytes() for path in folder_of(applied).glob("*.json")} == before


@pytest.mark.slow
def test_units_for_systemd_say_all_that_a_keeper_needs(applied: Deployment, tmp_path: Path) -> None:
    target = applied.targets["here"]
    assert isinstance(target, Local)
    text = unit_text(applied.site, target)
    assert unit_name(applied.site, "here") == "hetplan-hetplan-here.service"
    fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("Env"))
    assert fields["ExecStart"].split()[-3:] == ['"/tmp/nvidia-mps"', '""', '"wait"']
    assert fields["KillMode"] == "process"
    assert fields["KillSignal"] == "SIGINT"
    assert f'Environment="HETPLAN_DEPLOYMENT={folder_of(applied)}"' in text


@pytest.mark.slow
def test_a_keeper_that_waits_takes_over_at_once(applied: Deployment) -> None:
    """As systemd starts it, beside the one that the apply started."""
    import subprocess

    target = applied.targets["here"]
    assert isinstance(target, Local)
    workers = processes(applied, WORKER)
    (first,) = processes(applied, KEEPER)
    from hetplan.executor.kept_process import MARK

    environment = {**os.environ, MARK: str(folder_of(applied))}
    with subprocess.Popen(target.keeper_command("wait"), env=environment) as second:
        try:
            os.kill(first, signal.SIGKILL)
            applied.close()
            wait_for(lambda: not applied.missing())
            assert processes(applied, WORKER) == workers
            assert processes(applied, KEEPER) == [second.pid]
        finally:
            with suppress(ProcessLookupError):
                second.terminate()
