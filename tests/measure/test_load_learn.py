"""What a load says of service times and of quality, and the profile that comes of it."""

from __future__ import annotations

import copy
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cases.deployments import make_plan, make_worker

from hetplan.errors import InputError
from hetplan.measure import load_score
from hetplan.measure.load_learn import LEAST_SAMPLES, Spell, learn_profile
from hetplan.measure.load_report import LoadLine, figures_of, load_report
from hetplan.measure.load_score import check_scorer, read_labelled_set, score_answers, with_labelled
from hetplan.measure.load_send import Sent, Target
from hetplan.planner.promise_figures import Estimate, Verdict
from hetplan.profiles.load_one import load_profile
from hetplan.profiles.plan import Promise
from hetplan.profiles.slo import Slo

PROFILE: dict[str, Any] = {
    "format": "hetplan/profile/1.0",
    "hardware": {"cpu": {"kind": "cpu"}},
    "metrics": {"right": {}},
    "tasks": {"rank": {"metric": "right"}},
    "sources": {"lab": {"kind": "measured"}},
    "variants": {
        "M": {
            "task": "rank",
            "quality": {"value": 0.9, "source": "lab"},
            "runs": [{"hardware": "cpu", "latency": "t", "saturation_qps": 100}],
        }
    },
    "tables": {
        "t": {"quantity": "latency_ms", "axes": {"batch": [1, 2, 4]}, "mean": [10, 18, 30], "p99": [11, 20, 33],
              "source": "lab"},
    },
}  # fmt: skip
PLAN = make_plan(make_worker("w1", variant="m", load={"at": {}, "serve": {"max_batch": 4}}))


def reply(service_ms: float, *, batch: int = 1, over_ms: float = 0.5) -> bytes:
    hop = {"load": "w1.a", "router_ms": 3.0, "queue_ms": 1.0, "service_ms": service_ms, "batch": batch}
    return json.dumps({"ms": 4.0 + service_ms + over_ms, "path": [hop], "outputs": None}).encode()


def sent(bodies: list[bytes], status: int = 200, **more: Any) -> Sent:
    count = len(bodies)
    held: dict[str, Any] = {
        "app": "app", "due_s": np.arange(count) * 0.01, "kinds": np.zeros(count, np.int32),
        "late_ms": np.zeros(count), "response_ms": np.full(count, 20.0), "status": np.full(count, status, np.int16),
        "outcome": ["served"] * count, "quality": np.full(count, 0.9), "connections": 1, "bodies": bodies,
    }  # fmt: skip
    return Sent(**{**held, **more})


def test_cells_that_were_seen_are_replaced_and_the_others_are_scaled() -> None:
    """Batches of one take 15 and 16 ms in turn, batches of two 27, each with half a millisecond of hand-over."""
    ones = [reply(15.0 + number % 2) for number in range(100)]
    twos = [reply(27.0, batch=2) for _ in range(2 * LEAST_SAMPLES)]
    before = copy.deepcopy(PROFILE)
    found = learn_profile(PLAN, load_profile(PROFILE), [Spell(sent([*ones, *twos]), [{}])], "by a test")
    assert before == PROFILE, "the former profile stays"
    ((variant, hardware, batches, times),) = found.changes
    assert (variant, hardware, batches) == ("m", "cpu", 100 + LEAST_SAMPLES)
    expected = (100 * 16.0 + LEAST_SAMPLES * 27.5) / (100 * 10.0 + LEAST_SAMPLES * 18.0)
    assert times == pytest.approx(expected, rel=1e-4)
    profile = load_profile(found.document)
    run = profile.variants["m"].runs[0]
    table = profile.tables[run.latency or ""]
    assert table.mean == (16.0, 27.5, pytest.approx(30 * expected, rel=1e-4))
    assert table.p99 == (16.5, 27.5, pytest.approx(33 * expected, rel=1e-4))
    assert table.samples == (100, LEAST_SAMPLES, 0)
    assert table.std is not None
    assert table.std[0] == pytest.approx(0.5, rel=0.01)
    assert run.saturation_qps == pytest.approx(100 / times, rel=1e-4)
    source = profile.sources[table.source or ""]
    assert (source.kind, source.tool) == ("measured", "hetplan loadtest --learn")
    assert source.note == f"by a test; 1 points of m on cpu are the former ones times {times:.3g}"


def test_scores_become_the_quality_of_the_variant_that_answered() -> None:
    bodies = [reply(10.0)] * 40
    scores = [1.0, 0.0, 0.0, 0.0] * 10
    found = learn_profile(PLAN, load_profile(PROFILE), [Spell(sent(bodies), [{}], scores)], "n")
    quality = load_profile(found.document).variants["m"].quality
    assert quality is not None
    assert (quality.value, quality.source) == (0.25, next(name for name in found.document["sources"] if name != "lab"))


def test_replies_that_say_nothing_teach_nothing() -> None:
    odd = [reply(5).replace(b'"batch": 1', b'"batch": 0'), reply(5).replace(b', "batch": 1', b""), reply(math.nan)]
    for bodies, status in (
        (odd * 20, 200),
        ([b""] * 50, 200),
        ([b"{}"] * 50, 200),
        ([b"no json"] * 50, 200),
        ([reply(5)] * 50, 503),
    ):
        with pytest.raises(InputError, match="no reply says which worker"):
            learn_profile(PLAN, load_profile(PROFILE), [Spell(sent(bodies, status), [{}])], "n")


def line(report: Any, quantity: str) -> LoadLine:
    return next(one for one in report.lines if one.quantity == quantity)


def test_a_constant_of_the_profile_is_never_called_measured() -> None:
    run = {"model": "m", "quality": {"min": 0.95}, "rate_qps": 1}
    slo = Slo.model_validate({"format": "hetplan/slo/1.0", "apps": {"app": run}})
    promise = Promise(app="app", quantity="quality", relation=">=", value=0.95, model="simulation/1")
    plan = make_plan(make_worker("w1", variant="m"), promises=(promise,))
    for is_scored, verdict in ((False, Verdict.NOT_MEASURED), (True, Verdict.BROKEN)):
        figures = figures_of(sent([b""] * 200), scored=is_scored)
        report = load_report(plan, [figures], duration_s=1.0, slo=slo)
        assert (line(report, "accuracy").measured is None) is not is_scored
        assert line(report, "accuracy").verdict is verdict
        assert line(report, "quality").verdict is verdict
        said = figures.as_dict()
        assert ("accuracy" in said["stated"], "accuracy" in said["figures"]) == (not is_scored, is_scored)
    stated = line(load_report(plan, [figures_of(sent([b""] * 200))], duration_s=1.0, slo=slo), "accuracy")
    assert stated.stated is not None
    assert stated.stated.value == pytest.approx(0.9)
    assert stated.as_dict()["measured"] is None


def test_quality_further_from_the_simulation_than_half_a_point_disagrees() -> None:
    for value, apart in ((0.893, True), (0.896, False)):
        found = Estimate(value, value - 0.001, value + 0.001)
        shown = LoadLine("a", "accuracy", None, "", None, "figure", (0.9, 0.9, 0.9), found, Verdict.REPORTED)
        assert shown.disagrees(0.1) is apart


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    np.savez(tmp_path / "set.npz", x=np.arange(10.0).reshape(5, 2), labels=np.array([0, 1, 0, 1, 0]))
    (tmp_path / "judging.py").write_text("def half(outputs, labels):\n    return [0.5] * len(labels)\n")
    (tmp_path / "judge.py").write_text(
        "import json, sys\nfor line in sys.stdin:\n    asked = json.loads(line)\n"
        "    print(json.dumps({'score': asked['labels'][0]}), flush=True)\n"
    )
    return tmp_path / "set.npz"


def test_labelled_inputs_come_in_turn_in_an_order_of_the_seed(labelled: Path) -> None:
    """A file is often sorted: its first inputs are no sample of it, and a short load sends no more."""
    target = Target("app", "http://h", np.arange(12.0), np.array([0, 1] + [0] * 10, np.int32), [b"", b""])
    orders = []
    for seed in (1, 1, 2):
        carried = with_labelled(target, [{"batch": 1.0}, {"batch": 2.0}], read_labelled_set(labelled), seed=seed)
        first, other, *rest = carried.target.kinds.tolist()
        assert other in (5, 6, 7)
        assert sorted([first, *rest[:4]]) == list(range(5))
        assert rest[4:9] == [first, *rest[:4]]
        orders.append([first, *rest])
    assert orders[0] == orders[1] != orders[2]
    assert [0, 1, 2, 3, 4] not in [order[:5] for order in orders]


def test_queries_carry_the_labelled_inputs_and_their_answers_are_judged(
    labelled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np.random, "default_rng", lambda _seed: SimpleNamespace(permutation=np.arange))
    target = Target("app", "http://h", np.arange(4.0), np.array([0, 1, 0, 0], np.int32), [b"", b""])
    carried = with_labelled(target, [{"batch": 1.0}, {"batch": 2.0}], read_labelled_set(labelled), seed=0)
    assert [one.tolist() for one in carried.labels] == [[0], [1], [0], [1], [0], [0, 1], [0, 1], [0, 0]]
    assert carried.target.kinds.tolist() == [0, 5, 1, 2]
    assert carried.target.fields[5] == "hetplan-at: batch=2"
    assert carried.points[5] == {"batch": 2.0}
    outputs = [[[0.9, 0.1]], [[0.9, 0.1], [0.1, 0.9]], [[0.9, 0.1]], [[0.9, 0.1]]]
    bodies = [json.dumps({"outputs": {"y": one}}).encode() for one in outputs]
    replies = sent(bodies, kinds=carried.target.kinds)
    judge = f"{sys.executable} judge.py"
    for scorer, wanted in (("top1", [1, 1, 0, 1]), ("judging:half", [0.5] * 4), (judge, [0, 0, 1, 0])):
        assert score_answers(replies, carried.labels, scorer, labelled.parent).quality.tolist() == wanted, scorer
    lost = score_answers(sent(bodies, 503, kinds=carried.target.kinds), carried.labels, "top1", labelled.parent)
    assert all(math.isnan(one) for one in lost.quality)
    for scorer in ("judging:gone", "./no-such-command", "", "judge 'half a quote"):
        with pytest.raises(InputError, match="--scorer"):
            check_scorer(scorer, labelled.parent)


def test_a_scorer_that_hangs_or_ends_is_named(labelled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_score, "_ANSWER_S", 0.2)
    replies = sent([json.dumps({"outputs": {"y": [[1.0]]}}).encode()])
    for command, said in (("sleep 600", "no answer in"), ("true", "ended without an answer")):
        with pytest.raises(InputError, match=said):
            score_answers(replies, [np.array([0])], command, labelled.parent)


@pytest.mark.parametrize("content", [b"PK\x03\x04 cut off", b"", "npy"])
def test_a_file_that_is_no_labelled_set_is_refused(tmp_path: Path, content: bytes | str) -> None:
    np.save(tmp_path / "set.npy", np.zeros(3)) if content == "npy" else (tmp_path / "set.npy").write_bytes(content)
    with pytest.raises(InputError, match=r"no \.npz file"):
        read_labelled_set(tmp_path / "set.npy")


def test_what_was_not_seen_stays_as_the_file_says_it() -> None:
    """A run that is like the one that was seen keeps the former times, and all numbers keep their source."""
    runs = {"cpu": {"mean_ms": [10, 18, 30], "max_qps": 100}, "gpu": {"like": "cpu", "load_s": 9}}
    said = {
        "format": "hetplan/profile/1.0",
        "source": {"name": "lab", "kind": "measured"},
        "machines": {"cpu": {}, "gpu": {"kind": "gpu", "price_per_hour": 2}},
        "models": {
            "M": {"task": "rank", "quality": {"right": 0.9}, "batch": [1, 2, 4], "load_s": 3, "runs": runs},
            "other": {"task": "rank", "quality": {"right": 0.8}, "batch": [1], "runs": {"cpu": {"mean_ms": [7]}}},
        },
    }
    replies = [reply(15.0)] * 100
    before = load_profile(said)
    learned = load_profile(learn_profile(PLAN, before, [Spell(sent(replies), [{}])], "n").document)
    assert (learned.offers, learned.variants["other"]) == (before.offers, before.variants["other"])
    assert learned.tables["other-cpu"] == before.tables["other-cpu"]
    assert learned.tables["m-gpu"] == before.tables["m-gpu"]
    assert learned.variants["m"].quality == before.variants["m"].quality
    assert [run.load_s for run in learned.variants["m"].runs] == [3, 9]
    assert [run.saturation_qps for run in learned.variants["m"].runs] == [pytest.approx(100 / 1.55), 100]
    table = learned.tables["m-cpu"]
    assert (table.mean, learned.sources[table.source or ""].kind) == ((15.5, 27.9, 46.5), "measured")
