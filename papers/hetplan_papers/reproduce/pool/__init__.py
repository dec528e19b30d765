"""The figures of Kairos (HPDC 2023), 8 to 16: what its text says, what is stored of its code and data, and ours."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hetplan_papers.reproduce.pool.rows import Row, as_json, shown

if TYPE_CHECKING:
    from hetplan_papers.reproduce.pool.bench import Bench

__all__ = ["TITLES", "figures", "run"]

TITLES = {
    "8": "KAIROS' pool against base instances alone, 2.5 USD/h",
    "9a": "dispatch rules on one pool, exponential gaps",
    "9b": "dispatch rules, each at its own best pool, exponential gaps",
    "9c": "the same with the published code's gaps of whole milliseconds",
    "10": "share of the 331 pools that Algorithm 1 tries with each rule",
    "11": "evaluations of the searches under KAIROS' dispatch",
    "12": "the mix changes to a Gaussian (RM2)",
    "13": "rank by Eq. 15 and what pools carry",
    "14": "the best by Eq. 15 under other rules (RM2)",
    "15a": "gain over homogeneous at larger budgets",
    "15b": "gain over homogeneous with the target 20% higher",
    "16a": "gain over homogeneous with Gaussian sizes",
    "16b": "gain over homogeneous with mispredicted latencies",
}

PARTS = ("homogeneous", "policies", "searches", "load_change", "ranking", "robustness")
"""The modules of this package that have rows, in the order of the figures."""

FOOT = """
"published code / data": figures of data/kairos. Ranks and picks are the published allocator's own output; rates are
those of the simulations stored with the data (sim_*, exhaustive_*), which are not the published server's own output.
The paper's cells hold words of its text; its figures are drawings without numbers.
"""


def run(data: Path, *, json: bool = False, quick: bool = False, threads: int = 1) -> int:
    """Print all rows; 1 when one is off, 2 when the data are absent."""
    if not (data / "kairos" / "kairos_latency.json").exists():
        print(
            f"no published data in {data / 'kairos'}; name the folder that holds kairos/ with --data", file=sys.stderr
        )
        return 2
    from hetplan_papers.reproduce.pool.bench import Bench

    began = time.perf_counter()
    found = figures(Bench(data, quick=quick, threads=threads))
    spent = time.perf_counter() - began
    print(as_json(found, quick=quick, seconds=round(spent, 1)) if json else f"{shown(found, TITLES)}\n{FOOT}")
    return int(any(row.off for row in found))


def figures(bench: Bench) -> list[Row]:
    """All figures, in order."""
    found: list[Row] = []
    for name in PARTS:
        began = time.perf_counter()
        found += importlib.import_module(f"hetplan_papers.reproduce.pool.{name}").rows(bench)
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return found
