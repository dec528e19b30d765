"""Model files have a place here and a place there: units as the far machine is told them, and as we know them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from hetplan.executor.units import LoadSpec, Seen, Unit

__all__ = ["FilePlaces"]


@dataclass(frozen=True)
class FilePlaces:
    """What lies below `here` on this machine lies below `there` on the far one; other paths are the same on both.

    >>> load = LoadSpec("w1.a", model={"kind": "onnx", "path": "/opt/shop/models/m.onnx"})
    >>> places = FilePlaces("/opt/shop", "/srv/shop")
    >>> unit = places.told(Unit("w1-0-4df5b1", "w1", 0, "t4", "far", "box", loads=(load,)))
    >>> unit.loads[0].model["path"]
    '/srv/shop/models/m.onnx'
    >>> places.known(unit).loads == (load,)
    True
    """

    here: str
    there: str

    def told(self, unit: Unit) -> Unit:
        """The unit with its files where they lie there."""
        return _moved(unit, self.here, self.there)

    def known(self, unit: Unit) -> Unit:
        """The unit with its files where they lie here."""
        return _moved(unit, self.there, self.here)

    def seen(self, seen: Seen) -> Seen:
        """What the far machine saw, its content as ours is counted."""
        if seen.unit is None:
            return seen
        unit = self.known(seen.unit)
        return replace(seen, unit=unit, content=unit.content if seen.content == seen.unit.content else seen.content)


def _moved(unit: Unit, origin: str, goal: str) -> Unit:
    return replace(unit, loads=tuple(replace(load, model=_model(load, origin, goal)) for load in unit.loads))


def _model(load: LoadSpec, origin: str, goal: str) -> Mapping[str, Any]:
    path = PurePosixPath(str(load.model.get("path", "")))
    if "path" not in load.model or not path.is_relative_to(origin):
        return load.model
    return {**load.model, "path": str(goal / path.relative_to(origin))}
