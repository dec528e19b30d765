"""The same model with its mappings in one order: what is planned hangs on no order in which a file lists things.

Ties are broken by what comes first, so files that say the same in another order could get another plan, and one plan in
three was a worse one. Tables are left out (their axes are in alphabetical order already), and so is what no reader
orders by itself: free extensions. Lists keep their order: places in them are named to the user.
"""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel

from hetplan.profiles.tables import Table

__all__ = ["in_one_order"]

M = TypeVar("M", bound=BaseModel)


def in_one_order(model: M) -> M:
    """The model with the keys of every mapping sorted; the same object where they are already.

    >>> from hetplan.profiles.profile import Profile
    >>> profile = Profile.model_validate({"hardware": {"t4": {"kind": "gpu"}, "cpu": {"kind": "cpu"}}})
    >>> list(in_one_order(profile).hardware)
    ['cpu', 't4']
    """
    changes = {}
    for name in model.model_fields_set - {"extensions"}:
        value = getattr(model, name)
        ordered = _ordered(value)
        if ordered is not value:
            changes[name] = ordered
    return model.model_copy(update=changes) if changes else model


def _ordered(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value if isinstance(value, Table) else in_one_order(value)
    if isinstance(value, dict):
        keys = sorted(value)
        found = {key: _ordered(value[key]) for key in keys}
        return value if keys == list(value) and all(found[key] is value[key] for key in keys) else found
    if isinstance(value, tuple) and any(isinstance(one, BaseModel | dict) for one in value):
        several = tuple(map(_ordered, value))
        return value if all(one is other for one, other in zip(several, value, strict=True)) else several
    return value
