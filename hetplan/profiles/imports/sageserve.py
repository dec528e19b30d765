"""SageServe's CSV of measured prefill and decode times, fitted to laws of engines.

Two layouts: in the one with times in milliseconds `token_time` is per token; in the other times are seconds and
`token_time` is that of the whole answer. `e2e_time` tells them apart: it is prompt_time + token_time in the second, and
prompt_time + token_size x token_time in the first.

A law has two pieces: computing, fitted to prefills, and reading, fitted to decodes. No iteration with both was
measured, so that they overlap is `assumed`. Batch and sequences are the largest that were measured. Room for KV is not
in the file: it is worked out for known models on known GPUs, else `--set kv_tokens=` says what the engine printed.
Where times are seconds, only prefills of one prompt are used: those of several prompts are not times of one batch.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.profiles.cards import room_for, stated_rooms
from hetplan.profiles.imports.words import digits, id_of
from hetplan.profiles.new_files import model_of, new_profile
from hetplan.profiles.read_text import read_text

__all__ = ["convert", "fitted"]

_COLUMNS = ("model", "hardware", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time", "e2e_time")
_BROKEN = 0.5
_LONGEST = 0.25
"""Above this mean error a fit is no law, and is refused."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Row:
    """One measurement, in milliseconds: of a prefill of all prompts, and of one decoding step."""

    prompt: int
    batch: int
    tokens: int
    prefill_ms: float
    step_ms: float
    seconds: bool


def convert(path: str | os.PathLike[str], *, kv_tokens: int | str | None = None) -> tuple[dict[str, Any], None]:
    """The profile of a file of measurements; it holds no wish, so there is no SLO."""
    file, rooms = os.fspath(path), stated_rooms(kv_tokens)
    read: list[tuple[tuple[str, str, int], tuple[float, ...]]] = []
    reader = csv.DictReader(read_text(path, wanted="a CSV file of SageServe").splitlines(), restval="")
    missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise InputError.one(
            file=file, path="line 1", value=", ".join(reader.fieldnames or ()),
            why=f"there is no column {missing[0]}", remedy="Give a CSV file of SageServe.",
        )  # fmt: skip
    for number, row in enumerate(reader, start=2):
        gpus, *values = _read(row, number, file)
        read.append(((row["model"], row["hardware"], int(gpus)), tuple(values)))
    if not read:
        raise InputError.one(
            file=file, value="no rows", why="at least one measurement", remedy="Give a file with rows."
        )
    # Of single rows either reading may fit by chance, of a file one does.
    whole = sum(abs(end - fill - token) < abs(end - fill - size * token) for _, (_, _, size, fill, token, end) in read)
    groups: dict[tuple[str, str, int], list[_Row]] = {}
    for key, measured in read:
        groups.setdefault(key, []).append(_row(measured, seconds=2 * whole > len(read)))
    return _profile(groups, file, rooms), None


def _read(row: dict[str, str], number: int, file: str) -> tuple[float, ...]:
    """GPUs, prompt, batch, tokens; the times of prefill and tokens, and from end to end, as they are written."""
    try:
        prompt, batch, tokens = (int(float(row[name])) for name in ("prompt_size", "batch_size", "token_size"))
        gpus = int(float(row.get("tensor_parallel") or 1))
        prefill, token, whole = (float(row[name]) for name in ("prompt_time", "token_time", "e2e_time"))
        if not (
            min(gpus, prompt, batch, tokens) >= 1
            and min(prefill, token, whole) > 0
            and math.isfinite(prefill + token + whole)
        ):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise InputError.one(
            file=file, path=f"line {number}", value=str(list(row.values())[:10]),
            why="sizes of at least 1 and times above 0", remedy="Mend or remove the line.",
        ) from None  # fmt: skip
    return gpus, prompt, batch, tokens, prefill, token, whole


def _row(values: tuple[float, ...], *, seconds: bool) -> _Row:
    prompt, batch, tokens = (int(value) for value in values[:3])
    prefill, token, whole = values[3:]
    if seconds:
        return _Row(prompt, batch, tokens, 1e3 * prefill, 1e3 * token / max(tokens - 1, 1), seconds)
    # Here `token_size` is the longest answer allowed: how long it was follows from the times.
    made = min(tokens, max(round((whole - prefill) / token), 1))
    return _Row(prompt, batch, made, prefill, token, seconds)


def _profile(groups: dict[tuple[str, str, int], list[_Row]], file: str, rooms: Mapping[str, int]) -> dict[str, Any]:
    machines: dict[str, Any] = {}
    runs: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for (written, card, gpus), rows in groups.items():
        model, kind = id_of(written, "x"), id_of(card, "x")
        machine = f"{kind}-x{gpus}" if gpus > 1 else kind
        machines[machine] = {"provides": {"gpu": gpus}}
        run = fitted(rows, file=file)
        held = run["range"]["kv_tokens"]
        room = room_for(f"{model}-{machine}", model, kind, gpus, said=rooms, held=held, file=file)
        runs.setdefault(model, []).append((machine, {**room, "tensor": gpus, **run}))
    return new_profile(
        {"name": "import", "kind": "imported", "tool": "SageServe"},
        machines=machines,
        models={name: model_of(name, name, several) for name, several in runs.items()},
    )


def fitted(rows: Sequence[_Row], *, file: str = "sageserve") -> dict[str, Any]:
    """A law of two pieces, its mean error over all that was used, and the largest that was measured.

    Up to a tenth of the rows, those furthest off, are left out where they are off by more than half: runs that broke
    down. What an iteration takes besides computing is at most the shortest decode: else no decode would be as short.
    """
    run, off = _fit(rows)
    furthest = [place for place in np.argsort(-off) if off[place] > _BROKEN][: len(rows) // 10]
    if furthest:
        run, off = _fit([row for place, row in enumerate(rows) if place not in set(furthest)])
    if (error := run["error_mean"]) > _LONGEST:
        raise InputError.one(
            file=file, value=f"{error:.3g}", why="two pieces do not fit: off by over a quarter on the mean",
            remedy="Look at the times; batched prefills of some files are not times of one batch.",
        )  # fmt: skip
    return run


def _fit(rows: Sequence[_Row]) -> tuple[dict[str, Any], Floats]:
    """The law of some rows, and by how much each is off."""
    alone = [row for row in rows if row.batch == 1 or not row.seconds]
    tokens = np.array([row.prompt * row.batch for row in alone], dtype=np.float64)
    work = np.stack([tokens, np.array([row.batch * row.prompt**2 / 2.0 for row in alone])], axis=1)
    prefill = np.array([row.prefill_ms for row in alone])
    batch = np.array([row.batch for row in rows], dtype=np.float64)
    reads = np.stack([np.array([row.batch * (row.prompt + row.tokens / 2.0) for row in rows]), batch], axis=1)
    step = np.array([row.step_ms for row in rows])
    reading = _least(np.column_stack([np.ones_like(batch), reads]), step)
    best: tuple[float, float, Floats] | None = None
    for base in np.linspace(0.0, float(step.min()), 11):
        slopes = _least(work, prefill, base)
        of_prefills = np.maximum(base + work @ slopes, reading[0])
        of_steps = np.maximum(reading[0] + reads @ reading[1:], base + slopes[0] * batch)
        error = float(np.concatenate([np.abs(of_prefills / prefill - 1.0), np.abs(of_steps / step - 1.0)]).mean())
        if best is None or error < best[0]:
            best = (error, float(base), slopes)
    assert best is not None
    error, base, slopes = best
    off = np.abs(np.maximum(reading[0] + reads @ reading[1:], base + slopes[0] * batch) / step - 1.0)
    used = np.array([row.batch == 1 or not row.seconds for row in rows])
    off[used] = np.maximum(off[used], np.abs(np.maximum(base + work @ slopes, reading[0]) / prefill - 1.0))
    most = max(row.batch * (row.prompt + row.tokens) for row in rows)
    longest, together = int(tokens.max()), int(batch.max())
    run = {
        "max_tokens": max(longest, together),
        "max_seqs": together,
        "error_mean": digits(error),
        "range": {"tokens": longest, "kv_tokens": most, "sequences": together},
        "law": [
            {"base_ms": digits(base), "token_ms": digits(slopes[0]), "pair_ms": digits(slopes[1])},
            {"base_ms": digits(reading[0]), "kv_token_ms": digits(reading[1]), "sequence_ms": digits(reading[2])},
        ],
    }
    return run, off


def _least(columns: Floats, times: Floats, base: float = 0.0) -> Floats:
    """Numbers of 0 or more that, added to a base, come nearest to times by relative error, few of them aside."""
    from scipy.optimize import nnls

    weighed = columns / times[:, None]
    scale = np.where(weighed.max(axis=0) > 0, weighed.max(axis=0), 1.0)
    wanted, weight = np.maximum(1.0 - base / times, 0.0), np.ones_like(times)
    found = np.zeros(columns.shape[1])
    for _ in range(20):
        found, _ = nnls(weighed / scale * weight[:, None], wanted * weight)
        # Weighed so, squares of errors count as the errors themselves: a run that broke down pulls no more than others.
        weight = 1.0 / np.sqrt(np.maximum(np.abs(weighed / scale @ found - wanted), 0.01))
    return np.asarray(found / scale)
