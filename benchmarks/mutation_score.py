"""How many small faults planted in the verifier's own code its tests find; or, with `--net`, in all code the net's.

    python benchmarks/mutation_score.py [--every N] [--seed S] [--only claims]
    python benchmarks/mutation_score.py --net [--faults 100] [--seed S] [--cpu-s 60]
    python benchmarks/mutation_score.py --net --again FILE

Each mutant (`benchmarks.mutants`) changes one thing of one module of `hetplan/verifier`. pytest collects the verifier's
tests once; then every mutant is planted in a forked process, where those tests that reach the changed statement run
until one fails: first those that found the mutants before it, then the quickest. What they let pass is listed.
`--every 1`, the default, tries every mutant.

With `--net` the faults are at random lines that twenty fixed commands run (`tests/golden/commands.py`), and the quick
tests of contracts, truth and golden figures look for them. A fault that changes no output of these commands does not
count. Compiled kernels are left out: a process keeps what was compiled. Of the tests that reach a line, one case of
each comes first, the quickest first; a fault that none finds in `--cpu-s` seconds of CPU time has survived. `--again`
tries those faults once more that a file names, which may be what an earlier run printed.

Tests keep what they solve in caches. A mutant begins with empty ones, and a test that reads what another one solved is
taken to reach what that one reached. The first try is of the code as it is, which has to pass.

On a mutant a test may take five seconds of CPU time and ten times what it takes on the code as it is. A mutant whose
test takes more does not end, which nobody overlooks: it counts as found, and how many there were is reported.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import math
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
WALL_S = 300
"""After so long by the clock a test that takes no CPU time waits for what never comes."""
CALLS = 10
"""How often a function is watched line by line in one test: a loop over queries takes hours where every call is."""

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
        print(f"{len(session.items)} tests, {cpu_s:.0f} s of CPU time on the code as it is, watched", flush=True)
        same = Path(str(importlib.import_module("hetplan.errors").__file__))
        as_it_is = Mutant("the code as it is", range(0), compile(same.read_text(), str(same), "exec"))
        if self._try(as_it_is, same, session.items, undisturbed) is not End.SURVIVED:
            raise pytest.UsageError("the tests fail in a process of their own on the code as it is")
        for mutant, path in self._mutants(random.Random(self.asked.seed)):
            end = self._try(mutant, path, session.items, undisturbed)
            self.ends.setdefault(path.stem, Counter())[end] += 1
            if end is not End.FOUND:
                print(f"{end.name.lower().replace('_', ' ')}: {_place(path)}{mutant.words}", flush=True)
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
        """Run all tests in this process: every mutant's begins with all that they have loaded."""
        found, watch = Undisturbed(), Watch(self.package)
        kept = {one: one.cache_info() for one in _caches("tests")}
        solved: dict[Any, tuple[set[Line], float]] = {}
        sys.settrace(watch)
        started = time.process_time()
        for _ in self._run(items):
            sys.settrace(None)
            lines, cpu_s = watch.take(), time.process_time() - started
            for one in _caches("tests"):
                before, now = kept.get(one), one.cache_info()
                if now.misses > (before.misses if before else 0):
                    had, took = solved.get(one, (set(), 0.0))
                    solved[one] = (had | lines, max(took, cpu_s))
                elif now.hits > (before.hits if before else 0):
                    had, took = solved.get(one, (set(), 0.0))
                    lines, cpu_s = lines | had, cpu_s + took
                kept[one] = now
            found.lines.append(lines)
            found.cpu_s.append(cpu_s)
            sys.settrace(watch)
            started = time.process_time()
        sys.settrace(None)
        return found

    def _try(self, mutant: Mutant, path: Path, items: list[pytest.Item], undisturbed: Undisturbed) -> End:
        numbers = undisturbed.reaching(path, mutant.lines)
        if not numbers:
            return End.SURVIVED
        cpu_s = undisturbed.cpu_s
        of_test, turn = Counter[str](), dict[int, tuple[int, float]]()
        for number in sorted(numbers, key=cpu_s.__getitem__):
            test = items[number].nodeid.partition("[")[0]
            turn[number] = (of_test[test], cpu_s[number])
            of_test[test] += 1
        finders = [number for number in self.finders if number in numbers]
        order = [*finders, *sorted(set(numbers) - set(finders), key=turn.__getitem__)]
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
        os.environ.pop("HETPLAN_TEST_RUN", None)  # where tests keep what the code as it is came to
        for one in (*_caches("tests"), *_caches("hetplan")):
            one.cache_clear()
        tests, end = self._run([items[number] for number in order]), time.process_time() + self.asked.cpu_s
        for number in order:
            if time.process_time() > end:
                return None
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
        for run in self.commands.values():
            run()  # what is loaded and cached once is there before anything is compared
        watch = Watch(self.package)
        sys.settrace(watch)
        self.outputs = {name: run() for name, run in self.commands.items()}
        sys.settrace(None)
        self.reached = sorted(line for line in watch.take() if not line[0].endswith("_kernels.py"))
        if _in_a_fork(lambda: self._differs()) is not False:
            raise pytest.UsageError("the commands say something else each time")
        return super().pytest_runtestloop(session)

    def _mutants(self, chance: random.Random) -> Iterator[tuple[Mutant, Path]]:
        """As many faults that change an output as were asked for; the others are passed over."""
        if self.asked.again is not None:
            yield from self._named(self.asked.again.read_text())
            return
        counted = 0
        chance.shuffle(self.reached)
        for file, line in self.reached:
            here = list(mutants(Path(file), line))
            if not here:
                continue
            mutant = chance.choice(here)
            if _in_a_fork(lambda: self._changes(mutant, Path(file))) is not False:  # noqa: B023
                counted += 1
                yield mutant, Path(file)
            if counted == self.asked.faults:
                return

    def _named(self, said: str) -> Iterator[tuple[Mutant, Path]]:
        """The faults whose words are in a text."""
        wanted = {line.partition(": ")[2] or line for line in said.splitlines()}
        for path in sorted(self.package.rglob("*.py")):
            if any(line.startswith(_place(path)) for line in wanted):
                yield from ((one, path) for one in mutants(path) if f"{_place(path)}{one.words}" in wanted)

    def _changes(self, mutant: Mutant, path: Path) -> bool:
        """Whether any command says something else with the fault; a command that does not end does."""
        try:
            plant(importlib.import_module(module_name(path)), mutant.code)
            return self._differs()
        except BaseException:
            return True

    def _differs(self) -> bool:
        for one in _caches("hetplan"):
            one.cache_clear()
        for name, run in self.commands.items():
            _allow(3 * SECONDS_MORE)
            if run() != self.outputs[name]:
                return True
        return False


class Watch:
    """What `sys.settrace` calls: the lines of a package that run."""

    def __init__(self, package: Path) -> None:
        self._here, self._lines, self._calls = str(package), set[Line](), dict[CodeType, int]()
        self._inside: dict[CodeType, bool] = {}

    def take(self) -> set[Line]:
        """The lines that ran since this was called last."""
        lines, self._lines, self._calls = self._lines, set(), {}
        return lines

    def __call__(self, frame: FrameType, _: str, __: object) -> Callable[..., Any] | None:
        code = frame.f_code
        inside = self._inside.get(code)
        if inside is None:
            inside = self._inside[code] = code.co_filename.startswith(self._here)
        if not inside:
            return None
        calls = self._calls[code] = self._calls.get(code, 0) + 1
        if calls > CALLS:
            return None
        file, lines = code.co_filename, self._lines

        def line(frame: FrameType, _: str, __: object) -> Callable[..., Any]:
            lines.add((file, frame.f_lineno))
            return line

        lines.add((file, frame.f_lineno))
        return line


def _caches(where: str) -> list[Any]:
    """Functions that keep what they returned, of the tests or of the package."""
    found = []
    for module in [one for one in sys.modules.values() if getattr(one, "__file__", None)]:
        if Path(module.__file__ or "").is_relative_to(ROOT / where):
            found += [one for one in vars(module).values() if hasattr(one, "cache_clear") and callable(one)]
    return list(dict.fromkeys(found))


def _place(path: Path) -> str:
    """The folder of a module as words of a fault begin with it."""
    return f"{path.parent.relative_to(ROOT / 'hetplan')}/"


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
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM):
        return End.TIMED_OUT
    return pickle.loads(said) if said else End.FOUND


def _allow(cpu_s: float) -> None:
    """So much CPU time from now on for this process, and `WALL_S` by the clock; the kernel ends it after that."""
    signal.alarm(WALL_S)
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
    parser.add_argument("--cpu-s", type=float, default=math.inf, help="for how long tests look for one fault")
    parser.add_argument("--again", type=Path, help="with --net: only the faults that this file names")
    asked = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    score = NetScore(asked) if asked.net else Score(asked)
    plainly = [
        "-o",
        "addopts=",
        "-m",
        "not slow and not longest and not alone",
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
