"""The law of an engine that was not measured: of a sibling card, or by how well a card is used by other models.

An iteration launches kernels, reads weights and KV, and computes. What that takes follows from the model's sizes, the
card's peaks, and which part of each peak the engine reaches (`efficiencies.csv`, fitted to the laws of the catalogue
per GPU, engine and precision, by `benchmarks/llm_efficiencies.py`). For a model whose law is known on a card of the
same generation, that law is scaled by what the formula says of both cards. Each law says how far it is off: that was
found by leaving models out of the fit.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from hetplan.profiles.cards import Card, cards
from hetplan.profiles.catalogue import REALITY, known_laws, newest
from hetplan.profiles.engine_law import Iteration, fit_numbers, law_document
from hetplan.profiles.engines import IterationLaw
from hetplan.profiles.language_models import BYTES, LanguageModel, models
from hetplan.profiles.law_review import iteration_ms

__all__ = [
    "DEFAULTS",
    "FILE",
    "Efficiencies",
    "Way",
    "grid_of",
    "law_by_formula",
    "law_of",
    "law_of_sibling",
    "reached",
]

FILE = Path(__file__).with_name("efficiencies.csv")
SIBLING_ERROR = 0.125
"""How far a law of a sibling card is from the grid of its own, on the mean of pairs whose grid is known."""
DATASHEET_ERROR = {False: 0.20, True: 0.31}
"""The same of fixed efficiencies: of dense models, of mixtures."""
_SEQUENCES, _READ, _PROMPTS = (1, 2, 8, 32, 64, 128, 256), (512, 2048, 8192), (256, 1024, 4096, 8192)


@dataclass(frozen=True)
class Efficiencies:
    """Which part of a card's peaks an engine reaches, and what it adds: ms per layer, and per all-reduce.

    `dense`, `routed` and `kv` are of the bandwidth, for dense weights, experts and KV; `compute` and `attention` of the
    FLOP/s; `link` of the link; `touch` is how soon experts are touched, in parts of a uniform choice.
    """

    dense: float = 0.85
    routed: float = 0.7
    kv: float = 0.85
    compute: float = 0.7
    attention: float = 0.4
    link: float = 0.4
    touch: float = 0.4
    layer_ms: float = 0.035
    expert_layer_ms: float = 0.06
    reduce_ms: float = 0.004
    reduce_step_ms: float = 0.002


DEFAULTS = Efficiencies()


@dataclass(frozen=True)
class Way:
    """How a model is served: its precision, on which card, over how many GPUs, split how, by which engine."""

    model: str
    precision: str
    gpu: str
    gpus: int
    parallel: str
    engine: str

    @property
    def identity(self) -> dict[str, str]:
        """As the catalogue has it."""
        return {**{name: str(value) for name, value in vars(self).items()}}


@cache
def reached() -> dict[tuple[str, str, str], tuple[Efficiencies, float]]:
    """What engines reach of cards, by GPU, engine and precision, each with the error of laws made from it."""
    names = [*Efficiencies.__dataclass_fields__]
    with FILE.open(encoding="utf-8", newline="") as file:
        return {
            (row["gpu"], row["engine"], row["precision"]): (
                Efficiencies(**{name: float(row[name]) for name in names}), float(row["error"])
            )
            for row in csv.DictReader(file)
        }  # fmt: skip


def law_by_formula(
    model: LanguageModel, precision: str, card: Card, gpus: int, used: Efficiencies = DEFAULTS
) -> dict[str, float]:
    """The nine numbers of a model on so many GPUs of a card, each layer split over all of them."""
    layers, g, band = model.layers, float(gpus), card.bytes_per_s / 1000.0
    steps = math.log2(g)
    width = BYTES["bf16"] if precision == "fp4" and model.experts and not model.latent else BYTES[precision]
    dense_ms = (width * model.dense + 2.0 * model.head) / g / (band * used.dense)
    routed_ms = BYTES[precision] * model.routed / g / (band * used.routed)
    base = layers * (used.layer_ms + (used.expert_layer_ms if model.experts else 0.0)) + dense_ms
    base += 2.0 * layers * (used.reduce_ms + used.reduce_step_ms * steps) if gpus > 1 else 0.0
    # A card without units for a precision computes with 16 bits, and still reads fewer bytes.
    flops = {name: rate or card.flops["bf16"] for name, rate in card.flops.items()}
    shared = 2.0 * (model.dense + model.head) / flops["bf16" if width == BYTES["bf16"] else precision]
    chosen = 2.0 * model.active - 2.0 * (model.dense + model.head)
    token = 1e3 * (shared + chosen / flops[precision]) / (g * used.compute)
    token += 4e3 * layers * model.hidden * (g - 1.0) / g * 2.0 / (card.link_bytes_per_s * used.link)
    read = model.kv_bytes_per_token / model.kv_ranks(gpus) * (0.5 if model.window else 1.0)
    pair = 4e3 * layers * model.heads * model.head_size / (g * card.flops["bf16"] * used.attention)
    rate = used.touch * -math.log1p(-model.per_token / model.experts) if model.experts else 0.0
    return {
        "base_ms": base, "chunk_ms": 0.05 * layers, "experts_ms": routed_ms, "experts_rate": rate, "token_ms": token,
        "tokens_from": float(int((dense_ms + routed_ms) / token)), "sequence_ms": 0.0,
        "kv_token_ms": read / (band * used.kv), "pair_ms": pair * (0.5 if model.window else 1.0),
    }  # fmt: skip


def grid_of(most_kv: float = math.inf) -> list[tuple[float, float, float, float]]:
    """Tokens, sequences, KV tokens and pairs of iterations that laws are compared on."""
    decodes = [(s, s, s * read, 0.0) for s, read in product(_SEQUENCES, _READ) if s * read <= most_kv]
    return [*decodes, *((float(p), 0.0, 0.0, p * p / 2.0) for p in _PROMPTS)]


def law_of(way: Way, model: LanguageModel | None = None) -> dict[str, Any] | None:
    """The best law that there is for this way of serving, as a profile has it; None where nothing says it.

    Measured or from a grid; else of a sibling; else by what the engine reaches of the card with other models; else by
    data sheets. A `model` that is given has no law in the catalogue.
    """
    card = cards()[way.gpu]
    known = newest(known_laws(**way.identity)) if model is None else None
    if known is not None:
        return known.law.model_dump(mode="json", exclude_defaults=True)
    of = model or models()[way.model]
    reality = REALITY.get(way.engine, max(REALITY.values()))
    if model is None and (sibling := law_of_sibling(way, of)) is not None:
        law, name = sibling
        return _law(law, "sibling", SIBLING_ERROR + reality, f"of {name}")
    if way.parallel == "dp+ep":
        return None
    used, error = reached().get((way.gpu, way.engine, way.precision), (None, 0.0))
    law = law_by_formula(of, way.precision, card, way.gpus, used or DEFAULTS)
    if used is not None:
        source = f"other models on {way.gpu}, {way.engine} {way.precision}"
        return _law(law, "efficiencies", max(error, 0.1) + reality, source)
    return _law(law, "datasheet", DATASHEET_ERROR[bool(of.experts)] + reality, f"data sheet of {way.gpu}")


def _law(numbers: Mapping[str, float], basis: str, error: float, source: str) -> dict[str, Any]:
    return {**law_document(numbers), "basis": basis, "error_mean": round(error, 3), "source": source}


def law_of_sibling(way: Way, model: LanguageModel) -> tuple[dict[str, float], str] | None:
    """The law on another card of the generation, times what the formula says of the two cards, fitted anew.

    By the usual efficiencies of both: cards of a generation run the same kernels, and what was fitted per card differs
    by chance (7.4% off on Hopper, 26.5% at worst; so 6.7% and 18%).
    """
    here = cards()[way.gpu]
    for other in sorted(cards().values(), key=lambda one: abs(math.log(one.bytes_per_s / here.bytes_per_s))):
        if other.generation != here.generation or other.name == way.gpu:
            continue
        known = newest(known_laws(("grid",), **{**way.identity, "gpu": other.name}))
        if known is None:
            continue
        both = [
            IterationLaw.model_validate(_law(law_by_formula(model, way.precision, one, way.gpus), "grid", 0.0, ""))
            for one in (here, other)
        ]
        points = grid_of()
        scaled = [
            iteration_ms(known.law, *at) * iteration_ms(both[0], *at) / iteration_ms(both[1], *at) for at in points
        ]
        measured = [Iteration(n, v, s, q, ms) for (n, s, v, q), ms in zip(points, scaled, strict=True)]
        read = model.kv_bytes_per_token / model.kv_ranks(way.gpus) * (0.5 if model.window else 1.0)
        least = {"kv_token_ms": read / here.bytes_per_s * 1e3}
        return fit_numbers(measured, least=least, experts=bool(model.experts)).numbers, known.name
    return None
