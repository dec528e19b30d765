"""Which instance gets a request whose answer comes piece by piece: the plan's rule, as the simulator plays it.

`least-work/1`, `round-robin/1` and splits are asked of `hetplan.dispatch`. A request that was prefilled goes to the
machine with the least work of those that decode. Where the plan counts no tokens (streams of other servers), the
instance with the fewest requests gets the next one. An instance that has as many requests as the plan allows it gets
no more; where all have, a request is refused at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hetplan.dispatch.token_kernels import by_shares, least_work, next_in_turn, split_then_fewest
from hetplan.executor.serving.http_client import Upstream
from hetplan.executor.serving.openai_words import Asked
from hetplan.serving.tokens import Requests, TokenLaw

if TYPE_CHECKING:
    from hetplan.executor.serving.applications import Application
    from hetplan.executor.serving.links import Lane

__all__ = ["Instance", "Streaming", "Work"]


class Work(NamedTuple):
    """What a request would take of an instance: alone until its first token, and its work before and after that."""

    alone_ms: float = 0.0
    sooner_ms: float = 0.0
    later_ms: float = 0.0


_REMEMBERED = 4096
_NEVER = 2**62
"""As the cap of an instance that has none."""


class _Costs:
    """A law, and what it says of requests of each length."""

    def __init__(self, law: TokenLaw, output_tokens: float) -> None:
        self._law, self._output = law, output_tokens
        self._known: dict[tuple[int, int], Work] = {}

    def of(self, asked: Asked) -> Work:
        key = (asked.input_tokens, asked.cached_tokens)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            one = Requests.of([(asked.input_tokens, 1, asked.cached_tokens)])
            alone, sooner, later = self._law.outstanding_ms(one, self._output)
            found = self._known[key] = Work(float(alone[0]), float(sooner[0]), float(later[0]))
        return found


class Instance:
    """One engine behind a worker's load, and the work before it by its law, of which `ahead_ms` are prompts."""

    __slots__ = ("ahead_ms", "decodes", "lane", "number", "under_way", "upstream", "work_ms")

    def __init__(self, lane: Lane, number: int, upstream: Upstream) -> None:
        self.lane, self.number, self.upstream = lane, number, upstream
        self.decodes = False
        self.work_ms, self.ahead_ms, self.under_way = 0.0, 0.0, 0


class Streaming:
    """An application whose answers can come piece by piece, and the instances that serve it."""

    def __init__(
        self, app: Application, instances: Sequence[Instance], loads: Mapping[str, Mapping[str, Any]], random: Random
    ) -> None:
        self.app, self.instances, self._random = app, list(instances), random
        dispatch, routes = app.dispatch, app.entry["routes"]
        laws: list[Any] = [loads[one.lane.name].get("tokens") for one in instances]
        self.text = bool(laws) and None not in laws
        self._costs: list[_Costs] = []
        self.ttft_ms: float = dispatch.get("ttft_ms") or inf
        self._serves_all = app.entry["late"] == "serve"
        limit_ms, share = np.full(len(laws), inf), np.zeros(len(laws))
        self._caps = np.full(len(laws), _NEVER)
        if self.text:
            output, target = dispatch.get("output_tokens", 1.0), self.ttft_ms
            shared: dict[str, _Costs] = {}
            for number, (one, law) in enumerate(zip(instances, laws, strict=True)):
                one.decodes = law["role"] == "decode"
                key = json.dumps(law, sort_keys=True)
                if key not in shared:
                    shared[key] = _Costs(TokenLaw.from_dict(law), output)
                self._costs.append(shared[key])
                self._caps[number] = loads[one.lane.name].get("cap", _NEVER)
            names = [one.lane.name for one in instances]
            self._groups = np.array([names.index(name) for name in names], dtype=np.int64)
            limit_ms = np.array([target * dispatch.get("limit", {}).get(name, 1.0) for name in names])
            to = {load: part for route in routes for load, part in route["to"].items()}
            share = np.array([to.get(name, 0.0) / names.count(name) for name in names])
        self._kind, self._limit_ms, self._shares = np.arange(len(laws), dtype=np.int64), limit_ms, share
        weight = dispatch.get("weight", {}) if dispatch["rule"] == "weighted-least/1" else {}
        self._weights = [float(weight.get(one.lane.name, 1.0)) for one in instances]
        split = self._split if dispatch.get("balancing") == "shortest_queue" else self._share
        rules = {"least-work/1": self._least_work, "round-robin/1": self._next, "shares/1": split}
        self._rule: _Rule = rules.get(dispatch["rule"], self._fewest) if self.text else self._fewest
        self._turn = -1

    def choose(
        self, asked: Asked | None, variant: str | None, without: Iterable[Instance], *, decodes: bool = False
    ) -> tuple[Instance, Work] | None:
        """The instance for a request, and what it adds to its work; None where none is up, or takes more.

        `decodes`: its prompt was computed elsewhere, and its KV goes to a machine that only decodes.
        """
        left = set(without)
        may = [
            one.lane.open and one not in left and variant in (None, one.lane.variant) and one.decodes == decodes
            for one in self.instances
        ]
        if not any(may):
            return None
        work = [Work()] * len(may) if not self._costs or asked is None else [costs.of(asked) for costs in self._costs]
        rule = self._least_work if decodes else self._rule
        place = rule(np.array(may, dtype=np.int64), work)
        return (self.instances[place], work[place]) if place >= 0 else None

    def full(self, variant: str | None) -> bool:
        """Whether every instance that is up has as many requests as the plan allows it."""
        up = [
            one.under_way >= cap
            for one, cap in zip(self.instances, self._caps, strict=True)
            if one.lane.open and not one.decodes and variant in (None, one.lane.variant)
        ]
        return bool(up) and all(up)

    @property
    def _under_way(self) -> NDArray[np.int64]:
        return np.array([one.under_way for one in self.instances], dtype=np.int64)

    def hopeless(self, asked: Asked | None, variant: str | None) -> bool:
        """Whether the prompts before it keep every engine busy for longer than a first token may take."""
        if self._serves_all or not self._costs or asked is None or self.ttft_ms == inf:
            return False
        up = [
            one.ahead_ms > 0.0 and one.ahead_ms + costs.of(asked).alone_ms > self.ttft_ms
            for one, costs in zip(self.instances, self._costs, strict=True)
            if one.lane.open and not one.decodes and variant in (None, one.lane.variant)
        ]
        return bool(up) and all(up)

    def _least_work(self, open_to: NDArray[np.int64], work: Sequence[Work]) -> int:
        table, before = np.array(work), np.array([one.work_ms for one in self.instances])
        new = table[:, 1] + table[:, 2]
        now = self._under_way
        return least_work(before, self._kind, open_to, now, self._caps, table[:, 0], self._limit_ms, new)

    def _next(self, open_to: NDArray[np.int64], work: Sequence[Work]) -> int:
        del work
        self._turn = next_in_turn(self._turn, self._kind, open_to, self._under_way, self._caps)
        return self._turn

    def _share(self, open_to: NDArray[np.int64], work: Sequence[Work]) -> int:
        del work
        return by_shares(self._random.random(), self._kind, open_to, self._under_way, self._caps, self._shares)

    def _split(self, open_to: NDArray[np.int64], work: Sequence[Work]) -> int:
        del work
        drawn, now = self._random.random(), self._under_way
        return split_then_fewest(drawn, self._groups, self._kind, open_to, now, self._caps, self._shares)

    def _fewest(self, open_to: NDArray[np.int64], work: Sequence[Work]) -> int:
        del work
        now = self._under_way
        up = [place for place in range(len(now)) if open_to[place] and now[place] < self._caps[place]]
        return min(up, key=lambda place: (now[place] + 1) / self._weights[place], default=-1)


_Rule = Callable[[NDArray[np.int64], Sequence[Work]], int]
