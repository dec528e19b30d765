"""RAMSIS beside Jellyfish+ and ModelSwitching, with the paper's objective and with ours, on the published models.

    python -m hetplan_papers.reproduce policy --data DIR                       # everything, a figure at a time
    python -m hetplan_papers.reproduce.policy_parts --data DIR --only fig-7 table-2  # some of it

The paper's tables come from a prototype, whose latencies vary; ours from simulation at the 95th percentile, so they
stand beside and are not checked. What is checked: ours is never worse than the paper's policies, and the gains are
those that the paper's artifact prints.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from hetplan_papers.reproduce.policy.constant import constant
from hetplan_papers.reproduce.policy.on_trace import trace
from hetplan_papers.reproduce.policy.published import SLOS_MS
from hetplan_papers.reproduce.policy.sensitivity import fidelity, runtimes, sixty_models, three_models
from hetplan_papers.reproduce.pool.rows import Row, as_json, shown

__all__ = ["PARTS", "TITLES", "run"]

TITLES = {
    "Table 2": "seconds to make a policy (image, 500 ms)",
    "Fig. 6": "constant load: accuracy of queries in time, simulated (image: 60 workers, text: 20)",
    "Fig. 6, goodput": "constant load: accuracy per query that comes",
    "Table 4": "percent late under constant load; paper: RAMSIS / Jellyfish+ / ModelSwitching",
    "Sec. 7.2": "gains under constant load",
    "Fig. 6, artifact": "gain over the baselines in points of accuracy, as the artifact prints it",
    "Fig. 7": "expectation against simulation (150 ms)",
    "Fig. 7, accuracy": "the same, accuracy of the queries in time",
    "Fig. 7, violations": "the same, percent late",
    "Fig. 8": "sixty models against nine, 100 workers: accuracy",
    "Fig. 12": "three models of the nine",
    "Fig. 5": "Twitter trace: accuracy of queries in time",
    "Fig. 5, goodput": "Twitter trace: accuracy per query that comes",
    "Table 3": "percent late on the Twitter trace; paper: RAMSIS / Jellyfish+ / ModelSwitching",
    "Sec. 7.1": "gains on the trace",
    "Sec. 7.1, workers": "workers saved on the trace",
    "Fig. 5, artifact": "gain over the baselines on the trace, 60 to 80 workers, 150 ms",
}

PARTS: Mapping[str, Callable[..., list[Row]]] = {
    "table-2": runtimes,
    **{f"fig-6-{task}-{slo}": partial(constant, task, slo) for task, slos in SLOS_MS.items() for slo in slos},
    "fig-7": fidelity,
    "fig-8": sixty_models,
    "fig-12": three_models,
    **{f"fig-5-{task}-{slo}": partial(trace, task, slo) for task, slos in SLOS_MS.items() for slo in slos},
}
"""Parts that run by themselves, each within four minutes of one core and a gigabyte."""

QUICK = ("table-2", "fig-6-image-150", "fig-7", "fig-8", "fig-12", "fig-5-image-150")


def run(data: Path, *, json: bool, quick: bool, threads: int = 1, only: Sequence[str] = ()) -> int:
    """The parts named, or all; 1 where a row is off."""
    del threads  # a part at a time keeps memory within bounds
    if not (data / "ramsis").exists():
        print(f"the published measurements are not at {data / 'ramsis'}", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for name in only or (QUICK if quick else PARTS):
        began = time.process_time()
        found = sorted(PARTS[name](data, quick=quick), key=lambda row: list(TITLES).index(row.figure))
        rows += found
        if not json:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(shown(found, TITLES))
            print(f"  ({name}: {time.process_time() - began:.0f} CPU s, peak so far {peak:.0f} MB)\n", flush=True)
        gc.collect()
    if json:
        print(as_json(rows))
    return int(any(row.off for row in rows))
