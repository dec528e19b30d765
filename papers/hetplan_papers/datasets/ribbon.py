"""Ribbon (SC 2021): one model on three instance types, at a published rate and published largest counts.

The way back is `kairos.published`: the files have one shape.
"""

from __future__ import annotations

from pathlib import Path

from hetplan_papers.datasets import kairos
from hetplan_papers.datasets.sources import DATA, Json, read

__all__ = ["MODELS", "inputs", "target_qps"]

MODELS = ("candle", "resnet", "vgg", "mtwnd", "dien")


def target_qps(model: str, *, data: Path = DATA) -> float:
    """The rate of the published experiment: one query per mean inter-arrival time."""
    return 1000.0 / float(read("kairos/ribbon_qos_lookup.json", data)["configs"][model]["inter_arrival"])


def inputs(
    model: str,
    *,
    target_qps: float | None = None,
    budget: str | None = None,
    all_types: bool = False,
    data: Path = DATA,
) -> tuple[Json, Json]:
    """Least cost for the published rate (or another), or the most rate for a budget.

    `all_types` takes every type that was measured, without limits on counts, in place of the published three.
    """
    setting = read("kairos/ribbon_qos_lookup.json", data)["configs"][model]
    latency = read("kairos/ribbon_latency.json", data)[model]
    rate = 1000.0 / setting["inter_arrival"] if target_qps is None else target_qps
    return kairos.one_model(
        model,
        latency,
        types=list(latency) if all_types else setting["ins_types"],
        prices=read("kairos/prices.json", data)["prices"],
        mix=read("kairos/batch_size_pmf.json", data)["ribbon"],
        qos_ms=float(setting["qos"]),
        budget=budget,
        target_qps=None if budget is not None else rate,
        most=None if all_types else dict(zip(setting["ins_types"], setting["max_num"], strict=True)),
        cite="Ribbon, SC 2021, published code and data",
    )
