"""Between planned rules and OpenFlow 1.3 messages, both ways."""

from __future__ import annotations

import ipaddress
from typing import Any

from ryu.lib.packet.ether_types import ETH_TYPE_IP
from ryu.ofproto.nicira_ext import NX_MP_ALG_MODULO_N

from controllers.detours import BOUNCED
from controllers.plan import (
    BOUNCE_GROUP,
    DROP_COOKIE_BIT,
    DROP_GROUP,
    MAIN_TABLE,
    WAYS_TABLE,
    FlowRule,
    Group,
    Hashing,
    Mark,
    Purpose,
    RuleKey,
    rule_of_key,
)
from controllers.updates import Changes

COOKIE_AT = slice(8, 16)
"""Where a flow-mod's cookie is: an error quotes the beginning of what it rejects, so the rule can be named."""

_CHOICE, _WAY = "reg1", "reg0"
"""Registers: which set of ways a packet takes, and the way that its hash chose."""
_WAY_BITS = 31
"""Nicira's ofs_nbits: bits 0 to 31 of a register."""
_SYMMETRIC_L3L4_UDP = 3
"""Open vSwitch's NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP, which Ryu has no name for."""

UNSUPPORTED_COUNTER = 2**64 - 1
"""OpenFlow 1.3: what a switch sends for a counter that it does not have."""


def add_rule(datapath: Any, rule: FlowRule) -> Any:
    """Return the message that adds a rule; a rule of the same match and priority keeps its counters.

    What drops for want of a way does so in the group that drops: such a rule goes when its link returns, and its
    counters with it, while the group stays and has counted.
    """
    return datapath.ofproto_parser.OFPFlowMod(
        datapath,
        cookie=rule.cookie,
        table_id=rule.table,
        priority=rule.priority,
        match=_match(datapath, rule),
        instructions=_instructions(datapath, rule),
    )


def _instructions(datapath: Any, rule: FlowRule) -> list[Any]:
    parser, ofproto = datapath.ofproto_parser, datapath.ofproto
    actions = [parser.OFPActionOutput(port) for port in rule.outputs]
    if rule.purpose == Purpose.UNREACHABLE:
        actions.append(parser.OFPActionGroup(DROP_GROUP))
    if rule.group is not None:
        actions.append(parser.OFPActionGroup(rule.group))
    if rule.hashing is not None:
        actions += _hash_actions(parser, rule.hashing)
    apply = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)] if actions else []
    return [*apply, parser.OFPInstructionGotoTable(WAYS_TABLE)] if rule.hashing else apply


def _hash_actions(parser: Any, hashing: Hashing) -> list[Any]:
    return [
        parser.NXActionRegLoad2(dst=_CHOICE, value=hashing.choice),
        parser.NXActionMultipath(
            fields=_SYMMETRIC_L3L4_UDP,
            basis=hashing.basis,
            algorithm=NX_MP_ALG_MODULO_N,
            max_link=hashing.ways - 1,
            arg=0,
            ofs_nbits=_WAY_BITS,
            dst=_WAY,
        ),
    ]


def delete_rule(datapath: Any, priority: int, match: Any, table: int) -> Any:
    """Return the message that deletes the one rule of exactly this match and priority."""
    ofproto = datapath.ofproto
    return datapath.ofproto_parser.OFPFlowMod(
        datapath,
        command=ofproto.OFPFC_DELETE_STRICT,
        table_id=table,
        priority=priority,
        match=match,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
    )


def changes(datapath: Any, change: Changes) -> list[Any]:
    """Return the messages of one round: what rules lean on comes before them, and goes after them."""
    return [
        *(add_group(datapath, group) for group in change.new_groups),
        *(add_rule(datapath, rule) for rule in change.rules),
        *(_delete_key(datapath, key) for key in change.gone_rules),
        *(delete_group(datapath, number) for number in change.gone_groups),
    ]


def _delete_key(datapath: Any, key: RuleKey) -> Any:
    rule = rule_of_key(datapath.id, key)
    return delete_rule(datapath, rule.priority, _match(datapath, rule), rule.table)


def common_groups(datapath: Any) -> list[Any]:
    """Return the messages that add the groups which all others lean on: one drops, one sends back."""
    parser, ofproto = datapath.ofproto_parser, datapath.ofproto
    back = [*_mark_actions(parser, BOUNCED), parser.OFPActionOutput(ofproto.OFPP_IN_PORT)]
    return [
        parser.OFPGroupMod(
            datapath, ofproto.OFPGC_ADD, ofproto.OFPGT_INDIRECT, number, [parser.OFPBucket(actions=actions)]
        )
        for number, actions in ((DROP_GROUP, []), (BOUNCE_GROUP, back))
    ]


def add_group(datapath: Any, group: Group) -> Any:
    """Return the message that adds a group; its last bucket, for when no port is alive, drops or sends back."""
    parser, ofproto = datapath.ofproto_parser, datapath.ofproto
    buckets = [
        parser.OFPBucket(
            watch_port=bucket.port,
            watch_group=ofproto.OFPG_ANY,
            actions=[*_mark_actions(parser, bucket.mark), parser.OFPActionOutput(bucket.port)],
        )
        for bucket in group.buckets
    ]
    last = BOUNCE_GROUP if group.bounces else DROP_GROUP
    actions = [parser.OFPActionGroup(last)]
    buckets.append(parser.OFPBucket(watch_port=ofproto.OFPP_ANY, watch_group=last, actions=actions))
    return parser.OFPGroupMod(datapath, ofproto.OFPGC_ADD, ofproto.OFPGT_FF, group.number, buckets)


def delete_group(datapath: Any, number: int) -> Any:
    """Return the message that deletes a group, with whatever rule still names it."""
    ofproto = datapath.ofproto
    return datapath.ofproto_parser.OFPGroupMod(datapath, ofproto.OFPGC_DELETE, ofproto.OFPGT_FF, number)


def _mark_actions(parser: Any, mark: Mark | None) -> list[Any]:
    if mark is None:
        return []
    first = (mark.mask & -mark.mask).bit_length() - 1
    bits = mark.mask.bit_count()
    # Nicira's ofs_nbits. A masked set_field would say it more plainly, but Ryu cannot encode one of six bytes.
    place = first << 6 | bits - 1
    return [parser.NXActionRegLoad(ofs_nbits=place, dst="eth_src", value=mark.value >> first)]


def rule_statistics_request(datapath: Any, drops_only: bool) -> Any:
    """Return the request for the counters of every rule, or of the planned rules that drop."""
    ofproto = datapath.ofproto
    cookie = DROP_COOKIE_BIT if drops_only else 0
    return datapath.ofproto_parser.OFPFlowStatsRequest(
        datapath, 0, ofproto.OFPTT_ALL, ofproto.OFPP_ANY, ofproto.OFPG_ANY, cookie, cookie
    )


def group_request(datapath: Any) -> Any:
    """Return the request for what every group says."""
    return datapath.ofproto_parser.OFPGroupDescStatsRequest(datapath, 0)


def drop_group_request(datapath: Any) -> Any:
    """Return the request for the counters of the group that drops."""
    return datapath.ofproto_parser.OFPGroupStatsRequest(datapath, 0, DROP_GROUP)


def key_of(statistics: Any) -> RuleKey | None:
    """Return what a switch's rule matches, as plans say it; None if no plan says such a thing."""
    match = dict(statistics.match.items())
    kind = match.pop("eth_type", None)
    destination, source = _prefix(match.pop("ipv4_dst", None)), _prefix(match.pop("ipv4_src", None))
    in_port, mark = match.pop("in_port", None), _mark(match.pop("eth_src", None))
    way = (match.pop(_CHOICE, None), match.pop(_WAY, None))
    unplanned = match or (kind is not None) != bool(destination or source) or (None in way and way != (None, None))
    if unplanned or statistics.table_id != (MAIN_TABLE if way == (None, None) else WAYS_TABLE):
        return None
    return statistics.priority, destination, source, in_port, mark, None if None in way else way


def _mark(address: Any) -> Mark | None:
    if address is None:
        return None
    value, mask = address if isinstance(address, tuple) else (address, "ff:ff:ff:ff:ff:ff")
    return Mark(_number(value), _number(mask))


def _number(mac: str) -> int:
    return int(mac.replace(":", ""), 16)


def _mac(number: int) -> str:
    return number.to_bytes(6, "big").hex(":")


def port_statistics_request(datapath: Any) -> Any:
    """Return the request for the counters of every port."""
    return datapath.ofproto_parser.OFPPortStatsRequest(datapath, 0, datapath.ofproto.OFPP_ANY)


def encoded(datapath: Any, message: Any) -> bytes:
    """Return a message as it goes over the wire, under the datapath's next transaction id."""
    datapath.set_xid(message)
    message.serialize()
    return bytes(message.buf)


def rule_statistics(statistics: Any, purpose: str) -> dict[str, Any]:
    """Return one rule's counters, with the match and outputs that the switch has."""
    match = statistics.match
    return {
        "priority": statistics.priority,
        "destination": _prefix(match.get("ipv4_dst")),
        "source": _prefix(match.get("ipv4_src")),
        "in_port": match.get("in_port"),
        "outputs": [action.port for action in _actions(statistics) if hasattr(action, "port")],
        "group": next((action.group_id for action in _actions(statistics) if hasattr(action, "group_id")), None),
        "purpose": purpose,
        "packets": statistics.packet_count,
        "bytes": statistics.byte_count,
    }


def port_statistics(statistics: Any) -> dict[str, int | None]:
    """Return one port's counters, as PortCounters in controllers.client has them; None for what is not counted."""
    counters = {
        "port": statistics.port_no,
        "received_packets": statistics.rx_packets,
        "received_bytes": statistics.rx_bytes,
        "received_dropped": statistics.rx_dropped,
        "received_errors": statistics.rx_errors,
        "sent_packets": statistics.tx_packets,
        "sent_bytes": statistics.tx_bytes,
        "sent_dropped": statistics.tx_dropped,
        "sent_errors": statistics.tx_errors,
    }
    return {name: None if value == UNSUPPORTED_COUNTER else value for name, value in counters.items()}


def _match(datapath: Any, rule: FlowRule) -> Any:
    fields: dict[str, Any] = {}
    if rule.in_port is not None:
        fields["in_port"] = rule.in_port
    if rule.mark is not None:
        fields["eth_src"] = (_mac(rule.mark.value), _mac(rule.mark.mask))
    if rule.way is not None:
        fields[_CHOICE], fields[_WAY] = rule.way
    for name, prefix in (("ipv4_src", rule.source), ("ipv4_dst", rule.destination)):
        if prefix is not None:
            fields["eth_type"] = ETH_TYPE_IP
            fields[name] = _address_and_mask(prefix) if "/" in prefix else prefix
    return datapath.ofproto_parser.OFPMatch(**fields)


def _address_and_mask(prefix: str) -> tuple[str, str]:
    network = ipaddress.IPv4Network(prefix)
    return str(network.network_address), str(network.netmask)


def _prefix(value: Any) -> str | None:
    """Return an address or prefix as rules write it, from what a decoded match holds."""
    if isinstance(value, tuple):
        return str(ipaddress.IPv4Network("/".join(value)))
    return None if value is None else str(value)


def _actions(statistics: Any) -> list[Any]:
    return [one for instruction in statistics.instructions for one in getattr(instruction, "actions", ())]
