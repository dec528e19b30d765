"""Files that must survive: half-written lines, missing records, locks of the dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hetplan.executor.durable import DeploymentLock, Journal, Record, write_durably
from hetplan.executor.target import DeploymentLocked


def test_a_journal_tells_how_far_an_apply_came(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.unfinished() is None
    journal.begin("sha256:abc", 3)
    journal.add(1, "begin", "start")
    journal.add(1, "end", "start")
    journal.add(2, "begin", "route")
    cut = journal.unfinished()
    assert cut is not None
    assert (cut.plan, cut.steps, cut.began, cut.ended) == ("sha256:abc", 3, 2, 1)
    assert "after step 1 of 3" in str(cut)
    journal.close()
    assert journal.unfinished() is None


@pytest.mark.parametrize("cut", [1, 5, 30])
def test_a_line_that_was_not_written_whole_did_not_happen(tmp_path: Path, cut: int) -> None:
    journal = Journal(tmp_path / "journal")
    journal.begin("p", 2)
    journal.add(1, "begin", "x")
    whole = journal.path.read_bytes()
    journal.add(1, "end", "x")
    journal.path.write_bytes(journal.path.read_bytes()[: len(whole) + cut])
    found = journal.unfinished()
    assert found is not None
    assert (found.began, found.ended) == (1, 0)


def test_a_journal_whose_first_line_is_missing_still_says_that_something_was_cut_off(tmp_path: Path) -> None:
    (tmp_path / "journal").write_bytes(b'{"plan": "p"')
    found = Journal(tmp_path / "journal").unfinished()
    assert found is not None
    assert found.plan == "an unknown plan"


def test_a_record_reads_back_and_a_spoilt_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert Record.read(path) is None
    record = Record("p", "t0", ({"name": "u"},), {"app": {}})
    write_durably(path, record.bytes())
    assert Record.read(path) == record
    path.write_bytes(path.read_bytes()[:40])
    assert Record.read(path) is None


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A real limit of the system, in a process of its own: no file may grow beyond 100 bytes."""
    path = tmp_path / "record.json"
    path.write_text("old")
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\n"
        "from hetplan.executor.durable import write_durably\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        f"write_durably(Path({str(path)!r}), b'x' * 1000)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, text=True)
    assert ran.returncode == 1
    assert "File too large" in ran.stderr
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]


def test_a_lock_names_its_holder_and_dies_with_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from hetplan.executor.durable import DeploymentLock\n"
        f"with DeploymentLock(Path({str(lock)!r}), holder='apply of x'):\n"
        "    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(DeploymentLocked, match=f"apply of x, process {holder.pid}"),
            DeploymentLock(lock, holder="me", wait_s=0.1),
        ):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with DeploymentLock(lock, holder="me"):
        assert f"me, process {os.getpid()}" in lock.read_text()
