"""Operators' times on the machines of a plan add up to the response that it promises, links aside."""

from __future__ import annotations

import pytest

import hetplan as hp
from hetplan.measure.evaluator_profiler import measuring
from hetplan.measure.evaluator_synthetic import draw
from hetplan.measure.evaluator_times import operator_bytes, operator_ms
from hetplan.measure.journal import Journal


def test_times_and_links_add_up_to_the_promise():
    query, journal = draw("DVC", 0), Journal()
    hp.solve(
        query.profile(), query.slo(), tools=hp.Tools(evaluate=measuring(query, journal=journal)), options={"steps": 20}
    )
    measured = journal.document()
    plan = hp.solve(query.profile(), query.slo(), measured=measured).require()
    inputs = hp.load_inputs(query.profile(), query.slo(), measured=measured)
    rule = plan.dispatch["query"]
    times, sizes = operator_ms(plan, inputs), operator_bytes(plan, inputs)
    c = query.configuration(rule.knobs)
    placement = [("device", "mec", "cloud").index(rule.placement[step.name]) for step in query.app.steps]
    k = query.placements.tolist().index(placement)
    promised = next(one.value for one in plan.promises if one.quantity == "response_ms")
    assert sum(times.values()) + 1000 * query.transfer_s()[c, k] == pytest.approx(promised)
    assert sorted(sizes.values()) == pytest.approx(sorted(query.bytes_out[c]))
    assert operator_ms(plan, hp.load_inputs(query.profile(), query.slo())) == {}
