"""A recorded demand as what is wanted: rates over time, their percentiles, how bursty they are, a fitted process.

Read are:

- traces of text: Azure's CSV (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT's CSV, Mooncake's JSON lines;
- what Prometheus answers to a range query (JSON): one rate per step; several series are added up;
- CSV with rates: ``start_s`` and ``rate_qps``; or a column of times at equal steps, beside ``rate``, ``rate_qps``,
  ``qps`` or ``rps``;
- ServeGen's chunks: lines without a header of start, rate, variation, law and two shapes of gaps;
- CSV with a column of times (``arrival_s``, ``arrival_ms``, ``timestamp``, ``time`` or ``ts``, or the one that
  ``column`` names): seconds, milliseconds since 1970, or dates.

Beside the SLO come ``rates.csv``, which ``hetplan compare --demand`` plays, and for arrivals ``arrivals.csv``, which
``simulate --trace`` replays. What was found is kept in the SLO under ``extensions.trace``: the file, its SHA-256, the
first and last moment, percentiles and burstiness. Limits on times are not in a trace: write them into the SLO file.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hetplan.errors import InputError
from hetplan.profiles.imports.arrival_fit import (
    dispersion,
    fitted,
    fitted_rates,
    gap_variation,
    percentiles,
    rates_of,
)
from hetplan.profiles.imports.token_traces import Request, read_requests, wish_of

__all__ = ["convert", "words_of"]

_RATES = ("rate", "rate_qps", "qps", "rps")
_UNEVEN = 0.01
"""Steps of time that differ by more, in parts of one, are not equal."""
_TIMES = {"arrival_s": 1.0, "arrival_ms": 1e-3, "timestamp": 0.0, "time": 0.0, "ts": 0.0, "datetime": 0.0}
"""Columns of times and their unit; 0: seen from the first value."""
_MILLISECONDS = 1e11
"""Numbers of seconds since 1970 are below it for three thousand years, milliseconds above it since 1973."""
MOST_STEPS = 2000
Converted = tuple[None, dict[str, Any], dict[str, str]]
Floats = NDArray[np.float64]


def convert(
    path: str | os.PathLike[str], *, app: str = "", task: str = "", column: str = "", period_s: float = 0.0,
) -> Converted:  # fmt: skip
    """The SLO of a trace, and its CSV files by name; `period_s` is the step of the rates, by default one that suits."""
    file = os.fspath(path)
    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError.one(file=file, why="text in UTF-8", remedy="Save it as UTF-8.") from None
    if period_s < 0 or not math.isfinite(period_s):
        raise InputError.one(file="--set", path="period_s", value=period_s, why="seconds above 0", remedy="Write 60.")
    requests: list[Request] = []
    times: Floats = np.zeros(0)
    step, rates = 0.0, times
    origin: float | None = None
    if text.lstrip().startswith("{") and '"data"' in text.split("\n", 1)[0] + text[:2000]:
        kind, (step, rates, origin) = "prometheus", _prometheus(text, file)
    else:
        header = [cell.strip() for cell in next(csv.reader(text.splitlines()[:1]), [])]
        if {"start_s", "rate_qps"} <= set(header):
            kind, (step, rates) = "rates", _rates(text, file)
        elif "ContextTokens" in header or "Request tokens" in header or text.lstrip().startswith("{"):
            kind, requests = "requests", list(read_requests(text.splitlines(), file))
            times = np.sort(np.array([one[0] for one in requests]))
        elif len(header) == 6 and _is_number(header[0]) and _is_number(header[1]):
            kind, (step, rates) = "rates", _chunk(text, file)
        elif of_rates := next((name for name in header if name.lower() in _RATES), None):
            kind, (step, rates, origin) = "rates", _rates_at(text, (column, of_rates), file)
        else:
            kind, times = "arrivals", np.sort(_times(text, column, file))
    if kind in ("requests", "arrivals"):
        origin = float(times[0]) if len(times) and times[0] > 1e8 else None
        step = period_s or _step(times, file)
        rates = rates_of(times, step)
    if len(rates) < 2 or not float(rates.mean()) > 0:
        raise InputError.one(file=file, why="two steps of time or more, with demand in them",
                             remedy="Give a longer record, or a smaller --set period_s=...")  # fmt: skip
    said = {"file": Path(file).name, "kind": kind, "sha256": hashlib.sha256(data).hexdigest()}
    said |= _moments(origin, times, len(rates) * step)
    return _made(said, (app, task), (step, rates), (times, requests), file)


def _made(
    said: dict[str, Any], names: tuple[str, str], course: tuple[float, Floats], seen: tuple[Floats, Sequence[Request]],
    file: str,
) -> Converted:  # fmt: skip
    """The SLO with what was found, and the files beside it."""
    (step, rates), (times, requests) = course, seen
    app = names[0] or ("text" if requests else "app")
    task = names[1] or ("chat" if requests else app)
    arrivals = fitted(times) if len(times) > 2 else fitted_rates(rates, step)
    mean = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else float(rates.mean())
    demand: dict[str, Any] = {"rate_qps": float(f"{mean:.6g}"), "arrivals": arrivals}
    if requests:
        demand["mix"] = wish_of(requests, file=file)["apps"]["text"]["mix"]
        said["input_tokens"] = percentiles([one[1] for one in requests])
        said["output_tokens"] = percentiles([one[2] for one in requests])
    said["rate_qps"] = {"mean": demand["rate_qps"], "step_s": step, **percentiles(rates)}
    said["burstiness"] = {"peak_to_mean": float(f"{rates.max() / rates.mean():.4g}")}
    if len(times) > 2:
        said["burstiness"]["gaps"] = float(f"{gap_variation(times):.4g}")
        for window in (1.0, 10.0, 60.0):
            if (found := dispersion(times, window)) is not None:
                said["burstiness"][f"counts_{window:g}s"] = float(f"{found:.4g}")
    said["series"] = {"step_s": step, "rate_qps": [float(f"{rate:.6g}") for rate in _shortened(rates)]}
    said["series"]["step_s"] = step * math.ceil(len(rates) / MOST_STEPS)
    slo = {
        "format": "hetplan/slo/1.0",
        "apps": {app: {"task": task, **demand}},
        "extensions": {"trace": said},
    }
    files = {"rates.csv": _csv(("start_s", "rate_qps"), ((k * step, rate) for k, rate in enumerate(rates)))}
    if len(times) > 1:
        files["arrivals.csv"] = _csv(("arrival_s",), ((time - times[0],) for time in times))
    return None, slo, files


def words_of(slo: dict[str, Any]) -> Iterator[str]:
    """What was found, in lines for people; nothing of an SLO that comes from no trace."""
    said = slo.get("extensions", {}).get("trace")
    if said is None:
        return
    (app,) = slo["apps"].values()
    rate = said["rate_qps"]
    since = f" from {said['first']}" if said.get("first") else ""
    yield f"{said['kind']}: {said['seconds'] / 3600:.4g} h{since}, {rate['mean']:g} a second on average"
    yield f"rates in steps of {rate['step_s']:g} s: " + ", ".join(
        f"{k} {rate[k]:g}" for k in ("p50", "p95", "p99", "max")
    )
    for what in ("input_tokens", "output_tokens"):
        if what in said:
            yield f"{what}: " + ", ".join(f"{name} {value:g}" for name, value in said[what].items())
    names = {"peak_to_mean": "peak / mean", "gaps": "gaps (1 is Poisson)"}
    yield "burstiness: " + ", ".join(
        f"{names.get(k, k.replace('_', ' over '))} {v:g}" for k, v in said["burstiness"].items()
    )
    process = dict(app["arrivals"])
    rest = ", ".join(f"{name} {_short(value)}" for name, value in process.items() if name != "process")
    unsaid = "rates alone say nothing of gaps" if "requests" not in said and process["process"] == "poisson" else ""
    yield f"nearest process: {process['process']}" + (f" ({rest or unsaid})" if rest or unsaid else "")
    yield "limits on times are not in a trace: add latency to the application"


def _short(value: Any) -> str:
    return ", ".join(f"{one:.4g}" for one in value) if isinstance(value, list) else f"{value:.6g}"


def _moments(origin: float | None, times: Floats, seconds: float) -> dict[str, Any]:
    """When the record begins and how long it is; the date where the file says one."""
    length = float(times[-1] - times[0]) if len(times) > 1 else seconds
    found: dict[str, Any] = {"seconds": float(f"{length:.9g}")}
    if len(times):
        found["requests"] = len(times)
    if origin is not None:
        found["first"] = datetime.fromtimestamp(origin, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        found["last"] = datetime.fromtimestamp(origin + length, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return found


def _step(times: Floats, file: str) -> float:
    """A step with some 100 arrivals in it, of a length that people use."""
    if len(times) < 3 or times[-1] <= times[0]:
        raise InputError.one(file=file, value=f"{len(times)} requests", why="requests over some time",
                             remedy="Give a longer trace.")  # fmt: skip
    span = float(times[-1] - times[0])
    wanted = min(100.0 * span / len(times), span / 10)
    steps = (0.1, 1.0, 10.0, 60.0, 300.0, 600.0, 3600.0)
    return max((step for step in steps if step <= max(wanted, 0.1)), default=0.1)


def _shortened(rates: Floats) -> Floats:
    """At most `MOST_STEPS` of them, each the mean of several."""
    many = math.ceil(len(rates) / MOST_STEPS)
    whole = len(rates) // many * many
    return rates[:whole].reshape(-1, many).mean(axis=1) if many > 1 else rates


def _csv(columns: Sequence[str], rows: Iterator[tuple[float, ...]]) -> str:
    return "\n".join([",".join(columns), *(",".join(f"{value:.9g}" for value in row) for row in rows)]) + "\n"


def _prometheus(text: str, file: str) -> tuple[float, Floats, float]:
    """The step, the rates and the first moment of a range query's answer."""
    try:
        data = json.loads(text)["data"]
        series = data["result"]
        if data["resultType"] != "matrix" or not series:
            raise KeyError("matrix")
        sums: dict[float, float] = {}
        for one in series:
            for moment, value in one["values"]:
                if math.isfinite(rate := float(value)):
                    sums[float(moment)] = sums.get(float(moment), 0.0) + rate
    except (KeyError, TypeError, ValueError):
        why = "the answer to a range query: data.resultType matrix, and values of moments and rates"
        remedy = "Ask /api/v1/query_range, with a query such as sum(rate(requests_total[1m]))."
        raise InputError.one(file=file, why=why, remedy=remedy) from None
    moments = np.array(sorted(sums))
    if len(moments) < 2 or min(sums.values()) < 0:
        raise InputError.one(file=file, why="two steps or more, of rates of 0 or more",
                             remedy="Ask for a longer range, with rate(...) around a counter.")  # fmt: skip
    step = float(np.min(np.diff(moments)))
    places = np.round((moments - moments[0]) / step).astype(int)
    rates = np.zeros(int(places[-1]) + 1)  # a step that is missing saw no requests
    rates[places] = [sums[moment] for moment in moments.tolist()]
    return step, rates, float(moments[0])


def _rates(text: str, file: str) -> tuple[float, Floats]:
    """The step and the rates of a CSV of rates: read as `hetplan compare` reads it."""
    from hetplan.profiles.rates import read_rates

    del text
    found = read_rates(Path(file))
    return found.period_s, np.array(found.rates_qps)


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _chunk(text: str, file: str) -> tuple[float, Floats]:
    """The step and the rates of a client of ServeGen; where its law is empty nothing came."""
    rows = [row for row in csv.reader(text.splitlines()) if row]
    for number, row in enumerate(rows, start=1):
        if len(row) != 6 or not _is_number(row[0]) or not _is_number(row[1]) or float(row[1]) < 0:
            raise InputError.one(file=file, path=f"line {number}", value=",".join(row)[:80],
                                 why="start, rate, variation, law, two shapes",
                                 remedy="Mend or remove the line.")  # fmt: skip
    starts = np.array([float(row[0]) for row in rows])
    gaps = np.diff(starts)
    if len(starts) < 2 or not gaps.min() > 0 or float(np.ptp(gaps)) > _UNEVEN * float(gaps.mean()):
        raise InputError.one(file=file, why="two steps or more, equally long", remedy="Give the whole chunk.")
    return float(gaps.mean()), np.array([float(row[1]) for row in rows])


def _rates_at(text: str, columns: tuple[str, str], file: str) -> tuple[float, Floats, float | None]:
    """The step, the rates and the first moment (where it is a date) of a CSV file with a column of each."""
    times = _times(text, columns[0], file)
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    rates = [_rate(row[columns[1]], number, file) for number, row in enumerate(reader, start=2)]
    order = np.argsort(times, kind="stable")
    times, gaps = times[order], np.diff(times[order])
    if len(times) < 2 or not gaps.min() > 0 or float(np.ptp(gaps)) > _UNEVEN * float(gaps.mean()):
        raise InputError.one(file=file, path=columns[1], why="rates at two moments or more, equally far apart",
                             remedy="Resample it; or leave that column out where the times are arrivals.")  # fmt: skip
    return float(gaps.mean()), np.array(rates)[order], float(times[0]) if times[0] > 1e8 else None


def _rate(cell: str | None, number: int, file: str) -> float:
    try:
        value = float(cell or "")
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise InputError.one(file=file, path=f"line {number}", value=(cell or "")[:80], why="a rate of 0 or more",
                             remedy="Mend or remove the line.")  # fmt: skip
    return value


def _times(text: str, column: str, file: str) -> Floats:
    """The times of a CSV file with a header, in seconds, in the file's order."""
    reader = csv.DictReader(text.splitlines())
    names = [name.strip() for name in reader.fieldnames or ()]
    by_case = {name.lower(): name for name in names}
    chosen = column if column in names else next((by_case[one] for one in _TIMES if one in by_case), "")
    if not chosen or (column and column not in names):
        raise InputError.one(
            file=file, path="line 1", value=", ".join(names), why=f"a column {column or 'of times'}",
            remedy=f"Name one of {', '.join(_TIMES)}; or say which: --as trace --set column=NAME.",
        )  # fmt: skip
    reader.fieldnames = names
    found = [_moment(row[chosen], number, file) for number, row in enumerate(reader, start=2)]
    unit = _TIMES.get(chosen.lower(), 0.0) or (1e-3 if found and max(found) > _MILLISECONDS else 1.0)
    return np.array(found, dtype=np.float64) * unit


def _moment(cell: str | None, number: int, file: str) -> float:
    text = (cell or "").strip()
    try:
        value = float(text)
    except ValueError:
        try:
            # Seven digits of a second are one more than a datetime takes.
            moment = datetime.fromisoformat(text[:26] if "." in text else text)
            value = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            value = math.nan
    if not math.isfinite(value):
        raise InputError.one(file=file, path=f"line {number}", value=text[:80], why="a time: a number or a date",
                             remedy="Mend or remove the line.")  # fmt: skip
    return value
