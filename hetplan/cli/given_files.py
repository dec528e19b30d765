"""The files that a command is given, in any order: each says what it is by its `format`.

A folder stands for the files in it.

Beside them traces, methods and hosts by the paths of options, and the plan that was applied last.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hetplan.errors import Fault, InputError

if TYPE_CHECKING:
    from hetplan.profiles.inputs import Inputs
    from hetplan.profiles.plan import Plan

__all__ = [
    "KEPT_PLAN",
    "GivenFiles",
    "HostsFileOption",
    "Wait",
    "keep_plan",
    "plan_from",
    "read_method",
    "sort_files",
    "trace_from",
]

HostsFileOption = Annotated[
    Path, typer.Option("--hosts", metavar="FILE", readable=False, help="Trusted file: hosts, models, time-outs.")
]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0.0, help="Wait so long while another command is at work.")
]

KEPT_PLAN = "watched-plan.json"
"""The plan that was applied last, beside the record of its deployment."""


KIND_OF = {"profile": "profile", "slo": "slo", "state": "state", "plan": "plan", "measured": "measured",
           "journal": "measured"}  # fmt: skip
"""The word of a `format` -> the part that the file plays."""
MAX_HEAD_BYTES, MAX_SEARCHED_BYTES = 1 << 16, 1 << 26
"""A file says early what it is; one that does not is searched, up to a size that no file of hetplan has."""
_FORMAT = re.compile(rb"""(?m)(?:"format"\s*:\s*"|^format\s*:\s*["']?)hetplan/([a-z-]+)/""")
ENDINGS = (".json", ".yaml", ".yml", ".jsonl")


@dataclass(frozen=True)
class GivenFiles:
    """The files that a command was given, by what they say they are."""

    profiles: tuple[Path, ...] = ()
    slo: Path = Path()
    state: Path | None = None
    measured: Path | None = None
    plans: tuple[Path, ...] = ()

    @property
    def has_inputs(self) -> bool:
        """Whether there is what a plan is made from."""
        return bool(self.profiles)

    @property
    def beside(self) -> dict[str, Path | None]:
        """State and measurements, as whoever reads files takes them."""
        return {"state": self.state, "measured": self.measured}

    @property
    def plan(self) -> Path:
        """The one plan."""
        return self.plans[0]

    @cached_property
    def inputs(self) -> Inputs:
        """What these files say, read once."""
        from hetplan.profiles.load import load_inputs

        return load_inputs(self.profiles, self.slo, **self.beside)


def sort_files(
    files: Sequence[Path],
    command: str,
    *,
    plans: tuple[int, int] = (0, 0),
    needs_inputs: bool = True,
    takes_state: bool = True,
) -> GivenFiles:
    """Files by what they say they are; `plans`: the fewest and the most that the command takes.

    Files that are named count before those of a folder. From a folder comes only what the command needs: a plan where
    it takes one, and beside a plan a state or measurements only if the plan was made from some. A file that does not
    say what it is counts by its place, so that whoever reads it says what is wrong with it: as a plan where one is
    missing, else the last as the SLO file, others as profiles.
    """
    found: dict[str, list[Path]] = {kind: [] for kind in dict.fromkeys(KIND_OF.values())}
    unknown = list[Path]()
    for file in (one for one in files if not one.is_dir()):
        kind = _kind_of(file)
        (found[kind] if kind is not None else unknown).append(file)
    for folder in (one for one in files if one.is_dir()):
        _add_folder(found, folder, plans[0])
    if unknown and len(found["plan"]) < plans[0]:
        found["plan"].append(unknown.pop(0))
    if unknown and not found["slo"]:
        found["slo"].append(unknown.pop())
    found["profile"] += unknown
    usage = " ".join(["hetplan", command, *["plan.json"] * plans[0], "profile.json", "slo.json"])
    named = [file.resolve() for file in files]
    if plans[0] or not takes_state:
        made_from = _made_from(found["plan"][0]) if plans[0] and found["plan"] else {}
        for kind in ("state", "measured"):
            used = made_from.get(kind) is not None
            found[kind] = [one for one in found[kind] if used or one.resolve() in named]
    _check_counts(found, plans, usage, needs_inputs=needs_inputs)
    state, measured = (next(iter(found[kind]), None) for kind in ("state", "measured"))
    slo = next(iter(found["slo"]), Path())
    return GivenFiles(tuple(found["profile"]), slo, state, measured, tuple(found["plan"]))


def _add_folder(found: Mapping[str, list[Path]], folder: Path, plans: int) -> None:
    """Add the files of a folder, of kinds that are not there yet; of plans only those that are needed."""
    missing = [kind for kind, several in found.items() if kind == "profile" or not several]
    inside = [(one, _kind_of(one)) for one in sorted(folder.iterdir()) if one.suffix in ENDINGS and one.is_file()]
    known = {file.resolve() for several in found.values() for file in several}
    taken = [
        (one, kind) for one, kind in inside
        if kind in missing and one.resolve() not in known and (kind != "plan" or plans)
    ]  # fmt: skip
    if not taken and not any(kind is not None for _, kind in inside):
        why = 'no file in this folder says that it is one of hetplan\'s: "format": "hetplan/profile/1.0" and so on'
        raise InputError.one(file=str(folder), why=why, remedy="Name files, or a folder that holds them.")
    for one, kind in taken:
        found[str(kind)].append(one)


def _made_from(plan: Path) -> Mapping[str, Any]:
    """What a plan says of the files that it was made from; nothing where that cannot be read here."""
    if not plan.is_file():
        return {}
    from hetplan.profiles.read_json import read_json

    with suppress(InputError):
        document = read_json(plan, file=str(plan))
        inputs = document.get("inputs") if isinstance(document, dict) else None
        return inputs if isinstance(inputs, dict) else {}
    return {}


def _check_counts(
    found: Mapping[str, Sequence[Path]], plans: tuple[int, int], usage: str, *, needs_inputs: bool
) -> None:
    """Refuse too few and too many of a kind, by name."""
    for kind, most in (("slo", 1), ("state", 1), ("measured", 1), ("plan", plans[1])):
        if len(found[kind]) > most:
            first, extra = found[kind][0], found[kind][most]
            name = "SLO" if kind == "slo" else kind
            why = f"a second {name} file, beside {first}" if most else f"a {name}, which this command does not take"
            raise InputError.one(file=str(extra), why=why, remedy=f"Name the files that are meant: {usage}.")
    there = ", ".join(f"{file} ({kind})" for kind, several in found.items() for file in several)
    if len(found["plan"]) < plans[0]:
        raise InputError.one(file="FILES", value=there, why="a plan file is needed", remedy=f"Name it: {usage}.")
    if bool(found["profile"]) != bool(found["slo"]) or (needs_inputs and not found["slo"]):
        why = "a profile and an SLO file are needed" + ("" if needs_inputs else ", or neither")
        raise InputError.one(file="FILES", value=there, why=why, remedy=f"Name both: {usage}.")
    if not found["slo"] and (beside := [*found["state"], *found["measured"]]):
        why = "it says something only beside a profile and an SLO file"
        raise InputError.one(file=str(beside[0]), why=why, remedy=f"Name these too: {usage}.")


def _kind_of(file: Path) -> str | None:
    """What a file says it is; None where it does not say it, or is a pipe, which can be read only once."""
    if str(file) == "-":
        return "plan"
    try:
        if not file.is_file():
            file.stat()
            return None
        with file.open("rb") as stream:
            head = stream.read(MAX_HEAD_BYTES)
            said = {one[1] for one in _FORMAT.finditer(head)}
            if not said and file.stat().st_size <= MAX_SEARCHED_BYTES:
                said = {one[1] for one in _FORMAT.finditer(head + stream.read())}
    except (OSError, ValueError) as error:
        from hetplan.profiles.json_faults import unreadable

        raise unreadable(error, file, str(file)) from None
    if len(said) > 1:  # an extension, or a note, says another format: the one at the top counts
        from hetplan.profiles.read_json import read_json

        with suppress(InputError):
            document = read_json(file, file=str(file))
            top = document.get("format") if isinstance(document, dict) else None
            said = {str(top).removeprefix("hetplan/").partition("/")[0].encode()}
    return KIND_OF.get(said.pop().decode()) if len(said) == 1 else None


def keep_plan(folder: Path, plan: Plan) -> None:
    """Keep a plan that was applied, for those who watch it."""
    from hetplan.profiles.plan_file import write_plan

    write_plan(plan, folder / KEPT_PLAN)


def plan_from(source: Path, *, warn: Callable[[str], None] | None = None) -> Plan:
    """The plan in a file or, for `-`, on standard input; raises InputError when it is none.

    With `warn` an edited plan is only warned about: looking at one, or verifying it, trusts nothing it says.
    """
    from hetplan.profiles.plan_file import plan_digest
    from hetplan.profiles.read_json import read_json
    from hetplan.profiles.read_plan import read_plan

    if str(source) == "-":
        given = read_json(sys.stdin.buffer.read(), file="<stdin>")
        plan = read_plan(given if isinstance(given, dict) else {"format": given}, trust_digest=warn is not None)
    else:
        plan = read_plan(source, trust_digest=warn is not None)
    if warn is not None and plan.digest != plan_digest(plan):
        warn(f"{source}: edited since it was made (its digest is not that of its content)")
    return plan


def trace_from(file: Path | None) -> Any:
    """The arrival times in a file; None where none is named."""
    if file is None:
        return None
    from hetplan.profiles.traces import parse_arrivals

    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError.one(
            file=str(file), why=f"the trace cannot be read: {error.strerror}", remedy="Name a readable CSV file."
        ) from error
    return parse_arrivals(data, name=str(file))


_METHOD_KEYS = ("formulation", "options", "like", "question")


def read_method(file: Path) -> dict[str, Any]:
    """What a file of ``--set @FILE`` says: the formulation, its options, perhaps the question."""
    from hetplan.profiles.read_json import read_json

    method = read_json(file, file=str(file))
    if not isinstance(method, dict):
        raise InputError.one(
            file=str(file), path="$", why="a method file is an object", remedy='Write {"options": {"derate": 0.8}}.'
        )
    faults = [
        Fault(str(file), f"$.{name}", "", "unknown key of a method file", f"Known: {', '.join(_METHOD_KEYS)}.")
        for name in method
        if name not in _METHOD_KEYS
    ]
    for name, kind in (("formulation", str), ("question", str), ("options", dict)):
        if not isinstance(method.get(name, kind()), kind):
            expected = "an object" if kind is dict else "a text"
            faults.append(Fault(str(file), f"$.{name}", repr(method[name])[:60], f"must be {expected}", "Correct it."))
    if faults:
        raise InputError(faults)
    return method
