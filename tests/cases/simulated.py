"""A simulator that says what it is asked to say: reports as plans are looked at by, and put to the test."""

from types import SimpleNamespace

from hetplan.simulator.figures import Together, responses_of

CONFIRMING = 2 * 10**6
"""From this seed on a plan is put to the test."""
LATE_MS, QUERIES = 1e9, 10_000


def app_saying(share, seeds, *, in_time_ms=1.0, spread=0.1):
    """An application of which so many queries are late on the mean, a tenth more in every other run."""
    late = SimpleNamespace(value=share, low=(1 - spread) * share, high=(1 + spread) * share)
    time = SimpleNamespace(value=in_time_ms if share <= 0.01 else LATE_MS, low=in_time_ms, high=float("inf"))
    shares = [share * (1 + spread * (-1) ** run) for run in range(seeds)]
    runs = [responses_of([in_time_ms] * (QUERIES - round(one * QUERIES)) + [LATE_MS] * round(one * QUERIES))
            for one in shares]  # fmt: skip
    return SimpleNamespace(
        figures={"violations": late, "accuracy": SimpleNamespace(high=1.0)}, percentiles_ms={99.0: time},
        by_run=tuple({"violations": one, "accuracy": 1.0} for one in shares), spans=float("inf"),
        responses={"response": Together(runs)}, queries_per_seed=QUERIES,
    )  # fmt: skip


def report_of(apps, groups, *, seeds, duration_s):
    """What all of them say together."""
    return SimpleNamespace(apps=apps, groups=groups, seeds=range(seeds), duration_s=duration_s)
