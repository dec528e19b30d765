"""Measures README's tests and writes `tests/over_a_tenth.txt`: those whose cases take over a tenth of a CPU second.

    python benchmarks/quick_tests.py

Of these README's command runs one in eight, other ones each day (`tests/conftest.py`); `.ci/run` runs all. A test that
is new or renamed is quick until this is run again.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "over_a_tenth.txt"
MOST_S = 0.1
"""CPU seconds that a quick case takes at most, in the mean over the cases of a test."""


class Stopwatch:
    """Hears how many CPU seconds each case takes, with the processes that it starts and waits for."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = sum(os.times()[:4])
        result = yield
        self.seconds[item.nodeid.partition("[")[0]].append(sum(os.times()[:4]) - before)
        return result


def main() -> int:
    LIST.unlink(missing_ok=True)
    watch = Stopwatch()
    code = pytest.main(["-n", "0", "-q", "-p", "no:cacheprovider", str(ROOT / "tests")], plugins=[watch])
    over = [name for name, each in watch.seconds.items() if sum(each) / len(each) > MOST_S]
    LIST.write_text("".join(f"{name}\n" for name in sorted(over)))
    spent, left = (sum(sum(watch.seconds[name]) for name in names) for names in (watch.seconds, over))
    print(f"{len(watch.seconds)} tests, {spent:.0f} CPU s; {len(over)} of them over {MOST_S} s, {left:.0f} CPU s")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
