"""`formulate`: the mathematical program of a problem, by names, for any solver.

>>> import hetplan as hp
>>> program = hp.formulate("examples/pool/profile.json", "examples/pool/slo.json")
>>> program
pool-milp
  variables: 17 (4 whole): lam (1), x (12), n (4)
  rows: 14: served (5), capacity (3), stock (2), budget (1), somebody (3)
  objective: max 115.42 lam[rate]
>>> solved = program.solve()
>>> solved.status, len(program.variables), len(program.rows)
('optimal', 17, 14)
>>> round(program.read(solved.point).summary.cost_per_hour, 2)
2.88
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from io import StringIO
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hetplan import registry
from hetplan.api.solve import Choice, choose, fluid_size, plan_for, pose
from hetplan.errors import InputError
from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.draft import Infeasibility
from hetplan.planner.forms.milp import Milp
from hetplan.planner.forms.program import point_faults
from hetplan.planner.solver_calls import Asking
from hetplan.profiles.arguments import check_arguments
from hetplan.profiles.given_files import GivenFile, sort_files

if TYPE_CHECKING:
    from hetplan.planner.contract import Problem, Solver
    from hetplan.planner.forms.program import Block, Vector
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = ["Objective", "Program", "Row", "Solution", "Variable", "formulate"]

MAX_SHOWN = 5
"""Blocks, and terms of the objective, that `repr` of a program shows: each list then has one or two lines."""


@dataclass(frozen=True)
class Variable:
    """A column of the program: its bounds, and whether it is whole."""

    lower: float
    upper: float
    whole: bool


@dataclass(frozen=True)
class Row:
    """lower <= sum of coefficient x variable <= upper."""

    lower: float
    upper: float
    terms: Mapping[str, float]


@dataclass(frozen=True)
class Objective:
    """What is to be small ("min") or large ("max"): constant + sum of coefficient x variable."""

    sense: str
    terms: Mapping[str, float]
    constant: float = 0.0


@dataclass(frozen=True)
class Solution:
    """What a solver says: `point` has the value of every variable, and is empty where there is none."""

    status: str
    value: float | None
    bound: float | None
    point: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """The program of a problem at fluid rates: nothing in it depends on who solves it."""

    inputs: Inputs
    choice: Choice
    milp: Milp
    """Its numbers: a matrix, bounds, costs."""

    def __repr__(self) -> str:
        """Its name, variables, rows and objective in four lines."""
        size, aim = self.milp.size(), self.objectives[0]
        terms = [f"{value:.6g} {name}" for name, value in islice(aim.terms.items(), MAX_SHOWN)]
        return "\n".join([
            self.choice.formulation,
            f"  variables: {size['columns']} ({size['whole']} whole): {_block_sizes(self.milp.columns)}",
            f"  rows: {size['rows']}: {_block_sizes(self.milp.rows)}",
            f"  objective: {aim.sense} {_shortened(terms, len(aim.terms), ' + ')}",
        ])  # fmt: skip

    @cached_property
    def variables(self) -> Mapping[str, Variable]:
        """The columns by name."""
        bounds = zip(self.milp.lower.tolist(), self.milp.upper.tolist(), self.milp.whole.tolist(), strict=True)
        return {name: Variable(*one) for name, one in zip(self._names, bounds, strict=True)}

    @cached_property
    def rows(self) -> Mapping[str, Row]:
        """The rows by name."""
        matrix, found = self.milp.matrix.tocsr(), {}
        bounds = zip(self.milp.row_lower.tolist(), self.milp.row_upper.tolist(), strict=True)
        for i, (lower, upper) in enumerate(bounds):
            here = slice(matrix.indptr[i], matrix.indptr[i + 1])
            terms = zip((self._names[j] for j in matrix.indices[here]), matrix.data[here].tolist(), strict=True)
            found[self.milp.row_name(i)] = Row(lower, upper, dict(terms))
        return found

    @cached_property
    def objectives(self) -> tuple[Objective, ...]:
        """What is optimised; the first comes first."""
        terms = {self._names[j]: float(self.milp.cost[j]) for j in np.flatnonzero(self.milp.cost)}
        return (Objective(self.milp.sense, terms, self.milp.offset),)

    @cached_property
    def _names(self) -> list[str]:
        return [self.milp.column_name(j) for j in range(self.milp.cost.size)]

    def solve(
        self, solver: str | None = None, *, time_limit: float | None = None, gap: float | None = None, seed: int = 0
    ) -> Solution:
        """What a solver (by default the first that takes the program) says of it; the answer is certified."""
        ask = Asking(registry.Engines(), Limits(seconds=time_limit, gap=gap, seed=seed), solver=solver)
        answer = ask(self.milp)
        found = ask.record_of(answer)
        certificate = found[1] if found is not None else None
        values = {} if answer.point is None else dict(zip(self._names, answer.point.tolist(), strict=True))
        value, bound = (None, None) if certificate is None else (certificate.value, certificate.bound)
        return Solution(str(answer.status), value, bound, values)

    def to_lp(self) -> str:
        """The program in CPLEX's LP format."""
        return self._written("lp")

    def to_mps(self) -> str:
        """The program in MPS, which every solver reads."""
        return self._written("mps")

    def to_pyomo(self) -> Any:
        """A `pyomo.environ.ConcreteModel`: `model.x[j]` is the j-th of `variables`, `model.rows[i]` of `rows`."""
        from hetplan.solvers.pyomo_bridge import pyomo_model

        return pyomo_model(self.milp)

    def read(self, point: Mapping[str, float]) -> Plan:
        """The plan that these values of the variables mean, verified; variables that are left out are 0."""
        unknown = [name for name in point if name not in self.variables]
        if unknown:
            raise InputError.one(
                path="point", value=unknown[0], why="the program has no such variable", remedy="See its variables."
            )
        values = np.array([float(point.get(name, 0.0)) for name in self._names])
        faults, _ = point_faults(self.milp, values)
        if faults:
            raise InputError.one(path="point", why=faults[0], remedy="Give values that keep every row and bound.")
        return plan_for(
            self.inputs, question=self.choice.problem.question, formulation=self.choice.formulation,
            options=self.choice.options.model_dump(exclude_unset=True), engines=_PointFirst(values), try_repairs=False,
        ).require()  # fmt: skip

    def _written(self, to: str) -> str:
        from hetplan.planner.forms.write_milp import write_lp, write_mps

        text = StringIO()
        (write_lp if to == "lp" else write_mps)(self.milp, text)
        return text.getvalue()


def _block_sizes(blocks: Iterable[Block]) -> str:
    """The blocks with their sizes; those of one name are added."""
    sizes = Counter[str]()
    for block in blocks:
        sizes[block.name] += block.size
    sizes += Counter()  # without empty blocks
    return _shortened([f"{name} ({size})" for name, size in islice(sizes.items(), MAX_SHOWN)], len(sizes), ", ")


def _shortened(shown: list[str], count: int, between: str) -> str:
    """The first of `count` texts; the others are counted."""
    return between.join([*shown, f"... ({count - len(shown)} more)"] if count > len(shown) else shown or ["0"])


@check_arguments
def formulate(
    *files: GivenFile | Inputs | None, formulation: str | None = None, options: Mapping[str, Any] | None = None
) -> Program:
    """The program of the problem that the files state, as data: variables, rows and objectives by name.

    It is of fluid rates, where nothing waits, unless the options say otherwise. Where a formulation asks several
    programs, it is the one that the first objective rests on.
    """
    inputs = sort_files(files, "formulate", in_python=True).inputs
    choice = choose(inputs, formulation=formulation, options=options)
    fluid = fluid_size(choice, inputs)
    if fluid:
        asked = {"question": choice.problem.question, "formulation": choice.formulation}
        choice = choose(inputs, **asked, options={**(options or {}), **fluid})
    form = _program_of(pose(inputs, choice, tools=registry.tools_of(choice.problem.question)))
    if form is None:
        raise InputError.one(
            path="formulation", value=choice.formulation, why="it asks no linear program",
            remedy=f"Choose another of `hetplan list options {choice.problem.question}`.",
        )  # fmt: skip
    return Program(inputs, choice, form)


def _program_of(problem: Problem) -> Milp | None:
    """The program that the first objective rests on: a problem may ask several, each from the answers before it."""
    ask = Asking(registry.Engines())
    result = problem.decide(ask)
    asked = [(one.form, one.certificates[0].value) for one in ask.records if len(one.answers) == 1]
    programs = [(form, value) for form, value in asked if isinstance(form, Milp)]
    for one in () if isinstance(result, Infeasibility) else result.reported[:1]:
        for form, value in programs:
            # A looser program may bound the claim: what is read is the one whose value the plan has.
            if value is not None and one.value is not None and np.isclose(one.scale * value + one.shift, one.value):
                return form
    return programs[-1][0] if programs else None


class _Point:
    """A solver that answers with the values that it was given, wherever they are a point of the program."""

    name: ClassVar[str] = "point"
    form: ClassVar[str] = "milp"

    def __init__(self, values: Vector) -> None:
        self._values = values

    def version(self) -> str:
        return "1"

    def refuses(self, form: Any) -> str:
        of_others = form.cost.shape != self._values.shape or point_faults(form, self._values)[0]
        return "the point is of another program" if of_others else ""

    def solve(self, form: Any, limits: Limits, **how: Any) -> Answer[Any]:
        del limits, how
        return Answer(
            Status.FEASIBLE, Stop.FINISHED, self._values, form.value(self._values), engine=self.name, detail="given"
        )

    def solve_all(self, forms: Iterable[Any], limits: Limits, **how: Any) -> list[Answer[Any]]:
        return [self.solve(form, limits, **how) for form in forms]


class _PointFirst(registry.Engines):
    """The solvers at hand, after the one that answers with a point."""

    def __init__(self, values: Vector) -> None:
        super().__init__()
        self._point = _Point(values)

    def of(self, form: str) -> Iterator[Solver]:
        if form == self._point.form:
            yield self._point
        yield from super().of(form)
