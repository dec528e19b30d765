"""Sections that profile files had before format 1.0, and the new form of what they say, written out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hetplan.errors import Fault
from hetplan.profiles.json_path import json_path, shortened
from hetplan.profiles.places import FileOf

__all__ = ["faults_of_old_sections"]

_NOW: Mapping[str, tuple[str, str]] = {
    "hardware": ("machines", "types of machine and their prices are machines"),
    "offers": ("machines", "a price is price_per_hour, spot or reserved of a machine type"),
    "hosts": ("machines", "machines that are there already are hosts of a machine type"),
    "variants": ("models", "what can be served is models"),
    "tables": ("models", "measured times are columns of a run of a model"),
    "engines": ("models", "laws of language models are said at runs of a model"),
    "tasks": ("models", "a task is said at its models, with their quality as {metric: number}"),
}
Json = dict[str, Any]
_LONGEST = 240
"""Letters of the new form that a message shows; the rest is cut."""


def faults_of_old_sections(document: Mapping[str, Any], file_of: FileOf) -> list[Fault]:
    """A fault for each old section, with what is written in its place."""
    old = [section for section in _NOW if section in document]
    if not old:
        return []
    return [
        Fault(
            file_of((section,)), json_path((section,)), shortened(document[section]), _NOW[section][1],
            _remedy(document, _NOW[section][0]),
        )
        for section in old
    ]  # fmt: skip


def _remedy(document: Mapping[str, Any], section: str) -> str:
    from hetplan.profiles.written_profile import written_profile

    examples: dict[str, Json] = {
        "machines": {"t4": {"provides": {"gpu": 1}, "price_per_hour": 0.526}},
        "models": {"net": {"batch": [1, 8], "runs": {"t4": {"mean_ms": [6, 24]}}}},
    }
    example = examples[section]
    found: Json
    try:
        found = written_profile(document).get(section) or example
    except (AttributeError, KeyError, TypeError, ValueError):
        found = example
    name = next(iter(found))
    text = json.dumps({name: found[name]})
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST].rpartition(', ')[0]}, ..."
    more = ", and so on" if len(found) > 1 else ""
    return f'Write {"for instance " if found is example else ""}"{section}": {text}{more}.'
