"""What is measured, behind one face: loaded once, made ready for a point of the axes, run again and again.

There are four kinds, each in a file of its own: `onnx`, `callable`, `http` and `command`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from hetplan.errors import HetplanError
from hetplan.measure.profile_wish import MeasuredHardware, MeasuredVariant

__all__ = ["Answer", "MeasurementFailed", "Subject", "named_function", "number_or_none", "subject_of"]


class MeasurementFailed(HetplanError):
    """A model could not be loaded or run; the cell, or the variant, stays unmeasured, with this as the reason."""


@dataclass(frozen=True)
class Answer:
    """What one run gave besides the time it took; `ms` where it timed itself."""

    ms: float | None = None
    bytes_out: float | None = None
    fanout: float | None = None
    score: float | None = None
    operators_ms: Mapping[str, float] | None = None


class Subject(ABC):
    """Something whose runs can be timed. What a kind has nothing to say of, it leaves as it is here."""

    def __init__(self, name: str, variant: MeasuredVariant, hardware: MeasuredHardware, folder: Path) -> None:
        self.name, self.variant, self.hardware, self.folder = name, variant, hardware, folder

    def load(self) -> None:  # noqa: B027
        """Load the model; timed, once."""

    @abstractmethod
    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """A callable that makes one run at this point; only its calls are timed."""

    @abstractmethod
    def read(self, raw: Any) -> Answer:
        """What a run gave, looked at when the clock has stopped."""

    def predict(self, inputs: Mapping[str, Any]) -> Any:
        """The outputs for a batch of labelled inputs."""
        raise MeasurementFailed(f"{self.variant.kind} takes no labelled set, such as one of {', '.join(inputs)}")

    def versions(self) -> dict[str, str]:
        """What measured: names and versions."""
        return {}

    def memory_gib(self) -> dict[str, float]:
        """Memory that this process does not see (a GPU's), by the name of the resource."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Let go of everything."""


def number_or_none(content: Mapping[str, Any], name: str) -> float | None:
    """What an answer says under a name, where that is a number.

    >>> number_or_none({"fanout": 2, "score": "good"}, "fanout"), number_or_none({"score": "good"}, "score")
    (2.0, None)
    """
    value = content.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


_MAKERS = {
    "onnx": "hetplan.measure.profile_onnx:OnnxModel",
    "callable": "hetplan.measure.profile_callable:CallableModel",
    "http": "hetplan.measure.profile_http:HttpEndpoint",
    "command": "hetplan.measure.profile_command:CommandModel",
}


def subject_of(name: str, variant: MeasuredVariant, hardware: MeasuredHardware, folder: Path) -> Subject:
    """The subject of a variant on some hardware; nothing is loaded yet."""
    module, _, attribute = _MAKERS[variant.kind].partition(":")
    made: Subject = getattr(import_module(module), attribute)(name, variant, hardware, folder)
    return made


def named_function(reference: str, folder: Path) -> Callable[..., Any]:
    """The function "module:function" of a trusted file; modules beside that file are found first."""
    import sys

    module, _, attribute = reference.partition(":")
    sys.path.insert(0, str(folder.resolve()))
    try:
        found = getattr(import_module(module), attribute, None)
    except Exception as error:
        raise MeasurementFailed(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(folder.resolve()))
    if not callable(found):
        raise MeasurementFailed(f"{module} has no function {attribute}")
    function: Callable[..., Any] = found
    return function
