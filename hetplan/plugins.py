"""Parts of hetplan that other packages bring: entry points of the groups that `hetplan.registry` names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["BROKEN_PLUGINS", "plugins", "sound_plugins"]

BROKEN_PLUGINS: dict[str, str] = {}
"""Plugins that could not be loaded, and why; filled as they are met."""


def sound_plugins(group: str, own: Mapping[str, Any]) -> list[str]:
    """The plugins of a group that load; a broken one must not take the rest down (`hetplan doctor` names it)."""
    sound = []
    for name, point in sorted(plugins(group).items()):
        if name in own:
            continue
        try:
            point.load()
        except Exception as error:
            BROKEN_PLUGINS[f"{group}.{name}"] = f"{type(error).__name__}: {error}"
        else:
            sound.append(name)
    return sound


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group; looking through all that is installed takes milliseconds, so it is done once."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"hetplan.{group}")}
