"""How a load is served on hosts: the rule of site.toml that fits it most closely, its words filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from hetplan.errors import InputError
from hetplan.executor.site import (
    FILE,
    ApiModel,
    CommandModel,
    ModelRule,
    OnnxModel,
    ServerModel,
    Site,
    SleepModel,
)
from hetplan.executor.words import Split, command, filled, split_otherwise, words_of
from hetplan.profiles.engines import Engine
from hetplan.profiles.json_path import json_path
from hetplan.profiles.workers import Load

__all__ = ["served_by"]

Law = Mapping[str, Any]


def served_by(
    site: Site, load: Load, hardware: str, *, law: Law | None, table: Callable[[str], Law | None],
    tokens: Law | None = None, engine: Engine | None = None, split: Split | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The model of a load as plain data: its kind, and what that kind needs to start.

    A load that makes text has an `engine`, `tokens` is the law of its iterations, and `split` how its GPUs share them.
    """
    names = words_of(load, hardware, engine, split)
    found = site.rule_of_load(load, hardware)
    if found is None:
        kinds = 'a server\'s command or url, or kind = "sleep", "onnx", "command" or "api"'
        raise InputError.one(
            file=FILE, path="$.models", value=load.id, why="no rule says how this load is served",
            remedy=f'Add [models.{load.called}] (or [models."*"] for all) with {kinds}.',
        )  # fmt: skip
    section, rule = found
    at = json_path(("models", section))
    if engine is not None:
        made = _text(rule, load, engine, split or Split(), tokens or {}, names, at)
    elif isinstance(rule, SleepModel):
        made = _sleep(rule, load, hardware, law, table, at)
    elif isinstance(rule, OnnxModel):
        made = _onnx(rule, site, load, names, at)
    elif isinstance(rule, ApiModel):
        made = _api(rule, site, names, at)
    elif isinstance(rule, ServerModel):
        made = _server(rule, load, names, at)
    else:
        made = _command(rule, names, at)
    _says_outcomes(rule, load, at)
    return made if rule.retry else {**made, "retry": False}


_NO_DATA = {"model", "stage", "app", "machine", "retry", "name", "env"}


def _as_data(rule: ModelRule, **filled: Any) -> dict[str, Any]:
    """What a rule says as plain data, with these in place of its own words, but not for which loads it is."""
    return {**rule.model_dump(mode="json", exclude=_NO_DATA), **filled}


def _says_outcomes(rule: ModelRule, load: Load, at: str) -> None:
    """Where what follows depends on what an answer comes to, the model says that."""
    if load.outcomes and getattr(rule, "outcome", "") is None:
        raise InputError.one(
            file=FILE, path=f"{at}.outcome", value=load.id,
            why=f"the plan's answers of it come to {', '.join(load.outcomes)}, and nothing says which an answer is",
            remedy="Name the place in the answer that says it: outcome = \"verdict\".",
        )  # fmt: skip


def _text(
    rule: ModelRule, load: Load, engine: Engine, split: Split, tokens: Law, names: Mapping[str, Any], at: str
) -> dict[str, Any]:  # fmt: skip
    """The model of a load that makes text: a server of OpenAI's protocol, or the embedded engine that keeps the law."""
    if isinstance(rule, SleepModel):
        if rule.ms is not None or rule.table is not None or rule.statistic != "table":
            raise InputError.one(
                file=FILE, path=at, value=load.id, why="a load that makes text keeps the law of its engine",
                remedy="Leave out ms, table and statistic; `times` makes it slower.",
            )  # fmt: skip
        return {"kind": "tokens", "law": tokens, "times": rule.times}
    if not isinstance(rule, ServerModel):
        raise InputError.one(
            file=FILE, path=f"{at}.kind", value=rule.kind, why=f"{load.id} makes text token by token",
            remedy='Serve it by a server (leave kind out), or by kind = "sleep", which only keeps the law.',
        )  # fmt: skip
    if engine.role != "mixed":
        raise InputError.one(
            file="plan", path=f"$.workers.{load.id}", value=engine.role,
            why='engines of role prefill and decode are applied with kind = "sleep" alone: they keep the law',
            remedy="Plan with mixed engines: servers of their own move KV by means of their own.",
        )  # fmt: skip
    if load.instances > 1 and (rule.port or rule.url):
        raise InputError.one(
            file=FILE, path=at, value=load.instances, why="instances of one machine have a server each",
            remedy="Leave out port and url, and write {port} in the command.",
        )  # fmt: skip
    words = (*rule.command, *rule.args)
    if rule.url is None and not rule.port and not any("{port}" in word for word in words):
        raise InputError.one(
            file=FILE, path=f"{at}.command", value=load.id, why="the command does not say where to listen",
            remedy='Write "{port}" in it.',
        )  # fmt: skip
    if wrong := list(split_otherwise(words, split, load.id, at=f"{at}.command", file=FILE)):
        raise InputError(wrong)
    made = _server(rule.model_copy(update={"protocol": "openai", "route": None}), load, names, at)
    return {**made, "kind": "openai", "gpus": engine.gpus, "timeout_s": rule.timeout_s or _BACK_S}


_BACK_S, _ANSWER_S = 600.0, 60.0
"""By when a server of text that ended is back, and by when another has answered, unless its rule says otherwise."""
_PATHS = {
    "plain": ("/", "/"), "openai": ("/v1/chat/completions", "/health"),
    "kserve-v2": ("/v2/models/{variant}/infer", "/v2/health/ready"),
}  # fmt: skip
"""Where each protocol is asked, and whether it is ready, unless the rule says otherwise."""


def _server(rule: ServerModel, load: Load, names: Mapping[str, Any], at: str) -> dict[str, Any]:
    """A server that is started by its command, or runs at its url."""
    words = (*rule.command, *rule.args)
    if bool(words) == (rule.url is not None):
        raise InputError.one(
            file=FILE, path=f"{at}.command", value=load.id, why="a server is started by `command` or runs at `url`",
            remedy="Name one of them.",
        )  # fmt: skip
    if rule.secret:
        raise InputError.one(
            file=FILE, path=f"{at}.secret", value=", ".join(rule.secret), why="hosts keep no secrets for their servers",
            remedy="Let the command read them from a file that its user alone can read.",
        )  # fmt: skip
    route, ready = _PATHS[rule.protocol]
    return {
        "kind": "http", "command": command(words, names, at=f"{at}.command", file=FILE), "url": rule.url,
        "port": rule.port, "protocol": rule.protocol, "ready": rule.health or ready,
        "route": filled(rule.route or route, names, at=f"{at}.route", file=FILE), "outcome": rule.outcome,
        "timeout_s": rule.timeout_s or _ANSWER_S, "environment": dict(rule.env),
        "model": rule.name or names.get("variant"),
    }  # fmt: skip


def _sleep(
    rule: SleepModel, load: Load, hardware: str, law: Law | None, table: Callable[[str], Law | None], at: str
) -> dict[str, Any]:
    if rule.ms is not None:
        law = {"ms": rule.ms}
    elif rule.table is not None:
        law = table(rule.table)
        if law is None:
            raise InputError.one(
                file=FILE, path=f"{at}.table", value=rule.table, why="the profile has no such table",
                remedy="Name a table of the profile.",
            )  # fmt: skip
    if law is None:
        raise InputError.one(
            file=FILE, path=at, value=f"{load.id} on {hardware}",
            why="neither the plan nor a profile says how long this load takes",
            remedy='Name the profile: files = ["profile.json"]; or give this rule a table or ms.',
        )  # fmt: skip
    return _as_data(rule, law=law)


def _onnx(rule: OnnxModel, site: Site, load: Load, names: Mapping[str, Any], at: str) -> dict[str, Any]:
    path = site.path(filled(rule.path, names, at=f"{at}.path"))
    sha256 = rule.sha256 or (load.artifact or "").removeprefix("sha256:") or None
    return _as_data(rule, path=str(path), sha256=sha256)


def _command(rule: CommandModel, names: Mapping[str, Any], at: str) -> dict[str, Any]:
    words = [filled(word, names, at=f"{at}.command[{number}]") for number, word in enumerate(rule.command)]
    return _as_data(rule, command=words, environment=dict(rule.env))


def _api(rule: ApiModel, site: Site, names: Mapping[str, Any], at: str) -> dict[str, Any]:
    """How an API is called; the key itself is in no file of ours."""
    url = urlsplit(rule.url)
    return _as_data(
        rule, command=[], port=0, ready=None, environment={}, url=f"{url.scheme}://{url.netloc}", route=url.path or "/",
        model=filled(rule.name, names, at=f"{at}.name") if rule.name is not None else None,
        key_file=str(site.path(rule.key_file)) if rule.key_file is not None else None,
    )  # fmt: skip
