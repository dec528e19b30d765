"""Outputs that are too long to be played token by token are refused by name, before memory is asked for."""

import json
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError

TEXT = Path(__file__).parents[2] / "examples/llm"


@pytest.fixture(scope="module")
def plan() -> hp.Plan:
    return hp.solve(TEXT / "profile.json", TEXT / "slo.json", options={"sizing": "fluid"}, formulation="llm").require()


def wish(longest: float) -> dict[str, Any]:
    slo: dict[str, Any] = json.loads((TEXT / "slo.json").read_text())
    for app in slo["apps"].values():
        mix = app["mix"]
        mix["bins"][-1][mix["axes"].index("output_tokens")] = longest
    return slo


@pytest.mark.parametrize("longest", [1.5e11, 1e9, 1_100_000])
def test_an_output_without_end_is_refused(plan: hp.Plan, longest: float) -> None:
    with pytest.raises(InputError) as refused:
        hp.simulate(plan, TEXT / "profile.json", wish(longest), seeds=1, duration_s=1.0)
    (fault,) = refused.value.faults
    assert "output_tokens" in fault.remedy
    assert f"{longest:.6g} tokens" in str(fault.value)


def test_a_long_one_is_played(plan: hp.Plan) -> None:
    assert hp.simulate(plan, TEXT / "profile.json", wish(20_000), seeds=1, duration_s=1.0).events > 0
