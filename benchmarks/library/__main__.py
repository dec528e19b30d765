"""A library of instances: named questions with the best known value, a certified bound, and the command that proves it.

    python -m benchmarks.library prove                 every instance anew, against what `library.json` says
    python -m benchmarks.library prove pool-03         one of them
    python -m benchmarks.library export -o folder      each program as MPS and JSON, for other solvers (not of fleets)
    python -m benchmarks.library beside                which engine solves what, and how fast
    python -m benchmarks.library make                  the instances and `library.json` anew, from their seeds

An instance is a folder with `profile.json`, `slo.json` and, where something runs already, `state.json`: what every
command of hetplan takes. `library.json` says how it is asked, and what is known of it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "papers")]

import hetplan as hp
from hetplan.errors import HetplanError
from hetplan.planner.answer import Limits
from hetplan.planner.forms.milp import Milp
from hetplan.planner.forms.write_milp import write_mps
from hetplan.planner.solver_calls import Asking
from hetplan.registry import Engines, tools_of

Json = dict[str, Any]
HERE = Path(__file__).resolve().parent
INDEX = HERE / "library.json"
ENGINES = ("", "highs", "mathopt-scip", "cp-sat")
SAME = 1e-6


def known() -> list[Json]:
    held: list[Json] = json.loads(INDEX.read_text())["instances"]
    return held


def files_of(instance: Json) -> Json:
    folder = ROOT / instance["folder"]
    found: Json = {
        "profile": folder / instance.get("profile", "profile.json"),
        "slo": folder / instance.get("slo", "slo.json"),
    }
    if (folder / "state.json").exists() and instance.get("state"):
        found["state"] = folder / "state.json"
    return found


def asked(instance: Json, **how: Any) -> hp.Outcome:
    files = files_of(instance)
    named = "/".join(filter(None, [instance["question"], instance.get("formulation")]))
    return hp.solve(*files.values(), formulation=named, options=instance["options"], **how)


def found_of(outcome: hp.Outcome) -> Json:
    """What is written down of an instance: the first claim, which answers the objective, as far as it is proved."""
    if outcome.plan is None:
        return {"status": outcome.status}
    claim = outcome.claims[0]
    figures = {"about": claim.about, "sense": claim.sense, "value": claim.value, "bound": claim.bound}
    gap = None if claim.gap is None else 0.0 if claim.gap < 1e-9 else float(f"{claim.gap:.3g}")
    return {"status": outcome.status, **figures, "gap": gap, "scope": claim.scope, "bound_is": claim.vouched}


def command_of(instance: Json) -> str:
    """The command that proves the instance again."""
    names = " ".join(str(path.relative_to(ROOT)) for path in list(files_of(instance).values())[:2])
    more = [f"--set {name}={value}" for name, value in instance["options"].items()]
    more += [f"{instance['folder']}/state.json"] if instance.get("state") else []
    more += [f"--formulation {instance['formulation']}"] if instance.get("formulation") else []
    return " ".join(["hetplan solve", names, f"--formulation {instance['question']}", *more, "--require-proof"])


def differs(was: Json, now: Json) -> str:
    """What is not as it was written down ("" if nothing is); a better value or bound is a difference too."""
    if was.get("status") != now.get("status"):
        return f"status {now.get('status')}, not {was.get('status')}"
    for name in ("value", "bound"):
        one, other = was.get(name), now.get(name)
        if (one is None) != (other is None) or (one is not None and not math.isclose(one, other, rel_tol=SAME)):
            return f"{name} {other}, not {one}"
    return "" if was.get("bound_is") == now.get("bound_is") else f"the bound is {now.get('bound_is')}"


def prove(names: Sequence[str]) -> int:
    bad = 0
    for instance in known():
        if names and instance["name"] not in names:
            continue
        begun = time.process_time()
        wrong = differs(instance["found"], found_of(asked(instance, require_proof=True)))
        bad += bool(wrong)
        took = time.process_time() - begun
        print(f"{instance['name']:<16} {wrong or 'as it is written':<40} {took:6.2f} s")
    return 1 if bad else 0


class _Heard(Exception):
    pass


class _Listening(Asking):
    """Keeps the forms of a conversation."""

    forms: list[Any]

    def __call__(self, form: Any, **how: Any) -> Any:
        self.forms.append(form)
        return super().__call__(form, **how)


def programs(instance: Json) -> list[Milp]:
    """The mixed-integer programs that an instance asks."""
    from hetplan.api.solve import choose, pose
    from hetplan.profiles.load import load_inputs

    files = files_of(instance)
    inputs = load_inputs(files["profile"], files["slo"], state=files.get("state"))
    formulation = instance.get("formulation") or instance.get("exported_by")
    options = instance["options"] if not instance.get("exported_by") else {}
    choice = choose(inputs, question=instance["question"], formulation=formulation, options=options)
    listening = _Listening(Engines(), Limits(seconds=20.0))
    listening.forms = []
    with suppress(HetplanError):
        pose(inputs, choice, tools=tools_of(choice.problem.question)).decide(listening)
    return [form for form in listening.forms if isinstance(form, Milp)]


def as_json(form: Milp) -> Json:
    """A program as plain lists: columns with cost, bounds and kind; rows with bounds; entries (row, column, value)."""

    def side(value: float) -> float | None:
        return float(value) if math.isfinite(value) else None

    matrix = form.matrix.tocoo()
    cost, low, high = form.cost.tolist(), form.lower.tolist(), form.upper.tolist()
    columns = [
        {"cost": c, "lower": side(a), "upper": side(b), "whole": bool(w)}
        for c, a, b, w in zip(cost, low, high, form.whole.tolist(), strict=True)
    ]
    sides = zip(form.row_lower.tolist(), form.row_upper.tolist(), strict=True)
    rows = [{"lower": side(a), "upper": side(b)} for a, b in sides]
    entries = [[int(i), int(j), float(v)] for i, j, v in zip(matrix.row, matrix.col, matrix.data, strict=True) if v]
    return {
        "name": form.name,
        "sense": form.sense,
        "offset": float(form.offset),
        "columns": columns,
        "rows": rows,
        "entries": entries,
    }


def export(names: Sequence[str], folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for instance in known():
        if names and instance["name"] not in names:
            continue
        if instance["question"] == "fleet":
            print(f"{instance['name']:<16} is found by many programs, none of which is the instance")
            continue
        forms = programs(instance)
        for number, form in enumerate(forms, start=1):
            text = StringIO()
            write_mps(form, text)
            stem = f"{instance['name']}.{number}"
            (folder / f"{stem}.mps").write_text(text.getvalue())
            (folder / f"{stem}.json").write_text(json.dumps(as_json(form), separators=(",", ":")) + "\n")
        print(f"{instance['name']:<16} {f'{len(forms)} programs' if forms else 'asks no mixed-integer program'}")
    return 0


def beside() -> int:
    """Which engine solves what: its own CPU seconds for the whole question, and whether it finds the value."""
    table: dict[tuple[str, str], list[float]] = {}
    missed: dict[tuple[str, str], int] = {}
    for instance in known():
        for engine in ENGINES:
            key = (instance["question"], engine)
            begun = time.process_time()
            try:
                now = found_of(asked(instance, solver=engine or None, time_limit=20.0))
            except HetplanError:
                continue
            took = time.process_time() - begun
            best, value = instance["found"].get("value"), now.get("value")
            same = now == instance["found"] if None in (best, value) else math.isclose(best, value, rel_tol=1e-4)
            if same:
                table.setdefault(key, []).append(took)
            else:
                missed[key] = missed.get(key, 0) + 1
    print("| question | engine | solved | not within 20 s, or another value | median CPU s | longest CPU s |")
    print("|---|---|---|---|---|---|")
    for question, engine in sorted(table.keys() | missed.keys()):
        times = sorted(table.get((question, engine), []))
        median, longest = (f"{times[len(times) // 2]:.2f}", f"{times[-1]:.2f}") if times else ("-", "-")
        named = engine or "as hetplan chooses"
        print(f"| {question} | {named} | {len(times)} | {missed.get((question, engine), 0)} | {median} | {longest} |")
    return 0


def lines() -> Iterator[str]:
    """The table of the page."""
    yield "| name | question | from | best known | certified bound | gap |"
    yield "|---|---|---|---|---|---|"
    for one in known():
        found = one["found"]
        if found.get("value") is None:
            yield f"| {one['name']} | {one['question']} | {one['source']} | none can exist | | |"
            continue
        best = f"{found['sense']} {found['about']} {found['value']:.8g}"
        bound = f"{found['bound']:.8g}" if found["bound"] is not None else "-"
        gap = "-" if found["gap"] is None else f"{found['gap']:.2g}"
        yield f"| {one['name']} | {one['question']} | {one['source']} | {best} | {bound} | {gap} |"


def main(argv: Sequence[str]) -> int:
    given = argparse.ArgumentParser(prog="benchmarks.library", description=__doc__.partition("\n")[0])
    given.add_argument("what", choices=["prove", "export", "beside", "make", "table"])
    given.add_argument("names", nargs="*")
    given.add_argument("-o", "--output", type=Path, default=Path("library"))
    read = given.parse_args(argv)
    if read.what == "make":
        from benchmarks.library.make import make

        make()
    elif read.what == "table":
        print("\n".join(lines()))
    elif read.what == "beside":
        return beside()
    else:
        return prove(read.names) if read.what == "prove" else export(read.names, read.output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
