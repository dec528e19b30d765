"""The far end of an ssh target: one call on standard input, done by a local target, its reply on standard output.

Run as ``python -m hetplan.executor.ssh.far``, with no arguments. It holds nothing: what it starts lives on without it,
and the next call finds it running. Only data comes in: no word of a plan is ever part of a command.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hetplan.executor.site import read_site
from hetplan.executor.target import Setting, SettlingTarget, Target, TargetFailed
from hetplan.executor.units import Unit

__all__ = ["answer", "own_version"]


def own_version() -> str:
    """The version of the hetplan at this end; both ends have the same."""
    try:
        return version("hetplan")
    except PackageNotFoundError:
        return "unknown"


def answer(message: Mapping[str, Any], make: Callable[[Setting], Target]) -> dict[str, Any]:
    """Do what a message asks: its `reply`, or about what it `failed` and why."""
    try:
        if message["hetplan"] != own_version():
            why = f"hetplan is {own_version()} there and {message['hetplan']} here; install the same version"
            raise TargetFailed(message["name"], "hetplan", why)
        folder = (Path.home() / str(message["folder"])).resolve() / str(message["deployment"])
        folder.mkdir(parents=True, exist_ok=True)
        site = read_site(message["site"]).lying_in(folder)
        target = make(Setting(message["name"], site, folder / message["name"], message["settings"]))
        try:
            with _alone(folder / f"{message['name']}.agent-lock"):
                return {"reply": _called(target, message)}
        finally:
            target.close()
    except TargetFailed as error:
        return {"failed": {"about": error.about, "why": error.cause}}
    except Exception as error:
        return {"failed": {"about": str(message.get("call")), "why": f"{type(error).__name__}: {error}"}}


def _called(target: Target, message: Mapping[str, Any]) -> Any:
    call = message["call"]
    units = [Unit.from_dict(unit) for unit in message.get("units", ())]
    if call == "check":
        return target.check(units)
    if call == "settle":
        return target.settle(limit_s=message["limit_s"]) if isinstance(target, SettlingTarget) else None
    if call == "observe":
        return [
            {**asdict(seen), "unit": seen.unit.as_dict() if seen.unit is not None else None}
            for seen in target.observe()
        ]
    if call in ("start", "load"):
        started = (target.start if call == "start" else target.load)(units, limit_s=message["limit_s"])
        return {name: asdict(endpoint) for name, endpoint in started.items()}
    if call == "stop":
        return target.stop(message["names"], drain_s=message["drain_s"])
    if call == "route":
        return target.route(message["routes"], limit_s=message["limit_s"])
    if call == "routed":
        return target.routed()
    if call == "down":
        return target.down(drain_s=message["drain_s"])
    raise TargetFailed(target.name, str(call), "there is no such call; is hetplan older there than here?")


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """No second call at once: one whose connection broke may still be at work."""
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _main() -> None:
    from hetplan.executor.local import Local

    # Whatever else writes to standard output must not end up in the reply.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(BrokenPipeError, KeyboardInterrupt):
        replies.write(json.dumps(answer(json.load(sys.stdin.buffer), Local), allow_nan=False).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    _main()
