"""Where the published data lie, and how names of theirs become ids of ours."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

__all__ = ["DATA", "Json", "as_id", "present", "read"]

Json = dict[str, Any]

DATA = Path(os.environ.get("HETPLAN_DATA", Path(__file__).resolve().parents[3] / ".." / "shared" / "data")).resolve()
"""The folder of published data: `HETPLAN_DATA`, else `../shared/data` beside the project."""


def present(name: str, data: Path = DATA) -> bool:
    """Whether a data set (or a file of one) is there."""
    return (data / name).exists()


def read(name: str, data: Path = DATA) -> Any:
    """One JSON file of the data, such as "kairos/prices.json"."""
    return json.loads((data / name).read_text(encoding="utf-8"))


def as_id(name: str) -> str:
    """A published name as an id: lower case, what an id cannot hold replaced.

    >>> as_id("prajjwal1/bert-tiny"), as_id("genderNet_11")
    ('prajjwal1-bert-tiny', 'gendernet_11')
    """
    return re.sub(r"[^a-z0-9._-]+", "-", name.lower())
