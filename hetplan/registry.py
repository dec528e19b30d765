"""The one list of what hetplan is made of. To add a part is to add its line here, or an entry point elsewhere.

Entry points of other packages (groups `hetplan.problems`, `.solvers`, `.checks`, `.targets`, `.importers`) join the
same lists. Nothing here is imported before it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.executor.target import Target
    from hetplan.planner.contract import Problem, Solver, Tools

__all__ = [
    "BROKEN_PLUGINS",
    "PROBLEMS",
    "SOLVERS",
    "check_of",
    "importers",
    "problem",
    "problem_names",
    "solvers",
    "target",
    "tools_of",
]

PROBLEMS = {
    "pool": "hetplan.problems.pool.question:Pool",
    "pipeline": "hetplan.problems.pipeline.question:Pipeline",
    "policy": "hetplan.problems.policy.question:Policy",
    "variants": "hetplan.problems.variants.question:Variants",
    "compound": "hetplan.problems.compound.question:Compound",
}
"""Question -> the class that poses it."""

ALIASES = {"kairos": "pool", "loki": "pipeline", "infaas": "variants", "ramsis": "policy", "circinus": "compound"}
"""The papers' names."""

SOLVERS = {
    "highs": "hetplan.solvers.highs:Highs",
    "scipy": "hetplan.solvers.scipy_milp:Scipy",
    "mathopt-highs": "hetplan.solvers.mathopt:MathOptHighs",
    "mathopt-scip": "hetplan.solvers.mathopt:MathOptScip",
    "glop": "hetplan.solvers.mathopt:Glop",
    "mathopt-pdlp": "hetplan.solvers.mathopt:MathOptPdlp",
    "cp-sat": "hetplan.solvers.cp_sat:CpSat",
    "cp-sat-scaled": "hetplan.solvers.cp_sat:CpSatScaled",
    "pyomo": "hetplan.solvers.pyomo_bridge:Pyomo",
    "columns": "hetplan.solvers.columns:ColumnsEngine",
    "queue-structured": "hetplan.solvers.queue_structured:QueueStructured",
    "queue-numpy": "hetplan.solvers.queue_numpy:QueueNumpy",
    "queue-generic": "hetplan.solvers.queue_generic:QueueGeneric",
    "mdp-rvi": "hetplan.solvers.mdp_vi:MdpRelative",
    "mdp-vi": "hetplan.solvers.mdp_vi:MdpValue",
    "mdp-mpi": "hetplan.solvers.mdp_vi:MdpModifiedPolicy",
    "mdp-pi": "hetplan.solvers.mdp_pi:MdpPolicy",
    "mdp-lp": "hetplan.solvers.mdp_lp:MdpLp",
    "bound-order": "hetplan.solvers.catalog_orders:BoundOrder",
    "exhaustive": "hetplan.solvers.catalog_orders:Exhaustive",
    "random-order": "hetplan.solvers.catalog_orders:RandomOrder",
    "genetic": "hetplan.solvers.catalog_genetic:Genetic",
    "annealing": "hetplan.solvers.catalog_annealing:Annealing",
    "gaussian-process": "hetplan.solvers.catalog_gaussian:GaussianProcess",
    "dual": "hetplan.solvers.packing_dual:Dual",
    "dual-core": "hetplan.solvers.packing_exact:DualCore",
    "exact": "hetplan.solvers.packing_exact:Exact",
    "exact-cp-sat": "hetplan.solvers.packing_exact:ExactCpSat",
    "greedy": "hetplan.solvers.packing_greedy:Greedy",
    "greedy-sum": "hetplan.solvers.packing_greedy:GreedySum",
    "greedy-norm": "hetplan.solvers.packing_greedy:GreedyNorm",
    "greedy-max": "hetplan.solvers.packing_greedy:GreedyMax",
    "greedy-l2": "hetplan.solvers.packing_greedy:GreedyL2",
    "greedy-stop": "hetplan.solvers.packing_greedy:GreedyStop",
    "fcfs": "hetplan.solvers.packing_greedy:Fcfs",
    "struct-ci": "hetplan.solvers.search_cmbo:StructCi",
    "struct": "hetplan.solvers.search_cmbo:Struct",
    "cmbo": "hetplan.solvers.search_cmbo:Cmbo",
    "cmbo-ci": "hetplan.solvers.search_cmbo:CmboCi",
    "struct-ci-botorch": "hetplan.solvers.search_botorch:StructCiBotorch",
    "cmbo-botorch": "hetplan.solvers.search_botorch:CmboBotorch",
    "vulcan": "hetplan.solvers.search_baselines:Vulcan",
    "videostorm": "hetplan.solvers.search_baselines:VideoStorm",
    "random-plans": "hetplan.solvers.search_baselines:RandomPlans",
    "priced-columns": "hetplan.solvers.priced_columns:PricedColumns",
}
"""Engines in order of preference within each kind of form."""

CHECKS = {
    "pool": "hetplan.verifier.pool:check",
    "pipeline": "hetplan.verifier.pipeline:check",
    "policy": "hetplan.verifier.policy:check",
    "variants": "hetplan.verifier.variants:check",
    "compound": "hetplan.verifier.compound:check",
}
"""Question -> the verifier's check of its own promise."""

TOOLS = {
    "pipeline": {"simulate": "hetplan.simulator.simulate:simulate"},
    "variants": {"simulate": "hetplan.simulator.simulate:simulate"},
    "pool": {"simulate": "hetplan.simulator.pool_allowable:allowable_rate"},
    "policy": {
        "simulate_policy": "hetplan.simulator.policy:simulate_policy",
        "keep_lines": "hetplan.measure.kept_lines:keep_lines",
    },
}
"""Question -> what it is handed because it may not import it; "simulate" and "evaluate" have fields of their own."""

IMPORTERS = {
    "melange": "hetplan.profiles.imports.melange:convert",
    "aibrix": "hetplan.profiles.imports.melange:convert",
    "perf-analyzer": "hetplan.profiles.imports.perf_analyzer:convert",
    "vllm": "hetplan.profiles.imports.vllm:convert",
}
"""Kind of foreign file -> its converter."""

TARGETS = {
    "local": "hetplan.executor.local:Local",
    "ssh": "hetplan.executor.ssh:SshTarget",
    "kubernetes": "hetplan.executor.kubernetes:Kubernetes",
    "ray": "hetplan.executor.ray:Ray",
}
"""Kind of target in hosts.toml -> the class that runs things there."""

BROKEN_PLUGINS: dict[str, str] = {}
"""Plugins that could not be loaded, and why; filled as they are met."""


def problem_names() -> list[str]:
    """Every question at hand, hetplan's own first."""
    return [*PROBLEMS, *_sound_plugins("problems", PROBLEMS)]


def problem(name: str) -> type[Problem]:
    """The class of a question, by its name or its paper's."""
    wanted = name.lower()
    wanted = ALIASES.get(wanted, wanted)
    found = _find(PROBLEMS, "problems", wanted)
    if found is None:
        raise InputError.one(
            path="question",
            value=name,
            why="there is no such question",
            remedy=f"Choose one of {', '.join(problem_names())}; `hetplan questions` tells what each decides.",
        )
    kind: type[Problem] = found
    return kind


def solvers(form: str | None = None, *, named: Sequence[str | None] = ()) -> list[Solver]:
    """Engines in order of preference, those of one kind of form or all; uninstalled ones refuse by themselves.

    `named` may hold ``pyomo:ENGINE``, for any engine that Pyomo finds on this machine.
    """
    names = [*SOLVERS, *_sound_plugins("solvers", SOLVERS)]
    made: list[Solver] = [_find(SOLVERS, "solvers", name)() for name in names]
    for name in dict.fromkeys(named):
        if name is not None and name.startswith("pyomo:"):
            made.append(import_module("hetplan.solvers.pyomo_bridge").pyomo_with(name.removeprefix("pyomo:")))
    return [engine for engine in made if form is None or engine.form == form]


def check_of(question: str) -> Callable[..., Any] | None:
    """The verifier's check of a question's promise, or None where it has none."""
    found: Callable[..., Any] | None = _find(CHECKS, "checks", question)
    return found


def tools_of(question: str, given: Tools | None = None) -> Tools:
    """What a question is handed: hetplan's own tools, each loaded when first called; what is given comes first."""
    from hetplan.planner.contract import Tools

    own = {name: _on_first_call(where) for name, where in TOOLS.get(question, {}).items()}
    given = given or Tools()
    return Tools(
        simulate=given.simulate or own.pop("simulate", None),
        evaluate=given.evaluate or own.pop("evaluate", None),
        extra={**own, **given.extra},
    )


def _on_first_call(where: str) -> Callable[..., Any]:
    module, _, attribute = where.partition(":")

    def call(*args: Any, **named: Any) -> Any:
        return getattr(import_module(module), attribute)(*args, **named)

    return call


def importers() -> dict[str, Callable[..., Any]]:
    """Converters of foreign files."""
    names = [*IMPORTERS, *_sound_plugins("importers", IMPORTERS)]
    return {name: _find(IMPORTERS, "importers", name) for name in names}


def target(kind: str) -> type[Target]:
    """The class of a kind of target."""
    found = _find(TARGETS, "targets", kind.lower())
    if found is None:
        raise InputError.one(
            file="hosts.toml",
            path="$.targets",
            value=kind,
            why="there is no such kind of target",
            remedy=f"Choose one of {', '.join([*TARGETS, *_sound_plugins('targets', TARGETS)])}.",
        )
    made: type[Target] = found
    return made


def _find(own: dict[str, str], group: str, name: str) -> Any:
    if name in own:
        module, _, attribute = own[name].partition(":")
        return getattr(import_module(module), attribute)
    plugin = _plugins(group).get(name)
    return plugin.load() if plugin is not None else None


def _sound_plugins(group: str, own: dict[str, str]) -> list[str]:
    """The plugins of a group that load; a broken one must not take the rest down (`hetplan doctor` names it)."""
    sound = []
    for name, point in sorted(_plugins(group).items()):
        if name in own:
            continue
        try:
            point.load()
        except Exception as error:
            BROKEN_PLUGINS[f"{group}.{name}"] = f"{type(error).__name__}: {error}"
        else:
            sound.append(name)
    return sound


def _plugins(group: str) -> dict[str, Any]:
    return {point.name: point for point in entry_points(group=f"hetplan.{group}")}
