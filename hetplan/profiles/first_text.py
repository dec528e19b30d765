"""The first profile and SLO of somebody who serves a language model: its `config.json`, GPUs with prices, limits.

Nothing is measured then: how long an iteration takes comes from data sheets, and is marked as assumed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.profiles.cards import cards
from hetplan.profiles.first_files import Machine
from hetplan.profiles.imports.datasheet import convert_sheet
from hetplan.profiles.read_json import read_json

if TYPE_CHECKING:
    from hetplan.profiles.tables import Table

__all__ = ["assumed_of", "config_of", "first_size", "lengths_of", "read_tokens", "text_profile"]

_WIDTH = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0}


def config_of(path: Path) -> dict[str, float]:
    """A model as data sheets need it, from the `config.json` beside its weights."""
    said = read_json(path, file=str(path))
    if not isinstance(said, Mapping) or "num_hidden_layers" not in said:
        remedy = "Give the config.json that lies beside the weights, or write a data sheet (docs/llm.md)."
        raise InputError.one(
            file=str(path), why="a model's config.json: num_hidden_layers, hidden_size, ...", remedy=remedy
        )
    if any("expert" in name for name in said) or said.get("quantization_config"):
        remedy = "Write a data sheet with its parameters, and `hetplan import datasheet` it (docs/llm.md)."
        why = "a model without experts and quantization: others are not worked out from their config.json"
        raise InputError.one(file=str(path), why=why, remedy=remedy)

    def number(name: str, usual: float | None = None) -> float:
        value = said.get(name) if said.get(name) is not None else usual
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            remedy = "Mend the file, or write a data sheet (docs/llm.md)."
            raise InputError.one(file=str(path), path=f"$.{name}", value=value, why="a number above 0", remedy=remedy)
        return float(value)

    hidden, layers, heads = number("hidden_size"), number("num_hidden_layers"), number("num_attention_heads")
    kv_heads = number("num_key_value_heads", heads)
    size = number("head_dim", hidden / heads)
    attention = 2.0 * hidden * size * (heads + kv_heads)
    words = number("vocab_size") * hidden * (1.0 if said.get("tie_word_embeddings") else 2.0)
    width = _WIDTH.get(str(said.get("torch_dtype", said.get("dtype", "bfloat16"))), 2.0)
    return {
        "parameters": words + layers * (attention + 3.0 * hidden * number("intermediate_size")),
        "layers": layers, "heads": heads, "kv_heads": kv_heads, "head_size": size,
        "bytes_per_parameter": width, "bytes_per_kv": width,
    }  # fmt: skip


def text_profile(model: str, config: Path, machines: Sequence[Machine]) -> dict[str, Any]:
    """The profile of a model on GPUs whose data sheets are known."""
    gpus: dict[str, dict[str, Any]] = {}
    for machine in machines:
        found = re.fullmatch(r"(?:nvidia-|amd-)?(?P<card>[a-z0-9]+?)(?:x(?P<many>[1-9][0-9]?))?", machine.name)
        if found is None or found["card"] not in cards():
            remedy = (
                f"Known are {', '.join(cards())}, several as in h100x2. Write a data sheet for others (docs/llm.md)."
            )
            raise InputError.one(file="--gpu", value=machine.name, why="a GPU whose data sheet is known", remedy=remedy)
        of = cards()[found["card"]]
        tflops, gbps, gb = of.flops["bf16"] / 1e12, of.bytes_per_s / 1e9, of.memory_bytes / 1e9
        priced = {"price_per_hour": machine.price} if machine.price is not None else {}
        card = {"tflops": tflops, "bandwidth_gbps": gbps, "memory_gb": gb, "gpus": int(found["many"] or 1)}
        gpus[machine.name] = card | priced
    if not gpus:
        remedy = f"Add --gpu h100=6.88, with your price; known are {', '.join(cards())}."
        raise InputError.one(file="--gpu", why="the GPUs that can be rented", remedy=remedy)
    profile = convert_sheet({"models": {model: config_of(config)}, "gpus": gpus}, file=str(config))
    for machine in machines:
        if machine.stock is not None and f"{machine.name}-offer" in profile["offers"]:
            profile["offers"][f"{machine.name}-offer"]["stock"] = machine.stock
    return profile


def first_size(table: Table) -> dict[str, float]:
    """The first size at which a table of rates has any, on its axes of tokens."""
    axes = {name: steps for name, steps in table.axes.items() if name in ("input_tokens", "output_tokens")}
    sizes = [dict(zip(axes, steps, strict=True)) for steps in product(*axes.values())]
    found = (size for size in sizes if ((table.on_grid([size], table.mean) or [None])[0] or 0.0) > 0.0)
    return next(found, sizes[0])


def read_tokens(text: str) -> dict[str, Any]:
    """Lengths of requests as the command line has them: IN:OUT=SHARE,...

    >>> read_tokens("150:60=0.2,1000:400=0.8")["bins"]
    [[150, 60], [1000, 400]]
    """
    bins, shares = [], []
    for point in text.split(","):
        lengths, _, share = point.partition("=")
        coming, _, going = lengths.partition(":")
        try:
            pair, part = [int(coming), int(going)], float(share or "1")
        except ValueError:
            pair, part = [0, 0], 0.0
        if min(pair) < 1 or not 0 < part < math.inf:
            remedy = "Write IN:OUT, or IN:OUT=SHARE,...: 400:200, or 150:60=0.2,1000:400=0.8."
            raise InputError.one(file="--tokens", value=text, why="tokens in and out of requests", remedy=remedy)
        bins.append(pair)
        shares.append(part)
    shares = [float(f"{share / sum(shares):.9g}") for share in shares]
    return {"axes": ["input_tokens", "output_tokens"], "bins": bins, "share": shares}


def lengths_of(path: Path) -> tuple[dict[str, Any], float]:
    """The lengths of a record of requests, and how many came a second."""
    from hetplan.profiles.imports.token_traces import convert

    demand = convert(path)[1]["apps"]["text"]["demand"]
    return demand["mix"], demand["rate_qps"]


def assumed_of(profile: Mapping[str, Any]) -> Iterator[str]:
    """What a profile of data sheets takes for granted."""
    yield f"times by data sheets: {profile['sources']['sheet']['note']}"
    yield "weights of 16 bits, unless the model's config.json says 32"
    used = {run["hardware"] for variant in profile["variants"].values() for run in variant["runs"]}
    if idle := sorted(profile["hardware"].keys() - used):
        yield f"not used: {', '.join(idle)}, whose memory is too small for the weights (several GPUs: h100x2=PRICE)"
