"""A load of requests for text: what is sent, and time to first token, time per token, gaps and goodput as measured.

Every prompt is a list of random tokens of the length that was drawn, so that no cache knows it but what is said to be
cached; every answer is as long as was drawn, where the server heeds `ignore_eos`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any

from hetplan.measure.load_report import (
    STRETCHES,
    AppMeasured,
    LoadLine,
    LoadReport,
    estimate_figure,
    judge,
    kept_or_worse,
    statuses_of,
)
from hetplan.measure.load_send import Sent, Target
from hetplan.planner.promise_figures import Estimate, Verdict
from hetplan.serving.distribution import nearest_rank

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetplan.profiles.plan import Plan
    from hetplan.profiles.slo import LatencyTarget
    from hetplan.serving.tokens import Requests

__all__ = ["SHOWN", "TextMeasured", "in_limits", "percentile", "text_of", "text_report", "text_target"]

_TOKENS = (10, 1000)
"""The numbers of tokens that prompts are made of: every vocabulary has them."""


def text_target(
    app: str, url: str, due_s: NDArray[np.float64], requests: Requests, *, seed: int = 0,
    template: Mapping[str, Any] | None = None, fields: Sequence[tuple[str, str]] = (),
) -> Target:  # fmt: skip
    """The requests of an application, one body each; `template` overrides fields of the body (`{"model": ...}`)."""
    import numpy as np

    random, said = Random(seed), dict(template or {})
    most = int(requests.input.max(initial=1))
    common = [random.randrange(*_TOKENS) for _ in range(most)]
    bodies, own = [], []
    columns = zip(requests.input.tolist(), requests.output.tolist(), requests.cached.tolist(), strict=True)
    for length, output, cached in columns:
        prompt = common[:cached] + [random.randrange(*_TOKENS) for _ in range(length - cached)]
        body = {
            "model": app, "prompt": prompt, "max_tokens": output, "min_tokens": output, "ignore_eos": True,
            "temperature": 0, "stream": True, "stream_options": {"include_usage": True}, **said,
        }  # fmt: skip
        bodies.append(json.dumps(body, separators=(",", ":")).encode())
        own.append(f"hetplan-at: input_tokens={length};cached_tokens={cached}")
    kinds = np.arange(len(bodies), dtype=np.int32)
    return Target(app, url, due_s, kinds, bodies, headers=tuple(fields), streams=True, fields=own)


@dataclass(frozen=True)
class TextMeasured:
    """What was measured of each request, in milliseconds from when it was due; infinite where no answer came."""

    ttft_ms: NDArray[np.float64]
    tpot_ms: NDArray[np.float64]
    response_ms: NDArray[np.float64]
    gap_ms: NDArray[np.float64]
    tokens: NDArray[np.int64]
    late_ms: NDArray[np.float64]
    statuses: dict[str, int]
    connections: int
    rate_qps: float

    def of(self, what: str) -> NDArray[np.float64]:
        """The times that a limit is about: `ttft`, `tpot`, `response`, or `gap`."""
        found: NDArray[np.float64] = getattr(self, f"{what}_ms")
        return found

    def taken(self, part: slice) -> TextMeasured:
        """Some of the requests."""
        rows = {name: getattr(self, name)[part] for name in (*_COLUMNS, "tokens", "late_ms")}
        return TextMeasured(**rows, statuses=self.statuses, connections=self.connections, rate_qps=self.rate_qps)


_COLUMNS = ("ttft_ms", "tpot_ms", "response_ms", "gap_ms")


def text_of(sent: Sent) -> TextMeasured:
    """What a load of streams showed; a request whose stream broke off was never answered."""
    import numpy as np

    count = len(sent.due_s)
    ttft, tpot, response, gap = (np.full(count, math.inf) for _ in range(4))
    tokens = np.zeros(count, dtype=np.int64)
    for place, marks in enumerate(sent.marks):
        if marks is None or not 200 <= sent.status[place] < 300:
            continue
        due, made = float(sent.due_s[place]), marks.tokens
        ttft[place], response[place] = 1e3 * (marks.first_s - due), 1e3 * (marks.last_s - due)
        tpot[place] = 1e3 * (marks.last_s - marks.first_s) / (made - 1) if made > 1 else math.nan
        gap[place], tokens[place] = 1e3 * marks.gap_s, made
    length = float(sent.due_s[-1] - sent.due_s[0]) if count > 1 else 0.0
    return TextMeasured(
        ttft,
        tpot,
        response,
        gap,
        tokens,
        sent.late_ms,
        statuses_of(sent.status),
        sent.connections,
        count / max(length, 1e-9),
    )


def percentile(values: NDArray[np.float64], at: float) -> float:
    """The least value that at least so many percent do not exceed; of those that have one."""
    import numpy as np

    return nearest_rank(np.sort(values[~np.isnan(values)]), at / 100.0)


def in_limits(found: TextMeasured, limits: Sequence[LatencyTarget]) -> float:
    """The share of requests within all limits at once, as stated: what was measured has the network in it."""
    from hetplan.serving.tokens import within

    good = within(found.of, limits)
    return float(good.mean()) if len(good) else math.nan


def _with_interval(found: TextMeasured, figure: Callable[[TextMeasured], float]) -> Estimate:
    """A figure of the whole, with the interval that ten stretches of it make; one that is never reached has none."""
    import numpy as np

    edges = np.linspace(0, len(found.ttft_ms), STRETCHES + 1).astype(int)
    whole, parts = figure(found), [figure(found.taken(slice(*ends))) for ends in pairwise(edges.tolist())]
    return estimate_figure(whole, [part for part in parts if math.isfinite(part)] if math.isfinite(whole) else [])


def _percentile_of(of: str, at: float, found: TextMeasured) -> float:
    return percentile(found.of(of), at)


SHOWN = (("ttft", 50.0), ("ttft", 95.0), ("tpot", 50.0), ("tpot", 95.0), ("gap", 95.0), ("response", 95.0))


def text_report(
    plan: Plan, app: str, found: TextMeasured, simulated: Mapping[tuple[str, float | None], float],
    limits: Sequence[LatencyTarget], *, goodput: float | None, duration_s: float, tolerance: float, judged: slice,
) -> LoadReport:  # fmt: skip
    """Limits first, then promises, then what neither is about; `simulated` is of the very requests that were sent."""
    part = found.taken(judged)
    beside = {key: (value, value, value) for key, value in simulated.items()}
    percentiles = dict.fromkeys([*((limit.of, limit.percentile) for limit in limits), *SHOWN])
    figures = {(of, at): _with_interval(part, partial(_percentile_of, of, at)) for of, at in percentiles}
    shares = _with_interval(part, lambda one: in_limits(one, limits))
    lines = [
        LoadLine(
            app, f"{limit.of}_ms", limit.percentile, "<=", limit.max_ms, "slo",
            beside.get((limit.of, limit.percentile)), figures[limit.of, limit.percentile],
            judge(figures[limit.of, limit.percentile], "<=", limit.max_ms),
        )
        for limit in limits
    ]  # fmt: skip
    goodput_verdict = judge(shares, ">=", goodput) if goodput is not None else Verdict.REPORTED
    by = "slo" if goodput is not None else "figure"
    lines.append(
        LoadLine(app, "goodput", None, ">=", goodput, by, beside.get(("goodput", None)), shares, goodput_verdict)
    )  # fmt: skip
    for promise in plan.promises:
        at = promise.percentile
        if promise.app != app or at is None or (promise.quantity.removesuffix("_ms"), at) not in figures:
            continue
        key = (promise.quantity.removesuffix("_ms"), at)
        verdict = kept_or_worse(figures[key], promise)
        lines.append(
            LoadLine(
                app, promise.quantity, promise.percentile, promise.relation, promise.value, promise.model,
                beside.get(key), figures[key], verdict if promise.model.startswith("simulation") else Verdict.REPORTED,
            )
        )  # fmt: skip
    said = {(line.quantity, line.percentile) for line in lines}
    lines += [
        LoadLine(app, f"{of}_ms", at, "", None, "figure", beside.get((of, at)), found_here, Verdict.REPORTED)
        for (of, at), found_here in figures.items()
        if (f"{of}_ms", at) not in said
    ]
    measured = AppMeasured(
        app=app,
        requests=len(part.ttft_ms),
        warm_up=judged.start or 0,
        offered_qps=found.rate_qps,
        figures={"goodput": shares, **{f"{of}_ms_p{at:g}": one for (of, at), one in figures.items()}},
        percentiles_ms={at: one for (of, at), one in figures.items() if of == "response"},
        statuses=found.statuses,
        late_sender_ms=(percentile(found.late_ms, 50.0), percentile(found.late_ms, 99.0)),
        connections=found.connections,
        short_of=(),
        scored=True,
    )
    return LoadReport(plan.digest, duration_s, {app: measured}, tuple(lines), tuple(_warnings(app, found)), tolerance)


def _warnings(app: str, found: TextMeasured) -> list[tuple[str, str, str]]:
    import numpy as np

    said = []
    late, typical = percentile(found.late_ms, 99.0), percentile(found.ttft_ms, 50.0)
    if late > max(5.0, 0.1 * typical):
        why = (
            f"1% of the requests were sent {late:.3g} ms or more too late: this machine has too little time for sending"
        )
        said.append(("W-late-sender", f"apps.{app}", why))
    lost = int(np.isinf(found.response_ms).sum())
    if lost:
        said.append(("W-no-answer", f"apps.{app}", f"{lost} of {len(found.ttft_ms)} requests had no whole answer"))
    return said
