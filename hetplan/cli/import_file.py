"""`hetplan import`: other tools' files as profile and SLO files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hetplan.cli.output import Output
from hetplan.errors import Fault, InputError

__all__ = ["import_file"]


def _kinds() -> list[str]:
    from hetplan.registry import importers

    return sorted(importers())


def import_file(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="What the file is: melange, ...", autocompletion=_kinds)],
    file: Annotated[Path, typer.Argument(metavar="FILE", readable=False, help="The file to convert.")],
    folder: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FOLDER", help="Where profile.json and slo.json go; made if need be."),
    ] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there already.")] = False,
) -> None:
    """Convert another tool's file.

    Writes profile.json and, where the file says what is wanted, slo.json.
    """
    with Output("import") as out:
        from hetplan.profiles.plan_file import write_atomically
        from hetplan.registry import importers

        known = importers()
        if kind not in known:
            raise InputError.one(
                file="KIND", value=kind, why="no such importer", remedy=f"Choose one of {', '.join(sorted(known))}."
            )
        profile, slo = known[kind](file)
        targets = [(folder / "profile.json", profile), *([(folder / "slo.json", slo)] if slo is not None else [])]
        taken = [str(path) for path, _ in targets if path.exists() and not force]
        if taken:
            raise InputError(
                [
                    Fault(path, "", "", "the file is there already", "Name another -o FOLDER, or use --force.")
                    for path in taken
                ]
            )
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in targets:
            write_atomically(path, _bytes(data))
            out.people.line(f"written to {path}")
        if slo is None:
            out.people.line("the file does not say what is wanted: write an slo.json (docs/formats.md)")


def _bytes(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
