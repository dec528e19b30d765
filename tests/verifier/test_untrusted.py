"""Whatever is in a plan file of whichever question: it does not read, or its check ends with a report."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from build import tiny
from cases.documents import spoil
from cases.pipelines import diamond, random_pipeline
from cases.policy import files
from cases.variants import LOAD_S, table2
from face import forged, solve, verify

import hetplan as hp
from hetplan import registry
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import plan_dict
from hetplan.verifier.check import Report, verify_plan


def candidates() -> tuple[Any, Any]:
    profile = {
        "format": "hetplan/profile/1.0",
        "tiers": ["cloud"],
        "hardware": {"a100": {"kind": "gpu", "tier": "cloud"}},
        "offers": {"a100": {"hardware": "a100", "price_per_hour": "3"}},
    }
    apps = {
        "p": {"candidates": [{"demand": {"cloud": 0.6, "net": 1}, "price_per_hour": "1"}]},
        "q": {"candidates": [{"demand": {"cloud": 0.6}}, {"demand": {"net": 1}}]},
    }
    limits = {"instances": {"a100": [0, 1]}, "capacity": {"net": 2}}
    return profile, {"format": "hetplan/slo/1.0", "limits": limits, "apps": apps}


def growing() -> tuple[Any, Any, Any]:
    return table2(90.0, 300.0, slack=1.0, weight_per_s=0.1, load_s=LOAD_S, running={"a": 3})


WISHES: dict[str, tuple[Callable[[], tuple[Any, ...]], dict[str, Any]]] = {
    "compound": (candidates, {}),
    "joins": (lambda: diamond(100, 100), {}),
    "tree": (lambda: random_pipeline(8), {}),
    "policy": (lambda: files(workers=(2, 2)), {"queue_max": 3, "grid": "fld{4}", "sizing": "fluid"}),
    "variants": (growing, {}),
}
OTHERS = (None, 0, 1, -1, 1e300, "w1", "x", "t0", [], {})
TRIED = 150


def _leaves(value: object, path: str) -> list[str]:
    if isinstance(value, dict):
        # Keys of a plan may hold the mark that edits are written with.
        return [leaf for key, one in value.items() if "/" not in key for leaf in _leaves(one, f"{path}/{key}")]
    if isinstance(value, list):
        return [leaf for number, one in enumerate(value) for leaf in _leaves(one, f"{path}/{number}")]
    return [path]


@pytest.mark.slow
@pytest.mark.parametrize("name", WISHES)
def test_a_plan_is_untrusted(name: str) -> None:
    documents, options = WISHES[name]
    profile, slo, *state = documents()
    running = state[0] if state else None
    outcome = hp.solve(profile, slo, running, options=options)
    plan, inputs = outcome.require(), load_inputs(profile, slo, state=running)
    check = registry.check_of(plan.question)
    case = {"plan": plan_dict(plan)}
    assert verify_plan(Plan.model_validate(case["plan"]), inputs, check).ok
    chance = np.random.default_rng(0)
    leaves = _leaves(case["plan"], "plan")
    read_anyway = 0
    for number in chance.permutation(len(leaves))[:TRIED]:
        other = copy.deepcopy(OTHERS[chance.integers(len(OTHERS))])
        spoilt = spoil(case, {leaves[number]: other})["plan"]
        try:
            plan = Plan.model_validate(spoilt)
        except ValueError:
            continue
        read_anyway += 1
        assert isinstance(verify_plan(plan, inputs, check), Report), leaves[number]
    assert read_anyway >= 5


def test_a_part_of_a_fleet_that_promises_less_than_nothing_is_refused() -> None:
    """It ended in a fault of pydantic."""
    wish = tiny("fleet")
    plan = solve(wish, "fluid").plan
    assert plan is not None

    def change(document: dict[str, Any]) -> None:
        promises = next(iter(document["parts"].values()))["promises"]
        next(one for one in promises if one["quantity"] == "rate_qps")["value"] = -1.0

    assert not verify(forged(plan, change), wish, simulate=False).is_ok
