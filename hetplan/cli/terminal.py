"""What a page looks like on a terminal: rich tables and headings, lines that fit a narrow one."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from typing import IO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["folded", "show_columns", "show_heading", "show_table"]


def show_heading(text: str, stream: IO[str]) -> None:
    """A line that opens a section."""
    Console(file=stream).print(text, style="bold", markup=False, highlight=False)


def show_columns(text: str, stream: IO[str]) -> None:
    """The titles of columns, aligned already."""
    Console(file=stream).print(folded(text), style="bold cyan", markup=False, highlight=False)


def show_table(columns: Sequence[str], cells: Sequence[Sequence[str]], to_right: set[int], stream: IO[str]) -> None:
    """Rows under column titles; `to_right` are the columns of figures."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold cyan")
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i in to_right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console(file=stream).print(table)


def folded(line: str) -> str:
    """The line on several where the terminal is too narrow for it, the further ones indented as the first."""
    width = shutil.get_terminal_size().columns
    if len(line) <= width:
        return line
    indent = " " * min(len(line) - len(line.lstrip()), width // 2)
    more = textwrap.wrap(line.strip(), max(width - len(indent), 10), break_on_hyphens=False, break_long_words=False)
    return "\n".join(indent + part for part in more)
