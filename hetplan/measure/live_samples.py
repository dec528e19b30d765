"""Measuring in service: samples from live traffic go into the journal, and tests say when something has drifted.

The program that grades live answers appends lines to a file. Each has an application, and a score, a response time
or both::

    {"app": "gate", "score": 1, "response_ms": 212.5}

Where a line also has ``seconds`` and ``bytes`` per operator (as an evaluator answers), it can serve as a sample of the
plan that runs. Accuracy has fallen when it is below its target, or below what measuring made sure of where that is
more; latency is worse when more responses are late than the promised percentile allows. Both tests are
`hetplan.measure.drift`'s, and hold however often one looks.

When one of them sounds, what was measured of the application becomes old. The plan that runs is judged anew by the
samples since the change, and a new search begins from all of it. All is on disk before it is used: after a kill, the
same file and journal give the same decision.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hetplan.errors import InputError
from hetplan.measure.drift import DriftTest
from hetplan.measure.journal import Journal
from hetplan.measure.sampling import Rule, Seen
from hetplan.planner.forms.black_box import Verdict
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Metric

__all__ = ["Drifted", "InService", "read_live"]

N_MIN = 50
"""Scores that a plan is judged by, at least, where there are so many."""
BATCH = 1000
"""Lines of one application that are taken in together."""


@dataclass(frozen=True)
class Drifted:
    """What has drifted of an application, after how many samples, and from which sample on."""

    app: str
    quantity: str
    samples: int
    since: int
    why: str


@dataclass
class _Running:
    """One application: its plan, its tests by the key of what they read, and the samples seen."""

    knobs: dict[str, Any]
    metric: Metric
    target: float | None
    tests: dict[str, tuple[DriftTest, float | None]]
    samples: list[dict[str, Any]] = field(default_factory=list)

    def take(self, app: str, samples: list[dict[str, Any]]) -> Drifted | None:
        """Take in samples; the first alarm among them."""
        found: Drifted | None = None
        for sample in samples:
            self.samples.append(sample)
            found = found or self._test_for_drift(app, sample)
        return found

    def _test_for_drift(self, app: str, sample: dict[str, Any]) -> Drifted | None:
        for quantity, (test, limit_ms) in self.tests.items():
            key = "score" if limit_ms is None else "response_ms"
            if key not in sample or test.alarm:
                continue
            test.add([sample[key] if limit_ms is None else float(sample[key] <= limit_ms)])
            if test.alarm:
                return Drifted(app, quantity, test.n, self._place(key, test.since), _why(test, limit_ms))
        return None

    def _place(self, key: str, since: int) -> int:
        """Which of all samples is the one with that number among those that have the key."""
        places = [place for place, sample in enumerate(self.samples) if key in sample]
        return places[min(since, len(places) - 1)]


def _why(test: DriftTest, limit_ms: float | None) -> str:
    seen = f"since sample {test.since} of {test.n}"
    if limit_ms is None:
        side = "above" if test.lower else "below"
        return f"its accuracy is {side} {test.mean:.4g} {seen}"
    return f"fewer than {100 * test.mean:g}% of responses are within {limit_ms:.4g} ms {seen}"


class InService:
    """The tests of one plan, fed with live samples; `read` takes in what a file has got since the last look."""

    def __init__(
        self, plan: Plan, inputs: Inputs, journal: Journal, *, fall: float = 0.05, false_alarms: float = 0.04
    ) -> None:
        self.journal, self.fall, self.false_alarms = journal, fall, false_alarms
        self._apps = {
            app_id: found
            for app_id in plan.dispatch
            if (found := self._running_plan(plan, inputs, app_id)) is not None
        }  # fmt: skip
        self._waiting: Drifted | None = None
        # The samples of a run that was killed: the tests are where they were.
        for app_id, running in self._apps.items():
            for batch in journal.live(app_id, running.knobs):
                self._waiting = running.take(app_id, batch["samples"]) or self._waiting

    @property
    def apps(self) -> tuple[str, ...]:
        """The applications that are watched."""
        return tuple(self._apps)

    def read(self, path: Path) -> Drifted | None:
        """Take in what the file has got since it was last read; the first drift that is noticed ends it."""
        if self._waiting is not None:
            waited, self._waiting = self._waiting, None
            return waited
        for app, samples, end in _batches(read_live(path, self.journal.read)):
            if (found := self.take(app, samples, end)) is not None:
                return found
        return None

    def take(self, app: str, samples: list[dict[str, Any]], end: int = 0) -> Drifted | None:
        """Take in samples of an application, which are on disk before they count."""
        running = self._apps.get(app)
        if running is None:
            return None
        low, high = running.metric.range
        for sample in samples:
            if not low - 1e-9 <= sample.get("score", low) <= high + 1e-9:
                raise InputError.one(
                    file="--live", value=sample["score"], path=f"{app}.score",
                    why=f"a score outside the metric's range {low:g} .. {high:g}", remedy="Mend the grading program.",
                )  # fmt: skip
        self.journal.add_live(app, running.knobs, samples, end)
        return running.take(app, samples)

    def conclude(self, found: Drifted) -> None:
        """Make what is known old, and judge the plan that runs by its samples since the change."""
        running = self._apps[found.app]
        since = running.samples[found.since :]
        before = self.journal.plan(found.app, running.knobs)
        scores = np.array([float(one["score"]) for one in since if "score" in one])
        known = before is not None and scores.size > 0 and running.target is not None
        judged = _judged(before, scores, running) if before is not None and known else None
        self.journal.drift(found.app, running.knobs, f"{found.quantity}: {found.why}", judged)
        whole = [one for one in since if {"score", "seconds", "bytes"} <= set(one)]
        for place, one in enumerate(whole):
            batch = {"from": place, "scores": [float(one["score"])], "seconds": one["seconds"], "bytes": one["bytes"]}
            self.journal.add_samples(
                found.app, running.knobs, {**batch, "input_bytes": float(one.get("input_bytes", 0.0))}
            )
        running.samples.clear()
        running.tests = {
            name: (DriftTest(test.mean, test.fall, test.low, test.high, test.lower, test.spread, test.false_alarms), ms)
            for name, (test, ms) in running.tests.items()
        }  # fmt: skip

    def _running_plan(self, plan: Plan, inputs: Inputs, app_id: str) -> _Running | None:
        rule, app = plan.dispatch[app_id], inputs.slo.apps.get(app_id)
        knobs = getattr(rule, "knobs", None)
        if app is None or app.pipeline is None or not knobs:
            return None
        pipeline = inputs.profile.pipelines[app.pipeline]
        metric = inputs.profile.metrics.get(pipeline.metric or "") or Metric(kind="bernoulli")
        lower = metric.better == "lower"
        target = None if app.quality is None else (app.quality.max if lower else app.quality.min)
        tests: dict[str, tuple[DriftTest, float | None]] = {}
        for promise in plan.promises:
            if promise.app != app_id:
                continue
            if promise.quantity == "quality":
                tests["accuracy"] = (self._accuracy(promise.value, promise.interval, target, metric), None)
            elif promise.quantity == "response_ms" and promise.percentile is not None:
                share = promise.percentile / 100.0
                test = DriftTest(share, min(self.fall, share / 2), false_alarms=self.false_alarms)
                tests[f"p{promise.percentile:g}"] = (test, promise.value)
        return _Running(dict(knobs), metric, target, tests)

    def _accuracy(
        self, value: float, interval: tuple[float, float] | None, target: float | None, metric: Metric
    ) -> DriftTest:
        """The test against what was made sure of, or the target where that is stricter on the samples."""
        low, high = metric.range
        lower = metric.better == "lower"
        sure = value if interval is None else interval[1 if lower else 0]
        mean = sure if target is None else (min(sure, target) if lower else max(sure, target))
        return DriftTest(
            min(max(mean, low), high), self.fall * (high - low), low, high, lower, false_alarms=self.false_alarms
        )


def _judged(before: Mapping[str, Any], scores: np.ndarray, running: _Running) -> dict[str, Any]:
    """The line of the plan that runs, by its scores in service; what its operators take is as it was measured."""
    low, high = running.metric.range
    assert running.target is not None
    rule = Rule(
        running.target, n_min=min(N_MIN, scores.size), n_max=scores.size, low=low, span=high - low,
        bernoulli=running.metric.kind == "bernoulli", lower=running.metric.better == "lower",
    )  # fmt: skip
    seen = Seen(rule, np.ones(1))
    seen.add(np.zeros(scores.size, dtype=np.int64), scores)
    passes = rule.passes(seen.latest.mean)
    verdict = (Verdict.PASS if passes else Verdict.FAIL) if seen.latest.decided else Verdict.UNDECIDED
    kept = {key: value for key, value in before.items() if key in ("seconds", "bytes", "input_bytes")}
    kept |= _ways(before.get("runs", {})) or {"constant": True}
    return {
        "verdict": str(verdict), "passes": passes, "samples": seen.n, "mean": seen.latest.mean, "se": seen.latest.se,
        "gpu_s": 0.0, **kept, "interval": list(seen.interval()), "alike": seen.burst(seen.n),
    }  # fmt: skip


def _ways(runs: Mapping[str, Any]) -> dict[str, Any]:
    """Which operators ran for each sample, and how often, as it was measured before; {} where all ran once."""
    if "rounds" not in runs and all(each is not None for took in runs.get("seconds", {}).values() for each in took):
        return {}
    return {"runs": runs, "before": len(runs["input_bytes"])}


def _batches(samples: Iterable[tuple[dict[str, Any], int]]) -> Iterator[tuple[str, list[dict[str, Any]], int]]:
    """Samples of one application that follow one another, up to so many, with the place behind the last."""
    app, held, end = "", list[dict[str, Any]](), 0
    for sample, place in samples:
        of = str(sample.pop("app"))
        if held and (of != app or len(held) >= BATCH):
            yield app, held, end
            held = []
        app, end = of, place
        held.append(sample)
    if held:
        yield app, held, end


def read_live(path: Path, begin: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """The samples of a file from a place on, each with the place behind it; a line that is not whole yet waits."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        file.seek(begin)
        place = begin
        for raw in file:
            if not raw.endswith(b"\n"):
                return
            place += len(raw)
            if raw.strip():
                yield _sample(raw, str(path), place), place


def _sample(raw: bytes, file: str, place: int) -> dict[str, Any]:
    sample: dict[str, Any] = {}
    try:
        sample = json.loads(raw)
        numbers = [float(sample[key]) for key in ("score", "response_ms") if key in sample]
        right = bool(numbers) and all(map(math.isfinite, numbers)) and isinstance(sample["app"], str)
        right = right and float(sample.get("response_ms", 0.0)) >= 0.0
    except (ValueError, TypeError, KeyError):
        right = False
    if not right:
        raise InputError.one(
            file=file, path=f"byte {place - len(raw)}", value=raw[:60].decode(errors="replace").strip(),
            why="a sample from service has app, and score or response_ms", remedy="Mend the line.",
        )  # fmt: skip
    return {**sample, "score": float(sample["score"])} if "score" in sample else dict(sample)
