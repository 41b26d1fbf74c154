from __future__ import annotations

import json
from typing import Any

import pytest

from controllers.app.rest import DEFAULT_TIMEOUT_S, Rest
from fabric.errors import ControllerError


class Keeper:
    """Says what it was asked."""

    def state(self) -> dict[str, Any]:
        return {"ready": True}

    def history(self) -> list[dict[str, Any]]:
        return [{"kind": "planned"}]

    def rules(self, timeout_s: float) -> dict[str, Any]:
        return {"rules": timeout_s}

    def ports(self, timeout_s: float) -> dict[str, Any]:
        return {"ports": timeout_s}

    def counters(self, timeout_s: float) -> dict[str, Any]:
        raise ControllerError("no answer from z0l00 within 1 s")


def ask(path: str, query: str = "", method: str = "GET") -> tuple[str, Any]:
    """Return the status and the decoded answer."""
    said: list[str] = []

    def start_response(status: str, headers: list[tuple[str, str]], *_: object) -> Any:
        said.append(status)
        assert ("Content-Type", "application/json") in headers

    environ = {"PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": method}
    body = b"".join(Rest(Keeper())(environ, start_response))
    return said[0], json.loads(body)


def test_what_is_known_is_answered_at_once() -> None:
    assert ask("/state", "timeout_s=5") == ("200 OK", {"ready": True})
    assert ask("/events") == ("200 OK", [{"kind": "planned"}])


def test_switches_have_as_long_as_was_said() -> None:
    assert ask("/rules", "timeout_s=2.5") == ("200 OK", {"rules": 2.5})
    assert ask("/ports") == ("200 OK", {"ports": DEFAULT_TIMEOUT_S})


@pytest.mark.parametrize("text", ["soon", "", "nan", "inf", "-1"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    assert ask("/rules", f"timeout_s={text}") == (
        "400 Bad Request",
        {"error": f"timeout_s: {text!r} is not a number of seconds"},
    )


def test_a_switch_that_does_not_answer_is_named() -> None:
    assert ask("/counters") == ("504 Gateway Timeout", {"error": "no answer from z0l00 within 1 s"})


def test_other_paths_and_methods_are_refused_with_what_there_is() -> None:
    status, answer = ask("/flows")
    assert status == "404 Not Found"
    assert answer["error"] == "/flows: not known; ask for /state, /events, /rules, /ports, /counters"
    assert ask("/state", method="POST")[0] == "405 Method Not Allowed"
