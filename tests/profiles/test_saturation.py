"""A saturation rate that its own table of times does not allow is refused, by its file, field and value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hetplan as hp
from hetplan.profiles.load_one import load_profile
from hetplan.profiles.saturation import AT_ONCE, NOISE, ONE_BY_ONE

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]


def profile(qps: float, *, batch: int = 8, ms: float = 25.0, **run: Any) -> Json:
    stated = {"hardware": "card", "latency": "t", "at": {"batch": batch}, "saturation_qps": qps, **run}
    return {
        "format": "hetplan/profile/1.0",
        "hardware": {"card": {"kind": "gpu", "provides": {"gpu": 1, "cpu_cores": run.pop("cores", 1)}}},
        "tasks": {"look": {}},
        "variants": {"net": {"task": "look", "runs": [stated]}},
        "tables": {"t": {"quantity": "latency_ms", "axes": {"batch": [batch, 128]}, "mean": [ms, 2 * ms]}},
    }


@pytest.mark.parametrize(("batch", "ms"), [(1, 7.0), (8, 25.0), (2, 3.0), (64, 400.0)])
def test_what_the_table_allows_is_read_and_more_is_refused(batch: int, ms: float) -> None:
    most = (AT_ONCE if batch > 1 else ONE_BY_ONE) * 1000.0 * batch / ms
    load_profile(profile(0.999 * NOISE * most, batch=batch, ms=ms))
    for more in (1.001 * NOISE * most, 16 * most, 100 * most):
        with pytest.raises(hp.InputError) as caught:
            load_profile(profile(more, batch=batch, ms=ms))
        (fault,) = caught.value.faults
        assert fault.path == "$.models.net.runs.card.max_qps"
        assert fault.value == f"{more!r}"
        assert f"{most:.6g} at most" in fault.why
        assert "left out" in fault.remedy


def test_an_instance_works_at_as_many_batches_as_it_has_cores() -> None:
    each = 1000.0 * 8 / 25.0
    load_profile(profile(16 * each, needs={"cpu_cores": 16}))
    with pytest.raises(hp.InputError):
        load_profile(profile(17 * each, needs={"cpu_cores": 16}))
    document = profile(16 * each)
    document["hardware"]["card"]["provides"]["cpu_cores"] = 16
    load_profile(document)


def test_of_axes_that_a_run_leaves_open_the_fastest_counts() -> None:
    document = profile(1.0)
    document["tables"]["t"] = {
        "quantity": "latency_ms", "axes": {"batch": [8], "resolution": [320, 640]}, "mean": [[25, 100]]
    }  # fmt: skip
    fast = AT_ONCE * 1000.0 * 8 / 25.0
    document["variants"]["net"]["runs"][0]["saturation_qps"] = fast
    load_profile(document)
    document["variants"]["net"]["runs"][0]["at"]["resolution"] = 640
    with pytest.raises(hp.InputError, match="max_qps"):
        load_profile(document)


def test_every_shipped_profile_is_read() -> None:
    shipped = sorted(ROOT.glob("examples/*/profile.json"))
    assert len(shipped) >= 8
    for path in shipped:
        load_profile(json.loads(path.read_text()))
