"""The first profile and SLO of somebody who has a model, prices and a table of latencies (`hetplan init`).

What was not said gets a default, and every default is listed, so that nobody trusts it unseen.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.profiles.file_format import VERSIONS
from hetplan.profiles.read_text import read_text

__all__ = [
    "Answers",
    "Machine",
    "Timing",
    "comments_on",
    "first_files",
    "read_latencies",
    "read_machine",
    "read_timings",
]

_STATISTICS = ("mean", "std", "p50", "p90", "p95", "p99", "max")
_OTHER_NAMES = {
    "variant": "model", "name": "model", "gpu": "hardware", "machine": "hardware", "device": "hardware",
    "instance": "hardware", "batch_size": "batch", "ms": "mean_ms", "latency_ms": "mean_ms", "avg_ms": "mean_ms",
    "median_ms": "p50_ms", "stdev_ms": "std_ms", "accuracy": "quality", "price": "price_per_hour",
}  # fmt: skip
_COLUMNS = ("model", "hardware", "batch", *(f"{name}_ms" for name in _STATISTICS), "quality", "price_per_hour")


@dataclass(frozen=True)
class Machine:
    """A kind of machine that can be rented; `price` is per hour, as written."""

    name: str
    price: str | None = None
    stock: int | None = None
    kind: str = "gpu"


@dataclass(frozen=True)
class Timing:
    """How long a model takes for one batch on one hardware, by statistic, in ms."""

    model: str
    hardware: str
    batch: int
    ms: Mapping[str, float]


@dataclass(frozen=True)
class Answers:
    """All that was said."""

    machines: Sequence[Machine]
    timings: Sequence[Timing]
    rate_qps: float
    percentile: float
    max_ms: float
    app: str = ""
    quality: Mapping[str, float] = field(default_factory=dict)
    least_quality: float | None = None
    cost_per_hour: str | None = None
    currency: str = "USD"


def read_machine(text: str, kind: str = "gpu") -> Machine:
    """A machine as the command line has it: NAME, NAME=PRICE or NAME=PRICE:STOCK.

    >>> read_machine("t4=0.526:20")
    Machine(name='t4', price='0.526', stock=20, kind='gpu')
    """
    name, _, rest = text.partition("=")
    price, _, stock = rest.partition(":")
    price = f"0{price}" if price.startswith(".") else price
    right = re.fullmatch(r"[0-9]+(\.[0-9]+)?", price) if price else "=" not in text
    if not name.strip() or not right or (stock and not stock.isdigit()):
        remedy = "Write NAME=PRICE or NAME=PRICE:STOCK, the price per hour: t4=0.526 or t4=0.526:20."
        raise InputError.one(file=f"--{kind}", value=text, why="a machine and its price", remedy=remedy)
    return Machine(_id(name), price or None, int(stock) if stock else None, kind)


def read_timings(text: str, model: str) -> list[Timing]:
    """Latencies as the command line has them: HARDWARE:BATCH=MS,BATCH=MS; without a batch it is 1.

    >>> [(one.batch, one.ms["mean"]) for one in read_timings("t4:1=6,8=24", "m")]
    [(1, 6.0), (8, 24.0)]
    """
    hardware, _, points = text.partition(":")
    found = []
    for point in points.split(","):
        batch, _, ms = point.rpartition("=")
        try:
            size, time = int(batch or "1"), float(ms)
        except ValueError:
            size, time = 0, 0.0
        if not hardware.strip() or size < 1 or not 0 < time < math.inf:
            remedy = "Write HARDWARE:BATCH=MS,...: t4:1=6,8=24."
            raise InputError.one(file="--ms", value=text, why="batches and how long each takes in ms", remedy=remedy)
        found.append(Timing(model, _id(hardware), size, {"mean": time}))
    return found


def read_latencies(path: Path, model: str | None = None) -> tuple[list[Timing], dict[str, float], dict[str, Machine]]:
    """A CSV of latencies: its timings, the models' qualities, the machines' prices; every wrong cell at once."""
    text = read_text(path)
    if not text.strip():
        remedy = "Begin with a line of columns: hardware, batch, mean_ms."
        raise InputError.one(file=str(path), why="a table of latencies; the file is empty", remedy=remedy)
    sample = text.splitlines()[0]
    rows = list(csv.reader(text.splitlines(), delimiter=max(",;\t", key=sample.count)))
    header = [_column(name) for name in rows[0]]
    _check_header(header, str(path), model, sample)
    timings, quality, machines, faults = [], {}, {}, []
    for line, cells in enumerate(rows[1:], start=2):
        row = {name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()}
        if not row:
            continue
        wrong = list(_wrong_cells(row, str(path), line))
        if wrong:
            faults += wrong
            continue
        name = _id(row.get("model", model or "model"))
        hardware = _id(row["hardware"])
        ms = {stat: float(row[f"{stat}_ms"]) for stat in _STATISTICS if f"{stat}_ms" in row}
        timings.append(Timing(name, hardware, int(float(row.get("batch", "1"))), ms))
        if "quality" in row:
            quality[name] = float(row["quality"])
        if "price_per_hour" in row:
            machines[hardware] = Machine(hardware, row["price_per_hour"], None, _kind(hardware))
    if faults:
        raise InputError(faults)
    if not timings:
        raise InputError.one(
            file=str(path), why="a line of latencies under the header", remedy="Add what was measured."
        )
    return timings, quality, machines


def _check_header(header: Sequence[str], file: str, model: str | None, line: str) -> None:
    unknown = [name for name in header if name not in _COLUMNS]
    remedy = f"Name the columns model, hardware, batch, mean_ms, ...; known are {', '.join(_COLUMNS)}."
    if unknown or "hardware" not in header or len(set(header)) < len(header):
        why = f"no such column: {', '.join(unknown)}" if unknown else "the column hardware, and each column once"
        raise InputError.one(file=file, path="line 1", value=line[:80], why=why, remedy=remedy)
    if "model" not in header and model is None:
        raise InputError.one(
            file=file, path="line 1", value=line[:80], why="the column model", remedy="Or use --model."
        )
    if not any(f"{name}_ms" in header for name in _STATISTICS if name != "std"):
        raise InputError.one(file=file, path="line 1", value=line[:80], why="a column of times in ms", remedy=remedy)


def _wrong_cells(row: Mapping[str, str], file: str, line: int) -> Iterator[Fault]:
    if "hardware" not in row:
        yield Fault(file, f"line {line}", "", "the hardware of this line", "Write it.")
    if not any(f"{name}_ms" in row for name in _STATISTICS if name != "std"):
        yield Fault(file, f"line {line}", "", "a time in ms", "Write what was measured, or take the line out.")
    for name, cell in row.items():
        if name in ("model", "hardware"):
            continue
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        least = 0.0 if name in ("std_ms", "price_per_hour") else -math.inf if name == "quality" else 1e-9
        if not (math.isfinite(value) and value >= least) or (name == "batch" and (value < 1 or value != int(value))):
            want = (
                "a whole number of at least 1" if name == "batch" else "a number above 0" if least > 0 else "a number"
            )
            comma = re.fullmatch(r"\d+,\d+", cell)
            remedy = f"Write {cell.replace(',', '.')}, with a point." if comma else "Correct the cell."
            yield Fault(file, f"line {line}, {name}", cell, want, remedy)


def first_files(said: Answers) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The profile, the SLO, and what was assumed.

    >>> said = Answers([read_machine("t4=0.526")], read_timings("t4:1=6,8=24", "resnet"), 100, 99, 60)
    >>> profile, slo, assumed = first_files(said)
    >>> profile["tables"]["resnet-t4"]["mean"], slo["apps"]["resnet"]["demand"]["rate_qps"]
    ([6.0, 24.0], 100)
    """
    models = list(dict.fromkeys(one.model for one in said.timings))
    machines = {one.name: one for one in said.machines}
    missing = [one.hardware for one in said.timings if one.hardware not in machines]
    machines |= {name: Machine(name, kind=_kind(name)) for name in missing}
    unmeasured = sorted(machines.keys() - {one.hardware for one in said.timings})
    if unmeasured:
        raise InputError.one(
            file=", ".join(f"--gpu {name}" for name in unmeasured), why="latencies of each machine",
            remedy=f"Add --ms {unmeasured[0]}:1=MS, or lines to the table.",
        )  # fmt: skip
    app = _id(said.app) if said.app else models[0] if len(models) == 1 else "app"
    tables = {f"{model}-{name}": _table(said, model, name) for model in models for name in machines}
    tables = {name: table for name, table in tables.items() if table["axes"]["batch"]}
    source = {"own": {"kind": "measured", "note": "given to hetplan init"}}
    profile = {
        "format": _format("profile"),
        "sources": source,
        **({"metrics": {"quality": {"better": "higher"}}} if said.quality else {}),
        "hardware": {name: _hardware(one) for name, one in machines.items()},
        "offers": {name: _offer(one, said.currency) for name, one in machines.items() if one.price is not None},
        "tasks": {app: {"metric": "quality"} if said.quality else {}},
        "variants": {model: _variant(said, model, app, tables, machines) for model in models},
        "tables": tables,
    }
    wish: dict[str, Any] = {
        "runs": {"variants": models},
        "latency": [{"of": "response", "percentile": _plain(said.percentile), "max_ms": _plain(said.max_ms)}],
        "demand": {"rate_qps": _plain(said.rate_qps), "arrivals": {"process": "poisson"}},
    }
    if said.least_quality is not None:
        wish["quality"] = {"min": said.least_quality}
    slo: dict[str, Any] = {"format": _format("slo"), "objective": [{"min": "cost"}], "apps": {app: wish}}
    if said.cost_per_hour is not None:
        slo["limits"] = {"cost_per_hour": said.cost_per_hour, "currency": said.currency}
    return profile, slo, list(_assumed(said, machines.values()))


def _assumed(said: Answers, machines: Iterable[Machine]) -> Iterator[str]:
    yield "queries come by chance, independent of one another (demand.arrivals: poisson)"
    if unpriced := [one.name for one in machines if one.price is None]:
        yield f"no price of {', '.join(unpriced)}: add offers, else a machine without one is not rented beside others"
    if any(one.stock is None for one in machines):
        yield "as many machines as are wanted can be rented (offers without a stock)"
    if not any({"std", "p95", "p99"} & one.ms.keys() for one in said.timings):
        yield "a batch always takes the time that was given (tables without std or percentiles)"
    if all(one.batch == 1 for one in said.timings):
        yield "queries are served one at a time (no latencies of larger batches)"
    yield "an instance has its machine to itself (runs without needs)"


def _table(said: Answers, model: str, hardware: str) -> dict[str, Any]:
    mine = {one.batch: one.ms for one in said.timings if (one.model, one.hardware) == (model, hardware)}
    batches = sorted(mine)
    stats = [name for name in _STATISTICS if batches and all(name in mine[batch] for batch in batches)]
    if batches and stats in ([], ["std"]):
        raise InputError.one(
            file="the latencies", path=f"{model} on {hardware}",
            why="one statistic (mean_ms, p95_ms, ...) of every batch",
            remedy="Fill the column, or take the lines without it out.",
        )  # fmt: skip
    values = {name: [mine[batch][name] for batch in batches] for name in stats}
    return {"quantity": "latency_ms", "axes": {"batch": batches}, **values, "source": "own"}


def _variant(
    said: Answers, model: str, task: str, tables: Mapping[str, Any], machines: Mapping[str, Machine]
) -> dict[str, Any]:
    runs = [{"hardware": name, "latency": f"{model}-{name}"} for name in machines if f"{model}-{name}" in tables]
    quality = {"quality": {"value": said.quality[model]}} if model in said.quality else {}
    return {"task": task, **quality, "runs": runs}


def _hardware(machine: Machine) -> dict[str, Any]:
    return {"kind": machine.kind}


def _offer(machine: Machine, currency: str) -> dict[str, Any]:
    stock = {"stock": machine.stock} if machine.stock is not None else {}
    return {"hardware": machine.name, "price_per_hour": machine.price, "currency": currency, **stock}


def _format(kind: str) -> str:
    major, minor = VERSIONS[kind]
    return f"hetplan/{kind}/{major}.{minor}"


def _column(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    return _OTHER_NAMES.get(plain, plain)


def _id(text: str) -> str:
    """A name as ids are written.

    >>> _id("NVIDIA A10G (24 GB)")
    'nvidia-a10g-24-gb'
    """
    found = re.sub(r"[^a-z0-9._-]+", "-", text.strip().lower()).strip("-._")[:63]
    if not found:
        raise InputError.one(file="a name", value=text, why="letters or digits in it", remedy="Name it otherwise.")
    return found


def _kind(hardware: str) -> str:
    return "cpu" if "cpu" in hardware else "gpu"


def _plain(value: float) -> float | int:
    return int(value) if float(value).is_integer() else value


def comments_on(document: Mapping[str, Any], assumed: Sequence[str]) -> dict[tuple[str | int, ...], str]:
    """What a reader of a first file wants to know, by its place; what was assumed is at the top."""
    kind = str(document["format"]).split("/")[1]
    top = {"profile": "What was measured: machines, prices, models and their times.",
           "slo": "What is wanted: how fast, how many, for how much."}  # fmt: skip
    found: dict[tuple[str | int, ...], str] = {
        (): "\n".join([top[kind], "Assumed, because you did not say otherwise:", *(f"- {text}" for text in assumed)]),
        ("offers",): "price_per_hour of a machine; stock: how many can be had (left out: any number)",
        ("variants",): "what may run where; needs of a run would let machines be shared",
        ("tables",): "mean ms that a batch takes, by its size; std, p95 and p99 may be given too",
        ("objective",): "the first that is minimised or maximised; more may follow",
        ("limits",): "what may be spent, at most",
    }
    for name in document.get("apps", {}):
        found["apps", name, "latency"] = "so many percent of the queries are answered within max_ms"
        found["apps", name, "demand"] = "queries per second, and how they come"
    return found
