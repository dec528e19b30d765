"""A model behind HTTP: requests one after the other on one connection that stays open, Nagle off.

The router of `hetplan apply` says in a header field (`hetplan-ms`) how long it had a request. That is then the time
that counts: service, and the way between router and worker, on which the worker's server does nothing else either.
"""

from __future__ import annotations

import http.client
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hetplan.errors import InputError
from hetplan.measure.profile_subject import Answer, MeasurementFailed, Subject, number_or_none
from hetplan.measure.profile_wish import MeasuredHardware, MeasuredVariant

__all__ = ["HttpEndpoint", "filled"]

_MILLISECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?")


class HttpEndpoint(Subject):
    """One address. The body is ``{"at": {axis: value}}``, or a JSON file in which a text ``$axis`` is the value."""

    def __init__(self, name: str, variant: MeasuredVariant, hardware: MeasuredHardware, folder: Path) -> None:
        super().__init__(name, variant, hardware, folder)
        self._parts = urlsplit(variant.http or "")
        self._template: Any = {"at": {axis: f"${axis}" for axis in variant.axes}}
        if variant.body is not None:
            self._template = _read(folder / variant.body, name)
        self._connection: http.client.HTTPConnection | None = None

    def load(self) -> None:
        """Connect; the model was loaded by whoever serves it, so nothing is said of that time."""
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        # http.client switches Nagle's algorithm off itself.
        self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=self.variant.timeout_s)
        try:
            self._connection.connect()
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else str(error)
            raise MeasurementFailed(f"{self.variant.http}: {why}") from error

    def prepare(self, point: Mapping[str, float]) -> Callable[[], Any]:
        """The request of a point; a call sends it and reads the whole reply."""
        body = json.dumps(filled(self._template, point)).encode()
        headers = {"Content-Type": "application/json", **self.variant.headers}
        target = self._parts.path or "/"
        if self._parts.query:
            target = f"{target}?{self._parts.query}"

        def once() -> tuple[bytes, str]:
            assert self._connection is not None
            try:
                self._connection.request("POST", target, body=body, headers=headers)
                reply = self._connection.getresponse()
                content, told_ms = reply.read(), reply.getheader("hetplan-ms", "")
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                raise MeasurementFailed(f"{self.variant.http}: {type(error).__name__} {error}") from error
            if reply.status >= 300:
                raise MeasurementFailed(f"{self.variant.http} answered {reply.status}: {content[:80]!r}")
            return content, told_ms

        return once

    def read(self, raw: Any) -> Answer:
        """The size of the reply, the time that the server says, and what a JSON reply says of fan-out and score."""
        body, told_ms = raw
        content: Any = {}
        if body[:1] == b"{":
            with suppress(ValueError):
                content = json.loads(body)
        return Answer(
            ms=float(told_ms) if _MILLISECONDS.fullmatch(told_ms) else None,
            bytes_out=float(len(body)),
            fanout=number_or_none(content, "fanout"),
            score=number_or_none(content, "score"),
        )

    def versions(self) -> dict[str, str]:
        """The address says what was asked, not what answered."""
        return {"endpoint": f"{self._parts.scheme}{self._parts.path or '/'}"}

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def filled(template: Any, point: Mapping[str, float]) -> Any:
    """The template with the value of the axis in place of each text ``$axis``; whole numbers stay whole.

    >>> filled({"n": "$batch", "x": ["$size", "$other"]}, {"batch": 4.0, "size": 0.5})
    {'n': 4, 'x': [0.5, '$other']}
    """
    if isinstance(template, Mapping):
        return {name: filled(value, point) for name, value in template.items()}
    if isinstance(template, list):
        return [filled(value, point) for value in template]
    if isinstance(template, str) and template.startswith("$") and template[1:] in point:
        value = point[template[1:]]
        return int(value) if value == int(value) else value
    return template


def _read(path: Path, name: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError.one(
            file=str(path), path=f"$.variants.{name}.body", why=f"the body is JSON ({error})", remedy="Mend the file."
        ) from None
