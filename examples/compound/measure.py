"""A stand-in for a tracking pipeline: answers one JSON line per sample, as `hetplan solve --evaluate` asks for them."""

from __future__ import annotations

import json
import random
import sys

SIZE = {640: 0.25, 960: 0.55, 1280: 1.0}
MODEL = {"n": (0.1, -0.14), "s": (0.25, -0.06), "m": (0.55, -0.02), "x": (1.0, 0.0)}


def measure(knobs: dict, stratum: int, index: int) -> dict:
    """One clip tracked, well or badly."""
    size, (compute, effect) = SIZE[knobs["size"]], MODEL[knobs["model"]]
    chance = 0.86 + effect - 0.12 * (1 - size) + 0.08 * (stratum - 1.5) / 1.5
    rng = random.Random(f"{knobs['size']}/{knobs['model']}/{index}")
    return {
        "score": float(rng.random() < chance),
        "seconds": {"sample": 0.004 * size, "detect": 0.16 * size**0.9 * compute**0.9, "track": 0.03},
        "bytes": {"sample": 900_000 * size, "detect": 60_000 * size, "track": 2_000},
        "input_bytes": 1_200_000 * size,
    }


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(measure(asked["knobs"], asked["stratum"], asked["index"])), flush=True)
