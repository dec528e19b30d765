"""ONNX models of any size, made on the spot, and a module of callables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

CALLABLES = '''
import time

class Counted:
    """Sleeps as long as the point says, and remembers what it was asked."""

    def __call__(self, point):
        def run():
            time.sleep(point.get("batch", 1) * 1e-4)
            return {"bytes": 10 * point.get("batch", 1), "fanout": 2.5, "score": 0.5}
        return run

    def predict(self, inputs):
        return inputs["x"]

def load():
    return Counted()

def fails():
    raise RuntimeError("no such weights")

def half(outputs, labels):
    return [0.5] * len(labels)
'''


def write_model(path: Path, *, width: int = 8, features: int = 4, classes: int = 3, batch: str | int = "batch") -> None:
    """A perceptron whose highest output is the place of the highest of its first inputs."""
    middle = np.zeros((features, width), np.float32)
    middle[np.arange(classes), np.arange(classes)] = 1.0
    last = np.zeros((width, classes), np.float32)
    last[np.arange(classes), np.arange(classes)] = 1.0
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, features])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, classes])],
        [numpy_helper.from_array(middle, "w"), numpy_helper.from_array(last, "v")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


def write_labelled(path: Path, *, right: int = 15, count: int = 20) -> None:
    """Samples of which so many are labelled as the model sees them."""
    rng = np.random.default_rng(0)
    x = rng.random((count, 4), dtype=np.float32)
    labels = x[:, :3].argmax(axis=1)
    labels[right:] = (labels[right:] + 1) % 3
    np.savez(path, x=x, labels=labels)
