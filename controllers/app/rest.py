"""The controller's answers over HTTP, each as JSON, as a WSGI application.

==============  ========================================================================
GET             answer
==============  ========================================================================
``/state``      ready, who is expected, connected and installed, links down, what is cut, errors
``/events``     log of events, by the clock that all processes share (``time.monotonic()``)
``/rules``      packets and bytes of every rule of every switch
``/ports``      packets, bytes, drops and errors of every port of every switch
``/counters``   packets and bytes that rules and meters count as dropped, by purpose
==============  ========================================================================

The last three are asked of the switches; ``?timeout_s=`` limits the wait. An error is JSON, too: 400 for a wrong
``timeout_s``, 404 for another path, 405 for another method, 504 for a switch that does not answer.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from fabric.errors import ControllerError

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

DEFAULT_TIMEOUT_S = 10.0


class Rest:
    """Answers from what the keeper of routes knows, or has the switches asked."""

    def __init__(self, keeper: Any) -> None:
        self._answers: dict[str, Callable[[float], object]] = {
            "/state": lambda _: keeper.state(),
            "/events": lambda _: keeper.history(),
            "/rules": keeper.rules,
            "/ports": keeper.ports,
            "/counters": keeper.counters,
        }

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request, as a WSGI server asks for it."""
        status, value = self._answer(environ)
        body = json.dumps(value).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _answer(self, environ: WSGIEnvironment) -> tuple[HTTPStatus, object]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        answer = self._answers.get(path)
        if answer is None:
            return HTTPStatus.NOT_FOUND, {"error": f"{path}: not known; ask for {', '.join(self._answers)}"}
        if method != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, {"error": f"{method} {path}: only GET is answered"}
        given = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True).get("timeout_s", [])
        timeout_s = _seconds(given[-1]) if given else DEFAULT_TIMEOUT_S
        if timeout_s is None:
            return HTTPStatus.BAD_REQUEST, {"error": f"timeout_s: {given[-1]!r} is not a number of seconds"}
        try:
            return HTTPStatus.OK, answer(timeout_s)
        except ControllerError as error:
            return HTTPStatus.GATEWAY_TIMEOUT, {"error": str(error)}


def _seconds(text: str) -> float | None:
    """Return how many seconds a text says; None if it does not."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
