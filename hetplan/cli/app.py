"""The command line itself: which commands there are, their order, and what `hetplan` alone says.

A command is one function with typed arguments, in a file with its like. The file is imported when its command is
called, or when all are listed; everything heavy is imported inside the function. So `hetplan --help` loads typer (and,
on a terminal, rich) and nothing else. To add a command: write the function, add its line to `_COMMANDS`, and examples
to `help_texts.EXAMPLES`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

__all__ = ["build_app"]


@dataclass(frozen=True)
class _Command:
    name: str
    where: str
    """The module in `hetplan.cli` and the function in it."""
    panel: str


_COMMANDS = (
    _Command("init", "init:init", "Plan"),
    _Command("check", "inputs:check", "Plan"),
    _Command("solve", "solve:solve", "Plan"),
    _Command("verify", "plans:verify", "Plan"),
    _Command("simulate", "simulate:simulate", "Plan"),
    _Command("whatif", "whatif:whatif", "Plan"),
    _Command("compare", "compare:compare", "Plan"),
    _Command("show", "plans:show", "Look"),
    _Command("explain", "explain:explain", "Look"),
    _Command("report", "report:report", "Look"),
    _Command("diff", "plans:diff", "Look"),
    _Command("desk", "desk:desk", "Look"),
    _Command("apply", "hosts:apply", "Run"),
    _Command("status", "hosts:status", "Run"),
    _Command("autoscale", "autoscale:autoscale", "Run"),
    _Command("loadtest", "loadtest:loadtest", "Run"),
    _Command("down", "hosts:down", "Run"),
    _Command("profile", "profile:profile", "Files"),
    _Command("import", "inputs:import_file", "Files"),
    _Command("render", "render:render", "Files"),
    _Command("list", "catalog:list_catalog", "Files"),
    _Command("doctor", "doctor:doctor", "Files"),
)


class _HelpfulCommand(TyperCommand):
    """A command that shows its help, and succeeds, when it is called without the arguments it needs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing and any(param.required for param in self.params):
            text = ctx.get_help()
            if text:
                typer.echo(text)
            ctx.exit(0)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from hetplan.cli.help_texts import EXAMPLES

        # A blank line between examples keeps the help from flowing them into one paragraph.
        self.epilog = "\n\n".join(["Examples:", *EXAMPLES[self.name or ""]])
        super().format_help(ctx, formatter)


def _version(wanted: bool) -> None:
    if wanted:
        from hetplan import __version__

        typer.echo(f"hetplan {__version__}")
        raise typer.Exit(0)


def _welcome(
    ctx: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Which machines should serve my models? Plans ML inference on mixed GPUs and CPUs.

    A profile says what was measured, an SLO file says what you need. hetplan writes a plan: machines, models, batch
    sizes, routing, cost and a bound on the cost. Every plan is verified and simulated before you see it.

    Every command takes files in any order: each file says what it is.
    """
    if ctx.invoked_subcommand is None:
        from hetplan import __version__
        from hetplan.cli.help_texts import WELCOME

        typer.echo(WELCOME.format(version=__version__))


class _Commands(TyperGroup):
    """The group of all commands; each is imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return [command.name for command in _COMMANDS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        found = next((command for command in _COMMANDS if command.name == cmd_name), None)
        if found is None:
            # What was meant is guessed from the commands that the group holds.
            self.commands.update({command.name: _built(command) for command in _COMMANDS})
            return None
        return _built(found)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands in their groups; on a terminal rich draws these as panels."""
        for panel in dict.fromkeys(command.panel for command in _COMMANDS):
            rows = [
                (one.name, self.get_command(ctx, one.name).get_short_help_str(formatter.width))
                for one in _COMMANDS
                if one.panel == panel
            ]
            with formatter.section(panel):
                formatter.write_dl(rows)


def _built(command: _Command) -> Any:
    module, _, function = command.where.partition(":")
    run: Callable[..., None] = getattr(import_module(f"hetplan.cli.{module}"), function)
    alone = _app(add_completion=False)
    alone.command(command.name, cls=_HelpfulCommand, rich_help_panel=command.panel)(run)
    return typer.main.get_command(alone)


def _app(**how: Any) -> typer.Typer:
    """Plain help texts when standard output is no terminal."""
    return typer.Typer(
        rich_markup_mode="rich" if sys.stdout.isatty() else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        **how,
    )


def build_app() -> typer.Typer:
    """The command line."""
    app = _app(name="hetplan", cls=_Commands)
    app.callback(invoke_without_command=True)(_welcome)
    return app
