"""Laws from an installed aiconfigurator: what its measured kernels add up to per iteration, and the law that fits.

The file is JSON::

    {"models": {"llama-8b": {"path": "meta-llama/Meta-Llama-3.1-8B"}},
     "gpus": {"h100": {"system": "h100_sxm", "backend": "vllm", "price_per_hour": "6.88"}}}

A GPU may say `version` of its backend (by default the current one of the database), `gpus` (1, over which each layer is
split), `parallel` (`tp`; `ep`: the experts of a mixture are divided among the GPUs, not split) and `memory` (0.9, the
share for weights and KV). The file may say `most_tokens` (8192) and `most_seqs` (256). For each pair aiconfigurator is
asked for iterations that only decode, and for such with a prompt beside them, up to these sizes. It adds up kernels
that were measured alone: `fit_error` is the distance of the law from its answers, `error_mean` that of such answers
from the engine, as far as runs of it are known.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.engine_law import Iteration, fit_numbers
from hetplan.profiles.imports.cards import CARDS
from hetplan.profiles.imports.words import above_0, ill_written, section
from hetplan.profiles.read_json import read_json

__all__ = ["REALITY", "convert"]

_SEQUENCES, _READ, _PROMPTS = (1, 4, 16, 64, 128, 256), (128, 1024, 4096), (64, 256, 512, 1024, 2048, 4096, 8192)
_BESIDE = (0, 4, 16, 64)
REALITY = {"vllm": 0.12, "sglang": 0.24, "trtllm": 0.37}
"""How far answers are from the time per token of an engine, on the mean: 0.12 against 1,408 published runs."""
_REQUEST_MS = {"vllm": 35.0}
"""What a request waits before its first iteration: the median of 11 published sweeps is 38."""
_WINDOWED = 0.5
"""Layers with a window read less KV than a sequence has: models have them in up to half of their layers."""


def convert(path: str | os.PathLike[str]) -> tuple[dict[str, Any], None]:
    """The profile of all pairs of model and GPU; one whose weights do not fit is left out."""
    file = os.fspath(path)
    wish = read_json(path, file=file)
    if not isinstance(wish, Mapping):
        raise ill_written(file, "$", wish, 'an object with "models" and "gpus"')
    models, gpus = (section(wish, name, file) for name in ("models", "gpus"))
    most = {name: int(above_0(wish, name, "$", file, usual, most=1e9)) for name, usual in _MOST.items()}
    document: dict[str, Any] = {
        "format": "hetplan/profile/1.2", "sources": {}, "hardware": {}, "offers": {},
        "tasks": {name: {} for name in models},
        "variants": {name: {"task": name, "runs": []} for name in models}, "engines": {},
    }  # fmt: skip
    for gpu, card in gpus.items():
        count = int(above_0(card, "gpus", f"$.gpus.{gpu}", file, 1.0, most=1e9))
        document["hardware"][gpu] = {"kind": "gpu", "provides": {"gpu": count}}
        if "price_per_hour" in card:
            document["offers"][f"{gpu}-offer"] = {"hardware": gpu, "price_per_hour": card["price_per_hour"]}
        for name, model in models.items():
            at = f"$.gpus.{gpu}"
            asked = _Asked(
                _text(model, "path", f"$.models.{name}", file), _text(card, "system", at, file),
                _text(card, "backend", at, file), card.get("version"), count,
                above_0(card, "memory", at, file, 0.9, most=1e9), card.get("parallel", "tp"),
            )  # fmt: skip
            if asked.parallel not in ("tp", "ep"):
                raise ill_written(file, f"{at}.parallel", asked.parallel, '"tp" or "ep"')
            engine = asked.engine(most, file=file, at=at)
            if engine is not None:
                key = f"{name}-{gpu}"
                document["sources"][key] = asked.source()
                document["engines"][key] = {**engine, "source": key}
                document["variants"][name]["runs"].append({"hardware": gpu, "engine": key})
    if not document["engines"]:
        raise ill_written(file, "$.models", list(models), "a model whose weights fit into some GPU")
    return document, None


_REACH = ("tokens", "kv_tokens", "sequences")
_MOST = {"most_tokens": 8192.0, "most_seqs": 256.0}


class _Asked:
    """One model on one GPU, as aiconfigurator is asked for it."""

    def __init__(
        self, path: str, system: str, backend: str, version: Any, count: int, memory: float, parallel: object
    ) -> None:  # fmt: skip
        self.path, self.system, self.backend, self.count, self.memory = path, system, backend, count, memory
        self.parallel = parallel
        self.version = None if version is None else str(version)

    def engine(self, most: Mapping[str, int], *, file: str, at: str) -> dict[str, Any] | None:
        """The law and the room for KV; None where the weights leave none."""
        try:
            from aiconfigurator_core.sdk.engine import EngineHandle  # pyright: ignore[reportMissingImports]
            from aiconfigurator_core.sdk.memory import estimate_kv_cache  # pyright: ignore[reportMissingImports]
            from aiconfigurator_core.sdk.perf_database import (  # pyright: ignore[reportMissingImports]
                get_latest_database_version,
            )
        except ImportError as error:
            raise InputError.one(
                file=file, path="$", value="aiconfigurator", why=f"it is not installed here: {error}",
                remedy="pip install aiconfigurator (0.12 or later) beside hetplan, or import a data sheet.",
            ) from None  # fmt: skip
        # As many GPUs hold the experts as hold the rest; models without experts take no notice.
        split = {"tp_size": self.count, "moe_ep_size" if self.parallel == "ep" else "moe_tp_size": self.count}
        try:
            self.version = self.version or get_latest_database_version(self.system, self.backend)
            handle = EngineHandle.compile(self.path, self.system, self.backend, backend_version=self.version, **split)
            iterations = _iterations(handle, **most)
        except Exception as error:
            raise InputError.one(
                file=file, path=at, value=f"{self.path} on {self.system} by {self.backend}",
                why=f"aiconfigurator has no answer: {error}",
                remedy="Choose a model, a system and a version that `aiconfigurator cli support` knows.",
            ) from None  # fmt: skip
        try:
            room = estimate_kv_cache(
                self.path, self.system, self.backend, self.version, max_num_tokens=most["most_tokens"],
                max_batch_size=most["most_seqs"], memory_fraction_value=self.memory,
                memory_fraction_kind="of_free" if self.backend == "trtllm" else "of_total", **split,
            )  # fmt: skip
        except ValueError:
            return None
        each, card = float(room["kv_size_per_token_bytes"]), CARDS.get(self.system.partition("_")[0])
        least = {"kv_token_ms": _WINDOWED * each / card[1] / 1e6} if card is not None else {}
        reach = {name: int(max(getattr(one, name) for one in iterations)) for name in _REACH}
        law = {
            **fit_numbers(iterations, least=least).document, "basis": "grid", "range": reach,
            "error_mean": REALITY.get(self.backend, max(REALITY.values())),
            "source": f"aiconfigurator, {self.backend} {self.version}",
        }  # fmt: skip
        return {
            "law": law, "request_ms": _REQUEST_MS.get(self.backend, 0.0),
            "kv_tokens": int(room["total_kv_size_tokens"]),
            # Of one GPU; a machine that is split over several holds a part of each token's KV on each.
            "kv_bytes_per_token": each * self.count, "tensor": self.count, **most,
        }  # fmt: skip

    def source(self) -> dict[str, Any]:
        """Where the numbers come from."""
        note = f"{self.path} on {self.system}, {self.backend} {self.version}; kernels measured alone and added up"
        return {"kind": "imported", "tool": "aiconfigurator", "note": note}


def _iterations(handle: Any, *, most_tokens: int, most_seqs: int) -> list[Iteration]:
    """What aiconfigurator says of iterations that only decode, and of such with one prompt beside them."""
    found = [
        Iteration(s, s * (read + 1.0), s, 0.0, float(handle.decode_step_latency(s, read, 2)))
        for s in _SEQUENCES
        for read in _READ
        if s <= most_seqs
    ]
    for prompt in _PROMPTS:
        for s in _BESIDE:
            if prompt + s <= most_tokens and s <= most_seqs:
                ms = float(handle.mixed_step_latency(prompt, s, prompt, 2))
                found.append(Iteration(prompt + s, s * (prompt + 1.0), s, prompt * prompt / 2.0, ms))
    return found


def _text(held: Mapping[str, Any], name: str, at: str, file: str) -> str:
    value = held.get(name)
    if not isinstance(value, str) or not value:
        raise ill_written(file, f"{at}.{name}", value, "a text")
    return value
