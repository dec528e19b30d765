"""Modelled grids of iterations of many engines, from the data beside the repository."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from functools import cache
from pathlib import Path

from hetplan.profiles.engine_law import Iteration
from hetplan.profiles.imports.cards import CARDS

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("HETPLAN_DATA", ROOT / ".." / "shared" / "data")).resolve() / "llm" / "laws"

Identity = tuple[str, ...]
IDENTITY = ("model", "gpu", "gpus", "parallel", "precision", "engine", "version")
BATCHES, PROMPTS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
GB_PER_S = {**{name: float(card[1]) for name, card in CARDS.items()}, "b200": 8000.0, "gb200": 8000.0}
DENSE = {"llama-3.1-8b", "llama-3.1-70b", "qwen3-8b", "qwen3-32b"}


def read(name: str) -> list[tuple[Identity, dict[str, str]]]:
    """The rows of a file, each with the identity of its law."""
    with (DATA / f"{name}.csv").open() as file:
        return [(tuple(row.get(one, "") for one in IDENTITY), row) for row in csv.DictReader(file)]


@cache
def grids() -> dict[Identity, list[Iteration]]:
    """The iterations of each grid whose KV fits: others the tool made up."""
    rooms = {key: (int(row["kv_tokens_per_rank"]), int(row["ranks"])) for key, row in read("memory")}
    found: dict[Identity, list[Iteration]] = defaultdict(list)
    for key, row in read("decode"):
        context, (each, ranks) = int(row["context"]), rooms[key]
        for batch in BATCHES:
            if row[f"b{batch}"] and context * batch <= each * ranks:
                found[key].append(Iteration(batch, batch * context, batch, 0, float(row[f"b{batch}"])))
    for key, row in read("prefill"):
        prompts, (each, ranks) = int(row["prompts"]), rooms[key]
        for length in PROMPTS:
            if row[f"p{length}"] and length * prompts <= each:
                many = prompts * ranks
                found[key].append(Iteration(length * many, 0, 0, many * length**2 / 2, float(row[f"p{length}"])))
    return found


@cache
def least() -> dict[Identity, dict[str, float]]:
    """Prices that no card goes below. Half of the KV: windows spare up to half of the layers."""
    return {
        key: {
            "kv_token_ms": 0.5 * float(row["kv_bytes_per_token_per_gpu"]) / GB_PER_S[key[1]] / 1e6 / int(row["ranks"])
        }
        for key, row in read("memory")
    }
