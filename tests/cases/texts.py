"""Small wishes for fleets that make text."""

from __future__ import annotations

import copy
from typing import Any

from tests.build import answered

FAST = [{"base_ms": 2.0, "token_ms": 0.02, "pair_ms": 1e-6}, {"base_ms": 8.0, "kv_token_ms": 5e-5}]
SLOW = [{"base_ms": 2.0, "token_ms": 0.06, "pair_ms": 3e-6}, {"base_ms": 20.0, "kv_token_ms": 2e-4}]

PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "sources": {"made-up": {"kind": "assumed"}},
    "hardware": {"big": {"kind": "gpu"}, "small": {"kind": "gpu"}},
    "offers": {
        "big": {"hardware": "big", "price_per_hour": "4"},
        "small": {"hardware": "small", "price_per_hour": "1"},
    },
    "tasks": {"chat": {}},
    "variants": {
        "m": {"task": "chat", "runs": [{"hardware": "big", "engine": "fast"}, {"hardware": "small", "engine": "slow"}]}
    },
    "engines": {
        "fast": {"pieces": FAST, "kv_tokens": 200_000, "most_tokens": 4096, "most_seqs": 128, "source": "made-up"},
        "slow": {"pieces": SLOW, "kv_tokens": 40_000, "most_tokens": 4096, "most_seqs": 64, "source": "made-up"},
    },
}

SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "apps": {
        "chat": {
            "model": "m",
            "latency": {"ttft_p95_ms": 400, "tpot_p95_ms": 50},
            "rate_qps": 20,
            "mix": {
                "axes": ["input_tokens", "output_tokens"],
                "bins": [[200, 80], [1000, 120], [3000, 60]],
                "share": [0.5, 0.4, 0.1],
            },
        }
    },
}


QWEN: dict[str, Any] = {
    "form": "iteration/2", "base_ms": 3.4461, "chunk_ms": 3.8594, "experts_ms": 10.975, "experts_rate": 0.064539,
    "token_ms": 0.0096954, "tokens_from": 16, "sequence_ms": 0.017702, "kv_token_ms": 2.2961e-5, "pair_ms": 1.3123e-6,
    "basis": "grid", "error_mean": 0.12, "fit_error": [0.028, 0.083], "source": "aiconfigurator 0.12.0",
}  # fmt: skip
"""Qwen3-30B-A3B, bf16, on an H200, vLLM."""
DEEPSEEK: dict[str, Any] = {
    "form": "iteration/2", "base_ms": 14.47, "chunk_ms": 10.768, "experts_ms": 20.22, "experts_rate": 0.022224,
    "token_ms": 0.04262, "tokens_from": 128, "sequence_ms": 0.0089159, "kv_token_ms": 1.1685e-5, "pair_ms": 5.445e-7,
    "basis": "grid", "error_mean": 0.12, "fit_error": [0.016, 0.055], "source": "aiconfigurator 0.12.0",
}  # fmt: skip
"""DeepSeek-V3, fp8, on 8 H200, vLLM."""


def experts(law: dict[str, Any], kv_tokens: int, gpus: int = 1) -> dict[str, Any]:
    """A profile of one mixture of experts on machines of so many H200."""
    made = {key: copy.deepcopy(PROFILE[key]) for key in ("format", "sources", "tasks")}
    engine = {"law": copy.deepcopy(law), "request_ms": 35, "kv_tokens": kv_tokens, "tensor": gpus, "source": "made-up"}
    return {
        **made, "hardware": {"h200": {"kind": "gpu", "provides": {"gpu": gpus}}},
        "offers": {"h200": {"hardware": "h200", "price_per_hour": f"{4 * gpus}"}},
        "variants": {"m": {"task": "chat", "runs": [{"hardware": "h200", "engine": "moe"}]}},
        "engines": {"moe": engine},
    }  # fmt: skip


def profile() -> dict[str, Any]:
    """A profile of two types of one model, to change."""
    return copy.deepcopy(PROFILE)


def slo(
    rate_qps: float = 20.0, *, ttft_ms: float = 400.0, tpot_ms: float = 50.0, by: Any = None, **app: Any
) -> dict[str, Any]:
    """A wish for them, to change; `by` says what answers."""
    made = copy.deepcopy(SLO)
    chat = made["apps"]["chat"]
    chat["rate_qps"] = rate_qps
    chat["latency"] = dict(zip(chat["latency"], (ttft_ms, tpot_ms), strict=True))
    chat.update(app)
    if by:
        answered(chat, **by)
    return made
