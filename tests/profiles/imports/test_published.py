"""Bills, workloads and Triton's files, as they are published."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetplan.errors import InputError
from hetplan.profiles.imports import perf_analyzer, skypilot, token_traces, trace
from hetplan.profiles.imports.kinds import KINDS, kind_of
from hetplan.profiles.load_one import load_profile
from hetplan.registry import IMPORTERS
from tests.cases.grids import DATA as LAWS

DATA = LAWS.parents[1] / "benchmark-files"
BILL = """BillingCurrency,ChargeCategory,ServiceCategory,PricingUnit,PricingCategory,ListUnitPrice,ContractedUnitPrice,\
ChargeDescription,RegionId,ChargePeriodStart
USD,Usage,Compute,Hours,Standard,4.10,NULL,$4.10 per On Demand Linux p5.4xlarge Instance Hour,us-east-1,2026-01-01
USD,Usage,Compute,Hours,Standard,4.20,3.90,$4.20 per On Demand Linux p5.4xlarge Instance Hour,us-east-1,2026-02-01
USD,Usage,Compute,GB,Standard,0.09,NULL,data transfer p5.4xlarge,us-east-1,2026-02-01
USD,Credit,Compute,Hours,Other,9,NULL,p5.4xlarge credit,us-east-1,2026-03-01
"""


def test_kinds_of_files_are_those_that_are_read() -> None:
    assert set(KINDS) == set(IMPORTERS)


def test_a_bill_says_what_an_hour_costs_and_adds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "bill.csv"
    path.write_text(BILL)
    assert kind_of(path) == "prices"
    profile = load_profile(skypilot.convert(path)[0])
    ((name, offer),) = profile.offers.items()
    assert (name, offer.price_per_hour, profile.hardware[offer.hardware].kind) == (
        "p5.4xlarge-us-east-1", 3_900_000_000, "gpu"
    )  # fmt: skip
    for change, said in (("USD", "EUR"), ("3.90", "-1"), ("3.90", "much")):
        path.write_text(BILL.replace(change, said, 1))
        with pytest.raises(InputError):
            skypilot.convert(path)
    path.write_text(BILL)
    with pytest.raises(InputError, match="no hours of machines"):
        skypilot.convert(path, region="mars")


@pytest.mark.skipif(not DATA.is_dir(), reason=f"published files are not in {DATA}")
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("focus/focus_1_0_rows.csv", "prices"), ("aibrix/workload_ten_requests.jsonl", "token-trace"),
        ("servegen/m-large_chunk-0-trace.csv", "trace"), ("servegen/m-large_chunk-1-dataset_part.json", "token-trace"),
        ("model-analyzer/single-model-model-inference.csv", "perf-analyzer"),
        ("perf-analyzer/perf.csv", "perf-analyzer"),
        ("aibrix/simulator-llama2-7b-a100.json", "melange"), ("aibrix/melange_config_example.json", "melange"),
    ],
)  # fmt: skip
def test_published_files_are_known_by_what_is_in_them(name: str, kind: str) -> None:
    assert kind_of(DATA / name) == kind


@pytest.mark.skipif(not DATA.is_dir(), reason=f"published files are not in {DATA}")
def test_published_bills_workloads_and_configurations_are_read() -> None:
    prices = load_profile(skypilot.convert(DATA / "focus" / "focus_1_0_rows.csv")[0])
    assert prices.offers["c5.2xlarge-us-east-1"].price_per_hour == 340_000_000
    assert len(prices.offers) == 6
    demand = token_traces.convert(DATA / "aibrix" / "workload_ten_requests.jsonl")[1]["apps"]["text"]
    assert demand["mix"]["observed"][0] == [909, 22]
    windows = DATA / "servegen" / "m-large_chunk-1-dataset_part.json"
    with pytest.raises(InputError, match="requests per second"):
        token_traces.convert(windows)
    drawn = token_traces.convert(windows, rate_qps=5.0)[1]["apps"]["text"]
    assert drawn["rate_qps"] == pytest.approx(5.0, rel=0.01)
    assert len(drawn["mix"]["observed"]) == token_traces.MOST_LENGTHS
    chunk = trace.convert(DATA / "servegen" / "m-large_chunk-0-trace.csv")[1]["extensions"]["trace"]
    assert (chunk["kind"], chunk["seconds"]) == ("rates", 336 * 3600)
    analyzed = load_profile(perf_analyzer.convert(DATA / "model-analyzer" / "request-rate-model-inference.csv")[0])
    assert analyzed.tables["add_sub_config_5-server"].statistics == ("p99",)
    with pytest.raises(InputError, match="the file of GPUs has no times"):
        perf_analyzer.convert(DATA / "model-analyzer" / "single-model-model-gpu.csv")
