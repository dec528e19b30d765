"""What stopping early saves: measured seconds and results with and without it, on the synthetic pipelines.

python benchmarks/compound_early.py 3000 12 30     seeds from 3000 on, so many, and so many steps
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "papers")]

import hetplan as hp
from hetplan.measure.evaluator_profiler import measuring
from hetplan.measure.journal import Journal
from hetplan_papers.datasets.circinus_generator import APPS, draw


def searched(app: str, seed: int, *, steps: int, early: bool) -> tuple[float, float, float, bool]:
    """GPU-seconds, samples, the price of the plan (infinite without one), and whether it truly complies."""
    query, journal = draw(app, seed), Journal()
    measure = measuring(query, journal=journal)
    outcome = hp.solve(
        hp.Profile.model_validate(query.profile()),
        query.slo(),
        evaluate=measure,
        options={"max_measurements": steps, "early_stop": early},
    )
    plans = journal.document()["apps"]["query"]
    spent, samples = (sum(plan.get(key, 0.0) for plan in plans) for key in ("gpu_s", "samples"))
    if outcome.plan is None:
        return spent, samples, np.inf, False
    price = next(one.value for one in outcome.plan.promises if one.quantity == "cost_per_hour")
    knobs = outcome.plan.dispatch["query"].knobs  # type: ignore[union-attr]
    return spent, samples, price, bool(query.accuracy[query.configuration(knobs)] >= query.accuracy_min)


def main(first: int, count: int, steps: int) -> None:
    for app in APPS:
        rows = {
            early: np.array([searched(app, seed, steps=steps, early=early) for seed in range(first, first + count)])
            for early in (False, True)
        }
        whole, less = rows[False], rows[True]
        share = less[:, 0].sum() / whole[:, 0].sum()
        same = np.isclose(less[:, 2], whole[:, 2]).sum()
        cheaper, dearer = (less[:, 2] < whole[:, 2] - 1e-9).sum(), (less[:, 2] > whole[:, 2] + 1e-9).sum()
        print(
            f"{app}: {100 * share:.0f}% of the GPU-seconds; "
            f"plans: {same} alike, {cheaper} cheaper, {dearer} dearer; "
            f"truly compliant {whole[:, 3].sum():.0f} and {less[:, 3].sum():.0f} of {count}",
            flush=True,
        )


if __name__ == "__main__":
    main(*(int(word) for word in (sys.argv[1:] or ("3000", "12", "30"))))
