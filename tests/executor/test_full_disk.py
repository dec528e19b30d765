"""A disk that is really full: a small file system of its own, filled to the last byte."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from cases.deployments import Client, make_plan, make_worker, processes_of, wait_for

from hetplan.executor.deployment import Deployment
from hetplan.executor.kept_process import marked, notes
from hetplan.executor.target import ApplyFailed

pytestmark = pytest.mark.slow


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, check=False, text=True
    )
    if not made or made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip() if made else 'there is no mount'}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Take all the room that is left."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while file.write(b"x" * size) == size:
                    pass
    assert shutil.disk_usage(disk).free == 0
    return filler


def test_a_change_on_a_full_disk_is_undone_and_works_once_there_is_room(
    disk: Path, deploy: Callable[..., Deployment]
) -> None:
    deployment = deploy(state_dir=str(disk / "state"))
    before, after = make_plan(make_worker("w1", 2)), make_plan(make_worker("w2", 1))
    endpoint = deployment.apply(before).endpoint
    filler = fill(disk)
    with pytest.raises(ApplyFailed, match="No space left") as failed:
        deployment.apply(after)
    assert failed.value.exit_code == 7
    assert not deployment.difference(before)
    assert Client(endpoint).post()[1]["outcome"] == "served"
    filler.unlink()
    deployment.apply(after)
    assert not deployment.difference(after)
    assert deployment.unfinished() is None


def test_a_first_apply_on_a_full_disk_starts_nothing(disk: Path, deploy: Callable[..., Deployment]) -> None:
    deployment = deploy(state_dir=str(disk / "state"))
    deployment.folder.mkdir()
    fill(disk)
    with pytest.raises(ApplyFailed, match=r"No space left|does not come up"):
        deployment.apply(make_plan(make_worker("w1", 1)))
    assert deployment.observe() == ()
    deployment.down()


def test_down_works_on_a_full_disk(disk: Path, deploy: Callable[..., Deployment]) -> None:
    deployment = deploy(state_dir=str(disk / "state"))
    deployment.apply(make_plan(make_worker("w1", 2)))
    fill(disk)
    deployment.down()
    assert marked((deployment.folder / "targets" / "here").resolve()) == []
    assert deployment.observe() == ()


def test_a_worker_that_is_killed_on_a_full_disk_comes_back(disk: Path, deploy: Callable[..., Deployment]) -> None:
    deployment = deploy(state_dir=str(disk / "state"))
    endpoint = deployment.apply(make_plan(make_worker("w1", 1))).endpoint
    filler = fill(disk)
    folder = (deployment.folder / "targets" / "here").resolve()
    for word in ("hetplan.executor.serving.worker", "hetplan.executor.serving.router"):
        victim = processes_of(folder, word)[0]
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda word=word, victim=victim: victim not in processes_of(folder, word))  # type: ignore[misc]
    wait_for(lambda: not deployment.missing())
    assert Client(endpoint).post()[1]["outcome"] == "served"
    # The notes are right though nothing more fits on the disk, and another keeper goes on with what runs.
    router = Client(endpoint).get("/healthz")["pid"]
    assert any(note.pid == router for note in notes(folder))
    filler.unlink()
    os.kill(processes_of(folder, "hetplan.executor.keeper")[0], signal.SIGKILL)
    deployment.close()
    deployment.apply(make_plan(make_worker("w1", 1)))
    assert Client(endpoint).get("/healthz")["pid"] == router
