"""The keeper is killed between two applies: whatever the next plan changes, the first try brings it about."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from build import Files, app, files, machine, model
from face import solve
from hosts_face import Hosted

pytestmark = pytest.mark.slow

MODELS = {"quick": 2.0, "good": 4.0, "best": 6.0}


def wish_of(name: str, count: int) -> Files:
    """So many machines that run this model; their machines stay the same when the model changes."""
    return files(
        machines={"box": machine(0.1, stock=8, kind="cpu")},
        models={one: model({"box": {1: ms}}, task="see") for one, ms in MODELS.items()},
        apps={"images": app(name, limits={99: 100.0}, sizes={1: 1.0})},
        problem="pool",
    ).limited(cost=9.0, counts={"box": (count, count)})


def kill(hosted: Hosted, what: str, most: int = 99) -> None:
    """kill -9, and wait until it is gone."""
    gone = hosted.processes(what)[:most]
    for one in gone:
        os.kill(one, signal.SIGKILL)
    until = time.monotonic() + 20.0
    while set(gone) & set(hosted.processes(what)) and time.monotonic() < until:
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("models", "counts", "dead"),
    [
        (["quick", "good", "best", "quick"], [2, 2, 2, 2], []),  # changed in place
        (["quick", "good", "good", "best"], [2, 3, 1, 2], []),  # changed, and more or fewer of them
        (["quick", "good", "best"], [2, 2, 2], ["worker"]),  # one machine's process ended too
        (["quick", "good", "best"], [1, 1, 1], ["worker", "router"]),  # nothing is left
    ],
    ids=["in place", "more and fewer", "one worker dead too", "all dead"],
)
def test_what_the_next_plan_changes_is_changed_at_the_first_try(
    tmp_path: Path, models: list[str], counts: list[int], dead: list[str]
) -> None:
    plans = [solve(wish_of(name, count), "fluid").plan or {} for name, count in zip(models, counts, strict=True)]
    with Hosted(tmp_path, wish_of(models[0], counts[0])) as hosted:
        assert hosted.apply(plans[0]).code == 0
        for name, count, plan in zip(models[1:], counts[1:], plans[1:], strict=True):
            kill(hosted, "keeper")
            for what in dead:
                kill(hosted, what, 1 if what == "worker" else 99)
            kept = set(hosted.processes("worker"))
            ran = hosted.apply(plan)
            assert ran.code == 0, ran.out + ran.err
            assert hosted.processes("keeper")
            assert len(hosted.processes("worker")) == count
            assert kept & set(hosted.processes("worker")) or dead, "what could stay did"
            workers = hosted.processes("worker")
            asked = [hosted.ask("images") for _ in range(4 * count)]
            assert {(outcome, by) for outcome, _, by in asked} == {("served", name)}
            assert hosted.apply(plan).code == 0
            assert set(hosted.processes("worker")) == set(workers), "nothing was left to do"
