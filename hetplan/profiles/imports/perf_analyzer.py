"""CSV files of Triton's perf_analyzer (``perf_analyzer -m MODEL ... -f FILE.csv``) and Model Analyzer.

The columns read are ``Concurrency`` (or ``Request Rate``), ``Inferences/Second``, the components of the mean latency
(``Client Send`` to ``Client Recv``; or ``Avg latency`` of a ``--verbose-csv`` file) and ``p50 latency`` ...
``p99 latency``, all in microseconds. Others are left alone.

Only at the lowest concurrency (or rate) of a batch size is a latency that of serving: further up requests wait for one
another. So that row gives the latency table, and the highest ``Inferences/Second`` of all rows the saturation. At a
concurrency above 1 the table says so (``given.concurrency``).

A file says neither the batch size nor the machine nor the model. A column ``Batch`` or ``Batch Size`` may be put in
front (without it, the batch is 1), and the name of the file may be ``MODEL@HARDWARE.csv``.

Model Analyzer's file of models (``metrics-model-inference.csv``) has a line per model, client's batch, load and
configuration: each configuration becomes a variant of the model, by its p99 at the lowest load of each batch, and by
the most that it answered. Its file of GPUs says memory and power, and no times: it is refused by name.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.imports.words import id_of
from hetplan.profiles.json_path import shortened_text
from hetplan.profiles.lowering import batch_rate
from hetplan.profiles.new_files import model_of, new_profile
from hetplan.profiles.plain_data import whole_if_it_is
from hetplan.profiles.read_text import read_text
from hetplan.profiles.saturation import AT_ONCE, ONE_BY_ONE

__all__ = ["convert", "convert_text"]

_LOADS = ("Concurrency", "Request Rate")
_RATE = "Inferences/Second"
_BATCHES = ("Batch", "Batch Size")
_PARTS = (
    "Client Send",
    "Network+Server Send/Recv",
    "Server Queue",
    "Server Compute Input",
    "Server Compute Infer",
    "Server Compute Output",
    "Server Cache Hit",
    "Server Cache Miss",
    "Client Recv",
)
"""Their sum is the mean latency as the client sees it."""
_PERCENTILES = ("p50", "p90", "p95", "p99")


def convert(path: str | os.PathLike[str]) -> tuple[dict[str, Any], None]:
    """The profile of one CSV file; it holds no wish, so there is no SLO."""
    text = read_text(path, wanted="perf_analyzer's CSV file")
    if "Model Config Path" in (text.splitlines() or [""])[0]:
        return _analyzed(text, str(path)), None
    variant, _, hardware = Path(path).stem.partition("@")
    return convert_text(text, file=str(path), variant=variant, hardware=hardware), None


_THROUGHPUT, _TAIL, _CONFIG = "Throughput (infer/sec)", "p99 Latency (ms)", "Model Config Path"


def _analyzed(text: str, file: str) -> dict[str, Any]:
    """The profile of Model Analyzer's file: a variant for each configuration."""
    rows = list(enumerate(csv.DictReader(text.splitlines(), restkey="", restval=""), start=2))
    header = list(rows[0][1]) if rows else []
    load = next((name for name in _LOADS if name in header), None)
    if load is None or _TAIL not in header or _THROUGHPUT not in header:
        why = f"the columns {_LOADS[0]} (or {_LOADS[1]}), {_THROUGHPUT} and {_TAIL}"
        remedy = "Give metrics-model-inference.csv; the file of GPUs has no times."
        raise InputError.one(file=file, path="line 1", value=", ".join(header)[:80], why=why, remedy=remedy)
    models: dict[str, Any] = {}
    groups: dict[tuple[str, str], list[tuple[int, Mapping[str, str]]]] = {}
    for number, line in rows:
        if any(line.values()):
            groups.setdefault((line["Model"], line[_CONFIG]), []).append((number, line))
    for (model, config), mine in groups.items():
        task, name = id_of(model, "model"), id_of(config, "model")
        lowest: dict[float, tuple[int, Mapping[str, str]]] = {}
        most: dict[float, float] = {}
        for number, row in mine:
            size = _number(row, "Batch", file, number)
            most[size] = max(most.get(size, 0.0), _number(row, _THROUGHPUT, file, number))
            held = lowest.get(size)
            if held is None or _number(row, load, file, number) < _number(held[1], load, file, held[0]):
                lowest[size] = (number, row)
        sizes = sorted(lowest)
        best = max(sizes, key=lambda size: most[size])
        given = max(_number(lowest[size][1], load, file, lowest[size][0]) for size in sizes)
        said = {"request_rate_qps": given} if load == "Request Rate" else {"concurrency": given} if given > 1 else {}
        # The p99 is no mean: more may have been answered than batches of that length allow.
        at_once = AT_ONCE if best > 1 else ONE_BY_ONE
        allowed = at_once * 1000.0 * best / _number(lowest[best][1], _TAIL, file, lowest[best][0])
        run = _run(best, min(most[best], allowed), {
            "batch": [whole_if_it_is(size) for size in sizes],
            "p99_ms": [_number(lowest[size][1], _TAIL, file, lowest[size][0]) for size in sizes],
        })  # fmt: skip
        models[name] = model_of(task, name, [("server", run | ({"given": said} if said else {}))])
    return new_profile(
        {"name": "import", "kind": "imported", "tool": "Model Analyzer", "note": "p99 alone, no means"},
        machines={"server": {"kind": "server"}},
        models=models,
    )


def _run(best: float, most_qps: float, columns: dict[str, Any]) -> dict[str, Any]:
    """A run whose most throughput was seen at one of its batch sizes."""
    at = {"batch": whole_if_it_is(best)}
    alone = columns["batch"] == [best]
    run = columns if alone else {"at": at, **columns}
    return run if alone and batch_rate(run) == most_qps else {**run, "max_qps": most_qps}


def convert_text(text: str, *, file: str, variant: str = "model", hardware: str = "") -> dict[str, Any]:
    """As `convert`, of the text of a file.

    >>> text = '''Concurrency,Inferences/Second,Client Send,Client Recv,p50 latency,p99 latency
    ... 1,70,225,100,13891,21018
    ... 4,110,250,100,35000,52000
    ... '''
    >>> profile = convert_text(text, file="perf.csv")
    >>> run = profile["models"]["model"]["runs"]["server"]
    >>> run["p99_ms"], run["max_qps"]
    ([21.018], 110.0)
    """
    rows = list(csv.DictReader(text.splitlines(), restkey="", restval=""))
    header = list(rows[0]) if rows else []
    load = next((name for name in _LOADS if name in header), None)
    if load is None or _RATE not in header:
        raise InputError.one(
            file=file, path="line 1", value=shortened_text(text.splitlines()[0] if text.strip() else ""),
            why=f"the columns {_LOADS[0]} (or {_LOADS[1]}) and {_RATE}", remedy="Give a file written with -f.",
        )  # fmt: skip
    batch = next((name for name in _BATCHES if name in header), None)
    lowest: dict[float, tuple[int, Mapping[str, str]]] = {}
    highest_qps: dict[float, float] = {}
    for number, row in enumerate(rows, start=2):
        size = _number(row, batch, file, number) if batch is not None else 1.0
        highest_qps[size] = max(highest_qps.get(size, 0.0), _number(row, _RATE, file, number))
        held = lowest.get(size)
        if held is None or _number(row, load, file, number) < _number(held[1], load, file, held[0]):
            lowest[size] = (number, row)
    sizes = sorted(lowest)
    columns = _columns(sizes, [lowest[size] for size in sizes], load, file)
    best = max(sizes, key=lambda size: highest_qps[size])
    name, machine = id_of(variant, "model"), id_of(hardware, "server")
    return new_profile(
        {"name": "import", "kind": "imported", "tool": "perf_analyzer"},
        machines={machine: {"kind": "server"}},
        models={name: model_of(name, name, [(machine, _run(best, highest_qps[best], columns))])},
    )


def _columns(
    sizes: Sequence[float], rows: Sequence[tuple[int, Mapping[str, str]]], load: str, file: str
) -> dict[str, Any]:
    columns: dict[str, Any] = {"batch": [whole_if_it_is(size) for size in sizes]}
    means = [_mean_us(row, file, number) for number, row in rows]
    if all(mean is not None for mean in means):
        columns["mean_ms"] = [_ms(mean) for mean in means if mean is not None]
    for name in _PERCENTILES:
        column = f"{name} latency"
        if column in rows[0][1]:
            columns[f"{name}_ms"] = [_ms(_number(row, column, file, number)) for number, row in rows]
    if len(columns) == 1:
        raise InputError.one(
            file=file, path="line 1", why="a column of latency: p50 latency, Avg latency, or parts of the mean",
            remedy="Give a file written with -f.",
        )  # fmt: skip
    given = max(_number(row, load, file, number) for number, row in rows)
    if load == "Request Rate":
        columns["given"] = {"request_rate_qps": given}
    elif given > 1:
        columns["given"] = {"concurrency": given}
    return columns


def _mean_us(row: Mapping[str, str], file: str, number: int) -> float | None:
    if row.get("Avg latency"):
        return _number(row, "Avg latency", file, number)
    # Without the server's part the components leave out nearly all of it.
    if "Server Compute Infer" not in row and "Server Compute" not in row:
        return None
    return sum(_number(row, name, file, number) for name in (*_PARTS, "Server Compute") if row.get(name))


def _number(row: Mapping[str, str], column: str, file: str, number: int) -> float:
    text = row.get(column) or ""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise InputError.one(
            file=file, path=f"line {number}, column {column}", value=shortened_text(str(text)),
            why="a number of 0 or more", remedy="Mend or remove the line.",
        )  # fmt: skip
    return value


def _ms(microseconds: float) -> float:
    return float(f"{microseconds / 1000.0:.6g}")
