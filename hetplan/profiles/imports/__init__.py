"""Readers of other tools' files: `hetplan.profiles.imports.<kind>.convert(path) -> (profile, slo or None)`.

A reader returns plain documents in hetplan's formats, to be written to files or handed to `load_inputs`; it raises
`InputError` for what it cannot read. `kinds` says which file is whose. Runs of serving benchmarks have one reader for
all tools (`sweep_readers`, `runs`), and become rates or laws (`sweeps`, `sweep_law`).
"""

from __future__ import annotations

__all__: list[str] = []
