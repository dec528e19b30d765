"""Laws from aiconfigurator: from one that is played here, and from an installed one."""

from __future__ import annotations

import importlib.util
import json
import math
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
    """Kernels that add up, with the manners of aiconfigurator's engine; those of a mixture as few as tokens touch."""

    def __init__(self, experts_ms: float) -> None:
        self.experts_ms = experts_ms

    @classmethod
    def compile(
        cls, path: str, system: str, backend: str, *, backend_version: str, tp_size: int, moe_tp_size: int = 1,
        moe_ep_size: int = 1,
    ) -> Engine:  # fmt: skip
        assert (backend, backend_version) == ("vllm", "9.9")
        if system != "h100_sxm":
            raise KeyError(f"no data for {path} on {system}")
        if "MoE" in path and moe_tp_size * moe_ep_size != tp_size:
            raise ValueError("Parallelism width mismatch")
        return cls(12.0 / tp_size + (1.0 if moe_ep_size > 1 else 0.0) if "MoE" in path else 0.0)

    def decode_step_latency(self, sequences: int, length: int, output: int) -> float:
        return self.mixed_step_latency(0, sequences, length, output)

    def mixed_step_latency(self, tokens: int, sequences: int, length: int, output: int) -> float:
        reading = 8.0 + self.experts_ms * (1.0 - math.exp(-0.06 * (tokens + sequences)))
        computing = 0.025 * max(tokens + sequences - 128, 0) + 1e-6 * tokens * tokens / 2.0
        return reading + computing + 5e-5 * sequences * (length + output / 2.0)


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
    law = engine.law
    assert law is not None
    assert law.fit_error is not None
    assert law.fit_error[1] < 0.01
    assert (law.base_ms, law.tokens_from, law.experts_ms) == (pytest.approx(8.0, rel=0.01), 128, 0.0)
    assert (law.basis, law.error_mean, engine.request_ms) == ("grid", 0.12, 35.0)
    assert (engine.kv_tokens, engine.reach.tokens) == (400_000, 8192)
    assert "vllm 9.9" in str(profile.sources["llama-8b-h100"].note)


@pytest.mark.usefixtures("played")
@pytest.mark.parametrize(("parallel", "experts_ms"), [("tp", 6.0), ("ep", 7.0)])
def test_a_mixture_of_experts_is_asked_for_as_its_experts_are_split(
    tmp_path: Path, parallel: str, experts_ms: float
) -> None:
    card = {**WISH["gpus"]["h100"], "gpus": 2, "parallel": parallel}
    document = converted(tmp_path, {"models": {"moe": {"path": "some/MoE"}}, "gpus": {"h100": card}})
    engine = load_profile(document).engines["moe-h100"]
    assert engine.gpus == 2
    assert engine.experts == (pytest.approx(experts_ms, rel=0.05), pytest.approx(0.06, rel=0.2))


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
    assert engine.law is not None
    assert engine.law.fit_error is not None
    assert engine.law.fit_error[0] < 0.05
    assert 300_000 < engine.kv_tokens < 600_000


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("aiconfigurator_core") is None, reason="aiconfigurator is not installed")
def test_an_installed_one_knows_mixtures_of_experts(tmp_path: Path) -> None:
    card = {"system": "h200_sxm", "backend": "vllm", "gpus": 2, "parallel": "ep"}
    wish = {"models": {"moe": {"path": "Qwen/Qwen3-30B-A3B"}}, "gpus": {"h200": card}}
    law = load_profile(converted(tmp_path, wish)).engines["moe-h200"].law
    assert law is not None
    assert law.experts_ms > law.base_ms
