"""`hetplan init`: from a model, prices and latencies to a profile and an SLO that can be solved at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson
from hetplan.cli.output import Exit, Output
from hetplan.errors import Fault, InputError

if TYPE_CHECKING:
    from hetplan.profiles.first_files import Answers, Machine

__all__ = ["init"]

OTHER_PLACE = "Name another -o FOLDER, or use --force."
_Text = list[str] | None
Model = Annotated[str | None, typer.Option("--model", metavar="NAME", help="The model, where no table names it.")]
Gpus = Annotated[
    _Text, typer.Option("--gpu", metavar="NAME=PRICE[:STOCK]", help="A GPU machine, its price per hour; repeatable.")
]
Cpus = Annotated[
    _Text, typer.Option("--cpu", metavar="NAME=PRICE[:STOCK]", help="A machine without a GPU; repeatable.")
]
Ms = Annotated[
    _Text,
    typer.Option(
        "--ms", metavar="HARDWARE:BATCH=MS,...", help="What a batch takes on a machine; repeatable: t4:1=6,8=24."
    ),
]
Table = Annotated[
    Path | None,
    typer.Option(
        "--latencies", metavar="CSV", readable=False,
        help="A table with the columns model, hardware, batch, mean_ms (also p50_ms ... p99_ms, std_ms, quality, "
        "price_per_hour).",
    ),
]  # fmt: skip
Rate = Annotated[float | None, typer.Option("--rate", metavar="QPS", help="Queries per second.")]
P50 = Annotated[float | None, typer.Option("--p50", metavar="MS", help="Half of all queries are answered within.")]
P95 = Annotated[float | None, typer.Option("--p95", metavar="MS", help="95% are answered within.")]
P99 = Annotated[float | None, typer.Option("--p99", metavar="MS", help="99% are answered within.")]
Floor = Annotated[float | None, typer.Option("--quality", metavar="LEAST", help="The least quality that will do.")]
Budget = Annotated[str | None, typer.Option("--budget", metavar="PRICE", help="The most that may be spent per hour.")]
Folder = Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where the files go; made if need be.")]
AsYaml = Annotated[bool, typer.Option("--yaml", help="Write YAML with comments, in place of JSON.")]
Example = Annotated[
    str | None,
    typer.Option("--example", metavar="NAME", help="Copy a shipped example, and nothing else: pool, llm, fleet, ..."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there already.")]


def init(
    model: Model = None, gpu: Gpus = None, cpu: Cpus = None, ms: Ms = None, latencies: Table = None, rate: Rate = None,
    p50: P50 = None, p95: P95 = None, p99: P99 = None, quality: Floor = None, budget: Budget = None,
    folder: Folder = Path(), as_yaml: AsYaml = False, force: Force = False, example: Example = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write a first profile.json and slo.json.

    Asks on a terminal for what was not given. Everything that is assumed is shown.
    """
    with Output("init", as_json=as_json) as out:
        if example is not None:
            _copy(out, example, folder, force=force)
            return
        from hetplan.profiles.first_files import first_files

        if as_yaml:
            from hetplan.profiles.yaml_text import check_readable

            check_readable("--yaml")
        stated = ((50, p50), (95, p95), (99, p99))
        targets: list[tuple[int, float]] = [(which, limit) for which, limit in stated if limit is not None]
        asking = sys.stdin.isatty() and not as_json
        if asking and not (latencies or ms):
            model, gpu, ms = _ask_measured(model, gpu)
        rate = typer.prompt("Queries per second", type=float) if asking and rate is None else rate
        if asking and not targets:
            limit: float = typer.prompt("99% of the queries are to be answered within how many ms", type=float)
            targets = [(99, limit)]
        _check_complete(rate, targets, bool(latencies or ms))
        assert rate is not None
        said = _said(model, _machines(gpu, cpu), ms, latencies, (float(rate), targets[0][0], targets[0][1]))
        said = _with(said, quality, budget)
        profile, slo, assumed = first_files(said)
        names = ["profile.yaml", "slo.yaml"] if as_yaml else ["profile.json", "slo.json"]
        _write(out, folder, dict(zip(names, (profile, slo), strict=True)), assumed, force=force)
        least = min(min(one.ms.values()) for one in said.timings)
        most = max(max(one.ms.values()) for one in said.timings)
        if least > said.max_ms:
            out.warn(f"the fastest batch takes {least:g} ms, and {said.max_ms:g} ms are wanted: both are milliseconds")
        elif most < said.max_ms / 1000.0:
            out.warn(f"the slowest batch takes {most:g} ms, and {said.max_ms:g} ms are wanted: both are milliseconds")
        _say(out, folder, names, assumed)


def _copy(out: Output, example: str, folder: Path, *, force: bool) -> None:
    """The files of an example that is shipped, and how it is solved."""
    from hetplan.profiles.plan_file import write_atomically

    # A wheel has the examples in the package, a checkout beside it.
    package = Path(__file__).resolve().parents[1]
    root = next((at for at in (package / "examples", package.parent / "examples") if at.is_dir()), package)
    known = sorted(path.parent.name for path in root.glob("*/slo.json") if (path.parent / "profile.json").exists())
    if example not in known:
        remedy = f"Known: {', '.join(known)}."
        raise InputError.one(file="--example", value=example, why="an example that is shipped", remedy=remedy)
    files = sorted(path for path in (root / example).iterdir() if path.is_file())
    taken = [folder / path.name for path in files if (folder / path.name).exists() and not force]
    if taken:
        raise InputError([Fault(str(path), "", "", "the file is there already", OTHER_PLACE) for path in taken])
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        write_atomically(folder / path.name, path.read_bytes())
        out.people.line(f"written to {folder / path.name}")
    more = "".join(
        f" --{name} {folder / name}.json" for name in ("state", "measured") if (folder / f"{name}.json").exists()
    )
    command = f"hetplan solve {folder / 'profile.json'} {folder / 'slo.json'}{more} -o {folder / 'plan.json'}"
    out.people.line()
    out.people.line(f"Next: {command}")
    out.end(Exit.OK, "an example", next=command)


def _ask_measured(model: str | None, gpu: Sequence[str] | None) -> tuple[str, list[str], list[str]]:
    """The few questions: which model, which machines at which price, how long it takes there."""
    named = model or typer.prompt("Name of the model", default="model")
    machines, times = list(gpu or ()), []
    while not machines or (not gpu and typer.confirm("Another kind of machine?", default=False)):
        name = typer.prompt("Kind of machine", default="gpu")
        price = typer.prompt(f"Price of a {name} per hour")
        machines.append(f"{name}={price}")
    for machine in machines:
        name = machine.partition("=")[0]
        text = typer.prompt(f"ms that a batch takes on a {name}, as BATCH=MS,BATCH=MS", default="1=10")
        times.append(f"{name}:{text}")
    return named, machines, times


def _check_complete(rate: float | None, targets: Sequence[tuple[int, float]], measured: bool) -> None:
    faults = []
    if rate is None or not 0 < rate < float("inf"):
        value = "" if rate is None else str(rate)
        faults.append(Fault("--rate", "", value, "how many queries per second come", "Add --rate 100."))
    if len(targets) != 1 or not 0 < targets[0][1] < float("inf"):
        faults.append(Fault("--p99", "", "", "one limit of the response time, above 0 ms", "Add --p99 100, or --p95."))
    if not measured:
        faults.append(
            Fault(
                "--latencies", "", "", "how long batches take", "Add --ms HARDWARE:1=6,8=24, or --latencies FILE.csv."
            )
        )
    if faults:
        raise InputError(faults)


def _machines(gpu: Sequence[str] | None, cpu: Sequence[str] | None) -> dict[str, Machine]:
    from hetplan.profiles.first_files import read_machine

    found = [*(read_machine(text, "gpu") for text in gpu or ()), *(read_machine(text, "cpu") for text in cpu or ())]
    twice = sorted({one.name for one in found if [other.name for other in found].count(one.name) > 1})
    if twice:
        raise InputError.one(file="--gpu", value=twice[0], why="each machine once", remedy="Take one of them out.")
    return {one.name: one for one in found}


def _said(
    model: str | None, machines: Mapping[str, Machine], ms: Sequence[str] | None, table: Path | None,
    wish: tuple[float, int, float],
) -> Answers:  # fmt: skip
    from hetplan.profiles.first_files import Answers, read_latencies, read_timings

    timings, quality, priced = read_latencies(table, model) if table is not None else ([], {}, {})
    for text in ms or ():
        timings += read_timings(text, model or "model")
    known = {**priced, **machines}
    return Answers(list(known.values()), timings, wish[0], wish[1], wish[2], app=model or "", quality=quality)


def _with(said: Answers, quality: float | None, budget: str | None) -> Answers:
    from dataclasses import replace

    if quality is not None and not said.quality:
        raise InputError.one(
            file="--quality", value=str(quality), why="the quality of each model, to hold it against",
            remedy="Give --latencies a table with the column quality.",
        )  # fmt: skip
    return replace(said, least_quality=quality, cost_per_hour=budget)


def _write(
    out: Output, folder: Path, files: Mapping[str, dict[str, Any]], assumed: Sequence[str], *, force: bool
) -> None:
    """All files or none; read back as any command would before they are written.

    Editors complete and check the two files by their schemas, which lie in the folder `schema` beside them.
    """
    from hetplan.profiles.first_files import comments_on
    from hetplan.profiles.load import load_inputs
    from hetplan.profiles.plan_file import write_atomically
    from hetplan.profiles.schema import schema
    from hetplan.profiles.yaml_text import write_yaml

    def as_json(document: Mapping[str, Any]) -> str:
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    load_inputs(*files.values())
    texts: dict[str, str] = {}
    for name, document in files.items():
        kind = name.partition(".")[0]
        where = f"schema/{kind}.json"
        texts[where] = as_json(schema(kind))
        if name.endswith(".yaml"):
            said = f"# yaml-language-server: $schema={where}\n"
            texts[name] = said + write_yaml(document, comments_on(document, assumed))
        else:
            texts[name] = as_json({"$schema": where, **document})
    taken = [folder / name for name, text in texts.items() if name in files or _is_other(folder / name, text)]
    taken = [path for path in taken if path.exists() and not force]
    if taken:
        raise InputError([Fault(str(path), "", "", "the file is there already", OTHER_PLACE) for path in taken])
    (folder / "schema").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
        if name in files:
            out.people.line(f"written to {folder / name}")


def _is_other(path: Path, text: str) -> bool:
    """Whether there is no such file that is, byte for byte, what would be written."""
    return not (path.is_file() and path.read_bytes() == text.encode())


def _say(out: Output, folder: Path, names: Sequence[str], assumed: Sequence[str]) -> None:
    out.people.line()
    out.people.line("Assumed, because you did not say otherwise:")
    for text in assumed:
        out.people.line(f"  - {text}")
    files = " ".join(str(folder / name) for name in names)
    command = f"hetplan solve {files} -o {folder / 'plan.json'}"
    out.people.line()
    out.people.line(f"Next: {command}")
    out.end(Exit.OK, "two files written", assumed=list(assumed), next=command)
