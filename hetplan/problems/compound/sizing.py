"""Queries at a rate: the plan of the formula is simulated, and made larger until queries are in time.

The formula of `stations` says the first sizes. Each plan is simulated for a counted number of queries. Applications
that were late leave the formula less of their limit. Where all keep it with much to spare, more of it is tried, and
taken if it is cheaper. What is handed out is confirmed by seeds that chose nothing. Nothing is timed: the same inputs
give the same plan.

Where the least latency is sought, or an application states no limit, its percentile itself is promised: what the
formula says, or the upper end of what the plays show, whichever is more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hetplan.planner.contract import Ask, Tools
from hetplan.planner.draft import Draft, Infeasibility, Repair
from hetplan.planner.forms.black_box import Measured
from hetplan.planner.request import Application
from hetplan.planner.sizing import Confirmation, confirm
from hetplan.problems.compound.pipeline_query import CompoundProblem, PipelineQuery
from hetplan.problems.compound.plan import MEAN_LATENCY, cost_of, mean_latency_ms
from hetplan.problems.compound.search import Stage, resize_stage
from hetplan.problems.draft_simulation import (
    PlanRuns,
    Played,
    Simulations,
    check_simulator,
    plan_to_simulate,
    play_length_s,
    repairs_if_late,
    worst_of_apps,
)
from hetplan.problems.repairs import change
from hetplan.profiles.inputs import Inputs
from hetplan.profiles.plan import Notice, Promise

__all__ = ["size_plan"]

LESS, MUCH_LESS, FAR = 0.92, 0.8, 3.0
"""What a late application leaves the formula of its limit each time; where it is late so many times over, much less."""
MORE, ROOMY = 1.12, 0.5
"""Where all use up less than this of what may be late, so much more of the limit is tried."""
LEAST = 0.05
"""What leaves the formula less than this of a limit is given up: no number of replicas is enough."""
RARE = 0.3
"""At a p99, so much of what may be late is left unused by a chosen plan: choices are biased towards luck."""

RUNS = 2
"""Runs by which a plan is chosen."""
LATE = 300
"""In a run so many queries may be late, within `FEWEST` and `MOST` queries."""
FEWEST, MOST = 3_000, 30_000

UNSIMULATED = {
    "fluid": "replicas are those of the rate alone, without queueing",
    "formula": "replicas come from a queueing formula",
}
"""What plans rest on that are not played, by their size."""

Again = Callable[[Sequence[Stage]], Draft | Infeasibility]


def size_plan(
    asked: CompoundProblem, ask: Ask, tools: Tools, stages: Sequence[Stage], again: Again, point: Draft | None = None
) -> Draft | Infeasibility:
    """The plan of these stages; where queries come at a rate, one that simulation shows to be in time.

    `point` is a plan to begin from, on which latency is sought: it stays as it is where it is in time.
    """
    made = again(stages) if point is None else point
    rated = [one.app_id for one in asked.sought if one.rate_qps]
    if isinstance(made, Infeasibility) or not any(name in made.dispatch for name in rated):
        return made
    if (by := UNSIMULATED.get(asked.options.sizing)) is not None:
        return _warn_unsimulated(made, by)
    check_simulator(tools, asked.options.sizing)
    ask.keep(lambda: _warn_unsimulated(made, UNSIMULATED["formula"]))
    timed = point is not None or "latency" in asked.wish.of
    return _SizingSearch(asked, ask, tools, tuple(stages), again, timed).run(made)


def _warn_unsimulated(made: Draft, by: str) -> Draft:
    """The plan, with the warning that nothing was played, and `by` what it is sized."""
    text = f"{by}; simulate the plan before you rely on it"
    return replace(made, warnings=(*made.warnings, Notice(code="W-queueing", at="promises", text=text)))


@dataclass
class _SizingSearch:
    """Plans that were played; `slack` is what of its limit each application leaves to the formula.

    `timed` says that latency is sought: then none is tried that is cheaper.
    """

    asked: CompoundProblem
    ask: Ask
    tools: Tools
    stages: tuple[Stage, ...]
    again: Again
    timed: bool
    slack: dict[str, float] = field(default_factory=dict)
    over: dict[str, float] = field(default_factory=dict)
    """How many times its limit the percentile is of each application that was late, or nearly, when last any was."""

    def __post_init__(self) -> None:
        inputs, options = _inputs_with_measurements(self.asked, self.stages), self.asked.options
        assert self.tools.simulate is not None
        self.simulations = Simulations(
            self.tools.simulate, inputs, self.ask, options.max_simulations, self.ask.limits.seed, own_seeds=True
        )

    def run(self, made: Draft) -> Draft | Infeasibility:
        """The cheapest plan seen that is in time, confirmed; else the best seen, which misses its target."""
        best: tuple[Draft, Played] | None = None
        while self.simulations.may_go_on:
            played = self._simulate(made)
            late = [name for name, share in played.each.items() if share > self._allowed_to_choose(name)]
            self.over = {name: played.over.get(name, 1.0) for name in late} or self.over
            if not late and (sure := self._confirm(made)) is not None:
                best = made, sure
                self._keep(made, sure)
                may_loosen = played.worst < ROOMY and max(self.slack.values(), default=1.0) >= 1.0
                # None is tried that is cheaper where latency is sought, nor one with less than the load takes.
                looser = self._loosen(made) if may_loosen and not self.timed else None
                if looser is None:
                    break
                made = looser
                continue
            if best is not None:
                break
            following = self._tighten({name: played.each[name] for name in late or played.each})
            if isinstance(following, Infeasibility):
                return replace(following, proved=False, repairs=(*following.repairs, *self._repairs))
            made = following
            self._keep(made)
        return self._with_promises(made, best)

    def _keep(self, made: Draft, sure: Played | None = None) -> None:
        """Keep a plan that is in time, or until there is one the last that was made larger."""
        if sure is None:
            self.ask.keep(lambda: _warn_unsimulated(made, UNSIMULATED["formula"]))
        else:
            self.ask.keep(lambda: self._with_promises(made, (made, sure)), simulated=True)

    def _rates_of(self, made: Draft) -> dict[str, float]:
        return {one.app_id: one.rate_qps for one in self.asked.sought if one.rate_qps and one.app_id in made.dispatch}

    def _allowed_to_choose(self, name: str) -> float:
        """Of the share that may be late, the part that a chosen plan may use up: less where few may be."""
        allowed = min(max(self.asked.request.apps[name].late_share, 1e-6), 0.5)
        return max(0.5, 1.0 - RARE * math.sqrt(0.01 * (1.0 - allowed) / (0.99 * allowed)))

    def _length_s(self, made: Draft) -> float:
        """How long a run is: `LATE` queries of the application of which fewest may be late."""
        rates, apps = self._rates_of(made), self.asked.request.apps
        rarest = min(apps[name].late_share for name in rates)
        promised = [one.percentile for one in made.promises if one.percentile is not None]
        rarest = min([rarest, *(1.0 - percentile / 100.0 for percentile in promised)])
        return play_length_s(self.simulations.inputs, rates, int(min(max(LATE / max(rarest, 1e-6), FEWEST), MOST)))

    def _simulate(self, made: Draft) -> Played:
        """What a few runs show of every application that has a rate."""
        plan, length_s = plan_to_simulate("compound", "compound", made), self._length_s(made)
        return self.simulations.look(plan, list(self._rates_of(made)), (RUNS, length_s))[0]

    def _confirm(self, made: Draft) -> Played | None:
        """The promises of a plan that fresh seeds show in time."""
        one, apps, plan = self.simulations, self.asked.request.apps, plan_to_simulate("compound", "compound", made)
        one.made += 1
        runs = PlanRuns(one.simulate, plan, one.inputs, tuple(self._rates_of(made)), self._length_s(made))
        found = confirm(runs, one.budget, may_go_on=lambda: self.ask.remaining > 0)
        shown = {name: runs.app_result(name, found, None) for name in runs.apps}
        if found.violated:
            self.over = {name: shown[name].over.get(name, 1.0) for name in found.violated}
            return None
        for name in runs.apps:
            if self.timed or not apps[name].targets:
                shown[name] = replace(
                    shown[name], promises=_percentiles_shown(made, apps[name], runs, found, shown[name])
                )
        return worst_of_apps(shown.values())

    @property
    def _repairs(self) -> tuple[Repair, ...]:
        """What may help the applications that were late: more time first, as a limit may be too short at any rate."""
        apps, rates = self.asked.request.apps, {one.app_id: one.rate_qps for one in self.asked.sought}
        return tuple(
            fix
            for name, times in self.over.items()
            for fix in reversed(repairs_if_late(apps[name], rates[name], times))
        )

    @property
    def _more_simulations(self) -> tuple[Repair, ...]:
        """As many plays as are usual, where fewer were asked for: each plan that is late leads to a larger one."""
        asked, usual = self.asked.options.max_simulations, type(self.asked.options)().max_simulations
        return (change("options.max_simulations", asked, usual),) if asked < usual else ()

    def _size(self) -> Draft | Infeasibility:
        stages = [
            resize_stage(self.asked, sought, stage, self.slack.get(sought.app_id, 1.0))
            for sought, stage in zip(self.asked.sought, self.stages, strict=True)
        ]
        return self.again(stages)

    def _tighten(self, worst: Mapping[str, float]) -> Draft | Infeasibility:
        for name, share in worst.items():
            self.slack[name] = self.slack.get(name, 1.0) * (MUCH_LESS if share > FAR else LESS)
        if min(self.slack.values()) < LEAST:
            return Infeasibility(why=("in simulation too many are late, with any number of replicas",), proved=False)
        return self._size()

    def _loosen(self, made: Draft) -> Draft | None:
        """A cheaper plan that leaves the formula more than the limit, if there is one."""
        self.slack = {name: self.slack.get(name, 1.0) * MORE for name in self._rates_of(made)}
        following = self._size()
        if isinstance(following, Infeasibility) or set(following.dispatch) != set(made.dispatch):
            return None
        return following if cost_of(following) < cost_of(made) else None

    def _with_promises(self, made: Draft, best: tuple[Draft, Played] | None) -> Draft:
        """The plan with what simulation showed of it, instead of what the formula said."""
        if best is None:
            many = self.simulations.made
            plays = f"each of {many} simulations, each with more replicas" if many > 1 else "the only simulation"
            repairs = (*self._more_simulations, *self._repairs)
            text = f"the SLO was violated in {plays}; more simulations may help"
            if self.ask.remaining <= 0:
                text, repairs = "the time limit ended before a simulation confirmed the response times", ()
            missed = Notice(code="W-queueing", at="promises", text=text)
            return replace(made, target_missed=text, repairs=repairs, warnings=(*made.warnings, missed))
        made, played = best
        shown = {(one.app, one.percentile) for one in played.promises if one.quantity == "response_ms"}
        kept = tuple(
            one for one in made.promises if one.quantity != "response_ms" or (one.app, one.percentile) not in shown
        )
        promises = (*kept, *played.promises)
        mean = mean_latency_ms(self.asked, promises)
        reported = tuple(replace(one, value=mean) if one.about == MEAN_LATENCY else one for one in made.reported)
        warnings = made.warnings
        if unsettled := [one.app for one in played.promises if not one.model.startswith("simulation")]:
            text = "queues are too long for a simulation to measure response times: they rest on a formula"
            warnings += tuple(Notice(code="W-queueing", at=f"apps.{name}.latency", text=text) for name in unsettled)
        if seldom := self._rates_of(made).keys() - {one.app for one in played.promises}:
            text = "too few queries arrive for a simulation to confirm response times: they rest on a formula"
            warnings += tuple(
                Notice(code="W-queueing", at=f"apps.{name}.latency", text=text) for name in sorted(seldom)
            )
        return replace(made, promises=promises, reported=reported, warnings=warnings)


def _percentiles_shown(
    made: Draft, app: Application, runs: PlanRuns, found: Confirmation, shown: Played
) -> tuple[Promise, ...]:
    """The percentiles themselves: what the formula says, or more where the runs show more; and shares of a limit."""
    limits = {target.percentile: target.max_ms for target in app.targets}
    promises = [one for one in shown.promises if one.quantity != "response_ms" and limits]
    for one in made.promises:
        if one.app != app.id or one.quantity != "response_ms" or one.percentile is None:
            continue
        time, low, high = runs.percentile(app.id, one.percentile, found.width)
        if math.isnan(time):
            continue  # none of its queries came
        if math.isinf(high):
            promises.append(one)
            continue
        value = min(max(one.value, high), limits.get(one.percentile, math.inf))
        said = {"value": value, "interval": (min(low, value), min(high, value)), "model": "simulation/1"}
        promises.append(one.model_copy(update=said | {"seeds": found.runs, "confidence": 1.0 - found.alpha}))
    return tuple(promises)


def _inputs_with_measurements(asked: CompoundProblem, stages: Sequence[Stage]) -> Inputs:
    """The inputs, with what was measured in this very solve beside what was measured before."""
    apps = {name: list(plans) for name, plans in (asked.inputs.measured or {}).get("apps", {}).items()}
    for sought, stage in zip(asked.sought, stages, strict=True):
        known = apps.setdefault(sought.app_id, [])
        said = [one.get("knobs") for one in known if "seconds" in one]
        journal = {} if stage.form is None else stage.form.journal
        known += [
            _measurement_entry(sought, one)
            for c, one in sorted(journal.items())
            if one.seconds and sought.knobs(c) not in said
        ]
    return replace(asked.inputs, measured={"apps": apps})


def _measurement_entry(sought: PipelineQuery, found: Measured) -> dict[str, Any]:
    """A configuration as a document of measurements has it, as far as a simulation reads it."""
    entry: dict[str, Any] = {
        "knobs": sought.knobs(found.configuration), "mean": found.mean, "input_bytes": found.bytes_in,
        "seconds": dict(zip(sought.order, found.seconds, strict=True)),
        "bytes": dict(zip(sought.order, found.bytes_out, strict=True)),
    }  # fmt: skip
    if (runs := found.runs) is not None:
        columns = [[None if math.isnan(s) else s for s in column] for column in runs.seconds.T.tolist()]
        entry["runs"] = {
            "seconds": dict(zip(sought.order, columns, strict=True)),
            "bytes": dict(zip(sought.order, runs.bytes_out.T.tolist(), strict=True)),
            "input_bytes": runs.bytes_in.tolist(),
        }
        if runs.rounds is not None:
            entry["runs"]["rounds"] = dict(zip(sought.order, runs.rounds.T.tolist(), strict=True))
    return entry
