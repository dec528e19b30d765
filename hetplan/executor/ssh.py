"""The `ssh` target: a local target on another machine, spoken to over one ssh connection.

Each call is made again once when the connection breaks: every call of a target may be repeated, and what the far end
had begun it finishes without us. A machine that cannot be reached is named, with what it was asked and why it failed;
what runs there goes on running, and the next apply goes on from what it finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from hetplan.executor.failures import TargetFailed
from hetplan.executor.ssh_files import FilePlaces
from hetplan.executor.ssh_line import LineLost, SshLine, SshSettings
from hetplan.executor.ssh_wire import endpoints_from, healths_from, own_version, seen_from
from hetplan.executor.target import Setting, UnitHealth
from hetplan.executor.units import Endpoint, Seen, Unit
from hetplan.profiles.validate import validate

__all__ = ["SshTarget"]

_GRACE_S = 5.0
"""How much longer than the far end's own limit its answer is waited for."""


class SshTarget:
    """One machine reached by ssh, where hetplan is installed."""

    kind: ClassVar[str] = "ssh"

    def __init__(self, setting: Setting) -> None:
        self.name = setting.name
        self.settings = validate(SshSettings, dict(setting.settings), file="hosts.toml")
        self._setting = setting
        here = str(setting.hosts.folder)
        self._places = FilePlaces(here, self.settings.files or here)
        self._line: SshLine | None = None

    def check(self, units: Sequence[Unit]) -> list[str]:
        """The far machine's own reasons."""
        told: list[str] = self._ask({"call": "check", **self._units(units)})
        return told

    def observe(self) -> tuple[Seen, ...]:
        """What runs on the far machine."""
        return tuple(self._places.seen(one) for one in seen_from(self._ask({"call": "observe"})))

    def start(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Start units there."""
        return endpoints_from(self._ask({"call": "start", **self._units(units), "limit_s": limit_s}, limit_s=limit_s))

    def load(self, units: Sequence[Unit], *, limit_s: float) -> dict[str, Endpoint]:
        """Change what units there hold."""
        return endpoints_from(self._ask({"call": "load", **self._units(units), "limit_s": limit_s}, limit_s=limit_s))

    def stop(self, names: Sequence[str], *, drain_s: float) -> None:
        """Stop units there."""
        # The keeper there first waits for a start that is under way for an apply which was killed.
        limit_s = drain_s + self._setting.hosts.limits.start_s
        self._ask({"call": "stop", "names": list(names), "drain_s": drain_s}, limit_s=limit_s)

    def health(self, names: Sequence[str]) -> dict[str, UnitHealth]:
        """How units there are."""
        return healths_from(self._ask({"call": "health", "names": list(names)}))

    def route(self, routes: Mapping[str, Any] | None, *, limit_s: float) -> None:
        """Have the router there follow these routes."""
        self._ask({"call": "route", "routes": routes, "limit_s": limit_s}, limit_s=limit_s)

    def routed(self) -> Mapping[str, Any] | None:
        """What the router there follows."""
        followed: Mapping[str, Any] | None = self._ask({"call": "routed"})
        return followed

    def down(self, *, drain_s: float) -> None:
        """Stop everything there and end the shared connection."""
        self._ask({"call": "down", "drain_s": drain_s}, limit_s=drain_s)
        self._hang_up(shared=True)

    def close(self) -> None:
        """Hang up; what runs there goes on."""
        self._hang_up(shared=True)

    def _ask(self, message: Mapping[str, Any], *, limit_s: float = 0.0) -> Any:
        limit_s += self._setting.hosts.limits.call_s + _GRACE_S
        try:
            reply = self._connected().call(message, limit_s=limit_s)
        except LineLost:
            self._hang_up(shared=True)
            try:
                reply = self._connected().call(message, limit_s=limit_s)
            except LineLost as lost:
                self._hang_up(shared=True)
                raise self._unreachable(message, lost) from None
        if "failed" in reply:
            raise TargetFailed(self.name, reply["failed"]["about"], reply["failed"]["why"])
        return reply["reply"]

    def _connected(self) -> SshLine:
        if self._line is None:
            hello = {"call": "hello", "hetplan": own_version(), **self._far_setting()}
            line = SshLine(self.settings, files=self._setting.hosts.folder, hello=hello)
            if "failed" in line.welcome:
                line.close(shared=False)
                raise TargetFailed(self.name, self.settings.address, line.welcome["failed"]["why"])
            self._line = line
        return self._line

    def _far_setting(self) -> dict[str, Any]:
        """What the far end is to know of hosts.toml: this machine's part of it, and no other target's."""
        hosts = self._setting.hosts
        whole = hosts.model_dump(mode="json", exclude={"folder", "profiles", "slo", "models", "state_dir"})
        return {
            "name": self.name,
            "deployment": hosts.name,
            "folder": self.settings.folder,
            "settings": {},
            "hosts": {
                **whole,
                "targets": {self.name: {"kind": "local", "settings": {}}},
                "router": {**whole["router"], "target": self.name},
                "hosts": {name: host for name, host in whole["hosts"].items() if host["target"] == self.name},
            },
        }

    def _unreachable(self, message: Mapping[str, Any], lost: LineLost) -> TargetFailed:
        where = f"{self.settings.address} port {self.settings.port}"
        about = ", ".join(unit["name"] for unit in message.get("units", ())) or ", ".join(message.get("names", ()))
        asked = f"{message['call']} {about}".strip()
        return TargetFailed(self.name, asked, f"{where} cannot be reached: {lost.why}")

    def _hang_up(self, *, shared: bool) -> None:
        if self._line is not None:
            self._line.close(shared=shared)
            self._line = None

    def _units(self, units: Sequence[Unit]) -> dict[str, Any]:
        return {"units": [self._places.told(unit).as_dict() for unit in units]}
