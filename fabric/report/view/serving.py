"""Serves pages on this machine's loopback address, to whoever has the token that is part of the address."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

from fabric.errors import UsageError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

LOOPBACK = "127.0.0.1"
METRICS = "/metrics"
_LAST_PORT = 65_535
_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'"
)


@dataclass(frozen=True)
class Resource:
    """What a path holds: bytes of a kind (as in HTTP's Content-Type), perhaps zipped."""

    body: bytes
    kind: str = "application/octet-stream"
    is_zipped: bool = False


Answer = Callable[[str, Mapping[str, str]], Resource | None]
"""Returns what a path below the token holds, by its query; None if there is nothing."""


class _Quiet(WSGIRequestHandler):
    """A handler that writes no line per request: the terminal is the user's."""

    def log(self, type: str, message: str, *args: object) -> None:
        """Say nothing."""


class Application:
    """Answers requests that name the token and come to the loopback address by its name. ``metrics``: what
    :data:`METRICS` holds, without the token: who scrapes them is another user of this machine."""

    def __init__(self, answer: Answer, token: str, metrics: Callable[[], Resource] | None = None) -> None:
        self._answer, self._metrics = answer, metrics
        self._begin = f"/{token}/"

    def __call__(self, environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Answer a request, as WSGI has it."""
        return self.response_to(Request(environment))(environment, start)

    def response_to(self, request: Request) -> Response:
        """Return what is asked for; 403 without the token or through another name, 404 for what there is not."""
        begin = request.path[: len(self._begin)]
        host = request.host.rpartition(":")[0]
        if request.path == METRICS and self._metrics is not None and host in (LOOPBACK, "localhost"):
            return _response(self._metrics())
        if not secrets.compare_digest(begin.encode(), self._begin.encode()) or host not in (LOOPBACK, "localhost"):
            return Response("the address needs its token: use the one that was printed\n", 403)
        found = self._answer(request.path[len(self._begin) :], request.args)
        if found is None:
            return Response("there is nothing of this name\n", 404)
        return _response(found)


def _response(found: Resource) -> Response:
    response = Response(found.body, content_type=found.kind)
    response.headers["Cache-Control"] = "no-store"
    response.headers["Content-Security-Policy"] = _POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if found.is_zipped:
        response.headers["Content-Encoding"] = "gzip"
    return response


@contextmanager
def serving(answer: Answer, port: int = 0, metrics: Callable[[], Resource] | None = None) -> Iterator[str]:
    """Serve for the time of a block, and yield the address. ``port`` 0: any that is free; ``metrics``: what is answered
    at :data:`METRICS`. Raises UsageError if the port is taken."""
    token = secrets.token_urlsafe(16)
    server = _server(Application(answer, token, metrics), port)
    thread = threading.Thread(target=server.serve_forever, daemon=True, name="view")
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.port}/{token}/"
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()


def _server(application: Application, port: int) -> BaseWSGIServer:
    if not 0 <= port <= _LAST_PORT:
        raise UsageError(f"--port {port}: is not a port; give one from 1 to {_LAST_PORT}, or none for any that is free")
    try:
        return make_server(LOOPBACK, port, application, threaded=True, request_handler=_Quiet)
    except (OSError, SystemExit) as error:
        raise UsageError(
            f"--port {port}: cannot be used ({error}); give another, or none for any that is free"
        ) from error
