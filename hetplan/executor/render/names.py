"""Names, comments and files as platforms take them: what a plan says is only ever an id or a number.

Ids become DNS labels. Texts are written by the target's own writer, which quotes: YAML here, HAProxy by a closed
alphabet, systemd by its rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.profiles.yaml_text import read_yaml, write_yaml

__all__ = [
    "CannotRender",
    "Json",
    "comment",
    "dns_name",
    "documents",
    "haproxy_word",
    "label_value",
    "marked_name",
    "objects_of",
    "slice_of",
    "systemd_value",
    "systemd_word",
]

Json = dict[str, Any]

MOST_LETTERS = 52
"""A label has 63 letters at most; a pod's name adds up to 11 to its Deployment's."""
_HAPROXY = re.compile(r"[A-Za-z0-9_.:/*+=,@%-]+\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff]")


class CannotRender(InputError):
    """A plan that a target cannot run as planned; every reason at once."""

    exit_code = 3

    @classmethod
    def of(cls, faults: Iterable[Fault]) -> CannotRender:
        """Without those that are there twice."""
        return cls(dict.fromkeys(faults))


def dns_name(*ids: str, taken: Iterable[str] = ()) -> str:
    """The ids joined by "-" as a DNS label that is not taken; a digest where letters were lost or it is.

    >>> dns_name("chat", "llama-3.1", "l4"), dns_name("Chat", "l4")
    ('chat-llama-3-1-l4', 'chat-l4')
    >>> dns_name("a.b", taken=["a-b"]), dns_name("7b"), len(dns_name("w" * 80))
    ('a-b-b3dcef', 'x7b', 52)
    """
    plain = _plain(ids)
    return plain if len(plain) <= MOST_LETTERS and plain not in set(taken) else marked_name(*ids)


def marked_name(*ids: str, distinct_by: str = "") -> str:
    """The ids as a DNS label with a digest that keeps apart what would come out the same.

    >>> marked_name("prod", "w1"), marked_name("prod", "w_1.a")
    ('prod-w1-caa31d', 'prod-w-1-a-69fbdf')
    >>> marked_name("1", "w" * 63)[:8], len(marked_name("1", "w" * 63))
    ('x1-wwwww', 52)
    """
    # A separator that no id can hold: ("a-b", "c") is not ("a", "b-c").
    mark = sha256("\0".join((*ids, distinct_by)).encode()).hexdigest()[:6]
    return f"{_plain(ids)[: MOST_LETTERS - 7].rstrip('-')}-{mark}"


def _plain(ids: Sequence[str]) -> str:
    """The ids in the letters of a DNS label, which starts with one."""
    plain = re.sub(r"[^a-z0-9]+", "-", "-".join(ids).lower()).strip("-")
    return plain if plain[:1].isalpha() else f"x{plain}"


def label_value(name: str) -> str:
    """An id as the value of a label, which ends with a letter or a digit.

    >>> label_value("prod.eu_1"), label_value("prod-")
    ('prod.eu_1', 'prod-54ccca')
    """
    return name if name[-1:].isalnum() else marked_name(name)


def comment(lines: Sequence[str], sign: str = "#") -> str:
    """A block of comments; nothing in it ends its line.

    >>> comment(["cost", "a\\nb"])
    '# cost\\n# a b\\n'
    """
    return "".join(f"{sign} {_CONTROL.sub(' ', line)}".rstrip() + "\n" for line in lines)


def documents(objects: Sequence[Mapping[str, Any]], head: Sequence[str]) -> str:
    """Objects as one YAML file, with a comment block first."""
    return comment(head) + "---\n".join(write_yaml(one) for one in objects)


def objects_of(text: str, file: str) -> list[Json]:
    """What `documents` wrote."""
    return [read_yaml(one, file=file) for one in text.split("\n---\n")]


def haproxy_word(text: str, what: str) -> str:
    """A word of HAProxy's configuration: letters, digits and a few signs, so that none can end it.

    >>> haproxy_word("10.0.0.5:8080", "address")
    '10.0.0.5:8080'
    """
    if not _HAPROXY.match(text):
        raise InputError.one(
            file="site.toml", path=what, value=text, why="this is no word of HAProxy's configuration",
            remedy="Use letters, digits and _.:/*+=,@%- alone.",
        )  # fmt: skip
    return text


def systemd_value(text: str) -> str:
    r"""A value of a unit's line, as of Environment: quoted, with what systemd would read as its own doubled.

    >>> print(systemd_value('KEY=say "50%" $HOME'))
    "KEY=say \"50%%\" $HOME"
    """
    if _CONTROL.search(text):
        raise InputError.one(
            file="site.toml", path="$.models", value=ascii(text), why="a unit file has no line break or tab in a word",
            remedy="Write them into a script, and start that.",
        )  # fmt: skip
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"'


def systemd_word(text: str, **variables: str) -> str:
    r"""A word of a command, in which systemd also reads variables; `{port}` may be one.

    >>> print(systemd_word('say "50%" $HOME'), systemd_word("--port={port}", port="PORT"))
    "say \"50%%\" $$HOME" "--port=${PORT}"
    """
    made = text.replace("$", "$$")
    for name, variable in variables.items():
        made = made.replace(f"{{{name}}}", f"${{{variable}}}")
    return systemd_value(made)


def slice_of(shares: Mapping[str, float], whole: int) -> dict[str, int]:
    """Shares as whole numbers that sum to `whole`, each share above 0 at least 1.

    >>> slice_of({"a": 1 / 3, "b": 2 / 3}, 100), slice_of({"a": 0.9999, "b": 0.0001}, 100), slice_of({"a": 1.0}, 10)
    ({'a': 33, 'b': 67}, {'a': 99, 'b': 1}, {'a': 10})
    """
    total = sum(shares.values())
    if not total:
        return slice_of(dict.fromkeys(shares, 1.0), whole)
    exact = {name: whole * share / total for name, share in shares.items()}
    found = {name: max(int(part), 1 if part > 0 else 0) for name, part in exact.items()}
    by_rest = sorted(exact, key=lambda name: (found[name] - exact[name], name))
    for place in range(whole - sum(found.values())):
        found[by_rest[place % len(by_rest)]] += 1
    while sum(found.values()) > whole:
        found[max(found, key=lambda name: (found[name], name))] -= 1
    return found
