"""The tests that take too long for every run of `.ci/run`: all of them, with what each came to and took.

    python benchmarks/longest.py                 all, one after another
    python benchmarks/longest.py -k fleets       those whose names have this in them
    python benchmarks/longest.py --table FILE    those that the table has not as passed; their rows are added to it
    python benchmarks/longest.py --minutes 30    no test begins later

They take hours, so a table may be filled in several runs: each row names the commit that it is of. What a seed draws is
the same in all of them. The last table is in `docs/measured/longest.md`. Ends with 1 where a test failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAD = "| test | came to | seconds | commit |\n|---|---|---:|---|"


class Table:
    """Hears what the tests come to, and writes a row for each as it ends; leaves out those that have a good one."""

    def __init__(self, path: Path | None, minutes: float) -> None:
        self.path, self.end = path, time.monotonic() + 60 * minutes
        self.commit = _commit()
        self.seconds: dict[str, float] = {}
        self.is_over = self.failed = False
        before = path.read_text().splitlines() if path is not None and path.exists() else []
        self.rows = {row.split("`")[1]: row for row in before if "`" in row}
        print(HEAD, flush=True)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if "| passed |" not in self.rows.get(_name(item.nodeid), "")]

    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.monotonic() < self.end:
            return None
        self.is_over = True
        item.session.shouldstop = "the minutes are over"
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        self.failed = self.failed or report.failed
        if report.when == "call" or not report.passed:
            name, seconds = _name(report.nodeid), self.seconds[report.nodeid]
            self.rows[name] = f"| `{name}` | {report.outcome} | {seconds:.0f} | {self.commit} |"
            print(self.rows[name], flush=True)
            if self.path is not None:
                self.path.write_text("\n".join([HEAD, *sorted(self.rows.values()), ""]))


def _name(nodeid: str) -> str:
    """A test's name as a cell of a table has it."""
    return nodeid.removeprefix("tests/").replace("|", "/").replace("`", "'")


def _commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", metavar="WORDS", help="only tests whose names match (pytest's -k)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="a table of an earlier run, which goes on")
    parser.add_argument("--minutes", type=float, default=float("inf"), metavar="N", help="no test begins later")
    given = parser.parse_args()
    os.environ["HETPLAN_SAMPLE"] = "longest"
    table = Table(given.table, given.minutes)
    words = ["-o", "addopts=--import-mode=importlib", "-p", "no:terminal", "-m", "longest", str(ROOT / "tests")]
    code = pytest.main([*words, *(("-k", given.k) if given.k else ())], plugins=[table])
    print(f"\n{len(table.seconds)} tests, {sum(table.seconds.values()) / 60:.0f} minutes")
    return 1 if table.failed or (code not in (0, 1, 5) and not table.is_over) else 0


if __name__ == "__main__":
    sys.exit(main())
