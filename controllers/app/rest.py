"""The controller's REST answers, each as JSON; 504 with the reason if a switch does not answer."""
# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ryu.app.wsgi import ControllerBase, Request, Response, route

from fabric.errors import ControllerError

DEFAULT_TIMEOUT_S = 10.0


class Rest(ControllerBase):
    """Answers from what the app knows, or has the switches asked."""

    def __init__(self, request: Any, link: Any, data: Any, **config: Any) -> None:
        super().__init__(request, link, data, **config)
        self.keeper = data["keeper"]

    @route("state", "/state", methods=["GET"])
    def state(self, request: Request, **_: Any) -> Response:
        """Answer at once."""
        return _json(self.keeper.state())

    @route("events", "/events", methods=["GET"])
    def events(self, request: Request, **_: Any) -> Response:
        """Answer at once."""
        return _json(self.keeper.history())

    @route("rules", "/rules", methods=["GET"])
    def rules(self, request: Request, **_: Any) -> Response:
        """Ask the switches."""
        return _asked(self.keeper.rules, request)

    @route("ports", "/ports", methods=["GET"])
    def ports(self, request: Request, **_: Any) -> Response:
        """Ask the switches."""
        return _asked(self.keeper.ports, request)

    @route("counters", "/counters", methods=["GET"])
    def counters(self, request: Request, **_: Any) -> Response:
        """Ask the switches."""
        return _asked(self.keeper.counters, request)


def _asked(ask: Callable[[float], object], request: Request) -> Response:
    try:
        timeout_s = float(request.params.get("timeout_s", DEFAULT_TIMEOUT_S))
    except ValueError:
        return _json({"error": f"timeout_s: {request.params['timeout_s']!r} is no number of seconds"}, status=400)
    try:
        return _json(ask(timeout_s))
    except ControllerError as error:
        return _json({"error": str(error)}, status=504)


def _json(value: object, status: int = 200) -> Response:
    return Response(content_type="application/json", text=json.dumps(value), status=status)
