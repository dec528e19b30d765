"""A real `sshd` on loopback with keys of its own; tests that need it are skipped, saying so, where there is none."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SSHD = Path("/usr/sbin/sshd")
ROOT = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Sshd:
    """The server: it can be stopped, with all its connections, and started again on the same port."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "address": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "python": str(self.folder / "python"),
            "identity_file": str(self.folder / "id"),
            "known_hosts": str(self.folder / "known_hosts"),
            "folder": str(self.folder / "far"),
            "connect_s": 60.0,
        }

    def start(self) -> None:
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(self.folder / "config")], stderr=log)
        until = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        pytest.skip(f"sshd did not start: {(self.folder / 'log').read_text()[-300:]}")

    def refuses(self) -> str:
        """Why this user cannot log in here at all, for instance without a shell; "" where it can."""
        known = f"UserKnownHostsFile={self.settings['known_hosts']}"
        options = [word for option in ("BatchMode=yes", "IdentitiesOnly=yes", known) for word in ("-o", option)]
        where = ["-p", str(self.port), "-i", self.settings["identity_file"], f"{self.settings['user']}@127.0.0.1"]
        ran = subprocess.run(["ssh", *options, *where, "true"], capture_output=True, text=True, check=False)
        return ran.stderr.strip() or f"exit {ran.returncode}" if ran.returncode else ""

    def connections(self) -> list[int]:
        """The server's own children: one process per connection."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]

    def cut(self) -> None:
        """Break every connection as if the cable were pulled; over when the server has none left."""
        until = time.monotonic() + 60
        while (left := self.connections()) and time.monotonic() < until:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            time.sleep(0.02)
        assert not left

    def stop(self) -> None:
        if self.process is not None:
            self.cut()
            self.process.kill()
            self.process.wait()
            self.process = None


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    if not SSHD.exists():
        pytest.skip(f"there is no {SSHD}; apt-get install openssh-server")
    if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
        pytest.skip("there is no ssh client")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder, port = tmp_path / "sshd", free_port()
    folder.mkdir()
    for name in ("host", "id"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "authorized").write_text((folder / "id.pub").read_text())
    key = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key[0]} {key[1]}\n")
    # The far end is the code that is tried here, wherever another one is installed.
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
    python.chmod(0o700)
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/authorized\n"
        f"PidFile {folder}/pid\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
    )
    server = Sshd(folder, port)
    server.start()
    if refused := server.refuses():
        server.stop()
        pytest.skip(f"sshd lets nobody in here: {refused}")
    yield server
    server.stop()
