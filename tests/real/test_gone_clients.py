"""Clients that hang up while they wait: their queries leave the queue, at whatever step they are, and cost nothing."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest
from build import app, files, machine, model
from build import pipeline as steps
from face import sent_by, solve
from hosts_face import Counts, Hosted

pytestmark = pytest.mark.slow

SERVICE_MS = 50.0


def hang_up(hosted: Hosted, name: str, count: int, *, after_s: float, half: bool = False) -> list[socket.socket]:
    """So many clients that ask and then hang up, or send no more and listen no more."""
    asked = []
    for _ in range(count):
        one = socket.create_connection(hosted.address)
        one.sendall(hosted.query(name))
        asked.append(one)
    time.sleep(after_s)
    for one in asked:
        one.shutdown(socket.SHUT_WR) if half else one.close()
    return asked if half else []


def until_none_is_under_way(hosted: Hosted, name: str) -> Counts:
    until = time.monotonic() + 20.0
    while hosted.counts(name).under_way and time.monotonic() < until:
        time.sleep(0.05)
    return hosted.counts(name)


@pytest.mark.parametrize("late", ["serve", None])
@pytest.mark.parametrize("rule", ["matched", "matched in parts", "earliest", "oldest first", "at random"])
def test_the_next_query_is_served_as_if_they_had_never_come(tmp_path: Path, rule: str, late: str | None) -> None:
    count = 100
    wish = files(
        machines={"box": machine(0.1, stock=8, kind="cpu")},
        models={"m": model({"box": {1: SERVICE_MS, 8: 8 * SERVICE_MS}})},
        apps={"images": app("m", limits={99: 20 * SERVICE_MS}, sizes={1: 1.0}, late=late)},
        problem="pool",
    ).limited(cost=9.0, counts={"box": (2, 2)})
    plan = solve(wish, "fluid").plan or {}
    with Hosted(tmp_path, wish) as hosted:
        hosted.apply(sent_by(plan, rule))
        assert hosted.ask("images")[0] == "served"
        waiting = hang_up(hosted, "images", count, after_s=0.1, half=rule == "oldest first")
        outcome, took_ms, _ = hosted.ask("images")
        assert outcome in ("served", "late")
        assert took_ms < 0.4 * count * SERVICE_MS / 2.0, "they would have taken the two machines for 2.5 s"
        found = until_none_is_under_way(hosted, "images")
        assert found.steps <= 2 + 20, "those that had begun, and few that began before it was seen"
        assert found.left + found.refused + found.steps >= count
        for one in waiting:
            one.close()


def test_a_query_whose_client_left_goes_to_no_further_step(tmp_path: Path) -> None:
    wish = files(
        machines={"box": machine(0.1, stock=8, kind="cpu")},
        models={name: model({"box": {1: ms}}, quality=0.9) for name, ms in {"a": 400.0, "b": 60.0}.items()},
        apps={"images": app("two", rate=1.0, limits={99: 5000.0}, by="pipeline", late="serve")},
        pipelines={"two": steps([("a", "b", 3.0)], ["a", "b"])},
        problem="pipeline",
    )
    plan = solve(wish, "fluid").plan or {}
    with Hosted(tmp_path, wish) as hosted:
        hosted.apply(plan)
        assert hosted.ask("images")[0] == "served"
        assert hosted.counts("images").steps == 4
        hang_up(hosted, "images", 3, after_s=0.2)
        time.sleep(2.5)
        found = until_none_is_under_way(hosted, "images")
        assert found.left == 3
        assert found.steps <= 4 + 3, "the first step of those that had begun, and nothing that follows it"


def test_what_clients_who_wait_are_owed_is_not_touched_by_those_who_left(tmp_path: Path) -> None:
    wish = files(
        machines={"box": machine(0.1, stock=8, kind="cpu")},
        models={"m": model({"box": {1: SERVICE_MS}})},
        apps={"images": app("m", limits={99: 60 * SERVICE_MS}, sizes={1: 1.0})},
        problem="pool",
    ).limited(cost=9.0, counts={"box": (1, 1)})
    plan = solve(wish, "fluid").plan or {}
    with Hosted(tmp_path, wish) as hosted:
        hosted.apply(plan)
        stay, leave = [], []
        for number in range(20):
            one = socket.create_connection(hosted.address, timeout=30.0)
            one.sendall(hosted.query("images", keeps=False))
            (leave if number % 2 else stay).append(one)
        time.sleep(0.1)
        for one in leave:
            one.close()
        answers = [b"".join(iter(lambda one=one: one.recv(65536), b"")) for one in stay]  # type: ignore[misc]
        assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
