"""Plans as files: deterministic bytes out, atomic on disk; in, untrusted and checked."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from hetplan.errors import InputError
from hetplan.profiles.canonical import digest, rounded
from hetplan.profiles.collector import collector_at_rest
from hetplan.profiles.file_format import VERSIONS
from hetplan.profiles.plan import Dispatch, Plan
from hetplan.profiles.read_json import read_json
from hetplan.profiles.validate import validate

__all__ = [
    "FEATURES",
    "OUTCOMES",
    "plan_bytes",
    "plan_dict",
    "plan_digest",
    "plan_schema",
    "read_plan",
    "with_digest",
    "write_atomically",
    "write_plan",
]

FORMAT = re.compile(r"hetplan/plan/(\d+)\.(\d+)\Z")
OUTCOMES = "outcomes/1"
"""The feature of plans whose routes depend on what answers came to."""

FEATURES = frozenset({kind.model_fields["rule"].default for kind in get_args(get_args(Dispatch)[0])} | {OUTCOMES})
"""What this version knows: dispatch rules, outcomes. A plan that requires another feature is refused by its name."""


def plan_dict(plan: Plan) -> dict[str, Any]:
    """The plan as JSON data: numbers to 12 significant digits, nothing that is null."""
    data: dict[str, Any] = rounded(plan.model_dump(mode="json", by_alias=True, exclude_none=True))
    return data


def plan_digest(plan: Plan) -> str:
    """SHA-256 of the canonical JSON of everything but the digest itself."""
    data = plan_dict(plan)
    data.pop("digest", None)
    return digest(data)


def with_digest(plan: Plan) -> Plan:
    """The plan as it reads back from its own file, with its digest: rounding happens once, here."""
    with collector_at_rest():
        settled = Plan.model_validate({**plan_dict(plan), "digest": None})
        return settled.model_copy(update={"digest": plan_digest(settled)})


def plan_bytes(plan: Plan) -> bytes:
    """The file's bytes: the same plan gives the same bytes."""
    return (json.dumps(plan_dict(plan), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def write_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the file whole or not at all: a reader never sees half of it, whatever interrupts this."""
    write_atomically(Path(path), plan_bytes(plan))


def write_atomically(path: Path, content: bytes) -> None:
    """Into a file beside it first, flushed to disk, then renamed over it.

    A link is followed to the file it names. A device or a pipe cannot be replaced, only written to.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_plan(source: str | os.PathLike[str] | Mapping[str, Any] | Plan, *, trust_digest: bool = False) -> Plan:
    """A plan from a file or its data. Nothing in it is believed: form, features and digest are checked.

    `trust_digest` is for those who want to show or verify an edited plan; whoever acts on one leaves it alone.
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
            remedy="Upgrade hetplan, or make the plan anew with this version.",
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
            remedy='A plan begins with "format": "hetplan/plan/1.1"; `hetplan solve` writes one.',
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
