"""Variants as a part of a fleet: what limits on latency come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetplan.planner.contract import Tools
from hetplan.problems.variants.options import VariantsOptions
from hetplan.problems.variants.question import Variants
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.validate import validate

__all__ = ["serving"]


def serving(inputs: Inputs, options: Mapping[str, Any]) -> tuple[tuple[object, ...], ...]:
    """Who serves whom in time, how fast and beside how many: nothing else of a plan's machines comes from the limit."""
    asked = Variants.from_inputs(
        inputs, validate(VariantsOptions, dict(options), file="options"), formulation="columns", tools=Tools()
    )
    v = asked.snapshot
    if v.options.size != "planned":
        from hetplan.problems.variants.size import leaving_room_to_wait

        v = leaving_room_to_wait(v)
    kinds = v.kinds
    return tuple(
        (one.app, kinds[one.kind].id, kinds[one.kind].type, one.qps, one.late, one.beside, one.busy) for one in v.serves
    )
