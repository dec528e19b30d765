"""Laws from aiconfigurator: from one that is played here by a roofline, and from an installed one."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hetplan.errors import InputError
from hetplan.profiles.imports.aiconfigurator import convert
from hetplan.profiles.load_one import load_profile

WISH: dict[str, Any] = {
    "models": {"llama-8b": {"path": "meta-llama/Meta-Llama-3.1-8B"}},
    "gpus": {"h100": {"system": "h100_sxm", "backend": "vllm", "price_per_hour": "6.88"}},
}


class Engine:
    """A roofline with the manners of aiconfigurator's engine."""

    @classmethod
    def compile(cls, path: str, system: str, backend: str, *, backend_version: str, tp_size: int) -> Engine:
        assert (backend, backend_version, tp_size) == ("vllm", "9.9", 1)
        if system != "h100_sxm":
            raise KeyError(f"no data for {path} on {system}")
        return cls()

    def decode_step_latency(self, sequences: int, length: int, output: int) -> float:
        return self.mixed_step_latency(0, sequences, length, output)

    def mixed_step_latency(self, tokens: int, sequences: int, length: int, output: int) -> float:
        computing = 3.0 + 0.025 * (tokens + sequences) + 1e-6 * tokens * tokens / 2.0
        return max(computing, 8.0 + 5e-5 * sequences * (length + output / 2.0))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """An aiconfigurator of that engine alone; 70 GB of weights leave no room for KV."""

    def room(path: str, *_: Any, memory_fraction_kind: str, **__: Any) -> dict[str, float]:
        assert memory_fraction_kind == "of_total"
        if "70B" in path:
            raise ValueError("no KV budget")
        return {"total_kv_size_tokens": 400_000, "kv_size_per_token_bytes": 131_072}

    held = {
        "engine": {"EngineHandle": Engine}, "memory": {"estimate_kv_cache": room},
        "perf_database": {"get_latest_database_version": lambda *_: "9.9"},
    }  # fmt: skip
    for name in ("aiconfigurator_core", "aiconfigurator_core.sdk"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, content in held.items():
        module = ModuleType(f"aiconfigurator_core.sdk.{name}")
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)


def converted(folder: Path, wish: Any) -> dict[str, Any]:
    (folder / "wish.json").write_text(json.dumps(wish))
    return convert(folder / "wish.json")[0]


@pytest.mark.usefixtures("played")
def test_the_law_of_its_answers_is_found_again(tmp_path: Path) -> None:
    big = {"llama-70b": {"path": "meta-llama/Meta-Llama-3.1-70B"}}
    document = converted(tmp_path, {**WISH, "models": {**WISH["models"], **big}})
    profile = load_profile(document)
    assert list(profile.engines) == ["llama-8b-h100"], "the other does not fit"
    engine = profile.engines["llama-8b-h100"]
    assert engine.fitted.error < 0.01
    assert sorted(piece.base_ms for piece in engine.pieces) == pytest.approx([3.0, 8.0], rel=0.03)
    assert (engine.kv_tokens, engine.overlap, engine.fitted.tokens) == (400_000, "assumed", 8192)
    assert "vllm 9.9" in str(profile.sources["llama-8b-h100"].note)


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize(
    ("wish", "path"),
    [
        ([], "$"),
        ({**WISH, "models": {}}, "$.models"),
        ({**WISH, "models": {"m": {}}}, "$.models.m.path"),
        ({**WISH, "gpus": {"h100": {"system": "h100_sxm", "backend": 3}}}, "$.gpus.h100.backend"),
        ({**WISH, "gpus": {"h100": {**WISH["gpus"]["h100"], "memory": -1}}}, "$.gpus.h100.memory"),
        ({**WISH, "gpus": {"h100": {**WISH["gpus"]["h100"], "system": "z9"}}}, "$.gpus.h100"),
        ({**WISH, "most_seqs": "many"}, "$.most_seqs"),
        ({**WISH, "models": {"m": {"path": "x-70B"}}}, "$.models"),
    ],
)
def test_what_it_cannot_answer_is_refused_by_name(tmp_path: Path, wish: Any, path: str) -> None:
    with pytest.raises(InputError) as caught:
        converted(tmp_path, wish)
    assert caught.value.faults[0].path == path


@pytest.mark.skipif(importlib.util.find_spec("aiconfigurator_core") is not None, reason="aiconfigurator is installed")
def test_without_it_the_error_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pip install aiconfigurator"):
        converted(tmp_path, WISH)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("aiconfigurator_core") is None, reason="aiconfigurator is not installed")
def test_an_installed_one_gives_laws_near_its_own_answers(tmp_path: Path) -> None:
    engine = load_profile(converted(tmp_path, WISH)).engines["llama-8b-h100"]
    assert engine.fitted.error < 0.05
    assert 300_000 < engine.kv_tokens < 600_000
