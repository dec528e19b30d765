"""New rows for the world's arrays, collected until they are appended together."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from hetplan.simulator.world_kernels import ENTITIES, PART, World

__all__ = ["RowWriter"]

_PLAIN = {"numbers": np.float64, "indices": np.int64}


class RowWriter:
    """Collects records and plain numbers; `flush` appends them to what is there."""

    def __init__(self) -> None:
        self.fresh: dict[str, list[Any]] = defaultdict(list)
        self.size: dict[str, int] = defaultdict(int)

    def add(self, table: str, **fields: Any) -> int:
        """Append a record, zero but for these fields, and return its number."""
        record = np.zeros((), ENTITIES[table])
        for name, value in fields.items():
            record[name] = value
        self.fresh[table].append(record)
        self.size[table] += 1
        return self.size[table] - 1

    def extend(self, table: str, values: Any) -> int:
        """Append plain numbers to `numbers` or `indices`, and return the place of the first."""
        start = self.size[table]
        plain = np.asarray(values, dtype=_PLAIN[table]).ravel()
        self.fresh[table].append(plain)
        self.size[table] += len(plain)
        return start

    def flush(self, world: World) -> World:
        """The world with everything added since the last time."""
        wanted = max(self.size[name] for name in ENTITIES)
        parts = world.parts
        if wanted > len(parts):
            parts = np.zeros(max(wanted, 2 * len(parts)), PART)
            parts[: len(world.parts)] = world.parts
        for name in ENTITIES:
            records = self.fresh.pop(name, [])
            if records:
                parts[name][self.size[name] - len(records) : self.size[name]] = np.array(records, ENTITIES[name])
        return world._replace(
            parts=parts,
            numbers=np.concatenate([world.numbers, *self.fresh.pop("numbers", [])]),
            indices=np.concatenate([world.indices, *self.fresh.pop("indices", [])]),
        )
