"""Plans as files: deterministic bytes out, atomic on disk; in, untrusted and checked."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hetplan.profiles.canonical import digest, rounded
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_sections import RULES
from hetplan.profiles.plan_summary import PlanSummary, plain_summary
from hetplan.profiles.validate import collector_at_rest

__all__ = [
    "FEATURES",
    "OUTCOMES",
    "PERIODS",
    "SHARED",
    "plan_bytes",
    "plan_dict",
    "plan_digest",
    "settled",
    "with_digest",
    "with_summary",
    "write_atomically",
    "write_plan",
]

OUTCOMES = "outcomes/1"
"""The feature of plans whose routes depend on what answers came to."""

PERIODS = "periods/1"
"""The feature of plans whose workers are in parts: what acts on a plan takes one period of it first."""

SHARED = "shared-loads/1"
"""The feature of plans in which queries of several operators, or applications, go to the same load."""

FEATURES = frozenset({*RULES, OUTCOMES, PERIODS, SHARED})
"""What this version knows: rules, outcomes, periods, loads that are shared.

A plan that requires another feature is refused by its name.
"""


_SUMMARY = TypeAdapter(PlanSummary)


def plan_dict(plan: Plan) -> dict[str, Any]:
    """The plan as JSON data: numbers to 12 significant digits, nothing that is null."""
    data: dict[str, Any] = rounded(plan.model_dump(mode="json", by_alias=True, exclude_none=True))
    return data


def plan_digest(plan: Plan) -> str:
    """SHA-256 of the canonical JSON of everything but the digest itself."""
    data = plan_dict(plan)
    data.pop("digest", None)
    return digest(data)


def settled(plan: Plan) -> Plan:
    """The plan as it reads back from its own file, without a digest: rounding happens once, here."""
    return Plan.model_validate({**plan_dict(plan), "digest": None})


def with_digest(plan: Plan) -> Plan:
    """The plan as it reads back from its own file, with its digest."""
    with collector_at_rest():
        read = settled(plan)
        return read.model_copy(update={"digest": plan_digest(read)})


def with_summary(plan: Plan, summary: PlanSummary) -> Plan:
    """A settled plan with a summary, as it reads back, too, and the digest of both."""
    told = plan.model_copy(update={"summary": _SUMMARY.validate_python(rounded(plain_summary(summary)))})
    return told.model_copy(update={"digest": plan_digest(told)})


def plan_bytes(plan: Plan) -> bytes:
    """The file's bytes: the same plan gives the same bytes."""
    texts = {
        key: _by_record(value) if key == "summary" else _text(value, 1).replace("\n", "\n ")
        for key, value in plan_dict(plan).items()
    }
    return ("{\n" + ",\n".join(f' "{key}": {text}' for key, text in texts.items()) + "\n}\n").encode()


def _by_record(summary: dict[str, Any]) -> str:
    """The summary with a record a line: it is what people read."""
    lines = []
    for key, value in summary.items():
        rows = [f"\n   {_text(one)}" for one in value] if isinstance(value, list) else ()
        lines.append(f'  "{key}": ' + (f"[{','.join(rows)}\n  ]" if rows else _text(value)))
    return "{\n" + ",\n".join(lines) + "\n }"


def _text(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False)


def write_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the file whole or not at all: a reader never sees half of it, whatever interrupts this."""
    write_atomically(Path(path), plan_bytes(plan))


def write_atomically(path: Path, content: bytes) -> None:
    """Into a file beside it first, flushed to disk, then renamed over it.

    A link is followed to the file it names. A device or a pipe cannot be replaced, only written to.
    """
    path = path.resolve()
    try:
        _write(path, content)
    except OSError as error:
        # A full disk does not say which file it was, and the file beside it is nobody's.
        raise OSError(error.errno, error.strerror, str(path)) from None


def _write(path: Path, content: bytes) -> None:
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
