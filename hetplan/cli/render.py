"""`hetplan render`: a plan as files for a platform, or the program of a problem as text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, Formulation, Settings, file_option, method_from, read_settings
from hetplan.cli.output import Exit, Output
from hetplan.errors import InputError
from hetplan.profiles.given_files import sort_files

__all__ = ["Target", "render"]


class Target(StrEnum):
    """What is written: files of a platform, or of a mathematical program."""

    KUBERNETES = "kubernetes"
    HAPROXY = "haproxy"
    SYSTEMD = "systemd"
    COMPOSE = "compose"
    KSERVE = "kserve"
    LLM_D = "llm-d"
    DYNAMO = "dynamo"
    RAY_SERVE = "ray-serve"
    SKYSERVE = "skyserve"
    LP = "lp"
    MPS = "mps"
    VIPR = "vipr"


def render(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES...", readable=False, help="A plan and the files that it was made from; or their folder."
        ),
    ],
    to: Annotated[
        Target,
        typer.Option(
            "--to", help="The platform, or a format: LP is readable, every solver reads MPS, VIPR is a proof."
        ),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="PATH", help="Write here; for a platform, a folder.")
    ] = "-",
    site: Annotated[
        Path | None,
        file_option("--site", "FILE", "Trusted file with images, selectors and addresses of your platform."),
    ] = None,
    site_template: Annotated[
        bool, typer.Option("--site-template", help="Write a site file for this plan, to fill in.")
    ] = False,
    formulation: Formulation = None,
    settings: Settings = None,
    as_json: AsJson = False,
) -> None:
    """Write a plan for Kubernetes, KServe, systemd ..., or the program as LP or MPS.

    \b
    kubernetes  Deployments, Services, routes with weights, KEDA's cron for
                periods; nodes=karpenter and quota=kueue add those,
                router=hetplan a router with the plan's dispatch rule
    haproxy     only the load balancer, for machines at stated addresses
    systemd     units of the user's manager, and HAProxy
    compose     containers of one machine, and HAProxy (experimental)
    kserve, llm-d, dynamo, ray-serve, skyserve
                objects of the platform (experimental: no run is recorded yet)
    lp, mps     the program; --set sets options of the formulation; ask=2 is
                the second program of a formulation that solves several
    vipr        the plan's proof of its bound in exact fractions, for checkers
                such as viprchk; ask=2 is its second claim

    If a platform does not have the plan's dispatch rule, choose another: --set
    rule=split, weighted-least or fewest-requests. The plan is simulated under
    it, and refused (exit 3) if it violates a limit. --set period=ID renders one
    period.
    """
    is_program = to in (Target.LP, Target.MPS, Target.VIPR)
    is_text = output == "-" and (is_program or site_template)
    with Output("render", as_json=as_json and not is_text, quiet=is_text) as out:
        if is_text and as_json:
            why = "the text and --json both go to stdout"
            raise InputError.one(file="--json", why=why, remedy="Add -o FILE, or leave --json out.")
        of_others: dict[str, object] = {"--site": site, "--site-template": site_template or None}
        of_programs: dict[str, object] = {"--formulation": formulation}
        for name, value in (of_others if is_program else of_programs).items():
            if value is not None:
                raise InputError.one(
                    file=name, value=value, why=f"it says nothing of {to.value}", remedy="Leave it out."
                )
        if is_program:
            asked = method_from(settings, formulation=formulation)
            _render_program(out, files, to, output, asked)
            return
        from hetplan.cli.platform_files import render_platform, write_template

        if site_template:
            write_template(out, files, to.value, output, site)
        else:
            render_platform(out, files, to.value, output, site, read_settings(settings or []))


def _render_program(
    out: Output,
    files: list[Path],
    to: Target,
    output: str,
    asked: tuple[str | None, dict[str, Any]],
) -> None:
    from hetplan.api.solve import choose
    from hetplan.cli.program_text import program_text

    formulation, options = asked
    number = options.pop("ask", 1)
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InputError.one(file="--set", path="ask", value=number, why="a number from 1 on", remedy="Write ask=1.")
    if to is Target.VIPR:
        from hetplan.api.solve import certificate_of
        from hetplan.cli.read_files import plan_from

        named = sort_files(files, "render", plans=(1, 1))
        text, proved = certificate_of(plan_from(named.plan, warn=out.warn), named.inputs, number=number)
        _write(out, text, output, f"proves {proved}")
        return
    inputs = sort_files(files, "render").inputs
    choice = choose(inputs, formulation=formulation, options=options)
    text, size = program_text(inputs, choice, to=to.value, number=number, out=out)
    _write(out, text, output, ", ".join(f"{count} {what}" for what, count in size.items()))


def _write(out: Output, text: str, output: str, about: str) -> None:
    from hetplan.profiles.plan_file import write_atomically

    if output == "-":
        typer.echo(text, nl=False)
        return
    write_atomically(Path(output), text.encode())
    reason = f"written to {output}: {about}"
    out.people.line(reason)
    out.end(Exit.OK, reason)
