"""Profiles of Mélange and of AIBrix's GPU optimizer: request rates per GPU over input x output token buckets.

Mélange writes one object::

    {"gpu_info": {"A10G": {"cost": 1.01, "tputs": [[5, 1], [10, 5]]},
                  "A100-80GB": {"cost": 3.67, "tputs": [[20, 2], [50, 20]]}},
     "workload_distribution": [[0.25, 0.125], [0.375, 0.25]],
     "total_request_rate": 30.0, "slice_factor": 1}

`cost` is per hour, `tputs[i][o]` the most requests per second that one GPU serves of input bucket i and output bucket o
within its latency targets (0: none), `workload_distribution[i][o]` the share of those requests. `slice_factor` splits
buckets for its solver, which rounds; hetplan's fluid program needs no slices, so it is not read. The file does not say
how many tokens a bucket holds: without "input_buckets" and "output_buckets" (upper ends, which may be added to it) the
axes carry the bucket's number, 1, 2, ... "max_instances" or "instances" of a GPU become [least, most] limits.

AIBrix writes one object per GPU, as a file, a list or one per line::

    {"gpu": "a100", "cost": 1.0, "tputs": [[62.4, 32.3], [60.3, 31.7]], "indexes": [[4, 8], [128, 256]],
     "slos": {"percentile": 99, "e2e": 5.0}}

Here a row of `tputs` is an output size, a column an input size, and `indexes` holds [output tokens, input tokens];
`slos` (seconds) says under which targets it was measured. There is no workload in it, so there is no SLO either.

Both become rates over `input_tokens` x `output_tokens`: one model `llm` with a run per GPU, which has a price. Where a
workload is given, an SLO asks for the least cost at the total rate.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hetplan.profiles.imports.json_lines import read_json_or_lines
from hetplan.profiles.imports.words import refuse
from hetplan.profiles.new_files import model_of, new_profile, price_of
from hetplan.profiles.plain_data import is_number

__all__ = ["convert", "convert_document"]

_GIVEN = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2e": "response_ms", "tpat": "time_per_token_ms"}


def convert(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The profile of a Mélange or AIBrix file, and the SLO where the file holds a workload."""
    file = os.fspath(path)
    return convert_document(read_json_or_lines(path), file=file)


def convert_document(document: Any, *, file: str = "melange") -> tuple[dict[str, Any], dict[str, Any] | None]:
    """As `convert`, of a parsed document.

    >>> profile, slo = convert_document({"gpu_info": {"A10G": {"cost": 1.01, "tputs": [[2, 1]]}},
    ...                                  "workload_distribution": [[0.5, 0.5]], "total_request_rate": 4})
    >>> profile["models"]["llm"]["runs"]["a10g"]["mean_qps"], slo["apps"]["llm"]["rate_qps"]
    ([[2.0, 1.0]], 4.0)
    """
    if isinstance(document, Mapping) and "gpu_info" in document:
        return _from_melange(document, file)
    listed = document if isinstance(document, list) else [document]
    if not listed or not all(isinstance(entry, Mapping) and "gpu" in entry for entry in listed):
        why = 'an object with "gpu_info" (Mélange) or "gpu" (AIBrix)'
        refuse(file, "$", document, why, "Give a file of these tools.")
    return _from_aibrix(listed, file), None


def _from_melange(document: Mapping[str, Any], file: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    gpus = document["gpu_info"]
    if not isinstance(gpus, Mapping) or not gpus:
        refuse(file, "$.gpu_info", gpus, "an object with at least one GPU", "Add its name, cost and tputs.")
    grids = {}
    for name, gpu in gpus.items():
        path = f"$.gpu_info.{name}"
        if not isinstance(gpu, Mapping):
            refuse(file, path, gpu, "an object with cost and tputs", "Write {...}.")
        grids[name] = _grid(gpu.get("tputs"), f"{path}.tputs", file)
    shape = _shape(next(iter(grids.values())))
    axes = {
        "input_tokens": _buckets(document, "input_buckets", shape[0], file),
        "output_tokens": _buckets(document, "output_buckets", shape[1], file),
    }
    found = _Found()
    limits: dict[str, list[int | None]] = {}
    for name, gpu in gpus.items():
        if _shape(grids[name]) != shape:
            why = f"{shape[0]} x {shape[1]} entries, as the first GPU has"
            refuse(file, f"$.gpu_info.{name}.tputs", grids[name], why, "Profile every GPU over the same buckets.")
        cost = _number(gpu.get("cost"), f"$.gpu_info.{name}.cost", file)
        machine = found.add(name, cost, axes, grids[name], {})
        most = gpu.get("max_instances", gpu.get("instances"))
        if isinstance(most, int) and not isinstance(most, bool) and most >= 0:
            limits[machine] = [0, most]
    wish = _wish(document, axes, limits, file) if "workload_distribution" in document else None
    return found.profile("melange"), wish


def _wish(
    document: Mapping[str, Any], axes: Mapping[str, list[float]], limits: Mapping[str, Any], file: str
) -> dict[str, Any]:
    """The SLO: the workload at least cost."""
    shares = _grid(document["workload_distribution"], "$.workload_distribution", file)
    shape = (len(axes["input_tokens"]), len(axes["output_tokens"]))
    if _shape(shares) != shape:
        why = f"{shape[0]} x {shape[1]} entries, one per bucket of tputs"
        refuse(file, "$.workload_distribution", shares, why, "Give one share per bucket.")
    total = math.fsum(share for row in shares for share in row)
    if total <= 0:
        refuse(file, "$.workload_distribution", total, "at least one share above 0", "Give the shares.")
    rate = _number(document.get("total_request_rate"), "$.total_request_rate", file)
    bins, listed = [], []
    for row, input_tokens in zip(shares, axes["input_tokens"], strict=True):
        for share, output_tokens in zip(row, axes["output_tokens"], strict=True):
            if share:
                bins.append([input_tokens, output_tokens])
                listed.append(share / total)
    # Mélange multiplies each entry by the rate: entries that sum to S ask for S times the rate.
    asked = total * rate if abs(total - 1) > 1e-9 else rate
    demand = {"rate_qps": asked, "mix": {"axes": [*axes], "bins": bins, "share": listed}}
    slo: dict[str, Any] = {
        "format": "hetplan/slo/1.0",
        "objective": "min cost",
        "apps": {"llm": {"model": "llm", **demand}},
    }
    if limits:
        slo["limits"] = {"instances": dict(limits)}
    return slo


def _from_aibrix(entries: list[Mapping[str, Any]], file: str) -> dict[str, Any]:
    found = _Found()
    for number, entry in enumerate(entries):
        path = f"$[{number}]" if len(entries) > 1 else "$"
        name = entry["gpu"]
        if not isinstance(name, str):
            refuse(file, f"{path}.gpu", name, "the name of a GPU or deployment", "Write its name.")
        by_output = _grid(entry.get("tputs"), f"{path}.tputs", file)
        indexes = entry.get("indexes")
        if not isinstance(indexes, list) or len(indexes) != 2:
            refuse(file, f"{path}.indexes", indexes, "[output tokens, input tokens]", "Add the sizes of the buckets.")
        outputs, inputs = (_axis(axis, f"{path}.indexes[{at}]", file) for at, axis in enumerate(indexes))
        if _shape(by_output) != (len(outputs), len(inputs)):
            why = f"{len(outputs)} rows (output sizes) of {len(inputs)} (input sizes)"
            refuse(file, f"{path}.tputs", by_output, why, "Make tputs and indexes agree.")
        by_input = [list(column) for column in zip(*by_output, strict=True)]
        cost = _number(entry.get("cost"), f"{path}.cost", file)
        axes = {"input_tokens": inputs, "output_tokens": outputs}
        found.add(name, cost, axes, by_input, _given(entry, path, file))
    return found.profile("aibrix gpu optimizer")


def _given(entry: Mapping[str, Any], path: str, file: str) -> dict[str, float]:
    """The targets under which the rates were measured, in milliseconds."""
    targets = entry.get("slos")
    if not isinstance(targets, Mapping):
        return {}
    said = {
        field: _number(value, f"{path}.slos.{field}", file)
        for field, value in targets.items()
        if (field in _GIVEN or field == "percentile") and value is not None
    }
    percentile = said.pop("percentile", 0.0)
    infix = f"_p{percentile:g}" if percentile else ""
    return {_GIVEN[field].replace("_ms", f"{infix}_ms"): seconds * 1000 for field, seconds in said.items()}


@dataclass
class _Found:
    """The GPUs of a file, and how fast the model is on each."""

    machines: dict[str, Any] = field(default_factory=dict)
    runs: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def add(
        self, name: str, cost: float, axes: Mapping[str, list[float]], rates: list[list[float]],
        given: Mapping[str, float],
    ) -> str:  # fmt: skip
        """Add one GPU; its id."""
        machine = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("._-")[:50] or "gpu"
        if machine in self.machines:
            machine = f"{machine}-{len(self.machines) + 1}"
        self.machines[machine] = {"provides": {"gpu": 1}, "price_per_hour": price_of(f"{cost:.12g}")}
        run = {"needs": {"gpu": 1}, "axes": dict(axes), "mean_qps": rates}
        self.runs.append((machine, run | ({"given": dict(given)} if given else {})))
        return machine

    def profile(self, tool: str) -> dict[str, Any]:
        source = {"name": "import", "kind": "imported", "tool": tool}
        return new_profile(source, machines=self.machines, models={"llm": model_of("chat", "llm", self.runs)})


def _grid(value: Any, path: str, file: str) -> list[list[float]]:
    """Rows of equal length of finite numbers, 0 or more."""
    if not isinstance(value, list) or not value or not all(isinstance(row, list) and row for row in value):
        refuse(file, path, value, "a list of rows, one per input size, of numbers", "Write [[...], [...]].")
    if len({len(row) for row in value}) > 1:
        refuse(file, path, value, "rows of one length", "Fill the short rows; 0 where nothing can be served.")
    return [
        [_number(cell, f"{path}[{number}][{place}]", file) for place, cell in enumerate(row)]
        for number, row in enumerate(value)
    ]


def _shape(grid: list[list[float]]) -> tuple[int, int]:
    return len(grid), len(grid[0])


def _buckets(document: Mapping[str, Any], key: str, count: int, file: str) -> list[float]:
    """The upper ends of the buckets, or their numbers where the file does not tell."""
    if key not in document:
        return [float(number) for number in range(1, count + 1)]
    axis = _axis(document[key], f"$.{key}", file)
    if len(axis) != count:
        refuse(file, f"$.{key}", axis, f"{count} upper ends, one per bucket of tputs", "Add or drop.")
    return axis


def _axis(value: Any, path: str, file: str) -> list[float]:
    if not isinstance(value, list) or not value:
        refuse(file, path, value, "a list of token counts", "Write [128, 256, ...].")
    axis = [_number(cell, f"{path}[{number}]", file) for number, cell in enumerate(value)]
    if sorted(set(axis)) != axis:
        refuse(file, path, value, "token counts that grow", "Sort them, and the rows of tputs with them.")
    return axis


def _number(value: Any, path: str, file: str) -> float:
    if not is_number(value) or value < 0:
        refuse(file, path, value, "a finite number, 0 or more", "Mend the number.")
    return float(value)
