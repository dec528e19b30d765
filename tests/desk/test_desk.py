"""The server over loopback with a real client: answers, refusals, limits, cancellation, counts; and its page."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import build
import face
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from hetplan.desk.answers import STAGES, Answers
from hetplan.desk.openapi import openapi
from hetplan.desk.work import Allowance, Busy, Workshop
from hetplan.errors import InputError, Interrupted
from hetplan.planner.answer import Limits

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pool"
PROFILE = json.loads((EXAMPLES / "profile.json").read_text())
SLO = json.loads((EXAMPLES / "slo.json").read_text())
FILES = {"profile": PROFILE, "slo": SLO}
PLANNED = {**FILES, "options": {"size": "planned"}}
TOKEN = "a token of the tests"
slow = pytest.mark.slow


def digest_of(answer: face.Answer) -> str:
    """What stands for a whole plan, down to the last digit."""
    assert answer.plan is not None
    return str(answer.plan["digest"])


@dataclass
class Server:
    address: str

    def ask(self, path: str, body: Any = None, *, raw: bytes | None = None, **how: Any) -> tuple[int, Any]:
        """Status and document; `headers` replace the usual ones, None leaves one out."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        usual = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"} | how.get("headers", {})
        headers = {name: value for name, value in usual.items() if value is not None}
        asked = urllib.request.Request(self.address + path, data=data, headers=headers, method=how.get("method"))
        try:
            with urllib.request.urlopen(asked, timeout=120) as answer:
                return answer.status, _read(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _read(error.read())


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """`hetplan desk` as its own process, as people start it."""
    command = [sys.executable, "-m", "hetplan", "desk", str(EXAMPLES / "profile.json"), str(EXAMPLES / "slo.json")]
    command += ["--port", "0", "--jobs", "1", "--queue", "1", "--time-limit", "20"]
    environment = {**os.environ, "HETPLAN_TOKEN": TOKEN}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as made:
        assert made.stdout is not None
        address = made.stdout.readline().partition("/?token=")[0]
        yield Server(address)
        made.send_signal(2)
        assert made.wait(timeout=20) in (0, 130)


def test_solve_verify_and_simulate_answer_as_the_library_does(server: Server) -> None:
    code, found = server.ask("/v1/solve", PLANNED)
    assert (code, found["exit"], found["status"]) == (200, 0, "optimal")
    assert sum(worker["count"] for worker in found["plan"]["workers"]) == 13
    wish = build.example("pool")
    assert found["summary"] == face.record_of_solve(wish)
    _, looked = server.ask("/desk/look", FILES)
    assert looked["summary"] == found["summary"]
    code, verdict = server.ask("/v1/verify", {**FILES, "plan": found["plan"]})
    assert (code, verdict["ok"]) == (200, True)
    found["plan"]["workers"][0]["count"] += 1
    code, verdict = server.ask("/v1/verify", {**FILES, "plan": found["plan"]})
    assert (code, verdict["ok"]) == (200, False)


def test_infeasible_is_an_answer_with_repairs(server: Server) -> None:
    slo = json.loads(json.dumps(SLO))
    slo["apps"]["ranking"]["latency"]["p99_ms"] = 1
    code, found = server.ask("/v1/solve", {**PLANNED, "slo": slo})
    assert (code, found["exit"], found["plan"]) == (200, 3, None)
    assert found["repairs"]


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"profile": "/etc/passwd"}, 422, "never names of files"),
        ({"profile": ["/etc/passwd"]}, 422, "never names of files"),
        ({"slo": None}, 422, "is missing"),
        ({"slo": {**SLO, "apps": {"ranking": {**SLO["apps"]["ranking"], "rate_qps": {"trace": {"file": "x"}}}}}}, 422,
         "a server reads no files"),
        ({"slo": {**SLO, "limits": {"cost_per_hour": "-3"}}}, 422, "cost_per_hour"),
        ({"colour": "red"}, 422, "unknown key of this request"),
        ({"limits": {"seconds": -1}}, 422, "a number, not negative"),
        ({"limits": {"threads": 99}}, 422, "unknown key of this request"),
        ({"question": "nothing"}, 422, "nothing"),
        ({"options": {"derate": "much"}}, 422, "derate"),
        ({"options": []}, 422, "an object"),
        ({"options": [1]}, 422, "an object"),
    ],
)  # fmt: skip
def test_bad_input_is_named_field_by_field(server: Server, change: dict[str, Any], code: int, words: str) -> None:
    found, said = server.ask("/v1/solve", {**PLANNED, **change})
    assert found == code, said
    faults = said["error"].get("faults") or [{"why": said["error"]["reason"], "remedy": "-"}]
    assert any(words in json.dumps(fault) for fault in faults), said
    assert all(fault["remedy"] for fault in faults)


def test_what_is_no_request_is_refused(server: Server) -> None:
    ask = server.ask
    assert ask("/v1/solve", raw=b"{")[0] == 400
    assert ask("/v1/solve", raw=b"[1]")[0] == 400
    assert ask("/v1/solve", raw=b'{"a": 1, "a": 2}')[0] == 400, "a key that is there twice"
    assert ask("/v1/solve", PLANNED, headers={"Content-Type": "text/plain"})[0] == 415
    assert ask("/v1/solve", method="GET")[0] == 405
    assert ask("/v1/nothing")[0] == 404
    assert ask("/v1/requests/nobody", method="DELETE")[0] == 404


@pytest.mark.parametrize("size", ["Transfer-Encoding: chunked", "Content-Length: 9000000"])
def test_a_body_that_is_too_large_is_cut_off(server: Server, size: str) -> None:
    """Whether it says its size or not: 8 MB are the most."""
    host, port = server.address.removeprefix("http://").split(":")
    head = f"POST /v1/solve HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Content-Type: application/json\r\n{size}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(head.encode())
        try:
            for _ in range(130 if "chunked" in size else 0):
                line.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        except OSError:
            pass
        assert b" 413 " in line.recv(200)


def test_only_who_has_the_token_and_comes_from_here_is_answered(server: Server) -> None:
    ask = server.ask
    assert ask("/v1/health", headers={"Authorization": None})[0] == 200
    for path in ("/v1/metrics", "/v1/openapi.json", "/"):
        assert ask(path, headers={"Authorization": None})[0] == 401
        assert ask(path, headers={"Authorization": "Bearer wrong"})[0] == 401
        assert ask(f"{path}?token={TOKEN.replace(' ', '+')}", headers={"Authorization": None})[0] == 200
        assert ask(path, headers={"Host": "evil.example:80"})[0] == 403, "a foreign name for this machine"
        assert ask(path, headers={"Origin": "http://evil.example"})[0] == 403, "a foreign page"
        assert ask(path, headers={"Origin": server.address})[0] == 200


@pytest.mark.slow
def test_work_is_stopped_by_its_id_and_too_much_of_it_is_sent_away(server: Server) -> None:
    """One at work, one waiting: the third goes, and stopping one lets the other go on."""
    _, plan = server.ask("/v1/solve", PLANNED)
    play = {**FILES, "plan": plan["plan"], "duration_s": 3000.0, "seeds": 5}
    answers: dict[str, tuple[int, Any]] = {}

    def send(name: str) -> None:
        answers[name] = server.ask("/v1/simulate", play, headers={"X-Request-Id": name})

    threads = [threading.Thread(target=send, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
        time.sleep(0.3)
    try:
        assert server.ask("/v1/health")[1] == {"ok": True, "working": 1, "waiting": 1}
        code, said = server.ask("/v1/solve", PLANNED)
        assert (code, said["error"]["reason"]) == (429, "too many requests wait already")
        assert server.ask("/v1/solve", PLANNED, headers={"X-Request-Id": "second"})[0] in (409, 429)
    finally:
        assert server.ask("/v1/requests/second", method="DELETE")[0] == 202
        assert server.ask("/v1/requests/first", method="DELETE")[0] == 202
        for thread in threads:
            thread.join(timeout=30)
    assert answers["first"][0] == 409
    assert answers["second"][0] == 409
    assert server.ask("/v1/solve", PLANNED)[0] == 200


def test_work_whose_client_leaves_is_stopped(server: Server) -> None:
    _, plan = server.ask("/v1/solve", PLANNED)
    body = json.dumps({**FILES, "plan": plan["plan"], "duration_s": 3000.0}).encode()
    host, port = server.address.removeprefix("http://").split(":")
    head = f"POST /v1/simulate HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as line:
        line.sendall(head.encode() + body)
        time.sleep(0.4)
        assert server.ask("/v1/health")[1]["working"] == 1
    until = time.monotonic() + 10
    while server.ask("/v1/health")[1]["working"] and time.monotonic() < until:
        time.sleep(0.05)
    assert server.ask("/v1/health")[1]["working"] == 0


def test_answers_are_counted(server: Server) -> None:
    server.ask("/v1/solve", raw=b"{")
    _, text = server.ask("/v1/metrics")
    assert re.search(r'^hetplan_requests_total\{path="/v1/solve",code="400"\} [1-9]', text, re.M)
    assert re.search(r"^hetplan_working 0$", text, re.M)


def test_the_page_plans_quickly_and_then_confirms(server: Server) -> None:
    code, quick = server.ask("/desk/look", FILES)
    assert (code, quick["stage"]) == (200, "planned")
    assert "6 x cpu4" in quick["html"]
    pinned = {**SLO, "limits": {**SLO["limits"], "instances": {"t4": [4, 4]}}}
    _, other = server.ask("/desk/look", {**FILES, "slo": pinned})
    assert "4 x t4" in other["html"]
    assert re.search(r"Pinned: 4 of t4. rate_qps is 5[\d.]+; without pins it is 580", other["html"])
    body = {**FILES, "path": ["limits", "cost_per_hour"], "values": ["2", "3", "4"]}
    code, curve = server.ask("/desk/curve", body)
    assert code == 200
    assert curve["y"] == sorted(curve["y"])
    assert curve["svg"].startswith("<svg ")
    assert server.ask("/desk/curve", {**body, "path": ["limits", "nowhere", "at", "all", 3]})[0] == 422
    assert server.ask("/desk/curve", {**body, "values": [1] * 100})[0] == 422


def test_given_workers_are_no_pins_and_a_look_is_rough() -> None:
    folder = EXAMPLES.parent / "policy"
    files = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("profile", "slo")}
    looked = Answers(Allowance()).look(files, threading.Event())
    assert (looked["status"], looked["stage"], looked["final"]) == ("optimal", "planned", False)
    assert "Pinned" not in looked["html"]
    assert looked["plan"]["method"]["options"]["grid"] == "fld{20}"


@pytest.mark.parametrize(("stage", "sizing"), [("planned", "fluid"), pytest.param("confirm", "simulation", marks=slow)])
def test_a_look_is_the_plan_that_is_solved_with_the_same_options_and_limits(stage: str, sizing: str) -> None:
    wish, answers = build.example("pool"), Answers(Allowance())
    looked = answers.look({"profile": wish.profile, "slo": wish.slo, "stage": stage}, threading.Event())
    solved = face.solve(wish, sizing, limits=Limits(seconds=answers.allowance.seconds))
    assert looked["plan"]["digest"] == digest_of(solved)
    with pytest.raises(InputError, match="there is no such stage"):
        answers.look({**FILES, "stage": "later"}, threading.Event())


def test_a_plan_wanted_soon_is_the_best_that_is_solved_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps past the limit where the search for machines begins: there is a first plan by then."""
    files, now, answers = fleet_files(), [0.0], Answers(Allowance(seconds=9000.0))

    def jump(event: Any) -> None:
        now[0] += 1000.0 if event.detail.startswith("limits on machines") else 0.0

    stated = partial(Limits, clock=lambda: now[0])
    monkeypatch.setattr("hetplan.desk.answers.Limits", stated)
    monkeypatch.setattr("hetplan.desk.answers.SOON_SECONDS", 50.0)  # engines go by the clock on the wall
    monkeypatch.setattr(answers, "_heard", lambda name, event: jump(event))
    soon = answers.look({**files, "stage": "soon"}, threading.Event())
    assert (soon["stage"], soon["status"]) == ("soon", "not-simulated")
    assert "NOT SIMULATED" in soon["html"]
    assert "Bound: none is known" in soon["html"]
    now[0] = 0.0
    quick: Any = {"options": {"levers": False}, "limits": stated(seconds=50.0), "on_event": jump}
    solved = face.solve(build.Files(files["profile"], files["slo"]), "fluid", **quick)
    assert soon["plan"]["digest"] == digest_of(solved)
    planned = face.solve(build.Files(files["profile"], files["slo"]), "fluid", options={"levers": False})
    assert planned.value is not None
    assert planned.value < soon["plan"]["claims"][0]["value"]


def test_a_plan_wanted_soon_that_is_done_in_time_is_the_planned_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hetplan.desk.answers.SOON_SECONDS", 50.0)
    soon, planned = (Answers(Allowance()).look({**FILES, "stage": one}, threading.Event()) for one in STAGES[:2])
    assert soon["stage"] == "planned"
    assert soon["plan"] == planned["plan"]


@pytest.mark.slow
def test_a_fleet_is_drawn_with_its_machines_over_time_and_its_bill() -> None:
    folder = EXAMPLES.parent / "fleet"
    profile, slo = (json.loads((folder / f"{name}.json").read_text()) for name in ("profile", "slo"))
    slo["horizon"] = {"period_s": 3600, "periods": 2, "repeats": 360}
    slo["apps"] = {"ranking": slo["apps"]["ranking"]}
    slo["apps"]["ranking"]["rate_qps"] = {"series": [110.0, 250.0]}
    looked = Answers(Allowance()).look({"profile": profile, "slo": slo}, threading.Event())
    assert "Demand, machines by the way they are paid for" in looked["html"]
    assert "machines of each application by hour" in looked["html"]
    assert len(looked["summary"]["hours"]) == 2
    assert "ranker on cpu16" in looked["html"]


def test_the_contract_names_every_path_and_its_schemas_hold() -> None:
    made = openapi()
    assert {"/v1/solve", "/v1/verify", "/v1/simulate", "/v1/health", "/v1/metrics"} <= set(made["paths"])
    jsonschema = pytest.importorskip("jsonschema")
    body = made["paths"]["/v1/solve"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    validator = jsonschema.Draft202012Validator({**body, "components": made["components"]})
    assert not list(validator.iter_errors(PLANNED))
    assert list(validator.iter_errors({**PLANNED, "colour": "red"}))
    assert list(validator.iter_errors({**PLANNED, "slo": {**SLO, "limits": {"cost_per_hour": [3]}}}))


def test_work_beyond_the_queue_is_busy() -> None:
    workshop, hold = Workshop(Allowance(at_once=1, waiting=1)), threading.Event()
    tasks = [workshop.begin("x", lambda _: hold.wait(20)) for _ in range(2)]
    with pytest.raises(Busy):
        workshop.begin("x", lambda _: None)
    hold.set()
    assert [task.result() for task in tasks] == [True, True]
    workshop.begin("x", lambda _: None).result()
    workshop.close()


@pytest.mark.slow
def test_a_browser_plans_and_shows_what_is_confirmed(server: Server) -> None:
    browser = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no headless browser here: install chromium to look at pages")
    address = f"{server.address}/?token={TOKEN.replace(' ', '%20')}"
    how = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000", "--dump-dom"]
    shown = subprocess.run([browser, *how, address], capture_output=True, text=True, check=True, timeout=180).stdout
    assert re.search(r'id="mark"[^>]*class="good"[^>]*>confirmed in ', shown)
    assert 'data-path="limits/cost_per_hour"' in shown
    assert "6 x cpu4" in shown
    assert shown.count("<svg ") >= 3
    sliders = [float(at) for at in re.findall(r'data-at="([\d.]+)"', shown)]
    assert len(sliders) >= 6
    assert all(abs(at - 0.5) < 0.02 for at in sliders), "each begins in the middle"


def fleet_files(**limits: Any) -> dict[str, Any]:
    """One application of the fleet's example over two hours."""
    folder = EXAMPLES.parent / "fleet"
    profile, slo = (json.loads((folder / f"{name}.json").read_text()) for name in ("profile", "slo"))
    slo["horizon"] = {"period_s": 3600, "periods": 2, "repeats": 360}
    slo["apps"] = {"ranking": slo["apps"]["ranking"]}
    slo["apps"]["ranking"]["rate_qps"] = {"series": [110.0, 250.0]}
    slo["limits"] |= limits
    return {"profile": profile, "slo": slo}


def test_a_page_waits_for_the_look_that_was_begun_for_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked = Answers(Allowance()), {**FILES, "stage": "soon"}
    made, looked = list[str](), answers._looked

    def counted(*how: Any) -> Any:
        made.append("a look")
        return looked(*how)

    monkeypatch.setattr(answers, "_looked", counted)
    work = answers.begin(asked)
    begun = threading.Thread(target=work, args=(threading.Event(),))
    begun.start()
    first = answers.look({**json.loads(json.dumps(asked)), "name": "mine"}, threading.Event())
    begun.join()
    assert (first["status"], made) == ("optimal", ["a look"])
    other = {**asked, "slo": {**SLO, "limits": {"cost_per_hour": "2"}}}
    assert answers.look(other, threading.Event())["plan"]["inputs"] != first["plan"]["inputs"]
    answers.look(asked, threading.Event())
    assert len(made) == 3, "handed out once, and of the same files alone"


def test_who_waits_for_a_look_may_leave_and_hears_of_its_faults() -> None:
    answers = Answers(Allowance())
    work, gone = answers.begin({**FILES, "stage": "nothing"}), threading.Event()
    gone.set()
    with pytest.raises(Interrupted):
        answers.look({**FILES, "stage": "nothing"}, gone)
    for look in (work, lambda cancel: answers.look({**FILES, "stage": "nothing"}, cancel)):
        with pytest.raises(InputError, match="there is no such stage"):
            look(threading.Event())


@pytest.mark.slow
def test_a_page_is_told_what_a_look_is_at(server: Server) -> None:
    answers, heard = Answers(Allowance()), list[str]()
    keep = answers._heard

    def listening(name: str, event: Any) -> None:
        keep(name, event)
        heard.append(answers.doing(name))

    answers._heard = listening  # type: ignore[method-assign]
    answers.look({**fleet_files(), "name": "mine"}, threading.Event())
    assert "the program of p0-p1" in heard
    assert any(one.startswith("plans of applications, ") for one in heard)
    assert not any(" with highs" in one for one in heard)
    assert answers.doing("mine") == "", "it is over"
    with pytest.raises(InputError, match="at most 64 characters"):
        answers.look({**FILES, "name": "m" * 65}, threading.Event())
    assert server.ask("/desk/doing/mine") == (200, {"doing": ""})
    assert server.ask("/desk/doing/mine", headers={"Authorization": None})[0] == 401


@pytest.mark.slow
def test_what_is_impossible_is_explained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, asked, outcome = Answers(Allowance()), list[str](), Answers._outcome

    def counted(self: Answers, *how: Any, **named: Any) -> Any:
        asked.append("asked")
        return outcome(self, *how, **named)

    monkeypatch.setattr(Answers, "_outcome", counted)
    monkeypatch.setattr("hetplan.desk.answers.SOON_SECONDS", 50.0)
    files = fleet_files()
    files["slo"]["apps"]["ranking"]["latency"]["p99_ms"] = 1
    found = answers.look({**files, "stage": "soon"}, threading.Event())
    assert (found["stage"], found["status"], found["plan"]) == ("planned", "infeasible", None)
    assert len(asked) == 1
    page = (Path(__file__).resolve().parents[2] / "hetplan" / "desk" / "desk.html").read_text()
    assert found["final"]
    assert "mine === turn && !said.final" in page, "it is not asked again to be confirmed"
    slo = json.loads(json.dumps(SLO))
    slo["apps"]["ranking"]["latency"]["p99_ms"] = 1
    assert "plans that are played may need more" in answers.look({**FILES, "slo": slo}, threading.Event())["html"]


def test_a_first_plan_that_does_not_stand_its_check_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Answers._outcome

    def forged(self: Answers, asked: Any, *how: Any, **named: Any) -> Any:
        made = outcome(self, asked, *how, **named)
        late = replace(made, finding=replace(made.finding, limited=True), violations=("too dear",))
        return late if asked.get("limits") else made

    monkeypatch.setattr(Answers, "_outcome", forged)
    shown = Answers(Allowance()).look({**FILES, "stage": "soon"}, threading.Event())
    assert (shown["stage"], shown["status"]) == ("planned", "optimal")
    assert "too dear" not in shown["html"]
