"""The size of the house, and its picture: rooms, lines, and which room imports which. All of it is read from the code.

python benchmarks/house.py                 # a table of rooms
python benchmarks/house.py --beside TREE   # and the same of another checkout
python benchmarks/house.py --picture       # the picture in docs/design.md, as Mermaid
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLOORS = (
    ("People", ("cli", "testing")),
    ("Many solves", ("studies", "desk", "search")),
    ("The way in", ("api",)),
    ("What there is", ("registry",)),
    (
        "What is decided, checked, tried and done",
        ("problems", "solvers", "verifier", "simulator", "measure", "executor"),
    ),
    ("Forms, answers, plans", ("planner",)),
    ("One query", ("dispatch",)),
    ("What a load is", ("serving",)),
    ("Files", ("profiles",)),
    ("Under all", ("compiled", "drawing", "precise_loop")),
)
"""The floors from top to bottom. A room that the code does not have is not drawn."""


@dataclass
class Room:
    """What was counted in one room."""

    files: int = 0
    lines: int = 0
    code: int = 0
    tokens: int = 0


def room_of(module: str) -> str:
    """The room of a module name below `hetplan`; "" for errors, which everyone imports, and for the package's faces."""
    first = module.split(".")[0]
    return "" if first in ("errors", "extend") or first.startswith("__") else first


def sources(tree: Path) -> Iterator[tuple[str, Path]]:
    """Every file of the package, with its module name below `hetplan`."""
    package = tree / "hetplan"
    for path in sorted(package.rglob("*.py")):
        yield ".".join(path.relative_to(package).with_suffix("").parts), path


def counted(tree: Path) -> dict[str, Room]:
    """Files, lines, lines of code and tokens of each room."""
    rooms: dict[str, Room] = defaultdict(Room)
    for module, path in sources(tree):
        text = path.read_text()
        room = rooms[room_of(module) or "hetplan"]
        prose = {
            number
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        lines = text.splitlines()
        room.files += 1
        room.lines += len(lines)
        room.code += sum(
            bool(line.strip()) and not line.strip().startswith("#") and number not in prose
            for number, line in enumerate(lines, 1)
        )
        room.tokens += sum(
            token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
        )
    return dict(rooms)


def arrows(tree: Path) -> set[tuple[str, str]]:
    """Which room imports which when it runs; what is imported for types only is left out."""
    found = set()
    for module, path in sources(tree):
        here = room_of(module)
        for target in _imported(ast.parse(path.read_text())):
            there = room_of(target)
            if here and there and here != there:
                found.add((here, there))
    return found


def _imported(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and (child.module or "").startswith("hetplan"):
            below = (child.module or "").removeprefix("hetplan").lstrip(".")
            yield from [below] if below else [alias.name for alias in child.names]
        elif isinstance(child, ast.Import):
            yield from (a.name.removeprefix("hetplan.") for a in child.names if a.name.startswith("hetplan."))
        else:
            yield from _imported(child)


def named(tree: Path) -> set[str]:
    """The rooms whose parts the registry names and loads when they are asked for."""
    texts = [file.read_text() for file in (tree / "hetplan" / "registry").glob("*.py")]
    words = [node.value for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    places = [str(word).removeprefix("hetplan.") for word in words if str(word).startswith("hetplan.")]
    return {room_of(place) for place in places if ":" in place}


def picture(tree: Path = ROOT) -> str:
    """The floors as a Mermaid flowchart. An arrow that follows from two others is left out, to keep it readable."""
    drawn = {room_of(module) for module, _ in sources(tree)} - {""}
    every = arrows(tree)
    below: dict[str, set[str]] = defaultdict(set)
    for here, there in every:
        below[here].add(there)

    def reached(room: str) -> set[str]:
        seen, look = set(), list(below[room])
        while look:
            one = look.pop()
            if one not in seen:
                seen.add(one)
                look += below[one]
        return seen

    kept = sorted(
        (here, there) for here, there in every if not any(there in reached(by) for by in below[here] - {there})
    )
    written = ["flowchart TB"]
    for number, (title, rooms) in enumerate(FLOORS):
        here = [room for room in rooms if room in drawn]
        if here:
            written.append(f'  subgraph f{number}["{title}"]')
            written += [f'    {room}["{room}"]' for room in here]
            written.append("  end")
    written += [f"  {here} --> {there}" for here, there in kept]
    written += [f"  registry -. by name .-> {room}" for room in sorted(named(tree))]
    return "\n".join(written)


def table(tree: Path) -> str:
    """One line per room and the sum."""
    rooms = counted(tree)
    total = Room(
        *(sum(getattr(room, name) for room in rooms.values()) for name in ("files", "lines", "code", "tokens"))
    )
    written = ["room         files   lines    code  tokens/line of code"]
    for name, room in [*sorted(rooms.items()), ("all", total)]:
        written.append(
            f"{name:12s} {room.files:5d} {room.lines:7d} {room.code:7d}  {room.tokens / max(1, room.code):.1f}"
        )
    return "\n".join(written)


def main() -> None:
    """Print what was asked for."""
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--picture", action="store_true", help="print the Mermaid picture of docs/design.md")
    words.add_argument("--beside", type=Path, help="another checkout, counted too")
    asked = words.parse_args()
    if asked.picture:
        print(picture())
        return
    print(table(ROOT))
    if asked.beside:
        print(f"\n{table(asked.beside)}")


if __name__ == "__main__":
    main()
