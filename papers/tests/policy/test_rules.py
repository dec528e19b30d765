"""Rules that policies are compared with: which model they take, with which queue, and that none is better."""

from __future__ import annotations

from typing import Any

import pytest
from cases.policy import files

import hetplan as hp

SMALL: dict[str, Any] = {"queue_max": 8, "grid": "fld{20}", "queries": 20_000, "seeds": 2}


def solve(profile: Any, slo: Any, *, formulation: str | None = None, **options: Any) -> hp.Outcome:
    return hp.solve(
        profile, slo, options={**SMALL, **options}, formulation=f"policy/{formulation}" if formulation else "policy"
    )


def planned(profile: Any, slo: Any, **how: Any) -> hp.Plan:
    outcome = solve(profile, slo, **how)
    assert outcome.exit_code == 0, (outcome.why, outcome.reason, outcome.violations)
    return outcome.require()


@pytest.mark.slow
def test_baselines_and_what_they_lose() -> None:
    """Greedy and single serve the same queues, so the best policy is no worse; the others say their discipline."""
    pair = files(rate_qps=150.0)
    best = planned(*pair).policies["a"][0].simulated
    assert best is not None
    for formulation in ("greedy-policy", "single", "jellyfish", "modelswitching"):
        plan = planned(*pair, formulation=formulation)
        (table,) = plan.policies["a"]
        assert table.simulated is not None
        assert table.simulated["goodput"] <= best["goodput"] + 3e-3
        shared = formulation in ("jellyfish", "modelswitching")
        assert plan.dispatch["a"].balancing == ("shared_fifo" if shared else "round_robin")  # type: ignore[union-attr]
        assert plan.claims[0].bound is None
        assert plan.status == "heuristic"


def test_jellyfish_takes_half_the_slo_and_enough_throughput() -> None:
    """All models take at most half of 100 ms alone; the load decides which of them carry it in batches within that."""
    (light,) = planned(*files(rate_qps=60.0), formulation="jellyfish").policies["a"]
    assert set(light.choice.values()) == {"slowx21"}
    (heavy,) = planned(*files(rate_qps=600.0), formulation="jellyfish").policies["a"]
    assert set(heavy.choice.values()) == {"middlex21"}
    (beyond,) = planned(*files(rate_qps=5000.0), formulation="jellyfish").policies["a"]
    assert set(beyond.choice.values()) == {"fastx21"}


def test_modelswitching_needs_a_simulator() -> None:
    with pytest.raises(hp.InputError, match="simulated response times"):
        solve(*files(), formulation="modelswitching", sizing="fluid")


def test_a_single_model_by_name() -> None:
    (table,) = planned(*files(), formulation="single", model="middle").policies["a"]
    assert table.models == ("middle",)
    with pytest.raises(hp.InputError, match="none of the models"):
        solve(*files(), formulation="single", model="other")
