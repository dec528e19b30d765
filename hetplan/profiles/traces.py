"""Recorded arrivals: a CSV file beside the SLO file, read, scaled and compressed.

Without a header a file has one arrival time per line, in seconds. With a header it is a CSV file of which the column
`arrival_s` or `arrival_ms` is read; other columns may be there too. Blank lines and lines that start with `#` are
skipped. Times are finite and do not fall; the first is time 0 after reading. Rates per step are no trace: they belong
to `rate_qps.series`, or have to be drawn into arrivals first.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import Fault, InputError
from hetplan.profiles.json_path import shortened_text
from hetplan.profiles.read_text import path_inside
from hetplan.profiles.slo import Slo
from hetplan.profiles.slo_sections import TraceRef

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["parse_arrivals", "read_trace", "read_traces", "resize"]

_COLUMNS = {"arrival_s": 1.0, "arrival_ms": 1e-3}


def read_trace(reference: TraceRef, folder: Path, *, file: str, path: str) -> tuple[NDArray[np.float64], str]:
    """The arrival times of a trace in seconds, scaled and compressed, and the SHA-256 of its bytes.

    `folder` is the SLO file's; a trace outside it is refused, for an SLO file may come from anywhere. `file` and `path`
    say where the reference is.
    """
    data = _read_inside(reference.file, folder, file=file, path=path)
    found = hashlib.sha256(data).hexdigest()
    if reference.sha256 is not None and not found.startswith(reference.sha256):
        raise InputError.one(
            file=file,
            path=f"{path}.sha256",
            value=reference.sha256,
            why=f"the SHA-256 of {reference.file}, which is {found}",
            remedy="Fetch the right file, or write its new hash.",
        )
    return resize(parse_arrivals(data, name=reference.file), reference), f"sha256:{found}"


def read_traces(slo: Slo, folder: Path, name: str, traces: dict[str, Any], hashes: dict[str, str]) -> Sequence[Fault]:
    """Every trace that an SLO of this name names: arrival times and hashes, by application; what is wrong with them."""
    faults: list[Fault] = []
    for app_id, app in slo.apps.items():
        if app.trace is not None:
            path = f"$.apps.{app_id}.rate_qps.trace"
            try:
                traces[app_id], hashes[app_id] = read_trace(app.trace, folder, file=name, path=path)
            except InputError as error:
                faults += error.faults
    return faults


def _read_inside(name: str, folder: Path, *, file: str, path: str) -> bytes:
    def fault(why: str, remedy: str) -> InputError:
        return InputError.one(file=file, path=f"{path}.file", value=shortened_text(name), why=why, remedy=remedy)

    whole = path_inside(folder, name)
    if whole is None:
        raise fault("a trace in the SLO file's own folder or below", "Copy it there, and write its relative path.")
    try:
        return whole.read_bytes()
    except (OSError, ValueError):
        raise fault("there is no such file to read", "Put the trace beside the SLO file, or mend its name.") from None


def parse_arrivals(data: bytes, *, name: str) -> NDArray[np.float64]:
    """The arrival times in seconds, from 0, of a trace file's bytes.

    >>> parse_arrivals(b"arrival_ms,tokens\\n1000,7\\n1500,9\\n", name="trace.csv").tolist()
    [0.0, 0.5]
    """
    import numpy as np

    try:
        lines = data.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        why = f"text in UTF-8; byte {error.start} is none"
        raise InputError.one(file=name, why=why, remedy="Save it as UTF-8.") from None
    rows = [(number, line) for number, line in enumerate(lines, start=1) if line.strip() and line.lstrip()[0] != "#"]
    column, unit, rows = _column_of(rows, name)
    if len(rows) < 2:
        raise InputError.one(file=name, why="at least two arrivals", remedy="One arrival time per line, in seconds.")
    times = np.array([_time(line, column, number, name) for number, line in rows], dtype=np.float64)
    times *= unit
    falls = np.flatnonzero(np.diff(times) < 0)
    if len(falls):
        number, line = rows[int(falls[0]) + 1]
        raise InputError.one(
            file=name,
            path=f"line {number}",
            value=shortened_text(line.strip()),
            why="arrival times do not fall; this one is before the line above",
            remedy="Sort the file by time.",
        )
    if times[-1] <= times[0]:
        raise InputError.one(
            file=name,
            value=f"{len(times)} arrivals at one instant",
            why="arrivals over some time; these have no rate",
            remedy="Record longer, or more finely.",
        )
    first: NDArray[np.float64] = times - times[0]
    return first


def _column_of(rows: list[tuple[int, str]], name: str) -> tuple[int, float, list[tuple[int, str]]]:
    """Which column holds the times, its unit in seconds, and the rows below the header."""
    if not rows:
        return 0, 1.0, rows
    header = [cell.strip().lower() for cell in next(csv.reader([rows[0][1]]))]
    try:
        float(header[0])
    except ValueError:
        pass
    else:
        return 0, 1.0, rows
    for column, unit in _COLUMNS.items():
        if column in header:
            return header.index(column), unit, rows[1:]
    rates = any("rate" in cell or "qps" in cell for cell in header)
    raise InputError.one(
        file=name,
        path=f"line {rows[0][0]}",
        value=shortened_text(rows[0][1].strip()),
        why="a column arrival_s or arrival_ms",
        remedy="Rates per step go into rate_qps.series of the SLO file; a trace holds one time per arrival."
        if rates
        else "Name the column of arrival times arrival_s (seconds) or arrival_ms.",
    )


def _time(line: str, column: int, number: int, name: str) -> float:
    try:
        cell = line if column == 0 and "," not in line else next(csv.reader([line]))[column]
        value = float(cell)
        if abs(value) <= 1e300:
            return value
    except (ValueError, IndexError, csv.Error):
        pass
    raise InputError.one(
        file=name,
        path=f"line {number}",
        value=shortened_text(line.strip()),
        why="a finite number of seconds (or milliseconds, under arrival_ms)",
        remedy="Mend or remove the line.",
    )


def resize(arrivals: NDArray[np.float64], reference: TraceRef) -> NDArray[np.float64]:
    """`scale` times as many arrivals, `compress` times as fast.

    Thinning keeps each arrival with probability `scale`, so what was a Poisson stream stays one; copies beyond the
    first are put at random into the gap before the next arrival. The draw has a fixed seed: the same file gives the
    same arrivals.
    """
    import numpy as np

    if reference.scale != 1.0:
        draw = np.random.Generator(np.random.PCG64(0))
        whole = int(reference.scale)
        copies = whole + (draw.random(len(arrivals)) < reference.scale - whole)
        gaps = np.append(np.diff(arrivals), 0.0)
        is_copy = np.ones(int(copies.sum()), dtype=np.bool_)
        is_copy[(np.cumsum(copies) - copies)[copies > 0]] = False
        spread = np.where(is_copy, draw.random(len(is_copy)), 0.0)
        arrivals = np.sort(np.repeat(arrivals, copies) + spread * np.repeat(gaps, copies))
    slowed: NDArray[np.float64] = arrivals / reference.compress
    return slowed
