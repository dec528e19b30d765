"""When to stop sampling a configuration: no accuracy could make it better than the plan that there is.

The first samples are cheap and say what a configuration takes. Once some plan complies, another configuration is
measured only while it matters. It does not any more where it is

late   wherever it runs, its latency is above the limit for sure: it can never comply
dear   at the least that it may cost, it is no cheaper than the plan that complies

The second holds where the least cost alone is sought, for the only application: others may need plans that take less of
what is scarce. Such a configuration passes nothing; its samples are believed like all others. While nothing complies
every one is measured to its end, so that it can be said which target binds.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

import numpy as np

from hetplan.planner.forms.black_box import BlackBox, Measured, Runs, Verdict

__all__ = ["Early"]


@dataclass
class Early:
    """Says of samples of a configuration why no more are needed; "" while they are. `form` is set once it is made."""

    alone: bool
    form: BlackBox | None = None
    _least: dict[int, float] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, runs: Runs, configuration: int) -> str:
        """Why no more samples are needed."""
        form = self.form
        if form is None or not np.isfinite(best := self._best(form)):
            return ""
        rows, here = form.tried(runs, configuration), np.isfinite(form.called(configuration))
        each = form.latency_s(rows.seconds, rows.bytes_out, rows.bytes_in)[:, here]
        if (form.judged(each, rows.cases, least=True) > form.limit_s).all():
            return "it is late wherever it runs"
        if self.alone and form.aim.cheapest and _least_cost(form, runs, configuration) >= best:
            return f"it is no cheaper than {best:.6g} per hour, which complies"
        return ""

    def _best(self, form: BlackBox) -> float:
        """The least cost of what complies so far."""
        with self._lock:  # several are measured beside each other
            for c, found in form.journal.items():
                if c not in self._least:
                    self._least[c] = float(form.costs(c).min()) if found.passes else np.inf
            return min(self._least.values(), default=np.inf)


def _least_cost(form: BlackBox, runs: Runs, configuration: int) -> float:
    """The least that a configuration may cost: with every operator as fast as its mean or its median sample."""
    seconds = np.nan_to_num(runs.seconds)  # an operator that did not run took no time
    fast = [np.minimum(held.mean(axis=0), np.median(held, axis=0)) for held in (seconds, runs.bytes_out)]
    arrives = float(min(runs.bytes_in.mean(), np.median(runs.bytes_in)))
    found = Measured(
        configuration, passes=True, verdict=Verdict.PASS, samples=len(runs), seconds=tuple(fast[0].tolist()),
        bytes_out=tuple(fast[1].tolist()), bytes_in=arrives,
    )  # fmt: skip
    return float(replace(form, journal={configuration: found}).costs(configuration).min())
