"""A Milp as an MPS or LP file with the user's words for names: for other solvers, for bug reports, for reading.

Names come from the blocks (``capacity.g4dn``), made legal for both formats and unique; numbers are written so that
they read back as the same floats. A row without bounds constrains nothing and is left out of an LP file, which has no
word for it; a row with two sides becomes two there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TextIO

import numpy as np

from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.planner.forms.milp import Milp
    from hetplan.planner.forms.program import Program

__all__ = ["program_names", "write_lp", "write_mps"]

LONGEST = 200
"""Readers differ in what they take; 255 is the least limit in use."""
_WORDS = """
    max maximize maximise maximum min minimize minimise minimum subject such st st. bound bounds free inf
    infinity integer integers int general generals gen binary binaries bin semi semis sin sos sos1 sos2 end
    obj objective offset nan rhs ranges marker name rows columns
"""
RESERVED = frozenset(_WORDS.split())
"""Words that mean something in one format or the other, or that this file uses itself."""
TERMS_PER_LINE = 6
"""Lines of LP files stay short: some readers cut them at 255 or 560 characters."""


def write_mps(form: Milp, stream: TextIO) -> None:
    """Write the form as free-format MPS."""
    _can_be_written(form)
    rows, columns = program_names(form)
    stream.write(f"NAME {_legal(form.name) if form.name else 'hetplan'}\n")
    stream.write(f"OBJSENSE\n    {'MAX' if form.sense == 'max' else 'MIN'}\nROWS\n N  obj\n")
    kinds = _kinds(form)
    stream.writelines(f" {kind}  {name}\n" for kind, name in zip(kinds, rows, strict=True))
    stream.write("COLUMNS\n")
    _write_mps_columns(form, stream, rows, columns)
    stream.write("RHS\n")
    if form.offset:
        stream.write(f"    rhs  obj  {_number(-form.offset)}\n")
    for i, (kind, name) in enumerate(zip(kinds, rows, strict=True)):
        side = form.row_lower[i] if kind == "G" else form.row_upper[i]
        if kind != "N" and side != 0.0:
            stream.write(f"    rhs  {name}  {_number(side)}\n")
    ranged = [i for i, kind in enumerate(kinds) if kind == "L" and np.isfinite(form.row_lower[i])]
    if ranged:
        stream.write("RANGES\n")
        for i in ranged:
            stream.write(f"    ranges  {rows[i]}  {_number(form.row_upper[i] - form.row_lower[i])}\n")
    stream.write("BOUNDS\n")
    for j, name in enumerate(columns):
        stream.writelines(_mps_bounds(name, float(form.lower[j]), float(form.upper[j])))
    stream.write("ENDATA\n")


def write_lp(form: Milp, stream: TextIO) -> None:
    """Write the form in CPLEX's LP format."""
    _can_be_written(form)
    rows, columns = program_names(form)
    stream.write(f"\\ {_legal(form.name) if form.name else 'hetplan'}\n")
    stream.write("maximize\n" if form.sense == "max" else "minimize\n")
    priced = np.flatnonzero(form.cost).tolist()
    stream.write(" obj: ")
    _write_terms(stream, ((float(form.cost[j]), columns[j]) for j in priced))
    if form.offset:
        stream.write(f" {'-' if form.offset < 0 else '+'} {_number(abs(form.offset))}")
    elif not priced and columns:
        stream.write(f"0 {columns[0]}")
    stream.write("\nsubject to\n")
    _write_lp_rows(form, stream, rows, columns)
    stream.write("bounds\n")
    for j, name in enumerate(columns):
        stream.write(f" {_lp_bounds(name, float(form.lower[j]), float(form.upper[j]))}\n")
    if form.whole.any():
        stream.write("general\n")
        stream.writelines(f" {columns[j]}\n" for j in np.flatnonzero(form.whole).tolist())
    stream.write("end\n")


def _can_be_written(form: Milp) -> None:
    crossed = form.row_lower > form.row_upper
    if crossed.any():
        raise InputError.one(
            path=form.row_name(int(crossed.argmax())),
            why="the row's bounds cross, which neither format can say",
            remedy="The program is infeasible as it is; loosen that row.",
        )
    if not form.cost.size and form.row_lower.size:
        raise InputError.one(why="the program has rows but no columns, which neither format can say")


def _write_mps_columns(form: Milp, stream: TextIO, rows: list[str], columns: list[str]) -> None:
    matrix = form.matrix.tocsc()
    inside = False
    for j, name in enumerate(columns):
        if bool(form.whole[j]) != inside:
            inside = not inside
            stream.write(f"    marker{j}  'MARKER'  '{'INTORG' if inside else 'INTEND'}'\n")
        here = slice(matrix.indptr[j], matrix.indptr[j + 1])
        if form.cost[j] or here.start == here.stop:
            stream.write(f"    {name}  obj  {_number(form.cost[j])}\n")
        for i, value in zip(matrix.indices[here].tolist(), matrix.data[here].tolist(), strict=True):
            stream.write(f"    {name}  {rows[i]}  {_number(value)}\n")
    if inside:
        stream.write("    markerend  'MARKER'  'INTEND'\n")


def _write_lp_rows(form: Milp, stream: TextIO, rows: list[str], columns: list[str]) -> None:
    matrix = form.matrix.tocsr()
    uppers = _unique([*rows, *(f"{name}.upper" for name in rows)], "row")[len(rows) :]
    for i, name in enumerate(rows):
        lower, upper = float(form.row_lower[i]), float(form.row_upper[i])
        here = slice(matrix.indptr[i], matrix.indptr[i + 1])
        if (np.isinf(lower) and np.isinf(upper)) or not columns:
            continue
        terms = list(zip(matrix.data[here].tolist(), (columns[j] for j in matrix.indices[here]), strict=True))
        terms = terms or [(0.0, columns[0])]
        if lower == upper:
            _write_lp_row(stream, name, terms, f"= {_number(upper)}")
            continue
        # Not every reader understands a row with two sides (HiGHS reads another program): they are two rows.
        two_sided = bool(np.isfinite(lower) and np.isfinite(upper))
        if np.isfinite(lower):
            _write_lp_row(stream, name, terms, f">= {_number(lower)}")
        if np.isfinite(upper):
            _write_lp_row(stream, uppers[i] if two_sided else name, terms, f"<= {_number(upper)}")


def _write_lp_row(stream: TextIO, name: str, terms: list[tuple[float, str]], side: str) -> None:
    stream.write(f" {name}: ")
    _write_terms(stream, terms)
    stream.write(f" {side}\n")


def _write_terms(stream: TextIO, terms: Iterable[tuple[float, str]]) -> None:
    for k, (value, name) in enumerate(terms):
        if k and k % TERMS_PER_LINE == 0:
            stream.write("\n   ")
        sign = "-" if value < 0 else ("+" if k else "")
        stream.write(f"{' ' if k else ''}{sign}{' ' if sign else ''}{_number(abs(value))} {name}")


def _kinds(form: Milp) -> list[str]:
    lower, upper = form.row_lower, form.row_upper
    kinds = np.where(np.isfinite(upper), "L", np.where(np.isfinite(lower), "G", "N"))
    return [str(kind) for kind in np.where(lower == upper, "E", kinds)]


def _mps_bounds(name: str, lower: float, upper: float) -> list[str]:
    """Every bound in full: the default upper bound of integers is 1 to some readers and infinite to others."""
    if lower == upper:
        return [f" FX bnd  {name}  {_number(lower)}\n"]
    if np.isinf(lower) and np.isinf(upper):
        return [f" FR bnd  {name}\n"]
    low = f" MI bnd  {name}\n" if np.isinf(lower) else f" LO bnd  {name}  {_number(lower)}\n"
    high = f" PL bnd  {name}\n" if np.isinf(upper) else f" UP bnd  {name}  {_number(upper)}\n"
    return [low, high]


def _lp_bounds(name: str, lower: float, upper: float) -> str:
    if lower == upper:
        return f"{name} = {_number(lower)}"
    if np.isinf(lower) and np.isinf(upper):
        return f"{name} free"
    return (
        f"{'-inf' if np.isinf(lower) else _number(lower)} <= {name} <= {'+inf' if np.isinf(upper) else _number(upper)}"
    )


def _number(value: float) -> str:
    """The shortest decimal that reads back as the same float."""
    text = repr(float(value))
    return text.removesuffix(".0")


def program_names(form: Program) -> tuple[list[str], list[str]]:
    """Row and column names: legal, unique among themselves, and close to what the user called things."""
    n_rows, n_columns = form.matrix.shape
    rows = _unique([form.row_name(i) for i in range(n_rows)], "row")
    columns = _unique([form.column_name(j) for j in range(n_columns)], "column")
    return rows, columns


def _unique(names: list[str], bare: str) -> list[str]:
    taken: dict[str, int] = {}
    out = []
    for name in names:
        legal = _legal(name if not name.isdigit() else f"{bare}{name}")
        count = taken.get(legal, 0) + 1
        taken[legal] = count
        while count > 1 and f"{legal}~{count}" in taken:
            count += 1
        unique = legal if count == 1 else f"{legal}~{count}"
        taken.setdefault(unique, 1)
        out.append(unique)
    return out


def _legal(name: str) -> str:
    """Letters, digits, points and underscores; no leading digit, point or exponent; no word of the format's own.

    >>> _legal("share[8/g4dn]"), _legal("e5"), _legal("2nd"), _legal("free")
    ('share.8_g4dn', '_e5', '_2nd', 'free_')
    """
    text = name.replace("[", ".").removesuffix("]").removesuffix(".")
    text = re.sub(r"[^A-Za-z0-9_.]", "_", text)[:LONGEST] or "_"
    if re.match(r"[0-9.]|[eE][0-9.+-]|[eE]$", text):
        text = f"_{text}"
    return f"{text}_" if text.lower() in RESERVED else text
