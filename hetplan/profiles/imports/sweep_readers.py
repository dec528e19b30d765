"""Reports of tools that load servers of text, read as runs: each kind is known by what is in it, never by its name.

vLLM's and SGLang's serving benchmarks, InferenceX, GuideLLM, inference-perf, AIPerf and GenAI-Perf, llm-d's Benchmark
Report, AIBrix's measurements, and tables (CSV) with a line per run, as aiconfigurator writes them. Units are those that
the file says: a suffix, a field `units`, or the one that a tool always writes.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hetplan.profiles.cards import card_of_text
from hetplan.profiles.imports.json_lines import read_json_or_lines
from hetplan.profiles.imports.runs import Run, Statistics, statistic_name
from hetplan.profiles.imports.words import count_of, digits, id_of, refuse
from hetplan.profiles.plain_data import is_number
from hetplan.profiles.read_text import read_text

__all__ = ["is_sweep", "is_sweep_table", "runs_of_file"]

_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6, "ms/token": 1.0, "s/token": 1e3}
Json = Mapping[str, Any]
_UNBOUNDED = ("inf", ".inf", math.inf)


def is_sweep(document: Any) -> bool:
    """Whether a document, or each of a list of them, is a report of such a tool."""
    listed = document if isinstance(document, list) else [document]
    return bool(listed) and all(isinstance(one, Mapping) and _reader(one) is not None for one in listed[:3])


def is_sweep_table(header: Sequence[str]) -> bool:
    """Whether these are the columns of a CSV with a line per run, or of AIPerf's."""
    names = {_plain(name) for name in header}
    return list(header[:2]) == ["Metric", "avg"] or all(names & one for one in (_IN, _OUT, _TPOT))


def runs_of_file(path: Path) -> list[Run]:
    """The runs of one report."""
    file = str(path)
    if path.suffix.lower() == ".csv":
        return list(_table(read_text(path, wanted="a table of runs"), file))
    document = read_json_or_lines(path)
    listed = document if isinstance(document, list) else [document]
    if not listed:
        refuse(file, "$", document, "at least one run", "Give a report that is not empty.")
    if all(isinstance(one, Mapping) and "metric" in one for one in listed):
        return list(_aibrix(listed, file))
    found: list[Run] = []
    for number, one in enumerate(listed):
        at = f"$[{number}]" if len(listed) > 1 else "$"
        reader = _reader(one) if isinstance(one, Mapping) else None
        if reader is None:
            why = "a report of a serving benchmark (vLLM, SGLang, GuideLLM, inference-perf, AIPerf, llm-d, AIBrix)"
            refuse(file, at, one, why, "Say what the file is: --as KIND.")
        found += reader(one, at, file)
    return found


def _reader(one: Json) -> Callable[[Json, str, str], Iterator[Run]] | None:
    if "request_throughput" in one and ("total_input_tokens" in one or "completed" in one):
        return _serving
    if "load_summary" in one and "successes" in one:
        return _inference_perf
    if isinstance(one.get("benchmarks"), list):
        return _guidellm
    if "time_to_first_token" in one and ("aiperf_version" in one or "input_config" in one):
        return _aiperf
    if "scenario" in one and ("metrics" in one or "results" in one):
        return _llm_d
    return _aibrix_alone if {"metric", "request_rate"} <= one.keys() else None


# What fields have in common


def _number(data: Json, name: str, at: str, file: str, *, least: float = 0.0) -> float:
    value = data.get(name)
    if not is_number(value) or value < least or value > 1e15:
        why = "a finite number, 0 or more" if least <= 0 else "a finite number above 0"
        refuse(file, f"{at}.{name}", value, why, "Give runs that streamed and completed.")
    return float(value)


def _above(data: Json, name: str, at: str, file: str) -> float:
    return _number(data, name, at, file, least=1e-12)


def _inside(data: Any, names: Sequence[str], at: str, file: str) -> Json:
    for name in names:
        data, at = data.get(name) if isinstance(data, Mapping) else None, f"{at}.{name}"
        if not isinstance(data, Mapping):
            refuse(file, at, data, "an object", "Give a report of this tool, with streaming on.")
    held: Json = data
    return held


def _statistics(of: str, data: Any, unit: float, at: str, file: str) -> Statistics:
    """All statistics of a time that a report has; 0 is what a tool writes for a time that it could not see."""
    if not isinstance(data, Mapping):
        return {}
    flat = {**data, **(data["percentiles"] if isinstance(data.get("percentiles"), Mapping) else {})}
    found = {}
    for key, value in flat.items():
        name = statistic_name(str(key))
        if name is not None and value is not None and _number(flat, key, at, file) > 0.0:
            found[f"{of}_{name}_ms"] = digits(float(value) * unit, 9)
    return found


def _mean(data: Any, at: str, file: str) -> float:
    held = data if isinstance(data, Mapping) else {}
    return _above(held, "mean" if "mean" in held else "avg", at, file)


def _optional(data: Json, name: str, at: str, file: str) -> float | None:
    """A number that a report may leave out; 0 says as little as nothing, and so does no bound."""
    value = data.get(name)
    return None if value is None or value in _UNBOUNDED else _number(data, name, at, file) or None


def _card_in(file: str) -> tuple[str, int]:
    """The machine that a file's name says, where it says one."""
    for part in re.split(r"[_@]", Path(file).stem.lower()):
        if re.match(r"[a-z]", part) and card_of_text(part) is not None:
            return part, (card_of_text(part) or ("", 1))[1]
    return "", 0


# vLLM, SGLang, InferenceX: one object per run

_TIME = re.compile(r"(mean|median|max|p[0-9]+(?:\.[0-9]+)?)_(ttft|tpot|itl|e2el|e2e_latency|e2e)(_ms)?")
_WORDS = {"e2el": "response", "e2e_latency": "response", "e2e": "response"}


def _serving(one: Json, at: str, file: str) -> Iterator[Run]:
    completed = one.get("completed")
    if not is_number(completed) or completed < 1:
        refuse(file, f"{at}.completed", completed, "at least one completed request", "Leave out failed runs.")
    sizes = []
    for word in ("input", "output"):
        total = one.get(f"total_{word}_tokens", one.get(f"total_{word}"))
        if not is_number(total) or not 0 < total < 1e15:
            why = "how many tokens there were"
            refuse(file, f"{at}.total_{word}_tokens", total, why, "Give runs of a server that reports its usage.")
        sizes.append(float(total) / float(completed))
    model = one.get("model_id") or one.get("model")
    if not isinstance(model, str) or not model:
        refuse(file, f"{at}.model_id", model, "the name of the model", "Give a result of the serving benchmark.")
    times: Statistics = {}
    for key, value in one.items():
        said = _TIME.fullmatch(key)
        if said is not None and value is not None and _number(one, key, at, file) > 0.0:
            name = f"{_WORDS.get(said[2], said[2])}_{statistic_name(said[1])}_ms"
            times[name] = digits(float(value) * (1.0 if said[3] else 1e3), 9)
    named, many = _card_in(file)
    hardware = str(one.get("hardware") or one.get("gpu") or named)
    degree = one.get("tensor_parallel_size", one.get("tp"))
    offered = one.get("request_rate")
    unbounded = offered in _UNBOUNDED
    yield Run(
        at, "serving benchmark", model, hardware,
        count_of(degree, f"{at}.tensor_parallel_size", file) if degree is not None else many or 1,
        sizes[0], sizes[1], _number(one, "request_throughput", at, file), times,
        _optional(one, "max_concurrency", at, file),
        _optional(one, "request_rate", at, file), float(completed),
        _optional(one, "failed", at, file) or 0.0, _optional(one, "duration", at, file),
        _optional(one, "output_throughput", at, file),
        _input_rate(one, at, file), burst=unbounded and not one.get("max_concurrency") and float(completed) > 1,
    )  # fmt: skip


def _input_rate(one: Json, at: str, file: str) -> float | None:
    """Input tokens per second, as this or that tool says them."""
    whole, output = (_optional(one, name, at, file) for name in ("total_token_throughput", "output_throughput"))
    return _optional(one, "input_throughput", at, file) or (whole - output if whole and output else None)


# inference-perf: one object per stage


def _inference_perf(one: Json, at: str, file: str) -> Iterator[Run]:
    good, load = _inside(one, ("successes",), at, file), _inside(one, ("load_summary",), at, file)
    latency, inside = _inside(good, ("latency",), f"{at}.successes", file), f"{at}.successes.latency"
    if "requested_rate" not in load:
        why = "one stage: a summary mixes the times of all stages and rates"
        refuse(
            file,
            f"{at}.load_summary.requested_rate",
            None,
            why,
            "Give stage_N_lifecycle_metrics.json, or their folder.",
        )
    times: Statistics = {}
    per_token = "time_per_output_token" if latency.get("time_per_output_token") else "inter_token_latency"
    names = {"time_to_first_token": "ttft", per_token: "tpot", "request_latency": "response"}
    for name, of in names.items():
        times |= _statistics(of, latency.get(name), 1e3, f"{inside}.{name}", file)
    sizes = [good.get(one) or good.get(other) for one, other in (("prompt_len", "prompt_tokens"),
                                                                 ("output_len", "output_tokens"))]  # fmt: skip
    rate = _number(_inside(good, ("throughput",), f"{at}.successes", file), "requests_per_sec", inside, file)
    failures = one.get("failures")
    yield Run(
        at, "inference-perf", str(one.get("model") or "model"), "", 1,
        _mean(sizes[0], f"{at}.successes.prompt_len", file), _mean(sizes[1], f"{at}.successes.output_len", file),
        rate, times, None, _optional(load, "requested_rate", at, file) or _optional(load, "achieved_rate", at, file),
        _optional(good, "count", at, file),
        (_optional(failures, "count", at, file) if isinstance(failures, Mapping) else 0.0) or 0.0,
        output_qps=_optional(good["throughput"], "output_tokens_per_sec", at, file), recounted=True,
    )  # fmt: skip


# GuideLLM: a report with a list of benchmarks


def _guidellm(report: Json, at: str, file: str) -> Iterator[Run]:
    if not report["benchmarks"]:
        refuse(file, f"{at}.benchmarks", [], "at least one benchmark", "Give a report that is not empty.")
    for number, one in enumerate(report["benchmarks"]):
        place = f"{at}.benchmarks[{number}]"
        metrics = _inside(one, ("metrics",), place, file)
        good = {name: held.get("successful") for name, held in metrics.items() if isinstance(held, Mapping)}
        if not isinstance(good.get("time_to_first_token_ms"), Mapping):
            refuse(file, f"{place}.metrics.time_to_first_token_ms.successful", None, "an object",
                   "Give a report of this tool, with streaming on.")  # fmt: skip
        times: Statistics = {}
        # Its time_per_output_token_ms holds the wait for the first token.
        units = {"time_to_first_token_ms": ("ttft", 1.0), "inter_token_latency_ms": ("tpot", 1.0),
                 "request_latency": ("response", 1e3)}  # fmt: skip
        for name, (of, unit) in units.items():
            times |= _statistics(of, good.get(name), unit, f"{place}.metrics.{name}.successful", file)
        means = {}
        for name in ("prompt_token_count", "output_token_count", "requests_per_second", "time_to_first_token_ms"):
            means[name] = _mean(good.get(name), f"{place}.metrics.{name}.successful", file)
        config = one.get("config") if isinstance(one.get("config"), Mapping) else one.get("args")
        strategy = (config or {}).get("strategy") if isinstance(config, Mapping) else None
        strategy = strategy if isinstance(strategy, Mapping) else {}
        kind = str(strategy.get("type_") or "")
        total = metrics.get("request_totals")
        total = total if isinstance(total, Mapping) else {}
        alone = (
            1.0 if kind == "synchronous" else _optional(strategy, "streams", at, file) if kind == "concurrent" else None
        )
        yield Run(
            place, "GuideLLM", _guidellm_model(one, report), "", 1, means["prompt_token_count"],
            means["output_token_count"], means["requests_per_second"], times, alone,
            _optional(strategy, "rate", at, file) if kind in ("constant", "poisson") else None,
            _optional(total, "successful", at, file), _optional(total, "errored", at, file) or 0.0,
            burst=kind == "throughput",
        )  # fmt: skip


def _guidellm_model(one: Json, report: Json) -> str:
    """The model, where this or that version of the report has it."""
    worker, config, args = (
        found if isinstance(found, Mapping) else {}
        for found in (one.get("worker"), one.get("config"), report.get("args"))
    )
    backend = config.get("backend") if isinstance(config.get("backend"), Mapping) else {}
    return str(worker.get("backend_model") or (backend or {}).get("model") or args.get("model") or "model")


# AIPerf and GenAI-Perf: one object per run, a unit beside each metric; or AIPerf's tables of it


def _times_by_name(held: Mapping[str, Any], per_token: str, unit_key: str, at: str, file: str) -> Statistics:
    """The statistics of reports that have an object with its unit under the name of each time."""
    times: Statistics = {}
    for name, of in {"time_to_first_token": "ttft", per_token: "tpot", "request_latency": "response"}.items():
        said = held.get(name)
        if isinstance(said, Mapping):
            unit = _MS.get(str(said.get(unit_key)))
            if unit is None:
                refuse(file, f"{at}.{name}.{unit_key}", said.get(unit_key), "ms, s or us", "Mend the unit.")
            times |= _statistics(of, said, unit, f"{at}.{name}", file)
    return times


def _aiperf(one: Json, at: str, file: str) -> Iterator[Run]:
    if one.get("was_cancelled"):
        refuse(file, f"{at}.was_cancelled", True, "a run that was not cancelled", "Leave it out.")
    times = _times_by_name(one, "inter_token_latency", "unit", at, file)
    config = one.get("input_config") if isinstance(one.get("input_config"), Mapping) else {}
    assert isinstance(config, Mapping)
    concurrency, offered = _aiperf_load(config, at, file)
    failed = one.get("error_request_count")
    duration = one.get("benchmark_duration")
    tokens = one.get("output_token_throughput")
    yield Run(
        at, "AIPerf", _aiperf_model(config), "", 1,
        _mean(one.get("input_sequence_length"), f"{at}.input_sequence_length", file),
        _mean(one.get("output_sequence_length"), f"{at}.output_sequence_length", file),
        _mean(one.get("request_throughput"), f"{at}.request_throughput", file), times, concurrency, offered,
        _mean(one["request_count"], f"{at}.request_count", file) if one.get("request_count") else None,
        (_optional(failed, "avg", at, file) if isinstance(failed, Mapping) else 0.0) or 0.0,
        _optional(duration, "avg", at, file) if isinstance(duration, Mapping) else None,
        _optional(tokens, "avg", at, file) if isinstance(tokens, Mapping) else None,
    )  # fmt: skip


def _aiperf_load(config: Json, at: str, file: str) -> tuple[float | None, float | None]:
    phases = config.get("phases")
    measured = [one for one in phases if isinstance(one, Mapping)] if isinstance(phases, list) else []
    last = measured[-1] if measured else {}
    stimulus = config.get("perf_analyzer", {})
    stimulus = stimulus.get("stimulus", {}) if isinstance(stimulus, Mapping) else {}
    stimulus = stimulus if isinstance(stimulus, Mapping) else {}
    load = config.get("loadgen") if isinstance(config.get("loadgen"), Mapping) else {}
    assert isinstance(load, Mapping)
    found = [
        next(
            (value for one in (last, stimulus, load) for name in names if (value := _optional(one, name, at, file))),
            None,
        )
        for names in (("concurrency",), ("rate", "request_rate"))
    ]
    return found[0], found[1]


def _aiperf_model(config: Json) -> str:
    held = config.get("models")
    items = held.get("items") if isinstance(held, Mapping) else None
    if isinstance(items, list) and items and isinstance(items[0], Mapping):
        return str(items[0].get("name") or "model")
    endpoint = config.get("endpoint")
    names = endpoint.get("model_names") if isinstance(endpoint, Mapping) else config.get("model_names")
    return str(names[0]) if isinstance(names, list) and names else "model"


_AIPERF_ROWS = {
    "Time to First Token": "time_to_first_token", "Inter Token Latency": "inter_token_latency",
    "Request Latency": "request_latency", "Input Sequence Length": "input_sequence_length",
    "Output Sequence Length": "output_sequence_length", "Request Throughput": "request_throughput",
    "Request Count": "request_count", "Error Request Count": "error_request_count",
    "Benchmark Duration": "benchmark_duration", "Output Token Throughput": "output_token_throughput",
}  # fmt: skip


def _aiperf_table(rows: Sequence[Sequence[str]], file: str) -> Iterator[Run]:
    """AIPerf's CSV: tables one under the other, each with a line of columns."""
    one: dict[str, Any] = {"input_config": {}}
    header: Sequence[str] = ()
    for row in rows:
        if not row or row[0] in ("Metric", "Endpoint", "GPU"):
            header = row if row and row[0] == "Metric" else ()
            continue
        said = re.fullmatch(r"(.+?)(?: \(([^)]*)\))?", row[0])
        if header and said is not None and said[1] in _AIPERF_ROWS:
            cells = {name: _float(cell) for name, cell in zip(header[1:], row[1:], strict=False) if cell.strip()}
            cells = {"avg" if name == "Value" else name: value for name, value in cells.items()}
            one[_AIPERF_ROWS[said[1]]] = {"unit": said[2] or "", **cells}
    if "time_to_first_token" not in one:
        refuse(file, "Metric", None, "a line Time to First Token", "Give AIPerf's CSV of a run that streamed.")
    yield from _aiperf(one, "$", file)


# llm-d's Benchmark Report


def _llm_d(one: Json, at: str, file: str) -> Iterator[Run]:
    if "metrics" in one:
        held, inside = _inside(one, ("metrics",), at, file), f"{at}.metrics"
        clock = held.get("time")
    else:
        held = _inside(one, ("results", "request_performance", "aggregate"), at, file)
        inside = f"{at}.results.request_performance.aggregate"
        run = one.get("run")
        clock = run.get("time") if isinstance(run, Mapping) else None
    latency, requests = (_inside(held, (name,), inside, file) for name in ("latency", "requests"))
    throughput = _inside(held, ("throughput",), inside, file)
    times = _times_by_name(latency, "time_per_output_token", "units", f"{inside}.latency", file)
    duration = _clock(clock, f"{at}.time", file)
    model, hardware, gpus, replicas, load = _llm_d_scenario(one, at, file)
    rate = throughput.get("requests_per_sec", throughput.get("request_rate"))
    rate_qps = (
        _mean(rate, inside, file)
        if isinstance(rate, Mapping)
        else _above({"requests_per_sec": rate}, "requests_per_sec", f"{inside}.throughput", file)
    )
    output = throughput.get("output_tokens_per_sec", throughput.get("output_token_rate"))
    output_qps = _mean(output, inside, file) if isinstance(output, Mapping) else output
    failures, total = _optional(requests, "failures", at, file) or 0.0, _optional(requests, "total", at, file)
    yield Run(
        at, "llm-d Benchmark Report", model, hardware, gpus,
        _mean(requests.get("input_length"), f"{inside}.requests.input_length", file),
        _mean(requests.get("output_length"), f"{inside}.requests.output_length", file), rate_qps / replicas, times,
        load[0] / replicas if load[0] else None, load[1] / replicas if load[1] else None,
        (total - failures) / replicas if total else None, failures / replicas, duration,
        float(output_qps) / replicas if is_number(output_qps) and output_qps > 0 else None,
    )  # fmt: skip


def _clock(said: Any, at: str, file: str) -> float | None:
    """The seconds of a run; its end is after its beginning."""
    if not isinstance(said, Mapping):
        return None
    start, stop = said.get("start"), said.get("stop", said.get("end"))
    if is_number(start) and is_number(stop) and stop < start:
        refuse(file, f"{at}.stop", stop, f"a moment after the start, {start}", "These are no figures of a run.")
    duration = said.get("duration")
    if isinstance(duration, str):
        found = re.fullmatch(r"PT(?:([0-9.]+)M)?(?:([0-9.]+)S)?", duration)
        return 60.0 * float(found[1] or 0) + float(found[2] or 0) if found else None
    return float(duration) if is_number(duration) and duration > 0 else None


def _llm_d_scenario(one: Json, at: str, file: str) -> tuple[str, str, int, int, tuple[float | None, float | None]]:
    """Model, hardware, GPUs of a replica, replicas, and the load (concurrency, rate)."""
    scenario = one.get("scenario") if isinstance(one.get("scenario"), Mapping) else {}
    assert isinstance(scenario, Mapping)
    model, hardware, gpus, replicas = "model", "", 1, 0
    held = scenario.get("model")
    model = str(held.get("name")) if isinstance(held, Mapping) and held.get("name") else model
    host = scenario.get("host")
    cards = host.get("accelerator") if isinstance(host, Mapping) else None
    for card in cards if isinstance(cards, list) else ():
        if isinstance(card, Mapping):
            hardware, replicas = str(card.get("model") or ""), replicas + 1
            gpus = int(_optional(card, "count", at, file) or 1)
    stack = scenario.get("stack")
    for part in stack if isinstance(stack, list) else ():
        said = part.get("standardized") if isinstance(part, Mapping) else None
        if not isinstance(said, Mapping) or not isinstance(said.get("accelerator"), Mapping):
            continue
        card, named = said["accelerator"], said.get("model")
        hardware, gpus = str(card.get("model") or ""), int(_optional(card, "count", at, file) or 1)
        replicas += int(_optional(said, "replicas", at, file) or 1)
        model = str(named.get("name")) if isinstance(named, Mapping) and named.get("name") else model
    load = scenario.get("load")
    said = load.get("standardized") if isinstance(load, Mapping) else None
    asked = said if isinstance(said, Mapping) else {}
    return (
        model,
        hardware,
        gpus,
        max(replicas, 1),
        (_optional(asked, "concurrency", at, file), _optional(asked, "rate_qps", at, file)),
    )


# AIBrix: a line per metric of a run


def _aibrix_alone(one: Json, at: str, file: str) -> Iterator[Run]:
    refuse(file, at, one.get("metric"), "a line for each metric of a run", "Give whole files.")


def _aibrix(lines: Sequence[Any], file: str) -> Iterator[Run]:
    runs: dict[tuple[Any, ...], dict[str, Json]] = {}
    places: dict[tuple[Any, ...], str] = {}
    for number, one in enumerate(lines, start=1):
        key = tuple(one.get(name) for name in ("model", "input_tokens", "output_tokens", "request_rate"))
        places.setdefault(key, f"line {number}")
        runs.setdefault(key, {})[str(one.get("metric"))] = one
    for key, metrics in runs.items():
        at = places[key]
        if "TPUT" not in metrics:
            if key == list(runs)[-1]:
                continue  # the file was cut off
            refuse(file, at, None, "a line with the metric TPUT for each run", "Give whole files.")
        times: Statistics = {}
        for name, of in (("TTFT", "ttft"), ("TPOT", "tpot"), ("E2E", "response")):
            times |= _statistics(of, metrics.get(name), 1e3, f"{at}, {name}", file)
        if times.get("ttft_mean_ms", 0.0) < 1.0 or times.get("tpot_mean_ms", 0.0) <= 0.0:
            # Nothing streamed: the answer came in one piece, so only its end was seen.
            times = {name: ms for name, ms in times.items() if name.startswith("response_")}
        sizes: dict[str, Any] = {"input_tokens": key[1], "output_tokens": key[2]}
        yield Run(
            at, "AIBrix", str(key[0] or "model"), "", 1, _above(sizes, "input_tokens", at, file),
            _above(sizes, "output_tokens", at, file), _above(metrics["TPUT"], "mean", at, file), times, None,
            _optional({"rate": key[3]}, "rate", at, file), _optional(metrics["TPUT"], "samples", at, file),
            output_qps=_optional(metrics.get("TT", {}), "mean", at, file),
        )  # fmt: skip


# Tables with a line per run

_IN, _OUT = {"isl", "input_tokens", "prompt_tokens", "input_len"}, {"osl", "output_tokens", "output_len"}
_TPOT = {"tpot", "tpot_ms", "mean_tpot_ms"}
_TTFT, _AT_ONCE = {"ttft", "ttft_ms", "mean_ttft_ms"}, {"concurrency", "max_concurrency", "batch"}
_COLUMNS: Mapping[str, set[str]] = {
    "input": _IN, "output": _OUT, "tpot": _TPOT, "ttft": _TTFT, "concurrency": _AT_ONCE,
    "rate": {"seq/s", "request_throughput", "requests_per_s", "rate_qps"}, "model": {"model", "model_id", "model_path"},
    "hardware": {"system", "gpu", "hardware"}, "gpus": {"num_total_gpus", "gpus", "tensor", "tp"},
    "engine": {"backend", "engine"}, "version": {"version"}, "precision": {"precision", "gemm"},
    "expert": {"expert", "moe_ep"}, "data": {"data", "dp"},
}  # fmt: skip
_STATED = re.compile(r"(mean|median|max|p[0-9]+)_(ttft|tpot|itl|e2el)_ms")


def _plain(name: str) -> str:
    return name.strip().lower()


def _float(cell: str | None) -> float:
    try:
        return float((cell or "").replace(",", ""))
    except ValueError:
        return math.nan


def _table(text: str, file: str) -> Iterator[Run]:
    rows = list(csv.reader(text.splitlines()))
    if rows and rows[0][:2] == ["Metric", "avg"]:
        yield from _aiperf_table(rows, file)
        return
    header = [_plain(name) for name in rows[0]] if rows else []
    places = {
        what: next((header.index(name) for name in header if name in names), None) for what, names in _COLUMNS.items()
    }
    if any(places[name] is None for name in ("input", "output", "tpot")):
        why = "a column of tokens in (isl), of tokens out (osl), and of the time per token (tpot, ms)"
        refuse(file, "line 1", ", ".join(header)[:80], why, "Name the columns so.")
    if any(name.startswith("(p)") for name in header):
        why = "runs of one engine: these are pairs of one that prefills and one that decodes"
        refuse(file, "line 1", "(p)", why, "Give the table of aggregated serving.")
    if len(rows) < 2:
        refuse(file, "line 2", "", "at least one run", "Give a table that is not empty.")
    for number, cells in enumerate(rows[1:], start=2):
        if any(cell.strip() for cell in cells):
            yield _row(cells, header, places, f"line {number}", file)


def _row(cells: Sequence[str], header: Sequence[str], places: Mapping[str, int | None], at: str, file: str) -> Run:
    def text(what: str) -> str:
        place = places[what]
        return cells[place].strip() if place is not None and place < len(cells) else ""

    def number(what: str) -> float:
        return _above({what: _float(text(what))}, what, at, file)

    prompt, answer, token = (number(name) for name in ("input", "output", "tpot"))
    first = number("ttft") if text("ttft") else 0.0
    at_once = number("concurrency") if text("concurrency") else None
    if text("rate"):
        rate = number("rate")
    elif at_once and first:
        rate = 1000.0 * at_once / (first + (answer - 1.0) * token)
    else:
        refuse(file, at, None, "requests per second, or requests at a time and a time to first token", "Add a column.")
    times = {"tpot_mean_ms": token, **({"ttft_mean_ms": first} if first else {})}
    for name, cell in zip(header, cells, strict=False):
        said = _STATED.fullmatch(name)
        if said is not None and cell.strip():
            key = f"{_WORDS.get(said[2], said[2])}_{statistic_name(said[1])}_ms"
            times[key] = _above({name: _float(cell)}, name, at, file)
    gpus = max(int(number("gpus")), 1) if text("gpus") else 1
    words = text("precision").lower()  # fp8_block, nvfp4: kinds of one precision
    precision = next((one for one in ("fp8", "fp4", "bf16") if one in words), words)
    model = text("model") or "model"
    named = model if not precision or precision in model.lower() else f"{model}-{precision}"
    split = [f"{way}{text(what)}" for way, what in (("ep", "expert"), ("dp", "data")) if text(what) not in ("", "1")]
    tool = "aiconfigurator or aisimulate" if "tokens/s/gpu" in header else "table of runs"
    return Run(
        at, tool, named, text("hardware").removesuffix("_sxm"), gpus, prompt, answer,
        rate, times, at_once, engine=id_of(text("engine"), "engine") if text("engine") else "",
        label="-".join(filter(None, (text("version"), *split))),
    )  # fmt: skip
