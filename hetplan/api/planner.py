"""`Planner`: files read once, for schedulers that plan every few seconds, from several threads or from asyncio.

>>> import hetplan as hp
>>> planner = hp.Planner("examples/pool/profile.json", "examples/pool/slo.json", options={"sizing": "fluid"})
>>> planner.plan().require() == planner.last
True
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hetplan.api.solve import Source, plan_for
from hetplan.errors import InputError, Interrupted
from hetplan.planner.answer import Limits
from hetplan.planner.outcome import Outcome
from hetplan.planner.status import Exit
from hetplan.planner.terms import OnEvent
from hetplan.profiles.arguments import check_arguments, is_number
from hetplan.profiles.given_files import GivenFile
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import Loaded, load_inputs
from hetplan.profiles.load_one import read_profile
from hetplan.profiles.plan import Plan
from hetplan.profiles.profile import Profile
from hetplan.profiles.slo import Slo

__all__ = ["Planner", "lead_and_limits_of", "violation_of", "with_rates"]

USABLE = (Exit.OK, Exit.GAP_NOT_REACHED, Exit.LIMIT, Exit.INTERRUPTED)
"""How an outcome ends whose plan may be applied."""


class Planner:
    """Files read once, for loops that plan every few seconds; safe from several threads.

    `plan` is `solve` for other rates. `deadline_s` are the seconds that one plan may take: then, or once `cancel` is
    set, the best plan so far comes back, or an outcome without a plan that says why. Where there are not machines
    enough for the rates, the outcome is infeasible, and `last` is still the last plan that there was.
    """

    @check_arguments
    def __init__(
        self,
        profile: GivenFile | Sequence[GivenFile],
        slo: GivenFile,
        *,
        formulation: str | None = None,
        options: Mapping[str, Any] | None = None,
        solver: str | None = None,
        deadline_s: float | None = None,
    ) -> None:
        Limits(seconds=deadline_s)
        several = isinstance(profile, Sequence) and not isinstance(profile, str | bytes)
        sources: Any = profile if several else (profile,)
        self._sources: tuple[Any, ...] = tuple(sources)
        self._slo = slo
        self._how: dict[str, Any] = {"formulation": formulation, "options": options, "solver": solver}
        self._deadline_s = deadline_s
        self._read: Loaded[Profile] | None = None
        self._last: Plan | None = None
        self._begun = self._newest = 0
        self._is_closed = False
        self._at_hand()

    def _at_hand(self) -> None:
        """What belongs to this process, and is left out of a copy."""
        self._lock = threading.Lock()
        self._running: set[threading.Event] = set()
        self._threads: ThreadPoolExecutor | None = None

    @property
    def last(self) -> Plan | None:
        """The newest plan that may be applied; None before there is one."""
        return self._last

    def plan(
        self,
        rates: Mapping[str, float] | None = None,
        *,
        state: GivenFile | None = None,
        start: Source | Plan | None = None,
        deadline_s: float | None = None,
        cancel: threading.Event | None = None,
        on_event: OnEvent | None = None,
    ) -> Outcome:
        """A plan for these rates (application -> queries per second; others as in the SLO), from what runs (`state`).

        `start` is a plan to begin the search from.
        """
        return self._plan(
            rates, state, start, deadline_s=deadline_s, cancel=cancel or threading.Event(), on_event=on_event
        )

    async def aplan(
        self,
        rates: Mapping[str, float] | None = None,
        *,
        state: GivenFile | None = None,
        start: Source | Plan | None = None,
        deadline_s: float | None = None,
        on_event: OnEvent | None = None,
    ) -> Outcome:
        """`plan`, while other tasks go on; cancelling the task that awaits it ends the work."""
        cancel = threading.Event()
        with self._lock:
            self._refuse_closed()
            self._threads = self._threads or ThreadPoolExecutor(thread_name_prefix="hetplan-plan")
            work: Future[Outcome] = self._threads.submit(
                self._plan, rates, state, start, deadline_s=deadline_s, cancel=cancel, on_event=on_event
            )
        try:
            return await asyncio.wrap_future(work)
        finally:
            cancel.set()

    def close(self) -> None:
        """End what is under way, and wait for its end; a closed planner plans no more."""
        with self._lock:
            self._is_closed = True
            threads, self._threads = self._threads, None
            for cancel in self._running:
                cancel.set()
        if threads is not None:
            threads.shutdown(wait=True)

    def inputs(self, rates: Mapping[str, float] | None = None, **files: Any) -> Inputs:
        """What the files say, with these rates in place of those of the SLO; `files` are state and measurements."""
        profile = self.loaded
        inputs = load_inputs(profile, self._slo, **files)
        if not rates:
            return inputs
        # The file's traces are beside the file.
        folder = Path(self._slo).parent if isinstance(self._slo, str | Path) else None
        return load_inputs(profile, with_rates(inputs.slo, rates), folder=folder, **files)

    @property
    def loaded(self) -> Loaded[Profile]:
        """The profile, read once."""
        with self._lock:
            if self._read is None:
                self._read = read_profile(*self._sources)
            return self._read

    @check_arguments
    def _plan(
        self,
        rates: Mapping[str, float] | None,
        state: GivenFile | None,
        start: Source | Plan | None,
        *,
        deadline_s: float | None,
        cancel: threading.Event,
        on_event: OnEvent | None,
    ) -> Outcome:
        limits = Limits(seconds=self._deadline_s if deadline_s is None else deadline_s, cancel=cancel)
        with self._lock:
            self._refuse_closed()
            self._begun += 1
            number = self._begun
            self._running.add(cancel)
        try:
            inputs = self.inputs(rates, state=state)
            outcome = plan_for(inputs, start=start, limits=limits, on_event=on_event, **self._how)
        finally:
            with self._lock:
                self._running.discard(cancel)
        if outcome.plan is not None and outcome.exit_code in USABLE:
            with self._lock:
                # Of two that are made at once the one that was asked for last counts.
                if number > self._newest:
                    self._newest, self._last = number, outcome.plan
        return outcome

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise Interrupted("the planner is closed")

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and copied without what belongs to this process."""
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_running", "_threads")}

    def __setstate__(self, held: Mapping[str, Any]) -> None:
        self.__dict__.update(held)
        self._at_hand()


def violation_of(plan: Plan, inputs: Inputs, cancel: threading.Event | None = None) -> str:
    """How a plan violates the SLO in a quick simulation; empty where it meets it."""
    from hetplan.planner.promise_figures import Verdict
    from hetplan.problems.draft_simulation import QUERIES, play_length_s
    from hetplan.simulator.simulate import demands_of, simulate

    try:
        batches = [one for one in demands_of(plan, inputs) if one.text is None]
        rates = {one.app: one.rate_qps for one in batches if one.rate_qps > 0}
        length_s = play_length_s(inputs, rates, QUERIES) if rates else None
        report = simulate(plan, inputs, duration_s=length_s, cancel=cancel)
    except InputError as error:
        return f"it cannot be simulated: {str(error).splitlines()[0]}"
    if report.broken:
        return f"in simulation {report.broken[0]}"
    judged = (one for one in report.lines if one.by == "slo" and one.verdict is not Verdict.NOT_SIMULATED)
    return "" if any(judged) else "no limit of the SLO could be simulated"


def lead_and_limits_of(plan: Plan, inputs: Inputs) -> dict[str, Any]:
    """How long a plan's machines take to start, and its queries where limits are just kept (`Replanning.runs`)."""
    from hetplan.serving.planned_system import planned_systems
    from hetplan.simulator.simulate import demands_of
    from hetplan.simulator.system_changes import lead_and_limits

    try:
        return lead_and_limits(planned_systems(plan, inputs)[0].system, demands_of(plan, inputs))
    except InputError:
        # Queries that come as streams, or candidates that say no times: nothing is known to wait for.
        return {"lead_s": 0.0, "limits_s": {}}


def with_rates(slo: Slo, rates: Mapping[str, float]) -> Slo:
    """The SLO with the rates of these applications, in queries per second."""
    unknown = sorted(map(str, set(rates) - set(slo.apps)))
    if unknown:
        raise InputError.one(
            path="rates",
            value=", ".join(unknown),
            why="there is no such application in the SLO",
            remedy=f"Choose among {', '.join(slo.apps)}.",
        )
    apps = dict(slo.apps)
    for name, rate in rates.items():
        if not is_number(rate) or not 0 <= rate < float("inf"):
            raise InputError.one(
                path=f"rates.{name}",
                value=rate,
                why="a rate is a finite number of queries per second, not negative",
                remedy="Give the rate that is asked for now.",
            )
        apps[name] = apps[name].at_rate(float(rate))
    return slo.model_copy(update={"apps": apps})
