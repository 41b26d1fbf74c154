"""The app without switches: fake datapaths take its messages and answer what a test has them answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from controllers.app import messages
from controllers.app.openflow import (
    DEAD_DISPATCHER,
    MAIN_DISPATCHER,
    cfg,
    hub,
    ofproto_parser,
    ofproto_v1_3,
    ofproto_v1_3_parser,
)
from controllers.app.route_keeper import RouteKeeper
from controllers.planning.detours import gate_mark
from controllers.planning.plan import (
    BOUNCE_GROUP,
    BOUNCED,
    DROP_GROUP,
    DROP_METER,
    DROP_TABLE,
    Bucket,
    FailoverGroup,
    FlowRule,
    Hashing,
    Mark,
    Priority,
    Purpose,
    table_miss,
)
from controllers.planning.planner import plan_routes
from controllers.planning.policies import POLICIES, Policy
from controllers.planning.updates import Changes
from controllers.routing import Repair, Routing
from controllers.task import Task
from fabric.errors import ControllerError
from tests.controllers.sizes import tree
from topologies.load import load_fabric

ROUTE = FlowRule(1, Priority.ROUTE, Purpose.UP, destination="10.0.0.1", outputs=(3,))
GUARD = FlowRule(1, Priority.GUARD, Purpose.STORAGE_GUARD, source="10.128.0.0/9")
FABRIC = tree(1, leaves=2, spines=1, compute=2, storage=0, exits=(0, 0))
LEAF, OTHER_LEAF, SPINE = (switch.dpid for switch in FABRIC.switches)


class FakeDatapath:
    """Keeps what is sent to it, decoded, and answers requests with what it was told to have."""

    ofproto = ofproto_v1_3
    ofproto_parser = ofproto_v1_3_parser

    def __init__(self, dpid: int, answer: Callable[[Any], None] | None = None) -> None:
        self.id = dpid
        self.xid = 0
        self.ports: dict[int, Any] = {}
        self.sent: list[Any] = []
        self.rules: list[Any] = []
        self.groups: list[int] = []
        self.common: list[Any] = []
        self.is_silent = answer is None
        self._answer = answer

    def set_xid(self, message: Any) -> int:
        self.xid += 1
        message.set_xid(self.xid)
        return self.xid

    def send_msg(self, message: Any) -> None:
        self.set_xid(message)
        message.serialize()
        self.send(bytes(message.buf))

    def send(self, data: bytes) -> None:
        while data:
            version, kind, length, xid = ofproto_parser.header(data)
            if kind in (self.ofproto.OFPT_BARRIER_REQUEST, self.ofproto.OFPT_MULTIPART_REQUEST):
                self.reply(kind, xid, data[8:10])  # The library cannot decode what only controllers send.
            elif kind == self.ofproto.OFPT_GROUP_MOD:
                self.groups.append(int.from_bytes(data[12:16], "big"))
            elif kind == self.ofproto.OFPT_METER_MOD:
                self.common.append(tuple(int.from_bytes(part, "big") for part in (data[8:10], data[12:16])))
            else:
                message = ofproto_parser.msg(self, version, kind, length, xid, data[:length])
                (self.common if messages.is_common(message) else self.sent).append(message)
            data = data[length:]

    def reply(self, kind: int, xid: int, what: bytes) -> None:
        is_rules = kind == self.ofproto.OFPT_MULTIPART_REQUEST and int.from_bytes(what, "big") == 1
        body = self.rules if is_rules else []
        if self._answer is not None and not self.is_silent:
            self._answer(SimpleNamespace(msg=SimpleNamespace(datapath=self, xid=xid, body=body, flags=0)))


@pytest.fixture
def app(tmp_path: Path) -> Iterator[RouteKeeper]:
    Task(FABRIC, Routing(repair=Repair.REROUTE)).save(tmp_path / "task.json")
    cfg.CONF(args=[], project="ai-fabric-emulator", default_config_files=[], default_config_dirs=[])
    cfg.CONF.set_override("task", str(tmp_path / "task.json"))
    yield RouteKeeper()
    cfg.CONF.clear_override("task")


def connect(app: RouteKeeper, dpid: int, rules: list[Any] | None = None) -> FakeDatapath:
    """Let a switch connect, and the app read what it has; the app's own thread does not run here."""
    datapath = FakeDatapath(dpid, app.on_answer)
    datapath.rules = rules or []
    app.on_state_change(SimpleNamespace(datapath=datapath, state=MAIN_DISPATCHER))
    hub.sleep(0.01)
    return datapath


def settle(app: RouteKeeper) -> None:
    """Do one turn of what the app's own thread does when something is wanted."""
    app._pending.take()
    app._settle()


def added(datapath: FakeDatapath) -> set[int]:
    return {message.cookie for message in datapath.sent if message.command == ofproto_v1_3.OFPFC_ADD}


def report_port(app: RouteKeeper, datapath: FakeDatapath, number: int, up: bool) -> None:
    state = 0 if up else ofproto_v1_3.OFPPS_LINK_DOWN
    desc = SimpleNamespace(port_no=number, state=state, config=0)
    app.on_port_status(SimpleNamespace(msg=SimpleNamespace(datapath=datapath, desc=desc)))


def statistics(rule: FlowRule, packets: int = 1, cookie: int | None = None) -> Any:
    """Return what a switch says of a rule that it has."""
    return SimpleNamespace(
        cookie=rule.cookie if cookie is None else cookie,
        table_id=rule.table,
        priority=rule.priority,
        match=messages._match(rule.destination, rule.source, rule.in_port, rule.mark, rule.way),
        instructions=[],
        packet_count=packets,
        byte_count=100 * packets,
    )


def test_route_goes_over_the_wire_as_openflow_says() -> None:
    data = messages.add_rule(ROUTE)
    assert data[8:16] == ROUTE.cookie.to_bytes(8, "big")
    assert (data[:8] + data[16:]).hex(" ", 4) == (
        "040e0078 00000000"  # OpenFlow 1.3 flow-mod of 120 bytes; the cookie is left out
        " 00000000 00000000"  # the cookie's mask
        " 00000000 00000064"  # table 0, add, no timeouts, priority 100
        " ffffffff ffffffff ffffffff 00000000"  # no buffer; out port and group are not used
        " 00010012 80000a02 08008000 18040a00 00010000 00000000"  # match: IPv4, destination 10.0.0.1
        " 00040030 00000000"  # apply
        " ffff0018 00002320 0007000f 00000002 00000000 00000000"  # Nicira's load: 0 into all 16 bits of the in_port
        " 00000010 00000003 ffe50000 00000000"  # output to port 3
    )


def test_the_rule_that_delivers_addresses_the_frame_to_the_nic_and_no_other_rule_does() -> None:
    """Hosts send to one address, whoever is meant: a NIC only takes what has its own, which ends in its packet's."""
    delivers = FlowRule(1, Priority.ROUTE, Purpose.DELIVER, destination="10.0.0.1", outputs=(3,))
    first, *others = actions_of(delivers)
    assert (first.src_field, first.dst_field, first.src_ofs, first.dst_ofs, first.n_bits) == (
        "ipv4_dst", "eth_dst", 0, 0, 32
    )  # fmt: skip
    for rule in (
        FlowRule(1, Priority.ROUTE, Purpose.UP, destination="10.0.0.1", outputs=(3,)),
        FlowRule(1, Priority.ROUTE, Purpose.DELIVER, destination="10.0.0.32/27", outputs=(3,)),  # To a node's parts.
    ):
        assert [type(action) for action in actions_of(rule)] == [type(action) for action in others]


def actions_of(rule: FlowRule) -> list[Any]:
    datapath = FakeDatapath(1)
    datapath.send(messages.add_rule(rule))
    (instruction,) = datapath.sent[0].instructions
    return list(instruction.actions)


@pytest.mark.parametrize("repair", Repair)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_every_rule_goes_over_the_wire_as_ryu_would_have_it(policy: Policy, repair: Repair) -> None:
    plan = plan_routes(load_fabric("fire_flyer_2_tiny"), Routing(policy=policy, repair=repair))
    datapath = FakeDatapath(1)
    for rule in (rule for rules in plan.rules.values() for rule in rules):
        no_way = rule.purpose == Purpose.UNREACHABLE
        group = DROP_GROUP if no_way else rule.group
        as_ryu_says = ofproto_v1_3_parser.OFPFlowMod(
            datapath,
            cookie=rule.cookie,
            table_id=rule.table,
            priority=rule.priority,
            match=messages._match(rule.destination, rule.source, rule.in_port, rule.mark, rule.way),
            instructions=messages._instructions(rule.outputs, group, rule.hashing, rule.writes, rule.readdresses),
        )
        as_ryu_says.set_xid(0)
        as_ryu_says.out_port, as_ryu_says.out_group = ofproto_v1_3.OFPP_ANY, ofproto_v1_3.OFPG_ANY
        as_ryu_says.serialize()
        assert messages.add_rule(rule) == bytes(as_ryu_says.buf)


@pytest.mark.parametrize(
    "rule",
    [
        ROUTE,
        GUARD,
        table_miss(1),
        FlowRule(1, Priority.DETOUR, "", destination="10.1.0.0/16", in_port=4, mark=gate_mark(2, 1), chosen_by=300),
        FlowRule(1, Priority.ROUTE, Purpose.WAY, outputs=(4,), way=(0xCAFE, 2)),
        FlowRule(1, Priority.ROUTE, "", destination="10.0.0.1", chosen_by=Hashing(0xCAFE, 7, 3)),
    ],
)
def test_what_a_rule_matches_comes_back_from_the_wire_as_it_was(rule: FlowRule) -> None:
    datapath = FakeDatapath(1)
    datapath.send(messages.add_rule(rule))
    (sent,) = datapath.sent
    assert messages.key_of(sent) == rule.key
    assert sent.cookie == rule.cookie
    assert bool(sent.instructions) != rule.is_drop


def test_a_rule_that_no_plan_can_say_has_no_key() -> None:
    match = ofproto_v1_3_parser.OFPMatch(eth_type=0x0800, ip_proto=6, tcp_dst=80)
    assert messages.key_of(SimpleNamespace(match=match, priority=1, table_id=0)) is None


@pytest.mark.parametrize(("bounces", "last"), [(True, 2), (False, 1)])
def test_a_group_watches_its_ports_marks_and_ends(bounces: bool, last: int) -> None:
    group = FailoverGroup(1, (Bucket(3), Bucket(4, Mark(0x85 << 32, 0xFF << 32))), bounces)
    sent = messages.add_group(group)
    first, second, end = buckets_of(sent)
    assert len(sent) == 16 + (16 + 24 + 16) + (16 + 24 + 24 + 16) + (16 + 8)
    datapath = FakeDatapath(1)
    as_ryu_says = ofproto_v1_3_parser.OFPGroupMod(
        datapath, ofproto_v1_3.OFPGC_ADD, ofproto_v1_3.OFPGT_FF, group.number, [first, second, end]
    )
    as_ryu_says.set_xid(0)
    as_ryu_says.serialize()
    assert sent == bytes(as_ryu_says.buf)
    assert (first.watch_port, second.watch_port, end.watch_group) == (3, 4, last)
    mark, _, output = second.actions
    assert (mark.dst, mark.ofs_nbits, mark.value, output.port) == ("eth_src", 32 << 6 | 7, 0x85, 4)
    assert BOUNCED.mask == 1 << 39


def buckets_of(message: bytes) -> list[Any]:
    """Return the buckets of a group-mod."""
    found, at = [], 16
    while at < len(message):
        found.append(ofproto_v1_3_parser.OFPBucket.parser(message, at))
        at += found[-1].len
    return found


def test_every_output_forgets_where_the_packet_came_in_and_the_bounce_does_not() -> None:
    """Else Open vSwitch drops, uncounted, what has to go back: see test_in_flight."""
    datapath = FakeDatapath(1)
    datapath.send(messages.add_rule(ROUTE))
    (instruction,) = datapath.sent[0].instructions
    group = messages.add_group(FailoverGroup(1, (Bucket(3), Bucket(4, Mark(0x85 << 32, 0xFF << 32)))))
    *watching, last = buckets_of(group)
    for actions in (instruction.actions, *(bucket.actions for bucket in watching)):
        *_, load, output = actions
        assert (load.dst, load.ofs_nbits, load.value) == ("in_port_nxm", 15, 0)
        assert isinstance(output, ofproto_v1_3_parser.OFPActionOutput)
    assert [type(action) for action in last.actions] == [ofproto_v1_3_parser.OFPActionGroup]
    *_, back = messages.common_groups(datapath)
    mark, output = back.buckets[0].actions
    assert (mark.dst, output.port) == ("eth_src", ofproto_v1_3.OFPP_IN_PORT)


def test_a_message_to_delete_names_the_match_and_takes_any_port() -> None:
    change = Changes(gone_rules=[ROUTE.key], gone_groups=[300])
    rule, group = messages.changes(change)
    datapath = FakeDatapath(1)
    datapath.send(rule + group)
    (sent,) = datapath.sent
    assert (sent.command, sent.out_port, sent.out_group) == (
        ofproto_v1_3.OFPFC_DELETE_STRICT, ofproto_v1_3.OFPP_ANY, ofproto_v1_3.OFPG_ANY
    )  # fmt: skip
    assert messages.key_of(sent) == ROUTE.key
    assert (group[8:10], datapath.groups) == (b"\0\2", [300])  # OpenFlow: 2 deletes.


def test_new_switch_gets_its_plan(app: RouteKeeper) -> None:
    leaf = connect(app, LEAF)
    settle(app)
    assert added(leaf) == set(app.plan.switches[LEAF].by_cookie)
    assert leaf.groups == [DROP_GROUP, BOUNCE_GROUP]
    *meter, rule = leaf.common
    assert meter == [(ofproto_v1_3.OFPMC_DELETE, DROP_METER), (ofproto_v1_3.OFPMC_ADD, DROP_METER)]
    assert [one.meter_id for one in rule.instructions] == [DROP_METER]
    drop = messages.common_groups(leaf)[-2]
    assert [action.table_id for action in drop.buckets[0].actions] == [DROP_TABLE] == [rule.table_id]


def test_switch_that_has_its_plan_is_left_alone(app: RouteKeeper) -> None:
    drops = SimpleNamespace(table_id=DROP_TABLE, priority=0, match=messages._match(None, None, None, None, None))
    leaf = connect(app, LEAF, [*(statistics(rule) for rule in app.plan.rules[LEAF]), drops])
    settle(app)
    assert leaf.sent == []


def test_only_what_differs_is_sent_to_a_switch_that_comes_back(app: RouteKeeper) -> None:
    kept, changed, *_ = app.plan.rules[LEAF]
    stale = FlowRule(LEAF, Priority.ROUTE, "", destination="192.0.2.7")
    stranger = SimpleNamespace(**vars(statistics(stale, cookie=0)))
    stranger.match = ofproto_v1_3_parser.OFPMatch(eth_type=0x0800, ip_proto=6)
    found = [statistics(rule) for rule in app.plan.rules[LEAF] if rule != changed]
    leaf = connect(app, LEAF, [*found, statistics(changed, cookie=5), statistics(stale), stranger])
    settle(app)
    assert added(leaf) == {changed.cookie}
    gone = [message for message in leaf.sent if message.command == ofproto_v1_3.OFPFC_DELETE_STRICT]
    assert [dict(message.match.items()) for message in gone] == [
        {"eth_type": 0x0800, "ip_proto": 6},
        {"eth_type": 0x0800, "ipv4_dst": "192.0.2.7"},
    ]
    assert kept.cookie not in added(leaf)


def test_late_end_of_an_old_connection_does_not_forget_the_new_one(app: RouteKeeper) -> None:
    old = connect(app, LEAF)
    connect(app, LEAF)
    app.on_state_change(SimpleNamespace(datapath=old, state=DEAD_DISPATCHER))
    assert app.state()["missing"] == ["z0l01", "z0s00"]


def test_ready_only_when_every_switch_confirmed(app: RouteKeeper) -> None:
    connect(app, LEAF)
    connect(app, OTHER_LEAF)
    settle(app)
    assert not app.state()["ready"]
    connect(app, SPINE)
    assert not app.state()["ready"]
    settle(app)
    state = app.state()
    assert (state["ready"], state["expected"], state["connected"], state["missing"]) == (True, 3, 3, [])
    assert [event["kind"] for event in app.history()].count("connected") == 3


def test_a_port_that_fails_has_the_plan_made_anew_and_one_that_returns_back(app: RouteKeeper) -> None:
    switches = [connect(app, dpid) for dpid in (LEAF, OTHER_LEAF, SPINE)]
    settle(app)
    whole = app.plan
    report_port(app, switches[0], 2, up=False)
    settle(app)
    assert app.state()["links_down"] == ["z0l00:2--z0s00:1"]
    assert app.state()["plan"] == whole.digest != app.plan.digest, "a run plans for the whole fabric"
    assert app.state()["cuts"] == {"fabric": (("10.0.0.1",), ("10.0.0.2",))}
    assert app.plan != whole
    assert added(switches[0]) >= set(app.plan.switches[LEAF].by_cookie)
    report_port(app, switches[0], 2, up=True)
    settle(app)
    assert app.plan == whole
    kinds = [kind for kind, _ in groupby(event["kind"] for event in app.history())]
    assert kinds[kinds.index("port") :] == ["port", "planned", "round", "installed"] * 2


def test_others_have_their_turn_while_the_app_plans(app: RouteKeeper) -> None:
    """Echo requests of switches are answered between the parts of a plan, however long the whole takes."""
    turns: list[int] = []

    def take_turns() -> None:
        while True:
            turns.append(len(turns))
            hub.sleep(0)

    leaf, *_ = (connect(app, dpid) for dpid in (LEAF, OTHER_LEAF, SPINE))
    settle(app)
    report_port(app, leaf, 2, up=False)
    other = hub.spawn(take_turns)
    settle(app)
    hub.kill(other)
    planned, compared, sent = 3, 3, 3
    assert len(turns) >= planned + compared + sent


def test_a_link_is_down_as_long_as_either_end_is(app: RouteKeeper) -> None:
    leaf, spine = connect(app, LEAF), connect(app, SPINE)
    report_port(app, leaf, 2, up=False)
    report_port(app, spine, 1, up=False)
    report_port(app, leaf, 2, up=True)
    assert len(app.links_down()) == 1
    report_port(app, spine, 1, up=True)
    assert not app.links_down()


def test_a_switch_that_disconnects_is_no_failure_of_its_links(app: RouteKeeper) -> None:
    spine = connect(app, SPINE)
    app.on_state_change(SimpleNamespace(datapath=spine, state=DEAD_DISPATCHER))
    assert not app.links_down()


def test_switch_outside_the_fabric_gets_nothing_and_is_named(app: RouteKeeper) -> None:
    stranger = connect(app, 0x99)
    assert stranger.sent == []
    assert app.state()["unexpected"] == ["0x99"]


def test_rejected_rule_is_named_and_nothing_is_ready(app: RouteKeeper) -> None:
    leaf, *_ = (connect(app, dpid) for dpid in (LEAF, OTHER_LEAF, SPINE))
    rejected = messages.add_rule(app.plan.rules[LEAF][0])
    error = ofproto_v1_3_parser.OFPErrorMsg(
        leaf, ofproto_v1_3.OFPET_FLOW_MOD_FAILED, ofproto_v1_3.OFPFMFC_TABLE_FULL, rejected[:64]
    )
    app.on_error(SimpleNamespace(msg=error))
    settle(app)
    (text,) = app.state()["errors"]
    assert text.startswith(f"z0l00: OFPFMFC_TABLE_FULL(1) for FlowRule(dpid={LEAF}, priority=")
    assert not app.state()["ready"]


def test_silent_switches_are_named(app: RouteKeeper) -> None:
    connect(app, LEAF).is_silent = True
    with pytest.raises(ControllerError, match=r"no answer from z0l00 within 0\.01 s"):
        app.counters(timeout_s=0.01)


def test_answer_that_breaks_off_is_no_answer(app: RouteKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = connect(app, LEAF)

    def answer_half(_: int, xid: int, __: bytes) -> None:
        part = SimpleNamespace(datapath=leaf, xid=xid, body=[], flags=ofproto_v1_3.OFPMPF_REPLY_MORE)
        app.on_answer(SimpleNamespace(msg=part))

    monkeypatch.setattr(leaf, "reply", answer_half)
    with pytest.raises(ControllerError, match="no answer from z0l00"):
        app.ports(timeout_s=0.01)


def test_counters_sum_drops_by_purpose_over_all_parts_of_an_answer(
    app: RouteKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaf = connect(app, LEAF)
    report_port(app, leaf, 2, up=False)
    settle(app)
    miss = next(rule for rule in app.plan.rules[LEAF] if rule.purpose == Purpose.TABLE_MISS)
    no_way = next(rule for rule in app.plan.rules[LEAF] if rule.purpose == Purpose.UNREACHABLE)

    def answer_in_parts(_: int, xid: int, what: bytes) -> None:
        of_meters = int.from_bytes(what, "big") == ofproto_v1_3.OFPMP_METER
        for packets, more in ((2, ofproto_v1_3.OFPMPF_REPLY_MORE), (3, 0)):
            counted = SimpleNamespace(packet_in_count=10 * packets, byte_in_count=1000 * packets)
            body = [counted] if of_meters else [statistics(miss, packets), statistics(no_way, packets=7)]
            part = SimpleNamespace(datapath=leaf, xid=xid, body=body, flags=more)
            app.on_answer(SimpleNamespace(msg=part))

    monkeypatch.setattr(leaf, "reply", answer_in_parts)
    assert app.counters(timeout_s=1) == {
        "z0l00": {
            "table miss": {"packets": 5, "bytes": 500},
            # Of the meter: the rule goes, and its counter with it, when the link is back.
            "unreachable": {"packets": 50, "bytes": 5000},
        }
    }


def test_rule_that_is_not_in_the_plan_is_called_unplanned(app: RouteKeeper) -> None:
    assert messages.rule_statistics(statistics(ROUTE), app._purpose(LEAF, 0))["purpose"] == "unplanned"


def test_counter_that_a_switch_has_not_is_none() -> None:
    statistics = ofproto_v1_3_parser.OFPPortStats(1, 2, 3, 4, 5, 2**64 - 1, 7, 8, 9, 0, 0, 0, 0, 0, 0)
    assert list(messages.port_statistics(statistics).values()).count(None) == 1
