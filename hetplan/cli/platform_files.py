"""`hetplan render --to` a platform: read, choose who picks the replicas, simulate what that changes, write."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hetplan.cli.output import Exit, Output
from hetplan.cli.read_files import plan_from
from hetplan.errors import Fault, InputError
from hetplan.profiles.given_files import sort_files

if TYPE_CHECKING:
    from hetplan.executor.apply.cluster import Rendered
    from hetplan.executor.render.rules import Choice
    from hetplan.executor.site import Site
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan
    from hetplan.simulator.report import Line, SimulationReport

__all__ = ["Made", "made_for", "made_of", "render_platform", "settings_of", "write_template"]

MARK = b"# hetplan: "
"""How each rendered file begins."""
SEEDS = 3
"""Runs of the plan under another rule: enough for an interval."""
POWERS = (1.0, 2.0, 2.5, 3.0, 1.5)
"""Weights and shares of text are speeds to one of these powers, the first under which no limit is missed. The best ones
of a mixed fleet lie further apart than the speeds: a slow replica is of use for few requests."""


@dataclass(frozen=True)
class Made:
    """What a plan becomes on a platform: the files by name, and what is said of each application's rule."""

    plan: Plan
    files: Mapping[str, str]
    verdicts: Mapping[str, str]

    @property
    def rendered(self) -> Rendered:
        """The files as an apply takes them."""
        from hetplan.executor.apply.cluster import Rendered

        return Rendered(str(self.plan.digest), self.files)


def render_platform(
    out: Output, files: list[Path], target: str, folder: str, site_file: Path | None, given: dict[str, Any]
) -> None:
    """Write a plan as files of a platform."""
    if folder == "-":
        raise InputError.one(file="-o", why="a folder is needed", remedy="Add -o deploy.")
    from hetplan.executor.render import COMMANDS
    from hetplan.executor.site import read_site

    made = made_for(out, files, target, read_site(site_file if site_file is not None else {}), given)
    for old in _write(Path(folder), made.files):
        out.warn(f"{old} is of an earlier plan, and was left there")
    names = ", ".join(made.files) if len(made.files) < 4 else f"{len(made.files)} files"
    reason = f"written to {folder}: {names}"
    out.people.line(reason)
    if not any("/" in name for name in made.files):  # a folder for each machine goes there first
        out.people.line(f"Next: {COMMANDS[target].format(folder=folder)}")
    out.end(Exit.OK, reason, files=sorted(made.files), verdicts=dict(made.verdicts))


def made_for(out: Output, files: list[Path], target: str, site: Site, given: Mapping[str, Any]) -> Made:
    """A plan file as files of a platform, with those that it was made from."""
    settings = settings_of(site, target, given)
    plan, inputs = _read(files, site, settings.pop("period", None))
    return made_of(out, target, site, plan, inputs, settings)


def settings_of(site: Site, target: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """How a plan is rendered for a target: what is given, else what site.toml says of it."""
    from hetplan.executor.render import SETTINGS
    from hetplan.executor.render.rules import RULES

    known: dict[str, tuple[str, ...]] = {"rule": RULES, "period": ()}
    known |= {name: (value,) for name, value in SETTINGS.get(target, {}).items()}
    # Who picks the replica is said once: a rule that is given stands for a router of site.toml.
    left = {"rule", "router"} if {"rule", "router"} & given.keys() else set()
    said = {name: one for name, one in site.render.items() if name in known and name not in left} | dict(given)
    for name, value in said.items():
        if name not in known:
            why, remedy = f"no setting of {target}", f"Known: {', '.join(known)}."
            raise InputError.one(file="--set", path=name, value=value, why=why, remedy=remedy)
        if known[name] and value not in known[name]:
            remedy = f"Choose one of {', '.join(known[name])}."
            raise InputError.one(file="--set", path=name, value=value, why=f"no such {name}", remedy=remedy)
    return said


def made_of(
    out: Output, target: str, site: Site, plan: Plan, inputs: Inputs, settings: Mapping[str, Any]
) -> Made:  # fmt: skip
    """A plan as files of a platform; refused where a limit is broken under the rule that the platform keeps."""
    from hetplan.executor.render import EXPERIMENTAL, refusals, render
    from hetplan.executor.render.groups import groups
    from hetplan.executor.render.names import CannotRender
    from hetplan.executor.render.router import routed
    from hetplan.executor.render.rules import choose

    given = dict(settings)
    if inputs.digests.get("profile", plan.inputs.profile) != plan.inputs.profile:
        out.warn("the plan was made from another profile: times, prices and amounts are those of this one")
    rule = given.pop("rule", None)
    if (router := given.pop("router", None)) is not None:
        if rule is not None:
            why = "hetplan's router uses the plan's rule"
            raise InputError.one(file="--set", path="rule", value=rule, why=why, remedy="Leave one of them out.")
        rule = router
    if faults := refusals(target, plan, inputs, site, rule, **given):
        raise CannotRender.of(faults)
    fleet = groups(plan, inputs, site)
    if target in EXPERIMENTAL:
        out.warn(f"{target} is experimental: no run of it on its platform is recorded yet")
    searched = rule in ("weighted-least", "split") and any(group.makes_text for group in fleet.groups)
    tried = []
    for power in POWERS if searched else POWERS[:1]:
        tried.append(_simulated(out, choose(target, plan, fleet, rule, power=power), inputs))
        if not tried[-1].missed:
            break
    best = min(tried, key=lambda one: len(one.missed))
    choice, verdicts = best.choice, best.verdicts
    if best.missed:
        _refuse(best.missed, choice, target)
    ready = routed(replace(choice.fleet, verdicts=verdicts), plan, inputs, site)
    made = render(target, ready, site, **given)
    for app, verdict in verdicts.items():
        out.people.line(f"{app}: {verdict}")
    return Made(plan, made, verdicts)


def _read(files: list[Path], site: Site, period: object) -> tuple[Plan, Inputs]:
    """The plan (of one period, where one is named) with its files: those given, else those that site.toml names."""
    from hetplan.profiles.plan_periods import of_period, period_of

    named = sort_files([*files, *(site.folder / name for name in site.files)], "render", plans=(1, 1))
    plan, inputs = plan_from(named.plan), named.inputs
    if period is not None:
        one = period_of(plan, str(period))
        workers = tuple(worker for worker in plan.workers if worker.period == one.id)
        kept = of_period(plan, one) if plan.parts is not None else plan.model_copy(update={"workers": workers})
        plan = kept.model_copy(update={"periods": (one.model_copy(update={"start_s": 0.0}),), "digest": plan.digest})
    return plan, inputs


def _write(folder: Path, made: Mapping[str, str]) -> list[Path]:
    """Write the files; returns those there that another plan was written to, and this one is not."""
    from hetplan.profiles.plan_file import write_atomically

    old = [one for one in folder.rglob("*") if one.is_file() and str(one.relative_to(folder)) not in made]
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / name, text.encode())
    return sorted(one for one in old if one.open("rb").read(len(MARK)) == MARK)


@dataclass(frozen=True)
class _Tried:
    """What comes of a plan under a target's rules: in words, and which limits the mean of all runs misses."""

    choice: Choice
    verdicts: dict[str, str]
    missed: list[Line]


def _simulated(out: Output, choice: Choice, inputs: Inputs) -> _Tried:
    """The applications whose rule is another than the plan's, simulated under it."""
    from hetplan.executor.render.rules import OWN

    lines: dict[str, list[Line]] = {}
    if choice.changed:
        from hetplan.cli.long_work import interruptible, progress

        def work(cancel: threading.Event) -> dict[str, list[Line]]:
            found: dict[str, list[Line]] = {}
            for report in _reports(choice, inputs, on_event=show, cancel=cancel):
                for line in report.lines:
                    if line.by == "slo" and line.app in choice.changed:
                        found.setdefault(line.app, []).append(line)
            return found

        with progress(out) as show:
            lines = interruptible(work, say=out.note)
    summary = choice.plan.summary
    promised = {row.app: row.verdict for row in summary.slo if row.limit is not None} if summary is not None else {}
    said: dict[str, str] = {}
    for name in choice.fleet.apps:
        if choice.fleet.rules[name] == OWN:
            said[name] = f"a router of yours has to keep {choice.fleet.apps[name].rule}, or nothing is promised"
        elif name in choice.changed:
            worst = _worst(lines.get(name, []))
            said[name] = f"simulated under {choice.fleet.rules[name]}: " + ("; ".join(worst) or "no limit to judge")
        else:
            said[name] = f"the plan's own rule; its promise: {promised.get(name) or 'none'}"
    return _Tried(choice, said, [line for listed in lines.values() for line in listed if _misses(line)])


def _misses(line: Line) -> bool:
    """Whether the mean of all runs is on the wrong side of a limit."""
    if line.simulated is None:
        return False
    above = line.simulated.value > line.promised
    return above if line.relation == "<=" else line.relation == ">=" and line.simulated.value < line.promised


def _reports(choice: Choice, inputs: Inputs, **how: Any) -> Iterator[SimulationReport]:
    """The plan under the target's rules; of a plan with periods each part that runs without failures."""
    from hetplan.profiles.plan_periods import inputs_of_part, of_part
    from hetplan.simulator.simulate import simulate

    plan = choice.plan
    if plan.parts is None:
        yield simulate(plan, inputs, seeds=SEEDS, **how)
        return
    for name in dict.fromkeys(name for period in plan.periods for name in period.parts or ()):
        rates = plan.parts[name].rate_qps
        if set(rates) & set(choice.changed):
            yield simulate(of_part(plan, name), inputs_of_part(inputs, rates), seeds=SEEDS, **how)


def _worst(lines: list[Line]) -> list[str]:
    """One line for each limit: the worst of all periods."""
    order = ("broken", "undecided", "not simulated", "met")
    found: dict[tuple[str, float | None], Line] = {}
    for line in sorted(
        lines, key=lambda one: order.index(str(one.verdict)) if str(one.verdict) in order else len(order)
    ):
        found.setdefault((line.quantity, line.percentile), line)
    return [str(line).partition(": ")[2] for line in found.values()]


def _refuse(missed: list[Line], choice: Choice, target: str) -> None:
    """What the target's rule does not keep, with the ways out that it takes."""
    from hetplan.executor.render.names import CannotRender
    from hetplan.executor.render.rules import OWN, taken

    faults = []
    for line in missed:
        kept, app = choice.fleet.rules[line.app or ""], choice.fleet.apps[line.app or ""]
        rules = [rule for rule in taken(target, app, choice.fleet.of_app(app.name)) if rule not in (kept, OWN)]
        ways = [" or ".join(f"--set rule={rule}" for rule in rules)] if rules else []
        why = f"under {kept} the plan violates its limit"
        ways += ["--set router=hetplan"] if target == "kubernetes" else []
        ways += ["plan with more headroom", "hetplan apply on hosts, which runs its router"]
        remedy = f"Ways out: {'; '.join(ways)}."
        faults.append(Fault("plan", f"$.dispatch.{line.app}", str(line), why, remedy))
    raise CannotRender.of(faults)


def write_template(out: Output, files: list[Path], target: str, output: str, site_file: Path | None) -> None:
    """Write site.toml with every line that the target needs for this plan; what is not known is "?"."""
    from hetplan.executor.render.template import template
    from hetplan.executor.site import read_site
    from hetplan.profiles.plan_file import write_atomically

    site = read_site(site_file if site_file is not None else {})
    plan, inputs = _read(files, site, None)
    text = template(plan, inputs.profile, site, target)
    if output == "-":
        typer.echo(text, nl=False)
        return
    write_atomically(Path(output), text.encode())
    reason = f'written to {output}: fill in what is "?"'
    out.people.line(reason)
    out.end(Exit.OK, reason)
