"""Measurements in CSV files: read for `hetplan init`, and put into the runs of the profile that names them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hetplan.errors import Fault, InputError
from hetplan.profiles.columns import RATES, TIMES
from hetplan.profiles.csv_rows import as_id, number_in, read_rows
from hetplan.profiles.json_path import shortened_text
from hetplan.profiles.lowering import SPEEDS
from hetplan.profiles.places import Steps
from hetplan.profiles.plain_data import whole_if_it_is
from hetplan.profiles.read_text import path_inside

__all__ = ["Row", "read_measurements", "with_measurements"]

_MEASURED = (*TIMES.values(), *RATES.values(), "samples")
_OF_A_RUN = ("load_s", "max_qps")
_OF_A_MODEL = ("step", "quality")
_COLUMNS = ("model", "step", "machine", "batch", *_MEASURED, *_OF_A_RUN, "quality", "price_per_hour")
_AXES = ("batch", "input_tokens", "output_tokens", "co_load")
_OTHER_AXIS = "axis_"
"""How the column of any other axis begins: a slip in a name must not make one."""
_MAY_BE_ZERO = ("std_ms", "mean_qps", "samples", "load_s", "price_per_hour")
_SHARED = {**dict.fromkeys(_OF_A_RUN, "run"), **dict.fromkeys(_OF_A_MODEL, "model"), "price_per_hour": "machine"}
"""Columns of which all lines of one thing say the same."""


@dataclass(frozen=True)
class Row:
    """One line: a model on a machine at a point, and what was measured there; cells that are empty were not."""

    line: int
    model: str
    machine: str
    at: Mapping[str, float]
    said: Mapping[str, float]
    step: str | None

    def of(self, kind: str) -> tuple[str, ...]:
        """Which run, model or machine the line is of."""
        return {"run": (self.model, self.machine), "model": (self.model,), "machine": (self.machine,)}[kind]


def read_measurements(path: Path, *, model: str | None = None, quotes: bool = True) -> list[Row]:
    """The lines of a CSV file of measurements; every wrong cell at once.

    Where the table names its models, `model` is the one of them that is taken. Only with `quotes` a fault may say what
    the first line is: a profile can name files that its author may not read.
    """
    header, lines = read_rows(path, "a table of latencies", "model, machine, batch, mean_ms")
    _check_header(header, str(path), model, quotes=quotes)
    named = list(dict.fromkeys(as_id(cells["model"]) for _, cells in lines if "model" in cells))
    if model is not None and named:
        if as_id(model) not in named:
            remedy = f"The table has {', '.join(named)}."
            raise InputError.one(file="--model", value=model, why=f"a model of {path}", remedy=remedy)
        lines = [(line, cells) for line, cells in lines if as_id(cells.get("model", model)) == as_id(model)]
    rows, faults = list[Row](), list[Fault]()
    for line, cells in lines:
        wrong = list(_wrong_cells(cells, header, str(path), line, needs_model=model is None))
        faults += wrong
        if not wrong:
            rows.append(_row(line, cells, model or "model"))
    faults += _contradictions(rows, str(path))
    if faults:
        raise InputError(faults)
    if not rows:
        why, remedy = "a line of latencies under the header", "Add what was measured."
        raise InputError.one(file=str(path), why=why, remedy=remedy)
    return rows


def _row(line: int, cells: Mapping[str, str], model: str) -> Row:
    numbers = {name: float(cell) for name, cell in cells.items() if name not in ("model", "machine", "step")}
    at = {name.removeprefix(_OTHER_AXIS): one for name, one in numbers.items() if _is_axis(name)}
    said = {name: one for name, one in numbers.items() if not _is_axis(name)}
    if not at and any(name in said for name in TIMES.values()):
        at = {"batch": 1.0}
    step = as_id(cells["step"]) if "step" in cells else None
    return Row(line, as_id(cells.get("model", model)), as_id(cells["machine"]), at, said, step)


def _is_axis(column: str) -> bool:
    return column in _AXES or (column.startswith(_OTHER_AXIS) and column != _OTHER_AXIS)


def _check_header(header: Sequence[str], file: str, model: str | None, *, quotes: bool) -> None:
    line = ",".join(header)[:80] if quotes else ""
    unknown = [
        name if quotes else f"number {number}"
        for number, name in enumerate(header, start=1)
        if name not in _COLUMNS and not _is_axis(name)
    ]
    why = ""
    if unknown:
        why = f"no such column: {', '.join(unknown)}"
    elif "machine" not in header or len(set(header)) < len(header):
        why = "the column machine, and each column once"
    elif "model" not in header and model is None:
        raise InputError.one(file=file, path="line 1", value=line, why="the column model",
                             remedy="Or use --model." if quotes else "Write model,machine,batch,mean_ms.")  # fmt: skip
    elif not any(name in header for name in SPEEDS if name != "std_ms"):
        why = "a column of times in ms"
    if why:
        remedy = (
            f"Name the columns model, machine, batch, mean_ms, ...; known are {', '.join((*_COLUMNS, *_AXES[1:]))}, "
            f"and {_OTHER_AXIS}NAME for another axis."
        )
        raise InputError.one(file=file, path="line 1", value=line, why=why, remedy=remedy)


def _wrong_cells(
    cells: Mapping[str, str], header: Sequence[str], file: str, line: int, *, needs_model: bool
) -> Iterator[Fault]:
    for name in ("machine", *(["step"] if "step" in header else []), *(["model"] if needs_model else [])):
        if name not in cells:
            yield Fault(file, f"line {line}", "", f"the {name} of this line", "Write it.")
    if not any(name in cells for name in SPEEDS if name != "std_ms"):
        yield Fault(file, f"line {line}", "", "a time in ms", "Write what was measured, or take the line out.")
    for name, cell in cells.items():
        if name in ("model", "machine", "step"):
            continue
        value = number_in(cell)
        least = -math.inf if name == "quality" or _is_axis(name) else 0.0 if name in _MAY_BE_ZERO else 1e-9
        whole = 1 if name == "batch" else 0 if name == "samples" else None
        want = "a number above 0" if least > 0 else "a number of at least 0" if least == 0 else "a number"
        if whole is not None:
            want = f"a whole number of at least {whole}"
        if value is None or value < least or (whole is not None and (value < whole or value != int(value))):
            comma = re.fullmatch(r"\d+,\d+", cell)
            remedy = f"Write {cell.replace(',', '.')}, with a point." if comma else "Correct the cell."
            yield Fault(file, f"line {line}, {name}", shortened_text(cell), want, remedy)


def _contradictions(rows: Sequence[Row], file: str) -> Iterator[Fault]:
    """Two lines of one point, and two words on one thing."""
    points: dict[object, int] = {}
    axes: dict[object, tuple[Sequence[str], int]] = {}
    shared: dict[object, tuple[object, int]] = {}
    for row in rows:
        first = points.setdefault((row.model, row.machine, tuple(sorted(row.at.items()))), row.line)
        if first != row.line:
            at = " and ".join(f"a {name} of {one:g}" for name, one in row.at.items())
            why = f"{row.model} on {row.machine}{f' with {at}' if at else ''} is in line {first} already"
            yield Fault(file, f"line {row.line}", "", why, "Keep one line: its mean, and its percentiles.")
        here = sorted(row.at)
        there, line = axes.setdefault(row.of("run"), (here, row.line))
        if there != here:
            why = f"{row.model} on {row.machine} over the axes of line {line}: {', '.join(there)}"
            yield Fault(file, f"line {row.line}", ", ".join(here), why, "Fill the same columns in each of its lines.")
        for name, kind in _SHARED.items():
            value = row.step if name == "step" else row.said.get(name)
            if value is None:
                continue
            held, line = shared.setdefault((name, row.of(kind)), (value, row.line))
            if held != value:
                written = held if isinstance(held, str) else f"{held:g}"
                why = f"one {name} of {' on '.join(row.of(kind))}, which is {written} in line {line}"
                yield Fault(file, f"line {row.line}, {name}", str(value), why, "Write one, or name it otherwise.")


def with_measurements(
    document: Mapping[str, Any], folder: Path | None, name: str
) -> tuple[dict[str, Any], dict[Steps, str]]:
    """The document with what its CSV files say, and without their names; and which run is of which file.

    `folder` is the profile's: files in it or below are read. A document has none, and gets none read.
    """
    said = document["measurements"]
    files = [said] if isinstance(said, str) else said
    if not isinstance(files, list | tuple) or not all(isinstance(one, str) and one for one in files):
        remedy = 'Write "measurements": "times.csv".'
        raise InputError.one(file=name, path="$.measurements", why="the name of a CSV file, or several", remedy=remedy)
    made = {key: one for key, one in document.items() if key != "measurements"}
    origin: dict[Steps, str] = {}
    for file in files:
        path = _path(file, folder, name)
        rows = read_measurements(path, quotes=False)

        def put(at: Steps, more: Mapping[str, Any], path: Path = path) -> tuple[bool, Steps]:
            return _put(made, at, more, str(path), name)

        runs: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            runs.setdefault((row.model, row.machine), []).append(row)
        for (model, machine), of_run in runs.items():
            is_new, at = put(("models", model, "runs", machine), _run(of_run))
            if is_new:
                origin[tuple(str(step).lower() for step in at)] = str(path)
        for row in rows:
            if row.step is not None:
                put(("models", row.model), {"task": row.step})
            if "quality" in row.said:
                put(("models", row.model), {"quality": row.said["quality"]})
            if "price_per_hour" in row.said:
                put(("machines", row.machine), {"price_per_hour": row.said["price_per_hour"]})
    return made, origin


def _path(file: str, folder: Path | None, name: str) -> Path:
    """The CSV file that a profile names; a profile may come from anywhere, and gets no other files of this machine."""
    if folder is None:
        why = "a CSV file is read beside a profile that is a file itself, and this is a document"
        remedy = "Put the rows into the profile, or give the profile as a file."
    elif (path := path_inside(folder, file)) is None:
        why, remedy = "a CSV file in the profile's own folder or below", "Copy it there, and write its relative path."
    elif not path.is_file():
        why, remedy = "a CSV file", f"Check its name, which counts from {folder.resolve()}."
    else:
        return folder / file
    raise InputError.one(file=name, path="$.measurements", value=shortened_text(file), why=why, remedy=remedy)


def _put(made: dict[str, Any], at: Steps, more: Mapping[str, Any], file: str, name: str) -> tuple[bool, Steps]:
    """Write into a document what nobody has said there, under ids in any letters: whether the place is new, and which.

    What it goes through is copied: the document is a caller's.
    """
    here, steps, is_new = made, list[str | int](), False
    for step in map(str, at):
        key = next((key for key in here if key.lower() == step), step)
        below = here.get(key)
        is_new = below is None
        if not isinstance(below, Mapping | None):
            _twice(at, str(key), file, name)
        here[key] = dict(below or {})
        here = here[key]
        steps.append(key)
    if "runs" in at and (said := sorted({*SPEEDS, "batch", "axes", *more} & here.keys())):
        _twice(at, said[0], file, name)
    for key, one in more.items():
        if here.setdefault(key, one) != one:
            _twice(at, key, file, name)
    return is_new, tuple(steps)


def _twice(at: Steps, key: str, file: str, name: str) -> NoReturn:
    ids = " on ".join(map(str, at[1::2]))
    why = f"what is said of {ids} in one place; {key} is in {name} as well"
    raise InputError.one(file=file, value=ids, why=why, remedy=f"Take it out of {name}, or of this file.")


def _run(rows: Sequence[Row]) -> dict[str, Any]:
    """One run: its points in the order of their axes, a nested list for each column."""
    axes = sorted(rows[0].at)
    steps = {axis: sorted({whole_if_it_is(row.at[axis]) for row in rows}) for axis in axes}
    by_place = {tuple(row.at[axis] for axis in axes): row.said for row in rows}
    made: dict[str, Any] = {"batch": steps["batch"]} if axes == ["batch"] else {"axes": steps}

    def nested(column: str, place: tuple[float, ...], left: Sequence[str]) -> Any:
        if left:
            return [nested(column, (*place, step), left[1:]) for step in steps[left[0]]]
        value = by_place.get(place, {}).get(column)
        return value if value is None else whole_if_it_is(value)

    for column in _MEASURED:
        if any(column in row.said for row in rows):
            made[column] = nested(column, (), axes)
    for column in _OF_A_RUN:
        said = [row.said[column] for row in rows if column in row.said]
        made |= {column: whole_if_it_is(said[0])} if said else {}
    return made
