"""`hetplan solvers`: which engines there are."""

from __future__ import annotations

from hetplan.cli.arguments import AsJson
from hetplan.cli.output import Output

__all__ = ["solvers"]


def solvers(as_json: AsJson = False) -> None:
    """List the engines, preferred ones first."""
    with Output("solvers", as_json=as_json) as out:
        from hetplan.registry import solvers as registered

        rows = []
        for engine in registered():
            version = engine.version()
            summary = (type(engine).__doc__ or "").strip().split("\n")[0]
            rows.append((engine.name, engine.form, version or "not installed", summary))
            out.send({"solver": engine.name, "form": engine.form, "version": version or None, "about": summary})
        out.people.table(("solver", "form", "version", "what it is"), rows)
        out.people.line()
        out.people.line("`hetplan solve --solver NAME` picks one; `hetplan doctor` says how to install the others.")
