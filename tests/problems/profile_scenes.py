"""Small files of every question, and what is set before in them where a field would have nothing to say."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from hetplan.problems.field_marks import QUESTIONS
from hetplan.problems.profile_marks import fields_of_file
from hetplan.profiles.plan_periods import of_period
from tests.build import answered
from tests.problems.compound import test_calls
from tests.problems.test_fields import Files, files_of, put, seen

Json = dict[str, Any]
Scene = Callable[[Files], Any]
STATISTICS = ("mean", "std", "p50", "p90", "p95", "p99", "max")
PIECES = ("base_ms", "token_ms", "kv_token_ms", "sequence_ms", "pair_ms")


@cache
def _small(question: str) -> Files:
    files = files_of(question)
    profile = files.profile
    if question == "pipeline":
        street = profile["pipelines"]["street"]
        del street["nodes"]["face"]
        street["edges"] = [{"from": "detect", "to": "car"}]
        profile["variants"] = {name: profile["variants"][name] for name in ("det-s", "det-l", "car-0", "car-6")}
        named = {run["latency"] for one in profile["variants"].values() for run in one["runs"]}
        profile["tables"] = {name: profile["tables"][name] for name in named}
        files.slo["limits"]["instances"] = {"t4": [0, 4], "l4": [0, 2]}
        files.app["rate_qps"] = {"history": [100, 110]}
    if question == "policy":
        keep = ("net-nano", "net-medium")
        profile["variants"] = {name: profile["variants"][name] for name in keep}
        profile["tables"] = {f"{name}-cpu4": profile["tables"][f"{name}-cpu4"] for name in keep}
        files.slo["limits"]["instances"] = {"cpu4": [2, 2]}
        files.app["rate_qps"] = 40
        files.options["queue_max"] = 3
    if question in ("llm", "fleet"):
        runs = profile["variants"]["llama-8b"]["runs"]
        runs[:] = [run for run in runs if run["hardware"] not in ("l4", "a100")]
        for name in ("l4", "a100"):
            del profile["offers"][f"{name}"], profile["hardware"][name], profile["engines"][f"llama-8b-{name}"]
    return files


def small(question: str) -> Files:
    """An example made smaller, with options that make it quick."""
    return copy.deepcopy(_small(question))


def _runs_of(files: Files) -> list[Json]:
    return [run for one in files.profile.get("variants", {}).values() for run in one.get("runs", ())]


def _with_offers(files: Files) -> None:
    files.profile.setdefault("sources", {"own": {"kind": "assumed"}})
    if not files.profile.get("offers"):
        files.profile["offers"] = {
            name: {"hardware": name, "price_per_hour": "1", "stock": 9} for name in files.profile["hardware"]
        }


def _budget(files: Files) -> None:
    _with_offers(files)
    limits = files.slo.setdefault("limits", {})
    if files.question == "policy":
        limits["currency"] = "USD"
    elif files.question != "fleet":
        limits.setdefault("cost_per_hour", "40")


def _by_offer(files: Files) -> None:
    for run in _runs_of(files):
        run.pop("price_per_hour", None)
    _budget(files)


def _provided(files: Files) -> None:
    if files.question in ("llm", "fleet"):
        return
    for hardware in files.profile["hardware"].values():
        hardware["provides"] = {"gpu": 1, "gpu_mem_gib": 10 if files.question == "policy" else 16, "mem_gib": 64}
    for run in _runs_of(files):
        run["needs"] = {"gpu_mem_gib": 6} if files.question in ("variants", "policy") else {"gpu": 0.5}
        run.pop("price_per_hour", None)


def _per(files: Files) -> None:
    _by_offer(files)
    for offer in files.profile["offers"].values():
        offer.pop("per", None)
        offer["price_per_hour"] = "1"
    for hardware in files.profile["hardware"].values():
        hardware["provides"] = {**hardware.get("provides", {}), "units": 3}


def _committed(files: Files) -> None:
    _with_offers(files)
    for offer in files.profile["offers"].values():
        if "interruptions_per_hour" not in offer:
            offer["commit"] = {"term_s": 7200, "upfront": "0", "discount": 0.5}


def _only(statistic: str) -> Scene:
    """Tables that hold nothing else."""

    def scene(files: Files) -> None:
        for table in files.profile.get("tables", {}).values():
            grid = next(table[one] for one in ("mean", "p95", "p99") if table.get(one) is not None)
            for one in (*STATISTICS, "samples"):
                table.pop(one, None)
            table[statistic] = grid

    return scene


def _twins(files: Files) -> None:
    """A second variant beside the only one."""
    if len(files.profile["variants"]) == 1:
        (only,) = files.profile["variants"].values()
        files.profile["variants"]["twin"] = copy.deepcopy(only)
        files.profile["variants"]["twin"]["runs"].pop()


def _by_task(files: Files) -> None:
    if files.question == "pool":
        answered(files.app, task="rank")
    elif files.question != "pipeline":
        _twins(files)
        for app in files.slo["apps"].values():
            if {"model", "models", "family"} & app.keys():
                answered(app, task=next(iter(files.profile["tasks"])))


def _by_family(files: Files) -> None:
    if files.question != "pool":
        _twins(files)
    for variant in files.profile["variants"].values():
        variant.setdefault("family", "own")
    if files.question in ("pool", "policy", "llm", "fleet"):
        answered(files.app, family=next(iter(files.profile["variants"].values()))["family"])


def _judged(files: Files) -> None:
    if files.question in ("pool", "llm", "fleet"):
        for variant in files.profile["variants"].values():
            files.profile.setdefault("metrics", {}).setdefault("auc", {"range": [0, 1]})
            files.profile["tasks"][variant["task"]].setdefault("metric", "auc")
            variant["quality"] = {"value": 0.8}
        put(files.app, "quality", {"min": 0.75})


def _zoomed(files: Files, place: float = 1) -> None:
    """Tables over a second axis; the knobs of the variants say where on it they are."""
    for table in files.profile.get("tables", {}).values():
        table["axes"] = {**table["axes"], "zoom": [1, 2]}
        for one in STATISTICS:
            if table.get(one) is not None:
                table[one] = [[x, 1.2 * x] for x in table[one]]
        table.pop("samples", None)
    for variant in files.profile.get("variants", {}).values():
        variant["knobs"] = {"zoom": place}


def _beyond(files: Files) -> None:
    """Tables that end below the place at which they are read."""
    _zoomed(files)
    for variant in files.profile["variants"].values():
        del variant["knobs"]
    for table in files.profile["tables"].values():
        table["outside"] = "clamp"
    for run in _runs_of(files):
        run["at"] = {**run.get("at", {}), "zoom": 3}


def _zoned(files: Files) -> None:
    _with_offers(files)
    files.profile["zones"] = {"z1": {}, "z2": {}}
    if files.question == "fleet":
        for offer in files.profile["offers"].values():
            offer["zone"] = "z1"


def _two_zones(files: Files) -> None:
    _zoned(files)
    if files.question == "fleet":
        for name, offer in list(files.profile["offers"].items()):
            offer["zone"] = "z2"
            files.profile["offers"][f"{name}-1"] = {**offer, "zone": "z1"}
        files.slo["limits"] = {"survive": {"zones": 1}}


def _artifacts(files: Files) -> None:
    for variant in files.profile.get("variants", {}).values():
        variant.setdefault("artifact", {"kind": "onnx"})


def _none_runs(files: Files) -> None:
    """A worker that runs on a host says what the host is of."""
    if files.state is not None:
        files.state.update(workers=[], observed={})


def _slow_to_load(files: Files) -> None:
    """Loading counts for its share of the hour; machines are started for it."""
    _by_offer(files)
    files.slo["change"].pop("load_weight_per_s")
    files.slo["horizon"] = {"period_s": 60.0}
    for offer in files.profile["offers"].values():
        offer["price_per_hour"] = "1"
    del files.profile["hosts"]
    for worker in (files.state or {})["workers"]:
        del worker["host"]


def _on_a_card(files: Files) -> None:
    for run in _runs_of(files):
        run["needs"] = {name: one for name, one in run["needs"].items() if name != "gpu_share"}


def _two_types(files: Files) -> None:
    """A second type of machine, on which nothing was measured, and which nobody sells."""
    files.profile["hardware"]["cpu8"] = {"kind": "cpu"}


def _in_two_roles(files: Files) -> None:
    """Machines that prefill, and others that decode."""
    from tests.problems.test_fields import _read

    files.profile.clear()
    files.profile.update(_read("llm-disaggregated/profile.json"))
    files.slo.clear()
    files.slo.update(_read("llm-disaggregated/slo.json"))
    runs = files.profile["variants"]["llama-8b"]["runs"]
    (mixed,) = (run for run in runs if run["hardware"] == "h100")
    runs.remove(mixed)
    for section, name in (("hardware", "h100"), ("offers", "h100"), ("engines", mixed["engine"])):
        del files.profile[section][name]


def _of_experts(files: Files) -> None:
    """Engines with laws of nine numbers."""
    for engine in files.profile["engines"].values():
        for name in ("pieces", "fitted", "overlap"):
            engine.pop(name, None)
        engine["law"] = {
            "form": "iteration/2", "base_ms": 6.0, "chunk_ms": 1.0, "experts_ms": 9.0, "experts_rate": 0.05,
            "token_ms": 0.02, "tokens_from": 100, "sequence_ms": 0.01, "kv_token_ms": 4e-5, "pair_ms": 1e-6,
            "basis": "grid", "error_mean": 0.1, "range": {},
        }  # fmt: skip


def _calling(files: Files) -> None:
    """An operator that is a call of an API for one of its models, whose answers are wanted."""
    files.profile.clear()
    files.profile.update(copy.deepcopy(test_calls.PROFILE))
    files.profile["apis"]["bits"] = {**files.profile["apis"]["acme"], "price_per_call": "0.4"}
    files.slo.clear()
    files.slo.update(test_calls.slo(quality={"min": 0.9}))
    assert files.measured is not None
    files.measured.clear()
    files.measured.update(copy.deepcopy(test_calls.measured(60)))


def _at_a_rate(files: Files) -> None:
    gate = files.slo["apps"]["gate"]
    gate.pop("streams", None)
    gate["rate_qps"], gate["latency"] = 4.0, {"p95_ms": 400}
    files.slo["apps"] = {"gate": gate}
    files.slo["objective"] = ["min cost"]
    files.slo.pop("limits", None)
    files.options.update({"sizing": "formula"})


def _shared_model(files: Files) -> None:
    _at_a_rate(files)
    gate = files.slo["apps"]["gate"]
    files.slo["apps"]["dock"] = copy.deepcopy(gate)
    assert files.measured is not None
    files.measured["apps"] = {"gate": files.measured["apps"]["gate"], "dock": files.measured["apps"]["gate"]}


def _batched(files: Files) -> None:
    _at_a_rate(files)
    grown = {"quantity": "latency_ms", "axes": {"batch": [1, 2, 8]}, "mean": [10, 13, 31]}
    files.profile["tables"] = {"grown": grown}
    files.profile["pipelines"]["track"]["nodes"]["detect"]["batches"] = "grown"


def _batched_only(statistic: str) -> Scene:
    return lambda files: (_batched(files), _only(statistic)(files))


def _two_cards(files: Files) -> None:
    for hardware in files.profile["hardware"].values():
        hardware["provides"] = {"gpu": 2}


def _tiered(files: Files) -> None:
    """Machines in the cloud, and a link to there."""
    files.profile["tiers"] = ["edge", "cloud", "space"]
    files.profile["links"] = [
        {"between": ["edge", "cloud"], "bandwidth_mbps": 50, "latency_ms": 8},
        {"between": ["cloud", "space"], "bandwidth_mbps": 50, "latency_ms": 8},
    ]
    for hardware in files.profile["hardware"].values():
        hardware["tier"] = "cloud"


def _spacious(files: Files) -> None:
    """Rules of knobs that forbid some of what was measured."""
    track = files.profile["pipelines"]["track"]
    track["space"] = {"rules": [{"if": {"model": ["m"]}, "then": {"size": [640, 960]}}]}


def _weighed(files: Files) -> None:
    street = files.profile["pipelines"]["street"]
    street["quality"] = {"rule": "additive", "weights": {"detect": 0.5, "car": 0.5}}


def _multiplied(files: Files) -> None:
    files.profile["pipelines"]["street"]["quality"] = {"rule": "product"}


def _path_by_path(files: Files) -> None:
    street = files.profile["pipelines"]["street"]
    found = (("det-s", "car-0", 0.8), ("det-s", "car-6", 0.82), ("det-l", "car-0", 0.9), ("det-l", "car-6", 0.95))
    paths = {f"detect={one}/car={other}": quality for one, other, quality in found}
    street["quality"] = {"rule": "table", "paths": paths}
    files.app["quality"] = {"min": 0.4}


SCENES: dict[str, Scene] = {
    **{f"offers.*.{name}": _with_offers for name in ("stock", "interruptions_per_hour")},
    "offers.*.hardware": lambda files: (
        _with_offers(files),
        files.question in ("policy", "pipeline") and _two_types(files),
    ),
    "offers.*.price_per_hour": _by_offer,
    "offers.*.currency": _budget,
    "offers.*.per": _per,
    "offers.*.zone": _two_zones,
    **{f"offers.*.commit.{name}": _committed for name in ("term_s", "upfront", "discount", "price_per_hour")},
    "hardware.*.provides": _provided,
    "variants.*.runs.*.needs": _provided,
    "variants.*.runs.*.price_per_hour": _budget,
    "variants.*.task": _by_task,
    "variants.*.family": _by_family,
    "variants.*.quality.value": _judged,
    "variants.*.artifact.kind": _artifacts,
    "variants.*.artifact.sha256": _artifacts,
    "zones.*.quota": _zoned,
    "tables.*.outside": _beyond,
    **{f"tables.*.{name}": _only(name) for name in STATISTICS if name != "std"},
}
OF_QUESTION: dict[tuple[str, str], Scene] = {
    ("pool", "variants.*.knobs"): _zoomed,
    ("pipeline", "variants.*.knobs"): _zoomed,
    ("policy", "variants.*.runs.*.hardware"): _two_types,
    ("variants", "hosts.*.offer"): _none_runs,
    ("variants", "hardware.*.startup_s"): _slow_to_load,
    ("variants", "hardware.*.kind"): _on_a_card,
    ("variants", "variants.*.knobs"): _zoomed,
    ("pipeline", "tables.*.std"): _only("mean"),
    ("pipeline", "pipelines.*.quality.rule"): _multiplied,
    **{("llm", field): _of_experts for field in fields_of_file("profile") if field.startswith("engines.*.law.")},
    ("llm", "engines.*.kv_error"): _of_experts,
    ("llm", "engines.*.tensor"): _two_cards,
    ("llm", "engines.*.pipeline"): _two_cards,
    ("compound", "tables.*.quantity"): _batched,
    ("compound", "tables.*.axes"): _batched,
    **{("compound", f"tables.*.{name}"): _batched_only(name) for name in STATISTICS if name != "std"},
    **{(question, field): _tiered for question in ("pool", "pipeline", "variants", "policy") for field in (
        "tiers", "links.*.between", "links.*.bandwidth_mbps", "links.*.latency_ms")},
    ("pipeline", "pipelines.*.quality.weights"): _weighed,
    ("pipeline", "pipelines.*.quality.paths"): _path_by_path,
    **{("llm", name): _in_two_roles for name in (
        "hardware.*.tier", "links.*.between", "links.*.bandwidth_mbps", "links.*.latency_ms",
        "engines.*.kv_bytes_per_token")},
    **{("compound", f"apis.*.{name}"): _calling for name in (
        "tier", "price_per_call", "price_per_million_in", "price_per_million_out", "currency", "calls_per_s",
        "tokens_per_s", "failures", "retries", "retry_ms")},
    **{("compound", f"pipelines.*.nodes.*.calls.*.{name}"): _calling for name in (
        "api", "where", "tokens.in", "tokens.out")},
    ("compound", "pipelines.*.nodes.*.model"): _shared_model,
    ("compound", "pipelines.*.nodes.*.batches"): _at_a_rate,
    ("compound", "pipelines.*.edges.*.fanout"): _at_a_rate,
    **{("compound", f"pipelines.*.space.rules.*.{name}"): _spacious for name in ("if", "then")},
}  # fmt: skip
"""Where the example has no use for a field, what is set before."""


def beside_others(question: str) -> Files:
    """The small files, with engines, APIs and a pipeline of other questions beside their own sections."""
    files = small(question)
    profile, text, operators = files.profile, small("llm").profile, small("compound").profile
    profile.setdefault("sources", {}).update(text["sources"])
    profile.setdefault("engines", {"other": next(iter(text["engines"].values()))})
    if "pipelines" not in profile:
        profile["pipelines"] = {"other": operators["pipelines"]["track"]}
        profile.setdefault("metrics", {}).update(operators["metrics"])
    if question not in ("llm", "compound", "fleet"):
        profile["apis"] = {"other": {"tier": "far"}}
        profile["tiers"] = ["far", "near"]
    return files


def scene_of(question: str, field: str) -> Files:
    """The files in which a field is set."""
    files = small(question)
    scene = OF_QUESTION.get((question, field)) or SCENES.get(field)
    if scene is not None:
        scene(files)
    return files


@cache
def _running(question: str) -> Files:
    files = replace(small(question), state=None)
    _with_offers(files)
    if question == "policy":
        _two_types(files)
    for variant in files.profile.get("variants", {}).values():
        variant["artifact"] = {"kind": "onnx", "sha256": "ab" * 32}
    _, plan = seen(files)
    assert plan is not None
    workers = of_period(plan, plan.periods[0].id).workers if question == "fleet" else plan.workers
    files.profile.setdefault("hosts", {"h1": {"offer": workers[0].offer}})
    more = [worker.model_copy(update={"count": worker.count + 1, "period": "t0"}) for worker in workers]
    state = {"format": "hetplan/state/1.0", "workers": [json.loads(worker.model_dump_json()) for worker in more]}
    state["observed"] = {next(iter(files.profile["hosts"])): {}}
    return replace(files, state=state)


def running(question: str) -> Files:
    """The small files, and a machine more of each group of their plan that runs already."""
    return copy.deepcopy(_running(question))


assert set(QUESTIONS) >= {question for question, _ in OF_QUESTION}
