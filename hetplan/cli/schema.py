"""`hetplan schema`: the JSON Schemas of the files."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from hetplan.cli.output import Output

__all__ = ["Kind", "schema"]


class Kind(StrEnum):
    """The files that have a schema."""

    PROFILE = "profile"
    SLO = "slo"
    PLAN = "plan"
    STATE = "state"


def schema(kind: Annotated[Kind, typer.Argument(help="Which file.")]) -> None:
    """Print the JSON Schema of a file."""
    with Output("schema", quiet=True):
        if kind is Kind.PLAN:
            from hetplan.profiles.plan_file import plan_schema

            text = plan_schema()
        else:
            from hetplan.profiles.schema import schema as input_schema

            text = input_schema(kind.value)
        typer.echo(json.dumps(text, indent=2, ensure_ascii=False))
