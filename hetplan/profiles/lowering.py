"""From a profile as a person writes it (`profile_file.py`) to the document that is planned with (`profile.py`).

What is said once is put where it counts: prices of a machine type become offers, one for each way to buy and zone; what
all runs of a model share goes to each; columns become tables, laws engines. Every part remembers where it was written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticCustomError

from hetplan.errors import Fault, InputError
from hetplan.profiles.columns import RATES, STATISTICS, TIMES
from hetplan.profiles.fields import ID, money_text, parse_money
from hetplan.profiles.json_path import closest, json_path, shortened
from hetplan.profiles.places import FileOf, Places, Steps

__all__ = [
    "AS_THEY_ARE",
    "ENGINE_KEYS",
    "LAW_KEYS",
    "OF_MODEL",
    "RUN_KEYS",
    "SPEEDS",
    "S_A_DAY",
    "TABLE_KEYS",
    "Lowered",
    "batch_rate",
    "joined",
    "lower",
    "offer_id",
    "stated_law",
    "stated_runs",
]

Json = dict[str, Any]

S_A_DAY = 86_400.0
AS_THEY_ARE = ("metrics", "reference", "tiers", "zones", "links", "apis", "extensions")
"""Sections that are planned with as they are written."""
RUN_KEYS = {"at": "at", "load_s": "load_s", "needs": "needs", "price_per_hour": "price_per_hour"}
"""Keys of a run in the file, and what they are called where it is planned with."""
TABLE_KEYS = ("samples", "outside", "given", "interval", "points")
ENGINE_KEYS = {
    "kv_tokens": "kv_tokens", "kv_error": "kv_error", "kv_bytes_per_token": "kv_bytes_per_token",
    "context_tokens": "context_tokens", "max_tokens": "most_tokens", "max_seqs": "most_seqs", "tensor": "tensor",
    "pipeline": "pipeline", "precision": "precision", "role": "role", "schedule": "schedule",
    "reserves_kv": "reserves", "request_ms": "request_ms", "overlap": "overlap",
}  # fmt: skip
LAW_KEYS = ("basis", "error_mean", "fit_error", "range")
"""What is said of a law beside its numbers."""
SPEEDS = ("law", *TIMES.values(), *RATES.values())
"""Keys of which a run has some: how fast it is. All of a run are of one measurement."""
OF_ONE_SPEED = ("max_qps", "points", "samples", "interval")
"""Keys that say more of one measurement: another one of the same model has its own."""
OF_MODEL = frozenset({"task", "family", "quality", "quality_source", "artifact", "knobs", "runs"})


@dataclass
class Lowered:
    """What is planned with, where each part of it was written, and what cannot be put so."""

    document: Json = field(default_factory=dict)
    written: dict[Steps, Steps] = field(default_factory=dict)
    faults: list[tuple[Steps, str, str, str]] = field(default_factory=list)
    """Places in the file, values, why they are wrong, what to do."""

    @property
    def places(self) -> Places:
        """Where each part was written."""
        return Places(self.written)

    def faults_in(self, file_of: FileOf) -> Iterator[Fault]:
        """The faults, each with its file."""
        for steps, value, why, remedy in self.faults:
            yield Fault(file_of(steps), json_path(steps), value, why, remedy)


def offer_id(machine: str, *, spot: bool = False, zone: str | None = None) -> str:
    """What a price of a machine type is called in plans, and in `limits.offers`.

    >>> offer_id("t4"), offer_id("t4", spot=True), offer_id("t4", zone="east"), offer_id("t4", spot=True, zone="east")
    ('t4', 't4-spot', 't4-east', 't4-east-spot')
    """
    if zone is not None:
        return f"{machine}-{zone}-spot".lower() if spot else f"{machine}-{zone}".lower()
    return f"{machine}-spot".lower() if spot else machine.lower()


def lower(document: Mapping[str, Any]) -> Lowered:
    """The document that is planned with, of one that `ProfileFile` accepts.

    >>> said = {"machines": {"t4": {"price_per_hour": 0.526, "spot": {"price_per_hour": 0.19, "stock": 8}}},
    ...         "models": {"net": {"batch": [1, 8], "runs": {"t4": {"mean_ms": [6, 24]}}}}}
    >>> found = lower(said).document
    >>> list(found["offers"]), found["variants"]["net"]["runs"], found["tables"]["net-t4"]["mean"]
    (['t4', 't4-spot'], [{'hardware': 't4', 'latency': 'net-t4'}], [6, 24])
    """
    return _Lowering(document).result()


def stated_runs(document: Mapping[str, Any], model: str) -> list[tuple[str, Json]]:
    """The runs of a model, in the order of its runs where it is planned with: of each its machine and all that is said.

    >>> said = {"models": {"net": {"batch": [1], "load_s": 2, "runs": {"t4": {"mean_ms": [6]}}}}}
    >>> stated_runs(said, "net")
    [('t4', {'batch': [1], 'load_s': 2, 'mean_ms': [6]})]
    """
    runs = _in_order(_Lowering(document).runs_of(model, document["models"][model]))
    return [(machine, one.said) for machine, one in runs]


class _Lowering:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self.said = document
        self.made = Lowered()
        out = self.made.document
        if "format" in document:
            out["format"] = document["format"]
        self.currency = document.get("currency")
        self.source = self._sources()
        for section in AS_THEY_ARE:
            if section in document:
                out[section] = document[section]

    def result(self) -> Lowered:
        """All of it."""
        if "machines" in self.said:
            self._machines(self.said["machines"])
        if "models" in self.said:
            self._models(self.said["models"])
        if "pipelines" in self.said:
            self._pipelines(self.said["pipelines"])
        self._apis()
        return self.made

    def _fault(self, steps: Steps, value: object, why: str, remedy: str) -> None:
        self.made.faults.append((steps, shortened(value) if value != "" else "", why, remedy))

    def _sources(self) -> str | None:
        """The source of what names none; the sources are as they are planned with."""
        source = self.said.get("source")
        if isinstance(source, Mapping):
            name = str(source.get("name", "source"))
            self.made.document["sources"] = {name: {key: one for key, one in source.items() if key != "name"}}
            self.made.written["sources", name.lower()] = ("source",)
            return name
        if "sources" in self.said:
            self.made.document["sources"] = self.said["sources"]
        return None

    def _apis(self) -> None:
        if self.currency is not None and "apis" in self.said:
            apis = {name: {"currency": self.currency, **one} for name, one in self.said["apis"].items()}
            self.made.document["apis"] = apis

    # -- machines ------------------------------------------------------------------------------------------------------

    def _machines(self, machines: Mapping[str, Any]) -> None:
        out, written = self.made.document, self.made.written
        out["hardware"] = {}
        for name, said in machines.items():
            at: Steps = ("machines", name)
            kept = ("gpu_type", "tier", "relative_time", "startup_s", "provides")
            out["hardware"][name] = {"kind": _kind(said), **{key: said[key] for key in kept if key in said}}
            written["hardware", name.lower()] = at
            zones = said.get("zones", ())
            if not zones:
                self._prices(name, said, said.get("spot"), (at, at), None)
            for number, zone in enumerate(zones):
                differs = zones[zone] if isinstance(zones, Mapping) else {}
                inside = (*at, "zones", zone) if isinstance(zones, Mapping) else (*at, "zones", number)
                spot = said.get("spot")
                if "spot" in differs:
                    spot = None if differs["spot"] is None else {**(spot or {}), **differs["spot"]}
                self._prices(name, {**said, **differs}, spot, (at, inside), zone)

    def _prices(
        self, machine: str, said: Mapping[str, Any], spot: Mapping[str, Any] | None, at: tuple[Steps, Steps],
        zone: str | None,
    ) -> None:  # fmt: skip
        """The offers of a machine type in one zone."""
        shared = {"currency": self.currency} if self.currency is not None else {}
        shared |= {"per": said["per"]} if said.get("per") is not None else {}
        shared |= {"zone": zone} if zone is not None else {}
        own: Mapping[str, Any] = {}
        here = at[1] if zone is not None and not isinstance(at[1][-1], int) else at[0]
        if zone is not None and here is at[1]:
            zones: Any = self.said["machines"][machine]["zones"]
            own = zones[zone]
        if said.get("price_per_hour") is not None:
            offer = {"hardware": machine, "price_per_hour": _money(said["price_per_hour"]), **shared}
            if "stock" in said:
                offer["stock"] = said["stock"]
            if said.get("reserved") is not None:
                offer["commit"] = _commit(said["reserved"])
            name = offer_id(machine, zone=zone)
            self._offer(name, offer, here)
            for key, called in (("price_per_hour", "price_per_hour"), ("reserved", "commit"), ("per", "per")):
                self.made.written["offers", name, called] = (*(here if key in own else at[0]), key)
            self.made.written["offers", name, "commit", "term_s"] = (
                *self.made.written["offers", name, "commit"], "term_days",
            )  # fmt: skip
            self._hosts(said.get("hosts", ()), name, here)
        if spot is not None:
            offer = {"hardware": machine, **shared}
            if spot.get("price_per_hour") is not None:
                offer["price_per_hour"] = _money(spot["price_per_hour"])
            offer |= {"stock": spot["stock"]} if "stock" in spot else {}
            offer["interruptions_per_hour"] = spot.get("interruptions_per_hour", 0.0)
            name = offer_id(machine, spot=True, zone=zone)
            self._offer(name, offer, (*here, "spot"))
            self._hosts(spot.get("hosts", ()), name, (*here, "spot"))

    def _offer(self, name: str, offer: Json, at: Steps) -> None:
        offers = self.made.document.setdefault("offers", {})
        if name in offers:
            other = offers[name]["hardware"]
            why = f"a price of {offer['hardware']} and one of {other} would both be called {name}"
            self._fault(at, "", why, "Rename one of these machine types, or a zone.")
        elif ID.match(name) is None:
            why = f"its price is called {name}, and an id has 63 letters at most"
            self._fault(at, "", why, "Give the machine type, or its zone, a shorter name.")
        else:
            offers[name] = offer
            self.made.written["offers", name] = at
            self.made.written["offers", name, "hardware"] = self.made.written["offers", name, "zone"] = at
            for key in ("price_per_hour", "stock", "interruptions_per_hour"):
                self.made.written["offers", name, key] = (*at, key)

    def _hosts(self, names: Sequence[str], offer: str, at: Steps) -> None:
        hosts = self.made.document.setdefault("hosts", {}) if names else {}
        for number, name in enumerate(names):
            place = (*at, "hosts", number)
            if name.lower() in (other.lower() for other in hosts):
                why = f"a second machine of the name {name!r}"
                self._fault(place, name, why, "Rename one of them.")
                continue
            hosts[name] = {"offer": offer}
            self.made.written["hosts", name.lower()] = place

    # -- models --------------------------------------------------------------------------------------------------------

    def _models(self, models: Mapping[str, Any]) -> None:
        out, written = self.made.document, self.made.written
        out["tasks"], out["variants"] = {}, {}
        runs: dict[str, list[tuple[str, _Stated]]] = {}
        for name, said in models.items():
            runs[name] = _in_order(self.runs_of(name, said))
        metrics = _metrics(models)
        ids = _table_ids([(name, machine, one.number) for name, several in runs.items() for machine, one in several])
        for name, said in models.items():
            at: Steps = ("models", name)
            task = said.get("task") or name
            made: Json = {"task": task, **{key: said[key] for key in ("family", "artifact", "knobs") if said.get(key)}}
            if ("tasks", task.lower()) not in written:
                metric = metrics.get(task.lower())
                out["tasks"][task] = {"metric": metric} if metric is not None else {}
                written["tasks", task.lower()] = (*at, "task")
            written["variants", name.lower()] = at
            if said.get("quality") is not None:
                made["quality"] = self._quality(said, name, task, metrics.get(task.lower()))
            made["runs"] = [
                self._run(name, machine, one, number, ids[name, machine, one.number])
                for number, (machine, one) in enumerate(runs[name])
            ]
            out["variants"][name] = made

    def _quality(self, said: Mapping[str, Any], model: str, task: str, of_task: str | None) -> Json:
        quality, metric, at = said["quality"], None, ("models", model)
        if isinstance(quality, Mapping):
            ((metric, quality),) = quality.items()
            self.made.written["variants", model.lower(), "quality", "value"] = (*at, "quality", metric)
        else:
            self.made.written["variants", model.lower(), "quality", "value"] = (*at, "quality")
        self.made.written["variants", model.lower(), "quality", "source"] = (*at, "quality_source")
        if (metric or "").lower() != (of_task or "").lower():
            why = f"one metric for all models of task {task}, and another one says {of_task}"
            self._fault((*at, "quality"), metric or quality, why, 'Write "quality": {METRIC: NUMBER} at each, alike.')
        if metric is not None:
            self.made.document.setdefault("metrics", {})
            if metric.lower() not in map(str.lower, self.made.document["metrics"]):
                self.made.document["metrics"] = {**self.made.document["metrics"], metric: {}}
                self.made.written.setdefault(("metrics", metric.lower()), (*at, "quality"))
        source = said.get("quality_source", self.source)
        return {"value": quality, **({"source": source} if source is not None else {})}

    def runs_of(self, name: str, said: Mapping[str, Any]) -> Iterator[tuple[str, _Stated]]:
        """The runs of a model, each with all that is said of it and where."""
        at: Steps = ("models", name)
        shared = {key: one for key, one in said.items() if key not in OF_MODEL and one is not None}
        runs = said.get("runs")
        if runs is None and isinstance(shared.get("law"), str):
            runs = self._where_the_law_holds(shared, at)
        own = {
            (machine, number): one
            for machine, several in (runs or {}).items()
            for number, one in enumerate(several if isinstance(several, list | tuple) else [several])
        }
        for (machine, number), one in own.items():
            inside: Steps = (*at, "runs", machine)
            if isinstance((runs or {})[machine], list | tuple):
                inside = (*inside, number)
            stated = _Stated(number, inside)
            stated.take(shared, at)
            faults = len(self.made.faults)
            for other_at, other in reversed(list(self._likes(runs or {}, machine, one, inside))):
                stated.take(other, other_at)
            if len(self.made.faults) > faults and not _is_fast(stated.said):
                continue  # what it is like says how fast it is, and has its own fault
            if not isinstance(stated.said.get("law"), str) or self._resolve_law(stated, machine):
                yield machine, stated

    def _likes(
        self, runs: Mapping[str, Any], machine: str, one: Mapping[str, Any], at: Steps
    ) -> Iterator[tuple[Steps, Mapping[str, Any]]]:
        """A run, then the one that it is like, and so on."""
        seen = {machine.lower()}
        while True:
            yield at, {key: value for key, value in one.items() if key != "like" and value is not None}
            like = one.get("like")
            if like is None:
                return
            found = next((key for key in runs if key.lower() == str(like).lower()), None)
            if found is None or found.lower() in seen or isinstance(runs[found], list | tuple):
                why = "another machine type of this model, with one run"
                near = closest(like, [key for key in runs if key.lower() not in seen and key is not found])
                self._fault((*at, "like"), like, why, f"{near}Name one, or say here what was measured.")
                return
            seen.add(found.lower())
            at, one = (*at[:3], found), runs[found]

    def _run(self, model: str, machine: str, one: _Stated, number: int, table: str) -> Json:
        written, said = self.made.written, one.said
        at: Steps = ("variants", model.lower(), "runs", number)
        written[at] = one.at
        written[(*at, "hardware")] = one.at
        run: Json = {"hardware": machine}
        for key, called in RUN_KEYS.items():
            if key in said:
                run[called] = _money(said[key]) if key == "price_per_hour" else said[key]
                written[(*at, called)] = (*one.place(key), key)
        columns = {**TIMES} if any(key in said for key in TIMES.values()) else RATES
        if "law" in said:
            run["engine"] = table
            self._engine(table, one)
        elif any(key in said for key in columns.values()):
            kind = "latency" if columns is not RATES else "rate"
            run[kind] = table
            self._table(table, "latency_ms" if kind == "latency" else "requests_per_s", said, one, columns)
            if "at" not in said and list(made := _axes(said)) == ["batch"] and len(made["batch"]) == 1:
                run["at"] = {"batch": made["batch"][0]}
                written[(*at, "at")] = (*one.place("batch"), "batch")
                if (rate := batch_rate(said)) is not None:
                    run["saturation_qps"] = rate
                    written[(*at, "saturation_qps")] = one.at
        for key in ("latency", "rate", "engine"):
            written[(*at, key)] = one.at
        if "max_qps" in said:
            run["saturation_qps"] = said["max_qps"]
            written[(*at, "saturation_qps")] = (*one.place("max_qps"), "max_qps")
        for key, quantity in (("bytes_out", "bytes_out"), ("slowdown", "slowdown")):
            if key in said:
                run[key] = _short(f"{table}-{key.replace('_', '-')}")
                inside = _Stated(0, (*one.place(key), key))
                inside.take(said[key], inside.at)
                self._table(run[key], quantity, said[key], inside, {name: name for name in STATISTICS})
        return run

    def _table(
        self, name: str, quantity: str, said: Mapping[str, Any], one: _Stated, columns: Mapping[str, str]
    ) -> None:
        written, at = self.made.written, ("tables", name)
        table: Json = {"quantity": quantity, "axes": _axes(said)}
        written[at] = one.at
        if said.get("batch") is not None:
            written[(*at, "axes", "batch")] = (*one.place("batch"), "batch")
            written[(*at, "axes")] = one.place("batch")
        else:
            written[(*at, "axes")] = (*one.place("axes"), "axes")
        for statistic, key in columns.items():
            written[(*at, statistic)] = (*one.place(key), key)
            if key in said:
                table[statistic] = said[key]
        for key in TABLE_KEYS:
            if key in said:
                table[key] = said[key]
                written[(*at, key)] = (*one.place(key), key)
        source = said.get("source", self.source)
        if source is not None:
            table["source"] = source
            written[(*at, "source")] = (*one.place("source"), "source")
        self.made.document.setdefault("tables", {})[name] = table

    # -- language models -----------------------------------------------------------------------------------------------

    def _engine(self, name: str, one: _Stated) -> None:
        said, written, at = one.said, self.made.written, ("engines", name)
        law = said["law"]
        made: Json = {called: said[key] for key, called in ENGINE_KEYS.items() if key in said}
        if made.get("role") == "both":
            made["role"] = "mixed"
        written[at] = one.at
        for key, called in ENGINE_KEYS.items():
            written[(*at, called)] = (*one.place(key), key)
        if isinstance(law, Mapping):
            about = {key: said[key] for key in LAW_KEYS if key in said}
            made["law"] = {"form": "iteration/2", **law, **about}
            for key in LAW_KEYS:
                written[(*at, "law", key)] = (*one.place(key), key)
        else:
            made["pieces"] = law if isinstance(law, list | tuple) else []
            fitted = dict(said.get("range", {}))
            fitted |= {"error": said["error_mean"]} if "error_mean" in said else {}
            made |= {"fitted": fitted} if fitted else {}
            written[(*at, "fitted")] = (*one.place("range"), "range")
            written[(*at, "fitted", "error")] = (*one.place("error_mean"), "error_mean")
            for key in ("basis", "fit_error"):
                if key in said:
                    why = "it is said of the nine numbers of a law, and these are pieces"
                    self._fault((*one.place(key), key), said[key], why, "Leave it out.")
        written[(*at, "law")] = written[(*at, "pieces")] = (*one.place("law"), "law")
        source = said.get("source", self.source)
        if source is not None:
            made["source"] = source
            written[(*at, "source")] = (*one.place("source"), "source")
        self.made.document.setdefault("engines", {})[name] = made

    def _gpus_of(self, machine: str, said: Mapping[str, Any]) -> tuple[str | None, int]:
        """The type of GPU of a machine type, and how many of them one replica takes."""
        machines: Mapping[str, Json] = self.said.get("machines", {})
        about: Json = next((one for key, one in machines.items() if key.lower() == machine.lower()), {})
        provided = about.get("provides", {}).get("gpu", 1)
        count = said.get("tensor", 0) * said.get("pipeline", 1) or int(provided) or 1
        return about.get("gpu_type"), count

    def _where_the_law_holds(self, shared: Mapping[str, Any], at: Steps) -> Json:
        """Machine types of whose GPUs the catalogue has this law, with room for the model on them."""
        from hetplan.profiles.catalogue import engine_of, laws_on

        found: Json = {}
        for machine in self.said.get("machines", {}):
            gpu, count = self._gpus_of(machine, shared)
            known = laws_on(shared["law"], gpu, count) if gpu is not None else None
            if known is not None and ("kv_tokens" in shared or "kv_tokens" in engine_of(known)):
                found[machine] = {"law": known.name}
        if not found:
            typed = any("gpu_type" in one for one in self.said.get("machines", {}).values())
            why = "a law of the catalogue that holds on a machine type of this file, with room for the model"
            remedy = "`hetplan list laws` shows all; or say under runs what was measured."
            if not typed:
                remedy = 'Say which GPUs machines have: "gpu_type": "h100".'
            self._fault((*at, "law"), shared["law"], why, remedy)
        return found

    def _resolve_law(self, stated: _Stated, machine: str) -> bool:
        """Put the numbers of a law of the catalogue in place of its name, and what follows; whether there is one."""
        from hetplan.profiles.catalogue import contradictions, engine_of, law_named, laws_on

        name, at = stated.said["law"], (*stated.place("law"), "law")
        if name.count("/") < 4:
            gpu, count = self._gpus_of(machine, stated.said)
            if gpu is None:
                why = f"a law for GPUs of {machine}, and nothing says which these are"
                remedy = f'Write "gpu_type": "h100" under machines.{machine}, or {name}/GPUx1 here.'
                self._fault(at, name, why, remedy)
                return False
            found = laws_on(name, gpu, count)
            name = found.name if found is not None else f"{name}/{gpu}x{count}"
        try:
            known = law_named(name, file="", path=json_path(at))
        except InputError as error:
            for fault in error.faults:
                self.made.faults.append((at, fault.value, fault.why, fault.remedy))
            return False
        held = engine_of(known)
        gpu, _ = self._gpus_of(machine, stated.said)
        for key, why, remedy in contradictions(stated.said, held, known, gpu):
            self._fault((*stated.place(key), key), stated.said[key], why, remedy)
        law = stated_law(held["law"])
        made = {key: held[called] for key, called in ENGINE_KEYS.items() if called in held} | law
        if "kv_tokens" in stated.said:
            made.pop("kv_error", None)
        elif "kv_tokens" not in made:
            why = f"the room for KV: none is left beside the weights on {known.identity['gpus']} of these GPUs"
            self._fault(stated.at, "", why, "Write kv_tokens, as it was printed.")
            return False
        stated.said = {**made, **stated.said, "law": law["law"]}
        return True

    # -- pipelines -----------------------------------------------------------------------------------------------------

    def _pipelines(self, pipelines: Mapping[str, Any]) -> None:
        out = self.made.document
        out["pipelines"] = {name: self._pipeline(name, one) for name, one in pipelines.items()}

    def _pipeline(self, name: str, said: Mapping[str, Any]) -> Json:
        written, at = self.made.written, ("pipelines", name.lower())
        whole = ("pipelines", name)
        edges = said.get("edges", ())
        stages = dict(said.get("stages", {}))
        for edge in edges:
            for end in ("from", "to"):
                if edge[end].lower() not in map(str.lower, stages) and not said.get("stages"):
                    stages[edge[end]] = {}
        kept = ("edges", "knobs", "space", "metric", "share_grid", "evaluator", "strata")
        made: Json = {"nodes": {}, **{key: said[key] for key in kept if said.get(key) is not None}}
        quality = {"rule": said["quality"]} if "quality" in said else {}
        quality |= {key: said[key] for key in ("weights", "paths") if key in said}
        if quality:
            made["quality"] = quality
        written[(*at, "quality", "rule")] = (*whole, "quality")
        for key in ("weights", "paths"):
            written[(*at, "quality", key)] = (*whole, key)
        written[at] = whole
        written[(*at, "nodes")] = (*whole, "stages")
        operators = any(said.get(key) for key in ("knobs", "space", "evaluator"))
        for stage, about in stages.items():
            made["nodes"][stage] = self._stage(name, stage, about, is_operator=operators)
        return made

    def _stage(self, pipeline: str, name: str, said: Mapping[str, Any], *, is_operator: bool) -> Json:
        written = self.made.written
        at: Steps = ("pipelines", pipeline.lower(), "nodes", name.lower())
        whole: Steps = ("pipelines", pipeline, "stages", name)
        kept = ("reads", "share_law", "needs", "model")
        made: Json = {key: said[key] for key in kept if said.get(key) is not None}
        if said.get("resource") is not None:
            made["device"] = said["resource"]
        if said.get("task") is not None:
            made["task"] = said["task"]
        elif "device" not in made and is_operator:
            made["device"] = "gpu" if "gpu" in map(_kind, self.said.get("machines", {}).values()) else "cpu"
        elif "device" not in made:
            made["task"] = name
        written[at] = whole
        written[(*at, "device")] = (*whole, "resource")
        outcomes = said.get("outcomes")
        if outcomes is not None:
            how = {"share": outcomes} if isinstance(outcomes, Mapping) else {"measured": list(outcomes)}
            made["outcomes"] = {**how, "source": self.source} if self.source is not None else how
            written[(*at, "outcomes", "share")] = written[(*at, "outcomes", "measured")] = (*whole, "outcomes")
            written[(*at, "outcomes", "source")] = (*whole, "outcomes")
        if said.get("calls"):
            made["calls"] = [_call(one) for one in said["calls"]]
            for number, _ in enumerate(said["calls"]):
                for key in ("in", "out"):
                    inside = (*whole, "calls", number, f"tokens_{key}")
                    written[(*at, "calls", number, "tokens", key)] = inside
        if said.get("batches") is not None:
            made["batches"] = _short(f"{pipeline}-{name}-batches".lower())
            stated = _Stated(0, (*whole, "batches"))
            stated.take(said["batches"], stated.at)
            self._table(made["batches"], "latency_ms", said["batches"], stated, {one: one for one in STATISTICS})
        return made


@dataclass
class _Stated:
    """All that is said of one run, and where each key of it is said."""

    number: int
    at: Steps
    said: Json = field(default_factory=dict)
    places: dict[str, Steps] = field(default_factory=dict)

    def take(self, more: Mapping[str, Any], at: Steps) -> None:
        """Let what is said there win over what was said before."""
        of_like = {key for key in OF_ONE_SPEED if len(self.places.get(key, ())) > 2}  # not said at the model, of all
        held = {key: one for key, one in self.said.items() if key not in of_like or not _is_fast(more)}
        self.said = joined(held, more)
        self.places.update(dict.fromkeys(more, at))

    def place(self, key: str) -> Steps:
        """Where a key is said; where it would be, if it is not."""
        return self.places.get(key, self.at)


def _in_order(runs: Iterable[tuple[str, _Stated]]) -> list[tuple[str, _Stated]]:
    """Sorted, as a list of what a file has by name: no digest hangs on the order of keys."""
    return sorted(runs, key=lambda one: (one[0].lower(), one[1].number))


def _metrics(models: Mapping[str, Any]) -> dict[str, str]:
    """The metric of each task that has one: that of the first of its models by name, in whatever order they are.

    >>> _metrics({"b": {"task": "Cars", "quality": {"top1": 0.7}}, "a": {"task": "cars", "quality": 0.6}})
    {'cars': 'top1'}
    """
    found: dict[str, str] = {}
    for name, said in sorted(models.items(), key=lambda one: one[0].lower()):
        if isinstance(quality := said.get("quality"), Mapping):
            found.setdefault((said.get("task") or name).lower(), *quality)
    return found


def stated_law(law: Mapping[str, Any]) -> Json:
    """A law as it is planned with, as a run of a file says it: its numbers, and what is known of them beside it."""
    about = {key: law[key] for key in LAW_KEYS if law.get(key) not in (None, {})}
    return about | {"law": {key: one for key, one in law.items() if key not in (*LAW_KEYS, "form") and one is not None}}


def _is_fast(said: Mapping[str, Any]) -> bool:
    return any(key in SPEEDS for key in said)


def joined(held: Mapping[str, Any], more: Mapping[str, Any]) -> Json:
    """What was said of a run, with what is said nearer to it, which wins.

    One that states how fast it is inherits no time, rate or law: a p99 beside the mean of another measurement is wrong.

    >>> joined({"batch": [1], "mean_ms": [10], "p99_ms": [12], "load_s": 9}, {"mean_ms": [100]})
    {'batch': [1], 'load_s': 9, 'mean_ms': [100]}
    """
    away = {"batch": ("axes",), "axes": ("batch",)}
    gone = {other for key in more for other in away.get(key, ())} | set(SPEEDS if _is_fast(more) else ())
    kept = {key: one for key, one in held.items() if key not in gone}
    return kept | {key: one for key, one in more.items() if one is not None}


def _kind(said: Mapping[str, Any]) -> str:
    """A machine type is a GPU if it provides one."""
    has_gpu = said.get("provides", {}).get("gpu") or "gpu_type" in said
    return said.get("kind") or ("gpu" if has_gpu else "cpu")


def _money(value: Any) -> Any:
    """The shortest text of an amount; what is no money stays, so that reading says so."""
    try:
        return money_text(parse_money(value))
    except PydanticCustomError:
        return value


def _commit(reserved: Mapping[str, Any]) -> Json:
    made: Json = {"term_s": reserved["term_days"] * S_A_DAY}
    for key in ("upfront", "price_per_hour"):
        if reserved.get(key) is not None:
            made[key] = _money(reserved[key])
    if reserved.get("discount") is not None:
        made["discount"] = reserved["discount"]
    return made


def _axes(said: Mapping[str, Any]) -> Json:
    return {"batch": said["batch"]} if said.get("batch") is not None else dict(said.get("axes", {}))


def batch_rate(said: Mapping[str, Any]) -> float | None:
    """Queries per second of a run at one batch size, one batch after another; None where no time says it.

    >>> batch_rate({"batch": [8], "mean_ms": [20]})
    400.0
    """
    times = said.get("mean_ms") or said.get("p50_ms")
    if not isinstance(times, list | tuple) or not isinstance(times[0], int | float) or not times[0] > 0:
        return None
    return float(1000.0 * said["batch"][0] / times[0])


def _call(said: Mapping[str, Any]) -> Json:
    tokens = {key: said[f"tokens_{key}"] for key in ("in", "out") if f"tokens_{key}" in said}
    return {key: said[key] for key in ("api", "where")} | ({"tokens": tokens} if tokens else {})


def _short(name: str) -> str:
    """A name that is an id: a long one is cut, with a digest of it in place of the rest."""
    if len(name) <= 63:
        return name
    return f"{name[:50]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _table_ids(runs: Sequence[tuple[str, str, int]]) -> dict[tuple[str, str, int], str]:
    """What the measurements of each run are called: no two alike, in whatever order files list them."""
    found: dict[tuple[str, str, int], str] = {}
    taken: set[str] = set()
    for key in sorted(runs):
        model, machine, number = key
        name = _short(f"{model}-{machine}".lower() + (f"-{number}" if number else ""))
        while name in taken:
            name = _short(f"{name}-x")
        taken.add(name)
        found[key] = name
    return found
