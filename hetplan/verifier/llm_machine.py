"""What one machine that makes text carries, written down from the inputs: for those who share machines after a failure.

A type is a variant on a hardware; a machine of it runs g instances. Columns: ``n[type]``, parts of the machine;
``m[type]`` iterations per second; ``x[class s on type]`` requests per second; ``rate[all]``, their rate in all. Classes
are requests that come in one bin, fit the same types, and are late on the same types. Rows:

``busy[type piece k]``        g n - base m - sum of x seconds >= 0
``room``, ``batch``, ``sequences``    what the engine holds x m - sum of x what a request takes >= 0
``link[type]``                g n - sum of x tokens in x seconds per token >= 0, of machines that only prefill
``served[class s]``           sum of x where requests begin = share x rate
``handed over[class s]``      sum of x on machines that decode = sum of x on those that prefill
``late[limit]``               sum of x that miss the limit even alone <= the share that may x rate
``machines[hardware]``        sum of n <= what the machine is of it
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hetplan.profiles.slo import LatencyTarget
from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.demand import wanted_rate
from hetplan.verifier.facts import Facts
from hetplan.verifier.llm import Seated, Size, has_room, prefill_ms, row_loads, sizes_of, slowed
from hetplan.verifier.rows import NoProof, Rows

__all__ = ["Carried"]

_SAME = 1.0 + 1e-9


@dataclass(frozen=True)
class _Type:
    """A variant on a hardware."""

    name: str
    seat: Seated
    needs: dict[str, float]
    """What one instance takes of a machine."""

    @property
    def instances(self) -> int:
        return self.seat.load.instances


MOST = 10**9
"""A load has so many instances at most."""


class _Fleet:
    def __init__(self, facts: Facts) -> None:
        self.facts, self.profile, self.limits = facts, facts.inputs.profile, facts.inputs.slo.limits
        if len(facts.inputs.slo.apps) != 1:
            raise NoProof("a fleet serves one application")
        ((self.app, self.wish),) = facts.inputs.slo.apps.items()
        rate = wanted_rate(self.wish)
        if rate is None:
            raise NoProof("the wish states no rate")
        self.rate = rate
        self.sizes, self.weights = sizes_of(self.wish)
        self.types = list(self._types())

    def _types(self) -> Iterator[_Type]:
        floor = self.wish.quality.min if self.wish.quality is not None else None
        for variant in self._variants():
            known = self.profile.variants[variant]
            if floor is not None and (known.quality is None or known.quality.value < floor):
                continue
            for run in known.runs:
                engine = self.profile.engines.get(run.engine or "")
                if engine is None or not self._is_sold(run.hardware):
                    continue
                gpus = self.profile.hardware[run.hardware].provides.get("gpu", 1.0)
                instances = int(gpus / (engine.tensor * engine.pipeline) * _SAME)
                provides = self.profile.hardware[run.hardware].provides
                for name, amount in run.needs.items() if provides else ():
                    if name != "gpu" and amount > 0:
                        instances = min(instances, int(provides.get(name, 0.0) / amount * _SAME))
                if instances < 1:
                    continue
                if instances > MOST:
                    raise NoProof(f"{instances} instances on a machine are more than a plan may have")
                load = Load(id="any", app=self.app, variant=variant, at=dict(run.at), instances=instances)
                at = "".join(f",{axis}={value:g}" for axis, value in run.at.items())
                seat = Seated(Worker(id="any", hardware=run.hardware, loads=(load,)), load, engine)
                needs = {**run.needs, "gpu": float(engine.tensor * engine.pipeline)}
                yield _Type(f"{variant}@{run.hardware}{at}", seat, needs)

    def _variants(self) -> list[str]:
        runs, known = self.wish.runs, self.profile.variants
        if runs is None:
            return sorted(known)
        if runs.variants is not None:
            return list(runs.variants)
        return sorted(
            name
            for name, one in known.items()
            if (one.family in runs.families if runs.families is not None else one.task == runs.task)
        )

    def _is_sold(self, hardware: str) -> bool:
        """Whether a hardware may be had at all."""
        offers = self.profile.offers
        return not offers or hardware in {one.hardware for one in offers.values()}

    @cached_property
    def per_token_s(self) -> float:
        """Seconds that the KV of a token takes from machines that prefill to those that decode."""
        tiers = {one.name: self.profile.hardware[one.seat.worker.hardware].tier for one in self.types}
        prefill, decode = ([t for t in self.types if t.seat.engine.role == role] for role in ("prefill", "decode"))
        found = [
            (one.seat.engine.kv_bytes_per_token or 0.0) * 8.0 / (link.bandwidth_mbps * 1e6)
            for one in prefill
            for other in decode
            for link in self.profile.links
            if set(link.between) == {tiers[one.name], tiers[other.name]}
        ]
        return max(found, default=0.0)

    def first_ms(self, one: _Type, size: Size) -> float:
        """The time to the first token on an empty machine; infinite where the request does not fit."""
        if not has_room(one.seat, size):
            return math.inf
        alone = prefill_ms(one.seat, size) if one.seat.engine.role != "decode" else 0.0
        return alone + (size[0] * self.per_token_s * 1000.0 if one.seat.engine.role == "prefill" else 0.0)

    def is_late(self, target: LatencyTarget, one: _Type, size: Size) -> bool:
        """Whether a request misses a limit on this type even alone."""
        decodes = one.seat.engine.role != "prefill"
        step = max(p.base_ms + p.token_ms + p.kv_token_ms + p.sequence_ms for p in one.seat.engine.pieces)
        if target.of == "tpot":
            return decodes and step > target.max_ms * _SAME
        after = (size[1] - 1) * step if target.of == "response" and decodes else 0.0
        return self.first_ms(one, size) + after > (target.max_ms - self.wish.network_ms_per_hop) * _SAME

    @cached_property
    def classes(self) -> list[tuple[list[Size], list[float], list[bool], list[list[bool]]]]:
        """Sizes and weights of each class, on which types it fits, and for each limit on which types it is late."""
        parts: dict[tuple[object, ...], tuple[list[Size], list[float], list[bool], list[list[bool]]]] = {}
        for number, (size, weight) in enumerate(zip(self.sizes, self.weights, strict=True)):
            fits = [has_room(one.seat, size) for one in self.types]
            late = [[self.is_late(target, one, size) for one in self.types] for target in self.wish.latency]
            key = (self._bin(number, size), *fits, *(each for row in late for each in row))
            sizes, weights, *_ = parts.setdefault(key, ([], [], fits, late))
            sizes.append(size)
            weights.append(weight)
        return [parts[key] for key in sorted(parts)]

    def _bin(self, number: int, size: Size) -> int:
        """The bin of a request: its own place where bins are drawn from, else the smallest that holds it."""
        mix = self.wish.demand.mix
        assert mix is not None  # else the files do not ask the question
        if mix.observed is None:
            return number
        names = [("input_tokens", "output_tokens", "cached_tokens").index(axis) for axis in mix.axes]
        order = sorted(range(len(mix.bins)), key=lambda k: (sum(mix.bins[k]), -k))
        holds = (k for k in order if all(size[n] <= most for n, most in zip(names, mix.bins[k], strict=True)))
        return next(holds, -1)

    def _capacity(self, program: Rows, number: int, one: _Type) -> None:
        """What a type's machines do in time, hold and batch."""
        mine = [(s, sizes, weights) for s, (sizes, weights, fits, _) in enumerate(self.classes) if fits[number]]
        loads = {f"x[class {s} on {one.name}]": row_loads(one.seat, sizes, weights) for s, sizes, weights in mine}
        time = {f"n[{one.name}]": float(one.instances)}
        engine, rounds = one.seat.engine, f"m[{one.name}]"
        for k, piece in enumerate(engine.pieces):
            taken = {x: -load[k] for x, load in loads.items()}
            program.row(f"busy[{one.name} piece {k}]", {**time, rounds: -piece.base_ms / 1000.0, **taken}, low=0.0)
        holds = {"room": engine.kv_tokens, "batch": engine.most_tokens, "sequences": engine.most_seqs}
        for k, (name, most) in enumerate(holds.items(), start=len(engine.pieces)):
            taken = {x: -load[k] for x, load in loads.items()}
            program.row(f"{name}[{one.name}]", {rounds: float(most), **taken}, low=0.0)
        if engine.role == "prefill":
            taken = {}
            for s, sizes, weights in mine:
                tokens = math.fsum(size[0] * weight for size, weight in zip(sizes, weights, strict=True))
                taken[f"x[class {s} on {one.name}]"] = -tokens / math.fsum(weights) * self.per_token_s
            program.row(f"link[{one.name}]", {**time, **taken}, low=0.0)

    def _served(self, program: Rows, shares: Sequence[float]) -> None:
        """Every class is served, its first tokens and those after; few enough are late."""
        late: dict[str, tuple[float, dict[str, float]]] = {}
        for s, (_, _, fits, missed) in enumerate(self.classes):
            columns = [
                (number, one.seat.engine.role, f"x[class {s} on {one.name}]")
                for number, one in enumerate(self.types)
                if fits[number]
            ]
            first = {x: 1.0 for _, role, x in columns if role != "decode"}
            program.row(f"served[class {s}]", {**first, "rate[all]": -shares[s]}, low=0.0, high=0.0)
            handed = {x: 1.0 if role == "decode" else -1.0 for _, role, x in columns if role != "mixed"}
            program.row(f"handed over[class {s}]", handed, low=0.0, high=0.0)
            for target, row in zip(self.wish.latency, missed, strict=True):
                name = f"late[{target.of} p{target.percentile:g}]"
                left, slow = late.setdefault(name, (1.0 - target.percentile / 100.0, {}))
                slow.update({x: 1.0 for number, _, x in columns if row[number]})
        for name, (left, slow) in late.items():
            program.row(name, {**slow, "rate[all]": -left}, high=0.0)


class Carried(_Fleet):
    """What one machine carries, whichever it is or of how many parts, for the bounds of fleets.

    Iterations are longer by `slower` times the error of their law; where it is `strict`, nothing goes where it would be
    late even alone.
    """

    def __init__(self, facts: Facts, slower: float, *, strict: bool) -> None:
        super().__init__(facts)
        self.strict = strict
        self.types = [replace(one, seat=slowed(one.seat, slower)) for one in self.types]

    @property
    def hardware(self) -> list[str]:
        """The hardware that the models may run on."""
        return list(dict.fromkeys(one.seat.worker.hardware for one in self.types))

    def program(self, prices: Mapping[str, float], given: Mapping[str, float] | None) -> Rows:
        """The most rate of one machine, less prices of its hardware; `given` says what it is."""
        program, most = Rows("max"), 0.0
        for one in self.types:
            base = max(piece.base_ms for piece in one.seat.engine.pieces) / 1000.0
            rounds = one.instances / base * _SAME if base > 0.0 else math.inf
            hardware = one.seat.worker.hardware
            program.column(f"n[{one.name}]", cost=-prices.get(hardware, 0.0), low=0.0, high=1.0)
            program.column(f"m[{one.name}]", low=0.0, high=rounds)
            most += rounds * float(one.seat.engine.most_seqs) * _SAME
        for hardware in self.hardware if given is not None else ():
            mine = {f"n[{one.name}]": 1.0 for one in self.types if one.seat.worker.hardware == hardware}
            program.row(f"machines[{hardware}]", mine, high=(given or {})[hardware])
        program.column("rate[all]", cost=1.0, low=0.0, high=most)
        total = math.fsum(self.weights)
        for s, (_, _, fits, late) in enumerate(self.classes):
            for number, (one, holds) in enumerate(zip(self.types, fits, strict=True)):
                barred = self.strict and any(row[number] for row in late)
                if holds:
                    program.column(f"x[class {s} on {one.name}]", low=0.0, high=0.0 if barred else most)
        for number, one in enumerate(self.types):
            self._capacity(program, number, one)
        self._served(program, [math.fsum(weights) / total for _, weights, _, _ in self.classes])
        return program
