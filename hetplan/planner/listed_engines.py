"""Engines that a caller has at hand, in place of those that load themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetplan.planner.contract import Solver

__all__ = ["Listed"]


class Listed:
    """Engines in order of preference."""

    def __init__(self, engines: Sequence[Solver]) -> None:
        self._engines = tuple(engines)

    def of(self, form: str) -> Iterator[Solver]:
        """Those of one kind of form, as they were listed."""
        return (engine for engine in self._engines if engine.form == form)

    def named(self, name: str, form: str) -> Solver | None:
        """The one of this name, where it answers this kind of form."""
        return next((engine for engine in self.of(form) if engine.name == name), None)
