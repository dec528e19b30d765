"""A model measured as it will serve: in a worker behind a router, with inputs that travel, one query after the other.

The time of a run is how long the router had the query. So it has what a worker is taken for by a query besides the
model's own work: reading inputs, the hand-over to the model and back, writing the answer, the router's decision, and
how late each of them wakes up.

What the worker serves is plain data, as a rule of site.toml becomes it:

- `onnx`: the file, in a session of the worker. A query carries random inputs: the bytes of an .npy file where the
  model has one input, else lists by name in JSON.
- `callable` and `command`: a command of the worker that speaks JSON lines (`hetplan.measure.subject_process`) and runs
  them. Where a command says `seconds`, these count in place of its clock, and the rest of the query's time as it was.
- `http`: the endpoint, behind the worker. One that is a router of `hetplan apply` already is asked as it is.

Who starts router and worker is handed in (`Serve`): this room knows nothing of the executor.
"""

from __future__ import annotations

import io
import json
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from hetplan.measure.measure_file import MeasuredModel
from hetplan.measure.profile_models import Answer, Asking, HttpEndpoint, MeasurementFailed, Subject, said_ms
from hetplan.measure.profile_onnx import OnnxModel

__all__ = ["Serve", "Served", "can_be_routed", "route_subject"]


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
    """Starts a router and a worker for a model; `OSError` with the reason where that fails."""

    def __call__(self, model: Mapping[str, Any], *, cores: Sequence[int]) -> Served:
        """Serve it on these cores."""
        ...


def can_be_routed(variant: MeasuredModel) -> bool:
    """Whether a worker can stand before it: one asks its endpoint over plain HTTP, with no header fields of others."""
    return variant.http is None or (variant.http.startswith("http://") and not variant.headers)


def route_subject(subject: Subject, serve: Serve, cores: Sequence[int]) -> Subject:
    """The subject behind a router of its own."""
    if isinstance(subject, OnnxModel):
        return _RoutedOnnx(subject, serve, cores)
    if isinstance(subject, HttpEndpoint):
        return _RoutedEndpoint(subject, serve, cores)
    return _RoutedRun(subject, serve, cores)


_S = TypeVar("_S", bound=Subject)


class _Routed(Subject, Generic[_S]):
    """A subject behind a router; what it says alone (labels, memory, versions) it says here too."""

    over_http = True

    def __init__(self, subject: _S, serve: Serve, cores: Sequence[int]) -> None:
        super().__init__(subject.name, subject.variant, subject.hardware, subject.folder)
        self._subject, self._serve, self._cores = subject, serve, tuple(cores)
        self._served: Served | None = None
        self._asking: Asking | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """Worker, router, and what the worker has started."""
        return self._served.pids if self._served is not None else ()

    def load(self) -> None:
        """In this process, where the time to load and memory are seen."""
        self._subject.load()

    @abstractmethod
    def _model(self) -> dict[str, Any]:
        """What the worker serves."""

    def _start(self) -> Asking:
        """The connection to the router; router and worker are started by the first point."""
        if self._asking is None:
            try:
                self._served = self._serve(self._model(), cores=self._cores)
            except OSError as error:
                raise MeasurementFailed(str(error)) from error
            self._asking = Asking(self._served.url, self.variant.timeout_s, "the worker")
            self._asking.connect()
        return self._asking

    def predict(self, inputs: Mapping[str, Any]) -> Any:
        """The outputs of the subject in this process."""
        return self._subject.predict(inputs)

    def versions(self) -> dict[str, str]:
        """Of the subject."""
        return self._subject.versions()

    def memory_gib(self) -> dict[str, float]:
        """Of the subject in this process: the worker's is as much again."""
        return self._subject.memory_gib()

    def close(self) -> None:
        """End router and worker, drop the subject."""
        if self._asking is not None:
            self._asking.close()
        if self._served is not None:
            self._served.close()
        self._asking = self._served = None
        self._subject.close()


class _RoutedOnnx(_Routed[OnnxModel]):
    """An ONNX file."""

    _bytes_out: float | None = None

    def _model(self) -> dict[str, Any]:
        path = self.folder / (self.variant.onnx or "")
        threads, provider = self.hardware.threads, self._subject.provider
        return {"kind": "onnx", "path": str(path.resolve()), "threads": threads, "providers": [provider]}

    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """The request of a point."""
        feeds = self._subject.inputs(point)
        self._bytes_out = self._subject.read(self._subject.prepare(point)()).bytes_out
        asking = self._start()
        body, headers = _request(point, feeds)
        return lambda: asking.post(body, headers)

    def read(self, raw: Any) -> Answer:
        """How long the router had the query."""
        return Answer(ms=said_ms(raw[1]), bytes_out=self._bytes_out)


class _RoutedRun(_Routed[Subject]):
    """A callable or a command, run by a process that the worker asks."""

    def _model(self) -> dict[str, Any]:
        content = {
            "name": self.name, "folder": str(self.folder.resolve()),
            "variant": self.variant.model_dump(mode="json", exclude={"axes", "at"}),
            "hardware": self.hardware.model_dump(mode="json"),
        }  # fmt: skip
        words = [sys.executable, "-m", "hetplan.measure.subject_process", json.dumps(content)]
        return {"kind": "command", "command": words, "timeout_s": self.variant.timeout_s}

    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """The request of a point, for which the process is made ready; one run here shows what memory it takes."""
        if self.variant.command is None:
            self._subject.prepare(point)()
        asking = self._start()
        headers = {"content-type": "application/json"}
        asking.post(_query(point, "ready"), headers)
        body = _query(point, None)
        return lambda: asking.post(body, headers)

    def read(self, raw: Any) -> Answer:
        """How long the router had the query, the seconds that the model says in place of those that it took."""
        content, said = raw
        answer = json.loads(_outputs(content))
        took_ms, in_router_ms = answer.pop("took_ms"), said_ms(said) or 0.0
        own_ms = took_ms if answer["ms"] is None else answer["ms"]
        return Answer(**{**answer, "ms": max(in_router_ms - took_ms, 0.0) + own_ms, "in_server_ms": in_router_ms})


class _RoutedEndpoint(_Routed[HttpEndpoint]):
    """An endpoint of HTTP."""

    _alone = False

    def _model(self) -> dict[str, Any]:
        parts = urlsplit(self.variant.http or "")
        route = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        return {
            "kind": "http", "url": f"{parts.scheme}://{parts.netloc}", "route": route,
            "timeout_s": self.variant.timeout_s,
        }  # fmt: skip

    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """The request of a point. It is sent once to the endpoint itself, which may be a router already."""
        run = self._subject.prepare(point)
        self._alone = self._subject.read(run()).ms is not None
        if self._alone:
            return run
        asking, headers = self._start(), {"content-type": "application/json"}
        body = _query(point, self._subject.body(point))
        return lambda: asking.post(body, headers)

    def read(self, raw: Any) -> Answer:
        """How long the router had the query, and what the endpoint's reply says."""
        content, ms = raw
        return self._subject.read((content if self._alone else _outputs(content), ms))


def _query(point: Mapping[str, float], inputs: Any) -> bytes:
    return json.dumps({"at": _whole(point), "inputs": inputs}).encode()


def _outputs(content: bytes) -> bytes:
    """What the model answered, of a router's reply, byte for byte."""
    return content.partition(b', "outputs": ')[2][:-1]


def _whole(point: Mapping[str, float]) -> dict[str, float]:
    return {name: int(value) if value == int(value) else value for name, value in point.items()}


def _request(point: Mapping[str, float], feeds: Mapping[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Body and header fields of a query with these inputs."""
    import numpy as np

    if len(feeds) == 1:
        (array,) = feeds.values()
        written = io.BytesIO()
        np.save(written, array, allow_pickle=False)
        said = "; ".join(f"{name}={value}" for name, value in _whole(point).items())
        headers = {"content-type": "application/octet-stream", "hetplan-at": said}
        return written.getvalue(), {**headers, "hetplan-reply": "brief"}
    body = _query(point, {name: array.tolist() for name, array in feeds.items()})
    return body, {"content-type": "application/json", "hetplan-reply": "brief"}
