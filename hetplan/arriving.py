"""Queries that come and go, read line by line: each is decided about at once, and a re-pack works in between.

A line says what happens to one query; an application of the SLO says what queries of it may run as::

    {"arrive": "q17", "app": "gate", "weight": 2.0, "pin": true}      weight and pin may be missing
    {"depart": "q17"}
    {"pin": "q17"}                                                    and unpin

Every decision is in a journal before it is given out, with how far the lines were read. After a kill, all queries are
where they were, and the next line is decided as if nothing had happened.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetplan import registry
from hetplan.dispatch.live_packing import Decision, LivePacking, Placed
from hetplan.errors import InputError
from hetplan.front_door import choose, pose
from hetplan.live_plan import Running, check_kinds, check_name
from hetplan.planner.answer import Limits
from hetplan.planner.ask import Asking
from hetplan.planner.contract import Tools
from hetplan.problems.compound.form import Asked, packing
from hetplan.problems.compound.question import Compound
from hetplan.problems.compound.search import search_all
from hetplan.problems.compound.wish import Query, Way
from hetplan.profiles.canonical import digest
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.line_journal import LineJournal
from hetplan.repacking import Bounded, form_of, prices_of, steps

__all__ = ["Arriving", "Kinds", "Said", "kinds_of"]

FORMAT = "hetplan/queries-journal/1.0"


@dataclass(frozen=True)
class Kinds:
    """What queries of each application may run as, and the digest of it."""

    queries: Sequence[Query]
    live: LivePacking
    of: str
    asked: Asked

    def way_of(self, placed: Placed) -> tuple[int, int, Way]:
        """Of an option: the number of its application, its own number there, and the way."""
        form = self.live.kinds
        group = int(form.group[placed.option])
        number = placed.option - int(form.first[group])
        return group, number, self.queries[group].ways[number]

    def running(self) -> dict[str, Running]:
        """The queries that run, by name."""
        found = {}
        for name, query in self.live.queries.items():
            if query.placed is not None:
                group, _, way = self.way_of(query.placed)
                found[name] = Running(name, self.queries[group].app_id, way, query.placed)
        return found

    def shown(self, placed: Placed) -> dict[str, Any]:
        """An option as people and programs read it."""
        _, number, way = self.way_of(placed)
        machines: dict[str, list[int]] = {}
        for item, machine in zip(way.items, placed.machines, strict=False):
            machines.setdefault(item.tier, []).append(machine)
        if way.found is None:
            return {"candidate": number, "label": way.label, "machines": machines}
        found = way.found
        return {
            "knobs": dict(found.knobs), "placement": dict(found.placement), "share": dict(found.share),
            "machines": machines,
        }  # fmt: skip


def kinds_of(inputs: Inputs, *, tools: Tools | None = None, move_price: float = 0.05, **how: Any) -> Kinds:
    """The options of every application: stated candidates, or plans that were measured (or are now, by `tools`)."""
    choice = choose(inputs, **how)
    if choice.problem.question != "compound":
        raise InputError.one(
            file="--queries", value=choice.problem.question, why="queries that come and go are those of compound",
            remedy="Leave --queries out: the demand of other questions is followed by the router's counters.",
        )  # fmt: skip
    problem = pose(inputs, choice, tools=registry.tools_of(choice.problem.question, tools), start=None)
    assert isinstance(problem, Compound)
    asked = problem.asked
    if asked.wish.sense != "max":
        raise InputError.one(
            file=inputs.files.get("slo", "slo"), path="$.objective", value="cost",
            why="queries that come and go are admitted for most goodput", remedy='Write [{"max": "goodput"}].',
        )  # fmt: skip
    stages = search_all(asked, Asking(registry.Engines(), Limits()), problem.tools)
    queries = (*asked.queries, *(stage.query for stage in stages))
    for query in queries:
        if not query.ways:
            why = f"no plan is known for it: {query.why_none or 'none was given'}"
            raise InputError.one(
                file="slo", path=f"$.apps.{query.app_id}", why=why, remedy="Measure more, or ask less."
            )
    form = packing(queries, asked.tiers, asked.totals, sense="max")
    rooms = [] if form.items is None else [form.items.size.tolist(), form.items.room.tolist()]
    of = digest({"demand": form.demand.tolist(), "groups": list(form.groups), "rooms": rooms})
    return Kinds(queries, LivePacking(form, move_price), of, asked)


@dataclass(frozen=True)
class Said:
    """One event: `what` is admitted, waits, moved, sent-away, departed, pinned, refused or bound."""

    what: str
    text: str
    data: Mapping[str, Any]


class Arriving:
    """Decides line by line; `journal` is where decisions are kept. `applies`: what runs is brought about on hosts."""

    def __init__(self, kinds: Kinds, journal: str | os.PathLike[str] | None = None, *, applies: bool = False) -> None:
        self.kinds, self.live, self.read, self.applies = kinds, kinds.live, 0, applies
        if applies:
            check_kinds(kinds.queries)
        self._file = LineJournal(
            journal, what="journal of queries", format=FORMAT, of=kinds.of, other="other plans", alone=True
        )
        for number, line in enumerate(self._file.lines, start=2):
            try:
                self._again(line)
            except (KeyError, TypeError, ValueError, InputError):
                self._file.close()
                raise self._file.refused("this line is no decision about these queries", line=number) from None

    def close(self) -> None:
        """Let others have the journal; what was decided is on disk already."""
        self._file.close()

    def lines(self, path: Path) -> Iterator[tuple[bytes, int]]:
        """The whole lines of a file that were not read yet, each with the place behind it."""
        if not path.exists():
            return
        with open(path, "rb") as file:
            file.seek(self.read)
            place = self.read
            for raw in file:
                if not raw.endswith(b"\n"):
                    return
                place += len(raw)
                yield raw, place

    def take(self, raw: bytes, read: int) -> list[Said]:
        """Decide about one line; a line that makes no sense is refused, and the next one is read."""
        try:
            op = _operation(raw)
            found = self._do(op)
        except InputError as error:
            self._file.append({"read": read})
            self.read = read
            return [Said("refused", f"{raw[:60].decode(errors='replace').strip()}: {error}", {"why": str(error)})]
        self._keep(read, op, found)
        return [*self._head(op), *(said for one in found for said in self._said(one))]

    def bound(self, *, seconds: float | None = 1.0) -> tuple[Bounded, Said]:
        """The prices for a re-pack, and the most that it could gain."""
        return self.bounded(prices_of(*form_of(self.live), seconds=seconds))

    def bounded(self, bounded: Bounded) -> tuple[Bounded, Said]:
        """The same, of prices that were found elsewhere."""
        text = f"a re-pack gains {bounded.most_gain:.4g} at most, of {self.live.weight:.4g} that runs (proved)"
        data = {"most_gain": bounded.most_gain, "weight": self.live.weight, "running": self._running()}
        return bounded, Said("bound", text, data)

    def improve(self, bounded: Bounded) -> Iterator[list[Said]]:
        """A re-pack, a little work at a time."""
        for found in steps(self.live, bounded):
            if found is None:
                yield []
                continue
            self._keep(self.read, {}, [found])
            yield self._said(found)

    def _running(self) -> int:
        return len(self.live.queries) - len(self.live.waiting)

    def _do(self, op: Mapping[str, Any]) -> list[Decision]:
        live = self.live
        if "arrive" in op:
            if self.applies:
                check_name(op["arrive"])
            return [live.arrive(op["arrive"], op["app"], weight=op.get("weight"), pinned=op.get("pin", False))]
        if "depart" in op:
            return live.depart(op["depart"])
        live.pin(op.get("pin") or op["unpin"], pinned="pin" in op)
        return []

    def _keep(self, read: int, op: Mapping[str, Any], found: Sequence[Decision]) -> None:
        changes: dict[str, Any] = {}
        for one in found:
            for move in one.moved:
                changes[move.query] = _written(move.after)
            changes[one.query] = _written(one.placed)
        self._file.append({"read": read, "op": dict(op), "changes": changes, "prices": self.live.prices.tolist()})
        self.read = read

    def _again(self, line: Mapping[str, Any]) -> None:
        """What a line of the journal says, once more."""
        self.read = int(line["read"])
        op, live = line.get("op", {}), self.live
        if "arrive" in op:
            live.enter(op["arrive"], op["app"], weight=op.get("weight"), pinned=op.get("pin", False))
        elif "depart" in op:
            live.leave(op["depart"])
        elif op:
            live.pin(op.get("pin") or op["unpin"], pinned="pin" in op)
        changes = line.get("changes", {})
        for name in changes:
            live.replace(name, None)
        for name, written in changes.items():
            if written is not None:
                live.replace(name, Placed(int(written[0]), tuple(map(int, written[1]))))
        if "prices" in line:
            live.set_prices(line["prices"])

    def _head(self, op: Mapping[str, Any]) -> list[Said]:
        if "depart" in op:
            return [Said("departed", f"{op['depart']} left", {"query": op["depart"]})]
        if "arrive" not in op:
            name = str(op.get("pin") or op["unpin"])
            return [Said("pinned", f"{name} is {'' if 'pin' in op else 'not '}pinned", {"query": name})]
        return []

    def _said(self, one: Decision) -> list[Said]:
        said = []
        for move in one.moved:
            kind = self.live.kind_of(move.query)
            if move.after is None:
                text = f"{move.query} of {kind} makes room for {one.query}, and waits"
                said.append(Said("sent-away", text, {"query": move.query, "app": kind}))
            else:
                data = {"query": move.query, "app": kind, **self.kinds.shown(move.after)}
                said.append(Said("moved", f"{move.query} of {kind} moves for {one.query}", data))
        if one.placed is None:
            return [*said, Said("waits", f"{one.query} of {one.kind} waits: all is full", {"query": one.query})]
        data = {"query": one.query, "app": one.kind, **self.kinds.shown(one.placed)}
        return [*said, Said("admitted", f"{one.query} of {one.kind} runs", data)]


def _written(placed: Placed | None) -> list[Any] | None:
    return None if placed is None else [placed.option, list(placed.machines)]


def _operation(raw: bytes) -> dict[str, Any]:
    """What a line says; `InputError` where it says nothing."""
    op: dict[str, Any] = {}
    try:
        op = json.loads(raw)
        kinds = {"arrive": {"arrive", "app", "weight", "pin"}, "depart": {"depart"}, "pin": {"pin"}, "unpin": {"unpin"}}
        verb = next(word for word in kinds if word in op)
        weight = op.get("weight", 1.0)
        right = set(op) <= kinds[verb] and isinstance(op[verb], str) and bool(op[verb])
        right = right and (verb != "arrive" or isinstance(op.get("app"), str))
        right = right and isinstance(weight, int | float) and math.isfinite(weight) and weight >= 0
        right = right and (verb != "arrive" or isinstance(op.get("pin", False), bool))
    except (ValueError, TypeError, StopIteration):
        right = False
    if not right:
        raise InputError.one(
            path="line", why="a line says arrive (with app), depart, pin or unpin of a query",
            remedy='Write for instance {"arrive": "q17", "app": "gate"}.',
        )  # fmt: skip
    return dict(op)
