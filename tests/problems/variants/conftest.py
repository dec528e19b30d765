"""Lets these tests import the shared cases (`tests/cases/`) as `cases`, and the datasets of `papers/`."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
