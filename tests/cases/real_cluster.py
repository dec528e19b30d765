"""A real API server and its controllers, where one was built: HETPLAN_KUBERNETES names its folder.

The folder has `kubeconfig` and `bin/kubectl`. No kubelet runs: the tests say of each pod that it is ready, but of those
whose image is bad.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hetplan.executor.apply.platform import Platform
from hetplan.executor.site import read_site

FOLDER = Path(os.environ.get("HETPLAN_KUBERNETES", "/nowhere"))

WHERE_ONE_IS = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (FOLDER / "kubeconfig").exists(), reason="no API server: HETPLAN_KUBERNETES names its folder"
    ),
]


class Server:
    """A namespace of the real server; its pods become ready at once."""

    def __init__(self) -> None:
        self.namespace = f"tried-{uuid4().hex[:8]}"
        self.ask("create", "namespace", self.namespace)
        self.ended = threading.Event()
        self.playing = threading.Thread(target=self.play)
        self.playing.start()

    def ask(self, *words: str) -> str:
        where = ["--kubeconfig", str(FOLDER / "kubeconfig"), "--namespace", self.namespace]
        command = [str(FOLDER / "bin" / "kubectl"), *words, *where]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout

    def objects(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.ask("get", kind, "--output=json"))["items"]
        return found

    def play(self) -> None:
        """Say of each pod that it is ready. Patching a pod's status needs the API itself: kubectl 1.20 cannot."""
        import ssl
        import urllib.request

        conf = (FOLDER / "kubeconfig").read_text()
        base, token = (conf.split(f'{key}: "')[1].split('"')[0] for key in ("server", "token"))
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        while not self.ended.wait(0.3):
            for pod in self.objects("pods"):
                if "bad" in pod["spec"]["containers"][0]["image"] or pod["status"].get("phase") == "Running":
                    continue
                request = urllib.request.Request(
                    f"{base}/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status",
                    method="PATCH", data=json.dumps({"status": status}).encode(),
                    headers={"authorization": f"Bearer {token}", "content-type": "application/merge-patch+json"},
                )  # fmt: skip
                with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=10):
                    pass

    def platform(self, folder: Path, *, take_over: bool = False, **settings: Any) -> Platform:
        said = {
            "kubectl": str(FOLDER / "bin" / "kubectl"), "kubeconfig": str(FOLDER / "kubeconfig"), "start_s": 8.0,
            **settings,
        }  # fmt: skip
        site = {"name": "prod", "namespace": self.namespace, "state_dir": str(folder), "cluster": said}
        return Platform(read_site(site), take_over=take_over)
