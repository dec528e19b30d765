"""`kubectl`, run as a program with arguments: no shell, every call bounded in time, and what it says is reported."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from hetplan.executor.render.names import Json
from hetplan.executor.site import Site
from hetplan.executor.target import TargetFailed

__all__ = ["FIELD_MANAGER", "NAME", "Away", "Kubectl"]

NAME, FIELD_MANAGER = "kubernetes", "hetplan"
_GRACE_S, _OBJECT_S = 5.0, 0.1
_DEPENDENTS_FIRST = ("--ignore-not-found=true", "--cascade=foreground", "--wait=false")


class Away(TargetFailed):
    """The API server did not answer for as long as site.toml says to wait for it."""


class Kubectl:
    """One cluster and namespace. Each method is one call; `TargetFailed` carries what kubectl said."""

    def __init__(self, site: Site) -> None:
        self.site, self.call_s = site, site.cluster.call_s
        named = site.cluster.kubectl
        self.program = str(_file(site, named)) if "/" in named else named
        self._where = ["--namespace", site.namespace]
        if site.cluster.kubeconfig is not None:
            self._where += ["--kubeconfig", str(_file(site, site.cluster.kubeconfig))]
        if site.cluster.context is not None:
            self._where += ["--context", site.cluster.context]

    def check_program(self) -> None:
        """`TargetFailed` where kubectl cannot be run."""
        if shutil.which(self.program) is None:
            why = f"there is no program {self.program}; install kubectl, or set `kubectl` under [cluster] of site.toml"
            raise TargetFailed(NAME, "", why)

    def apply(self, objects: Sequence[Json], *, force: bool, only_look: bool = False) -> None:
        """Server-side apply of all of them in one call; or have the server look at them, and change nothing."""
        how = [*(["--dry-run=server"] if only_look else []), *(["--force-conflicts"] if force else [])]
        self._given(["apply", "--server-side", f"--field-manager={FIELD_MANAGER}", *how], objects)

    def diff(self, objects: Sequence[Json]) -> str:
        """What applying them would change, as kubectl shows it; "" for nothing."""
        # Looking refuses nothing: who owns a field is a matter of applying.
        words = ["diff", "--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}"]
        return self._given(words, objects, fine=(0, 1))

    def live(self, objects: Sequence[Json]) -> list[Json]:
        """Those of these objects that are there, as they are."""
        text = self._given(["get", "--ignore-not-found=true", "--output=json"], objects)
        found = self._read(text, about="objects") if text.strip() else {"items": []}
        items: list[Json] = found.get("items", [found])
        return items

    def get(self, kinds: Iterable[str], *, selector: str = "") -> list[Json]:
        """Objects of these kinds with these labels."""
        words = ["get", ",".join(kinds), *([f"--selector={selector}"] if selector else []), "--output=json"]
        items: list[Json] = self._read(self._run(words, about=words[1]), about=words[1]).get("items", [])
        return items

    def rollout(self, deployment: str, *, limit_s: float) -> None:
        """Wait until a Deployment is what it should be."""
        how = ["--watch=true", f"--timeout={max(1, round(limit_s))}s"]
        self._run(["rollout", "status", f"deployment/{deployment}", *how], about=deployment, limit_s=limit_s)

    def delete(self, objects: Iterable[tuple[str, str]]) -> None:
        """Have objects (kind, name) deleted, dependents first, without waiting; what is gone already is no fault."""
        named = [f"{kind}/{name}" for kind, name in objects]
        if named:
            self._run(["delete", *named, *_DEPENDENTS_FIRST], about=", ".join(named))

    def create(self, one: Json) -> Json | None:
        """Make an object; None where one of its name is there already."""
        return self._written("create", one, "AlreadyExists")

    def replace(self, one: Json) -> Json | None:
        """Put an object in the place of the one whose `resourceVersion` it carries; None where that has gone."""
        return self._written("replace", one, "Conflict|NotFound")

    def _written(self, verb: str, one: Json, refused: str) -> Json | None:
        about, given = one["metadata"]["name"], json.dumps(one, allow_nan=False)
        try:
            text = self._run([verb, "--filename=-", "--output=json"], about=about, given=given)
        except TargetFailed as error:
            if re.search(rf"\((?:{refused})\)|the object has been modified", error.cause):
                return None
            raise
        return self._read(text, about=about)

    def one(self, kind: str, name: str) -> Json | None:
        """One object by its name; None where there is none."""
        text = self._run(["get", kind, name, "--ignore-not-found=true", "--output=json"], about=name)
        return self._read(text, about=name) if text.strip() else None

    def delete_exactly(self, path: str, version: str, *, about: str) -> None:
        """Delete the object at this path of the API server if it still has this `resourceVersion`."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": version}}
        self._run(["delete", f"--raw={path}", "--filename=-"], about=about, given=json.dumps(body))

    def _given(self, words: Sequence[str], objects: Sequence[Json], *, fine: tuple[int, ...] = (0,)) -> str:
        given = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, allow_nan=False)
        limit_s = self.call_s + _OBJECT_S * len(objects)
        return self._run([*words, "--filename=-"], about="", limit_s=limit_s, given=given, fine=fine)

    def _read(self, text: str, *, about: str) -> Json:
        try:
            found: Json = json.loads(text)
        except ValueError:
            raise TargetFailed(NAME, about, f"kubectl did not answer in JSON: {text[:120]!r}") from None
        return found

    def _run(
        self, words: Sequence[str], *, about: str, limit_s: float | None = None, given: str | None = None,
        fine: tuple[int, ...] = (0,),
    ) -> str:  # fmt: skip
        most_s = (limit_s or self.call_s) + _GRACE_S
        command = [self.program, *words, *self._where, f"--request-timeout={max(1, round(most_s))}s"]
        doing = " ".join(words[:2]) if words[0] == "rollout" else words[0]
        away_since: float | None = None
        while True:
            try:
                ran = subprocess.run(
                    command, input=given, capture_output=True, text=True, timeout=most_s + _GRACE_S, check=False,
                    env={key: said for key, said in os.environ.items() if key != _OWN_DIFF},
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                why = f"kubectl {doing} did not end within {most_s + _GRACE_S:g} s"
                raise TargetFailed(NAME, about, why) from None
            except OSError as error:
                raise TargetFailed(NAME, about, f"{self.program} cannot be run: {error.strerror}") from None
            said = _once(ran.stderr.strip() or ran.stdout.strip())
            # Where 1 is fine and nothing is said, it has failed all the same.
            failed = ran.returncode not in fine or (ran.returncode != 0 and not ran.stdout.strip())
            # Every call may be made twice: an API server that is away for a moment is asked again.
            if not failed or not _AWAY.search(said):
                break
            away_since, away_s = away_since or time.monotonic(), self.site.cluster.away_s
            if time.monotonic() - away_since >= away_s:
                why = f"the API server did not answer for {away_s:g} s; kubectl {doing} says: {said[:200]}"
                raise Away(NAME, about, why)
            time.sleep(_AGAIN_S)
        if failed:
            why = _conflicts(said) or f"kubectl {doing} failed: {said[:600] or f'exit {ran.returncode}'}"
            raise TargetFailed(NAME, about, why)
        return ran.stdout


_AGAIN_S = 0.5
_OWN_DIFF = "KUBECTL_EXTERNAL_DIFF"
"""Another program's account of differences would not be understood."""
_AWAY = re.compile(
    "connection refused|was refused - did you specify|unable to connect to the server|connection reset by peer|"
    "TLS handshake timeout|unexpected EOF|etcdserver: |the server is currently unable|ServiceUnavailable|"
    "http2: client connection lost|watch closed before",
    re.IGNORECASE,
)


def _once(text: str) -> str:
    """What kubectl said, on one line, each sentence once: it repeats itself for each kind that it was asked for.

    >>> _once("error: the server is away\\nerror: the server is away\\n")
    'error: the server is away'
    """
    # Its own log lines have a time, and say what the last line says again.
    lines = [line.strip() for line in text.splitlines() if not re.match(r"[EWI]\d{4} \d\d:", line)]
    return " ".join(" ".join(dict.fromkeys(lines)).split()) or " ".join(text.split())


_CONFLICT = re.compile(
    r'conflicts? with "([^"]+)"(?: using [^:\s]+| with subresource "[^"]+")*:?\s*((?:\.\S+|- \S+)(?:\s+- \S+)*)'
)


def _conflicts(said: str) -> str:
    """Which fields somebody else owns, and what can be done; "" where the failure is another.

    >>> print(_conflicts('Apply failed with 1 conflict: conflict with "kubectl-set" using apps/v1: .spec.replicas'))
    kubectl-set owns .spec.replicas. Leave it to kubectl-set, or take it: hetplan apply --take-over
    """
    found = [(owner, " ".join(fields.replace("- ", "").split())) for owner, fields in _CONFLICT.findall(said)]
    if "conflict" not in said or not found:
        return ""
    owned = "; ".join(f"{owner} owns {fields}" for owner, fields in found)
    owners = " and ".join(dict.fromkeys(owner for owner, _ in found))
    return f"{owned}. Leave it to {owners}, or take it: hetplan apply --take-over"


def _file(site: Site, written: str) -> Path:
    return (site.folder / Path(written).expanduser()).resolve()
