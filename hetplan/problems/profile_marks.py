"""Which fields of a profile and of a state each question keeps: one declaration, read by the docs and their test.

Each line has one letter per question, in the order of `QUESTIONS`; a line that ends in a dot is for a whole section,
where no longer line fits a field. A profile may serve several questions, so it may say what one of them has no use for:

======  ========  ================================================================================================
letter  mark      meaning
======  ========  ================================================================================================
k       kept      the plan, what it promises or warns of, or whether there is one depends on it
p       played    no plan of planned sizes depends on it; `simulate` or `apply` does, and so does a plan that is played
m       measured  it says how configurations are measured; a plan depends on it by what was measured
a       asked     only a formulation that is not the default one depends on it
o       part      of a fleet: as the question of the application has it
r       refused   it is an error that names it
w       warned    nothing depends on it, and a warning of the plan or of `check` names it
u       unused    it says nothing to this question
\\-       \\-         about the file itself, where numbers come from, or read to check the file alone
======  ========  ================================================================================================

No solve imports this.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from pydantic import BaseModel

from hetplan.problems.field_marks import QUESTIONS, fields_of, in_markdown
from hetplan.profiles.profile import Profile
from hetplan.profiles.state import State

__all__ = ["MODELS", "fields_of_file", "line_of", "mark_in", "table_of"]

MODELS: Mapping[str, type[BaseModel]] = {"profile": Profile, "state": State}
_NAMES = {
    "k": "kept", "p": "played", "m": "measured", "a": "asked", "o": "part", "r": "refused", "w": "warned",
    "u": "unused", "-": "-",
}  # fmt: skip

#   pool pipeline variants policy compound llm fleet
_OF_PROFILE = {
    "format": "-------",
    "requires": "-------",
    "extensions": "-------",
    "reference": "-------",
    "sources.": "-------",
    "metrics.*.better": "ukukkuo",
    "metrics.*.range": "----m--",
    "metrics.*.kind": "uuuumuu",
    "metrics.*.unit": "-------",
    "tiers": "ppppkuo",
    "hardware.*.kind": "uukuuuo",
    "hardware.*.tier": "ppppkko",
    "hardware.*.relative_time": "uuuukuo",
    "hardware.*.startup_s": "ppkpppk",
    "hardware.*.provides": "kkkkkkk",
    "offers.*.hardware": "kkkkkkk",
    "offers.*.price_per_hour": "kkkpkkk",
    "offers.*.currency": "kkkkkkk",
    "offers.*.stock": "kkkkkkk",
    "offers.*.zone": "uuuuuuk",
    "offers.*.per": "kkkpkkk",
    "offers.*.interruptions_per_hour": "kkkkkkk",
    "offers.*.commit.": "wwwwwwk",
    "zones.": "rrrrrrk",
    "hosts.": "uukuuuo",
    "links.": "ppppkko",
    "links.*.latency_ms": "ppppkro",
    "tasks.*.metric": "ukukuuo",
    "variants.*.task": "kkkkuko",
    "variants.*.family": "kukkuko",
    "variants.*.quality.value": "kkkkuko",
    "variants.*.quality.source": "-------",
    "variants.*.artifact.kind": "-------",
    "variants.*.artifact.sha256": "kkkkuko",
    "variants.*.knobs": "kkkuuuo",
    "variants.*.runs.*.hardware": "kkkkuko",
    "variants.*.runs.*.latency": "kkkkuuo",
    "variants.*.runs.*.rate": "krkruuo",
    "variants.*.runs.*.engine": "uuuuuko",
    "variants.*.runs.*.at": "kkkkuko",
    "variants.*.runs.*.load_s": "ppkpupp",
    "variants.*.runs.*.saturation_qps": "uukuuuo",
    "variants.*.runs.*.price_per_hour": "kkkpurr",
    "variants.*.runs.*.needs": "kkkkuko",
    "variants.*.runs.*.bytes_out": "wwwwuww",
    "variants.*.runs.*.slowdown": "ppkpuuo",
    "tables.*.quantity": "kkkkkuo",
    "tables.*.axes": "kkkkkuo",
    "tables.*.mean": "kkkkkuo",
    "tables.*.std": "kpppuuo",
    "tables.*.p50": "kkkkkuo",
    "tables.*.p90": "kkkkkuo",
    "tables.*.p95": "kkkkkuo",
    "tables.*.p99": "kkkkkuo",
    "tables.*.max": "kkkkkuo",
    "tables.*.samples": "-------",
    "tables.*.source": "-------",
    "tables.*.outside": "kkkuuuo",
    "tables.*.given": "-------",
    "tables.*.points.": "kuuuuuo",
    "tables.*.interval": "-------",
    "apis.": "uuuukuu",
    "engines.": "uuuuuko",
    "engines.*.schedule": "uuuuupo",
    "engines.*.precision": "-------",
    "engines.*.source": "-------",
    "engines.*.law.form": "-------",
    "engines.*.law.fit_error": "-------",
    "pipelines.": "uuuukuu",
    "pipelines.*.nodes.*.task": "ukuuuuo",
    "pipelines.*.nodes.*.device": "uruukuo",
    "pipelines.*.nodes.*.reads": "uruukuo",
    "pipelines.*.nodes.*.share_law": "uruukuo",
    "pipelines.*.nodes.*.needs": "uruukuo",
    "pipelines.*.nodes.*.outcomes.": "uruumuo",
    "pipelines.*.nodes.*.outcomes.source": "-------",
    "pipelines.*.nodes.*.calls.": "uruukuo",
    "pipelines.*.nodes.*.model": "uruukuo",
    "pipelines.*.nodes.*.batches": "uruukuo",
    "pipelines.*.edges.": "ukuukuo",
    "pipelines.*.edges.*.on": "uruumuo",
    "pipelines.*.edges.*.bytes": "upuuuuo",
    "pipelines.*.quality.": "ukuuuuo",
    "pipelines.*.space.": "uuuumuu",
    "pipelines.*.metric": "ukuukuo",
    "pipelines.*.evaluator": "-------",
    "pipelines.*.strata": "uuuumuu",
}  # fmt: skip
_OF_STATE = {
    "format": "-------",
    "requires": "-------",
    "extensions": "-------",
    "workers.*.id": "kkkkkkk",
    "workers.*.period": "kpukkku",
    "workers.*.hardware": "kkkkkkk",
    "workers.*.offer": "kkkkkkk",
    "workers.*.host": "kpkkkku",
    "workers.*.count": "kkkkkkk",
    "workers.*.standby": "kkrkkkk",
    "workers.*.queue": "kpukkku",
    "workers.*.loads.": "kpkkkku",
    "workers.*.loads.*.id": "kkkkkku",
    "workers.*.loads.*.app": "kkpkkkk",
    "workers.*.loads.*.node": "kkpkkku",
    "workers.*.loads.*.outcomes": "kppkkku",
    "workers.*.loads.*.variant": "kkkkkku",
    "workers.*.loads.*.artifact": "kkpkkku",
    "workers.*.loads.*.instances": "kkkkkku",
    "workers.*.loads.*.serve.": "kppkkku",
    "workers.*.loads.*.serve.max_batch": "kpkkkku",
    "observed.": "uuauuuu",
}  # fmt: skip
_LINES: Mapping[str, Mapping[str, str]] = {"profile": _OF_PROFILE, "state": _OF_STATE}


@cache
def fields_of_file(file: str) -> tuple[str, ...]:
    """Every field of a profile or a state, "*" for ids and places in lists.

    >>> fields_of_file("profile")[2:4], fields_of_file("state")[2:4]
    (('sources.*.kind', 'sources.*.tool'), ('workers.*.id', 'workers.*.period'))
    """
    return tuple(fields_of(MODELS[file]))


def line_of(file: str, field: str) -> str | None:
    """The line that declares a field: its own, or that of the nearest section; None where there is none."""
    fitting = (one for one in _LINES[file] if one == field or (one[-1] == "." and field.startswith(one)))
    return max(fitting, key=len, default=None)


def mark_in(file: str, question: str, field: str) -> str:
    """What a question does with a field of a profile or a state.

    >>> mark_in("profile", "pool", "zones.*.quota"), mark_in("profile", "fleet", "zones.*.quota")
    ('refused', 'kept')
    """
    return _NAMES[_LINES[file][line_of(file, field) or ""][QUESTIONS.index(question)]]


def table_of(file: str) -> str:
    """What each question does with each field of a profile or a state, as a table in Markdown."""
    return in_markdown(fields_of_file(file), lambda question, field: mark_in(file, question, field))
