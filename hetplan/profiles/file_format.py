"""The `format` and `requires` of a file: which kind it is, which version, and whether this reader may read it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hetplan.errors import Fault
from hetplan.profiles.json_path import closest, shortened

__all__ = ["FEATURES", "VERSIONS", "format_faults", "is_newer"]

VERSIONS = {"profile": (1, 3), "slo": (1, 2), "state": (1, 1), "plan": (1, 2)}
"""Kind of file -> the version that this hetplan writes; it reads every version up to it of the same major number."""

FEATURES: dict[str, frozenset[str]] = {
    "profile": frozenset({"outcomes", "engines"}),
    "slo": frozenset({"series", "rate-range"}),
    "state": frozenset(),
}
"""What a file may list under `requires`; a reader that does not know one of them refuses the file."""

_FORMAT = re.compile(r"hetplan/([a-z]+)/(\d{1,6})\.(\d{1,6})\Z")


def format_faults(document: Any, kind: str, file: str) -> list[Fault]:
    """What is wrong with a document as a whole: no object, another kind, another major version, unknown features."""
    if not isinstance(document, Mapping):
        return [
            Fault(
                file=file,
                path="$",
                value=shortened(document),
                why="a JSON object at the top",
                remedy=f'Start with {{"format": "{_own(kind)}", ...}}.',
            )
        ]
    return _version_faults(document, kind, file) + _feature_faults(document, kind, file)


def _own(kind: str) -> str:
    major, minor = VERSIONS[kind]
    return f"hetplan/{kind}/{major}.{minor}"


def _version_faults(document: Mapping[str, Any], kind: str, file: str) -> list[Fault]:
    given = document.get("format")

    def fault(why: str, remedy: str) -> list[Fault]:
        value = shortened(given) if "format" in document else ""
        return [Fault(file=file, path="$.format", value=value, why=why, remedy=remedy)]

    if "format" not in document:
        return fault("every file says its format", f'Add "format": "{_own(kind)}".')
    matched = _FORMAT.match(given) if isinstance(given, str) else None
    if matched is None:
        return fault(f'"{_own(kind)}"', f'Write "format": "{_own(kind)}".')
    if matched[1] != kind:
        return fault(f"a {kind} file here, not a {matched[1]} file", f"Give the {kind} file in its place.")
    if int(matched[2]) != VERSIONS[kind][0]:
        newer = int(matched[2]) > VERSIONS[kind][0]
        cure = "Upgrade hetplan." if newer else f"Rewrite the file as {_own(kind)}; docs/formats.md says how."
        return fault(f"this hetplan reads {kind} files of version {VERSIONS[kind][0]}.x", cure)
    return []


def _feature_faults(document: Mapping[str, Any], kind: str, file: str) -> list[Fault]:
    required = document.get("requires", ())
    if not isinstance(required, list | tuple):
        return []  # the model says so
    known = FEATURES[kind]
    return [
        Fault(
            file=file,
            path=f"$.requires[{number}]",
            value=shortened(feature),
            why="the file needs a feature that this hetplan does not know",
            remedy=f"{closest(feature, known)}Upgrade hetplan.",
        )
        for number, feature in enumerate(required)
        if isinstance(feature, str) and feature not in known
    ]


def is_newer(document: Any) -> bool:
    """Whether the document says a newer minor version than this reader's (of any kind of file)."""
    given = document.get("format") if isinstance(document, Mapping) else None
    matched = _FORMAT.match(given) if isinstance(given, str) else None
    if matched is None:
        return False
    return (int(matched[2]), int(matched[3])) > VERSIONS.get(matched[1], (1, 0))
