"""Language models as laws and KV room need them: sizes by the `config.json` beside the weights.

The configurations of known models ship with hetplan (`models.json`, only the fields that are read here).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.json_path import closest

__all__ = [
    "BYTES",
    "FILE",
    "LanguageModel",
    "model_named",
    "model_of_config",
    "model_of_text",
    "models",
    "precision_of_config",
    "precision_of_text",
]

FILE = Path(__file__).with_name("models.json")
BYTES = {"bf16": 2.0, "fp8": 1.0, "fp4": 9.0 / 16.0}
"""Of a weight, by its precision; blocks of 4-bit numbers share a factor of 8 bits."""
_PLAIN_FFN = frozenset({"bloom", "opt", "gpt2", "gpt_neox", "falcon"})
"""Kinds of models whose feed-forward layers have two matrices; others have a gate, too."""
_CHATTY = re.compile(r"^(meta-|org-|hf-)+|-(instruct|chat|it|hf|base|dynamic|fp8|fp4|bf16|nvfp4|mxfp4|awq|w8a8)(?=-|$)")
_OTHER_WEIGHTS = re.compile(r"awq|gptq|int4|int8|w4a16|w8a8|gguf|bnb")
_SAME = {"deepseek-r1": "deepseek-v3", "llama2": "llama-2", "llama3": "llama-3"}
"""Names of one architecture, and other ways to write a name."""


@dataclass(frozen=True)
class LanguageModel:
    """A model by its sizes; weights are counted, not bytes. `dense` ones are read by every iteration.

    `experts` counts those of one layer, `per_token` how many of them a token takes; `routed` are the weights of all.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: float
    embedding: float
    head: float
    dense: float
    routed: float = 0.0
    experts: int = 0
    per_token: int = 0
    latent: int = 0
    window: int = 0

    @property
    def parameters(self) -> float:
        """All weights."""
        return self.embedding + self.dense + self.head + self.routed

    @property
    def active(self) -> float:
        """The weights that one token meets, without the table of embeddings."""
        return self.dense + self.head + (self.routed * self.per_token / self.experts if self.experts else 0.0)

    @property
    def kv_bytes_per_token(self) -> float:
        """Of all layers, at 16 bits."""
        return 2.0 * self.layers * (self.latent or 2.0 * self.kv_heads * self.head_size)

    def kv_ranks(self, gpus: int) -> int:
        """Over how many GPUs the KV of a token is divided: a head is on one; a latent is on every one."""
        return 1 if self.latent else min(gpus, self.kv_heads)

    def weight_bytes(self, precision: str) -> float:
        """What the weights take: embeddings and head stay at 16 bits; of 4 bits are only experts, where there are."""
        rest = BYTES["bf16"] if precision == "fp4" and self.experts and not self.latent else BYTES[precision]
        return 2.0 * (self.embedding + self.head) + rest * self.dense + BYTES[precision] * self.routed


def model_of_config(said: Any, *, file: str, remedy: str = "Mend the file.") -> LanguageModel:
    """A model by its `config.json`."""
    if not isinstance(said, Mapping) or "num_hidden_layers" not in said:
        why = "a model's config.json: num_hidden_layers, hidden_size, ..."
        raise InputError.one(file=file, why=why, remedy="Give the config.json that lies beside the weights.")

    def number(name: str, usual: float | None = None, *others: str) -> float:
        value: Any = next((said[one] for one in (name, *others) if said.get(one) is not None), usual)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not (0 < value < 1e9 or usual == value == 0)
        ):
            raise InputError.one(file=file, path=f"$.{name}", value=value, why="a number above 0", remedy=remedy)
        return float(value)

    hidden, layers, heads = number("hidden_size"), number("num_hidden_layers"), number("num_attention_heads")
    kv_heads = number("num_key_value_heads", heads)
    size = number("head_dim", hidden / heads)
    latent, rope = number("kv_lora_rank", 0.0), number("qk_rope_head_dim", 0.0)
    if latent:
        nope, value = number("qk_nope_head_dim"), number("v_head_dim")
        query = number("q_lora_rank", 0.0)
        widest = heads * (nope + rope)
        asks = query * (hidden + widest) if query else hidden * widest
        attention = asks + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden
        size = nope + rope
    else:
        attention = 2.0 * hidden * size * (heads + kv_heads)
    matrices = 2.0 if said.get("model_type") in _PLAIN_FFN else 3.0
    inter = number("intermediate_size", 4.0 * hidden)
    experts = number("num_experts", 0.0, "n_routed_experts", "num_local_experts")
    words = number("vocab_size") * hidden
    without = layers if not experts else number("first_k_dense_replace", 0.0)
    of_expert = matrices * hidden * number("moe_intermediate_size", inter) if experts else 0.0
    shared = (layers - without) * (number("n_shared_experts", 0.0) * of_expert + hidden * experts)
    return LanguageModel(
        layers=int(layers), hidden=int(hidden), heads=int(heads), kv_heads=int(kv_heads), head_size=size,
        embedding=0.0 if said.get("tie_word_embeddings") else words, head=words,
        dense=layers * attention + without * matrices * hidden * inter + shared,
        routed=(layers - without) * experts * of_expert,
        experts=int(experts), per_token=int(number("num_experts_per_tok", 1.0 if experts else 0.0)),
        latent=int(latent + rope) if latent else 0,
        window=int(number("sliding_window", 0.0)) if experts else 0,
    )  # fmt: skip


@cache
def models() -> dict[str, LanguageModel]:
    """The models that ship with hetplan."""
    said = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: model_of_config(one, file=f"{FILE.name}: {name}") for name, one in said.items()}


def model_of_text(text: str) -> str | None:
    """The known model that is meant; None where none is, or more than one.

    >>> model_of_text("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8"), model_of_text("qwen3-235b"), model_of_text("llama-9b")
    ('qwen3-235b-a22b', 'qwen3-235b-a22b', None)
    >>> model_of_text("meta-llama/Llama-3.1-8B-Instruct"), model_of_text("llama2-70b"), model_of_text("llama2-70b-awq")
    ('llama-3.1-8b', 'llama-2-70b', 'llama-2-70b')
    """
    plain = re.sub(r"[^a-z0-9.]+", "-", text.lower().rsplit("/", 1)[-1]).strip("-")
    for other, name in _SAME.items():
        plain = plain.replace(other, name) if plain.startswith(other) else plain
    short = _CHATTY.sub("", plain)
    short = re.sub(r"-(2[0-9]{3}|0[0-9]{3})(?=-|$)", "", short)  # a release: -2507, -0528
    if short in models():
        return short
    begins = [name for name in models() if short and name.startswith(f"{short}-")]
    return begins[0] if len(begins) == 1 else None


def precision_of_text(text: str) -> str | None:
    """The precision that a name says, 16 bits where it says none; None where weights are of another kind.

    >>> precision_of_text("Qwen3-235B-FP8"), precision_of_text("gpt-oss-120b"), precision_of_text("llama2-70b-awq")
    ('fp8', 'fp4', None)
    """
    plain = text.lower()
    if _OTHER_WEIGHTS.search(plain):
        return None
    found = next((one for one in ("fp8", "fp4", "bf16") if one in plain), None)
    usual = {"gpt-oss-20b": "fp4", "gpt-oss-120b": "fp4", "deepseek-v3": "fp8"}
    return found or usual.get(model_of_text(text) or "", "bf16")


def precision_of_config(said: Mapping[str, Any], *, file: str) -> str:
    """The precision that a `config.json` says."""
    held = said.get("quantization_config")
    if not held:
        return "bf16"
    method = str(held.get("quant_method", "")) if isinstance(held, Mapping) else ""
    found = next((one for one in ("fp8", "fp4") if one in f"{method} {held}".lower()), None)
    if found is None or _OTHER_WEIGHTS.search(method):
        why = "weights of 16 bits, fp8 or fp4: nothing is known of the times of others"
        raise InputError.one(file=file, path="$.quantization_config", value=method, why=why, remedy="Measure it.")
    return found


def model_named(text: str, *, file: str) -> tuple[str, LanguageModel]:
    """The known model that is meant; `InputError` with the nearest names otherwise."""
    found = model_of_text(text)
    if found is None:
        remedy = f"{closest(text.lower(), models())}Known are {', '.join(models())}; others by --config config.json."
        raise InputError.one(file=file, value=text, why="a model whose sizes ship with hetplan", remedy=remedy)
    return found, models()[found]
