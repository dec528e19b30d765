"""What tools that write profile files have in common: what several runs say alike is said once, and prices are numbers.

A file in the shape that a person would write: importers, measurements and `hetplan init` write no other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from hetplan.profiles.fields import money_text, parse_money
from hetplan.profiles.lowering import ENGINE_KEYS, SPEEDS, stated_law
from hetplan.profiles.plain_data import whole_if_it_is
from hetplan.profiles.read_json import format_of

__all__ = ["engine_run", "model_of", "new_profile", "price_of", "runs_of", "without_nothing", "zoned"]

Json = dict[str, Any]
_NOT_SHARED = ("law", "like")
"""Keys of a run that are said at each run even where they are alike everywhere."""


def new_profile(source: Json | None, *, currency: str | None = None, **sections: Any) -> Json:
    """A file whose numbers are of one source; what is nothing is left out.

    >>> new_profile({"kind": "measured"}, machines={"t4": {}}, models={})
    {'format': 'hetplan/profile/1.0', 'source': {'kind': 'measured'}, 'machines': {'t4': {}}}
    """
    return without_nothing({"format": format_of("profile"), "currency": currency, "source": source, **sections})


def without_nothing(said: Mapping[str, Any]) -> Json:
    """What is said, but for keys of nothing."""
    return {key: one for key, one in said.items() if one not in (None, {}, [], ())}


def model_of(task: str, name: str, runs: Iterable[tuple[str, Json]], **about: Any) -> Json:
    """A model of a task with its runs."""
    return ({"task": task} if task != name else {}) | without_nothing(about) | runs_of(runs)


def runs_of(runs: Iterable[tuple[str, Json]]) -> Json:
    """The runs of a model by machine type; what all of them say alike is said once, beside them.

    >>> runs_of([("t4", {"batch": [1], "mean_ms": [6]}), ("cpu", {"batch": [1], "mean_ms": [60]})])
    {'batch': [1], 'runs': {'t4': {'mean_ms': [6]}, 'cpu': {'mean_ms': [60]}}}
    """
    listed = list(runs)
    shared = _shared([one for _, one in listed])
    by_machine: dict[str, list[Json]] = {}
    for machine, one in listed:
        by_machine.setdefault(machine, []).append({key: said for key, said in one.items() if key not in shared})
    found = {machine: several[0] if len(several) == 1 else several for machine, several in by_machine.items()}
    return shared | ({"runs": found} if found else {})


def _shared(runs: list[Json]) -> Json:
    """What several runs of a model say alike, to be said once; all of them have to say it."""
    if len(runs) < 2:
        return {}
    first, *others = runs
    alike = {key for key in first if all(key in other and other[key] == first[key] for other in others)}
    said = {key for one in runs for key in one if key in SPEEDS}
    if not said <= alike:  # one who says a time inherits none
        alike -= said
    return {key: one for key, one in first.items() if key in alike and key not in _NOT_SHARED}


def engine_run(law: Mapping[str, Any], **about: Any) -> Json:
    """A run by a law of nine numbers: what is known of the engine, of the law, and the law.

    >>> engine_run({"form": "iteration/2", "base_ms": 5, "basis": "measured"}, kv_tokens=9000)
    {'kv_tokens': 9000, 'basis': 'measured', 'law': {'base_ms': 5}}
    """
    return {key: about[key] for key in ENGINE_KEYS if about.get(key) is not None} | stated_law(law)


def zoned(zones: Mapping[str, Json]) -> Json:
    """The prices of a machine type in some zones; a list of these where prices are alike in all.

    >>> zoned({"east": {"price_per_hour": 1}, "west": {"price_per_hour": 1}})
    {'zones': ['east', 'west'], 'price_per_hour': 1}
    """
    if not zones:
        return {}
    first, *others = zones.values()
    if any(json.dumps(one, sort_keys=True) != json.dumps(first, sort_keys=True) for one in others):
        return {"zones": dict(zones)}
    return {"zones": list(zones), **first}


def price_of(money: Any) -> float | int | str:
    """An amount as a number; as text where no number is that decimal.

    >>> price_of("0.526"), price_of("2.00")
    (0.526, 2)
    """
    nanos = parse_money(money)
    number = float(money_text(nanos))
    return whole_if_it_is(number) if parse_money(number) == nanos else money_text(nanos)
