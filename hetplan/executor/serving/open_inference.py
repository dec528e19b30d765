"""The Open Inference Protocol (KServe v2, REST): tensors by name, asked of other servers and answered by ours.

Router and worker answer `/v2`, `/v2/health/live`, `/v2/health/ready`, `/v2/models/NAME`, `/v2/models/NAME/ready` and
`POST /v2/models/NAME/infer`; a model is an application at the router and a load at a worker. Tensors come as lists or
as bytes behind the JSON (the binary extension), and go back as the client asks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from hetplan.executor.serving.query_body import BadQuery, read_at

if TYPE_CHECKING:
    from hetplan.executor.serving.http_server import Exchange

__all__ = ["Inference", "answer_v2", "joined", "split_outputs", "tensor"]


# Asking


def joined(inputs: Sequence[Any]) -> tuple[dict[str, Any], list[int]]:
    """Queries as one request, and how many rows each has; ValueError says what is wrong with one.

    >>> joined([{"x": [[1, 2]]}, {"x": [[3, 4], [5, 6]]}])[1]
    [1, 2]
    >>> joined([{"x": [[1, 2]]}])[0]["inputs"]
    [{'name': 'x', 'shape': [1, 2], 'datatype': 'INT64', 'data': [1, 2]}]
    """
    first = inputs[0]
    if not all(isinstance(one, dict) and one.keys() == first.keys() and one for one in inputs):
        raise ValueError(
            'the inputs of this load are tensors by name: {"x": [[1.0, 2.0]]}, the same names in each query'
        )
    rows = []
    for one in inputs:
        lengths = {len(value) if isinstance(value, list) else 0 for value in one.values()}
        if len(lengths) != 1 or lengths == {0}:
            raise ValueError("the tensors of a query have one first axis, of the same length")
        rows.append(lengths.pop())
    return {"inputs": [tensor(name, [row for one in inputs for row in one[name]]) for name in first]}, rows


def tensor(name: str, value: list[Any]) -> dict[str, Any]:
    """A nested list as a tensor, row by row.

    >>> tensor("x", [[1.5, 2], [3, 4]])
    {'name': 'x', 'shape': [2, 2], 'datatype': 'FP32', 'data': [1.5, 2, 3, 4]}
    """
    shape: list[int] = []
    data: list[Any] = [value]
    while data and isinstance(data[0], list):
        shape.append(len(data[0]))
        if any(not isinstance(one, list) or len(one) != shape[-1] for one in data):
            raise ValueError(f"{name}: the rows differ in length")
        data = [item for one in data for item in one]
    kinds = {type(item) for item in data}
    datatype = {bool: "BOOL", int: "INT64", str: "BYTES"}.get(kinds.pop() if len(kinds) == 1 else float, "FP32")
    return {"name": name, "shape": shape, "datatype": datatype, "data": data}


def split_outputs(answer: Any, rows: Sequence[int]) -> list[dict[str, Any]]:
    """What each query gets of the outputs: its rows of each tensor.

    >>> said = {"outputs": [{"name": "y", "shape": [3, 2], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6]}]}
    >>> split_outputs(said, [1, 2])
    [{'y': [[1, 2]]}, {'y': [[3, 4], [5, 6]]}]
    """
    outputs = answer.get("outputs") if isinstance(answer, dict) else None
    if not isinstance(outputs, list) or not all(isinstance(one, dict) and "data" in one for one in outputs):
        raise ValueError("the server's answer has no outputs with data")
    found: list[dict[str, Any]] = [{} for _ in rows]
    for one in outputs:
        nested = _nested(one["data"], one["shape"])
        if len(nested) != sum(rows):
            raise ValueError(f"{one['name']} has {len(nested)} rows for {sum(rows)}")
        at = 0
        for place, count in enumerate(rows):
            found[place][one["name"]] = nested[at : at + count]
            at += count
    return found


def _nested(data: list[Any], shape: Sequence[int]) -> list[Any]:
    for length in reversed(list(shape)[1:]):
        data = [data[at : at + length] for at in range(0, len(data), length)]
    return data


# Answering

_PATH = re.compile(r"/v2/models/([^/]+)(?:/versions/[^/]+)?(/ready|/infer)?")
_DTYPES = {
    "BOOL": "?", "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "<i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
_LENGTH = "inference-header-content-length"
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""What JSON of any shape can raise where tensors are expected."""


def answer_v2(
    exchange: Exchange, served: Iterable[str], ask: Callable[[Any, str], None], *, ready: bool = True
) -> None:
    """Answer a request under /v2; an inference is handed to `ask`, with the name of what it asks."""
    path, names = exchange.path.rstrip("/"), set(served)
    found = _PATH.fullmatch(path)
    if found is not None and found[1].lower() in names:
        name, what = found[1].lower(), found[2]
        if what == "/infer":
            if exchange.allows("POST"):
                _infer(exchange, name, ask)
        elif exchange.allows("GET", "HEAD"):
            said = {"name": name, "versions": ["1"], "platform": "hetplan", "inputs": [], "outputs": []}
            exchange.answer(200, json.dumps({"name": name, "ready": ready} if what else said).encode())
    elif found is not None:
        _refuse(exchange, 404, f"there is no model {found[1]!r}; there are {', '.join(sorted(names))}")
    elif not exchange.allows("GET", "HEAD"):
        return
    elif path == "/v2":
        said = {"name": "hetplan", "version": "1", "extensions": ["binary_tensor_data"]}
        exchange.answer(200, json.dumps(said).encode())
    elif path in ("/v2/health/live", "/v2/health/ready"):
        well = ready or path.endswith("live")
        exchange.answer(200 if well else 503, json.dumps({path.rsplit("/", 1)[1]: well}).encode())
    else:
        _refuse(exchange, 404, "no such path")


def _infer(exchange: Exchange, name: str, ask: Callable[[Any, str], None]) -> None:
    try:
        inference = Inference(exchange, name)
    except _UNREADABLE as error:
        _refuse(exchange, 400, str(error) if isinstance(error, BadQuery) else f"no inference request: {error!r}")
        return
    ask(inference, name)


def _refuse(exchange: Exchange, status: int, why: str) -> None:
    exchange.answer(status, json.dumps({"error": why}).encode())


class Inference:
    """An inference request in place of a query's: it is asked as a query, and its answer is written as tensors."""

    def __init__(self, exchange: Exchange, name: str) -> None:
        self._exchange, self._name = exchange, name
        body, length = exchange.body, exchange.headers.get(_LENGTH)
        end = int(length) if length is not None else len(body)
        said, rest = json.loads(body[:end]), memoryview(body)[end:]
        if not isinstance(said, dict) or not isinstance(said.get("inputs"), list):
            raise BadQuery('an inference request has inputs: [{"name", "shape", "datatype", "data"}]')
        parameters = said.get("parameters", {})
        at = read_at(parameters.get("at", "") or exchange.headers.get("hetplan-at", ""))
        self._id: str | None = said.get("id")
        self._wanted = _wanted(said.get("outputs"))
        self._binary = bool(parameters.get("binary_data_output"))
        inputs = {}
        for one in said["inputs"]:
            inputs[one["name"]], rest = _read(one, rest)
        self.path, self.method, self.query = exchange.path, "POST", ""
        self.headers: dict[str, str] = {}
        self.body = json.dumps({"at": at, "inputs": inputs}).encode()

    @property
    def gone(self) -> bool:
        """Whether the client has hung up."""
        return self._exchange.gone

    @property
    def on_gone(self) -> Callable[[], None] | None:
        """What is called when the client hangs up."""
        return self._exchange.on_gone

    @on_gone.setter
    def on_gone(self, call: Callable[[], None] | None) -> None:
        self._exchange.on_gone = call

    def answer(self, status: int, body: bytes = b"", *, kind: bytes = b"", fields: bytes = b"") -> None:
        """The answer to the query, as this protocol writes it."""
        del kind
        said = json.loads(body) if body else {}
        if status != 200:
            why = said.get("why", "it failed")
            self._exchange.answer(status, json.dumps({"error": why}).encode(), fields=fields)
            return
        outputs = said.get("outputs")
        named = outputs if isinstance(outputs, dict) else {} if outputs is None else {"output": outputs}
        try:
            content, tail = self._written(named)
        except _UNREADABLE as error:
            self._exchange.answer(400, json.dumps({"error": str(error)}).encode(), fields=fields)
            return
        if tail:
            fields += f"{_LENGTH}: {len(content)}\r\n".encode()
            self._exchange.answer(200, content + tail, kind=b"application/octet-stream", fields=fields)
        else:
            self._exchange.answer(200, content, fields=fields)

    def _written(self, named: Mapping[str, Any]) -> tuple[bytes, bytes]:
        every: list[Mapping[str, Any]] = [{"name": name} for name in named]
        wanted = self._wanted if self._wanted is not None else every
        outputs, tail = [], b""
        for one in wanted:
            if one["name"] not in named:
                raise BadQuery(f"there is no output {one['name']!r}; there are {', '.join(named) or 'none'}")
            value = named[one["name"]]
            made = tensor(one["name"], value if isinstance(value, list) else [value])
            if one.get("parameters", {}).get("binary_data", self._binary):
                data = _bytes_of(made)
                tail += data
                del made["data"]
                made["parameters"] = {"binary_data_size": len(data)}
            outputs.append(made)
        said: dict[str, Any] = {"model_name": self._name, "model_version": "1", "outputs": outputs}
        if self._id is not None:
            said["id"] = self._id
        return json.dumps(said).encode(), tail


def _wanted(said: Any) -> list[Mapping[str, Any]] | None:
    """The outputs that a request names; None where it names none, and wants all."""
    if said is None:
        return None
    if not isinstance(said, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("parameters", {}), dict)
        for one in said
    ):
        raise BadQuery('outputs are objects with a name: [{"name": "y", "parameters": {"binary_data": true}}]')
    return said


def _read(said: Mapping[str, Any], rest: memoryview) -> tuple[Any, memoryview]:
    """The nested lists of a tensor, and the bytes that belong to those after it."""
    shape, datatype = [int(length) for length in said["shape"]], said["datatype"]
    size = said.get("parameters", {}).get("binary_data_size")
    if size is None:
        data = said["data"]
        while data and isinstance(data[0], list):
            data = [item for row in data for item in row]
    elif not isinstance(size, int) or not 0 <= size <= len(rest):
        raise BadQuery(f"{said['name']}: {size} bytes are announced and {len(rest)} came")
    else:
        data, rest = _values(said["name"], datatype, bytes(rest[:size])), rest[size:]
    if len(data) != prod(shape):
        raise BadQuery(f"{said['name']}: {len(data)} values for the shape {shape}")
    return _nested(data, shape), rest


def _values(name: str, datatype: str, content: bytes) -> list[Any]:
    import numpy as np

    if datatype == "BYTES":
        found, at = [], 0
        while at < len(content):
            length = int.from_bytes(content[at : at + 4], "little")
            found.append(content[at + 4 : at + 4 + length].decode("utf-8", "replace"))
            at += 4 + length
        return found
    if datatype not in _DTYPES:
        raise BadQuery(f"{name}: the datatype {datatype} is not known; there are {', '.join(_DTYPES)} and BYTES")
    values: list[Any] = np.frombuffer(content, dtype=_DTYPES[datatype]).tolist()
    return values


def _bytes_of(made: Mapping[str, Any]) -> bytes:
    import numpy as np

    if made["datatype"] == "BYTES":
        encoded = [str(one).encode() for one in made["data"]]
        return b"".join(len(one).to_bytes(4, "little") + one for one in encoded)
    return np.asarray(made["data"], dtype=_DTYPES[made["datatype"]]).tobytes()
