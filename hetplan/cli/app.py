"""The command line itself: which commands there are, their order, and what `hetplan` alone says.

A command is one function with typed arguments, in a file with its like. The file is imported when its command is
called, or when all are listed; everything heavy is imported inside the function. So `hetplan --help` loads typer (and,
on a terminal, rich) and nothing else. To add a command: write the function, add its line to `_COMMANDS`.
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
    examples: tuple[str, ...]


_COMMANDS = (
    _Command(
        "init",
        "init:init",
        "Inputs",
        (
            "hetplan init --model resnet50 --gpu t4=0.526 --ms t4:1=6,8=24 --rate 500 --p99 100 -o mine",
            "hetplan init --latencies measured.csv --prices prices.csv --rate 500 --p99 100 -o mine",
        ),
    ),
    _Command(
        "solve",
        "solve:solve",
        "Plan",
        (
            "hetplan solve profile.json slo.json -o plan.json",
            "hetplan solve hardware.json prices.json slo.json --set derate=0.9 --gap 0.001",
            "hetplan solve profile.json slo.json -o - | hetplan show -",
        ),
    ),
    _Command("verify", "plans:verify", "Plan", ("hetplan verify plan.json profile.json slo.json",)),
    _Command(
        "simulate",
        "simulate:simulate",
        "Plan",
        (
            "hetplan simulate plan.json profile.json slo.json",
            "hetplan simulate plan.json profile.json slo.json --arrivals gamma:0.5 --baselines --svg plan.svg",
        ),
    ),
    _Command(
        "load",
        "load:load",
        "Plan",
        (
            "hetplan load plan.json profile.json slo.json --endpoint http://127.0.0.1:8600",
            "hetplan load plan.json profile.json slo.json --endpoint http://127.0.0.1:8600 --arrivals gamma:0.5",
        ),
    ),
    _Command(
        "compare",
        "compare:compare",
        "Plan",
        (
            "hetplan compare plan.json profile.json slo.json --demand rates.csv --hours 24:48 --svg money.svg",
            "hetplan compare now.json saving.json",
        ),
    ),
    _Command("bill", "fleet_page:bill", "Plan", ("hetplan bill plan.json", "hetplan bill plan.json --csv bill.csv")),
    _Command("explain", "explain:explain", "Plan", ("hetplan explain plan.json profile.json slo.json",)),
    _Command("whatif", "whatif:whatif", "Plan", ("hetplan whatif profile.json slo.json --vary budget=1:5",)),
    _Command("show", "plans:show", "Plan", ("hetplan show plan.json", "hetplan show plan.json --svg plan.svg")),
    _Command(
        "report",
        "report:report",
        "Plan",
        (
            "hetplan report plan.json profile.json slo.json -o report.html",
            "hetplan report plan.json -o report.html",
        ),
    ),
    _Command("desk", "desk:desk", "Plan", ("hetplan desk profile.json slo.json", "hetplan desk --port 0")),
    _Command("serve", "desk:serve", "Plan", ("HETPLAN_TOKEN=... hetplan serve --port 8610",)),
    _Command(
        "diff",
        "plans:diff",
        "Plan",
        ("hetplan diff old.json new.json --exit-code", "hetplan diff plan.json --hosts hosts.toml --exit-code"),
    ),
    _Command(
        "apply",
        "hosts:apply",
        "Hosts",
        (
            "hetplan apply plan.json --hosts hosts.toml",
            "hetplan apply plan.json --hosts hosts.toml --yes",
            "hetplan apply --undo --hosts hosts.toml --yes",
        ),
    ),
    _Command(
        "status",
        "hosts:status",
        "Hosts",
        ("hetplan status --hosts hosts.toml", "hetplan status --hosts hosts.toml -o state.json --over 10"),
    ),
    _Command(
        "watch",
        "watch:watch",
        "Hosts",
        (
            "hetplan watch profile.json slo.json --hosts hosts.toml",
            "hetplan watch profile.json slo.json --hosts hosts.toml --once --dry-run",
        ),
    ),
    _Command(
        "keep",
        "hosts:keep",
        "Hosts",
        ("hetplan keep --hosts hosts.toml", "hetplan keep --hosts hosts.toml --systemd /etc/systemd/system"),
    ),
    _Command(
        "manifests",
        "manifests:manifests",
        "Hosts",
        (
            "hetplan manifests plan.json --hosts hosts.toml --kubernetes 1.32 -o deploy",
            "hetplan manifests plan.json --hosts hosts.toml --kubernetes 1.32 --scaling keda -o deploy",
        ),
    ),
    _Command("keys", "keys:keys", "Hosts", ("hetplan keys --hosts hosts.toml",)),
    _Command("down", "hosts:down", "Hosts", ("hetplan down --hosts hosts.toml --yes",)),
    _Command(
        "check",
        "inputs:check",
        "Inputs",
        ("hetplan check profile.json slo.json", "hetplan check profile.json slo.json --strict"),
    ),
    _Command("profile", "profile:profile", "Inputs", ("hetplan profile measure.toml -o profile.json",)),
    _Command("engine", "engine:engine", "Hosts", ("hetplan engine llama-8b-h100 profile.json --port 8000",)),
    _Command("import", "inputs:import_file", "Inputs", ("hetplan import melange gpu_info.json -o imported",)),
    _Command("schema", "inputs:schema", "Inputs", ("hetplan schema profile > profile.schema.json",)),
    _Command("export", "export:export", "Inputs", ("hetplan export profile.json slo.json --form mps -o pool.mps",)),
    _Command("questions", "catalog:questions", "What there is", ("hetplan questions",)),
    _Command("options", "catalog:options", "What there is", ("hetplan options pool",)),
    _Command("solvers", "catalog:solvers", "What there is", ("hetplan solvers",)),
    _Command("doctor", "doctor:doctor", "What there is", ("hetplan doctor",)),
)

_WELCOME = """hetplan {version} - proved, verified deployment plans for ML inference on mixed hardware.

What to do next:
  hetplan init                                        begin with your own model, prices and latencies
  hetplan questions                                   what it can decide
  hetplan check profile.json slo.json                 look your files over
  hetplan solve profile.json slo.json -o plan.json    make a plan, proved and verified
  hetplan doctor                                      see what is installed
  hetplan --help                                      all commands

Shipped examples lie in examples/<question>/ of the source tree; docs/formats.md explains the files."""


class _HelpfulCommand(TyperCommand):
    """A command that shows its help, and succeeds, when it is called without the arguments it needs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing and any(param.required for param in self.params):
            text = ctx.get_help()
            if text:
                typer.echo(text)
            ctx.exit(0)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as wrong:
            if type(wrong).__name__ == "MissingParameter" and getattr(wrong.param, "metavar", None) == "PROFILE":
                # A single file is read as the last argument; which of the two it is, nobody can tell.
                wrong.message = "Give two files or more: what was measured (PROFILE), then what is wanted (SLO)."
            raise


def _version(wanted: bool) -> None:
    if wanted:
        from hetplan import __version__

        typer.echo(f"hetplan {__version__}")
        raise typer.Exit(0)


def _welcome(
    ctx: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Proved, verified deployment plans for ML inference on mixed GPUs and CPUs.

    Reads what was measured (profiles) and what is wanted (an SLO), decides which models run where, how many and how
    queries reach them, and writes a plan file with its proof.
    """
    if ctx.invoked_subcommand is None:
        from hetplan import __version__

        typer.echo(_WELCOME.format(version=__version__))


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


def _built(command: _Command) -> Any:
    module, _, function = command.where.partition(":")
    run: Callable[..., None] = getattr(import_module(f"hetplan.cli.{module}"), function)
    # A blank line between examples keeps the help from flowing them into one paragraph.
    epilog = "\n\n".join(["Examples:", *command.examples])
    alone = _app(add_completion=False)
    alone.command(command.name, cls=_HelpfulCommand, epilog=epilog, rich_help_panel=command.panel)(run)
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
