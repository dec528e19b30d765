"""A plan soon: whole servers among the configurations that servers in parts use, with the gap to the bound of those."""

import json
from pathlib import Path

import pytest
from cases.pipelines import fluid

import hetplan as hp

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "pipeline"
STREET = (EXAMPLE / "profile.json", EXAMPLE / "slo.json")
SOCIAL = (EXAMPLE / "social-profile.json", EXAMPLE / "social-slo.json")
USED = {"among": "used"}


@pytest.mark.parametrize(("files", "best"), [(SOCIAL, 0.982146), (STREET, 0.982793)], ids=["social", "street"])
def test_what_it_misses_of_the_best_is_within_the_gap_that_it_says(files, best):
    found = fluid(*files, options=USED)
    assert (found.exit_code, found.violations) == (0, ()), found.reason
    claim = found.plan.claims[0]
    assert (claim.about, claim.scope, claim.vouched) == ("quality", "relaxation", "certified")
    assert claim.value <= best + 1e-6 <= claim.bound
    assert 0 < claim.gap < 0.01
    again = hp.verify(found.plan, *files)
    assert again.ok
    assert str(again.claims[0].word) == "proved again"


def test_a_wide_gap_is_said_whatever_was_asked_for():
    slo = json.loads(STREET[1].read_text())
    slo["apps"]["cameras"]["latency"][0]["max_ms"] = 260
    found = fluid(STREET[0], slo, limits=hp.Limits(gap=0.5, seconds=60))
    assert found.violations == ()
    assert found.plan.claims[0].gap > 0.05
    assert any(one.code == "W-gap" for one in found.plan.warnings)
