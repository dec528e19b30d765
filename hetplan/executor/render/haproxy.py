"""HAProxy: a frontend per application, with the numbers that only the plan knows.

Weights, how many queries a server has at a time, how long a query may wait, how many may wait. Queries beyond these are
answered 503 at once; a client that hangs up leaves the queue. With a fixed split each group has a backend of its own.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from hetplan.errors import Fault
from hetplan.executor.render.groups import Application, Fleet, Group
from hetplan.executor.render.machines import place
from hetplan.executor.render.names import CannotRender, comment, haproxy_word, slice_of
from hetplan.executor.render.rules import OWN
from hetplan.executor.site import Site

__all__ = ["FILES", "bounds", "configuration", "fronted", "read", "render"]

FILES = ("haproxy.cfg",)
Servers = Callable[[Group], Sequence[tuple[str, str]]]
"""The servers of a group: their names and where each of them listens."""

Found = Literal["", "name", "service"]

WHOLE_WEIGHT = 256
"""The highest weight of a server."""
LEAST_WAIT_MS = 1
_SPLIT = 1_000_000


def bounds(app: Application, groups: Sequence[Group], hop_ms: float) -> tuple[int | None, int | None]:
    """How long a query may wait (ms), and how many may: what is queued then fills the deadline. None without one.

    >>> fast = Group("a", "x", "m", "t4", ((0.0, 1),), mean_ms=20.0, p99_ms=20.0)
    >>> slow = Group("b", "x", "m", "cpu", ((0.0, 1),), mean_ms=80.0, p99_ms=80.0)
    >>> bounds(Application("x", deadline_ms=400.0), [fast, slow], 10.0)
    (310, 19)
    """
    slowest = [group.p99_ms for group in groups if group.p99_ms is not None]
    if app.deadline_ms is None or len(slowest) < len(groups) or not groups:
        return None, None
    wait = max(math.floor(app.deadline_ms - max(slowest) - hop_ms), LEAST_WAIT_MS)
    rate = sum(group.most * (group.qps or 0.0) for group in groups)
    return wait, max(math.floor(rate * wait / 1000.0), 1)


def render(fleet: Fleet, site: Site) -> dict[str, str]:
    """The configuration for servers at stated addresses."""
    faults = list[Fault]()
    placed = place(fleet, site, faults, where="there")
    if faults:
        raise CannotRender.of(faults)

    def servers(group: Group) -> list[tuple[str, str]]:
        return [(one.name, one.at) for one in placed if one.group.name == group.name]

    return {"haproxy.cfg": configuration(fleet, site, servers)}


def fronted(fleet: Fleet) -> list[Application]:
    """The applications that have a frontend, in the order of their ports."""
    return [app for app in fleet.apps.values() if fleet.rules.get(app.name) != OWN and fleet.of_app(app.name)]


def configuration(fleet: Fleet, site: Site, servers: Servers, *, found: Found = "") -> str:
    """The whole configuration; `found` says how servers are found: by addresses, names, or one name for a group."""
    lines = list[str]()
    for number, app in enumerate(fronted(fleet)):
        lines += _application(fleet, site, app, servers, site.edge.port + number, found)
    head = comment([*fleet.head, f"hetplan-groups: {json.dumps(_told(fleet), sort_keys=True)}"])
    names = "resolvers names\n  parse-resolv-conf\n  hold valid 2s\n" if found else ""
    return head + _DEFAULTS.format(most=site.edge.max_connections) + names + "\n".join(lines) + "\n"


def _told(fleet: Fleet) -> dict[str, Any]:
    """Ids of groups as the plan has them, for who reads the file back."""
    return {one.name: [one.model, one.hardware, one.app, max(len(one.apps), 1)] for one in fleet.groups}


_DEFAULTS = """global
  maxconn {most}
defaults
  mode http
  option http-keep-alive
  # A client that hangs up leaves the queue.
  option abortonclose
  option redispatch
  retries 1
  retry-on conn-failure
  timeout connect 1s
  timeout client 30s
  timeout http-request 5s
  timeout http-keep-alive 30s
"""


def _application(fleet: Fleet, site: Site, app: Application, servers: Servers, port: int, found: Found) -> list[str]:
    groups, rule = fleet.of_app(app.name), fleet.rules.get(app.name, app.rule)
    name = haproxy_word(app.name, f"$.apps.{app.name}")
    bind = f"{'*' if found else haproxy_word(site.edge.bind, '$.edge.bind')}:{port}"
    if site.edge.certificates is not None:
        bind += f" ssl crt {haproxy_word(site.edge.certificates, '$.edge.certificates')} alpn h2,http/1.1"
    split = rule in ("shares/1", "split")
    parts = [(name, groups)] if not split or len(groups) == 1 else [(f"{name}-{one.name}", (one,)) for one in groups]
    lines = [f"frontend {name}", f"  bind {bind}"]
    if len(parts) > 1:
        lines += _split(app, groups, [part for part, _ in parts])
    lines.append(f"  default_backend {parts[-1][0]}")
    for backend, mine in parts:
        lines += _backend(app, backend, mine, servers, site, rule, found)
    return lines


def _balance(rule: str, app: Application) -> str:
    """Which server of a backend is next."""
    if rule == "round-robin/1" or (rule == "shares/1" and app.inside == "round_robin"):
        return "roundrobin"
    return "random(1)" if rule == "shares/1" and app.inside is None else "leastconn"


def _split(app: Application, groups: Sequence[Group], backends: Sequence[str]) -> list[str]:
    """A query goes to each group's backend with the group's share, drawn at random."""
    shares = {backend: group.share.get(app.name, 0.0) for backend, group in zip(backends, groups, strict=True)}
    parts, upto = slice_of(shares, _SPLIT), 0
    lines = [f"  http-request set-var(txn.drawn) rand({_SPLIT})"]
    for backend in backends[:-1]:
        upto += parts[backend]
        if parts[backend]:
            lines.append(f"  use_backend {backend} if {{ var(txn.drawn) -m int lt {upto} }}")
    return lines


def _backend(
    app: Application, name: str, groups: Sequence[Group], servers: Servers, site: Site, rule: str,
    found: Found,
) -> list[str]:  # fmt: skip
    balance, (wait, most) = _balance(rule, app), bounds(app, groups, site.hop_ms)
    busy = (
        f'content-type text/plain string "busy" hdr Retry-After {max(math.ceil((app.deadline_ms or 1000.0) / 1000), 1)}'
    )
    lines = [f"backend {name}", f"  balance {balance}", "  http-reuse always"]
    health = haproxy_word(groups[0].server(site).health, f"$.models.{groups[0].model}.health")
    lines += [f"  option httpchk GET {health}", f"  http-error status 503 {busy}"]
    if all(group.capped for group in groups):
        wait, most = LEAST_WAIT_MS, 1  # who finds every server with all it may take is refused at once
    if wait is not None:
        lines.append(f"  timeout queue {wait}ms")
        lines.append(f"  http-request return status 503 {busy} if {{ queue({name}) ge {most} }}")
    # A text that is not streamed says nothing before its end.
    slowest = max(group.answer_ms or group.p99_ms or 0.0 for group in groups)
    lines.append(f"  timeout server {max(math.ceil(10 * max(slowest, app.deadline_ms or 0.0)), 4000)}ms")
    lines.append("  default-server inter 1s fall 2 rise 1")
    most_weight = max(group.weight for group in groups)
    for group in groups:
        weight = max(round(WHOLE_WEIGHT * group.weight / most_weight), 1)
        for server, at in servers(group):
            word = haproxy_word(at, f"$.machines.{group.hardware}.addresses")
            one = f"server {server} {word} check"
            if found == "service":
                one = f"server-template {server}- {group.most} {word} check"
            one += " resolvers names init-addr libc,none" if found else ""
            lines.append(f"  {one} weight {weight} maxconn {group.concurrency}")
    return lines


_SERVER = re.compile(r"^  server (\S+)-\d+ \S+ .*maxconn (\d+)$", re.MULTILINE)


def read(files: Mapping[str, str]) -> list[dict[str, Any]]:
    """The groups that a rendered configuration has: ids, replicas, queries at a time."""
    text = files["haproxy.cfg"]
    told: dict[str, Any] = json.loads(next(re.finditer(r"^# hetplan-groups: (.*)$", text, re.MULTILINE))[1])
    found = _SERVER.findall(text)
    counts, cap = Counter(name for name, _ in found), dict(found)
    return [
        {"name": name, "app": app, "model": model, "hardware": hardware, "replicas": counts[name] // served,
         "concurrency": int(cap.get(name, 0))}
        for name, (model, hardware, app, served) in told.items()
    ]  # fmt: skip
