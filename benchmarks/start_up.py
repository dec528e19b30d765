"""What a solve costs before and beside the mathematics: the command line from nothing, and a warm `Planner`.

usage: python benchmarks/start_up.py [--against CHECKOUT] [--rounds 7]

Prints CPU time (user and system): of `hetplan solve` on the README's example in a fresh process, and of `Planner.plan`
on it once warm. With `--against` the same is measured of another checkout in turns, so that the ratios hold whatever
else the machine does, and the files of the package that a solve enters are counted for both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ("examples/pool/profile.json", "examples/pool/slo.json")
OPTIONS = ("--set", "sizing=fluid")
"""The size that was the default when these figures were first taken."""

SOLVE = "from hetplan.cli import main; main()"
WARM = """
import json, sys, time
import hetplan as hp

planner = hp.Planner(sys.argv[1], sys.argv[2], options=json.loads(sys.argv[3]))
took = []
for _ in range(25):
    begun = time.process_time()
    planner.plan().require()
    took.append(1000 * (time.process_time() - begun))
print(sorted(took[5:])[10])
"""
ENTERED = """
import os, sys, threading
import hetplan

root, entered = os.path.dirname(hetplan.__file__) + os.sep, set()

def seen(frame, event, _):
    file = frame.f_code.co_filename
    if event == "call" and file.startswith(root) and frame.f_code.co_name != "<module>":
        entered.add(file)

threading.setprofile(seen)
sys.setprofile(seen)
from hetplan.cli.app import build_app
try:
    build_app()()
except SystemExit:
    pass
sys.setprofile(None)
print(len(entered), sum(sum(1 for _ in open(file)) for file in entered), file=sys.stderr)
"""


def run(tree: Path, code: str, *arguments: str) -> tuple[float, str, str]:
    """CPU seconds of a fresh Python in a checkout, and what it wrote."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return cpu_s, ran.stdout, ran.stderr


def options(tree: Path) -> tuple[str, ...]:
    """The options that a checkout knows of those wanted."""
    _, known, _ = run(tree, SOLVE, "list", "options", "pool")
    return OPTIONS if re.search(r"^ *size .*\bplanned\|", known, re.MULTILINE) else ()


def main() -> None:
    """Measure, print the figures and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, help="another checkout, such as a worktree of an earlier commit")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    trees = {"this": ROOT} | ({"other": given.against.resolve()} if given.against else {})
    settings = {name: options(tree) for name, tree in trees.items()}
    command: dict[str, list[float]] = {name: [] for name in trees}
    warm: dict[str, list[float]] = {name: [] for name in trees}
    entered = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.rounds):
            for name, tree in trees.items():
                asked = ("solve", *EXAMPLE, *settings[name], "-o", f"{folder}/plan.json")
                command[name].append(run(tree, SOLVE, *asked)[0])
                chosen = {"sizing": "fluid"} if settings[name] else {}
                warm[name].append(float(run(tree, WARM, *EXAMPLE, json.dumps(chosen))[1]))
        for name, tree in trees.items():
            asked = ("solve", *EXAMPLE, *settings[name], "-o", f"{folder}/plan.json")
            entered[name] = run(tree, ENTERED, *asked)[2].split()
    for name in trees:
        files, lines = entered[name]
        print(
            f"{name:>6}: hetplan solve {statistics.median(command[name]):.3f} CPU s (least {min(command[name]):.3f}), "
            f"Planner.plan warm {statistics.median(warm[name]):.1f} ms (least {min(warm[name]):.1f}), "
            f"{files} files entered, {lines} lines"
        )
    if given.against:
        of_command = statistics.median(a / b for a, b in zip(command["this"], command["other"], strict=True))
        of_warm = statistics.median(a / b for a, b in zip(warm["this"], warm["other"], strict=True))
        print(f" ratio: hetplan solve {of_command:.2f}, Planner.plan warm {of_warm:.2f}")


if __name__ == "__main__":
    main()
