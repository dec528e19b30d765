"""What instances of variants can serve, worked out by hand; whatever does not fit is caught and named.

An instance of `fast` serves 4 queries in 20 ms: 200 a second; `good` and `other` saturate at 15 and 40. `sized` takes
10 and 30 ms for the two sizes that come, each half of the time: 50 a second. Needs have a tenth of slack.
"""

import pytest
from cases.documents import DROP, Json, documents, latency, load, promise, read, spoil, worker

from hetplan.planner.tolerances import FEASIBILITY, VALUE
from hetplan.verifier.variants import check
from tests.build import answered

SIZES = {"axes": ["size"], "bins": [[1], [2], [9]]}


def run(table: str, **more: object) -> Json:
    return {"hardware": "g", "latency": table, "price_per_hour": "0", **more}


def variant(family: str | None, quality: float | None, *runs: Json) -> Json:
    judged = {} if quality is None else {"quality": {"value": quality}}
    return {"task": "t", "family": family, "runs": list(runs), **judged}


def app(rate_qps: float, *, max_ms: float = 60, **more: object) -> Json:
    limits = {"p99_ms": max_ms}
    return {"latency": limits, "rate_qps": rate_qps, **more}


def served() -> Json:
    """An application per variant: all of them are nearly full."""
    return documents(
        profile={
            "hardware": {"g": {"kind": "gpu"}},
            "tasks": {"t": {}, "s": {}},
            "variants": {
                "fast": variant("f", 0.8, run("t-fast", at={"batch": 4})),
                "good": variant("f", 0.9, run("t-good", saturation_qps=15)),
                "other": variant("o", 0.7, run("t-other", saturation_qps=40)),
                "sized": {"task": "s", "runs": [run("t-sized", slowdown="by-others")]},
            },
            "tables": {
                "t-fast": latency({"batch": [1, 4]}, [10, 20]),
                "t-good": latency({"batch": [1]}, [50]),
                "t-other": latency({"batch": [1]}, [58]),
                "t-sized": latency({"size": [1, 2, 9]}, [10, 30, 1000]),
                "by-others": {"quantity": "slowdown", "axes": {"co_load": [0, 2]}, "mean": [1.0, 2.0]},
            },
        },
        slo={
            "change": {"slack": 1.1},
            "apps": {
                "x": app(180, family="f", quality={"min": 0.75, "max": 0.85}),
                "y": app(36, model="other", network_ms_per_hop=2),
                "z": app(45, task="s", max_ms=44, network_ms_per_hop=14)
                | {"rate_qps": 45, "mix": {"axes": ["size"], "bins": [[1], [2], [9]], "share": [0.5, 0.5, 0]}},
            },
        },
        plan={
            "question": "variants",
            "method": {"formulation": "variants-milp"},
            "workers": [
                worker("w1", "g", None, 1, load("w1.f", None, "fast", serve={"max_batch": 4})),
                worker("w2", "g", None, 1, load("w2.o", None, "other")),
                worker("w3", "g", None, 1, load("w3.s", "z", "sized")),
            ],
            "routing": {"z": [{"when": {"size": size}, "to": {"w3.s": 1.0}} for size in (1, 2)]},
            "dispatch": {"z": {"rule": "shares/1", "balancing": "shortest_queue"}},
            "promises": [
                promise("gross_cost_per_hour", "=", 0, "no-queueing"),
                promise("net_cost_per_hour", "=", 0, "no-queueing"),
            ],
        },
    )


def shared() -> Json:
    """Two applications on two instances of `fast`, one of them on `good` as well: 250 + (165 - 15) = 2 x 200."""
    return spoil(
        served(),
        {
            "slo/change/slack": 1,
            "slo/apps": {
                "p": app(250, family="f", quality={"max": 0.85}),
                "q": app(165, task="t"),
            },
            "plan/workers": [
                worker("w1", "g", None, 2, load("w1.f", None, "fast", serve={"max_batch": 4})),
                worker("w2", "g", None, 1, load("w2.g", None, "good")),
            ],
            "plan/routing": {},
        },
    )


X, Y, Z = (f"variants-need @ routing.{name}" for name in "xyz")
SLOWED = "variants-slowdown @ workers.w3.loads.w3.s"
BESIDE = {"plan/workers/2/loads/1": load("w3.o", "y", "other")}
"""One other beside `sized`: it is 1.5 times slower there."""


RUNNING = {
    "format": "hetplan/state/1.0",
    "workers": [
        worker("w1", "g", None, 1, load("w1.f", None, "fast", serve={"max_batch": 4})),
        worker("w2", "g", None, 1, load("w2.o", None, "other", serve={"concurrency": 3})),
        worker("w3", "g", None, 1, load("w3.s", "z", "sized")),
    ],
}


def unserved(name: str, rate_qps: float) -> Json:
    return {"app": name, "rate_qps": rate_qps, "why": "no room"}


# fmt: off
SERVED = [
    ("nothing", {}, ""),
    ("two at once, as saturation means", {"plan/workers/1/loads/0/serve": {"concurrency": 2}}, ""),
    ("three at once", {"plan/workers/1/loads/0/serve": {"concurrency": 3}}, "variants-serve @ workers.w2.loads.w2.o"),
    ("three at once, as it runs", {"plan/workers/1/loads/0/serve": {"concurrency": 3}, "state": RUNNING}, ""),
    ("two batches at once, where saturation means one", {"plan/workers/0/loads/0/serve/concurrency": 2},
     "variants-serve @ workers.w1.loads.w1.f"),
    ("as many at once as the slower size means", {"plan/workers/2/loads/0/serve": {"concurrency": 2}}, ""),
    ("more at once than the slower size means", {"plan/workers/2/loads/0/serve": {"concurrency": 3}},
     "variants-serve @ workers.w3.loads.w3.s"),
    ("a wait for others", {"plan/workers/1/loads/0/serve": {"max_wait_ms": 0.5}},
     "variants-serve @ workers.w2.loads.w2.o"),
    ("many at once in what serves nobody", {"plan/workers/3": worker("w4", "g", None, 1, load("w4.g", None, "good",
     serve={"concurrency": 9}))}, ""),
    ("more than x can have", {"slo/apps/x/rate_qps": 181.819}, X),
    ("as much as x can have", {"slo/apps/x/rate_qps": 181.818}, ""),
    ("as much as x can have, but for rounding", {"slo/apps/x/rate_qps": 200.00019, "slo/change/slack": 1,
     "slo/apps/y/rate_qps": 0}, ""),
    ("in time to the last digit", {"profile/tables/t-other/mean": [58 * (1 + FEASIBILITY)]}, ""),
    ("good to the last digit", {"profile/variants/fast/quality/value": 0.75 * (1 - 0.99 * VALUE)}, ""),
    ("bad by the last digit", {"profile/variants/fast/quality/value": 0.75 * (1 - 2 * VALUE)}, X),
    ("so little that it is nothing", {"slo/apps/y/rate_qps": VALUE, "plan/workers/1": DROP}, ""),
    ("more than y can have", {"slo/apps/y/rate_qps": 36.37}, Y),
    ("more than z can have", {"slo/apps/z/rate_qps": 45.46}, Z),
    ("two machines of x", {"slo/apps/x/rate_qps": 363, "plan/workers/0/count": 2}, ""),
    ("two instances of x", {"slo/apps/x/rate_qps": 363, "plan/workers/0/loads/0/instances": 2}, ""),
    ("two machines of two instances", {"slo/apps/x/rate_qps": 727, "plan/workers/0/loads/0/instances": 2,
     "plan/workers/0/count": 2}, ""),
    ("two machines of two instances, and too few", {"slo/apps/x/rate_qps": 728, "plan/workers/0/count": 2,
     "plan/workers/0/loads/0/instances": 2}, X),
    ("two groups of x", {"slo/apps/x/rate_qps": 363, "plan/workers/3": worker("w4", "g", None, 1,
     load("w4.f", "x", "fast", serve={"max_batch": 4}))}, ""),
    ("a smaller batch is slower", {"plan/workers/0/loads/0/serve/max_batch": 1},
     f"{X}; variants-serve @ workers.w1.loads.w1.f"),
    ("a load of one batch beside one of another", {"slo/apps/x/rate_qps": 272, "plan/workers/3":
     worker("w4", "g", None, 1, load("w4.f", "x", "fast"))}, "variants-serve @ workers.w4.loads.w4.f"),
    ("a load for another", {"plan/workers/0/loads/0/app": "y"}, X),
    ("a variant that x may not run", {"slo/apps/x/family": "o"}, X),
    ("a variant that y may not run", {"slo/apps/y/model": "good"}, Y),
    ("a task that others share", {"slo/apps/z/task": "t"}, "variants-need @ routing"),
    ("runs nothing", {"slo/apps/x": lambda one: answered(one, candidates=[{"demand": {"net": 1}}])}, X),
    ("x is to be a bit faster", {"slo/apps/x/latency/p99_ms": 19.9999}, X),
    ("x is just in time", {"slo/apps/x/latency/p99_ms": 20}, ""),
    ("x is just in time but for rounding", {"slo/apps/x/latency/p99_ms": 19.999981}, ""),
    ("the network takes longer", {"slo/apps/y/network_ms_per_hop": 2.001}, Y),
    ("the largest size that comes is too late", {"slo/apps/z/latency/p99_ms": 43.99}, Z),
    ("all sizes come", {"slo/apps/z/mix/share": [0.4, 0.4, 0.2]}, Z),
    ("all sizes come, and may take long", {"slo/apps/z/mix/share": [0.4, 0.4, 0.2],
     "slo/apps/z/latency/p99_ms": 1e4, "slo/apps/z/rate_qps": 4.2}, ""),
    ("all sizes come, and too many", {"slo/apps/z/mix/share": [0.4, 0.4, 0.2],
     "slo/apps/z/latency/p99_ms": 1e4, "slo/apps/z/rate_qps": 4.21}, Z),
    ("a size was not measured", {"profile/tables/t-sized/mean/1": None}, Z),
    ("no target, no limit", {"slo/apps/x/latency": {}, "slo/apps/z/latency": {}}, ""),
    ("the least of two targets", {"slo/apps/x/latency/p50_ms": 15}, X),
    ("fast is too bad", {"slo/apps/x/quality/min": 0.800002}, X),
    ("fast is just good enough", {"slo/apps/x/quality/min": 0.8000007}, ""),
    ("fast is too good", {"slo/apps/x/quality/max": 0.799998, "slo/apps/x/quality/min": 0.7}, X),
    ("fast is just bad enough", {"slo/apps/x/quality/max": 0.7999993}, ""),
    ("any quality", {"slo/apps/x/quality": DROP}, ""),
    ("at least so good", {"slo/apps/x/quality": {"min": 0.75}}, ""),
    ("at most so good", {"slo/apps/x/quality": {"max": 0.75}}, X),
    ("nobody judged fast", {"profile/variants/fast/quality": DROP}, X),
    ("nobody judged fast, nobody asks", {"profile/variants/fast/quality": DROP, "slo/apps/x/quality": DROP}, ""),
    ("as many unserved as are too many", {"slo/apps/x/rate_qps": 220, "plan/unserved": [unserved("x", 20)]}, ""),
    ("not enough unserved", {"slo/apps/x/rate_qps": 220, "plan/unserved": [unserved("x", 19.9)]}, X),
    ("unserved in two parts", {"slo/apps/x/rate_qps": 220,
     "plan/unserved": [unserved("x", 12), unserved("x", 8)]}, ""),
    ("unserved of another", {"slo/apps/x/rate_qps": 220, "plan/unserved": [unserved("y", 20)]}, X),
    ("none served", {"plan/workers/0": DROP, "plan/unserved": [unserved("x", 180)]}, ""),
    ("none served but for rounding", {"plan/workers/0": DROP, "plan/unserved": [unserved("x", 179.99983)]}, ""),
    ("none served, and some are missing", {"plan/workers/0": DROP, "plan/unserved": [unserved("x", 179.9998)]}, X),
    ("next to nothing wanted", {"plan/workers/0": DROP, "slo/apps/x/rate_qps": 1e-6}, ""),
    ("little wanted, and none served", {"plan/workers/0": DROP, "slo/apps/x/rate_qps": 2e-6}, X),
    ("unserved but nothing keeps its slack", {"plan/unserved": [unserved("x", 0)],
     "slo/apps/x/rate_qps": 190}, X),
    ("some unserved, however little, and no slack is kept", {"plan/unserved": [unserved("x", 0.5)],
     "slo/apps/x/rate_qps": 200.5}, ""),
    ("a rule that aims at slack promises none", {"plan/method/options": {"slack": "aimed"},
     "slo/apps/x/rate_qps": 200}, ""),
    ("no demand in numbers", {"plan/workers/0": DROP, "slo/apps/x/rate_qps": "max"}, ""),
    ("an additive slack", {"slo/change/slack_qps": 4, "slo/apps/x/rate_qps": 196}, ""),
    ("an additive slack, too much", {"slo/change/slack_qps": 4, "slo/apps/x/rate_qps": 196.1}, X),
    ("alone on its machine", {"slo/apps/z/latency/p99_ms": 44}, ""),
    ("beside another it is too slow", BESIDE, SLOWED),
    ("beside another it is just in time", {**BESIDE, "slo/apps/z/latency/p99_ms": 59}, ""),
    ("beside another it is just too slow", {**BESIDE, "slo/apps/z/latency/p99_ms": 58.999}, SLOWED),
    ("beside another just in time but for rounding", {**BESIDE, "slo/apps/z/latency/p99_ms": 58.99996}, ""),
    ("beside two instances", {"plan/workers/2/loads/1": load("w3.o", "y", "other", instances=2),
     "slo/apps/z/latency/p99_ms": 74}, ""),
    ("beside two instances too slow", {"plan/workers/2/loads/1": load("w3.o", "y", "other", instances=2),
     "slo/apps/z/latency/p99_ms": 73.9}, SLOWED),
    ("beside more than was measured", {"plan/workers/2/loads/1": load("w3.o", "y", "other", instances=3),
     "slo/apps/z/latency": {}}, SLOWED),
    ("beside others without a target", {**BESIDE, "slo/apps/z/latency": {}}, ""),
    ("beside another, and nothing goes there", {**BESIDE, "plan/routing": {}}, ""),
    ("beside another, and all goes elsewhere", {**BESIDE, "plan/routing/z": [{"to": {"w3.o": 1.0}}]}, ""),
    ("beside another that slows by another axis", {**BESIDE, "profile/tables/by-others/axes": {"other": [0, 2]}}, ""),
    ("beside another, by its setting", {**BESIDE, "profile/variants/sized/runs/0/at": {"depth": 2},
     "profile/tables/by-others": {"quantity": "slowdown", "axes": {"co_load": [0, 1], "depth": [1, 2]},
     "mean": [[1, 1], [1, 3]]}, "slo/apps/z/latency/p99_ms": 103}, SLOWED),
    ("nobody is slowed", {**BESIDE, "profile/variants/sized/runs/0/slowdown": None}, ""),
    ("one that is not slowed beside one that is", {"plan/workers/2/loads/0": load("w3.o", "y", "other"),
     "plan/workers/2/loads/1": load("w3.s", "z", "sized")}, SLOWED),
    ("a machine without a name, where none has one", {"profile/hosts": {}}, ""),
]
SHARED = [
    ("nothing", {}, ""),
    ("more for p", {"slo/apps/p/rate_qps": 250.01}, "variants-need @ routing"),
    ("more for p, but for rounding", {"slo/apps/p/rate_qps": 250.00041}, ""),
    ("more for p, beyond rounding", {"slo/apps/p/rate_qps": 250.00042}, "variants-need @ routing"),
    ("more for q", {"slo/apps/q/rate_qps": 165.01}, "variants-need @ routing"),
    ("more for q, less for p", {"slo/apps/q/rate_qps": 175, "slo/apps/p/rate_qps": 240}, ""),
    ("one instance less", {"plan/workers/0/count": 1}, "variants-need @ routing"),
    ("one of its own less", {"plan/workers/1": DROP}, "variants-need @ routing"),
    ("another one instead", {"plan/workers/0/count": 1, "plan/workers/2": worker("w3", "g", None, 1,
     load("w3.f", "p", "fast", serve={"max_batch": 4}))}, ""),
    ("another one instead, of the wrong application", {"plan/workers/0/count": 1, "slo/apps/p/rate_qps": 210,
     "slo/apps/q/rate_qps": 195, "plan/workers/2": worker("w3", "g", None, 1, load("w3.f", "q", "fast",
     serve={"max_batch": 4}))}, "variants-need @ routing"),
    ("instances of other rates for each", {"slo/apps/p/rate_qps": 100,
     "slo/apps/q/rate_qps": 315}, ""),
    ("nobody else wants it", {"slo/apps/q/rate_qps": 0, "slo/apps/p/rate_qps": 400}, ""),
    ("nobody else wants it, too much", {"slo/apps/q/rate_qps": 0, "slo/apps/p/rate_qps": 401},
     "variants-need @ routing.p"),
    ("a small need in common", {"slo/apps/p/rate_qps": 0.01, "slo/apps/q/rate_qps": 0.01,
     "plan/workers": [worker("w1", "g", None, 1, load("w1.f", None, "fast", serve={"max_batch": 4}))],
     "profile/tables/t-fast/mean/1": 50, "profile/variants/fast/runs/0/saturation_qps": 0.0199995}, ""),
    ("a small need in common, too much", {"slo/apps/p/rate_qps": 0.01, "slo/apps/q/rate_qps": 0.01,
     "plan/workers": [worker("w1", "g", None, 1, load("w1.f", None, "fast", serve={"max_batch": 4}))],
     "profile/tables/t-fast/mean/1": 50, "profile/variants/fast/runs/0/saturation_qps": 0.0199985},
     "variants-need @ routing"),
    ("two that differ in what they can serve", {"slo/apps/p/latency": {}, "slo/apps/p/quality": DROP,
     "slo/apps/p/rate_qps": 265, "slo/apps/q/rate_qps": 150}, ""),
]
# fmt: on


@pytest.mark.parametrize(("words", "edits", "expected"), SERVED, ids=[words for words, *_ in SERVED])
def test_needs_fit_what_serves_them(words: str, edits: Json, expected: str) -> None:
    found = [f"{one.code} @ {one.at}" for one in check(*read(spoil(served(), edits)))]
    assert sorted(found) == sorted(filter(None, expected.split("; ")))


@pytest.mark.parametrize(("words", "edits", "expected"), SHARED, ids=[words for words, *_ in SHARED])
def test_needs_fit_what_they_share(words: str, edits: Json, expected: str) -> None:
    found = [f"{one.code} @ {one.at}" for one in check(*read(spoil(shared(), edits)))]
    assert sorted(found) == sorted(filter(None, expected.split("; ")))
