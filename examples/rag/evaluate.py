"""The evaluator: answers one question after the other, and says whether each was right and what every step took.

Each step is a process of its own that is asked as the one that `hetplan apply` starts, so that what a line of JSON
takes there and back counts too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import operators

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "."
SERVE = str(Path(__file__).resolve().parent / "serve.py")


class Step:
    """One step, running."""

    def __init__(self, name: str) -> None:
        self.name = name
        command = [sys.executable, SERVE, FOLDER, name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, message: dict | None, knobs: dict) -> dict:
        """What it makes of a message; None asks whether it is ready."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        mine = {knob: knobs[knob] for knob in operators.READS[self.name]}
        inputs = [] if message is None else [message]
        self.process.stdin.write(json.dumps({"knobs": mine, "inputs": inputs}) + "\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        if message is None:
            return {}
        children = said.get("children", [{}])[0]
        return next(iter(children.values()))[0]["inputs"] if children else said["outputs"][0]


def measure(steps: list[Step], knobs: dict, index: int) -> dict:
    said, answer = operators.question(index)
    message: dict = {"question": said}
    seconds, sizes, incoming = {}, {}, len(json.dumps(message))
    for step in steps:
        step.ask(None, knobs)
        began = time.perf_counter()
        message = step.ask(message, knobs)
        seconds[step.name], sizes[step.name] = time.perf_counter() - began, len(json.dumps(message))
    return {"score": float(message["answer"] == answer), "seconds": seconds, "bytes": sizes, "input_bytes": incoming}


if __name__ == "__main__":
    running = [Step(name) for name in operators.STEPS]
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(measure(running, asked["knobs"], asked["index"])), flush=True)
