"""Known cases of the Milp form: what every engine must answer, with primal and dual answers where there are any.

A case says what is true of the form (its status, its best value), and carries an optimal point and, for linear
programs, optimal duals, so that the case itself can be checked by optimality conditions. An engine need not return
that point or those duals: whatever it returns is judged by `certify` and by the value.

Forms that are large, hard or many: for limits, cancelling, starts and warm families.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from hetplan.planner.answer import Status
from hetplan.planner.forms.milp import Builder, Milp, Vector

__all__ = ["MilpCase", "covering", "hard_lp", "hard_mip", "milp_cases", "transport", "warm_family"]


FREE = np.inf


@dataclass(frozen=True)
class MilpCase:
    """One form and what is true of it."""

    name: str
    write: Callable[[], Milp]
    status: Status
    value: float | None = None
    point: Sequence[float] | None = None
    row_duals: Sequence[float] | None = None
    certifiable: bool = True
    """Whether duals in floating point can prove the value (not where a free column has no bound of any kind)."""

    @cached_property
    def form(self) -> Milp:
        """The form, written when first asked for."""
        return self.write()


def milp_cases() -> list[MilpCase]:
    """Every known case, small ones first."""
    return [
        *_linear(),
        *_linear_in_shape(),
        *_linear_at_the_edge(),
        *_linear_without_optimum(),
        *_whole(),
        *_whole_at_the_edge(),
        *_whole_without_optimum(),
        *_empty(),
        *_large(),
    ]


def _form(
    sense: str,
    cost: ArrayLike,
    matrix: Sequence[Sequence[float]] | Vector,
    *,
    rows: tuple[ArrayLike, ArrayLike],
    columns: tuple[ArrayLike, ArrayLike] = (0.0, FREE),
    whole: Sequence[int] = (),
    offset: float = 0.0,
) -> Milp:
    cost = np.asarray(cost, dtype=float)
    dense = np.asarray(matrix, dtype=float).reshape(-1, cost.size)
    m = Builder("min" if sense == "min" else "max", offset=offset)
    lower, upper = (np.broadcast_to(np.asarray(bound, dtype=float), cost.shape) for bound in columns)
    named = [f"x{j}" for j in range(cost.size)]
    x = [
        m.columns(named[j], [""], lower=lower[j], upper=upper[j], cost=cost[j], whole=j in whole)[0]
        for j in range(cost.size)
    ]
    low, high = (np.broadcast_to(np.asarray(bound, dtype=float), dense.shape[:1]) for bound in rows)
    for i, line in enumerate(dense):
        m.add(m.rows(f"r{i}", [""], lower=low[i], upper=high[i]), x, line)
    return m.build()


def _linear() -> list[MilpCase]:
    optimal = Status.OPTIMAL
    return [
        MilpCase(
            "optimum of a maximum",
            lambda: _form("max", [3, 5], [[1, 0], [0, 2], [3, 2]], rows=(-FREE, [4, 12, 18])),
            optimal,
            36.0,
            (2, 6),
            (0, 1.5, 1),
        ),
        MilpCase(
            "optimum of a minimum",
            lambda: _form("min", [2, 3], [[1, 1], [1, 2]], rows=([4, 6], FREE)),
            optimal,
            10.0,
            (2, 2),
            (1, 1),
        ),
        MilpCase(
            "offset, and a price at a bound",
            lambda: _form("max", [1, 2], [[1, 1]], rows=(-FREE, 4), columns=(0, 3), offset=10),
            optimal,
            17.0,
            (1, 3),
            (1,),
        ),
        MilpCase(
            "several duals",
            lambda: _form("max", [1, 1], [[1, 1], [2, 2]], rows=(-FREE, [1, 2])),
            optimal,
            1.0,
            (1, 0),
            (0.5, 0.25),
        ),
        MilpCase(
            "tie between vertices",
            lambda: _form("min", [1, 1, 1], [[1, 1, 1]], rows=(2, FREE), columns=(0, 2)),
            optimal,
            2.0,
            (0, 2, 0),
            (1,),
        ),
    ]


def _linear_in_shape() -> list[MilpCase]:
    optimal = Status.OPTIMAL
    return [
        MilpCase(
            "free columns and equations",
            lambda: _form("min", [1, 1], [[1, -1], [1, 2]], rows=([1, -5], [1, FREE]), columns=(-FREE, FREE)),
            optimal,
            -3.0,
            (-1, -2),
            (1 / 3, 2 / 3),
            certifiable=False,
        ),
        MilpCase(
            "a row bound on both sides, met below",
            lambda: _form("min", [1, 4], [[1, 1], [1, -1]], rows=([2, -1], [6, 1])),
            optimal,
            3.5,
            (1.5, 0.5),
            (2.5, -1.5),
        ),
        MilpCase(
            "fixed columns",
            lambda: _form("max", [7, 1, 1], [[1, 1, 1]], rows=(-FREE, 5), columns=([2, 0, 0], [2, FREE, 2])),
            optimal,
            17.0,
            (2, 3, 0),
            (1,),
        ),
        MilpCase(
            "negative bounds",
            lambda: _form("min", [1, -1], [[1, 1]], rows=(-FREE, 0), columns=([-4, -3], [-1, 3])),
            optimal,
            -7.0,
            (-4, 3),
            (0,),
        ),
    ]


def _linear_at_the_edge() -> list[MilpCase]:
    optimal = Status.OPTIMAL
    return [
        MilpCase(
            "a row that binds nothing, and one without bounds",
            lambda: _form("max", [1, 0], [[1, 1], [1, -1], [1, 0]], rows=([-FREE, -FREE, -FREE], [100, FREE, 7])),
            optimal,
            7.0,
            (7, 0),
            (0, 0, 1),
        ),
        MilpCase(
            "no objective",
            lambda: _form("min", [0, 0], [[1, 1]], rows=(1, 1), offset=-2),
            optimal,
            -2.0,
            (1, 0),
            (0,),
        ),
        MilpCase(
            "degenerate vertex (Beale's cycle)",
            lambda: _form(
                "min",
                [-0.75, 150, -0.02, 6],
                [[0.25, -60, -0.04, 9], [0.5, -90, -0.02, 3], [0, 0, 1, 0]],
                rows=(-FREE, [0, 0, 1]),
            ),
            optimal,
            -0.05,
            (0.04, 0, 1, 0),
            (0, -1.5, -0.05),
        ),
        MilpCase(
            "coefficients from 1e-4 to 1e5",
            lambda: _form("max", [1e-2, 2e3], [[1e-4, 1e2], [1e5, 0.0]], rows=(-FREE, [1e1, 1e9])),
            optimal,
            280.0,
            (1e4, 0.09),
            (20.0, 8e-8),
        ),
    ]


def _linear_without_optimum() -> list[MilpCase]:
    return [
        MilpCase(
            "infeasible rows",
            lambda: _form("min", [1, 2], [[1, 1], [1, 1]], rows=([9, -FREE], [FREE, 3])),
            Status.INFEASIBLE,
        ),
        MilpCase(
            "infeasible against column bounds",
            lambda: _form("max", [1, 2], [[1, 1]], rows=(9, FREE), columns=(0, 3)),
            Status.INFEASIBLE,
        ),
        MilpCase(
            "infeasible equations of free columns",
            lambda: _form("min", [0, 0], [[1, -1], [2, -2]], rows=([1, 3], [1, 3]), columns=(-FREE, FREE)),
            Status.INFEASIBLE,
        ),
        MilpCase(
            "unbounded along a ray",
            lambda: _form("max", [1, 2], [[1, -1]], rows=(-FREE, 1)),
            Status.UNBOUNDED,
        ),
        MilpCase(
            "unbounded below, free column",
            lambda: _form("min", [1, 1], [[1, 0]], rows=(0, 5), columns=(-FREE, FREE)),
            Status.UNBOUNDED,
        ),
        MilpCase(
            "infeasible, and unbounded if it were not",
            lambda: _form(
                "max", [1, 1, 0], [[1, -1, 0], [0, 0, 1]], rows=([-FREE, 4], [1, FREE]), columns=(0, [FREE, FREE, 3])
            ),
            Status.INFEASIBLE,
        ),
    ]


def _whole() -> list[MilpCase]:
    optimal = Status.OPTIMAL
    return [
        MilpCase(
            "a knapsack",
            lambda: _form(
                "max", [10, 13, 18, 31, 7, 15], [[2, 3, 4, 7, 1, 5]], rows=(-FREE, 10), columns=(0, 1), whole=range(6)
            ),
            optimal,
            48.0,
            (1, 0, 0, 1, 1, 0),
        ),
        MilpCase(
            "integers beside continuous columns",
            lambda: _form(
                "max",
                [5, 4, 1.5],
                [[6, 4, 1], [1, 2, 1]],
                rows=(-FREE, [24, 6]),
                columns=(0, [10, 10, 1.5]),
                whole=(0, 1),
            ),
            optimal,
            20.5,
            (3, 1, 1),
        ),
        MilpCase(
            "integers under a continuous price",
            lambda: _form("min", [1, 0.25], [[1, 1]], rows=(2.5, FREE), columns=(0, [5, 0.75]), whole=(0,), offset=100),
            optimal,
            102.125,
            (2, 0.5),
        ),
        MilpCase(
            "an integer equation with a tie",
            lambda: _form("min", [1, 1], [[1, 1]], rows=(3, 3), columns=(0, 5), whole=(0, 1), offset=1),
            optimal,
            4.0,
            (1, 2),
        ),
    ]


def _whole_at_the_edge() -> list[MilpCase]:
    optimal = Status.OPTIMAL
    return [
        MilpCase(
            "a row that binds nothing over columns that cost nothing",
            lambda: _form("min", [0, 0], [[1, 1]], rows=(-FREE, FREE), columns=([-2, 0], [-2, 0.75]), whole=(0,)),
            optimal,
            0.0,
        ),
        MilpCase(
            "big bounds",
            lambda: _form("max", [1, -1], [[3, -2]], rows=(-FREE, 7), columns=(0, [1e6, 1e6]), whole=(0, 1)),
            optimal,
            2.0,
            (3, 1),
        ),
        MilpCase(
            "negative integers and bounds that are not whole",
            lambda: _form("min", [3, 2], [[1, 1]], rows=(-3.5, FREE), columns=([-2.5, -9.3], [4.5, 9.9]), whole=(0, 1)),
            optimal,
            -8.0,
            (-2, -1),
        ),
        MilpCase(
            "decimals as prices are written",
            lambda: _form(
                "max", [0.3, 0.2, 0.1], [[0.526, 0.432, 0.149]], rows=(-FREE, 2.5), columns=(0, 20), whole=(0, 1, 2)
            ),
            optimal,
            1.6,
            (0, 0, 16),
        ),
        MilpCase(
            "unbounded relaxation's face, bounded in integers by a row",
            lambda: _form(
                "min", [-1, 1], [[2, -2], [1, 1]], rows=([-FREE, -FREE], [1, 9]), columns=(0, 9), whole=(0, 1)
            ),
            optimal,
            0.0,
            (0, 0),
        ),
    ]


def _whole_without_optimum() -> list[MilpCase]:
    return [
        MilpCase(
            "infeasible in integers only",
            lambda: _form("max", [5, 4], [[2, 2]], rows=(3, 3), columns=(0, 3), whole=(0, 1)),
            Status.INFEASIBLE,
        ),
        MilpCase(
            "infeasible relaxation",
            lambda: _form("max", [5, 4], [[2, 2]], rows=(13, FREE), columns=(0, 3), whole=(0, 1)),
            Status.INFEASIBLE,
        ),
        MilpCase(
            "no integer between the bounds",
            lambda: _form("max", [1, 1], [[1, 1]], rows=(0, 9), columns=([0.2, 0], [0.8, 3]), whole=(0,)),
            Status.INFEASIBLE,
        ),
        MilpCase(
            "unbounded in integers",
            lambda: _form("max", [5, 4], [[2, -2]], rows=(0, 0), whole=(0, 1)),
            Status.UNBOUNDED,
        ),
    ]


def _empty() -> list[MilpCase]:
    optimal = Status.OPTIMAL
    none = np.zeros((0, 2))
    return [
        MilpCase("neither rows nor columns", lambda: Builder("min", offset=3.0).build(), optimal, 3.0, (), ()),
        MilpCase(
            "no rows", lambda: _form("max", [5, -4], none, rows=(0, 0), columns=(1, 3)), optimal, 11.0, (3, 1), ()
        ),
        MilpCase(
            "no rows, integers",
            lambda: _form("max", [5, -4], none, rows=(0, 0), columns=(0.5, 3.5), whole=(0, 1)),
            optimal,
            11.0,
            (3, 1),
        ),
        MilpCase("no rows, unbounded", lambda: _form("max", [5, 4], none, rows=(0, 0)), Status.UNBOUNDED),
        MilpCase("no columns, rows that hold", lambda: _rows_only(-1.0, 2.0), optimal, 0.0, (), (0,)),
        MilpCase("no columns, a row that does not", lambda: _rows_only(1.0, 2.0), Status.INFEASIBLE),
        MilpCase("an empty row that holds", lambda: _empty_row(0.0), optimal, 4.0, (4,), (1, 0)),
        MilpCase("an empty row that does not", lambda: _empty_row(1.0), Status.INFEASIBLE),
        MilpCase(
            "a column in no row",
            lambda: _form("max", [1, 2], [[1, 0]], rows=(-FREE, 3), columns=(0, [FREE, 5])),
            optimal,
            13.0,
            (3, 5),
            (1,),
        ),
        MilpCase(
            "column bounds that cross",
            lambda: _form("max", [1, 1], [[1, 1]], rows=(1, 2), columns=([0, 4], 3)),
            Status.INFEASIBLE,
        ),
        MilpCase("row bounds that cross", lambda: _form("max", [1, 1], [[1, 1]], rows=(3, 2)), Status.INFEASIBLE),
    ]


def _rows_only(lower: float, upper: float) -> Milp:
    m = Builder("min")
    m.rows("r", ["r"], lower=lower, upper=upper)
    return m.build()


def _empty_row(at_least: float) -> Milp:
    m = Builder("max")
    m.add(m.rows("room", ["r"], upper=4.0), m.columns("x", ["x"], cost=1.0), 1.0)
    m.rows("empty", ["e"], lower=at_least)
    return m.build()


def _large() -> list[MilpCase]:
    return [
        MilpCase("ten thousand columns", transport, Status.OPTIMAL, 9900.0 + 100.0),
        MilpCase("ten thousand integer columns", covering, Status.OPTIMAL, 2500.0),
    ]


def transport() -> Milp:
    """100 sources of 100 each to 100 sinks of 100 each; the own sink costs 1 a unit, any other at least 2."""
    n = 100
    source, sink = np.divmod(np.arange(n * n), n)
    distance = np.minimum((source - sink) % n, (sink - source) % n)
    m = Builder("min")
    x = m.columns("ship", lambda k: f"{k // n}-{k % n}", size=n * n, cost=1.0 + distance)
    m.add(m.rows("have", lambda i: str(i), size=n, upper=100.0)[source], x, 1.0)
    m.add(m.rows("want", lambda i: str(i), size=n, lower=100.0)[sink], x, 1.0)
    return m.build()


def covering() -> Milp:
    """10,000 switches, each in its own group of four: one of each group must be on, at price 1."""
    n = 10_000
    m = Builder("min")
    x = m.columns("on", lambda j: str(j), size=n, upper=1.0, cost=1.0, whole=True)
    m.add(m.rows("group", lambda i: str(i), size=n // 4, lower=1.0)[np.arange(n) // 4], x, 1.0)
    return m.build()


def hard_mip() -> Milp:
    """A market split: 40 switches, six equations with slack at price 1; no engine proves its optimum in minutes."""
    random = np.random.default_rng(7)
    n_rows, n = 6, 40
    weights = random.integers(0, 100, size=(n_rows, n)).astype(float)
    target = np.floor(weights.sum(axis=1) / 2)
    m = Builder("min", name="market split")
    x = m.columns("take", lambda j: str(j), size=n, upper=1.0, whole=True)
    over = m.columns("over", lambda i: str(i), size=n_rows, upper=float(n * 100), cost=1.0, whole=True)
    under = m.columns("under", lambda i: str(i), size=n_rows, upper=float(n * 100), cost=1.0, whole=True)
    split = m.rows("split", lambda i: str(i), size=n_rows, lower=target, upper=target)
    m.add(split[:, None], x[None, :], weights)
    m.add(split, over, -1.0)
    m.add(split, under, 1.0)
    return m.build()


def hard_lp() -> Milp:
    """A dense random linear program of 300 rows: far more than a handful of steps for any method."""
    random = np.random.default_rng(3)
    n_rows, n = 300, 400
    m = Builder("max", name="dense")
    x = m.columns("x", lambda j: str(j), size=n, upper=1.0, cost=random.uniform(10, 60, n))
    weights = np.round(random.uniform(1, 20, (n_rows, n)))
    room = m.rows("room", lambda i: str(i), size=n_rows, upper=np.round(weights.sum(axis=1) * 0.3))
    m.add(room[:, None], x[None, :], weights)
    return m.build()


def warm_family(n: int = 12, *, bins: int = 20, types: int = 3) -> list[Milp]:
    """Fluid programs of a pool that differ in capacities, a bound, a price, a coefficient or the offset."""
    random = np.random.default_rng(11)
    share = random.dirichlet(np.ones(bins))
    busy = np.sort(random.uniform(0.01, 0.2, (bins, types)), axis=0)
    return [_fluid(k, share, busy) for k in range(n)]


def _fluid(k: int, share: Vector, busy: Vector) -> Milp:
    bins, types = busy.shape
    changed = busy.copy()
    if k % 5 == 4:
        changed[0, 0] *= 1.0 + 0.1 * k
    m = Builder("max", name="fluid", offset=float(k % 3 == 2))
    rate = m.columns("rate", ["rate"], cost=1.0 + 0.5 * (k % 4 == 3))
    x = m.columns("x", lambda j: f"{j // types},{j % types}", size=bins * types, upper=50.0 if k % 2 else np.inf)
    flow = m.rows("flow", lambda s: str(s), size=bins, lower=0.0, upper=0.0)
    m.add(flow, rate, -share)
    m.add(np.repeat(flow, types), x, 1.0)
    capacity = m.rows("capacity", lambda t: str(t), size=types, upper=1.0 + (k + np.arange(types)) % 4)
    m.add(np.tile(capacity, bins), x, changed.ravel())
    return m.build()
