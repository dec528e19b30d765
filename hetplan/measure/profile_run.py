"""Measuring all that a `Wish` asks for, cell by cell; what is in the journal already is not measured again.

Quality is measured on a labelled set: an .npz file whose array `labels` says what is right for the others'
samples.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.measure.journal import CellJournal
from hetplan.measure.measure_file import MeasuredMachine, MeasuredModel, Wish
from hetplan.measure.profile_cell import (
    MUCH_WAITED,
    Cell,
    cores_of_this_process,
    figures_of,
    measure_cell,
    memory_in_use_gib,
    pin_cores,
)
from hetplan.measure.profile_models import (
    CallableModel,
    CommandModel,
    HttpEndpoint,
    MeasurementFailed,
    Subject,
    named_function,
)
from hetplan.planner.contract import Event
from hetplan.profiles.canonical import digest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hetplan.measure.profile_router import Serve

__all__ = [
    "MeasuredQuality",
    "Measurements",
    "OnEvent",
    "as_quality",
    "identities",
    "measure",
    "quality_of",
    "read_labelled",
    "top1",
]


@dataclass(frozen=True)
class MeasuredQuality:
    """The mean score of the samples, and its 95% interval."""

    value: float
    interval: tuple[float, float]
    samples: int

    def as_dict(self) -> dict[str, Any]:
        """For the journal and the profile's extensions."""
        return {**asdict(self), "interval": list(self.interval)}


def top1(outputs: Any, labels: Any) -> NDArray[np.float64]:
    """Whether the highest output of each sample is its label.

    >>> top1([[0.1, 0.9], [0.8, 0.2]], [1, 1]).tolist()
    [1.0, 0.0]
    """
    import numpy as np

    found = np.asarray(outputs)
    best = found.reshape(len(found), -1).argmax(axis=1)
    return np.asarray(best == np.asarray(labels).reshape(-1), dtype=np.float64)


def quality_of(subject: Subject, file: Path, score: str, *, batch: int) -> MeasuredQuality:
    """The quality of a loaded model; samples are handed over in batches of this size, the last one filled up."""
    import numpy as np

    arrays = read_labelled(file)
    labels = arrays.pop("labels")
    judge = top1 if score == "top1" else named_function(score, file.parent)
    scores: list[NDArray[np.float64]] = []
    for first in range(0, len(labels), batch):
        places = np.arange(first, min(first + batch, len(labels)))
        taken = np.resize(places, batch)
        outputs = np.asarray(subject.predict({name: array[taken] for name, array in arrays.items()}))[: len(places)]
        found = np.asarray(judge(outputs, labels[places]), dtype=np.float64).reshape(-1)
        if len(found) != len(places) or not np.isfinite(found).all():
            raise MeasurementFailed(f"{score} gave {len(found)} scores for {len(places)} samples, or none that counts")
        scores.append(found)
    return _quality_of_samples(np.concatenate(scores))


def read_labelled(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a labelled set, `labels` among them."""
    import zlib
    from zipfile import BadZipFile

    import numpy as np

    try:
        content = np.load(file, allow_pickle=False)
        if isinstance(content, np.ndarray):
            raise ValueError("it is one array (.npy)")
        with content:
            arrays = {name: np.atleast_1d(content[name]) for name in content.files}
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise MeasurementFailed(f"{file.name} is no .npz file of plain arrays: {error}") from error
    if "labels" not in arrays or len(arrays) < 2:
        raise MeasurementFailed(f"{file.name} wants an array labels and at least one of inputs")
    if not len(arrays["labels"]) or len({len(array) for array in arrays.values()}) > 1:
        raise MeasurementFailed(f"{file.name}: the arrays differ in length, or are empty")
    return arrays


def _quality_of_samples(scores: NDArray[np.float64]) -> MeasuredQuality:
    """Wilson's interval where each sample is right or wrong, else the normal one."""
    count, mean = len(scores), float(scores.mean())
    if set(scores.tolist()) <= {0.0, 1.0}:
        low, high = _wilson(mean, count)
    else:
        half = 1.959964 * float(scores.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
        low, high = mean - half, mean + half
    return MeasuredQuality(float(f"{mean:.9g}"), (float(f"{low:.9g}"), float(f"{high:.9g}")), count)


def _wilson(share: float, count: int) -> tuple[float, float]:
    square = 1.959964**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = math.sqrt(square * (share * (1 - share) / count + square / (4 * count * count))) / (1 + square / count)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def as_quality(line: Mapping[str, Any]) -> MeasuredQuality:
    """What the journal holds."""
    low, high = line["interval"]
    return MeasuredQuality(float(line["value"]), (float(low), float(high)), int(line["samples"]))


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
        busy = [cell for cell in self.cells if not cell.failed and (cell.waited or 0.0) + cell.stolen > MUCH_WAITED]
        said = [
            (
                "W-busy", f"{cell.variant} on {cell.hardware} at {_cell_text(cell.point)}",
                f"for {100 * (cell.waited or 0.0):.0f}% of the time it waited for a core"
                + (f", {100 * cell.stolen:.0f}% of all cores' time the host took" if cell.stolen >= 0.005 else "")
                + ": other work makes it slow",
            )
            for cell in busy
        ]  # fmt: skip
        return [("W-not-measured", where, why) for where, why in self.failed] + said


def measure(
    wish: Wish,
    folder: Path,
    *,
    journal: CellJournal | None = None,
    on_event: OnEvent | None = None,
    cancel: threading.Event | None = None,
    serve: Serve | None = None,
    only: Collection[str] | None = None,
) -> Measurements:
    """Measure every cell (`only` those of some hardware); with `cancel` set, hand over those that are done.

    `serve` starts what is measured through a router; without it all is measured alone.
    """
    quiet: OnEvent = lambda _event: None  # noqa: E731
    run = _Run(wish, folder, journal or CellJournal(), on_event or quiet, cancel or threading.Event(), serve)
    for (name, hardware), cells in groupby(wish.cells(), key=lambda cell: cell[:2]):
        if only is None or hardware in only:
            run.group(name, hardware, [point for _, _, point in cells])
    return run.found


def identities(wish: Wish, folder: Path, *, through: bool) -> list[dict[str, Any]]:
    """What the journal says its lines are of: every cell, and every quality."""
    serve: Any = _nobody if through else None
    run = _Run(wish, folder, CellJournal(), lambda _event: None, threading.Event(), serve)
    found = []
    for name, hardware, point in wish.cells():
        of = run.identity(name, wish.models[name], wish.machines[hardware])
        found += [_cell_key(name, hardware, point, of), {"variant": name, "model": of, "quality": True}]
    return found


def _nobody(*_: object, **__: object) -> Any:
    """The server that would be measured, where nothing is."""
    raise NotImplementedError


class _Run:
    """One pass over the wish."""

    def __init__(
        self, wish: Wish, folder: Path, journal: CellJournal, on_event: OnEvent, cancel: threading.Event,
        serve: Serve | None,
    ) -> None:  # fmt: skip
        self.wish, self.folder, self.journal, self.on_event, self.cancel = wish, folder, journal, on_event, cancel
        self._serve = serve if wish.repeats.through == "router" else None
        self.found = Measurements()
        self.total = sum(1 for _ in wish.cells())
        self.began = time.monotonic()

    def group(self, name: str, hardware: str, points: list[Mapping[str, float]]) -> None:
        """All cells of a variant on some hardware: the model is loaded once, and only if something is missing."""
        variant, machine = self.wish.models[name], self.wish.machines[hardware]
        of = self.identity(name, variant, machine)
        known = {_key(point): self._known_cell(name, hardware, point, of) for point in points}
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
        cores = _cores(machine, hardware)
        if self._through(variant):
            # The worker is kept on these cores; router and sender are not.
            self._measure(name, hardware, points, known, of, wants_quality=wants_quality, cores=cores)
            return
        with pin_cores(cores):
            self._measure(name, hardware, points, known, of, wants_quality=wants_quality, cores=cores)

    def _through(self, variant: MeasuredModel) -> str:
        """What a variant is measured through: "router", or "" for nothing."""
        if self._serve is None:
            return ""
        from hetplan.measure.profile_router import can_be_routed

        return "router" if can_be_routed(variant) else ""

    def _measure(
        self,
        name: str,
        hardware: str,
        points: list[Mapping[str, float]],
        known: Mapping[str, Cell | None],
        of: str,
        *,
        wants_quality: bool,
        cores: Sequence[int],
    ) -> None:
        variant = self.wish.models[name]
        subject: Subject | None = None
        try:
            subject = subject_of(name, variant, self.wish.machines[hardware], self.folder)
            if self._through(variant) and self._serve is not None:
                from hetplan.measure.profile_router import route_subject

                subject = route_subject(subject, self._serve, cores)
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
                self._tell(f"{name} on {hardware} at {_cell_text(point)}")
                through = self._through(variant)
                begun = Cell(name, hardware, point, load_s=load_s, versions=subject.versions(), through=through)
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

    def _quality(self, name: str, variant: MeasuredModel, subject: Subject, of: str) -> None:
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
        where = f"{cell.variant} on {cell.hardware} at {_cell_text(cell.point)}"
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

    def _known_cell(self, name: str, hardware: str, point: Mapping[str, float], of: str) -> Cell | None:
        line = self.journal.get(_cell_key(name, hardware, point, of))
        return None if line is None else Cell.of_line(name, hardware, point, line)

    def identity(self, name: str, variant: MeasuredModel, machine: MeasuredMachine) -> str:
        """What a measurement is of: the variant but for its axes, its files, the machine, the rule."""
        content: dict[str, Any] = variant.model_dump(mode="json", exclude={"axes", "at", "outside"})
        for key in ("onnx", "quality", "body"):
            if content[key] is not None:
                content[key] = hashlib.sha256((self.folder / content[key]).read_bytes()).hexdigest()
        if variant.onnx is not None:
            self.found.artifacts[name] = content["onnx"]
        said: dict[str, Any] = {"variant": content, "hardware": machine.model_dump(mode="json", exclude={"node"})}
        said["rule"] = self.wish.repeats.model_dump(mode="json")
        said["through"] = self._through(variant)
        return digest(said)[len("sha256:") :][:16]


def _cores(machine: MeasuredMachine, name: str) -> tuple[int, ...]:
    here = cores_of_this_process()
    if not machine.pin or not here:
        return ()
    wanted = machine.cores or here[: machine.threads]
    if len(wanted) < machine.threads or not set(wanted) <= set(here):
        raise InputError.one(
            file="measure.toml",
            path=f"$.machines.{name}.{'cores' if machine.cores else 'threads'}",
            value=list(machine.cores) or machine.threads,
            why=f"this process may use the cores {', '.join(map(str, here))}",
            remedy="Name some of these, or fewer threads, or set pin = false.",
        )
    return wanted


def _cell_key(variant: str, hardware: str, point: Mapping[str, float], of: str) -> dict[str, Any]:
    return {"variant": variant, "model": of, "hardware": hardware, "at": dict(point)}


def _key(point: Mapping[str, float]) -> str:
    return ",".join(f"{axis}={value:g}" for axis, value in point.items())


def _cell_text(point: Mapping[str, float]) -> str:
    return ", ".join(f"{axis} {value:g}" for axis, value in point.items()) or "its only point"


def subject_of(name: str, variant: MeasuredModel, hardware: MeasuredMachine, folder: Path) -> Subject:
    """The subject of a variant on some hardware; nothing is loaded yet."""
    if variant.kind == "onnx":
        from hetplan.measure.profile_onnx import OnnxModel

        return OnnxModel(name, variant, hardware, folder)
    made: Callable[..., Subject] = {"callable": CallableModel, "http": HttpEndpoint, "command": CommandModel}[
        variant.kind
    ]
    return made(name, variant, hardware, folder)
