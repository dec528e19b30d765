"""Some parts of the reproduction by themselves."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hetplan_papers.datasets.sources import DATA
from hetplan_papers.reproduce.policy import PARTS, run

parser = argparse.ArgumentParser(prog="python -m hetplan_papers.reproduce.policy_parts", description=__doc__)
parser.add_argument("--data", type=Path, default=DATA, help="folder of the published data (or HETPLAN_DATA)")
parser.add_argument("--only", nargs="+", choices=list(PARTS), default=(), metavar="PART", help=", ".join(PARTS))
parser.add_argument("--json", action="store_true", help="rows as JSON instead of tables")
parser.add_argument("--quick", action="store_true", help="fewer cases and shorter runs")
given = parser.parse_args()
sys.exit(run(given.data.resolve(), json=given.json, quick=given.quick, only=given.only))
