"""What can go wrong while a plan is applied; the command line ends with 7 for each of them."""

from __future__ import annotations

from hetplan.errors import HetplanError

__all__ = ["ApplyFailed", "DeploymentLocked", "TargetFailed"]


class ApplyFailed(HetplanError):
    """The wanted state could not be reached; `undone` says whether what ran before runs again."""

    exit_code = 7

    def __init__(self, why: str, *, undone: bool = False) -> None:
        self.why, self.undone = why, undone
        super().__init__(why)


class TargetFailed(ApplyFailed):
    """One target could not do one thing: which target, what it was about (a unit, the router), and why.

    >>> str(TargetFailed("local", "w1-0-5f3a", "port 9000 is taken"))
    'target local, w1-0-5f3a: port 9000 is taken'
    """

    def __init__(self, target: str, about: str, why: str) -> None:
        self.target, self.about, self.cause = target, about, why
        super().__init__(": ".join((", ".join(part for part in (f"target {target}", about) if part), why)))


class DeploymentLocked(ApplyFailed):
    """Another apply holds the deployment; `holder` says which."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(f"another command holds this deployment: {holder}. Wait for it with --wait SECONDS.")
