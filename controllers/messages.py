"""Between planned rules and OpenFlow 1.3 messages, both ways."""

from __future__ import annotations

import ipaddress
from typing import Any

from ryu.lib.packet.ether_types import ETH_TYPE_IP

from controllers.plan import DROP_COOKIE_BIT, FlowRule

COOKIE_AT = slice(8, 16)
"""Where a flow-mod's cookie is: an error quotes the beginning of what it rejects, so the rule can be named."""

UNSUPPORTED_COUNTER = 2**64 - 1
"""OpenFlow 1.3: what a switch sends for a counter that it does not have."""


def add_rule(datapath: Any, rule: FlowRule, cookie: int) -> Any:
    """Return the message that adds a rule; a rule of the same match and priority keeps its counters."""
    parser, ofproto = datapath.ofproto_parser, datapath.ofproto
    actions = [parser.OFPActionOutput(port) for port in rule.outputs]
    apply = [parser.OFPInstructionActions(ofproto.OFPIT_APPLY_ACTIONS, actions)] if actions else []
    return parser.OFPFlowMod(
        datapath, cookie=cookie, priority=rule.priority, match=_match(datapath, rule), instructions=apply
    )


def delete_all_rules(datapath: Any) -> Any:
    """Return the message that deletes every rule of every table."""
    ofproto = datapath.ofproto
    return datapath.ofproto_parser.OFPFlowMod(
        datapath,
        command=ofproto.OFPFC_DELETE,
        table_id=ofproto.OFPTT_ALL,
        out_port=ofproto.OFPP_ANY,
        out_group=ofproto.OFPG_ANY,
    )


def rule_statistics_request(datapath: Any, drops_only: bool) -> Any:
    """Return the request for the counters of every rule, or of the planned rules that drop."""
    ofproto = datapath.ofproto
    cookie = DROP_COOKIE_BIT if drops_only else 0
    return datapath.ofproto_parser.OFPFlowStatsRequest(
        datapath, 0, ofproto.OFPTT_ALL, ofproto.OFPP_ANY, ofproto.OFPG_ANY, cookie, cookie
    )


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
        "outputs": [action.port for instruction in statistics.instructions for action in _outputs(instruction)],
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


def _outputs(instruction: Any) -> list[Any]:
    return [action for action in getattr(instruction, "actions", ()) if hasattr(action, "port")]
