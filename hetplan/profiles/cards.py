"""Known GPUs, and how many tokens of KV fit beside a model's weights: from the two alone, never from a benchmark.

An engine takes a share of the memory that the driver shows, loads the weights, keeps a reserve for its own buffers, and
gives the rest to KV. How much it keeps differs: 8 to 10 GB on an H100 where engines printed it, half of that in tools.
So every room has an error.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.imports.words import count_of
from hetplan.profiles.language_models import LanguageModel, model_of_text, models, precision_of_text

__all__ = ["FILE", "MEMORY_SHARE", "Card", "Room", "card_of_text", "cards", "room_for", "room_of", "stated_rooms"]

FILE = Path(__file__).with_name("gpus.csv")
MEMORY_SHARE = 0.9
"""Of a GPU's memory, for weights and KV: the default of vLLM."""
_RESERVE_BYTES, _UNSURE_BYTES = 8e9, 4e9
"""What an engine keeps on a GPU of 80 GB or more (a tenth of smaller ones), and how far that is from what is printed:
8.0 to 10.0 GB in four logs of H100, 2.6 GB on a card of 24 GB, 4.5 GB in planning tools."""
_LARGE_BYTES = 80e9


@dataclass(frozen=True, eq=False)
class Card:
    """A GPU by its maker's data sheet, its memory as the driver shows it; rates are peaks, dense."""

    name: str
    memory_bytes: float
    bytes_per_s: float
    flops: Mapping[str, float]
    link_bytes_per_s: float
    node: int
    generation: str

    @property
    def precisions(self) -> tuple[str, ...]:
        """Of weights that it computes with."""
        return tuple(name for name, rate in self.flops.items() if rate)


@cache
def cards() -> dict[str, Card]:
    """The GPUs that ship with hetplan."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return {row["gpu"]: _card(row) for row in csv.DictReader(file)}


def _card(row: Mapping[str, str]) -> Card:
    flops = {name: float(row[f"tflops_{bits}"]) * 1e12 for name, bits in (("bf16", 16), ("fp8", 8), ("fp4", 4))}
    return Card(
        row["gpu"], float(row["memory_gib"]) * 2.0**30, float(row["bandwidth_gbps"]) * 1e9, flops,
        float(row["link_gbps"]) * 1e9, int(row["node"]), row["generation"],
    )  # fmt: skip


def card_of_text(text: str) -> tuple[Card, int] | None:
    """The known GPU that is meant, and how many: h100, NVIDIA-H100-80GB-HBM3, h200x8, h100-sxm-x4.

    >>> [(card.name, many) for card, many in map(card_of_text, ("h200x8", "a100-80gb", "NVIDIA H100 80GB HBM3-x4"))]
    [('h200', 8), ('a100', 1), ('h100', 4)]
    >>> card_of_text("tpu-v5e") is None
    True
    """
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    plain = re.sub(r"^(nvidia-|amd-|instinct-|tesla-|geforce-)+", "", plain)
    found = next((one for one in sorted(cards(), key=len, reverse=True) if _begins(plain, one)), None)
    if found is None:
        return None
    many = re.search(r"(?:^|-|(?<=[a-z0-9]))x([1-9][0-9]?)$", plain[len(found) :])
    card = cards()[found]
    stated = re.search(r"(?<![0-9a-z])([0-9]+)gb(?![a-z])", plain)
    if stated and abs(float(stated[1]) * 1e9 / card.memory_bytes - 1.0) > 0.15:  # an A100 of 40 GB
        card = Card(**{**vars(card), "memory_bytes": float(stated[1]) * 1e9 * 0.99})
    return card, int(many[1]) if many else 1


def _begins(text: str, name: str) -> bool:
    rest = text[len(name) :]
    return text.startswith(name) and (not rest or rest[0] == "-" or re.fullmatch(r"x[1-9][0-9]?", rest) is not None)


@dataclass(frozen=True)
class Room:
    """Tokens of KV of one instance, the bytes of each, and by what share the tokens may be off."""

    tokens: int
    bytes_per_token: float
    error: float

    @property
    def document(self) -> dict[str, Any]:
        """As a profile's engine has it."""
        held = {"kv_tokens": self.tokens, "kv_bytes_per_token": self.bytes_per_token}
        return {**held, "kv_error": float(f"{self.error:.3g}")}

    def __str__(self) -> str:
        unsure = ', uncertain: read the engine\'s "GPU KV cache size"' if self.error > 0.5 else ""
        return f"KV {self.tokens:,} tokens +-{self.error:.0%}{unsure}"


def room_of(
    model: LanguageModel, precision: str, card: Card, gpus: int = 1, *, ranks: int = 1, share: float = MEMORY_SHARE,
    kv_bytes: float = 2.0, sparing: bool = False,
) -> Room | None:  # fmt: skip
    """The room of one instance on so many GPUs; None where the weights leave none.

    `sparing` is an engine that keeps as little for itself as any; by default it keeps what most do.

    With `ranks` attention is parallel over data: each rank keeps attention and the KV of its own requests whole.

    >>> held = models()["qwen3-235b-a22b"]
    >>> room = room_of(held, "fp8", cards()["h100"], 4)
    >>> room.tokens, round(room.error, 2), 178_880 > room.tokens * (1 - room.error)
    (204423, 0.41, True)
    """
    weights = model.weight_bytes(precision)
    routed = weights - LanguageModel.weight_bytes(_without_experts(model), precision)
    each = routed / gpus + (weights - routed) * ranks / gpus
    small = min(1.0, card.memory_bytes / _LARGE_BYTES)
    reserve = (_RESERVE_BYTES - (_UNSURE_BYTES if sparing else 0.0)) * small
    left = card.memory_bytes * share - reserve - each
    per_gpu = model.kv_bytes_per_token * kv_bytes / 2.0 / model.kv_ranks(gpus // ranks)
    tokens = int(left / per_gpu) * ranks if left > 0 else 0
    if tokens < 1:
        return None
    return Room(tokens, model.kv_bytes_per_token * kv_bytes / 2.0, _UNSURE_BYTES * small / left)


def _without_experts(model: LanguageModel) -> LanguageModel:
    return LanguageModel(**{**vars(model), "routed": 0.0})


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
) -> dict[str, Any]:
    """What an engine says of its KV room: as stated, else by model and card; `held` tokens were seen to fit at once.

    `InputError` where nothing says it: what was benchmarked only shows that no less fits.
    """
    stated = said.get(name, said.get(""))
    if stated is not None:
        return {"kv_tokens": stated}
    known, on, precision = model_of_text(model), card_of_text(card), precision_of_text(model)
    if known and on and precision and room_of(models()[known], precision, on[0], gpus, sparing=True):
        found = room_of(models()[known], precision, on[0], gpus)
        # What was seen to fit does, also where the usual reserve leaves nothing.
        least = max(found.tokens if found else 0, held)
        return Room(least, models()[known].kv_bytes_per_token, found.error if found else 1.0).document
    why = f"how many tokens of KV fit: the file does not say, and {model} on {gpus} x {card} is not known"
    remedy = f'Read "GPU KV cache size" in the engine\'s log, and add --set kv_tokens={name}:N (or N for all).'
    raise InputError.one(file=file, path=name, value=f"{held} were held at once", why=why, remedy=remedy)
