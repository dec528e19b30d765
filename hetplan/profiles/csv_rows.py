"""CSV files of people: columns by their usual names, lines with their numbers, and what a cell says."""

from __future__ import annotations

import csv
import re
from pathlib import Path

from hetplan.errors import InputError
from hetplan.profiles.columns import TIMES
from hetplan.profiles.read_text import read_text

__all__ = ["as_id", "number_in", "read_rows"]

_OTHER_NAMES = {
    "variant": "model", "name": "model", "gpu": "machine", "hardware": "machine", "device": "machine",
    "instance": "machine", "batch_size": "batch", "ms": "mean_ms", "latency_ms": "mean_ms", "avg_ms": "mean_ms",
    "median_ms": "p50_ms", "stdev_ms": "std_ms", "accuracy": "quality", "price": "price_per_hour",
    **TIMES,
    "task": "step", "stage": "step",
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z")


def read_rows(
    path: Path, what: str, columns: str, *, plain: bool = True
) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns of a CSV, by their usual names if `plain`, and its lines with their numbers, without empty cells."""
    text = read_text(path)
    if not text.strip():
        remedy = f"Begin with a line of columns: {columns}."
        raise InputError.one(file=str(path), why=f"{what}; the file is empty", remedy=remedy)
    lines = text.splitlines()
    first = next(line for line in lines if line.strip())
    reader, found = csv.reader(lines, delimiter=max(",;\t", key=first.count)), list[tuple[int, list[str]]]()
    try:
        line = 1
        for cells in reader:
            if any(map(str.strip, cells)):
                found.append((line, cells))
            line = reader.line_num + 1  # blank lines count, and a cell in quotes may have several
    except csv.Error as error:
        raise InputError.one(file=str(path), why=f"{what}: {error}", remedy="Save it as CSV anew.") from None
    head = [_column(name) if plain else name.strip() for name in found[0][1]]
    for number, cells in found[1:]:
        if any(map(str.strip, cells[len(head) :])):  # at the end of a line cells may be left out
            why = f"{len(head)} cells at most, as in the first line, not {len(cells)}"
            raise InputError.one(
                file=str(path),
                path=f"line {number}",
                why=why,
                remedy="Name each column, or write numbers with a point.",
            )
    return head, [
        (number, {name: cell.strip() for name, cell in zip(head, cells, strict=False) if cell.strip()})
        for number, cells in found[1:]
    ]


def number_in(cell: str) -> float | None:
    """The number that a cell says, as people write it; None where it says none.

    >>> number_in("1.5e3"), number_in("1_0"), number_in("nan"), number_in("9,5")
    (1500.0, None, None, None)
    """
    return float(cell) if _NUMBER.match(cell) and abs(float(cell)) < 1e300 else None


def as_id(text: str) -> str:
    """A name as ids are written.

    >>> as_id("NVIDIA A10G (24 GB)")
    'nvidia-a10g-24-gb'
    """
    found = re.sub(r"[^a-z0-9._-]+", "-", text.strip().lower()).strip("-._")[:63]
    if not found:
        raise InputError.one(file="a name", value=text, why="letters or digits in it", remedy="Name it otherwise.")
    return found


def _column(name: str) -> str:
    plain = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    return _OTHER_NAMES.get(plain, plain)
