"""`hetplan doctor`: what is installed, what clashes, how to mend it; what is compiled; which GPUs there are."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from hetplan.cli.arguments import AsJson
from hetplan.cli.output import Exit, Output

__all__ = ["clashes", "doctor"]


@dataclass(frozen=True)
class _Package:
    name: str
    module: str
    purpose: str
    extra: str
    """The extra that brings it; "" for what hetplan always needs."""


_PACKAGES = (
    _Package("numpy", "numpy", "arrays", ""),
    _Package("scipy", "scipy", "sparse matrices, linear algebra", ""),
    _Package("highspy", "highspy", "the default MILP and LP engine", ""),
    _Package("pydantic", "pydantic", "reading and checking files", ""),
    _Package("typer", "typer", "this command line", ""),
    _Package("rich", "rich", "tables on a terminal", ""),
    _Package("numba", "numba", "compiled simulation and policy kernels", ""),
    _Package("ortools", "ortools", "CP-SAT, SCIP and GLOP: second opinions", "ortools"),
    _Package("pyomo", "pyomo", "bridge to every other MILP engine", "pyomo"),
    _Package("torch", "torch", "Bayesian optimisation", "bayes"),
    _Package("botorch", "botorch", "Bayesian optimisation", "bayes"),
    _Package("gpytorch", "gpytorch", "Bayesian optimisation", "bayes"),
    _Package("starlette", "starlette", "the server of `hetplan desk`", "desk"),
    _Package("uvicorn", "uvicorn", "the same", "desk"),
    _Package("mcp", "mcp", "a server for agents", "mcp"),
    _Package("onnxruntime", "onnxruntime", "the embedded model server", "serve"),
)

TwoOf = Annotated[bool, typer.Option("--try", help="Also import each installed package, each in a fresh process.")]


Compile = Annotated[
    bool, typer.Option("--compile", help="Compile the simulator now, so that the first simulation need not wait.")
]


Gpus = Annotated[bool, typer.Option("--gpus", help="Print only the GPUs of this machine: memory, MIG slices, MPS.")]
Recorded = Annotated[
    Path | None, typer.Option("--record", help="With --gpus: also write the list to this file, for settings.gpu_list.")
]


def doctor(
    try_imports: TwoOf = False, compile_ahead: Compile = False, gpus: Gpus = False, record: Recorded = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Check this installation.

    Prints missing and conflicting packages with their remedies, and the folder of compiled code. Exit 1 if a needed
    package is missing or conflicts.
    """
    with Output("doctor", as_json=as_json) as out:
        if gpus or record is not None:
            _show_gpus(out, record)
            return
        if compile_ahead:
            _compile_all(out)
        versions = {package.name: _version(package.name) for package in _PACKAGES}
        rows, faults = [], clashes(versions, python=sys.version_info[:2], wanted=_wanted())
        for package in _PACKAGES:
            version = versions[package.name]
            state = _state(package, version)
            if version is not None and try_imports and (broken := _import_fault(package.module)):
                state = f"does not import: {broken}"
                faults.append(
                    (f"{package.name} {version} does not import", f"pip install --force-reinstall {package.name}")
                )
            rows.append((package.name, version or "-", package.extra or "core", package.purpose, state))
            row = {"name": package.name, "version": version, "extra": package.extra or None, "state": state}
            out.send({"package": row})
        out.people.line(f"hetplan {_version('hetplan') or '(not installed)'} on Python {sys.version.split()[0]}")
        out.people.table(("package", "version", "part of", "for", "state"), rows)
        _show_plugins(out, faults)
        _show_cache(out)
        _tell_faults(out, faults)


def _compile_all(out: Output) -> None:
    from hetplan.registry import KERNELS, compile_ahead

    for number, name in enumerate(KERNELS, 1):
        began = time.monotonic()
        out.note(f"{number} of {len(KERNELS)}: compiling {name}")
        compile_ahead(name)
        out.send({"event": {"what": "compile", "detail": name, "seconds": round(time.monotonic() - began, 3)}})


def _show_gpus(out: Output, record: Path | None) -> None:
    """The GPUs as placement sees them; exit 1 where there are none."""
    from hetplan.executor.gpus import read_gpus
    from hetplan.executor.shares import LocalMeans

    listed = read_gpus()
    if listed is None:
        why = "nvidia-smi is not here or does not answer: no GPU of this machine is known"
        out.warn(why, kind="error")
        out.end(Exit.FAULT, why)
        return
    rows = []
    for gpu in listed.gpus:
        mode = "divided by MIG" if gpu.mig_mode else "whole"
        rows.append((str(gpu.index), gpu.uuid, gpu.name, f"{gpu.mem_gib:.1f}", mode))
        rows += [("", part.uuid, part.profile, "", "slice") for part in gpu.mig]
        out.send({"gpu": gpu.model_dump(mode="json")})
    out.people.table(("index", "id", "name", "GiB", "is"), rows)
    means = LocalMeans()
    daemon = "listens" if means.has_mps else "does not listen"
    out.people.line(f"the control daemon of MPS {daemon} at {means.mps_pipe}")
    out.send({"mps": {"pipe": str(means.mps_pipe), "listens": means.has_mps}})
    if record is not None:
        record.write_text(listed.model_dump_json(indent=1) + "\n")
        out.note(f"written to {record}")
    out.end(Exit.OK if listed.gpus else Exit.FAULT, f"{len(listed.gpus)} GPUs")


def _show_plugins(out: Output, faults: list[tuple[str, str]]) -> None:
    """What other packages bring, and which of it does not load."""
    from hetplan.registry.entry_points import GROUPS, broken_plugin, plugins

    for group in GROUPS:
        for name, point in sorted(plugins(group).items()):
            why, package = broken_plugin(point), point.dist.name if point.dist is not None else point.module
            out.people.line(f"plugin {name} of {package} ({group}): {why or 'loads'}")
            out.send({"plugin": {"group": group, "name": name, "package": package, "fault": why or None}})
            if why:
                remedy = f"pip install --upgrade {package}, or uninstall it"
                faults.append((f"{name}, a plugin of {package} ({group}), does not load: {why}", remedy))


def _show_cache(out: Output) -> None:
    from hetplan.compiled import cache_folder, cache_size

    folder, size = cache_folder(), cache_size()
    out.people.line()
    if folder is None:
        out.people.line("compiled code: no folder for it is writable, so every process compiles again")
    else:
        out.people.line(f"compiled code: {size / 1e6:.1f} MB in {folder}")
    out.send({"compiled": {"folder": folder, "bytes": size}})


def _tell_faults(out: Output, faults: list[tuple[str, str]]) -> None:
    out.people.line()
    for fault, remedy in faults:
        out.people.line(f"problem: {fault}")
        out.people.line(f"   mend: {remedy}")
    problems = [{"fault": fault, "remedy": remedy} for fault, remedy in faults]
    if faults:
        out.end(Exit.FAULT, f"{len(faults)} problem{'' if len(faults) == 1 else 's'}", problems=problems)
    else:
        out.people.line("all is well")
        out.end(Exit.OK, "all is well", problems=problems)


def clashes(
    versions: Mapping[str, str | None], *, python: tuple[int, ...], wanted: Mapping[str, str]
) -> list[tuple[str, str]]:
    """What cannot work together, each with how to mend it; `wanted` are the version ranges that hetplan asks for.

    >>> clashes({"highspy": "1.15.1", "ortools": "9.15"}, python=(3, 12), wanted={"highspy": ">=1.12,<1.14"})[0][1]
    "pip install 'highspy>=1.12,<1.14'"
    """
    found = []
    if python < (3, 11):
        found.append((f"Python {'.'.join(map(str, python))} is too old", "use Python 3.11 or newer"))
    for package in _PACKAGES:
        version, span = versions.get(package.name), wanted.get(package.name, "")
        remedy = f"pip install '{package.name}{span}'"
        if version is None and package.name in versions and not package.extra:
            found.append((f"{package.name} is missing", remedy))
        elif version is not None and not _within(version, span):
            found.append((f"{package.name} {version} is outside what hetplan works with ({span})", remedy))
    highspy = versions.get("highspy")
    if highspy and not _within(highspy, "!=1.15.*") and versions.get("ortools"):
        fault = f"highspy {highspy} and ortools cannot share a process: both load a library named libhighs.so.1"
        found.append((fault, f"pip install 'highspy{wanted.get('highspy', '!=1.15.*')}'"))
    return found


def _wanted() -> dict[str, str]:
    """The version range per package in hetplan's own metadata: one place, `pyproject.toml`, says them."""
    from importlib import metadata

    ranges = {}
    for requirement in metadata.requires("hetplan") or []:
        matched = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)", requirement)
        if matched is not None:
            ranges[matched[1].lower()] = matched[2].strip()
    return ranges


def _within(version: str, span: str) -> bool:
    """Whether a version lies in a range of the kinds used here: ``>=``, ``<``, ``!=`` and ``!=`` of a whole series.

    >>> [_within("1.15.2", span) for span in ("!=1.15.*", "!=1.15.0", ">=1.13,<1.17")]
    [False, True, True]
    """
    number = _numbers(version)
    for sign, limit, series in re.findall(r"(>=|<|!=)\s*([0-9.]*[0-9])(\.\*)?", span):
        edge = _numbers(limit)
        cut = number[: len(edge)]
        if {">=": cut < edge, "<": cut >= edge, "!=": (cut if series else number) == edge}[sign]:
            return False
    return True


def _state(package: _Package, version: str | None) -> str:
    if version is not None:
        return "ok"
    return f"optional: pip install 'hetplan[{package.extra}]'" if package.extra else "missing"


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _import_fault(module: str) -> str:
    import subprocess

    ran = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True, check=False)
    lines = ran.stderr.strip().splitlines()
    return "" if ran.returncode == 0 else (lines[-1] if lines else f"exit {ran.returncode}")
