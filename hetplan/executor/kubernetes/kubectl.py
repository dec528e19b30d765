"""The cluster: `[targets.NAME.settings]` of hosts.toml, and `kubectl` run as a program with arguments.

No shell; every call is bounded in time, and what kubectl says is reported.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from hetplan.executor.target import TargetFailed
from hetplan.profiles.fields import Id, Model, Named, NonNegative, Positive, PositiveCount

__all__ = ["FIELD_MANAGER", "Kubectl", "KubernetesSettings", "WorkerPod"]

Json = dict[str, Any]

FIELD_MANAGER = "hetplan"
_GRACE_S = 5.0


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

    def apply(self, manifests: Sequence[Json], *, about: str, dry_run: bool = False) -> None:
        """Server-side apply of all of them in one call; with `dry_run` the server checks them and changes nothing."""
        words = ["apply", "--server-side", f"--field-manager={FIELD_MANAGER}", "--filename=-"]
        words += ["--dry-run=server"] if dry_run else []
        words += ["--force-conflicts"] if self.settings.take_over else []
        self._run(words, about=about, limit_s=self.call_s + 0.1 * len(manifests), given=_list(manifests))

    def diff(self, manifests: Sequence[Json], *, about: str) -> str:
        """What applying them would change, as kubectl shows it; "" for nothing."""
        # Looking refuses nothing: who owns a field is a matter of applying.
        words = ["diff", "--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}", "--filename=-"]
        limit_s = self.call_s + 0.1 * len(manifests)
        return self._run(words, about=about, limit_s=limit_s, given=_list(manifests), fine=(0, 1))

    def get(self, kinds: Sequence[str], *, selector: str) -> list[Json]:
        """Objects of these kinds with these labels."""
        words = ["get", ",".join(kinds), f"--selector={selector}", "--output=json"]
        items: list[Json] = self._json(words, about=", ".join(kinds)).get("items", [])
        return items

    def raw(self, path: str, *, about: str) -> Any:
        """A path of the API server, as JSON."""
        return self._json(["get", f"--raw={path}"], about=about)

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

    def delete(self, objects: Iterable[tuple[str, str]], *, limit_s: float, about: str) -> None:
        """Delete objects (kind, name), dependents first; what is gone already is no fault."""
        named = [f"{kind}/{name}" for kind, name in objects]
        if named:
            words = ["delete", *named, "--ignore-not-found=true", "--cascade=foreground", "--wait=true"]
            self._run([*words, f"--timeout={max(1, round(limit_s))}s"], about=about, limit_s=limit_s)

    def delete_all(self, kinds: Sequence[str], *, selector: str, limit_s: float) -> None:
        """Delete everything of these kinds with these labels."""
        words = ["delete", ",".join(kinds), f"--selector={selector}", "--cascade=foreground", "--wait=true"]
        words += ["--ignore-not-found=true", f"--timeout={max(1, round(limit_s))}s"]
        self._run(words, about="everything", limit_s=limit_s)

    def _json(self, words: Sequence[str], *, about: str) -> Any:
        text = self._run(words, about=about, limit_s=self.call_s)
        try:
            return json.loads(text)
        except ValueError:
            raise TargetFailed(self.target, about, f"kubectl did not answer in JSON: {text[:120]!r}") from None

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
        until = time.monotonic() + min(limit_s, self.call_s, _AWAY_S)
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
            said = " ".join((ran.stderr.strip() or ran.stdout.strip()).split())
            # Every call may be made twice: an API server that is away for a moment is asked again.
            if ran.returncode in fine or not _AWAY.search(said) or time.monotonic() >= until:
                break
            time.sleep(_AGAIN_S)
        if ran.returncode not in fine:
            why = _conflicts(said) or f"kubectl {doing} failed: {said[:600] or f'exit {ran.returncode}'}"
            raise TargetFailed(self.target, about, why)
        return ran.stdout


_AGAIN_S, _AWAY_S = 0.5, 10.0
_AWAY = re.compile(
    "connection refused|was refused - did you specify|unable to connect to the server|connection reset by peer|"
    "TLS handshake timeout|unexpected EOF|etcdserver: leader changed|the server is currently unable",
    re.IGNORECASE,
)
_CONFLICT = re.compile(
    r'conflicts? with "([^"]+)"(?: using [^:\s]+| with subresource "[^"]+")*:?\s*((?:\.\S+|- \S+)(?:\s+- \S+)*)'
)


def _conflicts(said: str) -> str:
    """Which fields somebody else owns, and what can be done; "" where the failure is another.

    >>> _conflicts('Apply failed with 1 conflict: conflict with "kubectl-set" using apps/v1: .spec.replicas')
    "kubectl-set owns .spec.replicas. Leave it to kubectl-set, or set take_over = true in the target's settings"
    """
    found = [(owner, " ".join(fields.replace("- ", "").split())) for owner, fields in _CONFLICT.findall(said)]
    if "conflict" not in said or not found:
        return ""
    owned = "; ".join(f"{owner} owns {fields}" for owner, fields in found)
    owners = " and ".join(dict.fromkeys(owner for owner, _ in found))
    return f"{owned}. Leave it to {owners}, or set take_over = true in the target's settings"


def _list(manifests: Sequence[Json]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)}, allow_nan=False)


def _file(files: Path, written: str) -> Path:
    return (files / Path(written).expanduser()).resolve()


Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Word = Annotated[str, StringConstraints(min_length=1)]


class WorkerPod(Model):
    """What a worker of one hardware gets; what is left out here holds as for all."""

    image: Word | None = None
    node_selector: dict[str, str] = Field(default_factory=dict, description="beside the labels of the host")
    tolerations: tuple[dict[str, Any], ...] = ()
    cpu_cores: Positive | None = Field(default=None, description="requested where the plan names no share of cores")
    mem_gib: Positive | None = None
    gpu: NonNegative = Field(default=0.0, description="GPUs of a worker whose loads name no share")


class KubernetesSettings(Model):
    """The cluster, reached by `kubectl`; commands and images are named here, never in a plan."""

    kubectl: Word = Field(default="kubectl", description="the program: a name, or a path relative to hosts.toml")
    kubeconfig: str | None = Field(default=None, description="relative to hosts.toml; by default kubectl's own choice")
    context: Word | None = None
    namespace: Namespace = "default"
    image: Word = Field(description="an image with hetplan installed")
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: tuple[Namespace, ...] = ()
    worker_command: tuple[Word, ...] = ("python", "-m", "hetplan.executor.kubernetes.pod", "worker")
    router_command: tuple[Word, ...] = ("python", "-m", "hetplan.executor.kubernetes.pod", "router")
    port: int = Field(default=8080, ge=1024, le=65535, description="where workers and router listen in their pods")
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    service_account: Namespace | None = None
    hardware: Named[WorkerPod] = Field(default_factory=dict)
    gpu_resource: Word = "nvidia.com/gpu"
    gpu_slices: PositiveCount = Field(
        default=1, description="units of gpu_resource per GPU, where the device plugin shares GPUs out"
    )
    router_pod: WorkerPod | None = Field(default=None, description="cpu_cores and mem_gib of the router")
    take_over: bool = Field(default=False, description="fields that somebody else owns are taken from them")
    surge: bool = Field(default=True, description="changed workers start before old ones stop; false needs no room")
    run_as_user: PositiveCount | None = None
    environment: dict[str, str] = Field(default_factory=dict)

    def pod(self, hardware: Id) -> WorkerPod:
        """What workers of this hardware get."""
        return self.hardware.get(hardware, WorkerPod())
