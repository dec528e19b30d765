"""The figures that must not get worse: made once from the code of the day, and again only where a truth has changed.

usage: python tests/golden/record.py [NAME ...]      writes figures.json: what is missing, or what is named
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from build import EXAMPLES, PROBLEMS, Files, example, random_files
from face import Refused, simulate, solve, solved_example

FIGURES = Path(__file__).with_name("figures.json")
RANDOM = 10
"""Random wishes of each problem."""
FRESH = 771_001
"""The first seed of the runs that judge a plan: none that any planner draws from."""


def wishes() -> dict[str, Files]:
    """Every golden wish by name: "example NAME" and "PROBLEM NUMBER"."""
    shipped = {f"example {name}": example(name) for name in EXAMPLES}
    return shipped | {f"{name} {seed}": random_files(name, seed) for name in PROBLEMS for seed in range(RANDOM)}


def figures(name: str, sizing: str) -> dict[str, Any]:
    """What is kept of one plan; of one that promises to meet the SLO, what fresh seeds show, too."""
    wish = wishes()[name]
    answer = solved_example(name.split()[1], sizing) if name.startswith("example") else solve(wish, sizing)
    kept: dict[str, Any] = {"status": answer.status}
    kept["claims"] = {one.objective: [one.sense, one.value, one.bound] for one in answer.claims}
    if answer.plan is not None and sizing == "simulation":
        try:
            shown = simulate(answer.plan, wish, seeds=3, seed=FRESH)
        except Refused:
            return kept  # a fleet, or a packing of single queries: only the command plays the one, nothing the other
        kept["meets"] = shown.is_ok
        kept["violations"] = {app: round(one.value, 6) for app, one in shown.violation_rate.items()}
    return kept


def main() -> None:
    """Record the figures of the wishes that are asked for."""
    asked = sys.argv[1:]
    found = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for name in wishes():
        if name in asked or name.split()[0] in asked or (not asked and name not in found):
            found[name] = {sizing: figures(name, sizing) for sizing in ("fluid", "simulation")}
            print(name, json.dumps(found[name]), flush=True)
            lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(found[key])}" for key in found)
            FIGURES.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
