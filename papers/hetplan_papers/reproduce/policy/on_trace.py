"""The Twitter trace on 20 to 100 workers: accuracy (Fig. 5), lateness (Table 3), workers saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hetplan.extend import PolicyRun
from hetplan_papers.reproduce.policy.constant import NEVER_WORSE, PLOTTED, artifact_rows, gains, late_cell
from hetplan_papers.reproduce.policy.lab import ARTIFACTS, CALLED, WAYS, Lab
from hetplan_papers.reproduce.policy.published import (
    ARTIFACT_TRACE,
    FEWER_WORKERS,
    TRACE_LATE,
    TRACE_WORDS,
    TRACE_WORKERS,
)
from hetplan_papers.reproduce.pool.rows import Claim, Row, at_least

__all__ = ["trace"]

OURS_AT = {("image", 150): TRACE_WORKERS[1:]}
"""Where hetplan's own sets are made for every number of workers; elsewhere for 60 only, to keep a run short."""
SEEDS = (1, 2)


def trace(task: str, slo_ms: int, data: Path, *, quick: bool) -> list[Row]:
    """One task and SLO on the trace."""
    workers = (60, 80) if quick else TRACE_WORKERS
    found: dict[str, list[PolicyRun]] = {way: [] for way in WAYS[:1] + WAYS[2:]}
    ours: dict[int, PolicyRun] = {}
    rows: list[Row] = []
    for count in workers:
        lab = Lab(task, float(slo_ms), count, data, 50_000)
        for way, runs in found.items():
            runs.append(lab.on_trace(way, SEEDS))
        if count in OURS_AT.get((task, slo_ms), (60,)):
            ours[count] = lab.on_trace("ours", SEEDS)
        rows += _of_workers(task, slo_ms, count, {way: runs[-1] for way, runs in found.items()}, ours.get(count))
    rows += _words(task, slo_ms, workers, found)
    if (task, slo_ms) == ("image", 150):
        rows += _artifact(data)
    return rows


def _artifact(data: Path) -> list[Row]:
    """The artifact's gains with 60 to 80 workers, by its own rules."""
    labs = [Lab("image", 150.0, count, data, 50_000) for count in (60, 70, 80)]
    ways = ("ramsis", "ours", *ARTIFACTS.values())
    found = {way: [lab.as_the_artifact(way, SEEDS) for lab in labs] for way in ways}
    return artifact_rows("Fig. 5, artifact", found, ARTIFACT_TRACE, most=1.0)


def _of_workers(task: str, slo_ms: int, count: int, at: Mapping[str, PolicyRun], ours: PolicyRun | None) -> list[Row]:
    what = f"{task} {slo_ms} ms, {count} workers"
    shown = {**at, **({"ours": ours} if ours is not None else {})}
    said = ", ".join(f"{CALLED[way]} {shown[way].accuracy:.4f}" for way in WAYS[1:] if way in shown)
    rows = [Row("Fig. 5", f"{what}: RAMSIS", "", at["ramsis"].accuracy, said=said)]
    if ours is not None:
        carried = at["ramsis"].violation < PLOTTED
        checks = [at_least("RAMSIS's goodput", at["ramsis"].goodput - 2e-3, NEVER_WORSE)] if carried else []
        others = ", ".join(f"{CALLED[way]} {run.goodput:.4f}" for way, run in at.items())
        rows.append(Row("Fig. 5, goodput", f"{what}: hetplan", "", ours.goodput, said=others, checks=checks))
    stated = TRACE_LATE[task, slo_ms]
    row = TRACE_WORKERS.index(count)
    late = ", ".join(f"{CALLED[way]} {shown[way].violation:.3%}" for way in WAYS[1:] if way in shown)
    paper = late_cell([stated[way][row] for way in ("ramsis", *WAYS[2:])])
    rows.append(Row("Table 3", f"{what}: RAMSIS", "%", 100 * at["ramsis"].violation, paper=paper, said=late))
    return rows


def _words(task: str, slo_ms: int, workers: Sequence[int], found: Mapping[str, Sequence[PolicyRun]]) -> list[Row]:
    rows = []
    for baseline, (mean, most) in TRACE_WORDS[task].items():
        ours = gains(found["ramsis"], found[baseline])
        words = f"{task}: over workers and SLOs on average {mean:g}%, up to {most:g}%"
        what = f"{task} {slo_ms} ms: RAMSIS over {CALLED[baseline]}, mean"
        said = f"most {ours[1]:.2f}, the paper {most:g}"
        rows.append(Row("Sec. 7.1", what, "points", ours[0], paper=Claim(words, f"{mean:g}"), said=said))
    for baseline, (mean, most) in FEWER_WORKERS[task].items():
        saved = _saved(workers, found["ramsis"], found[baseline])
        words = f"{task}: the same accuracy with on average {mean:g}%, up to {most:g}% fewer workers"
        what = f"{task} {slo_ms} ms: workers saved at {CALLED[baseline]}'s accuracy, mean"
        said = f"most {max(saved, default=0.0):.1f}, the paper {most:g}"
        average = float(np.mean(saved)) if saved else 0.0
        rows.append(Row("Sec. 7.1, workers", what, "%", average, paper=Claim(words, f"{mean:g}"), said=said))
    return rows


def _saved(workers: Sequence[int], mine: Sequence[PolicyRun], theirs: Sequence[PolicyRun]) -> list[float]:
    """Percent of workers that the first may do without at the other's accuracy, per number of workers."""
    saved = []
    for count, run in zip(workers, theirs, strict=True):
        if run.violation < PLOTTED:
            enough = [
                fewer
                for fewer, own in zip(workers, mine, strict=True)
                if own.violation < PLOTTED and own.accuracy >= run.accuracy
            ]
            if enough:
                saved.append(100.0 * (1.0 - min(enough) / count))
    return saved
