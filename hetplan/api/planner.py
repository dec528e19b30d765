"""`Planner`: a profile parsed once, for loops that plan every few seconds.

>>> import hetplan as hp
>>> planner = hp.Planner("examples/pool/profile.json")
>>> planner.plan("examples/pool/slo.json").status
'best-of-measured'
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hetplan.api.solve import Choice, Source, choose, options_of, plan_for, pose
from hetplan.errors import HetplanError, InputError
from hetplan.planner.answer import Limits
from hetplan.planner.contract import Event, OnEvent
from hetplan.planner.outcome import Outcome
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.load import Loaded, load_inputs
from hetplan.profiles.load_one import read_profile
from hetplan.profiles.plan import Notice, Plan
from hetplan.profiles.profile import Profile
from hetplan.profiles.read_plan import read_plan
from hetplan.profiles.slo import Demand, Slo
from hetplan.profiles.state import State

__all__ = ["Confirmed", "Planner", "unplayed_size"]

UNPLAYED = {"size": "planned"}
"""The size by which nothing is simulated."""


@dataclass(frozen=True)
class Confirmed(Event):
    """The plan that was asked for with `at_once` is there, played like any other; or why none came of it (`detail`)."""

    outcome: Outcome | None = None


@dataclass
class Planner:
    """A profile parsed once, for loops that plan every few seconds.

    `plan` is `solve` with the profile already read; `start` (a previous plan) is a warm start, `cancel` stops the work
    at the next chance and returns the best plan so far. With `at_once` a plan comes back that was not played, and says
    so (`W-unconfirmed`); the one that `plan` returns without is worked out meanwhile, and handed to `on_event` as
    `Confirmed`, from a thread of its own.
    """

    profile: Source | Profile | Sequence[Source | Profile]
    limits: Limits = field(default_factory=Limits)
    solver: str | None = None
    _read: Loaded[Profile] | None = field(default=None, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what is no limit: an SLO is handed to `plan`."""
        if not isinstance(self.limits, Limits):
            raise InputError.one(
                path="limits", value=type(self.limits).__name__, why="a Planner is made of profiles and of hp.Limits",
                remedy="Hand the SLO to its plan: hp.Planner(profile).plan(slo).",
            )  # fmt: skip

    def plan(
        self,
        slo: Source | Slo,
        *,
        state: Source | State | None = None,
        measured: Source | None = None,
        demand: Mapping[str, float] | None = None,
        start: Source | Plan | None = None,
        cancel: threading.Event | None = None,
        on_event: OnEvent | None = None,
        at_once: bool = False,
        **choices: Any,
    ) -> Outcome:
        """One plan. `demand` replaces each named application's rate (queries per second); `choices` are `solve`'s."""
        inputs = self._inputs(slo, demand, state=state, measured=measured)
        limits = choices.pop("limits", None) or self.limits
        how = {
            "start": start,
            "solver": choices.pop("solver", None) or self.solver,
            "limits": replace(limits, cancel=cancel or limits.cancel),
            "on_event": on_event,
            **choices,
        }
        return _at_once(inputs, how) if at_once else plan_for(inputs, **how)

    def violation(
        self,
        plan: Source | Plan,
        slo: Source | Slo,
        *,
        demand: Mapping[str, float] | None = None,
        cancel: threading.Event | None = None,
    ) -> str:
        """How a plan violates the SLO in a quick simulation; empty where it meets it."""
        from hetplan.planner.promised import Verdict
        from hetplan.problems.simulated import QUERIES, play_length_s
        from hetplan.simulator.simulate import demands_of, simulate

        plan, inputs = read_plan(plan), self._inputs(slo, demand)
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

    def lead_and_limits(self, plan: Plan, slo: Source | Slo) -> dict[str, Any]:
        """How long a plan's machines take to start, and its queries where limits are just kept (`Replanning.runs`)."""
        from hetplan.serving.planned_system import planned_systems
        from hetplan.simulator.following import lead_and_limits
        from hetplan.simulator.simulate import demands_of

        inputs = self._inputs(slo, None)
        try:
            return lead_and_limits(planned_systems(plan, inputs)[0].system, demands_of(plan, inputs))
        except InputError:
            # Queries that come as streams, or candidates that say no times: nothing is known to wait for.
            return {"lead_s": 0.0, "limits_s": {}}

    def _inputs(self, slo: Source | Slo, demand: Mapping[str, float] | None, **files: Any) -> Inputs:
        """The files, with these rates in place of those of the SLO."""
        profile = self.loaded
        inputs = load_inputs(profile, slo, **files)
        if not demand:
            return inputs
        # The file's traces are beside the file.
        folder = Path(slo).parent if isinstance(slo, str | Path) else None
        return load_inputs(profile, _with_demand(inputs.slo, demand), folder=folder, **files)

    def __getstate__(self) -> dict[str, Any]:
        """Pickled and copied without its lock, which belongs to this process."""
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, held: Mapping[str, Any]) -> None:
        self.__dict__.update(held, _lock=threading.Lock())

    @property
    def loaded(self) -> Loaded[Profile]:
        """The profile, read once."""
        with self._lock:
            if self._read is None:
                several = isinstance(self.profile, Sequence) and not isinstance(self.profile, str)
                sources: Sequence[Any] = self.profile if several else [self.profile]  # type: ignore[assignment]
                self._read = read_profile(*sources)
            return self._read


def unplayed_size(choice: Choice, inputs: Inputs) -> dict[str, str]:
    """The option by which a question plans without simulation; none where it has no size, or another was asked for.

    Nor where these files are refused such a size.
    """
    fields = choice.options.__class__.model_fields
    if "size" not in fields or "size" in choice.options.model_fields_set:
        return {}
    try:
        options_of(choice.way, UNPLAYED)
        pose(inputs, replace(choice, options=choice.options.model_copy(update=UNPLAYED)))
    except InputError as error:
        if any(fault.file == "options" for fault in error.faults):
            return {}
    return UNPLAYED


def _at_once(inputs: Inputs, how: Mapping[str, Any]) -> Outcome:
    """The plan that is not played, now; the other is begun when this one is done."""
    heard = how["on_event"]
    if heard is None:
        raise InputError.one(
            path="at_once", why="nobody hears of the confirmed plan", remedy="Hand in on_event, or leave at_once out."
        )
    named = {name: how.get(name) for name in ("question", "formulation", "options")}
    quick = unplayed_size(choose(inputs, **named), inputs)
    if not quick:
        return plan_for(inputs, **how)
    outcome = plan_for(inputs, **{**how, "options": {**(named["options"] or {}), **quick}})

    def confirm() -> None:
        try:
            confirmed = plan_for(inputs, **how)
        except HetplanError as fault:
            heard(Confirmed("confirmed", detail=str(fault)))
        else:
            heard(Confirmed("confirmed", detail=confirmed.status, outcome=confirmed))

    threading.Thread(target=confirm, name="hetplan-confirm", daemon=True).start()
    text = f"size {quick['size']}: not played yet; the confirmed plan comes by on_event"
    return replace(outcome, warnings=(*outcome.warnings, Notice(code="W-unconfirmed", at="promises", text=text)))


def _with_demand(slo: Slo, demand: Mapping[str, float]) -> Slo:
    unknown = sorted(set(demand) - set(slo.apps))
    if unknown:
        raise InputError.one(
            path="demand",
            value=", ".join(unknown),
            why="there is no such application in the SLO",
            remedy=f"Choose among {', '.join(slo.apps)}.",
        )
    apps = dict(slo.apps)
    for name, rate in demand.items():
        if not rate >= 0 or rate == float("inf"):
            raise InputError.one(
                path=f"demand.{name}",
                value=rate,
                why="a rate is a finite number of queries per second, not negative",
                remedy="Give the rate that is asked for now.",
            )
        stated = apps[name].demand.model_dump(by_alias=True, exclude_unset=True, exclude={"history_qps"})
        wanted = Demand.model_validate({**stated, "rate_qps": float(rate)})
        apps[name] = apps[name].model_copy(update={"demand": wanted})
    return slo.model_copy(update={"apps": apps})
