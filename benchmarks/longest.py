"""The tests that take too long for every run of `.ci/run`: all of them, with what each came to and took.

    python benchmarks/longest.py                 all, one after another
    python benchmarks/longest.py -k fleets       those whose names have this in them

The last run of all is in `docs/measured/longest.md`. Ends with 1 where one failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


class Table:
    """Hears what the tests come to, and prints a line for each as it ends."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        self.failed = self.failed or report.failed
        if report.when == "call" or not report.passed:
            name = report.nodeid.removeprefix("tests/").replace("|", "/")
            print(f"| `{name}` | {report.outcome} | {self.seconds[report.nodeid]:.0f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", metavar="WORDS", help="only tests whose names match (pytest's -k)")
    given = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    print(f"{datetime.now(UTC):%Y-%m-%d}, commit {commit.strip() or 'unknown'}\n")
    print("| test | came to | seconds |\n|---|---|---:|", flush=True)
    table = Table()
    words = ["-o", "addopts=--import-mode=importlib", "-p", "no:terminal", "-m", "longest", str(ROOT / "tests")]
    code = pytest.main([*words, *(("-k", given.k) if given.k else ())], plugins=[table])
    print(f"\n{len(table.seconds)} tests, {sum(table.seconds.values()) / 60:.0f} minutes")
    return 1 if table.failed or code not in (0, 1) else 0


if __name__ == "__main__":
    sys.exit(main())
