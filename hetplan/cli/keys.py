"""`hetplan keys`: an authority and a certificate, so that router and workers speak TLS."""

from __future__ import annotations

from hetplan.cli.arguments import AsJson
from hetplan.cli.given_files import HostsFileOption
from hetplan.cli.output import Exit, Output
from hetplan.errors import InputError

__all__ = ["keys"]


def keys(hosts: HostsFileOption, as_json: AsJson = False) -> None:
    """Make the keys by which router and workers speak TLS.

    They go into the folder that hosts.toml names.
    The authority is made once, the certificate each time, for the addresses in hosts.toml. Copy the folder without
    ca-key.pem to every other machine, and give clients ca.pem.
    """
    with Output("keys", as_json=as_json) as out:
        from hetplan.executor.hosts_file import read_hosts
        from hetplan.executor.tls import make_keys, names_of

        found = read_hosts(hosts)
        if found.security.tls is None:
            raise InputError.one(
                file="hosts.toml", path="$.security.tls", why="it does not say where the keys are to be",
                remedy='Write tls = "secrets/tls" under [security].',
            )  # fmt: skip
        folder, names = found.path(found.security.tls), names_of(found)
        fresh = make_keys(folder, names)
        what = "an authority and a certificate" if fresh else "a certificate by the authority that was there"
        out.people.line(f"{folder}: {what}, for {', '.join(names)}")
        out.end(Exit.OK, "keys are made", folder=str(folder), names=list(names), authority=fresh)
