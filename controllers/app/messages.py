"""Conversion between planned rules and OpenFlow 1.3 messages, in both directions."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from controllers.app.openflow import ETH_TYPE_IP, NX_MP_ALG_MODULO_N
from controllers.app.openflow import ofproto_v1_3 as ofproto
from controllers.app.openflow import ofproto_v1_3_parser as parser
from controllers.planning.plan import (
    BOUNCE_GROUP,
    BOUNCED,
    DROP_COOKIE_BIT,
    DROP_GROUP,
    DROP_METER,
    DROP_TABLE,
    MAIN_TABLE,
    WAYS_TABLE,
    Bucket,
    FailoverGroup,
    FlowRule,
    Hashing,
    Mark,
    Purpose,
    RuleKey,
    Spraying,
    rule_of_key,
)
from controllers.planning.updates import Changes
from fabric.model.drawing import digits_of

COOKIE_AT = slice(8, 16)
"""Where a flow-mod's cookie is: an error quotes the beginning of what it rejects, so the rule can be named."""

_CHOICE, _WAY = "reg1", "reg0"
"""Registers: which set of ways a packet takes, and the way that its hash chose."""
_WAY_BITS = 31
"""Nicira's ofs_nbits: bits 0 to 31 of a register."""
_SYMMETRIC_L3L4_UDP = 3
"""Open vSwitch's NX_HASH_FIELDS_SYMMETRIC_L3L4_UDP, which the library has no name for."""

_IN_PORT_BITS = 15
"""Nicira's ofs_nbits: bits 0 to 15 of the port of arrival as it names it; OpenFlow's own name cannot be written."""

_IPV4_BITS = 32

_HEADER = struct.Struct(ofproto.OFP_HEADER_PACK_STR)
_FLOW_MOD = struct.Struct(ofproto.OFP_FLOW_MOD_PACK_STR0)
_GROUP_MOD = struct.Struct(ofproto.OFP_GROUP_MOD_PACK_STR)

_UNREACHED_PACKETS_PER_S = 2**32 - 1
"""A meter has a band, and this one's must not be reached: it is there to count."""

UNSUPPORTED_COUNTER = 2**64 - 1
"""OpenFlow 1.3: what a switch sends for a counter that it does not have."""


def add_rule(rule: FlowRule) -> bytes:
    """Return the message that adds a rule; a rule of the same match and priority keeps its counters.

    What drops for want of a way does so by the group that drops: such a rule goes when its link returns, and its
    counters with it, while the group's meter stays and has counted. Matches and actions are encoded once each, since
    many rules share them: a large fabric has hundreds of thousands of rules.
    """
    no_way = rule.purpose == Purpose.UNREACHABLE
    match = _encoded_match(rule.destination, rule.source, rule.in_port, rule.mark, rule.way)
    group = DROP_GROUP if no_way else rule.group
    body = match + _encoded_instructions(rule.outputs, group, rule.hashing, rule.writes, rule.readdresses)
    return _flow_mod(rule.cookie, rule.table, ofproto.OFPFC_ADD, rule.priority, body)


def _flow_mod(cookie: int, table: int, command: int, priority: int, body: bytes) -> bytes:
    """Return a flow-mod whose match and instructions are encoded; nobody looks at its transaction id."""
    size = ofproto.OFP_HEADER_SIZE + _FLOW_MOD.size + len(body)
    header = _HEADER.pack(ofproto.OFP_VERSION, ofproto.OFPT_FLOW_MOD, size, 0)
    ports = ofproto.OFP_NO_BUFFER, ofproto.OFPP_ANY, ofproto.OFPG_ANY
    return header + _FLOW_MOD.pack(cookie, 0, table, command, 0, 0, priority, *ports, 0) + body


@lru_cache(maxsize=1 << 16)
def _encoded_match(
    destination: str | None, source: str | None, in_port: int | None, mark: Mark | None, way: tuple[int, int] | None
) -> bytes:
    return _serialized(_match(destination, source, in_port, mark, way))


@lru_cache(maxsize=1 << 12)
def _encoded_instructions(
    outputs: tuple[int, ...], group: int | None, hashing: Hashing | None, writes: Mark | None, readdresses: bool
) -> bytes:
    encoded = bytearray()
    for instruction in _instructions(outputs, group, hashing, writes, readdresses):
        instruction.serialize(encoded, len(encoded))
    return bytes(encoded)


def _instructions(
    outputs: tuple[int, ...], group: int | None, hashing: Hashing | None, writes: Mark | None, readdresses: bool
) -> list[Any]:
    actions = [_readdress()] if readdresses else []
    actions += [action for port in outputs for action in output(port, writes)]
    if group is not None:
        actions.append(parser.OFPActionGroup(group))
    if hashing is not None:
        actions += _hash_actions(hashing)
    apply = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)] if actions else []
    return [*apply, parser.OFPInstructionGotoTable(WAYS_TABLE)] if hashing else apply


def output(port: int, mark: Mark | None = None) -> list[Any]:
    """Return the actions that put a mark on a packet and send it out of ``port``, even if it came in by it.

    OpenFlow has a switch ignore an output to the port of arrival, and nobody counts the packet. Packets that were on a
    wire when rules changed, and those that look for a way around a failure, do have to go back at times, so the port of
    arrival is forgotten first. That is a matter of translation: the datapath's flows are the same.
    """
    forget = parser.NXActionRegLoad(ofs_nbits=_IN_PORT_BITS, dst="in_port_nxm", value=0)
    return [*_mark_actions(mark), forget, parser.OFPActionOutput(port)]


def _readdress() -> Any:
    """Return the action that addresses a frame to the NIC which has its packet's address (``mac_of_ip``)."""
    return parser.NXActionRegMove(src_field="ipv4_dst", dst_field="eth_dst", n_bits=_IPV4_BITS)


def _hash_actions(hashing: Hashing) -> list[Any]:
    if isinstance(hashing, Spraying):
        return [parser.NXActionRegLoad2(dst=_CHOICE, value=hashing.choice), *_digit_actions(hashing.ways)]
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


def _digit_actions(ways: int) -> Iterator[Any]:
    """Yield what copies the digits of a frame's mark to the register of the way. The datapath's flows then depend on
    no other bits of it: there is one for each way."""
    place = 0
    for digit in digits_of(ways):
        yield parser.NXActionRegMove(
            src_field="pkt_mark", dst_field=_WAY, n_bits=digit.bits, src_ofs=digit.first, dst_ofs=place
        )
        place += digit.bits


def delete_rule(datapath: Any, priority: int, match: Any, table: int) -> Any:
    """Return the message that deletes the one rule of exactly this match and priority."""
    return parser.OFPFlowMod(
        datapath,
        command=ofproto.OFPFC_DELETE_STRICT,
        table_id=table,
        priority=priority,
        match=match,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
    )


def changes(change: Changes) -> Iterator[bytes]:
    """Yield the messages of one round: what rules lean on comes before them, and goes after them."""
    yield from map(add_group, change.new_groups)
    yield from map(add_rule, change.rules)
    yield from map(_delete_key, change.gone_rules)
    yield from map(delete_group, change.gone_groups)


def _delete_key(key: RuleKey) -> bytes:
    priority, destination, source, in_port, mark, way = key
    table = rule_of_key(0, key).table
    match = _encoded_match(destination, source, in_port, mark, way)
    return _flow_mod(0, table, ofproto.OFPFC_DELETE_STRICT, priority, match)


def common_groups(datapath: Any) -> list[Any]:
    """Return the messages that add the groups which all others lean on: one drops, one sends back.

    The first drops by a rule in a table of its own, whose meter counts. The meter is deleted before: to add one that is
    there is an error, to delete one that is not is none, and a switch may have kept its meter and lost its groups.
    """
    drop = [parser.NXActionResubmitTable(table_id=DROP_TABLE)]
    back = [*_mark_actions(BOUNCED), parser.OFPActionOutput(ofproto.OFPP_IN_PORT)]
    groups = [
        parser.OFPGroupMod(
            datapath, ofproto.OFPGC_ADD, ofproto.OFPGT_INDIRECT, number, [parser.OFPBucket(actions=actions)]
        )
        for number, actions in ((DROP_GROUP, drop), (BOUNCE_GROUP, back))
    ]
    flags = ofproto.OFPMF_PKTPS | ofproto.OFPMF_STATS
    band = parser.OFPMeterBandDrop(rate=_UNREACHED_PACKETS_PER_S, burst_size=0)
    return [
        parser.OFPMeterMod(datapath, ofproto.OFPMC_DELETE, flags, DROP_METER),
        parser.OFPMeterMod(datapath, ofproto.OFPMC_ADD, flags, DROP_METER, [band]),
        parser.OFPFlowMod(datapath, table_id=DROP_TABLE, instructions=[parser.OFPInstructionMeter(DROP_METER)]),
        *groups,
    ]


def is_common(statistics: Any) -> bool:
    """Whether a switch's rule is the one that comes with the groups which all others lean on."""
    return bool(statistics.table_id == DROP_TABLE)


def add_group(group: FailoverGroup) -> bytes:
    """Return the message that adds a group; its last bucket, for when no port is alive, drops or sends back."""
    last = _encoded_last_bucket(BOUNCE_GROUP if group.bounces else DROP_GROUP)
    return _group_mod(ofproto.OFPGC_ADD, group.number, b"".join([*map(_encoded_bucket, group.buckets), last]))


def _group_mod(command: int, number: int, buckets: bytes) -> bytes:
    size = ofproto.OFP_HEADER_SIZE + _GROUP_MOD.size + len(buckets)
    header = _HEADER.pack(ofproto.OFP_VERSION, ofproto.OFPT_GROUP_MOD, size, 0)
    return header + _GROUP_MOD.pack(command, ofproto.OFPGT_FF, number) + buckets


@lru_cache(maxsize=1 << 12)
def _encoded_bucket(bucket: Bucket) -> bytes:
    return _serialized(bucket_message(bucket))


def bucket_message(bucket: Bucket) -> Any:
    """Return a group's bucket as OpenFlow has it."""
    actions = output(bucket.port, bucket.mark)
    return parser.OFPBucket(watch_port=bucket.port, watch_group=ofproto.OFPG_ANY, actions=actions)


@lru_cache(maxsize=2)
def _encoded_last_bucket(group: int) -> bytes:
    actions = [parser.OFPActionGroup(group)]
    return _serialized(parser.OFPBucket(watch_port=ofproto.OFPP_ANY, watch_group=group, actions=actions))


def _serialized(part: Any) -> bytes:
    encoded = bytearray()
    part.serialize(encoded, 0)
    return bytes(encoded)


def delete_group(number: int) -> bytes:
    """Return the message that deletes a group, with whatever rule still names it."""
    return _group_mod(ofproto.OFPGC_DELETE, number, b"")


def _mark_actions(mark: Mark | None) -> list[Any]:
    if mark is None:
        return []
    first = (mark.mask & -mark.mask).bit_length() - 1
    bits = mark.mask.bit_count()
    # Nicira's ofs_nbits. A masked set_field would say it more plainly, but the library cannot encode one of six bytes.
    place = first << 6 | bits - 1
    return [parser.NXActionRegLoad(ofs_nbits=place, dst="eth_src", value=mark.value >> first)]


def rule_statistics_request(datapath: Any, drops_only: bool) -> Any:
    """Return the request for the counters of every rule, or of the planned rules that drop."""
    cookie = DROP_COOKIE_BIT if drops_only else 0
    return datapath.ofproto_parser.OFPFlowStatsRequest(
        datapath, 0, ofproto.OFPTT_ALL, ofproto.OFPP_ANY, ofproto.OFPG_ANY, cookie, cookie
    )


def group_request(datapath: Any) -> Any:
    """Return the request for what every group says."""
    return datapath.ofproto_parser.OFPGroupDescStatsRequest(datapath, 0)


def drop_meter_request(datapath: Any) -> Any:
    """Return the request for the counters of the meter of what drops for want of a way."""
    return datapath.ofproto_parser.OFPMeterStatsRequest(datapath, 0, DROP_METER)


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


def _match(
    destination: str | None, source: str | None, in_port: int | None, mark: Mark | None, way: tuple[int, int] | None
) -> Any:
    fields: dict[str, Any] = {}
    if in_port is not None:
        fields["in_port"] = in_port
    if mark is not None:
        fields["eth_src"] = (_mac(mark.value), _mac(mark.mask))
    if way is not None:
        fields[_CHOICE], fields[_WAY] = way
    for name, prefix in (("ipv4_src", source), ("ipv4_dst", destination)):
        if prefix is not None:
            fields["eth_type"] = ETH_TYPE_IP
            fields[name] = _address_and_mask(prefix) if "/" in prefix else prefix
    return parser.OFPMatch(**fields)


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
