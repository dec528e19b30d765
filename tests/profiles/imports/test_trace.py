"""Traces: what is read is what the file says, and a process that was drawn is found again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hetplan as hp
from hetplan.errors import InputError
from hetplan.profiles.imports.arrival_fit import fitted, fitted_rates
from hetplan.profiles.imports.trace import convert, words_of
from hetplan.profiles.rates import read_rates

Floats = NDArray[np.float64]


def drawn(process: str, count: int = 6000) -> Floats:
    random = np.random.default_rng(7)
    if process == "mmpp":
        rates = np.where(np.arange(count) % 1200 < 300, 2.0, 18.0)  # long stays at two rates
        return np.cumsum(random.exponential(1.0, count) / rates)
    shape = {"poisson": 1.0, "bursty": 0.4, "smooth": 4.0, "even": 1e6}[process]
    return np.cumsum(random.gamma(shape, 1.0 / shape, count) / 10.0)


@pytest.mark.parametrize(("process", "shape"), [("bursty", 0.4), ("smooth", 4.0)])
def test_the_shape_of_gaps_is_found(process: str, shape: float) -> None:
    found = fitted(drawn(process))
    assert found["process"] == "gamma"
    assert found["shape"] == pytest.approx(shape, rel=0.1)


def test_a_poisson_process_is_called_one_and_even_gaps_are_even() -> None:
    assert fitted(drawn("poisson")) == {"process": "poisson"}
    assert fitted(drawn("even")) == {"process": "deterministic"}


def test_two_rates_and_their_stays_are_found() -> None:
    found = fitted(drawn("mmpp"))
    assert found["process"] == "mmpp"
    low, high = found["relative_rates"]
    assert high / low == pytest.approx(9.0, rel=0.15)
    assert found["stay_s"] == pytest.approx([150.0, 50.0], rel=0.4)
    hp.Slo.model_validate({"apps": {"a": {"task": "t", "rate_qps": 5.0, "arrivals": found}}})


def test_a_daily_wave_is_found_and_noise_is_none() -> None:
    random = np.random.default_rng(1)
    seconds = np.arange(0, 5 * 86_400, 600.0)
    wave = 100 * (1 + 0.6 * np.sin(2 * np.pi * seconds / 86_400 + 1)) + random.normal(0, 10, len(seconds))
    assert fitted_rates(wave, 600.0) == {"process": "diurnal", "peak": pytest.approx(1.6, abs=0.03), "period_s": 86_400}
    assert fitted_rates(100 + random.normal(0, 10, len(seconds)), 600.0) == {"process": "poisson"}


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def prometheus(folder: Path) -> Path:
    values = [[1700000000 + 60 * k, str(10.0 + k)] for k in range(20) if k != 7]
    second = [[1700000000 + 60 * k, "1" if k else "NaN"] for k in range(20)]
    result = [{"metric": {"job": "a"}, "values": values}, {"metric": {"job": "b"}, "values": second}]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return written(folder, "range.json", json.dumps(answer))


def test_an_answer_of_prometheus_is_added_up_over_its_series(tmp_path: Path) -> None:
    _, slo, files = convert(prometheus(tmp_path), app="web")
    rates = read_rates(written(tmp_path, "rates.csv", files["rates.csv"]))
    assert rates.period_s == 60
    assert rates.rates_qps[:3] == (10.0, 12.0, 13.0)
    assert rates.rates_qps[7] == 1.0  # the one series has no value there
    said = slo["extensions"]["trace"]
    assert said["first"] == "2023-11-14T22:13:20Z"
    assert said["rate_qps"]["max"] == 30.0
    assert slo["apps"]["web"]["rate_qps"] == pytest.approx(np.mean(rates.rates_qps), rel=1e-5)
    assert "arrivals.csv" not in files


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("arrival_s", lambda second: f"{second:.3f}"),
        ("timestamp", lambda second: f"{1700000000 + second:.3f}"),
        ("ts", lambda second: f"{1700000000000 + 1000 * second:.0f}"),
        ("Time", lambda second: f"2023-11-14T22:{13 + int(second) // 60:02d}:{second % 60:09.6f}Z"),
        ("when", lambda second: f"{second:.3f}"),
    ],
)
def test_times_are_read_in_the_unit_they_are_in(column: str, cell: Callable[[float], str], tmp_path: Path) -> None:
    seconds = np.round(drawn("poisson", 300), 3)
    lines = [f"id,{column}", *(f"{k},{cell(float(second))}" for k, second in reversed(list(enumerate(seconds))))]
    path = written(tmp_path, "log.csv", "\n".join(lines))
    _, slo, files = convert(path, column="when" if column == "when" else "")
    arrivals = [float(line) for line in files["arrivals.csv"].splitlines()[1:]]
    assert arrivals == pytest.approx(seconds - seconds[0], abs=2e-3)
    assert slo["extensions"]["trace"]["requests"] == 300
    assert ("first" in slo["extensions"]["trace"]) is (column in ("timestamp", "ts", "Time"))


@pytest.mark.parametrize(
    "times", [("time", "0", "60", "120"), ("Timestamp", *(f"2023-11-14T22:1{k}:00Z" for k in "345"))]
)
def test_rates_beside_times_are_rates_and_no_arrivals(times: tuple[str, ...], tmp_path: Path) -> None:
    lines = [f"{cell},{rate}" for cell, rate in zip(times, ("rate", "10", "30", "20"), strict=True)]
    _, slo, files = convert(written(tmp_path, "day.csv", "\n".join([lines[0], *reversed(lines[1:])])), app="web")
    rates = read_rates(written(tmp_path, "rates.csv", files["rates.csv"]))
    assert rates.period_s == 60
    assert rates.rates_qps == (10.0, 30.0, 20.0)
    assert slo["apps"]["web"]["rate_qps"] == 20.0
    assert "arrivals.csv" not in files


@pytest.mark.parametrize("lines", ["0,1\n60,2\n90,3", "0,1\n0,2", "0,1", "0,1\n60,fast", "0,1\n60,-2", "0,1\n60,"])
def test_rates_that_are_none_or_come_unevenly_are_refused(lines: str, tmp_path: Path) -> None:
    with pytest.raises(hp.InputError):
        convert(written(tmp_path, "day.csv", f"time,rate\n{lines}\n"), app="web")


def test_a_trace_of_text_has_lengths_and_a_plan_can_be_asked_of_its_slo(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    times = drawn("poisson", 400)
    rows = [f"{time:.4f},{random.integers(20, 900)},{random.integers(5, 90)}" for time in times]
    path = written(tmp_path, "burst.csv", "\n".join(["Timestamp,Request tokens,Response tokens", *rows]))
    _, slo, _ = convert(path)
    hp.Slo.model_validate(slo)
    said = slo["extensions"]["trace"]
    assert said["kind"] == "requests"
    assert said["output_tokens"]["max"] <= 90
    assert len(slo["apps"]["text"]["mix"]["observed"]) == 400
    assert any(line.startswith("burstiness: ") for line in words_of(slo))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,when\n1,2\n", "a column of times"),
        ("ts\n1\nsoon\n", "line 3"),
        ("ts\n1\n", "requests over some time"),
        ('{"data": {"resultType": "vector", "result": []}}', "range query"),
        ("start_s,rate_qps\n0,1\n1,-2\n", "0 or more"),
        ("start_s,rate_qps\n0,0\n1,0\n", "demand in them"),
    ],
)
def test_a_file_that_says_nothing_is_refused(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        convert(written(tmp_path, "odd.csv", text))


def test_the_command_writes_the_files_and_says_what_it_found(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from hetplan.cli.app import build_app

    asked = ["import", str(prometheus(tmp_path)), "-o", str(tmp_path / "out"), "--set", "app=web"]
    ran = CliRunner().invoke(build_app(), asked)
    assert ran.exit_code == 0, ran.output
    assert "rates in steps of 60 s" in ran.output
    slo: dict[str, Any] = json.loads((tmp_path / "out" / "slo.json").read_text())
    assert slo["apps"]["web"]["arrivals"] == {"process": "poisson"}
    assert (tmp_path / "out" / "rates.csv").is_file()
    ran = CliRunner().invoke(build_app(), [*asked, "--yaml", "--force"])
    assert ran.exit_code == 0, ran.output
    assert (tmp_path / "out" / "slo.yaml").read_text().startswith("format: ")


DATA = Path(__file__).resolve().parents[4] / "shared" / "data"


@pytest.mark.skipif(not DATA.is_dir(), reason="published measurements are not here")
def test_published_traces_are_read() -> None:
    code = convert(DATA / "llm" / "azure_2023_code.csv")[1]["extensions"]["trace"]
    assert code["first"].startswith("2023-11-16T18:17")
    assert code["burstiness"]["peak_to_mean"] > 5
    served = convert(DATA / "demand" / "servegen_small_qps.csv")[1]["extensions"]["trace"]
    assert served["seconds"] == 336 * 3600
