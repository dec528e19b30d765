"""A real engine: llama.cpp's server on the CPU, with a small model of random weights that is written here.

It needs `llama-server` on the PATH (or LLAMA_SERVER) and the package gguf; where one is missing, the test says so.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetplan
from hetplan.cli.loadtest import TextLoad, text_load
from hetplan.executor.deployment import Deployment
from hetplan.measure.measure_file import Wish
from hetplan.measure.profile_engine import engine_document, measure_engines
from hetplan.profiles.load import load_inputs

SERVER = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SERVER is None, reason="no llama-server on the PATH: llama.cpp is not installed"),
]

SEQS, CHUNK, ROOM = 8, 512, 16384


def write_model(path: Path, *, wide: int = 512, layers: int = 8, heads: int = 8, inner: int = 1408) -> None:
    """A model of llama's kind with random weights: 26 million numbers, and 1,200 words that it knows."""
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
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
    words = ["-m", str(model), "--port", port, "-np", most_seqs, "-b", most_tokens, "-ub", most_tokens]
    return [str(SERVER), *words, "-c", str(ROOM), "-t", "1", "-tb", "1", "--cache-ram", "0"]


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
        found = measure_engines(wish)
    law = found.engines["tiny-core"].law
    assert law is not None, found.engines["tiny-core"].why
    assert law.error < 0.5  # 0.10 on a machine that had time, 0.32 on a busy one
    profile = engine_document(wish, found)
    assert profile["engines"]["tiny-core"]["overlap"] == "measured"
    profile["offers"] = {"core": {"hardware": "core", "price_per_hour": "1"}}
    (tmp_path / "profile.json").write_text(json.dumps(profile))
    limits = {"ttft_p90_ms": 5000, "tpot_p90_ms": 2000}
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
    made = deploy(files=[str(paths[0])], hosts={"box": host}, models={"*": rule})
    endpoint = made.apply(plan).endpoint
    report = text_load(plan, load_inputs([paths[0]], paths[1]), TextLoad(endpoint, 60.0))
    lines = {line.name: line for line in report.lines}
    said = [(name, lines[name].simulated, lines[name].measured) for name in ("ttft_ms p50", "tpot_ms p50")]
    print(f"law off by {law.error:.1%}: {profile['engines']['tiny-core']['pieces']}")
    print(*(f"{line.name}: {line.simulated} simulated, {line.measured} measured" for line in report.lines), sep="\n")
    assert set(report.apps["talk"].statuses) == {"200"}
    for _, simulated, measured in said:
        assert simulated is not None
        assert measured is not None
        assert simulated[0] / 3.0 < measured.value < 3.0 * simulated[0], said
