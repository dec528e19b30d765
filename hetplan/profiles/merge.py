"""Several profile files under one roof: prices change daily, measurements yearly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hetplan.errors import Fault
from hetplan.profiles.canonical import canonical_bytes
from hetplan.profiles.inputs import FileOf, Origins
from hetplan.profiles.json_path import json_path, shortened

__all__ = ["merge"]

_BY_ID = frozenset(
    {"sources", "metrics", "hardware", "offers", "hosts", "tasks", "variants", "tables", "engines", "apis", "pipelines"}
)
_JOINED = frozenset({"requires", "links"})


def merge(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[dict[str, Any], FileOf, list[Fault]]:
    """One document of all, a function from a place to the file it came from, and what contradicts.

    Sections by id are joined; the same id with the same content may be in several files, with different content it
    is a fault that names both. Lists of links and features are joined, anything else must agree. The content of an id
    is compared as canonical JSON, ids themselves in lower case.
    """
    if len(documents) == 1:
        (file, document), *_ = documents
        return dict(document), Origins(file), []
    joined: dict[str, Any] = {}
    origin: dict[tuple[str, ...], str] = {}
    faults: list[Fault] = []
    for file, document in documents:
        for section, content in document.items():
            held = joined.get(section)
            if section in _BY_ID | {"extensions"} and isinstance(content, Mapping) and isinstance(held, Mapping | None):
                joined.setdefault(section, {})
                origin.setdefault((section,), file)
                faults += _join(joined[section], content, section, file, origin)
            elif section in _JOINED and isinstance(content, list) and isinstance(held, list | None):
                origin.setdefault((section,), file)
                joined[section] = (held or []) + [item for item in content if item not in (held or [])]
            elif section == "format":
                # Each was checked by itself; the newest says what may be in the whole.
                joined[section] = max(str(held or content), str(content), key=_minor)
                origin.setdefault((section,), file)
            elif section not in joined:
                joined[section] = content
                origin[(section,)] = file
            elif not _same(held, content):
                faults.append(_contradiction((section,), content, file, origin[(section,)]))
    faults += _link_faults(joined.get("links"), documents)
    everything = " + ".join(file for file, _ in documents)

    return joined, Origins(everything, origin), faults


def _join(
    held: dict[str, Any], content: Mapping[str, Any], section: str, file: str, origin: dict[tuple[str, ...], str]
) -> Iterable[Fault]:
    """Add the things of one file to a section; yields what contradicts."""
    known = {name.lower(): name for name in held}
    for name, thing in content.items():
        key = (section, name.lower())
        if name.lower() not in known:
            held[name] = thing
            origin[key] = file
        elif origin[key] == file:
            held[name] = thing  # a second spelling within one file: the model says so
        elif not _same(held[known[name.lower()]], thing):
            yield _contradiction((section, name), thing, file, origin[key])


def _contradiction(steps: tuple[str | int, ...], value: Any, file: str, other: str) -> Fault:
    return Fault(
        file=f"{other} and {file}",
        path=json_path(steps),
        value=shortened(value),
        why="the same id with the same content in both files; here they differ",
        remedy="Rename one of the two, or remove the one that is out of date.",
    )


def _link_faults(links: Any, documents: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Fault]:
    """Two links between the same tiers that differ."""
    if not isinstance(links, list):
        return []
    faults: list[Fault] = []
    seen: dict[tuple[str, ...], Any] = {}
    for link in links:
        ends = link.get("between") if isinstance(link, Mapping) else None
        if not isinstance(ends, list) or not all(isinstance(end, str) for end in ends):
            continue
        key = tuple(sorted(end.lower() for end in ends))
        if key in seen and not _same(seen[key], link):
            holders = [file for file, document in documents if link in (document.get("links") or ())]
            first = [file for file, document in documents if seen[key] in (document.get("links") or ())]
            faults.append(_contradiction(("links",), link, (holders or [""])[0], (first or [""])[0]))
        seen.setdefault(key, link)
    return faults


def _same(one: Any, other: Any) -> bool:
    return one is other or canonical_bytes(one) == canonical_bytes(other)


def _minor(text: str) -> int:
    return int(text.rsplit(".", 1)[1])
