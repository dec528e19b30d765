"""`hetplan render`: a plan as files for a platform, or the program of a problem as text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from hetplan.cli.arguments import AsJson, Formulation, Question, Settings, method_from, option, read_settings
from hetplan.cli.given_files import plan_from, sort_files
from hetplan.cli.output import Exit, Output
from hetplan.errors import InputError

__all__ = ["Target", "render"]


class Target(StrEnum):
    """What is written: files of a platform, or of a mathematical program."""

    KUBERNETES = "kubernetes"
    LP = "lp"
    MPS = "mps"


KUBERNETES_SETTINGS = ("version", "scaling", "target", "timezone")


def render(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES...", readable=False, help="A plan; of a program profiles, SLO and state."),
    ],
    to: Annotated[Target, typer.Option("--to", help="LP is readable, MPS is what every solver reads.")],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="PATH", help="Where to write: of kubernetes a folder.")
    ] = "-",
    hosts: Annotated[Path | None, option("--hosts", "FILE", "Trusted file that names the cluster's target.")] = None,
    question: Question = None,
    formulation: Formulation = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Write a plan for Kubernetes, or the program of a problem as LP or MPS.

    \b
    kubernetes  a folder for `kubectl apply -k`, checked against the schemas of
                the cluster's version: --set version=1.32. Also: scaling=none,
                hpa or keda (who says how many pods run); target=NAME, of several;
                timezone=Europe/Paris, where the first period begins at 0:00. A
                plan of a day or a week brings its schedule.
    lp, mps     options of the formulation by --set; ask=2 is its second program,
                where it asks several, each depending on the answers before it
    """
    is_text = to is not Target.KUBERNETES and output == "-"
    with Output("render", as_json=as_json and not is_text, quiet=is_text) as out:
        if is_text and as_json:
            why = "the program and --json both go to stdout"
            raise InputError.one(file="--json", why=why, remedy="Add -o FILE, or leave --json out.")
        flags = (
            {"--question": question, "--formulation": formulation} if to is Target.KUBERNETES else {"--hosts": hosts}
        )
        for name, value in flags.items():
            if value is not None:
                raise InputError.one(
                    file=name, value=value, why=f"it says nothing of {to.value}", remedy="Leave it out."
                )
        if to is Target.KUBERNETES:
            _render_kubernetes(out, files, output, hosts, read_settings(settings or []))
        else:
            asked = method_from(settings, question=question, formulation=formulation)
            _render_program(out, files, to, output, asked)


def _render_kubernetes(out: Output, files: list[Path], output: str, hosts: Path | None, given: dict[str, Any]) -> None:
    from hetplan.executor.hosts_file import read_hosts
    from hetplan.executor.kubernetes.exports import Scaling, export_folder
    from hetplan.profiles.plan_file import write_atomically

    plan = sort_files(files, "render", plans=(1, 1), needs_inputs=False).plan
    if hosts is None or output == "-":
        what, flag = ("the target", "--hosts hosts.toml") if hosts is None else ("a folder", "-o deploy")
        raise InputError.one(file=flag.split()[0], why=f"{what} is needed", remedy=f"Add {flag}.")
    for name in given.keys() - set(KUBERNETES_SETTINGS):
        remedy = f"Known: {', '.join(KUBERNETES_SETTINGS)}."
        raise InputError.one(file="--set", path=name, value=given[name], why="no setting of kubernetes", remedy=remedy)
    if "version" not in given:
        remedy = "Add --set version=1.32."
        raise InputError.one(file="--set", path="version", why="the cluster's version is needed", remedy=remedy)
    scaling = given.get("scaling", "none")
    if scaling not in get_args(Scaling):
        remedy = f"Choose one of {', '.join(get_args(Scaling))}."
        raise InputError.one(file="--set", path="scaling", value=scaling, why="no way to scale", remedy=remedy)
    target = given.get("target")
    made = export_folder(
        plan_from(plan), read_hosts(hosts), version=str(given["version"]), scaling=scaling,
        target=None if target is None else str(target), timezone=str(given.get("timezone", "Etc/UTC")),
    )  # fmt: skip
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.files.items():
        write_atomically(folder / name, text.encode())
    for note in made.notes:
        out.warn(note, kind="note")
    reason = f"{made.objects} objects written to {folder}; kubectl apply -k {folder}"
    out.people.line(reason)
    out.end(Exit.OK, reason, objects=made.objects)


def _render_program(
    out: Output,
    files: list[Path],
    to: Target,
    output: str,
    asked: tuple[str | None, str | None, dict[str, Any]],
) -> None:
    from hetplan.api.solve import choose
    from hetplan.cli.program_text import program_text
    from hetplan.profiles.plan_file import write_atomically

    question, formulation, options = asked
    number = options.pop("ask", 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InputError.one(file="--set", path="ask", value=number, why="a number from 1 on", remedy="Write ask=2.")
    inputs = sort_files(files, "render").inputs
    choice = choose(inputs, question=question, formulation=formulation, options=options)
    text, size = program_text(inputs, choice, to=to.value, number=number, out=out)
    if output == "-":
        typer.echo(text, nl=False)
        return
    write_atomically(Path(output), text.encode())
    reason = f"written to {output}: {', '.join(f'{count} {what}' for what, count in size.items())}"
    out.people.line(reason)
    out.end(Exit.OK, reason)
