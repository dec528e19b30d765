"""`hetplan init`: from models, prices and latencies to a profile and an SLO that can be solved at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.cli.arguments import AsJson, file_option, option
from hetplan.cli.output import Exit, Output
from hetplan.errors import Fault, InputError

if TYPE_CHECKING:
    from hetplan.cli.beginning import Made, Said
    from hetplan.profiles.inputs import Inputs

__all__ = ["init"]

OTHER_PLACE = "Name another -o FOLDER, or use --force."
_Text = list[str] | None
Model = Annotated[str | None, option("--model", "NAME", "The model; picks one if a table has several.")]
Machines = Annotated[
    _Text,
    option(
        "--machine",
        "NAME[=PRICE[:STOCK]]",
        "A machine type and its price per hour; repeatable. For a GPU (h200): per GPU.",
    ),
]
Prices = Annotated[
    Path | None,
    file_option(
        "--prices", "CSV", "Prices: columns machine, price_per_hour, stock; or a SkyPilot catalogue (vms.csv)."
    ),
]
Region = Annotated[str, option("--region", "NAME", "With --prices: the region of the catalogue.")]
Ms = Annotated[
    _Text, option("--ms", "MACHINE:BATCH=MS,...", "Milliseconds by batch size on a machine; repeatable: t4:1=6,8=24.")
]
Table = Annotated[
    Path | None,
    file_option(
        "--latencies",
        "CSV",
        "Measured latencies: columns model, machine, batch, mean_ms (also p50_ms ... p99_ms, std_ms, quality, "
        "price_per_hour).",
    ),
]
App = Annotated[str | None, option("--app", "NAME", "The application; default: the name of the model.")]
Edges = Annotated[
    _Text, option("--edge", "FROM:TO=N", "Pipeline: queries that one stage sends to another per query; repeatable.")
]
Workers = Annotated[
    _Text, option("--workers", "MACHINE=COUNT", "Given workers: plan a policy that picks a model for each batch.")
]
Given = Annotated[Path | None, file_option("--profile", "FILE", "A profile of `hetplan profile` or `hetplan import`.")]
Config = Annotated[Path | None, file_option("--config", "FILE", "The config.json of an LLM, for known GPUs.")]
Settings = Annotated[
    Path | None,
    file_option(
        "--settings",
        "CSV",
        "Measured settings of a compound query: a column per knob, quality, STEP_ms for each stage.",
    ),
]
Tokens = Annotated[
    str | None, option("--tokens", "IN:OUT=SHARE,...", "LLM: tokens of a request, with shares: 400:200.")
]
Lengths = Annotated[
    Path | None, file_option("--lengths", "FILE", "LLM: recorded requests of Azure, BurstGPT or Mooncake.")
]
Rate = Annotated[float | None, option("--rate", "QPS", "Queries (LLM: requests) per second.")]
Rates = Annotated[
    Path | None,
    file_option("--rates", "FILE", "Recorded rates or arrivals, as `hetplan import` reads them; plans every hour."),
]
Limits = Annotated[
    _Text,
    option("--slo", "LIMIT=MS,...", "p99=100: 99% of the answers come within 100 ms. LLM: ttft_p95=1000,tpot_p95=40."),
]
Served = Annotated[str, option("--engine", "NAME", "LLM engine: vllm, sglang, trtllm.")]
KvLink = Annotated[
    float | None,
    option("--kv-link", "MBPS", "LLM: also machines that only prefill or decode, with this network between them."),
]
Floor = Annotated[float | None, option("--quality", "LEAST", "The lowest quality that is allowed.")]
Budget = Annotated[str | None, option("--budget", "PRICE", "The highest cost per hour.")]
Folder = Annotated[Path, option("-o --output", "FOLDER", "Write the files to this folder.")]
AsYaml = Annotated[bool, typer.Option("--yaml", help="Write YAML with comments instead of JSON.")]
Add = Annotated[bool, typer.Option("--add", help="Add the application to the files in the folder.")]
Example = Annotated[str | None, option("--example", "NAME", "Only copy a shipped example: pool, llm, ... or all.")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


def init(
    model: Model = None, app: App = None, machine: Machines = None, prices: Prices = None,
    region: Region = "", ms: Ms = None, latencies: Table = None,
    edge: Edges = None, workers: Workers = None, profile: Given = None, config: Config = None,
    settings: Settings = None, tokens: Tokens = None, lengths: Lengths = None, rate: Rate = None, rates: Rates = None,
    slo: Limits = None, engine: Served = "vllm", kv_link: KvLink = None, quality: Floor = None,
    budget: Budget = None, folder: Folder = Path(), as_yaml: AsYaml = False, add: Add = False, force: Force = False,
    example: Example = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write a first profile and SLO file from your numbers.

    For an LLM the names of the model and of GPUs are enough. On a terminal it asks for missing numbers. It prints
    every assumption.
    """
    with Output("init", as_json=as_json) as out:
        if example is not None:
            _copy(out, example, folder, force=force, as_yaml=as_yaml)
            return
        from hetplan.cli.beginning import Said, made_of, read_limits, together
        from hetplan.cli.model_assignment import assumed_choices

        said = Said(
            model, app, machine or (), prices, region, ms or (), latencies, edge or (), workers or (), profile, config,
            settings, tokens, lengths, rate, rates, read_limits(slo or ()), engine, quality, budget,
            kv_link,
        )  # fmt: skip
        if sys.stdin.isatty() and not as_json:
            said = _asked(said)
        made, names = made_of(said), ["profile.yaml", "slo.yaml"] if as_yaml else ["profile.json", "slo.json"]
        if add:
            names, there = _there(folder)
            made = together(made, *there, str(folder / names[1]))
        inputs = _read_back(made)
        made.assumed.extend(assumed_choices(inputs.profile, inputs.slo))
        _write(out, folder, names, made, force=force or add)
        if made.odd:
            out.warn(made.odd)
        _say(out, folder, names, made, inputs)


def _there(folder: Path) -> tuple[list[str], tuple[dict[str, Any] | None, dict[str, Any]]]:
    """The files of a folder to which an application is added, and their names."""
    from hetplan.profiles.measurement_tables import with_measurements
    from hetplan.profiles.read_json import read_json

    for names in (["profile.json", "slo.json"], ["profile.yaml", "slo.yaml"]):
        profile, slo = (folder / name for name in names)
        if slo.exists():
            held = read_json(profile, file=str(profile)) if profile.exists() else None
            wishes = read_json(slo, file=str(slo))
            if not isinstance(held, dict | None) or not isinstance(wishes, dict) or "apps" not in wishes:
                raise InputError.one(file=str(slo), path="$.apps", why="the applications that are there",
                                     remedy="Mend the file, or begin anew without --add.")  # fmt: skip
            if held is not None and "measurements" in held:
                held, _ = with_measurements(held, folder, str(profile))
            return names, (held, wishes)
    remedy = "Begin without --add, or name the folder with -o."
    raise InputError.one(file=str(folder / "slo.json"), why="an SLO to add an application to", remedy=remedy)


def shipped_examples() -> Path:
    """The folder of the examples: a wheel has them in the package, a checkout beside it."""
    package = Path(__file__).resolve().parents[1]
    return next((at for at in (package / "examples", package.parent / "examples") if at.is_dir()), package)


def _copy_all(out: Output, root: Path, folder: Path, *, force: bool) -> None:
    """Everything under `examples/`, as the pages of the documentation name it."""
    import shutil

    if folder.exists() and any(folder.iterdir()) and not force:
        raise InputError([Fault(str(folder), "", "", "the folder holds files already", OTHER_PLACE)])
    shutil.copytree(root, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    out.people.line(said := f"{sum(path.is_file() for path in folder.rglob('*'))} files written to {folder}")
    out.end(Exit.OK, said)


def _copy(out: Output, example: str, folder: Path, *, force: bool, as_yaml: bool) -> None:
    """The files of an example that is shipped, and how it is solved.

    Of other wishes that are shipped with it none is copied: a folder has the files of one question.
    """
    from hetplan.cli.beginning import next_command
    from hetplan.profiles.given_files import kind_of
    from hetplan.profiles.plan_file import write_atomically
    from hetplan.profiles.read_json import read_json
    from hetplan.profiles.yaml_text import write_yaml

    root = shipped_examples()
    if example == "all":
        _copy_all(out, root, folder, force=force)
        return
    known = sorted(path.parent.name for path in root.glob("*/slo.json") if (path.parent / "profile.json").exists())
    if example not in known:
        remedy = f"Known: {', '.join(known)}; all copies everything that the pages name."
        raise InputError.one(file="--example", value=example, why="an example that is shipped", remedy=remedy)
    own = ("profile.json", "slo.json", "state.json", "measured.json")
    texts: dict[str, bytes] = {}
    for path in sorted(path for path in (root / example).iterdir() if path.is_file()):
        if as_yaml and path.name in own[:2]:
            texts[f"{path.stem}.yaml"] = write_yaml(read_json(path, file=str(path))).encode()
        elif path.name in own or path.suffix != ".json" or kind_of(path) is None:
            texts[path.name] = path.read_bytes()
    taken = [folder / name for name in texts if (folder / name).exists() and not force]
    if taken:
        raise InputError([Fault(str(path), "", "", "the file is there already", OTHER_PLACE) for path in taken])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in texts.items():
        write_atomically(folder / name, content)
        out.people.line(f"written to {folder / name}")
    named = [name for kind in own for name in (kind, kind.replace("json", "yaml")) if name in texts]
    command = next_command(out, ["solve", *(folder / name for name in named), "-o", folder / "plan.json"])
    out.end(Exit.OK, "an example", next=command)


def _asked(said: Said) -> Said:
    """The few questions: which model, which machines at which price, how long it takes there, what is wanted."""
    if not said.has_source:
        model, machines, times = _ask_measured(said.model, said.machines)
        said = replace(said, model=model, machines=machines, ms=times)
    if said.rate is None and said.rates is None and said.lengths is None:
        said = replace(said, rate=typer.prompt("Queries per second", type=float))
    if not said.limits and not said.is_text:
        limit: float = typer.prompt("99% of the queries are to be answered within how many ms", type=float)
        said = replace(said, limits=(("response", 99.0, limit),))
    if said.is_by_names and not said.prices:
        said = replace(said, machines=[_ask_price(text) for text in said.machines])
    return said


def _ask_price(machine: str) -> str:
    """A machine with its price; without where nothing is typed: its GPUs are counted then."""
    if "=" in machine:
        return machine
    price = typer.prompt(f"Price of one {machine} per hour (empty: count GPUs)", default="", show_default=False)
    return f"{machine}={price}" if price else machine


def _ask_measured(model: str | None, named_machines: Sequence[str]) -> tuple[str, list[str], list[str]]:
    named = model or typer.prompt("Name of the model", default="model")
    machines, times = list(named_machines), []
    while not machines or (not named_machines and typer.confirm("Another kind of machine?", default=False)):
        name = typer.prompt("Kind of machine", default="gpu")
        price = typer.prompt(f"Price of a {name} per hour")
        machines.append(f"{name}={price}")
    for machine in machines:
        name = machine.partition("=")[0]
        text = typer.prompt(f"ms that a batch takes on a {name}, as BATCH=MS,BATCH=MS", default="1=10")
        times.append(f"{name}:{text}")
    return named, machines, times


def _read_back(made: Made) -> Inputs:
    """What will be written, as any command will read it."""
    from hetplan.profiles.load import load_inputs

    profiles = [one for one in (made.beside, made.profile) if one is not None]
    return load_inputs(profiles, made.slo, measured=made.measured)


def _write(out: Output, folder: Path, names: Sequence[str], made: Made, *, force: bool) -> None:
    """All files or none.

    Editors complete and check the two files by their schemas, which lie in the folder `schema` beside them.
    """
    from hetplan.profiles.first_files import comments_on
    from hetplan.profiles.plan_file import write_atomically
    from hetplan.profiles.schema import schema
    from hetplan.profiles.yaml_text import write_yaml

    def as_json(document: Mapping[str, Any]) -> str:
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"

    files = {name: one for name, one in zip(names, (made.profile, made.slo), strict=True) if one is not None}
    texts: dict[str, str] = {}
    for name, document in files.items():
        kind = name.partition(".")[0]
        where = f"schema/{kind}.json"
        texts[where] = as_json(schema(kind))
        if name.endswith(".yaml"):
            begin = f"# yaml-language-server: $schema={where}\n"
            texts[name] = begin + write_yaml(document, comments_on(document, made.assumed))
        else:
            texts[name] = as_json({"$schema": where, **document})
    if made.measured is not None:
        texts["measured.json"] = as_json(made.measured)
    taken = [
        folder / name
        for name, text in texts.items()
        if not name.startswith("schema/") or _is_other(folder / name, text)
    ]
    taken = [path for path in taken if path.exists() and not force]
    if taken:
        raise InputError([Fault(str(path), "", "", "the file is there already", OTHER_PLACE) for path in taken])
    (folder / "schema").mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
        if not name.startswith("schema/"):
            out.people.line(f"written to {folder / name}")


def _is_other(path: Path, text: str) -> bool:
    """Whether there is no such file that is, byte for byte, what would be written."""
    return not (path.is_file() and path.read_bytes() == text.encode())


def _say(out: Output, folder: Path, names: Sequence[str], made: Made, inputs: Inputs) -> None:
    from hetplan.cli.beginning import next_command
    from hetplan.cli.model_assignment import say_answers

    answered_by = say_answers(out, inputs.profile, inputs.slo)
    out.people.line()
    out.people.line("Assumed, because you did not say otherwise:")
    for text in made.assumed:
        out.people.line(f"  - {text}")
    files = [made.beside, folder / names[0] if made.profile is not None else None, folder / names[1]]
    more = [folder / "measured.json"] if made.measured is not None else []
    read = [path for path in files if path is not None]
    command = next_command(out, ["solve", *read, *more, "-o", folder / "plan.json"])
    out.end(Exit.OK, "files written", assumed=list(made.assumed), answered_by=answered_by, next=command)
