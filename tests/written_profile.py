"""From a profile as it is planned with, as many tests state one, to the file that a person would write.

What all runs of a model share is said once; zones with the same prices are a list.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hetplan.errors import InputError
from hetplan.profiles.columns import RATES, STATISTICS, TIMES
from hetplan.profiles.lowering import (
    AS_THEY_ARE,
    ENGINE_KEYS,
    RUN_KEYS,
    S_A_DAY,
    TABLE_KEYS,
    batch_rate,
    offer_id,
    stated_law,
)
from hetplan.profiles.new_files import price_of, runs_of
from hetplan.profiles.plain_data import whole_if_it_is
from hetplan.profiles.read_json import format_of

__all__ = ["renamed_offers", "written_profile"]

Json = dict[str, Any]


def written_profile(lowered: Mapping[str, Any]) -> Json:
    """The file, as plain data in the order in which a person reads it.

    >>> lowered = {"hardware": {"t4": {"kind": "gpu", "provides": {"gpu": 1}}},
    ...            "offers": {"t4": {"hardware": "t4", "price_per_hour": "0.526"}}}
    >>> written_profile(lowered)["machines"]
    {'t4': {'provides': {'gpu': 1}, 'price_per_hour': 0.526}}
    """
    return _Writing(lowered).result()


def renamed_offers(lowered: Mapping[str, Any]) -> dict[str, str]:
    """What each offer is called once the file is read again."""
    return {
        name: offer_id(one["hardware"], spot=one.get("interruptions_per_hour") is not None, zone=one.get("zone"))
        for name, one in lowered.get("offers", {}).items()
    }


class _Writing:
    def __init__(self, lowered: Mapping[str, Any]) -> None:
        self.given = lowered
        sources = lowered.get("sources") or {}
        self.source = next(iter(sources)) if len(sources) == 1 else None

    def result(self) -> Json:
        """All of it."""
        given, made = self.given, dict[str, Any](format=format_of("profile"))
        priced = given.get("offers") or given.get("apis") or {}
        currencies = {one.get("currency", "USD") for one in priced.values()}
        if len(currencies) > 1:
            raise _no_file(f"prices in {' and '.join(sorted(currencies))}", "Convert them to one currency.")
        currency = currencies.pop() if currencies else "USD"
        made |= {"currency": currency} if currency != "USD" else {}
        if self.source is not None:
            made["source"] = {"name": self.source, **given["sources"][self.source]}
        elif given.get("sources"):
            made["sources"] = given["sources"]
        machines = self._machines()
        made |= {"machines": machines} if machines else {}
        metrics = {name: one for name, one in (given.get("metrics") or {}).items() if not self._is_plain(name, one)}
        made |= {"metrics": metrics} if metrics else {}
        models = {name: self._model(name, one) for name, one in (given.get("variants") or {}).items()}
        made |= {"models": models} if models else {}
        pipelines = {name: self._pipeline(one) for name, one in (given.get("pipelines") or {}).items()}
        made |= {"pipelines": pipelines} if pipelines else {}
        for key in AS_THEY_ARE:
            kept = given.get(key)
            if key == "zones":
                kept = {zone: one for zone, one in (kept or {}).items() if one.get("quota")}
            if key == "apis":
                kept = {
                    name: _without(one, "currency") if one.get("currency", "USD") == currency else one
                    for name, one in (kept or {}).items()
                }
            if key != "metrics" and kept:
                made[key] = kept
        return made

    def _is_plain(self, name: str, metric: Mapping[str, Any]) -> bool:
        """Whether a metric goes without saying: by its defaults, and named by a quality."""
        plain = {"better": "higher", "range": [0, 1], "kind": "continuous"}
        named = {self.given.get("tasks", {}).get(one["task"], {}).get("metric")
                 for one in (self.given.get("variants") or {}).values() if one.get("quality")}  # fmt: skip
        said = {key: list(one) if isinstance(one, tuple) else one for key, one in metric.items()}
        return name in named and all(plain.get(key) == one for key, one in said.items())

    # -- machines ------------------------------------------------------------------------------------------------------

    def _machines(self) -> Json:
        hosts: dict[str, list[str]] = {}
        for name, one in (self.given.get("hosts") or {}).items():
            hosts.setdefault(one["offer"], []).append(name)
        machines: Json = {}
        for name, about in (self.given.get("hardware") or {}).items():
            provides = about.get("provides") or {}
            derived = "gpu" if provides.get("gpu") or about.get("gpu_type") else "cpu"
            said = {key: one for key, one in about.items() if one is not None}
            machines[name] = _without(said, "kind") if said.get("kind") == derived else said
        of: dict[str, dict[str | None, Json]] = {}
        for name, offer in (self.given.get("offers") or {}).items():
            machines.setdefault(offer["hardware"], {})
            zones = of.setdefault(offer["hardware"], {})
            prices = zones.setdefault(offer.get("zone"), {})
            is_spot = offer.get("interruptions_per_hour") is not None
            target = prices.setdefault("spot", {}) if is_spot else prices
            if "price_per_hour" in target:
                why = f"{name} is a second price of {offer['hardware']}, bought in the same way and zone"
                raise _no_file(why, "Name a zone of each, or a machine type of its own.")
            target |= self._price(offer, hosts.get(name, ()))
            if offer.get("per") is not None:
                prices["per"] = offer["per"]
        for name, zones in of.items():
            machines[name] |= _zoned(name, zones)
        return machines

    def _price(self, offer: Mapping[str, Any], hosts: Any) -> Json:
        made: Json = {"price_per_hour": price_of(offer["price_per_hour"])}
        if offer.get("stock") is not None:
            made["stock"] = offer["stock"]
        if offer.get("interruptions_per_hour"):
            made["interruptions_per_hour"] = offer["interruptions_per_hour"]
        if offer.get("commit") is not None:
            commit = dict(offer["commit"])
            days = commit.pop("term_s") / S_A_DAY
            rest = {key: one if key == "discount" else price_of(one) for key, one in commit.items() if one is not None}
            made["reserved"] = {"term_days": whole_if_it_is(days), **rest}
        if hosts:
            made["hosts"] = list(hosts)
        return made

    # -- models --------------------------------------------------------------------------------------------------------

    def _model(self, name: str, variant: Mapping[str, Any]) -> Json:
        made: Json = {"task": variant["task"]} if variant["task"] != name else {}
        made |= {key: variant[key] for key in ("family",) if variant.get(key) is not None}
        quality = variant.get("quality")
        if quality is not None:
            metric = ((self.given.get("tasks") or {}).get(variant["task"]) or {}).get("metric")
            made["quality"] = {metric: quality["value"]} if metric is not None else quality["value"]
            if quality.get("source") not in (None, self.source):
                made["quality_source"] = quality["source"]
        made |= {key: variant[key] for key in ("artifact", "knobs") if variant.get(key)}
        return made | runs_of((run["hardware"], self._run(run)) for run in variant.get("runs") or ())

    def _run(self, run: Mapping[str, Any]) -> Json:
        made: Json = {}
        for key, called in RUN_KEYS.items():
            if run.get(called) not in (None, {}) and key != "at":
                made[key] = price_of(run[called]) if key == "price_per_hour" else run[called]
        at = run.get("at") or {}
        if run.get("engine") is not None:
            made |= self._engine(self.given["engines"][run["engine"]])
            made |= {"at": at} if at else {}
        else:
            name = run.get("latency") or run.get("rate")
            table = self.given["tables"][name]
            axes = table.get("axes") or {}
            batches = axes.get("batch", ())
            alone = list(axes) == ["batch"] and len(batches) == 1
            if at != ({"batch": batches[0]} if alone else {}):
                made["at"] = at
            made |= self._columns(table, TIMES if run.get("latency") is not None else RATES)
            rate = run.get("saturation_qps")
            if rate is not None and not (alone and "at" not in made and rate == batch_rate(made)):
                made["max_qps"] = rate
        for key, suffix in (("bytes_out", ""), ("slowdown", "")):
            if run.get(key) is not None:
                made[key] = self._columns(self.given["tables"][run[key]], {one: one + suffix for one in STATISTICS})
        return made

    def _columns(self, table: Mapping[str, Any], columns: Mapping[str, str]) -> Json:
        axes = table.get("axes") or {}
        made: Json = {"batch": axes["batch"]} if list(axes) == ["batch"] else {"axes": axes}
        for statistic in STATISTICS:
            if table.get(statistic) is not None:
                if statistic not in columns:
                    raise _no_file(f"a rate with {statistic}", "Give its mean.")
                made[columns[statistic]] = table[statistic]
        for key in TABLE_KEYS:
            if table.get(key) not in (None, {}, (), []) and (key, table[key]) != ("outside", "refuse"):
                made[key] = table[key]
        if table.get("source") not in (None, self.source):
            made["source"] = table["source"]
        return made

    def _engine(self, engine: Mapping[str, Any]) -> Json:
        made: Json = {}
        for key, called in ENGINE_KEYS.items():
            if engine.get(called) is not None and (key, engine[called]) != ("overlap", "assumed"):
                made[key] = {"mixed": "both"}.get(engine[called], engine[called]) if key == "role" else engine[called]
        law = engine.get("law")
        if law is not None and not isinstance(law, str):
            made |= stated_law(law)
        else:
            fitted = dict(engine.get("fitted") or {})
            made |= {"error_mean": fitted.pop("error")} if "error" in fitted else {}
            made |= {"range": fitted} if fitted else {}
            made["law"] = law if law is not None else engine.get("pieces", [])
        if engine.get("source") not in (None, self.source):
            made["source"] = engine["source"]
        return made

    # -- pipelines -----------------------------------------------------------------------------------------------------

    def _pipeline(self, pipeline: Mapping[str, Any]) -> Json:
        operators = any(pipeline.get(key) for key in ("knobs", "space", "evaluator"))
        stages = {name: self._stage(name, one, is_operator=operators) for name, one in pipeline["nodes"].items()}
        made: Json = {"stages": stages}
        quality = pipeline.get("quality") or {}
        rest = _without(pipeline, "nodes", "quality")
        made |= {key: one for key, one in rest.items() if one not in (None, {}, [])}
        made |= {"quality": quality["rule"]} if quality.get("rule", "product") != "product" else {}
        made |= {key: quality[key] for key in ("weights", "paths") if quality.get(key)}
        return made

    def _stage(self, name: str, node: Mapping[str, Any], *, is_operator: bool) -> Json:
        made: Json = {key: node[key] for key in ("reads", "share_law", "needs", "model") if node.get(key)}
        if node.get("device") is not None:
            made["resource"] = node["device"]
        if node.get("task") is not None and (is_operator or node["task"] != name):
            made["task"] = node["task"]
        if node.get("outcomes") is not None:
            outcomes = node["outcomes"]
            made["outcomes"] = list(outcomes["measured"]) if outcomes.get("measured") else outcomes["share"]
        if node.get("calls"):
            made["calls"] = [
                {key: call[key] for key in ("api", "where")}
                | {f"tokens_{key}": one for key, one in (call.get("tokens") or {}).items()}
                for call in node["calls"]
            ]
        if node.get("batches") is not None:
            made["batches"] = self._columns(self.given["tables"][node["batches"]], {one: one for one in STATISTICS})
        return made


def _no_file(why: str, remedy: str) -> InputError:
    """What can be planned with, and yet be in no file."""
    return InputError.one(file="profile", why=f"what a profile file can say, which is not {why}", remedy=remedy)


def _zoned(machine: str, zones: dict[str | None, Json]) -> Json:
    """The prices of a machine type: its own, or those of its zones, as a list where they are alike."""
    if None in zones:
        if len(zones) > 1:
            raise _no_file(f"some prices of {machine} are in a zone, and others are not", "Name a zone of each.")
        return zones[None]
    alike = {json.dumps(one, sort_keys=True) for one in zones.values()}
    if len(alike) == 1 and not any("hosts" in one or "hosts" in one.get("spot", {}) for one in zones.values()):
        return {"zones": list(zones), **next(iter(zones.values()))}
    return {"zones": zones}


def _without(said: Mapping[str, Any], *keys: str) -> Json:
    return {key: one for key, one in said.items() if key not in keys}
