"""Laws of engines from reports of serving benchmarks: vLLM's (`vllm-law`), GuideLLM's and inference-perf's.

These tools see requests, not iterations. Of each run they say means: prompt and answer in tokens, requests per second,
time to first token, time per token after it. From these follow two iterations, since every sequence that decodes gets
one token in each:

- where requests came one after the other (on the mean at most 1.1 at a time), the time to the first token is one
  iteration with the prompt in it;
- the time per token is the mean iteration while the run lasted. How many sequences decode at a time follows from
  Little's law (rate x answer x time per token), and so does in which part of the iterations a prompt is computed beside
  them. What is left once these are taken off is an iteration without a prompt.

One or two pieces are fitted to these; `fitted.error` is by how much the law is off on the mean over all first tokens
and times per token that it was fitted to. What no such report can say is marked or refused: no iteration was seen by
itself, so `overlap` is `assumed`; without runs one after the other, of two lengths of prompt, nothing says how long a
prefill takes, and the report is refused. Longest batch and most sequences are not in it either: they are the largest
that were seen, unless `--set most_tokens=` and `most_seqs=` say what the server printed. Room for KV is worked out for
known models on known GPUs, and else asked for: `--set kv_tokens=`.
Prompts longer than `most_tokens` are computed in several iterations: their first tokens are left out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetplan.profiles.cards import room_for, stated_rooms
from hetplan.profiles.engine_law import Iteration, fit
from hetplan.profiles.imports.json_lines import read_json_or_lines
from hetplan.profiles.imports.words import count_of, digits, id_of, refuse
from hetplan.profiles.plain_data import is_number
from hetplan.profiles.read_json import read_json

__all__ = ["guidellm", "inference_perf", "vllm"]

ALONE = 1.1
"""At most so many requests at a time: they came one after the other."""
LARGEST_ERROR = 0.25
"""Above this mean error a fit is no law, and is refused."""
_MOST_WITH_A_PROMPT = 0.999


@dataclass(frozen=True)
class Run:
    """The means of one run: of which model on which hardware, tokens, requests per second, milliseconds."""

    model: str
    hardware: str
    gpus: int
    prompt: float
    answer: float
    rate_qps: float
    first_ms: float
    token_ms: float
    path: str

    @property
    def at_once(self) -> float:
        """Requests at a time, by Little's law."""
        return self.rate_qps * (self.first_ms + (self.answer - 1.0) * self.token_ms) / 1000.0


def vllm(
    path: str | os.PathLike[str],
    *,
    kv_tokens: int | str | None = None,
    most_tokens: int | None = None,
    most_seqs: int | None = None,
) -> tuple[dict[str, Any], None]:
    """Results of ``vllm bench serve --save-result``, one or several; the hardware from ``--metadata hardware=``."""
    file, document = os.fspath(path), read_json_or_lines(path)
    runs = []
    for at, one in _listed(document):
        made = _number(one, "completed", at, file)
        runs.append(
            Run(
                model=id_of(_text(one, "model_id", at, file).rsplit("/", 1)[-1], "model"),
                hardware=id_of(str(one.get("hardware") or one.get("gpu") or ""), "server"),
                gpus=count_of(one.get("tensor_parallel_size"), f"{at}.tensor_parallel_size", file),
                prompt=_number(one, "total_input_tokens", at, file) / made,
                answer=_number(one, "total_output_tokens", at, file) / made,
                rate_qps=_number(one, "request_throughput", at, file),
                first_ms=_number(one, "mean_ttft_ms", at, file),
                token_ms=_number(one, "mean_tpot_ms", at, file),
                path=at,
            )
        )
    return _profile(runs, "vllm bench serve", file, (kv_tokens, most_tokens, most_seqs)), None


def guidellm(
    path: str | os.PathLike[str],
    *,
    hardware: str = "server",
    gpus: int = 1,
    kv_tokens: int | str | None = None,
    most_tokens: int | None = None,
    most_seqs: int | None = None,
) -> tuple[dict[str, Any], None]:
    """The JSON report of GuideLLM: its benchmarks by their successful requests. It does not name the hardware."""
    file, document = os.fspath(path), read_json_or_lines(path)
    gpus = count_of(gpus, "gpus", "--set")
    runs = []
    for place, report in _listed(document):
        if not isinstance(report.get("benchmarks"), list) or not report["benchmarks"]:
            refuse(file, f"{place}.benchmarks", report.get("benchmarks"), "a list of benchmarks", "Give a JSON report.")
        for number, one in enumerate(report["benchmarks"]):
            at = f"{place}.benchmarks[{number}]"
            prompt, answer, rate, first, token = (
                _mean(one, ("metrics", name, "successful"), at, file)
                for name in (
                    "prompt_token_count", "output_token_count", "requests_per_second", "time_to_first_token_ms",
                    "inter_token_latency_ms",
                )
            )  # fmt: skip
            model = id_of(_model_of(one, report), "model")
            runs.append(Run(model, id_of(hardware, "server"), gpus, prompt, answer, rate, first, token, at))
    return _profile(runs, "GuideLLM", file, (kv_tokens, most_tokens, most_seqs)), None


def inference_perf(
    path: str | os.PathLike[str],
    *,
    model: str = "model",
    hardware: str = "server",
    gpus: int = 1,
    kv_tokens: int | str | None = None,
    most_tokens: int | None = None,
    most_seqs: int | None = None,
) -> tuple[dict[str, Any], None]:
    """A folder of inference-perf's ``stage_N_lifecycle_metrics.json``, or one such file; times in it are seconds.

    It names neither the model nor the hardware.
    """
    gpus = count_of(gpus, "gpus", "--set")
    files = sorted(Path(path).glob("stage_*_lifecycle_metrics.json")) if Path(path).is_dir() else [Path(path)]
    if not files:
        refuse(os.fspath(path), "", "no file", "stage_N_lifecycle_metrics.json", "Give the folder of a run's reports.")
    runs = []
    for each in files:
        file = os.fspath(each)
        good, at = _inside(read_json(each, file=file), ("successes",), "$", file), "$.successes"
        prompt = _either(good, ("prompt_len", "prompt_tokens"))
        answer = _either(good, ("output_len", "output_tokens"))
        per_token = _either(_inside(good, ("latency",), at, file), ("time_per_output_token", "inter_token_latency"))
        runs.append(
            Run(
                model=id_of(model, "model"),
                hardware=id_of(hardware, "server"),
                gpus=gpus,
                prompt=_mean(good, (prompt,), at, file),
                answer=_mean(good, (answer,), at, file),
                rate_qps=_number(
                    _inside(good, ("throughput",), at, file), "requests_per_sec", f"{at}.throughput", file
                ),
                first_ms=1e3 * _mean(good, ("latency", "time_to_first_token"), at, file),
                token_ms=1e3 * _mean(good, ("latency", per_token), at, file),
                path=each.name,
            )
        )
    return _profile(runs, "inference-perf", os.fspath(path), (kv_tokens, most_tokens, most_seqs)), None


# The law


def _profile(
    runs: Sequence[Run], tool: str, file: str, room: tuple[int | str | None, int | None, int | None]
) -> dict[str, Any]:
    if not runs:
        refuse(file, "$", "no run", "results of at least one run", "Give a report that is not empty.")
    rooms = stated_rooms(room[0])
    most, seqs = (
        None if value is None else count_of(value, name, "--set")
        for name, value in zip(("most_tokens", "most_seqs"), room[1:], strict=True)
    )
    source = {"kind": "imported", "tool": tool}
    document: dict[str, Any] = {
        "format": "hetplan/profile/1.2",
        "sources": {"import": source},
        "hardware": {},
        "tasks": {},
        "variants": {},
        "engines": {},
    }
    groups: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.model, run.hardware, run.gpus), []).append(run)
    for (model, card, gpus), mine in groups.items():
        hardware = f"{card}-x{gpus}" if gpus > 1 else card
        document["hardware"][hardware] = {"kind": "gpu", "provides": {"gpu": gpus}}
        name, engine = f"{model}-{hardware}", _law(mine, file, most, seqs)
        held = engine["fitted"]["kv_tokens"]
        fits = room_for(name, model, card, gpus, said=rooms, held=held, file=file)
        document["engines"][name] = {**engine, **fits, "tensor": gpus, "source": "import"}
        document["tasks"].setdefault(model, {})
        runs_of = document["variants"].setdefault(model, {"task": model, "runs": []})["runs"]
        runs_of.append({"hardware": hardware, "engine": name})
    return document


def _law(runs: Sequence[Run], file: str, chunk: int | None, sequences: int | None) -> dict[str, Any]:
    alone = [run for run in runs if run.at_once <= ALONE and (chunk is None or run.prompt <= chunk)]
    who = f"{runs[0].model} on {runs[0].hardware}"
    if len({round(run.prompt) for run in alone}) < 2:
        why = (
            f"no two runs of {who} with prompts of different length had one request at a time: nothing says how long "
            "a prefill takes: other first tokens waited in a queue"
        )
        remedy = "Add runs with a concurrency of 1, with at least two lengths of prompt."
        refuse(file, runs[0].path, len(alone), why, remedy)
    busy = sorted({round(run.at_once) for run in runs})
    if len(busy) < 2:
        why = f"all runs of {who} had {busy[0]} requests at a time, so nothing says what more sequences cost"
        refuse(file, runs[0].path, busy[0], why, "Add runs with a higher concurrency.")
    prefills = [Iteration(run.prompt, 0.0, 0.0, run.prompt**2 / 2.0, run.first_ms) for run in alone]
    shares = [_Shares.of(run) for run in runs if run.answer >= 2.0]
    # What decodes alone takes: what is left of the mean once iterations with a prompt in them are taken off.
    prefill = fit(prefills)
    law = fit([*prefills, *(one.decode(one.left_ms(prefill.pieces)) for one in shares)])
    off = [_ms(law.pieces, one) / one.ms - 1.0 for one in prefills]
    off += [one.mean_ms(law.pieces) / one.token_ms - 1.0 for one in shares]
    error = math.fsum(abs(one) for one in off) / len(off)
    if error > LARGEST_ERROR:
        why = f"no law fits {who}: off by over a quarter on the mean"
        refuse(file, runs[0].path, digits(error), why, "Look for runs that broke down, or that reused prompts.")
    names = ("base_ms", "token_ms", "kv_token_ms", "sequence_ms", "pair_ms")
    longest = max(math.ceil(one.tokens) for one in prefills)
    reads, together = (max(math.ceil(value) for value in of) for of in _largest(runs))
    return {
        "pieces": [
            {name: digits(value) for name, value in zip(names, row, strict=True) if value > 0.0}
            for row in law.pieces.tolist()
        ],
        "overlap": "assumed",
        "fitted": {"error": digits(error), "tokens": longest, "kv_tokens": reads, "sequences": together},
        "most_tokens": max(chunk or longest, 1),
        "most_seqs": sequences or together,
    }  # fmt: skip


@dataclass(frozen=True)
class _Shares:
    """The iterations of a run: what decodes at a time, which part of them has a prompt in it, and how many of them."""

    sequences: float
    kv_tokens: float
    prompt: float
    share: float
    prompts: float
    token_ms: float

    @classmethod
    def of(cls, run: Run) -> _Shares:
        """Prompts come as they do in a Poisson process; where one request is there at a time, none meets another."""
        each = run.rate_qps * run.token_ms / 1000.0
        sequences = max(each * (run.answer - 1.0), 1.0)
        # Some iteration is always without one: nothing says what is left of the mean where none is.
        share = min(1.0 - math.exp(-each), _MOST_WITH_A_PROMPT) if run.at_once > ALONE else 0.0
        kv_tokens = sequences * (run.prompt + run.answer / 2.0)
        return cls(sequences, kv_tokens, run.prompt, share, each / share if share else 0.0, run.token_ms)

    def decode(self, ms: float) -> Iteration:
        """An iteration without a prompt, which took so long."""
        return Iteration(self.sequences, self.kv_tokens, self.sequences, 0.0, ms)

    def mixed(self) -> Iteration:
        """An iteration with prompts beside what decodes."""
        tokens, pairs = self.sequences + self.prompts * self.prompt, self.prompts * self.prompt**2 / 2.0
        return Iteration(tokens, self.kv_tokens, self.sequences, pairs, self.token_ms)

    def left_ms(self, prefill: Any) -> float:
        """What an iteration without a prompt takes, if those with one take as long as their prefill."""
        left = (self.token_ms - self.share * _ms(prefill, self.mixed())) / (1.0 - self.share)
        return min(max(left, 0.1 * self.token_ms), self.token_ms)

    def mean_ms(self, pieces: Any) -> float:
        """The mean iteration by a law."""
        return self.share * _ms(pieces, self.mixed()) + (1.0 - self.share) * _ms(pieces, self.decode(0.0))


def _ms(pieces: Any, one: Iteration) -> float:
    """How long a law says that an iteration takes."""
    return float((pieces @ (1.0, one.tokens, one.kv_tokens, one.sequences, one.pairs)).max())


def _largest(runs: Sequence[Run]) -> tuple[list[float], list[float]]:
    """KV tokens and sequences of each run."""
    at_once = [max(run.at_once, 1.0) for run in runs]
    return [n * (run.prompt + run.answer) for n, run in zip(at_once, runs, strict=True)], at_once


# Reading


def _listed(document: Any) -> Iterable[tuple[str, Mapping[str, Any]]]:
    several = isinstance(document, list)
    for number, one in enumerate(document if several else [document]):
        yield (f"$[{number}]" if several else "$"), one if isinstance(one, Mapping) else {}


def _model_of(one: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    """The model, where this or that version of the report has it."""
    worker, config, args = (found if isinstance(found, Mapping) else {} for found in (
        one.get("worker"), one.get("config"), report.get("args")))  # fmt: skip
    backend = config.get("backend") if isinstance(config.get("backend"), Mapping) else {}
    found = worker.get("backend_model") or (backend or {}).get("model") or args.get("model") or "model"
    return str(found).rsplit("/", 1)[-1]


def _inside(data: Any, names: Sequence[str], at: str, file: str) -> Mapping[str, Any]:
    for name in names:
        data, at = data.get(name) if isinstance(data, Mapping) else None, f"{at}.{name}"
        if not isinstance(data, Mapping):
            refuse(file, at, data, "an object", "Give a report of this tool, with streaming on.")
    return data  # type: ignore[no-any-return]


def _mean(data: Mapping[str, Any], names: Sequence[str], at: str, file: str) -> float:
    return _number(_inside(data, names, at, file), "mean", ".".join((at, *names)), file)


def _either(data: Mapping[str, Any], names: Sequence[str]) -> str:
    """The first of these names that is there: versions of a tool differ."""
    return next((name for name in names if data.get(name)), names[0])


def _number(data: Mapping[str, Any], name: str, at: str, file: str) -> float:
    value = data.get(name)
    if not is_number(value) or value <= 0.0:
        refuse(file, f"{at}.{name}", value, "a finite number above 0", "Give runs that streamed and completed.")
    return float(value)


def _text(data: Mapping[str, Any], name: str, at: str, file: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        refuse(file, f"{at}.{name}", value, "the name of the model", "Give a result of this tool.")
    return value
