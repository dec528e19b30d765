"""Runs of serving benchmarks: each tool's figures by their own units, what cannot be true refused, laws found again."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetplan.errors import InputError
from hetplan.profiles.cards import cards
from hetplan.profiles.engines import Engine
from hetplan.profiles.imports.kinds import kind_of
from hetplan.profiles.imports.runs import Run
from hetplan.profiles.imports.sweep_law import fit_runs, fit_sweep, least_prices
from hetplan.profiles.imports.sweep_readers import runs_of_file
from hetplan.profiles.imports.sweeps import convert, convert_laws, read_runs
from hetplan.profiles.language_models import models
from hetplan.profiles.load_one import load_profile
from hetplan.serving.tokens import Group, Requests, TokenFleet, TokenLaw, law_of_engine
from hetplan.simulator.tokens import Coming, play
from tests.build import planned
from tests.cases.grids import DATA as LAWS
from tests.cases.grids import read

DATA = LAWS.parents[1] / "benchmark-files"
published = pytest.mark.skipif(not DATA.is_dir(), reason=f"published files are not in {DATA}")

RESULT: dict[str, Any] = {
    "model_id": "meta-llama/Llama-3.1-8B", "hardware": "A100", "completed": 200, "failed": 0, "duration": 24.067,
    "request_rate": "inf", "max_concurrency": 8, "total_input_tokens": 204800, "total_output_tokens": 25600,
    "request_throughput": 8.31, "output_throughput": 1063.7, "mean_ttft_ms": 53.4, "median_ttft_ms": 51.0,
    "std_ttft_ms": 40.0, "p99_ttft_ms": 456.7, "mean_tpot_ms": 7.16, "median_tpot_ms": 7.0, "p99_tpot_ms": 12.2,
    "mean_e2el_ms": 962.7,
}  # fmt: skip
"""As `vllm bench serve --save-result --metadata hardware=A100` writes it: Little's law holds."""


def report(path: Path, *runs: dict[str, Any]) -> Path:
    path.write_text("\n".join(map(json.dumps, runs)))
    return path


def test_one_result(tmp_path: Path) -> None:
    document, slo = convert(report(tmp_path / "result.json", RESULT))
    assert slo is None
    profile = load_profile(document)
    run = profile.variants["llama-3.1-8b"].runs[0]
    assert run.hardware == "a100"
    rate = profile.tables[run.rate or ""]
    assert rate.read([{"input_tokens": 1024, "output_tokens": 128}]).values.tolist() == [8.31]
    (measured,) = rate.points
    assert measured.given == {
        "ttft_mean_ms": 53.4, "ttft_p50_ms": 51.0, "ttft_p99_ms": 456.7, "tpot_mean_ms": 7.16, "tpot_p50_ms": 7.0,
        "tpot_p99_ms": 12.2, "response_mean_ms": 962.7, "concurrency": 8.0,
    }  # fmt: skip


def test_seconds_without_a_suffix_are_seconds(tmp_path: Path) -> None:
    given = {k: v for k, v in RESULT.items() if not k.endswith("_ms")}
    (run,) = read_runs(report(tmp_path / "r.json", {**given, "median_ttft": 0.051, "p99_tpot": 0.0122}))
    assert run.times == {"ttft_p50_ms": 51.0, "tpot_p99_ms": 12.2}


def test_a_grid_keeps_every_run(tmp_path: Path) -> None:
    """Two sizes in and out, of one several loads."""

    def at(inputs: int, outputs: int, at_once: int) -> dict[str, Any]:
        whole = 53.4 + (outputs - 1) * 7.16
        sizes = {"total_input_tokens": 200 * inputs, "total_output_tokens": 200 * outputs, "max_concurrency": at_once}
        rate = 1e3 * at_once / whole
        more = {"request_throughput": rate, "output_throughput": rate * outputs, "duration": 200 / rate}
        return {**RESULT, **sizes, **more, "mean_e2el_ms": whole}

    document, _ = convert(report(tmp_path / "all.jsonl", at(128, 64, 4), at(128, 512, 4), at(128, 64, 8)))
    table = planned(document)["tables"]["llama-3.1-8b-a100"]
    assert table["axes"] == {"input_tokens": [128], "output_tokens": [64, 512]}
    assert [one["given"]["concurrency"] for one in table["points"]] == [4.0, 8.0, 4.0]
    assert table["mean"][0][0] == max(one["rate_qps"] for one in table["points"])
    load_profile(document)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"completed": 0}, r"\$\.completed"),
        ({"model_id": None}, r"\$\.model_id"),
        ({"request_throughput": -2}, r"\$\.request_throughput"),
        ({"total_input_tokens": None}, "total_input_tokens"),
        ({"total_output_tokens": 0}, "total_output_tokens"),
        ({"request_throughput": 83.1}, "completed / duration"),
        ({"output_throughput": 106.0}, "rate x tokens"),
        ({"mean_tpot_ms": 71.6}, r"TTFT \+ \(tokens - 1\) x TPOT"),
        ({"mean_e2el_ms": 9627.0, "mean_tpot_ms": 75.4}, "requests at a time"),
        ({"p99_ttft_ms": 12.0}, "a higher percentile is no shorter"),
        ({"p99_ttft_ms": 456_700.0}, "another unit"),
        ({"median_ttft_ms": 0.051}, "another unit|no times have both"),
        ({"p99_ttft_ms": 12_000.0, "median_ttft_ms": 50.0}, "no times have both"),
        ({"total_token_throughput": 9574.0, "total_input_tokens": 204_800_000}, "input tokens per second"),
        ({"max_concurrency": 8000}, "and in all"),
    ],
)
def test_what_is_missing_or_cannot_be_true_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_runs(report(tmp_path / "r.json", {**RESULT, **change}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_concurrency": None}, "at once"),
        ({"failed": 40}, "failed"),
        ({"request_rate": 20.0, "max_concurrency": None}, "past saturation"),
    ],
)
def test_a_run_that_was_not_steady_keeps_no_limit(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    document, _ = convert(report(tmp_path / "r.json", {**RESULT, **change}))
    assert said in document["source"]["note"]
    ((point,),) = (table["points"] for table in planned(document)["tables"].values())
    assert not any("p99" in name for name in point["given"])
    assert point["rate_qps"] == 8.31


def llm_d(version: str, replicas: int = 1) -> dict[str, Any]:
    """A report of either layout, of a run that Little's law allows."""
    latency = {
        "time_to_first_token": {"units": "s", "mean": 0.0534, "p99p9": 0.9},
        "time_per_output_token": {"units": "ms/token", "mean": 7.16},
        "request_latency": {"units": "s", "mean": 0.9627},
    }
    requests = {
        "total": 200, "failures": 0, "input_length": {"units": "count", "mean": 1024},
        "output_length": {"units": "count", "mean": 128},
    }  # fmt: skip
    held = {"latency": latency, "requests": requests}
    clock = {"duration": 24.067, "start": 100.0, "stop": 124.067}
    if version == "0.1":
        card = {"model": "A100", "count": 1}
        scenario = {"model": {"name": "org/m"}, "host": {"accelerator": [card] * replicas}}
        throughput = {"requests_per_sec": 8.31, "output_tokens_per_sec": 1063.7}
        return {"version": version, "scenario": scenario, "metrics": {"time": clock, **held, "throughput": throughput}}
    part = {"accelerator": {"model": "A100", "count": 1}, "replicas": replicas, "model": {"name": "org/m"}}
    scenario = {"stack": [{"standardized": part}], "load": {"standardized": {"concurrency": 8}}}
    throughput = {"request_rate": {"mean": 8.31}, "output_token_rate": {"mean": 1063.7}}
    return {
        "version": version, "run": {"time": {**clock, "duration": "PT24.067S"}}, "scenario": scenario,
        "results": {"request_performance": {"aggregate": {**held, "throughput": throughput}}},
    }  # fmt: skip


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_reports_of_llm_d_are_read_by_their_units_and_per_replica(version: str, tmp_path: Path) -> None:
    (run,) = read_runs(report(tmp_path / "r.json", llm_d(version)))
    assert (run.model, run.hardware, run.input_tokens, run.output_tokens) == ("m", "a100", 1024, 128)
    assert run.times == {"ttft_mean_ms": 53.4, "ttft_p99.9_ms": 900.0, "tpot_mean_ms": 7.16, "response_mean_ms": 962.7}
    (half,) = read_runs(report(tmp_path / "r.json", llm_d(version, 2)))
    assert half.rate_qps == pytest.approx(run.rate_qps / 2)


# What is published


@published
def test_published_files_say_what_they_are_and_the_rest_is_refused_by_name() -> None:
    refused = {
        "br_v0_1_example.yaml": "after the start", "br_v0_2_example.yaml": "completed / duration",
        "br_v0_2_1_example.yaml": "completed / duration", "summary_lifecycle_metrics.json": "mixes the times",
    }  # fmt: skip
    sweeps = [path for path in sorted(DATA.rglob("*")) if path.is_file() and kind_or_none(path) == "rates"]
    assert len(sweeps) == 25
    for path in sweeps:
        if path.name in refused:
            with pytest.raises(InputError, match=refused[path.name]):
                read_runs(path)
        else:
            load_profile(convert(path)[0])


def kind_or_none(path: Path) -> str | None:
    try:
        return kind_of(path)
    except InputError:
        return None


@published
@pytest.mark.parametrize(
    ("name", "ttft", "token"),
    [
        ("aiperf/profile_export_aiperf_c1.json", 40.0, 8.25),
        ("vllm-bench/mock_c1.json", 40.0, 8.25),
        ("guidellm/guidellm_sweep_mock.json", 30.6, 8.25),
    ],
)
def test_a_server_whose_law_is_known_is_seen_as_it_is(name: str, ttft: float, token: float) -> None:
    run = read_runs(DATA / name)[0]
    assert run.time("ttft", "p50") == pytest.approx(ttft, abs=5.0)
    assert run.time("tpot", "p50") == pytest.approx(token, abs=3.0)


@published
def test_the_same_run_is_read_alike_from_json_and_csv() -> None:
    one, other = (read_runs(DATA / "aiperf" / f"profile_export_aiperf_c8.{kind}")[0] for kind in ("json", "csv"))
    assert other.rate_qps == pytest.approx(one.rate_qps, rel=1e-3)
    assert {k: pytest.approx(v, rel=1e-2) for k, v in other.times.items()} == one.times


@pytest.mark.slow
@published
def test_stages_below_saturation_give_a_law_that_says_their_first_tokens() -> None:
    runs = read_runs(DATA / "inference-perf" / "sweep", model="llama-3.1-8b", hardware="h100")
    assert [bool(run.unsteady) for run in runs] == [False, False, False, True, True]
    document, _ = convert_laws(DATA / "inference-perf" / "sweep", model="llama-3.1-8b", hardware="h100")
    (engine,) = load_profile(document).engines.values()
    assert engine.law is not None
    assert engine.law.basis == "measured"
    for run in runs[:2]:
        found = played(law_of_engine(engine), run.rate_qps, round(run.input_tokens), round(run.output_tokens))
        assert found["ttft"] == pytest.approx(run.time("ttft", "mean"), rel=0.2)


@published
@pytest.mark.parametrize("seed", range(3))
def test_spoilt_files_are_refused_or_say_the_same(seed: int, tmp_path: Path) -> None:
    """A key lost, a unit changed, a number times 1,000, a negative one, a file cut off: never other numbers."""
    drawn = random.Random(seed)
    glm = "inferencex/glm5_fp8_h200x8_isl10240_osl128_conc16.json"
    names = ["vllm-bench/mock_c8.json", "aiperf/profile_export_aiperf_c8.json", glm]
    for name in names:
        text = (DATA / name).read_text()
        sound = planned(convert(DATA / name)[0])["tables"]
        for _ in range(25):
            spoilt = spoil(json.loads(text), drawn)
            path = tmp_path / Path(name).name
            path.write_text(spoilt if isinstance(spoilt, str) else json.dumps(spoilt))
            try:
                made = planned(convert(path)[0])["tables"]
            except InputError:
                continue
            for table, whole in zip(made.values(), sound.values(), strict=True):
                ((one,), (other,)) = table["points"], whole["points"]
                assert one["rate_qps"] == other["rate_qps"]
                assert one["at"] == other["at"]
                times = {k for k in one["given"] if k.endswith("_ms")}
                assert all(one["given"][k] == other["given"].get(k) for k in times), spoilt


def spoil(document: dict[str, Any], drawn: random.Random) -> Any:
    way = drawn.choice(["lost", "negative", "nan", "cut", "times", "part"])
    if way == "cut":
        text = json.dumps(document)
        return text[: drawn.randrange(len(text))]
    holders = [document, *(one for one in document.values() if isinstance(one, dict))]
    held = drawn.choice([one for one in holders if one])
    key = drawn.choice(sorted(held))
    value = held[key]
    if way == "lost":
        del held[key]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        held[key] = {"negative": -1.0, "nan": "NaN", "times": 1000 * value, "part": value / 1000}[way]
    return document


# Laws


def played(law: TokenLaw, rate: float, prompt: int, answer: int) -> dict[str, float]:
    count = 600
    arrival = np.cumsum(np.random.default_rng(0).exponential(1000.0 / rate, count))
    run = play(TokenFleet((Group(law, 1),), answer), Coming(arrival, Requests.of([(prompt, answer)] * count), answer))
    return {"ttft": float(run.ttft_ms.mean()), "tpot": float(run.tpot_ms.mean()), "rate": 1000.0 * count / run.end_ms}


TRUE = TokenLaw(
    np.array([[6.0, 0.02, 5e-5, 0.02, 0.0]]), 400_000, 8192, 256, experts_ms=10.0, experts_rate=0.05, request_ms=30.0
)


def test_a_law_of_experts_is_found_again_from_open_loops() -> None:
    """What it says of other lengths and loads is what the true law does."""
    runs = []
    for prompt, answer in ((256, 128), (1024, 256), (2048, 64)):
        for rate in (0.02, 0.5, 2.0, 6.0, 12.0):
            seen = played(TRUE, rate, prompt, answer)
            times = {"ttft_mean_ms": seen["ttft"], "tpot_mean_ms": seen["tpot"]}
            runs.append(Run("$", "t", "toy", "gpu", 1, prompt, answer, seen["rate"], times, offered_qps=rate))
    engine, seen_most = fit_sweep(runs, "runs")
    assert seen_most["tokens"] == 2048
    assert engine["law"]["fit_error"][0] < 0.05
    document = {**engine, "kv_tokens": 400_000, "most_tokens": 8192}
    found = law_of_engine(Engine.model_validate(document))
    for prompt, answer, rate in ((512, 200, 4.0), (1500, 100, 8.0)):
        true, own = played(TRUE, rate, prompt, answer), played(found, rate, prompt, answer)
        assert own["tpot"] == pytest.approx(true["tpot"], rel=0.1)
        assert own["ttft"] == pytest.approx(true["ttft"], rel=0.15)


AGGREGATED = (
    "model,isl,osl,prefix,concurrency,request_rate,bs,global_bs,ttft,tpot,request_latency,encoder_latency,"
    "encoder_memory,seq/s,seq/s/gpu,tokens/s,tokens/s/gpu,tokens/s/user,num_total_gpus,tp,pp,dp,moe_tp,moe_ep,cp,"
    "parallel,gemm,kvcache,fmha,moe,comm,memory,backend,version,system,power_w"
)
"""The columns of aggregated serving, as aiconfigurator writes them and aisimulate after it."""


def modelled(gemm: str) -> list[str]:
    rows = []
    for i, n, first, token in ((1024, 4, 60, 8.0), (1024, 32, 150, 12.0), (4096, 8, 260, 14.0), (4096, 16, 400, 21.0)):
        rate = 1e3 * n / (first + 255 * token)
        said = {"model": "Qwen/Qwen3-32B", "isl": i, "osl": 256, "concurrency": n, "ttft": first, "tpot": token}
        said |= {"seq/s": rate, "tokens/s/gpu": 9, "num_total_gpus": 2, "tp": 2, "dp": 1, "moe_ep": 1, "gemm": gemm}
        said |= {"kvcache": "fp8", "backend": "vllm", "version": "0.24.0", "system": "h200_sxm"}
        rows.append(",".join(str(said.get(name, "")) for name in AGGREGATED.split(",")))
    return rows


def test_tables_of_aiconfigurator_and_aisimulate_are_modelled_and_say_so(tmp_path: Path) -> None:
    path = tmp_path / "pareto.csv"
    path.write_text("\n".join([AGGREGATED, *modelled("bf16")]))
    assert kind_of(path) == "rates"
    document, _ = convert_laws(path)
    assert "nothing was measured" in document["source"]["note"]
    ((name, run),) = document["models"]["qwen3-32b-bf16"]["runs"].items()
    assert (name, run["tensor"], run["basis"]) == ("h200-x2", 2, "grid")
    assert run["error_mean"] == pytest.approx(0.185)


def test_modelled_runs_of_two_precisions_are_two_laws_and_pairs_of_engines_are_none(tmp_path: Path) -> None:
    path = tmp_path / "pareto.csv"
    path.write_text("\n".join([AGGREGATED, *modelled("bf16"), *modelled("fp8_block")]))
    assert len(convert_laws(path)[0]["models"]) == 2
    path.write_text("\n".join([AGGREGATED + ",(p)workers", *(f"{row},2" for row in modelled("bf16"))]))
    with pytest.raises(InputError, match="one that prefills and one that decodes"):
        convert_laws(path)


def test_too_few_runs_are_no_law() -> None:
    times = {"ttft_mean_ms": 50.0, "tpot_mean_ms": 9.0}
    runs = [Run("$", "t", "toy", "gpu", 1, 512, 128, rate, times) for rate in (0.1, 2.0)]
    with pytest.raises(InputError, match="too few to tell"):
        fit_sweep(runs, "runs")
    with pytest.raises(InputError, match="no run of toy on gpu has a time per token"):
        fit_sweep([replace(run, burst=True) for run in runs], "runs")


@pytest.mark.skipif(not LAWS.is_dir(), reason=f"the sweeps are not in {LAWS}")
def test_measured_sweeps_are_met_as_nearly_as_by_laws_that_were_fitted_apart() -> None:
    """59 sweeps: 3.5% on the mean, 2.0% in the middle. InferenceX draws lengths; their mean is .9 of the stated."""
    identity = ("model", "gpu", "engine", "precision", "tensor", "expert", "version", "source")
    apart = {tuple(row[name] for name in identity): row for _, row in read("laws_measured")}
    sweeps: dict[tuple[str, ...], list[Run]] = {}
    rows = [row for _, row in read("measured")]
    for row, run in zip(rows, runs_of_file(LAWS / "measured.csv"), strict=True):
        share = 0.9 if row["source"] == "inferencex" else 1.0
        answer, at_once = share * run.output_tokens, run.concurrency or 1.0
        rate = 1e3 * at_once / (run.times["ttft_mean_ms"] + (answer - 1.0) * run.times["tpot_mean_ms"])
        used = replace(run, input_tokens=share * run.input_tokens, output_tokens=answer, rate_qps=rate)
        sweeps.setdefault(tuple(row[name] for name in identity), []).append(used)
    errors = []
    for key, row in apart.items():
        model = models()[key[0]]
        least = least_prices(model, key[3], cards()[key[1]], int(key[4]))
        found = fit_runs(sweeps[key], least=least, experts=bool(model.experts))
        errors.append(found.error)
        assert found.error < float(row["error_mean"]) + 0.01
    assert len(errors) == 59
    assert np.mean(errors) < 0.036
    assert np.median(errors) < 0.021
