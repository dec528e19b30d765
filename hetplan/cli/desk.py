"""`hetplan desk`: a page to plan by hand, and planning for other programs over HTTP, by one server."""

from __future__ import annotations

import os
import secrets
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import option
from hetplan.cli.output import Exit, Output
from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.desk.work import Allowance

__all__ = ["desk"]

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILES...]", help="Profiles, SLO, state, measurements; the page can load others."),
]
HostName = Annotated[str, option("--host", "ADDRESS", "Address to listen on.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 takes any free one.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, max=64, help="Requests in parallel.")]
Queue = Annotated[int, typer.Option("--queue", min=0, help="Requests in the queue; more get 429.")]
Seconds = Annotated[float, typer.Option("--time-limit", metavar="SECONDS", min=0.1, help="Time limit of a request.")]
MAX_REQUEST_BYTES = 8_000_000
"""A profile of a thousand measured tables has some 4 MB."""


def desk(
    files: Files = None,
    host: HostName = "127.0.0.1",
    port: Port = 8610,
    jobs: Jobs = 2,
    queue: Queue = 16,
    time_limit: Seconds = 60.0,
    no_page: Annotated[bool, typer.Option("--no-page", help="Serve only the HTTP API.")] = False,
) -> None:
    """Serve the planning page and the HTTP API on this machine.

    The page changes budget, limits, demand and machines. It shows a plan without simulation at once, and then the
    simulated one. Without files it begins with a shipped example.

    Programs POST to /v1/solve, /v1/verify and /v1/simulate; /v1/openapi.json describes them. The token is HETPLAN_TOKEN
    of the environment; else a new one is printed. Install it with pip install 'hetplan[desk]'.
    """
    with Output("desk") as out:
        if no_page and files:
            why = "files are what the page begins with"
            raise InputError.one(file=str(files[0]), why=why, remedy="Leave them out, or --no-page.")
        begin = {} if no_page else _documents(files)
        _serve(out, (host, port), _allowance(jobs, queue, time_limit), page=not no_page, begin=begin)


def _allowance(jobs: int, queue: int, time_limit: float) -> Allowance:
    _check_installed()
    from hetplan.desk.work import Allowance

    return Allowance(at_once=jobs, waiting=queue, seconds=time_limit, bytes=MAX_REQUEST_BYTES)


def _check_installed() -> None:
    from importlib.util import find_spec

    absent = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if absent:
        why = f"the server needs {' and '.join(absent)}"
        raise InputError.one(file="hetplan desk", why=why, remedy="Install the extra: pip install 'hetplan[desk]'.")


def _documents(files: list[Path] | None) -> dict[str, Any]:
    """The documents by their kind, checked as every command checks them; without files those of the pool's example."""
    from hetplan.cli.init import shipped_examples
    from hetplan.profiles.given_files import sort_files
    from hetplan.profiles.read_json import read_json
    from hetplan.profiles.yaml_text import is_yaml, read_yaml

    def read(path: Any) -> Any:
        name = str(path)
        return (
            read_yaml(Path(path).read_text(encoding="utf-8-sig"), file=name)
            if is_yaml(path)
            else read_json(path, file=name)
        )

    named = sort_files(files or [shipped_examples() / "pool" / f"{kind}.json" for kind in ("profile", "slo")], "desk")
    inputs, profiles = named.inputs, named.profiles
    found = {"profile": read(profiles[0]), "slo": read(named.slo)}
    if len(profiles) > 1 or "measurements" in found["profile"]:  # the page sends one document, with all that is in it
        found["profile"] = dict(inputs.profile.places.file)
    others = {"state": named.state, "measured": named.measured}
    return found | {kind: read(path) for kind, path in others.items() if path is not None}


def _serve(out: Output, at: tuple[str, int], allowance: Allowance, *, page: bool, begin: dict[str, Any]) -> None:
    from hetplan import __version__
    from hetplan.desk import server
    from hetplan.studies.report import report

    host, port = at
    token = os.environ.get("HETPLAN_TOKEN") or secrets.token_urlsafe(18)
    loopback = server.is_loopback(host)
    if not loopback:
        out.warn(
            f"{host} can be reached from other machines, and nothing is encrypted: keep the token, or use a tunnel"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        why = f"cannot listen there: {error.strerror or error}"
        raise InputError.one(file="--port", value=port, why=why, remedy="Name a port that is free, or 0.") from None
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{listening.getsockname()[1]}"
    out.people.line(f"{address}/?token={token}" if page else f"{address}/v1/openapi.json?token={token}")
    sys.stdout.flush()
    server.serve(server.Desk(token, allowance, page, loopback, begin, __version__, report), listening)
    out.end(Exit.OK, "stopped")
