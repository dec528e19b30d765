"""Laws fitted to reports of serving benchmarks: a known law is found again, and what a report cannot say is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetplan.errors import InputError
from hetplan.profiles.imports import serving_laws
from hetplan.profiles.load_one import load_profile
from hetplan.serving.tokens import Group, Requests, TokenFleet, TokenLaw, law_of_engine
from hetplan.simulator.tokens import Coming, play

TRUE = TokenLaw(np.array([[4.0, 0.05, 0.0, 0.0, 1e-6], [12.0, 0.0, 1e-4, 0.0, 0.0]]), 400_000, 4096, 256)
WAYS = [(128, 64, 0.01), (512, 64, 0.01), (2048, 64, 0.01), *((i, 150, r) for i in (256, 900) for r in (2.0, 5.0, 9.0))]
"""Prompt and answer in tokens, requests per second."""


def seen(prompt: int, answer: int, rate: float, law: TokenLaw = TRUE) -> dict[str, float]:
    """What a benchmark sees of an engine that keeps the law: means of one run."""
    count = 400 if rate > 1 else 30
    arrival = np.cumsum(np.random.default_rng(prompt + answer).exponential(1000.0 / rate, count))
    arrival = arrival if rate > 1 else np.arange(count) * 1000.0 / rate
    run = play(TokenFleet((Group(law, 1),), answer), Coming(arrival, Requests.of([(prompt, answer)] * count), answer))
    first, token = float(run.ttft_ms.mean()), float(run.tpot_ms.mean())
    return {"i": prompt, "o": answer, "rate": 1000.0 * count / run.end_ms, "ttft": first, "tpot": token, "n": count}


def as_vllm(runs: list[dict[str, float]], folder: Path) -> Path:
    lines = [
        {
            "model_id": "org/Toy-8B", "hardware": "L4", "tensor_parallel_size": "2", "completed": one["n"],
            "total_input_tokens": one["i"] * one["n"], "total_output_tokens": one["o"] * one["n"],
            "request_throughput": one["rate"], "mean_ttft_ms": one["ttft"], "mean_tpot_ms": one["tpot"],
        }
        for one in runs
    ]  # fmt: skip
    (folder / "results.json").write_text("\n".join(json.dumps(line) for line in lines))
    return folder / "results.json"


def as_guidellm(runs: list[dict[str, float]], folder: Path) -> Path:
    names = {"prompt_token_count": "i", "output_token_count": "o", "requests_per_second": "rate",
             "time_to_first_token_ms": "ttft", "inter_token_latency_ms": "tpot"}  # fmt: skip
    benchmarks = [
        {
            "worker": {"backend_model": "org/Toy-8B"},
            "metrics": {name: {"successful": {"mean": one[key]}} for name, key in names.items()},
        }
        for one in runs
    ]
    (folder / "benchmarks.json").write_text(json.dumps({"benchmarks": benchmarks}))
    return folder / "benchmarks.json"


def as_inference_perf(runs: list[dict[str, float]], folder: Path) -> Path:
    for number, one in enumerate(runs):
        first, token = one["ttft"] / 1e3, one["tpot"] / 1e3
        good = {
            "latency": {"time_to_first_token": {"mean": first}, "inter_token_latency": {"mean": token}},
            "throughput": {"requests_per_sec": one["rate"]}, "prompt_len": {"mean": one["i"]},
            "output_len": {"mean": one["o"]},
        }  # fmt: skip
        (folder / f"stage_{number}_lifecycle_metrics.json").write_text(json.dumps({"successes": good}))
    return folder


SAID = {"gpus": 2, "hardware": "L4"}
KINDS: list[Any] = [
    pytest.param(as_vllm, serving_laws.vllm, {}, id="vllm"),
    pytest.param(as_guidellm, serving_laws.guidellm, SAID, id="guidellm"),
    pytest.param(as_inference_perf, serving_laws.inference_perf, {**SAID, "model": "Toy-8B"}, id="inference-perf"),
]


@pytest.mark.parametrize(("written", "convert", "said"), KINDS)
def test_a_known_law_is_found_again(
    tmp_path: Path, written: Callable[..., Path], convert: Callable[..., Any], said: dict[str, Any]
) -> None:
    """The law that is fitted says what the true one does, for runs that were not in the report."""
    document, slo = convert(
        written([seen(*way) for way in WAYS], tmp_path), kv_tokens=400_000, most_tokens=4096, **said
    )
    engine = load_profile(document).engines["toy-8b-l4-x2"]
    assert slo is None
    assert (engine.overlap, engine.gpus, engine.kv_tokens, engine.most_tokens) == ("assumed", 2, 400_000, 4096)
    assert engine.fitted.error < 0.08
    for way in ((300, 100, 4.0), (1500, 60, 0.01), (1200, 150, 4.0)):
        true, found = seen(*way), seen(*way, law=law_of_engine(engine))
        assert found["tpot"] == pytest.approx(true["tpot"], rel=0.12)
        assert found["ttft"] == pytest.approx(true["ttft"], rel=0.12)


@pytest.mark.parametrize(
    ("ways", "said"),
    [
        ([(128, 64, 0.01), (256, 150, 5.0)], "how long a prefill takes"),
        ([(128, 64, 0.01), (512, 64, 0.01)], "what more sequences cost"),
    ],
    ids=["prompts of one length", "never two at a time"],
)
def test_what_a_report_cannot_say_is_refused_by_name(tmp_path: Path, ways: list[Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        serving_laws.vllm(as_vllm([seen(*way) for way in ways], tmp_path))


def test_a_report_without_times_names_the_field(tmp_path: Path) -> None:
    path = as_guidellm([{**seen(*WAYS[0]), "ttft": 0.0}], tmp_path)
    with pytest.raises(InputError) as caught:
        serving_laws.guidellm(path)
    assert caught.value.faults[0].path.endswith("time_to_first_token_ms.successful.mean")


def test_models_whose_long_names_begin_alike_stay_two(tmp_path: Path) -> None:
    """Cut off at 30 letters, the runs of both were fitted as those of one model."""
    path = as_vllm([seen(*way) for way in WAYS], tmp_path)
    text = path.read_text()
    named = [text.replace("org/Toy-8B", f"org/Toy-of-a-family-with-long-names-FP{bits}") for bits in (8, 16)]
    path.write_text("\n".join(named))
    document, _ = serving_laws.vllm(path, kv_tokens=400_000)
    assert len(document["variants"]) == len(document["engines"]) == 2


@pytest.mark.parametrize(
    ("kind", "text", "settings", "said"),
    [
        ("vllm", "[]", {}, "at least one run"),
        ("guidellm", "[]", {"gpus": 1}, "at least one run"),
        ("guidellm", "[]", {"gpus": 1.5}, "gpus"),
        ("vllm", '[{"model_id": "m", "completed": 1, "tensor_parallel_size": "inf"}]', {}, "tensor_parallel_size"),
        ("inference_perf", '{"successes": {"latency": "slow"}}', {}, "latency"),
    ],
)
def test_reports_that_are_empty_or_broken_are_refused(
    tmp_path: Path, kind: str, text: str, settings: dict[str, Any], said: str
) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(InputError, match=said):
        getattr(serving_laws, kind)(tmp_path / "report.json", **settings)


def test_a_server_that_computes_a_prompt_in_every_iteration_is_read() -> None:
    """500 requests per second and 100 ms per token: no iteration without a prompt is left to subtract from."""
    run = serving_laws.Run("m", "h", 1, 100.0, 50.0, 500.0, 100.0, 100.0, "$")
    assert 0.0 < serving_laws._Shares.of(run).left_ms(np.array([[1.0, 0.01, 0.0, 0.0, 0.0]])) <= 100.0
