"""Mixtures of priced choices by column generation: a master program sets prices, the oracle answers with choices.

The master is a small linear program over the choices found so far; its prices, smoothed towards those of the best
bound yet, go to the oracle of each tree. Every round gives a bound; the best one is carried with its prices as proof.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hetplan.planner.answer import Answer, Limits, Status, Stop, relative_gap
from hetplan.planner.contract import Event
from hetplan.planner.forms.milp import Builder, Vector
from hetplan.planner.forms.priced import Choice, Mixture, Priced
from hetplan.solvers.engine import OneByOne
from hetplan.solvers.highs import Highs

if TYPE_CHECKING:
    from hetplan.planner.contract import OnEvent

__all__ = ["PricedColumns"]

GAP = 1e-5
ROUNDS = 400
SMOOTH = 0.5
"""How much of the best prices so far goes into the next ones."""
PENALTY = 10.0
"""What the master pays for a tree without a choice, in multiples of the largest value."""


class PricedColumns(OneByOne[Priced, Mixture]):
    """Column generation for the form `priced`."""

    name: ClassVar[str] = "priced-columns"
    form: ClassVar[str] = "priced"
    takes: ClassVar[type[Priced]] = Priced

    def version(self) -> str:
        """That of the engine of the master program."""
        return Highs().version()

    def why_not(self, form: Priced) -> str:
        """It needs an engine for its master program."""
        del form
        return "" if self.version() else "highspy is not installed; run: pip install highspy"

    def answer(
        self, form: Priced, limits: Limits, *, start: Mixture | None, on_event: OnEvent | None
    ) -> Answer[Mixture]:
        """Price, ask, add, until the bound meets the value."""
        del start
        return _Columns(form, limits, on_event, self.signature).run()


class _Columns:
    def __init__(self, form: Priced, limits: Limits, on_event: OnEvent | None, engine: str) -> None:
        self.form, self.limits, self.on_event, self.engine = form, limits, on_event, engine
        self.known: list[dict[Choice, tuple[float, Vector]]] = [{} for _ in form.menus]
        self.best_bound, self.best_prices = np.inf, np.zeros(form.capacity.size)
        self.began = time.monotonic()

    def run(self) -> Answer[Mixture]:
        form, gap = self.form, self.limits.gap if self.limits.gap is not None else GAP
        scale = sum(menu.weight for menu in form.menus) / max(float(form.capacity.sum()), 1.0)
        for power in range(-3, 4):
            self.price(np.full(form.capacity.size, scale * 10.0**power))
        rounds, stop = 0, Stop.FINISHED
        while True:
            value, prices, weights = self.master()
            if relative_gap(value, self.best_bound) <= gap:
                break
            rounds += 1
            if (ended := self.ended(rounds)) is not None:
                stop = ended
                break
            smoothed = SMOOTH * self.best_prices + (1 - SMOOTH) * prices
            # Where smoothed prices find nothing new, those of the master itself either do or prove the optimum.
            if not self.price(smoothed) and not self.price(prices):
                break
            self.report(value)
        return self.answer(value, weights, rounds, stop, gap)

    def ended(self, rounds: int) -> Stop | None:
        limits = self.limits
        if limits.cancel is not None and limits.cancel.is_set():
            return Stop.CANCELLED
        if limits.seconds is not None and time.monotonic() - self.began > limits.seconds:
            return Stop.TIME
        return Stop.WORK if rounds >= (limits.work or ROUNDS) else None

    def report(self, value: float) -> None:
        if self.on_event is not None:
            self.on_event(Event("prices", value=value, bound=self.best_bound))

    def price(self, prices: Vector) -> bool:
        """Ask the oracle of every tree; whether any choice is new."""
        fresh, bound = False, float(prices @ self.form.capacity)
        for number, known in enumerate(self.known):
            value, choice = self.form.best(number, prices)
            bound += value
            if choice not in known:
                worth, use, _ = self.form.worth(number, choice)
                known[choice] = (worth, use)
                fresh = True
        if bound < self.best_bound:
            self.best_bound, self.best_prices = bound, prices
        return fresh

    def master(self) -> tuple[float, Vector, list[Vector]]:
        """The best mixture of the choices so far, and its prices."""
        form, m = self.form, Builder("max", name="mixture")
        room = m.rows("capacity", str, size=form.capacity.size, upper=form.capacity)
        all_of = m.rows("all", str, size=len(form.menus), lower=1.0, upper=1.0)
        blocks = []
        for number, known in enumerate(self.known):
            values = [value for value, _ in known.values()]
            theta = m.columns(f"theta {number}", str, size=len(values), cost=values)
            for column, (_, use) in zip(theta, known.values(), strict=True):
                m.add(room, column, use)
            m.add(all_of[number], theta, 1.0)
            blocks.append(theta)
        most = PENALTY * max(sum(menu.weight for menu in form.menus), 1.0)
        without = m.columns("without", str, size=len(form.menus), cost=-most)
        m.add(all_of, without, 1.0)
        # Small, and needed whole: the limits of the search are looked at between two of them.
        answer = Highs().solve(m.build(), replace(self.limits, gap=None, seconds=None, work=None, cancel=None))
        assert answer.point is not None
        assert answer.value is not None
        assert answer.row_duals is not None
        self.missing = float(answer.point[without].sum())
        return answer.value, np.maximum(answer.row_duals[room], 0.0), [answer.point[theta] for theta in blocks]

    def answer(self, value: float, weights: list[Vector], rounds: int, stop: Stop, gap: float) -> Answer[Mixture]:
        proof = {"prices": self.best_prices}
        work = {"iterations": float(rounds)}
        if self.missing > 1e-7:
            return Answer(Status.NO_ANSWER, stop, bound=self.best_bound, proof=proof, work=work, engine=self.engine)
        point = tuple(
            tuple((float(w), choice) for w, choice in zip(own, known, strict=True) if w > 1e-12)
            for own, known in zip(weights, self.known, strict=True)
        )
        closed = relative_gap(value, self.best_bound) <= gap
        status = Status.OPTIMAL if closed else Status.FEASIBLE
        return Answer(
            status, stop, point=point, value=value, bound=self.best_bound, proof=proof, work=work, engine=self.engine,
            deterministic=stop not in (Stop.TIME, Stop.CANCELLED),
        )  # fmt: skip
