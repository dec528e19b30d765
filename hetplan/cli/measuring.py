"""What measures plans while `hetplan solve` searches: commands of trusted configuration, their journal, the past.

`--evaluate` names evaluators of the `--site` file. `--jobs` candidates are measured beside each other, in processes of
this machine or (`--on`) of a Ray cluster. Every sample is in the `--journal` before it is used, so that
Ctrl-C and kill -9 lose none, and the same command goes on where it stopped. The plan names the measurements that it
was made from: `verify` and `simulate` read the journal.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.cli.output import Output
    from hetplan.measure.evaluator import Command
    from hetplan.measure.journal import Journal
    from hetplan.planner.contract import OnEvent, Tools
    from hetplan.planner.outcome import Outcome
    from hetplan.planner.spread import RayCluster
    from hetplan.profiles.inputs import Inputs

__all__ = ["Measurer", "measuring"]


@dataclass
class Measurer:
    """Evaluators at work for one search."""

    commands: Mapping[str, Command]
    journal: Journal
    past: Mapping[str, Any] | None = None
    jobs: int = 1
    """Measurements beside each other."""
    _held: int = field(default=0, init=False)
    _cluster: RayCluster | None = field(default=None, init=False)

    def move(self, on: str, at_once: int) -> None:
        """Have the commands run on a cluster."""
        from hetplan.measure.evaluator_cluster import ClusterCommand
        from hetplan.planner.spread import RayCluster

        try:
            self._cluster = cluster = RayCluster(on)
            there = {id(one): ClusterCommand(one, cluster, at_once) for one in dict.fromkeys(self.commands.values())}
        except InputError:
            self.close()
            raise
        self.commands = {name: there[id(one)] for name, one in self.commands.items()}

    def tools(self, cancel: threading.Event, show: OnEvent) -> Tools:
        """What the problem is handed."""
        from hetplan.measure.evaluator_profiler import measuring
        from hetplan.planner.contract import Tools

        self._held = self.journal.held
        past = self.past
        evaluate = measuring(self.commands, journal=self.journal, cancel=cancel, on_event=show)
        return Tools(evaluate=evaluate, jobs=self.jobs, extra={} if past is None else {"history": lambda: past})

    @property
    def summary(self) -> str:
        """How much was measured, in words."""
        fresh = self.journal.held - self._held
        kept = f", kept in {self.journal.path}" if self.journal.path is not None else ""
        known = f", {self._held} were known" if self._held else ""
        return f"measured {fresh} samples{known}{kept}"

    def signed(self, outcome: Outcome, profiles: Sequence[Path], slo: Path, state: Path | None) -> Outcome:
        """The outcome with a plan that names its measurements, verified against them."""
        from hetplan.api.verify_and_simulate import verify
        from hetplan.profiles.canonical import digest
        from hetplan.profiles.plan_file import with_digest

        if outcome.plan is None:
            return outcome
        made, document = outcome.plan, self.journal.document()
        if outcome.front is not None:
            points = outcome.front.each(lambda point: self.signed(point, profiles, slo, state))
            outcome = replace(outcome, front=points)
        named = made.inputs.model_copy(update={"measured": digest(document)})
        plan = with_digest(made.model_copy(update={"inputs": named}))
        report = verify(plan, *profiles, slo, state, document, prove=False, simulate=False)
        finding = outcome.finding
        judged = outcome.with_verification(
            violations=tuple(f"{one.code} at {one.at}: {one.text}" for one in report.violations),
            unchecked=finding.unchecked, unchecked_allowed=finding.unchecked_allowed,
        )  # fmt: skip
        return replace(judged, plan=plan)

    def close(self) -> None:
        """End the commands and the journal."""
        for command in self.commands.values():
            command.close()
        if self._cluster is not None:
            self._cluster.close()
        self.journal.close()


@contextmanager
def measuring(
    profiles: Sequence[Path],
    slo: Path,
    *,
    names: Sequence[str] | None,
    site: Path | None,
    journal: Path | None,
    history: Path | None,
    jobs: int = 0,
    on: str | None = None,
    out: Output,
) -> Iterator[Measurer | None]:
    """The evaluator, for as long as the block runs; None where none is named.

    `jobs` more are measured beside each one, on a cluster where `on` names it.
    """
    if not names:
        _nobody(site=site, journal=journal, history=history, jobs=jobs + 1 if jobs else None, on=on)
        yield None
        return
    from hetplan.profiles.load import load_inputs

    inputs = load_inputs(list(profiles), slo)
    measurer = _measurer(inputs, names, site, journal, history)
    measurer.jobs = jobs + 1
    if on is not None:
        measurer.move(on, jobs + 1)
    if journal is None:
        out.note("without --journal the measurements are lost, so hetplan verify cannot use them")
    try:
        yield measurer
    finally:
        measurer.close()
        for _, where, text in measurer.journal.warnings:
            out.warn(f"{where}: {text}")
        out.note(measurer.summary)


def _nobody(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError.one(
                file=f"--{name}", value=value, why="nothing is measured without --evaluate",
                remedy="Add --evaluate NAME, or leave it out.",
            )  # fmt: skip


def _measurer(
    inputs: Inputs, names: Sequence[str], site: Path | None, journal: Path | None, history: Path | None
) -> Measurer:
    """What the options name; raises `InputError` before anything is measured."""
    from hetplan.measure.evaluator import load_evaluators
    from hetplan.measure.journal import Journal
    from hetplan.profiles.journal import read_measured
    from hetplan.profiles.sampled import sampled_of

    if site is None:
        raise InputError.one(
            file="--evaluate", value=", ".join(names), why="a trusted file says which command that is",
            remedy="Name it with --site site.toml ([evaluators.NAME], command = [...]).",
        )  # fmt: skip
    known = load_evaluators(site)
    if missing := [name for name in names if name not in known]:
        raise InputError.one(
            file=str(site), path=f"evaluators.{missing[0]}", why="there is no such evaluator",
            remedy=f"Known here: {', '.join(known) or 'none'}.",
        )  # fmt: skip
    commands = _by_pipeline(inputs, {name: known[name] for name in names}, names)
    past = None if history is None else read_measured(history)
    return Measurer(commands, Journal(journal, of=sampled_of(inputs)), past)


def _by_pipeline(inputs: Inputs, commands: dict[str, Command], names: Sequence[str]) -> dict[str, Command]:
    """The commands by the names that pipelines use; a pipeline that names none takes the only one."""
    from hetplan.profiles.sampled import searched_pipelines

    pipelines = searched_pipelines(inputs)
    if not pipelines:
        raise InputError.one(
            file=inputs.files.get("slo", "slo"), path="$.apps", why="no application's plans are searched for",
            remedy="Leave --evaluate out: nothing is there to be measured.",
        )  # fmt: skip
    for pipeline_id, pipeline in pipelines.items():
        name = pipeline.evaluator
        if name is None and len(names) == 1:
            commands[""] = commands[names[0]]
        elif name not in commands:
            raise InputError.one(
                file=inputs.files.get("profile", "profile"), path=f"$.pipelines.{pipeline_id}.evaluator",
                value=name or "", why=f"not among the evaluators named with --evaluate ({', '.join(names)})",
                remedy=f"Add --evaluate {name}." if name else "Name the pipeline's evaluator.",
            )  # fmt: skip
    return commands
