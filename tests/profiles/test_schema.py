"""The JSON Schemas are frozen: others build on them.

A change of the formats needs a line in CHANGELOG.md and, where old files or old readers break, a new version in
`hetplan/profiles/read_json.py`. Then rewrite the golden files with

    HETPLAN_UPDATE_SCHEMAS=1 pytest tests/profiles/test_schema.py

and look at what `git diff tests/cases/schemas` says.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.profiles.read_json import VERSIONS
from hetplan.profiles.schema import KINDS, schema

GOLDEN = Path(__file__).resolve().parents[1] / "cases" / "schemas"


@pytest.mark.parametrize("kind", KINDS)
def test_frozen(kind: str) -> None:
    text = json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"
    golden = GOLDEN / f"{kind}.json"
    if os.environ.get("HETPLAN_UPDATE_SCHEMAS"):
        golden.write_text(text, encoding="utf-8")
    assert json.loads(text) == json.loads(golden.read_text(encoding="utf-8")), __doc__


def matches(value: Any, rule: Any, root: dict[str, Any]) -> bool:
    """Enough of JSON Schema to hold our own files against our own schemas."""
    if "$ref" in rule:
        return matches(value, root["$defs"][rule["$ref"].rsplit("/", 1)[1]], root)
    if "anyOf" in rule:
        return any(matches(value, branch, root) for branch in rule["anyOf"])
    if "const" in rule or "enum" in rule:
        return value in rule.get("enum", [rule.get("const")])
    kinds = rule.get("type", [])
    names = {"object": dict, "array": list, "string": str, "number": (int, float), "integer": int, "boolean": bool}
    wanted = [kinds] if isinstance(kinds, str) else kinds
    if wanted and not any(value is None if kind == "null" else isinstance(value, names[kind]) for kind in wanted):
        return False
    if isinstance(value, dict):
        return _object_matches(value, rule, root)
    if isinstance(value, list):
        items = [*rule.get("prefixItems", ()), *[rule.get("items", {})] * len(value)]
        return all(matches(item, inner, root) for item, inner in zip(value, items, strict=False))
    if isinstance(value, str) and "pattern" in rule:
        return re.search(rule["pattern"], value) is not None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value >= rule.get("minimum", value) and value <= rule.get("maximum", value)
    return True


def _object_matches(value: dict[str, Any], rule: Any, root: dict[str, Any]) -> bool:
    known, patterns = rule.get("properties", {}), rule.get("patternProperties", {})
    other = rule.get("additionalProperties", not known)
    for key, item in value.items():
        inner = known.get(key) or next((held for pattern, held in patterns.items() if re.search(pattern, key)), other)
        if inner is False or (inner is not True and not matches(item, inner, root)):
            return False
    return all(key in value for key in rule.get("required", ()))


def test_the_examples_keep_to_them(profile: dict[str, Any], slo: dict[str, Any]) -> None:
    assert matches(profile, schema("profile"), schema("profile"))
    assert matches(slo, schema("slo"), schema("slo"))
    slo["apps"]["rank"]["latncy"] = []
    assert not matches(slo, schema("slo"), schema("slo"))
    profile["models"]["rn50"]["runs"]["c5n"]["mean_ms"] = "fast"
    assert not matches(profile, schema("profile"), schema("profile"))


@pytest.mark.parametrize("kind", KINDS)
def test_they_say_what_they_are(kind: str) -> None:
    made = schema(kind)
    major, minor = VERSIONS[kind]
    assert made["$id"] == f"urn:hetplan:schema:{kind}:{major}.{minor}"
    assert made["title"] == f"hetplan {kind} {major}.{minor}"
    for older in range(minor + 1):
        assert matches(f"hetplan/{kind}/{major}.{older}", made["properties"]["format"], made)
    assert made["description"]
    assert made["additionalProperties"] is False
    assert made["required"] == ["format"]


def test_another_kind_is_an_input_error() -> None:
    with pytest.raises(InputError, match='Did you mean "profile"'):
        schema("profil")
