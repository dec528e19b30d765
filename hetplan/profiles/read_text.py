"""The text of a file that people or other tools wrote."""

from __future__ import annotations

import os
from pathlib import Path

from hetplan.errors import InputError

__all__ = ["path_inside", "read_text"]


def read_text(path: str | os.PathLike[str], *, wanted: str = "a CSV file") -> str:
    """What a file says in UTF-8, with or without its mark; `InputError` where it cannot be read."""
    file = os.fspath(path)
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        why, remedy = f"it is no text in UTF-8: byte {error.start} is none", f"Give {wanted}, saved as UTF-8."
    except OSError as error:
        why, remedy = f"it cannot be read: {error.strerror}", f"Give {wanted}."
    raise InputError.one(file=file, why=why, remedy=remedy)


def path_inside(folder: Path, name: str) -> Path | None:
    """The path of a file that another file names, wherever that came from; None unless it is below that file's folder.

    >>> path_inside(Path("/srv"), "../etc/passwd"), path_inside(Path("/srv"), "/srv/times.csv")
    (None, None)
    """
    try:
        whole = (folder / name).resolve()  # through links: one that leads out is refused as well
        is_below = whole.is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return None
    steps = Path(name)
    return whole if is_below and not steps.is_absolute() and ".." not in steps.parts else None
