"""Mixtures of experts: bounds that stay bounds though decode is concave in the batch, and plans that hold."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import hetplan as hp
from hetplan.planner.contract import Tools
from hetplan.problems.llm.balancing import Steering, fleet_of
from hetplan.problems.llm.options import LlmOptions
from hetplan.problems.llm.program import Rows, program
from hetplan.problems.llm.request import TextRequest, read_text_request
from hetplan.problems.llm.sizing import judge_of
from hetplan.profiles.load import load_inputs
from hetplan.serving.tokens import law_of_engine
from hetplan.simulator.tokens import draw, play
from hetplan.studies.axes import factor
from tests.cases import texts

LAW = {"form": "iteration/2", "base_ms": 8.0, "experts_ms": 35.0, "experts_rate": 0.03, "sequence_ms": 0.09}
STEPS = 1000
PLENTY = 100_000_000


def decoding(law: dict[str, Any], tpot_ms: float, percentile: float, *, prompt: int = 1) -> TextRequest:
    """Requests of a thousand tokens each, of which nothing but decoding costs."""
    profile, slo = texts.experts(law, PLENTY), texts.slo(1.0, tpot_ms=tpot_ms, ttft_ms=1e6)
    profile["engines"]["moe"] |= {"most_tokens": 100_000}
    chat = slo["apps"]["chat"]
    chat["latency"] = {"ttft_p95_ms": 1e6, f"tpot_p{percentile:.12g}_ms": tpot_ms}
    chat["mix"].update(bins=[[prompt, STEPS + 1]], share=[1])
    return read_text_request(load_inputs(profile, slo), LlmOptions())


def machines_per_thousand(wish: TextRequest) -> float:
    """By the rows, for a thousand decoded tokens per second."""
    rows = Rows.of(program(wish, mean_tpot=False, allow_late=1.0))
    return STEPS / 1000.0 / rows.capacity_of([1]).rate_qps


@pytest.mark.parametrize(
    ("percentile", "wanted"), [(100.0 - 1e-7, (2.236, 1.307, 0.785)), (95.0, (2.137, 1.255, 0.759))], ids=["all", "95"]
)
def test_the_bound_is_what_tokens_weighted_by_time_allow(percentile: float, wanted: tuple[float, ...]) -> None:
    found = [machines_per_thousand(decoding(LAW, tpot, percentile)) for tpot in (15.0, 25.0, 40.0)]
    assert found == pytest.approx(wanted, abs=6e-4)


@pytest.mark.slow
def test_the_bound_is_never_above_the_best_single_batch() -> None:
    random, nearest = np.random.default_rng(3), []
    while len(nearest) < 200:
        base, experts, per_sequence = random.uniform(1, 20), random.uniform(1, 60), random.uniform(0, 0.3)
        rate, per_token, prompt = (
            10 ** random.uniform(-2.5, -0.8),
            10 ** random.uniform(-6, -4),
            int(random.integers(1, 4000)),
        )
        from_tokens = int(random.choice([0, 40]))
        law = {
            "form": "iteration/2", "base_ms": base, "experts_ms": experts, "experts_rate": rate, "token_ms": 0.01,
            "tokens_from": from_tokens, "sequence_ms": per_sequence, "kv_token_ms": per_token,
        }  # fmt: skip
        s = np.arange(1, 257)
        # Whatever is read on the mean of an answer, and what is computed of its prompt, in iterations of decodes.
        ms = base + experts * (1 - np.exp(-rate * s)) + per_sequence * s + per_token * (prompt + STEPS / 2 + 1) * s
        ms += 0.01 * np.maximum(s * (1 + prompt / STEPS) - from_tokens, 0.0)
        tpot = float(random.uniform(ms[0], 1.1 * ms[-1]))
        best = float((ms / s)[ms <= tpot].min())
        found = machines_per_thousand(decoding(law, tpot, 100.0 - 1e-7, prompt=prompt))
        assert found <= best * (1 + 1e-9), law
        nearest.append(found / best)
    assert np.median(nearest) > 0.9, "a bound that says something"


@pytest.mark.slow
@pytest.mark.parametrize("tpot_ms", [9.0, 14.0])
def test_the_bound_is_never_above_the_cheapest_of_all_counts(tpot_ms: float) -> None:
    profile = texts.experts(texts.QWEN, 60_000)
    small = {**texts.QWEN, "base_ms": 5.0, "experts_ms": 16.0, "kv_token_ms": 5e-5, "token_ms": 0.03}
    profile["hardware"]["small"], profile["offers"]["small"] = (
        {"kind": "gpu"},
        {"hardware": "small", "price_per_hour": "1.5"},
    )
    profile["engines"]["little"] = {"law": small, "kv_tokens": 30_000, "most_tokens": 2048}
    profile["variants"]["m"]["runs"].append({"hardware": "small", "engine": "little"})
    slo = {**texts.slo(15.0, tpot_ms=tpot_ms, ttft_ms=700.0), "robust": {"law": False}}
    outcome = hp.solve(profile, slo, options={"queries": 1000})
    assert outcome.plan is not None, outcome.why
    wish = read_text_request(load_inputs(profile, slo), LlmOptions(queries=1000))
    judge = judge_of(wish, Tools(extra={"play_tokens": play, "draw_tokens": draw}), 0)
    kept = [
        4.0 * big + 1.5 * little
        for big, little in itertools.product(range(5), range(9))
        if big + little
        for chunk, theta in itertools.product((256, 512, 2048), (1.0, 0.5))
        if judge.excess(
            judge.play_once(
                fleet_of(wish, (big, little), [law.limited(chunk, 256) for law in wish.laws], Steering(theta)), seed=0
            )
        )
        <= 1.0
    ]
    assert kept
    assert outcome.plan.claims[0].bound <= min(kept) + 1e-9


@pytest.mark.parametrize(
    ("law", "kv_tokens", "gpus", "limits"),
    [(texts.QWEN, 717_995, 1, (500.0, 25.0)), (texts.DEEPSEEK, 1_033_422, 8, (1500.0, 60.0))],
    ids=["qwen3-30b", "deepseek-v3"],
)
def test_a_plan_for_a_mixture_of_experts_holds(
    law: dict[str, Any], kv_tokens: int, gpus: int, limits: tuple[float, float]
) -> None:
    profile, slo = texts.experts(law, kv_tokens, gpus), texts.slo(20.0, ttft_ms=limits[0], tpot_ms=limits[1])
    outcome = hp.solve(profile, slo, options={"queries": 1500})
    assert outcome.reason == "verified", outcome.why
    plan = outcome.plan
    assert plan is not None
    report = hp.verify(plan, profile, slo)
    assert report.ok, report.violations
    played = hp.simulate(plan, profile, slo, seeds=3, seed=901)
    assert played.ok
    for of, limit in zip(("ttft", "tpot"), limits, strict=True):
        assert played.apps["chat"].figures[f"{of} p95 ms"].value <= limit
    said = next(one.text for one in plan.warnings if one.code == "W-law")
    assert "grid, aiconfigurator 0.12.0; mean error 0.12: planned with a law slower by that" in said


@pytest.mark.slow
def test_room_for_the_error_of_a_law_can_be_left_out() -> None:
    profile, slo = texts.experts({**texts.QWEN, "error_mean": 0.4}, 717_995), texts.slo(60.0, tpot_ms=14.0)
    plans = [
        hp.solve(profile, {**slo, "robust": {"law": law}}, options={"queries": 1500}).plan for law in (True, False)
    ]
    sized, bare = (plan.workers[0].count for plan in plans if plan is not None)
    assert sized > bare
    said = next(one.text for one in plans[1].warnings if one.code == "W-law")  # type: ignore[union-attr]
    assert "not planned for, as robust.law states" in said
    assert "slower" not in str(plans[1].promises[1].basis)  # type: ignore[union-attr]


@pytest.mark.parametrize("robust", [True, False])
def test_a_planned_fleet_is_believed_by_the_verifier_and_one_machine_less_is_not(robust: bool) -> None:
    """Large enough for whole machines not to matter."""
    profile = texts.experts({**texts.QWEN, "error_mean": 0.2}, 717_995)
    slo = {**texts.slo(2000.0, tpot_ms=1000.0), "robust": {"law": robust}}
    outcome = hp.solve(profile, slo, options={"sizing": "fluid"})
    assert outcome.plan is not None
    assert hp.verify(outcome.plan, profile, slo).ok
    count = outcome.plan.workers[0].count
    less = outcome.plan.workers[0].model_copy(update={"count": count - 1})
    found = hp.verify(outcome.plan.model_copy(update={"workers": (less,)}), profile, slo)
    assert "capacity" in {one.code for one in found.violations}


def test_what_if_times_were_longer_slows_every_part_of_a_law() -> None:
    documents = {"profile": texts.experts(texts.QWEN, 60_000), "slo": texts.slo()}
    slow = load_inputs(*factor(documents, "latency", 1.5).values())
    both = load_inputs(*documents.values()), slow
    law, other = (law_of_engine(next(iter(one.profile.engines.values()))) for one in both)
    for what in ((1, 2000, 1, 0), (700, 0, 0, 250_000)):
        assert other.iteration_ms(*what) == pytest.approx(1.5 * law.iteration_ms(*what))
