"""Where compiled kernels are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetplan.dispatch import compiled


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one kernel file, in which `compiled` believes to live."""
    (tmp_path / "dispatch").mkdir()
    (tmp_path / "dispatch" / "one_kernels.py").write_text("first")
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "dispatch" / "compiled.py"))
    monkeypatch.setattr(compiled, "_cache_folder", compiled._cache_folder.__wrapped__)
    return tmp_path


def test_any_change_of_any_kernel_moves_the_cache(package: Path) -> None:
    first = compiled._cache_folder()
    assert compiled._cache_folder() == first
    (package / "dispatch" / "rules.py").write_text("no kernel")
    assert compiled._cache_folder() == first
    (package / "dispatch" / "one_kernels.py").write_text("second")
    second = compiled._cache_folder()
    (package / "simulator").mkdir()
    (package / "simulator" / "two_kernels.py").write_text("first")
    assert len({first, second, compiled._cache_folder()}) == 3


def test_caches_of_earlier_versions_are_cleared_but_for_the_last(package: Path) -> None:
    made = []
    for version in range(9):
        (package / "dispatch" / "one_kernels.py").write_text(str(version))
        folder = Path(compiled._cache_folder())
        folder.mkdir(parents=True)
        made.append(folder)
    left = set((package / "dispatch" / "__pycache__").iterdir())
    assert made[-1] in left
    assert len(left) <= 5


def test_a_function_without_a_file_is_compiled_all_the_same() -> None:
    scope: dict[str, object] = {}
    exec("def twice(number):\n    return 2 * number", scope)
    twice = compiled.kernel(scope["twice"])  # type: ignore[arg-type]
    assert twice(21) == 42  # type: ignore[call-arg]
