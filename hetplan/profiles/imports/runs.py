"""One run of a benchmark of a server that makes text, as any tool reports it; and whether its figures can be true.

A tool's report has its own names and units. Here all are requests per second, tokens and milliseconds, with every
statistic under the name that tables of rates have (`ttft_p99_ms`). Figures that contradict one another by the laws of
any queue are refused, with both: a slip of units then never becomes a plan.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from hetplan.profiles.imports.words import digits, refuse

__all__ = ["Run", "Statistics", "check_run", "statistic_name"]

Statistics = dict[str, float]
"""Milliseconds by name: ttft_mean_ms, tpot_p50_ms, itl_p99_ms, response_p99.9_ms."""

_LITTLE, _RATE, _TOKENS, _SUM = 0.25, 0.05, 0.05, 0.10
"""How far requests at a time are from rate x response; the rate from requests / duration; output tokens per second from
rate x answer; TTFT + (n - 1) TPOT from the response."""
_STEADY, _FAILED = 0.95, 0.01
_FURTHEST, _MIDDLE = 300.0, 50.0
"""Statistics of one time further apart than this are in different units."""
_MANY = 10.0
"""With so many requests for each that runs at a time, beginning and end of a run count for little."""


@dataclass(frozen=True)
class Run:
    """One run: which model on which machine, how long its requests were, how many came, and what was measured."""

    place: str
    tool: str
    model: str
    hardware: str
    gpus: int
    input_tokens: float
    output_tokens: float
    rate_qps: float
    times: Statistics
    concurrency: float | None = None
    offered_qps: float | None = None
    completed: float | None = None
    failed: float = 0.0
    duration_s: float | None = None
    output_qps: float | None = None
    """Output tokens per second, where the report says them beside the rate."""
    input_qps: float | None = None
    burst: bool = False
    """All requests came at once: what they took says nothing of any load."""
    recounted: bool = False
    """Tokens were counted by the tool and not by the server: times per token and lengths need not add up."""
    engine: str = ""
    label: str = ""
    """What else tells apart runs whose laws differ: a version, how layers are split."""

    @property
    def unsteady(self) -> str:
        """Why what requests took does not show what they take at this rate; nothing where it does."""
        if self.burst:
            return "all requests came at once"
        if self.failed > _FAILED * (self.failed + (self.completed or 0.0)):
            return f"{self.failed:g} requests failed"
        if self.offered_qps and self.rate_qps < _STEADY * self.offered_qps:
            return f"past saturation: {self.offered_qps:.4g}/s came, {self.rate_qps:.4g}/s were served"
        return ""

    @property
    def given(self) -> Statistics:
        """What a table of rates keeps of the run. Of one that was not steady nothing that could keep a limit."""
        kept = {k: v for k, v in self.times.items() if not self.unsteady or "_mean_" in k or "_p50_" in k}
        asked = {"concurrency": self.concurrency, "request_rate_qps": self.offered_qps}
        return {**kept, **{name: value for name, value in asked.items() if value is not None}}

    def time(self, of: str, *names: str) -> float | None:
        """A time by the first of these statistics that was measured."""
        return next((self.times[f"{of}_{one}_ms"] for one in names if f"{of}_{one}_ms" in self.times), None)


_NAMES = {"avg": "mean", "average": "mean", "median": "p50", "p999": "p99.9", "p99p9": "p99.9", "p001": "p0.1",
          "p0p1": "p0.1", "p01": "p1", "p05": "p5"}  # fmt: skip
_KNOWN = re.compile(r"mean|max|p(?:100|[0-9]{1,2}(?:\.[0-9]+)?)")


def statistic_name(name: str) -> str | None:
    """A statistic by its name here; None where it is another one.

    >>> [statistic_name(one) for one in ("avg", "median", "P99", "p99p9", "p01", "std", "p99.")]
    ['mean', 'p50', 'p99', 'p99.9', 'p1', None, None]
    """
    plain = _NAMES.get(name.lower(), name.lower())
    return plain if _KNOWN.fullmatch(plain) else None


def check_run(run: Run, file: str) -> None:
    """Raise `InputError` where the figures of a run contradict one another."""
    for what, one, other, share in _contradictions(run):
        why = f"{what}: {digits(one, 4):g} and {digits(other, 4):g} are more than {share:.0%} apart"
        refuse(
            file, run.place, digits(one, 4), why, "One of them is in another unit, or of another run: mend the file."
        )
    for of in ("ttft", "tpot", "itl", "response"):
        levels = sorted(
            (100.0 if name == "max" else float(name[1:]), ms)
            for name, ms in ((key.split("_")[1], ms) for key, ms in run.times.items() if key.startswith(f"{of}_"))
            if name != "mean"
        )
        for (low, one), (high, other) in pairwise(levels):
            if one > other * (1.0 + 1e-6) or other > _FURTHEST * one:
                why = f"{of} p{low:g} is {one:g} ms and p{high:g} {other:g} ms: "
                why += "a higher percentile is no shorter" if one > other else "one of them is in another unit"
                refuse(file, run.place, digits(one, 4), why, "Mend the file.")
        mean = run.time(of, "mean")
        if mean is None:
            continue
        for level, ms in levels:
            # So many take at least that long, so the mean is at least their part of it.
            if ms * (1.0 - level / 100.0) > mean * (1.0 + 1e-6) or (level >= _MIDDLE and ms < mean / _FURTHEST):
                why = f"{of} p{level:g} is {ms:g} ms and the mean {mean:g} ms: no times have both"
                refuse(file, run.place, digits(ms, 4), why, "One of them is in another unit: mend the file.")


def _contradictions(run: Run) -> Iterator[tuple[str, float, float, float]]:
    if run.duration_s and run.completed and not _near(run.completed / run.duration_s, run.rate_qps, _RATE):
        yield (
            "requests per second, as stated and as completed / duration",
            run.rate_qps,
            (run.completed / run.duration_s),
            _RATE,
        )
    for what, stated, length in (
        ("output", run.output_qps, run.output_tokens),
        ("input", run.input_qps, run.input_tokens),
    ):
        if stated and not _near(stated, run.rate_qps * length, _TOKENS):
            text = f"{what} tokens per second, as stated and as rate x tokens of a request"
            yield text, stated, run.rate_qps * length, _TOKENS
    if run.concurrency and run.completed and run.concurrency > 1.0 + run.completed + run.failed:
        yield "requests at a time, and in all", run.concurrency, run.completed, 0.0
    whole, first, token = (run.time(of, "mean") for of in ("response", "ttft", "tpot"))
    if whole and first and token and not run.recounted:
        parts = first + (run.output_tokens - 1.0) * token
        if not _near(whole, parts, _SUM):
            yield "ms of a response, as stated and as TTFT + (tokens - 1) x TPOT", whole, parts, _SUM
    whole = whole or run.time("response", "p50")
    if run.concurrency and whole and not run.burst:
        at_once = run.rate_qps * whole / 1000.0
        long_enough = (run.completed or 0.0) >= _MANY * run.concurrency
        if at_once > run.concurrency * (1.0 + _LITTLE) or (
            long_enough and at_once < run.concurrency * (1.0 - _LITTLE) and run.offered_qps is None
        ):
            yield "requests at a time, as stated and as rate x response", run.concurrency, at_once, _LITTLE


def _near(one: float, other: float, share: float) -> bool:
    return math.isclose(one, other, rel_tol=share)
