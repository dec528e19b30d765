"""Constants of the five synthetic applications: hetplan's own, made to look like those of the Circinus paper.

Levels are relative compute (and size), effects are on accuracy. SR speech recognition, VT visual tracking, LVC live
video chat, DVC dense video captioning, ACG agentic code generation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["APPS", "BANDWIDTH", "GRID", "HOP_S", "PRICE", "STRATA", "TIERS", "Knob", "Step", "SyntheticApp"]

TIERS = ("device", "mec", "cloud")
PRICE = (0.0, 2.48, 3.67)
BANDWIDTH = (6.25e6, 50e6)
HOP_S = (0.008, 0.015)
GRID = (1.0, 0.75, 0.5, 0.25, 0.125)
STRATA = 8


@dataclass(frozen=True)
class Knob:
    """A knob: the relative compute of each level, and what it does to accuracy."""

    name: str
    levels: tuple[float, ...]
    effect: tuple[float, ...]


@dataclass(frozen=True)
class Step:
    """An operator: milliseconds on an A100 at full levels, the knobs that scale them, bytes out and theirs."""

    name: str
    ms: float
    compute: tuple[int, ...]
    bytes: float
    output: tuple[int, ...] = ()


@dataclass(frozen=True)
class SyntheticApp:
    """An application: knobs, operators in a chain, how samples scatter, and the fixed sample size of the baselines."""

    name: str
    bernoulli: bool
    sd: float
    knobs: tuple[Knob, ...]
    steps: tuple[Step, ...]
    fixed_samples: int
    seed: int


def _ramp(name: str, low: float, count: int, worst: float, power: float) -> Knob:
    """Levels evenly from `low` to 1, effects from `worst` to 0 by a power of what is missing."""
    missing = 1 - np.arange(count) / (count - 1)
    levels = tuple(float(v) for v in np.linspace(low, 1.0, count))
    return Knob(name, levels, tuple(float(v) for v in worst * missing**power))


APPS = {
    "SR": SyntheticApp(
        "SR", False, 0.22,
        (
            Knob("rate", (0.62, 0.75, 0.88, 1.0), (-0.1, -0.05, -0.02, 0.0)),
            Knob("mask", (1.0, 1.0, 1.0, 1.0), (0.0, 0.01, -0.01, -0.06)),
            Knob("model", (0.25, 0.6, 0.3, 0.7, 1.0), (-0.22, -0.08, -0.14, -0.02, 0.0)),
        ),
        (
            Step("sampler", 2, (0,), 320e3, (0,)),
            Step("denoiser", 12, (0, 1), 320e3, (0,)),
            Step("encoder", 180, (0, 2), 600e3, (0,)),
            Step("decoder", 90, (2,), 2e3),
        ),
        356, 165,
    ),
    "VT": SyntheticApp(
        "VT", False, 0.2,
        (
            Knob("frame", (1.0, 0.55, 0.25, 0.11), (0.0, -0.02, -0.09, -0.22)),
            Knob("det", (1.0, 0.09, 0.2, 0.5), (0.0, -0.16, -0.09, -0.03)),
            Knob("reid", (1.0, 0.75, 0.45, 0.2, 0.08), (0.0, -0.01, -0.03, -0.09, -0.13)),
        ),
        (
            Step("sampler", 3, (0,), 900e3, (0,)),
            Step("augment", 6, (0,), 900e3, (0,)),
            Step("detect", 120, (0, 1), 250e3, (0,)),
            Step("track", 60, (2,), 4e3),
        ),
        353, 170,
    ),
    "LVC": SyntheticApp(
        "LVC", True, 0.0,
        (
            Knob("frames", (0.2, 0.4, 0.6, 0.8, 1.0), (-0.15, -0.07, -0.03, -0.01, 0.0)),
            Knob("res", (0.1, 0.3, 1.0), (-0.12, -0.03, 0.0)),
            _ramp("mllm", 0.1, 17, -0.28, 1.5),
        ),
        (
            Step("sampler", 5, (0,), 2.5e6, (0, 1)),
            Step("imgproc", 25, (0, 1), 1.8e6, (0, 1)),
            Step("mllm", 1100, (0, 1, 2), 1e3),
        ),
        688, 229,
    ),
    "DVC": SyntheticApp(
        "DVC", False, 0.25,
        (
            Knob("rate", (0.25, 0.5, 0.75, 1.0), (-0.08, -0.03, -0.01, 0.0)),
            Knob("res", (0.3, 1.0), (-0.05, 0.0)),
            Knob("venc", (1.0, 0.5, 0.35, 0.6), (0.0, -0.005, -0.05, -0.02)),
            Knob("asr", (1.0, 0.5, 0.2), (0.0, -0.03, -0.09)),
            Knob("ckpt", (1.0, 1.0, 1.0), (-0.04, 0.0, -0.01)),
        ),
        (
            Step("asr", 600, (3,), 40e3),
            Step("sampler", 8, (0,), 3e6, (0, 1)),
            Step("vision", 500, (0, 1, 2), 400e3, (0,)),
            Step("vid2seq", 350, (4,), 2e3),
        ),
        365, 221,
    ),
    "ACG": SyntheticApp(
        "ACG", True, 0.0,
        (_ramp("analyzer", 0.1, 10, -0.12, 1.3), _ramp("coder", 0.08, 12, -0.4, 1.2)),
        (Step("analyze", 2500, (0,), 6e3), Step("code", 6000, (1,), 4e3)),
        252, 203,
    ),
}  # fmt: skip
"""The applications by their names."""
