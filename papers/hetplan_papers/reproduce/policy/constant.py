"""Constant loads: accuracy (Fig. 6), lateness (Table 4), and the gains that the artifact prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hetplan_papers.reproduce.policy.lab import ARTIFACTS, CALLED, WAYS, Lab
from hetplan_papers.reproduce.policy.published import (
    ARTIFACT_CONSTANT,
    CONSTANT_LATE,
    CONSTANT_WORDS,
    LOADS,
)
from hetplan_papers.reproduce.pool.rows import Claim, Row, at_least, between

__all__ = ["NEVER_WORSE", "PLOTTED", "artifact_rows", "constant", "gains", "late_cell"]

WORKERS = {"image": 60, "text": 20}
PLOTTED = 0.05
"""The paper's figures leave out points with more violations than this."""
SAME_SIMULATION = "the artifact's own simulator with its own seeds; 30 s per load there"
NEAR = 0.5
"""Points that gains may differ from the artifact's: its seeds, and its estimate of the load at every arrival."""
ALL_LATE = 0.999
"""The few in time before a queue grows beyond all bounds are no measure of accuracy."""
NEVER_WORSE = "the simulation's noise (three seeds)"


def constant(task: str, slo_ms: int, data: Path, *, quick: bool) -> list[Row]:
    """One task and SLO under ten loads."""
    lab = Lab(task, float(slo_ms), WORKERS[task], data, 100_000 if quick else 300_000)
    found = {way: [lab.served(way, float(load)) for load in LOADS] for way in WAYS}
    stated = CONSTANT_LATE.get((task, slo_ms))
    rows: list[Row] = []
    for i, load in enumerate(LOADS):
        at = {way: found[way][i] for way in WAYS}
        what = f"{task} {slo_ms} ms, {load} qps"
        said = ", ".join(f"{CALLED[way]} {at[way].accuracy:.4f}" for way in WAYS[1:])
        rows.append(Row("Fig. 6", f"{what}: RAMSIS", "", at["ramsis"].accuracy, said=said))
        carried = at["ramsis"].violation < PLOTTED
        checks = [at_least("RAMSIS's goodput", at["ramsis"].goodput - 5e-4, NEVER_WORSE)] if carried else []
        others = ", ".join(f"{CALLED[way]} {at[way].goodput:.4f}" for way in ("ramsis", *WAYS[2:]))
        rows.append(Row("Fig. 6, goodput", f"{what}: hetplan", "", at["ours"].goodput, said=others, checks=checks))
        paper = late_cell([stated[way][i] for way in ("ramsis", *WAYS[2:])]) if stated else ""
        late = ", ".join(f"{CALLED[way]} {at[way].violation:.3%}" for way in WAYS[1:])
        rows.append(Row("Table 4", f"{what}: RAMSIS", "%", 100 * at["ramsis"].violation, paper=paper, said=late))
    rows += _words(task, slo_ms, found)
    if (task, slo_ms) == ("image", 150):
        found.update({way: [lab.served(way, float(load)) for load in LOADS] for way in ARTIFACTS.values()})
        rows += artifact_rows("Fig. 6, artifact", found, ARTIFACT_CONSTANT, most=1.0)
    return rows


def late_cell(percents: Sequence[float]) -> str:
    """RAMSIS, Jellyfish+ and ModelSwitching in one cell."""
    return " / ".join(f"{percent:.3g}" for percent in percents)


def gains(mine: Sequence[Any], theirs: Sequence[Any], most: float = PLOTTED) -> tuple[float, float]:
    """Mean and largest gain in accuracy, in points, where neither has more late; NaN where that is never so.

    Where all of one are late there is no accuracy to compare, and no gain.
    """
    found = [
        100 * (a.accuracy - b.accuracy) if max(a.violation, b.violation) < ALL_LATE else 0.0
        for a, b in zip(mine, theirs, strict=True)
        if a.violation <= most and b.violation <= most
    ]
    return (float(np.mean(found)), float(np.max(found))) if found else (float("nan"), float("nan"))


def _words(task: str, slo_ms: int, found: Mapping[str, Sequence[Any]]) -> list[Row]:
    """The gains of one SLO beside what the text says of all three."""
    rows = []
    for baseline, (mean, most) in CONSTANT_WORDS[task].items():
        for way in ("ramsis", "ours"):
            ours = gains(found[way], found[baseline])
            words = f"{task}: over the prototype's SLOs on average {mean:g}%, up to {most:g}%"
            rows.append(
                Row(
                    "Sec. 7.2",
                    f"{task} {slo_ms} ms: {CALLED[way]} over {CALLED[baseline]}, mean",
                    "points",
                    ours[0],
                    paper=Claim(words, f"{mean:g}"),
                    said=f"most {ours[1]:.2f}, the paper {most:g}",
                )
            )
    return rows


def artifact_rows(
    figure: str,
    found: Mapping[str, Sequence[Any]],
    printed: Mapping[str, tuple[float, float]],
    *,
    most: float = PLOTTED,
) -> list[Row]:
    """Gains over the baselines beside those that the artifact prints, over points with so many late at most."""
    rows = []
    for baseline, numbers in printed.items():
        way = ARTIFACTS[baseline]
        found_here = gains(found["ramsis"], found[way], most)
        for name, mine, theirs in zip(("mean", "highest"), found_here, numbers, strict=True):
            check = between("artifact", theirs - NEAR, theirs + NEAR, SAME_SIMULATION)
            what = f"RAMSIS over {CALLED[way]}, {name}"
            rows.append(Row(figure, what, "points", mine, paper=f"{theirs:.2f}", checks=[check]))
        mean, highest = gains(found["ours"], found[way], most)
        rows.append(Row(figure, f"hetplan over {CALLED[way]}, mean", "points", mean, said=f"highest {highest:.2f}"))
    return rows
