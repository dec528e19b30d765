"""Engines that make text: what is read, and every slip that is refused with its place and its remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hetplan as hp
from hetplan.errors import InputError
from hetplan.profiles.load import load_inputs
from hetplan.serving.tokens import law_of_engine
from tests.cases import texts


def test_a_profile_with_engines_is_read() -> None:
    inputs = load_inputs(texts.profile(), texts.slo())
    assert not inputs.warnings
    engine = inputs.profile.engines["m-big"]
    assert (engine.gpus, engine.role, engine.pieces[1].base_ms) == (1, "mixed", 8.0)


DENSE = {"form": "iteration/2", "base_ms": 8.0, "token_ms": 0.02, "tokens_from": 300}


def test_nine_numbers_are_a_law_as_pieces_are() -> None:
    profile = texts.profile()
    profile["engines"]["fast"] = {"law": {**DENSE, "error_mean": 0.1}, "kv_tokens": 200_000, "most_tokens": 4096}
    inputs = load_inputs(profile, texts.slo())
    assert not inputs.warnings
    engine = inputs.profile.engines["m-big"]
    assert (engine.error, engine.experts) == (0.1, (0.0, 0.0))
    law = law_of_engine(engine)
    assert [law.iteration_ms(n) for n in (100, 300, 500)] == [8.0, 8.0, pytest.approx(8.0 + 0.02 * 200)]


def engine_of(profile: dict[str, Any], **changed: Any) -> None:
    profile["engines"]["fast"].update(changed)


FAULTS: dict[str, tuple[Callable[[dict[str, Any], dict[str, Any]], object], str, str]] = {
    "falls": (
        lambda p, s: engine_of(p, pieces=[{"base_ms": 9, "token_ms": -0.1}]),
        "$.models.m.runs.big.law[0].token_ms",
        "never falls",
    ),
    "seconds": (
        lambda p, s: engine_of(p, pieces=[{"base_ms": 0.008, "token_ms": 2e-5}]),
        "$.models.m.runs.big.law",
        "Are these seconds",
    ),
    "empty piece": (
        lambda p, s: engine_of(p, pieces=[{}, {"base_ms": 9}]),
        "$.models.m.runs.big.law[0]",
        "says nothing",
    ),
    "a law that falls": (
        lambda p, s: engine_of(p, pieces=[], law={**DENSE, "experts_ms": -1, "experts_rate": 0.1}),
        "$.models.m.runs.big.law.experts_ms",
        "never falls",
    ),
    "a law in seconds": (
        lambda p, s: engine_of(p, pieces=[], law={**DENSE, "base_ms": 0.008, "token_ms": 2e-5}),
        "$.models.m.runs.big.law",
        "Are these seconds",
    ),
    "experts without a rate": (
        lambda p, s: engine_of(p, pieces=[], law={**DENSE, "experts_ms": 9}),
        "$.models.m.runs.big.law.experts_rate",
        "Write both",
    ),
    "role": (lambda p, s: engine_of(p, role="all"), "$.models.m.runs.big.role", "both"),
    "sequences": (lambda p, s: engine_of(p, most_seqs=5000), "$.models.m.runs.big.max_seqs", "takes a token"),
    "context": (
        lambda p, s: engine_of(p, context_tokens=300_000),
        "$.models.m.runs.big.context_tokens",
        "does not fit",
    ),
    "no source": (lambda p, s: engine_of(p, source="nobody"), "$.models.m.runs.big.source", "no source"),
    "no length": (
        lambda p, s: s["apps"]["chat"]["mix"].update(axes=["input_tokens", "batch"]),
        "$.apps.chat.mix",
        "how long its requests are",
    ),
    "nothing out": (
        lambda p, s: s["apps"]["chat"]["mix"].update(bins=[[200, 0], [1000, 120], [3000, 60]]),
        "$.apps.chat.mix.bins[0]",
        "at least one token",
    ),
    "too long": (
        lambda p, s: s["apps"]["chat"]["mix"].update(bins=[[200, 80], [1000, 120], [500_000, 60]]),
        "$.apps.chat.mix",
        "exceeds the context or the KV cache",
    ),
    "all cached": (
        lambda p, s: s["apps"]["chat"].update(
            mix={"axes": ["input_tokens", "output_tokens", "cached_tokens"], "bins": [[9, 9, 9]], "share": [1]}
        ),
        "$.apps.chat.mix.bins[0]",
        "the last token of a prompt",
    ),
    "gpus": (lambda p, s: engine_of(p, tensor=4), "$.models.m.runs.big.tensor", "takes 4 GPUs"),
    "only prefill": (
        lambda p, s: [one.update(role="prefill") for one in p["engines"].values()],
        "$.engines",
        "serve no request",
    ),
    "survive": (
        lambda p, s: s.update(limits={"survive": {"machines": 1}}),
        "$.limits.survive",
        "not planned for losses",
    ),
    "drop": (lambda p, s: s["apps"]["chat"].update(late="drop"), "$.apps.chat.late", "never dropped"),
    "weight": (lambda p, s: s["apps"]["chat"].update(weight=2), "$.apps.chat.weight", "nothing is weighed"),
    "deadline": (lambda p, s: s["apps"]["chat"].update(deadline_s=3), "$.apps.chat.deadline_s", "question compound"),
    "slack": (lambda p, s: s.update(change={"slack": 1.5}), "$.change.slack", "sized by simulation"),
    "period": (lambda p, s: s.update(horizon={"period_s": 60}), "$.horizon.period_s", "one period"),
    "quality": (
        lambda p, s: s["apps"]["chat"].update(quality={"min": 0.5}),
        "$.apps.chat.quality.min",
        "no variant of quality",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_bad_input_is_refused_with_its_place(name: str) -> None:
    spoil, path, why = FAULTS[name]
    profile, slo = texts.profile(), texts.slo()
    spoil(profile, slo)
    with pytest.raises(InputError) as caught:
        hp.solve(profile, slo, formulation="llm")
    faults = caught.value.faults
    assert [fault for fault in faults if fault.path == path and why in f"{fault.why} {fault.remedy}"], faults
    assert all(fault.remedy for fault in faults)


def test_unusual_numbers_are_warned_of() -> None:
    profile = texts.profile()
    engine_of(profile, pieces=[{"base_ms": 0.2}], fitted={"error": 5})
    warned = {at for code, at, _ in load_inputs(profile, texts.slo()).warnings if code == "W-unit"}
    assert {"models.m.runs.big.law", "models.m.runs.big.error_mean"} <= warned


def test_files_with_engines_ask_no_other_question_and_others_ask_no_fleet_of_text() -> None:
    from hetplan import registry

    inputs = load_inputs(texts.profile(), texts.slo())
    assert not registry.obstacles("llm", inputs)
    for name in ("pool", "variants", "policy", "pipeline", "compound"):
        assert any("by the law of an engine" in one.why for one in registry.obstacles(name, inputs)), name


def test_an_attainment_is_for_fleets_of_text_alone() -> None:
    profile = {
        "format": "hetplan/profile/1.0",
        "hardware": {"gpu": {"kind": "gpu"}},
        "offers": {"od": {"hardware": "gpu", "price_per_hour": "1"}},
        "tasks": {"rank": {}},
        "variants": {"m": {"task": "rank", "runs": [{"hardware": "gpu", "latency": "t"}]}},
        "tables": {"t": {"quantity": "latency_ms", "mean": 5}},
    }
    app = {"model": "m", "attainment": 0.9, "rate_qps": 9}
    with pytest.raises(InputError, match="attainment"):
        hp.solve(profile, {"format": "hetplan/slo/1.0", "apps": {"a": app}}, formulation="pool")
