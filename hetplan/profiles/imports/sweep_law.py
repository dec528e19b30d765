"""The law of an engine from runs of a benchmark, by one least squares on their time per token.

A tool sees requests, not iterations. By Little's law s = rate x (answer - 1) x TPOT sequences decode at a time; while
one token is made, rate x TPOT prompts are prefilled. So, with i tokens in and o out,

    TPOT = base + experts (1 - exp(-rate s)) + sequence s + kv_token s (i + o/2) + rate TPOT (token i + pair i^2/2)

which is linear but for the rate at which experts are touched; that is looked for on a grid. Runs one after the other
say, less surely, what a prefill takes: their TTFT is an iteration with the prompt in it, and what a request waits
before it. The time between tokens (its median) is an iteration that only decodes, unless a stream comes in pieces.
Prices are no lower than the card's peaks allow: without that, KV's time goes to prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.profiles.cards import card_of_text
from hetplan.profiles.catalogue import REALITY, REQUEST_MS
from hetplan.profiles.engine_law import FittedNumbers, with_experts
from hetplan.profiles.imports.runs import Run
from hetplan.profiles.imports.words import digits, refuse
from hetplan.profiles.language_models import LanguageModel, model_of_text, models, precision_of_text

__all__ = ["fit_runs", "fit_sweep", "least_prices"]

Floats = NDArray[np.float64]
MODELLED = "aiconfigurator or aisimulate"
ALONE = 1.1
"""At most so many requests at a time: they came one after the other."""
UNSEEN_ERROR = 0.065
"""How far a law from a sweep is from lengths that the sweep did not have, on the mean of 59 sweeps."""
_LARGEST_ERROR = 0.25
"""Above this mean error a fit is no law, and is refused."""
_FIRST_WEIGHT = 0.1
"""What a time to the first token counts beside a time per token: it holds more than an iteration."""
_IN_PIECES, _FEW_PROMPTS = 2.0, 0.5
"""Streams come in pieces from so many times the time per token between them; else, with so few prompts in an iteration,
the median between tokens is one that only decodes."""
_FEW_LOADS, _LENGTHS = 4, 2
_NAMES = ("base_ms", "experts_ms", "sequence_ms", "kv_token_ms", "token_ms", "pair_ms", "request_ms")


def fit_sweep(runs: Sequence[Run], file: str) -> tuple[dict[str, Any], dict[str, int]]:
    """What an engine of a profile has of these runs, and the largest that they saw; refused where they say too little.

    Of several versions of an engine make several imports: their laws differ.
    """
    who = f"{runs[0].model} on {runs[0].hardware}"
    used = [run for run in runs if not run.burst and run.time("tpot", "mean", "p50") and run.output_tokens >= 2.0]
    if not used:
        why = f"no run of {who} has a time per token: nothing streamed, or all requests came at once"
        refuse(file, runs[0].place, len(runs), why, "Add runs that stream, at a rate or at a concurrency.")
    lengths = _lengths(used)
    loads = {(round(run.input_tokens), round(_at_once(run), 1)) for run in used}
    if len(used) < 2 or (lengths < _LENGTHS and len(loads) < _FEW_LOADS):
        why = f"{len(loads)} loads and {lengths} lengths of prompt of {who}: too few to tell what takes the time"
        remedy = f"Add runs, of {_LENGTHS} lengths or of {_FEW_LOADS} loads; or keep the runs as rates: --as rates."
        refuse(file, used[0].place, len(used), why, remedy)
    known, card = model_of_text(runs[0].model), card_of_text(runs[0].hardware)
    model, precision = models()[known] if known else None, precision_of_text(runs[0].model) or "bf16"
    least = least_prices(model, precision, card[0], runs[0].gpus) if model is not None and card is not None else {}
    found = fit_runs(used, least=least, experts=bool(model.experts) if model is not None else None)
    if found.error > _LARGEST_ERROR:
        why = f"no law fits {who}: off by over a quarter on the mean"
        remedy = "Look for runs that broke down, reused prompts, or are of several versions."
        refuse(file, used[0].place, digits(found.error), why, remedy)
    seen = {
        "tokens": math.ceil(max(run.input_tokens for run in used)),
        "kv_tokens": math.ceil(max(_at_once(run) * (run.input_tokens + run.output_tokens) for run in used)),
        "sequences": math.ceil(max(_decoding(run) for run in used)),
    }
    waits = _waits(used, found.numbers)
    # What a tool worked out from kernels was measured on no engine.
    modelled = used[0].tool == MODELLED
    basis, error = "grid" if modelled else "measured", UNSEEN_ERROR
    error += REALITY.get(used[0].engine, max(REALITY.values())) if modelled else 0.0
    law = {
        **found.document,
        "basis": basis,
        "error_mean": round(max(error, found.error), 4),
        "range": seen,
        "source": f"{len(used)} runs, {used[0].tool}",
    }
    return {"law": law, **({"request_ms": digits(waits, 4)} if waits else {}), "precision": precision}, seen


def _waits(runs: Sequence[Run], numbers: dict[str, float]) -> float:
    """What a request waits before its first iteration: what runs one after the other show, else the usual of vLLM."""
    left = [
        (run.time("ttft", "mean", "p50") or 0.0) - numbers["base_ms"] - numbers["token_ms"] * i
        - numbers["pair_ms"] * i * i / 2.0 + numbers["experts_ms"] * math.expm1(-numbers["experts_rate"] * i)
        for run in runs
        for i in (run.input_tokens,)
        if _at_once(run) <= ALONE and run.time("ttft", "mean", "p50")
    ]  # fmt: skip
    if left:
        return max(float(np.median(left)), 0.0)
    return REQUEST_MS["vllm"] if runs[0].engine in ("", "vllm") else 0.0


def fit_runs(runs: Sequence[Run], *, least: dict[str, float], experts: bool | None = None) -> FittedNumbers:
    """The law that is nearest to the times per token of some runs; prices are no lower than `least`."""
    return with_experts(lambda rate: _fit(runs, least, rate), experts)


def _fit(runs: Sequence[Run], least: dict[str, float], rate: float) -> FittedNumbers:
    from scipy.optimize import nnls

    rows, weights, firsts = list[Floats](), list[float](), 0
    alone = [run for run in runs if _at_once(run) <= ALONE and run.time("ttft", "mean", "p50")]
    waits = _lengths(alone) >= _LENGTHS
    for run in runs:
        rows.append(_row(run, rate, _tpot(run), prompts=_at_once(run) > ALONE))
        weights.append(1.0)
    firsts = len(rows)
    for run in runs:
        gap, share = run.time("itl", "p50"), run.rate_qps * _tpot(run) / 1000.0
        if gap and share < _FEW_PROMPTS and gap < _IN_PIECES * (run.time("tpot", "p50", "mean") or 0.0):
            rows.append(_row(run, rate, gap, prompts=False))
            weights.append(1.0)
    for run in alone:
        first, i = run.time("ttft", "mean", "p50") or 0.0, run.input_tokens
        experts = -math.expm1(-rate * i)
        row = np.array([1.0, experts, 0.0, 0.0, i, i * i / 2.0, 1.0 if waits else 0.0])
        rows.append(row / first)
        weights.append(_FIRST_WEIGHT)
    matrix, weight = np.stack(rows), np.array(weights)
    floor = np.array([least.get(name, 0.0) for name in _NAMES])
    # Of one length nothing tells KV from sequences, of two nothing tells pairs from tokens: they stay at the least.
    lengths = _lengths(runs)
    apart = max(_lengths(alone), _lengths([run for run in runs if _at_once(run) > ALONE]))
    told = np.ones(len(_NAMES))
    told[[_NAMES.index("kv_token_ms")] if lengths < _LENGTHS else []] = 0.0
    told[[_NAMES.index("pair_ms")] if apart <= _LENGTHS else []] = 0.0
    whole, matrix = matrix, matrix * told
    scale = np.maximum(matrix.max(axis=0), 1e-300)
    above, _ = nnls(matrix / scale * weight[:, None], (1.0 - whole @ floor) * weight)
    found = floor + above / scale * told
    numbers: dict[str, float] = dict(zip(_NAMES, found.tolist(), strict=True))
    del numbers["request_ms"]
    numbers["experts_rate"] = rate if numbers["experts_ms"] else 0.0
    return FittedNumbers(numbers, (whole @ found - 1.0)[:firsts])


def _lengths(runs: Sequence[Run]) -> int:
    """How many lengths of prompt some runs have."""
    return len({round(run.input_tokens / 10.0) for run in runs})


def _row(run: Run, rate: float, ms: float, *, prompts: bool) -> Floats:
    """What a time per token is made of, in parts of it."""
    s, i, o = _decoding(run), run.input_tokens, run.output_tokens
    at = run.rate_qps * _tpot(run) / 1000.0 if prompts else 0.0
    return np.array([1.0, -math.expm1(-rate * s), s, s * (i + o / 2.0), at * i, at * i * i / 2.0, 0.0]) / ms


def _tpot(run: Run) -> float:
    return run.time("tpot", "mean", "p50") or 0.0


def _decoding(run: Run) -> float:
    """Sequences that a token is made beside, itself among them, by Little's law.

    Where requests come by chance, each meets what is there on the mean; a closed loop has so many in all.
    """
    there = run.rate_qps * (run.output_tokens - 1.0) * _tpot(run) / 1000.0
    return there + 1.0 if run.offered_qps is not None and run.concurrency is None else max(there, 1.0)


def _at_once(run: Run) -> float:
    """Requests at a time: as stated, else by Little's law."""
    if run.concurrency is not None:
        return run.concurrency
    first = run.time("ttft", "mean", "p50") or 0.0
    return run.rate_qps * (first + (run.output_tokens - 1.0) * _tpot(run)) / 1000.0


def least_prices(model: LanguageModel, precision: str, card: Any, gpus: int) -> dict[str, float]:
    """What no card goes below: KV read at its peak bandwidth, active weights multiplied at its peak rate."""
    flops = card.flops.get(precision) or card.flops["bf16"]
    # KV may have 8 bits where weights have no more: reports say nothing of it.
    read = model.kv_bytes_per_token / model.kv_ranks(gpus) * (0.5 if model.window else 1.0)
    read *= 1.0 if precision == "bf16" else 0.5
    return {
        "kv_token_ms": 1e3 * read / card.bytes_per_s,
        "token_ms": 1e3 * 2.0 * (model.active - model.head) / (gpus * flops),
    }
