"""A draft that is tried in simulation: a plan that a simulator can read, and what it shows of every response time.

The simulator is handed in (`Tools.simulate`): nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hetplan.errors import InputError
from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Draft
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import InputHashes, Method, Plan, Promise

__all__ = ["SEEDS", "Shown", "check_simulator", "plan_to_simulate", "shown_by", "with_shown"]

SEEDS = 5
"""Simulations behind a promise."""


@dataclass(frozen=True)
class Shown:
    """What simulation showed: the promises that it backs, and the applications that were late, in the wish's order.

    Of those that were late `unsure` were so only by their interval, which a longer run may draw in.
    """

    promises: tuple[Promise, ...]
    late: tuple[str, ...]
    unsure: tuple[str, ...] = ()


def check_simulator(tools: Tools) -> None:
    """Raise where option `size` asks for a simulation and nothing was handed in to simulate with."""
    if tools.simulate is None:
        raise InputError.one(
            file="options",
            path="size",
            value="simulated",
            why="no simulator was handed in",
            remedy="Hand in Tools(simulate=...), or leave the option out.",
        )


def shown_by(
    tools: Tools,
    inputs: Inputs,
    plan: Plan,
    ask: Ask,
    *,
    seeds: int = SEEDS,
    seed: int | None = None,
    how: Mapping[str, Any] | None = None,
) -> Shown:
    """The response times that a simulation of the plan shows, of every target that the SLO states.

    Of several runs the upper end of the interval counts: the promise has to hold on other seeds too. One run alone
    promises nothing, since its interval may be infinite. `seed` is by default that of the limits; `how` is handed on.
    """
    assert tools.simulate is not None
    report: Any = tools.simulate(
        plan, inputs, seeds=seeds, seed=ask.limits.seed if seed is None else seed, **(how or {})
    )
    promises, late, surely = list[Promise](), dict[str, None](), set[str]()
    for name, app in inputs.slo.apps.items():
        for target in app.latency if name in report.apps else ():
            if target.of != "response":
                continue
            held = report.apps[name].percentiles_ms[target.percentile]
            if not (held.high if seeds > 1 else held.value) <= target.max_ms:
                late[name] = None
                if not held.value <= target.max_ms:
                    surely.add(name)
            elif seeds > 1:
                promises.append(
                    Promise(
                        app=name,
                        quantity="response_ms",
                        percentile=target.percentile,
                        relation="<=",
                        value=target.max_ms,
                        interval=(held.low, held.high),
                        model="simulation/1",
                        seeds=seeds,
                    )
                )
    return Shown(tuple(promises), tuple(late), tuple(name for name in late if name not in surely))


def plan_to_simulate(question: str, formulation: str, made: Draft, options: Mapping[str, Any] | None = None) -> Plan:
    """The draft as something that a simulator can read."""
    return Plan(
        question=question,
        method=Method(formulation=formulation, options=dict(options or {})),
        inputs=InputHashes(profile="", slo=""),
        workers=made.workers,
        routing=dict(made.routing),
        dispatch=dict(made.dispatch),
        promises=made.promises,
        tables=dict(made.tables),
        unserved=made.unserved,
        valid=made.valid,
    )


def with_shown(made: Draft, shown: Shown) -> Draft:
    """The draft with what simulation showed, and without the advice to simulate it."""
    kept = tuple(notice for notice in made.warnings if notice.code != "W-queueing")
    return replace(made, promises=(*made.promises, *shown.promises), warnings=kept)
