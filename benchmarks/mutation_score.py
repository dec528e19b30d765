"""How many small faults planted in the verifier's own code its tests find; or, with `--net`, in all code the net's.

    python benchmarks/mutation_score.py [--every N] [--seed S] [--only claims]
    python benchmarks/mutation_score.py --net [--faults 100] [--seed S]

Each mutant (`benchmarks.mutants`) changes one thing of one module of `hetplan/verifier`. pytest collects the verifier's
tests once; then every mutant is planted in a forked process, where those tests that reach the changed statement run
until one fails: first those that found the mutants before it, then the quickest. What they let pass is listed.
`--every 1`, the default, tries every mutant.

With `--net` the faults are at random lines that twenty fixed commands run (`tests/golden/commands.py`), and the quick
tests of contracts, truth and golden figures look for them. A fault that changes no output of these commands does not
count. Compiled kernels are left out: a process keeps what was compiled.

On a mutant a test may take five seconds of CPU time and ten times what it takes on the code as it is. A mutant whose
test takes more does not end, which nobody overlooks: it counts as found, and how many there were is reported.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.mutants import Mutant, mutants

PACKAGE = ROOT / "hetplan" / "verifier"
NET = [ROOT / "tests" / part for part in ("contracts", "truth", "golden")]
TESTS = [ROOT / "tests" / "verifier", *sorted((ROOT / "tests" / "problems").glob("*/test_verifi*.py"))]
SECONDS_MORE = 5
TIMES_AS_LONG = 10
LAST_FINDERS = 20

Line = tuple[str, int]


class End(Enum):
    """How the tests of a mutant ended."""

    FOUND = 1
    SURVIVED = 2
    TIMED_OUT = 3


@dataclass
class Undisturbed:
    """What each test did on the code as it is, by its number in the collection."""

    lines: list[set[Line]] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def reaching(self, path: Path, lines: range) -> list[int]:
        """The tests that run one of these lines of a file; of any line, where the range is empty."""
        wanted = {(str(path), line) for line in lines}
        if not wanted:
            wanted = {line for reached in self.lines for line in reached if line[0] == str(path)}
        return [number for number, reached in enumerate(self.lines) if not wanted.isdisjoint(reached)]


class Score:
    """A pytest plugin that, in place of running the tests once, runs them on mutants."""

    package = PACKAGE

    def __init__(self, asked: argparse.Namespace) -> None:
        self.asked = asked
        self.ends: dict[str, Counter[End]] = {}
        self.finders: list[int] = []
        self.failed = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        undisturbed = self._trace(session.items)
        if self.failed:
            raise pytest.UsageError(f"the tests fail on the code as it is: {self.failed}")
        gc.freeze()  # What is there now is garbage in no process, and stays shared by all.
        cpu_s = sum(undisturbed.cpu_s)
        print(f"{len(session.items)} tests, {cpu_s:.0f} s of CPU time on the code as it is", flush=True)
        for mutant, path in self._mutants(random.Random(self.asked.seed)):
            end = self._try(mutant, path, session.items, undisturbed)
            self.ends.setdefault(path.stem, Counter())[end] += 1
            if end is not End.FOUND:
                print(f"{end.name.lower().replace('_', ' ')}: {mutant.words}", flush=True)
        return True

    def _mutants(self, chance: random.Random) -> Iterator[tuple[Mutant, Path]]:
        for path in sorted(self.package.glob("*.py")):
            for mutant in mutants(path) if self.asked.only in path.stem else ():
                if chance.randrange(self.asked.every) == 0:
                    yield mutant, path

    def _run(self, items: list[pytest.Item]) -> Iterator[None]:
        """Run tests, each when it is asked for, until one fails."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield
            if self.failed:
                return

    def _trace(self, items: list[pytest.Item]) -> Undisturbed:
        """Run all tests in this process: every mutant's begins with all that they have loaded and cached."""
        found, here = Undisturbed(), str(self.package)
        reached: set[Line] = set()

        def watch(frame: FrameType, _: str, __: object) -> Callable[..., Any] | None:
            if not frame.f_code.co_filename.startswith(here):
                return None
            reached.add((frame.f_code.co_filename, frame.f_lineno))
            return watch

        started = time.process_time()
        sys.settrace(watch)
        for _ in self._run(items):
            found.lines.append(set(reached))
            found.cpu_s.append(time.process_time() - started)
            reached.clear()
            started = time.process_time()
        sys.settrace(None)
        return found

    def _try(self, mutant: Mutant, path: Path, items: list[pytest.Item], undisturbed: Undisturbed) -> End:
        numbers = undisturbed.reaching(path, mutant.lines)
        if not numbers:
            return End.SURVIVED
        cpu_s = undisturbed.cpu_s
        of_file = Counter[Path]()
        for number in numbers:
            of_file[items[number].path] += cpu_s[number]

        def turn(number: int) -> tuple[float, ...]:
            # One file after the other, because fixtures are kept for a file.
            return of_file[items[number].path], cpu_s[number]

        finders = [number for number in self.finders if number in numbers]
        order = [*finders, *sorted(set(numbers) - set(finders), key=turn)]
        finder = _in_a_fork(lambda: self._find(mutant, path, items, order, undisturbed))
        if isinstance(finder, int) and finder >= 0:
            self.finders = [finder, *(number for number in self.finders if number != finder)][:LAST_FINDERS]
        if finder is End.TIMED_OUT:
            return End.TIMED_OUT
        return End.SURVIVED if finder is None else End.FOUND

    def _find(
        self, mutant: Mutant, path: Path, items: list[pytest.Item], order: list[int], undisturbed: Undisturbed
    ) -> int | None:
        """The first test that a mutant fails; None where it passes all, -1 where it does not even load."""
        try:
            plant(importlib.import_module(module_name(path)), mutant.code)
        except BaseException:
            return -1
        tests = self._run([items[number] for number in order])
        for number in order:
            _allow(SECONDS_MORE + TIMES_AS_LONG * undisturbed.cpu_s[number])
            next(tests, None)
            if self.failed:
                return number
        return None


class NetScore(Score):
    """The same for the whole package, at lines that the golden commands run."""

    package = ROOT / "hetplan"

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        from golden.commands import golden_commands

        self.commands = golden_commands(Path(tempfile.mkdtemp()))
        reached: set[Line] = set()

        def watch(frame: FrameType, _: str, __: object) -> Callable[..., Any] | None:
            if not frame.f_code.co_filename.startswith(str(self.package)):
                return None
            reached.add((frame.f_code.co_filename, frame.f_lineno))
            return watch

        for run in self.commands.values():
            run()  # what is loaded and cached once is there before anything is compared
        sys.settrace(watch)
        self.outputs = {name: run() for name, run in self.commands.items()}
        sys.settrace(None)
        self.reached = sorted(line for line in reached if not line[0].endswith("_kernels.py"))
        return super().pytest_runtestloop(session)

    def _mutants(self, chance: random.Random) -> Iterator[tuple[Mutant, Path]]:
        """As many faults that change an output as were asked for; the others are passed over."""
        counted = 0
        chance.shuffle(self.reached)
        for file, line in self.reached:
            here = [mutant for mutant in mutants(Path(file)) if line in mutant.lines]
            if not here:
                continue
            mutant = chance.choice(here)
            if _in_a_fork(lambda: self._changes(mutant, Path(file))) is not False:  # noqa: B023
                counted += 1
                yield mutant, Path(file)
            if counted == self.asked.faults:
                return

    def _changes(self, mutant: Mutant, path: Path) -> bool:
        """Whether any command says something else with the fault; a command that does not end does."""
        try:
            plant(importlib.import_module(module_name(path)), mutant.code)
            for name, run in self.commands.items():
                _allow(3 * SECONDS_MORE)
                if run() != self.outputs[name]:
                    return True
        except BaseException:
            return True
        return False


def module_name(path: Path) -> str:
    """The name by which a file of the package is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _in_a_fork(work: Callable[[], object]) -> object:
    """What `work` returns, done in a process of its own, which leaves this one as it was."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            _silence()
            with os.fdopen(writing, "wb") as file:
                pickle.dump(work(), file)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        said = file.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        return End.TIMED_OUT
    return pickle.loads(said) if said else End.FOUND


def _allow(cpu_s: float) -> None:
    """So much CPU time from now on for this process; the kernel ends it after that."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time() + cpu_s) + 1, resource.RLIM_INFINITY))


def _silence() -> None:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


def plant(module: ModuleType, code: CodeType) -> None:
    """Put a mutant in place of a module: its functions get the mutant's code, whoever has imported them."""
    fresh = ModuleType(module.__name__)
    fresh.__package__, fresh.__file__ = module.__package__, module.__file__
    exec(code, vars(fresh))
    for name in [name for name in vars(module) if name not in vars(fresh) and not name.startswith("__")]:
        delattr(module, name)
    for name, new in vars(fresh).items():
        old = vars(module).get(name)
        if isinstance(new, type) and new.__module__ == module.__name__ and isinstance(old, type):
            for part, value in vars(new).items():
                if not _same_function(vars(old).get(part), value) and not part.startswith("__"):
                    setattr(old, part, value)
        elif not _same_function(old, new) and not name.startswith("__"):
            for other in [one for one in [*sys.modules.values()] if one.__name__.startswith("hetplan")]:
                if vars(other).get(name, other) is old:
                    setattr(other, name, new)


def _same_function(old: object, new: object) -> bool:
    """Whether both are functions; then the old one does from now on what the new one does."""
    old, new = (_function(one) for one in (old, new))
    if not isinstance(old, FunctionType) or not isinstance(new, FunctionType):
        return False
    if len(old.__code__.co_freevars) == len(new.__code__.co_freevars):
        old.__code__ = new.__code__
    old.__defaults__, old.__kwdefaults__ = new.__defaults__, new.__kwdefaults__
    return True


def _function(thing: object) -> object:
    """The function behind a property, a cached property or a method of a class."""
    for inside in ("fget", "func", "__func__"):
        thing = getattr(thing, inside, thing)
    return thing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="try one in so many mutants")
    parser.add_argument("--seed", type=int, default=0, help="which of them")
    parser.add_argument("--only", default="", help="modules whose names contain this")
    parser.add_argument("--net", action="store_true", help="faults in all code, found by the net")
    parser.add_argument("--faults", type=int, default=100, help="with --net: how many that change an output")
    asked = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    score = NetScore(asked) if asked.net else Score(asked)
    plainly = [
        "-o",
        "addopts=",
        "-m",
        "not slow and not longest",
        "--import-mode=importlib",
        "--rootdir",
        str(ROOT),
        "-s",
    ]
    quietly = [part for name in ("terminal", "cacheprovider", "faulthandler") for part in ("-p", f"no:{name}")]
    code = pytest.main([*plainly, *quietly, *map(str, NET if asked.net else TESTS)], plugins=[score])
    for module, ends in score.ends.items():
        print(f"{module:16} {ends.total() - ends[End.SURVIVED]:4} of {ends.total():4} found")
    total = sum(score.ends.values(), Counter[End]())
    found = total[End.FOUND] + total[End.TIMED_OUT]
    print(f"score {found / max(total.total(), 1):.1%} of {total.total()} mutants, {total[End.TIMED_OUT]} timed out")
    return int(code)


if __name__ == "__main__":
    raise SystemExit(main())
