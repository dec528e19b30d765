"""Measuring all that a `Wish` asks for, cell by cell; what is in the journal already is not measured again."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from hetplan.errors import InputError
from hetplan.measure.journal import CellJournal
from hetplan.measure.profile_cell import Cell, cores_of_this_process, measure_cell, memory_in_use_gib, pinned
from hetplan.measure.profile_figures import figures_of
from hetplan.measure.profile_quality import MeasuredQuality, as_quality, quality_of
from hetplan.measure.profile_subject import MeasurementFailed, Subject, subject_of
from hetplan.measure.profile_wish import MeasuredHardware, MeasuredVariant, Wish
from hetplan.planner.contract import Event
from hetplan.profiles.canonical import digest

__all__ = ["Measurements", "measure"]

OnEvent = Callable[[Event], None]


@dataclass
class Measurements:
    """What was found: cells, qualities by variant, hashes of model files, what failed."""

    cells: list[Cell] = field(default_factory=list)
    qualities: dict[str, MeasuredQuality] = field(default_factory=dict)
    artifacts: dict[str, str] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)
    resumed: int = 0
    complete: bool = True

    def warnings(self) -> list[tuple[str, str, str]]:
        """(code, where, text) of all that could not be measured."""
        return [("W-not-measured", where, why) for where, why in self.failed]


def measure(
    wish: Wish,
    folder: Path,
    *,
    journal: CellJournal | None = None,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
) -> Measurements:
    """Measure every cell; with `cancel` set, hand over those that are done."""
    run = _Run(wish, folder, journal or CellJournal(), on_event or (lambda _event: None), cancel or threading.Event())
    for (name, hardware), cells in groupby(wish.cells(), key=lambda cell: cell[:2]):
        run.group(name, hardware, [point for _, _, point in cells])
    return run.found


class _Run:
    """One pass over the wish."""

    def __init__(
        self, wish: Wish, folder: Path, journal: CellJournal, on_event: OnEvent, cancel: threading.Event
    ) -> None:
        self.wish, self.folder, self.journal, self.on_event, self.cancel = wish, folder, journal, on_event, cancel
        self.found = Measurements()
        self.total = sum(1 for _ in wish.cells())
        self.began = time.monotonic()

    def group(self, name: str, hardware: str, points: list[Mapping[str, float]]) -> None:
        """All cells of a variant on some hardware: the model is loaded once, and only if something is missing."""
        variant, machine = self.wish.variants[name], self.wish.hardware[hardware]
        of = self._identity(name, variant, machine)
        known = {_key(point): self._known(name, hardware, point, of) for point in points}
        wants_quality = variant.quality is not None and name not in self.found.qualities
        if wants_quality and (held := self.journal.get({"variant": name, "model": of, "quality": True})) is not None:
            self.found.qualities[name] = as_quality(held)
            wants_quality = False
        if all(cell is not None for cell in known.values()) and not wants_quality:
            for cell in known.values():
                assert cell is not None
                self._take(cell, resumed=True)
            return
        if self.cancel.is_set():
            self.found.complete = False
            for cell in known.values():
                if cell is not None:
                    self._take(cell, resumed=True)
            return
        with pinned(_cores(machine, hardware)):
            self._measure(name, hardware, points, known, of, wants_quality=wants_quality)

    def _measure(
        self,
        name: str,
        hardware: str,
        points: list[Mapping[str, float]],
        known: Mapping[str, Cell | None],
        of: str,
        *,
        wants_quality: bool,
    ) -> None:
        variant = self.wish.variants[name]
        subject: Subject | None = None
        try:
            subject = subject_of(name, variant, self.wish.hardware[hardware], self.folder)
            before_gib = memory_in_use_gib(tidy=True)
            began = time.perf_counter()
            subject.load()
            load_s = float(f"{time.perf_counter() - began:.4g}")
            if wants_quality:
                self._quality(name, variant, subject, of)
            for point in points:
                held = known[_key(point)]
                if held is not None:
                    self._take(held, resumed=True)
                    continue
                if self.cancel.is_set():
                    self.found.complete = False
                    continue
                self._tell(f"{name} on {hardware} at {_shown(point)}")
                begun = Cell(name, hardware, point, load_s=load_s, versions=subject.versions())
                cell = measure_cell(subject, begun, self.wish.repeats, cancel=self.cancel, memory_before_gib=before_gib)
                if cell is None:
                    self.found.complete = False
                    continue
                if not cell.failed:
                    self.journal.add(_cell_key(name, hardware, point, of), cell.as_line())
                self._take(cell)
        except MeasurementFailed as error:
            self.found.failed.append((f"{name} on {hardware}", str(error)))
        finally:
            if subject is not None:
                subject.close()

    def _quality(self, name: str, variant: MeasuredVariant, subject: Subject, of: str) -> None:
        self._tell(f"quality of {name}")
        batch = int(max(variant.axes.get("batch", (1.0,))))
        try:
            quality = quality_of(subject, self.folder / (variant.quality or ""), variant.score, batch=batch)
        except MeasurementFailed as error:
            self.found.failed.append((f"quality of {name}", str(error)))
            return
        self.found.qualities[name] = quality
        self.journal.add({"variant": name, "model": of, "quality": True}, quality.as_dict())

    def _take(self, cell: Cell, *, resumed: bool = False) -> None:
        self.found.cells.append(cell)
        self.found.resumed += resumed
        where = f"{cell.variant} on {cell.hardware} at {_shown(cell.point)}"
        if cell.failed:
            self.found.failed.append((where, cell.failed))
            return
        if not resumed:
            figures = figures_of(cell.samples_ms, cell.preempted, self.wish.repeats)
            self._tell(f"{where}: {figures.runs} runs", value=figures.percentiles["p50"])

    def _tell(self, detail: str, *, value: float | None = None) -> None:
        done = len(self.found.cells) / self.total
        seconds = time.monotonic() - self.began
        self.on_event(Event("profile", detail, value=value, done=done, seconds=seconds))

    def _known(self, name: str, hardware: str, point: Mapping[str, float], of: str) -> Cell | None:
        line = self.journal.get(_cell_key(name, hardware, point, of))
        return None if line is None else Cell.of_line(name, hardware, point, line)

    def _identity(self, name: str, variant: MeasuredVariant, machine: MeasuredHardware) -> str:
        """What a measurement is of: the variant but for its axes, its files, the machine, the rule."""
        content: dict[str, Any] = variant.model_dump(mode="json", exclude={"axes", "at", "outside"})
        for key in ("onnx", "quality", "body"):
            if content[key] is not None:
                content[key] = hashlib.sha256((self.folder / content[key]).read_bytes()).hexdigest()
        if variant.onnx is not None:
            self.found.artifacts[name] = content["onnx"]
        told = {"variant": content, "hardware": machine.model_dump(mode="json")}
        told["rule"] = self.wish.repeats.model_dump(mode="json")
        return digest(told)[len("sha256:") :][:16]


def _cores(machine: MeasuredHardware, name: str) -> tuple[int, ...]:
    here = cores_of_this_process()
    if not machine.pin or not here:
        return ()
    wanted = machine.cores or here[: machine.threads]
    if len(wanted) < machine.threads or not set(wanted) <= set(here):
        raise InputError.one(
            file="measure.toml",
            path=f"$.hardware.{name}.{'cores' if machine.cores else 'threads'}",
            value=list(machine.cores) or machine.threads,
            why=f"this process may use the cores {', '.join(map(str, here))}",
            remedy="Name some of these, or fewer threads, or set pin = false.",
        )
    return wanted


def _cell_key(variant: str, hardware: str, point: Mapping[str, float], of: str) -> dict[str, Any]:
    return {"variant": variant, "model": of, "hardware": hardware, "at": dict(point)}


def _key(point: Mapping[str, float]) -> str:
    return ",".join(f"{axis}={value:g}" for axis, value in point.items())


def _shown(point: Mapping[str, float]) -> str:
    return ", ".join(f"{axis} {value:g}" for axis, value in point.items()) or "its only point"
