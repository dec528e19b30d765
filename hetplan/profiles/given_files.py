"""The files that are given, in any order: each says what it is by its `format`.

A folder stands for the files in it. In Python a document, the bytes of a file, or an object that was read before does
as well as a path; a file that is None is not there.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.profiles.arguments import check_arguments

if TYPE_CHECKING:
    from hetplan.profiles.fields import Model
    from hetplan.profiles.inputs import Inputs

    GivenFile = str | os.PathLike[str] | bytes | Mapping[str, Any] | Model
    """A path, the bytes of a file, a document, or an object: `Profile`, `Slo`, `State`, `Plan`."""
else:
    GivenFile = Any  # a command's help loads no pydantic

__all__ = ["GivenFile", "GivenFiles", "kind_of", "load", "sort_files"]
KIND_OF = {"profile": "profile", "slo": "slo", "state": "state", "plan": "plan", "measured": "measured",
           "journal": "measured"}  # fmt: skip
"""The word of a `format` -> the part that the file plays."""
KIND_OF_OBJECT = {"Profile": "profile", "Slo": "slo", "State": "state", "Plan": "plan"}
MAX_HEAD_BYTES, MAX_SEARCHED_BYTES = 1 << 16, 1 << 26
"""A file says early what it is; one that does not is searched, up to a size that no file of hetplan has."""
_FORMAT = re.compile(rb"""(?m)(?:"format"\s*:\s*"|^format\s*:\s*["']?)hetplan/([a-z-]+)/""")
ENDINGS = (".json", ".yaml", ".yml", ".jsonl")


@dataclass(frozen=True)
class GivenFiles:
    """The files that were given, by what they say they are."""

    profiles: tuple[Any, ...] = ()
    slo: Any = Path()
    state: Any = None
    measured: Any = None
    plans: tuple[Any, ...] = ()
    read: Inputs | None = None
    """All of them but plans, where they were read before."""

    @property
    def has_inputs(self) -> bool:
        """Whether there is what a plan is made from."""
        return bool(self.profiles) or self.read is not None

    @property
    def beside(self) -> dict[str, Any]:
        """State and measurements, as whoever reads files takes them."""
        return {"state": self.state, "measured": self.measured}

    @property
    def plan(self) -> Any:
        """The one plan."""
        return self.plans[0]

    @cached_property
    def inputs(self) -> Inputs:
        """What these files say, read once."""
        from hetplan.profiles.load import load_inputs

        return self.read or load_inputs(self.profiles, self.slo, **self.beside)


@check_arguments
def load(*files: GivenFile | Inputs | None) -> Inputs:
    """What the files say, read, checked and put together: profiles, an SLO, perhaps a state and measurements.

    >>> import hetplan as hp
    >>> inputs = hp.load("examples/pool/slo.json", "examples/pool/profile.json")
    >>> list(inputs.slo.apps), hp.load(inputs) == inputs
    (['ranking'], True)
    """
    return sort_files(files, "load", in_python=True).inputs


def sort_files(
    files: Sequence[GivenFile | Inputs | None],
    command: str,
    *,
    plans: tuple[int, int] = (0, 0),
    needs_inputs: bool = True,
    takes_state: bool = True,
    profile_alone: bool = False,
    in_python: bool = False,
) -> GivenFiles:
    """Files by what they say they are; `plans`: the fewest and the most that the command takes.

    Files that are named count before those of a folder. From a folder comes only what the command needs: a plan where
    it takes one, and beside a plan a state or measurements only if the plan was made from some. A file that does not
    say what it is counts by its place, so that whoever reads it says what is wrong with it: as a plan where one is
    missing, else the last as the SLO file, others as profiles.
    """
    from hetplan.profiles.inputs import Inputs

    found: dict[str, list[Any]] = {kind: [] for kind in dict.fromkeys(KIND_OF.values())}
    read, unknown, folders = list[Inputs](), list[Any](), list[Path]()
    for file in files:
        if isinstance(file, Inputs):
            read.append(file)
        elif isinstance(file, str | os.PathLike) and Path(file).is_dir():
            folders.append(Path(file))
        elif file is not None:
            kind = kind_of(file)
            (found[kind] if kind is not None else unknown).append(file)
    for folder in folders:
        _add_folder(found, folder, plans[0])
    if unknown and len(found["plan"]) < plans[0]:
        found["plan"].append(unknown.pop(0))
    usage = _usage(command, plans[0], in_python=in_python)
    if read:
        return _read_before(read, found, unknown, plans, usage)
    if unknown and not found["slo"]:
        found["slo"].append(unknown.pop())
    found["profile"] += unknown
    named = [Path(file).resolve() for file in files if isinstance(file, str | os.PathLike)]
    made_from = _made_from(found["plan"][0]) if plans[0] and found["plan"] else {}
    of_no_use = [kind for kind in ("state", "measured") if plans[0] and made_from.get(kind) is None]
    for kind in of_no_use if takes_state else [*of_no_use, "state"]:
        found[kind] = [one for one in found[kind] if not isinstance(one, Path) or one.resolve() in named]
    if not (profile_alone and found["profile"] and not any(found[kind] for kind in found if kind != "profile")):
        _check_counts(found, plans, usage, needs_inputs=needs_inputs)
    state, measured = (next(iter(found[kind]), None) for kind in ("state", "measured"))
    slo = next(iter(found["slo"]), Path())
    return GivenFiles(tuple(found["profile"]), slo, state, measured, tuple(found["plan"]))


def _usage(command: str, plans: int, *, in_python: bool) -> str:
    names = [*["plan.json"] * plans, "profile.json", "slo.json"]
    if in_python:
        return f"hetplan.{command}({', '.join(json.dumps(name) for name in names)})"
    return " ".join(["hetplan", command, *names])


def _read_before(
    read: Sequence[Inputs], found: Mapping[str, Sequence[Any]], unknown: Sequence[Any], plans: tuple[int, int],
    usage: str,
) -> GivenFiles:  # fmt: skip
    """Inputs that `load` read stand for all files but plans."""
    beside = [*read[1:], *unknown, *(one for kind in found if kind != "plan" for one in found[kind])]
    if beside:
        why = "the inputs were read before, from all their files"
        raise InputError.one(file="FILES", value=_name(beside[0]), why=why, remedy="Give them to hetplan.load.")
    _check_plans(found, plans, usage)
    return GivenFiles(plans=tuple(found["plan"]), read=read[0])


def _name(file: Any) -> str:
    """What a file is called in a message."""
    return os.fspath(file) if isinstance(file, str | os.PathLike) else type(file).__name__


def _add_folder(found: Mapping[str, list[Any]], folder: Path, plans: int) -> None:
    """Add the files of a folder, of kinds that are not there yet; of plans only those that are needed."""
    missing = [kind for kind, several in found.items() if kind == "profile" or not several]
    inside = [(one, kind_of(one)) for one in sorted(folder.iterdir()) if one.suffix in ENDINGS and one.is_file()]
    there = (file for several in found.values() for file in several)
    known = {Path(file).resolve() for file in there if isinstance(file, str | os.PathLike)}
    taken = [
        (one, kind) for one, kind in inside
        if kind in missing and one.resolve() not in known and (kind != "plan" or plans)
    ]  # fmt: skip
    if not taken and not any(kind is not None for _, kind in inside):
        why = 'no file in this folder says that it is one of hetplan\'s: "format": "hetplan/profile/1.0" and so on'
        raise InputError.one(file=str(folder), why=why, remedy="Name files, or a folder that holds them.")
    for one, kind in taken:
        found[str(kind)].append(one)


def _made_from(plan: GivenFile) -> Mapping[str, Any]:
    """What a plan says of the files that it was made from; nothing where that cannot be read here."""
    if not isinstance(plan, str | os.PathLike | bytes | Mapping):
        plan = plan.model_dump(mode="json", include={"inputs"})
    if isinstance(plan, str | os.PathLike):
        if not Path(plan).is_file():
            return {}
        from hetplan.profiles.read_json import read_json

        with suppress(InputError):
            plan = read_json(plan, file=str(plan))
    inputs = plan.get("inputs") if isinstance(plan, Mapping) else None
    return inputs if isinstance(inputs, Mapping) else {}


def _check_counts(
    found: Mapping[str, Sequence[Any]], plans: tuple[int, int], usage: str, *, needs_inputs: bool
) -> None:
    """Refuse too few and too many of a kind, by name."""
    for kind in ("slo", "state", "measured"):
        _check_most(found, kind, 1, usage)
    _check_plans(found, plans, usage)
    if bool(found["profile"]) != bool(found["slo"]) or (needs_inputs and not found["slo"]):
        why = "a profile and an SLO file are needed" + ("" if needs_inputs else ", or neither")
        raise InputError.one(file="FILES", value=_there(found), why=why, remedy=f"Name both: {usage}.")
    if not found["slo"] and (beside := [*found["state"], *found["measured"]]):
        why = "it says something only beside a profile and an SLO file"
        raise InputError.one(file=_name(beside[0]), why=why, remedy=f"Name these too: {usage}.")


def _check_plans(found: Mapping[str, Sequence[Any]], plans: tuple[int, int], usage: str) -> None:
    _check_most(found, "plan", plans[1], usage)
    if len(found["plan"]) < plans[0]:
        why = "a plan file is needed"
        raise InputError.one(file="FILES", value=_there(found), why=why, remedy=f"Name it: {usage}.")


def _check_most(found: Mapping[str, Sequence[Any]], kind: str, most: int, usage: str) -> None:
    if len(found[kind]) > most:
        name = "SLO" if kind == "slo" else kind
        asked = usage.partition("(")[0].partition(" plan.json")[0].partition(" profile.json")[0]
        why = (
            f"a second {name} file, beside {_name(found[kind][0])}"
            if most
            else f"a {name}, which {asked} does not take"
        )
        raise InputError.one(file=_name(found[kind][most]), why=why, remedy=f"Name the files that are meant: {usage}.")


def _there(found: Mapping[str, Sequence[Any]]) -> str:
    return ", ".join(f"{_name(file)} ({kind})" for kind, several in found.items() for file in several)


def kind_of(given: GivenFile) -> str | None:
    """What a file says it is; None where it does not say it, or is a pipe, which can be read only once."""
    if hasattr(given, "model_dump"):
        return KIND_OF_OBJECT.get(type(given).__name__)
    if isinstance(given, Mapping):
        apps = given.get("apps")
        if "format" not in given and isinstance(apps, Mapping) and any(isinstance(one, list) for one in apps.values()):
            return "measured"  # as `Journal.document` hands it out
        return _kind_of_format(given.get("format"))
    if isinstance(given, bytes):
        said = {one[1] for one in _FORMAT.finditer(given)}
        return KIND_OF.get(said.pop().decode()) if len(said) == 1 else None
    if not isinstance(given, str | os.PathLike):
        return None
    file = Path(given)
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
            return _kind_of_format(document.get("format") if isinstance(document, dict) else None)
    return KIND_OF.get(said.pop().decode()) if len(said) == 1 else None


def _kind_of_format(said: object) -> str | None:
    return KIND_OF.get(str(said).removeprefix("hetplan/").partition("/")[0])
