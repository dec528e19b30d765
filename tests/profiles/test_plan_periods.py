"""Plans with periods: read, written, and taken apart into ordinary plans."""

from __future__ import annotations

import copy
import itertools
import json
from typing import Any

import pytest

import hetplan as hp
from hetplan.profiles.load import load_inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import PERIODS, plan_bytes, plan_dict, with_digest
from hetplan.profiles.plan_periods import machines_of, of_part, of_period, period_at
from hetplan.profiles.read_plan import read_plan

PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"gpu": {"kind": "gpu", "provides": {"gpu": 1}, "startup_s": 90}},
    "zones": {"a": {"quota": {"gpu": 8}}, "b": {"quota": {"machines": 9}}},
    "offers": {
        "gpu-a": {"hardware": "gpu", "zone": "a", "price_per_hour": "1",
                 "commit": {"term_s": 2_592_000, "upfront": "10", "discount": 0.4}},
        "gpu-b-spot": {"hardware": "gpu", "zone": "b", "price_per_hour": "0.3", "interruptions_per_hour": 0.05},
    },
    "tasks": {"rank": {}},
    "variants": {"m": {"task": "rank", "runs": [{"hardware": "gpu", "latency": "t"}]}},
    "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [1, 8]}, "mean": [5, 20]}},
}  # fmt: skip
APP: dict[str, Any] = {
    "question": "pool",
    "model": "m",
    "latency": {"p99_ms": 50},
    "rate_qps": {"series": [50, 100]},
    "mix": {"axes": ["batch"], "bins": [[1], [8]], "share": [0.5, 0.5]},
}
SLO: dict[str, Any] = {
    "format": "hetplan/slo/1.0",
    "limits": {"survive": {"zones": 1, "spot": "all", "serve": 0.9}, "spot": {"max_share": 0.5}},
    "horizon": {"period_s": 43200, "periods": 2, "repeats": 30, "starts": False},
    "apps": {"rank": APP},
}


def _part(count: int) -> dict[str, Any]:
    rate = 50.0 * count
    load = {"id": "l", "app": "rank", "variant": "m", "at": {}}
    return {
        "question": "pool", "method": {"formulation": "pool-milp"}, "rate_qps": {"rank": rate},
        "workers": [{"id": "w", "hardware": "gpu", "offer": "gpu-a", "count": count, "loads": [load]}],
        "routing": {"rank": [{"to": {"l": 1.0}}]},
        "promises": [{"app": "rank", "quantity": "rate_qps", "relation": ">=", "value": rate, "model": "fluid"}],
    }  # fmt: skip


def plan() -> Plan:
    return with_digest(
        Plan.model_validate(
            {
                "question": "fleet", "requires": [PERIODS], "method": {"formulation": "fleet"},
                "inputs": {"profile": "sha256:0", "slo": "sha256:1"},
                "periods": [
                    {"id": "h0", "start_s": 0.0, "end_s": 43200.0, "parts": ["rank-1"],
                     "actions": [{"id": 1, "do": "stop", "worker": "w", "count": 1}]},
                    {"id": "h1", "start_s": 43200.0, "end_s": 86400.0, "parts": ["rank-2"],
                     "actions": [{"id": 1, "do": "start", "worker": "w", "count": 1, "ahead_s": 90.0}]},
                ],
                "parts": {"rank-1": _part(1), "rank-2": _part(2)},
                "commitments": [{"offer": "gpu-a", "count": 1, "term_s": 2_592_000.0, "upfront": "10",
                                 "price_per_hour": "0.6"}],
            }
        )
    )  # fmt: skip


def test_a_plan_with_periods_reads_back_as_it_was_written() -> None:
    made = plan()
    again = read_plan(json.loads(plan_bytes(made)))
    assert again == made
    assert plan_bytes(again) == plan_bytes(made)


def test_the_plan_of_a_period_is_an_ordinary_plan() -> None:
    made = plan()
    one = of_period(made, "h1")
    assert (one.question, one.parts, one.requires, one.periods[0].id) == ("pool", None, (), "h1")
    assert [(worker.period, worker.count) for worker in one.workers] == [("h1", 2)]
    assert one.periods[0].start_s == 0.0
    assert one.periods[0].end_s == 43200.0
    assert machines_of(made, "h0") == {"gpu-a": 1}
    assert of_part(made, "rank-2").workers[0].count == 2
    assert [period_at(made, at).id for at in (0.0, 43200.0, 86400.0 + 5)] == ["h0", "h1", "h0"]
    ordinary = one.model_copy(update={"digest": None})
    assert of_period(ordinary, "h1") is ordinary
    with pytest.raises(hp.InputError, match="h0, h1"):
        of_period(made, "h7")


def test_a_plan_without_parts_has_none_of_their_keys() -> None:
    """What other questions write has the bytes that it had."""
    one = of_period(plan(), "h0")
    assert not {"parts", "commitments", "bill"} & plan_dict(one).keys()
    assert not {"parts", "actions"} & plan_dict(one)["periods"][0].keys()


def test_the_files_of_a_fleet_are_read() -> None:
    inputs = load_inputs(PROFILE, SLO)
    commit = inputs.profile.offers["gpu-a"].commit
    assert commit is not None
    assert (commit.upfront, commit.discount) == (10 * 10**9, 0.4)
    assert inputs.slo.limits.spot.max_share == 0.5
    assert inputs.slo.horizon.repeats == 30


@pytest.mark.parametrize(
    ("file", "path", "value", "said"),
    [
        ("profile", "zones.z", {"quota": {"gpu": 1}}, "no machine type is in zone 'z'"),
        ("profile", "offers.gpu-a.commit.price_per_hour", "0.5", "exactly one of discount and price_per_hour"),
        ("profile", "zones.a.quota.gpus", 3, "no machine type provides 'gpus'"),
        ("slo", "limits.survive.zones", 2, "no zone would be left"),
        ("slo", "limits.offers", {"gpu-c": {"min": 1}}, "there is no offer 'gpu-c'"),
        ("slo", "limits.offers", {"committed": {"max": 1}}, 'Write "limits": {"reserved"'),
        ("slo", "limits.offers", {"spot": {"share": [0, 0.5]}}, r'Write "max_share": 0.5'),
        ("slo", "limits.spot.min", 9, None),
        ("slo", "limits.on_demand", {"min_share": 0.7}, None),
        ("slo", "limits.spot", {"max_share": 0, "min": 2}, "no share for the 2 machines of its floor"),
        ("slo", "limits.on_demand", {"max_share": 0.4}, "at most"),
        ("slo", "limits.spot.min_share", 0.8, "min_share <= max_share"),
        ("slo", "apps.rank.rate_qps.series", [50, 100, 150], "one rate per period"),
    ],
)
def test_what_does_not_fit_together_is_said(file: str, path: str, value: object, said: str | None) -> None:
    files = {"profile": copy.deepcopy(PROFILE), "slo": copy.deepcopy(SLO)}
    held: Any = files[file]
    *steps, last = path.split(".")
    for step in steps:
        held = held[step]
    held[last] = value
    if said is None:
        load_inputs(files["profile"], files["slo"])
        return
    with pytest.raises(hp.InputError, match=said) as caught:
        load_inputs(files["profile"], files["slo"])
    assert all(fault.remedy for fault in caught.value.faults)


def test_floors_that_exclude_one_another_are_named() -> None:
    slo = copy.deepcopy(SLO)
    slo["limits"] |= {"spot": {"min_share": 0.5}, "on_demand": {"min_share": 0.6}}
    with pytest.raises(hp.InputError, match=r"not 1\.1 at least"):
        load_inputs(PROFILE, slo)
    profile = copy.deepcopy(PROFILE)
    del profile["offers"]["gpu-b-spot"]["interruptions_per_hour"]
    del profile["offers"]["gpu-a"]["commit"]
    for kind, floor in itertools.product(("spot", "reserved"), ({"min_share": 0.5}, {"min": 1})):
        slo["limits"] = {kind: floor}
        with pytest.raises(hp.InputError, match=f"no machine may be {kind}"):
            load_inputs(profile, slo)


def test_quotas_of_zones_are_refused_where_they_are_not_kept() -> None:
    slo = {"format": "hetplan/slo/1.0", "apps": {"rank": {**APP, "rate_qps": 20}}}
    del slo["apps"]["rank"]["question"]
    with pytest.raises(hp.InputError, match="quotas of zones"):
        hp.solve(PROFILE, slo, formulation="pool")
    profile = {**PROFILE, "zones": {"a": {}, "b": {}}}
    outcome = hp.solve(profile, slo, options={"sizing": "fluid"}, formulation="pool")
    assert outcome.plan is not None
