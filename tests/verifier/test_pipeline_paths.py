"""Plans of pipelines by hand, checked path by path: every way of spoiling them is caught and named.

Of `cases.plans_of_pipelines.pipeline`, at 180 queries/s: w1 gets 108 of 200 that it could serve, w2 72 of 200, w3 twice
108 of 250, w4 72 of 250, w5 90 of 100. Execution takes 20, 5, 16, 4, 10 ms; of 100 ms are left (100 - 2 x 2) / 2 = 48.
"""

import pytest
from cases.documents import DROP, Json, load, promise, read, spoil, worker
from cases.plans_of_pipelines import chain, pipeline

from hetplan.verifier.check import verify_plan
from hetplan.verifier.pipeline import check


def tree() -> Json:
    return spoil(
        pipeline(),
        {
            "plan/dispatch": {
                "cars": {
                    "rule": "path-shares/1",
                    "budget_ms": {"d": 20, "c": 16, "e": 10},
                    "backup": [
                        backup("w1.d", "d", 92, 20, 1.0),
                        backup("w3.c", "c", 34, 16, 1.0),
                        backup("w4.c", "c", 178, 4, 0.9),
                        backup("w5.e", "e", 10, 10, 0.7),
                    ],
                }
            },
            "plan/promises/4": promise("changes", "=", 5, "no-queueing"),
        },
    )


def row() -> Json:
    return spoil(
        chain(),
        {"plan/dispatch": {"x": {"rule": "most-accurate-first/1", "budget_ms": {"a": 20, "b": 5, "c": 20}}}},
    )


def backup(to: str, node: str, left_qps: float, latency_ms: float, quality: float) -> Json:
    return {"to": to, "node": node, "left_qps": left_qps, "latency_ms": latency_ms, "quality": quality}


def running(*workers: Json) -> Json:
    return {"state": {"format": "hetplan/state/1.0", "workers": list(workers)}, "digests/state": "sha256:03"}


def spare(id: str, variant: str, node: str, **more: object) -> Json:
    return worker(id, "g", None, 1, load(f"{id}.x", "cars", variant, node=node, **more))


D = "plan/dispatch/cars"
LATE, MANY = "slow-path @ routing.cars", "one-batch @ workers"
BUDGET, LEFT = "budget @ dispatch.cars.budget_ms", "backup @ dispatch.cars.backup"
MOVES = "changes @ promises[4]"

# fmt: off
TREE = [
    ("nothing", {}, ""),
    ("no rule", {"plan/dispatch": {}}, "dispatch @ dispatch.cars"),
    ("another rule", {"plan/dispatch/cars": {"rule": "shares/1"}}, "dispatch @ dispatch.cars"),
    ("a server of two variants", {"plan/workers/0/loads/1": load("z", "cars", "c2", node="c")},
     f"pipeline-worker @ workers.w1; {MOVES}"),
    ("a server of nothing", {"plan/workers/5": worker("w6", "g", None, 1)}, "pipeline-worker @ workers.w6"),
    ("a server of two instances", {"plan/workers/4/loads/0/instances": 2, "plan/promises/4/value": 6},
     "pipeline-worker @ workers.w5"),
    ("a server that runs two batches at once", {"plan/workers/4/loads/0/serve": {"concurrency": 2}},
     "pipeline-worker @ workers.w5"),
    ("a server that waits for a batch to fill", {"plan/workers/4/loads/0/serve": {"max_wait_ms": 0.5}},
     "pipeline-worker @ workers.w5"),
    ("two batches of a variant", {"plan/workers/5": spare("w6", "v1", "d"), "plan/promises/4/value": 6}, MANY),
    ("one batch of a variant, twice", {"plan/workers/5": spare("w6", "v1", "d", serve={"max_batch": 4}),
     "plan/promises/4/value": 6}, ""),
    ("two batches, which may not be", {"plan/workers/5": spare("w6", "v1", "d"), "plan/promises/4/value": 6}, MANY),
    ("moves counted wrong", {"plan/promises/4/value": 4}, MOVES),
    ("no moves promised", {"plan/promises/4": DROP}, ""),
    ("all runs already", {**running(*pipeline()["plan"]["workers"]), "plan/promises/4/value": 0}, ""),
    ("all runs already, and moves are counted", running(*pipeline()["plan"]["workers"]), MOVES),
    ("two of three run already", {**running(pipeline()["plan"]["workers"][0] | {"count": 2}),
     "plan/workers/0/count": 3, "plan/promises/4/value": 5}, ""),
    ("more runs than is planned", {**running(pipeline()["plan"]["workers"][0] | {"count": 3}),
     "plan/promises/4/value": 4}, ""),
    ("a path takes longer", {"slo/apps/cars/latency/p99_ms": 75.99}, LATE),
    ("the slowest path just in time", {"slo/apps/cars/latency/p99_ms": 76}, ""),
    ("two paths take longer", {"slo/apps/cars/latency/p99_ms": 63}, f"{LATE}; {LATE}"),
    ("another limit", {"slo/apps/cars/latency/p50_ms": 75}, LATE),
    ("a limit on something else", {"slo/apps/cars/latency": {"ttft_p99_ms": 1}}, ""),
    ("the way takes longer", {"slo/apps/cars/network_ms_per_hop": 14.01}, LATE),
    ("the way takes just as long", {"slo/apps/cars/network_ms_per_hop": 13.99}, ""),
    ("the way to the client takes longer", {"slo/apps/cars/network_ms_once": 24.01}, LATE),
    ("the way to the client takes just as long", {"slo/apps/cars/network_ms_once": 23.99}, ""),
    ("nothing is kept for queueing", {"plan/method/options/slo_divisor": DROP, "slo/apps/cars/latency/p99_ms": 40},
     ""),
    ("nothing is kept for queueing, too late", {"plan/method/options/slo_divisor": DROP,
     "slo/apps/cars/latency/p99_ms": 39.99}, LATE),
    ("a divisor of nothing is judged elsewhere", {"plan/method/options/slo_divisor": 0,
     "slo/apps/cars/latency/p99_ms": 40}, ""),
    ("a share of nothing is on no path", {"slo/apps/cars/latency/p99_ms": 75.99,
     "plan/routing/cars/1/to": {"w3.c": 0.0, "w4.c": 1.0}, f"{D}/backup": []}, ""),
    ("a budget below the execution", {f"{D}/budget_ms/d": 19.9999}, BUDGET),
    ("a budget of just the execution", {f"{D}/budget_ms/d": 19.99999}, ""),
    ("a budget of the room of its path", {f"{D}/budget_ms/d": 60}, ""),
    ("a budget beyond the room of its path", {f"{D}/budget_ms/d": 60.1}, BUDGET),
    ("a budget of more than twice the execution, which is said", {f"{D}/budget_ms/d": 40.1,
     "plan/method/options/budget_factor": 2}, BUDGET),
    ("no budget", {f"{D}/budget_ms/e": DROP}, BUDGET),
    ("a budget for the fastest alone", {f"{D}/budget_ms/c": 4}, BUDGET),
    ("no budgets", {f"{D}/budget_ms": {}}, f"{BUDGET}; {BUDGET}; {BUDGET}"),
    ("a load that no query reaches needs no budget", {"plan/workers/5": spare("w6", "v1", "d", serve={"max_batch": 4}),
     "plan/promises/4/value": 6, f"{D}/budget_ms/d": 5, f"{D}/backup": [],
     "plan/routing/cars/0/to": {"w2.d": 1.0}}, ""),
    ("w1 has less left", {f"{D}/backup/0/left_qps": 92.001}, f"{LEFT}[0]"),
    ("w1 has that left but for rounding", {f"{D}/backup/0/left_qps": 92.00019}, ""),
    ("w3 has less left", {f"{D}/backup/1/left_qps": 34.001}, f"{LEFT}[1]"),
    ("w3 has more left than is said", {f"{D}/backup/1/left_qps": 3}, ""),
    ("w4 has less left", {f"{D}/backup/2/left_qps": 178.001}, f"{LEFT}[2]"),
    ("w5 has less left", {f"{D}/backup/3/left_qps": 10.001}, f"{LEFT}[3]"),
    ("two machines have more left", {"plan/workers/0/count": 2, f"{D}/backup/0/left_qps": 292,
     "plan/promises/4/value": 6}, ""),
    ("two machines have no more left than that", {"plan/workers/0/count": 2, f"{D}/backup/0/left_qps": 292.001,
     "plan/promises/4/value": 6}, f"{LEFT}[0]"),
    ("a backup that nothing is sent to", {"plan/workers/5": spare("w6", "v1", "d", serve={"max_batch": 4}),
     "plan/promises/4/value": 6, f"{D}/backup/0": backup("w6.x", "d", 200, 20, 1.0)}, ""),
    ("a backup that nothing is sent to, too much", {"plan/workers/5": spare("w6", "v1", "d", serve={"max_batch": 4}),
     "plan/promises/4/value": 6, f"{D}/backup/0": backup("w6.x", "d", 200.001, 20, 1.0)}, f"{LEFT}[0]"),
    ("a backup that is not there", {f"{D}/backup/0/to": "w9"}, f"{LEFT}[0]"),
    ("a backup of another step", {f"{D}/backup/0/node": "e"}, f"{LEFT}[0]"),
    ("a backup of another application", {"plan/workers/5": worker("w6", "g", None, 1, load("w6.x", "x", "v1", node="d",
     serve={"max_batch": 4})), "plan/promises/4/value": 6, f"{D}/backup/0": backup("w6.x", "d", 1, 20, 1.0)},
     f"{LEFT}[0]"),
    ("a wrong backup hides no other", {f"{D}/backup/0/to": "w9", f"{D}/backup/1/left_qps": 99},
     f"{LEFT}[0]; {LEFT}[1]"),
    ("a faster backup", {f"{D}/backup/0/latency_ms": 19.9999}, f"{LEFT}[0]"),
    ("a slower backup", {f"{D}/backup/0/latency_ms": 20.0001}, f"{LEFT}[0]"),
    ("a backup as fast as can be said", {f"{D}/backup/0/latency_ms": 20.000019}, ""),
    ("a better backup", {f"{D}/backup/2/quality": 0.900002}, f"{LEFT}[2]"),
    ("a worse backup", {f"{D}/backup/2/quality": 0.899998}, f"{LEFT}[2]"),
    ("a backup as good as can be said", {f"{D}/backup/2/quality": 0.9000009}, ""),
    ("a backup that nobody judged", {"profile/variants/c2/quality": None, f"{D}/backup/2/quality": 0.1}, ""),
    ("a fan-out that is more for a variant", {"profile/pipelines/traffic/edges/0/fanout": {"v1": 2.1, "*": 1.0}},
     f"{LEFT}[1]"),
    ("a fan-out that is more for any other", {"profile/pipelines/traffic/edges/0/fanout": {"v1": 2.0, "*": 1.1}},
     f"{LEFT}[2]"),
    ("a fan-out of 1 for any other", {"profile/pipelines/traffic/edges/0/fanout": {"v1": 2.0}}, ""),
    ("a fan-out that is less for any other", {"profile/pipelines/traffic/edges/0/fanout": {"v1": 2.0, "*": 0.5},
     f"{D}/backup/2/left_qps": 214}, ""),
    ("a fan-out that is more for all", {"profile/pipelines/traffic/edges/1/fanout": 0.51}, f"{LEFT}[3]"),
    ("a rate that nobody promised brings no load", {"plan/promises": [], f"{D}/backup/0/left_qps": 200}, ""),
]
ROW = [
    ("nothing", {}, ""),
    ("the first pair goes slowly", {"plan/routing/x/2/to": {"w4.c": 1.0}}, "slow-path @ routing.x"),
    ("both pairs meet", {"plan/routing/x/2": DROP, "plan/routing/x/2/prefix": ["w3.b"]}, "slow-path @ routing.x"),
    ("both pairs go on fast", {"plan/routing/x/2": DROP, "plan/routing/x/2/prefix": ["w3.b"],
     "plan/routing/x/2/to": {"w5.c": 1.0}}, ""),
    ("the whole path before the last load", {"plan/routing/x/4": {"node": "c", "prefix": ["w3.b"],
     "to": {"w4.c": 1.0}}}, ""),
    ("the last load before none", {"plan/routing/x/2/prefix": ["w3.b"], "plan/routing/x/3/prefix": []},
     "route-path @ routing.x[3]"),
    ("no prefix, where there is no other", {"plan/routing/x/3/prefix": [], "plan/routing/x/2/prefix": ["w1.a"]},
     "route-path @ routing.x[3]; slow-path @ routing.x"),
    ("no route ends the path", {"plan/routing/x/2": DROP}, ""),
]
# fmt: on


@pytest.mark.parametrize(("words", "edits", "expected"), TREE, ids=[words for words, *_ in TREE])
def test_a_tree_is_followed(words: str, edits: Json, expected: str) -> None:
    found = [f"{one.code} @ {one.at}" for one in check(*read(spoil(tree(), edits)))]
    assert sorted(found) == sorted(filter(None, expected.split("; ")))


@pytest.mark.parametrize(("words", "edits", "expected"), ROW, ids=[words for words, *_ in ROW])
def test_a_path_is_followed_by_all_its_loads(words: str, edits: Json, expected: str) -> None:
    found = [f"{one.code} @ {one.at}" for one in check(*read(spoil(row(), edits)))]
    assert sorted(found) == sorted(filter(None, expected.split("; ")))


def test_a_step_with_a_task_runs_a_variant() -> None:
    bare = spoil(tree(), {"plan/workers/0/loads/0/variant": None})
    report = verify_plan(*read(bare), check)
    assert "load-empty @ workers.w1.loads.w1.d" in [f"{one.code} @ {one.at}" for one in report.violations]
    assert report.checked == ("inputs", "references")


def test_a_slow_path_is_named() -> None:
    late = spoil(tree(), {"slo/apps/cars/latency/p99_ms": 75})
    (found,) = check(*read(late))
    assert found.text == "the path d=v1, c=c1 takes 36 ms, 35.5 ms are left for execution"
