"""What came of the cells of `reality.py`: verdicts, and the rows of its page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Self

from benchmarks.reality_replay import Replay
from benchmarks.stalls import StallWatch

__all__ = ["ORDER", "REAL", "REPEATS", "Cell", "RealCell", "heading", "reported", "write_page"]

ORDER = ("pool", "pipeline", "policy", "chain", "onnx", "onnx-shared")
REAL = ("onnx", "onnx-shared")
"""Sets of models that compute."""
P99_WITHIN, VIOLATIONS_WITHIN, QUALITY_WITHIN = 0.10, 0.01, 0.005
REPEATS, T_90, WIDEST = 5, 2.132, 0.25
"""Runs of a load whose first one does not hold, Student's t for 90% of so many, and the widest interval that tells."""
FARTHEST = 3.0
"""A deadline is at most so many times the measured p99: one that nothing comes near is kept by any plan."""
STILL = 0.0025
"""Stalls that take so much of the time reach a quarter as many requests as lie beyond p99, or more."""


@dataclass(frozen=True)
class Cell:
    """What came of one cell; pairs are (simulated, measured)."""

    models: str
    rule: str
    load: str
    requests: int
    p99_ms: tuple[float, float]
    one_run_ms: tuple[float, float]
    """Where the p99 of a single simulated run lies, 95 of 100 times."""
    p50_ms: tuple[float, float]
    violations: tuple[float, float]
    quality: tuple[float, float]
    late_p99_ms: float
    watch: StallWatch
    quality_known: bool = field(default=True, kw_only=True)
    """Whether the measurement tells the quality from the simulated one, or its interval holds both."""
    lost: int = field(default=0, kw_only=True)
    """Requests without an answer, among all that was sent."""
    deadline_ms: float = field(default=math.nan, kw_only=True)
    repeats_ms: tuple[float, ...] = field(default=(), kw_only=True)
    """The measured p99 of each run, where the load was sent several times."""

    @property
    def p99_off(self) -> float:
        return _off(*self.p99_ms)

    @property
    def deadline_in_p99(self) -> float:
        """How many times the measured p99 its deadline is."""
        return self.deadline_ms / self.p99_ms[1]

    def holds(self) -> bool:
        return abs(self.p99_off) <= P99_WITHIN and self._shares_hold(self.violations[0])

    def repeated(self, others: Sequence[Cell]) -> Self:
        """This cell with what the same load came to again; violations and quality are the means of all runs."""
        runs = (self, *others)
        violations, quality = (
            mean(pair[1] for pair in pairs)
            for pairs in zip(*((run.violations, run.quality) for run in runs), strict=True)
        )
        return replace(
            self, repeats_ms=tuple(run.p99_ms[1] for run in runs),
            violations=(self.violations[0], violations), quality=(self.quality[0], quality),
        )  # fmt: skip

    def interval_ms(self) -> tuple[float, float]:
        """The 90% interval of the measured p99 from its repeats."""
        middle, half = mean(self.repeats_ms), T_90 * stdev(self.repeats_ms) / math.sqrt(len(self.repeats_ms))
        return middle - half, middle + half

    def verdict(self) -> str:
        """Whether it holds; where it does not, the measured cause, if there is one."""
        if self.repeats_ms:
            low, high = self.interval_ms()
            said = f"{low:.1f} .. {high:.1f}"
            if high - low > WIDEST * (high + low) / 2.0:
                return f"too noisy: {said}"
            if low <= self.p99_ms[0] <= high and self._shares_hold(self.violations[0]):
                return f"yes, by repeats: {said}"
            return f"{self._cause()} ({said})"
        return "yes" if self.holds() else self._cause()

    def _cause(self) -> str:
        if self._shares_hold(self.violations[0]) and self.one_run_ms[0] <= self.p99_ms[1] <= self.one_run_ms[1]:
            return "no: as far as runs differ"
        # What is above the simulation by more than the longest stall is no stall's doing.
        if self.watch.still >= STILL and 0.0 <= self.p99_ms[1] - self.p99_ms[0] <= self.watch.longest_ms:
            return "no: cores stood still"
        return "no"

    def row(self) -> str:
        low, high = self.one_run_ms
        lost = f" ({self.lost} lost)" if self.lost else ""
        return (
            f"| {self.models} | {self.rule} | {self.load} | {self.requests}{lost} | "
            f"{self.p99_ms[0]:.1f} ({low:.1f} .. {high:.1f}) | {self.p99_ms[1]:.1f} | {100 * self.p99_off:+.1f} % | "
            f"{self.p50_ms[1] - self.p50_ms[0]:+.2f} | {self._shares_off()} | {self.late_p99_ms:.2f} | "
            f"{100 * self.watch.stolen:.1f} % | {self.watch.longest_ms:.0f} | {100 * self.watch.still:.2f} % | "
            f"{self.verdict()} |"
        )

    def _shares_hold(self, violations: float) -> bool:
        off = abs(self.violations[1] - violations), abs(self.quality[1] - self.quality[0])
        return off[0] <= VIOLATIONS_WITHIN and (off[1] <= QUALITY_WITHIN or not self.quality_known)

    def _shares_off(self) -> str:
        off = self.violations[1] - self.violations[0], self.quality[1] - self.quality[0]
        return f"{100 * off[0]:+.2f} | {100 * off[1]:+.2f}"


@dataclass(frozen=True)
class RealCell(Cell):
    """A cell whose models compute, with what other simulations say of the same queries (`reality_replay`).

    `longer` is by how much mean and p99 of the service times were beyond the profile's; `ways_ms` are p50 and p99 of
    what queries spent on their ways.
    """

    replays: Mapping[str, Replay]
    longer: tuple[float, float]
    ways_ms: tuple[float, float]

    def agrees(self, replay: str) -> bool:
        """Whether the measurement is what this simulation says."""
        reported = self.replays[replay]
        return abs(_off(reported.p99_ms, self.p99_ms[1])) <= P99_WITHIN and self._shares_hold(reported.violations)

    def _cause(self) -> str:
        """By how much service times were longer, where a simulation with these agrees; else what else is known."""
        if self.agrees("served"):
            return f"no: service times {100 * self.longer[0]:+.0f} %, p99 {100 * self.longer[1]:+.0f} %"
        return super()._cause()

    def row(self) -> str:
        p99_ms = self.p99_ms[0], *(self.replays[name].p99_ms for name in ("served", "alone"))
        reported = (f"{one:.1f} ({100 * _off(one, self.p99_ms[1]):+.0f} %)" for one in p99_ms)
        return (
            f"| {self.models} | {self.rule} | {self.load} | {self.requests} | {self.p99_ms[1]:.1f} | "
            f"{' | '.join(reported)} | {100 * self.longer[0]:+.0f} %, {100 * self.longer[1]:+.0f} % | "
            f"{self.ways_ms[0]:.1f}, {self.ways_ms[1]:.1f} | {self._shares_off()} | {self.late_p99_ms:.2f} | "
            f"{self.watch.longest_ms:.0f} | {self.verdict()} |"
        )


HEAD = (
    "| models | rule | load | requests | p99 simulated, ms (of one run) | p99 measured, ms | p99 off | p50 off, ms | "
    "violations off, points | quality off, points | sender late p99, ms | stolen by the host | longest stall, ms | "
    "time in stalls | holds |\n"
    "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
)
REAL_HEAD = (
    "| models | rule | load | requests | p99 measured, ms | p99 simulated, ms (measured is off by) | with the service "
    "times that were served | from models measured alone | service beyond the profile: mean, p99 | ways p50, p99, ms | "
    "violations off, points | quality off, points | sender late p99, ms | longest stall, ms | holds |\n"
    "|---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|"
)


def _off(simulated: float, measured: float) -> float:
    if math.isinf(simulated) or math.isinf(measured):
        return 0.0 if simulated == measured else math.inf
    return measured / simulated - 1.0


def heading(models: str) -> str:
    """The head of the table in which these models stand."""
    return REAL_HEAD if models in REAL else HEAD


def reported(rows: Sequence[str]) -> str:
    """How many of the cells hold.

    >>> reported(["| a | yes", "| b | yes, by repeats: 9 .. 10 |", "| c | too noisy: 5 .. 9 |", "| d | no: a stall |"])
    '2 of 4 cells hold (50%), 1 of them by their repeats; 1 too noisy to tell; 1 does not, with a measured cause: 1.'
    """
    verdicts = [row.split(" | ")[-1].removesuffix(" |") for row in rows]
    held, noisy = (sum(one.startswith(word) for one in verdicts) for word in ("yes", "too noisy"))
    share, repeated = held / max(len(rows), 1), sum(one.startswith("yes,") for one in verdicts)
    causes, others = sum(one.startswith("no: ") for one in verdicts), len(rows) - held - noisy
    return (
        f"{held} of {len(rows)} cells hold ({share:.0%}), {repeated} of them by their repeats; {noisy} too noisy to "
        f"tell; {others} {'does' if others == 1 else 'do'} not, with a measured cause: {causes}."
    )


def write_page(page: Path, cells: Sequence[Cell], calibration: str) -> None:
    """Put the rows into the page; those of sets that were not run this time stay."""
    text, _, below = page.read_text().partition("<!-- table -->")
    run = {cell.models for cell in cells}
    kept = [line for line in below.splitlines() if _models(line) in set(ORDER) - run]
    kept = [line for line in kept if line.count("|") == heading(_models(line)).splitlines()[0].count("|")]
    rows = sorted([*kept, *(cell.row() for cell in cells)], key=lambda row: ORDER.index(_models(row)))
    tables = []
    for head in (HEAD, REAL_HEAD):
        mine = [row for row in rows if heading(_models(row)) == head]
        if mine:
            tables.append("\n".join([head, *mine]))
    farthest = [f"{cell.models}, {cell.rule}, {cell.load}" for cell in cells if cell.deadline_in_p99 > FARTHEST]
    beyond = f"above that: {'; '.join(farthest)}" if farthest else "none is above that"
    reach = f"Deadlines of the sets that ran last are at most {FARTHEST:g} times the measured p99; {beyond}."
    page.write_text("\n\n".join([f"{text}<!-- table -->", f"{reported(rows)} {reach} {calibration}", *tables]) + "\n")


def _models(row: str) -> str:
    return row.split(" | ")[0][2:]
