"""An engine of a profile as a server that keeps its law and computes nothing: `python -m hetplan.executor.emulator`.

It serves text by OpenAI's protocol, token by token as the law says. So profiling, plans and load can be tried on a
machine without GPUs. It ends on Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from hetplan.errors import InputError
from hetplan.executor.serving.engine_server import serve_engine
from hetplan.profiles.load_one import load_profile
from hetplan.serving.tokens import law_of_engine

__all__ = ["main"]


def main(words: list[str] | None = None) -> int:
    """Serve the engine that the words of a command line name; 2 where there is no such engine."""
    parser = argparse.ArgumentParser(prog="python -m hetplan.executor.emulator", description=__doc__.splitlines()[0])
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
        sys.stderr.write(f"{error}\n")
        return 2
    if given.engine not in engines:
        files, names = " + ".join(map(str, given.profiles)), ", ".join(engines) or "none"
        parser.error(f"{files}: $.engines: there is no engine {given.engine!r}; there are: {names}")
    law = law_of_engine(engines[given.engine])
    law = law.limited(given.most_tokens or law.most_tokens, given.most_seqs or law.most_seqs)

    def ready(at: int) -> None:
        sys.stderr.write(f"{given.engine} listens on http://{given.bind}:{at}\n")
        sys.stderr.flush()

    try:
        asyncio.run(
            serve_engine(law, given.engine, bind=given.bind, port=given.port, times=given.times, on_ready=ready)
        )
    except OSError as error:
        parser.error(f"--port {given.port}: cannot listen there: {error.strerror or error}; name another, or 0")
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
