"""The command line: the only floor that prints, shows progress and turns outcomes into exit codes."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process and leave with its exit code (the `hetplan` console script)."""
    import gc
    import io
    import os
    import sys

    try:
        # A command makes many objects that stay, and ends: looking through them again is a tenth of its start.
        gc.set_threshold(50_000, 50, 50)
        for name in ("stdin", "stdout", "stderr"):
            if getattr(sys, name) is None:
                # Closed by the process that started this: what is said goes nowhere, what is read is empty.
                setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
                stream.reconfigure(errors="replace")  # a terminal of few letters gets question marks, and no fault
        from hetplan.cli.app import build_app
        from hetplan.cli.long_work import leave

        try:
            build_app()()
        except SystemExit as end:
            leave(end.code)
        except OSError as error:
            # Outside of any command: help that cannot be written, for example.
            sys.stderr.write(f"error: {error.filename or 'standard output'}: {error.strerror or error}\n")
            os._exit(1)
    except KeyboardInterrupt:
        # Before any command could begin, or after it ended.
        sys.stderr.write("error: interrupted; nothing was written\n")
        os._exit(130)
