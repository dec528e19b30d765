"""`hetplan engine`: serve an engine of a profile that keeps its law and computes nothing."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from hetplan.cli.arguments import AsJson, Profiles
from hetplan.cli.output import Exit, Output
from hetplan.errors import InputError

__all__ = ["engine"]


def engine(
    name: Annotated[str, typer.Argument(metavar="ENGINE", help="Its name in the profile.")],
    profiles: Profiles,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8000,
    bind: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    times: Annotated[float, typer.Option(min=0.01, help="How much slower than its law it is.")] = 1.0,
    most_tokens: Annotated[int | None, typer.Option(min=1, help="The longest batch; else the engine's own.")] = None,
    most_seqs: Annotated[int | None, typer.Option(min=1, help="The most sequences; else the engine's own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Serve text by OpenAI's protocol, token by token as the law of an engine says; nothing is computed.

    To try profiling, plans and load on a machine without GPUs. It ends on Ctrl-C.
    """
    with Output("engine", as_json=as_json) as out:
        from hetplan.executor.serving.engine_server import serve_engine
        from hetplan.profiles.load_one import load_profile
        from hetplan.serving.tokens import law_of_engine

        found = load_profile(*profiles).engines
        if name not in found:
            raise InputError.one(
                file="profile", path="$.engines", value=name, why="there is no such engine",
                remedy=f"There are: {', '.join(found) or 'none'}.",
            )  # fmt: skip
        law = law_of_engine(found[name])
        law = law.limited(most_tokens or law.most_tokens, most_seqs or law.most_seqs)

        def ready(at: int) -> None:
            out.note(f"{name} listens on http://{bind}:{at}")

        asyncio.run(serve_engine(law, name, bind=bind, port=port, times=times, on_ready=ready))
        out.end(Exit.OK, "stopped")
