"""A pipeline that joins branches, worked out by hand: every way of spoiling its plan is caught and named.

Of 100 queries/s at a come 200 to b, 300 to c and, by way of b, 100 to d. Machines busy: a 100 x 10 ms = 1 of 1.8 (one
in ten is kept free), b1 150 x 20 = 3 of 3.6, b2 50 x 5 = 0.25 of 0.9, c 300 x 3 = 0.9 of 0.9, d 100 x 8 / 4 = 0.2 of
0.9. Step a ends after 10 ms, b after 30, c after 13, d after 38: 2 x 38 + 3 hops x 2 ms = 82. Quality:
0.4 x 1 + 0.3 x (0.75 x 0.8 + 0.25 x 0.4) + 0.2 x 0.5 + 0.1 x 0.9 = 0.8.
"""

import pytest
from cases.documents import DROP, Json, documents, latency, load, promise, read, spoil, worker

from hetplan.verifier.pipeline import check


def joined() -> Json:
    def variant(task: str, quality: float) -> Json:
        return {"task": task, "quality": {"value": quality}, "runs": [{"hardware": "g", "latency": f"t-{task}"}]}

    return documents(
        profile={
            "hardware": {"g": {"kind": "gpu"}},
            "tasks": {task: {} for task in "abcd"},
            "variants": {
                "a1": variant("a", 1.0),
                "b1": variant("b", 0.8),
                "b2": variant("b", 0.4) | {"runs": [{"hardware": "g", "latency": "t-b2"}]},
                "c1": variant("c", 0.5),
                "d1": variant("d", 0.9),
            },
            "tables": {
                "t-a": latency({"batch": [1]}, [10]),
                "t-b": latency({"batch": [1]}, [20]),
                "t-b2": latency({"batch": [1]}, [5]),
                "t-c": latency({"batch": [1]}, [3]),
                "t-d": latency({"batch": [1, 4]}, [4, 8]),
            },
            "pipelines": {
                "p": {
                    # In another order than queries come through.
                    "nodes": {task: {"task": task} for task in "dcba"},
                    "edges": [
                        {"from": "b", "to": "d", "fanout": 0.5},
                        {"from": "c", "to": "d", "fanout": 7},
                        {"from": "a", "to": "c", "fanout": {"a1": 3, "*": 5}},
                        {"from": "a", "to": "b", "fanout": 2},
                    ],
                    "quality": {"rule": "additive", "weights": {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}},
                }
            },
        },
        slo={
            "apps": {
                "x": {
                    "pipeline": "p",
                    "latency": {"p99_ms": 82, "p99.9_ms": 100},
                    "network_ms_per_hop": 2,
                    "quality": {"min": 0.8},
                    "rate_qps": 100,
                }
            }
        },
        plan={
            "question": "pipeline",
            "method": {
                "formulation": "pipeline-milp",
                "options": {"slo_divisor": 2, "headroom": 0.1, "statistic": "mean"},
            },
            "workers": [
                worker("wa", "g", None, 2, load("a", "x", "a1", node="a")),
                worker("wb", "g", None, 4, load("b1", "x", "b1", node="b")),
                worker("wb2", "g", None, 1, load("b2", "x", "b2", node="b")),
                worker("wc", "g", None, 1, load("c", "x", "c1", node="c")),
                worker("wd", "g", None, 1, load("d", "x", "d1", node="d", serve={"max_batch": 4})),
            ],
            "routing": {
                "x": [
                    {"node": "a", "to": {"a": 1.0}},
                    {"node": "b", "to": {"b1": 0.75, "b2": 0.25}},
                    {"node": "c", "to": {"c": 1.0}},
                    {"node": "d", "to": {"d": 1.0}},
                ]
            },
            "dispatch": {"x": {"rule": "path-shares/1", "budget_ms": {}}},
            "promises": [
                promise("rate_qps", ">=", 100.0, "fluid", "x"),
                promise("quality", ">=", 0.8, "no-queueing", "x"),
            ],
        },
    )


LATE = "slow-path @ routing.x"
TIMES = "profile/tables/t-"

# fmt: off
SPOILT = [
    ("nothing", {}, ""),
    ("nothing promised keeps nothing busy", {"plan/promises": [], f"{TIMES}c/mean/0": 1e6, "slo/apps/x/latency": {}},
     "promise-missing @ promises"),
    ("shares of too little", {"plan/routing/x/2/to/c": 0.99999}, "share-sum @ routing.x"),
    ("shares of too much", {"plan/routing/x/1/to/b1": 0.75001}, "share-sum @ routing.x"),
    ("shares but for rounding", {"plan/routing/x/3/to/d": 0.9999991}, ""),
    ("a step without a route", {"plan/routing/x/3": DROP, "slo/apps/x/quality": DROP, "plan/promises/1": DROP},
     "share-sum @ routing.x"),
    ("more than a has room for", {"plan/workers/0/count": 1}, "capacity @ workers.wa"),
    ("more than b1 has room for", {"plan/workers/1/count": 3}, "capacity @ workers.wb"),
    ("as much as c has room for", {f"{TIMES}c/mean/0": 3.000002}, ""),
    ("more than c has room for", {f"{TIMES}c/mean/0": 3.000005}, "capacity @ workers.wc"),
    ("d by way of c alone", {"profile/pipelines/p/edges/0/fanout": 4.5, f"{TIMES}d/mean/1": 4}, ""),
    ("more than d has room for, by way of b", {"profile/pipelines/p/edges/0/fanout": 2.26}, "capacity @ workers.wd"),
    ("without headroom there is more room", {"plan/method/options/headroom": DROP, f"{TIMES}c/mean/0": 3.3}, ""),
    ("without headroom there is less than a machine more", {"plan/method/options/headroom": DROP,
     f"{TIMES}c/mean/0": 3.34}, "capacity @ workers.wc"),
    ("nothing measured of a load", {f"{TIMES}b2/mean/0": None}, "capacity @ workers.wb2"),
    ("the longest branch ends late", {"slo/apps/x/latency/p99_ms": 81.99}, LATE),
    ("a takes longer", {f"{TIMES}a/mean/0": 10.01}, LATE),
    ("b1 takes longer", {f"{TIMES}b/mean/0": 20.01}, LATE),
    ("b2 takes as long", {f"{TIMES}b2/mean/0": 16}, ""),
    ("c takes longer, nobody waits for it", {f"{TIMES}c/mean/0": 19, "plan/workers/3/count": 9}, ""),
    ("c takes longer than b", {f"{TIMES}c/mean/0": 20.01, "plan/workers/3/count": 9}, LATE),
    ("d takes longer", {f"{TIMES}d/mean/1": 8.01}, LATE),
    ("three hops take longer", {"slo/apps/x/network_ms_per_hop": 2.01}, LATE),
    ("the way to the client takes longer", {"slo/apps/x/network_ms_once": 0.01}, LATE),
    ("the way to the client, shorter hops", {"slo/apps/x/network_ms_once": 3, "slo/apps/x/network_ms_per_hop": 1}, ""),
    ("the hops take nothing", {"slo/apps/x/network_ms_per_hop": 0, f"{TIMES}d/mean/1": 11}, ""),
    ("steps in the middle are late as well", {"slo/apps/x/latency/p99_ms": 50}, f"{LATE}; {LATE}"),
    ("nothing is kept for queueing", {"plan/method/options/slo_divisor": DROP, "slo/apps/x/latency/p99_ms": 44}, ""),
    ("nothing is kept for queueing, too late", {"plan/method/options/slo_divisor": DROP,
     "slo/apps/x/latency/p99_ms": 43.99}, LATE),
    ("the least of the limits", {"slo/apps/x/latency/p50_ms": 81}, LATE),
    ("no limit on the response", {"slo/apps/x/latency": {}, f"{TIMES}d/mean/1": 30}, ""),
    ("better than it is", {"plan/promises/1/value": 0.800002}, "promise @ promises[1]"),
    ("as good as it is", {"plan/promises/1/value": 0.8000009}, ""),
    ("worse than it is", {"plan/promises/1/value": 0.5}, ""),
    ("better for another", {"plan/promises/1/value": 2, "plan/promises/1/app": None}, ""),
    ("a high promise of something else", {"plan/promises/1/quantity": "served"}, ""),
    ("worse than wanted", {"slo/apps/x/quality/min": 0.800002}, "quality @ routing.x"),
    ("as good as wanted", {"slo/apps/x/quality/min": 0.8000009}, ""),
    ("nothing wanted", {"slo/apps/x/quality": {"max": 1}}, ""),
    ("more to the worse variant", {"plan/routing/x/1/to": {"b1": 0.74, "b2": 0.26}},
     "promise @ promises[1]; quality @ routing.x"),
    ("a weighs less", {"profile/pipelines/p/quality/weights/a": 0.39}, "promise @ promises[1]; quality @ routing.x"),
    ("a step without a weight weighs 1", {"profile/pipelines/p/quality/weights/d": DROP,
     "slo/apps/x/quality/min": 1.61}, ""),
    ("a step without a weight weighs no more", {"profile/pipelines/p/quality/weights/d": DROP,
     "slo/apps/x/quality/min": 1.6101}, "quality @ routing.x"),
    ("a variant that nobody judged", {"profile/variants/d1/quality": None}, "quality @ routing.x"),
]
# fmt: on


@pytest.mark.parametrize(("words", "edits", "expected"), SPOILT, ids=[words for words, *_ in SPOILT])
def test_joins_are_recomputed(words: str, edits: Json, expected: str) -> None:
    found = [f"{one.code} @ {one.at}" for one in check(*read(spoil(joined(), edits)))]
    assert sorted(found) == sorted(filter(None, expected.split("; ")))


def test_a_way_that_hangs_on_no_variant() -> None:
    """A fan-out by variants that names none counts as 1."""
    fast = {"profile/pipelines/p/edges/2/fanout": {}, "profile/tables/t-c/mean/0": 8.99, "slo/apps/x/latency": {}}
    assert check(*read(spoil(joined(), fast))) == []
    slower = spoil(joined(), fast | {"profile/tables/t-c/mean/0": 9.01})
    assert [one.code for one in check(*read(slower))] == ["capacity"]
