"""Readers of other tools' files: `hetplan.profiles.imports.<kind>.convert(path) -> (profile, slo or None)`.

A reader returns plain documents in hetplan's formats, to be written to files or handed to `load_inputs`; it raises
`InputError` for what it cannot read. `melange` reads the profiles of Mélange and of AIBrix,
`perf_analyzer` Triton's CSV files, `vllm` the results of its serving benchmark, `skypilot` catalogues of prices.
"""

from __future__ import annotations

__all__: list[str] = []
