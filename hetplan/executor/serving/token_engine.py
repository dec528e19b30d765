"""An engine that keeps the law of its iterations and computes nothing: continuous batching, token by token.

The rules are those of the simulator (`hetplan.simulator.token_kernels`): in an iteration every decoding sequence makes
one token, and what room is left in the batch goes to the prompts that wait, oldest first, in chunks. Where KV does not
suffice, the sequence that was admitted last gives way and is computed again later. An engine of role `prefill` is done
with a request once its prompt is computed; one of role `decode` gets requests whose KV comes from there. `TokenEngine`
has no clock, so that it can be held against the simulator request by request; `embedded_engine` runs it in a worker.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from hetplan.serving.tokens import TokenLaw

__all__ = ["Sequence", "TokenEngine"]


@dataclass(eq=False, slots=True)
class Sequence:
    """A request in the engine: its lengths, and how many tokens it has made."""

    input: int
    output: int
    cached: int = 0
    made: int = 0
    lost: int = 0
    state: str = field(default="waiting")
    handed: bool = False
    """Its KV came from a machine that prefilled it: nothing of the prompt is computed here."""

    @property
    def length(self) -> int:
        """Tokens that are computed before the next one can be made."""
        return self.input + self.made


class TokenEngine:
    """Sequences that wait and run, and what the iteration under way computes.

    >>> import numpy as np
    >>> engine = TokenEngine(TokenLaw(np.array([[10.0, 0.1, 0.0, 0.0, 0.0]]), 10_000))
    >>> engine.put(Sequence(100, 2))
    >>> engine.begin(), [one.made for one in engine.end()], engine.begin(), [one.made for one in engine.end()]
    (20.0, [1], 10.1, [2])
    >>> engine.begin() is None
    True
    """

    def __init__(self, law: TokenLaw) -> None:
        self.law = law
        self._pieces = [tuple(map(float, row)) for row in law.pieces.tolist()]
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}
        """Those that were admitted, oldest first."""
        self.decodes: dict[Sequence, None] = {}
        self.held = self.read = 0
        """KV tokens that are taken, and those that an iteration of the decodes reads."""
        self._prompt: Sequence | None = None
        self._todo = 0
        self._ready: list[Sequence] = []
        self._decoding = False

    def put(self, one: Sequence) -> None:
        """One more request."""
        self.waiting.append(one)

    def begin(self) -> float | None:
        """Choose what the next iteration computes; its milliseconds, None where there is nothing to do."""
        law = self.law
        if not law.reserves:
            self._make_room()
        decodes = len(self.decodes)
        n, q = self._take_prompts(law.most_tokens - (0 if law.prefill_first else decodes), decodes)
        if law.prefill_first and n > 0:
            decodes = 0
        self._decoding = decodes > 0
        if n + decodes == 0:
            return 0.0 if self._ready else None
        v = self.read + decodes if decodes else 0
        ms = max(a + b * (n + decodes) + c * v + d * decodes + e * q for a, b, c, d, e in self._pieces)
        ms -= law.experts_ms * math.expm1(-law.experts_rate * (n + decodes))
        return ms + (law.chunk_ms if n else 0.0)

    def end(self) -> list[Sequence]:
        """The iteration is over: the sequences that made a token in it, in their order."""
        came: list[Sequence] = []
        if self._decoding:
            self.read += len(self.decodes)
            self.held += 0 if self.law.reserves else len(self.decodes)
            for one in self.decodes:
                one.made += 1
            came += self.decodes
            for one in [one for one in self.decodes if one.made >= one.output]:
                self._leave(one)
        ready, self._ready = self._ready, []
        for one in ready:
            if one.handed:
                one.handed = False
            else:
                one.made += 1
                came.append(one)
            if one.made >= one.output or self.law.role == "prefill":
                self._release(one, one.length - 1)
                one.state = "done"
            else:
                one.state = "decoding"
                self.decodes[one] = None
                self.read += one.length - 1
        return came

    def cancel(self, one: Sequence) -> None:
        """Let go of a request, wherever it is."""
        if one.state == "waiting":
            self.waiting.remove(one)
        elif one.state == "decoding":
            self._leave(one)
        elif one.state in ("prompt", "ready"):
            if one is self._prompt:
                self._prompt = None
            else:
                self._ready.remove(one)
            self._release(one, _stored(one))
        one.state = "done"

    def _leave(self, one: Sequence) -> None:
        """A decoding sequence is no longer here."""
        del self.decodes[one]
        self.read -= one.length - 1
        self._release(one, one.length - 1)
        one.state = "done"

    def _release(self, one: Sequence, stored: int) -> None:
        self.held -= one.input + one.output if self.law.reserves else stored
        del self.running[one]

    def _make_room(self) -> None:
        """Let those admitted last give way until every running sequence has room for its next token."""
        while self.held + len(self.decodes) > self.law.kv_tokens and self.running:
            one = next(reversed(self.running))
            if one is self._prompt:
                self._prompt = None
                self._release(one, one.length)
            else:
                self._leave(one)
            one.state = "waiting"
            one.lost += 1
            self.waiting.appendleft(one)

    def _take_prompts(self, budget: int, decodes: int) -> tuple[int, float]:
        """Fill what is left of the batch with prompts: their tokens, and the pairs of prefill attention."""
        n, q, law = 0, 0.0, self.law
        growing = 0 if law.reserves else decodes
        running = decodes + (1 if self._prompt is not None else 0)
        while budget > 0:
            one = self._prompt
            if one is None:
                if not self.waiting or running >= law.most_seqs:
                    break
                one = self.waiting[0]
                keep = one.input + one.output if law.reserves else _stored(one)
                if self.held + growing + keep > law.kv_tokens:
                    break
                self.waiting.popleft()
                self.held += keep
                self.running[one] = None
                running += 1
                if one.handed:
                    # It decodes from the next iteration on.
                    self._ready.append(one)
                    one.state = "ready"
                    continue
                self._prompt, self._todo, one.state = one, one.length - one.cached, "prompt"
            end = one.length - self._todo
            taken = min(budget, self._todo)
            q += 0.5 * ((end + taken) ** 2 - end**2)
            n, budget, self._todo = n + taken, budget - taken, self._todo - taken
            if self._todo == 0:
                self._ready.append(one)
                one.state, self._prompt = "ready", None
        return n, q


def _stored(one: Sequence) -> int:
    """KV tokens of a sequence that does not decode yet: the last token of one that was handed over has none so far."""
    return one.length - (1 if one.handed else 0)
