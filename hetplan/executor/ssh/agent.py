"""The far end of an ssh target: reads calls as JSON lines, has a local target do them, writes replies.

Started as ``python -m hetplan.executor.ssh.agent``, with no arguments; the first line says for which deployment. It
holds nothing itself: what it starts lives on without it, and the next one finds it running. It ends with its input.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from hetplan.executor.hosts_file import read_hosts
from hetplan.executor.ssh.wire import answer, line_of, own_version
from hetplan.executor.target import Setting, Target

__all__ = ["serve"]


def serve(calls: IO[bytes], replies: IO[bytes], make: Callable[[Setting], Target]) -> None:
    """Answer until the calls end. Each reply is written before the next call is read."""
    target: Target | None = None
    lock = Path()
    try:
        for line in calls:
            message = json.loads(line)
            if message["call"] == "hello":
                reply, target = _hello(message, make)
                lock = _folder_of(message) / f"{message['name']}.agent-lock"
            elif target is None:
                reply = {"failed": {"about": "hello", "why": "the first line says for which deployment it is"}}
            else:
                with _alone(lock):
                    reply = answer(target, message)
            replies.write(line_of(reply))
            replies.flush()
    finally:
        if target is not None:
            target.close()


def _hello(message: dict[str, Any], make: Callable[[Setting], Target]) -> tuple[dict[str, Any], Target | None]:
    if message["hetplan"] != own_version():
        why = f"hetplan is {own_version()} there and {message['hetplan']} here; install the same version"
        return {"failed": {"about": "hello", "why": why}}, None
    folder = _folder_of(message)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hosts = read_hosts(message["hosts"]).model_copy(update={"folder": folder})
        target = make(Setting(message["name"], hosts, folder / message["name"], message["settings"]))
    except Exception as error:
        return {"failed": {"about": "hello", "why": f"{type(error).__name__}: {error}"}}, None
    return {"reply": {"hetplan": own_version(), "pid": os.getpid()}}, target


def _folder_of(message: dict[str, Any]) -> Path:
    return (Path.home() / str(message["folder"])).resolve() / str(message["deployment"])


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """No second call at once: an agent whose connection broke may still be at work on its last one."""
    with lock.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _main() -> None:
    from hetplan.executor.local import Local

    # Whatever else writes to standard output must not end up between two replies.
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        serve(sys.stdin.buffer, replies, Local)
    except (BrokenPipeError, KeyboardInterrupt):
        os._exit(0)


if __name__ == "__main__":
    _main()
