"""Results of ``vllm bench serve --save-result`` (or ``--append-result``, one result per line).

Read are ``model_id``, ``completed``, ``total_input_tokens``, ``total_output_tokens``, ``request_throughput``,
``request_rate``, ``max_concurrency`` and, for each of ttft, tpot, e2el that was asked for, ``mean_ttft_ms``,
``median_ttft_ms``, ``std_ttft_ms`` and ``p50_ttft_ms`` ... ``p99_ttft_ms``. The machine comes from
``--metadata hardware=a100`` (or ``gpu=``), its number of GPUs from ``tensor_parallel_size=``.

A result is placed at its mean numbers of input and output tokens. Of several at one point the highest throughput is
the rate, with the tails under which it was reached beside it (``given``); where every result was limited by its own
``request_rate``, the server may do more, and ``given.request_rate_qps`` says so. Time to first token and time per
output token become tables of their own.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeGuard

from hetplan.errors import InputError
from hetplan.profiles.imports.json_lines import read_json_or_lines
from hetplan.profiles.json_path import shortened

__all__ = ["convert", "convert_results"]

_AXES = ("input_tokens", "output_tokens")
_QUANTITIES = {"ttft": "ttft_ms", "tpot": "tpot_ms"}
_STATISTICS = {"mean": "mean", "std": "std", "p50": "median", "p90": "p90", "p95": "p95", "p99": "p99"}
_REACHED = 0.95
"""A throughput of at least this share of the request rate was limited by the rate, not by the server."""


def convert(path: str | os.PathLike[str]) -> tuple[dict[str, Any], None]:
    """The profile of a file of results; it holds no wish, so there is no SLO."""
    return convert_results(read_json_or_lines(path), file=os.fspath(path)), None


def convert_results(results: Any, *, file: str = "vllm") -> dict[str, Any]:
    """As `convert`, of one parsed result or a list of them.

    >>> result = {"model_id": "org/Tiny-1B", "completed": 100, "total_input_tokens": 12800, "total_output_tokens": 6400,
    ...           "request_throughput": 8.5, "request_rate": "inf", "p99_ttft_ms": 410.0, "mean_ttft_ms": 120.0}
    >>> profile = convert_results(result)
    >>> profile["tables"]["tiny-1b-server-rate"]["axes"], profile["tables"]["tiny-1b-server-rate"]["mean"]
    ({'input_tokens': [128], 'output_tokens': [64]}, [[8.5]])
    """
    listed = results if isinstance(results, list) else [results]
    if not listed:
        _refuse(file, "$", results, "at least one result", "Give a file written with --save-result.")
    groups: dict[tuple[str, str, int], dict[tuple[int, int], list[Mapping[str, Any]]]] = {}
    for number, result in enumerate(listed):
        path = f"$[{number}]" if len(listed) > 1 else "$"
        if not isinstance(result, Mapping) or "request_throughput" not in result:
            _refuse(file, path, result, 'an object with "request_throughput"', "Give a result of vllm bench serve.")
        group = groups.setdefault(_who(result, path, file), {})
        group.setdefault(_point(result, path, file), []).append(result)
    profile: dict[str, Any] = {
        "format": "hetplan/profile/1.0",
        "sources": {"import": {"kind": "imported", "tool": "vllm bench serve"}},
        "hardware": {},
        "tasks": {"chat": {}},
        "variants": {},
        "tables": {},
    }
    for (variant, hardware, gpus), points in groups.items():
        _add(profile, variant, hardware, gpus, points, file)
    return profile


def _add(
    profile: dict[str, Any],
    variant: str,
    hardware: str,
    gpus: int,
    points: Mapping[tuple[int, int], Sequence[Mapping[str, Any]]],
    file: str,
) -> None:
    machine = profile["hardware"].setdefault(hardware, {"kind": "gpu", "provides": {"gpu": gpus}})
    machine["provides"]["gpu"] = max(machine["provides"]["gpu"], gpus)
    best = {
        point: max(results, key=lambda result: float(result["request_throughput"])) for point, results in points.items()
    }
    name = f"{variant}-{hardware}"
    rate = {point: _number(result, "request_throughput", file) for point, result in best.items()}
    profile["tables"][f"{name}-rate"] = _table("requests_per_s", {"mean": rate}) | _given(best.values(), file)
    for word, quantity in _QUANTITIES.items():
        statistics = {
            statistic: {point: float(result[f"{field}_{word}_ms"]) for point, result in best.items()}
            for statistic, field in _STATISTICS.items()
            if all(_is_number(result.get(f"{field}_{word}_ms")) for result in best.values())
        }
        if set(statistics) - {"std"} and all(value > 0 for value in next(iter(statistics.values())).values()):
            profile["tables"][f"{name}-{word}"] = _table(quantity, statistics)
    run = {"hardware": hardware, "rate": f"{name}-rate", "needs": {"gpu": gpus}}
    profile["variants"].setdefault(variant, {"task": "chat", "runs": []})["runs"].append(run)


def _table(quantity: str, statistics: Mapping[str, Mapping[tuple[int, int], float]]) -> dict[str, Any]:
    """A table over both axes; a pair of sizes that nobody measured is null."""
    points = next(iter(statistics.values()))
    axes = [sorted({point[place] for point in points}) for place in (0, 1)]
    table: dict[str, Any] = {"quantity": quantity, "axes": dict(zip(_AXES, axes, strict=True))}
    for statistic, cells in statistics.items():
        table[statistic] = [[cells.get((first, second)) for second in axes[1]] for first in axes[0]]
    return table | {"source": "import"}


def _given(results: Any, file: str) -> dict[str, Any]:
    """Under which tails the rates were reached, and whether the benchmark's own rate was the limit."""
    listed = list(results)
    given: dict[str, float] = {}
    for word in ("ttft", "tpot", "e2el"):
        tails = [result.get(f"p99_{word}_ms") for result in listed]
        if all(_is_number(tail) and tail > 0 for tail in tails):
            given["response_p99_ms" if word == "e2el" else f"{word}_p99_ms"] = max(
                float(tail) for tail in tails if tail
            )
    asked = [_asked_qps(result) for result in listed]
    reached = [_number(result, "request_throughput", file) for result in listed]
    if any(rate < math.inf and found >= _REACHED * rate for rate, found in zip(asked, reached, strict=True)):
        given["request_rate_qps"] = max(rate for rate in asked if rate < math.inf)
    return {"given": given} if given else {}


def _asked_qps(result: Mapping[str, Any]) -> float:
    rate = result.get("request_rate")
    return float(rate) if _is_number(rate) else math.inf


def _who(result: Mapping[str, Any], path: str, file: str) -> tuple[str, str, int]:
    model = result.get("model_id")
    if not isinstance(model, str) or not model:
        _refuse(file, f"{path}.model_id", model, "the name of the model", "Give a result of vllm bench serve.")
    hardware = result.get("hardware") or result.get("gpu") or ""
    try:
        gpus = int(result.get("tensor_parallel_size") or 1)
    except (TypeError, ValueError):
        gpus = 1
    return _id(model.rsplit("/", 1)[-1], "model"), _id(str(hardware), "server"), max(gpus, 1)


def _point(result: Mapping[str, Any], path: str, file: str) -> tuple[int, int]:
    completed = result.get("completed")
    if not _is_number(completed) or completed < 1:
        _refuse(file, f"{path}.completed", completed, "at least one completed request", "Leave out failed runs.")
    point = []
    for word in ("input", "output"):
        total = result.get(f"total_{word}_tokens", result.get(f"total_{word}"))
        if not _is_number(total) or total < 0:
            why = "how many tokens there were"
            _refuse(file, f"{path}.total_{word}_tokens", total, why, "Give a result of vllm bench serve.")
        point.append(round(total / completed))
    return point[0], point[1]


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(result: Mapping[str, Any], field: str, file: str) -> float:
    value = result.get(field)
    if not _is_number(value) or value < 0:
        _refuse(file, f"$.{field}", value, "a finite number, 0 or more", "Mend the number.")
    return float(f"{float(value):.9g}")


def _refuse(file: str, path: str, value: Any, why: str, remedy: str) -> NoReturn:
    raise InputError.one(file=file, path=path, value=shortened(value), why=why, remedy=remedy)


def _id(text: str, otherwise: str) -> str:
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")[:24] or otherwise
