"""The one list of what hetplan is made of. To add a part is to add its line here, or an entry point elsewhere.

Entry points of other packages (groups `hetplan.problems`, `.solvers`, `.checks`, `.targets`, `.importers`) join the
same lists. Nothing here is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.planner.contract import Problem, Solver

__all__ = ["PROBLEMS", "SOLVERS", "check_of", "importers", "problem", "problem_names", "solvers"]

PROBLEMS = {
    "pool": "hetplan.problems.pool:Pool",
}
"""Question -> the class that poses it."""

ALIASES = {"kairos": "pool", "loki": "pipeline", "infaas": "variants", "ramsis": "policy", "circinus": "compound"}
"""The papers' names."""

SOLVERS = {
    "highs": "hetplan.solvers.highs:Highs",
    "scipy": "hetplan.solvers.scipy_milp:Scipy",
    "mathopt-highs": "hetplan.solvers.mathopt:MathOptHighs",
    "mathopt-scip": "hetplan.solvers.mathopt:MathOptScip",
    "glop": "hetplan.solvers.mathopt:Glop",
    "mathopt-pdlp": "hetplan.solvers.mathopt:MathOptPdlp",
    "cp-sat": "hetplan.solvers.cp_sat:CpSat",
    "cp-sat-scaled": "hetplan.solvers.cp_sat:CpSatScaled",
    "pyomo": "hetplan.solvers.pyomo_bridge:Pyomo",
}
"""Engines in order of preference within each kind of form."""

CHECKS = {
    "pool": "hetplan.verifier.pool:check",
}
"""Question -> the verifier's check of its own promise."""

IMPORTERS = {
    "melange": "hetplan.profiles.imports.melange:convert",
}
"""Kind of foreign file -> its converter."""


def problem_names() -> list[str]:
    """Every question at hand, hetplan's own first."""
    return [*PROBLEMS, *sorted(_plugins("problems").keys() - PROBLEMS.keys())]


def problem(name: str) -> type[Problem]:
    """The class of a question, by its name or its paper's."""
    wanted = name.lower()
    wanted = ALIASES.get(wanted, wanted)
    found = _find(PROBLEMS, "problems", wanted)
    if found is None:
        raise InputError.one(
            path="question",
            value=name,
            why="there is no such question",
            remedy=f"Choose one of {', '.join(problem_names())}; `hetplan questions` tells what each decides.",
        )
    kind: type[Problem] = found
    return kind


def solvers(form: str | None = None, *, named: Sequence[str | None] = ()) -> list[Solver]:
    """Engines in order of preference, those of one kind of form or all; uninstalled ones refuse by themselves.

    `named` may hold ``pyomo:ENGINE``, for any engine that Pyomo finds on this machine.
    """
    names = [*SOLVERS, *sorted(_plugins("solvers").keys() - SOLVERS.keys())]
    made: list[Solver] = [_find(SOLVERS, "solvers", name)() for name in names]
    for name in dict.fromkeys(named):
        if name is not None and name.startswith("pyomo:"):
            made.append(import_module("hetplan.solvers.pyomo_bridge").pyomo_with(name.removeprefix("pyomo:")))
    return [engine for engine in made if form is None or engine.form == form]


def check_of(question: str) -> Callable[..., Any] | None:
    """The verifier's check of a question's promise, or None where it has none."""
    found: Callable[..., Any] | None = _find(CHECKS, "checks", question)
    return found


def importers() -> dict[str, Callable[..., Any]]:
    """Converters of foreign files."""
    names = [*IMPORTERS, *sorted(_plugins("importers").keys() - IMPORTERS.keys())]
    return {name: _find(IMPORTERS, "importers", name) for name in names}


def _find(own: dict[str, str], group: str, name: str) -> Any:
    if name in own:
        module, _, attribute = own[name].partition(":")
        return getattr(import_module(module), attribute)
    plugin = _plugins(group).get(name)
    return plugin.load() if plugin is not None else None


def _plugins(group: str) -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=f"hetplan.{group}")}
