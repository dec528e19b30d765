"""Sections that profile files had before format 1.0, and the new form of the first of what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hetplan.errors import Fault
from hetplan.profiles.json_path import json_path, shortened
from hetplan.profiles.places import FileOf

__all__ = ["faults_of_old_sections"]

Json = dict[str, Any]

_NOW: Mapping[str, tuple[str, str]] = {
    "hardware": ("machines", "types of machine and their prices are machines"),
    "offers": ("machines", "a price is price_per_hour, spot or reserved of a machine type"),
    "hosts": ("machines", "machines that are there already are hosts of a machine type"),
    "variants": ("models", "what can be served is models"),
    "tables": ("models", "measured times are columns of a run of a model"),
    "engines": ("models", "laws of language models are said at runs of a model"),
    "tasks": ("models", "a task is said at its models, with their quality as {metric: number}"),
}
_EXAMPLES: Mapping[str, tuple[str, Json]] = {
    "machines": ("t4", {"provides": {"gpu": 1}, "price_per_hour": 0.526}),
    "models": ("net", {"batch": [1, 8], "runs": {"t4": {"mean_ms": [6, 24]}}}),
}
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
    first = _first_machine if section == "machines" else _first_model
    try:
        (name, said), hint = first(document), ""
    except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError):
        (name, said), hint = _EXAMPLES[section], "for instance "
    text = json.dumps({name: said})
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST].rpartition(', ')[0]}, ..."
    several = not hint and len(document.get("hardware" if section == "machines" else "variants", ())) > 1
    return f'Write {hint}"{section}": {text}{", and so on" if several else ""}.'


def _first_machine(document: Mapping[str, Any]) -> tuple[str, Json]:
    """A machine type with one of its prices."""
    from hetplan.profiles.new_files import price_of, without_nothing

    hardware, offers = document.get("hardware") or {}, (document.get("offers") or {}).values()
    name = next(iter(hardware), None) or next(iter(offers))["hardware"]
    said = without_nothing(hardware.get(name, {}))
    for offer in [one for one in offers if one["hardware"] == name][:1]:
        said |= {"price_per_hour": price_of(offer["price_per_hour"])}
    return name, said


def _first_model(document: Mapping[str, Any]) -> tuple[str, Json]:
    """A model with one of its runs."""
    from hetplan.profiles.columns import RATES, TIMES
    from hetplan.profiles.lowering import stated_law

    name, model = next(iter(document["variants"].items()))
    run = model["runs"][0]
    if "engine" in run:
        engine = document["engines"][run["engine"]]
        said = {"law": engine["pieces"]} if "pieces" in engine else stated_law(engine["law"])
        said |= {"kv_tokens": engine["kv_tokens"]}
    else:
        columns = TIMES if "latency" in run else RATES
        table = document["tables"][run["latency" if "latency" in run else "rate"]]
        axes = table.get("axes", {})
        said = {"batch": axes["batch"]} if list(axes) == ["batch"] else {"axes": axes}
        said |= {called: table[statistic] for statistic, called in columns.items() if statistic in table}
    return name, {"task": model["task"], "runs": {run["hardware"]: said}}
