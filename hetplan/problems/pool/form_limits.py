"""Rows of a pool's program for what a wish limits besides money: instances of each type, resources in all."""

from __future__ import annotations

import numpy as np

from hetplan.planner.forms.milp import Builder, Elastic
from hetplan.problems.pool.letters import EXTRA, Counts, Pool

__all__ = ["add_limits", "limit_resources"]


def add_limits(pool: Pool, m: Builder, n: Counts) -> None:
    """min_t and max_t per type over its offers, and totals of resources."""
    for name, verb, side in (("least", "lower", 0), ("most", "raise", 1)):
        kinds = [
            (t, kind.most if side else kind.least)
            for t, kind in enumerate(pool.types)
            if (kind.most is not None if side else kind.least > 0)
        ]
        if not kinds:
            continue
        limit = [float(bound or 0) for _, bound in kinds]
        rows = m.rows(
            name,
            [pool.types[t].hardware for t, _ in kinds],
            lower=-np.inf if side else limit,
            upper=limit if side else np.inf,
            unit="instances",
            equation="(4)",
            elastic=Elastic(EXTRA, f"slo.limits.instances.{{label}}[{side}]", verb=verb, unit="instances", whole=True),
        )
        for row, (t, _) in zip(rows, kinds, strict=True):
            m.add(row, n[pool.of == t], 1.0)
    limit_resources(pool, m, n)


def limit_resources(pool: Pool, m: Builder, n: Counts) -> None:
    """What all machines n provide, where the SLO limits it."""
    resources = pool.inputs.slo.limits.resources
    if resources:
        rows = m.rows(
            "resources",
            list(resources),
            upper=list(resources.values()),
            equation="(4)",
            elastic=Elastic(EXTRA, "slo.limits.resources.{label}"),
        )
        for row, resource in zip(rows, resources, strict=True):
            m.add(row, n, pool.takes(resource)[pool.of])
