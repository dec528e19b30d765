"""Engines measured by their streams: the law that is fitted, what is resumed, what is refused."""

from __future__ import annotations

import http.client
import http.server
import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetplan.errors import InputError
from hetplan.measure.journal import CellJournal
from hetplan.measure.measure_file import Wish
from hetplan.measure.profile_engine import MeasuredEngines, MeasuredLaw, cells_of, engine_document, measure_engines
from hetplan.profiles.engine_law import Iteration, fit_numbers
from hetplan.profiles.engines import IterationLaw
from hetplan.profiles.law_review import iteration_ms
from hetplan.profiles.load_one import load_profile
from hetplan.profiles.merge import merge
from hetplan.profiles.validate import validate
from hetplan.serving.tokens import law_of_engine
from tests.build import in_format_1_0


def iterations(base: float, token: float, kv_token: float, sequence: float, noise: float = 0.0) -> list[Iteration]:
    """What a server whose parts add up would show in the cells of a profile."""
    random, found = np.random.default_rng(3), []
    for streams in (1, 4, 16):
        for length in (32, 1800):
            for beside in (0, 32, 200, 500, 1000, 1800):
                n, v, q = streams + beside, streams * (length + 20), beside**2 / 2
                ms = base + token * n + kv_token * v + sequence * streams + 1e-5 * q
                found.append(Iteration(n, v, streams, q, ms * random.lognormal(0.0, noise)))
    return found


def test_a_law_is_found_again_in_what_it_shows() -> None:
    for noise in (0.0, 0.02):
        found = fit_numbers(iterations(4.0, 0.05, 0.001, 0.1, noise))
        assert found.error < 0.001 + noise
        law = IterationLaw.model_validate(found.document)
        for n, s, v, q in ((1, 1, 500, 0), (700, 8, 3000, 245_000), (16, 16, 30_000, 0)):
            true = 4.0 + 0.05 * n + 0.001 * v + 0.1 * s + 1e-5 * q
            assert iteration_ms(law, n, s, v, q) == pytest.approx(true, rel=0.01 + 3 * noise)


def test_what_experts_take_is_found_where_there_are_any() -> None:
    dense = iterations(4.0, 0.01, 1e-4, 0.0)
    mixed = [replace(one, ms=one.ms + 11.0 * (1.0 - math.exp(-0.067 * one.tokens))) for one in dense]
    law = fit_numbers(mixed)
    assert law.numbers["experts_ms"] == pytest.approx(11.0, rel=0.05)
    assert fit_numbers(dense).numbers["experts_ms"] == 0.0
    read = load_profile(engine_document(wish(1), MeasuredEngines({"e": MeasuredLaw(mixed, law)}))).engines[
        "talker-small"
    ]
    assert read.law is not None
    assert (read.law.basis, read.experts[0]) == ("measured", law.document["experts_ms"])
    assert (read.error, read.reach.tokens) == (pytest.approx(law.error, rel=1e-5), 1816)


def test_laws_beside_models_that_were_measured_keep_their_source() -> None:
    seen = iterations(4.0, 0.05, 0.001, 0.1, 0.02)
    engines = engine_document(wish(1), MeasuredEngines({"e": MeasuredLaw(seen, fit_numbers(seen))}))
    (machine,) = engines["machines"]
    times = {
        "format": engines["format"],
        "source": {"name": "cells", "kind": "measured", "tool": "onnx"},
        "machines": engines["machines"],
        "models": {"net": {"batch": [1], "runs": {machine: {"mean_ms": [5]}}}},
    }
    document, _, faults = merge([("models", times), ("engines", engines)])
    profile = load_profile(document)
    assert not faults
    assert [one.source for one in (*profile.tables.values(), *profile.engines.values())] == ["cells", "streams"]
    assert (profile.sources["cells"].tool, profile.sources["streams"].tool) == ("onnx", "hetplan profile")


def wish(port: int, **engine: Any) -> Wish:
    said = {
        "url": f"http://127.0.0.1:{port}/v1/completions", "name": "m", "model": "talker", "machine": "small",
        "kv_tokens": 4000, "most_tokens": 600, "most_seqs": 8, "input_tokens": [20, 300], "concurrency": [1, 3],
    }  # fmt: skip
    content = {
        "format": "hetplan/measure/1.0", "machines": {"small": {"kind": "gpu"}}, "engines": {"e": {**said, **engine}}
    }  # fmt: skip
    return validate(Wish, content, file="measure.toml")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """An embedded engine, as a command starts it."""
    pieces = [{"base_ms": 8.0, "token_ms": 0.03}, {"base_ms": 10.0, "kv_token_ms": 0.001}]
    with started(tmp_path, {"pieces": pieces, "kv_tokens": 4000}) as port:
        yield port


@pytest.mark.slow
def test_what_a_request_waits_before_its_first_iteration_is_measured(tmp_path: Path) -> None:
    law = [{"base_ms": 8.0, "token_ms": 0.03}]
    with started(tmp_path, {"pieces": law, "kv_tokens": 4000, "request_ms": 60.0}) as port:
        asked = wish(port)
        document = engine_document(asked, measure_engines(asked))
    engine = load_profile(document).engines["talker-small"]
    assert engine.request_ms == pytest.approx(60.0, abs=15.0)  # a busy machine makes first tokens late
    assert law_of_engine(engine).iteration_ms(1.0, 320.0, 1.0) == pytest.approx(8.0, rel=0.3)


@contextmanager
def started(tmp_path: Path, engine: dict[str, Any]) -> Iterator[int]:
    """The port of an engine that runs as long as this does."""
    said = {
        "format": "hetplan/profile/1.0",
        "hardware": {"small": {"kind": "gpu"}},
        "variants": {"e": {"task": "t", "runs": [{"hardware": "small", "engine": "e"}]}},
        "engines": {"e": {**engine, "most_tokens": 600, "most_seqs": 8}},
    }
    (tmp_path / "profile.json").write_text(json.dumps(in_format_1_0(said)))
    words = [sys.executable, "-m", "hetplan.executor.emulator", "e-small", str(tmp_path / "profile.json")]
    words += ["--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        yield int(process.stderr.readline().rsplit(":", 1)[1])
        process.terminate()


@pytest.mark.slow
def test_an_engine_of_nine_numbers_takes_its_time_after_what_a_request_waits(tmp_path: Path) -> None:
    law = {"form": "iteration/2", "base_ms": 5.0, "chunk_ms": 5.0, "experts_ms": 30.0, "experts_rate": 0.5}
    with started(tmp_path, {"law": law, "request_ms": 400.0, "kv_tokens": 4000}) as port:
        # 10 tokens in take 5 + 5 + 30 ms; each of 4 more 5 + 12 ms.
        began, client = time.monotonic(), http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        client.request("POST", "/v1/completions", json.dumps(ASKED))
        assert client.getresponse().read().count(b'"text"') == 5
        took_ms = 1000.0 * (time.monotonic() - began)
        assert 400.0 + 39.7 + 4 * 16.8 - 1.0 <= took_ms < 900.0


ASKED = {"model": "e", "prompt": [1] * 10, "max_tokens": 5, "stream": True, "ignore_eos": True}


@pytest.mark.slow
def test_a_server_is_measured_by_its_streams_and_what_is_known_is_not_measured_again(port: int, tmp_path: Path) -> None:
    asked, journal = wish(port), CellJournal(tmp_path / "journal")
    assert cells_of(asked.engines["e"]) == [(1, 20), (1, 300), (3, 20), (3, 300)]
    found = measure_engines(asked, journal=journal)
    mine = found.engines["e"]
    assert (found.complete, found.resumed, found.cells, mine.why) == (True, 0, 4, "")
    assert mine.law is not None
    document = engine_document(asked, found)
    engine = load_profile(document).engines["talker-small"]
    assert engine.overlap == "measured"
    assert (engine.reach.tokens, engine.reach.sequences, engine.most_tokens) == (303, 3, 600)
    # A busy machine makes single iterations late.
    alone = law_of_engine(engine).iteration_ms(1.0, 320.0, 1.0)
    assert alone == pytest.approx(10.3, rel=0.3)
    journal.close()
    again = CellJournal(tmp_path / "journal")
    stopped = threading.Event()
    stopped.set()
    resumed = measure_engines(asked, journal=again, cancel=stopped)
    assert (resumed.complete, resumed.resumed, engine_document(asked, resumed)) == (True, 4, document)
    other = measure_engines(wish(port, name="another"), journal=again, cancel=stopped)
    assert (other.complete, other.resumed) == (False, 0), "another model's cells are not known"
    again.close()


def test_tokens_that_come_in_bunches_tell_no_time_of_an_iteration() -> None:
    """A proxy that holds a stream back until it is whole."""

    class Bunches(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = b"".join(b'data: {"choices": [{"text": "x"}]}\n\n' for _ in range(asked["max_tokens"]))
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(said)
            self.wfile.write(head + said)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bunches) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = measure_engines(wish(server.server_port)).engines["e"]
        server.shutdown()
    assert (found.law, found.iterations) == (None, [])
    assert "in bunches" in found.why


def test_what_cannot_be_measured_is_said() -> None:
    nobody = measure_engines(wish(1))
    assert "Connect" in nobody.engines["e"].why
    small = measure_engines(wish(1, kv_tokens=200))
    assert "too few iterations" in small.engines["e"].why
    for change, part in (
        ({"machine": "large"}, "no machine type"),
        ({"url": "https://h"}, "url"),
        ({"concurrency": []}, "conc"),
    ):
        with pytest.raises(InputError, match=part):
            wish(1, **change)
