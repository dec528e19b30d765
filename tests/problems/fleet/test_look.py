"""A fleet soon: from where the last search ended, with the gap of the files now."""

import json
from pathlib import Path

import pytest

import hetplan as hp
from hetplan.api.memory import PlanMemory

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "fleet"
PLANNED = {"size": "planned", "levers": False}


@pytest.fixture(scope="module")
def files():
    """Two applications of the example over three hours: pools, and variants by a table."""
    profile, slo = (json.loads((EXAMPLE / f"{name}.json").read_text()) for name in ("profile", "slo"))
    slo["horizon"] = {"period_s": 3600, "periods": 3, "repeats": 240}
    slo["apps"].pop("assistant")
    slo["apps"]["ranking"]["demand"]["series"] = [110.0, 250.0, 110.0]
    slo["apps"]["photos"]["demand"]["series"] = [300.0, 300.0, 600.0]
    profile["zones"].pop("west")
    profile["offers"] = {
        name: one for name, one in profile["offers"].items() if not name.endswith(("west", "west-spot"))
    }
    return profile, slo


@pytest.mark.slow
def test_a_look_says_how_near_it_is_and_is_verified(files):
    profile, slo = files
    kept = PlanMemory()

    def planned(profile, slo, **options):
        found = hp.Planner(profile).plan(slo, options=PLANNED | options, tools=kept.tools)
        assert (found.exit_code, found.violations) == (0, ()), (found.reason, found.why)
        return found.plan.claims[0], found.plan

    first, _ = planned(profile, slo)
    again, plan = planned(profile, slo, look=True)
    assert again.bound == pytest.approx(first.bound, rel=1e-3)
    assert again.vouched == "claimed", "it is not proved before it is shown"
    assert str(hp.verify(plan, profile, slo).claims[0].word) == "proved again"
    asked = kept.asked
    for price in ("0.36", "0.95"):
        offers = profile["offers"] | {"t4-east": profile["offers"]["t4-east"] | {"price_per_hour": price}}
        other = profile | {"offers": offers}
        soon, plan = planned(other, slo, look=True)
        best, _ = planned(other, slo)
        assert soon.bound <= best.value + 1e-9, "old prices bound the new fleets too"
        assert soon.bound <= soon.value
        assert soon.bound > 0
    assert kept.known > (kept.asked - asked) / 2, "most parts are as they were"


@pytest.mark.slow
def test_looks_begin_where_a_search_ended_whatever_was_looked_at_meanwhile(files):
    profile, slo = files
    kept, bounds = PlanMemory(), []
    free = profile | {"offers": {name: one | {"price_per_hour": "0"} for name, one in profile["offers"].items()}}
    for there, look in ((profile, False), (profile, True), (free, True), (profile, True)):
        found = hp.Planner(there).plan(slo, options=PLANNED | {"look": look}, tools=kept.tools)
        bounds.append(found.plan.claims[0].bound)
    assert bounds[2] == 0
    assert bounds[3] == bounds[1] > 0


def test_a_look_without_a_search_before_it_is_a_search(files):
    found = hp.Planner(files[0]).plan(files[1], options=PLANNED | {"look": True})
    assert found.exit_code == 0
    assert found.plan.claims[0].gap < 0.05
