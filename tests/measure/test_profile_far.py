"""`hetplan profile --on ray`: cells of one machine one after the other, machines beside each other, all kept here."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hetplan.errors import InputError
from hetplan.measure.measure_file import Wish
from hetplan.measure.profile_cluster import lanes_of

MEASURE = """
format = "hetplan/measure/1.0"
[machines.one]
node = "bench"
pin = false
[machines.two]
node = "bench"
pin = false
threads = 2
[repeats]
min_runs = 5
max_runs = 8
max_s = 0.2
most_waited = 1.0
through = "nothing"
[tasks.classify]
[models.sleepy]
task = "classify"
callable = "sleepy:load"
axes = { batch = [1, 2] }
[models.broken]
task = "classify"
on = ["one"]
callable = "sleepy:broken"
"""

SLEEPY = """
import time
from pathlib import Path

def load():
    def prepare(point):
        Path(__file__).with_name("begun").open("a").write("x")
        return lambda: time.sleep(0.03 * point["batch"])
    return prepare

def broken():
    raise RuntimeError("no such weights")
"""


def node(number: int, address: str, **resources: float) -> dict[str, Any]:
    return {
        "NodeID": f"id-{number}", "NodeManagerAddress": address, "NodeManagerHostname": f"host-{address}",
        "Alive": True, "Resources": {"CPU": 2.0, **resources},
    }  # fmt: skip


def wish(**nodes: str | None) -> Wish:
    return Wish.model_validate({
        "format": "hetplan/measure/1.0", "machines": {name: {"node": at} for name, at in nodes.items()},
        "models": {"v": {"task": "t", "http": "http://127.0.0.1:1/x"}},
    })  # fmt: skip


def test_machines_run_beside_each_other_and_what_is_on_one_machine_in_turn() -> None:
    nodes = [node(1, "10.0.0.1", t4=1), node(2, "10.0.0.1", l4=1), node(3, "10.0.0.2", v5=1)]
    lanes = lanes_of(wish(a="t4", b="v5", c="l4", d="id-1", e="10.0.0.2", f="host-10.0.0.2"), nodes)
    assert [[(turn.node["NodeID"], turn.hardware) for turn in lane] for lane in lanes] == [
        [("id-1", ["a", "d"]), ("id-2", ["c"])],
        [("id-3", ["b", "e", "f"])],
    ]
    asked = wish(a="t4", engine=None)
    some = {name: one.model_copy(update={"on": ("a",)}) for name, one in asked.models.items()}
    assert len(lanes_of(asked.model_copy(update={"models": some}), nodes)) == 1, "an engine is asked from here"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (None, "every machine type says which node"),
        ("l4", "no node of the cluster is called so"),
        ("t4", "2 nodes of the cluster are"),
        ("gone", "no node of the cluster is called so"),
    ],
)
def test_a_node_that_is_not_one_is_refused_by_name(at: str | None, said: str) -> None:
    nodes = [node(1, "10.0.0.1", t4=1), node(2, "10.0.0.2", t4=1), {**node(3, "gone"), "Alive": False}]
    with pytest.raises(InputError, match=said) as raised:
        lanes_of(wish(a="id-1", b=at), nodes)
    assert "$.machines.b.node" in str(raised.value)
    assert "id-2" in str(raised.value)


def profile(folder: Path, *arguments: object) -> Any:
    from hetplan.cli.app import build_app

    (folder / "sleepy.py").write_text(SLEEPY)
    (folder / "measure.toml").write_text(MEASURE)
    words = ["profile", folder / "measure.toml", "-o", folder / "profile.json", *arguments]
    return CliRunner().invoke(build_app(), [str(word) for word in words])


def test_a_node_is_measured_nowhere_else(tmp_path: Path) -> None:
    ran = profile(tmp_path)
    assert ran.exit_code == 2
    assert "$.machines.one.node (found bench): it is a node of a cluster" in ran.stderr


@pytest.fixture
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    ray.init("local", num_cpus=2, resources={"bench": 1}, log_to_driver=False, include_dashboard=False)
    yield ray
    ray.shutdown()


@pytest.mark.slow
def test_cells_are_measured_on_the_node_kept_here_and_not_measured_again(tmp_path: Path, cluster: Any) -> None:
    ran = profile(tmp_path, "--on", "ray", "--json")
    assert ran.exit_code == 0, ran.output
    end = json.loads(ran.stdout.splitlines()[-1])
    assert (end["cells"], end["resumed"]) == (4, 0)
    assert [(one["at"], "no such weights" in one["why"]) for one in end["failed"]] == [("broken on one", True)]
    first = json.loads((tmp_path / "profile.json").read_text())
    assert [len(row) for row in (first["hardware"], first["variants"])] == [2, 1]
    assert (tmp_path / "begun").read_text() == "xxxx"
    journal = tmp_path / "profile.json.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    kept = [json.loads(line)["of"] for line in lines[1:]]
    assert [(of["hardware"], of["at"]["batch"]) for of in kept] == [("one", 1), ("one", 2), ("two", 1), ("two", 2)]
    # As after a kill in the third cell.
    journal.write_bytes(b"".join([*lines[:3], lines[3][:40]]))
    again = profile(tmp_path, "--on", "ray", "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout.splitlines()[-1])["resumed"] == 2
    assert (tmp_path / "begun").read_text() == "xxxxxx"
    assert journal.read_bytes().startswith(b"".join(lines[:3]))


@pytest.mark.slow
def test_a_cancel_keeps_what_is_done_and_the_node_stops(tmp_path: Path, cluster: Any) -> None:
    from hetplan.measure.journal import CellJournal
    from hetplan.measure.measure_file import read_wish
    from hetplan.measure.profile_cluster import measure_on_cluster
    from hetplan.planner.contract import Event
    from hetplan.planner.spread import RayCluster

    profile(tmp_path)  # writes the files
    asked, folder = read_wish(tmp_path / "measure.toml")
    cancel, journal, events = threading.Event(), CellJournal(), []

    def listen(event: Event) -> None:
        events.append(event)
        if event.done:
            cancel.set()

    found = measure_on_cluster(asked, folder, RayCluster("ray"), journal=journal, on_event=listen, cancel=cancel)
    assert not found.complete
    assert len(found.cells) >= 1, "what was finished is kept"
    assert found.resumed == 0
    assert 0 < events[-1].done <= 1
