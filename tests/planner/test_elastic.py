"""Why nothing fits: the smallest contradiction is named, and each repair is the least that cures it alone."""

from __future__ import annotations

import numpy as np
import pytest

from hetplan.planner.answer import Limits, Status
from hetplan.planner.elastic import explain, knobs, stretch, stretch_all
from hetplan.planner.forms.milp import Builder, Elastic, Milp
from hetplan.planner.solver_calls import Asking


def too_much(demand: float = 12.0) -> Milp:
    """Machines at 2 queries each, at most 4 of them and 7 money at 1.5: at least 6 are needed."""
    m = Builder("min", name="machines")
    n = m.columns(
        "machines",
        ["gpu"],
        upper=4.0,
        cost=1.5,
        whole=True,
        unit="machines",
        elastic=Elastic(1.0, "slo.limits.instances.{label}", unit="machines", whole=True),
    )
    m.add(
        m.rows("demand", ["app"], lower=demand, unit="qps", elastic=Elastic(1.0, "slo.rate_qps", "lower", unit="qps")),
        n,
        2.0,
    )
    m.add(m.rows("budget", ["money"], upper=7.0, unit="USD/h", elastic=Elastic(1.0, "slo.cost", unit="USD/h")), n, 1.5)
    m.add(m.rows("idle", ["any"], upper=100.0, elastic=Elastic(1.0, "slo.unrelated")), n, 1.0)
    return m.build()


def test_the_smallest_contradiction_and_the_single_repairs(reference) -> None:
    said = explain(too_much(demand=9.0), Asking([reference]))
    # 4 machines carry 8 of 9: either one more machine and 0.5 more money, or 1 query less; only the last cures alone.
    assert said.why
    assert [repair.text for repair in said.repairs] == ["lower slo.rate_qps by 1 qps to 8 qps"]


def test_a_column_bound_alone(reference) -> None:
    m = Builder("min")
    limit = Elastic(1.0, "slo.limits.instances.{label}", unit="machines", whole=True)
    n = m.columns("machines", ["gpu"], upper=4.0, cost=1.0, whole=True, elastic=limit)
    m.add(m.rows("demand", ["app"], lower=9.0), n, 2.0)
    said = explain(m.build(), Asking([reference]))
    assert [repair.to for repair in said.repairs] == [5.0]
    assert said.repairs[0].text == "raise slo.limits.instances.gpu by 1 machines to 5 machines"
    assert said.why == ("slo.limits.instances.gpu cannot be met",)


def test_what_does_not_contradict_is_not_blamed(reference) -> None:
    text = explain(too_much(), Asking([reference]))
    assert not any("slo.unrelated" in one for one in text.why)
    assert any("slo.rate_qps" in one for one in text.why)


def test_without_knobs_it_says_so(reference) -> None:
    m = Builder("min")
    m.add(m.rows("never", ["r"], lower=1.0), m.columns("x", ["a"], upper=0.5), 1.0)
    assert "none of them may give way" in explain(m.build(), Asking([reference])).why[0]


def test_stretching_every_row_measures_the_distance(reference) -> None:
    form = too_much(demand=9.0)
    answer = reference.solve(stretch_all(form), Limits())
    assert answer.status is Status.OPTIMAL
    assert answer.value == pytest.approx(1.0 / 2.0)  # one query short, on a row whose largest coefficient is 2
    fits = reference.solve(stretch_all(too_much(demand=8.0)), Limits())
    assert fits.value == pytest.approx(0.0, abs=1e-9)


def test_stretched_blocks_keep_names_and_read_back(reference) -> None:
    form = too_much(demand=9.0)
    loose = knobs(form)
    assert [k.label for k in loose] == ["app", "money", "any", "gpu"]
    model, read = stretch(form, loose)
    slack = read(reference.solve(model, Limits()).point)
    assert slack.shape == (4,)
    assert slack.sum() > 0
    assert model.row_name(0) == "demand[app]"
    assert np.isinf(model.upper[0])
