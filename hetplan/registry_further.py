"""What hetplan is made of besides what plans are made with: importers of files, targets, what is compiled ahead.

It is the end of `registry`, by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.plugins import sound_plugins
from hetplan.registry import find_part, load_part

if TYPE_CHECKING:
    from hetplan.executor.target import Target

__all__ = ["IMPORTERS", "KERNELS", "TARGETS", "compile_ahead", "importers", "target"]

KERNELS = {
    "simulation": "hetplan.simulator.simulation:compile_kernels",
    "pools": "hetplan.simulator.pool:compile_kernels",
    "tokens": "hetplan.simulator.tokens:compile_kernels",
    "policies": "hetplan.solvers.queue_structured:compile_kernels",
    "simulated policies": "hetplan.simulator.policy:compile_kernels",
    "dispatch": "hetplan.dispatch.rules:compile_kernels",
    "large decision processes": "hetplan.solvers.mdp_wide_kernels:compile_kernels",
}
"""What is compiled -> what compiles it ahead."""

IMPORTERS = {
    "melange": "hetplan.profiles.imports.melange:convert",
    "aibrix": "hetplan.profiles.imports.melange:convert",
    "perf-analyzer": "hetplan.profiles.imports.perf_analyzer:convert",
    "skypilot": "hetplan.profiles.imports.skypilot:convert",
    "prices": "hetplan.profiles.imports.skypilot:convert",
    "vllm": "hetplan.profiles.imports.vllm:convert",
    "vllm-law": "hetplan.profiles.imports.serving_laws:vllm",
    "guidellm": "hetplan.profiles.imports.serving_laws:guidellm",
    "inference-perf": "hetplan.profiles.imports.serving_laws:inference_perf",
    "aiconfigurator": "hetplan.profiles.imports.aiconfigurator:convert",
    "datasheet": "hetplan.profiles.imports.datasheet:convert",
    "sageserve": "hetplan.profiles.imports.sageserve:convert",
    "token-trace": "hetplan.profiles.imports.token_traces:convert",
    "trace": "hetplan.profiles.imports.trace:convert",
}
"""Kind of foreign file -> its converter."""

TARGETS = {
    "local": "hetplan.executor.local:Local",
    "ssh": "hetplan.executor.ssh.target:SshTarget",
    "kubernetes": "hetplan.executor.kubernetes.target:Kubernetes",
    "ray": "hetplan.executor.ray:Ray",
}
"""Kind of target in hosts.toml -> the class that runs things there."""


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
            file="hosts.toml",
            path="$.targets",
            value=kind,
            why="there is no such kind of target",
            remedy=f"Choose one of {', '.join([*TARGETS, *sound_plugins('targets', TARGETS)])}.",
        )
    made: type[Target] = found
    return made
