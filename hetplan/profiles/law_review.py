"""What the times of a profile rest on, and how far they are from the law of the catalogue for the same machines.

Compared are laws with laws, over iterations that only decode and over prompts, and measured runs (points of tables of
rates) with the time per token that a law says of their load.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from hetplan.profiles.cards import Card, card_of_text
from hetplan.profiles.catalogue import Known, known_laws
from hetplan.profiles.engines import Engine
from hetplan.profiles.language_models import BYTES, LanguageModel, model_of_text, models, precision_of_text
from hetplan.profiles.operating_points import OperatingPoint
from hetplan.profiles.profile import Profile, Run

__all__ = ["DOUBTFUL", "Review", "doubt_of", "iteration_ms", "review_laws", "times_the_floor", "tpot_ms"]

_DECODES = tuple(product((1, 8, 32, 64), (512, 2048)))
_PROMPTS = (512, 2048, 8192)
_LONGEST_ROUNDS = 200
DOUBTFUL = 2.5
"""A law that takes so many times what the card allows was perhaps measured badly: the median of 576 is 1.2."""
_FLOOR_CONTEXT, _LAYER_MS, _REDUCED = 512, 0.05, 3.0


@dataclass(frozen=True)
class Review:
    """An engine or a table of rates: its basis, its error, its KV room, and how far it is from the catalogue's law.

    `off` is by how much its times are longer on the mean (below 0: shorter); `apart` where that is beyond both errors.
    """

    place: str
    basis: str
    error: float | None
    source: str
    room: str = ""
    other: str = ""
    off: float | None = None
    apart: bool = False
    doubt: str = ""


def review_laws(profile: Profile) -> Iterator[Review]:
    """Every engine that a run names, and every table of rates with measured runs."""
    seen: set[str] = set()
    for variant, held in sorted(profile.variants.items()):
        for _, run in held.in_order:
            if run.engine is not None and run.engine not in seen:
                seen.add(run.engine)
                found = _engine(variant, run, profile.engines[run.engine], run.engine)
                yield replace(found, place=profile.places.text(found.place))
            elif run.rate is not None and run.rate not in seen and profile.tables[run.rate].points:
                seen.add(run.rate)
                found = _table(profile, variant, run, run.rate)
                yield replace(found, place=profile.places.text(found.place))


def _said(engine: Engine) -> tuple[str, float | None, str]:
    if engine.law is None:
        return f"pieces, overlap {engine.overlap}", engine.fitted.error or None, ""
    return engine.law.basis or "not stated", engine.law.error_mean, engine.law.source or ""


def _room(engine: Engine) -> str:
    return f"{engine.kv_tokens:,}" + (f" +-{engine.kv_error:.0%}" if engine.kv_error is not None else "")


def _engine(variant: str, run: Run, engine: Engine, name: str) -> Review:
    basis, error, source = _said(engine)
    plain = Review(f"engines.{name}", basis, error, source, _room(engine), doubt=_doubt(variant, run, engine))
    known = _same(variant, run.hardware, engine.gpus, engine.precision)
    if known is None or (engine.law is not None and engine.law.source == known.law.source):
        return plain
    ratios = [
        iteration_ms(engine, n, s, v, q) / iteration_ms(known.law, n, s, v, q)
        for n, s, v, q in [
            *((s, s, s * read, 0.0) for s, read in _DECODES),
            *((p, 0, 0.0, p * p / 2.0) for p in _PROMPTS),
        ]
    ]
    return _beside(plain, known, [ratio - 1.0 for ratio in ratios])


def _table(profile: Profile, variant: str, run: Run, name: str) -> Review:
    points = [one for one in profile.tables[name].points if _measured_ms(one)]
    plain = Review(f"tables.{name}", f"{len(profile.tables[name].points)} measured runs", None, "")
    gpus = int(run.needs.get("gpu", profile.hardware[run.hardware].provides.get("gpu", 1.0)))
    known = _same(variant, run.hardware, gpus, None)
    if known is None or not points:
        return plain
    off = []
    for one in points:
        said = tpot_ms(known.law, one.at.get("input_tokens", 0.0), one.at.get("output_tokens", 1.0), one.rate_qps)
        if math.isfinite(said):
            off.append(_measured_ms(one) / said - 1.0)
    return _beside(plain, known, off) if off else plain


def _measured_ms(one: OperatingPoint) -> float:
    return one.given.get("tpot_mean_ms") or one.given.get("tpot_p50_ms") or 0.0


def _beside(plain: Review, known: Known, off: Sequence[float]) -> Review:
    mean = math.fsum(off) / len(off)
    apart = abs(mean) > (plain.error or 0.0) + (known.law.error_mean or 0.0)
    said = f"{known.name} ({known.law.basis}, {known.law.error_mean or 0.0:.0%} off)"
    return replace(plain, other=said, off=mean, apart=apart)


def _doubt(variant: str, run: Run, engine: Engine) -> str:
    model, card, width = (
        model_of_text(variant),
        card_of_text(run.hardware),
        engine.precision or precision_of_text(variant),
    )
    if model is None or card is None or width not in BYTES:
        return ""
    if run.at.get("data", 1) > 1:
        return ""  # each GPU reads all weights but those of experts: the floor is that of one split
    return doubt_of(times_the_floor(engine, models()[model], width, card[0], engine.gpus))


def doubt_of(times: float) -> str:
    """In words, where a law takes many times what the card allows."""
    return f"doubtful: {times:.1f} x what the card allows" if times > DOUBTFUL else ""


def times_the_floor(law: object, model: LanguageModel, precision: str, card: Card, gpus: int) -> float:
    """How many times longer than the card allows few, some or many sequences take: weights and KV read at the peak."""
    found = []
    for s in (1, 8, 64):
        touched = 1.0 - (1.0 - model.per_token / model.experts) ** s if model.experts else 0.0
        routed = BYTES[precision] * model.routed
        read = model.weight_bytes(precision) - 2.0 * model.embedding - routed * (1.0 - touched)
        kv = model.kv_bytes_per_token / model.kv_ranks(gpus) * s * _FLOOR_CONTEXT
        moved = _REDUCED * 4.0 * model.layers * model.hidden * s * (gpus - 1) / gpus / card.link_bytes_per_s
        least = 1e3 * ((read / gpus + kv) / card.bytes_per_s + moved) + _LAYER_MS * model.layers
        found.append(iteration_ms(law, s, s, s * _FLOOR_CONTEXT, 0.0) / least)
    return max(found)


def _same(variant: str, hardware: str, gpus: int, precision: str | None) -> Known | None:
    """The catalogue's law of the same machines, if it has one: vLLM's before another engine's, measured before grid."""
    model, card = model_of_text(variant), card_of_text(hardware)
    width = precision or precision_of_text(variant)
    if model is None or card is None or width is None:
        return None
    found = list(known_laws(model=model, gpu=card[0].name, gpus=str(gpus), precision=width))
    return min(
        found,
        key=lambda one: (one.identity["engine"] != "vllm", one.law.basis != "measured", one.name),
        default=None,
    )


def iteration_ms(law: object, tokens: float, sequences: float, kv_tokens: float, pairs: float) -> float:
    """What one iteration takes by an engine or a law of nine numbers."""
    rows, (most, rate), chunk = law.rows, law.experts, law.chunk_ms  # type: ignore[attr-defined]
    longest = max(row[0] + row[1] * tokens + row[2] * kv_tokens + row[3] * sequences + row[4] * pairs for row in rows)
    return float(longest - most * math.expm1(-rate * tokens) + (chunk if tokens > sequences else 0.0))


def tpot_ms(law: object, prompt: float, answer: float, rate_qps: float) -> float:
    """The time per token at a rate, prompts prefilled beside what decodes; infinite where the law has no such rate."""
    found, tpot, each = math.inf, 1.0, rate_qps / 1000.0
    for _ in range(_LONGEST_ROUNDS):
        s = max(each * (answer - 1.0) * tpot, 1.0)
        prompts = each * tpot
        kv = s * (prompt + answer / 2.0)
        found = iteration_ms(law, s + prompts * prompt, s, kv, prompts * prompt**2 / 2.0)
        if not math.isfinite(found) or found > 1e5:
            return math.inf
        if abs(found - tpot) < 1e-6 * found:
            return found
        tpot = found
    return tpot if abs(found - tpot) < 0.01 * found else math.inf
