"""Search for settings whose outcomes must be measured: ask, measure, tell. No profile, no SLO and no plan is needed.

What makes it quick is structure. A pipeline is a few steps; a step's time hangs on the knobs that it reads, and on no
other. So the time and cost of every setting follow from few measurements, and only quality is believed as a whole.

>>> space = Space(
...     knobs={"documents": [2, 4, 8], "model": ["small", "large"]},
...     steps=[
...         Step("retrieve", reads=["documents"]),
...         Step("generate", reads=["documents", "model"], after=["retrieve"], price_per_s=0.01),
...     ],
... )
>>> def measure(documents: int, model: str) -> tuple[float, dict[str, float]]:
...     quality = 0.6 + 0.02 * documents + (0.1 if model == "large" else 0.0)
...     return quality, {"retrieve": 0.01, "generate": 0.05 * documents * (2 if model == "large" else 1)}
>>> search = Search(space, Wish(goal="cost", least_quality=0.7, most_latency_s=0.5))
>>> for _ in range(5):
...     trial = search.ask()
...     quality, seconds = measure(**trial.knobs)
...     _ = search.tell(trial, quality, seconds)
>>> best = search.best()
>>> best.knobs, round(best.cost, 6)
({'documents': 2, 'model': 'large'}, 0.002)

Where measuring takes a while, several settings are measured at once, in processes here or on a Ray cluster::

    best = search.run(measure, steps=40, jobs=8)            # or jobs=8, on="ray"

With a file as its journal, a search that was killed goes on with the same proposals: they follow from the seed and from
what was reported, and from nothing else. `hetplan.search.optuna` has the same search as a sampler for Optuna's studies.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import HetplanError, InputError
from hetplan.planner.contract import Event, OnEvent
from hetplan.planner.forms import space as settings
from hetplan.planner.forms.black_box import BlackBox, Measured, Operator, Placed, Verdict
from hetplan.planner.spread import Spread, left_in_words
from hetplan.profiles.canonical import digest
from hetplan.profiles.knobs import Knobs, KnobSpace
from hetplan.profiles.line_journal import LineJournal
from hetplan.profiles.validate import validate
from hetplan.solvers.gaussian_process import LightProcess, expected_improvement, normal_below
from hetplan.solvers.search_beliefs import LATENCY_SPREAD, LOG_SPREAD, Beliefs
from hetplan.solvers.search_wide import PointProcess, WideSearch

__all__ = ["Result", "Search", "Space", "Step", "Trial", "Wish"]

Vector = NDArray[np.float64]
Integers = NDArray[np.int64]
FORMAT = "hetplan/search-journal/1.0"
MOST_LISTED = 500_000
"""Of more settings none is listed: candidates are drawn, changed and crossed."""
REFERENCE = 1.3
COST_SPREAD = 0.02
LEAST = 1e-12
MOST_IN_VAIN = 8
"""After so many settings that failed, and none that did not, `run` takes the evaluator to be broken."""


@dataclass(frozen=True)
class Step:
    """A step of what is measured: the knobs that it reads, the steps before it, and what a second of it costs."""

    name: str
    reads: Sequence[str] = ()
    after: Sequence[str] = ()
    price_per_s: float = 0.0


@dataclass(frozen=True)
class Space:
    """The knobs with their levels, and the steps; without steps there is one, which reads every knob.

    Levels that are rising or falling numbers have an order: near ones are alike. Others are only different. `space`
    says what a list does not, as that of a pipeline in a profile: ranges, names in numbers, knobs that do not always
    matter, rules between knobs. Afterwards `knobs` has the points of ranges too.

    >>> rule = {"if": {"model": ["small"]}, "then": {"top": [1, 2]}}
    >>> space = Space({"model": ["small", "large"]}, space={
    ...     "ranges": {"top": {"from": 1, "to": 4, "kind": "integer"}}, "rules": [rule]})
    >>> space.size, space.knobs["top"]
    (6, (1, 2, 3, 4))
    """

    knobs: Mapping[str, Sequence[Any]]
    steps: Sequence[Step] = ()
    space: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.space:
            stated = validate(Knobs, {"knobs": self.knobs, "space": self.space}, file="Space")
            object.__setattr__(self, "knobs", stated.space.levels(stated.knobs))
        for knob, levels in self.knobs.items():
            if not levels or any(one in levels[:at] for at, one in enumerate(levels)):
                _refuse(f"knobs.{knob}", list(levels), "a knob has one level or more, each of them once", "List them.")
        known: set[str] = set()
        for step in self.steps:
            unread = [knob for knob in step.reads if knob not in self.knobs]
            if unread:
                _refuse(f"steps.{step.name}.reads", unread[0], "there is no such knob", "Name knobs of the space.")
            unknown = [name for name in step.after if name not in known]
            if unknown:
                remedy = "Name steps that are listed before it."
                _refuse(f"steps.{step.name}.after", unknown[0], "no step before this one has that name", remedy)
            if step.name in known:
                _refuse("steps", step.name, "two steps have this name", "Give each its own.")
            known.add(step.name)

    @property
    def size(self) -> int:
        """How many settings there are; where they are not counted, before any is forbidden."""
        count = None if self.settings.whole else self.settings.count
        return self.settings.product if count is None else count

    @cached_property
    def stated(self) -> KnobSpace:
        """What is said beyond lists."""
        return validate(KnobSpace, self.space, file="Space")

    @cached_property
    def settings(self) -> settings.Space:
        """The settings by the places of levels."""
        return settings.settings_of(self.knobs, self.stated if self.space else None)

    @property
    def operators(self) -> tuple[Step, ...]:
        """The steps, or the one that there always is."""
        return tuple(self.steps) or (Step("all", reads=tuple(self.knobs)),)

    def number(self, knobs: Mapping[str, Any]) -> int:
        """The number of a setting; `InputError` where it is none of the space.

        What does not matter is taken to be at its first level.
        """
        if set(knobs) != set(self.knobs):
            _refuse("knobs", ", ".join(sorted(knobs)), f"a setting has {', '.join(self.knobs)}", "Give each a level.")
        at = []
        for knob, levels in self.knobs.items():
            if knobs[knob] not in levels:
                _refuse(f"knobs.{knob}", knobs[knob], "no level of this knob", f"Levels are {list(levels)}.")
            at.append(list(levels).index(knobs[knob]))
        row = self.settings.canonical(np.array([at]))
        if not self.settings.allowed(row)[0]:
            _refuse("knobs", dict(knobs), "a rule of the space forbids this setting", "Give one that keeps all rules.")
        return self.settings.number(row[0].tolist())

    def setting(self, number: int) -> dict[str, Any]:
        """The levels of a setting by its number."""
        at = self.settings.row(number)
        return {knob: levels[k] for (knob, levels), k in zip(self.knobs.items(), at, strict=True)}

    def _form(self, wish: Wish) -> BlackBox:
        """The space as the searches know it: one place, where everything runs."""
        knobs = list(self.knobs)
        place = {step.name: number for number, step in enumerate(self.operators)}
        operators = tuple(
            Operator(step.name, tuple(knobs.index(knob) for knob in step.reads), tuple(place[p] for p in step.after))
            for step in self.operators
        )
        nowhere = np.zeros((1, 1))
        return BlackBox(
            levels=self.settings.levels, operators=operators, placed=Placed(np.ones(1), np.zeros(1), nowhere, nowhere),
            target=-math.inf if wish.least_quality is None else wish.least_quality,
            limit_s=math.inf if wish.most_latency_s is None else wish.most_latency_s,
            measure=lambda c: Measured(c), placements=np.zeros((1, len(operators)), dtype=np.int64),
            ordered=tuple(map(self._in_order, self.knobs)), alike=self._alike,
            space=self.settings if self.size > MOST_LISTED or not self.settings.whole else None,
        )  # fmt: skip

    @property
    def _alike(self) -> tuple[tuple[int, ...], ...]:
        """Knobs of the same names: what one does in one step, it may do in another."""
        same: dict[str, list[int]] = {}
        for place, (knob, levels) in enumerate(self.knobs.items()):
            if not self._in_order(knob) and len(levels) > 1:
                same.setdefault(repr(list(levels)), []).append(place)
        return tuple(tuple(group) for group in same.values() if len(group) > 1)

    def _in_order(self, knob: str) -> bool:
        """Whether the levels of a knob are rising or falling numbers, and no names."""
        return knob not in self.stated.unordered and settings.is_ordered(self.knobs[knob])


@dataclass(frozen=True)
class Wish:
    """What is sought, and within which limits. More quality is better; of cost and latency less is."""

    goal: Literal["cost", "latency", "quality"] = "cost"
    least_quality: float | None = None
    most_latency_s: float | None = None
    most_cost: float | None = None

    def complies(self, result: Result) -> bool:
        """Whether a result keeps the limits."""
        return (
            not result.failed
            and (self.least_quality is None or result.quality >= self.least_quality)
            and (self.most_latency_s is None or result.latency_s <= self.most_latency_s)
            and (self.most_cost is None or result.cost <= self.most_cost)
        )


@dataclass(frozen=True)
class Trial:
    """A setting to be measured."""

    number: int
    knobs: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """What measuring a setting gave; `error` is the standard error of its quality, `failed` why it gave nothing."""

    knobs: Mapping[str, Any]
    quality: float
    latency_s: float
    cost: float
    seconds: Mapping[str, float] = field(default_factory=dict)
    error: float = 0.0
    failed: str = ""


class Search:
    """Ask for settings, tell what measuring them gave. Several may be asked for before one is reported.

    Before anything complies, what is likely to comply is asked for; then what is expected to better the goal most.
    """

    def __init__(
        self, space: Space, wish: Wish | None = None, *, seed: int = 0, journal: str | os.PathLike[str] | None = None
    ) -> None:
        self.space, self.wish, self.seed = space, wish or Wish(), seed
        self._form = space._form(self.wish)
        self._known: _Listed | _Drawn = (_Listed if self._form.space is None else _Drawn)(self._form)
        self._prices = np.array([step.price_per_s for step in space.operators])
        self._reported: dict[int, Result] = {}
        self._asked: set[int] = set()
        steps = [[step.name, list(step.reads), list(step.after)] for step in space.operators]
        listed = {"knobs": {knob: list(levels) for knob, levels in space.knobs.items()}, "steps": steps}
        of = digest({**listed, **({"space": dict(space.space)} if space.space else {})})
        self._file = LineJournal(
            journal, what="search journal", format=FORMAT, of=of, other="another space", alone=True
        )
        for number, line in enumerate(self._file.lines, start=2):
            try:
                for one in line.get("together", [line]):
                    self._learn(Result(**one))
            except (TypeError, ValueError, HetplanError):
                self._file.close()
                raise self._file.refused("this line is no result of the space", line=number) from None

    def ask(self) -> Trial:
        """The next setting to measure; `HetplanError` where every one was asked for."""
        if len(self._reported) + len(self._asked - self._reported.keys()) >= self.space.size:
            raise HetplanError("every setting of the space was asked for")
        random = np.random.default_rng([self.seed, len(self._reported), len(self._asked)])
        closed = self._reported.keys() | self._asked
        number = self._known.choose(closed, random, self._score, self._merits())
        if number < 0:
            raise HetplanError("every setting of the space was asked for")
        self._asked.add(number)
        return Trial(number, self.space.setting(number))

    def knows(self, knobs: Mapping[str, Any]) -> bool:
        """Whether this setting was reported."""
        return self.space.number(knobs) in self._reported

    def hold(self, settings: Iterable[Mapping[str, Any]]) -> None:
        """Count settings as asked for, which somebody measures already."""
        self._asked |= {self.space.number({knob: one[knob] for knob in self.space.knobs}) for one in settings}

    def forget(self) -> None:
        """Settings that were asked for and not reported count as not asked for: the one who asked is gone."""
        self._asked.clear()

    def tell(
        self, trial: Trial | Mapping[str, Any], quality: float, seconds: Mapping[str, float] | float, *,
        error: float = 0.0, cost: float | None = None, latency_s: float | None = None,
    ) -> Result:  # fmt: skip
        """What measuring gave: seconds by step (or of the only one); also of settings that nobody asked for.

        `latency_s` is what is compared with the limit (a percentile, say), by default the longest way through the
        steps; `cost` by default what the steps' seconds cost.
        """
        return self._take(self._result(_knobs(trial), quality, seconds, error=error, cost=cost, latency_s=latency_s))[0]

    def tell_failed(self, trial: Trial | Mapping[str, Any], reason: str) -> Result:
        """The setting could not be measured; it is not asked for again."""
        return self._take(_failed(_knobs(trial), reason))[0]

    def best(self) -> Result | None:
        """The result that keeps the limits and has the best goal; None where none does."""
        complying = [result for result in self._reported.values() if self.wish.complies(result)]
        return min(complying, key=self._goal, default=None)

    def front(self) -> list[Result]:
        """The results that no other beats in quality, cost and latency together, the cheapest first."""
        known = [result for result in self._reported.values() if not result.failed]
        rows = np.array([(-one.quality, one.cost, one.latency_s) for one in known]).reshape(-1, 3)
        kept = [
            one for one, row in zip(known, rows, strict=True)
            if not ((rows <= row).all(axis=1) & (rows < row).any(axis=1)).any()
        ]  # fmt: skip
        return sorted(kept, key=lambda one: (one.cost, one.latency_s, -one.quality))

    @property
    def journal(self) -> tuple[Result, ...]:
        """All that was reported, in its order."""
        return tuple(self._reported.values())

    def run(
        self, measure: Callable[..., Any], steps: int, *, jobs: int = 1, on: str | None = None,
        on_event: OnEvent | None = None, cancel: threading.Event | None = None,
    ) -> Result | None:  # fmt: skip
        """Measure until so many settings are reported, `jobs` at once; the best of them.

        `measure(**knobs)` gives what `tell` takes: quality and seconds, or a mapping by its names. It is a function of
        a module, as it travels to other processes, of this machine or of a Ray cluster (`on="ray"`, `"ray:ADDRESS"`).
        A setting has failed where it raises, or gives no such thing. The next are asked for when all that are measured
        were told: the same `jobs` give the same search wherever it runs, and after a kill the same call goes on with
        the same settings.
        """
        if jobs > 1 and on is None:
            _check_travels(measure)
        path = self._file.path
        done = None if path is None else path.with_name(f"{path.name}.waiting")
        began, before = time.monotonic(), len(self._reported)
        with Spread(jobs=jobs, on=on, journal=done, of=self._file.head.get("of", ""), cancel=cancel) as spread:
            while (left := min(steps, self.space.size) - len(self._reported)) > 0:
                trials = [self.ask() for _ in range(min(jobs, left))]
                try:
                    found = spread.all(_measured, measure, [{"knobs": dict(trial.knobs)} for trial in trials])
                finally:
                    self._asked -= {trial.number for trial in trials}
                self._take(*(self._told(trial, one) for trial, one in zip(trials, found, strict=True)))
                if on_event is not None:
                    on_event(self._event(steps, before, time.monotonic() - began))
                self._check_measures()
        if done is not None:
            done.unlink(missing_ok=True)
        return self.best()

    def _told(self, trial: Trial, found: Mapping[str, Any]) -> Result:
        if "failed" in found:
            return _failed(trial.knobs, found["failed"])
        try:
            return self._result(trial.knobs, **found)
        except (InputError, TypeError, ValueError) as error:
            return _failed(trial.knobs, str(error))

    def _check_measures(self) -> None:
        reported = list(self._reported.values())
        if len(reported) >= MOST_IN_VAIN and all(one.failed for one in reported):
            raise HetplanError(f"none of {len(reported)} settings could be measured: {reported[-1].failed}")

    def _event(self, steps: int, before: int, seconds: float) -> Event:
        count, best = len(self._reported), self.best()
        left = seconds * (steps - count) / max(count - before, 1)
        detail = f"{count} of {steps} settings" + (f", about {left_in_words(left)} left" if count < steps else "")
        return Event("search", detail, value=None if best is None else self._goal(best), done=count / steps,
                     seconds=seconds)  # fmt: skip

    def close(self) -> None:
        """Let others have the journal's file; what was reported is on disk already."""
        self._file.close()

    def _result(
        self, knobs: Mapping[str, Any], quality: float, seconds: Mapping[str, float] | float, *,
        error: float = 0.0, cost: float | None = None, latency_s: float | None = None,
    ) -> Result:  # fmt: skip
        names = [step.name for step in self.space.operators]
        by_step = dict(seconds) if isinstance(seconds, Mapping) else {names[0]: float(seconds)}
        if set(by_step) != set(names):
            _refuse("seconds", ", ".join(by_step), f"the steps are {', '.join(names)}", "Give the seconds of each.")
        took = np.array([by_step[name] for name in names], dtype=float)
        said = {"quality": quality, "error": error, "cost": cost, "latency_s": latency_s, **by_step}
        for name, value in said.items():
            if value is not None and (not math.isfinite(value) or (name != "quality" and value < 0)):
                _refuse(name, value, "a finite number, and no time, cost or error below 0", "Tell what was measured.")
        longest = float(self._form.latency_s(took[None, :], np.zeros_like(took)[None, :], np.zeros(1))[0, 0])
        return Result(
            dict(knobs), float(quality), longest if latency_s is None else float(latency_s),
            float(took @ self._prices) if cost is None else float(cost),
            {name: float(by_step[name]) for name in names}, float(error),
        )  # fmt: skip

    def _take(self, *results: Result) -> tuple[Result, ...]:
        """Write results down, those that were measured at once in one line, and learn from them."""
        for result in results:
            if self.space.number(result.knobs) in self._reported:
                _refuse("knobs", result.knobs, "this setting was reported already", "Tell each setting once.")
        lines = [vars(result) for result in results]
        self._file.append(lines[0] if len(lines) == 1 else {"together": lines}, sync=True)
        for result in results:
            self._learn(result)
        return results

    def _learn(self, result: Result) -> None:
        number = self.space.number(result.knobs)
        self._reported[number] = result
        self._asked.discard(number)
        if result.failed:
            return
        seconds = tuple(float(result.seconds[step.name]) for step in self.space.operators)
        found = Measured(
            number, mean=result.quality, se=result.error, samples=1, verdict=Verdict.UNDECIDED, seconds=seconds,
            bytes_out=(0.0,) * len(seconds),
        )  # fmt: skip
        self._known.take(found, result.latency_s, math.log(max(result.cost, LEAST)))

    def _merits(self) -> dict[int, float]:
        """How good each setting is that was reported: those that comply by the goal, below them others by quality."""
        known = {n: one for n, one in self._reported.items() if not one.failed}
        most = max((self._goal(one) for one in known.values()), default=0.0)
        top = max((one.quality for one in known.values()), default=0.0)
        return {
            n: top + 1.0 + most - self._goal(one) if self.wish.complies(one) else one.quality
            for n, one in known.items()
        }

    def _score(self, believed: _Believed) -> Vector:
        """Per setting the chance that it keeps all limits, times how much it is expected to better the goal."""
        wish, latency = self.wish, believed.latency
        quality, quality_sd = believed.quality
        cost, cost_sd = self._cost(believed)
        likely = np.ones(len(latency))
        if wish.least_quality is not None:
            likely *= normal_below((quality - wish.least_quality) / quality_sd)
        if wish.most_latency_s is not None:
            likely *= believed.in_time
        if wish.most_cost is not None:
            likely *= normal_below((wish.most_cost - cost) / np.maximum(cost_sd, LEAST))
        best = self.best()
        if wish.goal == "quality":
            reference = best.quality if best is not None else float((quality - quality_sd).min())
            gain = expected_improvement(quality, quality_sd, reference)
        else:
            spread = COST_SPREAD * latency + LEAST
            mean, sd = (latency, spread) if wish.goal == "latency" else (cost, cost_sd + LEAST)
            reference = self._goal(best) if best is not None else REFERENCE * float(mean.max())
            gain = expected_improvement(-mean, sd, -reference)
        return np.asarray(likely * gain + LEAST * likely)

    def _cost(self, believed: _Believed) -> tuple[Vector, Vector]:
        """What settings cost: by the seconds of steps where these are priced, else by what was reported."""
        seconds, spread = believed.seconds, believed.spread
        if self._prices.any() and all(self._priced(one) for one in self._reported.values()):
            cost = seconds @ self._prices
            return cost, np.sqrt(((seconds * spread * self._prices) ** 2).sum(axis=1)) + COST_SPREAD * cost
        mean, sd = believed.log_cost
        return np.exp(mean), np.exp(mean) * np.maximum(sd, COST_SPREAD)

    def _priced(self, result: Result) -> bool:
        if result.failed:
            return True
        paid = sum(step.price_per_s * result.seconds[step.name] for step in self.space.operators)
        return math.isclose(paid, result.cost, rel_tol=1e-9, abs_tol=LEAST)

    def _goal(self, result: Result) -> float:
        """What is to be small."""
        return {"cost": result.cost, "latency": result.latency_s, "quality": -result.quality}[self.wish.goal]


@dataclass(frozen=True)
class _Believed:
    """What is believed of settings: quality and the logarithm of the cost with their errors, seconds of every step."""

    quality: tuple[Vector, Vector]
    seconds: Vector
    spread: Vector
    latency: Vector
    in_time: Vector
    log_cost: tuple[Vector, Vector]


Score = Callable[[_Believed], Vector]


class _Listed:
    """Beliefs about every setting, one by one."""

    def __init__(self, form: BlackBox) -> None:
        self.form, self.beliefs = form, Beliefs(form)
        ordered = np.array(form.ordered, dtype=bool).tolist()
        self.costs = LightProcess(form.configurations, ordered, expected=LOG_SPREAD)

    def take(self, found: Measured, latency_s: float, log_cost: float) -> None:
        """Take in what was reported."""
        self.beliefs.observe(found)
        longest = float(self.form.at_full(found)[0])
        self.beliefs.tails[-1] = latency_s / longest if longest > 0 else 1.0
        self.costs.add(found.configuration, log_cost)
        # Processes are settled here and not when they are asked, so that they are the same however often one asks.
        self.beliefs.predicted()
        self.beliefs.accuracy.posterior()
        self.costs.posterior()

    def choose(self, closed: Set[int], random: np.random.Generator, score: Score, merits: Mapping[int, float]) -> int:
        """The open setting of the best score; the first is the middle of the space."""
        del merits
        open_ = np.ones(self.form.settings, dtype=bool)
        open_[list(closed)] = False
        if self.beliefs.measured:
            predicted = self.beliefs.predicted()
            latency, in_time = (held[:, 0] for held in self.beliefs.latency(predicted))
            quality, cost = self.beliefs.accuracy.posterior(), self.costs.posterior()
            believed = _Believed(quality, predicted.seconds, predicted.spread, latency, in_time, cost)
            return int(np.argmax(np.where(open_, score(believed), -1)))
        far = np.abs(self.form.configurations - (np.array(self.form.levels) - 1) / 2).sum(axis=1)
        middle = int(np.argmin(far))
        return middle if open_[middle] else int(random.choice(np.flatnonzero(open_)))


class _Drawn(WideSearch):
    """Beliefs about settings that are too many to be listed, and candidates among them."""

    def __init__(self, form: BlackBox) -> None:
        super().__init__(form)
        self.costs = PointProcess(self.accuracy.grid, LOG_SPREAD)
        self.tails: list[float] = []

    def take(self, found: Measured, latency_s: float, log_cost: float) -> None:
        """Take in what was reported."""
        self._learn(found, 0.0)
        longest = float(self.form.at_full(found)[0])
        self.tails.append(latency_s / longest if longest > 0 else 1.0)
        row = np.array(self.space.row(found.configuration), dtype=np.int64)
        self.costs.add(row, log_cost)
        # As above.
        self._predicted(row[None, :])
        self.accuracy.posterior(row[None, :])
        self.costs.posterior(row[None, :])

    def choose(self, closed: Set[int], random: np.random.Generator, score: Score, merits: Mapping[int, float]) -> int:
        """The best candidate of those drawn, changed from the best so far, and crossed."""
        self.random, self._closed, self._by = random, set(closed), score
        self._value = dict(merits)
        plan = self._next() if merits else self._first()
        left = (n for n in range(self.space.product) if n not in closed and self.space.has(n))
        return plan if plan >= 0 else next(left, -1)

    def _score(self, rows: Integers) -> tuple[Vector, Integers]:
        seconds, spread, sizes, arrives = self._predicted(rows)
        latency = self.form.latency_s(seconds, sizes, arrives)[:, 0] * float(np.mean(self.tails))
        wide = np.sqrt((spread**2 * seconds**2).sum(axis=1)) / np.maximum(seconds.sum(axis=1), LEAST) + LATENCY_SPREAD
        with np.errstate(divide="ignore"):
            in_time = normal_below((np.log(self.form.limit_s) - np.log(np.maximum(latency, LEAST))) / wide)
        quality, cost = self.accuracy.posterior(rows), self.costs.posterior(rows)
        return self._by(_Believed(quality, seconds, spread, latency, in_time, cost)), np.zeros(len(rows), np.int64)


def _knobs(trial: Trial | Mapping[str, Any]) -> dict[str, Any]:
    return dict(trial.knobs if isinstance(trial, Trial) else trial)


def _failed(knobs: Mapping[str, Any], reason: str) -> Result:
    return Result(dict(knobs), 0.0, 0.0, 0.0, failed=reason or "it failed without a reason")


def _check_travels(measure: Callable[..., Any]) -> None:
    try:
        pickle.dumps(measure)
    except Exception as error:
        _refuse("measure", measure, f"it cannot travel to another process: {error}", "Give a function of a module.")


def _measured(measure: Callable[..., Any], task: dict[str, Any], _cancel: threading.Event | None) -> dict[str, Any]:
    """What measuring a setting gave, as plain data."""
    try:
        given = measure(**task["knobs"])
        if not isinstance(given, Mapping):
            quality, seconds = given
            given = {"quality": quality, "seconds": seconds}
        return json.loads(json.dumps(dict(given), default=float, allow_nan=False))  # type: ignore[no-any-return]
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}


def _refuse(path: str, value: object, why: str, remedy: str) -> None:
    raise InputError.one(path=path, value=str(value)[:80], why=why, remedy=remedy)
