"""The first profile of somebody who serves a language model: its name or its `config.json`, and names of GPUs.

Nothing is measured then. Each engine says what its law rests on: a law of the catalogue, one of a sibling card, what
the engine reaches of the card with other models, or data sheets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.profiles.cards import Card, Room, card_of_text, cards, room_of
from hetplan.profiles.catalogue import REALITY, engine_document
from hetplan.profiles.csv_rows import as_id
from hetplan.profiles.engines import IterationLaw
from hetplan.profiles.estimated_laws import Way, grid_of, law_of
from hetplan.profiles.first_files import Machine
from hetplan.profiles.language_models import (
    LanguageModel,
    model_named,
    model_of_config,
    precision_of_config,
    precision_of_text,
)
from hetplan.profiles.law_review import doubt_of, iteration_ms, times_the_floor
from hetplan.profiles.new_files import engine_run, model_of, new_profile, price_of
from hetplan.profiles.read_json import read_json

if TYPE_CHECKING:
    from hetplan.profiles.tables import Table

__all__ = ["first_size", "lengths_of", "read_tokens", "text_profile"]

_DEGREES = (1, 2, 4, 8, 16)
_OFFERED = {"bf16": ("bf16", "fp8"), "fp8": ("fp8",), "fp4": ("fp4",)}
"""Precisions by that of the published weights. Four bits are offered where somebody names them: --model NAME-fp4."""
_ROLES = ["prefill", "decode"]
COUNTED = "GPU"
"""In place of a currency: what a plan costs is how many GPUs it takes."""


@dataclass(frozen=True)
class _Served:
    """One way to serve the model on machines of one type."""

    hardware: str
    way: Way
    engine: dict[str, Any]

    @property
    def at(self) -> dict[str, int]:
        """How layers are split: each over so many GPUs, experts over these, attention by requests."""
        gpus, parallel = self.way.gpus, self.way.parallel
        split = {"expert": gpus} if parallel == "ep" else {"expert": gpus, "data": gpus} if parallel == "dp+ep" else {}
        return {"tensor": gpus, **split} if gpus > 1 else {}

    @property
    def name(self) -> str:
        way = self.way
        return as_id(f"{way.model}-{way.precision}-{way.gpu}x{way.gpus}-{way.parallel}")


def text_profile(
    model: str | None, config: Path | None, machines: Sequence[Machine], *, engine: str, longest: int,
    kv_link_mbps: float | None = None,
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """The profile of a model on known GPUs, by its name or its `config.json`; and what it takes for granted.

    Every degree within a machine, every way to split and every precision is there that leaves KV room for the longest
    request, each by the best law that is known of it. No price at all: each GPU counts as one. With a link for KV each
    machine is there three times: for whole requests, for their prefill, for their decoding.
    """
    name, held, precisions, own = _model(model, config)
    if engine not in REALITY:
        raise InputError.one(file="--engine", value=engine, why="an engine whose laws ship with hetplan",
                             remedy=f"Known are {', '.join(REALITY)}.")  # fmt: skip
    count_gpus = _check_machines(machines)
    stocked = [one.name for one in machines if one.stock is not None and kv_link_mbps is not None]
    if stocked:
        why = "no stock beside --kv-link: a machine is there three times, for each role, and would be counted so"
        raise InputError.one(file="--machine", value=stocked[0], why=why, remedy="Write limits in the SLO instead.")
    sizes = dict[tuple[str, Card, int], Machine]()
    for machine in machines:
        for size in _sizes(machine):  # a machine that is named has its own price, in any order
            sizes[size] = machine if machine.name == size[0] else sizes.get(size, machine)
    served: dict[tuple[str, str], _Served] = {}
    for (hardware, card, gpus), machine in sizes.items():
        for degree, precision in product(_DEGREES, precisions):
            if (
                degree > gpus
                or (machine.name != hardware and degree != gpus)
                or not (card.flops[precision] or precision == precisions[0])
            ):
                continue
            found = _ways(name, held, own, precision, card, degree, hardware, engine, longest)
            served |= {(hardware, one.name): one for one in found}
    if not served:
        least = {one: held.weight_bytes(one) / 1e9 for one in precisions}
        raise InputError.one(
            file="--machine", value=", ".join(one.name for one in machines),
            why=f"room for {longest:,} tokens beside {' or '.join(f'{gb:.0f} GB ({p})' for p, gb in least.items())}",
            remedy="Use larger GPUs, or several as one machine: h200x8; with a stock, too: h200x8=28:2.",
        )  # fmt: skip
    used = {hardware for hardware, _ in served}
    prices = {
        hardware: _price(one, hardware, gpus, count_gpus=count_gpus) for (hardware, _, gpus), one in sizes.items()
    }
    runs: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for one in served.values():
        model_id = as_id(f"{name}-{one.way.precision}") if len(precisions) > 1 else name
        run = engine_run(**one.engine) | ({"at": one.at} if one.at else {})
        runs.setdefault(model_id, []).append((one.hardware, run))
    offered = {one: {"provides": {"gpu": gpus}, **prices[one]} for one, _, gpus in sizes if one in used}
    if kv_link_mbps is not None:
        _add_roles(offered, runs)
    profile = new_profile(
        {"name": "laws", "kind": "assumed", "tool": "hetplan init", "note": "no time was measured"},
        currency=COUNTED if count_gpus else None,
        tiers=_ROLES if kv_link_mbps is not None else None,
        machines=offered,
        links=[{"between": _ROLES, "bandwidth_mbps": kv_link_mbps}] if kv_link_mbps is not None else None,
        models={model_id: model_of(name, model_id, several) for model_id, several in runs.items()},
    )
    doubts = {one.name: doubt_of(_times_the_floor(one, held)) for one in served.values()}
    has_roles = kv_link_mbps is not None
    said = _assumed_of(served.values(), doubts, count_gpus=count_gpus, has_roles=has_roles)
    return profile, list(said)


def _add_roles(machines: dict[str, Any], runs: Mapping[str, list[tuple[str, dict[str, Any]]]]) -> None:
    """Each machine once more for prefill and once more for decoding."""
    for name, machine in list(machines.items()):
        machine["tier"] = "decode"
        machines |= {f"{name}-{role}": {**machine, "tier": role} for role in _ROLES}
    for several in runs.values():
        several += [(f"{one}-{role}", {**run, "role": role}) for (one, run), role in product(list(several), _ROLES)]


def _model(text: str | None, config: Path | None) -> tuple[str, LanguageModel, tuple[str, ...], LanguageModel | None]:
    """The name, the sizes, the precisions; the sizes again where the catalogue does not know the model."""
    if config is None:
        name, held = model_named(text or "", file="--model")
        said = precision_of_text(text or "")
        if said is None:
            raise InputError.one(file="--model", value=text or "", why="weights of 16 bits, fp8 or fp4",
                                 remedy="Nothing is known of the times of others: measure them.")  # fmt: skip
        named = any(one in (text or "").lower() for one in _OFFERED)
        return name, held, (said,) if named else _OFFERED[precision_of_text(name) or "bf16"], None
    said_of = read_json(config, file=str(config))
    held = model_of_config(said_of, file=str(config))
    return as_id(text or "model"), held, (precision_of_config(said_of, file=str(config)),), held


def _check_machines(machines: Sequence[Machine]) -> bool:
    """Whether GPUs are counted, as no machine has a price; prices of some but not all are refused."""
    if not machines:
        remedy = f"Add --machine h100=2.50, with your price; known are {', '.join(cards())}."
        raise InputError.one(file="--machine", why="the GPUs that can be rented", remedy=remedy)
    for one in machines:
        if card_of_text(one.name) is None:
            known = f"Known are {', '.join(cards())}, several as in h100x2."
            remedy = f"{known} Write a data sheet for others (docs/howto/exchange.md)."
            raise InputError.one(file="--machine", value=one.name, why="a GPU whose data sheet is known", remedy=remedy)
    without = [one.name for one in machines if one.price is None]
    if without and len(without) < len(machines):
        why, remedy = "a price of every machine, or of none", f"Write --machine {without[0]}=PRICE, per GPU and hour."
        raise InputError.one(file="--machine", value=without[0], why=why, remedy=remedy)
    return bool(without)


def _sizes(machine: Machine) -> Iterator[tuple[str, Card, int]]:
    """Machines that are rented: as named; of a GPU alone, without a stock, each size that its nodes allow."""
    card, many = card_of_text(machine.name) or (None, 0)
    assert card is not None
    if many > 1 or machine.stock is not None or re.search(r"x1$", machine.name):
        yield machine.name, card, many
        return
    for degree in _DEGREES:
        if degree <= card.node:
            yield f"{machine.name}x{degree}", card, degree


def _price(machine: Machine, hardware: str, gpus: int, *, count_gpus: bool) -> dict[str, Any]:
    each = Decimal(1) if count_gpus else Decimal(str(machine.price))
    price = each * (gpus if count_gpus or hardware != machine.name else 1)
    stock = {"stock": machine.stock} if machine.stock is not None else {}
    return {"price_per_hour": price_of(price), **stock}


def _ways(
    name: str, held: LanguageModel, own: LanguageModel | None, precision: str, card: Card, gpus: int, hardware: str,
    engine: str, longest: int,
) -> list[_Served]:  # fmt: skip
    """The ways to split a model over so many GPUs; one that another beats at every load is left out."""
    found: list[_Served] = []
    for parallel in ("tp", "ep", "dp+ep") if held.experts and gpus > 1 else ("tp",):
        way = Way(name, precision, card.name, gpus, parallel, engine)
        law, ranks = law_of(way, own), gpus if parallel == "dp+ep" else 1
        room = room_of(held, precision, card, gpus, ranks=ranks)
        if law is None or room is None or room.error >= 1.0 or room.tokens // ranks < longest:
            continue
        if parallel == "ep" and law["basis"] in ("efficiencies", "datasheet"):
            continue  # sizes do not tell it from tp
        found.append(_Served(hardware, way, engine_document(law, room, precision, gpus, engine)))
    return [one for one in found if not any(_beats(other, one) for other in found if other is not one)]


def _times_the_floor(one: _Served, held: LanguageModel) -> float:
    law, way = IterationLaw.model_validate(one.engine["law"]), one.way
    return times_the_floor(law, held, way.precision, cards()[way.gpu], way.gpus) if way.parallel != "dp+ep" else 0.0


def _beats(one: _Served, other: _Served) -> bool:
    """Whether a way is faster by its law, with room for its error, at every load, and holds no fewer tokens."""
    laws = [IterationLaw.model_validate(each.engine["law"]) for each in (one, other)]
    times = [[iteration_ms(law, *at) * (1.0 + (law.error_mean or 0.0)) for at in grid_of()] for law in laws]
    slower = any(mine > theirs for mine, theirs in zip(*times, strict=True))
    return not slower and times[0] != times[1] and one.engine["kv_tokens"] >= other.engine["kv_tokens"]


def first_size(table: Table) -> dict[str, float]:
    """The first size at which a table of rates has any, on its axes of tokens."""
    axes = {name: steps for name, steps in table.axes.items() if name in ("input_tokens", "output_tokens")}
    sizes = [dict(zip(axes, steps, strict=True)) for steps in product(*axes.values())]
    found = (size for size in sizes if ((table.on_grid([size], table.mean) or [None])[0] or 0.0) > 0.0)
    return next(found, sizes[0])


def read_tokens(text: str) -> dict[str, Any]:
    """Lengths of requests as the command line has them: IN:OUT=SHARE,...

    >>> read_tokens("150:60=0.2,1000:400=0.8")["bins"]
    [[150, 60], [1000, 400]]
    """
    bins, shares = [], []
    for point in text.split(","):
        lengths, _, share = point.partition("=")
        coming, _, going = lengths.partition(":")
        try:
            pair, part = [int(coming), int(going)], float(share or "1")
        except ValueError:
            pair, part = [0, 0], 0.0
        if min(pair) < 1 or not 0 < part < math.inf:
            remedy = "Write IN:OUT, or IN:OUT=SHARE,...: 400:200, or 150:60=0.2,1000:400=0.8."
            raise InputError.one(file="--tokens", value=text, why="tokens in and out of requests", remedy=remedy)
        bins.append(pair)
        shares.append(part)
    shares = [float(f"{share / sum(shares):.9g}") for share in shares]
    return {"axes": ["input_tokens", "output_tokens"], "bins": bins, "share": shares}


def lengths_of(path: Path) -> tuple[dict[str, Any], float]:
    """The lengths of a record of requests, and how many came a second."""
    from hetplan.profiles.imports.token_traces import convert

    app = convert(path)[1]["apps"]["text"]
    return app["mix"], app["rate_qps"]


def _assumed_of(
    served: Iterable[_Served], doubts: Mapping[str, str], *, count_gpus: bool, has_roles: bool
) -> Iterator[str]:
    """What a profile by names takes for granted: of each engine its law, with its basis and error, and its KV room."""
    for name, engine in {one.name: one.engine for one in served}.items():
        law, room = engine["law"], Room(engine["kv_tokens"], engine["kv_bytes_per_token"], engine["kv_error"])
        doubt = doubts.get(name, "")
        source = str(law["source"]).removeprefix("catalogue/")
        yield f"{name}: {law['basis']} ({source}), +-{law['error_mean']:.0%}; {room}{'; ' * bool(doubt)}{doubt}"
    if has_roles:
        yield "machines that prefill, that decode and that do both cost the same (tier, role, links)"
    if count_gpus:
        yield "no price was given, so plans take the fewest GPUs (price_per_hour: each costs 1)"
    else:
        yield "GPUs of a kind cost the same in machines of any size (price_per_hour)"
