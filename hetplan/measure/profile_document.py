"""From measured cells to profile.json: machines, models and their runs, qualities, fan-outs; where all of it is from.

What profiles have no key for (intervals, outliers, how many runs, whether the stopping rule was met) is under
``extensions.measured``, per machine and model. Prices are nobody's to measure: they belong into another file.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from hetplan.measure.measure_file import MeasuredMachine, MeasuredModel, Wish, points_of
from hetplan.measure.profile_cell import Cell, CellFigures, cores_of_this_process, figures_of
from hetplan.measure.profile_run import Measurements
from hetplan.profiles.canonical import digest
from hetplan.profiles.new_files import model_of, new_profile, without_nothing
from hetplan.profiles.plain_data import whole_if_it_is

__all__ = ["machine_memory_gib", "machine_of", "profile_document"]

_PERCENTILES = ("p50", "p90", "p95", "p99")


def profile_document(wish: Wish, found: Measurements) -> dict[str, Any]:
    """The profile of all cells that were measured; a variant without any is left out."""
    measured = [cell for cell in found.cells if not cell.failed]
    variants = [name for name in wish.models if any(cell.variant == name for cell in measured)]
    hardware = [name for name in wish.machines if any(cell.hardware == name for cell in measured)]
    source_of = {
        name: _source(wish.machines[name], [cell for cell in measured if cell.hardware == name]) for name in hardware
    }
    id_of = {name: f"{name[:40]}-{digest(source)[7:15]}" for name, source in source_of.items()}
    # Where all numbers are of one source, none names it.
    named = id_of if len(id_of) > 1 else {}
    several = {id_of[name]: source for name, source in source_of.items()}
    models, extensions = dict[str, Any](), dict[str, Any]()
    for name in variants:
        models[name], extensions[f"measured.{name}"] = _model(wish, name, found, measured, named)
    return new_profile(
        {"name": next(iter(id_of.values())), **next(iter(source_of.values()))} if len(id_of) == 1 else None,
        sources=several if named else None,
        machines={name: machine_of(wish.machines[name]) for name in hardware},
        metrics={name: _dump(metric) for name, metric in wish.metrics.items()},
        models=models,
        pipelines={name: _pipeline(pipeline, wish, measured) for name, pipeline in wish.pipelines.items()},
        extensions=extensions,
    )


def _model(
    wish: Wish, name: str, found: Measurements, measured: Sequence[Cell], named: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A model with its runs, and what profiles have no key for; `named` has the sources that are to be named."""
    variant = wish.models[name]
    runs, details = [], {}
    for machine in variant.on or tuple(wish.machines):
        cells = [cell for cell in measured if cell.variant == name and cell.hardware == machine]
        if not cells:
            continue
        figures = {_place(cell.point): figures_of(cell.samples_ms, cell.preempted, wish.repeats) for cell in cells}
        source = {"source": named[machine]} if named else {}
        at = dict(variant.at)
        alone = list(variant.axes) == ["batch"] and len(variant.axes["batch"]) == 1
        run: dict[str, Any] = {"load_s": cells[0].load_s, "needs": _needs(wish.machines[machine], cells)}
        run |= {"at": at} if at and not alone else {}
        run |= _columns(variant, figures)
        run |= {"outside": variant.outside} if variant.outside != "refuse" else {}
        run |= {"interval": wish.repeats.confidence, **source}
        run |= _most(variant, figures) if at and not alone else {}
        sizes = {_place(cell.point): cell.bytes_out for cell in cells if cell.bytes_out is not None}
        if sizes:
            run["bytes_out"] = {**_axes(variant), "mean": _grid(variant, sizes), **source}
        runs.append((machine, {key: one for key, one in run.items() if one != {}}))
        details[machine] = _details(cells, figures)
    value = _quality(name, found, measured)
    metric = wish.tasks[variant.task].metric if variant.task in wish.tasks else None
    sha = found.artifacts.get(name)
    model = model_of(
        variant.task,
        name,
        runs,
        family=variant.family,
        quality={metric: value} if metric is not None and value is not None else value,
        quality_source=named[runs[0][0]] if named and value is not None else None,
        artifact={"kind": "onnx", "sha256": sha} if sha is not None else None,
        knobs=dict(variant.knobs),
    )
    if name in found.qualities:
        details["quality"] = found.qualities[name].as_dict()
    return model, details


def _columns(variant: MeasuredModel, figures: Mapping[tuple[float, ...], CellFigures]) -> dict[str, Any]:
    def grid(pick: Any) -> Any:
        return _grid(variant, {place: pick(found) for place, found in figures.items()})

    columns = _axes(variant)
    columns |= {"mean_ms": grid(lambda found: found.mean), "std_ms": grid(lambda found: found.std)}
    for name in _PERCENTILES:
        columns[f"{name}_ms"] = grid(lambda found, name=name: found.percentiles[name])
    return columns | {"max_ms": grid(lambda found: found.max), "samples": grid(lambda found: found.runs)}


def _axes(variant: MeasuredModel) -> dict[str, Any]:
    axes = {name: [whole_if_it_is(value) for value in variant.axes[name]] for name in sorted(variant.axes)}
    return axes if list(axes) == ["batch"] else {"axes": axes}


def _grid(variant: MeasuredModel, cells: Mapping[tuple[float, ...], Any]) -> Any:
    """One level of lists per axis, in alphabetical order of the axes; null where nothing was measured."""
    flat = [cells.get(_place(point)) for point in points_of(variant.axes)]
    for name in sorted(variant.axes, reverse=True)[:-1]:
        size = len(variant.axes[name])
        flat = [flat[first : first + size] for first in range(0, len(flat), size)]
    return flat if variant.axes else flat[0]


def _place(point: Mapping[str, float]) -> tuple[float, ...]:
    return tuple(float(point[name]) for name in sorted(point))


def _most(variant: MeasuredModel, figures: Mapping[tuple[float, ...], CellFigures]) -> dict[str, float]:
    found = figures.get(_place(variant.at))
    if found is None:
        return {}
    return {"max_qps": float(f"{1000.0 * variant.at.get('batch', 1.0) / found.mean:.6g}")}


def _needs(machine: MeasuredMachine, cells: Sequence[Cell]) -> dict[str, float]:
    """What a run needs of what its hardware provides; what that does not state cannot be asked of it."""
    needs: dict[str, float] = {}
    if machine.provider == "cpu":
        needs["cpu_cores"] = machine.threads
    for cell in cells:
        for name, amount in (cell.memory_gib or {}).items():
            if amount > 0:
                needs[name] = max(needs.get(name, 0.0), float(f"{amount:.3g}"))
    provided = machine_of(machine).get("provides", {})
    return {name: amount for name, amount in needs.items() if name in provided}


def machine_of(machine: MeasuredMachine) -> dict[str, Any]:
    """The machine type that was measured, as a profile file has it."""
    provides = dict(machine.provides)
    if not provides and machine.kind == "cpu":
        # A worker is as many cores as the model was measured on, with their part of the memory.
        share = machine.threads / max(len(cores_of_this_process()) or os.cpu_count() or 1, machine.threads)
        provides = {"cpu_cores": float(machine.threads), "mem_gib": float(f"{share * machine_memory_gib():.3g}")}
    kind = machine.kind if machine.kind != ("gpu" if provides.get("gpu") else "cpu") else None
    more = {"startup_s": machine.startup_s, "provides": provides, "tier": machine.tier}
    return without_nothing({"kind": kind, **more, "relative_time": machine.relative_time})


def _details(cells: Sequence[Cell], figures: Mapping[tuple[float, ...], CellFigures]) -> dict[str, Any]:
    """What the tables have no place for, cell by cell."""
    listed = []
    for cell in cells:
        said = {"at": dict(cell.point), **figures[_place(cell.point)].as_dict()}
        for key in ("waited", "cpu_ms", "beside_ms", "rate_qps"):
            if (value := getattr(cell, key)) is not None:
                said[key] = value
        if cell.stolen:
            said["stolen"] = cell.stolen
        if cell.operators_ms:
            said["operators_ms"] = dict(cell.operators_ms)
        if cell.fanout is not None:
            said["fanout"] = cell.fanout
        listed.append(said)
    return {"cells": listed}


def _quality(name: str, found: Measurements, measured: Sequence[Cell]) -> float | None:
    if name in found.qualities:
        return found.qualities[name].value
    scores = [(cell.score, len(cell.samples_ms)) for cell in measured if cell.variant == name]
    known = [(score, count) for score, count in scores if score is not None]
    if not known:
        return None
    return float(f"{sum(score * count for score, count in known) / sum(count for _, count in known):.6g}")


def _pipeline(pipeline: Mapping[str, Any], wish: Wish, measured: Sequence[Cell]) -> dict[str, Any]:
    """The pipeline with measured fan-outs and bytes on the edges out of each task, where the file states none."""
    edges = []
    for edge in pipeline.get("edges", ()):
        task = _task_of(pipeline, edge["from"])
        mine = [cell for cell in measured if wish.models[cell.variant].task == task] if task else []
        said = dict(edge)
        fanouts = {name: _average(mine, name, "fanout") for name in dict.fromkeys(cell.variant for cell in mine)}
        known = {name: value for name, value in fanouts.items() if value is not None}
        if known and "fanout" not in edge:
            said["fanout"] = {**known, "*": float(f"{sum(known.values()) / len(known):.6g}")}
        sizes = [size for cell in mine if cell.point.get("batch", 1.0) == 1.0 and (size := cell.bytes_out) is not None]
        if sizes and "bytes" not in edge:
            said["bytes"] = max(sizes)
        edges.append(said)
    return {**pipeline, "edges": edges}


def _task_of(pipeline: Mapping[str, Any], stage: str) -> str | None:
    """What a stage does: by default its id, in a pipeline of models."""
    said = pipeline.get("stages", {}).get(stage, {})
    of_models = not any(pipeline.get(key) for key in ("knobs", "space", "evaluator")) and "resource" not in said
    task: str | None = said.get("task", stage if of_models else None)
    return task


def _average(cells: Sequence[Cell], variant: str, what: str) -> float | None:
    found = [getattr(cell, what) for cell in cells if cell.variant == variant and getattr(cell, what) is not None]
    return float(f"{sum(found) / len(found):.6g}") if found else None


def _source(machine: MeasuredMachine, cells: Sequence[Cell]) -> dict[str, Any]:
    from importlib.metadata import version

    versions = ", ".join(
        f"{name} {value}" for name, value in sorted({pair for cell in cells for pair in cell.versions.items()})
    )
    tool = f"hetplan {version('hetplan')} profile, python {platform.python_version()}"
    pinned = f"pinned to {machine.threads} of its cores" if machine.pin else "not pinned"
    cores = len(cores_of_this_process()) or os.cpu_count() or 1
    where = f"{_processor()}, {cores} cores, {platform.system()} {platform.machine()}"
    return {
        "kind": "measured",
        "tool": f"{tool}, {versions}" if versions else tool,
        "date": max(cell.date for cell in cells),
        "note": f"{where}; {machine.threads} thread{'s' if machine.threads > 1 else ''}, {pinned}{_ways(cells)}",
    }


def _ways(cells: Sequence[Cell]) -> str:
    """Whether the times are those behind a router."""
    routed = sorted({cell.variant for cell in cells if cell.through})
    if not routed:
        return ""
    whole = len(routed) == len({cell.variant for cell in cells})
    return f"; {'' if whole else ', '.join(routed) + ' '}measured through a router, inputs included"


def _processor() -> str:
    """The model of the processor; no name of this machine."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_memory_gib() -> float:
    """All memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError, AttributeError):
        return 0.0


def _dump(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = model.model_dump(mode="json", exclude_unset=True)
    return found


def _id(text: str) -> str:
    """An id of at most 63 characters, the last of them telling long ones apart."""
    return text if len(text) <= 63 else f"{text[:54]}-{digest(text)[7:15]}"
