"""Evaluators and journals that misbehave: endless answers, absurd numbers, what is no file, a disk that is full."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from hetplan.errors import InputError
from hetplan.measure.evaluator import LONGEST_LINE, MOST_UNASKED, EvaluationFailed, Guarded, Process
from hetplan.measure.journal import Journal

GOOD = {"score": 1.0, "seconds": {"cut": 0.1}}


@pytest.mark.parametrize("absurd", [1e308, 10**400, -(10**16)])
def test_what_no_measurement_can_be_is_refused(absurd: float) -> None:
    guarded = Guarded(lambda *_: {**GOOD, "seconds": {"cut": absurd}}, ("cut",), retries=0)
    with pytest.raises(EvaluationFailed):
        guarded({}, 0, 0)


@pytest.mark.parametrize("says", [f"'y' * {3 * LONGEST_LINE}", f"'0\\n' * {100 * MOST_UNASKED}"])
def test_who_says_too_much_is_not_listened_to(says: str) -> None:
    """Little of it is kept, however long it goes on, and none of it is taken for an answer."""
    source = f"import sys\nsys.stdout.write({says})\nsys.stdout.flush()\nsys.stdin.readline()"
    process = Process([sys.executable, "-c", source], None, 0)
    try:
        listener = process._listeners[0]
        listener.join(60)
        assert not listener.is_alive()
        assert process._lines.qsize() <= MOST_UNASKED + 1
        assert not process.quiet
        with pytest.raises(EvaluationFailed):
            Guarded(lambda *_: process.ask({}, 60.0), ("cut",), retries=0)({}, 0, 0)
    finally:
        process.end()


def test_a_journal_is_a_file(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/null")):
        with pytest.raises(InputError, match="this is none"):
            Journal(path)


def test_a_full_disk_is_named_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.add_plan("q", {"size": 1}, {"verdict": "pass"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, before[1]))
    try:
        with pytest.raises(InputError, match=r"journal\.jsonl.*File too large"):
            journal.add_plan("q", {"size": 2}, {"verdict": "pass"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    journal.close()
    kept = Journal(path)
    assert kept.plan("q", {"size": 1}) is not None
    assert kept.plan("q", {"size": 2}) is None
    kept.close()
