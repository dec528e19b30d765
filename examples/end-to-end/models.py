"""Three ONNX image classifiers of different size and quality, made on the spot: nothing is downloaded.

The task is to tell in which of eight directions a noisy grating runs. A model is a bank of random filters, twice, whose
mean responses feed a linear layer that is fitted to labelled samples: more filters cost more time and get more right.
So latency and accuracy are both real, and measured like those of any other model.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

SIDE, DIRECTIONS, NOISE = 48, 8, 4.5
FILTERS = {"small": 64, "medium": 144, "large": 240}


def images(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gratings of random direction, phase and width, with noise; and their directions."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, DIRECTIONS, count)
    angle = labels * np.pi / DIRECTIONS + random.uniform(-0.12, 0.12, count)
    phase, width = random.uniform(0, 2 * np.pi, count), random.uniform(4.0, 9.0, count)
    y, x = np.mgrid[:SIDE, :SIDE]
    along = x[None] * np.cos(angle)[:, None, None] + y[None] * np.sin(angle)[:, None, None]
    clean = np.sin(2 * np.pi * along / width[:, None, None] + phase[:, None, None])
    return (clean + NOISE * random.standard_normal(clean.shape))[:, None].astype(np.float32), labels


def write_model(path: Path, filters: int, *, fit_to: int) -> None:
    """Fit the last layer to so many samples, and write the model."""
    random = np.random.default_rng(filters)
    first = random.standard_normal((filters, 1, 7, 7)).astype(np.float32) / 7
    second = (random.standard_normal((filters, filters, 3, 3)) / (3 * np.sqrt(filters))).astype(np.float32)
    _save(path, first, second, None)
    x, labels = images(fit_to, seed=1)
    session = onnxruntime.InferenceSession(str(path))
    found = [np.asarray(session.run(None, {"image": x[i : i + 32]})[0]) for i in range(0, fit_to, 32)]
    features = np.concatenate(found)
    mean, scale = features.mean(axis=0), features.std(axis=0) + 1e-6
    scaled = (features - mean) / scale
    wanted = np.eye(DIRECTIONS)[labels] - 1 / DIRECTIONS
    weights = np.linalg.solve(scaled.T @ scaled + 0.1 * fit_to * np.eye(filters), scaled.T @ wanted) / scale[:, None]
    _save(path, first, second, (weights.astype(np.float32), (-mean @ weights).astype(np.float32)))


def _save(path: Path, first: np.ndarray, second: np.ndarray, last: tuple[np.ndarray, np.ndarray] | None) -> None:
    nodes = [
        helper.make_node("Conv", ["image", "first"], ["a"], pads=[3, 3, 3, 3]),
        helper.make_node("Abs", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["features"]),
    ]
    constants = [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")]
    if last is not None:
        nodes.append(helper.make_node("Gemm", ["features", "weights", "bias"], ["scores"]))
        constants += [numpy_helper.from_array(last[0], "weights"), numpy_helper.from_array(last[1], "bias")]
    name, size = ("scores", DIRECTIONS) if last is not None else ("features", len(second))
    graph = helper.make_graph(
        nodes,
        "gratings",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, SIDE, SIDE])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


def write_models(folder: Path, *, fit_to: int = 1200, labelled: int = 500) -> None:
    """The three models, and a labelled set to measure them on."""
    for name, filters in FILTERS.items():
        write_model(folder / f"{name}.onnx", filters, fit_to=fit_to)
    x, labels = images(labelled, seed=2)
    np.savez(folder / "labelled.npz", image=x, labels=labels)


if __name__ == "__main__":
    write_models(Path())
