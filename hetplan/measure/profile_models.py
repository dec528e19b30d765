"""What a profile measures, behind one face: loaded once, made ready for a point of the axes, run again and again.

- `callable`, ``module:function`` of the trusted file, torch or not. The function is called once, without arguments, and
  loads the model: that is the time to load. What it returns is called with a point (``{"batch": 8}``), makes inputs
  ready and returns a callable without arguments, whose calls are timed. A CUDA device that torch uses is waited for at
  the end of each. For quality, what was loaded has a method ``predict(inputs)`` from named arrays to outputs.
- `command`, a process that speaks JSON lines, the protocol of `hetplan.measure.evaluator`, asked once per run:
  ``{"knobs": {..., axis: value}, "stratum": 0, "index": 7}``. The answer may say ``seconds`` (a number, or one per
  operator: their sum is the time of the run; without it the wall clock counts), ``bytes``, ``fanout``, ``score``.
- `http`, a model behind HTTP: requests one after the other on one connection that stays open, Nagle off. The router of
  `hetplan apply` says in a header field (`hetplan-ms`) how long it had a request. That is then the time that counts:
  service, and the way between router and worker, on which the worker's server does nothing else either.
- `onnx`, in a file for itself (`hetplan.measure.profile_onnx`), since its engine is optional.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hetplan.errors import HetplanError, InputError
from hetplan.measure.evaluator import Command, EvaluationFailed
from hetplan.measure.measure_file import MeasuredMachine, MeasuredModel

__all__ = [
    "Answer",
    "Asking",
    "CallableModel",
    "CommandModel",
    "HttpEndpoint",
    "MeasurementFailed",
    "Subject",
    "fill_template",
    "named_function",
    "number_or_none",
    "said_ms",
]


class MeasurementFailed(HetplanError):
    """A model could not be loaded or run; the cell, or the variant, stays unmeasured, with this as the reason."""


@dataclass(frozen=True)
class Answer:
    """What one run gave besides the time it took; `ms` where it timed itself.

    `in_server_ms` is how long its server had the query, where `ms` says something else.
    """

    ms: float | None = None
    in_server_ms: float | None = None
    bytes_out: float | None = None
    fanout: float | None = None
    score: float | None = None
    operators_ms: Mapping[str, float] | None = None


class Subject(ABC):
    """Something whose runs can be timed. What a kind has nothing to say of, it leaves as it is here."""

    def __init__(self, name: str, variant: MeasuredModel, hardware: MeasuredMachine, folder: Path) -> None:
        self.name, self.variant, self.hardware, self.folder = name, variant, hardware, folder

    over_http = False
    """Whether a run is a request: what its server does not say of its time went by on the way."""

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that run the model, where it is not this one."""
        return ()

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


class CallableModel(Subject):
    """What the function of the trusted file loads."""

    def __init__(self, name: str, variant: MeasuredModel, hardware: MeasuredMachine, folder: Path) -> None:
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
        said = {"torch": str(torch.__version__)}
        if torch.cuda.is_available():
            said |= {"cuda": str(torch.version.cuda), "gpu": str(torch.cuda.get_device_name())}
        return said

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


class CommandModel(Subject):
    """One process that answers; it starts with the first question."""

    def __init__(self, name: str, variant: MeasuredModel, hardware: MeasuredMachine, folder: Path) -> None:
        super().__init__(name, variant, hardware, folder)
        # A word that names a file beside the configuration means that file.
        words = [str(folder / word) if (folder / word).is_file() else word for word in variant.command or ()]
        self._command = Command(words, timeout_s=variant.timeout_s)
        self._index = 0

    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """A question about a point; each call asks for the next sample."""
        at = {axis: int(value) if value == int(value) else value for axis, value in point.items()}
        knobs = {**self.variant.knobs, **at}

        def once() -> Any:
            self._index += 1
            try:
                return self._command(knobs, 0, self._index - 1)
            except EvaluationFailed as error:
                raise MeasurementFailed(str(error)) from error

        return once

    def read(self, raw: Any) -> Answer:
        """What the answer says."""
        if not isinstance(raw, Mapping):
            raise MeasurementFailed(f"an answer is an object, not {type(raw).__name__}")
        seconds, size = raw.get("seconds"), raw.get("bytes")
        operators = None
        if isinstance(seconds, Mapping):
            operators = {str(name): 1000.0 * _number(value, f"seconds of {name}") for name, value in seconds.items()}
        # Bytes passed on by a chain of operators are those of the last.
        last = list(size.values())[-1] if isinstance(size, Mapping) and size else size
        return Answer(
            ms=sum(operators.values()) if operators is not None else _scale(seconds, 1000.0, "seconds"),
            bytes_out=_scale(last, 1.0, "bytes") if not isinstance(last, Mapping) else None,
            fanout=_scale(raw.get("fanout"), 1.0, "fanout"),
            score=_scale(raw.get("score"), 1.0, "score"),
            operators_ms=operators,
        )

    def close(self) -> None:
        """End the process."""
        self._command.close()


def _scale(value: Any, factor: float, name: str) -> float | None:
    return None if value is None else factor * _number(value, name)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise MeasurementFailed(f"{name} is {value!r}, not a number of 0 or more")
    return float(value)


_MILLISECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?")


class Asking:
    """One connection that stays open, and one request on it after the other."""

    def __init__(self, url: str, timeout_s: float, name: str = "") -> None:
        self._name, self._parts = name or url, urlsplit(url)
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        # http.client switches Nagle's algorithm off itself.
        self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=timeout_s)

    def connect(self) -> None:
        """Open it."""
        try:
            self._connection.connect()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise MeasurementFailed(f"{self._name}: {why}") from error

    def post(self, body: bytes, headers: Mapping[str, str]) -> tuple[bytes, str]:
        """The reply, and how long its server says that it had the request."""
        target = self._parts.path or "/"
        if self._parts.query:
            target = f"{target}?{self._parts.query}"
        try:
            self._connection.request("POST", target, body=body, headers=dict(headers))
            reply = self._connection.getresponse()
            content, said_ms = reply.read(), reply.getheader("hetplan-ms", "")
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise MeasurementFailed(f"{self._name}: {type(error).__name__} {error}") from error
        if reply.status >= 300:
            raise MeasurementFailed(f"{self._name} answered {reply.status}: {_why(content)}")
        return content, said_ms

    def close(self) -> None:
        """Close it."""
        self._connection.close()


def _why(content: bytes) -> str:
    """The reason that a router gives, or how another's answer begins."""
    with suppress(ValueError):
        said = json.loads(content)
        if isinstance(said, dict) and isinstance(said.get("why"), str):
            return str(said["why"])
    return repr(content[:80])


def said_ms(text: str) -> float | None:
    """The time that a server says, where it is one.

    >>> said_ms("12.500"), said_ms("soon"), said_ms("1e3")
    (12.5, None, None)
    """
    return float(text) if _MILLISECONDS.fullmatch(text) else None


class HttpEndpoint(Subject):
    """One address. The body is ``{"at": {axis: value}}``, or a JSON file in which a text ``$axis`` is the value."""

    over_http = True

    def __init__(self, name: str, variant: MeasuredModel, hardware: MeasuredMachine, folder: Path) -> None:
        super().__init__(name, variant, hardware, folder)
        self._template: Any = {"at": {axis: f"${axis}" for axis in variant.axes}}
        if variant.body is not None:
            self._template = _read_reply(folder / variant.body, name)
        self._asking = Asking(variant.http or "", variant.timeout_s)

    def load(self) -> None:
        """Connect; the server loaded the model before, so nothing is said of that time."""
        self._asking.connect()

    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """The request of a point; a call sends it and reads the whole reply."""
        body = json.dumps(self.body(point)).encode()
        headers = {"Content-Type": "application/json", **self.variant.headers}
        return lambda: self._asking.post(body, headers)

    def body(self, point: Mapping[str, float]) -> Any:
        """What is asked at a point, before it becomes text."""
        return fill_template(self._template, point)

    def read(self, raw: Any) -> Answer:
        """The size of the reply, the time that the server says, and what a JSON reply says of fan-out and score."""
        body, ms = raw
        content: Any = {}
        if body[:1] == b"{":
            with suppress(ValueError):
                content = json.loads(body)
        return Answer(
            ms=said_ms(ms),
            bytes_out=float(len(body)),
            fanout=number_or_none(content, "fanout"),
            score=number_or_none(content, "score"),
        )

    def versions(self) -> dict[str, str]:
        """The address says what was asked, not what answered."""
        parts = urlsplit(self.variant.http or "")
        return {"endpoint": f"{parts.scheme}{parts.path or '/'}"}

    def close(self) -> None:
        """Close the connection."""
        self._asking.close()


def fill_template(template: Any, point: Mapping[str, float]) -> Any:
    """The template with the value of the axis in place of each text ``$axis``; whole numbers stay whole.

    >>> fill_template({"n": "$batch", "x": ["$size", "$other"]}, {"batch": 4.0, "size": 0.5})
    {'n': 4, 'x': [0.5, '$other']}
    """
    if isinstance(template, Mapping):
        return {name: fill_template(value, point) for name, value in template.items()}
    if isinstance(template, list):
        return [fill_template(value, point) for value in template]
    if isinstance(template, str) and template.startswith("$") and template[1:] in point:
        value = point[template[1:]]
        return int(value) if value == int(value) else value
    return template


def _read_reply(path: Path, name: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError.one(
            file=str(path), path=f"$.models.{name}.body", why=f"the body is JSON ({error})", remedy="Mend the file."
        ) from None
