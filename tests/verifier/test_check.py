"""What a report says of itself; the texts of violations; bounds of rounding; that reading never fails."""

import copy

import numpy as np
import pytest
from cases.documents import read, spoil
from cases.plans import CASES
from cases.plans_of_machines import variants
from cases.plans_of_pipelines import pipeline, streams
from cases.plans_of_pools import chat, pool

from hetplan.api.solve import verified
from hetplan.planner.bound_verdicts import Word
from hetplan.profiles.plan import Plan
from hetplan.verifier.check import Report, Violation, verify_plan
from hetplan.verifier.pool import check
from hetplan.verifier.promises import status_faults
from hetplan.verifier.resources import same_money


def texts(case: dict, edits: dict) -> list[str]:
    plan, inputs = read(spoil(case, edits))
    return [str(found) for found in verify_plan(plan, inputs, check if plan.question == "pool" else None).violations]


def test_a_report_says_what_was_checked():
    plan, inputs = read(pool())
    generic = (
        "inputs",
        "references",
        "options",
        "resources",
        "cost",
        "tables",
        "serving",
        "promises",
        "claims",
        "actions",
    )
    assert verify_plan(plan, inputs, check) == Report(checked=(*generic, "pool"))
    assert verify_plan(plan, inputs) == Report(checked=generic, unchecked=True)
    proved = verified(plan, inputs, prove=False)
    assert proved.checked == (*generic, "pool", "proofs")
    assert [one.word for one in proved.claims] == [Word.OPEN] * len(plan.claims)


def test_broken_references_end_the_check():
    plan, inputs = read(spoil(pool(), {"plan/workers/0/hardware": "tpu", "plan/inputs/slo": "sha256:00"}))
    report = verify_plan(plan, inputs, check)
    assert report.checked == ("inputs", "references")
    assert not report.unchecked
    assert not report.ok
    assert [found.code for found in report.violations] == [
        "input-hash",
        "unknown-reference",
        "offer-hardware",
        "no-run",
    ]
    assert verify_plan(plan, inputs).unchecked


def test_a_report_says_what_was_skipped():
    plan, inputs = read(streams())
    assert verify_plan(plan, inputs).skipped == ("cam: it comes in streams", "packed: its candidate plans are packed")
    joined = {"profile/pipelines/traffic/edges/2": {"from": "c", "to": "e"}}
    assert verify_plan(*read(spoil(pipeline(), joined))).skipped == ("cars: its pipeline joins branches",)
    decided = {"plan/question": "policy", "plan/policies": {"thumbs": []}}
    assert verify_plan(*read(spoil(variants(), decided))).skipped == ("thumbs: a policy decides at run time",)
    assert verify_plan(*read(spoil(variants(), {"plan/policies": {"thumbs": []}}))).skipped == ()
    assert verify_plan(*read(pool())).skipped == ()
    for losses in ({"machines": 1}, {"zones": 1}):
        wrong = verify_plan(*read(spoil(pool(), {"slo/limits/survive": losses}))).violations
        assert [one.code for one in wrong] == ["survive"]
        expected = ("limits.survive: what is left after losses is not computed",)
        others = {"slo/limits/survive": losses, "plan/question": "own"}
        assert verify_plan(*read(spoil(pool(), others))).skipped == expected


def test_a_report_says_what_nobody_can_recompute():
    unlimited = {"slo/limits/capacity": {}}
    expected = ("inf: it does not say what it provides, so inf_cores are not checked",)
    assert verify_plan(*read(variants())).skipped == ()
    assert verify_plan(*read(spoil(variants(), unlimited))).skipped == expected
    unpriced = {"profile/offers/g1-gib/per": None, "plan/workers/0/offer": None, "profile/offers/g1-gib/hardware": "g2"}
    unpriced |= {"profile/hardware/g2": {"kind": "gpu"}, "slo/limits": {}}
    report = verify_plan(*read(spoil(chat(), unpriced)), check)
    unsaid = "chat: no measurement of r says whether tpot p99 <= 50 ms"
    assert report.skipped == ("promises[2]: not every price is known", unsaid)
    assert report.ok
    own = {"plan/question": "chatting", "plan/promises/3": {"quantity": "joules", "value": 3, "model": "fluid"}}
    report = verify_plan(*read(spoil(chat(), own)))
    assert report.skipped == ("promises[3]: joules is a quantity of the question chatting", unsaid)
    assert report.ok


def test_an_empty_report_is_good():
    assert Report().ok
    assert not Report().unchecked
    assert str(Violation("stock", "periods.t0", "3 of 2")) == "periods.t0: 3 of 2 [stock]"


@pytest.mark.parametrize(
    ("case", "edits", "expected"),
    [
        (pool, {"plan/routing": {}}, ["routing.rank: queries of class batch 10 have no route [unrouted]"]),
        (
            pool,
            {"plan/routing/rank/0/to/w2.a": 0.5},
            ["routing.rank[0]: shares sum to 0.722222222 in period t0, not to 1 [share-sum]"],
        ),
        (
            pool,
            {"plan/dispatch/rank/weight": {"aux": 0.2}},
            ["dispatch.rank: no hardware has a weight of 1 [dispatch]"],
        ),
        (
            pool,
            {"plan/dispatch/rank/weight/base": 2.0},
            ["dispatch.rank: no hardware has a weight of 1 [dispatch]"],
        ),
        (
            pool,
            {"slo/apps/rank/network_ms_per_hop": 61},
            ["routing.rank: a share of 0.25 takes longer than 100 ms, 0 may [latency]"],
        ),
        (
            pool,
            {"plan/actions/3": {"id": 4, "do": "keep"}},
            ["workers.w2.loads.w2.a: is never loaded [actions-end]"],
        ),
        (
            chat,
            {"profile/tables/r/mean/1/1": 0},
            [
                "workers.w1.loads.w1.a: no measured time of w1.a for class input_tokens 300, output_tokens 150 "
                "[unmeasured]"
            ],
        ),
        (
            pipeline,
            {"plan/routing/cars/2/prefix": ["w4.c"]},
            ["routing.cars: queries of class all have no route at step c after w2.d [unrouted]"],
        ),
        (
            pipeline,
            {"slo/apps/cars/latency/p99_ms": 75},
            ["routing.cars: a share of 0.6 up to step c takes longer than 75 ms, 0 may [latency]"],
        ),
        (
            pipeline,
            {"plan/workers/0/loads/0/serve": {"max_batch": 8}},
            ["workers.w1.loads.w1.d: no measured time of w1.d for class all [unmeasured]"],
        ),
        (
            variants,
            {"plan/actions/2": {"id": 3, "do": "keep"}, "plan/actions/3": {"id": 4, "do": "keep"}},
            [
                "workers.old: 1 machines of old are up in the end, the plan has 0 [actions-end]",
                "workers.old.loads.old.a: is active in the end, but not in the plan [actions-end]",
            ],
        ),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(case, edits: dict, expected: list[str]):
    assert texts(case(), edits) == expected


@pytest.mark.parametrize(
    ("nanos", "value", "same"),
    [
        (1_500_000_000, 1.5, True),
        (1_500_000_000, 1.5000000005, True),
        (1_500_000_000, 1.5000000006, False),
        (1_234_567_890_123_456, 1_234_567.89012, True),
        (1_234_567_890_123_456, 1_234_567.8902, False),
        (123_456_789_012_300_000, 123_456_789.0123, True),
        (123_456_789_012_300_000, 123_456_789.0130, True),
        (123_456_789_012_300_000, 123_456_789.0140, False),
        (0, 0.0, True),
        (1, 0.0, False),
    ],
)
def test_money_is_compared_as_far_as_twelve_digits_tell(nanos: int, value: float, same: bool):
    assert same_money(nanos, value) is same


def _leaves(value: object, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [leaf for key, one in value.items() for leaf in _leaves(one, f"{path}/{key}")]
    if isinstance(value, list):
        return [leaf for number, one in enumerate(value) for leaf in _leaves(one, f"{path}/{number}")]
    return [path]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_untrusted(name: str):
    """Whatever is put in place of a value: either the plan does not read, or the check ends with a report."""
    case = CASES[name]()
    chance = np.random.default_rng(0)
    others = [None, 0, 1, -1, 1e300, "w1", "rank", "t0", [], {}]
    read_anyway = 0
    for leaf in _leaves(case["plan"], "plan"):
        spoilt = spoil(case, {leaf: copy.deepcopy(others[chance.integers(len(others))])})
        try:
            Plan.model_validate(spoilt["plan"])
        except ValueError:
            continue
        read_anyway += 1
        assert isinstance(verify_plan(*read(spoilt), check if case["plan"]["question"] == "pool" else None), Report)
    assert read_anyway >= 5


@pytest.mark.parametrize("case", ["pool", "chat"])
def test_late_queries_are_treated_as_is_wished(case: str):
    documents = CASES[case]()
    for app, rule in documents["plan"]["dispatch"].items():
        wanted = documents["slo"]["apps"][app].get("late")
        other = "drop" if wanted in ("serve", None) else "serve"
        assert rule.get("late") == wanted
        said = f"dispatch.{app}: late queries: {other}, the wish says {wanted or 'nothing'} [dispatch]"
        assert said in texts(documents, {f"plan/dispatch/{app}/late": other})


@pytest.mark.parametrize(
    ("gap", "fits"),
    [
        (0.9e-6, {"optimal"}),
        (1e-6 * (1 - 1e-12), {"optimal", "within-gap"}),
        (1e-6 * (1 + 1e-12), {"optimal", "within-gap"}),
        (1.1e-6, {"within-gap", "feasible"}),
    ],
)
def test_a_gap_that_is_the_limit_but_for_rounding_may_be_called_either(gap: float, fits: set[str]) -> None:
    plan, _ = read(pool())
    first = plan.claims[0].model_copy(update={"gap": gap, "scope": "problem"})
    said = ("optimal", "within-gap", "feasible", "heuristic")
    plans = {status: plan.model_copy(update={"claims": (first,), "status": status}) for status in said}
    assert {status for status, one in plans.items() if not list(status_faults(one))} == fits
