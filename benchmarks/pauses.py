"""What a query of a real model spends where, as a profile measures it and as a load meets it.

    python benchmarks/pauses.py [--model small] [--seconds 4] [--rounds 2]

One worker and its router serve a model of the end-to-end example on a core of its own. In turn it is asked one query
after the other, as `hetplan profile` does, and by the open-loop sender of `hetplan loadtest`, so often that the worker
has something to do for a share of its time. All figures are medians, in milliseconds.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np

from benchmarks.reality_replay import spent
from hetplan.executor.one_model import ServedModel
from hetplan.executor.serving.process import ask_for_short_turns
from hetplan.measure.load_send import Sent, Target, send_load
from hetplan.measure.profile_models import Asking

__all__ = ["Parts"]

HEADERS = {"content-type": "application/octet-stream", "hetplan-at": "batch=1"}
NAMES = ("sender late", "way to the router and back", "waiting", "hand-over", "inference", "all but waiting")


@dataclass(frozen=True)
class Parts:
    """Where the time of some queries went."""

    asked: str
    share: float
    late_ms: float
    beside_ms: float
    waiting_ms: float
    hand_over_ms: float
    service_ms: float

    def row(self) -> str:
        """As a line of Markdown."""
        parts = (self.late_ms, self.beside_ms, self.waiting_ms, self.hand_over_ms, self.service_ms)
        whole = sum(parts) - self.waiting_ms
        return f"| {self.asked} | {self.share:.0%} | " + " | ".join(f"{one:.2f}" for one in (*parts, whole)) + " |"


class Place:
    """A served model and the queries that it is asked."""

    def __init__(self, url: str, bodies: list[bytes], seconds: float) -> None:
        self.url, self.bodies, self.seconds = url, bodies, seconds
        self.random = np.random.default_rng(0)

    def took_s(self) -> float:
        """How long a query takes where nothing else is asked (median)."""
        self.one_by_one(np.arange(30) * 0.003)
        return float(np.median(self.one_by_one(np.arange(50) * 0.003).response_ms)) / 1e3

    def due_s(self, rate_qps: float) -> Any:
        """When queries of a Poisson process are due."""
        gaps_s = self.random.exponential(1.0 / rate_qps, int(3 * rate_qps * self.seconds) + 10)
        due_s = np.cumsum(gaps_s)
        return due_s[due_s < self.seconds]

    def one_by_one(self, due_s: Any) -> Sent:
        """As a profile is measured: a query that is due waits in the sender until the one before it is answered."""
        asking, took_ms, replies = Asking(self.url, 10.0), [], []
        asking.connect()
        began_s = time.monotonic()
        for place, due in enumerate(due_s.tolist()):
            time.sleep(max(began_s + due - time.monotonic(), 0.0))
            sent_s = time.perf_counter()
            replies.append(asking.post(self.bodies[place % len(self.bodies)], HEADERS)[0])
            took_ms.append(1e3 * (time.perf_counter() - sent_s))
        asking.close()
        none, whole = np.zeros(len(due_s)), np.zeros(len(due_s), np.int32)
        return Sent("a", due_s, whole, none, np.array(took_ms), whole.astype(np.int16), [], none, 1, replies)

    def load(self, due_s: Any) -> Sent:
        """As a load is sent."""
        kinds = np.arange(len(due_s), dtype=np.int32) % len(self.bodies)
        fields = (("hetplan-at", HEADERS["hetplan-at"]),)
        target = Target("a", self.url, due_s, kinds, self.bodies, HEADERS["content-type"], fields, keep=True)
        (sent,) = send_load([target])
        return sent


def parts_of(asked: str, share: float, sent: Sent) -> Parts:
    """The medians of what queries went through."""
    went = spent(sent)
    late_ms = sent.late_ms[went.answered]
    values = (late_ms, went.beside_ms - late_ms, went.waiting_ms, went.hand_over_ms, went.service_ms)
    return Parts(asked, share, *(float(np.median(one)) for one in values))


def measured(model: Path, bodies: list[bytes], seconds: float, rounds: int) -> Iterator[Parts]:
    """The ways to ask in turn, round after round."""
    core = max(os.sched_getaffinity(0))
    made = {"kind": "onnx", "path": str(model), "threads": 1, "providers": ["CPUExecutionProvider"]}
    with ServedModel(made, cores=(core,)) as served:
        place = Place(served.url, bodies, seconds)
        took_s = place.took_s()
        for _ in range(rounds):
            for share in (0.5, 0.15):
                yield parts_of("one by one", share, place.one_by_one(place.due_s(share / took_s)))
            for share in (0.15, 0.3, 0.45):
                yield parts_of("load", share, place.load(place.due_s(share / took_s)))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="small", choices=("small", "medium", "large"))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    ask_for_short_turns()
    sys.path.insert(0, str(ROOT / "examples" / "end-to-end"))
    with tempfile.TemporaryDirectory() as folder:
        import_module("models").write_models(Path(folder), fit_to=300, labelled=200)
        images = np.load(Path(folder) / "labelled.npz")["image"]
        bodies = []
        for place in range(len(images)):
            written = io.BytesIO()
            np.save(written, images[place : place + 1], allow_pickle=False)
            bodies.append(written.getvalue())
        print(f"| asked | share | {' | '.join(NAMES)} |\n|---|---|{'---|' * len(NAMES)}")
        for one in measured(Path(folder) / f"{given.model}.onnx", bodies, given.seconds, given.rounds):
            print(one.row(), flush=True)


if __name__ == "__main__":
    main()
