"""Known GPUs and language models, and how many tokens of KV fit beside a model's weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.imports.words import count_of

__all__ = ["CARDS", "MEMORY_SHARE", "ROOM_NOTE", "kv_tokens_of", "room_for", "room_of", "stated_rooms"]

CARDS = {
    "t4": (65, 320, 16), "l4": (121, 300, 24), "a10": (125, 600, 24), "a10g": (70, 600, 24), "l40s": (362, 864, 48),
    "a100": (312, 2039, 80), "h100": (989, 3350, 80), "h200": (989, 4800, 141), "mi300x": (1307, 5300, 192),
}  # fmt: skip
"""GPUs by their makers' data sheets: dense TFLOPS of 16 bits, GB/s, GB. A100 and H100 are those of 80 GB (SXM)."""
MEMORY_SHARE = 0.9
"""Of a GPU's memory, for weights and KV: the default of vLLM."""
MODELS = {
    "llama2-7b": (6.74, 32, 32, 128), "llama2-13b": (13.02, 40, 40, 128), "llama2-70b": (68.98, 80, 8, 128),
    "llama-3-8b": (8.03, 32, 8, 128), "llama-3-70b": (70.55, 80, 8, 128),
    "llama-3.1-8b": (8.03, 32, 8, 128), "llama-3.1-70b": (70.55, 80, 8, 128), "llama-3.1-405b": (405.85, 126, 8, 128),
    "llama-3.2-1b": (1.24, 16, 8, 64), "llama-3.2-3b": (3.21, 28, 8, 128), "llama-3.3-70b": (70.55, 80, 8, 128),
    "bloom-176b": (176.25, 70, 112, 128), "mixtral-8x7b": (46.7, 32, 8, 128), "qwen3-8b": (8.19, 36, 8, 128),
    "qwen3-32b": (32.76, 64, 8, 128), "qwen3-30b-a3b": (30.53, 48, 4, 128), "qwen3-235b-a22b": (235.09, 94, 4, 128),
}  # fmt: skip
"""Models by the config.json beside their weights: 1e9 parameters, layers, KV heads, size of a head."""
ROOM_NOTE = (
    f"KV room: ({MEMORY_SHARE:.0%} of the GPUs' memory - weights of 16 bits) / bytes per token, by the models' "
    'config.json; where the engine prints its "GPU KV cache size", --set kv_tokens= that'
)
UNSURE_BYTES = 8e9
"""A room below this may be half or twice as large: engines keep 4 to 12 GB of a GPU of 80 GB for themselves."""
_TUNED = re.compile(r"^(meta-|org-)+|-(instruct|chat|it|hf|base)(?=-|$)")
_WIDTH = 2.0


def kv_tokens_of(model: str, card: str, gpus: int) -> tuple[int, float] | None:
    """Tokens of KV that fit beside a known model on so many of a known GPU, and the bytes of each; None where unknown.

    >>> kv_tokens_of("llama2-70b", "a100-80gb", 4), kv_tokens_of("llama2-70b-awq", "a100", 4)
    ((457885, 327680.0), None)
    """
    held = MODELS.get(_TUNED.sub("", model))
    found = re.match(r"(?:nvidia-|amd-)?([a-z0-9]+?)(?:x[1-9][0-9]?)?(?:-|$)", card)
    if held is None or found is None or found[1] not in CARDS:
        return None
    stated = re.search(r"(?<![0-9a-z])([0-9]+)gb(?![a-z])", card)
    memory_gb = float(stated[1]) if stated else CARDS[found[1]][2]
    parameters, layers, heads, size = held
    each = 2.0 * layers * heads * size * _WIDTH
    tokens = int(room_of(memory_gb, gpus, parameters * 1e9 * _WIDTH) / each)
    return (tokens, each) if tokens >= 1 else None


def room_of(memory_gb: float, gpus: int, weights: float, share: float = MEMORY_SHARE) -> float:
    """Bytes that are left for KV on so many GPUs; below 0 where the weights do not fit."""
    return memory_gb * 1e9 * share * gpus - weights


def stated_rooms(said: Any) -> Mapping[str, int]:
    """`--set kv_tokens=`: a number for all ("" as the name), or by engine as NAME:N,NAME:N.

    >>> stated_rooms(4096), stated_rooms("llama-8b-l4:4096,llama-8b-h100:400000")
    ({'': 4096}, {'llama-8b-l4': 4096, 'llama-8b-h100': 400000})
    """
    if said is None:
        return {}
    parts = [part.rpartition(":") for part in said.split(",")] if isinstance(said, str) else [("", "", said)]
    return {name.strip(): count_of(number, "kv_tokens", "--set") for name, _, number in parts}


def room_for(
    name: str, model: str, card: str, gpus: int, *, said: Mapping[str, int], held: int, file: str
) -> tuple[dict[str, Any], str]:
    """What an engine says of its KV room, and what is assumed for it; `held` tokens were seen to fit at once.

    Never what was benchmarked: that only shows that no less fits. `InputError` where nothing says more.
    """
    stated = said.get(name, said.get(""))
    if stated is not None:
        return {"kv_tokens": stated}, ""
    found = kv_tokens_of(model, card, gpus)
    if found is None:
        why = f"how many tokens of KV fit: the file does not say, and {model} on {gpus} x {card} is not known"
        remedy = f'Read "GPU KV cache size" in the engine\'s log, and add --set kv_tokens={name}:N (or N for all).'
        raise InputError.one(file=file, path=name, value=f"{held} were held at once", why=why, remedy=remedy)
    tokens, each = max(found[0], held), found[1]
    unsure = f"; uncertain for {name}" if tokens * each < UNSURE_BYTES else ""
    return {"kv_tokens": tokens, "kv_bytes_per_token": each}, unsure
