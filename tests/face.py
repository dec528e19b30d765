"""The one face that the tests of the net look at: what people type, import and read, as plain records.

This is the only test file that names a command, a flag, an option, an exit code, or a key of a plan, a report or a
reply. With `tests/build.py` it is all that changes when the public face does.

`solve`, `verify`, `simulate` go by `hetplan.*`; `command` goes by the command line, in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

from build import Files, example

__all__ = [
    "EXIT",
    "Answer",
    "Claim",
    "Estimate",
    "Judgement",
    "MachineGroup",
    "Promise",
    "Ran",
    "Refused",
    "Replica",
    "Simulated",
    "Verdict",
    "command",
    "dispatched",
    "dressed",
    "forged",
    "made_for",
    "overstated",
    "retold",
    "simulate",
    "solve",
    "solved_example",
    "thinned",
    "verify",
]

Json = dict[str, Any]

EXIT = {"ok": 0, "fault": 1, "bad input": 2, "infeasible": 3, "gap": 4, "limit": 5, "broken": 6, "interrupted": 130}
"""Exit codes by what they mean."""

SIZING = {"fluid": "planned", "formula": "estimated", "simulation": "auto"}
"""How waiting is taken into account -> how the option says it."""


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
    def value(self) -> float | None:
        """What the objective is."""
        return self.claims[0].value if self.claims else None

    @property
    def bound(self) -> float | None:
        """The best value of the objective that any plan may have, as far as it is known."""
        return self.claims[0].bound if self.claims else None

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
    """A promise or a limit of the SLO beside what simulation shows ("kept", "broken", "undecided", ...)."""

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


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


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

    try:
        outcome = hp.solve(
            wish.profile, wish.slo, state=wish.state, measured=wish.measured, question=problem or wish.problem,
            formulation=formulation, options={"size": SIZING[sizing], **(options or {})}, **more,
        )  # fmt: skip
    except hp.InputError as error:
        raise Refused(str(error)) from error
    return _answer(outcome)


@cache
def solved_example(name: str, sizing: str = "simulation") -> Answer:
    """The plan of a shipped example, made once per process."""
    return solve(example(name), sizing)


def verify(plan: Json, wish: Files, **more: Any) -> Judgement:
    """Check a plan against the files that it was made from."""
    import hetplan as hp

    report = hp.verify(plan, wish.profile, wish.slo, state=wish.state, measured=wish.measured, **more)
    refuted = [f"{one.about}: {one.text}" for one in report.claims if one.refuted]
    tried = tuple((one.about, str(one.word), one.queries) for one in report.simulated)
    return Judgement(report.ok, (*map(str, report.violations), *refuted), report.reason, tried)


def simulate(plan: Json, wish: Files, *, seeds: int = 3, seed: int = 90_001, **more: Any) -> Simulated:
    """Run a plan under its demand."""
    import hetplan as hp

    report = hp.simulate(
        plan, wish.profile, wish.slo, state=wish.state, measured=wish.measured, seeds=seeds, seed=seed, **more
    )
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
    )  # fmt: skip


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


# -- forging -----------------------------------------------------------------------------------------------------------


def forged(plan: Json, change: Callable[[Json], None]) -> Json:
    """A copy of a plan with one thing changed and its digest renewed, as a forger would."""
    import hetplan as hp
    from hetplan.profiles.plan_file import plan_dict, with_digest

    changed = deepcopy(plan)
    change(changed)
    return plan_dict(with_digest(hp.read_plan(changed, trust_digest=True)))


def made_for(plan: Json, wish: Files) -> Json:
    """The plan as a forger hands it in who says that it was made from other files."""
    import hetplan as hp

    inputs = hp.load_inputs(wish.profile, wish.slo, state=wish.state, measured=wish.measured)

    def rename(document: Json) -> None:
        document["inputs"] = {key: inputs.digests.get(key, old) for key, old in document["inputs"].items()}

    return forged(plan, rename)


def overstated(plan: Json, factor: float) -> Json:
    """The plan with its promised rates times a factor, and all that says them again."""

    def change(forgery: Json) -> None:
        for one in forgery["promises"]:
            if one["quantity"] == "rate_qps":
                one["value"] *= factor
                one["interval"] = one.get("interval") and [one["value"], one["value"]]
        for span in forgery["valid"]["rate_qps"].values():
            span[1] *= factor
        for one in forgery["claims"]:
            if one["about"] == "rate_qps":
                one["value"] *= factor
                one["gap"] = (one["bound"] - one["value"]) / one["bound"]

    return forged(plan, change)


def dressed(plan: Json, like: Json) -> Json:
    """A plan that was sized without simulation, dressed as one that was simulated: `like` was."""
    shown = [one for one in like["promises"] if one["model"].startswith("simulation")]
    rates = {one["app"]: one for one in shown if one["quantity"] == "rate_qps"}

    def change(forgery: Json) -> None:
        forgery["method"]["options"]["size"] = like["method"]["options"]["size"]
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


def dispatched(plan: Json, **rule: Any) -> Json:
    """The plan with other words in the rules by which its queries are sent to machines."""

    def change(forgery: Json) -> None:
        for one in forgery["dispatch"].values():
            one.update(rule)

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
            Claim(one.about, one.sense, one.value, one.bound, one.gap, one.vouched == "certified")
            for one in outcome.claims
        ),
        warnings=tuple((one.code, one.text) for one in outcome.warnings or (outcome.plan.warnings if plan else ())),
        conflict=tuple(outcome.why),
        repairs=tuple(one.text for one in outcome.repairs),
        findings=tuple(outcome.violations),
        plan=plan,
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
