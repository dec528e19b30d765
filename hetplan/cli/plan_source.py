"""Plans named on the command line: a file, or `-` for standard input."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hetplan.profiles.plan import Plan

__all__ = ["plan_from"]


def plan_from(source: Path, *, warn: Callable[[str], None] | None = None) -> Plan:
    """The plan in a file or, for `-`, on standard input; raises InputError when it is none.

    With `warn` an edited plan is only warned about: looking at one, or verifying it, trusts nothing it says.
    """
    from hetplan.profiles.plan_file import plan_digest, read_plan
    from hetplan.profiles.read_json import read_json

    if str(source) == "-":
        given = read_json(sys.stdin.buffer.read(), file="<stdin>")
        plan = read_plan(given if isinstance(given, dict) else {"format": given}, trust_digest=warn is not None)
    else:
        plan = read_plan(source, trust_digest=warn is not None)
    if warn is not None and plan.digest != plan_digest(plan):
        warn(f"{source}: edited since it was made (its digest is not that of its content)")
    return plan
