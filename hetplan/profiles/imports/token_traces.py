"""Recorded requests for text as what is wanted: lengths in and out, and how many came per second.

Read are Azure's CSV of 2023 (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT's CSV (Timestamp, Request tokens,
Response tokens) and Mooncake's JSON lines (timestamp in ms, input_length, output_length, hash_ids of blocks of 512
tokens, by which the part of an input that came before is found in the cache). Also AIBrix's workloads (a line per
moment in ms, with its requests), and ServeGen's windows of lengths: these say no rate, so `rate_qps` does.

The lengths go into `mix.observed`, at most 3,000 of them, taken evenly along tokens in and out: requests are drawn from
them as they are, and the bins, cut where equally many tokens lie between, are the classes of the program. So nothing
that is simulated depends on how many bins there are. Limits on times are not in a trace: write them into the SLO file.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from hetplan.errors import InputError
from hetplan.profiles.read_json import read_json
from hetplan.profiles.read_text import read_text

__all__ = ["MOST_LENGTHS", "Request", "convert", "read_requests", "wish_of"]

MOST_LENGTHS, BINS = 3000, (4, 4)
_BLOCK = 512
_CSV = {
    "azure": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "burstgpt": ("Timestamp", "Request tokens", "Response tokens"),
}

Request = tuple[float, int, int, int]
"""Seconds, tokens in, tokens out, tokens in that are in the cache."""


def convert(
    path: str | os.PathLike[str], *, app: str = "text", task: str = "chat", rate_qps: float = 0.0
) -> tuple[None, dict[str, Any]]:  # fmt: skip
    """The SLO of a trace; it holds no measurement, so there is no profile. Imported models are tasks by their names."""
    file = os.fspath(path)
    text = read_text(path, wanted="a trace")
    lines = text.splitlines()
    windows = _windows(text, file) if len(lines) < 2 or not lines[0].rstrip().endswith("}") else []
    if windows and not rate_qps:
        why = "requests per second: windows of lengths say none"
        raise InputError.one(file=file, why=why, remedy="Add --set rate_qps=5, of this client or of all.")
    requests = windows or list(read_requests(lines, file))
    if rate_qps and windows:
        requests = [(number / rate_qps, *one[1:]) for number, one in enumerate(requests)]
    wish = wish_of(requests, file=file)
    (said,) = wish["apps"].values()
    return None, {**wish, "apps": {app: {**said, "task": task}}}


_PAIR = re.compile(r"([0-9]+)\s*:\s*([0-9.eE+-]+)")
"""Tokens and their share, of a Python dict in a string: read as numbers, never run."""


def _windows(text: str, file: str) -> list[Request]:
    """ServeGen's windows as requests, lengths in and out independent; nothing where it is no such file."""
    if not text.lstrip().startswith("{"):
        return []
    document = read_json(text.encode(), file=file)
    held = [one for one in document.values() if isinstance(one, dict) and "input_tokens" in one]
    if not held or len(held) < len(document):
        return []
    random, found = np.random.default_rng(0), list[Request]()
    for number, window in enumerate(held):
        sides = []
        for name in ("input_tokens", "output_tokens"):
            pairs = [(int(tokens), float(share)) for tokens, share in _PAIR.findall(str(window.get(name, "")))]
            total = math.fsum(share for _, share in pairs)
            if not pairs or not 0.5 < total < 1.5:
                raise _wrong(file, number + 1, f"{name}: shares that sum to {total:g}")
            share = np.array([one for _, one in pairs])
            sides.append(
                random.choice([tokens for tokens, _ in pairs], MOST_LENGTHS // len(held), p=share / share.sum())
            )
        found += [(0.0, int(i), int(o), 0) for i, o in zip(*sides, strict=True)]
    return found


def _workload(lines: Sequence[str], file: str) -> Iterator[Request]:
    """AIBrix's workload: several requests a moment, in milliseconds."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            moment = _finite(float(row["timestamp"])) / 1e3
            for one in row["requests"]:
                yield moment, int(one["Prompt Length"]), int(one["Output Length"]), 0
        except (KeyError, TypeError, ValueError, OverflowError):
            raise _wrong(file, number, line[:80]) from None


def read_requests(lines: Sequence[str], file: str) -> Iterator[Request]:
    """The requests of a trace, in the order of its lines."""
    if not lines or not lines[0].lstrip().startswith("{"):
        return _table(lines, file)
    return _workload(lines, file) if '"requests"' in lines[0] else _mooncake(lines, file)


def _table(lines: Sequence[str], file: str) -> Iterator[Request]:
    reader = csv.DictReader(lines)
    names = next((held for held in _CSV.values() if set(held) <= set(reader.fieldnames or ())), None)
    if names is None:
        raise InputError.one(
            file=file, path="line 1", value=", ".join(reader.fieldnames or ()),
            why="columns of Azure's trace (TIMESTAMP, ContextTokens, GeneratedTokens) or of BurstGPT's",
            remedy="Rename the columns, or write mix by hand.",
        )  # fmt: skip
    for number, row in enumerate(reader, start=2):
        try:
            yield _finite(_seconds(row[names[0]])), int(float(row[names[1]])), int(float(row[names[2]])), 0
        except (TypeError, ValueError, OverflowError):
            raise _wrong(file, number, str(list(row.values()))) from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        # Seven digits of a second are one more than a datetime takes.
        return datetime.fromisoformat(text.strip()[:26]).replace(tzinfo=UTC).timestamp()


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError
    return value


def _mooncake(lines: Sequence[str], file: str) -> Iterator[Request]:
    seen: set[int] = set()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            blocks = row.get("hash_ids", [])
            known = 0
            while known < len(blocks) and blocks[known] in seen:
                known += 1
            seen.update(blocks)
            tokens = int(row["input_length"])
            moment, made = _finite(float(row["timestamp"])) / 1e3, int(row["output_length"])
            yield moment, tokens, made, min(known * _BLOCK, tokens - 1)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise _wrong(file, number, line[:80]) from None


def _wrong(file: str, number: int, value: str) -> InputError:
    return InputError.one(
        file=file,
        path=f"line {number}",
        value=value,
        why="a time and two counts of tokens",
        remedy="Mend or remove it.",
    )


def wish_of(requests: Sequence[Request], *, file: str = "trace") -> dict[str, Any]:
    """The SLO of some requests; those without a token in or out are left out.

    >>> wish = wish_of([(0.0, 100, 20, 0), (1.0, 50, 10, 0), (2.0, 0, 5, 0), (4.0, 70, 30, 0)])
    >>> wish["apps"]["text"]["rate_qps"], wish["apps"]["text"]["mix"]["observed"]
    (0.5, [[100, 20], [50, 10], [70, 30]])
    """
    served = sorted(one for one in requests if one[1] > 0 and one[2] > 0)
    if len(served) < 2 or served[-1][0] <= served[0][0]:
        raise InputError.one(
            file=file, value=f"{len(served)} requests", why="requests over some time, with tokens in and out",
            remedy="Give a longer trace.",
        )  # fmt: skip
    span = served[-1][0] - served[0][0]
    kept = served if len(served) <= MOST_LENGTHS else [served[place] for place in _standing_for_all(served)]
    cached = any(one[3] for one in kept)
    rows = [[*one[1:3], *([one[3]] if cached else [])] for one in kept]
    mix = {
        "axes": ["input_tokens", "output_tokens", *(["cached_tokens"] if cached else [])],
        "bins": _bins(np.array(rows)),
        "observed": rows,
    }
    demand = {"rate_qps": float(f"{(len(served) - 1) / span:.6g}"), "mix": mix}
    return {"format": "hetplan/slo/1.0", "apps": {"text": {"task": "chat", **demand}}}


def _standing_for_all(served: Sequence[Request]) -> list[int]:
    """Places of `MOST_LENGTHS` requests whose lengths are those of all, as nearly as may be, in the order of the trace.

    Requests are put in line by tokens in, in stretches that hold equally many tokens, and within a stretch by tokens
    out, up and down by turns; every so-manieth of that line is taken. Taken by time, their work is off by up to 2%.
    """
    lengths = np.array([one[1:3] for one in served])
    order, stretch = np.argsort(lengths[:, 0], kind="stable"), np.empty(len(served), dtype=np.int64)
    total = np.cumsum(lengths[order, 0])
    stretch[order] = total * math.isqrt(MOST_LENGTHS) // (total[-1] + 1)
    line = np.lexsort((np.where(stretch % 2 == 0, lengths[:, 1], -lengths[:, 1]), stretch))
    return sorted(line[((np.arange(MOST_LENGTHS) + 0.5) * len(served) / MOST_LENGTHS).astype(int)].tolist())


def _bins(rows: np.ndarray) -> list[list[int]]:
    """Upper ends of bins, cut where equally many tokens lie between; the last holds everything."""
    edges = []
    for axis, parts in enumerate(BINS):
        sizes = np.sort(rows[:, axis])
        total = np.cumsum(sizes)
        places = np.searchsorted(total, total[-1] * np.arange(1, parts) / parts)
        edges.append(sorted({*(int(sizes[place]) for place in places), int(sizes[-1])}))
    # What is cached is never above what comes in: one bin less than the input holds it.
    more = rows.shape[1] > 2
    return [[i, o, *([i - 1] if more else [])] for i in edges[0] for o in edges[1] if i > 1 or not more]
