"""Where compiled kernels are kept, and what a kernel and its parts are made of."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hetplan import compiled
from hetplan.registry import KERNELS, compile_ahead

PACKAGE = Path(compiled.__file__).parent


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one kernel file, in which `compiled` believes to live; and a user's cache beside it."""
    root = tmp_path / "package"
    (root / "dispatch").mkdir(parents=True)
    (root / "dispatch" / "one_kernels.py").write_text("first")
    (root / "compiled.py").write_text("")
    monkeypatch.setattr(compiled, "__file__", str(root / "compiled.py"))
    monkeypatch.setattr(compiled, "_users_cache", lambda: tmp_path / "user")
    monkeypatch.setattr(compiled, "cache_folder", compiled.cache_folder.__wrapped__)
    return root


def test_any_change_of_any_kernel_moves_the_cache(package: Path) -> None:
    first = compiled.cache_folder()
    assert compiled.cache_folder() == first
    (package / "dispatch" / "rules.py").write_text("no kernel")
    assert compiled.cache_folder() == first
    (package / "dispatch" / "one_kernels.py").write_text("second")
    second = compiled.cache_folder()
    (package / "simulator").mkdir()
    (package / "simulator" / "two_kernels.py").write_text("first")
    assert len({first, second, compiled.cache_folder()}) == 3


def test_caches_of_earlier_versions_are_cleared_but_for_the_last(package: Path) -> None:
    made = []
    for version in range(9):
        (package / "dispatch" / "one_kernels.py").write_text(str(version))
        made.append(Path(compiled.cache_folder() or ""))
    left = set((package / "__pycache__").iterdir())
    assert made[-1] in left
    assert len(left) <= 5


def test_a_package_that_cannot_be_written_to_keeps_its_kernels_with_the_user(package: Path, tmp_path: Path) -> None:
    (package / "__pycache__").write_text("a file where the folder would be")
    found = Path(compiled.cache_folder() or "")
    assert found.parent == tmp_path / "user"
    (found / "one").mkdir()
    (found / "one" / "kernel.nbc").write_bytes(b"12345")
    assert compiled.cache_size() == 5


def test_where_nothing_can_be_written_nothing_is_kept(package: Path, tmp_path: Path) -> None:
    (package / "__pycache__").write_text("")
    (tmp_path / "user").write_text("")
    assert compiled.cache_folder() is None
    assert compiled.cache_size() == 0


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the other platforms have places of their own")
def test_the_users_cache_is_where_the_desktop_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert compiled._users_cache() == Path("/somewhere/hetplan")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert compiled._users_cache() == Path.home() / ".cache" / "hetplan"


def test_a_function_without_a_file_is_compiled_all_the_same() -> None:
    scope: dict[str, object] = {}
    exec("def twice(number):\n    return 2 * number", scope)
    twice = compiled.kernel(scope["twice"])  # type: ignore[arg-type]
    assert twice(21) == 42  # type: ignore[call-arg]


def test_kernels_and_parts_are_in_files_that_the_cache_watches() -> None:
    marks = re.compile(r"^@(part|kernel|bare_kernel|summing_kernel)$|= (bare_|summing_)?kernel\(", re.MULTILINE)
    found = {
        path.name for path in PACKAGE.rglob("*.py") if marks.search(path.read_text()) and path.name != "compiled.py"
    }
    assert len(found) > 5
    assert all(name.endswith("_kernels.py") for name in found)


def test_every_part_says_the_types_of_its_numbers() -> None:
    """A part's result comes from its annotation: one that says nothing would only fail when it is first compiled."""
    for path in PACKAGE.rglob("*_kernels.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(ast.unparse(mark) == "part" for mark in node.decorator_list):
                said = ast.unparse(node.returns) if node.returns else ""
                assert re.fullmatch(
                    r"None|int|float|bool|np\.uint64|tuple\[(int|float|bool)(, (int|float|bool))*\]", said
                )


needs_numba = pytest.mark.skipif(not compiled.is_compiled(), reason="there is only the plain code here")


@compiled.part
def _halved(number: float, place: int) -> tuple[float, int]:
    return number / 2.0, place + 1


@compiled.part
def _noted(values: np.ndarray, place: int) -> None:
    values[place] = _halved(place, place)[0]


@needs_numba
def test_parts_take_the_types_that_they_say_and_numbers_divide_as_in_numpy() -> None:
    @compiled.kernel
    def total(values, narrow):  # type: ignore[no-untyped-def]
        _noted(values, narrow[0])
        _noted(values, 2)
        return _halved(3, 4)[0], _halved(1.0, narrow[0])[1], 1.0 / values[1]

    values = np.array([8.0, 0.0, 8.0])
    assert total(values, np.array([0], dtype=np.int32)) == (1.5, 1, np.inf)
    assert values.tolist() == [0.0, 0.0, 1.0]
    assert _halved(3, 4) == (1.5, 5), "Python calls the function itself"


@pytest.mark.slow
@needs_numba
def test_a_kernel_is_ready_once_it_was_compiled(tmp_path: Path) -> None:
    source = tmp_path / "readiness.py"
    source.write_text(
        "import sys\n"
        "from hetplan import compiled\n"
        f"compiled.cache_folder = lambda: {str(tmp_path / 'kept')!r}\n"
        "@compiled.kernel\ndef once(number): return number + 1\n"
        "before = compiled.is_ready(once)\nonce(1)\nprint(before, compiled.is_ready(once))\n"
    )
    for expected in ("False True", "True True"):
        env = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
        ran = subprocess.run([sys.executable, source], capture_output=True, text=True, check=True, env=env)
        assert ran.stdout.strip() == expected


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("what", KERNELS)
def test_everything_that_is_compiled_ahead_compiles(what: str) -> None:
    compile_ahead(what)
