"""The commands that touch hosts, as people call them."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

ROOT = Path(__file__).resolve().parents[2]
HOSTS = """
state_dir = "state"
limits = {call_s = 60.0}
router = {port = 0}
[targets.here]
kind = "local"
[hosts.box]
target = "here"
machines = "cpu"
count = 2
[models."*"]
kind = "sleep"
ms = 1.0
[evaluators.other]
command = ["left", "alone"]
"""


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


def hetplan(*words: str, folder: Path) -> Ran:
    """A command in that folder, in the process of the tests: what it starts goes on by itself all the same."""
    from hetplan.cli.app import build_app

    hosts = () if "--site" in words or words[0] == "diff" else ("--site", "site.toml")
    with chdir(folder):
        ran = CliRunner().invoke(build_app(), [*words, *hosts])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    return Ran(ran.exit_code, ran.stdout, ran.stderr)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    sys.path.insert(0, str(ROOT / "tests"))
    from cases.deployments import make_plan, make_worker

    from hetplan.profiles.plan_file import write_plan

    (tmp_path / "site.toml").write_text(HOSTS)
    write_plan(make_plan(make_worker("w1", 2)), tmp_path / "plan.json")
    write_plan(make_plan(make_worker("w1", 3)), tmp_path / "large.json")
    yield tmp_path
    hetplan("down", "--yes", "--wait", "60", folder=tmp_path)


def test_from_nothing_to_serving_and_back(folder: Path) -> None:
    shown = hetplan("apply", "plan.json", folder=folder)
    assert shown.returncode == 0
    assert "2 x w1" in shown.stdout
    assert "nothing was touched" in shown.stdout
    assert hetplan("diff", "plan.json", "--site", "site.toml", "--exit-code", folder=folder).returncode == 8
    done = hetplan("apply", "plan.json", "--yes", "--json", folder=folder)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["command"] == "apply"
    assert lines[-1]["endpoint"].startswith("http://127.0.0.1:")
    assert hetplan("diff", "plan.json", "--site", "site.toml", "--exit-code", folder=folder).returncode == 0
    state = json.loads(hetplan("status", "--json", "--over", "0", folder=folder).stdout)
    assert state["format"] == "hetplan/state/1.0"
    assert state["observed"]["w1.a"]["status"] == "active"
    assert "2 units would be stopped" in hetplan("down", folder=folder).stdout
    assert "nothing is left" in hetplan("down", "--yes", folder=folder).stdout
    assert "nothing runs" in hetplan("status", folder=folder).stdout


@pytest.mark.slow
def test_undo_is_shown_first_and_done_with_yes(folder: Path) -> None:
    from cases.deployments import make_plan, make_worker

    from hetplan.errors import Interrupted
    from hetplan.executor.deployment import Deployment, Progress
    from hetplan.executor.site import read_site

    assert hetplan("apply", "plan.json", "--yes", folder=folder).returncode == 0
    cancel = threading.Event()

    def cut_off(event: Progress) -> None:
        if event.kind == "done":
            cancel.set()

    with Deployment(read_site(folder / "site.toml")) as deployment:
        with pytest.raises(Interrupted, match="apply --undo --yes goes back"):
            deployment.apply(make_plan(make_worker("w2", 1)), on_event=cut_off, cancel=cancel)
        left = {seen.name for seen in deployment.observe()}
        shown = hetplan("apply", "--undo", "--json", folder=folder)
        assert shown.returncode == 0
        printed = [json.loads(line) for line in shown.stdout.splitlines()]
        assert printed[-1]["changes"] > 0
        assert "nothing was touched" in printed[-1]["exit"]["reason"]
        assert {seen.name for seen in deployment.observe()} == left
        assert deployment.unfinished() is not None
        assert hetplan("apply", "--undo", "--yes", folder=folder).returncode == 0
        assert deployment.unfinished() is None
    assert hetplan("diff", "plan.json", "--site", "site.toml", "--exit-code", folder=folder).returncode == 0


@pytest.mark.slow
def test_what_the_hosts_cannot_give_is_bad_input_and_touches_nothing(folder: Path) -> None:
    ran = hetplan("apply", "large.json", "--yes", folder=folder)
    assert ran.returncode == 2
    assert "room for 2 of them" in ran.stderr
    assert not (folder / "state" / "journal.jsonl").exists()


@pytest.mark.slow
def test_what_cannot_be_reached_is_seven(folder: Path) -> None:
    """The command starts, and ends at once."""
    broken = HOSTS.replace('kind = "sleep"\nms = 1.0', f'kind = "command"\ncommand = ["{sys.executable}", "-c", "0"]')
    (folder / "site.toml").write_text(broken)
    ran = hetplan("apply", "plan.json", "--yes", folder=folder)
    assert ran.returncode == 7
    assert "ended without an answer" in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [("apply",), ("apply", "plan.json", "--undo"), ("diff", "plan.json")])
def test_words_that_make_no_sense_are_bad_usage(folder: Path, words: tuple[str, ...]) -> None:
    ran = hetplan(*words, "--json", folder=folder)
    assert ran.returncode == 2
    assert "exit" in json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.slow
def test_status_names_what_is_missing_and_keep_brings_it_back(folder: Path) -> None:
    from cases.deployments import processes_of, wait_for

    assert hetplan("apply", "plan.json", "--yes", folder=folder).returncode == 0
    target = (folder / "state" / "targets" / "here").resolve()
    for word in ("keeper", "serving.worker"):
        victim = processes_of(target, f"hetplan.executor.{word}")[0]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda word=word, victim=victim: victim not in processes_of(target, f"hetplan.executor.{word}"))  # type: ignore[misc]
    ran = hetplan("status", "--over", "0", folder=folder)
    assert ran.returncode == 7
    assert "does not run" in ran.stderr
    assert "no keeper watches it" in ran.stderr
    assert hetplan("apply", "--restore", folder=folder).returncode == 0
    wait_for(lambda: hetplan("status", "--over", "0", folder=folder).returncode == 0)
    units = hetplan("apply", "--restore", "--systemd", str(folder), "--json", folder=folder)
    assert units.returncode == 0
    written = folder / "hetplan-hetplan-here.service"
    assert str(written) in units.stdout
    assert "Restart=always" in written.read_text()


@pytest.mark.parametrize(("name", "why"), [("absent.toml", "No such file or directory"), (".", "Is a directory")])
def test_hosts_that_cannot_be_read_are_named_with_the_remedy(folder: Path, name: str, why: str) -> None:
    ran = hetplan("apply", "plan.json", "--site", name, folder=folder)
    assert ran.returncode == 2
    assert ran.stderr == f"error: {name}: it cannot be read: {why}. Give a TOML file.\n"
