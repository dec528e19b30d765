"""Names and labels that Kubernetes takes: DNS labels that start with a letter, different where the ids differ."""

from __future__ import annotations

import re
from hashlib import sha256

__all__ = ["LABEL_GROUP", "LABEL_INSTANCE", "LABEL_PART", "dns_name", "label_value", "labels", "selector"]

_MOST = 52
"""A label may have 63 letters; a pod's name adds up to 11 to its Deployment's."""

LABEL_INSTANCE = "app.kubernetes.io/instance"
LABEL_PART = "app.kubernetes.io/component"
LABEL_GROUP = "hetplan/group"


def dns_name(*ids: str, told_apart_by: str = "") -> str:
    """The ids joined by "-" as a DNS label, and a digest that keeps apart what would come out the same.

    >>> dns_name("prod", "w1"), dns_name("prod", "w_1.a")
    ('prod-w1-caa31d', 'prod-w-1-a-69fbdf')
    >>> dns_name("1", "w" * 63)[:8], len(dns_name("1", "w" * 63))
    ('x1-wwwww', 52)
    """
    plain = re.sub(r"[^a-z0-9-]+", "-", "-".join(ids).lower()).strip("-")
    if not plain[:1].isalpha():
        plain = f"x{plain}"
    # A separator that no id can hold: ("a-b", "c") is not ("a", "b-c").
    mark = sha256("\0".join((*ids, told_apart_by)).encode()).hexdigest()[:6]
    return f"{plain[: _MOST - 7].rstrip('-')}-{mark}"


def label_value(name: str) -> str:
    """An id as the value of a label, which ends with a letter or a digit.

    >>> label_value("prod.eu_1"), label_value("prod-")
    ('prod.eu_1', 'prod-54ccca')
    """
    return name if name[-1:].isalnum() else dns_name(name)


def labels(instance: str, part: str, group: str | None = None) -> dict[str, str]:
    """The labels of an object: whose it is (also what pruning goes by), which part, which group."""
    marks = {
        "app.kubernetes.io/name": "hetplan",
        "app.kubernetes.io/managed-by": "hetplan",
        LABEL_INSTANCE: instance,
        LABEL_PART: part,
    }
    return marks if group is None else {**marks, LABEL_GROUP: group}


def selector(instance: str, part: str | None = None, group: str | None = None) -> str:
    """The label selector that finds what `labels` marked.

    >>> selector("prod", "worker")
    'app.kubernetes.io/managed-by=hetplan,app.kubernetes.io/instance=prod,app.kubernetes.io/component=worker'
    """
    marks = {"app.kubernetes.io/managed-by": "hetplan", LABEL_INSTANCE: instance}
    marks |= {LABEL_PART: part} if part is not None else {}
    marks |= {LABEL_GROUP: group} if group is not None else {}
    return ",".join(f"{name}={value}" for name, value in marks.items())
