"""What a file of another tool is, by what is in it: never by its name, and the most telling sign first."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.imports.json_lines import read_json_or_lines
from hetplan.profiles.imports.sweep_readers import is_sweep, is_sweep_table
from hetplan.profiles.read_text import read_text

__all__ = ["KINDS", "kind_of"]

KINDS = {
    "rates": "runs of a serving benchmark: vLLM, SGLang, InferenceX, GuideLLM, inference-perf, AIPerf, llm-d, AIBrix, "
    "a table of runs",
    "laws": "the same, as laws of engines",
    "melange": "rates of GPUs by lengths of text, of Mélange and AIBrix",
    "perf-analyzer": "CSV of Triton's perf_analyzer or Model Analyzer",
    "prices": "a SkyPilot catalogue, or a bill as FOCUS has it",
    "datasheet": "models and GPUs by their data sheets",
    "sageserve": "CSV of SageServe's measurements",
    "trace": "requests or rates over time: Prometheus, ServeGen, CSV",
    "token-trace": "recorded lengths of text: Azure, BurstGPT, Mooncake, AIBrix, ServeGen",
}
"""Kinds of files, and what each is."""


def kind_of(path: Path) -> str:
    """The kind of a file, or of the files of a folder; `InputError` with all kinds where nothing tells."""
    if path.is_dir():
        return "rates"
    found = _of_table(path) if path.suffix.lower() == ".csv" else _of_document(path)
    if found is None:
        listed = "\n".join(f"  {name}: {what}" for name, what in KINDS.items())
        raise InputError.one(
            file=str(path), why="a file of a tool that is known by what is in it",
            remedy=f"Say what it is with --as KIND:\n{listed}",
        )  # fmt: skip
    return found


def _of_document(path: Path) -> str | None:
    text = read_text(path, wanted="a file of another tool")
    if not text.lstrip().startswith(("{", "[")) and path.suffix.lower() not in (".yaml", ".yml"):
        return _of_table(path)
    document = read_json_or_lines(path)
    first = document[0] if isinstance(document, list) and document else document
    if is_sweep(document):
        return "rates"
    return next((kind for kind, shown in _DOCUMENTS if isinstance(first, Mapping) and shown(first)), None)


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda one: set(names) <= one.keys()


def _is_sheet(one: Mapping[str, Any]) -> bool:
    models = one.get("models")
    held = next(iter(models.values()), None) if isinstance(models, Mapping) else None
    return "gpus" in one and isinstance(held, Mapping) and "parameters" in held


def _is_servegen_windows(one: Mapping[str, Any]) -> bool:
    held = next(iter(one.values()), None)
    return isinstance(held, Mapping) and {"input_tokens", "output_tokens"} <= held.keys()


_DOCUMENTS: Sequence[tuple[str, Callable[[Mapping[str, Any]], bool]]] = (
    ("melange", _has("gpu_info")),
    ("melange", _has("gpu", "tputs")),
    ("token-trace", _has("timestamp", "input_length", "output_length")),
    ("token-trace", _has("timestamp", "requests")),
    ("token-trace", _is_servegen_windows),
    ("trace", lambda one: isinstance(one.get("data"), Mapping) and "resultType" in one["data"]),
    ("datasheet", _is_sheet),
)


def _of_table(path: Path) -> str | None:
    lines = read_text(path, wanted="a file of another tool").splitlines()
    header = [cell.strip() for cell in next(csv.reader(lines[:1]), [])]
    names = {cell.lower() for cell in header}
    signs = (
        ("perf-analyzer", "Inferences/Second" in header or "Model Config Path" in header),
        ("prices", {"InstanceType", "Price"} <= set(header) or {"BillingCurrency", "PricingUnit"} <= set(header)),
        ("sageserve", {"prompt_size", "batch_size", "token_size"} <= names),
        ("token-trace", "ContextTokens" in header or "Request tokens" in header),
        ("rates", is_sweep_table(header)),
        ("trace", len(header) == 6 and all(_is_number(header[place]) for place in (0, 1, 2, 4, 5))),
        ("trace", bool(names & {"arrival_s", "arrival_ms", "timestamp", "time", "ts", "datetime", "start_s"})),
    )
    return next((kind for kind, is_it in signs if is_it), None)


def _is_number(cell: str) -> bool:
    try:
        return isinstance(json.loads(cell), int | float)
    except ValueError:
        return False
