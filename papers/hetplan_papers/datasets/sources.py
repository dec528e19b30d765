"""Where the published data lie, and how names of theirs become ids of ours."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import hetplan as hp

__all__ = ["DATA", "Json", "as_id", "handed_on", "planned", "present", "read"]

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


def planned(profile: Json) -> hp.Profile:
    """A profile in the sections that are planned with, as these data are turned into, ready to be handed on."""
    return hp.Profile.model_validate(profile)


def handed_on(files: tuple[Json, ...]) -> tuple[Any, ...]:
    """A profile and what comes with it, as they are handed on."""
    profile, *others = files
    return planned(profile), *others
