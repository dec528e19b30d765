"""Laws from data sheets: what a roofline says of a model on a GPU, marked as assumed until it is measured.

The file is JSON::

    {"models": {"llama-8b": {"parameters": 8.03e9, "layers": 32, "kv_heads": 8, "head_size": 128, "heads": 32}},
     "gpus": {"h100": {"tflops": 989, "bandwidth_gbps": 3350, "memory_gb": 80, "price_per_hour": "6.88"}}}

A model may say `bytes_per_parameter` (2) and `bytes_per_kv` (2); a GPU `gpus` (1, over which each layer is split). The
file may say `compute` (0.6) and `bandwidth` (0.8), the shares of the peaks that are reached, `iteration_ms` (3), what
an iteration takes besides, and `memory` (0.9), the share for weights and KV. Two pieces come of it: computing, and
reading weights and KV, which are taken to overlap.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.cards import MEMORY_SHARE
from hetplan.profiles.imports.words import above_0, digits, ill_written, section
from hetplan.profiles.new_files import model_of, new_profile, price_of
from hetplan.profiles.read_json import read_json

__all__ = ["convert", "convert_sheet"]

_USUAL = {"compute": 0.6, "bandwidth": 0.8, "iteration_ms": 3.0, "memory": MEMORY_SHARE}


def convert(path: str | os.PathLike[str]) -> tuple[dict[str, Any], None]:
    """The profile of a data sheet; it holds no wish, so there is no SLO."""
    return convert_sheet(read_json(path, file=os.fspath(path)), file=os.fspath(path)), None


def convert_sheet(sheet: Any, *, file: str = "datasheet") -> dict[str, Any]:
    """As `convert`, of a parsed file.

    >>> sheet = {"models": {"tiny": {"parameters": 1e9, "layers": 16, "heads": 8, "kv_heads": 4, "head_size": 64}},
    ...          "gpus": {"big": {"tflops": 100, "bandwidth_gbps": 1000, "memory_gb": 24, "price_per_hour": "1"}}}
    >>> run = convert_sheet(sheet)["models"]["tiny"]["runs"]["big"]
    >>> run["law"][1]["base_ms"], run["kv_tokens"]
    (5.5, 1196289)
    """
    if not isinstance(sheet, Mapping):
        raise ill_written(file, "$", sheet, 'an object with "models" and "gpus"')
    usual = {name: above_0(sheet, name, "$", file, value) for name, value in _USUAL.items()}
    models, gpus = (section(sheet, name, file) for name in ("models", "gpus"))
    machines: dict[str, dict[str, Any]] = {}
    runs: dict[str, list[tuple[str, dict[str, Any]]]] = {name: [] for name in models}
    for gpu, card in gpus.items():
        count = round(above_0(card, "gpus", f"$.gpus.{gpu}", file, 1.0))
        machines[gpu] = {"provides": {"gpu": count}}
        if "price_per_hour" in card:
            machines[gpu]["price_per_hour"] = price_of(card["price_per_hour"])
        for name, model in models.items():
            run = _run(model, f"$.models.{name}", card, f"$.gpus.{gpu}", usual, file, count)
            if run is not None:
                runs[name].append((gpu, run))
    if not any(runs.values()):
        raise InputError.one(
            file=file, path="$.models",
            value=", ".join(f"{name}: {_weights(one, '$.models', file) / 1e9:.4g} GB" for name, one in models.items()),
            why=f"weights that fit into {usual['memory']:.0%} of some machine's memory",
            remedy='Use several GPUs as one machine ("gpus": 4; with init --machine h100x4=PRICE), or a larger one.',
        )  # fmt: skip
    return new_profile(
        {"name": "sheet", "kind": "assumed", "tool": "roofline of data sheets", "note": _said(usual)},
        machines=machines,
        models={name: model_of(name, name, several) for name, several in runs.items()},
    )


def _weights(model: Mapping[str, Any], at: str, file: str) -> float:
    """What a model's weights take, in bytes."""
    return above_0(model, "parameters", at, file) * above_0(model, "bytes_per_parameter", at, file, 2.0)


def _run(
    model: Mapping[str, Any], at: str, card: Mapping[str, Any], gpu_at: str, usual: Mapping[str, float], file: str,
    count: int,
) -> dict[str, Any] | None:  # fmt: skip
    """The roofline of a model on so many of a GPU; None where its weights do not fit."""
    parameters, layers, kv_heads, size, heads = (
        above_0(model, name, at, file) for name in ("parameters", "layers", "kv_heads", "head_size", "heads")
    )
    weights = _weights(model, at, file)
    kv = 2.0 * layers * kv_heads * size * above_0(model, "bytes_per_kv", at, file, 2.0)
    flops = above_0(card, "tflops", gpu_at, file) * 1e12 * usual["compute"] * count
    speed = above_0(card, "bandwidth_gbps", gpu_at, file) * 1e9 * usual["bandwidth"] * count
    room = above_0(card, "memory_gb", gpu_at, file) * 1e9 * usual["memory"] * count - weights
    if room < kv:
        return None
    pair = 4.0 * heads * size * layers
    base = usual["iteration_ms"]
    return {
        "kv_tokens": int(room / kv),
        "kv_bytes_per_token": kv,
        "tensor": count,
        "law": [
            {"base_ms": base, "token_ms": digits(2e3 * parameters / flops), "pair_ms": digits(1e3 * pair / flops)},
            {"base_ms": digits(base + 1e3 * weights / speed), "kv_token_ms": digits(1e3 * kv / speed)},
        ],
    }


def _said(usual: Mapping[str, float]) -> str:
    return (
        f"{usual['compute']:.0%} of peak compute, {usual['bandwidth']:.0%} of peak bandwidth, "
        f"{usual['iteration_ms']:g} ms per iteration; replace by measurements"
    )
