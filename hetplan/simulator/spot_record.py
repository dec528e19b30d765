"""How many spot machines could be had over time, as somebody recorded it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hetplan.errors import InputError

__all__ = ["SpotRecord", "read_spot"]


@dataclass(frozen=True)
class SpotRecord:
    """How many spot machines could be had, every `gap_s`; `most` is the highest number."""

    gap_s: float
    available: tuple[int, ...]

    @property
    def most(self) -> int:
        """The highest number."""
        return max(self.available, default=0)

    def share(self, at_s: float) -> float:
        """Which share of them there is at a moment; after the end the record begins again."""
        return self.available[int(at_s / self.gap_s) % len(self.available)] / max(self.most, 1)


def read_spot(path: Path) -> SpotRecord:
    """A record of availability as JSON: `metadata.gap_seconds` and `data`."""
    try:
        held = json.loads(path.read_text())
        gap, data = float(held["metadata"]["gap_seconds"]), tuple(int(one) for one in held["data"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError.one(
            file=str(path), why=f"no record of spot machines: {error}",
            remedy='Write {"metadata": {"gap_seconds": 300}, "data": [16, 16, 12, ...]}.',
        ) from None  # fmt: skip
    if not (gap > 0 and data and min(data) >= 0):
        raise InputError.one(file=str(path), why="gaps are above 0 s, counts are 0 or more", remedy="Record it anew.")
    return SpotRecord(gap, data)
