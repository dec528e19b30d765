"""ONNX files served by onnxruntime: one session per load, one thread per server, batches joined along the first axis.

A query's inputs are ``{"name": nested lists}``, or, where the model has one input, the bytes of an .npy file. A query
without inputs is run on zeros of the size that its `at` says (`batch` for the first axis, other free axes by their
names), and gets no outputs back: that is how a load generator asks.
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.executor.serving.frames import FAILED, SERVED
from hetplan.executor.serving.models import Done, Result, as_outcome
from hetplan.executor.serving.query_body import Query

__all__ = ["OnnxModel"]

Array = NDArray[Any]
_TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16,
    "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}  # fmt: skip


class OnnxModel:
    """One ONNX file, ready to serve batches."""

    def __init__(
        self, made: Mapping[str, Any], *, servers: int, cores: Sequence[int], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._made, self._cores, self._loop = made, tuple(cores), loop
        self._threads = made["threads"] or max(len(self._cores), 1)
        self._pool = ThreadPoolExecutor(servers, thread_name_prefix="batch")
        self._session: Any = None
        self._inputs: dict[str, Any] = {}
        self._zeros: dict[tuple[str, tuple[int, ...]], Array] = {}

    async def prepare(self) -> None:
        """Check the file's digest, make the session, run it once."""
        await self._loop.run_in_executor(self._pool, self._open)

    def run(self, queries: Sequence[Query], done: Done) -> None:
        """Serve a batch in a thread of its own."""

        def work() -> None:
            try:
                results = self._served(queries)
            except Exception as error:
                # Whatever the runtime raises about these inputs is an answer to who sent them.
                results = [Result(FAILED, b"", f"{type(error).__name__}: {error}"[:500].encode())] * len(queries)
            self._loop.call_soon_threadsafe(done, results)

        self._pool.submit(work)

    def close(self) -> None:
        """End the threads once they are idle."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> None:
        import onnxruntime

        content = Path(self._made["path"]).read_bytes()
        wanted = self._made["sha256"]
        found = hashlib.sha256(content).hexdigest()
        if wanted and not found.startswith(wanted):
            raise ValueError(f"{self._made['path']} has digest {found[:16]}..., the plan wants {wanted}")
        missing = set(self._made["providers"]) - set(onnxruntime.get_available_providers())
        if missing:
            raise ValueError(f"this onnxruntime lacks {', '.join(sorted(missing))}")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        # Threads that spin while they wait would take the router's and other workers' cores.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(content, options, providers=self._made["providers"])
        self._inputs = {one.name: one for one in self._session.get_inputs()}
        self._served([Query({})])

    def _served(self, queries: Sequence[Query]) -> list[Result]:
        rows = [max(int(query.at.get("batch", 1.0)), 1) for query in queries]
        feeds = [self._feed(query, count) for query, count in zip(queries, rows, strict=True)]
        rows = [len(next(iter(feed.values()))) for feed in feeds]
        joined = feeds[0] if len(feeds) == 1 else {
            name: np.concatenate([feed[name] for feed in feeds]) for name in self._inputs
        }  # fmt: skip
        names = [one.name for one in self._session.get_outputs()]
        outputs = dict(zip(names, self._session.run(names, joined), strict=True))
        results, start = [], 0
        for query, count in zip(queries, rows, strict=True):
            own = {name: value[start : start + count] for name, value in outputs.items()}
            start += count
            answer = b"" if query.inputs is None else _json(own)
            try:
                results.append(Result(SERVED, self._children(own), answer, self._outcome(own)))
            except ValueError as error:
                results.append(Result(FAILED, b"", str(error).encode()))
        return results

    def _outcome(self, outputs: Mapping[str, Array]) -> str:
        """What the answer comes to, by the output that says it: a name, or the number of one of `outcomes`."""
        if self._made.get("outcome") is None:
            return ""
        said = set(outputs[self._made["outcome"]].ravel().tolist())
        if len(said) != 1:
            raise ValueError(f"the rows of one query come to {len(said)} outcomes; send them as queries of their own")
        (one,) = said
        names: Sequence[str] = self._made["outcomes"]
        if not isinstance(one, str):
            return names[int(one)] if 0 <= int(one) < len(names) else as_outcome(one)
        return as_outcome(one)

    def _children(self, outputs: Mapping[str, Array]) -> bytes:
        passes: Mapping[str, str] = self._made["passes"]
        if not passes:
            return b""
        said = {
            child: [{"inputs": row[None].tolist()} for row in outputs[name].reshape(-1, *outputs[name].shape[2:])]
            for child, name in passes.items()
        }
        return json.dumps(said).encode()

    def _feed(self, query: Query, rows: int) -> dict[str, Array]:
        if query.inputs is None:
            return {name: self._zero(one, query.at, rows) for name, one in self._inputs.items()}
        given = query.inputs
        if isinstance(given, bytes):
            given = np.load(io.BytesIO(given), allow_pickle=False)
        if not isinstance(given, Mapping):
            if len(self._inputs) != 1:
                raise ValueError(f"inputs are named: {', '.join(self._inputs)}")
            given = dict.fromkeys(self._inputs, given)
        unknown = set(given) ^ set(self._inputs)
        if unknown:
            raise ValueError(f"inputs are {', '.join(self._inputs)}; not {', '.join(sorted(unknown))}")
        return {name: np.asarray(given[name], dtype=_TYPES[one.type]) for name, one in self._inputs.items()}

    def _zero(self, one: Any, at: Mapping[str, float], rows: int) -> Array:
        free: Callable[[Any], int] = lambda name: max(int(at.get(str(name), 1.0)), 1)  # noqa: E731
        shape = tuple(
            (size if isinstance(size, int) else rows if place == 0 else free(size))
            for place, size in enumerate(one.shape)
        )
        zeros = self._zeros.get((one.name, shape))
        if zeros is None:
            zeros = self._zeros[one.name, shape] = np.zeros(shape, dtype=_TYPES[one.type])
        return zeros


def _json(outputs: Mapping[str, Array]) -> bytes:
    return json.dumps({name: value.tolist() for name, value in outputs.items()}).encode()
