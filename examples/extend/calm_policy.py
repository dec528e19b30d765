"""A dispatch policy: the most accurate model while few queries wait, else the fastest.

A policy is a table. When a worker is free it looks up how many queries wait and how long the oldest may still take; the
table says which model answers how many of them. hetplan simulates the table, writes it into the plan and has the router
follow it (dispatch rule ``queue-slack/1``). So a policy needs no code in the router.

::

    $ hetplan solve examples/policy/profile.json examples/policy/slo.json --formulation calm --set few=3
"""

from __future__ import annotations

from functools import partial

import numpy as np
from pydantic import Field

from hetplan.extend import Formulation, Group, PolicyOptions, PolicySearch, Sizing, SolvedPolicy, plan_rule

__all__ = ["CALM", "CalmOptions"]


class CalmOptions(PolicyOptions):
    """`calm`: accurate while few queries wait."""

    few: int = Field(default=4, ge=1, description="up to this many waiting queries get the most accurate model")
    sizing: Sizing = Field(default="simulation", description="fluid: the table is not simulated")


def stay_calm(search: PolicySearch, group: Group, load_qps: float) -> SolvedPolicy:
    """The table of one group of workers at one rate."""
    options = search.options
    assert isinstance(options, CalmOptions)
    form = group.form(load_qps, options, batching="max")
    # `actions` lists what may be done in each state, one state after the other: `first` says where each begins.
    # Models are numbered from the fastest, and a worker takes all queries that wait.
    actions = form.actions
    merit = np.where(actions.batch <= options.few, form.accuracy[actions.model], -actions.model.astype(float))
    merit[~actions.in_time] = -np.inf
    best = np.maximum.reduceat(merit, actions.first[:-1])
    places = np.flatnonzero(merit == np.repeat(best, np.diff(actions.first)))
    policy = form.policy(places[np.searchsorted(places, actions.first[:-1])])
    return search.simulate(search.evaluate(group, load_qps, form, policy))


CALM = Formulation(CalmOptions, partial(plan_rule, rule=stay_calm))
