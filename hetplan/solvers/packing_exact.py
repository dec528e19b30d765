"""Packing answered exactly: through the whole-number program, all of it or only what the prices leave open."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.forms.packing import Choice, Packing
from hetplan.planner.tolerances import VALUE
from hetplan.solvers.bridges import machines_needed, packing_to_milp
from hetplan.solvers.packing_dual import portfolio, sound_start
from hetplan.solvers.packing_greedy import PackingEngine, better
from hetplan.solvers.packing_prices import best_prices, choose_by

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent
    from hetplan.planner.forms.milp import Vector

__all__ = ["DualCore", "Exact", "ExactCpSat"]

MOST_COLUMNS = 200_000
CORE = 300
CORE_SECONDS = 10.0


class Exact(PackingEngine):
    """The whole program, answered by HiGHS from the choice by prices on."""

    name: ClassVar[str] = "exact"
    exact: ClassVar[bool] = True
    inner: ClassVar[str] = "hetplan.solvers.highs:Highs"

    def version(self) -> str:
        """The version of the engine behind it."""
        return str(self._engine_behind().version())

    def refuses(self, form: Any) -> str:
        """Not its kind, or too large to be answered."""
        if reason := super().refuses(form):
            return reason
        if not self.version():
            return f"{self.inner.partition(':')[2]} is not installed"
        columns = int(form.worth.size)
        if form.items is not None:
            columns += int(machines_needed(form)[form.items.tier].sum())
        return f"{columns} columns are too many" if columns > MOST_COLUMNS else ""

    def solve(
        self, form: Packing, limits: Limits, *, start: Choice | None = None, on_event: OnEvent | None = None
    ) -> Answer[Choice]:
        """The best choice, or as near as the limits allow."""
        began = time.monotonic()
        prices = form.prices(best_prices(form, limits))
        best = better(form, portfolio(form, prices), sound_start(form, start))
        if not form.fits.any():
            return self.answer(form, best, prices=prices)
        known = form.value(best) if best is not None and form.sense == "min" else np.inf
        milp, read = packing_to_milp(form, least_cost=known)
        left = None if limits.seconds is None else max(0.0, limits.seconds - (time.monotonic() - began))
        answer = self._engine_behind().solve(milp, replace(limits, seconds=left), on_event=on_event)
        found = None if answer.point is None else read(np.asarray(answer.point))
        proved = form.whole(form.bound(prices))
        if answer.status is Status.INFEASIBLE and best is None:
            return Answer(Status.INFEASIBLE, proof={"prices": prices}, engine=self._engine)
        choice = better(form, found, best)
        if choice is None:
            return Answer(Status.NO_ANSWER, answer.stop, proof={"prices": prices}, engine=self._engine)
        value = form.value(choice)
        claimed = answer.bound if answer.bound is not None else proved
        tighter = min if form.sense == "max" else max
        bound = tighter(proved, form.whole(claimed))
        bound = max(bound, value) if form.sense == "max" else min(bound, value)
        done = answer.status is Status.OPTIMAL or abs(bound - value) <= VALUE / 10 * max(1.0, abs(value))
        return Answer(
            Status.OPTIMAL if done else Status.FEASIBLE, answer.stop, point=choice, value=value, bound=bound,
            proof={"prices": prices}, work=answer.work, engine=self._engine, deterministic=answer.deterministic,
        )  # fmt: skip

    def _engine_behind(self) -> Any:
        from importlib import import_module

        module, _, name = self.inner.partition(":")
        return getattr(import_module(module), name)()

    @property
    def _engine(self) -> str:
        return f"{self.name} ({self.inner.partition(':')[2]} {self.version()})"


class ExactCpSat(Exact):
    """The same by CP-SAT, numbers scaled to integers."""

    name: ClassVar[str] = "exact-cp-sat"
    inner: ClassVar[str] = "hetplan.solvers.cp_sat:CpSatScaled"


class DualCore(PackingEngine):
    """Prices settle most groups; the whole-number program chooses for those whose options are nearly worth the same."""

    name: ClassVar[str] = "dual-core"

    def solve(
        self, form: Packing, limits: Limits, *, start: Choice | None = None, on_event: OnEvent | None = None
    ) -> Answer[Choice]:
        """Choose by prices, then again among what they leave open."""
        from hetplan.solvers.highs import Highs

        began = time.monotonic()
        prices = form.prices(best_prices(form, limits))
        best = better(form, portfolio(form, prices), sound_start(form, start))
        stop = Stop.FINISHED
        if best is not None and form.items is None:
            core, chosen = _core(form, prices)
            small = _part(form, core, chosen)
            if (small.capacity >= 0).all():
                milp, read = packing_to_milp(small)
                seconds = CORE_SECONDS if limits.seconds is None else limits.seconds - (time.monotonic() - began)
                answer = Highs().solve(
                    milp, replace(limits, seconds=max(0.0, seconds), gap=limits.gap and limits.gap / 10),
                    on_event=on_event,
                )  # fmt: skip
                stop = answer.stop if answer.stop in (Stop.TIME, Stop.CANCELLED) else stop
                if answer.point is not None:
                    option = chosen.copy()
                    picked = read(np.asarray(answer.point)).option
                    offset = form.first[:-1][core] - small.first[:-1]
                    option[core] = np.where(picked >= 0, picked + offset, -1)
                    best = better(form, best, Choice(option))
        return replace(self.answer(form, best, prices=prices), stop=stop, deterministic=stop is not Stop.TIME)


def _core(form: Packing, prices: Vector) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The groups whose best and second best (or nothing) differ least after paying, and what prices give the rest."""
    sign = 1.0 if form.sense == "max" else -1.0
    paid = np.where(form.fits, sign * form.worth - form.taken @ prices, -np.inf)
    chosen = choose_by(form, form.worth - sign * (form.taken @ prices))
    best = np.where(chosen >= 0, paid[chosen], 0.0)
    rest = paid.copy()
    rest[chosen[chosen >= 0]] = -np.inf
    second = np.full(best.size, 0.0 if form.sense == "max" else -np.inf)
    np.maximum.at(second, form.group, rest)
    unserved = np.full(best.size, -np.inf)
    np.maximum.at(unserved, form.group, paid)
    regret = np.where(chosen >= 0, best - second, -unserved)
    core = np.sort(np.argsort(regret, kind="stable")[:CORE])
    return core.astype(np.int64), chosen


def _part(form: Packing, core: NDArray[np.int64], chosen: NDArray[np.int64]) -> Packing:
    """The form of these groups alone, with what the others leave."""
    others = np.ones(chosen.size, dtype=bool)
    others[core] = False
    taken = chosen[others & (chosen >= 0)]
    counts = np.diff(form.first)[core]
    options = np.concatenate([form.options_of(i) for i in core]) if core.size else core
    return Packing(
        form.sense,
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        form.worth[options],
        form.demand[options],
        form.capacity - form.demand[taken].sum(axis=0),
    )
