"""Measures one image through the two-step pipeline: the evaluator that `hetplan solve --evaluate` asks, line by line.

Each step runs a real model; the answer says whether the class was right, how long each step took, and what it sent on.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime

FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 else ".")


@cache
def session(name: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(FOLDER / f"{name}.onnx"), options)


@cache
def labelled() -> tuple[np.ndarray, np.ndarray]:
    with np.load(FOLDER / "labelled.npz") as content:
        return content["image"], content["labels"]


def timed(name: str, image: np.ndarray) -> tuple[int, float]:
    model = session(name)
    began = time.perf_counter()
    scores = np.asarray(model.run(None, {"image": image})[0])
    return int(scores.argmax()), time.perf_counter() - began


def measure(knobs: dict[str, str], index: int) -> dict[str, object]:
    """One image screened by the small model, then classified by the one that the knob names."""
    images, labels = labelled()
    place = index % len(labels)
    _, screening_s = timed("small", images[place : place + 1])
    found, classifying_s = timed(knobs["model"], images[place : place + 1])
    return {
        "score": float(found == labels[place]),
        "seconds": {"screen": screening_s, "classify": classifying_s},
        "bytes": {"screen": images[0].nbytes, "classify": 64},
        "input_bytes": images[0].nbytes,
    }


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(measure(asked["knobs"], asked["index"])), flush=True)
