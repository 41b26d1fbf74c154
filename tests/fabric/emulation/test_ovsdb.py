"""The protocol of Open vSwitch's database, against a server that says what it is told to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fabric.emulation import openvswitch, ovsdb
from fabric.emulation.openvswitch import Bridge
from fabric.errors import EmulationError
from fabric.world.datapath import Datapath

Answers = Callable[[dict[str, Any]], bytes | None]
"""What the server says to a request; None: it goes away."""


@contextmanager
def served(path: Path, answers: Answers, timeout_s: float = 60.0) -> Iterator[ovsdb.Database]:
    """Connect to a server that answers each request, for the time of a block."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(1)

    def serve() -> None:
        connection, _ = listener.accept()
        text, decoder = "", json.JSONDecoder()
        with connection:
            while data := connection.recv(1 << 16):
                text += data.decode()
                try:
                    request, end = decoder.raw_decode(text)
                except json.JSONDecodeError:
                    continue
                text = text[end:]
                said = answers(request)
                if said is None:
                    return
                for start in range(0, len(said), 7):  # In pieces, as a stream may come.
                    connection.sendall(said[start : start + 7])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        with ovsdb.Database(path, timeout_s) as database:
            yield database
        thread.join(60)
    finally:
        listener.close()


def answer(request: dict[str, Any], *results: Any) -> bytes:
    return json.dumps({"id": request["id"], "result": list(results), "error": None}).encode()


def test_results_come_back_in_order_whatever_the_pieces(tmp_path: Path) -> None:
    rows = [{"name": f"z0l00-eth{number}", "note": "}{"} for number in range(40)]
    with served(tmp_path / "db", lambda request: answer(request, {"rows": rows})) as database:
        assert database.rows("Interface", ["name", "note"]) == rows
        assert database.rows("Interface", ["name", "note"]) == rows


def test_a_server_that_does_not_listen_yet_is_waited_for(tmp_path: Path) -> None:
    """Its socket is there when it is bound, and refuses connections until it listens."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "db"))
    with pytest.raises(EmulationError, match=r"no connection by .*db: Connection refused"):
        ovsdb.Database(tmp_path / "db", 0.05)
    threading.Timer(0.2, listener.listen, (1,)).start()
    with ovsdb.Database(tmp_path / "db", 60.0):
        listener.accept()[0].close()
    listener.close()


def test_a_server_that_has_no_socket_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(EmulationError, match=r"no connection by .*db: No such file"):
        ovsdb.Database(tmp_path / "db", 60.0)


def test_the_servers_own_questions_are_answered(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = []

    def answers(request: dict[str, Any]) -> bytes:
        said.append(request)
        if request.get("method") == "transact":
            return json.dumps({"method": "echo", "params": [7], "id": "echo"}).encode()
        return json.dumps({"id": 0, "result": [{}], "error": None}).encode()

    with served(tmp_path / "db", answers) as database:
        assert database.transact([]) == [{}]
    assert said[1] == {"id": "echo", "result": [7], "error": None}


def test_an_operation_that_fails_is_named_with_the_reason(tmp_path: Path) -> None:
    failed = {"error": "constraint violation", "details": "no such column"}
    with served(tmp_path / "db", lambda request: answer(request, {}, failed, None)) as database:
        operations = [ovsdb.insert("QoS", "a"), ovsdb.insert("Port", "b", nme="b")]
        with pytest.raises(EmulationError, match=r"constraint violation: no such column; of .*'table': 'Port'"):
            database.transact(operations)


def test_a_transaction_as_a_whole_may_fail(tmp_path: Path) -> None:
    failed = {"error": "referential integrity violation", "details": "QoS"}
    with (
        served(tmp_path / "db", lambda request: answer(request, {}, failed)) as database,
        pytest.raises(EmulationError, match="referential integrity violation: QoS; of the whole"),
    ):
        database.transact([ovsdb.insert("QoS", "a")])


def test_who_waits_for_a_configuration_waits_until_the_switch_has_done_it(tmp_path: Path) -> None:
    done = iter([4, 4, 5])
    asked: list[str] = []

    def answers(request: dict[str, Any]) -> bytes:
        *_, last = request["params"]
        (column,) = last["columns"]
        asked.append(column)
        if column == "next_cfg":
            return answer(request, {"uuid": "u"}, {"count": 1}, {"rows": [{"next_cfg": 5}]})
        return answer(request, {"rows": [{"cur_cfg": next(done)}]})

    with served(tmp_path / "db", answers) as database:
        assert database.configure([ovsdb.insert("QoS", "a")]) == 5
        assert asked == ["next_cfg"]
        database.wait_for(5)
    assert asked == ["next_cfg", "cur_cfg", "cur_cfg", "cur_cfg"]


def test_a_server_that_is_not_there_or_goes_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmulationError, match=f"ovsdb-server: no connection by {tmp_path}/none"):
        ovsdb.Database(tmp_path / "none", 1)

    with served(tmp_path / "db", lambda request: None) as database, pytest.raises(EmulationError, match="has gone"):
        database.transact([])


def test_labels_that_differ_stay_different() -> None:
    labels = ["z0h000.g5", "z0h000-g5", "z0h000_g5", "port z0h000", "porta z0h000"]
    assert len({tuple(ovsdb.reference(label)) for label in labels}) == len(labels)


def test_a_bridge_has_a_row_for_each_port_and_one_of_its_own() -> None:
    bridge = Bridge("z0l00", {"z0l00-eth1": 1, "z0l00-eth2": 2}, 4200, dpid=7, controller="tcp:127.0.0.1:6653")
    rows = list(openvswitch._insertions(bridge, Datapath.KERNEL))
    assert [row["table"] for row in rows] == ["Controller", "Bridge", *["Port", "Interface"] * 3]
    wanted = {"name": "z0l00-eth2", "ofport_request": 2, "mtu_request": 4200}
    assert rows[-1]["row"] == wanted
    assert rows[1]["row"]["other_config"] == ["map", [["datapath-id", f"{7:016x}"], ["disable-in-band", "true"]]]
    assert len(rows[1]["row"]["ports"][1]) == 3


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"ofport": -1, "error": "could not open network device"}, "could not open network device"),
        ({"ofport": 3, "error": ["set", []]}, "it has 3 as its port"),
        ({"ofport": ["set", []], "error": ["set", []]}, "it has none as its port"),
    ],
)
def test_a_port_that_is_not_in_its_bridge_is_named(row: dict[str, Any], why: str) -> None:
    with pytest.raises(EmulationError, match=f"z0l00-eth2 is not port 2 of its bridge: {why}"):
        openvswitch._verify_numbers({"z0l00-eth2": 2}, [{"name": "z0l00-eth2", **row}])
    openvswitch._verify_numbers({"z0l00-eth2": 2}, [{"name": "z0l00-eth2", "ofport": 2, "error": ["set", []]}])
