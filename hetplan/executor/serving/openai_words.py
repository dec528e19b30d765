"""What OpenAI's protocol for text says: how long a request is, the pieces of an answer, models, errors.

No tokenizer is here: a prompt that is a list of numbers is as long as the list; of text, four letters are taken for a
token, unless the request says how long it is (`hetplan-at: input_tokens=1000; cached_tokens=200`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import time
from typing import Any

from hetplan.executor.serving.query_body import BadQuery, read_at

__all__ = ["CHAT", "COMPLETIONS", "KV", "MODELS", "Asked", "Pieces", "as_error", "models", "read_asked", "tokens_made"]

CHAT, COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
KV = "hetplan-kv"
"""The field by which a request goes from a machine that prefills to one that decodes: the number of its answer."""
_LETTERS = 4.0
_PER_MESSAGE = 4
_DEFAULT_TOKENS = 16


@dataclass(frozen=True)
class Asked:
    """A request for text: for which model, how long it is, what it may make, and how the answer shall come."""

    model: str | None
    input_tokens: int
    cached_tokens: int
    most_tokens: int | None
    stream: bool
    usage: bool
    said: dict[str, Any]


def read_asked(path: str, body: bytes, at: str = "") -> Asked:
    """The request in a body; BadQuery where it is none.

    >>> asked = read_asked(COMPLETIONS, b'{"prompt": [1, 2, 3], "max_tokens": 5, "stream": true}')
    >>> asked.input_tokens, asked.most_tokens, asked.stream
    (3, 5, True)
    >>> read_asked(CHAT, b'{"messages": [{"role": "user", "content": "How long is this?"}]}').input_tokens
    9
    """
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise BadQuery("the body is no JSON") from None
    if not isinstance(said, dict):
        raise BadQuery("the body is an object")
    stated = read_at(at)
    length = stated["input_tokens"] if "input_tokens" in stated else _length(path, said)
    most = said.get("max_completion_tokens", said.get("max_tokens"))
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise BadQuery("max_tokens is a whole number above 0")
    if said.get("n", 1) != 1 or said.get("best_of", 1) != 1:
        raise BadQuery("one answer per request: leave out n and best_of")
    options = said.get("stream_options")
    return Asked(
        model=said["model"] if isinstance(said.get("model"), str) else None,
        input_tokens=max(math.ceil(length), 1),
        cached_tokens=int(stated.get("cached_tokens", 0)),
        most_tokens=most,
        stream=said.get("stream") is True,
        usage=isinstance(options, dict) and options.get("include_usage") is True,
        said=said,
    )


def _length(path: str, said: Mapping[str, Any]) -> float:
    if path == COMPLETIONS:
        if "prompt" not in said:
            raise BadQuery("a completion has a prompt")
        return _of_prompt(said["prompt"])
    messages = said.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise BadQuery("a chat has messages, a list of objects")
    return sum(_PER_MESSAGE + _of_content(one.get("content")) for one in messages)


def _of_prompt(prompt: Any) -> float:
    if isinstance(prompt, str):
        return len(prompt) / _LETTERS
    if isinstance(prompt, list) and prompt:
        return float(len(prompt)) if isinstance(prompt[0], int) else sum(map(_of_prompt, prompt))
    raise BadQuery("a prompt is a text, or a list of tokens")


def _of_content(content: Any) -> float:
    if isinstance(content, list):
        return sum(_of_content(one.get("text")) for one in content if isinstance(one, dict))
    return len(content) / _LETTERS if isinstance(content, str) else 0.0


def as_error(why: str, *, kind: str = "invalid_request_error", code: str | None = None) -> bytes:
    """An error as clients of OpenAI read it.

    >>> as_error("no such model", code="model_not_found")
    b'{"error": {"message": "no such model", "type": "invalid_request_error", "code": "model_not_found"}}'
    """
    return json.dumps({"error": {"message": why, "type": kind, "code": code}}).encode()


def models(names: Iterable[str]) -> bytes:
    """The answer to `GET /v1/models`."""
    listed = [{"id": name, "object": "model", "created": 0, "owned_by": "hetplan"} for name in names]
    return json.dumps({"object": "list", "data": listed}).encode()


class Pieces:
    """The pieces of one answer of text that nobody computed: each token is the same word."""

    def __init__(self, path: str, number: int, asked: Asked, model: str) -> None:
        self._chat = path == CHAT
        self._asked, self.number = asked, number
        kind = "chat.completion" if self._chat else "text_completion"
        name = f"{'chatcmpl' if self._chat else 'cmpl'}-{number}"
        self._said = {"id": name, "object": kind, "created": int(time()), "model": model}
        self._streamed = {**self._said, "object": "chat.completion.chunk" if self._chat else kind}
        self.token = self._event([self._choice(None)])

    def last(self, made: int) -> bytes:
        """What follows the last token but one: the last one, what was used if that was asked for, and the end."""
        used = b""
        if self._asked.usage:
            used = b"data: %b\n\n" % json.dumps({**self._streamed, "choices": [], "usage": self._usage(made)}).encode()
        return self._event([self._choice("length")]) + used + b"data: [DONE]\n\n"

    def whole(self, made: int) -> bytes:
        """The answer where it does not come piece by piece."""
        text = _WORD * made
        content = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        choice = {"index": 0, **content, "finish_reason": "length"}
        return json.dumps({**self._said, "choices": [choice], "usage": self._usage(made)}).encode()

    def _event(self, choices: list[dict[str, Any]]) -> bytes:
        return b"data: %b\n\n" % json.dumps({**self._streamed, "choices": choices}).encode()

    def _choice(self, reason: str | None) -> dict[str, Any]:
        content = {"delta": {"role": "assistant", "content": _WORD}} if self._chat else {"text": _WORD}
        return {"index": 0, **content, "finish_reason": reason}

    def _usage(self, made: int) -> dict[str, int]:
        given = self._asked.input_tokens
        return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


_WORD = " so"


def tokens_made(asked: Asked) -> int:
    """How many tokens an engine makes that never ends by itself: as many as it may."""
    return asked.most_tokens or _DEFAULT_TOKENS
