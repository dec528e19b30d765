"""Measuring: guarded evaluators, the cache's account, the journal that survives a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from hetplan.errors import InputError, Interrupted
from hetplan.measure.evaluator import Command, EvaluationFailed, Guarded, load_evaluators
from hetplan.measure.evaluator_profiler import Profiler, Setup, measuring
from hetplan.measure.journal import Journal, measured_document
from hetplan.measure.sampling import Rule, read_features
from hetplan.planner.forms.black_box import Verdict
from hetplan_papers.datasets.circinus_generator import draw

OPERATORS = ("cut", "name")
KNOBS_OF = {"cut": ("size",), "name": ("model", "size")}
GOOD = {"score": 1.0, "seconds": {"cut": 0.1, "name": 0.4}, "bytes": {"cut": 100.0, "name": 1.0}, "input_bytes": 50.0}


def setup(**changes: object) -> Setup:
    how: dict = {
        "app": "q", "evaluator": "e", "operators": OPERATORS, "knobs_of": KNOBS_OF, "shares": (0.5, 0.5),
        "rule": Rule(0.7, n_min=10, n_max=40),
    }  # fmt: skip
    return Setup(**{**how, **changes})


def test_a_measurement_takes_what_its_rule_needs_and_is_charged_what_is_not_cached():
    profiler = Profiler(setup(), lambda *_: GOOD)
    first = profiler(0, {"size": 1, "model": "s"})
    assert (first.verdict, first.passes) == (Verdict.PASS, True)
    assert (*first.seconds, first.bytes_in) == pytest.approx((0.1, 0.4, 50.0))
    assert first.gpu_s == pytest.approx(first.samples * 0.5)
    second = profiler(1, {"size": 1, "model": "m"})
    assert second.gpu_s == pytest.approx(second.samples * 0.4)
    assert profiler.gpu_s == pytest.approx(first.gpu_s + second.gpu_s)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({**GOOD, "score": float("nan")}, "not a finite number"),
        ({**GOOD, "score": 7}, "outside the metric's range"),
        ({**GOOD, "seconds": {"cut": 1.0}}, "lacks name"),
        ({**GOOD, "seconds": {"cut": 1.0, "name": -1.0}}, "below 0"),
        ({**GOOD, "seconds": [1, 2]}, "not a mapping"),
        ({**GOOD, "bytes": {"cat": 1.0}}, "no operators"),
        ({"seconds": {}}, "not a finite number"),
        (3.0, "a mapping with score"),
    ],
)
def test_what_makes_no_sense_is_set_aside_with_its_reason(answer: object, reason: str):
    found = Profiler(setup(), lambda *_: answer)(4, {"size": 1, "model": "s"})
    assert (found.verdict, found.passes) == (Verdict.SET_ASIDE, False)
    assert reason in found.reason


def test_right_and_wrong_are_scores():
    found = Profiler(setup(), lambda *_: {**GOOD, "score": True})(0, {"size": 1, "model": "s"})
    assert (found.verdict, found.mean) == (Verdict.PASS, 1.0)


def test_what_raises_is_tried_again():
    tries: list[int] = []

    def sometimes(*_: object) -> object:
        tries.append(1)
        if len(tries) % 3:
            raise RuntimeError("out of memory")
        return GOOD

    found = Profiler(setup(), sometimes)(0, {"size": 1, "model": "s"})
    assert found.verdict is Verdict.PASS

    def never(*_: object) -> object:
        raise RuntimeError("out of memory")

    assert "out of memory" in Profiler(setup(), never)(0, {"size": 1, "model": "s"}).reason


def test_what_hangs_is_given_up():
    stop = threading.Event()
    guarded = Guarded(lambda *_: stop.wait(60), OPERATORS, timeout_s=0.05, retries=1)
    with pytest.raises(EvaluationFailed, match="no answer within"):
        guarded({}, 0, 0)
    stop.set()


COMMAND = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["index"] == 3:
        print("{}".format("no json"), flush=True)
    elif asked["index"] == 4:
        sys.exit(1)
    elif asked["index"] == 5:
        print(json.dumps({"error": "no such file"}), flush=True)
    elif asked["index"] == 6:
        import time; time.sleep(300)
    else:
        print(json.dumps({"score": 0.5, "seconds": {"cut": 1, "name": 2}, "bytes": {}}), flush=True)
"""


def test_a_command_speaks_json_lines(tmp_path: Path):
    script = tmp_path / "measure.py"
    script.write_text(COMMAND)
    trusted = tmp_path / "site.toml"
    said = 'command = ["{}", "{}"]\ntimeout_s = {}\n'
    trusted.write_text(
        f"[evaluators.e]\n{said.format(sys.executable, script, 60)}"
        f"[evaluators.hasty]\n{said.format(sys.executable, script, 0.5)}"
    )
    command, hasty = (load_evaluators(trusted)[name] for name in ("e", "hasty"))
    guarded = Guarded(command, OPERATORS, retries=0)
    assert guarded({"size": 1}, 0, 0).seconds == {"cut": 1.0, "name": 2.0}
    for index, reason in ((3, "no JSON"), (4, "ended"), (5, "no such file")):
        with pytest.raises(EvaluationFailed, match=reason):
            guarded({}, 0, index)
        assert guarded({}, 0, 7).score == 0.5
    with pytest.raises(EvaluationFailed, match="no answer within"):
        Guarded(hasty, OPERATORS, retries=0)({}, 0, 6)
    wait_until(lambda: not hasty._all)
    command.close()


SEVERAL = """
import json, os, sys, time
from pathlib import Path
print("a remark", file=sys.stderr, flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    me = os.environ["HETPLAN_EVALUATOR"]
    Path(f"asked-{asked['index']}").touch()
    while asked["index"] < 3 and len(list(Path().glob("asked-[012]"))) < 3:
        time.sleep(0.01)
    answer = json.dumps({"score": 0.5, "seconds": {"cut": float(me), "name": asked["index"]}}) + "\\n"
    if asked["index"] == 9:
        answer += json.dumps({"score": 0.9, "seconds": {"cut": 0, "name": 0}}) + "\\n"
    sys.stdout.write(answer)
    sys.stdout.flush()
    if asked["index"] == 8:
        sys.exit(1)
"""


def wait_until(done: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, "it never came to pass"
        time.sleep(0.01)


def test_as_many_processes_as_are_asked_at_once_each_with_its_number(tmp_path: Path):
    (tmp_path / "measure.py").write_text(SEVERAL)
    command = Command([sys.executable, "measure.py"], timeout_s=60, folder=tmp_path)
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda index: command({}, 0, index), range(3)))
    assert [answer["seconds"]["name"] for answer in answers] == [0, 1, 2]
    assert {answer["seconds"]["cut"] for answer in answers} == {0.0, 1.0, 2.0}
    command.close()
    with pytest.raises(EvaluationFailed, match="was ended"):
        command({}, 0, 0)


def test_an_answer_too_many_is_never_taken_for_the_next_one(tmp_path: Path):
    (tmp_path / "measure.py").write_text(SEVERAL)
    command = Command([sys.executable, "measure.py"], timeout_s=60, folder=tmp_path)
    command({}, 0, 9)
    (process,) = command._all.values()
    wait_until(lambda: not process.quiet)
    assert command({}, 0, 5)["seconds"]["name"] == 5
    command({}, 0, 8)
    (process,) = command._all.values()
    wait_until(lambda: not process.quiet)
    assert command({}, 0, 6)["seconds"]["name"] == 6, "one that ended between two samples is started anew"
    command.close()


def test_many_at_once_are_guarded_as_one_by_one():
    class Many:
        def __init__(self, scores: list[float], **changes: object) -> None:
            self.scores, self.costs = scores, {k: v for k, v in {**GOOD, **changes}.items() if k != "score"}

        def many(self, knobs: object, begin: int, count: int) -> object:
            return self.scores * count, self.costs

        def __call__(self, *_: object) -> object:
            raise AssertionError("asked one by one")

    assert Profiler(setup(), Many([1.0]))(0, {"size": 1, "model": "s"}).passes
    for broken, reason in (
        (Many([float("nan")]), "finite"),
        (Many([1.0, 1.0]), "scores where"),
        (Many([7.0]), "range"),
        (Many([1.0], seconds={"cut": 1.0}), "lacks name"),
    ):
        assert reason in Profiler(setup(), broken)(0, {"size": 1, "model": "s"}).reason


def test_cancelling_ends_a_measurement_between_two_samples_and_a_hanging_one_at_once():
    cancel, asked = threading.Event(), []

    def answer(*sample: object) -> object:
        asked.append(sample)
        if len(asked) == 3:
            cancel.set()
        return GOOD

    profiler = Profiler(setup(rule=Rule(0.999, n_min=30, n_max=40)), answer, cancel=cancel)
    with pytest.raises(Interrupted):
        profiler(0, {"size": 1, "model": "s"})
    assert len(asked) == 3
    assert sum(len(batch["scores"]) for batch in profiler.journal.samples("q", {"size": 1, "model": "s"})) >= 2
    stop = threading.Event()
    with pytest.raises(Interrupted):
        Guarded(lambda *_: stop.wait(30), OPERATORS, cancel=cancel)({}, 0, 0)
    stop.set()


def test_a_feature_file_says_which_samples_there_are_and_what_is_alike(tmp_path: Path):
    file = tmp_path / "clips.csv"
    rows = [f"clip{i},{0.0 if i < 12 else 9.0 if i < 30 else 99.0}" for i in range(31)]
    file.write_text("\n".join(["id,brightness", *rows]) + "\n")
    asked: list[tuple[int, int]] = []

    def answer(_: object, stratum: int, index: int) -> object:
        asked.append((stratum, index))
        return {**GOOD, "score": float(index < 12)}

    rule = {"target": 0.4, "n_min": 10, "n_max": 1000, "kind": "fixed"}
    journal = Journal()
    how = {key: value for key, value in vars(setup()).items() if key not in ("rule", "strata_of", "samples")}
    measure = measuring(answer, journal=journal)(**how, rule=rule, features=str(file), strata=3)
    found = measure(0, {"size": 1, "model": "s"})
    assert sorted(index for _, index in asked) == list(range(31)), "every sample once"
    assert found.mean == pytest.approx(12 / 31)
    assert "is joined" in journal.warnings[0][2], "a stratum of one sample says nothing of its spread"
    dark, bright = ({stratum for stratum, index in asked if (index < 12) is first} for first in (True, False))
    assert not dark & bright
    first = [stratum for stratum, _ in asked[:4]]
    assert first[0] != first[1] == first[3] != first[2], "in turn"


@pytest.mark.parametrize(
    ("content", "why"),
    [("", "a header and a row"), ("id\na\n", "a header and a row"), ("a,b\n1\n", "finite number"),
     ("a\nnan\n", "finite number"), ("a\nx\n", "finite number")],
)  # fmt: skip
def test_a_feature_file_that_makes_no_sense_is_refused(tmp_path: Path, content: str, why: str):
    file = tmp_path / "clips.csv"
    file.write_text(content)
    with pytest.raises(InputError, match=why):
        read_features(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_features(tmp_path / "missing.csv")


def test_a_command_that_does_not_start_and_bad_configuration_are_reported(tmp_path: Path):
    with pytest.raises(EvaluationFailed, match="does not start"):
        Command([str(tmp_path / "missing")])({}, 0, 0)
    bad = tmp_path / "bad.toml"
    for content, why in (
        ('[evaluators.e]\ncommand = "python measure.py"\n', "list of words"),
        ('[evaluators.e]\ncommand = ["a"]\ntimeout_s = -1\n', "above 0"),
        ('[evaluators.e]\ncommand = ["a"]\ntimeout = 1\n', "unknown key"),
        ("evaluators = 3\n", "a table per evaluator"),
        ("[evaluators\n", "readable TOML"),
    ):
        bad.write_text(content)
        with pytest.raises(InputError, match=why):
            load_evaluators(bad)


def test_a_journal_goes_on_where_it_stopped(tmp_path: Path):
    query, path = draw("SR", 3), tmp_path / "journal.jsonl"
    knobs = {knob.name: 0 for knob in query.app.knobs}
    how = setup(
        operators=tuple(step.name for step in query.app.steps),
        knobs_of={step.name: tuple(knobs) for step in query.app.steps},
        shares=(1 / 8,) * 8, low=-1.0, high=2.0, rule=Rule(query.accuracy_min, bernoulli=False, span=3.0),
    )  # fmt: skip
    whole = Profiler(how, query)(0, knobs)
    journal = Journal(path, of={"inputs": 1})
    Profiler(how, query, journal)(0, knobs)
    journal.close()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:20])

    class Counting:
        asked = 0

        def many(self, *args: object) -> object:
            Counting.asked += 1
            return query.many(*args)

        def __call__(self, *args: object) -> object:
            raise AssertionError("asked one by one")

    again = Journal(path, of={"inputs": 1})
    assert "cut off" in again.warnings[0][2]
    found = Profiler(how, Counting(), again)(0, knobs)
    assert found == whole
    again.close()
    document = measured_document(path)
    assert document["apps"]["q"][0]["mean"] == pytest.approx(whole.mean)
    asked = Counting.asked
    assert Profiler(how, Counting(), Journal(path))(0, knobs) == whole
    assert Counting.asked == asked


def _asked(*sizes: int) -> list[tuple[int, dict[str, object]]]:
    return [(size, {"size": size, "model": "s"}) for size in sizes]


def test_several_are_concluded_in_their_order_whoever_was_faster(tmp_path: Path):
    written = []
    for name, last in (("a", 1), ("b", 3)):
        others, gate = threading.Barrier(3), threading.Event()

        def answer(knobs, stratum, index, last=last, others=others, gate=gate):
            if index == 0:  # of the first samples; all three are under way
                others.wait(30)
                if knobs["size"] == last:
                    gate.wait(30)
            return {**GOOD, "score": float((index * knobs["size"]) % 7 < 6)}

        journal = Journal(tmp_path / name)
        profiler = Profiler(setup(), answer, journal)
        found = iter(profiler.several(_asked(1, 2, 3)))
        threading.Timer(0.1, gate.set).start()
        assert [one.configuration for one in found] == [1, 2, 3]
        assert not (tmp_path / f"{name}.waiting").exists()
        journal.close()
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]
    lines = [json.loads(line) for line in written[0].splitlines()[1:]]
    assert [line["knobs"]["size"] for line in lines] == sorted(line["knobs"]["size"] for line in lines)


def test_samples_that_waited_when_it_was_killed_are_known_and_take_their_turn(tmp_path: Path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    answer = lambda knobs, stratum, index: {**GOOD, "score": float(index % 7 < 6)}  # noqa: E731
    journal = Journal(whole, of={"inputs": 1})
    expected = list(Profiler(setup(), answer, journal).several(_asked(1, 2)))
    journal.close()
    head, *lines = whole.read_bytes().splitlines(keepends=True)
    second = [line for line in lines if b'"size":2' in line and b'"plan"' not in line]
    # The first was let in half; one line was cut off. Of the second all samples waited, in any order among the others.
    cut.write_bytes(b"".join([head, *lines[:3], lines[3][:20]]))
    (tmp_path / "cut.waiting").write_bytes(b"".join([head, *second, *lines[:6]]))
    asked = []
    journal = Journal(cut, of={"inputs": 1})
    again = Profiler(setup(), lambda knobs, *of: asked.append((knobs["size"], *of)) or answer(knobs, *of), journal)
    assert list(again.several(_asked(1, 2))) == expected
    journal.close()
    assert cut.read_bytes() == whole.read_bytes()
    assert {size for size, *_ in asked} == {1}
    assert not (tmp_path / "cut.waiting").exists()
    (tmp_path / "cut.waiting").write_bytes(head + lines[-1])
    with pytest.raises(InputError, match="samples that wait for their turn, and nothing else"):
        Journal(cut, of={"inputs": 1})


def test_samples_that_waited_and_nobody_asks_for_are_kept(tmp_path: Path):
    path = tmp_path / "journal"
    first = Journal(path)
    with first.beside([("q", {"size": 1}), ("q", {"size": 2})]):
        batch = {"from": 0, "scores": [1.0], "seconds": {}, "bytes": {}, "input_bytes": 0.0}
        first.add_samples("q", {"size": 2}, batch)
        assert path.read_bytes().count(b"\n") == 1
        held = (tmp_path / "journal.waiting").read_bytes()
    first.close()
    path.write_bytes(held.splitlines(keepends=True)[0])
    (tmp_path / "journal.waiting").write_bytes(held)
    second = Journal(path)
    assert second.samples("q", {"size": 2}) == [batch]
    second.close()
    assert path.read_bytes() == held
    assert not (tmp_path / "journal.waiting").exists()


def test_a_journal_of_other_inputs_or_damaged_inside_is_refused(tmp_path: Path):
    path = tmp_path / "journal.jsonl"
    Journal(path, of={"inputs": 1}).close()
    with pytest.raises(InputError, match="other inputs"):
        Journal(path, of={"inputs": 2})
    path.write_bytes(path.read_bytes() + b"{oops\n" + b'{"app": "q"}\n')
    with pytest.raises(InputError, match="no JSON"):
        Journal(path)
    path.write_text(json.dumps({"some": "thing"}) + "\n")
    with pytest.raises(InputError, match="begins with its format"):
        Journal(path)


@pytest.mark.parametrize(
    "batch",
    [
        {"scores": [float("nan")]},
        {"scores": ["a"]},
        {"scores": []},
        {"seconds": {"cut": -1.0}},
        {"seconds": None},
        {"input_bytes": None},
        {"from": -1},
        {"bytes": {"cut": 1e308}},
    ],
)
def test_a_journal_whose_samples_make_no_sense_is_refused(tmp_path: Path, batch: dict[str, object]):
    path = tmp_path / "journal.jsonl"
    good = {"from": 0, "scores": [1.0], "seconds": {"cut": 0.1}, "bytes": {"cut": 1.0}, "input_bytes": 0.0}
    Journal(path).close()
    line = json.dumps({"app": "q", "knobs": {"size": 1}, "samples": {**good, **batch}})
    path.write_bytes(path.read_bytes() + line.encode() + b"\n")
    with pytest.raises(InputError, match="line 2"):
        Journal(path)


def test_a_journal_of_other_operators_is_refused_before_anything_is_measured(tmp_path: Path):
    journal = Journal(tmp_path / "journal.jsonl")
    other = {"from": 0, "scores": [1.0], "seconds": {"other": 0.1}, "bytes": {"other": 1.0}, "input_bytes": 0.0}
    journal.add_samples("q", {"size": 1}, other)
    setup = Setup("q", "e", ("cut",), {"cut": ("size",)}, (1.0,), Rule(0.5))
    with pytest.raises(InputError, match="other operators"):
        Profiler(setup, lambda *asked: pytest.fail("was asked"), journal)(0, {"size": 1})


@pytest.mark.parametrize("score", [-1.0, 1.5, 1e308])
def test_a_score_that_the_metric_does_not_have_is_refused(tmp_path: Path, score: float):
    journal = Journal(tmp_path / "journal.jsonl")
    batch = {"from": 0, "scores": [0.5, score], "seconds": {"cut": 0.1}, "bytes": {"cut": 1.0}, "input_bytes": 0.0}
    journal.add_samples("q", {"size": 1}, batch)
    setup = Setup("q", "e", ("cut",), {"cut": ("size",)}, (1.0,), Rule(0.5))
    with pytest.raises(InputError, match="from 0 to 1"):
        Profiler(setup, lambda *asked: pytest.fail("was asked"), journal)(0, {"size": 1})


KILLED = """
import sys, time
from hetplan.measure.evaluator_profiler import Profiler, Setup
from hetplan.measure.journal import Journal
from hetplan.measure.sampling import Rule

def slow(knobs, stratum, index):
    time.sleep(0.005)
    print(index, flush=True)
    return {"score": 1.0, "seconds": {"cut": 0.1}, "bytes": {"cut": 1.0}}

setup = Setup("q", "e", ("cut",), {"cut": ("size",)}, (1.0,), Rule(0.999, n_max=5000))
Profiler(setup, slow, Journal(sys.argv[1]))(0, {"size": 1})
"""


@pytest.mark.slow
def test_a_kill_loses_no_measurement(tmp_path: Path):
    path = tmp_path / "journal.jsonl"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED), str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        seen = [int(process.stdout.readline()) for _ in range(21)]
        process.send_signal(signal.SIGKILL)
    held = Journal(path).samples("q", {"size": 1})
    assert [batch.get("index", batch["from"]) for batch in held][:20] == seen[:20]


def test_an_unknown_evaluator_is_reported():
    with pytest.raises(InputError, match="no such evaluator"):
        measuring({"other": lambda *_: GOOD})(**{**vars(setup()), "rule": {"target": 0.5}})


def test_the_generator_scatters_around_the_truth_and_repeats_itself():
    query = draw("LVC", 0)
    knobs = {knob.name: 1 for knob in query.app.knobs}
    c = query.configuration(knobs)
    scores, costs = query.many(knobs, 0, 4000)
    assert np.mean(scores) == pytest.approx(query.accuracy[c], abs=0.03)
    assert query.many(knobs, 13, 50)[0].tolist() == scores[13:63].tolist()
    assert query(knobs, 0, 17)["score"] == scores[17]
    assert sum(costs["seconds"].values()) == pytest.approx(query.seconds[c].sum())
