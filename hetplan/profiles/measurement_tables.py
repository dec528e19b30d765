"""Measurements in CSV files beside a profile, put into the runs of its models."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.json_path import shortened_text
from hetplan.profiles.lowering import RATES, TIMES
from hetplan.profiles.read_text import path_inside, read_text

__all__ = ["with_measurements"]

_COLUMNS = (*TIMES.values(), *RATES.values(), "samples")
_OF_A_RUN = ("load_s", "max_qps", "price_per_hour")
"""Columns of which all rows of a run say the same."""


def with_measurements(document: Mapping[str, Any], folder: Path | None, name: str) -> dict[str, Any]:
    """The document with what its CSV files say under `models.*.runs`, and without their names.

    A row is a point: model, machine, batch or other axes, and what was measured there. A cell that is empty was not
    measured. `folder` is the profile's: files in it or below are read. A document has none, and gets none read.
    """
    said = document["measurements"]
    files = [said] if isinstance(said, str) else said
    if not isinstance(files, list | tuple) or not all(isinstance(one, str) and one for one in files):
        remedy = 'Write "measurements": "times.csv".'
        raise InputError.one(file=name, path="$.measurements", why="the name of a CSV file, or several", remedy=remedy)
    made = {key: one for key, one in document.items() if key != "measurements"}
    models = dict(made.get("models") or {})
    for file in files:
        path = _path(file, folder, name)
        for (model, machine), run in _runs(path).items():
            entry = dict(models.get(model) or {})
            runs = dict(entry.get("runs") or {})
            held = runs.get(machine)
            stated = sorted(set(run) & set(held)) if isinstance(held, Mapping) else []
            if stated or not isinstance(held, Mapping | None):
                why = f"measurements of {model} on {machine} in one place; {stated[0] if stated else 'runs'} is in both"
                remedy = f"Take them out of {name}, or of this file."
                raise InputError.one(file=str(path), value=f"{model}, {machine}", why=why, remedy=remedy)
            runs[machine] = {**(held or {}), **run}
            models[model] = {**entry, "runs": runs}
    return {**made, "models": models}


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


def _runs(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The runs of a file, by model and machine type."""
    rows = [row for row in csv.reader(read_text(path).splitlines()) if any(map(str.strip, row))]
    head = [one.strip() for one in rows[0]] if rows else []
    for needed in ("model", "machine"):
        if needed not in head:
            known = [one for one in head if one in ("model", "machine", "batch", *_COLUMNS, *_OF_A_RUN)]
            why = f"a column {needed}; of the known columns the first line names {', '.join(known) or 'none'}"
            raise InputError.one(file=str(path), path="line 1", why=why, remedy="Write model,machine,batch,mean_ms.")
    axes = [one for one in head if one not in ("model", "machine", *_COLUMNS, *_OF_A_RUN)]
    if unknown := [one for one in axes if one.endswith(("_ms", "_qps", "_s")) or not one.isidentifier()]:
        why = f"columns {', '.join((*_COLUMNS, *_OF_A_RUN))}, and axes; {len(unknown)} are neither"
        raise InputError.one(file=str(path), path="line 1", why=why, remedy="Rename the others.")
    found: dict[tuple[str, str], list[dict[str, float | None]]] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(head):
            why = f"{len(head)} cells, as in the first line, not {len(row)}"
            raise InputError.one(file=str(path), path=f"line {number}", why=why, remedy="Write a comma for each.")
        cells = dict(zip(head, map(str.strip, row), strict=True))
        key = (cells.pop("model"), cells.pop("machine"))
        found.setdefault(key, []).append({name: _number(path, number, name, one) for name, one in cells.items()})
    return {key: _run(path, key, points, axes) for key, points in found.items()}


def _number(path: Path, line: int, name: str, text: str) -> float | None:
    try:
        found = float(text) if text else None
    except ValueError:
        remedy = "Write a number, or nothing where nothing was measured."
        raise InputError.one(
            file=str(path), path=f"line {line}, {name}", value=text, why="a number", remedy=remedy
        ) from None
    return int(found) if found is not None and found.is_integer() else found


def _run(
    path: Path, key: tuple[str, str], points: Sequence[Mapping[str, float | None]], axes: Sequence[str]
) -> dict[str, Any]:
    """One run: its points in the order of their axes, a nested list for each column."""
    used = sorted(axis for axis in axes if any(one[axis] is not None for one in points))
    steps = {axis: sorted({one[axis] for one in points if one[axis] is not None}) for axis in used}  # type: ignore[type-var]
    by_place = {tuple(one[axis] for axis in used): one for one in points}
    if len(by_place) < len(points):
        why = f"{', '.join(key)}: two rows at one point"
        raise InputError.one(file=str(path), why=why, remedy="Keep one of them, or add a column for what differs.")
    made: dict[str, Any] = {"batch": steps["batch"]} if used == ["batch"] else {"axes": steps}

    def nested(column: str, place: tuple[float, ...], left: Sequence[str]) -> Any:
        if left:
            return [nested(column, (*place, step), left[1:]) for step in steps[left[0]]]  # type: ignore[arg-type]
        return by_place.get(place, {}).get(column)

    for column in _COLUMNS:
        if any(one.get(column) is not None for one in points):
            made[column] = nested(column, (), used)
    for name in _OF_A_RUN:
        values = {one[name] for one in points if one.get(name) is not None}
        if len(values) > 1:
            why = f"{', '.join(key)}: one {name} in all rows"
            raise InputError.one(file=str(path), value=str(sorted(map(str, values))), why=why, remedy="Mend it.")
        if values:
            made[name] = values.pop()
    return made
