"""A Python callable, torch or not: ``module:function`` of the trusted file.

The function is called once, without arguments, and loads the model: that is the time to load. What it returns is called
with a point (``{"batch": 8}``), makes inputs ready and returns a callable without arguments, whose calls are timed. A
CUDA device that torch uses is waited for at the end of each. For quality, what was loaded has a method
``predict(inputs)`` from named arrays to an array of outputs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hetplan.measure.profile_subject import Answer, MeasurementFailed, Subject, named_function, number_or_none
from hetplan.measure.profile_wish import MeasuredHardware, MeasuredVariant

__all__ = ["CallableModel"]


class CallableModel(Subject):
    """What the function of the trusted file loads."""

    def __init__(self, name: str, variant: MeasuredVariant, hardware: MeasuredHardware, folder: Path) -> None:
        super().__init__(name, variant, hardware, folder)
        self._reference = variant.callable or ""
        self._loaded: Any = None

    def load(self) -> None:
        """Call the function."""
        function = named_function(self._reference, self.folder)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(self.hardware.threads)
        try:
            self._loaded = function()
        except Exception as error:
            raise MeasurementFailed(f"{self._reference} raised {type(error).__name__}: {error}") from error
        _wait_for_device()

    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """The loaded thing, made ready for a point."""
        try:
            made = self._loaded(dict(point))
        except Exception as error:
            raise MeasurementFailed(f"it cannot be made ready for {dict(point)}: {error}") from error
        if not callable(made):
            raise MeasurementFailed(f"for a point it returns {type(made).__name__}, not a callable")

        def once() -> Any:
            try:
                found = made()
            except Exception as error:
                raise MeasurementFailed(f"a run raised {type(error).__name__}: {error}") from error
            _wait_for_device()
            return found

        return once

    def read(self, raw: Any) -> Answer:
        """A mapping may say bytes, fanout and score; an array says its size."""
        if isinstance(raw, Mapping):
            size, fanout, score = (number_or_none(raw, name) for name in ("bytes", "fanout", "score"))
            return Answer(bytes_out=size, fanout=fanout, score=score)
        size = getattr(raw, "nbytes", None)
        return Answer(bytes_out=float(size) if isinstance(size, int) else None)

    def predict(self, inputs: Mapping[str, Any]) -> Any:
        """The outputs of its own `predict`."""
        predict = getattr(self._loaded, "predict", None)
        if predict is None:
            raise MeasurementFailed(f"what {self._reference} loads has no method predict")
        try:
            return predict(dict(inputs))
        except Exception as error:
            raise MeasurementFailed(f"predict raised {type(error).__name__}: {error}") from error

    def versions(self) -> dict[str, str]:
        """torch, where it was used, and the device."""
        torch = sys.modules.get("torch")
        if torch is None:
            return {}
        told = {"torch": str(torch.__version__)}
        if torch.cuda.is_available():
            told |= {"cuda": str(torch.version.cuda), "gpu": str(torch.cuda.get_device_name())}
        return told

    def memory_gib(self) -> dict[str, float]:
        """The most that torch has held on the GPU."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available():
            return {}
        return {"gpu_mem_gib": float(torch.cuda.max_memory_reserved()) / 2**30}

    def close(self) -> None:
        """Drop what was loaded, and give the GPU's memory back."""
        self._loaded = None
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def _wait_for_device() -> None:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
