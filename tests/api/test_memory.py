"""Plans of parts are kept: of the same files with the same options only, and never of what runs or was measured."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hetplan.api.memory import PlanMemory
from hetplan.profiles.fleet_fields import Zone
from hetplan.profiles.load import load_inputs

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pool"
PLANNED = {"options": {"size": "planned"}}


def inputs(budget="3", price="0.6"):
    """The pool of the README."""
    profile, slo = (json.loads((EXAMPLE / f"{name}.json").read_text()) for name in ("profile", "slo"))
    slo["limits"]["cost_per_hour"] = budget
    profile["offers"]["t4-ondemand"]["price_per_hour"] = price
    return load_inputs(profile, slo)


def test_the_same_is_asked_once_and_another_wish_or_price_again():
    kept = PlanMemory()
    first = kept.plan_for(inputs(), **PLANNED)
    assert kept.plan_for(inputs(), **PLANNED) is first
    for other in (inputs(budget="4"), inputs(price="0.7")):
        assert kept.plan_for(other, **PLANNED).plan.claims[0].value != first.plan.claims[0].value
    assert (kept.asked, kept.known) == (4, 1)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("section", ["tables", "hardware", "zones"])
def test_a_profile_with_another_section_is_another_though_they_share_the_rest(section):
    kept, files = PlanMemory(), inputs()
    first = kept.plan_for(files, **PLANNED)
    profile = files.profile
    changed = {
        "tables": {name: one.model_copy(update={"mean": [2 * n for n in one.mean]})
                   for name, one in profile.tables.items()},
        "hardware": {name: one.model_copy(update={"startup_s": 1e3}) for name, one in profile.hardware.items()},
        "zones": {"east": Zone(quota={"machines": 1})},
    }  # fmt: skip
    other = replace(files, profile=profile.model_copy(update={section: changed[section]}))
    assert kept.plan_for(other, **PLANNED) is not first
    assert kept.plan_for(files, **PLANNED) is first


def test_what_was_recorded_is_not_kept_and_few_are():
    kept = PlanMemory(most=1)
    kept.plan_for(replace(inputs(), traces={"ranking": [0.0, 1.0]}), **PLANNED)
    assert kept.asked == 0
    first = kept.plan_for(inputs(), **PLANNED)
    kept.plan_for(inputs(budget="4"), **PLANNED)
    assert kept.plan_for(inputs(), **PLANNED) is not first
