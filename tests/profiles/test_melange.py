"""Profiles of Mélange and AIBrix become hetplan's own."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.profiles import load_inputs
from hetplan.profiles.fields import money_text
from hetplan.profiles.imports.melange import convert, convert_document

MELANGE: dict[str, Any] = {
    "gpu_info": {
        "A10G": {"cost": 1.01, "tputs": [[5, 1], [10, 5]]},
        "A100-80GB": {"cost": 3.67, "tputs": [[20, 2], [50, 0]], "max_instances": 4},
    },
    "workload_distribution": [[0.25, 0.125], [0.375, 0.25]],
    "total_request_rate": 30.0,
    "slice_factor": 1,
}
AIBRIX: dict[str, Any] = {
    "gpu": "Sim A100",
    "cost": 1.5,
    "tputs": [[62, 32, 16], [60, 31, 0]],
    "indexes": [[4, 8], [128, 256, 512]],
    "created": 1748888478.25,
    "e2e": [[0.1, 0.2, 0.3], [0.2, 0.3, 0.4]],
    "slos": {"percentile": 99, "e2e": 5.0, "ttft": 0.5},
}


def test_melange(tmp_path: Path) -> None:
    (tmp_path / "melange.json").write_text(json.dumps(MELANGE))
    profile, slo = convert(tmp_path / "melange.json")
    assert slo is not None
    inputs = load_inputs(profile, slo)
    assert inputs.warnings == ()
    runs = {run.hardware: run for run in inputs.profile.variants["llm"].runs}
    assert set(runs) == {"a10g", "a100-80gb"}
    rates = inputs.profile.tables[runs["a100-80gb"].rate or ""].read(
        [{"input_tokens": 1, "output_tokens": 2}, {"input_tokens": 2, "output_tokens": 1}]
    )
    assert rates.values.tolist() == [2, 50]
    assert money_text(inputs.profile.offers["a100-80gb"].price_per_hour) == "3.67"
    demand = inputs.slo.apps["llm"]
    assert demand.rate_qps == 30
    assert demand.mix is not None
    assert dict(zip(demand.mix.bins, demand.mix.share or (), strict=True)) == {
        (1, 1): 0.25, (1, 2): 0.125, (2, 1): 0.375, (2, 2): 0.25,
    }  # fmt: skip
    assert inputs.slo.limits.instances == {"a100-80gb": (0, 4)}
    assert inputs.slo.objective == ("min cost",)


def test_melange_with_buckets_and_shares_that_sum_to_two() -> None:
    document = {**MELANGE, "input_buckets": [25, 100], "output_buckets": [50, 400]}
    document["workload_distribution"] = [[1, 0], [1, 0]]
    profile, slo = convert_document(document)
    assert slo is not None
    assert profile["models"]["llm"]["axes"] == {"input_tokens": [25, 100], "output_tokens": [50, 400]}
    demand = slo["apps"]["llm"]
    assert demand["rate_qps"] == 60
    assert demand["mix"]["bins"] == [[25, 50], [100, 50]]
    assert demand["mix"]["share"] == [0.5, 0.5]
    load_inputs(profile, slo)


def test_aibrix_is_turned_and_keeps_its_targets(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(AIBRIX))
    profile, slo = convert(tmp_path / "one.json")
    assert slo is None
    table = load_inputs(
        profile, {"format": "hetplan/slo/1.0", "apps": {"any": {"candidates": [{"demand": {"gpu": 1}}]}}}
    ).profile.tables["llm-sim-a100"]
    assert table.read([{"input_tokens": 128, "output_tokens": 8}]).values.tolist() == [60]
    assert table.read([{"input_tokens": 512, "output_tokens": 4}]).values.tolist() == [16]
    assert table.given == {"ttft_p99_ms": 500, "response_p99_ms": 5000}


def test_several_gpus_of_aibrix_as_a_list_or_by_line(tmp_path: Path) -> None:
    second = {**AIBRIX, "gpu": "l20", "cost": 0.7}
    (tmp_path / "list.json").write_text(json.dumps([AIBRIX, second]))
    (tmp_path / "lines.jsonl").write_text(json.dumps(AIBRIX) + "\n" + json.dumps(second) + "\n")
    profile, _ = convert(tmp_path / "list.json")
    assert list(profile["machines"]) == ["sim-a100", "l20"]
    assert convert(tmp_path / "lines.jsonl")[0] == profile


def test_names_that_become_one_id_stay_apart() -> None:
    document = copy.deepcopy(MELANGE)
    document["gpu_info"] = {"A 10": MELANGE["gpu_info"]["A10G"], "a-10": MELANGE["gpu_info"]["A10G"]}
    profile, _ = convert_document(document)
    assert list(profile["machines"]) == ["a-10", "a-10-2"]


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda d: d.pop("gpu_info"), "$"),
        (lambda d: d.update(gpu_info={}), "$.gpu_info"),
        (lambda d: d["gpu_info"].update(A10G=3), "$.gpu_info.A10G"),
        (lambda d: d["gpu_info"]["A10G"].pop("cost"), "$.gpu_info.A10G.cost"),
        (lambda d: d["gpu_info"]["A10G"].update(cost=-1), "$.gpu_info.A10G.cost"),
        (lambda d: d["gpu_info"]["A10G"].update(tputs=[]), "$.gpu_info.A10G.tputs"),
        (lambda d: d["gpu_info"]["A10G"].update(tputs=[[1, 2], [3]]), "$.gpu_info.A10G.tputs"),
        (lambda d: d["gpu_info"]["A10G"].update(tputs=[[1, "x"], [3, 4]]), "$.gpu_info.A10G.tputs[0][1]"),
        (lambda d: d["gpu_info"]["A100-80GB"].update(tputs=[[1, 2]]), "$.gpu_info.A100-80GB.tputs"),
        (lambda d: d.update(workload_distribution=[[1.0]]), "$.workload_distribution"),
        (lambda d: d.update(workload_distribution=[[0, 0], [0, 0]]), "$.workload_distribution"),
        (lambda d: d.update(total_request_rate="fast"), "$.total_request_rate"),
        (lambda d: d.update(input_buckets=[25]), "$.input_buckets"),
        (lambda d: d.update(output_buckets=[25, 5]), "$.output_buckets"),
    ],
)
def test_what_cannot_be_read_is_reported(change: Any, path: str) -> None:
    document = copy.deepcopy(MELANGE)
    change(document)
    with pytest.raises(InputError) as caught:
        convert_document(document, file="m.json")
    (fault,) = caught.value.faults
    assert (fault.file, fault.path) == ("m.json", path)
    assert fault.why
    assert fault.remedy


@pytest.mark.parametrize("change", [{"indexes": None}, {"indexes": [[4, 8], [128]]}, {"gpu": 5}, {"tputs": "x"}])
def test_aibrix_that_cannot_be_read_is_reported(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        convert_document({**AIBRIX, **change})


def test_files_that_are_no_json(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    for name in ("a.json", "none.json"):
        with pytest.raises(InputError):
            convert(tmp_path / name)
