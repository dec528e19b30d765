"""How likely a front misses a point: what the search says, against how often it is so, on the generators.

    python benchmarks/compound_fronts.py [--apps ACG SR] [--seeds 20] [--first 700] [--steps 15] [--rate 5]

Every seed is a synthetic query with a known truth whose quality and cost are sought at once. After `steps` measurements
the search says with which probability none of the other settings would extend the front by more than 5 % of its range.
The truth says whether one does: a setting whose true accuracy is that much above every point that costs no more than it
(and 5 % of the range of costs). With `--rate` queries come at this rate, and costs are those of the replicas that the
formula for queues says, of points and of the truth alike. Printed are the mean of what was said and the share of fronts
where it was so, in all and where the search said more, or less, than a half.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

import numpy as np

import hetplan as hp
from hetplan.measure.evaluator_profiler import measuring
from hetplan.planner.forms.black_box import Measured, Verdict
from hetplan.planner.request import read_request
from hetplan.problems.compound.options import CompoundOptions
from hetplan.problems.compound.pipeline_query import read_pipeline_queries, refuse_to_measure
from hetplan.problems.compound.request import read_tiers
from hetplan.problems.compound.stations import QueuedBox, cheapest_sizes
from hetplan.problems.faults import Faults
from hetplan.profiles.load import load_inputs
from hetplan.profiles.profile import Profile
from hetplan_papers.datasets.circinus_generator import GRID, PRICE, SyntheticQuery, draw


def least_costs(query: SyntheticQuery) -> np.ndarray:
    """Per configuration the least price of its placements and shares within the limit."""
    shares = np.array(list(product(GRID, repeat=len(query.app.steps))))
    compute, transfer = query.compute_s(), query.transfer_s()
    best = np.full(len(query.seconds), np.inf)
    for k, tiers in enumerate(query.placements):
        price = np.array(PRICE)[tiers]
        cost = shares @ price
        order = np.argsort(cost, kind="stable")
        slow = 1.0 / np.where(price > 0, shares[order], 1.0)
        in_time = compute[:, k] @ slow.T + transfer[:, k, None] <= query.latency_max_s
        first = np.where(in_time.any(axis=1), cost[order][in_time.argmax(axis=1)], np.inf)
        best = np.minimum(best, first)
    return best


def least_costs_at(query: SyntheticQuery, slo: dict[str, Any]) -> np.ndarray:
    """Per configuration the least price of the replicas that carry a rate within the limit, by the formula."""
    inputs = load_inputs(Profile.model_validate(query.profile()), slo)
    request = read_request(inputs)
    faults = Faults.of(inputs)
    (sought,) = read_pipeline_queries(inputs, request, read_tiers(inputs.profile, request, faults), faults)
    form = sought.box(refuse_to_measure, CompoundOptions())
    assert isinstance(form, QueuedBox)
    best = np.full(len(query.seconds), np.inf)
    for c in range(len(best)):
        k, costs = query.configuration(sought.knobs(c)), query.costs(c)
        assert k == c
        found = Measured(
            c, mean=float(query.accuracy[k]), samples=1000, verdict=Verdict.PASS, passes=True,
            seconds=tuple(query.seconds[k].tolist()), bytes_out=tuple(query.bytes_out[k].tolist()),
            bytes_in=costs["input_bytes"],
        )  # fmt: skip
        best[k] = min((size.cost for size in cheapest_sizes(form, [found], 1)), default=np.inf)
    return best


def one(app: str, seed: int, steps: int, rate: float | None) -> tuple[float, bool] | None:
    """What the search says, and whether it is so."""
    query = draw(app, seed)
    slo = {**query.slo(), "objective": ["front quality cost"]}
    if rate is not None:
        del slo["apps"]["query"]["streams"]
        slo["apps"]["query"]["rate_qps"] = rate
    measure, how = measuring(query), {} if rate is None else {"sizing": "formula"}
    outcome = hp.solve(
        Profile.model_validate(query.profile()),
        slo,
        evaluate=measure,
        options={"max_measurements": steps, "front_points": 200, **how},
        seed=seed,
    )
    front = outcome.front
    if front is None or front.chance is None or len(front.points) < 2:
        return None
    points = np.array([(figures["quality"], figures["cost_per_hour"]) for figures, _ in front.points])
    slack = 0.05 * np.ptp(points, axis=0)
    cost = least_costs(query) if rate is None else least_costs_at(query, slo)
    cheap = points[None, :, 1] - slack[1] <= cost[:, None]
    bar = np.where(cheap, points[None, :, 0] + slack[0], -np.inf).max(axis=1)
    extends = (query.accuracy > np.maximum(bar, query.accuracy_min)) & np.isfinite(cost)
    for point in front.points:
        knobs = point[1].require().dispatch["query"].knobs
        extends[query.configuration(knobs)] = False
    return front.chance, not extends.any()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apps", nargs="*", default=["ACG", "SR"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=700)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rate", type=float, default=None)
    asked = parser.parse_args()
    every = []
    for app in asked.apps:
        found = [one(app, seed, asked.steps, asked.rate) for seed in range(asked.first, asked.first + asked.seeds)]
        known = [pair for pair in found if pair is not None]
        every += known
        show(app, known)
    show("all", every)
    show("said > 1/2", [pair for pair in every if pair[0] > 0.5])
    show("said <= 1/2", [pair for pair in every if pair[0] <= 0.5])


def show(name: str, known: list[tuple[float, bool]]) -> None:
    """One line."""
    if known:
        said, so = np.mean([pair[0] for pair in known]), np.mean([pair[1] for pair in known])
        print(f"{name:12} {len(known):3} fronts: said {said:.2f}, so {so:.2f}", flush=True)


if __name__ == "__main__":
    main()
