"""ONNX files in a worker: batches joined and taken apart again, generated inputs, digests, children."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hetplan.executor.serving.frames import FAILED, SERVED
from hetplan.executor.serving.models import Result
from hetplan.executor.serving.query_body import Query

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def twice(folder: Path) -> Path:
    """y = 2 x, for any number of rows."""
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "x"], ["y"])], "twice",
        [value("x", TensorProto.FLOAT, ["rows", 2])], [value("y", TensorProto.FLOAT, ["rows", 2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "twice.onnx"
    onnx.save(model, path)
    return path


def serve(path: Path, queries: Sequence[Query], **fields: Any) -> list[Result]:
    from hetplan.executor.serving.onnx_model import OnnxModel

    made = {"path": str(path), "threads": 1, "providers": ["CPUExecutionProvider"], "sha256": None, "passes": {}}

    async def run() -> list[Result]:
        loop = asyncio.get_running_loop()
        model = OnnxModel({**made, **fields}, servers=1, cores=(), loop=loop)
        await model.prepare()
        answer: asyncio.Future[list[Result]] = loop.create_future()
        model.run(queries, lambda results: answer.set_result(list(results)))
        found = await answer
        model.close()
        return found

    return asyncio.run(run())


def exits(folder: Path) -> Path:
    """Says which of two inputs is larger: outcome 0 or 1."""
    from onnx import TensorProto, helper

    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("ArgMax", ["x"], ["exit"], axis=1, keepdims=0)], "exits",
        [value("x", TensorProto.FLOAT, ["rows", 2])], [value("exit", TensorProto.INT64, ["rows"])],
    )  # fmt: skip
    path = folder / "exits.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def test_an_output_says_what_each_answer_comes_to(tmp_path: Path) -> None:
    """Rows that disagree fail their own query, not the batch; a number beyond the names is passed on as it is."""
    queries = [Query({}, [[2, 1]]), Query({}, [[1, 2], [3, 4]]), Query({}, [[1, 2], [2, 1]])]
    made = serve(exits(tmp_path), queries, outcome="exit", outcomes=["sure", "unsure"])
    assert [(one.outcome, one.step_outcome) for one in made] == [(SERVED, "sure"), (SERVED, "unsure"), (FAILED, "")]
    assert b"2 outcomes" in made[2].body
    assert serve(exits(tmp_path), queries[1:2], outcome="exit", outcomes=["sure"])[0].step_outcome == "1"


def test_queries_of_a_batch_get_their_own_rows_back(tmp_path: Path) -> None:
    results = serve(
        twice(tmp_path), [Query({}, {"x": [[1, 2]]}), Query({}, {"x": [[3, 4], [5, 6]]}), Query({}, [[7, 8]])]
    )
    assert [json.loads(result.body)["y"] for result in results] == [[[2, 4]], [[6, 8], [10, 12]], [[14, 16]]]


def test_bytes_are_an_npy_file_and_no_pickle(tmp_path: Path) -> None:
    plain, pickled = io.BytesIO(), io.BytesIO()
    np.save(plain, np.ones((1, 2), np.float32))
    np.save(pickled, np.array([{"any": "object"}], dtype=object), allow_pickle=True)
    assert json.loads(serve(twice(tmp_path), [Query({}, plain.getvalue())])[0].body) == {"y": [[2, 2]]}
    assert serve(twice(tmp_path), [Query({}, pickled.getvalue())])[0].outcome == FAILED


def test_without_inputs_the_model_runs_on_zeros_of_the_size_asked_for(tmp_path: Path) -> None:
    assert serve(twice(tmp_path), [Query({"batch": 5.0})]) == [Result(SERVED)]


def test_an_output_can_be_split_into_what_follows(tmp_path: Path) -> None:
    (result,) = serve(twice(tmp_path), [Query({}, {"x": [[1, 2]]})], passes={"next": "y"})
    assert json.loads(result.children) == {"next": [{"inputs": [2.0]}, {"inputs": [4.0]}]}


def test_wrong_inputs_fail_the_query_with_the_reason(tmp_path: Path) -> None:
    (result,) = serve(twice(tmp_path), [Query({}, {"z": [[1, 2]]})])
    assert result.outcome == FAILED
    assert b"inputs are x; not x, z" in result.body


def test_the_file_must_be_the_one_that_the_plan_names(tmp_path: Path) -> None:
    path = twice(tmp_path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert serve(path, [Query({})], sha256=digest[:12])[0].outcome == SERVED
    with pytest.raises(ValueError, match="the plan wants 0000"):
        serve(path, [Query({})], sha256="0000")
    with pytest.raises(ValueError, match="lacks NoSuchProvider"):
        serve(path, [Query({})], providers=["NoSuchProvider"])
