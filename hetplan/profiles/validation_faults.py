"""From pydantic's errors to faults that a person can mend: file, JSON path, value, what was expected, what to write."""

from __future__ import annotations

import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from hetplan.errors import Fault
from hetplan.profiles.fields import Later
from hetplan.profiles.json_path import closest, json_path, shortened, walk
from hetplan.profiles.places import FileOf
from hetplan.profiles.read_json import is_newer

__all__ = ["Located", "left_without", "located_faults"]

_LONG_LIST = 80
"""Letters of a list that a message still shows."""
_FEW_KEYS = 8
"""Of an object with more keys a message names none: the line is long enough."""
_AN_OBJECT = "Write { ... }."
Steps = tuple[str | int, ...]
Located = tuple[Steps, Fault]
"""A fault with the steps to its place, for code that has to act on the place."""


def located_faults(
    error: ValidationError,
    model_type: type[BaseModel],
    data: Any,
    file: str | FileOf,
    written: Callable[[Steps], Steps] = tuple,
) -> list[Located]:
    """Every fault of a validation error, with its place in the data; messages say where that was `written`."""
    newer = is_newer(data)
    faults: list[Located] = []
    for steps, is_key, details in _by_place(error.errors(include_url=False), data):
        why, remedy = _explain(details, steps, model_type, newer=newer)
        shown = ""
        if is_key:
            shown = shortened(steps[-1])
        elif details[0]["type"] != "missing":
            shown = shortened(walk(data, steps)[1])
        at = written(steps)
        named = file if isinstance(file, str) else file(at)
        faults.append((steps, Fault(file=named, path=json_path(at), value=shown, why=why, remedy=remedy)))
    return faults


def _by_place(errors: Sequence[Any], data: Any) -> Iterator[tuple[Steps, bool, list[Any]]]:
    """The errors grouped by the place (or the key) that they complain of; a union complains once per branch."""
    groups: dict[tuple[Steps, bool], list[Any]] = {}
    in_union: set[Steps] = set()
    for error in errors:
        steps, _, skipped = walk(data, error["loc"])
        is_key = error["loc"][-1:] == ("[key]",)
        if error["type"] == "missing":
            steps = (*steps, error["loc"][-1])
        elif skipped and not is_key:
            in_union.add(steps)
        if error["type"] == "hetplan":
            # The validator may point further down than pydantic can know.
            steps = (*steps, *error["ctx"].get("at", ()))
        groups.setdefault((steps, is_key), []).append(error)
    holders = {steps[:length] for steps, _ in groups for length in range(len(steps))}
    for (steps, is_key), details in groups.items():
        if steps in in_union and steps in holders:
            continue  # "not a number" says nothing new where the object was meant and has its own fault
        yield steps, is_key, details


def _explain(details: list[Any], steps: Steps, model_type: type[BaseModel], *, newer: bool) -> tuple[str, str]:
    """What was expected, and what to write instead."""
    if len(details) > 1:
        expected = list(dict.fromkeys(_expected(detail) for detail in details))
        remedy = next((_remedy(detail, steps) for detail in details if _remedy(detail, steps)), "")
        return " or ".join(expected), remedy or "Write one of these."
    detail = details[0]
    if detail["type"] == "extra_forbidden":
        moved = _MOVED.get(tuple("*" if steps[max(0, at - 1)] in ("apps", "offers", "machines") and at else step
                                 for at, step in enumerate(steps)))  # fmt: skip
        if moved is not None and model_type.__name__ in ("Slo", "ProfileFile"):
            return moved[0], moved[1] if isinstance(moved[1], str) else moved[1](detail.get("input"))
        known = sorted(_keys_at(model_type, detail["loc"][:-1]) or _keys_at(model_type, steps[:-1]))
        near = closest(steps[-1], known)
        listed = f"Known here: {', '.join(known)}." if known else "Remove it."
        listed = "" if near and len(known) > _FEW_KEYS else listed
        cure = "Upgrade hetplan: the file is of a newer version." if newer else listed
        return "this format has no such key", f"{near}{cure}".rstrip()
    remedy = _remedy(detail, steps)
    if remedy == _AN_OBJECT and 0 < len(known := sorted(_keys_at(model_type, steps))) <= _FEW_KEYS:
        remedy = f"Write {{{known[-1]}: ...}}; known there: {', '.join(known)}."
    return _expected(detail), remedy or "Mend the value."


def _renamed(name: str) -> Callable[[object], str]:
    """How the same value is written under its name of today."""
    return lambda old: f"Write {json.dumps(name)}: {_as_text(old)}."


def _answerer(old: object) -> str:
    """What answers an application, in the fields of today."""
    kinds = {"variants": "models", "families": "family", "task": "task", "pipeline": "pipeline"}
    said = {kind: old[key] for key, kind in kinds.items() if old.get(key)} if isinstance(old, Mapping) else {}
    if len(said) != 1:
        return f"Write one of model, models, family, task, pipeline{f', not {len(said)} of them' if said else ''}."
    ((kind, names),) = said.items()
    if isinstance(names, list | tuple) and len(names) == 1:
        kind, names = kind.replace("models", "model"), names[0]
    return f"Write {json.dumps(kind)}: {json.dumps(names, default=str)}."


def _rates(old: object) -> str:
    """How much comes, and how, in the fields of today; of several amounts the first, as there is only one."""
    said = dict(old) if isinstance(old, Mapping) else {"rate_qps": old}
    rate = said.get("rate_qps", said.get("level"))
    amounts = {name: said[key] for key, name in (("series", "series"), ("history_qps", "history")) if said.get(key)}
    if isinstance(rate, Mapping):
        amounts |= {"range": rate}
    elif isinstance(rate, int | float | str):
        amounts |= {"mean": rate}
    rates = dict(list(amounts.items())[:1])
    rates |= {"trace": said["trace"]} if said.get("trace") else {}
    if isinstance(span := rates.pop("range", None), Mapping):
        rates = {**span, **rates}
    found = {"rate_qps": rates["mean"] if list(rates) == ["mean"] else rates} if rates else {}
    found |= {name: said[name] for name in ("streams", "arrivals", "mix") if said.get(name) is not None}
    more = f" The rate is said once, not by {' and '.join(amounts)}." if len(amounts) > 1 else ""
    return f"Write {_as_text(found)[1:-1]}.{more}" if found else "Leave it out."


def _as_text(one: object) -> str:
    """JSON without what is in long lists."""
    if isinstance(one, Mapping):
        return "{" + ", ".join(f"{json.dumps(name)}: {_as_text(below)}" for name, below in one.items()) + "}"
    text = json.dumps(one, default=str)
    return "[...]" if isinstance(one, list | tuple) and len(text) > _LONG_LIST else text


def _share(old: object) -> str:
    """A share of all machines, in the fields of today."""
    if not isinstance(old, list | tuple):
        return f"Write {json.dumps('max_share')}: {json.dumps(old, default=str)}, or min_share."
    ends = zip(("min_share", "max_share"), (0, 1), old, strict=False)
    said = [f"{json.dumps(name)}: {json.dumps(end)}" for name, usual, end in ends if end != usual]
    return f"Write {', '.join(said) or 'no share'}."


_WAYS = (("spot",), ("on_demand",), ("reserved",), ("offers", "*"))
_BUDGET = "Write limits: {cost_per_hour: ...}, beside apps."
_MOVED: Mapping[Steps, tuple[str, str | Callable[[object], str]]] = {
    ("apps", "*", "runs"): ("an application itself says what answers it", _answerer),
    ("apps", "*", "demand"): ("rate_qps, streams, arrivals and mix stand in the application itself", _rates),
    ("apps", "*", "balancing"): (
        "the load balancer that is there is dispatch",
        lambda old: f"Write {json.dumps('dispatch')}: {json.dumps(str(old).replace('_', '-'))}.",
    ),
    ("apps", "*", "violations"): (
        "a share of late answers is said by a percentile: 5% late is p95",
        "Write latency: {p95_ms: 60}.",
    ),
    ("apps", "*", "goodput"): ("the share of requests within all limits at once is attainment", _renamed("attainment")),
    ("apps", "*", "rate"): ("the rate is rate_qps", _renamed("rate_qps")),
    ("apps", "*", "qps"): ("the rate is rate_qps", _renamed("rate_qps")),
    **dict.fromkeys((("budget",), ("apps", "*", "budget")), ("a budget is one of the limits", _BUDGET)),
    ("limits", "budget"): ("a budget is cost_per_hour", _renamed("cost_per_hour")),
    ("machines", "*", "price"): ("a price is per hour", _renamed("price_per_hour")),
    ("machines", "*", "count"): ("how many can be had is stock", _renamed("stock")),
    ("machines", "*", "gpu"): ("its kind is gpu_type, its count in provides", "Write gpu_type or provides: {gpu: 1}."),
    ("apps", "*", "variants"): (
        "what answers an application is model, or models",
        lambda old: _answerer({"variants": old}),
    ),
    ("apps", "*", "families"): ("what answers an application is family", lambda old: _answerer({"families": old})),
    ("apps", "*", "series"): ("a rate per period is said by rate_qps", lambda old: _rates({"series": old})),
    ("apps", "*", "history_qps"): ("rates of the past are said by rate_qps", lambda old: _rates({"history_qps": old})),
    ("apps", "*", "trace"): ("recorded arrivals are said by rate_qps", lambda old: _rates({"trace": old})),
    **{("limits", *way, "share"): ("a share of all machines is min_share and max_share", _share) for way in _WAYS},
    ("limits", "committed"): ("machines that are paid ahead are reserved", _renamed("reserved")),
    ("limits", "machines"): ("how many machines of each hardware there may be is instances", _renamed("instances")),
    ("limits", "offers", "*", "least"): ("the fewest machines are min", _renamed("min")),
    ("limits", "offers", "*", "most"): ("the most machines are max", _renamed("max")),
    ("limits", "moves"): ("how many may be new is changes", _renamed("changes")),
    ("limits", "resources"): (
        "what rented machines provide together is provides; what runs and candidates take is capacity",
        "Write provides or, where machines are not counted, capacity.",
    ),
    ("limits", "survive", "hosts"): ("here machines are lost", _renamed("machines")),
    ("limits", "survive", "keep"): (
        "the share of each rate that is served after a failure is serve",
        _renamed("serve"),
    ),
}
"""Keys of older files, or that people try, by their places, and what is written instead."""

_EXPECTED = {
    "missing": "this key is required",
    "float_type": "a number",
    "float_parsing": "a number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "string_too_short": "text of at least {min_length} character",
    "string_too_long": "text of at most {max_length} characters",
    "string_pattern_mismatch": "text of the form {pattern}",
    "union_tag_invalid": "one of {expected_tags}",
    "union_tag_not_found": "a key {discriminator} that says which kind this is",
}


def _expected(detail: Any) -> str:
    context = detail.get("ctx", {})
    if detail["type"] == "hetplan":
        return str(context["why"])
    if detail["type"] == "value_error":
        return str(detail["msg"]).removeprefix("Value error, ")
    template = _EXPECTED.get(detail["type"])
    if template is None:
        return str(detail["msg"])
    return template.format(**context)


def _remedy(detail: Any, steps: Steps) -> str:
    kind, value, context = detail["type"], detail.get("input"), detail.get("ctx", {})
    if kind == "hetplan":
        return str(context["remedy"])
    if kind == "missing":
        return f'Add "{steps[-1]}".'
    if kind in ("float_type", "int_type") and isinstance(value, str) and _is_number(value):
        number = _as_json(value)
        if number == value.strip():
            return f"Write {number} without quotes."
        # In YAML it may have had no quotes: numbers are read by the rules of JSON there too.
        return f"Write {number}, as JSON writes numbers." if number else _TYPE_REMEDIES["finite_number"]
    if kind in ("int_type", "int_from_float") and isinstance(value, float) and value == int(value):
        return f"Write {int(value)}."
    if kind == "literal_error":
        words = re.findall(r"'([^']*)'", context["expected"])
        return f"{closest(value, words)}Write one of these."
    if kind in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        return _unit_hint(steps, value) or "Write a number in this range."
    return _TYPE_REMEDIES.get(kind, "")


_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")

_TYPE_REMEDIES = {
    "float_type": "Write a number such as 1.5.",
    "int_type": "Write a whole number such as 3.",
    "int_from_float": "Round it.",
    "string_type": 'Write text in double quotes, "...".',
    "bool_type": "Write true or false, without quotes.",
    "tuple_type": "Put it into [ ].",
    "list_type": "Put it into [ ].",
    "dict_type": _AN_OBJECT,
    "model_type": _AN_OBJECT,
    "model_attributes_type": _AN_OBJECT,
    "too_short": "Add what is missing, or leave the key out.",
    "too_long": "Remove what is too many.",
    "finite_number": "Write null or leave the key out where there is no number.",
    "string_pattern_mismatch": "Write it in that form.",
}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _as_json(text: str) -> str:
    """The number of a text as JSON writes it; "" where it is not finite.

    >>> [_as_json(text) for text in ("1_000", "+5", ".5", "017", "1e3", "-0.50", "NaN")]
    ['1000', '5', '0.5', '17', '1e3', '-0.50', '']
    """
    plain = text.strip().replace("_", "")
    if not math.isfinite(float(plain)):
        return ""
    if _JSON_NUMBER.fullmatch(plain):
        return plain
    try:
        return str(int(plain))
    except ValueError:
        return f"{float(plain):.17g}" if repr(float(plain)).endswith(".0") else repr(float(plain))


def _keys_at(model_type: type[BaseModel], steps: Steps) -> set[str]:
    """The keys that the format knows at a place; a step may be the tag of one of several kinds."""
    here: list[Any] = [model_type]
    for step in steps:
        kinds = [plain for kind in here for plain in _alternatives(kind)]
        tagged = [plain for plain in kinds if _is_tagged(plain, step)] if len(kinds) > 1 else []
        here = tagged or [below for plain in kinds for below in _below(plain, step)]
    return {key for kind in here for key in _keys_of(kind)}


def _alternatives(kind: Any) -> Iterator[Any]:
    """The types that an annotation may mean, without Annotated and unions around them."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        plain, *marks = typing.get_args(kind)
        later = [mark.model for mark in marks if isinstance(mark, Later)]
        yield from later or _alternatives(plain)
    elif origin in (typing.Union, types.UnionType):
        for branch in typing.get_args(kind):
            yield from _alternatives(branch)
    else:
        yield kind


def _is_tagged(plain: Any, tag: str | int) -> bool:
    """Whether a tag of a union means this kind."""
    fields = plain.model_fields.values() if isinstance(plain, type) and issubclass(plain, BaseModel) else ()
    literals = (field.annotation for field in fields if typing.get_origin(field.annotation) is typing.Literal)
    return any(typing.get_args(one) == (tag,) for one in literals)


def _below(kind: Any, step: str | int) -> Iterator[Any]:
    for plain in _alternatives(kind):
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            for name, field in plain.model_fields.items():
                if step in (name, field.alias):
                    yield field.annotation
        elif typing.get_origin(plain) is dict:
            yield typing.get_args(plain)[1]
        elif typing.get_origin(plain) is tuple and isinstance(step, int):
            inside = typing.get_args(plain)
            repeated = len(inside) == 2 and inside[1] is Ellipsis
            if repeated or step < len(inside):
                yield inside[0 if repeated else step]


def _keys_of(kind: Any) -> Iterator[str]:
    for plain in _alternatives(kind):
        if isinstance(plain, type) and issubclass(plain, BaseModel):
            yield from (field.alias or name for name, field in plain.model_fields.items())


_FRACTIONS = frozenset({"gpu", "share_grid", "offline_below", "utilisation", "interval", "range"})


def _unit_hint(steps: tuple[str | int, ...], value: object) -> str:
    """What the author of an impossible number probably meant, if that can be guessed."""
    key = next((step for step in reversed(steps) if isinstance(step, str)), "")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if key in _FRACTIONS and 1 < value <= 100:
        return f"Fractions, not percent: write {value / 100:g}."
    if value == 0 and key.endswith(("_ms", "_s")):
        return "A time is never 0: write the true time, in milliseconds for _ms and seconds for _s."
    return ""


def left_without(document: Mapping[str, Any], located: Sequence[Located]) -> dict[str, Any]:
    """The document without the things that have a fault."""
    faulty = {steps[:2] for steps, _ in located}
    left: dict[str, Any] = {}
    for section, content in document.items():
        if (section,) in faulty:
            continue
        if isinstance(content, Mapping):
            content = {key: value for key, value in content.items() if (section, key) not in faulty}
        elif isinstance(content, list):
            content = [value for number, value in enumerate(content) if (section, number) not in faulty]
        left[section] = content
    return left
