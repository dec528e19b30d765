"""Twenty fixed commands whose output stands for what users see: a fault that changes none of it is no fault of theirs.

`benchmarks/mutation_score.py --net` plants faults in the lines that these run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from build import example, tiny
from face import FLUID, command

__all__ = ["golden_commands"]


def golden_commands(folder: Path) -> dict[str, Callable[[], str]]:
    """Each command by what it does, to be run in this order: later ones read what earlier ones wrote."""
    return dict(_commands(folder))


def _commands(folder: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    plan = str(folder / "pool.plan")
    given = {}
    for name in ("pool", "variants", "pipeline", "llm", "fleet"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        given[name] = tiny(name).write(folder / name)
        written = ("-o", str(folder / f"{name}.plan"))
        yield f"solve {name} at fluid rates", _run("solve", *given[name], *FLUID, *written)
    (folder / "rate").mkdir(exist_ok=True)
    rate, written = example("compound-rate").write(folder / "rate"), ("-o", str(folder / "rate.plan"))
    yield "solve compound", _run("solve", *rate, *FLUID, *written)
    for name in ("pool", "llm"):
        yield f"solve {name} by simulation", _run("solve", *given[name], "-o", str(folder / f"{name}.plan"))
    for name in ("pool", "llm", "fleet"):
        yield f"verify {name}", _run("verify", str(folder / f"{name}.plan"), *given[name])
    yield "simulate", _run("simulate", plan, *given["pool"], "--seeds", "2")
    yield "show", _run("show", plan)
    yield "explain", _run("explain", plan, *given["pool"])
    yield "report", _run("report", plan, *given["pool"], "-o", str(folder / "report.html"))
    yield "bill", _run("show", str(folder / "fleet.plan"), "--view", "bill")
    yield "check", _run("check", *given["pool"])
    yield "whatif", _run("whatif", *given["variants"], "--vary", "rate=300:600:3", *FLUID)
    yield "render", _run("render", *given["pool"], "--to", "lp")
    yield "diff", _run("diff", plan, plan)


def _run(*arguments: str) -> Callable[[], str]:
    def run() -> str:
        ran = command(*arguments)
        files = [Path(one) for at, one in enumerate(arguments) if at and arguments[at - 1] == "-o"]
        return "\n".join([str(ran.code), ran.out, ran.err, *(one.read_text() for one in files if one.exists())])

    return run
