"""Plans read: untrusted, and checked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.arguments import check_arguments
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import FEATURES, plan_digest
from hetplan.profiles.read_json import VERSIONS, read_json
from hetplan.profiles.validate import validate

__all__ = ["FORMAT", "plan_schema", "read_plan"]


FORMAT = re.compile(r"hetplan/plan/(\d+)\.(\d+)\Z")


@check_arguments
def read_plan(source: str | os.PathLike[str] | Mapping[str, Any] | Plan, *, trust_digest: bool = False) -> Plan:
    """A plan from a file or its data. Nothing in it is believed: form, features and digest are checked.

    `trust_digest` is for those who want to show or verify an edited plan; code that acts on a plan does not set it.
    """
    if isinstance(source, Plan):
        return source
    file = "plan" if isinstance(source, Mapping) else os.fspath(source)
    data = dict(source) if isinstance(source, Mapping) else read_json(source, file=file)
    _check_format(data, file)
    plan = validate(Plan, data, file=file)
    unknown = sorted(set(plan.requires) - FEATURES)
    if unknown:
        raise InputError.one(
            file=file,
            path="$.requires",
            value=", ".join(unknown),
            why="the plan needs features that this hetplan does not know",
            remedy="Upgrade hetplan, or make the plan again with this version.",
        )
    if not trust_digest and plan.digest != plan_digest(plan):
        raise InputError.one(
            file=file,
            path="$.digest",
            value=str(plan.digest),
            why=f"the content has digest {plan_digest(plan)}: the file was edited or damaged",
            remedy="Make the plan anew, or verify it first and set the digest to the content's.",
        )
    return plan


def _check_format(data: object, file: str) -> None:
    stated = data.get("format") if isinstance(data, Mapping) else None
    match = FORMAT.match(stated) if isinstance(stated, str) else None
    if match is None:
        raise InputError.one(
            file=file,
            path="$.format",
            value=json.dumps(stated),
            why="this is no plan file",
            remedy='A plan begins with "format": "hetplan/plan/1.0"; `hetplan solve` writes one.',
        )
    if int(match[1]) != 1:
        raise InputError.one(
            file=file,
            path="$.format",
            value=str(stated),
            why="only major version 1 is known",
            remedy="Upgrade hetplan.",
        )


def plan_schema() -> dict[str, Any]:
    """The JSON Schema of plan.json."""
    about = "What is to run, how queries reach it, what is promised and what is proved."
    from hetplan.profiles.schema import schema_of

    return schema_of(Plan, kind="plan", version=VERSIONS["plan"], about=about)
