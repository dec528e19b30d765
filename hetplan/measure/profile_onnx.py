"""An ONNX model under onnxruntime: random inputs of the right shapes, threads as stated, on the CPU or with CUDA."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.measure.measure_file import MeasuredMachine, MeasuredModel
from hetplan.measure.profile_models import Answer, MeasurementFailed, Subject

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["OnnxModel"]

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
_TYPES = {
    "tensor(float)": "float32",
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(int64)": "int64",
    "tensor(int32)": "int32",
    "tensor(int8)": "int8",
    "tensor(uint8)": "uint8",
    "tensor(bool)": "bool",
}


class OnnxModel(Subject):
    """One session; a dimension that carries the name of an axis takes its value, a free first one is the batch."""

    def __init__(self, name: str, variant: MeasuredModel, hardware: MeasuredMachine, folder: Path) -> None:
        super().__init__(name, variant, hardware, folder)
        self._runtime = _runtime()  # imported here, so that its import is no part of the time to load
        self._session: Any = None

    def load(self) -> None:
        """Open the session."""
        runtime = self._runtime
        provider = self.provider
        if provider not in runtime.get_available_providers():
            raise MeasurementFailed(
                f"this onnxruntime has no {provider}; it has {', '.join(runtime.get_available_providers())}"
            )
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self.hardware.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = runtime.InferenceSession(
                str(self.folder / (self.variant.onnx or "")), options, providers=[provider]
            )
        except Exception as error:
            raise MeasurementFailed(f"onnxruntime does not load it: {_first_line(error)}") from error
        if provider not in self._session.get_providers():
            raise MeasurementFailed(f"onnxruntime fell back from {provider} to {self._session.get_providers()[0]}")

    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """Inputs drawn once per point; the call runs the whole model."""
        feeds = self.inputs(point)
        run = self._session.run

        def once() -> Any:
            try:
                return run(None, feeds)
            except Exception as error:
                raise MeasurementFailed(f"onnxruntime: {_first_line(error)}") from error

        return once

    def inputs(self, point: Mapping[str, float]) -> dict[str, NDArray[Any]]:
        """Random inputs of a point's shapes, always the same."""
        import numpy as np

        random = np.random.Generator(np.random.PCG64(0))
        feeds = {one.name: self._draw_input(one, point, random) for one in self._session.get_inputs()}
        self._check_axes_used(point)
        return feeds

    @property
    def provider(self) -> str:
        """Where onnxruntime runs it."""
        return _PROVIDERS[self.hardware.provider]

    def read(self, raw: Any) -> Answer:
        """The size of the outputs."""
        return Answer(bytes_out=float(sum(getattr(output, "nbytes", 0) for output in raw)))

    def predict(self, inputs: Mapping[str, Any]) -> Any:
        """The model's first output."""
        known = {one.name: one for one in self._session.get_inputs()}
        if len(known) == 1 and len(inputs) == 1:
            inputs = {next(iter(known)): next(iter(inputs.values()))}
        missing = sorted(set(known) - set(inputs))
        if missing:
            raise MeasurementFailed(f"the labelled set has no {', '.join(missing)}, which the model reads")
        feeds = {name: inputs[name].astype(_TYPES.get(one.type, "float32")) for name, one in known.items()}
        try:
            return self._session.run(None, feeds)[0]
        except Exception as error:
            raise MeasurementFailed(f"onnxruntime, on the labelled set: {_first_line(error)}") from error

    def versions(self) -> dict[str, str]:
        """onnxruntime and where it ran."""
        return {"onnxruntime": str(self._runtime.__version__), "provider": self.provider}

    def close(self) -> None:
        """Drop the session."""
        self._session = None

    def _draw_input(self, one: Any, point: Mapping[str, float], random: np.random.Generator) -> NDArray[Any]:
        kind = _TYPES.get(one.type)
        if kind is None:
            raise MeasurementFailed(f"input {one.name} is a {one.type}; known are {', '.join(sorted(_TYPES))}")
        shape = [self._size(one.name, place, size, point) for place, size in enumerate(self._dimensions(one))]
        if kind == "bool":
            return random.random(shape) < 0.5
        if kind.startswith(("int", "uint")):
            return random.integers(0, self.variant.integers_below, shape).astype(kind)
        return random.standard_normal(shape).astype(kind)

    def _dimensions(self, one: Any) -> Sequence[Any]:
        dimensions: Sequence[Any] = self.variant.shapes.get(one.name) or tuple(one.shape)
        return dimensions

    def _size(self, name: str, place: int, size: Any, point: Mapping[str, float]) -> int:
        if isinstance(size, int):
            return size
        axis = size if size in point else "batch" if place == 0 and "batch" in point else None
        if axis is None:
            raise InputError.one(
                file="measure.toml", path=f"$.models.{self.name}.shapes", value=size,
                why=f"input {name} has a free dimension {size!r} that is no axis",
                remedy=f'Add the axis, or write shapes = {{{name} = ["batch", 3, 224, 224]}}.',
            )  # fmt: skip
        return int(point[axis])

    def _check_axes_used(self, point: Mapping[str, float]) -> None:
        """An axis that no input depends on would give a table that says nothing."""
        used: set[str] = set()
        for one in self._session.get_inputs():
            for place, size in enumerate(self._dimensions(one)):
                if not isinstance(size, int):
                    used.add(size if size in point else "batch" if place == 0 else "")
        unused = [axis for axis, values in self.variant.axes.items() if axis not in used and len(values) > 1]
        if unused:
            shapes = ", ".join(f"{one.name} {one.shape}" for one in self._session.get_inputs())
            raise InputError.one(
                file="measure.toml", path=f"$.models.{self.name}.axes.{unused[0]}",
                value=list(self.variant.axes[unused[0]]), why=f"no input of the model has this axis ({shapes})",
                remedy="Export the model with a free dimension there, or drop the axis.",
            )  # fmt: skip


def _runtime() -> Any:
    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MeasurementFailed("onnxruntime is not installed: pip install 'hetplan[serve]'") from None
    return onnxruntime


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
