"""The profiler: measures configurations of one query just as far as its rule needs, and keeps account of all of it.

Samples come from the strata in turn and in the same order for every configuration. What operators have computed for an
earlier one is not charged again: two configurations that agree up to an operator share its outputs (`PrefixCache`).
Where samples are known by number only, neighbours may be alike (frames of one video), so the numbers asked for are
spread over all of them: each stratum's are shuffled. Answers that made no sense are counted.
Every batch of samples is in the journal before it is used, so that a run that was killed goes on where it stopped and
proposes the same next plan.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError, Interrupted
from hetplan.measure.evaluator import EvaluationFailed, Guarded
from hetplan.measure.journal import Journal
from hetplan.measure.sampling import Rule, Seen, read_features, stratify
from hetplan.planner.contract import Event, OnEvent
from hetplan.planner.forms.black_box import Measured, OutOfTime, Runs, Verdict

__all__ = ["PrefixCache", "Profiler", "Setup", "measuring"]

Integers = NDArray[np.int64]


@dataclass
class PrefixCache:
    """Of one query: per operator and the knob values of it and all before it, how many samples it has answered.

    Samples come in the same order for every configuration, so that a count says which ones.

    >>> cache = PrefixCache({"sample": ("rate",), "detect": ("rate", "model")})
    >>> cache.charge({"rate": 1, "model": "s"}, 50, {"sample": 0.1, "detect": 1.0})
    55.0
    >>> cache.charge({"rate": 1, "model": "m"}, 60, {"sample": 0.1, "detect": 1.0})
    61.0
    """

    knobs_of: Mapping[str, Sequence[str]]
    enabled: bool = True
    _have: dict[tuple[object, ...], int] = field(default_factory=dict)

    def have(self, operator: str, knobs: Mapping[str, object]) -> int:
        """How many samples an operator has answered under these knobs."""
        return self._have.get(self._key(operator, knobs), 0) if self.enabled else 0

    def charge(self, knobs: Mapping[str, object], samples: int, seconds: Mapping[str, float]) -> float:
        """Seconds that so many samples take of what is not there yet; from then on it is."""
        total = 0.0
        for operator, each in seconds.items():
            total += max(0, samples - self.have(operator, knobs)) * each
            key = self._key(operator, knobs)
            self._have[key] = max(samples, self._have.get(key, 0))
        return total

    def _key(self, operator: str, knobs: Mapping[str, object]) -> tuple[object, ...]:
        return (operator, *(repr(knobs[knob]) for knob in self.knobs_of[operator]))


CHUNK = 64
CONFIRM = 4
GROW = 1.1
"""A latency that is not settled is looked at again after so many times the samples."""
NO_REASON = "it failed without a reason"
TELL_S = 1.0
"""How often a long measurement tells how far it is."""


@dataclass(frozen=True)
class Setup:
    """What is measured of one query: its operators with the knobs of each and of all before it, and the rule.

    `shares` are those of the strata. Where samples are numbered things (rows of a feature file), `strata_of` and
    `samples` say of which stratum and which of them each is that is drawn. `seconds` after its beginning nothing
    more is measured. What the journal says was set aside stays so, unless `retry`. `settled` says of samples whether
    they settle the wishes of latency: a configuration that is accurate enough is sampled until they do. `futile` says
    of samples of a configuration why more of them would change nothing.
    """

    app: str
    evaluator: str
    operators: tuple[str, ...]
    knobs_of: Mapping[str, tuple[str, ...]]
    shares: tuple[float, ...]
    rule: Rule
    low: float = 0.0
    high: float = 1.0
    use_cache: bool = True
    charged: tuple[str, ...] | None = None
    strata_of: tuple[int, ...] = ()
    samples: tuple[int, ...] = ()
    seconds: float | None = None
    retry: bool = False
    way: Callable[[Collection[str]], object] | None = None
    settled: Callable[[Runs, int], bool] | None = None
    futile: Callable[[Runs, int], str] | None = None

    @classmethod
    def of(
        cls, *, rule: Mapping[str, Any], features: str | None = None, strata: int = 1, journal: Journal | None = None,
        **named: Any,
    ) -> Setup:  # fmt: skip
        """The setup that a problem asks for (`Tools.evaluate`).

        With a feature file, samples are its rows: strata of alike ones in turn, no more than there are.
        """
        asked = cls(rule=Rule(**rule), **named)
        if features is None:
            return asked
        made = stratify(read_features(features), strata)
        if journal is not None:
            journal.warnings += [("W-strata", features, text) for text in made.joined]
        order = made.order()
        shorter = replace(
            asked.rule, n_max=min(asked.rule.n_max, order.size), n_min=min(asked.rule.n_min, order.size)
        )  # fmt: skip
        return replace(
            asked, rule=shorter, shares=tuple(made.share.tolist()), samples=tuple(order.tolist()),
            strata_of=tuple(made.of[order].tolist()),
        )  # fmt: skip

    def drawn(self, begin: int, count: int) -> NDArray[np.int64]:
        """The strata of so many samples in their order: in turn, or as the feature file has it."""
        if self.strata_of:
            return np.array(self.strata_of[begin : begin + count], dtype=np.int64)
        return np.asarray((begin + np.arange(count)) % len(self.shares), dtype=np.int64)

    @cached_property
    def _shuffled_numbers(self) -> Integers:
        """The numbers below `n_max` of one stratum, shuffled; the same for every configuration."""
        return np.random.default_rng(0).permutation(max(1, self.rule.n_max // len(self.shares)))

    def number(self, place: int) -> int:
        """The number of the sample that is drawn at a place: of the place's stratum, far from those before it.

        >>> rule = Rule(0.5, n_max=8)
        >>> setup = Setup("q", "e", ("a",), {"a": ()}, (1.0,), rule)
        >>> sorted(setup.number(place) for place in range(8)), setup.number(8) >= 8
        ([0, 1, 2, 3, 4, 5, 6, 7], True)
        """
        if self.samples:
            return self.samples[place]
        turn, stratum = divmod(place, len(self.shares))
        block, at = divmod(turn, self._shuffled_numbers.size)
        return (block * self._shuffled_numbers.size + int(self._shuffled_numbers[at])) * len(self.shares) + stratum


class _Seen(Seen):
    """Scores with what each sample took, and how many were asked for again."""

    def __init__(
        self, setup: Setup, rule: Rule, configuration: int, futile: Callable[[Runs, int], str] | None = None
    ) -> None:
        super().__init__(replace(rule, low=setup.low, span=setup.high - setup.low), np.array(setup.shares))
        self._setup, self._futile, self.stopped = setup, futile, ""
        self._configuration = configuration
        self._rows: list[tuple[float, ...]] = []
        self.again, self.again_why = 0, ""

    def goal(self) -> int:
        """How many samples there are to be when it is looked again."""
        if self._futile is not None and self.n and not (self.latest.decided and not self.rule.passes(self.latest.mean)):
            self.stopped = self.stopped or self._futile(self.runs, self._configuration)
        if self.stopped:
            return self.n
        if not self.latest.decided or not self.rule.passes(self.latest.mean) or self._setup.settled is None:
            return self.n + self.next_look()
        if self.n >= self.rule.n_max or self._setup.settled(self.runs, self._configuration):
            return self.n
        return min(self.rule.n_max, math.ceil(self.n * GROW))

    def take(self, batches: Sequence[Mapping[str, Any]]) -> None:
        """Take in batches of samples."""
        begin, names = self.n, self._setup.operators
        scores = np.array([score for batch in batches for score in batch["scores"]])
        index = np.array(
            [batch.get("index", batch["from"]) + k for batch in batches for k in range(len(batch["scores"]))]
        )  # fmt: skip
        for batch in batches:
            costs = (
                *(batch["seconds"].get(name, math.nan) for name in names),
                *(batch["bytes"][name] for name in names),
            )
            rounds = (batch.get("rounds", {}).get(name, float(name in batch["seconds"])) for name in names)
            self._rows += [(*costs, *rounds, batch["input_bytes"])] * len(batch["scores"])
            self.again += batch.get("again", 0)
            self.again_why = self.again_why or batch.get("why", "")
        self.add(self._setup.drawn(begin, scores.size), scores, index)

    @property
    def runs(self) -> Runs:
        """What each sample took."""
        rows, count = np.array(self._rows), len(self._setup.operators)
        once = Runs(rows[:, :count], rows[:, count : 2 * count], rows[:, -1])
        often = rows[:, 2 * count : 3 * count]
        return once if (often == once.often).all() else replace(once, rounds=often)


@dataclass
class Profiler:
    """Measures configurations of one query, one by one or `several` beside each other."""

    setup: Setup
    evaluate: Callable[..., Any]
    journal: Journal = field(default_factory=Journal)
    timeout_s: float = 60.0
    gpu_s: float = 0.0
    cancel: threading.Event | None = None
    on_event: OnEvent | None = None

    def __post_init__(self) -> None:
        self.cache = PrefixCache(self.setup.knobs_of, enabled=self.setup.use_cache)
        self._until = math.inf if self.setup.seconds is None else time.monotonic() + self.setup.seconds
        self._guarded = Guarded(
            self.evaluate, self.setup.operators, self.setup.low, self.setup.high,
            timeout_s=self.timeout_s, cancel=self.cancel, until=self._until, way=self.setup.way,
        )  # fmt: skip
        self._reported_s = time.monotonic()

    def __call__(self, configuration: int, knobs: Mapping[str, Any], *, confirm: bool = False) -> Measured:
        """Sample until the rule stops; a configuration that cannot be measured is set aside with the reason.

        `confirm` goes on under the rule that holds however often one looks, to four times the samples. What was
        sampled before a `Interrupted` or `OutOfTime` is in the journal.
        """
        return self._conclude(configuration, knobs, self._take_samples(configuration, knobs, confirm=confirm))

    def several(self, asked: Sequence[tuple[int, Mapping[str, Any]]]) -> Iterator[Measured]:
        """The same of configurations with their knobs, beside each other, in this order.

        They are concluded in their order once all are sampled, and so they are in the journal. Which was
        faster, and where it ran, changes nothing.
        """
        turns = [(self.setup.app, knobs) for _, knobs in asked]
        with self.journal.beside(turns) as release, ThreadPoolExecutor(len(asked)) as pool:
            under_way = [pool.submit(self._take_samples, configuration, knobs) for configuration, knobs in asked]
            wait(under_way)
            for (configuration, knobs), one in zip(asked, under_way, strict=True):
                release(self.setup.app, knobs)
                yield self._conclude(configuration, knobs, one.result())

    def _take_samples(self, configuration: int, knobs: Mapping[str, Any], *, confirm: bool = False) -> _Seen | Measured:
        """What was seen when the rule stopped, or what says why it was set aside."""
        before = None if self.setup.retry else self.journal.plan(self.setup.app, knobs)
        if before is not None and before.get("verdict") == Verdict.SET_ASIDE:
            return Measured(configuration, samples=before.get("samples", 0), reason=before.get("reason", NO_REASON))
        rule = self.setup.rule
        if confirm:
            most = CONFIRM * rule.n_max
            rule = replace(rule, kind="betting", n_max=min(most, len(self.setup.samples) or most))
        seen = _Seen(self.setup, rule, configuration, None if confirm else self.setup.futile)
        known = deque(self.journal.samples(self.setup.app, knobs))
        used = {batch.get("index", batch["from"]) for batch in known}
        while (goal := seen.goal()) > seen.n:
            batches, at = [], seen.n
            while at < goal:
                self._look_up(knobs, at)
                try:
                    batches.append(self._next(known, knobs, at, goal - at, used))
                except EvaluationFailed as error:
                    return Measured(configuration, samples=at, reason=str(error) or NO_REASON)
                at += len(batches[-1]["scores"])
            seen.take(batches)
        return seen

    def _look_up(self, knobs: Mapping[str, Any], samples: int) -> None:
        """Between samples: whether to stop, and a word on how far it is."""
        if self.cancel is not None and self.cancel.is_set():
            raise Interrupted(f"cancelled while measuring {self.setup.app}")
        if time.monotonic() >= self._until:
            raise OutOfTime(f"no time is left for measuring {self.setup.app}")
        if self.on_event is not None and time.monotonic() - self._reported_s >= TELL_S:
            self._reported_s = time.monotonic()
            settings = ", ".join(f"{knob} {value}" for knob, value in knobs.items())
            self.on_event(Event("sampled", f"{self.setup.app}: {samples} samples of {settings}"))

    def _next(
        self, known: deque[dict[str, Any]], knobs: Mapping[str, Any], begin: int, count: int, used: set[int]
    ) -> dict[str, Any]:
        """The next batch of samples: from the journal, or measured and written down; none is drawn twice."""
        while known and known[0]["from"] + len(known[0]["scores"]) <= begin:
            known.popleft()
        if known and known[0]["from"] <= begin:
            self._same_operators(known[0])
            self._in_range(known[0]["scores"])
            skipped = begin - known[0]["from"]
            found = {**known[0], "from": begin, "scores": known[0]["scores"][skipped : skipped + count]}
            return found if skipped == 0 else {**found, "again": 0}
        if hasattr(self.evaluate, "many") and not self.setup.samples:
            scores, sample = self._guarded.many(knobs, begin, min(count, CHUNK))
            which = begin
        else:
            places = range(begin, begin + len(self.setup.shares) * (len(used) + 1), len(self.setup.shares))
            free = (number for number in map(self.setup.number, places) if number not in used)
            which = self.setup.samples[begin] if self.setup.samples else next(free)
            used.add(which)
            sample = self._guarded(knobs, int(self.setup.drawn(begin, 1)[0]), which)
            scores = [sample.score]
        batch: dict[str, Any] = {"from": begin, "scores": scores, "seconds": dict(sample.seconds),
                                 "bytes": dict(sample.bytes), "input_bytes": sample.input_bytes}  # fmt: skip
        if which != begin:
            batch["index"] = which
        if sample.rounds:
            batch["rounds"] = dict(sample.rounds)
        if sample.again:
            batch |= {"again": sample.again, "why": sample.again_why}
        self.journal.add_samples(self.setup.app, knobs, batch)
        return batch

    def _same_operators(self, batch: Mapping[str, Any]) -> None:
        """A journal that says not of what its samples are may hold those of another pipeline."""
        same = set(self.setup.operators) == batch["bytes"].keys()
        if same and (
            batch["seconds"].keys() == batch["bytes"].keys()
            if self.setup.way is None
            else self.setup.way(batch["seconds"].keys()) is not None
        ):
            return
        raise InputError.one(
            file=str(self.journal.path or "journal"), value=self.setup.app,
            why=f"its samples are of other operators than {', '.join(self.setup.operators)}",
            remedy="Name another file, or measure anew.",
        )  # fmt: skip

    def _in_range(self, scores: Sequence[float]) -> None:
        """A score that the metric does not have was measured by nobody."""
        low, high = self._guarded.low, self._guarded.high
        if not low - 1e-9 <= min(scores) <= max(scores) <= high + 1e-9:
            wrong = min(scores) if min(scores) < low else max(scores)
            raise InputError.one(
                file=str(self.journal.path or "journal"), path=f"{self.setup.app}.scores", value=wrong,
                why=f"a score of the metric, from {low:g} to {high:g}", remedy="Mend or remove the line.",
            )  # fmt: skip

    def _conclude(self, configuration: int, knobs: Mapping[str, Any], seen: _Seen | Measured) -> Measured:
        if isinstance(seen, Measured):
            self._write(knobs, seen)
            return seen
        n, latest, rule, runs = seen.n, seen.latest, seen.rule, seen.runs
        sign = rule.passes(latest.mean)
        known = latest.decided and not seen.stopped
        verdict = (Verdict.PASS if sign else Verdict.FAIL) if known else Verdict.UNDECIDED
        seconds = dict(zip(self.setup.operators, np.nan_to_num(runs.seconds).mean(axis=0).tolist(), strict=True))
        charged = self.setup.charged or self.setup.operators
        gpu_s = self.cache.charge(knobs, n, {name: seconds[name] for name in charged})
        self.gpu_s += gpu_s
        low, high = seen.interval()
        constant = runs.rounds is None and all(
            bool((held == held[:1]).all()) for held in (runs.seconds, runs.bytes_out, runs.bytes_in)
        )
        found = Measured(
            configuration=configuration, mean=latest.mean, se=latest.se, samples=n, verdict=verdict,
            passes=sign and not seen.stopped and (known or rule.undecided == "sign"), seconds=runs.each_time(),
            bytes_out=tuple(runs.bytes_out.mean(axis=0).tolist()), bytes_in=float(runs.bytes_in.mean()), gpu_s=gpu_s,
            low=low, high=high, alike=seen.burst(n), again=seen.again, again_why=seen.again_why,
            runs=None if constant else runs, constant=constant,
        )  # fmt: skip
        self._write(knobs, found, stopped=seen.stopped)
        return found

    def _write(self, knobs: Mapping[str, Any], found: Measured, *, stopped: str = "") -> None:
        """The line of a measured plan: what verification and simulation need of it."""
        line: dict[str, Any] = {"verdict": str(found.verdict), "passes": found.passes, "samples": found.samples}
        if stopped:
            line["stopped"] = stopped
        if found.reason:
            line["reason"] = found.reason
        else:
            line |= {"mean": found.mean, "se": found.se, "gpu_s": found.gpu_s, "input_bytes": found.bytes_in}
            line["seconds"] = dict(zip(self.setup.operators, found.seconds, strict=True))
            line["bytes"] = dict(zip(self.setup.operators, found.bytes_out, strict=True))
            line |= {"interval": [found.low, found.high], "alike": found.alike}
            if found.again:
                line |= {"again": found.again, "why": found.again_why}
            if found.runs is not None:
                line["runs"] = {
                    "seconds": dict(
                        zip(self.setup.operators, map(_written_seconds, found.runs.seconds.T), strict=True)
                    ),
                    "bytes": dict(zip(self.setup.operators, found.runs.bytes_out.T.tolist(), strict=True)),
                    "input_bytes": found.runs.bytes_in.tolist(),
                }
                if found.runs.rounds is not None:
                    often = found.runs.rounds.astype(int).T.tolist()
                    line["runs"]["rounds"] = dict(zip(self.setup.operators, often, strict=True))
            else:
                line["constant"] = True
        self.journal.add_plan(self.setup.app, knobs, line)


def _written_seconds(column: NDArray[np.float64]) -> list[float | None]:
    """What an operator took of each sample; null of those that it did not run for."""
    return [None if math.isnan(each) else each for each in column.tolist()]


def measuring(
    evaluators: Mapping[str, Callable[..., Any]] | Callable[..., Any],
    *,
    journal: Journal | None = None,
    timeout_s: float = 60.0,
    cancel: threading.Event | None = None,
    on_event: OnEvent | None = None,
) -> Callable[..., Callable[..., Measured]]:
    """What `Tools.evaluate` wants: for the setup of a query, a callable that measures its configurations.

    `evaluators` maps the names in profiles to callables (or is the one for all). `cancel` ends a measurement between
    two samples.
    """
    kept = journal or Journal()

    def begin(**setup: Any) -> Callable[..., Measured]:
        asked = Setup.of(journal=kept, **setup)
        evaluate = evaluators if callable(evaluators) else evaluators.get(asked.evaluator)
        if evaluate is None:
            listed: Sequence[str] = sorted(evaluators) if isinstance(evaluators, Mapping) else ()
            raise InputError.one(
                path="evaluate", value=asked.evaluator, why="there is no such evaluator",
                remedy=f"Known are {', '.join(listed) or 'none'}: name it in the trusted configuration.",
            )  # fmt: skip
        return Profiler(asked, evaluate, kept, timeout_s, cancel=cancel, on_event=on_event)

    return begin
