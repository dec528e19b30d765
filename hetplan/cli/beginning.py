"""What `hetplan init` makes of what was said: a profile, an SLO, perhaps measurements, and what it assumed.

Tables of latencies, a language model's config.json, a table of measured settings, or a profile that is there already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from hetplan.cli.output import printable
from hetplan.errors import Fault, InputError

if TYPE_CHECKING:
    from hetplan.cli.output import Output
    from hetplan.profiles.first_files import Answers, Latencies, Machine
    from hetplan.profiles.profile import Profile
    from hetplan.profiles.tables import Table

__all__ = ["Made", "Said", "made_of", "next_command", "together"]


_USUAL_LENGTHS = "512:256"


@dataclass(frozen=True)
class Said:
    """The options of `hetplan init`, as they were given."""

    model: str | None
    app: str | None
    machines: Sequence[str]
    prices: Path | None
    region: str
    ms: Sequence[str]
    latencies: Path | None
    edges: Sequence[str]
    workers: Sequence[str]
    profile: Path | None
    config: Path | None
    settings: Path | None
    tokens: str | None
    lengths: Path | None
    rate: float | None
    rates: Path | None
    limits: Sequence[tuple[str, float, float]]
    """What is limited (ttft, tpot, response), at which percentile, to how many ms."""
    engine: str
    quality: float | None
    budget: str | None
    kv_link_mbps: float | None

    @property
    def is_by_names(self) -> bool:
        """Whether it names a known language model on known GPUs, and no times."""
        if self.model is None or self.ms or self.latencies or self.profile or self.config or self.settings:
            return False
        from hetplan.profiles.cards import card_of_text
        from hetplan.profiles.language_models import model_of_text

        named = [text.partition("=")[0] for text in self.machines]
        wants_text = model_of_text(self.model) is not None or self._limits_text
        return wants_text and bool(named) and all(card_of_text(name) is not None for name in named)

    @property
    def has_source(self) -> bool:
        """Whether it says where times come from."""
        return bool(self.ms or self.latencies or self.profile or self.config or self.settings) or self.is_by_names

    @property
    def _limits_text(self) -> bool:
        return any(of in ("ttft", "tpot") for of, _, _ in self.limits)

    @property
    def is_text(self) -> bool:
        """Whether text is made token by token."""
        return bool(self.config or self.tokens or self.lengths or self._limits_text or self.is_by_names)


@dataclass(frozen=True)
class Made:
    """What is to be written, and which profile beside it is read too."""

    slo: dict[str, Any]
    profile: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None
    beside: Path | None = None
    assumed: list[str] = field(default_factory=list)
    odd: str = ""
    """What looks like a slip of units."""


def next_command(out: Output, words: Iterable[object]) -> str:
    """Show the command to type next: quoted for a shell, and in one piece, so that it can be copied."""
    text = join(["hetplan", *map(str, words)])
    if not out.as_json:
        print(f"\nNext: {printable(text)}")
    return text


def read_limits(texts: Iterable[str]) -> tuple[tuple[str, float, float], ...]:
    """Limits as the command line has them.

    >>> read_limits(["p99=100", "ttft_p95_ms=1000,tpot_p95=40"])
    (('response', 99.0, 100.0), ('ttft', 95.0, 1000.0), ('tpot', 95.0, 40.0))
    """
    from hetplan.profiles.slo import LatencyTarget

    found: dict[str, tuple[str, float, float]] = {}
    for text in (one for texts_of in texts for one in texts_of.split(",")):
        name, _, ms = text.strip().partition("=")
        target = LatencyTarget.named(name)
        if target is None or not re.fullmatch(r"[0-9]*\.?[0-9]+", ms) or not float(ms) > 0:
            remedy = "Write p99=100, of text ttft_p95=1000,tpot_p95=40."
            raise InputError.one(file="--slo", value=text, why="a limit at a percentile, in ms above 0", remedy=remedy)
        if not target.is_percentile:
            meant = target.in_percent if target.in_percent.is_percentile else LatencyTarget(target.of, 99.0, 0.0)
            remedy = f"Write {meant.key.removesuffix('_ms')}={ms}."
            raise InputError.one(file="--slo", value=text, why="a percentile is from 1 to 100", remedy=remedy)
        if target.key in found:
            why = "one limit at each percentile; this one is there twice"
            raise InputError.one(file="--slo", value=text, why=why, remedy="Leave one of the two out.")
        found[target.key] = (target.of, target.percentile, float(ms))
    return tuple(found.values())


def made_of(said: Said) -> Made:
    """The first files; every fault of the options at once where they can be seen together."""
    _check_complete(said)
    if said.settings is not None:
        return _of_settings(said, said.settings)
    if said.profile is not None or said.config is not None or said.is_by_names:
        return _of_profile(said)
    return _of_tables(said)


def _check_complete(said: Said) -> None:
    faults: list[Fault] = []
    if said.rate is None and said.rates is None and said.lengths is None:
        remedy = "Add --rate 100, or --rates FILE with a record of it."
        faults.append(Fault("--rate", "", "", "how many queries per second come", remedy))
    elif said.rate is not None and (said.rates is not None or not 0 < said.rate < float("inf")):
        remedy = "Leave one of --rate and --rates out." if said.rates is not None else "Add --rate 100."
        faults.append(Fault("--rate", "", str(said.rate), "how many queries per second come, above 0", remedy))
    if (
        said.is_text
        and not any(of in ("ttft", "tpot") for of, _, _ in said.limits)
        and not (said.profile and said.limits)
    ):
        remedy = "Add --slo ttft_p95=500,tpot_p95=50: ms to the first token, and of each token after it."
        faults.append(Fault("--slo", "", "", "a limit of the time to the first token, or per token", remedy))
    if not said.is_text and len(said.limits) != 1:
        faults.append(Fault("--slo", "", "", "one limit of the response time", "Add --slo p99=100, or p95=."))
    if not said.has_source:
        remedy = "Add --ms MACHINE:1=6,8=24, or --latencies FILE.csv; `hetplan init --help` shows the others."
        faults.append(_unknown_names(said) or Fault("--latencies", "", "", "how long batches take", remedy))
    faults += _not_together(said)
    if faults:
        raise InputError(faults)


def _unknown_names(said: Said) -> Fault | None:
    """What is not known of a language model and machines that are named without times."""
    from hetplan.profiles.cards import card_of_text, cards
    from hetplan.profiles.language_models import model_of_text, models

    if said.model is None or not (said.is_text or model_of_text(said.model)):
        return None
    if not said.machines:
        remedy = f"Add --machine h100=2.50, with your price; known are {', '.join(cards())}."
        return Fault("--machine", "", "", "the GPUs that can be rented", remedy)
    if unknown := [one for one in (text.partition("=")[0] for text in said.machines) if card_of_text(one) is None]:
        remedy = f"Known are {', '.join(cards())}, several as in h100x2."
        return Fault("--machine", "", unknown[0], "a GPU whose data sheet is known", remedy)
    remedy = f"Known are {', '.join(models())}; others by --config config.json."
    return Fault("--model", "", said.model, "a model whose sizes ship with hetplan", remedy)


def _not_together(said: Said) -> list[Fault]:
    sources = {
        "--latencies": said.latencies or said.ms, "--profile": said.profile, "--config": said.config,
        "--settings": said.settings,
    }  # fmt: skip
    found = [name for name, value in sources.items() if value]
    faults = []
    if len(found) > 1:
        why = f"one source of times, not {' and '.join(found)} together"
        faults.append(Fault(found[1], "", "", why, "Leave one out."))
    for name, value in (("--edge", said.edges), ("--workers", said.workers)):
        if value and not (said.latencies or said.ms):
            faults.append(Fault(name, "", str(value[0]), "--latencies, which it goes with", "Add the table."))
    if said.is_text and said.has_source and not (said.config or said.profile or said.is_by_names):
        remedy = "Add --config FILE, the model's config.json, or --profile FILE, which `hetplan import` wrote."
        faults.append(Fault("--tokens", "", "", "where the times of the engine come from", remedy))
    if said.kv_link_mbps is not None:
        why = "the network that KV crosses, above 0" if said.kv_link_mbps <= 0 else "an LLM by its name or --config"
        if said.kv_link_mbps <= 0 or not (said.config or said.is_by_names):
            faults.append(Fault("--kv-link", "", f"{said.kv_link_mbps:g}", why, "Leave it out, or write 200000."))
    if said.workers and (said.rates or said.edges):
        why = "a rate: workers that are there are planned for one rate, and have no steps"
        faults.append(Fault("--workers", "", str(said.workers[0]), why, "Add --rate, leave --rates and --edge out."))
    return faults


def machines_of(said: Said) -> dict[str, Machine]:
    """The machines that were named, with their prices."""
    from hetplan.profiles.first_files import read_machine

    found = [read_machine(text) for text in said.machines]
    twice = sorted({one.name for one in found if [other.name for other in found].count(one.name) > 1})
    if twice:
        raise InputError.one(file="--machine", value=twice[0], why="each machine once", remedy="Take one of them out.")
    return {one.name: one for one in found}


def _with_prices(said: Said) -> dict[str, Machine]:
    return {name: one for name, one in machines_of(said).items() if one.price is not None}


def _demand(said: Said) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    from hetplan.profiles.first_demand import demand_of, demand_of_record

    if said.rates is not None:
        return demand_of_record(said.rates)
    assert said.rate is not None
    return demand_of(said.rate), {}, []


def _limit(said: Said) -> tuple[float, float]:
    ((_, percentile, limit),) = said.limits
    return percentile, limit


def _priced(said: Said, names: Iterable[str]) -> tuple[dict[str, Machine], list[str]]:
    """What a list of prices has of these machines; each that it lacks is named."""
    if said.prices is None:
        return {}, []
    from hetplan.profiles.first_demand import prices_for

    wanted = [name for name in dict.fromkeys(names) if name not in _with_prices(said)]
    found, assumed = prices_for(said.prices, wanted, said.region)
    where = f" of {said.region}" if said.region else ""
    faults = [
        Fault(str(said.prices), "", name, f"a price{where} of each machine that was measured",
              f"Add --machine {name}=PRICE, or name the machine as the list does.")
        for name in wanted
        if name not in found
    ]  # fmt: skip
    if faults:
        raise InputError(faults)
    return found, assumed


def _of_tables(said: Said) -> Made:
    from hetplan.profiles.first_files import (
        Latencies,
        first_files,
        read_edge,
        read_latencies,
        read_timings,
        read_workers,
    )

    table = read_latencies(said.latencies, said.model) if said.latencies is not None else Latencies()
    for text in said.ms:
        table.timings.extend(read_timings(text, said.model or "model"))
    if said.quality is not None and not table.quality:
        raise InputError.one(
            file="--quality", value=str(said.quality), why="the quality of each model, to hold it against",
            remedy="Give --latencies a table with the column quality.",
        )  # fmt: skip
    if said.edges and not table.steps:
        remedy = "Give --latencies a table with the column step."
        raise InputError.one(file="--edge", value=said.edges[0], why="the step of each model", remedy=remedy)
    listed, taken = _priced(said, [one.hardware for one in table.timings])
    table.machines.update(listed)
    answers = _answers(said, table, dict(read_edge(text) for text in said.edges), dict(map(read_workers, said.workers)))
    profile, slo, assumed = first_files(answers)
    _, _, found = _demand(said)
    return Made(slo, profile, assumed=[*found, *taken, *assumed], odd=_odd_units(answers))


def _answers(
    said: Said, table: Latencies, edges: Mapping[tuple[str, str], float], workers: Mapping[str, int]
) -> Answers:
    from hetplan.profiles.first_files import Answers

    demand, horizon, _ = _demand(said)
    machines = {**machines_of(said), **table.machines, **_with_prices(said)}
    percentile, max_ms = _limit(said)
    return Answers(
        list(machines.values()), table.timings, demand, percentile, max_ms, app=said.app or said.model or "",
        quality=table.quality, least_quality=said.quality, cost_per_hour=said.budget, steps=table.steps, edges=edges,
        workers=workers, horizon=horizon,
    )  # fmt: skip


def _odd_units(said: Answers) -> str:
    least = min(min(one.ms.values()) for one in said.timings)
    most = max(max(one.ms.values()) for one in said.timings)
    if least > said.max_ms:
        return f"the fastest batch takes {least:g} ms, and {said.max_ms:g} ms are wanted: both are milliseconds"
    if most < said.max_ms / 1000.0:
        return f"the slowest batch takes {most:g} ms, and {said.max_ms:g} ms are wanted: both are milliseconds"
    return ""


def _of_profile(said: Said) -> Made:
    """A wish on a profile that is there, or on one of data sheets; prices that were given are written beside it."""
    from hetplan.profiles.csv_rows import as_id
    from hetplan.profiles.read_json import format_of

    known, written, assumed = _known(said)
    runs = _runs(said, known)
    rates = _rates_by_tokens(known, runs)
    demand, horizon, found = _text_demand(said, rates) if said.is_text or rates else _demand(said)
    wish: dict[str, Any] = {**runs, "latency": _latency(said), **demand}
    if said.quality is not None:
        wish["quality"] = {"min": said.quality}
    slo: dict[str, Any] = {"format": format_of("slo"), "objective": "min cost"}
    if said.budget is not None:
        slo["limits"] = {"cost_per_hour": said.budget}
    if "pipeline" in runs and not known.pipelines[runs["pipeline"]].knobs:
        slo["objective"], limits, more = _of_steps(known, said)
        slo["limits"], assumed = slo.get("limits", {}) | limits, [*assumed, *more]
    if horizon:
        slo["horizon"] = horizon
    tasks = {known.variants[name].task for name in _named(runs)}
    named = runs.get("task") or runs.get("pipeline") or (tasks.pop() if len(tasks) == 1 else "app")
    slo["apps"] = {as_id(said.app or said.model or named): wish}
    if "arrivals" in demand:
        found = [*found, "queries come by chance, independent of one another (arrivals: poisson)"]
    return Made(slo, written, beside=said.profile, assumed=[*found, *assumed])


def _of_steps(known: Profile, said: Said) -> tuple[list[str], dict[str, Any], list[str]]:
    """What a pipeline is planned for, how many servers it may have, and what was assumed."""
    from hetplan.profiles.first_files import MOST_SERVERS

    priced = {offer.hardware for offer in known.offers.values()} | set(machines_of(said))
    least = "min cost" if known.hardware.keys() <= priced else "min machines"
    stocked = {offer.hardware for offer in known.offers.values() if offer.stock is not None}
    free = {name: [0, MOST_SERVERS] for name in known.hardware if name not in stocked}
    limits = {"instances": free} if free and said.budget is None else {}
    found = [f"up to {MOST_SERVERS} machines of each kind (limits.instances)"] if limits else []
    if said.quality is not None:
        return [least], limits, found
    found.append("the best answers come first, then the fewest or cheapest machines (objective)")
    return ["max quality", least], limits, found


def _known(said: Said) -> tuple[Profile, dict[str, Any] | None, list[str]]:
    """The profile that is wished on, what of it is to be written, and what it takes for granted."""
    from hetplan.profiles.load_one import load_profile

    if said.profile is None:
        from hetplan.profiles.first_text import text_profile

        machines = machines_of(said)
        listed, taken = _priced(said, machines)
        most = max(sum(size[:2]) for size in _mix(said)["bins"])
        made, assumed = text_profile(
            said.model, said.config, list((machines | listed).values()), engine=said.engine, longest=int(most),
            kv_link_mbps=said.kv_link_mbps,
        )  # fmt: skip
        return load_profile(made), made, [*taken, *assumed]
    known = load_profile(said.profile)
    return known, _prices(said, known), []


def _named(runs: Mapping[str, Any]) -> Sequence[str]:
    """The models that are named one by one."""
    return [runs["model"]] if "model" in runs else list(runs.get("models", ()))


def _rates_by_tokens(known: Profile, runs: Mapping[str, Any]) -> Table | None:
    """A table of rates by tokens in and out that answers, if one does."""
    named, task = _named(runs), runs.get("task")
    variants = (one for name, one in known.variants.items() if name in named or one.task == task)
    tables = (known.tables[run.rate] for one in variants for run in one.runs if run.rate is not None)
    return next((table for table in tables if {"input_tokens", "output_tokens"} <= table.axes.keys()), None)


def _mix(said: Said) -> dict[str, Any]:
    """The lengths of requests that were said, else usual ones."""
    from hetplan.profiles.first_text import lengths_of, read_tokens

    return lengths_of(said.lengths)[0] if said.lengths is not None else read_tokens(said.tokens or _USUAL_LENGTHS)


def _text_demand(said: Said, rates: Table | None) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    from hetplan.profiles.first_text import first_size, lengths_of, read_tokens

    horizon: dict[str, Any] = {}
    mix, rate = lengths_of(said.lengths) if said.lengths is not None else (None, None)
    if said.rate is None and said.rates is None and rate is not None:
        from hetplan.profiles.first_demand import demand_of

        demand, found = demand_of(rate), [f"{rate:g} requests come a second, as in the record (rate_qps)"]
    else:
        demand, horizon, found = _demand(said)
    if mix is None:
        size, why = _USUAL_LENGTHS, ""
        if rates is not None:
            size = "{input_tokens:g}:{output_tokens:g}".format(**first_size(rates))
            why = ", the first that was measured"
        usual = f"requests have {size.replace(':', ' tokens in and ')} out{why} (mix; --tokens)"
        found = [*found, *([] if said.tokens else [usual])]
        mix = read_tokens(said.tokens or size)
    return {**demand, "mix": mix}, horizon, found


def _latency(said: Said) -> dict[str, Any]:
    from hetplan.profiles.plain_data import whole_if_it_is
    from hetplan.profiles.slo import LatencyTarget

    return {LatencyTarget(of, at, ms).key: whole_if_it_is(ms) for of, at, ms in said.limits}


def _prices(said: Said, known: Profile) -> dict[str, Any] | None:
    """A profile with the machines that were given a price, to be read beside the one that is there."""
    from hetplan.profiles.new_files import new_profile, price_of, without_nothing

    machines = machines_of(said) | _priced(said, known.hardware if said.prices else ())[0]
    unknown = [name for name in machines if name not in known.hardware]
    if unknown:
        remedy = f"The profile has {', '.join(known.hardware)}."
        raise InputError.one(file="--machine", value=unknown[0], why="a machine of the profile", remedy=remedy)
    priced = {
        name: without_nothing({"price_per_hour": price_of(one.price), "stock": one.stock})
        for name, one in machines.items()
        if one.price is not None
    }
    return new_profile(None, machines=priced) if priced else None


def _runs(said: Said, known: Profile) -> dict[str, Any]:
    """What serves: the pipeline, the model that was named, or the task of the profile."""
    if said.model is not None and said.profile is not None:
        kinds: dict[str, Callable[[str], dict[str, Any]]] = {
            "pipelines": lambda name: {"pipeline": name}, "variants": lambda name: {"model": name},
            "tasks": lambda name: {"task": name},
        }  # fmt: skip
        for section, made in kinds.items():
            if said.model in getattr(known, section):
                return made(said.model)
        names = [*known.pipelines, *known.variants, *known.tasks]
        remedy = f"The profile has {', '.join(names)}."
        raise InputError.one(file="--model", value=said.model, why="a model, task or pipeline of it", remedy=remedy)
    if len(known.variants) == 1 and not known.pipelines:
        # By its name: whatever else comes into the files later, no other model answers.
        return {"model": next(iter(known.variants))}
    for field_name, names in (("pipeline", list(known.pipelines)), ("task", list(known.tasks))):
        if len(names) == 1:
            return {field_name: names[0]}
        if names:
            remedy = f"Name one: --model {' or --model '.join(names[:5])}."
            raise InputError.one(file="--profile", why=f"which {field_name} is asked for", remedy=remedy)
    return {"models": list(known.variants)}


def _of_settings(said: Said, path: Path) -> Made:
    from hetplan.profiles.csv_rows import as_id
    from hetplan.profiles.first_settings import read_settings_table, settings_files

    machines = list(machines_of(said).values())
    if len(machines) != 1:
        remedy = "Give one --machine NAME=PRICE, the one on which the table was measured."
        raise InputError.one(file="--machine", value=", ".join(one.name for one in machines), why="one kind of machine",
                             remedy=remedy)  # fmt: skip
    demand, horizon, found = _demand(said)
    if horizon:
        remedy = "Use --rate in place of --rates."
        raise InputError.one(file="--rates", why="one rate: settings are not planned over time", remedy=remedy)
    from hetplan.profiles.slo import LatencyTarget

    percentile, max_ms = _limit(said)
    wish: dict[str, Any] = {"latency": {LatencyTarget("response", percentile, max_ms).key: max_ms}, **demand}
    if said.quality is not None:
        wish["quality"] = {"min": said.quality}
    app = as_id(said.app or said.model or "app")
    profile, slo, measured, assumed = settings_files(read_settings_table(path), machines[0], app, wish, said.budget)
    return Made(slo, profile, measured, assumed=[*found, *assumed])


def together(made: Made, profile: Mapping[str, Any] | None, slo: Mapping[str, Any], place: str) -> Made:
    """The files that are there with one more application: a fleet, planned on one bill."""
    from hetplan.profiles.merge import merge

    if made.measured is not None or "max goodput" in made.slo["objective"]:
        raise InputError.one(file="--add", why="an application that is rented for, by a rate or rates",
                             remedy="Write settings and workers that are there to a folder of their own.")  # fmt: skip
    ((app, wish),) = made.slo["apps"].items()
    if app in slo.get("apps", {}):
        remedy = "Name this one otherwise: --app NAME."
        raise InputError.one(file=place, path="$.apps", value=app, why="no application of this name yet", remedy=remedy)
    whole = dict(slo)
    for section in ("horizon", "limits"):
        new, old = made.slo.get(section), slo.get(section)
        if new is not None and old is not None and new != old:
            remedy = "Give records of one step and length, and a budget once, for all together."
            raise InputError.one(file=place, path=f"$.{section}", value=str(new), why=f"not {old}", remedy=remedy)
        if new is not None:
            whole[section] = new
    named = (("the profile that is there", profile), ("what is added", made.profile))
    joined, _, faults = merge([(name, document) for name, document in named if document is not None])
    if faults:
        raise InputError(faults)
    whole |= {"format": max(str(slo["format"]), str(made.slo["format"])), "objective": "min cost"}
    whole["apps"] = {**slo["apps"], app: wish}
    assumed = [*made.assumed, "all applications together cost as little as can be (objective)"]
    return Made(whole, joined, beside=made.beside, assumed=assumed, odd=made.odd)
