"""The token that guards listeners beyond this machine: where it is read, and who has to have one.

hosts.toml names a file or a variable of the environment, never the token itself; it reaches keepers, workers and the
router through their environment, never through an argument.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from hetplan.errors import InputError
from hetplan.executor.tls import TLS, tls_folder
from hetplan.executor.units import Unit

if TYPE_CHECKING:
    from hetplan.executor.hosts_file import HostsFile

__all__ = [
    "GUARDED",
    "IN_PODS",
    "TOKEN",
    "TOKEN_FILE",
    "ciphered",
    "environment_of",
    "is_loopback",
    "mark_of",
    "own_token",
    "token_in_environment",
    "token_of",
    "unguarded",
]

TOKEN, TOKEN_FILE = "HETPLAN_TOKEN", "HETPLAN_TOKEN_FILE"
_LEAST = 16
GUARDED = frozenset({"local", "ssh"})
"""The kinds of targets whose listeners ask for the token, and speak TLS, where other machines reach them."""

IN_PODS = "kubernetes"
"""The kind of target whose listeners do so always, where hosts.toml names a token or keys: they come as a Secret."""


def is_loopback(bind: str) -> bool:
    """Whether only this machine reaches a listener on this address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"


def token_of(hosts: HostsFile) -> str | None:
    """The token that hosts.toml names; None where it names none."""
    return _read(environment_of(hosts), file="hosts.toml")


def environment_of(hosts: HostsFile) -> dict[str, str]:
    """The variables by which a process finds token and keys: where they are, or the token where it comes that way."""
    security, keys = hosts.security, tls_folder(hosts)
    found = {TLS: str(keys)} if keys is not None else {}
    if security.token_file is not None:
        return {**found, TOKEN_FILE: str(hosts.path(security.token_file))}
    if security.token_env is not None:
        return {**found, TOKEN: os.environ.get(security.token_env, "")}
    return found


def _read(environment: Mapping[str, str], *, file: str) -> str | None:
    path = environment.get(TOKEN_FILE)
    try:
        token = Path(path).read_text().strip() if path is not None else environment.get(TOKEN)
    except (OSError, UnicodeDecodeError) as error:
        remedy = "Write a token of 16 characters or more there, readable by you alone."
        raise InputError.one(
            file=file, path="$.security.token_file", value=path or "", why=str(error), remedy=remedy
        ) from None
    if token is not None and (len(token) < _LEAST or not token.isascii() or not token.isprintable() or " " in token):
        at = "token_file" if path is not None else "token_env"
        raise InputError.one(
            file=file, path=f"$.security.{at}", why=f"a token has {_LEAST} printable characters or more, and no space",
            remedy="Make one: openssl rand -hex 32.",
        )  # fmt: skip
    return token


def token_in_environment() -> str | None:
    """The token of this process."""
    return _read(os.environ, file="the environment")


def own_token() -> str | None:
    """The token of this process, which the commands that it starts do not get."""
    found = token_in_environment()
    for name in (TOKEN, TOKEN_FILE):
        os.environ.pop(name, None)
    return found


def mark_of(token: str | None, keys: Path | None = None) -> str:
    """By what two processes see that they have the same token and the same keys, without saying them."""
    known = (token or "") + (f"\0{keys}" if keys is not None else "")
    return hashlib.sha256(b"hetplan\0" + known.encode()).hexdigest()[:16] if known else ""


def ciphered(hosts: HostsFile) -> frozenset[str]:
    """The hosts whose workers speak TLS: those that other machines reach, where there are keys."""
    if hosts.security.tls is None:
        return frozenset()
    return frozenset(
        name
        for name, host in hosts.hosts.items()
        if (kind := hosts.targets[host.target].kind) == IN_PODS or (kind in GUARDED and not is_loopback(host.bind))
    )


def unguarded(hosts: HostsFile, units: Iterable[Unit]) -> list[str]:
    """The listeners of these units and of the router that others could reach without a token; a reason for each."""
    if hosts.security.open or token_of(hosts) is not None:
        return []
    used = dict.fromkeys(unit.host for unit in units)
    binds = {
        f"hosts.{name}.bind": hosts.hosts[name].bind
        for name in used
        if hosts.targets[hosts.hosts[name].target].kind in GUARDED
    }
    if used and hosts.targets[hosts.router_target].kind in GUARDED:
        binds["router.bind"] = hosts.router.bind
    return [
        f"{at} = {bind!r} is reached from other machines, and no token guards it. Name one ([security] token_file or "
        "token_env), or say that everyone who reaches it may use it ([security] open = true)"
        for at, bind in binds.items()
        if not is_loopback(bind)
    ]
