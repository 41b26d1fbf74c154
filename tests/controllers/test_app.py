"""The app without switches: fake datapaths take its messages, and events say what switches answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controllers.launcher import mend_eventlet

mend_eventlet()

from ryu import cfg  # noqa: E402
from ryu.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER  # noqa: E402
from ryu.ofproto import ofproto_parser, ofproto_v1_3, ofproto_v1_3_parser  # noqa: E402

from controllers import messages  # noqa: E402
from controllers.app import PlanInstaller  # noqa: E402
from controllers.plan import FlowRule, Priority, Purpose, RoutePlan, table_miss  # noqa: E402
from fabric.errors import ControllerError  # noqa: E402

ROUTE = FlowRule(1, Priority.ROUTE, Purpose.UP, destination="10.0.0.1", outputs=(3,))
GUARD = FlowRule(1, Priority.GUARD, Purpose.STORAGE_GUARD, source="10.128.0.0/9")
PLAN = RoutePlan.of("test", {1: "z0l00", 2: "z0s00"}, [ROUTE, GUARD, table_miss(1), table_miss(2)])


class FakeDatapath:
    """Keeps what is sent to it, decoded."""

    ofproto = ofproto_v1_3
    ofproto_parser = ofproto_v1_3_parser

    def __init__(self, dpid: int) -> None:
        self.id = dpid
        self.xid = 0
        self.sent: list[Any] = []

    def set_xid(self, message: Any) -> int:
        self.xid += 1
        message.set_xid(self.xid)
        return self.xid

    def send(self, data: bytes) -> None:
        while data:
            version, kind, length, xid = ofproto_parser.header(data)
            if kind == self.ofproto.OFPT_BARRIER_REQUEST:  # Ryu cannot decode what only controllers send.
                message = self.ofproto_parser.OFPBarrierRequest(self)
                message.set_xid(xid)
            else:
                message = ofproto_parser.msg(self, version, kind, length, xid, data[:length])
            self.sent.append(message)
            data = data[length:]

    def send_msg(self, message: Any) -> None:
        message.serialize()
        self.sent.append(message)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[PlanInstaller]:
    PLAN.save(tmp_path / "plan.json")
    cfg.CONF(args=[], project="ryu", default_config_files=[], default_config_dirs=[])
    cfg.CONF.set_override("plan", str(tmp_path / "plan.json"))
    yield PlanInstaller(wsgi=SimpleNamespace(register=lambda *_: None))
    cfg.CONF.clear_override("plan")


def connect(app: PlanInstaller, dpid: int) -> FakeDatapath:
    datapath = FakeDatapath(dpid)
    app.on_state_change(SimpleNamespace(datapath=datapath, state=MAIN_DISPATCHER))
    return datapath


def answer_barrier(app: PlanInstaller, datapath: FakeDatapath) -> None:
    app.on_barrier_reply(SimpleNamespace(msg=SimpleNamespace(datapath=datapath, xid=datapath.sent[-1].xid)))


def kinds(datapath: FakeDatapath) -> list[str]:
    return [type(message).__name__ for message in datapath.sent]


def test_route_goes_over_the_wire_as_openflow_says() -> None:
    datapath = FakeDatapath(1)
    data = messages.encoded(datapath, messages.add_rule(datapath, ROUTE, cookie=0x2A))
    assert data.hex(" ", 4) == (
        "040e0060 00000001"  # OpenFlow 1.3 flow-mod of 96 bytes
        " 00000000 0000002a 00000000 00000000"  # cookie and its mask
        " 00000000 00000064"  # table 0, add, no timeouts, priority 100
        " ffffffff 00000000 00000000 00000000"  # no buffer; out port and group are not used
        " 00010012 80000a02 08008000 18040a00 00010000 00000000"  # match: IPv4, destination 10.0.0.1
        " 00040018 00000000 00000010 00000003 ffe50000 00000000"  # apply: output to port 3
    )


def test_prefix_is_matched_with_its_mask_and_a_drop_has_no_instruction() -> None:
    datapath = FakeDatapath(1)
    datapath.send(messages.encoded(datapath, messages.add_rule(datapath, GUARD, cookie=1)))
    sent = datapath.sent[0]
    assert dict(sent.match.items()) == {"eth_type": 0x0800, "ipv4_src": ("10.128.0.0", "255.128.0.0")}
    assert sent.instructions == []
    assert sent.priority == Priority.GUARD


def test_table_miss_matches_everything_in_any_protocol() -> None:
    datapath = FakeDatapath(1)
    datapath.send(messages.encoded(datapath, messages.add_rule(datapath, table_miss(1), cookie=1)))
    assert dict(datapath.sent[0].match.items()) == {}
    assert datapath.sent[0].priority == 0


def test_new_switch_is_cleaned_then_gets_its_rules_then_a_barrier(app: PlanInstaller) -> None:
    leaf = connect(app, 1)
    assert kinds(leaf) == ["OFPFlowMod"] * 4 + ["OFPBarrierRequest"]
    assert [message.command for message in leaf.sent[:-1]] == [ofproto_v1_3.OFPFC_DELETE, 0, 0, 0]
    assert [message.cookie for message in leaf.sent[1:-1]] == list(PLAN.cookies[1])


def test_switch_that_comes_back_is_installed_again_but_not_cleaned(app: PlanInstaller) -> None:
    first = connect(app, 1)
    app.on_state_change(SimpleNamespace(datapath=first, state=DEAD_DISPATCHER))
    assert app.state()["missing"] == ["z0l00", "z0s00"]
    second = connect(app, 1)
    assert [message.command for message in second.sent[:-1]] == [0, 0, 0]


def test_late_end_of_an_old_connection_does_not_forget_the_new_one(app: PlanInstaller) -> None:
    old = connect(app, 1)
    connect(app, 1)
    app.on_state_change(SimpleNamespace(datapath=old, state=DEAD_DISPATCHER))
    assert app.state()["missing"] == ["z0s00"]


def test_ready_only_when_every_switch_answered_its_barrier(app: PlanInstaller) -> None:
    leaf, spine = connect(app, 1), connect(app, 2)
    answer_barrier(app, leaf)
    assert app.state() | {"seconds": 0} == {
        "ready": False,
        "policy": "test",
        "rules": 4,
        "expected": 2,
        "connected": 2,
        "installed": 1,
        "missing": [],
        "unexpected": [],
        "errors": [],
        "seconds": 0,
    }
    answer_barrier(app, spine)
    assert app.state()["ready"]


def test_barrier_of_an_earlier_connection_counts_for_nothing(app: PlanInstaller) -> None:
    leaf = connect(app, 1)
    app.on_barrier_reply(SimpleNamespace(msg=SimpleNamespace(datapath=leaf, xid=leaf.sent[-1].xid + 1)))
    assert app.state()["installed"] == 0


def test_switch_outside_the_plan_gets_nothing_and_is_named(app: PlanInstaller) -> None:
    stranger = connect(app, 0x99)
    assert stranger.sent == []
    assert app.state()["unexpected"] == ["0x99"]


def test_rejected_rule_is_named_and_nothing_is_ready(app: PlanInstaller) -> None:
    leaf, spine = connect(app, 1), connect(app, 2)
    answer_barrier(app, leaf)
    answer_barrier(app, spine)
    rejected = messages.encoded(leaf, messages.add_rule(leaf, ROUTE, list(PLAN.cookies[1])[1]))
    error = ofproto_v1_3_parser.OFPErrorMsg(
        leaf, ofproto_v1_3.OFPET_FLOW_MOD_FAILED, ofproto_v1_3.OFPFMFC_TABLE_FULL, rejected[:64]
    )
    app.on_error(SimpleNamespace(msg=error))
    (text,) = app.state()["errors"]
    assert text.startswith("z0l00: OFPFMFC_TABLE_FULL(1) for FlowRule(dpid=1, priority=100, purpose='up'")
    assert not app.state()["ready"]


def test_silent_switches_are_named(app: PlanInstaller) -> None:
    connect(app, 1)
    with pytest.raises(ControllerError, match=r"no statistics from z0l00 within 0\.01 s"):
        app.counters(timeout_s=0.01)


def test_answer_that_breaks_off_is_no_answer(app: PlanInstaller, monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = connect(app, 1)

    def answer_half(request: Any) -> None:
        part = SimpleNamespace(datapath=leaf, xid=request.xid, body=[], flags=ofproto_v1_3.OFPMPF_REPLY_MORE)
        app.on_port_statistics(SimpleNamespace(msg=part))

    monkeypatch.setattr(leaf, "send_msg", answer_half)
    with pytest.raises(ControllerError, match="no statistics from z0l00"):
        app.ports(timeout_s=0.01)


def test_counters_sum_drops_by_purpose_over_all_parts_of_an_answer(
    app: PlanInstaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = connect(app, 1)
    cookies = {rule.purpose: cookie for cookie, rule in PLAN.cookies[1].items()}
    parts = [[(Purpose.STORAGE_GUARD, 2)], [(Purpose.STORAGE_GUARD, 1), (Purpose.TABLE_MISS, 5)]]

    def send_and_answer(request: Any) -> None:
        assert request.cookie == request.cookie_mask != 0
        for part in parts:
            body = [_statistics(cookies[purpose], packets) for purpose, packets in part]
            more = ofproto_v1_3.OFPMPF_REPLY_MORE if part is not parts[-1] else 0
            reply = SimpleNamespace(datapath=leaf, xid=request.xid, body=body, flags=more)
            app.on_rule_statistics(SimpleNamespace(msg=reply))

    monkeypatch.setattr(leaf, "send_msg", send_and_answer)
    assert app.counters(timeout_s=1) == {
        "z0l00": {"storage guard": {"packets": 3, "bytes": 300}, "table miss": {"packets": 5, "bytes": 500}}
    }


def _statistics(cookie: int, packets: int) -> Any:
    return SimpleNamespace(
        cookie=cookie,
        priority=0,
        match=ofproto_v1_3_parser.OFPMatch(),
        instructions=[],
        packet_count=packets,
        byte_count=100 * packets,
    )


def test_rule_that_is_not_in_the_plan_is_called_unplanned(app: PlanInstaller) -> None:
    assert messages.rule_statistics(_statistics(0, 1), app._purpose(1, 0))["purpose"] == "unplanned"


def test_counter_that_a_switch_has_not_is_none() -> None:
    statistics = ofproto_v1_3_parser.OFPPortStats(1, 2, 3, 4, 5, 2**64 - 1, 7, 8, 9, 0, 0, 0, 0, 0, 0)
    assert list(messages.port_statistics(statistics).values()).count(None) == 1
