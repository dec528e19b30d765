"""One command at a time changes a deployment in a cluster, whichever machine and folder it is run from.

A Lease says who is at work. It is taken before anything is touched, renewed while the command works, and deleted at its
end, each time only if it is still as it was read. That of a command that was killed lapses; one from the same state
folder is taken at once, since the folder's own lock says that its holder has ended.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from hetplan.executor.apply.kubectl import NAME, Kubectl
from hetplan.executor.render.names import Json
from hetplan.executor.target import DeploymentLocked, TargetFailed

__all__ = ["LAPSES_S", "Lease"]

LAPSES_S = 30
"""A Lease that was not renewed for so long has no holder any more."""

_RENEWED_S = 8.0
_LOOK_S = 0.5
_ID, _HOME = "hetplan/command", "hetplan/state-folder"
_FORM = "%Y-%m-%dT%H:%M:%S.%fZ"


class Lease:
    """Held within a `with` block; `DeploymentLocked` names who holds it, since when, and what can be done."""

    def __init__(
        self, kubectl: Kubectl, name: str, marks: Mapping[str, str], *, what: str, home: Path, wait_s: float = 0.0
    ) -> None:
        self._kubectl, self.name, self._wait_s = kubectl, name, wait_s
        self._notes = {_ID: uuid.uuid4().hex, _HOME: f"{socket.gethostname()}:{home.resolve()}"}
        self._labels = dict(marks)
        self._holder = f"{what}, process {os.getpid()} of {_user()} on {socket.gethostname()}"
        self._since = _now()
        self._held: Json = {}
        self._lost = ""
        self._ended = threading.Event()
        self._renewing = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Lease:
        until = time.monotonic() + self._wait_s
        while (held := self._try()) is None:
            there = self._read()
            if there is not None and self._is_dead(there):
                held = self._put(self._kubectl.replace, there["metadata"]["resourceVersion"])
                if held is not None:
                    break
            if there is not None and time.monotonic() >= until:
                raise DeploymentLocked(self._described(there))
            time.sleep(_LOOK_S)
        self._held = held
        self._renewing.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._renewing.join()
        with suppress(TargetFailed):
            self._kubectl.delete_exactly(self._path, self._held["metadata"]["resourceVersion"], about=self.name)

    def check(self) -> None:
        """`TargetFailed` where somebody else has taken the Lease: nothing may be changed any more."""
        if self._lost:
            raise TargetFailed(NAME, self.name, self._lost)

    @property
    def _path(self) -> str:
        namespace = self._kubectl.site.namespace
        return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{self.name}"

    def _try(self) -> Json | None:
        made = self._put(self._kubectl.create, None)
        if made is not None:
            return made
        # Made by a call of ours whose answer was lost.
        there = self._read()
        mine = there is not None and _notes(there).get(_ID) == self._notes[_ID]
        return there if mine else None

    def _put(self, how: Any, version: str | None) -> Json | None:
        made: Json | None = how(self._manifest(version))
        return made

    def _read(self) -> Json | None:
        return self._kubectl.one("leases.coordination.k8s.io", self.name)

    def _manifest(self, version: str | None) -> Json:
        metadata: Json = {"name": self.name, "namespace": self._kubectl.site.namespace}
        metadata |= {"labels": self._labels, "annotations": self._notes}
        metadata |= {"resourceVersion": version} if version is not None else {}
        spec = {
            "holderIdentity": self._holder, "leaseDurationSeconds": LAPSES_S, "acquireTime": self._since,
            "renewTime": _now(),
        }  # fmt: skip
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}

    def _is_dead(self, there: Json) -> bool:
        """Whether its holder has ended. Clocks may differ: what looks too old must also stay as it is for a while."""
        if _notes(there).get(_HOME) == self._notes[_HOME]:
            return True
        spec = there.get("spec", {})
        try:
            age_s = (
                datetime.now(UTC) - datetime.strptime(spec["renewTime"], _FORM).replace(tzinfo=UTC)
            ).total_seconds()
        except (KeyError, TypeError, ValueError):
            age_s = float("inf")
        if age_s <= spec.get("leaseDurationSeconds", LAPSES_S):
            return False
        time.sleep(_RENEWED_S + 2 * _LOOK_S)
        again = self._read()
        return again is not None and again["metadata"]["resourceVersion"] == there["metadata"]["resourceVersion"]

    def _described(self, there: Json) -> str:
        spec = there.get("spec", {})
        since = str(spec.get("acquireTime", "")).split(".")[0].replace("T", " ")
        return (
            f"{spec.get('holderIdentity') or 'somebody'}, since {since or 'an unknown time'} UTC (Lease {self.name} in "
            f"namespace {self._kubectl.site.namespace}; it lapses {LAPSES_S} s "
            "after a command that was killed)"
        )

    def _renew(self) -> None:
        while not self._ended.wait(_RENEWED_S):
            try:
                held = self._put(self._kubectl.replace, self._held["metadata"]["resourceVersion"])
            except TargetFailed:
                # Without an API server nobody else can take it either; the next renewal says whether somebody did.
                continue
            if held is None and (held := self._still_mine()) is None:
                return
            self._held = held

    def _still_mine(self) -> Json | None:
        """The Lease as it is, if a renewal of ours whose answer was lost made it so; else who has it is remembered."""
        there: Json | None = None
        with suppress(TargetFailed):
            there = self._read()
        if there is not None and _notes(there).get(_ID) == self._notes[_ID]:
            return there
        who = f"it is held by {self._described(there)}" if there is not None else "its Lease was deleted"
        self._lost = f"this command does not hold the deployment any more: {who}. Apply again when that has ended"
        return None


def _notes(there: Json) -> Mapping[str, str]:
    found: Mapping[str, str] = there["metadata"].get("annotations", {})
    return found


def _now() -> str:
    return datetime.now(UTC).strftime(_FORM)


def _user() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or f"user {os.getuid()}"
