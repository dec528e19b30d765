"""Parts of hetplan that other packages bring: what is installed beside it, by group (`GROUPS`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUPS", "broken_plugin", "plugins", "sound_plugins"]

GROUPS = ("problems", "formulations", "solvers", "checks", "targets", "importers")
"""What other packages may bring."""


def sound_plugins(group: str, own: Mapping[str, Any]) -> list[str]:
    """The plugins of a group that load; a broken one must not take the rest down (`hetplan doctor` names it)."""
    return [name for name, point in sorted(plugins(group).items()) if name not in own and not broken_plugin(point)]


def broken_plugin(point: EntryPoint) -> str:
    """Why a plugin does not load; empty where it does."""
    try:
        point.load()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group; looking through all that is installed takes milliseconds, so it is done once."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"hetplan.{group}")}
