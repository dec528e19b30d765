"""A target: hands workers over to your own deployment tool, through a folder.

::

    hetplan apply --> wanted/NAME.json --> your tool starts, changes and stops workers
    hetplan apply <-- running/NAME.json <-- your tool says what runs, and where

A target gets units (one worker each) by name and content, and never a plan. What runs is the truth: `observe` asks, and
remembers nothing. Every call may be repeated. A call that fails raises `TargetFailed` and leaves what ran as it was.
Of a cluster with an HTTP API, replace the two folders by its calls. site.toml says::

    [targets.site]
    kind = "handover"
    settings = {folder = "handover"}
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hetplan.extend import Endpoint, SeenUnit, Setting, TargetFailed, Unit

__all__ = ["Handover"]

ROUTER = "router"
"""The name of its file. Units are called WORKER-NUMBER-DIGITS, so none has it."""
CALL_S = 30.0
"""Your tool may take so long to end a worker, beyond the time that its queries get."""
LOOK_EVERY_S = 0.02
"""How often `running` is read while something is waited for."""


class Handover:
    """Workers of another tool."""

    kind: ClassVar[str] = "handover"

    def __init__(self, setting: Setting) -> None:
        self.name = setting.name
        folder = Path(setting.site.path(str(setting.settings.get("folder", "handover"))))
        self.wanted, self.running = folder / "wanted", folder / "running"

    def check(self, units: Sequence[Unit]) -> list[str]:
        """Why the units could not run here; it touches nothing."""
        del units
        return [f"{self.name}: there is no folder {one}" for one in (self.wanted, self.running) if not one.is_dir()]

    def observe(self) -> tuple[SeenUnit, ...]:
        """What your tool says that runs now."""
        return tuple(seen(name, said) for name, said in read(self.running).items() if name != ROUTER)

    def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Have units run, and return where; those that run already are left alone."""
        before, content = read(self.wanted), {unit.name: unit.content for unit in units}
        for unit in units:
            write(self.wanted, unit.name, {"unit": unit.as_dict(), "content": unit.content})
        try:
            said = self.wait(
                limit_s, content, lambda one: bool(one.get("ready")) and one["content"] == content[one["name"]]
            )
        except TargetFailed:
            for name in content:
                if name in before:
                    write(self.wanted, name, before[name])
            self.stop([name for name in content if name not in before], drain_s=0.0)
            raise
        return {name: endpoint(said[name]) for name in content}

    def load(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Have running units hold other models; to your tool that is the same wish."""
        return self.start(units, limit_s=limit_s)

    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        """Stop units, and return when they are gone."""
        for name in names:
            (self.wanted / f"{name}.json").unlink(missing_ok=True)
        self.wait(drain_s + CALL_S, names, None)

    def route(self, routes: Mapping[str, Any] | None, *, limit_s: float) -> None:
        """Have the router follow these routes; None stops it."""
        if routes is None:
            self.stop([ROUTER], drain_s=limit_s)
            return
        write(self.wanted, ROUTER, {"routes": dict(routes)})
        self.wait(limit_s, [ROUTER], lambda one: bool(one["routes"]["revision"] == routes["revision"]))

    def routed(self) -> Mapping[str, Any] | None:
        """The routes that the router follows now."""
        said = read(self.running).get(ROUTER)
        return None if said is None else said["routes"]

    def down(self, *, drain_s: float) -> None:
        """Stop everything."""
        self.stop([*read(self.wanted), *read(self.running)], drain_s=drain_s)

    def close(self) -> None:
        """There is no connection to let go of."""

    def wait(
        self, limit_s: float, names: Iterable[str], is_done: Callable[[Mapping[str, Any]], bool] | None
    ) -> dict[str, Any]:
        """Wait until `is_done` holds of what is said of each name; with None until none of them is there."""
        until = time.monotonic() + limit_s
        while True:
            said = read(self.running)
            if is_done is None:
                left = [name for name in names if name in said]
            else:
                left = [name for name in names if name not in said or not is_done(said[name])]
            if not left:
                return said
            failed = [name for name in left if is_done is not None and "failed" in said.get(name, {})]
            if failed:
                raise TargetFailed(self.name, failed[0], said[failed[0]]["failed"])
            if time.monotonic() > until:
                raise TargetFailed(self.name, left[0], f"your tool did not report it within {limit_s:g} s")
            time.sleep(LOOK_EVERY_S)


def read(folder: Path) -> dict[str, Any]:
    """The documents of a folder, by name."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = {"name": path.stem, **json.loads(path.read_text())}
        except FileNotFoundError:
            continue  # it was removed meanwhile
    return found


def write(folder: Path, name: str, document: Mapping[str, Any]) -> None:
    """Write a document so that nobody reads half of it."""
    part = folder / f".{name}.part"
    part.write_text(json.dumps(document))
    os.replace(part, folder / f"{name}.json")


def endpoint(said: Mapping[str, Any]) -> Endpoint:
    """Where the router reaches a unit."""
    return Endpoint(said["address"], said["port"])


def seen(name: str, said: Mapping[str, Any]) -> SeenUnit:
    """A unit as your tool reports it."""
    ready = said.get("ready", False)
    return SeenUnit(
        name=name,
        content=said.get("content", ""),
        status="ready" if ready else "starting",
        endpoint=endpoint(said) if ready else None,
        unit=Unit.from_dict(said["unit"]) if "unit" in said else None,
        why=said.get("why", ""),
    )
