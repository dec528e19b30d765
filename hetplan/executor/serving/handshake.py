"""The handshake of a TLS listener's connections, which count before it and have so long for it."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any, Protocol

__all__ = ["Handshake"]


class Connection(Protocol):
    """What a handshake is for: a connection of a server, once there is one."""

    server: Any
    transport: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""

    def data_received(self, data: bytes) -> None:
        """What came with the end of the handshake, and after it."""


class Handshake(asyncio.Protocol):
    """A connection of a TLS listener until its handshake is done: it counts from the moment that it is accepted.

    asyncio's own TLS listeners show a connection only after its handshake, so that those which never begin one would
    neither count nor end, and take the process's files from the keeper.
    """

    def __init__(self, connection: Connection, tls: ssl.SSLContext) -> None:
        self._connection, self._server, self._tls = connection, connection.server, tls
        self._early: list[bytes] = []
        self._task: asyncio.Task[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count it, and let it shake hands."""
        raw: Any = transport
        raw.pause_reading()  # nothing is to be read before TLS reads it
        self._connection.transport = raw
        self._server.admit(self._connection)
        self._task = self._server.loop.create_task(self._shake_hands(raw))

    async def _shake_hands(self, raw: Any) -> None:
        connection, limit_s = self._connection, self._server.limits.handshake_s
        secure: Any = None
        try:
            with suppress(OSError):
                secure = await self._server.loop.start_tls(
                    raw, self, self._tls, server_side=True, ssl_handshake_timeout=limit_s
                )
        finally:
            if secure is None or secure.is_closing():
                raw.abort()
                connection.transport = None
                self._server.forget(connection, 0)
        if secure is None or connection.transport is None:
            return
        secure.set_protocol(connection)
        connection.connection_made(secure)
        for data in self._early:
            connection.data_received(data)

    def data_received(self, data: bytes) -> None:
        """What came with the end of the handshake."""
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's name)
        """It ended before its handshake, or as soon as that was done."""
        self._task.cancel()
