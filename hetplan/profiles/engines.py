"""Engines that make text token by token: the law of one iteration, and what fits (`docs/explanation/llm.md`).

Checks that need more than one field are in `engine_faults.py`, which is read where a profile has engines.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from hetplan.profiles.fields import Amount, Count, Id, Key, Model, PositiveAmount, PositiveCount, Real, wrong

__all__ = ["Engine", "Fitted", "IterationLaw", "LawNumbers", "LawRange", "Piece"]


class Piece(Model):
    """An iteration takes at least base + token * n + kv_token * v + sequence * s + pair * q milliseconds.

    n are the tokens of the batch, v the tokens of KV that its decodes read, s its decoding sequences, q the pairs of
    tokens of prefill attention.
    """

    base_ms: Real = 0.0
    token_ms: Real = 0.0
    kv_token_ms: Real = 0.0
    sequence_ms: Real = 0.0
    pair_ms: Real = 0.0


class LawRange(Model):
    """The largest iterations among what a law was fitted to."""

    tokens: PositiveCount | None = None
    kv_tokens: PositiveCount | None = None
    sequences: PositiveCount | None = None


class Fitted(LawRange):
    """What a law was fitted to: its mean relative error, and the largest iterations among what was measured."""

    error: Amount = 0.0


class LawNumbers(Model):
    """An iteration takes base + chunk (if a prompt is in it) + experts (1 - exp(-rate n)) + token max(0, n - from)
    + sequence s + kv_token v + pair q milliseconds; n, s, v and q as for pieces.
    """  # fmt: skip

    base_ms: Real = 0.0
    chunk_ms: Real = 0.0
    experts_ms: Real = Field(default=0.0, description="what reading all experts takes; 0 for a dense model")
    experts_rate: Real = Field(default=0.0, description="how soon more tokens touch all experts")
    token_ms: Real = 0.0
    tokens_from: Count = Field(default=0, description="tokens that are computed while weights are read")
    sequence_ms: Real = 0.0
    kv_token_ms: Real = 0.0
    pair_ms: Real = 0.0
    source: str | None = Field(default=None, description="what it was fitted to, in words")


class IterationLaw(LawNumbers):
    """The numbers of a law with where they come from, and by how much they are off the engine they are of."""

    form: Literal["iteration/2"]
    basis: Literal["measured", "grid", "sibling", "efficiencies", "datasheet", "other engine"] | None = None
    error_mean: Amount | None = Field(default=None, description="how far the law is from its engine, on the mean")
    fit_error: tuple[Amount, Amount] | None = Field(default=None, description="mean and worst error of the fit itself")
    range: LawRange = Field(default_factory=LawRange)

    @property
    def rows(self) -> tuple[_Row, ...]:
        """What is convex, as rows like those of pieces: tokens are free below `tokens_from`, or they are not."""
        rest = (self.kv_token_ms, self.sequence_ms, self.pair_ms)
        paid = (self.base_ms - self.token_ms * self.tokens_from, self.token_ms, *rest)
        return ((self.base_ms, 0.0, *rest), paid) if self.tokens_from else (paid,)

    @property
    def experts(self) -> tuple[float, float]:
        """What reading all experts takes, and how soon more tokens touch all."""
        return self.experts_ms, self.experts_rate


_Row = tuple[float, float, float, float, float]


class Engine(Model):
    """How a model is served on a type of GPU: its law of iterations, or pieces of which the longest counts."""

    law: IterationLaw | None = None
    pieces: tuple[Piece, ...] = ()
    overlap: Literal["measured", "assumed"] = Field(
        default="assumed", description="whether iterations with prefill beside decodes were measured"
    )
    fitted: Fitted = Field(default_factory=Fitted)
    kv_tokens: PositiveCount = Field(description="room for KV, in tokens, of one instance")
    kv_error: Amount | None = Field(default=None, description="by what share the room may be off, if it was worked out")
    kv_bytes_per_token: PositiveAmount | None = None
    context_tokens: PositiveCount | None = Field(default=None, description="the longest input and output together")
    most_tokens: PositiveCount = Field(default=8192, description="the longest batch that an iteration may have")
    most_seqs: PositiveCount = Field(default=256, description="the most sequences that run at once")
    tensor: PositiveCount = Field(default=1, description="GPUs over which each layer is split")
    pipeline: PositiveCount = Field(default=1, description="stages of layers; an instance has tensor x pipeline GPUs")
    precision: Key | None = None
    role: Literal["mixed", "prefill", "decode"] = "mixed"
    schedule: Literal["chunked", "prefill-first"] = "chunked"
    reserves: bool = Field(default=False, description="KV for the whole output is kept free when a request starts")
    request_ms: Amount = Field(default=0.0, description="what a request waits before its first iteration")
    source: Id | None = None

    @model_validator(mode="after")
    def _has_one_law(self) -> Engine:
        if (self.law is None) == (not self.pieces):
            why = "an engine has one law: nine numbers, or pieces"
            raise wrong(why, 'Keep "law", or "pieces".', at=("pieces",) if self.pieces else ())
        return self

    @property
    def rows(self) -> tuple[_Row, ...]:
        """What is convex of an iteration: the longest of (base, per token, per KV token, per sequence, per pair)."""
        if self.law is not None:
            return self.law.rows
        return tuple((p.base_ms, p.token_ms, p.kv_token_ms, p.sequence_ms, p.pair_ms) for p in self.pieces)

    @property
    def experts(self) -> tuple[float, float]:
        """What reading all experts takes, and how soon more tokens touch all."""
        return self.law.experts if self.law is not None else (0.0, 0.0)

    @property
    def chunk_ms(self) -> float:
        """What an iteration takes longer if a prompt is in it."""
        return self.law.chunk_ms if self.law is not None else 0.0

    @property
    def error(self) -> float:
        """How far the law is off on the mean."""
        return self.fitted.error if self.law is None else self.law.error_mean or 0.0

    @property
    def reach(self) -> LawRange:
        """The largest iterations among what the law was fitted to."""
        return self.fitted if self.law is None else self.law.range

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.tensor * self.pipeline
