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
from hetplan.profiles.columns import STATISTICS
from hetplan.profiles.profile import Profile
from hetplan.profiles.state import State

__all__ = ["MODELS", "field_in_file", "fields_of_file", "line_of", "mark_in", "table_of"]

MODELS: Mapping[str, type[BaseModel]] = {"profile": Profile, "state": State}
_NAMES = {
    "k": "kept", "p": "played", "m": "measured", "a": "asked", "o": "part", "r": "refused", "w": "warned",
    "u": "unused", "-": "-",
}  # fmt: skip

#   pool pipeline variants policy compound llm fleet
_OF_PROFILE = {
    "format": "-------",
    "extensions": "-------",
    "reference": "-------",
    "sources.": "-------",
    "metrics.*.better": "ukukkuo",
    "metrics.*.range": "----m--",
    "metrics.*.kind": "uuuumuu",
    "metrics.*.unit": "-------",
    "tiers": "ppppkuo",
    "hardware.*.kind": "uukuuuo",
    "hardware.*.gpu_type": "-------",
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
_WRITTEN: Mapping[str, str | None] = {
    "hardware": "machines", "offers.*.commit.term_s": "machines.*.reserved.term_days",
    "offers.*.commit": "machines.*.reserved", "offers.*.zone": "machines.*.zones", "offers.*.hardware": None,
    "offers.*.interruptions_per_hour": "machines.*.spot.interruptions_per_hour", "offers.*.currency": "currency",
    "offers": "machines", "hosts.*.offer": "machines.*.hosts", "tasks.*.metric": None,
    "variants.*.quality.value": "models.*.quality", "variants.*.quality.source": "models.*.quality_source",
    "variants.*.runs.*.hardware": "models.*.runs", "variants.*.runs.*.latency": None,
    "variants.*.runs.*.rate": "models.*.runs.*.mean_qps", "variants.*.runs.*.engine": "models.*.runs.*.law",
    "variants.*.runs.*.saturation_qps": "models.*.runs.*.max_qps", "variants": "models", "tables.*.quantity": None,
    **{f"tables.*.{name}": f"models.*.runs.*.{name}_ms" for name in STATISTICS},
    "engines.*.pieces.*": "models.*.runs.*.law", "engines.*.law.form": None,
    **{f"engines.*.law.{name}": f"models.*.runs.*.{name}" for name in ("basis", "error_mean", "fit_error", "range")},
    "engines.*.fitted.error": None, "engines.*.fitted": "models.*.runs.*.range",
    "engines.*.most_tokens": "models.*.runs.*.max_tokens", "engines.*.most_seqs": "models.*.runs.*.max_seqs",
    "engines.*.reserves": "models.*.runs.*.reserves_kv", "tables": "models.*.runs", "engines": "models.*.runs",
    "tables.*": "models.*.runs.*", "engines.*": "models.*.runs.*", "metrics.*.unit": "metrics.*.unit",
    "pipelines.*.nodes.*.device": "pipelines.*.stages.*.resource", "pipelines.*.nodes": "pipelines.*.stages",
    "pipelines.*.nodes.*.outcomes.source": None, "pipelines.*.quality.rule": "pipelines.*.quality",
    "pipelines.*.nodes.*.outcomes.share": "pipelines.*.stages.*.outcomes",
    "pipelines.*.nodes.*.outcomes.measured": None,
    "pipelines.*.nodes.*.calls.*.tokens.in": "pipelines.*.stages.*.calls.*.tokens_in",
    "pipelines.*.nodes.*.calls.*.tokens.out": "pipelines.*.stages.*.calls.*.tokens_out",
    "pipelines.*.quality.weights": "pipelines.*.weights", "pipelines.*.quality.paths": "pipelines.*.paths",
}  # fmt: skip
"""Where a file says what is planned with, by the beginning of a field; None: it follows from others."""
_LINES: Mapping[str, Mapping[str, str]] = {"profile": _OF_PROFILE, "state": _OF_STATE}


@cache
def fields_of_file(file: str) -> tuple[str, ...]:
    """Every field of a state, or of a profile as it is planned with; "*" for ids and places in lists.

    >>> fields_of_file("profile")[2:4], fields_of_file("state")[2:4]
    (('sources.*.tool', 'sources.*.host'), ('workers.*.id', 'workers.*.period'))
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


def field_in_file(field: str) -> str | None:
    """What a field of a profile that is planned with is called in a file; None where it follows from others.

    >>> field_in_file("offers.*.stock"), field_in_file("tables.*.p99"), field_in_file("tables.*.quantity")
    ('machines.*.stock', 'models.*.runs.*.p99_ms', None)
    """
    fitting = (one for one in _WRITTEN if field == one or field.startswith(f"{one}."))
    longest = max(fitting, key=len, default=None)
    if longest is None:
        return field
    written = _WRITTEN[longest]
    return None if written is None else f"{written}{field.removeprefix(longest)}"


def table_of(file: str) -> str:
    """What each question does with each field of a profile or a state, as a table in Markdown."""
    if file == "state":
        return in_markdown(fields_of_file(file), lambda question, field: mark_in(file, question, field))
    named: dict[str, str] = {}
    for field in fields_of_file(file):
        written = field_in_file(field)
        if written is not None:
            named.setdefault(written, field)
    return in_markdown(sorted(named), lambda question, field: mark_in(file, question, named[field]))
