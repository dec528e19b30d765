"""What a place to run things must be able to do. `hetplan.testing.check_target` tries a target on all of it.

A target is given units by name and content; it never sees a plan. Every call is bounded in time, every call may be
repeated: starting what runs, or stopping what does not, is no fault. What is on the hosts is the truth: `observe` asks
them, it does not read a note of what was once done. A call that fails raises `TargetFailed` and leaves alone what ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from hetplan.errors import HostsError
from hetplan.executor.site import Site
from hetplan.executor.units import Endpoint, Seen, Unit

__all__ = [
    "ApplyFailed",
    "DeploymentLocked",
    "Setting",
    "SettlingTarget",
    "Target",
    "TargetFailed",
    "TargetRefused",
]


@dataclass(frozen=True)
class Setting:
    """All that a target is made from: its name, site.toml, its own folder in the state directory, its settings."""

    name: str
    site: Site
    folder: Path
    settings: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Target(Protocol):
    """A place where units run. Made by calling the class with one `Setting`; registered as `kind -> class`."""

    kind: ClassVar[str]
    name: str

    def check(self, units: Sequence[Unit]) -> list[str]:
        """Why these units could not run here together, one line per reason; touches nothing.

        Here belong shares that nothing on the host enforces, missing commands and files, and bad settings.
        """
        ...

    def observe(self) -> tuple[Seen, ...]:
        """What runs now and how it is, dying and half-started units included."""
        ...

    def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Start units, side by side; returns when all of them answer as healthy. What runs already is left alone."""
        ...

    def load(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Bring running units to hold these loads; those that stay are not interrupted."""
        ...

    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        """Stop units: each may finish what it has for `drain_s`, then it is ended. Returns when they are gone."""
        ...

    def route(self, routes: Mapping[str, Any] | None, *, limit_s: float) -> None:
        """Have the router run and follow these routes (`routing_table.RoutingTable.as_dict`); None stops it.

        Called only on the target that site.toml names for the router. Returns when the router follows them.
        """
        ...

    def routed(self) -> Mapping[str, Any] | None:
        """The routes that the router follows now; None where no router runs."""
        ...

    def down(self, *, drain_s: float) -> None:
        """Stop everything of this deployment, the target's own helpers included; nothing is left behind."""
        ...

    def close(self) -> None:
        """Let go of connections; what runs goes on."""
        ...


@runtime_checkable
class SettlingTarget(Protocol):
    """A target that goes on with what it was asked for when the apply that asked is killed."""

    def settle(self, *, limit_s: float) -> None:
        """Wait until nothing is under way: from then on `observe` sees what will stay. What runs is watched again."""
        ...


class ApplyFailed(HostsError):
    """The wanted state could not be reached; `undone` says whether what ran before runs again."""

    def __init__(self, why: str, *, undone: bool = False) -> None:
        self.why, self.undone = why, undone
        super().__init__(why)


class TargetFailed(ApplyFailed):
    """One target could not do one thing: which target, what it was about (a unit, the router), and why.

    >>> str(TargetFailed("local", "w1-0-5f3a", "port 9000 is taken"))
    'target local, w1-0-5f3a: port 9000 is taken'
    """

    def __init__(self, target: str, about: str, why: str) -> None:
        self.target, self.about, self.cause = target, about, why
        super().__init__(": ".join((", ".join(part for part in (f"target {target}", about) if part), why)))


class TargetRefused(TargetFailed):
    """A target saw that it may not do this, before it touched anything."""


class DeploymentLocked(ApplyFailed):
    """Another apply holds the deployment; `holder` says which."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(f"another command holds this deployment: {holder}. Wait for it with --wait SECONDS.")
