"""Laws of cards that have none: as near to laws that are known as they say."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan.profiles.cards import cards
from hetplan.profiles.catalogue import Known, known_laws
from hetplan.profiles.engines import IterationLaw
from hetplan.profiles.estimated_laws import (
    DEFAULTS,
    SIBLING_ERROR,
    Way,
    grid_of,
    law_by_formula,
    law_of,
    law_of_sibling,
    reached,
)
from hetplan.profiles.language_models import models
from hetplan.profiles.law_review import iteration_ms

POINTS = grid_of(400_000)
ROUND = {"basis": "grid", "error_mean": 0.0}


def off(numbers: dict[str, float], known: Known) -> float:
    """The mean distance from a known law over many iterations."""
    start = int(numbers["tokens_from"])
    law = IterationLaw.model_validate({"form": "iteration/2", **numbers, "tokens_from": start})
    return float(np.mean([abs(iteration_ms(law, *at) / iteration_ms(known.law, *at) - 1.0) for at in POINTS]))


def way_of(known: Known) -> Way:
    of = known.identity
    return Way(of["model"], of["precision"], of["gpu"], int(of["gpus"]), of["parallel"], of["engine"])


@pytest.mark.slow
def test_a_sibling_is_as_near_as_it_says() -> None:
    errors: dict[str, list[float]] = {}
    for known in known_laws(("grid", "vllm")):
        found = law_of_sibling(way_of(known), models()[known.identity["model"]])
        if found is not None:
            errors.setdefault(cards()[known.identity["gpu"]].generation, []).append(off(found[0], known))
    assert set(errors) == {"hopper", "blackwell"}
    assert np.mean(errors["hopper"]) < 0.08
    assert max(errors["hopper"]) < 0.25
    assert np.mean(errors["blackwell"]) < SIBLING_ERROR


@pytest.mark.parametrize(("gpu", "precision"), [("h100", "bf16"), ("h200", "bf16"), ("b200", "bf16"), ("b200", "fp8")])
def test_what_an_engine_reaches_of_a_card_says_the_times_of_its_models(gpu: str, precision: str) -> None:
    used, error = reached()[gpu, "vllm", precision]
    found = known_laws(("grid",), gpu=gpu, engine="vllm", precision=precision)
    known = [one for one in found if one.identity["parallel"] != "dp+ep"]
    far = {}
    for way, numbers in (("fitted", used), ("usual", DEFAULTS)):
        laws = [
            (law_by_formula(models()[a["model"]], precision, cards()[gpu], int(a["gpus"]), numbers), one)
            for one in known
            for a in (one.identity,)
        ]
        far[way] = float(np.mean([off(law, one) for law, one in laws]))
    assert far["fitted"] <= error + 0.01
    assert far["fitted"] < far["usual"]


def test_the_best_law_is_taken_and_says_so() -> None:
    ways = {
        "measured": Way("gpt-oss-120b", "fp4", "h100", 2, "tp", "vllm"),
        "grid": Way("llama-3.1-8b", "bf16", "h100", 1, "tp", "vllm"),
        "sibling": Way("qwen3-235b-a22b", "fp8", "h200", 4, "ep", "vllm"),
        "efficiencies": Way("deepseek-v3", "fp8", "b200", 8, "tp", "vllm"),
        "datasheet": Way("llama-3.1-8b", "bf16", "mi300x", 1, "tp", "vllm"),
    }
    errors = []
    for basis, way in ways.items():
        law = law_of(way)
        assert law is not None
        assert law["basis"] == basis
        errors.append(law["error_mean"])
    assert errors[:3] == sorted(errors[:3])
    assert law_of(Way("mixtral-8x7b", "bf16", "mi300x", 8, "dp+ep", "vllm")) is None, "sizes do not say it"


def test_twice_the_cards_take_less_and_a_slower_card_takes_longer() -> None:
    model = models()["llama-3.1-70b"]
    one, two = (law_by_formula(model, "bf16", cards()["h200"], gpus) for gpus in (1, 2))
    assert two["token_ms"] < one["token_ms"]
    assert two["kv_token_ms"] == pytest.approx(one["kv_token_ms"] / 2)
    slow = law_by_formula(model, "bf16", cards()["a100"], 2)
    assert all(slow[name] >= two[name] for name in ("base_ms", "token_ms", "kv_token_ms", "pair_ms"))
