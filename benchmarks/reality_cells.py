"""What came of the cells of `reality.py`: verdicts, and the rows of its page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.reality_replay import Replay
from benchmarks.stalls import StallWatch

__all__ = ["ORDER", "REAL", "Cell", "RealCell", "heading", "told", "write_page"]

ORDER = ("pool", "pipeline", "policy", "chain", "onnx", "onnx-shared")
REAL = ("onnx", "onnx-shared")
"""Sets of models that compute."""
P99_WITHIN, VIOLATIONS_WITHIN, QUALITY_WITHIN = 0.10, 0.01, 0.005
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

    @property
    def p99_off(self) -> float:
        return _off(*self.p99_ms)

    def holds(self) -> bool:
        return abs(self.p99_off) <= P99_WITHIN and self._shares_hold(self.violations[0])

    def verdict(self) -> str:
        """Whether it holds; where it does not, the measured cause, if there is one."""
        if self.holds():
            return "yes"
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
        told = self.replays[replay]
        return abs(_off(told.p99_ms, self.p99_ms[1])) <= P99_WITHIN and self._shares_hold(told.violations)

    def verdict(self) -> str:
        """Whether it holds; else by how much service times were longer, where a simulation with these agrees."""
        if not self.holds() and self.agrees("served"):
            return f"by service times: {100 * self.longer[0]:+.0f} % (p99 {100 * self.longer[1]:+.0f} %)"
        return super().verdict()

    def row(self) -> str:
        p99_ms = self.p99_ms[0], *(self.replays[name].p99_ms for name in ("served", "alone"))
        told = (f"{one:.1f} ({100 * _off(one, self.p99_ms[1]):+.0f} %)" for one in p99_ms)
        return (
            f"| {self.models} | {self.rule} | {self.load} | {self.requests} | {self.p99_ms[1]:.1f} | "
            f"{' | '.join(told)} | {100 * self.longer[0]:+.0f} %, {100 * self.longer[1]:+.0f} % | "
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


def told(rows: Sequence[str]) -> str:
    """How many of the cells hold.

    >>> told(["| a | yes |", "| b | by service times: +9 % (p99 +20 %) |", "| c | no: a stall |", "| d | no |"])
    '1 of 4 cells hold, 1 with the service times that were served (50% together); others with a measured cause: 1.'
    """
    verdicts = [row.split(" | ")[-1].removesuffix(" |") for row in rows]
    held, by_times = verdicts.count("yes"), sum(verdict.startswith("by service times") for verdict in verdicts)
    explained = sum(verdict.startswith("no: ") for verdict in verdicts)
    share = f"({(held + by_times) / max(len(rows), 1):.0%}{' together' if by_times else ''})"
    served = f", {by_times} with the service times that were served" if by_times else ""
    others = f"; others with a measured cause: {explained}" if held + by_times < len(rows) else ""
    return f"{held} of {len(rows)} cells hold{served} {share}{others}."


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
    page.write_text("\n\n".join([f"{text}<!-- table -->", f"{told(rows)} {calibration}", *tables]) + "\n")


def _models(row: str) -> str:
    return row.split(" | ")[0][2:]
