"""Random damage to the files of every question, through every command: no traceback, no hang, no wrong exit code.

python benchmarks/fuzz.py --cases 100000 --seed 7        about 100 ms a case; every case has its own seed
python benchmarks/fuzz.py --again 7:1234                 one case once more, with what the command said
python benchmarks/fuzz.py --cases 500 --record runs.jsonl     appends seed, cases and findings of the run

A case takes a shipped example, spoils one to three places of its profile, SLO, state or plan (or cuts its bytes), and
runs one command on it, in this process. Findings are printed with their seeds; the exit code is 1 where there are any.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

EXAMPLES = ("pool/profile pool/slo", "variants/profile variants/slo variants/state", "pipeline/profile pipeline/slo",
            "compound/candidates-profile compound/candidates-slo", "policy/profile policy/slo", "llm/profile llm/slo",
            "fleet/profile fleet/slo", "compound/profile compound/slo compound/measured")  # fmt: skip
SOLVED: dict[str, tuple[str, ...]] = {
    "pipeline": ("--set", "size=planned"),
    "variants": ("--set", "size=planned"),
    "policy": ("--set", "batching=max", "--set", "grid=fld:20", "--set", "size=planned"),
    "llm": ("--set", "size=planned"),
    "fleet": ("--set", "size=planned", "--set", "levers=false"),
}
ODD: tuple[Any, ...] = (
    None, 0, 1, -1, 1e300, -1e-300, 2**70, "", "x", "1e9", "\u2603", True, [], {}, [[]], {"": 0}, "*", "a" * 200,
)  # fmt: skip
LIMIT_S = 60
"""Of processor time for a case; ten times as long in all, for what waits without an end."""
COMMANDS = ("check", "solve", "verify", "simulate", "show", "diff", "render")
ALLOWED = {
    "check": {0, 2}, "solve": {0, 2, 3, 4, 5, 6}, "verify": {0, 2, 4, 6}, "simulate": {0, 2, 6}, "show": {0, 2},
    "diff": {0, 2, 8}, "render": {0, 2, 3},
}  # fmt: skip


class TooLong(BaseException):
    """A case took longer than any may."""


@dataclass
class Found:
    """What a run came to."""

    cases: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    findings: list[dict[str, Any]] = field(default_factory=list)


def examples(folder: Path) -> list[dict[str, Any]]:
    """The documents of each example, its plan among them."""
    made = []
    for number, line in enumerate(EXAMPLES):
        question, plan = line.split("/")[0], folder / f"{number}.json"
        documents = {_role(file): json.loads((ROOT / "examples" / f"{file}.json").read_text()) for file in line.split()}
        _make_small(question, documents)
        paths = {name: folder / f"{number}.{name}.json" for name in documents}
        for name, path in paths.items():
            path.write_text(json.dumps(documents[name]))
        chosen = [*SOLVED.get(question, ())]
        code, said = run("solve", *_inputs(paths), *chosen, "-o", str(plan))
        assert code == 0, said
        documents["plan"] = json.loads(plan.read_text())
        made.append({"question": question, "documents": documents, "set": chosen})
    return made


def _role(file: str) -> str:
    """What a file is: a profile, an SLO, a state, or what was measured."""
    return file.split("/")[1].split("-")[-1]


def _inputs(files: dict[str, Path], further: tuple[str, ...] = ("state", "measured")) -> list[str]:
    """The files as arguments of a command."""
    asked = [str(files["profile"]), str(files["slo"])]
    for name in further:
        asked += [str(files[name])] if name in files else []
    return asked


def _make_small(question: str, documents: dict[str, Any]) -> None:
    """Less to plan, so that a case takes a moment: two hours of a fleet's day, one load of a policy's."""
    slo = documents["slo"]
    if question == "fleet":
        slo["horizon"] |= {"periods": 2, "repeats": 360}
        for app in slo["apps"].values():
            app["rate_qps"] = {"series": [min(app["rate_qps"]["series"]), max(app["rate_qps"]["series"])]}
    if question == "policy":
        slo["apps"]["images"]["rate_qps"] = 150


def run(*arguments: str) -> tuple[int, str]:
    """The exit code of a command, and all that it said."""
    from typer.testing import CliRunner

    from hetplan.cli.app import build_app

    ran = CliRunner().invoke(build_app(), list(arguments))
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        return -1, f"{type(ran.exception).__name__}: {ran.exception}"
    return ran.exit_code, ran.output


def spoilt(document: Any, rng: random.Random) -> bytes:
    """The document with one to three places changed, or cut."""
    changed = copy.deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        holders = list(_holders(changed))
        if not holders:
            break
        numbers = [(at, key) for at, key in holders if type(at[key]) in (int, float)]
        # A number of the right kind gets past the reader more often than anything else.
        holder, key = rng.choice(numbers if numbers and rng.random() < 0.6 else holders)
        how = rng.random()
        if how < 0.1:
            del holder[key]
        elif type(holder[key]) in (int, float) and how < 0.8:
            holder[key] = type(holder[key])(holder[key] * rng.choice([-1, 0, 0.001, 0.5, 2, 10, 1000, 1e9]))
        elif how < 0.45 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif how < 0.6:
            other, place = rng.choice(holders)
            holder[key] = copy.deepcopy(other[place]) if _is_there(other, place) else None
        else:
            holder[key] = copy.deepcopy(rng.choice(ODD))
    content = json.dumps(changed).encode()
    return content[: rng.randrange(len(content))] if rng.random() < 0.03 else content


def _is_there(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _holders(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _holders(value[key])


def case(seed: str, made: list[dict[str, Any]], folder: Path) -> tuple[str, list[str]]:
    """The command of a case and its arguments; writes the files."""
    rng = random.Random(seed)
    example, command = rng.choice(made), rng.choice(COMMANDS)
    documents, files = example["documents"], {}
    wanted = {"show": ["plan"], "diff": ["plan"]}.get(command, list(documents))
    wanted = [name for name in wanted if name != "plan" or command not in ("check", "solve", "render")]
    victim = rng.choice(wanted)
    for name in documents:
        files[name] = folder / f"{name}.json"
        files[name].write_bytes(
            spoilt(documents[name], rng) if name == victim else json.dumps(documents[name]).encode()
        )
    if "plan" in wanted and rng.random() < 0.7:
        _seal(files)
    asked = _inputs(files, {"render": (), "check": ("state",)}.get(command, ("state", "measured")))
    if command in ("show", "diff"):
        whole = folder / "whole.json"
        whole.write_text(json.dumps(documents["plan"]))
        return command, [str(files["plan"]), *([str(whole)] if command == "diff" else [])]
    if command == "solve":
        return command, [*asked, *example["set"], "-o", str(folder / "new.json")]
    if command in ("verify", "simulate"):
        short = ["--seeds", "1", "--duration", "2", "--threads", "1"] if command == "simulate" else []
        return command, [str(files["plan"]), *asked, *short]
    return command, asked


def _seal(files: dict[str, Path]) -> None:
    """Digests that are right, where the files can be read at all: else nearly every damage ends at them."""
    from hetplan.errors import InputError
    from hetplan.profiles.canonical import digest
    from hetplan.profiles.load import load_inputs

    try:
        plan = json.loads(files["plan"].read_bytes())
        digests = load_inputs(
            files["profile"], files["slo"], state=files.get("state"), measured=files.get("measured")
        ).digests
        plan["inputs"] |= {name: digests[name] for name in plan["inputs"] if name in digests}
        plan.pop("digest", None)
        plan["digest"] = digest(plan)
    except (InputError, ValueError, TypeError, KeyError, AttributeError):
        return
    files["plan"].write_text(json.dumps(plan))


def judged(seed: str, made: list[dict[str, Any]], folder: Path) -> tuple[str, int, str]:
    """A case's command, its exit code, and what is wrong with how it ended ("" where nothing is)."""
    command, arguments = case(seed, made, folder)

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TooLong

    before: dict[int, Callable[..., Any] | int | None] = {
        one: signal.signal(one, stop) for one in (signal.SIGPROF, signal.SIGALRM)
    }
    signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
    signal.alarm(10 * LIMIT_S)
    try:
        code, said = run(command, *arguments)
    except TooLong:
        return command, -2, f"it took more than {LIMIT_S} s"
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for one, handler in before.items():
            signal.signal(one, handler)
    if "Traceback" in said or "a fault of hetplan" in said or code == -1:
        return command, code, next((x for x in said.splitlines() if "fault of hetplan" in x), said[-200:])
    return command, code, "" if code in ALLOWED[command] else f"exit {code}: {said[-200:]}"


def fuzz(cases: int, seed: int, *, quiet: bool = True) -> Found:
    """So many cases of a seed."""
    found = Found()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = examples(folder)
        for number in range(cases):
            at = f"{seed}:{number}"
            command, code, wrong = judged(at, made, folder)
            found.cases += 1
            found.codes[f"{command} {code}"] += 1
            if wrong:
                found.findings.append({"case": at, "command": command, "wrong": wrong})
                print(f"{at} {command}: {wrong}", flush=True)
            if not quiet and number % 1000 == 999:
                print(f"{number + 1} cases, {len(found.findings)} findings", flush=True)
    return found


def main() -> int:
    """Run from the command line."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--cases", type=int, default=1000)
    reader.add_argument("--seed", type=int, default=0)
    reader.add_argument("--again", metavar="SEED:NUMBER")
    reader.add_argument("--record", type=Path)
    how = reader.parse_args()
    if how.again:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            made = examples(folder)
            command, arguments = case(how.again, made, folder)
            print(command, *arguments, *run(command, *arguments), sep="\n")
        return 0
    found = fuzz(how.cases, how.seed, quiet=False)
    print(json.dumps(dict(sorted(found.codes.items()))))
    if how.record is not None:
        with how.record.open("a") as file:
            file.write(json.dumps({"seed": how.seed, "cases": found.cases, "findings": found.findings}) + "\n")
    return int(bool(found.findings))


if __name__ == "__main__":
    sys.exit(main())
