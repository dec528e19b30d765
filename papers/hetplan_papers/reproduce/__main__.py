"""Published figures beside ours, question by question; exits 1 when a row is off.

    python -m hetplan_papers.reproduce pool --data DIR [--json] [--quick] [--threads N]

Each question has a module here with ``run(data, *, json, quick, threads) -> int``.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from hetplan_papers.datasets.sources import DATA

QUESTIONS = ("compound", "pipeline", "policy", "pool", "variants")


def main(argv: list[str]) -> int:
    """Run one question's figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the published data (or HETPLAN_DATA)")
    parser.add_argument("--json", action="store_true", help="rows as JSON instead of tables")
    parser.add_argument("--quick", action="store_true", help="fewer services and shorter runs, under a minute")
    parser.add_argument("--threads", type=int, default=1, help="simulations side by side")
    given = parser.parse_args(argv)
    module = importlib.import_module(f"hetplan_papers.reproduce.{given.question}")
    done = module.run(given.data.resolve(), json=given.json, quick=given.quick, threads=given.threads)
    return int(done)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
