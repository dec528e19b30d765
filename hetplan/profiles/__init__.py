"""The files as they are written: what was measured, what is wanted, what runs, and the plan; and how they are read.

A map of this floor, from the outside in::

    load.py            paths, documents or models -> Inputs; every fault of every file at once, and odd units
    inputs.py          Inputs: profile, SLO, state, measurements, traces, and their digests
      read_json.py       bytes -> a document with one meaning, of a `format` that this reader may read; plain_data.py
      merge.py           several profile files -> one document, and which file each thing came from
      validate.py        pydantic's errors -> faults with file, path, value, reason and remedy
      references.py      every reference leads somewhere; *_references.py: what few files have; dangling*.py
      mix.py, traces.py  observed sizes -> bins; recorded arrivals -> seconds
      canonical.py       RFC 8785 and the digests
    profile.py, pipelines.py, slo.py, state.py, workers.py    the models, made of fields.py
    plan.py, plan_sections.py, plan_policy.py   the plan's models; plan_file.py writes it, read_plan.py reads it
    tables.py          measured tables, read on their grid, and between its points (multilinear.py)
    schema.py          JSON Schemas
    lint.py            what `hetplan check` says of valid inputs; law_review.py: what times of language models rest on
    catalogue.py       laws that ship (laws.csv); estimated_laws.py: of other cards; language_models.py, cards.py: sizes
    imports/           other tools' files

Nothing here loads NumPy before a table is read off its grid, a trace is read or rows are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.load import load_inputs
    from hetplan.profiles.load_one import load_profile, load_slo, load_state
    from hetplan.profiles.profile import Profile
    from hetplan.profiles.slo import Slo
    from hetplan.profiles.state import State

__all__ = ["Inputs", "Profile", "Slo", "State", "load_inputs", "load_profile", "load_slo", "load_state"]

_HOME = {
    "Inputs": "inputs",
    "Profile": "profile",
    "Slo": "slo",
    "State": "state",
    "load_inputs": "load",
    "load_profile": "load_one",
    "load_slo": "load_one",
    "load_state": "load_one",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
