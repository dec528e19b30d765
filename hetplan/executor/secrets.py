"""The token that guards listeners beyond this machine: where it is read, and who has to have one.

site.toml names a file or a variable of the environment, never the token itself; it reaches keepers, workers and the
router through their environment, never through an argument.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from hetplan.errors import Fault, InputError
from hetplan.executor.units import Unit

if TYPE_CHECKING:
    from hetplan.executor.site import Site

__all__ = [
    "GUARDED",
    "TOKEN",
    "TOKEN_FILE",
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
"""The kinds of targets whose listeners ask for the token where other machines reach them."""


def is_loopback(bind: str) -> bool:
    """Whether only this machine reaches a listener on this address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"


def token_of(site: Site) -> str | None:
    """The token that site.toml names; None where it names none."""
    return _read(environment_of(site), file="site.toml")


def environment_of(site: Site) -> dict[str, str]:
    """The variable by which a process finds the token: where it is, or the token where it comes that way."""
    security = site.security
    if security.token_file is not None:
        return {TOKEN_FILE: str(site.path(security.token_file))}
    return {TOKEN: os.environ.get(security.token_env, "")} if security.token_env is not None else {}


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


def mark_of(token: str | None) -> str:
    """By what two processes see that they have the same token, without saying it."""
    return hashlib.sha256(b"hetplan\0" + token.encode()).hexdigest()[:16] if token else ""


def unguarded(site: Site, units: Iterable[Unit]) -> list[Fault]:
    """The listeners of these units and of the router that others reach without an edge or a token before them."""
    used = dict.fromkeys(unit.host for unit in units)
    reached = {
        f"$.hosts.{name}.bind": site.hosts[name].bind
        for name in used
        if site.targets[site.hosts[name].target].kind in GUARDED and not is_loopback(site.hosts[name].bind)
    }
    faults = []
    of_router = site.targets[site.router_target].kind in GUARDED and not is_loopback(site.router.bind)
    router = {"$.router.bind": site.router.bind} if used and of_router else {}
    if not site.router.behind_edge:
        why = "other machines reach the router there, and nothing before it ends TLS"
        faults += [Fault("site.toml", at, value, why, _NO_EDGE) for at, value in router.items()]
    reached |= router
    if not site.security.open and token_of(site) is None:
        why = "it is reached from other machines, and no token guards it"
        faults += [Fault("site.toml", at, value, why, _NO_TOKEN) for at, value in reached.items()]
    return faults


_NO_EDGE = (
    "Leave it out, and put HAProxy before the router (docs/howto/run.md); if it runs on another machine, write "
    "behind_edge = true under [router]."
)
_NO_TOKEN = (
    "Name one under [security] (token_file or token_env), or say that everyone who reaches it may use it (open = true)."
)
