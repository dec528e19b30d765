"""Machines are bought as a buyer would: paid ahead first, then spot up to its share of machines in use, then on demand.

The machines themselves are taken from the plan: what the same machines cost when they are bought better is arithmetic.
"""

from __future__ import annotations

import pytest
from build import Files, app, files, machine, model, pipeline
from face import Answer, solve

VIT = {
    "batch": (1, 2, 4, 8, 16, 32),
    "mean": (5.6, 10.0, 18.8, 36.4, 71.6, 142.0),
    "p99": (6.27, 11.2, 21.06, 40.77, 80.19, 159.04),
}
SHARE = 0.5


def day(apps: int) -> Files:
    """Applications of one model over four hours, which repeat for a year; half of the machines in use may be spot."""
    t4 = machine(0.526, stock=20, spot=0.19, spot_stock=10, reserved=0.331)
    wanted = {
        f"a{number}": app("vit", rate=[60 + 20 * number, 150, 300 + 40 * number, 150], limits={99: 120})
        for number in range(apps)
    }
    wish = files(machines={"t4": t4}, models={"vit": model({"t4": VIT})}, apps=wanted, periods=4, repeats=365 * 6)
    return wish.limited(spot_share=SHARE, survive_machines=1)


def bought_better(wish: Files, answer: Answer) -> float:
    """What the same number of machines in each hour costs at least, with the same machines paid ahead."""
    bought = answer.bought()
    hours = sorted({period for period, _, _ in bought})
    reserved = max(count for (_, _, purchase), count in bought.items() if purchase == "reserved")
    total = 0.0
    for hour in hours:
        in_use = sum(count for (period, _, _), count in bought.items() if period == hour)
        spot = min(in_use - reserved, SHARE * in_use // 1, 10)
        total += reserved * wish.price("t4", "reserved") + spot * wish.price("t4", "spot")
        total += (in_use - reserved - spot) * wish.price("t4")
    return total / len(hours)


@pytest.mark.slow
@pytest.mark.parametrize("apps", [1, 3])
def test_the_same_machines_cannot_be_bought_for_less(apps: int) -> None:
    wish = day(apps)
    plan = solve(wish, "fluid")
    assert plan.cost - plan.starts_cost <= bought_better(wish, plan) + 1e-6


@pytest.mark.parametrize("spot", [0.2, 0.3, 0.6])
def test_one_application_mixes_spot_and_on_demand_under_a_share(spot: float) -> None:
    wish = files(
        machines={"t4": machine(1.0, stock=20, spot=spot, spot_stock=10)},
        models={"net": model({"t4": {1: 10.0, 8: 40.0}})},
        apps={"photos": app("net", rate=240, limits={99: 120})},
    )
    free, capped = solve(wish, "fluid"), solve(wish.limited(spot_share=SHARE), "fluid")
    assert free.cost == pytest.approx(spot * free.count())
    on_demand = -(-capped.count() // 2)
    assert capped.cost == pytest.approx(on_demand + spot * (capped.count() - on_demand))


@pytest.mark.parametrize("part", [0.25, 0.3])
def test_a_step_a_variant_and_a_pool_that_fit_one_card_share_it(part: float) -> None:
    """Each replica takes `part` of a card and is busy for a quarter of the time: one card carries all three."""
    takes = {
        name: model({"card": {1: 5.0, 8: 20.0}}, quality=0.8, needs={"gpu_share": part}) for name in ("a", "b", "c")
    }
    wish = files(
        machines={"card": machine(1.0, provides={"gpu_share": 1.0}, stock=8)},
        models=takes,
        apps={
            "ranking": app("a", rate=20, limits={99: 100}, sizes={1: 0.5, 8: 0.5}),
            "photos": app("b", rate=20, limits={99: 200}),
            "street": app("street", rate=20, limits={99: 200}, by="pipeline"),
        },
        pipelines={"street": pipeline([], ["c"])},
    )
    assert solve(wish, "fluid").cost == pytest.approx(1.0)
