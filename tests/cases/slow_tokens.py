"""A second simulation of machines that make text, written apart from hetplan's: plain lists, one step per sequence.

It shares nothing with the product but what the words mean: first come first served, decodes before prompts, the
sequence admitted last gives way, and a request goes where the least work is outstanding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

INFINITE = float("inf")


@dataclass
class Sequence:
    number: int
    arrived: float
    input: int
    output: int
    cached: int = 0
    made: int = 0
    stored: int = 0
    to_compute: int = 0
    stamps: list[float] = field(default_factory=list)
    lost: int = 0
    machine: int = -1


@dataclass
class Machine:
    """`pieces` are rows of (base, token, KV token, sequence, pair)."""

    pieces: list[tuple[float, float, float, float, float]]
    kv: int
    chunk: int
    seqs: int
    prefill_first: bool = False
    reserves: bool = False
    limit: float = 1.0
    cap: float = INFINITE
    waiting: list[Sequence] = field(default_factory=list)
    running: list[Sequence] = field(default_factory=list)
    until: float = INFINITE
    plan: list[tuple[Sequence, int]] = field(default_factory=list)
    rounds: int = 0

    def take(self, tokens: float, kv: float, seqs: float, pairs: float) -> float:
        return max(a + b * tokens + c * kv + d * seqs + e * pairs for a, b, c, d, e in self.pieces)

    def slope(self, tokens: float, kv: float, seqs: float, pairs: float) -> float:
        return max(b * tokens + c * kv + d * seqs + e * pairs for _, b, c, d, e in self.pieces)

    def held(self) -> int:
        if self.reserves:
            return sum(one.input + one.output for one in self.running)
        return sum(one.stored + one.to_compute for one in self.running)

    def alone(self, one: Sequence) -> float:
        total, at = 0.0, one.cached
        while at < one.input:
            stop = min(one.input, at + self.chunk)
            total += self.take(stop - at, 0, 0, (stop**2 - at**2) / 2)
            at = stop
        return total if one.input + one.output <= self.kv else INFINITE

    def begin(self, now: float) -> None:
        decoding = [one for one in self.running if one.to_compute == 0]
        if not self.reserves:
            while self.running and self.held() + len(decoding) > self.kv:
                last = self.running.pop()
                decoding = [one for one in self.running if one.to_compute == 0]
                last.stored = last.to_compute = 0
                last.lost += 1
                self.waiting.insert(0, last)
        budget = self.chunk - (0 if self.prefill_first else len(decoding))
        prompts: list[tuple[Sequence, int]] = []
        pairs = 0.0
        while budget > 0:
            half = next(
                (one for one in self.running if one.to_compute > 0 and not any(one is p for p, _ in prompts)), None
            )
            if half is None:
                growing = 0 if self.reserves else len(decoding)
                if not self.waiting or len(self.running) >= self.seqs:
                    break
                new = self.waiting[0]
                length = new.input + new.made
                room = new.input + new.output if self.reserves else length
                if self.held() + growing + room > self.kv:
                    break
                half = self.waiting.pop(0)
                half.stored, half.to_compute = half.cached, length - half.cached
                self.running.append(half)
            part = min(budget, half.to_compute)
            pairs += ((half.stored + part) ** 2 - half.stored**2) / 2
            prompts.append((half, part))
            budget -= part
        if self.prefill_first and prompts:
            decoding = []
        tokens = sum(part for _, part in prompts) + len(decoding)
        if tokens == 0:
            self.until = INFINITE
            return
        reads = sum(one.stored + 1 for one in decoding)
        self.plan = prompts + [(one, 0) for one in decoding]
        self.until = now + self.take(tokens, reads, len(decoding), pairs)
        self.rounds += 1

    def end(self) -> list[Sequence]:
        gone = []
        for one, part in self.plan:
            if part:
                one.stored += part
                one.to_compute -= part
                if one.to_compute:
                    continue
            else:
                one.stored += 1
            one.made += 1
            one.stamps.append(self.until)
            if one.made == one.output:
                gone.append(one)
        self.running = [one for one in self.running if not any(one is other for other in gone)]
        self.plan = []
        return gone


def play(
    machines: list[Machine],
    requests: list[Sequence],
    *,
    expected: float,
    ttft_ms: float = INFINITE,
    in_turn: bool = False,
    weights: list[float] | None = None,
) -> None:
    """Serve them all; every sequence keeps the time of each of its tokens.

    With `weights` a request goes where (requests there + 1) / weight is least. Where all have as many as their cap, it
    is refused.
    """
    coming, turn = list(requests), -1
    while True:
        first = min(machines, key=lambda one: one.until)
        if coming and coming[0].arrived <= first.until:
            new = coming.pop(0)

            def work(at: int, new: Sequence = new) -> float:
                machine, total = machines[at], 0.0
                for one in [*(r for r in requests if r.machine == at and r.made < r.output), new]:
                    if one.made == 0:
                        pairs = (one.input**2 - one.cached**2) / 2
                        total += machine.slope(one.input - one.cached, 0, 0, pairs)
                    steps = expected - 1
                    total += machine.slope(steps, steps * (one.input + expected / 2), steps, 0)
                return total

            there = [r.machine for r in requests if r.machine >= 0 and r.made < r.output]
            able = [n for n, machine in enumerate(machines) if there.count(n) < machine.cap]
            if not able:
                continue
            if weights is not None:
                at = min(able, key=lambda n: (there.count(n) + 1) / weights[n])
            elif in_turn:
                turn = at = next(n for k in range(1, len(machines) + 1) if (n := (turn + k) % len(machines)) in able)
            else:
                open_to = [n for n in able if machines[n].alone(new) <= machines[n].limit * ttft_ms]
                at = min(open_to or able, key=work)
            new.machine = at
            machines[at].waiting.append(new)
            if machines[at].until == INFINITE:
                machines[at].begin(new.arrived)
        elif first.until < INFINITE:
            now = first.until
            first.end()
            first.begin(now)
        else:
            return
