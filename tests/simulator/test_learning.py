"""A dispatcher that learns latencies while it serves: wrong at first, right in the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hetplan.dispatch.monitors import LatencyLearner
from hetplan.errors import InputError
from hetplan.serving.planned_system import planned_systems
from hetplan.simulator.control import learning
from hetplan.simulator.simulate import demands_of, simulate
from hetplan.simulator.simulation import Simulation


def test_in_the_end_it_believes_what_is_so(plans: Any) -> None:
    plan, inputs = plans.pool((2, 2), rate=40.0)
    (stage,), demands = planned_systems(plan, inputs), demands_of(plan, inputs)
    run = Simulation(stage.system, [demands[0].stream(3, 60.0)], horizon_ms=60_000.0)
    learning(demands)(run)
    run.run()
    for group, mean in (("w1", [10.0, 40.0]), ("w2", [20.0, 200.0])):
        seen = run.seen(group, f"{group}.m")
        assert seen[:, 1] == pytest.approx(seen[:, 0] * mean)
        enough = seen[:, 0] >= LatencyLearner().enough
        start = int(run.world.parts["load"][run._builder.crews[group].loads[f"{group}.m"]]["cell0"])
        believed = run.world.numbers[start + 4 : start + 10 : 5]
        assert believed[enough] == pytest.approx(np.array(mean)[enough])
        assert enough[0]


def test_it_errs_while_it_knows_nothing_and_not_much_longer(plans: Any) -> None:
    """The first large query is sent to the slow type, which seems as fast; later ones are not."""
    plan, inputs = plans.pool((2, 2), rate=40.0)
    times = np.array([0.1, 0.2, *np.linspace(1.0, 60.0, 600)])
    known = simulate(plan, inputs, seeds=2, trace=times)
    learnt = simulate(plan, inputs, seeds=2, trace=times, learn=True)
    late = [report.apps["rank"].figures["violations"].value for report in (known, learnt)]
    assert late[0] == 0.0
    assert 0.0 < late[1] < 0.05


def test_alike_machines_learn_from_each_other(plans: Any) -> None:
    """Two groups of one hardware are one learner: what only one has served, the other believes as well."""
    plan, inputs = plans.pool((1, 1), rate=20.0)
    twin = plan.workers[0].model_copy(
        update={"id": "w3", "loads": (plan.workers[0].loads[0].model_copy(update={"id": "w3.m"}),)}
    )
    plan = plan.model_copy(update={"workers": (*plan.workers, twin)})
    (stage,), demands = planned_systems(plan, inputs), demands_of(plan, inputs)
    run = Simulation(stage.system, [demands[0].stream(0, 30.0)], horizon_ms=30_000.0)
    learning(demands)(run)
    run.run()
    rows = [run.world.parts["load"][run._builder.crews[name].loads[f"{name}.m"]] for name in ("w1", "w3")]
    one, other = (run.world.numbers[row["cell0"] + 4 : row["cell0"] + 10 : 5].tolist() for row in rows)
    assert one == other != [1.0, 1.0]


def test_where_there_is_nothing_to_learn(plans: Any) -> None:
    plan, inputs = plans.pool((2, 0), dispatch={"rule": "fcfs/1"})
    with pytest.raises(InputError, match="no rule of this plan looks at predicted"):
        simulate(plan, inputs, seeds=1, learn=True)


def test_learning_is_the_same_every_time(plans: Any) -> None:
    case = plans.pool((1, 2), rate=25.0)
    one, two = (simulate(*case, seeds=3, learn=True, threads=threads).as_dict() for threads in (1, 2))
    assert one == two
