"""Fleets that make text, on this machine: the embedded engine and other servers of OpenAI's protocol, by the router."""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cases.deployments import Client, make_hosts, make_plan, processes_of, wait_for

import hetplan
from hetplan.cli.loadtest import TextLoad, text_load
from hetplan.errors import InputError
from hetplan.executor.deployment import Deployment
from hetplan.executor.kept_process import marked
from hetplan.executor.wanted import wanted
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.workers import Load, Worker
from tests.build import shipped

ENGINE: dict[str, Any] = {"pieces": [{"base_ms": 10.0, "token_ms": 0.1}], "kv_tokens": 4000, "context_tokens": 2000}


def write_profile(folder: Path, **engine: Any) -> str:
    """One model on a machine with this engine, and on one that is four times slower."""
    slow = {**ENGINE, "pieces": [{"base_ms": 40.0, "token_ms": 0.4}]}
    said = {
        "format": "hetplan/profile/1.0",
        "hardware": {"gpu": {"kind": "gpu", "provides": {"gpu": 1}}, "old": {"kind": "gpu", "provides": {"gpu": 1}}},
        "tasks": {"chat": {}},
        "variants": {
            "talker": {"task": "chat", "runs": [{"hardware": "gpu", "engine": "e"}, {"hardware": "old", "engine": "o"}]}
        },
        "engines": {"e": {**ENGINE, **engine}, "o": slow},
    }  # fmt: skip
    (folder / "profile.json").write_text(json.dumps(said))
    return str(folder / "profile.json")


def make_text_plan(at_once: int = 8, **counts: int) -> Plan:
    """So many machines of each hardware, each with so many requests at a time."""
    serve = {"max_batch": 8, "concurrency": at_once, "most_tokens": 512, "most_seqs": 8}
    workers = [
        Worker(
            id=f"w-{hardware}", hardware=hardware, count=count, queue="per-load",
            loads=(Load(id=f"l-{hardware}", app="assistant", variant="talker", serve=serve),),
        )
        for hardware, count in counts.items()
    ]  # fmt: skip
    limit = {f"l-{hardware}": 1.0 for hardware in counts}
    dispatch = {"rule": "least-work/1", "ttft_ms": 2000.0, "limit": limit, "output_tokens": 10.0}
    routes = [{"to": {load: 1.0 / len(limit) for load in limit}}]
    return make_plan(
        *workers, question="llm", dispatch={"assistant": dispatch}, routing={"assistant": routes}
    )  # fmt: skip


HOST = {"target": "here", "machines": ["gpu", "old"], "count": 8, "gpus_per_worker": 0}


@pytest.fixture
def served(deploy: Callable[..., Deployment], tmp_path: Path) -> Callable[..., tuple[Deployment, str]]:
    """A plan applied, and where its router is."""

    def start(plan: Plan | None = None, rule: dict[str, Any] | None = None, **changes: Any) -> tuple[Deployment, str]:
        profile = write_profile(tmp_path)
        made = deploy(
            files=[profile], hosts={"box": HOST}, models={"*": rule or {"kind": "sleep"}}, **changes
        )  # fmt: skip
        return made, made.apply(plan or make_text_plan(gpu=1)).endpoint

    return start


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The router of a fleet of a fast and a slow machine, which tests that change nothing share."""
    folder = tmp_path_factory.mktemp("text")
    content = {"files": [write_profile(folder)], "hosts": {"box": HOST}, "models": {"*": {"kind": "sleep"}}}
    with Deployment(make_hosts(folder, **content)) as deployment:
        try:
            yield deployment.apply(make_text_plan(gpu=1, old=1)).endpoint
            assert deployment.missing() == []
        finally:
            deployment.down(wait_s=60.0)


def ask(endpoint: str, said: Any, path: str = "/v1/completions", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=60)
    connection.request("POST", path, json.dumps(said), headers)
    answer = connection.getresponse()
    answer.connection = connection  # type: ignore[attr-defined]
    return answer


def events(answer: http.client.HTTPResponse) -> list[Any]:
    """What came piece by piece; the end is [DONE]."""
    lines = [line for line in answer.read().split(b"\n\n") if line]
    assert lines[-1] == b"data: [DONE]"
    return [json.loads(line.removeprefix(b"data: ")) for line in lines[:-1]]


def test_text_streams_token_by_token_by_the_law_of_its_engine(endpoint: str) -> None:
    began = time.monotonic()
    answer = ask(endpoint, {"model": "assistant", "prompt": [5] * 300, "max_tokens": 6, "stream": True})
    came = events(answer)
    took = time.monotonic() - began
    assert [one["choices"][0]["finish_reason"] for one in came] == [None] * 5 + ["length"]
    assert answer.getheader("hetplan-load") == "l-gpu", "the fast one has the least work"
    # 10 + 0.1 x 300, then five iterations of 10.1.
    assert 0.090 <= took < 5.0
    whole = json.loads(ask(endpoint, {"messages": [{"content": "hi"}], "max_tokens": 3}, "/v1/chat/completions").read())
    assert (whole["object"], whole["usage"]["completion_tokens"]) == ("chat.completion", 3)
    named = Client(endpoint).get("/v1/models")["data"]
    assert [one["id"] for one in named] == ["assistant", "talker"]
    counts = Client(endpoint).get("/metrics")
    assert counts["apps"]["assistant"]["served"] == counts["loads"]["l-gpu"]["served"] == 2


@pytest.mark.slow
def test_more_prompts_than_can_begin_in_time_are_refused_at_once(
    served: Callable[..., tuple[Deployment, str]],
) -> None:
    _, endpoint = served()

    def one(_: int) -> tuple[int, float, str | None]:
        began = time.monotonic()
        answer = ask(endpoint, {"prompt": [5] * 300, "max_tokens": 1})
        answer.read()
        return answer.status, time.monotonic() - began, answer.getheader("retry-after")

    with ThreadPoolExecutor(100) as pool:
        said = list(pool.map(one, range(100)))
    answered = [took for status, took, _ in said if status == 200]
    # A prompt takes 40 ms, and a first token may take 2 s.
    assert 35 <= len(answered) <= 75, len(answered)
    assert max(answered) < 4.0
    assert {(status, again) for status, _, again in said if status != 200} == {(503, "2")}


def test_more_requests_than_a_replica_may_have_are_refused_at_once(
    served: Callable[..., tuple[Deployment, str]],
) -> None:
    """Three streams are open, so the next is refused; when one has ended, another is taken."""
    _, endpoint = served(make_text_plan(at_once=3, gpu=1))
    asked = {"prompt": "one two three", "max_tokens": 40, "stream": True}
    under_way = [ask(endpoint, asked) for _ in range(3)]
    assert [answer.status for answer in under_way] == [200] * 3
    refused = ask(endpoint, asked)
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert "all it may take" in json.load(refused)["error"]["message"]
    for answer in under_way:
        events(answer)
    again = ask(endpoint, asked)
    assert again.status == 200
    events(again)


def test_what_cannot_be_asked_is_answered_as_clients_of_openai_read_it(endpoint: str) -> None:
    for said, status, part in (
        ({"model": "gpt", "prompt": "x"}, 404, "there are assistant, talker"),
        ({"prompt": [1] * 1990, "max_tokens": 50}, 400, "more than this engine's 2000"),
        ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens"),
        ({"prompt": "x", "n": 2}, 400, "one answer"),
        ({}, 400, "a prompt"),
        ([], 400, "an object"),
    ):
        answer = ask(endpoint, said)
        assert (answer.status, part in json.loads(answer.read())["error"]["message"]) == (status, True), said
    assert ask(endpoint, {"prompt": "x"}, **{"hetplan-timeout": "soon"}).status == 400
    late = ask(endpoint, {"prompt": "x", "max_tokens": 500}, **{"hetplan-timeout": "0.2"})
    assert (late.status, json.loads(late.read())["error"]["type"]) == (503, "timeout")


@pytest.mark.slow
def test_a_load_is_streamed_and_is_compared_with_the_very_requests_simulated(endpoint: str, tmp_path: Path) -> None:
    wish = {
        "task": "chat", "latency": {"ttft_p95_ms": 2000}, "attainment": 0.5,
        "network_ms_per_hop": 7,
        "rate_qps": 20, "mix": {"axes": ["input_tokens", "output_tokens"], "bins": [[50, 5]], "share": [1]},
    }  # fmt: skip
    (tmp_path / "slo.json").write_text(json.dumps({"format": "hetplan/slo/1.0", "apps": {"assistant": wish}}))
    inputs = load_inputs([write_profile(tmp_path)], str(tmp_path / "slo.json"))
    report = text_load(make_text_plan(gpu=1, old=1), inputs, TextLoad(endpoint, 1.5))
    lines = {line.name: line for line in report.lines}
    # What a client measured has the network in it, so it is held against the limit as stated.
    assert (lines["ttft_ms p95"].by, lines["ttft_ms p95"].promised) == ("slo", 2000)
    assert set(report.apps["assistant"].statuses) == {"200"}
    ttft, tpot = lines["ttft_ms p50"], lines["tpot_ms p50"]
    assert ttft.measured is not None
    assert tpot.measured is not None
    assert ttft.simulated is not None
    # An emptiest prefill takes 15 ms, an iteration 10: nothing is faster than the law.
    assert ttft.measured.value > 14.0
    assert ttft.simulated[0] > 7.0 + 14.0
    assert tpot.measured.value > 9.5
    assert not report.warnings or {code for code, _, _ in report.warnings} <= {"W-late-sender"}


def test_a_client_that_goes_frees_the_engine(endpoint: str) -> None:
    ask(endpoint, {"prompt": "x", "max_tokens": 3, "stream": True}).read()
    before = Client(endpoint).get("/metrics")
    for stream in (True, False):
        answer_bytes = json.dumps({"prompt": "x", "max_tokens": 1500, "stream": stream}).encode()
        connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=60)
        connection.request("POST", "/v1/completions", answer_bytes)
        wait_for(lambda: Client(endpoint).get("/metrics")["apps"]["assistant"]["under_way"] == 1)
        connection.close()
        wait_for(lambda: Client(endpoint).get("/metrics")["apps"]["assistant"]["under_way"] == 0, 5.0)
    counts = Client(endpoint).get("/metrics")
    with urllib.request.urlopen(f"{endpoint}/metrics?format=prometheus", timeout=60) as page:
        text = page.read().decode()
    assert 'hetplan_first_token_seconds_count{app="assistant"}' in text
    assert 'hetplan_token_seconds_count{app="assistant"}' in text
    for part, name, key in (("apps", "assistant", "left"), ("loads", "l-gpu", "failed")):
        assert counts[part][name][key] == before[part][name].get(key, 0) + 2


SERVER = """
import http.server, json, os, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked.get("prompt") == "end":
            os._exit(3)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for said in (asked["model"], " ".join(sys.argv[2:])):
            piece = b"data: " + json.dumps(said).encode() + b"\\n\\n"
            self.wfile.write(b"%x\\r\\n%b\\r\\n" % (len(piece), piece))
            time.sleep(0.05)
        self.wfile.write(b"0\\r\\n\\r\\n")

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.slow
def test_another_server_is_started_with_the_plans_numbers_and_again_when_it_ends(
    served: Callable[..., tuple[Deployment, str]], tmp_path: Path
) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    words = ["{port}", "{variant}", "{max_tokens}", "{max_seqs}", "{tensor}"]
    rule = {"command": [sys.executable, str(tmp_path / "server.py"), *words], "name": "real/name"}
    deployment, endpoint = served(rule=rule)
    answer = ask(endpoint, {"model": "talker", "prompt": "x", "stream": True})
    assert answer.read() == b'data: "real/name"\n\ndata: "talker 512 8 1"\n\n'
    assert answer.getheader("content-type") == "text/event-stream"
    assert ask(endpoint, {"prompt": "end"}).status == 503
    wait_for(lambda: ask(endpoint, {"prompt": "x"}).status == 200)
    folder = (deployment.folder / "targets" / "here").resolve()
    deployment.down()
    assert marked(folder) == []


@pytest.mark.slow
def test_a_stream_of_an_http_model_passes_through(deploy: Callable[..., Deployment], tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    command = [sys.executable, str(tmp_path / "server.py"), "{port}", "plain"]
    worker = Worker(id="w", hardware="gpu", count=1, loads=(Load(id="w.a", app="app", variant="m"),))
    made = deploy(models={"*": {"command": command, "health": "/", "protocol": "openai"}})
    endpoint = made.apply(make_plan(worker)).endpoint
    for path in ("/v1/chat/completions", "/v1/completions"):
        answer = ask(endpoint, {"messages": [{"content": "x"}], "prompt": "x", "stream": True}, path)
        assert answer.read() == b'data: "m"\n\ndata: "plain"\n\n'
    answer = ask(endpoint, {"model": "as it is"}, "/v1/app", accept="text/event-stream")
    assert answer.read() == b'data: "as it is"\n\ndata: "plain"\n\n'


@pytest.mark.slow
def test_a_request_whose_worker_dies_is_tried_at_another_until_its_answer_begins(
    served: Callable[..., tuple[Deployment, str]],
) -> None:
    deployment, endpoint = served(make_text_plan(gpu=2))
    slow = {"prompt": [1] * 1900, "max_tokens": 40, "stream": True}
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(slow))
    wait_for(lambda: Client(endpoint).get("/metrics")["apps"]["assistant"]["under_way"] == 1)
    folder = (deployment.folder / "targets" / "here").resolve()
    first = next(one.name for one in deployment.observe() if one.name.startswith("w-gpu-0"))
    (worker,) = processes_of(folder, str(folder / f"{first}.json"))
    os.kill(worker, signal.SIGKILL)
    answer = connection.getresponse()
    assert (answer.status, str(answer.getheader("hetplan-unit"))[:7]) == (200, "w-gpu-1")
    assert len(events(answer)) == 40


def write_roles(folder: Path, *, link_mbps: float = 8.0) -> str:
    """One machine prefills, others decode; KV of 1,000 bytes a token goes over a link: a millisecond at 8 Mbit/s."""
    own = {**ENGINE, "kv_bytes_per_token": 1000}
    said = {
        "format": "hetplan/profile/1.0",
        "hardware": {
            "fill": {"kind": "gpu", "provides": {"gpu": 1}, "tier": "a"},
            "make": {"kind": "gpu", "provides": {"gpu": 1}, "tier": "b"},
        },
        "tasks": {"chat": {}},
        "variants": {
            "talker": {
                "task": "chat", "runs": [{"hardware": "fill", "engine": "f"}, {"hardware": "make", "engine": "m"}]
            }
        },
        "engines": {"f": {**own, "role": "prefill"}, "m": {**own, "role": "decode"}},
        "tiers": ["a", "b"],
        "links": [{"between": ["a", "b"], "bandwidth_mbps": link_mbps}],
    }  # fmt: skip
    (folder / "roles.json").write_text(json.dumps(said))
    return str(folder / "roles.json")


ROLE_HOST = {**HOST, "machines": ["fill", "make"]}


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, str]]:
    """One machine that prefills and two that decode."""
    folder = tmp_path_factory.mktemp("split")
    hosts = {"files": [write_roles(folder)], "hosts": {"box": ROLE_HOST}, "models": {"*": {"kind": "sleep"}}}
    with Deployment(make_hosts(folder, **hosts)) as deployment:
        try:
            yield deployment, deployment.apply(make_text_plan(fill=1, make=2)).endpoint
            assert deployment.missing() == []
        finally:
            deployment.down(wait_s=60.0)


@pytest.mark.slow
def test_a_prompt_is_prefilled_at_one_machine_and_decoded_at_another(split: tuple[Deployment, str]) -> None:
    endpoint = split[1]
    asked = {"model": "assistant", "prompt": [5] * 300, "max_tokens": 6, "stream": True}
    began, marks = time.monotonic(), []
    answer = ask(endpoint, {**asked, "stream_options": {"include_usage": True}})
    came = []
    while line := answer.readline():
        if line.startswith(b"data: {"):
            marks.append(time.monotonic() - began)
            came.append(json.loads(line.removeprefix(b"data: ")))
    assert [one["choices"][0]["finish_reason"] for one in came[:-1]] == [None] * 5 + ["length"]
    assert came[-1]["usage"] == {"prompt_tokens": 300, "completion_tokens": 6, "total_tokens": 306}
    assert len({one["id"] for one in came}) == 1, "one answer, though two machines make it"
    # 10 + 0.1 x 300 of prefill, 300 of the link; then five iterations of 10.1.
    assert 0.340 <= marks[0] < 5.0
    assert marks[5] >= 0.390, "however late the first was read"
    whole = json.loads(ask(endpoint, {"messages": [{"content": "hi"}], "max_tokens": 3}, "/v1/chat/completions").read())
    assert (whole["object"], whole["usage"]["completion_tokens"]) == ("chat.completion", 3)
    one = ask(endpoint, {**asked, "max_tokens": 1})
    assert [piece["choices"][0]["finish_reason"] for piece in events(one)] == ["length"]
    wait_for(lambda: Client(endpoint).get("/metrics")["apps"]["assistant"]["under_way"] == 0)
    counts = Client(endpoint).get("/metrics")
    assert counts["apps"]["assistant"]["served"] == 3
    assert counts["loads"]["l-fill"]["served"] == 3
    assert counts["loads"]["l-make"]["served"] == 2, "one token needs no machine that decodes"


@pytest.mark.slow
def test_a_client_that_goes_is_let_go_where_it_prefills_where_its_kv_moves_and_where_it_decodes(
    split: tuple[Deployment, str],
) -> None:
    endpoint = split[1]
    # Prefill of 200 ms; a link of 1.9 s; decoding of 15 s.
    for tokens, most, load in ((1900, 50, "l-fill"), (1500, 50, "l-fill"), (20, 1500, "l-make")):
        loads = Client(endpoint).get("/metrics")["loads"]
        before, filled = loads[load], loads["l-fill"]["served"]
        connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=60)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": [1] * tokens, "max_tokens": most}))
        if load == "l-fill":
            wait_for(lambda: Client(endpoint).get("/metrics")["apps"]["assistant"]["under_way"] == 1)
            time.sleep(0.5 if tokens == 1500 else 0.0)
        else:
            wait_for(lambda filled=filled: Client(endpoint).get("/metrics")["loads"]["l-fill"]["served"] > filled)
        connection.close()
        wait_for(lambda: Client(endpoint).get("/metrics")["apps"]["assistant"]["under_way"] == 0, 5.0)
        assert Client(endpoint).get("/metrics")["loads"][load]["failed"] == before["failed"] + 1, (tokens, most)
    # Nothing is left at the engines: the next is served at once, and not after the 15 s.
    began = time.monotonic()
    events(ask(endpoint, {"prompt": [1] * 10, "max_tokens": 5, "stream": True}))
    assert time.monotonic() - began < 5.0


SHARED = Path(__file__).resolve().parents[2] / "examples" / "llm-disaggregated"


@pytest.mark.longest
def test_the_shipped_split_fleet_on_this_machine_is_as_fast_as_promised_and_simulated(
    deploy: Callable[..., Deployment], tmp_path: Path
) -> None:
    """The example, everything in it eight times slower: two cores play four machines, the router and all clients."""
    profile, slo, slower = (*(shipped(SHARED / f"{name}.json") for name in ("profile", "slo")), 8.0)
    for engine in profile["engines"].values():
        engine["pieces"] = [{name: slower * value for name, value in piece.items()} for piece in engine["pieces"]]
    profile["links"][0]["bandwidth_mbps"] /= slower
    wish = slo["apps"]["assistant"]
    wish["rate_qps"] /= slower
    wish["latency"] = {key: slower * ms for key, ms in wish["latency"].items()}
    paths = [tmp_path / "profile.json", tmp_path / "slo.json"]
    for path, said in zip(paths, (profile, slo), strict=True):
        path.write_text(json.dumps(said))
    inputs = load_inputs([paths[0]], paths[1])
    plan = hetplan.solve(*paths).require()
    assert {worker.hardware for worker in plan.workers} == {"h100-fill", "h100-make"}
    host = {**HOST, "machines": ["h100-fill", "h100-make"]}
    made = deploy(files=[str(paths[0])], hosts={"box": host}, models={"*": {"kind": "sleep"}})
    endpoint = made.apply(plan).endpoint
    for tries_left in (2, 1, 0):  # other work on the machine only ever makes it later
        report = text_load(plan, inputs, TextLoad(endpoint, 75.0, timeout_s=120.0))
        lines = {line.name: line for line in report.lines}
        said = {name: (lines[name].simulated, lines[name].measured) for name in ("ttft_ms p95", "tpot_ms p95")}
        near = {
            name: simulated is not None and measured is not None and abs(measured.value / simulated[0] - 1.0) <= 0.1
            for name, (simulated, measured) in said.items()
        }
        if all(near.values()) and "broken" not in {line.verdict for line in report.lines}:
            break
        assert tries_left, (said, report.lines)


def test_only_the_embedded_engine_plays_one_role(tmp_path: Path) -> None:
    hosts = {"files": [write_roles(tmp_path)], "hosts": {"box": ROLE_HOST}}
    with pytest.raises(InputError, match='kind = "sleep" alone'):
        wanted(
            make_text_plan(fill=1, make=1),
            make_hosts(tmp_path, **hosts, models={"*": {"command": ["vllm", "{port}"]}}),
        )
    made = wanted(make_text_plan(fill=1, make=1), make_hosts(tmp_path, **hosts, models={"*": {"kind": "sleep"}}))
    models = {unit.hardware: unit.loads[0].model for unit in made.units.values()}
    assert models["fill"]["link_ms_per_token"] == pytest.approx(1.0)
    assert "link_ms_per_token" not in models["make"]


def test_kinds_that_cannot_make_text_are_refused(tmp_path: Path) -> None:
    def refused(hosts: dict[str, Any]) -> str:
        profile = write_profile(tmp_path)
        content = {"files": [profile], "hosts": {"box": HOST}, "models": {"*": {"kind": "sleep"}}, **hosts}
        with pytest.raises(InputError) as caught:
            wanted(make_text_plan(gpu=1), make_hosts(tmp_path, **content))
        return str(caught.value)

    assert "the law of this engine is not known" in refused({"files": []})
    assert "keeps the law" in refused({"models": {"*": {"kind": "sleep", "ms": 5}}})
    assert "leave kind out" in refused({"models": {"*": {"kind": "command", "command": ["x"]}}})
    assert "where to listen" in refused({"models": {"*": {"command": ["vllm"]}}})
