"""A real engine: llama.cpp's server on the CPU, with a small model of random weights that is written here."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

import hetplan
from hetplan.cli.loadtest import TextLoad, text_load
from hetplan.executor.deployment import Deployment
from hetplan.measure.measure_file import Wish
from hetplan.measure.profile_engine import engine_document, measure_engines
from hetplan.profiles.load import load_inputs

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
pytest.importorskip("xllamacpp", reason="llama.cpp (the package xllamacpp) is not installed")
pytestmark = pytest.mark.alone

SERVER = Path(__file__).parents[1] / "cases" / "llama_server.py"

Found = TypeVar("Found")
SEQS, CHUNK, ROOM = 8, 512, 16384
SECONDS = 60.0
GOALS = {"ttft_ms p95": 0.15, "tpot_ms p95": 0.10, "response_ms p95": 0.10}
"""How far what is measured may be from the simulation of the very requests."""
MOST_WAITED, TRIES = 0.05, 3
"""Where the engine waits for a core longer, its times are those of other work: it is measured again."""


def write_model(path: Path, *, wide: int = 512, layers: int = 8, heads: int = 8, inner: int = 1408) -> None:
    """A model of llama's kind with random weights: 26 million numbers, and 1,200 words that it knows."""
    random, words = np.random.default_rng(7), 1200
    made = gguf.GGUFWriter(path, "llama")
    made.add_context_length(4096)
    made.add_embedding_length(wide)
    made.add_block_count(layers)
    made.add_feed_forward_length(inner)
    made.add_head_count(heads)
    made.add_head_count_kv(heads)
    made.add_layer_norm_rms_eps(1e-5)
    made.add_rope_dimension_count(wide // heads)
    made.add_vocab_size(words)
    names = ["<unk>", "<s>", "</s>", *(f"<0x{number:02X}>" for number in range(256))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (words - len(names))
    names += [f"▁w{number}" for number in range(words - len(names))]
    made.add_tokenizer_model("llama")
    made.add_token_list([name.encode() for name in names])
    made.add_token_scores([0.0] * words)
    made.add_token_types(kinds)
    made.add_bos_token_id(1)
    made.add_eos_token_id(2)
    made.add_unk_token_id(0)

    def weights(name: str, *shape: int, scale: float = 0.05) -> None:
        made.add_tensor(f"{name}.weight", (random.standard_normal(shape) * scale).astype(np.float32))

    weights("token_embd", words, wide, scale=1.0)
    last = random.standard_normal((words, wide)).astype(np.float32)
    last[:259] = 0.0  # whole words only: half a letter would not be sent
    made.add_tensor("output.weight", last)
    made.add_tensor("output_norm.weight", np.ones(wide, np.float32))
    for layer in range(layers):
        at = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            made.add_tensor(f"{at}{norm}.weight", np.ones(wide, np.float32))
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(at + part, wide, wide)
        weights(at + "ffn_gate", inner, wide)
        weights(at + "ffn_up", inner, wide)
        weights(at + "ffn_down", wide, inner)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def command(model: Path, port: str, most_seqs: str, most_tokens: str) -> list[str]:
    """How the server is started: on one core, every sequence with its part of the room."""
    return [sys.executable, str(SERVER), str(model), port, most_seqs, most_tokens, str(ROOM)]


@contextmanager
def running(model: Path) -> Iterator[int]:
    """One server, and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        command(model, str(port), str(SEQS), str(CHUNK)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.1)
            yield port
        finally:
            process.terminate()


def core_time(model: Path) -> tuple[int, int]:
    """Nanoseconds that all engines of the model have computed, and that they have waited for a core."""
    found = [0, 0]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(model).encode() not in (process / "cmdline").read_bytes():
                continue
            for thread in (process / "task").iterdir():
                ran, waited, _ = map(int, (thread / "schedstat").read_text().split())
                found = [found[0] + ran, found[1] + waited]
        except OSError:  # it ended
            continue
    return found[0], found[1]


def undisturbed(model: Path, measured: Callable[[], Found]) -> Found:
    """What was measured while the engine had a core whenever it wanted one."""
    for _ in range(TRIES):
        before = core_time(model)
        found = measured()
        ran, waited = (now - then for now, then in zip(core_time(model), before, strict=True))
        if waited <= MOST_WAITED * (ran + waited):
            return found
    pytest.skip(f"other work has the cores: the engine waited {waited / (ran + waited):.0%} of its time")


def test_a_real_engine_is_measured_planned_with_started_and_loaded(
    deploy: Callable[..., Deployment], tmp_path: Path
) -> None:
    model = tmp_path / "tiny.gguf"
    write_model(model)
    with running(model) as port:
        wish = Wish.model_validate({
            "format": "hetplan/measure/1.0",
            "machines": {"core": {"kind": "cpu", "provides": {"gpu": 1}}},
            "engines": {
                "tiny-core": {
                    "url": f"http://127.0.0.1:{port}/v1/completions", "name": "tiny", "model": "tiny",
                    "machine": "core", "kv_tokens": ROOM, "context_tokens": ROOM // SEQS, "most_tokens": CHUNK,
                    "most_seqs": SEQS, "concurrency": [1, 4, 7], "input_tokens": [16, 80, 160, 320],
                }
            },
        })  # fmt: skip
        found = undisturbed(model, lambda: measure_engines(wish))
    assert found.engines["tiny-core"].law is not None, found.engines["tiny-core"].why
    profile = engine_document(wish, found)
    profile["machines"]["core"]["price_per_hour"] = 1
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    limits = {"ttft_p95_ms": 5000, "tpot_p95_ms": 2000}
    sizes = {"axes": ["input_tokens", "output_tokens"], "bins": [[40, 20], [160, 40]], "share": [0.6, 0.4]}
    app = {"task": "chat", "latency": limits, "rate_qps": 0.7, "mix": sizes}
    (tmp_path / "slo.json").write_text(json.dumps({"format": "hetplan/slo/1.0", "apps": {"talk": app}}))
    paths = (tmp_path / "profile.json", tmp_path / "slo.json")
    plan = hetplan.solve(*paths).require()
    host: dict[str, Any] = {"target": "here", "machines": ["core"], "count": 2, "gpus_per_worker": 0}
    rule = {
        "command": command(model, "{port}", "{max_seqs}", "{max_tokens}"),
        "model": "tiny",
    }  # fmt: skip
    endpoint = deploy(files=[str(paths[0])], hosts={"box": host}, models={"*": rule}).apply(plan).endpoint
    inputs = load_inputs([paths[0]], paths[1])
    report = undisturbed(model, lambda: text_load(plan, inputs, TextLoad(endpoint, SECONDS)))
    said = {
        line.name: (line.simulated[0], line.measured.value)
        for line in report.lines
        if line.simulated is not None and line.measured is not None
    }
    print(profile["models"], *said.items(), sep="\n")
    assert set(report.apps["talk"].statuses) == {"200"}
    for name, off in GOALS.items():
        simulated, measured = said[name]
        assert measured == pytest.approx(simulated, rel=off), name
