"""What a plan says of itself before anything of machines: features, validity, attachments, who may have policies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hetplan.profiles.plan import Plan
from hetplan.profiles.plan_file import FEATURES, OUTCOMES
from hetplan.verifier.report import Violation

__all__ = ["check_header"]

_HASH_NAME = re.compile(r"(sha256:)?[0-9a-f]{64}\Z")
_SECTION = re.compile(r"(policies|tables)\.[a-z0-9][a-z0-9._-]{0,62}\Z")


def _requires(plan: Plan) -> Iterator[Violation]:
    """A reader must be told of every rule that it needs to know, and of no feature that nobody knows."""
    used: set[str] = {dispatch.rule for dispatch in plan.dispatch.values()}
    loads = [load for worker in plan.workers for load in worker.loads]
    if any(load.outcomes for load in loads) or any(one.after for routes in plan.routing.values() for one in routes):
        used.add(OUTCOMES)
    for rule in sorted(used - set(plan.requires)):
        yield Violation("requires", "requires", f"the plan uses {rule} and does not say that it must be known")
    for feature in sorted(set(plan.requires) - FEATURES):
        yield Violation("requires", "requires", f"nobody knows the feature {feature}")


def _valid(plan: Plan) -> Iterator[Violation]:
    for app, (least, most) in plan.valid.rate_qps.items():
        if most is not None and least > most:
            yield Violation("valid", f"valid.rate_qps.{app}", f"holds from {least:g} up to {most:g}, which is nowhere")
    if plan.valid.offers is not None:
        # No rule says yet what such a hash would be taken of.
        yield Violation("valid", "valid.offers", f"{plan.valid.offers} is a hash of nothing that is known")


def _attachments(plan: Plan) -> Iterator[Violation]:
    for name, section in plan.attachments.items():
        if not _HASH_NAME.match(name):
            yield Violation("attachment", "attachments", f"{name!r} is no name by SHA-256")
        if not _SECTION.match(section):
            yield Violation("attachment", "attachments", f"{section!r} is neither a policy nor a table of the plan")


def check_header(plan: Plan) -> list[Violation]:
    """Everything that can be told of these without the inputs."""
    found = [*_requires(plan), *_valid(plan), *_attachments(plan)]
    if plan.question != "policy":
        text = f"a policy in a plan of question {plan.question}, which nobody would check"
        found += [Violation("policies", f"policies.{app}", text) for app in plan.policies]
    return found
