"""Which commit wrote the rows of each measured table: what a figure was measured with is that commit, or an older one.

usage: python benchmarks/measured_rows.py [--write docs/measured/README.md]
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RULE = re.compile(r"\|[-: |]+\|")
TITLE = "## Which commit wrote which table"


def tables(page: Path) -> Iterator[tuple[str, range]]:
    """The tables of a page: the heading above each, and its lines without the head."""
    lines, heading, at = page.read_text().splitlines(), "", 0
    while at < len(lines):
        if lines[at].startswith("#"):
            heading = lines[at].lstrip("# ")
        if RULE.fullmatch(lines[at]):
            begin = at + 1
            while at + 1 < len(lines) and lines[at + 1].startswith("|"):
                at += 1
            yield heading, range(begin, at + 1)
        at += 1


def commits(page: Path) -> list[tuple[str, str]]:
    """Of each line the commit that wrote it, moves and spaces left aside, and its day."""
    command = ["git", "blame", "-w", "-M", "-C", "--line-porcelain", str(page)]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found, sha, day = list[tuple[str, str]](), "", ""
    for line in told.splitlines():
        if re.match(r"[0-9a-f]{40} ", line):
            sha = line[:8]
        elif line.startswith("committer-time "):
            day = datetime.datetime.fromtimestamp(int(line.split()[1]), datetime.UTC).date().isoformat()
        elif line.startswith("\t"):
            found.append((sha, day))
    return found


def written() -> str:
    """The section of the front page."""
    lines = [
        TITLE,
        "",
        "Measured with that commit or an older one.",
        "",
        "| page | table | rows | commits |",
        "|---|---|---|---|",
    ]
    for page in sorted(ROOT.glob("docs/measured/*.md")):
        if page.name != "README.md":
            of_line = commits(page)
            for heading, rows in tables(page):
                seen = Counter(of_line[at] for at in rows)
                told = ", ".join(
                    f"{sha} ({day}, {count})" for (sha, day), count in sorted(seen.items(), key=lambda one: one[0][1])
                )
                lines.append(f"| [{page.stem}]({page.name}) | {heading} | {len(rows)} | {told} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the section, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    if given.write is None:
        print(written(), end="")
        return
    given.write.write_text(given.write.read_text().partition(TITLE)[0] + written())


if __name__ == "__main__":
    main()
