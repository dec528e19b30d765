"""The first files of somebody who has measured the settings of a pipeline: a table with a line per setting.

Columns that end in `_ms` are steps, in their order, and say how long each takes for one query; `quality` says how good
the answers are; `samples` and `quality_se` how sure that is. Every other column is a knob. The lines become
measurements, as every command reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.profiles.csv_rows import as_id, read_rows
from hetplan.profiles.first_files import Machine
from hetplan.profiles.new_files import price_of
from hetplan.profiles.read_json import format_of

__all__ = ["Settings", "read_settings_table", "settings_files"]

_KNOWN = ("quality", "quality_se", "samples")
_SAMPLES = 100


@dataclass(frozen=True)
class Settings:
    """What a table of settings says: knobs with their values, steps, and a measurement per line."""

    knobs: dict[str, list[Any]]
    steps: list[str]
    measured: list[dict[str, Any]]
    counted: bool


def read_settings_table(path: Path) -> Settings:
    """A CSV of measured settings; every wrong cell at once."""
    header, rows = read_rows(path, "a table of measured settings", "knobs, quality, and STEP_ms of each step")
    steps = [name for name in header if name.endswith("_ms") and len(name) > 3]
    knobs = [name for name in header if name not in (*steps, *_KNOWN)]
    if {"machine", "batch"} & set(header):
        why = "a column for each knob; a table of latencies has machine and batch"
        remedy = "Use --latencies for it; here a line is a setting, all on one kind of machine."
        raise InputError.one(file=str(path), path="line 1", value=", ".join(header), why=why, remedy=remedy)
    if not steps or not knobs or "quality" not in header or len(set(header)) < len(header):
        why = "columns of knobs, quality, and for each step its time (detect_ms, ...), each once"
        raise InputError.one(file=str(path), path="line 1", value=", ".join(header), why=why, remedy="Rename them so.")
    faults: list[Fault] = []
    measured: list[dict[str, Any]] = []
    seen: dict[tuple[tuple[str, Any], ...], int] = {}
    for line, row in rows:
        numbers = {name: _number(row.get(name)) for name in (*steps, *_KNOWN) if name in row or name not in _KNOWN[1:]}
        at = f"line {line}"
        for name, value in numbers.items():
            if value is None or (name != "quality" and value < 0):
                faults.append(Fault(str(path), f"{at}, {name}", row.get(name, ""), "a number", "Correct the cell."))
        faults += [Fault(str(path), f"{at}, {name}", "", "the value of this knob", "Write it.")
                   for name in knobs if name not in row]  # fmt: skip
        values = {name: _value(row.get(name, "")) for name in knobs}
        first = seen.setdefault(tuple(values.items()), line)
        if first != line:
            faults.append(Fault(str(path), at, "", f"the same setting as in line {first}", "Keep one of them."))
        if not faults:
            measured.append(_measurement(values, numbers, steps))
    if not rows:
        raise InputError.one(file=str(path), why="a line per setting under the header", remedy="Add what was measured.")
    if faults:
        raise InputError(faults)
    known = {name: list(dict.fromkeys(one["knobs"][name] for one in measured)) for name in knobs}
    return Settings(known, [_step(name) for name in steps], measured, "samples" in header)


def _measurement(knobs: dict[str, Any], numbers: dict[str, Any], steps: Sequence[str]) -> dict[str, Any]:
    """One line as a search leaves it; whether it is good enough is read off its mean, by the wish of the day."""
    quality, samples = numbers["quality"], int(numbers.get("samples") or _SAMPLES)
    spread = math.sqrt(max(0.0, quality * (1.0 - quality)) / max(1, samples))
    seconds = {_step(name): numbers[name] / 1000.0 for name in steps}
    return {
        "knobs": knobs, "verdict": "pass", "passes": True, "samples": samples, "mean": quality,
        "se": numbers.get("quality_se") or float(f"{spread:.6g}"), "constant": True, "gpu_s": 0.0,
        "input_bytes": 0.0,
        "seconds": seconds, "bytes": dict.fromkeys(seconds, 0.0),
    }  # fmt: skip


def settings_files(
    table: Settings, machine: Machine, app: str, wish: dict[str, Any], budget: str | None
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[str]]:
    """The profile, the SLO, the measurements, and what was assumed: all steps run on machines of one kind."""
    gpu = machine.name
    stock = {"stock": machine.stock} if machine.stock is not None else {}
    priced = {} if machine.price is None else {"price_per_hour": price_of(machine.price), **stock, "per": "gpu"}
    edges = [{"from": one, "to": other} for one, other in pairwise(table.steps)]
    chain = {"edges": edges} if edges else {}
    profile: dict[str, Any] = {
        "format": format_of("profile"),
        "machines": {gpu: {"tier": "cloud", "relative_time": 1.0, "provides": {"gpu": 1}, **priced}},
        "metrics": {"quality": {"better": "higher"}},
        "pipelines": {
            app: {
                "stages": {step: {"resource": "gpu"} for step in table.steps},
                **chain,
                "knobs": table.knobs,
                "metric": "quality",
            }
        },
        "reference": gpu,
        "tiers": ["cloud"],
    }
    best = ["max quality", "min cost"] if "quality" not in wish else "min cost"
    slo: dict[str, Any] = {"format": format_of("slo"), "objective": best}
    if budget is not None:
        slo["limits"] = {"cost_per_hour": budget}
    slo["apps"] = {app: {"pipeline": app, **wish}}
    measured = {"format": "hetplan/measured/1.0", "apps": {app: table.measured}}
    assumed = [
        f"the times were measured on {gpu}, where all steps run (tiers, reference)",
        "the steps follow one another in the order of their columns, once for each query (pipelines.edges)",
        "a step that gets half of a machine takes twice the time, and shares are paid for (share_law, per)",
        "what one step hands to the next costs no time (bytes)",
    ]
    if not table.counted:
        assumed.append(f"each quality is the mean of {_SAMPLES} samples (no column samples)")
    if machine.stock is None:
        assumed.append("as many machines as are wanted can be rented (no stock is stated)")
    return profile, slo, measured, assumed


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _value(text: str) -> Any:
    number = _number(text)
    return text if number is None else int(number) if number.is_integer() else number


def _step(column: str) -> str:
    return as_id(column.removesuffix("_ms"))
