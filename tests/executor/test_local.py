"""Real processes of this machine: what a plan wants comes up, serves, changes, survives faults, and goes away."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import Client, make_plan, make_worker, processes_of, wait_for

from hetplan.executor.deployment import Deployment
from hetplan.executor.keeper import socket_path
from hetplan.executor.kept_process import marked
from hetplan.executor.local import Local
from hetplan.executor.target import ApplyFailed, DeploymentLocked, Setting
from hetplan.profiles.plan_file import write_plan
from hetplan.profiles.workers import Load, Worker

ONE = make_plan(make_worker("w1", 2))


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def folder_of(deployment: Deployment) -> Path:
    return (deployment.folder / "targets" / "here").resolve()


def processes(deployment: Deployment, word: str) -> list[int]:
    """The deployment's processes that were started with this word."""
    return processes_of(folder_of(deployment), word)


def worker_processes(deployment: Deployment) -> list[int]:
    return processes(deployment, "hetplan.executor.serving.worker")


@pytest.mark.slow
def test_a_plan_comes_up_serves_and_goes_away(deploy: Callable[..., Deployment]) -> None:
    deployment = deploy()
    assert deployment.difference(ONE)
    assert not deployment.observe(), "looking touches nothing"
    applied = deployment.apply(ONE)
    client = Client(applied.endpoint)
    status, said = client.post(body={"at": {"batch": 1}})
    assert (status, said["outcome"], said["path"][0]["variant"]) == (200, "served", "m")
    assert said["quality"] is None, "no profile says how good it is"
    assert "hetplan-quality" not in client.post(headers={"hetplan-reply": "brief"})[1]
    assert said["path"][0]["service_ms"] >= 1.0
    assert not deployment.difference(ONE), "what was applied is what runs"
    assert deployment.apply(ONE).steps == (), "a second time there is nothing to do"
    state = deployment.state(over_s=0.0)
    assert [(worker.id, worker.count) for worker in state.workers] == [("w1", 2)]
    assert state.observed["w1.a"].counters["served"] == 2
    assert client.get("/metrics")["apps"]["app"]["served"] == 2
    assert client.post("other")[0] == 404
    assert client.post(body=[1])[0] == 400
    deployment.down()
    assert marked(folder_of(deployment)) == []
    assert not deployment.observe()
    assert deployment.difference(ONE)


def test_another_plan_takes_over_without_a_lost_query(deploy: Callable[..., Deployment]) -> None:
    """Loads change in place, groups come and go, and a client that never stops asking sees nothing but answers."""
    deployment = deploy()
    endpoint = deployment.apply(ONE).endpoint
    outcomes: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        client = Client(endpoint)
        while not stop.is_set() or len(outcomes) <= 20:
            outcomes.append(client.post()[1]["outcome"])

    with ThreadPoolExecutor(1) as pool, ExitStack() as ending:
        ending.callback(stop.set)
        asking = pool.submit(ask)
        wait_for(lambda: outcomes or asking.done())
        two = Worker(
            id="w1", hardware="cpu", count=2,
            loads=(Load(id="w1.a", app="app", variant="m"), Load(id="w1.b", app="other", variant="n")),
        )  # fmt: skip
        changed = deployment.apply(make_plan(two))
        assert [step.do for step in changed.steps] == ["load", "route"]
        assert Client(endpoint).post("other")[1]["path"][0]["load"] == "w1.b"
        swapped = Worker(id="w1", hardware="cpu", count=2, loads=(Load(id="w1.c", app="app", variant="v"),))
        deployment.apply(make_plan(swapped))
        assert Client(endpoint).post()[1]["path"][0]["load"] == "w1.c"
        moved = deployment.apply(make_plan(make_worker("w2", 1)))
        assert [step.do for step in moved.steps] == ["start", "route", "stop", "route"][: len(moved.steps)]
        stop.set()
        asking.result(60.0)
    assert set(outcomes) == {"served"}
    assert {seen.unit.worker for seen in deployment.observe() if seen.unit} == {"w2"}


@pytest.mark.slow
def test_a_worker_that_is_killed_under_load_costs_no_answer_and_comes_back(deploy: Callable[..., Deployment]) -> None:
    deployment = deploy(models={"*": {"kind": "sleep", "ms": 30.0}})
    endpoint = deployment.apply(ONE).endpoint
    outcomes: list[str] = []

    def ask() -> None:
        client = Client(endpoint)
        for _ in range(12):
            outcomes.append(client.post()[1]["outcome"])

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask) for _ in range(4)]
        wait_for(lambda: len(outcomes) >= 4 or asking[0].done())
        victim = worker_processes(deployment)[0]
        os.kill(victim, signal.SIGKILL)
        for one in asking:
            one.result(60.0)
    assert outcomes == ["served"] * 48, "what the dead worker had is sent again"
    wait_for(lambda: victim not in worker_processes(deployment))
    wait_for(lambda: [seen.status for seen in deployment.observe()] == ["ready"] * 2)
    assert len(worker_processes(deployment)) == 2
    assert sum(seen.restarts for seen in deployment.observe()) == 1
    assert not deployment.difference(ONE)


@pytest.mark.slow
def test_without_a_second_try_a_dead_worker_is_reported_as_503(deploy: Callable[..., Deployment]) -> None:
    deployment = deploy(models={"*": {"kind": "sleep", "ms": 50_000.0}}, router={"port": 0, "retries": 0})
    endpoint = deployment.apply(make_plan(make_worker("w1", 1))).endpoint
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(lambda: Client(endpoint).post())
        (unit,) = deployment.observe()
        wait_for(lambda: arrived(deployment, unit.name) or asking.done())
        os.kill(worker_processes(deployment)[0], signal.SIGKILL)
        status, said = asking.result(60.0)
    assert status == 503
    assert (said["outcome"], said["why"]) == ("lost", "the worker died or froze")


def arrived(deployment: Deployment, unit: str) -> int:
    """How many queries have reached a worker, as it counts itself."""
    (at,) = (seen.endpoint for seen in deployment.observe() if seen.name == unit)
    return int(Client(f"{at.address}:{at.port}").get("/metrics")["loads"]["w1.a"]["arrived"]) if at is not None else 0


@pytest.mark.slow
def test_a_taken_port_undoes_the_apply(deploy: Callable[..., Deployment], taken_port: int) -> None:
    host = {"target": "here", "machines": ["cpu"], "count": 8}
    both = {"box": {**host, "plays": ["fine"]}, "bad": {**host, "plays": ["bad"], "ports": [taken_port, taken_port]}}
    deployment = deploy(hosts=both)
    before = make_plan(make_worker("w1", 1, host="fine"))
    endpoint = deployment.apply(before).endpoint
    after = make_plan(make_worker("w1", 2, host="fine"), make_worker("w2", 1, host="bad"))
    with pytest.raises(ApplyFailed, match="in use") as failed:
        deployment.apply(after)
    assert failed.value.undone
    assert failed.value.exit_code == 7
    assert not deployment.difference(before)
    assert Client(endpoint).post()[0] == 200


@pytest.mark.slow
def test_workers_that_the_router_cannot_reach_are_stopped_again(deploy: Callable[..., Deployment]) -> None:
    limits = {"start_s": 3.0, "drain_s": 0.5, "call_s": 60.0}
    host = {"target": "here", "machines": ["cpu"], "count": 8, "address": "127.9.9.9"}
    deployment = deploy(hosts={"box": host}, limits=limits)
    with pytest.raises(ApplyFailed, match="no link to") as failed:
        deployment.apply(make_plan(make_worker("w1"), make_worker("w2")))
    assert failed.value.undone
    assert deployment.observe() == ()
    assert not deployment.routed


@pytest.mark.slow
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_router_and_workers_speak_ipv6_too(deploy: Callable[..., Deployment]) -> None:
    host = {"target": "here", "machines": ["cpu"], "count": 8, "bind": "::1"}
    deployment = deploy(hosts={"box": host}, router={"port": 0, "bind": "::1"})
    endpoint = deployment.apply(make_plan(make_worker("w1"))).endpoint
    assert endpoint.startswith("http://[::1]:")
    assert Client(endpoint).post()[0] == 200
    assert deployment.state(over_s=0.0).observed["w1.a"].counters["served"] == 1


@pytest.mark.slow
def test_a_taken_port_of_the_router_leaves_nothing(deploy: Callable[..., Deployment], taken_port: int) -> None:
    """Going back does not start the router between two groups of workers: its port is still taken."""
    deployment = deploy(router={"port": taken_port})
    with pytest.raises(ApplyFailed, match="in use") as failed:
        deployment.apply(make_plan(make_worker("w1"), make_worker("w2"), make_worker("w3")))
    assert failed.value.undone
    assert deployment.unfinished() is None
    assert deployment.observe() == ()
    assert worker_processes(deployment) == []


@pytest.mark.slow
def test_of_a_range_of_ports_a_free_one_is_taken(deploy: Callable[..., Deployment], taken_port: int) -> None:
    ports = [taken_port, min(taken_port + 20, 65535)]
    host = {"target": "here", "machines": ["cpu"], "count": 8, "ports": ports}
    deployment = deploy(hosts={"box": host})
    deployment.apply(make_plan(make_worker("w1", 1)))
    (seen,) = deployment.observe()
    assert seen.endpoint is not None
    assert taken_port < seen.endpoint.port <= ports[1]


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from cases.deployments import make_hosts
from hetplan.executor.deployment import Deployment
from hetplan.profiles.read_plan import read_plan

def die(event):
    if (event.kind, event.number) == ({kind!r}, {number}):
        os.kill(os.getpid(), signal.SIGKILL)

Deployment(make_hosts(Path({folder!r}))).apply(read_plan({plan!r}), on_event=die)
"""


SLOWLY = pytest.mark.slow


@pytest.mark.slow_cases(8)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "number", "then"),
    [
        ("step", 2, "finish"),
        *(
            pytest.param(kind, number, then, marks=SLOWLY)
            for kind in ("step", "done")
            for number in (1, 2, 3)
            for then in ("finish", "undo")
            if (kind, number, then) != ("step", 2, "finish")
        ),
    ],
)
def test_an_apply_killed_between_two_steps_is_finished_or_undone(
    deploy: Callable[..., Deployment], tmp_path: Path, kind: str, number: int, then: str
) -> None:
    deployment = deploy()
    before, after = make_plan(make_worker("w1", 1)), make_plan(make_worker("w2", 2))
    deployment.apply(before)
    write_plan(after, tmp_path / "after.json")
    script = KILLED.format(
        tests=str(Path(__file__).resolve().parents[1]), folder=str(tmp_path), plan=str(tmp_path / "after.json"),
        kind=kind, number=number,
    )  # fmt: skip
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False, timeout=300)
    assert ran.returncode == -signal.SIGKILL, ran.stderr.decode()
    cut = deployment.unfinished()
    assert cut is not None
    assert cut.plan == after.digest
    if then == "finish":
        deployment.apply(after)
        assert not deployment.difference(after)
    else:
        deployment.undo()
        assert not deployment.difference(before)
    assert deployment.unfinished() is None
    assert Client(deployment.endpoint()).post()[1]["outcome"] == "served"


CUT = """
import os, signal, sys, threading
sys.path.insert(0, {tests!r})
from pathlib import Path
from cases.deployments import make_hosts
from hetplan.executor.deployment import Deployment
from hetplan.profiles.read_plan import read_plan

def begin(event):
    if event.number == 1 and event.kind == "step":
        threading.Timer({after_s}, os.kill, (os.getpid(), signal.SIGKILL)).start()

Deployment(make_hosts(Path({folder!r}), **{changes!r})).apply(read_plan({plan!r}), on_event=begin)
signal.pause()
"""


def cut_off(folder: Path, plan: Path, *, after_s: float, changes: Any = None) -> subprocess.Popen[str]:
    """An apply in a process of its own that kills itself so long after its first step began."""
    tests = str(Path(__file__).resolve().parents[1])
    script = CUT.format(tests=tests, folder=str(folder), plan=str(plan), after_s=after_s, changes=changes or {})
    return subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)


def was_killed(process: subprocess.Popen[str]) -> None:
    _, said = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, said


@pytest.mark.slow_cases(10)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("worker", "after_ms", "then"),
    [
        *(("w2", ms, "finish") for ms in (1, 10, 30, 60, 100, 150, 200)),
        *(("w2", ms, "undo") for ms in (1, 60, 150, 170, 190)),
        *(("w1", ms, then) for ms in (1, 20) for then in ("finish", "undo")),
    ],
)
def test_an_apply_killed_in_the_middle_of_a_step_is_finished_or_undone(
    deploy: Callable[..., Deployment], tmp_path: Path, worker: str, after_ms: int, then: str
) -> None:
    """Other workers come, or another model comes in place."""
    deployment = deploy()
    before, after = make_plan(make_worker("w1", 1)), make_plan(make_worker(worker, 2, variant="v"))
    deployment.apply(before)
    write_plan(after, tmp_path / "after.json")
    was_killed(cut_off(tmp_path, tmp_path / "after.json", after_s=after_ms / 1e3))
    if then == "finish" or deployment.unfinished() is None:
        wanted = after
        deployment.apply(after)
    else:
        wanted = before
        deployment.undo()
    assert not deployment.difference(wanted)
    assert deployment.unfinished() is None
    left = worker_processes(deployment)
    assert len(left) == sum(worker.count for worker in wanted.workers), "nothing of what was cut off is left beside it"
    assert Client(deployment.endpoint()).post()[1]["outcome"] == "served"
    deployment.down()
    assert marked(folder_of(deployment)) == []


SLOWLY = "import sys, time; time.sleep(1); [print('{\"outputs\": []}', flush=True) for line in sys.stdin]"


@pytest.mark.slow
@pytest.mark.parametrize("then", ["undo", "before", "after"])
def test_what_a_killed_apply_asked_for_is_over_before_the_next_looks(
    deploy: Callable[..., Deployment], tmp_path: Path, then: str
) -> None:
    """A model that takes a second to load in place: while it loads, what ran before is still to be seen."""
    models = {
        "v": {"kind": "command", "command": [sys.executable, "-c", SLOWLY]},
        "*": {"kind": "sleep", "ms": 1.0},
    }
    deployment = deploy(models=models)
    before, after = make_plan(make_worker("w1", 1)), make_plan(make_worker("w1", 1, variant="v"))
    deployment.apply(before)
    write_plan(after, tmp_path / "after.json")
    was_killed(cut_off(tmp_path, tmp_path / "after.json", after_s=0.3, changes={"models": models}))
    assert not deployment.difference(before), "it is under way"
    wanted = after if then == "after" else before
    if then == "undo":
        deployment.undo()
    else:
        deployment.apply(wanted)
    assert not deployment.difference(wanted)
    Local(Setting("here", deployment.site, deployment.folder / "targets" / "here")).settle(limit_s=60.0)
    assert not deployment.difference(wanted), "nothing comes later"
    assert deployment.unfinished() is None


@pytest.mark.slow
def test_down_ends_a_start_that_hangs_and_whose_apply_was_killed(
    deploy: Callable[..., Deployment], tmp_path: Path
) -> None:
    hangs = {"kind": "command", "command": [sys.executable, "-c", "import time; time.sleep(1000)"]}
    deployment = deploy(models={"*": hangs}, limits={"start_s": 300.0, "drain_s": 1.0})
    write_plan(make_plan(make_worker("w1", 2)), tmp_path / "plan.json")
    changes = {"models": {"*": hangs}, "limits": {"start_s": 300.0}}
    applying = cut_off(tmp_path, tmp_path / "plan.json", after_s=300.0, changes=changes)
    wait_for(lambda: [seen.status for seen in deployment.observe()] == ["starting"] * 2 or applying.poll() is not None)
    applying.kill()
    was_killed(applying)
    deployment.down()
    assert marked(folder_of(deployment)) == []


@pytest.mark.slow
def test_of_two_applies_one_waits_or_refuses_and_names_the_other(deploy: Callable[..., Deployment]) -> None:
    deployment = deploy()
    inside, go_on = threading.Event(), threading.Event()

    def slow(event: Any) -> None:
        inside.set()
        go_on.wait(60)

    with ThreadPoolExecutor(1) as pool, Deployment(deployment.site) as other:
        working = pool.submit(lambda: deployment.apply(ONE, on_event=slow))
        assert inside.wait(60)
        with pytest.raises(DeploymentLocked, match=f"apply of .*process {os.getpid()}"):
            other.apply(ONE)
        threading.Timer(0.1, go_on.set).start()
        assert other.apply(ONE, wait_s=60.0).steps == ()
        assert working.result(60.0).steps


@pytest.mark.slow
def test_a_keeper_that_is_just_ending_is_one_that_does_not_run(deploy: Callable[..., Deployment]) -> None:
    """A killed process takes connections until the system has closed its files, and then resets them."""
    deployment = deploy()
    folder = folder_of(deployment)
    folder.mkdir(parents=True)
    ending = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with socket_path(folder) as path:
        ending.bind(path)
    ending.listen()
    threading.Timer(0.3, ending.close).start()
    assert deployment.observe() == ()
    assert ending.fileno() == -1, "the question was put before the keeper had ended"
    assert Client(deployment.apply(ONE).endpoint).post()[0] == 200


@pytest.mark.slow
def test_a_keeper_that_finds_another_still_there_is_started_again(deploy: Callable[..., Deployment]) -> None:
    deployment = deploy()
    folder_of(deployment).mkdir(parents=True)
    lock = os.open(folder_of(deployment) / "keeper.lock", os.O_WRONLY | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    threading.Timer(1.0, os.close, (lock,)).start()
    assert Client(deployment.apply(ONE).endpoint).post()[0] == 200


@pytest.mark.slow
def test_down_ends_what_a_command_left_behind(deploy: Callable[..., Deployment], tmp_path: Path) -> None:
    """A command that starts a process of its own, which hides in a session of its own."""
    serve = tmp_path / "serve.py"
    serve.write_text(
        "import json, subprocess, sys\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    outputs = [{'load': asked['load'], 'twice': 2 * x} for x in asked['inputs']]\n"
        "    print(json.dumps({'outputs': outputs}), flush=True)\n"
    )
    deployment = deploy(
        models={"*": {"kind": "command", "command": [sys.executable, str(serve), "--variant", "{variant}"]}}
    )
    endpoint = deployment.apply(make_plan(make_worker("w1", 1))).endpoint
    assert Client(endpoint).post(body={"inputs": 21})[1]["outputs"] == {"load": "w1.a", "twice": 42}
    assert len(processes(deployment, "1000")) == 1, "the process that hides"
    deployment.down()
    assert marked(folder_of(deployment)) == []


@pytest.mark.slow
def test_a_full_disk_changes_nothing(deploy: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch) -> None:
    import hetplan.executor.durable as durable

    deployment = deploy()
    deployment.apply(ONE)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "write_atomically", full)
    with pytest.raises(ApplyFailed, match="No space left") as failed:
        deployment.apply(make_plan(make_worker("w2", 1)))
    assert failed.value.undone
    monkeypatch.undo()
    assert not deployment.difference(ONE)
    assert Client(deployment.endpoint()).post()[0] == 200


@pytest.mark.slow
def test_a_disk_that_fills_up_at_the_end_is_undone(
    deploy: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = deploy()
    deployment.apply(ONE)
    monkeypatch.setattr(Deployment, "_remember", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(ApplyFailed, match="No space left"):
        deployment.apply(make_plan(make_worker("w2", 1)))
    monkeypatch.undo()
    assert not deployment.difference(ONE)


def test_a_wrong_model_file_is_found_before_anything_is_touched(deploy: Callable[..., Deployment]) -> None:
    from hetplan.errors import InputError

    deployment = deploy(models={"*": {"kind": "onnx", "path": "nowhere/{variant}.onnx"}})
    with pytest.raises(InputError, match=r"no model file .*nowhere/m\.onnx"):
        deployment.apply(ONE)
    assert deployment.observe() == ()
    assert not (deployment.folder / "journal.jsonl").exists()


@pytest.mark.slow
def test_a_query_that_takes_too_long_is_given_back(deploy: Callable[..., Deployment]) -> None:
    deployment = deploy(models={"*": {"kind": "sleep", "ms": 60_000.0}}, router={"port": 0, "timeout_s": 0.3})
    status, said = Client(deployment.apply(ONE).endpoint).post()
    assert (status, said["outcome"], said["why"]) == (503, "lost", "no answer in time")


@pytest.mark.slow
def test_status_is_a_state_that_planning_reads(deploy: Callable[..., Deployment], tmp_path: Path) -> None:
    from hetplan.profiles.load_one import load_state

    deployment = deploy()
    deployment.apply(ONE)
    path = tmp_path / "state.json"
    path.write_text(json.dumps(deployment.state(over_s=0.0).model_dump(mode="json", exclude_none=True)))
    assert load_state(path).observed["w1.a"].status == "active"
