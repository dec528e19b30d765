"""Which fields of an SLO each question keeps, and which it refuses by name: one declaration, read by all.

Every field of an SLO has one of these marks for each question (`mark_of`):

=========  ==========================================================================================================
mark       meaning
=========  ==========================================================================================================
kept       the plan, what it promises or what it warns of depends on it, with the options as they are by default
played     no plan depends on it, with any options; `simulate`, `apply` or `verify` do
part       of a fleet: as the question of the application has it
holds      holds for every plan of this question, whatever the file says
refused    stated, it is an error that names it (`refuse`)
\\-         about the file itself, or the user's own
=========  ==========================================================================================================

What a question refuses is declared beside its reader (`REFUSED` of its `request.py`), which enforces it; what is only
played, or holds, here. The table of `docs/reference/marks.md` is made by `table`, and a test sets field by field: a new
field of the format needs a word on what each question does with it. No solve imports this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from hetplan.problems.compound import request as compound
from hetplan.problems.fleet import request as fleet
from hetplan.problems.llm import request as llm
from hetplan.problems.pipeline import request as pipeline
from hetplan.problems.policy import request as policy
from hetplan.problems.pool import request as pool
from hetplan.problems.variants import request as variants
from hetplan.profiles.fields import Later
from hetplan.profiles.slo import ANSWERERS, App, Rates, Slo

__all__ = ["QUESTIONS", "Mark", "fields_of", "fields_of_slo", "in_markdown", "mark_of", "table"]

Mark = Literal["kept", "played", "part", "holds", "refused", "-"]

_RECORDED = tuple(f"apps.*.rate_qps.trace.{one}" for one in ("file", "sha256", "scale", "compress"))
_NOT_OF_TEXT = (
    "limits.changes", "limits.only_listed", "limits.provides", "limits.survive.machines", "limits.survive.zones",
    "horizon.periods", "apps.*.candidates", "apps.*.device", "apps.*.late", "apps.*.quality.max",
    "apps.*.rate_qps.history", "apps.*.rate_qps.series", "apps.*.streams", *_RECORDED,
)  # fmt: skip
"""What keeps files from asking for a fleet that makes text (`llm.applicability`)."""
_OF_A_RATE = ("low", "high", "mean")
"""What says one rate or a range, as a number does."""
_REFUSED: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "pool": pool.REFUSED,
    "pipeline": pipeline.REFUSED,
    "variants": variants.REFUSED,
    "policy": policy.REFUSED,
    "compound": compound.REFUSED,
    "llm": {**llm.REFUSED, **dict.fromkeys(_NOT_OF_TEXT, ("", ""))},
    "fleet": fleet.REFUSED,
}
QUESTIONS = tuple(_REFUSED)
ALL = " ".join(QUESTIONS)

_PLAYED = {
    "change.offline_below": ALL.removesuffix(" fleet"),
    "apps.*.lifetime_s": "compound",
}
_OWN = (
    "latency.p*_ms", "latency.ttft_p*_ms", "latency.tpot_p*_ms", "quality.min", "quality.max", "attainment",
    "late", "dispatch", "network_ms_per_hop", "network_ms_once", "arrivals", "mix",
)  # fmt: skip
_PART = ("change.offline_below", "robust.law", *(f"apps.*.{one}" for one in _OWN))
"""What a fleet leaves to the questions of its applications."""
_HOLDS = {
    "limits.only_listed": "policy",
    "robust.law": "pool pipeline variants policy compound",  # they have no laws of engines
}  # fmt: skip
_ASIDE = {"format": ALL, "requires": ALL, "extensions": ALL}


def fields_of_slo() -> tuple[str, ...]:
    """Every field, "*" for ids, places in lists and percentiles.

    >>> fields_of_slo()[:4]
    ('format', 'requires', 'objective', 'limits.cost_per_hour')
    """
    return tuple(fields_of(Slo))


WHOLE = ("apps.*.device", "apps.*.arrivals", "apps.*.mix", "apps.*.candidates",
         "limits.spot", "limits.on_demand", "limits.reserved", "limits.offers", "objective",
         "workers.*.loads.*.share")  # fmt: skip
"""Sections that are kept, or not, as a whole."""


def fields_of(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every field of a model, those of its sections in their place."""
    for name, field in model.model_fields.items():
        if model is App and name in ANSWERERS[1:]:
            continue  # one of them says what answers: they have one row, `model`
        at = f"{before}{field.alias or name}"
        section, star = _section(field.annotation)
        if name == "latency" and get_origin(field.annotation) is dict:
            yield from (f"{at}.{of}p*_ms" for of in ("", "ttft_", "tpot_"))
        elif name == "rate_qps" and model is App:
            yield at
            yield from (one for one in fields_of(Rates, f"{at}.") if one.removeprefix(f"{at}.") not in _OF_A_RATE)
        elif section is None or at in WHOLE:
            yield at
        else:
            yield from fields_of(section, f"{at}.*." if star else f"{at}.")


def _section(kind: Any) -> tuple[type[BaseModel] | None, bool]:
    """The section that a field holds, and whether it holds several."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind, False
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        later = next((one for one in inside[1:] if isinstance(one, Later)), None)
        return _section(inside[0] if later is None else later.model)
    if origin in (Union, UnionType):
        found = [_section(one) for one in inside]
        models = [one for one in found if one[0] is not None]
        return models[0] if len(models) == 1 and len(inside) == 2 and type(None) in inside else (None, False)
    if origin in (dict, tuple):
        section, _ = _section(inside[1] if origin is dict else inside[0])
        return section, True
    return None, False


def mark_of(question: str, field: str) -> Mark:
    """What a question does with a field of an SLO.

    >>> mark_of("pool", "limits.changes"), mark_of("variants", "limits.changes")
    ('refused', 'kept')
    """
    if field in _REFUSED[question]:
        return "refused"
    marks: tuple[tuple[Mark, Mapping[str, str]], ...] = (
        ("played", _PLAYED), ("part", dict.fromkeys(_PART, "fleet")), ("holds", _HOLDS), ("-", _ASIDE)
    )  # fmt: skip
    for mark, names in marks:
        if question in names.get(field, "").split():
            return mark
    return "kept"


def table() -> str:
    """What each question does with each field of an SLO, as a table in Markdown."""
    return in_markdown(fields_of_slo(), mark_of)


def in_markdown(fields: Iterable[str], mark: Callable[[str, str], str]) -> str:
    """A row per field, a column per question."""
    rows = [f"| field | {' | '.join(QUESTIONS)} |", f"|---|{'---|' * len(QUESTIONS)}"]
    for field in fields:
        marks = [mark(question, field) for question in QUESTIONS]
        rows.append(f"| `{field}` | {' | '.join(f'**{m}**' if m == 'refused' else m for m in marks)} |")
    return "\n".join(rows)
