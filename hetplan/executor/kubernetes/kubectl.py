"""`kubectl`, run as a program with arguments: no shell, every call bounded in time, and what it says is reported."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from hetplan.executor.kubernetes.settings import KubernetesSettings
from hetplan.executor.target import TargetFailed

__all__ = ["FIELD_MANAGER", "Away", "Kubectl", "Modified"]

Json = dict[str, Any]

FIELD_MANAGER = "hetplan"
_GRACE_S = 5.0
_DEPENDENTS_FIRST = ("--ignore-not-found=true", "--cascade=foreground", "--wait=false")
_FEW, _SIDE_BY_SIDE, _PROXY_LOOK_S = 8, 16, 0.02


class Away(TargetFailed):
    """The API server did not answer for as long as the settings wait for it."""


class Modified(TargetFailed):
    """An object is no longer as it was when it was read."""


class Kubectl:
    """One cluster and namespace. Each method is one call; `TargetFailed` carries what kubectl said."""

    def __init__(self, target: str, settings: KubernetesSettings, *, files: Path, call_s: float) -> None:
        self.target, self.settings, self.call_s = target, settings, call_s
        named = settings.kubectl
        self.program = str(_file(files, named)) if "/" in named else named
        self._where = ["--namespace", settings.namespace]
        if settings.kubeconfig is not None:
            self._where += ["--kubeconfig", str(_file(files, settings.kubeconfig))]
        if settings.context is not None:
            self._where += ["--context", settings.context]

    def missing(self) -> str:
        """Why kubectl cannot be run; "" where it can."""
        if shutil.which(self.program) is None:
            return f"there is no program {self.program}; install kubectl, or set `kubectl` in the target's settings"
        return ""

    def apply(self, manifests: Sequence[Json], *, about: str) -> None:
        """Server-side apply of all of them in one call."""
        self._apply(manifests, about=about, how=["--force-conflicts"] if self.settings.take_over else [])

    def look_at(self, manifests: Sequence[Json], *, about: str, owners: bool) -> None:
        """Have the server check them and change nothing. With `owners` a field that somebody else owns is a failure,
        and so is an object whose `resourceVersion` is no longer the one that its manifest carries (`Modified`).
        """
        force = [] if owners and not self.settings.take_over else ["--force-conflicts"]
        self._apply(manifests, about=about, how=["--dry-run=server", *force])

    def _apply(self, manifests: Sequence[Json], *, about: str, how: Sequence[str]) -> None:
        words = ["apply", "--server-side", f"--field-manager={FIELD_MANAGER}", "--filename=-", *how]
        self._run(words, about=about, limit_s=self.call_s + 0.1 * len(manifests), given=_list(manifests))

    def create(self, manifest: Json, *, about: str) -> Json | None:
        """Make an object; None where one of its name is there already."""
        return self._written("create", manifest, "AlreadyExists", about=about)

    def replace(self, manifest: Json, *, about: str) -> Json | None:
        """Put an object in the place of the one whose `resourceVersion` it carries; None where that has gone."""
        return self._written("replace", manifest, "Conflict|NotFound", about=about)

    def _written(self, verb: str, manifest: Json, refused: str, *, about: str) -> Json | None:
        words = [verb, "--filename=-", "--output=json"]
        try:
            text = self._run(words, about=about, limit_s=self.call_s, given=json.dumps(manifest, allow_nan=False))
        except Modified:
            return None
        except TargetFailed as error:
            if re.search(rf"\((?:{refused})\)", error.cause):
                return None
            raise
        return self._read(text, about=about)

    def one(self, kind: str, name: str) -> Json | None:
        """One object by its name; None where there is none."""
        words = ["get", kind, name, "--ignore-not-found=true", "--output=json"]
        text = self._run(words, about=name, limit_s=self.call_s)
        return self._read(text, about=name) if text.strip() else None

    def delete_exactly(self, path: str, version: str, *, about: str) -> None:
        """Delete the object at this path of the API server if it still has this `resourceVersion`."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": version}}
        self._run(["delete", f"--raw={path}", "--filename=-"], about=about, limit_s=self.call_s, given=json.dumps(body))

    def diff(self, manifests: Sequence[Json], *, about: str) -> str:
        """What applying them would change, as kubectl shows it; "" for nothing."""
        # Looking refuses nothing: who owns a field is a matter of applying.
        words = ["diff", "--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}", "--filename=-"]
        limit_s = self.call_s + 0.1 * len(manifests)
        return self._run(words, about=about, limit_s=limit_s, given=_list(manifests), fine=(0, 1))

    def get(self, kinds: Sequence[str], *, selector: str = "") -> list[Json]:
        """Objects of these kinds with these labels."""
        words = ["get", ",".join(kinds), *([f"--selector={selector}"] if selector else []), "--output=json"]
        items: list[Json] = self._json(words, about=", ".join(kinds)).get("items", [])
        return items

    def raw(self, path: str, *, about: str) -> Any:
        """A path of the API server, as JSON."""
        return self._json(["get", f"--raw={path}"], about=about)

    def raws(self, paths: Sequence[str]) -> list[Any]:
        """Paths of the API server, as JSON; None for each that does not answer. Many go through one `kubectl proxy`:
        a process each costs more than the answer. Its socket lies in a folder that nobody else can enter.
        """
        with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
            if len(paths) <= _FEW:
                return list(pool.map(self._raw_or_none, paths))
            with tempfile.TemporaryDirectory(prefix="hetplan-") as folder:
                at = Path(folder) / "api"
                words = [self.program, "proxy", f"--unix-socket={at}", *self._where]
                try:
                    proxy = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                except OSError:
                    return [None] * len(paths)
                try:
                    until = time.monotonic() + self.call_s
                    while not at.exists() and proxy.poll() is None and time.monotonic() < until:
                        time.sleep(_PROXY_LOOK_S)
                    return list(pool.map(lambda path: _through(at, path, self.call_s), paths))
                finally:
                    proxy.kill()
                    proxy.wait()

    def _raw_or_none(self, path: str) -> Any:
        with suppress(TargetFailed):
            return self.raw(path, about=path)
        return None

    def annotate_pods(self, selector: str, name: str, value: str) -> None:
        """Mark the pods with these labels; one that ends meanwhile needs no mark."""
        words = ["annotate", "pods", f"--selector={selector}", "--overwrite", f"{name}={value}"]
        try:
            self._run(words, about="pods", limit_s=self.call_s)
        except TargetFailed as error:
            if "(NotFound)" not in error.cause:
                raise

    def rollout(self, deployment: str, *, limit_s: float) -> None:
        """Wait until a Deployment is what it should be."""
        words = [
            "rollout",
            "status",
            f"deployment/{deployment}",
            "--watch=true",
            f"--timeout={max(1, round(limit_s))}s",
        ]
        self._run(words, about=deployment, limit_s=limit_s)

    def delete(self, objects: Iterable[tuple[str, str]], *, about: str) -> None:
        """Have objects (kind, name) deleted, dependents first, without waiting; what is gone already is no fault."""
        named = [f"{kind}/{name}" for kind, name in objects]
        if named:
            self._run(["delete", *named, *_DEPENDENTS_FIRST], about=about, limit_s=self.call_s)

    def delete_all(self, kinds: Sequence[str], *, selector: str) -> None:
        """Have everything of these kinds with these labels deleted, dependents first, without waiting."""
        words = ["delete", ",".join(kinds), f"--selector={selector}", *_DEPENDENTS_FIRST]
        self._run(words, about="everything", limit_s=self.call_s)

    def _json(self, words: Sequence[str], *, about: str) -> Json:
        return self._read(self._run(words, about=about, limit_s=self.call_s), about=about)

    def _read(self, text: str, *, about: str) -> Json:
        try:
            found: Json = json.loads(text)
        except ValueError:
            raise TargetFailed(self.target, about, f"kubectl did not answer in JSON: {text[:120]!r}") from None
        return found

    def _run(
        self,
        words: Sequence[str],
        *,
        about: str,
        limit_s: float,
        given: str | None = None,
        fine: tuple[int, ...] = (0,),
    ) -> str:
        command = [self.program, *words, *self._where, f"--request-timeout={max(1, round(limit_s + _GRACE_S))}s"]
        doing = " ".join(words[:2]) if words[0] == "rollout" else words[0]
        away_since: float | None = None
        while True:
            try:
                ran = subprocess.run(
                    command, input=given, capture_output=True, text=True, timeout=limit_s + 2 * _GRACE_S, check=False
                )
            except subprocess.TimeoutExpired:
                why = f"kubectl {doing} did not end within {limit_s + 2 * _GRACE_S:g} s"
                raise TargetFailed(self.target, about, why) from None
            except OSError as error:
                raise TargetFailed(self.target, about, f"{self.program} cannot be run: {error.strerror}") from None
            said = _once(ran.stderr.strip() or ran.stdout.strip())
            # Every call may be made twice: an API server that is away for a moment is asked again.
            if ran.returncode in fine or not _AWAY.search(said):
                break
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since >= self.settings.away_s:
                why = (
                    f"the API server did not answer for {self.settings.away_s:g} s; kubectl {doing} says: {said[:200]}"
                )
                raise Away(self.target, about, why)
            time.sleep(_AGAIN_S)
        if ran.returncode not in fine:
            if "the object has been modified" in said:
                raise Modified(self.target, about, said[:600])
            why = _conflicts(said) or f"kubectl {doing} failed: {said[:600] or f'exit {ran.returncode}'}"
            raise TargetFailed(self.target, about, why)
        return ran.stdout


_AGAIN_S = 0.5
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


class _Local(http.client.HTTPConnection):
    """HTTP over a socket of this machine."""

    def __init__(self, at: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._at = at

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._at))


def _through(at: Path, path: str, timeout_s: float) -> Any:
    """What the API server answers through a proxy; None where it does not."""
    with closing(_Local(at, timeout_s)) as connection, suppress(OSError, http.client.HTTPException, ValueError):
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read()
        return json.loads(text) if answer.status == 200 else None
    return None


def _list(manifests: Sequence[Json]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, allow_nan=False)


def _file(files: Path, written: str) -> Path:
    return (files / Path(written).expanduser()).resolve()
