"""How a load is served: the first rule of hosts.toml that fits, its words filled in with the load's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from hetplan.errors import InputError
from hetplan.executor.hosts_file import (
    ApiModel,
    CommandModel,
    HostsFile,
    HttpModel,
    ModelRule,
    OnnxModel,
    OpenaiModel,
    SleepModel,
)
from hetplan.executor.words import Split, command, filled, split_otherwise, words_of
from hetplan.profiles.engines import Engine
from hetplan.profiles.workers import Load

__all__ = ["served_by"]

Law = Mapping[str, Any]


def served_by(
    hosts: HostsFile, load: Load, hardware: str, *, law: Law | None, table: Callable[[str], Law | None],
    tokens: Law | None = None, engine: Engine | None = None, split: Split | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The model of a load as plain data: its kind, and what that kind needs to start.

    A load that makes text has an `engine`, `tokens` is the law of its iterations, and `split` how its GPUs share them.
    """
    names = words_of(load, hardware, engine, split)
    for number, rule in enumerate(hosts.models):
        if rule.fits(variant=load.variant, node=load.node, app=load.app, hardware=hardware):
            at = f"$.models[{number}]"
            if engine is not None:
                made = _text(rule, load, engine, split or Split(), tokens or {}, names, at)
            elif isinstance(rule, OpenaiModel):
                raise InputError.one(
                    file="hosts.toml", path=at, value=load.id, why="the plan does not say that this load makes text",
                    remedy='Serve it by kind = "http" with protocol = "openai".',
                )  # fmt: skip
            elif isinstance(rule, SleepModel):
                made = _sleep(rule, load, hardware, law, table, at)
            elif isinstance(rule, OnnxModel):
                made = _onnx(rule, hosts, load, names, at)
            elif isinstance(rule, ApiModel):
                made = _api(rule, hosts, names, at)
            elif isinstance(rule, HttpModel):
                made = _http(rule, names, at)
            else:
                made = _command(rule, names, at)
            _says_outcomes(rule, load, at)
            return made if rule.retry else {**made, "retry": False}
    asked = ("variant", "node", "app", "hardware")
    wanted = ", ".join(f'{name} = "{names[name]}"' for name in asked if name in names)
    raise InputError.one(
        file="hosts.toml", path="$.models", value=load.id, why="no rule says how this load is served",
        remedy='Add [[models]] with kind = "sleep", "onnx", "http", "openai", "api" or "command" '
        f"that fits {wanted}.",
    )  # fmt: skip


_FOR_WHOM = {"variant", "node", "app", "hardware", "retry"}


def _as_data(rule: ModelRule, **filled: Any) -> dict[str, Any]:
    """What a rule says as plain data, with these in place of its own words, but not for which loads it is."""
    return {**rule.model_dump(mode="json", exclude=_FOR_WHOM), **filled}


def _says_outcomes(rule: ModelRule, load: Load, at: str) -> None:
    """Where what follows depends on what an answer comes to, the model says that."""
    if load.outcomes and getattr(rule, "outcome", "") is None:
        raise InputError.one(
            file="hosts.toml", path=f"{at}.outcome", value=load.id,
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
                file="hosts.toml", path=at, value=load.id, why="a load that makes text keeps the law of its engine",
                remedy="Leave out ms, table and statistic; `times` makes it slower.",
            )  # fmt: skip
        return {"kind": "tokens", "law": tokens, "times": rule.times}
    if not isinstance(rule, OpenaiModel):
        raise InputError.one(
            file="hosts.toml", path=f"{at}.kind", value=rule.kind, why=f"{load.id} makes text token by token",
            remedy='Serve it by kind = "openai", or by kind = "sleep", which keeps the law without computing.',
        )  # fmt: skip
    if engine.role != "mixed":
        raise InputError.one(
            file="plan", path=f"$.workers.{load.id}", value=engine.role,
            why='engines of role prefill and decode are applied with kind = "sleep" alone: they keep the law',
            remedy="Plan with mixed engines: servers of their own move KV by means of their own.",
        )  # fmt: skip
    if load.instances > 1 and (rule.port or rule.url):
        raise InputError.one(
            file="hosts.toml", path=at, value=load.instances, why="instances of one machine have a server each",
            remedy="Leave out port and url, and write {port} in the command.",
        )  # fmt: skip
    if wrong := list(split_otherwise(rule.command, split, load.id, at=f"{at}.command", file="hosts.toml")):
        raise InputError(wrong)
    return _as_data(
        rule, command=command(rule.command, names, at=f"{at}.command"), protocol="openai", route=_PATHS["openai"][0],
        model=rule.model or load.variant, gpus=engine.gpus,
    )  # fmt: skip


def _sleep(
    rule: SleepModel, load: Load, hardware: str, law: Law | None, table: Callable[[str], Law | None], at: str
) -> dict[str, Any]:
    if rule.ms is not None:
        law = {"ms": rule.ms}
    elif rule.table is not None:
        law = table(rule.table)
        if law is None:
            raise InputError.one(
                file="hosts.toml", path=f"{at}.table", value=rule.table, why="the profile has no such table",
                remedy="Name a table of the files under `profiles`.",
            )  # fmt: skip
    if law is None:
        raise InputError.one(
            file="hosts.toml", path=at, value=f"{load.id} on {hardware}",
            why="neither the plan nor a profile says how long this load takes",
            remedy='Name the profile: profiles = ["profile.json"]; or give this rule a table or ms.',
        )  # fmt: skip
    return _as_data(rule, law=law)


def _onnx(rule: OnnxModel, hosts: HostsFile, load: Load, names: Mapping[str, Any], at: str) -> dict[str, Any]:
    path = hosts.path(filled(rule.path, names, at=f"{at}.path"))
    sha256 = rule.sha256 or (load.artifact or "").removeprefix("sha256:") or None
    return _as_data(rule, path=str(path), sha256=sha256)


def _command(rule: CommandModel, names: Mapping[str, Any], at: str) -> dict[str, Any]:
    words = [filled(word, names, at=f"{at}.command[{number}]") for number, word in enumerate(rule.command)]
    return _as_data(rule, command=words)


_PATHS = {
    "plain": ("/", "/"), "openai": ("/v1/chat/completions", "/health"),
    "kserve-v2": ("/v2/models/{variant}/infer", "/v2/health/ready"),
}  # fmt: skip
"""Where each protocol is asked, and whether it is ready, unless the rule says otherwise."""


def _http(rule: HttpModel, names: Mapping[str, Any], at: str) -> dict[str, Any]:
    route, ready = _PATHS[rule.protocol]
    return _as_data(
        rule, command=command(rule.command, names, at=f"{at}.command"), ready=rule.ready or ready,
        route=filled(rule.route or route, names, at=f"{at}.route"), model=names.get("variant"),
    )  # fmt: skip


def _api(rule: ApiModel, hosts: HostsFile, names: Mapping[str, Any], at: str) -> dict[str, Any]:
    """How an API is called; the key itself is in no file of ours."""
    url = urlsplit(rule.url)
    return _as_data(
        rule, command=[], port=0, ready=None, environment={}, url=f"{url.scheme}://{url.netloc}", route=url.path or "/",
        model=filled(rule.model, names, at=f"{at}.model") if rule.model is not None else None,
        key_file=str(hosts.path(rule.key_file)) if rule.key_file is not None else None,
    )  # fmt: skip
