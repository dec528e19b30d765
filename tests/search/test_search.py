"""`hetplan.search`: ask, tell, best, front, journal; the same proposals after a kill; Optuna's studies."""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hetplan.errors import HetplanError, InputError, Interrupted
from hetplan.planner.contract import Event
from hetplan.search import Search, Space, Step, Wish
from hetplan.search.optuna import StructureSampler

ROOT = Path(__file__).resolve().parents[2]
Measuring = Callable[[dict[str, object]], tuple[float, dict[str, float]]]
KNOBS = {"documents": [1, 2, 4, 8], "ranker": ["none", "small", "large"], "model": ["tiny", "small", "large"]}
RANKED = {"none": 0.0, "small": 0.06, "large": 0.08}
ANSWERED = {"tiny": 0.0, "small": 0.12, "large": 0.17}


def space() -> Space:
    return Space(
        KNOBS,
        [
            Step("rank", ["documents", "ranker"], price_per_s=1.0),
            Step("answer", ["documents", "model"], ["rank"], price_per_s=10.0),
        ],
    )


def truth(knobs: dict[str, object]) -> tuple[float, dict[str, float]]:
    n, ranker, model = int(str(knobs["documents"])), str(knobs["ranker"]), str(knobs["model"])
    quality = 0.5 + 0.04 * n**0.5 + RANKED[ranker] + ANSWERED[model]
    speed = {"none": 0.001, "small": 0.01, "large": 0.05}[ranker]
    return quality, {"rank": speed * n, "answer": {"tiny": 0.02, "small": 0.05, "large": 0.2}[model] * (1 + 0.2 * n)}


WISH = Wish(goal="cost", least_quality=0.76, most_latency_s=0.4)


def run(search: Search, steps: int, measured: Measuring = truth) -> list[dict[str, object]]:
    asked = []
    for _ in range(steps):
        trial = search.ask()
        asked.append(dict(trial.knobs))
        search.tell(trial, *measured(dict(trial.knobs)))
    return asked


def everything() -> Search:
    known = Search(space(), WISH)
    for levels in product(*KNOBS.values()):
        known.tell(setting := dict(zip(KNOBS, levels, strict=True)), *truth(setting))
    return known


def test_it_finds_the_cheapest_that_keeps_the_limits_in_few_steps() -> None:
    least = everything().best()
    assert least is not None
    search = Search(space(), WISH)
    run(search, 9)
    best = search.best()
    assert best is not None
    assert WISH.complies(best)
    assert best.cost <= 1.05 * least.cost


@pytest.mark.parametrize("goal", ["cost", "latency", "quality"])
def test_every_goal_ends_at_the_best_of_all_settings(goal: str) -> None:
    wish = Wish(goal, least_quality=0.7, most_cost=4.0)  # type: ignore[arg-type]
    search = Search(space(), wish)
    run(search, 36)
    by_hand = [one for one in search.journal if one.quality >= 0.7 and one.cost <= 4.0]
    value = {"cost": lambda r: r.cost, "latency": lambda r: r.latency_s, "quality": lambda r: -r.quality}[goal]
    assert search.best() == min(by_hand, key=value)
    with pytest.raises(HetplanError, match="every setting"):
        search.ask()


def test_the_front_is_what_nothing_beats() -> None:
    known = everything()
    front = known.front()

    def beats(a, b) -> bool:
        no_worse = a.quality >= b.quality and a.cost <= b.cost and a.latency_s <= b.latency_s
        return no_worse and (a.quality, a.cost, a.latency_s) != (b.quality, b.cost, b.latency_s)

    assert {tuple(one.knobs.values()) for one in front} == {
        tuple(one.knobs.values()) for one in known.journal if not any(beats(other, one) for other in known.journal)
    }


KILLED = """
import os, signal, sys
from tests.search.test_search import Search, WISH, space, truth
search = Search(space(), WISH, seed=3, journal=sys.argv[1])
for _ in range(5):
    trial = search.ask()
    search.tell(trial, *truth(dict(trial.knobs)))
search.ask()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_after_kill_9_it_goes_on_with_the_same_proposals(tmp_path: Path) -> None:
    journal = tmp_path / "search.jsonl"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(journal)], cwd=ROOT, check=False)
    assert ended.returncode == -9
    broken, whole = Search(space(), WISH, seed=3, journal=journal), Search(space(), WISH, seed=3)
    first = run(whole, 5)
    assert [dict(one.knobs) for one in broken.journal] == first
    assert run(broken, 6) == run(whole, 6)
    broken.close()
    with pytest.raises(InputError, match="another space"):
        Search(Space({"other": [1, 2]}), journal=journal)


def test_several_may_be_asked_for_at_once_and_failed_ones_are_left() -> None:
    search = Search(space(), WISH)
    trials = [search.ask() for _ in range(4)]
    assert len({trial.number for trial in trials}) == 4
    search.tell_failed(trials[0], "out of memory")
    for trial in trials[1:]:
        search.tell(trial, *truth(dict(trial.knobs)))
    best = search.best()
    assert best is None or best.knobs != trials[0].knobs
    assert trials[0].number not in {search.ask().number for _ in range(5)}


@pytest.mark.parametrize(
    ("knobs", "given", "named"),
    [
        ({"documents": 3, "ranker": "none", "model": "tiny"}, {}, "documents"),
        ({"documents": 1, "ranker": "none", "model": "tiny"}, {"quality": float("nan")}, "quality"),
        ({"documents": 1, "ranker": "none", "model": "tiny"}, {"seconds": {"rank": 1.0}}, "seconds"),
        ({"documents": 1, "ranker": "none", "model": "tiny"}, {"cost": -1.0}, "cost"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(knobs: dict, given: dict, named: str) -> None:
    said = {"quality": 0.5, "seconds": {"rank": 0.1, "answer": 0.1}, **given}
    with pytest.raises(InputError, match=named):
        Search(space()).tell(knobs, **said)


def study(sampler: object, storage: object = None, trials: int = 8):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial) -> float:
        knobs = {knob: trial.suggest_categorical(knob, levels) for knob, levels in KNOBS.items()}
        trial.suggest_float("beside", 0, 1)
        quality, seconds = truth(knobs)
        trial.set_user_attr("quality", quality)
        trial.set_user_attr("seconds", seconds)
        return sum(seconds.values())

    made = optuna.create_study(sampler=sampler, storage=storage, study_name="s", load_if_exists=True)
    made.optimize(objective, n_trials=trials)
    return [{knob: trial.params[knob] for knob in KNOBS} for trial in made.trials]


def test_an_optuna_study_asks_what_the_search_asks_and_goes_on_from_its_storage() -> None:
    optuna = pytest.importorskip("optuna")
    asked = run(Search(space(), WISH), 8)
    assert study(StructureSampler(space(), WISH)) == asked
    storage = optuna.storages.InMemoryStorage()
    study(StructureSampler(space(), WISH), storage, 3)
    # Another process would begin with a sampler that has seen nothing.
    assert study(StructureSampler(space(), WISH), storage, 5) == asked


def wide(seed: int = 0, journal: Path | None = None) -> Search:
    knobs = {f"module{k}": [f"m{n}" for n in range(10)] for k in range(6)} | {"docs": list(range(10))}
    steps = [Step(f"s{k}", [f"module{k}"], [f"s{k - 1}"] if k else [], price_per_s=1.0) for k in range(6)]
    return Search(Space(knobs, steps), Wish(least_quality=0.8), seed=seed, journal=journal)


def answered(knobs: dict[str, object]) -> tuple[float, dict[str, float]]:
    size = [int(str(knobs[f"module{k}"])[1:]) for k in range(6)]
    quality = 0.5 + sum(0.008 * n for n in size) + 0.01 * int(str(knobs["docs"])) - 0.01 * abs(size[0] - size[3])
    return quality, {f"s{k}": 0.1 * 1.4**n for k, n in enumerate(size)}


@pytest.mark.slow
def test_ten_million_settings_are_searched_without_being_listed(tmp_path: Path) -> None:
    search, spent = wide(journal=tmp_path / "j.jsonl"), []
    for _ in range(25):
        before = time.process_time()
        trial = search.ask()
        spent.append(time.process_time() - before)
        search.tell(trial, *answered(dict(trial.knobs)))
    assert search.space.size == 10**7
    assert sorted(spent)[12] < 0.1, "no list of ten million is gone through"
    best = search.best()
    assert best is not None
    # The cheapest that complies of 20,000 at random costs 3.09.
    assert best.cost < 3.4
    following = search.ask().knobs
    search.close()
    again = wide(journal=tmp_path / "j.jsonl")
    assert again.ask().knobs == following
    assert search.front()
    again.close()


def ruled(**more: Any) -> Space:
    beyond = {
        "ranges": {"top": {"from": 1, "to": 4, "kind": "integer"}, "keep": {"from": 1, "to": 3, "kind": "integer"}},
        "matters": {"keep": {"rerank": ["on"]}},
        "rules": [{"if": {"model": ["small"]}, "then": {"top": [1, 2]}}],
        "rising": [["keep", "top"]],
        **more,
    }
    return Space({"model": ["small", "large"], "rerank": ["off", "on"]}, [Step("get", ["top"], price_per_s=1)], beyond)


def allowed(knobs: Mapping[str, Any]) -> bool:
    idle = knobs["rerank"] == "off"
    kept = knobs["keep"] == 1 if idle else knobs["keep"] <= knobs["top"]
    return kept and (knobs["model"] == "large" or knobs["top"] <= 2)


def test_rules_between_knobs_are_kept_and_every_setting_is_asked_once(tmp_path: Path) -> None:
    space = ruled()
    every = [dict(zip(space.knobs, row, strict=True)) for row in product(*space.knobs.values())]
    wanted = sorted(tuple(one.values()) for one in every if allowed(one))
    assert space.size == len(wanted) == 18
    search, asked = Search(space, Wish(least_quality=0.6), journal=tmp_path / "j.jsonl"), []
    for _ in range(space.size):
        trial = search.ask()
        asked.append(tuple(trial.knobs.values()))
        search.tell(trial, 0.3 + 0.1 * trial.knobs["top"], 0.1 * trial.knobs["top"])
    assert sorted(asked) == wanted
    with pytest.raises(HetplanError, match="every setting"):
        search.ask()
    best = search.best()
    assert best is not None
    assert best.knobs["top"] == 3
    search.close()
    with pytest.raises(InputError, match="another space"):
        Search(ruled(rising=[]), journal=tmp_path / "j.jsonl")
    assert Search(ruled(), Wish(least_quality=0.6), journal=tmp_path / "j.jsonl").best() == best


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"rules": [{"if": {"size": [1]}, "then": {"top": [1]}}]}, "no knob 'size'"),
        ({"ranges": {"top": {"from": 4, "to": 1}}}, "from less to more"),
        ({"rising": [["model", "top"]]}, "are no numbers"),
        ({"limits": {}}, "this format has no such key"),
    ],
)
def test_what_a_space_says_wrong_is_refused_by_its_place(more: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        ruled(**more)
    assert f"$.space.{next(iter(more))}" in str(refused.value)


def test_a_setting_that_a_rule_forbids_is_none_of_the_space() -> None:
    space = ruled()
    with pytest.raises(InputError, match="forbids"):
        space.number({"model": "small", "rerank": "off", "top": 4, "keep": 1})
    same = [space.number({"model": "large", "rerank": "off", "top": 4, "keep": keep}) for keep in (1, 3)]
    assert same[0] == same[1], "what does not matter makes no other setting"


def test_names_in_numbers_have_no_order() -> None:
    def near(space: Space) -> tuple[bool, ...]:
        return Search(space)._form.ordered

    assert near(Space({"seed": [1, 2, 3]})) == (True,)
    assert near(Space({"seed": [1, 2, 3]}, space={"unordered": ["seed"]})) == (False,)


def test_ten_million_settings_with_rules_are_searched() -> None:
    knobs = {f"m{k}": [f"x{n}" for n in range(10)] for k in range(7)}
    space = Space(knobs, space={"rules": [{"if": {"m0": ["x3", "x4"]}, "then": {"m1": ["x1", "x2"]}}]})
    search = Search(space, Wish(goal="quality"))
    for _ in range(12):
        trial = search.ask()
        assert trial.knobs["m0"] not in ("x3", "x4") or trial.knobs["m1"] in ("x1", "x2")
        search.tell(trial, 0.1 * sum(level == "x3" for level in trial.knobs.values()), 1.0)


KILLED_WIDE = """
import os, signal, sys
from tests.search.test_search import answered, million
search = million(sys.argv[1])
for _ in range(int(sys.argv[2])):
    trial = search.ask()
    search.tell(trial, *answered(dict(trial.knobs)))
search.ask()
os.kill(os.getpid(), signal.SIGKILL)
"""


def million(journal: str | None = None) -> Search:
    knobs = {f"module{k}": [f"m{n}" for n in range(10)] for k in range(6)} | {"docs": [0, 1]}
    steps = [Step(f"s{k}", [f"module{k}"], [f"s{k - 1}"] if k else [], price_per_s=1.0) for k in range(6)]
    return Search(Space(knobs, steps), Wish(least_quality=0.7), seed=5, journal=journal)


@pytest.mark.slow
def test_a_search_of_two_million_settings_is_killed_twice_and_asks_what_an_unbroken_one_asks(tmp_path: Path) -> None:
    journal = str(tmp_path / "wide.jsonl")
    for steps in (7, 6):
        ended = subprocess.run([sys.executable, "-c", KILLED_WIDE, journal, str(steps)], cwd=ROOT, check=False)
        assert ended.returncode == -9
    # A kill may leave half a line behind.
    with open(journal, "a", encoding="utf-8") as lines:
        lines.write('{"knobs": {"module0": "m')
    whole = million()
    assert whole.space.size == 2 * 10**6
    known = whole.space
    first = [(known.number(knobs), *answered(knobs)) for knobs in run(whole, 13, answered)]
    broken = million(journal)
    assert [(known.number(one.knobs), one.quality, dict(one.seconds)) for one in broken.journal] == first
    assert run(broken, 5, answered) == run(whole, 5, answered)
    assert len({number for number, *_ in first}) == 13
    broken.close()


MODULE = """
import os, sys, time
from pathlib import Path

from hetplan.search import Search, Space, Step, Wish

KNOBS = {"size": [1, 2, 4, 8], "model": ["a", "b", "c"]}
SPACE = Space(KNOBS, [Step("run", ["size", "model"], price_per_s=1.0)])
WISH = Wish(least_quality=0.6)


def measure(size, model):
    if (size, model) == (4, "c"):
        raise RuntimeError("out of memory")
    if (size, model) == (8, "c"):
        return {"quality": 0.9}
    return 0.5 + 0.03 * size + 0.1 * "abc".index(model), 0.01 * size * (1 + "abc".index(model))


def slow(size, model):
    time.sleep(0.05 * (1 + "abc".index(model)))
    begun = Path(sys.argv[1] + ".begun")
    if begun.exists():  # in the run that is begun again; elsewhere the words are another's
        begun.open("a").write("x")
    return measure(size, model)


def gone(size, model):
    os._exit(9) if size == 2 else measure(size, model)


def broken(size, model):
    raise RuntimeError("no such dataset")


if __name__ == "__main__":
    Search(SPACE, WISH, journal=sys.argv[1]).run(slow, steps=12, jobs=3)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Functions that measure, in a module, as they travel to other processes."""
    (tmp_path / "module_that_measures.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")])))
    yield importlib.import_module("module_that_measures")
    sys.modules.pop("module_that_measures")


def test_a_run_measures_all_that_it_is_allowed_and_leaves_what_fails(module: Any, tmp_path: Path) -> None:
    events: list[Event] = []
    search = Search(module.SPACE, module.WISH, journal=tmp_path / "journal.jsonl")
    best = search.run(module.measure, steps=12, on_event=events.append)
    assert best is not None
    assert best.knobs == {"size": 1, "model": "b"}
    failed = {one.knobs["size"]: one.failed for one in search.journal if one.failed}
    assert failed.keys() == {4, 8}
    assert failed[4] == "RuntimeError: out of memory"
    assert "seconds" in failed[8]
    assert [event.done for event in events] == [count / 12 for count in range(1, 13)]
    assert "1 of 12 settings, about" in events[0].detail
    assert "left" not in events[-1].detail
    asked = Search(module.SPACE, module.WISH)
    for one in search.journal:
        assert asked.ask().knobs == one.knobs, "one at a time is ask and tell"
        if one.failed:
            asked.tell_failed(one.knobs, one.failed)
        else:
            asked.tell(one.knobs, one.quality, one.seconds)


@pytest.mark.slow
@pytest.mark.parametrize("on", [None, "ray"])
def test_several_at_once_are_the_same_wherever_they_are_measured(
    module: Any, tmp_path: Path, on: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if on == "ray":
        pytest.importorskip("ray", reason="ray is not installed")
    bytes_ = []
    for name, fast, there in (("a", True, None), ("b", False, on)):
        monkeypatch.setattr(sys, "argv", ["measure", str(tmp_path / name)])
        search = Search(module.SPACE, module.WISH, journal=tmp_path / name)
        search.run(module.measure if fast else module.slow, steps=12, jobs=3, on=there)
        bytes_.append((tmp_path / name).read_bytes())
        search.close()
    assert bytes_[0] == bytes_[1]
    assert bytes_[0].count(b"together") == 4


@pytest.mark.slow
def test_after_kill_9_several_at_once_go_on_with_the_same_settings(module: Any, tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    command = [sys.executable, str(tmp_path / "module_that_measures.py")]
    subprocess.run([*command, str(whole)], check=True)
    process = subprocess.Popen([*command, str(cut)], start_new_session=True)
    waiting, until = tmp_path / "cut.waiting", time.monotonic() + 60
    while not (waiting.exists() and waiting.read_bytes().count(b"\n") >= 6) and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = waiting.read_bytes().count(b"\n") - 1
    assert cut.read_bytes() != whole.read_bytes(), "it was killed before its end"
    (tmp_path / "cut.begun").write_text("")
    subprocess.run([*command, str(cut)], check=True)
    assert cut.read_bytes() == whole.read_bytes()
    assert len((tmp_path / "cut.begun").read_text()) == 12 - done, "what was measured is not measured again"
    assert not waiting.exists()


@pytest.mark.slow
def test_a_process_that_ends_and_whoever_measures_nothing_right_are_said_so(module: Any) -> None:
    with pytest.raises(HetplanError, match="a process that worked ended before its work did"):
        Search(module.SPACE).run(module.gone, steps=12, jobs=2)
    if importlib.util.find_spec("ray") is not None:
        with pytest.raises(HetplanError, match="a worker of the cluster ended before its work did"):
            Search(module.SPACE).run(module.gone, steps=12, jobs=2, on="ray")
    with pytest.raises(HetplanError, match="none of 8 settings could be measured: RuntimeError: no such dataset"):
        Search(module.SPACE).run(module.broken, steps=12, jobs=2)


def test_a_measure_that_cannot_travel_is_refused(module: Any) -> None:
    with pytest.raises(InputError, match="Give a function of a module"):
        Search(module.SPACE).run(lambda size, model: (size, model), steps=4, jobs=2)


def test_a_run_that_is_stopped_asks_for_the_same_again(module: Any) -> None:
    cancel = threading.Event()
    search, whole = (Search(module.SPACE, module.WISH) for _ in range(2))
    with pytest.raises(Interrupted):
        search.run(module.measure, steps=12, cancel=cancel, on_event=lambda _event: cancel.set())
    assert len(search.journal) == 1
    search.run(module.measure, steps=12)
    whole.run(module.measure, steps=12)
    assert search.journal == whole.journal
