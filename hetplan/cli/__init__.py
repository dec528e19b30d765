"""The command line: the only floor that prints, shows progress and turns outcomes into exit codes."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process and leave with its exit code (the `hetplan` console script)."""
    import gc

    # A command makes many objects that stay, and ends: looking through them again and again is a tenth of its start.
    gc.set_threshold(50_000, 50, 50)
    from hetplan.cli.app import build_app
    from hetplan.cli.long_work import leave

    try:
        build_app()()
    except SystemExit as end:
        leave(end.code)
