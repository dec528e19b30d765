"""The commands about input files: `hetplan check` and `hetplan import`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, Settings, read_settings
from hetplan.cli.output import Exit, Output
from hetplan.errors import Fault, InputError
from hetplan.profiles.given_files import sort_files

if TYPE_CHECKING:
    from hetplan.profiles.profile import Profile
    from hetplan.profiles.tables import Table

__all__ = ["Schema", "check", "import_file"]


class Schema(StrEnum):
    """The files that have a schema."""

    PROFILE = "profile"
    SLO = "slo"
    PLAN = "plan"
    STATE = "state"


def check(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES...]", readable=False, help="Profiles, SLO, state; or their folder."),
    ] = None,
    schema: Annotated[
        Schema | None, typer.Option("--schema", help="Print the JSON Schema of this kind of file instead.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 2 also on warnings.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check input files.

    Prints the problem that they state. Exit 2 on errors. Warnings (odd units, dominated machines, demand outside the
    tables) exit 0, and 2 with --strict. It compares laws of LLM engines with those that ship with hetplan; for that a
    profile is enough.
    """
    with Output("check", as_json=as_json and schema is None, quiet=schema is not None) as out:
        if schema is not None:
            if files or as_json or strict:
                why = "it prints a schema, and looks at no file"
                raise InputError.one(file="--schema", value=schema.value, why=why, remedy="Leave all else out.")
            typer.echo(_schema_text(schema))
            return
        if not files and not as_json and not strict:
            typer.echo(context.get_help())
            return
        from hetplan.cli.infer_problem import asked
        from hetplan.profiles.lint import lint

        given = sort_files(files or (), "check", profile_alone=True)
        if given.slo == Path():
            from hetplan.profiles.load_one import read_profile

            loaded = read_profile(*given.profiles)
            findings = [*loaded.warnings, *loaded.suspicions]
            found = f"{_say_findings(out, findings)}: a profile alone; add an SLO file to check what it asks for"
            out.people.line(found)
            _say_laws(out, loaded.in_order)
            out.end(Exit.BAD_INPUT if strict and findings else Exit.OK, found)
            return
        inputs = given.inputs
        findings = [*inputs.warnings, *lint(inputs)]
        question = asked(inputs)
        found = _say_findings(out, findings)
        profile = inputs.profile
        counts = {
            "application": len(inputs.slo.apps), "model": len(profile.variants), "machine type": len(profile.hardware),
            "run": sum(len(one.runs) for one in profile.variants.values()),
        }  # fmt: skip
        counted = ", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts.items())
        out.people.line(f"{found}: {counted}; problem {question}")
        _say_laws(out, inputs.profile)
        out.end(Exit.BAD_INPUT if strict and findings else Exit.OK, found)


def _say_findings(out: Output, findings: Sequence[tuple[str, str, str]]) -> str:
    """Each with its place; in words, how many there are."""
    for code, at, text in findings:
        out.send({"finding": {"code": code, "at": at, "text": text}})
    out.people.table(("finding", "where", "what"), findings)
    return f"{len(findings)} finding{'' if len(findings) == 1 else 's'}" if findings else "nothing to mend"


def _say_laws(out: Output, profile: Profile) -> None:
    """What the times of language models rest on, and how far they are from the laws that ship with hetplan."""
    if not profile.engines and not any(table.points for table in profile.tables.values()):
        return
    from hetplan.profiles.law_review import review_laws

    rows, beside = [], []
    for one in review_laws(profile):
        out.send({"law": {name: value for name, value in vars(one).items() if value not in (None, "")}})
        error = "not stated" if one.error is None else f"{one.error:.1%}"
        rows.append((one.place, one.basis, error, one.room or "-", one.source or "-"))
        if one.doubt:
            beside.append((one.place, one.doubt, "", ""))
        if one.off is not None:
            way = f"{abs(one.off):.0%} {'slower' if one.off > 0 else 'faster'} on the mean"
            beside.append((one.place, way, one.other, "beyond both errors" if one.apart else "within the errors"))
    out.people.table(("times", "basis", "off", "KV tokens", "source"), rows, right=("off", "KV tokens"))
    if beside:
        out.people.table(("of these", "is", "than", "that is"), beside)


def _schema_text(kind: Schema) -> str:
    if kind is Schema.PLAN:
        from hetplan.profiles.read_plan import plan_schema

        return json.dumps(plan_schema(), indent=2, ensure_ascii=False)
    from hetplan.profiles.schema import schema

    return json.dumps(schema(kind.value), indent=2, ensure_ascii=False)


def _kinds() -> list[str]:
    from hetplan.registry import importers

    return sorted(importers())


def import_file(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILES...", readable=False, help="Files of one tool, or their folder.")
    ],
    kind: Annotated[
        str | None,
        typer.Option("--as", metavar="KIND", help="The kind of the files, see below.", autocompletion=_kinds),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FOLDER", help="Write profile.json and slo.json to this folder."),
    ] = Path(),
    settings: Settings = None,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Write YAML instead of JSON.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
) -> None:
    """Read benchmark results, traces, prices and bills of other tools.

    Recognises the files by their content. Writes profile.json from measurements and prices, and slo.json from demand.

    \b
    Kinds of files for --as, if they are not recognised:
      rates            vLLM, SGLang, InferenceX, GuideLLM, inference-perf,
                       AIPerf, llm-d, AIBrix, a table of runs;
                       --set hardware=h200x8, gpus=, model=, price_per_hour=
      laws             the same runs, fitted as laws of LLM engines
      melange          rates of GPUs by token lengths: Melange, AIBrix
      perf-analyzer    CSV of Triton's perf_analyzer and Model Analyzer
      prices           a SkyPilot catalogue (vms.csv), a FOCUS bill;
                       --set region=, only=
      datasheet        data sheets of models and GPUs
      sageserve        CSV of SageServe's measurements
      trace            requests or rates over time: Azure, Mooncake, BurstGPT,
                       Prometheus, ServeGen, CSV; --set period_s=, column=, app=
      token-trace      token lengths of recorded requests, as query classes
    """
    with Output("import") as out:
        from hetplan.profiles.plan_file import write_atomically
        from hetplan.registry import importers

        known, file = importers(), files[0]
        if kind is None:
            from hetplan.profiles.imports.kinds import kind_of

            kind = kind_of(file)
            out.people.line(f"{file}: {kind}")
        if kind not in known:
            raise InputError.one(
                file="--as", value=kind, why="no such importer", remedy=f"Choose one of {', '.join(sorted(known))}."
            )
        convert = known[kind]
        given: Any = file
        if next(iter(signature(convert).parameters)) == "paths":
            given = files
        elif len(files) > 1:
            raise InputError.one(
                file=str(files[1]), why=f"one file at a time of the kind {kind}", remedy="Take it out."
            )
        profile, slo, *beside = convert(given, **_filters(kind, convert, settings))
        found = _read_back(file, profile) if profile is not None and profile.get("models") else None
        ending = "yaml" if as_yaml else "json"
        made = {f"profile.{ending}": profile, f"slo.{ending}": slo, **(beside[0] if beside else {})}
        targets = [(folder / name, data) for name, data in made.items() if data is not None]
        taken = [str(path) for path, _ in targets if path.exists() and not force]
        if taken:
            raise InputError(
                [
                    Fault(path, "", "", "the file is there already", "Name another -o FOLDER, or use --force.")
                    for path in taken
                ]
            )
        folder.mkdir(parents=True, exist_ok=True)
        for path, data in targets:
            write_atomically(path, data.encode() if isinstance(data, str) else _bytes(data, as_yaml=as_yaml))
            out.people.line(f"written to {path}")
        if beside:
            from hetplan.profiles.imports.trace import words_of

            for line in words_of(slo):
                out.people.line(line)
        from hetplan.cli.beginning import next_command
        from hetplan.cli.model_assignment import say_of_profile, say_of_wish

        if found is not None:
            say_of_profile(out, found)
        if slo is not None:
            say_of_wish(out, slo)
            if found is not None:
                next_command(out, ["solve", *(path for path, _ in targets), "-o", folder / f"plan.{ending}"])
        elif found is not None:
            if found.engines:
                _say_laws(out, found)
            _say_next(out, folder / f"profile.{ending}", found)
        else:
            out.people.line("prices only: give this file together with a profile to hetplan solve")


def _read_back(file: Path, document: dict[str, Any]) -> Profile:
    """The profile that was made, as any command will read it; what is wrong with it is wrong with the file."""
    from hetplan.profiles.load_one import load_profile

    try:
        return load_profile(document)
    except InputError as error:
        raise InputError([replace(one, file=str(file)) for one in error.faults]) from None


def _say_next(out: Output, file: Path, profile: Profile) -> None:
    """How a profile without a wish becomes a plan."""
    from hetplan.cli.beginning import next_command

    model, variant = next(iter(profile.variants.items()))
    which = ["--model", model] if len(profile.variants) > 1 else []
    limits: list[object] = ["--slo", "ttft_p95=500,tpot_p95=50" if profile.engines else "p99=100"]
    if (rate := variant.runs[0].rate if variant.runs else None) is not None:
        limits = _wish_of_rates(profile.tables[rate])
    out.people.line("the file states no SLO: write one with your own rate and limits")
    next_command(out, ["init", "--profile", file, *which, "--rate", 10, *limits, "-o", file.parent / "wanted"])


def _wish_of_rates(table: Table) -> list[object]:
    """Options of `init` that a table of rates keeps: a size that was measured, and limits that its run kept."""
    from hetplan.profiles.first_text import first_size

    size = first_size(table)
    given = next((one.given for one in table.points if one.at == size), table.given)
    tokens = [] if len(size) < 2 else ["--tokens", f"{size['input_tokens']:g}:{size['output_tokens']:g}"]
    longest = {
        of: max((ms for key, ms in given.items() if key.startswith(f"{of}_") and key.endswith("_ms")), default=0.0)
        for of in ("ttft", "tpot", "response")
    }
    limits = {of: f"{float(f'{1.05 * ms:.2g}'):g}" for of, ms in longest.items() if ms}
    of_text = [f"{of}_p95={limits[of]}" for of in ("ttft", "tpot") if of in limits] if "ttft" in limits else []
    whole = f"p99={limits.get('response', 100)}"
    return [*tokens, "--slo", ",".join(of_text) or whole]


def _filters(kind: str, convert: Callable[..., Any], settings: list[str] | None) -> dict[str, Any]:
    """What `--set` says of an importer, by the parameters that it has: texts, or numbers where it takes numbers."""
    taken = {name: one for name, one in signature(convert).parameters.items() if one.kind is one.KEYWORD_ONLY}
    said = read_settings(settings or [])
    if unknown := [name for name in said if name not in taken]:
        remedy = f"It takes {', '.join(taken)}." if taken else f"{kind} takes no settings."
        raise InputError.one(file="--set", value=unknown[0], why=f"no setting of {kind}", remedy=remedy)
    for name, value in said.items():
        number, kinds = isinstance(value, int | float) and not isinstance(value, bool), str(taken[name].annotation)
        if "str" in kinds:
            said[name] = value if number and "int" in kinds else str(value)
        elif not number or not 0 < value < 1e15 or ("float" not in kinds and value != int(value)):
            why = "a number above 0" if "float" in kinds else "a whole number above 0"
            raise InputError.one(file="--set", path=name, value=value, why=why, remedy=f"Write --set {name}=60.")
    return said


def _bytes(data: dict[str, Any], *, as_yaml: bool) -> bytes:
    if as_yaml:
        from hetplan.profiles.yaml_text import write_yaml

        return write_yaml(data).encode()
    return (json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
