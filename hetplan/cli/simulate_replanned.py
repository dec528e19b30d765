"""`hetplan simulate --replan`: the options that it is not played together with."""

from __future__ import annotations

from collections.abc import Mapping

from hetplan.errors import InputError

__all__ = ["refuse_beside"]


def refuse_beside(replan: float | None, given: Mapping[str, object]) -> None:
    """Options that a run with re-planning does not play."""
    named = sorted(name for name, value in given.items() if value)
    if replan is not None and named:
        raise InputError.one(
            file=named[0], value=str(given[named[0]]), why="not played together with --replan",
            remedy="Leave one of them out; loads over time are demand.series of the SLO file.",
        )  # fmt: skip
