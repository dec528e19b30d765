"""The one face that the tests of the net look at: what people type, import and read, as plain records.

This file and `tests/hosts_face.py`, its half about hosts, are the only test files that name a command, a flag, an
option, an exit code, or a key of a plan, a report or a reply. With `tests/build.py` they are all that changes when the
public face does.

`solve`, `verify`, `simulate` go by `hetplan.*`; `command` goes by the command line, in this process.
"""

from __future__ import annotations

import html
import json
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cache
from math import inf
from pathlib import Path
from typing import Any

from build import Files, example, in_format_1_0, planned, shipped
from once import once

from hetplan.profiles.json_path import write_at

__all__ = [
    "ALL",
    "CHARTS",
    "EDITED",
    "EXIT",
    "FLAGS",
    "FLUID",
    "PROVED",
    "READING",
    "RESTATED",
    "RULES",
    "SECTIONS",
    "WORDS",
    "Answer",
    "Begun",
    "Claim",
    "Engine",
    "Estimate",
    "Json",
    "Judgement",
    "MachineGroup",
    "Option",
    "Page",
    "Pods",
    "Promise",
    "Ran",
    "Refused",
    "Repair",
    "Replica",
    "Report",
    "Robust",
    "Row",
    "Simulated",
    "SloLine",
    "Stopped",
    "SummaryPage",
    "Verdict",
    "about",
    "as_sure",
    "begin",
    "bounded",
    "carried",
    "checked",
    "claimed_twice",
    "command",
    "compared",
    "compared_ways",
    "content",
    "convert",
    "dispatched",
    "dressed",
    "engines",
    "forged",
    "groups_of",
    "has_plan",
    "importers",
    "in_one_queue",
    "interrupted",
    "made_by",
    "made_for",
    "misnamed",
    "options",
    "overstated",
    "page",
    "page_of_plan",
    "page_of_solve",
    "planner",
    "proved_by",
    "read_objects",
    "read_range",
    "read_summary",
    "record_of_solve",
    "rendered",
    "report",
    "restated",
    "retold",
    "robust",
    "sent_by",
    "served_late",
    "silent",
    "simulate",
    "simulated_violation",
    "simulated_worse",
    "solve",
    "solved_example",
    "spoken",
    "stopped",
    "summary_of_plan",
    "summary_record",
    "text_sent_by",
    "thinned",
    "tightened",
    "unpromised",
    "vary",
    "verify",
    "with_late_policy",
    "with_option",
    "written_programs",
]

Json = dict[str, Any]

EXIT = {"ok": 0, "fault": 1, "bad input": 2, "infeasible": 3, "gap": 4, "limit": 5, "broken": 6, "interrupted": 130}
"""Exit codes by what they mean."""

READING: Mapping[str, tuple[str, ...]] = {
    "verify": ("plan", "profile", "slo"),
    "simulate": ("plan", "profile", "slo"),
    "explain": ("plan", "profile", "slo"),
    "report": ("plan",),
    "show": ("plan",),
    "diff": ("plan", "plan"),
    "solve": ("profile", "slo"),
    "check": ("profile", "slo"),
    "whatif": ("profile", "slo"),
    "render": ("profile", "slo"),
    "compare": ("plan", "profile", "slo"),
}
"""Commands and the files that they read, in order."""
FLAGS: Mapping[str, tuple[str, ...]] = {"whatif": ("--vary", "rate=10:20"), "render": ("--to", "lp")}
"""Flags without which a command does not begin."""

SIZING = {"fluid": "fluid", "formula": "formula", "simulation": "simulation"}
"""How waiting is taken into account -> how the option says it."""
ALL = ("--view", "all")
"""How `show` is told to print every table of a plan."""
FLUID = ("--set", "sizing=fluid")
"""How a command is told to plan at fluid rates."""


# -- records -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Replica:
    """What one machine of a group runs: a model for an application (None: for all that it can serve)."""

    app: str | None
    stage: str | None
    model: str | None
    count: int
    max_batch: int


@dataclass(frozen=True)
class MachineGroup:
    """Identical machines with identical replicas, in one period (of a fleet) after one failure ("": none)."""

    machine: str
    offer: str | None
    count: int
    replicas: tuple[Replica, ...]
    period: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Promise:
    """What a plan states, and by which model."""

    app: str | None
    quantity: str
    percentile: float | None
    relation: str
    value: float
    model: str
    period: str | None = None
    failure: str | None = None

    @property
    def is_simulated(self) -> bool:
        """Whether it rests on simulation."""
        return self.model.startswith("simulation")


@dataclass(frozen=True)
class Claim:
    """A figure that is optimised, the best of it that may exist, and whether hetplan proved that bound again."""

    objective: str
    sense: str
    """Whether it is to be small ("min") or large ("max")."""
    value: float
    bound: float | None
    gap: float | None
    is_certified: bool
    is_of_all: bool
    """Whether the bound is one of all plans, and not only of those that were looked among."""


@dataclass(frozen=True)
class Repair:
    """A change of the files with which there is a plan, as text and as the places that it changes."""

    text: str
    field: str
    does: float | str | None
    fails: float | str | None
    """The nearest value that has none, where that is not the stated one."""
    edits: tuple[Any, ...] = ()

    @property
    def changes(self) -> set[str]:
        """The files that it changes: "profile", "slo"."""
        return {one.file for one in self.edits}

    def applied(self, wish: Files) -> Files:
        """The files with it."""
        return _edited(wish, [(one.file, one.path, one.value) for one in self.edits])

    def with_less(self, wish: Files) -> list[Files]:
        """The files with a little less of each change: a step of what comes in wholes; else 5% of it, or .5% of the
        number. Changes of one step have no less.
        """
        parts = [[one] for one in self.edits] if self.field == "several" else [list(self.edits)]
        found = []
        for part in parts:
            less = [(one.file, one.path, _less(_stated(wish, one), one.value)) for one in part]
            if all(value is not None for *_, value in less):
                rest = [(one.file, one.path, one.value) for one in self.edits if one not in part]
                found.append(_edited(wish, [*rest, *less]))
        return found


def _stated(wish: Files, edit: Any) -> Any:
    at: Any = in_format_1_0(wish.profile) if edit.file == "profile" else getattr(wish, edit.file)
    for step in edit.path:
        at = at.get(step) if isinstance(at, dict) else at[step]
    return at


def _less(stated: Any, to: Any) -> Any:
    if isinstance(to, list):
        bounds = [a if a == b else _less(a, b) for a, b in zip(stated or [0, None], to, strict=True)]
        return None if None in [a for a, b in zip(bounds, to, strict=True) if b is not None] else bounds
    if isinstance(to, int):
        less = to - 1 if to > stated else to + 1
        return None if less == stated else less
    back = max(0.05 * abs(float(to) - float(stated)), 0.005 * float(to))
    less = float(to) - back if float(to) > float(stated) else float(to) + back
    return None if abs(float(to) - float(stated)) <= back else f"{less:.9f}" if isinstance(to, str) else less


def _edited(wish: Files, edits: Sequence[tuple[str, Sequence[Any], Any]]) -> Files:
    documents = {"profile": in_format_1_0(wish.profile), "slo": deepcopy(wish.slo)}
    for file, path, value in edits:
        write_at(documents[file], path, value)
    return replace(wish, profile=planned(documents["profile"]), slo=documents["slo"])


@dataclass(frozen=True)
class Answer:
    """What `solve` says."""

    status: str
    code: int
    reason: str
    machines: tuple[MachineGroup, ...]
    promises: tuple[Promise, ...]
    claims: tuple[Claim, ...]
    """How good it is, by what is optimised; the first is about the objective."""
    warnings: tuple[tuple[str, str], ...]
    """Code and text."""
    conflict: tuple[str, ...]
    repairs: tuple[str, ...]
    findings: tuple[str, ...]
    """What the verifier found wrong."""
    plan: Json | None
    """The plan as a document: handed on to the other verbs, and looked into by nobody else."""
    changes: tuple[Repair, ...] = ()
    """The repairs that were tried."""

    @property
    def is_plan(self) -> bool:
        """Whether there is a plan."""
        return self.plan is not None

    def promised(self, quantity: str, app: str | None = None) -> float | None:
        """The value of the first promise of a quantity ("rate", "quality", "cost", "violation rate")."""
        names = _QUANTITIES.get(quantity, (quantity,))
        for one in self.promises:
            if one.quantity in names and (app is None or one.app == app):
                return one.value
        return None

    @property
    def claim(self) -> Claim | None:
        """The claim about the objective; a rate that nothing waits at is only a bound of it."""
        return next((one for one in self.claims if one.objective != "fluid_rate_qps"), None)

    @property
    def value(self) -> float | None:
        """What the objective is."""
        return self.claim.value if self.claim else None

    @property
    def bound(self) -> float | None:
        """The best value of the objective that any plan may have, as far as it is known."""
        return self.claim.bound if self.claim else None

    @property
    def cost(self) -> float | None:
        """Money per hour."""
        return None if self.plan is None else _cost(self.plan, self.promised("cost"))

    def count(self, machine: str | None = None, period: str | None = None, failure: str = "") -> int:
        """Machines of a type, or of all types: in one period (of a plan without periods: in all)."""
        return sum(
            one.count
            for one in self.machines
            if machine in (None, one.machine) and period in (None, one.period) and one.failure == failure
        )

    def bought(self) -> dict[tuple[str, str, str], float]:
        """Machines of a fleet by period, offer and purchase ("reserved" or "rented"), idle ones too."""
        found: dict[tuple[str, str, str], float] = {}
        for line in (self.plan or {}).get("bill", {}).get("lines", ()):
            for purchase, key in (("reserved", "committed"), ("rented", "rented")):
                place = (line["period"], line["offer"], purchase)
                found[place] = found.get(place, 0.0) + line.get(key, 0.0)
        return found

    @property
    def starts_cost(self) -> float:
        """Money per hour of a fleet for machines while they start."""
        return float((self.plan or {}).get("bill", {}).get("starts_per_hour", 0.0))

    def models(self, app: str) -> set[str]:
        """The models that run for an application."""
        return {one.model for group in self.machines for one in group.replicas if one.app == app and one.model}

    def solve_values(self) -> list[float | None]:
        """What the programs that were asked came to, in order; None where many are told as one."""
        return [one.get("value") for one in (self.plan or {}).get("solves", ())]

    def limiting(self) -> list[tuple[str, float]]:
        """What limits it: of what one more is looked at, and what that would bring."""
        asked = [one for solve in (self.plan or {}).get("solves", ()) for one in solve.get("binding", ())]
        return [(one["unit"], one["price"]) for one in asked if one.get("unit")]

    def solved_by(self) -> set[tuple[str, str]]:
        """Kinds of programs that were asked, each with the engine that answered it."""
        return {(one["form"], one["solver"].partition(" ")[0]) for one in (self.plan or {}).get("solves", ())}

    def warned(self) -> set[str]:
        """The codes of its warnings."""
        return {code for code, _ in self.warnings}


@dataclass(frozen=True)
class Judgement:
    """What `verify` says."""

    is_ok: bool
    findings: tuple[str, ...]
    """Codes and sentences of what is wrong."""
    said: str = ""
    """The verdict in words: "verified", or what it is instead."""
    simulated: tuple[tuple[str, str, int], ...] = ()
    """Each promise that rests on simulation: "met", "broken", "undecided" or "not simulated"; by how many queries."""
    bounds: tuple[str, ...] = ()
    """What becomes of each bound: "proved again", "found again by an engine", "not proved here" or "refuted"."""
    why_open: tuple[str, ...] = ()
    """Of each bound that is not proved, why not."""

    @property
    def verdicts(self) -> set[str]:
        """What simulation says of these promises."""
        return {verdict for _, verdict, _ in self.simulated}


@dataclass(frozen=True)
class Estimate:
    """A simulated figure with its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Verdict:
    """A promise or a limit of the SLO beside what simulation shows ("met", "broken", "undecided", ...)."""

    app: str | None
    quantity: str
    percentile: float | None
    limit: float
    is_of_slo: bool
    verdict: str
    simulated: Estimate | None


@dataclass(frozen=True)
class Simulated:
    """What `simulate` says."""

    is_ok: bool
    violation_rate: Mapping[str, Estimate]
    figures: Mapping[str, Mapping[str, Estimate]]
    percentiles: Mapping[str, Mapping[float, Estimate]]
    """Application -> percentile -> response time in ms."""
    cost: float | None
    verdicts: tuple[Verdict, ...]
    busy: Mapping[str, float]
    """Group of machines -> how many of them work, on the mean."""
    seconds: float
    """How long each run is."""
    warnings: tuple[tuple[str, str], ...] = ()
    """Code and text."""

    def warned(self) -> set[str]:
        """The codes of its warnings."""
        return {code for code, _ in self.warnings}


@dataclass(frozen=True)
class Robust:
    """The cheapest machines that hold while demand and times are off by some parts, as `whatif` says them."""

    cost: float
    machines: Mapping[str, int]
    """By offer."""
    is_confirmed: bool | None
    """Whether `solve` finds a plan with them wherever they are said to hold; None: it needs none beyond the program."""


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Begun:
    """What was written for somebody who begins, and said."""

    code: int
    said: str
    error: str
    files: Files
    """The documents that were written; an empty one where there was none."""
    next: tuple[str, ...]
    """The command that is advised, as `command` takes it; empty where none is."""
    answered_by: Mapping[str, str]
    """Application -> in words, who answers it."""


class Refused(Exception):
    """Files are refused before anything is planned; the message names file, field, value and remedy."""


# -- verbs -------------------------------------------------------------------------------------------------------------


def solve(
    wish: Files,
    sizing: str = "simulation",
    *,
    problem: str | None = None,
    formulation: str | None = None,
    options: Mapping[str, Any] | None = None,
    **more: Any,
) -> Answer:
    """Plan a wish; `sizing` is "fluid", "formula" or "simulation"."""
    import hetplan as hp

    named = "/".join(name for name in (problem or wish.problem, formulation) if name) or None
    how = {"formulation": named, "options": {"sizing": SIZING[sizing], **(options or {})}, **more}
    try:
        if {"limits", "tools"} & how.keys():
            from hetplan.api.solve import plan_for

            outcome = plan_for(hp.load(*_files(wish)), **how)
        else:
            outcome = hp.solve(*_files(wish), **how)
    except (hp.InputError, hp.SolverError) as error:
        raise Refused(str(error)) from error
    return _answer(outcome)


def _files(wish: Files) -> tuple[Any, ...]:
    return wish.profile, wish.slo, wish.state, wish.measured


def has_plan(wish: Files, sizing: str = "simulation") -> bool:
    """Whether a wish has a plan; where it has none nothing is tried that may help."""
    import hetplan as hp
    from hetplan.api.solve import plan_for

    inputs = hp.load(wish.profile, wish.slo, wish.state, wish.measured)
    outcome = plan_for(inputs, question=wish.problem, options={"sizing": SIZING[sizing]}, try_repairs=False)
    return outcome.exit_code in (EXIT["ok"], EXIT["gap"])


@cache
def solved_example(name: str, sizing: str = "simulation") -> Answer:
    """The plan of a shipped example, made once per test run."""
    return once(f"{name} {sizing}", lambda: solve(example(name), sizing))


def verify(plan: Json, wish: Files, **more: Any) -> Judgement:
    """Check a plan against the files that it was made from."""
    import hetplan as hp

    report = hp.verify(plan, wish.profile, wish.slo, wish.state, wish.measured, **more)
    refuted = [f"{one.about}: {one.text}" for one in report.claims if one.refuted]
    tried = tuple((one.about, str(one.word), one.queries) for one in report.simulated)
    bounds = tuple(str(one.word) for one in report.claims)
    why_open = tuple(one.text for one in report.claims if str(one.word) == "not proved here")
    return Judgement(report.ok, (*map(str, report.violations), *refuted), report.reason, tried, bounds, why_open)


def simulate(
    plan: Json,
    wish: Files,
    *,
    seeds: int = 3,
    seed: int = 90_001,
    at: Sequence[float] | None = None,
    fails: str | None = None,
    **more: Any,
) -> Simulated:
    """Run a plan under its demand, or under queries `at` given seconds; machines of the group `fails` break at once."""
    import hetplan as hp

    if at is not None:
        import numpy as np

        more |= {"trace": np.asarray(at), "duration_s": max(at) + 1.0}
    if fails is not None:
        from hetplan.simulator.simulate import Failure

        count = next(one["count"] for one in plan["workers"] if one["id"] == fails)
        more["failures"] = [Failure(0.0, fails, number) for number in range(count)]
    try:
        report = hp.simulate(plan, wish.profile, wish.slo, wish.state, wish.measured, seeds=seeds, seed=seed, **more)
    except hp.InputError as error:
        raise Refused(str(error)) from error
    said = report.as_dict()
    figures = {
        app: {name: found for name, one in entry["figures"].items() if (found := _estimate(one))}
        for app, entry in said["apps"].items()
    }
    return Simulated(
        is_ok=said["ok"],
        violation_rate={app: found["violations"] for app, found in figures.items() if "violations" in found},
        figures=figures,
        percentiles={
            app: {float(at): found for at, one in entry["percentiles_ms"].items() if (found := _estimate(one))}
            for app, entry in said["apps"].items()
        },
        cost=(said["cost_per_hour"] or {}).get("value"),
        verdicts=tuple(
            Verdict(
                one["app"], one["quantity"], one["percentile"], one["promised"], one["by"] == "slo", one["verdict"],
                _estimate(one["simulated"]),
            )
            for one in said["lines"]
        ),
        busy={name: one["workers"] * one["utilisation"]["value"] for name, one in said["groups"].items()},
        seconds=said["duration_s"],
        warnings=tuple((one["code"], one["text"]) for one in said["warnings"]),
    )  # fmt: skip


def groups_of(plan: Json) -> dict[str, str]:
    """The names of a plan's groups of machines, each with its machine type."""
    return {one["id"]: one["hardware"] for one in plan["workers"]}


def command(*arguments: object, stdin: str | None = None) -> Ran:
    """Run the command line in this process: `command("solve", *wish.write(folder))`.

    A fault of hetplan (a traceback in place of a message) is raised here.
    """
    from typer.testing import CliRunner

    from hetplan.cli.app import build_app

    result = CliRunner().invoke(build_app(), [str(one) for one in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def content(answer: Answer) -> str:
    """The plan in its own order, as text, without what names the files that it was made from."""
    kept = {key: one for key, one in (answer.plan or {}).items() if key not in ("inputs", "digest")}
    return f"{answer.status} {answer.conflict} {json.dumps(kept)}"


def begin(folder: Path, *, add: bool = False, rate: float = 5, machines: Sequence[str] = (), **said: object) -> Begun:
    """First files: `config`, `latencies`, `profile` say where times come from; `model`, `app`, limits as they are."""
    flags: list[object] = ["--add"] * add
    flags += [word for one in machines for word in ("--machine", one)]
    limits = {"ttft": "ttft_p95", "tpot": "tpot_p95", "p50": "p50", "p95": "p95", "p99": "p99"}
    flags += [word for name, key in limits.items() if name in said for word in ("--slo", f"{key}={said[name]}")]
    flags += [
        word
        for name, value in said.items()
        if value is not None and name not in limits
        for word in (f"--{name}", value)
    ]
    return _begun(command("init", "--rate", rate, *flags, "-o", folder), folder)


def convert(kind: str | None, file: Path, folder: Path, **settings: object) -> Begun:
    """Another tool's file as a profile or an SLO; of what kind, if that is not to be seen in it."""
    said = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return _begun(command("import", file, *(["--as", kind] if kind else []), "-o", folder, *said), folder)


@dataclass(frozen=True)
class Engine:
    """A solver of one kind of program; `is_there` says whether what it needs is installed."""

    name: str
    form: str
    is_there: bool


def engines() -> list[Engine]:
    """Every solver of every kind of program."""
    said = [json.loads(line) for line in command("list", "solvers", "--json").out.splitlines()]
    return [Engine(one["solver"], one["form"], one["version"] is not None) for one in said if "solver" in one]


def importers() -> list[str]:
    """The kinds of files of other tools that are read."""
    from hetplan.registry import importers

    return sorted(importers())


def checked(wish: Files) -> set[str]:
    """The codes of what `check` finds in files that are valid."""
    import hetplan as hp
    from hetplan.profiles.lint import lint

    inputs = hp.load(wish.profile, wish.slo, wish.state)
    return {one[0] for one in (*inputs.warnings, *lint(inputs))}


def _begun(ran: Ran, folder: Path) -> Begun:
    def written(name: str) -> Json:
        path = folder / name
        return shipped(path) if ran.code == 0 and path.exists() else {}

    lines = ran.out.splitlines()
    advised = [line.removeprefix("Next: hetplan ") for line in lines if line.startswith("Next: hetplan ")]
    pairs = (line.removeprefix("application ").partition(" is answered by ") for line in lines)
    return Begun(
        ran.code, ran.out, ran.err, Files(written("profile.json"), written("slo.json")),
        tuple(shlex.split(advised[0])) if advised else (), {app: who for app, found, who in pairs if found},
    )  # fmt: skip


def interrupted(wish: Files, folder: Path) -> tuple[Ran, Json | None]:
    """Press Ctrl-C once a command says that a first program is asked: what it did, and the plan that it wrote."""
    import json
    import sys

    plan = folder / "plan.json"
    arguments = [sys.executable, "-m", "hetplan", "solve", *wish.write(folder), "-o", str(plan), "--json"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        said, at = [], False
        for line in process.stdout:
            said.append(line)
            if not at and '"event": {"what": "solve"' in line:
                process.send_signal(signal.SIGINT)
                at = True
        err = process.stderr.read()
    return Ran(process.returncode, "".join(said), err), json.loads(plan.read_text()) if plan.exists() else None


@dataclass(frozen=True)
class Stopped:
    """A plan whose making was ended early, and what began after its end."""

    answer: Answer
    simulations_after: int
    programs_after: int


def stopped(wish: Files, *, after: int, by: str = "limit", **how: Any) -> Stopped:
    """Plan a wish until so much work was done: a clock advances by one for every program and every simulation.

    `by` is "limit", or "cancel", which comes at that moment; `how` is more of `solve`.
    """
    import threading

    from hetplan.planner.answer import Limits

    spent, begun = [0.0], {"simulations": 0, "programs": 0}

    class AtTime(threading.Event):
        def is_set(self) -> bool:
            return spent[0] >= after

    def begins(what: str) -> None:
        begun[what] += spent[0] >= after
        spent[0] += 1.0

    tools = _counted(wish, lambda: begins("simulations"))
    given: Json = {"seconds": float(after), "clock": lambda: spent[0]} if by == "limit" else {"cancel": AtTime()}
    told = lambda one: begins("programs") if one.what == "solve" else None  # noqa: E731
    answer = solve(wish, limits=Limits(**given), tools=tools, on_event=told, **how)
    return Stopped(answer, begun["simulations"], begun["programs"])


def spoken(wish: Files, *, unit_s: float = 10.0) -> tuple[list[tuple[float, str]], float]:
    """What long work says where it writes to a pipe, and when; and how long it took. Each unit of it takes so long."""
    from hetplan.cli.progress import Lines
    from hetplan.planner.answer import Limits

    now, said = [0.0], list[tuple[float, str]]()
    lines = Lines(lambda text: said.append((now[0], text)), lambda: now[0])

    def unit() -> None:
        now[0] += unit_s
        lines.beat()

    def told(event: Any) -> None:
        if event.what == "solve":
            unit()
        lines.show(event)

    solve(wish, limits=Limits(clock=lambda: now[0]), tools=_counted(wish, unit), on_event=told)
    return said, now[0]


def _counted(wish: Files, begins: Callable[[], None]) -> Any:
    """Tools that say when a simulation begins."""
    from dataclasses import replace

    from hetplan import registry

    def counted(play: Callable[..., Any]) -> Callable[..., Any]:
        def played(*given: Any, **named: Any) -> Any:
            begins()
            return play(*given, **named)

        return played

    tools = registry.tools_of(wish.problem or "")
    plays = {name: counted(tools.extra[name]) for name in registry.PLAYS if name in tools.extra}
    simulate = None if tools.simulate is None else counted(tools.simulate)
    return replace(tools, simulate=simulate, extra={**tools.extra, **plays})


RULES: Mapping[str, Json] = {
    "matched": {}, "matched in parts": {"split_above": 1}, "earliest": {"rule": "earliest/1"},
    "oldest first": {"rule": "fcfs/1"}, "by size": {"rule": "threshold/1", "threshold": 1.0},
    "at random": {"rule": "shares/1"},
    "in turn": {"rule": "shares/1", "balancing": "round_robin"},
    "shortest queue": {"rule": "shares/1", "balancing": "shortest_queue"},
}  # fmt: skip
"""How queries find their machines -> what of a pool's rule (`matching/1`) says so."""


def served_late(plan: Json) -> Json:
    """The plan as versions wrote it that knew no other default: late queries are served."""

    def change(changed: Json) -> None:
        for said in changed["dispatch"].values():
            said["late"] = "serve"

    return forged(plan, change)


_KEPT_BY = {"earliest/1": ("late", "slo_ms", "xi", "predict"), "matching/1": None}


def sent_by(plan: Json, rule: str) -> Json:
    """A pool's plan whose queries find their machines by another of `RULES`."""

    def change(changed: Json) -> None:
        for app, said in changed["dispatch"].items():
            new = said | RULES[rule]
            kept = _KEPT_BY.get(new["rule"], ("late",))
            new = {key: value for key, value in new.items() if kept is None or key in ("rule", *kept, *RULES[rule])}
            if new["rule"] == "threshold/1":
                new["base"] = changed["workers"][0]["hardware"]
            changed["dispatch"][app] = new
        changed["requires"] = sorted({one["rule"] for one in changed["dispatch"].values()})

    return forged(plan, change)


# -- pages -------------------------------------------------------------------------------------------------------------

SECTIONS: Mapping[str, str] = {
    "machines": "Machines", "hours": "Hours", "routes": "Where queries go", "tables": "Policies",
    "promises": "Promises", "claims": "How good it is", "limits": "What limits it", "warnings": "Warnings",
    "steps": "From what runs", "periods": "Machines of each offer", "bill": "Bill",
    "savings": "What each way to buy saves", "changes": "What starts and stops for each period",
    "verdicts": "Promised and simulated", "figures": "What happened", "slo": "SLO",
    "runs": "What runs where", "costs": "Where the money goes", "response times": "How long answers take",
    "failures": "What if it fails", "cautions": "Look at these before you buy", "proof": "How this is known",
}  # fmt: skip
"""Parts of a page by what they tell -> their headings."""
CHARTS = ("below ", "ranking: response times", "simulated ")
"""How the titles of charts in the report of a pool begin, in order."""
COLUMNS: Mapping[str, str] = {
    "proved": "bound is",
    "hour": "USD per hour", "day": "per day", "month": "per month",
    "hourly": "per hour", "per unit": "brings", "cost per hour": "cost_per_hour",
}  # fmt: skip
"""Columns of these parts by what they tell, where their heads say it otherwise."""
EDITED = "edited since it was made"
"""What a command says of a plan whose digest is not that of what it says."""
PROVED = {True: "certified", False: "not proved here"}
"""What a page says of a bound that is proved again where the plan is made, and of one in a plan that is only shown."""

Row = Mapping[str, str]


@dataclass(frozen=True)
class Page:
    """What somebody reads: lines above the first part, and each part's rows, or its lines where it is no table."""

    head: str
    parts: Mapping[str, tuple[Row, ...]]
    lines: Mapping[str, tuple[str, ...]]
    summary: str = ""
    """What stands above all tables of a plan."""

    def rows(self, part: str) -> tuple[Row, ...]:
        """The rows of one of `SECTIONS`."""
        return self.parts.get(SECTIONS[part], ())

    def has(self, part: str) -> bool:
        """Whether there is such a part."""
        return SECTIONS[part] in self.lines


def page(*arguments: object) -> Page:
    """What a command prints for people."""
    ran = command(*arguments)
    assert ran.code in (EXIT["ok"], EXIT["gap"], EXIT["broken"]), ran
    return _read_page(ran.out)


def page_of_plan(plan: Json, wish: Files | None, folder: Path, how: str) -> Page:
    """All tables of a plan as "show" prints them, or its "bill"; or as "simulate" and "explain" do, from its files."""
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    if how == "bill":
        return page("show", path, "--view", "bill")
    return page(how, path, *(() if wish is None else wish.write(folder)), *(ALL if how == "show" else ()))


def page_of_solve(wish: Files, folder: Path, *sizing: str) -> Page:
    """What is printed where a wish is planned: the summary, and all tables."""
    ran = command("solve", *wish.write(folder), *sizing, "--details")
    assert ran.code in (EXIT["ok"], EXIT["gap"], EXIT["broken"]), ran
    summary = ran.out.rpartition("\n\n" + re.findall(r"^\w+ plan by ", ran.out, re.M)[-1])[0]
    return replace(_read_page(ran.out[len(summary) :]), summary=summary)


def summary_of_plan(plan: Json, wish: Files | None, folder: Path) -> str:
    """The summary of a plan as "show" prints it, with the files that it was made from or without."""
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    ran = command("show", path, *(() if wish is None else wish.write(folder)))
    assert ran.code == EXIT["ok"], ran
    return ran.out


def summary_record(plan: Json, wish: Files, folder: Path) -> Json:
    """The summary of a plan as data: as a command says it, which has to be as `Outcome` has it where it is made."""
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    last = json.loads(command("show", path, *wish.write(folder), "--json").out.splitlines()[-1])
    return dict(last["summary"])


def record_of_solve(wish: Files, **more: Any) -> Json:
    """The summary as data where a wish is planned at fluid rates."""
    import hetplan as hp

    outcome = hp.solve(wish.profile, wish.slo, options={"sizing": SIZING["fluid"]}, **more, formulation=wish.problem)
    assert outcome.summary is not None
    return dict(json.loads(json.dumps(asdict(outcome.summary))))


@dataclass(frozen=True)
class SloLine:
    """One limit of one application in a summary: what was found of it, and the word for that."""

    app: str
    metric: str
    limit: str
    found: tuple[str, ...]
    word: str


@dataclass(frozen=True)
class SummaryPage:
    """A summary as it is read: its first lines, limits, rows of machines and of hours, and lines with a label."""

    text: str
    head: str
    bounds: tuple[str, ...]
    limits: tuple[SloLine, ...]
    machines: tuple[Row, ...]
    hours: tuple[Row, ...]
    labels: Mapping[str, str]

    @property
    def month(self) -> float | None:
        """Money per month."""
        found = re.match(r"\D?([\d,.]+) a month", self.head)
        return None if found is None else float(found[1].replace(",", ""))


WORDS = ("met", "violated", "undecided", "by formula", "not simulated")
"""What a summary may say of a limit."""


def read_summary(text: str) -> SummaryPage:
    """A summary that `show` or `solve` printed."""
    blocks = [block.split("\n") for block in text.strip("\n").split("\n\n")]
    tables = {
        block[0].split("  ")[0].split(" (")[0]: [line for line in block if " more: hetplan show " not in line]
        for block in blocks
    }
    reserved = next((block for block in blocks if block[0].startswith("Reserve ")), None)
    if reserved is not None:
        tables["Hours"] = [line for line in reserved[1:] if " more: hetplan show " not in line]
    limits: list[SloLine] = []
    for line in tables.get("SLO", [""])[1:]:
        cells = re.split(r"  +", line.strip())
        app = limits[-1].app if line.startswith(" ") else cells.pop(0)
        word = cells.pop() if cells[-1].partition(" in ")[0] in WORDS else ""
        limits.append(SloLine(app, cells[0], cells[1], tuple(cells[2:]), word))
    labels = dict[str, str]()
    for line in next(block for block in blocks if any(one.startswith("Failures ") for one in block)):
        label = line[:11].strip() or list(labels)[-1]
        labels[label] = " ".join(filter(None, [labels.get(label, ""), line[11:]]))
    head = [line for line in blocks[0] if not line.startswith("Bound:")]
    bounds = tuple(line for line in blocks[0] if line.startswith("Bound:"))
    if "Machines" in tables:
        tables["Machines"] = _filled(tables["Machines"])
    told = {"Machines": "machine", "Hours": "hours"}
    rows = {
        name: tuple({told.get(head, head): cell for head, cell in row.items()} for row in _rows(tables.get(name, [""])))
        for name in told
    }
    return SummaryPage(text, " ".join(head), bounds, tuple(limits), rows["Machines"], rows["Hours"], labels)


def _filled(table: Sequence[str]) -> list[str]:
    """A table with the first cell of each row that leaves it blank, being that of the row above."""
    width = re.search(r"\S+  +(?=\S)", table[0])
    filled: list[str] = []
    for line in table:
        blank = width is not None and line.startswith(" " * width.end())
        filled.append(filled[-1][: width.end()] + line[width.end() :] if blank and width and filled else line)
    return filled


def simulated_worse(plan: Json, factor: float) -> Json:
    """A plan whose simulated response times were so many times as long."""

    def change(document: Json) -> None:
        for one in document["promises"]:
            if one["quantity"] == "response_ms" and "interval" in one:
                one["interval"] = [factor * end for end in one["interval"]]

    return forged(plan, change)


def with_late_policy(plan: Json, share: float) -> Json:
    """A plan with periods of which one policy, not in its first period, was late so often in simulation."""

    def change(document: Json) -> None:
        first, parts = set(document["periods"][0]["parts"]), document["parts"]
        later = [one for name, one in parts.items() if name not in first and one.get("policies")]
        next(iter(later[-1]["policies"].values()))[-1]["simulated"]["violation"] = share

    return forged(plan, change)


def as_sure(plan: Json, *levels: float) -> Json:
    """A plan whose intervals are of so many percent of both ends, in turn."""

    def change(document: Json) -> None:
        shown = [one for one in document["promises"] if "confidence" in one]
        for number, one in enumerate(shown):
            one["confidence"] = 0.5 + levels[number % len(levels)] / 200

    return forged(plan, change)


def read_range(ran: Ran, part: str = "") -> list[tuple[float, float, str]]:
    """Of a range that was planned along: from where, to where, what one hour costs there; or where that "changes"."""
    found = []
    for row in _read_page(ran.out).parts[{"changes": "Where the fleet changes"}.get(part, part)]:
        low, _, high = row["rate"].partition(" to ")
        found.append((float(low), float(high or low), row["cost per hour"]))
    return found


def _read_page(text: str) -> Page:
    """Columns of a table begin where its head's words begin; at least two spaces part them."""
    blocks = [block.split("\n") for block in text.strip("\n").split("\n\n")]
    parts, lines = dict[str, tuple[Row, ...]](), dict[str, tuple[str, ...]]()
    for block in blocks:
        heading, *rest = ["", *block] if block[0].startswith("  ") else block
        lines[heading] = tuple(line.strip() for line in rest)
        if rest and re.search(r"\S  +\S", rest[0]):
            parts[heading] = tuple(_rows(rest))
    return Page(blocks[0][0], parts, lines)


def _rows(lines: Sequence[str]) -> list[Row]:
    head, *rest = lines
    names = [(one.start(), one.end(), one[0]) for one in re.finditer(r"\S+(?: \S+)*", head)]
    found = []
    for line in rest:
        cells: dict[str, str] = {}
        for one in re.finditer(r"\S+(?: \S+)*", line):
            # A cell is under the head that it overlaps: numbers end where their head ends, words begin where it begins.
            near = max(names, key=lambda name: min(one.end(), name[1]) - max(one.start(), name[0]))
            cells[near[2]] = (cells.get(near[2], "") + " " + one[0]).strip()
        if names[0][2] not in cells:
            continue  # a note below the table
        found.append({told: cells[name] for told, name in _told(cells).items()})
    return found


def _told(cells: Mapping[str, str]) -> dict[str, str]:
    by_head = {head: told for told, head in COLUMNS.items()}
    return {by_head.get(head, head): head for head in cells}


@dataclass(frozen=True)
class Report:
    """A page of HTML: its parts, their tables, and in its charts bars with their widths, points with their places."""

    head: str
    """What stands largest on it: money."""
    headings: tuple[str, ...]
    charts: tuple[str, ...]
    """What each chart is of, as it is drawn for a desk."""
    limits: tuple[Drawn, ...]
    tables: Mapping[str, tuple[Row, ...]]
    bars: tuple[tuple[float, str], ...]
    points: tuple[tuple[float, str], ...]
    text: str
    """All that can be read, in order, numbers at axes included."""

    def rows(self, part: str) -> tuple[Row, ...]:
        """The rows of one of `SECTIONS`."""
        return self.tables.get(SECTIONS[part], ())


@dataclass(frozen=True)
class Drawn:
    """A limit as it is drawn: what is said of it; how far along the bar it is, and the ends of what was found."""

    said: str
    limit: float
    low: float
    high: float


def _drawn_limits(text: str) -> Iterator[Drawn]:
    for said, inside in re.findall(r'<svg[^>]* aria-label="([^"]*, limit [^"]*)">(.*?)</svg>', text, re.S):
        places = re.findall(r'<rect x="([^"]+)"[^>]* width="([^"]+)"[^>]* class="(\w+)"', inside)
        ends = {kind: (float(x), float(x) + float(width)) for x, width, kind in places}
        if "bar" in ends:
            yield Drawn(html.unescape(said), sum(ends["limit"]) / 2.0, ends["bar"][1], ends["paler"][1])


def certificate(plan: Json, wish: Files, folder: Path, claim: int) -> str:
    """The plan's proof of its claim of this number, in exact fractions."""
    path = folder / "plan.json"
    path.write_text(json.dumps(plan))
    ran = command("render", path, *wish.write(folder), "--to", "vipr", "--set", f"ask={claim}")
    assert ran.code == EXIT["ok"], ran
    return ran.out


def program_as_lp(wish: Files, folder: Path) -> str:
    """The first program that is asked for these files, without simulation."""
    ran = command("render", *wish.write(folder), *FLUID, "--to", "lp")
    assert ran.code == EXIT["ok"], ran
    return ran.out


def report(plan: Json, wish: Files, folder: Path) -> Report:
    """The page that is written of a plan."""
    path, written = folder / "plan.json", folder / "report.html"
    path.write_text(json.dumps(plan))
    ran = command("report", path, *wish.write(folder), "-o", written)
    assert ran.code == EXIT["ok"], ran
    text = written.read_text()
    tables: dict[str, tuple[Row, ...]] = {}
    for part in re.split(r"<h2[^>]*>", text)[1:]:
        heading, _, rest = part.partition("</h2>")
        for table in re.findall(r"<table>(.*?)</table>", rest, re.S):
            heads, *rows = (
                [
                    _plain(cell.replace("<span", " <span"))
                    for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)
                ]
                for row in re.findall(r"<tr>(.*?)</tr>", table, re.S)
            )
            found = [dict(zip(heads, row, strict=True)) for row in rows]
            tables.setdefault(heading, tuple({told: row[name] for told, name in _told(row).items()} for row in found))
    wide = re.sub(r'<div class="(?:mid|narrow)">.*?</div>', "", text, flags=re.S)
    shapes = re.findall(r"<(rect|circle) ([^>]*?)><title>(.*?)</title>", wide, re.S)
    size = {"rect": "width", "circle": "cx"}
    sized = [
        (kind, float(re.search(rf'{size[kind]}="([^"]+)"', said)[1]), _plain(title))  # type: ignore[index]
        for kind, said, title in shapes
    ]
    return Report(
        _plain(text.partition('<div class="money">')[2].partition("</div>")[0]),
        tuple(_plain(one) for one in re.findall(r"<h2[^>]*>(.*?)</h2>", text)),
        tuple(_plain(one) for one in re.findall(r'<div class="wide"><svg[^>]* aria-label="(.*?)"', text)),
        tuple(_drawn_limits(text)), tables,
        tuple((width, title) for kind, width, title in sized if kind == "rect"),
        tuple((place, title) for kind, place, title in sized if kind == "circle"),
        " ".join(html.unescape(re.sub(r"<style.*?</style>|<[^>]+>", " ", text, flags=re.S)).split()),
    )  # fmt: skip


def _plain(cell: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", cell)).strip()


def written_programs(wish: Files, kind: str, formulation: str) -> list[str]:
    """The programs that planning at fluid rates asks, as text ("lp" or "mps"), in order."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        asked, found = wish.write(Path(folder)), []
        while len(found) < 20:
            ran = command(
                "render", *asked, *FLUID, "--to", kind, "--set", f"ask={len(found) + 1}", "--formulation", formulation
            )
            if ran.code != EXIT["ok"]:
                break
            found.append(ran.out)
        return found


# -- forging -----------------------------------------------------------------------------------------------------------


def forged(plan: Json, change: Callable[[Json], None]) -> Json:
    """A copy of a plan with one thing changed and its digest renewed, as a forger would, who has no summary made."""
    from hetplan.profiles.plan_file import plan_dict, with_digest
    from hetplan.profiles.read_plan import read_plan

    changed = deepcopy(plan)
    change(changed)
    if changed.get("summary") == plan.get("summary"):
        changed.pop("summary", None)
    return plan_dict(with_digest(read_plan(changed, trust_digest=True)))


def _scaled(row: Json, key: str, factor: float) -> None:
    old = row[key]
    row[key] = [factor * end for end in old] if isinstance(old, list) else type(old)(factor * old)


RESTATED: Mapping[str, Callable[[Json], Any]] = {
    "model": lambda told: told["machines"][0].update(model="another"),
    "machine": lambda told: told["machines"][0].update(machine="another"),
    "application": lambda told: told["machines"][0].update(app="another"),
    "count": lambda told: _scaled(told["machines"][0], "count", 3.0),
    "fewest": lambda told: told["machines"][0].update(least=told["machines"][0]["least"] + 1),
    "money of a row": lambda told: _scaled(told["machines"][0], "cost_per_month", 0.99),
    "no row of machines": lambda told: told["machines"].pop(),
    "money a month": lambda told: _scaled(told, "cost_per_month", 0.99),
    "money an hour": lambda told: _scaled(told, "cost_per_hour", 0.99),
    "all machines": lambda told: _scaled(told, "machine_count", 2.0),
    "rate": lambda told: _scaled(told["rates_qps"], min(told["rates_qps"]), 1.1),
    "limit": lambda told: _scaled(told["slo"][0], "limit", 1.01),
    "interval": lambda told: _scaled(told["slo"][0], "interval", 0.9),
    "worst": lambda told: _scaled(told["slo"][0]["worst"][0], "interval", 0.9),
    "surer": lambda told: told["slo"][0].update(confidence=0.999),
    "verdict": lambda told: told["slo"][0].update(verdict="undecided" if told["slo"][0]["verdict"] == "met" else "met"),
    "no limit": lambda told: told["slo"].pop(0),
    "bound": lambda told: _scaled(told["bounds"][0], "bound", 1.01),
    "gap": lambda told: told["bounds"][0].update(gap=told["bounds"][0]["gap"] / 2 + 0.001),
    "status": lambda told: told.update(status="optimal" if told["status"] == "feasible" else "feasible"),
    "hours": lambda told: told["hours"][0].update(hours="00-24"),
    "money of hours": lambda told: _scaled(told["hours"][0], "cost_per_hour", 0.99),
    "machines of hours": lambda told: _scaled(next(iter(told["hours"][0]["apps"].values()))[0], "count", 2.0),
    "unit": lambda told: told["slo"][0].update(unit="us"),
    "basis": lambda told: told["slo"][0].update(basis="measurement"),
    "utilization": lambda told: told["machines"][0].update(utilization=0.05),
    "reserved": lambda told: told.update(reserved=[{"count": 10, "machine": "t4", "days": 365.0}]),
    "failures": lambda told: told.update(failures=["any zone lost"]),
    "survivors": lambda told: told.update(survivors=0.99),
    "spot of hours": lambda told: _scaled(told["hours"][0], "spot", 0.5),
}
"""What a summary may say that its plan does not."""


def restated(plan: Json, what: str) -> Json:
    """The plan with one figure of its summary changed, by `RESTATED`."""
    return forged(plan, lambda document: RESTATED[what](document["summary"]))


def called_simulated(plan: Json) -> Json:
    """A plan of rates alone that says it was sized by simulation, without the warning that it was not."""

    def change(plan: Json) -> None:
        for one in (plan, *(plan.get("parts") or {}).values()):
            one["method"]["options"]["sizing"] = "simulation"
            one["warnings"] = [said for said in one["warnings"] if said["code"] != "W-queueing"]
        for claim in plan["claims"] if plan.get("parts") else ():
            claim["vouched"] = "claimed"  # the program of another size proves another bound

    return forged(plan, change)


def unpromised(plan: Json, *, after_failures: bool) -> Json:
    """A fleet without promises of response times: of the parts that run while nothing failed, which say now that a
    formula sized them; or of those after failures, which say now that simulation did.
    """
    running = {name for period in plan["periods"] for name in period["parts"]}

    def change(plan: Json) -> None:
        for name, part in plan["parts"].items():
            if (name not in running) == after_failures:
                part["method"]["options"]["sizing"] = "simulation" if after_failures else "formula"
                part["promises"] = [one for one in part["promises"] if one["quantity"] not in _SHOWN_BY_QUEUES]
        if not after_failures:
            plan["promises"] = [one for one in plan["promises"] if one["quantity"] not in _SHOWN_BY_QUEUES]

    return forged(plan, change)


_SHOWN_BY_QUEUES = ("response_ms", "violations")


def unlimited(plan: Json) -> list[Json]:
    """The plan without what it says of the rates that it holds for; also one part of a fleet, which says nothing."""

    def silent(name: str | None) -> Json:
        def change(plan: Json) -> None:
            (plan if name is None else plan["parts"][name])["valid"]["rate_qps"] = {}

        return forged(plan, change)

    return [silent(None), *(silent(name) for name in list(plan.get("parts") or {})[:1])]


def starved(plan: Json, of: str) -> Json:
    """The plan, each of whose loads is held to a hundredth of what a machine has of a resource."""

    def change(plan: Json) -> None:
        for one in (plan, *(plan.get("parts") or {}).values()):
            for load in (load for worker in one["workers"] for load in worker["loads"]):
                load["share"] = {"GPUs": {"gpu": 0.01, "enforce": "mps"}, "cores": {"cpu_cores": 0.01}}[of]

    return forged(plan, change)


def tightened(plan: Json, number: int, part: float) -> Json:
    """The plan with one of its bounds better by this part, as its solve says too."""

    def change(plan: Json) -> None:
        claim = plan["claims"][number]
        claim["bound"] *= 1.0 + part * (1.0 if claim["sense"] == "min" else -1.0)
        for solve in plan["solves"]:
            if solve["id"] == claim.get("solve"):
                solve |= {"bound": claim["bound"], "certified_bound": claim["bound"]}

    return forged(plan, change)


def carried(plan: Json, number: int) -> Json | None:
    """The proof that a plan carries of one of its bounds."""
    claim = plan["claims"][number]
    return next((one.get("proof") for one in plan["solves"] if one["id"] == claim.get("solve")), None)


def without_prices(plan: Json) -> Json:
    """A fleet's plan that carries no prices to prove its bound by."""
    return {**plan, "extensions": {name: one for name, one in plan["extensions"].items() if name != "hetplan.prices"}}


def proved_by(plan: Json, number: int, how: str | Json) -> Json:
    """The plan with another proof of one of its bounds: one that is given, or as the word says.

    "scaled": every multiplier is another; "without the largest": of each leaf, or of all prices, that is 0; "none":
    there is none; "long": it is said to be too long; "other": the claim names another solve; "nonsense": it cannot be
    read; "renamed": by names of rows and columns that another version gave them.
    """

    def scaled(numbers: list[float]) -> list[float]:
        if how == "scaled":
            return [-3.0 * one for one in numbers]
        largest = max(map(abs, numbers), default=0.0)
        return [0.0 if abs(one) == largest else one for one in numbers]

    def other_names(of: Json) -> Json:
        if "tree" not in of:
            return {key: {f"old {name}": price for name, price in prices.items()} for key, prices in of.items()}
        named = {key: [f"old {name}" for name in of["tree"][key]] for key in ("rows", "columns")}
        return {"tree": {**of["tree"], **named}}

    def another(of: Json) -> Json:
        found: Json = {}
        for key, one in of.items():
            if key == "tree":
                leaves = [" ".join(map(repr, scaled([float(word) for word in line.split()]))) for line in one["leaves"]]
                found[key] = {**one, "leaves": leaves}
            else:
                found[key] = dict(zip(one, scaled(list(one.values())), strict=True))
        return found

    def change(plan: Json) -> None:
        claim = plan["claims"][number]
        (solve,) = (one for one in plan["solves"] if one["id"] == claim["solve"])
        if isinstance(how, dict):
            solve["proof"] = how
        elif how == "other":
            others = [one["id"] for one in plan["solves"] if one["id"] != claim["solve"]]
            claim["solve"] = others[0] if others else claim["solve"] + 1
        elif how == "none":
            solve["proof"] = None
        elif how == "long":
            solve["proof"] = {"left_out": "tree: 9000 leaves, 90000 numbers"}
        elif how == "nonsense":
            solve["proof"] = {key: {"x": "y"} for key in solve["proof"]}
        elif how == "renamed":
            solve["proof"] = other_names(solve["proof"])
        else:
            solve["proof"] = another(solve["proof"])

    return forged(plan, change)


def bounded(plan: Json, number: int, bound: float) -> Json:
    """The plan with another bound of a claim, and all that its solve and status say adapted to it."""
    from hetplan.planner.answer import relative_gap

    def change(plan: Json) -> None:
        claim = plan["claims"][number]
        claim |= {"bound": bound, "gap": relative_gap(claim["value"], bound)}
        for solve in (one for one in plan["solves"] if one["id"] == claim.get("solve")):
            solve |= {"value": bound, "bound": bound, "certified_bound": bound}
        if number == 0 and claim["gap"] == 0.0:
            plan["status"] = "optimal"

    return forged(plan, change)


def about(plan: Json, number: int, **said: Any) -> Json:
    """The plan with one of its claims about something else: another scope, or with another voucher, as its solve."""

    def change(plan: Json) -> None:
        claim = plan["claims"][number]
        claim.update(said)
        for solve in (one for one in plan["solves"] if one["id"] == claim.get("solve") and "vouched" in said):
            solve |= {"vouched": said["vouched"]}
            if said["vouched"] != "certified":
                solve.pop("certified_bound", None)

    return forged(plan, change)


def made_by(plan: Json, *, formulation: str | None = None, question: str | None = None) -> Json:
    """The plan, which says that it was made by another formulation, or for another question."""

    def change(plan: Json) -> None:
        plan["method"]["formulation"] = formulation or plan["method"]["formulation"]
        plan["question"] = question or plan["question"]

    return forged(plan, change)


def claimed_twice(plan: Json, times: int = 2) -> Json:
    """The plan with its first claim written this many times."""
    return forged(plan, lambda plan: plan.update(claims=[*plan["claims"], *[plan["claims"][0]] * (times - 1)]))


def misnamed(plan: Json) -> Json:
    """The plan under the digest of another one."""
    return {**deepcopy(plan), "digest": f"sha256:{'0' * 64}"}


def made_for(plan: Json, wish: Files) -> Json:
    """The plan as a forger hands it in who says that it was made from other files."""
    import hetplan as hp

    inputs = hp.load(wish.profile, wish.slo, wish.state, wish.measured)

    def rename(document: Json) -> None:
        document["inputs"] = {key: inputs.digests.get(key, old) for key, old in document["inputs"].items()}

    return forged(plan, rename)


# -- what a plan runs, for a simulator of the tests' own ---------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """A model on so many alike servers."""

    model: str
    machine: str
    stage: str
    servers: int
    max_batch: int


@dataclass(frozen=True)
class Route:
    """Shares of loads for queries at a stage, of a size (None: of any), behind a path of loads (None: behind any)."""

    to: Mapping[str, float]
    stage: str
    size: Any
    path: tuple[str, ...] | None


@dataclass(frozen=True)
class Dispatch:
    """How queries of an application find their server."""

    kind: str
    """shares, matching, earliest."""
    within: str
    """Among alike servers: shortest, turns, random."""
    late: str
    xi: float
    weights: Mapping[str, float]
    routes: tuple[Route, ...]


def loads_of(answer: Answer) -> dict[str, Load]:
    """What runs, by the names that routes use."""
    assert answer.plan is not None
    return {
        load["id"]: Load(
            load["variant"], worker["hardware"], load.get("node", ""),
            worker["count"] * load["instances"] * load["serve"]["concurrency"], load["serve"]["max_batch"],
        )
        for worker in answer.plan["workers"]
        for load in worker["loads"]
    }  # fmt: skip


def dispatch_of(answer: Answer, app: str) -> Dispatch:
    """The dispatch of an application."""
    assert answer.plan is not None
    rule, found = answer.plan["dispatch"][app], []
    for one in sorted(answer.plan["routing"][app], key=lambda one: -len(one["prefix"])):
        size = next(iter(one["when"].values()), None)
        found.append(Route(one["to"], one.get("node") or "", size, tuple(one["prefix"]) or None))
    within = {"shortest_queue": "shortest", "round_robin": "turns"}.get(rule.get("balancing", ""), "random")
    kind = rule["rule"].split("/")[0].removeprefix("path-")
    assert kind in ("shares", "matching", "earliest"), rule
    assert "split_above" not in rule, rule
    return Dispatch(kind, within, rule.get("late", "serve"), rule.get("xi", 1.0), rule.get("weight", {}), tuple(found))


def overstated(plan: Json, factor: float, of: str = "rate") -> Json:
    """The plan with its promised rates ("rate", "fluid rate") times a factor, and all that says them again."""

    def change(forgery: Json) -> None:
        for one in forgery["promises"]:
            if one["quantity"] in _QUANTITIES[of]:
                one["value"] *= factor
                one["interval"] = one.get("interval") and [one["value"], one["value"]]
        for span in forgery["valid"]["rate_qps"].values() if of == "rate" else ():
            span[1] *= factor
        for one in forgery["claims"]:
            if one["about"] in _QUANTITIES[of]:
                one["value"] *= factor
                one["gap"] = (one["bound"] - one["value"]) / one["bound"]

    return forged(plan, change)


def dressed(plan: Json, like: Json) -> Json:
    """A plan that was sized without simulation, dressed as one that was simulated: `like` was."""
    shown = [one for one in like["promises"] if one["model"].startswith("simulation")]
    rates = {one["app"]: one for one in shown if one["quantity"] == "rate_qps"}

    def change(forgery: Json) -> None:
        forgery["method"]["options"]["sizing"] = like["method"]["options"]["sizing"]
        forgery["warnings"] = [one for one in forgery.get("warnings", ()) if one["code"] != "W-queueing"]
        for one in forgery["promises"]:
            if one["quantity"] == "rate_qps" and one["app"] in rates:
                said, rate = rates[one["app"]], one["value"]
                one.clear()
                one.update(said, value=rate, interval=[rate, rate])
        forgery["promises"] += [one for one in shown if one["quantity"] != "rate_qps"]

    return forged(plan, change)


def retold(plan: Json, quantity: str, factor: float) -> Json:
    """The plan with another figure of what simulation showed of a quantity, its interval about it."""

    def change(forgery: Json) -> None:
        for one in forgery["promises"]:
            if one["quantity"] == quantity and one["model"].startswith("simulation"):
                one["value"] *= factor
                one["interval"] = [end * factor for end in one["interval"]]

    return forged(plan, change)


def surer(plan: Json, *, runs: int | None = None, sure: float | None = None, of: int | None = None) -> Json:
    """The plan whose simulated promises, or the `of`-th of them, are said to be of so many runs, or so sure."""

    def change(forgery: Json) -> None:
        shown = [one for one in forgery["promises"] if one["model"].startswith("simulation")]
        for number, one in enumerate(shown):
            if of in (None, number):
                one["seeds"] = runs or one["seeds"]
                if sure is not None and "confidence" in one:
                    one["confidence"] = sure

    return forged(plan, change)


def silent(plan: Json) -> Json:
    """The plan without the percentiles that it promises itself; its parts go on promising theirs."""

    def change(forgery: Json) -> None:
        forgery["promises"] = [one for one in forgery["promises"] if "percentile" not in one]

    return forged(plan, change)


def dispatched(plan: Json, **rule: Any) -> Json:
    """The plan with other words in the rules by which its queries are sent to machines."""

    def change(forgery: Json) -> None:
        for one in forgery["dispatch"].values():
            one.update(rule)

    return forged(plan, change)


def in_one_queue(plan: Json) -> Json:
    """The plan, of each of whose machines all loads wait in one queue."""

    def change(forgery: Json) -> None:
        for one in forgery["workers"]:
            one["queue"] = "shared"

    return forged(plan, change)


def text_sent_by(plan: Json, rule: str) -> Json:
    """A plan of machines that make text, whose requests are sent "in turn" or "by shares"."""
    name = {"in turn": "round-robin/1", "by shares": "shares/1"}[rule]

    def change(forgery: Json) -> None:
        forgery["dispatch"] = {app: {"rule": name} for app in forgery["dispatch"]}
        forgery["requires"] = [name]

    return forged(plan, change)


def thinned(plan: Json, wish: Files) -> Json:
    """The plan with one machine less of its largest group, and nothing said of how good it is."""

    def change(forgery: Json) -> None:
        group = max(forgery["workers"], key=lambda one: one["count"])
        group["count"] -= 1
        saved = float(wish.profile["offers"][group["offer"]]["price_per_hour"])
        for one in forgery["promises"]:
            if one["quantity"] == "cost_per_hour":
                one["value"] = round(one["value"] - saved, 9)
        forgery |= {"claims": [], "solves": [], "status": "heuristic"}

    return forged(plan, change)


# -- reading -----------------------------------------------------------------------------------------------------------

_QUANTITIES = {
    "rate": ("rate_qps",),
    "fluid rate": ("fluid_rate_qps",),
    "cost": ("cost_per_hour",),
    "violation rate": ("violations",),
}


def _answer(outcome: Any) -> Answer:
    plan = None if outcome.plan is None else outcome.plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    return Answer(
        status=outcome.status,
        code=outcome.exit_code,
        reason=outcome.reason,
        machines=() if plan is None else _machines(plan),
        promises=() if plan is None else tuple(map(_promise, plan.get("promises", ()))),
        claims=tuple(
            Claim(
                one.about,
                one.sense,
                one.value,
                one.bound,
                one.gap,
                one.vouched == "certified",
                one.scope in ("problem", "relaxation"),
            )
            for one in outcome.claims
        ),
        warnings=tuple((one.code, one.text) for one in outcome.warnings or (outcome.plan.warnings if plan else ())),
        conflict=tuple(outcome.why),
        repairs=tuple(one.text for one in outcome.repairs),
        findings=tuple(outcome.violations),
        plan=plan,
        changes=tuple(
            Repair(one.text, one.field, one.to, one.fails_at, one.edits) for one in outcome.repairs if one.edits
        ),
    )


def _promise(one: Json) -> Promise:
    return Promise(
        one.get("app"), one["quantity"], one.get("percentile"), one["relation"], one["value"], one["model"],
        one.get("period"), one.get("situation"),
    )  # fmt: skip


def _machines(plan: Json) -> tuple[MachineGroup, ...]:
    groups = [_group(one) for one in plan.get("workers", ())]
    for period in plan.get("periods", ()):
        situations = {"": period.get("parts") or (), **(period.get("failures") or {})}
        for failure, parts in situations.items():
            for name in parts:
                groups += [_group(one, period["id"], failure) for one in plan["parts"][name]["workers"]]
    return tuple(groups)


def _group(worker: Json, period: str = "", failure: str = "") -> MachineGroup:
    replicas = tuple(
        Replica(
            load.get("app"), load.get("node"), load.get("variant"), load.get("instances", 1),
            load.get("serve", {}).get("max_batch", 1),
        )
        for load in worker["loads"]
    )  # fmt: skip
    return MachineGroup(worker["hardware"], worker.get("offer"), worker["count"], replicas, period, failure)


def _cost(plan: Json, promised: float | None) -> float | None:
    bill = plan.get("bill")
    return promised if bill is None else bill["cost_per_hour"]


def _estimate(one: Json | None) -> Estimate | None:
    if one is None or one["value"] is None:
        return None
    low, high = one["interval"]
    return Estimate(one["value"], -inf if low is None else low, inf if high is None else high)


# -- other people's platforms ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pods:
    """A Deployment of workers: which machine type they are for, how many, what accelerators each asks for, where."""

    machine: str
    count: int
    accelerators: Mapping[str, int]
    labels: Mapping[str, str]


def rendered(plan: Json, wish: Files, cluster: str, folder: Path) -> tuple[Ran, list[Pods]]:
    """What Kubernetes is handed for a plan whose queries a router of the user's leads; `cluster` is the site file."""
    given = wish.write(folder)
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "site.toml").write_text(cluster)
    made = folder / "rendered"
    how = ("--to", "kubernetes", "--site", folder / "site.toml", "--set", "rule=own", "-o", made)
    ran = command("render", folder / "plan.json", *given, *how)
    if not (made / "kubernetes.yaml").exists():
        return ran, []
    return ran, [
        _pods(one["metadata"]["labels"]["hetplan.dev/hardware"], one["spec"])
        for one in read_objects((made / "kubernetes.yaml").read_text())
        if one["kind"] == "Deployment"
    ]


def read_objects(text: str) -> list[Json]:
    """The objects of a file for Kubernetes, read as its own tools do."""
    import yaml

    return [one for one in yaml.safe_load_all(text) if one]


def _pods(machine: str, spec: Json) -> Pods:
    pod = spec["template"]["spec"]
    amounts = pod["containers"][0].get("resources", {}).get("limits", {})
    others = {name: int(amount) for name, amount in amounts.items() if name not in ("cpu", "memory")}
    return Pods(machine, spec.get("replicas", 0), others, pod.get("nodeSelector", {}))


# -- what questions may be set ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """An option of a formulation, and in words what it takes."""

    problem: str
    formulation: str
    name: str
    takes: str


def options() -> list[Option]:
    """Every option of every formulation of every problem."""
    listed = [json.loads(line) for line in command("list", "problems", "--json").out.splitlines()]
    found = []
    for problem in [one["problem"] for one in listed if "problem" in one]:
        said = [json.loads(line) for line in command("list", "options", problem, "--json").out.splitlines()]
        found += [
            Option(problem, one["formulation"], one["option"]["name"], one["option"]["takes"])
            for one in said
            if "option" in one
        ]
    return found


def vary(wish: Files, folder: Path, what: str, ends: str) -> Ran:
    """Plan along a range of "cost", "rate", "price" or "time" (the last two as factors)."""
    names = {"cost": "budget", "rate": "rate", "price": "prices", "time": "latency", "demand": "demand"}
    few = ("--most", "5", "--no-confirm", *FLUID)
    return command("whatif", *wish.write(folder), "--vary", f"{names[what]}={ends}", *few)


def robust(wish: Files, *, demand: float = 0.0, latency: float = 0.0) -> Robust | None:
    """The machines that hold while numbers are off by these parts; None where there are none."""
    import hetplan as hp
    from hetplan.studies.robust import Box, robust_for

    inputs = hp.load(wish.profile, wish.slo, wish.measured)
    box = robust_for(inputs, box=Box(demand=demand, latency=latency), numbers=()).box
    return None if box is None else Robust(box.value, box.fleet, box.confirmed)


def planner(*arguments: Any, **named: Any) -> Any:
    """The object that plans again and again."""
    import hetplan as hp

    try:
        return hp.Planner(*arguments, **named)
    except hp.InputError as error:
        raise Refused(str(error)) from error


def simulated_violation(plan: Json, wish: Files, factor: float) -> str:
    """What keeps a plan from being applied at so many times its rate, if planning did not simulate it."""
    rates = {name: factor * one["rate_qps"] for name, one in wish.slo["apps"].items()} if factor != 1.0 else None
    from hetplan.api.planner import violation_of
    from hetplan.profiles.read_plan import read_plan

    return violation_of(read_plan(plan), planner(wish.profile, wish.slo).inputs(rates))


def compared_ways(plan: Json, wish: Files, folder: Path, ways: str) -> tuple[float, Ran]:
    """The hours of demand that ways to serve it were compared under."""
    (folder / "plan.json").write_text(json.dumps(plan))
    ran = command("compare", folder / "plan.json", *wish.write(folder), "--ways", ways, "--json")
    return json.loads(ran.out.splitlines()[-1])["comparison"]["hours"], ran


def with_option(plan: Json, name: str, value: object) -> Json:
    """The plan with an option of how it was made that somebody else wrote into it."""

    def write(document: Json) -> None:
        document["method"].setdefault("options", {})[name] = value

    return forged(plan, write)


def compared(folder: Path, *plans: Json) -> tuple[str, ...]:
    """The steps that lead from the first plan to each other one."""
    paths = [folder / f"plan-{number}.json" for number in range(len(plans))]
    for path, plan in zip(paths, plans, strict=True):
        path.write_text(json.dumps(plan))
    said = json.loads(command("compare", *paths, "--json").out.splitlines()[-1])
    return tuple(step for steps in said["comparison"]["moves"] for step in steps)
