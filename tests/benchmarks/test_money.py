"""Money tables: the bound of a classifier is one for machines without slack, too."""

from __future__ import annotations

import pytest

from benchmarks import money
from hetplan.api.plans_by_rate import Recipes


@pytest.mark.slow
def test_a_bound_of_variants_leaves_out_the_slack_of_plans() -> None:
    """A card carries 133 queries a second: enough for 132, not for 132 with slack."""
    plan, inputs = money.case(132.0, "variants")
    value = plan.claims[0].value
    assert value is not None
    assert value > 0.7
    assert Recipes(plan, inputs).least_cost({"ranking": 132.0}) == pytest.approx(0.6)
