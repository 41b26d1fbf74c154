"""Open vSwitch's database, spoken to by its own protocol (OVSDB, RFC 7047) over its socket.

``ovs-vsctl`` looks every name of a command up in all that went before: for thousands of ports that takes a minute. A
transaction here is one JSON text, whatever its size, and takes the server a fraction of a second.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from fabric.errors import EmulationError

DATABASE = "Open_vSwitch"
_POLL_S = 0.01
_PIECE_BYTES = 1 << 16

Operation = dict[str, Any]
"""One of a transaction, as RFC 7047 (5.2) says it."""


def insert(table: str, label: str, /, **row: Any) -> Operation:
    """Add a row, which the same transaction's other rows may refer to as ``reference(label)``."""
    return {"op": "insert", "table": table, "uuid-name": _identifier(label), "row": row}


def reference(label: str) -> list[str]:
    """Return a value that is a row of the same transaction."""
    return ["named-uuid", _identifier(label)]


def _identifier(label: str) -> str:
    """Return a label in letters, digits and underscores, which is all that the protocol takes."""
    return "row_" + "".join(letter if letter.isalnum() else f"_{ord(letter):x}_" for letter in label)


def set_of(values: Iterable[Any]) -> list[Any]:
    """Return a value that is a set."""
    return ["set", list(values)]


def map_of(values: Mapping[str, str]) -> list[Any]:
    """Return a value that is a map."""
    return ["map", [list(item) for item in values.items()]]


def _connected(path: Path, timeout_s: float) -> socket.socket:
    """Return a connection. A server that has just started has its socket for a moment before it listens there."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            return connection
        except OSError as error:
            connection.close()
            if not isinstance(error, ConnectionRefusedError) or time.monotonic() > deadline_s:
                raise EmulationError(f"ovsdb-server: no connection by {path}: {error.strerror or error}") from error
        time.sleep(_POLL_S)


class Database:
    """A connection to ovsdb-server by the socket at ``path``; every wait on it takes ``timeout_s`` at most.

    Raises EmulationError if there is no connection in that time.
    """

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._socket = _connected(path, timeout_s)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def transact(self, operations: Sequence[Operation]) -> list[dict[str, Any]]:
        """Carry out operations, all or none, and return the result of each. Raises EmulationError with the reason."""
        request = {"method": "transact", "params": [DATABASE, *operations], "id": 0}
        try:
            self._socket.sendall(json.dumps(request).encode())
            answer = self._answer()
        except TimeoutError as error:
            raise EmulationError(f"ovsdb-server: no answer within {self._timeout_s:g} s; see its log") from error
        except OSError as error:
            raise EmulationError(f"ovsdb-server: has gone: {error.strerror or error}; see its log") from error
        results: list[dict[str, Any]] = answer["result"] or []
        for number, result in enumerate(results):
            if result and "error" in result:
                failed = operations[number] if number < len(operations) else "the whole"
                raise EmulationError(f"ovsdb-server: {result['error']}: {result.get('details', '')}; of {failed}")
        if answer["error"] is not None:
            raise EmulationError(f"ovsdb-server: refuses a transaction: {answer['error']}")
        return results

    def configure(self, operations: Sequence[Operation]) -> int:
        """Carry out operations, which ovs-vswitchd then begins to follow; return their number for ``wait_for``."""
        generation: list[Operation] = [
            {"op": "mutate", "table": DATABASE, "where": [], "mutations": [["next_cfg", "+=", 1]]},
            {"op": "select", "table": DATABASE, "where": [], "columns": ["next_cfg"]},
        ]
        *_, selected = self.transact([*operations, *generation])
        (row,) = selected["rows"]
        return int(row["next_cfg"])

    def wait_for(self, number: int) -> None:
        """Return once ovs-vswitchd has done all up to a number. Raises EmulationError if that takes too long."""
        deadline_s = time.monotonic() + self._timeout_s
        while self._done() < number:
            if time.monotonic() > deadline_s:
                raise EmulationError(
                    f"ovs-vswitchd: has not taken over its configuration within {self._timeout_s:g} s; see its log"
                )
            time.sleep(_POLL_S)

    def rows(self, table: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        """Return the given columns of all rows of a table."""
        (selected,) = self.transact([{"op": "select", "table": table, "where": [], "columns": list(columns)}])
        found: list[dict[str, Any]] = selected["rows"]
        return found

    def _done(self) -> int:
        (row,) = self.rows(DATABASE, ["cur_cfg"])
        return int(row["cur_cfg"])

    def _answer(self) -> dict[str, Any]:
        """Return the next answer; the server's own questions, whether we still are there, are answered alike."""
        while True:
            message = self._message()
            if message.get("method") == "echo":
                echo = {"result": message["params"], "error": None, "id": message["id"]}
                self._socket.sendall(json.dumps(echo).encode())
            elif "result" in message:
                return message

    def _message(self) -> dict[str, Any]:
        parts = [self._text]
        while True:
            # Only a closing brace may end a message, so most of a long one is not decoded in vain.
            if parts[-1].rstrip().endswith("}") or "}{" in parts[-1]:
                text = "".join(parts)
                try:
                    message, end = self._decoder.raw_decode(text.lstrip())
                except json.JSONDecodeError:
                    parts = [text]
                else:
                    self._text = text.lstrip()[end:]
                    decoded: dict[str, Any] = message
                    return decoded
            data = self._socket.recv(_PIECE_BYTES)
            if not data:
                raise ConnectionResetError("the connection was closed")
            parts.append(data.decode("ascii"))
