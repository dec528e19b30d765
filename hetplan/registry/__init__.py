"""The one list of what hetplan is made of. To add a part is to add its line here, or an entry point elsewhere.

First the parts that plans are made with: questions, engines, checks, tools. Then targets, importers of foreign files,
and what is compiled ahead.

Entry points of other packages (groups `hetplan.problems`, `.formulations`, `.solvers`, `.checks`, `.targets`,
`.importers`) join the same lists, behind what is listed here. Nothing is imported before it is asked for; entry points
are looked up once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError, Interrupted
from hetplan.registry.entry_points import plugins, sound_plugins

if TYPE_CHECKING:
    from hetplan.executor.target import Target
    from hetplan.planner.contract import Problem, Solver
    from hetplan.planner.terms import Formulation, Obstacle, Tools
    from hetplan.profiles.inputs import Inputs

__all__ = [
    "IMPORTERS",
    "KERNELS",
    "PROBLEMS",
    "SOLVERS",
    "TARGETS",
    "Engines",
    "check_of",
    "compile_ahead",
    "find_part",
    "formulation",
    "formulations",
    "importers",
    "load_part",
    "obstacles",
    "problem",
    "problem_names",
    "problem_of",
    "solver_names",
    "solvers",
    "target",
    "tools_of",
]

PROBLEMS = {
    "pool": "hetplan.problems.pool.question:PoolQuestion",
    "pipeline": "hetplan.problems.pipeline.question:PipelineQuestion",
    "policy": "hetplan.problems.policy.question:Policy",
    "variants": "hetplan.problems.variants.question:Variants",
    "compound": "hetplan.problems.compound.question:Compound",
    "llm": "hetplan.problems.llm.question:LlmQuestion",
    "fleet": "hetplan.problems.fleet.question:FleetQuestion",
}
"""Question -> the class that poses it."""

SOLVERS: dict[str, tuple[str, str]] = {
    "highs": ("milp", "hetplan.solvers.highs:Highs"),
    "mathopt-scip": ("milp", "hetplan.solvers.mathopt:MathOptScip"),
    "glop": ("milp", "hetplan.solvers.mathopt:Glop"),
    "cp-sat": ("milp", "hetplan.solvers.cp_sat:CpSat"),
    "cp-sat-scaled": ("milp", "hetplan.solvers.cp_sat:CpSatScaled"),
    "pyomo": ("milp", "hetplan.solvers.pyomo_bridge:Pyomo"),
    "columns": ("columns", "hetplan.solvers.columns:ColumnsEngine"),
    "queue-structured": ("queue-process", "hetplan.solvers.queue_structured:QueueStructured"),
    "bound-order": ("catalog", "hetplan.solvers.catalog:BoundOrder"),
    "exhaustive": ("catalog", "hetplan.solvers.catalog:Exhaustive"),
    "dual": ("packing", "hetplan.solvers.packing_exact:Dual"),
    "dual-core": ("packing", "hetplan.solvers.packing_exact:DualCore"),
    "exact": ("packing", "hetplan.solvers.packing_exact:Exact"),
    "exact-cp-sat": ("packing", "hetplan.solvers.packing_exact:ExactCpSat"),
    "greedy": ("packing", "hetplan.solvers.packing:Greedy"),
    "greedy-sum": ("packing", "hetplan.solvers.packing:GreedySum"),
    "greedy-norm": ("packing", "hetplan.solvers.packing:GreedyNorm"),
    "greedy-max": ("packing", "hetplan.solvers.packing:GreedyMax"),
    "greedy-l2": ("packing", "hetplan.solvers.packing:GreedyL2"),
    "greedy-stop": ("packing", "hetplan.solvers.packing:GreedyStop"),
    "fcfs": ("packing", "hetplan.solvers.packing:Fcfs"),
    "struct-ci": ("black-box", "hetplan.solvers.search:StructCi"),
    "struct": ("black-box", "hetplan.solvers.search:Struct"),
    "wide": ("black-box", "hetplan.solvers.search_wide:Wide"),
    "cmbo": ("black-box", "hetplan.solvers.search:Cmbo"),
    "cmbo-ci": ("black-box", "hetplan.solvers.search:CmboCi"),
    "struct-ci-botorch": ("black-box", "hetplan.solvers.botorch_process:StructCiBotorch"),
    "cmbo-botorch": ("black-box", "hetplan.solvers.botorch_process:CmboBotorch"),
    "random-plans": ("black-box", "hetplan.solvers.search:RandomPlans"),
    "priced-columns": ("priced", "hetplan.solvers.priced_columns:PricedColumns"),
}
"""Engine -> the kind of form that it answers, and its class; in order of preference within each kind."""

CHECKS = {
    "pool": "hetplan.verifier.pool:check",
    "pipeline": "hetplan.verifier.pipeline:check",
    "policy": "hetplan.verifier.policy:check",
    "variants": "hetplan.verifier.variants:check",
    "compound": "hetplan.verifier.compound:check",
    "llm": "hetplan.verifier.llm:check",
    "fleet": "hetplan.verifier.fleet:check",
}
"""Question -> the check that the verifier makes of its promise."""

SIMULATE, PLAN = "hetplan.simulator.simulate:simulate", "hetplan.api.solve:plan_for"
PLAYS = ("simulate_plan", "play_tokens", "simulate_policy", "plan_for")
"""Tools that simulate, beside "simulate": parts of a fleet do as they are planned."""
TOOLS = {
    "fleet": {
        "plan_for": PLAN,
        "verified": "hetplan.api.solve:verified",
        "at_capacities": "hetplan.solvers.capacity_sweep:at_capacities",
        "simulate_plan": SIMULATE,
    },
    "compound": {"simulate": SIMULATE},
    "pipeline": {"simulate": SIMULATE},
    "variants": {"simulate": SIMULATE},
    "pool": {
        "simulate": "hetplan.simulator.pool_allowable:allowable_rate",
        "simulate_plan": SIMULATE,
    },
    "llm": {
        "play_tokens": "hetplan.simulator.tokens:play",
        "draw_tokens": "hetplan.simulator.tokens:draw",
    },
    "policy": {
        "simulate_policy": "hetplan.simulator.policy:simulate_policy",
    },
}
"""Question -> what it is handed because it may not import it; "simulate" and "evaluate" have fields of their own.

A question of another package is handed the simulator.
"""

KERNELS = {
    "simulation": "hetplan.simulator.simulation:compile_kernels",
    "pools": "hetplan.simulator.pool:compile_kernels",
    "tokens": "hetplan.simulator.tokens:compile_kernels",
    "policies": "hetplan.solvers.queue_structured:compile_kernels",
    "simulated policies": "hetplan.simulator.policy:compile_kernels",
    "dispatch": "hetplan.dispatch.rules:compile_kernels",
}
"""What is compiled -> what compiles it ahead."""

IMPORTERS = {
    "rates": "hetplan.profiles.imports.sweeps:convert",
    "laws": "hetplan.profiles.imports.sweeps:convert_laws",
    "melange": "hetplan.profiles.imports.melange:convert",
    "perf-analyzer": "hetplan.profiles.imports.perf_analyzer:convert",
    "prices": "hetplan.profiles.imports.skypilot:convert",
    "datasheet": "hetplan.profiles.imports.datasheet:convert",
    "sageserve": "hetplan.profiles.imports.sageserve:convert",
    "token-trace": "hetplan.profiles.imports.token_traces:convert",
    "trace": "hetplan.profiles.imports.trace:convert",
}
"""Kind of foreign file -> its converter."""

TARGETS = {
    "local": "hetplan.executor.local:Local",
    "ssh": "hetplan.executor.ssh.target:SshTarget",
}
"""Kind of target in site.toml -> the class that runs things there."""


def problem_names() -> list[str]:
    """Every question at hand, hetplan's own first."""
    return [*PROBLEMS, *sound_plugins("problems", PROBLEMS)]


def problem(name: str) -> type[Problem]:
    """The class of a question."""
    found = find_part(PROBLEMS, "problems", name.lower())
    if found is None:
        remedy = f"Choose one of {', '.join(problem_names())}; `hetplan list problems` says what each decides."
        raise InputError.one(path="question", value=name, why="there is no such question", remedy=remedy)
    kind: type[Problem] = found
    return kind


def formulation(kind: type[Problem], name: str) -> Formulation | None:
    """The formulation of a problem by its name: its own, else one that another package brings."""
    from hetplan.planner.terms import Formulation

    if name in kind.formulations:
        return Formulation(kind.formulations[name], like=kind.like.get(name))
    if not getattr(kind, "takes_formulations", False):
        return None
    found: Formulation | None = find_part({}, "formulations", f"{kind.question}/{name}")
    return found


def problem_of(formulation: str) -> str | None:
    """The problem whose formulation has this name; None where there is none."""
    names = sorted(problem_names(), key=lambda name: not formulation.startswith(name))
    return next((name for name in names if formulation in formulations(problem(name))), None)


def formulations(kind: type[Problem]) -> dict[str, Formulation]:
    """All formulations of a problem by name: the default first, those of other packages last."""
    brought = [name.partition("/") for name in sound_plugins("formulations", {})]
    names = [*kind.formulations, *(name for question, _, name in brought if question == kind.question)]
    return {name: found for name in dict.fromkeys(names) if (found := formulation(kind, name)) is not None}


def obstacles(question: str, inputs: Inputs) -> tuple[Obstacle, ...]:
    """What keeps the files from asking a question; nothing where they may, or where there is no such question."""
    from hetplan.planner.terms import Obstacle
    from hetplan.problems.infer_problem import LADDER

    if question in LADDER:
        return LADDER[question](inputs)
    found: type[Problem] | None = find_part(PROBLEMS, "problems", question)
    said = () if found is None else found.fits(inputs)
    if isinstance(said, str):
        return (Obstacle(said, essential=True),) if said else ()
    return tuple(said)


class Engines:
    """The engines at hand. One is loaded when a form of its kind is asked and its turn comes, or when it is named."""

    def of(self, form: str) -> Iterator[Solver]:
        """The engines of one kind of form, in order of preference, hetplan's own first."""
        for kind, where in list(SOLVERS.values()):
            if kind == form:
                yield _engine(where)
        yield from (engine for engine in _plugin_engines() if engine.form == form)

    def by_name(self, name: str, form: str) -> Solver | None:
        """The engine of this name, where it answers this kind of form."""
        engine = self.find(name)
        return engine if engine is not None and engine.form == form else None

    def find(self, name: str) -> Solver | None:
        """The engine of this name; ``pyomo:ENGINE`` is any that Pyomo finds on this machine."""
        if name in SOLVERS:
            return _engine(SOLVERS[name][1])
        if name.startswith("pyomo:"):
            made: Solver = import_module("hetplan.solvers.pyomo_bridge").pyomo_with(name.removeprefix("pyomo:"))
            return made
        return next((engine for engine in _plugin_engines() if engine.name == name), None)


def solver_names() -> list[str]:
    """Every engine's name, in order of preference, hetplan's own first."""
    return [*SOLVERS, *sound_plugins("solvers", SOLVERS)]


def solvers(form: str | None = None) -> list[Solver]:
    """Engines in order of preference, those of one kind of form or all; uninstalled ones refuse by themselves."""
    engines = [_engine(where) for kind, where in SOLVERS.values() if form in (None, kind)]
    return [*engines, *(engine for engine in _plugin_engines() if form in (None, engine.form))]


def _engine(where: str) -> Solver:
    """An engine has no state: one of each is enough."""
    made: Solver = load_part(where)()
    return made


def _plugin_engines() -> list[Solver]:
    return [plugins("solvers")[name].load()() for name in sound_plugins("solvers", SOLVERS)]


def check_of(question: str) -> Callable[..., Any] | None:
    """The verifier's check of a question's promise, or None where it has none."""
    found: Callable[..., Any] | None = find_part(CHECKS, "checks", question)
    return found


def tools_of(question: str, given: Tools | None = None, stop: threading.Event | None = None) -> Tools:
    """What a question is handed: hetplan's own tools, each loaded when first called; what is given comes first.

    Once `stop` is set no simulation begins, and one of a plan that has begun ends: both raise `Interrupted`.
    """
    from hetplan.planner.terms import Tools

    own = {name: _on_first_call(where, stop) for name, where in TOOLS.get(question, {"simulate": SIMULATE}).items()}
    given = given or Tools()
    simulate, evaluate = own.pop("simulate", None), own.pop("evaluate", None)
    simulate, extra = given.simulate or simulate, {**own, **given.extra}
    if stop is not None:
        simulate = None if simulate is None else _until(stop, simulate)
        extra |= {name: _until(stop, extra[name]) for name in PLAYS if name in extra}
    return replace(given, simulate=simulate, evaluate=given.evaluate or evaluate, extra=extra)


def _on_first_call(where: str, stop: threading.Event | None) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        if where == SIMULATE and stop is not None:
            named = {"cancel": stop, **named}
        if where == PLAN and stop is not None:
            from hetplan.planner.answer import Limits

            named = {"limits": Limits(cancel=stop), **named}
        found = load_part(where)(*args, **named)
        if where == PLAN and stop is not None and stop.is_set():
            raise Interrupted("the time limit ended while an application was planned")
        return found

    return call


def _until(stop: threading.Event, call: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(*args: Any, **named: Any) -> Any:
        if stop.is_set():
            raise Interrupted("the work is to end: nothing more is simulated")
        return call(*args, **named)

    return guarded


def compile_ahead(what: str) -> None:
    """Compile one entry of `KERNELS`."""
    load_part(KERNELS[what])()


def importers() -> dict[str, Callable[..., Any]]:
    """Converters of foreign files."""
    names = [*IMPORTERS, *sound_plugins("importers", IMPORTERS)]
    return {name: find_part(IMPORTERS, "importers", name) for name in names}


def target(kind: str) -> type[Target]:
    """The class of a kind of target."""
    found = find_part(TARGETS, "targets", kind.lower())
    if found is None:
        raise InputError.one(
            file="site.toml",
            path="$.targets",
            value=kind,
            why="there is no such kind of target",
            remedy=f"Choose one of {', '.join([*TARGETS, *sound_plugins('targets', TARGETS)])}.",
        )
    made: type[Target] = found
    return made


def find_part(own: Mapping[str, str], group: str, name: str) -> Any:
    """The part of this name in a list, else the one that another package brings to the group; None for neither."""
    if name in own:
        return load_part(own[name])
    plugin = plugins(group).get(name)
    return plugin.load() if plugin is not None else None


def load_part(where: str) -> Any:
    """What is at "module:name"."""
    module, _, attribute = where.partition(":")
    return getattr(import_module(module), attribute)
