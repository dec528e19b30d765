r"""A question: the cheapest fleet of one machine type that serves one application.

hetplan's own questions mix machine types. Some people want one type only, as it is simpler to run. Here each machine
holds one replica, which answers queries one by one.

======  ===============  ====================================================================
letter  in the code      meaning
======  ===============  ====================================================================
t       `fastest`        a machine type; of its models the fastest, which takes s_t seconds
y_t     `chosen`         1 where t is the one
u_t     `used`           machines of t, whole
n_o     --               machines rented under each offer o: written by `rent`, with all limits
R       `rate_qps`       queries per second
h       `utilization`    the share of time that a machine may be busy
======  ===============  ====================================================================

::

    min  money of n                    `rent` writes money, stock and limits
    (1)  sum_t y_t = 1
    (2)  sum_t u_t h / s_t >= R        what they serve
    (3)  u_t <= most_t y_t             machines of the chosen type only

With h = 1 nothing waits: that cost is a lower bound. Then h falls until a simulation confirms the SLO.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from hetplan import InputError
from hetplan.extend import (
    Answer,
    Application,
    Ask,
    Bounding,
    Builder,
    Choice,
    Claim,
    Draft,
    Elastic,
    ErrorBudget,
    Expression,
    Infeasibility,
    Inputs,
    Milp,
    Options,
    Plan,
    Promise,
    Reported,
    Request,
    Route,
    SharesDispatch,
    Sizing,
    Status,
    Tools,
    Uses,
    Worker,
    confirm_in_simulation,
    explain_infeasible,
    plan_to_simulate,
    read_request,
    rent,
    with_simulated_promises,
)

__all__ = ["OneType", "OneTypeOptions"]

NANO = 1e9
"""Money is a whole count of 1e-9."""


class OneTypeOptions(Options):
    """What `--set` may set."""

    sizing: Sizing = Field(default="simulation", description="fluid: by rates alone; otherwise in simulation")
    step: float = Field(default=0.95, gt=0, lt=1, description="times this the utilization falls after a simulation")
    simulations: int = Field(default=20, ge=1, description="at most this many plans are simulated")


@dataclass(frozen=True)
class OneType:
    """The question; see the module for its letters."""

    question: ClassVar[str] = "one-type"
    formulations: ClassVar[Mapping[str, type[Options]]] = {"one-type": OneTypeOptions}
    like: ClassVar[Mapping[str, str]] = {}

    inputs: Inputs
    options: OneTypeOptions
    tools: Tools
    request: Request
    app: Application
    fastest: Mapping[str, Choice]
    utilization: float = 1.0

    @property
    def rate_qps(self) -> float:
        """The rate: `fits` saw to it that one is stated."""
        return self.app.rate_qps or 0.0

    @classmethod
    def fits(cls, inputs: Inputs) -> str:
        """Why these files do not ask this question ("" when they may)."""
        apps = list(read_request(inputs).apps.values())
        if len(apps) != 1 or apps[0].rate_qps is None or apps[0].pipeline is not None:
            return "it serves one application of one stage, at a stated rate"
        if apps[0].mix is not None:
            return "its queries are alike"
        return "" if apps[0].targets else "the application needs a limit on its response time"

    @classmethod
    def from_inputs(
        cls, inputs: Inputs, options: Options, *, formulation: str, tools: Tools, start: Plan | None = None
    ) -> OneType:
        """Read the files; raise `InputError` where nothing in them can serve the application."""
        del formulation, start  # there is one formulation, and it begins anew
        assert isinstance(options, OneTypeOptions)
        request = read_request(inputs)
        (app,) = request.apps.values()
        fastest: dict[str, Choice] = {}
        for one in request.choices(app.id):
            is_good = not app.has_quality_limit or (one.quality is not None and app.meets_quality(one.quality))
            fits = is_good and not one.lacking and 1e3 * seconds(one) <= app.limit_ms()
            if fits and (one.hardware not in fastest or seconds(one) < seconds(fastest[one.hardware])):
                fastest[one.hardware] = one
        request = request.renting(inputs.profile, fastest)
        if not request.machines:
            why = "no model is good enough and fast enough on any machine type"
            raise InputError.one(path=f"$.apps.{app.id}", why=why, remedy="Allow more time, or measure another model.")
        return cls(inputs, options, tools, request, app, fastest)

    def program(self) -> tuple[Milp, np.ndarray]:
        """The program, and which of its columns count the machines of each offer."""
        m = Builder("min", name=self.question)
        types = [kind.id for kind in self.request.machines]
        serves = [self.utilization / seconds(self.fastest[name]) for name in types]
        rate = self.rate_qps
        most = [
            min(kind.available, math.ceil(rate / mu)) for kind, mu in zip(self.request.machines, serves, strict=True)
        ]
        chosen = m.columns("chosen", types, upper=1, whole=True)
        used = m.columns("used", types, upper=most, whole=True, unit="machines")
        m.add(m.rows("one", ["type"], lower=1, upper=1, equation="(1)"), chosen, 1.0)
        # What may give way names its field: from it follows what to change where there is no plan.
        gives = Elastic(1.0, field=f"slo.apps.{self.app.id}.rate_qps", verb="lower")
        m.add(m.rows("serve", [self.app.id], lower=rate, unit="qps", equation="(2)", elastic=gives), used, serves)
        only = m.rows("only", types, upper=0, equation="(3)")
        m.add(only, used, 1.0)
        m.add(only, chosen, [-float(one) for one in most])
        uses = {name: Expression(used[[place]]) for place, name in enumerate(types)}
        rented = rent(m, self.request, Uses(uses, most=dict(zip(types, most, strict=True))), priced=True)
        return m.build(), rented

    def decide(self, ask: Ask) -> Draft | Infeasibility:
        """Ask for the cheapest fleet, simulate it, and ask again for one that is less busy until the SLO is met."""
        now, bound, budget = self, None, ErrorBudget(ask.limits.seed)
        for _ in range(self.options.simulations):
            form, rented = now.program()
            answer = ask(form, gap=1e-6, about=f"least cost at a utilization of {now.utilization:.2g}")
            if answer.status is Status.INFEASIBLE:
                # Below full utilization only this search found no plan: that proves nothing.
                return replace(explain_infeasible(form, ask), proved=bound is None)
            if answer.point is None:
                return Infeasibility(why=(f"no plan was found: {answer.stop}",), proved=False)
            bound = bound or answer
            made = now.draft(answer.point[rented].round().astype(int), bound)
            if self.options.sizing == "fluid" or self.tools.simulate is None:
                return made
            confirmed = self.simulated(made, ask, budget)
            if confirmed is not None:
                return confirmed
            if ask.is_over():
                break
            # Less than that of the plan that was too busy, so that it is not found again.
            now = replace(now, utilization=now.used_by(made) * self.options.step)
        return Infeasibility(why=(f"the SLO is violated even at a utilization of {now.utilization:.2g}",), proved=False)

    def simulated(self, made: Draft, ask: Ask, budget: ErrorBudget) -> Draft | None:
        """The plan with what simulation promises of it; None where it violates the SLO, or nobody knows."""
        # If a time limit ends the work, this plan is handed out, as one that was not simulated.
        ask.keep(lambda: made)
        if ask.is_over():
            return None
        assert self.tools.simulate is not None
        shown = confirm_in_simulation(
            self.tools.simulate, plan_to_simulate(self.question, "one-type", made), self.inputs, budget,
            apps=(self.app.id,), length_s=None, may_go_on=lambda: ask.remaining > 0,
        )  # fmt: skip
        return None if shown.late else with_simulated_promises(made, shown)

    def used_by(self, made: Draft) -> float:
        """The share of the time that the machines of a plan are busy."""
        capacity_qps = sum(worker.count / seconds(self.fastest[worker.hardware]) for worker in made.workers)
        return self.rate_qps / capacity_qps

    def bounding(self, claim: Claim, plan: Plan) -> list[Bounding]:
        """The programs by which `hetplan verify` proves a bound of a plan again: the one where nothing waits."""
        del plan
        known = (claim.about, claim.sense) == ("cost_per_hour", "min")
        return [Bounding(replace(self, utilization=1.0).program()[0])] if known else []

    def draft(self, counts: np.ndarray, bound: Answer[np.ndarray]) -> Draft:
        """The plan: one group of machines per offer, which share the queries by their counts."""
        rented = [(offer, int(count)) for offer, count in zip(self.request.offers, counts, strict=True) if count]
        total = sum(count for _, count in rented)
        workers = tuple(
            Worker(
                id=f"w-{offer.name}", hardware=offer.machine, offer=offer.id, count=count,
                loads=(self.fastest[offer.machine].load(id=offer.name, app=self.app.id),),
            )
            for offer, count in rented
        )  # fmt: skip
        cost = sum(offer.nanos * count for offer, count in rented) / NANO
        return Draft(
            workers=workers,
            routing={self.app.id: (Route(to={offer.name: count / total for offer, count in rented}),)},
            dispatch={self.app.id: SharesDispatch()},
            promises=(
                Promise(app=self.app.id, quantity="rate_qps", relation=">=", value=self.rate_qps, model="fluid"),
                Promise(quantity="cost_per_hour", value=cost, model="no-queueing"),
            ),
            reported=(Reported("cost_per_hour", "min", "relaxation", bound, value=cost),),
        )


def seconds(choice: Choice) -> float:
    """The mean time of one query on one machine, without waiting."""
    return choice.law.ms({}) / 1e3
