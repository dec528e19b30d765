"""Whatever other tools wrote: no number is misread, who answers is said, and the command that is advised works."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from face import EXIT, checked, command, convert, importers

Json = dict[str, Any]


def bench(inputs: int, outputs: int, at_once: int, qps: float, ttft: float, tpot: float, model: str = "m-8b") -> Json:
    """A result of `vllm bench serve`, its tails three times its means."""
    return {
        "model_id": f"org/{model}", "hardware": "l4", "completed": 100, "max_concurrency": at_once,
        "total_input_tokens": 100 * inputs, "total_output_tokens": 100 * outputs, "request_throughput": qps,
        "mean_ttft_ms": ttft, "p99_ttft_ms": 3 * ttft, "mean_tpot_ms": tpot, "p99_tpot_ms": 3 * tpot,
    }  # fmt: skip


def steady(inputs: int, outputs: int, at_once: int, ttft: float, tpot: float) -> Json:
    """The same at the rate that Little's law gives."""
    return bench(inputs, outputs, at_once, 1e3 * at_once / (ttft + (outputs - 1) * tpot), ttft, tpot)


def laws() -> list[Json]:
    """Runs of one law: 20 ms and .1 ms per prompt token, 12 ms per token and .2 ms per sequence."""
    made = [bench(i, 100, 1, 1e3 / (20 + 0.1 * i + 99 * 12.2), 20 + 0.1 * i, 12.2) for i in (128, 512, 1024, 2048)]
    for prompt, at_once in ((128, 8), (512, 8), (512, 32), (1024, 16), (2048, 4)):
        token = 14.0
        for _ in range(100):  # prompts of others are prefilled beside what decodes
            rate = 1e3 * at_once / (20 + 0.2 * prompt + 99 * token)
            token = 12 + 0.2 * rate * 99 * token / 1e3 + rate * token / 1e3 * 0.1 * prompt
        made.append(bench(prompt, 100, at_once, rate, 20 + 0.2 * prompt, token))
    return made


def guidellm() -> Json:
    def one(run: Json) -> Json:
        named = {
            "prompt_token_count": run["total_input_tokens"] / 100, "output_token_count": 100,
            "requests_per_second": run["request_throughput"], "time_to_first_token_ms": run["mean_ttft_ms"],
            "inter_token_latency_ms": run["mean_tpot_ms"],
        }  # fmt: skip
        strategy = {"type_": "concurrent", "streams": run["max_concurrency"]}
        return {
            "config": {"strategy": strategy},
            "metrics": {name: {"successful": {"mean": value}} for name, value in named.items()},
        }

    return {"args": {"model": "org/m-8b"}, "benchmarks": [one(run) for run in laws()]}


def inference_perf(folder: Path) -> Path:
    (folder / "stages").mkdir()
    for number, run in enumerate(laws()):
        mean = {"time_to_first_token": run["mean_ttft_ms"] / 1e3, "time_per_output_token": run["mean_tpot_ms"] / 1e3}
        good = {
            "latency": {name: {"mean": value} for name, value in mean.items()}, "output_len": {"mean": 100},
            "throughput": {"requests_per_sec": run["request_throughput"]},
            "prompt_len": {"mean": run["total_input_tokens"] / 100},
        }  # fmt: skip
        (folder / f"stages/stage_{number}_lifecycle_metrics.json").write_text(
            json.dumps({"load_summary": {"requested_rate": run["request_throughput"]}, "successes": good})
        )
    return folder / "stages"


def sageserve() -> str:
    lines = ["model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time,tensor_parallel"]
    for prompt in (128, 512, 2048):
        for batch in (1, 4, 16):
            fill, step = 5 + 0.05 * prompt * batch, 12 + 1e-4 * batch * (prompt + 64) + 0.02 * batch
            lines.append(f"Llama-3.1-8B,a100-80gb,{prompt},{batch},128,{fill},{step},{fill + 128 * step},2")
    return "\n".join(lines)


SHEET = {
    "models": {
        name: {"parameters": size, "layers": 16, "heads": 8, "kv_heads": 4, "head_size": 64}
        for name, size in (("tiny", 1e9), ("other", 3e9))
    },
    "gpus": {"big": {"tflops": 100, "bandwidth_gbps": 1000, "memory_gb": 24, "price_per_hour": "1"}},
}
MELANGE = {
    "gpu_info": {"A10G": {"cost": 1.01, "tputs": [[5, 1], [10, 5]]}},
    "workload_distribution": [[0.25, 0.125], [0.375, 0.25]], "total_request_rate": 30.0,
}  # fmt: skip
AIBRIX = {
    "gpu": "a100", "cost": 1.0, "tputs": [[62.4, 0.0], [60.3, 31.7]], "indexes": [[4, 8], [128, 256]],
    "slos": {"percentile": 99, "e2e": 5.0},
}  # fmt: skip
PERF = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,"
    "Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p99 latency\n"
    "1,70,50,170,60,200,13000,40,5,13891,21018\n4,110,50,170,60,200,34000,40,5,35000,52000\n"
)
VMS = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region\n"
    "g6.xlarge,L4,1,4,16,0.8048,0.3,us-east-1\n"
)
SAMPLES: dict[str, Any] = {
    "rates": [steady(1024, 128, 4, 200, 20), steady(1024, 128, 16, 900, 45), steady(128, 64, 8, 90, 22)],
    "laws": laws(),
    "sageserve": sageserve(),
    "datasheet": SHEET,
    "melange": MELANGE,
    "perf-analyzer": PERF,
    "prices": VMS,
    "trace": "start_s,rate_qps\n0,40\n300,90\n600,60\n",
    "token-trace": "TIMESTAMP,ContextTokens,GeneratedTokens\n1,374,44\n5,396,109\n9,120,15\n",
}
SETTINGS: dict[str, Json] = {"laws": {"kv_tokens": 90_000}}
KINDS = importers()


def sample(kind: str, folder: Path) -> Path:
    held = SAMPLES[kind]
    if isinstance(held, Callable):  # type: ignore[arg-type]
        return held(folder)
    path = folder / f"sample.{'csv' if isinstance(held, str) else 'json'}"
    path.write_text(held if isinstance(held, str) else json.dumps(held))
    return path


def advised(said: str) -> list[str]:
    (line,) = [line for line in said.splitlines() if line.startswith("Next: hetplan ")]
    return line.removeprefix("Next: hetplan ").split()


@pytest.mark.parametrize("kind", KINDS)
def test_who_answers_is_said_and_the_advised_command_works(kind: str, tmp_path: Path) -> None:
    made = convert(kind, sample(kind, tmp_path), tmp_path / "out", **SETTINGS.get(kind, {}))
    assert made.code == EXIT["ok"], made.error
    for model in made.files.profile.get("variants", {}):
        assert model in made.said
    assert made.answered_by.keys() == made.files.slo.get("apps", {}).keys()
    if made.files.profile.get("variants") and not made.files.slo:
        begun = command(*made.next)
        assert begun.code == EXIT["ok"], (made.next, begun.err)
        assert advised(begun.out)[0] == "solve"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rates", "laws", "perf-analyzer", "datasheet"])
def test_the_advised_commands_lead_to_a_plan(kind: str, tmp_path: Path) -> None:
    made = convert(kind, sample(kind, tmp_path), tmp_path / "out", **SETTINGS.get(kind, {}))
    solved = command(*advised(command(*made.next).out))
    assert solved.code == EXIT["ok"], (solved.out, solved.err)


REPORTS: dict[str, Any] = {
    "vllm": laws(), "guidellm": guidellm(), "inference-perf": inference_perf, "melange": MELANGE, "aibrix": AIBRIX,
    "perf-analyzer": PERF, "prices": VMS, "sageserve": sageserve(), "datasheet": SHEET,
}  # fmt: skip


@pytest.mark.parametrize("tool", REPORTS)
def test_files_say_what_they_are(tool: str, tmp_path: Path) -> None:
    SAMPLES[tool] = SAMPLES.get(tool, REPORTS[tool])
    made = convert(None, sample(tool, tmp_path), tmp_path / "out")
    assert made.code == EXIT["ok"], made.error
    assert made.files.profile


@pytest.mark.parametrize("tool", ["vllm", "guidellm"])
def test_a_law_is_the_same_whichever_tool_saw_the_runs(tool: str, tmp_path: Path) -> None:
    """20 ms and .1 ms per prompt token, 12 ms per token and .2 ms per sequence."""
    SAMPLES[tool] = SAMPLES.get(tool, REPORTS[tool])
    made = convert("laws", sample(tool, tmp_path), tmp_path / "out", kv_tokens=90_000, hardware="l4", gpus=1)
    assert made.code == EXIT["ok"], made.error
    (engine,) = made.files.profile["engines"].values()
    law = engine["law"]
    assert law["basis"] == "measured"
    assert law["base_ms"] + law.get("sequence_ms", 0.0) == pytest.approx(12.2, rel=0.02)
    assert law["token_ms"] == pytest.approx(0.1, rel=0.05)
    assert engine["request_ms"] == pytest.approx(8.0, abs=1.0), "of the 20 ms 12 are an iteration"


@pytest.mark.parametrize("kind", KINDS)
def test_each_of_several_models_is_a_task_of_its_own(kind: str, tmp_path: Path) -> None:
    made = convert(kind, sample(kind, tmp_path), tmp_path / "out", **SETTINGS.get(kind, {}))
    tasks = [one["task"] for one in made.files.profile.get("variants", {}).values()]
    assert len(set(tasks)) == len(tasks)


def _spoilt(text: str, number: int, value: str) -> str:
    found = list(re.finditer(r'(?<![\w."-])-?\d+(\.\d+)?(e-?\d+)?(?![\w."-])', text))
    place = found[number % len(found)]
    return text[: place.start()] + value + text[place.end() :]


@pytest.mark.quick_sample(24)
@pytest.mark.parametrize("value", ["1e999", "-7", "NaN", '"x"', ""])
@pytest.mark.parametrize("kind", KINDS)
def test_no_number_that_is_none_comes_through(kind: str, value: str, tmp_path: Path) -> None:
    """Refused with the file named; or nobody reads that number, and the same files come of it."""
    path = sample(kind, tmp_path)
    whole = path.read_text()
    sound = convert(kind, path, tmp_path / "sound", **SETTINGS.get(kind, {}))
    drawn = random.Random(f"{kind} {value}")
    for number in {drawn.randrange(10**6) for _ in range(6)}:
        path.write_text(_spoilt(whole, number, value))
        made = convert(kind, path, tmp_path / f"out-{number}", **SETTINGS.get(kind, {}))
        if made.code != EXIT["ok"]:
            assert made.code == EXIT["bad input"], made
            assert path.name in made.error
        elif value not in ("", "-7"):  # an empty cell is one that was not measured, and some numbers may be negative
            assert made.files.profile == sound.files.profile, _spoilt(whole, number, value)


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_setting_is_refused(kind: str, tmp_path: Path) -> None:
    made = convert(kind, sample(kind, tmp_path), tmp_path / "out", colour="red")
    assert made.code == EXIT["bad input"]
    assert "colour" in made.error


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("trace", "period_s"), ("rates", "gpus"), ("laws", "kv_tokens"), ("sageserve", "kv_tokens"),
        ("laws", "most_seqs"), ("laws", "most_tokens"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["x", "0", "-1", "1e999", "[1]", "true", ""])
def test_a_setting_that_is_no_number_is_refused(kind: str, name: str, value: str, tmp_path: Path) -> None:
    made = convert(kind, sample(kind, tmp_path), tmp_path / "out", **{**SETTINGS.get(kind, {}), name: value})
    assert made.code == EXIT["bad input"], made
    assert name in made.error


@pytest.mark.parametrize("number", ["inf", "-inf", "nan", "1e999", ""])
@pytest.mark.parametrize("column", [0, 1, 2])
def test_a_recorded_request_of_no_finite_size_is_refused(number: str, column: int, tmp_path: Path) -> None:
    cells = ["5", "396", "109"]
    cells[column] = number
    path = tmp_path / "requests.csv"
    path.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n1,374,44\n{','.join(cells)}\n9,120,15\n")
    for kind in ("token-trace", "trace"):
        made = convert(kind, path, tmp_path / kind)
        assert (made.code, path.name in made.error) == (EXIT["bad input"], True), made


def test_what_is_imported_needs_no_mending(tmp_path: Path) -> None:
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        made = convert(kind, sample(kind, tmp_path / kind), tmp_path / kind / "out", **SETTINGS.get(kind, {}))
        if made.files.profile.get("variants") and made.files.slo:
            assert not checked(made.files) & {"W-which-model", "W-unit", "W-uncovered"}
