"""Measurements are read whole or refused by the place that is wrong, whoever reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.profiles import load_inputs

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "compound"
MEASURED = json.loads((FOLDER / "measured.json").read_text())
RUNS: dict[str, Any] = {
    key: {step: [1.0, 2.0] for step in ("sample", "detect", "track")} for key in ("seconds", "bytes")
} | {"input_bytes": [1, 2]}


def read(document: Any) -> None:
    load_inputs(FOLDER / "profile.json", FOLDER / "slo.json", measured=document)


def test_what_is_whole_is_read() -> None:
    read(MEASURED)
    entry = MEASURED["apps"]["gate"][0]
    read(MEASURED | {"apps": {"gate": [entry | {"runs": RUNS}, {"knobs": {}, "verdict": "set-aside"}]}})


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        ({"knobs": 3}, ""),
        ({"mean": "high"}, ".mean"),
        ({"mean": float("nan")}, ".mean"),
        ({"input_bytes": -1}, ".input_bytes"),
        ({"seconds": {"sample": 0.1}}, ".seconds"),
        ({"seconds": None}, ".seconds"),
        ({"bytes": 7}, ".bytes"),
        ({"bytes": {"sample": 1, "detect": -1, "track": 1}}, ".bytes"),
        ({"runs": []}, ".runs.input_bytes"),
        ({"runs": RUNS | {"input_bytes": []}}, ".runs.input_bytes"),
        ({"runs": RUNS | {"seconds": {"sample": [1.0, 2.0]}}}, ".runs.seconds"),
        ({"runs": RUNS | {"bytes": RUNS["bytes"] | {"track": [1.0, None]}}}, ".runs.bytes"),
        ({"runs": RUNS | {"rounds": {"sample": [1, 1]}}}, ".runs.rounds"),
    ],
)
def test_what_is_not_is_refused_by_its_place(changed: dict[str, Any], path: str) -> None:
    entries = [MEASURED["apps"]["gate"][0], MEASURED["apps"]["gate"][1] | changed]
    with pytest.raises(InputError) as caught:
        read(MEASURED | {"apps": {"gate": entries}})
    assert [fault.path for fault in caught.value.faults] == [f"$.apps.gate[1]{path}"]


@pytest.mark.parametrize("apps", [[], {"gate": {}}, {"gate": 3}])
def test_applications_hold_lists(apps: Any) -> None:
    with pytest.raises(InputError, match=r"\$\.apps"):
        read(MEASURED | {"apps": apps})
