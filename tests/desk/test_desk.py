"""The server over loopback with a real client: answers, refusals, limits, cancellation, counts; and its page."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import build
import face
import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from hetplan.desk.answers import Answers
from hetplan.desk.openapi import openapi
from hetplan.desk.work import Allowance, Busy, Task, Workshop

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "pool"
PROFILE = json.loads((EXAMPLES / "profile.json").read_text())
SLO = json.loads((EXAMPLES / "slo.json").read_text())
FILES = {"profile": PROFILE, "slo": SLO}
PLANNED = {**FILES, "options": {"sizing": "fluid"}}
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
        ({"profile": {**PROFILE, "measurements": "/etc/passwd"}}, 422, "give the profile as a file"),
        ({"profile": [PROFILE, {"format": PROFILE["format"], "measurements": "times.csv"}]}, 422, "this is a document"),
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


def fleet_files() -> dict[str, Any]:
    """One application of the fleet's example over two hours."""
    folder = EXAMPLES.parent / "fleet"
    profile, slo = (json.loads((folder / f"{name}.json").read_text()) for name in ("profile", "slo"))
    slo["horizon"] = {"period_s": 3600, "periods": 2, "repeats": 360}
    slo["apps"] = {"ranking": slo["apps"]["ranking"]}
    slo["apps"]["ranking"]["rate_qps"] = {"series": [110.0, 250.0]}
    return {"profile": profile, "slo": slo}


def fields(files: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields that the page offers, by their place."""
    return {"/".join(one["path"]): one for one in Answers(Allowance()).fields(files, Task())["fields"]}


def test_a_quick_plan_is_the_one_without_simulation_and_is_drawn_as_the_summary_says(server: Server) -> None:
    code, quick = server.ask("/v1/solve", {**FILES, "quick": True, "page": True})
    assert (code, quick["status"]) == (200, "optimal")
    _, planned = server.ask("/v1/solve", PLANNED)
    assert (quick["summary"], quick["plan"]["digest"]) == (planned["summary"], planned["plan"]["digest"])
    assert "html" not in planned
    assert f"${quick['summary']['cost_per_month']:,.0f}" in quick["html"]
    for row in quick["summary"]["machines"]:
        assert f"{row['model']} on {row['machine']}" in quick["html"]
    assert server.ask("/v1/solve", {**FILES, "quick": "yes"})[0] == 422


def test_a_quick_plan_is_rough_where_the_question_has_such_options() -> None:
    folder = EXAMPLES.parent / "policy"
    files = {name: json.loads((folder / f"{name}.json").read_text()) for name in ("profile", "slo")}
    found = Answers(Allowance()).solve({**files, "quick": True}, Task())
    assert (found["status"], found["plan"]["method"]["options"]["grid"]) == ("optimal", "fld{20}")
    stated = Answers(Allowance()).solve({**files, "quick": True, "options": {"grid": "fld{10}"}}, Task())
    assert stated["plan"]["method"]["options"]["grid"] == "fld{10}", "what is asked for is not overwritten"


def test_a_curve_is_drawn_over_one_number_of_the_slo(server: Server) -> None:
    body = {**FILES, "path": ["limits", "cost_per_hour"], "values": ["2", "3", "4"]}
    code, curve = server.ask("/desk/curve", body)
    assert code == 200
    assert curve["y"] == sorted(curve["y"])
    assert curve["html"].count("<svg ") == 1 + 3, "hatches, and the curve at three widths"
    assert server.ask("/desk/curve", {**body, "path": ["limits", "nowhere", "at", "all", 3]})[0] == 422
    assert server.ask("/desk/curve", {**body, "values": [1] * 100})[0] == 422
    for bad in ("x", None, [1], True, "nan"):
        code, refused = server.ask("/desk/curve", {**body, "values": [1, bad]})
        assert code == 422, bad
        assert "$.values" in json.dumps(refused)
    code, refused = server.ask("/v1/solve", {**PLANNED, "require_proof": "no"})
    assert code == 422
    assert "true or false" in json.dumps(refused)


@pytest.mark.slow
def test_a_report_is_that_of_the_command(server: Server, tmp_path: Path) -> None:
    wish = build.example("pool")
    answer = face.solve(wish, "fluid")
    code, found = server.ask(
        "/v1/report", {"profile": build.in_format_1_0(wish.profile), "slo": wish.slo, "plan": answer.plan}
    )
    assert code == 200
    face.report(dict(answer.plan or {}), wish, tmp_path)
    assert found["html"] == (tmp_path / "report.html").read_text()


def test_an_infeasible_answer_says_why_and_its_repairs_are_edits_of_fields() -> None:
    files = {**FILES, "slo": json.loads(json.dumps(SLO))}
    files["slo"]["apps"]["ranking"]["latency"]["p99_ms"] = 25
    found = Answers(Allowance()).solve({**files, "quick": True, "page": True}, Task())
    assert (found["status"], found["plan"]) == ("infeasible", None)
    assert "No plan <span>meets all requirements</span>" in found["html"]
    assert 'class="chip bad"' in found["html"]
    known = fields(files)
    (edit,) = found["repairs"][0]["edits"]
    field = known["/".join(edit["path"])]
    assert edit["value"] > 25
    assert field["label"] == "ranking, 99% within"
    files["slo"]["apps"]["ranking"]["latency"]["p99_ms"] = edit["value"]
    assert Answers(Allowance()).solve({**files, "quick": True}, Task())["plan"] is not None


def test_fields_are_those_of_the_files() -> None:
    pool, fleet = fields(FILES), fields(fleet_files())
    machines = {f"limits/instances/{name}" for name in ("t4", "cpu4", "cpu16")}
    limits = {"apps/ranking/latency/p99_ms", "apps/ranking/rate_qps", "limits/cost_per_hour", "limits/spot"}
    assert set(pool) == machines | limits
    assert pool["apps/ranking/rate_qps"]["unit"] == "or max"
    assert pool["limits/instances/cpu4"]["label"] == "cpu4: $0.14, $0.06 spot, at most 4"
    assert {"times/ranking", "limits/survive/serve", "limits/survive/zones"} <= set(fleet)
    assert "times/ranking" not in pool
    assert fleet["limits/survive/serve"]["scale"] == 100.0


@pytest.mark.parametrize("of", ["pool", "fleet"])
def test_what_a_field_writes_where_a_machine_or_a_way_to_buy_is_not_used_is_read(of: str) -> None:
    """The page writes it into the SLO file, which still loads; a number at either end of a field does, too."""
    files = FILES if of == "pool" else fleet_files()
    for field in fields(files).values():
        if field["kind"] == "times":
            continue
        used = field["kind"] in ("use", "machine")
        ends = [1.0, 1e9] if field["unit"] == "/s" else [field["least"], min(field["most"], 1e6)]
        ends = ends[:1] if field["whole"] else ends  # how many there are is the files' matter
        for value in [field["not_used"]] if used else [end / field["scale"] for end in ends]:
            slo = json.loads(json.dumps(files["slo"]))
            one = slo
            for step in field["path"][:-1]:
                one = one.setdefault(step, {})
            one[field["path"][-1]] = str(value) if field["as_text"] else round(value) if field["whole"] else value
            if field["unit"] == "or max":
                slo.pop("objective")
            fields({**files, "slo": slo})


def test_the_page_is_told_what_the_work_is_at(server: Server) -> None:
    class Telling(Task):
        heard: list[str] = []  # noqa: RUF012

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "doing":
                self.heard.append(value)
            super().__setattr__(name, value)

    Answers(Allowance()).solve({**fleet_files(), "quick": True}, task := Telling())
    assert "the program of p0-p1" in task.heard
    assert any(one.startswith("plans of applications, ") for one in task.heard)
    assert not any(" with highs" in one for one in task.heard)
    assert server.ask("/v1/requests/mine")[0] == 404, "nothing of this name is under way"
    assert server.ask("/v1/requests/mine", headers={"Authorization": None})[0] == 401
