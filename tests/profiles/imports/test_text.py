"""Laws and wishes of fleets that make text, from other people's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.problems.llm.options import LlmOptions
from hetplan.problems.llm.program import Rows, program
from hetplan.problems.llm.request import read_text_request
from hetplan.profiles.imports import datasheet, sageserve, token_traces
from hetplan.profiles.load import load_inputs
from hetplan.profiles.load_one import load_profile
from tests.build import answered
from tests.cases import texts

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "llm"

SHEET: dict[str, Any] = {
    "models": {"tiny": {"parameters": 1e9, "layers": 16, "heads": 8, "kv_heads": 4, "head_size": 64}},
    "gpus": {
        "big": {"tflops": 100, "bandwidth_gbps": 1000, "memory_gb": 24, "price_per_hour": "1"},
        "two": {"tflops": 100, "bandwidth_gbps": 1000, "memory_gb": 24, "price_per_hour": "2", "gpus": 2},
        "small": {"tflops": 10, "bandwidth_gbps": 100, "memory_gb": 2, "price_per_hour": "0.1"},
    },
}
LIMITS = {"ttft_p95_ms": 500, "tpot_p95_ms": 50}


def test_a_data_sheet_becomes_engines_where_weights_fit() -> None:
    profile = load_profile(datasheet.convert_sheet(SHEET))
    assert set(profile.engines) == {"tiny-big", "tiny-two"}
    big, two = profile.engines["tiny-big"], profile.engines["tiny-two"]
    assert big.pieces[0].token_ms == pytest.approx(2e9 / 60e12 * 1e3)
    assert big.pieces[1].base_ms == pytest.approx(3 + 2e9 / 800e9 * 1e3)
    assert two.pieces[0].token_ms == pytest.approx(big.pieces[0].token_ms / 2, rel=1e-5)
    assert (two.tensor, big.overlap) == (2, "assumed")
    assert profile.sources["sheet"].kind == "assumed"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda s: s["models"]["tiny"].pop("layers"), "$.models.tiny.layers"),
        (lambda s: s["gpus"]["big"].update(tflops="fast"), "$.gpus.big.tflops"),
        (lambda s: s.pop("gpus"), "$.gpus"),
        (lambda s: s.update(gpus={"small": s["gpus"]["small"]}), "$.models"),
    ],
)
def test_a_data_sheet_with_a_slip_is_refused(change: Any, path: str) -> None:
    sheet = json.loads(json.dumps(SHEET))
    change(sheet)
    with pytest.raises(InputError) as caught:
        datasheet.convert_sheet(sheet)
    assert caught.value.faults[0].path == path


def written(tmp_path: Path, *, seconds: bool) -> Path:
    """Times of a known law, in one of the two layouts."""
    lines = ["model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time,tensor_parallel"]
    for prompt in (128, 512, 1024, 2048):
        for batch in (1, 4, 16):
            tokens = 128
            prefill = 5 + 0.05 * prompt * batch + 2e-6 * batch * prompt**2 / 2
            step = 12 + 1e-4 * batch * (prompt + tokens / 2) + 0.02 * batch
            if seconds:
                whole = step * (tokens - 1) / 1e3
                prefill, token, end = prefill / 1e3, whole, prefill / 1e3 + whole
            else:
                token, end = step, prefill + tokens * step
            lines.append(f"Toy,gpu-80gb,{prompt},{batch},{tokens},{prefill!r},{token!r},{end!r},2")
    path = tmp_path / "times.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("seconds", [False, True], ids=["milliseconds", "seconds"])
def test_a_known_law_is_found_again_in_both_layouts(tmp_path: Path, seconds: bool) -> None:
    document, _ = sageserve.convert(written(tmp_path, seconds=seconds), kv_tokens=400_000)
    engine = load_profile(document).engines["toy-gpu-80gb-x2"]
    compute, reading = engine.pieces
    assert compute.token_ms == pytest.approx(0.05, rel=0.05)
    assert compute.pair_ms == pytest.approx(2e-6, rel=0.5)
    assert (reading.base_ms, reading.kv_token_ms) == pytest.approx((12.0, 1e-4), rel=1e-3)
    assert engine.fitted.error < 0.1
    assert (engine.gpus, engine.overlap, engine.most_seqs) == (2, "assumed", 16)


def test_times_that_no_law_fits_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, seconds=False)
    lines = path.read_text().splitlines()
    spoilt = [lines[0]]
    for number, line in enumerate(lines[1:]):
        cells = line.split(",")
        cells[5] = str(float(cells[5]) * (9 if number % 2 else 0.1))
        cells[7] = str(float(cells[5]) + 128 * float(cells[6]))
        spoilt.append(",".join(cells))
    path.write_text("\n".join(spoilt))
    with pytest.raises(InputError, match="do not fit"):
        sageserve.convert(path)


def test_the_three_traces_are_read(tmp_path: Path) -> None:
    azure = tmp_path / "azure.csv"
    azure.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:50.6805900,396,109\n2023-11-16 18:15:51.0,0,5\n"
    )
    burst = tmp_path / "burst.csv"
    burst.write_text("Timestamp,Model,Request tokens,Response tokens\n5,ChatGPT,472,18\n45,GPT-4,1087,230\n")
    moon = tmp_path / "moon.jsonl"
    moon.write_text(
        '{"timestamp": 0, "input_length": 1200, "output_length": 50, "hash_ids": [0, 1, 2]}\n'
        '{"timestamp": 2000, "input_length": 1100, "output_length": 60, "hash_ids": [0, 1, 9]}\n'
    )
    found = {path.stem: token_traces.convert(path)[1]["apps"]["text"] for path in (azure, burst, moon)}
    assert found["azure"]["mix"]["observed"] == [[374, 44], [396, 109]]
    assert found["azure"]["rate_qps"] == pytest.approx(0.25)
    assert found["burst"]["rate_qps"] == pytest.approx(1 / 40)
    assert found["moon"]["mix"]["observed"] == [[1200, 50, 0], [1100, 60, 1024]]


@pytest.mark.parametrize("line", ["x,1,2", "1,,2"])
def test_a_line_that_says_nothing_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "burst.csv"
    path.write_text(f"Timestamp,Request tokens,Response tokens\n0,5,6\n{line}\n")
    with pytest.raises(InputError) as caught:
        token_traces.convert(path)
    assert caught.value.faults[0].path == "line 3"


def test_a_sheet_and_a_trace_make_a_plan(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    requests = [(k / 5.0, int(random.integers(20, 900)), int(random.integers(5, 200)), 0) for k in range(400)]
    slo = token_traces.wish_of(requests)
    slo["apps"]["text"]["task"] = "tiny"
    with pytest.raises(InputError, match="no limit on ttft"):
        hp.solve(datasheet.convert_sheet(SHEET), slo, formulation="llm")
    slo["apps"]["text"]["latency"] = LIMITS
    outcome = hp.solve(datasheet.convert_sheet(SHEET), slo, options={"queries": 1000})
    assert outcome.reason == "verified"


def most_carried(slo: dict[str, Any]) -> list[float]:
    """What some fleets of two unlike types carry at most by the program: the optimum, without steps of machines."""
    profile, app = texts.profile(), slo["apps"]["text"]
    for engine in profile["engines"].values():
        engine["kv_tokens"] = 400_000
    answered(app, model="m", latency=texts.slo(ttft_ms=2000.0)["apps"]["chat"]["latency"])
    rows = Rows.of(program(read_text_request(load_inputs(profile, slo), LlmOptions()), mean_tpot=False, allow_late=1.0))
    return [rows.capacity_of(counts).rate_qps for counts in ((1, 1), (1, 4), (3, 1))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "trace", ["burst", "azure_2023_conv.csv", "azure_2023_code.csv", "mooncake_conversation_400.jsonl"]
)
def test_classes_and_lengths_of_a_trace_are_as_good_as_all_of_it(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every request of the trace, and nine times as many classes, the optimum moves by less than 1%."""
    random = np.random.default_rng(0)
    if trace == "burst":
        drawn = zip(random.lognormal(5.8, 1.0, 5000), random.lognormal(4.5, 1.1, 5000), strict=True)
        requests = [(float(k), int(min(i, 8000)) + 1, int(min(o, 4000)) + 1, 0) for k, (i, o) in enumerate(drawn)]
    elif DATA.is_dir():
        lines = (DATA / trace).read_text(encoding="utf-8-sig").splitlines()
        requests = list(token_traces.read_requests(lines, trace))
    else:
        pytest.skip("published traces are not here")
    found = most_carried(token_traces.wish_of(requests))
    monkeypatch.setattr(token_traces, "BINS", (12, 12))
    monkeypatch.setattr(token_traces, "MOST_LENGTHS", 10**9)
    assert found == pytest.approx(most_carried(token_traces.wish_of(requests)), rel=0.01)


@pytest.mark.skipif(not DATA.is_dir(), reason="published measurements are not here")
def test_published_files_are_read() -> None:
    _, slo = token_traces.convert(DATA / "azure_2023_conv.csv")
    mix = slo["apps"]["text"]["mix"]
    assert len(mix["observed"]) == 3000
    assert slo["apps"]["text"]["rate_qps"] == pytest.approx(19366 / 3600, rel=0.05)
    _, moon = token_traces.convert(DATA / "mooncake_conversation_400.jsonl")
    assert max(row[2] for row in moon["apps"]["text"]["mix"]["observed"]) > 512
    for name, error in (("sageserve_perf_model.csv", 0.15), ("sageserve_Llama-3.1-8B-tp-2.csv", 0.15)):
        profile, _ = sageserve.convert(DATA / name)
        engines = load_profile(profile).engines
        assert all(engine.fitted.error < error for engine in engines.values()), {
            key: engine.fitted.error for key, engine in engines.items()
        }
