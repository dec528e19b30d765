"""`hetplan questions`: what can be decided."""

from __future__ import annotations

import sys

from hetplan.cli.arguments import AsJson
from hetplan.cli.output import Output

__all__ = ["questions"]


def questions(as_json: AsJson = False) -> None:
    """List what can be decided."""
    with Output("questions", as_json=as_json) as out:
        from hetplan.registry import problem, problem_names

        rows = []
        for name in problem_names():
            asked = problem(name)
            formulations, aliases, about = list(asked.formulations), list(asked.aliases), _summary(asked)
            rows.append((name, ", ".join(formulations), ", ".join(aliases) or "-", about))
            out.send({"question": name, "formulations": formulations, "aliases": aliases, "about": about})
        out.people.table(("question", "formulations (default first)", "also called", "decides"), rows)
        out.people.line()
        out.people.line("`hetplan options QUESTION` lists what can be set.")


def _summary(question: type) -> str:
    """A question's module opens with what it decides; its class with how to read it."""
    return (sys.modules[question.__module__].__doc__ or "").strip().split("\n")[0]
