"""Laws of engines that ship with hetplan: fitted numbers with where they come from and how far they are off.

An identity is a model, its precision, a GPU, how many of them, how layers are split, an engine and its version: a law
of one says nothing of another. A profile names one as `catalogue/ENGINE/MODEL/PRECISION/GPUxN/PARALLEL/VERSION`; what
comes after the number of GPUs may be left out where only one law is meant, and of several versions and bases the most
trusted and newest is. Readers put the law in place of its name, so plans rest on its numbers and not on a name.
"""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.cards import Room, cards, room_of
from hetplan.profiles.engines import IterationLaw
from hetplan.profiles.json_path import shortened
from hetplan.profiles.language_models import models

__all__ = [
    "COLUMNS",
    "FILE",
    "NUMBERS",
    "REALITY",
    "REQUEST_MS",
    "Known",
    "contradictions",
    "engine_document",
    "engine_of",
    "known_laws",
    "law_named",
    "laws_on",
]

FILE = Path(__file__).with_name("laws.csv")
NUMBERS = (
    "base_ms", "chunk_ms", "experts_ms", "experts_rate", "token_ms", "tokens_from", "sequence_ms", "kv_token_ms",
    "pair_ms",
)  # fmt: skip
_IDENTITY = ("model", "precision", "gpu", "gpus", "parallel", "engine", "version")
COLUMNS = (*_IDENTITY, "basis", *NUMBERS, "error_mean", "fit_mean", "fit_worst", "date", "source")
REALITY = {"vllm": 0.12, "sglang": 0.24, "trtllm": 0.37}
"""How far tables of kernels are from the time per token of an engine, on the mean of 1,408 published runs."""
REQUEST_MS = {"vllm": 35.0}
"""What a request waits before its first iteration: the median of 11 published sweeps is 38."""
_TRUST = ("measured", "grid")
_PREFIX = "catalogue/"


@dataclass(frozen=True)
class Known:
    """A law, what it is of, and when it was fitted."""

    identity: dict[str, str]
    law: IterationLaw
    date: str

    @property
    def name(self) -> str:
        """As a profile names it."""
        of = self.identity
        parts = (of["engine"], of["model"], of["precision"], f"{of['gpu']}x{of['gpus']}", of["parallel"], of["version"])
        return _PREFIX + "/".join(parts).rstrip("/")


@cache
def _rows() -> tuple[dict[str, str], ...]:
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def known_laws(words: Sequence[str] = (), **identity: str) -> Iterator[Known]:
    """Those laws of this identity that have all these words, each the beginning of a name of identity or basis.

    >>> [one.law.experts_ms > 0 for one in known_laws(("qwen3-30b", "h200", "bf16", "vllm"), parallel="tp")]
    [True, True, True, True]
    """
    for row in _rows():
        names = [*(row[name] for name in _IDENTITY), row["basis"]]
        same = all(row[name] == value for name, value in identity.items())
        if same and all(any(name.startswith(word.lower()) for name in names) for word in words):
            yield _known(row)


def _known(row: Mapping[str, str]) -> Known:
    numbers = {name: float(row[name]) for name in NUMBERS} | {"tokens_from": int(row["tokens_from"])}
    fit = tuple(float(row[name]) for name in ("fit_mean", "fit_worst"))
    errors = {"error_mean": float(row["error_mean"]), "fit_error": fit}
    said = {"form": "iteration/2", "basis": row["basis"], "source": row["source"]}
    identity = {name: row[name] for name in _IDENTITY}
    return Known(identity, IterationLaw.model_validate({**said, **numbers, **errors}), row["date"])


def law_named(name: str, *, file: str = "catalogue", path: str = "") -> Known:
    """The law of this name; `InputError` with the nearest names where there is none, or more than one is meant.

    >>> law_named("catalogue/vllm/llama-3.1-8b/bf16/h100x1").name
    'catalogue/vllm/llama-3.1-8b/bf16/h100x1/tp/0.24.0'
    """
    engine, model, precision, cards_of, *rest = (*name.removeprefix(_PREFIX).split("/"), "", "", "", "")
    gpu, _, gpus = cards_of.rpartition("x")
    rest = [one for one in rest if one]
    said = {"engine": engine, "model": model, "precision": precision, "gpu": gpu, "gpus": gpus}
    said |= dict(zip(("parallel", "version"), rest, strict=False))
    found = list(known_laws(**said)) if len(rest) <= 2 else []
    if not found:
        near = _nearest(name)
        remedy = f"Nearest are {', '.join(near)}; `hetplan list laws` shows all."
        raise InputError.one(file=file, path=path, value=shortened(name), why="a law of the catalogue", remedy=remedy)
    ways = sorted({one.identity["parallel"] for one in found})
    if len(ways) > 1:
        remedy = f"Write {' or '.join(f'{name}/{way}' for way in ways)}."
        why = f"one way to split layers: there are {', '.join(ways)}"
        raise InputError.one(file=file, path=path, value=shortened(name), why=why, remedy=remedy)
    return newest(found) or found[0]


def newest(found: Iterable[Known]) -> Known | None:
    """Of several laws of one identity the most trusted, of the newest version; None of none."""
    return max(
        found,
        key=lambda one: (-_TRUST.index(str(one.law.basis)), _version(one.identity["version"])),
        default=None,
    )


def _version(text: str) -> list[tuple[int, str]]:
    return [(int(part) if part.isdigit() else -1, part) for part in re.findall(r"[0-9]+|[a-z]+", text)]


def _nearest(name: str) -> list[str]:
    known = sorted({_known(row).name.rpartition("/")[0] for row in _rows()})
    return difflib.get_close_matches(name, known, n=3, cutoff=0.0)


def engine_of(known: Known) -> dict[str, Any]:
    """An engine of a profile by a law of the catalogue: with its degree, precision, and KV room by model and card."""
    of = known.identity
    gpus = int(of["gpus"])
    ranks = gpus if of["parallel"] == "dp+ep" else 1
    room = room_of(models()[of["model"]], of["precision"], cards()[of["gpu"]], gpus, ranks=ranks)
    law = known.law.model_dump(mode="json", exclude_defaults=True)
    return engine_document({"form": "iteration/2", **law}, room, of["precision"], gpus, of["engine"])


def engine_document(
    law: Mapping[str, Any], room: Room | None, precision: str, gpus: int, engine: str
) -> dict[str, Any]:
    """An engine of a profile: its law, degree, precision, KV room, and what a request waits before it."""
    waits = {"request_ms": REQUEST_MS[engine]} if engine in REQUEST_MS else {}
    held = room.document if room is not None else {}
    return {"law": law, "tensor": gpus, "precision": precision, **held, **waits}


def laws_on(name: str, gpu: str, gpus: int) -> Known | None:
    """The law of this name on a machine with so many of these GPUs; None where there is none.

    A short name (`catalogue/ENGINE/MODEL/PRECISION`) is of all these GPUs together; where layers can be split in
    several ways, the plain one (tp) is meant. One that says its GPUs, way or version holds on these alone.

    >>> found = laws_on("catalogue/vllm/llama-3.1-8b/bf16", "h100", 1)
    >>> found.name if found else None
    'catalogue/vllm/llama-3.1-8b/bf16/h100x1/tp/0.24.0'
    >>> laws_on("catalogue/vllm/llama-3.1-8b/bf16/h200x1", "h100", 1)
    """
    engine, model, precision, *rest = (*name.removeprefix(_PREFIX).split("/"), "", "")
    gpu = gpu.lower()
    if any(rest):
        try:
            known = law_named(name)
        except InputError:
            return None
        return known if known.identity["gpu"] == gpu and int(known.identity["gpus"]) <= gpus else None
    found = list(known_laws(engine=engine, model=model, precision=precision, gpu=gpu, gpus=str(gpus)))
    plain = [one for one in found if one.identity["parallel"] == "tp"]
    return newest(plain or found)


def contradictions(
    stated: Mapping[str, Any], held: Mapping[str, Any], known: Known, gpu: str | None
) -> Iterator[tuple[str, str, str]]:
    """Keys of a run on this GPU that contradict what its law was measured with: key, why, what to do."""
    of, name = known.identity["gpu"], known.name
    if gpu is not None and gpu.lower() != of:
        why, remedy = f"{name} is a law of {of}, and these GPUs are {gpu}", "Name a law of these, or say what they are."
        yield "law", why, remedy
    for key in ("precision", "tensor", "pipeline"):
        own = held.get(key, 1 if key == "pipeline" else None)
        if key in stated and own is not None and stated[key] != own:
            why, remedy = f"{name} is a law of {key} {own}", f"Write {own!r}, or leave it out; or name another law."
            yield key, why, remedy
