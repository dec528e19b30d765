"""The server itself: who may ask, how large a request may be, which answer in which form.

A token in the URL (or as a bearer) is asked for everything but health. On loopback the name that a browser asks for has
to be a loopback name too, so that no page of elsewhere reaches this server by a name of its own.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from hetplan.desk.answers import Answers
from hetplan.desk.openapi import openapi
from hetplan.desk.work import Allowance, Busy, Task, Workshop
from hetplan.drawing.page import PAGE_STYLE
from hetplan.errors import HetplanError, InputError, Interrupted
from hetplan.profiles.read_json import read_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["Desk", "app_of", "is_loopback", "serve"]

GRACE_SECONDS = 5.0
"""How long work that ran out of time may take to stop before the answer goes without it."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]", "::1"})


@dataclass(frozen=True)
class Desk:
    """What a server is started with; `begin` are the documents that the page opens with, by their kind."""

    token: str
    allowance: Allowance = field(default_factory=Allowance)
    page: bool = False
    loopback: bool = True
    begin: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    report: Callable[..., str] | None = None
    """Who draws a plan as a page; without it no such page is handed out."""


class _Refused(Exception):
    def __init__(self, code: int, why: str, *, headers: dict[str, str] | None = None) -> None:
        super().__init__(why)
        self.code, self.why, self.headers = code, why, headers


def app_of(desk: Desk) -> Starlette:
    """The application, for any server that speaks ASGI."""
    return _Room(desk, Workshop(desk.allowance), Answers(desk.allowance, desk.report)).app()


Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class _Room:
    """The handlers of one server, and what they share."""

    desk: Desk
    workshop: Workshop
    answers: Answers

    def app(self) -> Starlette:
        paths = [path for path in self.answers.by_path if self.desk.page or path.startswith("/v1/")]
        routes = [Route(path, self._counted(self._work(path)), methods=["POST"]) for path in paths]
        routes += [
            Route("/v1/health", self._counted(self._health, free=True)),
            Route("/v1/metrics", self._counted(self._metrics)),
            Route("/v1/openapi.json", self._counted(self._contract)),
            Route("/v1/requests/{name}", self._counted(self._stop), methods=["DELETE"]),
            Route("/v1/requests/{name}", self._counted(self._doing)),
        ]
        if self.desk.page:
            routes.append(Route("/", self._counted(self._page)))
        return Starlette(routes=routes, lifespan=self._life)

    @asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self.workshop.close()

    def _counted(self, handler: Handler, *, free: bool = False) -> Handler:
        """The handler with what surrounds every request; `free` is for everybody."""

        async def handle(request: Request) -> Response:
            begun = time.perf_counter()
            try:
                if not free:
                    _admit(request, self.desk)
                answer = await handler(request)
            except _Refused as refused:
                answer = _error(refused.code, refused.why, headers=refused.headers)
            except ClientDisconnect:
                answer = Response(status_code=499)
            path = request.scope["route"].path if "route" in request.scope else handler.__name__
            self.workshop.count(path, answer.status_code, time.perf_counter() - begun)
            answer.headers["Cache-Control"] = "no-store"
            answer.headers["X-Content-Type-Options"] = "nosniff"
            answer.headers["Referrer-Policy"] = "no-referrer"
            return answer

        return handle

    def _work(self, path: str) -> Handler:
        async def work(request: Request) -> Response:
            asked = await _document(request, self.desk.allowance.bytes)
            name = request.headers.get("x-request-id", "")[:64]
            try:
                task = self.workshop.begin(path, partial(self.answers.by_path[path], asked), name=name)
            except Busy:
                raise _Refused(429, "too many requests wait already", headers={"Retry-After": "2"}) from None
            except ValueError as error:
                raise _Refused(409, str(error)) from None
            return await _answered(request, task, self.desk.allowance)

        return work

    async def _health(self, _: Request) -> Response:
        working, waiting = self.workshop.under_way
        return JSONResponse({"ok": True, "working": working, "waiting": waiting})

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(self.workshop.metrics(), media_type="text/plain; version=0.0.4")

    async def _contract(self, _: Request) -> Response:
        return JSONResponse(openapi(self.desk.version))

    async def _stop(self, request: Request) -> Response:
        task = self._task(request)
        task.stop()
        return JSONResponse({"stopping": task.id}, status_code=202)

    async def _doing(self, request: Request) -> Response:
        return JSONResponse({"doing": self._task(request).doing})

    def _task(self, request: Request) -> Task:
        task = self.workshop.find(request.path_params["name"])
        if task is None:
            raise _Refused(404, "no work of this id is under way")
        return task

    async def _page(self, _: Request) -> Response:
        return _page(self.desk)


def _admit(request: Request, desk: Desk) -> None:
    """Refuse requests without the token, by a foreign host name, or from a foreign page."""
    host = request.headers.get("host", "")
    if desk.loopback and host.rsplit(":", 1)[0] not in _LOOPBACK and host not in _LOOPBACK:
        raise _Refused(403, "this server answers to a name of this machine only")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise _Refused(403, "pages of elsewhere may not ask")
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    given = bearer if scheme.lower() == "bearer" else request.query_params.get("token", "")
    if not hmac.compare_digest(given.encode(), desk.token.encode()):
        raise _Refused(401, "the token is missing or wrong", headers={"WWW-Authenticate": "Bearer"})


async def _document(request: Request, most: int) -> dict[str, Any]:
    """The body of a request: a JSON object, no larger than allowed."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise _Refused(415, "send application/json")
    too_large = _Refused(413, f"a request has at most {most} bytes")
    stated = request.headers.get("content-length", "0")
    if stated.isdigit() and int(stated) > most:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise too_large
    try:
        held = await asyncio.to_thread(read_json, bytes(body), file="request")
    except InputError as error:
        raise _Refused(400, "; ".join(map(str, error.faults))) from None
    if not isinstance(held, dict):
        raise _Refused(400, "a request is a JSON object")
    return held


async def _answered(request: Request, task: Task, allowance: Allowance) -> Response:
    """The answer, once the work is done; the work is stopped where its client leaves or its time is over."""
    waited = asyncio.wrap_future(task.future)
    while True:
        done, _ = await asyncio.wait({waited}, timeout=0.1)
        if done:
            break
        if not task.cancel.is_set() and await request.is_disconnected():
            task.stop()
        if task.overdue_s > allowance.seconds:
            task.cancel.set()
        if task.overdue_s > allowance.seconds + GRACE_SECONDS:
            return _error(504, f"no answer within {allowance.seconds:g} s, and the work has not stopped yet")
    headers = {"X-Request-Id": task.id}
    try:
        return JSONResponse(waited.result(), headers=headers)
    except InputError as error:
        faults = [vars(fault) for fault in error.faults]
        return _error(422, f"{len(faults)} faults in the request", faults=faults, headers=headers)
    except (Interrupted, asyncio.CancelledError):
        late = task.overdue_s > allowance.seconds
        return _error(504 if late else 409, "stopped: its time was over" if late else "stopped", headers=headers)
    except HetplanError as error:
        return _error(422 if error.exit_code == 2 else 500, str(error), headers=headers)
    except Exception as error:
        return _error(500, f"a fault of hetplan: {type(error).__name__}: {error}", headers=headers)


def _error(code: int, reason: str, *, headers: dict[str, str] | None = None, **more: Any) -> JSONResponse:
    return JSONResponse({"error": {"status": code, "reason": reason, **more}}, status_code=code, headers=headers)


def _page(desk: Desk) -> Response:
    """The page to plan by hand; its one script is allowed by a number that is new each time."""
    import secrets

    nonce = secrets.token_urlsafe(16)
    held = json.dumps(desk.begin).replace("<", "\\u003c")
    text = files("hetplan.desk").joinpath("desk.html").read_text(encoding="utf-8")
    text = text.replace("/*STYLE*/", PAGE_STYLE).replace("NONCE", nonce).replace('"BEGIN"', held)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Response(text, media_type="text/html", headers={"Content-Security-Policy": policy})


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    return host in _LOOPBACK


def serve(desk: Desk, listening: socket.socket) -> None:
    """Serve until interrupted."""
    import uvicorn

    config = uvicorn.Config(app_of(desk), log_level="warning", access_log=False, timeout_graceful_shutdown=5)
    uvicorn.Server(config).run(sockets=[listening])
