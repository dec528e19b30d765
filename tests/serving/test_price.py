"""What a machine costs: exact, by one rule."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo
from hetplan.profiles.workers import Worker
from hetplan.serving.bill import prices_of
from hetplan.serving.loads import worker_price
from hetplan.serving.needs import needs_of
from hetplan.serving.price import price_of

NANO = 10**9


def inputs(
    *runs: dict[str, Any], offers: dict[str, Any] | None = None, provides: dict[str, float] | None = None
) -> Inputs:
    listed = [{"hardware": "gpu", "latency": "t", **run} for run in runs or ({},)]
    profile = {
        "hardware": {"gpu": {"kind": "gpu", "provides": provides or {}}},
        "offers": {name: {"hardware": "gpu", **offer} for name, offer in (offers or {}).items()},
        "tables": {"t": {"quantity": "latency_ms", "mean": 5}},
        "variants": {"m": {"task": "x", "runs": listed}},
    }
    return Inputs(Profile.model_validate(profile), Slo.model_validate({}))


def worker(offer: str | None, *loads: dict[str, Any]) -> Worker:
    made = [{"id": f"w.{n}", "variant": "m", **load} for n, load in enumerate(loads)]
    return Worker.model_validate({"id": "w", "hardware": "gpu", "offer": offer, "loads": made})


def test_an_own_price_of_a_run_wins_over_the_offer() -> None:
    known = inputs({"price_per_hour": "0.3"}, offers={"od": {"price_per_hour": "2"}})
    (run,) = known.profile.variants["m"].runs
    price = price_of(known.profile, run, "od")
    assert price.nanos == 3 * NANO // 10
    assert worker_price(known, worker("od", {"instances": 3})) == 9 * NANO // 10


def test_of_two_runs_the_one_that_the_load_names_says_the_price() -> None:
    known = inputs({"at": {"k": 1}, "price_per_hour": "1"}, {"at": {"k": 2}, "price_per_hour": "5"})
    assert [worker_price(known, worker(None, {"at": {"k": k}})) for k in (1, 2)] == [NANO, 5 * NANO]


def test_by_the_unit_a_slice_is_paid_and_the_load_carries_it() -> None:
    known = inputs(
        {"needs": {"gpu": 0.35}}, offers={"od": {"price_per_hour": "1.1", "per": "gpu"}}, provides={"gpu": 2}
    )
    (run,) = known.profile.variants["m"].runs
    price = price_of(known.profile, run, "od")
    assert price.nanos == 385_000_000
    shared = {"share": price.share.model_dump()} if price.share else {}
    assert worker_price(known, worker("od", shared)) == price.nanos
    assert worker_price(known, worker("od", {**shared, "instances": 2}, shared)) == 3 * price.nanos
    assert needs_of(known, worker("od", {**shared, "instances": 2}).loads[0], "gpu") == {"gpu": 0.7}


@pytest.mark.parametrize(("provides", "nanos"), [({"gpu": 2}, 3 * NANO), ({}, None)])
def test_by_the_unit_without_a_slice_the_whole_machine_is_paid(provides: dict[str, float], nanos: int | None) -> None:
    known = inputs({}, offers={"od": {"price_per_hour": "1.5", "per": "gpu"}}, provides=provides)
    (run,) = known.profile.variants["m"].runs
    if nanos is None:
        with pytest.raises(InputError, match="paid per unit of gpu"):
            price_of(known.profile, run, "od")
    else:
        assert price_of(known.profile, run, "od").nanos == nanos
    assert worker_price(known, worker("od", {})) == nanos
    assert worker_price(known, worker("od")) == nanos


def test_without_any_offer_a_machine_costs_1_and_with_some_none_is_unknown() -> None:
    assert worker_price(inputs(), worker(None, {})) == NANO
    sold = inputs(offers={"od": {"price_per_hour": "2"}})
    assert worker_price(sold, worker(None, {})) is None
    with pytest.raises(InputError, match="none is named"):
        price_of(sold.profile, sold.profile.variants["m"].runs[0], None)


def test_a_product_is_rounded_once_per_machine() -> None:
    known = inputs(offers={"od": {"price_per_hour": "0.000000001", "per": "gpu"}}, provides={"gpu": 1.5})
    assert worker_price(known, worker("od", {})) == 2
    known = inputs(offers={"od": {"price_per_hour": "0.000000001", "per": "gpu"}}, provides={"gpu": 2.5})
    assert worker_price(known, worker("od", {})) == 2


def test_the_prices_of_a_plan_leave_out_machines_without_one() -> None:
    plan: Any = SimpleNamespace(
        workers=(worker("od", {}), worker(None, {}).model_copy(update={"id": "own"})), promises=()
    )
    assert prices_of(plan, inputs(offers={"od": {"price_per_hour": "2"}})) == {"w": 2.0}
    assert prices_of(plan, inputs()) == {}, "nothing has a price: each machine counts one, which is no money"
