"""Packings and queries small enough to know the answer of."""

from __future__ import annotations

from typing import Any

import numpy as np

from hetplan.planner.forms.packing import Items, Packing
from hetplan.planner.request import read_request
from hetplan.problems.compound.options import CompoundOptions
from hetplan.problems.compound.pipeline_query import read_pipeline_queries, refuse_to_measure
from hetplan.problems.compound.request import read_tiers
from hetplan.problems.compound.search import read_measurements
from hetplan.problems.compound.stations import QueuedBox
from hetplan.problems.faults import Faults
from hetplan.profiles.load import load_inputs


def form_of(profile: Any, slo: Any, measured: Any) -> QueuedBox:
    """The form of the one application, which comes at a rate, with all that was measured in its journal."""
    inputs = load_inputs(profile, slo, measured=measured)
    request = read_request(inputs)
    faults = Faults.of(inputs)
    (sought,) = read_pipeline_queries(inputs, request, read_tiers(inputs.profile, request, faults), faults)
    faults.settle()
    form = sought.box(refuse_to_measure, CompoundOptions())
    assert isinstance(form, QueuedBox)
    form.journal.update({one.configuration: one for one in read_measurements(sought, inputs.measured, "measured")})
    return form


def four_queries() -> Packing:
    """Every greedy norm serves 2 of them, 3 can be: the sum of demands hides what is scarce."""
    demand = np.array([[0.9, 0], [0, 1], [0.9, 0], [0, 1], [1, 0], [1.5, 0]], dtype=float)
    first = np.array([0, 2, 4, 5, 6])
    return Packing("max", first, np.ones(6), demand, np.array([2.0, 2.0]))


def three_alike(machines: float = 2) -> Packing:
    """Three demands of 0.6 on two GPUs."""
    items = Items(
        first=np.arange(4), tier=np.zeros(3, np.int64), size=np.full((3, 1), 0.6), machines=np.array([machines]),
        room=np.ones((1, 1)), price=np.zeros(1),
    )  # fmt: skip
    return Packing("max", np.arange(4), np.ones(3), np.zeros((3, 0)), np.zeros(0), items)


def two_tiers_at_a_price() -> Packing:
    """The cheapest plan of each query opens two machines, sharing one is cheaper."""
    items = Items(
        first=np.arange(4), tier=np.array([1, 0, 1]), size=np.array([[0.75], [0.3], [0.25]]),
        machines=np.array([np.inf, np.inf]), room=np.ones((2, 1)), price=np.array([2.48, 3.67]),
    )  # fmt: skip
    return Packing("min", np.array([0, 1, 3]), np.zeros(3), np.zeros((3, 0)), np.zeros(0), items)
