"""Inputs that are wrong, each in one way: hundreds made from a valid profile and SLO, and some written by hand.

    malformed_cases(profile, slo) -> Iterator[(name, profile_bytes, slo_bytes)]

Every case must give `InputError` (exit code 2) with a remedy, never another exception. The pair that is handed in must
load; cases that need a key which it does not have are left out. `every_key_profile.json` and `every_key_slo.json` in
`tests/cases/profiles` have them all (the SLO names a trace: keep `azure.csv` beside it).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.build import answered

Case = tuple[str, bytes, bytes]
Path = tuple[str | int, ...]

FREE = {"knobs", "extensions", "note", "cite", "tool", "host", "label"}
"""Below these keys anything may stand."""

REFERENCES = {"metric", "source", "quality_source", "like", "tier"}
REFERENCES |= {"pipeline", "from", "to", "model", "models", "family"}

SPOT = {"price_per_hour": 1, "interruptions_per_hour": 1}

NEVER_NEGATIVE = ("_ms", "_s", "_qps", "_per_hour", "_gib", "_mbps")

MODELS = (
    (),
    ("sources", "*"),
    ("metrics", "*"),
    ("machines", "*"),
    ("machines", "*", "spot"),
    ("machines", "*", "reserved"),
    ("machines", "*", "zones", "*"),
    ("links", "*"),
    ("models", "*"),
    ("models", "*", "runs", "*"),
    ("pipelines", "*"),
    ("pipelines", "*", "stages", "*"),
    ("pipelines", "*", "edges", "*"),
    ("limits",),
    ("limits", "survive"),
    ("change",),
    ("horizon",),
    ("objective", "*"),
    ("apps", "*"),
    ("apps", "*", "latency", "*"),
    ("apps", "*", "rate_qps"),
    ("apps", "*", "arrivals"),
    ("apps", "*", "mix"),
    ("apps", "*", "rate_qps", "trace"),
)
"""Objects whose keys are fixed by the format."""

REQUIRED = (
    ("format",),
    ("machines", "*", "spot", "price_per_hour"),
    ("machines", "*", "reserved", "term_days"),
    ("models", "*", "runs", "*", "batch"),
    ("pipelines", "*", "edges", "*", "to"),
    ("apps", "*", "mix", "axes"),
    ("apps", "*", "mix", "share"),
    ("apps", "*", "rate_qps", "trace", "file"),
)


def malformed_cases(profile: dict[str, Any], slo: dict[str, Any]) -> Iterator[Case]:
    """Every case: its name, and the bytes of the two files, of which one is wrong."""
    good = {"profile": _bytes(profile), "slo": _bytes(slo)}

    def case(kind: str, name: str, data: bytes) -> Case:
        files = {**good, kind: data}
        return f"{kind}: {name}", files["profile"], files["slo"]

    for kind, document in (("profile", profile), ("slo", slo)):
        for name, data in _broken_bytes(document, kind):
            yield case(kind, name, data)
        for name, changed in _broken_documents(document):
            yield case(kind, name, _bytes(changed))
        for name, change in SEMANTIC[kind]:
            changed = _copy(document)
            try:
                change(changed)
            except (KeyError, IndexError, StopIteration):
                continue
            yield case(kind, name, _bytes(changed))


def _bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


def _copy(document: dict[str, Any]) -> Any:
    return json.loads(json.dumps(document))


def _broken_bytes(document: dict[str, Any], kind: str) -> Iterator[tuple[str, bytes]]:
    """Files that are no JSON, or not one object of this kind."""
    text = _bytes(document)
    yield "empty", b""
    yield "only spaces", b" \n\t "
    for part in range(1, 8):
        yield f"truncated at {part}/8", text[: len(text) * part // 8]
    yield "not UTF-8", text.replace(b'"format"', b'"form\xffat"', 1)
    yield "UTF-16", text.decode().encode("utf-16")
    yield "binary", bytes(range(256))
    for name, top in (("list", [document]), ("number", 5), ("text", "hetplan"), ("null", None), ("true", True)):
        yield f"{name} at the top", _bytes(top)
    yield "empty object", b"{}"
    yield "a key twice", text.replace(b"{", b'{"format": "hetplan/x/1.0",', 1)
    yield "a nested key twice", text.rstrip()[:-1] + b', "extensions": {"a": 1, "b": 2, "a": 3}}'
    yield "trailing comma", text.rstrip()[:-1].rstrip() + b",}"
    yield "comment", b"// measured on Monday\n" + text
    yield "single quotes", text.replace(b'"', b"'")
    yield "two documents", text + text
    yield "Python None", text.replace(b'"format"', b'"requires": None, "format"', 1)
    yield "NaN", text.rstrip()[:-1] + b', "extensions": {"a": NaN}}'
    yield "Infinity", text.rstrip()[:-1] + b', "extensions": {"a": -Infinity}}'
    yield "1e999", text.rstrip()[:-1] + b', "extensions": {"a": 1e999}}'
    yield "400 digits", text.rstrip()[:-1] + b', "extensions": {"a": ' + b"9" * 400 + b"}}"
    yield "5000 digits", text.rstrip()[:-1] + b', "extensions": {"a": ' + b"9" * 5000 + b"}}"
    for levels in (99, 99_999):
        deep = b"[" * levels + b"]" * levels
        yield f"nested {levels} levels", text.rstrip()[:-1] + b', "extensions": {"a": ' + deep + b"}}"
    yield "lone surrogate", text.rstrip()[:-1] + b', "extensions": {"a": "\\ud800"}}'
    other = "slo" if kind == "profile" else "profile"
    versions = (f"hetplan/{other}/1.0", f"hetplan/{kind}/2.0", f"hetplan/{kind}/0.9", f"hetplan/{kind}")
    for wrong in (*versions, "1.0", 1, None):
        yield f"format {wrong}", _bytes({**document, "format": wrong})
    yield "newer with a new key", _bytes({**document, "format": f"hetplan/{kind}/1.7", "novelty": 1})
    yield "unknown feature", _bytes({**document, "requires": ["telepathy/3"]})
    yield "requires is text", _bytes({**document, "requires": "series"})


def _broken_documents(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """One leaf, key or reference of a document changed at a time."""
    for path, value in _leaves(document):
        where = "/".join(map(str, path))
        last = next(step for step in reversed(path) if isinstance(step, str))
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            yield f"a list at {where}", _with(document, path, [["x"]])
            yield f"an object at {where}", _with(document, path, {"x": {}})
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield f"true at {where}", _with(document, path, True)
            yield f"text at {where}", _with(document, path, "a lot")
            if last.endswith(NEVER_NEGATIVE) or last in ("stock", "changes", "streams"):
                yield f"negative {where}", _with(document, path, -5)
        if isinstance(value, str) and last in REFERENCES and (path[0], last) != ("models", "family"):
            yield f"dangling {where}", _with(document, path, "no-such-thing")
            yield f"no id {where}", _with(document, path, "no id!")
    for pattern in MODELS:
        for path in _matching(document, pattern):
            holder = _at(document, path)
            if isinstance(holder, dict):
                yield f"unknown key in {'/'.join(map(str, path))}", _with(document, (*path, "unknown_key"), 1)
    for pattern in REQUIRED:
        for path in _matching(document, pattern):
            yield f"without {'/'.join(map(str, path))}", _without(document, path)
    for section in document:
        if section != "format":
            yield f"number as {section}", _with(document, (section,), 7)


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if path and path[-1] in FREE:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, (*path, number))
    elif path != ("format",):
        yield path, value


def _at(document: Any, path: Path) -> Any:
    for step in path:
        document = document[step]
    return document


def _with(document: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    changed = _copy(document)
    _at(changed, path[:-1])[path[-1]] = value
    return changed


def _without(document: dict[str, Any], path: Path) -> dict[str, Any]:
    changed = _copy(document)
    del _at(changed, path[:-1])[path[-1]]
    return changed


def _matching(document: Any, pattern: Path) -> list[Path]:
    """The first two places of this pattern, "*" being any key or number."""
    found: list[Path] = [()]
    for step in pattern:
        longer: list[Path] = []
        for path in found:
            holder = _at(document, path)
            keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else []
            longer += [(*path, key) for key in keys if step in ("*", key)]
        found = longer
    return found[:2]


Change = Callable[[dict[str, Any]], None]


def _first(holder: dict[str, Any], accept: Callable[[Any], bool] = lambda _: True) -> Any:
    return next(value for value in holder.values() if accept(value))


def _run(document: dict[str, Any]) -> Any:
    runs = [run for one in document["models"].values() for run in one["runs"].values()]
    return next(run for run in runs if {"batch", "mean_ms"} <= run.keys())


def _set(holder: Any, **values: Any) -> None:
    holder.update(values)


def _app(document: dict[str, Any], *keys: str) -> Any:
    def has(app: Any) -> bool:
        for key in keys:
            if key not in app:
                return False
            app = app[key]
        return True

    app = _first(document["apps"], has)
    for key in keys:
        app = app[key]
    return app


def _axis(document: dict[str, Any], change: Callable[[list[float]], list[float]]) -> None:
    run = _run(document)
    run["batch"] = change(run["batch"])


def _app_change(*keys: str, **values: Any) -> Change:
    return lambda document: _set(_app(document, *keys), **values)


def _mutate_first(section: str, **values: Any) -> Change:
    return lambda document: _set(_first(document[section]), **values)


def _percent_quality(document: dict[str, Any]) -> None:
    quality = _first(document["models"], lambda model: "quality" in model)["quality"]
    quality[next(iter(quality))] *= 100


def _no_statistic(document: dict[str, Any]) -> None:
    run = _run(document)
    for key in ("mean", "p50", "p90", "p95", "p99", "max"):
        run.pop(f"{key}_ms", None)


def _twin(document: dict[str, Any]) -> None:
    name = next(iter(document["models"]))
    document["models"][name.upper()] = document["models"][name]


def _zone_without_price(document: dict[str, Any]) -> None:
    machine = _first(document["machines"], lambda machine: "zones" in machine)
    del machine["zones"]["a"]["price_per_hour"]


def _pipeline(document: dict[str, Any]) -> Any:
    return _first(document["pipelines"], lambda pipeline: pipeline.get("edges"))


SEMANTIC: dict[str, list[tuple[str, Change]]] = {
    "profile": [
        ("axis falls", lambda d: _axis(d, lambda axis: axis[::-1])),
        ("axis point twice", lambda d: _axis(d, lambda axis: [axis[0]] * len(axis))),
        ("axis too short", lambda d: _axis(d, lambda axis: axis[:-1])),
        ("axis empty", lambda d: _axis(d, lambda _: [])),
        ("batch 0", lambda d: _axis(d, lambda axis: [0, *axis[1:]])),
        ("mean too long", lambda d: _run(d)["mean_ms"].append(1)),
        ("mean is a number", lambda d: _set(_run(d), mean_ms=3.5)),
        ("mean nested twice", lambda d: _set(_run(d), mean_ms=[_run(d)["mean_ms"]])),
        ("a latency of 0", lambda d: _run(d)["mean_ms"].__setitem__(0, 0)),
        ("a negative latency", lambda d: _run(d)["mean_ms"].__setitem__(0, -1)),
        ("negative samples", lambda d: _set(_run(d), samples=-4)),
        ("no statistic", _no_statistic),
        ("unknown outside", lambda d: _set(_run(d), outside="guess")),
        ("quality in percent", _percent_quality),
        ("two qualities", lambda d: _first(d["models"])["quality"].update(other=0.5)),
        ("price with a sign", _mutate_first("machines", price_per_hour="$0.526")),
        ("price NaN", _mutate_first("machines", price_per_hour="NaN")),
        ("price negative", _mutate_first("machines", price_per_hour="-1")),
        ("price beyond sense", _mutate_first("machines", price_per_hour=1e30)),
        ("currency in words", lambda d: d.update(currency="dollars")),
        ("stock in parts", _mutate_first("machines", stock=2.5)),
        ("stock without a price", lambda d: _first(d["machines"]).pop("price_per_hour")),
        ("hosts of a zone without a price", _zone_without_price),
        ("two prices of reserved machines", lambda d: _first(d["machines"])["reserved"].update(discount=0.4)),
        ("hosts beside zones", _mutate_first("machines", zones=["a"])),
        ("a host twice", _mutate_first("machines", hosts=["m1", "m1"])),
        ("a host of two machine types", _mutate_first("machines", hosts=["m2"])),
        ("a zone twice", lambda d: d["machines"]["g4dn-gib"].update(zones=["a", "a"])),
        ("prices of one name", lambda d: d["machines"].update({
            "x-a": {"price_per_hour": 1, "zones": ["b"]}, "x": {"price_per_hour": 1, "zones": ["a-b"]}})),
        ("a quota of nothing", lambda d: d.update(zones={"a": {"quota": {"tpu": 1}}})),
        ("ids that differ in case only", _twin),
        ("an id with a space", lambda d: _set(d["models"], **{"my model": _first(d["models"])})),
        ("an empty id", lambda d: _set(d["models"], **{"": _first(d["models"])})),
        ("an id too long", lambda d: _set(d["models"], **{"v" * 64: _first(d["models"])})),
        ("a machine type too long", lambda d: _set(d["machines"], **{"v" * 62: {"spot": SPOT}})),
        ("axes and batch", lambda d: _set(_run(d), axes={"batch": [1, 8]})),
        ("times and a law", lambda d: _set(_run(d), law=[{"base_ms": 9}], kv_tokens=10_000)),
        ("a law of no catalogue", lambda d: _set(_run(d), law="vllm/llama")),
        ("a law that nobody has", lambda d: _set(_run(d), law="catalogue/vllm/llama-9/bf16")),
        ("two metrics of a task", lambda d: d["models"].update(other={"task": "detect", "quality": {"top1": 0.5}})),
        ("one source and several", lambda d: d.update(source={"kind": "measured"})),
        ("a run twice", lambda d: _first(d["models"])["runs"].update(g4dn=[_run(d), _run(d)])),
        ("like itself", lambda d: _run(d).update(like="g4dn")),
        ("like no machine", lambda d: _run(d).update(like="no-such-thing")),
        ("a run on no machine", lambda d: _first(d["models"])["runs"].update(nothing=_run(d))),
        ("no CSV file", lambda d: d.update(measurements="none.csv")),
        ("old machines", lambda d: d.update(hardware={"g4dn": {"kind": "gpu"}})),
        ("old models", lambda d: d.update(variants={"net": {"task": "detect", "runs": []}})),
        ("a point off its axes", lambda d: _run(d).update(at={"batsh": 8})),
        ("a point off its table", lambda d: _run(d).update(at={"batch": 4096})),
        ("a range turned round", _mutate_first("metrics", range=[1, 0])),
        ("a date in words", _mutate_first("sources", date="last May")),
        ("an edge to nowhere", lambda d: _pipeline(d)["edges"][0].update(to="nowhere")),
        ("an edge to itself", lambda d: _pipeline(d)["edges"][0].update(to=_pipeline(d)["edges"][0]["from"])),
        ("an edge twice", lambda d: _pipeline(d)["edges"].append(_pipeline(d)["edges"][0])),
        ("no stages", lambda d: _pipeline(d).update(stages={}, edges=[])),
        ("a path of one word", lambda d: _pipeline(d).update(paths={"detect": 0.5})),
        ("a path through no stage", lambda d: _pipeline(d).update(paths={"zz=yy": 0.5})),
        ("weights without their rule", lambda d: _pipeline(d).update(weights={"d": 1})),
        ("shares without the whole", lambda d: _pipeline(d).update(share_grid=[0.5, 0.25])),
        ("a share of 150%", lambda d: _pipeline(d).update(share_grid=[1, 1.5])),
        ("a knob without levels", lambda d: _pipeline(d).update(knobs={"resolution": []})),
        ("a knob that nobody has", lambda d: _first(_pipeline(d)["stages"]).update(reads=["nothing"])),
        ("a link of a tier to itself", lambda d: d["links"][0].update(between=["edge", "edge"])),
        ("a link to no tier", lambda d: d["links"][0].update(between=["edge", "moon"])),
        ("a link of three", lambda d: d["links"][0].update(between=["device", "edge", "cloud"])),
        ("a tier twice", lambda d: d["tiers"].append(d["tiers"][0])),
    ],
    "slo": [
        ("a limit in hours", _app_change(latency={"p99_ms": 1e9})),
        ("a limit of nanoseconds", _app_change(latency={"p99_ms": 1e-6})),
        ("a percentile as fraction", _app_change(latency={"p0.99_ms": 100})),
        ("a percentile above 100", _app_change(latency={"p101_ms": 100})),
        ("a percentile twice", _app_change(latency={"p99_ms": 100, "p99.0_ms": 90})),
        ("a limit of no percentile", _app_change(latency={"max_ms": 100})),
        ("a share of late answers", _app_change(latency={"p99_ms": 9}, violations={"max": 0.05})),
        ("a list of limits", _app_change(latency=[{"percentile": 99, "max_ms": 9}][:1])),
        ("an unknown way with late queries", _app_change(late="forget")),
        ("an unknown load balancer", _app_change(dispatch="fairest")),
        ("an empty quality", _app_change(quality={})),
        ("a quality turned round", _app_change(quality={"min": 0.9, "max": 0.1})),
        ("a quality of 80", _app_change("quality", min=80)),
        ("answered by two", _app_change(task="a", pipeline="b")),
        ("answered by nothing", lambda d: answered(_app(d))),
        ("answered by no models", lambda d: answered(_app(d), models=[])),
        ("answered by a model twice", lambda d: answered(_app(d), models=["a", "a"])),
        ("answered under runs", lambda d: answered(_app(d), runs={"variants": ["a"]})),
        ("candidates beside a model", _app_change(candidates=[{"demand": {"gpu": 1}}])),
        ("a range and a history", _app_change(rate_qps={"low": 1, "high": 2, "history": [1, 2]})),
        ("amounts of demand", _app_change(demand={"history_qps": [1, 2]})),
        ("a mean without a trace", _app_change(rate_qps={"mean": 5})),
        ("rates of nothing", _app_change(rate_qps={})),
        ("a percentile of no windows", _app_change(rate_qps={"trace": {"file": "a.csv", "percentile": 95}})),
        ("rates beside those of a trace", _app_change(rate_qps={"mean": 5, "trace": {"file": "a", "period_s": 60}})),
        ("an empty history", lambda d: _app(d).update(rate_qps={"history": []})),
        ("a series too long", lambda d: _app(d).update(rate_qps={"series": [1, 2, 3, 4, 5, 6, 7]})),
        ("a rate in words", lambda d: _app(d).update(rate_qps="most")),
        ("a range turned round", lambda d: _app(d).update(rate_qps={"low": 9, "high": 1})),
        ("half a range", lambda d: _app(d).update(rate_qps={"low": 9})),
        ("an unknown process", lambda d: _app(d).update(arrivals={"process": "bursty"})),
        ("gamma without shape", lambda d: _app(d).update(arrivals={"process": "gamma"})),
        ("poisson with shape", lambda d: _app(d).update(arrivals={"process": "poisson", "shape": 2})),
        ("mmpp of one state", lambda d: _app(d).update(
            arrivals={"process": "mmpp", "relative_rates": [1], "stay_s": [1]})),
        ("mmpp of another mean", lambda d: _app(d).update(
            arrivals={"process": "mmpp", "relative_rates": [1, 3], "stay_s": [1, 1]})),
        ("diurnal below its mean", lambda d: _app(d).update(
            arrivals={"process": "diurnal", "peak": 0.5, "period_s": 9})),
        ("empirical without a trace", lambda d: _app(d).update(arrivals={"process": "empirical"})),
        ("shares that sum to 0.9", lambda d: _app(d, "mix")["share"].__setitem__(0, 0.65)),
        ("shares in percent", lambda d: _app(d, "mix").update(
            share=[100 * share for share in _app(d, "mix")["share"]])),
        ("a negative share", lambda d: _app(d, "mix")["share"].__setitem__(0, -0.75)),
        ("a share too many", lambda d: _app(d, "mix")["share"].append(0)),
        ("share and observed", lambda d: _app(d, "mix").update(observed=[[1]])),
        ("a bin of two numbers", lambda d: _app(d, "mix")["bins"].__setitem__(0, [1, 2, 3, 4, 5])),
        ("a bin twice", lambda d: _app(d, "mix")["bins"].__setitem__(0, _app(d, "mix")["bins"][1])),
        ("no bins", lambda d: _app(d, "mix").update(bins=[], share=[])),
        ("no axes", lambda d: _app(d, "mix").update(axes=[])),
        ("a size above the largest bin", lambda d: _app(d).update(
            mix={"axes": ["batch"], "bins": [[1], [8]], "observed": [[1], [9]]})),
        ("a trace that is not there", lambda d: _app(d).update(rate_qps={"trace": {"file": "none.csv"}})),
        ("a trace elsewhere", lambda d: _app(d).update(rate_qps={"trace": {"file": "../../etc/passwd"}})),
        ("a trace by its full path", lambda d: _app(d).update(rate_qps={"trace": {"file": "/etc/passwd"}})),
        ("a trace with a zero byte", lambda d: _app(d).update(rate_qps={"trace": {"file": "a\0b"}})),
        ("a trace that is a folder", lambda d: _app(d).update(rate_qps={"trace": {"file": "."}})),
        ("a trace scaled to nothing", lambda d: _app(d).update(rate_qps={"trace": {"file": "a.csv", "scale": 0}})),
        ("a term of both senses", lambda d: d.update(objective=[{"max": "rate", "min": "cost"}])),
        ("a term of neither sense", lambda d: d.update(objective=[{}])),
        ("a term twice", lambda d: d.update(objective=["max rate", "max rate"])),
        ("an unknown term", lambda d: d.update(objective=["max throughput"])),
        ("a sense exchanged", lambda d: d.update(objective=["max cost"])),
        ("instances turned round", lambda d: d["limits"].update(
            instances={name: [9, 1] for name in d["limits"]["instances"]})),
        ("instances of no hardware", lambda d: d["limits"].update(instances={"abacus": [0, 1]})),
        ("instances in parts", lambda d: d["limits"].update(
            instances={name: [0, 1.5] for name in d["limits"]["instances"]})),
        ("a budget in another currency", lambda d: d["limits"].update(currency="EUR")),
        ("a budget in words", lambda d: d["limits"].update(cost_per_hour="cheap")),
        ("a slack below 1", lambda d: d.update(change={"slack": 0.95})),
        ("no periods", lambda d: d.update(horizon={"periods": 0})),
    ],
}  # fmt: skip
"""Name and change, written by hand; each acts on a copy of a document that has the keys it needs."""
