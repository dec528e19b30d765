"""A server for agents: `python -m hetplan.cli.mcp_server` speaks the Model Context Protocol on its standard streams.

An agent is as untrusted as its files. It sends documents, or names files of the folder that the server was started in;
nothing else is read, nothing is written, and no host is touched. What is wrong with a file is said as every command
says it: where, why, and what to write instead. Needs the extra `mcp`: pip install 'hetplan[mcp]'.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan import __version__
from hetplan.desk.answers import Answers
from hetplan.desk.work import Allowance, Task
from hetplan.errors import HetplanError, InputError
from hetplan.profiles.plain_data import finite
from hetplan.profiles.read_json import read_json

if TYPE_CHECKING:
    from mcp.server import MCPServer

__all__ = ["main", "server"]

Document = dict[str, Any]
File = Document | str
"""A document, or the name of a file in the server's folder."""
INSTRUCTIONS = """Files are documents, or names of files in the working folder. Say a plan's bound and gap with
its price. Verify a plan that you did not just make. Where there is none, say why, and offer the repairs."""
ALLOWANCE = Allowance(seconds=120.0)
"""As for one request of a desk; an agent that waits longer gives up."""


def server() -> MCPServer:
    """The server with its four tools."""
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    made: MCPServer = MCPServer("hetplan", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")

    def in_words(work: Callable[..., Document]) -> Callable[..., Document]:
        @wraps(work)
        def told(*given: Any, **named: Any) -> Document:
            try:
                return dict(finite(work(*given, **named)))
            except HetplanError as error:
                raise ToolError(str(error)) from None

        return told

    for tool in (solve, verify, whatif, explain):
        made.tool()(in_words(tool))
    return made


def solve(
    profile: File | list[File], slo: File, state: File | None = None, measured: File | None = None,
    question: str | None = None, options: Document | None = None, seconds: float = 60.0,
) -> Document:  # fmt: skip
    """Plan: machines, models, batch sizes and routes that meet the SLO, with cost, bound and proof; or why none can.

    `profile` says what was measured and what machines cost, `slo` what is wanted; `measured` are measurements of
    compound queries, `state` what runs now. `options` {"sizing": "fluid"} leaves simulation out, for a first look.
    """
    files = documents(profile=profile, slo=slo, state=state, measured=measured)
    more = {"question": question, "options": options or {}, "limits": {"seconds": seconds}}
    return Answers(ALLOWANCE).solve(files | more, Task())


def verify(
    plan: File, profile: File | list[File], slo: File, state: File | None = None, measured: File | None = None
) -> Document:
    """Recompute all that a plan promises, by code that never saw how it was made, and prove its bounds again."""
    files = documents(plan=plan, profile=profile, slo=slo, state=state, measured=measured)
    with no_longer() as cancel:
        return Answers(ALLOWANCE).verify(files, Task(cancel=cancel))


def whatif(
    profile: File, slo: File, vary: list[str], state: File | None = None, measured: File | None = None,
    confirm: bool = False,
) -> Document:  # fmt: skip
    """How the plan changes along one or two ranges: ["budget=1:5"], ["price:OFFER=x0.5:x2"]; `confirm`: simulated."""
    from hetplan.studies.whatif import whatif as along

    files = documents(profile=profile, slo=slo, state=state, measured=measured)
    with no_longer() as cancel:
        return along(*files.values(), vary=vary, confirm=confirm, cancel=cancel).as_dict()


def explain(
    plan: File, profile: File, slo: File, state: File | None = None, measured: File | None = None
) -> Document:  # fmt: skip
    """Why a plan has these machines: the second-best fleets, what each limit costs, when another machine pays."""
    from hetplan.studies.explain import explain as why

    files = documents(plan=plan, profile=profile, slo=slo, state=state, measured=measured)
    return why(*files.values(), time_limit=ALLOWANCE.seconds).as_dict()


@contextmanager
def no_longer() -> Iterator[threading.Event]:
    """What ends the work once the time that a tool may take is over."""
    timer = threading.Timer(ALLOWANCE.seconds, (cancel := threading.Event()).set)
    timer.start()
    try:
        yield cancel
    finally:
        timer.cancel()


def documents(**given: File | list[File] | None) -> Document:
    """The documents that were sent, and those of the files that were named."""
    return {name: document_of(one) for name, one in given.items() if one is not None}


def document_of(given: File | list[File]) -> Any:
    """A document as it is, or that of a file in the working folder; nothing else is opened."""
    if not isinstance(given, str):
        return [document_of(one) for one in given] if isinstance(given, list) else given
    path = here = Path.cwd().resolve()
    try:
        path = (here / given).resolve()
        there = path.is_relative_to(here) and path.is_file()
    except (OSError, ValueError, RuntimeError):
        there = False
    if not there:
        why = "no file of the folder that this server works in"
        raise InputError.one(file=given[:200], why=why, remedy="Send the document, or name a file of that folder.")
    if not isinstance(read := read_json(path, file=given), dict):
        raise InputError.one(file=given, why="no JSON object", remedy="Name a profile, an SLO file or a plan.")
    if "measurements" in read:
        from hetplan.profiles.measurement_tables import with_measurements

        read, _ = with_measurements(read, path.parent, given)
    return read


def main() -> None:
    """Serve on standard input and output until these end."""
    if find_spec("mcp") is None:
        raise SystemExit("agents need the extra `mcp`: pip install 'hetplan[mcp]'")
    server().run("stdio")


if __name__ == "__main__":
    main()
