"""The four steps of a small question answerer: embed, search, rerank, generate; numpy only, made on the spot.

The library is 3,000 short texts about made-up places. A question asks for one fact about one place, and is typed badly.
Each step is real work whose cost and quality both follow from its knob:

embed     letters in threes, projected to `dim` numbers: more of them tell more places apart
search    the `found` texts nearest to the question by cosine
rerank    none; words: by common words; letters: by edit distance of the names
generate  reads the best `read` texts and answers with the fact that fits the question best
"""

from __future__ import annotations

import sys
import zlib
from functools import cache
from pathlib import Path

import numpy as np

PLACES, FACTS, HASHED = 3000, 6, 4096
KINDS = ["river", "mayor", "founded", "altitude", "people", "market", "bridge", "harvest", "weather", "guild"]
SYLLABLES = [first + last for first in "bdfghjklmnprstvw" for last in ("al", "en", "ir", "or")]
FOLDER = Path(sys.argv[1] if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ".")


def word(rng: np.random.Generator, syllables: int) -> str:
    """A word that means nothing."""
    return "".join(SYLLABLES[int(k)] for k in rng.integers(len(SYLLABLES), size=syllables))


@cache
def library() -> list[tuple[str, dict[str, str]]]:
    """Places with their facts; many names are nearly alike."""
    rng = np.random.default_rng(1)
    first = [word(rng, 2) for _ in range(150)]
    last = [word(rng, 2) for _ in range(150)]
    names: dict[str, None] = {}
    while len(names) < PLACES:
        names[f"{first[int(rng.integers(150))]} {last[int(rng.integers(150))]}"] = None
    return [(name, {str(kind): word(rng, 3) for kind in rng.choice(KINDS, FACTS, replace=False)}) for name in names]


def mistyped(text: str, rng: np.random.Generator, share: float) -> str:
    """Some letters are swapped, doubled or lost."""
    letters = list(text)
    for place in range(len(letters) - 1):
        if letters[place] != " " and rng.random() < share:
            way = int(rng.integers(3))
            if way == 0:
                letters[place], letters[place + 1] = letters[place + 1], letters[place]
            else:
                letters[place] = letters[place] * 2 if way == 1 else ""
    return "".join(letters)


def typing() -> float:
    """How many letters people mistype now; a file beside the example says where that has changed."""
    said = FOLDER / "mistyped"
    return float(said.read_text()) if said.exists() else 0.08


def question(index: int) -> tuple[str, str]:
    """A question and its answer."""
    share = typing()
    rng = np.random.default_rng([2, index])
    name, facts = library()[int(rng.integers(PLACES))]
    kind = str(rng.choice(list(facts)))
    return f"{mistyped(kind, rng, share)} of {mistyped(name, rng, share)}", facts[kind]


def hashed(text: str) -> np.ndarray:
    """How often letters come in which threes."""
    counts = np.zeros(HASHED, dtype=np.float32)
    padded = f" {text} "
    for place in range(len(padded) - 2):
        counts[zlib.crc32(padded[place : place + 3].encode()) % HASHED] += 1
    return counts


@cache
def projection(dim: int) -> np.ndarray:
    return np.random.default_rng(dim).standard_normal((dim, HASHED)).astype(np.float32) / np.sqrt(HASHED)


@cache
def index(dim: int) -> np.ndarray:
    """The library's vectors, made once and kept beside the example."""
    file = FOLDER / f"index-{dim}.npy"
    if not file.exists():
        threes = np.stack([hashed(f"{name} {' '.join(facts)}") for name, facts in library()])
        rows = threes @ projection(dim).T
        partial = file.with_suffix(f".{dim}.partial.npy")
        np.save(partial, rows / np.linalg.norm(rows, axis=1, keepdims=True))
        partial.replace(file)
    return np.load(file)


def embed(said: dict, dim: int) -> dict:
    vector = projection(dim) @ hashed(said["question"])
    return {**said, "vector": (vector / (np.linalg.norm(vector) + 1e-9)).round(5).tolist()}


def search(said: dict, dim: int, found: int) -> dict:
    near = index(dim) @ np.array(said["vector"], dtype=np.float32)
    best = np.argpartition(-near, found)[:found]
    return {"question": said["question"], "texts": best[np.argsort(-near[best])].tolist()}


def apart(one: str, other: str) -> int:
    """Edit distance."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def rerank(said: dict, ranker: str) -> dict:
    name = said["question"].partition(" of ")[2]
    if ranker == "words":
        asked = set(name.split())
        order = sorted(said["texts"], key=lambda text: -len(asked & set(library()[text][0].split())))
    elif ranker == "letters":
        order = sorted(said["texts"], key=lambda text: apart(name, library()[text][0]))
    else:
        order = said["texts"]
    return {"question": said["question"], "texts": order[:8]}


def generate(said: dict, read: int) -> dict:
    kind, _, name = said["question"].partition(" of ")
    facts = [
        (apart(kind, known) + 0.5 * apart(name, library()[text][0]) + 0.1 * place, value)
        for place, text in enumerate(said["texts"][:read])
        for known, value in library()[text][1].items()
    ]
    return {"answer": min(facts)[1]}


STEPS = {"embed": embed, "search": search, "rerank": rerank, "generate": generate}
READS = {"embed": ("dim",), "search": ("dim", "found"), "rerank": ("ranker",), "generate": ("read",)}
