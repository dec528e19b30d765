"""The embedded engine as a server of its own: OpenAI's protocol on a port, and nothing is computed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress

from hetplan.executor.serving.embedded_engine import EmbeddedEngines
from hetplan.executor.serving.http_server import Exchange, listen
from hetplan.executor.serving.openai_words import CHAT, COMPLETIONS, MODELS, as_error, models, read_asked
from hetplan.executor.serving.process import PreciseTimer, ask_for_short_turns, spare_the_collector
from hetplan.serving.tokens import TokenLaw

__all__ = ["serve_engine"]


async def serve_engine(
    law: TokenLaw, name: str, *, bind: str = "127.0.0.1", port: int = 0, times: float = 1.0,
    on_ready: Callable[[int], None] = lambda _port: None,
) -> None:  # fmt: skip
    """Serve until SIGTERM or SIGINT; `on_ready` is called with the port."""
    engines = EmbeddedEngines({"law": law.as_dict(), "times": times}, 1, PreciseTimer(asyncio.get_running_loop()), name)

    def handle(exchange: Exchange) -> None:
        path = exchange.path
        if path in ("/health", "/healthz"):
            exchange.answer(200)
        elif path == MODELS:
            exchange.answer(200, models([name]))
        elif path not in (CHAT, COMPLETIONS):
            exchange.answer(404, as_error("no such path"))
        elif exchange.allows("POST"):
            try:
                asked = read_asked(path, exchange.body, exchange.headers.get("hetplan-at", ""))
            except ValueError as error:
                exchange.answer(400, as_error(str(error)))
                return
            engines.stream(exchange, path, asked, 0, lambda _well: None)

    server = await listen(handle, bind, port)
    spare_the_collector()
    with suppress(OSError):
        ask_for_short_turns()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    on_ready(server.port)
    await stopped.wait()
    server.close()
