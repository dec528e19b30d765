"""Forms that are large, hard or many: for limits, cancelling, starts and warm families."""

from __future__ import annotations

import numpy as np

from hetplan.planner.forms.milp import Builder, Milp, Vector

__all__ = ["covering", "hard_lp", "hard_mip", "transport", "warm_family"]


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
