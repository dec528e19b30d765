"""Offers at one moment, of which some machines are paid for ahead: what is sold, and how names are translated."""

from __future__ import annotations

from typing import Any

import pytest

from hetplan.api.commitments import PaidAhead
from hetplan.errors import InputError
from hetplan.profiles.fields import NANO
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_parts import Commitment
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo
from hetplan.profiles.state import State

AHEAD = {"term_s": 1e7, "discount": 0.4}


def profile(**more: Any) -> Profile:
    sold = {"hardware": "gpu", "price_per_hour": "2", "commit": AHEAD}
    offers = {"a": {**sold, "stock": 6, "zone": "x"}, "b": sold, "c": {**sold, **more}}
    return Profile.model_validate({"hardware": {"gpu": {"kind": "gpu", "provides": {"gpu": 2}}}, "offers": offers})


def wish(reserved: Any = None, **offers: Any) -> Slo:
    limits = {"reserved": reserved, "offers": offers}
    return Slo.model_validate({"apps": {"s": {"model": "m", "rate_qps": 1.0}}, "limits": limits})


def bought(**counts: int) -> list[Commitment]:
    return [
        Commitment.model_validate({"offer": name, "count": count, "term_s": 1e7, "price_per_hour": "1.2"})
        for name, count in counts.items()
    ]


def sold(found: PaidAhead) -> dict[str, tuple[float, int | None]]:
    assert all(one.commit is None for one in found.profile.offers.values())
    return {name: (one.price_per_hour / NANO, one.stock) for name, one in found.profile.offers.items()}


def test_what_is_paid_for_costs_next_to_nothing_and_the_rest_its_price() -> None:
    found = PaidAhead.of(profile(per="gpu"), wish(), bought(a=2, c=3))
    assert sold(found) == {
        "a": (0.002, 2), "a-rented": (2.0, 4), "b": (2.0, None), "c": (0.004, 3), "c-rented": (2.0, None),
    }  # fmt: skip
    assert found.profile.offers["a-rented"].zone == "x"
    assert (found.profile.offers["c"].per, found.profile.offers["c-rented"].per) == (None, "gpu")
    nothing = PaidAhead.of(profile(), wish())
    assert sold(nothing) == {"a": (2.0, 6), "b": (2.0, None), "c": (2.0, None)}
    assert not nothing.rented


def test_all_of_a_stock_may_be_paid_for() -> None:
    assert sold(PaidAhead.of(profile(), wish(), bought(a=6)))["a"] == (0.002, 6)
    assert "a-rented" not in sold(PaidAhead.of(profile(), wish(), bought(a=6)))


def test_limits_on_offers_hold_for_both_together() -> None:
    found = PaidAhead.of(profile(), wish(reserved={"max": 1}, a={"max": 3}, b={"min": 5}), bought(a=2, b=4))
    assert {name: sold(found)[name][1] for name in ("a", "a-rented", "b", "b-rented")} == {
        "a": 2, "a-rented": 1, "b": 4, "b-rented": None,
    }  # fmt: skip
    assert found.wish.limits.offers["b"].min == 4
    assert found.wish.limits.reserved is None
    shares = PaidAhead.of(profile(), wish(a={"max_share": 0.5}), bought(a=2))
    assert sold(shares)["a"] == (2.0, 6), "a share of all machines cannot be said of a part of them"


def test_no_name_is_taken_twice() -> None:
    named = Profile.model_validate(
        {
            "hardware": {"gpu": {"kind": "gpu"}},
            "offers": {name: {"hardware": "gpu", "price_per_hour": "1"} for name in ("a", "a-rented", "z" * 60)},
        }
    )
    found = PaidAhead.of(named, wish(), bought(**{"a": 1, "z" * 60: 1}))
    assert len(found.profile.offers) == 5
    assert all(len(name) <= 63 for name in found.profile.offers)


def test_an_offer_that_the_profile_has_not_is_refused() -> None:
    with pytest.raises(InputError, match="no such offer"):
        PaidAhead.of(profile(), wish(), bought(d=1))


def worker(name: str, offer: str, count: int, **more: Any) -> dict[str, Any]:
    load = {"id": f"{name}.1", "app": "s", "variant": "m", "at": {}, **more}
    return {"id": name, "hardware": "gpu", "offer": offer, "count": count, "loads": [load]}


def test_what_runs_is_first_what_is_paid_for() -> None:
    found = PaidAhead.of(profile(), wish(), bought(a=3))
    workers = [worker("s-a", "a", 2), worker("t-a", "a", 4), worker("s-b", "b", 9), worker("u-a", "a", 1)]
    state = found.state(State.model_validate({"workers": workers}))
    assert state is not None
    # Read again, so that names are found to be different.
    again = State.model_validate(state.model_dump(mode="json"))
    assert [(one.offer, one.count) for one in again.workers] == [
        ("a", 2), ("a", 1), ("a-rented", 3), ("b", 9), ("a-rented", 1),
    ]  # fmt: skip


def test_what_runs_on_hosts_beyond_what_is_paid_for_names_no_host_of_another_offer() -> None:
    hosts = {"h1": {"offer": "a"}, "h2": {"offer": "a"}}
    files = profile().model_dump(mode="json", exclude_unset=True) | {"hosts": hosts}
    found = PaidAhead.of(Profile.model_validate(files), wish(), bought(a=1))
    workers = [{**worker(name, "a", 1), "host": host} for name, host in (("w1", "h1"), ("w2", "h2"))]
    left = found.state(State.model_validate({"workers": workers}))
    assert left is not None
    assert [(one.offer, one.host) for one in left.workers] == [("a", "h1"), ("a-rented", None)]


def planned(*workers: dict[str, Any], **more: Any) -> Plan:
    share = {one["loads"][0]["id"]: 1.0 / len(workers) for one in workers}
    return Plan.model_validate(
        {
            "question": "pool", "method": {"formulation": "x"}, "inputs": {"profile": "sha256:0", "slo": "sha256:1"},
            "workers": workers, "routing": {"s": [{"to": share}]}, **more,
        }
    )  # fmt: skip


def test_groups_that_differ_by_who_paid_are_one() -> None:
    found = PaidAhead.of(profile(), wish(), bought(a=3, b=1))
    plan = found.plan(planned(worker("s-a", "a", 3), worker("s-a-rented", "a-rented", 2)))
    assert [(one.id, one.offer, one.count) for one in plan.workers] == [("s-a", "a", 5)]
    assert plan.routing["s"][0].to == {"s-a.1": 1.0}
    # Other loads, or a rule that names them: two groups of one offer.
    other = found.plan(planned(worker("s-a", "a", 3), worker("s-a-rented", "a-rented", 2, instances=2)))
    assert [(one.id, one.offer, one.count) for one in other.workers] == [("s-a", "a", 3), ("s-a-rented", "a", 2)]
    rule = {
        "dispatch": {"s": {"rule": "least-work/1", "output_tokens": 9.0, "limit": {"s-a.1": 0.5, "s-a-rented.1": 0.4}}}
    }
    ruled = found.plan(planned(worker("s-a", "a", 3), worker("s-a-rented", "a-rented", 2), **rule))
    assert [one.offer for one in ruled.workers] == ["a", "a"]
    assert ruled.routing["s"][0].to == {"s-a.1": 0.5, "s-a-rented.1": 0.5}


def test_a_group_alone_has_the_name_that_the_schedule_gives_it() -> None:
    found = PaidAhead.of(profile(), wish(), bought(a=3))
    rule = {"dispatch": {"s": {"rule": "least-work/1", "output_tokens": 9.0, "limit": {"s-a-rented.1": 0.4}}}}
    plan = found.plan(planned(worker("s-a-rented", "a-rented", 2), **rule))
    assert [(one.id, one.offer, one.loads[0].id) for one in plan.workers] == [("s-a", "a", "s-a.1")]
    assert plan.routing["s"][0].to == {"s-a.1": 1.0}
    assert plan.model_dump(mode="json")["dispatch"]["s"]["limit"] == {"s-a.1": 0.4}
