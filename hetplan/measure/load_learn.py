"""What a real load says of service times, written into a new profile: `hetplan loadtest --learn`.

For each step of a query the router's reply names which load served it and how long it waited in router and worker. It
names how long its batch took, and how large that was. What is left of the query's time are hand-overs: a worker that
is taken for a query is taken for these too. So a sample of a table is the time of a batch and the hand-over of its
query, each batch counted once.

A cell of a table with enough samples gets their statistics. The other cells are those of the former table times what
the samples took on average beside it; the note of the new source says which. Batches of queries of several classes
belong to no cell and are left out.
"""

from __future__ import annotations

import copy
import datetime
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from hetplan.errors import InputError
from hetplan.measure.load_send import Sent
from hetplan.profiles.canonical import digest
from hetplan.profiles.columns import TIMES
from hetplan.profiles.lowering import OF_MODEL, SPEEDS, TABLE_KEYS, stated_runs
from hetplan.profiles.merge import merge
from hetplan.profiles.new_files import runs_of
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Profile, Run
from hetplan.profiles.tables import Table
from hetplan.profiles.workers import Load
from hetplan.serving.law import Law, OffTable, same_value
from hetplan.serving.loads import law_of_load, run_of
from hetplan.serving.runs import runs_on

__all__ = ["LEAST_SAMPLES", "Learned", "Spell", "learn_profile"]

LEAST_SAMPLES = 30
"""A cell with fewer batches is scaled, not replaced."""
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

At = Mapping[str, float]
Place = tuple[float, ...]


@dataclass(frozen=True)
class Spell:
    """One application's part of a load: what was sent, where each class is on the tables, and scores, if any."""

    sent: Sent
    points: Sequence[At]
    scores: Sequence[float] = ()


@dataclass(frozen=True)
class Learned:
    """The new profile; `changes` are (variant, hardware, batches, times the former mean)."""

    document: dict[str, Any]
    changes: tuple[tuple[str, str, int, float], ...]


@dataclass
class _Samples:
    """Batches of a variant on some hardware, by their place in its law; `at` is that of its run, but for the batch."""

    load: Load
    hardware: str
    law: Law
    at: dict[str, float]
    by_point: dict[tuple[tuple[str, float], ...], list[tuple[float, float]]] = field(default_factory=dict)
    took_ms: float = 0.0
    expected_ms: float = 0.0
    weight: float = 0.0
    scores: list[float] = field(default_factory=list)

    def add(self, at: At, batch: int, ms: float) -> None:
        """A query's sample; of the queries of one batch each counts as its part."""
        try:
            point, expected = self.law.point(at, batch), self.law.ms(at, batch, self._statistic)
        except OffTable:
            return
        weight = 1.0 / batch
        self.by_point.setdefault(tuple(sorted(point.items())), []).append((ms, weight))
        self.took_ms += weight * ms
        self.expected_ms += weight * expected
        self.weight += weight

    @property
    def _statistic(self) -> str:
        return "mean" if "mean" in self.law.statistics else self.law.statistics[0]

    @property
    def times(self) -> float:
        """What the batches took, beside what the law says of them."""
        return self.took_ms / self.expected_ms


def learn_profile(plan: Plan, profile: Profile, spells: Sequence[Spell], note: str) -> Learned:
    """The file of a profile with what the replies to a load say; InputError where they say nothing."""
    found: dict[tuple[str, str, str], _Samples] = {}
    known = {load.id: (worker.hardware, load) for worker in plan.workers for load in worker.loads}
    for spell in spells:
        for at, hop, over_ms, score in _hops(spell):
            hardware, load = known.get(hop.load, ("", None))
            if load is None or load.variant is None or not _is_latency(profile, load, hardware):
                continue
            samples = found.setdefault(_key(profile, load, hardware), _samples(profile, load, hardware))
            if hop.batch == 1 or len(spell.points) == 1:
                samples.add(at, hop.batch, hop.service_ms + over_ms)
            if not math.isnan(score):
                samples.scores.append(score)
    found = {key: one for key, one in found.items() if min(one.took_ms, one.expected_ms) > 0}
    if not found:
        raise InputError.one(
            file="--learn", why="no reply says which worker of the plan served it, and for how long",
            remedy="Send to a router of `hetplan apply`, with the plan and the profile that it follows.",
        )  # fmt: skip
    return _rewritten(profile, found, note)


@dataclass(frozen=True)
class _Hop:
    """What the router says of one step of a query; `spent_ms` is its time but for hand-overs."""

    load: str
    batch: int
    service_ms: float
    spent_ms: float

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> _Hop:
        """`ValueError`, `KeyError` or `TypeError` where it is not as our routers write it."""
        waited = [float(said["router_ms"]), float(said["queue_ms"])]
        hop = cls(str(said["load"]), int(said["batch"]), float(said["service_ms"]), sum(waited))
        if hop.batch < 1 or not (0.0 <= hop.service_ms < math.inf and math.isfinite(hop.spent_ms)):
            raise ValueError("no times of a batch")
        return replace(hop, spent_ms=hop.spent_ms + hop.service_ms)


def _hops(spell: Spell) -> Iterator[tuple[At, _Hop, float, float]]:
    """Each step of each answered query: its class, what the router says of it, its part of the hand-overs, the score.

    The score of a query of several steps is nobody's alone.
    """
    sent = spell.sent
    for place, body in enumerate(sent.bodies):
        if not 200 <= sent.status[place] < 300 or not body:
            continue
        try:
            said = json.loads(body)
            path, ms = [_Hop.of(hop) for hop in said["path"]], float(said["ms"])
        except (ValueError, KeyError, TypeError):
            continue
        spent_ms = sum(hop.spent_ms for hop in path)
        score = spell.scores[place] if len(spell.scores) and len(path) == 1 else math.nan
        for hop in path:
            yield spell.points[int(sent.kinds[place])], hop, max(ms - spent_ms, 0.0) / len(path), score


def _is_latency(profile: Profile, load: Load, hardware: str) -> bool:
    runs = runs_on(profile, load.variant, hardware)
    return bool(runs) and all(run.latency is not None for run in runs)


def _samples(profile: Profile, load: Load, hardware: str) -> _Samples:
    law = Law(dict(law_of_load(profile, load, hardware, extend=True).data))
    return _Samples(load, hardware, law, _but_batch(run_of(profile, load, hardware).at))


def _key(profile: Profile, load: Load, hardware: str) -> tuple[str, str, str]:
    at = _but_batch(run_of(profile, load, hardware).at)
    return str(load.variant), hardware, json.dumps(at, sort_keys=True)


def _but_batch(at: At) -> dict[str, float]:
    return {name: value for name, value in at.items() if name != "batch"}


def _rewritten(profile: Profile, found: Mapping[tuple[str, str, str], _Samples], note: str) -> Learned:
    changes, scaled = [], []
    source: dict[str, Any] = {"kind": "measured", "tool": "hetplan loadtest --learn"}
    source["date"] = datetime.date.today().isoformat()
    name = f"learned-{digest({'note': note, 'of': [list(key) for key in found]})[7:15]}"
    # Beside another source, all that is said names its own.
    new = {"format": profile.format, "sources": {name: source}}
    made, _, _ = merge([("profile", copy.deepcopy(dict(profile.places.file))), ("learned", new)])
    for (variant, hardware, _), samples in found.items():
        called = next(one for one in made["models"] if one.lower() == variant)
        model, runs = made["models"][called], stated_runs(made, called)
        for number, run in enumerate(profile.variants[variant].runs):
            if run.hardware != hardware or _but_batch(run.at) != samples.at:
                continue
            columns, unseen = _columns(profile.tables[run.latency or ""], run, samples)
            machine, said = runs[number]
            kept = {key: one for key, one in said.items() if key not in _OF_A_TABLE}
            most = {"max_qps": _short(said["max_qps"] / samples.times)} if "max_qps" in said else {}
            runs[number] = machine, {**kept, **columns, "source": name, **most}
            if unseen:
                scaled.append(
                    f"{unseen} points of {variant} on {hardware} are the former ones times {samples.times:.3g}"
                )
        model = {key: one for key, one in model.items() if key in OF_MODEL and key != "runs"}
        if len(samples.scores) >= LEAST_SAMPLES:
            value, of = _short(sum(samples.scores) / len(samples.scores)), model.get("quality")
            metric = next(iter(of)) if isinstance(of, Mapping) else None
            model |= {"quality": {metric: value} if metric is not None else value, "quality_source": name}
        made["models"][called] = model | runs_of(runs)
        changes.append((variant, hardware, round(samples.weight), _short(samples.times)))
    source["note"] = "; ".join([note, *scaled])
    return Learned(made, tuple(changes))


_OF_A_TABLE = {"batch", "axes", *SPEEDS, *TABLE_KEYS, "max_qps", "source"}
"""Keys of a run that say what was measured."""


def _columns(table: Table, run: Run, samples: _Samples) -> tuple[dict[str, Any], int]:
    """The columns anew, and how many of their cells were not seen."""
    axes = {name: list(values) for name, values in table.axes.items()}
    cells = {place: _seen_statistics(axes, place, run, samples) for place in product(*axes.values())}
    seen = {place: figures for place, figures in cells.items() if figures is not None}
    unseen = len(cells) - len(seen)
    # A percentile that the former table lacks is there where every cell was seen.
    statistics = {"mean", "std", *table.statistics} | ({*_PERCENTILES, "max"} if not unseen else set())
    if "mean" not in table.statistics and unseen:
        statistics -= {"mean", "std"}
    spread = _spread_of(list(seen.values()))
    made: dict[str, Any] = {"batch": axes["batch"]} if list(axes) == ["batch"] else {"axes": axes}
    for statistic in ("mean", "std", *_PERCENTILES, "max"):
        if statistic not in statistics:
            continue
        values = {
            place: figures[statistic] if figures is not None else _scale_cell(table, place, statistic, samples, spread)
            for place, figures in cells.items()
        }
        made[TIMES[statistic]] = _nest(axes, values)
    made["samples"] = _nest(axes, {place: figures["samples"] if figures else 0 for place, figures in cells.items()})
    made |= {"outside": table.outside} if table.outside != "refuse" else {}
    return made | ({"given": dict(table.given)} if table.given else {}), unseen


def _seen_statistics(
    axes: Mapping[str, Sequence[float]], place: Place, run: Run, samples: _Samples
) -> dict[str, float] | None:
    """The statistics of the batches at a cell; None where there are too few."""
    at = {**run.at, **dict(zip(axes, place, strict=True))}
    mine = [
        sample
        for point, listed in samples.by_point.items()
        if all(name in at and same_value(at[name], value) for name, value in point)
        for sample in listed
    ]
    weight = sum(one for _, one in mine)
    mean = sum(ms * one for ms, one in mine) / weight if weight >= LEAST_SAMPLES else 0.0
    if mean <= 0.0:
        return None
    mine.sort()
    spread = math.sqrt(sum(one * (ms - mean) ** 2 for ms, one in mine) / max(weight - 1.0, 1.0))
    figures = {"mean": mean, "std": spread, "max": mine[-1][0], "samples": round(weight)}
    for name, share in _PERCENTILES.items():
        passed = 0.0
        for ms, one in mine:
            passed += one
            if passed >= share * weight - 1e-9:
                figures[name] = ms
                break
    return {name: _short(value) for name, value in figures.items()}


def _spread_of(seen: Sequence[Mapping[str, float]]) -> float:
    """The standard deviation over the mean, of the cells that were seen."""
    return sum(one["std"] / one["mean"] for one in seen) / len(seen) if seen else 0.0


def _scale_cell(table: Table, place: Place, statistic: str, samples: _Samples, spread: float) -> float | None:
    """A cell of the former table, times what samples took beside it; None where it has none."""
    former = _cell(getattr(table, "mean" if statistic == "std" and table.std is None else statistic), table, place)
    if former is None:
        return None
    return _short(former * samples.times * (spread if statistic == "std" and table.std is None else 1.0))


def _cell(grid: Any, table: Table, place: Place) -> float | None:
    for (_, values), value in zip(table.axes.items(), place, strict=True):
        grid = grid[list(values).index(value)]
    return None if grid is None else float(grid)


def _nest(axes: Mapping[str, Sequence[float]], values: Mapping[Place, Any]) -> Any:
    flat: list[Any] = list(values.values())
    for name in reversed(list(axes)[1:]):
        size = len(axes[name])
        flat = [flat[first : first + size] for first in range(0, len(flat), size)]
    return flat if axes else flat[0]


def _short(value: float) -> float:
    return float(f"{value:.6g}")
