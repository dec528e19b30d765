"""Benchmarks of servers that make text: runs become rates with what was measured at them, or the law of an engine.

`convert` keeps every run as an operating point of a table of rates: under limits a machine counts at a run that keeps
them, and what a run does not say stays unchecked. `convert_laws` fits the law of nine numbers to the same runs.
Files or a folder of one tool are one import. What reports seldom say is asked for: `--set hardware=h200x8`, `gpus=`,
`model=`, `price_per_hour=`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.profiles.cards import card_of_text, room_for, stated_rooms
from hetplan.profiles.csv_rows import as_id
from hetplan.profiles.imports.runs import Run, check_run
from hetplan.profiles.imports.sweep_law import MODELLED, fit_sweep
from hetplan.profiles.imports.sweep_readers import runs_of_file
from hetplan.profiles.imports.words import count_of, digits, id_of, refuse
from hetplan.profiles.new_files import engine_run, model_of, new_profile, price_of

__all__ = ["convert", "convert_laws", "read_runs"]

Paths = str | os.PathLike[str] | Sequence[Path]
_ENDINGS = (".json", ".jsonl", ".csv", ".yaml", ".yml")
_AXES = ("input_tokens", "output_tokens")


def read_runs(paths: Paths, *, hardware: str = "", gpus: int | None = None, model: str = "") -> list[Run]:
    """The runs of files and folders, each of them possible by its own figures."""
    found: list[Run] = []
    files = list(_files(paths))
    for file in files:
        for run in runs_of_file(file):
            check_run(run, str(file))
            place = run.place if len(files) == 1 else f"{file.name} {run.place}"
            found.append(replace(run, place=place))
    if not found:
        name = os.fspath(paths) if isinstance(paths, str | os.PathLike) else str(paths[0] if paths else "")
        refuse(name, "$", "no run", "results of at least one run", "Give a report that is not empty.")
    count = count_of(gpus, "gpus", "--set") if gpus is not None else None
    return [_named(run, hardware, count, model) for run in found]


def _named(run: Run, hardware: str, gpus: int | None, model: str) -> Run:
    """The run by the ids of a profile; what was said counts more than what a report says."""
    machine = hardware or run.hardware
    card = card_of_text(machine) if machine else None
    many = gpus or (card[1] if card is not None and (hardware or run.gpus == 1) else run.gpus)
    return replace(
        run, model=id_of((model or run.model).rsplit("/", 1)[-1], "model"), hardware=id_of(machine, "server"), gpus=many
    )  # fmt: skip


def _files(paths: Paths) -> Iterator[Path]:
    """The reports among these; of a folder those of its files that are some, stages and not what sums them up."""
    for path in [Path(paths)] if isinstance(paths, str | os.PathLike) else paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(one for one in path.rglob("*") if one.suffix.lower() in _ENDINGS and one.is_file())
        if any(one.name.startswith("stage_") for one in inside):
            inside = [one for one in inside if one.name.startswith("stage_")]
        if not inside:
            refuse(str(path), "", "no file", "reports of a benchmark", "Give the folder that holds them.")
        yield from inside


# Rates


def convert(
    paths: Paths, *, hardware: str = "", gpus: int | None = None, model: str = "", price_per_hour: str = ""
) -> tuple[dict[str, Any], None]:  # fmt: skip
    """The profile of some reports: tables of rates by tokens in and out, every run an operating point."""
    runs = read_runs(paths, hardware=hardware, gpus=gpus, model=model)
    machines: dict[str, Any] = {}
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    groups: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.model, run.hardware, run.gpus), []).append(run)
    for (variant, machine, count), mine in groups.items():
        _machine(machines, machine, count, price_per_hour)
        sizes = sorted({_size(run) for run in mine})
        axes = [sorted({size[place] for size in sizes}) for place in (0, 1)]
        best = {size: max(run.rate_qps for run in mine if _size(run) == size) for size in sizes}
        points = [
            {
                "at": dict(zip(_AXES, _size(run), strict=True)),
                "rate_qps": digits(run.rate_qps, 9),
                "given": run.given,
            }
            for run in sorted(mine, key=_size)
        ]
        rates = {
            "needs": {"gpu": count},
            "axes": dict(zip(_AXES, axes, strict=True)),
            "mean_qps": [[_digits(best.get((first, second))) for second in axes[1]] for first in axes[0]],
            "points": points,
        }
        found.setdefault(variant, []).append((machine, rates))
    models = {name: model_of(name, name, several) for name, several in found.items()}
    return new_profile(_source(runs), machines=machines, models=models), None


def _size(run: Run) -> tuple[int, int]:
    return max(round(run.input_tokens), 1), max(round(run.output_tokens), 1)


def _digits(value: float | None) -> float | None:
    return None if value is None else digits(value, 9)


def _source(runs: Sequence[Run], missed: str = "") -> dict[str, Any]:
    tools = ", ".join(dict.fromkeys(run.tool for run in runs))
    notes = [f"{run.place}: {run.unsteady}, so its times refute limits and keep none" for run in runs if run.unsteady]
    if any(run.tool == MODELLED for run in runs):
        notes.insert(0, f"{MODELLED}: it adds up kernels: nothing was measured on an engine")
    more = f" and {len(notes) - 3} more" if len(notes) > 3 else ""
    note = "; ".join(filter(None, ("; ".join(notes[:3]) + more, missed)))
    return {"name": "import", "kind": "imported", "tool": tools, **({"note": note} if note else {})}


def _machine(machines: dict[str, Any], name: str, gpus: int, price: str) -> None:
    machine = machines.setdefault(name, {"provides": {"gpu": gpus}})
    machine["provides"]["gpu"] = max(machine["provides"]["gpu"], gpus)
    if price:
        machine["price_per_hour"] = price_of(price)


# Laws


def convert_laws(
    paths: Paths, *, hardware: str = "", gpus: int | None = None, model: str = "", price_per_hour: str = "",
    kv_tokens: int | str | None = None, most_tokens: int | None = None, most_seqs: int | None = None,
) -> tuple[dict[str, Any], None]:  # fmt: skip
    """The profile of some reports: a law of nine numbers for each model on each machine."""
    runs, rooms = read_runs(paths, hardware=hardware, gpus=gpus, model=model), stated_rooms(kv_tokens)
    said = {"max_tokens": most_tokens, "max_seqs": most_seqs}
    limits = {
        name: count_of(value, name.replace("max", "most"), "--set") for name, value in said.items() if value is not None
    }
    machines: dict[str, Any] = {}
    found: dict[str, tuple[str, list[tuple[str, dict[str, Any]]]]] = {}
    file = os.fspath(paths) if isinstance(paths, str | os.PathLike) else ", ".join(map(str, paths))
    groups: dict[tuple[str, str, int, str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.model, run.hardware, run.gpus, run.engine, run.label), []).append(run)
    faults: list[Fault] = []
    for (variant, machine, count, engine, label), mine in groups.items():
        hardware_id = machine if count == 1 or card_many(machine) == count else f"{machine}-x{count}"
        apart = id_of("-".join(filter(None, (engine, label))), "") if engine or label else ""
        name = as_id("-".join(filter(None, (variant, hardware_id, apart))))
        try:
            engine_said, seen = fit_sweep(mine, file)
            held = seen["kv_tokens"]
            room = room_for(name, variant, machine, count, said=rooms, held=held, file=file)
        except InputError as error:
            faults += error.faults
            continue
        _machine(machines, hardware_id, count, price_per_hour)
        least = {"max_tokens": max(8192, seen["sequences"]), "max_seqs": max(256, seen["sequences"])}
        engine_said |= {**room, "tensor": count, **least, **limits}
        alone = sum(one[:3] == (variant, machine, count) for one in groups) == 1
        own = variant if alone else as_id("-".join(filter(None, (variant, apart))))
        found.setdefault(own, (variant, []))[1].append((hardware_id, engine_run(**engine_said)))
    if faults and not found:
        raise InputError(faults)
    missed = (
        f"{len(faults)} of {len(groups)} sweeps say too little, or what no law fits: {faults[0].why}" if faults else ""
    )
    models = {name: model_of(task, name, several) for name, (task, several) in found.items()}
    return new_profile(_source(runs, missed), machines=machines, models=models), None


def card_many(name: str) -> int:
    """How many GPUs the name of a machine says."""
    found = card_of_text(name)
    return found[1] if found is not None else 0
