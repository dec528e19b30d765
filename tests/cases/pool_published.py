"""The published Kairos and Ribbon services as files (read from the shared data, which may be absent)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from cases.pool import Json, files

from hetplan.problems.pool.kairos import Eq15

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("HETPLAN_DATA", ROOT / ".." / "shared" / "data")).resolve() / "kairos"

KAIROS = ("ncf", "rm2", "wnd", "mtwnd", "dien")
RIBBON = ("candle", "dien", "mtwnd")


def present() -> bool:
    """Whether the data are there."""
    return (DATA / "kairos_latency.json").exists()


def load(name: str) -> Any:
    """One file of the data."""
    return json.loads((DATA / f"{name}.json").read_text())


def _service(latency: dict[str, Any], types: list[str], pmf: Json, prices: Json, **wish: Any) -> tuple[Json, Json]:
    # Bins above the largest measured batch do not occur in these pmfs.
    bins = [int(size) for size in latency[types[0]]["batch"]]
    return files(
        {name: latency[name]["mean_ms"] for name in types},
        pmf["pmf"],
        bins=bins,
        prices=prices,
        p99_ms={name: latency[name]["p99_ms"] for name in types},
        **wish,
    )


def kairos(model: str, **wish: Any) -> tuple[Json, Json]:
    """One of the five services of the Kairos paper, four types."""
    instance = load("kairos_instance")
    return _service(
        load("kairos_latency")[model],
        instance["types"],
        load("batch_size_pmf")["kairos"],
        instance["prices"],
        qos_ms=instance["qos_ms_p99"][model],
        **wish,
    )


def allocator_profile(model: str) -> Eq15:
    """The published code's own numbers for Eq. 15: its f is the share up to the first late size, sampled."""
    types = load("kairos_instance")["types"]
    profile = load("kairos_allocator_profile")[model]
    qb = profile[types[0]]["qps"]
    aux = [profile[name] for name in types[1:]]
    levels = sorted({one["vio_batch"] for one in aux})
    at_level = [next(one for one in aux if one["vio_batch"] == size) for size in levels]
    f = np.array([one["small_ratio"] for one in at_level])
    # The base spends 1 - time_ratio of its time on the share 1 - f of large queries.
    qs = np.array([qb * (1 - one["small_ratio"]) / (1 - one["time_ratio"]) for one in at_level])
    qa = [[0.0] * len(levels), *([one["all_batch"].get(str(size), 0.0) for size in levels] for one in aux)]
    level = (-1, *(levels.index(one["vio_batch"]) for one in aux))
    return Eq15(0, qb, level, f, qs, np.array(qa))


def ribbon(model: str) -> tuple[Json, Json]:
    """One of Ribbon's services at its published rate, each type capped at its published number."""
    setting = load("ribbon_qos_lookup")["configs"][model]
    types = setting["ins_types"]
    return _service(
        load("ribbon_latency")[model],
        types,
        load("batch_size_pmf")["ribbon"],
        load("prices")["prices"],
        qos_ms=setting["qos"],
        rate_qps=1000.0 / setting["inter_arrival"],
        instances={name: [0, most] for name, most in zip(types, setting["max_num"], strict=True)},
    )
