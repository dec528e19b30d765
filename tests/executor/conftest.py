"""Deployments that are taken down whatever happens."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hetplan.executor.deployment import Deployment

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cases.deployments import make_hosts


@pytest.fixture
def deploy(tmp_path: Path) -> Iterator[Callable[..., Deployment]]:
    """Deployments on this machine; nothing of them is left after the test."""
    made: list[Deployment] = []

    def open_one(**changes: Any) -> Deployment:
        deployment = Deployment(make_hosts(tmp_path, **changes))
        made.append(deployment)
        return deployment

    yield open_one
    for deployment in made:
        with deployment:
            deployment.down(wait_s=60.0)


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port of this machine that somebody else listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]
