"""A load with labelled inputs: what queries carry, and how good the answers to them are.

The labelled set is an .npz file, an array `labels` and one array per input. A query of a class that carries a batch
carries so many samples, taken in turn in an order that the load's seed draws. Its answer is judged by a scorer:

- `top1`: whether the highest output of each sample is its label (the first output of the last step);
- `module:function`, of a module beside the labelled set: called with the reply's `outputs` (parsed JSON) and the labels
  of its samples, an array; it returns one number, or one per sample;
- a command, in words: it reads a line of JSON ``{"outputs": ..., "labels": [...]}`` per reply and answers
  ``{"score": 0.9}``.
"""

from __future__ import annotations

import io
import json
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.errors import InputError
from hetplan.measure.load_send import Sent, Target
from hetplan.measure.profile_models import MeasurementFailed, named_function
from hetplan.measure.profile_run import read_labelled, top1

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Carried", "Labelled", "check_scorer", "read_labelled_set", "score_answers", "with_labelled"]

At = Mapping[str, float]
_MOST_BODIES = 512
_ANSWER_S = 60.0
"""A command that has not judged a reply within this time hangs."""


@dataclass(frozen=True)
class Labelled:
    """A labelled set."""

    file: Path
    inputs: Mapping[str, NDArray[Any]]
    labels: NDArray[Any]


def read_labelled_set(file: Path) -> Labelled:
    """The labelled set of an .npz file."""
    try:
        arrays = read_labelled(file)
    except MeasurementFailed as error:
        raise InputError.one(file=str(file), why=str(error), remedy="Save arrays with numpy.savez.") from None
    labels = arrays.pop("labels")
    return Labelled(file, arrays, labels)


@dataclass(frozen=True)
class Carried:
    """A target whose queries carry labelled inputs; the labels, and the class, of each of its bodies."""

    target: Target
    labels: Sequence[NDArray[Any]]
    points: Sequence[At]


def with_labelled(target: Target, points: Sequence[At], labelled: Labelled, *, seed: int) -> Carried:
    """The same queries with labelled inputs, in an order that the seed draws: the first of a file are no sample."""
    import numpy as np

    random = np.random.default_rng(seed)
    bodies: list[bytes] = []
    fields: list[str] = []
    labels: list[NDArray[Any]] = []
    classes: list[At] = []
    first: list[int] = []
    for point in points:
        first.append(len(bodies))
        for places in _chunks(len(labelled.labels), max(int(point.get("batch", 1.0)), 1)):
            body, field = _body(point, {name: array[places] for name, array in labelled.inputs.items()})
            bodies.append(body)
            fields.append(field)
            labels.append(labelled.labels[places])
            classes.append(point)
    ends = [*first[1:], len(bodies)]
    orders = [cycle((begin + random.permutation(end - begin)).tolist()) for begin, end in zip(first, ends, strict=True)]
    kinds = np.array([next(orders[kind]) for kind in target.kinds.tolist()], np.int32)
    single = len(labelled.inputs) == 1
    headers = tuple((name, value) for name, value in target.headers if name != "hetplan-reply")
    content_type = "application/octet-stream" if single else "application/json"
    made = replace(target, kinds=kinds, bodies=bodies, fields=fields if single else (), content_type=content_type)
    return Carried(replace(made, headers=headers, keep=True), labels, classes)


def _chunks(count: int, size: int) -> Iterator[NDArray[np.int64]]:
    import numpy as np

    for number, begin in enumerate(range(0, count, size)):
        if number == _MOST_BODIES:
            return
        yield np.arange(begin, begin + size) % count


def _body(point: At, inputs: Mapping[str, NDArray[Any]]) -> tuple[bytes, str]:
    """The body of a query, and the header line that says its place on the tables where the body does not."""
    import numpy as np

    if len(inputs) > 1:
        lists = {name: array.tolist() for name, array in inputs.items()}
        return json.dumps({"at": dict(point), "inputs": lists}).encode(), ""
    (array,) = inputs.values()
    written = io.BytesIO()
    np.save(written, array, allow_pickle=False)
    said = "; ".join(f"{name}={value:g}" for name, value in point.items())
    return written.getvalue(), f"hetplan-at: {said}" if said else "x-labelled: 1"


def check_scorer(scorer: str, folder: Path) -> None:
    """`InputError` where there is no such scorer: to be known before minutes of load, not after."""
    with _judge(scorer, folder):
        pass


def score_answers(sent: Sent, labels: Sequence[NDArray[Any]], scorer: str, folder: Path) -> Sent:
    """The load with the quality of each answer as it was judged; NaN where there was none."""
    import numpy as np

    quality = np.full(len(sent.status), np.nan)
    with _judge(scorer, folder) as judge:
        for place, body in enumerate(sent.bodies):
            if not 200 <= sent.status[place] < 300:
                continue
            try:
                outputs = json.loads(body)["outputs"]
            except (ValueError, KeyError, TypeError):
                raise _no_score(scorer, "a reply has no outputs in JSON") from None
            quality[place] = _one(judge, outputs, labels[int(sent.kinds[place])], scorer)
    return replace(sent, quality=quality)


Judge = Callable[[Any, Any], Any]


def _one(judge: Judge, outputs: Any, labels: NDArray[Any], scorer: str) -> float:
    import numpy as np

    try:
        found = np.asarray(judge(outputs, labels), dtype=np.float64).reshape(-1)
    except InputError:
        raise
    except Exception as error:
        raise _no_score(scorer, f"{type(error).__name__}: {error}") from error
    if not len(found) or not np.isfinite(found).all():
        raise _no_score(scorer, "its score is no number")
    return float(found.mean())


def _no_score(scorer: str, why: str) -> InputError:
    return InputError.one(
        file="--scorer", value=scorer, why=why, remedy="It takes a reply's outputs and labels, and gives numbers."
    )


@contextmanager
def _judge(scorer: str, folder: Path) -> Iterator[Judge]:
    if scorer == "top1":
        yield lambda outputs, labels: top1(_first_output(outputs), labels)
    elif scorer.count(":") == 1 and " " not in scorer and "/" not in scorer:
        try:
            yield named_function(scorer, folder)
        except MeasurementFailed as error:
            raise _no_score(scorer, str(error)) from None
    else:
        with _command(scorer, folder) as judge:
            yield judge


def _first_output(outputs: Any) -> Any:
    """The first output of the last step that answered."""
    if isinstance(outputs, list) and outputs and isinstance(outputs[-1], dict) and "node" in outputs[-1]:
        outputs = outputs[-1]["outputs"]
    return next(iter(outputs.values())) if isinstance(outputs, dict) else outputs


@contextmanager
def _command(scorer: str, folder: Path) -> Iterator[Judge]:
    try:
        words = [str((folder / word).resolve()) if (folder / word).is_file() else word for word in shlex.split(scorer)]
        if not words:
            raise ValueError("it is empty")
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except (OSError, ValueError) as error:
        raise _no_score(scorer, f"it does not start: {getattr(error, 'strerror', None) or error}") from None

    def judge(outputs: Any, labels: Any) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        hung = threading.Event()

        def end() -> None:
            hung.set()
            process.kill()

        watch = threading.Timer(_ANSWER_S, end)
        watch.start()
        try:
            process.stdin.write(json.dumps({"outputs": outputs, "labels": labels.tolist()}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            line = ""
        finally:
            watch.cancel()
        if not line:
            raise _no_score(scorer, f"no answer in {_ANSWER_S:g} s" if hung.is_set() else "it ended without an answer")
        return json.loads(line)["score"]

    try:
        yield judge
    finally:
        process.kill()
        with suppress(OSError):
            process.communicate()
