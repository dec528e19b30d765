"""The shape of measurements: what every reader of them may rely on, checked once where they are read.

Whether they suit a search (its ranges, its samples, the paths that queries may take) is for the search to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.json_path import shortened
from hetplan.profiles.plain_data import is_number
from hetplan.profiles.who_answers import pipeline_of

__all__ = ["measured_document_of", "refuse_malformed_measurements"]

SET_ASIDE = "set-aside"
"""The verdict on a setting that could not be measured: nothing more is said of it."""
REMEDY = "Give the journal that --evaluate wrote for these inputs."


def measured_document_of(source: Any, name: str, read: Callable[[], Any]) -> Mapping[str, Any]:
    """The measurements of a source: of a journal, or of a document that `read` reads."""
    from hetplan.profiles.journal import journal_document

    document = journal_document(source, name) or read()
    if not isinstance(document, Mapping):
        raise InputError.one(
            file=name, path="$", value=shortened(document), why="a JSON object at the top", remedy="Put it into { }."
        )
    return document


def refuse_malformed_measurements(inputs: Inputs) -> None:
    """Raise `InputError` where an entry lacks what verifying, playing or applying a plan would read."""
    document, file = inputs.measured, inputs.files.get("measured", "measured")
    apps = document.get("apps", {})
    if not isinstance(apps, Mapping) or not all(isinstance(entries, list) for entries in apps.values()):
        why = "an object with a list of measured settings per application"
        raise InputError.one(file=file, path="$.apps", why=why, remedy=REMEDY)
    faults = []
    for name, entries in apps.items():
        pipeline = pipeline_of(inputs.profile, inputs.slo.apps.get(name))
        steps = tuple(pipeline.nodes) if pipeline is not None else ()
        exits = pipeline is not None and pipeline.has_outcomes
        for number, entry in enumerate(entries):
            at = f"$.apps.{name}[{number}]"
            faults += [Fault(file, f"{at}{path}", "", why, REMEDY) for path, why in _entry(entry, steps, exits)]
    if faults:
        raise InputError(faults)


def _entry(entry: Any, steps: tuple[str, ...], exits: bool) -> Iterator[tuple[str, str]]:
    """What is wrong with one measured setting: (where below it, why)."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("knobs"), Mapping):
        yield "", "an object with the knobs of a setting"
        return
    if entry.get("verdict") == SET_ASIDE or "seconds" not in entry:
        return
    if not is_number(entry.get("mean")):
        yield ".mean", "a number: the mean of the scores"
    if not _amount(entry.get("input_bytes", 0.0)):
        yield ".input_bytes", "a number, 0 or more"
    for key in ("seconds", "bytes"):
        held = entry.get(key)
        if not isinstance(held, Mapping) or not all(_amount(held.get(step)) for step in (*steps, *held)):
            yield f".{key}", "a number of every operator, 0 or more"
    if "runs" in entry:
        yield from _runs(entry["runs"], steps)
    elif exits:
        yield ".runs", "what each sample took of every operator: queries end early at some"


def _runs(runs: Any, steps: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What each sample took, of every operator; null where it did not run."""
    sizes = runs.get("input_bytes") if isinstance(runs, Mapping) else None
    if not isinstance(sizes, list) or not sizes or not all(map(_amount, sizes)):
        yield ".runs.input_bytes", "a list with a number per sample"
        return
    for key in ("seconds", "bytes", "rounds"):
        held = runs.get(key, {} if key == "rounds" else None)
        named = (*steps, *held) if isinstance(held, Mapping) and (held or key != "rounds") else ()
        lists = [held.get(step) for step in named] if isinstance(held, Mapping) else [None]
        if not all(_per_sample(one, len(sizes), empty=key == "seconds") for one in lists):
            yield f".runs.{key}", f"a list per operator, with a number for each of {len(sizes)} samples"


def _per_sample(values: Any, count: int, *, empty: bool) -> bool:
    """Whether this is a number, 0 or more, for each of so many samples."""
    return (
        isinstance(values, list) and len(values) == count and all(_amount(v) or (empty and v is None) for v in values)
    )


def _amount(value: Any) -> bool:
    return is_number(value) and value >= 0
