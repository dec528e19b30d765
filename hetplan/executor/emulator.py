"""An engine of a profile as a server that keeps its law and computes nothing: `python -m hetplan.executor.emulator`.

It serves text by OpenAI's protocol, token by token as the law says. So profiling, plans and load can be tried on a
machine without GPUs. It ends on Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hetplan.errors import InputError
from hetplan.executor.serving.embedded_engine import EmbeddedEngines
from hetplan.executor.serving.http_server import Exchange, listen
from hetplan.executor.serving.openai_words import CHAT, COMPLETIONS, MODELS, as_error, models, read_asked
from hetplan.executor.serving.process import ask_for_short_turns, spare_the_collector
from hetplan.precise_loop import new_event_loop
from hetplan.profiles.load_one import load_profile
from hetplan.serving.tokens import TokenLaw, law_of_engine

__all__ = ["main"]


log = logging.getLogger(__name__)
"""Its lines go to standard error, as Python does with those that nobody takes."""


def main(words: list[str] | None = None) -> int:
    """Serve the engine that the words of a command line name; 2 where there is no such engine."""
    parser = argparse.ArgumentParser(
        prog="python -m hetplan.executor.emulator", description="Serve an engine of a profile by its law."
    )
    parser.add_argument("engine", metavar="ENGINE", help="its name in the profile")
    parser.add_argument("profiles", metavar="PROFILE", nargs="+", type=Path)
    parser.add_argument("--port", type=int, default=8000, help="0: any that is free")
    parser.add_argument("--bind", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--times", type=float, default=1.0, help="how much slower than its law it is")
    parser.add_argument("--most-tokens", type=int, help="the longest batch; else the engine's own")
    parser.add_argument("--most-seqs", type=int, help="the most sequences; else the engine's own")
    given = parser.parse_args(words)
    if not 0 <= given.port < 65536:
        parser.error(f"--port: from 0 to 65535, not {given.port}")
    numbers = {"--times": given.times, "--most-tokens": given.most_tokens, "--most-seqs": given.most_seqs}
    for name, value in numbers.items():
        if value is not None and not value > 0:
            parser.error(f"{name}: a number above 0, not {value:g}")
    try:
        engines = load_profile(*given.profiles).engines
    except InputError as error:
        parser.error(str(error))
    if given.engine not in engines:
        files, names = " + ".join(map(str, given.profiles)), ", ".join(engines) or "none"
        parser.error(f"{files}: $.engines: there is no engine {given.engine!r}; there are: {names}")
    law = law_of_engine(engines[given.engine])
    law = law.limited(given.most_tokens or law.most_tokens, given.most_seqs or law.most_seqs)

    def ready(at: int) -> None:
        log.warning("%s listens on http://%s:%d", given.engine, given.bind, at)

    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            served = _serve(law, given.engine, bind=given.bind, port=given.port, times=given.times, on_ready=ready)
            runner.run(served)
    except OSError as error:
        parser.error(f"--port {given.port}: cannot listen there: {error.strerror or error}; name another, or 0")
    except KeyboardInterrupt:
        pass
    return 0


async def _serve(
    law: TokenLaw, name: str, *, bind: str = "127.0.0.1", port: int = 0, times: float = 1.0,
    on_ready: Callable[[int], None] = lambda _port: None,
) -> None:  # fmt: skip
    """Serve until SIGTERM or SIGINT; `on_ready` is called with the port."""
    engines = EmbeddedEngines({"law": law.as_dict(), "times": times}, 1, asyncio.get_running_loop(), name)

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


if __name__ == "__main__":
    sys.exit(main())
