"""One section of the compound question's figures at a time, and the speeds of its parts.

python -m hetplan_papers.reproduce.compound_sections            lists the sections
python -m hetplan_papers.reproduce.compound_sections tiers      runs one
"""

from __future__ import annotations

import sys

from hetplan_papers.reproduce.compound import sections, show


def main(argv: list[str]) -> int:
    """Run the named sections."""
    known = sections(quick=False)
    if not argv or any(name not in known for name in argv):
        for name, (title, _) in known.items():
            print(f"{name:<10} {title}")
        return 0 if not argv else 2
    off = 0
    for name in argv:
        title, rows = known[name]
        said = list(rows())
        off += sum(row.get("target") == "MISSED" for row in said)
        show(title, said)
    return int(off > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
