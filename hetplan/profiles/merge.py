"""Several profile files under one roof: prices change daily, measurements yearly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hetplan.errors import Fault
from hetplan.profiles.canonical import canonical_bytes
from hetplan.profiles.json_path import json_path, shortened
from hetplan.profiles.lowering import OF_MODEL, joined
from hetplan.profiles.places import FileOf, Origins, Steps
from hetplan.profiles.profile_file import ProfileFile

__all__ = ["merge"]

_DEPTH: Mapping[str, int] = {
    "machines": 2, "models": 2, "sources": 1, "metrics": 1, "zones": 1, "apis": 1, "pipelines": 1, "extensions": 1,
}  # fmt: skip
"""Sections that are joined, and how deep: of a machine type prices may be in one file, what it provides in another."""
_RUNS = 3
"""So deep are the runs of a model joined, as machines are measured one after the other."""


def merge(documents: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[dict[str, Any], FileOf, list[Fault]]:
    """One document of all, a function from a place to the file it came from, and what contradicts.

    Sections by id are joined, and so are machine types, models and their runs: the same key may be in several files
    with the same content; with different content it is a fault that names both. Links are joined, anything else must
    agree. Contents are compared as canonical JSON, ids in lower case.
    """
    joining, apart = _Joining(), _Apart.of([document for _, document in documents])
    for file, document in documents:
        if isinstance(source := document.get("source"), Mapping):
            joining.alone[file] = source
        joining.add(_by_itself(document, apart), file)
    joining.faults += _link_faults(joining.joined.get("links"), documents)
    everything = " + ".join(file for file, _ in documents)
    return joining.joined, Origins(everything, joining.origin), joining.faults


class _Joining:
    def __init__(self) -> None:
        self.joined: dict[str, Any] = {}
        self.origin: dict[tuple[str, ...], str] = {}
        self.faults: list[Fault] = []
        self.alone: dict[str, Mapping[str, Any]] = {}
        """The one source of a file that has one."""

    def add(self, document: Mapping[str, Any], file: str) -> None:
        """Add what one file says."""
        for section, content in document.items():
            held = self.joined.get(section)
            if section in _DEPTH and isinstance(content, Mapping) and isinstance(held, Mapping | None):
                self.joined.setdefault(section, {})
                self.origin.setdefault((section,), file)
                self._join(self.joined[section], content, (section,), file, _DEPTH[section])
            elif section == "links" and isinstance(content, list) and isinstance(held, list | None):
                self.origin.setdefault((section,), file)
                self.joined[section] = (held or []) + [item for item in content if item not in (held or [])]
            elif section == "format":
                # Each was checked by itself; the newest says what may be in the whole.
                self.joined[section] = max(str(held or content), str(content), key=_minor)
                self.origin.setdefault((section,), file)
            elif section not in self.joined:
                self.joined[section] = content
                self.origin[(section,)] = file
            elif not _same(held, content):
                self._contradict((section,), content, file)

    def _join(self, held: dict[str, Any], content: Mapping[str, Any], at: Steps, file: str, depth: int) -> None:
        """Add what one file says of a thing to what others say."""
        known = {name.lower(): name for name in held} if at[0] != "extensions" else {name: name for name in held}
        for name, thing in content.items():
            key = name.lower() if at[0] != "extensions" else name
            steps = tuple(str(step).lower() for step in (*at, name))
            deeper = depth - 1 or (_RUNS - 1 if at[0] == "models" and len(at) == 2 and name == "runs" else 0)
            if key not in known:
                # What is joined later must not change the document of a caller.
                held[name] = _copied(thing, deeper)
                self.origin[steps] = file
                self._note((*at, name), thing, file, deeper)
            elif deeper and isinstance(thing, Mapping) and isinstance(held[known[key]], dict):
                self._join(held[known[key]], thing, (*at, name), file, deeper)
            elif self.origin.get(steps) == file:
                held[name] = thing  # a second spelling within one file: the model says so
            elif not _same(held[known[key]], thing):
                self._contradict((*at, name), thing, file)

    def _note(self, at: Steps, thing: Any, file: str, depth: int) -> None:
        """Note the file of everything that may be joined with what another file says."""
        if depth and isinstance(thing, Mapping):
            for name, below in thing.items():
                self.origin[tuple(str(step).lower() for step in (*at, name))] = file
                runs = len(at) == 2 and at[0] == "models" and name == "runs"
                self._note((*at, name), below, file, 1 if runs else depth - 1)

    def _contradict(self, steps: Steps, value: Any, file: str) -> None:
        origin = Origins("", self.origin)(steps)
        fault = _contradiction(steps, value, file, origin)
        if steps[0] == "sources" and (source := self.alone.get(file)) is not None:
            nameless = "name" not in source
            fault = replace(fault, path="$.source", remedy='Add "name" to each.' if nameless else fault.remedy)
        self.faults.append(fault)


def _copied(thing: Any, depth: int) -> Any:
    if not depth or not isinstance(thing, Mapping):
        return thing
    return {name: _copied(below, 1 if name == "runs" else depth - 1) for name, below in thing.items()}


@dataclass(frozen=True)
class _Apart:
    """What does not hold for all of several files alike, and is said in each place that it holds for then."""

    source: bool
    currency: bool
    models: frozenset[str]

    @staticmethod
    def of(documents: Sequence[Mapping[str, Any]]) -> _Apart:
        """A file without models or pipelines has no numbers to say a source of, one without prices no currency."""
        sourced = [one for one in documents if one.get("models") or one.get("pipelines") or "source" in one]
        sources = {canonical_bytes(one.get("source")) for one in sourced}
        several = len(sources) > 1 or any("sources" in one for one in documents)
        models = Counter(
            name.lower() for one in documents if isinstance(held := one.get("models"), Mapping) for name in held
        )
        many = frozenset(name for name, count in models.items() if count > 1)
        return _Apart(several, any("currency" in one for one in documents), many)


def _by_itself(document: Mapping[str, Any], apart: _Apart) -> dict[str, Any]:
    """A file whose runs say all themselves: what it says once holds for its own runs, not for those of other files."""
    made = dict(document)
    name = None
    if apart.source and isinstance(source := document.get("source"), Mapping):
        name = source.get("name", "source")
        made.pop("source")
        made["sources"] = {name: {key: one for key, one in source.items() if key != "name"}}
    priced = (_priced(document.get(section)) for section in ("machines", "models", "apis"))
    if apart.currency and "currency" not in document and any(priced):
        made["currency"] = ProfileFile.model_fields["currency"].default  # not that of another file
    models = document.get("models")
    if isinstance(models, Mapping):
        made["models"] = {
            model: _spread(said, name) if name is not None or model.lower() in apart.models else said
            for model, said in models.items()
        }
    return made


def _priced(section: Any) -> bool:
    return isinstance(section, Mapping) and any(
        key.startswith("price_per_") or _priced(one) for key, one in section.items()
    )


def _spread(said: Any, source: str | None) -> Any:
    if not isinstance(said, Mapping):
        return said
    named = {"source": source} if source is not None else {}
    own = {key: one for key, one in said.items() if key in OF_MODEL}
    own |= {"quality_source": source} if source and "quality" in said and "quality_source" not in said else {}
    shared = {**named, **{key: one for key, one in said.items() if key not in OF_MODEL}}
    if not isinstance(said.get("runs"), Mapping):
        return {**own, **shared} if len(shared) > len(named) else own

    def whole(run: Any) -> Any:
        if not isinstance(run, Mapping):
            return run
        return {**named, **run} if "like" in run else joined(shared, run)

    runs = {
        machine: [whole(one) for one in run] if isinstance(run, list) else whole(run)
        for machine, run in said["runs"].items()
    }
    return {**own, "runs": runs}


def _contradiction(steps: Steps, value: Any, file: str, other: str) -> Fault:
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
