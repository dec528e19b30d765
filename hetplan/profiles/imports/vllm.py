"""Results of ``vllm bench serve --save-result`` (or ``--append-result``, one result per line).

Read are ``model_id``, ``completed``, ``total_input_tokens``, ``total_output_tokens``, ``request_throughput``,
``request_rate``, ``max_concurrency`` and whatever was asked for of ttft, tpot and e2el: ``mean_ttft_ms``,
``median_ttft_ms``, ``p99_ttft_ms``, ...; without ``_ms``, as InferenceX writes them, they are seconds. The machine
comes from ``--metadata hardware=a100`` (or ``gpu=``) or ``--set hardware=``, its number of GPUs from
``tensor_parallel_size=`` or ``--set gpus=``.

A result is placed at its mean numbers of input and output tokens. Each is kept as a run of the table of rates, with all
times that were measured while its rate was reached: under limits on times a machine counts at a run that keeps them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from hetplan.profiles.imports.json_lines import read_json_or_lines
from hetplan.profiles.imports.words import count_of, digits, id_of, refuse
from hetplan.profiles.plain_data import is_number

__all__ = ["convert", "convert_results"]

_AXES = ("input_tokens", "output_tokens")
_TIME = re.compile(r"(mean|median|p[0-9]+(?:\.[0-9]+)?)_(ttft|tpot|e2el)(_ms)?")
_WORDS = {"median": "p50", "e2el": "response"}

Placed = tuple[str, Mapping[str, Any]]
"""A result, and where it is in the file."""


def convert(path: str | os.PathLike[str], *, hardware: str = "", gpus: int = 0) -> tuple[dict[str, Any], None]:
    """The profile of a file of results; it holds no wish, so there is no SLO."""
    return convert_results(read_json_or_lines(path), file=os.fspath(path), hardware=hardware, gpus=gpus), None


def convert_results(results: Any, *, file: str = "vllm", hardware: str = "", gpus: int = 0) -> dict[str, Any]:
    """As `convert`, of one parsed result or a list of them.

    >>> result = {"model_id": "org/Tiny-1B", "completed": 100, "total_input_tokens": 12800, "total_output_tokens": 6400,
    ...           "request_throughput": 8.5, "request_rate": "inf", "p99_ttft_ms": 410.0, "mean_ttft_ms": 120.0}
    >>> profile = convert_results(result)
    >>> profile["tables"]["tiny-1b-server-rate"]["axes"], profile["tables"]["tiny-1b-server-rate"]["mean"]
    ({'input_tokens': [128], 'output_tokens': [64]}, [[8.5]])
    """
    listed = results if isinstance(results, list) else [results]
    if not listed:
        refuse(file, "$", results, "at least one result", "Give a file written with --save-result.")
    groups: dict[tuple[str, str, int], dict[tuple[int, int], list[Placed]]] = {}
    for number, result in enumerate(listed):
        path = f"$[{number}]" if len(listed) > 1 else "$"
        if not isinstance(result, Mapping) or "request_throughput" not in result:
            refuse(file, path, result, 'an object with "request_throughput"', "Give a result of vllm bench serve.")
        group = groups.setdefault(_who(result, path, file, hardware, gpus), {})
        group.setdefault(_point(result, path, file), []).append((path, result))
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.3",
        "sources": {"import": {"kind": "imported", "tool": "vllm bench serve"}},
        "hardware": {},
        "tasks": {},
        "variants": {},
        "tables": {},
    }
    for (variant, machine, count), points in groups.items():
        _add(profile, variant, machine, count, points, file)
    return profile


def _add(
    profile: dict[str, Any], variant: str, hardware: str, gpus: int, points: Mapping[tuple[int, int], Sequence[Placed]],
    file: str,
) -> None:  # fmt: skip
    machine = profile["hardware"].setdefault(hardware, {"kind": "gpu", "provides": {"gpu": gpus}})
    machine["provides"]["gpu"] = max(machine["provides"]["gpu"], gpus)
    name = f"{variant}-{hardware}-rate"
    runs: list[dict[str, Any]] = [
        {
            "at": dict(zip(_AXES, point, strict=True)),
            "rate_qps": _number(result, "request_throughput", path, file),
            "given": _given(result, path, file),
        }
        for point, results in sorted(points.items())
        for path, result in results
    ]
    axes = [sorted({point[place] for point in points}) for place in (0, 1)]
    most: dict[tuple[float, ...], float] = {}
    for one in runs:
        at = tuple(one["at"].values())
        most[at] = max(most.get(at, 0.0), one["rate_qps"])
    profile["tables"][name] = {
        "quantity": "requests_per_s",
        "axes": dict(zip(_AXES, axes, strict=True)),
        "mean": [[most.get((first, second)) for second in axes[1]] for first in axes[0]],
        "points": runs,
        "source": "import",
    }
    profile["tasks"].setdefault(variant, {})
    runs_of = profile["variants"].setdefault(variant, {"task": variant, "runs": []})["runs"]
    runs_of.append({"hardware": hardware, "rate": name, "needs": {"gpu": gpus}})


def _given(result: Mapping[str, Any], path: str, file: str) -> dict[str, float]:
    """The times of a run in ms, by their names here, and what it was asked for."""
    given: dict[str, float] = {}
    for key, value in result.items():
        found = _TIME.fullmatch(key)
        # 0 is what a tool writes for a time that it could not see, as without streaming.
        if found is not None and value is not None and _number(result, key, path, file) > 0.0:
            what = f"{_WORDS.get(found[2], found[2])}_{_WORDS.get(found[1], found[1])}_ms"
            given[what] = digits(value * (1.0 if found[3] else 1000.0), 9)
    for key, name in (("max_concurrency", "concurrency"), ("request_rate", "request_rate_qps")):
        if result.get(key) not in (None, "inf", math.inf):
            given[name] = _number(result, key, path, file)
    return given


def _who(result: Mapping[str, Any], path: str, file: str, hardware: str, gpus: int) -> tuple[str, str, int]:
    model = result.get("model_id")
    if not isinstance(model, str) or not model:
        refuse(file, f"{path}.model_id", model, "the name of the model", "Give a result of vllm bench serve.")
    machine = hardware or result.get("hardware") or result.get("gpu") or ""
    count = gpus or count_of(result.get("tensor_parallel_size"), f"{path}.tensor_parallel_size", file)
    return id_of(model.rsplit("/", 1)[-1], "model"), id_of(str(machine), "server"), count


def _point(result: Mapping[str, Any], path: str, file: str) -> tuple[int, int]:
    completed = result.get("completed")
    if not is_number(completed) or completed < 1:
        refuse(file, f"{path}.completed", completed, "at least one completed request", "Leave out failed runs.")
    point = []
    for word in ("input", "output"):
        total = result.get(f"total_{word}_tokens", result.get(f"total_{word}"))
        if not is_number(total) or total < 0:
            why = "how many tokens there were"
            refuse(file, f"{path}.total_{word}_tokens", total, why, "Give a result of vllm bench serve.")
        point.append(round(total / completed))
    return point[0], point[1]


def _number(result: Mapping[str, Any], field: str, path: str, file: str) -> float:
    value = result.get(field)
    if not is_number(value) or value < 0:
        refuse(file, f"{path}.{field}", value, "a finite number, 0 or more", "Mend the number.")
    return digits(value, 9)
