"""What the searches of a black box share: ask and tell, the limits, and the account of what was found when.

A search proposes plans and is told what measuring them gave; the engine around it measures (several at once where it
may), keeps the cheapest compliant plan, and stops at a limit, when nothing is left, or when nothing can be cheaper.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import Cancelled, NoSolver
from hetplan.planner.answer import Answer, Limits, Status, Stop
from hetplan.planner.contract import Event
from hetplan.planner.forms.black_box import BlackBox, Measured, OutOfTime
from hetplan.solvers.search_gp import LightProcess

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent
    from hetplan.solvers.search_models import MakeProcess

__all__ = ["Search", "SearchEngine"]

MOST_IN_VAIN = 8
"""After so many configurations set aside and none measured, whoever measures is taken to be broken."""


class Search:
    """One search: `suggest` plans to measure, `observe` what they gave. Deterministic in the seed and what is told."""

    whole: ClassVar[bool] = False
    """Whether measuring a configuration settles all its placements."""

    def __init__(self, form: BlackBox, seed: int = 0, make: MakeProcess = LightProcess) -> None:
        self.form, self.make = form, make
        self.random = np.random.default_rng(seed)
        self.open: NDArray[np.bool_] = np.ones(len(form), dtype=bool)
        self.best, self.best_cost = -1, np.inf
        self.told = 0

    def suggest(self, count: int = 1) -> list[int]:
        """The next plans to measure, at most so many; none when nothing is left."""
        plans: list[int] = []
        closed: list[NDArray[np.int64]] = []
        while len(plans) < count and self.open.any():
            cold = self.told + len(plans) < self.form.first_random and not self.warm
            plan = self.first() if cold else self.next()
            plans.append(plan)
            # Until it is told, a plan under way (and, where that settles it, its configuration) is not asked for again.
            here = self._settled(plan)
            here = here[self.open[here]]
            self.open[here] = False
            closed.append(here)
        for here in closed:
            self.open[here] = True
        return plans

    @property
    def warm(self) -> bool:
        """Whether enough is believed to begin without plans at random."""
        return False

    def first(self) -> int:
        """A plan to begin with: any one."""
        return int(self.random.choice(np.flatnonzero(self.open)))

    def next(self) -> int:
        """The plan that promises most."""
        raise NotImplementedError

    def observe(self, plan: int, found: Measured) -> None:
        """Take in what measuring a plan's configuration gave."""
        self.told += 1
        self.open[self._settled(plan)] = False
        if self.whole and found.passes:
            costs = self.form.costs(found.configuration, below=self.best_cost)
            here, cost = int(self._settled(plan)[int(np.argmin(costs))]), float(costs.min())
        else:
            here, cost = plan, self.form.cost(plan)
        if cost < self.best_cost:
            self.best, self.best_cost = here, cost
        self.learn(plan, found)

    def learn(self, plan: int, found: Measured) -> None:
        """Update what is believed."""

    def _settled(self, plan: int) -> NDArray[np.int64]:
        if not self.whole:
            return np.array([plan])
        placements = len(self.form.placements)
        first = plan // placements * placements
        return np.arange(first, first + placements)


class SearchEngine:
    """The engine around a search; `limits.work` counts measurements."""

    name: ClassVar[str] = ""
    form: ClassVar[str] = "black-box"
    search: ClassVar[type[Search]] = Search

    def version(self) -> str:
        """hetplan's own."""
        return "1"

    def refuses(self, form: Any) -> str:
        """Only its kind."""
        return "" if isinstance(form, BlackBox) else f"takes black-box forms, not {form.kind}"

    def begin(self, form: BlackBox, seed: int) -> Search:
        """The search itself, for those who measure themselves (ask and tell)."""
        return self.search(form, seed)

    def solve(
        self, form: BlackBox, limits: Limits, *, start: int | None = None, on_event: OnEvent | None = None
    ) -> Answer[int]:
        """Measure plan after plan; the cheapest compliant one so far is the answer at any time."""
        if reason := self.refuses(form):
            raise NoSolver(form.kind, {self.name: reason})
        search = self.begin(form, limits.seed)
        began, spent, since, to_first = time.monotonic(), 0.0, 0, 0
        stop: Stop | None = None
        queue = [] if start is None else [start]
        with ThreadPoolExecutor(form.parallel) as pool:
            while True:
                stop = _limit(form, limits, search, began, spent)
                if stop is not None or _in_vain(form) or (search.best >= 0 and since >= (form.patience or np.inf)):
                    break
                left = form.most - search.told
                plans = queue or search.suggest(min(form.parallel, left))
                queue = []
                if not plans or search.best_cost <= 0.0:
                    break
                try:
                    measured = _measure(form, plans, pool)
                except Cancelled:
                    stop = Stop.CANCELLED
                    break
                except OutOfTime:
                    stop = Stop.TIME
                    break
                for plan, found in zip(plans, measured, strict=True):
                    before = search.best_cost
                    search.observe(plan, found)
                    spent += found.gpu_s
                    since = 0 if search.best_cost < before else since + 1
                    to_first = to_first or (search.told if search.best >= 0 else 0)
                    if on_event is not None:
                        on_event(_event(search, plan, found, form))
        return self._answer(form, search, stop or Stop.FINISHED, spent, to_first)

    def solve_all(
        self, forms: Iterable[BlackBox], limits: Limits, *, on_event: OnEvent | None = None
    ) -> list[Answer[int]]:
        """One query after the other."""
        return [self.solve(form, limits, on_event=on_event) for form in forms]

    def _answer(self, form: BlackBox, search: Search, stop: Stop, spent: float, to_first: int) -> Answer[int]:
        work = {"measured": float(search.told), "to_first": float(to_first), "gpu_s": spent}
        engine = f"{self.name} {self.version()}"
        if search.best < 0:
            exhausted = len(form.journal) == len(form.configurations) and search.whole
            status = Status.INFEASIBLE if exhausted and not form.failed else Status.NO_ANSWER
            return Answer(status, stop, work=work, engine=engine)
        return Answer(Status.FEASIBLE, stop, point=search.best, value=search.best_cost, work=work, engine=engine)


def _in_vain(form: BlackBox) -> bool:
    """Whether nothing at all can be measured: so many were tried, and every one was set aside."""
    return len(form.journal) >= MOST_IN_VAIN and len(form.failed) == len(form.journal)


def _measure(form: BlackBox, plans: Sequence[int], pool: ThreadPoolExecutor) -> Iterable[Measured]:
    configurations = [plan // len(form.placements) for plan in plans]
    if len(plans) == 1:
        return [form.observe(configurations[0])]
    return list(pool.map(form.observe, configurations))


def _limit(form: BlackBox, limits: Limits, search: Search, began: float, spent: float) -> Stop | None:
    if limits.cancel is not None and limits.cancel.is_set():
        return Stop.CANCELLED
    if search.told >= form.most or (limits.work is not None and search.told >= limits.work):
        return Stop.WORK
    if form.gpu_s is not None and spent >= form.gpu_s:
        return Stop.WORK
    seconds = min((s for s in (limits.seconds, form.seconds) if s is not None), default=None)
    if seconds is not None and time.monotonic() - began >= seconds:
        return Stop.TIME
    return None


def _event(search: Search, plan: int, found: Measured, form: BlackBox) -> Event:
    value = search.best_cost if np.isfinite(search.best_cost) else None
    return Event("measured", f"{form.name} plan {plan}: {found.verdict}", value=value, done=search.told / form.most)
