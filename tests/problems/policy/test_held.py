"""Models that do not fit a worker's memory together: those that are held are the best of the sets that fit."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from cases.policy import files

import hetplan as hp
from hetplan.errors import InputError

OPTIONS = {"sizing": "fluid", "queue_max": 6, "batching": "max"}
MODELS = {"a": (0.55, 3.0, 2.0), "b": (0.7, 6.0, 3.0), "c": (0.78, 9.0, 6.0), "d": (0.9, 18.0, 14.0)}


def crowded(memory: dict[str, float], room: float, models: dict[str, Any], **how: Any) -> tuple[Any, Any]:
    profile, slo = files(models=models, **how)
    profile["hardware"]["cpu"]["provides"] = {"mem_gib": room}
    for name, amount in memory.items():
        if name in models:
            profile["variants"][name]["runs"][0]["needs"] = {"mem_gib": amount}
    return profile, slo


def goodput(outcome: Any) -> float:
    assert outcome.reason == "verified", outcome.why
    return next(one.value for one in outcome.plan.claims if one.about.startswith("goodput"))


@pytest.mark.slow
@pytest.mark.parametrize("rate_qps", [60.0, 240.0])
def test_no_other_set_that_fits_does_better(rate_qps: float) -> None:
    memory = {"a": 3.0, "b": 4.0, "c": 5.0, "d": 6.0}
    outcome = hp.solve(*crowded(memory, 10.0, MODELS, rate_qps=rate_qps), options=OPTIONS)
    held = {load.variant for worker in outcome.plan.workers for load in worker.loads}
    each = {}
    for size in (1, 2, 3):
        for names in itertools.combinations(MODELS, size):
            if sum(memory[name] for name in names) <= 10.0:
                models = {name: MODELS[name] for name in names}
                each[names] = goodput(hp.solve(*crowded(memory, 10.0, models, rate_qps=rate_qps), options=OPTIONS))
    assert goodput(outcome) == pytest.approx(max(each.values()), rel=1e-6)
    assert sum(memory[name] for name in held) <= 10.0
    (said,) = [one.text for one in outcome.plan.warnings if one.code == "W-models-held"]
    assert "do not fit a worker of cpu together" in said
    # In this test one set is not as good as another.
    assert min(each.values()) < max(each.values()) - 0.01


def test_a_model_that_another_beats_is_held_where_that_one_does_not_fit() -> None:
    models = {"small": (0.6, 6.0, 2.0), "large": (0.8, 5.0, 2.0)}
    plan = hp.solve(*crowded({"small": 2.0, "large": 20.0}, 4.0, models), options=OPTIONS).require()
    assert [load.variant for load in plan.workers[0].loads] == ["small"]


def test_where_all_fit_all_are_held_and_nothing_is_said() -> None:
    plan = hp.solve(*crowded(dict.fromkeys(MODELS, 2.0), 8.0, MODELS), options=OPTIONS).require()
    assert len(plan.workers[0].loads) == len(MODELS)
    assert "W-models-held" not in {one.code for one in plan.warnings}


def test_where_none_fits_it_is_said_of_the_file() -> None:
    with pytest.raises(InputError, match="no model that it may run fits a worker of cpu"):
        hp.solve(*crowded(dict.fromkeys(MODELS, 9.0), 8.0, MODELS), options=OPTIONS)
