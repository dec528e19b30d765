"""SkyPilot's catalogues: columns in any order, zones, filters, and cells that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.profiles.imports.skypilot import convert
from hetplan.profiles.load_one import load_profile

AWS = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
g4dn.xlarge,T4,1,4.0,16.0,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 16384}}]}",0.526,0.2104,us-east-1,use1-az1
g4dn.xlarge,T4,1,4.0,16.0,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 16384}}]}",0.526,0.1900,us-east-1,use1-az2
g4dn.12xlarge,T4,4,48.0,192.0,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 16384}}]}",3.912,,us-east-1,use1-az1
g4dn.xlarge,T4,1,4.0,16.0,"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 16384}}]}",0.615,0.2,eu-west-1,euw1-az1
c5.xlarge,,,4.0,8.0,,0.17,0.05,us-east-1,use1-az1
"""
ORDERED_OTHERWISE = """Region,SpotPrice,Price,GpuInfo,MemoryGiB,vCPUs,AcceleratorCount,AcceleratorName,InstanceType
eu-north1,1.25,2.95,,200,16,1,H100,gpu-h100-sxm_1gpu
"""
DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "prices"


def write(folder: Path, text: str) -> Path:
    file = folder / "vms.csv"
    file.write_text(text)
    return file


def test_prices_on_demand_and_spot_by_zone(tmp_path: Path) -> None:
    profile, slo = convert(write(tmp_path, AWS), region="us-east-1", only="T4")
    assert slo is None
    assert profile["machines"]["g4dn.xlarge"]["zones"] == {
        "use1-az1": {"price_per_hour": 0.526, "spot": {"price_per_hour": 0.2104}},
        "use1-az2": {"price_per_hour": 0.526, "spot": {"price_per_hour": 0.19}},
    }
    assert profile["machines"]["g4dn.12xlarge"]["price_per_hour"] == 3.912
    assert profile["machines"]["g4dn.12xlarge"]["provides"] == {
        "gpu": 4, "gpu_mem_gib": 64, "cpu_cores": 48, "mem_gib": 192
    }  # fmt: skip
    load_profile(profile)


def test_zones_of_all_regions_are_of_one_machine_type(tmp_path: Path) -> None:
    profile, _ = convert(write(tmp_path, AWS), only="g4dn.xlarge", spot=False)
    assert list(profile["machines"]) == ["g4dn.xlarge"]
    zones = profile["machines"]["g4dn.xlarge"]["zones"]
    assert {name: one["price_per_hour"] for name, one in zones.items()} == {
        "euw1-az1": 0.615, "use1-az1": 0.526, "use1-az2": 0.526
    }  # fmt: skip


def test_columns_in_any_order_and_a_cloud_without_zones(tmp_path: Path) -> None:
    profile, _ = convert(write(tmp_path, ORDERED_OTHERWISE))
    machine = profile["machines"]["gpu-h100-sxm_1gpu"]
    assert (machine["zones"], machine["spot"]) == (["eu-north1"], {"price_per_hour": 1.25})
    assert "gpu_mem_gib" not in machine["provides"]


@pytest.mark.slow
def test_prices_merge_with_what_was_measured(tmp_path: Path) -> None:
    prices, _ = convert(write(tmp_path, AWS), region="us-east-1", only="c5,g4dn.xlarge", spot=False)
    measured = {
        "format": "hetplan/profile/1.0",
        "tasks": {"t": {}},
        "variants": {
            "m": {
                "task": "t",
                "runs": [
                    {"hardware": "g4dn.xlarge", "latency": "gpu"}, {"hardware": "c5.xlarge", "latency": "cpu"},
                ],
            }
        },
        "tables": {
            "gpu": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [5, 20]},
            "cpu": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [20, 150]},
        },
    }  # fmt: skip
    wish = {
        "format": "hetplan/slo/1.0",
        "apps": {
            "a": {
                "model": "m", "latency": {"p99_ms": 100}, "rate_qps": 5
            }
        },
    }  # fmt: skip
    plan = hp.solve(measured, prices, wish).require()
    assert [(worker.offer, worker.count) for worker in plan.workers] == [("c5.xlarge-use1-az1", 1)]


@pytest.mark.parametrize(
    ("text", "filters", "said"),
    [
        ("a,b\n1,2\n", {}, "the columns InstanceType"),
        ("", {}, "the columns InstanceType"),
        (AWS, {"region": "mars-1"}, "no row of region mars-1"),
        (AWS, {"only": "H100"}, "no row of region any with H100"),
        (AWS.replace("0.526", "cheap", 1), {}, "line 2, Price"),
        (AWS.replace("0.2104", "-1", 1), {}, "line 2, SpotPrice"),
        (AWS.replace(",4.0,16.0", ",nan,16.0", 1), {}, "line 2, vCPUs"),
    ],
)
def test_what_is_wrong_is_named(text: str, filters: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        convert(write(tmp_path, text), **filters)  # type: ignore[arg-type]
    assert said in str(refused.value)


@pytest.mark.parametrize("file", sorted(DATA.glob("skypilot_*.csv")) or [pytest.param(None)], ids=str)
def test_real_extracts(file: Path | None) -> None:
    if file is None:
        pytest.skip("the extracts of real catalogues are not here")
    profile, _ = convert(file)
    assert profile["machines"]
    load_profile(profile)
