"""What may stand in braces in the words of a trusted file (site.toml), and how they are filled in.

A plan gives ids and numbers alone: what comes from it is held to plain letters, digits, ``. _ -``. It can be no path,
no option, no second word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hetplan.errors import Fault, InputError
from hetplan.profiles.engines import Engine
from hetplan.profiles.workers import Load

__all__ = ["Split", "command", "filled", "split_otherwise", "words_of"]

_PLACE = re.compile(r"\{([a-z_]+)(?:\.([A-Za-z_][A-Za-z0-9_.-]*))?\}")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")


@dataclass(frozen=True)
class Split:
    """Over how many GPUs each layer, the requests (attention is whole on each), the experts and the layers one after
    the other are split; 1 where that is not done.
    """

    tensor: int = 1
    data: int = 1
    expert: int = 1
    pipeline: int = 1

    @classmethod
    def of(cls, engine: Engine, at: Mapping[str, float], path: str = "") -> Split:
        """That of a run: its engine counts as `tensor` all GPUs that a layer or the requests are split over."""
        data, expert = (max(round(at.get(way, 1)), 1) for way in ("data", "expert"))
        if engine.tensor % data:
            raise InputError.one(
                file="plan", path=path, value=data,
                why=f"requests are split over {data} GPUs, and its engine has {engine.tensor}",
                remedy="In the profile, let tensor of the engine count all its GPUs: a multiple of data.",
            )  # fmt: skip
        return cls(engine.tensor // data, data, expert, engine.pipeline)

    @property
    def gpus(self) -> int:
        """Of one replica."""
        return self.tensor * self.data * self.pipeline

    @property
    def parallel(self) -> str:
        """How a model is split, in letters that a word may hold: tp, ep, dp or dp-ep."""
        ways = [way for way, many in (("dp", self.data), ("ep", self.expert)) if many > 1]
        return "-".join(ways) or "tp"


def words_of(load: Load, hardware: str, engine: Engine | None = None, split: Split | None = None) -> dict[str, Any]:
    """What a load is called and what the plan counts on, by the name that stands in braces.

    >>> words_of(Load(id="w1.a", app="rank", variant="net"), "t4")["variant"]
    'net'
    """
    serve, split = load.serve, split or Split()
    found: dict[str, Any] = {
        "variant": load.variant, "model": load.variant, "node": load.node, "app": load.app, "hardware": hardware,
        "knobs": load.knobs, "max_batch": serve.max_batch, "tensor": split.tensor, "data": split.data,
        "expert": split.expert, "parallel": split.parallel, "pipeline": split.pipeline,
        "concurrency": serve.sent * (serve.max_batch if serve.most_seqs is None and engine is None else 1),
    }  # fmt: skip
    if engine is not None:
        found |= {
            "max_seqs": serve.most_seqs or engine.most_seqs, "max_tokens": serve.most_tokens or engine.most_tokens,
            "precision": engine.precision, "context_tokens": engine.context_tokens,
            "role": {"mixed": "whole"}.get(engine.role, engine.role),
        }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def split_otherwise(given: Sequence[str], split: Split, who: str, *, at: str, file: str) -> Iterator[Fault]:
    """Words that would split a model over its GPUs otherwise than the plan counts on."""
    said = " ".join(given)
    if "{tensor}" not in said or "{parallel}" in said:
        return
    if split.data > 1 and "{data}" not in said:
        why = f"{who} splits requests over {split.data} GPUs, and its words say {{tensor}} ({split.tensor}) alone"
        remedy = 'Add "--data-parallel-size", "{data}" to its words, as its server calls it; or {parallel}.'
        yield Fault(file, at, split.parallel, why, remedy)
    if split.expert > 1 and "expert" not in said:
        why = f"{who} splits experts over {split.expert} GPUs, and its words do not say that"
        remedy = 'Add "--enable-expert-parallel" to its words, as its server calls it; or {expert} or {parallel}.'
        yield Fault(file, at, split.parallel, why, remedy)


def command(
    given: Sequence[str], names: Mapping[str, Any], *, at: str, file: str = "site.toml", port: int | None = None
) -> list[str]:
    """The words of a command, filled in; `{port}` stays where no port is given: it is known later.

    >>> command(["serve", "--port={port}", "{variant}"], {"variant": "net"}, at="$.command")
    ['serve', '--port={port}', 'net']
    """
    port_word = "{port}" if port is None else str(port)
    return [
        port_word.join(
            filled(part, names, at=f"{at}[{place}]", file=file, also=("port",)) for part in word.split("{port}")
        )
        for place, word in enumerate(given)
    ]


def filled(
    text: str, names: Mapping[str, Any], *, at: str = "", file: str = "site.toml", also: Sequence[str] = ()
) -> str:
    """A text of a trusted file with the load's names in place of ``{variant}``, ``{node}``, ``{knobs.size}``.

    >>> filled("models/{variant}-{knobs.size}.onnx", {"variant": "yolo-n", "knobs": {"size": 640}})
    'models/yolo-n-640.onnx'
    >>> filled("{variant}", {"variant": "../../etc/passwd"}, at="$.models.net.path")
    Traceback (most recent call last):
      ...
    hetplan.errors.InputError: site.toml: $.models.net.path (found ../../etc/passwd): {variant} of the plan is no ...
    """

    def value(match: re.Match[str]) -> str:
        name, knob = match[1], match[2]
        found = names.get(name)
        if knob is not None and isinstance(found, Mapping):
            found = found.get(knob)
        if found is None or isinstance(found, Mapping):
            listed = [f"{{{one}}}" for one in (*(one for one in names if one != "knobs"), *also)]
            listed += ["{knobs.NAME}"] if names.get("knobs") else []
            why, remedy = f"the load has no {match[0]}", f"Known are {', '.join(listed)}."
            raise InputError.one(file=file, path=at, value=text, why=why, remedy=remedy)
        written = f"{found:g}" if isinstance(found, float) else str(found)
        if not _PLAIN.match(written) or ".." in written:
            raise InputError.one(
                file=file, path=at, value=written, why=f"{match[0]} of the plan is no plain name",
                remedy="Names hold letters, digits, dot, dash and underline only.",
            )  # fmt: skip
        return written

    return _PLACE.sub(value, text)
