"""Run by test_real_switches.py in private namespaces: the small fabric as bridges joined by patch ports, no hosts.

``ofproto/trace`` follows a packet through patch ports, so it shows a whole path; ``packet-out`` makes counters count.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from controllers.client import ControllerProcess, ControllerState, DropCounters
from controllers.planning.paths import planned_path
from controllers.planning.plan import RoutePlan, is_route
from controllers.planning.planner import plan_routes
from controllers.routing import Repair, Routing
from controllers.task import Task
from fabric.emulation.openvswitch import INACTIVITY_PROBE_MS
from fabric.model.identity import NodeId, Role
from fabric.model.network import Fabric, Nic, Port
from tests.waiting import until
from topologies.load import load_fabric

RUN = Path("/run")
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
STALE_RULE = "priority=7,ip,nw_dst=192.0.2.7,actions=drop"
IGNORED = "skipping output to input port"
STANDSTILL_S = 11.5
"""Longer than the five seconds without a word and the five without an answer after which switches connect anew."""
PAIRS = [("10.0.0.1", "10.0.0.5"), ("10.0.0.1", "10.0.0.2"), ("10.0.0.1", "10.1.0.4"), ("10.1.0.3", "10.129.0.2")]


def main(report: Path) -> None:
    fabric = load_fabric("fire_flyer_2_small")
    routing = Routing(repair=Repair.FAST_FAILOVER)
    plan = plan_routes(fabric, routing)
    start_open_vswitch()
    Task(fabric, routing).save(RUN / "task.json")
    add_bridges(fabric)
    run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", "z0l00", STALE_RULE)
    with ControllerProcess(RUN / "task.json", RUN / "controller.log") as controller:
        controller.wait_listening(timeout_s=60)
        started_s = time.monotonic()
        connect(fabric, controller.target)
        state = controller.wait_ready(timeout_s=60)
        seen = {"ready_s": time.monotonic() - started_s, "errors": state.errors, "planned_rules": plan.rule_count}
        rules = controller.rules()
        seen["installed_rules"] = len(rules)
        seen["stale_rules"] = sum(rule.purpose == "unplanned" for rule in rules)
        nics = [(fabric.nic_at_ip[a], fabric.nic_at_ip[b]) for a, b in PAIRS]
        seen["planned_outputs"] = [[p.number for p in planned_path(plan, fabric, a, b)[1:]] for a, b in nics]
        seen["traced_outputs"] = [traced_outputs(fabric, a, b) for a, b in nics]
        seen["going_back"] = {switch.name: traced_back(plan, fabric, switch) for switch in fabric.switches}
        seen["dropped"] = drop_and_count(fabric, controller)
        seen["rules_after_reconnect"] = lose_rules_and_reconnect(fabric, controller)
        seen["disconnected"] = stand_still(controller)
    report.write_text(json.dumps(seen))


def run(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}"
    return done.stdout


def start_open_vswitch() -> None:
    run("ip", "link", "set", "lo", "up")
    Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")  # What it sends by itself would be counted.
    run("mount", "-t", "tmpfs", "tmpfs", str(RUN))
    for variable in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"):
        os.environ[variable] = str(RUN)
    run("ovsdb-tool", "create", f"{RUN}/conf.db", SCHEMA)
    detached = ["--detach", "--pidfile", "--no-chdir", "--log-file"]
    run("ovsdb-server", *detached, f"--remote=punix:{RUN}/db.sock", f"{RUN}/conf.db")
    run("ovs-vsctl", "--no-wait", "init")
    run("ovs-vswitchd", *detached, f"unix:{RUN}/db.sock")


def add_bridges(fabric: Fabric) -> None:
    run("ovs-vsctl", *chain.from_iterable(["--", *command] for s in fabric.switches for command in bridge(fabric, s)))
    for nic in fabric.nics:
        run("ip", "link", "set", fabric.peer(nic.port).interface, "up")  # Else its link counts as cut.


def bridge(fabric: Fabric, switch: NodeId) -> list[list[str]]:
    settings = ["datapath_type=netdev", "fail_mode=secure", "protocols=OpenFlow13"]
    settings.append(f"other-config:datapath-id={switch.dpid:016x}")
    ports = [command for port in fabric.ports_of[switch] for command in bridge_port(fabric, port)]
    return [["add-br", switch.name], ["set", "bridge", switch.name, *settings], *ports]


def bridge_port(fabric: Fabric, port: Port) -> list[list[str]]:
    peer = fabric.peer(port)
    kind = ["type=patch", f"options:peer={peer.interface}"] if peer.node.is_switch else ["type=internal"]
    settings = ["set", "interface", port.interface, f"ofport_request={port.number}", *kind]
    return [["add-port", port.node.name, port.interface], settings]


def connect(fabric: Fabric, target: str) -> None:
    run("ovs-vsctl", *chain.from_iterable(controlled_by(switch.name, target) for switch in fabric.switches))


def controlled_by(bridge: str, target: str) -> list[str]:
    """Return the words of an ovs-vsctl transaction that give a bridge its controller, with the project's patience."""
    probe = f"inactivity_probe={INACTIVITY_PROBE_MS}"
    return ["--", "set-controller", bridge, target, "--", "set", "controller", bridge, probe]


def traced_outputs(fabric: Fabric, source: Nic, destination: Nic) -> list[int]:
    """Return the output ports that Open vSwitch would use on the way."""
    leaf = fabric.peer(source.port)
    packet = f"in_port={leaf.number},ip,nw_src={source.ip},nw_dst={destination.ip}"
    trace = run("ovs-appctl", "ofproto/trace", leaf.node.name, packet)
    return [int(port) for port in re.findall(r"output:(\d+)", trace)]


def traced_back(plan: RoutePlan, fabric: Fabric, switch: NodeId) -> dict[str, list[str]]:
    """Return what Open vSwitch says of packets that come in by the port that they are to leave by.

    ``ignored`` by the rules of the plan, and by one that does not forget the port; ``megaflows`` and ``actions`` of a
    rule with a port, whether it forgets it or not.
    """
    rule = next(rule for rule in plan.rules[switch.dpid] if is_route(rule.key))
    (port,) = plan.ways(rule)
    packet = f"in_port={port},ip,nw_dst={rule.destination}"
    found: dict[str, list[str]] = {"planned": trace(switch, packet, rf"output:{port}|{IGNORED}|Datapath actions: \w+")}
    megaflows, ignored, rule_of = [], [], "priority=9999,ip,nw_dst=192.0.2.9"
    for actions in ("output:1", "load:0->NXM_OF_IN_PORT[],output:1"):
        run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", switch.name, f"{rule_of},actions={actions}")
        megaflows += trace(switch, "in_port=2,ip,nw_dst=192.0.2.9", r"Megaflow: .*")
        ignored += trace(switch, "in_port=1,ip,nw_dst=192.0.2.9", IGNORED) or ["passed on"]
    run("ovs-ofctl", "-O", "OpenFlow13", "del-flows", switch.name, "ip,nw_dst=192.0.2.9")
    return {**found, "megaflows": megaflows, "ignored": ignored}


def trace(switch: NodeId, packet: str, wanted: str) -> list[str]:
    """Return what Open vSwitch says of a packet, of what is wanted."""
    return re.findall(wanted, run("ovs-appctl", "ofproto/trace", switch.name, packet))


def stand_still(controller: ControllerProcess) -> list[str]:
    """Let the controller do nothing but plan, as it were, and return the switches that gave it up meanwhile.

    One switch is as impatient as all are by default, so that it can be seen that this is what makes the difference.
    """
    run("ovs-vsctl", "set", "controller", "z1s00", "inactivity_probe=5000")
    wait_until(controller, lambda state: state.ready)
    before_s = time.monotonic()
    os.kill(controller.pid, signal.SIGSTOP)
    time.sleep(STANDSTILL_S)
    os.kill(controller.pid, signal.SIGCONT)

    def gave_it_up() -> list[str]:
        events = controller.events()
        return [event.details["switch"] for event in events if event.kind == "disconnected" and event.at_s > before_s]

    until(gave_it_up, "the controller to notice a switch that has gone")  # Before that it may take itself for ready.
    controller.wait_ready(timeout_s=60)
    return gave_it_up()


def drop_and_count(fabric: Fabric, controller: ControllerProcess) -> dict[str, int]:
    """Send packets that no rule wants, and return what the leaf counted."""
    storage = fabric.nics_of[NodeId(Role.STORAGE, None, 0)][0]
    leaf = fabric.leaf_of(storage)
    for source, destination, count in (("10.0.0.1", "192.0.2.1", 2), (storage.ip, "10.1.0.1", 3)):
        packet = bytes(Ether() / IP(src=source, dst=destination) / UDP()).hex()
        for _ in range(count):
            run("ovs-ofctl", "-O", "OpenFlow13", "packet-out", leaf.name, f"in_port=1,packet={packet},actions=table")

    def counted() -> DropCounters | None:
        found = controller.counters()[leaf.name]
        return found if found.table_miss_packets >= 2 and found.guard_packets >= 3 else None

    # Open vSwitch updates a rule's counters every half second.
    found = until(counted, "the counters of the rules that drop")
    return {"table_miss_packets": found.table_miss_packets, "guard_packets": found.guard_packets}


def lose_rules_and_reconnect(fabric: Fabric, controller: ControllerProcess) -> int:
    """Return the rules of all switches after one lost all of its own and connected again."""
    run("ovs-vsctl", "del-controller", "z0s00")
    run("ovs-ofctl", "-O", "OpenFlow13", "del-flows", "z0s00")
    wait_until(controller, lambda state: state.missing == ("z0s00",))
    run("ovs-vsctl", *controlled_by("z0s00", controller.target))
    controller.wait_ready(timeout_s=60)
    return len(controller.rules())


def wait_until(controller: ControllerProcess, is_true: Any) -> None:
    deadline_s = time.monotonic() + 20
    state: ControllerState = controller.state()
    while not is_true(state):
        assert time.monotonic() < deadline_s, f"still {state}"
        time.sleep(0.05)
        state = controller.state()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
