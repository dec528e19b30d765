"""CSV files of perf_analyzer become profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetplan.errors import InputError
from hetplan.profiles.imports.perf_analyzer import convert, convert_text
from hetplan.profiles.load_one import load_profile

# As perf_analyzer writes them with -f: by default, and with --verbose-csv and a request rate.
PLAIN = """\
Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency
1,69.2,225,2148,64,206,11781,19,0,13891,18795,19753,21018
3,84.2,237,1768,21673,209,11742,17,0,35398,43984,47085,51701
4,87.2,244,1851,31022,214,11832,19,1,45200,55017,58412,64998
"""
VERBOSE = """\
Request Rate,Inferences/Second,Client Send,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency,Avg latency,\
request/response,response wait
100,99.8,20,5,2000,2500,2600,3000,2100,25,2075
200,199.1,21,5,2400,3500,4600,8000,2700,26,2674
"""
BATCHES = """\
Batch Size,Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,\
Server Compute Infer,Server Compute Output,Client Recv,p50 latency,p99 latency
8,1,200,10,90,0,100,39000,100,0,40000,44000
1,1,70,10,90,0,100,13000,100,0,13900,21000
1,4,85,10,90,20000,100,13000,100,0,45000,60000
8,2,260,10,90,20000,100,39000,100,0,60000,70000
"""


def test_the_row_without_waiting_is_the_latency(tmp_path: Path) -> None:
    file = tmp_path / "Inception v3@T4.csv"
    file.write_text(PLAIN)
    document, slo = convert(file)
    assert slo is None
    profile = load_profile(document)
    run = profile.variants["inception-v3"].runs[0]
    assert (run.hardware, run.saturation_qps, run.at) == ("t4", 87.2, {"batch": 1})
    table = profile.tables[run.latency or ""]
    assert table.read([{"batch": 1}], "p99").values.tolist() == [21.018]
    # The mean is the sum of its components: 225 + 2148 + 64 + 206 + 11781 + 19 + 0.
    assert table.read([{"batch": 1}]).values.tolist() == [14.443]
    assert table.given == {}


def test_request_rates_and_verbose_columns() -> None:
    table = load_profile(convert_text(VERBOSE, file="x.csv")).tables["model-server"]
    assert table.read([{"batch": 1}]).values.tolist() == [2.1]
    assert table.given == {"request_rate_qps": 100}


def test_a_column_of_batches_is_the_axis() -> None:
    profile = load_profile(convert_text(BATCHES, file="x.csv"))
    table = profile.tables["model-server"]
    assert table.read([{"batch": 1}, {"batch": 8}], "p50").values.tolist() == [13.9, 40.0]
    run = profile.variants["model"].runs[0]
    assert (run.at, run.saturation_qps) == ({"batch": 8}, 260)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Inferences/Second"),
        ("a,b\n1,2\n", "Concurrency"),
        ("Concurrency,Inferences/Second\n1,70\n", "a column of latency"),
        (PLAIN.replace("21018", "soon"), "line 2, column p99 latency"),
        (PLAIN.replace("69.2", "-1"), "line 2, column Inferences/Second"),
    ],
    ids=["empty", "other columns", "no latency", "no number", "negative"],
)
def test_what_cannot_be_read_is_reported(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        convert_text(text, file="perf.csv")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv"):
        convert(tmp_path / "none.csv")
