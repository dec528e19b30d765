"""Quality on a labelled set: an .npz file whose array `labels` says what is right for the samples of the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hetplan.measure.profile_subject import MeasurementFailed, Subject, named_function

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MeasuredQuality", "as_quality", "quality_of", "top1"]


@dataclass(frozen=True)
class MeasuredQuality:
    """The mean score of the samples, and its 95% interval."""

    value: float
    interval: tuple[float, float]
    samples: int

    def as_dict(self) -> dict[str, Any]:
        """For the journal and the profile's extensions."""
        return {**asdict(self), "interval": list(self.interval)}


def top1(outputs: Any, labels: Any) -> NDArray[np.float64]:
    """Whether the highest output of each sample is its label.

    >>> top1([[0.1, 0.9], [0.8, 0.2]], [1, 1]).tolist()
    [1.0, 0.0]
    """
    import numpy as np

    found = np.asarray(outputs)
    best = found.reshape(len(found), -1).argmax(axis=1)
    return np.asarray(best == np.asarray(labels).reshape(-1), dtype=np.float64)


def quality_of(subject: Subject, file: Path, score: str, *, batch: int) -> MeasuredQuality:
    """The quality of a loaded model; samples are handed over in batches of this size, the last one filled up."""
    import numpy as np

    arrays = _read(file)
    labels = arrays.pop("labels")
    judge = top1 if score == "top1" else named_function(score, file.parent)
    scores: list[NDArray[np.float64]] = []
    for first in range(0, len(labels), batch):
        places = np.arange(first, min(first + batch, len(labels)))
        taken = np.resize(places, batch)
        outputs = np.asarray(subject.predict({name: array[taken] for name, array in arrays.items()}))[: len(places)]
        found = np.asarray(judge(outputs, labels[places]), dtype=np.float64).reshape(-1)
        if len(found) != len(places) or not np.isfinite(found).all():
            raise MeasurementFailed(f"{score} gave {len(found)} scores for {len(places)} samples, or none that counts")
        scores.append(found)
    return _summed(np.concatenate(scores))


def _read(file: Path) -> dict[str, NDArray[Any]]:
    import numpy as np

    try:
        with np.load(file, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
    except (OSError, ValueError) as error:
        raise MeasurementFailed(f"{file.name} is no .npz file of plain arrays: {error}") from error
    if "labels" not in arrays or len(arrays) < 2:
        raise MeasurementFailed(f"{file.name} wants an array labels and at least one of inputs")
    if not len(arrays["labels"]) or len({len(array) for array in arrays.values()}) > 1:
        raise MeasurementFailed(f"{file.name}: the arrays differ in length, or are empty")
    return arrays


def _summed(scores: NDArray[np.float64]) -> MeasuredQuality:
    """Wilson's interval where each sample is right or wrong, else the normal one."""
    count, mean = len(scores), float(scores.mean())
    if set(scores.tolist()) <= {0.0, 1.0}:
        low, high = _wilson(mean, count)
    else:
        half = 1.959964 * float(scores.std(ddof=1)) / math.sqrt(count) if count > 1 else 0.0
        low, high = mean - half, mean + half
    return MeasuredQuality(float(f"{mean:.9g}"), (float(f"{low:.9g}"), float(f"{high:.9g}")), count)


def _wilson(share: float, count: int) -> tuple[float, float]:
    square = 1.959964**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = math.sqrt(square * (share * (1 - share) / count + square / (4 * count * count))) / (1 + square / count)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def as_quality(line: Mapping[str, Any]) -> MeasuredQuality:
    """What the journal holds."""
    low, high = line["interval"]
    return MeasuredQuality(float(line["value"]), (float(low), float(high)), int(line["samples"]))
