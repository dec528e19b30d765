"""Makes profiles, SLOs and states for the tests of the net, said in the field's words.

A test says machines, models and applications; this file alone knows how the files of the day write them down. With
`tests/face.py` and `tests/hosts_face.py` it is all that changes when the formats do.

>>> wish = files(
...     machines={"t4": machine(0.526), "a10g": machine(1.006)},
...     models={"resnet": model({"t4": {1: 6, 8: 24}, "a10g": {1: 4, 8: 12}})},
...     apps={"images": app("resnet", rate=500, limits={99: 100})},
... )
>>> sorted(wish.machine_types), wish.apps
(['a10g', 't4'], ('images',))
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = [
    "EXAMPLES",
    "FIELDS",
    "PROBLEMS",
    "Files",
    "answered",
    "app",
    "cluster",
    "example",
    "files",
    "in_format_1_0",
    "limits_at",
    "llm_app",
    "llm_model",
    "machine",
    "many_applications",
    "model",
    "pipeline",
    "planned",
    "policy_fleet",
    "random_files",
    "relisted",
    "shipped",
    "shuffled",
    "state_profiles_as_planned",
    "tiny",
]

Json = dict[str, Any]
SHIPPED = Path(__file__).resolve().parents[1] / "examples"

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "pool": ("pool/profile.json", "pool/slo.json"),
    "variants": ("variants/profile.json", "variants/slo.json"),
    "pipeline": ("pipeline/profile.json", "pipeline/slo.json"),
    "policy": ("policy/profile.json", "policy/slo.json"),
    "policy-fewest": ("policy/profile.json", "policy/fewest.slo.json"),
    "llm": ("llm/profile.json", "llm/slo.json"),
    "llm-disaggregated": ("llm-disaggregated/profile.json", "llm-disaggregated/slo.json"),
    "compound": ("compound/profile.json", "compound/slo.json", "compound/measured.json"),
    "compound-rate": ("compound/profile.json", "compound/rate-slo.json", "compound/measured.json"),
    "fleet": ("fleet/profile.json", "fleet/slo.json"),
}
"""Shipped examples by name: profile, SLO and, where one is needed, measurements."""

PROBLEMS = ("pool", "variants", "pipeline", "policy", "llm", "fleet")
"""The problems of which `tiny` and `random_files` make wishes."""


FIELDS: Mapping[str, str] = {
    "cost": "cost_per_hour",
    "most machines": "instances",
    "fewest machines": "instances",
    "stock": "stock",
    "power": "provides",
    "rate": "rate_qps",
    "quality": "quality",
}
"""A requirement -> the name of its field, as a refusal has to name it."""


def limits_at(percentile: float, latency: Mapping[str, float]) -> Json:
    """Limits on latency at another percentile: of each kind of time, the last one.

    >>> limits_at(95, {"p99_ms": 60, "ttft_p99.9_ms": 500})
    {'p95_ms': 60, 'ttft_p95_ms': 500}
    """
    return {re.sub(r"p[\d.]+_ms$", f"p{percentile:.12g}_ms", key): ms for key, ms in latency.items()}


def _percentile(key: str) -> float:
    return float(re.sub(r".*p|_ms$", "", key))


@dataclass(frozen=True)
class Demand:
    """What comes for an application: its rate, limit, share that may be late, sizes, network per hop, stages."""

    rate: float
    limit_ms: float
    late: float
    mix: Mapping[Any, float]
    network_ms: float
    stages: tuple[str, ...]
    then: Mapping[str, Sequence[str]]
    shape: float
    """Of the gaps between arrivals: 1 is a Poisson process."""


@dataclass(frozen=True)
class Files:
    """What one plan is made from, as documents. Every change returns new files; none is made in place."""

    profile: Json
    slo: Json
    state: Json | None = None
    measured: Json | None = None
    problem: str | None = None
    """The problem to ask for by name, where the files leave it open."""

    @property
    def machine_types(self) -> tuple[str, ...]:
        """The machine types of the profile."""
        return tuple(self.profile["hardware"])

    @property
    def apps(self) -> tuple[str, ...]:
        """The applications of the SLO."""
        return tuple(self.slo["apps"])

    def price(self, machine: str, purchase: str = "on demand") -> float:
        """The price of a machine type per hour: "on demand", "spot" or "reserved"."""
        offer = self.profile["offers"][machine + ("-spot" if purchase == "spot" else "")]
        return float((offer["commit"] if purchase == "reserved" else offer)["price_per_hour"])

    @property
    def first_rate(self) -> float:
        """The rate of the first application, in the first period."""
        rate = next(iter(self.slo["apps"].values()))["rate_qps"]
        return float(rate["series"][0] if isinstance(rate, dict) else rate)

    def write(self, folder: Path) -> list[str]:
        """Write the files into a folder; returns their paths as a command takes them."""
        paths = []
        for name in ("profile", "slo"):
            path = folder / f"{name}.json"
            path.write_text(json.dumps(in_format_1_0(getattr(self, name))))
            paths.append(str(path))
        for name in ("state", "measured"):
            document = getattr(self, name)
            if document is not None:
                path = folder / f"{name}.json"
                path.write_text(json.dumps(document))
                paths.append(str(path))
        return paths

    # -- what they say, for a simulator of the tests' own --------------------------------------------------------------

    def times_ms(self, of: str, on: str) -> dict[int, float]:
        """The mean times of a model on a machine type, by batch size."""
        found = {}
        for run in self.profile["variants"][of]["runs"]:
            if run["hardware"] == on:
                table = self.profile["tables"][run["latency"]]
                found.update(zip(table["axes"]["batch"], table["mean"], strict=True))
        return found

    def models(self, of: str) -> list[str]:
        """The models that may serve an application (those that it names, or of its task, good enough), or a stage."""
        said, variants = self.slo["apps"].get(of, {"task": of}), self.profile["variants"]
        of_task = [name for name, one in variants.items() if one["task"] == said.get("task")]
        named = [said["model"]] if "model" in said else said.get("models", of_task)
        least = said.get("quality", {}).get("min", 0.0)
        return [name for name in named if variants[name].get("quality", {}).get("value", 1.0) >= least]

    def most(self, of: str) -> int:
        """The most machines of a type that limits allow."""
        return int(self.slo["limits"]["instances"][of][1])

    def quality(self, of: str) -> float:
        """The quality of a model."""
        return float(self.profile["variants"][of]["quality"]["value"])

    def demand(self, of: str) -> Demand:
        """What comes for an application, and how soon it wants its answer."""
        said = self.slo["apps"][of]
        mix = said.get("mix", {"bins": [[None]], "share": [1.0]})
        stages, then = ("",), {}
        if "pipeline" in said:
            made = self.profile["pipelines"][said["pipeline"]]
            behind = {edge["to"] for edge in made["edges"]}
            stages = tuple(sorted(made["nodes"], key=lambda name: name in behind))
            for edge in made["edges"]:
                then.setdefault(edge["from"], []).append(edge["to"])
        percentile, limit_ms = next(iter(self.limits_ms(of).items()))
        return Demand(
            said["rate_qps"], limit_ms, 1.0 - percentile / 100.0,
            {one[0]: share for one, share in zip(mix["bins"], mix["share"], strict=True)},
            said.get("network_ms_per_hop", 0.0), stages, then, said.get("arrivals", {}).get("shape", 1.0),
        )  # fmt: skip

    def limits_ms(self, of: str) -> dict[float, float]:
        """The limits on the latency of an application: percentile -> milliseconds."""
        return {_percentile(key): ms for key, ms in self.slo["apps"][of]["latency"].items()}

    def fanout(self, of: str) -> dict[str, float]:
        """Queries of each stage that follows, per query of a stage."""
        return {
            edge["to"]: edge.get("fanout", 1.0)
            for made in self.profile.get("pipelines", {}).values()
            for edge in made["edges"]
            if edge["from"] == of
        }

    # -- limits of the whole -------------------------------------------------------------------------------------------

    def limited(
        self,
        *,
        cost: float | None = None,
        provided: Mapping[str, float] | None = None,
        taken: Mapping[str, float] | None = None,
        counts: Mapping[str, tuple[int, int | None]] | None = None,
        spot_share: float | None = None,
        survive_machines: int | None = None,
    ) -> Files:
        """With further limits: money per hour; totals that machines provide, and that models take; machines of a type;
        share of spot.
        """
        slo = deepcopy(self.slo)
        limits = slo.setdefault("limits", {})
        if cost is not None:
            limits["cost_per_hour"] = f"{cost:.9g}"
        if provided:
            limits.setdefault("provides", {}).update(provided)
        if taken:
            limits.setdefault("capacity", {}).update(taken)
        for name, (least, most) in (counts or {}).items():
            limits.setdefault("instances", {})[name] = [least, most]
        if spot_share is not None:
            limits["spot"] = {"max_share": spot_share}
        if survive_machines is not None:
            limits["survive"] = {"machines": survive_machines}
        return replace(self, slo=slo)

    def only(self, *machine_types: str) -> Files:
        """With machines of these types only."""
        return self.limited(counts={name: (0, 0) for name in self.machine_types if name not in machine_types})

    # -- demand and SLO ------------------------------------------------------------------------------------------------

    def rated(self, rate: float | str | Mapping[str, float], of: str | None = None) -> Files:
        """With another rate ("max": the most that there is) of one application, or of all."""
        slo = deepcopy(self.slo)
        for name in [of] if of else slo["apps"]:
            slo["apps"][name]["rate_qps"] = rate
        return replace(self, slo=slo)

    def steady(self) -> Files:
        """With queries that come one by one, in no bursts (a Poisson process)."""
        slo = deepcopy(self.slo)
        for one in slo["apps"].values():
            one.pop("arrivals", None)
        return replace(self, slo=slo)

    def scaled_rates(self, factor: float) -> Files:
        """With every stated rate times a factor."""
        slo = deepcopy(self.slo)
        for one in slo["apps"].values():
            if "rate_qps" in one:
                one["rate_qps"] = _times(one["rate_qps"], factor)
        return replace(self, slo=slo)

    def latency(self, limits: Mapping[float, float], of: str | None = None) -> Files:
        """With other limits on response times: percentile -> milliseconds."""
        slo = deepcopy(self.slo)
        for name in [of] if of else slo["apps"]:
            slo["apps"][name]["latency"] = _latency(limits)
        return replace(self, slo=slo)

    def at_percentile(self, percentile: float) -> Files:
        """With every limit on latency at this percentile."""
        slo = deepcopy(self.slo)
        for one in slo["apps"].values():
            one["latency"] = limits_at(percentile, one.get("latency", {}))
        return replace(self, slo=slo)

    def scaled_limits(self, factor: float) -> Files:
        """With every limit on latency times a factor."""
        slo = deepcopy(self.slo)
        for one in slo["apps"].values():
            one["latency"] = {key: ms * factor for key, ms in one.get("latency", {}).items()}
        return replace(self, slo=slo)

    def networked(self, ms: float) -> Files:
        """With a network that takes so long, there and back, for each step of a query."""
        slo = deepcopy(self.slo)
        for one in slo["apps"].values():
            one["network_ms_per_hop"] = ms
        return replace(self, slo=slo)

    def of_quality(self, least: float) -> Files:
        """With a least quality of every application."""
        slo = deepcopy(self.slo)
        for one in slo["apps"].values():
            one["quality"] = {"min": least}
        return replace(self, slo=slo)

    def rarely_late(self, share: float) -> Files:
        """With a share of the queries of every application that may be late."""
        slo = deepcopy(self.slo)
        for one in slo["apps"].values():
            one["latency"] = limits_at(100.0 * (1.0 - share), one.get("latency", {}))
        return replace(self, slo=slo)

    def asked_as(self, problem: str | None) -> Files:
        """The same files for another problem (None: the one that they ask)."""
        return replace(self, problem=problem)

    def aiming(self, *objective: str) -> Files:
        """With an objective, as in "min cost" or "max quality", in order of importance."""
        slo = deepcopy(self.slo)
        slo["objective"] = ["min machines" if one == "min servers" else one for one in objective]
        return replace(self, slo=slo)

    # -- machines and measurements -------------------------------------------------------------------------------------

    def scaled_prices(self, factor: float) -> Files:
        """With every price, and the limit on cost, times a factor."""
        profile, slo = deepcopy(self.profile), deepcopy(self.slo)
        for document in (profile, slo):
            _scale_keys(document, ("price_per_hour", "cost_per_hour"), factor)
        return replace(self, profile=profile, slo=slo)

    def scaled_qualities(self, factor: float) -> Files:
        """With every quality, and what is asked of it, times a factor."""
        profile, slo = deepcopy(self.profile), deepcopy(self.slo)
        for one in profile["variants"].values():
            if "quality" in one:
                one["quality"]["value"] *= factor
        for one in slo["apps"].values():
            if "quality" in one:
                one["quality"] = _times(one["quality"], factor)
        return replace(self, profile=profile, slo=slo)

    def scaled_times(self, factor: float) -> Files:
        """With every service time times a factor."""
        profile = deepcopy(self.profile)
        for table in profile.get("tables", {}).values():
            if table.get("quantity", "latency_ms") == "latency_ms":
                for key in ("mean", "std", "p50", "p90", "p95", "p99", "p99.9", "max"):
                    if key in table:
                        table[key] = _times(table[key], factor)
        for engine in profile.get("engines", {}).values():
            for piece in engine.get("pieces", ()):
                for key in piece:
                    piece[key] *= factor
        return replace(self, profile=profile)

    def fitted_within(self, error: float) -> Files:
        """With laws of engines that may be off by this share."""
        profile = deepcopy(self.profile)
        for engine in profile["engines"].values():
            engine["fitted"] = {"error": error}
        return replace(self, profile=profile)

    def provides(self, amounts: Mapping[str, float], of: str | None = None) -> Files:
        """With further amounts that one machine of a type provides (None: of any type)."""
        profile = deepcopy(self.profile)
        for one in [profile["hardware"][of]] if of else profile["hardware"].values():
            one.setdefault("provides", {}).update(amounts)
        return replace(self, profile=profile)

    def stocked(self, stock: Mapping[str, int]) -> Files:
        """With a stock of each machine type that is named (all its offers)."""
        profile = deepcopy(self.profile)
        for offer in profile["offers"].values():
            if offer["hardware"] in stock:
                offer["stock"] = stock[offer["hardware"]]
        return replace(self, profile=profile)

    def paid_whole(self) -> Files:
        """With machines paid whole at the price of a share of theirs."""
        profile = deepcopy(self.profile)
        for offer in profile["offers"].values():
            offer.pop("per", None)
        return replace(self, profile=profile)

    def priced(self, prices: Mapping[str, float]) -> Files:
        """Prices per hour for machine types that have none."""
        made = deepcopy(self)
        for name, price in prices.items():
            made.profile.setdefault("offers", {})[f"{name}"] = {"hardware": name, "price_per_hour": f"{price:.9g}"}
        return made

    def serving(self, apps: Mapping[str, Json]) -> Files:
        """The same machines and models with other applications, at the least cost."""
        slo = {"format": "hetplan/slo/1.0", "objective": ["min cost"], "apps": dict(apps)}
        return replace(self, slo=deepcopy(slo))

    def with_copy(self, of: str, name: str, price_factor: float = 1.0) -> Files:
        """With a second machine type just like another one, at its price times a factor."""
        profile = deepcopy(self.profile)
        profile["hardware"][name] = deepcopy(profile["hardware"][of])
        for offer_name, offer in list(profile["offers"].items()):
            if offer["hardware"] == of:
                twin = deepcopy(offer) | {"hardware": name}
                _scale_keys(twin, ("price_per_hour",), price_factor)
                profile["offers"][offer_name.replace(of, name, 1)] = twin
        for one in profile["variants"].values():
            one["runs"] += [deepcopy(run) | {"hardware": name} for run in one["runs"] if run["hardware"] == of]
        slo = deepcopy(self.slo)
        counts = slo.get("limits", {}).get("instances", {})
        if of in counts:
            counts[name] = list(counts[of])
        return replace(self, profile=profile, slo=slo)


def shipped(path: Path) -> Any:
    """A JSON file, of an example or made by a command; of a profile the sections that are planned with."""
    document = json.loads(path.read_text())
    return planned(document) if "hetplan/profile/" in str(document.get("format")) else document


def planned(document: Json) -> Json:
    """A profile in the sections that are planned with, of a file's document."""
    from hetplan.profiles.lowering import lower

    return deepcopy(lower(document).document)


def state_profiles_as_planned() -> None:
    """Let tests state profiles in the sections that are planned with: the reader is handed what a file would say."""
    from hetplan.profiles import load
    from hetplan.profiles.profile import Profile

    read = load._document

    def document(source: Any, kind: str, name: str, model_type: Any) -> Any:
        found = read(source, kind, name, model_type)
        if isinstance(source, Profile):  # no file: it is planned with as it is
            _renamed.clear()
            return found
        return in_format_1_0(found)

    load._document = document


_renamed: dict[str, str] = {}
"""What the prices of the last profile are called in a file, where a test called them otherwise."""


def in_format_1_0(document: Any) -> Any:
    """A profile of sections that are planned with, as a file has it; an SLO and a state name its prices as it does.

    Many tests say hardware, offers and tables. Two prices of one machine type in no zone are put into zones, and prices
    keep no names of their own: those of a file are `MACHINE`, `MACHINE-spot`, `MACHINE-ZONE`.
    """
    said = str(document.get("format")) if isinstance(document, Mapping) else ""
    if _renamed and said.startswith("hetplan/slo/"):
        return _with_prices_renamed(document)
    if _renamed and said.startswith("hetplan/state/"):
        made = deepcopy(document)
        for worker in made.get("workers", ()):
            if isinstance(worker, dict) and worker.get("offer") in _renamed:
                worker["offer"] = _renamed[worker["offer"]]
        return made
    if not said.startswith("hetplan/profile/"):
        return document
    _renamed.clear()
    if "machines" in document or "models" in document:
        return document
    pipelines = document.get("pipelines")
    nodes = isinstance(pipelines, Mapping) and any("nodes" in one for one in pipelines.values())
    if not nodes and not any(section in document for section in OLD_SECTIONS):
        return document
    from written_profile import renamed_offers, written_profile

    old = {key: one for key, one in deepcopy(dict(document)).items() if key not in ("requires", "$schema")}
    spoilt = _set_aside_spoilt(old)
    _zone_twins(old.get("offers", {}))
    _renamed.update({name: new for name, new in renamed_offers(old).items() if name != new})
    made = written_profile(old)
    for section, name, one in spoilt:
        made.setdefault(section, {})[name] = one
    return {**made, **{name: one for name, one in old.items() if name not in (*OLD_SECTIONS, *KNOWN_SECTIONS)}}


def _set_aside_spoilt(old: Json) -> list[tuple[str, str, Any]]:
    """What is no object where a section has objects, and the section of a file where it would be."""
    found = []
    for section in OLD_SECTIONS:
        things = old.get(section)
        for name in [name for name, one in (things or {}).items() if not isinstance(one, Mapping)]:
            found.append(
                ("models" if section in ("variants", "tables", "engines") else "machines", name, things.pop(name))
            )
    return found


def _with_prices_renamed(slo: Any) -> Any:
    limits = slo.get("limits")
    offers = limits.get("offers") if isinstance(limits, Mapping) else None
    if not isinstance(offers, Mapping):
        return slo
    return {**slo, "limits": {**limits, "offers": {_renamed.get(name, name): one for name, one in offers.items()}}}


KNOWN_SECTIONS = (
    "format", "sources", "metrics", "reference", "tiers", "zones", "links", "apis", "pipelines", "extensions"
)  # fmt: skip
OLD_SECTIONS = ("hardware", "offers", "hosts", "variants", "tables", "engines", "tasks")


def _zone_twins(offers: Json) -> None:
    ways: dict[Any, list[str]] = {}
    for name, one in offers.items():
        ways.setdefault(one["hardware"], []).append(name)
    for names in ways.values():
        keys = [(offers[name].get("zone"), offers[name].get("interruptions_per_hour") is not None) for name in names]
        mixed = len({zone is None for zone, _ in keys}) > 1
        if len(set(keys)) < len(keys) or mixed:
            for name in names:
                offers[name].setdefault("zone", name)


# -- pieces ------------------------------------------------------------------------------------------------------------


def machine(
    price: float | None = None,
    *,
    kind: str = "gpu",
    stock: int | None = None,
    spot: float | None = None,
    spot_stock: int | None = None,
    reserved: float | None = None,
    provides: Mapping[str, float] | None = None,
    startup_s: float | None = None,
) -> Json:
    """A machine type: its price per hour (None: nothing), stock, prices of spot and for a year, what it provides."""
    made: Json = {"hardware": {"kind": kind}, "offers": {}}
    if provides:
        made["hardware"]["provides"] = dict(provides)
    if startup_s is not None:
        made["hardware"]["startup_s"] = startup_s
    if price is not None:
        offer: Json = {"price_per_hour": f"{price:.9g}"}
        if stock is not None:
            offer["stock"] = stock
        if reserved is not None:
            offer["commit"] = {"term_s": 365 * 86_400, "price_per_hour": f"{reserved:.9g}"}
        made["offers"][""] = offer
    if spot is not None:
        made["offers"]["-spot"] = {"price_per_hour": f"{spot:.9g}", "interruptions_per_hour": 0.05}
        if spot_stock is not None:
            made["offers"]["-spot"]["stock"] = spot_stock
    return made


Times = Mapping[int, float] | Mapping[str, Sequence[float]]


def model(
    runs: Mapping[str, Times],
    *,
    task: str | None = None,
    quality: float | None = None,
    needs: Mapping[str, float] | None = None,
    load_s: float | None = None,
) -> Json:
    """A model and its service times: machine type -> {batch size: mean ms}.

    Where more than the mean is known: machine type -> {"batch": sizes, "mean": ms, "p99": ms, ...}.
    """
    return {"runs": runs, "task": task, "quality": quality, "needs": needs, "load_s": load_s}


def app(
    serves: str | Sequence[str],
    *,
    rate: float | str | Mapping[str, float] | Sequence[float] = "max",
    limits: Mapping[float, float] | None = None,
    sizes: Mapping[int, float] | None = None,
    quality: float | None = None,
    arrivals: Mapping[str, Any] | None = None,
    late: str | None = None,
    by: str = "variants",
) -> Json:
    """An application: the model or models that serve it, its rate, its limits (percentile -> ms), its mix of sizes.

    `by` says what `serves` names: "variants" (models), "task", "families" or "pipeline". A rate that is a list is a
    rate per period.
    """
    names = serves if isinstance(serves, str) else list(serves)
    by = {"variants": "model" if isinstance(names, str) else "models", "families": "family"}.get(by, by)
    by_period = isinstance(rate, Sequence) and not isinstance(rate, str)
    made: Json = {
        by: names,
        "latency": _latency(limits or {99: 100}),
        "rate_qps": {"series": list(rate)} if by_period else rate,
    }
    if sizes:
        made["mix"] = {"axes": ["batch"], "bins": [[size] for size in sizes], "share": list(sizes.values())}
    if arrivals:
        made["arrivals"] = dict(arrivals)
    if quality is not None:
        made["quality"] = {"min": quality}
    if late:
        made["late"] = late
    return made


def answered(one: Json, **by: str | list[str]) -> Json:
    """The same application, changed in place, with something else that answers it: model, models, task and so on."""
    for key in ("model", "models", "family", "task", "pipeline", "candidates"):
        one.pop(key, None)
    one.update(by)
    return one


def llm_model(engines: Mapping[str, Mapping[str, Any]], *, task: str | None = None) -> Json:
    """A language model: machine type -> its law ("pieces": iteration times) and room ("kv_tokens")."""
    return {"engines": engines, "task": task}


def llm_app(
    serves: str,
    *,
    rate: float | Sequence[float],
    limits: Mapping[str, tuple[float, float]],
    lengths: Mapping[tuple[int, int], float],
) -> Json:
    """An application of a language model: limits by name ("ttft": (percentile, ms)); (input, output) tokens: share."""
    made = app(serves, rate=rate, by="task")
    made["latency"] = {f"{of}_p{at:g}_ms".removeprefix("response_"): ms for of, (at, ms) in limits.items()}
    bins, share = [list(one) for one in lengths], list(lengths.values())
    made["mix"] = {"axes": ["input_tokens", "output_tokens"], "bins": bins, "share": share}
    return made


def pipeline(edges: Sequence[tuple[str, str, float]], stages: Sequence[str]) -> Json:
    """A pipeline: its stages (each named after its task), and edges (from, to, fan-out)."""
    return {
        "nodes": {name: {"task": name} for name in stages},
        "edges": [{"from": one, "to": other, "fanout": fan} for one, other, fan in edges],
    }


def files(
    *,
    machines: Mapping[str, Json],
    models: Mapping[str, Json],
    apps: Mapping[str, Json],
    pipelines: Mapping[str, Json] | None = None,
    objective: Sequence[str] = (),
    periods: int | None = None,
    period_s: float = 3600,
    repeats: int = 30,
    problem: str | None = None,
) -> Files:
    """The files of a wish. With `periods`, the rates are per period of an hour, and these repeat."""
    profile: Json = {
        "format": "hetplan/profile/1.0",
        "sources": {"test": {"kind": "assumed", "note": "made up by a test"}},
        "hardware": {name: one["hardware"] for name, one in machines.items()},
        "offers": {
            f"{name}{suffix}": {"hardware": name, **offer}
            for name, one in machines.items()
            for suffix, offer in one["offers"].items()
        },
        "tasks": {},
        "variants": {},
    }
    for name, one in models.items():
        task = one["task"] or name
        profile["tasks"].setdefault(task, {})
        written: Json = {"task": task, "runs": []}
        for machine_type, times in one.get("runs", {}).items():
            table = f"{name}-{machine_type}"
            profile.setdefault("tables", {})[table] = _table(times)
            run: Json = {"hardware": machine_type, "latency": table}
            written["runs"].append(run | {key: one[key] for key in ("needs", "load_s") if one.get(key) is not None})
        for machine_type, engine in one.get("engines", {}).items():
            profile.setdefault("engines", {})[f"{name}-{machine_type}"] = {"source": "test", **engine}
            written["runs"].append({"hardware": machine_type, "engine": f"{name}-{machine_type}"})
        if one.get("quality") is not None:
            written["quality"] = {"value": one["quality"], "source": "test"}
        profile["variants"][name] = written
    if pipelines:
        profile["pipelines"] = dict(pipelines)
    slo: Json = {"format": "hetplan/slo/1.0", "apps": dict(apps)}
    if objective:
        slo["objective"] = ["min machines" if one == "min servers" else one for one in objective]
    if periods:
        slo["horizon"] = {"period_s": period_s, "periods": periods, "repeats": repeats}
    return Files(deepcopy(profile), deepcopy(slo), problem=problem)


# -- whole wishes ------------------------------------------------------------------------------------------------------


def example(name: str) -> Files:
    """The files of a shipped example."""
    documents = [json.loads((SHIPPED / path).read_text()) for path in EXAMPLES[name]]
    for document in documents:
        document.pop("$schema", None)
    documents[0] = planned(documents[0])
    return Files(documents[0], documents[1], measured=documents[2] if len(documents) > 2 else None)


def tiny(problem: str) -> Files:
    """A wish of one problem that is planned in a tenth of a second or so."""
    return _TINY[problem](random.Random(0))


def random_files(problem: str, seed: int) -> Files:
    """A random wish of one problem: two to four machine types, and times, prices, rates and limits drawn anew."""
    return _TINY[problem](random.Random(f"{problem} {seed}"))


def _pool(rng: random.Random) -> Files:
    sizes = dict(zip((1, 8, 32), _shares(rng, 3), strict=True))
    machines, runs, fastest = {}, {}, float("inf")
    for number in range(rng.randint(2, 4)):
        first, each = rng.uniform(2, 12), rng.uniform(0.2, 3)
        machines[f"m{number}"] = machine(round(0.1 + 3 / (first + 30 * each) + rng.uniform(0, 0.5), 3), stock=12)
        runs[f"m{number}"] = {size: round(first + each * (size - 1), 3) for size in (1, 8, 32)}
        fastest = min(fastest, runs[f"m{number}"][32])
    limit = round(fastest * rng.uniform(1.6, 4), 1)
    wanted = app("ranker", rate=float(rng.randint(20, 120)), limits={99: limit}, sizes=sizes)
    return files(machines=machines, models={"ranker": model(runs)}, apps={"ranking": wanted}, problem="pool")


def _variants(rng: random.Random) -> Files:
    machines = {f"m{number}": machine(round(rng.uniform(0.2, 1.5), 3)) for number in range(rng.randint(2, 3))}
    models = {}
    for number, quality in enumerate((0.7, 0.76, 0.82)):
        first = rng.uniform(2, 6) * (1 + 1.5 * number)
        runs = {}
        for at, name in enumerate(machines):
            scale = (1.0, 0.6, 0.4)[at] * rng.uniform(0.8, 1.2)
            runs[name] = {size: round(scale * first * (1 + 0.35 * (size - 1)), 3) for size in (1, 4, 8)}
        models[f"net-{number}"] = model(runs, task="classify", quality=quality)
    limit = float(rng.randint(60, 150))
    wanted = app("classify", rate=float(rng.randint(300, 1500)), limits={99: limit}, quality=0.75, by="task")
    return files(machines=machines, models=models, apps={"photos": wanted}, problem="variants")


def _pipeline(rng: random.Random) -> Files:
    machines = {"m0": machine(), "m1": machine()}
    models = {}
    for stage, first in (("detect", 8.0), ("label", 4.0)):
        for number, quality in enumerate((0.8, 0.9, 1.0)):
            base = first * (1 + 0.8 * number) * rng.uniform(0.8, 1.2)
            runs = {
                name: {size: round(scale * base * (1 + 0.6 * (size - 1)), 3) for size in (1, 4)}
                for name, scale in (("m0", 1.0), ("m1", 0.5))
            }
            models[f"{stage}-{number}"] = model(runs, task=stage, quality=quality)
    street = pipeline([("detect", "label", round(rng.uniform(0.8, 2), 2))], ["detect", "label"])
    wanted = app("street", rate=float(rng.randint(300, 600)), limits={99: float(rng.randint(150, 250))}, by="pipeline")
    made = files(
        machines=machines, models=models, apps={"cameras": wanted}, pipelines={"street": street},
        objective=("max quality", "min servers"), problem="pipeline",
    )  # fmt: skip
    return made.limited(counts={"m0": (0, 6), "m1": (0, 3)})


def _policy(rng: random.Random) -> Files:
    models = {}
    for number, quality in enumerate((0.62, 0.7, 0.77)):
        first = 15.0 * (1 + 0.7 * number) * rng.uniform(0.9, 1.1)
        times = {size: round(first * (1 + 0.4 * (size - 1)), 3) for size in (1, 2, 4, 8)}
        models[f"net-{number}"] = model({"m0": times}, task="classify", quality=quality)
    wanted = app("classify", rate=float(rng.randint(60, 120)), limits={95: float(rng.randint(120, 200))}, by="task")
    wanted["dispatch"] = "round-robin"
    wanted["late"] = "serve"
    made = files(
        machines={"m0": machine(0.17, kind="cpu")}, models=models, apps={"images": wanted},
        objective=("max goodput",), problem="policy",
    )  # fmt: skip
    return made.limited(counts={"m0": (4, 4)})


def _llm(rng: random.Random) -> Files:
    machines, engines = {}, {}
    for name, scale, price in (("small", 1.0, 1.0), ("large", 0.35, 3.2)):
        machines[name] = machine(round(price * rng.uniform(0.8, 1.2), 3), provides={"gpu": 1})
        pace = scale * rng.uniform(0.8, 1.2)
        engines[name] = {
            "pieces": [
                {"base_ms": 3.0, "token_ms": round(0.25 * pace, 5)},
                {"base_ms": round(30 * pace, 4), "kv_token_ms": round(4e-4 * pace, 8)},
            ],
            "overlap": "assumed", "kv_tokens": 60_000, "kv_bytes_per_token": 131_072, "context_tokens": 8192,
            "most_tokens": 8192, "most_seqs": 128, "precision": "bf16",
        }  # fmt: skip
    lengths = dict(zip(((200, 80), (800, 150), (2000, 250)), _shares(rng, 3), strict=True))
    wanted = llm_app(
        "chat", rate=float(rng.randint(4, 12)), limits={"ttft": (95, 1200), "tpot": (95, 80)}, lengths=lengths
    )
    return files(machines=machines, models={"llm": llm_model(engines, task="chat")}, apps={"assistant": wanted})


def _fleet(rng: random.Random) -> Files:
    """Two applications over three hours, with spot machines beside those on demand."""
    machines = {
        name: machine(price, spot=round(0.4 * price, 3), spot_stock=3, stock=20, startup_s=60)
        for name, price in (("m0", round(rng.uniform(0.3, 0.7), 3)), ("m1", round(rng.uniform(0.8, 1.4), 3)))
    }
    sizes = dict(zip((1, 8), _shares(rng, 2), strict=True))
    ranker = model({"m0": {1: 6, 8: 30}, "m1": {1: 3, 8: 12}}, load_s=5)
    net = model({"m0": {1: 9, 4: 20, 8: 34}, "m1": {1: 5, 4: 9, 8: 14}}, task="classify", quality=0.76, load_s=5)
    low = rng.randint(30, 60)
    return files(
        machines=machines,
        models={"ranker": ranker, "net": net},
        apps={
            "ranking": app("ranker", rate=[low, 2.5 * low, low], limits={99: 90}, sizes=sizes),
            "photos": app("net", rate=[low, 3 * low, 2 * low], limits={99: 120}),
        },
        periods=3,
    )


def many_applications(count: int) -> Files:
    """A fleet of so many applications over a day, of two kinds, that are busy at unlike hours."""
    wish, rng = tiny("fleet"), random.Random(count)
    apps = {}
    for number in range(count):
        name, one = list(wish.slo["apps"].items())[number % 2]
        low = rng.uniform(20, 80)
        series = [round(low * (1.0 + 2.0 * ((hour + 3 * number) % 24 in range(8, 20))), 1) for hour in range(24)]
        apps[f"{name}-{number}"] = {**one, "rate_qps": {"series": series}}
    slo = {**wish.slo, "apps": apps, "horizon": {**wish.slo["horizon"], "periods": 24}}
    return replace(wish, slo=slo).stocked(dict.fromkeys(wish.profile["offers"], 40 * count))


def policy_fleet(rates: Sequence[float], *, beside: bool = False) -> Files:
    """A policy over hours at these rates, on two machine types of which there are few; a pool `beside` it."""
    machines = {"m0": machine(0.279, stock=4, startup_s=60), "m1": machine(0.463, stock=3, startup_s=60)}
    models = {
        name: model({"m0": {1: ms, 2: 1.5 * ms}, "m1": {1: 0.5 * ms, 2: 0.75 * ms}}, task="classify", quality=quality)
        for name, ms, quality in (("quick", 9.0, 0.6), ("good", 15.0, 0.75))
    }
    wanted = app("classify", rate=list(rates), limits={95: 70.0}, by="task", quality=0.63)
    apps = {"images": wanted | {"question": "policy", "dispatch": "round-robin"}}
    if beside:
        models["ranker"] = model({"m0": {1: 6, 8: 30}, "m1": {1: 3, 8: 12}})
        apps["ranking"] = app("ranker", rate=[40.0] * len(rates), limits={99: 90}, sizes={1: 0.6, 8: 0.4})
    return files(machines=machines, models=models, apps=apps, periods=len(rates), problem="fleet")


_TINY: Mapping[str, Callable[[random.Random], Files]] = {
    "pool": _pool,
    "variants": _variants,
    "pipeline": _pipeline,
    "policy": _policy,
    "llm": _llm,
    "fleet": _fleet,
}


# -- the site ----------------------------------------------------------------------------------------------------------


def cluster(
    wish: Files,
    labels: Mapping[str, Mapping[str, str]],
    *,
    accelerators: Mapping[str, int] | None = None,
    resources: Mapping[str, str] | None = None,
) -> str:
    """A site file for Kubernetes: labels of the nodes of machine types, their accelerators and the word for those."""
    lines = ["namespace = 'serving'"]
    for name, offer in wish.profile.get("offers", {}).items():
        lines += [f"[offers.{name}]", "'offer' = 'spot'"] if "interruptions_per_hour" in offer else []
    for name in wish.machine_types:
        lines.append(f"[machines.{name}]")
        lines += [f"gpus = {accelerators[name]}"] if name in (accelerators or {}) else []
        device = (resources or {}).get(name)
        lines += [f"device = '{device}'"] if device is not None else []
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in labels.get(name, {}).items())
        lines.append(f"selector = {{{pairs}}}")
    pipelines = wish.profile.get("pipelines", {}).values()
    steps = [step for one in pipelines for step in one.get("nodes", one.get("stages", {}))]
    for name in dict.fromkeys([*wish.profile.get("variants", {}), *steps]):
        lines += [f"[models.'{name}']", "image = 'registry.example/serve:1'"]
    return "\n".join(lines)


# -- shuffling and small change ----------------------------------------------------------------------------------------


def shuffled(wish: Files, seed: int) -> Files:
    """The same files with the keys of every mapping in another order."""
    rng = random.Random(seed)

    def mix(value: Any) -> Any:
        if isinstance(value, dict):
            keys = list(value)
            rng.shuffle(keys)
            return {key: mix(value[key]) for key in keys}
        return [mix(one) for one in value] if isinstance(value, list) else value

    return replace(wish, profile=mix(wish.profile), slo=mix(wish.slo), state=mix(wish.state))


def relisted(wish: Files, seed: int) -> Files:
    """The same files with every list that is a set in another order: measurements of a model, models, edges, links."""
    rng, profile, slo = random.Random(seed), deepcopy(wish.profile), deepcopy(wish.slo)
    for one in (*profile.get("variants", {}).values(), *profile.get("pipelines", {}).values(), profile):
        for key in ("runs", "edges", "links"):
            rng.shuffle(one.get(key, []))
    for one in slo["apps"].values():
        for key in ("models", "family"):
            if isinstance(one.get(key), list):
                rng.shuffle(one[key])
    return replace(wish, profile=profile, slo=slo)


def _latency(limits: Mapping[float, float]) -> list[Json]:
    return {f"p{at:g}_ms": ms for at, ms in limits.items()}


def _table(times: Times) -> Json:
    if "batch" in times:
        columns = {str(key): list(value) for key, value in times.items() if key != "batch"}  # type: ignore[arg-type]
        return {"quantity": "latency_ms", "axes": {"batch": list(times["batch"])}, **columns, "source": "test"}  # type: ignore[index,arg-type]
    return {"quantity": "latency_ms", "axes": {"batch": list(times)}, "mean": list(times.values()), "source": "test"}


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, Mapping):
        return {key: _times(one, factor) for key, one in value.items()}
    if isinstance(value, list):
        return [_times(one, factor) for one in value]
    return value if value is None or isinstance(value, str) else value * factor


def _scale_keys(document: Any, keys: Sequence[str], factor: float) -> None:
    for holder in _mappings(document):
        for key in keys:
            if isinstance(holder.get(key), str | int | float):
                holder[key] = f"{float(holder[key]) * factor:.12g}"


def _mappings(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        yield value
        for one in value.values():
            yield from _mappings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _mappings(one)


def _shares(rng: random.Random, count: int) -> list[float]:
    parts = [rng.uniform(0.2, 1) for _ in range(count)]
    shares = [round(one / sum(parts), 3) for one in parts]
    return [*shares[:-1], round(1 - sum(shares[:-1]), 3)]
