r"""The exact program over shares of prefixes of configurations (formulation `config`, the default).

==========  ==========================================================================================
letter      meaning
==========  ==========================================================================================
p           prefix: configurations (k, g, b) of the tasks from the entrance down to some task
n_p         share of the queries at the entrance whose path begins with p
gain_p      queries that reach the end of p per query at the entrance
x_y         servers of configuration y; q_y what one carries
D           demand; S_g servers of hardware g
==========  ==========================================================================================

::

    max (1/sinks) sum_{p at a sink} A_p n_p
    (1) sum_{p at a root} n_p = 1                      per root
    (1) sum_{c child of p at task t} n_c = n_p         per prefix p and child task t
    (2) D sum_{p ends in y} gain_p n_p <= q_y x_y      per configuration y (Eq. 2)
    (3) sum_y x_y <= S_g                               (Eq. 3)
    (4) x_y <= S_g z_y, sum_b z <= 1                   one batch per (k, g) (Eq. 4-7), unless `multibatch`

Prefixes that end too late are not made, so no row speaks of latency. For the goal "rate", n holds absolute flows and
(1) reads sum n = D with D a column.
"""

from __future__ import annotations

from hetplan.planner.forms.milp import Builder, Vector
from hetplan.problems.pipeline.fleet import Fleet
from hetplan.problems.pipeline.flows import Forest, add_flows, add_qualities, flow_unit, largest_gains, set_costs
from hetplan.problems.pipeline.rows import (
    Asked,
    Places,
    Servers,
    Written,
    add_batch_rule,
    add_goal,
    add_servers,
    bound_of_servers,
)

__all__ = ["config_form"]


def config_form(forest: Forest, fleet: Fleet, asked: Asked) -> Written:
    """Write the program for these prefixes."""
    trees = [tree for tree, _ in forest]
    m = Builder("max" if asked.goal in ("quality", "fairest", "rate") else "min", name=f"config {asked.goal}")
    uppers = [
        [bound_of_servers(tree, largest_gains(levels), t, fleet, asked) for t in range(len(tree.tasks))]
        for tree, levels in forest
    ]
    servers = add_servers(m, trees, uppers, fleet, asked)
    flows, rate = add_flows(m, forest, fleet, asked)
    for i in range(len(forest)):
        _loads(m, i, forest, fleet, asked, flows[i], servers)
    if asked.counts is None and asked.whole and not asked.multibatch:
        add_batch_rule(m, trees, uppers, servers, fleet)
    costs: dict[int, float] = {} if rate is None else {rate: 1.0}
    add_qualities(m, forest, flows, asked, costs, rate)
    add_goal(costs, trees, servers, fleet, asked)
    return Written(set_costs(m.build(), costs), servers.x, flows, rate)


def _loads(
    m: Builder, i: int, forest: Forest, fleet: Fleet, asked: Asked, flows: list[Places], servers: Servers
) -> None:
    """(2): no configuration gets more than its servers carry."""
    tree, levels = forest[i]
    name = f"{tree.app}/" if len(forest) > 1 else ""
    unit, start = flow_unit(tree, i, asked), 0
    for t, (task, level) in enumerate(zip(tree.tasks, levels, strict=True)):
        capacity = task.qps * (1.0 - asked.slip)
        own = slice(start, start + task.size)
        upper: Vector | float = 0.0 if asked.counts is None else capacity * asked.counts[i][own]
        load = m.rows(
            f"load {name}{task.id}",
            lambda c, task=task: task.label(c, fleet.hardware),  # type: ignore[misc]
            size=task.size,
            upper=upper,
            unit="qps",
            equation="(2)",
        )
        m.add(load[level.config], flows[t], unit * level.gain)
        if asked.counts is None:
            m.add(load, servers.x[i][own], -capacity)
        start += task.size
