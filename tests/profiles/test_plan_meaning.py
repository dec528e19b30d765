"""Every leaf of a plan's schema has a meaning; what is not in the schema has none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hetplan.profiles.plan_meaning import CLAIMS, LEAVES, REMARKS, RUNS, meaning_of
from hetplan.profiles.read_plan import plan_schema


def leaves(schema: dict[str, Any], known: dict[str, Any], at: str = "") -> Iterator[str]:
    """Every leaf below a part of a JSON Schema; `*` is any name, `[]` any place of a list."""
    if "$ref" in schema:
        yield from leaves(known[schema["$ref"].rpartition("/")[2]], known, at)
        return
    for key in ("anyOf", "oneOf"):
        if key in schema:
            for one in schema[key]:
                if one.get("type") != "null":
                    yield from leaves(one, known, at)
            return
    if schema.get("type") == "object":
        for name, inside in schema.get("properties", {}).items():
            yield from leaves(inside, known, f"{at}.{name}" if at else name)
        more = [*schema.get("patternProperties", {}).values()]
        more += [schema["additionalProperties"]] if isinstance(schema.get("additionalProperties"), dict) else []
        for inside in more:
            yield from leaves(inside, known, f"{at}.*")
        if not more and "properties" not in schema:
            yield f"{at}.*"
    elif schema.get("type") == "array":
        inside = schema.get("prefixItems") or [schema["items"]]
        for one in inside if inside != [{}] else [{"type": "number"}]:
            yield from leaves(one, known, f"{at}[]")
    else:
        yield at


def test_every_leaf_of_the_schema_is_in_the_table_and_no_other() -> None:
    schema = plan_schema()
    found = set(leaves(schema, schema["$defs"]))
    assert len(found) > 150
    assert found - LEAVES.keys() == set()
    assert LEAVES.keys() - found == set()


def test_no_leaf_means_two_things() -> None:
    listed = [*RUNS.split(), *CLAIMS.split(), *REMARKS.split()]
    assert len(set(listed)) == len(listed)
    assert all(LEAVES[leaf] == LEAVES.get(leaf.removeprefix("parts.*."), LEAVES[leaf]) for leaf in LEAVES)


@pytest.mark.parametrize(
    ("place", "meaning"),
    [
        ("workers", "runs"),
        ("workers[].loads[].serve", "runs"),
        ("routing.cameras[].to.w1", "runs"),
        ("policies.images[].expected", "claims"),
        ("promises", "claims"),
        ("solves[].proof.tree.leaves[]", "remark"),
        ("method", "remark"),
        ("method.options.derate", "remark"),
    ],
)
def test_what_holds_several_leaves_means_the_strongest_of_them(place: str, meaning: str) -> None:
    assert meaning_of(place) == meaning
