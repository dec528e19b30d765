"""The first profile and SLO of somebody who has models, prices and a table of latencies (`hetplan init`).

The table alone asks for the cheapest machines. With a column of steps it is a pipeline, with workers that are given a
policy, with rates over time a fleet. What was not said gets a default, and every default is listed, so that nobody
trusts it unseen.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.profiles.columns import STATISTICS
from hetplan.profiles.csv_rows import as_id
from hetplan.profiles.measurement_tables import read_measurements
from hetplan.profiles.new_files import model_of, new_profile, price_of
from hetplan.profiles.plain_data import whole_if_it_is
from hetplan.profiles.read_json import format_of
from hetplan.profiles.slo import LatencyTarget

__all__ = [
    "MOST_SERVERS",
    "Answers",
    "Latencies",
    "Machine",
    "Timing",
    "comments_on",
    "first_files",
    "read_edge",
    "read_latencies",
    "read_machine",
    "read_timings",
    "read_workers",
]

_NOT_ASKED = {"mean_qps", "max_qps", "load_s", "samples"}
"""Columns of measurements that a first profile has no place for."""
MOST_SERVERS = 20
"""As many servers of a kind a pipeline may have, where nobody says how many."""


@dataclass(frozen=True)
class Machine:
    """A kind of machine that can be rented; `price` is per hour, as written."""

    name: str
    price: str | None = None
    stock: int | None = None
    kind: str = "gpu"


@dataclass(frozen=True)
class Timing:
    """How long a model takes for one batch on one hardware, by statistic, in ms."""

    model: str
    hardware: str
    batch: int
    ms: Mapping[str, float]


@dataclass(frozen=True)
class Latencies:
    """What a table of latencies says: times, and by model or machine what else it names."""

    timings: list[Timing] = field(default_factory=list)
    quality: dict[str, float] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    steps: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Answers:
    """All that was said; `steps` are those of the models, `edges` how many queries one step sends to another.

    `demand` has how much comes and how: a rate per period where `horizon` says how long a period is.
    """

    machines: Sequence[Machine]
    timings: Sequence[Timing]
    demand: Mapping[str, Any]
    percentile: float
    max_ms: float
    app: str = ""
    quality: Mapping[str, float] = field(default_factory=dict)
    least_quality: float | None = None
    cost_per_hour: str | None = None
    currency: str = "USD"
    steps: Mapping[str, str] = field(default_factory=dict)
    edges: Mapping[tuple[str, str], float] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)
    horizon: Mapping[str, Any] = field(default_factory=dict)


def read_machine(text: str) -> Machine:
    """A machine as the command line has it: NAME, NAME=PRICE or NAME=PRICE:STOCK.

    >>> read_machine("t4=0.526:20")
    Machine(name='t4', price='0.526', stock=20, kind='gpu')
    """
    name, _, rest = text.partition("=")
    price, _, stock = rest.partition(":")
    price = f"0{price}" if price.startswith(".") else price
    right = re.fullmatch(r"[0-9]+(\.[0-9]+)?", price) if price else "=" not in text
    if not name.strip() or not right or (stock and not stock.isdigit()):
        remedy = "Write NAME=PRICE or NAME=PRICE:STOCK, the price per hour: t4=0.526 or t4=0.526:20."
        raise InputError.one(file="--machine", value=text, why="a machine and its price", remedy=remedy)
    return Machine(as_id(name), price or None, int(stock) if stock else None, _kind(as_id(name)))


def read_timings(text: str, model: str) -> list[Timing]:
    """Latencies as the command line has them: HARDWARE:BATCH=MS,BATCH=MS; without a batch it is 1.

    >>> [(one.batch, one.ms["mean"]) for one in read_timings("t4:1=6,8=24", "m")]
    [(1, 6.0), (8, 24.0)]
    """
    hardware, _, points = text.partition(":")
    found = []
    for point in points.split(","):
        batch, _, ms = point.rpartition("=")
        try:
            size, time = int(batch or "1"), float(ms)
        except ValueError:
            size, time = 0, 0.0
        if not hardware.strip() or size < 1 or not 0 < time < math.inf:
            remedy = "Write HARDWARE:BATCH=MS,...: t4:1=6,8=24."
            raise InputError.one(file="--ms", value=text, why="batches and how long each takes in ms", remedy=remedy)
        found.append(Timing(model, as_id(hardware), size, {"mean": time}))
    return found


def read_workers(text: str) -> tuple[str, int]:
    """Workers that are there, as the command line has them: HARDWARE=COUNT.

    >>> read_workers("cpu4=6")
    ('cpu4', 6)
    """
    name, _, count = text.partition("=")
    if not name.strip() or not count.isdigit() or int(count) < 1:
        remedy = "Write HARDWARE=COUNT: cpu4=6."
        raise InputError.one(
            file="--workers", value=text, why="a kind of machine and how many there are", remedy=remedy
        )
    return as_id(name), int(count)


def read_edge(text: str) -> tuple[tuple[str, str], float]:
    """How many queries one step sends to another, as the command line has it: FROM:TO=FANOUT.

    >>> read_edge("detect:car=1.6")
    (('detect', 'car'), 1.6)
    """
    ends, _, many = text.partition("=")
    begin, _, end = ends.partition(":")
    try:
        fanout = float(many or "1")
    except ValueError:
        fanout = math.nan
    if not begin.strip() or not end.strip() or not 0 < fanout < math.inf:
        why = "two steps, and queries of the second for each of the first"
        raise InputError.one(file="--edge", value=text, why=why, remedy="Write FROM:TO=HOW MANY: detect:car=1.6.")
    return (as_id(begin), as_id(end)), fanout


def read_latencies(path: Path, model: str | None = None) -> Latencies:
    """A CSV of latencies, with the models' qualities and steps and the machines' prices; every wrong cell at once.

    Where the table names its models, `model` is the one of them that is taken.
    """
    found, faults = Latencies(), list[Fault]()
    for row in read_measurements(path, model=model):
        if set(row.at) != {"batch"} or set(row.said) & _NOT_ASKED:
            name = next(iter([*(row.at.keys() - {"batch"}), *sorted(row.said.keys() & _NOT_ASKED)]), "batch")
            why, remedy = "times by batch alone, for `hetplan init`", "Write the profile, and name the table there."
            faults.append(Fault(str(path), f"line {row.line}, {name}", "", why, remedy))
        ms: dict[str, float] = {stat: row.said[f"{stat}_ms"] for stat in STATISTICS if f"{stat}_ms" in row.said}
        found.timings.append(Timing(row.model, row.machine, int(row.at.get("batch", 1)), ms))
        if "quality" in row.said:
            found.quality[row.model] = row.said["quality"]
        if row.step is not None:
            found.steps[row.model] = row.step
        if "price_per_hour" in row.said:
            price = f"{row.said['price_per_hour']:.9f}".rstrip("0").rstrip(".")
            found.machines[row.machine] = Machine(row.machine, price, None, _kind(row.machine))
    if faults:
        raise InputError(faults)
    return found


def first_files(said: Answers) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The profile, the SLO, and what was assumed.

    >>> timings = read_timings("t4:1=6,8=24", "resnet")
    >>> said = Answers([read_machine("t4=0.526")], timings, {"rate_qps": 100}, 99, 60)
    >>> profile, slo, assumed = first_files(said)
    >>> profile["models"]["resnet"]["runs"]["t4"]["mean_ms"], slo["apps"]["resnet"]["rate_qps"]
    ([6.0, 24.0], 100)
    """
    models = list(dict.fromkeys(one.model for one in said.timings))
    machines = {one.name: one for one in said.machines}
    missing = [*said.workers, *(one.hardware for one in said.timings)]
    machines |= {name: Machine(name, kind=_kind(name)) for name in missing if name not in machines}
    unmeasured = sorted(machines.keys() - {one.hardware for one in said.timings})
    if unmeasured:
        raise InputError.one(
            file=", ".join(f"--machine {name}" for name in unmeasured), why="latencies of each machine",
            remedy=f"Add --ms {unmeasured[0]}:1=MS, or lines to the table.",
        )  # fmt: skip
    app = as_id(said.app) if said.app else models[0] if len(models) == 1 else "app"
    _check_qualities(said, models)
    tasks = list(dict.fromkeys(said.steps.values())) or [app]
    priced = any(one.price is not None for one in machines.values())
    profile = new_profile(
        {"name": "own", "kind": "measured", "note": "given to hetplan init"},
        currency=said.currency if said.currency != "USD" and priced else None,
        machines={name: _machine(one, said) for name, one in machines.items()},
        models={model: _model(said, model, said.steps.get(model, app), machines) for model in models},
        pipelines={app: _pipeline(tasks, said.edges)} if said.steps else {},
    )
    named = {"models": models} if len(models) > 1 else {"model": models[0]}
    wish: dict[str, Any] = {
        **({"pipeline": app} if said.steps else {"task": app} if said.workers else named),
        "latency": {LatencyTarget("response", said.percentile, said.max_ms).key: whole_if_it_is(said.max_ms)},
        **said.demand,
    }
    if said.least_quality is not None:
        wish["quality"] = {"min": said.least_quality}
    slo: dict[str, Any] = {"format": format_of("slo"), "objective": _objective(said, machines.values())}
    if limits := _limits(said, machines.values()):
        slo["limits"] = limits
    if said.horizon:
        slo["horizon"] = dict(said.horizon)
    return profile, {**slo, "apps": {app: wish}}, list(_assumed(said, machines.values()))


def _check_qualities(said: Answers, models: Sequence[str]) -> None:
    """Where one of several models is chosen for a query, each needs a quality."""
    many = Counter(said.steps.get(name) for name in models)
    without = [name for name in models if name not in said.quality and (said.workers or many[said.steps.get(name)] > 1)]
    if without and (said.quality or said.workers or said.steps):
        why = "its quality: one of several models is chosen for each query, by how good they are"
        remedy = f"Give --latencies a table with the column quality, a number in every line of {without[0]}."
        raise InputError.one(file="--latencies", path=without[0], why=why, remedy=remedy)


def _pipeline(steps: Sequence[str], edges: Mapping[tuple[str, str], float]) -> dict[str, Any]:
    """Steps with what one sends to another; a chain in their order where no edge was given."""
    unknown = sorted({step for edge in edges for step in edge} - set(steps))
    if unknown:
        raise InputError.one(file="--edge", value=unknown[0], why="a step of the table",
                             remedy=f"The table has {', '.join(steps)}.")  # fmt: skip
    drawn = edges or dict.fromkeys(pairwise(steps), 1.0)
    listed = [{"from": one, "to": other, "fanout": whole_if_it_is(many)} for (one, other), many in drawn.items()]
    return {"stages": {step: {} for step in steps}, **({"edges": listed} if listed else {})}


def _objective(said: Answers, machines: Iterable[Machine]) -> list[str]:
    if said.workers:
        return ["max goodput"]
    least = "min cost" if all(one.price is not None for one in machines) else "min machines"
    best_first = said.steps and said.quality and said.least_quality is None and not said.horizon
    return ["max quality", least] if best_first else [least if said.steps else "min cost"]


def _limits(said: Answers, machines: Iterable[Machine]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if said.cost_per_hour is not None:
        found |= {"cost_per_hour": said.cost_per_hour, "currency": said.currency}
    if said.workers:
        found["instances"] = {name: [count, count] for name, count in said.workers.items()}
    elif said.steps:
        unpriced = {one.name: [0, one.stock or MOST_SERVERS] for one in machines if one.price is None}
        found |= {"instances": unpriced} if unpriced else {}
    return found


def _assumed(said: Answers, machines: Iterable[Machine]) -> Iterator[str]:
    if "arrivals" in said.demand:
        yield "queries come by chance, independent of one another (arrivals: poisson)"
    unpriced = [one.name for one in machines if one.price is None and one.name not in said.workers]
    if unpriced:
        yield f"no price of {', '.join(unpriced)}: without price_per_hour a machine is not rented beside others"
    endless = [one.name for one in machines if one.stock is None]
    if endless and not said.workers:
        steps = f"up to {MOST_SERVERS} machines of {', '.join(endless)} can be rented (stock)"
        yield steps if said.steps else "as many machines as are wanted can be rented (no stock is stated)"
    if said.steps and not said.edges:
        yield "each query passes each step once, in the order of the table (pipelines.edges)"
    if said.steps and not said.quality:
        yield "all models answer equally well (quality 1)"
    elif said.steps and (alone := sorted(said.steps.keys() - said.quality.keys())):
        yield f"quality 1 of {', '.join(alone)}: no other model for that step"
    last = sorted(set(said.steps.values()) - {one for one, _ in said.edges}) if said.edges and said.quality else []
    if len(last) > 1:
        yield f"quality is the mean over the last steps, {', '.join(last)} (docs/howto/pipeline.md)"
    best_first = _objective(said, machines)[0] == "max quality"
    if best_first:
        yield "the best answers come first, then the least cost (objective; --quality asks for the cheapest)"
    if said.workers:
        yield "the most goodput is wanted: quality of answers that are in time (objective)"
    if not any({"std", "p95", "p99"} & one.ms.keys() for one in said.timings):
        yield "a batch always takes the time that was given (no std_ms or percentiles are stated)"
    if all(one.batch == 1 for one in said.timings):
        yield "queries are served one at a time (no latencies of larger batches)"
    yield "an instance has its machine to itself (runs without needs)"


def _run(said: Answers, model: str, hardware: str) -> dict[str, Any]:
    mine = {one.batch: one.ms for one in said.timings if (one.model, one.hardware) == (model, hardware)}
    batches = sorted(mine)
    stats = [name for name in STATISTICS if batches and all(name in mine[batch] for batch in batches)]
    if batches and stats in ([], ["std"]):
        raise InputError.one(
            file="the latencies", path=f"{model} on {hardware}",
            why="one statistic (mean_ms, p95_ms, ...) of every batch",
            remedy="Fill the column, or take the lines without it out.",
        )  # fmt: skip
    return {"batch": batches, **{f"{name}_ms": [mine[batch][name] for batch in batches] for name in stats}}


def _model(said: Answers, model: str, task: str, machines: Iterable[str]) -> dict[str, Any]:
    runs = [(name, run) for name in machines if (run := _run(said, model, name))["batch"]]
    value = said.quality.get(model, 1.0 if said.steps else None)
    return model_of(task, model, runs, quality={"quality": value} if value is not None else None)


def _machine(machine: Machine, said: Answers) -> dict[str, Any]:
    kind = {"kind": machine.kind} if machine.kind != "cpu" else {}
    if machine.price is None:
        return kind
    most = machine.stock if machine.stock is not None else MOST_SERVERS if said.steps else None
    return {**kind, "price_per_hour": price_of(machine.price), **({"stock": most} if most is not None else {})}


def _kind(hardware: str) -> str:
    return "cpu" if "cpu" in hardware else "gpu"


def comments_on(document: Mapping[str, Any], assumed: Sequence[str]) -> dict[tuple[str | int, ...], str]:
    """What a reader of a first file wants to know, by its place; what was assumed is at the top."""
    kind = str(document["format"]).split("/")[1]
    top = {"profile": "What was measured: machines, prices, models and their times.",
           "slo": "What is wanted: how fast, how many, for how much."}  # fmt: skip
    found: dict[tuple[str | int, ...], str] = {
        (): "\n".join([top[kind], "Assumed, because you did not say otherwise:", *(f"- {text}" for text in assumed)]),
        ("machines",): "price_per_hour of a machine; stock: how many can be had (left out: any number)",
        ("models",): "what may run where: mean_ms that a batch takes, by its size; std_ms, p95_ms and p99_ms may be "
        "given too, and needs of a run would let machines be shared",
        ("objective",): "the first that is minimised or maximised; more may follow",
        ("limits",): "what may be spent, at most",
    }
    for name in document.get("apps", {}):
        found["apps", name, "latency"] = "p99_ms: 99% of the queries are answered within so many ms"
        found["apps", name, "rate_qps"] = "queries per second"
    return found
