"""TLS between clients, router and workers: keys of an authority of our own, and the contexts that use them.

`hetplan keys` writes a folder: `ca.pem` (whom to trust), `ca-key.pem` (stays where it was made), `cert.pem` and
`key.pem` (what every listener shows). Each machine needs the folder without `ca-key.pem`; hosts.toml names it, and
processes find it by a variable of their environment.
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError

if TYPE_CHECKING:
    from hetplan.executor.hosts_file import HostsFile

__all__ = [
    "TLS",
    "WORKER_NAME",
    "client_context",
    "make_keys",
    "names_of",
    "own_folder",
    "server_context",
    "tls_folder",
]

TLS = "HETPLAN_TLS"
WORKER_NAME = "worker.hetplan"
"""The name under which workers in pods show their certificate."""

_DAYS = 3650
_NEEDED = ("ca.pem", "cert.pem", "key.pem")


def tls_folder(hosts: HostsFile) -> Path | None:
    """The folder of keys that hosts.toml names, complete; None where it names none."""
    if hosts.security.tls is None:
        return None
    folder = hosts.path(hosts.security.tls)
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if missing:
        raise InputError.one(
            file="hosts.toml", path="$.security.tls", value=str(folder), why=f"there is no {missing[0]} in it",
            remedy="Make the keys: hetplan keys --hosts hosts.toml.",
        )  # fmt: skip
    return folder


def own_folder() -> Path | None:
    """The folder of keys of this process."""
    found = os.environ.get(TLS)
    return Path(found) if found else None


def server_context(folder: Path | None) -> ssl.SSLContext | None:
    """What a listener shows; None without keys."""
    if folder is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


class _OneName(ssl.SSLContext):
    """Every listener is asked under one name, whatever its address: pods have a new one each time."""

    def wrap_bio(self, *given: Any, **how: Any) -> ssl.SSLObject:
        """As asyncio calls it for a new connection."""
        return super().wrap_bio(*given, **{**how, "server_hostname": WORKER_NAME})


def client_context(folder: Path | None, *, one_name: bool = False) -> ssl.SSLContext | None:
    """Whom a client trusts: our authority alone, and only under the name that it asked for; None without keys.

    With `one_name` that is `WORKER_NAME`.
    """
    if folder is None:
        return None
    context = (_OneName if one_name else ssl.SSLContext)(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_verify_locations(folder / "ca.pem")
    return context


def names_of(hosts: HostsFile) -> tuple[str, ...]:
    """The names and addresses under which listeners of hosts.toml are asked.

    >>> from hetplan.executor.hosts_file import read_hosts
    >>> names_of(read_hosts({"targets": {"here": {"kind": "local"}}, "router": {"bind": "0.0.0.0", "address": "shop"},
    ...     "hosts": {"box": {"target": "here", "hardware": "t4", "machines": 1, "bind": "10.0.0.5"}}}))
    ('localhost', '127.0.0.1', '10.0.0.5', 'shop')
    """
    found = ["localhost", "127.0.0.1"]
    for host in hosts.hosts.values():
        found += [host.bind, host.address or ""]
    found += [hosts.router.bind, hosts.router.address or ""]
    for target in hosts.targets.values():
        if target.kind == "kubernetes":
            found += [WORKER_NAME, f"*.{target.settings.get('namespace', 'default')}.svc"]
    return tuple(dict.fromkeys(name for name in found if name not in ("", "0.0.0.0", "::")))


def make_keys(folder: Path, names: Sequence[str]) -> bool:
    """An authority, if there is none yet, and a certificate by it for these names; whether the authority is new."""
    if shutil.which("openssl") is None:
        raise InputError.one(file="openssl", why="it is not installed", remedy="Install OpenSSL's command.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = not (folder / "ca-key.pem").exists()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        work = Path(name)
        authority = work if fresh else folder
        if fresh:
            _openssl(
                "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
                str(_DAYS), "-subj", "/CN=hetplan authority", "-addext", "basicConstraints=critical,CA:TRUE", "-addext",
                "keyUsage=critical,keyCertSign", "-keyout", str(work / "ca-key.pem"), "-out", str(work / "ca.pem"),
            )  # fmt: skip
        extensions = work / "names.ext"
        extensions.write_text(f"subjectAltName={_listed(names)}\nextendedKeyUsage=serverAuth\n")
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=hetplan",
            "-keyout", str(work / "key.pem"), "-out", str(work / "ask.pem"),
        )  # fmt: skip
        signed = ("-CA", str(authority / "ca.pem"), "-CAkey", str(authority / "ca-key.pem"))
        _openssl(
            "x509", "-req", "-in", str(work / "ask.pem"), *signed, "-CAserial", str(work / "serial"), "-CAcreateserial",
            "-days", str(_DAYS), "-extfile", str(extensions), "-out", str(work / "cert.pem"),
        )  # fmt: skip
        for one in (*(("ca.pem", "ca-key.pem") if fresh else ()), "cert.pem", "key.pem"):
            (work / one).chmod(0o600)
            (work / one).replace(folder / one)
    return fresh


def _listed(names: Iterable[str]) -> str:
    return ",".join(f"{'IP' if _is_address(name) else 'DNS'}:{name}" for name in names)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _openssl(*words: str) -> None:
    done = subprocess.run(["openssl", *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise InputError.one(
            file="openssl", value=words[0], why=done.stderr.strip().splitlines()[-1] if done.stderr else "it failed",
            remedy="See that OpenSSL 1.1.1 or newer is installed, and that the names in hosts.toml are plain.",
        )  # fmt: skip
