"""What site files said before format 1.0, and the word of today for each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from hetplan.errors import Fault
from hetplan.profiles.json_path import json_path, shortened

__all__ = ["faults_of_old_words"]

_TOP: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("profile", "slo", "measured"), ("files are listed, and each says what it is", "Write files = [{}].")
    ),
    "hardware": ("types of machine are machines", "Write [machines.NAME]."),
    "autoscale": ("what autoscale reads is said in [watch]", "Write [watch]."),
}
_ROUTER = ("token", "token_file", "token_env", "token_secret", "open")
_RULE = {"variant": "model", "node": "stage", "hardware": "machine", "environment": "env"}
_HOST = {"hardware": "machines", "environment": "env"}


def faults_of_old_words(content: Mapping[str, Any], file: str) -> list[Fault]:
    """A fault for each old word, with what is written in its place."""
    return [Fault(file, json_path(at), shortened(said), *now) for at, said, now in _old(content)]


def _old(content: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any, tuple[str, str]]]:
    if content.get("format") == "hetplan/hosts/1.0":
        yield ("format",), content["format"], ("hosts and platforms have one format", 'Write "hetplan/site/1.0".')
    for key, (why, remedy) in _TOP.items():
        if key in content:
            yield (key,), content[key], (why, remedy.format(json.dumps(content[key], default=str)))
    router = content.get("router")
    for key in _ROUTER:
        if isinstance(router, Mapping) and key in router:
            now = "token_file" if key == "token" else key
            yield ("router", key), router[key], ("who may use listeners is said once", f"Write [security] {now}.")
    models = content.get("models")
    if isinstance(models, list):
        yield ("models",), models, ("rules have names", 'Write [models.NAME], or [models."*"] for all.')
    for name, rule in _tables(models):
        if rule.get("kind") in ("http", "openai"):
            now = "Leave kind out." if rule["kind"] == "http" else 'Leave kind out; write protocol = "openai".'
            yield ("models", name, "kind"), rule["kind"], ("all servers are of one kind", now)
        yield from _renamed(("models", name), rule, _RULE)
    for name, host in _tables(content.get("hosts")):
        yield from _renamed(("hosts", name), host, _HOST)
        if isinstance(host.get("machines"), int):
            now = f'Write machines = ["t4"], count = {host["machines"]}.'
            yield ("hosts", name, "machines"), host["machines"], ("machines are types, and how many is `count`", now)


def _tables(section: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    held = section.items() if isinstance(section, Mapping) else ()
    return ((name, one) for name, one in held if isinstance(one, Mapping))


def _renamed(
    at: tuple[str, ...], said: Mapping[str, Any], names: Mapping[str, str]
) -> Iterator[tuple[tuple[str | int, ...], Any, tuple[str, str]]]:
    for old, new in names.items():
        if old in said:
            yield (*at, old), said[old], (f"this is called {new}", f"Write {new} in its place.")
