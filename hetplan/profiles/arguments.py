"""Arguments of public functions, checked by the annotations of their signatures before any work begins."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar

from hetplan.errors import InputError

__all__ = ["check_arguments", "is_number"]

P = ParamSpec("P")
R = TypeVar("R")


def is_number(value: object) -> bool:
    """Whether this is a real number, of any library; True and False are none.

    >>> is_number(Decimal("2.5")), is_number(True), is_number("2.5")
    (True, False, False)
    """
    return isinstance(value, Real | Decimal) and not isinstance(value, bool)


def _is_document(value: object) -> bool:
    return isinstance(value, str | bytes | os.PathLike | Mapping) or _is_model(value)


def _is_model(value: object) -> bool:
    """Whether this is an object that was read: pydantic is not loaded to tell."""
    return hasattr(value, "model_dump") or type(value).__name__ == "Inputs"


KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "str": ("a text", lambda value: isinstance(value, str)),
    "int": ("a whole number", lambda value: isinstance(value, Integral) and not isinstance(value, bool)),
    "float": ("a number", lambda value: is_number(value) and value == value),
    "bool": ("True or False", lambda value: isinstance(value, bool)),
    "Mapping": ("a mapping of names to values",
                lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value)),
    "Sequence": ("a sequence", lambda value: isinstance(value, Sequence) and not isinstance(value, str | bytes)),
    "tuple": ("a pair", lambda value: isinstance(value, tuple | list)),
    "Callable": ("a function", callable),
    "OnEvent": ("a function of an event", callable),
    "threading.Event": ("a threading.Event", lambda value: callable(getattr(value, "is_set", None))),
    "Source": ("a path or a document", lambda value: isinstance(value, str | os.PathLike | Mapping)),
    "GivenFile": ("a path, the bytes of a file, a document, or an object that was read", _is_document),
    "os.PathLike": ("a path", lambda value: isinstance(value, os.PathLike)),
    "Plan": ("a Plan", _is_model),
    "Inputs": ("Inputs", _is_model),
}  # fmt: skip
"""How an annotation begins -> what it is called, and whether a value is one. Others are not checked."""


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which refuses arguments that its annotations do not name, all at once, with `InputError`.

    >>> @check_arguments
    ... def wait(seconds: float | None = None) -> None: ...
    >>> wait("x")
    Traceback (most recent call last):
    hetplan.errors.InputError: seconds (found 'x'): a number is needed. Give one, or leave it out.
    """
    signature = inspect.signature(function)
    known = {
        name: (kinds, one.kind) for name, one in signature.parameters.items()
        if name != "self" and one.kind is not one.VAR_KEYWORD and (kinds := _kinds(str(one.annotation)))
    }  # fmt: skip

    @wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        faults = list[InputError]()
        bound = signature.bind(*args, **named)
        for name, given in bound.arguments.items():
            if name in known:
                kinds, place = known[name]
                values = given if place is inspect.Parameter.VAR_POSITIONAL else (given,)
                faults += [_fault(name, value, kinds) for value in values if not _is_one(value, kinds)]
        if faults:
            raise InputError(fault for error in faults for fault in error.faults)
        bound.arguments.update({name: _plain(bound.arguments[name]) for name in known if name in bound.arguments})
        return function(*bound.args, **bound.kwargs)

    return checked


def _plain(value: Any) -> Any:
    """Numbers of other libraries as Python's own, with which all others can be reckoned."""
    if not is_number(value) or isinstance(value, int | float):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _kinds(annotation: str) -> tuple[str, ...]:
    """How the alternatives of an annotation begin; none where one of them is not known."""
    text, depth, outer = annotation, 0, ""
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        outer += letter if depth == 0 and letter != "]" else ""
    found = tuple(one.strip() for one in outer.split("|"))
    return found if all(one == "None" or one in KINDS for one in found) else ()


def _is_one(value: object, kinds: Sequence[str]) -> bool:
    return any(value is None if kind == "None" else KINDS[kind][1](value) for kind in kinds)


def _fault(name: str, value: object, kinds: Sequence[str]) -> InputError:
    if type(value).__name__ == "Outcome":
        why, remedy = "this is how planning ended, and not its plan", "Give outcome.plan, or outcome.require()."
        return InputError.one(path=name, value="an Outcome", why=why, remedy=remedy)
    words = " or ".join(dict.fromkeys(KINDS[kind][0] for kind in kinds if kind != "None"))
    remedy = "Give one, or leave it out." if "None" in kinds else "Give one."
    shown = repr(value)
    return InputError.one(path=name, value=shown if len(shown) <= 60 else f"{shown[:57]}...",
                          why=f"{words} is needed", remedy=remedy)  # fmt: skip
