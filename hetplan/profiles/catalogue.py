"""Laws of engines that ship with hetplan: fitted numbers with where they come from and how far they are off.

An identity is a model, its precision, a GPU, how many of them, how layers are split, an engine and its version: a law
of one says nothing of another.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hetplan.profiles.engines import IterationLaw

__all__ = ["COLUMNS", "FILE", "NUMBERS", "Known", "known_laws"]

FILE = Path(__file__).with_name("laws.csv")
NUMBERS = (
    "base_ms", "chunk_ms", "experts_ms", "experts_rate", "token_ms", "tokens_from", "sequence_ms", "kv_token_ms",
    "pair_ms",
)  # fmt: skip
_IDENTITY = ("model", "precision", "gpu", "gpus", "parallel", "engine", "version")
COLUMNS = (*_IDENTITY, "basis", *NUMBERS, "error_mean", "fit_mean", "fit_worst", "date", "source")


@dataclass(frozen=True)
class Known:
    """A law, what it is of, and when it was fitted."""

    identity: dict[str, str]
    law: IterationLaw
    date: str


def known_laws(words: Sequence[str] = ()) -> Iterator[Known]:
    """Those laws whose identity or basis has all these words, each the beginning of one of its names.

    >>> [one.law.experts_ms > 0 for one in known_laws(("qwen3-30b", "h200", "bf16", "vllm"))]
    [True, True, True, True, True, True, True]
    """
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            identity = {name: row[name] for name in _IDENTITY}
            names = [*identity.values(), row["basis"]]
            if all(any(name.startswith(word.lower()) for name in names) for word in words):
                numbers = {name: float(row[name]) for name in NUMBERS} | {"tokens_from": int(row["tokens_from"])}
                fit = tuple(float(row[name]) for name in ("fit_mean", "fit_worst"))
                errors = {"error_mean": float(row["error_mean"]), "fit_error": fit}
                said = {"form": "iteration/2", "basis": row["basis"], "source": row["source"]}
                yield Known(identity, IterationLaw.model_validate({**said, **numbers, **errors}), row["date"])
