"""`hetplan check`: a look over the input files before any solving."""

from __future__ import annotations

from typing import Annotated

import typer

from hetplan.cli.arguments import AsJson, Profiles, SloFile, StateFile
from hetplan.cli.exits import Exit
from hetplan.cli.output import Output

__all__ = ["check"]


def check(
    profiles: Profiles,
    slo: SloFile,
    state: StateFile = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 2 when there is anything to say.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look input files over before solving.

    Faults exit 2. Findings (odd units, dominated hardware, demand that the tables do not cover) exit 0, and 2 with
    --strict.
    """
    with Output("check", as_json=as_json) as out:
        from hetplan.profiles.lint import lint
        from hetplan.profiles.load import load_inputs

        inputs = load_inputs(profiles, slo, state=state)
        findings = [*inputs.warnings, *lint(inputs)]
        for code, at, text in findings:
            out.send({"finding": {"code": code, "at": at, "text": text}})
        out.people.table(("finding", "where", "what"), findings)
        told = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}" if findings else "nothing to mend"
        apps, variants = len(inputs.slo.apps), len(inputs.profile.variants)
        out.people.line(
            f"{told}: {apps} application{'' if apps == 1 else 's'}, {variants} variant{'' if variants == 1 else 's'}, "
            f"{len(inputs.profile.hardware)} hardware, {len(inputs.profile.tables)} tables"
        )
        out.end(Exit.BAD_INPUT if strict and findings else Exit.OK, told)
