"""How each field of a profile or of a state is set so that it matters."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]
ZONE = "z1"
Try = Callable[[Any, Json, Json], Any]
"""Of the old value (None: there was none), the section around it and the whole profile, the new value."""


def sections(held: Any, steps: list[str]) -> Iterator[Json]:
    """Every section at these steps; "*" is each of several, a section that may be absent is not made."""
    if not steps:
        if isinstance(held, dict):
            yield held
    elif steps[0] == "*":
        for one in held.values() if isinstance(held, dict) else held or ():
            yield from sections(one, steps[1:])
    elif isinstance(held, dict):
        yield from sections(held.get(steps[0]), steps[1:])


def set_everywhere(document: Json, field: str, profile: Json) -> int:
    """Set a field wherever its section is; how many places were changed."""
    *steps, last = field.split(".")
    tried, changed = {**OF_PROFILE, **OF_STATE}[field], 0
    for section in list(sections(document, steps)):
        old = section.get(last)
        new = tried(copy.deepcopy(old), section, profile)
        if new != old:
            section[last] = new
            changed += 1
    return changed


def _to(value: Any) -> Try:
    return lambda old, section, profile: value


def _times(factor: float, absent: Any = None) -> Try:
    return lambda old, section, profile: absent if old is None else _scaled(old, factor)


def _scaled(old: Any, factor: float) -> Any:
    if isinstance(old, dict):
        return {key: _scaled(one, factor) for key, one in old.items()}
    if isinstance(old, list):
        return [_scaled(one, factor) for one in old]
    if isinstance(old, str):
        return f"{float(old) * factor:.9f}"
    if old is None or isinstance(old, bool):
        return old
    return round(old * factor) if isinstance(old, int) and old * factor == round(old * factor) else old * factor


def _in_euros(profile: Json) -> str:
    """All machines of a profile are paid in one currency."""
    for one in profile["offers"].values():
        one["currency"] = "EUR"
    return "EUR"


def _steeper(old: Any, factor: float) -> Any:
    """Larger numbers in a grid, and more so along its axes: of some tables only the shape counts."""
    if isinstance(old, list):
        return [_steeper(one, factor + 0.2 * number) for number, one in enumerate(old)]
    return old if old is None else old * factor


def _next_of(name: str) -> Try:
    """The one that follows in its section; the first after the last, so that what were different stay so."""

    def change(old: Any, section: Json, profile: Json) -> Any:
        names = list(profile.get(name) or ())
        return names[(names.index(old) + 1) % len(names)] if old in names else old

    return change


def _host_of(worker: Json, profile: Json) -> str | None:
    """A host that the worker could run on."""
    return next((name for name, host in profile["hosts"].items() if host["offer"] == worker["offer"]), None)


def _added(section: str, name: str, document: Json) -> Try:
    """The name of something that is added to a section."""

    def change(old: Any, _: Json, profile: Json) -> Any:
        profile.setdefault(section, {}).setdefault(name, document)
        return name

    return change


def _slower_table(old: Any, section: Json, profile: Json) -> Any:
    if old is None:
        return old
    table = copy.deepcopy(profile["tables"][old])
    for one in ("mean", "p50", "p90", "p95", "p99", "max"):
        if table.get(one) is not None:
            table[one] = _scaled(table[one], 1.3)
    profile["tables"][f"{old}-slow"] = table
    return f"{old}-slow"


def _as_rate(old: Any, section: Json, profile: Json) -> Any:
    if "latency" not in section:
        return old
    del section["latency"]
    section.pop("at", None)
    profile["tables"]["rated"] = {"quantity": "requests_per_s", "axes": {}, "mean": 25.0}
    return "rated"


def _slower_engine(old: Any, section: Json, profile: Json) -> Any:
    if old is None:
        return old
    engine = copy.deepcopy(profile["engines"][old])
    of = "law" if engine.get("law") else "pieces"
    engine[of] = _scaled(engine[of], 1.5) if of == "pieces" else engine[of] | {"base_ms": 1.5 * engine[of]["base_ms"]}
    profile["engines"][f"{old}-slow"] = engine
    return f"{old}-slow"


def _statistic(factor: float) -> Try:
    def change(old: Any, section: Json, profile: Json) -> Any:
        return _steeper(old, factor) if section["quantity"] == "latency_ms" else old

    return change


def _first_variant(old: Any, section: Json, profile: Json) -> Any:
    """The first variant gets another task; of pipelines, the last."""
    names = list(profile["variants"])
    chosen = names[0] if not profile.get("pipelines") else "det-l" if "det-l" in names else names[-1]
    if section is not profile["variants"][chosen]:
        return old
    profile["tasks"].setdefault("other", {})
    return "other"


def _first_family(old: Any, section: Json, profile: Json) -> Any:
    """One variant gets another family: one that runs already, or the first."""
    first = next(iter(profile["variants"].values()))
    return "other" if section is profile["variants"].get("resnet50-neuron-1", first) else old


GUESS = _added("sources", "guess", {"kind": "assumed"})
WORSE = _added("metrics", "wer", {"better": "lower", "range": [0, 5]})
GROWN = {"quantity": "latency_ms", "axes": {"batch": [1, 2, 8]}, "mean": [10, 13, 31]}
SLOWED = {"quantity": "slowdown", "axes": {"co_load": [0, 500]}, "mean": [1.5, 3.0]}

OF_PROFILE: dict[str, Try] = {
    **{f"sources.*.{name}": _to("x") for name in ("tool", "host", "cite", "note")},
    "sources.*.kind": _to("published"),
    "sources.*.date": _to("2020-01-01"),
    "metrics.*.better": _to("lower"),
    "metrics.*.range": _to([0.0, 3.0]),
    "metrics.*.kind": lambda old, s, p: "continuous" if old == "bernoulli" else "bernoulli",
    "metrics.*.unit": _to("points"),
    "reference": lambda old, s, p: list(p["hardware"])[0 if old is None or old == list(p["hardware"])[-1] else -1],
    "tiers": lambda old, s, p: ["inner", *(old or ())],
    "hardware.*.gpu_type": _to("H100"),
    "hardware.*.kind": lambda old, s, p: "cpu" if old == "gpu" else "gpu",
    "hardware.*.tier": lambda old, s, p: (p.setdefault("tiers", ["device", "edge"]), p["tiers"][-1])[1],
    "hardware.*.relative_time": _times(1.5, 1.5),
    "hardware.*.startup_s": _times(20.0, 900.0),
    "hardware.*.provides": lambda old, s, p: _scaled(old, 2.0) if old else {"gpu": 1, "gpu_mem_gib": 0.1},
    "offers.*.hardware": _next_of("hardware"),
    "offers.*.price_per_hour": lambda old, s, p: "3.5" if float(old) == 0 else _scaled(str(old), 1.7),
    "offers.*.currency": lambda old, s, p: _in_euros(p),
    "offers.*.stock": _to(1),
    "offers.*.zone": _to(ZONE),
    "offers.*.per": _to("units"),
    "offers.*.interruptions_per_hour": _times(9.0, 0.7),
    "offers.*.commit.term_s": _times(0.001),
    "offers.*.commit.upfront": _to("90000"),
    "offers.*.commit.discount": _to(0.0),
    "offers.*.commit.price_per_hour": lambda old, s, p: (s.pop("discount", None), "0.0001")[1],
    "zones.*.quota": _to({"machines": 1}),
    "hosts.*.offer": _next_of("offers"),
    "links.*.between": lambda old, s, p: [old[0], next(one for one in (*p.get("tiers", ()), "far") if one not in old)],
    "links.*.bandwidth_mbps": _times(0.01),
    "links.*.latency_ms": _to(90.0),
    "tasks.*.metric": WORSE,
    "variants.*.task": _first_variant,
    "variants.*.family": _first_family,
    "variants.*.quality.value": _times(0.9),
    "variants.*.quality.source": GUESS,
    "variants.*.artifact.kind": _to("other"),
    "variants.*.artifact.sha256": _to("0" * 64),
    "variants.*.knobs": _to({"zoom": 2}),
    "variants.*.runs.*.hardware": _next_of("hardware"),
    "variants.*.runs.*.latency": _slower_table,
    "variants.*.runs.*.rate": _as_rate,
    "variants.*.runs.*.engine": _slower_engine,
    "variants.*.runs.*.at": lambda old, s, p: {**(old or {}), "other": 3.0},
    "variants.*.runs.*.load_s": _times(40.0, 900.0),
    "variants.*.runs.*.saturation_qps": _times(0.6, 5.0),
    "variants.*.runs.*.price_per_hour": _to("0.9"),
    "variants.*.runs.*.needs": lambda old, s, p: _scaled(old, 0.5) if old else {"gpu_mem_gib": 5},
    "variants.*.runs.*.bytes_out": _added("tables", "bytes", {"quantity": "bytes_out", "axes": {}, "mean": 9e6}),
    "variants.*.runs.*.slowdown": _added("tables", "slowed", SLOWED),
    "tables.*.quantity": _to("ttft_ms"),
    "tables.*.axes": lambda old, s, p: {k: [2 * x for x in v] for k, v in (old or {}).items()},
    "tables.*.mean": _statistic(1.3),
    "tables.*.std": lambda old, s, p: _scaled(s.get("mean") or s.get("p50"), 0.9),
    **{f"tables.*.{name}": _statistic(1.6) for name in ("p50", "p90", "p95", "p99", "max")},
    "tables.*.samples": _to(3),
    "tables.*.source": GUESS,
    "tables.*.outside": lambda old, s, p: "clamp" if old == "linear" else "linear",
    "tables.*.given": _to({"ttft_p99_ms": 500.0}),
    "tables.*.interval": _to(0.9),
    "apis.*.tier": _next_of("tiers"),
    "apis.*.price_per_call": _to("0.5"),
    "apis.*.price_per_million_in": _to("90000"),
    "apis.*.price_per_million_out": _to("90000"),
    "apis.*.currency": _to("EUR"),
    "apis.*.calls_per_s": _to(0.01),
    "apis.*.tokens_per_s": _to(0.5),
    "apis.*.failures": _to(0.5),
    "apis.*.retries": _to(7),
    "apis.*.retry_ms": _to(9000.0),
    **{
        f"engines.*.pieces.*.{name}": _times(2.0, 0.001)
        for name in ("base_ms", "token_ms", "kv_token_ms", "sequence_ms", "pair_ms")
    },
    **{
        f"engines.*.law.{name}": _times(20.0, 0.01)
        for name in ("base_ms", "chunk_ms", "experts_ms", "token_ms", "sequence_ms", "kv_token_ms", "pair_ms")
    },
    "engines.*.law.form": _to("iteration/2"),
    "engines.*.law.experts_rate": _times(20.0, 0.2),
    "engines.*.law.tokens_from": _to(7000),
    "engines.*.law.basis": _to("datasheet"),
    "engines.*.law.error_mean": _to(0.4),
    "engines.*.law.fit_error": _to([0.4, 0.5]),
    "engines.*.law.range.tokens": _to(16),
    "engines.*.law.range.kv_tokens": _to(500),
    "engines.*.law.range.sequences": _to(2),
    "engines.*.law.source": _to("a guess"),
    "engines.*.request_ms": _to(200.0),
    "engines.*.overlap": lambda old, s, p: "assumed" if old == "measured" else "measured",
    "engines.*.fitted.error": _to(0.4),
    "engines.*.fitted.tokens": _to(16),
    "engines.*.fitted.kv_tokens": _to(500),
    "engines.*.fitted.sequences": _to(2),
    "engines.*.kv_tokens": _times(0.25),
    "engines.*.kv_error": _to(0.3),
    "engines.*.kv_bytes_per_token": _times(100.0, 5e6),
    "engines.*.context_tokens": _to(300),
    "engines.*.most_tokens": lambda old, s, p: (s.__setitem__("most_seqs", 16), 64)[1],
    "engines.*.most_seqs": _to(2),
    "engines.*.tensor": _to(2),
    "engines.*.pipeline": _to(2),
    "engines.*.precision": _to("fp8"),
    "engines.*.role": _to("decode"),
    "engines.*.schedule": _to("prefill-first"),
    "engines.*.reserves": lambda old, s, p: not old,
    "engines.*.source": GUESS,
    "pipelines.*.nodes.*.task": lambda old, s, p: old and next(one for one in p["tasks"] if one != old),
    "pipelines.*.nodes.*.device": lambda old, s, p: "cpu" if old == "gpu" else "gpu",
    "pipelines.*.nodes.*.reads": lambda old, s, p: [*(old or ())[1:], "model"],
    "pipelines.*.nodes.*.share_law": _to("batch"),
    "pipelines.*.nodes.*.needs": _to({"gpu_mem_gib": 14}),
    "pipelines.*.nodes.*.outcomes.share": _to({"yes": 0.25, "no": 0.75}),
    "pipelines.*.nodes.*.outcomes.measured": lambda old, s, p: [*old, "odd"] if old else old,
    "pipelines.*.nodes.*.outcomes.source": GUESS,
    "pipelines.*.nodes.*.calls.*.api": _next_of("apis"),
    "pipelines.*.nodes.*.calls.*.where": _to({"model": ["small"]}),
    "pipelines.*.nodes.*.calls.*.tokens.in": _to(90000),
    "pipelines.*.nodes.*.calls.*.tokens.out": _to(90000),
    "pipelines.*.nodes.*.model": _to("one"),
    "pipelines.*.nodes.*.batches": _added("tables", "grown", GROWN),
    "pipelines.*.edges.*.from": lambda old, s, p: "sample",
    "pipelines.*.edges.*.to": lambda old, s, p: "track",
    "pipelines.*.edges.*.on": lambda old, s, p: None if old == "yes" else "yes",
    "pipelines.*.edges.*.fanout": _to(3.0),
    "pipelines.*.edges.*.bytes": _to(9e6),
    "pipelines.*.quality.rule": _to("additive"),
    "pipelines.*.quality.weights": lambda old, s, p: old and {name: 0.5 * one for name, one in old.items()},
    "pipelines.*.quality.paths": lambda old, s, p: old and {name: 0.5 * one for name, one in old.items()},
    "pipelines.*.knobs": lambda old, s, p: {name: levels[1:] for name, levels in (old or {}).items()},
    "pipelines.*.space.ranges.*.from": _to(2),
    "pipelines.*.space.ranges.*.to": _to(7),
    "pipelines.*.space.ranges.*.kind": _to("integer"),
    "pipelines.*.space.ranges.*.step": _to(3),
    "pipelines.*.space.ranges.*.points": _to(4),
    "pipelines.*.space.ranges.*.scale": _to("log"),
    "pipelines.*.space.unordered": lambda old, s, p: [] if old else ["size"],
    "pipelines.*.space.matters": _to({}),
    "pipelines.*.space.rules.*.if": _to({"model": ["x"]}),
    "pipelines.*.space.rules.*.then": _to({"size": [640]}),
    "pipelines.*.space.rising": _to([]),
    "pipelines.*.metric": WORSE,
    "pipelines.*.share_grid": _to([1]),
    "pipelines.*.evaluator": _to("other-eval"),
    "pipelines.*.strata": lambda old, s, p: 2 if old != 2 else 3,
}

OF_STATE: dict[str, Try] = {
    "workers.*.id": lambda old, s, p: f"{old}-x",
    "workers.*.period": _to("p7"),
    "workers.*.hardware": _next_of("hardware"),
    "workers.*.offer": lambda old, s, p: _next_of("offers")(old, s, p) if len(p["offers"]) > 1 else None,
    "workers.*.host": lambda old, s, p: _next_of("hosts")(old, s, p) or _host_of(s, p),
    "workers.*.count": lambda old, s, p: (old or 1) + 3,
    "workers.*.standby": _to(2),
    "workers.*.queue": lambda old, s, p: "shared" if old == "per-load" else "per-load",
    "workers.*.loads.*.id": lambda old, s, p: f"{old}-x",
    "workers.*.loads.*.app": lambda old, s, p: None,
    "workers.*.loads.*.node": lambda old, s, p: "other",
    "workers.*.loads.*.variant": lambda old, s, p: _next_of("variants")(old, s, p) if len(p["variants"]) > 1 else None,
    "workers.*.loads.*.at": _to({"other": 3.0}),
    "workers.*.loads.*.artifact": _to(f"sha256:{'cd' * 32}"),
    "workers.*.loads.*.knobs": _to({"other": 3}),
    "workers.*.loads.*.instances": lambda old, s, p: (old or 1) + 1,
    "workers.*.loads.*.share": lambda old, s, p: {**(old or {}), "enforce": "cgroup"},
    "workers.*.loads.*.outcomes": _to({"yes": 1.0}),
    "workers.*.loads.*.serve.max_batch": _to(77),
    "workers.*.loads.*.serve.max_wait_ms": _to(5.0),
    "workers.*.loads.*.serve.concurrency": _to(9),
    "workers.*.loads.*.serve.most_tokens": _to(99),
    "workers.*.loads.*.serve.most_seqs": _to(9),
    "observed.*.status": _to("overloaded"),
    "observed.*.rate_qps": _to(900.0),
    "observed.*.utilisation": _to(0.99),
    "observed.*.latency_ms": _to(5000.0),
    "observed.*.counters": _to({"scale_down": 7}),
}
