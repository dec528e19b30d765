"""Candidate plans packed by hand: what is neutral passes, every way of spoiling the packing is caught and named.

On the cloud's one machine `a` takes 0.6 and `b` 0.4: it is full. `c` takes 3 of the 4 machines of the edge together,
`d` is left out. Goodput is 2 (the weight of `a`) + 1 + 0.25 (of the candidate of `c`), candidates cost 1.5 + 0.75.
"""

import pytest
from cases.documents import DROP, Json, documents, promise, read, spoil

from hetplan.verifier.compound import check
from tests.build import answered


def packed() -> Json:
    return documents(
        profile={
            "tiers": ["device", "edge", "cloud"],
            "hardware": {
                "mini": {"kind": "gpu", "tier": "edge"},
                "a100": {"kind": "gpu", "tier": "cloud"},
                "loose": {"kind": "gpu"},
            },
            "offers": {
                "mini": {"hardware": "mini", "price_per_hour": "1", "stock": 4},
                "a100": {"hardware": "a100", "price_per_hour": "3"},
            },
        },
        slo={
            "limits": {"instances": {"a100": [0, 1]}, "capacity": {"net": 3.0}},
            "apps": {
                "a": {
                    "weight": 2,
                    "candidates": [
                        {"demand": {"net": 1}},
                        {"demand": {"cloud": 0.6, "net": 2}, "price_per_hour": "1.5", "label": "fast"},
                    ],
                },
                "b": {"candidates": [{"demand": {"cloud": 0.4, "net": 1}}]},
                "c": {"candidates": [{"demand": {"edge": 3}, "weight": 0.25, "price_per_hour": "0.75"}]},
                "d": {"candidates": [{"demand": {"net": 9}}]},
            },
        },
        plan={
            "question": "compound",
            "method": {"formulation": "by-hand"},
            "dispatch": {
                "a": chosen(1, {"cloud": 0.6, "net": 2}, machines={"cloud": [0]}, label="fast"),
                "b": chosen(0, {"cloud": 0.4, "net": 1}, machines={"cloud": [0]}),
                "c": chosen(0, {"edge": 3}),
            },
            "unserved": [{"app": "d", "rate_qps": 1, "why": "no room"}],
            "promises": [
                promise("goodput", "=", 3.25, "no-queueing"),
                promise("served", "=", 3, "no-queueing"),
                promise("candidates_per_hour", "=", 2.25, "no-queueing"),
            ],
        },
    )


def chosen(candidate: int, demand: Json, **more: object) -> Json:
    return {"rule": "chosen-plan/1", "candidate": candidate, "demand": demand, **more}


def demanded(app: str, number: int, key: str, amount: float) -> Json:
    """Edits of a demand, in the wish and in the plan."""
    return {
        f"slo/apps/{app}/candidates/{number}/demand/{key}": amount,
        f"plan/dispatch/{app}/demand/{key}": amount,
    }


WITHOUT_C = {"plan/dispatch/c": DROP, "plan/unserved/1": {"app": "c", "rate_qps": 1, "why": "none"}}
SUMS = "compound-sum @ promises"

# fmt: off
SPOILT = [
    ("nothing", {}, ""),
    ("one nowhere", {"plan/unserved": []}, "compound-served @ apps.d"),
    ("one twice", {"plan/unserved/1": {"app": "a", "rate_qps": 1, "why": "x"}}, "compound-served @ apps.a"),
    ("one unserved twice", {"plan/unserved/1": {"app": "d", "rate_qps": 1, "why": "x"}}, "compound-served @ apps.d"),
    ("least cost leaves nobody out", {"slo/objective": ["min cost"]}, "compound-served @ unserved"),
    ("least cost, and all are served", {"slo/objective": ["min cost"], "slo/apps/d": DROP, "plan/unserved": []},
     ""),
    ("most goodput leaves out", {"slo/objective": ["max goodput"]}, ""),
    ("another rule", {"plan/dispatch/b": {"rule": "shares/1"}, "plan/promises/0/value": 2.25,
     "plan/promises/1/value": 2}, "dispatch @ dispatch.b"),
    ("a candidate that is not there", {"plan/dispatch/b/candidate": 1}, "candidate @ dispatch.b"),
    ("the demand of another candidate", {"plan/dispatch/a/candidate": 0}, "candidate @ dispatch.a"),
    ("another demand", {"plan/dispatch/b/demand/net": 0.5}, "candidate @ dispatch.b"),
    ("a demand left out", {"plan/dispatch/b/demand/net": DROP}, "candidate @ dispatch.b"),
    ("a demand of more digits than a plan has", {"slo/apps/b/candidates/0/demand/net": 0.99999999999999}, ""),
    ("another label", {"plan/dispatch/a/label": "slow"}, "candidate @ dispatch.a"),
    ("more of a resource than there is", demanded("b", 0, "net", 1.00001), "resource-limit @ dispatch"),
    ("a resource within rounding", demanded("b", 0, "net", 1.000002), ""),
    ("a small resource within rounding", {"slo/limits/capacity/net": 0.003, **demanded("b", 0, "net", 0.001),
     **demanded("a", 1, "net", 0.0020009)}, ""),
    ("a small resource beyond rounding", {"slo/limits/capacity/net": 0.003, **demanded("b", 0, "net", 0.001),
     **demanded("a", 1, "net", 0.0020011)}, "resource-limit @ dispatch"),
    ("a resource without a limit", {"slo/limits/capacity": {}, **demanded("b", 0, "net", 9)}, ""),
    ("more machines of a tier than in stock", demanded("c", 0, "edge", 4.00001), "resource-limit @ dispatch"),
    ("all machines of a tier", demanded("c", 0, "edge", 4.000003), ""),
    ("fewer machines allowed than in stock", {"slo/limits/instances/mini": [0, 2]}, "resource-limit @ dispatch"),
    ("more machines allowed than in stock", {"slo/limits/instances/mini": [0, 9], **demanded("c", 0, "edge", 5)},
     "resource-limit @ dispatch"),
    ("stocks of two offers are two ways to buy", {"profile/offers/mini-spot": {"hardware": "mini",
     "price_per_hour": "1", "stock": 1}, **demanded("c", 0, "edge", 9)}, ""),
    ("machines of two kinds of one tier", {"profile/hardware/loose/tier": "edge", "slo/limits/instances/loose": [0, 2],
     **demanded("c", 0, "edge", 6)}, ""),
    ("machines of two kinds of one tier, too few", {"profile/hardware/loose/tier": "edge",
     "slo/limits/instances/loose": [0, 2], **demanded("c", 0, "edge", 6.1)}, "resource-limit @ dispatch"),
    ("machines without a limit beside some with one", {"profile/hardware/loose/tier": "edge",
     **demanded("c", 0, "edge", 60)}, ""),
    ("a limit on a tier as a resource", {"slo/limits/capacity/edge": 2}, "resource-limit @ dispatch"),
    ("what is on a machine counts against the total", {"slo/limits/capacity/cloud": 0.5},
     "resource-limit @ dispatch"),
    ("a resource as if it were a tier", {"slo/limits/capacity": {}, "plan/dispatch/b/machines/net": [0]},
     "machines @ dispatch.b"),
    ("a limited resource as if it were a tier", {"plan/dispatch/b/machines/net": [0],
     **demanded("b", 0, "net", 1.1)}, "machines @ dispatch.b; resource-limit @ dispatch"),
    ("hardware that is not listed", {"slo/limits/only_listed": True}, "resource-limit @ dispatch"),
    ("hardware that is listed", {"slo/limits/only_listed": True, "slo/limits/instances/mini": [0, None]}, ""),
    ("unlisted hardware of a tier adds nothing to what is listed", {"slo/limits/only_listed": True,
     "slo/limits/instances/mini": [0, None], "profile/hardware/loose/tier": "edge",
     "profile/hardware/loose/provides": {"gpu": 9}, **demanded("c", 0, "edge", 4.1)}, "resource-limit @ dispatch"),
    ("a machine of four GPUs", {"profile/hardware/a100/provides": {"gpu": 4}, **demanded("b", 0, "cloud", 3.4)}, ""),
    ("a machine of four GPUs that is over-full", {"profile/hardware/a100/provides": {"gpu": 4},
     **demanded("b", 0, "cloud", 3.400002)}, "machines @ dispatch"),
    ("machines of two GPUs in total", {"profile/hardware/mini/provides": {"gpu": 2}, **demanded("c", 0, "edge", 8)},
     ""),
    ("more than machines of two GPUs in total", {"profile/hardware/mini/provides": {"gpu": 2},
     **demanded("c", 0, "edge", 8.0001)}, "resource-limit @ dispatch"),
    ("a machine that is over-full", {**demanded("b", 0, "cloud", 0.400002)}, "machines @ dispatch"),
    ("a machine that is full but for rounding", {**demanded("b", 0, "cloud", 0.4000009)}, ""),
    ("a second machine of a tier that has one", {"plan/dispatch/b/machines/cloud": [1]}, "machines @ dispatch"),
    ("a second machine of a tier that has two", {"plan/dispatch/b/machines/cloud": [1],
     "slo/limits/instances/a100": [0, 2]}, ""),
    ("a second machine of a tier without a limit", {"plan/dispatch/b/machines/cloud": [1],
     "slo/limits/instances": {}}, ""),
    ("a demand on two machines", {"plan/dispatch/b/machines/cloud": [0, 1]}, "machines @ dispatch.b"),
    ("a demand on no machine", {"plan/dispatch/b/machines/cloud": []}, "machines @ dispatch.b"),
    ("a machine of a tier that is not asked for", {"plan/dispatch/c/machines": {"cloud": [0]}},
     "machines @ dispatch.c"),
    ("wrong machines hide nothing of others", {"plan/dispatch/a/machines/cloud": [0, 1], **WITHOUT_C,
     "plan/promises/0/value": 3, "plan/promises/1/value": 2, "plan/promises/2/value": 1.5,
     **demanded("b", 0, "cloud", 1.1)}, "machines @ dispatch; machines @ dispatch.a"),
    ("machines of one number in two tiers", {"plan/dispatch/c/machines": {"edge": [0]}, **demanded("c", 0, "edge", 1)},
     ""),
    ("two tiers in use, one of them over", {"plan/dispatch/c/machines": {"edge": [0]}, **demanded("c", 0, "edge", 1.1)},
     "machines @ dispatch"),
    ("more goodput", {"plan/promises/0/value": 3.2500034}, SUMS),
    ("goodput as exactly as it can be said", {"plan/promises/0/value": 3.2500031}, ""),
    ("less goodput", {"plan/promises/0/value": 3.2499966}, SUMS),
    ("no goodput", {"plan/promises/0": DROP}, SUMS),
    ("two goodputs", {"plan/promises/3": promise("goodput", "=", 3.25, "no-queueing")}, SUMS),
    ("a goodput of one application", {"plan/promises/3": promise("goodput", "=", 9, "no-queueing", "a")}, ""),
    ("more served", {"plan/promises/1/value": 4}, SUMS),
    ("another cost of candidates", {"plan/promises/2/value": 2.3}, SUMS),
    ("a small goodput, as exactly as 1", {**WITHOUT_C, "slo/apps/a/weight": 0, "slo/apps/b/weight": 0.5,
     "plan/promises/0/value": 0.5000009, "plan/promises/1/value": 2, "plan/promises/2/value": 1.5}, ""),
    ("a small goodput, beyond that", {**WITHOUT_C, "slo/apps/a/weight": 0, "slo/apps/b/weight": 0.5,
     "plan/promises/0/value": 0.5000011, "plan/promises/1/value": 2, "plan/promises/2/value": 1.5}, SUMS),
    ("candidates without prices cost nothing", {"slo/apps/a/candidates/1/price_per_hour": DROP,
     "slo/apps/c/candidates/0/price_per_hour": DROP, "plan/promises/2": DROP}, ""),
    ("a price of 0 need not be said", {"slo/apps/a/candidates/1/price_per_hour": "0",
     "slo/apps/c/candidates/0/price_per_hour": "0", "plan/promises/2": DROP}, ""),
    ("a price of 0, said wrong", {"slo/apps/a/candidates/1/price_per_hour": "0",
     "slo/apps/c/candidates/0/price_per_hour": "0", "plan/promises/2/value": 1}, SUMS),
    ("a price of one candidate alone", {"slo/apps/a/candidates/1/price_per_hour": DROP,
     "plan/promises/2/value": 0.75}, ""),
    ("a price of one candidate alone, not said", {"slo/apps/c/candidates/0/price_per_hour": DROP,
     "plan/promises/2": DROP}, SUMS),
    ("costs are not summed beside a searched application", {"slo/apps/d/candidates": DROP,
     "slo/apps/d": lambda one: answered(one, pipeline="p"), "plan/promises/2/value": 9}, ""),
    ("a cost of candidates without prices", {"slo/apps/a/candidates/1/price_per_hour": DROP,
     "slo/apps/c/candidates/0/price_per_hour": DROP}, SUMS),
    ("neither a candidate nor searched", {"plan/dispatch/b/candidate": DROP}, "chosen-plan @ dispatch.b"),
]
# fmt: on


@pytest.mark.parametrize(("words", "edits", "expected"), SPOILT, ids=[words for words, *_ in SPOILT])
def test_what_is_packed_is_added_up(words: str, edits: Json, expected: str) -> None:
    found = {f"{one.code} @ {one.at}" for one in check(*read(spoil(packed(), edits)))}
    assert sorted(found) == sorted(filter(None, expected.split("; ")))
