"""What is up and active at a moment of the way from what runs to what shall run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from hetplan.profiles.workers import Load, Worker
from hetplan.verifier.facts import Facts

__all__ = ["Scene"]


@dataclass
class Scene:
    """What is up and active after the actions so far."""

    facts: Facts
    workers: dict[str, Worker]
    wanted: dict[str, int]
    up: Counter[str]
    home: dict[str, Worker]
    loads: dict[str, Load]
    active: set[str]
    done: set[int] = field(default_factory=set)

    @cached_property
    def alike(self) -> Mapping[tuple[str | None, str | None], list[str]]:
        """All loads, by application and step."""
        found: dict[tuple[str | None, str | None], list[str]] = defaultdict(list)
        for name, load in self.loads.items():
            found[load.app, load.node].append(name)
        return found

    @cached_property
    def of_worker(self) -> Mapping[str, list[str]]:
        """All loads, by the worker that they are at home on."""
        found: dict[str, list[str]] = defaultdict(list)
        for name, worker in self.home.items():
            found[worker.id].append(name)
        return found

    def crowded(self, started: Worker) -> Iterator[str]:
        """Where this worker's offer or host is over-used at this moment."""
        stock = self.facts.inputs.profile.offers[started.offer].stock if started.offer is not None else None
        if stock is not None:
            offered = sum(count for name, count in self.up.items() if self.workers[name].offer == started.offer)
            if offered > stock:
                yield f"{offered} machines of offer {started.offer} are up, {stock} are in stock"
        if started.host is not None:
            placed = sum(count for name, count in self.up.items() if self.workers[name].host == started.host)
            if placed > 1:
                yield f"{placed} machines are on host {started.host}"
