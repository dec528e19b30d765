"""JSON Schemas of the files, for editors and for other tools' checks (`hetplan check --schema`).

A schema says shapes, types and ranges. What only the loader can check (references, shares that sum to 1, tables of the
right shape, axes that grow) is in the descriptions.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from hetplan.errors import InputError
from hetplan.profiles.json_path import closest
from hetplan.profiles.read_json import VERSIONS

__all__ = ["KINDS", "schema", "schema_of"]

KINDS = ("profile", "slo", "state")

_ABOUT = {
    "profile": "Types of machine with their prices, models with their measurements. Several files merge into one.",
    "slo": "What is wanted: objectives, limits and, per application, latency, quality and demand.",
    "state": "What runs now, in the shape of a plan's workers, and what was observed of it.",
}


class _Untitled(GenerateJsonSchema):
    """Without a title per field that only repeats its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


def schema(kind: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a profile, slo or state file.

    >>> schema("slo")["title"]
    'hetplan slo 1.0'
    """
    if kind not in KINDS:
        listed = ", ".join(KINDS)
        raise InputError.one(
            file="schema", value=kind, why=f"one of {listed}", remedy=f"{closest(kind, KINDS)}Name one of these."
        )
    from hetplan.profiles.profile_file import ProfileFile
    from hetplan.profiles.slo import Slo
    from hetplan.profiles.state import State

    models: dict[str, type[BaseModel]] = {"profile": ProfileFile, "slo": Slo, "state": State}
    made = schema_of(models[kind], kind=kind, version=VERSIONS[kind], about=_ABOUT[kind])
    about = "Where an editor finds this schema. It changes nothing of what is asked."
    made["properties"]["$schema"] = {"type": "string", "description": about}
    return made


def schema_of(model: type[BaseModel], *, kind: str, version: tuple[int, int], about: str) -> dict[str, Any]:
    """The JSON Schema of any file's model, under hetplan's `$id`."""
    made = model.model_json_schema(by_alias=True, schema_generator=_Untitled)
    made.pop("title", None)
    made.pop("description", None)
    number = f"{version[0]}.{version[1]}"
    made["required"] = sorted({"format", *made.get("required", ())})
    known = [f"hetplan/{kind}/{version[0]}.{minor}" for minor in range(version[1] + 1)]
    made["properties"]["format"] = {"type": "string", **({"enum": known} if version[1] else {"const": known[0]})}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:hetplan:schema:{kind}:{number}",
        "title": f"hetplan {kind} {number}",
        "description": about,
        **made,
    }
