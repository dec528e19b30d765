"""Engines that make text token by token: the law by which one iteration takes its time, and what fits (`docs/llm.md`).

Checks that need more than one field are in `engine_faults.py`, which is read where a profile has engines.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hetplan.profiles.fields import Amount, Id, Key, Model, PositiveAmount, PositiveCount, Real

__all__ = ["Engine", "Fitted", "Piece"]


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


class Fitted(Model):
    """What a law was fitted to: its mean relative error, and the largest iterations among what was measured."""

    error: Amount = 0.0
    tokens: PositiveCount | None = None
    kv_tokens: PositiveCount | None = None
    sequences: PositiveCount | None = None


class Engine(Model):
    """How a model is served on a type of GPU: an iteration takes as long as the longest of its pieces."""

    pieces: tuple[Piece, ...] = Field(min_length=1)
    overlap: Literal["measured", "assumed"] = Field(
        default="assumed", description="whether iterations with prefill beside decodes were measured"
    )
    fitted: Fitted = Field(default_factory=Fitted)
    kv_tokens: PositiveCount = Field(description="room for KV, in tokens, of one instance")
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
    source: Id | None = None

    @property
    def gpus(self) -> int:
        """GPUs of one instance."""
        return self.tensor * self.pipeline
