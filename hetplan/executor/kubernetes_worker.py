"""A worker in a pod: `python -m hetplan.executor.kubernetes_worker --config FILE --port PORT`.

It serves the unit that the mounted file names, to whoever reaches the pod, until Kubernetes tells it to stop.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetplan.executor.kubernetes_pod import Serve, serve_in_pod
from hetplan.executor.serving.worker import Worker
from hetplan.executor.units import Unit

__all__ = ["worker_in_pod"]


def worker_in_pod(content: Mapping[str, Any], port: int, folder: Path) -> Serve:
    """A worker that holds the unit."""
    unit = Unit.from_dict(content["unit"])
    config = {"content": unit.content, "bind": "0.0.0.0", "port": port, "cores": [], "unit": unit.as_dict()}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return Worker(path).run


if __name__ == "__main__":
    serve_in_pod(sys.argv[1:], worker_in_pod)
