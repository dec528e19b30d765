"""HiGHS through highspy: the default engine for linear and mixed-integer programs.

A family (`solve_all`) shares one model: only the data that differ from the form before are handed over, and each linear
program starts from the basis of the one before.

A time-limited linear program gives a point, never a bound: HiGHS reports the objective of whatever
iterate it stopped at. `limits.work` counts branch-and-bound nodes, and simplex iterations of a linear program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hetplan.planner.answer import Answer, Limits
from hetplan.planner.forms.milp import Milp, Vector
from hetplan.solvers.highs_model import LARGEST, Found, HighsModel
from hetplan.solvers.milp_engine import MilpEngine

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["Highs"]

WRONG_ON_INTEGERS = ("1.14.0",)
"""Its presolve calls worse points optimal (min x + y/4, x + y >= 2.5, y <= 3/4, x whole: 3 instead of 2.125)."""


class Highs(MilpEngine):
    """The default engine.

    >>> from hetplan.planner.forms.milp import Builder
    >>> from hetplan.planner.answer import Limits
    >>> m = Builder("max")
    >>> x = m.columns("x", ["a", "b"], upper=3, cost=[1, 2])
    >>> m.add(m.rows("room", ["r"], upper=4), x, 1.0)
    >>> answer = Highs().solve(m.build(), Limits())
    >>> answer.value, answer.row_duals.tolist()
    (7.0, [1.0])
    """

    name: ClassVar[str] = "highs"
    package: ClassVar[str] = "highspy"
    module: ClassVar[str] = "highspy"
    gives_rays: ClassVar[bool] = True

    def _refuses(self, form: Milp) -> str:
        if not form.pure_lp and self.version() in WRONG_ON_INTEGERS:
            return (
                f"highspy {self.version()} returns wrong optima of mixed-integer programs; "
                "run: pip install 'highspy!=1.14.*'"
            )
        if np.abs(form.matrix.data).max(initial=0.0) > LARGEST:
            return f"HiGHS takes no matrix entry beyond {LARGEST:g}; use larger units"
        return ""

    def _run(self, form: Milp, limits: Limits, *, start: Vector | None, on_event: OnEvent | None) -> Found:
        model = HighsModel(form)
        if start is not None and not form.pure_lp:
            model.begin_at(start)
        return model.run(limits, on_event)

    def solve_all(
        self, forms: Iterable[Milp], limits: Limits, *, on_event: OnEvent | None = None
    ) -> list[Answer[Vector]]:
        """Answer a family through one warm model. `limits.seconds` is for all of it, `limits.work` for each."""
        from hetplan.solvers.highs_family import solve_family

        return solve_family(self, forms, limits, on_event=on_event)
