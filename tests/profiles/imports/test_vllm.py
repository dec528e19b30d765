"""Results of vLLM's serving benchmark become profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.profiles.imports.vllm import convert, convert_results
from hetplan.profiles.load_one import load_profile

# As `vllm bench serve --save-result --metadata hardware=A100` writes it.
RESULT: dict[str, Any] = {
    "date": "20260301-101500",
    "endpoint_type": "vllm",
    "backend": "vllm",
    "label": None,
    "model_id": "meta-llama/Llama-3.1-8B",
    "tokenizer_id": "meta-llama/Llama-3.1-8B",
    "num_prompts": 200,
    "hardware": "A100",
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": None,
    "duration": 24.05,
    "completed": 200,
    "failed": 0,
    "total_input_tokens": 204800,
    "total_output_tokens": 25600,
    "request_throughput": 8.31,
    "request_goodput": None,
    "output_throughput": 1063.9,
    "total_token_throughput": 9573.2,
    "mean_ttft_ms": 123.4,
    "median_ttft_ms": 101.0,
    "std_ttft_ms": 40.0,
    "p99_ttft_ms": 456.7,
    "mean_tpot_ms": 11.1,
    "median_tpot_ms": 10.5,
    "std_tpot_ms": 2.0,
    "p99_tpot_ms": 22.2,
    "mean_itl_ms": 10.9,
    "median_itl_ms": 10.2,
    "std_itl_ms": 3.0,
    "p99_itl_ms": 30.3,
}


def at(inputs: int, outputs: int, qps: float, **more: Any) -> dict[str, Any]:
    sizes = {"total_input_tokens": 200 * inputs, "total_output_tokens": 200 * outputs}
    return {**RESULT, **sizes, "request_throughput": qps, **more}


def test_one_result(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text(json.dumps(RESULT))
    document, slo = convert(tmp_path / "result.json")
    assert slo is None
    profile = load_profile(document)
    run = profile.variants["llama-3.1-8b"].runs[0]
    assert run.hardware == "a100"
    point = [{"input_tokens": 1024, "output_tokens": 128}]
    rate = profile.tables[run.rate or ""]
    assert rate.read(point).values.tolist() == [8.31]
    (measured,) = rate.points
    assert measured.given == {
        "ttft_mean_ms": 123.4, "ttft_p50_ms": 101.0, "ttft_p99_ms": 456.7,
        "tpot_mean_ms": 11.1, "tpot_p50_ms": 10.5, "tpot_p99_ms": 22.2,
    }  # fmt: skip


def test_a_grid_from_one_result_per_line(tmp_path: Path) -> None:
    results = [at(128, 64, 20.0), at(128, 512, 4.0), at(1024, 64, 9.0), at(128, 64, 25.0, p99_ttft_ms=900.0)]
    (tmp_path / "all.jsonl").write_text("\n".join(json.dumps(result) for result in results))
    document, _ = convert(tmp_path / "all.jsonl")
    table = document["tables"]["llama-3.1-8b-a100-rate"]
    assert table["axes"] == {"input_tokens": [128, 1024], "output_tokens": [64, 512]}
    assert table["mean"] == [[25.0, 4.0], [9.0, None]]
    assert [(one["rate_qps"], one["given"]["ttft_p99_ms"]) for one in table["points"]][:2] == [
        (20.0, 456.7), (25.0, 900.0)
    ]  # fmt: skip
    load_profile(document)


def test_what_a_run_was_asked_for_is_kept_with_it() -> None:
    document = convert_results(at(128, 64, 3.99, request_rate=4.0, max_concurrency=8))
    (run,) = document["tables"]["llama-3.1-8b-a100-rate"]["points"]
    assert (run["given"]["request_rate_qps"], run["given"]["concurrency"]) == (4.0, 8.0)


def test_two_machines_are_two_runs() -> None:
    document = convert_results([RESULT, {**RESULT, "hardware": "H100", "tensor_parallel_size": "2"}])
    profile = load_profile(document)
    runs = {run.hardware: run.needs for run in profile.variants["llama-3.1-8b"].runs}
    assert runs == {"a100": {"gpu": 1}, "h100": {"gpu": 2}}


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ([], "at least one result"),
        ({"mean": 1}, "request_throughput"),
        ({**RESULT, "completed": 0}, r"\$\.completed"),
        ({**RESULT, "model_id": None}, r"\$\.model_id"),
        ({**RESULT, "request_throughput": -2}, r"\$\.request_throughput"),
        ({key: value for key, value in RESULT.items() if key != "total_input_tokens"}, "total_input_tokens"),
    ],
    ids=["none", "another file", "nothing completed", "no model", "negative", "no tokens"],
)
def test_what_cannot_be_read_is_reported(result: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        convert_results(result)


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InputError):
        convert(tmp_path / "bad.json")
