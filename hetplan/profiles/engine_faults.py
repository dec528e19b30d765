"""What is wrong with an engine although each of its fields may be what it is: laws that fall, units, limits.

Read only where a profile has engines.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from hetplan.profiles.dangling import Dangling
from hetplan.profiles.engines import Engine, IterationLaw, Piece

__all__ = ["EngineFault", "check_engine", "faults_of_engine", "suspicions_of_engine"]

EngineFault = tuple[tuple[str | int, ...], object, str, str]
"""Where below the engine, the value, why it is wrong, what to do."""

SHORTEST_MS, LONGEST_MS = 0.05, 60_000.0
"""No engine makes a token sooner, or waits longer for one: numbers beyond are in another unit."""

USUAL_MS = (0.5, 1000.0)
_SLOPES = ("token_ms", "kv_token_ms", "sequence_ms", "pair_ms")
_ADDED = ("chunk_ms", "experts_ms", "experts_rate")


def check_engine(found: Dangling, name: str, engine: Engine) -> None:
    """What an engine names, and what is wrong with it."""
    found.must_know("sources", engine.source, "engines", name, "source")
    for steps, value, why, remedy in faults_of_engine(engine):
        found.fault(("engines", name, *steps), value, why, remedy)


def _emptiest_ms(engine: Engine) -> float:
    most, rate = engine.experts
    return max(sum(row[:4]) for row in engine.rows) - most * math.expm1(-rate)


def faults_of_engine(engine: Engine) -> Iterator[EngineFault]:
    """Every reason why an engine cannot be planned with."""
    for number, piece in enumerate(engine.pieces):
        yield from _falling(piece, ("pieces", number))
    law, at = engine.law, ("pieces",) if engine.law is None else ("law",)
    if law is not None:
        yield from _falling(law, at)
        if (law.experts_ms > 0) != (law.experts_rate > 0):
            why = "experts take a time and have a rate, or neither"
            yield (*at, "experts_rate"), law.experts_rate, why, "Write both, or 0 for a dense model."
    emptiest = _emptiest_ms(engine)
    if emptiest < SHORTEST_MS:
        remedy = f"Are these seconds? Write milliseconds: {1000 * emptiest:g} in its place."
        yield at, emptiest, "one token takes at least 0.05 ms on any machine", remedy
    elif emptiest > LONGEST_MS:
        remedy = f"Are these microseconds? Write milliseconds: {emptiest / 1000:g} in its place."
        yield at, emptiest, "one token takes at most a minute", remedy
    if engine.most_seqs > engine.most_tokens:
        why = f"each running sequence takes a token of the batch, which has {engine.most_tokens} at most"
        yield ("most_seqs",), engine.most_seqs, why, f"Write {engine.most_tokens}, or raise max_tokens."
    if engine.context_tokens is not None and engine.context_tokens > engine.kv_tokens:
        why = f"a request of {engine.context_tokens} tokens does not fit into KV of {engine.kv_tokens}"
        yield ("context_tokens",), engine.context_tokens, why, f"Write {engine.kv_tokens}, or measure kv_tokens again."


def _falling(piece: Piece | IterationLaw, at: tuple[str | int, ...]) -> Iterator[EngineFault]:
    """A longer batch never takes less time."""
    for name in ("base_ms", *_SLOPES, *(_ADDED if isinstance(piece, IterationLaw) else ())):
        value = getattr(piece, name)
        if value < 0:
            why = "a law never falls: more work never makes an iteration shorter"
            yield (*at, name), value, why, "Write 0, and fit the other numbers again."
    if not any(getattr(piece, name) for name in ("base_ms", *_SLOPES)):
        yield at, "", "a piece that is always 0 says nothing", "Drop it, or write its numbers."


def suspicions_of_engine(engine: Engine) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is possible and unusual."""
    emptiest, (low, high), where = _emptiest_ms(engine), USUAL_MS, ("pieces",) if engine.law is None else ("law",)
    if SHORTEST_MS <= emptiest < low:
        yield where, f"one token takes {emptiest:g} ms: are these seconds, or hundredths of them?"
    if high < emptiest <= LONGEST_MS:
        yield where, f"one token takes {emptiest:g} ms: are these microseconds?"
    if engine.error > 1.0:
        at = ("fitted", "error") if engine.law is None else ("law", "error_mean")
        yield at, f"{engine.error:g} is unusual: is this percent? Write {engine.error / 100:g}"
