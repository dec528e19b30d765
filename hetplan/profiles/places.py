"""From places of what is planned with to the places that a person wrote: messages speak of these alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

__all__ = ["WRITTEN", "FileOf", "Origins", "Places", "Steps", "in_words"]

Steps = tuple[str | int, ...]

WRITTEN = {"hardware": "machines", "variants": "models", "tasks": "models", "offers": "machines", "hosts": "machines"}
"""Where things are added in a file that are in other sections of what is planned with."""

FileOf = Callable[[Steps], str]
"""From a place (steps from the top) to the name of its file."""


@dataclass(frozen=True)
class Origins:
    """Which file a place of the merged document came from; the name of all files together where none is nearer."""

    everything: str
    origin: Mapping[tuple[str, ...], str] = field(default_factory=dict)

    def __call__(self, steps: tuple[str | int, ...]) -> str:
        """The file of a place, given by its steps from the top."""
        keys = tuple(str(step).lower() if number else str(step) for number, step in enumerate(steps))
        for length in range(min(len(keys), 4), 0, -1):
            if (found := self.origin.get(keys[:length])) is not None:
                return found
        return self.everything


@dataclass(frozen=True)
class Places:
    """Where each part of what is planned with stands in the file, by the steps from the top of both.

    >>> places = Places({("offers", "t4-spot"): ("machines", "t4", "spot")})
    >>> places(("offers", "t4-spot", "stock")), places.text("offers.t4-spot.stock")
    (('machines', 't4', 'spot', 'stock'), 'machines.t4.spot.stock')
    >>> places.sentence("profile.offers.t4-spot.stock is 3")
    'profile.machines.t4.spot.stock is 3'
    """

    written: Mapping[Steps, Steps] = field(default_factory=dict)
    file: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The file as a person wrote it; of several, all together."""

    def __call__(self, steps: Steps) -> Steps:
        """The place in the file of a place of what is planned with."""
        for length in range(len(steps), 0, -1):
            found = self.written.get(steps[:length])
            if found is not None:
                return (*found, *steps[length:])
        return steps

    def text(self, at: str) -> str:
        """The same for a place in words, as "tables.net-t4.mean"."""
        for length in self._lengths:
            head, rest = at[:length], at[length:]
            if len(at) >= length and head in self._texts and not re.match(r"[\w-]", rest):
                return self._texts[head] + rest
        return WRITTEN.get(at, at) if self.written else at

    def sentence(self, text: str) -> str:
        """A sentence with every place in it that begins with "profile." as the file has it."""
        return _IN_SENTENCE.sub(lambda found: found[1] + self.text(found[2]), text)

    @cached_property
    def _lengths(self) -> tuple[int, ...]:
        return tuple(sorted({len(one) for one in self._texts}, reverse=True))

    @cached_property
    def _texts(self) -> Mapping[str, str]:
        return {in_words(old): in_words(new) for old, new in self.written.items()}


_IN_SENTENCE = re.compile(r"\b(profile\.|slo\.)([a-z]+\.[^\s,;:()\"']*[^\s,;:()\"'.])")


def in_words(steps: Steps) -> str:
    """A place in words.

    >>> in_words(("models", "net", "runs", "t4", 0))
    'models.net.runs.t4[0]'
    """
    found = ""
    for step in steps:
        found += f"[{step}]" if isinstance(step, int) else f".{step}" if found else str(step)
    return found
