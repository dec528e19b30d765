"""A model measured as it will serve: in a worker behind a router, with inputs that travel, one query after the other.

The time of a run is how long the router had the query. So it has what a worker is taken for by a query besides the
model's own work: reading inputs, the hand-over to the model's thread and back, writing the answer, the router's
decision, and how late each of them wakes up.

A query carries random inputs: the bytes of an .npy file where the model has one input, else lists by name in JSON. Who
starts router and worker is handed in (`Serve`): this room knows nothing of the executor.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hetplan.measure.profile_models import Answer, Asking, MeasurementFailed, Subject, said_ms
from hetplan.measure.profile_onnx import OnnxModel

__all__ = ["RoutedOnnx", "Serve", "Served"]


class Served(Protocol):
    """A router and the worker behind it."""

    url: str

    @property
    def pids(self) -> tuple[int, ...]:
        """Their processes."""
        ...

    def close(self) -> None:
        """End them."""
        ...


class Serve(Protocol):
    """Starts a router and a worker for a file of onnxruntime; `OSError` with the reason where that fails."""

    def __call__(self, path: Path, *, threads: int, provider: str, cores: Sequence[int]) -> Served:
        """Serve this file on these cores."""
        ...


class RoutedOnnx(Subject):
    """An ONNX file behind a router of its own; what a session alone can say (labels, memory, shapes) it says too."""

    over_http = True

    def __init__(self, model: OnnxModel, serve: Serve, cores: Sequence[int]) -> None:
        super().__init__(model.name, model.variant, model.hardware, model.folder)
        self._model, self._serve, self._cores = model, serve, tuple(cores)
        self._served: Served | None = None
        self._asking: Asking | None = None
        self._bytes_out: float | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """Worker and router."""
        return self._served.pids if self._served is not None else ()

    def load(self) -> None:
        """The session of this process, whose time to load and memory count."""
        self._model.load()

    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """The request of a point; router and worker are started by the first."""
        feeds = self._model.inputs(point)
        self._bytes_out = self._model.read(self._model.prepare(point)()).bytes_out
        asking = self._asking or self._started()
        body, headers = _request(point, feeds)
        return lambda: asking.post(body, headers)

    def _started(self) -> Asking:
        path = self.folder / (self.variant.onnx or "")
        try:
            self._served = self._serve(
                path, threads=self.hardware.threads, provider=self._model.provider, cores=self._cores
            )
        except OSError as error:
            raise MeasurementFailed(str(error)) from error
        self._asking = Asking(self._served.url, self.variant.timeout_s)
        self._asking.connect()
        return self._asking

    def read(self, raw: Any) -> Answer:
        """How long the router had the query."""
        return Answer(ms=said_ms(raw[1]), bytes_out=self._bytes_out)

    def predict(self, inputs: Mapping[str, Any]) -> Any:
        """The model's first output."""
        return self._model.predict(inputs)

    def versions(self) -> dict[str, str]:
        """onnxruntime and where it ran."""
        return self._model.versions()

    def close(self) -> None:
        """End router and worker, drop the session."""
        if self._asking is not None:
            self._asking.close()
        if self._served is not None:
            self._served.close()
        self._asking = self._served = None
        self._model.close()


def _request(point: Mapping[str, float], feeds: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Body and header fields of a query with these inputs."""
    import numpy as np

    at = {name: int(value) if value == int(value) else value for name, value in point.items()}
    if len(feeds) == 1:
        (array,) = feeds.values()
        written = io.BytesIO()
        np.save(written, array, allow_pickle=False)
        said = "; ".join(f"{name}={value}" for name, value in at.items())
        headers = {"content-type": "application/octet-stream", "hetplan-at": said}
        return written.getvalue(), {**headers, "hetplan-reply": "brief"}
    lists = {name: array.tolist() for name, array in feeds.items()}
    body = json.dumps({"at": at, "inputs": lists}).encode()
    return body, {"content-type": "application/json", "hetplan-reply": "brief"}
